"""A YAML 1.2 file as plain values that remember where they were written.

Values are what YAML 1.2's core schema says (section 10.3.2 of its specification): ``no`` is text and ``1e-4`` a
number. Keys are text whatever they look like. Tags, anchors and aliases are refused, so nothing is constructed
and nothing expands; a spec has places of its own for what its arms share.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from ruamel.yaml.reader import ReaderError

from ablations.spec.problems import KeyPath, Problem, SpecProblems
from ablations.wording import nearest

LARGEST_FILE = 256 * 1024
"""Bytes. A spec is a page of text; a file beyond this was named by mistake."""
DEEPEST = 32
"""Levels of nesting. A spec has about seven."""
LONGEST_NUMBER = 300
"""Characters; longer ones stay text. No setting comes near it, and Python refuses to read 5000 digits."""


class Mark(NamedTuple):
    """A position in a file; both count from 1."""

    line: int
    column: int


START = Mark(1, 1)


class Place(NamedTuple):
    """Place where a value was written, and the key before it (in a list, the value itself)."""

    key: Mark
    value: Mark


UNREADABLE = object()
"""Stands for a value that was refused, so that nothing more is said about it."""


class Document(NamedTuple):
    """Content of a file, with the places and the problems of its values."""

    file: str
    content: dict[str, Any]
    places: dict[KeyPath, Place]
    problems: tuple[Problem, ...]
    """Problems of reading: repeated keys, tags, anchors, aliases."""

    def problem(self, path: KeyPath, sentence: str, *, at: Literal["key", "value"]) -> Problem:
        """Return a problem of the value at ``path``, or of the nearest thing around it that was written."""
        while path not in self.places:
            path = path[:-1]
        place = self.places[path]
        mark = place.key if at == "key" else place.value
        return Problem(self.file, mark.line, mark.column, sentence)

    def refused(self, path: KeyPath) -> bool:
        """Return whether the value at ``path``, or one around it, was refused already."""
        value: Any = self.content
        for step in path:
            inside = dict(value.items() if isinstance(value, dict) else enumerate(value))
            value = inside.get(step)
            if not isinstance(value, dict | list):
                break
        return value is UNREADABLE


def read(path: Path, *, example: str = "name: my-experiment") -> Document:
    """Read the one mapping that a file holds.

    Args:
        example: how such a file begins, for the sentence about one that does not.

    Raises:
        SpecProblems: the file cannot be read or decoded, is no YAML 1.2, or holds anything but one mapping.
    """
    text = _text(path)
    builder = _Builder(str(path), text, example=example)
    content = builder.document()
    if not isinstance(content, dict):
        what = "a list" if isinstance(content, list) else "a single value"
        builder.stop(*builder.places[()].value, f"this file must hold keys, as in `{example}`, but is {what}")
    return Document(str(path), content, builder.places, tuple(builder.problems))


def plain_value(text: str) -> str | int | float | bool | None:
    """Return the value that unquoted text stands for in YAML 1.2's core schema."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if len(text) > LONGEST_NUMBER:
        return text
    if re.fullmatch(r"[-+]?[0-9]+", text, re.ASCII):
        return int(text)
    if re.fullmatch(r"0o[0-7]+|0x[0-9a-fA-F]+", text):
        return int(text, base=0)
    if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", text, re.ASCII):
        return float(text)
    if re.fullmatch(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", text):
        return float(text.replace(".", ""))
    return text


def _text(path: Path) -> str:
    def stop(sentence: str, place: Mark = START) -> NoReturn:
        raise SpecProblems((Problem(str(path), *place, sentence),))

    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        meant = nearest(path.name, [sibling.name for sibling in path.parent.glob("*.yaml")])
        stop("this file does not exist" + (f"; did you mean {path.with_name(meant)}?" if meant else ""))
    except IsADirectoryError:
        stop("this is a folder; name one file in it")
    except OSError as error:
        stop(f"this file cannot be read: {error.strerror}")
    if len(content) > LARGEST_FILE:
        stop(f"this file is larger than {LARGEST_FILE // 1024} KiB; a spec is a page of text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # the decoder reports positions without the byte-order mark that it has dropped
        byte = error.object[error.start]
        before = error.object[: error.start].decode()
        stop(f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8", _position(before, len(before)))


def _position(text: str, index: int) -> Mark:
    """Return line and column of the character at ``index``."""
    before = text[:index]
    return Mark(before.count("\n") + 1, index - before.rfind("\n"))


def _mark(event: Event) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)


class _Builder:
    """Builder of plain values from ruamel's events; collects what can be refused without losing the thread."""

    def __init__(self, file: str, text: str, *, example: str) -> None:
        self.file = file
        self.example = example
        self.text = text
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []
        self.events: Iterator[Event] = YAML(typ="safe", pure=True).parse(text)

    def document(self) -> Any:
        """Return the value of the only document."""
        self._next()
        start = self._next()
        if isinstance(start, StreamEndEvent):
            what = self.example.partition(":")[0]
            self.stop(*START, f"this file is empty; it starts with a {what}, as in `{self.example}`")
        if start.version not in (None, (1, 2)):
            version = ".".join(map(str, start.version))
            self.stop(*START, f"this file asks for YAML {version}, but is read as YAML 1.2; drop its %YAML line")
        root = self._next()
        self.places[()] = Place(_mark(root), _mark(root))
        content = self._value(root, ())
        self._next()
        end = self._next()
        if isinstance(end, DocumentStartEvent):
            self.stop(*_mark(end), "a second document starts here; a file holds one, so drop this `---`")
        return content

    def stop(self, line: int, column: int, sentence: str) -> NoReturn:
        """Give up: nothing that follows can be trusted."""
        raise SpecProblems((*self.problems, Problem(self.file, line, column, sentence)))

    def _next(self) -> Any:
        try:
            event = next(self.events)
        except ReaderError as error:
            place = _position(self.text, error.position)
            self.stop(*place, f"the character U+{error.character:04X} is not allowed in YAML")
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.stop(mark.line + 1, mark.column + 1, _syntax_sentence(error))
        except (OverflowError, ValueError):  # ruamel hands any number after \U to chr()
            escape = re.search(r"\\U(?!000|0010)", self.text)
            place = _position(self.text, escape.start() if escape else 0)
            self.stop(*place, "this escape names no character; the last one is \\U0010FFFF")
        return event

    def _refuse(self, event: Event, sentence: str) -> None:
        self.problems.append(Problem(self.file, *_mark(event), sentence))

    def _value(self, event: Any, path: KeyPath) -> Any:
        if len(path) > DEEPEST:
            self.stop(*_mark(event), f"this is nested more than {DEEPEST} levels deep; a spec needs about seven")
        refused = self._is_refused(event)
        value: Any = UNREADABLE
        if isinstance(event, ScalarEvent):
            value = plain_value(event.value) if event.implicit[0] else event.value
        elif isinstance(event, SequenceStartEvent):
            value = self._list(path)
        elif isinstance(event, MappingStartEvent):
            value = self._mapping(path)
        return UNREADABLE if refused else value

    def _is_refused(self, event: Any) -> bool:
        """Return whether a value cannot be used; an anchored one can, though its anchor is a problem."""
        if isinstance(event, AliasEvent):
            self._refuse(event, f"aliases such as *{event.anchor} are not allowed; write the value out")
            return True
        if event.anchor is not None:
            self._refuse(
                event, f"anchors such as &{event.anchor} are not allowed; write the value where it is used"
            )
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._refuse(event, f"tags such as {tag} are not allowed; write the plain value")
            return True
        if isinstance(event, ScalarEvent) and re.search("[\ud800-\udfff]", event.value):
            self._refuse(event, "this text holds half a character (a lone surrogate); write the character itself")
            return True
        if isinstance(event, ScalarEvent) and "\0" in event.value:
            self._refuse(event, "this text holds the character U+0000, which no name has; remove it")
            return True
        return False

    def _list(self, path: KeyPath) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            here = (*path, len(values))
            self.places[here] = Place(_mark(event), _mark(event))
            values.append(self._value(event, here))
        return values

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(key := self._next(), MappingEndEvent):
            if not self._is_usable_key(key, path, values):
                self._skip(key)
                self._skip(self._next())
                continue
            event = self._next()
            here = (*path, key.value)
            is_empty = isinstance(event, ScalarEvent) and event.value == "" and event.implicit[0]
            self.places[here] = Place(_mark(key), _mark(key if is_empty else event))  # ruamel has it a line below
            values[key.value] = self._value(event, here)
        return values

    def _is_usable_key(self, event: Any, path: KeyPath, values: dict[str, Any]) -> bool:
        if self._is_refused(event):
            return False
        if not isinstance(event, ScalarEvent):
            self._refuse(event, "a key must be plain text, but is a list or a mapping")
            return False
        if event.value == "":
            self._refuse(event, "a key is missing before this colon")
            return False
        if event.value in values:
            first = self.places[(*path, event.value)].key
            self._refuse(event, f"{event.value} is written twice; the first is on line {first.line}")
            return False
        return True

    def _skip(self, event: Any) -> None:
        """Pass over the value that starts with ``event``."""
        depth = 0
        while True:
            depth += isinstance(event, SequenceStartEvent | MappingStartEvent)
            depth -= isinstance(event, SequenceEndEvent | MappingEndEvent)
            if depth == 0:
                return
            event = self._next()


def _syntax_sentence(error: MarkedYAMLError) -> str:
    """Return what ruamel's parser stumbled over, for somebody who has never read its source."""
    opened = f"line {error.context_mark.line + 1}" if error.context_mark else "the line before"
    for pattern, sentence in (
        (
            r"mapping values are not",
            "a colon is not expected here; check the indentation, and quote text with ': ' in it",
        ),
        (r"character '\\t'", "a tab cannot indent YAML; use spaces"),
        (
            r"unknown escape character '(.)'",
            r"\\\1 means nothing in double quotes; use single quotes, or \\\\ for \\",
        ),
        (r"character '(.)'", r"text cannot start with \1; put it in quotes"),
        (
            r"expected ',' or '([]}])'",
            rf"a comma or \1 is missing before this; its bracket was opened on {opened}",
        ),
        (r"expected <block end>", f"this does not continue what started on {opened}; check the indentation"),
        (r"unexpected end of stream", f"the quote opened on {opened} is never closed"),
        (r"could not find expected ':'", "a colon is missing after this key; write `key: value`"),
        (r"expected the node content", "a value is missing here"),
        (r"expected '<document start>'", "what stands before this is no `key: value`"),
        (r"sequence entries are not", "a list cannot start here; write [a, b], or `- a` on lines of their own"),
        (r"chomping|a comment or a line break", "text that starts with | or > must be in quotes"),
        (r"mapping keys are not", "text that starts with ? must be in quotes"),
        (r"expected alphabetic or numeric", "text that starts with & or * must be in quotes"),
        (r"tag handle", "text that starts with ! must be in quotes"),
    ):
        if match := re.search(pattern, error.problem or ""):
            return match.expand(sentence)
    return f"this is not YAML: {error.problem or error.context}"
