"""Summary of an experiment in sentences: what was run, and what is incomplete."""

import itertools
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd
from pandas import DataFrame

from ablations.wording import by_kind, listed, several
from reports.figures.curves import TRAINED_GAIN
from reports.folder import ReportedExperiment, ReportedRun
from reports.scores.runs import gains, minimal_pairs_by_task
from reports.words import TIMES, count, duration, number

AS_PLANNED = "measures"
"""Kind of notices about facts known before the first run; every other kind is about something wrong."""

VALIDATION = "validation"
"""Measure that tells whether an arm is trained enough."""

MOST_NAMED = 6
"""Largest number of arms or runs that a sentence names; more are counted."""

BETWEEN_RUNS = "run_distance"
"""Measure of pairs of runs; the rows of a pair belong to one of its two runs."""

MISSING = {False: ("without rows", "computes them"), True: ("only partly measured", "measures the rest")}
"""What is missing of a measure and what a command does about it, by whether the measure has any row."""


def summary(experiment: ReportedExperiment) -> str:
    """Return one paragraph on what was run; unknown facts are left out."""
    runs = experiment.runs
    sentences = [_extent(experiment), _encoder(runs), _steps(experiment), _text(experiment)]
    seconds = {run.plan.run_id: run.state.seconds for run in runs if run.state.seconds is not None}
    if seconds:  # a run that arms share counts once
        sentences.append(f"Training took {duration(sum(seconds.values()))} in all.")
    return " ".join(sentence for sentence in sentences if sentence)


