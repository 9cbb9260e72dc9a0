"""Tables of a page in LaTeX: a tabular for each with the rules of booktabs; the paper adds table and caption."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from reports import words
from reports.claims.entries import ClaimEntry
from reports.claims.words import beside_verdict, headline_effect, other_verdicts, seeds_shown, significant
from reports.scores.tables import HOW_OVER_EXAMPLES, OVER_EXAMPLES

SIGNS = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "{}$&#_%"},
    **{sign: f"{{{sign}}}" for sign in "[]"},  # after the end of a row a bracket would be its argument
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "\N{MINUS SIGN}": "$-$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "∞": r"$\infty$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "–": "--",
    "…": r"\ldots{}",
    "\N{NO-BREAK SPACE}": "~",
}
"""Signs with a meaning in LaTeX, or that its fonts lack, with their replacements."""

MARKS = {"at": "a", "below": "b"}
"""Marks of scores by their verdict against chance."""


def escaped(text: str) -> str:
    """Return text on one line, with all signs escaped that LaTeX would interpret."""
    return "".join(SIGNS.get(sign, sign) for sign in " ".join(text.split()))


def tables(page: dict[str, Any]) -> dict[str, str]:
    """Return each table of the page that has rows, by the name of its file without the ending.

    `claims` has the verdicts with effect, interval and n. `arms` has what each arm learned in pre-training.
    `compared` has the scores of whole runs with the differences from the first arm. The others are the tables of
    tasks, with a row of differences below each main score that has intervals.
    """
    judged = [claim for claim in page["claims"] if claim.plot]
    written = {"claims": _claims(judged)} if judged else {}
    if any(not words.is_absent(arm["loss"]["mean"]) for arm in page["arms"]):
        written["arms"] = _arms(page["arms"])
    if page["compared"]:
        written["compared"] = _compared(page["compared"])
    written |= {table["name"]: _scores(table) for table in page["tasks"] if table["rows"]}
    return {name: f"{_head(page)}{text}" for name, text in written.items()}


def _head(page: dict[str, Any]) -> str:
    """Return comments on the origin of a table, and on settings that the command line changed."""
    lines = [f"{page['experiment']}, by ablate report. Needs \\usepackage{{booktabs}}."]
    if page["changed"]:
        settings = "; ".join(page["changed"]["given"])
        lines.append(f"The command line changed settings of {page['changed']['from']}: {settings}.")
    return "".join(f"% {' '.join(line.split())}\n" for line in lines)


def _tabular(columns: str, heads: Sequence[str], rows: Iterable[Sequence[str]], notes: Sequence[str]) -> str:
    """Return a tabular with comments above it; the cells must be LaTeX already."""
    body = "".join(f"{' & '.join(row)} \\\\\n" for row in rows)
    return (
        "".join(f"% {note}\n" for note in notes)
        + f"\\begin{{tabular}}{{@{{}}{columns}@{{}}}}\n\\toprule\n{' & '.join(heads)} \\\\\n\\midrule\n"
        + f"{body}\\bottomrule\n\\end{{tabular}}\n"
    )


def _claims(claims: Sequence[ClaimEntry]) -> str:
    numbered = any(claim.number for claim in claims)
    rows = [
        [
            *[str(claim.number or "")] * numbered,
            escaped(claim.says or ""),
            escaped(_verdict(claim)),
            escaped(headline_effect(claim)),
            "" if words.is_absent(claim.smallest_effect) else escaped(significant(claim.smallest_effect)),
            seeds_shown(claim),
        ]
        for claim in claims
    ]
    notes = [
        "Effect: mean over seeds, with its interval, of the part that decides. Matters from: the smallest effect "
        "that matters, of the same part; n counts seeds."
    ]
    return _tabular(
        "r" * numbered + r"p{0.4\linewidth}p{0.2\linewidth}lrr",
        [*["No."] * numbered, "Claim", "Verdict", r"Effect {[}interval{]}", "Matters from", "$n$"],
        rows,
        notes,
    )


def _verdict(claim: ClaimEntry) -> str:
    """Return the verdict, with the part whose effect is shown if there are several: ``contradicted (effect of
    rebuilds)``."""
    counted = [part for part in claim.parts if part.decides and not part.condition]
    effect_of = f"effect of {claim.deciding}" if claim.deciding and len(counted) > 1 else ""
    details = "; ".join(filter(None, [beside_verdict(claim), other_verdicts(claim), effect_of]))
    return f"{claim.verdict} ({details})" if details else claim.verdict


def _arms(arms: Sequence[dict[str, Any]]) -> str:
    shown = [
        (head, name, digits)
        for head, name, digits in (
            ("Gain (nats)", "gain", 2),
            ("Loss (nats)", "loss", 3),
            ("Perplexity", "perplexity", 1),
            ("BLEU", "bleu", 1),
            ("chrF", "chrf", 1),
        )
        if words.anywhere(arms, name)
    ]
    rows = [
        [
            escaped(arm["arm"]),
            *(escaped(words.interval(arm[name], digits)) for _, name, digits in shown),
            str(arm["loss"]["seeds"]),
        ]
        for arm in arms
        if arm["loss"]["seeds"]
    ]
    notes = [
        "Mean over seeds, plus or minus half its 95% t interval; n counts seeds.",
        "Compare losses only between arms that predict the same thing.",
    ]
    return _tabular("l" + "r" * (len(shown) + 1), ["Arm", *(head for head, _, _ in shown), "$n$"], rows, notes)


def _compared(compared: dict[str, Any]) -> str:
    def shown(cell: dict[str, Any] | None, digits: int) -> str:
        if cell is None:
            return escaped(words.ABSENT)
        difference = cell["difference"]
        beside = f" ({words.signed_interval(difference, digits)})" if difference else ""
        return escaped(words.interval(cell, digits) + beside)

    columns = compared["columns"]
    rows = [
        [
            escaped(row["arm"]),
            *(shown(row["cells"].get(column["title"]), column["digits"]) for column in columns),
            escaped("–".join(map(str, row["seeds"]))),
        ]
        for row in compared["rows"]
    ]
    heads = [column["title"] + (f" ({column['unit']})" if column["unit"] != "1" else "") for column in columns]
    notes = [
        "Mean over seeds, plus or minus half its 95% t interval; n counts seeds.",
        f"In brackets: difference from {' '.join(compared['base'].split())} within each seed.",
    ]
    return _tabular("l" + "r" * (len(columns) + 1), ["Arm", *map(escaped, heads), "$n$"], rows, notes)


def _scores(table: dict[str, Any]) -> str:
    heads = ["Task", "Score", *map(escaped, table["beside"]), *map(escaped, table["arms"]), "$n$"]
    rows = []
    for row in table["rows"]:
        label = r"\quad " * bool(row["indented"]) + escaped(row["label"])
        rows.append(
            [
                label,
                escaped(row["scored"]),
                *(
                    escaped(words.number_or_range(row["beside"].get(head), row["digits"], row["scale"]))
                    for head in table["beside"]
                ),
                *(_score(row, arm) for arm in table["arms"]),
                escaped("–".join(map(words.count, row["n"])) or words.ABSENT),
            ]
        )
        differences = [row["arms"].get(arm, {}).get("difference") for arm in table["arms"]]
        if any(differences):
            shown = [
                words.signed_interval(difference, row["digits"], row["scale"]) if difference else ""
                for difference in differences
            ]
            before = [label, escaped(f"difference from {table['base']}"), *[""] * len(table["beside"])]
            rows.append([*before, *map(escaped, shown), ""])
    text = _tabular("ll" + "r" * (len(heads) - 2), heads, rows, _how_to_read(table))
    used = {cell["verdict"] for row in table["rows"] for cell in row["arms"].values()} & set(MARKS)
    legend = "; ".join(
        f"\\textsuperscript{{{MARKS[mark]}}} {mark} {escaped(table['chance'])}" for mark in sorted(used)
    )
    below = f"\\bottomrule\n\\multicolumn{{{len(heads)}}}{{@{{}}l@{{}}}}{{\\footnotesize {legend}}} \\\\\n"
    return text.replace("\\bottomrule\n", below) if used else text


def _score(row: dict[str, Any], arm: str) -> str:
    if arm not in row["arms"]:
        return escaped(words.ABSENT)
    cell = row["arms"][arm]
    mark = MARKS.get(cell["verdict"])
    return escaped(words.interval(cell, row["digits"], row["scale"])) + (
        f"\\textsuperscript{{{mark}}}" if mark else ""
    )


def _how_to_read(table: dict[str, Any]) -> list[str]:
    hundred = any(row["scale"] == 100 for row in table["rows"])
    compares = any(cell["difference"] for row in table["rows"] for cell in row["arms"].values())
    over_examples = [HOW_OVER_EXAMPLES] * (OVER_EXAMPLES in table["bands"])
    return [
        f"{table['title']}: mean over seeds, plus or minus half its 95% t interval"
        + (", with one seed 1.96 standard errors" if "text" in table["bands"] else "")
        + (", shares and scores times 100" if hundred else "")
        + f"; n counts {table['n']}."
        + " Differences are within each seed." * compares,
        *(re.sub(r"\s+", " ", sentence) for sentence in (*table["says"], *over_examples)),
    ]
