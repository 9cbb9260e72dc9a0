"""Arrays of jobs, as they would be submitted."""

import json
import shlex

import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.runs.places import arrays, place, queue, slurm
from ablations.runs.places.queue import QueuedJob
from ablations.runs.workspace import Workspace
from tests.support.planned_spec import SPEC


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "it.yaml").write_text(json.dumps(SPEC))
    return Workspace.open(tmp_path / "it.yaml", out=tmp_path / "a 'b; touch c", data_root=tmp_path)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.setattr(queue, "is_installed", lambda: False)


def shapes(workspace, **settings):
    planned = slurm.submissions(workspace, workspace.planned, place=place.Place(**settings))
    return [[len(names) for names in one.array.jobs] for one in planned]


def test_runs_of_one_shape_are_one_array(workspace):
    assert shapes(workspace) == [[1, 1, 1, 1]]
    assert shapes(workspace, runs_per_job=3) == [[2, 2]]
    assert shapes(workspace, runs_at_once=4) == [[4]]
    assert shapes(workspace, arms={"a": place.Resources(gpus=1)}) == [[1, 1], [1, 1]]


def test_an_array_is_cut_where_the_cluster_has_shorter_ones(workspace, monkeypatch):
    monkeypatch.setattr(queue, "LARGEST_ARRAY", 3)
    assert shapes(workspace) == [[1, 1, 1], [1]]


def test_each_run_is_in_one_job(workspace):
    settings = place.Place(runs_per_job=3, arms={"b": place.Resources(cpus=2)})
    planned = slurm.submissions(workspace, workspace.planned, place=settings)
    names = [name for one in planned for job in one.array.jobs for name in job]
    assert sorted(names) == sorted(item.directory.path.name for item in workspace.planned)


def test_a_dry_run_prints_the_commands_and_the_script_and_writes_nothing(workspace, tmp_path):
    (tmp_path / "cluster.yaml").write_text("{partition: gpu, jobs_at_once: 2, runs_per_job: 2}")
    options = ["--out", str(workspace.out), "--on", "slurm", "--place", str(tmp_path / "cluster.yaml")]
    done = CliRunner().invoke(main, ["run", str(workspace.spec), *options, "--dry-run"])
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


def test_the_script_has_no_text_of_a_user(workspace, tmp_path):
    folder = arrays.new_folder(workspace.folder)
    (planned, *_) = slurm.submissions(workspace, workspace.planned, place=place.Place(gpus=1))
    (tmp_path / "before.txt").write_text("module load cuda\n")
    arrays.write(folder, planned.array, before=tmp_path / "before.txt")
    assert (folder / "job.sh").read_bytes() == arrays.SCRIPT.read_bytes()
    assert (folder / "before.sh").read_text() == "module load cuda\n"
    assert arrays.read(folder)[0].array == planned.array


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--place", "c.yaml"], "--place is for jobs of a cluster; add --on slurm or --on ray, or leave it out."),
        (
            ["--on", "slurm", "--slots", "2"],
            "--devices and --slots are for this machine; write devices and runs_at_once into the file of --place.",
        ),
    ],
)
def test_options_of_the_other_place_are_refused(workspace, options, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("partition: gpu")
    done = CliRunner().invoke(main, ["run", str(workspace.spec), "--out", str(workspace.out), *options])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"Error: {sentence}"


def test_jobs_that_wait_are_explained():
    jobs = [
        QueuedJob(f"1_{number}", "it-0", number, state, reason)
        for number, (state, reason) in enumerate(
            [("RUNNING", "None"), ("PENDING", "Priority"), ("PENDING", "JobHeldUser"), ("PENDING", "Priority")]
        )
    ]
    assert slurm.in_words(jobs) == (
        "in SLURM's queue: 1 at work, 2 waiting (Priority), 1 waiting (JobHeldUser: `scontrol release` lets it "
        "start)"
    )
