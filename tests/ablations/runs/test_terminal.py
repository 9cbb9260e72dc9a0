"""What the commands print as tables, in 80 columns and where the output is no terminal."""

import re
from dataclasses import replace

import pytest

from ablations.runs.records import Plan, RunRecord, RunStatus
from ablations.runs.terminal import (
    MOST_ROWS,
    compact,
    console_for_tables,
    duration,
    plan_table,
    print_plainly,
    state_in_words,
    status_table,
)
from lightning_modules.training.run_directory import RunState
from reports.page.terminal import NARROWEST_CLAIM, claims_table
from tests.support.judged import claim_entry, judged

ARMS = ("mlm", "untrained", "clm-dropout-0.15", "naive-2", "full-sentences", "mt", "objective.masking.ratio=0.4")
LONGEST_IN_80 = 14
"""Letters of an arm's name that every table has room for, with the largest numbers of a plan."""


def run(arm, state, **fields):
    return RunRecord(
        arm=arm, seed=10, run_id="0123456789", state=state, folder=f"{arm}-s10-0123456789",
        max_steps=999_999, tokens=1_020_000_000, parameters=123_000_000, flops=1.23e18, seconds=359_999.0,
        **fields,
    )  # fmt: skip


STATES = ("done", "running", "failed", "interrupted", "planned")
LACKING = [
    {"measures": 3, "not_measured": ["geometry"], "checkpoint": "whole"},
    {"measures": 3, "not_measured": ["geometry"], "checkpoint": "gone"},
]
RUNS = [run(arm, state) for arm, state in zip(ARMS, STATES, strict=False)]
RUNS += [run(arm, "done", **fields) for arm, fields in zip(ARMS[len(STATES) :], LACKING, strict=True)]
PLAN = Plan(experiment="tried", question="", arms=list(ARMS), runs=RUNS, pairs_to_compare=0, seconds=1.0)


BOUNDS = {"effect": -0.15823, "low": -0.1682, "high": -0.1482, "unit": "share", "n": 6, "smallest_seen": 0.0123}
CONTRADICTED = claim_entry(
    number=1, name="mlm-loses-and-rebuilds-its-token", verdict="contradicted", as_expected=False, **BOUNDS
)
NOT_RUN = claim_entry(number=1, name="translation-changes-least", verdict="not run")
CLAIMS = judged(CONTRADICTED, NOT_RUN)


def show_plan():
    plan_table(PLAN)


def show_status():
    progress = RunState(step=99_999, max_steps=100_000, tokens_per_second=123_456.0, seconds=359_999.0)
    status_table([RunStatus(run, progress) for run in RUNS])


def printed(show, capsys, monkeypatch, *, columns=None):
    """What is printed on a terminal of so many columns; without them, where nobody watches."""
    if columns is not None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("COLUMNS", str(columns))
    show()
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)


@pytest.mark.parametrize("show", [show_plan, show_status])
def test_a_row_is_whole_in_80_columns(show, capsys, monkeypatch):
    text = printed(show, capsys, monkeypatch, columns=80)
    assert "…" not in text
    assert all(len(line) <= 80 for line in text.splitlines())
    for run in RUNS:
        whole = run.arm if len(run.arm) <= LONGEST_IN_80 else run.arm[:LONGEST_IN_80]
        (line,) = [line for line in text.splitlines() if line.startswith(whole) and " 0123456789 " in line]
        assert f" {state_in_words(run)} " in line
        assert line.endswith("99:59:59")
    rest = ARMS[-1][LONGEST_IN_80:] if show is show_plan else ""
    assert rest in text  # a longer name goes on in the next line: nothing is left out


@pytest.mark.parametrize("show", [show_plan, show_status])
def test_names_are_whole_where_the_output_is_no_terminal(show, capsys, monkeypatch):
    lines = printed(show, capsys, monkeypatch).splitlines()
    assert all(any(line.startswith(f"{arm} ") for line in lines) for arm in ARMS)


@pytest.mark.parametrize("columns", [None, 80, NARROWEST_CLAIM - 1, NARROWEST_CLAIM, 200])
def test_a_claim_is_whole_at_every_width(columns, capsys, monkeypatch):
    text = printed(lambda: claims_table(CLAIMS), capsys, monkeypatch, columns=columns)
    assert "…" not in text
    for part in (
        "mlm-loses-and-rebuilds-its-token",
        "contradicted (!)",
        "−0.158 [−0.168, −0.148] share",
        "0.0123",
    ):
        assert part in text.partition("can see: the smallest")[0]


