"""Record of the files that results.parquet was gathered from, so that they are not read again. No torch.

OUT/<experiment>/gathered.json has the version of each file that was read. A file is unchanged as long as its
inode, size and times are those of the record. A program can set back the time of the last write, but not the
time at which the file's entry changed; so both count. A copied folder has other times, and is read again.
"""

import functools
import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import Field

import ablations
import lightning_modules
from ablations.results import write_whole
from ablations.runs.identity import PlannedRun
from ablations.runs.records import Record
from ablations.runs.rows import Measured

NAME = "gathered.json"
"""Name of the record, in the folder of an experiment's results."""

READ = ("measures.parquet", "metrics.jsonl", "state.json", "provenance.json")
"""Files of a run from which its rows in the table of results are made."""

SETTLED_SECONDS = 2.0
"""Age of a file from which its times tell its versions apart. Some file systems count whole or even seconds,
so a file that was just written could change again without another time."""

MISSING = "missing"

Version = str | None
"""Version of a file, MISSING without a file, None if the file is too young for its version to be known."""


class Gathered(Record):
    """Content of gathered.json."""

    table: tuple[Version, ...] = ()
    """Hash of what was planned and asked for, and the versions of comparisons.parquet and results.parquet."""
    runs: dict[str, tuple[Version, Version, Version, Version]] = Field({})
    """Versions of the files READ, by the name of the run's folder."""
    measured: dict[str, list[Measured]] = Field({})
    """Measures and steps with rows, by the name of the run's folder."""

    def is_current(self, now: "Gathered") -> bool:
        """Return whether results.parquet need not be gathered again: nothing that it was made from has changed
        since, and it has not either."""
        same = self.table == now.table and self.runs == now.runs
        return same and None not in self.table and not any(None in versions for versions in self.runs.values())

    def measured_in(self, run_dir: Path) -> list[Measured] | None:
        """Return the measures and steps with rows in a run's file; None if the file has changed or is not
        known."""
        before = self.runs.get(run_dir.name, (None,))[0]
        if before in (None, MISSING) or version(run_dir / READ[0]) != before:
            return None
        return self.measured.get(run_dir.name)


def read(folder: Path) -> Gathered:
    """Return the record in an experiment's folder. It is empty if there is none, or if it is damaged: then all
    files are read again."""
    try:
        seal, _, text = (folder / NAME).read_bytes().partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != seal:
            return Gathered()
        return Gathered.model_validate_json(text)
    except (OSError, ValueError):
        return Gathered()


def now(
    experiment: str, planned: Sequence[PlannedRun], *, keys: Mapping[str, str | None], folder: Path
) -> Gathered:
    """Return the record of the files as they are now, without what is measured.

    Args:
        keys: digest of each measure's files, by its key.
    """
    about = [[item.run_id, item.run.arm, item.run.seed, item.tokens, item.directory.path.name] for item in planned]
    inputs = json.dumps([experiment, about, sorted(keys.items()), _code()])
    return Gathered(
        table=(
            hashlib.sha256(inputs.encode()).hexdigest(),
            version(folder / "comparisons.parquet"),
            version(folder / "results.parquet", age=0.0),
        ),
        runs={path.name: _versions(path) for path in (item.directory.path for item in planned)},
    )


def _versions(run_dir: Path) -> tuple[Version, Version, Version, Version]:
    measures, log, state, provenance = (version(run_dir / name) for name in READ)
    return measures, log, state, provenance


def write(record: Gathered, measured: Iterable[tuple[str, Measured]], folder: Path) -> None:
    """Write the record into an experiment's folder, after results.parquet was written.

    Args:
        record: result of `now` before the files were read, so that a change since then is noticed.
        measured: measures and steps with rows, each with the name of the run's folder.
    """
    by_run: dict[str, list[Measured]] = {name: [] for name in record.runs}
    for name, one in measured:
        by_run[name].append(one)
    table = (*record.table[:2], version(folder / "results.parquet", age=0.0))
    text = record.model_copy(update={"table": table, "measured": by_run}).model_dump_json().encode()
    write_whole(folder / NAME, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)


def version(path: Path, *, age: float = SETTLED_SECONDS) -> Version:
    """Return the version of a file.

    The file is opened, as an NFS client then asks its server; without that it may answer from memory.

    Args:
        age: seconds for which the file must not have changed for its version to be known.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a planted pipe must not block
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if time.time() - max(status.st_mtime, status.st_ctime) < age:
        return None
    return f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


@functools.cache
def _code() -> str:
    """Return a hash of the source of the packages that make the table."""
    sha256 = hashlib.sha256()
    for package in (ablations, lightning_modules):
        for path in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            sha256.update(hashlib.sha256(path.read_bytes()).digest())
    return sha256.hexdigest()
