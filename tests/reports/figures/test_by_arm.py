import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import stats

from ablations import results
from ablations.errors import ResultsError
from ablations.spec.figures import PublishedPoint
from reports.figures import files
from reports.figures.by_arm import arm_lines, arm_panels, draw_arms
from reports.figures.curves import choose
from reports.figures.lines import written_above
from reports.figures.own import beside_published
from reports.figures.style import FIXED_STYLES, GREY, arm_styles
from reports.figures.texts import TOKEN_INFORMATION
from reports.page import figures
from tests.support.fake_experiment import ARMS, GAIN, LAYERS, rows
from tests.support.figures import (
    geometry,
    information,
    layer_change,
    learning,
    neighbours,
    read_out,
    token_information,
)

DRAWINGS = [
    (layer_change, "layer_change", "pwcca"),
    (layer_change, "layer_change", "debiased_cka"),
    (token_information, "token_information", "cross_fitted"),
    (token_information, "token_information", "plug_in"),
]


@pytest.fixture(scope="module")
def table():
    return results.table(rows())


def axes():
    return Figure().subplots()


def means(ax):
    """The curve of each arm: colour -> line."""
    return {to_hex(line.get_color()).upper(): line for line in ax.lines if line.get_gid() == "mean"}


def floors(ax):
    return [line for line in ax.lines if line.get_gid() == "floor"]


def seed_lines(ax):
    """Return the points of each seed's line, of all arms one after the other."""
    lines = [part for part in ax.collections if part.get_gid() == "seed"]
    return [path.vertices for part in lines for path in part.get_paths()]


def bands(ax):
    return [part for part in ax.collections if part.get_gid() == "band"]


def names(ax):
    """The names at the ends of lines."""
    assert ax.get_legend() is None
    return [text.get_text() for text in ax.texts if text.get_gid() == "end"]


@pytest.mark.parametrize(("draw", "measure", "metric"), DRAWINGS)
def test_draws_mean_interval_seeds_and_floor_of_each_arm(table, draw, measure, metric):
    ax = axes()
    assert draw(table, ax=ax, metric=metric) is ax
    picked = table[(table["measure"] == measure) & (table["metric"] == metric)]
    if measure == "layer_change":
        picked = picked[picked["layer_to"] == picked["layer"] + 1]
    drawn, layers = means(ax), range(LAYERS + (measure == "token_information"))
    assert len(drawn) == len(bands(ax)) == len(floors(ax)) == len(ARMS)
    seeds = np.array(seed_lines(ax)).reshape(len(ARMS), 3, len(layers), 2)
    for arm, band, points in zip(ARMS, bands(ax), seeds, strict=True):
        values = picked[picked["arm"] == arm].pivot(index="layer", columns="seed", values="value").to_numpy()
        np.testing.assert_array_equal(points[..., 0], [layers] * 3)
        np.testing.assert_array_equal(points[..., 1], values.T)
        line = drawn[FIXED_STYLES[arm].colour]
        np.testing.assert_array_equal(line.get_xdata(), layers)
        np.testing.assert_allclose(line.get_ydata(), values.mean(1), rtol=1e-12)  # float64 algebra
        low, high = stats.t.interval(0.95, 2, values.mean(1), stats.sem(values, axis=1))
        corners = band.get_paths()[0].vertices
        for layer in layers:
            edge = corners[corners[:, 0] == layer, 1]
            assert (edge.min(), edge.max()) == pytest.approx((low[layer], high[layer]))
    for line, arm in zip(floors(ax), ARMS, strict=True):
        assert line.get_linestyle() == "--"
        expected = picked[picked["arm"] == arm].groupby("layer")["floor"].mean()
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-12)  # float64 algebra


