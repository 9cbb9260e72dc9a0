"""Reader of an experiment's folder: it reads and checks the files, and computes nothing.

`is_fresh` tells whether a page still fits the files on disk, without drawing it again.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import pandas as pd
from pydantic import BaseModel, ValidationError

from ablations import results, yamlfile
from ablations.errors import ResultsError, SpecError
from ablations.results import STARTS_TRAINED, TEXT
from ablations.runs.records import (
    PLAN_AGAIN,
    PUBLISHED_PROVENANCE,
    RUNS_FILE,
    Plan,
    Provenance,
    RunRecord,
    RunSettingsRecord,
    RunState,
    checksum,
    read_file,
    read_json,
    unreadable,
)
from ablations.wording import REFUSED, printable

LONGEST_NAME = 255
"""Largest number of bytes that file systems accept in the name of a folder."""


class ReportedRun(NamedTuple):
    """Planned run with its state, provenance and settings."""

    plan: RunRecord
    state: RunState
    provenance: Provenance
    settings: dict[str, Any]
    tokens: str | None = None
    """Address of the token store that the run reads; None if it is not known."""

    @property
    def is_untrained(self) -> bool:
        """Return whether the run keeps its random initial weights."""
        return self.plan.max_steps == 0 and not self.starts_trained

    @property
    def starts_trained(self) -> bool:
        """Return whether the run starts from the weights of a model that was trained elsewhere."""
        return (self.settings.get("init") or {}).get("weights") == "folder"


QUICK = "Measured with effort quick, on a part of the data: no evidence."
"""Sentence that is shown beside every number of a measure with `effort: quick`."""


class ReportedExperiment(NamedTuple):
    """Experiment as read from its folder, with everything that a page can show."""

    plan: Plan
    spec: str
    runs: list[ReportedRun]
    table: pd.DataFrame
    """Results of the planned runs alone; empty before anything is measured. A measure of a run is there only if
    it was measured at the run's last step, so that no earlier number stands for it. If some runs start from a
    trained model, the column STARTS_TRAINED marks them. If runs read different texts, the column TEXT tells them
    apart."""
    foreign_rows: int
    """Rows of results.parquet that belong to no run of the plan."""
    folder: Path | None = None
    """Folder that was read."""
    made_from: str = ""
    """Result of `digest` for what was read."""
    measures: tuple[str, ...] = ()
    """Kinds of measures that the spec asks for."""
    quick: tuple[str, ...] = ()
    """Kinds of measures with `effort: quick`: they read a part of the data, which is no evidence."""
    damaged: tuple[RunRecord, ...] = ()
    """Runs that are `unreadable` now and were not when the plan was written."""
    begun: Mapping[str, frozenset[str]] = MappingProxyType({})
    """Measures, by run id, of rows that the table lacks, because they are of earlier steps than the run's last."""


Some = TypeVar("Some", bound=BaseModel)


