"""Generation of sentences by a language model, and their fluency and diversity.

A causal LM draws one token after the other. A masked LM starts from hidden tokens alone and draws all at
once. It then hides the tokens of which it was least sure, draws them again, and so on: mask-predict
(Ghazvininejad et al. 2019, https://arxiv.org/abs/1904.09324, section 3). Where we differ: the most probable
tokens are not taken but tokens are drawn, because without a source all sentences of a length would be the
same. And lengths are given. The draws for a sentence depend on its number, not on the other sentences that
are generated with it.

Neither score says much alone: the same good sentence again and again is fluent, and random tokens are
diverse. The scores of real text are reported too and are the target. Fewer nats or more variety than real
text is not better.

Fluency is judged by a model that took no part in generating the text: trigrams with interpolated Kneser-Ney
smoothing (Chen & Goodman 1999, https://doi.org/10.1006/csla.1999.0128, section 3, with one discount for each
order). It is trained on the training text in the sub-words that all arms share, so it is the same for all of
them. Where we differ: the discount is (n1 + 1/2) / (n1 + 2 n2 + 1) instead of n1 / (n1 + 2 n2), where n1 and
n2 are the numbers of n-grams that were counted once and twice. It is never 0 or 1, even if every token is
frequent.

Letters: B sentences of a batch, T positions, N tokens, G different n-grams, K places or tokens of an n-gram,
C different contexts, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.reading.texts import Readings, Say
from ablations.tasks.language_models.sentence_scores import (
    LogProbabilities,
    draw,
    masked_log_probabilities,
    require_probabilities,
)
from ablations.tasks.metrics import share_error, standard_error
from ablations.tasks.settings import GenerationSettings
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, PAD, START, UNKNOWN
from lightning_modules.objectives.mixture import Mixture
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms

Sentence = NDArray[np.int64]
NextLogProbabilities = Callable[[Tensor], Tensor]
"""Function from the beginnings of sentences, BT, to the log probability of each token after them, BV."""
Draw = Callable[[Tensor, Tensor], Tensor]
"""Function from log probabilities, NV, and uniform numbers, N, to tokens, N."""

LOGITS_OF_BATCH = {"cpu": 2**21, "cuda": 2**26}
MOST_ROWS = {"cpu": 128, "cuda": 2048}

Integers = NDArray[np.int64]

ORDER = 3
NEVER_ASKED = (PAD, START, MASK)


def drawing(*, temperature: float = 1.0, top_p: float = 1.0) -> Draw:
    """Return a function that draws tokens by their probabilities.

    A temperature below 1 makes probabilities sharper, one above 1 flatter. Tokens are drawn from the most
    probable ones that together have at least `top_p` (nucleus sampling, Holtzman et al. 2020, section 3.1).
    """

    def drawn(log_share_NV: Tensor, uniform_N: Tensor) -> Tensor:
        share_NV = (log_share_NV.double() / temperature).softmax(-1)
        if top_p < 1:
            sorted_NV, order_NV = share_NV.sort(dim=-1, descending=True, stable=True)
            needed_NV = sorted_NV.cumsum(-1) - sorted_NV < top_p
            share_NV = share_NV * torch.zeros_like(needed_NV).scatter(-1, order_NV, needed_NV)
        return draw(share_NV, uniform_N)

    return drawn


def at_once(vocab_size: int, places: int, device: torch.device) -> int:
    """Return the number of sentences of a batch if each needs the logits of `places` places."""
    return min(MOST_ROWS[device.type], max(1, LOGITS_OF_BATCH[device.type] // (vocab_size * places)))


# From left to right ----------------------------------------------------------------------------------


def next_log_probabilities(objective: Objective) -> NextLogProbabilities:
    """Return a function that gives the log probabilities of a causal LM, or of the causal side of a mixture.
    Tokens that training never predicts have probability 0."""
    objective.eval()
    encoder, head = objective.encoder, objective.head
    sees = "left_only" if isinstance(objective, Mixture) else objective.run.objective.sees

    @torch.no_grad()
    def after(tokens_BT: Tensor) -> Tensor:
        B, T = tokens_BT.shape
        last_B = torch.arange(B, device=tokens_BT.device) * T + T - 1
        top_BD = encoder(tokens_BT, sees=sees, window=objective.window, top_place_N=last_B)[-1]
        logits_BV = head(encoder.head_input(top_BD), encoder.tokens.weight)
        logits_BV[:, [PAD, START, MASK]] = -math.inf
        log_share_BV = logits_BV.log_softmax(-1)
        require_probabilities(log_share_BV[:, -1])
        return log_share_BV

    return after


def from_left_to_right(
    model: NextLogProbabilities,
    count: int,
    *,
    max_length: int,
    key: int,
    drawn: Draw,
    rows: int,
    device: torch.device,
) -> list[Sentence]:
    """Generate `count` sentences: START and the drawn tokens, up to END, or up to `max_length` tokens without
    END.

    Args:
        rows: number of sentences of a batch.
    """
    finished: dict[int, Sentence] = {}
    for first in range(0, count, rows):
        open_B = np.arange(first, min(first + rows, count))
        tokens_BT = torch.full((len(open_B), 1), START, device=device)
        while len(open_B):
            uniform_B = uniforms(key, open_B, np.array([tokens_BT.shape[1]]))
            next_B = drawn(model(tokens_BT), torch.from_numpy(uniform_B).to(device))
            tokens_BT = torch.cat([tokens_BT, next_B[:, None]], dim=1)
            ended_B = (next_B == END).cpu().numpy() | (tokens_BT.shape[1] == max_length)
            finished |= dict(zip(open_B[ended_B].tolist(), tokens_BT.cpu().numpy()[ended_B], strict=True))
            open_B, tokens_BT = open_B[~ended_B], tokens_BT[torch.from_numpy(~ended_B).to(device)]
    return [finished[number] for number in range(count)]


# All at once -----------------------------------------------------------------------------------------


def mask_predict(
    model: LogProbabilities,
    lengths: Sequence[int],
    *,
    iterations: int,
    key: int,
    drawn: Draw,
    vocab_size: int,
    device: torch.device,
) -> list[Sentence]:
    """Generate one sentence for each length: the number of tokens between START and END.

    A sentence of n tokens takes T steps (`iterations`). Step t, from 0, hides the floor(n (T - t) / T) tokens
    whose probabilities were lowest when they were drawn, and draws them again. Each is drawn given the tokens
    that are not hidden, independently of the others.
    """
    length_S = np.array(lengths)
    by_number: dict[int, Sentence] = {}
    # One length at a time: all sentences then have the same number of hidden tokens, and there is no padding.
    for length in np.unique(length_S).tolist():
        number_N = np.flatnonzero(length_S == length)
        rows = at_once(vocab_size, max(length, 1), device)
        for number_B in np.split(number_N, range(rows, len(number_N), rows)):
            tokens_BT = _batch_of_length(model, number_B, length, iterations, key, drawn, device)
            by_number |= dict(zip(number_B.tolist(), tokens_BT.cpu().numpy(), strict=True))
    return [by_number[number] for number in range(len(length_S))]


def _batch_of_length(
    model: LogProbabilities,
    number_B: NDArray[np.int64],
    length: int,
    iterations: int,
    key: int,
    drawn: Draw,
    device: torch.device,
) -> Tensor:
    B = len(number_B)
    tokens_BT = torch.full((B, length + 2), MASK, device=device)
    tokens_BT[:, 0], tokens_BT[:, -1] = START, END
    log_share_BT = torch.full((B, length + 2), math.inf, dtype=torch.float64, device=device)
    log_share_BT[:, 1:-1] = -math.inf
    for step in range(iterations):
        hidden = length * (iterations - step) // iterations
        if not hidden:
            break
        place_BK = log_share_BT.argsort(dim=1, stable=True)[:, :hidden]
        tokens_BT.scatter_(1, place_BK, MASK)
        log_share_BKV = model(tokens_BT, place_BK)
        uniform_BK = uniforms(key, number_B[:, None], np.array([step]), place_BK.cpu().numpy())
        token_N = drawn(log_share_BKV.flatten(0, 1), torch.from_numpy(uniform_BK).flatten().to(device))
        token_BK = token_N.view_as(place_BK)
        tokens_BT.scatter_(1, place_BK, token_BK)
        log_share_BT.scatter_(1, place_BK, log_share_BKV.gather(2, token_BK[..., None])[..., 0].double())
    return tokens_BT


class Judge:
    """Judge of sentences: a trigram model of a token after the two before it. START, START stand before a
    sentence."""

    def __init__(self, split: Split, *, vocab_size: int) -> None:
        gram_GK, count_G = _different(ngrams(split.ids.astype(np.int64)), vocab_size)
        self._orders = [_Order(gram_GK, count_G, vocab_size)]
        while gram_GK.shape[1] > 1:
            # For lower orders it counts in how many contexts an n-gram occurs, not how often.
            gram_GK, count_G = _different(gram_GK[:, 1:], vocab_size)
            self._orders.insert(0, _Order(gram_GK, count_G, vocab_size))
        self._uniform = 1 / (vocab_size - len(NEVER_ASKED))

    def probabilities(self, gram_NK: Integers) -> NDArray[np.float64]:
        """Return the probability of the last token of each trigram given the two before it."""
        share_N = np.full(len(gram_NK), self._uniform)
        for k, order in enumerate(self._orders, start=1):
            share_N = order.interpolated(gram_NK[:, ORDER - k :], share_N)
        return share_N

    def nats(self, sentences: Sequence[NDArray[np.integer]]) -> list[NDArray[np.float64]]:
        """Return the nats of each token of each sentence, with END and without START."""
        nats_N = -np.log(self.probabilities(ngrams(np.concatenate(sentences).astype(np.int64))))
        return np.split(nats_N, np.cumsum([len(sentence) - 1 for sentence in sentences])[:-1])


def ngrams(ids_N: Integers) -> Integers:
    """Return the trigram that ends at each token but START, of sentences that lie one after the other; shape
    NK. Two STARTs stand before the first token of a sentence."""
    last_N, before_N = np.roll(ids_N, 1), np.roll(ids_N, 2)
    before_N[last_N == START] = START
    return np.stack([before_N, last_N, ids_N], axis=1)[ids_N != START]


class _Order:
    """Counts of n-grams of one length."""

    def __init__(self, gram_GK: Integers, count_G: Integers, vocab_size: int) -> None:
        self._vocab_size, self._count_G = vocab_size, count_G
        self._gram_G = _keys(gram_GK, vocab_size)
        # n-grams are sorted, so those of one context stand together.
        context_G = _keys(gram_GK[:, :-1], vocab_size)
        self._context_C, first_C, self._kinds_C = np.unique(context_G, return_index=True, return_counts=True)
        self._total_C = np.add.reduceat(count_G, first_C)
        once, twice = ((count_G == n).sum() for n in (1, 2))
        self.discount = (once + 0.5) / (once + 2 * twice + 1)

    def interpolated(self, gram_NK: Integers, lower_N: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities of the last tokens, interpolated with those of the next lower order."""
        count_N = _values_of(_keys(gram_NK, self._vocab_size), self._gram_G, self._count_G)
        context_N = _keys(gram_NK[:, :-1], self._vocab_size)
        total_N = _values_of(context_N, self._context_C, self._total_C)
        kinds_N = _values_of(context_N, self._context_C, self._kinds_C)
        kept_N = np.maximum(count_N - self.discount, 0) + self.discount * kinds_N * lower_N
        return np.where(total_N > 0, kept_N / np.maximum(total_N, 1), lower_N)


