"""What the page says is incomplete: measures that were asked for and are not there."""

import itertools
import json

import pytest

from reports import folder as experiment_folder
from reports.page import page
from reports.page.summary import grouped, notices, summary
from tests.support.fake_experiment import rows, run_of, write
from tests.support.html_page import Page


def told(folder):
    return [notice["text"] for notice in notices(experiment_folder.read(folder), [])]


def asking(folder, *measures):
    """The experiment as if its spec asked for these."""
    text = (folder / "spec.yaml").read_text()
    (folder / "spec.yaml").write_text(text.partition("measures:")[0] + f"measures: [{', '.join(measures)}]\n")
    return folder


def test_distances_without_rows_are_named_with_the_command_that_computes_them(tmp_path):
    kinds = ("layer_change", "token_information", "validation")
    folder = asking(write(tmp_path), *kinds, "{kind: run_distance, arms: [mlm, clm]}")
    assert told(folder) == ["Asked for, but without rows: run_distance; `ablate run` computes them."]
    assert told(asking(folder, *kinds)) == []


WHY = "task mrpc: mrpc/test.parquet cannot be read as parquet: it is cut off. Copy it again."


def planned(folder, **lacks):
    """The experiment as if its plan said what runs lack, by arm."""
    plan = json.loads((folder / "plan.json").read_text())
    for run in plan["runs"]:
        run |= {"not_measured": [], "refused": {}} | lacks.get(run["arm"], {})
    (folder / "plan.json").write_text(json.dumps(plan | {"pairs_to_compare": 0}))
    return folder


def test_a_measure_that_was_refused_is_said_with_the_reason_and_no_command_is_promised(tmp_path):
    lacks = {"not_measured": ["baselines mrpc"], "refused": {"baselines mrpc": WHY}}
    folder = planned(asking(write(tmp_path, arms=("mlm", "clm"), seeds=(0,)), "baselines"), mlm=lacks, clm=lacks)
    assert told(folder) == [f"Asked for, but refused: baselines mrpc: {WHY}"]
    assert "all trained and none measured to the end" in summary(experiment_folder.read(folder))
    one = planned(folder, mlm=lacks)
    assert told(one) == [f"Asked for, but refused: baselines mrpc of mlm (seed 0): {WHY}"]
    assert "all trained and 1 measured to the end" in summary(experiment_folder.read(folder))


def test_what_a_plan_says_is_missing_counts_task_by_task_and_no_table(tmp_path):
    folder = asking(write(tmp_path, arms=("mlm", "clm"), seeds=(0,)), "probing", "run_distance", "geometry")
    lacks = {"not_measured": ["geometry", "probing tree_depth", "probing ud_pos"]}
    assert told(planned(folder, mlm=lacks)) == [
        "Asked for, but without rows: probing (tree_depth, ud_pos) of mlm (seed 0); `ablate run` computes them.",
        "Asked for, but without rows: geometry of mlm (seed 0); `ablate run` computes them.",
    ]
    # None of the three has rows here: what has no file is no part of the plan, and no two runs compare.
    assert told(planned(folder)) == []
    assert "all done" in summary(experiment_folder.read(folder))


def test_a_task_with_rows_of_some_steps_is_not_said_to_have_none(tmp_path):
    loss = next(row for row in rows(("mlm",), (0,)) if row["measure"] == "validation")
    scores = [
        loss | {"measure": "probing", "metric": "accuracy", "group": task, "step": step}
        for task, step in (("ud_pos", 500), ("tree_depth", 2))
    ]
    folder = write(tmp_path, arms=("mlm", "clm"), seeds=(0,), table_rows=[*rows(("mlm", "clm"), (0,)), *scores])
    assert told(planned(folder, mlm={"not_measured": ["probing tree_depth", "probing cola"]})) == [
        "Asked for, but only partly measured: probing (tree_depth) of mlm (seed 0); `ablate run` measures the "
        "rest.",
        "Asked for, but without rows: probing (cola) of mlm (seed 0); `ablate run` computes them.",
    ]


