"""What a spec may say: names, seeds, lists, and how one layer of settings is laid over another."""

from itertools import pairwise

import pytest
from pydantic import ValidationError

from ablations.errors import SpecProblems
from ablations.spec.experiment import Arm, Experiment, nodes
from ablations.spec.load import load
from ablations.wording import equality_key
from tests.support.spec_files import write_spec

MINIMAL = {"name": "x", "version": 1, "arms": {"a": {}}, "seeds": [0]}


def changed(below, above):
    return Arm("below", below, ()).changed("above", above, {}).sections


@pytest.mark.parametrize("name", ["a", "0", "article-tiny", "v1.2_b", "a..b", "x" * 200, "run", "runs2"])
def test_an_experiment_may_be_called(name):
    assert Experiment.model_validate({**MINIMAL, "name": name}).name == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", ".a", "A", "a/b", "a\\b", "a b", "a\n", "ü", "x" * 201, "runs", "tokens", "a\0"]
)
def test_an_experiment_may_not_be_called(name):
    with pytest.raises(ValidationError, match=r"must (consist of|not be runs|not be tokens)"):
        Experiment.model_validate({**MINIMAL, "name": name})


@pytest.mark.parametrize("name", ["mlm", "MLM", "0.15", "mlm,ratio=0.4,norm=pre", "a+b", "runs", "no", "x" * 200])
def test_an_arm_may_be_called(name):
    assert list(Experiment.model_validate({**MINIMAL, "arms": {name: {}}}).arms) == [name]


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "a\\b", ",a", "=a", "a b", "a\n", "x" * 201])
def test_an_arm_may_not_be_called(name):
    with pytest.raises(ValidationError, match=r"must (consist of|not be runs|not be tokens)"):
        Experiment.model_validate({**MINIMAL, "arms": {name: {}}})


def test_only_name_version_arms_and_seeds_are_needed():
    experiment = Experiment.model_validate(MINIMAL)
    assert (experiment.question, experiment.grid, experiment.measures, experiment.claims) == ("", None, (), ())
    for key in MINIMAL:
        with pytest.raises(ValidationError, match=key):
            Experiment.model_validate({other: MINIMAL[other] for other in MINIMAL if other != key})


def test_an_experiment_does_not_change():
    experiment = Experiment.model_validate(MINIMAL)
    with pytest.raises(ValidationError, match="frozen"):
        experiment.name = "y"


def test_a_section_counts_as_written_even_when_it_is_empty():
    experiment = Experiment.model_validate({**MINIMAL, "encoder": {}, "data": {"kind": "language"}})
    assert experiment.written() == {"data": {"kind": "language"}, "encoder": {}}
    assert experiment.arms["a"].written() == {}


def test_a_bare_name_is_the_measure_with_its_defaults():
    bare = Experiment.model_validate({**MINIMAL, "measures": ["layer_change"]})
    full = Experiment.model_validate({**MINIMAL, "measures": [{"kind": "layer_change"}]})
    assert bare.measures == full.measures


def test_identity_is_equality_that_tells_numbers_from_truth():
    assert equality_key(1) == equality_key(1.0)
    assert equality_key([1, {"a": 2, "b": 3}]) == equality_key([1, {"b": 3, "a": 2}])
    different = [1, True, "1", None, [1], {"a": 1}, 0, False, "true"]
    assert len({equality_key(value) for value in different}) == len(different)


def test_mappings_merge_and_everything_else_is_replaced():
    below = {"training": {"max_steps": 5, "precision": "32-true"}, "data": {"train": ["a", "b"]}}
    above = {"training": {"max_steps": 7}, "data": {"train": ["c"]}, "encoder": {"norm": "pre"}}
    assert changed(below, above) == {
        "training": {"max_steps": 7, "precision": "32-true"},
        "data": {"train": ["c"]},
        "encoder": {"norm": "pre"},
    }
    assert changed(below, {}) == changed({}, below) == changed(below, below) == below


def test_null_is_a_value_and_not_a_hole():
    assert changed({"data": {"target": "de"}}, {"data": {"target": None}}) == {"data": {"target": None}}


