"""Score of a sentence under an objective: the sum of the log probabilities of its pieces, in nats.

A causal LM sums over each piece given those before it, and over END after the last; all sentences together have
the probability 1. Masked LM has no such distribution but a pseudo-log-likelihood: the sum over pieces, START and
END aside, of the log probability of the piece where it alone is hidden (Salazar et al. 2020,
https://arxiv.org/abs/1910.14659). There the rest of a split word gives a piece away, so that long rare words seem
probable. The variant within words hides, with a piece, also the later pieces of its word (Kauf & Ivanova 2023,
https://arxiv.org/abs/2305.10588). A mixture has all three.

Every other objective has none: translation predicts another sentence, skip-gram neighbours, replaced tokens a yes
or no; the naive bidirectional LM reads the tokens that it predicts; permutation LM has as many probabilities as
there are orders, and may have learned the ends of orders alone.

No sum is divided by its length. Nothing is computed twice: rows that are the same in both variants, in both halves
of a minimal pair (where the difference is hidden) or in several sentences go through the encoder once.

Letters: S sentences of one length, P pieces, R rows of the encoder and B of them at once, T positions, K states or
places that are needed of each row, M of all at once, N answers (or places of all rows), V vocabulary, D width.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from ablations.errors import MeasureError
from lightning_modules.model.heads import LOGITS_AT_ONCE
from lightning_modules.objectives.causal_lm import CausalLM
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.mixture import Mixture
from lightning_modules.objectives.objective import Batch, Objective
from lightning_modules.vocabulary import END, FIRST_WORD_ID, MASK, START

LogProbabilities = Callable[[Tensor, Tensor], Tensor]
"""Function from tokens, BT, and places in them, BK, to the log probability of each token at each of them, BKV.
What stands at the places is up to the caller: MASK, if the model is not to see it."""


def masked_log_probabilities(objective: Objective, *, asks: str) -> LogProbabilities:
    """Return the log probabilities of a masked LM in evaluation mode, with its own attention; special tokens have
    none.

    Past the attention of the last layer only the places asked for are computed.

    Args:
        asks: name of the measure, for the error.

    Raises:
        MeasureError: the objective has no head for hidden tokens.
    """
    if not isinstance(objective, MaskedLM | Mixture):
        raise MeasureError(
            f"{asks} asks for hidden tokens, but {objective.run.objective.kind} does not predict them; leave the "
            f"measure out, or give the arm a spec of its own."
        )
    objective.eval()
    encoder, head, sees = objective.encoder, objective.head, objective.run.objective.sees

    @torch.no_grad()
    def at_places(tokens_BT: Tensor, place_BK: Tensor) -> Tensor:
        B, T = tokens_BT.shape
        place_N = (torch.arange(B, device=tokens_BT.device)[:, None] * T + place_BK).flatten()
        layers = encoder(tokens_BT, sees=sees, window=objective.window, top_place_N=place_N)
        logits_NV = head(encoder.head_input(layers[-1]), encoder.tokens.weight)
        logits_NV[:, :FIRST_WORD_ID] = -math.inf  # never asked for in training
        return logits_NV.log_softmax(-1).unflatten(0, place_BK.shape)

    return at_places


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Reading = Literal["causal", "masked"]

TOKENS_AT_ONCE = {"cpu": 2**11, "cuda": 2**17}
"""Limit of the tokens of one forward pass."""


class Pieces(NamedTuple):
    """Pieces of a sentence without START and END."""

    ids_P: Integers
    word_P: Integers
    """The word of each piece, ascending. Words are what the tokenizer never joins: what stands between spaces, and
    of that letters, digits and punctuation apart."""


class SpecialTokens(NamedTuple):
    """Ids of the tokens that a masked LM reads besides pieces."""

    start: int
    end: int
    mask: int


OURS = SpecialTokens(START, END, MASK)
"""Ids of the special tokens of every run."""


class Query(NamedTuple):
    """Query of some rows: places, states and labels whose log probabilities are needed."""

    place_RK: Integers
    """The places of each row whose states are needed."""
    state_N: Integers
    """Numbers of the states, of all R K, at which a log probability is needed, ascending; one may occur several
    times."""
    label_N: Integers
    """Piece whose log probability is needed there."""


Answers = Callable[[NDArray[np.integer], Query], Floats]
"""Function from rows, RT, and a query to the N log probabilities of its labels."""


class Scores(NamedTuple):
    """Scores of each sentence, in nats; None where an objective does not have the score."""

    main: Floats
    """Log probability of causal LM; pseudo-log-likelihood of masked LM and of a mixture."""
    within_word: Floats | None = None
    """Pseudo-log-likelihood where the rest of a split word is hidden, too."""
    left_to_right: Floats | None = None
    """Log probability of a mixture, reading as causal LM does."""


def pieces_of(texts: Sequence[str], tokenizer: Tokenizer) -> list[Pieces]:
    """Return each text as pieces, whole."""
    encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return [Pieces(np.array(e.ids, dtype=np.int64), np.array(e.word_ids, dtype=np.int64)) for e in encodings]


def sentence_scores(objective: Objective, sentences: Sequence[Pieces]) -> Scores | None:
    """Return the scores of sentences, each read alone and with the objective's own attention; None for an
    objective that has no probability of a sentence."""
    if isinstance(objective, CausalLM):
        return Scores(log_probabilities(objective, sentences))
    if isinstance(objective, MaskedLM):
        return Scores(*pseudo_log_likelihoods(objective, sentences))
    if isinstance(objective, Mixture):
        plain, within_word = pseudo_log_likelihoods(objective, sentences)
        return Scores(plain, within_word, log_probabilities(objective, sentences))
    return None


def log_probabilities(objective: CausalLM | Mixture, sentences: Sequence[Pieces]) -> Floats:
    """Return the sum over each sentence's pieces and END of the log probability given what stands before."""
    score = np.zeros(len(sentences))
    for index_S, ids_SP, _ in _by_length(sentences):
        first_R, row_S = _distinct(ids_SP)
        rows_RT = np.pad(ids_SP[first_R], ((0, 0), (1, 0)), constant_values=START)
        label_RT = np.pad(ids_SP[first_R], ((0, 0), (0, 1)), constant_values=END)
        R, T = rows_RT.shape
        query = Query(np.tile(np.arange(T), (R, 1)), np.arange(R * T), label_RT.ravel())
        score[index_S] = _answers(objective, rows_RT, query, reading="causal").reshape(R, T).sum(1)[row_S]
    return score


