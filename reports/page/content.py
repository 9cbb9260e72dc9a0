"""Content of a page as plain data: the same for HTML and JSON.

Intervals over seeds and examples are shown beside those over seeds. A claim with one seed has a test over its
examples. Neither decides a claim: the t interval over seeds, which was planned beforehand, does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from pandas import DataFrame

from ablations.runs.records import Tuning
from ablations.spec.contrasts import Claim, Difference
from ablations.spec.figures import FAILED_FIGURE
from ablations.spec.tuning import settings_in_words
from ablations.wording import several
from reports.claims.entries import ClaimEntry
from reports.claims.judge import Judged, claim_notices
from reports.claims.words import p_in_words, significant
from reports.figures.curves import TRAINED_GAIN
from reports.figures.panel import Panel
from reports.folder import ReportedExperiment, ReportedRun
from reports.page.figures import PageFigure, claimed_metrics, figures, plugin_figures, without_figure, without_rows
from reports.page.flips import Answers, answers_of, compare_questions, sides_of
from reports.page.summary import AS_PLANNED, grouped, notices, summary
from reports.scores.factors import factors
from reports.scores.runs import compared_arms, corruptions, joined, other_losses
from reports.scores.spread import HOW_TO_READ, OF_HEADS, OF_POOLED, OF_SCORES, spread_panels, spread_tables
from reports.scores.tables import OverExamples, score_tables
from reports.statistics.summaries import NO_MEAN, gain, last_step, means_of_arms, multi_bootstrap
from reports.words import count, is_absent

FORMAT = 1
"""Version of report.json."""

MEASURED = ("loss", "gain", "perplexity", "bleu", "chrf", "next_sentence", "sentence_order")
"""Averaged numbers that come from the table of results; the last two are accuracies of a head on pairs."""

AVERAGED = (*MEASURED, "tokens_seen", "tokens_predicted", "flops", "tokens_per_second", "seconds")
"""Numbers of a run that the table of arms averages over seeds."""

READ_COLUMNS = ("measure", "step", "key", "task", "metric", "example", "points", "weight")
"""Columns of predictions that a page reads."""

EQUAL_UP_TO = 1e-9
"""Absolute tolerance at which the mean of predictions counts as equal to the number in the table; numpy's
relative tolerance of 1e-5 is added to it."""


def content(
    judged: Judged,
    shown: Sequence[PageFigure],
    *,
    failures: Mapping[str, str] = MappingProxyType({}),
    of_trials: Sequence[Panel] = (),
) -> dict[str, Any]:
    """Return everything that the page shows, in its order; absent numbers are None or NaN.

    Args:
        shown: figures of the page, from `page_figures`.
        failures: an error sentence for each plugin figure that fails, by its name.
        of_trials: panels of the search for settings.
    """
    experiment = judged.experiment
    plan, table = experiment.plan, experiment.table
    runs = _runs(experiment)
    arms = _arms(experiment, runs)
    predicted = answers_by_arm(experiment)
    return {
        "format": FORMAT,
        "experiment": plan.experiment,
        "question": plan.question,
        "changed": {"given": plan.given, "from": plan.changed_from} if plan.given else None,
        "summary": summary(experiment),
        "notices": grouped(
            notices(experiment, arms)
            + claim_notices(judged)
            + [{"kind": AS_PLANNED, "text": text} for text in without_figure(table, shown)]
            + [{"kind": AS_PLANNED, "text": text} for text in without_rows(plan.figures, shown, failures)]
            + [{"kind": FAILED_FIGURE, "text": text} for text in failures.values()]
        ),
        "provenance": _provenance(experiment, judged.files),
        "runs": runs,
        "arms": arms,
        "compared": _compared(table, plan.arms, shown),
        "corruptions": corruptions(table, arms=plan.arms),
        "other_losses": other_losses(table, arms=plan.arms),
        "figures": [figure.entry() for figure in shown],
        "tuning": None if plan.tuning is None else tuning_entry(plan.tuning, of_trials),
        "spread": spread_entry(spread_tables(experiment, runs)),
        "tasks": score_tables(
            table,
            arms=plan.arms,
            quick=experiment.quick,
            over_examples=scores_over_examples(experiment, predicted),
        ),
        "joined": joined(table, runs),
        "claims": judged.entries,
        "over_examples": claims_over_examples(judged, predicted),
        "spec": experiment.spec,
    }


def _compared(table: DataFrame, arms: Sequence[str], shown: Sequence[PageFigure]) -> dict[str, Any] | None:
    """Return the scores of all arms with their differences from the first; None if there are none.

    `in_figure` says whether the table of a figure has them too, so that the page need not show them twice.
    """
    factors_shown = [figure.factor for figure in shown if figure.factor is not None]
    in_figure = any({*arms} <= {*factor.arms, factor.untrained} for factor in factors_shown)
    compared = compared_arms(table, arms)
    return compared | {"in_figure": in_figure} if compared["rows"] else None


def tuning_entry(tuning: Tuning, panels: Sequence[Panel]) -> dict[str, Any]:
    """Return the search for the arms' settings as plain data: an entry for each arm, and the panels."""
    arms = []
    for tuned in tuning.arms:
        losses = [trial.loss for trial in tuned.trials]
        ended = [loss for loss in losses if loss is not None]
        arms.append(
            {"arm": tuned.arm, "chosen": None if tuned.chosen is None else settings_in_words(tuned.chosen)}
            | {"loss": min(ended, default=None), "trials": len(losses), "diverged": len(losses) - len(ended)}
            | {"open": tuned.open_trials, "at_edge": tuned.at_edge}
        )
    facts = tuning.model_dump(mode="json", include={"settings", "seeds", "part_of_steps", "budget"})
    return facts | {"arms": arms, "panels": [panel.entry() for panel in panels]}


