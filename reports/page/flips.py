"""Comparison of two arms or runs example by example: which side answers each example better, and on which
kinds of examples.

It reads the predictions that runs keep with `predictions: true`, at the last measured step. Examples are
paired by their ids. Seeds are paired if both arms have them. A published folder has the predictions of all
its runs in one file, without texts and answers, so that nobody's test set is published and the file stays
small.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas import DataFrame

from ablations.errors import ResultsError
from ablations.measures.settings import RANK_BOUNDS
from ablations.results import PREDICTION_COLUMNS, read_sealed, write_whole
from ablations.runs import rows as run_rows
from ablations.runs.records import RUNS_FILE, Plan, RunDirectory, RunRecord
from reports import folder as experiment_folder
from reports.claims.judge import finite
from reports.folder import TAKE_AGAIN
from reports.page.diff import difference, folder_of
from reports.statistics.summaries import multi_bootstrap, sign_test

By = Literal["length", "frequency", "part"]
"""Property of examples by which they are divided into slices."""

LENGTH_SLICES = 4
"""Number of slices by length, with about equally many examples each."""


PUBLISHED_COLUMNS = [
    *("arm", "seed", "measure", "step", "key", "task", "metric", "example"),
    *("part", "points", "weight", "length", "rarest"),
]


class ComparedArm(NamedTuple):
    """Side of the comparison: an arm of an experiment, which may be published, or a single run."""

    name: str
    runs: Mapping[int, Path]
    """Folders of its runs, by seed; empty for a published arm."""
    is_run: bool = False
    published: DataFrame | None = None
    """Predictions of a published arm, with the columns PUBLISHED_COLUMNS; None for other sides."""

    @property
    def without_predictions(self) -> str:
        """Return why a side has no predictions, and what to do."""
        if self.published is not None:
            return (
                "the published results have no predictions of it; name the folder in the output root, such as "
                "out/NAME:ARM, of a spec with `predictions: true` in a measure"
            )
        if not any(RunDirectory(path).is_trained() for path in self.runs.values()):
            return "no run of it is trained yet; start `ablate run`"
        return (
            "no predictions of its last step are kept; set `predictions: true` in a measure of its spec, as in "
            "{kind: minimal_pairs, predictions: true}, and start `ablate run` again"
        )

    def predictions(self, columns: Sequence[str] | None) -> Iterator[tuple[int, DataFrame]]:
        """Yield the predictions of each run at its last step, with its seed: all columns that are kept, or only
        the given ones."""
        for seed, path in self.runs.items():
            if os.path.exists(f"{path}/{run_rows.PREDICTIONS}"):
                yield seed, _at_last_step(path, columns)
        if self.published is not None:
            for seed in self.published["seed"].unique():
                yield int(seed), self.published[self.published["seed"] == seed]


class Question(NamedTuple):
    """Measure, metric, task and settings that predictions belong to."""

    measure: str
    metric: str
    task: str
    key: str
    """Hash of the measure's settings; numbers of different settings are not compared."""


def side_of(place: Path, *, out: Path) -> ComparedArm | None:
    """Return the arm or the run that a place names, as out/NAME:ARM or out/runs/RUN; None if it names an
    experiment.

    Raises:
        SpecError, ResultsError: the place is none of these, as `folder_of` says, or the experiment has no
            such arm.
    """
    if (place / "run.json").is_file():
        return ComparedArm(place.name, {int(RunDirectory(place).description()["seed"]): place}, is_run=True)
    named, colon, arm = str(place).rpartition(":")
    if place.exists() or not colon or not named:
        return None
    folder = folder_of(Path(named), out=out)
    arms = sides_of(folder, experiment_folder.read_plan(folder))
    if arm not in arms:
        raise ResultsError(f"{place}: {named} has no arm {arm}; name one of {', '.join(arms)}.")
    return arms[arm]


