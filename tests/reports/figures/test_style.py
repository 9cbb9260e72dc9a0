"""Arms told apart by colour, marker and line together, on white and on a dark page; and labels without overlap."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from ablations import results
from reports.figures.by_setting import SettingMarks, by_setting
from reports.figures.files import swatch_classes, swatch_style
from reports.figures.style import (
    COLOURS,
    FIXED_STYLES,
    LINES,
    MOST_LINES,
    TAGS,
    USUAL_LINES,
    arm_styles,
    families,
    group_styles,
    mark_points,
    pair_style,
    seeds_style,
    spread,
    text_colour,
)
from tests.support.figures import information, token_information
from tests.support.many_arms import ARMS

MANY = (12, 24, 40)

SEEN = {
    "everybody": np.eye(3),
    "protanopes": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopes": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopes": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
"""What is seen of linear red, green and blue: Machado, Oliveira and Fernandes 2009, table 1, severity 1."""


def experiments(number):
    """Arms of experiments with so many, with each set of the fixed ones."""
    for size in range(len(FIXED_STYLES) + 1):
        for fixed in itertools.combinations(FIXED_STYLES, size):
            yield [*fixed, *map(str, range(number - size))]


def linear(colour):
    encoded = np.array(to_rgb(colour))
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def contrast(colour, paper):
    """WCAG 2.2."""
    bright, dim = sorted((linear(one) @ (0.2126, 0.7152, 0.0722) + 0.05 for one in (colour, paper)), reverse=True)
    return bright / dim


def lab(colour, seen):
    """CIELAB of what is seen, for a white of D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(np.array(seen) @ linear(colour), 0, 1) / (0.9505, 1, 1.089)
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


PAPER = "#16181c"
"""The page in the dark."""

HALF_TURN = [[-0.574, 1.430, 0.144], [0.426, 0.430, 0.144], [0.426, 1.430, -0.856]]
"""The matrix of `hue-rotate(180deg)`: Filter Effects Module Level 1, section 9.4."""


def in_the_dark(colour):
    """What the filter of the page makes of a colour: inverted, the hue turned back."""
    return tuple((np.array(HALF_TURN) @ (1 - np.array(to_rgb(colour)))).clip(0, 1))


def nearest(colours):
    """The smallest distance of two of the colours to any eyes."""
    return min(
        np.linalg.norm(lab(one, seen) - lab(other, seen))
        for seen in SEEN.values()
        for one, other in itertools.combinations(colours, 2)
    )


@pytest.mark.parametrize("number", MANY)
def test_no_two_arms_share_colour_marker_and_line_nor_what_a_dot_shows_of_them(number):
    for arms in experiments(number):
        styles = arm_styles(arms)
        assert list(styles) == arms
        assert len({(style.colour, style.marker, str(style.line)) for style in styles.values()}) == number
        assert len({(style.colour, style.marker) for style in styles.values()}) == number
        assert all(styles[arm] == style for arm, style in FIXED_STYLES.items() if arm in arms)


def test_arms_of_one_colour_differ_in_marker_and_line_as_long_as_there_are_lines():
    styles = list(arm_styles([str(i) for i in range(USUAL_LINES * len(LINES))]).values())
    for colour in COLOURS[:USUAL_LINES]:
        own = [style for style in styles if style.colour == colour]
        assert len(own) == len({style.marker for style in own}) == len({str(style.line) for style in own}) == 4


def test_arms_of_a_full_panel_have_a_colour_each():
    """Arms 4 and 8 had one pink beside masked LM, causal LM and translation."""
    for arms in experiments(MOST_LINES):
        assert len({style.colour for style in arm_styles(arms).values()}) == MOST_LINES, arms


@pytest.mark.parametrize("number", MANY)
def test_lines_show_them_all(number):
    arms = [*FIXED_STYLES, *(f"arm{i}" for i in range(number - len(FIXED_STYLES)))]
    table = results.concat([information([[2.0, 1.0]], arm=arm) for arm in arms])
    ax = token_information(table, ax=Figure().subplots(), arms=arms)
    drawn = [line for line in ax.lines if line.get_gid() == "mean"]
    looks = {(line.get_color(), line.get_marker(), str(line._unscaled_dash_pattern)) for line in drawn}
    assert len(looks) == len(drawn) == number


