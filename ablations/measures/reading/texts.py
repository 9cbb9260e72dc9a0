"""Texts that the measures of a checkpoint read (the validation text, a treebank, or sentences), and the states
of their tokens, layer by layer.

Letters: N tokens, D width.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.measures.reading.labels import Labels, labelled_split, labels_of_split
from ablations.measures.reading.sample import Sample, first_tokens, is_text_token
from ablations.measures.settings import LabelledSettings, StateSettings
from ablations.wording import listed
from lightning_modules.config import Data, LanguageData
from lightning_modules.data.packing import consecutive, pack
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import END, PAD, encode
from lightning_modules.data.treebank import language_sentences, read_treebank
from lightning_modules.errors import CheckpointError
from lightning_modules.model.encoder import Encoder
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective, shared_inputs
from lightning_modules.training.checkpoint import load_weights
from lightning_modules.training.data_module import TOKENS_AT_ONCE, as_tensors, load_tokens, row_length
from lightning_modules.training.run_directory import RunDirectory


def layer_states(objective: Objective, split: Split, sample: Sample) -> list[NDArray[np.float32]]:
    """Return the states of the sampled occurrences in every layer: L + 1 arrays of shape ND.

    The text is not corrupted. The encoder is in evaluation mode and fp32, and each token sees what the
    objective lets it see.
    """
    batches = states_in_batches(objective, split, sample)
    return [torch.cat(layer).numpy() for layer in zip(*batches, strict=True)]


def padded(sentences: Iterable[NDArray[np.integer]]) -> torch.Tensor:
    """Return sentences as rows of ids, with PAD on the right."""
    rows = [torch.from_numpy(ids.astype(np.int64)) for ids in sentences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def shown_states(
    objective: Objective, split: Split, sample: Sample, shown_N: NDArray[np.int64]
) -> list[NDArray[np.float32]]:
    """Return the states of the sampled occurrences after each token was replaced by another id (`shown_N`)."""
    head = split.head(sample.sentences)
    ids = head.ids.copy()
    ids[is_text_token(ids)] = shown_N
    return layer_states(objective, replace(head, ids=ids), sample)


@torch.no_grad()
def states_in_batches(objective: Objective, split: Split, sample: Sample) -> Iterator[list[torch.Tensor]]:
    """Yield the states of the occurrences batch by batch, on the CPU. The batches depend on the text alone.

    The sample must have all occurrences of its sentences, not a selection.
    """
    objective.eval()
    head = split.head(sample.sentences)
    for step in consecutive(single_sentences(head, np.arange(len(head))), tokens_per_step=TOKENS_AT_ONCE):
        packed = pack(head, step, row_length=row_length(head))
        batch = as_tensors(shared_inputs(packed, packed.source.ids_N))
        layers = objective.encode({name: tensor.to(objective.device) for name, tensor in batch.items()})
        place = packed.source.place_N[is_text_token(packed.source.ids_N)]
        index = torch.from_numpy(place).to(objective.device)
        yield [layer_BTD.flatten(0, 1)[index].float().cpu() for layer_BTD in layers]


Say = Callable[[str], None]
"""Function that reports the progress of long work. It may raise an error to stop the work."""

Shared = TypeVar("Shared")

WORDS_PER_SUB_WORD = 1.5
"""Number of words of a treebank that are read for each sub-word that is wanted."""


class Reading(NamedTuple):
    """Sentences, and those of their tokens that are measured."""

    split: Split
    sample: Sample


def validation_text(tokens: Tokens, data: Data, count: int) -> Reading:
    """Return the first sentences of the validation text, as many as hold at most `count` text tokens.

    Text of the built-in language has labels. Frequency ranks are those of the training text.

    Raises:
        MeasureError: no sentence fits.
    """
    split, counts_V = tokens.validation, tokens.source_counts_V
    sample = first_tokens(split, count, counts_V=counts_V)
    if isinstance(data, LanguageData):
        read = split.head(sample.sentences)
        labels = _language_labels(_LanguageText(tokens.address, data, read.ids.tobytes(), read, tokens))
        sample = first_tokens(read, count, counts_V=counts_V, labels=labels.codes, names=labels.names)
    return Reading(split, sample)


@dataclass(frozen=True)
class _LanguageText:
    """First sentences of the validation text of the built-in language. Equal texts have equal labels."""

    address: str
    data: LanguageData
    ids: bytes
    split: Split = field(compare=False)
    tokens: Tokens = field(compare=False)


@lru_cache(maxsize=4)
def _language_labels(text: _LanguageText) -> Labels:
    """Return the labels of a text. Runs on the same text that one process measures share them."""
    sentences = language_sentences(text.data.seed, "validation", len(text.split))
    return labels_of_split(text.split, sentences, text.tokens.tokenizer, max_length=text.data.max_length)


def treebank_text(tokens: Tokens, path: Path, count: int, max_length: int) -> Reading:
    """Return the first sentences of a treebank, cut by the tokenizer of a run, as many as hold at most
    `count` text tokens.

    Raises:
        DataError: the file is missing or damaged.
        MeasureError: no sentence fits, or one does not have the words of its text.
    """
    sentences = read_treebank(path)
    # A sentence has about as many sub-words as words, or more: sentences far behind need not be cut and
    # aligned.
    words = itertools.accumulate(min(len(sentence.words), max_length - 2) for sentence in sentences)
    near = sum(total <= WORDS_PER_SUB_WORD * count for total in words) + 1
    split, split_labels = labelled_split(sentences[:near], tokens.tokenizer, max_length=max_length)
    sample = first_tokens(
        split, count, counts_V=tokens.source_counts_V, labels=split_labels.codes, names=split_labels.names
    )
    return Reading(split, sample)


class Texts:
    """Texts of a run's data that measures may read. Each is read once."""

    def __init__(self, tokens: Tokens, data: Data, *, data_root: Path) -> None:
        self.tokens, self.data, self.data_root = tokens, data, data_root
        self._read: dict[tuple[str | None, int], Reading] = {}

    def validation(self, settings: StateSettings) -> Reading:
        """Return `validation_text` for the settings, without the labels that their treebank has, if they name
        one."""
        text = self._once(None, settings.tokens, lambda: validation_text(self.tokens, self.data, settings.tokens))
        if isinstance(settings, LabelledSettings) and settings.treebank is not None:
            senses = {name: label_N for name, label_N in text.sample.labels.items() if name == "sense"}
            return text._replace(sample=replace(text.sample, labels=senses))
        return text

    def treebank(self, path: str, settings: StateSettings) -> Reading:
        """Return `treebank_text` for a file; relative paths start at the data root."""
        place, length = self.data_root / path, self.data.max_length
        return self._once(
            path, settings.tokens, lambda: treebank_text(self.tokens, place, settings.tokens, length)
        )

    def sentences(self, sentences: Sequence[str]) -> Reading:
        """Return sentences of your own with all their tokens, cut by the tokenizer of the run as in training. A
        sentence of more than `data.max_length` tokens is cut.

        Frequency ranks are those of the training text.

        Raises:
            MeasureError: there is no sentence, one has no sub-word, or `sentences` is a single text.
        """
        if isinstance(sentences, str):
            raise MeasureError("sentences must be a list of texts, but is one text; write it in brackets.")
        tokenizer, length = self.tokens.tokenizer, self.data.max_length
        texts = [" ".join(text.split()) for text in sentences]  # as in a corpus
        ids = [[*whole[:-1][: length - 1], END] for whole in encode(tokenizer, texts)]
        if empty := [number for number, of_sentence in enumerate(ids) if len(of_sentence) == 2]:
            raise MeasureError(f"sentences[{empty[0]}] has no sub-word; leave it out.")
        if not ids:
            raise MeasureError("there is no sentence; give one or more.")
        split = Split.of_sentences(ids, vocab_size=tokenizer.get_vocab_size())
        return Reading(split, first_tokens(split, len(split.ids), counts_V=self.tokens.source_counts_V))

    def _once(self, path: str | None, count: int, read: Callable[[], Reading]) -> Reading:
        if (path, count) not in self._read:
            self._read[path, count] = read()
        return self._read[path, count]


