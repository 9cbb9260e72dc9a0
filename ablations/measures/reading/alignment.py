"""Alignment of the words of a treebank with the text, and of sub-words with these words.

Words are searched in the text one after the other, whatever white space there is: "don't" holds "do" and
"n't", and "1 000" may be one word. A letter is the same however Unicode writes its accent. Control and format
characters are ignored.

Some words do not stand in the text: French "du" is "de" and "le", German "zum" is "zu" and "dem", and quotes
are curly in one place and straight in the other. If a word is not found, a stretch of the text stands for it,
or for it and the next words. A stretch has no white space in it. It may stand

* for one word, if its letters begin or end the word ("m" for "dem"), or if neither has letters;
* for several words, if it is not one of them, at least a third of its letters are also theirs, it has at most
  one letter more than they have, and at least two characters for five of their letters.

There may be several ways to come back to words that are found. The one with the fewest and shortest stretches
is taken. A stretch belongs to the first of its words; the others have no place in the text. On the treebanks that
this was tried on (French, German, English; 446,000 words) every stretch was a contraction with exactly its words.
"""

import heapq
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.wording import shown

MARKS: Final = "".join(c for c in map(chr, range(0x10000)) if unicodedata.category(c).startswith("M"))
"""Accents and vowel signs, which belong to the letter before them."""
UNSPACED: Final = (
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff]"
)
"""Pattern of a character of Thai, Lao, Burmese, Khmer, Kana or Han, which have no spaces between words. Each is
read as a word."""

NO_WORD = -1

MOST_JOINED = 5
"""Largest number of words that one stretch may stand for."""

LONGEST_STRETCH = 24
"""Largest number of characters of a stretch."""

FOUND_AGAIN = 4
"""Number of consecutive words that must be found in the text again before the stretches before them are
settled."""

LOOKED_AT = 40
"""Number of words after which the first stretch is settled, even if no consecutive words were found again."""


def align(text: str, words: Sequence[str], spans_T: Sequence[tuple[int, int]], *, where: str) -> NDArray[np.int64]:
    """Return the word that each sub-word belongs to, as its index; NO_WORD for none; shape T.

    A sub-word belongs to the word of its first character that is in a word, because a span may begin with
    white space. Empty spans, such as those of special tokens, belong to no word. A word may have no sub-word,
    for example if it ends a longer sub-word.

    Args:
        spans_T: the characters that each sub-word stands for, the last one not included. Pieces of one
            character share their span.
        where: name of the sentence for errors.

    Raises:
        MeasureError: these are not the words of the text.
    """
    word_C = words_of_characters(text, words, where=where)
    word_T = np.full(len(spans_T), NO_WORD, np.int64)
    for token, (start, end) in enumerate(spans_T):
        inside = word_C[start:end]
        inside = inside[inside != NO_WORD]
        if len(inside):
            word_T[token] = inside[0]
    return word_T


def words_of_characters(text: str, words: Sequence[str], *, where: str) -> NDArray[np.int64]:
    """Return the word of each character, as its index; NO_WORD between words; shape C.

    Raises:
        MeasureError: these are not the words of the text.
    """
    characters = _characters(text)
    search = _Search([c.written for c in characters], [c.chunk for c in characters], [*map(_written, words)])
    ends, begin = search.ends(), 0
    word_C = np.full(len(text), NO_WORD, np.int64)
    for word, end in enumerate(ends):
        if begin < end:
            word_C[characters[begin].start : characters[end - 1].end] = word
        begin = end
    if len(ends) < len(words) or begin < len(characters):
        actual = shown(text[characters[begin].start :], 30) if begin < len(characters) else "the end"
        expected = f"word {len(ends) + 1}, {shown(words[len(ends)])}" if len(ends) < len(words) else "the end"
        raise MeasureError(
            f"{where}: the labels do not match the text: expected {expected}, but the text has {actual} in "
            f"{shown(text, 80)}; give words and text of the same sentence."
        )
    return word_C


class _Character(NamedTuple):
    """A character with the combining marks that follow it."""

    written: str
    start: int
    end: int
    chunk: int
    """Number of the chunk of text between white space that holds the character, from 0."""


