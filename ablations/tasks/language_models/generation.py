"""Fluency and diversity of sentences that a language model generates.

Neither says much alone: the same good sentence again and again is fluent, random tokens are diverse. The scores of
real text stand beside them, and are the target; fewer nats or more variety than that is not better.

Fluency is judged by a model that took no part in making the text: trigrams with interpolated Kneser-Ney
smoothing (Chen & Goodman 1999, https://doi.org/10.1006/csla.1999.0128, section 3, with one discount an order),
trained on the training text in the sub-words that all arms share, so that it is the same for all of them. Where
we differ: the discount is (n1 + 1/2) / (n1 + 2 n2 + 1) instead of n1 / (n1 + 2 n2), with n1 and n2 the numbers
of n-grams that were counted once and twice. It is never 0 or 1, even where every token is frequent.

Letters: N tokens, G different n-grams, K tokens of an n-gram, C different contexts, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.measures.reading.texts import Readings, Say
from ablations.tasks.language_models.sampling import (
    Sentence,
    at_once,
    drawing,
    from_left_to_right,
    mask_predict,
    next_log_probabilities,
)
from ablations.tasks.language_models.sentence_scores import masked_log_probabilities
from ablations.tasks.metrics import share_error, standard_error
from ablations.tasks.settings import GenerationSettings
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.objectives.mixture import Mixture
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms
from lightning_modules.vocabulary import END, FIRST_WORD_ID, MASK, PAD, START, UNKNOWN

Integers = NDArray[np.int64]

ORDER = 3
NEVER_ASKED = (PAD, START, MASK)


class Judge:
    """Judge of sentences: the probability of a token after the two before it; START, START before a sentence."""

    def __init__(self, split: Split, *, vocab_size: int) -> None:
        gram_GK, count_G = _different(ngrams(split.ids.astype(np.int64)), vocab_size)
        self._orders = [_Order(gram_GK, count_G, vocab_size)]
        while gram_GK.shape[1] > 1:
            # Of the lower orders it counts in how many contexts they occur, not how often.
            gram_GK, count_G = _different(gram_GK[:, 1:], vocab_size)
            self._orders.insert(0, _Order(gram_GK, count_G, vocab_size))
        self._uniform = 1 / (vocab_size - len(NEVER_ASKED))

    def probabilities(self, gram_NK: Integers) -> NDArray[np.float64]:
        """Return the probability of the last token of each trigram after the others."""
        share_N = np.full(len(gram_NK), self._uniform)
        for k, order in enumerate(self._orders, start=1):
            share_N = order.interpolated(gram_NK[:, ORDER - k :], share_N)
        return share_N

    def nats(self, sentences: Sequence[NDArray[np.integer]]) -> list[NDArray[np.float64]]:
        """Return the nats of each token of each sentence but START; END is a token like others."""
        nats_N = -np.log(self.probabilities(ngrams(np.concatenate(sentences).astype(np.int64))))
        return np.split(nats_N, np.cumsum([len(sentence) - 1 for sentence in sentences])[:-1])


def ngrams(ids_N: Integers) -> Integers:
    """Return each token but START with the two before it, of sentences that lie one after the other; shape NK.
    Before the first token of a sentence stand two STARTs."""
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
        """Return the probabilities of the last tokens, given those by the order below."""
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
    """Return a number for each n-gram, in the same order; 0 for empty ones."""
    key_N = np.zeros(len(gram_NK), dtype=np.int64)
    for id_N in gram_NK.T:
        key_N = key_N * vocab_size + id_N
    return key_N


def _values_of(key_N: Integers, known_G: Integers, value_G: Integers) -> Integers:
    """Return the values of keys, 0 of unknown keys."""
    place_N = np.minimum(np.searchsorted(known_G, key_N), len(known_G) - 1)
    return np.where(known_G[place_N] == key_N, value_G[place_N], 0)


def rows(readings: Readings, settings: GenerationSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `generation` of a run."""
    return generation_rows(readings.objective, readings.tokens, settings)


def generation_rows(
    objective: Objective, tokens: Tokens, settings: GenerationSettings
) -> Iterator[dict[str, Any]]:
    """Yield rows of `fluency`, `distinct_1`, `distinct_2`, `copied` and `length`; and of as many sentences of the
    validation text, as `fluency_of_text` and so on. Masked LM makes up sentences of their lengths. No more
    sentences are made up than the validation text has.

    `fluency` is in nats per token (END counts, START does not) of a trigram model of the training text; fewer are
    more fluent. Its floor is that of sentences as long of tokens drawn by their frequency. `copied` is the share
    of sentences that stand in the training text as they are, `length` the mean number of tokens, START and END
    apart.

    No group: what the objective is named after, of mask-predict with the last of the settings' iterations. Groups:
    `iterations=4` for other numbers of them, and `causal_lm` for what a mixture makes up from left to right.

    Raises:
        MeasureError: the objective is no language model.
    """
    real = _text(tokens.validation, settings.sentences_wanted)
    generated = _made_up(objective, real, settings)
    judge, training_texts = Judge(tokens.train, vocab_size=tokens.vocab_size), _texts_of(tokens.train)
    for group, sentences in generated.items():
        for row in _rows(sentences, judge, training_texts):
            if row["metric"] == "fluency":
                row["floor"] = _mean_nats(judge, _random_text(sentences, tokens.source_counts_V))
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
            f"generation asks for a language model, but {objective.run.objective.kind} is none; leave the measure "
            f"out, or give the arm a spec of its own."
        )
    return generated


def _text(split: Split, count: int) -> list[Sentence]:
    """Return so many sentences at random, all if there are fewer."""
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
    # Tokens are independent between sentences only.
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
    """Return the number of different n-grams over the number of tokens, START and END apart (Li et al. 2016,
    section 5.1: tokens, not n-grams). It falls with the amount of text; compare equally much. 0 for no tokens."""
    texts = [_inside(sentence).tolist() for sentence in sentences]
    tokens = sum(map(len, texts))
    grams = {tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)}
    return len(grams) / max(tokens, 1)


def _inside(sentence: NDArray[np.integer]) -> Sentence:
    """Return a sentence without START and END."""
    return sentence[(sentence != START) & (sentence != END)].astype(np.int64)


def _texts_of(split: Split) -> frozenset[bytes]:
    """Return all sentences of a split, in a form that can be looked up."""
    return frozenset(_inside(split.sentence(i)).tobytes() for i in range(len(split)))


def _mean_nats(judge: Judge, sentences: Sequence[Sentence]) -> float:
    return float(np.concatenate(judge.nats(sentences)).mean())


def _random_text(sentences: Sequence[Sentence], counts_V: NDArray[np.int64]) -> list[Sentence]:
    """Replace each token by one that is drawn by its frequency in the training text; START and END stay."""
    ids_V = np.arange(len(counts_V))
    text_V = np.where((ids_V >= FIRST_WORD_ID) | (ids_V == UNKNOWN), counts_V, 0)
    end_V = np.cumsum(text_V) / text_V.sum()
    replaced = []
    for number, sentence in enumerate(sentences):
        uniform_T = uniforms(derive(0, "random text"), np.array([number]), np.arange(len(sentence)))
        drawn_T = np.searchsorted(end_V, uniform_T, side="right")
        replaced.append(np.where((sentence == START) | (sentence == END), sentence, drawn_T))
    return replaced
