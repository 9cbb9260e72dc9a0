"""Comparison of two experiments, or of one before and after a change, as plain data: claims, results and
settings.

Both sides are judged now, from their tables, by the same rule; their pages may have been judged by an older
rule. Differences are between two means over seeds, of the same seeds or of others.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from ablations.errors import ResultsError, SpecError
from ablations.spec import load
from ablations.spec.changes import changed_settings
from ablations.spec.contrasts import Claim, Effect
from reports import folder as experiment_folder
from reports.claims.entries import ClaimEntry, PartEntry
from reports.claims.judge import finite, judge_claims
from reports.folder import ReportedExperiment
from reports.statistics.seed_tests import t_interval
from reports.statistics.summaries import ROUNDING, gain, validation_losses

CONFIDENCE = 0.95
"""Confidence of the intervals of differences."""

Seeds = Mapping[int, float]
"""Value of each seed."""


def difference(before: Seeds, after: Seeds) -> dict[str, Any] | None:
    """Return the mean of `after` minus the mean of `before`, with its 95% t interval; None if a side
    has no finite number.

    Keys are `mean, low, high, confidence, paired`. If both sides have the same seeds, the interval is that of
    the differences within seeds. Otherwise it is Welch's for independent seeds, which is wider than needed if
    some seed has a run on both sides. There is no interval if a side has one seed, or if there is no spread.
    A difference below the rounding of the compared numbers is 0.
    """
    paired = before.keys() == after.keys()
    if not before or not after:
        return None
    if paired:
        mean, low, high = t_interval([after[seed] - before[seed] for seed in before], confidence=CONFIDENCE)
    else:
        mean, low, high = _welch(list(before.values()), list(after.values()))
    if not math.isfinite(mean):
        return None
    # Equal numbers that were computed in another order may differ by rounding.
    rounding = ROUNDING * max(map(abs, (*before.values(), *after.values())))
    ends = {"low": low, "high": high} if high - low > rounding else {"low": None, "high": None}
    return {"mean": mean if abs(mean) > rounding else 0.0, **ends, "confidence": CONFIDENCE, "paired": paired}


def _welch(before: list[float], after: list[float]) -> tuple[float, float, float]:
    """Return the mean of `after` minus that of `before`, with its interval (Welch's) for independent seeds; the
    interval is NaN if a side has fewer than two seeds."""
    mean = float(np.mean(after) - np.mean(before))
    if min(len(before), len(after)) < 2 or not math.isfinite(mean):
        return mean, math.nan, math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # raised if the seeds of a side agree
        interval = stats.ttest_ind(after, before, equal_var=False).confidence_interval(CONFIDENCE)
    return mean, float(interval.low), float(interval.high)


FORMAT = 1
"""Version of the output of `ablate diff --json`."""


def require_place(place: Path) -> None:
    """Raise a ResultsError for a missing file or folder that does not have the name of a spec."""
    if not place.exists() and place.suffix not in (".yaml", ".yml"):
        raise ResultsError(
            f"{place} does not exist; name a folder of results, such as out/NAME, or a spec, such as NAME.yaml."
        )


def folder_of(place: Path, *, out: Path, overrides: Sequence[str] = ()) -> Path:
    """Return the folder of an experiment's results: `place` itself, or the folder in `out` for the spec at
    `place`.

    Args:
        overrides: settings that the command line sets over the spec.

    Raises:
        SpecError: `place` is neither a folder nor a good spec.
        ResultsError: there is no such folder, no experiment was planned there, or nothing of it is measured.
    """
    require_place(place)
    folder = place if place.is_dir() else out / load.load(place, overrides=overrides).name
    if not (folder / "plan.json").is_file():
        if folder == place:
            raise ResultsError(
                f"{place} has no plan.json, so it is not a folder of results; name a folder that `ablate run` "
                "wrote, such as out/NAME, or a spec."
            )
        raise ResultsError(
            f"{place} has no results in {folder}; start `ablate run {place}`, or name another "
            "output root with --out."
        )
    if not (folder / "results.parquet").is_file() and experiment_folder.is_published(folder):
        raise ResultsError(f"{folder / 'results.parquet'} does not exist; {experiment_folder.TAKE_AGAIN}.")
    if not (folder / "results.parquet").is_file():
        raise ResultsError(
            f"{folder / 'results.parquet'} does not exist, so no run is measured yet; start `ablate "
            "run` with the spec."
        )
    return folder


def compare(before: Path, after: Path, *, out: Path = Path("out")) -> dict[str, Any]:
    """Return the comparison of two experiments, each a folder of results or a spec whose results are in `out`;
    nothing is written.

    Numbers that are not finite, and those that one side lacks, are None. Folders of results may be from somebody
    else, so they may name only plugins that a spec of the user names too.

    Raises:
        SpecError: a spec is not good.
        ResultsError: a file is missing or damaged.
    """
    folders: list[Path] = []
    loaded: list[list[load.Plugin]] = []
    for place in (before, after):
        load.forget_plugins()
        folders.append(folder_of(place, out=out))
        loaded.append(load.loaded_plugins())
    # If both sides have a plugin of one name, the side's is the last and counts.
    old, new = _side(folders[0], [*loaded[1], *loaded[0]]), _side(folders[1], [*loaded[0], *loaded[1]])
    runs = [{run.run_id for run in side.experiment.plan.runs} for side in (old, new)]
    files = dict.fromkeys((*old.files, *new.files))
    return {
        "format": FORMAT,
        "before": _described(old),
        "after": _described(new),
        "same_runs": len(runs[0] & runs[1]),
        "files": [{"name": name, "before": old.files.get(name), "after": new.files.get(name)} for name in files],
        "claims": _claims(old, new),
        "results": _results(old.experiment, new.experiment),
        "settings": _settings(old, new),
    }


class ComparedExperiment(NamedTuple):
    """One experiment of the comparison."""

    folder: Path
    experiment: ReportedExperiment
    files: dict[str, str]
    """SHA-256 of each file of claims."""
    written: dict[str, Claim]
    """Claims by name, as their files have them."""
    entries: dict[str, ClaimEntry]
    """Entries of claims with their verdicts, by name."""
    trusted: Sequence[load.Plugin]
    """Plugins that specs of the user name."""


def _side(folder: Path, trusted: Sequence[load.Plugin]) -> ComparedExperiment:
    load.forget_plugins(but=trusted)
    experiment = experiment_folder.read(folder)
    for run in experiment.damaged:
        raise ResultsError(f"{run.folder}: {run.unreadable}")
    judged = judge_claims(experiment)
    for entry in judged.entries:
        if entry.says is None:  # a file that cannot be read has an entry without a claim
            raise ResultsError(f"{folder}: claims of {entry.name}: {entry.rule}")
    files = {file["name"]: file["sha256"] for file in judged.files}
    entries = {entry.name: entry for entry in judged.entries}
    return ComparedExperiment(folder, experiment, files, judged.claims, entries, trusted)


# Claims ----------------------------------------------------------------------------------------------


def _claims(old: ComparedExperiment, new: ComparedExperiment) -> list[dict[str, Any]]:
    """Return every claim of either side: first in the order of `old`, then those that only `new` has."""
    rows = []
    for name in dict.fromkeys((*old.entries, *new.entries)):
        before, after = old.entries.get(name), new.entries.get(name)
        written_before, written_after = old.written.get(name), new.written.get(name)
        either = after or before
        assert either is not None  # the name is that of an entry
        changed = ["verdict"] if before and after and before.verdict != after.verdict else []
        rows.append(
            {
                "name": name,
                "number": either.number,
                "says": either.says,
                "changed": changed + _rewritten(written_before, written_after),
                "before": _judged(before, written_before),
                "after": _judged(after, written_after),
                "parts": list(_parts(before, after, written_before, written_after)),
            }
        )
    return rows


def _rewritten(before: Claim | None, after: Claim | None) -> list[str]:
    """Return the keys of the claim whose values differ: `smallest_effect`, `says`, ..."""
    if before is None or after is None:
        return []
    return [name for name in Claim.model_fields if getattr(before, name) != getattr(after, name)]


def _judged(entry: ClaimEntry | None, claim: Claim | None) -> dict[str, Any] | None:
    """Return the judged entry of a claim. The smallest effect is that of the claim; some parts have their own."""
    if entry is None or claim is None:
        return None
    judged = {name: getattr(entry, name) for name in ("file", "verdict", "rule", "deciding")}
    return judged | {"smallest_effect": claim.smallest_effect}


def _parts(
    before: ClaimEntry | None,
    after: ClaimEntry | None,
    written_before: Claim | None,
    written_after: Claim | None,
) -> Iterator[dict[str, Any]]:
    """Yield the effects of a claim by name. The difference is None if the two sides compare different things."""
    sides = [{part.name: part for part in entry.parts} if entry else {} for entry in (before, after)]
    for name in dict.fromkeys((*sides[0], *sides[1])):
        old, new = (side.get(name) for side in sides)
        comparable = _same_effect(name, written_before, written_after)
        yield {
            "name": name,
            "unit": next(part.unit for part in (new, old) if part),
            "before": _effect(old),
            "after": _effect(new),
            "difference": difference(_by_seed(old), _by_seed(new)) if old and new and comparable else None,
        }


def _same_effect(part: str, before: Claim | None, after: Claim | None) -> bool:
    """Return whether both claims define the numbers of a part, or of a condition, in the same way."""
    if before is None or after is None:
        return False
    old, new = (_defined(part, claim.provided | claim.parts) for claim in (before, after))
    judged_by = {"smallest_effect", "unit", "in_each_seed"}  # which change no number
    return bool(old and new and old.model_dump(exclude=judged_by) == new.model_dump(exclude=judged_by))


def _defined(part: str, effects: Mapping[str, Effect]) -> Effect | None:
    """Return the effect of a part. The name of a part is that of its effect, or begins with it and a dash."""
    fitting = [name for name in effects if f"{part}-".startswith(f"{name}-")]
    return effects[max(fitting, key=len)] if fitting else None


def _effect(part: PartEntry | None) -> dict[str, Any] | None:
    if part is None:
        return None
    numbers = ("effect", "low", "high", "confidence", "smallest_effect")
    return {"verdict": part.verdict} | {name: finite(getattr(part, name)) for name in numbers} | {"n": part.n}


def _by_seed(part: PartEntry) -> Seeds:
    return dict(zip(part.seeds, part.linear_form, strict=True))


# Results and settings --------------------------------------------------------------------------------


def _results(old: ReportedExperiment, new: ReportedExperiment) -> list[dict[str, Any]]:
    """Return validation loss and gain of each arm: first in the order of `old`, then arms that only `new` has."""
    sides = _validation(old), _validation(new)
    return [
        {
            "arm": arm,
            "result": name,
            "unit": "nats",
            "before": _mean(sides[0].get((arm, name), {})),
            "after": _mean(sides[1].get((arm, name), {})),
            "difference": difference(sides[0].get((arm, name), {}), sides[1].get((arm, name), {})),
        }
        for arm in dict.fromkeys((*old.plan.arms, *new.plan.arms))
        for name in ("loss", "gain")
        if any((arm, name) in side for side in sides)
    ]


def _validation(experiment: ReportedExperiment) -> dict[tuple[str, str], dict[int, float]]:
    """Return validation loss and gain after the last step, as a number for each seed, by arm and name."""
    table = experiment.table
    by_arm: dict[tuple[str, str], dict[int, float]] = {}
    for name, rows in (("loss", validation_losses(table)), ("gain", gain(table))):
        rows = rows[rows["value"].notna()]
        for arm, seed, value in zip(rows["arm"], rows["seed"], rows["value"], strict=True):
            by_arm.setdefault((arm, name), {})[int(seed)] = float(value)
    return by_arm


def _mean(values: Seeds) -> dict[str, Any] | None:
    if not values:
        return None
    mean, low, high = t_interval(list(values.values()), confidence=CONFIDENCE)
    numbers = {"mean": finite(mean), "low": finite(low), "high": finite(high)}
    return numbers | {"confidence": CONFIDENCE, "n": len(values)}


def _settings(before: ComparedExperiment, after: ComparedExperiment) -> dict[str, Any]:
    """Return the differences between the specs, or the reason why they are not compared: one is missing, is no
    good spec today, or is the file of `ablate analyse`."""
    for side in (before, after):
        if side.experiment.runs and all(run.plan.analysed for run in side.experiment.runs):
            reason = (
                f"{side.folder} is of `ablate analyse`, which has no spec; to compare models, give their folders "
                "to one `ablate analyse`"
            )
            return {"not_compared": reason, "changes": []}
    try:
        specs = [
            load.load(side.folder / "spec.yaml", beside="foreign", trusted=side.trusted)
            for side in (before, after)
        ]
    except SpecError as error:
        return {"not_compared": str(error).partition("\n")[0], "changes": []}
    return {"not_compared": None, "changes": [change._asdict() for change in changed_settings(*specs)]}


def _described(side: ComparedExperiment) -> dict[str, Any]:
    """Return the facts about an experiment: its plan, text, commits, runs and seeds."""
    plan = side.experiment.plan
    return {
        "folder": str(side.folder),
        "experiment": plan.experiment,
        "planned": plan.created,
        "spec_sha256": plan.spec_sha256,
        "text_sha256": plan.data.content_sha256,
        "commits": sorted({run.provenance.commit for run in side.experiment.runs if run.provenance.commit}),
        "runs": len({run.run_id for run in plan.runs}),
        "seeds": sorted({run.seed for run in plan.runs}),
    }