@pytest.mark.parametrize("checkpoint", ["gone", "damaged"])
def test_runs_that_must_be_trained_again_for_a_measure_are_not_said_to_be_measured(tmp_path, checkpoint):
    folder = asking(write(tmp_path, arms=("mlm", "clm", "mt"), seeds=(0,)), "geometry", "probing")
    lost = {"not_measured": ["geometry"], "checkpoint": checkpoint}
    whole = {"not_measured": ["geometry"], "checkpoint": "whole"}
    none_needed = {"not_measured": [], "checkpoint": checkpoint}
    again = (
        f"{checkpoint}, so `ablate run` removes their rows and logs and trains the runs again from the first step."
    )
    assert told(planned(folder, mlm=lost, clm=lost, mt=lost)) == [
        f"Asked for, but without rows: geometry; the last checkpoints are {again}"
    ]
    assert told(planned(folder, mlm=lost, clm=lost, mt=none_needed)) == [
        f"Asked for, but without rows: geometry of mlm (seed 0) and clm (seed 0); the last checkpoints are {again}"
    ]
    assert told(planned(folder, mlm=lost, clm=whole, mt=none_needed)) == [
        f"Asked for, but without rows: geometry of mlm (seed 0); the last checkpoint is {checkpoint}, so "
        "`ablate run` removes its rows and log and trains the run again from the first step.",
        "Asked for, but without rows: geometry of clm (seed 0); `ablate run` computes them.",
    ]


def test_a_run_of_which_everything_was_refused_is_not_told_to_be_measured_again(tmp_path):
    folder = asking(write(tmp_path, arms=("mlm", "clm"), seeds=(0,), table_rows=rows(("clm",), (0,))), "baselines")
    lacks = {"not_measured": ["baselines mrpc"], "refused": {"baselines mrpc": WHY}}
    assert told(planned(folder, mlm=lacks)) == [f"Asked for, but refused: baselines mrpc of mlm (seed 0): {WHY}"]


def test_many_arms_on_different_numbers_of_tokens_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("reports.page.summary.MOST_NAMED", 2)
    fewer = [row | {"n": 30_000} if (row["arm"], row["metric"]) == ("mt", "plug_in") else row for row in rows()]
    (text,) = told(write(tmp_path, table_rows=fewer))
    assert text.endswith("tokens (30,000 in mt; 38,112 in 3 arms), so do not compare the curves of these arms.")


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {"measure": "parsing", "metric": "uuas", "group": "gum"},
            "parsing was measured on trees with different numbers of edges (843 in mlm and clm; 1,833 in mt), "
            "because the data of these arms differ (text, tokenizer or max_length). A difference of about a point "
            "between them may come from the trees.",
        ),
        (
            {"measure": "minimal_pairs", "metric": "accuracy", "group": "blimp"},
            "minimal_pairs of blimp was scored on different pairs (843 in mlm and clm; 1,833 in mt), because "
            "pairs longer than data.max_length are left out, so do not compare the scores of these arms.",
        ),
    ],
)
def test_arms_with_different_numbers_of_trees_or_pairs_are_named(tmp_path, facts, sentence):
    def scored(arm, n):
        loss = next(row for row in rows((arm,), (0,)) if row["measure"] == "validation")
        return [loss | facts | {"layer": None, "n": n}]

    same = [*rows(), *scored("mlm", 843), *scored("clm", 843)]
    assert told(write(tmp_path / "same", table_rows=same)) == []
    assert told(write(tmp_path / "other", table_rows=[*same, *scored("mt", 1833)])) == [sentence]


def test_of_distances_each_run_needs_no_rows_of_its_own(tmp_path):
    between = [
        row | {"measure": "run_distance", "other_run_id": "x", "group": "clm"}
        for row in rows(("mlm",), (0,))
        if row["measure"] == "layer_change"
    ]
    folder = write(tmp_path, table_rows=[*rows(), *between])
    assert told(asking(folder, "layer_change", "run_distance")) == []


def test_distances_before_the_last_step_count_only_for_runs_that_do_not_share_it(tmp_path):
    """Runs of other lengths may have no later step in common."""
    change = next(row for row in rows(("mlm",), (0,)) if row["measure"] == "layer_change")
    between = [
        change | {"measure": "run_distance", "other_run_id": run_of(arm, 0)["run_id"], "group": arm, "step": 0}
        for arm in ("clm", "untrained")
    ]
    folder = asking(write(tmp_path, table_rows=[*rows(), *between]), "run_distance")
    table = experiment_folder.read(folder).table
    assert [*table.loc[table["measure"] == "run_distance", "group"]] == ["untrained"]
    assert told(folder) == [
        "Asked for, but only partly measured: run_distance of mlm (seed 0); `ablate run` measures the rest."
    ]


