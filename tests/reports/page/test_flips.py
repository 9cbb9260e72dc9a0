"""Two arms or runs example by example: flips, tests in a seed, intervals over seeds, slices and the examples."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

from ablations.cli import main
from ablations.errors import ResultsError
from reports.folder import read_plan
from reports.page import page
from reports.page.diff import difference
from reports.page.flips import ComparedArm, compare_examples, publish_predictions, sides_of
from reports.page.page import publish, restore
from reports.statistics.summaries import multi_bootstrap
from tests.support.errors import error_text
from tests.support.fake_experiment import folder_name, write
from tests.support.fake_predictions import frame, write_run
from tests.support.remembered_drawings import empty_drawings

SEEDS, N = (0, 1, 2), 60


def points(seed, share):
    return (np.random.default_rng(seed).random(N) < share).astype(float)


A = {seed: points(seed, 0.6) for seed in SEEDS}
B = {seed: points(seed + 10, 0.8) for seed in SEEDS}


@pytest.fixture
def sides(tmp_path):
    return [
        ComparedArm(name, {seed: write_run(tmp_path / f"{name}-{seed}", some[seed], seed=seed) for seed in SEEDS})
        for name, some in (("a", A), ("b", B))
    ]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An experiment with predictions of two arms of the same seeds, with its page."""
    folder = write(tmp_path_factory.mktemp("whole") / "out")
    for arm, some in (("mlm", A), ("clm", B)):
        for seed in SEEDS:
            write_run(folder.parent / "runs" / folder_name(arm, seed), some[seed], seed=seed)
    with empty_drawings():
        page.write(folder)
    return folder


@pytest.fixture
def experiment(whole, tmp_path):
    """A copy that a test may change."""
    return shutil.copytree(whole.parent, tmp_path / "out") / whole.name


def ablate(*arguments):
    return CliRunner().invoke(main, ["diff", *map(str, arguments)], env={"COLUMNS": "80"})


def test_flips_of_each_seed_are_counted_and_tested_by_mcnemar(sides):
    (task,) = compare_examples(*sides)["tasks"]
    for row in task["seeds"]:
        old, new = A[row["before"]] == 1, B[row["after"]] == 1
        better, worse = int((new & ~old).sum()), int((old & ~new).sum())
        assert (row["better"], row["worse"]) == (better, worse)
        assert row["p"] == pytest.approx(stats.binomtest(better, better + worse).pvalue)
        assert (row["mean_before"], row["mean_after"]) == pytest.approx((old.mean(), new.mean()))
    always = [
        np.all([(B[s] > A[s]) if up else (B[s] < A[s]) for s in SEEDS], axis=0).sum() for up in (True, False)
    ]
    assert [task["better_in_every_seed"], task["worse_in_every_seed"]] == always


def test_over_seeds_stand_the_t_interval_and_the_one_over_examples_too(sides):
    (task,) = compare_examples(*sides)["tasks"]
    by_seed = [{seed: some[seed].mean() for seed in SEEDS} for some in (A, B)]
    assert task["over_seeds"] == pytest.approx(difference(*by_seed))
    change_SN = np.array([B[seed] - A[seed] for seed in SEEDS])
    both = task["over_seeds_and_examples"]
    assert both["mean"] == pytest.approx(change_SN.mean()) == task["over_seeds"]["mean"]
    again = multi_bootstrap(change_SN, rng=np.random.default_rng(0))
    assert both["high"] - both["low"] == pytest.approx(again.high - again.low, rel=0.2)  # of 1,000 draws
    assert compare_examples(*sides) == compare_examples(*sides)


