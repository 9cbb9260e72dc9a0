"""What a page says would change a verdict does change it, and nothing less does."""

import re

import numpy as np
import pytest

from reports.numbers import MINUS
from reports.seed_effects import SeedEffects
from reports.verdicts import judge
from reports.would_change import would_change

SEEDS = 8
SPREAD = np.random.default_rng(3).normal(0, 1, SEEDS)
SPREAD -= SPREAD.mean()
LAYERS = SPREAD + np.array([[-0.4], [0.3], [0.1]]) + np.random.default_rng(4).normal(0, 0.3, (3, SEEDS))
"""What each seed shows at three layers."""


def part(mean, *, spread=SPREAD, **more):
    """An effect with this mean."""
    return SeedEffects(tuple(range(len(spread))), spread + mean, **more)


def over_layers(mean):
    """The same where a layer was chosen: what is seen at each of them moves with it."""
    return part(mean, chosen=(2,) * SEEDS, at_layers_LMS=(LAYERS + mean)[:, None])


def entry(*, smallest=0.01, **parts):
    """A claim of these parts, judged at 0.05, as far as words need it."""
    found = judge(parts, dict.fromkeys(parts, smallest), level=0.05)
    told = [
        {"name": name, "unit": "nats", "n": len(own.values), **own._asdict()}
        | {"chosen_layers": list(parts[name].chosen) if parts[name].chosen else None}
        for name, own in found.parts.items()
    ]
    return {
        "verdict": found.verdict,
        "deciding": found.deciding,
        "seeds_to_decide": found.seeds_to_decide,
        "parts": told,
    }


def verdict(**parts):
    return entry(**parts)["verdict"]


def said(directions=None, **parts):
    return would_change(entry(**parts), directions=directions or {})


def bounds(sentence, words="than|below|above|by more than"):
    """The numbers behind these words."""
    return [float(text.replace(MINUS, "-")) for text in re.findall(rf"(?:{words}) ({MINUS}?[\d.]+)", sentence)]


def has(text):
    """The numbers that parts are said to have."""
    return [
        float(number.replace(MINUS, "-")) for number in re.findall(rf"it (?:has|is at) ({MINUS}?[\d.]+)\)", text)
    ]


# Claims that are decided -----------------------------------------------------------------------------


@pytest.mark.parametrize("ways", [1, 3])
@pytest.mark.parametrize(
    ("mean", "smallest", "direction", "expected"),
    [
        (2, 0.01, "higher", "supported"),
        (2, 1.4, "higher", "supported"),  # below 1.4 minus a margin it is equivalent before it is undecided
        (-3, 0.01, "higher", "contradicted"),
        (0.1, 4, "higher", "equivalent"),
        (0.1, 4, "either", "equivalent"),
        (4, 1, "either", "supported"),
    ],
)
def test_moved_beyond_a_number_that_is_named_the_verdict_changes(mean, smallest, direction, expected, ways):
    def parts(centre):
        return {f"part-{i}": part(centre, direction=direction) for i in range(ways)}

    def at(centre):
        return verdict(smallest=smallest, **parts(centre))

    assert at(mean) == expected
    found = bounds(said(dict.fromkeys(parts(mean), direction), smallest=smallest, **parts(mean)))
    assert len(found) == (1 if expected == "equivalent" or direction == "either" else 2)
    inside, outside = (1.01, 0.99) if expected != "equivalent" else (0.99, 1.01)  # three figures are written
    assert at(inside * found[0]) == expected
    assert at(outside * found[0]) != expected
    if len(found) == 2:
        other = {"supported": "contradicted", "contradicted": "supported"}[expected]
        assert at(1.01 * found[1]) == other
        assert at(0.99 * found[1]) != other


@pytest.mark.parametrize(("mean", "expected"), [(4, "supported"), (-4, "contradicted")])
def test_over_layers_that_seeds_choose_the_numbers_are_those_of_the_widened_interval(mean, expected):
    sentence = said(it=over_layers(mean))
    assert sentence.startswith("With 8 seeds of this spread, whichever layer they choose, a mean effect ")
    found = bounds(sentence)
    other = {"supported": "contradicted", "contradicted": "supported"}[expected]
    assert verdict(it=over_layers(1.01 * found[0])) == expected == verdict(it=over_layers(mean))
    assert verdict(it=over_layers(0.99 * found[0])) == "undecided"
    assert verdict(it=over_layers(1.01 * found[1])) == other
    assert verdict(it=over_layers(0.99 * found[1])) == "undecided"
    assert abs(found[0]) > abs(bounds(said(it=part(mean)))[0])  # the counter-example: without a choice


