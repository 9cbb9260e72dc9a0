"""Families of arms: arms whose names begin alike, in groups that a panel has room for."""

import re
from collections.abc import Sequence
from itertools import takewhile
from math import ceil
from typing import NamedTuple

from reports.words import listed

MOST_LINES = 8
"""Lines that a panel has room for; more arms get several panels."""

USUAL_LINES = 7
"""Lines up to which small families share a panel: there are so many colours."""

MOST_NAMES = 3
"""Beginnings that the name of several families lists."""


SIGNS = " -_,=.:"
"""Signs between the words of a name."""


class Family(NamedTuple):
    """Arms that share a panel."""

    name: str
    """Beginnings of their names; empty where all arms are together."""
    arms: tuple[str, ...]
    shared: str = ""
    """Start of all their names, which the panel says once."""

    def short(self, arm: str) -> str:
        """Return the name of an arm without what the panel says."""
        return arm.removeprefix(self.shared) if arm in self.arms else arm


def families(arms: Sequence[str]) -> list[Family]:
    """Return the arms in groups of at most `MOST_LINES`, all together where they are so few.

    Arms whose names begin with the same word stay together as far as there is room; small families share a group.
    """
    if len(arms) <= MOST_LINES:
        return [Family("", tuple(arms))]
    room = _size(arms)
    groups: list[list[list[str]]] = []
    for alike in _alike(arms, words=1):
        if groups and sum(map(len, groups[-1])) + len(alike) <= room:
            groups[-1].append(alike)
        else:
            groups.append([alike])
    return [_family(group) for group in groups]


def _alike(arms: Sequence[str], *, words: int) -> list[list[str]]:
    """Return the arms by the first words of their names; of a group that is too large, by one word more."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for arm in arms:
        groups.setdefault(_beginning(arm, words), []).append(arm)
    parts: list[list[str]] = []
    for key, group in groups.items():
        if len(group) <= MOST_LINES:
            parts.append(group)
        elif len(key) < words:  # their names have no more words
            size = _size(group)
            parts += [group[i : i + size] for i in range(0, len(group), size)]
        else:
            parts += _alike(group, words=words + 1)
    return parts


def _size(arms: Sequence[str]) -> int:
    """Return the size of equal groups, as few as hold all arms."""
    return ceil(len(arms) / ceil(len(arms) / USUAL_LINES))


def _beginning(arm: str, words: int) -> tuple[str, ...]:
    """Return the first words and numbers of a name; the first is empty where the name begins with a number."""
    words_of_name = re.findall(r"[^\W\d_]+|\d+", arm)
    return tuple(("" if i == 0 and word.isdigit() else word) for i, word in enumerate(words_of_name[:words]))


def _family(group: Sequence[Sequence[str]]) -> Family:
    """Return the arms of a group, named by what the names in each of its parts share."""
    names = [_start(part).rstrip(SIGNS) or f"{part[0]} …" if len(part) > 1 else part[0] for part in group]
    rest = len(names) - MOST_NAMES
    shown = names if rest <= 1 else [*names[:MOST_NAMES], f"{rest} more"]
    start = _start(group[0]) if len(group) == 1 and len(group[0]) > 1 else ""
    arms = tuple(arm for part in group for arm in part)
    return Family(listed(shown), arms, start if start.endswith(tuple(SIGNS)) else "")


def _start(arms: Sequence[str]) -> str:
    """Return the words with which all the names begin, and the signs behind them."""
    words = [re.findall(r"[^\W_]+|[\W_]+", arm) for arm in arms]
    return "".join(same[0] for same in takewhile(lambda same: len(set(same)) == 1, zip(*words, strict=False)))
