"""The command line as a user meets it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.measures.information.estimate import halves
from ablations.measures.reading.sample import first_tokens
from ablations.runs.calibration import Calibration, flops
from lightning_modules.data.token_store import load
from lightning_modules.training.train import main as train
from tests.support.spec_files import write_spec
from tests.support.tiny_text import settings

ROOT = Path(__file__).parents[2]
UNTRAINED = {"objective": {"kind": "masked_lm"}, "training": {"max_steps": 0}}


def ablate(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


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


def test_plan_says_that_the_operations_of_word_vectors_are_a_bound(tmp_path, data_root):
    where = ["--out", tmp_path / "out", "--data-root", data_root]
    assert "FLOPs of" not in ablate("plan", write_spec(tmp_path), *where).stdout
    arms = {"mlm": {"objective": {"kind": "masked_lm"}}, "words": {"objective": {"kind": "skip_gram"}}}
    assert (
        "\nFLOPs of words are an upper bound: only a third to a half of the pairs of words is left, because "
        "sentences end and frequent words are left out; the run counts the exact number.\n"
    ) in ablate("plan", write_spec(tmp_path, arms=arms), *where).stdout


def test_missing_text_is_found_before_the_first_run(tmp_path, data_root, monkeypatch):
    spec = write_spec(tmp_path)
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", tmp_path)
    assert result.exit_code == 2
    gone = "".join(
        f"{spec}:{place_of(spec, name + '.tsv', before=1)}: {tmp_path / name}.tsv does not exist "
        f"(data.{name}; relative paths "
        f"start at --data-root); correct the path.\n"
        for name in ("train", "validation")
    )
    assert result.stderr == gone
    assert not (tmp_path / "out").exists()
    assert ablate("validate", spec, "--no-files").exit_code == 0  # the spec alone is good
    result = ablate("validate", spec, "--data-root", tmp_path)
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", gone)
    monkeypatch.chdir(tmp_path)
    assert ablate("validate", spec).stderr == gone  # where every command looks unless it is told otherwise
    assert ablate("validate", spec, "--data-root", data_root).stdout == f"{spec}: good, 4 runs\n"


def test_validate_finds_all_files_that_are_not_there_at_once(tmp_path):
    spec = tmp_path / "names.yaml"
    spec.write_text(
        "name: names\nversion: 1\ndata: {kind: files, train: a.csv, validation: a.csv, document: book}\n"
        "training: {max_steps: 2, tokens_per_step: 128}\nobjective: {kind: masked_lm}\n"
        "arms:\n  all: {}\n  more: {data: {train: [a.csv, b.csv]}}\n"
        "  words: {objective: {masking: {select: {kind: cloze, file: gone.txt}}}}\n"
        "  tags: {objective: {masking: {select: {kind: cloze, part_of_speech: [NOUN], treebank: t.parquet}}}}\n"
        "seeds: [0, 1]\nmeasures: [{kind: layer_change, treebank: gone.conllu}]\n"
    )
    (tmp_path / "a.csv").write_text("text\na dog barks\n")
    result = ablate("validate", spec, "--data-root", tmp_path)
    no_book = (
        f"{tmp_path}/a.csv has no column 'book' (data.document), only 'text'; set data.document to one of these."
    )
    root = "relative paths start at --data-root); correct the path."
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"{spec}:{place_of(spec, 'book')}: {no_book}",
        f"{spec}:{place_of(spec, '[a.csv')}: arm more: {tmp_path}/b.csv does not exist (data.train; {root}",
        f"{spec}:{place_of(spec, 'gone.txt')}: arm words: {tmp_path}/gone.txt does not exist "
        f"(objective.masking.select.file; {root}",
        f"{spec}:{place_of(spec, 't.parquet')}: arm tags: {tmp_path}/t.parquet does not exist "
        f"(objective.masking.select.treebank; {root}",
        f"{spec}:{place_of(spec, '{kind: layer_change')}: measure layer_change: {tmp_path}/gone.conllu does not "
        f"exist, expected a treebank; correct the path.",
    ]


def test_a_text_that_is_no_utf_8_is_said_once_where_its_file_is_named(tmp_path, data_root):
    (tmp_path / "old.txt").write_text("a dog barks\n", encoding="utf-16")
    (tmp_path / "good.txt").write_text("a dog barks\n")
    spec = write_spec(
        tmp_path,
        data={"kind": "files", "train": ["good.txt", "old.txt"], "validation": "good.txt", "vocab_size": 320},
        arms={"mlm": {"objective": {"kind": "masked_lm"}}, "clm": {"objective": {"kind": "causal_lm"}}},
    )
    assert ablate("validate", spec, "--data-root", tmp_path).stderr == (
        f"{spec}:{place_of(spec, '[' + chr(34) + 'good.txt')}: {tmp_path}/old.txt, line 1: byte 0xff at "
        "position 1 of the line is not UTF-8; convert the file to UTF-8, or remove the line.\n"
    )


def test_a_vocabulary_that_the_text_cannot_fill_is_said_at_its_line(tmp_path, data_root):
    data = json.loads(write_spec(tmp_path).read_text())["data"]
    spec = write_spec(tmp_path, data=data | {"vocab_size": 54321})
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    assert re.sub(r"(only|most) [\d,]+\d", r"\1 N", result.stderr) == (
        f"{spec}:{place_of(spec, '54321')}: data.vocab_size is 54,321, but the sentences of data.train give "
        "only N sub-words; lower it to at most N, or give more text.\n"
    )


def test_a_column_that_is_not_there_is_found_before_the_first_run(tmp_path, data_root):
    spec = write_spec(tmp_path)
    spec.write_text(spec.read_text().replace('"target": "target"', '"target": "german"'))
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    assert "german" in result.stderr
    assert "target" in result.stderr
    assert not (tmp_path / "out").exists()


def place_of(spec, value, after="", before=0):
    """Line and column of a value in a file, or so many characters before it, or of what follows some text "
    "in it."""
    written = spec.read_text()
    at = written.index(after, written.index(value)) + len(after) - before
    return f"{written.count(chr(10), 0, at) + 1}:{at - written.rfind(chr(10), 0, at)}"


