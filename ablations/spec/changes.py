"""Differences between two specs, setting by setting, and settings whose value follows from other settings."""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ablations.spec import grid
from ablations.spec.experiment import Experiment
from lightning_modules.config import RunSettings


class Change(NamedTuple):
    """A setting that differs between two specs."""

    path: str
    """Dotted path, such as `training.max_steps`, or `measures.token_information.clusters` for a setting of a
    measure."""
    arms: tuple[str, ...] | None
    """Names of the arms with this difference; None if all arms in both specs have it, or if it is no setting
    of arms."""
    before: Any
    """Value in the first spec, as plain data; None also if the setting does not exist there. `after` is that of
    the second spec."""
    after: Any


def differing(before: Any, after: Any, *path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted path and both values of every difference. A part that one side lacks is one
    difference. If kinds differ, settings that only one of the kinds has are left out."""
    if isinstance(before, dict) and isinstance(after, dict):
        both = before.keys() & after.keys()
        same_kind = before.get("kind") == after.get("kind")
        for name in dict.fromkeys((*before, *after)):
            if name in both or (same_kind and path != ("measures",)):
                yield from differing(before.get(name), after.get(name), *path, name)
    elif before != after:
        yield ".".join(filter(None, path)), before, after


def changed_settings(before: Experiment, after: Experiment) -> list[Change]:
    """Return every setting that differs between two specs: of the experiment, and of arms and measures that
    both have.

    Defaults are filled in before, so a default that is written out is no difference. If the `kind` of a
    mapping differs, settings that only one of the kinds has are left out.

    Raises:
        SpecError: as `grid.resolved` does.
    """
    sides = grid.resolved(before), grid.resolved(after)
    old, new = ({name: part for name, part in side.items() if name != "arms"} for side in sides)
    written = [Change(path, None, *values) for path, *values in differing(_by_kind(old), _by_kind(new))]
    old, new = (side["arms"] for side in sides)
    names = [Change("arms", None, list(old), list(new))] * (list(old) != list(new))
    return [*names, *_of_arms(old, new), *written]


def _by_kind(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with its measures as a mapping by kind, whose empty key holds the list of kinds."""
    measures = {measure["kind"]: measure for measure in written["measures"]}
    return {**written, "measures": {"": list(measures), **measures}}


def _of_arms(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return each difference in arms that both specs have, once, with the names of all arms that have it."""
    both = [name for name in before if name in after]
    arms_by_change: dict[str, tuple[str, Any, Any, list[str]]] = {}
    for arm in both:
        for change in differing(before[arm], after[arm]):
            arms_by_change.setdefault(json.dumps(change), (*change, []))[-1].append(arm)
    return [
        Change(path, None if len(arms) == len(both) else tuple(arms), old, new)
        for path, old, new, arms in arms_by_change.values()
    ]


def following(settings: Mapping[str, Any]) -> list[str]:
    """Return the paths of settings whose value is the default that follows from other settings.

    An example is `training.warmup_steps`, which is a tenth of `training.max_steps` unless given. Invalid
    sections are skipped.

    Args:
        settings: the settings of a run as plain data, as in `run.json`.
    """
    written = {name: settings.get(name) for name in RunSettings.model_fields}
    return [
        f"{section}.{name}"
        for section, content in written.items()
        if isinstance(content, Mapping)
        for name in _following(section, content)
    ]


def _following(section: str, content: Mapping[str, Any]) -> Iterator[str]:
    try:
        given = _resolved(section, content)
        for name, field in type(given).model_fields.items():
            if field.default_factory_takes_validated_data:
                without = _resolved(section, {key: value for key, value in content.items() if key != name})
                if getattr(without, name) == getattr(given, name):
                    yield name
    except ValidationError:
        return


def _resolved(section: str, content: Mapping[str, Any]) -> Any:
    return _adapter(section).validate_json(json.dumps(content))


@functools.cache
def _adapter(section: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(RunSettings)[section])
