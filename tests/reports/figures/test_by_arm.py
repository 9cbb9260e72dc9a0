"""A figure with a line for each arm draws means, intervals, seeds and chance levels of its table."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from ablations import results
from ablations.errors import ResultsError
from reports.figures.lines import written_above
from reports.figures.style import FIXED_STYLES, arm_styles, text_colour
from tests.support.errors import error_text
from tests.support.fake_experiment import ARMS, GAIN, LAYERS, rows
from tests.support.figures import (
    axes,
    bands,
    ceilings,
    floors,
    geometry,
    information,
    layer_change,
    learning,
    means,
    names,
    neighbours,
    read_out,
    seed_lines,
    token_information,
)

DRAWINGS = [
    (layer_change, "layer_change", "pwcca"),
    (layer_change, "layer_change", "debiased_cka"),
    (token_information, "token_information", "cross_fitted"),
    (token_information, "token_information", "plug_in"),
]


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
    colours = [text_colour(line.get_color()) for line in means(ax).values()]
    assert [text.get_color() for text in ax.texts] == colours
    for text, line in zip(ax.texts, means(ax).values(), strict=True):
        assert text.xy == (line.get_xdata()[-1], line.get_ydata()[-1])


def test_a_doubt_about_all_trained_arms_stands_above_the_panel_once():
    ax = token_information(results.table(rows(gain=dict.fromkeys(GAIN, 0.2) | {"untrained": -2.0})), ax=axes())
    assert names(ax) == ["mlm", "clm", "mt", "untrained"]
    assert written_above(ax)[:2] == ["n = 3 seeds", "each trained arm gains too little to interpret"]


def test_names_of_a_grid_break_after_commas():
    arm = "mlm,kind=whole_word,ratio=0.15"
    (name,) = names(token_information(information([[5, 4]], arm=arm), ax=axes()))
    assert name == "mlm, kind=whole_word,\nratio=0.15"


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


def test_values_below_zero_are_inside_the_axes():
    ax = token_information(information([[0.5, -0.25], [0.4, -0.35]]), ax=axes())
    assert ax.get_ylim()[0] < -0.35


def test_read_outs_are_drawn_as_information_is():
    table = information([[2.0, 1.0]], floor=0.8, ceiling=2.2, measure="read_out", metric="linear")
    ax = read_out(table, ax=axes())
    assert ax.get_ylabel() == "information read linearly (nats)"
    np.testing.assert_array_equal(means(ax)["#0072B2"].get_ydata(), [2, 1])
    assert len(ceilings(ax)) == 1


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
    assert error_text(ResultsError, lambda: token_information(both, ax=axes(), group="shown token")) == (
        "the table has no rows of token_information cross_fitted (shown token) by layer; it has token_information "
        "cross_fitted."
    )


@pytest.mark.parametrize(
    ("draw", "metric", "label", "floor"),
    [
        (neighbours, "same_token", "share with the same token", "neighbours at random"),
        (neighbours, "position_distance", "difference of positions (tokens)", "neighbours at random"),
        (geometry, "effective_rank", "effective rank (dimensions)", "columns shuffled"),
        (geometry, "self_similarity", "mean cosine minus anisotropy", "tokens shuffled"),
    ],
)
def test_axes_of_neighbours_and_geometry_say_what_and_in_which_unit(draw, metric, label, floor):
    table = information([[0.9, 0.8]], floor=0.7, measure=draw.keywords["measure"], metric=metric)
    ax = draw(table, ax=axes(), metric=metric)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("layer (0 = embeddings)", label)
    assert written_above(ax)[-1] == f"dashed: chance level ({floor})"


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


def test_what_the_table_lacks_is_a_sentence(table):
    assert error_text(
        ResultsError, lambda: layer_change(table[table["measure"] == "layer_change"], ax=axes(), metric="rsa")
    ) == (
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


def test_names_of_arms_are_text_not_formulas_or_hidden():
    table = information([[2.0, 1.0]], arm="_a$b$_c")
    figure = Figure()
    ax = token_information(table, ax=figure.subplots())
    figure.canvas.draw()  # a formula would be parsed, and fail, here
    assert names(ax)[0].removeprefix("\N{WORD JOINER}") == r"_a\$b\$_c"


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
    assert (
        error_text(ResultsError, lambda: learning(table, ax=axes(), metric="loss"))
        == "the table has no rows of learning loss by step; it has learning gain."
    )


@pytest.mark.parametrize(("steps", "shown"), [((1, 2), ["1", "2"]), ((4000, 12000), ["4,000", "8,000", "12,000"])])
def test_axes_of_steps_have_whole_numbers_with_commas(steps, shown):
    table = results.table(
        {"run_id": "mlm0", "arm": "mlm", "seed": 0, "step": step, "measure": "learning", "metric": "gain"}
        | {"value": 0.1 * step, "floor": 0.0, "unit": "nats", "n": 500}
        for step in steps
    )
    ax = learning(table, ax=axes())
    assert {tick % 1 for tick in ax.get_xticks()} == {0}
    assert {*shown} <= {label.get_text() for label in ax.get_xticklabels()}
