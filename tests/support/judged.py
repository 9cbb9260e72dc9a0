"""An experiment with judged claims."""

import json

from ablations.spec import claims as claims_file
from reports import folder as experiment_folder
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
    return {entry["name"]: entry for entry in entries}