def sides_of(folder: Path, plan: Plan) -> dict[str, ComparedArm]:
    """Return each arm of an experiment with the folders of its runs, or with its published predictions.

    Raises:
        ResultsError: the file of published predictions is damaged.
    """
    path = folder / run_rows.PREDICTIONS
    if path.is_file() or (folder / RUNS_FILE).is_file():
        table = _read_published(path) if path.is_file() else DataFrame(columns=PUBLISHED_COLUMNS)
        return {arm: ComparedArm(f"{folder}:{arm}", {}, published=table[table["arm"] == arm]) for arm in plan.arms}
    folders: dict[str, dict[int, Path]] = {arm: {} for arm in plan.arms}
    for run in [run for run in plan.runs if run.unreadable is None]:
        folders[run.arm][run.seed] = folder.parent / "runs" / run.folder
    return {arm: ComparedArm(f"{folder}:{arm}", of_arm) for arm, of_arm in folders.items()}


def publish_predictions(folder: Path, to: Path, runs: Iterable[RunRecord]) -> None:
    """Write the predictions of the runs of an experiment into one file of a published folder, if runs keep any;
    without those of unreadable runs.

    The file has the predictions at the last step of each run, without texts and answers. Without predictions
    the file is removed.

    Raises:
        ResultsError: a file of predictions is damaged.
        FilesError: the file cannot be written.
    """
    kept, published = folder / run_rows.PREDICTIONS, to / run_rows.PREDICTIONS
    if kept.is_file():  # a page that was made from published results
        write_whole(published, kept.read_bytes())
        return
    names = [name for name in PUBLISHED_COLUMNS if name in PREDICTION_COLUMNS]
    parts = [
        _at_last_step(folder.parent / "runs" / run.folder, names).assign(arm=run.arm, seed=run.seed)
        for run in runs
        if run.unreadable is None and os.path.exists(folder.parent / "runs" / run.folder / run_rows.PREDICTIONS)
    ]
    if not any(map(len, parts)):
        published.unlink(missing_ok=True)
        return
    # The runs of an example are side by side, which makes the file small. Everything else keeps its order, on
    # which the draws of `multi_bootstrap` depend.
    table = pd.concat([part for part in parts if len(part)])[PUBLISHED_COLUMNS].sort_values(
        ["measure", "task", "metric", "key", "example", "arm", "seed"], key=lambda column: pd.factorize(column)[0]
    )
    write_whole(published, run_rows.sealed_predictions(table))


def _read_published(path: Path) -> DataFrame:
    table = read_sealed(path, remedy=TAKE_AGAIN, columns=PUBLISHED_COLUMNS).to_pandas()
    if lacking := set(PUBLISHED_COLUMNS) - set(table):
        raise ResultsError(f"{path} lacks {', '.join(sorted(lacking))}; {TAKE_AGAIN}.")
    return table


def _at_last_step(run_dir: Path, columns: Sequence[str] | None) -> DataFrame:
    """Return the predictions of a run at its last step; none of a measure that has only earlier ones."""
    table = run_rows.predictions(run_dir, columns)
    last = table.groupby("key")["step"].transform("max").clip(lower=RunDirectory(run_dir).state().step)
    return table[table["step"] == last]


def compare_examples(
    before: ComparedArm, after: ComparedArm, *, by: By | None = None, examples: int = 0
) -> dict[str, Any]:
    """Return the comparison of the predictions of two sides, task by task, as plain data.

    Numbers that are not finite are None. `better` counts the examples that the second side answers better,
    and `worse` those that it answers worse. `p` is the sign test in each seed.

    Args:
        by: property for slices of the examples, which are compared too.
        examples: number of listed examples that became better, and of those that became worse, largest
            differences first.

    Raises:
        ResultsError: a side keeps no predictions, or both have none in common; a file is damaged; or examples
            of a published side are to be listed.
    """
    for side in (before, after):
        if examples and side.published is not None:
            raise ResultsError(
                f"{side.name}: published results have no texts of examples; leave --examples out, or "
                "name the folder in the output root, such as out/NAME:ARM."
            )
    tables = [answers_of(side) for side in (before, after)]
    for side, table in zip((before, after), tables, strict=True):
        if not table:
            raise ResultsError(f"{side.name}: {side.without_predictions}.")
    if before.is_run and after.is_run:  # two runs are paired even if their seeds differ
        (first,), (second,) = before.runs, after.runs
        tables[1] = {question: {first: frames[second]} for question, frames in tables[1].items()}
    tasks = list(compare_questions(tables[0], tables[1], by=by, examples=examples))
    if before.is_run and after.is_run:
        for task in tasks:
            task["seeds"][0]["after"] = second
    if not tasks:
        raise ResultsError(
            f"{before.name} and {after.name} have no predictions of the same measure, task and settings; measure "
            "both with the same settings."
        )
    content = {"before": before.name, "after": after.name, "by": by, "tasks": tasks}
    plain = finite(content)
    assert isinstance(plain, dict)
    return plain


