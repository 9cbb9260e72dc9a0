"""An experiment's folder as it lies on disk, read and checked, nothing computed.

Whether a page still says what lies on disk, found out without drawing it again.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError

from ablations import results
from ablations.errors import ResultsError, SpecError
from ablations.spec import yamlfile


class Record(BaseModel):
    """Base of what is read: what a writer adds later is ignored, what it leaves out is None."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)


class DataRecord(Record):
    """Which text an experiment trains on."""

    address: str | None = None
    content_sha256: str | None = None
    description: str | None = None
    train_sentences: int | None = None
    validation_sentences: int | None = None
    train_tokens: int | None = None
    vocab_size: int | None = None
    cut: dict[str, int] = {}
    """How many sentences were longer than the settings allow, so that the rest of each was dropped: by what they
    are, as in `translation to train on`."""


class PlannedRun(Record):
    """One run as planned."""

    run_id: str
    folder: str
    """Name of its folder under OUT/runs; its arm's name there may be that of another experiment."""
    arm: str
    seed: int
    max_steps: int | None = None
    tokens: int | None = None
    parameters: int | None = None
    flops: float | None = None
    seconds: float | None = None
    not_measured: list[str] | None = None
    """Of a trained run, the measures that it lacks, as ``baselines mrpc``; None where the plan does not say."""
    refused: dict[str, str] = {}
    """Why those of them were refused that were tried."""
    analysed: "Analysed | None" = None


class PlannedClaims(Record):
    """A file of claims as the plan knows it."""

    name: str
    """Without its ending."""
    planned: str | None = None
    """When it was first planned with this experiment."""
    planned_sha256: str | None = None
    """Of the file as it was then,"""
    planned_claims: dict[str, str] = {}
    """and of each of its claims."""
    runs_before: int | None = None
    """Runs of the experiment that had started by then: what was claimed after them is no prediction."""


class Plan(Record):
    """plan.json"""

    experiment: str
    question: str | None = None
    spec_sha256: str | None = None
    created: str | None = None
    claims: list[str] = []
    claim_files: list[PlannedClaims] = []
    arms: list[str]
    data: DataRecord = DataRecord()
    runs: list[PlannedRun]
    pairs_to_compare: int | None = None
    """Pairs of runs whose distance is asked for and not there; None where the plan does not say."""
    seconds: float | None = None
    notices: list[str] = []
    """What a reader must know beside what the files say: measures that were refused."""
    warnings: list[str] = []
    """What was allowed and probably not meant."""


class State(Record):
    """state.json of a run; without the file a run is planned."""

    state: str = "planned"
    step: int | None = None
    max_steps: int | None = None
    tokens_seen: int | None = None
    tokens_predicted: int | None = None
    flops: float | None = None
    """Useful operations of training so far."""
    seconds: float | None = None
    tokens_per_second: float | None = None
    mfu: float | None = None
    """Useful operations over those of a large matrix product in the same time."""
    first_step_seconds: float | None = None
    """From the start of the run to the end of its first step, at its last start."""
    message: str | None = None


class Machine(Record):
    """What a run ran on."""

    platform: str | None = None
    cpu: str | None = None
    cores: int | None = None
    gpus: list[str] = []


class Provenance(Record):
    """provenance.json of a run."""

    commit: str | None = None
    dirty: bool | None = None
    versions: dict[str, str | None] = {}
    machine: Machine = Machine()
    devices: Any = None
    threads: Any = None
    started: str | None = None
    finished: str | None = None


class Analysed(Record):
    """In place of a run's folder: a model that was trained elsewhere, measured by `ablate analyse`."""

    settings: dict[str, Any] = {}
    provenance: Provenance = Provenance()


class RunSettingsRecord(Record):
    """run.json of a run, of which a page needs the settings and the text."""

    settings: dict[str, Any] = {}
    tokens: str | None = None
    """Address of the token store that the run reads."""


class Run(NamedTuple):
    """One planned run and what became of it."""

    plan: PlannedRun
    state: State
    provenance: Provenance
    settings: dict[str, Any]
    tokens: str | None = None
    """Address of the token store that it reads; None where that is not known."""


QUICK = "Measured with effort quick, on a part of everything: no evidence."
"""Said wherever numbers of such a measure stand."""


class Experiment(NamedTuple):
    """Everything a page can say."""

    plan: Plan
    spec: str
    runs: list[Run]
    table: pd.DataFrame
    """Rows of the plan's arms alone; empty before anything is measured."""
    foreign_rows: int
    """Rows of results.parquet that belong to no run of the plan."""
    folder: Path | None = None
    """Where it was read."""
    measures: tuple[str, ...] = ()
    """The kinds that its spec asks for."""
    quick: tuple[str, ...] = ()
    """Those of them that take a part of everything (`effort: quick`), which is no evidence."""


Some = TypeVar("Some", bound=Record)


