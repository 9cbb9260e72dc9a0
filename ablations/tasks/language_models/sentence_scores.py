"""Score of a sentence under an objective: the sum of the log probabilities of its pieces, in nats.

A causal LM sums over each piece given those before it, and over END after the last. The probabilities of all
sentences then sum to 1. Masked LM has no such distribution but a pseudo-log-likelihood: the sum over pieces,
without START and END, of the log probability of the piece if it alone is hidden (Salazar et al. 2020,
https://arxiv.org/abs/1910.14659). There the rest of a split word gives a piece away, so that long rare words
seem probable. The variant within words hides, with a piece, also the later pieces of its word (Kauf & Ivanova
2023, https://arxiv.org/abs/2305.10588). A mixture has all three.

A user's own objective is read in one of these ways, or defines its score: the sum over pieces and END of the
log of the softmax of its `sentence_logits`.

The other objectives of this package have no score. Translation predicts another sentence, skip-gram
neighbours, and replaced token detection a yes or no. The naive bidirectional LM reads the tokens that it
predicts. Permutation LM has as many probabilities as there are orders, and may have learned only the ends of
orders.

The first pieces of a sentence may be given: they are read, and neither scored nor hidden.

No sum is divided by its length. Nothing is computed twice: equal rows go through the encoder once. Rows may
be equal in both variants, in both halves of a minimal pair (if the difference is hidden) or in several
sentences.

Letters: S sentences of one group, P pieces and K of them that are scored, R rows of the encoder and B of them
at once, T positions, K states or places that are needed of each row, M of all at once, N answers (or places
of all rows), V vocabulary, D width.
"""

import itertools
import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.reading.texts import Say
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, SPACES, START
from lightning_modules.model.heads import LOGITS_AT_ONCE
from lightning_modules.objectives.mixture import Mixture
from lightning_modules.objectives.objective import Batch, Objective

LogProbabilities = Callable[[Tensor, Tensor], Tensor]
"""Function from tokens, BT, and places in them, BK, to the log probability of each token of the vocabulary at
each place, BKV. The caller shows MASK at the places if the model is not to see them."""


def masked_log_probabilities(objective: Objective, *, asks: str) -> LogProbabilities:
    """Return a function that gives the log probabilities of a masked LM in evaluation mode, with its own
    attention. Special tokens have probability 0.

    After the attention of the last layer, only the places that are asked for are computed.

    Args:
        asks: name of the measure, for the error.

    Raises:
        MeasureError: the objective has no head for hidden tokens; or, by the function, a log probability is NaN.
    """
    if objective.run.objective.output != "hidden":
        raise MeasureError(
            f"{asks} needs an objective that predicts hidden tokens, but {objective.run.objective.kind} does "
            "not; leave the measure out, or give the arm a spec of its own."
        )
    objective.eval()
    encoder, head, sees = objective.encoder, objective.head, objective.run.objective.sees

    @torch.no_grad()
    def at_places(tokens_BT: Tensor, place_BK: Tensor) -> Tensor:
        B, T = tokens_BT.shape
        place_N = (torch.arange(B, device=tokens_BT.device)[:, None] * T + place_BK).flatten()
        layers = encoder(tokens_BT, sees=sees, window=objective.window, top_place_N=place_N)
        logits_NV = head(encoder.head_input(layers[-1]), encoder.tokens.weight)
        logits_NV[:, :FIRST_WORD_ID] = -math.inf  # training never asks for them
        log_share_NV = logits_NV.log_softmax(-1)
        require_probabilities(log_share_NV[:, -1])  # one NaN makes all of a row NaN
        return log_share_NV.unflatten(0, place_BK.shape)

    return at_places


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]
SentenceReading = Literal["causal", "masked", "own"]
"""How rows are read: from left to right, with hidden pieces, or as a user's own objective defines."""

TOKENS_AT_ONCE = {"cpu": 2**11, "cuda": 2**17}
"""Largest number of tokens of one forward pass."""


class Pieces(NamedTuple):
    """Pieces of a sentence without START and END."""

    ids_P: Integers
    word_P: Integers
    """Number of the word of each piece, ascending. Our tokenizers never join words: they stand between spaces, and
    letters, digits and punctuation are words apart. Words of other tokenizers may only stand between spaces."""
    given: int = 0
    """Number of pieces at the start that are read and not scored."""
    ends: bool = True
    """Whether a causal LM also scores END after the last piece."""


class SpecialTokens(NamedTuple):
    """Ids of the tokens that a masked LM reads besides pieces."""

    start: int
    end: int
    mask: int


RUN_SPECIAL_TOKENS = SpecialTokens(START, END, MASK)
"""Ids of the special tokens of every run."""


