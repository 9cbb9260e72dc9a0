"""Factors of an experiment: the settings in which its arms differ one at a time, read from the settings of
their runs.

A setting gets a figure if two arms differ in it and in nothing else. Settings that follow from it do not count:
the warm-up of longer training, the intermediate size of a wider encoder, or the steps if `match` decides them.
Settings that were tuned for each arm do not count either. Another objective, another text and untrained weights
are no settings in this sense: other figures compare arms that differ in them, and arms with different texts are
not measured on the same tokens.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ablations import yamlfile
from ablations.errors import SpecProblems
from ablations.spec.changes import following
from ablations.spec.tuning import WITHOUT_EFFECT
from reports.figures.style import is_logarithmic, is_number
from reports.folder import ReportedExperiment
from reports.words import CUT, LETTERS, SPLIT, setting_name, words

COMPARED = ("encoder", "objective", "training")
"""Sections of a spec whose settings may be factors."""

TUNED = "tuned"
"""Value of a setting in arms for which it was tuned, whatever values were chosen."""

Decisions = dict[str, Any]
"""Settings that decide what a run computes, by path; settings without a value are missing."""


class Level(NamedTuple):
    """Level of a factor: one arm in a figure."""

    arm: str
    line: int
    """Number of the line that the arm belongs to, from 0."""
    at: float
    """Place on the axis: the value if it is a number, otherwise its index among the names of values."""
    value: str
    """Value in words."""


class Factor(NamedTuple):
    """Factor: a setting that arms vary."""

    setting: str
    """Path of the setting in a spec."""
    title: str
    label: str
    """Label below an axis."""
    numeric: bool
    logarithmic: bool
    lines: tuple[str, ...]
    """Names of the lines. Arms of one line differ in nothing but the setting. A single line has an empty name."""
    levels: tuple[Level, ...]
    """Levels line by line, and in each line along the axis."""
    reference: str
    """First of these arms in the experiment."""
    untrained: str | None
    """Arm that equals the reference without its training; None if there is none."""
    tuned: tuple[str, ...] = ()
    """Paths of the settings that were tuned for some of these arms, and may differ between them."""

    @property
    def arms(self) -> list[str]:
        """Arms of all lines, in their order."""
        return [level.arm for level in self.levels]

    @property
    def reference_value(self) -> str:
        """Value of the setting in the reference, in words."""
        return next(level.value for level in self.levels if level.arm == self.reference)


def factors(experiment: ReportedExperiment) -> list[Factor]:
    """Return the settings that arms vary: those with the most arms first, ties in the order of the
    experiment.

    Arms without settings are left out, as long as none of their runs has started.
    """
    decided: dict[str, Decisions] = {}
    matched = _are_matched(experiment)
    chosen = {} if experiment.plan.tuning is None else experiment.plan.tuning.chosen
    for run in experiment.runs:
        if run.plan.arm not in decided and run.settings and run.plan.analysed is None:
            tuned = dict.fromkeys(chosen.get(run.plan.arm, ()), TUNED)
            decided[run.plan.arm] = decisions(run.settings, matched=matched) | tuned
    decided = {arm: decided[arm] for arm in experiment.plan.arms if arm in decided}
    untrained = {run.plan.arm for run in experiment.runs if run.is_untrained}
    trained = {arm: settings for arm, settings in decided.items() if arm not in untrained}
    at_the_start = {arm: settings for arm, settings in decided.items() if arm in untrained}
    candidates = [_factor(setting, trained, at_the_start) for setting in _settings(trained)]
    return sorted((factor for factor in candidates if factor), key=lambda factor: -len(factor.levels))


def decisions(settings: Mapping[str, Any], *, matched: bool = False) -> Decisions:
    """Return the settings that decide what a run computes, without its seeds and without settings that follow
    from others.

    Args:
        matched: whether the steps follow from other settings, too.
    """
    decided = {
        path: value
        for name in (*COMPARED, "data")
        for path, value in _leaves(settings.get(name), name, section=True)
    }
    for path in following(settings):
        decided.pop(path, None)
    if matched:
        decided.pop("training.warmup_steps", None)
        if decided.get("training.max_steps"):
            del decided["training.max_steps"]
    if decided.get("objective.sees") == "window" and "objective.window" in decided:
        decided["objective.sees"] = f"window of {decided['objective.window']}"
    if decided.get("objective.kind") != "skip_gram":  # otherwise it belongs to `sees: window`, see above
        decided.pop("objective.window", None)
    shares = [f"objective.masking.{name}" for name in ("mask", "keep", "random")]
    if all(is_number(decided.get(path)) for path in shares):
        decided[SPLIT] = tuple(decided.pop(path) for path in shares)
    return {
        path: value
        for path, value in decided.items()
        if path not in WITHOUT_EFFECT and not path.startswith("training.seeds.")
    }


def _leaves(value: Any, path: str, *, section: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the settings below a path. A mapping with a `kind` is one value, unless it is a section."""
    if not isinstance(value, Mapping) or ("kind" in value and not section):
        yield from [] if value is None else [(path, value)]
        return
    for name, part in value.items():
        yield from _leaves(part, f"{path}.{name}")


