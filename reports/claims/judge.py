"""Judging of the claims of an experiment: their entries for claims.json, the page and the command line."""

import json
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import to_json

from ablations.errors import SpecError, SpecProblems
from ablations.measures.settings import AFTER_FINAL_NORM
from ablations.results import write_whole
from ablations.runs.records import PlannedClaims
from ablations.spec import claims as claims_file
from ablations.spec.claims import Claims
from ablations.spec.contrasts import Claim
from ablations.tasks.datasets import load_kept_tasks
from ablations.wording import listed, several
from reports.claims.entries import ClaimEntry, PartEntry
from reports.claims.outcomes import MeasuredClaim, Outcome, outcomes, outcomes_at_looks, smallest_effects
from reports.claims.select import SeedTable
from reports.claims.verdicts import ALPHA, Judgement, PartVerdict, judge, ways_to_fail
from reports.claims.words import claim_rule, part_rule
from reports.folder import ReportedExperiment
from reports.statistics.seed_tests import SeedEffects

FORMAT = 2
"""Version of claims.json."""


class Judged(NamedTuple):
    """Experiment with its claims loaded and judged; a command does this once."""

    experiment: ReportedExperiment
    files: list[dict[str, Any]]
    """Files of claims as plain data: the hash of each when it was planned and now, and its changes since."""
    claims: dict[str, Claim]
    """Claims by name, as their files have them."""
    outcomes: dict[str, Outcome]
    """Verdicts by name of the claim."""
    entries: list[ClaimEntry]
    """Every claim with its verdict, in the order of the claims' numbers; claims without a number come last. A
    missing or wrong file is one entry that says so."""


def judge_claims(experiment: ReportedExperiment) -> Judged:
    """Load the files of claims that the plan names, and judge every claim on the experiment's table."""
    files = list(_files(experiment))
    every = [claim for _, loaded in files if isinstance(loaded, Claims) for claim in loaded.claims]
    claims = {claim.name: claim for claim in every}
    needed = experiment.table if claims else experiment.table[:0]  # a table may be large
    ends = {run.arm: run.max_steps for run in experiment.plan.runs if run.max_steps is not None}
    rows = SeedTable(needed, copied_arms=experiment.plan.copied_arms, ends=ends)
    context: dict[str, Any] = {"arms": experiment.plan.arms, "measures": experiment.measures}

    failed = [(run.plan.arm, run.plan.seed) for run in experiment.runs if run.state.state == "failed"]

    def judged_on(rows: SeedTable) -> dict[str, Outcome]:
        if (looks := experiment.plan.looks) is not None:
            return outcomes_at_looks(claims.values(), rows, looks, failed=failed, **context)
        return outcomes(claims.values(), rows, **context)

    by_name = judged_on(rows)
    others = {name: read(rows) for name, read in READINGS.items()}
    readings = {name: _entries(files, judged_on(other)) for name, other in others.items() if other is not None}
    entries = [
        replace(_with_seeds(entry, experiment, rows), readings=_readings_of(number, entry, readings))
        for number, entry in enumerate(_entries(files, by_name))
    ]
    described = [_described(*file) for file in files] + list(_removed(experiment))
    return Judged(experiment, described, claims, by_name, entries)


def _after_final_norm(rows: SeedTable) -> SeedTable | None:
    """Return the table with the rows of a top layer after the final norm, where it was measured there too, in
    place of those before it. Returns None if it was measured there nowhere."""
    if not any(cell.group == AFTER_FINAL_NORM for of_key in rows.cells.values() for cell in of_key):
        return None
    cells = {}
    for key, of_key in rows.cells.items():
        after = {cell[1:5]: cell._replace(group=None) for cell in of_key if cell.group == AFTER_FINAL_NORM}
        cells[key] = [after.get(cell[1:5], cell) if cell.group is None else cell for cell in of_key]
    return rows.with_cells(cells)


def _by_debiased_cka(rows: SeedTable) -> SeedTable | None:
    """Return the table with rows of `debiased_cka` under the name of `pwcca`; None if it has none."""
    if not any(metric == "debiased_cka" for *_, metric in rows.cells):
        return None
    return rows.with_cells(
        {
            key: rows.cells.get((*key[:3], "debiased_cka"), []) if key[3] == "pwcca" else cells
            for key, cells in rows.cells.items()
        }
    )


