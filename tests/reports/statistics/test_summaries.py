import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablations import results
from ablations.errors import ResultsError
from reports.statistics.seed_tests import t_interval
from reports.statistics.summaries import bands, differences, expected_best, gain, last_step, mean_interval
from tests.support.errors import error_text


def seeds_of(values, **columns):
    return pd.DataFrame({"seed": range(len(values)), "value": values} | columns)


def row(**changes):
    whole = {
        "run_id": "a",
        "arm": "mlm",
        "seed": 0,
        "step": 8,
        "measure": "validation",
        "metric": "loss",
        "value": 3.0,
    }
    return whole | changes


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_agrees_with_scipy(confidence):
    values = np.random.default_rng(0).standard_normal(5)
    found = mean_interval(seeds_of(values, arm="mlm"), by=["arm"], confidence=confidence).iloc[0]
    low, high = stats.t.interval(confidence, 4, values.mean(), stats.sem(values))
    assert found[["mean", "low", "high"]].tolist() == pytest.approx([values.mean(), low, high])
    assert found["seeds"] == 5


@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_covers_the_truth_in_95_of_100_experiments(seeds):
    experiments = 4000
    values = np.random.default_rng(seeds).normal(1.7, 0.3, (experiments, seeds))
    table = pd.DataFrame(
        {
            "arm": np.repeat(np.arange(experiments), seeds),
            "seed": np.tile(np.arange(seeds), experiments),
            "value": values.ravel(),
        }
    )
    found = mean_interval(table, by=["arm"])
    covered = ((found["low"] <= 1.7) & (found["high"] >= 1.7)).mean()
    assert covered == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / experiments))  # three standard errors


def test_shifting_and_scaling_the_values_does_the_same_to_mean_and_interval():
    values = np.array([0.2, -0.4, 1.1])
    here = mean_interval(seeds_of(values, arm="mlm"), by=["arm"])[["mean", "low", "high"]].to_numpy()
    there = mean_interval(seeds_of(3 * values - 2, arm="mlm"), by=["arm"])[["mean", "low", "high"]].to_numpy()
    np.testing.assert_allclose(there, 3 * here - 2, rtol=1e-12)  # float64 algebra


def test_one_seed_has_a_mean_and_no_interval():
    found = mean_interval(seeds_of([2.5], arm="mlm"), by=["arm"]).iloc[0]
    assert (found["mean"], found["seeds"]) == (2.5, 1)
    assert np.isnan(found["low"])
    assert np.isnan(found["high"])


def test_equal_seeds_have_an_interval_of_no_width():
    found = mean_interval(seeds_of([2.5, 2.5, 2.5], arm="mlm"), by=["arm"]).iloc[0]
    assert found[["mean", "low", "high"]].tolist() == [2.5, 2.5, 2.5]


def test_values_that_are_no_numbers_are_left_out_and_not_counted():
    found = mean_interval(seeds_of([1.0, np.nan, 3.0], arm="mlm"), by=["arm"]).iloc[0]
    assert (found["mean"], found["seeds"]) == (2.0, 2)
    nothing = mean_interval(seeds_of([np.nan, np.nan], arm="mlm"), by=["arm"]).iloc[0]
    assert np.isnan(nothing["mean"])
    assert nothing["seeds"] == 0


def test_an_infinite_value_has_an_infinite_mean_and_no_interval():
    found = mean_interval(seeds_of([1.0, np.inf], arm="mlm"), by=["arm"]).iloc[0]
    assert np.isinf(found["mean"])
    assert np.isnan(found["low"])


def test_combinations_keep_their_order_and_absent_keys_are_a_combination():
    table = results.table([row(arm=arm, layer=layer) for arm in ("mt", "clm") for layer in (2, None, 0)])
    found = mean_interval(table, by=["arm", "layer"])
    assert found["arm"].tolist() == ["mt"] * 3 + ["clm"] * 3
    assert found["layer"].fillna(-1).tolist() == [2, -1, 0] * 2


