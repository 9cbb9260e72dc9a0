"""What a run costs before it runs: operations, and seconds from runs that ended or from timed steps."""

import json
from pathlib import Path

import pytest
import torch

from ablations import doctor
from ablations.measures.settings import LayerChangeSettings
from ablations.runs import calibration
from ablations.runs.calibration import Calibration, makespan
from ablations.runs.identity import PlannedRun
from ablations.spec.experiment import Run
from lightning_modules.config import operations_per_token, parameters
from lightning_modules.objectives import build
from lightning_modules.training.fit import bare_step
from lightning_modules.training.run_directory import RunDirectory
from tests.support.tiny_text import settings

CHANGE = LayerChangeSettings(kind="layer_change", tokens=1000)


def planned(run, text="0123456789"):
    return PlannedRun(Run("mlm", run.seed, run), "0123456789", text, RunDirectory(Path("nowhere")))


def noted(out, run, *training, threads=1, other=0.0, measures=()):
    for seconds in training:
        Calibration(out).note_run(
            planned(run), measures, threads=threads, training_seconds=seconds, wall_seconds=seconds + other
        )
    return Calibration(out)


def note_steps(out, rate, *, width=16, threads=1):
    Calibration(out).note_steps([("32-true", width, rate)], threads=threads)


def other_seconds(known, run, measures=(), **text):
    return known.other_seconds(planned(run, **text), measures)