@pytest.mark.parametrize("number", MANY)
def test_dots_show_them_all(number):
    arms = [*FIXED_STYLES, *(f"arm{i}" for i in range(number - len(FIXED_STYLES)))]
    point = {"line": "", "mean": 1.0, "low": None, "high": None, "floor": np.nan}
    along = {"numeric": True, "logarithmic": False, "places": list(range(number)), "reference": None, "label": "x"}
    marks = SettingMarks(
        axis_label="y",
        floor="",
        along=along | {"values": list(map(str, range(number)))},
        points=[point | {"arm": arm, "x": place} for place, arm in enumerate(arms)],
        runs=[{"arm": arm, "value": 1.0} for arm in arms],
        styles=arm_styles(arms),
    )
    ax = by_setting(marks, ax=Figure().subplots())
    dots = [line for line in ax.lines if line.get_gid() == "mean"]
    assert len({(to_hex(dot.get_color()), dot.get_marker()) for dot in dots}) == len(dots) == number
    assert all(dot.get_markersize() == mark_points(dot.get_marker()) for dot in dots)


@pytest.mark.parametrize("number", MANY)
def test_swatches_show_them_all(number):
    arms = [*FIXED_STYLES, *map(str, range(number - len(FIXED_STYLES)))]
    rules = swatch_style(arms).splitlines()
    assert [rule.split(" ")[0] for rule in rules] == [f".{name}" for name in swatch_classes(arms).values()]
    assert len({rule.partition("url(")[2] for rule in rules}) == number


@pytest.mark.parametrize("number", [12, 24])
def test_pairs_with_one_arm_and_seeds_of_arms_are_told_apart(number):
    first, *others = arm_styles(list(map(str, range(number)))).values()
    looks = [pair_style(first, other) for other in others] + [seeds_style(arm) for arm in (first, *others)]
    assert len(set(map(str, looks))) == len(looks)


def test_every_line_has_contrast_on_white_and_on_a_dark_page():
    groups = [[f"rank {i}-{i}" for i in range(1, number)] for number in (2, 6, 20)]
    styles = [*arm_styles([*FIXED_STYLES, *map(str, range(20))]).values()]
    styles += [
        style for names in [*groups, [f"tag {tag}" for tag in TAGS]] for style in group_styles(names).values()
    ]
    for colour in {style.colour for style in styles}:
        assert contrast(colour, "white") >= 3, colour  # WCAG 2.2, 1.4.11
        assert contrast(in_the_dark(colour), PAPER) >= 3, colour
        for text, paper in ((text_colour(colour), "white"), (in_the_dark(text_colour(colour)), PAPER)):
            assert contrast(text, paper) >= 4.5, colour  # WCAG 2.2, 1.4.3


def test_text_is_no_darker_than_its_contrast_needs_and_keeps_its_hue():
    assert text_colour("#0072B2") == "#0072B2"  # its contrast is 5.2
    darker = np.array(to_rgb(text_colour("#CC79A7")))
    assert contrast(to_hex(darker), "white") < 4.7
    np.testing.assert_allclose(darker / darker[0], np.array(to_rgb("#CC79A7")) / to_rgb("#CC79A7")[0], atol=0.01)


def test_colours_of_arms_are_safe_for_colour_blind_readers():
    """Each two are as far apart as Okabe and Ito's blue and green, whoever looks. The filter of the dark page
    leaves half of that: there readers without red take indigo and wine for related colours, and markers and lines
    tell them apart. The counter-example is a red beside a green as dark."""
    every = [*COLOURS, "#000000"]
    theirs = nearest(("#0072B2", "#009E73"))
    assert nearest(every) == theirs
    assert nearest([in_the_dark(colour) for colour in every]) > 0.5 * theirs
    assert nearest(["#b02020", "#5f7a1e"]) < 0.3 * theirs


