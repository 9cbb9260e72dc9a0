"""Settings from the command line that override a spec, as in `--set training.max_steps=200`.

They mean what they would mean in the spec. An experiment with such settings gets another name, so that its
results have a folder of their own.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML

from ablations import yamlfile
from ablations.errors import KeyPath, Problem, SpecProblems
from ablations.spec.experiment import nodes
from ablations.wording import equality_key, exact_number, guess, shown
from ablations.yamlfile import Document

OPTION = "--set"
EXAMPLE = f"{OPTION} training.max_steps=200"
LONGEST_WORDS = 100
"""Largest number of characters that settings add to the name of an experiment; longer ones become ten hex
digits."""

_ABSENT = object()


class Given(NamedTuple):
    """Setting from the command line."""

    written: str
    """Text of the option: KEY=VALUE."""
    path: KeyPath
    value: Any
    before: Any
    """Value in the spec; `_ABSENT` if the spec does not write the setting."""

    @property
    def is_there(self) -> bool:
        """Return whether the spec has this value already."""
        return self.before is not _ABSENT and equality_key(self.before) == equality_key(self.value)

    @property
    def option(self) -> str:
        return f"{OPTION} {self.written}"

    @property
    def sentence(self) -> str:
        """Return the setting and the spec's value as text: ``training.max_steps=200 (the spec says 500)``."""
        written = " ".join(self.written.split())
        if self.before is _ABSENT:
            return f"{written} (the spec does not set it)"
        before = json.dumps(self.before, ensure_ascii=False, default=str)
        return f"{written} (the spec says {before if len(before) <= 60 else shown(self.before)})"


class ChangedSpec(NamedTuple):
    """Spec with the settings from the command line."""

    document: Document
    """Content of the changed spec; its places are those in the original file."""
    overrides: tuple[Given, ...]
    name: str | None
    """Name of the experiment in the original file; None if it has none."""

    @property
    def sentences(self) -> list[str]:
        return [setting.sentence for setting in self.overrides]

    @property
    def text(self) -> str:
        """Return the whole changed spec as YAML, below a comment for each setting."""
        comments = [f"# Changed by {OPTION}: {sentence}\n" for sentence in self.sentences]
        return "".join(comments) + _yaml(self.document.content)


def read(path: Path, options: Sequence[str] = ()) -> Document:
    """Return the content of a spec file, with the settings from the command line.

    Args:
        options: settings as KEY=VALUE; the key is a dotted path.

    Raises:
        SpecProblems: the file cannot be read, or it cannot have such a setting.
    """
    return laid_over(path, options).document if options else yamlfile.read(path)


def laid_over(path: Path, options: Sequence[str]) -> ChangedSpec:
    """Return a spec with the settings from the command line.

    Settings that the spec has already are left out. The others are appended to the name of the experiment,
    unless one of them is this name.

    Raises:
        SpecProblems: the file cannot be read, or it cannot have such settings; each of these is a problem.
    """
    before = yamlfile.read(path)
    settings = _parsed(before.content, options, path)
    overrides = tuple(setting for setting in settings if not setting.is_there)
    name = before.content.get("name")
    name = name if isinstance(name, str) else None
    content = before.content
    for setting in overrides:
        content = _with(content, setting.path, setting.value)
    if overrides and name is not None and all(setting.path != ("name",) for setting in settings):
        content = _with(content, ("name",), f"{name}-{_in_name(overrides)}")
    places = {
        place: mark
        for place, mark in before.places.items()
        if not any(place[: len(setting.path)] == setting.path for setting in overrides)
    }
    given_places = {
        place: setting.option for setting in overrides for place in _places(setting) if place not in places
    }
    document = Document(str(path), content, places, before.problems, given_places)
    return ChangedSpec(document, overrides, name)


def _places(setting: Given) -> Iterator[KeyPath]:
    """Yield the paths of everything in a setting, of the mappings around it, and of the setting itself."""
    for inner in nodes(setting.value):
        yield (*setting.path, *inner)
    for length in range(1, len(setting.path) + 1):
        yield setting.path[:length]


# Options ---------------------------------------------------------------------------------------------


def _parsed(content: dict[str, Any], options: Sequence[str], spec: Path) -> tuple[Given, ...]:
    """Return the settings of the options, sorted by path, so that their order on the command line does not
    matter. Raise SpecProblems with a problem for each wrong option."""
    given: list[Given] = []
    problems: list[Problem] = []
    for written in options:
        try:
            setting = _setting(content, written, spec)
            _refuse_overlap(setting, given)
            given.append(setting)
        except _RefusedError as error:
            problems.append(Problem(f"{OPTION} {written}", 0, 0, str(error)))
    if problems:
        raise SpecProblems(tuple(problems))
    return tuple(sorted(given, key=lambda setting: [str(key) for key in setting.path]))


class _RefusedError(Exception):
    """Error of a setting that cannot be written into the spec; its message follows the option in a
    problem."""


