"""Runs of a spec: the arms that it writes and those that its grid generates, each with every seed, and their
matching: equal steps, predictions or operations (FLOPs) in all arms.

Sections of arms and spec are merged as they were *written*, before any default is filled in. So a default
that depends on another setting (``intermediate_size`` on ``hidden_size``) follows that setting if an arm
changes it.

A grid generates one arm for each combination of values, starting from its base arm. The name of such an arm
holds all varied settings, even those with the base's own value. An arm with the same settings as the base
costs nothing, because runs with equal settings are trained once.

If a spec has `match`, the first trained arm has the steps that the spec writes. The steps of every other arm are
set so that it predicts as many tokens, or takes as many operations, as the first one. The tokens per step stay
as they are. Predictions are counted in the text of each arm, sentence by sentence; torch is loaded only for that.
"""

import collections
import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ablations.errors import Fault, KeyPath, SpecError
from ablations.messages import about, faults
from ablations.spec.experiment import LONGEST_NAME, WRITTEN, Arm, Experiment, Grid, Run, merged, nodes
from ablations.wording import equality_key, exact_number, guess, listed, shown
from lightning_modules.config import RunSettings, contradictions, operations_per_token
from lightning_modules.config.objectives import ObjectiveSettings
from lightning_modules.config.run import PRESETS, preset_problem

if TYPE_CHECKING:
    from lightning_modules.data.token_store import Tokens

MOST_ARMS = 10_000
"""Largest number of arms of a grid and of trials of a search. More are a mistake: at a minute each, they take
a week."""

NOTHING_VARIED = (
    "grid must have axes or zip, or it generates no arm; write it as in "
    "`axes: {objective.masking.ratio: [0.15, 0.4]}`"
)

Combination = dict[str, tuple[Any, KeyPath]]
"""Value of each varied setting and the place in the spec where it was written, by the dotted path of the
setting."""


def generated(
    grid: Grid, base: Arm, *, settings: Collection[str] | None, taken: Collection[str]
) -> tuple[list[Arm], list[Fault]]:
    """Return the arms of a grid, and its faults with their paths in the spec. The first axis varies slowest.

    Args:
        settings: dotted paths of all settings of `base`; None if `base` has faults.
        taken: names of the arms that the spec writes itself.
    """
    wrong = _path_faults(grid, base.name, settings)
    unusable = {fault.path[2] for fault in wrong}
    axes = {path: values for path, values in grid.axes.items() if path not in unusable}
    paired = {path: values for path, values in grid.zip.items() if path not in unusable}
    sizes = [len(values) for values in (*axes.values(), *list(paired.values())[:1])]
    if not sizes:
        return [], wrong or [Fault(("grid",), NOTHING_VARIED, "key")]
    if math.prod(sizes) > MOST_ARMS:
        sentence = (
            f"grid generates {' x '.join(map(str, sizes))} arms, but at most {MOST_ARMS} are allowed; vary "
            "fewer values"
        )
        return [], [*wrong, Fault(("grid",), sentence, "key")]
    combinations = list(_combinations(axes, paired))
    if not wrong:
        combinations, wrong = _without_excluded(grid, combinations)
    arms = [_arm(base, combination) for combination in combinations]
    return arms, wrong + _name_faults(arms, taken)


def _path_faults(grid: Grid, base: str, settings: Collection[str] | None) -> list[Fault]:
    grid_faults: list[Fault] = []
    earlier: list[str] = []
    for source, path in [*(("axes", path) for path in grid.axes), *(("zip", path) for path in grid.zip)]:
        overlapping = next(
            (
                other
                for other in earlier
                if f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")
            ),
            None,
        )
        sentence = None
        if overlapping:
            sentence = f"{path} overlaps with {overlapping}, which the grid also varies; vary only one of them"
        elif path in ("seed", "seeds"):
            sentence = "seeds are replicates, so a grid cannot vary them; list them under seeds"
        elif settings is not None and path not in settings:
            sentence = f"{path} is not a setting of {base}{guess(path, settings)}"
        if sentence:
            grid_faults.append(Fault(("grid", source, path), sentence, "key"))
        earlier.append(path)
    return grid_faults


