"""A YAML 1.2 file as plain values that remember where they were written.

Values are what YAML 1.2's core schema says (section 10.3.2 of its specification): ``no`` is text and ``1e-4`` a
number. Keys are text whatever they look like. Tags, anchors and aliases are refused, so nothing is constructed
and nothing expands; a spec has places of its own for what its arms share.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StreamMark
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from ablations.errors import Fault, KeyPath, Problem, SpecProblems
from ablations.wording import nearest

LARGEST_FILE = 256 * 1024
"""Bytes. A spec is a page of text; a file beyond this was named by mistake."""
DEEPEST = 32
"""Levels of nesting. A spec has about seven."""
MOST_VALUES = 25_000
"""Keys and values. A spec has about a hundred; one of 60 arms with all defaults has 7,000."""
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
    given: Mapping[KeyPath, str] = MappingProxyType({})
    """Values that a command line gave (`given_settings`), each with the option that it stands in."""

    def problem(self, path: KeyPath, sentence: str, *, at: Literal["key", "value"]) -> Problem:
        """Return a problem of the value at ``path``, or of the nearest thing around it that was written."""
        while path not in self.places and path not in self.given:
            path = path[:-1]
        if path in self.given:
            return Problem(self.given[path], 0, 0, sentence)
        place = self.places[path]
        mark = place.key if at == "key" else place.value
        return Problem(self.file, mark.line, mark.column, sentence)

    def problems_of(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield the problem of each fault, with its place; none of a value that was refused already."""
        for fault in faults:
            if not self.refused(fault.path):
                at_key = fault.about in ("key", "missing")
                yield self.problem(fault.path, fault.sentence, at="key" if at_key else "value")

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
    return parsed(str(path), text_of(path), example=example)


def parsed(file: str, text: str, *, example: str = "name: my-experiment") -> Document:
    """Read the one mapping that a text holds, as `read` does; `file` is where it is from."""
    root = composed(file, text, example)
    reader = _Reader(file)
    content = reader.value(root, ())
    if not isinstance(content, dict):
        what = "a list" if isinstance(content, list) else "a single value"
        reader.refuse(root, f"this file must hold keys, as in `{example}`, but is {what}")
        raise SpecProblems(tuple(reader.problems))
    return Document(file, content, reader.places, tuple(reader.problems))


def single_value(source: str, text: str) -> Any:
    """Read one YAML value, which is no file of its own.

    Raises:
        SpecProblems: it is no YAML 1.2, or has a tag, an anchor, an alias or a key twice.
    """
    reader = _Reader(source)
    value = reader.value(composed(source, text), ()) if text.strip() else None
    if reader.problems:
        raise SpecProblems(tuple(reader.problems))
    return value


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


def _stop(file: str | Path, sentence: str, place: Mark = START) -> NoReturn:
    """Give up: nothing that follows can be trusted."""
    raise SpecProblems((Problem(str(file), *place, sentence),))


