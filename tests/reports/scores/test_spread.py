"""Where the spread over seeds comes from: its statistics, its arms, and its tables."""

import numpy as np
import pytest
from scipy import stats

from ablations import results
from lightning_modules.config.training import SourceSeeds
from reports.page.content import spread_entry
from reports.scores.spread import HOW_TO_READ, SOURCES, families, spread_tables
from reports.statistics.summaries import pooled_spread, share_of_variance
from tests.support.seed_sources import ONE_BY_ONE, experiment, runs_of


def test_the_spread_of_one_group_is_its_standard_deviation_with_the_chi_square_interval():
    values = [1.0, 2.5, 2.0, 4.0]
    spread = pooled_spread([values])
    assert spread.sd == pytest.approx(np.std(values, ddof=1))
    assert spread.degrees == 3
    for end, tail in ((spread.low, 0.975), (spread.high, 0.025)):
        assert 3 * spread.sd**2 / end**2 == pytest.approx(stats.chi2.ppf(tail, 3))


def test_the_means_of_pooled_groups_do_not_count_and_single_runs_tell_nothing():
    values = [1.0, 2.5, 2.0, 4.0]
    shifted = [value + 100 for value in values]
    assert pooled_spread([values, shifted, [7.0]]).sd == pytest.approx(np.std(values) * (8 / 6) ** 0.5)
    # Runs that differ in a constant alone tell the spread no better than one group.
    assert pooled_spread([values, shifted])[:3] == pytest.approx(pooled_spread([values])[:3])
    assert pooled_spread([values, shifted]).degrees == 3
    assert pooled_spread([[1.0], []]) is None


@pytest.mark.parametrize("sizes", [(8, 8, 8), (8, 3, 3)])
@pytest.mark.parametrize(("shared", "coverage"), [(1.0, (0.94, 0.975)), (0.9, (0.94, 1.0)), (0.0, (0.95, 1.0))])
def test_the_intervals_of_pooled_groups_hold_however_much_their_runs_of_a_seed_share(sizes, shared, coverage):
    """In 95% of experiments if they share all, else in more; Satterthwaite's approximation may be 1% off."""
    rng = np.random.default_rng(2)
    experiments, of_rest = 600, 3.0
    covered = share_covered = 0
    for _ in range(experiments):
        source = rng.normal(0, shared**0.5, 8)
        groups = [source[:size] + rng.normal(0, (1 - shared) ** 0.5, size) for size in sizes]
        spread = pooled_spread(groups)
        whole = pooled_spread([source + rng.normal(0, (1 - shared + of_rest**2) ** 0.5, 8)])
        share = share_of_variance(spread, whole)
        covered += spread.low <= 1 <= spread.high
        share_covered += share.low <= 1 / (1 + of_rest**2) <= share.high
    allowance = 3 * (0.95 * 0.05 / experiments) ** 0.5
    assert coverage[0] - allowance < covered / experiments < coverage[1] + allowance
    assert share_covered / experiments > 0.95 - allowance


def test_there_is_no_share_of_nothing():
    assert share_of_variance(pooled_spread([[1.0, 2.0]]), pooled_spread([[3.0, 3.0]])) is None


@pytest.mark.parametrize(("paired", "coverage"), [(False, (0.93, 0.97)), (True, (0.95, 1.0))])
def test_the_interval_of_a_share_covers_it(paired, coverage):
    """Of independent arms in 95% of experiments; in more where both arms share a source, as runs of a seed do."""
    rng = np.random.default_rng(0)
    experiments, seeds, of_source, of_rest = 2000, 8, 0.8, 0.6
    covered = 0
    for _ in range(experiments):
        source = rng.normal(0, of_source, seeds)
        whole = source + rng.normal(0, of_rest, seeds)
        part = source if paired else rng.normal(0, of_source, seeds)
        share = share_of_variance(pooled_spread([part]), pooled_spread([whole]))
        covered += share.low <= of_source**2 / (of_source**2 + of_rest**2) <= share.high
    low, high = coverage
    allowance = 3 * (0.95 * 0.05 / experiments) ** 0.5
    assert low - allowance < covered / experiments < high + allowance


def test_each_arm_shows_the_variance_of_its_source_without_bias():
    """Of an additive model, whose variances are chosen."""
    rng = np.random.default_rng(1)
    variances = np.array([4.0, 2.0, 1.0, 0.5])
    of_arms = {arm: [] for arm in ONE_BY_ONE}
    for _ in range(300):
        values = runs_of(rng, variances, seeds=6)
        for arm in ONE_BY_ONE:
            of_arms[arm].append(pooled_spread([values[arm]]).sd ** 2)
    expected = dict(zip(ONE_BY_ONE, [variances.sum(), *variances], strict=True))
    for arm, seen in of_arms.items():
        assert abs(np.mean(seen) - expected[arm]) < 4 * np.std(seen) / len(seen) ** 0.5, arm


def test_the_sources_are_those_of_a_spec():
    assert tuple(SourceSeeds.model_fields) == SOURCES


def test_arms_with_equal_settings_but_for_seeds_are_a_family(tmp_path):
    (family,) = families(experiment(tmp_path))
    assert family.name == "all"
    assert dict(family.arms_by_varying) == {
        SOURCES: ["all"],
        **{(source,): [source] for source in SOURCES},
    }


