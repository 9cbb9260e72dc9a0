"""A spec with its output root: which runs there are, without making anything."""

import json

import pandas as pd
import pytest

from ablations import results
from ablations.errors import SpecError
from ablations.results import sealed
from ablations.runs import gather
from ablations.runs import rows as run_rows
from ablations.runs.identity import folders
from ablations.runs.records import require_runs
from ablations.runs.workspace import Workspace
from lightning_modules import files
from lightning_modules.errors import DataError
from lightning_modules.files import write_json
from lightning_modules.training.run_directory import RunDirectory
from tests.support.command_line import ablate, refusal_of
from tests.support.errors import error_text
from tests.support.planned_spec import SPEC, opened, workspace_of, write
from tests.support.unprivileged import permissions_hold

ARMS = {
    "mlm": {"objective": {"kind": "masked_lm"}},
    "half": {"objective": {"kind": "masked_lm", "masking": {"ratio": 0.5}}},
}


@pytest.fixture
def spec(tmp_path):
    return write(tmp_path, arms=ARMS, match="predictions")


def steps(workspace):
    return {item.run.arm: item.run.settings.training.max_steps for item in workspace.planned}


def with_a_claim(tmp_path):
    """The spec and workspace of an experiment that is planned and has a claim."""
    spec = write(tmp_path, arms=ARMS, measures=["validation"])
    ablate("claims", "--new", spec)
    workspace = workspace_of(tmp_path, arms=ARMS, measures=["validation"], claims=["it"])
    workspace.write_plan()
    return spec, workspace