def test_one_run_alone_has_no_distances(tmp_path):
    folder = write(tmp_path, arms=("mlm",), seeds=(0,))
    assert told(asking(folder, "layer_change", "run_distance")) == []


def test_an_analysis_advises_its_own_command(tmp_path):
    folder = asking(
        write(tmp_path, arms=("mlm", "clm"), seeds=(0,), table_rows=rows(("mlm",), (0,))), "validation"
    )
    plan = json.loads((folder / "plan.json").read_text())
    for run in plan["runs"]:
        run["analysed"] = {}
    (folder / "plan.json").write_text(json.dumps(plan))
    assert told(folder) == [
        "Done, but without a row in results.parquet: clm (seed 0); `ablate analyse` adds them."
    ]


@pytest.mark.parametrize("spec", ["# nothing\n", "measures: 3\n", "measures: {a: 1}\n", "{", "measures: [3]\n"])
def test_a_spec_that_cannot_be_read_asks_for_nothing_but_what_the_plan_lacks_is_named(spec, tmp_path):
    folder = write(tmp_path, arms=("mlm", "clm"), seeds=(0,))
    (folder / "spec.yaml").write_text(spec)
    assert told(folder) == []
    assert told(planned(folder, mlm={"not_measured": ["probing cola", "geometry"]})) == [
        f"Asked for, but without rows: {names} of mlm (seed 0); `ablate run` computes them."
        for names in ("probing (cola)", "geometry")
    ]


def encoders(folder, *changes):
    """The experiment as if its runs had such encoders, in turn."""
    for path, change in zip(sorted((folder.parent / "runs").glob("*/run.json")), itertools.cycle(changes)):
        record = json.loads(path.read_text())
        record["settings"]["encoder"] |= change
        path.write_text(json.dumps(record))
    return next(
        sentence for sentence in summary(experiment_folder.read(folder)).split(". ") if "ncoder" in sentence
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{}], "The encoder has 6 layers of width 64 with 4 heads"),
        ([{"num_hidden_layers": 1, "num_attention_heads": 1}], "The encoder has 1 layer of width 64 with 1 head"),
        (
            [{"num_hidden_layers": layers} for layers in (6, 1, 2)],
            "Encoders have 1, 2 or 6 layers of width 64 with 4 heads",
        ),
        ([{}, {"hidden_size": 1280}], "Encoders have 6 layers of width 64 or 1,280 with 4 heads"),
    ],
    ids=["one", "the smallest", "three depths", "two widths"],
)
def test_encoders_that_differ_are_several(changes, said, tmp_path):
    assert encoders(write(tmp_path), *changes) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{"norm": "pre"}], "States are read before its final norm."),
        ([{}, {"norm": "pre"}], "States are read before the final norm where there is one."),
    ],
    ids=["all", "some"],
)
def test_states_of_pre_norm_encoders_are_those_before_the_final_norm(changes, said, tmp_path):
    folder = write(tmp_path)
    assert "final norm" not in summary(experiment_folder.read(folder))
    encoders(folder, *changes)
    assert said in summary(experiment_folder.read(folder))


@pytest.mark.parametrize(("asked", "group"), [(("layer_change",), "as planned"), (("validation",), "wrong")])
def test_what_nobody_asked_for_is_missing_as_planned(asked, group, tmp_path):
    folder = asking(write(tmp_path), *asked)
    arms = [{"arm": "mlm", "training": "unknown"}]
    told = grouped(notices(experiment_folder.read(folder), arms))
    sentence = (
        "Whether mlm is trained enough to interpret is unknown: it has no validation loss over the vocabulary."
    )
    assert [(notice["group"], notice["text"]) for notice in told] == [(group, sentence)]


def test_arms_below_a_guess_without_context_are_named_apart_from_those_that_gain_too_little(tmp_path):
    gains = {"mlm": -0.256, "mt": 0.2, "clm": -0.246}
    arms = [{"arm": arm, "training": "no", "gain": {"mean": gain}} for arm, gain in gains.items()]
    experiment = experiment_folder.read(write(tmp_path))
    assert [notice["text"] for notice in notices(experiment, arms)] == [
        "mlm and clm predict worse than a guess without context: their gains are −0.26 to −0.25 nats.",
        "mt gains too little to interpret: its gain over a guess without context is 0.20 nats, below 0.5.",
    ]


