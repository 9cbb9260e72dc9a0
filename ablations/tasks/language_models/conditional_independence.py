"""Loss of masked LM that comes from predicting hidden tokens as if they were independent of each other.

Two neighbours x_i and x_i+1 are both hidden, and so are other tokens. Masked LM gives the pair the
probability p(x_i | shown) p(x_i+1 | shown). By the chain rule, the same model gives it p(x_i | shown) p(x_i+1
| shown, x_i), where the second factor comes from reading the sentence again with x_i in its place. The chain
can also begin at the other end. The difference of the log probabilities, averaged over both ends, is

    joint - chain =   1/2 log p(x_i+1 | shown) / p(x_i+1 | shown, x_i)
                    + 1/2 log p(x_i | shown) / p(x_i | shown, x_i+1).

If the model were the truth, the mean of the difference would be minus the information between the neighbours
given what is shown, so below zero. A model can be above zero: a true neighbour that is shown may make its
prediction worse. The loss need not grow with the ratio of hidden tokens: other shown tokens may have the same
information as the neighbour, but the neighbour may also be informative only together with them.

A model may also be better or worse at one hidden token than at two, whatever token is shown. The chance level
(`floor`) has this effect but not the dependence: it is the same difference with the second token of each pair
taken from another sentence. For the truth the chance level is not below zero, and it is zero only if
neighbours have no information, because a false neighbour misleads. So there is dependence if the difference is
below both zero and the chance level.

The pairs are the same at every ratio. Tokens that are hidden at one ratio are also hidden at every larger
one, so that ratios can be compared. Each token besides the pair is hidden independently, with the probability
of the ratio. A pair that a mask of single tokens has hidden has the same surroundings if the mask hides each
token with that probability. Hidden tokens are always shown as [MASK].

Letters: B sentences of a batch, S all, T positions.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.jackknife import errors, sentence_blocks
from ablations.measures.reading.texts import Readings, Say, padded
from ablations.tasks.language_models.sentence_scores import LogProbabilities, masked_log_probabilities
from ablations.tasks.settings import ConditionalIndependenceSettings
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms

SENTENCES_AT_ONCE = 64
FEWEST_PAIRS = 20
"""Smallest number of sentences with a pair."""


class NeighbourPairs(NamedTuple):
    """Pairs of neighbouring tokens, one in each of some sentences."""

    sentence_S: NDArray[np.int64]
    first_S: NDArray[np.int64]
    """Place of the left token of each pair in its sentence."""


class PairScores(NamedTuple):
    """Log probabilities of pairs, in nats."""

    joint: Tensor
    """Log probability if both tokens are hidden."""
    chain: Tensor
    """Log probability by the chain rule, where the first token is shown for the second; mean over both orders."""


def rows(readings: Readings, settings: ConditionalIndependenceSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `conditional_independence` of a run from its validation text."""
    return independence_rows(readings.objective, readings.tokens.validation, settings)


def independence_rows(
    objective: Objective, split: Split, settings: ConditionalIndependenceSettings
) -> Iterator[dict[str, Any]]:
    """Yield rows `joint`, `chain` and `joint_minus_chain`, in nats per pair, for each ratio of hidden tokens.

    The chance level (`floor`) of the difference is the same difference with second tokens of other sentences
    (`second_tokens_elsewhere`), about which the first tokens have no information. Standard errors are by blocks
    of sentences. n counts pairs.

    Raises:
        MeasureError: the objective does not predict hidden tokens, or too few sentences have two known tokens
            in a row.
    """
    model = masked_log_probabilities(objective, asks="conditional_independence")
    pairs = neighbour_pairs(split, settings.sentences_wanted)
    elsewhere_S = second_tokens_elsewhere(split, pairs)
    for ratio in settings.ratios:
        joint_S, chain_S = scores(model, split, pairs, ratio=ratio, device=objective.device)
        floor = np.subtract(
            *scores(model, split, pairs, ratio=ratio, device=objective.device, second_S=elsewhere_S)
        ).mean()
        shared = {"group": settings.group_of(ratio), "unit": "nats", "n": len(joint_S)}
        for metric, value_S, own_fields in (
            ("joint", joint_S, {}),
            ("chain", chain_S, {}),
            ("joint_minus_chain", joint_S - chain_S, {"floor": floor}),
        ):
            yield {"metric": metric, "value": value_S.mean(), **block_errors(value_S)} | shared | own_fields