@pytest.mark.parametrize("command", ["claims", "report"])
def test_published_results_are_not_replaced_by_a_table_of_fewer_runs(tmp_path, command):
    """A restored folder has a table of all runs. Some of their folders are not on this machine."""
    spec, workspace = with_a_claim(tmp_path)
    plan = json.loads((workspace.folder / "plan.json").read_text(encoding="utf-8"))
    for run in plan["runs"]:
        run["state"] = "done"
    (workspace.folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    planned = {run["run_id"] for run in plan["runs"]}
    require_runs(workspace.folder, tmp_path / "out" / "runs", planned=planned)  # there is no table yet
    for name in ("runs.parquet", "results.parquet"):
        (workspace.folder / name).write_bytes(b"of all runs")
    before = {path: path.read_bytes() for path in workspace.folder.rglob("*") if path.is_file()}
    first, *others = plan["runs"]
    (tmp_path / "out" / "runs" / first["folder"]).mkdir(parents=True)
    where = ["--out", str(tmp_path / "out"), "--data-root", str(tmp_path)]
    assert refusal_of(command, spec, *where) == (
        f"{workspace.folder} has published results of {len(plan['runs'])} runs, but {len(others)} of them are not "
        f"in {tmp_path / 'out' / 'runs'}, and the table would lose their rows; copy their folders there, name "
        f"another output root with --out, or judge the published table with `ablate report {workspace.folder}`.\n"
    )
    assert {path: path.read_bytes() for path in workspace.folder.rglob("*") if path.is_file()} == before
    for run in others:
        (tmp_path / "out" / "runs" / run["folder"]).mkdir()
    require_runs(workspace.folder, tmp_path / "out" / "runs", planned=planned)


@pytest.mark.parametrize("command", ["claims", "report"])
def test_a_table_is_not_made_again_while_folders_of_its_runs_are_away(tmp_path, command):
    """The disk of the runs may not be mounted. The table then has the only numbers."""
    spec, workspace = with_a_claim(tmp_path)
    path = workspace.folder / "plan.json"
    plan = json.loads(path.read_text(encoding="utf-8"))
    first, *others = plan["runs"]
    for run in others:
        run["state"] = "done"
    path.write_text(json.dumps(plan), encoding="utf-8")
    table, runs = workspace.folder / "results.parquet", tmp_path / "out" / "runs"
    table.write_bytes(b"of the others")
    where = ["--out", str(tmp_path / "out"), "--data-root", str(tmp_path)]
    assert refusal_of(command, spec, *where) == (
        f"{workspace.folder} has results of {len(others)} runs, but {len(others)} of them are not in {runs}, and "
        "the table would lose their rows; copy their folders there, name another output root with --out, or "
        f"delete {table}.\n"
    )
    assert table.read_bytes() == b"of the others"
    require_runs(workspace.folder, runs, planned=[first["run_id"]])  # the spec has dropped the others
    for run in others:
        (runs / f"renamed-s0-{run['run_id']}").mkdir(parents=True)
    require_runs(workspace.folder, runs, planned=[run["run_id"] for run in plan["runs"]])


def test_of_two_folders_of_a_run_the_one_that_is_further_counts(tmp_path):
    """They come from two output roots that were copied together. The last by name counted, and trained again."""
    workspace = workspace_of(tmp_path, arms=ARMS)
    (item, *_) = workspace.make_run_folders(workspace.planned)
    other = item.directory.path.with_name(f"zeta-s0-{item.run_id}")
    other.mkdir()
    assert folders(tmp_path / "out")[item.run_id] == item.directory.path
    RunDirectory(other).write_state("interrupted", step=5, saved_step=5)
    assert folders(tmp_path / "out")[item.run_id] == other
    item.directory.write_state("done", step=3)
    assert folders(tmp_path / "out")[item.run_id] == item.directory.path
    (other / "state.json").write_text("cut")
    assert folders(tmp_path / "out")[item.run_id] == item.directory.path


def test_two_commands_at_once_share_a_run_whatever_its_arms_are_called(tmp_path):
    """Both opened their specs before either had made a folder. The run was trained twice, in two folders."""
    both = []
    for name in ("base", "mlm"):
        spec = tmp_path / f"{name}.yaml"
        spec.write_text(json.dumps(SPEC | {"name": name, "arms": {name: ARMS["mlm"], f"{name}2": {}}}))
        both.append(opened(spec))
    first, second = (workspace.make_run_folders(workspace.planned) for workspace in both)
    assert [item.directory.path for item in second] == [item.directory.path for item in first]
    assert second == both[1].planned
    assert {*(tmp_path / "out/runs").iterdir()} == {item.directory.path for item in first}


def test_a_spec_that_is_edited_while_it_is_trained_is_kept_as_it_was(tmp_path):
    workspace = workspace_of(tmp_path, arms=ARMS)
    before = workspace.spec.read_bytes()
    write(tmp_path, arms={"new": {"training": {"max_steps": 77}}})
    workspace.write_plan()
    assert (workspace.folder / "spec.yaml").read_bytes() == before
    assert error_text(SpecError, workspace.opened_again) == (
        f"{workspace.spec} was changed while its runs were trained, so this command ends here and keeps what is "
        "trained; start it again, and it goes on with the spec as it is now."
    )
    workspace.spec.write_bytes(b"# a comment changes no setting\n" + before)
    assert [item.run_id for item in workspace.opened_again().planned] == [
        item.run_id for item in workspace.planned
    ]


def test_looking_tokenises_nothing_and_says_that_steps_are_not_matched(spec):
    workspace = opened(spec)
    assert not (spec.parent / "out").exists()
    assert len(set(steps(workspace).values())) == 1
    sentence = (
        f"{spec}: match: predictions needs the tokens of this text, but they are not in "
        f"{spec.parent / 'out/tokens'} yet; `ablate run {spec}` writes them. Until then every arm is shown with "
        "the steps of the spec."
    )
    assert workspace.unmatched() == [sentence]
    assert workspace.warnings()[0] == sentence


def test_no_plan_of_runs_with_unknown_steps_is_written(spec):
    for write_files in (opened(spec).write_plan, opened(spec).write_results):
        with pytest.raises(SpecError, match="match: predictions needs the tokens of this text"):
            write_files()
        assert not (spec.parent / "out").exists()


def test_rows_of_a_run_are_read_once_for_table_and_plan(spec, monkeypatch):
    write(spec.parent, measures=["validation"])
    monkeypatch.setitem(gather.version.__kwdefaults__, "age", 0.0)
    workspace = opened(spec)
    [key] = [run_rows.key(measure) for measure in workspace.experiment.measures]
    cells = {"measure": "validation", "metric": "loss", "value": 3.0, "floor": 5.0, "n": 70, "step": 4, "key": key}
    rows = pd.DataFrame([dict.fromkeys(run_rows.ROW_COLUMNS) | cells])
    for item in workspace.make_run_folders(workspace.planned):
        (item.directory.path / "measures.parquet").write_bytes(sealed(rows))
        item.directory.write_state("done", step=4)
    read, read_sealed = [], run_rows.read_sealed
    monkeypatch.setattr(
        run_rows, "read_sealed", lambda path, **options: read.append(path) or read_sealed(path, **options)
    )
    workspace.write_results()
    assert read == [item.directory.path / "measures.parquet" for item in workspace.planned]
    plan = json.loads((workspace.folder / "plan.json").read_text())
    assert [run["not_measured"] for run in plan["runs"]] == [[]] * 4


def test_looking_sees_the_runs_that_were_matched_before(spec):
    made = opened(spec, tokenise=True)
    assert steps(made)["half"] < steps(made)["mlm"]
    seen = opened(spec)
    assert [item.run_id for item in seen.planned] == [item.run_id for item in made.planned]
    assert seen.unmatched() == []


def test_results_of_changed_settings_have_a_folder_of_their_own_that_says_so(spec):
    spec.write_text(json.dumps(SPEC), encoding="utf-8")
    opened(spec).write_plan()
    changed = opened(spec, overrides=["training.max_steps=6", "seeds=[1]"])
    changed.write_plan()
    assert changed.folder == spec.parent / "out/it-seeds-1-training.max_steps-6"
    assert changed.changed() == [
        "Changed by --set: seeds=[1] (the spec says [0, 1]) and training.max_steps=6 (the spec says 4). The "
        f"results go to {changed.folder}, so those of it stay as they are."
    ]
    same_folder = opened(spec, overrides=["training.max_steps=6", "name=it"])
    assert same_folder.changed() == [
        "Changed by --set: training.max_steps=6 (the spec says 4). The results go to "
        f"{spec.parent}/out/it and replace those of it; give another name to keep them."
    ]
    plan = json.loads((changed.folder / "plan.json").read_text(encoding="utf-8"))
    assert (plan["given"], plan["changed_from"]) == (
        ["seeds=[1] (the spec says [0, 1])", "training.max_steps=6 (the spec says 4)"],
        "it",
    )
    assert [run["max_steps"] for run in plan["runs"]] == [6, 2]
    again = Workspace.open(changed.folder / "spec.yaml", out=spec.parent / "out", data_root=spec.parent)
    assert again.folder == changed.folder
    assert [item.run_id for item in again.planned] == [item.run_id for item in changed.planned]
    assert "given" not in json.loads((spec.parent / "out/it/plan.json").read_text(encoding="utf-8"))
    assert opened(spec, overrides=["training.max_steps=4"]).changed() == opened(spec).changed() == []


@pytest.fixture
def done(tmp_path, monkeypatch):
    """The spec of an experiment of six runs that are trained and measured."""
    monkeypatch.setattr(gather, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(files, "SECONDS_BEFORE_READING_AGAIN", 0)
    workspace = workspace_of(tmp_path, arms=ARMS, measures=["validation"], seeds=[0, 1, 2])
    [key] = [run_rows.key(measure) for measure in workspace.experiment.measures]
    cells = {"measure": "validation", "metric": "loss", "value": 3.0, "floor": 5.0, "n": 70, "step": 4, "key": key}
    rows = pd.DataFrame([dict.fromkeys(run_rows.ROW_COLUMNS) | cells])
    for item in workspace.make_run_folders(workspace.planned):
        (item.directory.path / "measures.parquet").write_bytes(sealed(rows))
        item.directory.metrics.write_text('{"step": 4}\n')
        write_json(item.directory.path / "provenance.json", {})
        item.directory.write_state("done", step=4, max_steps=4, log_sha256=item.directory.log_sha256())
    return workspace.spec


DAMAGE = {
    "state.json": "cannot be read or has changed since it was written, so the progress of the run is unknown; "
    "delete the file, then `ablate run` continues from the last checkpoint.",
    "run.json": "cannot be read or has changed since it was written; delete the file, then `ablate run` writes "
    "it again.",
    "provenance.json": "cannot be read, so it is unknown on which machine the run started; delete the file if it "
    "was this machine.",
    "metrics.jsonl": "has changed since training ended; restore it, or delete {folder}, then `ablate run` trains "
    "the run again.",
    "measures.parquet": "is damaged (Parquet file size is 2 bytes, smaller than the minimum "
    "file footer (8 bytes)); delete it and `ablate run` measures the run again.",
}
"""Files of a run, each with the end of the sentence if it is damaged."""


def test_damaged_files_are_named_at_once_and_take_only_their_own_run_away(done, undrawn):
    places = "--out", done.parent / "out", "--data-root", done.parent
    names = [item.directory.path.name for item in opened(done).planned]
    runs = done.parent / "out" / "runs"
    damaged = [[name] for name in DAMAGE]
    damaged[-1].append("state.json")
    whys, written = {}, {}
    for folder, of_run in zip(names, damaged, strict=False):
        for name in of_run:
            path = runs / folder / name
            written[path] = path.read_bytes()
            path.write_bytes(b"{x")
        in_order = sorted(of_run, reverse=True)
        whys[folder] = " ".join(f"{runs / folder / name} {DAMAGE[name]}" for name in in_order)
        whys[folder] = whys[folder].format(folder=runs / folder)
    shown = json.loads(ablate("status", done, *places, "--json").stdout)["runs"]
    assert {run["folder"]: run["message"] for run in shown if run["state"] == "unreadable"} == whys
    assert [run["state"] for run in shown if run["folder"] not in whys] == ["done"]
    planned = json.loads(ablate("plan", done, *places, "--json").stdout)
    assert [note for note in planned["notes"] if note.partition(":")[0] in whys] == [
        f"{folder}: {why}" for folder, why in whys.items()
    ]
    for command in ("measure", "report", "run"):
        result = ablate(command, done, *places)
        assert result.stderr.startswith("".join(f"unreadable: {folder}: {why}\n" for folder, why in whys.items()))
    page = done.parent / "out/it/report.html"
    assert (result.exit_code, result.stdout) == (1, f"page: {page}\n")
    notices = [notice["text"] for notice in json.loads(page.with_name("report.json").read_text())["notices"]]
    labels = [f"{item.run.arm} (seed {item.run.seed})" for item in opened(done).planned]
    for label, why in zip(labels, whys.values(), strict=False):
        assert f"{label} is unreadable: {why}" in notices
    [whole] = opened(done).planned[len(whys) :]
    assert set(results.read(page.with_name("results.parquet"))["run_id"]) == {whole.run_id}
    result = ablate("run", done, *places, "--arm", whole.run.arm, "--seed", str(whole.run.seed))
    said = "nothing to do: every selected run is trained and measured\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{said}page: {page}\n", "")
    assert {path.read_bytes() for path in written} == {b"{x"}
    for path, content in written.items():
        path.write_bytes(content)
    result = ablate("run", done, *places)
    said = "nothing to do: every run is trained and measured\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{said}page: {page}\n", "")
    assert len(results.read(page.with_name("results.parquet"))["run_id"].unique()) == 6


