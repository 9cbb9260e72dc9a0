"""The JSON Schema that editors check specs with."""

import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from ruamel.yaml import YAML

from ablations.spec.experiment import Experiment
from ablations.spec.load import claims_schema, schema

SHIPPED = sorted((Path(__file__).parents[3] / "experiments").glob("*.yaml"))
GOOD = {
    "name": "x",
    "version": 1,
    "data": {"kind": "files", "train": ["a.txt"], "validation": "b.txt", "target": None},
    "encoder": {"hidden_size": 64},
    "objective": {"masking": {"ratio": 1}},
    "arms": {"mlm": {"objective": {"kind": "masked_lm"}}, "mlm,b=1": {"data": {"max_length": 64}}, "c": {}},
    "grid": {"base": "mlm", "axes": {"encoder.norm": ["pre", "post"]}, "exclude": [{"encoder.norm": "pre"}]},
    "seeds": [0, 1],
    "measures": ["layer_change", {"kind": "validation", "translations": 3}],
    "claims": ["article"],
}
BAD = [
    {"name": "Bad"},
    {"name": "runs"},
    {"version": 2},
    {"qestion": "?"},
    {"data": {"kind": "language", "trian": 3}},
    {"data": {"kind": "tape"}},
    {"data": {"kind": "files", "train": 3}},
    {"data": {"kind": "language", "vocab_size": 15}},
    {"encoder": {"dropout": 1}},
    {"encoder": {"hidden_size": 1.5}},
    {"encoder": {"norm": "none"}},
    {"objective": {"masking": {"ratio": 0}}},
    {"objective": {"kind": "causal_lm", "masking": {}}},
    {"arms": {}},
    {"arms": {"a": None}},
    {"arms": {"a/b": {}}},
    {"arms": {"a": {"encodr": {}}}},
    {"arms": {"a": {"encoder": {"hidden_sise": 3}}}},
    {"seeds": []},
    {"seeds": [1, 1]},
    {"seeds": [-1]},
    {"seeds": 1},
    {"measures": ["layer_chang"]},
    {"measures": [{"tokens": 200}]},
    {"grid": {"axes": {"encoder.norm": ["pre"]}}},
    {"grid": {"base": "mlm", "axes": {"encoder.norm": []}}},
]
ANNOTATIONS = {"$schema", "$defs", "title", "description", "default", "discriminator"}
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}


def accepts(rule, value, root):
    """Whether a schema accepts a value: the keywords that ours uses, by the words of the standard."""
    keywords = {
        "$ref": lambda ref: accepts(root["$defs"][ref.removeprefix("#/$defs/")], value, root),
        "anyOf": lambda rules: any(accepts(one, value, root) for one in rules),
        "oneOf": lambda rules: sum(accepts(one, value, root) for one in rules) == 1,
        "not": lambda one: not accepts(one, value, root),
        "const": lambda constant: value == constant,
        "enum": lambda values: value in values,
        "type": lambda name: isinstance(value, bool) if name == "boolean" else fits_type(value, name),
        "minimum": lambda bound: not isinstance(value, int | float) or value >= bound,
        "maximum": lambda bound: not isinstance(value, int | float) or value <= bound,
        "exclusiveMinimum": lambda bound: not isinstance(value, int | float) or value > bound,
        "exclusiveMaximum": lambda bound: not isinstance(value, int | float) or value < bound,
        "minLength": lambda least: not isinstance(value, str) or len(value) >= least,
        "pattern": lambda pattern: not isinstance(value, str) or re.search(pattern, value),
        "minItems": lambda least: not isinstance(value, list) or len(value) >= least,
        "uniqueItems": lambda _: not isinstance(value, list) or all(value.count(one) == 1 for one in value),
        "items": lambda one: not isinstance(value, list) or all(accepts(one, item, root) for item in value),
        "minProperties": lambda least: not isinstance(value, dict) or len(value) >= least,
        "required": lambda names: not isinstance(value, dict) or set(names) <= set(value),
    }
    members = ("properties", "patternProperties", "additionalProperties")
    assert set(rule) <= {*keywords, *members, *ANNOTATIONS}, "this test does not know all keywords of the schema"
    kept = all(keywords[word](argument) for word, argument in rule.items() if word in keywords)
    items = value.items() if isinstance(value, dict) else ()
    return kept and all(members_fit(rule, key, item, root) for key, item in items)


