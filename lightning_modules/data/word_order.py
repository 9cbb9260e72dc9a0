"""Training text of a run: some of its sentences, with words in another order or drawn anew (Sinha et al.
2021, section 3).

A unit is moved as a whole. It is a word with all its pieces or, if sub-words are moved, a single piece. The
tokenizer cuts each word by itself. To move the pieces of words as groups is therefore the same as to move the
words before the text is cut into sub-words.

Random numbers are keyed by (seed, sentence or block, number of the unit in it), never by the epoch. The work
is done in chunks of sentences, whose size does not change the result.

Letters: S sentences, N tokens, W units, G groups of units that stay together, K places where a group may
start, C types (different units), V vocabulary.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import RunSettings
from lightning_modules.config.masking import OwnSelection, Uniform
from lightning_modules.config.training import Blocks, Corpus, Natural, NGrams, UniformDraw, WordOrder
from lightning_modules.data.token_store import (
    Split,
    Tokens,
    Words,
    find_words,
    ranges,
    word_types,
)
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START, UNKNOWN, starts_word
from lightning_modules.errors import DataError
from lightning_modules.randomness import derive, uniforms

TOKENS_AT_ONCE = 1 << 18
"""Tokens of a chunk. They bound the memory, apart from the new text itself and from longer blocks."""

Integers = NDArray[np.int64]


def reordered(
    split: Split, order: WordOrder, *, starts_V: NDArray[np.bool_], max_length: int, seed: int
) -> tuple[Split, dict[str, Any]]:
    """Return the sentences with their units in another order, and a manifest of what that changed.

    Documents, the number of sentences and the translations stay. A new sentence is START, its units, END. If
    it is longer than `max_length`, it loses whole units from its end; a first unit that alone is too long
    loses its last pieces. The order `ngrams` keeps the length of every sentence that fits, and its result
    depends on (seed, number of the sentence, the sentence) alone. For the natural order `split` itself is
    returned.

    If words are shuffled, the tokens are those of the shuffled text. If sub-words are shuffled, a sentence
    may begin with a piece that begins no word, and words can no longer be told apart.

    The manifest is plain JSON: `order`, `seed`, `sentences`, `natural_tokens` (before), `tokens` (after), and

    - `words`: number of units of the new text.
    - `moved_share`: share of these that differ, by type, from the unit at the same place of the natural
      sentence; 0 if there are no units.
    - `bigrams_survived_share`: share of the adjacent pairs of units in the new sentences that are, by type,
      an adjacent pair of the same natural sentence; 1 if there are no pairs.
    - `cut_sentences`: number of sentences that lost something to `max_length`.

    Args:
        split: natural text.
        starts_V: mask of the ids that begin a word, as `tokenizer.starts_word` returns it.
        max_length: longest sentence in tokens, START and END included.

    Raises:
        DataError: words are to be moved, but the first piece of a sentence does not begin one.
    """
    assert max_length > 2, "a sentence needs room for START, END and a piece"
    cut_sentences = 0
    if isinstance(order, Natural):
        words = len(find_words(split.ids, starts_V).start_W)
        new, changed = split, {"words": words, "moved_share": 0.0, "bigrams_survived_share": 1.0}
    else:
        if order.unit == "words":
            _require_first_words(split, starts_V)
        begins_V = starts_V if order.unit == "words" else _is_piece(len(starts_V))
        text = _Text(split.ids, split.offsets, begins_V)
        new_text, cut_sentences = _written(text, order, room=max_length - 2, key=derive(seed, "word order"))
        new = Split(new_text.ids_N, new_text.offsets, split.documents, split.target_ids, split.target_offsets)
        changed = _changed(text, new_text)
    manifest = {"order": order.model_dump(mode="json"), "seed": seed, "sentences": len(new)}
    manifest |= {"natural_tokens": len(split.ids), "tokens": len(new.ids)}
    return new, manifest | changed | {"cut_sentences": cut_sentences}


# Units -----------------------------------------------------------------------------------------------


class _Units(NamedTuple):
    """Units of consecutive sentences, in order."""

    words: Words
    """Places of the units among the tokens of the whole text."""
    sentence_W: Integers
    """Number of each unit's sentence in the whole text."""
    index_W: Integers
    """Number of each unit in its sentence, from 0."""
    count_S: Integers
    """Number of units of each sentence."""


