"""Arrays of jobs on disk: which runs each job trains, and how its attempts went. No torch.

OUT/<experiment>/slurm/<8 hex>/   one folder for each array, written before it is submitted
OUT/<experiment>/ray/<8 hex>/     the same for Ray
    array.json       the runs of each job, and what else the job needs to know
    job.sh           the script of all jobs, for SLURM
    before.sh        shell file that each job reads first, if there is one
    job-3.json       attempts of job 3, and why runs did not end well
    12_3.log         what job 3 of the array 12 printed; on Ray job-3.log
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from ablations.catalogue import MEASURES, Measure, for_run, plain_measures
from ablations.errors import ResultsError
from ablations.runs.places.place import Resources
from lightning_modules.config import Settings
from lightning_modules.config.settings import plugins_of
from lightning_modules.files import read_file, read_while_replaced, write_json, write_whole
from lightning_modules.plugins import recall
from lightning_modules.training.run_directory import RunDirectory

if TYPE_CHECKING:
    from ablations.runs.workspace import Workspace

Engine = Literal["slurm", "ray"]

SCRIPT = Path(__file__).with_name("job.sh")
"""Script of all jobs of SLURM."""


class Array(Settings):
    """Content of array.json: everything that a job needs to know.

    Whoever lists arrays reads this file, also that of an experiment of somebody else. So reading it executes no
    plugin; only `loaded_measures` does.
    """

    data_root: str
    runs: str
    """Folder that holds the folders of all runs."""
    jobs: list[list[str]]
    """For each job, the names of its runs' folders."""
    plugins: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Records of the plugins that define measures."""
    measures: list[dict[str, Any]]
    """Settings of the measures as plain data."""
    resources: Resources
    tries: int
    """Number of attempts without progress after which a job gives up."""

    @cached_property
    def loaded_measures(self) -> list[Measure]:
        """Settings of the measures, after their plugins were executed.

        Raises:
            PluginError: the file of a plugin is gone or has changed.
            ValidationError: another version wrote the measures.
        """
        recall(self.plugins)
        return MEASURES.validate_python(self.measures)


def of_workspace(workspace: "Workspace", jobs: list[list[str]], resources: Resources, *, tries: int) -> Array:
    """Return the array of some jobs of an experiment, with the plugins that define its measures."""
    return Array(
        data_root=str(workspace.data_root),
        runs=str(workspace.out / "runs"),
        jobs=jobs,
        plugins=plugins_of(workspace.experiment.measures),
        measures=plain_measures(workspace.experiment.measures),
        resources=resources,
        tries=tries,
    )


class Ending(Settings):
    """Reason why a run did not end well."""

    message: str
    is_final: bool
    """Whether the run is not tried again before the next `ablate run`."""


class Attempts(Settings):
    """Content of job-N.json, the record of a job's attempts."""

    without_progress: int = 0
    """Number of attempts since the job's last progress, the present one included."""
    progress: int = -1
    """Progress of the job's runs (`job.progress`) when the present attempt began."""
    endings: dict[str, Ending] = Field(default_factory=dict)
    """Runs that did not end well, by the name of the run's folder."""


class JobFiles(NamedTuple):
    """Job of an array, with its files."""

    folder: Path
    number: int
    """Index of the job in the array, from 0."""
    array: Array

    @property
    def run_names(self) -> list[str]:
        """Return the names of the folders of the job's runs."""
        return self.array.jobs[self.number]

    def directory(self, name: str) -> RunDirectory:
        """Return the folder of one of the job's runs, by its name."""
        return RunDirectory(Path(self.array.runs) / name)

    def attempts(self) -> Attempts:
        """Return the record of the job's attempts; an empty one before the first attempt.

        Raises:
            ResultsError: its file cannot be read or is damaged.
        """
        path = self.folder / f"job-{self.number}.json"
        return _record(path, Attempts) if path.exists() else Attempts()

    def write(self, attempts: Attempts) -> None:
        """Replace the record of the job's attempts."""
        write_json(self.folder / f"job-{self.number}.json", attempts.model_dump(mode="json"))

    def measures(self) -> list[Measure]:
        """Return the measures of the job. Their plugins are executed, so only a job itself may call this.

        Raises:
            PluginError: the file of a plugin is gone or has changed.
            ResultsError: another version wrote the measures.
        """
        try:
            return self.array.loaded_measures
        except ValidationError as error:
            raise _unreadable(self.folder / "array.json", error.errors()[0]["msg"]) from error

    def missing(self, name: str) -> int | None:
        """Return how many measures a run lacks; None before it is trained. Plugins are executed for a trained
        run."""
        if not self.directory(name).is_trained():
            return None
        return number_of_missing_measures(
            self.directory(name), self.measures(), data_root=Path(self.array.data_root)
        )


