"""The templates of docs/plugins in one tiny experiment: trained, measured in worker processes and on the page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.runs.places import arrays
from ablations.runs.places.place import RayResources
from ablations.runs.workspace import Workspace
from lightning_modules import plugins
from lightning_modules.training.run_directory import RunDirectory, RunDirectoryError
from tests.support.errors import error_text
from tests.support.spec_files import write_spec

TEMPLATES = Path(__file__).parents[2] / "docs" / "plugins"
ARMS = {
    "ahead": {"objective": {"kind": "my_objective.py:Ahead", "label_smoothing": 0.1}},
    "rare": {
        "objective": {
            "kind": "masked_lm",
            "masking": {"ratio": 0.3, "select": {"kind": "my_corruption.py:Rare", "frequent": 5}},
        }
    },
}
MEASURES = [
    {"kind": "my_measures.py:Rank", "share": 0.8, "tokens": 200},
    {"kind": "frozen_features", "tasks": ["my_task.yaml"], "effort": "quick", "seeds": 1, "epochs": 1},
    "validation",
]


CLAIM = """\
version: 1
claims:
  - name: ahead-knows-animals
    says: The arm that reads ahead knows animals better.
    source: ours
    needs: {arms: [ahead, rare], measures: [frozen_features]}
    effect:
      kind: difference
      of: {measure: frozen_features, metric: score, groups: [my_task.yaml]}
      arm: ahead
      minus: rare
    smallest_effect: 0.1
    expect: supported
    because: it reads both sides
    family: animals
"""
"""Claim on a task of one's own."""


def ablate(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data_root):
    """Folder of a spec that names every template, with the text and the examples of the task."""
    folder = tmp_path_factory.mktemp("plugins")
    for path in [path for path in TEMPLATES.iterdir() if path.is_file()]:
        (folder / path.name).write_bytes(path.read_bytes())
    for path in data_root.glob("*.tsv"):
        (folder / path.name).write_bytes(path.read_bytes())
    for split in ("train", "validation", "test"):
        rows = [f"{word} {number}\t{word}\n" for number in range(10) for word in ("yes", "no")]
        (folder / f"animals.{split}.tsv").write_text("sentence\tanimal\n" + "".join(rows))
    (folder / "claims").mkdir()
    (folder / "claims/animals.yaml").write_text(CLAIM)
    figures = ["my_figure.py:LossByChange"]
    write_spec(folder, arms=ARMS, measures=MEASURES, seeds=[0], figures=figures, claims=["animals"])
    return folder


@pytest.fixture(scope="module")
def out(folder):
    """Output root of that experiment after its runs."""
    result = ablate("run", folder / "spec.yaml", "--out", folder / "out", "--data-root", folder)
    assert result.exit_code == 0, result.output
    return folder / "out"


def test_validate_says_which_files_were_loaded(folder):
    result = ablate("validate", folder / "spec.yaml", "--data-root", folder)
    assert result.exit_code == 0, result.output
    names = (
        "my_corruption.py:Rare",
        "my_figure.py:LossByChange",
        "my_measures.py:Rank",
        "my_objective.py:Ahead",
        "my_task.yaml",
    )
    for name in names:
        assert f"  {name} was loaded from {folder / name.partition(':')[0]}.\n" in result.output


READ_ARRAY = """
import sys; from pathlib import Path; from ablations.runs.places import arrays
(job,) = arrays.read(Path(sys.argv[1]))
print(*(name for name in sys.modules if name.startswith("plugin_")))
print(*(settings.kind for settings in job.measures()))
"""


def test_a_job_of_a_cluster_loads_the_plugins_of_its_measures(folder, tmp_path):
    workspace = Workspace.open(folder / "spec.yaml", out=tmp_path, data_root=folder)
    jobs = arrays.new_folder(tmp_path, "ray")
    arrays.write(jobs, arrays.of_workspace(workspace, [["a"]], RayResources().of_job(), tries=1))
    command = [sys.executable, "-c", READ_ARRAY, str(jobs)]  # a process that has loaded no plugin
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.stdout == "\nmy_measures.py:Rank frozen_features validation\n", told.stderr
    content = json.loads((jobs / "array.json").read_text())
    (jobs / "array.json").write_text(json.dumps(content | {"plugins": {}}))
    assert (
        "is damaged or was written by another version"
        in subprocess.run(command, capture_output=True, text=True).stderr
    )


