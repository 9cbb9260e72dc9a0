"""Reader of YAML 1.2 files: plain values, with the place where each was written.

Values follow the core schema of YAML 1.2 (section 10.3.2 of its specification): ``no`` is text and ``1e-4``
is a number. Keys are always text. Tags, anchors and aliases are refused, so a file can neither construct
objects nor expand. Specs do not need anchors: their own sections hold what arms share.
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
from ablations.wording import REFUSED, nearest
from lightning_modules.files import open_ordinary

LARGEST_FILE = 256 * 1024
"""Largest size of a file in bytes. A spec is a page of text, so a larger file was named by mistake."""
DEEPEST = 32
"""Largest number of levels of nesting. A spec has about seven."""
MOST_VALUES = 25_000
"""Largest number of keys and values. A spec has about a hundred; one of 60 arms with all defaults has
7,000."""
LONGEST_NUMBER = 300
"""Largest number of characters of a number; longer ones stay text. No setting needs as many, and Python
refuses to read 5000 digits."""


class Mark(NamedTuple):
    """Position in a file; line and column count from 1."""

    line: int
    column: int


START = Mark(1, 1)
NOWHERE = Mark(0, 0)
"""Place of a problem of a file that has no text to point at."""


class EntryMarks(NamedTuple):
    """Places of a value and of its key. For an entry of a list both are the place of the value."""

    key: Mark
    value: Mark


UNREADABLE = object()
"""Placeholder for a value that was refused, so that nothing more is reported about it."""


class Document(NamedTuple):
    """Content of a file, with the places and the problems of its values."""

    file: str
    content: dict[str, Any]
    places: dict[KeyPath, EntryMarks]
    problems: tuple[Problem, ...]
    """Problems of reading: repeated keys, tags, anchors, aliases."""
    option_by_path: Mapping[KeyPath, str] = MappingProxyType({})
    """Paths of values from the command line (`given_settings`), each with the option that gave it."""

    def problem(self, path: KeyPath, sentence: str, *, at: Literal["key", "value"]) -> Problem:
        """Return a problem at the place of ``path``, or of the nearest part around it that was written. If the
        command line gave the value, the problem has the option in place of the file, and line and column 0."""
        while path not in self.places and path not in self.option_by_path:
            path = path[:-1]
        if path in self.option_by_path:
            return Problem(self.option_by_path[path], 0, 0, sentence)
        place = self.places[path]
        mark = place.key if at == "key" else place.value
        return Problem(self.file, mark.line, mark.column, sentence)

    def problems_of(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield the problem of each fault, with its place. Faults of values that were already refused are
        left out."""
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
    """Return the content of a YAML file, which must be one mapping.

    Args:
        example: how such a file begins; errors quote it.

    Raises:
        SpecProblems: the file cannot be read or decoded, is no YAML 1.2, or holds anything but one mapping.
    """
    return parsed(str(path), text_of(path), example=example)


def parsed(file: str, text: str, *, example: str = "name: my-experiment") -> Document:
    """Return the content of a YAML text, which must be one mapping; `file` names the text in problems.

    Raises:
        SpecProblems: as in `read`.
    """
    root = composed(file, text, example)
    reader = _Reader(file)
    content = reader.value(root, ())
    if not isinstance(content, dict):
        kind_of_content = "a list" if isinstance(content, list) else "a single value"
        reader.refuse(root, f"this file must hold keys, as in `{example}`, but is {kind_of_content}")
        raise SpecProblems(tuple(reader.problems))
    return Document(file, content, reader.places, tuple(reader.problems))


