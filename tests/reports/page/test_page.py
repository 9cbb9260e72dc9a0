import base64
import hashlib
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablations import results
from ablations.errors import ResultsError
from reports import folder as experiment_folder
from reports.figures.by_arm import ARM_LINES
from reports.figures.panel import lines_in_words
from reports.figures.style import arm_styles
from reports.folder import is_fresh, printable
from reports.page import page
from reports.words import number
from tests.support.fake_experiment import ARMS, GAIN, folder_name, plan, rows, write
from tests.support.html_page import HOSTILE, MINUS, NONE, Page, strict_json

PANELS = (
    "layer_change-pwcca",
    "layer_change-debiased_cka",
    "token_information-cross_fitted",
    "token_information-plug_in",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("whole"))
    assert page.write(folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def whole(folder):
    return Page(folder / "report.html")


@pytest.fixture(scope="module")
def twin(folder):
    return strict_json(folder / "report.json")


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """mt failed with one seed, clm has not started with one and is hardly trained."""
    kept = [
        row for row in rows(gain=GAIN | {"clm": 0.2}) if (row["arm"], row["seed"]) not in (("mt", 1), ("clm", 0))
    ]
    states = {
        ("mt", 1): {"state": "failed", "step": 120, "message": "step 120: the loss is not finite."},
        ("clm", 0): None,
    }
    return write(
        tmp_path_factory.mktemp("broken"), table_rows=kept, states=states, plan_changes={"claims": ["article"]}
    )


@pytest.fixture(scope="module")
def incomplete(broken):
    return Page(page.write(broken))


def texts_of(drawn):
    """The texts of a figure."""
    return [
        "".join(text.itertext()) for text in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    ]


# One file, safe anywhere -----------------------------------------------------------------------------


def test_the_page_asks_for_nothing_and_runs_its_own_script_alone(whole):
    for address in whole.attributes("src", "href", "srcset", "action", "data", "poster"):
        assert address.startswith(("data:", "#", "figures/")), address
    used = re.findall(r"url\(([^)]*)\)", whole.source)
    assert used
    assert all(address.startswith("data:image/svg+xml;") for address in used)
    for _, drawn in whole.images:
        assert not re.search(r"@import|<script|<foreignObject|<image|(href|src)=\"[^#]", drawn)
    assert "@import" not in whole.source
    assert [a for tag, a in whole.tags if tag == "script"] == [{}]
    assert not whole.foreign
    assert not any(name.startswith("on") for _, attributes in whole.tags for name in attributes)


def test_the_policy_allows_the_one_style_sheet_and_script_and_nothing_else(whole):
    (policy,) = [a["content"] for tag, a in whole.tags if a.get("http-equiv") == "Content-Security-Policy"]
    (style,) = [data for tag, data in whole.texts if tag == "style"]
    (script,) = [data for tag, data in whole.texts if tag == "script"]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert policy == (
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; base-uri 'none'; "
        "form-action 'none'".format(*digests)
    )
    assert not whole.attributes("style"), "the policy would drop them"


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
    written = {"report.html", "report.md", "report.json"}
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
    header, body = shown.table("Masked LM: what was done")
    (row,) = body  # causal LM has no such rows
    cells = dict(zip(header, row, strict=True))
    half = stats.t.ppf(0.975, 2) * 0.1 / 3**0.5  # of 14.9, 15.0, 15.1
    assert cells["Arm"] == "mlm"
    assert cells["To predict (training)"] == f"15.0 ± {half:.1f}"
    assert cells["Loss at [MASK]"].startswith("4.00 ± ")
    assert cells["Guesses what is hidden"] == "25.0 ± 0.0"
    assert cells["Repeats what is right"] == "50.0 ± 0.0"
    assert cells["Finds what is right"] == NONE


def test_the_page_needs_no_torch():
    code = "import sys, reports.page.page; sys.exit(any(name in sys.modules for name in ('torch', 'lightning')))"
    subprocess.run([sys.executable, "-c", code], check=True)


# For every reader ------------------------------------------------------------------------------------


def test_every_name_is_unique_and_every_reference_has_its_target(whole):
    names = whole.attributes("id")
    assert len(names) == len(set(names))
    wanted = [a[1:] for a in whole.attributes("href") if a[0] == "#"]
    wanted += whole.attributes("aria-labelledby", "aria-describedby")
    assert set(wanted) <= set(names)


def test_figures_are_images_with_a_description_that_says_the_numbers(whole, twin):
    described = [alternative for alternative, _ in whole.images]
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
    assert f"chance floor {MINUS}0.030; ceiling 5.900." in described[2]


def test_of_numbers_that_are_written_alike_none_is_highest_or_lowest():
    """As of an untrained encoder, whose layers change next to nothing."""
    means = (6e-6, 5e-6, 7e-6)
    points = [
        {"arm": "new", "layer": i, "layer_to": i + 1, "mean": mean, "floor": 0.5, "seeds": 1}
        for i, mean in enumerate(means)
    ]
    said = "Single runs by layer. new: {}; chance floor 0.500."
    alike = "0.000 at 0\N{RIGHTWARDS ARROW}1 and 0.000 at 2\N{RIGHTWARDS ARROW}3"
    assert lines_in_words(points, line="arm", digits=3) == said.format(alike)
    points[1]["mean"] = 0.2
    other = "0.000 at 0\N{RIGHTWARDS ARROW}1 (lowest), 0.000 at 2\N{RIGHTWARDS ARROW}3"
    highest = "0.200 at 1\N{RIGHTWARDS ARROW}2 (highest)"
    assert lines_in_words(points, line="arm", digits=3) == said.format(f"{other} and {highest}")


def test_figures_keep_their_text_as_text(whole):
    drawn = " ".join(text for _, drawn in whole.images for text in texts_of(drawn))
    assert "layer (0 = embeddings)" in drawn
    assert "n = 3 seeds" in drawn
    assert "0→1" in drawn


def test_figures_stand_alone_as_files(folder, whole):
    for name in PANELS:
        drawn = (folder / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
        assert drawn in [image for _, image in whole.images]
        assert not re.search(r"20\d\d-\d\d-\d\d", drawn)


def test_tables_have_captions_and_headers_with_scopes(whole):
    assert len(whole.tables) == 8  # arms, runs, and for each figure its curves and the numbers of two panels
    assert all(table["caption"].strip() for table in whole.tables)
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in whole.tags if tag == "th")
    assert all(len(row) == len(table["rows"][0]) for table in whole.tables for row in table["rows"])


def test_headings_come_in_order_and_tell_the_story(whole):
    levels = [int(tag[1]) for tag, _ in whole.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    headings = [data for tag, data in whole.texts if tag in ("h1", "h2")]
    assert headings == [
        "article-tiny",
        "Figure 1. Change between consecutive layers",
        "What was run",
        "Figure 2. Information about the input token",
        "Runs",
        "Provenance",
        "Spec",
    ]


def test_style_serves_phones_print_and_the_dark(whole):
    (style,) = [data for tag, data in whole.texts if tag == "style"]
    for query in ("prefers-color-scheme: dark", "@media print", "max-width: 40rem"):
        assert query in style
    assert any(a.get("name") == "viewport" for _, a in whole.tags)


# What it says ----------------------------------------------------------------------------------------


def test_title_question_and_summary(whole):
    question = "What does each layer keep about its token under each objective?"
    assert ("title", f"article-tiny: {question}") in whole.texts
    assert ("p", question) in whole.texts
    assert (
        "12 runs: 4 arms (mlm, clm, mt and untrained) \N{MULTIPLICATION SIGN} 3 seeds (0, 1, 2), all done. "
        "The encoder has 6 layers of width 64 with 4 heads. Training takes 500 steps of at most 2,048 source "
        "tokens; untrained keeps its initial weights. Text: the built-in language, seed 0: 100,000 sentences to "
        "train on, 1,534,211 tokens in them, 4,000 sentences to validate on, 1,024 sub-words in the vocabulary. "
        "Training took 8 min 37 s in all."
    ) in whole.text


def test_nothing_is_said_to_be_incomplete_when_nothing_is(whole, twin):
    assert twin["notices"] == []
    assert "Missing or wrong" not in whole.text
    assert "by design" not in whole.text
    assert "Claims" not in whole.text


def test_provenance(whole):
    for fact in (
        "9f2c1ab47d" + "0" * 54,
        "4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70 (clean)",
        "c0ffee" + "1" * 58,
        "torch 2.13.0",
        "41,873 (layer_change); 38,112 (token_information)",
        "2026-11-20 09:14 UTC, 2026-11-20 09:15 UTC",
        "Linux-6.1-x86_64, Example 9000, 2 cores",
        "Seeds 0, 1, 2",
    ):
        assert fact in whole.text


def test_runs_at_their_last_step(whole):
    header, body = whole.table("Runs")
    assert header == [
        "Arm",
        "Seed",
        "State",
        "Steps",
        "Validation loss (nats)",
        "Gain over no context (nats)",
        "Perplexity",
        f"BLEU (0{NONE}100)",
        f"chrF (0{NONE}100)",
        "Tokens seen",
        "Tokens predicted",
        "Operations (1012)",
        "Speed (tokens/s)",
        "MFU (%)",
        "To first step",
        "Training time",
    ]
    assert len(body) == 12
    loss = 5.43 - 1.82
    assert body[1] == [
        *("mlm", "1", "done", "500 / 500", f"{loss:.3f}", "1.82", f"{np.exp(loss):.1f}", NONE, NONE),
        *("1,013,000", "140,500", "1.20", "17,691", "18", "1.3 s", "57 s"),
    ]
    untrained = body[9]
    assert untrained[:4] == ["untrained", "0", "done", "0 / 0"]
    assert untrained[5] == f"{MINUS}1.57"
    assert untrained[-4:] == [NONE, NONE, NONE, "0.4 s"]


def test_arms_with_intervals_over_seeds(whole, twin):
    header, body = whole.table("Arms")
    assert [row[0] for row in body] == list(ARMS)
    low, high = stats.t.interval(0.95, 2, 1.82, 0.02 / np.sqrt(3))
    assert body[0][header.index("Gain over no context (nats)")] == f"1.82 ± {high - 1.82:.2f}"
    assert [row[-1] for row in body] == ["yes", "yes", "yes", "untrained"]
    mlm = twin["arms"][0]["gain"]
    assert (mlm["low"], mlm["high"], mlm["seeds"]) == (pytest.approx(low), pytest.approx(high), 3)


def test_each_curve_states_its_gain_its_sample_and_what_to_doubt(whole):
    header, change = whole.table("The curves, the same in every panel: n tokens, d dimensions")
    assert header == ["Arm", "Seeds", "Gain (nats)", "n", "d", "n/d", "Remarks"]
    assert change[0] == ["mlm", "3", "1.82", "41,873", "64", "654", ""]
    assert change[3] == ["untrained", "3", f"{MINUS}1.55", "41,873", "64", "654", "untrained"]
    _, information = whole.table("The curves, the same in every panel: n tokens, d clusters")
    assert information[0] == ["mlm", "3", "1.82", "38,112", "1,000", "38", ""]
    assert information[3][-1] == "untrained"


def test_figures_say_how_to_read_them(whole):
    for text in (
        "up to an invertible linear map, or up to a linear map that drops directions (PWCCA)",
        "in nats",
        "chance floor",
        "not comparable to published PWCCA curves",
    ):
        assert text in whole.text


def test_points_are_means_over_seeds_with_their_floors(twin, folder):
    table = results.read(folder / "results.parquet")
    for figure in twin["figures"]:
        for panel in figure["panels"]:
            for point in panel["points"]:
                own = table[
                    (table["measure"] == panel["measure"])
                    & (table["metric"] == panel["metric"])
                    & (table["arm"] == point["arm"])
                    & (table["layer"] == point["layer"])
                ]
                if point["layer_to"] is not None:
                    own = own[own["layer_to"] == point["layer_to"]]
                interval = stats.t.interval(0.95, 2, own["value"].mean(), stats.sem(own["value"]))
                assert (point["low"], point["high"]) == pytest.approx(interval)
                assert (point["mean"], point["floor"]) == pytest.approx((own["value"].mean(), own["floor"].mean()))
            assert len(panel["points"]) == 4 * (6 if figure["name"] == "layer_change" else 7)


def test_data_of_a_figure_are_in_the_page_beside_it_and_tidy(whole, folder):
    links = [a for tag, a in whole.tags if tag == "a" and a["href"].startswith("data:text/csv")]
    assert [link["download"] for link in links] == [f"{name}.csv" for name in PANELS]
    for link, name in zip(links, PANELS, strict=True):
        inside = base64.b64decode(link["href"].partition("base64,")[2])
        assert inside == (folder / "figures" / f"{name}.csv").read_bytes()
        frame = pd.read_csv(io.BytesIO(inside))
        assert list(frame) == results.SHOWN
        assert set(frame["arm"]) == set(ARMS)
        assert (frame["measure"] + "-" + frame["metric"]).unique().tolist() == [name]


def test_the_twin_says_what_the_page_says(twin, whole):
    assert list(twin) == [
        *("format", "experiment", "question", "summary", "notices", "provenance"),
        *("runs", "arms", "corruptions", "figures", "tasks", "joined", "claims", "spec", "made_from", "files"),
    ]
    assert twin["summary"] in whole.text
    for figure in twin["figures"]:
        assert figure["title"] in whole.text
        assert all(paragraph in whole.text for paragraph in figure["how_to_read"])


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
    for lost in (folder / "report.html", folder / f"figures/{PANELS[0]}.svg"):
        lost.rename(tmp_path / "aside")
        assert not is_fresh(folder), lost
        (tmp_path / "aside").rename(lost)
    (folder / "report.json").write_text("{")
    assert not is_fresh(folder)


# When something is missing ---------------------------------------------------------------------------


def test_what_is_incomplete_is_said_first(incomplete, broken):
    notices = [
        "mt (seed 1) failed at step 120 of 500: step 120: the loss is not finite.",
        "1 of 12 runs not started, of clm.",
        "clm gains too little to interpret: its gain over a guess without context is 0.21 nats, below 0.5.",
    ]
    assert [data.strip() for tag, data in incomplete.texts if data.strip() in notices] == notices
    assert [notice["text"] for notice in strict_json(broken / "report.json")["notices"]] == notices
    assert incomplete.text.index("Missing or wrong") < incomplete.text.index("Provenance")
    assert "10 of them done" in incomplete.text
    assert "10 of 12 runs done; 3 notes on what is missing or wrong" in incomplete.text  # beside the question


def test_what_is_wrong_stands_before_what_is_by_design_under_a_heading_of_its_own(tmp_path):
    left_out = "parsing: not run for clm: causal_lm does not predict hidden words."
    quick = "probing: measured with effort quick, on a part of everything: no evidence."
    failed = {"state": "failed", "step": 120, "message": "step 120: the loss is not finite."}
    folder = write(tmp_path, plan_changes={"notices": [left_out, quick]}, states={("mt", 1): failed})
    shown, twin = Page(page.write(folder)), strict_json(folder / "report.json")
    wrong = "mt (seed 1) failed at step 120 of 500: step 120: the loss is not finite."
    assert [(notice["group"], notice["text"]) for notice in twin["notices"]] == [
        ("wrong", wrong),
        ("by design", left_out),
        ("by design", quick),
    ]
    assert f"Missing or wrong {wrong} Left out or limited by design {left_out} {quick} " in shown.text
    told = (folder / "report.md").read_text(encoding="utf-8").replace("\\_", "_")
    assert told.index("## Missing or wrong") < told.index(wrong) < told.index("## Left out or limited by design")
    assert told.index("by design") < told.index(left_out) < told.index(quick)


def test_figures_are_turned_for_a_dark_screen_and_never_on_paper(whole):
    (style,) = [data for tag, data in whole.texts if tag == "style"]
    dark = style[style.index("@media screen and (prefers-color-scheme: dark)") :]
    assert ".card img, .swatch { filter: invert(1) hue-rotate(180deg); }" in dark.partition("\n}")[0]
    assert style.count("filter:") == 1


def test_figures_have_no_background(whole):
    for _, drawn in whole.images:
        root = ElementTree.fromstring(drawn)
        shapes = [
            part for part in root.iter("{http://www.w3.org/2000/svg}path") if "clip" not in part.get("id", "")
        ]
        white = [part for part in shapes if "fill: #ffffff" in part.get("style", "") and "z" in part.get("d", "")]
        assert not [part for part in white if "stroke" not in part.get("style", "")]


def test_a_swatch_beside_a_name_is_the_arms_own(whole):
    (style,) = [data for tag, data in whole.texts if tag == "style"]
    looks = dict(
        re.findall(r"[.](line-\d+) { background-image: url[(]data:image/svg[+]xml;base64,([^)]*)[)]; }", style)
    )
    used = {a["class"].removeprefix("swatch ") for tag, a in whole.tags if "swatch " in a.get("class", "")}
    assert used == looks.keys() == {f"line-{number}" for number in range(1, len(ARMS) + 1)}
    for (arm, line), drawn in zip(arm_styles(ARMS).items(), looks.values(), strict=True):
        assert line.colour.lower() in base64.b64decode(drawn).decode(), arm


def test_a_curve_of_a_hardly_trained_arm_says_so_beside_it(incomplete):
    _, body = incomplete.table("The curves, the same in every panel: n tokens, d dimensions")
    assert body[1] == ["clm", "2", "0.21", "41,873", "64", "654", "gains too little to interpret"]
    drawn = [text for _, image in incomplete.images for text in texts_of(image)]
    assert drawn.count("to interpret)") == 4  # the end of a name in two lines
    _, arms = incomplete.table("Arms")
    assert arms[1][-1] == "gains too little to interpret"
    assert arms[1][1] == "2 / 3"


def test_claims_whose_file_is_missing_are_said_to_be(incomplete):
    assert (
        "Claims in detail article: not run: the file of claims is not in the experiment's folder; "
        "`ablate claims` on the spec puts it there. Figure 2."
    ) in incomplete.text
    assert "What came out No claim could be read. not run 1 claim Figure 1." in incomplete.text


def test_runs_without_numbers_show_dashes(incomplete):
    _, body = incomplete.table("Runs")
    assert body[3] == ["clm", "0", "planned", f"{NONE} / 500", *[NONE] * 12]
    assert body[7][:9] == ["mt", "1", "failed", "120 / 500", *[NONE] * 5]


def test_before_the_first_run_there_is_a_page(tmp_path):
    folder = write(tmp_path, states={(arm, seed): None for arm in ARMS for seed in range(3)})
    (folder / "results.parquet").unlink()
    (folder / "spec.yaml").unlink()
    shown = Page(page.write(folder))
    assert "12 of 12 runs not started, of mlm, clm, mt and untrained." in shown.text
    assert "Figures Nothing to show: the results have no rows that a figure draws." in shown.text
    assert strict_json(folder / "report.json")["figures"] == []


def test_arms_and_metrics_without_rows_are_named_or_left_out(tmp_path):
    kept = [
        row
        for row in rows(seeds=(0,))
        if row["metric"] != "plug_in" and (row["arm"], row["measure"]) != ("mt", "layer_change")
    ]
    folder = write(tmp_path, seeds=(0,), table_rows=kept)
    shown = Page(page.write(folder))
    assert shown.text.count("No rows: mt.") == 2
    assert not (folder / "figures" / "token_information-plug_in.svg").exists()
    _, body = shown.table("The curves, the same in every panel: n tokens, d clusters")
    assert [row[-1].split("; ")[0] for row in body] == ["one seed, so no interval"] * 3 + ["untrained"]
    _, arms = shown.table("Arms")
    assert arms[0][2] == "1.80"  # a mean, and no interval


def test_encoders_of_another_depth_have_a_panel_of_their_own(tmp_path):
    """Else the far larger changes of a shallow encoder would press the others together."""
    shallow = [row for row in rows() if row["arm"] != "mt" or (row.get("layer") or 0) < 2]
    folder = write(tmp_path, table_rows=shallow)
    page.write(folder)
    figures = {figure["name"]: figure["panels"] for figure in strict_json(folder / "report.json")["figures"]}
    first, other = (panel for panel in figures["layer_change"] if panel["metric"] == "pwcca")
    assert (first["name"], other["name"]) == ("layer_change-pwcca", "layer_change-pwcca-other_depths")
    assert other["title"] == f"{first['title']}, encoders of another depth"
    assert {point["arm"] for point in other["points"]} == {"mt"}
    assert {point["arm"] for point in first["points"]} == {"mlm", "clm", "untrained"}
    assert first["without_rows"] == other["without_rows"] == []
    drawn = pd.read_csv(folder / other["csv"])
    assert set(drawn["arm"]) == {"mt"}
    assert "mlm" not in (folder / other["svg"]).read_text(encoding="utf-8")
    colour = arm_styles(ARMS)["mt"].colour.lower()  # as in every other figure
    assert colour in (folder / other["svg"]).read_text(encoding="utf-8").lower()
    assert colour not in (folder / first["svg"]).read_text(encoding="utf-8").lower()


def test_arms_of_another_depth_without_rows_of_a_group_are_left_out_of_its_panel(tmp_path):
    """As skip-gram, which has one layer and no output label."""
    table = [row for row in rows() if row["arm"] != "mt" or (row.get("layer") or 0) < 2]
    labels = [row | {"group": "output label"} for row in table if row["measure"] == "token_information"]
    folder = write(tmp_path, table_rows=[*table, *(row for row in labels if row["arm"] != "mt")])
    page.write(folder)
    panels = [panel for figure in strict_json(folder / "report.json")["figures"] for panel in figure["panels"]]
    (label,) = (
        panel for panel in panels if panel.get("group") == "output label" and panel["metric"] == "cross_fitted"
    )
    assert {point["arm"] for point in label["points"]} == {"mlm", "clm", "untrained"}
    assert label["without_rows"] == ["mt"]


def test_columns_that_no_arm_has_are_left_out_and_others_come_in(tmp_path):
    kept = [row for row in rows() if row["metric"] not in ("bleu", "chrf")]
    pairs = [
        {"run_id": row["run_id"], "arm": row["arm"], "seed": row["seed"], "step": row["step"]}
        | {"measure": "validation", "metric": "pair_accuracy", "group": task, "value": value, "n": 300}
        for row in kept
        if row["arm"] == "mlm" and row["metric"] == "loss"
        for task, value in (("next_sentence", 0.9), ("sentence_order", 0.52))
    ]
    shown = Page(page.write(write(tmp_path, table_rows=kept + pairs)))
    header, arms = shown.table("Arms")
    assert not any("BLEU" in name for name in [*header, *shown.table("Runs")[0]])
    assert arms[0][header.index("Next sentence (accuracy, %)")] == "90.0 ± 0.0"
    assert arms[0][header.index("Sentence order (accuracy, %)")] == "52.0 ± 0.0"
    assert arms[1][header.index("Next sentence (accuracy, %)")] == NONE


def test_learning_curves_are_a_figure_with_the_steps_in_its_table(tmp_path):
    learned = [
        {"run_id": row["run_id"], "arm": row["arm"], "seed": row["seed"], "step": step, "measure": "learning"}
        | {"metric": "gain", "value": step / 400, "floor": 0.0, "unit": "nats", "n": 900}
        for row in rows()
        if row["arm"] in ("mlm", "clm") and row["metric"] == "loss"
        for step in (250, 500)
    ]
    folder = write(tmp_path, table_rows=[*rows(), *learned])
    shown = Page(page.write(folder))
    assert "Figure 1. Learning curves" in shown.text
    header, points = shown.table("Gain over no context (nats)")
    assert header[:3] == ["Arm", "Step", "Mean"]
    assert [row[:3] for row in points[:2]] == [["mlm", "250", "0.625 ± 0.000"], ["mlm", "500", "1.250 ± 0.000"]]
    assert strict_json(folder / "report.json")["figures"][0]["panels"][0]["without_rows"] == ["mt", "untrained"]


def test_figures_that_a_page_no_longer_has_are_gone_and_a_users_own_files_stay(tmp_path):
    folder = write(tmp_path)
    page.write(folder)
    own = [folder / "figures/own.svg", folder / "own.csv"]
    for path in own:
        path.write_text("mine")
    told = strict_json(folder / "report.json")
    assert told["files"] == sorted(f"figures/{name}.{kind}" for name in PANELS for kind in ("svg", "csv"))
    lost = [name for name in told["files"] if name.startswith("figures/layer_change")]
    assert lost
    kept = results.table(row for row in rows() if row["measure"] != "layer_change")
    results.write(kept, folder / "results.parquet")
    # As an edited report might have it: nothing outside of figures/ is ever removed.
    (folder / "report.json").write_text(json.dumps(told | {"files": [*told["files"], "own.csv", "../own", 7]}))
    page.write(folder)
    assert not any((folder / name).exists() for name in lost)
    assert strict_json(folder / "report.json")["files"] == sorted(set(told["files"]) - set(lost))
    assert all(path.read_text() == "mine" for path in own)
    (folder / "report.json").write_text('["files"]')
    page.write(folder)
    assert all(path.exists() for path in own)


def test_absent_facts_are_dashes(tmp_path):
    changes = dict.fromkeys(("question", "spec_sha256", "created", "data", "seconds"))
    bare = [{name: run[name] for name in ("run_id", "folder", "arm", "seed")} for run in plan(("mlm",))["runs"]]
    nothing = dict.fromkeys(("step", "max_steps", "tokens_seen", "seconds", "tokens_per_second", "message"))
    folder = write(
        tmp_path,
        arms=("mlm",),
        plan_changes=changes | {"runs": bare},
        states={("mlm", seed): nothing for seed in range(3)},
    )
    for seed in range(3):
        run = tmp_path / "runs" / folder_name("mlm", seed)
        (run / "provenance.json").write_text('{"commit": null, "machine": null, "versions": null}')
        (run / "run.json").unlink()
    shown = Page(page.write(folder))
    for fact in ("Spec, SHA-256", "Commit", "Planned", "Machine", "Versions", f"Devices, threads {NONE},"):
        assert f"{fact} {NONE}" in shown.text
    _, body = shown.table("Runs")
    assert body[0][3] == f"{NONE} / {NONE}"
    assert "None" not in shown.text


def test_what_does_not_fit_together_is_said(tmp_path):
    late = [row | {"step": 256} if (row["arm"], row["seed"]) == ("mlm", 1) else row for row in rows()]
    late = [row | {"n": 30_000} if (row["arm"], row["metric"]) == ("mt", "plug_in") else row for row in late]
    late = [row for row in late if (row["arm"], row["seed"]) != ("clm", 2)]
    late += [
        row | {"run_id": "fffffffff" + str(row["seed"])} for row in rows(("mt",)) if row["measure"] == "validation"
    ]
    folder = write(tmp_path, table_rows=late)
    page.write(folder)
    assert [notice["text"] for notice in strict_json(folder / "report.json")["notices"]] == [
        "Done, but without a row in results.parquet: clm (seed 2); `ablate measure` adds them.",
        "12 rows of results.parquet not shown: the plan has no such run and arm.",
        "token_information plug_in was measured on different numbers of tokens, 30,000 and 38,112: its curves do "
        "not compare.",
        "mlm was measured at different steps: 256 and 500.",
    ]


def test_a_loss_that_was_not_measured_leaves_training_unknown(tmp_path):
    folder = write(
        tmp_path, arms=("mlm",), table_rows=[row for row in rows(("mlm",)) if row["measure"] != "validation"]
    )
    shown = Page(page.write(folder))
    assert "Whether mlm is trained enough to interpret is unknown: it has no validation loss." in shown.text
    _, body = shown.table("The curves, the same in every panel: n tokens, d dimensions")
    assert body == [["mlm", "3", NONE, "41,873", "64", "654", "gain not measured"]]


def test_runs_of_different_origin_show_every_difference(tmp_path):
    folder = write(tmp_path, arms=("mlm",), seeds=(0, 1))
    path = tmp_path / "runs" / folder_name("mlm", 1) / "provenance.json"
    origin = json.loads(path.read_text())
    origin |= {"commit": "beef", "dirty": True, "devices": [0, 1], "versions": {"torch": "2.11.0"}}
    origin["machine"] |= {"gpus": ["Example X1"]}
    path.write_text(json.dumps(origin))
    shown = Page(page.write(folder)).text
    assert "4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70 , beef with uncommitted changes" in shown
    assert "torch 2.13.0 and 2.11.0" in shown
    assert "Example 9000, 2 cores; Linux-6.1-x86_64, Example 9000, 2 cores, Example X1" in shown
    assert "Devices, threads 1; 0, 1, 1" in shown


def test_a_run_trained_by_another_experiment_has_the_name_of_this_one(tmp_path):
    folder = write(tmp_path, arms=("mlm",))
    made = plan(("mlm",))
    for run in made["runs"]:
        run["arm"] = "ratio=0.15"
    (folder / "plan.json").write_text(json.dumps(made | {"arms": ["ratio=0.15"]}))
    results.write(results.table(row | {"arm": "ratio=0.15"} for row in rows(("mlm",))), folder / "results.parquet")
    page.write(folder)
    said = strict_json(folder / "report.json")
    assert {run["arm"] for run in said["runs"]} == {"ratio=0.15"}
    assert said["runs"][0]["state"] == "done"
    assert said["figures"][0]["panels"][0]["curves"][0]["gain"] == pytest.approx(1.82)


# Damage ----------------------------------------------------------------------------------------------


def test_without_a_plan_there_is_a_sentence(tmp_path):
    with pytest.raises(ResultsError) as error:
        page.write(tmp_path)
    assert str(error.value) == f"{tmp_path}/plan.json: there is no plan here; `ablate run` on the spec writes one."


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ('{"arms": [', r"this is no whole JSON file \(Expecting value: .*\); start `ablate run` again\."),
        ('{"experiment": "x", "arms": []}', r"runs: Field required; start `ablate run` again\."),
        ("[]", r"the file: Input should be a valid dictionary .*; start `ablate run` again\."),
    ],
)
def test_a_damaged_plan_is_a_sentence(tmp_path, written, sentence):
    (tmp_path / "plan.json").write_text(written)
    with pytest.raises(ResultsError, match=rf"^{tmp_path}/plan\.json: {sentence}$"):
        page.write(tmp_path)


