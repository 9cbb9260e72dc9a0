"""Claims that are judged at looks, while seeds are added."""

import numpy as np
import pytest
from scipy import stats

from ablations import results
from ablations.runs.records import Look, Looks
from ablations.spec import claims as claims_file
from reports.claims.outcomes import (
    Stop,
    after_look,
    is_futile,
    levels_at_looks,
    look_levels,
    outcomes,
    outcomes_at_looks,
)
from reports.claims.select import SeedTable
from reports.claims.words import look_sentence, look_words
from reports.statistics.seed_tests import t_interval
from tests.support.judged import claim_entry
from tests.support.loss_claims import claims_of

SIZES = (3, 4, 6, 9)
SEEDS = list(range(10, 19))


def table(copied_arms=(), **values_by_arm):
    """A table with a validation loss for each seed in turn, of each arm."""
    return SeedTable(
        results.table(
            {"run_id": f"{arm}-{seed}", "arm": arm, "seed": seed, "experiment": "x", "step": 5}
            | {"measure": "validation", "metric": "loss", "group": None, "value": float(value), "floor": 9.0}
            for arm, values in values_by_arm.items()
            for seed, value in zip(SEEDS, values, strict=False)
        ),
        copied_arms=copied_arms,
    )


def looks(*taken, futile=()):
    """Looks with the arms of each; the claims in `futile` were given up at the last."""
    return Looks(
        all_seeds=SEEDS,
        sizes=SIZES,
        seeds_of={},
        taken=[
            Look(seeds=size, arms=arms, futile=list(futile) if number == len(taken) else [])
            for number, (size, arms) in enumerate(zip(SIZES, taken, strict=False), start=1)
        ],
    )


EXPERIMENT = {"arms": ["a", "b", "base"], "measures": ["validation"]}


def judged(claims, rows, taken):
    return outcomes_at_looks(claims, rows, taken, **EXPERIMENT)


BASE = [0.0, 0.001, -0.001, 0.0005, -0.0005, 0.0, 0.001, -0.001, 0.0]
CLEAR = [1.0, 1.01, 0.99, 1.02, -9.0, -9.0, -9.0, -9.0, -9.0]
"""Decided with three seeds, and the other way with nine."""


def test_the_first_look_that_decides_gives_the_verdict_whatever_later_seeds_show(tmp_path):
    claims = claims_of(tmp_path, ("more", "a", {}))
    both = ["a", "base"]
    (outcome,) = judged(claims, table(a=CLEAR, base=BASE), looks(both, both, both)).values()
    assert outcome.judgement.verdict == "supported"
    assert outcome.look == Stop(1, 4, 3, 9, "decided", look_levels(SIZES, level=0.05)[0], None)
    assert levels_at_looks(outcome.item, SIZES, 0.05) == look_levels(SIZES, level=0.05)  # at later looks too
    part = outcome.judgement.parts[outcome.judgement.deciding]
    assert part.seeds == (10, 11, 12)
    assert part.confidence == 0.95  # over all looks
    alone = t_interval(part.values, confidence=1 - outcome.look.level)
    assert (part.low, part.high) == pytest.approx((alone.low, alone.high))
    (at_once,) = outcomes(claims, table(a=CLEAR, base=BASE), **EXPERIMENT).values()
    assert at_once.judgement.verdict != "supported"
    assert at_once.look is None


def two_parts(tmp_path, smallest):
    """A claim with a part about the arm a and one about b, with the smallest effect of each."""
    path = tmp_path / "claims/some.yaml"
    claims_of(tmp_path, ("more", "a", {"smallest": 0.1}))
    effect = "{kind: difference, of: {measure: validation, metric: loss}, arm: %s, minus: base, %sunit: nats}"
    own = {arm: f"smallest_effect: {size}, " for arm, size in smallest.items()}
    parts = "".join(f"      of-{arm}: {effect % (arm, own[arm])}\n" for arm in "ab")
    text = path.read_text().replace(f"    effect: {effect % ('a', '')}\n", f"    effects:\n{parts}")
    path.write_text(text.replace("arms: [a, base]", "arms: [a, b, base]"))
    return claims_file.load(path).claims


