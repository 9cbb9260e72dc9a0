"""Trials of tuned arms on disk: their runs, their losses, and the choice that tuned.json keeps. No torch.

The losses come from the logs of the runs. tuned.json keeps them, also those of trials that the spec has no
longer, so that the folders of trials may be deleted.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablations.errors import ResultsError
from ablations.runs.identity import PlannedRun
from ablations.runs.records import TrialRecord, TunedArm, Tuning
from ablations.spec import grid
from ablations.spec.experiment import Arm, Experiment, Run, Tune
from ablations.spec.tuning import (
    Tried,
    at_edge,
    best,
    next_values,
    settings_in_words,
    trial_runs,
    tuned_arms,
)
from ablations.wording import listed, several, shown
from lightning_modules.config import RunSettings
from lightning_modules.errors import ExitCode
from lightning_modules.files import read_json

FILE = "tuned.json"
"""Name of the file with the search, in the folder of an experiment's results."""

Place = Callable[[Sequence[Run]], list[PlannedRun]]
"""Function that gives runs their identities and folders."""


Losses = Mapping[str, float | None]
"""Validation losses in nats of runs that have ended, by their identity; None where training diverged."""


@dataclass(frozen=True)
class Search:
    """State of the search for the settings of tuned arms."""

    tuning: Tuning
    trials: list[PlannedRun]
    """Runs of all trials that are known so far."""
    open_trials: Mapping[str, list[PlannedRun]]
    """Runs of trials that have not ended, by arm."""

    def open_of(self, arms: Sequence[str]) -> list[PlannedRun]:
        """Return the runs of open trials of some arms; of all arms if none is given."""
        return [item for arm, items in self.open_trials.items() if not arms or arm in arms for item in items]

    def waiting(self) -> list[str]:
        """Return the names of the arms without chosen settings: not tuned yet, or every trial diverged."""
        return [tuned.arm for tuned in self.tuning.arms if tuned.chosen is None]

    def diverged(self) -> list[TunedArm]:
        """Return the arms of which every trial diverged, so that nothing can be chosen."""
        waiting = [tuned for tuned in self.tuning.arms if tuned.chosen is None]
        return [tuned for tuned in waiting if tuned.trials and not tuned.open_trials]

    def without_choice(self, arms: Sequence[str] = ()) -> list[str]:
        """Return a sentence for each arm of `diverged`; only for the given arms, if any are given."""
        return [
            f"tune: all {several(len(tuned.trials), 'trial')} of arm {tuned.arm} diverged, so its runs are not "
            "trained; give other values, such as smaller learning rates."
            for tuned in self.diverged()
            if not arms or tuned.arm in arms
        ]

    def to_be_tuned(self) -> list[str]:
        """Return the names of the arms that wait for trials which have not ended."""
        diverged = {tuned.arm for tuned in self.diverged()}
        return [arm for arm in self.waiting() if arm not in diverged]

    def later_trials(self) -> list[str]:
        """Return a sentence on the number of trials that are chosen only after others have ended; an empty
        list if there are none."""
        if self.tuning.budget is None or not self.to_be_tuned():
            return []
        chosen = sum(len(tuned.trials) for tuned in self.tuning.arms) + len(self.to_be_tuned())
        share = self.tuning.budget // len(self.tuning.arms)
        later = share * len(self.tuning.arms) - chosen
        return [f"The time does not count {several(later, 'trial')} that Optuna chooses later."] * (later > 0)

    def sentences(self) -> list[str]:
        """Return sentences on the search: arms that wait for it, arms whose trials all diverged, and chosen values
        at an edge of the values that were tried."""
        sentences = []
        if waiting := self.to_be_tuned():
            ended = sum(len(tuned.trials) for tuned in self.tuning.arms)
            sentences.append(
                f"tune: {several(ended, 'trial')} ended; not tuned yet: {listed(waiting, 'and')}. For these "
                "arms the settings of the spec are shown; `ablate run` trains the trials first."
            )
        sentences += self.without_choice()
        arms_at_edge: dict[str, list[str]] = {}
        for tuned in self.tuning.arms:
            if tuned.at_edge and tuned.chosen is not None:
                values = settings_in_words({path: tuned.chosen[path] for path in tuned.at_edge})
                arms_at_edge.setdefault(values, []).append(tuned.arm)
        for values, arms in arms_at_edge.items():
            sentences.append(
                f"tune: the best value of {'arm' if len(arms) == 1 else 'arms'} {listed(arms, 'and')} is at the "
                f"edge of the tried values ({values}), so a better value may be outside; add values on that side, "
                "if the setting takes them."
            )
        return sentences


def rescaled(tuning: Tuning, arms: Mapping[str, RunSettings]) -> list[str]:
    """Return a sentence for each setting that `match` has scaled after it was chosen for an arm, with both
    numbers.

    Args:
        arms: settings of the runs of each arm, as `match` leaves them.
    """
    sentences = []
    for path in grid.SCALED:
        changes = [
            f"{arm} has {shown(trained)} instead of {shown(values[path])}"
            for arm, values in tuning.chosen.items()
            if path in values and (trained := getattr(arms[arm].training, path.rpartition(".")[2])) != values[path]
        ]
        if changes:
            sentences.append(
                f"tune: match scales the chosen {path} with the steps of an arm, so in training "
                f"{listed(changes, 'and')}."
            )
    return sentences


