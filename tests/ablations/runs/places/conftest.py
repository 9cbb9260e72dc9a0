"""Commands of SLURM that are scripts, and a machine without them."""

import pytest

from ablations.runs.places import slurm_queue


@pytest.fixture
def no_cluster(monkeypatch):
    monkeypatch.setattr(slurm_queue, "is_installed", lambda: False)


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Makes a command that prints a text, or refuses."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name, text="", *, code=0, error=""):
        (tmp_path / "out").write_text(text)
        (tmp_path / "error").write_text(error)
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\ncat {tmp_path}/out\ncat {tmp_path}/error >&2\nexit {code}\n")
        script.chmod(0o755)

    return make