def test_merging_leaves_what_it_merges_alone():
    below, above = {"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}}
    changed(below, above)
    assert (below, above) == ({"a": {"b": {"c": 1}}}, {"a": {"b": {"d": 2}}})


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ({"kind": "masked_lm", "sees": "x"}, {"kind": "masked_lm", "masking": {"ratio": 1}, "sees": "x"}),
        ({"sees": "x"}, {"kind": "masked_lm", "masking": {"ratio": 1}, "sees": "x"}),
        ({"masking": {"mask": 1}}, {"kind": "masked_lm", "masking": {"ratio": 1, "mask": 1}}),
        ({"kind": "causal_lm"}, {"kind": "causal_lm"}),
        ("masked_lm", "masked_lm"),
    ],
)  # fmt: skip
def test_the_same_kind_merges_and_another_kind_replaces(above, expected):
    below = {"objective": {"kind": "masked_lm", "masking": {"ratio": 1}}}
    assert changed(below, {"objective": above}) == {"objective": expected}


def test_the_short_form_of_a_kind_merges_as_the_mapping_that_it_means():
    below = {"training": {"optimizer": "sgd"}}
    assert changed(below, {"training": {"optimizer": {"momentum": 0.5}}}) == {
        "training": {"optimizer": {"kind": "sgd", "momentum": 0.5}}
    }
    assert changed(below, {"training": {"optimizer": {"kind": "muon"}}}) == {
        "training": {"optimizer": {"kind": "muon"}}
    }


def test_nodes_are_all_paths_below_a_value():
    assert list(nodes({"a": {"b": [1, {"c": 2}]}, "d": None})) == [
        ("a",), ("a", "b"), ("a", "b", 0), ("a", "b", 1), ("a", "b", 1, "c"), ("d",)
    ]  # fmt: skip
    assert list(nodes("text")) == []


UNTIL = {"first": 3, "up_to": 20, "until": "decided"}


def test_seeds_until_decided_follow_the_first_and_are_looked_at_ever_more_widely():
    seeds = Experiment.model_validate({**MINIMAL, "seeds": UNTIL | {"start": 10}}).seeds
    assert seeds.all_seeds == tuple(range(10, 30))
    assert seeds.looks == (3, 4, 5, 6, 7, 9, 11, 13, 16, 20)
    assert Experiment.model_validate(MINIMAL).all_seeds == (0,)


@pytest.mark.parametrize(("first", "up_to"), [(3, 4), (3, 5), (5, 12), (3, 100), (40, 41), (7, 1000)])
def test_looks_rise_from_the_first_to_the_last(first, up_to):
    looks = Experiment.model_validate({**MINIMAL, "seeds": UNTIL | {"first": first, "up_to": up_to}}).seeds.looks
    assert (looks[0], looks[-1]) == (first, up_to)
    assert all(before < after <= max(before + 1, 1.25 * before + 1) for before, after in pairwise(looks))


@pytest.mark.parametrize(
    ("seeds", "sentence"),
    [
        (
            {"first": 3, "up_to": 9, "until": "decided"},
            "seeds are added until the claims are decided, but the spec names no claims; name a file of "
            "claims, as in `claims: [article]`, or write the seeds as a list",
        ),
        (
            {"first": 5, "up_to": 4, "until": "decided"},
            "seeds must have an up_to above first, but has 4 and 5; for a fixed number of seeds write them as a "
            "list, as in [0, 1, 2]",
        ),
        ({"first": 3, "up_to": 9, "until": "tired"}, 'seeds.until must be decided, but is "tired"'),
        (
            {"first": 2, "up_to": 9, "until": "decided"},
            "seeds.first must be greater than or equal to 3, but is 2; raise it",
        ),
        ({"first": 3, "up_to": 9}, "seeds.until is missing (always `decided`)"),
        ({"first": 3, "up_to": 9, "until": "decided", "lokks": 3}, "seeds.lokks is unknown"),
        (3, "seeds must be a list, but is 3; write [0, 1, 2] for 3 seeds, or [3] for seed 3 alone"),
    ],
)
def test_seeds_until_decided_that_mean_nothing(tmp_path, seeds, sentence):
    with pytest.raises(SpecProblems) as raised:
        load(write_spec(tmp_path, seeds=seeds))
    (problem,) = raised.value.problems
    assert problem.sentence.startswith(sentence)