def test_layer_axes_say_where_the_embeddings_are(table):
    change, information = layer_change(table, ax=axes()), token_information(table, ax=axes())
    assert [label.get_text() for label in change.get_xticklabels()] == ["0→1", "1→2", "2→3", "3→4", "4→5", "5→6"]
    assert change.get_xlabel() == "layer → next layer (0 = embeddings)"
    assert change.get_ylabel() == "1 \N{MINUS SIGN} PWCCA"
    np.testing.assert_array_equal(information.get_xticks(), range(7))
    assert information.get_xlabel() == "layer (0 = embeddings)"
    assert information.get_ylabel() == "cross-fitted information (nats)"


def test_deep_encoders_get_fewer_labels_and_still_whole_layers():
    deep = token_information(information([range(49)]), ax=axes())
    np.testing.assert_array_equal(deep.get_xticks(), range(0, 49, 4))


def test_each_line_has_its_name_at_its_end_with_what_makes_it_say_little():
    ax = token_information(results.table(rows(gain=GAIN | {"clm": 0.2, "mt": -0.7})), ax=axes())
    mlm, clm, mt, untrained = names(ax)
    assert (mlm, untrained) == ("mlm", "untrained")
    assert clm.replace("\n", " ") == "clm (gains too little to interpret)"
    assert mt.replace("\n", " ") == "mt (gains too little to interpret)"
    assert [text.get_color() for text in ax.texts] == [line.get_color() for line in means(ax).values()]
    for text, line in zip(ax.texts, means(ax).values(), strict=True):
        assert text.xy == (line.get_xdata()[-1], line.get_ydata()[-1])


def test_an_arm_measured_at_step_0_is_called_untrained_whatever_its_name():
    assert names(token_information(information([[5, 4]], arm="random", step=0), ax=axes())) == [
        "random (untrained)"
    ]


@pytest.mark.parametrize(
    ("seeds", "note"), [((1, 1), "n = 1 seed"), ((2, 2), "n = 2 seeds"), ((1, 2), "n = 1 to 2 seeds")]
)
def test_the_number_of_seeds_stands_above(seeds, note):
    arms = [information([[2.0, 1.0]] * many, arm=arm) for arm, many in zip(("mlm", "clm"), seeds, strict=True)]
    assert written_above(token_information(results.concat(arms), ax=axes())) == [note]


def test_a_single_seed_has_neither_band_nor_thin_line():
    ax = token_information(information([[5.0, 4.0, 3.0]]), ax=axes())
    assert names(ax) == ["mlm"]
    assert not bands(ax)
    assert not seed_lines(ax)
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), [5, 4, 3])


def test_two_seeds_keep_their_curves_in_sight_of_a_band_of_thirteen_errors():
    ax = token_information(information([[5.0, 4.0], [5.2, 4.3]]), ax=axes())
    low, high = ax.get_ylim()
    assert 2.8 < low < 4.0  # the band alone reaches down to 2.2
    assert 5.2 < high < 6.4


def test_a_single_seed_has_the_band_of_its_text_where_its_error_is_known():
    table = information([[5.0, 4.0, 3.0]]).assign(standard_error=[0.5, np.nan, 0.1])
    (band,) = bands(token_information(table, ax=axes()))
    corners = np.concatenate([path.vertices for path in band.get_paths()])
    edges = {x: (edge.min(), edge.max()) for x in (0, 2) if len(edge := corners[corners[:, 0] == x, 1])}
    assert edges == {0: pytest.approx((4.02, 5.98)), 2: pytest.approx((2.804, 3.196))}
    unsure = token_information(table.assign(standard_error=10.0), ax=axes())
    assert unsure.get_ylim()[0] < 3 - 19.6 < 5 + 19.6 < unsure.get_ylim()[1]  # not a band that fills the panel
    several = information([[5.0, 4.0], [5.1, 4.2]])
    limits = [token_information(t, ax=axes()).get_ylim() for t in (several, several.assign(standard_error=9.0))]
    assert limits[0] == limits[1]