def test_layers_of_one_run_are_not_passed_off_as_seeds():
    table = results.table([row(layer=layer) for layer in (0, 1)])
    assert error_text(ResultsError, mean_interval, table, by=["arm", "metric"]) == (
        "a mean over seeds needs one value a seed, but seed 0 has several for arm mlm, metric loss; "
        "choose the rows of one experiment, step, measure, metric and group."
    )


def points(values, *, arm="mlm", errors=None, **columns):
    """One value a seed at one place of a line."""
    return seeds_of(values, line=arm, x=1, standard_error=errors, **columns)


@pytest.mark.parametrize("confidence", [95, 1, 0, -0.5, float("nan")])
def test_a_confidence_that_is_no_share_is_refused(confidence):
    table = seeds_of([1.0, 2.0, 4.0], arm="mlm")
    sentence = f"confidence must be between 0 and 1, as in 0.95, but is {confidence}; correct it."
    assert error_text(ResultsError, mean_interval, table, by=["arm"], confidence=confidence) == sentence
    assert error_text(ResultsError, t_interval, [1.0, 2.0], confidence=confidence) == sentence


def test_one_column_may_be_named_alone_and_one_that_is_missing_is_named():
    table = seeds_of([1.0, 2.0, 4.0], arm="mlm")
    pd.testing.assert_frame_equal(mean_interval(table, by="arm"), mean_interval(table, by=["arm"]))
    assert error_text(ResultsError, mean_interval, table.drop(columns="value"), by=["arm", "step"]) == (
        "a mean over seeds needs columns that the table lacks: step and value; give a table that has them."
    )


def test_with_several_seeds_the_band_is_their_interval_whatever_their_own_errors_are():
    found = bands(points([1.0, 2.0, 4.0], errors=[9.0] * 3))
    assert found.columns.tolist() == ["line", "x", "mean", "low", "high", "seeds", "band"]
    pd.testing.assert_frame_equal(
        found.drop(columns="band"), mean_interval(points([1.0, 2.0, 4.0]), by=["line", "x"])
    )
    assert found["band"].tolist() == ["seeds"]


def test_with_one_seed_the_band_is_the_error_over_text():
    found = bands(points([2.0], errors=[0.5])).iloc[0]
    assert found[["mean", "low", "high", "seeds"]].tolist() == pytest.approx([2.0, 2 - 0.98, 2 + 0.98, 1])
    assert found["band"] == "text"


@pytest.mark.parametrize("errors", [[np.nan], None])
def test_with_one_seed_and_no_error_there_is_no_band(errors):
    found = bands(points([2.0], errors=errors)).iloc[0]
    assert found[["low", "high"]].isna().all()
    assert found["band"] == ""


def test_a_line_has_one_kind_of_band_even_where_only_one_of_its_seeds_has_a_number():
    lines = pd.concat([
        points([1.0, 2.0], errors=[0.1, 0.1]), points([1.0, np.nan], errors=[0.1, np.nan]).assign(x=2),
        points([3.0], arm="clm", errors=[0.1]), points([4.0, np.nan], arm="mt", errors=[0.2, np.nan]),
    ])  # fmt: skip
    found = bands(lines).set_index(["line", "x"])
    assert found["band"].to_dict() == {("mlm", 1): "seeds", ("mlm", 2): "", ("clm", 1): "text", ("mt", 1): "text"}
    assert found.loc[("mt", 1), "high"] == pytest.approx(4 + 1.96 * 0.2)


def test_what_shares_runs_has_no_interval_over_its_pairs():
    lines = pd.concat([points([1.0, 2.0], overlapping=True), points([1.0, 2.0], arm="clm", overlapping=False)])
    found = bands(lines).set_index("line")
    assert found["band"].to_dict() == {"mlm": "", "clm": "seeds"}
    assert np.isnan(found.loc["mlm", "low"])
    assert found.loc["mlm", "mean"] == 1.5


def test_bands_too_refuse_two_values_of_a_seed():
    with pytest.raises(ResultsError, match=r"^a mean over seeds needs one value a seed, but seed 0 has several"):
        bands(pd.concat([points([1.0]), points([2.0])]))