def test_sentences_that_the_text_does_not_have_are_found_before_the_first_run(tmp_path, data_root):
    few, many = ({"training": {"sentences": count}, "objective": {"kind": "masked_lm"}} for count in (3, 10**6))
    for arm, sentence in (
        (
            many,
            "training.sentences is 1,000,000, but data.train has only {sentences:,} sentences; lower it, give "
            "more text, or remove the setting to use all sentences.",
        ),
        (
            few,
            "a step has 128 tokens (training.tokens_per_step), but the training text has only {tokens:,} with "
            "training.sentences = 3; give more text, or lower training.tokens_per_step.",
        ),
    ):
        spec = write_spec(tmp_path, arms={"part": arm})
        result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
        store = next(path for path in (tmp_path / "out/tokens").iterdir() if path.is_dir())
        text = load(store).train
        wanted = sentence.format(sentences=len(text), tokens=text.offsets[3])
        assert result.exit_code == 2
        assert result.stderr.partition(": arm part: ")[2] == wanted + "\n"
    assert not (tmp_path / "out/runs").exists()


def test_a_step_larger_than_the_text_is_found_before_the_first_run(tmp_path, data_root):
    spec = write_spec(tmp_path, training={"max_steps": 4, "tokens_per_step": 10**6})
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    store = next(path for path in (tmp_path / "out/tokens").iterdir() if path.is_dir())
    there = len(load(store).train.ids)
    assert result.stderr == (
        f"{spec}:{place_of(spec, '1000000')}: arm mlm: a step has 1,000,000 tokens (training.tokens_per_step), "
        f"but the training text has only {there:,}; give more text, or lower training.tokens_per_step.\n"
    )
    assert not (tmp_path / "out/runs").exists()


