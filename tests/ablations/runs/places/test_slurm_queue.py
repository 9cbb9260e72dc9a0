"""The commands of SLURM, played by scripts."""

import subprocess

import pytest

from ablations.errors import SpecError
from ablations.runs.places import place, slurm_queue
from ablations.runs.places.slurm_queue import QueuedJob, QueueError
from tests.support.errors import error_text


def test_jobs_that_wait_are_explained():
    jobs = [
        QueuedJob(f"1_{number}", "it-0", number, state, reason)
        for number, (state, reason) in enumerate(
            [("RUNNING", "None"), ("PENDING", "Priority"), ("PENDING", "JobHeldUser"), ("PENDING", "Priority")]
        )
    ]
    assert slurm_queue.queue_in_words(jobs) == (
        "in SLURM's queue: 1 at work, 2 waiting (Priority), 1 waiting (JobHeldUser: give `scontrol release` to "
        "let it start)"
    )
    assert slurm_queue.queue_in_words([QueuedJob("2_0", "it-0", 0, "SUSPENDED", "None"), jobs[0]]) == (
        "in SLURM's queue: 1 at work, 1 suspended (they go on when SLURM resumes them)"
    )
    refused = "Job's account not known, so it can't use this partition (acct allows rich)"
    assert slurm_queue.queue_in_words([QueuedJob("2_0", "it-0", 0, "PENDING", refused)]) == (
        f"in SLURM's queue: 0 at work, 1 waiting ({refused}: the partition does not accept its account; `scancel` "
        "the job, change account, start again)"
    )


def test_the_command_that_ends_jobs_names_each_array_once_by_its_number():
    jobs = [QueuedJob(job, "it-0", 0, "RUNNING", "None") for job in ("12_0", "9_0", "12_3")]
    assert slurm_queue.cancel_command(jobs) == "scancel 9 12"


def test_jobs_are_those_of_arrays(command):
    command(
        "squeue", "12_0|0|RUNNING|None|grid-0a\n12_3|3|PENDING|Resources|grid-0a\n13_N/A|N/A|RUNNING|None|a|b\n"
    )
    assert slurm_queue.queued_jobs() == [
        QueuedJob("12_0", "grid-0a", 0, "RUNNING", "None"),
        QueuedJob("12_3", "grid-0a", 3, "PENDING", "Resources"),
    ]


@pytest.mark.parametrize(
    ("limits", "job", "most", "line"),
    [
        ("gpu* 4 30:00 8 9000 (null)", "time_limit: '0:30:01'\n", "30:00", 1),
        (
            "gpu* 4 1:00:00 8 9000 (null)\nlong 2 2-00:00:00 8 9000 (null)",
            "partition: gpu,long\ntime_limit: 2-00:00:01\n",
            "2-00:00:00",
            2,
        ),
        (
            "gpu* 4 1-00:00:00 8 9000 (null)",
            "time_limit: '0:00:00'\n",
            "1-00:00:00",
            1,
        ),  # no limit is more than a day
    ],
)
def test_a_job_longer_than_its_partition_allows_is_refused(limits, job, most, line, command, tmp_path):
    """SLURM would accept it, and it would wait for ever."""
    command("sinfo", limits)
    file = tmp_path / "cluster.yaml"
    file.write_text(job)
    limit = job.split("time_limit: ")[1].strip().strip("'")
    assert error_text(
        SpecError, lambda: slurm_queue.require_partitions(place.load(file, place.SlurmPlace, arms=[]))
    ) == (f"{file}:{line}:13: time_limit must be at most {most}, the limit of the partition, but is {limit}")
    for allowed in ("partition: gpu\ntime_limit: '0:30:00'\n", f"{job}qos: long\n"):
        file.write_text(allowed)
        slurm_queue.require_partitions(place.load(file, place.SlurmPlace, arms=[]))


