"""How long runs take: from runs that ended, else from a calibration, else unknown."""

import json
from typing import get_args

import pytest
import torch

from ablations.measures.settings import LayerChangeSettings, PicturesSettings, ValidationSettings
from ablations.runs import calibration, cost, doctor
from ablations.runs.calibration import COMPARED, TIMED, TIMED_BESIDES, Calibration, Estimate, makespan
from ablations.runs.cost import ValidationText
from ablations.runs.doctor import UNITS
from ablations.tasks.settings import FineTuningSettings
from lightning_modules.config import operations_per_token
from lightning_modules.config.data import LanguageData
from lightning_modules.config.objectives import Objective
from lightning_modules.provenance import available_cores
from lightning_modules.training.speed import bare_step
from tests.support.tiny_text import settings


def noted(out, run, *training, threads=1, other=0.0, measures=()):
    for seconds in training:
        Calibration(out).note_run(
            run,
            measures,
            threads=threads,
            validation=TEXT,
            training_seconds=seconds,
            wall_seconds=seconds + other,
        )
    return Calibration(out)


TEXT = ValidationText(tokens=6000, sentences=500)


def around_steps(known, run, measures=(), *, threads=1):
    return known.around_steps(run, measures, asked=measures, threads=threads, validation=TEXT)


def other_seconds(known, run, measures=(), *, threads=1):
    return around_steps(known, run, measures, threads=threads).seconds


