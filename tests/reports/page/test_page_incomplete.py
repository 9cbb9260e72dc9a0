"""Page of an experiment of which something is missing, does not fit together or is damaged."""

import json

import pandas as pd
import pytest

from ablations import results
from ablations.errors import ResultsError
from ablations.runs.records import checksum
from reports import folder as experiment_folder
from reports.figures.by_arm import ARM_LINES
from reports.figures.style import arm_styles
from reports.page import page
from tests.support.errors import error_text
from tests.support.fake_experiment import ARMS, GAIN, folder_name, plan, rows, write
from tests.support.html_page import NONE, Page, strict_json
from tests.support.page_texts import PANELS, texts_of


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


def test_what_is_wrong_stands_before_what_is_as_planned_under_a_heading_of_its_own(tmp_path, undrawn):
    left_out = "parsing: not run for clm: causal_lm does not predict hidden words."
    quick = "probing: measured with effort quick, on a part of the data: no evidence."
    failed = {"state": "failed", "step": 120, "message": "step 120: the loss is not finite."}
    folder = write(tmp_path, plan_changes={"notices": [left_out, quick]}, states={("mt", 1): failed})
    shown, twin = Page(page.write(folder)), strict_json(folder / "report.json")
    wrong = "mt (seed 1) failed at step 120 of 500: step 120: the loss is not finite."
    assert [(notice["group"], notice["text"]) for notice in twin["notices"]] == [
        ("wrong", wrong),
        ("as planned", left_out),
        ("as planned", quick),
    ]
    assert f"Missing or wrong {wrong} As planned {left_out} {quick} " in shown.text
    told = (folder / "report.md").read_text(encoding="utf-8").replace("\\_", "_")
    assert told.index("## Missing or wrong") < told.index(wrong) < told.index("## As planned")
    assert told.index("## As planned") < told.index(left_out) < told.index(quick)


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
        "ablate claims on the spec puts it there, or, if these results are published ones, take it again from "
        "where they were published. Figure 2."
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


def test_arms_and_metrics_without_rows_are_named_or_left_out(tmp_path, undrawn):
    kept = [
        row
        for row in rows(seeds=(0,))
        if row["metric"] != "plug_in" and (row["arm"], row["measure"]) != ("mt", "layer_change")
    ]
    folder = write(tmp_path, seeds=(0,), table_rows=kept)
    shown = Page(page.write(folder))
    assert shown.text.count("Without numbers here: mt.") == 2
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
    assert (first["name"], other["name"]) == ("layer_change-pwcca", "layer_change-pwcca-2_layers")
    assert other["title"] == f"{first['title']}, encoders of 2 layers"
    assert {point["arm"] for point in other["points"]} == {"mt"}
    assert {point["arm"] for point in first["points"]} == {"mlm", "clm", "untrained"}
    assert first["without_rows"] == other["without_rows"] == []
    drawn = pd.read_csv(folder / other["csv"])
    assert set(drawn["arm"]) == {"mt"}
    assert "mlm" not in (folder / other["svg"]).read_text(encoding="utf-8")
    colour = arm_styles(ARMS)["mt"].colour.lower()  # as in every other figure
    assert colour in (folder / other["svg"]).read_text(encoding="utf-8").lower()
    assert colour not in (folder / first["svg"]).read_text(encoding="utf-8").lower()


def test_arms_of_another_depth_without_rows_of_a_group_are_left_out_of_its_panel(tmp_path, undrawn):
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


def test_columns_that_no_arm_has_are_left_out_and_others_come_in(tmp_path, undrawn):
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


def test_learning_curves_are_a_figure_with_the_steps_in_its_table(tmp_path, undrawn):
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


def test_figures_that_a_page_no_longer_has_are_gone_and_a_users_own_files_stay(tmp_path, undrawn):
    folder = write(tmp_path)
    page.write(folder)
    own = [folder / "figures/own.svg", folder / "own.csv"]
    for path in own:
        path.write_text("mine")
    told = strict_json(folder / "report.json")
    figures = sorted(f"figures/{name}.{kind}" for name in PANELS for kind in ("svg", "csv"))
    assert told["files"] == [*figures, "tables/arms.tex", "tables/compared.tex"]
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


def test_absent_facts_are_dashes(tmp_path, undrawn):
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


def test_what_does_not_fit_together_is_said(tmp_path, undrawn):
    late = [row | {"n": 30_000} if (row["arm"], row["metric"]) == ("mt", "plug_in") else row for row in rows()]
    late = [row for row in late if (row["arm"], row["seed"]) != ("clm", 2)]
    late += [
        row | {"run_id": "fffffffff" + str(row["seed"])} for row in rows(("mt",)) if row["measure"] == "validation"
    ]
    folder = write(tmp_path, table_rows=late)
    shown = Page(page.write(folder))
    assert ("code", "ablate measure") in shown.texts  # the page showed the backquotes
    assert not [data for tag, data in shown.texts if "`" in data and tag != "script"]
    assert [notice["text"] for notice in strict_json(folder / "report.json")["notices"]] == [
        "Done, but without a row in results.parquet: clm (seed 2); `ablate measure` adds them.",
        "12 rows of results.parquet not shown: the plan has no such run and arm.",
        "token_information plug_in was measured on different numbers of tokens (30,000 in mt; 38,112 in mlm, "
        "clm and untrained), so do not compare the curves of these arms.",
    ]