def _setting(content: dict[str, Any], written: str, spec: Path) -> Given:
    path: KeyPath = ()
    before: Any = content
    rest = written
    while True:
        key, rest = _first_key(before, path, rest)
        if not key:
            raise _RefusedError(f"a setting is written KEY=VALUE, as in `{EXAMPLE}`")
        if path == ("arms",) and isinstance(before, dict) and key not in before:
            arms_there = f"; it writes {', '.join(before)}" if len(before) <= 8 else ""
            raise _RefusedError(f"{key} is not an arm of {spec}{guess(key, before) or arms_there}")
        before = before.get(key, _ABSENT) if isinstance(before, dict) else _ABSENT
        path = (*path, key)
        if rest[:1] == "=":
            break
        rest = rest[1:]
        name = ".".join(map(str, path))
        if isinstance(before, list):
            raise _RefusedError(
                f"{name} is a list, and a part of a list cannot be set; give the whole list: `{OPTION} "
                f"{name}=[...]`"
            )
        if before is not _ABSENT and not isinstance(before, dict | None):
            raise _RefusedError(
                f"{name} is {shown(before)} in {spec} and has no keys; write `{OPTION} {name}=...`"
            )
    arms = content.get("arms")
    if isinstance(arms, dict) and arms and all(_sets(arm, path) for arm in arms.values()):
        name = ".".join(map(str, path))
        raise _RefusedError(
            f"every arm of {spec} sets its own {name}, so `{OPTION} {name}` would change no arm; write `{OPTION} "
            f"arms.{next(iter(arms))}.{name}=...`"
        )
    try:
        value = yamlfile.single_value(written, rest[1:])
    except SpecProblems as error:
        raise _RefusedError(f"the value is not valid YAML: {error.problems[0].sentence}") from error
    return Given(written, path, value, before)


def _sets(arm: Any, path: KeyPath) -> bool:
    """Return whether an arm writes one value of its own at this path, and not a mapping with some of its keys."""
    for key in path:
        if not isinstance(arm, dict) or key not in arm:
            return False
        arm = arm[key]
    return not isinstance(arm, dict)


def _first_key(around: Any, path: KeyPath, text: str) -> tuple[str, str]:
    """Return the first key of a dotted path, and the rest of the text from the dot or equals sign behind the
    key.

    A key that the spec has may contain these signs, as some names of arms and the axes of a grid do. The key
    is empty if neither sign is in the text.
    """
    if isinstance(around, dict):
        for key in sorted(around, key=len, reverse=True):
            if text.startswith(key) and text[len(key) : len(key) + 1] in (".", "="):
                return key, text[len(key) :]
    signs = "=" if path in (("grid", "axes"), ("grid", "zip")) else ".="
    match = re.match(rf"([^{signs}]*)(?=[{signs}])", text)
    return (match[1].strip(), text[match.end() :]) if match else ("", "")


def _refuse_overlap(setting: Given, given: Sequence[Given]) -> None:
    for other in given:
        shorter = min(len(setting.path), len(other.path))
        if setting.path == other.path:
            raise _RefusedError(f"{'.'.join(map(str, setting.path))} is given twice; give it once")
        if setting.path[:shorter] == other.path[:shorter]:
            raise _RefusedError(f"this overlaps with `{other.option}`; give one of them")


# Names -----------------------------------------------------------------------------------------------


def _in_name(overrides: Sequence[Given]) -> str:
    """Return the settings as text for the end of a folder's name. Other settings give other text."""
    words = [(".".join(map(str, setting.path)), _in_words(setting.value)) for setting in overrides]
    name = "-".join(f"{path}-{value}" for path, value in words)
    if all(value for _, value in words) and len(name) <= LONGEST_WORDS and re.fullmatch("[a-z0-9._-]+", name):
        return name
    decided = json.dumps([[setting.path, setting.value] for setting in overrides], default=str)
    return f"set-{hashlib.sha256(decided.encode()).hexdigest()[:10]}"


def _in_words(value: Any) -> str | None:
    """Return a value as text for a folder's name; None if another value could give the same text."""
    if isinstance(value, list):
        words = [_in_words(item) for item in value]
        return "-".join(word for word in words if word) if value and all(words) else None
    if isinstance(value, str):
        return value if re.fullmatch("[a-z][a-z0-9_]*", value) else None
    if value is None or isinstance(value, bool | dict):
        return None if isinstance(value, dict) else str(value).lower()
    return exact_number(value)


# Content ---------------------------------------------------------------------------------------------


def _with(content: dict[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    """Return the content of a spec with a new value at a path. A new key becomes the first of its mapping."""
    key, rest = str(path[0]), path[1:]
    inner = content.get(key)
    new = _with(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return content | {key: new} if key in content else {key: new} | content


def _yaml(content: dict[str, Any]) -> str:
    """Return the content of a spec as YAML, the innermost mappings and lists on one line each."""
    writer: Any = YAML(typ="safe", pure=True)
    writer.default_flow_style, writer.allow_unicode, writer.width = None, True, 10_000
    writer.sort_base_mapping_type_on_output = False
    sink = io.StringIO()
    writer.dump(content, sink)
    return sink.getvalue()