READINGS: dict[str, Callable[[SeedTable], SeedTable | None]] = {
    "after the final norm": _after_final_norm,
    "by CKA": _by_debiased_cka,
}
"""Other rows of the same runs on which claims are judged again, if there are any. Papers seldom say whether they
read the top layer before or after a final norm, and two indices of similarity need not agree."""


def _readings_of(
    number: int, entry: ClaimEntry, readings: Mapping[str, Sequence[ClaimEntry]]
) -> dict[str, ClaimEntry]:
    """Return the entries of a claim on other rows, as far as these change its numbers.

    Args:
        number: place of the claim among the entries.
    """
    others = {name: entries[number] for name, entries in readings.items()}
    return {
        name: _of_reading(other)
        for name, other in others.items()
        if other.verdict != "not run" and finite(other.parts) != finite(entry.parts)
    }


def _of_reading(entry: ClaimEntry) -> ClaimEntry:
    """Return the entry of another reading without the fields that the claim's main entry has too. Of its parts
    only the deciding one is kept."""
    parts = tuple(part for part in entry.parts if part.name.startswith(entry.deciding or ""))
    return replace(entry, says=None, source="", published="", because="", needs=None, parts=parts, beside=())


def _entries(
    files: Sequence[tuple[PlannedClaims, Claims | str]],
    by_name: Mapping[str, Outcome],
) -> list[ClaimEntry]:
    """Return the entries of all claims."""
    entries = []
    for file, loaded in files:
        if isinstance(loaded, str):
            entries.append(ClaimEntry(file=file.name, name=file.name, verdict="not run", rule=loaded))
            continue
        for claim in loaded.claims:
            changed = _change(claim.name, loaded, file)
            entries.append(_entry(by_name[claim.name], file=file.name, changed=changed))
    return sorted(entries, key=_number)


def _with_seeds(entry: ClaimEntry, experiment: ReportedExperiment, rows: SeedTable) -> ClaimEntry:
    """Return the entry with the number of its planned seeds, and of those that have ended, and with the arms that
    only have failed runs if it is not run. It is left as it is if seeds are added until claims are decided."""
    if experiment.plan.looks is not None or entry.needs is None:
        return entry
    planned, trained, failed = [], [], []
    for arm in entry.needs.arms:
        runs = [run for run in experiment.runs if run.plan.arm == arm]
        ended = [run for run in runs if run.state.state == "done" and not run.plan.not_measured]
        failed += [arm] if runs and all(run.state.state == "failed" for run in runs) else []
        planned.append(len(runs))
        trained.append(sum(run.plan.seed in rows.seeds.get(arm, ()) for run in ended))
    why = f"; every run of {listed(failed, 'and')} failed" if failed and entry.verdict == "not run" else ""
    return replace(entry, rule=entry.rule + why, planned_seeds=min(planned), ended_seeds=min(trained))


def _number(entry: ClaimEntry) -> tuple[float, str]:
    number = str(entry.number or "")
    digits = number.rstrip(string.ascii_lowercase)
    return (float(digits) if digits else float("inf"), number)


def _described(file: PlannedClaims, loaded: Claims | str) -> dict[str, Any]:
    """Return a file of claims as plain data."""
    digests = loaded.digests if isinstance(loaded, Claims) else {}
    sha256 = loaded.sha256 if isinstance(loaded, Claims) else None
    return {
        "name": file.name,
        "planned": file.planned,
        "planned_sha256": file.planned_sha256,
        "runs_before": file.runs_before,
        "sha256": sha256,
        "changed": bool(file.planned_sha256 and sha256 and sha256 != file.planned_sha256),
        "changed_claims": [name for name in digests if _change(name, loaded, file) == "changed"],
        "added_claims": [name for name in digests if _change(name, loaded, file) == "added"],
        "removed_claims": [
            name for name in file.planned_claims if isinstance(loaded, Claims) and name not in digests
        ],
    }


def _removed(experiment: ReportedExperiment) -> Iterator[dict[str, Any]]:
    """Yield each file of claims that was planned and that the spec no longer names, as plain data."""
    for file in experiment.plan.claim_files:
        if file.name not in experiment.plan.claims:
            removed = {"changed": True, "removed_claims": list(file.planned_claims)}
            yield _described(file, "the spec no longer names this file") | removed


