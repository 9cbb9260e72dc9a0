"""Arrays of jobs, as they would be submitted."""

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

from ablations.measures.settings import ValidationSettings
from ablations.runs import identity
from ablations.runs.identity import create
from ablations.runs.places import arrays, place, slurm, slurm_queue
from ablations.runs.places.slurm_queue import QueuedJob, QueueError
from ablations.runs.workspace import Workspace
from lightning_modules.training.run_directory import RunBusyError
from tests.support.command_line import ablate, refusal_of
from tests.support.errors import error_text
from tests.support.planned_spec import write

VALIDATION = ValidationSettings(kind="validation")


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
    monkeypatch.setattr(slurm_queue, "LARGEST_ARRAY", 3)
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


def test_a_dry_run_refuses_a_partition_that_the_cluster_lacks(workspace, command, monkeypatch, tmp_path):
    command("sinfo", "gpu* 4 infinite 8 9000 (null)")
    (tmp_path / "cluster.yaml").write_text("partition: gpus\n")
    where = ["--out", str(workspace.out), "--data-root", str(tmp_path)]
    options = ["--dry-run", "--on", "slurm", "--place", str(tmp_path / "cluster.yaml"), *where]
    done = ablate("run", workspace.spec, *options)
    assert done.exit_code == 0  # this machine has no SLURM to ask
    monkeypatch.setattr(slurm_queue, "is_installed", lambda: True)
    assert (
        refusal_of("run", workspace.spec, *options)
        == f'{tmp_path / "cluster.yaml"}:1:12: partition must be gpu, but is "gpus"; did you mean gpu?\n'
    )
    command("sinfo", "gpu* 4 infinite 8 9000 (null)\nlong 2 infinite 8 9000 (null)")
    (tmp_path / "cluster.yaml").write_text("partition: long,gpu\nnodes: 4\n")  # whichever starts the job first
    slurm_queue.require_partitions(place.load(tmp_path / "cluster.yaml", place.SlurmPlace, arms=[]))


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


def test_a_command_without_an_answer_says_that_nothing_was_submitted(workspace, command):
    command(
        "squeue", code=1, error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
    )
    settings = place.PlaceFile(None, place.SlurmPlace())
    assert error_text(QueueError, slurm.carry_out, workspace, workspace.planned, place=settings) == (
        "squeue refuses: slurm_load_jobs error: Unable to contact slurm controller (connect failure); nothing was "
        "submitted."
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


def test_an_array_for_which_a_full_queue_has_no_room_is_not_blamed_on_the_file_of_place(
    workspace, command, monkeypatch
):
    """Sbatch then tries again for minutes, and says so; the arrays before it are cancelled."""
    command("scancel")
    command("sbatch", error="sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n")
    script = Path(shutil.which("sbatch"))
    script.write_text(script.read_text().replace("exit 0", "exec sleep 60"))
    monkeypatch.setattr(slurm_queue, "SECONDS_TO_ANSWER", 1.0)
    planned = slurm.submissions(workspace, workspace.planned[:1], place=place.SlurmPlace())
    assert error_text(QueueError, slurm._submit_all, planned, before=None) == (
        "sbatch did not answer within 1 seconds (Slurm temporarily unable to accept job, sleeping and retrying), "
        "so the state of the queue is unknown; give the same command again when `squeue` answers; nothing was "
        "submitted."
    )
    assert not planned[0].folder.exists()


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
    assert slurm_queue.cancel_command([job.queued]) == "scancel 5"


def test_status_says_which_array_has_runs_that_no_job_in_the_queue_has(workspace, command, monkeypatch):
    """As after a full disk, when a job could write no record."""
    monkeypatch.setattr(slurm_queue, "is_installed", lambda: True)
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
    monkeypatch.setattr(slurm_queue, "queued_jobs", lambda: queued)
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
