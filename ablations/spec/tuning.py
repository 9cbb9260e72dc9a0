"""Tuning of arms: the values that a search tries, the runs of its trials, and the choice of the best. No
torch.

A trial trains an arm with other values of the tuned settings, on seeds that the experiment does not use and
for a part of the steps. The arm then gets the values with the lowest validation loss.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, NamedTuple

from ablations.errors import Fault, KeyPath, SpecError
from ablations.spec.experiment import LONGEST_NAME, Arm, Experiment, Range, Run, Tune
from ablations.spec.grid import MOST_ARMS, arm_faults, arms_of, changed_by, lasting, setting_paths, settings_of
from ablations.wording import exact_number, guess, listed, shown
from lightning_modules.config import operations_per_token

Values = dict[str, Any]
"""Values of tuned settings, by dotted path."""

MORE_TRAINING = ("training.max_steps", "training.tokens_per_step", "training.sentences")
"""Settings that change the amount of training. They cannot be tuned, as arms would be compared after
different amounts."""

WITHOUT_EFFECT = (
    "training.validate_every",
    "training.keep_checkpoints",
    "training.accumulate",
    "training.loggers",
)
"""Settings that do not change the weights, and so cannot be tuned."""


class Tried(NamedTuple):
    """Ended trial: its values and its loss."""

    values: Values
    loss: float | None
    """Mean validation loss over the seeds of the trials, in nats; None where training diverged."""


# Checks ----------------------------------------------------------------------------------------------


def tune_faults(experiment: Experiment) -> Iterator[Fault]:
    """Yield the faults of `tune`, with their paths in the spec. The rest of the spec must have no faults."""
    tune = experiment.tune
    if tune is None:
        return
    for index, seed in enumerate(tune.seeds):
        if seed in experiment.all_seeds:
            sentence = (
                f"tune.seeds has {seed}, but this is a seed of the experiment; write other seeds, such as [1000]"
            )
            yield Fault(("tune", "seeds", index), sentence)
    arms = arms_of(experiment)
    unfit = list(_arm_faults(tune, arms))
    settings = [path for arm in arms.values() for path in setting_paths(arm) or ()]
    unfit += [fault for path in tune.settings for fault in _path_faults(tune, path, settings)]
    yield from unfit
    if unfit:
        return
    tuned = [arms[name] for name in tuned_arms(experiment)]
    if not tuned:
        yield Fault(
            ("tune",),
            "tune has no arm to tune, because no arm is trained (training.max_steps is 0); remove tune",
            "key",
        )
        return
    unfit = [fault for path in tune.settings for fault in _value_faults(tune, path, tuned)]
    if not unfit and experiment.match == "flops":
        unfit = list(_operation_faults(tune, tuned))
    yield from unfit or _number_faults(tune, tuned)


def _arm_faults(tune: Tune, arms: Mapping[str, Arm]) -> Iterator[Fault]:
    for index, name in enumerate(tune.arms or ()):
        if name not in arms:
            sentence = f"an entry of tune.arms must be the name of an arm, but is {shown(name)}{guess(name, arms)}"
            yield Fault(("tune", "arms", index), sentence)
        elif not settings_of(arms[name]).training.max_steps:
            sentence = f"tune.arms has {name}, but this arm is not trained (training.max_steps is 0); remove it"
            yield Fault(("tune", "arms", index), sentence)


def _path_faults(tune: Tune, path: str, settings: Sequence[str]) -> Iterator[Fault]:
    place: KeyPath = ("tune", "settings", path)
    if example := {"training": "training.learning_rate", "encoder": "encoder.dropout"}.get(path):
        sentence = f"tune.settings has {path}, which is a group of settings; name one of them, such as {example}"
        yield Fault(place, sentence, "key")
    elif "." not in path and (hint := guess(path, settings)):
        yield Fault(place, f"tune.settings has {path}, which is not a setting{hint}", "key")
    elif path.partition(".")[0] not in ("training", "encoder"):
        yield Fault(
            place,
            f"tune.settings has {path}, but only settings of training and encoder can be tuned, because losses "
            "on different texts or objectives cannot be compared",
            "key",
        )
    elif path in MORE_TRAINING:
        sentence = f"tune.settings has {path}, but then arms would differ in the amount of training; remove it"
        yield Fault(place, sentence, "key")
    elif path.startswith("training.seeds"):
        sentence = f"tune.settings has {path}, but a best seed has no meaning; remove it"
        yield Fault(place, sentence, "key")
    elif path in WITHOUT_EFFECT:
        yield Fault(
            place, f"tune.settings has {path}, but this setting does not change the loss; remove it", "key"
        )
    elif around := next((other for other in tune.settings if path.startswith(f"{other}.")), None):
        sentence = f"tune.settings has {path} and {around}, of which it is a part; tune only one of them"
        yield Fault(place, sentence, "key")
    elif isinstance(tune.settings[path], Range) and tune.budget is None:
        sentence = f"the range of {path} needs tune.budget, the number of trials; give it, or a list of values"
        yield Fault(place, sentence)


def _value_faults(tune: Tune, path: str, arms: Sequence[Arm]) -> Iterator[Fault]:
    """Yield the faults of a tuned setting: an arm lacks it, arms have different values of it, or an arm
    refuses a value that would be tried."""
    place: KeyPath = ("tune", "settings", path)
    for arm in arms:
        if path not in (paths := setting_paths(arm) or ()):
            if any(path in (setting_paths(other) or ()) for other in arms):
                hint = "; list under tune.arms only arms that have it"
            else:
                hint = guess(path, paths) or "; correct its name, or remove it"
            sentence = f"{path} is not a setting of arm {arm.name}{hint}"
            yield Fault(place, sentence, "key")
            return
        if kind := settings_of(arm).unread.get(path):
            sentence = (
                f"tune.settings has {path}, but {kind} of arm {arm.name} does not read it; list under tune.arms "
                "only arms that read it, or remove it"
            )
            yield Fault(place, sentence, "key")
            return
    written = [attrgetter(path)(settings_of(arm)) for arm in arms]
    if other := next((arm for arm, value in zip(arms, written, strict=True) if value != written[0]), None):
        sentence = (
            f"tune would replace {path}, but arms {arms[0].name} and {other.name} differ in this setting; leave "
            "it out of tune, or out of the arms"
        )
        yield Fault(place, sentence, "key")
        return
    searched = tune.settings[path]
    for index, value in enumerate(_tried(searched)):
        for arm in arms:
            of_value = [fault.sentence for fault in arm_faults(changed_by(arm, {path: value}))]
            if of_value:
                inner = () if isinstance(searched, Range) else (index,)
                yield Fault((*place, *inner), f"arm {arm.name}: {of_value[0]}")
                break


def _tried(searched: tuple[Any, ...] | Range) -> Sequence[Any]:
    """Return the listed values, or both ends of a range."""
    return (searched.low, searched.high) if isinstance(searched, Range) else searched


def _operation_faults(tune: Tune, arms: Sequence[Arm]) -> Iterator[Fault]:
    """Yield the tuned settings that change the operations of a step. All trials of an arm take equally many
    steps, but `match: flops` gives the runs of the chosen values other steps."""
    for path, searched in tune.settings.items():
        for arm in arms:
            changed = [changed_by(arm, {path: value}) for value in _tried(searched)]
            if len({operations_per_token(settings_of(each)) for each in (arm, *changed)}) > 1:
                sentence = (
                    f"tune.settings has {path}, but it changes the operations of a step of arm {arm.name}, and "
                    "match: flops holds them equal; remove it, or write match: steps"
                )
                yield Fault(("tune", "settings", path), sentence, "key")
                break


def _number_faults(tune: Tune, arms: Sequence[Arm]) -> Iterator[Fault]:
    if tune.budget is not None and tune.budget < len(arms):
        sentence = (
            f"tune.budget is {tune.budget}, which is less than one trial for each of {len(arms)} arms; raise it"
        )
        yield Fault(("tune", "budget"), sentence)
    listed_values = [values for values in tune.settings.values() if not isinstance(values, Range)]
    runs = (tune.budget or len(arms) * math.prod(map(len, listed_values))) * len(tune.seeds)
    if runs > MOST_ARMS:
        sentence = f"tune makes {runs:,} trials, but at most {MOST_ARMS:,} are allowed; give fewer values"
        yield Fault(("tune", "settings"), sentence, "key")
    elif tune.budget is None:
        for arm, values in itertools.product(arms, combinations(tune)):
            if of_values := arm_faults(changed_by(arm, values)):
                sentence = f"arm {arm.name} with {settings_in_words(values)}: {of_values[0].sentence}"
                yield Fault(("tune", "settings"), sentence, "key")
                return


# Trials ----------------------------------------------------------------------------------------------


def tuned_arms(experiment: Experiment) -> list[str]:
    """Return the names of the arms that are tuned, in the order of the spec; an empty list without `tune`."""
    if experiment.tune is None:
        return []
    named = experiment.tune.arms
    return [
        name
        for name, arm in arms_of(experiment).items()
        if (name in named if named is not None else settings_of(arm).training.max_steps > 0)
    ]


def combinations(tune: Tune) -> Iterator[Values]:
    """Yield every combination of the listed values; the first setting varies slowest. Without a budget these
    are the trials."""
    lists = {path: values for path, values in tune.settings.items() if not isinstance(values, Range)}
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def trial_runs(tune: Tune, arm: Arm, values: Values, *, max_steps: int) -> list[Run]:
    """Return the runs of a trial, one for each seed of the trials.

    Args:
        max_steps: training steps of a run of the arm; a trial takes the share `part_of_steps` of them.
    """
    changed = changed_by(arm, values)
    name, settings = changed.name[:LONGEST_NAME], settings_of(changed)
    steps = max(1, round(max_steps * tune.part_of_steps))
    return [lasting(Run(name, seed, settings.model_copy(update={"seed": seed})), steps) for seed in tune.seeds]


def next_values(tune: Tune, arm: Arm, history: Sequence[Tried], *, arms: int) -> list[Values]:
    """Return the values that an arm tries next. Without a budget these are all that are left. With a budget
    it is only the next suggestion, or an empty list once the arm's share of the budget is used up or everything
    was tried: a repeated trial has the same loss, and tells nothing.

    The result depends only on the history, the settings and the first seed of the trials. So an interrupted
    search goes on as if it had not been interrupted.

    Args:
        history: ended trials of the arm, in their order.
        arms: number of arms that share the budget.

    Raises:
        SpecError: there is a budget, and Optuna is not installed.
    """
    if tune.budget is None:
        tried = [trial.values for trial in history]
        return [values for values in combinations(tune) if values not in tried]
    if len(history) >= tune.budget // arms:
        return []
    return _suggested(tune, arm, history)


def require_search(tune: Tune) -> None:
    """Raise a SpecError if the search has a budget and Optuna is not installed."""
    if tune.budget is not None and find_spec("optuna") is None:
        raise SpecError(
            "tune.budget needs Optuna, which is not installed; install the extra [tune], or remove tune.budget "
            "to try every combination."
        )


MOST_SUGGESTIONS = 100
"""Number of suggestions of Optuna after which the search gives up waiting for values that can be tried."""


def _suggested(tune: Tune, arm: Arm, history: Sequence[Tried]) -> list[Values]:
    """Return the first values that Optuna's TPE suggests and that were not tried yet. Values that the arm refuses
    together, such as a width with a number of heads that does not divide it, are left out. If there are none,
    return the first such combination of the lists, or an empty list. The loss of a diverged trial counts as
    infinite."""
    require_search(tune)
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spaces = {path: _space(searched) for path, searched in tune.settings.items()}
    sampler = optuna.samplers.TPESampler(seed=tune.seeds[0] + len(history), multivariate=len(spaces) > 1)
    study = optuna.create_study(sampler=sampler)
    for values, loss in history:
        params = {path: _as_param(tune.settings[path], value) for path, value in values.items()}
        worst = math.inf if loss is None else loss
        study.add_trial(optuna.trial.create_trial(params=params, distributions=spaces, value=worst))
    tried = [trial.values for trial in history]

    def possible(values: Values) -> bool:
        return values not in tried and not arm_faults(changed_by(arm, values))

    for _ in range(MOST_SUGGESTIONS):
        params = study.ask(spaces).params
        values = {path: _as_value(tune.settings[path], params[path]) for path in tune.settings}
        if possible(values):
            return [values]
    if any(isinstance(searched, Range) for searched in tune.settings.values()):
        return []
    return list(itertools.islice(filter(possible, combinations(tune)), 1))


def _space(searched: tuple[Any, ...] | Range) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(searched, Range):
        return CategoricalDistribution(tuple(range(len(searched))))  # values may be mappings, which Optuna refuses
    if isinstance(searched.low, int) and isinstance(searched.high, int):
        return IntDistribution(searched.low, searched.high, log=searched.log)
    return FloatDistribution(searched.low, searched.high, log=searched.log)


def _as_param(searched: tuple[Any, ...] | Range, value: Any) -> Any:
    return value if isinstance(searched, Range) else searched.index(value)


def _as_value(searched: tuple[Any, ...] | Range, param: Any) -> Any:
    """Return the value that a suggestion of Optuna means. Fractions from a range are rounded to four
    digits."""
    if not isinstance(searched, Range):
        return searched[param]
    rounded = float(f"{param:.4g}") if isinstance(param, float) else param
    return min(max(rounded, searched.low), searched.high)


# Choice ----------------------------------------------------------------------------------------------


def best(history: Sequence[Tried]) -> Tried | None:
    """Return the trial with the lowest loss, the first one if several are equal; None if all diverged."""
    with_loss = [(trial.loss, place) for place, trial in enumerate(history) if trial.loss is not None]
    return history[min(with_loss)[1]] if with_loss else None


def at_edge(
    values: Values, history: Sequence[Tried], searched: Mapping[str, tuple[Any, ...] | Range]
) -> list[str]:
    """Return the settings whose chosen number is the smallest or the largest that was tried, so that a better
    one may lie beyond. A chosen 0 is no edge, as no setting goes below 0. In a range, the edges are the outermost
    tenths of the range, on its scale."""
    edges = []
    for path, value in values.items():
        if isinstance(limits := searched[path], Range):
            scale: Callable[[float], float] = math.log if limits.log else float
            low, high = scale(limits.low), scale(limits.high)
            if value and not 0.1 < (scale(value) - low) / (high - low) < 0.9:
                edges.append(path)
            continue
        tried = [trial.values[path] for trial in history]
        are_numbers = all(
            isinstance(number_tried, int | float) and not isinstance(number_tried, bool) for number_tried in tried
        )
        if are_numbers and value and value in (min(tried), max(tried)):
            edges.append(path)
    return edges


def settings_in_words(values: Mapping[str, Any]) -> str:
    """Return settings and their values as text, as in ``training.learning_rate 0.002 and encoder.dropout
    0``."""
    parts = [
        f"{path} {exact_number(value) if isinstance(value, float) else shown(value)}"
        for path, value in values.items()
    ]
    return listed(parts, "and")
