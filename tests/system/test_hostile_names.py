"""Names that lead out of a folder, and links that somebody planted: nothing is read or written outside."""

import ast
import json
import os
import time
from pathlib import Path

import pytest
import torch

from ablations.results import write_whole
from ablations.runs import worker
from ablations.spec import load
from lightning_modules.errors import AblationsError
from lightning_modules.files import FilesError, whole_folder, write_json
from lightning_modules.training.checkpoint import AtomicCheckpoints, write_safetensors
from lightning_modules.training.log import JsonLinesLogger
from lightning_modules.training.run_directory import RunDirectory
from reports import folder as results_folder
from reports.page import page
from tests.support.errors import error_text
from tests.support.fake_experiment import write
from tests.support.hostile import NAMES, watched

ROOT = Path(__file__).parents[2]
SPEC = {"name": "it", "version": 1, "data": {"kind": "language"}, "seeds": [0], "measures": ["validation"]}


@pytest.mark.parametrize("place", ["experiment", "arm", "claims"])
def test_a_name_in_a_spec_is_refused_or_stays_in_its_folder(tmp_path, place):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC | {"arms": {"mlm": {"objective": {"kind": "masked_lm"}}}}))
    load.load(path)  # imports, which write files of their own
    accepted, sentences = 0, []
    for name in NAMES:
        arm = {"objective": {"kind": "masked_lm"}}
        spec = SPEC | {"arms": {name if place == "arm" else "mlm": arm}}
        spec |= {"name": name} if place == "experiment" else {"claims": [name]} if place == "claims" else {}
        path.write_text(json.dumps(spec))
        begin = time.process_time()
        with watched() as seen:
            try:
                load.load(path)
                accepted += 1
                assert (tmp_path / "out" / name).resolve().parent == (tmp_path / "out").resolve(), name
                assert len(name.encode()) <= 255, name
            except AblationsError as error:
                sentences += map(str, error.problems)
        assert seen == [], name
        assert time.process_time() - begin < 1, name
    assert accepted < 20
    assert len(sentences) >= len(NAMES) - accepted
    assert all(sentence.startswith(f"{path}:") and "\n" not in sentence for sentence in sentences)


def test_a_run_of_a_plan_that_leads_out_of_the_runs_is_refused(tmp_path):
    """A folder of results may come from somebody else."""
    folder = write(tmp_path / "out", arms=("mlm",), seeds=(0,))
    path = folder / "plan.json"
    plan = json.loads(path.read_text())
    outside = {"state.json": {"state": "done", "message": "secret"}, "run.json": {}, "provenance.json": {}}
    for name, content in outside.items():
        (tmp_path / name).write_text(json.dumps(content))
    sentences = []
    for name in (*NAMES, "../..", "../../"):
        path.write_text(json.dumps(plan | {"runs": [run | {"folder": name} for run in plan["runs"]]}))
        try:
            (run,) = results_folder.read(folder).runs
            assert run.state.message is None, name
        except AblationsError as error:
            sentences.append(str(error))
    assert len(sentences) > 20
    assert all(sentence.startswith(str(tmp_path)) and "\n" not in sentence for sentence in sentences)


WRITERS = {
    "json": lambda path: write_json(path, {}),
    "bytes": lambda path: write_whole(path, b"new"),
    "checkpoint": lambda path: AtomicCheckpoints().save_checkpoint({}, path),
    "weights": lambda path: write_safetensors({"a": torch.zeros(1)}, path),
}
LINKS = (
    "victim",
    "../victim",
    "{there}/victim",
    "folder",
    "missing",
    "folder/missing",
    "link",
    "/proc/self/environ",
)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_takes_the_place_of_a_link_and_is_not_written_through_it(tmp_path, name):
    cases = 0
    for number, target in enumerate(target for target in LINKS for _ in range(6)):
        here = tmp_path / f"run-{number}"
        (here / "folder").mkdir(parents=True)
        for victim in (here / "victim", tmp_path / "victim", here / "folder/kept"):
            victim.write_text("old")
        link = here / "link"
        link.symlink_to(target.format(there=tmp_path))
        WRITERS[name](link)
        assert link.is_file()
        assert not link.is_symlink()
        assert {path.read_text() for path in (here / "victim", tmp_path / "victim", here / "folder/kept")} == {
            "old"
        }
        assert sorted(path.name for path in here.iterdir()) == ["folder", "link", "victim"]
        assert [path.name for path in (here / "folder").iterdir()] == ["kept"]
        cases += 1
    assert cases == 48


