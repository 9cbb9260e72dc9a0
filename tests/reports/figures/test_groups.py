import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from ablations import results
from ablations.errors import ResultsError
from reports.figures.curves import learned
from reports.figures.groups import choose_groups, draw_groups, group_label, group_lines
from reports.figures.lines import written_above
from reports.figures.style import TAGS as KNOWN_TAGS
from reports.figures.style import group_styles
from tests.support.errors import error_text
from tests.support.fake_experiment import LAYERS
from tests.support.fake_layers import RANKS, TAGS, layer_rows
from tests.support.figures import names


@pytest.fixture(scope="module")
def table():
    return results.table(layer_rows(("mlm", "clm"), (0, 1), steps=(500,)))


def drawn(table, arm="mlm", arms=None, family="rank", **chosen):
    rows = choose_groups(table, family=family, **{"measure": "layer_change", "metric": "pwcca"} | chosen)
    kept = rows if arms is None else rows[rows["arm"].isin([arm, *arms])]
    return draw_groups(group_lines(kept, learned(table), family)[arm], ax=Figure().subplots())


def lines(ax, gid="mean"):
    return [line for line in ax.lines if line.get_gid() == gid]


def brightness(line):
    return np.dot(to_rgb(line.get_color()), (0.2126, 0.7152, 0.0722))


def test_an_arm_has_a_line_for_each_group_the_mean_over_its_seeds(table):
    ax = drawn(table)
    own = table[(table["arm"] == "mlm") & (table["measure"] == "layer_change") & (table["metric"] == "pwcca")]
    assert len(lines(ax)) == len(RANKS)
    for line, ranks in zip(lines(ax), RANKS, strict=True):
        expected = own[own["group"] == f"rank {ranks}"].groupby("layer")["value"].mean()
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-12)  # float64 algebra
        np.testing.assert_array_equal(line.get_xdata(), range(LAYERS))
    assert len([part for part in ax.collections if part.get_gid() == "band"]) == len(RANKS)
    assert not lines(ax, "seed")


def test_ranks_go_from_dark_and_frequent_to_light_and_rare_and_have_markers(table):
    shown = lines(drawn(table))
    assert (np.diff([brightness(line) for line in shown]) > 0).all()
    assert len({line.get_marker() for line in shown}) == len(shown) == 8
    assert max(brightness(line) for line in shown) < 0.8  # on white it can still be seen


def test_names_and_title_say_what_the_lines_are(table):
    ax = drawn(table)
    assert names(ax) == [ranks.replace("-", "\N{EN DASH}") for ranks in RANKS]
    assert written_above(ax)[0] == "a line each frequency rank"
    assert ax.get_title(loc="left") == "mlm (n = 2, gain 1.81 nats)"
    by_tag = drawn(table, family="tag", measure="influence")
    assert written_above(by_tag)[0] == "a line each part of speech"
    assert set(names(by_tag)) == set(TAGS)
    assert names(by_tag)[:3] == ["NOUN", "PRON", "VERB"]  # related ones side by side, not the alphabet


def test_influence_begins_at_the_first_layer_and_each_group_has_its_own_floor(table):
    ax = drawn(table, measure="influence")
    np.testing.assert_array_equal(ax.get_xticks(), range(1, LAYERS + 1))
    assert ax.get_xlabel() == "layer (0 = embeddings)"
    floors = lines(ax, "floor")
    assert len(floors) == len(RANKS)
    assert [line.get_color() for line in floors] == [line.get_color() for line in lines(ax)]
    own = table[(table["arm"] == "mlm") & (table["measure"] == "influence") & (table["group"] == "rank 11-25")]
    np.testing.assert_allclose(floors[1].get_ydata(), own.groupby("layer")["floor"].mean())


def test_change_writes_out_where_the_floors_of_its_groups_are(table):
    ax = drawn(table)
    floors = table[(table["measure"] == "layer_change") & table["group"].str.startswith("rank").fillna(False)]
    floors = floors[(floors["metric"] == "pwcca") & (floors["arm"] == "mlm")]
    floors = floors.groupby(["group", "layer"])["floor"].mean()
    said = f"chance level (rows shuffled): {floors.min():.2f} to {floors.max():.2f} ↑"
    assert written_above(ax)[1:] == [said]
    near = drawn(table.assign(floor=np.where(table["arm"] == "mlm", 0.4, 0.3)))
    (line,) = lines(near, "floor")  # of shuffled rows there is one chance for all groups
    np.testing.assert_allclose(line.get_ydata(), 0.4)
    assert written_above(near)[-1] == "dashed: chance level (rows shuffled)"


def test_panels_of_several_arms_have_one_scale_and_others_do_not_count(table):
    higher = table.assign(value=table["value"].where(table["arm"] != "clm", 3 * table["value"]))
    limits = [drawn(higher, arm=arm).get_ylim() for arm in ("mlm", "clm")]
    assert limits[0] == limits[1]
    alone = drawn(higher, arm="mlm", arms=["mlm"]).get_ylim()
    assert alone[1] < limits[0][1]


def test_every_part_of_speech_looks_the_same_everywhere_and_unlike_the_others():
    every = group_styles([f"tag {tag}" for tag in (*KNOWN_TAGS, "NN", "VBZ")])
    assert len({(style.colour, style.marker, str(style.line)) for style in every.values()}) == len(KNOWN_TAGS) + 2
    some = group_styles(["tag VERB", "tag ADJ"])
    assert list(some) == ["tag VERB", "tag ADJ"]
    assert all(style == every[group] for group, style in some.items())


def test_names_of_groups():
    assert group_label("rank 1-10") == "1\N{EN DASH}10"
    assert group_label("tag NOUN") == "NOUN"
    assert group_label("verbs") == "verbs"
    many = [f"rank {first}-{first + 1}" for first in (1, 3, 11, 101, 5)]
    assert list(group_styles(many)) == [many[0], many[1], many[4], many[2], many[3]]


def test_only_the_last_step_and_only_that_family(table):
    early = table[table["measure"] == "layer_change"].assign(step=8, value=9.0)
    rows = choose_groups(results.concat([table, early]), measure="layer_change", metric="pwcca", family="rank")
    assert rows["step"].unique().tolist() == [500]
    assert rows["group"].str.startswith("rank ").all()


def test_without_such_groups_there_is_a_sentence(table):
    assert error_text(ResultsError, drawn, table[table["measure"] == "geometry"]) == (
        "the table has no rows of layer_change pwcca (rank) by layer; it has geometry anisotropy, geometry "
        "effective_rank, geometry participation_ratio, geometry self_similarity, geometry update_norm."
    )


def test_one_seed_has_the_band_of_its_text(table):
    ax = drawn(table[table["seed"] == 0])
    own = table[(table["seed"] == 0) & (table["arm"] == "mlm") & (table["measure"] == "layer_change")]
    own = own[(own["group"] == "rank 1-10") & (own["metric"] == "pwcca")].set_index("layer")
    first = next(part for part in ax.collections if part.get_gid() == "band")
    corners = first.get_paths()[0].vertices
    edge = corners[corners[:, 0] == 2, 1]
    error = 1.96 * own.loc[2, "standard_error"]
    assert (edge.min(), edge.max()) == pytest.approx((own.loc[2, "value"] - error, own.loc[2, "value"] + error))
    assert to_hex(first.get_facecolor()[0][:3]) == to_hex(lines(ax)[0].get_color())
