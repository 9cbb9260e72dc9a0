"""Tables of scores as data: tasks and arms, every number, rows in order, and sentences on which arms are at
chance.

A score is judged by its own interval, over seeds or of one run: it is at chance if the interval includes the
chance level. Whole tasks have rows; their parts are folded below.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pandas import DataFrame

from ablations.wording import listed
from reports.figures.curves import order
from reports.folder import QUICK
from reports.scores.texts import TABLES, ScoreRow, SharedColumn, TableText
from reports.statistics.summaries import NORMAL_95, ROUNDING, bands, differences, last_step
from reports.words import FIELDS, count, in_order, is_absent, known_task, metric_words, parts


class Entry(NamedTuple):
    """Entry of a table: a task, or a part of one."""

    group: str | None
    """Name of the group in the table of results; None stands for everything."""
    label: str
    indented: bool = False


class Listing(NamedTuple):
    """Rows of a table under one heading: its tasks and their scores."""

    title: str
    entries: list[Entry]
    scores: tuple[ScoreRow, ...]
    arms_of: tuple[str, ...] = ()
    """Groups of which a listed arm has a score on any; empty for all arms."""


def listings(text: TableText, groups: Sequence[str | None]) -> list[Listing]:
    """Return the listing of the table itself, then those that are folded below it.

    A group of None is the score over all groups. Groups with a number of training examples (``sst2@100``) are left
    out, as a figure shows them.
    """
    named = [group for group in groups if isinstance(group, str)]
    series = _series(text, named)
    scored = [group for group in named if group not in series and "@" not in parts(group)[0]]
    whole = in_order(group for group in scored if "/" not in group)
    inner = [group for group in scored if "/" in group]
    tasks = in_order([*whole, *(parts(group)[0] for group in inner)])
    main = [Entry(None, text.of_all)] if len(named) < len(groups) else []
    folded = []
    for task in tasks:
        of_task = [group for group in inner if parts(group)[0] == task]
        fields = [
            f"{task}/{field}" for field in FIELDS if f"{task}/{field}" in of_task and "field" in _groups(task)
        ]
        main += [Entry(task, task)] if task in whole else []
        main += [Entry(field, parts(field)[1], indented=True) for field in fields]
        if rest := sorted(set(of_task) - set(fields)):
            entries = [Entry(group, parts(group)[1]) for group in rest]
            columns = [name for name in _groups(task) if name != "field" or not fields] or ["field"]
            folded.append(Listing(f"{task}, by {listed(columns, 'and')}", entries, text.scores[:1]))
    if text.series and series:
        last = [entry._replace(label="the most, as above") for entry in main]
        entries = [*(Entry(group, label) for group, label in series.items()), *last]
        folded.append(Listing(text.series.title, entries, text.series.scores, tuple(series)))
    return [Listing(text.title, main, text.scores), *folded]


def _groups(task: str) -> tuple[str, ...]:
    """Return the words for the parts of a task."""
    catalogued = known_task(task)
    return catalogued.groups if catalogued is not None and catalogued.groups else ("part",)


def _series(text: TableText, groups: Sequence[str]) -> dict[str, str]:
    """Return groups such as ``sweeps=250`` in the order of their numbers, with the numbers in words."""
    if text.series is None:
        return {}
    matches = {group: re.fullmatch(rf"{text.series.family}=(\d+)", group) for group in groups}
    numbers = {group: int(match[1]) for group, match in matches.items() if match}
    return {group: count(number) for group, number in sorted(numbers.items(), key=lambda item: item[1])}


MOST_NAMED = 6
"""Largest number of tasks or arms that are named; more are counted."""

Row = Mapping[str, Any]
Cell = dict[str, Any]


def chance_sentences(
    rows: Sequence[Row], *, arms: Sequence[str], without: Sequence[str], text: TableText, counts: bool = False
) -> list[str]:
    """Return sentences for above a table: what is at chance, below chance or not judged, and which arms have
    fewer seeds or no score.

    Args:
        rows: rows of the table; those that decide are the main scores of their tasks.
        arms: arms with scores, in order.
        counts: whether tasks are counted rather than named.
    """
    main = [row for row in rows if row["decides"]]
    sentences = _of_main(main, arms, text.chance, counts=counts) if main else []
    sentences += _of_others([row for row in rows if row["judged"] and not row["decides"]], arms, text.chance)
    sentences += _fewer_seeds(rows, arms, counts=counts)
    if without:
        sentences.append(f"No score: {_named(without, [*arms, *without])}.")
    return sentences


def _of_main(rows: Sequence[Row], arms: Sequence[str], chance: str, *, counts: bool) -> list[str]:
    at, below, unknown = (_where(rows, arms, "verdict", [kind], counts=counts) for kind in ("at", "below", ""))
    sentences = []
    if at:
        sentences.append(f"At {chance} (the interval includes it): {'; '.join(at)}.")
    if below:
        sentences.append(f"Below {chance}: {'; '.join(below)}.")
    if unknown:
        sentences.append(f"Not judged, because there is no interval: {'; '.join(unknown)}.")
    if any(cell["verdict"] == "above" for row in rows for cell in row["arms"].values()):
        every = "every other" if sentences else "every"
        sentences.append(f"{every.capitalize()} main score is above {chance}.")
    return sentences


def _of_others(rows: Sequence[Row], arms: Sequence[str], chance: str) -> list[str]:
    """Return a short sentence on the rows that do not decide, grouped by their score."""
    phrases = []
    for kind in dict.fromkeys(row["scored"] for row in rows):
        of_kind = [row for row in rows if row["scored"] == kind]
        tasks = _where(of_kind, arms, "verdict", ["at", "below"], counts=False)
        phrases += [f"{kind} ({'; '.join(tasks)})"] if tasks else []
    return [f"Further scores that are not above {chance}: {listed(phrases, 'and')}."] if phrases else []


def _fewer_seeds(rows: Sequence[Row], arms: Sequence[str], *, counts: bool) -> list[str]:
    """Return a sentence on the arms with fewer seeds on some tasks than others have; empty if there are none."""
    first = [row for row in rows if row["first"]]
    seeds = sorted({cell["seeds"] for row in first for cell in row["arms"].values()})
    fewer = [
        f"{where} ({few})" for few in seeds[:-1] for where in _where(first, arms, "seeds", [few], counts=counts)
    ]
    return [f"Fewer than {seeds[-1]} seeds: {'; '.join(fewer)}."] if fewer else []


def _where(
    rows: Sequence[Row], arms: Sequence[str], key: str, values: Sequence[Any], *, counts: bool
) -> list[str]:
    """Return on which tasks the cells of the arms have one of the values under a key; arms with the same tasks are
    joined: ``untrained on all 9 tasks``, ``mlm and clm on cola``, ``mt on 3 of 9 tasks``."""
    together: dict[str, list[str]] = {}
    for arm in arms:
        scored = [row for row in rows if arm in row["arms"]]
        tasks = [row["task"] or row["label"] for row in scored if row["arms"][arm][key] in values]
        if not tasks:
            continue
        if len(tasks) == len(scored) and len(tasks) > 1:
            where = "both tasks" if len(tasks) == 2 else f"all {len(tasks)} tasks"
        else:
            many = counts or len(tasks) > MOST_NAMED
            where = f"{len(tasks)} of {len(scored)}" if many else listed(tasks, "and")
        together.setdefault(where, []).append(arm)
    return [f"{_named(arms_there, arms)} on {where}" for where, arms_there in together.items()]


def _named(selected: Sequence[str], arms: Sequence[str]) -> str:
    """Return the names of the arms; of many arms, their number."""
    if len(selected) <= MOST_NAMED:
        return listed(list(selected), "and")
    return f"all {len(selected)} arms" if len(selected) == len(arms) else f"{len(selected)} of {len(arms)} arms"


def mark(verdict: str, chance: str) -> str:
    """Return the words for a mark in a table: ``at chance``; empty without a mark."""
    return f"{verdict} {chance}" if verdict in ("at", "below") else ""


Table = dict[str, Any]

Key = tuple[str | None, str, str]
"""Group, metric and place; the place is `top` for numbers of the top layer, and empty without a layer."""


NumberOrRange = float | tuple[float, float]
"""Number beside the arms, or its lowest and highest value if arms differ in it."""


class TaskScore(NamedTuple):
    """Part of a table: one score of one task."""

    cells: dict[str, Cell]
    """Cells by arm."""
    floor: float
    """Chance level, as mean over runs."""
    n: list[int]
    """Different values of n, in order."""
    rows: DataFrame
    """Rows of the score, one for each run."""


OverExamples = Mapping[tuple[str, str, str, str], Mapping[str, float]]
"""Mean, low and high over seeds and examples together, by measure, task, metric and arm."""

OVER_EXAMPLES = "over seeds and examples"
"""Label of rows with intervals over seeds and examples, below the row of a score, and the kind of their bands."""

HOW_OVER_EXAMPLES = (
    "Rows over seeds and examples have the same mean with the 95% interval of the multi-bootstrap (Sellam et "
    "al. 2022), ± its upper half. The t interval says how far the mean would move with other seeds on these "
    "examples. The multi-bootstrap says how far it would move with other seeds and other examples of the same "
    "kind. It is too wide if answers are mostly chance. Claims are judged only by the t interval."
)


class ScoreRows(NamedTuple):
    """Scores from which a table is made."""

    parts: dict[Key, TaskScore]
    baselines: dict[Key, TaskScore]
    arms: list[str]
    """Arms with a score, in order."""
    base: str
    """First arm of the experiment. Others are compared with it."""
    over_examples: OverExamples
    """Intervals of all measures; empty if no predictions are kept."""


def score_tables(
    table: DataFrame,
    *,
    arms: Sequence[str],
    quick: Collection[str] = (),
    over_examples: OverExamples | None = None,
) -> list[Table]:
    """Return every table that has rows, in the order of the page.

    Args:
        arms: arms of the experiment in order.
        quick: measures with `effort: quick`; their tables say that they are no evidence.
        over_examples: intervals that get a row below their score.

    Raises:
        ResultsError: the table lacks a column, or has several values for one seed.
    """
    tables = []
    baselines = split(_last_rows(table, "baselines"))
    for text in TABLES:
        measure_rows = _last_rows(table, text.measure)
        metrics = {score.metric for score in text.scores if score.judged} or {s.metric for s in text.scores}
        scored = measure_rows[measure_rows["metric"].isin(metrics) & measure_rows["value"].notna()]
        if not scored.empty:
            scored_arms = order(scored, arms)
            rows = ScoreRows(split(measure_rows), baselines, scored_arms, arms[0], over_examples or {})
            tables.append(_table(rows, text, arms=arms))
    for built in tables:
        built["says"][:0] = [QUICK] * (built["measure"] in quick)
    return [built for built in tables if built["rows"]]


def _last_rows(table: DataFrame, measure: str) -> DataFrame:
    """Return the rows of a measure at each run's last step that have no layer or are of its top layer.

    A new column `place` is empty for rows without a layer, and `top` for the top layer.
    """
    rows = last_step(table[(table["measure"] == measure) & table["other_run_id"].isna()])
    top = (rows["layer"] == rows.groupby(["arm", "seed", "metric"])["layer"].transform("max")).fillna(False)
    rows = rows.assign(place=np.where(rows["layer"].isna(), "", "top"))
    return rows[rows["layer"].isna() | top.astype(bool)]


def split(rows: DataFrame) -> dict[Key, TaskScore]:
    """Return the scores in rows of `_last_rows` by group, metric and place: means, intervals and chance levels."""
    key = ["group", "metric", "place"]
    numbers = rows.groupby([*key, "arm"], dropna=False, sort=False).ngroup()
    # Plain dictionaries: to take a row or a number from a DataFrame takes a hundred times as long.
    summaries = bands(rows.assign(line=numbers, x=0)).set_index("line").to_dict("index")
    floors = rows.groupby(numbers)["floor"].mean().to_dict()
    sizes = rows.groupby(numbers)["n"].min().astype(float).to_dict()
    scores: dict[Key, TaskScore] = {}
    for (group, metric, place), part in rows.assign(line=numbers).groupby(key, dropna=False, sort=False):
        cells = {}
        for arm, line in dict(zip(part["arm"].tolist(), part["line"].tolist(), strict=True)).items():
            summary_row = summaries[line]
            if summary_row["seeds"]:
                cells[str(arm)] = {name: float(summary_row[name]) for name in ("mean", "low", "high")} | {
                    "band": str(summary_row["band"]),
                    "seeds": int(summary_row["seeds"]),
                    "floor": float(floors[line]),
                    "examples": float(sizes[line]),
                }
        n = sorted({int(n) for n in part["n"].dropna()})
        name = group if isinstance(group, str) else None
        scores[name, str(metric), str(place)] = TaskScore(cells, float(part["floor"].mean()), n, part)
    return scores


def _table(rows: ScoreRows, text: TableText, *, arms: Sequence[str]) -> Table:
    main, *folded = listings(text, list(dict.fromkeys(group for group, *_ in rows.parts)))
    folded_tables = [_listed(rows, text, listing) for listing in folded]
    body = list(_body(rows, text, main))
    heads = _heads(body, text)
    of_baselines = {column.label for column in text.shared_columns if column.measure == "baselines"}
    without = [arm for arm in arms if arm not in rows.arms]
    return {
        "name": text.name,
        "title": text.title,
        "measure": text.measure,
        "csv": f"figures/{text.name}.csv",
        "n": text.n,
        "error": text.error,
        "how_to_read": [
            *text.how_to_read,
            *[text.baselines] * bool(text.baselines and of_baselines & set(heads)),
            *[HOW_OVER_EXAMPLES] * any(row["scored"] == OVER_EXAMPLES for row in body),
        ],
        "says": chance_sentences(body, arms=rows.arms, without=without, text=text),
        "arms": rows.arms,
        "beside": heads,
        "base": rows.base,
        "bands": sorted({cell["band"] for row in body for cell in row["arms"].values()} - {""}),
        "chance": text.chance,
        "rows": body,
        "folded": [part for part in folded_tables if part["rows"]],
    }


def _listed(rows: ScoreRows, text: TableText, listing: Listing) -> dict[str, Any]:
    """Return a folded table with the same columns."""
    body = list(_body(rows, text, listing))
    return {
        "title": listing.title,
        "says": chance_sentences(body, arms=rows.arms, without=[], text=text, counts=True),
        "beside": _heads(body, text),
        "rows": body,
    }


def _heads(body: Sequence[Mapping[str, Any]], text: TableText) -> list[str]:
    """Return the heads of the columns beside the arms that have any number."""
    heads = [text.floor] * bool(text.floor) + [column.label for column in text.shared_columns]
    return [head for head in heads if any(not is_absent(row["beside"].get(head)) for row in body)]


# Rows ------------------------------------------------------------------------------------------------


def _body(rows: ScoreRows, text: TableText, listing: Listing) -> Iterator[dict[str, Any]]:
    arms = rows.arms
    if listing.arms_of:
        cells_by_part = [part.cells for (group, *_), part in rows.parts.items() if group in listing.arms_of]
        arms = [arm for arm in arms if any(arm in cells for cells in cells_by_part)]
    for entry in listing.entries:
        first, decided = True, False
        for score in listing.scores[:1] if entry.indented else listing.scores:
            part = rows.parts.get((entry.group, score.metric, score.layer))
            cells = {arm: part.cells[arm] for arm in arms if arm in part.cells} if part else {}
            if not part or not cells or _said_already(score, entry, text):
                continue
            judged = score.judged and not is_absent(part.floor)
            decides = judged and not decided
            verdicts = {arm: _verdict(cell, arm, rows, entry, score) for arm, cell in cells.items() if judged}
            shown = {arm: _cell(cell, score, verdicts.get(arm, "")) for arm, cell in cells.items()}
            row = {
                "task": entry.group,
                "label": entry.label,
                "indented": entry.indented,
                "first": first,
                "metric": score.metric,
                "layer": score.layer or None,
                "scored": score.label or metric_words(entry.group),
                "judged": judged,
                "decides": decides,
                "scale": score.scale,
                "digits": score.digits,
                "n": part.n,
                "beside": _shared_numbers(rows, text, part, entry, score),
                "arms": _with_differences(shown, part, rows.base, measure=text.measure) if decides else shown,
            }
            yield row
            if both := _over_examples(rows, text, row):
                yield row | {"first": False, "scored": OVER_EXAMPLES, "judged": False, "decides": False} | both
            first, decided = False, decided or judged


def _with_differences(cells: dict[str, Cell], part: TaskScore, base: str, *, measure: str) -> dict[str, Cell]:
    """Return the cells with the difference from the first arm within each seed; it is None without an interval,
    and between minimal pairs of different numbers."""
    runs = part.rows
    if measure == "minimal_pairs":
        runs = runs.assign(sample=runs["n"].astype("string").fillna(""))
    compared = differences(runs, {arm: base for arm in cells if arm != base})
    with_interval = {arm: difference for arm, difference in compared.items() if not is_absent(difference["low"])}
    return {arm: cell | {"difference": with_interval.get(arm)} for arm, cell in cells.items()}


def _over_examples(rows: ScoreRows, text: TableText, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells over seeds and examples, for the row below a row of scores; empty if there are none."""
    cells = {}
    for arm, cell in row["arms"].items():
        interval = rows.over_examples.get((text.measure, row["task"], row["metric"], arm))
        if interval is not None and row["layer"] is None:
            cells[arm] = cell | interval | {"band": OVER_EXAMPLES, "verdict": "", "difference": None}
    return {"beside": {}, "arms": cells} if cells else {}


