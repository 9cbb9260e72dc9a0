import base64
import hashlib
import itertools
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from scipy import stats

from ablations.wording import printable
from reports import folder as experiment_folder
from reports.figures.panel import lines_in_words
from reports.figures.style import arm_styles
from reports.folder import is_fresh
from reports.page import page
from reports.words import number, trillions
from tests.support.fake_experiment import ARMS, plan, rows, write
from tests.support.figures import with_styles
from tests.support.html_page import HOSTILE, MINUS, NONE, Page, strict_json
from tests.support.page_texts import PANELS, texts_of

# One file, safe anywhere -----------------------------------------------------------------------------


def test_the_page_asks_for_nothing_and_runs_its_own_script_alone(shown):
    for address in shown.attributes("src", "href", "srcset", "action", "data", "poster"):
        assert address.startswith(("data:", "#", "figures/")), address
    used = re.findall(r"url\(([^)]*)\)", shown.source)
    assert used
    assert all(address.startswith("data:image/svg+xml;") for address in used)
    for _, drawn in shown.images:
        assert not re.search(r"@import|<script|<foreignObject|<image|(href|src)=\"[^#]", drawn)
    assert "@import" not in shown.source
    assert [a for tag, a in shown.tags if tag == "script"] == [{}]
    assert not shown.foreign
    assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)


def test_the_policy_allows_the_one_style_sheet_and_script_and_nothing_else(shown):
    (policy,) = [a["content"] for tag, a in shown.tags if a.get("http-equiv") == "Content-Security-Policy"]
    (style,) = [data for tag, data in shown.texts if tag == "style"]
    (script,) = [data for tag, data in shown.texts if tag == "script"]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy == (
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; base-uri 'none'; "
        "form-action 'none'".format(*digests)
    )
    assert not shown.attributes("style"), "the policy would drop them"


def test_the_page_is_small(folder):
    assert (folder / "report.html").stat().st_size < 300_000  # of 3 MB, for 12 runs


def test_large_data_are_linked_and_not_embedded(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(page, "EMBEDDED_CSV_BYTES", 1000)
    source = page.write(write(tmp_path)).read_text(encoding="utf-8")
    assert "csv;" not in source
    assert 'href="figures/layer_change-pwcca.csv"' in source


def test_the_same_experiment_gives_the_same_bytes_and_no_leftovers(folder):
    def everything():
        return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = everything()
    page.write(folder)
    assert everything() == before
    files = {str(path) for path in before}
    drawn = {f"figures/{name}.{kind}" for name in PANELS for kind in ("svg", "csv")}
    written = {"report.html", "report.md", "report.json", "tables/arms.tex", "tables/compared.tex"}
    assert files == {"plan.json", "spec.yaml", "results.parquet"} | written | drawn


def test_nothing_from_a_spec_or_a_run_is_markup(tmp_path):
    arm = f"mlm {HOSTILE} $x^"
    made = plan(("mlm",))
    changes = {
        "question": HOSTILE,
        "arms": [arm],
        "claims": [HOSTILE],
        "runs": [run | {"arm": arm} for run in made["runs"]],
        "data": {"description": HOSTILE, "address": HOSTILE},
    }
    states = {("mlm", 0): {"state": "failed", "message": f"\x1b[31m{HOSTILE}\ud800\x00"}}
    table_rows = [row | {"arm": arm} for row in rows(("mlm",))]
    folder = write(tmp_path, arms=("mlm",), table_rows=table_rows, plan_changes=changes, states=states)
    (folder / "spec.yaml").write_text(f"# {HOSTILE}\n", encoding="utf-8")
    shown = Page(page.write(folder))
    assert not shown.foreign
    assert sum(tag == "style" for tag, _ in shown.tags) == 1
    once = " ".join(HOSTILE.split())
    assert shown.text.count(once) >= 8  # title, question, summary, notice, data, tables, claims, spec
    assert f"\N{REPLACEMENT CHARACTER}[31m{once}\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}" in shown.text
    alternative, _ = shown.images[0]
    assert alternative.startswith(f"1 {MINUS} PWCCA similarity. Mean over seeds by layer. {arm}: ")
    assert strict_json(folder / "report.json")["arms"][0]["arm"] == arm


def test_signs_that_turn_text_around_are_replaced():
    for sign in "\N{RIGHT-TO-LEFT OVERRIDE}\N{RIGHT-TO-LEFT ISOLATE}":
        assert printable(f"a{sign}b") == "a\N{REPLACEMENT CHARACTER}b"
    assert printable("\u05e9\u05dc\u05d5\u05dd") == "\u05e9\u05dc\u05d5\u05dd"  # Hebrew stays


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (-0.004, 2, "0.00"),
        (-0.006, 2, f"{MINUS}0.01"),
        (0.0, 1, "0.0"),
        (-1234.5, 1, f"{MINUS}1,234.5"),
        (-0.4, 0, "0"),
    ],
)
def test_no_zero_has_a_minus(value, digits, written):
    assert number(value, digits) == written