def search(experiment: Experiment, *, steps: Mapping[str, int], folder: Path, place: Place) -> Search | None:
    """Return the state of the search for the arms' settings; None for a spec without `tune`.

    Args:
        steps: training steps of a run, by arm. An arm without an entry has no trials yet.
        folder: folder of the experiment's results, whose tuned.json keeps the losses of trials.
        place: gives runs their identities and folders.

    Raises:
        SpecError: Optuna is asked for and not installed.
        ResultsError: tuned.json is damaged.
    """
    tune = experiment.tune
    if tune is None:
        return None
    before, arms, names = _before(folder / FILE), grid.arms_of(experiment), tuned_arms(experiment)
    written = tune.model_dump(mode="json", include={"settings", "seeds", "part_of_steps", "budget"})
    is_same = before is not None and before.model_dump(mode="json", include=set(written)) == written
    earlier = {tuned.arm: tuned.trials for tuned in (before.arms if before and is_same else ())}
    kept = {} if before is None else _losses(before)
    tuned, trials, open_trials = [], list[PlannedRun](), {}
    for name in names:
        if name not in steps:
            tuned.append(TunedArm(arm=name))
            continue
        record, of_arm, unended = _search_arm(
            tune,
            arms[name],
            steps=steps[name],
            arms=len(names),
            before=earlier.get(name, ()),
            kept=kept,
            place=place,
        )
        tuned.append(record)
        trials += of_arm
        open_trials[name] = unended
    present = _losses(Tuning(**written, arms=tuned))
    of_others = {run_id: loss for run_id, loss in kept.items() if run_id not in present}
    return Search(Tuning(**written, arms=tuned, earlier=of_others), trials, open_trials)


def chosen_in_words(tuning: Tuning) -> list[str]:
    """Return a sentence for each tuned arm: the values that were chosen, and their loss."""
    sentences = []
    for tuned in tuning.arms:
        if tuned.chosen is not None:
            loss = min(trial.loss for trial in tuned.trials if trial.loss is not None)
            trials = several(len(tuned.trials), "trial")
            sentences.append(
                f"tuned: {tuned.arm}: {settings_in_words(tuned.chosen)} (loss {loss:.3f} nats, best of {trials})"
            )
    return sentences


def _search_arm(
    tune: Tune,
    arm: Arm,
    *,
    steps: int,
    arms: int,
    before: Sequence[TrialRecord],
    kept: Losses,
    place: Place,
) -> tuple[TunedArm, list[PlannedRun], list[PlannedRun]]:
    """Return an arm's ended trials with the choice, the runs of all its trials, and those runs that have not
    ended.

    Args:
        before: trials of the arm that ended earlier in a search with the same settings. Their values are tried
            again without Optuna, so that the choice stays the same with another version of Optuna or without it.
            A trial with other runs is of an arm that has changed since, and its values are not used.
    """
    records: list[TrialRecord] = []
    trials: list[PlannedRun] = []
    unended: list[PlannedRun] = []
    open_trials = 0
    repeated = 0 if tune.budget is None else min(len(before), tune.budget // arms)
    while not unended:
        history = [Tried(record.values, record.loss) for record in records]
        is_repeated = len(history) < repeated
        suggested = [before[len(history)].values] if is_repeated else next_values(tune, arm, history, arms=arms)
        if not suggested:
            chosen = best(history)
            if chosen is None:
                return TunedArm(arm=arm.name, trials=records), trials, []
            edge = at_edge(chosen.values, history, tune.settings)
            return TunedArm(arm=arm.name, trials=records, chosen=chosen.values, at_edge=edge), trials, []
        runs = [trial_runs(tune, arm, values, max_steps=steps) for values in suggested]
        items_of_all = place([run for of_trial in runs for run in of_trial])
        if is_repeated and [item.run_id for item in items_of_all] != before[len(history)].run_ids:
            repeated = 0
            continue
        placed = iter(items_of_all)
        for values, of_trial in zip(suggested, runs, strict=True):
            items = [next(placed) for _ in of_trial]
            ended = _losses_now(items, kept)
            trials += items
            unended += [item for item in items if item.run_id not in ended]
            if len(ended) == len(items):
                records.append(TrialRecord(values=values, run_ids=list(ended), losses=list(ended.values())))
            else:
                open_trials += 1
    return TunedArm(arm=arm.name, trials=records, open_trials=open_trials), trials, unended


def _losses_now(items: Sequence[PlannedRun], kept: Losses) -> Losses:
    """Return the losses of the runs of a trial that have ended. Those of runs without a folder are in `kept`."""
    losses: dict[str, float | None] = {}
    for item in items:
        state = item.directory.state()
        if state.state == "done" and (loss := item.directory.last_validation_loss()) is not None:
            losses[item.run_id] = loss if math.isfinite(loss) else None
        elif state.state == "failed" and state.exit_code == ExitCode.NOT_FINITE:
            losses[item.run_id] = None
        elif state.state == "planned" and item.run_id in kept:
            losses[item.run_id] = kept[item.run_id]
    return losses


def _before(path: Path) -> Tuning | None:
    """Return what tuned.json keeps; None where there is no such file."""
    if not path.exists():
        return None
    try:
        tuning = Tuning.model_validate(read_json(path))
        _losses(tuning)
        return tuning
    except ValueError as error:
        raise ResultsError(f"{path} cannot be read; delete it, and `ablate run` writes it again.") from error


def _losses(tuning: Tuning) -> Losses:
    """Return the losses of ended trials, also of those that the spec had earlier."""
    trials = [trial for tuned in tuning.arms for trial in tuned.trials]
    return tuning.earlier | {
        run_id: loss for trial in trials for run_id, loss in zip(trial.run_ids, trial.losses, strict=True)
    }
