"""A model from a local Hugging Face folder, without a network and without executing anything from the folder.

Of an encoder-decoder it is the encoder, of every other model all but its head. Where its states are, whether a
norm follows the last block and which weights the states depend on: the model itself is asked, not its name.
"""

import inspect
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ablations.errors import MeasureError
from ablations.hugging_face_blocks import PROBE, Layout, layers, layout_of, probed
from ablations.hugging_face_folder import (
    LOCAL,
    checked_config,
    identity,
    library,
    reason,
    saved_step,
    tokenizer_of,
    weight_files,
)

# Eager attention is what every model has, in float32 and on any device.
OPTIONS = {"dtype": torch.float32, "attn_implementation": "eager"}

NO_LIMIT = 10**9
"""Tokenizers without a longest input give a number far above this."""


@dataclass(frozen=True)
class HuggingFaceModel:
    """An encoder with its tokenizer, in float32 and evaluation mode, on the GPU if there is one."""

    folder: Path
    run_id: str
    """Ten hex digits of the weights' bytes and config.json: the same for the same model in another folder."""
    step: int | None
    """At which it was saved; None where that is not known."""
    model: Any
    tokenizer: Any
    max_length: int | None
    """Longest input in tokens, special tokens included; None where there is no longest."""
    ids: int | None
    """How many ids it knows, where it says so."""
    heads: int | None
    """Of attention, where it says so."""
    layers: int
    """Blocks; there is one more state."""
    width: int
    layout: Layout
    """How the states that it returns stand to its blocks."""

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @property
    def accepts(self) -> set[str]:
        """Names of the inputs that the model takes."""
        return set(inspect.signature(self.model.forward).parameters)

    @property
    def parameters(self) -> int:
        """How many numbers the encoder has learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())


def load(folder: Path) -> HuggingFaceModel:
    """The model in the folder; heads, decoders and poolers are left out.

    Raises:
        MeasureError: the extra [hf] is not installed; or the folder is missing, incomplete or damaged, or holds a
            model that needs code of its own, whose weights are another model's, or that returns no states.
    """
    config = checked_config(folder)
    with library() as transformers:
        try:
            whole, loading = transformers.AutoModel.from_pretrained(
                folder, output_loading_info=True, ignore_mismatched_sizes=True, **OPTIONS, **LOCAL
            )
        except pickle.UnpicklingError as error:
            raise MeasureError(
                f"{folder}: its weights hold something else than tensors and were not opened; save them as "
                f"safetensors."
            ) from error
        except Exception as error:  # whatever a damaged folder makes transformers raise
            raise MeasureError(
                f"{folder}: the model cannot be loaded ({reason(error)}); make or copy the folder again."
            ) from error
    model, tokenizer = _ready(whole), tokenizer_of(folder)
    found = _shape(model, folder)
    _require_weights(model, whole, found.layout, loading, folder)
    return HuggingFaceModel(
        folder=folder,
        run_id=identity(config, weight_files(folder)),
        step=saved_step(folder),
        model=model,
        tokenizer=tokenizer,
        max_length=_max_length(whole, tokenizer),
        ids=getattr(whole.get_input_embeddings(), "num_embeddings", None),
        heads=getattr(whole.config, "num_attention_heads", None),
        **found._asdict(),
    )


def untrained(trained: HuggingFaceModel, *, seed: int) -> HuggingFaceModel:
    """The same architecture and tokenizer with random weights, such as its training would start from."""
    config = checked_config(trained.folder)
    with library() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = transformers.AutoConfig.from_pretrained(trained.folder, **LOCAL)
        whole = transformers.AutoModel.from_config(settings, trust_remote_code=False, **OPTIONS)
    return replace(trained, run_id=identity(config | {"untrained": seed}, []), step=0, model=_ready(whole))


def _ready(whole: Any) -> Any:
    """The encoder of an encoder-decoder, also of one that was saved without its decoder; else the model itself."""
    encoder = whole.get_encoder()  # of BERT and others it is a part, without the embeddings
    stands_alone = whole.config.is_encoder_decoder or hasattr(encoder, "config_class")
    model = encoder if stands_alone else whole
    if getattr(model.config, "rescale_every", 0):
        # RWKV halves its states every few blocks lest they overflow in half precision. In float32 they do not, and
        # a halving would count as what a block changes; no direction depends on it.
        model.config.rescale_every = 0
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


# Asking the model -------------------------------------------------------------------------------------


class _Shape(NamedTuple):
    width: int
    layers: int
    layout: Layout


@torch.no_grad()
def _shape(model: Any, folder: Path) -> _Shape:
    """Width, number of blocks, and how the states stand to them."""
    name = type(model).__name__
    try:
        found = probed(model)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        with library() as transformers:
            running = f"transformers {transformers.__version__}"
        raise MeasureError(
            f"{folder}: {name}, of model_type {model.config.model_type!r}, does not run in {running} on the ids "
            f"of a text alone ({reason(error)}); analyse a model of text, or try another version of transformers."
        ) from error
    if len(found.states) < 2 or any(state.dim() != 3 for state in found.states):
        raise MeasureError(
            f"{folder}: {name} does not return a state of each token in each layer, which every measure reads; "
            f"analyse an encoder or a language model that does."
        )
    require_a_state_each(found.states, tokens=PROBE[1], model=model, folder=folder)
    layout = layout_of(found)
    if layout is None:
        raise MeasureError(
            f"{folder}: {name} returns states of which neither the first goes into its first block nor the last "
            f"but one leaves its last, so that it is not known which is whose; analyse another model."
        )
    return _Shape(width=found.states[0].shape[-1], layers=len(found.states) - 1, layout=layout)


def require_a_state_each(states: Iterable[Tensor], *, tokens: int, model: Any, folder: Path) -> None:
    """Refuse what shortens a sentence, or pads it: some do only beyond a window, which a short one does not reach.

    Raises:
        MeasureError: there are more or fewer states BTD in a layer than `tokens`.
    """
    if other := {state.shape[1] for state in states} - {tokens}:
        made = f"{max(other)} state{'s' * (max(other) != 1)}"
        raise MeasureError(
            f"{folder}: {type(model).__name__} makes {made} of a sentence of {tokens} tokens, so that it is not "
            f"known which is whose; analyse an encoder or a language model that makes one of each."
        )


def _require_weights(model: Any, whole: Any, layout: Layout, loading: dict[str, Any], folder: Path) -> None:
    """Refuse weights that lack what the states depend on; what they do not, such as a pooler, may be missing."""
    misfits = {name: f"{name} (there of shape {tuple(found)})" for name, found, _ in loading["mismatched_keys"]}
    lacking = {name: name for name in loading["missing_keys"]} | misfits
    parameters = {name: value for name, value in whole.named_parameters(remove_duplicate=False) if name in lacking}
    if not parameters:
        return
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    states, final = layers(probed(model), layout)
    total = torch.stack([state.sum() for state in (*states, final)]).sum()
    reached = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    needed = sorted(name for name, gradient in zip(parameters, reached, strict=True) if gradient is not None)
    if needed:
        example = next((name for name in needed if name in misfits), needed[0])
        raise MeasureError(
            f"{folder}: its weights lack {len(needed)} of those that {type(model).__name__} needs, such as "
            f"{lacking[example]}; they and config.json are not of one model."
        )


def _max_length(whole: Any, tokenizer: Any) -> int | None:
    """The smaller of what the model's positions and its tokenizer allow."""
    positions = getattr(whole.config, "max_position_embeddings", None)
    words = getattr(whole.get_input_embeddings(), "weight", None)
    tables = [
        module for module in whole.modules() if isinstance(module, nn.Embedding) and module.weight is not words
    ]
    for table in tables:
        if table.num_embeddings == positions and table.padding_idx is not None:
            positions -= table.padding_idx + 1  # RoBERTa and its kin count positions from there
            break
    limits = [limit for limit in (positions, tokenizer.model_max_length) if limit and 0 < limit < NO_LIMIT]
    return min(limits, default=None)