class _Text(NamedTuple):
    """Sentences one after the other, and the ids that begin a unit."""

    ids_N: NDArray[np.unsignedinteger]
    offsets: Integers
    """Shape S + 1, as in `Split`."""
    begins_V: NDArray[np.bool_]
    """Mask of the ids that begin a unit; the other pieces continue it."""

    def chunks(self, tokens: int) -> Iterator[tuple[int, int]]:
        """Yield (first, last) of consecutive sentences with at most so many tokens, or of one longer
        sentence; `last` is the sentence after them."""
        first = 0
        while first < len(self.offsets) - 1:
            within = int(np.searchsorted(self.offsets, self.offsets[first] + tokens, side="right")) - 1
            yield first, max(first + 1, within)
            first = max(first + 1, within)

    def units(self, first: int, last: int) -> _Units:
        """Return the units of the sentences from `first` to before `last`."""
        offsets = self.offsets[first : last + 1]
        ids_N = self.ids_N[offsets[0] : offsets[-1]]
        start_W, length_W = find_words(ids_N, self.begins_V)
        bounds = np.searchsorted(start_W, offsets - offsets[0])
        count_S = np.diff(bounds)
        index_W = np.arange(len(start_W)) - np.repeat(bounds[:-1], count_S)
        sentence_W = np.repeat(np.arange(first, last), count_S)
        return _Units(Words(start_W + offsets[0], length_W), sentence_W, index_W, count_S)


def _is_piece(V: int) -> NDArray[np.bool_]:
    """Return a mask of the ids that stand for text, shape V: all but special ids, and the unknown byte."""
    is_piece_V = np.arange(V) >= FIRST_WORD_ID
    is_piece_V[UNKNOWN] = True
    return is_piece_V


def _units_before(text: _Text) -> Integers:
    """Return the number of units before each sentence, and of all units at the end. Shape S + 1."""
    count_S = [text.units(first, last).count_S for first, last in text.chunks(TOKENS_AT_ONCE)]
    return np.concatenate([np.zeros(1, np.int64), *count_S]).cumsum()


# Orders: the unit for each place of some sentences, which keep their numbers of units -----------------


def _arranger(text: _Text, order: NGrams | Blocks | Corpus | UniformDraw, key: int) -> Callable[[_Units], Words]:
    match order:
        case NGrams(n=n):
            return lambda units: _ngrams(units, n, key)
        case Blocks(length=length):
            before_S = _units_before(text)
            return lambda units: _blocks(text, units, before_S, length, key)
        case Corpus():
            return lambda units: _drawn_by_frequency(text, units, key)
        case UniformDraw():
            types = _types(text)
            return lambda units: _drawn_by_type(types, units, key)


def _ngrams(units: _Units, n: int, key: int) -> Words:
    """Shuffle every sentence by itself: disjoint groups of n units, and the other units, in a random cyclic
    order.

    In a cyclic order the i-th group of the new sentence is never the i-th of the natural one, unless it is
    the only one. For n = 1 no unit keeps its place.
    """

    def draw(place: Integers, purpose: int) -> NDArray[np.float64]:
        return uniforms(key, units.sentence_W[place], units.index_W[place], np.array([purpose]))

    W = len(units.index_W)
    opens_group_W = np.ones(W, bool)
    if n > 1:
        to_end_W = np.repeat(units.count_S, units.count_S) - units.index_W
        start_K = np.flatnonzero(to_end_W >= n)
        joined = disjoint_starts(start_K, draw(start_K, 0), n=n)
        opens_group_W[joined[:, None] + np.arange(1, n)] = False
    start_G = np.flatnonzero(opens_group_W)
    order_G = _cyclic(units.sentence_W[start_G], draw(start_G, 1))
    order_W = ranges(start_G[order_G], np.diff(start_G, append=W)[order_G])
    return Words(units.words.start_W[order_W], units.words.length_W[order_W])


