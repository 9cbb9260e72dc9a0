"""Folder of an analysis: its name, and its files, from which a page can be made as for an experiment.

Until the analysis is complete, the folder also keeps the results of single measures. So an analysis that was
killed can continue.
"""

import hashlib
import json
import re
import shutil
import warnings
from collections.abc import Iterable, Mapping, Sequence
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
from lightning_modules.files import make_folder, read_json, write_json, write_whole
from lightning_modules.provenance import provenance, utc_now

LONGEST_NAME = 200

UNFINISHED = "The analysis has not ended: it still lacks {}; give the same command again."


def arm_of(folder: Path) -> str:
    """Return a name for an arm from the name of the folder, never that of the untrained twin."""
    name = re.sub(r"[^A-Za-z0-9._+=,-]+", "-", folder.resolve().name).lstrip("._+=,-")[:LONGEST_NAME]
    return "model" if name in ("", "untrained") else name


def name_from_folder(folder: Path) -> str:
    """Return a name for an experiment, made from the name of the folder."""
    name = re.sub(r"[^a-z0-9._-]+", "-", arm_of(folder).lower())
    return f"{name}-model" if name in ("runs", "tokens") else name


def results_folder(out: Path, name: str) -> Path:
    """Return OUT/<name>, the folder of the results.

    Raises:
        MeasureError: the name is no valid name of a folder, or the folder holds an experiment.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) or len(name) > LONGEST_NAME or name in ("runs", "tokens"):
        raise MeasureError(
            f"--name {name!r} cannot be the name of the folder of results: use at most {LONGEST_NAME} letters "
            "a-z, digits and ._- with a letter or a digit first, but not the names runs and tokens."
        )
    plan = out / name / "plan.json"
    runs = read_json(plan).get("runs") if plan.exists() else None
    if plan.exists() and not (runs and all(run.get("analysed") for run in runs)):
        raise MeasureError(
            f"{out / name} has the results of an experiment; choose another --name for the results."
        )
    return out / name


def require_own(target: Path, folders: Mapping[str, Path], twins: Sequence[str]) -> None:
    """Raise an error if the folder of results holds the analysis of other weights.

    This happens if two folders of models have the same name.

    Args:
        folders: folders of the models, by their ids.
        twins: ids of the untrained twins.

    Raises:
        MeasureError: the folder holds such an analysis.
    """
    plan = target / "plan.json"
    if not plan.exists():
        return
    for run in read_json(plan).get("runs", []):
        if run["run_id"] not in folders and run["run_id"] not in twins:
            new_id, folder = next(iter(folders.items()))
            raise MeasureError(
                f"{target} has the analysis of another model ({run['run_id']}; {folder} is {new_id}); choose "
                f"another --name for the results, or remove {target}."
            )


def is_whole(target: Path) -> bool:
    """Return whether the folder holds a complete analysis. The plan of an incomplete one has a notice."""
    plan = target / "plan.json"
    content = read_json(plan) if plan.exists() else {}
    runs, notices = content.get("runs", []), content.get("notices", [])
    return bool(runs) and not any(notice.startswith(UNFINISHED.partition(":")[0]) for notice in notices)


def origin() -> dict[str, Any]:
    """Return the provenance of the measures: machine, versions and start."""
    facts = provenance() | {"devices": 1, "threads": torch.get_num_threads(), "started": utc_now()}
    facts["versions"]["transformers"] = version("transformers")
    return facts


def run(model: HuggingFaceModel, *, arm: str, seed: int, origin: Mapping[str, Any]) -> RunRecord:
    """Return the plan's record of a model whose measures have just ended. There is no run folder."""
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
            settings={"encoder": encoder}, provenance=Provenance.model_validate({**origin, "finished": utc_now()})
        ),
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
    """Write spec.yaml, plan.json and results.parquet into the folder.

    Args:
        of: names of the models, for the question.

    Raises:
        FilesError: the folder cannot be written to.
    """
    spec = _spec(arguments, measures)
    write_whole(target / "spec.yaml", spec)
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
    """Return the arguments of the analysis as YAML, with values in JSON."""
    lines = ["# Settings of `ablate analyse`. `ablate run` cannot use this file."]
    lines += [f"{key}: {json.dumps(value, default=str, ensure_ascii=False)}" for key, value in arguments.items()]
    lines += ["measures:", *(f"  - {json.dumps(settings.model_dump(mode='json'))}" for settings in measures)]
    return ("\n".join(lines) + "\n").encode()


Row = dict[str, Any]


class MeasureResults(NamedTuple):
    """Results of one measure of one model."""

    table: DataFrame
    """Rows of the measure, with the columns of a table of results."""
    doubts: list[str]
    """Sentences that say why there are no rows, or why the rows are to be doubted."""


def rows_and_doubts(rows: Iterable[Row], settings: AnyMeasure) -> tuple[list[Row], list[str]]:
    """Return the rows of one measure, and sentences on why there are none or why to doubt them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            whole = list(rows)
        except MeasureError as error:
            return [], [_named(settings.kind, str(error))]
    doubts = [warning for warning in warned if issubclass(warning.category, UserWarning)]
    for warning in warned:
        if warning not in doubts:  # a warning of a library, not of a measure
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return whole, [_named(settings.kind, str(warning.message)) for warning in doubts]


def _named(measure: str, doubt: str) -> str:
    return doubt if doubt.startswith(measure) else f"{measure}: {doubt}"


def kept_file(target: Path, depends_on: Mapping[str, Any]) -> Path:
    """Return the file that keeps the rows of a measure. Its name is a hash of `depends_on`."""
    content = json.dumps(depends_on, sort_keys=True, default=str)
    return target / "kept" / f"{hashlib.sha256(content.encode()).hexdigest()[:20]}.parquet"


def keep(path: Path, measured: MeasureResults) -> None:
    """Keep the results of a measure. The table is written last, so if it exists, the results are complete.

    Raises:
        FilesError: the folder cannot be written to.
    """
    make_folder(path.parent)
    write_json(path.with_suffix(".json"), measured.doubts)
    results.write(measured.table, path)


def read_kept(path: Path) -> MeasureResults | None:
    """Return the results that were kept; None if there are none.

    Raises:
        ResultsError, FilesError: a file is damaged. The error says which file to delete.
    """
    return (
        MeasureResults(
            results.read(path, remedy="start `ablate analyse` again"), read_json(path.with_suffix(".json"))
        )
        if path.exists()
        else None
    )


def forget_kept(target: Path) -> None:
    """Remove all results that were kept in a folder of results."""
    shutil.rmtree(target / "kept", ignore_errors=True)
