"""What a table of scores says in words: which arms are at chance on what."""

from collections.abc import Mapping, Sequence
from typing import Any

from reports.numbers import listed
from reports.score_texts import TableText

MOST_NAMED = 6
"""Tasks or arms that are named; of more, how many they are."""

Row = Mapping[str, Any]


def chance_sentences(
    rows: Sequence[Row], *, arms: Sequence[str], without: Sequence[str], text: TableText, counts: bool = False
) -> list[str]:
    """Sentences for above a table: what is at chance, what below, what cannot be judged, who has no score.

    Args:
        rows: of the table; those that decide are the main scores of their tasks.
        arms: with scores, in order.
        without: arms without any.
        counts: whether tasks are counted rather than named.
    """
    main = [row for row in rows if row["decides"]]
    said = _of_main(main, arms, text.chance, counts=counts) if main else []
    said += _of_others([row for row in rows if row["judged"] and not row["decides"]], arms, text.chance)
    if without:
        said.append(f"No score: {_named(without, [*arms, *without])}.")
    return said


def _of_main(rows: Sequence[Row], arms: Sequence[str], chance: str, *, counts: bool) -> list[str]:
    at, below, unknown = (_where(rows, arms, verdict, counts=counts) for verdict in ("at", "below", ""))
    said = []
    if at:
        said.append(f"At {chance}, that is, with {chance} inside the interval: {'; '.join(at)}.")
    if below:
        said.append(f"Below {chance}: {'; '.join(below)}.")
    if unknown:
        said.append(f"Not judged, for want of an interval: {'; '.join(unknown)}.")
    if any(cell["verdict"] == "above" for row in rows for cell in row["arms"].values()):
        every = "every other" if said else "every"
        said.append(f"{every.capitalize()} main score is above {chance}.")
    return said


def _of_others(rows: Sequence[Row], arms: Sequence[str], chance: str) -> list[str]:
    """The same of the other rows, kind by kind, in brief."""
    said = []
    for kind in dict.fromkeys(row["scored"] for row in rows):
        found = _where([row for row in rows if row["scored"] == kind], arms, "at", "below", counts=False)
        said += [f"{kind} ({'; '.join(found)})"] if found else []
    return [f"Of the other rows, not above {chance}: {listed(said)}."] if said else []


def _where(rows: Sequence[Row], arms: Sequence[str], *verdicts: str, counts: bool) -> list[str]:
    """The tasks with such a verdict, arms with the same ones together: ``untrained on all 9 tasks``, ``mlm and clm
    on cola``."""
    together: dict[str, list[str]] = {}
    for arm in arms:
        scored = [row for row in rows if arm in row["arms"]]
        found = [row["task"] or row["label"] for row in scored if row["arms"][arm]["verdict"] in verdicts]
        if not found:
            continue
        if len(found) == len(scored) and len(found) > 1:
            where = "both tasks" if len(found) == 2 else f"all {len(found)} tasks"
        else:
            many = counts or len(found) > MOST_NAMED
            where = f"{len(found)} of {len(scored)}" if many else listed(found)
        together.setdefault(where, []).append(arm)
    return [f"{_named(found, arms)} on {where}" for where, found in together.items()]


def _named(some: Sequence[str], arms: Sequence[str]) -> str:
    """The arms, or how many of all where there are many."""
    if len(some) <= MOST_NAMED:
        return listed(list(some))
    return f"all {len(some)} arms" if len(some) == len(arms) else f"{len(some)} of {len(arms)} arms"


def mark(verdict: str, chance: str) -> str:
    """The words of a mark in a table: ``at chance``; empty without a mark."""
    return f"{verdict} {chance}" if verdict in ("at", "below") else ""
