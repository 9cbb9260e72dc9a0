"""Arms that take no step: untrained ones, and known models that are measured as they are."""

import pandas as pd
import pytest

from ablations.results import STARTS_TRAINED
from ablations.runs.records import Provenance, RunRecord, RunState
from reports.figures.curves import curves_by_arm
from reports.folder import ReportedRun


@pytest.mark.parametrize(
    ("steps", "init", "untrained"),
    [
        (0, None, True),
        (0, {"weights": "random"}, True),
        (0, {"weights": "folder"}, False),
        (5, {"weights": "folder"}, False),
        (5, None, False),
    ],
)
def test_a_run_is_untrained_without_steps_and_without_the_weights_of_another(steps, init, untrained):
    record = RunRecord(run_id="r", folder="f", arm="a", seed=0, max_steps=steps)
    run = ReportedRun(record, RunState(), Provenance(), {} if init is None else {"init": init})
    assert run.is_untrained == untrained


def test_a_curve_at_step_0_is_untrained_unless_its_run_starts_trained():
    rows = pd.DataFrame(
        {"arm": "a", "measure": "geometry", "seed": 0, "step": [0, 0], "value": 1.0, "n": 9, "d": 3}
    )
    assert curves_by_arm(rows, {})["a"].untrained
    assert curves_by_arm(rows, {})["a"].doubt == "untrained"
    known = rows.assign(**{STARTS_TRAINED: True})
    assert curves_by_arm(known, {})["a"].doubt == "gain not measured"
    assert curves_by_arm(known, {"a": 2.0})["a"].doubt == ""
    assert curves_by_arm(rows.assign(**{STARTS_TRAINED: False}), {"a": 2.0})["a"].untrained
