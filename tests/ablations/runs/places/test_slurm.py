"""Arrays of jobs, as they would be submitted; and the commands of SLURM, played by scripts."""

import shlex
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ablations.errors import SpecError
from ablations.measures.settings import ValidationSettings
from ablations.runs import identity
from ablations.runs.identity import create
from ablations.runs.places import arrays, place, slurm
from ablations.runs.places.slurm import QueuedJob, QueueError
from ablations.runs.workspace import Workspace
from lightning_modules.training.run_directory import RunBusyError
from tests.support.command_line import ablate, refusal_of
from tests.support.errors import error_text
from tests.support.planned_spec import write

VALIDATION = ValidationSettings(kind="validation")


@pytest.fixture
def no_cluster(monkeypatch):
    monkeypatch.setattr(slurm, "is_installed", lambda: False)


@pytest.fixture
def workspace(tmp_path, no_cluster):
    return Workspace.open(write(tmp_path), out=tmp_path / "a 'b; touch c", data_root=tmp_path)


def shapes(workspace, **settings):
    planned = slurm.submissions(workspace, workspace.planned, place=place.SlurmPlace(**settings))
    return [[len(names) for names in one.array.jobs] for one in planned]


def test_runs_of_one_shape_are_one_array(workspace):
    assert shapes(workspace) == [[1, 1, 1, 1]]
    assert shapes(workspace, runs_per_job=3) == [[2, 2]]
    assert shapes(workspace, runs_at_once=4) == [[4]]
    assert shapes(workspace, arms={"a": place.Resources(gpus=1)}) == [[1, 1], [1, 1]]


def test_an_array_is_cut_where_the_cluster_has_shorter_ones(workspace, monkeypatch):
    monkeypatch.setattr(slurm, "LARGEST_ARRAY", 3)
    assert shapes(workspace) == [[1, 1, 1], [1]]


def test_each_run_is_in_one_job(workspace):
    settings = place.SlurmPlace(runs_per_job=3, arms={"b": place.Resources(cpus=2)})
    planned = slurm.submissions(workspace, workspace.planned, place=settings)
    names = [name for one in planned for job in one.array.jobs for name in job]
    assert sorted(names) == sorted(item.directory.path.name for item in workspace.planned)


def test_a_dry_run_prints_the_commands_and_the_script_and_writes_nothing(workspace, tmp_path):
    (tmp_path / "cluster.yaml").write_text("{partition: gpu, jobs_at_once: 2, runs_per_job: 2}")
    options = ["--out", str(workspace.out), "--on", "slurm", "--place", str(tmp_path / "cluster.yaml")]
    done = ablate("run", workspace.spec, *options, "--dry-run")
    assert done.exit_code == 0, done.output
    command, first, second, *script = done.output.splitlines()
    words = shlex.split(command)
    assert words[:3] == ["sbatch", "--parsable", "--array=0-1%2"]
    assert next(word for word in words if word.startswith("--chdir=")).startswith(
        f"--chdir={workspace.out}/it/slurm/"
    )
    assert "--partition=gpu" in words
    assert first.startswith("  job 0: a-s0-")
    assert second.startswith("  job 1: a-s1-")
    assert "#!/bin/bash" in script
    assert not workspace.out.exists()


TUNE = {"settings": {"training.learning_rate": [1e-3, 2e-3]}, "arms": ["a"], "seeds": [9]}


def test_a_dry_run_shows_the_jobs_of_trials_first_and_says_which_runs_follow(tmp_path, no_cluster):
    write(tmp_path, tune=TUNE)
    options = ["--out", str(tmp_path / "out"), "--on", "slurm", "--dry-run"]
    done = ablate("run", tmp_path / "it.yaml", *options)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    jobs = [line.split()[2].rpartition("-")[0] for line in lines if line.startswith("  job ")]
    assert jobs == ["a,learning_rate=0.001-s9", "a,learning_rate=0.002-s9", "b-s0", "b-s1"]
    sentence = lines.index("The runs of a follow when their trials have ended.")
    (trials, others) = (number for number, line in enumerate(lines) if line.startswith("sbatch "))
    assert trials < sentence < others
    assert lines.count("#!/bin/bash") == 1
    only = ablate("run", tmp_path / "it.yaml", *options, "--arm", "b")
    assert "follow when their trials" not in only.output
    assert "learning_rate" not in only.output


