"""The search for settings: what is wrong with it, which values are tried, and which of them is chosen."""

import itertools
import json
from functools import partial

import pytest

from ablations.errors import SpecProblems
from ablations.spec import grid
from ablations.spec.experiment import Range
from ablations.spec.load import load
from ablations.spec.tuning import Tried, at_edge, best, combinations, next_values, trial_runs, tuned_arms
from tests.support.spec_files import write_spec

RATES = {"training.learning_rate": [1e-3, 2e-3]}
RANGE = {"training.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}


def opened(folder, **tune):
    return load(write_spec(folder, tune=tune))


def sentences(folder, *, of_arms=None, **tune):
    """Everything that is wrong with a spec that has only its search wrong, without the places."""
    changes = {"tune": tune} | ({"arms": of_arms} if of_arms else {})
    with pytest.raises(SpecProblems) as raised:
        load(write_spec(folder, **changes))
    return [problem.sentence for problem in raised.value.problems]


# What is wrong ---------------------------------------------------------------------------------------


def test_a_seed_of_the_experiment_is_no_seed_of_trials(tmp_path):
    assert sentences(tmp_path, settings=RATES, seeds=[5, 1]) == [
        "tune.seeds has 1, but this is a seed of the experiment; write other seeds, such as [1000]"
    ]


def test_arms_are_named_as_the_spec_names_them_and_are_trained(tmp_path):
    arms = {"mlm": {"objective": {"kind": "masked_lm"}}, "start": {"objective": {"kind": "masked_lm"}}}
    arms["start"]["training"] = {"max_steps": 0}
    assert sentences(tmp_path, of_arms=arms, settings=RATES, arms=["mln", "start"]) == [
        'an entry of tune.arms must be the name of an arm, but is "mln"; did you mean mlm?',
        "tune.arms has start, but this arm is not trained (training.max_steps is 0); remove it",
    ]


@pytest.mark.parametrize(
    ("path", "sentence"),
    {
        "objective.masking.ratio": (
            "tune.settings has objective.masking.ratio, but only settings of training and encoder can be "
            "tuned, because losses on different texts or objectives cannot be compared"
        ),
        "learning_rate": (
            "tune.settings has learning_rate, which is not a setting; did you mean training.learning_rate?"
        ),
        "training.max_steps": (
            "tune.settings has training.max_steps, but then arms would differ in the amount of training; remove it"
        ),
        "training.validate_every": (
            "tune.settings has training.validate_every, but this setting does not change the loss; remove it"
        ),
        "training.seeds.init": "tune.settings has training.seeds.init, but a best seed has no meaning; remove it",
        "training.learning_rte": (
            "training.learning_rte is not a setting of arm mlm; did you mean training.learning_rate?"
        ),
        "encoder.sandwich": "encoder.sandwich is not a setting of arm mlm; correct its name, or remove it",
    }.items(),
)
def test_what_cannot_be_tuned_is_refused(tmp_path, path, sentence):
    assert sentences(tmp_path, settings={path: [1, 2]}) == [sentence]


def test_a_setting_and_a_part_of_it_are_not_tuned_at_once(tmp_path):
    """One of the two values would replace the other, and trials would not be what their names say."""
    optimizers = [{"kind": "muon"}, {"kind": "muon", "ns_steps": 7}]
    for order in (1, -1):
        both = [("training.optimizer", optimizers), ("training.optimizer.ns_steps", [3, 4])][::order]
        assert sentences(tmp_path, settings=dict(both)) == [
            "tune.settings has training.optimizer.ns_steps and training.optimizer, of which it is a part; tune "
            "only one of them"
        ]
    assert sentences(tmp_path, settings={"encoder": [{"norm": "pre"}, {"norm": "post"}]}) == [
        "tune.settings has encoder, which is a group of settings; name one of them, such as encoder.dropout"
    ]


def test_a_setting_that_only_some_arms_have_is_refused(tmp_path):
    arms = {
        "sgd": {"objective": {"kind": "masked_lm"}, "training": {"optimizer": {"kind": "sgd"}}},
        "muon": {"objective": {"kind": "masked_lm"}, "training": {"optimizer": {"kind": "muon"}}},
    }
    assert sentences(tmp_path, of_arms=arms, settings={"training.optimizer.ns_steps": [3, 5]}) == [
        "training.optimizer.ns_steps is not a setting of arm sgd; list under tune.arms only arms that have it"
    ]


def test_a_setting_that_an_arm_does_not_read_is_refused(tmp_path):
    arms = {"by-sgd": {"objective": {"kind": "masked_lm"}, "training": {"optimizer": "sgd"}}}
    assert sentences(tmp_path, of_arms=arms, settings={"training.adam_beta1": [0.5, 0.9]}) == [
        "tune.settings has training.adam_beta1, but sgd of arm by-sgd does not read it; list under tune.arms only "
        "arms that read it, or remove it"
    ]


def test_a_setting_in_which_arms_differ_is_refused(tmp_path):
    arms = {
        "slow": {"objective": {"kind": "masked_lm"}, "training": {"learning_rate": 1e-4}},
        "fast": {"objective": {"kind": "masked_lm"}},
    }
    assert sentences(tmp_path, of_arms=arms, settings=RATES) == [
        "tune would replace training.learning_rate, but arms slow and fast differ in this setting; leave it "
        "out of tune, or out of the arms"
    ]
    resolved = grid.resolved(load(write_spec(tmp_path, tune={"settings": RATES})))
    assert tuned_arms(load(write_spec(tmp_path, json.dumps(resolved)))) == ["mlm", "mt"]  # which writes all of it
    tune = {"settings": RATES, "arms": ["fast"]}
    assert tuned_arms(load(write_spec(tmp_path, arms=arms, tune=tune))) == ["fast"]


@pytest.mark.parametrize("values", [[32, 64], {"low": 32, "high": 64}])
def test_with_equal_operations_no_setting_is_tuned_that_changes_them(tmp_path, values):
    tune = {"settings": {"encoder.intermediate_size": values} | RATES, "budget": 8}
    with pytest.raises(SpecProblems) as raised:
        load(write_spec(tmp_path, match="flops", tune=tune))
    (problem,) = raised.value.problems
    assert problem.sentence == (
        "tune.settings has encoder.intermediate_size, but it changes the operations of a step of arm mlm, and "
        "match: flops holds them equal; remove it, or write match: steps"
    )
    load(write_spec(tmp_path, match="steps", tune=tune))
    load(write_spec(tmp_path, match="flops", tune={"settings": RATES | {"encoder.dropout": [0.0, 0.1]}}))


def test_a_value_that_an_arm_refuses_is_found_at_its_place(tmp_path):
    spec = write_spec(tmp_path, tune={"settings": {"training.learning_rate": [1e-3, -1]}})
    with pytest.raises(SpecProblems) as raised:
        load(spec)
    (problem,) = raised.value.problems
    assert problem.sentence == ("arm mlm: training.learning_rate must be greater than 0, but is -1; raise it")
    assert spec.read_text().splitlines()[problem.line - 1][problem.column - 1 :].startswith("-1")


def test_values_that_do_not_go_together_are_found(tmp_path):
    tune = {"encoder.hidden_size": [16, 24], "encoder.num_attention_heads": [2, 16]}
    assert sentences(tmp_path, settings=tune)[0].startswith(
        "arm mlm with encoder.hidden_size 24 and encoder.num_attention_heads 16: "
    )


def test_a_budget_has_a_trial_for_each_arm_and_a_range_needs_one(tmp_path):
    assert sentences(tmp_path, settings=RATES, budget=1) == [
        "tune.budget is 1, which is less than one trial for each of 2 arms; raise it"
    ]
    assert sentences(tmp_path, settings=RANGE) == [
        "the range of training.learning_rate needs tune.budget, the number of trials; give it, or a list of values"
    ]
    backwards = {"training.learning_rate": {"low": 1e-2, "high": 1e-4, "log": True}}
    assert "must have a low below high and above 0" in sentences(tmp_path, settings=backwards, budget=4)[0]


def test_one_value_is_no_search(tmp_path):
    assert sentences(tmp_path, settings={"training.learning_rate": [1e-3]}) == [
        "tune.settings.training.learning_rate must have at least two values to choose from, but has 1"
    ]
    assert sentences(tmp_path, settings={"training.learning_rate": [1e-3, 1e-3]}) == [
        "tune.settings.training.learning_rate has 0.001 twice; give it once"
    ]
    assert sentences(tmp_path, settings={"encoder.dropout": {"low": 0, "hgh": 1}}, budget=2) == [
        "tune.settings.encoder.dropout.hgh is unknown; did you mean high?"
    ]


# Trials ----------------------------------------------------------------------------------------------


def test_a_trial_differs_from_its_arm_in_values_seed_and_steps_alone(tmp_path):
    experiment = opened(tmp_path, settings=RATES, seeds=[7, 8], part_of_steps=0.5)
    arm = grid.arms_of(experiment)["mlm"]
    runs = trial_runs(experiment.tune, arm, {"training.learning_rate": 2e-3}, max_steps=40)
    assert [(run.arm, run.seed) for run in runs] == [
        ("mlm,learning_rate=0.002", 7),
        ("mlm,learning_rate=0.002", 8),
    ]
    for run in runs:
        before = next(run for run in grid.runs(experiment) if run.arm == "mlm").settings
        after = run.settings
        assert (after.training.max_steps, after.training.learning_rate, after.seed) == (20, 2e-3, run.seed)
        assert (after.data, after.encoder, after.objective) == (before.data, before.encoder, before.objective)


def test_the_warm_up_of_a_trial_is_the_same_share_of_its_steps(tmp_path):
    training = {"max_steps": 400, "tokens_per_step": 128}
    tune = {"settings": {"training.warmup_steps": [40, 100]}, "part_of_steps": 0.25}
    experiment = load(write_spec(tmp_path, training=training, tune=tune))
    arm = grid.arms_of(experiment)["mlm"]
    warmups = [
        trial_runs(experiment.tune, arm, values, max_steps=400)[0].settings.training.warmup_steps
        for values in combinations(experiment.tune)
    ]
    assert warmups == [10, 25]


def test_the_chosen_values_become_the_arm_as_if_it_wrote_them(tmp_path):
    experiment = opened(tmp_path, settings=RATES)
    written = load(write_spec(tmp_path, training={"max_steps": 4, "tokens_per_step": 128, "learning_rate": 2e-3}))
    tuned = grid.runs(experiment, tuned={"mlm": {"training.learning_rate": 2e-3}})
    assert [run for run in tuned if run.arm == "mlm"] == [run for run in grid.runs(written) if run.arm == "mlm"]
    assert [run for run in tuned if run.arm == "mt"] == [run for run in grid.runs(experiment) if run.arm == "mt"]


def test_generated_arms_are_tuned_too_and_untrained_ones_are_not(tmp_path):
    arms = {"mlm": {"objective": {"kind": "masked_lm"}}, "start": {"objective": {"kind": "masked_lm"}}}
    arms["start"]["training"] = {"max_steps": 0}
    axes = {"base": "mlm", "axes": {"objective.masking.ratio": [0.15, 0.4]}}
    experiment = load(write_spec(tmp_path, arms=arms, grid=axes, tune={"settings": RATES}))
    assert tuned_arms(experiment) == ["mlm", "mlm,ratio=0.15", "mlm,ratio=0.4"]


def test_every_combination_is_tried_once(tmp_path):
    experiment = opened(tmp_path, settings=RATES | {"encoder.dropout": [0.0, 0.1, 0.2]})
    tries = partial(next_values, experiment.tune, grid.arms_of(experiment)["mlm"], arms=2)
    every = [
        {"training.learning_rate": rate, "encoder.dropout": dropout}
        for rate, dropout in itertools.product([1e-3, 2e-3], [0.0, 0.1, 0.2])
    ]
    assert tries([]) == every
    assert tries([Tried(every[3], 1.0)]) == every[:3] + every[4:]
    assert tries([Tried(values, None) for values in every]) == []


# Optuna ----------------------------------------------------------------------------------------------


def searched(experiment, loss, *, arms):
    history = []
    arm = grid.arms_of(experiment)["mlm"]
    while more := next_values(experiment.tune, arm, history, arms=arms):
        (values,) = more
        history.append(Tried(values, loss(values)))
    return history


def test_a_budget_is_shared_by_the_arms_and_finds_a_minimum(tmp_path):
    experiment = opened(tmp_path, settings=RANGE, budget=60)

    def loss(values):
        return abs(values["training.learning_rate"] / 1.5e-3 - 1)

    history = searched(experiment, loss, arms=2)
    assert len(history) == 30
    rates = [trial.values["training.learning_rate"] for trial in history]
    assert all(1e-4 <= rate <= 1e-2 and float(f"{rate:.4g}") == rate for rate in rates)
    assert loss(best(history).values) < 0.2  # 30 draws at random miss it by more 1 time in 5 (0.946 ** 30)
    late = sum(abs(rate / 1.5e-3 - 1) < 0.5 for rate in rates[15:])
    assert late > 5  # at random 15 x 0.24 = 3.6 of them are so near


def test_a_search_goes_on_as_it_would_have_whatever_was_said_between(tmp_path):
    settings = RANGE | {"training.optimizer": ["adamw", {"kind": "sgd", "momentum": 0.5}]}
    experiment = opened(tmp_path, settings=settings, budget=24)

    def loss(values):
        return None if values["training.optimizer"] == "adamw" else values["training.learning_rate"]

    history = searched(experiment, loss, arms=2)
    assert {str(trial.values["training.optimizer"]) for trial in history} == {
        "adamw",
        "{'kind': 'sgd', 'momentum': 0.5}",
    }
    for ended in (0, 1, 5, 11):
        (again,) = next_values(experiment.tune, grid.arms_of(experiment)["mlm"], history[:ended], arms=2)
        assert again == history[ended].values


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"encoder.num_attention_heads": {"low": 1, "high": 4}}, [1, 2, 4]),  # of a width of 16
        ({"encoder.num_attention_heads": [2, 8], "encoder.hidden_size": [16, 20]}, [(2, 16), (2, 20), (8, 16)]),
    ],
)
def test_values_that_the_arm_refuses_together_are_not_suggested(settings, expected, tmp_path):
    history = searched(opened(tmp_path, settings=settings, budget=40), lambda values: 1.0, arms=2)
    tried = [tuple(trial.values.values()) for trial in history]
    assert sorted(values if len(values) > 1 else values[0] for values in tried) == expected