@pytest.mark.parametrize(
    ("measure", "sentence"),
    [
        (
            {"kind": "layer_change", "tokens": 100},
            "layer_change needs at least 5 tokens per feature, which is 160 at a width of 32, but got "
            "{there}; give more tokens or fewer features.",
        ),
        (
            {"kind": "token_information", "tokens": 100, "clusters": 50},
            "each half of the sentences needs at least 5 tokens per cluster, 250 with clusters = 50, but the "
            "halves hold {halves[0]} and {halves[1]}; use more text or lower clusters to at most {enough_for}.",
        ),
    ],
)
def test_text_too_short_for_a_measure_is_found_before_the_first_run(tmp_path, data_root, measure, sentence):
    wide = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2}
    spec = write_spec(tmp_path, encoder=wide, measures=["validation", measure])
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    store = next(path for path in (tmp_path / "out/tokens").iterdir() if path.is_dir())
    sample = first_tokens(load(store).validation, 100)
    there = len(sample.token_N)
    sizes = np.bincount(halves(sample.sentence_N, rng=np.random.default_rng(0).spawn(1)[0]))
    told = sentence.format(there=there, halves=sizes, enough_for=sizes.min() // 5)
    place = place_of(spec, json.dumps(measure))
    assert result.stderr == f"{spec}:{place}: arm mlm: measure {measure['kind']}: {told}\n"
    assert not (tmp_path / "out/runs").exists()


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
    assert " 1/2 measured " in row
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
    assert " 1/3 measured " in planned
    assert "\nTo measure: baselines (mrpc), geometry of untrained (seed 0).\n" in planned
    not_run = f"baselines: sst2 not run: classification/sst2/train.parquet is not in {root}."
    assert f"\n{not_run}\n" in planned
    assert ablate("validate", spec, "--data-root", root).stdout == f"{spec}: good, 1 run\n  {not_run}\n"
    assert ablate("validate", spec, "--no-files").stdout == f"{spec}: good, 1 run\n"
    assert (
        "\nThe time does not include baselines and geometry: the duration of a measure is known only after a "
        "run of the same kind was trained and measured here without interruption.\n"
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
    result = ablate("measure", spec, "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    assert result.stderr == (
        f"{spec}: no run is trained yet, so there is nothing to measure; start `ablate run`.\n"
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
    result = ablate("export", run, tmp_path / "model")
    assert (result.exit_code, result.stderr) == (
        2,
        f"{path} cannot be read or has changed since it was written; delete the file, then `ablate run` writes it "
        "again.\n",
    )
    path.unlink()
    result = ablate("export", run, tmp_path / "model")
    assert (result.exit_code, result.stderr) == (
        2,
        f"{path} is missing; start `ablate run` with the spec of the run, which writes it again.\n",
    )
    result = ablate("run", spec, *where)
    assert result.exit_code == 0
    assert result.stdout.startswith("nothing to do: every run is trained and measured\n")
    assert path.read_bytes() == before


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


def test_an_arm_that_is_not_there_is_a_sentence(tmp_path, data_root):
    spec = write_spec(tmp_path)
    result = ablate("run", spec, "--arm", "clm", "--out", tmp_path / "out", "--data-root", data_root)
    assert result.exit_code == 2
    assert result.stderr == f"--arm clm: {spec} has no such arm; it has mlm, mt.\n"


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
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
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


@pytest.mark.parametrize(
    ("arm", "sentence"),
    [
        (
            "{objective: {kind: masked_lm, masking: {select: {kind: cloze, words: [zzz]}}}}",
            r"objective\.masking\.select: none of the words of the lexicon \(1\) occurs in data\.train, so "
            r"nothing could be hidden; give words that occur in the text\.",
        ),
        (
            "{objective: {kind: masked_lm, masking: {select: {kind: pmi, least_count: 1000000}}}}",
            r"objective\.masking\.select: pmi needs word n-grams that occur at least 1000000 times "
            r"\(least_count\), but no two words of the training text \([\d,]+\) are neighbours "
            r"so often; lower least_count, or give more text\.",
        ),
        (
            "{objective: {kind: masked_lm, masking: {ratio: 0.01, select: {kind: cloze, words: [damen]}}}}",
            r"objective\.masking\.select: the lexicon of cloze leaves 0\.\d+ tokens to predict in a step "
            r"\(training\.tokens_per_step = 128\), expected at least 1; give more frequent words, or raise "
            r"objective\.masking\.ratio\.",
        ),
    ],
    ids=["lexicon", "n-grams", "few words"],
)
def test_what_an_arm_needs_of_the_text_is_asked_before_any_run_starts(arm, sentence, tmp_path):
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: language, train: 300, validation: 100, test: 10, vocab_size: 256}\n"
        "encoder: {num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}\n"
        "training: {max_steps: 2, tokens_per_step: 128}\n"
        f"arms:\n  fine: {{objective: {{kind: masked_lm}}}}\n  needy: {arm}\n"
        "seeds: [0]\nmeasures: [{kind: layer_change, tokens: 500}]\n"
    )
    result = ablate("run", spec, "--out", tmp_path / "out")
    assert result.exit_code == 2
    place = place_of(spec, arm, "select: ")
    assert re.fullmatch(re.escape(f"{spec}:{place}: arm needy: ") + sentence + "\n", result.stderr)
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.parametrize(
    ("text", "training", "at", "sentence"),
    [
        (
            "a dog barks\n\nthe cat is old\n\n" * 40,
            "{input_format: segment_pair}",
            "train.txt",
            "data.train: training.input_format = segment_pair needs documents of several sentences, but each "
            "document has one sentence; set data.document to the column of documents, or separate only "
            "documents by blank lines.",
        ),
        (
            "thedogbarks\nthecatisold\n" * 40,
            "{word_order: {kind: ngrams}}",
            "{kind: ngrams}",
            "training.word_order needs words, but no sentence of data.train has two words with a space between "
            "them; put spaces between words, or set its unit to sub_words.",
        ),
    ],
    ids=["pairs", "words"],
)
def test_text_without_pairs_or_words_is_found_before_any_run_starts(text, training, at, sentence, tmp_path):
    for name in ("train.txt", "validation.txt"):
        (tmp_path / name).write_text(text)
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: files, train: train.txt, validation: validation.txt, vocab_size: "
        "30}\n"
        "encoder: {num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}\n"
        "objective: {kind: masked_lm}\ntraining: {max_steps: 2, tokens_per_step: 128}\n"
        f"arms:\n  fine: {{}}\n  needy: {{training: {training}}}\nseeds: [0]\n"
    )
    result = ablate("run", spec, "--out", tmp_path / "out", "--data-root", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == f"{spec}:{place_of(spec, at)}: arm needy: {sentence}\n"
    assert not (tmp_path / "out" / "runs").exists()


def test_too_few_sentences_that_follow_each_other_are_found_before_any_run_starts(tmp_path):
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: language, train: 300, validation: 30, vocab_size: 256}\n"
        "encoder: {num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}\n"
        "objective: {kind: masked_lm}\ntraining: {max_steps: 2, tokens_per_step: 128}\nseeds: [0]\n"
        "arms:\n  only: {}\nmeasures:\n  - {kind: retrieval, effort: quick}\n"
    )
    result = ablate("run", spec, "--out", tmp_path / "out")
    assert result.exit_code == 2
    said = result.stderr
    assert re.sub(r"has \d+ pairs", "has few pairs", said) == (
        f"{spec}:{place_of(spec, '{kind: retrieval')}: arm only: measure retrieval: "
        f"data.validation has few pairs of sentences that follow each other in a document and occur nowhere else, "
        "but next_sentence needs 40; give more text, or leave next_sentence out of the measure's tasks.\n"
    )
    assert not (tmp_path / "out" / "runs").exists()


def test_a_lexicon_that_is_not_there_is_found_with_its_line(tmp_path):
    spec = tmp_path / "needs.yaml"
    spec.write_text(
        "name: needs\nversion: 1\ndata: {kind: language, train: 300, vocab_size: 256}\n"
        "training: {max_steps: 2, tokens_per_step: 128}\nobjective: {kind: masked_lm}\n"
        "arms:\n  words: {objective: {masking: {select: {kind: cloze, file: gone.txt}}}}\nseeds: [0]\n"
    )
    result = ablate("plan", spec, "--out", tmp_path / "out", "--data-root", tmp_path)
    assert result.exit_code == 2
    assert result.stderr == (
        f"{spec}:{place_of(spec, 'gone.txt')}: arm words: {tmp_path}/gone.txt does not exist "
        f"(objective.masking.select.file; relative paths start at --data-root); correct the path.\n"
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
