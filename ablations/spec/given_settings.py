"""Settings that a command line lays over a spec: `--set training.max_steps=200`.

They are written into the text of the spec, and mean what they would mean there; comments and everything else stay.
An experiment with such settings has a name of its own, so that its results stand apart from those of the spec.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

from ablations.errors import KeyPath, Problem, SpecProblems
from ablations.spec import yamlfile
from ablations.spec.experiment import nodes
from ablations.spec.yamlfile import Document
from ablations.wording import guess, identity, number, shown

OPTION = "--set"
EXAMPLE = f"{OPTION} training.max_steps=200"
LONGEST_WORDS = 100
"""Characters of the settings in the name of an experiment; longer ones are ten hex digits there."""

_ABSENT = object()


class Given(NamedTuple):
    """Setting that a command line gave."""

    written: str
    """As it was written: KEY=VALUE."""
    path: KeyPath
    value: Any
    before: Any
    """What the spec has there."""

    @property
    def is_there(self) -> bool:
        """Return whether the spec says the same already."""
        return self.before is not _ABSENT and identity(self.before) == identity(self.value)

    @property
    def option(self) -> str:
        return f"{OPTION} {self.written}"

    @property
    def sentence(self) -> str:
        """Return what was given and what the spec says: ``training.max_steps=200 (the spec says 500)``."""
        written = " ".join(self.written.split())
        if self.before is _ABSENT:
            return f"{written} (the spec does not say it)"
        before = json.dumps(self.before, ensure_ascii=False, default=str)
        return f"{written} (the spec says {before if len(before) <= 60 else shown(self.before)})"


class ChangedSpec(NamedTuple):
    """Spec with the settings of a command line laid over it."""

    text: str
    """Whole text of a spec file that says the same."""
    document: Document
    """Its content; the places are those of the file that it was made from."""
    given: tuple[Given, ...]
    name: str | None
    """Name of the experiment before; None where it has none."""

    @property
    def sentences(self) -> list[str]:
        return [setting.sentence for setting in self.given]


def read(path: Path, options: Sequence[str] = ()) -> Document:
    """Read a spec file, as `yamlfile.read`, with the settings of a command line laid over it.

    Args:
        options: KEY=VALUE each, the key a dotted path.

    Raises:
        SpecProblems: the file cannot be read, or a setting cannot be laid over it.
    """
    return laid_over(path, options).document if options else yamlfile.read(path)


def laid_over(path: Path, options: Sequence[str]) -> ChangedSpec:
    """Lay the settings of a command line over a spec file.

    Settings that the spec has already change nothing and are left out. The name of the experiment gets the others
    behind it, unless one of them is its name.

    Raises:
        SpecProblems: as `read`; every setting that cannot be laid over the spec has a line.
    """
    text = yamlfile.text_of(path)
    before = yamlfile.parsed(str(path), text)
    settings = _parsed(before.content, options, path)
    given = tuple(one for one in settings if not one.is_there)
    name = before.content.get("name")
    name = name if isinstance(name, str) else None
    for setting in given:
        text = _written_into(text, setting.path, setting.value)
    if given and name is not None and all(one.path != ("name",) for one in settings):
        text = _written_into(text, ("name",), f"{name}-{_in_name(given)}")
    text = "".join(f"# Changed by {OPTION}: {setting.sentence}\n" for setting in given) + text
    after = yamlfile.parsed(str(path), text)
    places = {
        place: mark
        for place, mark in before.places.items()
        if not any(place[: len(setting.path)] == setting.path for setting in given)
    }
    given_places = {
        place: setting.option for setting in given for place in _places(setting) if place not in places
    }
    document = Document(str(path), after.content, places, before.problems, given_places)
    return ChangedSpec(text, document, given, name)


def _places(setting: Given) -> Iterator[KeyPath]:
    """Yield the paths of a setting: of what is in it, and of what is around it."""
    for inner in nodes(setting.value):
        yield (*setting.path, *inner)
    for length in range(1, len(setting.path) + 1):
        yield setting.path[:length]


# Options ---------------------------------------------------------------------------------------------


def _parsed(content: dict[str, Any], options: Sequence[str], spec: Path) -> tuple[Given, ...]:
    """Return the settings, in the order of their paths; so a spec means the same in whatever order they came.

    Raises:
        SpecProblems: all that is wrong with them.
    """
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
    """A setting cannot be laid over a spec; the message is the rest of a sentence."""


def _setting(content: dict[str, Any], written: str, spec: Path) -> Given:
    path: KeyPath = ()
    before: Any = content
    rest = written
    while True:
        key, rest = _first_key(before, path, rest)
        if not key:
            raise _RefusedError(f"a setting is written KEY=VALUE, as in `{EXAMPLE}`")
        if path == ("arms",) and isinstance(before, dict) and key not in before:
            raise _RefusedError(f"{key} is no arm that {spec} writes{guess(key, before) or _arms(before)}")
        before = before.get(key, _ABSENT) if isinstance(before, dict) else _ABSENT
        path = (*path, key)
        if rest[:1] == "=":
            break
        rest = rest[1:]
        name = ".".join(map(str, path))
        if isinstance(before, list):
            raise _RefusedError(
                f"{name} is a list, of which no part can be set; give the whole list: `{OPTION} {name}=[...]`"
            )
        if before is not _ABSENT and not isinstance(before, dict | None):
            raise _RefusedError(
                f"{name} is {shown(before)} in {spec}, which has no keys; write `{OPTION} {name}=...`"
            )
    try:
        value = yamlfile.single_value(written, rest[1:])
    except SpecProblems as error:
        raise _RefusedError(f"the value is no plain YAML: {error.problems[0].sentence}") from error
    return Given(written, path, value, before)


def _first_key(around: Any, path: KeyPath, text: str) -> tuple[str, str]:
    """Return the first key of a dotted path, and what is behind it, from its dot or equals sign on.

    A key that the spec has may hold these signs itself, as some arms and the axes of a grid do. The key is empty
    where neither sign is behind it.
    """
    if isinstance(around, dict):
        for key in sorted(around, key=len, reverse=True):
            if text.startswith(key) and text[len(key) : len(key) + 1] in (".", "="):
                return key, text[len(key) :]
    signs = "=" if path in (("grid", "axes"), ("grid", "zip")) else ".="
    match = re.match(rf"([^{signs}]*)(?=[{signs}])", text)
    return (match[1].strip(), text[match.end() :]) if match else ("", "")


def _arms(arms: dict[str, Any]) -> str:
    return f"; it writes {', '.join(arms)}" if len(arms) <= 8 else ""


def _refuse_overlap(setting: Given, given: Sequence[Given]) -> None:
    for other in given:
        shorter = min(len(setting.path), len(other.path))
        if setting.path == other.path:
            raise _RefusedError(f"{'.'.join(map(str, setting.path))} is given twice; give it once")
        if setting.path[:shorter] == other.path[:shorter]:
            raise _RefusedError(f"this overlaps with `{other.option}`; give one of them")


# Names -----------------------------------------------------------------------------------------------


def _in_name(given: Sequence[Given]) -> str:
    """Return the settings as the end of a folder's name, the same for the same settings alone."""
    words = [(".".join(map(str, setting.path)), _in_words(setting.value)) for setting in given]
    name = "-".join(f"{path}-{value}" for path, value in words)
    if all(value for _, value in words) and len(name) <= LONGEST_WORDS and re.fullmatch("[a-z0-9._-]+", name):
        return name
    decided = json.dumps([[setting.path, setting.value] for setting in given], default=str)
    return f"set-{hashlib.sha256(decided.encode()).hexdigest()[:10]}"


