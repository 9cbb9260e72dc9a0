"""Digests of the results of a grid: two grids with the same digests have the same results, bit for bit."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ablations import results
from ablations.runs import rows
from lightning_modules.errors import CheckpointError
from lightning_modules.training.checkpoint import read_checkpoint


def fingerprint(out: Path, damaged: Mapping[Path, bytes] = MappingProxyType({})) -> dict[str, str]:
    """Return a digest of every result of a grid, without times: weights, optimiser, log, rows, and the table.

    A checkpoint that cannot be read has the digest "corrupt". It has no digest if it was damaged on purpose
    and not written since, because then nothing had to read it.

    Args:
        damaged: content of files as `damage` left them.
    """
    made = {}
    for run in sorted(path for path in out.glob("runs/*") if path.is_dir()):
        path = run / "checkpoints/last.ckpt"
        try:
            content = read_checkpoint(path)
            state = {name: content[name] for name in ("global_step", "state_dict", "optimizer_states")}
            made[f"{run.name} checkpoint"] = _digest(repr(_listed(state)).encode())
        except CheckpointError:
            if damaged.get(path) != path.read_bytes():
                made[f"{run.name} checkpoint"] = "corrupt"
        made[f"{run.name} weights"] = _digest((run / "checkpoints/last.safetensors").read_bytes())
        made[f"{run.name} rows"] = _table_digest(rows.rows(run))
        logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        kept = [[item for item in line.items() if item[0][:5] not in ("time", "perf/")] for line in logged]
        made[f"{run.name} log"] = _digest(json.dumps(kept).encode())
    return made | {"table": _table_digest(results.read(out / "faults/results.parquet"))}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _table_digest(table: Any) -> str:
    return _digest("\n".join(sorted(table.to_csv(index=False).splitlines())).encode())


def _listed(content: Any) -> Any:
    """Return nested content with tensors as lists of numbers."""
    if isinstance(content, torch.Tensor):
        return content.double().tolist()
    if isinstance(content, dict):
        return {name: _listed(value) for name, value in content.items()}
    return [_listed(value) for value in content] if isinstance(content, list | tuple) else content


def corrupt_checkpoints(out: Path, damaged: dict[Path, bytes]) -> int:
    """Return the number of newest checkpoints that cannot be read, without those that were damaged on purpose
    and not written since."""
    corrupt = 0
    for path in out.glob("runs/*/checkpoints/last.ckpt"):
        try:
            read_checkpoint(path)
        except CheckpointError:
            corrupt += path.read_bytes() != damaged.get(path)
    return corrupt