def read(folder: Path) -> ReportedExperiment:
    """Read an experiment from its folder OUT/NAME, with the records of its runs as `run_texts` finds them.

    A run without files has the state of a planned run. A run with a record that is damaged, or that this user may
    not read, is `unreadable`, also in the plan. An experiment without results has an empty table.

    Raises:
        ResultsError: plan.json is missing, or a file is damaged.
    """
    plan = read_plan(folder)
    texts = run_texts(folder, plan.runs)
    run_folders = folder.parent / "runs"
    made_from = _digest(folder, plan, texts)
    runs = [_run(run_folders, planned, texts[planned.run_id]) for planned in plan.runs]
    before = {run.run_id for run in plan.runs if run.unreadable is not None}
    plan = plan.model_copy(update={"runs": [run.plan for run in runs]})
    spec, results_file = folder / "spec.yaml", folder / "results.parquet"
    table = (
        results.read(results_file, remedy=_remedy(folder, "start `ablate run` again"))
        if results_file.exists()
        else results.table([])
    )
    arms = {arm: printable(arm) for arm in table["arm"].unique()}  # as in the plan
    if any(arm != shown for arm, shown in arms.items()):
        table["arm"] = table["arm"].map(arms)
    planned_runs = pd.MultiIndex.from_tuples([(run.run_id, run.arm) for run in plan.runs] or [("", "")])
    is_planned = pd.MultiIndex.from_frame(table[["run_id", "arm"]]).isin(planned_runs)
    is_begun = is_planned & _is_begun(table, plan.runs)
    measures = _measures(spec) if spec.is_file() else []
    started = [run.plan.run_id for run in runs if run.starts_trained]
    if started:
        table[STARTS_TRAINED] = table["run_id"].isin(started)
    addresses = {run.plan.run_id: run.tokens for run in runs}
    if len({*addresses.values()} - {None}) > 1:
        table[TEXT] = table["run_id"].map(addresses)
    return ReportedExperiment(
        plan=plan,
        spec=printable(spec.read_text(encoding="utf-8", errors="replace")) if spec.is_file() else "",
        runs=runs,
        table=table[is_planned & ~is_begun].reset_index(drop=True),
        foreign_rows=int((~is_planned).sum()),
        folder=folder,
        made_from=made_from,
        damaged=tuple(run for run in plan.runs if run.unreadable is not None and run.run_id not in before),
        measures=tuple(kind for kind, _ in measures),
        quick=tuple(kind for kind, effort in measures if effort == "quick"),
        begun={str(run_id): frozenset(of_run) for run_id, of_run in table[is_begun].groupby("run_id")["measure"]},
    )


def _is_begun(table: pd.DataFrame, runs: Iterable[RunRecord]) -> "pd.Series[bool]":
    """Return whether each row is of a measure that the run has at earlier steps than its last one alone.

    Two runs of different length have no last step in common, so the rows of such a pair count as complete.
    """
    ends = pd.Series({run.run_id: run.max_steps for run in runs if run.max_steps is not None}, dtype="Int64")
    end, other_end = (table[name].map(ends) for name in ("run_id", "other_run_id"))
    of_a_run = table.groupby(["run_id", "arm", "measure", "other_run_id"], dropna=False)["step"]
    is_early = (of_a_run.transform("max") < end).fillna(False)
    return (is_early & (table["other_run_id"].isna() | (other_end == end).fillna(False))).astype(bool)


def read_plan(folder: Path) -> Plan:
    """Read plan.json, and check that the folder of every run is a plain name.

    Raises:
        ResultsError: the file is missing or damaged, or a run's folder leads out of the folder of runs.
    """
    path = folder / "plan.json"
    if not path.is_file():
        raise ResultsError(f"{path} does not exist; `ablate run` with the spec writes it.")
    remedy = _remedy(folder, PLAN_AGAIN)
    plan = _record(folder, "plan.json", _text(path, remedy), Plan, remedy)
    for run in plan.runs:
        is_name = Path(run.folder).name == run.folder and run.folder not in ("", "..") and "\0" not in run.folder
        if not is_name or len(run.folder.encode(errors="replace")) > LONGEST_NAME:
            raise ResultsError(f"{path}: {run.folder[:60]!r} cannot be the name of a run's folder; {remedy}.")
    return plan


def _measures(spec: Path) -> list[tuple[str, Any]]:
    """Return the kinds of measures that a spec names, each with its effort. Returns an empty list if the spec
    cannot be read, as with a spec of another version."""
    try:
        named = yamlfile.read(spec).content.get("measures")
    except SpecError:
        return []
    entries = named if isinstance(named, list) else []
    records = [entry if isinstance(entry, dict) else {"kind": entry} for entry in entries]
    return [(kind, record.get("effort")) for record in records if isinstance(kind := record.get("kind"), str)]


REMEDY = "delete it and start `ablate run` again"
"""What a user should do about a damaged file of a run."""

