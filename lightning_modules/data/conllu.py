"""Sentences of CoNLL-U files (https://universaldependencies.org/format.html), as they are written there.

A line is a word; or a multi-word token (`3-4 du`), which stands in the text where its words (`3 de`, `4 le`) do
not; or an empty node (`5.1`), which has no place in the text and is left out here.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from lightning_modules.data.readers import numbered_lines
from lightning_modules.errors import DataError

COLUMNS = 10
_TEXT = re.compile(r"#\s*text\s*=(.*)")
_NUMBER = re.compile(r"(?P<first>[0-9]{1,18})(-(?P<last>[0-9]{1,18})|(?P<empty>\.[0-9]+))?")


class Line(NamedTuple):
    """A word or a multi-word token."""

    number: int
    """In the file, from 1."""
    columns: list[str]

    @property
    def form(self) -> str:
        return self.columns[1]

    @property
    def space_after(self) -> bool:
        return "SpaceAfter=No" not in self.columns[9].split("|")


class Range(NamedTuple):
    """A multi-word token and its words, by their places in the sentence."""

    first: int
    last: int
    line: Line


class ConlluSentence(NamedTuple):
    """A sentence of a file."""

    text: str
    """Its comment `text`; where there is none, put together from the forms."""
    words: list[Line]
    ranges: list[Range]

    @property
    def forms(self) -> list[str]:
        """How each word stands in the text. A multi-word token that is not its words in a row stands whole at the
        first, and the others are empty."""
        forms = [word.form for word in self.words]
        for first, last, line in self.ranges:
            if "".join(forms[first : last + 1]) != line.form:
                forms[first : last + 1] = [line.form, *[""] * (last - first)]
        return forms


def conllu_sentences(path: Path) -> Iterator[ConlluSentence]:
    """The sentences of a file, zipped if its name ends in .gz; the last may lack its blank line.

    Raises:
        DataError: no UTF-8, unreadable, or lines that are none of CoNLL-U.
    """
    text, lines = "", list[Line]()
    for number, line in chain(numbered_lines(path), [(0, "")]):
        line = line.rstrip("\r\n")
        if not line.strip():
            if lines:
                yield _sentence(path, text, lines)
            text, lines = "", []
        elif line.startswith("#"):
            found = _TEXT.match(line)
            text = found[1].strip() if found else text
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
                f"{path}, line {line.number}: word number {line.columns[0]!r}, expected {expected}; number the "
                f"words of a sentence 1, 2, 3 and so on, a multi-word token before its words, with an empty line "
                f"between sentences."
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
            f"{path}, line {lines[-1].number}: the sentence ends before its word {len(words) + 1}, expected it "
            f"here; add what is missing."
        )
    rebuilt = "".join(line.form + " " * line.space_after for line in surfaces)
    return ConlluSentence(text or rebuilt, words, ranges)
