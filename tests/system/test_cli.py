"""The command line as a user meets it."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import joblib
import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.runs.calibration import Calibration, flops
from lightning_modules.training.train import main as train
from tests.support.command_line import ablate, refusal_of
from tests.support.spec_files import write_spec
from tests.support.tiny_text import settings

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("undrawn")
UNTRAINED = {"objective": {"kind": "masked_lm"}, "training": {"max_steps": 0}}


@pytest.mark.parametrize("command", [None, *main.commands])
def test_every_command_explains_itself(command):
    result = ablate(*([command] if command else []), "--help")
    assert result.exit_code == 0
    assert "Usage: main" in result.output
    if command:
        assert main.commands[command].help


def test_the_list_of_commands_has_a_whole_sentence_for_each(monkeypatch):
    """In 80 columns eleven were cut: "Check spec files and the claims they name; every problem is a..."."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = ablate("--help").output.splitlines()
    shown = lines[lines.index("Commands:") + 1 :]
    assert len(shown) == len(main.commands)
    assert not [line for line in shown if "..." in line or len(line) > 80]


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("ablate val", {"plain,validate"}),
        ("ablate plan --res", {"plain,--resolved"}),
        ("ablate figure it.yaml learning --for sl", {"plain,slides"}),
        ("ablate run ex", {"file,ex"}),
    ],
)
def test_a_shell_completes_commands_options_and_files(typed, completed):
    call = "from ablations.cli import main; main(prog_name='ablate')"
    asked = {"_ABLATE_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    result = subprocess.run([sys.executable, "-c", call], env=os.environ | asked, capture_output=True, text=True)
    assert set(result.stdout.splitlines()) == completed


def test_validate_counts_runs_that_arms_share_once(tmp_path, data_root):
    spec = write_spec(tmp_path, grid={"base": "mlm", "axes": {"objective.masking.ratio": [0.15, 0.4]}})
    assert ablate("validate", spec, "--data-root", data_root).stdout == (
        f"{spec}: good, 6 runs\n"
        "  mlm and mlm,ratio=0.15 have equal settings, so they share their runs and every difference between them "
        "is 0.\n"
    )


def test_validate_names_every_problem_of_every_file_and_exits_with_2(tmp_path, data_root):
    good = write_spec(tmp_path)
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        good.read_text().replace('"max_steps"', '"max_step"').replace('"seeds": [0, 1]', '"seeds": [0, 0]')
    )
    result = ablate("validate", good, bad, "--data-root", data_root)
    assert result.exit_code == 2
    assert f"{good}: good, 4 runs" in result.stdout
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"{bad}:1:") for line in lines)
    assert "max_steps" in lines[0]
    assert ablate("validate", good, "--data-root", data_root).exit_code == 0
    assert ablate("validate").exit_code == 2
    again = ablate("validate", bad, bad, "--data-root", data_root)
    assert (again.exit_code, again.stderr) == (2, result.stderr)  # each problem once
    assert json.loads(ablate("validate", "--schema").stdout)["title"] == "Experiment"


