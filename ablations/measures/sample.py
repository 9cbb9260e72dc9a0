"""Which token occurrences a measure reads: the same in every arm and every run on the same text.

Letters: N tokens, D width.
"""

import hashlib
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ablations.errors import MeasureError
from lightning_modules.data.batches import consecutive, pack
from lightning_modules.data.module import as_tensors, row_length
from lightning_modules.data.tokens import Split
from lightning_modules.evaluation import TOKENS_AT_ONCE
from lightning_modules.objective import Objective, shared_inputs
from lightning_modules.vocabulary import FIRST_WORD_ID, UNKNOWN


class Sample(NamedTuple):
    """Token occurrences of whole sentences, special tokens left out, in the order of the text."""

    sentences: int
    """How many sentences, from the start of the split, they come from."""
    token_N: NDArray[np.int64]
    sentence_N: NDArray[np.int64]
    position_N: NDArray[np.int64]

    @property
    def digest(self) -> str:
        """Ten hex digits that two samples share only when they are the same occurrences."""
        parts = (self.token_N, self.sentence_N, self.position_N)
        return hashlib.sha256(b"".join(part.astype("<i8").tobytes() for part in parts)).hexdigest()[:10]


def first_tokens(split: Split, tokens: int) -> Sample:
    """The occurrences in the split's first sentences, as many whole sentences as hold at most `tokens`.

    Raises:
        MeasureError: not one sentence fits.
    """
    ids = np.asarray(split.ids, dtype=np.int64)
    is_text = is_text_token(ids)
    text_lengths = np.add.reduceat(is_text.astype(np.int64), split.offsets[:-1])
    sentences = int(np.searchsorted(np.cumsum(text_lengths), tokens, side="right"))
    if not sentences or not text_lengths[:sentences].sum():
        raise MeasureError(
            f"the validation text has no sentence within {tokens:,} tokens that a measure could read; "
            f"raise the measure's `tokens`, or give more validation text."
        )
    end = int(split.offsets[sentences])
    lengths = split.lengths[:sentences]
    sentence = np.repeat(np.arange(sentences), lengths)
    position = np.arange(end) - np.repeat(split.offsets[:sentences], lengths)
    keep = is_text[:end]
    return Sample(sentences, ids[:end][keep], sentence[keep], position[keep])


def is_text_token(ids: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Tokens that stand for text: an unknown piece does, the other special ids do not."""
    return (ids >= FIRST_WORD_ID) | (ids == UNKNOWN)


@torch.no_grad()
def layer_states(objective: Objective, split: Split, sample: Sample) -> list[NDArray[np.float32]]:
    """The states of the sampled occurrences in every layer: L + 1 arrays of shape ND.

    Uncorrupted text, evaluation mode, fp32, each token with its objective's own sight.
    """
    objective.eval()
    head = Split(
        ids=split.ids[: split.offsets[sample.sentences]],
        offsets=split.offsets[: sample.sentences + 1],
        documents=split.documents[: sample.sentences],
        target_ids=None,
        target_offsets=None,
    )
    parts: list[list[torch.Tensor]] = []
    for step in consecutive(head.lengths, tokens_per_step=TOKENS_AT_ONCE):
        packed = pack(head, step, row_length=row_length(head))
        batch = as_tensors(shared_inputs(packed, packed.source.ids_N))
        layers = objective.encode({name: tensor.to(objective.device) for name, tensor in batch.items()})
        place = packed.source.place_N[is_text_token(packed.source.ids_N)]
        index = torch.from_numpy(place).to(objective.device)
        parts.append([layer_BTD.flatten(0, 1)[index].float().cpu() for layer_BTD in layers])
    return [torch.cat(layer).numpy() for layer in zip(*parts, strict=True)]