@pytest.mark.parametrize(
    ("operations", "written"),
    [(2.3e12, "2.30"), (1e11, "0.10"), (4.64e9, "0.0046"), (1.26e6, "0.0000013"), (0, "0.00"), (None, "–")],
)
def test_operations_of_tiny_runs_are_not_shown_as_none(operations, written):
    assert trillions(operations) == written


def test_what_masked_lm_was_shown_and_says_of_it_stands_in_a_table(tmp_path):
    def said(arm, seed, measure, metric, value, group=None):
        run_id = f"{ARMS.index(arm):05x}{seed:05x}"
        run = {"experiment": "article-tiny", "run_id": run_id, "arm": arm, "seed": seed, "step": 500}
        return run | {"measure": measure, "metric": metric, "group": group, "value": value, "unit": "1"}

    made = [
        said("mlm", seed, *row)
        for seed in range(3)
        for row in (
            ("corruption", "hidden", 0.149 + 0.001 * seed),
            ("validation", "loss", 3.0 + seed, "masked"),
            ("validation", "observed_clean", 0.5),
        )
    ]
    made = [row | ({"floor": 0.25} if row["metric"] == "observed_clean" else {}) for row in made]
    folder = write(tmp_path, arms=("mlm", "clm"), table_rows=[*rows(("mlm", "clm")), *made])
    shown = Page(page.write(folder))
    header, body = shown.table("Masked LM: rates of corruption")
    (row,) = body  # causal LM has no such rows
    cells = dict(zip(header, row, strict=True))
    half = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5  # of 14.9, 15.0, 15.1
    assert cells["Arm"] == "mlm"
    assert cells["Selected (training)"] == f"15.0 ± {half:.1f}"
    assert cells["Loss at [MASK]"].startswith("4.00 ± ")
    assert cells["Guesses what is hidden"] == "25.0 ± 0.0"
    assert cells["Repeats what is right"] == "50.0 ± 0.0"
    assert cells["Finds what is right"] == NONE


def test_losses_in_other_orders_formats_and_of_parts_stand_in_a_table(tmp_path):
    def losses(arm, seed, value, *groups):
        run = {"experiment": "article-tiny", "run_id": f"{ARMS.index(arm):05x}{seed:05x}", "arm": arm}
        row = run | {"seed": seed, "step": 500, "measure": "validation", "metric": "loss", "unit": "nats"}
        return [row | {"group": group, "value": value + seed} for group in groups]

    added = [
        row
        for seed in range(3)
        for row in losses("mlm", seed, 3.0, "masked", "ngrams, n 1")
        + losses("clm", seed, 5.0, "ngrams, n 1", "full")
    ]
    folder = write(tmp_path, arms=("mlm", "clm"), table_rows=[*rows(("mlm", "clm")), *added])
    header, (mlm, clm) = Page(page.write(folder)).table("Validation losses in nats beside the one")
    half = stats.t.ppf(0.975, 2) / 3**0.5
    assert header == ["Arm", "ngrams, n 1", "full"]
    assert mlm == ["mlm", f"4.000 ± {half:.3f}", NONE]
    assert clm == ["clm", f"6.000 ± {half:.3f}", f"6.000 ± {half:.3f}"]
    text = (folder / "report.md").read_text("utf-8")
    assert "## Other losses\n" in text
    assert f"| mlm | 4.000 ± {half:.3f} | – |\n" in text
    without = write(tmp_path / "without", arms=("mlm",), table_rows=rows(("mlm",)))
    assert "Validation losses in nats beside" not in page.write(without).read_text("utf-8")


