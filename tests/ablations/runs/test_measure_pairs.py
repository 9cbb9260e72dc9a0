"""Distances between runs: which pairs, what numbers, and what is computed again."""

import numpy as np
import pandas as pd
import pytest
import torch

from ablations.errors import MeasureError
from ablations.measures import run_distance
from ablations.measures.jackknife import sentence_blocks, standard_error
from ablations.measures.reading.sample import first_tokens
from ablations.measures.reading.texts import layer_states
from ablations.measures.settings import RunDistanceSettings
from ablations.measures.similarity import Moments, debiased_cka, pwcca
from ablations.runs import measure_pairs
from ablations.runs.gather import gather
from ablations.runs.identity import PlannedRun
from ablations.runs.rows import key
from ablations.spec.experiment import Run
from lightning_modules.objectives import build
from lightning_modules.training.checkpoint import load_weights
from tests.support.errors import error_text
from tests.support.tiny_text import settings

ASKED = RunDistanceSettings(kind="run_distance", tokens=400)


def trained(item, tokens):
    objective = build(item.directory.settings(), tokens)
    load_weights(objective, item.directory.last_checkpoint)
    return objective


def add_run(train_run, tokens, arm, seed, kind="masked_lm", **sections):
    run = settings(kind, seed=seed, **({"training": {"max_steps": 2}} | sections))
    run_id = f"{arm}{seed}".rjust(10, "0")
    directory = train_run(run, f"{arm}-s{seed}-{run_id}")
    return PlannedRun(Run(arm, seed, run), run_id, tokens.address, directory)


@pytest.fixture
def planned(train_run, tokens):
    arms = (("mlm", "masked_lm"), ("clm", "causal_lm"))
    return [add_run(train_run, tokens, arm, seed, kind) for arm, kind in arms for seed in (0, 1)]


def names(pairs):
    return [tuple(f"{item.run.arm}-{item.run.seed}" for item in pair) for pair in pairs]


def compare(folder, planned, settings=ASKED, **options):
    said = []
    measure_pairs.compare(folder, planned, settings, data_root=folder, say=said.append, **options)
    return said


def test_pairs_are_arms_at_equal_seed_and_seeds_of_an_arm_of_like_encoders(planned, train_run, tokens):
    deeper = add_run(train_run, tokens, "deeper", 0, encoder={"num_hidden_layers": 3})
    words = add_run(train_run, tokens, "words", 0, "skip_gram")
    assert names(measure_pairs.pairs([*planned, deeper, words], ASKED)) == [
        ("mlm-0", "mlm-1"),
        ("mlm-0", "clm-0"),
        ("mlm-1", "clm-1"),
        ("clm-0", "clm-1"),
    ]


def test_arms_are_compared_across_seeds_where_that_is_asked_for(planned):
    across = ASKED.model_copy(update={"across_seeds": True})
    assert names(measure_pairs.pairs(planned, across)) == [
        ("mlm-0", "mlm-1"),
        ("mlm-0", "clm-0"),
        ("mlm-0", "clm-1"),
        ("mlm-1", "clm-0"),
        ("mlm-1", "clm-1"),
        ("clm-0", "clm-1"),
    ]


def test_pairs_of_some_arms_only(planned):
    assert names(measure_pairs.pairs(planned, ASKED.model_copy(update={"arms": ("clm",)}))) == [("clm-0", "clm-1")]
    only = ASKED.model_copy(update={"arms": ("mlm",)})
    assert [
        names(found) for found in measure_pairs.pairs_to_measure(planned[0].directory.path, planned, only).values()
    ] == [[("mlm-0", "mlm-1")]]


