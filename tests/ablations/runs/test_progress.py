"""What is said of runs at work."""

import pytest
from rich.console import Console

from ablations.runs.progress import LOG_END, _measured_now, display
from ablations.runs.terminal import WIDTH, console_for_tables


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "a warning\nmeasuring probing ud_pos at step 500\nlayer 3 of 6\n",
            "measuring probing ud_pos at step 500",
        ),
        ("measuring geometry at step 0\nmeasuring parsing at step 0\n", "measuring parsing at step 0"),
        ("", "measuring"),
        ("measuring geometry at step 0\n" + "x" * LOG_END, "measuring"),  # too far back to look for
        (b"measuring parsing at step 0\n\xff\xfe", "measuring parsing at step 0"),
    ],
)
def test_what_is_measured_is_what_the_log_said_last(tmp_path, written, said):
    log = tmp_path / "log.txt"
    log.write_bytes(written if isinstance(written, bytes) else written.encode())
    assert _measured_now(log) == said


def test_a_run_without_a_log_is_being_measured_all_the_same(tmp_path):
    assert _measured_now(tmp_path / "log.txt") == "measuring"


def test_a_notebook_which_asks_for_colours_gets_lines_and_no_bars(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as the kernel of a notebook sets it
    console = Console()
    assert console.is_terminal
    assert console_for_tables().width == WIDTH
    with display([], console):
        pass
    assert capsys.readouterr().out == ""
