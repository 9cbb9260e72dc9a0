"""Preparation of runs: what is checked before the first one starts."""

import json

import numpy as np
import pytest
from rich.console import Console

from ablations.errors import AblationsError
from ablations.runs.prepare import prepare_text
from ablations.runs.workspace import Workspace
from tests.support.planned_spec import SPEC


def test_tokens_that_changed_on_the_disk_are_refused_before_a_run_starts(tmp_path):
    """One other token id of the right size and range would train another model, and nobody would know."""
    (tmp_path / "it.yaml").write_text(json.dumps(SPEC | {"measures": ["validation"]}))
    workspace = Workspace.open(tmp_path / "it.yaml", out=tmp_path / "out", data_root=tmp_path)
    prepare_text(workspace, workspace.planned, Console(quiet=True))
    (path,) = tmp_path.glob("out/tokens/*/train.ids.npy")
    ids = np.load(path, mmap_mode="r+")
    ids[5] ^= 1
    ids.flush()
    with pytest.raises(AblationsError) as error:
        prepare_text(workspace, workspace.planned, Console(quiet=True))
    assert str(error.value).endswith(
        f"arm a: The token store {path.parent} is damaged: train.ids.npy has changed since it was written; delete "
        "the folder, then `ablate run` writes it again."
    )
    ids[5] ^= 1
    ids.flush()
    prepare_text(workspace, workspace.planned, Console(quiet=True))
