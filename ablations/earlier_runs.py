"""Runs of an earlier version of a spec: how many there are, and which settings differ. No torch."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ablations.runs import PlannedRun, description
from ablations.spec_changes import differing
from ablations.wording import listed, several, shown
from lightning_modules.errors import AblationsError
from lightning_modules.files import read_json
from lightning_modules.run_directory import RunDirectory

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
        and (directory := RunDirectory(out / "runs" / run["folder"])).state()["state"] != "planned"
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
