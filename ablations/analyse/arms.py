"""Arms of an analysis: the folders that a user gives, each with a model or a series of its checkpoints."""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ablations.analyse.folder import arm_of
from ablations.analyse.model import (
    SAYS_NOTHING,
    WEIGHTS,
    HuggingFaceModel,
    checked_config,
    load,
    model_identity,
    untrained,
    untrained_identity,
)
from ablations.analyse.text import ReadText
from ablations.errors import MeasureError
from ablations.measures.reading.texts import Say
from ablations.wording import listed, shown
from lightning_modules.errors import FilesError
from lightning_modules.files import read_json
from lightning_modules.pretrained.folder import weight_files

STEP_FOLDER = re.compile(r"(?:step|checkpoint)[-_=]?(\d+)")
"""Pattern of folder names in a series without an index: `step1000`, `step-00001000`, `checkpoint-1000`."""

TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.spm")
"""Patterns of file names. A folder with a tokenizer has a file of one of these names."""

INDEX = "index.json"
"""Name of the file in which `ablate export --all-steps` lists the folders of a series."""


UNTRAINED = "untrained"
SEED = 0
"""Seed of the untrained weights, and of every row."""


class Checkpoint(NamedTuple):
    """Folder with weights, and the step at which they were saved."""

    folder: Path
    step: int | None
    """Step in the series. None for a single model."""


class ModelArm(NamedTuple):
    """Arm of an analysis: a model, or a series of checkpoints of one model."""

    name: str
    folder: Path
    """Folder that the user gave."""
    checkpoints: tuple[Checkpoint, ...]
    """Checkpoints in the order of their steps; a single model has one."""
    run_id: str
    """Ten hex digits: `model_identity` of a single model, or a hash over those of all checkpoints."""
    identities: tuple[str, ...]
    """`model_identity` of each checkpoint."""
    untrained_id: str
    """Ten hex digits of the untrained twin, equal for equal architectures."""

    @property
    def is_series(self) -> bool:
        """Return whether the arm is a series, so that its checkpoints have steps."""
        return self.checkpoints[0].step is not None

    @property
    def tokenizer_folder(self) -> Path:
        """Return the folder of the tokenizer, which all checkpoints of a series share.

        It is the folder of the first checkpoint. If that has no tokenizer, it is the folder of the series.
        """
        first = self.checkpoints[0].folder
        has_own = any(path for pattern in TOKENIZER_FILES for path in first.glob(pattern))
        return self.folder if self.is_series and not has_own else first


def arms_of(folders: Sequence[Path], *, seed: int) -> list[ModelArm]:
    """Return an arm for each folder, in their order. Reads config.json and the bytes of all weights.

    A folder with a config.json is a model. A folder without one is a series if it has an index of
    checkpoints, or folders that are named after their step.

    Args:
        seed: seed of the untrained twins.

    Raises:
        MeasureError: a folder is neither; it holds a model of an unknown architecture or no weights;
            checkpoints of a series differ in their architecture or have the same step; or two folders hold
            the same model.
    """
    arms = [_arm(name, folder, seed=seed) for name, folder in zip(_names(folders), folders, strict=True)]
    for i, arm in enumerate(arms):
        for earlier in arms[:i]:
            if earlier.run_id == arm.run_id:
                raise MeasureError(
                    f"{earlier.folder} and {arm.folder} have the same weights and config.json; leave one of "
                    "them out."
                )
    return arms


def _names(folders: Sequence[Path]) -> list[str]:
    """Return a name for the arm of each folder. Equal names get the name of the folder above in front, and if
    they are still equal, a number at the end."""
    names = [arm_of(folder) for folder in folders]
    counts = Counter(names)
    names = [
        f"{arm_of(folder.resolve().parent)}-{name}" if counts[name] > 1 else name
        for name, folder in zip(names, folders, strict=True)
    ]
    different: list[str] = []
    for i, name in enumerate(names):
        numbered = (f"{name}-{number}" for number in itertools.count(2))
        free = (other for other in numbered if other not in (*names, *different))
        different.append(next(free) if name in names[:i] else name)
    return different


def _arm(name: str, folder: Path, *, seed: int) -> ModelArm:
    checkpoints = _series(folder) or (Checkpoint(folder, None),)
    configs = [checked_config(checkpoint.folder) for checkpoint in checkpoints]
    _require_one_architecture(checkpoints, configs)
    ids = tuple(
        model_identity(config, weight_files(checkpoint.folder, WEIGHTS))
        for config, checkpoint in zip(configs, checkpoints, strict=True)
    )
    is_single = checkpoints[0].step is None
    run_id = ids[0] if is_single else hashlib.sha256("".join(ids).encode()).hexdigest()[:10]
    return ModelArm(name, folder, checkpoints, run_id, ids, untrained_identity(configs[0], seed=seed))