def test_pairs_of_runs_that_are_not_trained_yet_are_to_come(planned, make_run, tokens, tmp_path):
    def still_open(asked=ASKED):
        return names(measure_pairs.still_open(tmp_path, runs, asked, to_train={"later"}))

    later = settings(seed=0, training={"max_steps": 2})
    later = PlannedRun(Run("later", 0, later), "later", tokens.address, make_run(later, "later-s0-0000later0"))
    runs = [*planned, later]
    trained = [("mlm-0", "mlm-1"), ("mlm-0", "clm-0"), ("mlm-1", "clm-1"), ("clm-0", "clm-1")]
    to_come = [("mlm-0", "later-0"), ("clm-0", "later-0")]
    assert still_open() == trained + to_come
    assert names(measure_pairs.pairs(runs, ASKED)) == trained
    everywhere = ASKED.model_copy(update={"checkpoints": "all"})
    assert still_open(everywhere) == trained + to_come
    assert still_open(ASKED.model_copy(update={"arms": ("clm", "later")})) == [trained[3], to_come[1]]
    compare(tmp_path, planned)
    assert still_open() == to_come


def test_distances_are_those_of_the_states_of_the_same_tokens(planned, tokens, tmp_path):
    assert compare(tmp_path, planned) == ["comparing 4 pairs of runs"]
    rows = measure_pairs.rows(tmp_path)
    assert len(rows) == 4 * 3 * 2  # pairs, layers, metrics
    sample = first_tokens(tokens.validation, 400)
    assert set(rows["sample"]) == {sample.digest}
    assert (rows["n"] == len(sample)).all()
    states = {item.run_id: layer_states(trained(item, tokens), tokens.validation, sample) for item in planned}
    for row in rows.itertuples():
        similarity = {"pwcca": pwcca, "debiased_cka": debiased_cka}[row.metric]
        expected = 1 - similarity(states[row.run_id][row.layer], states[row.other_run_id][row.layer])
        assert row.value == pytest.approx(expected, abs=1e-9)
        assert row.floor > row.value
    assert (rows["step"] == 2).all()


def test_the_floor_shuffles_the_other_run_and_weighs_by_the_own_one():
    """Three runs; a twin of each, whose tokens are shuffled, stands after them."""
    assert run_distance._sides(["a", "b", "c"], [("a", "c"), ("c", "b")]) == [((0, 2), (0, 5)), ((2, 1), (2, 4))]


@pytest.mark.parametrize("block", [0, 7])
def test_a_distance_that_one_block_alone_defines_has_no_error(block):
    """Whichever block the origin of the sums is from."""
    rng = np.random.default_rng(0)
    one_ND, other_ND = rng.standard_normal((1000, 4)), np.ones((1000, 4))
    block_N = np.arange(1000) // 100
    other_ND[block_N == block] = rng.standard_normal((100, 4))
    parts = []
    for number in range(10):
        parts.append(Moments(origin=parts[0].origin if parts else None))
        sides = one_ND[block_N == number], other_ND[block_N == number]
        parts[-1].add(*sides, *(rng.permutation(side_ND) for side_ND in sides))
    (distances,) = run_distance._compared(parts, [((0, 1), (0, 3))])
    for metric, similarity in (("pwcca", pwcca), ("debiased_cka", debiased_cka)):
        assert distances[metric].value == pytest.approx(1 - similarity(one_ND, other_ND), abs=1e-9)
        assert np.flatnonzero(np.isnan(distances[metric].left_out)).tolist() == [block]


def collapse(objective, layers):
    """Make all states of some layers equal, for every token."""
    encode = objective.encode

    def collapsed(batch):
        return [torch.zeros_like(x) if layer in layers else x for layer, x in enumerate(encode(batch))]

    objective.encode = collapsed
    return objective


@pytest.mark.parametrize("layers", [[1], [0, 1, 2]])
def test_a_collapsed_layer_of_a_run_takes_no_distance_from_other_pairs_and_layers(
    layers, planned, tokens, tmp_path, monkeypatch
):
    """If a pair has no distance at all, the error says whose states are equal; other pairs have their rows."""
    compare(tmp_path / "before", planned)
    before = measure_pairs.rows(tmp_path / "before")
    last = planned[-1]
    loaded = run_distance.load_weights

    def load_collapsed(objective, checkpoint):
        collapse(objective, layers if checkpoint == last.directory.last_checkpoint else [])
        return loaded(objective, checkpoint)

    monkeypatch.setattr(run_distance, "load_weights", load_collapsed)
    if len(layers) == 3:
        n = len(first_tokens(tokens.validation, 400))
        assert error_text(MeasureError, lambda: compare(tmp_path, planned)) == (
            f"run_distance of {planned[1].run_id} and {last.run_id} is undefined in every layer: all {n} states "
            f"of {last.run_id} in layer 0 are equal; look for a collapsed run, or name other arms in `arms`."
        )
    else:
        compare(tmp_path, planned)
    is_undefined = before["layer"].isin(layers) & (before["other_run_id"] == last.run_id)
    assert is_undefined.sum() == len(layers) * 2 * 2  # layers, pairs, metrics
    pd.testing.assert_frame_equal(measure_pairs.rows(tmp_path), before[~is_undefined].reset_index(drop=True))


