"""Selections of masked LM: words, spans, n-grams, lexica and label words that are hidden together or never.

Letters: N tokens of a batch, W their words, V vocabulary.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config.masking import PMI, Cloze, Generic, LabelWord, OwnSelection, Selection, Span, Uniform
from lightning_modules.data.lexica import collocated, in_lexicon
from lightning_modules.data.packing import PackedRows
from lightning_modules.data.token_store import Split, Tokens, find_words, require_boundaries, word_types
from lightning_modules.data.tokenizer import is_punctuation, starts_word
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms


class Units:
    """A selection of masked LM on the training text of a run."""

    def __init__(self, select: Selection | OwnSelection, tokens: Tokens, split: Split) -> None:
        """Prepare the selection from the text, where it depends on it.

        Raises:
            DataError: the text has no words, no n-gram is frequent enough, the lexicon has no word of the text or
                leaves nothing to hide, or a label word is no token or was cut off.
        """
        self._select = select
        self._candidate: NDArray[np.bool_] | None = None  # of every token of the split
        self._joined: NDArray[np.bool_] | None = None
        if isinstance(select, OwnSelection):
            self._candidate = _mask(select, "allowed", tokens, split)
            self._joined = _mask(select, "joined", tokens, split)
        elif not isinstance(select, Uniform):
            self._starts_V = starts_word(tokens.tokenizer)
            setting = f"objective.masking.select: {select.kind}"
            require_boundaries(split, self._starts_V, setting=setting, instead="use uniform")
        if isinstance(select, Cloze | Generic):
            self._candidate = _allowed(select, tokens, split, self._starts_V)
        elif isinstance(select, LabelWord):
            self._candidate = _label_tokens(tokens, split)
        elif isinstance(select, PMI):
            self._joined = _ngrams(select, split, self._starts_V)

    @property
    def allowed_N(self) -> NDArray[np.bool_] | None:
        """Mask of the tokens of the split that may be hidden, special ones apart; None for all."""
        return self._candidate

    def candidates(self, source: PackedRows, *, epoch_N: NDArray[np.int64], seed: int) -> NDArray[np.bool_] | None:
        """Return which tokens of a batch may be hidden, special ones apart; None for all. Shape N. Whether it is
        the label word of a sentence depends on (seed, epoch, sentence) alone."""
        if self._candidate is None:
            return None
        allowed_N = self._candidate[source.index_N]
        if not isinstance(self._select, LabelWord):
            return allowed_N
        chance_N = uniforms(derive(seed, "label word"), epoch_N, source.sentence_N)
        return allowed_N == (chance_N < self._select.probability)

    def joined(self, source: PackedRows, *, epoch_N: NDArray[np.int64], seed: int) -> NDArray[np.bool_] | None:
        """Return which tokens of a batch are hidden together with the one before them, in the same sentence; None
        where each is hidden by itself. Shape N. Spans depend on (seed, epoch, sentence) and the sentence alone."""
        if self._joined is not None:
            return self._joined[source.index_N]
        if isinstance(self._select, Uniform | Cloze | Generic | LabelWord | OwnSelection):
            return None
        starts_N = self._starts_V[source.ids_N]
        if isinstance(self._select, Span):
            starts_N[starts_N] = _span_starts(source, np.flatnonzero(starts_N), self._select, epoch_N, seed)
        return ~starts_N


def _mask(
    select: OwnSelection, name: Literal["allowed", "joined"], tokens: Tokens, split: Split
) -> NDArray[np.bool_] | None:
    """Return a mask over the tokens of a split that a selection of one's own makes; None where it makes none."""
    mask_N = getattr(select, name)(tokens, split)
    if mask_N is None:
        return None
    mask_N = np.asarray(mask_N)
    if mask_N.dtype != np.bool_ or mask_N.shape != split.ids.shape:
        raise DataError(
            f"objective.masking.select: {name} of {select.kind} must return {len(split.ids):,} truth values, one "
            f"for each token of data.train, but has returned {mask_N.dtype} of shape {mask_N.shape}; correct it."
        )
    if name == "allowed" and not mask_N.any():
        raise DataError(
            f"objective.masking.select: {select.kind} allows no token of data.train to be hidden; let it allow "
            f"one."
        )
    return mask_N