def fits_type(value, name):
    return isinstance(value, TYPES[name]) and not isinstance(value, bool)


def members_fit(rule, key, item, root):
    patterns = [one for pattern, one in rule.get("patternProperties", {}).items() if re.search(pattern, key)]
    named = [rule["properties"][key]] if key in rule.get("properties", {}) else []
    others = rule.get("additionalProperties", True)
    if not patterns and not named:
        return others if isinstance(others, bool) else accepts(others, item, root)
    return all(accepts(one, item, root) for one in patterns + named)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_spec_fits(path):
    assert accepts(schema(), YAML(typ="safe", pure=True).load(path), schema())


def test_parts_of_sections_and_short_forms_fit():
    assert accepts(schema(), GOOD, schema())


@pytest.mark.parametrize("wrong", BAD, ids=str)
def test_what_load_refuses_in_one_place_does_not_fit(wrong):
    assert not accepts(schema(), {**GOOD, **wrong}, schema())


def test_the_validator_of_the_standard_agrees():
    jsonschema = pytest.importorskip("jsonschema", reason="compares with the jsonschema package")
    validator = jsonschema.Draft202012Validator(schema())
    validator.check_schema(schema())
    for spec in [GOOD, *(YAML(typ="safe", pure=True).load(path) for path in SHIPPED)]:
        validator.validate(spec)
    for wrong in BAD:
        assert not validator.is_valid({**GOOD, **wrong}), wrong


def test_what_must_be_there_is_what_the_spec_needs():
    with pytest.raises(ValidationError) as caught:
        Experiment.model_validate({})
    assert {error["loc"][0] for error in caught.value.errors()} == set(schema()["required"])


def test_every_key_explains_itself():
    """An editor shows descriptions. A kind needs none, and what has a definition of its own has it there."""
    definitions = {"spec": schema(), **schema()["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, definition in definitions.items()
        for key, value in definition["properties"].items()
        if "description" not in value and "$ref" not in value and key not in ("kind", "sees")
    ]
    assert all("description" in definition for definition in definitions.values())
    assert set(silent) <= {"LanguageData.vocab_size", "LanguageData.max_length"}, "say what these are"


CLAIM = {
    "name": "more",
    "says": "It changes more.",
    "source": "a paper",
    "needs": {"arms": ["mlm", "clm"], "measures": ["layer_change"]},
    "effect": {
        "kind": "difference",
        "of": {"measure": "layer_change", "metric": "pwcca"},
        "arm": "mlm",
        "minus": "clm",
    },
    "smallest_effect": 0.01,
    "expect": "supported",
    "because": "so it is",
    "family": "one",
}


def test_the_schema_of_claims_is_a_schema_and_accepts_ours():
    Draft202012Validator.check_schema(claims_schema())
    validator = Draft202012Validator(claims_schema())
    files = sorted((SHIPPED[0].parent / "claims").glob("*.yaml"))
    assert files
    for path in files:
        assert list(validator.iter_errors(YAML(typ="safe").load(path))) == [], path.name
    assert validator.is_valid({"version": 1, "claims": [CLAIM]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"expect": "perhaps"},
        {"smallest_effect": 0},
        {"sayz": "?"},
        {"name": "Not a name"},
        {"effect": {"kind": "differenc", "arm": "mlm"}},
        {"needs": {"arm": ["mlm"]}},
    ],
)
def test_the_schema_of_claims_refuses(wrong):
    validator = Draft202012Validator(claims_schema())
    assert not validator.is_valid({"version": 1, "claims": [CLAIM | wrong]})
    left_out = {key: value for key, value in CLAIM.items() if key != "source"}
    assert not validator.is_valid({"version": 1, "claims": [left_out]})