def _said_already(score: ScoreRow, entry: Entry, text: TableText) -> bool:
    """Return whether the row would repeat the task's own metric."""
    has_score = any(other.metric == "score" for other in text.scores)
    return has_score and score.metric == "accuracy" and metric_words(entry.group) == "accuracy"


def _cell(cell: Cell, score: ScoreRow, verdict: str) -> Cell:
    """Return a cell with its verdict. It has no interval if seeds cannot differ."""
    if score.constant and cell["low"] == cell["high"]:
        cell = cell | {"low": float("nan"), "high": float("nan"), "band": ""}
    return cell | {"verdict": verdict, "difference": None}


NO_SHARES = frozenset({"matthews", "f1", "macro_f1", "entity_f1", "pearson", "spearman"})
"""Metrics of tasks that do not say how many answers are right."""


def _verdict(cell: Cell, arm: str, rows: ScoreRows, entry: Entry, score: ScoreRow) -> str:
    """Return the result of `beside_chance`.

    If all runs have the same correlation or F1, its interval has no width, and it is no number of right answers.
    Then the accuracy of the same answers decides. The verdict is empty without an accuracy, and if the accuracy
    is on the other side of its chance level: answers may be better than chance by Matthews and worse than always
    the most frequent class.
    """
    task = known_task(entry.group) if score.metric in ("score", "shuffled_score") else None
    metric = task.metric if task else score.metric
    if metric not in NO_SHARES or cell["low"] != cell["high"] or abs(cell["mean"] - cell["floor"]) <= ROUNDING:
        return beside_chance(cell, cell["floor"])
    accuracy = rows.parts.get((entry.group, "accuracy", "")) if score.metric == "score" else None
    of_answers = accuracy.cells.get(arm) if accuracy else None
    verdict = beside_chance(of_answers, of_answers["floor"]) if of_answers else ""
    other_side = "below" if cell["mean"] > cell["floor"] else "above"
    return "" if verdict == other_side else verdict