class Readings:
    """States of an encoder on its texts. The states of the last text, and what the measures of the last task
    share, are kept for the next measure."""

    def __init__(self, objective: Objective, tokens: Tokens, *, data_root: Path) -> None:
        self.objective, self.tokens = objective, tokens
        self.texts = Texts(tokens, objective.run.data, data_root=data_root)
        self._states: dict[str, list[NDArray[np.float32]]] = {}
        self._shared: dict[str, Any] = {}

    @classmethod
    def of_run(cls, run_dir: Path | str, *, data_root: Path = Path(), step: int | None = None) -> "Readings":
        """Return the readings of a trained run, as its measures have them.

        Args:
            run_dir: folder of the run, such as OUT/runs/mlm-s0-82d8f17d1a.
            data_root: folder where relative paths of the run's text start.
            step: step of a checkpoint that was kept. Default: the last checkpoint.

        Raises:
            RunDirectoryError: the folder is not that of a run.
            CheckpointError: there is no such checkpoint, or it is damaged.
            DataError: the text is not stored as tokens, and has changed since the run was planned.
        """
        directory = RunDirectory(Path(run_dir).absolute())
        tokens = load_tokens(directory, data_root=data_root)
        objective = build(directory.settings(), tokens)
        kept = directory.kept_checkpoints()
        if step is not None and step not in kept:
            steps = listed([f"{kept_step:,}" for kept_step in kept] or ["none"], "and")
            raise CheckpointError(f"{run_dir} has no checkpoint of step {step:,}; the kept ones are {steps}.")
        load_weights(objective, directory.last_checkpoint if step is None else kept[step])
        return cls(objective, tokens, data_root=data_root)

    def states(self, reading: Reading) -> list[NDArray[np.float32]]:
        """Return the states of the tokens in every layer: L + 1 arrays of shape ND."""
        digest = reading.sample.digest
        if digest not in self._states:
            self._states.clear()  # one text's states at a time: they are the largest thing in memory
            self._states[digest] = layer_states(self.objective, reading.split, reading.sample)
        return self._states[digest]

    @torch.no_grad()
    def after_final_norm(self, reading: Reading) -> NDArray[np.float32] | None:
        """Return the states of the top layer as a head reads them, shape ND; None if no norm stands above all
        blocks."""
        encoder = self.objective.encoder
        if not isinstance(encoder, Encoder) or not encoder.pre_norm:
            return None
        parts = torch.from_numpy(self.states(reading)[-1]).split(TOKENS_AT_ONCE)
        return torch.cat([encoder.head_input(part.to(self.objective.device)).cpu() for part in parts]).numpy()

    def shared(self, task: str, make: Callable[[], Shared]) -> Shared:
        """Return the object that the measures of a task share. `make` makes it for the first of them, and it
        is kept until another task comes."""
        if task not in self._shared:
            self._shared.clear()  # one task's states at a time, to save memory
            self._shared[task] = make()
        value: Shared = self._shared[task]
        return value

    def forget_states(self) -> None:
        """Forget all states. It must be called when the weights of the encoder have changed."""
        self._states.clear()
        self._shared.clear()

    def shown(self, reading: Reading, shown_N: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        """Return the states of the tokens in every layer when other ids are shown in their places."""
        return shown_states(self.objective, reading.split, reading.sample, shown_N)