def spread_entry(tables: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the sources of the spread over seeds as plain data; None without tables."""
    if not tables:
        return None
    panels = [panel.entry() for panel in spread_panels(tables)]
    rows = [row for table in tables for row in table["rows"]]
    has_heads = any(row["varying"] == ["heads"] for row in rows)
    has_pooled = any(len(row["arms"]) > 1 for row in rows)
    has_scores = any(table["number"]["scale"] == 100 for table in tables)
    further = [*[OF_POOLED] * has_pooled, *[OF_SCORES] * has_scores, *[OF_HEADS] * has_heads]
    return {"how_to_read": [*HOW_TO_READ, *further], "tables": list(tables), "panels": panels}


def page_figures(judged: Judged) -> tuple[list[PageFigure], dict[str, str]]:
    """Return the figures of an experiment's page, and an error sentence for each plugin figure that fails, by
    its name.

    The figure that shows most of what the claims read comes first.
    """
    experiment = judged.experiment
    of_authors, failures = plugin_figures(experiment.table, experiment.plan.figures)
    shown = figures(
        experiment.table,
        arms=experiment.plan.arms,
        factors=factors(experiment),
        quick=experiment.quick,
        read=claimed_metrics(judged),
        published=experiment.plan.published,
        described=experiment.plan.described,
        of_authors=of_authors,
        objectives={
            run.plan.arm: run.settings["objective"]["kind"]
            for run in experiment.runs
            if "objective" in run.settings and not run.is_untrained  # an untrained arm has learned no objective
        },
    )
    return shown, failures


def _runs(experiment: ReportedExperiment) -> list[dict[str, Any]]:
    """Return one row for each planned run, in the order of the plan."""
    measured = _validation(experiment.table)
    rows = []
    for run in experiment.runs:
        numbers = measured.get((run.plan.arm, run.plan.seed), {})
        state = run.state.model_dump()
        rows.append(
            {"arm": run.plan.arm, "seed": run.plan.seed, "run_id": run.plan.run_id}
            | state
            | {"max_steps": run.plan.max_steps if state["max_steps"] is None else state["max_steps"]}
            | ({} if state["tokens_seen"] else {"tokens_per_second": None})  # untrained runs have no speed
            | {name: numbers.get(name) for name in MEASURED}
        )
    return rows


def _validation(table: DataFrame) -> dict[tuple[str, int], dict[str, float]]:
    """Return the validation numbers of each (arm, seed) at its last step."""
    rows = last_step(table[table["measure"] == "validation"])
    pairs = rows[rows["metric"] == "pair_accuracy"].groupby("group")
    of_metrics = rows[rows["group"].isna()].groupby("metric")
    by_run: dict[tuple[str, int], dict[str, float]] = {}
    for name, part in [*of_metrics, *pairs, ("gain", gain(table))]:
        for arm, seed, value in zip(part["arm"], part["seed"], part["value"], strict=True):
            by_run.setdefault((arm, int(seed)), {})[str(name)] = float(value)
    return by_run


def _arms(experiment: ReportedExperiment, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each arm: the mean and 95% t interval over seeds of every number of its runs."""
    numbers = DataFrame(
        [
            {"arm": run["arm"], "seed": run["seed"], "name": name, "value": run[name]}
            for run in runs
            for name in AVERAGED
        ],
        columns=["arm", "seed", "name", "value"],
    ).astype({"value": float})
    means = means_of_arms(numbers)
    runs_by_arm: dict[str, list[ReportedRun]] = {arm: [] for arm in experiment.plan.arms}
    for run in experiment.runs:
        runs_by_arm.setdefault(run.plan.arm, []).append(run)
    rows = []
    for arm in experiment.plan.arms:
        arm_runs = runs_by_arm[arm]
        row: dict[str, Any] = {
            "arm": arm,
            "runs": len(arm_runs),
            "done": sum(r.state.state == "done" for r in arm_runs),
        }
        row |= {name: means.get((arm, name), NO_MEAN) for name in AVERAGED}
        rows.append(row | {"training": _training(arm_runs, row["gain"])})
    return rows


def _training(runs: list[ReportedRun], gained: dict[str, Any]) -> str:
    """Return whether an arm is trained enough to interpret: `yes`, `no`, `untrained` on purpose, or `unknown`."""
    if runs and all(run.is_untrained for run in runs):
        return "untrained"
    if is_absent(gained["mean"]):
        return "unknown"
    return "yes" if gained["mean"] >= TRAINED_GAIN else "no"


def _provenance(experiment: ReportedExperiment, claim_files: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the provenance of the numbers; lists hold every different value among the runs."""
    plan, origins = experiment.plan, [run.provenance for run in experiment.runs]
    with_commit = [origin for origin in origins if origin.dirty is not None]
    versions = list({tuple(origin.versions.items()): origin.versions for origin in origins}.values())
    names = sorted({name for of_run in versions for name in of_run})
    return {
        "spec_sha256": plan.spec_sha256,
        "planned": plan.created,
        "started": min((origin.started for origin in origins if origin.started), default=None),
        "finished": max((origin.finished for origin in origins if origin.finished), default=None),
        "commits": _different(origin.commit for origin in origins),
        "dirty": any(origin.dirty for origin in with_commit) if with_commit else None,
        "versions": {name: _different(of_run.get(name) for of_run in versions) for name in names},
        "data": plan.data.model_dump(),
        "claim_files": claim_files,
        "seeds": sorted({run.plan.seed for run in experiment.runs}),
        "tokens_measured": _tokens_measured(experiment.table),
        "machines": _different(_machine(run) for run in experiment.runs),
        "devices": _different(_written(origin.devices) for origin in origins),
        "threads": _different(_written(origin.threads) for origin in origins),
    }


def _tokens_measured(table: DataFrame) -> dict[str, list[int]]:
    """Return the numbers of tokens (n) on which each measure of layers was computed."""
    rows = table[table["layer"].notna() & table["group"].isna() & table["n"].notna()]
    return {str(measure): sorted({int(n) for n in part["n"]}) for measure, part in rows.groupby("measure")}


def _machine(run: ReportedRun) -> str | None:
    machine = run.provenance.machine
    cores = several(machine.cores, "core") if machine.cores is not None else None
    return ", ".join(part for part in (machine.platform, machine.cpu, cores, *machine.gpus) if part) or None


def _written(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)


def _different(values: Iterable[str | None]) -> list[str]:
    """Return the different values in order of appearance, without absent ones."""
    return [value for value in dict.fromkeys(values) if value is not None]


def answers_by_arm(experiment: ReportedExperiment) -> dict[str, Answers]:
    """Return the predictions of each arm that has any.

    Raises:
        ResultsError: a file of predictions is damaged.
    """
    if experiment.folder is None:
        return {}
    sides = sides_of(experiment.folder, experiment.plan)
    by_arm = {arm: answers_of(side, READ_COLUMNS) for arm, side in sides.items()}
    return {arm: answers for arm, answers in by_arm.items() if answers}


def scores_over_examples(experiment: ReportedExperiment, by_arm: Mapping[str, Answers]) -> OverExamples:
    """Return the interval of each score over seeds and examples together, by measure, task, metric and arm.

    A score has one only if it is the mean of its predictions over examples in every seed, and has three seeds
    or more.
    """
    if not by_arm:
        return {}
    rows = last_step(experiment.table)
    rows = rows[rows["layer"].isna() & rows["group"].notna()]
    names = ("measure", "group", "metric", "arm", "seed")
    values = dict(zip(zip(*(rows[name] for name in names), strict=True), rows["value"], strict=True))
    intervals: dict[tuple[str, str, str, str], Any] = {}
    for arm, answers in by_arm.items():
        for question, frames in answers.items():
            place = (question.measure, question.task, question.metric, arm)
            means = [np.average(frame["points"], weights=frame["weight"]) for frame in frames.values()]
            in_table = [values.get((*place, seed), np.nan) for seed in frames]
            first = next(iter(frames.values()))
            ids = first.index
            whole = all(len(frame) == len(ids) and frame.index.isin(ids).all() for frame in frames.values())
            if whole and np.allclose(means, in_table, atol=EQUAL_UP_TO):
                points_SN = np.array([frame.loc[ids, "points"] for frame in frames.values()], float)
                rng = np.random.default_rng(0)
                interval = multi_bootstrap(points_SN, rng=rng, weight_N=first["weight"].to_numpy(float))
                intervals |= {} if np.isnan(interval.low) else {place: interval._asdict()}
    return intervals


def claims_over_examples(judged: Judged, by_arm: Mapping[str, Answers]) -> dict[str, list[str]]:
    """Return sentences on each claim that compares two arms on the examples of one task, by the claim's name."""
    sentences = {}
    for entry in judged.entries:
        claim = judged.claims.get(entry.name)
        if claim is not None and (of_claim := list(_claim_over_examples(entry, claim, by_arm))):
            sentences[claim.name] = of_claim
    return sentences


def _claim_over_examples(entry: ClaimEntry, claim: Claim, by_arm: Mapping[str, Answers]) -> Iterator[str]:
    for part in entry.parts:
        effect = claim.parts.get(part.name)
        if not isinstance(effect, Difference) or not (_is_of_examples(effect) and part.seeds):
            continue
        arm, minus = str(effect.arm), str(effect.minus)
        if arm not in by_arm or minus not in by_arm:
            continue
        for task in compare_questions(by_arm[minus], by_arm[arm], seeds=part.seeds):
            place = (task["measure"], task["task"], task["metric"])
            if task["seeds"] and place == (effect.of.measure, effect.of.groups[0], effect.of.metric):
                label = f"{part.name}: " if len(entry.parts) > 1 else ""
                yield label + _examples_in_words(task, arm, minus)


def _is_of_examples(effect: Difference) -> bool:
    """Return whether an effect is the difference of two arms in one number of one task."""
    of = effect.of
    single = isinstance(effect.arm, str) and isinstance(effect.minus, str) and len(of.groups) == 1
    return single and effect.minus_of is None and of.read == "value" and of.layers == "none" and of.steps == "last"


def _examples_in_words(task: Mapping[str, Any], arm: str, minus: str) -> str:
    """Return how two arms differ on the examples of a task: over seeds and examples, or in a single seed."""
    examples = f"{count(task['examples'])} examples of {task['task']}"
    if len(task["seeds"]) > 1:
        mean, low, high = (significant(task["over_seeds_and_examples"][name]) for name in ("mean", "low", "high"))
        better, worse = (count(task[f"{direction}_in_every_seed"]) for direction in ("better", "worse"))
        ends = (
            "" if is_absent(task["over_seeds_and_examples"]["low"]) else f" [{low}, {high}] (multi-bootstrap, 95%)"
        )
        return (
            f"over seeds and examples the difference is {mean}{ends}; of {examples}, {arm} answers {better} "
            f"better than {minus} in every seed, and {worse} worse"
        )
    (seed,) = task["seeds"]
    return (
        f"in seed {seed['after']} {arm} answers {count(seed['better'])} of {examples} better than {minus}, and "
        f"{count(seed['worse'])} worse (exact sign test, {p_in_words(seed['p'])}): this is "
        "about these two models, not about other seeds"
    )
