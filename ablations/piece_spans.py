"""Where the pieces of a text stand in it, of a tokenizer that does not say so: their letters are the text's.

That is what tokenizers of transformers are which have no tokenizer.json and cannot be made one, as Marian's
(SentencePiece). Fast tokenizers say it themselves: see `measures.labels.spans_of`.
"""

import re
import unicodedata
from collections.abc import Sequence

from ablations.measures.labels import Span

_MARKS = re.compile(r"^##|▁|@@$|</w>$")
"""What says that a word begins, goes on or ends."""


def piece_spans(text: str, pieces: Sequence[str]) -> list[Span] | None:
    """The characters of the text that each piece stands for, the last one not included; (0, 0) for a piece that is
    the mere space before a word. None where the pieces do not spell the text letter by letter (bytes, what a
    normaliser took away).

    Letters are compared without case, in Unicode's compatible decomposition, as normalisers of tokenizers have
    them; white space, control and format characters count for nothing.

    Args:
        pieces: of the whole text in order, what is unknown as it stands there.
    """
    place_L, letter_L = _letters(text)
    of_pieces = [_letters(_MARKS.sub(" ", piece))[1] for piece in pieces]
    if [letter for letters in of_pieces for letter in letters] != letter_L:
        return None
    spans, end = list[Span](), 0
    for letters in of_pieces:
        begin, end = end, end + len(letters)
        spans.append((place_L[begin], place_L[end - 1] + 1) if letters else (0, 0))
    return spans


def _letters(text: str) -> tuple[list[int], list[str]]:
    """The place of each letter in the text, and the letter; one character may be several."""
    letters = [
        (place, letter)
        for place, character in enumerate(text)
        for letter in unicodedata.normalize("NFKD", character).casefold()
        if not letter.isspace() and unicodedata.category(letter) not in ("Cc", "Cf")
    ]
    return [place for place, _ in letters], [letter for _, letter in letters]
