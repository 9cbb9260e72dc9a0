"""The rows of a table of scores in their order: whole tasks, and parts of them to be opened on demand."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from reports.numbers import count
from reports.score_texts import Score, TableText
from reports.task_names import FIELDS, in_order, known, parts


class Entry(NamedTuple):
    """A task, or a part of one."""

    group: str | None
    """As the table calls it."""
    label: str
    indented: bool = False


class Listing(NamedTuple):
    """Rows under one head."""

    title: str
    entries: list[Entry]
    scores: tuple[Score, ...]
    arms_of: tuple[str, ...] = ()
    """Groups; arms without a score of these are left out, where there are any."""


def listings(text: TableText, groups: Sequence[str | None]) -> list[Listing]:
    """The table itself, then what is folded below it.

    An absent group is all there is. Numbers of training examples (``sst2@100``) are for a figure and left out.
    """
    named = [group for group in groups if isinstance(group, str)]
    series = _series(text, named)
    scored = [group for group in named if group not in series and "@" not in group]
    whole = in_order(group for group in scored if "/" not in group)
    inner = [group for group in scored if "/" in group]
    tasks = in_order([*whole, *(parts(group)[0] for group in inner)])
    main = [Entry(None, text.of_all)] if len(named) < len(groups) else []
    folded = []
    for task in tasks:
        own = [group for group in inner if parts(group)[0] == task]
        fields = [f"{task}/{field}" for field in FIELDS if f"{task}/{field}" in own and _has_fields(task)]
        main += [Entry(task, task)] if task in whole else []
        main += [Entry(field, parts(field)[1], indented=True) for field in fields]
        if rest := sorted(set(own) - set(fields)):
            entries = [Entry(group, parts(group)[1]) for group in rest]
            folded.append(Listing(f"{task}, by {_kind(task)}", entries, text.scores[:1]))
    if text.series and series:
        last = [entry._replace(label="the most, as above") for entry in main]
        entries = [*(Entry(group, label) for group, label in series.items()), *last]
        folded.append(Listing(text.series.title, entries, text.series.scores, tuple(series)))
    return [Listing(text.title, main, text.scores), *folded]


def _kind(task: str) -> str:
    """What the parts of a task are called."""
    found = known(task)
    return found.groups[-1] if found is not None and found.groups else "part"


def _has_fields(task: str) -> bool:
    found = known(task)
    return found is not None and "field" in found.groups


def _series(text: TableText, groups: Sequence[str]) -> dict[str, str]:
    """Groups such as ``sweeps=250`` by their numbers, and the numbers as words."""
    if text.series is None:
        return {}
    found = {group: re.fullmatch(rf"{text.series.family}=(\d+)", group) for group in groups}
    numbers = {group: int(match[1]) for group, match in found.items() if match}
    return {group: count(number) for group, number in sorted(numbers.items(), key=lambda item: item[1])}
