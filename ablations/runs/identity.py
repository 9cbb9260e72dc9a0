"""Identities and folders of the runs of an experiment, and checks of the files that a spec names. No torch.

OUT/<experiment>/    spec.yaml plan.json results.parquet report.html ...
OUT/runs/<run>/      one folder for each run, shared by all experiments
OUT/tokens/<10 hex>/ token ids, shared by all runs on the same text
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ablations.errors import Problem, SpecProblems
from ablations.spec import load
from ablations.spec.experiment import Experiment, Run
from ablations.tasks.datasets import own_tasks, task_called
from lightning_modules import plugins
from lightning_modules.config import Data, RunSettings
from lightning_modules.config.masking import Cloze, GenericWords
from lightning_modules.config.settings import plugins_of
from lightning_modules.data import corpus, token_store
from lightning_modules.data.treebank import read_treebank
from lightning_modules.errors import DataError, FilesError
from lightning_modules.files import file_version, make_folder, write_json
from lightning_modules.training.run_directory import RunBusyError, RunDirectory, RunDirectoryError, checksum

IDENTITY_VERSION = 4
"""Version in every identity. It is raised if the same settings come to mean another computation, so that old
runs are not taken for new ones."""

FIXED_VERSION = 2
"""Version in the identity of runs with `count: fixed`, or with `predict` and a `schedule`; others do not have
it."""

ATTENTION_DROPOUT_VERSION = 2
"""Version in the identity of runs with `encoder.attention_dropout` above 0; others do not have it."""

SKIP_GRAM_VERSION = 2
"""Version in the identity of runs of skip-gram whose training text has other frequencies than the whole text;
others do not have it."""

FIRST_SETTINGS = {
    "encoder": {
        *("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"),
        *("dropout", "norm", "positions"),
    },
    "training": {
        *("max_steps", "tokens_per_step", "sentences", "input_format", "word_order"),
        *("learning_rate", "warmup_steps", "weight_decay", "gradient_clip_val", "precision"),
        *("validate_every", "keep_checkpoints"),
    },
}
"""Settings that every identity has, by section. All others were added later. With its default value a later
setting does not enter, so that older runs keep their identity."""

LATER_SETTINGS_OF_OBJECTIVES = {"head", "label_smoothing"}
"""Settings of objectives that were added later. All others enter with every value."""


class PlannedRun(NamedTuple):
    """Run of an experiment, with its place on disk."""

    run: Run
    run_id: str
    """Identity of the run, ten hex digits; see `run_identity`."""
    tokens: str
    """Address of its token store."""
    directory: RunDirectory


def run_identity(settings: RunSettings, tokens_address: str) -> str:
    """Return the identity of a run: ten hex digits of a hash over everything that decides what it computes.

    The text, the folder of initial weights, and the source of a user's own objective or selection enter by
    their content, not by their path. How the text is cut into tokens enters too, and so does `compile`, as it
    may change the kernels. Machine, devices, names of experiment and arm, measures and claims do not enter.
    Loggers do not enter, as they change no number.

    Micro-batches of a step do not enter: like the number of devices, they only say how a step is computed,
    and may differ on a machine with more memory. The step is the same up to rounding and the draws of
    dropout.
    """
    return _hashed(_decisions(settings, tokens_address), settings.seed)


def _decisions(settings: RunSettings, tokens_address: str) -> dict[str, Any]:
    """Return everything that decides what a run computes, except its seed."""
    left_out: Any = {"data": True, "training": {"accumulate", "loggers"}, "init": {"path"}, "seed": True}
    decisions = settings.model_dump(mode="json", exclude=left_out)
    decisions |= {"tokens": tokens_address, "version": IDENTITY_VERSION}
    if sources := {name: record["sha256"] for name, record in plugins_of([settings]).items()}:
        decisions["sources"] = sources
    later = {section: decisions[section].keys() - first for section, first in FIRST_SETTINGS.items()}
    later["objective"] = decisions["objective"].keys() & LATER_SETTINGS_OF_OBJECTIVES
    for section, names in later.items():
        for name in names:
            values = getattr(settings, section)
            field = type(values).model_fields[name]  # its default may depend on other settings of the section
            if getattr(values, name) == field.get_default(call_default_factory=True, validated_data=dict(values)):
                del decisions[section][name]
    if settings.encoder.attention_dropout:
        decisions["attention_dropout_version"] = ATTENTION_DROPOUT_VERSION
    masking = getattr(settings.objective, "masking", None)
    if masking is not None and (masking.count == "fixed" or (masking.predict and masking.schedule)):
        decisions["fixed_version"] = FIXED_VERSION
    if settings.objective.kind == "skip_gram" and settings.training.changes_frequencies:
        decisions["skip_gram_version"] = SKIP_GRAM_VERSION
    return decisions


def _hashed(decisions: dict[str, Any], seed: int) -> str:
    return hashlib.sha256(json.dumps(decisions | {"seed": seed}, sort_keys=True).encode()).hexdigest()[:10]


def folders(out: Path) -> dict[str, Path]:
    """Return the folders of runs in an output root, by the identity of the run. Of several folders of one run,
    which come from two output roots that were copied together, the one that has most of the run counts."""
    runs = out / "runs"
    try:
        with os.scandir(runs) as entries:
            names = sorted(entry.name for entry in entries if fnmatchcase(entry.name, "*-s*-*") and entry.is_dir())
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    by_id: dict[str, Path] = {}
    for name in names:
        before, here = by_id.setdefault(name[-10:], runs / name), runs / name
        if here != before and _progress(here) > _progress(before):
            by_id[name[-10:]] = here
    return by_id


def _progress(folder: Path) -> tuple[bool, int]:
    """Return whether the run of a folder is trained, and its last saved step; the least if that is unknown."""
    try:
        state = RunDirectory(folder).state()
    except RunDirectoryError:
        return False, -1
    return state.state == "done", state.saved_step or 0


def placed_runs(
    runs: Sequence[Run], *, out: Path, data_root: Path, existing: dict[str, Path] | None = None
) -> list[PlannedRun]:
    """Return the runs with their identities and folders. A run gets the folder that has its identity already,
    or a new one.

    Args:
        existing: `folders` of the output root, if it is known already; new folders are added.

    Raises:
        DataError: text is missing, or lacks the columns that the spec names.
    """
    existing = folders(out) if existing is None else existing
    planned: list[PlannedRun] = []
    address, decisions = "", dict[str, Any]()
    for run in runs:
        run = self_contained(run, data_root)
        if not (planned and run.settings.differs_in_seed_alone(planned[-1].run.settings)):
            address = token_store.address(run.settings.data, data_root)
            decisions = _decisions(run.settings, address)
        run_id = _hashed(decisions, run.settings.seed)
        if run_id not in existing:
            existing[run_id] = out / "runs" / f"{run.arm}-s{run.seed}-{run_id}"
        planned.append(PlannedRun(run, run_id, address, RunDirectory(existing[run_id])))
    return planned


def self_contained(run: Run, data_root: Path) -> Run:
    """Return the run with the words of its lexicon in place of files, and with the settings that follow from
    the folder of a model.

    Raises:
        DataError: a file is missing or unfit, or has no word of a part of speech, or contradicts a setting.
    """
    settings = with_folders(run.settings, data_root)
    run = replace(run, settings=settings)
    masking = getattr(settings.objective, "masking", None)
    if masking is None or masking.select.kind not in ("cloze", "generic"):
        return run
    places = [data_root / path for path in (masking.select.file, masking.select.treebank) if path]
    versions = tuple(file_version(place) for place in places if os.path.isfile(place))
    masking = masking.model_copy(update={"select": _lexicon(masking.select, settings.data, data_root, versions)})
    objective = settings.objective.model_copy(update={"masking": masking})
    return replace(run, settings=settings.model_copy(update={"objective": objective}))


def with_folders(settings: RunSettings, data_root: Path) -> RunSettings:
    """Return the settings, with those that follow from the folders of a model or of a tokenizer filled in.

    Raises:
        DataError: a folder is missing or unfit, or contradicts a setting.
    """
    if settings.init is None and settings.data.tokenizer is None:
        return settings
    from lightning_modules.pretrained.folder import with_folder  # imported here, as most specs do not need it

    return with_folder(settings, data_root)


@functools.lru_cache(maxsize=64)
def _lexicon(
    select: Cloze | GenericWords, data: Data, data_root: Path, versions: tuple[tuple[int, int, int], ...]
) -> Cloze | GenericWords:
    """Return a selection with its list of words in place of files. It is cached for all runs of a process
    that name the same versions of the files."""
    from lightning_modules.data.lexica import resolved  # imports pyarrow, which most specs do not need

    return resolved(select, data=data, data_root=data_root)


def self_contained_runs(
    spec: Path, planned: Sequence[Run], *, data_root: Path, overrides: Sequence[str] = ()
) -> tuple[Run, ...]:
    """Return the runs with the words of their lexica in place of files, after checking that their text is
    there.

    Only the beginning of each text is read, to check its columns. Data sets of the hub are not checked.

    Raises:
        SpecProblems: files of text or lexica are unfit; the error has all problems, in the order of the spec.
    """
    problems = functools.cache(lambda data: corpus.problems(data, data_root))
    contained: list[Run] = []
    unfit: list[tuple[str, str | None, str]] = []
    for run in planned:
        unfit += [(run.arm, None, sentence) for _, sentence in problems(run.settings.data)]
        try:
            contained.append(self_contained(run, data_root))
        except DataError as error:
            unfit.append((run.arm, None, str(error)))
    if unfit:
        raise load.unfit_files(spec, unfit, overrides=overrides)
    return tuple(contained)


def check(
    spec: Path, experiment: Experiment, planned: Sequence[Run], *, data_root: Path, overrides: Sequence[str] = ()
) -> None:
    """Check every file that the spec names. Treebanks of measures are read completely, and files of a user's
    own tasks must have the columns that the tasks name.

    Missing files of tasks are no problem: the tasks are skipped, as `catalogue.caveats` says.

    Raises:
        SpecProblems: files are unfit, or a logger is not installed; the error has all problems, in the order
            of the spec.
    """
    problems: list[Problem] = []
    try:
        self_contained_runs(spec, planned, data_root=data_root, overrides=overrides)
    except SpecProblems as error:
        problems += error.problems
    if unfit := [*_missing_loggers(planned), *_unfit_measures(experiment, planned, data_root)]:
        problems += load.unfit_files(spec, unfit, overrides=overrides).problems
    if problems:
        raise SpecProblems(tuple(sorted(problems)))


def require_loggers(spec: Path, planned: Sequence[Run], *, overrides: Sequence[str] = ()) -> None:
    """Raise SpecProblems, at their places in the spec, for loggers that are not installed."""
    if unfit := list(_missing_loggers(planned)):
        raise load.unfit_files(spec, unfit, overrides=overrides)


def _missing_loggers(planned: Sequence[Run]) -> Iterator[tuple[str, str | None, str]]:
    for run in planned:
        if "wandb" in run.settings.training.loggers and find_spec("wandb") is None:
            sentence = (
                "training.loggers names wandb, which is not installed; install the extra [wandb], or leave it out"
            )
            yield run.arm, None, sentence


def _unfit_measures(
    experiment: Experiment, planned: Sequence[Run], data_root: Path
) -> Iterator[tuple[str, str | None, str]]:
    """Yield (arm, measure, sentence) for each unfit treebank of a measure, and for each user's own task with
    wrong columns."""
    for settings in experiment.measures:
        try:
            if (treebank := getattr(settings, "treebank", None)) is not None:
                read_treebank(data_root / treebank)
            for name in own_tasks([settings]):
                task_called(name).check_heads(data_root)
        except DataError as error:
            yield from ((run.arm, settings.kind, str(error)) for run in planned)


def restore(planned: PlannedRun) -> None:
    """Write run.json of a trained run again if somebody deleted it, as errors on a damaged one advise, and the
    present places of its plugins if the recorded ones are empty. Otherwise the run could not be exported."""
    if not (planned.directory.path / "run.json").exists():
        create(planned)
    elif plugins.loaded() and plugins_of([planned.run.settings]):  # the latter takes long for a large grid
        with suppress(RunDirectoryError, FilesError):  # damaged, or of somebody else
            records = planned.directory.description().get("plugins", {})
            if not all(Path(record["path"]).exists() for record in records.values()):
                _renew_places(planned)


def create(planned: PlannedRun) -> None:
    """Make the run's folder with its run.json.

    An existing run.json stays if the run is being trained. That of a run that is done gets the present places of
    files (`_with_present_places`), and keeps the rest. Otherwise it is written again, because settings that are
    not part of the identity may have changed, such as the number of micro-batches.
    """
    directory, path = planned.directory, planned.directory.path
    if (path / "run.json").exists() and directory.is_locked():
        return
    if (path / "run.json").exists() and directory.is_done():
        _renew_places(planned)
        return
    make_folder(path)
    content = description(planned)
    # Locked, because training removes half-written files from the run's folder.
    with suppress(RunBusyError), directory.lock():
        write_json(path / "run.json", content | {"checksum": checksum(content)})


def _renew_places(planned: PlannedRun) -> None:
    """Write the present places of files into run.json of a run that is done, if they differ. Otherwise a run
    whose text or plugin was moved could not be measured any more.

    A damaged run.json stays; whoever measures the run says what to do about it.
    """
    directory = planned.directory
    with suppress(RunDirectoryError):  # damaged, or locked meanwhile
        written = directory.description()
        if _with_present_places(written, planned) == written:
            return
        with directory.lock():
            renewed = _with_present_places(directory.description(), planned)
            write_json(directory.path / "run.json", renewed | {"checksum": checksum(renewed)})


def _with_present_places(written: dict[str, Any], planned: PlannedRun) -> dict[str, Any]:
    """Return the content of a run.json with the text, the initial weights and the plugins of the spec. Their
    content is part of the identity, so only their places can differ. Plugins that the spec does not name are
    dropped: nobody has read their files."""
    present = description(planned)
    settings = written.get("settings")
    if not isinstance(settings, dict):
        return written
    places = {name: present["settings"][name] for name in ("data", "init") if name in present["settings"]}
    plugins = {"plugins": present["plugins"]} if "plugins" in present else {}
    others = {name: value for name, value in written.items() if name != "plugins"}
    return others | {"settings": settings | places} | plugins


def description(planned: PlannedRun) -> dict[str, Any]:
    """Return the content of run.json, without its checksum."""
    return {
        "run_id": planned.run_id,
        "arm": planned.run.arm,
        "seed": planned.run.seed,
        "tokens": planned.tokens,
        "settings": planned.run.settings.model_dump(mode="json"),
        **({"plugins": plugins} if (plugins := plugins_of([planned.run.settings])) else {}),
    }
