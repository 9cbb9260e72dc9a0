"""Sentences with the ones that follow them in their documents; `documents` knows whether a text has any."""

from typing import Literal, NamedTuple

import numpy as np
from tokenizers import Tokenizer

from ablations.errors import MeasureError
from ablations.tasks.use_settings import NEXT_SENTENCE
from lightning_modules.data.tokenizer import decode
from lightning_modules.data.tokens import Split, Tokens
from lightning_modules.randomness import derive, uniforms


class Followed(NamedTuple):
    """Texts and what follows each, all of them different."""

    first: list[str]
    second: list[str]


def followed_sentences(split: Split, tokenizer: Tokenizer, count: int) -> Followed:
    """So many pairs at random, fewer if there are fewer: of a document its first and second sentence, its third
    and fourth, and so on.

    No text is there twice: among the candidates that may follow a sentence stands neither itself nor the right one
    a second time. Which pairs depends on the text alone, and more contain the fewer.
    """
    place_S = np.arange(len(split))
    begins_S = np.diff(split.documents, prepend=-1) != 0
    in_document_S = place_S - np.maximum.accumulate(np.where(begins_S, place_S, 0))
    pair_P = np.flatnonzero((in_document_S[:-1] % 2 == 0) & ~begins_S[1:])
    order = np.argsort(uniforms(derive(0, "next sentences"), pair_P), kind="stable")
    seen: set[str] = set()
    found = Followed([], [])
    for i in pair_P[order].tolist():
        if len(found.first) == count:
            break
        first, second = (decode(tokenizer, split.sentence(j)) for j in (i, i + 1))
        if first != second and not {first, second} & seen:
            seen |= {first, second}
            found.first.append(first)
            found.second.append(second)
    return found


def enough_followed(tokens: Tokens, split: Literal["train", "validation"], count: int, *, fewest: int) -> Followed:
    """The followed sentences of a split.

    Raises:
        MeasureError: there are fewer than the fewest.
    """
    found = followed_sentences(getattr(tokens, split), tokens.tokenizer, count)
    if (there := len(found.first)) < fewest:
        raise MeasureError(
            f"data.{split} has {there} {'pair' if there == 1 else 'pairs'} of sentences that follow each other in "
            f"a document and stand nowhere else, but needs {fewest}; give more text, or leave {NEXT_SENTENCE} out "
            f"of the measure's tasks."
        )
    return found
