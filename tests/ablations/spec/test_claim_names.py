"""Groups of a claim that its spec's measures never make are errors; those that they may make are none."""

import pytest

from ablations.spec.claim_names import group_faults, groups_of_measures

MEASURES = [
    {"kind": "fine_tuning", "tasks": ["sst2", "mrpc"]},
    {"kind": "token_information", "about": ["input", "previous"]},
    {"kind": "layer_change", "groups": ["frequency"]},
    {"kind": "conditional_independence", "ratios": [0.15, 0.4]},
    {"kind": "generation", "iterations": [1, 4]},
    {"kind": "nothing"},
    "validation",
]


def found(measure, metric, groups, *, needs=None, or_groups=(), kinds=("files",)):
    of = {"measure": measure, "metric": metric, "groups": groups, "or_groups": list(or_groups)}
    effect = {"kind": "difference", "of": of, "arm": "a", "minus": "b"}
    claim = {"name": "x", "needs": {"arms": ["a", "b"], "measures": [measure]} | (needs or {}), "effect": effect}
    return list(group_faults([claim], groups_of_measures(MEASURES, kinds), spec="my.yaml"))


@pytest.mark.parametrize(
    ("measure", "metric", "group", "why"),
    [
        ("fine_tuning", "score", "sst1", '"sst1" as it is set there, only sst2 and mrpc; did you mean sst2?'),
        ("fine_tuning", "score", "rte@100", '"rte@100" as it is set there, only sst2 and mrpc'),
        ("token_information", "plug_in", "next token", '"next token" as it is set there, only previous token'),
        ("layer_change", "pwcca", "tag NOUN", '"tag NOUN" as it is set there, only rank'),
        ("conditional_independence", "joint", "ratio=0.3", '"ratio=0.3" as it is set there, only ratio=0.15 and'),
        (
            "generation",
            "fluency",
            "iterations=9",
            '"iterations=9" as it is set there, only causal_lm, iterations=1',
        ),
    ],
)
def test_a_group_that_no_measure_of_the_spec_makes_is_an_error(measure, metric, group, why):
    (fault,) = found(measure, metric, ["*", group])
    assert fault.path == ("claims", 0, "effect", "of", "groups", 1)
    assert fault.sentence.startswith(f"claims.effect: {measure} of my.yaml never makes the group {why}")


@pytest.mark.parametrize(
    ("measure", "metric", "groups"),
    [
        ("fine_tuning", "score", ["sst2", "mrpc@100", "*"]),
        ("token_information", "plug_in", ["previous token"]),
        ("layer_change", "pwcca", ["rank 1-10"]),
        ("conditional_independence", "joint", ["ratio=0.4"]),
        ("generation", "fluency", ["iterations=4", "causal_lm"]),
        ("validation", "loss", ["masked"]),
        ("probing", "accuracy", ["tree_depth"]),  # which the spec does not measure: another sentence says so
    ],
)
def test_a_group_that_may_be_made_is_none(measure, metric, groups):
    assert found(measure, metric, groups) == []


def test_other_experiments_and_other_texts_are_left_alone():
    assert found("fine_tuning", "score", ["rte"], needs={"spec": "other.yaml"}) == []
    assert found("fine_tuning", "score", ["rte"], or_groups=["sst2"]) == []
    assert len(found("fine_tuning", "score", ["rte"], or_groups=["trec"])) == 1
    built_in = groups_of_measures([{"kind": "fine_tuning"}], ("language",))["fine_tuning"]
    assert "language_topic" in built_in
    assert "sst2" not in built_in
    assert {"language_topic", "sst2"} <= set(
        groups_of_measures([{"kind": "fine_tuning"}], ("language", "files"))["fine_tuning"]
    )
