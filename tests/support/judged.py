"""An experiment with judged claims."""

import json
from dataclasses import fields
from types import SimpleNamespace

from ablations.spec import claims as claims_file
from reports import folder as experiment_folder
from reports.claims.entries import ClaimEntry, PartEntry
from reports.claims.judge import Judged
from reports.claims.outcomes import Stop
from tests.support.fake_experiment import write

SEEDS = tuple(range(8))


def claim(name, effect, *, needs, smallest=0.01, expect="supported", family="layers"):
    return (
        f"  - {{name: {name}, says: It is so., source: here, needs: {needs},\n"
        f"     effect: {effect}, smallest_effect: {smallest}, expect: {expect}, because: so, family: {family}}}\n"
    )


CHANGE = "{measure: layer_change, metric: pwcca, layers: sum}"


INFORMATION = "{measure: token_information, metric: cross_fitted, layers: drop}"


NEEDS = "{arms: [mlm, clm], measures: [layer_change]}"


TEXT = "version: 1\nclaims:\n" + "".join(
    [
        claim("more", f"{{kind: difference, of: {CHANGE}, arm: mlm, minus: clm}}", needs=NEEDS),
        claim("less", f"{{kind: difference, of: {CHANGE}, arm: clm, minus: mlm}}", needs=NEEDS),
        claim(
            "faster",
            f"{{kind: difference, of: {INFORMATION}, arm: mt, minus: clm}}",
            needs="{arms: [mt, clm], measures: [token_information]}",
            expect="contradicted",
        ),
        claim(
            "same",
            f"{{kind: difference, of: {CHANGE}, arm: mlm, minus: clm}}",
            needs=NEEDS,
            smallest=5,
            expect="equivalent",
        ),
        claim(
            "other",
            "{kind: difference, of: {measure: parsing, metric: uuas, groups: [language]}, arm: mlm, minus: n1}",
            needs="{arms: [mlm, n1], measures: [parsing]}",
            expect="open",
            family="trees",
        ),
    ]
)


def made(tmp_path, *, seeds=SEEDS, text=TEXT, planned=None, table_rows=None):
    """An experiment with a file of claims in its folder, and what the plan knows of it."""
    folder = write(tmp_path, seeds=seeds, table_rows=table_rows)
    path = folder / "claims" / "layers.yaml"
    path.parent.mkdir()
    path.write_text(planned or text, encoding="utf-8")
    known = claims_file.planned([claims_file.load(path)], [], runs_started=0, at="2026-11-20")
    path.write_text(text, encoding="utf-8")
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"claims": ["layers"], "claim_files": known}))
    return experiment_folder.read(folder)


def by_name(entries):
    return {entry.name: entry for entry in entries}


def judged(*claims):
    """An experiment with these claims, for what shows them; nothing of it was measured."""
    experiment = SimpleNamespace(plan=SimpleNamespace(experiment="tried"))
    return Judged(experiment, files=[], claims={}, outcomes={}, entries=list(claims))


def part_entry(**given):
    """A part of a claim; what is not given is unknown."""
    made = dict.fromkeys(field.name for field in fields(PartEntry)) | {
        "name": "it",
        "unit": "",
        "left_out": (),
        "numbers": {},
    }
    return PartEntry(**made | {"decides": True, "condition": False, "seeds": (), "values": ()} | given)


def claim_entry(*, parts=(), beside=(), look=None, readings=None, **given):
    """A claim with its verdict, also from its entry in claims.json or report.json."""
    known = {field.name for field in fields(ClaimEntry)}
    made = {"file": "it", "name": "it", "verdict": "supported", "rule": "so"}
    return ClaimEntry(
        **made | {name: value for name, value in given.items() if name in known},
        parts=tuple(part_entry(**part) for part in parts),
        beside=tuple(part_entry(**part) for part in beside),
        look=look and Stop(**look),
        readings={name: claim_entry(**reading) for name, reading in (readings or {}).items()},
    )
