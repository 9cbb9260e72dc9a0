"""docs/claims.md: its example is valid, and its tables name what there is and nothing else."""

import os
import re
from pathlib import Path
from typing import get_args

import pytest

from ablations.catalogue import METRICS, SHARES, UNITS
from ablations.messages import kind_of
from ablations.metric_groups import groups_of
from ablations.spec import claims as claims_file
from ablations.spec import load
from ablations.spec.contrasts import Claim, Contrast, Effect, Needs, Quantity
from reports.claims.words import VERDICTS
from tests.support.command_line import ablate
from tests.support.skeleton_verdict import verdict
from tests.support.verdict_picture import picture

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")


def blocks():
    for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL):
        if named := re.match(r"# (spec|claims): (\S+)\n", block):  # a whole file
            yield *named.groups(), block


def example(folder):
    for _, name, block in blocks():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(block, encoding="utf-8")
    return folder / "hiding.yaml"


def table(title):
    """The rows of the table below a heading, each a list of cells."""
    section = GUIDE.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_the_readme_leads_to_it_and_its_own_links_lead_somewhere():
    assert "(docs/claims.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
    headings = {re.sub(r"[^a-z -]", "", line.lower()).strip() for line in re.findall(r"(?m)^## (.*)$", GUIDE)}
    anchors = {heading.replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\(#([^)]+)\)", GUIDE)) <= anchors


def test_the_picture_shows_the_verdicts_of_the_rule():
    """After a change of it: ``REWRITE_PICTURE=1 pytest tests -k picture``."""
    path = ROOT / "docs" / "verdicts.svg"
    if os.environ.get("REWRITE_PICTURE"):
        path.write_text(picture(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == picture()


def test_every_yaml_block_is_valid(tmp_path):
    spec = example(tmp_path)
    assert [kind for kind, _, _ in blocks()] == ["spec", "claims"]
    done = ablate("validate", spec, tmp_path / "claims" / "hiding.yaml")
    assert (done.exit_code, done.stderr) == (0, "")
    (loaded,) = claims_file.load_named(load.load(spec).claims, spec=spec)
    assert all(verdict(claim) != "not run" for claim in loaded.claims)


@pytest.mark.slow
def test_the_example_ends_in_verdicts(tmp_path):
    spec, out = example(tmp_path), str(tmp_path / "out")
    assert ablate("run", spec, "--out", out).exit_code == 0
    judged = ablate("claims", spec, "--out", out)
    assert judged.exit_code == 0
    assert "not run" not in judged.stdout


def test_the_keys_are_those_of_a_claim():
    assert [name for row in table("The keys of a claim") for name in names(row[0])] == list(Claim.model_fields)
    needs = next(row for row in table("The keys of a claim") if row[0] == "`needs`")
    assert names(needs[1]) == list(Needs.model_fields)


def test_the_effects_are_those_that_there_are():
    rows = {names(row[0])[0]: names(row[2]) for row in table("The effects")}
    kinds = {kind_of(effect): effect for effect in get_args(get_args(Effect)[0])}
    assert set(rows) == set(kinds)
    for kind, effect in kinds.items():
        assert set(rows[kind]) == set(effect.model_fields) - {"kind", "of"} - set(Contrast.model_fields)


def test_what_an_effect_reads_is_what_a_quantity_has():
    assert {name for row in table("What an effect reads") for name in names(row[0])} == set(Quantity.model_fields)


def test_the_verdicts_are_those_that_there_are():
    assert sorted(names(row[0])[0] for row in table("The verdicts")) == sorted(VERDICTS)


ROWS = table("Measures, metrics and groups")


def test_every_metric_is_there_once():
    listed = [(measure, metric) for row in ROWS for measure in names(row[0]) for metric in names(row[1])]
    assert len(listed) == len(set(listed))
    assert set(listed) == {(measure, metric) for measure, metrics in METRICS.items() for metric in metrics}


def test_shares_are_the_metrics_with_such_a_unit():
    units = {(measure, metric): row[2] for row in ROWS for measure in names(row[0]) for metric in names(row[1])}
    shares = {(measure, metric) for measure, metrics in SHARES.items() for metric in metrics}
    assert {units[share] for share in shares} == {"share", "of the task", "correlation", "as above"}
    named = {metric for metric, unit in units.items() if unit in ("share", "of the task", "correlation")}
    assert named - shares == {("geometry", "update_norm")}  # a ratio, which may be larger than 1


def test_units_are_those_of_the_catalogue():
    """A row with `as above`, or with two units, does not say which metric has which."""
    for row in ROWS:
        for measure, metric in ((measure, metric) for measure in names(row[0]) for metric in names(row[1])):
            if row[2] != "as above" and ";" not in row[2]:
                unit = row[2] if row[2] in UNITS.values() else ""
                assert UNITS.get((measure, metric), "") == unit, (measure, metric)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}".replace("`", ""))
def test_the_groups_are_those_that_the_metric_has(row):
    cell = row[4]
    for measure in names(row[0]):
        for metric in names(row[1]):
            groups = groups_of(measure, metric)
            assert all(groups.has(group) for group in names(cell))
            if cell.startswith("none"):
                assert groups.whole
            elif cell != "as above":
                assert not groups.whole
