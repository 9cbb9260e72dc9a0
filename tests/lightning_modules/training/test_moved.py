"""A run that goes on on another kind of machine, or with other versions or devices: only if it is allowed."""

import json
from itertools import pairwise

import pytest

from lightning_modules.errors import ExitCode
from lightning_modules.provenance import accept_machine, machine_changes, processor, provenance
from lightning_modules.training.checkpoint import read_checkpoint
from tests.support.start_here import start_here
from tests.support.stop_after import StopAfter
from tests.support.tiny_text import settings

HERE = {
    "versions": {"python": "3.11.7", "torch": "2.13.0", "numpy": "2.1.0"},
    "machine": {"platform": "Linux", "cpu": "Intel Xeon", "cores": 2, "gpus": []},
    "devices": 1,
    "threads": 1,
}


@pytest.fixture
def begun(make_run):
    """A run that was stopped after step 3, as if on a machine with another torch and processor."""
    directory = make_run(settings())
    assert start_here(directory, StopAfter(3)) == ExitCode.INTERRUPTED
    path = directory.path / "provenance.json"
    told = json.loads(path.read_text())
    told["versions"]["torch"], told["machine"]["cpu"] = "2.9.0", "Abacus 3000"
    path.write_text(json.dumps(told))
    return directory


def test_it_is_refused_in_one_sentence_and_nothing_is_lost(begun, capsys):
    here = json.loads((begun.path / "provenance.json").read_text())
    checkpoint = begun.last_checkpoint.read_bytes()
    assert start_here(begun) == ExitCode.WRONG_SETTINGS
    sentence = capsys.readouterr().err
    assert sentence == (
        f"{begun.path} was started elsewhere and would not end with the same bits here "
        f"({'; '.join(changed())}); continue it there, or add --other-machine to continue it here.\n"
    )
    assert begun.last_checkpoint.read_bytes() == checkpoint
    assert json.loads((begun.path / "provenance.json").read_text()) == here


def changed():
    here = provenance()["versions"]["torch"]
    return [f"torch 2.9.0 there, torch {here} here", f"Abacus 3000 there, {processor()} here"]


def test_once_it_is_allowed_it_goes_on_from_its_checkpoint_and_says_where_it_was(begun):
    accept_machine(begun, devices=1)
    accept_machine(begun, devices=1)  # nothing has changed since
    assert start_here(begun) == ExitCode.DONE
    assert read_checkpoint(begun.last_checkpoint)["global_step"] == 12
    steps = [json.loads(line)["step"] for line in begun.metrics.read_text().splitlines()]
    assert all(before <= after for before, after in pairwise(steps))
    told = begun.provenance()
    (move,) = told["moved_from"]
    assert move["changed"] == changed()
    assert told["machine"]["cpu"] == processor()
    assert len(told["resumed"]) == 1
    accept_machine(begun, devices=4)
    assert begun.provenance() == told  # it is trained, and may be measured anywhere


@pytest.mark.parametrize("content", ["{", "[]", '{"threads": \xff'])
def test_a_record_that_cannot_be_read_is_no_leave_to_go_on(begun, capsys, content):
    """Its threads are then unknown, and other threads end with other bits."""
    path = begun.path / "provenance.json"
    path.write_bytes(content.encode("latin-1"))
    checkpoint = begun.last_checkpoint.read_bytes()
    assert start_here(begun) == ExitCode.WRONG_SETTINGS
    assert capsys.readouterr().err == (
        f"{path} cannot be read, so it is unknown on which machine the run started; delete the file if it was "
        "this machine.\n"
    )
    assert begun.last_checkpoint.read_bytes() == checkpoint
    path.unlink()
    assert start_here(begun) == ExitCode.DONE


def test_a_run_without_a_checkpoint_starts_anywhere(begun):
    begun.last_checkpoint.unlink()
    assert start_here(begun) == ExitCode.DONE
    assert "moved_from" not in begun.provenance()


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, []),
        ({"threads": 8, "versions": HERE["versions"] | {"python": "3.13.0"}}, []),  # change no bit
        ({"machine": HERE["machine"] | {"cores": 64, "platform": "Linux 7"}}, []),
        ({"devices": 2}, ["2 devices there, 1 device here"]),
        ({"versions": {"numpy": "1.26.0"}}, ["numpy 1.26.0 there, numpy 2.1.0 here"]),
        ({"versions": {}, "machine": {}}, []),  # nobody noted them
        ({"machine": HERE["machine"] | {"gpus": ["A100", "A100"]}}, ["GPU A100 there, Intel Xeon here"]),
    ],
)
def test_what_changes_the_bits_is_named(there, expected):
    assert machine_changes(HERE | there, HERE) == expected


def test_the_number_of_gpus_that_are_seen_is_no_change():
    gpus = [
        HERE | {"machine": HERE["machine"] | {"gpus": ["A100"] * count, "cpu": f"X{count}"}} for count in (1, 8)
    ]
    assert machine_changes(*gpus) == []
    assert machine_changes(HERE, gpus[0]) == ["Intel Xeon there, GPU A100 here"]
