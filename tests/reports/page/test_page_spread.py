"""The section of the page on where the spread over seeds comes from."""

import pytest

from reports.page import page
from reports.page.content import spread_entry
from reports.scores.spread import SOURCES
from tests.support.html_page import Page, strict_json
from tests.support.seed_sources import experiment


def test_the_page_splits_the_spread_where_arms_fix_sources_of_chance(tmp_path):
    experiment(tmp_path)
    folder = tmp_path / "sources"
    page.write(folder)
    twin = strict_json(folder / "report.json")["spread"]
    rows = [row["says"] for table in twin["tables"] for row in table["rows"]]
    assert rows == ["every source", "initial weights", "order", "corruption", "dropout"]
    text = Page(folder / "report.html").text
    markdown = (folder / "report.md").read_text()
    assert "Where the spread over seeds comes from" in text
    assert "The heads of a task" not in text  # no task was scored
    for said in (text, markdown.replace("\\", "")):
        sd = twin["tables"][0]["rows"][1]
        assert f"{sd['sd']:.4f} [{sd['sd_low']:.4f}, {sd['sd_high']:.4f}]" in said
    (panel,) = twin["panels"]
    written = (folder / panel["csv"]).read_text().splitlines()
    assert written[0] == "says,sd,low,high"
    assert len(written) == 6
    assert panel["svg"] in markdown


@pytest.mark.parametrize(("scale", "said"), [(1, False), (100, True)])
def test_scores_are_said_to_be_times_100_as_they_are(scale, said):
    column = {"name": "probing", "label": "Probes", "unit": "mean", "digits": 1, "scale": scale}
    row = {"varying": [*SOURCES], "says": "every source", "arms": ["all"], "runs": 5}
    row |= {"sd": 0.02, "sd_low": 0.01, "sd_high": 0.06, "share": None, "share_low": None, "share_high": None}
    entry = spread_entry([{"arm": "all", "number": column, "rows": [row]}])
    assert entry["panels"][0]["points"][0]["sd"] == 0.02 * scale
    assert ("Scores on tasks are means over tasks, times 100." in entry["how_to_read"]) == said


def test_a_page_without_such_arms_has_no_section(shown, twin):
    assert twin["spread"] is None
    assert "Where the spread over seeds comes from" not in shown.text
