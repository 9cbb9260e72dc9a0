"""Loading of files of claims: returns their claims, or reports every problem at once with line and column.

A claim with `needs.spec` may name only arms of that experiment; a claim without it may name only arms that
every spec with this file has (docs/claims.md, "Where the file goes"). The similarity of names cannot decide
where an arm belongs: `clm-450` is close to `clm` and right, `word2vecs` may be close to nothing and wrong.
Effects beside a claim follow the same rule, because nobody would notice that they never appear.

Groups are checked against the settings of the spec's measures. Groups that only a table of results can show are
accepted (patterns with a star, treebanks, words of pictures, ranks of a text), and so are all groups of a claim
with `needs.spec`. `groups` is not checked if the measures can make all of `or_groups`.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError

from ablations import yamlfile
from ablations.catalogue import LOGGED, Measure, layers_with_numbers, metric_lack
from ablations.errors import Fault, KeyPath, Problem, SpecProblems
from ablations.measures.settings import RunDistanceSettings
from ablations.messages import validated
from ablations.metric_groups import groups_made
from ablations.spec import claim_checks, grid
from ablations.spec.claim_checks import written_claims, written_effects
from ablations.spec.contrasts import FEWEST_STEPS, Ahead, Apart, Claim, ClaimFile, Effect, Quantity, Shape, Trend
from ablations.wording import FEW, guess, listed, nearest, several, shown
from ablations.yamlfile import Document
from lightning_modules.config import RunSettings
from lightning_modules.files import write_whole

FOLDER = "claims"
"""Folder of claims, beside the specs and in an experiment's results."""

NAME = re.compile("[a-z0-9][a-z0-9._-]{0,199}")
"""Pattern of the name of a file of claims, as specs write it."""


class Claims(NamedTuple):
    """Claims of one file."""

    name: str
    """Name of the file, without its ending."""
    content: bytes
    claims: tuple[Claim, ...]

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the file as it is written, as hex digits."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def digests(self) -> dict[str, str]:
        """Return a hash of each claim, by its name. Comments and the order of keys do not change it."""
        return {claim.name: _digest(claim) for claim in self.claims}