HIGHEST_TAIL = 0.025
"""Probability beyond one end of a 95% interval."""


def beside_chance(cell: Cell, floor: float) -> str:
    """Return whether a score is `above`, `at` or `below` its chance level, by its interval; empty without an
    interval or a chance level.

    If all answers of all runs were right, or all wrong, the exact probability decides that guesses give as many
    right or wrong answers: four right answers of four are at chance if one guess in two is right. If all runs
    have any other share in common, the interval has no width, but the share is not certain; it gets the error
    of its number of answers.
    """
    if is_absent(floor) or is_absent(cell["low"]):
        return ""
    cell = {"mean": cell["low"], "examples": np.nan, "band": ""} | cell
    low, high, mean, examples = (cell[name] for name in ("low", "high", "mean", "examples"))
    has_one_score = low == high or cell["band"] == "text"
    if has_one_score and mean in (0, 1) and 0 <= floor <= 1 and not is_absent(examples):
        by_guessing = (floor if mean else 1 - floor) ** examples
        return "at" if by_guessing > HIGHEST_TAIL else "above" if mean else "below"
    if low == high and 0 < mean < 1 and not is_absent(examples):
        margin = NORMAL_95 * (mean * (1 - mean) / examples) ** 0.5
        low, high = low - margin, high + margin
    # An arm that always gives the most frequent answer scores the chance level in every seed, up to rounding.
    if low - ROUNDING <= floor <= high + ROUNDING:
        return "at"
    return "above" if low > floor else "below"