def _combinations(axes: dict[str, tuple[Any, ...]], paired: dict[str, tuple[Any, ...]]) -> Iterator[Combination]:
    factors: list[list[Combination]] = [
        [{path: (value, ("grid", "axes", path, index))} for index, value in enumerate(values)]
        for path, values in axes.items()
    ]
    if paired:
        length = len(next(iter(paired.values())))
        factors.append(
            [
                {path: (values[index], ("grid", "zip", path, index)) for path, values in paired.items()}
                for index in range(length)
            ]
        )
    for choices in itertools.product(*factors):
        yield {path: choice for chosen in choices for path, choice in chosen.items()}


def _without_excluded(grid: Grid, combinations: list[Combination]) -> tuple[list[Combination], list[Fault]]:
    """Return the combinations that `exclude` leaves, and the faults of its entries."""
    grid_faults: list[Fault] = []
    left = combinations
    for position, entry in enumerate(grid.exclude):
        place: KeyPath = ("grid", "exclude", position)
        wrong = _entry_faults(entry, {**grid.axes, **grid.zip}, place)
        if not wrong and not any(_matches(entry, combination) for combination in combinations):
            sentence = (
                "an entry of grid.exclude matches no arm, because grid.zip never pairs these values; remove it"
            )
            wrong = [Fault(place, sentence)]
        if not wrong:
            left = [combination for combination in left if not _matches(entry, combination)]
        grid_faults += wrong
    if not left:
        grid_faults.append(
            Fault(("grid", "exclude"), "grid.exclude excludes every combination; remove an entry", "key")
        )
    return left, grid_faults


def _matches(entry: dict[str, Any], combination: Combination) -> bool:
    return all(equality_key(combination[path][0]) == equality_key(value) for path, value in entry.items())


def _entry_faults(entry: dict[str, Any], varied: dict[str, tuple[Any, ...]], place: KeyPath) -> list[Fault]:
    if not entry:
        return [
            Fault(
                place,
                "an entry of grid.exclude is empty, so it would exclude every combination; name settings with "
                "a value each, as in `{objective.masking.ratio: 0.8}`",
            )
        ]
    grid_faults = []
    for path, value in entry.items():
        if path not in varied:
            hint = guess(path, varied) or f"; it varies {listed(list(varied), 'and')}"
            grid_faults.append(Fault((*place, path), f"the grid does not vary {path}{hint}", "key"))
        elif equality_key(value) not in map(equality_key, varied[path]):
            examples = [
                exact_number(other) if isinstance(other, float) else shown(other) for other in varied[path][:9]
            ]
            rest = ["others"] * (len(varied[path]) > len(examples))
            sentence = f"the grid never makes {path} {shown(value)}, only {listed([*examples, *rest], 'and')}"
            grid_faults.append(Fault((*place, path), sentence))
    return grid_faults


def _arm(base: Arm, combination: Combination) -> Arm:
    origin: dict[KeyPath, KeyPath] = {}
    for path, (value, place) in combination.items():
        *above, last = path.split(".")
        for length in range(1, len(above) + 1):
            origin.setdefault(tuple(above[:length]), place[:-1])
        for inner in [(), *nodes(value)]:
            origin[(*above, last, *inner)] = (*place, *inner)
    return changed_by(base, {path: value for path, (value, _) in combination.items()}, origin)


def changed_by(arm: Arm, values: Mapping[str, Any], origin: Mapping[KeyPath, KeyPath] | None = None) -> Arm:
    """Return the arm with other values for some settings; its name ends with them, as in ``mlm,ratio=0.4``.

    Args:
        values: new values, by dotted path.
        origin: places in the spec where the values are written, by the path of the setting.
    """
    labels = _labels(list(values))
    changes: dict[str, Any] = {}
    for path, value in values.items():
        *above, last = path.split(".")
        section = changes
        for key in above:
            section = section.setdefault(key, {})
        section[last] = value
    parts = [f"{labels[path]}={_value_name(value)}" for path, value in values.items()]
    return arm.changed(",".join([arm.name, *parts]), changes, origin or {})