def test_a_measure_and_a_task_stand_on_the_page(out):
    report = json.loads((out / "tried" / "report.json").read_text())
    (figure,) = [figure for figure in report["figures"] if figure["name"] == "my_measures_py_Rank"]
    (panel,) = figure["panels"]
    assert (panel["title"], panel["svg"]) == ("Rank: rank", "figures/my_measures_py_Rank-rank.svg")
    assert {point["arm"] for point in panel["points"]} == {"ahead", "rare"}
    assert figure["how_to_read"][0].startswith("Number of directions that hold most of the variance")
    assert any("my_task.yaml" in json.dumps(table["rows"]) for table in report["tasks"])
    told = " ".join(notice["text"] for notice in report["notices"])
    assert "my_objective.py:Ahead is your own code (SHA-256 of the file: " in told
    assert "my_task.yaml is your own task (SHA-256 of the file: " in told


def test_the_plan_names_a_figure_and_the_page_leaves_it_out_without_rows(folder, out):
    """No measure of the layers' change is in the spec."""
    plan = json.loads((out / "tried" / "plan.json").read_text())
    assert {name: record["path"] for name, record in plan["figures"].items()} == {
        "my_figure.py:LossByChange": str(folder / "my_figure.py")
    }
    report = json.loads((out / "tried" / "report.json").read_text())
    assert "my_figure_py_LossByChange" not in [figure["name"] for figure in report["figures"]]


def test_a_published_folder_has_the_task_and_no_code(folder, out, tmp_path):
    (tmp_path / "tried").mkdir()
    (tmp_path / "tried" / "findings.md").write_text("by a person")
    where = ["--out", out, "--data-root", folder]
    result = ablate("report", folder / "spec.yaml", *where, "--publish", tmp_path)
    assert result.exit_code == 0, result.output
    published = tmp_path / "tried"
    assert (published / "my_task.yaml").read_bytes() == (folder / "my_task.yaml").read_bytes()
    assert (published / "findings.md").read_text() == "by a person"
    assert not list(published.rglob("*.py"))
    plugins.look_beside(None)  # as in a new process
    again = ablate("report", published, "--out", tmp_path / "again")
    assert "failed: claims" not in again.stderr  # the user's own figure fails, as its code is not published
    assert (tmp_path / "again" / "tried" / "my_task.yaml").is_file()
    claims = [
        json.loads((root / "tried" / "claims.json").read_text())["claims"] for root in (out, tmp_path / "again")
    ]
    assert claims[0] == claims[1]
    assert [claim["verdict"] for claim in claims[0]] == ["insufficient evidence"]  # one seed
    (published / "my_task.yaml").unlink()
    plugins.look_beside(None)
    lost = ablate("report", published, "--out", tmp_path / "lost")
    assert lost.exit_code == 1
    assert (
        "failed: claims of animals: "
        f"{tmp_path}/lost/tried/claims/animals.yaml:9:62: an entry of claims.effect.of.groups must be a group of "
    ) in lost.stderr


def test_a_user_who_names_the_spec_trusts_what_it_names(folder, out):
    """A folder of results alone may have the task read, but no code executed."""
    by_spec = ablate("diff", out / "tried", folder / "spec.yaml", "--out", out)
    assert by_spec.stdout.endswith("\nThe two specs come to the same settings.\n")
    refused = "a file that only a folder of results names is not read"
    assert f"my_objective.py:Ahead: {refused}" in ablate("diff", out / "tried", out / "tried").stdout


def test_what_is_done_is_done(folder, out):
    result = ablate("run", folder / "spec.yaml", "--out", out, "--data-root", folder)
    assert "nothing to do: every run is trained and measured" in result.output


def test_a_run_names_its_source_and_goes_on_with_no_other(folder, out):
    (path,) = (out / "runs").glob("ahead-*")
    directory = RunDirectory(path)
    assert list(directory.description()["plugins"]) == ["my_objective.py:Ahead"]
    assert directory.settings().objective.label_smoothing == 0.1
    source = folder / "my_objective.py"
    before = source.read_bytes()
    try:
        source.write_bytes(before + b"# changed\n")
        assert error_text(RunDirectoryError, directory.settings) == (
            f"{path}/run.json: my_objective.py:Ahead: {source} has changed since the run was planned; restore "
            "the file, or start `ablate run` with the spec, which plans a new run with the changed file."
        )
        result = ablate("plan", folder / "spec.yaml", "--out", out, "--data-root", folder)
        assert "arm ahead with another source of my_objective.py:Ahead now." in " ".join(result.output.split())
    finally:
        source.write_bytes(before)
        plugins.look_beside(folder / "spec.yaml")


def test_a_changed_measure_is_measured_again_and_trains_nothing(folder, out):
    source = folder / "my_measures.py"
    before = source.read_bytes()
    try:
        source.write_bytes(before + b"# changed\n")
        result = ablate("plan", folder / "spec.yaml", "--out", out, "--data-root", folder)
        words = " ".join(result.output.split())
        assert "To measure: my_measures.py:Rank of ahead (seed 0) and rare (seed 0)." in words
        assert "earlier version" not in words
    finally:
        source.write_bytes(before)
