"""States of a text in the layers of a Hugging Face model.

Sentences are read together only where they are equally long, so that no model sees padding.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ablations.analyse.model import HuggingFaceModel, hidden_states
from ablations.analyse.text import TokenisedText
from ablations.errors import MeasureError
from ablations.measures.reading.sample import Sample

TOKENS_AT_ONCE = 8192
"""Tokens that are read together."""


@torch.no_grad()
def states(
    model: HuggingFaceModel, text: TokenisedText, sample: Sample, *, tokens_at_once: int = TOKENS_AT_ONCE
) -> list[NDArray[np.float32]]:
    """Return the states of all text tokens of the sampled sentences, in their order.

    Returns:
        L + 1 arrays ND: what enters the first block, then what leaves each block.
    """
    place = np.cumsum(text.is_text) - 1
    layers_LND = [np.empty((len(sample), model.width), np.float32) for _ in range(model.layers + 1)]
    for index_BT in _batches(text, sample.sentences, tokens_at_once):
        is_text_BT = text.is_text[index_BT]
        inputs = {"input_ids": text.ids[index_BT], "attention_mask": np.ones_like(index_BT)}
        if text.types is not None:
            inputs["token_type_ids"] = text.types[index_BT]
        tensors = {name: torch.from_numpy(array).to(model.device) for name, array in inputs.items()}
        states_LBTD = hidden_states(model.model, tensors, final_norm=model.final_norm)
        for layer_ND, layer_BTD in zip(layers_LND, states_LBTD, strict=True):
            layer_ND[place[index_BT][is_text_BT]] = _rows(layer_BTD, is_text_BT)
    return layers_LND


def require_finite(layers_LND: list[NDArray[np.float32]], *, folder: Path) -> None:
    """Refuse states that no measure could read.

    Raises:
        MeasureError: a state holds NaN or infinity; the first layer that does is named.
    """
    for layer, states_ND in enumerate(layers_LND):
        broken = np.flatnonzero(~np.isfinite(states_ND).all(axis=1))
        if len(broken):
            hold = "holds" if len(broken) == 1 else "hold"
            raise MeasureError(
                f"{folder}: {len(broken):,} of {len(states_ND):,} states of layer {layer} {hold} NaN or "
                f"infinity, as of a diverged training or of damaged weights; give another checkpoint of the model."
            )


def _rows(layer_BTD: torch.Tensor, is_text_BT: NDArray[np.bool_]) -> NDArray[np.float32]:
    return layer_BTD[torch.from_numpy(is_text_BT).to(layer_BTD.device)].float().cpu().numpy()


def _batches(text: TokenisedText, sentences: int, tokens_at_once: int) -> Iterator[NDArray[np.int64]]:
    """Yield the places of the tokens of sentences of one length, a sentence a row; those without text are left
    out."""
    length_S = np.diff(text.offsets[: sentences + 1])
    before = np.concatenate([[0], np.cumsum(text.is_text)])
    has_text_S = before[text.offsets[1 : sentences + 1]] > before[text.offsets[:sentences]]
    for T in np.unique(length_S[has_text_S]).tolist():
        (same,) = np.nonzero(has_text_S & (length_S == T))
        rows = max(1, tokens_at_once // T)
        for first in range(0, len(same), rows):
            yield text.offsets[same[first : first + rows], None] + np.arange(T)
