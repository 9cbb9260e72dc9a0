"""Page of an experiment: what it says of runs, arms, curves and points, and that its twin says the same."""

import base64
import io
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablations import results
from reports.page import page
from tests.support.fake_experiment import ARMS, rows, write
from tests.support.html_page import MINUS, NONE, Page
from tests.support.page_texts import PANELS

# What it says ----------------------------------------------------------------------------------------


def test_title_question_and_summary(shown):
    question = "What does each layer keep about its token under each objective?"
    assert ("title", f"article-tiny: {question}") in shown.texts
    assert ("p", question) in shown.texts
    assert (
        "12 runs: 4 arms (mlm, clm, mt and untrained) \N{MULTIPLICATION SIGN} 3 seeds (0, 1, 2), all done. "
        "The encoder has 6 layers of width 64 with 4 heads. Training takes 500 steps of at most 2,048 source "
        "tokens; untrained keeps its initial weights. Text: the built-in language, seed 0: 100,000 sentences to "
        "train on, 1,534,211 tokens in them, 4,000 sentences to validate on, 1,024 sub-words in the vocabulary. "
        "Training took 8 min 37 s in all."
    ) in shown.text


def test_nothing_is_said_to_be_incomplete_when_nothing_is(shown, twin):
    assert twin["notices"] == []
    assert "Missing or wrong" not in shown.text
    assert "As planned" not in shown.text
    assert "Claims" not in shown.text


def test_settings_of_the_command_line_stand_above_the_results(tmp_path, shown, twin):
    assert (twin["changed"], "The command line changed" in shown.text) == (None, False)
    folder = write(tmp_path)
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    plan |= {"given": ["seeds=[1] (the spec says [0, 1])"], "changed_from": "article-tiny"}
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    sentence = "The command line changed a setting of article-tiny: seeds=[1] (the spec says [0, 1])."
    assert sentence in Page(page.write(folder)).text
    head = (folder / "report.md").read_text(encoding="utf-8").split("12 runs")[0]
    assert "**The command line changed a setting of article-tiny:** seeds=\\[1\\]" in head


def test_provenance(shown):
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
        assert fact in shown.text


def test_runs_at_their_last_step(shown):
    header, body = shown.table("Runs")
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


def test_arms_with_intervals_over_seeds(shown, twin):
    header, body = shown.table("Arms")
    assert [row[0] for row in body] == list(ARMS)
    low, high = stats.t.interval(0.95, 2, 1.82, 0.02 / np.sqrt(3))
    assert body[0][header.index("Gain over no context (nats)")] == f"1.82 ± {high - 1.82:.2f}"
    assert [row[-1] for row in body] == ["yes", "yes", "yes", "untrained"]
    mlm = twin["arms"][0]["gain"]
    assert (mlm["low"], mlm["high"], mlm["seeds"]) == (pytest.approx(low), pytest.approx(high), 3)


def test_each_curve_states_its_gain_its_sample_and_what_to_doubt(shown):
    header, change = shown.table("The curves, the same in every panel: n tokens, d dimensions")
    assert header == ["Arm", "Seeds", "Gain (nats)", "n", "d", "n/d", "Remarks"]
    assert change[0] == ["mlm", "3", "1.82", "41,873", "64", "654", ""]
    assert change[3] == ["untrained", "3", f"{MINUS}1.55", "41,873", "64", "654", "untrained"]
    _, information = shown.table("The curves, the same in every panel: n tokens, d clusters")
    assert information[0] == ["mlm", "3", "1.82", "38,112", "1,000", "38", ""]
    assert information[3][-1] == "untrained"


def test_figures_say_how_to_read_them(shown):
    for text in (
        "PWCCA is 0 if one layer is a linear map of the other; the map may drop directions.",
        "in nats",
        "chance level",
        "Do not compare levels with published PWCCA curves",
    ):
        assert text in shown.text


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


@pytest.mark.parametrize(
    ("seeds", "error", "published", "words"),
    [
        ((0,), None, False, "single runs"),
        ((0,), 0.01, False, "one seed ± 1.96 of its standard errors"),
        ((0, 1), None, False, "mean over seeds ± half its 95% t interval"),
        (
            (0, 1),
            None,
            True,
            "mean over seeds ± half its 95% t interval, of a published curve its number ± the error of reading it",
        ),
    ],
)
def test_the_table_of_points_says_what_its_numbers_are(seeds, error, published, words, tmp_path):
    of_change = [
        row | {"standard_error": error} for row in rows(("mlm",), seeds) if row["metric"] in ("pwcca", "loss")
    ]
    point = {"source": "A paper", "objective": "masked_lm", "measure": "layer_change", "metric": "pwcca"}
    point |= {"layer": 1, "layer_to": 2, "value": 0.5, "error": 0.02, "read": "from the figure"}
    plan = {"published": [point, point | {"layer": 2, "layer_to": 3}] if published else []}
    folder = write(tmp_path, arms=("mlm",), seeds=seeds, table_rows=of_change, plan_changes=plan)
    shown = Page(page.write(folder))
    assert f"{MINUS} PWCCA similarity: {words}, and the mean chance level." in shown.text
    assert ("0.500 ± 0.020" in shown.text) == published


def test_data_of_a_figure_are_in_the_page_beside_it_and_tidy(shown, folder):
    links = [a for tag, a in shown.tags if tag == "a" and a["href"].startswith("data:text/csv")]
    assert [link["download"] for link in links] == [f"{name}.csv" for name in PANELS]
    for link, name in zip(links, PANELS, strict=True):
        inside = base64.b64decode(link["href"].partition("base64,")[2])
        assert inside == (folder / "figures" / f"{name}.csv").read_bytes()
        frame = pd.read_csv(io.BytesIO(inside))
        assert list(frame) == results.SHOWN
        assert set(frame["arm"]) == set(ARMS)
        assert (frame["measure"] + "-" + frame["metric"]).unique().tolist() == [name]


def test_the_twin_says_what_the_page_says(twin, shown):
    assert list(twin) == [
        *("format", "experiment", "question", "changed", "summary", "notices", "provenance"),
        *(
            "runs",
            "arms",
            "compared",
            "corruptions",
            "other_losses",
            "figures",
            "tuning",
            "spread",
            "tasks",
            "joined",
            "claims",
            "over_examples",
            "spec",
            "made_from",
            "files",
        ),
    ]
    assert twin["summary"] in shown.text
    for figure in twin["figures"]:
        assert figure["title"] in shown.text
        assert all(paragraph in shown.text for paragraph in figure["how_to_read"])