def test_a_missing_number_is_a_gap_and_leaves_the_other_seeds():
    ax = token_information(information([[5.0, np.nan, 3.0], [4.0, np.nan, 2.0]]), ax=axes())
    np.testing.assert_array_equal(means(ax)["#0072B2"].get_ydata(), [4.5, np.nan, 2.5])
    ax = token_information(information([[5.0, np.nan, 3.0], [4.0, 3.0, 2.0]]), ax=axes())
    np.testing.assert_array_equal(means(ax)["#0072B2"].get_ydata(), [4.5, 3.0, 2.5])
    nothing = token_information(information([[np.nan, np.nan]]), ax=axes())
    assert names(nothing) == []  # a line without an end
    assert written_above(nothing) == ["n = 0 seeds"]


def test_a_missing_layer_is_a_gap():
    table = information([[5.0, 4.0, 3.0]])
    ax = token_information(table[table["layer"] != 1], ax=axes())
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), [5, np.nan, 3])


def test_a_small_floor_is_written_with_a_digit_that_tells():
    ax = token_information(information([[2.0, 1.9]], floor=0.0042), ax=axes())
    assert written_above(ax) == ["n = 1 seed", "chance floor (labels shuffled): 0.004 ↓"]


def test_values_below_zero_are_inside_the_axes():
    ax = token_information(information([[0.5, -0.25], [0.4, -0.35]]), ax=axes())
    assert ax.get_ylim()[0] < -0.35


def test_a_floor_near_the_curves_is_in_the_axes_and_explained_above():
    ax = token_information(information([[2.0, 1.0]], floor=0.8), ax=axes())
    assert ax.get_ylim()[0] < 0.8
    assert written_above(ax) == ["n = 1 seed", "dashed: chance floor (labels shuffled)"]


@pytest.mark.parametrize(("floor", "text"), [(-30, "\N{MINUS SIGN}30.00 ↓"), (99, "99.00 ↑")])
def test_a_floor_far_off_is_written_out_and_does_not_flatten_the_curves(floor, text):
    ax = token_information(information([[2.0, 1.0]], floor=floor), ax=axes())
    np.testing.assert_allclose(ax.get_ylim(), [0.94, 2.06])  # the curve and a margin of 6%
    assert written_above(ax) == ["n = 1 seed", f"chance floor (labels shuffled): {text}"]


def ceilings(ax):
    return [line for line in ax.lines if line.get_gid() == "ceiling"]


def test_a_ceiling_that_all_arms_have_is_one_thin_line():
    both = [information([[4.0, 3.0]], arm=arm, floor=2.0, ceiling=4.5) for arm in ("mlm", "clm")]
    ax = token_information(results.concat(both), ax=axes())
    (line,) = ceilings(ax)
    np.testing.assert_array_equal(line.get_ydata(), [4.5, 4.5])
    assert line.get_linewidth() < 1
    assert ax.get_ylim()[1] > 4.5
    assert written_above(ax) == [
        "n = 1 seed",
        "thin: ceiling (entropy of the labels)",
        "dashed: chance floor (labels shuffled)",
    ]


def test_arms_that_are_asked_for_other_labels_have_ceilings_of_their_own():
    two = [
        information([[4.0, 3.0]], arm=arm, group="output label", ceiling=at)
        for arm, at in (("mlm", 4.5), ("clm", 4.2))
    ]
    ax = token_information(results.concat(two), ax=axes(), group="output label")
    assert [(line.get_color(), line.get_ydata()[0]) for line in ceilings(ax)] == [
        ("#0072B2", 4.5),
        ("#D55E00", 4.2),
    ]


