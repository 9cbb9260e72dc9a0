"""Results in a repository: what is copied there, and what lies there now."""

import json
import re
from pathlib import Path

import pytest

from ablations.errors import ResultsError
from reports.page import page
from reports.page.page import publish
from tests.support.fake_experiment import rows, write

RESULTS = Path(__file__).parents[3] / "experiments" / "results"
LARGEST_FILE, LARGEST_FOLDER = 1_000_000, 15_000_000  # 2 MB are runs of experiments that go on
"""Bytes that a repository takes without being slow to clone."""


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_published_folder_has_the_report_and_all_that_it_shows(tmp_path):
    folder = write(tmp_path / "out")
    page.write(folder)
    published = publish(folder, tmp_path / "results")
    assert published == tmp_path / "results" / "article-tiny"
    files = content(published)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert set(files) == {"report.md", "results.parquet", "spec.yaml", "provenance.json", *report["files"]}
    assert json.loads(files.pop("provenance.json")) == report["provenance"]
    assert report["provenance"]["commits"]
    before = content(folder)
    assert files == {name: before[name] for name in files}


def test_publishing_again_removes_old_figures_and_leaves_what_a_person_wrote(tmp_path):
    folder, to = write(tmp_path / "out"), tmp_path / "results"
    page.write(folder)
    published = publish(folder, to)
    (published / "findings.md").write_text("what it means")
    (published / "figures" / "old.svg").write_text("of an earlier page")
    (published / "claims.json").write_text("of an earlier spec")
    assert publish(folder, to) == published
    names = set(content(published))
    assert "findings.md" in names
    assert not names & {"figures/old.svg", "claims.json"}


def test_what_a_damaged_report_names_outside_of_its_figures_is_not_copied(tmp_path):
    folder = write(tmp_path / "out", table_rows=rows(arms=("mlm",)))
    page.write(folder)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    (folder.parent / "secret").write_text("not ours")
    report |= {"files": ["../secret", "figures/../../secret"], "experiment": "../elsewhere"}
    (folder / "report.json").write_text(json.dumps(report), encoding="utf-8")
    publish(folder, tmp_path / "results")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "results"}
    assert set(content(tmp_path / "results" / "article-tiny")) == {
        *("report.md", "results.parquet", "spec.yaml", "provenance.json")
    }


def test_without_a_page_there_is_a_sentence(tmp_path):
    folder = write(tmp_path / "out")
    with pytest.raises(ResultsError) as raised:
        publish(folder, tmp_path / "results")
    path = folder / "report.json"
    assert str(raised.value) == f"{path}: there is no page to publish; start `ablate report` again."
    assert not (tmp_path / "results").exists()


FOLDERS = sorted(path for path in RESULTS.iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_shipped_results_belong_to_a_spec_and_their_links_lead_somewhere(folder):
    written = (folder / "spec.yaml").read_text(encoding="utf-8") if (folder / "spec.yaml").is_file() else ""
    if not written.startswith("# What `ablate analyse` was asked"):  # of a model from elsewhere
        assert (RESULTS.parent / f"{folder.name}.yaml").is_file()
    assert any((folder / name).is_file() for name in ("report.md", "findings.md"))
    for text in folder.glob("*.md"):
        for link in re.findall(r"\]\(<?([^)>#]+)", text.read_text(encoding="utf-8")):
            assert link.startswith("https://") or (folder / link).exists(), link


def test_shipped_results_are_small():
    sizes = {path: path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()}
    assert [path for path, size in sizes.items() if size >= LARGEST_FILE] == []
    assert sum(sizes.values()) < LARGEST_FOLDER
