"""Retrieval of texts that belong together, by a bi-encoder and by a cross-encoder.

The bi-encoder is not trained for retrieval: it compares two texts by the cosine of their mean states. States
share a common direction that hides how they differ (Ethayarajh 2019, https://arxiv.org/abs/1909.00512; Mu &
Viswanath 2018). So each number has two rows: as it is, and `_centred`, with the mean of all texts of the task
subtracted. The cross-encoder (`cross_encoder`) ranks the nearest texts of the bi-encoder again. It is
trained, so its gain comes both from reading two texts at once and from training.

Translations cannot be retrieved: the encoders read only the source language and were never trained to give
states to text of another language.

TF-IDF reads sentences as bags of sub-words: a baseline without order, context or training. Numbers are means
over all orders of tied candidates, so a score that is equal for all candidates is at chance level.

Letters: P pairs, N texts, L + 1 layers, D width, Q queries, C candidates, K of them that are ranked again, B
of a batch.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import csr_matrix
from tokenizers import Tokenizer

from ablations.errors import MeasureError
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.tasks.encoding import EncodedTexts, encode_pairs, encode_texts, pooled_states, tfidf_features
from ablations.tasks.examples import Examples, examples_of, source_of, subset
from ablations.tasks.metrics import correlation, share_error
from ablations.tasks.settings import NEXT_SENTENCE, RetrievalSettings
from ablations.tasks.transfer import heads
from ablations.tasks.transfer.heads import Classes, Head, TunedStates, scale_of
from ablations.tasks.transfer.training import Recipe, Trainee, train
from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import decode
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Ranks(NamedTuple):
    """Ranks of the right candidate of each query, with its ties."""

    above_Q: Integers
    """Number of candidates with a higher score than the right one."""
    equal_Q: Integers
    """Number of candidates with the same score as the right one, itself included."""


def ranks(score_QC: NDArray[np.floating], right_Q: Integers) -> Ranks:
    """Return the ranks of the right candidate of each query."""
    own_Q1 = np.take_along_axis(score_QC, right_Q[:, None], axis=1)
    return Ranks((score_QC > own_Q1).sum(1), (score_QC == own_Q1).sum(1))


def recall(rank: Ranks, first: int) -> Floats:
    """Return, for each query, the probability that the right candidate is among the `first` best, if ties are
    broken at random."""
    return np.clip((first - rank.above_Q) / rank.equal_Q, 0, 1)


def reciprocal_rank(rank: Ranks) -> Floats:
    """Return, for each query, the mean of 1 over the rank of the right candidate, over all orders of ties."""
    sums = np.append(0, np.cumsum(1 / np.arange(1, (rank.above_Q + rank.equal_Q).max() + 1)))
    return (sums[rank.above_Q + rank.equal_Q] - sums[rank.above_Q]) / rank.equal_Q


def best(score_QC: NDArray[np.floating], count: int) -> Integers:
    """Return the `count` candidates with the highest score, best first. Ties go to the first candidate."""
    return np.argsort(-score_QC, axis=1, kind="stable")[:, :count]


Features = NDArray[np.floating]

DEPTH = 20
"""Number of candidates that the cross-encoder ranks again."""
FEWEST_PAIRS = 2 * DEPTH
"""Smallest number of pairs for `next_sentence`. With fewer the cross-encoder would rank more than half of the
candidates again."""


class Vectors(NamedTuple):
    """Vectors of the texts of a task, sparse for TF-IDF. Rows have unit length, or are 0."""

    layer: int | None
    suffix: str
    """Suffix of the names of the metrics."""
    first_PD: Features | csr_matrix
    second_PD: Features | csr_matrix


def rows(readings: Readings, settings: RetrievalSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `retrieval` of one task for a run."""
    objective, tokens = readings.objective, readings.tokens
    length = objective.run.data.max_length
    if settings.task_name == NEXT_SENTENCE:
        yield from next_sentence_rows(objective, tokens, settings, max_length=length, say=say)
    else:
        examples = examples_of(settings.task_name, "test", source_of(readings, settings))
        yield from relatedness_rows(objective, tokens, settings, examples, max_length=length)


