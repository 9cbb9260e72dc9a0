"""Claims that an arm has a higher validation loss than the base."""

from ablations.spec import claims as claims_file

CLAIM = """
  - name: {name}
    says: It is so.
    source: here
    needs: {{arms: [{arm}, base], measures: [validation]}}
    provided: {provided}
    effect: {{kind: difference, of: {{measure: validation, metric: loss}}, arm: {arm}, minus: base, unit: nats}}
    smallest_effect: {smallest}
    expect: open
    because: so
    family: {family}
"""


def claims_of(tmp_path, *entries):
    """Load a file of such claims; each entry is (name, arm) and what differs."""
    defaults = {"smallest": 0.01, "family": "one", "provided": "{}"}
    texts = [CLAIM.format(name=name, arm=arm, **defaults | changes) for name, arm, changes in entries]
    path = tmp_path / "claims" / "some.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text("version: 1\nclaims:" + "".join(texts), encoding="utf-8")
    return claims_file.load(path).claims