def read(folder: Path) -> Experiment:
    """The experiment in OUT/<experiment>, its runs found under OUT/runs.

    A run without files is planned, an experiment without results has an empty table.

    Raises:
        ResultsError: plan.json is missing, or a file is damaged.
    """
    plan = read_plan(folder)
    runs = [_run(folder.parent / "runs" / planned.folder, planned) for planned in plan.runs]
    spec, found = folder / "spec.yaml", folder / "results.parquet"
    table = results.read(found) if found.exists() else results.table([])
    table["arm"] = table["arm"].map(printable)  # as in the plan
    known = pd.MultiIndex.from_tuples([(run.run_id, run.arm) for run in plan.runs] or [("", "")])
    ours = pd.MultiIndex.from_frame(table[["run_id", "arm"]]).isin(known)
    measures = _measures(spec) if spec.is_file() else []
    return Experiment(
        plan=plan,
        spec=printable(spec.read_text(encoding="utf-8", errors="replace")) if spec.is_file() else "",
        runs=runs,
        table=table[ours].reset_index(drop=True),
        foreign_rows=int((~ours).sum()),
        folder=folder,
        measures=tuple(kind for kind, _ in measures),
        quick=tuple(kind for kind, effort in measures if effort == "quick"),
    )


def read_plan(folder: Path) -> Plan:
    """plan.json, every run's folder being a plain name.

    Raises:
        ResultsError: it is missing, damaged, or leads out of the runs.
    """
    path = folder / "plan.json"
    if not path.is_file():
        raise ResultsError(f"{path}: there is no plan here; `ablate run` on the spec writes one.")
    plan = _record(path, Plan)
    for run in plan.runs:
        if Path(run.folder).name != run.folder or run.folder in ("", ".."):
            raise ResultsError(f"{path}: {run.folder!r} is no name of a run's folder; plan the experiment again.")
    return plan


def _measures(spec: Path) -> list[tuple[str, Any]]:
    """The kinds of measures that a spec names, each with its effort; none where it cannot be read, as one of
    another version."""
    try:
        named = yamlfile.read(spec).content.get("measures")
    except SpecError:
        return []
    entries = named if isinstance(named, list) else []
    records = [entry if isinstance(entry, dict) else {"kind": entry} for entry in entries]
    return [(kind, record.get("effort")) for record in records if isinstance(kind := record.get("kind"), str)]


def _run(folder: Path, planned: PlannedRun) -> Run:
    if (model := planned.analysed) is not None:
        state = State(state="done", step=planned.max_steps, max_steps=planned.max_steps)
        return Run(planned, state, model.provenance, model.settings)
    about = _record(folder / "run.json", RunSettingsRecord)
    return Run(
        plan=planned,
        state=_record(folder / "state.json", State),
        provenance=_record(folder / "provenance.json", Provenance),
        settings=about.settings,
        tokens=about.tokens,
    )


def _record(path: Path, kind: type[Some]) -> Some:
    """The file as such a record; an empty record where there is no file. Nulls count as left out."""
    if not path.is_file():
        return kind()
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ResultsError(f"{path}: this is no whole JSON file ({error}); start `ablate run` again.") from error
    try:
        return kind.model_validate(_given(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ResultsError(f"{path}: {where}: {first['msg']}; start `ablate run` again.") from error


def _given(content: Any) -> Any:
    """The content without nulls in its objects, every text made printable."""
    if isinstance(content, dict):
        return {printable(k): _given(v) for k, v in content.items() if v is not None}
    if isinstance(content, list):
        return [_given(item) for item in content]
    return printable(content) if isinstance(content, str) else content


def printable(text: str) -> str:
    """The text with a replacement character for what neither HTML nor SVG may contain, and for signs that turn the
    text after them around."""
    refused = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
    return re.sub(refused, "\N{REPLACEMENT CHARACTER}", text)


HERE = Path(__file__).parent


def digest(folder: Path) -> str:
    """Hash of everything a page is made from: the experiment's files, those of its runs, and this package.

    Raises:
        ResultsError: plan.json is missing or damaged.
    """
    runs = [folder.parent / "runs" / run.folder for run in read_plan(folder).runs]
    paths = [folder / name for name in ("plan.json", "spec.yaml", "results.parquet")]
    paths += [run / name for run in runs for name in ("state.json", "provenance.json", "run.json")]
    paths += sorted(folder.glob("claims/*.yaml"))
    paths += sorted([*HERE.rglob("*.py"), *HERE.rglob("templates/*")])
    sha256 = hashlib.sha256()
    for path in paths:
        content = path.read_bytes() if path.is_file() else b"absent"
        sha256.update(hashlib.sha256(content).digest())
    return sha256.hexdigest()


def is_fresh(folder: Path) -> bool:
    """Whether page, twin and figures are there and were made from what is there now."""
    try:
        told = json.loads((folder / "report.json").read_bytes())
        panels = [panel for figure in told["figures"] for panel in figure["panels"]]
        made = ["report.html", "report.md", *(panel[kind] for panel in panels for kind in ("svg", "csv"))]
        made += [table["csv"] for table in (*told["tasks"], told["joined"]) if table["rows"]]
        made += [claim["plot"][kind] for claim in told["claims"] if claim["plot"] for kind in ("svg", "csv")]
        return told["made_from"] == digest(folder) and all((folder / name).is_file() for name in made)
    except (OSError, ValueError, KeyError, TypeError):
        return False