def pseudo_log_likelihoods(objective: MaskedLM | Mixture, sentences: Sequence[Pieces]) -> tuple[Floats, Floats]:
    """Return the original pseudo-log-likelihoods of sentences under an objective, and the variant within words."""
    return pseudo_log_likelihoods_by(partial(_answers, objective, reading="masked"), sentences, special=OURS)


def pseudo_log_likelihoods_by(
    answers: Answers, sentences: Sequence[Pieces], *, special: SpecialTokens
) -> tuple[Floats, Floats]:
    """Return the pseudo-log-likelihoods and the variant within words, from any function that answers for hidden
    tokens. Its rows have the special tokens; each hides at least one piece, and asks for the first of these."""
    scores = np.zeros((2, len(sentences)))
    for index_S, ids_SP, word_SP in _by_length(sentences):
        S, P = ids_SP.shape
        alone_PP, later_PP = np.eye(P, dtype=np.bool_), np.triu(np.ones((P, P), np.bool_))
        rest_SPP = (word_SP[:, :, None] == word_SP[:, None, :]) & later_PP
        hidden_2SPP = np.stack([np.broadcast_to(alone_PP, rest_SPP.shape), rest_SPP])
        shown_2SPP = np.where(hidden_2SPP, np.int32(special.mask), ids_SP[:, None].astype(np.int32))
        shown_NP = shown_2SPP.reshape(2 * S * P, P)
        label_N = np.broadcast_to(ids_SP, (2, S, P)).ravel()
        first_R, row_N = _distinct(shown_NP)
        ends = (special.start, special.end)
        rows_RT = np.pad(shown_NP[first_R], ((0, 0), (1, 1)), constant_values=((0, 0), ends))
        # Nothing is hidden before the piece that is asked for.
        place_R1 = (rows_RT == special.mask).argmax(1)[:, None]
        order_N, found_N = np.argsort(row_N, kind="stable"), np.empty(len(row_N))
        query = Query(place_R1, row_N[order_N], label_N[order_N])
        found_N[order_N] = answers(rows_RT, query)
        scores[:, index_S] = found_N.reshape(2, S, P).sum(-1)
    return scores[0], scores[1]