def disjoint_starts(start_K: Integers, priority_K: NDArray[np.float64], *, n: int) -> Integers:
    """Return starts of n units each that do not overlap, rising. They are chosen one by one, smallest
    priority first.

    With uniform priorities, every choice is one of the starts that still fit, all equally likely. The work is
    done in rounds: each round chooses every start whose priority is smaller than that of all starts that it
    overlaps.

    Args:
        start_K: places in rising order. Two that are closer than n exclude each other. (Starts in two
            sentences never are: the n units of one end before the other begins.)
        priority_K: priority of each start. Ties go to the place on the left.
    """
    chosen = [start_K[:0]]
    while len(start_K):
        first_K = np.ones(len(start_K), bool)
        for shift in range(1, n):
            overlap = start_K[shift:] - start_K[:-shift] < n
            left_first = priority_K[:-shift] <= priority_K[shift:]
            first_K[shift:] &= ~(overlap & left_first)
            first_K[:-shift] &= ~overlap | left_first
        chosen.append(start_K[first_K])
        left = np.maximum.accumulate(np.where(first_K, start_K, start_K[0] - n))
        right = np.minimum.accumulate(np.where(first_K, start_K, start_K[-1] + n)[::-1])[::-1]
        open_K = (start_K - left >= n) & (right - start_K >= n)
        start_K, priority_K = start_K[open_K], priority_K[open_K]
    return np.sort(np.concatenate(chosen))