def test_the_folder_of_another_person_takes_only_its_own_run_away(done, undrawn):
    places = "--out", done.parent / "out", "--data-root", done.parent
    closed, *others = (item.directory.path for item in opened(done).planned)
    why = f"{closed} cannot be read: permission is denied; change the permissions or choose another folder, then "
    why += "start again."
    results_folder = done.parent / "out/it"
    ablate("report", done, *places)
    closed.chmod(0)
    try:
        with permissions_hold():
            shown = json.loads(ablate("status", done, *places, "--json").stdout)["runs"]
            listed = ablate("figure", results_folder)
            compared = ablate("diff", results_folder, results_folder)
            reports = [
                ablate("report", results_folder, "--out", done.parent / "mine"),
                ablate("report", done, *places),
            ]
    finally:
        closed.chmod(0o700)
    states = {run["folder"]: (run["state"], run["message"]) for run in shown}
    assert states == {closed.name: ("unreadable", why)} | {path.name: ("done", None) for path in others}
    for result in (listed, *reports):
        assert (result.exit_code, result.stderr) == (1, f"unreadable: {closed.name}: {why}\n")
    assert (compared.exit_code, compared.stderr) == (2, f"{closed.name}: {why}\n")
    for out in ("out", "mine"):
        report = json.loads((done.parent / out / "it/report.json").read_text())
        assert {run["state"] for run in report["runs"]} == {"done", "unreadable"}