def test_a_ceiling_far_off_is_written_out_and_does_not_flatten_the_curves():
    ax = token_information(information([[2.0, 1.0]], floor=-30, ceiling=9.0), ax=axes())
    np.testing.assert_allclose(ax.get_ylim(), [0.94, 2.06])  # the curve and a margin of 6%
    assert written_above(ax) == [
        "n = 1 seed",
        "ceiling (entropy of the labels): 9.00 ↑",
        "chance floor (labels shuffled): \N{MINUS SIGN}30.00 ↓",
    ]
    near = token_information(information([[2.0, 1.0]], floor=0.8, ceiling=9.0), ax=axes())
    assert near.get_ylim()[0] < 0.8  # the floor stays
    assert near.get_ylim()[1] < 2.2
    assert written_above(near)[1] == "dashed: chance floor (labels shuffled)"


def test_numbers_without_a_ceiling_show_none():
    ax = token_information(information([[2.0, 1.0]], floor=0.8), ax=axes())
    assert not ceilings(ax)
    change = information([[0.2, 0.1]], measure="geometry", metric="anisotropy", ceiling=0.3)
    assert not ceilings(geometry(change, ax=axes(), metric="anisotropy"))


def test_read_outs_are_drawn_as_information_is():
    table = information([[2.0, 1.0]], floor=0.8, ceiling=2.2, measure="read_out", metric="linear")
    ax = read_out(table, ax=axes())
    assert ax.get_ylabel() == "information read linearly (nats)"
    np.testing.assert_array_equal(means(ax)["#0072B2"].get_ydata(), [2, 1])
    assert len(ceilings(ax)) == 1


def test_without_floors_none_are_drawn_or_spoken_of():
    ax = token_information(information([[2.0, 1.0]]).drop(columns="floor"), ax=axes())
    assert not floors(ax)
    assert written_above(ax) == ["n = 1 seed"]


def test_only_the_columns_of_the_curve_are_needed():
    needed = ["arm", "seed", "measure", "metric", "layer", "value"]
    ax = token_information(pd.DataFrame(information([[2.0, 1.0]])[needed]), ax=axes())
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), [2, 1])
    with pytest.raises(ResultsError) as error:
        token_information(information([[2.0, 1.0]])[needed[1:]], ax=axes())
    assert str(error.value) == (
        "a figure needs the columns arm, seed, measure, metric, layer, value, but the table lacks arm."
    )


def test_rows_of_other_steps_groups_and_runs_are_not_drawn():
    whole = information([[2.0, 1.0]])
    others = [
        information([[9.0, 9.0]], step=4),
        information([[9.0, 9.0]], group="verb"),
        information([[9.0, 9.0]], other_run_id="mlm1"),
    ]
    ax = token_information(results.concat([*others, whole]), ax=axes())
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), [2, 1])


def test_another_token_has_its_own_rows_and_says_so():
    both = results.concat([information([[5.0, 4.0]]), information([[1.0, 2.0]], group="next token")])
    ax = token_information(both, ax=axes(), group="next token")
    np.testing.assert_array_equal(means(ax)["#0072B2"].get_ydata(), [1, 2])
    assert ax.get_ylabel() == "next token, cross-fitted (nats)"
    with pytest.raises(ResultsError) as error:
        token_information(both, ax=axes(), group="shown token")
    assert str(error.value) == (
        "the table has no rows of token_information cross_fitted (shown token) by layer; it has token_information "
        "cross_fitted."
    )


@pytest.mark.parametrize(
    ("draw", "metric", "label", "floor"),
    [
        (neighbours, "same_token", "share with the same token", "neighbours at random"),
        (neighbours, "position_distance", "difference of positions (tokens)", "neighbours at random"),
        (geometry, "effective_rank", "effective rank (dimensions)", "columns shuffled"),
        (geometry, "self_similarity", "mean cosine less anisotropy", "tokens shuffled"),
    ],
)
def test_axes_of_neighbours_and_geometry_say_what_and_in_which_unit(draw, metric, label, floor):
    table = information([[0.9, 0.8]], floor=0.7, measure=draw.keywords["measure"], metric=metric)
    ax = draw(table, ax=axes(), metric=metric)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("layer (0 = embeddings)", label)
    assert written_above(ax)[-1] == f"dashed: chance floor ({floor})"