def test_a_run_measured_before_its_last_step_alone_has_no_score(tmp_path, undrawn):
    """As after a stop between two checkpoints."""
    complete = [row for row in rows() if (row["arm"], row["seed"], row["measure"]) != ("mlm", 1, "validation")]
    early = [row | {"step": 2} for row in rows() if row not in complete]
    reports = []
    for name, some in (("complete", complete), ("early", complete + early)):
        page.write(folder := write(tmp_path / name, table_rows=some))
        reports.append(strict_json(folder / "report.json"))
    without, shown = (
        {key: part for key, part in told.items() if key not in ("made_from", "notices")} for told in reports
    )
    assert shown == without
    assert [(run["loss"], run["gain"]) for run in shown["runs"][:3]].index((None, None)) == 1
    assert [notice["text"] for notice in reports[1]["notices"]] == [
        "Asked for, but only partly measured: validation of mlm (seed 1); `ablate run` measures the rest."
    ]
    early = [row | {"step": 2} for row in rows() if (row["arm"], row["seed"]) == ("clm", 2)]
    others = [row for row in rows() if (row["arm"], row["seed"]) != ("clm", 2)]
    page.write(folder := write(tmp_path / "all", table_rows=others + early))
    assert [notice["text"] for notice in strict_json(folder / "report.json")["notices"]] == [
        f"Asked for, but only partly measured: {name} of clm (seed 2); `ablate run` measures the rest."
        for name in ("layer_change", "token_information", "validation")
    ]


def test_a_loss_that_was_not_measured_leaves_training_unknown(tmp_path, undrawn):
    folder = write(
        tmp_path, arms=("mlm",), table_rows=[row for row in rows(("mlm",)) if row["measure"] != "validation"]
    )
    shown = Page(page.write(folder))
    assert (
        "Whether mlm is trained enough to interpret is unknown: it has no validation loss over the vocabulary."
        in shown.text
    )
    _, body = shown.table("The curves, the same in every panel: n tokens, d dimensions")
    assert body == [["mlm", "3", NONE, "41,873", "64", "654", "gain not measured"]]


def test_runs_of_different_origin_show_every_difference(tmp_path, undrawn):
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


def test_a_run_trained_by_another_experiment_has_the_name_of_this_one(tmp_path, undrawn):
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
    assert (
        error_text(ResultsError, page.write, tmp_path)
        == f"{tmp_path}/plan.json does not exist; `ablate run` with the spec writes it."
    )


@pytest.mark.parametrize(
    ("written", "sentence"),
    {
        '{"arms": [': (
            r" is not a complete JSON file \(Expecting value: .*\); restore it, or delete it "
            r"and start `ablate run` again, which dates the claims anew\."
        ),
        '{"experiment": "x", "arms": []}': (
            r" is not as `ablate run` writes it \(`runs` is missing\); restore it, or delete it and start `ablate "
            r"run` again, which dates the claims anew\."
        ),
        '{"experiment": "x", "arms": [], "runs": 3}': (
            r" is not as `ablate run` writes it \(`runs` has a wrong value\); restore it, or delete it and start "
            r"`ablate run` again, which dates the claims anew\."
        ),
        "[]": (
            r" is not as `ablate run` writes it \(it has no keys\); restore it, or delete it and start `ablate "
            r"run` again, which dates the claims anew\."
        ),
    }.items(),
)
def test_a_damaged_plan_is_a_sentence(tmp_path, written, sentence):
    (tmp_path / "plan.json").write_text(written)
    with pytest.raises(ResultsError, match=rf"^{tmp_path}/plan\.json{sentence}$"):
        page.write(tmp_path)


def test_a_run_with_a_changed_file_is_unreadable_and_the_others_are_shown(tmp_path, undrawn):
    folder = write(tmp_path, arms=("mlm",), seeds=(0, 1))
    path, _ = sorted((tmp_path / "runs").glob("*/run.json"))
    content = json.loads(path.read_text()) | {"tokens": "0123456789"}
    path.write_text(json.dumps(content | {"checksum": checksum(content)}))
    page.write(folder)
    path.write_text(path.read_text().replace("0123456789", "0123456788"))
    page.write(folder)
    report = json.loads((folder / "report.json").read_text())
    sentence = f"{path} has changed since it was written; delete it and start `ablate run` again."
    assert [(run["state"], run["message"]) for run in report["runs"]] == [("unreadable", sentence), ("done", None)]
    again = page.restore(page.publish(folder, tmp_path / "results"), tmp_path / "again")
    assert [run.state.state for run in experiment_folder.read(again).runs] == ["unreadable", "done"]


def test_damaged_results_are_a_sentence_and_leave_the_old_page(tmp_path, undrawn):
    folder = write(tmp_path, arms=("mlm",), seeds=(0,))
    before = page.write(folder).read_bytes()
    path = folder / "results.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ResultsError, match="is damaged"):
        page.write(folder)
    assert (folder / "report.html").read_bytes() == before


@pytest.mark.parametrize("name", ["../elsewhere", "/etc", "", ".."])
def test_a_plan_does_not_lead_out_of_the_runs(tmp_path, name):
    folder = write(tmp_path, arms=("mlm",), seeds=(0,))
    made = plan(("mlm",), (0,))
    made["runs"][0]["folder"] = name
    (folder / "plan.json").write_text(json.dumps(made))
    assert error_text(ResultsError, page.write, folder) == (
        f"{folder}/plan.json: {name!r} cannot be the name of a run's folder; restore it, or delete it and start "
        "`ablate run` again, which dates the claims anew."
    )


def test_single_runs_are_not_called_means_over_seeds():
    assert ARM_LINES.caption({""}, False).startswith("Lines are single runs, without bands. ")
    assert ARM_LINES.caption({"text"}, False).startswith("Lines are single runs. Each band is ")
    for several in ({"seeds"}, {"seeds", ""}):
        assert ARM_LINES.caption(several, False).startswith("Lines are means over seeds, bands their 95% ")


def test_columns_without_any_number_are_left_out_and_no_step_has_no_speed(folder, tmp_path, undrawn):
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