def test_a_claim_that_is_partly_true_goes_on_while_a_part_is_open(tmp_path):
    """At three seeds one part makes no difference, and the other is undecided: nine seeds contradict it."""
    claims, arms = two_parts(tmp_path, {"a": 0.1, "b": 0.1}), ["a", "b", "base"]
    lower = [-0.5, -0.1, -0.3, -0.35, -0.25, -0.3, -0.4, -0.2, -0.3]
    rows = table(a=BASE, b=lower, base=[0.0] * 9)
    taken = [looks(*[arms] * count) for count in range(1, 5)]
    found = [judged(claims, rows, one)["more"] for one in taken]
    assert (found[0].judgement.verdict, found[0].look.end) == ("partly", "open")
    assert levels_at_looks(found[0].item, SIZES, 0.05) == look_levels(SIZES, level=0.05, ways=2)
    assert {name: part.verdict for name, part in found[0].judgement.parts.items()} == {
        "of-a": "equivalent",
        "of-b": "undecided",
    }
    assert after_look({"more": found[0]}, taken[0]) == (dict.fromkeys(arms, 4), [])
    assert (found[-1].judgement.verdict, found[-1].look.end) == ("contradicted", "decided")


def test_copies_of_a_run_are_one_seed_and_get_no_more(tmp_path):
    """A claim about two arms of copies has one seed. If one arm varies, every seed counts."""
    claims, arms = claims_of(tmp_path, ("more", "a", {})), ["a", "base"]
    same = {"a": [1.0] * 9, "base": [0.0] * 9}
    (alone,) = outcomes(claims, table(**same), **EXPERIMENT).values()
    assert alone.judgement.verdict == "supported"  # nine seeds that agree, if they are seeds
    (outcome,) = outcomes(claims, table(arms, **same), **EXPERIMENT).values()
    assert outcome.judgement.verdict == "insufficient evidence"
    (part,) = outcome.item.parts.values()
    assert (part.seeds, part.copied_seeds) == ((10,), tuple(SEEDS[1:]))
    (at_look,) = (found := judged(claims, table(arms, **same), looks(arms))).values()
    assert at_look.look.end == "not testable"
    assert after_look(found, looks(arms)) == ({}, [])
    (varied,) = outcomes(claims, table(["a"], **same | {"base": BASE}), **EXPERIMENT).values()
    assert (varied.judgement.verdict, varied.judgement.parts["more"].seeds) == ("supported", tuple(SEEDS))


def test_seeds_beyond_the_last_look_do_not_count(tmp_path):
    rng = np.random.default_rng(0)
    claims = claims_of(tmp_path, ("more", "a", {}))
    rows = table(a=rng.normal(0, 1, 9), base=BASE)
    (outcome,) = judged(claims, rows, looks(["a", "base"])).values()
    assert (outcome.judgement.verdict, outcome.look.end, outcome.look.seeds) == ("undecided", "open", 3)
    assert outcome.look.level == pytest.approx(0.05 * 3 / 9)
    assert outcome.level == 0.05


def test_a_claim_is_judged_at_looks_that_had_all_its_arms(tmp_path):
    claims = claims_of(tmp_path, ("of-a", "a", {}), ("of-b", "b", {}))
    rows = table(a=CLEAR, b=CLEAR, base=BASE)
    found = judged(claims, rows, looks(["a", "base"], ["a", "b", "base"]))
    assert [found[name].look.seeds for name in ("of-a", "of-b")] == [3, 4]
    assert {one.level for one in found.values()} == {0.025}


def test_a_claim_that_waits_for_its_runs_takes_its_share_of_the_level(tmp_path):
    """Else a claim whose runs end first would be judged at a level that is not shared: with three seeds that
    are clear at 5% and not at 2.5%, it would be decided, and open again once the other runs end."""
    claims = claims_of(tmp_path, ("of-a", "a", {}), ("of-b", "b", {}), ("of-c", "c", {}))
    at_looks = judged(claims, table(a=CLEAR, base=BASE), looks(["a", "base"]))
    assert at_looks["of-a"].level == 0.025  # there is no arm c
    assert at_looks["of-b"].judgement is None
    three = table(a=[1.0, 1.5, 0.8], base=[0.0, 0.0, 0.0])
    assert 0.025 < stats.ttest_1samp([1.0, 1.5, 0.8], 0.0).pvalue < 0.05
    outcome = outcomes(claims, three, **EXPERIMENT)["of-a"]
    assert (outcome.level, outcome.judgement.verdict) == (0.025, "undecided")
    (alone,) = outcomes(claims_of(tmp_path, ("of-a", "a", {})), three, **EXPERIMENT).values()
    assert (alone.level, alone.judgement.verdict) == (0.05, "supported")