GOLDEN = sorted(Path(__file__).parents[2].glob("golden/*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_arm_of_a_shipped_spec_is_in_one_family_that_has_room(path):
    arms = list(json.loads(path.read_text(encoding="utf-8"))["arms"])
    groups = families(arms)
    assert sorted(arm for family in groups for arm in family.arms) == sorted(arms)
    assert all(1 <= len(family.arms) <= MOST_LINES for family in groups)
    assert (len(groups) == 1) == (len(arms) <= MOST_LINES)
    assert all(arm == family.shared + family.short(arm) for family in groups for arm in family.arms)
    assert len({family.short(arm) for family in groups[:1] for arm in family.arms}) == len(groups[0].arms)


def test_few_arms_are_together_and_keep_their_names():
    (family,) = families(["mlm-a", "mlm-b"])
    assert (family.name, family.arms, family.short("mlm-a")) == ("", ("mlm-a", "mlm-b"), "mlm-a")


def test_names_that_begin_alike_are_a_family_and_a_large_one_is_parted_at_its_next_word():
    groups = families(ARMS)
    assert [family.name for family in groups] == [
        *("mlm-post", "mlm-pre", "clm-post", "clm-pre", "mt-post", "mt-pre", "untrained")
    ]
    assert groups[0].short("mlm-post-learned-bert") == "learned-bert"
    assert groups[0].short("clm-post-learned-bert") == "clm-post-learned-bert"  # of another family
    assert groups[-1].short("untrained-scaled") == "untrained-scaled"  # since an arm is called untrained


def test_a_family_is_named_by_the_arms_that_have_a_line():
    lines = [arm for arm in ARMS if arm != "untrained" and not arm.startswith("mt-pre")]
    by_first = {family.arms[0]: family for family in families(ARMS)}
    for family in families(ARMS, drawn=lines):
        assert set(family.arms) == set(by_first[family.arms[0]].arms) & set(lines)
    assert families(ARMS)[-1].name == "untrained"
    scaled = families(ARMS, drawn=["mlm-post-learned-bert", "untrained-scaled"])
    assert [family.name for family in scaled] == ["mlm-post-learned-bert", "untrained-scaled"]


def test_names_of_families_keep_numbers_and_settings_whole():
    """Arms of ratios 0.15 and 0.4 were `15,norm=pre` and `4,norm=pre` of the family `mlm,ratio=0`."""
    ratios = [f"mlm,ratio={ratio},norm={norm}" for ratio in ("0.15", "0.4") for norm in ("pre", "post")]
    (together,) = [family for family in families([*ratios, *map(str, range(9))]) if "mlm" in family.name]
    assert together.name == "mlm,ratio"
    assert [together.short(arm) for arm in ratios] == [arm.removeprefix("mlm,ratio=") for arm in ratios]
    settings = [f"mlm,ratio={ratio},norm_{i}=1" for ratio in ("0.15", "0.4") for i in range(6)]
    first, second = families(settings)
    assert (first.name, second.name) == ("mlm,ratio=0.15,norm", "mlm,ratio=0.4,norm")
    widths = [f"mlm,ratio={ratio},width={width}" for ratio in ("0.15", "0.4") for width in range(6)]
    first, second = families(widths)
    assert (first.name, second.name) == ("mlm,ratio=0.15", "mlm,ratio=0.4")
    assert [second.short(arm) for arm in second.arms] == [f"width={width}" for width in range(6)]
    rates = [f"{name}=1e-{i}" for name in ("lr", "rate") for i in range(6)]
    first, second = families(rates)
    assert [(family.name, family.shared) for family in (first, second)] == [("lr", "lr="), ("rate", "rate=")]
    assert [second.short(arm) for arm in second.arms] == [f"1e-{i}" for i in range(6)]


def test_small_families_share_a_panel():
    groups = families(["mlm", "clm", "mt", "ratio-5", "ratio-30", "ratio-60", "n1", "n2", "n3", "n4"])
    assert [family.name for family in groups] == ["mlm, clm and mt", "ratio", "n1 …"]


@pytest.mark.parametrize("number", [9, 16, 40])
def test_names_without_words_in_common_are_parted_evenly(number):
    sizes = [len(family.arms) for family in families([f"{i}" for i in range(number)])]
    assert sum(sizes) == number
    assert max(sizes) - min(sizes) <= max(sizes) // 2


@pytest.mark.parametrize("many", [1, 2, 8, 20])
@pytest.mark.parametrize("seed", range(5))
def test_labels_are_apart_in_order_and_on_the_axis(many, seed):
    rng = np.random.default_rng(seed)
    places, heights = rng.uniform(0, 1, many), np.full(many, 0.9 / many)
    middles = np.array(spread(places, heights))
    rising = np.argsort(places)
    gaps = [b - a for a, b in itertools.pairwise(middles[rising])]
    assert all(gap >= 0.9 / many - 1e-12 for gap in gaps)  # float64 algebra
    assert (middles - heights / 2).min() >= -1e-12  # float64 algebra
    assert (middles + heights / 2).max() <= 1 + 1e-12  # float64 algebra


def test_labels_that_have_room_stay_where_they_are():
    places = [0.9, 0.1, 0.5]
    assert spread(places, [0.1] * 3) == pytest.approx(places)


def test_two_labels_at_one_place_move_equally_and_a_third_stays():
    assert spread([0.5, 0.5, 0.1], [0.2] * 3) == pytest.approx([0.4, 0.6, 0.1])


def test_a_label_of_two_lines_takes_more():
    low, high = spread([0.5, 0.5], [0.2, 0.1])
    assert high - low == pytest.approx(0.15)


def test_the_moves_are_the_least():
    """The counter-example: a pile from the lowest up is apart as well, and moves more."""
    places, height = np.array([0.5, 0.52, 0.54]), 0.1
    moved = np.square(np.array(spread(places, [height] * 3)) - places).sum()
    assert moved < np.square(places[0] + height * np.arange(3) - places).sum()


def test_more_labels_than_there_is_room_for_are_still_apart():
    middles = spread([0.5] * 4, [0.5] * 4)
    assert [b - a for a, b in itertools.pairwise(middles)] == pytest.approx([0.5] * 3)


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
