"""Curves know their sample, their gain and what makes them say little."""

import pytest

from ablations import results
from reports.figures.by_arm import arm_lines
from reports.figures.curves import choose
from tests.support.fake_experiment import ARMS, LAYERS
from tests.support.figures import (
    information,
)


def test_change_from_the_embeddings_to_a_later_layer_is_not_a_consecutive_change(table):
    chosen = choose(table, measure="layer_change", metric="pwcca")
    assert (chosen["layer_to"] - chosen["layer"] == 1).all()
    assert len(chosen) == len(ARMS) * 3 * LAYERS


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