# Rows ------------------------------------------------------------------------------------------------


def _by_length(sentences: Sequence[Pieces]) -> Iterator[tuple[Integers, Integers, Integers]]:
    """Yield numbers, ids and words of the sentences of each length: no row is padded, and few shapes differ."""
    lengths = np.array([len(sentence.ids_P) for sentence in sentences])
    for P in np.unique(lengths).tolist():
        index_S = np.flatnonzero(lengths == P)
        of_length = [sentences[i] for i in index_S.tolist()]
        yield index_S, np.stack([x.ids_P for x in of_length]), np.stack([x.word_P for x in of_length])


def _distinct(rows: NDArray[np.integer]) -> tuple[Integers, Integers]:
    """Return the number of one row of each kind, and for every row the number of its kind."""
    if not rows.size:  # rows without pieces are the same
        return np.arange(min(1, len(rows))), np.zeros(len(rows), np.int64)
    as_bytes = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))[:, 0]
    _, first, inverse = np.unique(as_bytes, return_index=True, return_inverse=True)
    return first, inverse


# Answers ---------------------------------------------------------------------------------------------


@torch.no_grad()
def _answers(
    objective: CausalLM | MaskedLM | Mixture, rows_RT: NDArray[np.integer], query: Query, *, reading: Reading
) -> Floats:
    """Return the log probabilities of labels, over the whole vocabulary as in the loss."""
    objective.eval()
    (R, T), K, device = rows_RT.shape, query.place_RK.shape[1], objective.device
    embeddings_VD = objective.encoder.tokens.weight
    logits_of_row = K * len(embeddings_VD)
    B = max(1, min(TOKENS_AT_ONCE[device.type] // T, LOGITS_AT_ONCE[device.type] // logits_of_row))
    found_N = np.empty(len(query.label_N))
    for start in range(0, R, B):
        tokens_BT = torch.from_numpy(rows_RT[start : start + B].astype(np.int64)).to(device)
        place_BK = torch.from_numpy(query.place_RK[start : start + B]).to(device)
        place_M = (torch.arange(len(tokens_BT), device=device)[:, None] * T + place_BK).flatten()
        top_MD = objective.encode(_batch(objective, tokens_BT, reading), top_place_N=place_M)[-1]
        logits_MV = objective.head(objective.encoder.head_input(top_MD), embeddings_VD)
        now = slice(*np.searchsorted(query.state_N, [start * K, (start + B) * K]))
        state = torch.from_numpy(query.state_N[now] - start * K).to(device)
        label = torch.from_numpy(query.label_N[now]).to(device)
        found_N[now] = (logits_MV[state, label] - logits_MV.logsumexp(-1)[state]).double().cpu().numpy()
    return found_N


def _batch(objective: Objective, tokens_BT: Tensor, reading: Reading) -> Batch:
    """Return sentences as an objective reads them; only a mixture reads in two ways."""
    position_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device).expand_as(tokens_BT)
    batch = {"tokens_BT": tokens_BT, "sequence_BT": torch.ones_like(tokens_BT), "position_BT": position_BT}
    if reading == "causal" and isinstance(objective, Mixture):
        batch |= {"key_rank_BT": position_BT, "query_rank_BT": position_BT}
    return batch
