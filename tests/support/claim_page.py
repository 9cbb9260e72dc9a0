"""An experiment whose page shows claims."""

import json

from ablations.spec import claims as claims_file
from tests.support.fake_experiment import rows, write

SEEDS = tuple(range(7))


SUM = "{measure: layer_change, metric: pwcca, layers: sum}"


def claim(number, name, says, effect, *, arms, measures, smallest=0.01, expect="supported", more=""):
    return (
        f"  - name: {name}\n    number: {number}\n    says: {says}\n    source: a paper, table 2\n"
        "    published: 0.406 against 0.356\n"
        f"    needs: {{arms: [{arms}], measures: [{measures}]}}\n    {effect}\n"
        f"    smallest_effect: {smallest}\n    expect: {expect}\n    because: so it is there\n"
        f"    family: family-{number}\n{more}"
    )


def difference(arm, minus, of=SUM, unit="distance", more=""):
    return f"{{kind: difference, of: {of}, arm: {arm}, minus: {minus}, unit: {unit}{more}}}"


BOTTOM = "{measure: token_information, metric: cross_fitted, layers: bottom}"


CURVE = "{measure: token_information, metric: cross_fitted}"


LOSS = "{measure: validation, metric: loss}"


TEXT = "version: 1\nclaims:\n" + "".join(
    [
        claim(1, "more", "It changes more.", f"effect: {difference('mlm', 'clm')}", arms="mlm, clm",
              measures="layer_change", more=f"    beside:\n      than-mt: {difference('mlm', 'mt')}\n"),
        claim(2, "less", "It changes less.", f"effect: {difference('clm', 'mlm')}", arms="mlm, clm",
              measures="layer_change"),
        claim(3, "same", "It is the same.", f"effect: {difference('mlm', 'clm')}", arms="mlm, clm",
              measures="layer_change", smallest=5, expect="equivalent"),
        claim(4, "start", "It starts with more.", f"effect: {difference('mlm', 'mt', BOTTOM, 'nats')}",
              arms="mlm, mt", measures="token_information", smallest=0.001),
        claim(5, "few", "It is rarely known.", f"effect: {difference('mt', 'clm', LOSS, 'nats')}", arms="mt, clm",
              measures="validation", expect="open"),
        claim(6, "parts", "It falls and rises.",
              "effects:\n"
              f"      falls: {{kind: shape, of: {CURVE}, arm: mlm, form: fall_to_inner, unit: nats}}\n"
              f"      rises: {{kind: shape, of: {CURVE}, arm: mlm, form: rise_to_top, unit: nats}}\n"
              f"      changes: {difference('mlm', 'mt')}",
              arms="mlm, mt", measures="token_information, layer_change",
              more=f"    provided:\n      differs: {difference('mlm', 'mt')}\n"),
        claim(7, "half", "It is measured in part.",
              f"effects:\n      there: {difference('mlm', 'clm')}\n"
              '      not-there: {kind: difference, of: {measure: parsing, metric: uuas, groups: ["*"]}, arm: mlm, '
              "minus: clm}",
              arms="mlm, clm", measures="layer_change, parsing"),
    ]
)  # fmt: skip


VERDICTS = {
    "more": "supported", "less": "contradicted", "same": "equivalent", "start": "undecided",
    "few": "insufficient evidence", "parts": "supported", "half": "not run",
}  # fmt: skip


def made(out, *, text=TEXT, planned=None, names=("layers", "gone"), question=None):
    """An experiment with every verdict: seven seeds, of which translation has two validated."""
    kept = [row for row in rows(seeds=SEEDS) if (row["arm"], row["measure"]) != ("mt", "validation")]
    kept += [row for row in rows(("mt",), (0, 1)) if row["measure"] == "validation"]
    folder = write(out, seeds=SEEDS, table_rows=kept)
    path = folder / "claims" / "layers.yaml"
    path.parent.mkdir()
    path.write_text(planned or text, encoding="utf-8")
    known = claims_file.planned([claims_file.load(path)], [], runs_started=0, at="2026-11-20T09:00:00+00:00")
    path.write_text(text, encoding="utf-8")
    plan = json.loads((folder / "plan.json").read_text())
    plan |= {"claims": list(names), "claim_files": known} | ({"question": question} if question else {})
    (folder / "plan.json").write_text(json.dumps(plan))
    return folder
