"""From the rows of each run, and its log, to the one table of an experiment."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ablations import logged, measured, results
from ablations.errors import ResultsError
from ablations.runs import PlannedRun


def gather(
    experiment: str, planned: Sequence[PlannedRun], *, keys: Sequence[str], compared: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The rows of all runs that were computed with this experiment's measures, and those of pairs of its runs.

    If `validation` was measured, there are also rows of what its log says: `learning` and `corruption`.

    A run that another experiment trained under another arm's name gets this experiment's name. Runs without
    rows are left out.

    Args:
        compared: the rows of `comparing.rows`, of which those of other runs or settings are left out.

    Raises:
        ResultsError: two runs on the same text were measured on different tokens.
    """
    tables = []
    samples: dict[tuple[str, str], str] = {}
    for item in planned:
        rows = measured.rows(item.directory.path)
        rows = rows[rows["key"].isin(list(keys))]
        if rows.empty:
            continue
        for key, sample in rows[["key", "sample"]].drop_duplicates().dropna().to_numpy().tolist():
            if samples.setdefault((item.tokens, key), sample) != sample:
                raise ResultsError(
                    f"{item.directory.path}: was measured on other tokens than the runs before it; "
                    f"start `ablate measure` again."
                )
        tables.append(_as_table(pd.concat([rows, pd.DataFrame(_logged(rows, item))]), experiment, item))
    if compared is not None:
        tables += _comparisons(compared[compared["key"].isin(list(keys))], experiment, planned)
    return results.concat(tables)


def _comparisons(compared: pd.DataFrame, experiment: str, planned: Sequence[PlannedRun]) -> Iterator[pd.DataFrame]:
    """The rows of pairs, the group being the arm of the other run."""
    by_id = {item.run_id: item for item in planned}
    known = compared[compared["run_id"].isin(by_id) & compared["other_run_id"].isin(by_id)]
    for run_id, rows in known.groupby("run_id", sort=False):
        other = rows["other_run_id"].map(lambda other: by_id[other].run.arm)
        yield _as_table(rows.assign(group=other), experiment, by_id[str(run_id)])


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


def _as_table(rows: pd.DataFrame, experiment: str, item: PlannedRun) -> pd.DataFrame:
    named = rows.drop(columns=["key", "sample"]).assign(
        experiment=experiment, run_id=item.run_id, arm=item.run.arm, seed=item.run.seed
    )
    records = named.astype(object).where(named.notna(), None).to_dict("records")
    return results.table({str(name): value for name, value in record.items()} for record in records)


def write(table: pd.DataFrame, folder: Path) -> None:
    """Put the table in the experiment's folder."""
    results.write(table, folder / "results.parquet")