def test_plan_as_json_says_what_there_is_to_do(tmp_path, data_root):
    spec = write_spec(tmp_path)
    result = ablate("plan", spec, "--json", "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert list(told) == ["experiment", "runs", "pairs_to_compare", "left_out", "seconds", "notes"]
    assert told["experiment"] == "tried"
    assert told["seconds"] is None
    assert [(run["arm"], run["seed"]) for run in told["runs"]] == [("mlm", 0), ("mlm", 1), ("mt", 0), ("mt", 1)]
    keys = {"run_id", "arm", "seed", "state", "max_steps", "tokens", "parameters", "flops", "seconds"}
    assert all(keys <= set(run) for run in told["runs"])
    assert {run["state"] for run in told["runs"]} == {"planned"}
    assert not (tmp_path / "out").exists()  # looking writes nothing
    resolved = json.loads(ablate("plan", spec, "--resolved").stdout)
    assert resolved["arms"]["mlm"]["training"]["warmup_steps"] == 0


def test_plan_says_which_operations_are_a_bound(tmp_path, data_root):
    where = ["--out", tmp_path / "out", "--data-root", data_root]
    assert "FLOPs of" not in ablate("plan", write_spec(tmp_path), *where).stdout
    cloze = {"objective": {"kind": "masked_lm", "masking": {"select": {"kind": "cloze", "words": ["der"]}}}}
    arms = {"mlm": {"objective": {"kind": "masked_lm"}}, "words": {"objective": {"kind": "skip_gram"}}}
    arms["der"] = cloze
    assert (
        "\nFLOPs of words are an upper bound: only a third to a half of the pairs of words is left, because "
        "sentences end and frequent words are left out; the run counts the text.\n"
        "FLOPs of der are an upper bound: a sentence may have fewer tokens that may be hidden than masking.ratio "
        "asks for; the run counts the text.\n"
    ) in ablate("plan", write_spec(tmp_path, arms=arms), *where).stdout


def test_status_says_which_measures_of_a_trained_run_are_missing(tmp_path, data_root):
    spec = write_spec(tmp_path, arms={"untrained": UNTRAINED}, seeds=[0])
    where = ["--out", tmp_path / "out", "--data-root", data_root]
    assert ablate("run", spec, *where).exit_code == 0
    assert "not measured" not in ablate("status", spec, *where).stdout
    spec = write_spec(tmp_path, arms={"untrained": UNTRAINED}, seeds=[0], measures=["validation", "layer_change"])
    told = ablate("status", spec, *where, "--json")
    (run,) = json.loads(told.stdout)["runs"]
    assert (run["state"], run["not_measured"]) == ("done", ["layer_change"])
    *_, row, unmeasured = ablate("status", spec, *where).stdout.splitlines()
    assert unmeasured == f"{run['folder']}: not measured: layer_change"
    assert " 1 to measure " in row
    assert " trained " in ablate("status", "--out", tmp_path / "out").stdout  # which asks nobody what to measure


def test_a_measure_that_is_missing_is_to_do_and_why_it_was_refused_is_said_everywhere(tmp_path, data_root):
    root = tmp_path / "root"
    shutil.copytree(data_root, root)
    damaged = root / "classification/mrpc"
    damaged.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (damaged / f"{split}.parquet").write_bytes(b"cut off")
    where = ["--out", tmp_path / "out", "--data-root", root]
    arms = {"untrained": UNTRAINED}
    assert ablate("run", write_spec(tmp_path, arms=arms, seeds=[0]), *where).exit_code == 0
    tasks = {"kind": "baselines", "tasks": ["mrpc", "sst2"]}  # of sst2 there is no file
    spec = write_spec(tmp_path, arms=arms, seeds=[0], measures=["validation", tasks, "geometry"])
    planned = ablate("plan", spec, *where).stdout
    assert " 2 to measure " in planned
    assert "\nTo measure: baselines (mrpc), geometry of untrained (seed 0).\n" in planned
    not_run = f"baselines: sst2 not run: classification/sst2/train.parquet is not in {root}."
    assert f"\n{not_run}\n" in planned
    assert ablate("validate", spec, "--data-root", root).stdout == f"{spec}: good, 1 run\n  {not_run}\n"
    assert ablate("validate", spec, "--no-files").stdout == f"{spec}: good, 1 run\n"
    assert (
        "\nThe time does not include baselines and geometry. Measures take extra time, which is unknown "
        "until one run has been measured here without interruption.\n"
    ) in planned
    assert planned.endswith("\n1 run, 1 to do; time left: unknown\n")

    done = ablate("run", spec, *where)
    assert done.exit_code == 1
    why = f"task mrpc: {damaged}/train.parquet cannot be read as parquet: "
    assert f": baselines mrpc: {why}" in done.stdout
    told = json.loads(ablate("plan", spec, *where, "--json").stdout)
    (run,) = told["runs"]
    assert (run["state"], run["not_measured"]) == ("done", ["baselines mrpc"])
    assert run["refused"]["baselines mrpc"].startswith(why)
    assert told["left_out"] == ["baselines"]
    assert f"\nThe last attempt to measure baselines mrpc failed: {why}" in ablate("plan", spec, *where).stdout
    status = ablate("status", spec, *where).stdout
    assert f"{run['folder']}: not measured: baselines (mrpc)\n" in status
    assert f"{run['folder']}: baselines mrpc was refused: {why}" in status
    page = json.loads((tmp_path / "out/tried/report.json").read_text())
    assert "all trained and none measured to the end" in page["summary"]
    said = [notice["text"] for notice in page["notices"]]
    assert [text for text in said if text.startswith("Asked for")] == [
        f"Asked for, but refused: baselines mrpc: {run['refused']['baselines mrpc']}"
    ]
    assert not_run in said
    shutil.rmtree(damaged)
    assert ablate("run", spec, *where).exit_code == 0
    assert "1 run, 0 to do; time left: 0:00:00" in ablate("plan", spec, *where).stdout


def test_measuring_before_anything_is_trained_is_a_sentence(tmp_path, data_root):
    spec = write_spec(tmp_path)
    assert (
        refusal_of("measure", spec, "--out", tmp_path / "out", "--data-root", data_root)
        == f"{spec}: no run is trained yet, so there is nothing to measure; start `ablate run`.\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_trained_run_without_its_checkpoint_is_named_with_what_measures_it_again(tmp_path, data_root):
    spec = write_spec(tmp_path, arms={"untrained": UNTRAINED}, seeds=[0, 1])
    where = ["--out", tmp_path / "out", "--data-root", data_root]
    assert ablate("run", spec, *where).exit_code == 0
    first, _ = sorted((tmp_path / "out/runs").iterdir())
    (first / "checkpoints/last.ckpt").unlink()
    rows = (first / "measures.parquet").read_bytes()
    result = ablate("measure", spec, *where)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == (
        "Not measured again, because the last checkpoint is missing or damaged: untrained (seed 0). Their earlier "
        "rows stay; to train them again, delete their folders and start `ablate run`."
    )
    assert (first / "measures.parquet").read_bytes() == rows
    shutil.rmtree(first)
    assert ablate("run", spec, *where).exit_code == 0
    assert (first / "checkpoints/last.ckpt").exists()


def test_the_description_of_a_done_run_is_written_again(tmp_path, data_root):
    spec = write_spec(tmp_path, arms={"untrained": UNTRAINED}, seeds=[0])
    where = ["--out", tmp_path / "out", "--data-root", data_root]
    assert ablate("run", spec, *where).exit_code == 0
    (run,) = (tmp_path / "out/runs").iterdir()
    path = run / "run.json"
    before = path.read_bytes()
    path.write_bytes(before.replace(b"untrained", b"untrainde"))
    assert refusal_of("export", run, tmp_path / "model") == (
        f"{path} cannot be read or has changed since it was written; delete the file, then `ablate run` writes it "
        "again.\n"
    )
    path.unlink()
    assert (
        refusal_of("export", run, tmp_path / "model")
        == f"{path} is missing; start `ablate run` with the spec of the run, which writes it again.\n"
    )
    result = ablate("run", spec, *where)
    assert result.exit_code == 0
    assert result.stdout.startswith("nothing to do: every run is trained and measured\n")
    assert path.read_bytes() == before


def test_a_command_that_compares_runs_or_selects_some_does_not_claim_that_all_is_done(tmp_path, data_root):
    arms = {"untrained": UNTRAINED, "other": {**UNTRAINED, "objective": {"kind": "causal_lm"}}}
    where = ["--out", str(tmp_path / "out"), "--data-root", str(data_root)]
    spec = write_spec(tmp_path, arms=arms, seeds=[0])
    assert ablate("run", spec, *where).exit_code == 0
    selected = ablate("run", spec, *where, "--arm", "untrained")
    assert selected.stdout.startswith("nothing to do: every selected run is trained and measured\n")
    spec = write_spec(
        tmp_path, arms=arms, seeds=[0], measures=["validation", {"kind": "run_distance", "tokens": 300}]
    )
    compared = ablate("run", spec, *where)
    assert (compared.exit_code, "nothing to do" in compared.output) == (0, False)


def test_a_finished_experiment_is_left_as_it_is_without_torch_and_figures(tmp_path, data_root):
    spec = write_spec(tmp_path, arms={"untrained": UNTRAINED}, seeds=[0])
    where = ["--out", str(tmp_path / "out"), "--data-root", str(data_root)]
    assert ablate("run", spec, *where).exit_code == 0
    page = tmp_path / "out/tried/report.html"
    before = page.stat().st_mtime_ns
    script = (
        "import atexit, sys\n"
        "from ablations.cli import main\n"
        "atexit.register(lambda: print(sorted({'torch', 'seaborn'} & set(sys.modules))))\n"
        f"main(['run', {str(spec)!r}, *{where!r}], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"nothing to do: every run is trained and measured\npage: {page}\n[]\n"
    assert page.stat().st_mtime_ns == before
    page.unlink()
    assert ablate("run", spec, *where).exit_code == 0
    assert page.exists()
    published = tmp_path / "results" / "tried"
    told = ablate("report", spec, *where, "--publish", published.parent)
    assert told.stdout == f"page: {page}\npublished: {published}\n"
    assert {"report.md", "results.parquet", "spec.yaml", "provenance.json"} <= {
        path.name for path in published.iterdir()
    }


def test_ctrl_c_during_the_imports_ends_the_command_without_a_traceback(tmp_path):
    """In the place of click a module that Ctrl-C interrupts."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")  # as the handler of SIGINT does
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["ablate"]
    module, _, function = script.partition(":")
    command = [sys.executable, "-c", f"import {module}; {module}.{function}()"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_terminal_without_utf_8_gets_every_sign_that_it_lacks_by_its_number(tmp_path):
    """As the minus signs of `ablate diff`."""
    path = shutil.copy(ROOT / "experiments/smoke.yaml", tmp_path / "\N{MINUS SIGN}1.yaml")
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-c", "import ablations; ablations.main()", "validate", str(path)]
    ended = subprocess.run(command, env=environment, capture_output=True, encoding="latin-1")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"{tmp_path}/\\u22121.yaml: good, 18 runs\n"


def test_sigterm_before_the_first_run_leaves_nothing_half_written(tmp_path, data_root):
    many = tmp_path / "many.txt"
    many.write_text((data_root / "train.tsv").read_text().replace("\t", " ") * 100)
    few = str(data_root / "validation.tsv")
    spec = write_spec(
        tmp_path,
        data={"kind": "files", "train": str(many), "validation": few, "vocab_size": 320, "max_length": 64},
        arms={"mlm": {"objective": {"kind": "masked_lm"}}},
    )
    options = ["--out", str(tmp_path / "out"), "--slots", "1"]
    command = [sys.executable, "-m", "ablations.cli", "run", str(spec), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert "Reading data.train." in process.stdout.readline()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not list((tmp_path / "out").glob("runs/*"))
    assert not list((tmp_path / "out").rglob("*.npy"))


def test_a_folder_that_was_deleted_is_a_sentence(tmp_path, monkeypatch):
    deleted = tmp_path / "deleted"
    deleted.mkdir()
    monkeypatch.chdir(deleted)
    deleted.rmdir()
    result = ablate("status", "spec.yaml")
    assert result.exit_code == 2
    assert result.stderr == "The current folder was deleted; change to another one, then start again.\n"


@pytest.mark.parametrize(
    "error", [MemoryError(), ImportError("libtorch_cpu.so: failed to map segment from shared object")], ids=repr
)
def test_too_little_memory_for_a_command_is_a_sentence(monkeypatch, error):
    def invoke(*arguments):
        raise error

    monkeypatch.setattr(click.Group, "invoke", invoke)
    result = ablate("status", "spec.yaml")
    assert result.exit_code == 2
    assert result.stderr == (
        "This command ran out of memory; end other programs, or raise the limit (ulimit -v), then start it again. "
        "What is trained and measured stays.\n"
    )


def test_another_missing_library_is_no_lack_of_memory(monkeypatch):
    def invoke(*arguments):
        raise ImportError("no_such_library")

    monkeypatch.setattr(click.Group, "invoke", invoke)
    assert isinstance(ablate("status", "spec.yaml").exception, ImportError)


def test_an_arm_that_is_not_there_is_a_sentence(tmp_path, data_root):
    spec = write_spec(tmp_path)
    assert (
        refusal_of("run", spec, "--arm", "clm", "--out", tmp_path / "out", "--data-root", data_root)
        == f"--arm clm: {spec} has no such arm; it has mlm, mt.\n"
    )


def test_an_output_root_that_is_a_file_is_a_sentence(tmp_path, data_root):
    (tmp_path / "out").write_text("in the way")
    result = ablate("run", write_spec(tmp_path), "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"Error: Invalid value for '--out': Directory '{tmp_path / 'out'}' is a file."
    )


def test_a_dry_run_does_nothing(tmp_path, data_root):
    result = ablate("run", write_spec(tmp_path), "--dry-run", "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 0
    assert "4 runs, 4 to do" in result.stdout
    assert not (tmp_path / "out").exists()


def test_doctor_finds_nothing_wrong_here_and_a_dangerous_environment(tmp_path, monkeypatch):
    rates = [("32-true", 32, 3.4e8), ("32-true", 64, 1.2e11), ("bf16-mixed", 64, 1.8e11)]
    monkeypatch.setattr("ablations.doctor.step_rates", lambda threads: iter(rates))
    monkeypatch.setattr(joblib, "cpu_count", lambda: 1)
    result = ablate("doctor", "--out", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-3:] == [
        "training, 32-true       0.34 GFLOP/s at width 32, threads: 1",  # was shown as 0
        "training, 32-true       120 GFLOP/s at width 64, threads: 1",
        "training, bf16-mixed    180 GFLOP/s at width 64, threads: 1",
    ]
    run = settings(training={"precision": "bf16-mixed"})
    assert Calibration(tmp_path).training_seconds(run, threads=1) == flops(run) / 1.8e11
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    result = ablate("doctor", "--out", tmp_path)
    assert result.exit_code == 1
    assert "is set, so a checkpoint could execute code; unset it" in result.output


def test_training_refuses_an_environment_that_lets_checkpoints_execute_code(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    for of_the_process in ("keep_freed_memory", "StopRequest.install"):  # which is that of the tests
        monkeypatch.setattr(f"lightning_modules.training.train.{of_the_process}", lambda *_: None)
    done = CliRunner().invoke(train, [str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr == (
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, so a checkpoint could execute code; unset this variable.\n"
    )


def test_a_folder_without_runs_is_said_and_one_that_cannot_be_made_is_refused(tmp_path, data_root):
    none = f"{tmp_path}/gone has no runs; name the folder of your runs with --out, or start `ablate run`.\n"
    assert ablate("status", "--out", tmp_path / "gone").stdout == none
    assert json.loads(ablate("status", "--json", "--out", tmp_path / "gone").stdout) == {"runs": [], "notes": []}
    spec = write_spec(tmp_path)
    for command in (["plan"], ["run", "--dry-run"], ["run"]):
        result = ablate(*command, spec, "--out", "/proc/x", "--data-root", data_root)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == (
            "/proc/x cannot be written: no folder can be created there; choose another folder, then start again.\n"
        )
