"""Processes that train beside what is timed."""

import multiprocessing

import pytest

from ablations.runs import doctor


def _ends_at_once(ready):
    """In place of training: a child that could not begin."""


def test_as_many_train_inside_as_were_asked_for_and_none_afterwards():
    with doctor.companions(1):
        (child,) = multiprocessing.active_children()
        assert child.is_alive()
    assert not child.is_alive()
    assert multiprocessing.active_children() == []
    with doctor.companions(0):
        assert multiprocessing.active_children() == []


def test_they_end_with_whatever_ends_the_timing():
    with pytest.raises(KeyboardInterrupt), doctor.companions(1):
        raise KeyboardInterrupt
    assert multiprocessing.active_children() == []


def test_one_that_cannot_begin_is_an_error_and_no_waiting(monkeypatch):
    monkeypatch.setattr(doctor, "_train", _ends_at_once)
    with (
        pytest.raises(RuntimeError, match=r"^a process that trains beside what is timed ended by itself$"),
        doctor.companions(1),
    ):
        pass
    assert multiprocessing.active_children() == []


def test_a_companion_has_always_one_more_step(monkeypatch):
    shape = doctor.Shape(vocab_size=512, tokens_per_step=256, timed_steps=2)
    monkeypatch.setattr(doctor, "SHAPES", {32: shape})
    steps = doctor.endless_steps()
    assert all(0 < next(steps) <= 256 for _ in range(3 * shape.timed_steps + 4))