def _labels(paths: list[str]) -> dict[str, str]:
    """Return a label for each path: its shortest end that no other path has."""
    labels = {}
    for path in paths:
        keys = path.split(".")
        ends = [".".join(keys[start:]) for start in reversed(range(len(keys)))]
        others = [f".{other}" for other in paths if other != path]
        labels[path] = next(end for end in ends if not any(other.endswith(f".{end}") for other in others))
    return labels


def _value_name(value: Any) -> str:
    """Return a value as text for an arm's name, which may have only some characters."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return exact_number(value)
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-") or "none"


def _name_faults(arms: list[Arm], taken: Collection[str]) -> list[Fault]:
    names = collections.Counter(arm.name for arm in arms)
    longest = max(names, key=len, default="")
    sentences = [
        f"grid generates an arm {name}, but arms has an arm of this name; rename the arm under arms"
        for name in names
        if name in taken
    ]
    sentences += [
        f"grid generates {count} arms with the name {name}; write them under arms, each with a name of its own"
        for name, count in names.items()
        if count > 1
    ]
    if len(longest) > LONGEST_NAME:
        sentences.append(
            f"grid generates names of up to {len(longest)} characters, but the name of a folder has at most "
            f"{LONGEST_NAME}; vary fewer settings, or write these arms under arms"
        )
    return [Fault(("grid",), sentence, "key") for sentence in sentences]


def runs(
    experiment: Experiment, *, tuned: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> tuple[Run, ...]:
    """Return every run of an experiment: written arms in the order of the file, then generated arms, each
    with all seeds.

    Args:
        tuned: values that tuning has chosen, by arm and dotted path; they replace those of the spec.

    Raises:
        SpecError: the grid or an arm has faults. This cannot happen to an experiment from `load.load`.
    """
    return tuple(
        Run(arm, seed, settings.model_copy(update={"seed": seed}))
        for arm, settings in _settings(experiment, tuned).items()
        for seed in experiment.all_seeds
    )


def resolved(
    experiment: Experiment, *, completed: Callable[[RunSettings], RunSettings] = lambda settings: settings
) -> dict[str, Any]:
    """Return the experiment as plain data for JSON, with every default and with all sections of every arm.

    Args:
        completed: fills in settings that depend on files.

    Raises:
        SpecError: as `runs` does.
    """
    without = {*WRITTEN, "arms", "grid"} | {name for name in ("question", "tune") if not getattr(experiment, name)}
    written = experiment.model_dump(mode="json", exclude=without)
    arms = {
        name: completed(settings).model_dump(mode="json", exclude={"seed"})
        for name, settings in _settings(experiment).items()
    }
    return {**written, "arms": arms}


def shared(sections: Mapping[str, Any]) -> Arm:
    """Return the sections that a spec writes for all arms, as an arm without a name."""
    return Arm("", sections, ({path: path for path in nodes(sections)},))


def sections(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the preset and the sections that a spec or an arm writes, by name."""
    return {name: written[name] for name in WRITTEN if name in written}


def written_arms(content: Mapping[str, Any]) -> tuple[list[Arm], list[Fault]]:
    """Return all arms of a spec and the faults of its grid, as `expand` does. Other parts of the spec may be
    wrong."""
    written = content.get("arms")
    overrides = {
        name: sections(section)
        for name, section in (written if isinstance(written, dict) else {}).items()
        if isinstance(section, dict)
    }
    try:
        grid = Grid.model_validate(content.get("grid"))
    except ValidationError:  # there is no grid, or its faults are reported elsewhere
        grid = None
    return expand(shared(sections(content)), overrides, grid)


