"""Where the pieces of a text stand in it, of a tokenizer that does not say so: their letters are looked for.

That is what tokenizers of transformers are which have no tokenizer.json and cannot be made one, as Marian's
(SentencePiece). Fast tokenizers say it themselves: see `measures.labels.spans_of`.
"""

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher

from ablations.measures.labels import Span

_MARKS = re.compile(r"^##|▁|@@$|</w>$")
"""What says that a word begins, goes on or ends."""


def piece_spans(text: str, pieces: Sequence[str | None]) -> list[Span]:
    """The characters of the text that each piece stands for, the last one not included; (0, 0) for none.

    Letters are compared without case and in Unicode's compatible decomposition, as normalisers of tokenizers have
    them. Pieces of which no letter is found (unknown ones, bytes of a letter) stand, all in a row, for what lies
    between their neighbours, white space at its ends apart. The mere space before a word stands for none.

    Args:
        pieces: in the order of the text; empty what is unknown, None for special tokens, which stand for nothing.
    """
    place_C, letter_C = _letters(text)
    owner_L, letter_L = list[int](), list[str]()
    written = [piece and (_MARKS.sub(" ", piece).strip() or None) for piece in pieces]
    for i, piece in enumerate(written):
        letters = _letters(piece or "")[1]
        owner_L += [i] * len(letters)
        letter_L += letters
    found: list[Span | None] = [None] * len(pieces)
    for begin_C, begin_L, length in _matches(letter_C, letter_L):
        for offset in range(length):
            i, place = owner_L[begin_L + offset], place_C[begin_C + offset]
            before = found[i]
            found[i] = (place if before is None else before[0], place + 1)
    return _filled(text, written, found)


def _letters(text: str) -> tuple[list[int], list[str]]:
    """The place of each letter in the text, and the letter; one character may be several."""
    letters = [
        (i, letter)
        for i, character in enumerate(text)
        for letter in unicodedata.normalize("NFKD", character).casefold()
        if not letter.isspace()
    ]
    return [i for i, _ in letters], [letter for _, letter in letters]


def _matches(of_text: list[str], of_pieces: list[str]) -> list[tuple[int, int, int]]:
    """Where as many letters of both are the same: the begin in the text, in the pieces, and how many."""
    if of_text == of_pieces:
        return [(0, 0, len(of_text))]
    blocks = SequenceMatcher(None, of_text, of_pieces, autojunk=False).get_matching_blocks()
    return [(block.a, block.b, block.size) for block in blocks]


def _filled(text: str, pieces: Sequence[str | None], found: Sequence[Span | None]) -> list[Span]:
    """The spans that were found, and what lies between them for the pieces of which no letter was."""
    spans, end = list[Span](), 0
    for i, (piece, span) in enumerate(zip(pieces, found, strict=True)):
        if span is None and piece is not None:
            following = next((later[0] for later in found[i:] if later is not None), len(text))
            between = text[end:following]
            begin = end + len(between) - len(between.lstrip())
            stop = begin + len(between.strip())
            spans.append((begin, stop) if begin < stop else (0, 0))
            continue
        spans.append(span or (0, 0))
        end = span[1] if span else end
    return spans
