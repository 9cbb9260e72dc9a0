"""Masking: which tokens are hidden, alone or in units (words, spans, n-grams), and what is shown instead.

A unit is a group of tokens that are hidden together. A token is identified by (epoch, sentence, offset). All
functions work on N tokens of any number of sentences at once. Lexica and label words decide which tokens may
be hidden.

Letters: N tokens of a batch, W their words, U their units, V vocabulary.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import MaskingSettings
from lightning_modules.config.masking import (
    PMI,
    Cloze,
    GenericWords,
    LabelWord,
    OwnSelection,
    Selection,
    Span,
    Uniform,
)
from lightning_modules.data.lexica import collocated, in_lexicon
from lightning_modules.data.packing import PackedRows
from lightning_modules.data.token_store import Split, Tokens, find_words, word_types
from lightning_modules.data.tokenizer import (
    FIRST_WORD_ID,
    MASK,
    UNKNOWN,
    is_punctuation,
    space_before,
    starts_word,
    word_starts,
)
from lightning_modules.errors import DataError
from lightning_modules.plugins import guarded
from lightning_modules.randomness import derive, uniforms


class Corrupted(NamedTuple):
    """Result of masking: ids that the encoder reads, and the tokens to predict."""

    shown_N: NDArray[np.int64]
    """Ids that the encoder reads. Hidden tokens are replaced by [MASK] or by a random token, or kept."""
    selected_N: NDArray[np.bool_]
    """Mask of the tokens to predict. It never selects a special token."""
    counts: NDArray[np.int64]
    """Numbers of tokens, as `COUNTED` names them."""


COUNTED = ("candidates", "hidden", "masked", "random", "random_unchanged", "kept")
"""Names of the entries of `Corrupted.counts`.

