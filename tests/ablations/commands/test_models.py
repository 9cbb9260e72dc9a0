"""The origin of a run: questions of its experiments, and losses by step."""

import hashlib
import json

import pandas as pd

from ablations.commands.models import origin_of
from lightning_modules.export.card import Origin
from lightning_modules.files import write_json
from tests.support.command_line import ablate, refusal_of
from tests.support.tiny_text import settings


def plan(out, name, *run_ids, question="Why?"):
    """A plan of an experiment with some runs."""
    (out / name).mkdir()
    runs = [{"run_id": run_id, "folder": f"a-s0-{run_id}", "arm": "a", "seed": 0} for run_id in run_ids]
    write_json(out / name / "plan.json", {"experiment": name, "question": question, "arms": ["a"], "runs": runs})


def test_a_run_from_elsewhere_cannot_choose_what_is_executed(tmp_path):
    canary, run = tmp_path / "canary", tmp_path / "runs" / "mlm-s0-0123456789"
    run.mkdir(parents=True)
    source = f"import pathlib\npathlib.Path({str(canary)!r}).touch()\n"
    (run / "evil.py").write_text(source)
    record = {"path": str(run / "evil.py"), "sha256": hashlib.sha256(source.encode()).hexdigest()}
    about = {"run_id": "0123456789", "arm": "mlm", "seed": 0, "tokens": "t", "settings": {}}
    (run / "run.json").write_text(json.dumps(about | {"plugins": {"evil.py:Rare": record}}))
    command = ["export", str(run), str(tmp_path / "exported")]
    result = ablate(*command)
    assert not canary.exists()
    assert (result.exit_code, result.stderr) == (
        2,
        "evil.py:Rare: a file that only a folder of results names is not read; if you trust it, name it with "
        "--plugin.\n",
    )
    result = ablate(*command, "--plugin", run / "evil.py")
    assert "evil.py has no Rare" in result.stderr


def test_a_run_without_plan_and_measures_has_no_origin(make_run):
    assert origin_of(make_run(settings()).path) == Origin()


def test_questions_are_those_of_the_experiments_that_have_the_run(make_run):
    directory = make_run(settings())
    run_id, out = directory.description()["run_id"], directory.path.parent.parent
    plan(out, "first", run_id, "1234567890", question="What is kept?")
    plan(out, "second", run_id, question="What is lost?")
    plan(out, "other", "1234567890")
    plan(out, "silent", run_id, question=None)
    (out / "damaged").mkdir()
    (out / "damaged" / "plan.json").write_text("{")
    assert origin_of(directory.path).questions == {"first": "What is kept?", "second": "What is lost?"}


def test_losses_are_the_measured_ones_of_the_whole_validation_text(make_run):
    directory = make_run(settings())
    loss = {"measure": "validation", "metric": "loss", "value": 2.5, "step": 4}
    others = [
        loss | {"group": "natural", "value": 9.0},
        loss | {"metric": "perplexity"},
        loss | {"measure": "mine"},
    ]
    pd.DataFrame([loss, loss | {"step": 8, "value": 1.5}, *others]).to_parquet(directory.path / "measures.parquet")
    assert origin_of(directory.path).losses == {4: 2.5, 8: 1.5}


def test_the_command_writes_the_questions_into_the_card_and_names_class_and_folders(train_run, tmp_path):
    directory = train_run(settings(training={"max_steps": 0}))
    plan(directory.path.parent.parent, "first", directory.description()["run_id"], question="What is kept?")
    series, one = tmp_path / "series", tmp_path / "one"
    result = ablate("export", directory.path, series, "--all-steps")
    assert (result.exit_code, result.output) == (0, f"BertForMaskedLM: {series / 'step-00000000'}\n")
    assert "* first: What is kept?" in (series / "step-00000000" / "README.md").read_text(encoding="utf-8")
    result = ablate("export", directory.path, one, "--encoder")
    assert (result.exit_code, result.output) == (0, f"BertModel: {one}\n")
    assert (
        refusal_of("export", directory.path, one)
        == f"{one} already exists and is not an empty folder; choose another folder, or remove it.\n"
    )