def test_the_line_number_of_a_problem_is_no_emoji(capsys):
    problem = "claims/article.yaml:100:5: claims.says must not be empty"
    print_plainly([problem], console_for_tables())
    assert capsys.readouterr().out == f"{problem}\n"


def test_only_what_a_table_of_claims_shows_is_explained(capsys, monkeypatch):
    """A claim that came out as expected had the explanation of the sign (!), and one that was not run all four."""
    cannot_run = printed(lambda: claims_table(judged(NOT_RUN)), capsys, monkeypatch)
    assert "those of the part" not in cannot_run
    shown = printed(lambda: claims_table(CLAIMS), capsys, monkeypatch)
    assert "effect, seeds and can see are those of the part that decides\ncan see: the smallest effect" in shown
    assert "(!): not as expected" in shown
    assert "would decide: the" not in shown
    as_expected = judged(replace(CONTRADICTED, as_expected=True))
    assert "(!)" not in printed(lambda: claims_table(as_expected), capsys, monkeypatch)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0:00:00"),
        (59.6, "0:01:00"),
        (3599, "0:59:59"),
        (86_400, "24:00:00"),
        (359_999, "99:59:59"),
    ],
)
def test_a_time_is_in_hours_however_long_it_is(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999.4, "999"),
        (999.5, "1k"),
        (999_499, "999k"),
        (999_936, "1M"),
        (1.0249e6, "1.02M"),
        (999.9e12, "1P"),
    ],
)
def test_a_count_has_three_digits_and_the_prefix_of_the_rounded_number(number, text):
    assert compact(number) == text


def status_of(plan):
    status_table([RunStatus(run, RunState()) for run in plan.runs])


def test_runs_that_arms_share_are_counted_once(capsys, monkeypatch):
    shared = [run(arm, "done", measures=1, not_measured=[]) for arm in ("mlm", "mlm,ratio=0.15")]
    more = [run(arm, "planned").model_copy(update={"run_id": "9876543210"}) for arm in ("clm", "clm,ratio=0.4")]
    plan = PLAN.model_copy(update={"runs": [*shared, *more]})
    assert "\n2 runs, 1 to do; time left: 0:00:01\n" in printed(lambda: plan_table(plan), capsys, monkeypatch)


@pytest.mark.parametrize("show", [plan_table, status_of])
def test_of_many_runs_each_arm_has_a_row_with_its_states(show, capsys, monkeypatch):
    states = ["done"] * 120 + ["running"] * 2 + ["failed"]
    many = [run("mlm", state) for state in states] + [
        run("clm", "planned") for _ in range(MOST_ROWS - len(states))
    ]
    plan = Plan(experiment="tried", question="", arms=["mlm", "clm"], runs=many, pairs_to_compare=0, seconds=1.0)
    assert printed(lambda: show(plan), capsys, monkeypatch, columns=80).count(" 0123456789 ") == MOST_ROWS
    one_more = plan.model_copy(update={"runs": [*many, run("clm", "planned")]})
    lines = printed(lambda: show(one_more), capsys, monkeypatch, columns=80).splitlines()
    rows = [re.sub(r" +", " ", line).strip() for line in lines]
    assert "mlm 123 120 trained, 2 running, 1 failed" in rows
    assert f"clm {MOST_ROWS - 122} planned" in rows
    assert f"all 2 arms {MOST_ROWS + 1} 120 trained, {MOST_ROWS - 122} planned, 2 running, 1 failed" in rows
    assert f"Each row is an arm, because there are more than {MOST_ROWS} runs; --json shows each run." in " ".join(
        rows
    )


@pytest.mark.parametrize("columns", ["30", "40"])
def test_the_name_of_an_arm_does_not_vanish_in_a_narrow_terminal(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    state = RunState(state="done", step=4, max_steps=4)
    status_table([RunStatus(RunRecord(run_id="0123456789", folder="m-s0", arm="mlm", seed=0), state)])
    header, row = capsys.readouterr().out.splitlines()
    assert (header.split()[0], row.split()[0]) == ("arm", "mlm")
    assert row.split()[2] == "0123456789"
