"""The states of a text in the layers of a Hugging Face model.

Sentences are read together only where they are equally long: a model never sees padding, which some read as text.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.hugging_face import HuggingFaceModel, require_a_state_each
from ablations.hugging_face_blocks import layers, returned
from ablations.hugging_face_text import TokenisedText
from ablations.measures.sample import Sample

TOKENS_AT_ONCE = 8192
"""Tokens that are read together."""


class States(NamedTuple):
    """What a model makes of the text tokens of some sentences, in their order."""

    layers_LND: list[NDArray[np.float32]]
    """L + 1 arrays: what goes into the first block, then what leaves each block."""
    normalised_ND: NDArray[np.float32] | None
    """The last of them after the model's final norm; None if it has none, or changes the width there."""


@torch.no_grad()
def states(
    model: HuggingFaceModel, text: TokenisedText, sample: Sample, *, tokens_at_once: int = TOKENS_AT_ONCE
) -> States:
    """The states of the sampled occurrences: of all text tokens of the first sentences.

    Raises:
        MeasureError: the model makes more or fewer states than there are tokens.
    """
    place = np.cumsum(text.is_text) - 1
    layers_LND = [np.empty((len(sample), model.width), np.float32) for _ in range(model.layers + 1)]
    normalised_ND: NDArray[np.float32] | None = None
    for index_BT in _batches(text, sample.sentences, tokens_at_once):
        is_text_BT = text.is_text[index_BT]
        inputs = {"input_ids": text.ids[index_BT], "attention_mask": np.ones_like(index_BT)}
        if text.types is not None:
            inputs["token_type_ids"] = text.types[index_BT]
        tensors = {name: torch.from_numpy(array).to(model.device) for name, array in inputs.items()}
        found = returned(model.model, tensors)
        require_a_state_each(found.states, tokens=index_BT.shape[1], model=model.model, folder=model.folder)
        states_LBTD, final_BTD = layers(found, model.layout)
        for layer_ND, layer_BTD in zip(layers_LND, states_LBTD, strict=True):
            layer_ND[place[index_BT][is_text_BT]] = _rows(layer_BTD, is_text_BT)
        if model.layout.has_final_norm and final_BTD.shape[-1] == model.width:
            normalised_ND = np.empty_like(layers_LND[-1]) if normalised_ND is None else normalised_ND
            normalised_ND[place[index_BT][is_text_BT]] = _rows(final_BTD, is_text_BT)
    return States(layers_LND, normalised_ND)


def require_finite(found: States, *, folder: Path) -> None:
    """Refuse what no measure could read.

    Raises:
        MeasureError: a state holds NaN or infinity; the first layer that does is named.
    """
    layers = {f"layer {layer}": states_ND for layer, states_ND in enumerate(found.layers_LND)}
    if found.normalised_ND is not None:
        layers["the last layer after the final norm"] = found.normalised_ND
    for name, states_ND in layers.items():
        broken = np.flatnonzero(~np.isfinite(states_ND).all(axis=1))
        if len(broken):
            hold = "holds" if len(broken) == 1 else "hold"
            raise MeasureError(
                f"{folder}: {len(broken):,} of {len(states_ND):,} states of {name} {hold} NaN or "
                f"infinity, as of a diverged training or of damaged weights; give another checkpoint of the model."
            )


def _rows(layer_BTD: torch.Tensor, is_text_BT: NDArray[np.bool_]) -> NDArray[np.float32]:
    return layer_BTD[torch.from_numpy(is_text_BT).to(layer_BTD.device)].float().cpu().numpy()


def _batches(text: TokenisedText, sentences: int, tokens_at_once: int) -> Iterator[NDArray[np.int64]]:
    """Where the tokens of sentences of one length stand, a sentence a row; those without text are left out."""
    length_S = np.diff(text.offsets[: sentences + 1])
    before = np.concatenate([[0], np.cumsum(text.is_text)])
    has_text_S = before[text.offsets[1 : sentences + 1]] > before[text.offsets[:sentences]]
    for T in np.unique(length_S[has_text_S]).tolist():
        (same,) = np.nonzero(has_text_S & (length_S == T))
        rows = max(1, tokens_at_once // T)
        for first in range(0, len(same), rows):
            yield text.offsets[same[first : first + rows], None] + np.arange(T)