def test_examples_are_paired_by_their_ids_in_any_order(sides, tmp_path):
    """And examples that one side lacks are left out."""
    order = np.random.default_rng(0).permutation(N)[: N - 5]
    moved = {}
    for seed in SEEDS:
        table = frame(B[seed]).iloc[order]
        names = {
            name: table[name].tolist() for name in ("example", "text", "second", "length", "rarest", "margin")
        }
        moved[seed] = write_run(tmp_path / f"moved-{seed}", B[seed][order], seed=seed, **names)
    (task,) = compare_examples(sides[0], ComparedArm("moved", moved))["tasks"]
    assert (task["examples"], task["only_on_one_side"]) == (N - 5, 5)
    kept = np.sort(order)
    assert task["seeds"][0]["better"] == int((B[0][kept] > A[0][kept]).sum())
    few = {0: write_run(tmp_path / "few", A[0][:-3], seed=0)}  # examples that either side lacks
    (task,) = compare_examples(ComparedArm("few", few), ComparedArm("moved", moved))["tasks"]
    assert task["only_on_one_side"] == len(set(kept.tolist()) ^ set(range(N - 3))) > 5


def test_slices_are_by_length_frequency_or_part(sides):
    (task,) = compare_examples(*sides, by="length")["tasks"]
    assert [part["examples"] for part in task["slices"]] == [15] * 4
    assert [part["slice"] for part in task["slices"]][:2] == ["3 to 17 tokens", "18 to 32 tokens"]
    first = np.mean([B[seed][:15].mean() - A[seed][:15].mean() for seed in SEEDS])
    assert task["slices"][0]["over_seeds"]["mean"] == pytest.approx(first)
    (task,) = compare_examples(*sides, by="frequency")["tasks"]
    assert [part["slice"] for part in task["slices"]][:3] == ["rank 1-10", "rank 11-25", "rank 26-50"]
    assert sum(part["examples"] for part in task["slices"]) == N
    (task,) = compare_examples(*sides, by="part")["tasks"]
    assert [part["slice"] for part in task["slices"]] == ["all"]


def test_listed_examples_are_those_that_differ_most_and_really_differ(sides):
    (task,) = compare_examples(*sides, examples=3)["tasks"]
    change = {f"e{i}": np.mean([B[s][i] - A[s][i] for s in SEEDS]) for i in range(N)}
    better, worse = task["listed"][:3], task["listed"][3:]
    assert [change[row["example"]] for row in better] == sorted(change.values())[: -len(better) - 1 : -1]
    assert all(change[row["example"]] < 0 for row in worse)
    assert better[0]["text"].startswith("good ")
    assert better[0]["before"][0].endswith(" nats")


def test_of_repeated_examples_one_is_listed(tmp_path):
    names = {"example": ["e0", "e0-2", "e1", "e0-3"]}
    runs = [
        write_run(tmp_path / name, points, **names)
        for name, points in (("a", [0.0, 0.0, 0.0, 0.0]), ("b", [1.0, 1.0, 1.0, 1.0]))
    ]
    sides = [ComparedArm(path.name, {0: path}, is_run=True) for path in runs]
    (task,) = compare_examples(*sides, examples=3)["tasks"]
    assert [row["example"] for row in task["listed"]] == ["e0", "e1"]


def test_words_of_a_sentence_count_by_their_number_and_answers_are_listed(tmp_path):
    words = {"measure": "probing", "task": "ud_pos", "label": "N V", "weight": [1, 3]}
    runs = [
        write_run(tmp_path / "a", [1.0, 0.0], prediction=[["N"], ["V V V"]], **words),
        write_run(tmp_path / "b", [0.0, 2 / 3], prediction=[["V"], ["N V V"]], **words),
    ]
    sides = [ComparedArm(path.name, {0: path}, is_run=True) for path in runs]
    (task,) = compare_examples(*sides, examples=1)["tasks"]
    assert (task["mean_before"], task["mean_after"]) == pytest.approx((1 / 4, 2 / 4))
    assert task["over_seeds"]["low"] is None  # one seed
    assert task["over_seeds_and_examples"]["low"] is None
    assert [row["after"] for row in task["listed"]] == [["N V V (1)"], ["V (1)"]]


