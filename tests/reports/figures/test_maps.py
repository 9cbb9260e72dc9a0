import numpy as np
import pytest
from matplotlib.figure import Figure

from ablations import results
from ablations.errors import ResultsError
from reports.figures.maps import SHADES, choose_steps, draw_map, grid, step_maps
from tests.support.errors import error_text
from tests.support.fake_experiment import LAYERS
from tests.support.fake_layers import STEPS, layer_rows


@pytest.fixture(scope="module")
def table():
    kept = ("layer_change", "token_information", "geometry")
    return results.table(row for row in layer_rows(("mlm", "clm", "untrained"), (0, 1)) if row["measure"] in kept)


def values(numbers, **columns):
    """Rows of one metric: numbers by arm, seed and step, each a list by layer."""
    return results.table(
        {"run_id": f"{arm}{seed}", "arm": arm, "seed": seed, "step": step, "layer": layer, "value": value}
        | {"measure": "geometry", "metric": "effective_rank"}
        | columns
        for (arm, seed, step), of_layers in numbers.items()
        for layer, value in enumerate(of_layers)
    )


def drawn(table, arm="mlm", *, measure="layer_change", metric="pwcca", **chosen):
    ax = draw_map(step_maps(table, measure=measure, metric=metric, **chosen)[arm], ax=Figure().subplots())
    (mesh,) = [part for part in ax.collections if part.get_gid() == "map"]
    return ax, mesh


def labels(ticks):
    return [label.get_text() for label in ticks]


def test_cells_are_means_over_seeds_by_layer_and_step(table):
    ax, mesh = drawn(table)
    cells = np.asarray(mesh.get_array()).reshape(LAYERS, len(STEPS))
    own = table[(table["arm"] == "mlm") & (table["measure"] == "layer_change") & (table["metric"] == "pwcca")]
    own = own[own["group"].isna() & (own["layer_to"] == own["layer"] + 1)]
    for i, layer in enumerate(range(LAYERS)):
        for j, step in enumerate(STEPS):
            here = own[(own["layer"] == layer) & (own["step"] == step)]["value"]
            assert len(here) == 2
            assert cells[i, j] == pytest.approx(here.mean())
    assert labels(ax.get_yticklabels()) == ["0→1", "1→2", "2→3", "3→4", "4→5", "5→6"]


def test_steps_stand_evenly_and_the_last_one_is_named(table):
    ax, mesh = drawn(table)
    edges = mesh.get_coordinates()[0, :, 0]
    np.testing.assert_allclose(np.diff(edges), 1)
    assert labels(ax.get_xticklabels()) == ["0", "2", "8", "32", "128", "500"]
    np.testing.assert_array_equal(ax.get_xticks(), range(0, 11, 2))
    long = values({("mlm", 0, step): [1.0, 2.0] for step in (0, 1, 10, 100, 1_000, 10_000, 100_000)})
    ax, _ = drawn(long, measure="geometry", metric="effective_rank")
    assert labels(ax.get_xticklabels()) == ["0", "10", "1,000", "100,000"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("step", "layer (0 = embeddings)")


def test_all_arms_have_the_same_colours_beside_a_bar_with_the_unit(table):
    chosen = {"measure": "token_information", "metric": "cross_fitted"}
    (one, first), (_, second) = (drawn(table, arm=arm, **chosen) for arm in ("mlm", "clm"))
    assert first.get_clim() == second.get_clim()
    rows = choose_steps(table, **chosen)
    every = [grid(rows[rows["arm"] == arm]).to_numpy(float) for arm in ("mlm", "clm")]
    assert first.get_clim() == (np.min(every), np.max(every))
    bar = one.figure.axes[1]
    assert bar.get_ylabel() == "cross-fitted information (nats)"
    assert first.cmap.N == SHADES
    assert one.get_title(loc="left").startswith("mlm (n = 2")


def test_the_output_label_is_a_map_of_its_own(table):
    ax, _ = drawn(table, measure="token_information", metric="cross_fitted", group="output label")
    assert ax.figure.axes[1].get_ylabel() == "output label, cross-fitted (nats)"
    chosen = choose_steps(table, measure="token_information", metric="cross_fitted", group="output label")
    assert chosen["group"].unique().tolist() == ["output label"]


def test_only_steps_that_every_seed_has_are_in_the_mean():
    numbers = {("a", seed, step): [step + seed, 2 * step] for seed in (0, 1) for step in (0, 1, 2, 4)}
    numbers["a", 0, 8] = [99.0, 99.0]  # the other seed has not come so far
    rows = choose_steps(values(numbers), measure="geometry", metric="effective_rank")
    found = grid(rows)
    assert found.columns.tolist() == [0, 1, 2, 4]
    np.testing.assert_allclose(found.to_numpy(float), [[0.5, 1.5, 2.5, 4.5], [0, 2, 4, 8]])


def test_a_cell_without_a_number_is_left_out_of_the_colours():
    numbers = {("a", 0, 0): [1.0, np.nan], ("a", 0, 1): [2.0, 3.0], ("a", 0, 2): [4.0, 5.0]}
    _, mesh = drawn(values(numbers), arm="a", measure="geometry", metric="effective_rank")
    assert np.ma.getmaskarray(mesh.get_array()).ravel().tolist() == [False, False, False, True, False, False]
    assert mesh.get_clim() == (1, 5)
    level, _ = drawn(
        values({("a", 0, step): [2.0] for step in range(3)}), arm="a", measure="geometry", metric="effective_rank"
    )
    level.figure.canvas.draw()  # a scale without width would fail here


def test_fewer_than_three_steps_are_no_map(table):
    assert list(step_maps(table, measure="layer_change", metric="pwcca", arms=["untrained", "clm", "mlm"])) == [
        "clm",
        "mlm",
    ]
    two = values({("a", 0, 0): [1.0], ("a", 0, 8): [2.0]})
    assert step_maps(two, measure="geometry", metric="effective_rank") == {}


def test_models_whose_steps_are_unknown_have_no_map():
    unknown = values({("a", seed, 0): [1.0, 2.0] for seed in range(3)}, step=None)
    assert step_maps(unknown, measure="geometry", metric="effective_rank") == {}


def test_two_experiments_in_one_table_are_not_averaged():
    both = results.concat(
        values({("a", 0, step): [1.0] for step in range(3)}, experiment=name) for name in ("one", "two")
    )
    assert error_text(ResultsError, drawn, both, arm="a", measure="geometry", metric="effective_rank") == (
        "a map needs one value for a seed, layer and step; choose the rows of one experiment."
    )