def test_noise_is_no_verdict_more_often_than_the_level_of_a_family_says(tmp_path):
    """Two claims about the same base with six looks; a seed of one arm lacks its number at the first looks."""
    claims = claims_of(tmp_path, ("of-a", "a", {"smallest": 1e-9}), ("of-b", "b", {"smallest": 1e-9}))
    rng, everything, tables = np.random.default_rng(3), ["a", "b", "base"], 400
    taken = looks(everything, everything, everything, everything)
    wrong = 0
    for _ in range(tables):
        b = rng.normal(0, 1, 9)
        b[:2] = np.nan
        found = judged(claims, table(a=rng.normal(0, 1, 9), b=b, base=BASE), taken)
        wrong += any(one.judgement and one.look.end == "decided" for one in found.values())
    assert wrong <= tables * 0.05 + 3 * np.sqrt(tables * 0.05 * 0.95)


def test_before_the_first_look_a_claim_is_not_judged(tmp_path):
    claims = claims_of(tmp_path, ("more", "a", {}))
    (outcome,) = judged(claims, table(a=CLEAR, base=BASE), looks()).values()
    assert (outcome.judgement, outcome.look) == (None, None)
    assert outcome.item.missing == ("the first look at the claim is taken with 3 seeds of its arms",)
    assert outcome.item.parts


def test_a_claim_names_the_failed_runs_that_it_waits_for(tmp_path):
    """The look at another claim was taken."""
    claims = claims_of(tmp_path, ("of-a", "a", {}), ("of-b", "b", {}))
    rows, failed = table(a=CLEAR, b=[np.nan, *CLEAR[1:]], base=BASE), [("b", 10), ("gone", 11)]
    found = outcomes_at_looks(claims, rows, looks(["a", "base"]), failed=failed, **EXPERIMENT)
    assert found["of-a"].judgement.verdict == "supported"
    assert found["of-b"].item.missing == (
        "the first look at the claim is taken with 3 seeds of its arms; it waits for runs that failed: b, seed 10",
    )


def test_a_condition_that_fails_in_a_seed_ends_it_for_good(tmp_path):
    loss = "{measure: validation, metric: loss}"
    low = f"{{low: {{kind: difference, of: {loss}, arm: a, at_most: 1.5, in_each_seed: true}}}}"
    claims = claims_of(tmp_path, ("more", "a", {"provided": low}))
    both = ["a", "base"]
    (outcome,) = judged(claims, table(a=[1.0, 5.0, 1.0, 1.0], base=BASE), looks(both, both)).values()
    assert (outcome.judgement.verdict, outcome.look.end) == ("not testable here", "not testable")
    assert outcome.look.seeds == 3


def test_after_a_look_the_arms_of_open_claims_go_on(tmp_path):
    rng = np.random.default_rng(1)
    claims = claims_of(tmp_path, ("of-a", "a", {}), ("of-b", "b", {"smallest": 0.8}))
    rows = table(a=CLEAR, b=rng.normal(0.5, 1.0, 9), base=BASE)
    taken = looks(["a", "b", "base"])
    assert after_look(judged(claims, rows, taken), taken) == ({"b": 4, "base": 4}, [])


def test_a_claim_that_is_added_later_gets_the_seeds_after_its_last_look(tmp_path):
    rng, everything = np.random.default_rng(1), ["a", "b", "base"]
    claims = claims_of(tmp_path, ("of-b", "b", {"smallest": 0.8}))
    taken = looks(everything, everything, ["a", "base"])
    assert after_look(judged(claims, table(b=rng.normal(0.5, 1, 9), base=BASE), taken), taken) == (
        {"b": 6, "base": 6},
        [],
    )


NEAR_ZERO = [0.3, -0.3, 0.31, -0.29, 0.3, -0.31, 0.29, -0.3, 0.3]


