"""The files that a spec names: are they there, and do they have what is read from them? No torch."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from ablations import runs, specfile
from ablations.problems import Problem, SpecProblems
from ablations.spec import Experiment, Run
from lightning_modules.data import corpus
from lightning_modules.data.treebank import read_treebank
from lightning_modules.errors import DataError


def self_contained(spec: Path, planned: Sequence[Run], *, data_root: Path) -> tuple[Run, ...]:
    """The runs, each with the words of its lexicon in the place of files; their text is there and has its columns.

    Of text only the beginnings are read, and a data set of the hub is not asked for.

    Raises:
        SpecProblems: all that is wrong with the files of text and of lexica, in the order of the spec.
    """
    problems = functools.cache(lambda data: corpus.problems(data, data_root))
    contained: list[Run] = []
    said: list[tuple[str, str | None, str]] = []
    for run in planned:
        said += [(run.arm, None, sentence) for _, sentence in problems(run.settings.data)]
        try:
            contained.append(runs.self_contained(run, data_root))
        except DataError as error:
            said.append((run.arm, None, str(error)))
    if said:
        raise specfile.unfit_files(spec, said)
    return tuple(contained)


def check(spec: Path, experiment: Experiment, planned: Sequence[Run], *, data_root: Path) -> None:
    """Look for every file that the spec names, the treebanks of its measures included, which are read whole.

    Tasks whose files are missing are no problem: they are left out, as `measurable.caveats` says.

    Raises:
        SpecProblems: all that is wrong with them, in the order of the spec.
    """
    problems: list[Problem] = []
    try:
        self_contained(spec, planned, data_root=data_root)
    except SpecProblems as error:
        problems += error.problems
    if said := list(_unfit_treebanks(experiment, planned[0].arm, data_root)):
        problems += specfile.unfit_files(spec, said).problems
    if problems:
        raise SpecProblems(tuple(sorted(problems)))


def _unfit_treebanks(experiment: Experiment, arm: str, data_root: Path) -> Iterator[tuple[str, str | None, str]]:
    for settings in experiment.measures:
        treebank = getattr(settings, "treebank", None)
        if treebank is None:
            continue
        try:
            read_treebank(data_root / treebank)
        except DataError as error:
            yield arm, settings.kind, str(error)
