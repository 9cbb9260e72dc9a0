"""From the rows of each run, and its log, to the one table of an experiment.

What a run's log says of its learning and of its corruption, as rows of the table. No torch.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ablations import results
from ablations.errors import ResultsError
from ablations.runs import measure_pairs
from ablations.runs import rows as run_rows
from ablations.runs.identity import PlannedRun
from lightning_modules.training.run_directory import RunDirectory
from lightning_modules.vocabulary import FIRST_WORD_ID

Row = dict[str, Any]

TREATED = ("hidden", "masked", "random", "kept")
"""What a corruption's log counts, as shares of the tokens that could be hidden."""


def learning(log: Sequence[Row], *, floor: float) -> Iterator[Row]:
    """Yield the loss of every validation during training, and the gain, which is the floor minus the loss.

    Args:
        log: lines of metrics.jsonl.
        floor: the loss of a guess without context on the same predictions.
    """
    for line in log:
        if (loss := line.get("val/loss")) is None:
            continue
        row = {"measure": "learning", "step": line["step"], "unit": "nats", "n": line["val/predicted"]}
        yield row | {"metric": "loss", "value": loss, "floor": floor}
        yield row | {"metric": "gain", "value": floor - loss, "floor": 0.0}


def corruption(log: Sequence[Row], *, vocab_size: int, random_differs: bool) -> Iterator[Row]:
    """Yield what training masked, over all its steps: shares of the tokens that could be hidden, and how often a
    token that was replaced at random came out as it was (`collision_rate`), whose floor is that of a uniform draw.

    Args:
        log: lines of metrics.jsonl.
        random_differs: whether the original is left out of the draw; the floor is 0 then.
    """
    logged = [line for line in log if "corruption/random_unchanged" in line]
    if not logged:
        return
    row = {"measure": "corruption", "step": logged[-1]["step"], "unit": ""}
    # A line's shares are of its own candidates; lines of older logs, without their number, count alike.
    weights = [line.get("corruption/candidates", 1.0) for line in logged]

    def over_all(name: str) -> float:
        parts = (weight * line[f"corruption/{name}"] for weight, line in zip(weights, logged, strict=True))
        return math.fsum(parts) / max(math.fsum(weights), 1.0)

    for name in TREATED:
        yield row | {"metric": name, "value": over_all(name)}
    if random := over_all("random"):
        floor = 0.0 if random_differs else 1 / (vocab_size - FIRST_WORD_ID)
        yield row | {"metric": "collision_rate", "value": over_all("random_unchanged") / random, "floor": floor}


def read_log(directory: RunDirectory) -> list[Row]:
    """Return the lines of metrics.jsonl; none where there is no file.

    Raises:
        ResultsError: a line is no JSON.
        RunDirectoryError: the log has changed since the training ended.
    """
    try:
        return [json.loads(line) for line in directory.require_log().decode().splitlines()]
    except ValueError as error:
        raise ResultsError(
            f"{directory.metrics} is damaged; copy it back, or delete {directory.path}, and `ablate run` trains "
            "the run again."
        ) from error


MUST_AGREE = {
    "sample": "tokens than the runs before it; start `ablate measure` again",
    "files": "files than the runs before it, which are not there now; put them back and start `ablate run` again",
}
"""What the rows of a measure must have read alike in all runs on a text; and what to do where they have not."""