TAKE_AGAIN = "take it again from where it was published"
"""What a user should do about a damaged file of a published folder, whose runs are not on this machine."""


def is_published(folder: Path) -> bool:
    """Return whether a folder of results is a published one, or a copy of one in an output root."""
    return any((folder / name).is_file() for name in (PUBLISHED_PROVENANCE, RUNS_FILE))


def _remedy(folder: Path, of_own_results: str) -> str:
    return TAKE_AGAIN if is_published(folder) else of_own_results


RUN_RECORDS = ("run.json", "state.json", "provenance.json")
"""Files of a run that say what it is, how far it is, and where it ran."""

UNREADABLE = "unreadable"
"""Name, in place of those of RUN_RECORDS, of the sentence on a file of a run that cannot be read."""


def run_texts(folder: Path, runs: Iterable[RunRecord]) -> dict[str, dict[str, str]]:
    """Return the texts of the files RUN_RECORDS of each run, by run id and file name; UNREADABLE stands alone.

    They are read from the run's folder. If a run has no folder, they come from runs.parquet of the published
    experiment. Missing files are left out.

    Raises:
        ResultsError: runs.parquet is damaged.
    """
    published: dict[str, dict[str, str]] = {}
    if (folder / RUNS_FILE).is_file():
        table = results.read_sealed(folder / RUNS_FILE, remedy=TAKE_AGAIN)
        for row in table.to_pylist():  # a file that a run lacked is null
            run_id = row.pop("run_id")
            published[run_id] = {name: text for name, text in row.items() if text is not None}
    texts = {}
    for run in runs:
        path = f"{folder.parent}/runs/{run.folder}"
        texts[run.run_id] = published.get(run.run_id, {})
        if run.unreadable is None and os.path.isdir(path):
            try:
                of_run = {name: _text(f"{path}/{name}", REMEDY) for name in RUN_RECORDS}
            except ResultsError as error:
                of_run = {UNREADABLE: str(error)}
            texts[run.run_id] = {name: text for name, text in of_run.items() if text is not None}
    return texts


NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO)
"""Errors of a path that is no ordinary file, such as a pipe."""


def _text(path: str | Path, remedy: str) -> str | None:
    """Return the text of a file; None if there is no ordinary file at the path."""
    try:
        return read_file(path).decode()
    except ValueError as error:
        raise _damaged(path, error, remedy) from error
    except OSError as error:
        if error.errno in NO_FILE:
            return None
        raise ResultsError(unreadable(path, error)) from error


def _damaged(path: str | Path, error: Exception, remedy: str) -> ResultsError:
    return ResultsError(f"{path} is not a complete JSON file ({error}); {remedy}.")


def _run(run_folders: Path, planned: RunRecord, texts: Mapping[str, str]) -> ReportedRun:
    """Return a run with its records; a record is empty if its text is missing. A run is `unreadable` if the plan
    says so, or if a record is damaged."""
    folder = f"{run_folders}/{planned.folder}"
    if (model := planned.analysed) is not None:
        state = RunState(state="done", step=planned.max_steps, max_steps=planned.max_steps)
        return ReportedRun(planned, state, model.provenance, model.settings)
    why = planned.unreadable or texts.get(UNREADABLE)
    if why is None:
        try:
            about = _record(folder, "run.json", texts.get("run.json"), RunSettingsRecord)
            return ReportedRun(
                plan=planned,
                state=_record(folder, "state.json", texts.get("state.json"), RunState),
                provenance=_record(folder, "provenance.json", texts.get("provenance.json"), Provenance),
                settings=about.settings,
                tokens=about.tokens,
            )
        except ResultsError as error:
            why = str(error)
    plan = planned.model_copy(update={"unreadable": why})
    return ReportedRun(plan, RunState(state="unreadable", message=why), Provenance(), {})


