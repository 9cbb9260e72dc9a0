"""Syntax without supervision (Zhang & Hashimoto 2021, section 5): trees from the predictions of a masked LM,
by conditional mutual information, compared with those of a treebank.

Words with much of this information between them are joined to a tree. What counts is how much
better this tree is than the adjacency chain, which a model that ignores its context also gets. To see whether
the tree found syntax, compare with an arm that was trained on shuffled words.

The conditional mutual information of two tokens of a sentence given all others, I(x_i; x_j | rest), is
estimated as by the authors (https://arxiv.org/abs/2104.05694). A masked LM gives p(x_i | x_j, rest) and
p(x_j | x_i, rest). Drawing from the two in turn (Gibbs sampling) gives tokens x_i and x_j that suit the rest
and each other. Let p_r be the model's probabilities of x_i in sweep r. The information is the mean over
sweeps of the divergence of p_r from the mean of all p_r: the entropy of the mean minus the mean of the
entropies.

We differ in one point: the authors draw x_i from p_r and take the mean of log p_r(x_i) - log mean p(x_i). We
sum over all x_i instead of drawing one. This has the same mean without the noise of the draw, and cannot be
negative. Both underestimate with few sweeps, because the mean of few p_r is too close to each of them.

Letters: B chains, T positions, W words, S sentences, R sweeps, 2 sides of a pair, V vocabulary, K stops, M
chains that the model is asked about, Q answers that are kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablations.measures.jackknife import kept_without
from ablations.measures.reading.alignment import NO_WORD
from ablations.measures.reading.texts import Readings, Say, padded
from ablations.tasks.examples import trees_of
from ablations.tasks.language_models.sentence_scores import LogProbabilities, draw, masked_log_probabilities
from ablations.tasks.settings import ParsingSettings
from ablations.tasks.trees import (
    Edge,
    GoldTree,
    adjacency_chain,
    expected_at_random,
    maximum_spanning_tree,
    resampled_error,
)
from lightning_modules.data.tokenizer import MASK
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms

LOGITS_OF_STEP = {"cpu": 2**19, "cuda": 2**24}
"""Largest number of logits of one step of sampling. 128 times as many probabilities are remembered."""
MOST_CHAINS = {"cpu": 256, "cuda": 8192}


class WordPairs(NamedTuple):
    """Pairs of sub-words of different words, sentence by sentence."""

    sentence_P: NDArray[np.int64]
    place_P2: NDArray[np.int64]
    """Places of the two sub-words in the sentence, the first one first."""


def rows(readings: Readings, settings: ParsingSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `parsing` of a run from the trees of its language or of a treebank."""
    trees = trees_of(readings.texts, settings)["test"]
    return parsing_rows(readings.objective, trees, settings, say=say)


