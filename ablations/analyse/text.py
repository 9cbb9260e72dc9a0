"""Text in the tokens of a Hugging Face model, and the hidden states of these tokens.

Each sentence is read on its own, with the model's special tokens around it. The text is not that of an
experiment: it may have any format that `data` of kind `files` reads.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ablations.analyse.model import HuggingFaceModel, hidden_states, require_ids
from ablations.errors import MeasureError
from ablations.measures.reading.labels import Span, spans_of, token_labels
from ablations.measures.reading.sample import Sample, whole_sentences
from ablations.wording import listed, shown
from lightning_modules.data.tables import ENDINGS, Columns, file_source, format_of, text_columns
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START
from lightning_modules.data.treebank import LabelledSentence
from lightning_modules.errors import DataError
from lightning_modules.model.numerics import out_of_memory

USUAL_COLUMN = "text"


def sentences(path: Path, *, column: str | None = None) -> Iterator[str]:
    """Yield the sentences of a file, each on one line with single spaces; empty rows are left out.

    Args:
        column: column of a table. By default the column `text`, or the only one with text.

    Raises:
        DataError: the file is missing, empty, damaged or of another format, or it is not clear which column is
            meant.
    """
    if not path.is_file():
        raise DataError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; give a file with text.")
    ending = format_of(path)
    if ending is None:
        raise DataError(
            f"{path} has an unknown ending, expected {listed(ENDINGS)} (all except "
            "parquet also with .gz); convert or rename the file."
        )
    if ending == ".txt" and column is not None:
        raise DataError(f"{path} is plain text, which has no columns; leave --column out.")
    name = USUAL_COLUMN if ending == ".txt" else _column(path, column)
    source, any_sentence = file_source(path, Columns(name)), False
    for cells in source.cells():
        if not isinstance(cells.text, str):
            raise DataError(
                f"{path}, {source.unit} {cells.number}: column {name!r} has {shown(cells.text)}, expected text; "
                "correct or remove this row."
            )
        if line := " ".join(cells.text.split()):
            any_sentence = True
            yield line
    if not any_sentence:
        raise DataError(f"{path} has no sentences; give a file with text.")


def _column(path: Path, column: str | None) -> str:
    names = text_columns(path)
    if column is None and USUAL_COLUMN not in names and len(names) == 1:
        return names[0]
    name = USUAL_COLUMN if column is None else column
    if name not in names:
        in_file = ", ".join(map(repr, names)) or "none"
        raise DataError(
            f"{path} has no column {name!r} with text (columns with text: {in_file}); name one of these with "
            "--column."
        )
    return name


SENTENCES_AT_ONCE = 1000
"""Number of sentences that are tokenised before the next are read."""


class TokenisedText(NamedTuple):
    """Sentences as a model reads them, one after the other. Sentence i is `[offsets[i]:offsets[i + 1]]`."""

    ids: NDArray[np.int64]
    """Ids of the tokenizer."""
    types: NDArray[np.int64] | None
    """Segment of each token. None if the model does not read segments."""
    is_text: NDArray[np.bool_]
    """Whether each token is text. Unknown pieces are text. Special tokens are not text, even if the sentence
    spells them out. White space alone between two special tokens is not text."""
    spans: NDArray[np.int64] | None
    """Place of each token in its sentence, in characters: its first, and the one after its last; (0, 0) for a
    token without characters. None for a slow tokenizer, which does not give places."""
    offsets: NDArray[np.int64]
    cut_S: NDArray[np.bool_]
    """Whether each sentence was longer than the model allows, so that its end was dropped."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def codes(self) -> NDArray[np.int64]:
        """Ids in our numbering: text tokens are numbered from FIRST_WORD_ID in the order of their ids.

        Special tokens are START before the text of a sentence and END after it.
        """
        codes = np.empty_like(self.ids)
        codes[self.is_text] = np.unique(self.ids[self.is_text], return_inverse=True)[1] + FIRST_WORD_ID
        before = np.concatenate([[0], np.cumsum(self.is_text)])
        seen = before[:-1] > np.repeat(before[self.offsets[:-1]], np.diff(self.offsets))
        codes[~self.is_text] = np.where(seen, END, START)[~self.is_text]
        return codes

    def text_spans(self) -> list[list[Span]]:
        """Return the spans of the text tokens of each sentence. The tokenizer must be fast."""
        assert self.spans is not None
        bounds = zip(self.offsets[:-1], self.offsets[1:], strict=True)
        return [list(map(tuple, self.spans[a:b][self.is_text[a:b]].tolist())) for a, b in bounds]


