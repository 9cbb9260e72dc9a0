"""Distances between runs: the pairs that are compared, their steps, and the file of their rows. No torch.

OUT/<experiment>/comparisons.parquet has the columns of the table of results. It also has the key of each
row's settings, the digest of its sample, and the times when the training of both runs started.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ablations.errors import MeasureError
from ablations.measures.settings import RunDistanceSettings
from ablations.results import read_sealed, sealed
from ablations.runs.identity import PlannedRun
from ablations.runs.rows import checkpoints, instead, key
from ablations.wording import several
from lightning_modules.files import write_whole


class Pair(NamedTuple):
    """Pair of runs that are compared: two arms with the same seed, two seeds of an arm, or both at once."""

    first: PlannedRun
    second: PlannedRun

    @property
    def ids(self) -> tuple[str, str]:
        """Return the identities of both runs."""
        return self.first.run_id, self.second.run_id


STARTED = {"started": "run_id", "other_started": "other_run_id"}
"""Columns with the start of a run's training, each with the column that names the run."""

Step = int | None
"""Step of the checkpoints that are compared; None is the last one of either run."""


def pairs(planned: Sequence[PlannedRun], settings: RunDistanceSettings) -> list[Pair]:
    """Return the pairs to compare whose runs are both trained and have their last checkpoint."""
    return _asked_pairs([item for item in planned if item.directory.is_done()], settings)


def planned_pairs(planned: Sequence[PlannedRun], arms: Sequence[str] = (), *, across_seeds: bool) -> list[Pair]:
    """Return the pairs of runs to compare: two arms at the same seed, or two seeds of an arm. Both runs must
    have an objective with layers, the same number of layers, and the same text.

    Args:
        arms: arms that are compared; all unless given.
        across_seeds: whether two arms are also compared at different seeds.
    """
    encoders = [
        (item, item.run.settings.encoder.num_hidden_layers)
        for item in planned
        if (not arms or item.run.arm in arms) and item.run.settings.objective.has_layers
    ]
    return [
        Pair(first, second)
        for (first, depth), (second, other_depth) in itertools.combinations(encoders, 2)
        if depth == other_depth
        and first.tokens == second.tokens
        and first.run_id != second.run_id
        and (across_seeds or (first.run.arm == second.run.arm) != (first.run.seed == second.run.seed))
    ]


def as_measured(pairs: Sequence[Pair], measured: Collection[tuple[str, str]]) -> list[Pair]:
    """Return the pairs. A pair is reversed if only its reverse has rows: the spec may have changed the order of
    the arms, which decides which run comes first.

    Args:
        measured: identities of both runs of each pair with rows.
    """
    of_reverse = {*measured} - {pair.ids for pair in pairs}
    return [
        Pair(pair.second, pair.first) if pair.ids not in measured and pair.ids[::-1] in of_reverse else pair
        for pair in pairs
    ]


def rows(folder: Path) -> pd.DataFrame:
    """Return the rows of comparisons.parquet; empty if there is no file."""
    path, remedy = folder / "comparisons.parquet", "`ablate run` compares the runs again"
    table = read_sealed(path, remedy=remedy).to_pandas() if path.exists() else pd.DataFrame()
    columns = ["key", "sample", "run_id", "other_run_id", "step", *STARTED]
    return table.reindex(columns=list(dict.fromkeys([*table.columns, *columns])))


def of_last_trainings(table: pd.DataFrame, planned: Sequence[PlannedRun]) -> pd.DataFrame:
    """Return the rows whose runs were not trained again since. A row without the start of a training
    stays."""
    compared = {*table["run_id"], *table["other_run_id"]}  # in a large grid few runs are compared
    started = {
        item.run_id: item.directory.provenance().get("started") for item in planned if item.run_id in compared
    }
    for column, run in STARTED.items():
        table = table[table[column].isna() | (table[column] == table[run].map(started))]
    return table


def pairs_to_measure(
    folder: Path, planned: Sequence[PlannedRun], settings: RunDistanceSettings, *, recompute: bool = False
) -> dict[tuple[str, Step], list[Pair]]:
    """Return the pairs without rows for these settings, by address of the text and step; all pairs with
    `recompute`."""
    measured = _measured(folder, planned, settings)
    with_rows = {(first, second) for first, second, _ in measured}
    trained_pairs = as_measured(pairs(planned, settings), with_rows)
    open_pairs: dict[tuple[str, Step], list[Pair]] = defaultdict(list)
    # Arms with equal settings share their runs, so that several pairs of arms may be one pair of runs.
    for ids, pair in {pair.ids: pair for pair in trained_pairs}.items():
        first, second = (checkpoints(item.directory.path, settings) for item in pair)
        for step in first:
            if step in second and (recompute or (*ids, step) not in measured):
                open_pairs[pair.first.tokens, step].append(pair)
    return open_pairs


