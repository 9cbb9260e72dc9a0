"""Loading of spec files: returns an Experiment, or reports every problem at once with line and column; and
JSON Schemas for editors.

A problem points at what a user would change: a misspelt key, a wrong value, the parent of a missing key, or
the arm whose changes contradict the rest of the spec. With the JSON Schemas (draft 2020-12) of spec files and
of files of claims, editors complete and check what is written.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ablations import yamlfile
from ablations.catalogue import distance_settings, suits, unfit
from ablations.errors import Fault, KeyPath, Problem, SpecProblems
from ablations.messages import faults
from ablations.spec import claims as claims_file
from ablations.spec import given_settings
from ablations.spec.contrasts import ClaimFile
from ablations.spec.experiment import SECTIONS, Arm, Experiment, Overrides, Run, SeedsUntilDecided
from ablations.spec.figures import published_problems
from ablations.spec.grid import arm_faults, runs, sections, shared, unmatched, written_arms
from ablations.spec.tuning import tune_faults
from ablations.tasks.datasets import TASKS
from ablations.tasks.settings import TaskSettings
from ablations.wording import FEW, guess, listed, shown
from lightning_modules import plugins
from lightning_modules.config import RunSettings
from lightning_modules.plugins import Plugin

NO_CLAIMS = (
    "seeds are added until the claims are decided, but the spec names no claims; name a file of claims, as in "
    "`claims: [article]`, or write the seeds as a list"
)


def load(
    path: Path | str,
    *,
    overrides: Sequence[str] = (),
    beside: Literal["checked", "unread", "foreign"] = "checked",
    trusted: Iterable[Plugin] = (),
) -> Experiment:
    """Return the experiment that a spec file describes, after checking all of it and the files beside it.

    Args:
        overrides: settings from the command line that override the file, each as KEY=VALUE (`given_settings`).
        beside: `unread` skips the files of claims and of published curves that the spec names. They may not be
            written yet, and a folder of results has no published curves. `foreign` skips them too, and executes
            no file beside the spec, because a folder of results may be from somebody else.
        trusted: plugins that were loaded for a spec of the user, which this spec may name too.

    Raises:
        SpecProblems: the spec, or a file of claims or curves that it names, has problems; the error has all
            of them.
    """
    path = Path(path)
    plugins.look_beside(path, executes=beside != "foreign", trusted=trusted)
    document = given_settings.read(path, overrides)
    spec_faults = list(_arm_faults(document.content, document.option_by_path))
    try:
        experiment = Experiment.model_validate(document.content)
    except ValidationError as error:
        reported = {fault.path for fault in spec_faults if _is_about_section(fault)}
        spec_faults += [fault for fault in faults(error, Experiment) if fault.path not in reported]
        experiment = None
    if experiment is not None and not spec_faults:
        resolved = runs(experiment)
        objectives = {run.arm: run.settings.objective for run in resolved if run.settings.training.max_steps}
        if why := unmatched(experiment.match, objectives):
            spec_faults.append(Fault(("match",), why, "value"))
        spec_faults += _tasks_of_other_text(experiment, resolved)
        spec_faults += _unfit_measures(experiment, resolved)
        spec_faults += tune_faults(experiment)
        if isinstance(experiment.seeds, SeedsUntilDecided) and not experiment.claims:
            spec_faults.append(Fault(("seeds",), NO_CLAIMS, "key"))
    check = beside == "checked"
    problems = {
        *document.problems,
        *((*claims_file.problems(document, spec=path), *published_problems(document, spec=path)) if check else ()),
        *document.problems_of(spec_faults),
    }
    if problems or experiment is None:
        raise SpecProblems(tuple(sorted(problems)))
    return experiment


loaded_plugins = plugins.loaded


def forget_plugins(*, but: Iterable[Plugin] = ()) -> None:
    """Forget all loaded plugins but these, and take none that lie beside a spec, as for a folder of results."""
    plugins.look_beside(None, trusted=but)


def unfit_files(
    spec: Path, sentences: Iterable[tuple[str, str | None, str]], *, overrides: Sequence[str]
) -> SpecProblems:
    """Return sentences about files as problems of the spec that names them.

    A sentence appears once: at the place that it is about in a part of the spec for all arms, or else in the
    first arm that has it. It begins with the names of its arms, unless all arms have it at a place for all.

    Args:
        sentences: tuples (arm, kind of the measure that it is about or None, sentence).
        overrides: settings from the command line that override the spec.
    """
    document = given_settings.read(spec, overrides)
    arms = {arm.name: arm for arm in written_arms(document.content)[0]}
    names_of: dict[tuple[str | None, str], dict[str, None]] = {}
    for name, measure, sentence in sentences:
        names_of.setdefault((measure, sentence), {})[name] = None
    problems = list[Problem]()
    for (measure, sentence), names in names_of.items():
        places = [_place(document, sentence, name, arms.get(name), measure) for name in names]
        place = next((place for place in places if place[0] not in ("arms", "grid")), places[0])
        is_of_all = place[0] not in ("arms", "grid") and names.keys() >= arms.keys()
        about = "" if is_of_all else _in_words(list(names))
        about += f"measure {measure}: " if measure else ""
        problems.append(document.problem(place, about + sentence.removeprefix(f"{measure}: "), at="value"))
    return SpecProblems(tuple(sorted(problems)))


def _in_words(arms: Sequence[str]) -> str:
    """Return the names of arms as the beginning of a sentence, at most `FEW` of them."""
    if len(arms) == 1:
        return f"arm {arms[0]}: "
    names = arms if len(arms) <= FEW else [*arms[: FEW - 1], f"{len(arms) - FEW + 1} more"]
    return f"arms {listed(names, 'and')}: "


def _place(document: yamlfile.Document, sentence: str, name: str, arm: Arm | None, measure: str | None) -> KeyPath:
    """Return the path in the spec that a sentence is about: that of the measure, of the first setting, file of
    text or tokenizer that the sentence names, of the nearest part around it, or else of the arm.

    Args:
        name: name of the arm.
        arm: its settings; None if the spec has no such arm, as for trials.
    """
    if measure is not None:
        kinds = [entry if isinstance(entry, str) else entry["kind"] for entry in document.content["measures"]]
        return ("measures", kinds.index(measure))
    if arm is None:
        return ("arms", name)
    setting = re.search(rf"\b(?:{'|'.join(SECTIONS)})(?:\.\w+)+", sentence)
    path = tuple(setting[0].split(".")) if setting else _file_of_text(arm, sentence)
    return _origin(Fault(path, ""), arm) or ("arms", name)


def _file_of_text(arm: Arm, sentence: str) -> KeyPath:
    """Return the path of the setting whose file of text or tokenizer a sentence names; () if it names none."""
    data = arm.sections.get("data", {})
    for key in ("train", "validation", "test", "tokenizer"):
        names = data.get(key)
        for name in names if isinstance(names, list) else [names]:
            if isinstance(name, str) and re.search(
                rf"(?<![\w.-]){re.escape(name.rstrip('/'))}(?![\w-]|\.\w)", sentence
            ):
                return ("data", key)
    return ()


def _is_about_section(fault: Fault) -> bool:
    """Return whether a fault is about the type of a section. `arm_faults` reports such a fault in a better
    sentence, except for an empty `init`, which a run may lack."""
    in_arm = len(fault.path) == 3 and fault.path[0] == "arms"
    return fault.about == "value" and fault.path[-1] in SECTIONS and (in_arm or len(fault.path) == 1)


def _arm_faults(content: dict[str, Any], given: Mapping[KeyPath, str]) -> Iterator[Fault]:
    """Yield the faults of sections, arms and grid, each once and with its path in the spec. Parts that cannot
    be read are skipped.

    Args:
        given: paths of values from the command line, each with the option that gave it.
    """
    common = shared(sections(content))
    written = content.get("arms")
    named = written if isinstance(written, dict) else {}
    arms, grid_faults = written_arms(content)
    yield from grid_faults
    if not grid_faults:  # a faulty grid may lack arms that a measure names
        yield from _unknown_arms(content.get("measures"), [arm.name for arm in arms])
    # In the sections for all arms, missing or contradictory settings are no fault: each arm may set them.
    yield from (fault for fault in arm_faults(common) if fault.about in ("key", "value"))
    changed = {name for arm in arms for name in arm.sections}
    reported: set[tuple[KeyPath, str]] = set()
    for arm in arms:
        for fault in arm_faults(arm):
            place = _origin(fault, arm)
            if place is None and arm.name not in named:
                continue  # reported for the base of this generated arm
            if place is None:
                place = ("arms", arm.name) if fault.path[0] in changed else fault.path
            if (place, fault.sentence) not in reported:
                reported.add((place, fault.sentence))
                if place[0] in SECTIONS and fault.about == "key":
                    fault = _of_another_arm(fault, arm, arms, option=given.get(place)) or fault
                in_arm = place[0] in ("arms", "grid") and fault.about in ("missing", "several")
                yield Fault(place, (f"arm {arm.name}: " if in_arm else "") + fault.sentence, fault.about)


def _of_another_arm(fault: Fault, arm: Arm, arms: Sequence[Arm], *, option: str | None) -> Fault | None:
    """Return the fault of a shared setting that only arms of another kind have; None if no arm has it.

    Args:
        option: option of the command line that gives the setting; None if the spec does.
    """
    section, name = fault.path[0], ".".join(map(str, fault.path))
    for other in arms:
        if _has(other.sections, fault.path) and fault.path not in {refused.path for refused in arm_faults(other)}:
            kind = arm.sections[str(section)].get("kind")
            within = f"arms.{other.name}"
            remedy = (
                f"write `{option.replace(' ', f' {within}.', 1)}`" if option else f"write {name} under {within}"
            )
            sentence = f"arm {arm.name} ({kind}) has no {name}; to change one arm, {remedy}"
            return fault._replace(sentence=sentence)
    return None


def _has(content: Any, path: KeyPath) -> bool:
    """Return whether nested mappings have a value at a path."""
    for key in path:
        if not isinstance(content, Mapping) or key not in content:
            return False
        content = content[key]
    return True


def _unknown_arms(measures: Any, names: list[str]) -> Iterator[Fault]:
    """Yield a fault for each arm that a measure names and the spec does not have."""
    for index, settings in enumerate(measures if isinstance(measures, list) else ()):
        arms = settings.get("arms") if isinstance(settings, dict) else None
        for place, name in enumerate(arms if isinstance(arms, list) else ()):
            if isinstance(name, str) and name not in names:
                sentence = f"an entry of arms must be the name of an arm, but is {shown(name)}{guess(name, names)}"
                yield Fault(("measures", index, "arms", place), sentence, "value")


def _tasks_of_other_text(experiment: Experiment, resolved: Iterable[Run]) -> Iterator[Fault]:
    """Yield a fault for each task that does not suit the text of an arm: a task of the built-in language if
    an arm reads files, or the reverse."""
    arms: dict[bool, list[str]] = {True: [], False: []}
    for run in resolved:
        arms[run.settings.data.kind == "language"].append(run.arm)
    for index, settings in enumerate(experiment.measures):
        if not isinstance(settings, TaskSettings):
            continue
        for place, name in enumerate(settings.tasks or ()):
            if plugins.is_text(name):
                continue  # a user's own task may be for any text
            built_in = TASKS[name].built_in
            if arms[not built_in]:
                of, text = ("the built-in language", "files") if built_in else ("files", "the built-in language")
                fit = [
                    task
                    for task in TASKS
                    if TASKS[task].built_in != built_in and settings.can_measure(TASKS[task])
                ]
                sentence = (
                    f"an entry of tasks must suit the text of every arm, but {name} is for {of} and the text of "
                    f"{arms[not built_in][0]} is {text}; choose {listed(fit)}"
                )
                yield Fault(("measures", index, "tasks", place), sentence, "value")


def _unfit_measures(experiment: Experiment, resolved: Iterable[Run]) -> Iterator[Fault]:
    """Yield a fault for each measure that cannot be computed from the runs of an arm: the text lacks labels, or
    the measure reads too few tokens."""
    distances = distance_settings(experiment.measures)
    for index, settings in enumerate(experiment.measures):
        reasons = (
            reason
            for run in resolved
            if suits(settings, run.settings)
            and (settings is not distances or not distances.arms or run.arm in distances.arms)
            and (reason := unfit(settings, run.settings))
        )
        if (reason := next(reasons, None)) is not None:
            yield Fault(("measures", index), reason, "value")


def _origin(fault: Fault, arm: Arm) -> KeyPath | None:
    """Return the path in the spec where a fault of an arm's settings is best corrected; None if no part of it
    was written.

    This is the place of the setting itself or, if a later layer of changes has it, of a setting that
    contradicts it. For a missing setting it is the nearest part around it that was written.
    """
    for layer in arm.origins:
        if fault.path in layer:
            return layer[fault.path]
        if fault.about == "several":
            for path, place in layer.items():
                if _mentions(fault, path):
                    return place
    for length in range(len(fault.path) - 1, 0, -1):
        around = fault.path[:length]
        layers = [layer for layer in arm.origins if around in layer]
        if layers:
            chosen = next((layer for layer in layers if (*around, "kind") in layer), layers[-1])
            return chosen[around]
    return None


def _mentions(fault: Fault, path: KeyPath) -> bool:
    """Return whether the sentence of a fault names a setting: by its full path, or by its last key if it is
    in the same section as the faulty setting."""
    names = [".".join(map(str, path))] + [str(path[-1])] * (path[:-1] == fault.path[:-1])
    return any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w|\.\w)", fault.sentence) for name in names)


_PLUGIN_KIND: JsonSchemaValue = {"type": "string", "pattern": f"^{plugins.NAME}$"}
_PLUGIN_SETTINGS: JsonSchemaValue = {"type": "object", "properties": {"kind": _PLUGIN_KIND}, "required": ["kind"]}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a spec file, without references to other files.

    A spec may write one part of a section for all arms and another part for one arm. So the schema requires
    no setting of a section, and `load` checks the merged sections.
    """
    spec = Experiment.model_json_schema(schema_generator=_ShortForms)
    run = RunSettings.model_json_schema(schema_generator=_ShortForms)
    for settings in run["$defs"].values():
        settings.pop("required", None)
    for properties in (spec["properties"], spec["$defs"][Overrides.__name__]["properties"]):
        for name in SECTIONS:
            properties[name] = _section_schema(
                run["properties"][name], description=properties[name]["description"]
            )
    spec["properties"]["arms"]["additionalProperties"] = False
    return {"$schema": _ShortForms.schema_dialect, **spec, "$defs": {**spec["$defs"], **run["$defs"]}}