def single_value(source: str, text: str) -> Any:
    """Return the value of a short YAML text, such as an option of the command line; None for an empty text.

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
    """Raise a single problem, after which the rest of the file cannot be read."""
    raise SpecProblems((Problem(str(file), *place, sentence),))


def text_of(path: Path) -> str:
    """Return the text of a file, without its byte-order mark.

    A pipe is read only if its path lies in /dev or /proc, as that of `<(command)` does: nobody might write to
    another one, such as one in a folder of results from somebody else.

    Raises:
        SpecProblems: it cannot be read, is too large or is no UTF-8.
    """
    try:
        is_named_by_shell = path.is_relative_to("/dev") or path.is_relative_to("/proc")
        with open(path, "rb", opener=None if is_named_by_shell else open_ordinary) as file:
            content = file.read(LARGEST_FILE + 1)
    except (FileNotFoundError, NotADirectoryError):
        meant = nearest(path.name, [sibling.name for sibling in path.parent.glob("*.yaml")])
        hint = f"; did you mean {path.with_name(meant)}?" if meant else ""
        _stop(path, f"this file does not exist{hint}", NOWHERE)
    except IsADirectoryError:
        _stop(path, "this is a folder; name a file", NOWHERE)
    except OSError as error:
        _stop(path, f"this file cannot be read: {error.strerror}", NOWHERE)
    return decoded(path, content)


def decoded(path: Path, content: bytes) -> str:
    """Return the text of a file from its content, without the byte-order mark.

    Raises:
        SpecProblems: it is too large or is no UTF-8.
    """
    if len(content) > LARGEST_FILE:
        _stop(
            path,
            f"this file is larger than {LARGEST_FILE // 1024} KiB, but a spec is about a page of text; name "
            "another file",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # the decoder reports positions without the byte-order mark that it has dropped
        byte = error.object[error.start]
        before = error.object[: error.start].decode()
        _stop(path, f"the byte 0x{byte:02x} is not UTF-8; save the file as UTF-8", _position(before, len(before)))


def _position(text: str, index: int) -> Mark:
    """Return line and column of the character at ``index``."""
    before = text[:index]
    return Mark(before.count("\n") + 1, index - before.rfind("\n"))


def _mark(mark: StreamMark) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


class _Alias(ScalarNode):
    """Node of an alias, which is not resolved; its value is the name of the anchor."""


class _Composer(Composer):
    """Composer that keeps a node for each alias. The tag of a node is None unless the file writes one."""

    values = 0
    """Number of keys and values so far."""

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


@lru_cache(maxsize=128)  # a command reads its spec and each file of claims several times
def composed(file: str, text: str, example: str = "name: my-experiment") -> Node:
    """Return the root node of the only document in a text. The node is cached, so callers must not change it.

    Raises:
        SpecProblems: the text is no YAML 1.2, or holds no document or several.
    """
    if version := re.search(r"^%YAML[ \t]+(?!1\.2\s)(\S*)", text, re.MULTILINE):
        sentence = f"this file declares YAML {version[1]}, but is read as YAML 1.2; remove the %YAML line"
        _stop(file, sentence, _position(text, version.start()))
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    yaml.max_depth = DEEPEST + 1
    try:
        root: Node | None = yaml.compose(text)
    except ReaderError as error:
        place = _position(text, error.position)
        _stop(file, f"the character U+{error.character:04X} is not allowed in YAML; remove it", place)
    except MarkedYAMLError as error:
        _stop(file, _syntax_sentence(error), _mark(error.problem_mark or error.context_mark))
    except (OverflowError, ValueError):  # ruamel hands any number after \U to chr()
        escape = re.search(r"\\U(?!000|0010)", text)
        place = _position(text, escape.start() if escape else 0)
        _stop(file, "this escape is not a character (the last one is \\U0010FFFF); correct it", place)
    if root is None:
        first_key = example.partition(":")[0]
        article = "an" if first_key[0] in "aeiou" else "a"
        _stop(file, f"this file is empty; start it with {article} {first_key}, as in `{example}`")
    return root


class _Reader:
    """Reader of plain values from nodes; `problems` collects what it refuses."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[KeyPath, EntryMarks] = {}
        self.problems: list[Problem] = []

    def refuse(self, node: Node, sentence: str) -> None:
        self.problems.append(Problem(self.file, *_mark(node.start_mark), sentence))

    def value(self, node: Node, path: KeyPath, key: Node | None = None) -> Any:
        """Return the value of a node; UNREADABLE where it is refused."""
        is_plain = isinstance(node, ScalarNode) and node.style is None
        at = key if key and is_plain and node.value == "" else node  # ruamel puts an empty value a line too low
        self.places[path] = EntryMarks(_mark((key or node).start_mark), _mark(at.start_mark))
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
                    # What an alias would add is unknown, so nothing is missing here.
                    refused |= name.value == "<<" and isinstance(item, _Alias)
        elif is_plain:
            value = plain_value(node.value)
        return UNREADABLE if refused else value

    def refused(self, node: Node, sentence: str | None) -> bool:
        """Return whether a value cannot be used, and collect its problems. An anchor is a problem, but its
        value can be used."""
        if node.anchor is not None:
            self.refuse(node, f"anchors such as &{node.anchor} are not allowed; write the value at each place")
        if sentence:
            self.refuse(node, sentence)
        return sentence is not None