def test_only_what_is_missing_is_computed(planned, tmp_path):
    compare(tmp_path, planned[:3])
    first = measure_pairs.rows(tmp_path)
    assert compare(tmp_path, planned) == ["comparing 2 pairs of runs"]
    rows = measure_pairs.rows(tmp_path)
    pd.testing.assert_frame_equal(rows.iloc[: len(first)], first)
    assert compare(tmp_path, planned) == []
    assert compare(tmp_path, planned, recompute=True) == ["comparing 4 pairs of runs"]
    by = ["run_id", "other_run_id", "layer", "metric"]
    again = measure_pairs.rows(tmp_path).sort_values(by, ignore_index=True)
    pd.testing.assert_frame_equal(again, rows.sort_values(by, ignore_index=True))
    other = ASKED.model_copy(update={"tokens": 300})
    assert compare(tmp_path, planned, other) == ["comparing 4 pairs of runs"]
    assert len(measure_pairs.rows(tmp_path)) == 2 * len(rows)


def test_arms_in_another_order_keep_their_distances(planned, tmp_path):
    """Also if the checkpoints are gone: the runs would be trained again for numbers that are there."""
    compare(tmp_path, planned)
    turned = [*planned[2:], *planned[:2]]
    assert compare(tmp_path, turned) == []
    for item in planned:
        item.directory.last_checkpoint.unlink()
    assert measure_pairs.to_train_again(tmp_path, turned, ASKED, to_train=()) == set()
    before, after = (
        gather("mine", runs, keys={key(ASKED): None}, compared=measure_pairs.rows(tmp_path))
        for runs in (planned, turned)
    )
    by = ["run_id", "other_run_id", "layer", "metric"]
    pd.testing.assert_frame_equal(
        *(table.sort_values(by, ignore_index=True) for table in (before, after)), check_like=True
    )


def test_all_kept_checkpoints_are_compared_step_by_step(planned, tmp_path):
    said = compare(tmp_path, planned, ASKED.model_copy(update={"checkpoints": "all"}))
    assert said == [f"comparing 4 pairs of runs at step {step}" for step in (0, 1, 2)]
    value = (
        measure_pairs.rows(tmp_path)
        .query("metric == 'pwcca' and layer == 0")
        .set_index(["run_id", "other_run_id", "step"])
    )
    between_arms = ("0000000mlm0"[-10:], "0000000clm0"[-10:])
    assert value["value"][*between_arms, 0] == pytest.approx(0, abs=1e-9)  # arms start from the same weights
    assert value["value"][*between_arms, 2] > 1e-6
    assert value["value"]["000000mlm0", "000000mlm1", 0] > 0.1  # seeds do not


def test_the_table_names_the_other_arm_and_leaves_out_runs_that_are_not_planned(planned, tmp_path):
    compare(tmp_path, planned)
    keys = {key(ASKED): None}
    table = gather("mine", planned, keys=keys, compared=measure_pairs.rows(tmp_path))
    assert set(table["measure"]) == {"run_distance"}
    between = table[(table["arm"] == "mlm") & (table["seed"] == 1) & (table["metric"] == "pwcca")]
    assert set(between["group"]) == {"clm"}
    assert set(table[table["arm"] == "clm"]["group"]) == {"clm"}
    fewer = gather("mine", planned[:3], keys=keys, compared=measure_pairs.rows(tmp_path))
    assert set(fewer["other_run_id"]) == {"000000mlm1", "000000clm0"}
    assert gather("mine", planned, keys={"another": None}, compared=measure_pairs.rows(tmp_path)).empty