def test_runs_that_cannot_be_read_are_not_called_untrained(done):
    for item in opened(done).planned:
        (item.directory.path / "state.json").write_text("{x")
    result = ablate("measure", done, "--out", done.parent / "out", "--data-root", done.parent)
    assert (result.exit_code, result.stdout) == (1, "")
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["unreadable"] * 6


def test_text_is_said_to_be_unchecked_if_its_tokens_are_gone(done):
    places = "--out", done.parent / "out", "--data-root", done.parent
    assert opened(done).warnings() == [
        f"data: the tokens of this text are not in {done.parent}/out/tokens any more, so it was not checked for "
        f"unknown words and for repeated sentences; `ablate text {done}` writes them, and then `ablate report "
        f"{done}` checks the text."
    ]
    assert ablate("text", done, *places).exit_code == 0
    assert opened(done).warnings() == []


@pytest.mark.parametrize("damaged", ["null", "[1]", '{"splits": {}}', "{"])
def test_a_damaged_report_of_the_text_is_one_sentence(spec, damaged):
    workspace = opened(spec, tokenise=True)
    (path,) = (spec.parent / "out" / "tokens").glob("*/tokens.json")
    path.write_text(damaged)
    with pytest.raises(DataError) as error:
        workspace.warnings()
    why = "is missing or unreadable" if damaged == "{" else "has changed since it was written"
    assert str(error.value) == (
        f"The token store {path.parent} is damaged: tokens.json {why}; delete the folder, then `ablate run` "
        "writes it again."
    )