def test_arms_without_a_common_seed_are_not_paired(sides):
    other = ComparedArm("b", {seed + 7: path for seed, path in sides[1].runs.items()})
    (task,) = compare_examples(sides[0], other)["tasks"]
    assert task["seeds"] == []
    assert not task["over_seeds"]["paired"]
    assert "better_in_every_seed" not in task
    assert task["over_seeds_and_examples"]["low"] is not None


def test_only_numbers_of_the_same_settings_and_the_last_step_are_compared(sides, tmp_path):
    write_run(sides[0].runs[0], 1 - A[0], step=100)
    (task,) = compare_examples(*sides)["tasks"]
    assert task["seeds"][0]["mean_before"] == pytest.approx(A[0].mean())
    other = ComparedArm("other", {0: write_run(tmp_path / "other", A[0], key="1" * 10)})
    assert error_text(ResultsError, compare_examples, sides[0], other) == (
        "a and other have no predictions of the same measure, task and settings; measure both with the same "
        "settings."
    )


def test_predictions_before_the_last_step_of_a_run_are_neither_compared_nor_published(experiment, tmp_path):
    """As after a stop between two checkpoints."""
    path = experiment.parent / "runs" / folder_name("mlm", 0)
    (path / "predictions.parquet").unlink()
    write_run(path, A[0], step=2)
    sides = [sides_of(experiment, read_plan(experiment))[arm] for arm in ("mlm", "clm")]
    (task,) = compare_examples(*sides)["tasks"]
    assert [seed["before"] for seed in task["seeds"]] == [1, 2]
    runs = [ComparedArm(run.name, {0: run}, is_run=True) for run in (path, sides[1].runs[0])]
    assert error_text(ResultsError, compare_examples, *runs) == (
        f"{path.name}: no predictions of its last step are kept; set `predictions: true` in a measure "
        "of its spec, as in {kind: minimal_pairs, predictions: true}, and start `ablate run` again."
    )
    publish_predictions(experiment, tmp_path, read_plan(experiment).runs)
    published = pd.read_parquet(tmp_path / "predictions.parquet")
    assert sorted(published.loc[published["arm"] == "mlm", "seed"].unique()) == [1, 2]


def test_the_command_shows_arms_and_runs(experiment):
    shown = ablate(f"{experiment}:mlm", f"{experiment}:clm", "--by", "length", "--examples", "1")
    assert shown.exit_code == 0, shown.output
    assert f"before: {experiment}:mlm" in shown.output.replace("\n", "")
    assert "\nminimal_pairs language, accuracy: 60 examples\n" in shown.output
    assert "In every seed: better on" in shown.output
    assert "3 to 17 tokens" in shown.output
    assert "better e" in shown.output
    notes = shown.output[shown.output.index("\nbetter, worse") :].replace("\n", " ").split()
    assert " ".join(notes) == (
        "better, worse: examples that the second side answers better, or worse; p: exact sign test, which is "
        "about these two models, not about other seeds. Intervals are at 95%: the t interval over seeds, the "
        "multi-bootstrap over seeds and examples. In brackets behind an answer: how many runs or heads gave it."
    )
    runs = experiment.parent / "runs"
    one = ablate(runs / folder_name("mlm", 0), runs / folder_name("clm", 2))
    assert "; too few seeds for an interval\n" in one.output
    assert "Intervals are at 95%" not in one.output
    assert "In brackets" not in one.output
    content = json.loads(ablate(runs / folder_name("mlm", 0), runs / folder_name("clm", 2), "--json").stdout)
    (row,) = content["tasks"][0]["seeds"]  # of two runs, whatever their seeds
    assert (row["before"], row["after"]) == (0, 2)
    assert row["better"] == int((B[2] > A[0]).sum())
    (runs / folder_name("mlm", SEEDS[-1]) / "predictions.parquet").unlink()
    same = ablate(f"{experiment}:mlm", f"{experiment}:mlm")
    assert "after - before: 0.000; no interval, as all seeds agree\n" in same.output