def _measured(
    folder: Path, planned: Sequence[PlannedRun], settings: RunDistanceSettings
) -> set[tuple[str, str, Step]]:
    """Return run, other run and step of every comparison that has rows. Each pair with rows is also returned
    with step None."""
    table = of_last_trainings(rows(folder), planned)
    same_settings = table[table["key"] == key(settings)]
    columns = (same_settings[name] for name in ("run_id", "other_run_id", "step"))
    measured: set[tuple[str, str, Step]] = set(zip(*columns, strict=True))
    return measured | {(first, second, None) for first, second, _ in measured}


def to_train_again(
    folder: Path, planned: Sequence[PlannedRun], settings: RunDistanceSettings, *, to_train: Collection[str]
) -> set[str]:
    """Return the identities of trained runs that must be trained again, because a missing distance needs
    their lost checkpoint.

    Args:
        to_train: identities of runs that will be trained in any case; their distances must then be computed
            again.
    """
    with_rows = {(first, second) for first, second, _ in _measured(folder, planned, settings)}
    trained = {item.run_id: item for item in planned if item.directory.is_trained()}
    gone = {run_id for run_id, item in trained.items() if not item.directory.is_done()}
    pairs_of_ids = [pair.ids for pair in as_measured(_asked_pairs(planned, settings), with_rows)]
    to_repeat: set[str] = set()
    while True:
        all_to_train = to_repeat.union(to_train)
        missing_pairs = [ids for ids in pairs_of_ids if ids not in with_rows or not all_to_train.isdisjoint(ids)]
        also_to_train = {run_id for ids in missing_pairs for run_id in ids if run_id in gone} - all_to_train
        if not also_to_train:
            return to_repeat
        to_repeat |= also_to_train


def still_open(
    folder: Path, planned: Sequence[PlannedRun], settings: RunDistanceSettings, *, to_train: Collection[str]
) -> list[Pair]:
    """Return the pairs without rows for these settings, among runs that are trained or will be."""
    unmeasured = itertools.chain.from_iterable(pairs_to_measure(folder, planned, settings).values())
    unfinished = [pair for pair in _asked_pairs(planned, settings) if not {*pair.ids}.isdisjoint(to_train)]
    return list({pair.ids: pair for pair in (*unmeasured, *unfinished)}.values())


def _asked_pairs(planned: Sequence[PlannedRun], settings: RunDistanceSettings) -> list[Pair]:
    return planned_pairs(planned, settings.arms, across_seeds=settings.across_seeds)


def compare(
    folder: Path,
    planned: Sequence[PlannedRun],
    settings: RunDistanceSettings,
    *,
    data_root: Path,
    say: Callable[[str], None],
    recompute: bool = False,
) -> None:
    """Compute the missing distances, or all with `recompute`, and write them step by step into the
    experiment's folder. What can be computed is written before an error is raised.

    Raises:
        MeasureError: too few tokens for the width, or a pair of runs without a distance in any layer; the first
            such error.
        CheckpointError: a checkpoint is missing or damaged.
    """
    from ablations.measures.run_distance import run_distance  # imports torch, which the others do without

    problems: list[MeasureError] = []
    for (_, step), chosen in pairs_to_measure(folder, planned, settings, recompute=recompute).items():
        say(f"comparing {several(len(chosen), 'pair')} of runs{'' if step is None else f' at step {step:,}'}")
        runs = {item.run_id: item for pair in chosen for item in pair}
        distances: list[dict[str, Any]] = []
        try:
            for row in run_distance(
                {
                    run_id: (item.directory, checkpoints(item.directory.path, settings)[step])
                    for run_id, item in runs.items()
                },
                [pair.ids for pair in chosen],
                settings,
                data_root=data_root,
            ):
                distances.append(row)
        except MeasureError as error:  # raised before the first row, or after those of all pairs with a distance
            problems.append(error)
        if not distances:
            continue
        frame = pd.DataFrame(distances).assign(measure=settings.kind, key=key(settings))
        started = {run_id: item.directory.provenance().get("started") for run_id, item in runs.items()}
        frame = frame.assign(**{column: frame[run].map(started) for column, run in STARTED.items()})
        frame = instead(rows(folder), frame, by=("key", "run_id", "other_run_id", "step"))
        write_whole(folder / "comparisons.parquet", sealed(frame))
    if problems:
        raise problems[0]