def test_the_script_has_no_text_of_a_user(workspace, tmp_path):
    folder = arrays.new_folder(workspace.folder)
    (planned, *_) = slurm.submissions(workspace, workspace.planned, place=place.SlurmPlace(gpus=1))
    (tmp_path / "before.txt").write_text("module load cuda\n")
    arrays.write(folder, planned.array, before=tmp_path / "before.txt")
    assert (folder / "job.sh").read_bytes() == arrays.SCRIPT.read_bytes()
    assert (folder / "before.sh").read_text() == "module load cuda\n"
    assert arrays.read(folder)[0].array == planned.array


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--place", "c.yaml"],
            "--place works only with --on slurm or --on ray; add one of them, or leave --place out.",
        ),
        (
            ["--place", "ray.yaml"],  # it is not read as a file of SLURM
            "--place works only with --on slurm or --on ray; add one of them, or leave --place out.",
        ),
        (
            ["--on", "slurm", "--slots", "2"],
            "--devices and --slots work only on this machine; write devices and runs_at_once into the file of "
            "--place.",
        ),
    ],
)
def test_options_of_the_other_place_are_refused(workspace, options, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("partition: gpu")
    (tmp_path / "ray.yaml").write_text("address: auto")
    done = ablate("run", workspace.spec, "--out", workspace.out, *options)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"Error: {sentence}"


def test_a_run_that_another_command_has_ended_is_not_submitted(workspace, monkeypatch):
    ended, unmeasured, queued, unstarted = (item.directory.path.name for item in workspace.planned)
    left = {ended: 0, unmeasured: 2, queued: None, unstarted: None}
    monkeypatch.setattr(
        arrays, "number_of_missing_measures", lambda directory, *_, **__: left[directory.path.name]
    )
    array = arrays.of_workspace(workspace, [[queued]], place.Resources(), tries=3)
    job = QueuedJob("1_0", "it-0", 0, "RUNNING", "None")
    watched = [slurm.Watched(job, arrays.JobFiles(workspace.folder, 0, array))]
    missing = slurm.to_submit(workspace, workspace.planned, watched)
    assert [item.directory.path.name for item in missing] == [unmeasured, unstarted]


def test_jobs_of_an_earlier_version_of_the_spec_are_named(workspace):
    """They keep nodes that the new runs need. A job that also has a run of the spec goes on."""
    names = [workspace.planned[0].directory.path.name, "a-s0-0123456789"]
    jobs = [names[:1], names[1:], names]
    watched = [
        slurm.Watched(
            QueuedJob(f"{array}_{number}", "it-0", number, "RUNNING", "None"),
            arrays.JobFiles(
                workspace.out / name / "slurm" / "0a1b2c3d",
                number,
                arrays.of_workspace(workspace, jobs, place.Resources(), tries=3),
            ),
        )
        for array, name in ((5, "it"), (6, "other"))
        for number in range(3)
    ]
    assert slurm.for_earlier_runs(workspace, watched) == ["5_1"]


def test_jobs_that_wait_are_explained():
    jobs = [
        QueuedJob(f"1_{number}", "it-0", number, state, reason)
        for number, (state, reason) in enumerate(
            [("RUNNING", "None"), ("PENDING", "Priority"), ("PENDING", "JobHeldUser"), ("PENDING", "Priority")]
        )
    ]
    assert slurm.queue_in_words(jobs) == (
        "in SLURM's queue: 1 at work, 2 waiting (Priority), 1 waiting (JobHeldUser: give `scontrol release` to "
        "let it start)"
    )
    assert slurm.queue_in_words([QueuedJob("2_0", "it-0", 0, "SUSPENDED", "None"), jobs[0]]) == (
        "in SLURM's queue: 1 at work, 1 suspended (they go on when SLURM resumes them)"
    )
    refused = "Job's account not known, so it can't use this partition (acct allows rich)"
    assert slurm.queue_in_words([QueuedJob("2_0", "it-0", 0, "PENDING", refused)]) == (
        f"in SLURM's queue: 0 at work, 1 waiting ({refused}: the partition does not accept its account; `scancel` "
        "the job, change account, start again)"
    )


def test_the_command_that_ends_jobs_names_each_array_once_by_its_number():
    jobs = [QueuedJob(job, "it-0", 0, "RUNNING", "None") for job in ("12_0", "9_0", "12_3")]
    assert slurm.cancel_command(jobs) == "scancel 9 12"


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
    assert slurm.queued_jobs() == [
        QueuedJob("12_0", "grid-0a", 0, "RUNNING", "None"),
        QueuedJob("12_3", "grid-0a", 3, "PENDING", "Resources"),
    ]


def test_a_dry_run_refuses_a_partition_that_the_cluster_lacks(workspace, command, monkeypatch, tmp_path):
    command("sinfo", "gpu* 4 infinite 8 9000 (null)")
    (tmp_path / "cluster.yaml").write_text("partition: gpus\n")
    where = ["--out", str(workspace.out), "--data-root", str(tmp_path)]
    options = ["--dry-run", "--on", "slurm", "--place", str(tmp_path / "cluster.yaml"), *where]
    done = ablate("run", workspace.spec, *options)
    assert done.exit_code == 0  # this machine has no SLURM to ask
    monkeypatch.setattr(slurm, "is_installed", lambda: True)
    assert (
        refusal_of("run", workspace.spec, *options)
        == f'{tmp_path / "cluster.yaml"}:1:12: partition must be gpu, but is "gpus"; did you mean gpu?\n'
    )
    command("sinfo", "gpu* 4 infinite 8 9000 (null)\nlong 2 infinite 8 9000 (null)")
    (tmp_path / "cluster.yaml").write_text("partition: long,gpu\nnodes: 4\n")  # whichever starts the job first
    slurm.require_partitions(place.load(tmp_path / "cluster.yaml", place.SlurmPlace, arms=[]))


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
        SpecError, lambda: slurm.require_partitions(place.load(file, place.SlurmPlace, arms=[]))
    ) == (f"{file}:{line}:13: time_limit must be at most {most}, the limit of the partition, but is {limit}")
    for allowed in ("partition: gpu\ntime_limit: '0:30:00'\n", f"{job}qos: long\n"):
        file.write_text(allowed)
        slurm.require_partitions(place.load(file, place.SlurmPlace, arms=[]))


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
        slurm.require_partitions(place.load(file, place.SlurmPlace, arms=[]))
        return
    assert (
        error_text(SpecError, lambda: slurm.require_partitions(place.load(file, place.SlurmPlace, arms=[])))
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


@pytest.mark.parametrize("name", ["100%A", "a\\b"])
@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_a_path_in_which_slurm_replaces_something_is_refused(workspace, name, options, tmp_path):
    """A job whose log has no folder leaves the queue without a word."""
    out = tmp_path / name
    where = ["--out", str(out), "--data-root", str(tmp_path), "--on", "slurm"]
    assert refusal_of("run", workspace.spec, *where, *options) == (
        f"{out / 'it'}: jobs of SLURM cannot write their logs to a path with % or \\; choose another output root "
        "(--out).\n"
    )
    assert not list(out.glob("it/slurm"))


def test_a_command_that_is_not_there_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert error_text(QueueError, slurm.queued_jobs) == (
        "squeue is not on this machine, and `--on slurm` needs SLURM's commands; start it on a login node of the "
        "cluster, or leave `--on slurm` out."
    )
    assert slurm.largest_array() == 1001


def test_a_configuration_that_is_missing_is_said_at_once(command, monkeypatch, tmp_path):
    command("squeue")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    assert error_text(QueueError, slurm.queued_jobs) == (
        f"SLURM_CONF names {tmp_path / 'slurm.conf'}, which does not exist; name the slurm.conf of the cluster, "
        "or unset SLURM_CONF."
    )
    (tmp_path / "slurm.conf").touch()
    assert slurm.queued_jobs() == []


def test_a_refusal_is_said_in_the_words_of_slurm(command):
    command("squeue", code=1, error="squeue: error: A\nsqueue: error: A\nslurm_load_jobs error: B.\n")
    assert error_text(QueueError, slurm.queued_jobs) == "squeue refuses: A; slurm_load_jobs error: B."


def test_a_command_without_an_answer_says_that_nothing_was_submitted(workspace, command):
    command(
        "squeue", code=1, error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    )
    settings = place.PlaceFile(None, place.SlurmPlace())
    assert error_text(QueueError, slurm.carry_out, workspace, workspace.planned, place=settings) == (
        "squeue refuses: slurm_load_jobs error: Unable to contact slurm controller (connect failure); nothing was "
        "submitted."
    )


def test_a_machine_that_belongs_to_no_cluster_is_said_with_what_to_do(command):
    error = "error: fetch_config: lookup failed\nsqueue: fatal: Could not establish a configuration source\n"
    command("squeue", code=1, error=f"squeue: {error}")
    assert error_text(QueueError, slurm.queued_jobs) == (
        "squeue refuses: fetch_config: lookup failed; fatal: Could not establish a configuration source; start it "
        "on a node of the cluster, or leave `--on slurm` out."
    )


def test_a_machine_without_slurm_cannot_show_the_queue(workspace, monkeypatch, tmp_path):
    """As where a finished folder is read; `status` asks for no `--on slurm` there."""
    array = arrays.of_workspace(
        workspace, [[workspace.planned[0].directory.path.name]], place.Resources(), tries=3
    )
    arrays.write(arrays.new_folder(workspace.folder), array)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.status_notes(workspace.out, set()) == [
        "The state of the queue is unknown, because this machine has no commands of SLURM."
    ]


def test_a_command_that_does_not_answer_is_not_waited_for(monkeypatch):
    def never(command, **options):
        raise subprocess.TimeoutExpired(command, 60)

    monkeypatch.setattr(slurm.subprocess, "run", never)
    assert error_text(QueueError, slurm.queued_jobs) == (
        "squeue did not answer within 60 seconds, so the state of the queue is unknown; give the same command "
        "again when `squeue` answers."
    )


def test_an_array_for_which_a_full_queue_has_no_room_is_not_blamed_on_the_file_of_place(
    workspace, command, monkeypatch
):
    """Sbatch then tries again for minutes, and says so; the arrays before it are cancelled."""
    command("scancel")
    command("sbatch", error="sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n")
    script = Path(shutil.which("sbatch"))
    script.write_text(script.read_text().replace("exit 0", "exec sleep 60"))
    monkeypatch.setattr(slurm, "SECONDS_TO_ANSWER", 1.0)
    planned = slurm.submissions(workspace, workspace.planned[:1], place=place.SlurmPlace())
    assert error_text(QueueError, slurm._submit_all, planned, before=None) == (
        "sbatch did not answer within 1 seconds (Slurm temporarily unable to accept job, sleeping and retrying), "
        "so the state of the queue is unknown; give the same command again when `squeue` answers; nothing was "
        "submitted."
    )
    assert not planned[0].folder.exists()


def test_the_longest_array_is_what_the_cluster_says(command):
    command("sbatch")
    command("scontrol", "MaxArraySize            = 77\n")
    assert slurm.largest_array() == 77


def test_who_interrupts_while_the_queue_does_not_answer_is_told_that_the_jobs_continue(
    workspace, command, monkeypatch
):
    for name in ("squeue", "sbatch"):
        command(name)

    def interrupted(*given, **more):
        command("squeue", code=1, error="slurm_load_jobs error: Unable to contact slurm controller")
        return True, []

    monkeypatch.setattr(slurm, "watch", interrupted)
    options = ["--out", str(workspace.out), "--data-root", str(workspace.data_root), "--on", "slurm"]
    done = ablate("run", workspace.spec, *options)
    assert done.exit_code == 130, done.output
    assert "interrupted; the jobs continue, and the same command shows them again\n" in done.output


def test_a_command_names_the_jobs_of_its_runs_alone(workspace, command):
    """Experiments share an output root. Whoever gives the printed command must not end the jobs of another one."""
    mine = {item.directory.path.name for item in workspace.planned}
    lines = []
    for number, (experiment, names) in enumerate({"it": mine, "other": {"a-s7-0123456789"}}.items(), start=5):
        folder = arrays.new_folder(workspace.out / experiment)
        arrays.write(folder, arrays.of_workspace(workspace, [sorted(names)], place.Resources(), tries=3))
        lines.append(f"{number}_0|0|PENDING|Priority|{arrays.job_name(folder)}\n")
    command("squeue", "".join(lines))
    assert slurm._look(workspace.out, workspace.planned) == (
        mine,
        "in SLURM's queue: 0 at work, 1 waiting (Priority)",
    )
    (job,) = slurm.in_queue_for(workspace.out, workspace.planned)
    assert slurm.cancel_command([job.queued]) == "scancel 5"


def test_status_says_which_array_has_runs_that_no_job_in_the_queue_has(workspace, command, monkeypatch):
    """As after a full disk, when a job could write no record."""
    monkeypatch.setattr(slurm, "is_installed", lambda: True)
    command("squeue")
    slurm_folder, ray_folder = (arrays.new_folder(workspace.folder, engine) for engine in ("slurm", "ray"))
    for folder, names in ((slurm_folder, ["a", "b", "c"]), (ray_folder, ["d"])):
        arrays.write(folder, arrays.of_workspace(workspace, [names], place.Resources(), tries=3))
    assert slurm.status_notes(workspace.out, {"a", "b", "d"}) == [
        f"No job in the queue has 2 open runs of {slurm_folder} any more; if nobody cancelled the job, read its "
        "log there; then start `ablate run` again."
    ]
    command("squeue", f"5_0|0|PENDING|Priority|{arrays.job_name(slurm_folder)}\n")
    assert slurm.status_notes(workspace.out, {"a", "b"}) == [
        "in SLURM's queue: 0 at work, 1 waiting (Priority) (5_0)."
    ]


def test_two_commands_at_once_are_no_strangers_to_each_other(workspace, command, monkeypatch):
    """Each locks the folders of its runs for a moment when it writes their settings."""
    for name in ("squeue", "sbatch"):
        command(name)

    def slow(item):
        create(item)
        with suppress(RunBusyError), item.directory.lock(patience=0):
            time.sleep(0.2)

    monkeypatch.setattr(identity, "create", slow)
    monkeypatch.setattr(slurm, "watch", lambda *_, **options: (False, []))
    settings = place.PlaceFile(None, place.SlurmPlace())
    create(workspace.planned[0])
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(slurm.carry_out, workspace, workspace.planned, place=settings) for _ in range(2)]
        assert [one.result() for one in both] == [(False, [])] * 2