class Query(NamedTuple):
    """Query of some rows: the states whose log probabilities are needed, and of which labels."""

    place_RK: Integers
    """Places of each row whose states are needed."""
    state_N: Integers
    """Numbers of the states, out of all R K, at which a log probability is needed, ascending. A state may
    occur several times."""
    label_N: Integers
    """Piece whose log probability is needed at each of these states."""


class Answer(NamedTuple):
    """Log probability of each label that a query names, and whether the label is the most probable one."""

    nats_N: Floats
    """Log probabilities of the labels."""
    is_best_N: Truths
    """Whether no other label is more probable at the state."""


Answers = Callable[[NDArray[np.integer], Query], Answer]
"""Function from rows, RT, and a query about them to the answer."""


class Score(NamedTuple):
    """One score of each sentence."""

    nats_S: Floats
    is_best_S: Truths
    """Whether each piece that is scored is the most probable one at its place."""


class Scores(NamedTuple):
    """Scores of each sentence. A score that an objective does not have is None."""

    main: Score
    """Log probability of causal LM, pseudo-log-likelihood of masked LM and of a mixture, or an objective's
    own score."""
    within_word: Score | None = None
    """Pseudo-log-likelihood if the rest of a split word is hidden too."""
    left_to_right: Score | None = None
    """Log probability of a mixture that reads as causal LM does."""


def pieces_of(texts: Sequence[str], tokenizer: Tokenizer, *, given: Sequence[int] | None = None) -> list[Pieces]:
    """Return all pieces of each text.

    Args:
        given: number of characters at the start of each text that are read and not scored. A piece that
            reaches over this border is scored. If the number is not 0, END is not scored, because the text
            need not be a whole sentence.
    """
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [
        Pieces(
            np.array(e.ids, dtype=np.int64),
            _words_of(e, text),
            given=sum(stop <= border for _, stop in e.offsets) if border else 0,
            ends=not border,
        )
        for text, e, border in zip(texts, encodings, given or [0] * len(encodings), strict=True)
    ]


def _words_of(encoding: Encoding, text: str) -> Integers:
    """Return the number of the word of each piece.

    A byte-level tokenizer takes the vowel signs of Hindi, Thai or vocalised Hebrew for punctuation, so it cuts
    words at each. Here a sign belongs to the word before it, and so does the letter after a sign.

    A tokenizer that does not cut text into words before it cuts these into pieces, such as Llama's, takes a
    sentence for one word. There a word begins at each piece that begins with a space.
    """
    word_P, later = np.array(encoding.word_ids, dtype=np.int64), encoding.tokens[1:]
    space = next((space for space in SPACES if any(piece.startswith(space) for piece in later)), None)
    if space is None or (word_P != word_P[0]).any():
        begins_P = np.diff(word_P, prepend=word_P[:1]) != 0
        for i, ((last, _), (start, _)) in enumerate(itertools.pairwise(encoding.offsets), start=1):
            before, here = text[start - 1 : start], text[start : start + 1]
            if _is_mark(here):
                begins_P[i] = False
            elif _is_mark(before) and start > last:  # no piece of the same character
                begins_P[i] = not here.isalpha()
        return begins_P.cumsum()
    return np.cumsum([0, *(piece.startswith(space) for piece in later)], dtype=np.int64)


def _is_mark(character: str) -> bool:
    """Return whether a character, if there is one, is an accent or vowel sign."""
    return bool(character) and unicodedata.category(character).startswith("M")


def sentence_scores(
    objective: Objective, sentences: Sequence[Pieces], *, say: Say = lambda line: None
) -> Scores | None:
    """Return the scores of sentences, each read alone and with the objective's own attention.

    Returns None for an objective that has no probability of a sentence: its settings have no `output`.

    Args:
        say: called with a line after the sentences of each length. It may raise an error to stop.
    """
    match objective.run.objective.output:
        case "hidden":
            plain, within_word = pseudo_log_likelihoods(objective, sentences, say=say)
            is_both = isinstance(objective, Mixture)
            return Scores(
                plain, within_word, log_probabilities(objective, sentences, say=say) if is_both else None
            )
        case "next":
            return Scores(log_probabilities(objective, sentences, say=say))
        case "own":
            return Scores(log_probabilities(objective, sentences, reading="own", say=say))
    return None


