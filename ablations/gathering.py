"""From the rows of each run, and its log, to the one table of an experiment."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ablations import comparing, logged, measured, results
from ablations.errors import ResultsError
from ablations.runs import PlannedRun

MUST_AGREE = {
    "sample": "tokens than the runs before it; start `ablate measure` again",
    "files": "files than the runs before it, which are not there now; put them back and start `ablate run` again",
}
"""What the rows of a measure must have read alike in all runs on a text; and what to do where they have not."""


def gather(
    experiment: str,
    planned: Sequence[PlannedRun],
    *,
    keys: Mapping[str, str | None],
    compared: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The rows of all runs that were computed with this experiment's measures, and those of pairs of its runs.

    If `validation` was measured, there are also rows of what its log says: `learning` and `corruption`.

    A run that another experiment trained under another arm's name gets this experiment's name. Runs without
    rows are left out.

    Args:
        keys: of the measures, with `files_now` of each: rows that were computed from files of other
            content are left out.
        compared: the rows of `comparing.rows`, of which those of other runs, settings or trainings are left out.

    Raises:
        ResultsError: two runs on the same text were measured on different tokens or files.
    """
    tables = []
    read: dict[tuple[str, str, str], str] = {}
    for item in planned:
        rows = measured.of_these(measured.rows(item.directory.path), keys)
        if rows.empty:
            continue
        for what, remedy in MUST_AGREE.items():
            own = rows[["measure", "key", what]].drop_duplicates().dropna()
            for measure, key, digest in own.to_numpy().tolist():
                if read.setdefault((item.tokens, key, what), digest) != digest:
                    raise ResultsError(f"{item.directory.path}: {measure} was measured on other {remedy}.")
        tables.append(_as_table([*_records(rows), *_logged(rows, item)], experiment, item))
    if compared is not None:
        compared = comparing.of_last_trainings(compared, planned)
        tables += _comparisons(compared[compared["key"].isin(keys)], experiment, planned)
    return results.concat(tables)


def _comparisons(compared: pd.DataFrame, experiment: str, planned: Sequence[PlannedRun]) -> Iterator[pd.DataFrame]:
    """The rows of pairs, the group being the arm of the other run.

    Arms with equal settings share their runs; each of them gets the rows.
    """
    pairs: dict[tuple[str, str], list[comparing.Pair]] = defaultdict(list)
    for pair in comparing.planned_pairs(planned):
        pairs[pair.first.run_id, pair.second.run_id].append(pair)
    for (run_id, other_run_id), rows in compared.groupby(["run_id", "other_run_id"], sort=False):
        for first, second in pairs.get((str(run_id), str(other_run_id)), ()):
            yield _as_table(_records(rows.assign(group=second.run.arm)), experiment, first)


def _logged(rows: pd.DataFrame, item: PlannedRun) -> Iterator[dict[str, Any]]:
    """What the run's log says, if `validation` was measured."""
    own = rows[(rows["measure"] == "validation") & (rows["metric"] == "loss") & rows["group"].isna()]
    if own.empty:
        return
    # The floor is of the same predictions: the corruption of evaluation is frozen.
    yield from logged.learning(item.directory.metrics, floor=float(own["floor"].iloc[0]))
    settings = item.run.settings
    masking = getattr(settings.objective, "masking", None)
    yield from logged.corruption(
        item.directory.metrics,
        vocab_size=settings.data.vocab_size,
        random_differs=masking is not None and masking.random_differs,
    )


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    named = rows.drop(columns=[*measured.OWN_COLUMNS, *comparing.STARTED], errors="ignore")
    return [{str(name): value for name, value in row.items()} for row in named.to_dict("records")]


def _as_table(records: Sequence[Mapping[str, Any]], experiment: str, item: PlannedRun) -> pd.DataFrame:
    about = {"experiment": experiment, "run_id": item.run_id, "arm": item.run.arm, "seed": item.run.seed}
    return results.table({**record, **about} for record in records)


def write(table: pd.DataFrame, folder: Path) -> None:
    """Put the table in the experiment's folder."""
    results.write(table, folder / "results.parquet")