def test_what_cannot_be_compared_is_refused_in_a_sentence(experiment):
    def refusal(*arguments):
        shown = ablate(*arguments)
        assert shown.exit_code != 0
        return shown.output.replace("\n", " ")

    assert f"{experiment} has no arm mln; name one of mlm, clm, mt, untrained." in refusal(
        f"{experiment}:mln", f"{experiment}:clm"
    )
    assert refusal(f"{experiment}:mlm", f"{experiment}:mt") == (
        f"{experiment}:mt: no predictions of its last step are kept; set `predictions: true` in a measure "
        "of its spec, as in {kind: minimal_pairs, predictions: true}, and start `ablate run` again. "
    )
    for seed in SEEDS:
        (experiment.parent / "runs" / folder_name("mt", seed) / "state.json").unlink()
    assert refusal(f"{experiment}:mlm", f"{experiment}:mt") == (
        f"{experiment}:mt: no run of it is trained yet; start `ablate run`. "
    )
    assert (
        "A and B are of different kinds; name two experiments, two arms (out/NAME:ARM) or two runs (out/runs/RUN)."
    ) in refusal(experiment, f"{experiment}:mlm")
    assert "--examples and --by work only for two arms" in refusal(experiment, experiment, "--examples", "2")


def test_a_published_folder_gives_the_same_comparison_without_texts(experiment, tmp_path):
    published = publish(experiment, tmp_path / "results")
    table = pd.read_parquet(published / "predictions.parquet")
    assert not {"text", "second", "label", "prediction", "margin"} & set(table)
    assert len(table) == 2 * len(SEEDS) * N
    arms = [
        ablate(f"{folder}:mlm", f"{folder}:clm", "--json", "--by", "length") for folder in (experiment, published)
    ]
    contents = [json.loads(result.stdout) for result in arms]
    assert contents[0]["tasks"] == contents[1]["tasks"]
    mixed = ablate(f"{experiment}:mlm", f"{published}:clm", "--json", "--by", "length")
    assert json.loads(mixed.stdout)["tasks"] == contents[0]["tasks"]
    shown = " ".join(ablate(f"{published}:mlm", f"{published}:clm").stdout.split())
    assert "the multi-bootstrap over seeds and examples" in shown
    listed = ablate(f"{published}:mlm", f"{published}:clm", "--examples", "3")
    assert listed.stderr == (
        f"{published}:mlm: published results have no texts of examples; leave --examples out, or name the "
        "folder in the output root, such as out/NAME:ARM.\n"
    )
    other = ablate(f"{published}:mlm", f"{published}:mt")
    none = (
        "the published results have no predictions of it; name the folder in the output root, such as "
        "out/NAME:ARM, of a spec with `predictions: true` in a measure.\n"
    )
    assert other.stderr == f"{published}:mt: {none}"
    (published / "predictions.parquet").unlink()
    assert ablate(f"{published}:mlm", f"{published}:clm").stderr == f"{published}:mlm: {none}"
    whole = ablate(published, published, "--json")
    assert json.loads(whole.stdout)["same_runs"] == 4 * len(SEEDS)


def test_the_page_of_a_published_folder_has_the_same_intervals_over_examples(experiment, tmp_path, undrawn):
    published = publish(experiment, tmp_path / "results")
    again = restore(published, tmp_path / "again")
    page.write(again)
    assert (again / "report.md").read_bytes() == (experiment / "report.md").read_bytes()
    republished = publish(again, tmp_path / "results again")
    assert (republished / "predictions.parquet").read_bytes() == (published / "predictions.parquet").read_bytes()


def test_what_no_run_keeps_any_more_is_not_published_any_more(experiment, tmp_path):
    published = publish(experiment, tmp_path / "results")
    for path in experiment.parent.glob("runs/*/predictions.parquet"):
        path.unlink()
    publish(experiment, tmp_path / "results")
    assert not (published / "predictions.parquet").exists()