def log_probabilities(
    objective: Objective,
    sentences: Sequence[Pieces],
    *,
    reading: Literal["causal", "own"] = "causal",
    say: Say = lambda line: None,
) -> Score:
    """Return for each sentence the sum of the log probabilities of its pieces and END. The first `given` pieces
    are context and are not scored.

    Each token is predicted from the tokens before it (`causal`), or from what the objective's `sentence_logits`
    sees (`own`). END is left out for sentences without `ends`.
    """
    predicted_at = {"causal": 0, "own": 1}[reading]
    score = _unscored(len(sentences))
    for index_S in _groups(sentences, say):
        of_group = [sentences[i] for i in index_S.tolist()]
        first_R, row_S = _distinct(ids_SP := np.stack([x.ids_P for x in of_group]))
        place_K = np.arange(of_group[0].given, ids_SP.shape[1] + of_group[0].ends)
        if not place_K.size:  # nothing is scored
            continue
        whole_RT = np.pad(ids_SP[first_R], ((0, 0), (1, 1)), constant_values=((0, 0), (START, END)))
        R, K = len(whole_RT), len(place_K)
        query = Query(np.tile(place_K + predicted_at, (R, 1)), np.arange(R * K), whole_RT[:, place_K + 1].ravel())
        rows_RT = whole_RT if reading == "own" else whole_RT[:, :-1]
        answer = _answers(objective, rows_RT, query, reading=reading)
        score.nats_S[index_S] = answer.nats_N.reshape(R, K).sum(1)[row_S]
        score.is_best_S[index_S] = answer.is_best_N.reshape(R, K)[row_S].all(1)
    return score


def pseudo_log_likelihoods(
    objective: Objective, sentences: Sequence[Pieces], *, say: Say = lambda line: None
) -> tuple[Score, Score]:
    """Return the pseudo-log-likelihoods (PLL) and the PLL-word-l2r of sentences under an objective (Salazar et al.
    2020; Kauf and Ivanova 2023)."""
    return pseudo_log_likelihoods_by(
        partial(_answers, objective, reading="masked"), sentences, special=RUN_SPECIAL_TOKENS, say=say
    )


def pseudo_log_likelihoods_by(
    answers: Answers, sentences: Sequence[Pieces], *, special: SpecialTokens, say: Say = lambda line: None
) -> tuple[Score, Score]:
    """Return pseudo-log-likelihoods (PLL) and PLL-word-l2r, computed with the function `answers`.

    The function receives rows with special tokens. Each row hides one or more pieces; only the first hidden piece
    is scored.
    """
    scores = _unscored(len(sentences)), _unscored(len(sentences))
    for index_S in _groups(sentences, say):
        of_group = [sentences[i] for i in index_S.tolist()]
        ids_SP, word_SP = np.stack([x.ids_P for x in of_group]), np.stack([x.word_P for x in of_group])
        (S, P), given = ids_SP.shape, of_group[0].given
        K = P - given
        alone_KP, later_KP = np.eye(P, dtype=np.bool_)[given:], np.triu(np.ones((P, P), np.bool_))[given:]
        rest_SKP = (word_SP[:, given:, None] == word_SP[:, None, :]) & later_KP
        hidden_2SKP = np.stack([np.broadcast_to(alone_KP, rest_SKP.shape), rest_SKP])
        shown_2SKP = np.where(hidden_2SKP, np.int32(special.mask), ids_SP[:, None].astype(np.int32))
        shown_NP = shown_2SKP.reshape(2 * S * K, P)
        label_N = np.broadcast_to(ids_SP[:, given:], (2, S, K)).ravel()
        first_R, row_N = _distinct(shown_NP)
        ends = (special.start, special.end)
        rows_RT = np.pad(shown_NP[first_R], ((0, 0), (1, 1)), constant_values=((0, 0), ends))
        # No piece before the one that is asked for is hidden.
        place_R1 = (rows_RT == special.mask).argmax(1)[:, None]
        order_N = np.argsort(row_N, kind="stable")
        answer = answers(rows_RT, Query(place_R1, row_N[order_N], label_N[order_N]))
        nats_N, is_best_N = np.empty(len(row_N)), np.empty(len(row_N), np.bool_)
        nats_N[order_N], is_best_N[order_N] = answer
        for score, nats_SK, is_best_SK in zip(
            scores, nats_N.reshape(2, S, K), is_best_N.reshape(2, S, K), strict=True
        ):
            score.nats_S[index_S], score.is_best_S[index_S] = nats_SK.sum(-1), is_best_SK.all(-1)
    return scores


def _unscored(count: int) -> Score:
    return Score(np.zeros(count), np.ones(count, np.bool_))


# Rows ------------------------------------------------------------------------------------------------


def alike(sentences: Sequence[Pieces]) -> list[Integers]:
    """Return the numbers of the sentences that go through the encoder together, group by group. No row is
    padded.

    Sentences of a group have equally many pieces and equally many given pieces, and all score END or none does.
    The group of a sentence depends on nothing else.
    """
    groups: dict[tuple[int, int, bool], list[int]] = {}
    for i, sentence in enumerate(sentences):
        groups.setdefault((len(sentence.ids_P), sentence.given, sentence.ends), []).append(i)
    return [np.array(numbers) for _, numbers in sorted(groups.items())]


