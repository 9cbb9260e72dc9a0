"""Sentences with gold labels, from treebanks and from the built-in language. No torch.

Treebanks are those of Universal Dependencies (https://universaldependencies.org): CoNLL-U files, zipped or
not, or parquet files. The columns of a parquet file are `text` and, with one list per sentence, `tokens`,
`upos`, `heads` (0 = root, else from 1) and `deprels`.

A line of a CoNLL-U file (https://universaldependencies.org/format.html) is a word, a multi-word token or an
empty node. A multi-word token (`3-4 du`) stands in the text, and its words (`3 de`, `4 le`) do not. An empty
node (`5.1`) has no place in the text and is left out here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from stat import S_ISDIR
from typing import Any, NamedTuple

import pyarrow as pa

from lightning_modules.data.tables import numbered_lines, parquet_table
from lightning_modules.errors import DataError

COLUMNS = 10
_TEXT = re.compile(r"#\s*text\s*=(.*)")
_NUMBER = re.compile(r"(?P<first>[0-9]{1,18})(-(?P<last>[0-9]{1,18})|(?P<empty>\.[0-9]+))?")


class Line(NamedTuple):
    """Line of a CoNLL-U file: a word or a multi-word token."""

    number: int
    """Number of the line in the file, from 1."""
    columns: list[str]

    @property
    def form(self) -> str:
        return self.columns[1]


class Range(NamedTuple):
    """Multi-word token, with the places of its first and last word in the sentence, from 0."""

    first: int
    last: int
    line: Line


class ConlluSentence(NamedTuple):
    """Sentence of a CoNLL-U file."""

    text: str
    """Comment `text` of the sentence; if there is none, the text is put together from the forms."""
    words: list[Line]
    ranges: list[Range]

    @property
    def forms(self) -> list[str]:
        """Form of each word in the text. A multi-word token may differ from its words in a row. Then its
        first word has the whole token as form, and the other forms are empty."""
        forms = [word.form for word in self.words]
        for first, last, line in self.ranges:
            if "".join(forms[first : last + 1]) != line.form:
                forms[first : last + 1] = [line.form, *[""] * (last - first)]
        return forms


def conllu_sentences(path: Path) -> Iterator[ConlluSentence]:
    """Yield the sentences of a CoNLL-U file, zipped if its name ends in .gz. The last one may lack its blank
    line.

    Raises:
        DataError: the file is unreadable or no UTF-8, or a line is not CoNLL-U.
    """
    text, lines = "", list[Line]()
    for number, line in chain(numbered_lines(path), [(0, "")]):
        line = line.rstrip("\r\n")
        if not line.strip():
            if lines:
                yield _sentence(path, text, lines)
            text, lines = "", []
        elif line.startswith("#"):
            match = _TEXT.match(line)
            text = match[1].strip() if match else text
        else:
            columns = line.split("\t")
            if len(columns) != COLUMNS:
                raise DataError(
                    f"{path}, line {number}: expected the {COLUMNS} columns of CoNLL-U, with tabs between them, "
                    f"but found {len(columns)}; correct the line."
                )
            lines.append(Line(number, columns))


def _sentence(path: Path, text: str, lines: list[Line]) -> ConlluSentence:
    words, ranges, surfaces = list[Line](), list[Range](), list[Line]()
    covered = 0  # words up to here stand in a multi-word token
    for line in lines:
        number, expected = _NUMBER.fullmatch(line.columns[0]), len(words) + 1
        if number and number["empty"]:
            continue
        last = int(number["last"] or number["first"]) if number else 0
        inside = number and number["last"] and expected <= covered
        if number is None or int(number["first"]) != expected or last < expected or inside:
            raise DataError(
                f"{path}, line {line.number}: the number of the word is {line.columns[0]!r}, expected "
                f"{expected}; number the words of each sentence 1, 2, 3 and so on, write a multi-word token "
                "before its words, and put an empty line between sentences."
            )
        if expected > covered:
            surfaces.append(line)
        if number["last"]:
            ranges.append(Range(expected - 1, last - 1, line))
            covered = last
        else:
            words.append(line)
    if len(words) < max(1, covered):
        raise DataError(
            f"{path}, line {lines[-1].number}: the sentence ends before its word {len(words) + 1}; add the "
            "missing word."
        )
    rebuilt = "".join(line.form + " " * ("SpaceAfter=No" not in line.columns[9].split("|")) for line in surfaces)
    return ConlluSentence(text or rebuilt, words, ranges)


ENDINGS = (".conllu", ".conllu.gz", ".parquet")
"""Endings that a treebank may have."""

ROOT = -1
"""Entry of `heads` for a root."""


class LabelledSentence(NamedTuple):
    """Sentence with the gold labels of its words. The tuples have one entry per word."""

    text: str
    """Text of the sentence with single spaces, as a corpus reads it."""
    words: tuple[str, ...]
    """Syntactic words: French "du" is "de" and "le", English "don't" is "do" and "n't"."""
    tags: tuple[str, ...]
    """Universal parts of speech; an empty text if none is given."""
    heads: tuple[int | None, ...]
    """Place of the word that each word depends on, from 0; ROOT for a root, None if nothing is given. There
    are no cycles."""
    relations: tuple[str, ...]
    """Kind of each dependency; an empty text if none is given."""
    senses: tuple[int | None, ...]
    """0 or 1 for a form of the built-in language that two lemmas share; else None."""
    forms: tuple[str, ...]
    """Form of each word in the text. Only CoNLL-U has other forms than `words`: "du" for "de", and an empty
    text for "le"."""
    where: str = ""
    """File, and line or row at which the sentence begins, for errors; empty for the built-in language."""


def read_treebank(path: Path) -> list[LabelledSentence]:
    """Return the sentences of a treebank, in order. Multi-word tokens and empty nodes are no words.

    Raises:
        DataError: the file is missing, damaged, malformed or empty. The error names the line or row.
    """
    try:
        is_folder = S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no file has a name with the character NUL
        raise DataError(f"{path} does not exist, expected a treebank; correct the path.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; correct the path.") from error
    if is_folder or not path.name.lower().endswith(ENDINGS):
        raise DataError(
            f"{path} is {'a folder' if is_folder else 'no treebank by its ending'}, expected a file that ends "
            f"in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}; name, convert or rename the file."
        )
    sentences = list((_of_parquet if path.suffix.lower() == ".parquet" else _of_conllu)(path))
    if not sentences:
        raise DataError(f"{path} has no sentences; give a treebank with at least one.")
    return sentences


def language_sentences(seed: int, split: str, count: int) -> list[LabelledSentence]:
    """Return the first sentences of a split of the built-in language. Only these sentences have senses."""
    from lightning_modules.data.language import language_of  # only imported where it is needed

    return [
        LabelledSentence(s.text, s.words, s.tags, s.heads, s.relations, s.senses, s.words)
        for _, s in language_of(seed).sentences(split, count)
    ]


def _of_conllu(path: Path) -> Iterator[LabelledSentence]:
    for sentence in conllu_sentences(path):
        lines = sentence.words

        def where(i: int, lines: list[Line] = lines) -> str:
            return f"{path}, line {lines[i].number}"

        columns = [[line.columns[place] for line in lines] for place in (1, 3, 6, 7)]
        words, tags, written, relations = columns
        heads = [_head(head, word, where(i)) for i, (head, word) in enumerate(zip(written, words, strict=True))]
        checked = _checked(sentence.text, words, tags, heads, relations, sentence.forms, where)
        yield checked._replace(where=where(0))


def _head(written: str, word: str, where: str) -> int | None:
    if written == "_":
        return None
    if not re.fullmatch(r"-?[0-9]{1,18}", written):
        raise DataError(
            f"{where}: the head of {word!r} is {written!r}, expected 0 (root), the number of a word, or _ for "
            "no annotation; correct it."
        )
    return int(written)


def _of_parquet(path: Path) -> Iterator[LabelledSentence]:
    for number, row in enumerate(parquet_rows(path, ("text", *_ENTRIES)), start=1):
        text, words, tags, heads, relations = row

        def where(i: int, number: int = number) -> str:
            return f"{path}, row {number}, word {i + 1}"

        if not words or not (text or "").strip():
            raise DataError(
                f"{path}, row {number}: no {'text' if words else 'words'}, expected a sentence; correct or remove "
                f"the row."
            )
        checked = _checked(text, words, tags, heads, relations, words, where)
        yield checked._replace(where=f"{path}, row {number}")


def _checked(
    text: str,
    words: Sequence[str],
    tags: Iterable[str],
    heads: Sequence[int | None],
    relations: Iterable[str],
    forms: Sequence[str],
    where: Callable[[int], str],
) -> LabelledSentence:
    """Return the sentence, with heads counted from 0. A DataError is raised if it has no text, or if its
    heads (0 = root, else from 1) are no words or do not lead to a root.

    Args:
        where: returns the place of a word in the file, for errors.
    """
    text, W = " ".join(text.split()), len(words)
    if not text:
        raise DataError(f"{where(0)}: a sentence has no text; correct or remove it.")
    for i, head in enumerate(heads):
        if head is not None and not 0 <= head <= W:
            raise DataError(
                f"{where(i)}: the head of {words[i]!r} is {head}, expected 0 (root) or the number of a word, 1 "
                f"to {W}; correct it."
            )
    lead_to_root: set[int] = set()
    for i in range(W):
        path: set[int] = set()
        above: int | None = i + 1
        while above and above not in lead_to_root and above not in path:
            path.add(above)
            above = heads[above - 1]
        lead_to_root |= path
        if above in path:
            raise DataError(
                f"{where(i)}: the heads above {words[i]!r} form a circle, expected a path to a root (head 0); "
                "correct them."
            )
    return LabelledSentence(
        text=text,
        words=tuple(words),
        tags=tuple("" if tag == "_" else tag for tag in tags),
        heads=tuple(None if head is None else head - 1 for head in heads),
        relations=tuple("" if relation == "_" else relation for relation in relations),
        senses=(None,) * W,
        forms=tuple(forms),
    )


# Parquet ---------------------------------------------------------------------------------------------

_ENTRIES = {"tokens": "word", "upos": "tag", "heads": "head", "deprels": "relation"}
"""Columns that hold lists, with the noun for an entry in errors."""

_STRINGS = (pa.string(), pa.large_string(), pa.string_view())


def parquet_rows(path: Path, names: Sequence[str], *, where: str = "") -> Iterator[tuple[Any, ...]]:
    """Yield columns of a parquet treebank, row by row: `text`, which may be None, and lists of equal length.

    Args:
        names: the columns, `tokens` among them.
        where: setting that names the file, such as " (data.train)", for the errors.

    Raises:
        DataError: the file is damaged, a column is missing or of another type, or lists of a row differ in
            length.
    """

    def check(schema: pa.Schema) -> None:
        for name in names:
            _check_column(path, where, name, names, schema)

    damaged = f"{path} cannot be read as parquet{where}"
    rows = parquet_table(path, names, check, damaged=damaged, remedy="write or copy it again")
    for number, row in enumerate(rows, start=1):
        words = row["tokens"]
        for name in names:
            values = row[name]
            if name in ("text", "tokens"):
                continue
            if words is None or values is None or len(words) != len(values) or None in words or None in values:
                raise DataError(
                    f"{path}, row {number}: {name} must have a {_ENTRIES[name]} for every word in "
                    f"tokens{where}; correct or remove the row."
                )
        yield tuple(row[name] for name in names)


def _check_column(path: Path, where: str, name: str, names: Sequence[str], schema: pa.Schema) -> None:
    lists = [each for each in names if each in _ENTRIES]
    if schema.names.count(name) != 1:
        raise DataError(
            f"{path}: expected one column {name!r}{where}, but the columns are "
            f"{', '.join(map(repr, schema.names))}; write {', '.join(lists[:-1])} and {lists[-1]} with a list a "
            f"sentence{', and text' if 'text' in names else ''}."
        )
    kind = schema.field(name).type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    inner = kind.value_type if is_list else kind
    fits = pa.types.is_integer(inner) if name == "heads" else inner in _STRINGS
    if not fits or is_list != (name in lists):
        expected = "text" if name == "text" else f"lists of {'whole numbers' if name == 'heads' else 'text'}"
        entries = "a text" if name == "text" else f"a list of {_ENTRIES[name]}s"
        raise DataError(
            f"{path}: column {name!r} holds {kind}{where}, expected {expected}; write {entries} a sentence."
        )