def test_a_claim_that_the_seeds_left_would_not_decide_is_given_up(tmp_path):
    """Differences of .3 to either side: that they are below .01 takes thousands of seeds."""
    both = ["a", "base"]
    rows, claims = table(a=NEAR_ZERO, base=BASE), claims_of(tmp_path, ("more", "a", {}))
    three, six = looks(both), looks(both, both, both)
    assert after_look(judged(claims, rows, three), three) == ({"a": 4, "base": 4}, [])  # too few to tell
    assert after_look(judged(claims, rows, six), six) == ({}, ["more"])


def test_a_claim_that_is_partly_true_is_given_up_if_the_seeds_left_would_not_decide_its_open_part(tmp_path):
    claims, arms = two_parts(tmp_path, {"a": 0.1, "b": 1e-5}), ["a", "b", "base"]
    six = looks(arms, arms, arms)
    (outcome,) = (found := judged(claims, table(a=BASE, b=NEAR_ZERO, base=[0.0] * 9), six)).values()
    assert (outcome.judgement.verdict, outcome.look.end) == ("partly", "open")
    assert after_look(found, six) == ({}, ["more"])


def test_a_claim_without_a_whole_seed_is_not_given_up(tmp_path):
    both = ["a", "base"]
    claims, taken = claims_of(tmp_path, ("more", "a", {})), looks(both, both, both)
    rows = table(a=[1.0, 2.0, *[np.nan] * 7], base=[np.nan, np.nan, *BASE[2:]])
    assert after_look(judged(claims, rows, taken), taken)[1] == []


def test_giving_up_is_rare_where_an_effect_that_matters_is_there(tmp_path):
    """An effect of two standard deviations, undecided at the first look: a verdict is likely, so it goes on."""
    rng, both = np.random.default_rng(2), ["a", "base"]
    claims = claims_of(tmp_path, ("more", "a", {"smallest": 0.5}))
    taken = looks(both)
    still_open = given_up = 0
    for _ in range(60):
        (outcome,) = judged(claims, table(a=rng.normal(2, 1, 9), base=BASE), taken).values()
        if outcome.look.end == "open":
            still_open += 1
            given_up += is_futile(outcome, taken)
    assert still_open > 30
    assert given_up <= 0.1 * still_open


def test_a_claim_that_was_given_up_and_one_without_seeds_left_say_so(tmp_path):
    claims = claims_of(tmp_path, ("more", "a", {}))
    rows, both = table(a=NEAR_ZERO, base=BASE), ["a", "base"]
    (futile,) = judged(claims, rows, looks(both, both, futile=["more"])).values()
    assert futile.look.end == "futile"
    (last,) = judged(claims, rows, looks(both, both, both, both)).values()
    assert last.look.end == "out of seeds"
    assert (
        look_words(claim_entry(look=vars(last.look))) == "look 4 of 4, with 9 of up to 9 seeds: no seeds are left"
    )
    assert look_words(claim_entry(look=vars(futile.look))) == (
        "look 2 of 4, with 4 of up to 9 seeds: given up with 4 seeds, because the remaining seeds would hardly "
        "decide it"
    )
    assert look_words(claim_entry()) == ""


def test_a_look_is_told_in_a_sentence(tmp_path):
    claims = claims_of(tmp_path, ("of-a", "a", {}), ("of-b", "b", {}))
    taken = looks(["a", "b", "base"])
    found = judged(claims, table(a=CLEAR, b=NEAR_ZERO, base=BASE), taken)
    assert look_sentence(found, taken, futile=[]) == (
        "look with 3 seeds at 2 claims: 1 supported and 1 undecided; next with 4 seeds: of-b."
    )
    assert look_sentence(found, taken, futile=["of-b"]) == (
        "look with 3 seeds at 2 claims: 1 supported and 1 undecided; given up, because more seeds would hardly "
        "decide them: of-b."
    )
    decided = judged(claims, table(a=CLEAR, b=CLEAR, base=BASE), looks(["a", "b", "base"], ["new"]))
    assert (
        look_sentence(decided, looks(["a", "b", "base"], ["new"]), futile=[]) == ""
    )  # no claim needs the new arm