def test_arms_with_another_setting_are_no_family(tmp_path):
    def wider(arm, settings):
        return settings | {"encoder": {"hidden_size": 32 if arm == "init" else 16}}

    (family,) = families(experiment(tmp_path, change=wider))
    assert ("init",) not in family.arms_by_varying


@pytest.mark.parametrize("without", ["all", "init order corruption dropout"])
def test_without_an_arm_in_which_everything_varies_and_another_there_is_no_table(without, tmp_path):
    assert families(experiment(tmp_path, without=without)) == []


def test_a_table_has_the_spread_of_the_loss_by_what_varies(tmp_path):
    made = experiment(tmp_path)
    losses = made.table[made.table["metric"] == "loss"]
    runs = [
        {"arm": run.plan.arm, "seed": run.plan.seed, "run_id": run.plan.run_id, "gain": None}
        | {"loss": float(losses[losses["run_id"] == run.plan.run_id]["value"].iloc[0])}
        for run in made.runs
    ]
    (table,) = spread_tables(made, runs)
    assert table["number"]["name"] == "loss"
    assert [row["says"] for row in table["rows"]] == [
        "every source",
        "initial weights",
        "order",
        "corruption",
        "dropout",
    ]
    whole = losses[losses["arm"] == "all"]["value"].std(ddof=1)
    for row in table["rows"]:
        sd = losses[losses["arm"] == row["arms"][0]]["value"].std(ddof=1)
        assert row["sd"] == pytest.approx(sd)
        assert row["runs"] == 5
        assert row["share"] == (None if row["arms"] == ["all"] else pytest.approx((sd / whole) ** 2))


def runs_without_losses(made):
    return [
        {"arm": run.plan.arm, "seed": run.plan.seed, "run_id": run.plan.run_id, "loss": None, "gain": None}
        for run in made.runs
    ]


def test_an_arm_of_one_run_is_no_part_of_a_pooled_spread(tmp_path):
    """Its sources are those of another arm. A single run has no spread, so it is not among the runs that have."""
    made = experiment(tmp_path, change=lambda arm, settings: like_init(settings) if arm == "order" else settings)
    table = made.table[(made.table["arm"] != "order") | (made.table["seed"] == 0)]
    losses = {(row.arm, row.seed): row.value for row in table.itertuples()}
    runs = [run | {"loss": losses.get((run["arm"], run["seed"]))} for run in runs_without_losses(made)]
    (spread,) = spread_tables(made._replace(table=table), runs)
    (row,) = [row for row in spread["rows"] if row["varying"] == ["init"]]
    assert (row["arms"], row["runs"]) == (["init"], 5)
    assert row["sd"] == pytest.approx(table[table["arm"] == "init"]["value"].std(ddof=1))


def test_the_page_says_that_pooled_arms_are_no_further_evidence(tmp_path):
    made = experiment(tmp_path, change=lambda arm, settings: like_init(settings) if arm == "order" else settings)
    losses = {(row.arm, row.seed): row.value for row in made.table.itertuples()}
    runs = [run | {"loss": losses[run["arm"], run["seed"]]} for run in runs_without_losses(made)]
    tables = spread_tables(made, runs)
    (row,) = [row for row in tables[0]["rows"] if row["varying"] == ["init"]]
    assert (row["arms"], row["runs"]) == (["init", "order"], 10)
    assert spread_entry(tables)["how_to_read"] == [
        *HOW_TO_READ,
        "Arms that are pooled have the same seeds, so their runs are not independent: the intervals are no "
        "narrower than those of one arm.",
    ]
    (alone,) = [row for row in tables[0]["rows"] if row["varying"] == ["dropout"]]
    assert spread_entry([tables[0] | {"rows": [alone]}])["how_to_read"] == list(HOW_TO_READ)


def like_init(settings):
    fixed = dict.fromkeys(SOURCES, 0) | {"init": None}
    return settings | {"training": settings["training"] | {"seeds": fixed}}


def test_heads_are_told_from_examples(tmp_path):
    """Two parts of an error, put together by their squares, are taken apart again."""
    left_out = [0.5, 0.52, 0.47, 0.51]
    of_examples = np.sqrt(3 / 4 * np.square(np.array(left_out) - np.mean(left_out)).sum())
    of_heads = 0.03
    made = experiment(tmp_path)
    rows = [
        {
            **{"experiment": "sources", "run_id": run.plan.run_id, "arm": run.plan.arm, "seed": run.plan.seed},
            **{"step": 100, "measure": "fine_tuning", "metric": "score", "group": task, "unit": ""},
            **{"value": 0.5 + 0.01 * run.plan.seed, "left_out": left_out},
            "standard_error": float(np.hypot(of_examples, of_heads)),
        }
        for run in made.runs
        for task in ("cola", "sst2")
    ]
    made = made._replace(table=results.concat([made.table, results.table(rows)]))
    # A task that one run lacks is in no mean over tasks, and so not in this row.
    left = [row | {"group": "rte", "standard_error": 9.0} for row in rows if row["group"] == "cola"][1:]
    made = made._replace(table=results.concat([made.table, results.table(left)]))
    runs = runs_without_losses(made)
    tables = {table["number"]["name"]: table["rows"] for table in spread_tables(made, runs)}
    heads = tables["fine_tuning"][-1]
    assert heads["says"] == "heads of the tasks, inside a run"
    assert heads["sd"] == pytest.approx(of_heads / 2**0.5)  # of a mean over two tasks
    assert heads["runs"] == 5
