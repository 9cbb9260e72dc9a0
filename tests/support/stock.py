"""Modules with all weights far from their initial values, and the stock classes that they become."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from lightning_modules.export.folder import STOCKS
from lightning_modules.export.stock import Stock, choose
from lightning_modules.objectives import build
from tests.support.tiny_text import settings

V, TARGET_V, T = 60, 67, 13
LENGTHS = (T, T - 1, 5, 2)
"""Tokens of the rows of a batch; the first is as long as the model allows."""


class Sizes(NamedTuple):
    """What a module needs to know of a token store."""

    vocab_size: int = V
    target_vocab_size: int = TARGET_V
    source_counts_V: Any = None


def module(kind: str, **sections: Any) -> Any:
    """A module in evaluation mode whose biases and norms are not zeros and ones, so that a wrong place shows."""
    made = build(settings(kind, **(sections | {"data": {"max_length": T}})), Sizes()).eval()
    rng = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.25, generator=rng)
    return made.requires_grad_(False)


def batch(vocabulary: int = V, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids with padding on the right, and 1 where there is none."""
    mask = (torch.arange(T) < torch.tensor(LENGTHS)[:, None]).long()
    return torch.randint(5, vocabulary, mask.shape, generator=torch.Generator().manual_seed(seed)) * mask, mask


def chosen(module: Any, output: str | None = None) -> Stock:
    """The stock class that holds the module."""
    run = module.run
    return choose(STOCKS, run, output or run.objective.stock_output, where="run")


def loaded(stock: Stock, module: Any, folder: Path, output: str | None = None, spoil: Any = None) -> Any:
    """The model that transformers loads from the weights of the module. No weight may be missing, but those of a
    pooler and of ESM's contacts.

    Args:
        spoil: function that changes the weights or config.json before they are written.
    """
    import transformers

    run, state = module.run, module.state_dict()
    output = output or run.objective.stock_output
    weights, config = stock.weights(state, run, output), stock.full_config(state, run, output)
    if spoil is not None:
        spoil(weights, config)
    folder.mkdir(exist_ok=True)
    save_file({name: weight.contiguous() for name, weight in weights.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    made, report = getattr(transformers, stock.classes[output]).from_pretrained(folder, output_loading_info=True)
    wrong = [name for names in report.values() for name in names]
    assert spoil or [name for name in wrong if "pooler" not in name and "contact_head" not in name] == []
    return made.eval().requires_grad_(False)