def tokenise(model: HuggingFaceModel, sentences: Iterable[str], *, tokens: int) -> TokenisedText:
    """Tokenise sentences from the start until they hold more than `tokens` text tokens, or until the end.

    Raises:
        MeasureError: the tokenizer gives ids that the model does not have, or knows no token of the text.
    """
    parts: list[TokenisedText] = []
    remaining, text_tokens = iter(sentences), 0
    while text_tokens <= tokens and (next_sentences := list(islice(remaining, SENTENCES_AT_ONCE))):
        parts.append(_tokenise(model, next_sentences))
        text_tokens += int(parts[-1].is_text.sum())
    unknown = model.tokenizer.unk_token_id
    if not any((part.ids[part.is_text] != unknown).any() for part in parts):
        raise MeasureError(
            f"the tokenizer of {model.folder} makes no tokens from the text except special and unknown ones; give "
            "text in the language of the model."
        )
    text = TokenisedText(
        ids=np.concatenate([part.ids for part in parts]),
        types=_joined([part.types for part in parts]),
        is_text=np.concatenate([part.is_text for part in parts]),
        spans=_joined([part.spans for part in parts]),
        offsets=np.cumsum(np.concatenate([[0], *(np.diff(part.offsets) for part in parts)])),
        cut_S=np.concatenate([part.cut_S for part in parts]),
    )
    require_ids(model, int(text.ids.max()))
    return text


def sample_of(text: TokenisedText, *, tokens: int, source: Path) -> Sample:
    """Return a sample of the most whole sentences that hold at most `tokens` text tokens.

    Its ids are `TokenisedText.codes`.

    Raises:
        MeasureError: the first sentence has more tokens.
    """
    before_S = np.concatenate([[0], np.cumsum(text.is_text)])[text.offsets]
    if not before_S[before_S <= tokens].any():
        raise MeasureError(
            f"{source}: the first sentence has {before_S[before_S > 0][0]:,} tokens, but --tokens allows only "
            f"{tokens:,}; raise --tokens."
        )
    return whole_sentences(text.codes, text.offsets, text.is_text, tokens)


class ReadText(NamedTuple):
    """Text as a model reads it, and the tokens that are measured."""

    text: TokenisedText
    sample: Sample
    cut: int
    """Number of sentences of the sample that are longer than the model allows."""


def read_by_all(
    models: Sequence[HuggingFaceModel],
    source: Path,
    *,
    gold: Sequence[LabelledSentence],
    column: str | None,
    tokens: int,
) -> list[ReadText]:
    """Return the text as each model reads it, with the same sentences for all models.

    The samples have as many whole sentences from the start as hold at most `tokens` text tokens of every
    model.

    Args:
        gold: sentences with labels. Without them the samples have no labels.

    Raises:
        MeasureError: as `tokenise`, `sample_of` and `labelled`.
    """
    texts = [
        tokenise(model, list(islice(sentences(source, column=column), tokens + 1)), tokens=tokens)
        for model in models
    ]
    samples = [sample_of(text, tokens=tokens, source=source) for text in texts]
    fewest = min(sample.sentences for sample in samples)
    read = []
    for text, sample in zip(texts, samples, strict=True):
        if sample.sentences > fewest:
            sample = sample_of(text, tokens=int(text.is_text[: text.offsets[fewest]].sum()), source=source)
        cut = int(text.cut_S[: sample.sentences].sum())
        read.append(ReadText(text, labelled(sample, text, gold) if gold else sample, cut))
    return read