`candidates` are the tokens that may be hidden: those that are not special and that no lexicon forbids.
`random_unchanged` are random tokens that happen to equal the original; `random` includes them.
"""


def mask_tokens(
    source: PackedRows,
    masking: MaskingSettings,
    *,
    vocab_size: int,
    seed: int,
    ratio: float | None = None,
    candidate_N: NDArray[np.bool_] | None = None,
    joined_N: NDArray[np.bool_] | None = None,
) -> Corrupted:
    """Corrupt whole sentences as masked LM does (Devlin et al. 2019, section 3.1).

    In a sentence with n tokens that are not special, `ratio` times n tokens are hidden. `masking.count` says
    how this number is rounded; by default its mean is exact and its variance almost 0. (BERT hides at least
    one token, which hides far more than 15% of short sentences; `fixed` does so too.) Units are hidden whole,
    and all units of a sentence are equally likely. Each hidden token is then shown as [MASK], as a uniform
    draw from the non-special vocabulary, or unchanged, with the shares of `masking`.

    The tokens of one sentence must stand together, and all of them must be given. The result depends on
    (seed, epoch, sentence) and on the sentence itself, on nothing else.

    Args:
        ratio: masking ratio of this step. By default that of `masking`.
        candidate_N: which tokens a lexicon allows to be hidden. By default all that are not special.
        joined_N: which tokens are hidden together with the token before. By default each token is a unit.
    """
    key = derive(seed, "corruption")
    drawn_N = source.epoch_N if masking.copies is None else source.epoch_N % masking.copies
    of_copy = source._replace(epoch_N=drawn_N)
    ratio = masking.ratio if ratio is None else ratio
    is_text_N = source.ids_N >= FIRST_WORD_ID
    allowed_N = is_text_N if candidate_N is None else is_text_N & candidate_N
    start_N = _starts(source)  # not of_copy: a sentence may follow itself from the epoch before
    n_N, allowed_count_N = _sum_of_segment(is_text_N, start_N), _sum_of_segment(allowed_N, start_N)
    rotation_N = uniforms(key, drawn_N, source.sentence_N)
    leader_N = None if joined_N is None else _leaders(joined_N, allowed_N, start_N)
    point_N = _points(masking, allowed_N, leader_N, allowed_count_N, start_N, of_copy.draw(key, 0), rotation_N)
    hidden_N, selected_N = _chosen(masking, ratio, point_N, n_N, allowed_count_N, source.showing_N)
    hidden_N, selected_N = hidden_N & allowed_N, selected_N & allowed_N
    hidden = np.flatnonzero(hidden_N)
    # All tokens of a span are treated alike (Joshi et al. 2020, section 3.1); other units are not.
    treated = leader_N[hidden] if masking.select.kind == "span" and leader_N is not None else hidden
    treatment = of_copy.draw(key, 1, where=treated)
    masked = hidden[treatment < masking.mask]
    replaced = hidden[(treatment >= masking.mask) & (treatment < masking.mask + masking.random)]
    shown_N = source.ids_N.astype(np.int64)
    words = _random_words(of_copy.draw(key, 2, where=replaced), vocab_size - masking.random_differs)
    if masking.random_differs:  # any word but the original
        words += words >= shown_N[replaced]
    unchanged = np.count_nonzero(words == shown_N[replaced])
    shown_N[masked], shown_N[replaced] = MASK, words
    kept = len(hidden) - len(masked) - len(replaced)
    counts = [np.count_nonzero(allowed_N), len(hidden), len(masked), len(replaced), unchanged, kept]
    return Corrupted(shown_N, selected_N, np.array(counts))


def _chosen(
    masking: MaskingSettings,
    ratio: float,
    point_N: NDArray[np.float64],
    n_N: NDArray[np.int64],
    allowed_count_N: NDArray[np.int64],
    showing_N: NDArray[np.int64],
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the masks (hidden, predicted): a token is hidden if its point is in the window of its repetition."""
    counts = [ratio * n_N, (ratio if masking.predict is None else masking.predict) * n_N]
    if masking.count == "fixed":
        # The points of units of even and of odd length differ by half a token. With windows of whole width
        # both are hidden with the same probability.
        counts = [np.maximum(np.rint(count_N), 1) for count_N in counts]
    # With a lexicon as many tokens are hidden as without one, if it allows so many in the sentence.
    hidden_count_N, predicted_count_N = (np.minimum(count_N, allowed_count_N) for count_N in counts)
    first_N = showing_N * hidden_count_N
    hidden_N = (point_N - first_N) % np.maximum(allowed_count_N, 1) < hidden_count_N
    if masking.predict is None:
        return hidden_N, hidden_N
    return hidden_N, hidden_N & (point_N >= first_N) & (point_N < predicted_count_N)


def replace_tokens(source: PackedRows, share: float, *, vocab_size: int, seed: int) -> NDArray[np.int64]:
    """Return the ids after token dropout (Voita et al. 2019).

    With probability `share`, each token that is not special is replaced by a uniform draw from the
    non-special vocabulary. The result depends on (seed, epoch, sentence) alone.
    """
    if not share:
        return source.ids_N
    key = derive(seed, "token dropout")
    replaced_N = (source.ids_N >= FIRST_WORD_ID) & (source.draw(key, 0) < share)
    return np.where(replaced_N, _random_words(source.draw(key, 1), vocab_size), source.ids_N)


def _random_words(uniform: NDArray[np.float64], vocab_size: int) -> NDArray[np.int64]:
    """Return an id that stands for text for each number in [0, 1)."""
    return FIRST_WORD_ID + np.floor(uniform * (vocab_size - FIRST_WORD_ID)).astype(np.int64)


