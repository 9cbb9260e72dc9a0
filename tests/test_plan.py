"""The plan that an experiment's folder keeps."""

import pytest

from ablations import plan
from lightning_modules.files import read_json


@pytest.mark.parametrize(("runs", "kept"), [(("a", "b"), True), (("a", "c"), False), (("a",), False)])
def test_what_was_known_of_text_that_is_gone_stays_with_the_same_runs_alone(tmp_path, runs, kept):
    spec = tmp_path / "it.yaml"
    spec.write_text("name: it\n", encoding="utf-8")

    def write(runs, data):
        content = {"runs": [{"run_id": run, "state": "planned"} for run in runs]}
        plan.write(content, tmp_path / "out", spec=spec, claims=[], data=data)
        return read_json(tmp_path / "out/plan.json")["data"]

    known = {"address": "x", "train_tokens": 5}
    assert write(("a", "b"), known) == known
    assert write(runs, {}) == (known if kept else {})
    assert write(("a", "b"), {"address": "y"}) == {"address": "y"}
