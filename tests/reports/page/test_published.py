"""Results in a repository: what is copied there, and what lies there now."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from ablations import results, yamlfile
from ablations.commands.results import write_claims
from ablations.errors import ResultsError
from reports import folder as experiment_folder
from reports.page import page
from reports.page.page import publish, restore
from tests.support import claim_page
from tests.support.command_line import ablate
from tests.support.errors import error_text
from tests.support.fake_experiment import rows, write

RESULTS = Path(__file__).parents[3] / "experiments" / "results"
LARGEST_FILE, LARGEST_FOLDER = 1_000_000, 25_000_000  # packed it is about a third
"""Bytes that a repository takes without being slow to clone."""


PUBLISHED = ("plan.json", "report.md", "results.parquet", "runs.parquet", "spec.yaml", "provenance.json")


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copied(folder, out):
    """Return a copy of an experiment's folder, with the runs beside it."""
    return shutil.copytree(folder.parent, out) / folder.name


@pytest.fixture
def folder(folder, tmp_path):
    """A page with nothing missing, which a test may change."""
    return copied(folder, tmp_path / "out")


@pytest.fixture(scope="module")
def judged_once(tmp_path_factory):
    folder = claim_page.made(tmp_path_factory.mktemp("judged"))
    page.write(folder, write_claims(folder)[1])
    return folder


@pytest.fixture
def claimed(judged_once, tmp_path):
    """A page with every verdict, which a test may change."""
    return copied(judged_once, tmp_path / "out")


def test_a_published_folder_has_the_report_and_all_that_it_shows(tmp_path, folder):
    published = publish(folder, tmp_path / "results")
    assert published == tmp_path / "results" / "article-tiny"
    files = content(published)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert set(files) == {*PUBLISHED, *report["files"]}
    assert json.loads(files.pop("provenance.json")) == report["provenance"]
    assert len(pd.read_parquet(published / "runs.parquet")) == len(report["runs"])
    del files["runs.parquet"]
    assert report["provenance"]["commits"]
    before = content(folder)
    assert files == {name: before[name] for name in files}


def test_publishing_again_removes_old_figures_and_leaves_what_a_person_wrote(tmp_path, folder):
    to = tmp_path / "results"
    published = publish(folder, to)
    (published / "findings.md").write_text("what it means")
    (published / "figures" / "old.svg").write_text("of an earlier page")
    (published / "figures" / "mine").mkdir()
    (published / "figures" / "mine" / "old.svg").write_text("drawn by hand")
    (published / "claims.json").write_text("of an earlier spec")
    assert publish(folder, to) == published
    names = set(content(published))
    assert names >= {"findings.md", "figures/mine/old.svg"}
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
    assert set(content(tmp_path / "results" / "article-tiny")) == set(PUBLISHED)


def test_published_curves_that_the_spec_names_are_copied_too_and_restored(tmp_path, folder):
    (folder / "spec.yaml").write_text("published: [voita-2019]\n", encoding="utf-8")
    for name in ("voita-2019", "of-an-earlier-spec"):
        (folder / "published").mkdir(exist_ok=True)
        (folder / "published" / f"{name}.csv").write_text(name)
    published = publish(folder, tmp_path / "results")
    curves = {"published/voita-2019.csv": b"voita-2019"}
    assert curves.items() <= content(published).items()
    again = content(restore(published, tmp_path / "again"))
    for files in (content(published), again):
        assert {name: files[name] for name in files if name.startswith("published/")} == curves
    (folder / "spec.yaml").write_text("name: article-tiny\n", encoding="utf-8")
    publish(folder, tmp_path / "results")
    assert not [name for name in content(published) if name.startswith("published/")]


def test_without_a_page_there_is_a_sentence(tmp_path):
    folder = write(tmp_path / "out")
    with pytest.raises(ResultsError) as raised:
        publish(folder, tmp_path / "results")
    path = folder / "report.json"
    assert (
        str(raised.value) == f"{path} cannot be read, so there is no page to publish; start `ablate report` again."
    )
    assert not (tmp_path / "results").exists()


def test_the_page_of_a_published_folder_is_that_of_its_runs(tmp_path, claimed):
    published = publish(claimed, tmp_path / "results")
    shutil.rmtree(claimed.parent)
    before = content(published)
    result = ablate("report", published, "--out", tmp_path / "again")
    assert (result.stdout, result.exit_code) == (f"page: {tmp_path / 'again' / claimed.name / 'report.html'}\n", 1)
    assert result.stderr.startswith(
        "failed: claims of gone: the file of claims is not in the experiment's folder; "
    )
    assert content(published) == before
    again = content(tmp_path / "again" / claimed.name)
    for name in (
        "report.md",
        "claims.json",
        *(name for name in before if name.startswith(("figures/", "tables/"))),
    ):
        assert again[name] == before[name], name
    assert json.loads(again["report.json"])["provenance"] == json.loads(before["provenance.json"])


