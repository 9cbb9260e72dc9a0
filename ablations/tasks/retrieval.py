"""Which texts belong together, as a bi-encoder has it and as a cross-encoder has it.

The bi-encoder is not trained for it: two texts are as close as the cosine of their mean states. States share a
common direction that hides what they differ in (Ethayarajh 2019, https://arxiv.org/abs/1909.00512; Mu & Viswanath
2018), so each number stands twice: as it is, and `_centred`, with the mean of all texts of the task subtracted.
The cross-encoder (`cross_encoder`) looks closer at the texts that the bi-encoder found; it is trained, so that
what it adds comes of reading both at once and of training together.

What cannot be asked: the right translation among others. The encoders read the source language alone; a text of
another language has no states that they were ever trained to give it.

Letters: P pairs, N texts, L + 1 layers, D width, Q queries, C candidates, K of them that are ranked again.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ablations.measures.tfidf import tfidf_features
from ablations.tasks.cross_encoder import cross_encoder
from ablations.tasks.encoding import Rows, encode_texts, pooled_states
from ablations.tasks.examples import Examples, subset
from ablations.tasks.head_training import Say
from ablations.tasks.next_sentences import enough_followed
from ablations.tasks.ranking import Ranks, best, ranks, recall, reciprocal_rank
from ablations.tasks.shares import share_error
from ablations.tasks.use_settings import NEXT_SENTENCE, RetrievalSettings
from lightning_modules.data.tokens import Split, Tokens
from lightning_modules.objective import Objective

Floats = NDArray[np.floating]
Row = dict[str, Any]

DEPTH = 20
"""Candidates that the cross-encoder ranks again."""
FEWEST_PAIRS = 2 * DEPTH
"""Among fewer the next sentence is not looked for: the cross-encoder would rank more than half of them again."""


class Vectors(NamedTuple):
    """What stands for the texts of a task; rows have unit length, or are 0."""

    layer: int | None
    suffix: str
    """Of the names of the metrics."""
    first_PD: Floats
    second_PD: Floats


def relatedness_rows(
    objective: Objective, tokens: Tokens, settings: RetrievalSettings, examples: Examples, *, max_length: int
) -> Iterator[Row]:
    """Rows of `spearman`, of the cosine with how related people find two sentences: of every layer, the top one as
    a head reads it, and with the suffix `_tfidf` of TF-IDF vectors.

    Args:
        examples: the test part of a task of relatedness.
    """
    wanted = settings.pairs_wanted
    chosen = examples if wanted is None else subset(examples, wanted, seed=0)
    assert chosen.second is not None, f"{settings.task} has no pairs"
    for vectors in _vectors(objective, tokens, chosen.first, chosen.second, max_length=max_length):
        yield relatedness(vectors, chosen.answers) | {"group": settings.task}


def next_sentence_rows(
    objective: Objective,
    tokens: Tokens,
    settings: RetrievalSettings,
    *,
    max_length: int,
    say: Say = lambda line: None,
) -> Iterator[Row]:
    """Rows of `recall_at_1`, `recall_at_20` and `reciprocal_rank` of the sentence that follows, among as many as
    there are queries, of layers and TF-IDF as in `relatedness_rows`; and of `recall_at_1_reranked`, where the
    cross-encoder has put the 20 that the centred top layer found into its own order, whose floor is that of a
    random order.

    Each text is encoded once for all rows but the last.

    Args:
        tokens: of a text that says which sentences follow each other (`documents`).
        say: told of every epoch of the cross-encoder; may raise, to stop.

    Raises:
        MeasureError: a text has fewer than `FEWEST_PAIRS`; the loss of the cross-encoder became no number.
    """
    asked = enough_followed(tokens, "validation", settings.candidates_wanted, fewest=FEWEST_PAIRS)
    learned = enough_followed(tokens, "train", settings.training_pairs_wanted, fewest=FEWEST_PAIRS)
    top: Vectors | None = None
    for vectors in _vectors(objective, tokens, *asked, max_length=max_length):
        for row in recalls(vectors):
            yield row | {"group": NEXT_SENTENCE}
        if vectors.suffix == "_centred":  # the top layer is the last
            top = vectors
    assert top is not None
    score = cross_encoder(
        objective,
        learned,
        tokens.tokenizer,
        settings,
        max_length=max_length,
        say=say,
    )
    near_QK = best(top.first_PD @ top.second_PD.T, DEPTH)
    score_QK = score(
        [text for text in asked.first for _ in range(DEPTH)], [asked.second[i] for i in near_QK.flat]
    ).reshape(near_QK.shape)
    yield reranked(near_QK, score_QK) | {"group": NEXT_SENTENCE}


def relatedness(vectors: Vectors, related_P: Sequence[float]) -> Row:
    """How well cosines are in the order of given numbers. The standard error is Bonett & Wright's (2000)."""
    cosine_P = (vectors.first_PD * vectors.second_PD).sum(1)
    constant = np.ptp(cosine_P) == 0 or np.ptp(related_P) == 0
    rho = 0.0 if constant else float(stats.spearmanr(cosine_P, related_P).statistic)
    error = (1 - rho**2) * np.sqrt((1 + rho**2 / 2) / max(1, len(cosine_P) - 3))
    return _row(vectors, "spearman", rho, error, floor=0.0)