def _characters(text: str) -> list[_Character]:
    characters, chunk = list[_Character](), 0
    for i, character in enumerate(text):
        if character.isspace():
            chunk += 1
        elif unicodedata.combining(character) and characters and characters[-1].end == i:
            written = unicodedata.normalize("NFC", characters[-1].written + character)
            characters[-1] = characters[-1]._replace(written=written, end=i + 1)
        elif unicodedata.category(character) not in ("Cc", "Cf"):
            characters.append(_Character(unicodedata.normalize("NFC", character), i, i + 1, chunk))
    return characters


@lru_cache(maxsize=16_384)  # most words are frequent ones
def _written(word: str) -> list[str]:
    return [character.written for character in _characters(word)]


_Step = tuple[int, int]
"""Number of words that stand for the same characters, and the place after these characters."""


@dataclass(frozen=True)
class _Search:
    """Search for words in a text. Text and words are lists of characters."""

    text: list[str]
    chunks: list[int]
    words: list[list[str]]

    def ends(self) -> list[int]:
        """Return the place after each word. The list ends before the first word that has no place."""
        ends = list[int]()
        while len(ends) < len(self.words):
            place = ends[-1] if ends else 0
            if self._is_found(len(ends), place):
                ends.append(place + len(self.words[len(ends)]))
            elif steps := self._steps(len(ends), place):
                ends += [end for count, end in steps for _ in range(count)]
            else:
                break
        return ends

    def _is_found(self, word: int, place: int) -> bool:
        letters = self.words[word]
        return self.text[place : place + len(letters)] == letters

    def _steps(self, first: int, place: int) -> tuple[_Step, ...]:
        """Return the next steps from a word that is not found: stretches, and words that are found between them.

        Dijkstra's algorithm finds the cheapest way; a word that is found costs nothing. Empty if there is no
        way.
        """
        queue: list[tuple[int, int, int, tuple[_Step, ...]]] = [(0, first, place, ())]
        seen = set[tuple[int, int]]()
        while queue:
            cost, word, place, steps = heapq.heappop(queue)
            if (word, place) in seen:
                continue
            seen.add((word, place))
            if steps and self._goes_on(word, place):
                return steps
            if word - first >= LOOKED_AT:
                return steps[:1]
            if word < len(self.words) and self._is_found(word, place):
                end = place + len(self.words[word])
                heapq.heappush(queue, (cost, word + 1, end, (*steps, (1, end))))
            for count, end in self._stretches(word, place):
                letters = end - place + sum(map(len, self.words[word : word + count]))
                heapq.heappush(queue, (cost + 1 + letters, word + count, end, (*steps, (count, end))))
        return ()

    def _goes_on(self, word: int, place: int) -> bool:
        """Return whether the next words are found. After the last word of all, the text must end."""
        last = min(word + FOUND_AGAIN, len(self.words))
        for i in range(word, last):
            if not self._is_found(i, place):
                return False
            place += len(self.words[i])
        return last < len(self.words) or place == len(self.text)

    def _stretches(self, word: int, place: int) -> Iterator[_Step]:
        """Yield the stretches from `place` that may stand for the next words: number of words, and place after
        the stretch."""
        for end in range(place + 1, min(place + LONGEST_STRETCH, len(self.text)) + 1):
            if self.chunks[end - 1] != self.chunks[place]:
                return
            for count in range(1, min(MOST_JOINED, len(self.words) - word) + 1):
                if _stands_for(self.text[place:end], self.words[word : word + count]):
                    yield count, end


def _stands_for(stretch: list[str], words: list[list[str]]) -> bool:
    stretch_letters, *word_letters = [_letters("".join(characters)) for characters in (stretch, *words)]
    if len(words) == 1:
        (letters,) = word_letters
        return bool(stretch_letters) == bool(letters) and (
            letters.startswith(stretch_letters) or letters.endswith(stretch_letters)
        )
    if stretch in words or not stretch_letters or not all(word_letters):
        return False
    joined = "".join(word_letters)
    alike = 3 * (Counter(stretch_letters) & Counter(joined)).total() >= len(stretch_letters)
    return alike and len(stretch_letters) - 1 <= len(joined) <= 2.5 * len(stretch)


@lru_cache(maxsize=4096)
def _letters(characters: str) -> str:
    """Return the letters and digits alone, without case and accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", characters.casefold()) if c.isalnum())
