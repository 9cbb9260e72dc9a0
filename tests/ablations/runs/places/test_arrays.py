"""Arrays on disk: who lists them executes nothing, and a job loads the plugins of its measures."""

import hashlib
import json
import shutil

import pytest

from ablations.errors import ResultsError
from ablations.runs.places import arrays, slurm, slurm_queue
from ablations.runs.places.arrays import Array
from ablations.runs.places.place import Resources
from ablations.runs.places.slurm_queue import QueuedJob
from lightning_modules import plugins
from lightning_modules.errors import PluginError
from lightning_modules.training.run_directory import RunDirectory
from tests.support.errors import error_text

SOURCE = "from pathlib import Path\nPath(__file__).with_name('executed').touch()\nNumber = 3\n"


def made(folder, *, records, measures):
    """Makes an array with one run."""
    array = Array(
        data_root=str(folder),
        runs=str(folder / "runs"),
        jobs=[["mlm-s0-0000000000"]],
        plugins=records,
        measures=measures,
        resources=Resources(),
        tries=3,
    )
    path = arrays.new_folder(folder / "it")
    arrays.write(path, array)
    return path


def test_a_folder_that_is_no_array_is_not_to_be_removed(tmp_path):
    assert error_text(ResultsError, arrays.read, tmp_path) == (
        f"{tmp_path / 'array.json'} does not exist, but jobs of SLURM and Ray read it; end its jobs if any are in "
        "the queue, then start again."
    )


@pytest.fixture
def with_plugin(tmp_path):
    """The folder of an array whose measure comes from a plugin that leaves a file when it is executed."""
    source = tmp_path / "mine.py"
    source.write_text(SOURCE)
    record = {"path": str(source), "sha256": hashlib.sha256(source.read_bytes()).hexdigest()}
    return made(tmp_path, records={"mine.py:Number": record}, measures=[{"kind": "mine.py:Number"}])


@pytest.mark.parametrize("has_changed", [False, True])
def test_listing_arrays_executes_no_plugin(with_plugin, tmp_path, monkeypatch, has_changed):
    """A changed file is not looked at either, so that other specs go on."""
    if has_changed:
        (tmp_path / "mine.py").write_text(SOURCE + "# changed")
    (job,) = arrays.read(with_plugin)
    ending = arrays.Ending(message="why", is_final=True)
    job.write(arrays.Attempts(endings={"mlm-s0-0000000000": ending}))
    queued = [QueuedJob("1_0", arrays.job_name(with_plugin), 0, "RUNNING", "None")]
    monkeypatch.setattr(slurm_queue, "queued_jobs", lambda: queued)
    assert arrays.endings(tmp_path) == {"mlm-s0-0000000000": ending}
    assert [watched.files.run_names for watched in slurm.in_queue(tmp_path)] == [["mlm-s0-0000000000"]]
    assert job.missing("mlm-s0-0000000000") is None  # an untrained run
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("is_here", [True, False])
def test_jobs_of_the_original_are_not_those_of_a_copied_output_root(tmp_path, monkeypatch, is_here):
    """Where the original cannot be seen, as with another mount, the jobs may train these runs."""
    root = tmp_path / "root"
    folder = made(root, records={}, measures=[])
    (root / "runs").mkdir()
    shutil.copytree(root, tmp_path / "copy")
    (tmp_path / "link").symlink_to(root)
    queued = [QueuedJob("1_0", arrays.job_name(folder), 0, "RUNNING", "None")]
    monkeypatch.setattr(slurm_queue, "queued_jobs", lambda: queued)
    assert len(slurm.in_queue(root)) == len(slurm.in_queue(tmp_path / "link")) == 1
    if not is_here:
        root.rename(tmp_path / "elsewhere")
    assert len(slurm.in_queue(tmp_path / "copy")) == (0 if is_here else 1)


def test_listing_arrays_keeps_the_tasks_of_the_present_spec(tmp_path):
    """Another spec has a task of the same file name."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "my_task.yaml").write_text(f"# {name}")
    plugins.look_beside(tmp_path / "there" / "spec.yaml")
    record = plugins.load("my_task.yaml").record
    made(tmp_path, records={"my_task.yaml": record}, measures=[])
    plugins.look_beside(tmp_path / "here" / "spec.yaml")
    plugins.load("my_task.yaml")
    assert arrays.endings(tmp_path) == {}
    assert plugins.load("my_task.yaml").part == b"# here"


def test_a_job_refuses_a_plugin_that_has_changed(with_plugin, tmp_path):
    (job,) = arrays.read(with_plugin)
    RunDirectory(tmp_path / "runs" / "mlm-s0-0000000000").path.mkdir(parents=True)
    job.directory("mlm-s0-0000000000").write_state("done", step=1)
    (tmp_path / "mine.py").write_text(SOURCE + "# changed")
    assert error_text(PluginError, job.missing, "mlm-s0-0000000000") == (
        f"mine.py:Number: {tmp_path / 'mine.py'} has changed since the run was planned; restore the file, or "
        "start `ablate run` with the spec, which plans a new run with the changed file."
    )
    assert not (tmp_path / "executed").exists()


def test_an_array_without_plugins_is_read_and_measures_of_another_version_are_said(tmp_path):
    folder = made(tmp_path, records={}, measures=[{"kind": "validation"}])
    path = folder / "array.json"
    content = json.loads(path.read_text())
    del content["plugins"]  # as earlier versions wrote it
    path.write_text(json.dumps(content))
    (job,) = arrays.read(folder)
    assert [settings.kind for settings in job.measures()] == ["validation"]
    path.write_text(json.dumps(content | {"measures": [{"kind": "validation", "old": 1}]}))
    (job,) = arrays.read(folder)
    assert error_text(ResultsError, job.measures) == (
        f"{path} is damaged or was written by another version (Extra inputs are not permitted); end its jobs if "
        f"any are in the queue, then remove {folder}."
    )