def load(
    path: Path,
    *,
    spec: Path | None = None,
    arms: Collection[str] | None = None,
    groups: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Claims:
    """Return the claims of a file, after checking all of it. Arms and groups are checked as the module
    describes.

    Args:
        spec: the spec that names the file.
        arms: names of this spec's arms; None if they are unknown.
        groups: groups of this spec's measures, as from `groups_of_measures`.

    Raises:
        SpecProblems: the file has problems; the error has all of them, in the order of the file.
    """
    document = yamlfile.read(path, example="version: 1")
    claims = document.content.get("claims")
    specs = path.absolute().parent.parent
    claim_faults = [*claim_checks.faults(claims), *_specs_not_there(claims, specs)]
    places = {fault.path for fault in claim_faults}
    arms_of = cache(partial(_arms_of, specs))
    unknown = arm_faults(claims, arms=arms, spec=spec.name if spec else "", arms_of=arms_of)
    unmade = group_faults(claims, groups, spec=spec.name if spec else "")
    claim_faults += (fault for fault in (*unknown, *unmade) if fault.path not in places)  # one per place
    file, problems = validated(document, ClaimFile)
    problems.update(document.problems_of(claim_faults))
    if problems or file is None:
        raise SpecProblems(tuple(sorted(problems)))
    return Claims(path.stem, path.read_bytes(), file.claims)


def _specs_not_there(claims: Any, specs: Path) -> Iterator[Fault]:
    """Yield a fault for each `needs.spec` that names a missing file."""
    if (specs / "plan.json").is_file():  # the file is a copy among results, which has no specs beside it
        return
    for at, _, needs in written_claims(claims):
        name = (needs or {}).get("spec")
        if isinstance(name, str) and name and not (specs / name).is_file():
            meant = nearest(name, [other.name for other in specs.glob("*.yaml")])
            hint = (
                f"did you mean {meant}?"
                if meant
                else "name a spec in the folder that contains the folder of claims, or leave it out"
            )
            sentence = f"claims.needs.spec names {name}, but there is no file {specs / name}; {hint}"
            yield Fault((*at, "needs", "spec"), sentence)


def _arms_of(specs: Path, name: str) -> tuple[str, ...] | None:
    """Return the arms of a spec beside the folder of claims; None where it does not exist or cannot be read."""
    try:
        return grid.arm_names(yamlfile.read(specs / name).content)
    except SpecProblems:
        return None


def load_named(names: Sequence[str], *, spec: Path) -> list[Claims]:
    """Return the claims of the files that a spec names, from the folder `claims` beside it.

    Raises:
        SpecProblems: a file is missing or wrong.
    """
    return [load(path_of(name, spec=spec)) for name in names]


def path_of(name: str, *, spec: Path) -> Path:
    """Return the path of a file of claims by its name in a spec."""
    return spec.parent / FOLDER / f"{name}.yaml"


def problems(document: Document, *, spec: Path) -> Iterator[Problem]:
    """Yield every problem of a spec's claims: in its list of files, and in the files. `load.load` checks the
    types in the list."""
    written = document.content.get("claims")
    arms = grid.arm_names(document.content) if written else None
    names = written if isinstance(written, list) else []
    texts = [arm.sections.get("data") for arm in grid.written_arms(document.content)[0]] if arms else []
    kinds = {text["kind"] for text in texts if isinstance(text, dict) and isinstance(text.get("kind"), str)}
    groups = groups_of_measures(document.content.get("measures"), kinds) if kinds else {}
    seen: dict[str, str] = {}
    for index, name in enumerate(names):
        if not isinstance(name, str) or not NAME.fullmatch(name) or name in names[:index]:
            continue
        path = path_of(name, spec=spec)
        if not path.is_file():
            meant = nearest(name, [other.stem for other in path.parent.glob("*.yaml")])
            begin = f"; `ablate claims {spec} --new` writes one" if name == document.content.get("name") else ""
            hint = f"; did you mean {meant}?" if meant else begin
            if (bare := name.removesuffix(".yaml")) != name and path_of(bare, spec=spec).is_file():
                hint = "; write the name without .yaml"
            sentence = f"claims names {name}, but there is no file {path}{hint}"
            yield document.problem(("claims", index), sentence, at="value")
            continue
        try:
            loaded = load(path, spec=spec, arms=arms, groups=groups)
        except SpecProblems as error:
            yield from error.problems
            continue
        for claim in loaded.claims:
            if claim.name in seen:
                files = f"{name} and {seen[claim.name]}"
                sentence = f"claims names {files}, but both files have a claim {claim.name}; rename one"
                yield document.problem(("claims", index), sentence, at="value")
            seen.setdefault(claim.name, name)
            if not claim.needs.spec and set(claim.needs.arms) <= set(arms or ()):
                yield from _distance_problems(document, claim)


def _distance_problems(document: Document, claim: Claim) -> Iterator[Problem]:
    """Yield a problem for each `run_distance` of a spec that lacks pairs of runs which the claim compares."""
    effects = (*claim.parts.values(), *claim.provided.values(), *claim.beside.values())
    compared = dict.fromkeys(
        arm for effect in effects if isinstance(effect, Apart) for arm in effect.arms_needed()
    )
    for index, settings in _valid(document.content.get("measures")) if compared else ():
        if not isinstance(settings, RunDistanceSettings):
            continue
        if not settings.across_seeds:
            sentence = (
                f"run_distance must have across_seeds: true, because claim {claim.name} compares arms at "
                "different seeds (apart)"
            )
            yield document.problem(("measures", index), sentence, at="value")
        if lacking := [arm for arm in compared if settings.arms and arm not in settings.arms]:
            names = listed(lacking, "and")
            sentence = f"run_distance.arms must name {names}, which claim {claim.name} compares (apart)"
            yield document.problem(("measures", index, "arms"), sentence, at="value")


def never_measured(
    files: Sequence[Claims], *, measures: Sequence[Measure], arms: Mapping[str, RunSettings]
) -> Iterator[str]:
    """Yield a sentence for each claim that can have no verdict: the objective of one of its arms does not have a
    metric that it reads, the encoder a layer, or the learning curve enough checkpoints. An arm of an effect with
    several quantities may read any of them.

    Args:
        arms: settings of one run of each arm, by the name of the arm.
    """
    by_kind: dict[str, Measure] = {settings.kind: settings for settings in measures}
    for claim in (claim for file in files for claim in file.claims):
        arms_by_reason: dict[str, dict[str, None]] = {}
        for effect in (*claim.parts.values(), *claim.provided.values()):
            for arm in effect.arms_needed() if set(claim.needs.arms) <= set(arms) else ():
                each = [_lack(effect, of, by_kind, arms[arm]) for of in effect.quantities()]
                for reason in filter(None, each if all(each) else ()):
                    arms_by_reason.setdefault(reason, {})[arm] = None
        if arms_by_reason:
            reasons = [reason.format(listed(list(names), "and")) for reason, names in arms_by_reason.items()]
            yield f"claim {claim.name} cannot be judged: {'; '.join(reasons)}"


def _lack(effect: Effect, of: Quantity, measures: Mapping[str, Measure], run: RunSettings) -> str | None:
    """Return why no measure gives a quantity of a run that an effect reads, with braces in the place of the arm;
    None if one does, or if none is of its kind."""
    settings = measures.get("validation" if of.measure in LOGGED else of.measure)
    if settings is None:
        return None
    if not isinstance(settings, RunDistanceSettings):
        lack = metric_lack(settings, of.measure, of.metric, run, in_groups=bool(of.groups))
        if lack is not None:
            return f"{of.measure} {of.metric} is not measured on {{}}, because {run.objective.kind} {lack}"
    if isinstance(effect, Ahead) or of.steps != "last":
        return _curve_lack(of, settings, run)
    return _layers_lack(effect, of, run)


def _layers_lack(effect: Effect, of: Quantity, run: RunSettings) -> str | None:
    """Return which layers of a quantity a run lacks, as `_lack` does; None if it lacks none."""
    needed = of.layers_needed
    if isinstance(effect, Shape) or (isinstance(effect, Trend) and effect.over == "layers"):
        needed = 3 if isinstance(effect, Shape) else 2
    if not needed and of.layer is None:
        return None
    has = layers_with_numbers(of.measure, of.metric, top=run.encoder.num_hidden_layers)
    words = f"only the layers {has.start} to {has.stop - 1}" if len(has) > 1 else f"only layer {has.start}"
    read = f"of {of.measure} {of.metric}, which is measured in {words if has else 'no layer'} of {{}}"
    if of.layer is not None and of.layer not in has:
        return f"it reads layer {of.layer} {read}"
    return f"it needs {several(needed, 'layer')} {read}" if len(has) < needed else None


def _curve_lack(of: Quantity, settings: Measure, run: RunSettings) -> str | None:
    """Return why a run never has the learning curve of a quantity, as `_lack` does; None if it has it.

    Args:
        settings: the measure, or `validation` for what the log says.
    """
    named, steps = f"{of.measure} {of.metric}", [run.training.max_steps]
    if of.measure in LOGGED:
        steps, remedy = run.training.validated_steps if of.measure == "learning" else steps, ""
    elif settings.checkpoints == "all":
        steps, remedy = run.training.kept_steps, ""
    else:
        remedy = "; set checkpoints: all in the measure"
    if len(steps) < FEWEST_STEPS:
        number = several(len(steps), "step")
        return f"{named} is measured at {number} of {{}}, but a learning curve needs {FEWEST_STEPS}{remedy}"
    if of.steps != "last" and steps[0] > round(of.until * steps[-1], 6):
        return (
            f"{named} is first measured at step {steps[0]:,} of {{}}, after the {100 * of.until:g}% of training "
            "(until) at which the effect reads it"
        )
    return None


def not_run(
    files: Sequence[Claims],
    *,
    arms: Collection[str],
    measures: Collection[str],
    groups: Mapping[str, Sequence[str]],
    across_seeds: bool = True,
) -> Iterator[str]:
    """Yield a sentence for each reason why an experiment does not run some of its claims.

    Args:
        arms: names of the experiment's arms.
        groups: groups by kind of measure, as from `groups_of_measures`.
        across_seeds: whether `run_distance` compares arms at different seeds. A claim without its own spec that
            needs this has an error instead (`problems`).
    """
    measured = {*measures, *(LOGGED if "validation" in measures else ())}
    elsewhere: dict[str, list[str]] = {}
    for claim in (claim for file in files for claim in file.claims):
        lacking = [name for name in claim.needs.measures if name not in measured]
        if claim.needs.spec and (lacking or not set(claim.needs.arms) <= set(arms)):
            elsewhere.setdefault(claim.needs.spec, []).append(claim.name)
        elif lacking:
            yield f"claim {claim.name} is not run: it needs the measure {listed(lacking, 'and')}"
        else:
            for measure, missing in _groups_lacking(claim, groups).items():
                remedy = "add it" if len(missing) == 1 else "add them"
                words = listed(missing, "or")
                yield f"claim {claim.name} is not run: {measure} does not measure {words}; {remedy}"
            effects = (*claim.parts.values(), *claim.provided.values())
            if not across_seeds and any(isinstance(effect, Apart) for effect in effects):
                yield f"claim {claim.name} is not run: it needs run_distance with across_seeds: true"
    for spec, names in elsewhere.items():
        yield f"claims that are not run here, but in {spec}: {', '.join(names)}"


def _groups_lacking(claim: Claim, groups: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the groups that a claim reads and that no measure makes, by the kind of the measure. A claim
    without its own spec has an error instead (`group_faults`)."""
    lacking: dict[str, list[str]] = {}
    for effect in (*claim.parts.values(), *claim.provided.values()):
        for of in effect.quantities():
            names = [group for _, group in _not_made(of, groups[of.measure])] if of.measure in groups else []
            if names:
                lacking.setdefault(of.measure, []).extend(names)
    return {measure: list(dict.fromkeys(names)) for measure, names in lacking.items()}


def planned(
    files: Sequence[Claims],
    before: Sequence[dict[str, Any]],
    *,
    runs_started: int,
    at: str,
    joined: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return a plan's records of its files of claims, with the hashes that each had when the first run
    started.

    A file that changes before the first run gets new hashes. Later the old hashes are kept, so that a change
    is visible. A file that is added later records how many runs had started by then. If the spec later adds
    runs that started before the file was added, such as those of earlier seeds, this number grows by them. A
    file that the spec no longer names keeps its record, because fewer claims of a family are judged less
    strictly.

    Args:
        files: the files as they are now.
        before: records of the previous plan.
        joined: start times of those started runs that the previous plan did not have.
    """
    planned_before = {entry["name"]: entry for entry in before}
    entries = []
    for file in files:
        entry = planned_before.get(file.name)
        if entry is None or (not runs_started and entry["planned_sha256"] != file.sha256):
            entry = {
                "name": file.name,
                "planned": at,
                "planned_sha256": file.sha256,
                "planned_claims": file.digests,
                "runs_before": runs_started,
            }
        else:
            counted = entry["runs_before"] or 0
            earlier = sum(started < entry["planned"] for started in joined)  # some may be counted already
            entry = entry | {"runs_before": max(counted, min(counted + earlier, runs_started))}
        entries.append(entry | {"sha256": file.sha256})
    names = {file.name for file in files}
    return entries + [entry for entry in before if runs_started and entry["name"] not in names]


def keep(files: Sequence[Claims], folder: Path) -> None:
    """Copy files of claims into the folder of an experiment's results, from where they are judged.

    Raises:
        FilesError: the disk is full, or the place cannot be written to.
    """
    for file in files:
        write_whole(folder / FOLDER / f"{file.name}.yaml", file.content)


LATER_KEYS = ("provided", "or_groups", "in_each_seed", "seeds")
"""Keys that were added later. If they are empty, they do not enter the hash of a claim, so that old claims
keep theirs."""


def _digest(claim: Claim) -> str:
    written = claim.model_dump(mode="json")
    del written["needs"]["spec"]  # a hint where to find the arms, which does not change the meaning
    meaning = _without_empty(written)
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


def _without_empty(value: Any) -> Any:
    """Return the value without empty LATER_KEYS, at every depth."""
    if isinstance(value, dict):
        return {key: _without_empty(part) for key, part in value.items() if part or key not in LATER_KEYS}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value


ArmsOf = Callable[[str], Collection[str] | None]


class Mention(NamedTuple):
    """Place where a claim names an arm."""

    at: KeyPath
    subject: str
    """Part of the claim that names the arm, as errors call it."""
    arm: str
    about: Literal["key", "value"] = "value"


def arm_faults(claims: Any, *, arms: Collection[str] | None, spec: str, arms_of: ArmsOf) -> Iterator[Fault]:
    """Yield a fault for each place where a claim names an arm that its experiment does not have.

    Args:
        claims: the claims as they are written, not validated.
        arms: arms of the spec that names the file; None if there is no such spec, or if its arms are unknown.
        spec: file name of that spec.
        arms_of: returns the arms of another spec, by its file name; None if they are unknown, which is
            reported elsewhere.
    """
    for at, claim, needs in written_claims(claims):
        elsewhere = (needs or {}).get("spec") or None
        if elsewhere is not None and not isinstance(elsewhere, str):
            continue
        allowed = arms if elsewhere is None else arms_of(elsewhere)
        if allowed is None:
            continue
        for mention in _arms_named(claim, at):
            if mention.arm not in allowed:
                sentence = _sentence(mention, allowed, spec=spec, elsewhere=elsewhere)
                yield Fault(mention.at, sentence, mention.about)


def _arms_named(claim: Mapping[str, Any], at: KeyPath) -> Iterator[Mention]:
    for written in written_effects(claim, at):
        if written.effect is None:
            continue
        for keys, arm in written.effect.arms_at():
            is_key = len(keys) > 1 and keys[-1] == arm
            yield Mention((*written.at, *keys), written.name, arm, "key" if is_key else "value")
        for keys, of in written.effect.quantities_at():
            if of.measure == "run_distance":  # this measure's groups are arms
                for place, group in enumerate(of.groups):
                    if "*" not in group:
                        yield Mention((*written.at, *keys, "groups", place), written.name, group)


def _sentence(mention: Mention, allowed: Collection[str], *, spec: str, elsewhere: str | None) -> str:
    named = f"{mention.subject} names the arm {shown(mention.arm)}"
    few = f"; its arms are {listed(list(allowed), 'and')}" if len(allowed) <= FEW else ""
    hint = guess(mention.arm, allowed) or few
    if elsewhere is not None:
        return f"{named}, but claims.needs.spec is {elsewhere}, which does not have it{hint}"
    other = "if another experiment has this arm, name its spec in claims.needs.spec"
    return f"{named}, but {spec} does not have it{hint} ({other})"


MEASURE: TypeAdapter[Any] = TypeAdapter(Measure)


def groups_of_measures(measures: Any, data_kinds: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the groups that each measure of a spec can make, by the measure's kind. Groups of tokens and of
    parts of a task are given by the beginnings of their names. Measures whose groups are unknown before the
    runs are left out.

    Args:
        measures: measures of the spec as they are written, not validated.
        data_kinds: kinds of text that the spec's arms read.
    """
    by_kind: dict[str, tuple[str, ...]] = {}
    for _, settings in _valid(measures):
        if (groups := groups_made(settings, data_kinds)) is not None:
            by_kind[settings.kind] = groups
    return by_kind


def _valid(measures: Any) -> Iterator[tuple[int, Measure]]:
    """Yield the place and the settings of each valid measure of a spec; the others are reported elsewhere."""
    for index, written in enumerate(measures if isinstance(measures, list) else ()):
        with suppress(ValidationError):
            yield index, MEASURE.validate_python(written)


def group_faults(claims: Any, groups: Mapping[str, Sequence[str]], *, spec: str) -> Iterator[Fault]:
    """Yield a fault for each place where a claim names a group that the measures cannot make.

    Args:
        claims: the claims as they are written, not validated.
        groups: groups by kind of measure, as from `groups_of_measures`.
    """
    for at, claim, needs in written_claims(claims):
        if needs is None or needs.get("spec"):
            continue
        for written in written_effects(claim, at):
            for keys, of in written.effect.quantities_at() if written.effect else ():
                possible = groups.get(of.measure)
                if possible is not None:
                    for place, sentence in _of_quantity(of, possible, spec):
                        yield Fault((*written.at, *keys, *place), f"{written.name}: {sentence}")


def _of_quantity(of: Quantity, possible: Sequence[str], spec: str) -> Iterator[tuple[tuple[str, int], str]]:
    for place, group in _not_made(of, possible):
        others = f"only {listed(possible, 'and')}" if possible else "without groups"
        never = f"{of.measure} of {spec} never makes the group {shown(group)} with these settings"
        yield ("groups", place), f"{never}, {others}{guess(group, possible)}"


def _not_made(of: Quantity, possible: Sequence[str]) -> list[tuple[int, str]]:
    """Return the place and the name of each group of a quantity that its measure cannot make; none if it can
    make all of `or_groups`."""
    if of.or_groups and all(_is_made(group, possible) for group in of.or_groups):
        return []
    return [(place, group) for place, group in enumerate(of.groups) if not _is_made(group, possible)]


def _is_made(group: str, possible: Sequence[str]) -> bool:
    """Return whether a measure can make a group: a possible group, a part of one, or a pattern with a
    star."""
    return (
        "*" in group
        or group in possible
        or group.partition("@")[0].partition("/")[0].partition(" ")[0] in possible
    )
