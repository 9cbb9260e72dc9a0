"""Training on a GPU: against BertForMaskedLM under torch.compile, against the card itself, and a grid of
runs.

Both sides compute in bf16 with weights in fp32, under torch.compile, on the same text. Their steps have about
as many real tokens, and other processes make the batches. The peer's batches are grouped by length and padded
to a multiple of 8. Neither side has dropout of attention weights.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ablations.spec import load
from ablations.spec.grid import runs
from benchmarks import ours, peers, text
from benchmarks.commands import seconds_of
from benchmarks.timing import Side, floor
from benchmarks.training import DROPOUT, Row, measure
from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.model.numerics import matrix_rate

WARM_UP = 20  # steps in which graphs are compiled for the shapes of batches
PEER_WORKERS = 8
SLOTS = (1, 3)
"""Numbers of runs of the grid that share the card."""
EPOCHS = 8


@dataclass(frozen=True)
class Shape:
    """Model, its text, and the share of the card's rate that its useful operations should reach."""

    layers: int
    width: int
    max_length: int
    tokens_per_step: int
    share: float


SHAPES = (
    Shape(6, 512, 128, 65_536, 0.30),
    Shape(6, 512, 512, 65_536, 0.30),
    Shape(12, 768, 128, 32_768, 0.45),
    Shape(12, 768, 512, 32_768, 0.45),
)


def measured(
    data_root: Path, store: Path, *, rounds: int, seconds: float, device: str = "cuda"
) -> Iterator[dict[str, Any]]:
    """Yield the results of each shape against the peer and against the card, on sentences of up to 128 tokens
    and passages of up to 512."""
    texts = {
        text.LENGTH: text.english(data_root, store=store),
        512: text.articles(data_root, store=store, length=512),
    }
    for shape in SHAPES:
        yield from of_shape(shape, texts[shape.max_length], rounds=rounds, seconds=seconds, device=device)


def of_shape(
    shape: Shape, tokens: Tokens, *, rounds: int, seconds: float, device: str
) -> Iterator[dict[str, Any]]:
    """Yield the real tokens per second of both sides, then our useful operations per second against those of
    the card's products."""
    run = ours.settings(
        "masked_lm",
        layers=shape.layers,
        width=shape.width,
        max_length=shape.max_length,
        tokens_per_step=shape.tokens_per_step,
        dropout=DROPOUT,
        precision="bf16-mixed",
        compiled=True,
    )
    row = Row(
        f"masked LM, rows of up to {shape.max_length}, {shape.layers} x {shape.width}, on {_name(device)}",
        "BertForMaskedLM, best, torch.compile",
        2,
        run,
        lambda: ours.training(run, tokens, packed=False, device=device),
        lambda: peer(shape, tokens, device=device),
    )
    where = torch.device(device)
    told = measure(row, rounds=rounds, seconds=seconds, warm_up=WARM_UP, device=where, dtype=torch.bfloat16)
    yield told
    done, possible = told["floor"]["operations"] / told["our_step_seconds"], matrix_rate(where, torch.bfloat16)
    yield {
        "what": f"useful operations of {row.what}",
        "against": "its bf16 products",
        "unit": "TFLOP/s",
        "ours": done / 1e12,
        "theirs": possible / 1e12,
        "ratio": done / possible,
        "target": shape.share,
        "rounds": told["rounds"],
    }


def peer(shape: Shape, tokens: Tokens, *, device: str) -> Side:
    """Return BertForMaskedLM, compiled as a whole, as a side that counts real tokens."""
    rows = round(shape.tokens_per_step / float(tokens.train.lengths.mean()))
    model: Any = peers.bert(
        layers=shape.layers,
        width=shape.width,
        dropout=DROPOUT,
        attention_dropout=0.0,
        max_length=shape.max_length,
    )
    compiled: Any = torch.compile(model.to(device))

    def batches(seed: int) -> Iterator[tuple[dict[str, Any], int]]:
        return peers.masked_batches(tokens.train, tokens.tokenizer, grouped=True, seed=seed, rows=rows, multiple=8)

    on_gpu = device != "cpu"
    made = DataLoader(
        _Endless(batches),
        batch_size=None,
        num_workers=PEER_WORKERS if on_gpu else 0,
        multiprocessing_context="fork" if on_gpu else None,
        pin_memory=on_gpu,
    )
    said = f"torch.compile, dropout {DROPOUT:g} (attention 0), {rows} rows padded grouped by length"
    return peers.training(compiled, iter(made), loop="best", said=said, device=device)


class _Endless(IterableDataset[tuple[dict[str, Any], int]]):
    """Endless batches of a seed; each process that makes batches has its own seed."""

    def __init__(self, batches: Callable[[int], Iterator[tuple[dict[str, Any], int]]]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[tuple[dict[str, Any], int]]:
        worker = get_worker_info()
        return self._batches(0 if worker is None else worker.id)


def grids(data_root: Path, folder: Path, pairs: Tokens, *, device: str = "cuda") -> Iterator[dict[str, Any]]:
    """Yield the wall time of `ablate run` on 15 runs of the paper's size, one at a time and several sharing
    the card.

    Each time graphs are compiled anew, as in a first run.
    """
    spec = folder / "paper-size.yaml"
    spec.write_text(json.dumps(grid_spec(source_tokens=len(pairs.train.ids))), encoding="utf-8")
    planned = [run.settings for run in runs(load.load(spec))]
    for slots in SLOTS:
        out = folder / f"slots-{slots}"
        options = ["--slots", str(slots), "--out", str(out), "--data-root", str(data_root.absolute())]
        graphs = {"TORCHINDUCTOR_CACHE_DIR": str(out / "graphs")}
        seconds = seconds_of("-m", "ablations.cli", "run", str(spec), *options, environment=graphs)
        shutil.rmtree(out)  # gigabytes
        yield {
            "what": f"{len(planned)} runs of 6 x 512, {EPOCHS} epochs of the parallel text, --slots {slots}",
            "unit": "s",
            "ours": seconds,
            "at_most": 480,
            "rounds": 1,
            "our_step_seconds": seconds,
            "floor": {"seconds": sum(floor_of_run(run, device) for run in planned)},
        }


def grid_spec(*, source_tokens: int) -> dict[str, Any]:
    """Return a spec of three objectives with five seeds each (Voita et al. 2019, whose encoders have 6 layers
    of 512)."""
    tokens_per_step = 16_384
    return {
        "name": "paper-size",
        "version": 1,
        "data": {"kind": "files", "vocab_size": text.VOCABULARY, "max_length": text.LENGTH} | text.PARALLEL,
        "encoder": {"num_hidden_layers": 6, "hidden_size": 512, "num_attention_heads": 8, "dropout": DROPOUT},
        "training": {
            "max_steps": round(EPOCHS * source_tokens / tokens_per_step),
            "tokens_per_step": tokens_per_step,
            "learning_rate": 7e-4,
            "precision": "bf16-mixed",
            "compile": True,
            "keep_checkpoints": 1,
        },
        "arms": {
            "mlm": {"objective": {"kind": "masked_lm"}},
            "clm": {"objective": {"kind": "causal_lm"}},
            "mt": {"objective": {"kind": "translation", "decoder": {"num_hidden_layers": 6}}},
        },
        "seeds": [0, 1, 2, 3, 4],
        "measures": [],
    }


def floor_of_run(run: RunSettings, device: str) -> float:
    """Return the least seconds that a run takes on the device."""
    a_step = floor(run, torch.device(device), torch.bfloat16)
    return float(run.training.max_steps * a_step["seconds"])


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "a CPU"