def recalls(vectors: Vectors) -> Iterator[Row]:
    """How high the second text of each pair stands among the second texts of all. Queries are taken to be
    independent, though they share their candidates."""
    C = len(vectors.first_PD)
    found = ranks(vectors.first_PD @ vectors.second_PD.T, np.arange(C))
    chance = Ranks(np.array([0]), np.array([C]))
    for name, of in (
        ("recall_at_1", lambda x: recall(x, 1)),
        (f"recall_at_{DEPTH}", lambda x: recall(x, DEPTH)),
        ("reciprocal_rank", reciprocal_rank),
    ):
        value_Q = of(found)
        yield _row(vectors, name, value_Q.mean(), share_error(value_Q), floor=float(of(chance)[0]))


def reranked(near_QK: NDArray[np.int64], score_QK: Floats) -> Row:
    """How often the right one, whose number is the query's, comes first of those that are ranked again."""
    Q, K = near_QK.shape
    is_right_QK = near_QK == np.arange(Q)[:, None]
    there_Q = is_right_QK.any(1)
    value_Q = np.where(there_Q, recall(ranks(score_QK, is_right_QK.argmax(1)), 1), 0.0)
    return {
        "metric": "recall_at_1_reranked",
        "layer": None,
        "value": float(value_Q.mean()),
        "floor": float(there_Q.mean() / K),
        "unit": "",
        "n": Q,
        "standard_error": share_error(value_Q),
    }


def _row(vectors: Vectors, metric: str, value: float, error: float, *, floor: float) -> Row:
    return {
        "metric": metric + vectors.suffix,
        "layer": vectors.layer,
        "value": float(value),
        "floor": floor,
        "unit": "",
        "n": len(vectors.first_PD),
        "d": vectors.first_PD.shape[1] if vectors.layer is not None else None,
        "standard_error": float(error),
    }


def _vectors(
    objective: Objective, tokens: Tokens, first: Sequence[str], second: Sequence[str], *, max_length: int
) -> Iterator[Vectors]:
    """Of every layer as it is and centred, and of TF-IDF. Each text is encoded once."""
    place = {text: i for i, text in enumerate(dict.fromkeys([*first, *second]))}
    rows = encode_texts(list(place), tokens.tokenizer, max_length=max_length)
    place_2P = np.array([[place[text] for text in texts] for texts in (first, second)])
    for layer, states_ND in enumerate(pooled_states(objective, rows)):
        for suffix, vector_ND in (("", states_ND), ("_centred", centred(states_ND))):
            yield Vectors(layer, suffix, *unit(vector_ND)[place_2P])
    yield Vectors(None, "_tfidf", *_tfidf(tokens, rows)[place_2P])


def _tfidf(tokens: Tokens, rows: Rows) -> NDArray[np.float32]:
    split = Split(
        ids=np.concatenate([row.ids_T for row in rows.rows]).astype(np.uint64),
        offsets=np.append(0, rows.lengths_N.cumsum()),
        documents=np.arange(len(rows), dtype=np.int32),
    )
    feature_NV = tfidf_features(split, train=tokens.train, vocab_size=tokens.vocab_size)
    used_V = np.unique(feature_NV.indices)
    return feature_NV[:, used_V].toarray().astype(np.float32)


def centred(vector_ND: Floats) -> Floats:
    """Less their mean."""
    return vector_ND - vector_ND.mean(0, dtype=np.float64).astype(vector_ND.dtype)


def unit(vector_ND: Floats) -> Floats:
    """At length 1; 0 stays 0, and is equally far from all."""
    length_N1 = np.linalg.norm(vector_ND, axis=1, keepdims=True)
    return vector_ND / np.where(length_N1 > 0, length_N1, 1)