def text_of(path: Path) -> str:
    """Return the text of a file, without its byte-order mark.

    Raises:
        SpecProblems: it cannot be read, is too large or is no UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        meant = nearest(path.name, [sibling.name for sibling in path.parent.glob("*.yaml")])
        _stop(path, "this file does not exist" + (f"; did you mean {path.with_name(meant)}?" if meant else ""))
    except IsADirectoryError:
        _stop(path, "this is a folder; name one file in it")
    except OSError as error:
        _stop(path, f"this file cannot be read: {error.strerror}")
    if len(content) > LARGEST_FILE:
        _stop(path, f"this file is larger than {LARGEST_FILE // 1024} KiB; a spec is a page of text")
    return decoded(path, content)


def decoded(path: Path, content: bytes) -> str:
    """Return the text of a file from its content, without the byte-order mark.

    Raises:
        SpecProblems: it is no UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # the decoder reports positions without the byte-order mark that it has dropped
        byte = error.object[error.start]
        before = error.object[: error.start].decode()
        _stop(path, f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8", _position(before, len(before)))


def _position(text: str, index: int) -> Mark:
    """Return line and column of the character at ``index``."""
    before = text[:index]
    return Mark(before.count("\n") + 1, index - before.rfind("\n"))


def _mark(mark: StreamMark) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


class _Alias(ScalarNode):
    """An alias where it stands; its value is the name of the anchor."""


class _Composer(Composer):
    """Composer of nodes whose tag is None unless it was written, with a node for each alias."""

    values = 0
    """Keys and values so far."""

    def compose_node(self, parent: Any, index: Any) -> Node:
        event = self.parser.peek_event()
        self.values += 1
        if self.values > MOST_VALUES:
            raise MarkedYAMLError(problem="too many values", problem_mark=event.start_mark)
        if isinstance(event, AliasEvent):
            self.parser.get_event()
            return _Alias(None, event.anchor, event.start_mark)
        node: Node = super().compose_node(parent, index)
        node.ctag = event.ctag
        return node


@lru_cache(maxsize=32)  # a command reads its spec and each file of claims several times
def composed(file: str, text: str, example: str = "name: my-experiment") -> Node:
    """Return the node of the only document in a text, with its marks; nobody may change it.

    Raises:
        SpecProblems: the text is no YAML 1.2, or holds no document or several.
    """
    if version := re.search(r"^%YAML[ \t]+(?!1\.2\s)(\S*)", text, re.MULTILINE):
        sentence = f"this file asks for YAML {version[1]}, but is read as YAML 1.2; drop its %YAML line"
        _stop(file, sentence, _position(text, version.start()))
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    yaml.max_depth = DEEPEST + 1
    try:
        root: Node | None = yaml.compose(text)
    except ReaderError as error:
        place = _position(text, error.position)
        _stop(file, f"the character U+{error.character:04X} is not allowed in YAML", place)
    except MarkedYAMLError as error:
        _stop(file, _syntax_sentence(error), _mark(error.problem_mark or error.context_mark))
    except (OverflowError, ValueError):  # ruamel hands any number after \U to chr()
        escape = re.search(r"\\U(?!000|0010)", text)
        place = _position(text, escape.start() if escape else 0)
        _stop(file, "this escape names no character; the last one is \\U0010FFFF", place)
    if root is None:
        what = example.partition(":")[0]
        article = "an" if what[0] in "aeiou" else "a"
        _stop(file, f"this file is empty; it starts with {article} {what}, as in `{example}`")
    return root


class _Reader:
    """Reader of plain values from nodes; collects the problems of what it refuses."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []

    def refuse(self, node: Node, sentence: str) -> None:
        self.problems.append(Problem(self.file, *_mark(node.start_mark), sentence))

    def value(self, node: Node, path: KeyPath, key: Node | None = None) -> Any:
        """Return the value of a node; UNREADABLE where it is refused."""
        is_plain = isinstance(node, ScalarNode) and node.style is None
        at = key if key and is_plain and node.value == "" else node  # ruamel has an empty value a line below
        self.places[path] = Place(_mark((key or node).start_mark), _mark(at.start_mark))
        refused = self.refused(node, _refusal(node))
        value = node.value
        if isinstance(node, SequenceNode):
            value = [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        elif isinstance(node, MappingNode):
            value = {}
            for name, item in node.value:
                first = self.places.get((*path, name.value)) if isinstance(name, ScalarNode) else None
                if not self.refused(name, _refusal(name) or _key_refusal(name, first)):
                    value[name.value] = self.value(item, (*path, name.value), name)
        elif is_plain:
            value = plain_value(node.value)
        return UNREADABLE if refused else value

    def refused(self, node: Node, sentence: str | None) -> bool:
        """Return whether a value cannot be used; an anchored one can, though its anchor is a problem."""
        if node.anchor is not None:
            self.refuse(node, f"anchors such as &{node.anchor} are not allowed; write the value where it is used")
        if sentence:
            self.refuse(node, sentence)
        return sentence is not None


def _refusal(node: Node) -> str | None:
    """Return why a value cannot be used, if it cannot."""
    if isinstance(node, _Alias):
        return f"aliases such as *{node.value} are not allowed; write the value out"
    if node.tag is not None:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        return f"tags such as {tag} are not allowed; write the plain value"
    if isinstance(node, ScalarNode) and re.search("[\ud800-\udfff]", node.value):
        return "this text holds half a character (a lone surrogate); write the character itself"
    if isinstance(node, ScalarNode) and "\0" in node.value:
        return "this text holds the character U+0000, which no name has; remove it"
    return None


def _key_refusal(key: Node, first: Place | None) -> str | None:
    """Return why a node cannot be a key, if it cannot; ``first`` is the place of the same key before it."""
    if not isinstance(key, ScalarNode):
        return "a key must be plain text, but is a list or a mapping"
    if key.value == "":
        return "a key is missing before this colon"
    return f"{key.value} is written twice; the first is on line {first.key.line}" if first else None


def _syntax_sentence(error: MarkedYAMLError) -> str:
    """Return what ruamel's parser stumbled over, for somebody who has never read its source."""
    opened = f"line {error.context_mark.line + 1}" if error.context_mark else "the line before"
    for pattern, sentence in (
        (
            r"mapping values are not",
            "a colon is not expected here; check the indentation, and quote text with ': ' in it",
        ),
        (r"another document", "a second document starts here; a file holds one, so drop this `---`"),
        (
            r"too many values",
            f"this file has more than {MOST_VALUES:,} keys and values; a spec has about a hundred",
        ),
        (r"maximum depth", f"this is nested more than {DEEPEST} levels deep; a spec needs about seven"),
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
