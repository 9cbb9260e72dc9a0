import numpy as np
import pytest
from matplotlib.figure import Figure

from ablations import results
from ablations.errors import ResultsError
from reports.figures.lines import ASIDE
from reports.figures.pairs import Pair, choose_pairs, draw_pairs, drawn_pairs, one_a_unit, pair_lines
from reports.figures.style import DOTTED, FIXED_STYLES, arm_styles, pair_style, seeds_style
from tests.support.errors import error_text
from tests.support.fake_experiment import LAYERS, figure_entries
from tests.support.fake_layers import layer_rows

BETWEEN = {arm: f"{arm}, between its seeds" for arm in ("mlm", "clm", "mt")}


@pytest.fixture(scope="module")
def table():
    return results.table(
        row for row in layer_rows(steps=(500,)) if row["measure"] in ("run_distance", "validation")
    )


def distances(arms, seeds=(0, 1), *, changes=None, **columns):
    """Rows of every two arms at equal seed and every two seeds of an arm: the value says which, to a hundredth."""
    runs = [(arm, seed) for arm in arms for seed in seeds]
    for i, (arm, seed) in enumerate(runs):
        for other, other_seed in runs[i + 1 :]:
            if (arm == other) != (seed == other_seed):
                value = (changes or {}).get((arm, seed, other, other_seed), 0.5 + 0.01 * i)
                yield from (
                    {"run_id": f"{arm}{seed}", "arm": arm, "seed": seed, "step": 8, "measure": "run_distance"}
                    | {"metric": "pwcca", "group": other, "other_run_id": f"{other}{other_seed}", "layer": layer}
                    | {"value": value, "floor": 0.9, "n": 6400, "d": 64}
                    | columns
                    for layer in (1, 2)
                )


def drawn(table, **chosen):
    return draw_pairs(pair_lines(table, **{"metric": "pwcca"} | chosen), ax=Figure().subplots())


def by_label(ax):
    lines = [line for line in ax.lines if line.get_gid() == "mean"]
    return {line.get_label().replace("\n", " ").partition(" (")[0]: line for line in lines}


def test_pairs_of_arms_are_means_over_seeds_and_seeds_means_over_pairs(table):
    shown = by_label(drawn(table))
    assert list(shown) == ["mlm – clm", "mlm – mt", "clm – mt", *BETWEEN.values()]
    rows = table[(table["measure"] == "run_distance") & (table["metric"] == "pwcca")]
    for (first, second), line in zip(
        [("mlm", "clm"), ("mlm", "mt"), ("clm", "mt"), *((arm, arm) for arm in BETWEEN)],
        shown.values(),
        strict=True,
    ):
        own = rows[(rows["arm"] == first) & (rows["group"] == second)]
        assert len(own) == 3 * (LAYERS + 1)
        np.testing.assert_allclose(line.get_ydata(), own.groupby("layer")["value"].mean(), rtol=1e-12)
        np.testing.assert_array_equal(np.round(line.get_xdata()), range(LAYERS + 1))
    first, *_, last = (line.get_xdata()[0] for line in shown.values())
    assert (first, last) == (-ASIDE, ASIDE)  # side by side, and nearer to their own layer than to the next
    assert ASIDE < 0.5


def test_seeds_are_dotted_and_hollow_and_without_an_interval(table):
    ax = drawn(table)
    shown = by_label(ax)
    for arm, name in BETWEEN.items():
        line = shown.pop(name)
        assert (line.get_color(), line.get_markerfacecolor()) == (FIXED_STYLES[arm].colour, "white")
        assert line.get_label().replace("\n", " ") == f"{name} (3 pairs)"
    for line in shown.values():
        assert line.get_markerfacecolor() != "white"
        assert line.get_label().endswith("(n = 3)")
    bands = [part for part in ax.collections if part.get_gid() == "band"]
    assert len(bands) == 3  # of the pairs of arms, whose seeds are independent
    for part in bands:
        bars = [np.asarray(segment) for segment in part.get_segments()]
        assert len(bars) == LAYERS + 1
        assert all(low[0] == high[0] and low[1] < high[1] for low, high in bars)


def test_one_pair_has_the_error_over_text(table):
    rows = list(distances(["a", "b"], seeds=(0,), standard_error=0.02))
    (figure,) = figure_entries(results.table(rows), arms=["a", "b"])
    point, _ = figure["panels"][0]["points"]
    assert (point["low"], point["high"]) == pytest.approx((0.5 - 1.96 * 0.02, 0.5 + 1.96 * 0.02))
    (curve,) = figure["panels"][0]["curves"]
    assert "one pair: its band is over text" in curve["remarks"]
    assert "If there is one pair, its bar is ± 1.96 standard errors" in figure["caption"]


def test_only_seeds_are_dotted():
    styles = arm_styles([*FIXED_STYLES, *map(str, range(9))])
    assert all(seeds_style(style).line == DOTTED for style in styles.values())
    assert not any(pair_style(one, other).line == DOTTED for one in styles.values() for other in styles.values())


def test_the_looks_of_pairs_name_both_arms(table):
    shown = by_label(drawn(table))
    looks = {
        name: (line.get_color(), line.get_marker(), line.get_markerfacecolor()) for name, line in shown.items()
    }
    mlm, clm, mt = (FIXED_STYLES[arm] for arm in ("mlm", "clm", "mt"))
    assert looks["mlm – clm"] == (clm.colour, mlm.marker, mlm.colour)
    assert looks["clm – mt"] == (mt.colour, clm.marker, clm.colour)
    assert len(set(looks.values())) == len(looks)


