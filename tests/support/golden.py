"""Golden files of resolved specs: the first arm in full, every other arm as its differences from the first."""

import json
import textwrap
from collections.abc import Iterator
from typing import Any

WIDTH = 100
"""Columns that one line may fill."""


def golden_text(resolved: dict[str, Any]) -> str:
    """Return the golden file of a resolved spec.

    A difference is a dotted path and the value that the arm has there; `unfolded` gives the spec back. What fits
    into a line stands on one.
    """
    (first, whole), *others = resolved["arms"].items()
    arms = {first: whole} | {name: dict(_differences(whole, arm)) for name, arm in others}
    return _written({**resolved, "arms": arms}, broken=2) + "\n"


def unfolded(golden: dict[str, Any]) -> dict[str, Any]:
    """Return the resolved spec of a golden file's content, every arm in full."""
    (first, whole), *others = golden["arms"].items()
    return {**golden, "arms": {first: whole} | {name: _laid_over(whole, changes) for name, changes in others}}


def _differences(base: Any, arm: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield paths and values. Settings with other keys, as those of another kind, are one difference."""
    if isinstance(base, dict) and isinstance(arm, dict) and list(base) == list(arm):
        for key in arm:
            yield from _differences(base[key], arm[key], f"{path}.{key}" if path else key)
    elif json.dumps(base) != json.dumps(arm):  # as text: 1 is not 1.0 there
        yield path, arm


def _laid_over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    arm: dict[str, Any] = json.loads(json.dumps(base))
    for path, value in changes.items():
        *sections, last = path.split(".")
        section = arm
        for name in sections:
            section = section[name]
        section[last] = value
    return arm


def _written(value: Any, *, indent: str = "", before: int = 0, broken: int = 0) -> str:
    """Return JSON that breaks only what does not fit, and the outermost `broken` levels anyway.

    Args:
        before: columns that the line has already used.
    """
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value or (not broken and before + len(line) < WIDTH):
        return line
    inner, opening, closing = indent + "  ", line[0], line[-1]
    if isinstance(value, list) and not any(isinstance(entry, dict | list) for entry in value):
        return f"{opening}\n{_filled(value, inner)}\n{indent}{closing}"
    named = value.items() if isinstance(value, dict) else (("", entry) for entry in value)
    entries = []
    for name, entry in named:
        start = inner + (f"{json.dumps(name, ensure_ascii=False)}: " if isinstance(value, dict) else "")
        levels = max(0, broken - 1) if isinstance(entry, dict) else 0
        entries.append(start + _written(entry, indent=inner, before=len(start), broken=levels))
    return opening + "\n" + ",\n".join(entries) + f"\n{indent}{closing}"


def _filled(values: list[Any], indent: str) -> str:
    """Return values without lists or mappings in them, as many on a line as fit."""
    whole = [json.dumps(value, ensure_ascii=False).replace(" ", "\0") for value in values]  # a text is not broken
    fill = textwrap.TextWrapper(
        WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return fill.fill(", ".join(whole)).replace("\0", " ")