def test_the_state_and_the_log_of_a_run_take_the_place_of_links(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text('{"step": 1}\n')
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    (run.path / "state.json").symlink_to(tmp_path / "missing")
    run.metrics.symlink_to(victim)
    run.write_state("running", step=1)
    run.cut_log(0, sha256=None)
    run.metrics.write_text("new")
    assert not (tmp_path / "missing").exists()
    assert victim.read_text() == '{"step": 1}\n'


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl", "log.txt"])
def test_nothing_is_added_to_a_file_behind_a_link(tmp_path, name):
    """A link to a file that is not there would make it, one to a file that is there would change it."""
    victim = tmp_path / "victim"
    victim.write_text("old")
    for number, target in enumerate((victim, tmp_path / "missing")):
        run = RunDirectory(tmp_path / f"run-{number}")
        run.path.mkdir()
        (run.path / name).symlink_to(target)
        assert error_text(FilesError, _add_to, run, name) == (
            f"{run.path / name} cannot be written: it is a link, or a link in its path leads back to itself; "
            "remove the link, then start again."
        )
    assert victim.read_text() == "old"
    assert not (tmp_path / "missing").exists()
    (run.path / name).unlink()
    _add_to(run, name)
    assert (run.path / name).is_file()


def _add_to(run, name):
    if name == "lock":
        with run.lock():
            assert run.is_locked()
    elif name == "log.txt":
        with worker._output_to(run.path / name):
            os.write(1, b"new")
    else:
        JsonLinesLogger(run).log_metrics({"loss": 1.0}, step=1)


def test_who_asks_whether_a_run_is_locked_writes_nothing(tmp_path):
    run = RunDirectory(tmp_path)
    assert not run.is_locked()
    assert list(tmp_path.iterdir()) == []
    with run.lock():
        assert run.is_locked()
    assert not run.is_locked()
    assert not RunDirectory(tmp_path / "missing").is_locked()


@pytest.mark.parametrize("target", ["folder", "missing", "link"])
def test_a_folder_is_not_written_through_a_link(tmp_path, target):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(FilesError), whole_folder(link) as temporary:
        (temporary / "new").write_text("x")
    assert list((tmp_path / "folder").iterdir()) == []
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("name", ["figures/theirs.svg", "figures/../theirs.svg", "../theirs.svg", "/theirs.svg"])
def test_a_page_removes_no_file_outside_its_folder(tmp_path, undrawn, name):
    """An earlier page names the files that a new one replaces, and a folder of figures may be a link."""
    folder, victims = write(tmp_path / "out", arms=("mlm",), seeds=(0,)), tmp_path / "victims"
    victims.mkdir()
    for victim in (victims / "theirs.svg", tmp_path / "out" / "theirs.svg", folder / "theirs.svg"):
        victim.write_text("x")
    (folder / "figures").symlink_to(victims)
    (folder / "report.json").write_text(json.dumps({"files": [name]}))
    page.write(folder)
    assert (victims / "theirs.svg").exists()
    assert (folder / "theirs.svg").exists()
    assert (tmp_path / "out" / "theirs.svg").exists()


def test_no_module_unpacks_archives_or_executes_what_it_reads():
    """Whoever wants one of these has to say here why it is safe."""
    forbidden = {"unpack_archive", "extractall", "load_from_checkpoint", "full_load", "unsafe_load", "system"}
    modules = {"tarfile", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml", "xml"}
    for package in ("lightning_modules", "ablations", "reports"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    by_name = {"eval", "exec"} & {getattr(node.func, "id", "")}  # a module of torch has an eval
                    by_name -= {"exec"} if path.name == "plugins.py" else set()  # which executes what a spec names
                    assert not by_name, f"{path}:{node.lineno}"
                    assert called not in forbidden, f"{path}:{node.lineno} {called}"
                    given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                    assert given.get("trust_remote_code", "False") == "False", f"{path}:{node.lineno}"
                    assert given.get("weights_only", "True") == "True", f"{path}:{node.lineno}"
                    assert given.get("shell", "False") == "False", f"{path}:{node.lineno}"
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if isinstance(node, ast.ImportFrom) and ast.unparse(node) == "from joblib import cpu_count":
                    continue  # which reads how many cores there are, and nothing else
                foreign = {name.partition(".")[0] for name in names} & modules
                assert not foreign, f"{path} {foreign}"
                if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "pickle":
                    assert node.attr == "UnpicklingError", f"{path}:{node.lineno}"
