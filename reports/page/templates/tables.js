// Sorts tables by a column and leaves out rows that a reader does not look for. Without it every row is there.
"use strict";

const ABSENT = "–";
const LONG = 8; // rows of a table that is worth a filter
const SECONDS = { h: 3600, min: 60, s: 1 };
const collator = new Intl.Collator("en", { numeric: true });

// A cell's number: the mean of an interval, the first of a share, the seconds of a time; NaN of words.
function numberOf(text) {
  const plain = text.replaceAll(",", "").replaceAll("−", "-");
  const times = [...plain.matchAll(/([\d.]+) (h|min|s)\b/g)];
  if (times.length) return times.reduce((sum, [, count, unit]) => sum + count * SECONDS[unit], 0);
  return parseFloat(plain.replace("∞", "Infinity"));
}

function sorted(rows, column, down) {
  const cells = rows.map((row) => ({ row, text: row.cells[column].textContent.trim() }));
  const there = cells.filter(({ text }) => text !== ABSENT);
  const named = cells[0]?.row.cells[column].tagName === "TH"; // a claim's 2a and 2b are no equal numbers
  const numeric = !named && there.every(({ text }) => !Number.isNaN(numberOf(text)));
  const compare = numeric
    ? (a, b) => numberOf(a.text) - numberOf(b.text)
    : (a, b) => collator.compare(a.text, b.text);
  there.sort((a, b) => (down ? compare(b, a) : compare(a, b)));
  return [...there, ...cells.filter(({ text }) => text === ABSENT)].map(({ row }) => row); // absent ones last
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      table.classList.add("sorted");
      table.tBodies[0].append(...sorted([...table.tBodies[0].rows], column, down));
    });
  });
}

// Rows that continue the one above stay with it.
function groups(table) {
  const found = [];
  for (const row of table.tBodies[0].rows) {
    if (row.classList.contains("more") && found.length) found.at(-1).push(row);
    else found.push([row]);
  }
  return found;
}

function makeFilter(table) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  const status = document.createElement("output");
  label.className = "filter screen";
  input.type = "search";
  label.append("Rows with ", input, " ", status);
  table.parentElement.before(label);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const rows of groups(table)) {
      const text = rows.map((row) => row.textContent.toLowerCase()).join(" ");
      const hidden = !words.every((word) => text.includes(word));
      for (const row of rows) row.hidden = hidden;
      if (!hidden) shown += rows.length;
    }
    status.textContent = words.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
  });
}

const narrow = matchMedia("(max-width: 40rem)").matches;
for (const table of document.querySelectorAll("main table")) {
  const rows = table.tBodies[0].rows.length;
  const stacked = narrow && table.matches(".claims, .parts"); // their heads are out of sight there
  if (rows > 1 && !stacked && !table.classList.contains("scores")) makeSortable(table);
  if (rows >= LONG) makeFilter(table);
}
