"""What a spec may say, without files: names, lists, and how one layer of settings is laid over another."""

import pytest
from pydantic import ValidationError

from ablations.spec.experiment import Arm, Experiment, nodes
from ablations.wording import identity

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
    with pytest.raises(ValidationError, match="folder"):
        Experiment.model_validate({**MINIMAL, "name": name})


@pytest.mark.parametrize("name", ["mlm", "MLM", "0.15", "mlm,ratio=0.4,norm=pre", "a+b", "runs", "no", "x" * 200])
def test_an_arm_may_be_called(name):
    assert list(Experiment.model_validate({**MINIMAL, "arms": {name: {}}}).arms) == [name]


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "a\\b", ",a", "=a", "a b", "a\n", "x" * 201])
def test_an_arm_may_not_be_called(name):
    with pytest.raises(ValidationError, match="folder"):
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
    assert identity(1) == identity(1.0)
    assert identity([1, {"a": 2, "b": 3}]) == identity([1, {"b": 3, "a": 2}])
    different = [1, True, "1", None, [1], {"a": 1}, 0, False, "true"]
    assert len({identity(value) for value in different}) == len(different)


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


def test_nodes_are_all_paths_below_a_value():
    assert list(nodes({"a": {"b": [1, {"c": 2}]}, "d": None})) == [
        ("a",), ("a", "b"), ("a", "b", 0), ("a", "b", 1), ("a", "b", 1, "c"), ("d",)
    ]  # fmt: skip
    assert list(nodes("text")) == []
