"""Tasks in words and in order. What the catalogue does not know keeps its own name."""

from collections.abc import Iterable

from pandas import Series

from ablations.tasks.catalogue import TASKS, Metric, Task

WORDS: dict[Metric, str] = {
    "accuracy": "accuracy",
    "matthews": "Matthews correlation",
    "f1": "F1",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "entity_f1": "F1 of entities",
    "overlap_f1": "F1 of words",
    "exact_match": "exact match",
}

FIELDS = ("morphology", "syntax", "syntax_semantics", "syntax/semantics", "semantics")
"""Of BLiMP, each several paradigms."""

_PLACES = {name: place for place, name in enumerate(TASKS)}


def known(name: str | None) -> Task | None:
    """The catalogue's task of that name; minimal pairs of the built-in language are `language` in tables."""
    return None if name is None else TASKS.get(name) or TASKS.get(f"{name}_minimal_pairs")


def metric_words(name: str | None) -> str:
    """What `score` means for a task: ``Matthews correlation``."""
    task = known(name)
    return "score" if task is None else WORDS[task.metric]


def in_order(names: Iterable[str]) -> list[str]:
    """The different names as in the catalogue, others after them as they appear."""
    different = list(dict.fromkeys(names))
    place = {name: _PLACES.get(getattr(known(name), "name", ""), len(_PLACES)) for name in different}
    return sorted(different, key=place.__getitem__)


def parts(name: str) -> tuple[str, str]:
    """A task and which part of it: ``("blimp", "adjunct_island")``; the part is empty of a whole task."""
    task, _, part = name.partition("/")
    return task, part


def are_whole(groups: Series) -> Series:
    """Which groups are whole tasks, neither parts of one nor numbers of its examples; absent ones are none."""
    return ~groups.fillna("/").str.contains("[/@]").astype(bool)