def test_the_page_needs_no_torch():
    code = "import sys, reports.page.page; sys.exit(any(name in sys.modules for name in ('torch', 'lightning')))"
    subprocess.run([sys.executable, "-c", code], check=True)


# For every reader ------------------------------------------------------------------------------------


def test_every_name_is_unique_and_every_reference_has_its_target(shown):
    assert {"extent", "runs"} <= set(shown.names)


def test_figures_are_images_with_a_description_that_says_the_numbers(shown, twin):
    described = [alternative for alternative, _ in shown.images]
    titles = [
        f"1 {MINUS} PWCCA similarity",
        f"1 {MINUS} debiased CKA",
        "Cross-fitted estimate",
        "Plug-in estimate",
    ]
    panels = [panel for figure in twin["figures"] for panel in figure["panels"]]
    assert described == [f"{title}. {panel['description']}" for title, panel in zip(titles, panels, strict=True)]
    points = twin["figures"][1]["panels"][0]["points"]
    mlm = {point["layer"]: f"{point['mean']:.3f}" for point in points if point["arm"] == "mlm"}
    assert f"mlm: {mlm[0]} at 0 (highest), {mlm[6]} at 6 and {mlm[4]} at 4 (lowest); " in described[2]
    assert f"chance level {MINUS}0.030; ceiling 5.900." in described[2]


def test_of_numbers_that_are_written_alike_none_is_highest_or_lowest():
    """As of an untrained encoder, whose layers change next to nothing."""
    means = (6e-6, 5e-6, 7e-6)
    points = [
        {"arm": "new", "layer": i, "layer_to": i + 1, "mean": mean, "floor": 0.5, "seeds": 1}
        for i, mean in enumerate(means)
    ]
    said = "Single runs by layer. new: {}; chance level 0.500."
    alike = "0.000 at 0\N{RIGHTWARDS ARROW}1 and 0.000 at 2\N{RIGHTWARDS ARROW}3"
    assert lines_in_words(points, line="arm", digits=3) == said.format(alike)
    points[1]["mean"] = 0.2
    other = "0.000 at 0\N{RIGHTWARDS ARROW}1 (lowest), 0.000 at 2\N{RIGHTWARDS ARROW}3"
    highest = "0.200 at 1\N{RIGHTWARDS ARROW}2 (highest)"
    assert lines_in_words(points, line="arm", digits=3) == said.format(f"{other} and {highest}")


def test_figures_keep_their_text_as_text(shown):
    drawn = " ".join(text for _, drawn in shown.images for text in texts_of(drawn))
    assert "layer (0 = embeddings)" in drawn
    assert "n = 3 seeds" in drawn
    assert "0→1" in drawn


