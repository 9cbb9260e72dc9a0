"""A model from a local Hugging Face folder, without a network and without executing anything from the folder.

Of an encoder-decoder it is the encoder, of every other model all but its head. Which block is the last, whether
a norm follows it and which weights the states depend on: the model itself is asked, not its name.
"""

import inspect
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ablations.errors import MeasureError
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
    has_final_norm: bool
    """Whether something, a norm, lies between the last block and the last state that the model returns."""

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


class LastBlock:
    """Keeps what a model's last block returned, whichever module that is.

    Blocks stand in a `ModuleList`, and an outer module returns after its inner ones: the one that returned last
    is the last block, also where one block serves as all of them.
    """

    def __init__(self, model: Any) -> None:
        self.output: Tensor | None = None
        """Of shape BTD, or TBD in a model that puts positions first."""
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        self._hooks = [block.register_forward_hook(self._keep) for blocks in lists for block in blocks]

    def __enter__(self) -> "LastBlock":
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _keep(self, block: nn.Module, inputs: Any, output: Any) -> None:
        first = output if isinstance(output, Tensor) else output[0]
        if isinstance(first, Tensor) and first.dim() == 3:
            self.output = first


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
    _require_weights(model, whole, loading, folder)
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
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


# Asking the model -------------------------------------------------------------------------------------


class _Probe(NamedTuple):
    """What a model makes of six ids, two rows of three."""

    ids_BT: Tensor
    states: tuple[Tensor, ...]
    block: Tensor | None


class _Shape(NamedTuple):
    width: int
    layers: int
    has_final_norm: bool


def _probe(model: Any) -> _Probe:
    ids_BT = torch.arange(6, device=next(model.parameters()).device).reshape(2, 3)
    with LastBlock(model) as last:
        output = model(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT), output_hidden_states=True)
    return _Probe(ids_BT, tuple(getattr(output, "hidden_states", None) or ()), last.output)


@torch.no_grad()
def _shape(model: Any, folder: Path) -> _Shape:
    """Width, number of blocks, and whether a norm follows them."""
    try:
        ids_BT, states, block = _probe(model)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise MeasureError(
            f"{folder}: {type(model).__name__} cannot read the ids of a text alone ({reason(error)}); analyse an "
            f"encoder or a language model."
        ) from error
    if len(states) < 2 or any(state.shape[:2] != ids_BT.shape for state in states):
        raise MeasureError(
            f"{folder}: {type(model).__name__} does not return a state of each token in each layer, which every "
            f"measure reads; analyse an encoder or a language model that does."
        )
    width = states[0].shape[-1]
    # XLNet and FSMT, whose blocks put positions first, have no final norm; nor has Longformer, which pads.
    if block is None or block.shape != (*ids_BT.shape, width):
        return _Shape(width, len(states) - 1, has_final_norm=False)
    return _Shape(width, len(states) - 1, has_final_norm=not torch.equal(block, states[-1]))


def _require_weights(model: Any, whole: Any, loading: dict[str, Any], folder: Path) -> None:
    """Refuse weights that lack what the states depend on; what they do not, such as a pooler, may be missing."""
    misfits = {name: f"{name} (there of shape {tuple(found)})" for name, found, _ in loading["mismatched_keys"]}
    lacking = {name: name for name in loading["missing_keys"]} | misfits
    parameters = {name: value for name, value in whole.named_parameters(remove_duplicate=False) if name in lacking}
    if not parameters:
        return
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    total = torch.stack([state.sum() for state in _probe(model).states]).sum()
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
