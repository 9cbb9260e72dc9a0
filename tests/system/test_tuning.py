"""A search for settings with real trainings: trials first, then the arms with what was chosen."""

import json
import shutil

from lightning_modules.training.run_directory import RunDirectory
from tests.support.command_line import called
from tests.support.html_page import Page
from tests.support.spec_files import write_spec

RATES = [1e-3, 3e-2, 1e6]
TUNE = {"settings": {"training.learning_rate": RATES}, "arms": ["mlm"], "seeds": [9], "part_of_steps": 0.5}


def test_trials_come_first_and_what_they_choose_is_in_the_runs_and_on_the_page(tmp_path, data_root, undrawn):
    training = {"max_steps": 12, "tokens_per_step": 256, "learning_rate": 1e-3}
    write_spec(tmp_path, tune=TUNE, seeds=[0], training=training)
    planned = called("plan", tmp_path, data_root)
    assert "2 runs, 2 to do, 3 trials before them" in planned.stdout
    assert "tuned: " not in planned.stdout
    resolved = called("plan", tmp_path, data_root, "--resolved")
    assert resolved.stderr == (
        "Tuned arms get other values of training.learning_rate; `ablate plan` names those chosen so far.\n"
    )
    assert json.loads(resolved.stdout)["arms"]["mlm"]["training"]["learning_rate"] == 1e-3

    done = called("run", tmp_path, data_root, "--slots", "2")
    assert done.exit_code == 0, done.output
    assert "tuned: mlm: training.learning_rate 0.03 (loss " in done.stdout
    tuned = json.loads((tmp_path / "out/tried/tuned.json").read_text())
    (mlm,) = tuned["arms"]
    assert [trial["losses"] == [None] for trial in mlm["trials"]] == [False, False, True]
    runs = {path.name.rpartition("-")[0]: RunDirectory(path) for path in (tmp_path / "out/runs").iterdir()}
    assert set(runs) == {
        "mt-s0",
        "mlm-s0",
        *(f"mlm,learning_rate={rate}-s9" for rate in ("0.001", "0.03", "1000000")),
    }
    assert runs["mlm-s0"].settings().training.learning_rate == 3e-2
    assert runs["mt-s0"].settings().training.learning_rate == 1e-3
    assert runs["mlm,learning_rate=0.03-s9"].settings().training.max_steps == 6

    page = Page(tmp_path / "out/tried/report.html")
    section = (
        page.text_of("tuning") if hasattr(page, "text_of") else (tmp_path / "out/tried/report.md").read_text()
    )
    assert "training.learning_rate 0.03" in section
    assert (tmp_path / "out/tried/figures/tuning-1.csv").is_file()

    (chosen,) = [line for line in done.stdout.splitlines() if line.startswith("tuned: ")]
    assert chosen in called("plan", tmp_path, data_root).stdout.splitlines()
    assert chosen in json.loads(called("plan", tmp_path, data_root, "--json").stdout)["notes"]

    for name in runs:
        if name.endswith("-s9"):
            shutil.rmtree(runs[name].path)
    again = called("run", tmp_path, data_root)
    assert "nothing to do: every run is trained and measured" in again.stdout
    assert not any("learning_rate" in path.name for path in (tmp_path / "out/runs").iterdir())