def test_claims_are_judged_again_by_the_published_table(tmp_path, claimed):
    published = publish(claimed, tmp_path / "results")
    verdicts = [
        {claim["name"]: claim["verdict"] for claim in json.loads(content(published)["claims.json"])["claims"]}
    ]
    table = results.read(published / "results.parquet")
    sums = (table["measure"] == "layer_change") & (table["metric"] == "pwcca")
    table.loc[sums, "value"] = 1 - table.loc[sums, "value"]
    results.write(table, published / "results.parquet")
    judged, _ = write_claims(restore(published, tmp_path / "again"))
    verdicts.append({claim["name"]: claim["verdict"] for claim in judged["claims"]})
    assert [(each["more"], each["less"]) for each in verdicts] == [
        ("supported", "contradicted"),
        ("contradicted", "supported"),
    ]


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        (
            "plan.json",
            b'{"arms"',
            "is not a complete JSON file (Expecting ':' delimiter: line 1 column 8 (char 7)); ",
        ),
        ("plan.json", b"{}", "is not as `ablate run` writes it (`experiment` is missing); "),
        ("results.parquet", None, "does not exist; "),
        (
            "results.parquet",
            b"PAR1",
            "is damaged (Parquet file size is 4 bytes, smaller than the minimum",
        ),
        (
            "runs.parquet",
            b"PAR1",
            "is damaged (Parquet file size is 4 bytes, smaller than the minimum",
        ),
    ],
)
def test_a_damaged_published_file_is_to_be_taken_again_and_nothing_is_copied(
    tmp_path, folder, name, damage, sentence
):
    published = publish(folder, tmp_path / "results")
    if damage is None:
        (published / name).unlink()
    else:
        (published / name).write_bytes(damage)
    for command in ("report", "figure"):
        result = ablate(command, published, "--out", tmp_path / "again")
        assert result.exit_code == 2
        assert result.stderr.startswith(f"{published / name} {sentence}")
        assert result.stderr.endswith("take it again from where it was published.\n")
    assert not (tmp_path / "again").exists()


def test_missing_claims_of_a_published_folder_are_to_be_taken_again(tmp_path, claimed):
    published = publish(claimed, tmp_path / "results")
    for path in (published / "claims").iterdir():
        path.unlink()
    judged, _ = write_claims(published)
    assert {claim["rule"] for claim in judged["claims"]} == {
        "the file of claims is not in the experiment's folder; `ablate claims` on the spec puts it there, or, if "
        "these results are published ones, take it again from where they were published"
    }


def test_a_plan_cannot_have_files_copied_from_elsewhere(tmp_path, folder):
    published = publish(folder, tmp_path / "results")
    (tmp_path / "results" / "secret.yaml").write_text("not ours")
    plan = json.loads((published / "plan.json").read_bytes()) | {"claims": ["../../secret"]}
    (published / "plan.json").write_text(json.dumps(plan))
    restore(published, tmp_path / "again" / "deep")
    assert not list((tmp_path / "again").rglob("secret*"))


def test_other_results_of_that_name_are_left_alone(tmp_path, folder):
    published = publish(folder, tmp_path / "results")
    assert restore(published, tmp_path / "again") == restore(published, tmp_path / "again")
    (folder / "plan.json").write_text((folder / "plan.json").read_text().replace("its token", "a token"))
    before = content(tmp_path / "out")
    assert error_text(ResultsError, restore, published, tmp_path / "out") == (
        f"{folder} has other results than {published}; name another output root with --out, or delete {folder}."
    )
    assert content(tmp_path / "out") == before


def test_runs_that_are_there_count_and_not_what_was_published(tmp_path, folder):
    again = restore(publish(folder, tmp_path / "results"), tmp_path / "again")
    assert {run.state.state for run in experiment_folder.read(again).runs} == {"done"}
    run = json.loads((again / "plan.json").read_bytes())["runs"][0]
    (again.parent / "runs" / run["folder"]).mkdir(parents=True)
    states = {one.plan.run_id: one.state.state for one in experiment_folder.read(again).runs}
    assert states.pop(run["run_id"]) == "planned"
    assert set(states.values()) == {"done"}


def test_a_page_of_results_in_another_output_root_knows_their_runs(tmp_path, folder):
    """An output root that somebody may only read: its runs were said not to have started."""
    elsewhere = restore(folder, tmp_path / "mine")
    here, there = experiment_folder.read(folder).runs, experiment_folder.read(elsewhere).runs
    assert [(run.plan, run.state, run.settings) for run in there] == [
        (run.plan, run.state, run.settings) for run in here
    ]
    assert {run.state.state for run in there} == {"done"}


def test_published_results_of_runs_that_have_not_started_are_read(tmp_path):
    folder = write(tmp_path / "out")
    run = json.loads((folder / "plan.json").read_bytes())["runs"][0]
    for name in ("state.json", "provenance.json"):
        (folder.parent / "runs" / run["folder"] / name).unlink()
    page.write(folder)
    again = restore(publish(folder, tmp_path / "results"), tmp_path / "again")
    states = {one.plan.run_id: one.state.state for one in experiment_folder.read(again).runs}
    assert states.pop(run["run_id"]) == "planned"
    assert set(states.values()) == {"done"}


def test_a_changed_byte_of_published_runs_is_noticed(tmp_path, folder):
    again = restore(publish(folder, tmp_path / "results"), tmp_path / "again")
    path = again / "runs.parquet"
    written = bytearray(path.read_bytes())
    written[len(written) // 2] ^= 1
    path.write_bytes(written)
    with pytest.raises(ResultsError, match=re.escape(str(path))):
        experiment_folder.read(again)


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


@pytest.mark.parametrize(
    "folder", [path for path in FOLDERS if (path / "plan.json").is_file()], ids=lambda path: path.name
)
def test_shipped_results_have_the_files_that_their_spec_names(folder):
    spec = yamlfile.read(folder / "spec.yaml").content
    for kind, ending in (("claims", "yaml"), ("published", "csv")):
        named = {f"{name}.{ending}" for name in spec.get(kind, ())}
        assert {path.name for path in (folder / kind).glob("*")} == named, kind


def test_shipped_results_are_small():
    sizes = {path: path.stat().st_size for path in RESULTS.rglob("*") if path.is_file()}
    assert [path for path, size in sizes.items() if size >= LARGEST_FILE] == []
    assert sum(sizes.values()) < LARGEST_FOLDER
