"""From a spec to its runs: arms laid over the spec's own sections, generated arms, arms x seeds.

What is merged is what was *written*, before any default is filled in. So a default that follows another setting
(``intermediate_size`` follows ``hidden_size``) still follows it where an arm changes that setting.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from ablations.combinations import generated
from ablations.errors import SpecError
from ablations.problems import Fault
from ablations.sentences import about, faults
from ablations.spec import SECTIONS, Arm, Experiment, Grid, Run, nodes
from ablations.wording import guess, shown
from lightning_modules.config import RunSettings, contradictions


def runs(experiment: Experiment) -> tuple[Run, ...]:
    """Every run: written arms in the order of the file, then generated ones, each with all seeds in turn.

    Raises:
        SpecError: what is written makes no runs; never for an experiment that `specfile.load` returned.
    """
    return tuple(
        Run(arm, seed, settings.model_copy(update={"seed": seed}))
        for arm, settings in _settings(experiment).items()
        for seed in experiment.seeds
    )


def resolved(experiment: Experiment) -> dict[str, Any]:
    """The experiment as JSON can hold it, every default written out and every arm's sections in full.

    Raises:
        SpecError: as `runs` does.
    """
    written = experiment.model_dump(mode="json", exclude={*SECTIONS, "arms", "grid"})
    arms = {
        name: settings.model_dump(mode="json", exclude={"seed"})
        for name, settings in _settings(experiment).items()
    }
    return {**written, "arms": arms}


def shared(sections: Mapping[str, Any]) -> Arm:
    """What a spec writes for every arm."""
    return Arm("", sections, ({path: path for path in nodes(sections)},))


def sections(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a spec or an arm writes of the settings of a run."""
    return {name: written[name] for name in SECTIONS if name in written}


def written_arms(content: Mapping[str, Any]) -> tuple[list[Arm], list[Fault]]:
    """Return the arms of a spec of which other parts may be wrong, and what is wrong with its grid (`expand`)."""
    written = content.get("arms")
    overrides = {
        name: sections(own)
        for name, own in (written if isinstance(written, dict) else {}).items()
        if isinstance(own, dict)
    }
    try:
        grid = Grid.model_validate(content.get("grid"))
    except ValidationError:  # there is none, or the spec's own faults say what is wrong with it
        grid = None
    return expand(shared(sections(content)), overrides, grid)


def arm_names(content: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of a spec's arms; None where they cannot be told, as its arms or its grid are wrong."""
    written, grid = content.get("arms"), content.get("grid")
    arms, wrong = written_arms(content)
    if not isinstance(written, dict) or wrong:
        return None
    generated = [arm.name for arm in arms if arm.name not in written]
    return None if grid is not None and not generated else (*written, *generated)


def expand(
    common: Arm, overrides: Mapping[str, Mapping[str, Any]], grid: Grid | None
) -> tuple[list[Arm], list[Fault]]:
    """Written arms, then generated ones, and what is wrong with the grid, in paths of the spec.

    Args:
        common: what is written for every arm.
        overrides: what each arm writes for itself.
    """
    arms = [
        common.changed(name, own, {path: ("arms", name, *path) for path in nodes(own)})
        for name, own in overrides.items()
    ]
    if grid is None:
        return arms, []
    base = next((arm for arm in arms if arm.name == grid.base), None)
    if base is None:
        sentence = f"grid.base must be the name of an arm, but is {shown(grid.base)}{guess(grid.base, overrides)}"
        return arms, [Fault(("grid", "base"), sentence)]
    more, wrong = generated(grid, base, settings=_setting_paths(base), taken=overrides)
    return [*arms, *more], wrong


def arm_faults(arm: Arm) -> list[Fault]:
    """What keeps an arm from being run, in paths of its settings."""
    try:
        settings = _complete(arm)
    except ValidationError as error:
        return faults(error, RunSettings)
    return [Fault(path, about(".".join(path), sentence), "several") for path, sentence in contradictions(settings)]


def _complete(arm: Arm) -> RunSettings:
    """An arm's settings with every default filled in, for seed 0."""
    return RunSettings.model_validate({**arm.sections, "seed": 0})


def _setting_paths(arm: Arm) -> list[str] | None:
    try:
        settings = _complete(arm)
    except ValidationError:
        return None
    return [".".join(map(str, path)) for path in nodes(settings.model_dump(exclude={"seed"}))]


def _settings(experiment: Experiment) -> dict[str, RunSettings]:
    overrides = {name: arm.written() for name, arm in experiment.arms.items()}
    arms, wrong = expand(shared(experiment.written()), overrides, experiment.grid)
    wrong += [fault for arm in arms for fault in arm_faults(arm)]
    if wrong:
        raise SpecError("\n".join(f"{experiment.name}: {sentence}" for _, sentence, _ in wrong))
    return {arm.name: _complete(arm) for arm in arms}