def _record(folder: str | Path, name: str, text: str | None, kind: type[Some], remedy: str = REMEDY) -> Some:
    """Return the text of a JSON file in a folder as a record of that kind. Nulls count as left out, and a
    missing text gives an empty record.

    Raises:
        ResultsError: the text is no JSON, does not fit its checksum, or does not fit the record.
    """
    if text is None:
        return kind()
    path = f"{folder}/{name}"
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error, remedy) from error
    if isinstance(content, dict) and content.get("checksum") not in (None, checksum(content)):
        raise ResultsError(f"{path} has changed since it was written; {remedy}.")
    try:
        return kind.model_validate(_given(content, text))
    except ValidationError as error:
        first = error.errors()[0]
        wrong = "is missing" if first["type"] == "missing" else "has a wrong value"
        reason = f"`{'.'.join(map(str, first['loc']))}` {wrong}" if first["loc"] else "it has no keys"
        raise ResultsError(f"{path} is not as `ablate run` writes it ({reason}); {remedy}.") from error


def _given(content: Any, text: str) -> Any:
    """Return the content of a JSON file without nulls in its objects, and with every text made printable.

    Args:
        text: text of the file. It is searched first, because most of thousands of records hold neither nulls
            nor refused characters.
    """
    if "null" in text:
        content = _without_nulls(content)
    return printable_throughout(content) if "\\u" in text or REFUSED.search(text) else content


def _without_nulls(content: Any) -> Any:
    if isinstance(content, dict):
        return {
            name: _without_nulls(value) if isinstance(value, dict | list) else value
            for name, value in content.items()
            if value is not None
        }
    return [_without_nulls(item) for item in content] if isinstance(content, list) else content


def printable_throughout(content: Any) -> Any:
    """Return plain data with every text in it fit for HTML and SVG (`printable`); dataclasses too."""
    if is_dataclass(content) and not isinstance(content, type):
        return replace(content, **{name: printable_throughout(part) for name, part in vars(content).items()})
    if isinstance(content, dict):
        return {printable(k): printable_throughout(v) for k, v in content.items()}
    if isinstance(content, list | tuple):
        return [printable_throughout(item) for item in content]
    return printable(content) if isinstance(content, str) else content


HERE = Path(__file__).parent


def digest(folder: Path) -> str:
    """Return the hash of everything that a page is made from: the experiment's files, the files of its runs,
    and this package.

    Raises:
        ResultsError: plan.json is missing, or a record is damaged.
    """
    plan = read_plan(folder)
    return _digest(folder, plan, run_texts(folder, plan.runs))


def _digest(folder: Path, plan: Plan, texts: Mapping[str, Mapping[str, str]]) -> str:
    """Return the hash of an experiment whose plan and records of runs were read."""
    names = ("plan.json", "spec.yaml", "results.parquet", RUNS_FILE, "predictions.parquet")
    paths = [str(folder / name) for name in names]
    readable = [run.folder for run in plan.runs if run.unreadable is None]
    paths += [f"{folder.parent}/runs/{name}/predictions.parquet" for name in readable]
    paths += map(str, sorted(folder.glob("claims/*.yaml")))
    paths += map(str, sorted([*HERE.rglob("*.py"), *HERE.rglob("templates/*")]))
    sha256 = hashlib.sha256()
    for path in paths:
        content = Path(path).read_bytes() if os.path.isfile(path) else b"absent"
        sha256.update(hashlib.sha256(content).digest())
    for run in plan.runs:
        for name in RUN_RECORDS:
            sha256.update(hashlib.sha256(texts[run.run_id].get(name, "absent").encode()).digest())
    return sha256.hexdigest()


def is_fresh(folder: Path) -> bool:
    """Return whether page (HTML and Markdown), figures and tables exist and were made from the present files."""
    try:
        report = read_json(folder / "report.json")
        names = ["report.html", "report.md", *report["files"]]
        return report["made_from"] == digest(folder) and all((folder / name).is_file() for name in names)
    except (OSError, ValueError, KeyError, TypeError):
        return False