def test_a_run_of_the_kind_tells_how_long_the_next_one_takes(tmp_path):
    short, long = (settings(training={"max_steps": steps, "validate_every": steps // 2}) for steps in (10, 30))
    assert Calibration(tmp_path).training_seconds(short, threads=1) is None
    assert Calibration(tmp_path).training_seconds(settings(training={"max_steps": 0}), threads=1) == 0
    # One run met a busy machine: the median does not care.
    known = noted(tmp_path / "new", short, 4.0, 5.0, 60.0, other=2.0)
    assert known.training_seconds(long, threads=1) == pytest.approx(15)
    assert other_seconds(known, long) == pytest.approx(2)
    assert other_seconds(known, long, [CHANGE]) is None
    assert known.training_seconds(settings("causal_lm"), threads=1) is None
    assert other_seconds(known, settings("causal_lm")) is None


def test_what_is_around_the_steps_is_known_of_as_many_evaluations_the_same_text_and_measures_alone(tmp_path):
    run = settings(training={"max_steps": 10, "validate_every": 5})
    known = noted(tmp_path, run, 4.0, other=2.0, measures=[CHANGE])
    assert other_seconds(known, run, [CHANGE]) == pytest.approx(2)
    more_steps = settings(training={"max_steps": 30, "validate_every": 5})
    assert known.training_seconds(more_steps, threads=1) == pytest.approx(12)
    assert other_seconds(known, more_steps, [CHANGE]) is None
    for settled in ({"tokens": 2000}, {"checkpoints": "all"}):
        assert other_seconds(known, run, [CHANGE.model_copy(update=settled)]) is None
    assert other_seconds(known, run, [CHANGE], text="another") is None


def test_the_same_number_of_threads_counts_and_others_are_scaled(tmp_path):
    run = settings()
    known = noted(tmp_path, run, 8.0, threads=1)
    assert known.training_seconds(run, threads=2) == pytest.approx(4)
    known = noted(tmp_path, run, 5.0, threads=2)
    assert known.training_seconds(run, threads=2) == pytest.approx(5)
    assert known.training_seconds(run, threads=1) == pytest.approx(8)


def test_only_the_newest_runs_count(tmp_path):
    known = noted(tmp_path, settings(), *[100.0] * 9, *[10.0] * 9)
    assert known.training_seconds(settings(), threads=1) == pytest.approx(10)


def test_a_run_without_steps_takes_what_is_around_them(tmp_path):
    run = settings(training={"max_steps": 0})
    noted(tmp_path, settings(), 5.0, other=1.0)
    known = noted(tmp_path, run, 0.0, 0.0, 0.0, other=7.0)
    assert known.training_seconds(settings(), threads=1) == pytest.approx(5)  # the steps of others are no slower
    assert (known.training_seconds(run, threads=1), other_seconds(known, run)) == (0, pytest.approx(7))


def test_steps_that_were_timed_at_the_nearest_width_count_until_a_run_has_ended(tmp_path):
    rates = [("32-true", 8, 1e6), ("32-true", 32, 16e6)]
    Calibration(tmp_path).note_steps(rates, threads=1)
    known = Calibration(tmp_path)
    for width, rate in ((4, 1e6), (8, 1e6), (12, 1e6), (24, 16e6), (32, 16e6), (64, 16e6)):
        run = settings(encoder={"hidden_size": width})
        assert known.training_seconds(run, threads=1) == pytest.approx(calibration.flops(run) / rate)
    assert known.training_seconds(settings(training={"precision": "bf16-mixed"}), threads=1) is None
    assert noted(tmp_path, settings(), 3.0).training_seconds(settings(), threads=1) == pytest.approx(3)


def test_the_rate_of_the_steps_is_that_of_every_objective_each_with_its_own_operations(tmp_path):
    note_steps(tmp_path, 1e6)
    for kind in ("causal_lm", "translation"):
        run = settings(kind)
        assert Calibration(tmp_path).training_seconds(run, threads=1) == pytest.approx(
            calibration.flops(run) / 1e6
        )


def test_a_gpu_is_as_fast_with_any_number_of_threads(tmp_path):
    note_steps(tmp_path, 1e6, threads=None)
    run = settings()
    for threads in (1, 8):
        assert Calibration(tmp_path).training_seconds(run, threads=threads) == pytest.approx(
            calibration.flops(run) / 1e6
        )
    known = noted(tmp_path, run, 8.0, threads=None)
    assert known.training_seconds(run, threads=4) == pytest.approx(8)


def test_where_there_is_a_gpu_its_rates_count_and_not_those_of_the_processor(tmp_path):
    for threads, rate in ((2, 1e6), (None, 1e9)):
        note_steps(tmp_path, rate, threads=threads)
    run = settings()
    assert Calibration(tmp_path).training_seconds(run, threads=2) == pytest.approx(calibration.flops(run) / 1e9)
    noted(tmp_path, run, 1000.0, threads=2)
    known = noted(tmp_path, run, 1.0, threads=None)
    assert known.training_seconds(run, threads=2) == pytest.approx(1)


def test_what_several_processes_note_at_once_is_all_kept(tmp_path):
    first, second = Calibration(tmp_path), Calibration(tmp_path)  # both read before either writes
    for known, width in ((first, 16), (second, 32)):
        run = settings(encoder={"hidden_size": width})
        known.note_run(planned(run), [], threads=1, training_seconds=width, wall_seconds=width)
    for width in (16, 32):
        run = settings(encoder={"hidden_size": width})
        assert Calibration(tmp_path).training_seconds(run, threads=1) == pytest.approx(width)


def test_machines_that_share_an_output_root_keep_what_each_has_timed(tmp_path, monkeypatch):
    run = settings()
    noted(tmp_path, run, 8.0)
    monkeypatch.setattr(calibration, "processor", lambda: "another")
    assert Calibration(tmp_path).training_seconds(run, threads=1) is None
    noted(tmp_path, run, 2.0)
    assert Calibration(tmp_path).training_seconds(run, threads=1) == pytest.approx(2)
    monkeypatch.undo()
    assert Calibration(tmp_path).training_seconds(run, threads=1) == pytest.approx(8)


def test_a_new_calibration_takes_the_place_of_the_old_one_with_as_many_threads(tmp_path):
    for threads, rate in ((1, 1e6), (2, 5e6), (1, 2e6)):
        note_steps(tmp_path, rate, threads=threads)
    run, known = settings(), Calibration(tmp_path)
    assert known.training_seconds(run, threads=1) == pytest.approx(calibration.flops(run) / 2e6)
    assert known.training_seconds(run, threads=2) == pytest.approx(calibration.flops(run) / 5e6)


@pytest.mark.parametrize(
    "damaged",
    [
        *("", "{", "[]", '{"version": 4, "machines": 1}', '{"machines": {}}', '{"masked_lm/6x64": [1.0]}'),
        '{"version": 3, "machines": {"a machine": {"runs": {}, "steps": {}}}}',
        *(
            json.dumps({"version": 4, "machines": {"a machine": machine}})
            for machine in (
                {"runs": [], "steps": {}},
                {"runs": {}, "steps": None},
                {"runs": {}, "steps": {"32-true": [{"threads": 1, "width": 1}]}},
                {"runs": {}, "steps": {"32-true": [{"threads": 0, "width": 1, "rate": 1.0}]}},
                {"runs": {}, "steps": {"32-true": [{"threads": 1, "width": 1, "rate": "fast"}]}},
            )
        ),
    ],
)
def test_a_damaged_or_older_file_is_as_good_as_none(tmp_path, monkeypatch, damaged):
    monkeypatch.setattr(calibration, "_this_machine", lambda: "a machine")
    (tmp_path / "calibration.json").write_text(damaged)
    known = Calibration(tmp_path)
    assert known.training_seconds(settings(), threads=1) is None
    assert noted(tmp_path, settings(), 4.0).training_seconds(settings(), threads=1) == pytest.approx(4)


def test_makespan_puts_the_longest_first_on_the_first_free_slot():
    assert makespan([], slots=2) == 0
    assert makespan([1, 2, 3], slots=1) == 6
    assert makespan([1, 1, 1, 1, 4], slots=2) == 4
    assert makespan([3, 3, 2, 2, 2], slots=2) == 7  # greedy; the best would be 6
    assert makespan([5, 1], slots=4) == 5


def test_the_bare_loop_takes_the_steps_of_a_run(tokens):
    run = settings(encoder={"dropout": 0})
    step = bare_step(run, tokens)
    seen = [step() for _ in range(run.training.max_steps)]
    assert all(0.8 * 128 < count <= 128 for count in seen)
    with pytest.raises(StopIteration):
        step()


def test_what_a_run_took_tells_nothing_of_a_compiled_one(tmp_path):
    plain, compiled = settings(), settings(training={"compile": True})
    known = noted(tmp_path, plain, 10.0)
    assert known.training_seconds(plain, threads=1) == pytest.approx(10)
    assert known.training_seconds(compiled, threads=1) is None


@pytest.mark.parametrize("device", doctor.SHAPES_BY_DEVICE)
def test_all_that_is_timed_are_runs(device, monkeypatch):
    shapes = doctor.SHAPES_BY_DEVICE[device]
    monkeypatch.setattr(doctor, "SHAPES", shapes)
    for width, shape in shapes.items():
        for precision in doctor.PRECISIONS:
            assert doctor._run(precision, width).training.tokens_per_step == shape.tokens_per_step


def test_steps_are_timed_at_each_width_in_each_precision(monkeypatch):
    monkeypatch.setattr(doctor, "SHAPES", {32: doctor.Shape(512, 512, 1), 64: doctor.Shape(512, 512, 2)})
    before = torch.get_num_threads()
    rates = list(doctor.step_rates(1))
    assert torch.get_num_threads() == before
    assert [(precision, width) for precision, width, _ in rates] == [
        (precision, width) for width in (32, 64) for precision in ("32-true", "bf16-mixed")
    ]
    assert all(rate > 0 for _, _, rate in rates)


def test_the_rate_of_steps_is_operations_a_second(monkeypatch):
    """Counter-check of the rate with a clock that stands still but for a second a step."""
    shape = doctor.Shape(512, 512, 4)
    monkeypatch.setattr(doctor, "SHAPES", {32: shape})
    seconds = iter((10.0, 14.0))
    monkeypatch.setattr(doctor.time, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(doctor, "bare_step", lambda run, text, device: lambda: 500)
    run = doctor._run("32-true", 32)
    assert doctor._rate(run, doctor.made_up_text(shape)) == pytest.approx(500 * operations_per_token(run))


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm", "translation"])
@pytest.mark.parametrize("encoder", [{}, {"positions": "none"}, {"norm": "pre", "intermediate_size": 24}], ids=str)
def test_parameters_are_those_of_the_module(kind, encoder, tokens):
    run = settings(kind, encoder=encoder)
    assert parameters(run) == sum(p.numel() for p in build(run, tokens).parameters())


def test_operations_are_six_a_weight_and_token():
    run = settings("causal_lm", encoder={"num_hidden_layers": 2, "hidden_size": 16})
    matrices = 2 * (4 * 16 * 16 + 2 * 16 * 64) + 16 * 16 + 16 * 320
    assert calibration.flops(run) == 6 * matrices * 12 * 128
    assert (
        calibration.flops(settings("masked_lm"))
        < calibration.flops(run)
        < calibration.flops(settings("translation"))
    )
    assert calibration.flops(settings(training={"max_steps": 0})) == 0


def test_masked_lm_needs_the_top_of_its_last_block_at_predicted_positions_only():
    run = settings("masked_lm", encoder={"num_hidden_layers": 2, "hidden_size": 16})
    below = 4 * 16 * 16 + 2 * 16 * 64  # the first block, and the second's keys and values
    everywhere = below + 2 * 16 * 16
    predicted = (
        2 * 16 * 16 + 2 * 16 * 64 + 16 * 16 + 16 * 320
    )  # its queries, output and feed-forward, and the head
    assert calibration.flops(run) == pytest.approx(6 * (everywhere + 0.15 * predicted) * 12 * 128)


@pytest.mark.parametrize(("every", "times"), [(4, 3), (5, 2), (10, 1), (100, 1)])
def test_a_run_is_evaluated_at_its_end_too(every, times):
    assert calibration.evaluations(settings(training={"max_steps": 10, "validate_every": every})) == times
    assert calibration.evaluations(settings(training={"max_steps": 0})) == 0


@pytest.mark.parametrize(("steps", "keep", "saved"), [(10, "all", 6), (16, "all", 6), (0, "all", 1), (10, 2, 2)])
def test_checkpoints_are_those_of_0_the_powers_of_two_and_the_last(steps, keep, saved):
    run = settings(training={"max_steps": steps, "keep_checkpoints": keep})
    last, every = (LayerChangeSettings(kind="layer_change", checkpoints=which) for which in ("last", "all"))
    assert calibration.measured_checkpoints(last, run) == 1
    assert calibration.measured_checkpoints(every, run) == saved
