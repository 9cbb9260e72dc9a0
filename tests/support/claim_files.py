"""A good file of claims, and how to write one."""

GOOD = """\
version: 1
claims:
  - name: both-sides-help
    number: 6
    says: Seeing both sides helps.
    source: Devlin et al. 2019, table 5
    needs: {arms: [mlm, clm], measures: [validation]}
    effect: {kind: difference, of: {measure: validation, metric: loss}, arm: clm, minus: mlm}
    smallest_effect: 0.1
    expect: supported
    because: 1.8 points on MNLI
    family: sight
"""


def write(folder, text=GOOD, name="first"):
    path = folder / "claims" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