def _series(folder: Path) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of a series in the order of their steps; empty if the folder is no series."""
    if (folder / "config.json").exists() or not folder.is_dir():
        return ()
    index = folder / INDEX
    unordered = _indexed(index) if index.is_file() else _by_name(folder)
    checkpoints = sorted(unordered, key=lambda each: each.step or 0)
    for before, after in itertools.pairwise(checkpoints):
        if before.step == after.step:
            raise MeasureError(
                f"{before.folder} and {after.folder} are both of step {after.step}, but a series has one "
                "checkpoint for each step; remove one of them."
            )
    return tuple(checkpoints)


def _indexed(index: Path) -> Iterator[Checkpoint]:
    try:
        for entry in read_json(index)["checkpoints"]:
            yield Checkpoint(index.parent / str(entry["folder"]), int(entry["step"]))
    except (FilesError, ValueError, KeyError, TypeError) as error:
        raise MeasureError(
            f"{index} is not an index of checkpoints as `ablate export --all-steps` writes it; export the "
            "series again, or remove the file if the names of the folders give their steps."
        ) from error


def _by_name(folder: Path) -> Iterator[Checkpoint]:
    for path in folder.iterdir():
        if path.is_dir() and (named := STEP_FOLDER.fullmatch(path.name)):
            yield Checkpoint(path, int(named[1]))


def _require_one_architecture(checkpoints: Sequence[Checkpoint], configs: Sequence[dict[str, Any]]) -> None:
    for checkpoint, config in zip(checkpoints[1:], configs[1:], strict=True):
        names = sorted(
            name
            for name in (configs[0].keys() | config.keys()) - set(SAYS_NOTHING)
            if configs[0].get(name) != config.get(name)
        )
        if names:
            differences = [
                f"{name} is {shown(configs[0].get(name))} and {shown(config.get(name))}" for name in names
            ]
            raise MeasureError(
                f"{checkpoints[0].folder} and {checkpoint.folder} are not checkpoints of the same model: in "
                f"config.json {listed(differences[:3], 'and')}; name the folder of each model in the command."
            )


def label(arm: ModelArm, checkpoint: Checkpoint) -> str:
    """Return the arm's name for a line of progress; in a series, with the step."""
    return arm.name if checkpoint.step is None else f"{arm.name}, step {checkpoint.step:,}"


class SubjectModel(NamedTuple):
    """One model of a subject. It is loaded only if a result of it is missing."""

    label: str
    """Name for a line of progress."""
    identity: str
    """Ten hex digits of its weights and config.json, or of an untrained twin."""
    facts: HuggingFaceModel
    """Facts about the model, without its weights."""
    load: Callable[[], HuggingFaceModel]


class Subject(NamedTuple):
    """Arm that is measured: a model, a series of its checkpoints, or an untrained twin."""

    name: str
    given: ModelArm
    """Arm that the user gave. For a twin, the first of the arms that share it."""
    model: HuggingFaceModel
    """Facts about the model, without its weights."""
    read: ReadText
    is_twin: bool = False

    def parts(self, say: Say) -> Iterator[SubjectModel]:
        """Yield each model of the arm."""
        if self.is_twin:
            facts = replace(self.model, run_id=self.given.untrained_id, step=0)
            yield SubjectModel(self.name, facts.run_id, facts, partial(untrained, self.model, seed=SEED))
            return
        for checkpoint, identity_of_it in zip(self.given.checkpoints, self.given.identities, strict=True):
            step = self.model.step if checkpoint.step is None else checkpoint.step
            facts = replace(self.model, run_id=self.given.run_id, step=step)
            yield SubjectModel(
                label(self.given, checkpoint), identity_of_it, facts, partial(self._loaded, checkpoint, step, say)
            )

    def _loaded(self, checkpoint: Checkpoint, step: int | None, say: Say) -> HuggingFaceModel:
        if self.given.is_series:
            say(f"loading {checkpoint.folder}")
        model = load(checkpoint.folder, tokenizer_folder=self.given.tokenizer_folder)
        return replace(model, run_id=self.given.run_id, step=step)


def twins_of(subjects: Sequence[Subject]) -> list[Subject]:
    """Return the untrained twins of the subjects.

    Arms of the same architecture that cut the text into the same tokens share one twin.
    """
    twins: list[Subject] = []
    for subject in subjects:
        if not any(
            twin.given.untrained_id == subject.given.untrained_id
            and np.array_equal(twin.read.text.ids, subject.read.text.ids)
            for twin in twins
        ):
            twins.append(subject._replace(is_twin=True))
    if len(twins) == 1:
        return [twins[0]._replace(name=UNTRAINED)]
    taken = {subject.name for subject in subjects}
    prefix = UNTRAINED
    while any(f"{prefix}-{twin.name}" in taken for twin in twins):
        prefix += "-twin"
    return [twin._replace(name=f"{prefix}-{twin.name}") for twin in twins]
