"""Intervals over seeds and examples on a page, beside those over seeds; for a claim with one seed a test in it.

Nothing here decides a claim: its t interval over seeds was planned beforehand.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ablations.spec.contrasts import Claim, Difference
from reports.claims.judge import Judged
from reports.claims.words import probability, significant
from reports.folder import Experiment
from reports.page.flips import Answers, Side, answers_of, compare_questions
from reports.scores.tables import OverExamples
from reports.statistics.over_examples import multi_bootstrap
from reports.statistics.summaries import last_step
from reports.words import count, is_absent

COLUMNS = ("measure", "step", "key", "task", "metric", "example", "points", "weight")
"""Columns of predictions that are read."""

SAME = 1e-9
"""Predictions are those of a number in the table whose value is their mean up to this: rounding in float64."""


def answers_by_arm(experiment: Experiment) -> dict[str, Answers]:
    """Return the predictions of each arm that has some.

    Raises:
        ResultsError: a file of predictions is damaged.
    """
    if experiment.folder is None:
        return {}
    runs = experiment.folder.parent / "runs"
    folders: dict[str, dict[int, Path]] = {arm: {} for arm in experiment.plan.arms}
    for run in experiment.plan.runs:
        folders[run.arm][run.seed] = runs / run.folder
    by_arm = {arm: answers_of(Side(arm, of_arm), COLUMNS) for arm, of_arm in folders.items()}
    return {arm: answers for arm, answers in by_arm.items() if answers}


def scores_over_examples(experiment: Experiment, by_arm: Mapping[str, Answers]) -> OverExamples:
    """Return the interval of each score over seeds and examples together, by measure, task, metric and arm.

    Only of scores that are the mean over examples of the predictions, in every seed, and of three seeds or more.
    """
    rows = last_step(experiment.table)
    rows = rows[rows["layer"].isna() & rows["group"].notna()]
    names = ("measure", "group", "metric", "arm", "seed")
    values = dict(zip(zip(*(rows[name] for name in names), strict=True), rows["value"], strict=True))
    intervals: dict[tuple[str, str, str, str], Any] = {}
    for arm, answers in by_arm.items():
        for question, frames in answers.items():
            place = (question.measure, question.task, question.metric, arm)
            means = {seed: np.average(frame["points"], weights=frame["weight"]) for seed, frame in frames.items()}
            in_table = {seed: values.get((*place, seed), np.nan) for seed in means}
            ids = next(iter(frames.values())).index
            whole = all(len(frame) == len(ids) and frame.index.isin(ids).all() for frame in frames.values())
            if whole and np.allclose(list(means.values()), list(in_table.values()), atol=SAME):
                first = next(iter(frames.values()))
                points_SN = np.array([frame.loc[ids, "points"] for frame in frames.values()], float)
                rng = np.random.default_rng(0)
                interval = multi_bootstrap(points_SN, rng=rng, weight_N=first["weight"].to_numpy(float))
                intervals |= {} if np.isnan(interval.low) else {place: interval._asdict()}
    return intervals


def claims_over_examples(judged: Judged, by_arm: Mapping[str, Answers]) -> dict[str, list[str]]:
    """Return sentences on each claim that compares two arms on the examples of one task, by the claim's name."""
    sentences = {}
    for entry in judged.entries:
        claim = judged.claims.get(entry["name"])
        if claim is not None and (of_claim := list(_of_claim(entry, claim, by_arm))):
            sentences[claim.name] = of_claim
    return sentences


def _of_claim(entry: Mapping[str, Any], claim: Claim, by_arm: Mapping[str, Answers]) -> Iterator[str]:
    for part in entry["parts"]:
        effect = claim.parts.get(part["name"])
        if not isinstance(effect, Difference) or not (_is_of_examples(effect) and part["seeds"]):
            continue
        arm, minus = str(effect.arm), str(effect.minus)
        if arm not in by_arm or minus not in by_arm:
            continue
        for task in compare_questions(by_arm[minus], by_arm[arm], seeds=part["seeds"]):
            place = (task["measure"], task["task"], task["metric"])
            if task["seeds"] and place == (effect.of.measure, effect.of.groups[0], effect.of.metric):
                label = f"{part['name']}: " if len(entry["parts"]) > 1 else ""
                yield label + _sentence(task, arm, minus)


def _is_of_examples(effect: Difference) -> bool:
    """Return whether an effect is the difference of two arms in one number of one task."""
    of = effect.of
    single = isinstance(effect.arm, str) and isinstance(effect.minus, str) and len(of.groups) == 1
    return single and effect.minus_of is None and of.read == "value" and of.layers == "none" and of.steps == "last"


def _sentence(task: Mapping[str, Any], arm: str, minus: str) -> str:
    """Return how two arms differ on the examples of a task: over seeds and examples, or in the one seed."""
    examples = f"{count(task['examples'])} examples of {task['task']}"
    if len(task["seeds"]) > 1:
        mean, low, high = (significant(task["over_seeds_and_examples"][name]) for name in ("mean", "low", "high"))
        better, worse = (count(task[f"{which}_in_every_seed"]) for which in ("better", "worse"))
        ends = (
            "" if is_absent(task["over_seeds_and_examples"]["low"]) else f" [{low}, {high}] (multi-bootstrap, 95%)"
        )
        return (
            f"over seeds and examples the difference is {mean}{ends}; of "
            f"{examples} {arm} answers {better} better than {minus} in every seed, and {worse} worse"
        )
    (seed,) = task["seeds"]
    p = probability(seed["p"])
    return (
        f"in seed {seed['after']} {arm} answers {count(seed['better'])} of {examples} better than {minus}, and "
        f"{count(seed['worse'])} worse (exact sign test, p {p if p.startswith('<') else f'= {p}'}): this is about "
        f"these two models and not about other seeds"
    )
