"""Who sees whom: first batches, influence and packing of any objective."""

from typing import get_args

import pytest
import torch

from lightning_modules.config.objectives import Objective
from lightning_modules.data.packing import pack
from lightning_modules.data.sequences import with_negative_pairs
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.training.data_module import RunData, as_tensors

KINDS = [get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(Objective)[0])]


PREDICTIONS = {
    "predict_N": ("label_N", "uniform_N"),
    "next_N": ("next_label_N",),
    "judge_N": ("original_N",),
    "start_Q": ("label_Q",),
    "centre_P": ("context_P", "negative_PK"),
}
"""What lies beside each array that says where something is asked."""


def first_batch(run, tokens):
    """An objective in evaluation mode, its data, and the first batch of its training."""
    objective = build(run, tokens).eval()
    data = RunData(objective, tokens)
    return objective, data, data.batch(0)


def spread(module):
    """The module in float64 with weights so large that attention is far from uniform."""
    generator = torch.Generator().manual_seed(0)
    for parameter in module.double().parameters():
        torch.nn.init.normal_(parameter, std=0.4, generator=generator)
    return module.eval()


@torch.no_grad()
def influence(states, ids_T):
    """Whether the state at place t changes with the token at place s; shape TS.

    Args:
        states: of T + 1 rows of ids, shape (T + 1, T, D).
    """
    rows = ids_T.repeat(len(ids_T) + 1, 1)
    place = torch.arange(len(ids_T))
    rows[place + 1, place] = torch.where(ids_T == 7, 8, 7)
    top = states(rows)
    assert top.isfinite().all()
    # Sums of float64 in another order differ by 1e-14; what is seen moves a state of these weights by far more.
    return ((top[1:] - top[0]).abs().amax(-1) > 1e-9).T


def reach(sequence_T, left, right):
    """Who may see whom, one pair at a time; rows of padding see nobody that matters."""
    seen = torch.zeros(len(sequence_T), len(sequence_T), dtype=torch.bool)
    for t, mine in enumerate(sequence_T.tolist()):
        for s, other in enumerate(sequence_T.tolist()):
            seen[t, s] = mine == other and -left <= s - t <= right
    return seen


def asking_for_nothing(batch, place, how):
    """The batch with one of the things that it asks for taken away."""
    count = 0 if how == "no places" else 64
    changed = {place: torch.zeros(count, dtype=torch.int64)}
    for name in PREDICTIONS[place]:
        if name in batch:
            empty = torch.zeros(count, *batch[name].shape[1:], dtype=batch[name].dtype)
            changed[name] = empty.fill_(IGNORED) if "label" in name or name == "original_N" else empty
    return batch | changed


def check_packing(objective, data):
    """The losses of the first step are those of its sequences one by one."""
    packed = objective.double().losses(data.batch(0))
    alone = dict.fromkeys(packed, (0.0, 0))
    pairs = with_negative_pairs(data.plan[0], objective.pair_loss, data.split.documents, seed=data.seed)
    for i in range(len(pairs)):
        shape = {"row_length": data.row_length, "targets": objective.needs_targets}
        one = pack(data.split, pairs.part(i, i + 1), **shape)
        for name, part in objective.losses(as_tensors(objective.make_batch(one, seed=data.seed))).items():
            total, count = alone[name]
            alone[name] = total + part.total.item(), count + int(part.predictions)
    for name, part in packed.items():
        assert int(part.predictions) == alone[name][1] > 0
        assert part.total.item() == pytest.approx(alone[name][0], rel=1e-11), name  # float64 sums, other order
