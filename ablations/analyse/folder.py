"""Folder of an analysis: named, and written so that a page can be made of it as of an experiment; until it is
whole it also keeps the results of single measures, so that an analysis that was killed goes on."""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from pandas import DataFrame

from ablations import results
from ablations.analyse.measures import AnyMeasure
from ablations.analyse.model import HuggingFaceModel
from ablations.errors import MeasureError
from ablations.measures.settings import MeasureSettings
from ablations.runs.records import Analysed, DataRecord, Plan, Provenance, RunRecord
from ablations.wording import several
from lightning_modules.files import atomic, make_folder, read_json, sha256, write_json
from lightning_modules.provenance import now, provenance

LONGEST_NAME = 200

UNFINISHED = "The analysis has not ended, all of {} still to come; run it again."


def arm_of(folder: Path) -> str:
    """Return the folder's name as an arm's; never that of the untrained twin."""
    name = re.sub(r"[^A-Za-z0-9._+=,-]+", "-", folder.resolve().name).lstrip("._+=,-")[:LONGEST_NAME]
    return "model" if name in ("", "untrained") else name


def name_of(folder: Path) -> str:
    """Return the folder's name as an experiment's."""
    name = re.sub(r"[^a-z0-9._-]+", "-", arm_of(folder).lower())
    return f"{name}-model" if name in ("runs", "tokens") else name


def place(out: Path, name: str) -> Path:
    """Return OUT/<name>, where the results go.

    Raises:
        MeasureError: no name of a folder, or the folder is an experiment's.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) or len(name) > LONGEST_NAME or name in ("runs", "tokens"):
        raise MeasureError(
            f"--name {name!r} cannot name the folder of results: expected lower-case letters, digits and ._- that "
            f"start with a letter or a digit, and not runs or tokens."
        )
    plan = out / name / "plan.json"
    if plan.exists() and not all(run.get("analysed") for run in read_json(plan).get("runs", [])):
        raise MeasureError(f"{out / name} holds an experiment; choose another --name for the results.")
    return out / name


def require_own(target: Path, folders: Mapping[str, Path], twins: Sequence[str]) -> None:
    """Refuse to write over the analysis of other weights, as of another folder of that name.

    Args:
        folders: of the models, by their ids.
        twins: ids of the untrained twins.

    Raises:
        MeasureError: it holds one.
    """
    plan = target / "plan.json"
    if not plan.exists():
        return
    for run in read_json(plan).get("runs", []):
        if run["run_id"] not in folders and run["run_id"] not in twins:
            new_id, folder = next(iter(folders.items()))
            raise MeasureError(
                f"{target} holds the analysis of another model: {run['run_id']}, and {folder} is {new_id}; choose "
                f"another --name for the results, or remove that folder."
            )


def is_whole(target: Path) -> bool:
    """Return whether the folder holds an analysis that has ended: an untrained twin is measured last."""
    plan = target / "plan.json"
    content = read_json(plan) if plan.exists() else {}
    runs, notices = content.get("runs", []), content.get("notices", [])
    return bool(runs) and not any(notice.startswith(UNFINISHED.partition("{}")[0]) for notice in notices)


def origin() -> dict[str, Any]:
    """Return the provenance of the models' measures: machine, versions and start."""
    facts = provenance() | {"devices": 1, "threads": torch.get_num_threads(), "started": now()}
    facts["versions"]["transformers"] = version("transformers")
    return facts


def run(model: HuggingFaceModel, *, arm: str, seed: int, origin: Mapping[str, Any]) -> RunRecord:
    """Return the plan's record of a model whose measures have just ended; it has no run's folder."""
    encoder = {
        "num_hidden_layers": model.layers,
        "hidden_size": model.width,
        "num_attention_heads": model.heads,
        "final_norm": model.final_norm is not None,
    }
    return RunRecord(
        run_id=model.run_id,
        folder=f"{arm}-s{seed}-{model.run_id}",
        arm=arm,
        seed=seed,
        max_steps=model.step,
        parameters=model.parameters,
        state="done",
        analysed=Analysed(
            settings={"encoder": encoder}, provenance=Provenance.model_validate({**origin, "finished": now()})
        ),
    )