def test_an_update_leads_from_a_layer_to_the_next():
    table = information([[0.9, 0.8]], measure="geometry", metric="update_norm")
    ax = geometry(table.assign(layer_to=table["layer"] + 1), ax=axes(), metric="update_norm")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0→1", "1→2"]


def test_a_metric_without_a_name_here_is_drawn_under_its_own():
    ax = geometry(information([[0.9, 0.8]], measure="geometry", metric="spread"), ax=axes(), metric="spread")
    assert ax.get_ylabel() == "spread"


def test_a_model_whose_steps_are_unknown_has_its_curve():
    ax = token_information(information([[2.0, 1.0]], step=None), ax=axes())
    np.testing.assert_array_equal(means(ax)["#0072B2"].get_ydata(), [2, 1])
    assert names(ax) == ["mlm"]


def test_change_from_the_embeddings_to_a_later_layer_is_not_a_consecutive_change(table):
    chosen = choose(table, measure="layer_change", metric="pwcca")
    assert (chosen["layer_to"] - chosen["layer"] == 1).all()
    assert len(chosen) == len(ARMS) * 3 * LAYERS


def test_what_the_table_lacks_is_a_sentence(table):
    with pytest.raises(ResultsError) as error:
        layer_change(table[table["measure"] == "layer_change"], ax=axes(), metric="rsa")
    assert str(error.value) == (
        "the table has no rows of layer_change rsa by layer; it has layer_change debiased_cka, layer_change pwcca."
    )
    with pytest.raises(ResultsError, match=r"it has no rows at all\.$"):
        layer_change(results.table([]), ax=axes())


def test_two_experiments_in_one_table_are_not_averaged():
    both = results.concat([information([[2.0, 1.0]], experiment=name) for name in ("first", "second")])
    with pytest.raises(
        ResultsError, match=r"^a mean over seeds needs one value a seed, but seed 0 has several for"
    ):
        token_information(both, ax=axes())


def test_an_arm_keeps_its_look_in_every_figure_and_without_its_neighbours(table):
    arms = ["small", "mlm", "large"]
    renamed = table.assign(arm=table["arm"].replace({"clm": "small", "mt": "large"}))
    whole = layer_change(renamed, ax=axes(), arms=arms)
    part = token_information(renamed[renamed["arm"] != "small"], ax=axes(), arms=arms)
    styles = arm_styles([*arms, "untrained"])
    for arm in ("mlm", "large"):
        assert styles[arm].colour in means(whole)
        assert styles[arm].colour in means(part)
    assert styles["small"].colour not in means(part)


def test_known_arms_look_the_same_in_every_experiment():
    for arms in (["mlm"], ["a", "b", "mt", "clm"], ["untrained", "mlm"]):
        styles = arm_styles(arms)
        assert all(styles[arm] == FIXED_STYLES[arm] for arm in arms if arm in FIXED_STYLES)


@pytest.mark.parametrize(
    "arms", [[str(i) for i in range(40)], ["mlm", "clm", "mt", "untrained", *map(str, range(20))]]
)
def test_no_two_arms_look_alike_and_none_like_a_floor(arms):
    styles = arm_styles(arms)
    assert list(styles) == arms
    assert len({(style.colour, style.marker, str(style.line)) for style in styles.values()}) == len(arms)
    assert not {"--", "dashed"} & {style.line for style in styles.values() if isinstance(style.line, str)}


def test_names_of_arms_are_text_not_formulas_or_hidden():
    table = information([[2.0, 1.0]], arm="_a$b$_c")
    figure = Figure()
    ax = token_information(table, ax=figure.subplots())
    figure.canvas.draw()  # a formula would be parsed, and fail, here
    assert names(ax)[0].removeprefix("\N{WORD JOINER}") == r"_a\$b\$_c"


