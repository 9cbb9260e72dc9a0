import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ablations import results
from ablations.errors import ResultsError
from reports.figures.pictures import (
    PICTURES,
    Cloud,
    choose_picture,
    draw_picture,
    kind_styles,
    kinds,
    known_facts,
    picture_panels,
    points,
)
from reports.figures.style import GREY
from tests.support.errors import error_text
from tests.support.fake_layers import layer_rows


@pytest.fixture(scope="module")
def table():
    made = layer_rows(("mlm", "clm"), (1, 2), steps=(500,))
    return results.table(row for row in made if row["measure"] == "pictures")


def test_a_picture_shows_the_first_seed_in_the_first_the_last_and_two_layers_between(table):
    rows = choose_picture(table, arm="clm")
    assert rows["seed"].unique().tolist() == [1]
    assert sorted(rows["layer"].unique().tolist()) == [0, 2, 4, 6]
    shallow = choose_picture(table[table["layer"] <= 2], arm="clm")
    assert sorted(shallow["layer"].unique().tolist()) == [0, 1, 2]


def test_points_know_what_was_said_of_their_tokens(table):
    found = points(choose_picture(table, arm="mlm"))
    assert len(found) == 4 * 48
    one = table[(table["arm"] == "mlm") & (table["seed"] == 1) & (table["group"] == "saw|8|obj|saw (noun)|1")]
    one = one[one["layer"] == 4].set_index("metric")["value"]
    here = found[(found["word"] == "saw") & (found["number"] == "1") & (found["layer"] == 4)].iloc[0]
    assert here[["x", "y", "position", "relation", "sense"]].tolist() == [
        one["x"],
        one["y"],
        "8",
        "obj",
        "saw (noun)",
    ]
    assert found.loc[found["word"] == "walk", "sense"].isna().all()
    assert known_facts(points(choose_picture(table, arm="mlm"))) == ["word", "position", "relation", "sense"]


def test_bars_in_a_word_are_part_of_it():
    rows = results.table(
        {"run_id": "a", "arm": "a", "seed": 0, "step": 1, "measure": "pictures", "metric": metric, "layer": 0}
        | {"group": "a|b|3|-|-|0", "value": 0.5}
        for metric in ("x", "y")
    )
    found = points(choose_picture(rows, arm="a")).iloc[0]
    assert (found["word"], found["position"]) == ("a|b", "3")
    assert pd.isna(found["relation"])
    assert known_facts(points(choose_picture(rows, arm="a"))) == []


def test_each_kind_is_drawn_where_it_lies(table):
    drawn = Cloud("mlm", "word", points(choose_picture(table, arm="mlm")))
    axes = draw_picture(drawn, axes=Figure().subplots(2, 2).ravel().tolist())
    assert [ax.get_title() for ax in axes] == ["layer 0", "layer 2", "layer 4", "layer 6"]
    found = points(choose_picture(table, arm="mlm"))
    for ax, layer in zip(axes, (0, 2, 4, 6), strict=True):
        assert {line.get_label() for line in ax.lines} == {"walks", "walk", "saw", "light"}
        for line in ax.lines:
            own = found[(found["layer"] == layer) & (found["word"] == line.get_label())]
            np.testing.assert_array_equal(np.sort(line.get_xdata()), np.sort(own["x"]))
        assert len({(line.get_color(), line.get_marker()) for line in ax.lines}) == 4


def test_rare_kinds_are_one_and_unknown_ones_none():
    facts = pd.Series(["a"] * 9 + ["b"] * 8 + list("cdefghij") + [None])
    found = kinds(facts, ordered=False)
    assert list(found.cat.categories) == ["a", "b", "c", "d", "e", "f", "other"]
    assert found.tolist()[:18] == ["a"] * 9 + ["b"] * 8 + ["c"]
    assert found.tolist()[21:25] == ["other"] * 4
    assert pd.isna(found.iloc[-1])
    assert kind_styles(["a", "other"], ordered=False)["other"].colour == GREY


@pytest.mark.parametrize(("rare", "frequent"), [("", "ab"), ("ghijk", "abcde")])
def test_the_word_other_counts_among_the_others(rare, frequent):
    facts = pd.Series([*frequent, "other", *frequent, "other", *rare])
    assert list(kinds(facts, ordered=False).cat.categories) == [*frequent, "other"]


def test_positions_are_ranges_in_order():
    found = kinds(pd.Series(["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", None]), ordered=True)
    assert list(found.cat.categories) == [
        "1\N{EN DASH}2",
        "3\N{EN DASH}4",
        "5\N{EN DASH}6",
        "7\N{EN DASH}8",
        "9\N{EN DASH}10",
    ]
    assert found.tolist()[:3] == ["1\N{EN DASH}2"] * 2 + ["3\N{EN DASH}4"]
    assert pd.isna(found.iloc[-1])
    assert list(kinds(pd.Series(["7", "7", "7"]), ordered=True).cat.categories) == ["7"]


def test_without_rows_and_with_two_experiments_there_is_a_sentence(table):
    assert error_text(ResultsError, choose_picture, table, arm="mt") == (
        "the table has no rows of pictures of mt by layer; it has pictures x, pictures y."
    )
    rows = choose_picture(table, arm="mlm")
    assert error_text(ResultsError, lambda: points(pd.concat([rows, rows]))) == (
        "a picture needs one place for each token and layer; choose the rows of one experiment."
    )


def test_arms_without_pictures_are_reported_also_where_the_first_arm_has_nothing_to_show(table):
    """The tokens of mlm are one word here, so that they do not differ in the word."""
    is_other = (table["arm"] == "mlm") & ~table["group"].str.startswith("saw|")
    (panel,) = picture_panels(table[~is_other], PICTURES, PICTURES.shown[0], arms=["mlm", "clm", "mt"])
    assert panel.content.arm == "clm"
    assert panel.without_rows == ["mt"]