def _in_words(value: Any) -> str | None:
    """Return a value in the letters of a folder's name; None where others could look the same."""
    if isinstance(value, list):
        words = [_in_words(one) for one in value]
        return "-".join(word for word in words if word) if value and all(words) else None
    if isinstance(value, str):
        return value if re.fullmatch("[a-z][a-z0-9_]*", value) else None
    if value is None or isinstance(value, bool | dict):
        return None if isinstance(value, dict) else str(value).lower()
    return number(value)


# Text ------------------------------------------------------------------------------------------------


def _written_into(text: str, path: KeyPath, value: Any) -> str:
    """Return the text of a spec with a value at a path, in the place of the one that is there."""
    node, depth = yamlfile.composed("", text), 0
    key: Node | None = None
    while depth < len(path) and isinstance(node, MappingNode):
        entry = next((pair for pair in node.value if pair[0].value == path[depth]), None)
        if entry is None:
            return _inserted(text, node, path[depth:], value)
        key, node = entry
        depth += 1
    new = _flow(path[depth:], value)
    if key is not None and _is_empty(node):
        end = _behind_key(key, text)
        return f"{text[:end]}{'' if text[end - 1] == ':' else ':'} {new}{text[end:]}"
    start, end = node.start_mark.index, _end(node, text)
    return text[:start] + new + "\n" * text[start:end].endswith("\n") + text[end:]


def _inserted(text: str, around: MappingNode, keys: KeyPath, value: Any) -> str:
    """Return the text with a new first entry in a mapping."""
    start, entry = around.start_mark, f"{json.dumps(keys[0], ensure_ascii=False)}: {_flow(keys[1:], value)}"
    if around.flow_style:
        comma = ", " if around.value else ""
        return text[: start.index + 1] + entry + comma + text[start.index + 1 :]
    return text[: start.index] + f"{entry}\n{' ' * start.column}" + text[start.index :]


def _flow(keys: KeyPath, value: Any) -> str:
    """Return a value in mappings of these keys, on one line of YAML."""
    for key in reversed(keys):
        value = {key: value}
    return json.dumps(value, ensure_ascii=False)


def _is_empty(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value == "" and node.style is None


def _behind_key(key: Node, text: str) -> int:
    """Return where an empty value is, behind the colon of its key; its own mark may be a line below."""
    end = int(key.end_mark.index)
    colon = re.match(r"\s*:", text[end:])
    return end + (colon.end() if colon else 0)


def _end(node: Node, text: str) -> int:
    """Return where a value ends; the mark of a block is behind the comments that follow it."""
    if not isinstance(node, CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    if isinstance(node, MappingNode):
        key, value = node.value[-1]
        return _behind_key(key, text) if _is_empty(value) else _end(value, text)
    return _end(node.value[-1], text)
