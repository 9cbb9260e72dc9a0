"""Encoding of texts: rows of tokens that our encoders read, their states, and their TF-IDF vectors.

A text becomes START, its pieces, END. A pair becomes START, a, END, b, END, with b in the second segment if
the encoder has segments. A text that is classified at a mask becomes START, its pieces, [MASK], END. A row
that is longer than `max_length` loses pieces from the end of its text. In a pair the longer text loses first.

Letters: N examples, T positions, D width, L + 1 layers, P pieces.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer
from tokenizers import Encoding, Tokenizer

from ablations.errors import MeasureError
from ablations.measures.reading.labels import JOINED, joined_words, spaced_word, spans_of
from ablations.measures.reading.sample import is_text_token
from ablations.tasks.datasets import Task
from ablations.tasks.examples import Examples
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, MASK, PAD, START, space_before
from lightning_modules.objectives.objective import Batch, Objective
from lightning_modules.training.data_module import TOKENS_AT_ONCE

LENGTHS_TO = 8
"""Rows are padded to a multiple of this number, so that there are few different shapes."""

SPECIAL, FIRST, SECOND = 0, 1, 2
"""Text that a token of a row belongs to: none (special tokens), the first text, or the second."""

Integers = NDArray[np.int64]


class Row(NamedTuple):
    """One example as tokens."""

    ids_T: Integers
    part_T: Integers
    """Text of each token: SPECIAL, FIRST or SECOND. A [MASK] behind a text is FIRST, and the only one, because its
    state stands for the text."""
    word_T: Integers
    """Number of the word that each token begins, for tagging; -1 if it begins none."""
    span_T2: Integers
    """First character of each token in its text, and the one after its last; 0, 0 for special tokens."""
    cut: bool
    """Whether pieces were left out because the text is too long."""


@dataclass(frozen=True)
class EncodedTexts:
    """Examples as rows of tokens, in their order."""

    rows: list[Row]
    paired: bool = False
    """Whether each example has two texts, of which one may be empty."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths_N(self) -> Integers:
        return np.array([len(row.ids_T) for row in self.rows], dtype=np.int64)

    def batch(self, index_B: Integers) -> Batch:
        """Return some of the rows as a padded batch: `tokens_BT`, `sequence_BT`, `position_BT`, `segment_BT`,
        `part_BT`."""
        chosen = [self.rows[i] for i in index_B]
        longest = max(len(row.ids_T) for row in chosen)
        T = -(-longest // LENGTHS_TO) * LENGTHS_TO

        def grid(values: list[Integers], filler: int) -> torch.Tensor:
            padded_BT = np.full((len(values), T), filler)
            for padded_T, value_T in zip(padded_BT, values, strict=True):
                padded_T[: len(value_T)] = value_T
            return torch.from_numpy(padded_BT)

        tokens_BT = grid([row.ids_T for row in chosen], PAD)
        part_BT = grid([row.part_T for row in chosen], SPECIAL)
        after_first_BT = (part_BT == SECOND).long().cumsum(1).clamp(max=1)
        inside_BT = (tokens_BT != PAD).long()
        return {
            "tokens_BT": tokens_BT,
            "sequence_BT": inside_BT,
            # Padding may reach beyond `max_length`, where the encoder has no positions.
            "position_BT": torch.arange(T).clamp(max=longest - 1).expand_as(tokens_BT).contiguous(),
            "segment_BT": after_first_BT * inside_BT,
            "part_BT": part_BT,
        }

    def by_length(self) -> Iterator[Integers]:
        """Yield batches of row numbers of similar length. A batch has at most `TOKENS_AT_ONCE` tokens, or one
        row."""
        order_N = np.argsort(self.lengths_N, kind="stable")
        lengths_N = -(-self.lengths_N[order_N] // LENGTHS_TO) * LENGTHS_TO
        first = 0
        while first < len(order_N):
            last = first + 1
            while last < len(order_N) and (last + 1 - first) * lengths_N[last] <= TOKENS_AT_ONCE:
                last += 1
            yield order_N[first:last]
            first = last


def encode_examples(task: Task, examples: Examples, tokenizer: Tokenizer, *, max_length: int) -> EncodedTexts:
    """Return the examples of a task as tokens, one row for each."""
    if task.kind == "tagging":
        assert examples.words is not None
        return encode_words(examples.words, tokenizer, max_length=max_length)
    if task.reads == "mask":
        return encode_masked(examples.first, tokenizer, max_length=max_length)
    if examples.second is None:
        return encode_texts(examples.first, tokenizer, max_length=max_length)
    return encode_pairs(examples.first, examples.second, tokenizer, max_length=max_length)


class _Pieces(NamedTuple):
    """Pieces of a text without special tokens."""

    ids_P: Integers
    word_P: Integers
    span_P2: Integers


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer, *, max_length: int) -> EncodedTexts:
    """Return texts as tokens, one row for each."""
    return EncodedTexts([_row([(pieces, FIRST)], max_length) for pieces in _pieces(texts, tokenizer)])


def encode_masked(texts: Sequence[str], tokenizer: Tokenizer, *, max_length: int) -> EncodedTexts:
    """Return texts as tokens with [MASK] between each text and END. A text that is too long loses pieces, never
    the mask."""
    rows = encode_texts(texts, tokenizer, max_length=max_length - 1).rows
    return EncodedTexts([_with_mask(row) for row in rows])


def _with_mask(row: Row) -> Row:
    ids_T, word_T = np.insert(row.ids_T, -1, MASK), np.insert(row.word_T, -1, -1)
    part_T = np.where(np.arange(len(ids_T)) == len(ids_T) - 2, FIRST, SPECIAL)
    return Row(ids_T, part_T, word_T, np.insert(row.span_T2, -1, 0, axis=0), row.cut)


def encode_pairs(
    first: Sequence[str], second: Sequence[str], tokenizer: Tokenizer, *, max_length: int
) -> EncodedTexts:
    """Return pairs of texts as tokens, one row for each pair."""
    pairs = zip(_pieces(first, tokenizer), _pieces(second, tokenizer), strict=True)
    return EncodedTexts([_row([(a, FIRST), (b, SECOND)], max_length) for a, b in pairs], paired=True)


def encode_words(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, *, max_length: int) -> EncodedTexts:
    """Return sentences of given words as tokens, one row for each. Each word is cut into pieces by itself, as
    if a space stood before it.

    A word begins at the first piece that has a character of it. A space that is a piece of its own has none.
    Before punctuation such a space is left out, as in running text. A word of a script without spaces between
    words is cut without one (`joined_words`), but for the first word of a sentence. A tokenizer that puts no space
    before a sentence, such as GPT-2's, reads one before each word that begins with another letter or a digit, but
    for the first word of a sentence.
    """
    pairs = [pair for sentence in sentences for pair in zip([None, *sentence], sentence, strict=False)]
    pieces = _word_pieces(pairs, tokenizer)
    rows = []
    for sentence in sentences:
        words = [next(pieces) for _ in sentence]
        numbered = [word._replace(word_P=np.where(word.word_P == 0, i, -1)) for i, word in enumerate(words)]
        joined = _Pieces(*(np.concatenate(parts) for parts in zip(*numbered, strict=True)))
        rows.append(_row([(joined, FIRST)], max_length))
    return EncodedTexts(rows)


def _pieces(texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[_Pieces]:
    for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        yield _pieces_of(encoding)


def _pieces_of(encoding: Encoding) -> _Pieces:
    count = len(encoding.ids)
    spans_P2 = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    return _Pieces(np.array(encoding.ids, dtype=np.int64), np.full(count, -1), spans_P2)


def _word_pieces(words: Sequence[tuple[str | None, str]], tokenizer: Tokenizer) -> Iterator[_Pieces]:
    """Yield the pieces of each word, given as the word before it, if there is one, and the word. The piece that
    begins the word has number 0, the others -1."""
    space = space_before(tokenizer)
    texts = [word if before is None else spaced_word(space, word) for before, word in words]
    encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
    inside = ((before, word) for before, word in words if before is not None and re.match(JOINED, word))
    cut_inside = joined_words(inside, tokenizer)
    for (before, word), text, encoding in zip(words, texts, encodings, strict=True):
        if before is not None and (before, word) in cut_inside:
            ids, spans = cut_inside[before, word]
            yield _Pieces(np.array(ids), np.where(np.arange(len(ids)) == 0, 0, -1), np.array(spans))
            continue
        pieces = _pieces_of(encoding)
        inside_P = np.array([end > start for start, end in spans_of(encoding, text)], dtype=bool)
        word_P = np.where(inside_P & (inside_P.cumsum() == 1), 0, -1)
        joins = word and (before is not None if re.match(JOINED, word) else not word[0].isalnum())
        kept_P = inside_P if joins else np.ones_like(inside_P)
        yield _Pieces(pieces.ids_P[kept_P], word_P[kept_P], pieces.span_P2[kept_P])


def _row(parts: list[tuple[_Pieces, int]], max_length: int) -> Row:
    room = max_length - 1 - len(parts)
    lengths = [len(pieces.ids_P) for pieces, _ in parts]
    fair = room // len(parts)
    kept = [min(length, max(fair, room - (sum(lengths) - length))) for length in lengths]
    kept[-1] = min(lengths[-1], room - sum(kept[:-1]))  # of two equally long texts the first loses first
    ids, part, word, span = [np.array([START])], [np.array([SPECIAL])], [np.array([-1])], [np.zeros((1, 2), int)]
    for (pieces, name), count in zip(parts, kept, strict=True):
        ids += [pieces.ids_P[:count], np.array([END])]
        part += [np.full(count, name), np.array([SPECIAL])]
        word += [pieces.word_P[:count], np.array([-1])]
        span += [pieces.span_P2[:count], np.zeros((1, 2), int)]
    ids_T, part_T, word_T, span_T2 = (np.concatenate(x).astype(np.int64) for x in (ids, part, word, span))
    return Row(ids_T, part_T, word_T, span_T2, cut=sum(kept) < sum(lengths))


# States ----------------------------------------------------------------------------------------------


def encode_batch(objective: Objective, batch: Batch) -> tuple[torch.Tensor, ...]:
    """Return every layer of a batch of `EncodedTexts.batch`, with the attention that the objective allows.
    The top layer is as a head reads it."""
    on_device = {name: tensor.to(objective.device) for name, tensor in batch.items()}
    *layers, top_BTD = objective.encode(on_device)
    return *layers, objective.encoder.head_input(top_BTD)


def mean_over(states_BTD: torch.Tensor, inside_BT: torch.Tensor) -> torch.Tensor:
    """Return the mean state of the tokens that `inside_BT` marks, shape BD; 0 if there are none."""
    weight_BT1 = inside_BT.to(states_BTD.dtype)[..., None]
    return (states_BTD * weight_BT1).sum(1) / weight_BT1.sum(1).clamp(min=1)


@torch.no_grad()
def pooled_states(objective: Objective, rows: EncodedTexts) -> NDArray[np.float32]:
    """Return the mean state of each text in every layer: shape LND, or LNF for pairs, with F = 4 D.

    A pair becomes (a, b, |a - b|, a * b) of its two texts' means, as is usual since InferSent (Conneau et al.
    2017, section 3.3). Special tokens and padding are ignored.
    """
    objective.eval()
    features = pair_features if rows.paired else text_features
    states_LNF: NDArray[np.float32] | None = None
    for index_B in rows.by_length():
        batch = rows.batch(index_B)
        part_BT = batch["part_BT"].to(objective.device)
        layers = [features(layer_BTD, part_BT).float().cpu() for layer_BTD in encode_batch(objective, batch)]
        states_LBF = torch.stack(layers).numpy()
        if states_LNF is None:
            states_LNF = np.empty((len(layers), len(rows), states_LBF.shape[-1]), np.float32)
        states_LNF[:, index_B] = states_LBF
    assert states_LNF is not None, "no rows"
    require_numbers(states_LNF)
    return states_LNF


def require_numbers(states: NDArray[np.float32]) -> None:
    """Raise a MeasureError if a state is NaN."""
    if unknown := int(np.isnan(states).sum()):
        raise MeasureError(
            f"{unknown:,} of {states.size:,} values of the encoder's states are NaN; look for a diverged run, or "
            "for a fault in an objective of your own."
        )


def text_features(states_BTD: torch.Tensor, part_BT: torch.Tensor) -> torch.Tensor:
    """Return the mean state of each text, shape BD."""
    return mean_over(states_BTD, part_BT == FIRST)


def pair_features(states_BTD: torch.Tensor, part_BT: torch.Tensor) -> torch.Tensor:
    """Return the features of a pair from the means of its two texts, shape BF; see `pooled_states`."""
    first_BD, second_BD = (mean_over(states_BTD, part_BT == part) for part in (FIRST, SECOND))
    return torch.cat([first_BD, second_BD, (first_BD - second_BD).abs(), first_BD * second_BD], dim=-1)


class WordStates(NamedTuple):
    """States of words, sentence by sentence."""

    states_LWD: NDArray[np.float32]
    """States of the first piece of each word."""
    row_W: Integers
    """Number of the sentence of each word."""
    word_W: Integers
    """Number of each word in its sentence. Words that `max_length` cut off are missing."""


@torch.no_grad()
def word_states(objective: Objective, rows: EncodedTexts) -> WordStates:
    """Return the states of the words of tagged sentences in every layer. A word has the state of its first
    piece (Devlin et al. 2019, section 5.3)."""
    objective.eval()
    row_W = np.concatenate([np.full((row.word_T >= 0).sum(), i) for i, row in enumerate(rows.rows)])
    word_W = np.concatenate([row.word_T[row.word_T >= 0] for row in rows.rows])
    start_N = np.searchsorted(row_W, np.arange(len(rows)))
    states_LWD: NDArray[np.float32] | None = None
    for index_B in rows.by_length():
        batch = rows.batch(index_B)
        layers = encode_batch(objective, batch)
        if states_LWD is None:
            states_LWD = np.empty((len(layers), len(row_W), layers[0].shape[-1]), np.float32)
        for layer, layer_BTD in enumerate(layers):
            states_BTD = layer_BTD.float().cpu().numpy()
            for states_TD, i in zip(states_BTD, index_B, strict=True):
                place_T = np.flatnonzero(rows.rows[i].word_T >= 0)
                states_LWD[layer, start_N[i] : start_N[i] + len(place_T)] = states_TD[place_T]
    assert states_LWD is not None, "no rows"
    require_numbers(states_LWD)
    return WordStates(states_LWD, row_W, word_W)


def term_counts(split: Split, *, vocab_size: int) -> csr_matrix:
    """Return how often each id occurs in each sentence, without special ids; shape S x V."""
    text_N = is_text_token(split.ids)
    sentence_N = np.repeat(np.arange(len(split)), split.lengths)
    ones = np.ones(int(text_N.sum()))
    return csr_matrix((ones, (sentence_N[text_N], split.ids[text_N])), shape=(len(split), vocab_size))


def tfidf_features(split: Split, *, train: Split, vocab_size: int) -> csr_matrix:
    """Return TF-IDF vectors of sentences: counts times (log((1 + S) / (1 + df)) + 1), at unit length; shape S
    x V.

    S is the number of sentences of `train`, and df the number of these that have the id. A sentence without
    text is 0.
    """
    weights = TfidfTransformer().fit(term_counts(train, vocab_size=vocab_size))
    return weights.transform(term_counts(split, vocab_size=vocab_size))