def parsing_rows(
    objective: Objective, trees: Sequence[GoldTree], settings: ParsingSettings, *, say: Say
) -> Iterator[dict[str, Any]]:
    """Yield rows of UUAS: of the predicted trees, of the adjacency chain, of random trees, and of the first
    minus the second; see `tree_rows`.

    Raises:
        MeasureError: the objective does not predict hidden tokens.
    """
    model = masked_log_probabilities(objective, asks="parsing")
    pairs = word_pairs(trees, window=settings.window)
    sweeps = settings.sweeps_wanted
    stops = (sweeps // 8, sweeps // 4, sweeps // 2, sweeps)
    device = objective.device.type
    information_KP2 = pair_information(
        model,
        trees,
        pairs,
        stops=stops,
        at_once=min(MOST_CHAINS[device], max(1, LOGITS_OF_STEP[device] // objective.vocab_size)),
        device=objective.device,
        say=say,
    )
    information = dict(zip(stops, information_KP2, strict=True))
    yield from tree_rows(trees, pairs, information, treebank=settings.treebank_name)


def word_pairs(trees: Sequence[GoldTree], *, window: int) -> WordPairs:
    """Return the pairs of sub-words less than `window` sub-words apart, of different words that are not left
    out."""
    by_tree = []
    for number, tree in enumerate(trees):
        place_N = np.flatnonzero(tree.word_T != NO_WORD)
        first, second = np.triu_indices(len(place_N), k=1)
        pair_P2 = np.stack([place_N[first], place_N[second]], axis=1)
        differ_P = tree.word_T[pair_P2[:, 0]] != tree.word_T[pair_P2[:, 1]]
        pair_P2 = pair_P2[differ_P & (pair_P2[:, 1] - pair_P2[:, 0] < window)]
        by_tree.append((np.full(len(pair_P2), number), pair_P2))
    return WordPairs(*map(np.concatenate, zip(*by_tree, strict=True)))


# Information -----------------------------------------------------------------------------------------


def pair_information(
    model: LogProbabilities,
    trees: Sequence[GoldTree],
    pairs: WordPairs,
    *,
    stops: Sequence[int],
    at_once: int,
    device: torch.device,
    say: Say,
) -> NDArray[np.float64]:
    """Return the conditional mutual information of each pair after each number of sweeps, about either side;
    shape KP2.

    The draws depend on the sentence's number and on the pair, not on what else is computed with it.

    Args:
        at_once: number of pairs in one batch.
    """
    information_KP2 = np.empty((len(stops), len(pairs.sentence_P), 2))
    length_P = np.array([len(tree.ids_T) for tree in trees])[pairs.sentence_P]
    order = np.argsort(length_P, kind="stable")  # similar lengths need little padding
    sweep_R, side_2 = np.arange(max(stops)), np.arange(2)
    for first in range(0, len(order), at_once):
        say(f"{first:,} of {len(order):,} pairs of sub-words")
        chosen = order[first : first + at_once]
        sentence_B, pair_B2 = pairs.sentence_P[chosen], pairs.place_P2[chosen]
        uniform_BR2 = uniforms(
            derive(0, "gibbs"),
            *(x[:, None, None] for x in (sentence_B, *pair_B2.T)),
            sweep_R[:, None],
            side_2,
        )
        information_KP2[:, chosen] = conditional_information(
            model,
            padded(trees[number].ids_T for number in sentence_B.tolist()).to(device),
            torch.from_numpy(pair_B2).to(device),
            uniform_BR2=torch.from_numpy(uniform_BR2.astype(np.float32)).to(device),
            stops=stops,
        ).cpu()
    return information_KP2


def word_scores(information_TT: NDArray[np.float64], word_T: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the scores of words from those of sub-words, as the authors do it; shape WW.

    The largest exp(information) is taken over the sub-words of the word that informs, then the mean over the
    sub-words of the word that is informed about. The score is its logarithm.

    Args:
        information_TT: information about the sub-word of each row from that of each column.
    """
    of_WT = word_T == np.arange(word_T.max() + 1)[:, None]
    largest_TW = np.stack([np.exp(information_TT[:, is_T]).max(axis=1) for is_T in of_WT], axis=1)
    return np.log(np.stack([largest_TW[is_T].mean(axis=0) for is_T in of_WT]))


# Trees -----------------------------------------------------------------------------------------------


def found_trees(
    trees: Sequence[GoldTree], pairs: WordPairs, information_P2: NDArray[np.float64]
) -> list[frozenset[Edge]]:
    """Return the maximum spanning tree of each sentence. Pairs that are not in `pairs` have no information."""
    predicted = []
    for number, tree in enumerate(trees):
        own_P = pairs.sentence_P == number
        first, second = pairs.place_P2[own_P].T
        information_TT = np.zeros((len(tree.ids_T),) * 2)
        information_TT[first, second], information_TT[second, first] = information_P2[own_P].T
        predicted.append(maximum_spanning_tree(word_scores(information_TT, tree.word_T)))
    return predicted


def tree_rows(
    trees: Sequence[GoldTree], pairs: WordPairs, information: Mapping[int, NDArray[np.float64]], *, treebank: str
) -> Iterator[dict[str, Any]]:
    """Yield rows `uuas`, `uuas_adjacent`, `uuas_random` and `uuas_minus_adjacent`.

    The chance level (`floor`) of `uuas` is that of the adjacency chain, which is the tree that is found if
    there is no information. Rows of `uuas` and `conditional_information` (mean over pairs of sub-words, nats)
    by number of sweeps, in groups such as `sweeps=250`, show how far sampling has converged. The last number
    of sweeps and all other rows have the group `treebank`. Shares of edges have `left_out`, the same share without
    each block of sentences.

    Args:
        information: information of each pair, P2, by number of sweeps, ascending.
    """
    edges_S = np.array([len(tree.edges) for tree in trees])
    adjacent_S = np.array([len(tree.edges & adjacency_chain(tree.words)) for tree in trees])
    random_S = np.array([expected_at_random(len(tree.edges), tree.words) for tree in trees])
    kept = kept_without(np.array([tree.place for tree in trees]))

    def row(metric: str, right_S: NDArray[Any], **fields: Any) -> dict[str, Any]:
        error = resampled_error(right_S, edges_S)
        share = {"value": right_S.sum() / edges_S.sum(), "standard_error": error, "unit": "", "n": edges_S.sum()}
        if kept:
            share["left_out"] = [float(right_S[kept_S].sum() / edges_S[kept_S].sum()) for kept_S in kept]
        return {"metric": metric, "group": treebank} | share | fields

    floor, last = adjacent_S.sum() / edges_S.sum(), max(information)
    for sweeps, information_P2 in information.items():
        group = {"group": treebank if sweeps == last else f"sweeps={sweeps}"}
        predicted = found_trees(trees, pairs, information_P2)
        right_S = np.array([len(tree.edges & edges) for tree, edges in zip(trees, predicted, strict=True)])
        yield row("uuas", right_S, floor=floor) | group
        mean = {"value": information_P2.mean(), "unit": "nats", "n": len(information_P2)}
        yield {"metric": "conditional_information"} | mean | group
    yield row("uuas_adjacent", adjacent_S)
    yield row("uuas_random", random_S)
    yield row("uuas_minus_adjacent", right_S - adjacent_S, floor=0.0)


BURN_IN = 5
"""Divisor of the number of sweeps. The first fifth (rounded up) is burn-in and left out, as by the authors."""


def conditional_information(
    model: LogProbabilities,
    tokens_BT: Tensor,
    pair_B2: Tensor,
    *,
    uniform_BR2: Tensor,
    stops: Sequence[int],
    remembered: int = 64,
) -> Tensor:
    """Return the information that one token of a pair has about the other, in nats, after each of `stops`
    sweeps; shape KB2, float64.

    The last axis is the information about x_i and about x_j. The two are equal under one joint distribution,
    but the conditionals of a masked LM need not have one.

    Args:
        tokens_BT: whole sentences, one for each chain, padded with PAD on the right. Tokens at the pair's
            places do not matter.
        pair_B2: places of x_i and x_j. Chains of the same pair are independent estimates.
        uniform_BR2: random numbers in [0, 1), one for each draw.
        stops: numbers of sweeps, each at least 2 and at most R.
        remembered: number of the model's answers that are kept for each side of a chain, on average; at least
            1. The model is not asked again when a token is drawn again. This changes only the cost.
    """
    means = [(MeanProbabilities(stop), MeanProbabilities(stop)) for stop in stops]
    chains = gibbs(model, tokens_BT, pair_B2, uniform_BR2[:, : max(stops)], remembered=remembered)
    for sweep, side, share_BV in chains:
        entropy_B = entropy(share_BV)
        for sides in means:
            sides[side].add(sweep, share_BV, entropy_B)
    return torch.stack([torch.stack([mean.information() for mean in sides], dim=-1) for sides in means])


class MeanProbabilities:
    """Mean of the model's probabilities for one side of each chain, over the sweeps from burn-in to a stop."""

    def __init__(self, stop: int) -> None:
        self._start, self._stop = -(-stop // BURN_IN), stop
        self._share_BV: Tensor | None = None
        self._entropy_B: Tensor | float = 0.0

    def add(self, sweep: int, share_BV: Tensor, entropy_B: Tensor) -> None:
        """Add the probabilities of one sweep, if it is between burn-in and stop."""
        if self._start <= sweep < self._stop:
            self._share_BV = share_BV.clone() if self._share_BV is None else self._share_BV.add_(share_BV)
            self._entropy_B = self._entropy_B + entropy_B

    def information(self) -> Tensor:
        """Return the entropy of the mean minus the mean of the entropies, in nats, shape B. It is never below
        0."""
        assert self._share_BV is not None
        sweeps = self._stop - self._start
        return (entropy(self._share_BV / sweeps) - self._entropy_B / sweeps).clamp(min=0)


def gibbs(
    model: LogProbabilities, tokens_BT: Tensor, pair_B2: Tensor, uniform_BR2: Tensor, *, remembered: int = 64
) -> Iterator[tuple[int, int, Tensor]]:
    """Yield sweep, side of the pair, and the probability BV of each token there given all others, in the
    order of the draws. Both tokens are hidden when the first one is drawn."""
    shown_BT = tokens_BT.scatter(1, pair_B2, MASK)
    memories = [AnswerMemory(len(tokens_BT), remembered) for _ in range(2)]
    for sweep in range(uniform_BR2.shape[1]):
        for side, memory in enumerate(memories):
            place_B1 = pair_B2[:, side, None]
            shown_BT.scatter_(1, place_B1, MASK)

            def ask(chain_M: Tensor, place_B1: Tensor = place_B1) -> Tensor:
                return model(shown_BT[chain_M], place_B1[chain_M])[:, 0].exp()

            share_BV = memory.recall(shown_BT.gather(1, pair_B2[:, 1 - side, None])[:, 0], ask)
            shown_BT.scatter_(1, place_B1, draw(share_BV, uniform_BR2[:, sweep, side])[:, None])
            yield sweep, side, share_BV


class AnswerMemory:
    """Memory of the model's answers about one side of each chain, by the token on the other side. A full
    memory forgets all of them."""

    def __init__(self, chains: int, remembered: int) -> None:
        self._capacity, self._used = chains * remembered, 0
        self._share_QV: Tensor | None = None
        self._answer_BV: Tensor | None = None  # number of the answer for a chain and a token, -1 for none

    def recall(self, other_B: Tensor, ask: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the model's answers given these tokens on the other side, shape BV.

        Args:
            ask: returns the model's answers, MV, for some chains, M.
        """
        chain_B = torch.arange(len(other_B), device=other_B.device)
        if self._share_QV is None or self._answer_BV is None:
            first_BV = ask(chain_B)
            self._share_QV = first_BV.new_empty(self._capacity, first_BV.shape[1])
            self._answer_BV = torch.full_like(first_BV, -1, dtype=torch.int64)
            self._keep(chain_B, other_B, first_BV)
            return first_BV
        new_M = (self._answer_BV[chain_B, other_B] < 0).nonzero()[:, 0]
        if self._used + len(new_M) > self._capacity:
            self._answer_BV.fill_(-1)
            self._used, new_M = 0, chain_B
        if len(new_M):
            self._keep(new_M, other_B[new_M], ask(new_M))
        return self._share_QV[self._answer_BV[chain_B, other_B]]

    def _keep(self, chain_M: Tensor, other_M: Tensor, share_MV: Tensor) -> None:
        assert self._share_QV is not None
        assert self._answer_BV is not None
        places = torch.arange(self._used, self._used + len(chain_M), device=chain_M.device)
        self._share_QV[places], self._answer_BV[chain_M, other_M] = share_MV, places
        self._used += len(chain_M)


def entropy(share_BV: Tensor) -> Tensor:
    """Return the entropy of each row in nats, shape B, float64."""
    return torch.special.entr(share_BV).sum(-1, dtype=torch.float64)