def test_a_run_of_the_kind_tells_how_long_the_next_one_takes(tmp_path):
    short, long = (settings(training={"max_steps": steps, "validate_every": steps // 2}) for steps in (10, 30))
    assert Calibration(tmp_path).training_seconds(short, threads=1) is None
    assert Calibration(tmp_path).training_seconds(settings(training={"max_steps": 0}), threads=1) == 0
    # One run met a busy machine: the median does not care.
    known = noted(tmp_path / "new", short, 4.0, 5.0, 60.0, other=2.0)
    assert known.training_seconds(long, threads=1) == pytest.approx(15)
    assert other_seconds(known, long) == pytest.approx(2)
    assert other_seconds(known, long, [ValidationSettings(kind="validation")]) == 0  # of which nothing is known
    assert known.training_seconds(settings("causal_lm"), threads=1) is None
    assert other_seconds(known, settings("causal_lm")) == 0


def test_what_is_around_the_steps_is_known_only_of_as_many_evaluations_and_the_same_measures(tmp_path):
    run = settings(training={"max_steps": 10, "validate_every": 5})
    change = LayerChangeSettings(kind="layer_change", tokens=1000)
    known = noted(tmp_path, run, 4.0, other=2.0, measures=[change])
    assert other_seconds(known, run, [change]) == pytest.approx(2)
    more_steps = settings(training={"max_steps": 30, "validate_every": 5})
    assert known.training_seconds(more_steps, threads=1) == pytest.approx(12)
    assert other_seconds(known, more_steps, [change]) == 0  # of which nothing is known
    for settled in ({"tokens": 2000}, {"checkpoints": "all"}):
        assert other_seconds(known, run, [change.model_copy(update=settled)]) == 0
    longer = TEXT._replace(tokens=2 * TEXT.tokens)
    told = known.around_steps(run, [change], asked=[change], threads=1, validation=longer)
    assert told == (0, ("layer_change",))


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


def test_the_calibration_is_read_between_its_widths_and_held_beyond_them(tmp_path):
    rates = [("training/masked_lm/32-true", 8, 1e6), ("training/masked_lm/32-true", 32, 16e6)]
    Calibration(tmp_path).note_reference(rates, threads=1)
    known = Calibration(tmp_path)
    for width, rate in ((4, 1e6), (8, 1e6), (16, 4e6), (32, 16e6), (64, 16e6)):
        run = settings(encoder={"hidden_size": width})
        assert known.training_seconds(run, threads=1) == pytest.approx(cost.flops(run) / rate)
    assert known.training_seconds(settings("causal_lm"), threads=1) is None
    assert known.training_seconds(settings(training={"precision": "bf16-mixed"}), threads=1) is None
    assert noted(tmp_path, settings(), 3.0).training_seconds(settings(), threads=1) == pytest.approx(3)


def test_what_no_run_has_told_of_evaluations_and_measures_comes_from_the_calibration(tmp_path):
    run = settings(training={"max_steps": 10, "validate_every": 10})
    measures = [LayerChangeSettings(kind="layer_change", tokens=1000)]
    rates = [("other/evaluation", 16, 1e9), ("other/layer_change", 16, 500.0), ("other/set_up", 1, 4.0)]
    Calibration(tmp_path).note_reference(rates, threads=2)
    known = Calibration(tmp_path)
    evaluation = cost.evaluation_work(run, tokens=6000) / 1e9
    change = 1000 * (run.encoder.num_hidden_layers + 1) / 500
    assert other_seconds(known, run, threads=2) == pytest.approx(0.25 + evaluation)
    assert other_seconds(known, run, measures, threads=2) == pytest.approx(0.25 + evaluation + change)
    assert other_seconds(known, run, measures, threads=1) == pytest.approx(0.25 + 2 * (evaluation + change))


def test_a_command_that_trains_takes_time_before_and_after_its_runs(tmp_path):
    Calibration(tmp_path).note_reference([("other/start_and_end", 1, 0.125)], threads=2)
    assert Calibration(tmp_path).start_and_end_seconds() == pytest.approx(8)
    assert Calibration(tmp_path / "none").start_and_end_seconds() == 0


def test_making_the_built_in_language_takes_time_and_of_other_text_nothing_is_known(tmp_path):
    Calibration(tmp_path).note_reference([("other/text", 1, 1000.0)], threads=available_cores())
    known = Calibration(tmp_path)
    language = LanguageData(kind="language", train=9_000, validation=600, test=400)
    assert known.text_seconds(language) == pytest.approx(10)
    assert known.text_seconds(settings().data) == 0
    assert Calibration(tmp_path / "none").text_seconds(language) == 0


def test_an_objective_timed_at_one_width_is_as_much_slower_at_others(tmp_path):
    rates = [
        ("training/masked_lm/32-true", 64, 8e6),
        ("training/masked_lm/32-true", 256, 20e6),
        ("training/masked_lm/bf16-mixed", 64, 10e6),
        ("training/permutation_lm/32-true", 64, 2e6),
    ]
    Calibration(tmp_path).note_reference(rates, threads=1)
    known = Calibration(tmp_path)

    def rate(objective, width, precision):
        run = settings(objective, encoder={"hidden_size": width}, training={"precision": precision})
        return cost.flops(run) / known.training_seconds(run, threads=1)

    assert rate("permutation_lm", 64, "32-true") == pytest.approx(2e6)
    assert rate("permutation_lm", 256, "32-true") == pytest.approx(5e6)
    assert rate("permutation_lm", 64, "bf16-mixed") == pytest.approx(2.5e6)
    assert rate("replaced_token", 256, "32-true") == pytest.approx(20e6)  # of which nothing is known


def test_a_gpu_is_as_fast_with_any_number_of_threads(tmp_path):
    Calibration(tmp_path).note_reference([("training/masked_lm/32-true", 16, 1e6)], threads=None)
    run = settings()
    for threads in (1, 8):
        assert Calibration(tmp_path).training_seconds(run, threads=threads) == pytest.approx(cost.flops(run) / 1e6)
    known = noted(tmp_path, run, 8.0, threads=None)
    assert known.training_seconds(run, threads=4) == pytest.approx(8)


def test_where_there_is_a_gpu_its_rates_count_and_not_those_of_the_processor(tmp_path):
    for threads, rate in ((2, 1e6), (None, 1e9)):
        Calibration(tmp_path).note_reference([("training/masked_lm/32-true", 16, rate)], threads=threads)
    run = settings()
    assert Calibration(tmp_path).training_seconds(run, threads=2) == pytest.approx(cost.flops(run) / 1e9)
    noted(tmp_path, run, 1000.0, threads=2)
    known = noted(tmp_path, run, 1.0, threads=None)
    assert known.training_seconds(run, threads=2) == pytest.approx(1)


def test_what_several_processes_note_at_once_is_all_kept(tmp_path):
    first, second = Calibration(tmp_path), Calibration(tmp_path)  # both read before either writes
    for known, width in ((first, 16), (second, 32)):
        run = settings(encoder={"hidden_size": width})
        known.note_run(run, [], threads=1, validation=TEXT, training_seconds=width, wall_seconds=width)
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


def test_measures_of_which_nothing_is_known_are_named_and_not_counted(tmp_path):
    run = settings(training={"max_steps": 10, "validate_every": 10})
    change = LayerChangeSettings(kind="layer_change", tokens=1000)
    tuned = [FineTuningSettings(kind="fine_tuning", tasks=(name,)) for name in ("rte", "mrpc")]
    seen = PicturesSettings(kind="pictures", words=("a",))
    asked = [change, *tuned, seen]
    assert around_steps(Calibration(tmp_path), run, asked) == (0, ("layer_change", "fine_tuning", "pictures"))
    Calibration(tmp_path).note_reference([("other/layer_change", 16, 500.0)], threads=1)
    known = Calibration(tmp_path)
    change_alone = 1000 * (run.encoder.num_hidden_layers + 1) / 500
    assert around_steps(known, run, asked) == (pytest.approx(change_alone), ("fine_tuning", "pictures"))
    assert known.measuring(run, tuned, threads=1, validation=TEXT) == Estimate(0, ("fine_tuning",))
    assert known.comparing_seconds(run, 5000.0, threads=1) == pytest.approx(10)
    assert Calibration(tmp_path / "none").comparing_seconds(run, 5000.0, threads=1) is None
    # A run that was asked for the same tells of all of it.
    told = noted(tmp_path, run, 5.0, other=70.0, measures=asked)
    assert around_steps(told, run, asked) == (pytest.approx(70), ())


def test_a_new_calibration_takes_the_place_of_the_old_one_with_as_many_threads(tmp_path):
    for threads, rate in ((1, 1e6), (2, 5e6), (1, 2e6)):
        Calibration(tmp_path).note_reference([("training/masked_lm/32-true", 16, rate)], threads=threads)
    run, known = settings(), Calibration(tmp_path)
    assert known.training_seconds(run, threads=1) == pytest.approx(cost.flops(run) / 2e6)
    assert known.training_seconds(run, threads=2) == pytest.approx(cost.flops(run) / 5e6)


@pytest.mark.parametrize(
    "damaged",
    [
        *("", "{", "[]", '{"version": 3, "machines": 1}', '{"machines": {}}', '{"masked_lm/6x64": [1.0]}'),
        '{"version": 2, "runs": {}, "reference": {}}',
        *(
            json.dumps({"version": 3, "machines": {"a machine": machine}})
            for machine in (
                {"runs": [], "reference": {}},
                {"runs": {}, "reference": None},
                {"runs": {}, "reference": {"other/set_up": [{"threads": 1, "width": 1}]}},
                {"runs": {}, "reference": {"other/set_up": [{"threads": 0, "width": 1, "rate": 1.0}]}},
                {"runs": {}, "reference": {"other/set_up": [{"threads": 1, "width": 1, "rate": "fast"}]}},
            )
        ),
    ],
)
def test_a_damaged_or_older_file_is_as_good_as_none(tmp_path, monkeypatch, damaged):
    monkeypatch.setattr(calibration, "_this_machine", lambda: "a machine")
    (tmp_path / "calibration.json").write_text(damaged)
    known = Calibration(tmp_path)
    assert known.training_seconds(settings(), threads=1) is None
    assert known.start_and_end_seconds() == 0
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
    known = Calibration(tmp_path)
    known.note_run(plain, [], threads=1, validation=TEXT, training_seconds=10, wall_seconds=10)
    assert known.training_seconds(plain, threads=1) == pytest.approx(10)
    assert known.training_seconds(compiled, threads=1) is None


@pytest.mark.parametrize("device", doctor.SHAPES_BY_DEVICE)
def test_what_is_timed_on_a_device_are_runs_of_all_widths_that_plans_ask_for(device, monkeypatch):
    shapes = doctor.SHAPES_BY_DEVICE[device]
    monkeypatch.setattr(doctor, "SHAPES", shapes)
    assert {calibration.COMPARED_WIDTH, *doctor.MEASURED_WIDTHS} <= set(shapes)
    for width, shape in shapes.items():
        for kind in TIMED + COMPARED:
            assert doctor._run(kind, "bf16-mixed", width).training.tokens_per_step == shape.tokens_per_step


def test_reference_rates_are_of_every_objective_and_of_all_that_is_no_training(monkeypatch):
    monkeypatch.setattr(doctor, "SHAPES", {32: doctor.Shape(512, 512, 1)})
    monkeypatch.setattr(doctor, "MEASURED_WIDTHS", (32,))
    monkeypatch.setattr(doctor, "COMPARED_WIDTH", 32)
    monkeypatch.setattr(doctor, "TEXT", LanguageData(kind="language", train=500, validation=50, test=50))
    monkeypatch.setattr(doctor, "CLUSTERS", 20)
    monkeypatch.setattr(doctor, "_rate", lambda run, text: operations_per_token(run))
    before = torch.get_num_threads()
    rates = list(doctor.reference_rates(available_cores()))
    assert torch.get_num_threads() == before
    trained = [(what, width) for what, width, _ in rates[:6]]
    assert trained == [
        (f"training/{objective}/{precision}", 32) for precision in ("32-true", "bf16-mixed") for objective in TIMED
    ]
    compared, others = rates[6:11], rates[11:]
    assert [(what, width) for what, width, _ in compared] == [
        (f"training/{kind}/32-true", 32) for kind in COMPARED
    ]
    kinds = [get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(Objective)[0])]
    assert sorted([*TIMED, *COMPARED]) == sorted(kinds)
    assert len({rate for _, _, rate in rates[:11]}) == 8  # no objective costs what another does
    measures = ("layer_change", "token_information", "neighbours", "geometry", "influence")
    kinds = ("evaluation", "translation", *measures)
    assert kinds == TIMED_BESIDES
    assert set(UNITS) == {f"other/{kind}" for kind in kinds[1:]}  # all but evaluation, which is operations
    assert [(what, width) for what, width, _ in others] == [
        *((f"other/{kind}", 32) for kind in kinds),
        ("other/text", 1),
        ("other/set_up", 1),
        ("other/start_and_end", 1),
    ]
    assert all(rate > 0 for _, _, rate in rates)