def test_over_layers_an_equivalent_effect_need_not_be_as_far_from_0_on_both_sides():
    def at(mean):
        return verdict(smallest=4, it=over_layers(mean))

    low, high = bounds(said(smallest=4, it=over_layers(0)))
    assert low < 0 < high
    assert abs(low + high) > 0.01 * high
    assert [at(0.99 * low), at(0.99 * high)] == ["equivalent"] * 2
    assert "equivalent" not in (at(1.01 * low), at(1.01 * high))


def test_a_trend_must_have_steps_that_agree():
    rising = said(it=part(3, page=0.001))
    assert rising.endswith(" would contradict it. So would steps that do not agree (Page’s test).")
    falling = said(it=part(-3, page=0.9))
    assert falling.endswith(" would support it if the steps agree too (Page’s test).")
    (_, bound) = bounds(falling)
    assert verdict(it=part(1.01 * bound, page=0.04)) == "supported" != verdict(it=part(1.01 * bound, page=0.06))
    assert "Page" not in said(it=part(3)) + said(it=part(-3))


def test_parts_that_fail_beside_the_one_that_decides_are_named():
    sentence = said(worst=part(-4), bad=part(-3), open=part(0.1), good=part(9))
    assert sentence.startswith("For worst: with 8 seeds of this spread, a mean effect above −")
    assert " bad would have to change too. To be supported it also lacks open above " in sentence
    assert "good" not in sentence
    alone = said(worst=part(-4), good=part(9))
    assert alone.endswith("would support it.")


def test_a_claim_that_holds_falls_with_any_part():
    assert said(a=part(9), b=part(4)).endswith(" would contradict it. So would any other part that fails.")


def test_seeds_that_all_show_the_same_number_have_no_spread_to_tell_from():
    assert said(it=part(1, spread=np.zeros(SEEDS))) == (
        "Other seeds than these 8, or more, that do not all show the same number."
    )


# Undecided claims ------------------------------------------------------------------------------------


def test_moved_to_what_they_lack_all_open_parts_together_support_the_claim():
    def parts(factor=None):
        means = {"plain": 0.1, "bounded": -0.2, "layers": -0.3}
        if factor is not None:
            means = {name: factor * wanted[name] for name in means}
        return {
            "holds": part(9),
            "plain": part(means["plain"]),
            "bounded": part(means["bounded"], bounded=True),
            "layers": over_layers(means["layers"]),
        }

    sentence = said(**parts()).partition(" One part alone")[0]
    order = re.findall("(plain|bounded|layers) above", sentence)
    wanted = dict(zip(order, bounds(sentence, "above|by more than"), strict=True))
    assert sorted(order) == ["bounded", "layers", "plain"]
    assert dict(zip(order, has(sentence), strict=True)) == {"plain": 0.1, "bounded": -0.2, "layers": -0.3}
    assert verdict(**parts(1.01)) == "supported"
    for name in order:
        assert verdict(**parts(1.01) | {name: parts(0.99)[name]}) == "undecided"
    assert order[-1] == "plain"  # which lacks least


def test_one_part_alone_would_refute_it_the_nearest_first():
    def parts(near):
        return {"holds": part(9), "open": part(0.1), "near": near}

    for near in (part, over_layers):
        sentence = said(**parts(near(-0.5)))
        assert verdict(**parts(near(-0.5))) == "undecided"
        (bound,) = bounds(sentence, "nearest to that is near, below")
        assert verdict(**parts(near(1.01 * bound))) == "contradicted"
        assert verdict(**parts(near(0.99 * bound))) == "undecided"


def test_to_decide_on_all_open_parts_takes_the_most_seeds_of_any():
    parts = {"holds": part(9), "wide": part(0.1), "narrow": part(0.05, spread=SPREAD / 2)}
    made = entry(smallest=0.4, **parts)
    each = {own["name"]: own["seeds_to_decide"] for own in made["parts"]}
    assert 8 < each["narrow"] < each["wide"] == made["seeds_to_decide"]
    assert would_change(made, directions={}).endswith(f" To decide on every open part takes {each['wide']} seeds.")
    assert entry(smallest=0.4, holds=part(9))["seeds_to_decide"] is None
    assert (
        entry(smallest=0.001, wide=part(0.1), narrow=part(0.0))["seeds_to_decide"] is None
    )  # more than a thousand