def notices(experiment: ReportedExperiment, arms: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return sentences on what is wrong, what is missing and what the plan limits, each with its kind.

    `arms` are the rows of the table of arms.
    """
    return [
        {"kind": kind, "text": text}
        for kind, texts in (
            ("run", _run_notices(experiment.runs)),
            ("results", _result_notices(experiment)),
            ("spec", experiment.plan.warnings),
            ("training", _training_notices(experiment, arms)),
            (AS_PLANNED, _planned_notices(experiment, arms)),
        )
        for text in dict.fromkeys(texts)
    ]


def grouped(notices: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Return the notices with their `group`: first those that are `wrong`, then those `as planned`. Warnings about
    the spec, which commands have shown before the runs, come after others that are wrong."""
    with_group = [
        notice | {"group": "as planned" if notice["kind"] == AS_PLANNED else "wrong"} for notice in notices
    ]
    return sorted(with_group, key=lambda notice: (notice["group"] == "as planned", notice["kind"] == "spec"))


def _run_notices(runs: list[ReportedRun]) -> Iterable[str]:
    words = {"failed": "failed", "interrupted": "was interrupted", "running": "is still running"}
    alike: dict[str, list[ReportedRun]] = {}
    for run in runs:
        state = run.state
        if state.state in ("done", "planned"):
            continue
        condition = words.get(state.state, f"is {state.state}")
        if state.step is not None:
            condition += f" at step {count(state.step)} of {count(state.max_steps or run.plan.max_steps)}"
        alike.setdefault(f"{condition}: {state.message}" if state.message else f"{condition}.", []).append(run)
    for condition, those in alike.items():
        yield f"{f'Each of {_called(those)}' if len(those) > 1 else _called(those)} {condition}"
    moved: dict[str, list[ReportedRun]] = {}
    for run in runs:
        if changed := [change for move in run.provenance.moved_from for change in move.changed]:
            moved.setdefault("; ".join(dict.fromkeys(changed)), []).append(run)
    for changed_there, those in moved.items():
        yield (
            f"{_called(those)} continued on another machine ({changed_there}), so the same spec on one machine "
            "gives other bits."
        )
    planned = [run for run in runs if run.state.state == "planned"]
    if planned:
        yield f"{_number_of(planned)} of {several(_number_of(runs), 'run')} not started,{_of_arms(planned)}."


def _result_notices(experiment: ReportedExperiment) -> Iterable[str]:
    table = experiment.table
    measured = _with_rows(table)
    missing = [
        run
        for run in experiment.runs
        if run.state.state == "done"
        and (run.plan.arm, run.plan.seed) not in measured
        and not _lacking(experiment, run)  # `_unmeasured` reports these
    ]
    if missing:
        remedy = _remedy(experiment, "measure")
        yield f"Done, but without a row in results.parquet: {_called(missing)}; {remedy} adds them."
    yield from _unmeasured(experiment)
    if experiment.foreign_rows:
        yield (
            f"{several(experiment.foreign_rows, 'row')} of results.parquet not shown: "
            "the plan has no such run and arm."
        )
    yield from _incomparable(table, experiment.plan.arms)


def _incomparable(table: DataFrame, arms: list[str]) -> Iterable[str]:
    """Yield sentences on measures with different numbers of tokens, trees or pairs."""
    by_sizes: dict[str, list[str]] = {}
    for (measure, metric), rows in table[table["layer"].notna()].groupby(["measure", "metric"]):
        whole = rows[rows["group"].isna() & rows["n"].notna()]
        if sizes := _sizes(whole, arms):
            by_sizes.setdefault(sizes, []).append(f"{measure} {metric}")
    for sizes_listed, names in by_sizes.items():
        verb = "was" if len(names) == 1 else "were"
        yield (
            f"{listed(names, 'and')} {verb} measured on different numbers of tokens ({sizes_listed}), so do not "
            "compare the curves of these arms."
        )
    for (measure,), rows in table[(table["metric"] == "uuas") & table["n"].notna()].groupby(["measure"]):
        if sizes := _sizes(rows, arms):
            yield (
                f"{measure} was measured on trees with different numbers of edges ({sizes}), because the data of "
                "these arms differ (text, tokenizer or max_length). A difference of about a point between them "
                "may come from the trees."
            )
    for task, rows in minimal_pairs_by_task(table):
        if sizes := _sizes(rows, arms):
            yield (
                f"minimal_pairs of {task} was scored on different pairs ({sizes}), because pairs longer "
                "than data.max_length are left out, so do not compare the scores of these arms."
            )


def _sizes(rows: DataFrame, arms: list[str]) -> str:
    """Return each n of some rows with its arms: ``30,000 in mt; 38,112 in mlm``. Empty if all have the same n."""
    arms_by_size = {size: set(rows.loc[rows["n"] == size, "arm"]) for size in sorted(rows["n"].unique())}
    sizes = [
        f"{count(size)} in {_few([arm for arm in arms if arm in measured])}"
        for size, measured in arms_by_size.items()
    ]
    return "; ".join(sizes) if len(sizes) > 1 else ""


def _unmeasured(experiment: ReportedExperiment) -> Iterable[str]:
    """Yield sentences on measures of the spec without rows, or without all of them: first those that were
    refused, with the reason."""
    done = [run for run in experiment.runs if run.state.state == "done"]
    begun = _with_any_row(experiment) if any(_lacking(experiment, run) for run in done) else set()
    refused: dict[tuple[str, str], list[ReportedRun]] = {}
    lacking: dict[tuple[str, bool], list[ReportedRun]] = {}
    for run in done:
        for name in _lacking(experiment, run):
            if name in run.plan.refused:
                refused.setdefault((name, run.plan.refused[name]), []).append(run)
            else:
                lacking.setdefault((name, (run.plan.run_id, name) in begun), []).append(run)
    for (name, why), runs in refused.items():
        yield f"Asked for, but refused: {name}{_of(runs, done)}: {why}"
    if _lacks_distances(experiment, done):
        lacking[BETWEEN_RUNS, False] = done
    together: dict[tuple[str, str, str, str], list[str]] = {}
    place = {kind: i for i, kind in enumerate(experiment.measures)}  # empty if the spec cannot be read
    for name, is_begun in sorted(lacking, key=lambda of: place.get(_kind(of[0]), len(place))):
        extent, adds = MISSING[is_begun]
        by_remedy: dict[str, list[ReportedRun]] = {}
        for run in lacking[name, is_begun]:
            by_remedy.setdefault(_checkpoint_needed(run), []).append(run)
        for checkpoint, runs in by_remedy.items():
            remedy = _trained_again(checkpoint, _number_of(runs)) or f"{_remedy(experiment, 'run')} {adds}"
            together.setdefault((_kind(name), extent, _of(runs, done), remedy), []).append(name)
    for (_, extent, those, remedy), names in together.items():
        yield f"Asked for, but {extent}: {by_kind(names)}{those}; {remedy}."


def _lacking(experiment: ReportedExperiment, run: ReportedRun) -> list[str]:
    """Return the measures that a run lacks: by the plan, and those that were not measured at its last step."""
    names = list(run.plan.not_measured or ())
    early = experiment.begun.get(run.plan.run_id, frozenset())
    return names + sorted(early.difference(map(_kind, names)))


def _with_any_row(experiment: ReportedExperiment) -> set[tuple[str, str]]:
    """Return run and name of every measure with rows, as the plan names it: with its task if it has one."""
    rows = experiment.table[["run_id", "measure", "group"]].drop_duplicates()
    with_task = zip(rows["run_id"], rows["measure"] + " " + rows["group"].fillna(""), strict=True)
    early = {(run_id, measure) for run_id, measures in experiment.begun.items() for measure in measures}
    return {*early, *zip(rows["run_id"], rows["measure"], strict=True), *with_task}


def _checkpoint_needed(run: ReportedRun) -> str:
    """Return whether the checkpoint that a run must be measured from is gone or damaged, by the plan; empty if
    neither is known, or if no measure needs it."""
    is_usable = run.plan.checkpoint in (None, "whole") or not run.plan.not_measured
    return "" if is_usable else str(run.plan.checkpoint)


def _trained_again(checkpoint: str, number_of: int) -> str:
    """Return what `ablate run` does with runs whose checkpoint is gone or damaged; empty for other runs."""
    if not checkpoint:
        return ""
    checkpoints, whose, logs, runs = (
        ("the last checkpoint is", "its", "log", "the run")
        if number_of == 1
        else ("the last checkpoints are", "their", "logs", "the runs")
    )
    return (
        f"{checkpoints} {checkpoint}, so `ablate run` removes {whose} rows and {logs} and trains {runs} again "
        "from the first step"
    )


def _kind(name: str) -> str:
    """Return the kind of a measure from its name, which may also name a task."""
    return name.partition(" ")[0]


def _of(runs: list[ReportedRun], done: list[ReportedRun]) -> str:
    return "" if len(runs) == len(done) else f" of {_called(runs)}"


def _lacks_distances(experiment: ReportedExperiment, done: list[ReportedRun]) -> bool:
    """Return whether runs were to be compared with each other and no pair was."""
    if BETWEEN_RUNS not in experiment.measures or experiment.plan.pairs_to_compare == 0:
        return False
    compared = {*experiment.table["measure"].unique(), *itertools.chain.from_iterable(experiment.begun.values())}
    return len(done) > 1 and BETWEEN_RUNS not in compared


def _with_rows(table: pd.DataFrame) -> set[tuple[str, int]]:
    """Return arm and seed of every run with rows."""
    runs = table[["arm", "seed"]].drop_duplicates()
    return set(zip(runs["arm"], runs["seed"], strict=True))


def _remedy(experiment: ReportedExperiment, command: str) -> str:
    """Return the command that computes rows: the given one, or `ablate analyse` for models from elsewhere."""
    analysed = experiment.runs and all(run.plan.analysed for run in experiment.runs)
    return f"`ablate {'analyse' if analysed else command}`"


def _training_notices(experiment: ReportedExperiment, arms: list[dict[str, Any]]) -> Iterable[str]:
    worse = [arm for arm in arms if arm["training"] == "no" and arm["gain"]["mean"] < 0]
    if worse:
        verb, whose, nats = (
            ("predicts", "its gain", "is") if len(worse) == 1 else ("predict", "their gains", "are")
        )
        ends = dict.fromkeys(number(end(arm["gain"]["mean"] for arm in worse)) for end in (min, max))
        yield (
            f"{_few([arm['arm'] for arm in worse])} {verb} worse than a guess without context: {whose} {nats} "
            f"{' to '.join(ends)} nats."
        )
    little = [arm for arm in arms if arm["training"] == "no" and arm["gain"]["mean"] >= 0]
    gains = [number(arm["gain"]["mean"]) for arm in sorted(little, key=lambda arm: arm["gain"]["mean"])]
    if little:
        verb, whose, nats = (
            ("gains", "its gain", f"is {gains[0]}")
            if len(little) == 1
            else ("gain", "their gains", f"are {gains[0]} to {gains[-1]}")
        )
        yield (
            f"{_few([arm['arm'] for arm in little])} {verb} too little to interpret: {whose} over a guess without "
            f"context {nats} nats, below {TRAINED_GAIN}."
        )
    if VALIDATION in experiment.measures:
        yield from _unknown_training(experiment, arms)


def _planned_notices(experiment: ReportedExperiment, arms: list[dict[str, Any]]) -> Iterable[str]:
    if VALIDATION not in experiment.measures:
        yield from _unknown_training(experiment, arms)
    yield from experiment.plan.notices
    if others := _other_texts(experiment):
        reads, their = ("reads", "its loss") if len(others) == 1 else ("read", "their losses")
        yield (
            f"{_few(others)} {reads} another text than {experiment.plan.arms[0]}, or the same text in other "
            f"tokens, so do not compare {their} with those of other arms."
        )


def _unknown_training(experiment: ReportedExperiment, arms: list[dict[str, Any]]) -> Iterable[str]:
    """Yield a sentence on the arms without the loss that would tell whether they are trained enough."""
    measured = set(experiment.table["arm"].unique())
    unknown = [arm["arm"] for arm in arms if arm["training"] == "unknown" and arm["arm"] in measured]
    if unknown:
        be, have = ("is", "it has") if len(unknown) == 1 else ("are", "they have")
        yield (
            f"Whether {_few(unknown)} {be} trained enough to interpret is unknown: {have} no validation loss "
            "over the vocabulary."
        )


def _called(runs: list[ReportedRun]) -> str:
    """Return the names of a few runs; of many runs, their number and their arms."""
    if len(runs) <= MOST_NAMED:
        return listed([run.plan.label for run in runs], "and")
    return f"{several(_number_of(runs), 'run')}{_of_arms(runs)}"


def _number_of(runs: Iterable[ReportedRun]) -> int:
    """Return the number of runs; a run that arms with equal settings share counts once."""
    return len({run.plan.run_id for run in runs})


def _of_arms(runs: list[ReportedRun]) -> str:
    """Return the arms of runs as the end of a phrase: `` of mlm and clm``, `` of 12 arms``."""
    return f" of {_few(list(dict.fromkeys(run.plan.arm for run in runs)))}"


def _few(arms: list[str]) -> str:
    """Return the names of a few arms; of many arms, their number."""
    return listed(arms, "and") if len(arms) <= MOST_NAMED else several(len(arms), "arm")


def _extent(experiment: ReportedExperiment) -> str:
    runs, arms = experiment.runs, experiment.plan.arms
    if runs and all(run.plan.analysed for run in runs):
        return f"These models were measured as they are, without training: {listed(arms, 'and')}."
    seeds = sorted({run.plan.seed for run in runs})
    named = f" ({listed(arms, 'and')})" if len(arms) <= 8 else ""
    fewest_seeds, most_seeds = (
        extreme(Counter(run.plan.arm for run in runs).values(), default=0) for extreme in (min, max)
    )
    planned = _number_of(runs)
    times = TIMES if planned == len(arms) * len(seeds) else "and"
    of_each = several(len(seeds), "seed")
    if experiment.plan.looks is not None and fewest_seeds < most_seeds:  # arms of open claims have more
        times, of_each = "with", f"{fewest_seeds} to {several(most_seeds, 'seed')} each"
    done = [run for run in runs if run.state.state == "done"]
    trained, measured = _number_of(done), _number_of(run for run in done if not run.plan.not_measured)
    finished = "all done" if trained == planned else f"{trained} of them done"
    if measured < trained:
        finished = f"{finished.replace('done', 'trained')} and {measured or 'none'} measured to the end"
    return (
        f"{several(planned, 'run')}: {several(len(arms), 'arm')}{named} {times} "
        f"{of_each} ({', '.join(map(str, seeds))}), {finished}."
    )


def _encoder(runs: list[ReportedRun]) -> str:
    encoders = [run.settings.get("encoder", {}) for run in runs]
    layers, width, heads = (
        _different(encoder.get(name) for encoder in encoders)
        for name in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    if not layers:
        return ""
    is_single = max(len(layers), len(width), len(heads)) == 1
    subject, possessive = ("The encoder has", "its") if is_single else ("Encoders have", "their")
    of_heads = f" with {_either(heads, 'head')}" if heads else ""
    normed = [bool(encoder.get("final_norm") or encoder.get("norm") == "pre") for encoder in encoders]
    where = f"{possessive} final norm" if all(normed) else "the final norm where there is one"
    after = f" States are read before {where}." if any(normed) else ""
    shape = f"{_either(layers, 'layer')} of width {_either(width)}{of_heads}"
    return f"{subject} {shape}.{after}"


def _steps(experiment: ReportedExperiment) -> str:
    runs = experiment.runs
    steps = _different(run.plan.max_steps for run in runs if run.plan.max_steps)
    tokens = _different(run.settings.get("training", {}).get("tokens_per_step") for run in runs)
    trained = {run.plan.arm for run in runs if not run.is_untrained}
    untrained = [arm for arm in experiment.plan.arms if arm not in trained]
    started = list(dict.fromkeys(run.plan.arm for run in runs if run.starts_trained))
    parts = []
    if steps:
        of_tokens = f" of at most {_either(tokens, 'source token')}" if tokens else ""
        parts.append(
            f"checkpoints are measured up to {_either(steps, 'step')} of training"
            if runs and all(run.plan.analysed for run in runs)
            else f"training takes {_either(steps, 'step')}{of_tokens}"
        )
    if started:
        parts.append(f"{listed(started, 'and')} {'starts' if len(started) == 1 else 'start'} from a trained model")
    if untrained:
        parts.append(
            f"{listed(untrained, 'and')} {'keeps its' if len(untrained) == 1 else 'keep their'} initial weights"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if steps else f"{text}." if text else ""


def _text(experiment: ReportedExperiment) -> str:
    data = experiment.plan.data
    in_both = f" ({data.validation_in_training:,} of them also to train on)" if data.validation_in_training else ""
    facts = (
        (data.train_sentences, "sentence", " to train on"),
        (data.train_tokens, "token", " in them"),
        (data.validation_sentences, "sentence", f" to validate on{in_both}"),
        (data.vocab_size, "sub-word", " in the vocabulary"),
    )
    counts = ", ".join(f"{several(value, noun)}{of}" for value, noun, of in facts if value is not None)
    text = ": ".join(part for part in (data.description, counts) if part)
    if not text:
        return ""
    whose = f" This is the text of {experiment.plan.arms[0]}." if _other_texts(experiment) else ""
    return f"Text: {text}.{_cut(data.cut)}{whose}"


def _cut(cut: dict[str, int]) -> str:
    """Return a sentence on how many sentences of each kind were cut; empty if none were."""
    if not cut:
        return ""
    counts = []
    for kind, number_of in cut.items():
        noun, _, use = kind.partition(" ")
        counts.append(f"{several(number_of, noun)} {use}".rstrip())
    return f" Cut at the maximum length: {listed(counts, 'and')}."


def _other_texts(experiment: ReportedExperiment) -> list[str]:
    """Return the arms that read another text than the first arm, whose text the plan describes.

    Arms whose validation losses have as many predictions and the same chance level read the same text, whatever
    its largest length.
    """
    read = {run.plan.arm: run.tokens for run in experiment.runs if run.tokens is not None}
    described = read.get(experiment.plan.arms[0], experiment.plan.data.address)
    others = [
        arm for arm in experiment.plan.arms if described is not None and read.get(arm, described) != described
    ]
    if not others:
        return []
    losses = gains(experiment.table)
    samples = dict(zip(losses["arm"], losses["sample"], strict=True))
    here = {samples[arm] for arm in samples.keys() - set(others)}
    return [arm for arm in others if samples.get(arm) not in here]


def _different(values: Iterable[Any]) -> list[int]:
    """Return the different whole numbers, smallest first."""
    return sorted({value for value in values if isinstance(value, int)})


def _either(values: list[int], unit: str = "") -> str:
    """Return numbers as alternatives: ``1 layer``, ``1, 2 or 6 layers``; without a unit, the numbers alone."""
    plural = "" if values == [1] else "s"
    return f"{listed([count(value) for value in values])} {unit}{plural if unit else ''}".rstrip()
