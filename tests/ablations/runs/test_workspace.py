"""A spec with its output root: which runs there are, without making anything."""

import json

import pytest

from ablations.errors import SpecError
from ablations.runs.workspace import Workspace
from tests.support.planned_spec import SPEC

ARMS = {
    "mlm": {"objective": {"kind": "masked_lm"}},
    "half": {"objective": {"kind": "masked_lm", "masking": {"ratio": 0.5}}},
}


@pytest.fixture
def spec(tmp_path):
    content = SPEC | {"arms": ARMS, "match": "predictions"}
    (tmp_path / "it.yaml").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path / "it.yaml"


def opened(spec, **more):
    return Workspace.open(spec, out=spec.parent / "out", data_root=spec.parent, **more)


def steps(workspace):
    return {item.run.arm: item.run.settings.training.max_steps for item in workspace.planned}


def test_looking_tokenises_nothing_and_says_that_steps_are_not_matched(spec):
    workspace = opened(spec)
    assert not (spec.parent / "out").exists()
    assert len(set(steps(workspace).values())) == 1
    sentence = (
        f"{spec}: match: predictions counts predictions in tokens, and {spec.parent / 'out/tokens'} has none of "
        f"this text yet; `ablate run {spec}` makes them. Until then every arm has the steps of the spec."
    )
    assert workspace.unmatched() == [sentence]
    assert workspace.warnings()[0] == sentence


def test_no_plan_of_runs_with_unknown_steps_is_written(spec):
    with pytest.raises(SpecError, match="counts predictions in tokens"):
        opened(spec).write_plan()
    assert not (spec.parent / "out").exists()


def test_looking_sees_the_runs_that_were_matched_before(spec):
    made = opened(spec, tokenise=True)
    assert steps(made)["half"] < steps(made)["mlm"]
    seen = opened(spec)
    assert [item.run_id for item in seen.planned] == [item.run_id for item in made.planned]
    assert seen.unmatched() == []
