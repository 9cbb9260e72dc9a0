"""The states between the blocks of a Hugging Face model, wherever it keeps them.

Most models return what goes into each block and, last, what leaves them all: through a final norm, if there is
one. Some return what leaves each block, and then the last once more after the norm (Mamba, RWKV), so that what
goes into the first is not among them; some return the states after the norm apart (CLIP). So the blocks themselves
are asked what enters the first and leaves the last, and a probe, not the model's name, tells which way it has.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ablations.hugging_face_folder import library

PROBE = (2, 7)
"""Rows and tokens of a probe: enough to be shortened (CANINE), and no multiple of a window, so that a model that
pads to one (Longformer) shows it."""

FEWEST_IDS = 6
"""Different ids of a probe."""


class Layout(NamedTuple):
    """How the states that a model returns stand to its blocks."""

    blocks_known: bool
    """Whether what enters the first block and leaves the last has the states' shape. Not so where blocks put
    positions first (XLNet) or last (SqueezeBert) or pad (Longformer): the states are then those returned."""
    after_blocks: bool
    """Whether the states are those behind each block, not those before."""
    has_final_norm: bool
    """Whether something, a norm, lies between the last block and what the model returns in the end."""


class Layers(NamedTuple):
    """What a model makes of some ids."""

    states: list[Tensor]
    """L + 1 tensors BTD: what goes into the first block, then what leaves each."""
    final: Tensor
    """What the model returns in the end: the last of them, if there is no final norm."""


class Returned(NamedTuple):
    """What a model returns, and what was seen at the ends of its blocks."""

    states: tuple[Tensor, ...]
    """Empty where it returns none."""
    final: Tensor | None
    """In the end: the last state, or that after a norm; meaningless without states."""
    first: Tensor | None
    """What entered the first block: of shape BTD, as a rule."""
    last: Tensor | None
    """What left the last one."""


class _Ends:
    """Keeps what went into a model's first block and what its last returned, whichever modules these are.

    Blocks stand in a `ModuleList`. An outer module is entered before its inner ones and returns after them: the
    one entered first is the first block and the one that returned last the last, also where one serves as all.
    """

    def __init__(self, model: Any) -> None:
        self.first: Tensor | None = None
        self.last: Tensor | None = None
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        blocks = [block for members in lists for block in members]
        self._hooks = [block.register_forward_pre_hook(self._entered, with_kwargs=True) for block in blocks]
        self._hooks += [block.register_forward_hook(self._left) for block in blocks]

    def __enter__(self) -> "_Ends":
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _entered(self, block: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.first is None:
            self.first = next(filter(_is_states, (*inputs, *named.values())), None)

    def _left(self, block: nn.Module, inputs: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple | list) and output else output
        if _is_states(first):
            self.last = first


def returned(model: Any, inputs: Mapping[str, Tensor]) -> Returned:
    """What the model returns for the inputs."""
    with library(), _Ends(model) as ends:
        output = model(**inputs, output_hidden_states=True)
    states = tuple(getattr(output, "hidden_states", None) or ())
    final = getattr(output, "last_hidden_state", None)
    if states and not (isinstance(final, Tensor) and final.shape[:-1] == states[-1].shape[:-1]):
        final = states[-1]
    return Returned(states, final, ends.first, ends.last)


def probed(model: Any) -> Returned:
    """What the model returns for some ids."""
    rows, tokens = PROBE
    ids_BT = torch.arange(rows * tokens, device=next(model.parameters()).device).reshape(PROBE) % FEWEST_IDS
    return returned(model, {"input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT)})


def layout_of(probe: Returned) -> Layout | None:
    """How the states of a probe stand to the blocks; None where they contradict each other."""
    states, final, first, last = probe
    assert final is not None
    if first is None or last is None or {first.shape, last.shape} != {states[0].shape}:
        return Layout(False, False, not _same(final, states[-1]))
    after_blocks = not _same(first, states[0])
    if after_blocks and not _same(last, states[-2]):
        return None
    return Layout(True, after_blocks, not _same(final, last))


def layers(found: Returned, layout: Layout) -> Layers:
    """What was returned, in the order of the blocks."""
    states, final, first, last = found
    assert final is not None
    if not layout.blocks_known:
        return Layers(list(states), final)
    assert first is not None
    assert last is not None
    between = states[:-2] if layout.after_blocks else states[1:-1]
    return Layers([first, *between, last], final)


def _is_states(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 3


def _same(one: Tensor, other: Tensor) -> bool:
    """To the last bit, whatever has become NaN in both."""
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)
