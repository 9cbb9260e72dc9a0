"""Watching of runs on a cluster: what is printed while they are open."""

import json
from types import SimpleNamespace

import pytest
from rich.console import Console

from ablations.runs.identity import create
from ablations.runs.places import arrays, job, watch
from ablations.runs.places.arrays import Array
from ablations.runs.places.place import Resources
from tests.support.command_line import ablate
from tests.support.planned_spec import SPEC, workspace_of

NO_ROOM = "last.ckpt cannot be written: the disk is full; free some space, then start again."


@pytest.fixture
def workspace(tmp_path):
    return workspace_of(tmp_path)


@pytest.fixture
def one(workspace):
    """A job of all runs of the experiment."""
    workspace.write_plan()
    for item in workspace.planned:
        create(item)
    array = Array(
        data_root=str(workspace.data_root),
        runs=str(workspace.out / "runs"),
        jobs=[[item.directory.path.name for item in workspace.planned]],
        measures=[],
        resources=Resources(),
        tries=3,
    )
    folder = arrays.new_folder(workspace.folder)
    arrays.write(folder, array)
    return arrays.read(folder)[0]


def test_a_reason_is_printed_at_once_and_only_once_though_the_run_is_tried_again(
    workspace, one, monkeypatch, capsys
):
    old, new, last = one.run_names[:3]
    job.note(one, old, "of an earlier job", is_final=False)
    acts = [
        lambda: job.note(one, new, f"{NO_ROOM}\x1b[2J", is_final=False),
        lambda: job.note(one, last, "loss", is_final=True),
        lambda: None,
        lambda: (_ for _ in ()).throw(KeyboardInterrupt),
    ]
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: acts.pop(0)()))
    interrupted, outcomes = watch.watch(
        workspace,
        workspace.planned,
        Console(markup=False),
        look=lambda _: (None, "the queue"),
        why_lost=lambda name: "lost",
    )
    assert interrupted
    assert [outcome.run_dir.name for outcome in outcomes] == [last]
    printed = [line for line in capsys.readouterr().out.splitlines() if "attempt" in line]
    assert printed == [f"an attempt ended early: {new}: {NO_ROOM}\N{REPLACEMENT CHARACTER}[2J"]


def test_a_run_that_failed_and_that_another_command_has_completed_since_is_done(workspace, one, monkeypatch):
    again, failed, last = one.run_names[:3]
    left = {}
    acts = [
        lambda: [job.note(one, name, "loss", is_final=True) for name in (again, failed)],
        lambda: None,
        lambda: left.update({again: 0, last: 0}),
        lambda: left.update({again: 0, last: 0}),
    ]
    monkeypatch.setattr(
        arrays, "number_of_missing_measures", lambda directory, *_, **__: left.get(directory.path.name)
    )
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: acts.pop(0)()))
    items = [item for item in workspace.planned if item.directory.path.name in (again, failed, last)]
    interrupted, outcomes = watch.watch(
        workspace, items, Console(), look=lambda _: (None, "the queue"), why_lost=lambda name: "lost"
    )
    assert not interrupted
    assert {outcome.run_dir.name: outcome.message for outcome in outcomes} == {
        again: None,
        failed: "loss",
        last: None,
    }


def test_a_run_that_cannot_be_read_is_left_for_a_later_look_while_it_is_on_the_cluster(
    workspace, one, monkeypatch
):
    first, *_ = workspace.planned
    (first.directory.path / "state.json").write_text('{"state": "run')
    where, acts = (
        {"on": set(one.run_names)},
        [
            lambda: where.update(on=set()),
            lambda: (_ for _ in ()).throw(KeyboardInterrupt),
        ],
    )
    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(
        watch, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: acts.pop(0)())
    )
    seen = []

    def look(not_ended):
        assert set(not_ended) == {first.directory.path.name}
        seen.append(set(where["on"]))
        return where["on"], "the queue"

    interrupted, outcomes = watch.watch(
        workspace, [first], Console(markup=False), look=look, why_lost=lambda name: "lost"
    )
    assert not interrupted
    assert seen == [set(one.run_names), set()]
    assert [outcome.message for outcome in outcomes] == [
        f"{first.directory.path / 'state.json'} cannot be read or has changed since it was written, so the "
        "progress of the run is unknown; delete the file, then `ablate run` continues from the last checkpoint."
    ]


def test_status_says_each_reason_once_and_as_text(workspace, one):
    first, second = (item.directory for item in workspace.planned[:2])
    first.write_state("failed", message=NO_ROOM)
    job.note(one, first.path.name, NO_ROOM, is_final=False)
    job.note(one, second.path.name, "its job was ended\x1b]0;x\x07", is_final=True)
    shown = ablate("status", workspace.spec, "--out", workspace.out)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count(NO_ROOM) == 1
    assert (
        f"{second.path.name}: its job was ended\N{REPLACEMENT CHARACTER}]0;x\N{REPLACEMENT CHARACTER}\n"
        in shown.stdout
    )


def test_status_gives_no_reason_of_a_run_of_another_spec_or_of_one_that_is_complete(workspace, one, tmp_path):
    first, second = (item.directory for item in workspace.planned[:2])
    (tmp_path / "other.yaml").write_text(
        json.dumps(SPEC | {"name": "other", "training": {"max_steps": 3}, "seeds": [7]})
    )
    job.note(one, first.path.name, "its job was ended.", is_final=True)
    job.note(one, second.path.name, NO_ROOM, is_final=False)
    second.write_state("done", step=4)  # elsewhere

    def said(*arguments):
        shown = ablate("status", *arguments, "--out", workspace.out)
        assert shown.exit_code == 0, shown.output
        return "its job was ended." in shown.stdout, NO_ROOM in shown.stdout

    assert said(str(workspace.spec)) == (True, False)
    assert said(str(tmp_path / "other.yaml")) == (False, False)
    assert said() == (True, True)  # which measures a run has to have, only a spec says