MEASURED = [name for name in run_rows.ROW_COLUMNS if name not in run_rows.OWN_COLUMNS]
"""Columns that a measure writes."""


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
        compared: the rows of `measure_pairs.rows`; those of other runs, settings or trainings are left out.

    Raises:
        ResultsError: two runs on the same text were measured on different tokens or files, or a log is damaged.
        RunDirectoryError: a log has changed since the training ended.
    """
    rows = run_rows.of_these(run_rows.rows_of_all([item.directory.path for item in planned]), keys)
    _require_same_text(rows, planned)
    tables = [
        _named(rows.drop(columns=run_rows.OWN_COLUMNS), experiment, planned),
        *_logged(rows, experiment, planned),
    ]
    runs = pd.concat([part["run"] for part in tables]).to_numpy()
    table = results.concat(part.drop(columns="run") for part in tables)
    tables = [table.iloc[runs.argsort(kind="stable")]]  # of each run what was measured, then what its log says
    if compared is not None:
        compared = measure_pairs.of_last_trainings(compared, planned)
        tables += _comparisons(compared[compared["key"].isin(keys)], experiment, planned)
    return results.concat(tables)


def _require_same_text(rows: pd.DataFrame, planned: Sequence[PlannedRun]) -> None:
    """Refuse rows of one measure that were computed from other tokens or files than those of an earlier run on the
    same text."""
    differing = []
    for what in MUST_AGREE:
        digests = rows[["run", "measure", "key", what]].drop_duplicates().dropna()
        digests["tokens"] = [planned[run].tokens for run in digests["run"]]
        first = digests.groupby(["tokens", "key"])[what].transform("first")
        others = digests[digests[what] != first]
        differing += [(run, what, measure) for run, measure in others[["run", "measure"]].to_numpy()]
    if differing:
        run, what, measure = min(differing, key=lambda one: one[0])
        raise ResultsError(f"{planned[run].directory.path}: {measure} was measured on other {MUST_AGREE[what]}.")


def _named(rows: pd.DataFrame, experiment: str, planned: Sequence[PlannedRun]) -> pd.DataFrame:
    """Return rows with the experiment, and with identity, arm and seed of the run that each is of."""
    items = [planned[run] for run in rows["run"]]
    return rows.assign(
        experiment=pd.Series(experiment, rows.index, dtype="string"),
        run_id=pd.Series([item.run_id for item in items], rows.index, dtype="string"),
        arm=pd.Series([item.run.arm for item in items], rows.index, dtype="string"),
        seed=pd.Series([item.run.seed for item in items], rows.index, dtype="int64"),
    )


def _comparisons(compared: pd.DataFrame, experiment: str, planned: Sequence[PlannedRun]) -> Iterator[pd.DataFrame]:
    """The rows of pairs, the group being the arm of the other run.

    Arms with equal settings share their runs; each of them gets the rows.
    """
    pairs: dict[tuple[str, str], list[measure_pairs.Pair]] = defaultdict(list)
    run_ids = {*compared["run_id"], *compared["other_run_id"]}  # of a large grid few runs are compared, or none
    items = [item for item in planned if item.run_id in run_ids]
    for pair in measure_pairs.planned_pairs(items, across_seeds=True):
        pairs[pair.first.run_id, pair.second.run_id].append(pair)
    for (run_id, other_run_id), rows in compared.groupby(["run_id", "other_run_id"], sort=False):
        for first, second in pairs.get((str(run_id), str(other_run_id)), ()):
            yield _as_table(_records(rows.assign(group=second.run.arm)), experiment, first)


def _logged(rows: pd.DataFrame, experiment: str, planned: Sequence[PlannedRun]) -> Iterator[pd.DataFrame]:
    """Yield the rows of the runs' logs, of those for which `validation` was measured."""
    losses = rows[(rows["measure"] == "validation") & (rows["metric"] == "loss") & rows["group"].isna()]
    records: list[Row] = []
    for run, floor in losses.drop_duplicates("run")[["run", "floor"]].to_numpy():
        item = planned[int(run)]
        masking = getattr(item.run.settings.objective, "masking", None)
        log = read_log(item.directory)
        of_log = [
            # The floor is of the same predictions: the corruption of evaluation is frozen.
            *learning(log, floor=float(floor)),
            *corruption(
                log,
                vocab_size=item.run.settings.data.vocab_size,
                random_differs=masking is not None and masking.random_differs,
            ),
        ]
        records += [row | {"run": int(run)} for row in of_log]
    if records:
        columns = {name: run_rows.ROW_COLUMNS[name] for name in MEASURED} | {"run": "int64"}
        yield _named(pd.DataFrame(records).reindex(columns=[*columns]).astype(columns), experiment, planned)


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    named = rows.drop(columns=[*run_rows.OWN_COLUMNS, *measure_pairs.STARTED], errors="ignore")
    return [{str(name): value for name, value in row.items()} for row in named.to_dict("records")]


def _as_table(records: Sequence[Mapping[str, Any]], experiment: str, item: PlannedRun) -> pd.DataFrame:
    about = {"experiment": experiment, "run_id": item.run_id, "arm": item.run.arm, "seed": item.run.seed}
    return results.table({**record, **about} for record in records)


def write(table: pd.DataFrame, folder: Path) -> None:
    """Put the table in the experiment's folder."""
    results.write(table, folder / "results.parquet")