NODES = (
    "cpu* 9 infinite 64 8000 (null)\n"
    "mixed 2 infinite 16 2000000 gpu:A100:4(S:0-1),shard:8\n"
    "mixed 1 infinite 8 16000 gpu:v100:2,gpu:t4:3"
)


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ("gpus: 1", "1:7: gpus must be at most 0, because no node of the partition has more GPUs, but is 1"),
        (
            "gpus: 6\npartition: cpu,mixed",
            "1:7: gpus must be at most 5, because no node of the partition has more GPUs, but is 6",
        ),
        (
            "gpus: 3\npartition: mixed\ngpu_type: v100",
            "1:7: gpus must be at most 2, because no node of the partition has more v100 GPUs, but is 3",
        ),
        ("cpus: 65", "1:7: cpus must be at most 64, because no node of the partition has more cores, but is 65"),
        (
            "cpus: 17\npartition: mixed",
            "1:7: cpus must be at most 16, because no node of the partition has more cores, but is 17",
        ),
        (
            "memory: 8G",
            "1:9: memory must be at most 8000M, because no node of the partition has more, but is 8G",
        ),
        ("memory: 8000M", None),
        ("memory: 1T\npartition: cpu,mixed", None),
        ("cpus: 64\npartition: mixed,cpu", None),
        ("gpus: 5\npartition: cpu,mixed", None),
        ("gpus: 4\npartition: mixed\ngpu_type: a100", None),
    ],
)
def test_cores_memory_and_gpus_that_no_node_has_are_refused(job, sentence, command, tmp_path):
    command("sinfo", NODES)
    file = tmp_path / "cluster.yaml"
    file.write_text(job)
    if sentence is None:
        slurm_queue.require_partitions(place.load(file, place.SlurmPlace, arms=[]))
        return
    assert (
        error_text(SpecError, lambda: slurm_queue.require_partitions(place.load(file, place.SlurmPlace, arms=[])))
        == f"{file}:{sentence}"
    )


@pytest.mark.parametrize(
    ("resources", "kind", "number"),
    [
        ("(null)", None, 0),
        ("gpu:4", None, 4),
        ("gpu:4", "a100", 4),  # of which type is unknown
        ("gpu:3090:2(S:0,1)", "3090", 2),
        ("gpu:a100:2,gpu:a100:2", "a100", 4),
        ("gpu", "a100", float("inf")),
        ("gpu:a100", None, float("inf")),
        ("mps:100", None, 0),
    ],
)
def test_gpus_are_read_as_slurm_writes_them(resources, kind, number):
    assert place.gpus_of_type(place.gpus_of_node(resources), kind) == number


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        ("30:00", 1800),
        ("1:00:00", 3600),
        ("2-00:00:30", 172_830),
        ("infinite", float("inf")),
        ("0:00:00", float("inf")),
    ],
)
def test_limits_are_read_as_slurm_writes_them(limit, seconds):
    assert place.seconds_of(limit) == seconds


def test_a_command_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert error_text(QueueError, slurm_queue.queued_jobs) == (
        "squeue is not on this machine, and `--on slurm` needs SLURM's commands; start `ablate` on a login node "
        "of the cluster, or leave `--on slurm` out."
    )
    assert slurm_queue.largest_array() == 1001


def test_a_configuration_that_is_missing_is_said_at_once(command, monkeypatch, tmp_path):
    command("squeue")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert error_text(QueueError, slurm_queue.queued_jobs) == (
        f"SLURM_CONF names {tmp_path / 'slurm.conf'}, which does not exist; name the slurm.conf of the cluster, "
        "or unset SLURM_CONF."
    )
    (tmp_path / "slurm.conf").touch()
    assert slurm_queue.queued_jobs() == []


def test_a_refusal_is_said_in_the_words_of_slurm(command):
    command("squeue", code=1, error="squeue: error: A\nsqueue: error: A\nslurm_load_jobs error: B.\n")
    assert error_text(QueueError, slurm_queue.queued_jobs) == "squeue refuses: A; slurm_load_jobs error: B."


def test_a_machine_that_belongs_to_no_cluster_is_said_with_what_to_do(command):
    error = "error: fetch_config: lookup failed\nsqueue: fatal: Could not establish a configuration source\n"
    command("squeue", code=1, error=f"squeue: {error}")
    assert error_text(QueueError, slurm_queue.queued_jobs) == (
        "squeue refuses: fetch_config: lookup failed; fatal: Could not establish a configuration source; start it "
        "on a node of the cluster, or leave `--on slurm` out."
    )


def test_a_command_that_does_not_answer_is_not_waited_for(monkeypatch):
    def never(command, **options):
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(slurm_queue.subprocess, "run", never)
    assert error_text(QueueError, slurm_queue.queued_jobs) == (
        "squeue did not answer within 60 seconds, so the state of the queue is unknown; give the same command "
        "again when `squeue` answers."
    )


def test_the_longest_array_is_what_the_cluster_says(command):
    command("sbatch")
    command("scontrol", "MaxArraySize            = 77\n")
    assert slurm_queue.largest_array() == 77


def test_the_job_that_a_command_is_started_in_sets_no_options():
    inside = {"SLURM_CONF": "a", "SLURM_MEM_PER_CPU": "1", "SLURM_JOB_ID": "2", "PATH": "b"}
    assert slurm_queue.environment(inside) == {"SLURM_CONF": "a", "PATH": "b"}