def test_the_order_of_the_arms_is_the_experiments_whatever_was_compared_first(table):
    turned = list(by_label(drawn(table, arms=["mt", "mlm", "clm"])))
    assert turned[:3] == ["mt – mlm", "mt – clm", "mlm – clm"]


def test_both_directions_count_once():
    there = list(distances(["a", "b"], seeds=(0, 1)))
    turned = {"run_id": "other_run_id", "other_run_id": "run_id", "arm": "group", "group": "arm"}
    back = [
        row
        | {name: row[other] for name, other in turned.items()}
        | {"seed": int(row["other_run_id"][-1]), "value": row["value"] + 0.1}
        for row in there
    ]
    units = one_a_unit(choose_pairs(results.table(there + back), metric="pwcca"))
    alone = one_a_unit(choose_pairs(results.table(there), metric="pwcca"))
    assert units["line"].tolist() == alone["line"].tolist()
    np.testing.assert_allclose(units["value"], alone["value"] + 0.05)
    assert alone[alone["x"] == 1].groupby("line").size().to_dict() == {
        "a – b": 2,
        "a, between its seeds": 1,
        "b, between its seeds": 1,
    }


def test_two_arms_are_those_of_one_seed():
    rows = list(distances(["a", "b"], seeds=(0, 1)))
    crossed = [
        row | {"other_run_id": row["other_run_id"].replace(str(row["seed"]), str(1 - row["seed"])), "value": 9.0}
        for row in rows
        if row["group"] == "b" != row["arm"]
    ]
    assert crossed
    units = one_a_unit(choose_pairs(results.table(rows + crossed), metric="pwcca"))
    assert units[units["x"] == 1]["line"].value_counts()["a – b"] == 2
    assert units["value"].max() < 9


@pytest.mark.parametrize(("arms", "pairs", "beside"), [(4, 6, 4), (5, 4, 5), (9, 5, 6)])
def test_with_many_arms_only_pairs_with_the_first_are_drawn(arms, pairs, beside):
    names = [f"arm{i}" for i in range(arms)]
    table = results.table(distances(names))
    chosen = choose_pairs(table, metric="pwcca", arms=names)
    drawn = drawn_pairs(chosen, names)
    two = [pair for pair in drawn if pair.first != pair.second]
    assert (len(two), len(drawn) - len(two)) == (pairs, beside)
    if arms > 4:
        assert {pair.first for pair in two} == {"arm0"}
    (figure,) = figure_entries(table, arms=names)
    assert [curve["arm"] for curve in figure["panels"][0]["curves"]] == [pair.name for pair in drawn]
    said = {
        4: [],
        5: ["Only the pairs with the first arm, arm0, are drawn; the CSV has the pairs of all 5 arms."],
        9: [
            (
                "Only the pairs with the first arm, arm0, are drawn, and only with the next 5 arms; the CSV has "
                "the pairs of all 9 arms."
            )
        ],
    }
    assert figure["notes"] == said[arms]


def test_each_pair_says_what_to_doubt():
    rows = list(distances(["a", "b", "fresh"], n=9000))
    rows = [row | {"step": 0} if "fresh" in (row["arm"], row["group"]) else row for row in rows]
    loss = [
        {"run_id": f"a{seed}", "arm": "a", "seed": seed, "step": 8, "measure": "validation", "metric": "loss"}
        | {"value": 5.0, "floor": 5.2}
        for seed in (0, 1)
    ]
    (figure,) = figure_entries(results.table(rows + loss), arms=["a", "b", "fresh"])
    remarks = {curve["arm"]: curve["remarks"] for curve in figure["panels"][0]["curves"]}
    doubtful = "a: gains too little to interpret"
    assert remarks["a – b"] == [doubtful, "b: gain not measured", "n/d below 150"]
    assert remarks["a – fresh"] == [doubtful, "fresh: untrained", "compared at step 0", "n/d below 150"]
    assert remarks["a, between its seeds"] == [doubtful, "one pair, so no interval", "n/d below 150"]


def test_pairs_are_compared_at_the_last_step_that_they_have_in_common():
    early = distances(["a", "b", "c"], step=4, value=9.0)
    rows = [
        row
        for row in [*early, *distances(["a", "b", "c"])]
        if row["step"] == 4 or "c" not in (row["arm"], row["group"])
    ]
    chosen = choose_pairs(results.table(rows), metric="pwcca")
    steps = chosen.groupby("line")["step"].unique().map(list).to_dict()
    assert steps["a – b"] == [8]
    assert steps["a – c"] == [4]


def test_a_pair_has_a_name_of_its_own():
    assert Pair("mlm", "clm").name == "mlm – clm"
    assert Pair("mlm", "mlm").name == "mlm, between its seeds"


def test_without_such_rows_there_is_a_sentence(table):
    assert error_text(ResultsError, drawn, table, metric="cka") == (
        "the table has no rows of run_distance cka by layer; it has run_distance debiased_cka, run_distance "
        "pwcca, validation bleu, validation chrf, validation loss, validation perplexity."
    )


def test_one_layer_alone_has_no_panel():
    rows = [row for row in distances(["a", "b"]) if row["layer"] == 1]
    assert figure_entries(results.table(rows), arms=["a", "b"]) == []