def _different(gram_NK: Integers, vocab_size: int) -> tuple[Integers, Integers]:
    """Return each n-gram once, sorted, and its number of occurrences."""
    _, first_G, count_G = np.unique(_keys(gram_NK, vocab_size), return_index=True, return_counts=True)
    return gram_NK[first_G], count_G


def _keys(gram_NK: Integers, vocab_size: int) -> Integers:
    """Return a number for each n-gram. The numbers have the order of the n-grams, and are 0 for empty ones."""
    key_N = np.zeros(len(gram_NK), dtype=np.int64)
    for id_N in gram_NK.T:
        key_N = key_N * vocab_size + id_N
    return key_N


def _values_of(key_N: Integers, known_G: Integers, value_G: Integers) -> Integers:
    """Return the values of keys; 0 for unknown keys."""
    place_N = np.minimum(np.searchsorted(known_G, key_N), len(known_G) - 1)
    return np.where(known_G[place_N] == key_N, value_G[place_N], 0)


def rows(readings: Readings, settings: GenerationSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `generation` of a run."""
    return generation_rows(readings.objective, readings.tokens, settings)


def generation_rows(
    objective: Objective, tokens: Tokens, settings: GenerationSettings
) -> Iterator[dict[str, Any]]:
    """Yield rows of `fluency`, `distinct_1`, `distinct_2`, `copied` and `length`, and the same of validation
    sentences as `fluency_of_text` and so on.

    `sentences_wanted` validation sentences are drawn at random, or all if there are fewer, and as many
    sentences are generated. Those of masked LM have the same lengths.

    `fluency` is in nats per token (END counts, START does not) of a trigram model of the training text; fewer
    nats are more fluent. Its chance level (`floor`) is that of sentences of the same lengths whose tokens are
    drawn by their frequency. `distinct_1` and `distinct_2` are by `distinct`. `copied` is the share of
    sentences that stand in the training text as they are. `length` is the mean number of tokens without START
    and END.

    Rows without a group are of the objective's main way to generate; for mask-predict it is the last of the
    settings' iterations. Groups are `iterations=4` for other numbers of them, and `causal_lm` for what a
    mixture generates from left to right.

    Raises:
        MeasureError: the objective is no language model.
    """
    real = _text(tokens.validation, settings.sentences_wanted)
    generated = _made_up(objective, real, settings)
    judge = Judge(tokens.train, vocab_size=tokens.vocab_size)
    training_texts = frozenset(_inside(tokens.train.sentence(i)).tobytes() for i in range(len(tokens.train)))
    for group, sentences in generated.items():
        for row in _rows(sentences, judge, training_texts):
            if row["metric"] == "fluency":
                random_nats = judge.nats(_random_text(sentences, tokens.source_counts_V))
                row["floor"] = float(np.concatenate(random_nats).mean())
            yield row | {"group": group}
    for row in _rows(real, judge, training_texts):
        yield row | {"metric": f"{row['metric']}_of_text"}


def _made_up(
    objective: Objective, real: Sequence[Sentence], settings: GenerationSettings
) -> dict[str | None, list[Sentence]]:
    """Return generated sentences by group."""
    drawn = drawing(temperature=settings.temperature, top_p=settings.top_p)
    generated: dict[str | None, list[Sentence]] = {}
    output, reads_both_ways = objective.run.objective.output, isinstance(objective, Mixture)
    if output == "hidden":
        for steps in settings.iterations:
            group = None if steps == settings.iterations[-1] else f"iterations={steps}"
            generated[group] = mask_predict(
                masked_log_probabilities(objective, asks="generation"),
                [len(sentence) - 2 for sentence in real],
                iterations=steps,
                key=derive(0, "mask-predict", steps),
                drawn=drawn,
                vocab_size=objective.vocab_size,
                device=objective.device,
            )
    if output == "next" or reads_both_ways:
        generated["causal_lm" if reads_both_ways else None] = from_left_to_right(
            next_log_probabilities(objective),
            len(real),
            max_length=objective.run.data.max_length,
            key=derive(0, "sampling"),
            drawn=drawn,
            rows=at_once(objective.vocab_size, 1, objective.device),
            device=objective.device,
        )
    if not generated:
        raise MeasureError(
            f"generation needs a language model, but {objective.run.objective.kind} is not one; leave the "
            "measure out, or give the arm a spec of its own."
        )
    return generated


def _text(split: Split, count: int) -> list[Sentence]:
    """Return `count` sentences at random, or all if there are fewer."""
    order_S = np.argsort(uniforms(derive(0, "generation"), np.arange(len(split))), kind="stable")
    return [split.sentence(i).astype(np.int64) for i in order_S[:count]]


# Scores ----------------------------------------------------------------------------------------------


def _rows(
    sentences: Sequence[Sentence], judge: Judge, training_texts: frozenset[bytes]
) -> Iterator[dict[str, Any]]:
    nats = judge.nats(sentences)
    tokens_S = np.array([len(nats_T) for nats_T in nats])
    S, n = len(sentences), int(tokens_S.sum())
    fluency = float(np.concatenate(nats).mean())
    # Tokens are independent only between sentences.
    error = standard_error(np.concatenate(nats), np.repeat(np.arange(S), tokens_S))
    yield {"metric": "fluency", "value": fluency, "standard_error": error, "unit": "nats", "n": n}
    for k in (1, 2):
        yield {"metric": f"distinct_{k}", "value": distinct(sentences, k), "unit": "", "n": S}
    copied_S = np.array([_inside(sentence).tobytes() in training_texts for sentence in sentences])
    length_S = np.array([len(_inside(sentence)) for sentence in sentences])
    share = {"value": float(copied_S.mean()), "standard_error": share_error(copied_S), "unit": ""}
    yield {"metric": "copied", "n": S} | share
    mean = {"value": float(length_S.mean()), "standard_error": standard_error(length_S, np.arange(S))}
    yield {"metric": "length", "n": S, "unit": "tokens"} | mean


def distinct(sentences: Sequence[NDArray[np.integer]], n: int) -> float:
    """Return the number of different n-grams over the number of tokens, without START and END; 0 without
    tokens.

    As in Li et al. 2016, section 5.1, it is divided by tokens, not n-grams. It falls with the amount of text,
    so compare equal amounts.
    """
    texts = [_inside(sentence).tolist() for sentence in sentences]
    tokens = sum(map(len, texts))
    grams = {tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)}
    return len(grams) / max(tokens, 1)


def _inside(sentence: NDArray[np.integer]) -> Sentence:
    """Return a sentence without START and END."""
    return sentence[(sentence != START) & (sentence != END)].astype(np.int64)


def _random_text(sentences: Sequence[Sentence], counts_V: NDArray[np.int64]) -> list[Sentence]:
    """Replace each token but START and END by one that is drawn by its frequency in the training text."""
    ids_V = np.arange(len(counts_V))
    text_V = np.where((ids_V >= FIRST_WORD_ID) | (ids_V == UNKNOWN), counts_V, 0)
    end_V = np.cumsum(text_V) / text_V.sum()
    replaced = []
    for number, sentence in enumerate(sentences):
        uniform_T = uniforms(derive(0, "random text"), np.array([number]), np.arange(len(sentence)))
        drawn_T = np.searchsorted(end_V, uniform_T, side="right")
        replaced.append(np.where((sentence == START) | (sentence == END), sentence, drawn_T))
    return replaced