def labelled(sample: Sample, tokenised: TokenisedText, gold: Sequence[LabelledSentence]) -> Sample:
    """Return the sample with labels for the tokens of its sentences, which are the first ones of `gold`.

    Raises:
        MeasureError: a sentence in `gold` has other words than the text, or the tokenizer is not fast.
    """
    if tokenised.spans is None:
        raise MeasureError(
            "the model's tokenizer does not give the positions of its tokens in the text; give a model with a "
            "tokenizer.json, or leave --labels out."
        )
    token_facts = token_labels(gold[: sample.sentences], tokenised.text_spans()[: sample.sentences])
    return replace(sample, labels=token_facts.codes, names=token_facts.names)


def _tokenise(model: HuggingFaceModel, sentences: list[str]) -> TokenisedText:
    tokenizer, longest = model.tokenizer, model.max_length
    encoded = _encode(tokenizer, sentences)
    cut_S = np.array([longest is not None and len(ids) > longest for ids in encoded["input_ids"]])
    if too_long := np.flatnonzero(cut_S).tolist():
        encoded_cut = _encode(tokenizer, [sentences[i] for i in too_long], truncation=True, max_length=longest)
        for name, values in encoded_cut.items():
            for i, value in zip(too_long, values, strict=True):
                encoded[name][i] = value
    ids = _flat(encoded["input_ids"])
    offsets = np.cumsum([0, *map(len, encoded["input_ids"])])
    marks = {getattr(tokenizer, f"{mark}_token_id") for mark in ("bos", "eos", "cls", "sep", "mask")}
    # The text may spell out special tokens. Unknown tokens are text, unless they are also a mark (GPT-2).
    special = set(tokenizer.all_special_ids) - ({tokenizer.unk_token_id} - marks)
    is_text = (_flat(encoded["special_tokens_mask"]) == 0) & ~np.isin(ids, list(special))
    reads_types = "token_type_ids" in encoded and "token_type_ids" in model.accepts
    return TokenisedText(
        ids=ids,
        types=_flat(encoded["token_type_ids"]) if reads_types else None,
        is_text=is_text & ~_space_alone(tokenizer, ids, is_text, offsets),
        spans=_flat(encoded["spans"]).reshape(-1, 2) if "spans" in encoded else None,
        offsets=offsets,
        cut_S=cut_S,
    )