def test_wrong_comes_first_the_spec_last_of_it_and_each_group_keeps_its_order():
    kinds = ["measures", "run", "measures", "spec", "claims", "results"]
    told = grouped({"kind": kind, "text": str(i)} for i, kind in enumerate(kinds))
    assert [notice["text"] for notice in told] == ["1", "4", "5", "3", "0", "2"]
    assert [notice["group"] for notice in told] == ["wrong"] * 4 + ["as planned"] * 2


@pytest.mark.parametrize(("predictions", "is_other"), [(12_040, False), (9_000, True)])
def test_arms_that_read_another_text_than_the_described_one_are_named(tmp_path, predictions, is_other):
    """Tokens of another address are the same text if no sentence was cut in either."""
    losses = [
        row | {"n": predictions} if (row["arm"], row["measure"]) == ("mt", "validation") else row
        for row in rows(("mlm", "clm", "mt"), (0,))
    ]
    folder = write(tmp_path, arms=("mlm", "clm", "mt"), seeds=(0,), table_rows=losses)
    described = "1,024 sub-words in the vocabulary."
    for path in (tmp_path / "runs").glob("mt-*/run.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tokens": "0123456789"}))
    sentence = (
        "mt reads another text than mlm, or the same text in other tokens, so do not compare its loss with those "
        "of other arms."
    )
    assert told(folder) == [sentence] * is_other
    assert (f"{described} This is the text of mlm." in summary(experiment_folder.read(folder))) == is_other


def test_what_was_cut_is_said_of_each_split_and_shared_runs_are_timed_once(tmp_path):
    cut = {"sentence to train on": 28, "translation to train on": 1, "sentence to validate on": 2}
    folder = write(tmp_path, arms=("mlm", "clm"), seeds=(0,))
    plan = json.loads((folder / "plan.json").read_text())
    plan["data"] |= {"cut": cut, "validation_in_training": 12}
    plan["runs"][1] |= {key: plan["runs"][0][key] for key in ("run_id", "folder")}
    (folder / "plan.json").write_text(json.dumps(plan))
    said = summary(experiment_folder.read(folder))
    assert (
        " Cut at the maximum length: 28 sentences to train on, 1 translation to train on and 2 sentences to "
        "validate on. " in said
    )
    assert "4,000 sentences to validate on (12 of them also to train on), 1,024 sub-words" in said
    assert said.endswith("Training took 57 s in all.")


def test_a_run_that_two_arms_share_counts_once(tmp_path, monkeypatch):
    folder = write(tmp_path, arms=("mlm", "clm", "mt"), states={("mlm", 2): None}, table_rows=[])
    plan = json.loads((folder / "plan.json").read_text())
    for run, same in zip(plan["runs"][3:6], plan["runs"][:3], strict=True):
        run |= {key: same[key] for key in ("run_id", "folder")}
    (folder / "plan.json").write_text(json.dumps(plan))
    monkeypatch.setattr("reports.page.summary.MOST_NAMED", 3)
    assert told(folder) == [
        "1 of 6 runs not started, of mlm and clm.",
        "Done, but without a row in results.parquet: 5 runs of mlm, clm and mt; `ablate measure` adds them.",
    ]
    assert summary(experiment_folder.read(folder)).startswith(
        "6 runs: 3 arms (mlm, clm and mt) and 3 seeds (0, 1, 2), 5 of them done. "
    )
    assert "5 of 6 runs done; 2 notes on what is missing or wrong" in Page(page.write(folder)).text


def test_what_was_probably_not_meant_stands_among_what_is_wrong(tmp_path):
    folder = write(tmp_path, plan_changes={"warnings": ["The text is unknown."]})
    found = grouped(notices(experiment_folder.read(folder), []))
    assert {"kind": "spec", "text": "The text is unknown.", "group": "wrong"} in found


def test_a_run_that_went_on_on_another_machine_is_named(tmp_path):
    folder = write(tmp_path)
    path = next(tmp_path.rglob("runs/mlm*/provenance.json"))
    move = {"at": "2026-11-25T10:00:00+00:00", "changed": ["torch 2.9.0 there, torch 2.13.0 here"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"moved_from": [move]}))
    seed = path.parent.name.split("-")[1].removeprefix("s")
    assert told(folder) == [
        f"mlm (seed {seed}) continued on another machine (torch 2.9.0 there, torch 2.13.0 here), so the same "
        "spec on one machine gives other bits."
    ]