def claim_file_changes(file: Mapping[str, Any]) -> list[str]:
    """Return sentences on when a file of claims was written and changed, as far as a reader must know."""
    sentences = []
    if file["runs_before"]:
        sentences.append(
            f"The claims in {file['name']} were first planned after {several(file['runs_before'], 'run')} had "
            "started, so they predict nothing about these."
        )
    if file["changed"]:
        parts = [
            f"{change} {', '.join(file[f'{change}_claims'])}"
            for change in ("changed", "added", "removed")
            if file[f"{change}_claims"]
        ]
        changes = "; ".join(parts) or "in words only"
        sentences.append(f"The claims in {file['name']} changed after they were planned: {changes}.")
    return sentences


def claim_notices(judged: Judged) -> list[dict[str, str]]:
    """Return notices of the page on claims that changed after runs had started, or whose arms or measures
    were removed or changed after a look at the claims."""
    sentences = [sentence for file in judged.files for sentence in claim_file_changes(file)]
    plan = judged.experiment.plan
    if plan.looks is not None:
        taken, measures = plan.looks.taken, judged.experiment.measures
        removed = {
            "arms": dict.fromkeys(arm for look in taken for arm in look.arms if arm not in plan.arms),
            "measures": dict.fromkeys(kind for look in taken for kind in look.measures if kind not in measures),
        }
        sentences += [
            f"{noun} removed from the spec after a look at the claims: {', '.join(names)}; "
            + _without(judged, noun, names)
            for noun, names in removed.items()
            if names
        ]
        runs = {(run.arm, run.run_id) for run in plan.runs}
        first_runs = [item for look in taken for item in look.first_runs.items()]
        changed = dict.fromkeys(arm for arm, run in first_runs if arm in plan.arms and (arm, run) not in runs)
        if changed:
            sentences.append(
                f"arms changed after a look at the claims: {', '.join(changed)}; their claims were judged with "
                "other runs before, so wrong verdicts are more frequent than the page says"
            )
    return [{"kind": "claims", "text": sentence} for sentence in sentences]


def _without(judged: Judged, noun: str, removed: Collection[str]) -> str:
    """Return what the lack of arms or measures, which were removed from the spec, means for the claims."""
    needed = {name for claim in judged.claims.values() for name in getattr(claim.needs, noun)}
    if names := [name for name in removed if name in needed]:
        claims, they = f"claims that need {listed(names, 'and')}", "are no longer judged, so"
    elif any(file["changed_claims"] or file["removed_claims"] or not file["sha256"] for file in judged.files):
        claims, they = "claims that have changed or gone since", "may have needed them; if so,"
    else:
        return "no claim needs them"
    return f"{claims} {they} other claims of their families are judged less strictly"


def write(judged: Judged, folder: Path) -> dict[str, Any]:
    """Write the verdicts into claims.json in the experiment's folder, and return its content."""
    content = finite(
        {
            "format": FORMAT,
            "experiment": judged.experiment.plan.experiment,
            "alpha": ALPHA,
            "files": judged.files,
            "claims": judged.entries,
        }
    )
    write_whole(
        folder / "claims.json", json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1).encode()
    )
    assert isinstance(content, dict)
    return content


def as_expected(entries: Iterable[ClaimEntry]) -> bool:
    """Return whether every judged claim came out as its file expects; False if no claim was judged.

    Claims that are not run, not testable here or have too few seeds are not judged. A claim with `expect:
    open` fits any verdict.
    """
    answers = [entry.as_expected for entry in entries if entry.verdict not in NOT_JUDGED]
    return bool(answers) and all(answer is not False for answer in answers)


NOT_JUDGED = ("not run", "not testable here", "insufficient evidence")
"""Verdicts that decide nothing about a claim."""


def _files(experiment: ReportedExperiment) -> Iterator[tuple[PlannedClaims, Claims | str]]:
    """Yield each file that the plan names, loaded from the experiment's folder, or why it cannot be loaded."""
    planned = {file.name: file for file in experiment.plan.claim_files}
    for name in experiment.plan.claims:
        file = planned.get(name, PlannedClaims(name=name))
        if not claims_file.NAME.fullmatch(name):
            yield file, "this is not the name of a file of claims"
            continue
        path = experiment.folder / claims_file.FOLDER / f"{name}.yaml" if experiment.folder else None
        if path is None or not path.is_file():
            yield (
                file,
                "the file of claims is not in the experiment's folder; `ablate claims` on the spec puts it there, "
                "or, if these results are published ones, take it again from where they were published",
            )
            continue
        try:
            load_kept_tasks(path.parent.parent)  # their names are groups that claims read
            yield file, claims_file.load(path)
        except SpecProblems as error:
            yield file, str(error.problems[0])
        except SpecError as error:  # the copy of the spec, which names the tasks, cannot be read
            yield file, str(error).removesuffix(".")


