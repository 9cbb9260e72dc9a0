"""The page in a real browser: Debian's Chromium, headless and without a network.

Run with `make test-browser`; `.ci/run` installs the browser and does.
"""

import shutil

import pytest

from reports.page import page
from tests.support import claim_page, score_page
from tests.support.html_page import HOSTILE, strict_json

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = {"phone": 390, "tablet": 768, "desktop": 1280, "wide": 1920}

OVERLAPS = """
() => {
  // Boxes of text of which neither holds the other: two must not share pixels. What scrolls is clipped.
  const names = ["h1", "h2", "h3", "p", "table", "figure", "dl", "li", "summary", "label"];
  const boxes = [...document.querySelectorAll(names.map((name) => `main ${name}`).join())]
    .filter((element) => element.checkVisibility() && !element.closest(".unseen, .scroll"))
    .map((element) => [element, element.getBoundingClientRect()]);
  const words = (element) => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`;
  const found = [];
  boxes.forEach(([a, first], index) => {
    for (const [b, second] of boxes.slice(index + 1)) {
      if (a.contains(b) || b.contains(a)) continue;
      const wide = Math.min(first.right, second.right) - Math.max(first.left, second.left);
      const high = Math.min(first.bottom, second.bottom) - Math.max(first.top, second.top);
      if (wide > 2 && high > 2) found.push(`${words(a)} / ${words(b)}`);
    }
  });
  return found;
}
"""

TOO_WIDE = """
() => [...document.querySelectorAll("main *")]
  .filter((element) => !element.closest(".scroll, pre, svg, .unseen") && element.checkVisibility())
  .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
  .map((element) => `${element.tagName} ${element.textContent.trim().slice(0, 60)}`)
"""