def test_damaged_results_are_a_sentence_and_leave_the_old_page(tmp_path):
    folder = write(tmp_path, arms=("mlm",), seeds=(0,))
    before = page.write(folder).read_bytes()
    path = folder / "results.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ResultsError, match="this is no whole parquet file"):
        page.write(folder)
    assert (folder / "report.html").read_bytes() == before


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "", ".."])
def test_a_plan_does_not_lead_out_of_the_runs(tmp_path, name):
    folder = write(tmp_path, arms=("mlm",), seeds=(0,))
    made = plan(("mlm",), (0,))
    made["runs"][0]["folder"] = name
    (folder / "plan.json").write_text(json.dumps(made))
    with pytest.raises(ResultsError) as error:
        page.write(folder)
    assert str(error.value) == (
        f"{folder}/plan.json: {name!r} is no name of a run's folder; plan the experiment again."
    )


def test_single_runs_are_not_called_means_over_seeds():
    assert ARM_LINES.caption({""}, False).startswith("Lines are single runs, without bands. ")
    assert ARM_LINES.caption({"text"}, False).startswith("Lines are single runs. Each band is ")
    for several in ({"seeds"}, {"seeds", ""}):
        assert ARM_LINES.caption(several, False).startswith("Lines are means over seeds, bands their 95% ")


def test_columns_without_any_number_are_left_out_and_no_step_has_no_speed(folder, tmp_path):
    def heads(path):
        lines = (path / "report.md").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith("| Arm | Runs done"))

    assert " Perplexity | BLEU | chrF | Tokens seen " in heads(folder)
    place = write(tmp_path, arms=("mlm", "untrained"), states={("untrained", 1): {"tokens_per_second": 0.0}})
    shown = Page(page.write(place))
    assert " Perplexity | Tokens seen " in heads(place)
    header, body = shown.table("Runs")
    assert "BLEU (0–100)" not in header
    untrained = [row for row in body if row[0] == "untrained"]
    assert {row[header.index("Speed (tokens/s)")] for row in untrained} == {NONE}


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
