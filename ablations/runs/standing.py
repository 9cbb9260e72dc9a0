"""Standing of trained runs: the measures, distances and checkpoints that they lack. No torch.

A trained run whose measures are all there is done, whether its checkpoints are there or not. One that lacks a
measure is measured from its last checkpoint, or trained again where that is gone.

Runs of an earlier version of a spec: how many there are, and which settings differ. No torch.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ablations.catalogue import RunMeasure, for_run
from ablations.runs.identity import PlannedRun, description
from ablations.runs.records import RunRecord
from ablations.spec.changes import differing
from ablations.spec.experiment import Experiment
from ablations.wording import by_kind, listed, several, shown
from lightning_modules.errors import AblationsError
from lightning_modules.files import read_json
from lightning_modules.training.run_directory import Checkpoint, RunDirectory

MOST_SETTINGS = 4
"""The most settings that are named for an arm."""


def sentences(folder: Path, planned: Sequence[PlannedRun], *, out: Path) -> list[str]:
    """Return a sentence about runs that were started for the last plan in the folder and that are not planned now;
    nothing where there are none.

    Args:
        folder: of the experiment's results, whose plan.json is that of the spec that ran last.
        planned: the runs of the spec as it is now.
    """
    path = folder / "plan.json"
    before = read_json(path).get("runs", []) if path.exists() else []
    now = {item.run_id for item in planned}
    earlier = [
        (run["arm"], run["seed"], directory)
        for run in before
        if run["run_id"] not in now
        and (directory := RunDirectory(out / "runs" / run["folder"])).state().state != "planned"
    ]
    if not earlier:
        return []
    count, verb = several(len(earlier), "run"), "is" if len(earlier) == 1 else "are"
    return [
        f"{count} of an earlier version of this spec {verb} in {out / 'runs'} and not counted here: "
        f"{'; '.join(_differences(earlier, planned))}."
    ]


def _differences(earlier: Sequence[tuple[str, int, RunDirectory]], planned: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield how the runs differ from those that are planned now, arms that differ alike together."""
    now = {(item.run.arm, item.run.seed): item for item in planned}
    arms: dict[str, dict[str, None]] = {}
    for arm, seed, directory in earlier:
        if not any(arm == other for other, _ in now):
            how = "not in the spec now"
        elif (arm, seed) not in now:
            how = f"without seed {seed} now"
        else:
            how = _settings(directory, description(now[arm, seed]))
        arms.setdefault(how, {})[arm] = None
    for how, names in arms.items():
        yield f"{'arm' if len(names) == 1 else 'arms'} {listed(list(names), 'and')} {how}"


def _settings(directory: RunDirectory, now: dict[str, Any]) -> str:
    """Return in which settings a run differs from the one that is planned now, with both values."""
    try:
        before = directory.description()
    except AblationsError:
        return "with settings that cannot be read"
    changes = [
        f"{path} ({_value(old)}, now {_value(new)})"
        for path, old, new in differing(before["settings"], now["settings"])
    ]
    if not changes:
        other = "text" if before["tokens"] != now["tokens"] else "version of this project"
        return f"with another {other} now"
    more = len(changes) - MOST_SETTINGS
    listed_changes = listed(
        changes if more <= 0 else [*changes[:MOST_SETTINGS], several(more, "other setting")], "and"
    )
    return f"differed in {listed_changes}"


def _value(value: Any) -> str:
    """Return a value in few letters."""
    return json.dumps(value) if isinstance(value, list) else "none" if value is None else shown(value)


MOST_NAMED = 6
"""The most runs that a sentence names; of more it says how many they are."""


class Lacking(NamedTuple):
    """Measures and checkpoint that a trained run lacks."""

    number_asked: int
    """Number of measures that are asked for; those of tasks count once a task."""
    missing: tuple[RunMeasure, ...]
    """Those of them without rows."""
    names: tuple[str, ...]
    """Their names, as in ``baselines mrpc``; also run_distance where only another training makes it possible."""
    refused: Mapping[str, str]
    """Why those of them were refused that were tried, by name."""
    checkpoint: Checkpoint

    @property
    def is_to_train(self) -> bool:
        """Return whether the run must be trained again for what it lacks."""
        return bool(self.names) and self.checkpoint != "whole"

    def fields(self) -> dict[str, Any]:
        """Return the fields of `RunRecord` that say so."""
        return {
            "measures": self.number_asked,
            "not_measured": list(self.names),
            "refused": dict(self.refused),
            "checkpoint": self.checkpoint,
        }


def lacking(
    experiment: Experiment, planned: Sequence[PlannedRun], *, folder: Path, data_root: Path
) -> dict[str, Lacking]:
    """Return what each trained run lacks, by its identity; runs that are not trained are left out.

    Args:
        planned: all runs of the experiment, since distances are between two.
        folder: of the experiment's results.
    """
    trained = {item.run_id: item for item in planned if item.directory.is_trained()}
    if not trained:
        return {}
    from ablations.runs import measure_pairs  # pandas, which to look at what is not trained does without

    lacks_by_run = {run_id: _of_run(experiment, item, data_root=data_root) for run_id, item in trained.items()}
    if distance := measure_pairs.distance_settings(experiment.measures):
        to_train = {item.run_id for item in planned} - lacks_by_run.keys()
        to_train |= {run_id for run_id, lacks in lacks_by_run.items() if lacks.is_to_train}
        for run_id in measure_pairs.to_train_again(folder, planned, distance, to_train=to_train):
            lacks = lacks_by_run[run_id]
            lacks_by_run[run_id] = lacks._replace(number_asked=lacks.number_asked + 1, names=(distance.kind,))
    return lacks_by_run


def _of_run(experiment: Experiment, item: PlannedRun, *, data_root: Path) -> Lacking:
    from ablations.runs import rows as run_rows

    path = item.directory.path
    measures = list(for_run(experiment.measures, item.run.settings, data_root=data_root))
    missing = run_rows.missing(path, measures, data_root=data_root)
    why = run_rows.refusals(path)
    refused = {run_rows.called(one): why[key] for one in missing if (key := run_rows.key(one)) in why}
    names = tuple(run_rows.called(one) for one in missing)
    return Lacking(len(measures), tuple(missing), names, refused, item.directory.checkpoint())


def checkpoint_sentences(runs: Sequence[RunRecord]) -> list[str]:
    """Return what `ablate run` will do with trained runs whose last checkpoint is gone or damaged, a sentence for
    each group of runs that lack the same.

    Args:
        runs: of a plan or a status.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for run in runs:
        if run.checkpoint not in (None, "whole"):
            group = run.checkpoint, tuple(run.not_measured or ())
            groups.setdefault(group, []).append(run.label)
    sentences = []
    for (state, names), labels in groups.items():
        of = run_labels(labels)
        it, folders = ("it", "its folder") if len(labels) == 1 else ("them", "their folders")
        if names:
            sentences.append(
                f"The last checkpoint of {of} is {state}, and {by_kind(names)} must be measured from it: `ablate "
                f"run` removes what was measured and logged of {it} and trains {it} again from the first step."
            )
        else:
            sentences.append(
                f"The last checkpoint of {of} is {state}, and no measure needs it: `ablate run` does not train "
                f"{it} again. To have {it} trained again, delete {folders} in runs."
            )
    return sentences


def run_labels(labels: Sequence[str]) -> str:
    """Return the runs in a sentence, or how many they are."""
    return listed(labels, "and") if len(labels) <= MOST_NAMED else several(len(labels), "trained run")