def arm_names(content: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of a spec's arms; None if its arms or its grid have faults."""
    written, grid = content.get("arms"), content.get("grid")
    arms, wrong = written_arms(content)
    if not isinstance(written, dict) or wrong:
        return None
    generated = [arm.name for arm in arms if arm.name not in written]
    return None if grid is not None and not generated else (*written, *generated)


def expand(
    common: Arm, overrides: Mapping[str, Mapping[str, Any]], grid: Grid | None
) -> tuple[list[Arm], list[Fault]]:
    """Return the written arms, then the generated ones, and the faults of the grid with their paths in the
    spec.

    Args:
        common: sections that the spec writes for all arms.
        overrides: sections that each arm writes itself, by the arm's name.
    """
    arms = [
        common.changed(name, changes, {path: ("arms", name, *path) for path in nodes(changes)})
        for name, changes in overrides.items()
    ]
    if grid is None:
        return arms, []
    base = next((arm for arm in arms if arm.name == grid.base), None)
    if base is None:
        sentence = f"grid.base must be the name of an arm, but is {shown(grid.base)}{guess(grid.base, overrides)}"
        return arms, [Fault(("grid", "base"), sentence)]
    generated_arms, wrong = generated(grid, base, settings=setting_paths(base), taken=overrides)
    return [*arms, *generated_arms], wrong


def arm_faults(arm: Arm) -> list[Fault]:
    """Return the faults of an arm's settings. Their paths begin at the settings, not at the spec."""
    try:
        settings = settings_of(arm)
    except ValidationError as error:
        return faults(error, RunSettings)
    if sentence := _unsuited(arm):
        return [Fault(("preset",), sentence)]
    return [Fault(path, about(".".join(path), sentence), "several") for path, sentence in contradictions(settings)]


def settings_of(arm: Arm) -> RunSettings:
    """Return the full settings of an arm, with its preset and all defaults, for seed 0.

    Raises:
        ValidationError: the settings have faults.
    """
    sections = {name: section for name, section in arm.sections.items() if name != "preset"}
    return RunSettings.model_validate({**merged(_preset_sections(arm), sections), "seed": 0})


def _preset_sections(arm: Arm) -> Mapping[str, Any]:
    """Return the sections of an arm's preset; without the objective if the preset does not suit that of the
    arm."""
    chosen = next((PRESETS[name] for name in PRESETS if name == arm.sections.get("preset")), {})
    return {name: section for name, section in chosen.items() if name != "objective" or not _unsuited(arm)}


def _unsuited(arm: Arm) -> str | None:
    """Return why an arm's preset does not suit its objective; None if it does."""
    objective = arm.sections.get("objective")
    kind = objective.get("kind") if isinstance(objective, Mapping) else None
    return preset_problem(arm.sections.get("preset", "bert"), str(kind))


def setting_paths(arm: Arm) -> list[str] | None:
    """Return the dotted path of every setting of an arm, defaults included; None if the arm has faults."""
    try:
        settings = settings_of(arm)
    except ValidationError:
        return None
    return ["preset", *(".".join(map(str, path)) for path in nodes(settings.model_dump(exclude={"seed"})))]


def arms_of(experiment: Experiment) -> dict[str, Arm]:
    """Return every arm, written and generated, by its name.

    Raises:
        SpecError: as `runs` does.
    """
    overrides = {name: arm.written() for name, arm in experiment.arms.items()}
    arms, wrong = expand(shared(experiment.written()), overrides, experiment.grid)
    wrong += [fault for arm in arms for fault in arm_faults(arm)]
    if wrong:
        raise SpecError("\n".join(f"{experiment.name}: {sentence}" for _, sentence, _ in wrong))
    return {arm.name: arm for arm in arms}


def _settings(
    experiment: Experiment, tuned: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> dict[str, RunSettings]:
    arms = arms_of(experiment).items()
    return {name: settings_of(changed_by(arm, tuned[name]) if name in tuned else arm) for name, arm in arms}


SCALED = ("training.warmup_steps", "training.validate_every")
"""Settings that a search may choose and that are scaled with the steps of an arm."""


def matched(
    experiment: Experiment, runs: tuple[Run, ...], *, text: Callable[[RunSettings], "Tokens"]
) -> tuple[Run, ...]:
    """Return the runs with the steps that `match` gives them; warm-up and validations are scaled in
    proportion.

    Args:
        text: returns the tokens of a run's text. It is called if predictions are matched, and to count the
            operations of skip-gram and of selections with a lexicon, always for the first seed of an arm.

    Raises:
        SpecError: predictions are matched, and an arm predicts pairs of words instead of tokens.
    """
    trained = [run for run in runs if run.settings.training.max_steps]
    if experiment.match == "steps" or not trained:
        return runs

    first = {run.arm: run.settings for run in reversed(trained)}
    if why := unmatched(experiment.match, {arm: settings.objective for arm, settings in first.items()}):
        raise SpecError(f"{experiment.name}: {why}.")

    def of_token(run: RunSettings) -> float:
        words, masking = "pairs" in run.objective.predictions, getattr(run.objective, "masking", None)
        if experiment.match == "flops" and not words and not (masking is not None and masking.leaves_out):
            return operations_per_token(run)
        tokens = text(run)
        from lightning_modules.objectives.predictions import allowed_part, predictions_per_token  # load torch

        if experiment.match == "predictions":
            return predictions_per_token(run, tokens)
        pairs = predictions_per_token(run, tokens) if words else None
        return operations_per_token(run, pairs=pairs, allowed=allowed_part(run, tokens))

    rates = {arm: of_token(settings) * settings.training.tokens_per_step for arm, settings in first.items()}
    reference = rates[trained[0].arm] * trained[0].settings.training.max_steps
    return tuple(
        lasting(run, round(reference / rates[run.arm])) if run.settings.training.max_steps else run for run in runs
    )


def unmatched(match: object, objectives: Mapping[str, ObjectiveSettings]) -> str | None:
    """Return the reason why predictions cannot be held equal between arms; None if they can or need not.

    Args:
        objectives: the objective of each arm.
    """
    words = next((arm for arm, objective in objectives.items() if "pairs" in objective.predictions), None)
    if match != "predictions" or words is None:
        return None
    return (
        f"match: predictions is not possible for arm {words}, because it predicts pairs of words; write match: "
        "flops or match: steps, or give the arm an experiment of its own"
    )


def lasting(run: Run, max_steps: int) -> Run:
    """Return the run with another number of steps. Warm-up, validations and masking schedules are scaled in
    proportion. A ratio of a masking schedule that would have no step is left out."""
    training, objective = run.settings.training, run.settings.objective
    steps, scale = max(1, max_steps), max_steps / training.max_steps
    masking = getattr(objective, "masking", None)
    if masking is not None and masking.schedule is not None and masking.schedule.kind == "steps":
        pairs = zip(masking.schedule.at, masking.schedule.ratios, strict=True)
        ratio_by_step = {max(1, round(step * scale)): ratio for step, ratio in pairs}  # the later one counts
        ratio_by_step = {step: ratio for step, ratio in ratio_by_step.items() if step < steps}
        changed_at = {"at": tuple(ratio_by_step), "ratios": tuple(ratio_by_step.values())}
        schedule = masking.schedule.model_copy(update=changed_at) if ratio_by_step else None
        masking = masking.model_copy(update={"schedule": schedule})
        objective = objective.model_copy(update={"masking": masking})
    changed = training.model_copy(
        update={
            "max_steps": steps,
            "warmup_steps": min(steps, round(training.warmup_steps * scale)),
            "validate_every": max(1, round(training.validate_every * scale)),
        }
    )
    return replace(run, settings=run.settings.model_copy(update={"training": changed, "objective": objective}))