def _change(name: str, loaded: Claims | str, file: PlannedClaims) -> str | None:
    """Return `changed` or `added` if a claim was changed or added after planning, else None."""
    if isinstance(loaded, str) or not file.planned_claims:
        return None
    if name not in file.planned_claims:
        return "added"
    return None if file.planned_claims[name] == loaded.digests[name] else "changed"


WRITTEN = (
    "number",
    "name",
    "says",
    "source",
    "published",
    "needs",
    "family",
    "expect",
    "because",
    "smallest_effect",
)
"""Keys of a claim that its entry has too."""

OUTCOME = ("effect", "low", "high", "confidence", "smallest_effect", "smallest_seen")
"""Numbers of the deciding part, which stand for the whole claim."""


def _entry(outcome: Outcome, *, file: str, changed: str | None) -> ClaimEntry:
    item, judgement, level = outcome.item, outcome.judgement, outcome.level
    claim = item.claim
    parts = judgement.parts if judgement else {}
    if judgement is None and item.parts:
        parts = judge(item.parts, smallest_effects(item, item.parts), level=level).parts
    smallest = smallest_effects(item, item.beside)
    beside = {name: judge({name: part}, smallest, level=ALPHA).parts[name] for name, part in item.beside.items()}
    ways, at_look = ways_to_fail(parts), outcome.look.level if outcome.look else None
    entry = ClaimEntry(
        file=file,
        **{name: getattr(claim, name) for name in WRITTEN},
        changed=changed,
        level=level,
        look=outcome.look,
        verdict="not run",
        rule="; ".join(item.missing),
        parts=tuple(
            _part(name, part, item.parts[name], ways=ways, at_look=at_look) for name, part in parts.items()
        ),
        beside=tuple(_part(name, part, item.beside[name], ways=1, decides=False) for name, part in beside.items()),
    )
    return entry if judgement is None else _with_verdict(entry, item, judgement)


def _with_verdict(entry: ClaimEntry, item: MeasuredClaim, judgement: Judgement) -> ClaimEntry:
    """Return the entry of a claim that is judged."""
    shown = _shown_part(judgement)
    expect = item.claim.expect
    open_ended = judgement.verdict in NOT_JUDGED or expect == "open"
    return replace(
        entry,
        verdict=judgement.verdict,
        rule=claim_rule(judgement, item.parts, at_look=entry.look.level if entry.look else None),
        as_expected=None if open_ended else judgement.verdict == expect,
        deciding=shown,
        **{name: getattr(judgement.parts[shown], name) for name in OUTCOME},
        seeds_to_decide=judgement.seeds_to_decide,  # for all open parts together
        n=min(len(part.seeds) for part in judgement.parts.values()),
        unit=item.parts[shown].unit,
    )


def _shown_part(judgement: Judgement) -> str:
    """Return the name of the part that stands for the claim: the deciding one, or another if it is a condition."""
    if not judgement.parts[judgement.deciding].condition:
        return judgement.deciding
    return next((name for name, part in judgement.parts.items() if not part.condition), judgement.deciding)


def _part(
    name: str,
    part: PartVerdict,
    effects: SeedEffects,
    *,
    ways: int,
    at_look: float | None = None,
    decides: bool = True,
) -> PartEntry:
    groups_read = {"groups_read": len(effects.groups)} if effects.groups else {}
    copied = listed([str(seed) for seed in effects.copied_seeds], "and")
    noun = "seed" if len(effects.copied_seeds) == 1 else "seeds"
    copies = [f"{noun} {copied}: the runs are copies of those of the first seed"] if copied else []
    return PartEntry(
        **vars(part),
        name=name,
        unit=effects.unit,
        n=len(part.seeds),
        rule=part_rule(part, effects, ways=ways, at_look=at_look),
        decides=decides,
        left_out=(*effects.left_out, *copies),
        chosen_layers=effects.chosen or None,
        groups=tuple(effects.groups),
        numbers=dict(effects.shown_numbers) | groups_read,
    )


def finite(value: Any) -> Any:
    """Return the value as plain data for JSON, with None in place of NaN and infinity, which JSON lacks."""
    return json.loads(to_json(value, inf_nan_mode="null"))
