"""Every measure makes a page by itself, and an experiment that was interrupted between two of them can be read."""

import json

import pandas as pd
import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.runs import progress, worker
from ablations.runs.launch import Outcome
from lightning_modules.errors import Interrupted, StopRequest
from tests.support.random_specs import KINDS, SETTINGS

ORDER = {
    "data": {"kind": "language", "train": 400, "validation": 200, "test": 10, "vocab_size": 320, "max_length": 64},
    "encoder": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2},
    "training": {"max_steps": 1, "tokens_per_step": 128},
}


class InThisProcess:
    """A pool whose runs are trained and measured where the test can stop them."""

    def __init__(self, *, slots, devices, data_root, measures, gpus, recompute):
        self.slots, self.devices, self.gpus = slots, devices, gpus
        asked = [settings.model_dump(mode="json") for settings in measures]
        machine = {"devices": 1, "accelerator": "cpu", "threads": 1}
        self.order = {
            "data_root": str(data_root),
            "recompute": recompute,
            "measures": asked,
            "plugins": {},
        } | machine

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def run(self, run_dirs, *, ended, tried_again):
        for path in run_dirs:
            told = worker.serve_one(self.order | {"run_dir": str(path)}, StopRequest())
            outcome = Outcome(path, told["code"], told["message"], told["seconds"])
            ended(outcome)
            yield outcome
            if told["code"] != 0:
                return


@pytest.fixture
def ablate(tmp_path, monkeypatch):
    """Call a command on a spec, runs being trained in this process."""
    monkeypatch.setattr(progress, "Pool", InThisProcess)
    monkeypatch.setattr(InThisProcess, "run", lambda *args, _run=InThisProcess.run, **kw: list(_run(*args, **kw)))

    def call(command, *options, **changes):
        spec = {"name": "it", "version": 1, "seeds": [0]} | ORDER | changes
        (tmp_path / "it.yaml").write_text(json.dumps(spec))
        where = [str(tmp_path / "it.yaml"), "--out", str(tmp_path / "out"), "--data-root", str(tmp_path)]
        return CliRunner().invoke(main, [command, *where, *options])

    return call


@pytest.mark.slow
@pytest.mark.parametrize("kind", SETTINGS)
def test_every_measure_alone_with_every_objective_ends_in_a_page(kind, ablate, tmp_path):
    settings, _ = SETTINGS[kind]
    arms = {objective: {"objective": {"kind": objective}} for objective in KINDS}
    done = ablate("run", arms=arms, measures=[{"kind": kind} | settings])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out/it/report.html").stat().st_size
    table = pd.read_parquet(tmp_path / "out/it/results.parquet")
    assert set(table["measure"]) - {"learning", "corruption"} == {kind}
    assert "nothing to do" in ablate("run", arms=arms, measures=[{"kind": kind} | settings]).output


@pytest.mark.slow
def test_after_an_interruption_at_any_measure_every_command_works(ablate, tmp_path, monkeypatch):
    """Each run of the command is interrupted when its first measure is there, until all are."""

    def stopped(directory, tokens, measures, *, say, **options):
        said = []

        def then_stop(line):
            if said:
                raise Interrupted
            said.append(line)
            say(line)

        measure_all(directory, tokens, measures, say=then_stop, **options)

    measure_all = worker.measure
    monkeypatch.setattr(worker, "measure", stopped)
    kinds = ("geometry", "layer_change", "influence", "conditional_independence", "validation")
    asked = {
        "arms": {"mlm": {"objective": {"kind": "masked_lm"}}},
        "measures": [{"kind": kind} | SETTINGS[kind][0] for kind in kinds],
    }
    for there in range(1, len(kinds) + 1):
        done = ablate("run", **asked)
        assert done.exit_code == (130 if there < len(kinds) else 0), done.output
        (run,) = json.loads(ablate("status", "--json", **asked).stdout)["runs"]
        assert (run["state"], run["measures"], len(run["not_measured"])) == ("done", 5, 5 - there)
        state = "done" if there == len(kinds) else f"{5 - there} to measure"
        assert all(f" {state} " in ablate(command, **asked).stdout for command in ("plan", "status"))
        assert ablate("report", **asked).exit_code == 0
        table = pd.read_parquet(tmp_path / "out/it/results.parquet")
        assert len(set(table["measure"]) - {"learning", "corruption"}) == there
