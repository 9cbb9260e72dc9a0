"""Ticks and labels of axes of layers, and of axes that are spread out from small numbers to large ones."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from reports.words import count

TICK_LETTERS = 36
"""Letters that stand side by side below an axis."""


def spread_out(ax: Axes, places: Sequence[int]) -> None:
    """Set a logarithmic axis, ticks at some of the places; 0 is as far left of the first as its double right of
    it."""
    every = sorted(set(places))
    first = next((place for place in every if place > 0), 1)
    ax.set_xscale("symlog", base=2, linthresh=first, linscale=0.5)
    ax.set_xlim(-0.25 * first if every[0] == 0 else 0.85 * first, 1.18 * max(every[-1], first))
    kept = thinned(every[::-1], most=TICK_LETTERS // (len(count(every[-1])) + 1))[::-1]
    ax.set_xticks(kept, [count(place) for place in kept])
    ax.set_xticks([], minor=True)


def label_layers(ax: Axes, layers: Sequence[int], *, leads: bool) -> None:
    """Write ticks and label of an axis of layers, or of steps from a layer to the next."""
    every = list(range(int(min(layers)), int(max(layers)) + 1))
    if leads:
        shown = thinned(every, most=9)
        ax.set_xticks(shown, [f"{layer}→{layer + 1}" for layer in shown])
        ax.set_xlabel("layer → next layer (0 = embeddings)")
    else:
        ax.set_xticks(thinned(every, most=13))
        ax.set_xlabel("layer (0 = embeddings)")


def thinned(layers: list[int], *, most: int) -> list[int]:
    """Return every layer, or every second, third, ... so that no more labels than that stand side by side."""
    return layers[:: -(-len(layers) // most)]
