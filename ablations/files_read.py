"""What measures read beside the text, the files of their tasks and treebanks: which, and with what content. No
torch."""

import hashlib
from pathlib import Path

from ablations.measures.settings import MeasureSettings
from ablations.tasks.catalogue import TASKS
from lightning_modules.files import sha256


def files_read(settings: MeasureSettings) -> tuple[str, ...]:
    """The files of the tasks that it names and its treebank; relative paths start at the data root."""
    tasks = [TASKS[name] for name in getattr(settings, "tasks", None) or () if name in TASKS]
    treebank = getattr(settings, "treebank", None)
    return (*(path for task in tasks for path in task.files.values()), *((treebank,) if treebank else ()))


def files_now(settings: MeasureSettings, data_root: Path) -> str | None:
    """Sixteen hex digits of their contents; None where there are no files, or where one is missing, so that nobody
    knows whether they have changed."""
    places = [data_root / path for path in files_read(settings)]
    if not places or not all(place.is_file() for place in places):
        return None
    return hashlib.sha256("".join(map(sha256, places)).encode()).hexdigest()[:16]