def test_curves_know_their_sample(table):
    facts = {curve.arm: curve for curve in arm_lines(table, measure="token_information", metric="plug_in").curves}
    assert list(facts) == list(ARMS)
    assert (facts["mlm"].n, facts["mlm"].d, facts["mlm"].seeds) == (38_112, 1000, 3)
    assert facts["mlm"].tokens_per_dimension == pytest.approx(38.112)
    assert facts["mlm"].remarks == []  # the rule is about dimensions; these are clusters
    assert facts["untrained"].remarks == ["untrained"]
    change = arm_lines(table, measure="layer_change", metric="pwcca").curves
    assert [curve.remarks for curve in change] == [[], [], [], ["untrained"]]


@pytest.mark.parametrize(("n", "marked"), [(149 * 64, True), (150 * 64, False)])
@pytest.mark.parametrize("measure", ["layer_change", "influence", "run_distance"])
def test_the_mark_begins_below_150_tokens_a_dimension(n, marked, measure):
    change = information([[1.0]] * 2, n=n, d=64).assign(measure=measure, metric="pwcca")
    change["layer_to"] = change["layer"] + 1
    (curve,) = arm_lines(change, measure=measure, metric="pwcca").curves
    assert ("n/d below 150" in curve.remarks) is marked


def test_what_knows_no_dimensions_to_correlate_has_no_such_mark():
    table = information([[1.0]] * 2, n=640, d=64, measure="geometry", metric="effective_rank")
    (curve,) = arm_lines(table, measure="geometry", metric="effective_rank").curves
    assert curve.remarks == ["gain not measured"]


def test_one_seed_is_remarked_with_what_its_band_is():
    table = information([[1.0, 2.0]])
    for error, remark in ((None, "one seed, so no interval"), (0.1, "one seed: its band is over text")):
        (curve,) = arm_lines(
            table.assign(standard_error=error), measure="token_information", metric="cross_fitted"
        ).curves
        assert curve.remarks == ["gain not measured", remark]


@pytest.mark.parametrize(("gain", "doubt"), [(0.49, "gains too little to interpret"), (0.5, "")])
def test_half_a_nat_is_enough(gain, doubt):
    loss = {"measure": "validation", "metric": "loss", "layer": None, "value": 4 - gain, "floor": 4.0}
    table = results.concat([information([[1.0], [1.0]]), information([[1.0], [1.0]], **loss)])
    (curve,) = arm_lines(table, measure="token_information", metric="cross_fitted").curves
    assert curve.gain == pytest.approx(gain)
    assert curve.doubt == doubt


def test_learning_curves_run_along_the_steps_that_were_validated():
    gains = {
        ("mlm", 0): [0.5, 1.0, 1.5],
        ("mlm", 1): [0.7, 1.2, 1.9],
        ("clm", 0): [0.9, 1.1],
        ("clm", 1): [1.1, 1.3],
    }
    table = results.table(
        {"run_id": f"{arm}{seed}", "arm": arm, "seed": seed, "step": 100 * (i + 1), "measure": "learning"}
        | {"metric": "gain", "value": gain, "floor": 0.0, "unit": "nats", "n": 500}
        for (arm, seed), values in gains.items()
        for i, gain in enumerate(values)
    )
    ax = axes()
    assert learning(table, ax=ax, arms=["mlm", "clm"]) is ax
    drawn = means(ax)
    mlm, clm = (drawn[FIXED_STYLES[arm].colour] for arm in ("mlm", "clm"))
    assert mlm.get_xdata().tolist() == [100, 200, 300]
    np.testing.assert_allclose(mlm.get_ydata(), [0.6, 1.1, 1.7])
    assert clm.get_xdata().tolist() == [100, 200]  # a shorter run ends where it ends, without a gap in between
    np.testing.assert_allclose(clm.get_ydata(), [1.0, 1.2])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "gain over no context (nats)")
    with pytest.raises(ResultsError) as error:
        learning(table, ax=axes(), metric="loss")
    assert str(error.value) == "the table has no rows of learning loss by step; it has learning gain."