def test_figures_stand_alone_as_files(folder, shown):
    for name in PANELS:
        drawn = (folder / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
        assert drawn in [image for _, image in shown.images]
        assert not re.search(r"20\d\d-\d\d-\d\d", drawn)


def test_tables_have_captions_and_headers_with_scopes(shown):
    assert len(shown.tables) == 9  # arms twice, runs, and for each figure its curves and the numbers of two panels
    assert all(table["caption"].strip() for table in shown.tables)
    assert any(tag == "th" for tag, _ in shown.tags)  # of whose scopes `Page.names` speaks


def test_headings_come_in_order_and_tell_the_story(shown):
    levels = [int(tag[1]) for tag, _ in shown.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    headings = [data for tag, data in shown.texts if tag in ("h1", "h2")]
    assert headings == [
        "article-tiny",
        "Figure 1. Change between consecutive layers",
        "What was run",
        "Arms compared",
        "Figure 2. Information about the input token",
        "Runs",
        "Provenance",
        "Spec",
    ]


def test_style_serves_phones_print_and_the_dark(shown):
    (style,) = [data for tag, data in shown.texts if tag == "style"]
    for query in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem"):
        assert query in style
    assert any(a.get("name") == "viewport" for _, a in shown.tags)


def test_a_page_is_fresh_until_anything_it_is_made_from_or_of_changes(tmp_path):
    folder = write(tmp_path)
    assert not is_fresh(folder)
    page.write(folder)
    assert is_fresh(folder)
    state = next((folder.parent / "runs").glob("*/state.json"))
    for changed in (folder / "plan.json", folder / "spec.yaml", folder / "results.parquet", state):
        before = changed.read_bytes()
        changed.write_bytes(before.replace(b" ", b"  ", 1) if changed.suffix != ".parquet" else before + b" ")
        assert not is_fresh(folder), changed
        changed.write_bytes(before)
        assert is_fresh(folder)
    files = strict_json(folder / "report.json")["files"]
    assert {f"figures/{PANELS[0]}.svg", f"figures/{PANELS[0]}.csv", "tables/arms.tex"} <= set(files)
    for lost in (folder / name for name in ("report.html", "report.md", *files)):
        lost.rename(tmp_path / "aside")
        assert not is_fresh(folder), lost
        (tmp_path / "aside").rename(lost)
    (folder / "report.json").write_text("{")
    assert not is_fresh(folder)


def test_figures_are_turned_for_a_dark_screen_and_never_on_paper(shown):
    (style,) = [data for tag, data in shown.texts if tag == "style"]
    dark = style[style.index("@media screen and (prefers-color-scheme: dark)") :]
    assert ".card img, .swatch { filter: invert(1) hue-rotate(180deg); }" in dark.partition("\n}")[0]
    assert style.count("filter:") == 1


def test_figures_have_no_background(shown):
    for _, drawn in shown.images:
        root = ElementTree.fromstring(with_styles(drawn))
        shapes = [
            part for part in root.iter("{http://www.w3.org/2000/svg}path") if "clip" not in part.get("id", "")
        ]
        white = [part for part in shapes if "fill: #ffffff" in part.get("style", "") and "z" in part.get("d", "")]
        assert not [part for part in white if "stroke" not in part.get("style", "")]


def test_a_swatch_beside_a_name_is_the_arms_own(shown):
    (style,) = [data for tag, data in shown.texts if tag == "style"]
    looks = dict(
        re.findall(r"[.](line-\d+) { background-image: url[(]data:image/svg[+]xml;base64,([^)]*)[)]; }", style)
    )
    used = {a["class"].removeprefix("swatch ") for tag, a in shown.tags if "swatch " in a.get("class", "")}
    assert used == looks.keys() == {f"line-{number}" for number in range(1, len(ARMS) + 1)}
    for (arm, line), drawn in zip(arm_styles(ARMS).items(), looks.values(), strict=True):
        assert line.colour.lower() in base64.b64decode(drawn).decode(), arm


def test_a_page_is_made_again_when_any_file_that_makes_it_changes(folder, tmp_path, monkeypatch):
    """The package is copied, and each of its modules and templates changed in turn."""
    copy = shutil.copytree(experiment_folder.HERE, tmp_path / "reports", ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(experiment_folder, "HERE", copy)
    before = experiment_folder.digest(folder)
    changed = [*copy.rglob("*.py"), *copy.rglob("templates/*")]
    assert {"content.py", "report.md", "page.css", "words.py"} <= {path.name for path in changed}
    for path in changed:
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        assert experiment_folder.digest(folder) != before
        path.write_bytes(content)
    assert experiment_folder.digest(folder) == before
