"""The commands of SLURM, played by scripts."""

import subprocess

import pytest

from ablations.runs.places import queue
from ablations.runs.places.queue import QueuedJob, QueueError


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


def test_jobs_are_those_of_arrays(command):
    command(
        "squeue", "12_0|0|RUNNING|None|grid-0a\n12_3|3|PENDING|Resources|grid-0a\n13_N/A|N/A|RUNNING|None|a|b\n"
    )
    assert queue.jobs() == [
        QueuedJob("12_0", "grid-0a", 0, "RUNNING", "None"),
        QueuedJob("12_3", "grid-0a", 3, "PENDING", "Resources"),
    ]
    assert [job.waits for job in queue.jobs()] == [False, True]


def test_a_command_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(QueueError) as raised:
        queue.jobs()
    assert str(raised.value) == (
        "squeue is not on this machine, and `--on slurm` needs SLURM's commands; start it on a login node of the "
        "cluster, or leave `--on slurm` out."
    )
    assert queue.largest_array() == 1001


def test_a_refusal_is_said_in_the_words_of_slurm(command):
    command("squeue", code=1, error="squeue: error: A\nsqueue: error: A\nslurm_load_jobs error: B.\n")
    with pytest.raises(QueueError) as raised:
        queue.jobs()
    assert str(raised.value) == "squeue refuses: A; slurm_load_jobs error: B."


def test_a_command_that_does_not_answer_is_not_waited_for(monkeypatch):
    def never(command, **options):
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(queue.subprocess, "run", never)
    with pytest.raises(QueueError) as raised:
        queue.jobs()
    assert str(raised.value) == (
        "squeue did not answer within 60 seconds, so nobody knows what is in the queue; start the same command "
        "again when `squeue` answers."
    )


def test_the_longest_array_is_what_the_cluster_says(command):
    command("sbatch")
    command("scontrol", "MaxArraySize            = 77\n")
    assert queue.largest_array() == 77


def test_the_job_that_a_command_is_started_in_sets_no_options():
    inside = {"SLURM_CONF": "a", "SLURM_MEM_PER_CPU": "1", "SLURM_JOB_ID": "2", "PATH": "b"}
    assert queue.environment(inside) == {"SLURM_CONF": "a", "PATH": "b"}