def test_axes_of_steps_have_whole_numbers():
    table = results.table(
        {"run_id": "mlm0", "arm": "mlm", "seed": 0, "step": step, "measure": "learning", "metric": "gain"}
        | {"value": 0.1 * step, "floor": 0.0, "unit": "nats", "n": 500}
        for step in (1, 2)
    )
    ax = learning(table, ax=axes())
    assert {tick % 1 for tick in ax.get_xticks()} == {0}


def drawn_figure(panel, monkeypatch):
    """The figure of a panel, laid out."""
    drawn = []
    monkeypatch.setattr(files, "render", lambda figure, **_: drawn.append(figure) or "")
    files.draw(panel)
    drawn[0].draw_without_rendering()
    return drawn[0]


@pytest.mark.parametrize("many", [1, 8, 30])
def test_names_at_the_ends_are_whole_and_apart_whatever_the_number_of_arms(many, monkeypatch):
    arms = [f"arm-{i}-of-which-the-name-is-long-and-has-no-space-at-all" for i in range(many)]
    table = pd.concat([information([[1, 2, 3], [2, 3, 5]], arm=arm) for arm in arms])
    lines = arm_lines(table, measure="token_information", metric="cross_fitted", arms=arms)
    figure = drawn_figure(SimpleNamespace(id="f1a", title="t", content=lines, csv_text=str), monkeypatch)
    (ax,) = figure.axes
    boxes = sorted((Text.get_window_extent(text) for text in ax.texts), key=lambda box: box.y0)
    assert len(names(ax)) == many
    assert all(lower.y1 <= upper.y0 + 1 for lower, upper in itertools.pairwise(boxes))  # a pixel of rounding
    assert all(ax.get_window_extent().x1 < box.x0 < box.x1 <= figure.bbox.x1 for box in boxes)
    assert figure.bbox.y0 <= boxes[0].y0
    assert boxes[-1].y1 <= figure.bbox.y1


NAMES = [f"{objective}-{i}" for objective in ("mlm", "clm") for i in range(6)]


def panels_of(table, arms, text=TOKEN_INFORMATION):
    return [panel for shown in text.shown for panel in arm_panels(table, text, shown, arms=arms)]


def test_up_to_eight_arms_share_a_panel_and_more_have_one_a_family_with_the_first_arm_in_grey():
    table = results.concat([information([[5.0, 4.0 + i]], arm=arm) for i, arm in enumerate(NAMES)])
    (together,) = panels_of(table[table["arm"].isin(NAMES[:8])], NAMES[:8])
    assert together.arms is None
    first, second = panels_of(table, NAMES)
    assert (first.arms, second.arms) == (NAMES[:6], NAMES[6:])
    assert second.title == f"{first.title.removesuffix(': mlm')}: clm"
    assert {point["arm"] for point in second.points} == set(second.rows["arm"]) == set(NAMES[6:])
    drawn = [draw_arms(panel.content, ax=axes()) for panel in (first, second)]
    assert names(drawn[0]) == [str(i) for i in range(6)]  # the panel says what they share
    assert names(drawn[1]) == ["mlm-0", *map(str, range(6))]
    grey = [text.get_gid() == "end" and text.get_color() == GREY for text in drawn[1].texts]
    assert grey == [True] + [False] * 6
    assert drawn[0].get_ylim() == drawn[1].get_ylim()
    colours = [[text.get_color() for text in ax.texts][-6:] for ax in drawn]
    assert colours[0] == colours[1]  # the same place of a family, the same colour
    assert "Grey: mlm-0, in each panel of other arms" in second.notes[1]
    assert not any(together.notes)