def _settings(decided: Mapping[str, Decisions]) -> list[str]:
    """Return the paths of settings that differ between arms, in the order in which arms first differ in them."""
    every = list(dict.fromkeys(path for decisions in decided.values() for path in decisions))
    paths = [path for path in every if path.partition(".")[0] in COMPARED and path != "objective.kind"]
    first = next(iter(decided.values()), {})
    since = {}
    for path in paths:
        of_first = _key(first.get(path))
        since[path] = [_key(decisions.get(path)) != of_first for decisions in decided.values()]
    return sorted((path for path in paths if any(since[path])), key=lambda path: since[path].index(True))


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _factor(setting: str, decided: Mapping[str, Decisions], untrained: Mapping[str, Decisions]) -> Factor | None:
    """Return the factor of a setting with the arms that differ in it alone; None if there are fewer than two."""
    lines: dict[str, dict[str, str]] = {}  # everything else -> value -> the first arm that has it
    for arm, decisions in decided.items():
        rest = _key({path: value for path, value in decisions.items() if path != setting})
        lines.setdefault(rest, {}).setdefault(_key(decisions.get(setting)), arm)
    arms = [list(line.values()) for line in lines.values() if len(line) > 1]
    if not arms:
        return None
    values = {arm: _value(setting, decided[arm]) for line in arms for arm in line}
    numeric = all(map(is_number, values.values()))
    in_words = dict(zip(values, words(setting, list(values.values())), strict=True))
    for arm, value in values.items():
        is_long = CUT in in_words[arm] or len(in_words[arm]) > 2 * LETTERS  # as a lexicon of thousands of words
        if isinstance(value, Mapping) and is_long:
            first = next(other for other in values if _key(values[other]) == _key(value))
            in_words[arm] = f"{words('', [value['kind']])[0]} ({first})"
    order = [arm for arm in decided if arm in values]
    names = list(dict.fromkeys(in_words[arm] for arm in _ordered(order, values)))
    at = {arm: float(values[arm] if numeric else names.index(in_words[arm])) for arm in values}
    levels = [Level(arm, i, at[arm], in_words[arm]) for i, line in enumerate(arms) for arm in line]
    name = setting_name(setting)
    return Factor(
        setting=setting,
        title=name.title,
        label=name.label,
        numeric=numeric,
        logarithmic=numeric and is_logarithmic(list(at.values())),
        lines=_line_names([line[0] for line in arms], decided, setting),
        levels=tuple(sorted(levels, key=lambda level: (level.line, level.at))),
        reference=order[0],
        untrained=next(
            (arm for arm, decisions in untrained.items() if _begins(decisions, decided[order[0]])), None
        ),
        tuned=tuple(
            {
                path: None
                for arm in order
                for path, value in decided[arm].items()
                if value == TUNED and path != setting
            }
        ),
    )


def _value(setting: str, decisions: Decisions) -> Any:
    """Return the value of a setting. Without `predict` it is the ratio: all hidden tokens are predicted."""
    value = decisions.get(setting)
    if value is None and setting == "objective.masking.predict":
        return decisions.get("objective.masking.ratio")
    return value


def _ordered(arms: list[str], values: Mapping[str, Any]) -> list[str]:
    """Return arms in the order of their values: numbers by size, then names in the order of the experiment."""
    numbers = [arm for arm in arms if is_number(values[arm])]
    others = [arm for arm in arms if arm not in numbers]
    return [*sorted(numbers, key=lambda arm: float(values[arm])), *others]


def _line_names(firsts: Sequence[str], decided: Mapping[str, Decisions], setting: str) -> tuple[str, ...]:
    """Return the names of lines from their first arms: the objective, and differences under the same objective."""
    if len(firsts) == 1:
        return ("",)
    names = []
    kinds = {arm: decided[arm].get("objective.kind") for arm in firsts}
    every = dict.fromkeys(path for arm in firsts for path in decided[arm])
    others = [path for path in every if path not in (setting, "objective.kind")]
    keys = {path: {arm: _key(decided[arm].get(path)) for arm in firsts} for path in others}
    varied = [path for path, of_arms in keys.items() if len(set(of_arms.values())) > 1]
    for arm in firsts:
        differences = [str(kinds[arm])] if len(set(kinds.values())) > 1 else []
        for path in varied:
            peers = [o for o in firsts if kinds[o] == kinds[arm] or not path.startswith("objective.")]
            if len({keys[path][o] for o in peers}) == 1:
                continue
            if path.startswith("data."):
                differences.append(f"the text of {arm}")
            else:
                in_words = words(path, [decided[o].get(path) for o in peers])[peers.index(arm)]
                differences.append(f"{setting_name(path).title}: {in_words}")
        names.append(", ".join(dict.fromkeys(differences)))
    return tuple(names)


def _begins(untrained: Decisions, trained: Decisions) -> bool:
    """Return whether the first arm equals the second without its training."""
    steps = ("training.max_steps", "training.warmup_steps")
    tuned = [path for path, value in trained.items() if value == TUNED]
    start, end = (
        {path: decisions[path] for path in decisions if path not in (*steps, *tuned)}
        for decisions in (untrained, trained)
    )
    return _key(start) == _key(end)


def _are_matched(experiment: ReportedExperiment) -> bool:
    """Return whether the spec matches its arms by something other than steps, from which their steps follow."""
    path = None if experiment.folder is None else experiment.folder / "spec.yaml"
    if path is None or not path.is_file():
        return False
    try:
        return yamlfile.read(path).content.get("match", "steps") != "steps"
    except SpecProblems:
        return False