def _blocks(text: _Text, units: _Units, before_S: Integers, length: int, key: int) -> Words:
    """Shuffle blocks of `length` units of the whole text, each in a random cyclic order. The last block may
    be shorter.

    Args:
        before_S: number of units before each sentence of the whole text, as `_units_before` returns it.
    """
    if not len(units.index_W):
        return units.words
    begin, end = before_S[units.sentence_W[0]], before_S[units.sentence_W[-1] + 1]
    low, high = begin // length * length, min(-(-end // length) * length, before_S[-1])  # of whole blocks
    first = int(np.searchsorted(before_S, low, side="right")) - 1
    around = text.units(first, int(np.searchsorted(before_S, high))).words
    number_W = np.arange(low, high)
    order_W = _cyclic(number_W // length, uniforms(key, number_W // length, number_W % length))
    order_W = order_W[begin - low : end - low] + low - before_S[first]
    return Words(around.start_W[order_W], around.length_W[order_W])


def _cyclic(segment_W: Integers, chance_W: NDArray[np.float64]) -> Integers:
    """Return the unit that stands at each place: in every segment a permutation of a single cycle, all of
    these equally likely.

    The units of a segment form a circle, sorted by their random numbers. Each unit gives its place to the
    next.

    Args:
        segment_W: number of each unit's segment, never falling.
        chance_W: random number of each unit.
    """
    circle_W = np.lexsort((chance_W, segment_W))
    next_W = np.roll(circle_W, -1)
    next_W[np.diff(segment_W, append=-1) != 0] = circle_W[np.diff(segment_W, prepend=-1) != 0]
    order_W = np.empty_like(circle_W)
    order_W[circle_W] = next_W
    return order_W


def _drawn_by_frequency(text: _Text, units: _Units, key: int) -> Words:
    """Draw for every unit a unit of the whole text: random tokens are drawn until one begins a unit."""
    start_W = np.zeros(len(units.index_W), np.int64)
    open_W, attempt = np.arange(len(start_W)), 0
    while len(open_W):
        chance = uniforms(key, units.sentence_W[open_W], units.index_W[open_W], np.array([attempt]))
        start_W[open_W] = chance * len(text.ids_N)
        open_W, attempt = open_W[~text.begins_V[text.ids_N[start_W[open_W]]]], attempt + 1
    continues_V = _is_piece(len(text.begins_V)) & ~text.begins_V
    length_W, open_W = np.ones_like(start_W), np.arange(len(start_W))
    while len(open_W):  # ends, since the last token is END, which continues no unit
        open_W = open_W[continues_V[text.ids_N[start_W[open_W] + length_W[open_W]]]]
        length_W[open_W] += 1
    return Words(start_W, length_W)


def _drawn_by_type(types: Words, units: _Units, key: int) -> Words:
    """Draw for every unit one of the types, all equally likely."""
    type_W = (uniforms(key, units.sentence_W, units.index_W) * len(types.start_W)).astype(np.int64)
    return Words(types.start_W[type_W], types.length_W[type_W])


def _types(text: _Text) -> Words:
    """Return one unit of each type of the text, in an order that depends on the types alone."""
    types = Words(np.empty(0, np.int64), np.empty(0, np.int64))
    for first, last in text.chunks(4 * TOKENS_AT_ONCE):  # every chunk is compared with all types before it
        words_of_chunk = text.units(first, last).words
        words = Words(
            np.append(types.start_W, words_of_chunk.start_W), np.append(types.length_W, words_of_chunk.length_W)
        )
        _, first_C = word_types(text.ids_N, words)
        types = Words(words.start_W[first_C], words.length_W[first_C])
    return types


# The new text, and counts of its changes ---------------------------------------------------------------


def _written(
    text: _Text, order: NGrams | Blocks | Corpus | UniformDraw, *, room: int, key: int
) -> tuple[_Text, int]:
    """Return the new text, with at most `room` pieces a sentence, and the number of sentences that were cut."""
    arrange = _arranger(text, order, key)
    # Blocks that reach over the ends of a chunk are arranged twice, so long blocks get longer chunks.
    tokens = max(TOKENS_AT_ONCE, 4 * order.length) if isinstance(order, Blocks) else TOKENS_AT_ONCE
    parts, lengths, cut_sentences = [text.ids_N[:0]], [np.zeros(1, np.int64)], 0
    for first, last in text.chunks(tokens):
        units = text.units(first, last)
        words = arrange(units)
        kept_W, kept_S, cut = _fitted(words.length_W, units, room)
        ends_S = (kept_S + 2).cumsum()
        starts_S = ends_S - kept_S - 2
        ids_N, is_piece_N = np.full(ends_S[-1], END, text.ids_N.dtype), np.ones(ends_S[-1], bool)
        ids_N[starts_S] = START
        is_piece_N[starts_S] = is_piece_N[ends_S - 1] = False
        ids_N[is_piece_N] = text.ids_N[ranges(words.start_W, kept_W)]
        parts.append(ids_N)
        lengths.append(kept_S + 2)
        cut_sentences += cut
    return _Text(np.concatenate(parts), np.concatenate(lengths).cumsum(), text.begins_V), cut_sentences


def _fitted(length_W: Integers, units: _Units, room: int) -> tuple[Integers, Integers, int]:
    """Return the number of kept pieces of each unit and of each sentence, and the number of sentences that
    lose some. Units are kept whole or not at all; of a first unit, the pieces that fit are kept."""
    bounds = np.append(0, units.count_S.cumsum())
    before = np.append(0, length_W.cumsum())
    end_W = before[1:] - np.repeat(before[bounds[:-1]], units.count_S)
    kept_W = np.where(units.index_W == 0, np.minimum(length_W, room), length_W * (end_W <= room))
    kept_S = np.diff(np.append(0, kept_W.cumsum())[bounds])
    return kept_W, kept_S, int((kept_S < np.diff(before[bounds])).sum())


def _changed(natural: _Text, new: _Text) -> dict[str, Any]:
    """Return the part of the manifest that counts units, from the texts alone."""
    words = moved = pairs = survived = 0
    for first, last in natural.chunks(TOKENS_AT_ONCE):
        S = last - first
        ids = [text.ids_N[text.offsets[first] : text.offsets[last]] for text in (natural, new)]
        lengths = [np.diff(text.offsets[first : last + 1]) for text in (natural, new)]
        both = _Text(np.concatenate(ids), np.append(0, np.concatenate(lengths).cumsum()), natural.begins_V)
        units = both.units(0, 2 * S)
        type_W, _ = word_types(both.ids_N, units.words)
        is_new_W, sentence_W = units.sentence_W >= S, units.sentence_W % S
        starts_S = (units.count_S.cumsum() - units.count_S)[:S]
        same_place_W = starts_S[sentence_W[is_new_W]] + units.index_W[is_new_W]
        words += len(same_place_W)
        moved += int((type_W[same_place_W] != type_W[is_new_W]).sum())
        # One number for (sentence, type, next type), below 2^63 as long as a chunk has below 3 million tokens.
        pair_W = (sentence_W[1:] * len(type_W) + type_W[:-1]) * len(type_W) + type_W[1:]
        inside_W = units.index_W[1:] > 0
        old_pairs, new_pairs = np.sort(pair_W[inside_W & ~is_new_W[1:]]), pair_W[inside_W & is_new_W[1:]]
        place = np.minimum(np.searchsorted(old_pairs, new_pairs), len(old_pairs) - 1)  # faster than np.isin
        pairs += len(new_pairs)
        survived += int((old_pairs[place] == new_pairs).sum())
    return {
        "words": words,
        "moved_share": moved / words if words else 0.0,
        "bigrams_survived_share": survived / pairs if pairs else 1.0,
    }


def training_text(run: RunSettings, tokens: Tokens) -> tuple[Split, dict[str, Any] | None]:
    """Return the training sentences of a run, and the manifest of what another word order changed. The
    manifest is None if the order is natural, as it always is for a run without steps.

    Raises:
        DataError: words are to be moved or hidden in a text that does not allow it (`require_words`).
    """
    training = run.training
    natural = tokens.train if training.sentences is None else tokens.train.head(training.sentences)
    if not training.max_steps:
        return natural, None
    require_words(run, tokens)
    if training.word_order.kind == "natural":
        return natural, None
    return reordered(
        natural,
        training.word_order,
        starts_V=starts_word(tokens.tokenizer),
        max_length=run.data.max_length,
        seed=run.seed_of("order"),
    )


def require_words(run: RunSettings, tokens: Tokens) -> None:
    """Raise a DataError if words are to be moved or hidden as wholes, but the text has no spaces between words; or
    if they are to be moved, but the tokenizer does not mark the first word of a sentence as the start of a
    word."""
    masking, order = getattr(run.objective, "masking", None), run.training.word_order
    if masking is not None and not isinstance(masking.select, Uniform | OwnSelection):
        _require_boundaries(
            tokens, setting=f"objective.masking.select: {masking.select.kind}", instead="use uniform"
        )
    if order.kind != "natural" and order.unit == "words":
        _require_boundaries(tokens, setting="training.word_order", instead="set its unit to sub_words")
        _require_first_words(tokens.train, starts_word(tokens.tokenizer))


def _require_boundaries(tokens: Tokens, *, setting: str, instead: str) -> None:
    """Raise a DataError if sentences of several words hold less than half of the training tokens.

    Args:
        setting: name of the setting that needs words.
        instead: advice on what works without words.
    """
    if tokens.share_with_words < 0.5:
        raise DataError(
            f"{setting} needs words, but sentences with a space between two words hold only "
            f"{tokens.share_with_words:.1%} of the tokens of data.train, expected at least half; {instead}, which "
            "needs no words."
        )


def _require_first_words(split: Split, starts_V: NDArray[np.bool_]) -> None:
    """Raise a DataError if a sentence has pieces and its first one begins no word."""
    first_S = split.ids[split.offsets[:-1] + 1]
    lacking = np.count_nonzero(~starts_V[first_S] & (first_S != END))
    if lacking:
        raise DataError(
            "word_order moves words with the spaces before them, but this tokenizer puts no space before the "
            f"first word of a sentence ({lacking:,} of {len(split):,} sentences), like that of GPT-2; set "
            "training.word_order.unit to sub_words, or use another data.tokenizer."
        )