def _shared_numbers(
    rows: ScoreRows, text: TableText, part: TaskScore, entry: Entry, score: ScoreRow
) -> dict[str, NumberOrRange]:
    floors = [cell["floor"] for cell in part.cells.values() if not is_absent(cell["floor"])]
    numbers = {text.floor: _joined(floors)} if text.floor and floors else {}
    for column in text.shared_columns:
        if _serves(column, score, entry, text):
            numbers[column.label] = _number(rows, column, entry, score)
    return {head: value for head, value in numbers.items() if np.isfinite(value).all()}


def _serves(column: SharedColumn, score: ScoreRow, entry: Entry, text: TableText) -> bool:
    """Return whether a column has a number for this score. Baselines are scored by the task's own metric, so a
    probe's accuracy has one beside it only if this metric is accuracy."""
    if column.measure == "baselines":
        return score == text.scores[0] and score.metric in ("score", metric_words(entry.group))
    return "{}" in column.metrics[0] or score == text.scores[0]


def _number(rows: ScoreRows, column: SharedColumn, entry: Entry, score: ScoreRow) -> NumberOrRange:
    """Return the number of a column beside the arms."""
    source = rows.baselines if column.measure == "baselines" else rows.parts
    group = None if column.of_all else entry.group
    plain = score.metric.removesuffix("_centred").removesuffix("_reranked")
    for metric in column.metrics:
        part = source.get((group, metric.format(plain), ""))
        if part is not None and part.cells:
            return _joined([cell["mean"] for cell in part.cells.values()])
    return float("nan")


def _joined(numbers: Sequence[float]) -> NumberOrRange:
    """Return the number of all arms. If arms differ in it, as with different tokenizers, it is the lowest and the
    highest."""
    low, high = min(numbers), max(numbers)
    return float(np.mean(numbers)) if high - low <= ROUNDING else (low, high)
