"""Cross-encoder: an encoder with a head that reads two texts at once and scores how well the second follows the
first.

A copy of the encoder is trained with a head (the recipe of `training`) on sentences of the training text, each
with the one that follows it and with another one at random. Wrong ones that a bi-encoder takes to be near, as is
usual for search engines, mislead here: the right ones are seldom as near, so that what is unlike the first
sentence would be right. An untrained encoder told 72% of held-out pairs apart that way, and ranked no better.

Sentences are paired with the ones that follow them in their documents; `documents` knows whether a text has any.

Letters: P pairs, B of a batch.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ablations.errors import MeasureError
from ablations.tasks.encoding import encode_pairs
from ablations.tasks.examples import Examples
from ablations.tasks.settings import NEXT_SENTENCE, RetrievalSettings
from ablations.tasks.transfer.heads import Classes, Head, Texts, TunedStates, scale_of
from ablations.tasks.transfer.training import Recipe, Say, Trainee, train
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import decode
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms


class Followed(NamedTuple):
    """Texts and the text that follows each, all of them different."""

    first: list[str]
    second: list[str]


def followed_sentences(split: Split, tokenizer: Tokenizer, count: int) -> Followed:
    """Choose so many pairs at random, fewer if there are fewer: of a document its first and second sentence, its
    third and fourth, and so on.

    No text is there twice: among the candidates that may follow a sentence stands neither itself nor the right one
    a second time. Which pairs depends on the text alone, and more contain the fewer.
    """
    place_S = np.arange(len(split))
    begins_S = np.diff(split.documents, prepend=-1) != 0
    in_document_S = place_S - np.maximum.accumulate(np.where(begins_S, place_S, 0))
    pair_P = np.flatnonzero((in_document_S[:-1] % 2 == 0) & ~begins_S[1:])
    order = np.argsort(uniforms(derive(0, "next sentences"), pair_P), kind="stable")
    seen: set[str] = set()
    pairs = Followed([], [])
    for i in pair_P[order].tolist():
        if len(pairs.first) == count:
            break
        first, second = (decode(tokenizer, split.sentence(j)) for j in (i, i + 1))
        if first != second and not {first, second} & seen:
            seen |= {first, second}
            pairs.first.append(first)
            pairs.second.append(second)
    return pairs


def enough_followed(tokens: Tokens, split: Literal["train", "validation"], count: int, *, fewest: int) -> Followed:
    """Return the followed sentences of a split.

    Raises:
        MeasureError: there are fewer than the fewest.
    """
    pairs = followed_sentences(getattr(tokens, split), tokens.tokenizer, count)
    if (number := len(pairs.first)) < fewest:
        raise MeasureError(
            f"data.{split} has {number} {'pair' if number == 1 else 'pairs'} of sentences that follow each other "
            f"in a document and stand nowhere else, but needs {fewest}; give more text, or leave "
            f"{NEXT_SENTENCE} out of the measure's tasks."
        )
    return pairs


Scores = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""Scores of how well each text follows the other one of the pair; higher is better."""

HELD_OUT = 10
"""Divisor of the number of pairs that are held out, to choose among epochs."""
LEAST_STEPS = 200
"""Fewer pairs are gone through more often."""
FOLLOWS_NOT, FOLLOWS = "0", "1"


def cross_encoder(
    objective: Objective,
    pairs: Followed,
    tokenizer: Tokenizer,
    settings: RetrievalSettings,
    *,
    max_length: int,
    say: Say,
) -> Scores:
    """Train a cross-encoder; the objective stays as it is.

    Args:
        pairs: of the training text.

    Raises:
        MeasureError: the loss became no number.
    """
    wrong = wrong_seconds(pairs.second)
    P = len(pairs.first)

    def read(first: Sequence[str], second: Sequence[str], answers: list[str]) -> Texts:
        rows = encode_pairs(first, second, tokenizer, max_length=max_length)
        return Texts(Examples(list(first), list(second), None, answers), rows, None)

    texts = read(pairs.first * 2, pairs.second + wrong, [FOLLOWS] * P + [FOLLOWS_NOT] * P)
    kept_P = np.arange(P) % HELD_OUT == 0
    held = np.flatnonzero(kept_P)
    held_texts = read([pairs.first[i] for i in held] * 2, [s[i] for s in (pairs.second, wrong) for i in held], [])

    def right(trainee: Trainee) -> float:
        """Return the share of pairs in which the text that follows is preferred."""
        follows, other = np.split(_scores(trainee, held_texts), 2)
        return float((follows > other).mean())

    states, classes = TunedStates(objective), Classes([FOLLOWS_NOT, FOLLOWS])
    head = Head(scale_of(states, texts), classes.outputs, seed=0)
    trainee = Trainee(states, head, classes)
    recipe = Recipe(
        epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        least_steps=LEAST_STEPS,
        repetition=0,
        name="cross-encoder",
    )
    learned_from = np.flatnonzero(~np.tile(kept_P, 2))
    trainee.load_state_dict(train(trainee, texts, learned_from, recipe, score=right, say=say).weights)
    return lambda first, second: _scores(trainee, read(first, second, []))


def wrong_seconds(second: Sequence[str]) -> list[str]:
    """Return for each text another one of them, each with the same probability."""
    place_P = np.arange(len(second))
    other_P = (uniforms(derive(0, "wrong seconds"), place_P) * (len(second) - 1)).astype(np.int64)
    return [second[i] for i in other_P + (other_P >= place_P)]


@torch.no_grad()
def _scores(trainee: Trainee, texts: Texts) -> NDArray[np.float32]:
    """Return the log odds that the second text follows the first."""
    trainee.eval()
    score_P = np.empty(len(texts), np.float32)
    for index_B in texts.rows.by_length():
        output_B2 = trainee.outputs(texts, index_B).float().cpu().numpy()
        score_P[index_B] = output_B2[:, 1] - output_B2[:, 0]
    return score_P
