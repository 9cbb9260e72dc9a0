"""Minimal pairs: the share of pairs in which the grammatical sentence is more probable than its twin (BLiMP,
Warstadt et al. 2020, https://arxiv.org/abs/1912.00582; Marvin & Linzen 2018,
https://arxiv.org/abs/1808.09031).

Scores are sums over the pieces of a sentence, as in BLiMP, and not divided by their number. A word that the
vocabulary cuts into many pieces makes its sentence improbable, or probable if the pieces give each other
away. So pairs that differ in whole words show best what a model knows of grammar.

The accuracies of two guesses without a model are reported too, because they may be far from one half. One
takes the sentence with fewer pieces, the other the sentence with more frequent pieces.

Letters: N pairs, V vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ablations.errors import MeasureError
from ablations.measures.jackknife import means_left_out
from ablations.measures.reading.texts import Readings, Say
from ablations.tasks.examples import Examples, drawn, examples_of, source_of
from ablations.tasks.language_models.sentence_scores import Pieces, Scores, pieces_of, sentence_scores
from ablations.tasks.metrics import share_error
from ablations.tasks.predictions import predictions
from ablations.tasks.settings import MinimalPairsSettings
from lightning_modules.data.tokenizer import FIRST_WORD_ID
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive

CHANCE = 0.5
QUICK = 10
"""Divisor of the number of pairs with `effort: quick`."""
ROUNDING = 1e-6
"""Share of their sizes below which a difference of two scores counts as none. Scores are sums of numbers of
24 bits."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Word = tuple[int, ...]