def test_the_standard_error_is_that_of_the_jackknife_over_sentences(planned, tokens, tmp_path):
    compare(tmp_path, planned[:2])
    sample = first_tokens(tokens.validation, 400)
    one, other = (layer_states(trained(item, tokens), tokens.validation, sample) for item in planned[:2])
    block_N = sentence_blocks(sample.sentence_N)
    assert len(np.unique(block_N)) == 10
    for row in measure_pairs.rows(tmp_path).itertuples():
        similarity = {"pwcca": pwcca, "debiased_cka": debiased_cka}[row.metric]
        x, y = one[row.layer], other[row.layer]
        left_out = [1 - similarity(x[block_N != block], y[block_N != block]) for block in range(10)]
        assert row.standard_error == pytest.approx(standard_error(left_out), rel=1e-6)  # of differences of 1e-2


def test_layers_that_need_much_memory_are_read_in_portions_with_the_same_result(planned, tmp_path, monkeypatch):
    from ablations.measures import run_distance

    a_layer = 8 * 16**2 * (2 * 4 + 2 * 4)
    by, found = ["run_id", "other_run_id", "layer", "metric"], []
    for name, limit in (("whole", None), ("a layer with its blocks", 11 * a_layer), ("a layer", 1)):
        if limit is not None:
            monkeypatch.setattr(run_distance, "MOMENTS_BYTES", limit)
        compare(tmp_path / name, planned)
        found.append(measure_pairs.rows(tmp_path / name).sort_values(by, ignore_index=True).drop(columns="floor"))
    whole, portions, without_blocks = found
    pd.testing.assert_frame_equal(whole, portions)
    assert whole["standard_error"].notna().all()
    assert without_blocks.pop("standard_error").isna().all()
    assert without_blocks.pop("left_out").isna().all()
    errors = ["standard_error", "left_out"]
    pd.testing.assert_frame_equal(whole.drop(columns=errors), without_blocks, rtol=1e-9)


def test_too_few_tokens_are_refused(planned, tokens, tmp_path):
    there = len(first_tokens(tokens.validation, 70))
    assert error_text(
        MeasureError, lambda: compare(tmp_path, planned, ASKED.model_copy(update={"tokens": 70}))
    ) == (
        f"PWCCA needs at least 5 tokens per feature, which is 80 at a width of 16, but got {there}; "
        "give more tokens or fewer features."
    )
    assert measure_pairs.rows(tmp_path).empty


@pytest.mark.parametrize("order", [("mlm", "twin", "clm"), ("mlm", "clm", "twin")])
def test_arms_that_share_their_runs_have_each_the_distances_of_those_runs(planned, tmp_path, order):
    """Equal settings are one run, whatever the arm is called: as a value of a grid that is its base's."""
    twins = [item._replace(run=Run("twin", item.run.seed, item.run.settings)) for item in planned[:2]]
    runs = [item for arm in order for item in (*planned, *twins) if item.run.arm == arm]
    ids = [
        (pair.first.run_id, pair.second.run_id) for pair in measure_pairs.planned_pairs(runs, across_seeds=False)
    ]
    assert compare(tmp_path, runs) == [f"comparing {len(set(ids))} pairs of runs"]
    assert compare(tmp_path, runs) == []
    table = gather("mine", runs, keys={key(ASKED): None}, compared=measure_pairs.rows(tmp_path))
    of_layer = table[(table["metric"] == "pwcca") & (table["layer"] == 1)]
    ends = [tuple(sorted(two)) for two in zip(of_layer["arm"], of_layer["group"], strict=True)]
    assert {two: ends.count(two) for two in ends} == {
        ("mlm", "mlm"): 1,
        ("twin", "twin"): 1,
        ("clm", "clm"): 1,
        ("clm", "mlm"): 2,
        ("clm", "twin"): 2,
        ("mlm", "twin"): 1,  # at different seeds, which are the two runs again
    }
    own = of_layer[of_layer["arm"] == of_layer["group"]].set_index("arm")["value"]
    assert own["twin"] == own["mlm"] != own["clm"]