def test_of_many_open_parts_those_are_named_that_lack_most():
    sentence = said(**{f"layer-{i}": part(-0.1 * i) for i in range(5)})
    assert re.findall(r"layer-\d(?= above)", sentence) == ["layer-4", "layer-3", "layer-2"]
    assert " and 2 more parts. One part alone would contradict it: nearest to that is layer-4, below " in sentence


def test_steps_that_do_not_agree_are_what_a_rise_lacks():
    lacks = "Page’s test has p = 0.200, and at most 0.05 would do"
    assert said(it=part(3, page=0.2)) == (
        f"Steps that agree, as more seeds may show: the line through them rises, but {lacks}."
    )
    assert said(it=part(0.1, page=0.2)).endswith(f" The steps must agree too: {lacks}.")
    assert f" it in steps that agree ({lacks})." in said(it=part(3, page=0.2), holds=part(9))
    assert re.search(
        rf"it above [\d.]+ nats \(it has 0\.1\) in steps that agree \({lacks}\)\.",
        said(it=part(0.1, page=0.2), holds=part(9)),
    )


def test_where_no_side_is_claimed_a_part_lacks_distance():
    def parts(mean):
        return {"holds": part(9), "it": part(mean, direction="either")}

    sentence = said({"it": "either"}, smallest=1, **parts(-0.7))
    (bound,) = bounds(sentence, "it further from 0 than")
    assert "One part alone would contradict it: nearest to that is holds, " in sentence
    assert (
        verdict(smallest=1, **parts(-1.01 * bound)) == "supported" != verdict(smallest=1, **parts(-0.99 * bound))
    )


def test_the_only_part_is_told_how_many_seeds_it_takes():
    made = entry(smallest=0.5, it=part(0.2))
    (own,) = made["parts"]
    assert would_change(made, directions={}) == (
        f"More seeds. With this spread, 8 seeds find in 8 of 10 experiments an effect of "
        f"{own['smallest_seen']:.3g} nats; to find one of 0.5 nats, or that there is none, takes "
        f"{own['seeds_to_decide']} seeds."
    )
    assert said(smallest=0.5, it=part(0.2, spread=SPREAD[:2])) == "At least 3 seeds; there are 2."
    assert said(smallest=0.5, it=part(0, spread=SPREAD * 0)) == (
        "A finite number in every seed, and a spread between them: more seeds, or a longer measurement."
    )
    assert "none" not in said(smallest=0.5, it=part(0.2, bounded=True))


def test_where_the_seeds_were_enough_for_what_matters_the_effect_is_smaller():
    made = entry(smallest=2, it=part(0.2, bounded=True))
    (own,) = made["parts"]
    assert own["seeds_to_decide"] <= 8
    assert would_change(made, directions={}).endswith(
        ", no more than the 2 that matters; a smaller one takes more."
    )


def test_a_condition_comes_first_and_says_what_it_lacks():
    def parts(mean):
        return {"learned": part(mean, condition=True, bounded=True), "it": part(9)}

    sentence = said(**parts(0.2))
    assert sentence.startswith(
        "First of all its condition must be borne out: learned above its bound by more than "
    )
    (bound,) = bounds(sentence, "by more than")
    assert verdict(**parts(1.01 * bound)) == "supported" != verdict(**parts(0.99 * bound))
    assert not sentence.endswith("; more seeds alone will not do.")
    assert said(**parts(-9)).endswith(" (it is at −9); more seeds alone will not do.")
    assert entry(**parts(-9))["seeds_to_decide"] is None
    assert entry(smallest=0.4, **parts(0.2))["seeds_to_decide"] > 8
    both = said(first=part(0.1, condition=True), second=part(0.2, condition=True), it=part(9))
    assert both.startswith("First of all its conditions must be borne out: first above ")


def test_too_few_seeds_of_one_part_and_numbers_that_are_none_are_what_it_lacks():
    few = {"few": part(1, spread=SPREAD[:2]), "bad": part(-9)}
    assert " To be supported it also lacks few in 3 seeds or more (it has 2)." in said(**few)
    flat = {"flat": part(0, spread=SPREAD * 0), "open": part(0.1)}
    assert " flat as a finite number in every seed, with a spread between them and open above " in said(**flat)