def rows(readings: Readings, settings: MinimalPairsSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `minimal_pairs` of one task for a run."""
    return minimal_pairs_rows(
        readings.objective,
        examples_of(settings.task_name, "test", source_of(readings, settings)),
        readings.tokens.tokenizer,
        settings,
        max_length=readings.objective.run.data.max_length,
        counts_V=readings.tokens.source_counts_V,
        say=say,
    )


def minimal_pairs_rows(
    objective: Objective,
    examples: Examples,
    tokenizer: Tokenizer,
    settings: MinimalPairsSettings,
    *,
    max_length: int,
    counts_V: Integers,
    say: Say = lambda line: None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of one task as a whole, then of each of its fields, paradigms or cases. n counts pairs,
    which all have the same weight.

    `accuracy` is by log probability or pseudo-log-likelihood, `accuracy_within_word` by the
    pseudo-log-likelihood that hides the rest of a split word, `accuracy_left_to_right` by a mixture that
    reads as causal LM does (see `sentence_scores`). Objectives without a probability of a sentence have none
    of them. `covered` is the share of pairs whose pieces are all in the training text. `whole_words` is the
    share of pairs in which each word that differs is one piece. `accuracy_whole_words` is `accuracy` on these
    pairs alone, where the number of pieces of a word cannot decide. Standard errors are those of a mean of
    independent pairs.

    Rows `_by_length` and `_by_unigram` are of two guesses without a model (`guesses`), on the same pairs as
    the row whose name they begin with: `accuracy_by_length`, `accuracy_by_unigram`,
    `accuracy_whole_words_by_length` and `accuracy_whole_words_by_unigram`. All objectives have them.

    Pairs with a sentence that is too long for the encoder are left out.

    Args:
        max_length: largest number of tokens of a sentence, START and END included.
        counts_V: how often each id occurs in the training text.
        say: called with a line on how many sentences are scored. It may raise an error to stop.

    Raises:
        MeasureError: all pairs are too long.
    """
    pairs = pairs_of(examples, tokenizer, settings, max_length=max_length)
    if not pairs.good:
        raise MeasureError(
            f"minimal_pairs: {settings.task_name} has no pair of sentences with at most {max_length} tokens "
            "(START and END included); raise data.max_length, or leave the task out."
        )
    known_V = (counts_V > 0) & (np.arange(len(counts_V)) >= FIRST_WORD_ID)
    each = zip(pairs.good, pairs.bad, strict=True)
    covered_N = np.array([known_V[np.r_[good.ids_P, bad.ids_P]].all() for good, bad in each])
    scores = sentence_scores(objective, [*pairs.good, *pairs.bad], say=say)
    right = outcomes(scores)
    guessed = guesses(pairs, log_frequencies(counts_V, first_word=FIRST_WORD_ID))
    yield from rows_of_pairs(pairs, settings, right=right, guessed=guessed, shares={"covered": covered_N})
    if settings.predictions and scores is not None:
        for metric, (good_N, bad_N) in halves_by_metric(scores).items():
            yield {
                "predictions": predictions(
                    pairs.examples,
                    task=settings.group_of(settings.task_name),
                    metric=metric,
                    points_N=right[metric],
                    margin_N=good_N - bad_N,
                    tokenizer=tokenizer,
                    counts_V=counts_V,
                )
            }


class Pairs(NamedTuple):
    """Minimal pairs in the pieces of a tokenizer."""

    good: list[Pieces]
    bad: list[Pieces]
    examples: Examples
    """The same pairs as text, with their groups."""
    place_N: Integers
    """Number of each pair before any were left out, which is the same in all arms."""


def pairs_of(
    examples: Examples, tokenizer: Tokenizer, settings: MinimalPairsSettings, *, max_length: int | None
) -> Pairs:
    """Return the sampled pairs, without those with a sentence of more than `max_length` tokens, START and END
    included."""
    chosen = sampled(examples, settings)
    assert chosen.second is not None, "minimal pairs have two halves"
    good, bad = pieces_of(chosen.first, tokenizer), pieces_of(chosen.second, tokenizer)
    lengths = (max(len(a.ids_P), len(b.ids_P)) + 2 for a, b in zip(good, bad, strict=True))
    fits = [i for i, length in enumerate(lengths) if max_length is None or length <= max_length]
    return Pairs([good[i] for i in fits], [bad[i] for i in fits], chosen.take(fits), np.array(fits, np.int64))


def rows_of_pairs(
    pairs: Pairs,
    settings: MinimalPairsSettings,
    *,
    right: Mapping[str, Floats],
    guessed: Mapping[str, Floats],
    shares: Mapping[str, NDArray[np.bool_]],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of each group of pairs: accuracies, those of pairs that differ in whole words, and
    shares of pairs.

    Args:
        right: points of a model for each pair, by metric (`outcomes`).
        guessed: points of guesses for each pair, by metric (`guesses`).
        shares: whether something holds for each pair, by metric.
    """
    whole_N = np.array([differ_in_whole_words(a, b) for a, b in zip(pairs.good, pairs.bad, strict=True)])
    points = {**right, **guessed}
    for group, index in _groups(settings, pairs.examples).items():
        for metric, right_N in points.items():
            yield {"metric": metric, "group": group} | _accuracy(right_N[index], pairs.place_N[index])
        whole = index[whole_N[index]]
        for metric, right_N in points.items() if len(whole) else ():
            if metric in ("accuracy", *guessed):
                of_whole = metric.replace("accuracy", "accuracy_whole_words")
                yield {"metric": of_whole, "group": group} | _accuracy(right_N[whole], pairs.place_N[whole])
        for metric, holds_N in {**shares, "whole_words": whole_N}.items():
            share = float(holds_N[index].mean())
            yield {"metric": metric, "group": group, "value": share, "unit": "", "n": len(index)}


def sampled(examples: Examples, settings: MinimalPairsSettings) -> Examples:
    """Select as many pairs of each paradigm or case as the settings say, at random, in their order. A larger
    sample contains the smaller ones. Pairs of a task without groups are sampled together."""
    assert examples.groups is not None, "minimal pairs have groups"
    kind_N = np.array([group[-1] if group else "" for group in examples.groups])
    kept = list[Integers]()
    for kind in np.unique(kind_N).tolist():
        of_kind = np.flatnonzero(kind_N == kind)
        count = settings.pairs or (-(-len(of_kind) // QUICK) if settings.effort == "quick" else len(of_kind))
        kept.append(of_kind[drawn(derive(0, "minimal pairs", kind), len(of_kind), count)])
    return examples.take(np.sort(np.concatenate(kept)))


def outcomes(scores: Scores | None) -> dict[str, Floats]:
    """Return the points of each pair (see `compared`) by metric, from the scores of all good and then all bad
    sentences. Empty for an objective without a probability of a sentence."""
    return {} if scores is None else {name: compared(*pair) for name, pair in halves_by_metric(scores).items()}


def halves_by_metric(scores: Scores) -> dict[str, tuple[Floats, Floats]]:
    """Return the scores of the good and of the bad sentences by metric, from the scores of all good and then
    all bad sentences."""
    named = {
        "accuracy": scores.main,
        "accuracy_within_word": scores.within_word,
        "accuracy_left_to_right": scores.left_to_right,
    }
    N = len(scores.main.nats_S) // 2
    nats = {metric: score.nats_S for metric, score in named.items() if score is not None}
    return {metric: (nats_S[:N], nats_S[N:]) for metric, nats_S in nats.items()}


def log_frequencies(counts_V: Integers, *, first_word: int) -> Floats:
    """Return the log of the relative frequency of each id among those from `first_word`, after 1 is added to
    each count."""
    log_V: Floats = np.log(counts_V + 1.0) - np.log((counts_V + 1.0)[first_word:].sum())
    return log_V


def guesses(pairs: Pairs, log_V: Floats) -> dict[str, Floats]:
    """Return the points of each pair for guesses without a model, by metric; see `compared`.

    `accuracy_by_length` takes the sentence with fewer pieces. `accuracy_by_unigram` takes the sentence whose
    pieces have the larger sum of log frequencies (`log_frequencies`), like a model that ignores context.
    """

    def of_both(score: Callable[[Integers], float]) -> Floats:
        halves = (pairs.good, pairs.bad)
        return compared(*(np.array([score(sentence.ids_P) for sentence in half]) for half in halves))

    return {
        "accuracy_by_length": of_both(lambda ids_P: -float(len(ids_P))),
        "accuracy_by_unigram": of_both(lambda ids_P: float(log_V[ids_P].sum())),
    }


def compared(good_N: Floats, bad_N: Floats) -> Floats:
    """Return 1 where the first score is higher, 0 where it is lower, and a half where the two are equal up to
    rounding. The score of a sentence with probability 0 is minus infinity."""
    with np.errstate(invalid="ignore"):  # the difference of two infinities
        apart_N = np.abs(good_N - bad_N)
    nearly_N = np.isfinite(apart_N) & (apart_N <= ROUNDING * (np.abs(good_N) + np.abs(bad_N)))
    return np.where((good_N == bad_N) | nearly_N, 0.5, good_N > bad_N)


def differ_in_whole_words(good: Pieces, bad: Pieces) -> bool:
    """Return whether each word in which two sentences differ is one piece. The common beginning and then the
    common end of the sentences are removed; the other words differ."""
    a, b = _words(good), _words(bad)
    shorter = min(len(a), len(b))
    begin = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    end = next((i for i in range(shorter - begin) if a[-1 - i] != b[-1 - i]), shorter - begin)
    return all(len(word) <= 1 for word in a[begin : len(a) - end] + b[begin : len(b) - end])


def _words(pieces: Pieces) -> list[Word]:
    starts = np.flatnonzero(np.diff(pieces.word_P)) + 1
    return [tuple(word.tolist()) for word in np.split(pieces.ids_P, starts)]


def _groups(settings: MinimalPairsSettings, examples: Examples) -> dict[str, Integers]:
    """Return the pairs of each group: of the task itself, then of each value of its columns, column by
    column. A value that two columns have on the same pairs is one group, in which each pair counts once."""
    assert examples.groups is not None, "minimal pairs have groups"
    name = settings.group_of(settings.task_name)
    index_by_group: dict[str, list[int]] = {name: list(range(len(examples)))}
    for value_N in zip(*examples.groups, strict=True):
        for i, value in enumerate(value_N):
            index_by_group.setdefault(f"{name}/{value}", []).append(i)
    return {group: np.unique(index) for group, index in index_by_group.items()}


def _accuracy(right_N: Floats, place_N: Integers) -> dict[str, Any]:
    share = {"value": float(right_N.mean()), "standard_error": share_error(right_N), "n": len(right_N)}
    return share | {"left_out": means_left_out(right_N, place_N), "floor": CHANCE, "unit": ""}