def require(settings: RetrievalSettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if a text with documents has too few sentences that follow each other."""
    for part in settings.parts(built_in=run.data.kind == "language"):
        if part.task_name == NEXT_SENTENCE and part.problem(run.data, texts.data_root) is None:
            for split in ("validation", "train"):
                enough_followed(texts.tokens, split, FEWEST_PAIRS)


def relatedness_rows(
    objective: Objective, tokens: Tokens, settings: RetrievalSettings, examples: Examples, *, max_length: int
) -> Iterator[dict[str, Any]]:
    """Yield rows of `spearman`: the correlation of the cosine of two sentences with their relatedness as
    people judge it.

    There are rows for every layer (the top one as a head reads it), as it is and centred, and with the suffix
    `_tfidf` for TF-IDF vectors.

    Args:
        examples: the test part of a task of relatedness.
    """
    count = settings.pairs_wanted
    chosen = examples if count is None else subset(examples, count, seed=0)
    assert chosen.second is not None, f"{settings.task_name} has no pairs"
    for vectors in _vectors(objective, tokens, chosen.first, chosen.second, max_length=max_length):
        yield relatedness(vectors, chosen.answers) | {"group": settings.task_name}


def next_sentence_rows(
    objective: Objective,
    tokens: Tokens,
    settings: RetrievalSettings,
    *,
    max_length: int,
    say: Say = lambda line: None,
) -> Iterator[dict[str, Any]]:
    """Yield rows on how well the next sentence is found: `recall_at_1`, `recall_at_20`, `reciprocal_rank` and
    `recall_at_1_reranked`.

    The candidates are the next sentences of all queries. The first three metrics are of layers and TF-IDF as in
    `relatedness_rows`. For the last metric, the cross-encoder ranks the 20 nearest candidates of the centred
    top layer again. Its chance level (`floor`) is that of a random order of these 20. Each text is encoded once
    for all rows but the last.

    Args:
        tokens: a text that says which sentences follow each other (`documents`).
        say: called with a line for each epoch of the cross-encoder. It may raise an error to stop.

    Raises:
        MeasureError: a text has fewer than `FEWEST_PAIRS` pairs, or the loss of the cross-encoder is no
            longer a number.
    """
    queries = enough_followed(tokens, "validation", settings.candidates_wanted)
    learned = enough_followed(tokens, "train", settings.training_pairs_wanted)
    top: Vectors | None = None
    for vectors in _vectors(objective, tokens, *queries, max_length=max_length):
        for row in recalls(vectors):
            yield row | {"group": NEXT_SENTENCE}
        if vectors.suffix == "_centred":  # the top layer is the last
            top = vectors
    assert top is not None
    score = cross_encoder(objective, learned, tokens.tokenizer, settings, max_length=max_length, say=say)
    near_QK = best(cosines(top), DEPTH)
    score_QK = score(
        [text for text in queries.first for _ in range(DEPTH)], [queries.second[i] for i in near_QK.flat]
    ).reshape(near_QK.shape)
    yield reranked(near_QK, score_QK) | {"group": NEXT_SENTENCE}


def relatedness(vectors: Vectors, related_P: Sequence[float]) -> dict[str, Any]:
    """Return the rank correlation of cosines with given numbers; 0 if one side is constant. The standard
    error is Bonett & Wright's (2000)."""
    first_PD, second_PD = vectors.first_PD.astype(np.float64), vectors.second_PD.astype(np.float64)
    product_PD = first_PD.multiply(second_PD) if isinstance(first_PD, csr_matrix) else first_PD * second_PD
    cosine_P = np.asarray(product_PD.sum(1), np.float32).ravel()  # rounded, so that equal cosines stay equal
    rho = correlation(stats.spearmanr, cosine_P, related_P)
    error = (1 - rho**2) * np.sqrt((1 + rho**2 / 2) / max(1, len(cosine_P) - 3))
    return _row(vectors, "spearman", rho, error, floor=0.0)


def cosines(vectors: Vectors) -> NDArray[np.float32]:
    """Return the cosine of the first text of each pair with the second text of each pair; shape PP.

    Equal texts have equal cosines. A product in single precision rounds equal rows differently at different
    places, which breaks their ties.
    """
    cosine_PP = (vectors.first_PD.astype(np.float64) @ vectors.second_PD.T.astype(np.float64)).astype(np.float32)
    return cosine_PP.toarray() if isinstance(cosine_PP, csr_matrix) else cosine_PP


def recalls(vectors: Vectors) -> Iterator[dict[str, Any]]:
    """Yield rows on the rank of the second text of each pair among the second texts of all pairs. Errors take
    queries as independent, although they share their candidates."""
    C = vectors.first_PD.shape[0]
    right_ranks = ranks(cosines(vectors), np.arange(C))
    chance = Ranks(np.array([0]), np.array([C]))
    for name, of in (
        ("recall_at_1", lambda x: recall(x, 1)),
        (f"recall_at_{DEPTH}", lambda x: recall(x, DEPTH)),
        ("reciprocal_rank", reciprocal_rank),
    ):
        value_Q = of(right_ranks)
        yield _row(vectors, name, value_Q.mean(), share_error(value_Q), floor=float(of(chance)[0]))


def reranked(near_QK: NDArray[np.int64], score_QK: Features) -> dict[str, Any]:
    """Return the row of the share of queries whose right candidate comes first among those that are ranked
    again. The right candidate has the same number as its query."""
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


def _row(vectors: Vectors, metric: str, value: float, error: float, *, floor: float) -> dict[str, Any]:
    return {
        "metric": metric + vectors.suffix,
        "layer": vectors.layer,
        "value": float(value),
        "floor": floor,
        "unit": "",
        "n": vectors.first_PD.shape[0],
        "d": vectors.first_PD.shape[1] if vectors.layer is not None else None,
        "standard_error": float(error),
    }


def _vectors(
    objective: Objective, tokens: Tokens, first: Sequence[str], second: Sequence[str], *, max_length: int
) -> Iterator[Vectors]:
    """Yield the vectors of every layer, as they are and centred, and those of TF-IDF. Each text is encoded
    once."""
    place = {text: i for i, text in enumerate(dict.fromkeys([*first, *second]))}
    rows = encode_texts(list(place), tokens.tokenizer, max_length=max_length)
    place_2P = np.array([[place[text] for text in texts] for texts in (first, second)])
    for layer, states_ND in enumerate(pooled_states(objective, rows)):
        for suffix, vector_ND in (("", states_ND), ("_centred", centred(states_ND))):
            yield Vectors(layer, suffix, *unit(vector_ND)[place_2P])
    feature_NV = _tfidf(tokens, rows)
    yield Vectors(None, "_tfidf", *(feature_NV[place_P] for place_P in place_2P))


def _tfidf(tokens: Tokens, rows: EncodedTexts) -> csr_matrix:
    split = Split.of_sentences([row.ids_T.tolist() for row in rows.rows], vocab_size=tokens.vocab_size)
    return tfidf_features(split, train=tokens.train, vocab_size=tokens.vocab_size).astype(np.float32)


def centred(vector_ND: Features) -> Features:
    """Return vectors minus their mean."""
    return vector_ND - vector_ND.mean(0, dtype=np.float64).astype(vector_ND.dtype)


def unit(vector_ND: Features) -> Features:
    """Return vectors scaled to length 1. A vector of 0 stays 0 and is equally far from all others."""
    length_N1 = np.linalg.norm(vector_ND, axis=1, keepdims=True)
    return vector_ND / np.where(length_N1 > 0, length_N1, 1)


class Followed(NamedTuple):
    """Texts, and the text that follows each. All of them are different."""

    first: list[str]
    second: list[str]


def followed_sentences(split: Split, tokenizer: Tokenizer, count: int) -> Followed:
    """Choose `count` pairs at random, or all if there are fewer: the first and second sentence of a document,
    its third and fourth, and so on.

    No text occurs twice, so the candidates of a sentence contain neither itself nor the right one a second
    time. The choice depends on the text alone, and a larger choice contains the smaller ones.
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


def enough_followed(tokens: Tokens, split: Literal["train", "validation"], count: int) -> Followed:
    """Return pairs of sentences of a split that follow each other (`followed_sentences`).

    Raises:
        MeasureError: there are fewer than `FEWEST_PAIRS`.
    """
    pairs = followed_sentences(getattr(tokens, split), tokens.tokenizer, count)
    if (number := len(pairs.first)) < FEWEST_PAIRS:
        raise MeasureError(
            f"data.{split} has {number} {'pair' if number == 1 else 'pairs'} of sentences that follow each "
            f"other in a document and occur nowhere else, but {NEXT_SENTENCE} needs {FEWEST_PAIRS}; give more "
            f"text, or leave {NEXT_SENTENCE} out of the measure's tasks."
        )
    return pairs


Scores = Callable[[Sequence[str], Sequence[str]], NDArray[np.float32]]
"""Function that scores how well the second text of each pair follows the first; higher is better."""

HELD_OUT = 10
"""One in this many pairs is held out, to choose among epochs."""
LEAST_STEPS = 200
"""Smallest number of steps. If there are few pairs, training makes more passes over them."""
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
    """Train a cross-encoder, and return its scores of how well a text follows another.

    It is a copy of the encoder with a head that reads two texts at once. It is trained on sentences of the
    training text, each with the one that follows it and with another one at random. Search engines usually
    train on wrong texts that a bi-encoder finds near. These mislead here: the right ones are seldom as near, so
    the head would learn to prefer texts that are unlike the first sentence. In this way an untrained encoder
    was right about 72% of held-out pairs, but ranked candidates no better.

    Pairs that are held out take wrong texts from each other. If they took texts that were learned from, a head
    that knows by heart which of these are right would prefer them, and be right less often than by chance.

    Raises:
        MeasureError: the loss is no longer a number.
    """
    P = len(pairs.first)
    kept_P = np.arange(P) % HELD_OUT == 0
    wrong_P = np.array(pairs.second, dtype=object)
    for part_P in (kept_P, ~kept_P):
        wrong_P[part_P] = wrong_seconds(wrong_P[part_P].tolist())
    wrong = wrong_P.tolist()

    def read(first: Sequence[str], second: Sequence[str], answers: list[str]) -> heads.Texts:
        rows = encode_pairs(first, second, tokenizer, max_length=max_length)
        return heads.Texts(Examples(list(first), list(second), None, answers), rows, None)

    texts = read(pairs.first * 2, pairs.second + wrong, [FOLLOWS] * P + [FOLLOWS_NOT] * P)
    held = np.flatnonzero(kept_P)
    held_texts = read([pairs.first[i] for i in held] * 2, [s[i] for s in (pairs.second, wrong) for i in held], [])

    def accuracy(trainee: Trainee) -> float:
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
    trainee.load_state_dict(train(trainee, texts, learned_from, recipe, score=accuracy, say=say).weights)
    return lambda first, second: _scores(trainee, read(first, second, []))


def wrong_seconds(second: Sequence[str]) -> list[str]:
    """Return another one of the texts for each text. All others are equally likely."""
    place_P = np.arange(len(second))
    other_P = (uniforms(derive(0, "wrong seconds"), place_P) * (len(second) - 1)).astype(np.int64)
    return [second[i] for i in other_P + (other_P >= place_P)]


@torch.no_grad()
def _scores(trainee: Trainee, texts: heads.Texts) -> NDArray[np.float32]:
    """Return the log odds that the second text of each pair follows the first."""
    trainee.eval()
    score_P = np.empty(len(texts), np.float32)
    for index_B in texts.rows.by_length():
        output_B2 = trainee.outputs(texts, index_B).float().cpu().numpy()
        score_P[index_B] = output_B2[:, 1] - output_B2[:, 0]
    return score_P