def claims_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of claims. It does not compare the needs of a claim with its effects:
    `claims.load` does."""
    return {"$schema": _ShortForms.schema_dialect, **ClaimFile.model_json_schema(schema_generator=_ShortForms)}


def _section_schema(section: dict[str, Any], *, description: str) -> dict[str, Any]:
    """Return the schema of a section in which every setting may be left out, even its kind. Without a kind a
    section may fit several kinds, so the schema is an `anyOf`."""
    kinds = section.get("oneOf") or section.get("anyOf") or [{"$ref": section["$ref"]}]
    return {"description": description, "anyOf": kinds}


class _ShortForms(GenerateJsonSchema):
    """Generator of schemas that also allow short forms, which validators expand before pydantic checks
    them."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        """Allow one file in place of a list of files, and the name of a kind in place of a measure of that
        kind."""
        full = super().function_before_schema(schema)
        if "items" in full:
            return {"anyOf": [full["items"], full]}
        if "discriminator" not in full:  # this validator only words the error
            return full
        named = [_PLUGIN_KIND] if _PLUGIN_SETTINGS in full["oneOf"] else []
        return {"anyOf": [{"enum": list(full["discriminator"]["mapping"])}, *named, full]}

    def function_wrap_schema(self, schema: core_schema.WrapValidatorFunctionSchema) -> JsonSchemaValue:
        """Allow the kind of a plugin, whose settings are unknown here, and the file of a user's own task."""
        full = super().function_wrap_schema(schema)
        if "oneOf" not in full:
            return {"anyOf": [full, {"type": "string", "pattern": f"^{plugins.TEXT}$"}]}
        return {**full, "oneOf": [*full["oneOf"], _PLUGIN_SETTINGS]}