def number_of_missing_measures(
    directory: RunDirectory, measures: Sequence[Measure], *, data_root: Path
) -> int | None:
    """Return how many measures a run lacks; None before it is trained."""
    from ablations.runs import rows  # imports pandas, which an untrained run does not need

    if not directory.is_trained():
        return None
    of_run = list(for_run(measures, directory.settings(), data_root=data_root))
    return len(rows.missing_measures(directory.path, of_run, data_root=data_root))


RecordFile = TypeVar("RecordFile", Array, Attempts)


def _record(path: Path, kind: type[RecordFile]) -> RecordFile:
    """Return the content of a file of an array, or raise a ResultsError if it cannot be read or is damaged."""
    try:
        return read_while_replaced(lambda: kind.model_validate_json(read_file(path)))
    except FileNotFoundError:
        raise ResultsError(
            f"{path} does not exist, but jobs of SLURM and Ray read it; end its jobs if any are in the queue, "
            "then start again."
        ) from None
    except OSError as error:
        reason = error.strerror
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
    raise _unreadable(path, reason)


def _unreadable(path: Path, reason: str | None) -> ResultsError:
    return ResultsError(
        f"{path} is damaged or was written by another version ({reason}); end its jobs if any are in the queue, "
        f"then remove {path.parent}."
    )


def read(folder: Path) -> list[JobFiles]:
    """Return the jobs of the array in a folder.

    Raises:
        ResultsError: its file cannot be read or is damaged.
    """
    array = _record(folder / "array.json", Array)
    return [JobFiles(folder, index, array) for index in range(len(array.jobs))]


def new_folder(experiment: Path, engine: Engine = "slurm") -> Path:
    """Return the path of a new folder for an array, which no other array has; the folder is not made."""
    return experiment / engine / secrets.token_hex(4)


def job_name(folder: Path) -> str:
    """Return the name of an array's jobs, which no other array has: ``smoke-1a2b3c4d``."""
    return f"{folder.parent.parent.name}-{folder.name}"


def written(out: Path, engine: Engine = "slurm") -> dict[str, Path]:
    """Return the folders of all arrays of an output root, by the name of their jobs."""
    return {job_name(path.parent): path.parent for path in out.glob(f"*/{engine}/*/array.json")}


def write(folder: Path, array: Array, *, before: Path | None = None) -> None:
    """Make the folder of an array, with all files that its jobs read.

    Args:
        before: shell file that each job reads first.
    """
    contents = {"job.sh": SCRIPT.read_bytes()} | ({} if before is None else {"before.sh": before.read_bytes()})
    for name, content in contents.items():
        write_whole(folder / name, content)
    write_json(folder / "array.json", array.model_dump(mode="json"))  # last: a folder with it is whole


def latest_jobs(out: Path) -> dict[str, JobFiles]:
    """Return the latest job of each run of an output root that was in one, by the name of the run's folder."""
    written_at: dict[Path, float] = {}
    for folder in [*written(out).values(), *written(out, "ray").values()]:
        with suppress(FileNotFoundError):  # another command removes the array of a submission that is refused
            written_at[folder] = (folder / "array.json").stat().st_mtime
    folders = sorted(written_at, key=written_at.__getitem__)
    return {name: job for folder in folders for job in read(folder) for name in job.run_names}


def endings(out: Path) -> dict[str, Ending]:
    """Return why runs of an output root did not end well, by the name of their folder. The latest job of a
    run counts."""
    latest = latest_jobs(out)
    jobs = {(job.folder, job.number): job for job in latest.values()}
    return {
        name: why
        for job in jobs.values()
        for name, why in job.attempts().endings.items()
        if latest.get(name) is job
    }