CONTRAST = """
(elements) => elements.filter((element) => element.checkVisibility()).map((element) => {
  const straight = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).slice(0, 3).map((value) => straight(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const clear = (colour) => /^rgba\\(.*, 0\\)$/.test(colour);
  let behind = element;
  while (behind && clear(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const ink = luminance(getComputedStyle(element).color);
  const paper = luminance(getComputedStyle(behind ?? document.body).backgroundColor);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
})
"""


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    from playwright.sync_api import sync_playwright  # the other tests do without it

    # The page is our own file, and a sandbox wants rights that containers do not have.
    own = {"executable_path": CHROMIUM, "args": ["--no-sandbox"]}
    with sync_playwright() as playwright, playwright.chromium.launch(**own) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Folders of experiments with every verdict, with every table of scores, and with hostile texts."""
    claims = claim_page.made(tmp_path_factory.mktemp("claims"))
    tasks = score_page.made(tmp_path_factory.mktemp("tasks"))
    hostile = claim_page.made(tmp_path_factory.mktemp("hostile"), question=HOSTILE)
    for folder in (claims, tasks, hostile):
        page.write(folder)
    return {"claims": claims, "tasks": tasks, "hostile": hostile}


@pytest.fixture
def opened(browser):
    """Opens a page, and afterwards insists that it asked for nothing and complained of nothing."""
    complaints, requests, contexts = [], [], []

    def open_page(folder, *, width=1280, **options):
        context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        tab.on("request", lambda request: requests.append(request.url))
        address = (folder / "report.html").as_uri()
        tab.goto(address)
        assert tab.title()
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url.split(":")[0] for url in requests} <= {"file", "data"}
    assert all(url.endswith("/report.html") for url in requests if url.startswith("file"))


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", ["claims", "tasks", "hostile"])
def test_nothing_overlaps_and_nothing_leads_out_of_sight(pages, opened, name, width):
    tab = opened(pages[name], width=width)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(TOO_WIDE) == []
    tab.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    assert tab.evaluate(OVERLAPS) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_many_versions_of_a_package_stay_within_a_narrow_page(pages, opened):
    """Runs of seven commits have seven versions of this package. Their line was never broken, and was 1,200 pixels
    wide on a page of 390."""
    tab = opened(pages["claims"], width=390)
    tab.evaluate(
        "document.querySelector('.version').textContent = Array(7).fill('0.1.dev680+geccab4728').join(' and ')"
    )
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    assert tab.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_claim_is_there_with_its_verdict_with_scripts_and_without(pages, opened, scripts, width):
    tab = opened(pages["claims"], width=width, java_script_enabled=scripts)
    text = tab.locator("main").inner_text()
    claims = strict_json(pages["claims"] / "report.json")["claims"]
    assert len(claims) == len(claim_page.VERDICTS) + 1  # and the file that is gone
    for claim in claims:
        assert tab.locator(f"#{claim['id']}").is_visible()
        assert (claim["says"] or claim["name"]) in text
        assert claim["verdict"] in text


def test_without_scripts_every_row_is_there(pages, opened):
    with_scripts = opened(pages["tasks"]).locator("main tr").all_text_contents()
    assert opened(pages["tasks"], java_script_enabled=False).locator("main tr").all_text_contents() == with_scripts


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(pages, opened, scheme):
    tab = opened(pages["claims"], color_scheme=scheme)
    for selector in ("h1", "main > p", "caption", "figcaption", ".reason", "td", "th", ".verdict"):
        for ratio in tab.locator(selector).evaluate_all(CONTRAST):
            assert ratio >= 4.5, selector  # WCAG 2.2, 1.4.3


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_turned_on_a_dark_screen_and_light_in_print(pages, opened, scheme):
    tab = opened(pages["claims"], color_scheme=scheme)
    figures = tab.locator(".card img, .swatch")
    filters = "(all) => [...new Set(all.map((one) => getComputedStyle(one).filter))]"
    assert figures.count() > 0
    turned = {"light": "none", "dark": "invert(1) hue-rotate(180deg)"}[scheme]
    assert figures.evaluate_all(filters) == [turned]
    tab.emulate_media(media="print", color_scheme=scheme)
    assert figures.evaluate_all(filters) == ["none"]


def test_parts_of_claims_need_no_scrolling_on_a_phone_and_stay_a_table(pages, opened):
    tab = opened(pages["claims"], width=WIDTHS["phone"])
    boxes = tab.locator(".scroll:has(.parts)")
    widths = boxes.evaluate_all("(all) => all.map((box) => [box.scrollWidth, box.clientWidth])")
    assert len(widths) > 1
    assert all(wanted <= there + 1 for wanted, there in widths)
    table = boxes.first.get_by_role("table")
    assert (
        table.get_by_role("columnheader").count()
        == table.get_by_role("cell").count() // table.get_by_role("rowheader").count() + 1
    )


BROKEN_WORDS = """
() => {
  // Pieces between the hyphens of a name that stand on more than one line.
  const broken = [];
  for (const head of document.querySelectorAll(".parts tbody th")) {
    const name = head.firstChild;
    for (const piece of name.data.matchAll(/[^-\\s]+/g)) {
      const range = document.createRange();
      range.setStart(name, piece.index);
      range.setEnd(name, piece.index + piece[0].length);
      if (range.getClientRects().length > 1) broken.push(piece[0]);
    }
  }
  return broken;
}
"""


def test_a_wide_table_of_parts_breaks_names_only_at_hyphens(pages, opened):
    """A table that is wider than the page made the column of names 35 pixels wide: "translati on-changes"."""
    tab = opened(pages["claims"])
    tab.evaluate("""() => document.querySelectorAll(".parts tbody tr").forEach((row) => {
      row.querySelector("th").firstChild.data = "translation-reconstructs-at-each-layer ";
      row.querySelector("td[data-head=Effect]").textContent = "0.0042 [0.0017, 0.0067] ".repeat(3);
    })""")
    assert tab.evaluate(BROKEN_WORDS) == []


def cells(table, column):
    return [text.strip() for text in table.locator(f"tbody tr > :nth-child({column})").all_inner_texts()]


def test_a_column_sorts_both_ways_by_its_numbers_and_absent_ones_stay_last(pages, opened):
    tab = opened(pages["claims"])
    table = tab.locator("table", has=tab.locator("#run-table"))
    heads = [text.split("(")[0].strip() for text in table.locator("thead th").all_inner_texts()]
    column = heads.index("Validation loss") + 1
    before = cells(table, column)
    absent = [text for text in before if text == "–"]
    assert absent
    numbers = sorted((text for text in before if text != "–"), key=float)
    assert numbers != before[: len(numbers)]
    head = table.locator("thead th").nth(column - 1)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert cells(table, column) == [*numbers, *absent]
    head.get_by_role("button").press("Enter")  # from the keyboard as well
    assert head.get_attribute("aria-sort") == "descending"
    assert cells(table, column) == [*numbers[::-1], *absent]
    table.locator("thead th").first.get_by_role("button").click()
    assert head.get_attribute("aria-sort") is None
    assert cells(table, 1) == sorted(cells(table, 1))


def test_a_filter_keeps_the_rows_that_have_all_its_words_and_says_how_many(pages, opened):
    tab = opened(pages["claims"])
    region = tab.get_by_role("region", name="Runs, each at its last step")
    label = region.locator("xpath=preceding-sibling::label[1]")
    rows = region.locator("tbody tr")
    total = rows.count()
    label.locator("input").fill("mlm 3")
    shown = region.locator("tbody tr:visible")
    assert 0 < shown.count() < total
    assert all("mlm" in text and "3" in text for text in shown.all_inner_texts())
    assert label.locator("output").inner_text() == f"{shown.count()} of {total} rows"
    label.locator("input").fill("")
    assert shown.count() == total
    assert label.locator("output").inner_text() == ""


def test_rows_that_continue_another_are_kept_with_it(pages, opened):
    tab = opened(pages["tasks"])
    label, table = tab.locator("label:has(+ div .scores)").first, tab.locator("label + div .scores").first
    label.locator("input").fill("lm_syneval")
    rows = table.locator("tbody tr:visible")
    (first,) = [i for i, text in enumerate(rows.all_inner_texts()) if "lm_syneval" in text]
    assert first == 0
    assert rows.count() > 1
    assert all("more" in row for row in rows.evaluate_all("(rows) => rows.slice(1).map((row) => row.className)"))


def test_hostile_texts_are_words(pages, opened):
    tab = opened(pages["hostile"])
    assert " ".join(HOSTILE.split()) in " ".join(tab.locator(".question").inner_text().split())
    assert tab.locator("main script, main :not(.card) > img, main iframe").count() == 0


def test_print_shows_no_controls_and_all_verdicts(pages, opened):
    tab = opened(pages["claims"], width=720)  # of A4 within its margins
    tab.emulate_media(media="print")
    assert tab.locator(".filter:visible, .screen:visible").count() == 0
    assert tab.locator("#verdicts").is_visible()
    assert tab.evaluate(TOO_WIDE) == []
    assert (
        tab.evaluate(
            "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > innerWidth + 1).length"
        )
        == 0
    )


def test_figures_are_images_with_names_for_those_who_cannot_see(pages, opened):
    tab = opened(pages["claims"])
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")  # as a reader does
    figures = tab.get_by_role("img")
    assert figures.count() == tab.locator("main .card > img").count() > 0
    for name, width in figures.evaluate_all("(all) => all.map((one) => [one.alt, one.naturalWidth])"):
        assert name
        assert width > 0, "the picture can be read"
