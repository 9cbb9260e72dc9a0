"""Weights of a Hugging Face folder by the names of a run's checkpoint: the reverse of an export, for BERT and
GPT-2.

Letters: V vocabulary, D width, P positions.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lightning_modules.config import RunSettings
from lightning_modules.data.tokenizer import END
from lightning_modules.errors import DataError
from lightning_modules.model.parts import IN_A_BLOCK, SIDE_BY_SIDE, Parts
from lightning_modules.objectives.objective import Objective
from lightning_modules.pretrained.folder import Pretrained, content_sha256, plain_name, read_folder, weight_files


def load_pretrained(objective: Objective, data_root: Path) -> None:
    """Load the weights of the `init` folder into a new objective, if the run starts from them.

    States and logits are then those of the stock class, up to rounding. Special ids that the folder does not
    have get the embedding of its end-of-sentence token.

    Raises:
        DataError: the folder has changed since the run was planned, or cannot be read.
    """
    run, init = objective.run, objective.run.init
    if init is None or init.weights == "random":
        return
    pretrained = read_folder(data_root / init.path)
    if content_sha256(pretrained.folder, head=init.head == "folder", weights=True) != init.content:
        raise DataError(
            f"init.path: {pretrained.folder} has changed since the run was planned; restore the folder, or give "
            "`ablate run` to plan a new run."
        )
    state = state_of(pretrained, run, head=init.head == "folder")
    lacking, unexpected = objective.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert all(name.startswith("head.") and init.head == "random" for name in lacking), lacking


def state_of(pretrained: Pretrained, run: RunSettings, *, head: bool) -> dict[str, Tensor]:
    """Return the weights of a folder by the names of a run's checkpoint.

    Args:
        head: whether to include the weights of the prediction head.
    """
    parts = parts_of(pretrained)
    end = pretrained.tokenizer.special[END]
    row_V = torch.tensor([end if row is None else row for row in pretrained.order()])
    state = {"encoder.tokens.weight": parts["tokens.weight"][row_V]}
    positions_PD = parts["positions.weight"][: run.data.max_length]
    if run.has_segments:
        state["encoder.segments.weight"] = parts["segments.weight"][:2]  # some folders have more
    elif "segments.weight" in parts:  # there is one segment, or the run is older than `init.segments`
        positions_PD = positions_PD + parts["segments.weight"][0]
    state["encoder.positions.weight"] = positions_PD
    above = "final_norm" if run.encoder.norm == "pre" else "embedding_norm"
    for kind in ("weight", "bias"):
        state[f"encoder.norm.{kind}"] = parts[f"{above}.{kind}"]
    for number in range(run.encoder.num_hidden_layers):
        state |= _block(parts, number)
    if head and "output.bias" in parts:
        state |= {name: part for name, part in parts.items() if name.startswith("head.")}
        state["head.bias"] = parts["output.bias"][row_V]
    return {name: part.contiguous().clone() for name, part in state.items()}


def parts_of(pretrained: Pretrained) -> Parts:
    """Return the weights of a folder by plain names (`model/parts.py`), linear maps as outputs by inputs.

    Raises:
        DataError: a file cannot be read.
    """
    architecture, weights = pretrained.architecture, Parts()
    for path in weight_files(pretrained.folder):
        try:
            weights |= {plain_name(name, architecture): tensor.float() for name, tensor in load_file(path).items()}
        except (OSError, SafetensorError) as error:
            raise DataError(f"{path} cannot be read ({error}); copy the folder again.") from error
    is_transposed = architecture.name == "GPT-2"  # its blocks store linear maps as inputs by outputs
    parts: Parts = {}
    for name, new in {**architecture.body, **architecture.head_names}.items():
        for number in range(pretrained.encoder.num_hidden_layers if "{}" in new else 1):
            plain, theirs = name.format(number), new.format(number)
            if name == "output.bias":
                parts |= {plain: weights[theirs]} if theirs in weights else {}
                continue
            for kind in ("weight", "bias"):
                if (part := weights.get(f"{theirs}.{kind}")) is not None:
                    is_map = plain.startswith("blocks.") and part.ndim == 2
                    parts[f"{plain}.{kind}"] = part.T if is_transposed and is_map else part
    return parts


def _block(parts: Parts, number: int) -> dict[str, Tensor]:
    """Return the weights of a block by the names of a run's checkpoint."""
    state, stem = {}, f"blocks.{number}"
    maps = SIDE_BY_SIDE["attention.query_key_value"]
    for kind in ("weight", "bias"):
        whole = parts.get(f"{stem}.query_key_value.{kind}")
        if whole is None:
            whole = torch.cat([parts[f"{stem}.{name}.{kind}"] for name in maps])
        state[f"encoder.{stem}.attention.query_key_value.{kind}"] = whole
        for name_in_run, plain in IN_A_BLOCK.items():
            if f"{stem}.{plain}.{kind}" in parts:
                state[f"encoder.{stem}.{name_in_run}.{kind}"] = parts[f"{stem}.{plain}.{kind}"]
    return state
