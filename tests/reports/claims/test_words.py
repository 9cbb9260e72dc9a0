"""What is said of claims: effects, intervals, verdicts and what was left out."""

import pytest

from reports.claims import words as claim_words
from reports.words import MINUS
from tests.support.judged import claim_entry, part_entry


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.05, "0.05"), (0.1234, "0.123"), (1234.5, "1,230"), (-0.5, f"{MINUS}0.5"), (0.0, "0"), (12.0, "12"),
     (100.0, "100"), (None, "\N{EN DASH}"), (2.14e-9, f"2.14e{MINUS}09"), (0.99999, "1")],
)  # fmt: skip
def test_three_figures_and_no_zeros_at_the_end(value, text):
    assert claim_words.significant(value) == text


def test_an_effect_has_the_decimals_that_its_interval_allows():
    made = part_entry(effect=1.23456, low=1.0, high=1.469, unit="nats")
    assert claim_words.effect(made) == "1.23 [1.00, 1.47] nats"
    assert claim_words.mean_and_interval(1.23456, -30.0, 32.0) == f"1 [{MINUS}30, 32]"
    assert claim_words.mean_and_interval(1.23456, 1.23456, 1.23456 + 1e-15, unit="nats") == "1.23 nats"
    assert claim_words.mean_and_interval(float("nan"), 1.0, 1.469) == "\N{EN DASH}"


def test_a_number_against_a_bound_is_written_as_it_was_measured():
    def written(effect, low, high, **numbers):
        parts = [{"name": "copies", "numbers": numbers}]
        claim = claim_entry(parts=parts, deciding="copies", unit="share", effect=effect, low=low, high=high)
        return claim_words.headline_effect(claim)

    at_least = {"measured": 0.9, "at_least": 0.75}
    assert written(0.15, 0.1, 0.2, **at_least) == "0.900 [0.850, 0.950] share (claimed: at least 0.75)"
    at_most = {"measured": 0.6, "at_most": 0.75}
    assert written(0.15, 0.1, 0.2, **at_most) == "0.600 [0.550, 0.650] share (claimed: at most 0.75)"
    # The interval turns round with the sign.
    assert written(0.15, -0.3, 0.6, **at_most) == "0.60 [0.15, 1.05] share (claimed: at most 0.75)"
    assert written(0.15, None, None, **at_most) == "0.6 share (claimed: at most 0.75)"
    assert written(0.15, None, None, measured=0.15) == "0.15 share"
    assert written(None, None, None, measured=0.15) == "\N{EN DASH}"


def test_numbers_beside_an_effect_have_their_interval_and_its_level():
    def written(**numbers):
        return claim_words.further_numbers(part_entry(numbers=numbers))

    assert written() == ""
    top = {"top": 0.21, "top_low": 0.151, "top_high": 0.3}
    assert written(**top, groups_read=8) == "top 0.21 [0.151, 0.3] (95%), tasks or groups averaged: 8"
    assert written(share=0.5, share_low=None, share_high=None) == "share 0.5 (no bounded 95% interval)"
    elsewhere = {"share_elsewhere": 0.5, "share_low_elsewhere": 0.25, "share_high_elsewhere": 0.75}
    assert written(share=1, **elsewhere) == "share 1, share elsewhere 0.5 [0.25, 0.75] (95%)"
    assert written(measured=0.9, at_least=0.75) == "measured 0.9, against the bound of at least 0.75"


def test_seeds_that_are_left_out_for_one_reason_are_named_together():
    absent = [f"seed {seed}: not in every arm" for seed in (45, 46, 47)]
    lacking = "seed 48: numbers of arm mlm are missing"
    other = [f"{name}: the arms differ" for name in ("validation loss", "learning loss")]
    parts = [{"name": "itself", "left_out": (lacking, *other)}]
    beside = [{"name": "other", "left_out": (*absent, lacking)}]
    assert claim_words.left_out(claim_entry(parts=parts, beside=beside)) == [
        "seed 48 left out: numbers of arm mlm are missing",
        "validation loss and learning loss: the arms differ (of itself)",
        "seeds 45, 46 and 47 left out: not in every arm (of other)",
    ]
    assert claim_words.left_out(claim_entry(parts=[{"name": "itself", "left_out": ()}])) == []


def test_a_share_of_a_gain_that_is_too_small_has_no_number():
    def written(condition, verdict):
        parts = [{"name": "kept", "verdict": "undecided"}, {"name": condition, "verdict": verdict}]
        numbers = {"unit": "of the gain", "effect": 0.7, "low": -138.0, "high": 140.0}
        return claim_words.headline_effect(claim_entry(parts=parts, deciding="kept", **numbers))

    assert written("kept-gain", "not testable here") == "no share, as the gain is too small"
    assert written("kept-gain", "undecided") == f"1 [{MINUS}138, 140] of the gain"
    assert written("transfers", "not testable here") == f"1 [{MINUS}138, 140] of the gain"  # another condition


@pytest.mark.parametrize(
    ("verdict", "conditions", "words"),
    [
        ("undecided", ["supported", "undecided"], "condition 1 is not shown yet"),
        ("undecided", ["insufficient evidence", "supported"], "condition 0 is not shown yet"),
        ("not testable here", ["undecided", "not testable here"], "condition 1 fails"),
        ("undecided", ["supported", "supported"], ""),  # the claim itself is open
        ("not run", ["undecided"], ""),
        ("supported", ["supported"], ""),
    ],
)
def test_an_open_claim_names_the_condition_that_it_waits_for(verdict, conditions, words):
    parts = [{"name": str(i), "condition": True, "verdict": of} for i, of in enumerate(conditions)]
    itself = {"name": "itself", "condition": False, "verdict": "undecided"}
    assert claim_words.beside_verdict(claim_entry(verdict=verdict, parts=[*parts, itself])) == words


def test_a_partly_supported_claim_says_how_many_parts_hold():
    """Conditions do not count, and neither do effects that are shown beside the claim."""
    verdicts = ["supported", "equivalent", "undecided"]
    parts = [{"name": of, "condition": False, "decides": True, "verdict": of} for of in verdicts]
    others = [
        {"name": "other", "verdict": "supported", "condition": is_condition, "decides": is_condition}
        for is_condition in (True, False)
    ]
    entry = claim_entry(verdict="partly", parts=[*parts, *others])
    assert claim_words.beside_verdict(entry) == "1 of 3 parts hold"
    none = claim_entry(verdict="partly", parts=[*parts[1:], *others])
    assert claim_words.beside_verdict(none) == "1 of 2 parts equivalent"


def test_a_condition_of_each_seed_shows_the_range_of_its_seeds_in_place_of_an_interval_that_does_not_judge_it():
    numbers = {"effect": 28.1, "low": -53.0, "high": 116.0, "values": [27.9, 28.3, float("nan")], "unit": "BLEU"}
    in_each_seed = {"name": "translates", "verdict": "supported", "condition": True, "in_each_seed": True}
    entry = claim_entry(verdict="supported", parts=[in_each_seed | numbers])
    assert claim_words.effect(entry.parts[0]) == "28.1 BLEU (seeds: 27.9 to 28.3)"
    on_the_mean = claim_entry(verdict="supported", parts=[in_each_seed | numbers | {"in_each_seed": False}])
    assert claim_words.effect(on_the_mean.parts[0]) == "28 [−53, 116] BLEU"
