"""Names and values in sentences."""

import difflib
import json
import re
from collections.abc import Collection, Hashable, Sequence
from decimal import Decimal
from typing import Any

GOES_ON = "interrupted; the same command continues from here"
"""What commands that train or measure say if they are interrupted."""

REFUSED = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that neither HTML nor SVG may contain and that a terminal takes for commands, and marks that
reverse the direction of the text after them."""


def printable(text: str) -> str:
    """Return the text with a replacement character for every refused character."""
    return REFUSED.sub("\N{REPLACEMENT CHARACTER}", text)


def nearest(word: str, names: Collection[str]) -> str | None:
    """Return the name that a misspelt word most likely meant, or the only name that contains it, or None.

    A name of which the word is a whole part (`time` of `time_limit`) comes before one with similar letters. Names
    that share only some letters also have the first letter or the length of the word (`extends` is not `seeds`).
    """
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.8)
    if not close:
        whole = [small for small in lower if word.lower() in small.split("_")]
        # Two paths below the same section always share many letters.
        likely = [small for small in lower if small[:1] == word.lower()[:1] or len(small) == len(word)]
        similar = [] if "." in word else difflib.get_close_matches(word.lower(), likely, n=1, cutoff=0.6)
        close = whole if len(whole) == 1 else similar
    if close:
        return lower[close[0]]
    containing = [name for small, name in lower.items() if len(word) > 2 and word.lower() in small]
    return containing[0] if len(containing) == 1 else None


FEW = 5
"""Highest number of names that a sentence lists even if it can say which of them was meant."""


def must_be(value: Any, names: Collection[str], *, noun: str, prefix: str = "") -> str:
    """Return the end of a sentence that says that a value is none of the names.

    It has the nearest name if there is one. All names are listed unless there is a nearest name and more than
    `FEW`.

    Args:
        noun: words for any of the names, such as `a metric of probing`, if the list is left out.
        prefix: words before the list, such as `of kind `.
    """
    hint = guess(value, names)
    expected = noun if hint and len(names) > FEW else prefix + listed(list(names))
    return f"must be {expected}, but is {shown(value)}{hint}"


def guess(word: Any, names: Collection[str]) -> str:
    """Return the end of a sentence that asks for the nearest name; empty if no name is near."""
    meant = nearest(word, names) if isinstance(word, str) else None
    return f"; did you mean {meant}?" if meant else ""


def listed(words: Sequence[str], last: str = "or") -> str:
    """Return words as a list in a sentence: ``a``, ``a or b``, ``a, b or c``; empty if there are none."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def several(number_of: int, word: str) -> str:
    """Return a number with its noun: ``1 run``, ``1,200 runs``."""
    return f"{number_of:,} {word}{'' if number_of == 1 else 's'}"


def times(count: int) -> str:
    """Return how often something occurs: ``once``, ``2 times``."""
    return "once" if count == 1 else f"{count:,} times"


def by_kind(measures: Sequence[str]) -> str:
    """Return names of measures with the tasks of each kind together:
    ``validation, probing (tree_depth, ud_pos)``."""
    tasks: dict[str, list[str]] = {}
    for kind, _, task in (name.partition(" ") for name in measures):
        tasks.setdefault(kind, []).extend([task] if task else [])
    return ", ".join(kind + (f" ({', '.join(names)})" if names else "") for kind, names in tasks.items())


def percentage_as_share(percentage: float | str) -> str:
    """Return a percentage as a share: 0.014 for 1.4, without the rounding of a binary division."""
    return exact_number(float(Decimal(str(percentage)) / 100))


def exact_number(value: float) -> str:
    """Return a number in few characters that can be read back exactly: 0.4, 1, 1e-5."""
    return repr(value).removesuffix(".0").replace("e-0", "e-").replace("e+", "e")


def shown(value: Any, letters: int = 60) -> str:
    """Return a value as a reader knows it from the file: text in quotes, long text cut to `letters`."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value if len(value) <= letters else value[: letters - 3] + "...", ensure_ascii=False)
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, Collection) and not isinstance(value, bytes) else f"{value!s:.{letters}}"


def equality_key(value: Any) -> Hashable:
    """Return a key that is equal for values that mean the same: for 1 and 1.0, not for 1 and true."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    return type(value).__name__, json.dumps(value, sort_keys=True, default=str)