def test_only_runs_with_the_same_sample_are_subtracted_also_where_an_arm_lacks_a_seed():
    rows = pd.DataFrame(
        [("a", seed, 1.0 * seed, "mp 4") for seed in range(4)]
        + [("b", seed, 2.0 * seed, "mp 4" if seed else "mp 3") for seed in range(3)],
        columns=["arm", "seed", "value", "sample"],
    ).astype({"sample": "string"})
    (difference,) = differences(rows, {"b": "a"}).values()
    assert (difference["mean"], difference["seeds"]) == (1.5, 2)  # of seeds 1 and 2


def test_last_step_is_found_for_each_run_and_measure():
    table = results.table(
        [
            row(step=4),
            row(step=8),
            row(run_id="b", seed=1, step=4),
            row(step=2, measure="layer_change"),
            row(step=4, measure="layer_change"),
        ]
    )
    kept = last_step(table)
    assert kept[["seed", "measure", "step"]].to_numpy().tolist() == [
        [0, "validation", 8],
        [1, "validation", 4],
        [0, "layer_change", 4],
    ]
    without = table.drop(columns="step")
    pd.testing.assert_frame_equal(last_step(without), without)


def test_all_rows_of_a_run_without_steps_are_its_last():
    table = results.table(
        [row(step=None), row(step=None, metric="perplexity"), row(run_id="b", step=4), row(run_id="b")]
    )
    assert last_step(table)[["run_id", "metric"]].to_numpy().tolist() == [
        ["a", "loss"],
        ["a", "perplexity"],
        ["b", "loss"],
    ]
    assert len(gain(results.table([row(step=None, floor=5.0)]))) == 1


def test_each_pair_of_runs_has_its_own_last_step():
    pairs = [
        row(measure="run_distance", step=step, other_run_id=other)
        for step, other in ((4, "b"), (8, "b"), (4, "c"))
    ]
    kept = last_step(results.table(pairs))
    assert kept[["other_run_id", "step"]].to_numpy().tolist() == [["b", 8], ["c", 4]]


def test_gain_is_what_a_guess_without_context_loses_more_and_may_be_negative():
    table = results.table(
        [
            row(step=4, value=5.0, floor=5.5),  # not the last step
            row(value=3.5, floor=5.5),
            row(value=9.0, floor=5.5, group="verb"),  # not all tokens
            row(metric="perplexity", value=33.0, floor=240.0),
            row(run_id="b", seed=1, value=6.0, floor=5.5),
        ]
    )
    assert gain(table).to_numpy().tolist() == [["mlm", 0, 2.0], ["mlm", 1, -0.5]]
    assert gain(results.table([])).empty


@pytest.mark.parametrize("losses", [[3.0], [3.0, 1.0], [2.0, 5.0, 1.0, 4.0, 4.0, 0.5]])
def test_the_expected_best_is_the_mean_over_all_choices_of_so_many_trials(losses):
    every = [
        np.mean([min(chosen) for chosen in itertools.combinations(losses, drawn)])
        for drawn in range(1, len(losses) + 1)
    ]
    assert expected_best(losses) == pytest.approx(every)


def test_the_expected_best_of_many_trials_is_that_of_exact_fractions():
    size = 2_000
    expected = expected_best([float(loss) for loss in range(size)])
    # The lowest of so many different numbers from 0 on is on average (size - drawn) / (drawn + 1).
    assert expected == pytest.approx([(size - drawn) / (drawn + 1) for drawn in range(1, size + 1)], abs=1e-9)


def test_a_diverged_trial_counts_as_the_worst_that_is_known():
    assert expected_best([None, 1.0, 2.0]) == expected_best([2.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="empty"):
        expected_best([None])


def test_the_expected_best_is_unbiased_for_fewer_trials():
    """Of many searches of 8 trials the mean is the true expected best of 3; with replacement it is above it."""
    draws = np.random.default_rng(0).normal(size=(4_000, 8))
    truth = np.random.default_rng(1).normal(size=(400_000, 3)).min(1).mean()
    estimates = np.array([expected_best(list(row))[2] for row in draws])
    error = estimates.std() / len(estimates) ** 0.5
    assert abs(estimates.mean() - truth) < 4 * error
    with_replacement = np.sort(draws)[:, ::-1] @ np.diff((np.arange(9) / 8) ** 3)
    assert with_replacement.mean() - truth > 4 * error