Answers = dict[Question, dict[int, DataFrame]]
"""Predictions by question and seed, with the ids of the examples as index."""


def answers_of(side: ComparedArm, columns: Sequence[str] | None = None) -> Answers:
    """Return the predictions of a side at the last step of each run.

    Raises:
        ResultsError: a file is damaged.
    """
    answers: Answers = {}
    for seed, table in side.predictions(columns):
        for names, part in table.groupby([*Question._fields], sort=False):
            answers.setdefault(Question(*map(str, names)), {})[seed] = part.set_index("example")
    return answers


def compare_questions(
    before: Answers,
    after: Answers,
    *,
    by: By | None = None,
    examples: int = 0,
    seeds: Collection[int] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the comparison of each measure and task that both sides have, in the form of `compare_examples`.
    A task without an example that all runs have is skipped.

    Args:
        seeds: seeds to compare; by default all.
    """
    for question in before:
        if question in after:
            sides = [
                {seed: frame for seed, frame in answers[question].items() if seeds is None or seed in seeds}
                for answers in (before, after)
            ]
            if all(sides):
                yield from _compared(question, sides[0], sides[1], by=by, examples=examples)


def _compared(
    question: Question, old: dict[int, DataFrame], new: dict[int, DataFrame], *, by: By | None, examples: int
) -> Iterator[dict[str, Any]]:
    """Yield the comparison of one task; nothing if no example is common to all runs."""
    pairs = [seed for seed in old if seed in new]
    paired = bool(pairs)
    if paired:
        old, new = {seed: old[seed] for seed in pairs}, {seed: new[seed] for seed in pairs}
    frames = [*old.values(), *new.values()]
    ids = frames[0].index[np.all([frames[0].index.isin(frame.index) for frame in frames], axis=0)]
    if ids.empty:
        return
    first_frame = frames[0].loc[ids]
    points = [np.array([frame.loc[ids, "points"] for frame in side.values()], float) for side in (old, new)]
    weight_N = first_frame["weight"].to_numpy(float)
    whole = _numbers(points, weight_N, paired=paired, seeds=(list(old), list(new)))
    yield {
        **question._asdict(),
        "examples": len(ids),
        "only_on_one_side": len(set().union(*(frame.index for frame in frames))) - len(ids),
        **whole,
        "seeds": [
            {"before": seed, "after": seed, **_seed(old_N, new_N, weight_N)}
            for seed, old_N, new_N in zip(pairs, *points, strict=False)
        ],
        "slices": [
            {"slice": name, "examples": int(is_in.sum())}
            | _numbers(
                [side[:, is_in] for side in points], weight_N[is_in], paired=paired, seeds=(list(old), list(new))
            )
            for name, is_in in (_slices(first_frame, by) if by else ())
        ],
        "listed": list(_listed(first_frame, [*old.values()], [*new.values()], points, examples)),
    }


def _numbers(
    points: Sequence[NDArray[np.float64]],
    weight_N: NDArray[np.float64],
    *,
    paired: bool,
    seeds: tuple[Sequence[int], Sequence[int]],
) -> dict[str, Any]:
    """Return the means of both sides, and their difference with intervals, also over seeds and examples."""
    old_SN, new_SN = points
    means = [(side @ weight_N / weight_N.sum()).tolist() for side in points]
    by_seed = [
        dict(zip(seeds[0] if paired else names, values, strict=True))
        for names, values in zip(seeds, means, strict=True)
    ]
    rng = np.random.default_rng(0)
    sides = (new_SN - old_SN,) if paired else (new_SN, old_SN)
    both = multi_bootstrap(*sides, rng=rng, weight_N=weight_N)
    numbers: dict[str, Any] = {
        "mean_before": float(np.mean(means[0])),
        "mean_after": float(np.mean(means[1])),
        "over_seeds": difference(*by_seed),
        "over_seeds_and_examples": both._asdict(),
    }
    if paired:
        change_SN = new_SN - old_SN
        numbers["better_in_every_seed"] = int((change_SN > 0).all(0).sum())
        numbers["worse_in_every_seed"] = int((change_SN < 0).all(0).sum())
    return numbers


def _seed(old_N: NDArray[np.float64], new_N: NDArray[np.float64], weight_N: NDArray[np.float64]) -> dict[str, Any]:
    """Return the numbers of one seed, or of two runs."""
    better, worse = int((new_N > old_N).sum()), int((new_N < old_N).sum())
    means = [float(side @ weight_N / weight_N.sum()) for side in (old_N, new_N)]
    return {
        "mean_before": means[0],
        "mean_after": means[1],
        "better": better,
        "worse": worse,
        "p": sign_test(better, worse),
    }


def _slices(frame: DataFrame, by: By) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield the slices that have examples, by name and mask. By part, a task without parts is one slice."""
    if by == "part":
        names = frame["part"].fillna("all")
        for name in sorted(set(names)):
            yield str(name), (names == name).to_numpy(bool)
        return
    number_N = frame["length" if by == "length" else "rarest"].to_numpy()
    if by == "length":
        shares = np.arange(1, LENGTH_SLICES + 1) / LENGTH_SLICES
        lasts = np.unique(np.quantile(number_N, shares, method="lower")).tolist()
    else:
        lasts = [*RANK_BOUNDS, max(RANK_BOUNDS[-1] + 1, int(number_N.max()))]
    first = int(number_N.min()) if by == "length" else 1
    for last in lasts:
        is_in = (number_N >= first) & (number_N <= last)
        span = f"{first}" if first == last else f"{first} to {last}"
        if is_in.any():
            yield f"{span} tokens" if by == "length" else f"rank {first}-{last}", is_in
        first = int(last) + 1


def _listed(
    first_frame: DataFrame,
    old: Sequence[DataFrame],
    new: Sequence[DataFrame],
    points: Sequence[NDArray[np.float64]],
    count: int,
) -> Iterator[dict[str, Any]]:
    """Yield the examples with the largest differences, those that became better first. Ties keep the order of
    the examples. Of an example that is repeated (`example_ids` of `ablations.tasks.predictions`) only one is
    listed."""
    change_N = points[1].mean(0) - points[0].mean(0)
    for sign in (1, -1):
        contents: set[str] = set()
        for place in np.argsort(-sign * change_N, kind="stable"):
            if len(contents) == count or sign * change_N[place] <= 0:
                break
            example = first_frame.index[place]
            content = example.partition("-")[0]
            if content in contents:
                continue
            contents.add(content)
            row = first_frame.loc[example]
            texts = {
                name: None if pd.isna(row[name]) else str(row[name])
                for name in ("text", "second", "part", "label")
            }
            yield {
                "example": example,
                **texts,
                "mean_before": float(points[0][:, place].mean()),
                "mean_after": float(points[1][:, place].mean()),
                "before": _answers(old, example),
                "after": _answers(new, example),
            }


def _answers(frames: Sequence[DataFrame], example: str) -> list[str]:
    """Return the different answers to an example, the most frequent first; for minimal pairs, the mean margin."""
    given = [frame.loc[example] for frame in frames]
    if given[0]["prediction"] is None:
        return [f"{np.mean([row['margin'] for row in given]):+.3g} nats"]
    answers = pd.Series([answer for row in given for answer in row["prediction"]])
    return [f"{answer} ({times})" for answer, times in answers.value_counts().items()]