def neighbour_pairs(split: Split, sentences: int) -> NeighbourPairs:
    """Choose a pair of neighbours, neither special nor unknown, in each of the first `sentences` sentences.

    All pairs of a sentence are equally likely. Sentences without such a pair are left out.

    Raises:
        MeasureError: fewer than twenty sentences have a pair.
    """
    pairs = []
    for i in range(min(sentences, len(split))):
        is_text_T = split.sentence(i) >= FIRST_WORD_ID
        places = np.flatnonzero(is_text_T[:-1] & is_text_T[1:])
        if len(places):
            uniform = uniforms(derive(0, "neighbours"), np.array([i]))[0]
            pairs.append((i, int(places[int(uniform * len(places))])))
    if len(pairs) < FEWEST_PAIRS:
        raise MeasureError(
            f"conditional_independence needs at least {FEWEST_PAIRS} sentences with two neighbouring tokens that "
            f"are not [UNK], but only {len(pairs)} of {min(sentences, len(split)):,} have them; give more text."
        )
    return NeighbourPairs(*np.array(pairs).T)


def second_tokens_elsewhere(split: Split, pairs: NeighbourPairs) -> NDArray[np.int64]:
    """Return for each pair the second token of another pair. Each token is taken once, in random order,
    because neighbouring sentences of a text may be alike."""
    second_S = split.ids[split.offsets[pairs.sentence_S] + pairs.first_S + 1].astype(np.int64)
    order_S = np.argsort(uniforms(derive(0, "neighbours elsewhere"), pairs.sentence_S), kind="stable")
    elsewhere_S = np.empty_like(second_S)
    elsewhere_S[order_S] = second_S[np.roll(order_S, 1)]
    return elsewhere_S


def scores(
    model: LogProbabilities,
    split: Split,
    pairs: NeighbourPairs,
    *,
    ratio: float,
    device: torch.device,
    second_S: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return joint and chain of each pair, with each other token hidden with probability `ratio`.

    Args:
        second_S: tokens in place of the second one of each pair. Default: those of the text.
    """
    joint_S, chain_S = np.empty((2, len(pairs.sentence_S)))
    order = np.argsort(split.lengths[pairs.sentence_S], kind="stable")  # similar lengths need little padding
    for chosen in np.split(order, range(SENTENCES_AT_ONCE, len(order), SENTENCES_AT_ONCE)):
        sentence_B = pairs.sentence_S[chosen]
        tokens_BT = padded(map(split.sentence, sentence_B.tolist()))
        if second_S is not None:
            tokens_BT[torch.arange(len(chosen)), pairs.first_S[chosen] + 1] = torch.from_numpy(second_S[chosen])
        place_T = np.arange(tokens_BT.shape[1])
        uniform_BT = uniforms(derive(0, "surroundings"), sentence_B[:, None], place_T)
        hidden_BT = (tokens_BT >= FIRST_WORD_ID) & torch.from_numpy(uniform_BT < ratio)
        pair = pair_scores(
            model,
            tokens_BT.to(device),
            torch.from_numpy(pairs.first_S[chosen]).to(device),
            hidden_BT=hidden_BT.to(device),
        )
        joint_S[chosen], chain_S[chosen] = (x.cpu().numpy() for x in pair)
    return joint_S, chain_S


def pair_scores(model: LogProbabilities, tokens_BT: Tensor, first_B: Tensor, *, hidden_BT: Tensor) -> PairScores:
    """Return the scores of the two tokens at `first_B` and directly after, given all that is not hidden;
    float64, shape B.

    Args:
        hidden_BT: which tokens are hidden besides the pair. It does not matter for the pair itself.
    """
    pair_B2 = torch.stack([first_B, first_B + 1], dim=1)
    truth_B2 = tokens_BT.gather(1, pair_B2)
    both_BT = tokens_BT.masked_fill(hidden_BT, MASK).scatter(1, pair_B2, MASK)

    def log_truth(shown_BT: Tensor, sides: slice) -> Tensor:
        log_BKV = model(shown_BT, pair_B2[:, sides])
        return log_BKV.gather(2, truth_B2[:, sides, None])[..., 0].double()

    alone_B2 = log_truth(both_BT, slice(0, 2))
    told_B2 = torch.cat(
        [
            log_truth(both_BT.scatter(1, pair_B2[:, other], truth_B2[:, other]), side)
            for side, other in ((slice(0, 1), slice(1, 2)), (slice(1, 2), slice(0, 1)))
        ],
        dim=1,
    )
    # x_i first and then x_i+1 given x_i, or the other way round.
    chains_B2 = alone_B2 + told_B2.flip(1)
    return PairScores(joint=alone_B2.sum(1), chain=chains_B2.mean(1))


def block_errors(value_S: NDArray[np.float64]) -> dict[str, Any]:
    """Return the error of a mean over sentences, as the cells of a row, from blocks of neighbouring sentences."""
    block_S = sentence_blocks(np.arange(len(value_S)))
    return errors([value_S[block_S != block].mean() for block in np.unique(block_S)])