def test_too_many_trials_are_refused_at_once(tmp_path):
    """The combinations of ten values of each of eight settings are never listed."""
    shares = [number / 20 for number in range(10)]
    names = ("dropout", "attention_dropout", "feed_forward_dropout")
    settings = {f"encoder.{name}": shares for name in names}
    settings |= {
        f"training.{name}": [1e-4 * (1 + i) for i in range(10)] for name in ("learning_rate", "weight_decay")
    }
    settings |= {"encoder.layer_norm_epsilon": [1e-12 * (1 + i) for i in range(10)]}
    assert sentences(tmp_path, settings=settings) == [
        "tune makes 2,000,000 trials, but at most 10,000 are allowed; give fewer values"
    ]


def test_no_trial_is_repeated_and_a_search_ends_when_everything_was_tried(tmp_path):
    """Optuna alone suggests the same of few values again and again."""
    lists = {"training.learning_rate": [1e-3, 2e-3, 4e-3], "encoder.dropout": [0, 0.1]}
    whole = opened(tmp_path, settings={"encoder.num_hidden_layers": {"low": 1, "high": 3}}, budget=40)
    experiment = opened(tmp_path, settings=lists, budget=40)
    for searching, number in ((experiment, 6), (whole, 3)):
        history = searched(searching, lambda values: sum(values.values()), arms=2)
        assert len(history) == number
        assert all(
            trial.values not in [other.values for other in history[:at]] for at, trial in enumerate(history)
        )