def _points(
    masking: MaskingSettings,
    allowed_N: NDArray[np.bool_],
    leader_N: NDArray[np.int64] | None,
    allowed_count_N: NDArray[np.int64],
    start_N: NDArray[np.int64],
    order_N: NDArray[np.float64],
    rotation_N: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return a point in [0, m) for each token; m is the number of tokens of its sentence that may be hidden.

    All tokens of a unit have the same point. A window hides the units whose points lie in it, and disjoint
    windows hide disjoint units.

    The units lie on a circle of length m in random order. The length of a unit is its number of tokens, and
    its point is its middle. The circle is turned by a random amount. So every unit is hidden with the same
    probability, whatever its length. If all units have length one, the number of hidden tokens is the window
    rounded up or down. `fixed` turns the circle by whole tokens only, so this number is not random.
    `independent` draws the point of each unit on its own.
    """
    m_N = np.maximum(allowed_count_N, 1)
    if masking.count == "independent":
        point_N = order_N * m_N
        return point_N if leader_N is None else point_N[leader_N]
    if leader_N is None:
        middle_N = rank_in_segment(np.where(allowed_N, order_N, 2.0), start_N) + 0.5
    else:
        middle_N = _middles(leader_N, allowed_N, order_N, start_N)
    turn_N = np.floor(rotation_N * m_N) if masking.count == "fixed" else rotation_N * m_N
    return (middle_N + turn_N) % m_N


def _leaders(
    joined_N: NDArray[np.bool_], allowed_N: NDArray[np.bool_], start_N: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the place of the first token of each token's unit.

    Tokens that may not be hidden are in no unit, and a unit may continue after them.
    """
    allowed = np.flatnonzero(allowed_N)
    leads = ~joined_N[allowed]
    leads[1:] |= np.diff(start_N[allowed]) > 0
    leads[:1] = True
    leader_N = np.arange(len(joined_N))
    leader_N[allowed] = allowed[np.maximum.accumulate(np.where(leads, np.arange(len(allowed)), 0))]
    return leader_N


def _middles(
    leader_N: NDArray[np.int64],
    allowed_N: NDArray[np.bool_],
    order_N: NDArray[np.float64],
    start_N: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the middle of each token's unit on a line of all units of its sentence, in random order.

    The length of a unit is its number of tokens that may be hidden.
    """
    size_N = np.bincount(leader_N[allowed_N], minlength=len(leader_N))
    lead_U = np.flatnonzero(size_N)
    size_U = size_N[lead_U]
    order_U = np.lexsort((order_N[lead_U], start_N[lead_U]))
    before = np.cumsum(size_U[order_U]) - size_U[order_U]
    first = np.searchsorted(start_N[lead_U], start_N[lead_U][order_U])  # the first unit of the same sentence
    middle = np.zeros(len(leader_N))
    middle[lead_U[order_U]] = before - before[first] + size_U[order_U] / 2
    return middle[leader_N]


def _starts(source: PackedRows) -> NDArray[np.int64]:
    """Return for each token the place where its sentence, or this repetition of its sentence, starts."""
    new = np.zeros(len(source.ids_N), dtype=bool)
    for column_N in (source.sentence_N, source.epoch_N, source.showing_N):
        new[1:] |= column_N[1:] != column_N[:-1]
    return np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))


def _sum_of_segment(values_N: NDArray[np.bool_], start_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for each token the number of tokens of its sentence with a true value."""
    return np.bincount(start_N, values_N, minlength=len(start_N)).astype(np.int64)[start_N]


def rank_in_segment(score_N: NDArray[np.float64], start_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rank of each score among those with the same start, from 0 for the smallest.

    Segments stand one after another, and each has the place of its first token as `start_N`.
    """
    order_N = np.lexsort((score_N, start_N))
    rank_N = np.empty(len(score_N), dtype=np.int64)
    rank_N[order_N] = np.arange(len(score_N)) - start_N[order_N]
    return rank_N


class Units:
    """Selection of masked LM (`objective.masking.select`), applied to the training text of a run."""

    def __init__(self, select: Selection | OwnSelection, tokens: Tokens, split: Split) -> None:
        """Prepare the selection from the text.

        Raises:
            DataError: no n-gram is frequent enough, the lexicon has no word of the text or leaves nothing to hide,
                or a label word is no token or was cut off.
            PluginError: the code of a user's own selection fails.
        """
        self._select = select
        self._candidate: NDArray[np.bool_] | None = None  # one value for each token of the split
        self._joined: NDArray[np.bool_] | None = None
        if isinstance(select, OwnSelection):
            self._candidate = _mask(select, "allowed", tokens, split)
            self._joined = _mask(select, "joined", tokens, split)
        elif not isinstance(select, Uniform):
            self._starts_V = starts_word(tokens.tokenizer)
        if isinstance(select, Cloze | GenericWords):
            self._candidate = _allowed(select, tokens, split, self._starts_V)
        elif isinstance(select, LabelWord):
            self._candidate = _label_tokens(tokens, split)
        elif isinstance(select, PMI):
            self._joined = _ngrams(select, split, self._starts_V)

    @property
    def allowed_N(self) -> NDArray[np.bool_] | None:
        """Mask of the tokens of the split that may be hidden; None means all. Ignore it at special tokens."""
        return self._candidate

    def candidates(self, source: PackedRows, *, epoch_N: NDArray[np.int64], seed: int) -> NDArray[np.bool_] | None:
        """Return which tokens of a batch may be hidden, shape N; None means all.

        Special tokens are never hidden, whatever their entry.

        With label words, either the label word of a sentence or its other tokens may be hidden. Which of them
        depends on (seed, epoch, sentence) alone.
        """
        if self._candidate is None:
            return None
        allowed_N = self._candidate[source.index_N]
        if not isinstance(self._select, LabelWord):
            return allowed_N
        chance_N = uniforms(derive(seed, "label word"), epoch_N, source.sentence_N)
        return allowed_N == (chance_N < self._select.probability)

    def joined(self, source: PackedRows, *, epoch_N: NDArray[np.int64], seed: int) -> NDArray[np.bool_] | None:
        """Return which tokens of a batch are hidden together with the token before them, shape N.

        Returns None if each token is hidden by itself. Both tokens are of the same sentence. Spans depend on
        (seed, epoch, sentence) and the sentence alone.
        """
        if self._joined is not None:
            return self._joined[source.index_N]
        if isinstance(self._select, Uniform | Cloze | GenericWords | LabelWord | OwnSelection):
            return None
        starts_N = word_starts(source.ids_N, self._starts_V, first_N=source.offset_N == 1)
        if isinstance(self._select, Span):
            starts_N[starts_N] = _span_starts(source, np.flatnonzero(starts_N), self._select, epoch_N, seed)
        return ~starts_N


def _mask(
    select: OwnSelection, name: Literal["allowed", "joined"], tokens: Tokens, split: Split
) -> NDArray[np.bool_] | None:
    """Return a mask over the tokens of a split from a plugin's selection; None if it makes none."""
    with guarded(select.plugin, setting="objective.masking.select"):
        mask_N = getattr(select, name)(tokens, split)
        mask_N = None if mask_N is None else np.asarray(mask_N)
    if mask_N is None:
        return None
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
    select: Cloze | GenericWords, tokens: Tokens, split: Split, starts_V: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which tokens of a split a lexicon allows to be hidden: the words of the list, without the punctuation
    in them, unless they have nothing else."""
    words = find_words(split.ids, starts_V)
    listed_W = in_lexicon(split.ids, words, tokens.tokenizer, set(select.words))
    piece_P, first_W = split.ids[words.token_N], np.cumsum(words.length_W) - words.length_W  # P: pieces of words
    is_mute_W = np.logical_and.reduceat(is_punctuation(tokens.tokenizer, or_space=True)[piece_P], first_W)
    is_mute_P, is_listed_P = (np.repeat(x_W, words.length_W) for x_W in (is_mute_W, listed_W))
    in_list_N = np.zeros(len(split.ids), np.bool_)
    in_list_N[words.token_N] = is_listed_P & (is_mute_P | ~is_punctuation(tokens.tokenizer)[piece_P])
    if not in_list_N.any():
        consequence = "nothing could be hidden" if isinstance(select, Cloze) else "it would change nothing"
        raise DataError(
            f"objective.masking.select: none of the words of the lexicon ({len(select.words):,}) occurs in "
            f"data.train, so {consequence}; give words that occur in the text."
        )
    if isinstance(select, Cloze):
        return in_list_N
    if listed_W.all():
        raise DataError(
            f"objective.masking.select: every word of data.train is in the lexicon ({len(select.words):,} "
            "words), so nothing could be hidden; give a shorter list."
        )
    return ~in_list_N


def _label_tokens(tokens: Tokens, split: Split) -> NDArray[np.bool_]:
    """Return which tokens of a split are the label words at the ends of its sentences."""
    ids, space = [], space_before(tokens.tokenizer)
    for word in tokens.report["settings"]["label_words"]:
        pieces = tokens.tokenizer.encode(space + word, add_special_tokens=False).ids
        if len(pieces) != 1:
            raise DataError(
                f"data.label_words: {word!r} is cut into {len(pieces)} sub-words, but must be one token; raise "
                "data.vocab_size, or choose a shorter word."
            )
        if pieces == [UNKNOWN] or pieces[0] in ids:
            raise DataError(
                f"data.label_words: {word!r} has no token of its own in the tokenizer; choose another word."
            )
        ids += pieces
    # A cut sentence may end with another label word, so the store's own count decides.
    if lost := tokens.report["splits"]["train"]["source"]["cut"]:
        raise DataError(
            f"objective.masking.select: the label words of {lost:,} of {len(tokens.train):,} sentences of "
            "data.train were cut off; raise data.max_length."
        )
    last_S = split.offsets[1:] - 2  # the last token before END
    is_label_N = np.zeros(len(split.ids), np.bool_)
    is_label_N[last_S] = True
    return is_label_N


def _ngrams(select: PMI, split: Split, starts_V: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which tokens of a split stand in the same word or n-gram as the token before them."""
    words = find_words(split.ids, starts_V)
    type_W, _ = word_types(split.ids, words)
    sentence_W = np.searchsorted(split.offsets, words.start_W, side="right") - 1
    joined_N = np.ones(len(split.ids), np.bool_)
    joined_N[words.start_W] = collocated(type_W, sentence_W, select)
    return joined_N


def _span_starts(
    source: PackedRows, word_W: NDArray[np.int64], span: Span, epoch_N: NDArray[np.int64], seed: int
) -> NDArray[np.bool_]:
    """Return which words of a batch begin a span: the first of a sentence, then each word after a span.

    Span lengths are geometric, cut off at `longest` and renormalised (Joshi et al. 2020: probability 0.2, at
    most 10, mean 3.8). The last span of a sentence ends with the sentence.
    """
    uniform_W = source._replace(epoch_N=epoch_N).draw(derive(seed, "spans"), where=word_W)
    if span.probability == 1:
        length_W = np.ones(len(word_W), np.int64)
    else:
        # The share of the distribution that is not cut off, exact also for a tiny probability.
        reached = -np.expm1(span.longest * np.log1p(-span.probability))
        length_W = 1 + np.floor(np.log1p(-uniform_W * reached) / np.log1p(-span.probability)).astype(np.int64)
    new_W = np.diff(_starts(source)[word_W], prepend=-1) > 0
    end_W = np.append(np.flatnonzero(new_W), len(word_W))[np.cumsum(new_W)]  # end of each word's sentence
    next_W = np.arange(len(word_W)) + length_W
    starts_W = new_W
    reach = np.flatnonzero(new_W)
    while len(reach):
        reach = next_W[reach][next_W[reach] < end_W[reach]]
        starts_W[reach] = True
    return starts_W