def data_record(text: Path, *, sentences: int, cut: int, vocabulary_sizes: Collection[int]) -> DataRecord:
    """Describe the text for the plan; models of different vocabularies leave their size out."""
    return DataRecord(
        content_sha256=sha256(text),
        description=f"the first {several(sentences, 'sentence')} of {text.name}",
        vocab_size=next(iter(vocabulary_sizes)) if len(vocabulary_sizes) == 1 else None,
        cut={"sentence": cut} if cut else {},
    )


def write(
    target: Path,
    *,
    table: pd.DataFrame,
    arguments: Mapping[str, Any],
    measures: Sequence[MeasureSettings],
    of: str,
    runs: Sequence[RunRecord],
    notices: list[str],
    data: DataRecord,
) -> None:
    """Put spec.yaml, plan.json and results.parquet into the folder.

    Args:
        of: the models, for the question.

    Raises:
        FilesError: it cannot be written to.
    """
    make_folder(target)
    spec = _spec(arguments, measures)
    with atomic(target / "spec.yaml") as temporary:
        temporary.write_bytes(spec)
    results.write(table, target / "results.parquet")
    plan = Plan(
        experiment=target.name,
        question=f"What does each layer of {of} change, keep and lose?",
        spec_sha256=hashlib.sha256(spec).hexdigest(),
        created=None if runs[0].analysed is None else runs[0].analysed.provenance.started,
        claims=[],
        arms=[run.arm for run in runs],
        data=data,
        runs=list(runs),
        notices=notices,
    )
    write_json(target / "plan.json", plan.model_dump(mode="json", exclude_unset=True))


def _spec(arguments: Mapping[str, Any], measures: Sequence[MeasureSettings]) -> bytes:
    """Return the arguments of the analysis as YAML, of which JSON is a part."""
    lines = ["# What `ablate analyse` was asked; not for `ablate run`."]
    lines += [f"{key}: {json.dumps(value, default=str, ensure_ascii=False)}" for key, value in arguments.items()]
    lines += ["measures:", *(f"  - {json.dumps(settings.model_dump(mode='json'))}" for settings in measures)]
    return ("\n".join(lines) + "\n").encode()


Row = dict[str, Any]


class Measured(NamedTuple):
    """Results of one measure of one model."""

    table: DataFrame
    """Its rows, in the columns of a table of results."""
    doubts: list[str]
    """Sentences that say why there are no rows, or what to doubt in them."""


def rows_and_doubts(rows: Iterable[Row], settings: AnyMeasure) -> tuple[list[Row], list[str]]:
    """Return the rows of one measure, and in sentences why there are none or what to doubt in them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            whole = list(rows)
        except MeasureError as error:
            return [], [_named(settings.kind, str(error))]
    doubts = [warning for warning in warned if issubclass(warning.category, UserWarning)]
    for warning in warned:
        if warning not in doubts:  # of a library, not of a measure
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return whole, [_named(settings.kind, str(warning.message)) for warning in doubts]


def _named(measure: str, doubt: str) -> str:
    return doubt if doubt.startswith(measure) else f"{measure}: {doubt}"


def kept_file(target: Path, depends_on: Mapping[str, Any]) -> Path:
    """Return the file for the rows of a measure in a folder of results: its name is a hash of all that decides
    them."""
    content = json.dumps(depends_on, sort_keys=True, default=str)
    return target / "kept" / f"{hashlib.sha256(content.encode()).hexdigest()[:20]}.parquet"


def keep(path: Path, measured: Measured) -> None:
    """Keep the results of a measure; the table comes last, so that where it is all is there.

    Raises:
        FilesError: the folder cannot be written to.
    """
    make_folder(path.parent)
    write_json(path.with_suffix(".json"), measured.doubts)
    results.write(measured.table, path)


def read_kept(path: Path) -> Measured | None:
    """Return the results that were kept; None if there are none.

    Raises:
        ResultsError, FilesError: a file is damaged; the sentence says which to delete.
    """
    return Measured(results.read(path), read_json(path.with_suffix(".json"))) if path.exists() else None


def forget_kept(target: Path) -> None:
    """Remove everything that was kept in a folder of results."""
    shutil.rmtree(target / "kept", ignore_errors=True)