def _space_alone(
    tokenizer: Any, ids: NDArray[np.int64], is_text: NDArray[np.bool_], offsets: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which text tokens are only white space between special tokens or the ends of a sentence.

    White space beside a word belongs to the text that the model reads. Single bytes of a letter are decoded
    together, because one byte alone is no letter.
    """
    distinct, place = np.unique(ids, return_inverse=True)
    has_word = np.array([bool(tokenizer.decode([i]).strip()) for i in distinct.tolist()], dtype=np.bool_)[place]
    begins = is_text & ~np.concatenate([[False], is_text[:-1]])
    begins |= is_text & np.isin(np.arange(len(ids)), offsets)
    stretch = np.cumsum(begins)
    alone = is_text & (np.bincount(stretch, weights=is_text & has_word)[stretch] == 0)
    for number in np.unique(stretch[alone]).tolist():
        of_it = alone & (stretch == number)
        alone[of_it] = not tokenizer.decode(ids[of_it].tolist()).strip()
    return alone


def _encode(tokenizer: Any, sentences: list[str], **options: Any) -> dict[str, list[list[Any]]]:
    encoded = tokenizer(
        sentences,
        add_special_tokens=True,
        return_special_tokens_mask=True,
        verbose=False,
        **{"truncation": False} | options,
    )
    if not tokenizer.is_fast:
        return dict(encoded)
    pairs = zip(encoded.encodings, sentences, strict=True)
    return dict(encoded) | {"spans": [spans_of(encoding, text) for encoding, text in pairs]}


def _flat(lists: list[list[Any]]) -> NDArray[np.int64]:
    return np.array([value for values in lists for value in values], dtype=np.int64)


def _joined(parts: list[NDArray[np.int64] | None]) -> NDArray[np.int64] | None:
    present = [part for part in parts if part is not None]
    return np.concatenate(present) if len(present) == len(parts) else None


TOKENS_AT_ONCE = 8192
"""Number of tokens that the model reads at once."""


@torch.no_grad()
def states(
    model: HuggingFaceModel, text: TokenisedText, sample: Sample, *, tokens_at_once: int = TOKENS_AT_ONCE
) -> list[NDArray[np.float32]]:
    """Return the hidden states of all text tokens of the sampled sentences, in their order.

    Returns:
        L + 1 arrays ND: the input of the first block, then the output of each block.

    Raises:
        MeasureError: a sentence is too long for the memory.
    """
    place = np.cumsum(text.is_text) - 1
    layers_LND = [np.empty((len(sample), model.width), np.float32) for _ in range(model.layers + 1)]
    for index_BT in _batches(text, sample.sentences, tokens_at_once):
        is_text_BT = text.is_text[index_BT]
        inputs = {"input_ids": text.ids[index_BT], "attention_mask": np.ones_like(index_BT)}
        if text.types is not None:
            inputs["token_type_ids"] = text.types[index_BT]
        tensors = {name: torch.from_numpy(array).to(model.device) for name, array in inputs.items()}
        try:
            states_LBTD = hidden_states(model.model, tensors, final_norm=model.final_norm)
        except (RuntimeError, MemoryError) as error:
            if (reason := out_of_memory(error)) is None:
                raise
            raise MeasureError(
                f"{model.folder}: a sentence has {index_BT.shape[1]:,} tokens, and there is {reason}; "
                "put each sentence on a line of its own."
            ) from error
        for layer_ND, layer_BTD in zip(layers_LND, states_LBTD, strict=True):
            layer_ND[place[index_BT][is_text_BT]] = (
                layer_BTD[torch.from_numpy(is_text_BT).to(layer_BTD.device)].float().cpu().numpy()
            )
    return layers_LND


def require_finite(layers_LND: list[NDArray[np.float32]], *, folder: Path) -> None:
    """Raise a MeasureError that names the first layer whose states hold NaN or infinity, if there is one."""
    for layer, states_ND in enumerate(layers_LND):
        broken = np.flatnonzero(~np.isfinite(states_ND).all(axis=1))
        if len(broken):
            hold = "holds" if len(broken) == 1 else "hold"
            raise MeasureError(
                f"{folder}: {len(broken):,} of {len(states_ND):,} states of layer {layer} {hold} NaN or "
                "infinity, because training diverged or the weights are damaged; give another checkpoint of "
                "the model."
            )


def _batches(text: TokenisedText, sentences: int, tokens_at_once: int) -> Iterator[NDArray[np.int64]]:
    """Yield indices of the tokens of sentences of one length, a sentence a row, for sentences with text."""
    length_S = np.diff(text.offsets[: sentences + 1])
    before = np.concatenate([[0], np.cumsum(text.is_text)])
    has_text_S = before[text.offsets[1 : sentences + 1]] > before[text.offsets[:sentences]]
    for T in np.unique(length_S[has_text_S]).tolist():
        (sentence_B,) = np.nonzero(has_text_S & (length_S == T))
        rows = max(1, tokens_at_once // T)
        for first in range(0, len(sentence_B), rows):
            yield text.offsets[sentence_B[first : first + rows], None] + np.arange(T)