def test_a_run_whose_job_was_submitted_for_other_measures_says_so(workspace, monkeypatch):
    """Another spec submitted the runs of arm a, without the measure; a job of arm b has the measure."""
    by_arm = {arm: [i.directory.path.name for i in workspace.planned if i.run.arm == arm] for arm in "ab"}
    asked = replace(workspace, experiment=workspace.experiment.model_copy(update={"measures": [VALIDATION]}))
    folders = {}
    for arm, source in (("a", workspace), ("b", asked)):
        folders[arm] = arrays.new_folder(workspace.folder)
        array = arrays.of_workspace(source, [by_arm[arm]], place.Resources(), tries=3)
        arrays.write(folders[arm], array)
    queued = [QueuedJob("1_0", arrays.job_name(folder), 0, "RUNNING", "None") for folder in folders.values()]
    monkeypatch.setattr(slurm, "queued_jobs", lambda: queued)
    given = {}

    def watched(*_, **options):
        given.update(options)
        return False, []

    monkeypatch.setattr(slurm, "watch", watched)
    slurm.carry_out(asked, asked.planned, place=place.PlaceFile(None, place.SlurmPlace()))
    assert given["why_lost"](by_arm["a"][0]) == (
        "its job was submitted for other measures; give the same command again"
    )
    assert given["why_lost"](by_arm["b"][0]) == (
        "its job has left the queue, but the run has not ended; if nobody cancelled it, read the logs in "
        f"{folders['b']}; then give the same command again"
    )


