"""Folder of an analysis: named, and written so that a page can be made of it as of an experiment."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from ablations import results
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