# Choice ----------------------------------------------------------------------------------------------


def test_the_lowest_loss_is_chosen_the_first_of_several_and_none_that_diverged():
    trials = [Tried({"a": n}, loss) for n, loss in enumerate([None, 2.0, 1.0, 1.0])]
    assert best(trials) is trials[2]
    assert best(trials[:1]) is None


@pytest.mark.parametrize(
    ("chosen", "tried", "edges"),
    [(1e-3, [1e-3, 2e-3], ["a"]), (2e-3, [1e-3, 2e-3, 4e-3], []), (0, [0, 0.1], []), ("x", ["x", "y"], [])],
)
def test_an_edge_is_the_smallest_or_the_largest_number_that_was_tried(chosen, tried, edges):
    history = [Tried({"a": value}, 1.0) for value in tried]
    assert at_edge({"a": chosen}, history, {"a": tuple(tried)}) == edges


@pytest.mark.parametrize(
    ("chosen", "searched", "edges"),
    [
        (0.009, {"low": 1e-3, "high": 3e-2, "log": True}, []),
        (0.0013, {"low": 1e-3, "high": 3e-2, "log": True}, ["a"]),
        (0.0225, {"low": 1e-3, "high": 3e-2, "log": True}, ["a"]),
        (0.0225, {"low": 1e-3, "high": 3e-2}, []),
        (0, {"low": 0, "high": 1}, []),
    ],
)
def test_the_edges_of_a_range_are_its_outermost_tenths_whatever_was_tried(chosen, searched, edges):
    assert at_edge({"a": chosen}, [Tried({"a": chosen}, 1.0)], {"a": Range(**searched)}) == edges