def _groups(sentences: Sequence[Pieces], say: Say) -> Iterator[Integers]:
    """Yield the groups of `alike`, and say after each how many sentences are scored."""
    scored = 0
    for index_S in alike(sentences):
        yield index_S
        scored += len(index_S)
        say(f"{scored:,} of {len(sentences):,} sentences scored")


def _distinct(rows: NDArray[np.integer]) -> tuple[Integers, Integers]:
    """Return the index of one row of each kind, and the number of the kind of every row. Equal rows are of
    one kind."""
    if not rows.size:  # rows without pieces are the same
        return np.arange(min(1, len(rows))), np.zeros(len(rows), np.int64)
    as_bytes = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0]
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return first, inverse


# Answers ---------------------------------------------------------------------------------------------


def _answers(
    objective: Objective, rows_RT: NDArray[np.integer], query: Query, *, reading: SentenceReading
) -> Answer:
    """Return the log probabilities of labels, over the whole vocabulary as in the loss."""
    objective.eval()
    embeddings_VD = objective.encoder.tokens.weight

    def logits(tokens_BT: Tensor, place_BK: Tensor) -> Tensor:
        B, T = tokens_BT.shape
        place_M = (torch.arange(B, device=tokens_BT.device)[:, None] * T + place_BK).flatten()
        batch = _batch(objective, tokens_BT, reading)
        if reading == "own":
            return objective.sentence_logits(batch).flatten(0, 1)[place_M]
        return objective.head(objective.encode_at(batch, place_M), embeddings_VD)

    places = rows_RT.shape[1] if reading == "own" else query.place_RK.shape[1]
    return answered(rows_RT, query, logits, device=objective.device, logits_of_row=places * len(embeddings_VD))


@torch.no_grad()
def answered(
    rows_RT: NDArray[np.integer],
    query: Query,
    logits: Callable[[Tensor, Tensor], Tensor],
    *,
    device: torch.device,
    logits_of_row: int,
) -> Answer:
    """Return the answer of a model to a query, from batches of rows that memory holds.

    Args:
        logits: returns the logits, shape MV, of the places BK of some rows BT.
        logits_of_row: number of logits that the model computes for one row.

    Raises:
        MeasureError: a log probability is NaN.
    """
    (R, T), K = rows_RT.shape, query.place_RK.shape[1]
    B = max(1, min(TOKENS_AT_ONCE[device.type] // T, LOGITS_AT_ONCE[device.type] // logits_of_row))
    answer = Answer(np.empty(len(query.label_N)), np.empty(len(query.label_N), np.bool_))
    for start in range(0, R, B):
        tokens_BT = torch.from_numpy(rows_RT[start : start + B].astype(np.int64)).to(device)
        place_BK = torch.from_numpy(query.place_RK[start : start + B]).to(device)
        logits_MV = logits(tokens_BT, place_BK)
        first = start * K
        filled = slice(*np.searchsorted(query.state_N, [first, first + len(logits_MV)]))
        state_N = torch.from_numpy(query.state_N[filled] - first).to(device)
        logit_N = logits_MV[state_N, torch.from_numpy(query.label_N[filled]).to(device)]
        answer.nats_N[filled] = (logit_N - logits_MV.logsumexp(-1)[state_N]).double().cpu().numpy()
        answer.is_best_N[filled] = (logit_N == logits_MV.amax(-1)[state_N]).cpu().numpy()
    require_probabilities(torch.from_numpy(answer.nats_N))
    return answer


def require_probabilities(log_N: Tensor) -> None:
    """Raise a MeasureError if a log probability is NaN."""
    if unknown := int(log_N.isnan().sum()):
        raise MeasureError(
            f"{unknown:,} of {log_N.numel():,} log probabilities of sub-words are NaN, because the logits of "
            "the model are NaN or infinite; look for a diverged run, or for a fault in an objective of your own."
        )


def _batch(objective: Objective, tokens_BT: Tensor, reading: SentenceReading) -> Batch:
    """Return sentences as an objective reads them; only a mixture reads in two ways."""
    position_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand_as(tokens_BT)
    batch = {"tokens_BT": tokens_BT, "sequence_BT": torch.ones_like(tokens_BT), "position_BT": position_BT}
    if reading == "causal" and isinstance(objective, Mixture):
        batch |= {"key_rank_BT": position_BT, "query_rank_BT": position_BT}
    return batch


def draw(share_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Draw a token of each row by its probability, shape B.

    It is the token at which the running sum of probabilities passes the uniform number, so the draw of a row
    does not depend on other rows.
    """
    sum_BV = share_BV.cumsum(-1)
    point_B1 = uniform_B[:, None].to(sum_BV.dtype) * sum_BV[:, -1:]
    drawn_B = torch.searchsorted(sum_BV, point_B1, right=True)[:, 0]
    return drawn_B.clamp(max=share_BV.shape[1] - 1)  # a number that rounds to 1 passes all sums
