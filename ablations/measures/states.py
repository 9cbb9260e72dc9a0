"""What an encoder makes of the sampled token occurrences, layer by layer.

Letters: N tokens, D width.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ablations.measures.sample import Sample, is_text_token
from lightning_modules.data.batches import consecutive, pack
from lightning_modules.data.module import as_tensors, row_length
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.tokens import Split
from lightning_modules.evaluation import TOKENS_AT_ONCE
from lightning_modules.objective import Objective, shared_inputs


def layer_states(objective: Objective, split: Split, sample: Sample) -> list[NDArray[np.float32]]:
    """The states of the sampled occurrences in every layer: L + 1 arrays of shape ND.

    Uncorrupted text, evaluation mode, fp32, each token with its objective's own sight.
    """
    batches = states_in_batches(objective, split, sample)
    return [torch.cat(layer).numpy() for layer in zip(*batches, strict=True)]


def shown_states(
    objective: Objective, split: Split, sample: Sample, shown_N: NDArray[np.int64]
) -> list[NDArray[np.float32]]:
    """The same where the sampled occurrences are shown as other ids, one for each."""
    head = split.head(sample.sentences)
    ids = head.ids.copy()
    ids[is_text_token(ids)] = shown_N
    return layer_states(objective, replace(head, ids=ids), sample)


@torch.no_grad()
def states_in_batches(objective: Objective, split: Split, sample: Sample) -> Iterator[list[torch.Tensor]]:
    """The states of some occurrences after the other, on the CPU; which ones depends on the text alone.

    The sample must be whole, not some of its occurrences.
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