def _allowed(
    select: Cloze | Generic, tokens: Tokens, split: Split, starts_V: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which tokens of a split a lexicon allows to be hidden; punctuation at a word belongs to no
    lexicon."""
    words = find_words(split.ids, starts_V)
    listed_W = in_lexicon(split.ids, words, tokens.tokenizer, set(select.words))
    in_list_N = np.zeros(len(split.ids), np.bool_)
    in_list_N[words.token_N] = np.repeat(listed_W, words.length_W)
    in_list_N &= ~is_punctuation(tokens.tokenizer)[split.ids]
    if not in_list_N.any():
        so = "nothing could be hidden" if isinstance(select, Cloze) else "it would change nothing"
        raise DataError(
            f"objective.masking.select: none of the lexicon's words ({len(select.words):,}) occurs in "
            f"data.train, so {so}; give words that the text has."
        )
    if isinstance(select, Cloze):
        return in_list_N
    if listed_W.all():
        raise DataError(
            f"objective.masking.select: every word of data.train is among the lexicon's words "
            f"({len(select.words):,}), so nothing could be hidden; give a shorter list."
        )
    return ~in_list_N


def _label_tokens(tokens: Tokens, split: Split) -> NDArray[np.bool_]:
    """Return which tokens of a split are the label words at the ends of its sentences."""
    ids = []
    for word in tokens.report["settings"]["label_words"]:
        pieces = tokens.tokenizer.encode(word, add_special_tokens=False).ids
        if len(pieces) != 1:
            raise DataError(
                f"data.label_words: {word!r} is cut into {len(pieces)} sub-words, but one token is to be hidden; "
                f"raise data.vocab_size, or choose a shorter word."
            )
        ids += pieces
    last_S = split.offsets[1:] - 2  # the last but END
    lost = len(split) - np.isin(split.ids[last_S], ids).sum()
    if lost:
        raise DataError(
            f"objective.masking.select: data.max_length has cut the label words off {lost:,} of {len(split):,} "
            f"sentences of data.train; raise it."
        )
    is_label_N = np.zeros(len(split.ids), np.bool_)
    is_label_N[last_S] = True
    return is_label_N


def _ngrams(select: PMI, split: Split, starts_V: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which tokens of a split stand in the same word or n-gram as the token before them."""
    words = find_words(split.ids, starts_V)
    type_W, _ = word_types(split.ids, words)
    sentence_W = np.searchsorted(split.offsets, words.start_W, side="right") - 1
    joined_N = ~starts_V[split.ids]
    joined_N[words.start_W] = collocated(type_W, sentence_W, select)
    return joined_N


def _span_starts(
    source: PackedRows, word_W: NDArray[np.int64], span: Span, epoch_N: NDArray[np.int64], seed: int
) -> NDArray[np.bool_]:
    """Return which words of a batch begin a span: the first of each sentence, then the one after each span.

    Lengths are geometric, cut off at `longest` and scaled up (Joshi et al. 2020: probability 0.2, at most 10, mean
    3.8); the last span of a sentence ends with it.
    """
    key = derive(seed, "spans")
    uniform_W = uniforms(key, epoch_N[word_W], source.sentence_N[word_W], source.offset_N[word_W])
    reached = 1 - (1 - span.probability) ** span.longest  # of the whole distribution, what is not cut off
    if span.probability == 1:
        length_W = np.ones(len(word_W), np.int64)
    else:
        length_W = 1 + np.floor(np.log1p(-uniform_W * reached) / np.log1p(-span.probability)).astype(np.int64)
    new_W = np.ones(len(word_W), np.bool_)
    for of_token_N in (source.sentence_N, source.epoch_N, source.showing_N):
        of_word_W = of_token_N[word_W]
        new_W[1:] &= of_word_W[1:] == of_word_W[:-1]
    new_W[1:] = ~new_W[1:]
    end_W = np.append(np.flatnonzero(new_W), len(word_W))[np.cumsum(new_W)]  # of each word's sentence
    next_W = np.arange(len(word_W)) + length_W
    starts_W = new_W
    reach = np.flatnonzero(new_W)
    while len(reach):
        reach = next_W[reach][next_W[reach] < end_W[reach]]
        starts_W[reach] = True
    return starts_W