SQUEUE = """
[ -e {0}/asked ] && echo {1} || {{ touch {0}/asked; exit 1; }}
"""
SCONTROL = """
echo "$@" >> {0}/requeued
[ "$(wc -l < {0}/requeued)" -ge 2 ] && kill $PPID || exit 1
"""


@pytest.mark.parametrize(("state", "requests"), [("RUNNING", 2), ("COMPLETING", 0)])
@pytest.mark.parametrize(
    ("before", "code"), [(None, 137), ("set -euo pipefail\ncd /\npython=x job=7\n", 137), (None, 75)]
)
def test_a_job_is_requeued_also_if_the_controller_answers_late_but_not_if_it_was_cancelled(
    state, requests, before, code, tmp_path, monkeypatch
):
    """squeue fails once, scontrol once, and srun as after a lost process, or as after a request to save; SLURM
    ends the job after the second request. What the file of `before` sets for its shell changes nothing."""
    if before is not None:
        (tmp_path / "before.sh").write_text(before)
    python = '\necho "$1 $2 $PWD" >> {0}/options'
    srun = '\necho "$SLURM_EXPORT_ENV" > {0}/exported\nexit ' + str(code)
    scripts = {"squeue": SQUEUE, "scontrol": SCONTROL, "srun": srun, "sleep": "", "python": python}
    for name, text in scripts.items():
        (tmp_path / name).write_text("#!/bin/sh" + text.format(tmp_path, state) + "\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    variables = {"ARRAY_TASK_ID": 3, "ARRAY_JOB_ID": 12, "JOB_ID": 15, "JOB_NUM_NODES": 1, "CPUS_PER_TASK": 1}
    for name, number in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", str(number))
    monkeypatch.setenv("SLURM_EXPORT_ENV", "NONE")  # as SLURM sets it in jobs of users with SBATCH_EXPORT=NONE
    done = subprocess.run(["bash", arrays.SCRIPT, tmp_path / "python"], cwd=tmp_path, timeout=60)
    assert done.returncode == (75 if state == "COMPLETING" else -signal.SIGTERM)
    calls = 1 if code == 75 else 2  # what follows a request to save must be quick
    # With -P nothing is imported from the current folder.
    assert (tmp_path / "options").read_text() == f"-P -m {tmp_path}\n" * calls
    assert (tmp_path / "exported").read_text() == "ALL\n"  # else workers lack what before.sh has set
    requeued = tmp_path / "requeued"
    assert (requeued.read_text() if requeued.exists() else "") == "requeue 12_3\n" * requests


def test_the_job_that_a_command_is_started_in_sets_no_options():
    inside = {"SLURM_CONF": "a", "SLURM_MEM_PER_CPU": "1", "SLURM_JOB_ID": "2", "PATH": "b"}
    assert slurm.environment(inside) == {"SLURM_CONF": "a", "PATH": "b"}
