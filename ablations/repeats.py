"""Lists in which nothing may be there twice, as its rows could not be told apart."""

import json
from collections.abc import Hashable, Iterable
from typing import Any

from pydantic_core import PydanticCustomError

from ablations.wording import shown


def identity(value: Any) -> Hashable:
    """Equal for two written values exactly if they mean the same: for 1 and 1.0, not for 1 and true."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    return type(value).__name__, json.dumps(value, sort_keys=True, default=str)


def refuse_repeated(values: Iterable[Any]) -> None:
    """Refuse what is there twice, at the place of the second.

    Raises:
        PydanticCustomError: something is, for a validator to pass on.
    """
    seen: set[Hashable] = set()
    for index, value in enumerate(values):
        if identity(value) in seen:
            context = {"sentence": f"has {shown(value)} twice; each may be there once", "at": (index,)}
            raise PydanticCustomError("sentence", "{sentence}", context)
        seen.add(identity(value))