def test_of_very_many_arms_eight_families_at_equal_distances_have_panels_and_a_note_counts_them():
    arms = [f"mlm,ratio=0.{i:03}" for i in range(100)]
    table = results.concat([information([[5.0, 4.0 + 0.01 * i]], arm=arm) for i, arm in enumerate(arms)])
    panels = panels_of(table, arms)
    assert len(panels) == 8
    shown = [arm for panel in panels for arm in panel.arms]
    assert shown == [arm for arm in arms if arm in shown]  # in order, each once
    assert shown[0] == arms[0]
    assert shown[-1] == arms[-1]
    assert (
        f"Panels show {len(shown)} of 100 arms, in 8 groups at equal distances in the order of the experiment; "
        "the numbers of all are in results.parquet."
    ) in panels[0].notes[0]
    assert len(panels_of(table, arms[:48])) == 7  # as many as there are
    assert not panels_of(table, arms[:48])[0].notes[0]


def test_a_single_point_has_no_panel():
    one = information([[5.0]])
    assert panels_of(one, ["mlm"]) == []
    assert len(panels_of(information([[5.0, 4.0]]), ["mlm"])) == 1
    curve = results.concat([information([[5.0, 4.0]], arm=arm) for arm in NAMES[:6]])
    dots = results.concat([information([[5.0]], arm=arm) for arm in NAMES[6:]])
    assert [panel.arms for panel in panels_of(results.concat([curve, dots]), NAMES)][:1] == [NAMES[:6]]


def of_paper(objective, layer, value, **more):
    about = {"measure": "layer_change", "metric": "pwcca", "layer_to": layer + 1, "read": "from the figure"} | more
    return PublishedPoint(source="A paper", objective=objective, layer=layer, value=value, **about)


OBJECTIVES = {"mlm": "masked_lm", "clm": "causal_lm", "mt": "translation", "untrained": "masked_lm"}


def change_panel(table, published, *, objectives=OBJECTIVES):
    (figure,) = (
        figure
        for figure in figures.figures(table, arms=ARMS, published=published, objectives=objectives)
        if figure.text.name == "layer_change"
    )
    return {panel.metric: panel for panel in figure.panels}


def test_a_published_curve_has_the_colour_of_the_arm_with_its_objective(table):
    curve = [of_paper("causal_lm", 1, 0.5, error=0.01), of_paper("causal_lm", 2, 0.6)]
    panel = change_panel(table, curve)["pwcca"]
    ax = draw_arms(panel.content, ax=axes())
    (line,) = (line for line in ax.lines if line.get_gid() == "beside")
    assert line.get_color() == arm_styles(ARMS)["clm"].colour
    assert line.get_xydata().tolist() == [[1, 0.5], [2, 0.6]]
    low, high = ax.get_ylim()
    assert low < 0.5 < 0.6 < high
    assert "A paper, causal LM" in names(ax)
    first, second = (point for point in panel.points if point["band"] == "published")
    assert (first["arm"], first["layer"], first["layer_to"]) == ("A paper, causal LM", 1, 2)
    assert [first[end] for end in ("low", "mean", "high")] == pytest.approx([0.49, 0.5, 0.51])
    assert np.isnan([second["low"], second["high"]]).all()  # nobody knows how sure its reading is
    assert "A paper, causal LM: 0.500 at 1→2" in panel.description


@pytest.mark.parametrize(
    "point",
    [
        of_paper("permutation_lm", 1, 0.5),  # no arm has this objective
        of_paper("causal_lm", 1, 0.5, metric="debiased_cka_of_another_kind"),
        of_paper("causal_lm", 1, 0.5, group="rank 1-10"),
    ],
    ids=["no such arm", "another metric", "a group"],
)
def test_a_published_curve_of_something_else_is_not_drawn(table, point):
    for panel in change_panel(table, [point]).values():
        assert panel.content.beside == ()
        assert all(point["band"] != "published" for point in panel.points)


def test_without_published_curves_a_panel_is_as_it_was(table):
    panel = change_panel(table, [])["pwcca"]
    assert beside_published(panel, [], objectives=OBJECTIVES) is panel