def _refusal(node: Node) -> str | None:
    """Return why a value cannot be used; None if it can."""
    if isinstance(node, _Alias):
        return f"aliases such as *{node.value} are not allowed; write the value out"
    if node.tag is not None:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        return f"tags such as {tag} are not allowed; write the value without a tag"
    if isinstance(node, ScalarNode) and re.search("[\ud800-\udfff]", node.value):
        return "this text has half of a character (a lone surrogate); write the whole character"
    if isinstance(node, ScalarNode) and (refused := REFUSED.search(node.value)):
        return f"this text has the character U+{ord(refused[0]):04X}, which cannot be displayed; remove it"
    return None


def _key_refusal(key: Node, first: EntryMarks | None) -> str | None:
    """Return why a node cannot be a key; None if it can. ``first`` is the place of an earlier key with the
    same text."""
    if not isinstance(key, ScalarNode):
        return "a key must be plain text, but is a list or a mapping"
    if key.value == "":
        return "a key is missing before this colon"
    return f"{key.value} is written twice; the first is on line {first.key.line}" if first else None


def _syntax_sentence(error: MarkedYAMLError) -> str:
    """Return an error of ruamel's parser as a sentence that users understand."""
    opened = f"line {error.context_mark.line + 1}" if error.context_mark else "the line before"
    for pattern, sentence in (
        (
            r"mapping values are not",
            "a colon is not expected here; check the indentation, and quote text with ': ' in it",
        ),
        (r"another document", "a second document starts here, but a file has only one; remove this `---`"),
        (
            r"too many values",
            f"this file has more than {MOST_VALUES:,} keys and values, but a spec has about a hundred; name "
            "another file",
        ),
        (
            r"maximum depth",
            f"this is nested more than {DEEPEST} levels deep, but a spec needs about seven; check the indentation",
        ),
        (r"character '\\t'", "YAML cannot be indented with tabs; use spaces"),
        (
            r"unknown escape character '(.)'",
            r"\\\1 means nothing in double quotes; use single quotes, or \\\\ for \\",
        ),
        (r"character '(.)'", r"text cannot start with \1; put it in quotes"),
        (
            r"expected ',' or '([]}])'",
            rf"a comma or \1 is missing before this; its bracket was opened on {opened}",
        ),
        (r"expected <block end>", f"this line does not fit what started on {opened}; check the indentation"),
        (r"unexpected end of stream", f"the quote opened on {opened} is never closed"),
        (r"could not find expected ':'", "a colon is missing after this key; write `key: value`"),
        (r"expected the node content", "a value is missing here"),
        (r"expected '<document start>'", "the text before this is not `key: value`"),
        (r"sequence entries are not", "a list cannot start here; write [a, b], or `- a` on lines of their own"),
        (r"chomping|a comment or a line break", "text that starts with | or > must be in quotes"),
        (r"mapping keys are not", "text that starts with ? must be in quotes"),
        (r"expected alphabetic or numeric", "text that starts with & or * must be in quotes"),
        (r"tag handle", "text that starts with ! must be in quotes"),
    ):
        if match := re.search(pattern, error.problem or ""):
            return match.expand(sentence)
    return f"this is not YAML: {error.problem or error.context}"
