"""Three steps of every run of a folder in float64, by one process or by the ranks of two."""

from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist

from lightning_modules.data.token_store import load
from lightning_modules.objectives import build
from lightning_modules.training.data_module import RunData
from lightning_modules.training.run_directory import RunDirectory


def weights_in_float64(
    runs: Path, store: Path, *, accumulate: int, rank: int = 0, ranks: int = 1
) -> dict[str, torch.Tensor]:
    """Weights after three steps of so many micro-batches, by run and name; the caller has begun the process group
    of more ranks than one."""
    tokens = load(store)
    weights = {}
    for path in sorted(runs.iterdir()):
        run = RunDirectory(path).settings()
        training = run.training.model_copy(update={"accumulate": accumulate})
        objective = build(run.model_copy(update={"training": training}), tokens).double().train()
        step = objective.training_step
        if ranks > 1:
            objective.forward = objective.training_step
            step = torch.nn.parallel.DistributedDataParallel(objective)
        data = RunData(objective, tokens)
        data.trainer = SimpleNamespace(global_rank=rank, world_size=ranks)
        optimizer = objective.configure_optimizers()["optimizer"]
        for number in range(3):
            optimizer.zero_grad()
            step(data.micro_batches(number), number)["loss"].backward()
            objective.configure_gradient_clipping(optimizer)
            optimizer.step()
        weights |= {f"{path.name} {name}": tensor for name, tensor in objective.state_dict().items()}
    return weights


def save_weights(runs: Path, store: Path, target: Path, rank: int, port: int) -> None:
    """Be one of two ranks, which meet at the store behind a port; the first one saves the weights."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", port), rank=rank, world_size=2)
    cuts = {cut: weights_in_float64(runs, store, accumulate=cut, rank=rank, ranks=2) for cut in (1, 3)}
    if rank == 0:
        torch.save(cuts, target)
    dist.barrier()
    dist.destroy_process_group()
