"""Change of tokens by a layer (Voita et al. 2019, section 5.1), also by frequency and part of speech of the
tokens (section 5.2). We also report a second, independent similarity, debiased CKA."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablations.measures.jackknife import errors, sentence_blocks
from ablations.measures.reading.sample import Sample, equal_parts, groups
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import (
    AFTER_FINAL_NORM,
    REFUSED_BELOW,
    Grouping,
    LayerChangeSettings,
    RunDistanceSettings,
)
from ablations.measures.similarity import debiased_cka, pwcca
from ablations.measures.similarity.indices import WARNED_BELOW, require_tokens
from ablations.measures.similarity.moments import Moments
from ablations.measures.similarity.sides import UndefinedError, or_nan, to_device
from lightning_modules.config import RunSettings

METRICS: dict[str, Callable[..., float]] = {"pwcca": pwcca, "debiased_cka": debiased_cka}


def rows(readings: Readings, settings: LayerChangeSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `layer_change` of a run from its validation text. Rows of parts of speech come from
    the treebank if one is named.

    With `norm: pre` there are rows for two forms of the top layer: as it leaves the last block, and, as group
    `after final norm`, as a head reads it.
    """
    reading = readings.texts.validation(settings)
    yield from layer_change(readings.states(reading), reading.sample, settings)
    normed_ND = readings.after_final_norm(reading)
    if normed_ND is not None:
        *_, below_ND, _ = readings.states(reading)
        top = readings.objective.run.encoder.num_hidden_layers
        for row in change_rows([below_ND, normed_ND], reading.sample.sentence_N):
            yield row | {"group": AFTER_FINAL_NORM, "layer": top - 1, "layer_to": top}
    if settings.treebank is not None and "part_of_speech" in settings.groups:
        labelled = readings.texts.treebank(settings.treebank, settings)
        states_LND, size = readings.states(labelled), settings.group_tokens
        yield from group_changes(states_LND, labelled.sample, "part_of_speech", size=size)


def require(settings: LayerChangeSettings | RunDistanceSettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if the text has too few tokens for the width of the run."""
    sample = texts.validation(settings).sample
    require_tokens(len(sample), run.encoder.hidden_size, measure=settings.kind)


def layer_change(
    states_LND: list[NDArray[np.float32]], sample: Sample, settings: LayerChangeSettings
) -> Iterator[dict[str, Any]]:
    """Yield rows of 1 - similarity for the steps from layer l to l + 1 and from layer 0 to l. Steps l to l +
    1 also have rows for each group of the settings; see `group_changes`.

    The weights of PWCCA come from the lower layer. The chance level (`floor`) is the same number after the
    tokens of the upper layer were shuffled.

    Raises:
        MeasureError: fewer than five tokens per unit of width.
    """
    yield from change_rows(states_LND, sample.sentence_N, from_embeddings=True)
    for by in settings.groups:
        yield from group_changes(states_LND, sample, by, size=settings.group_tokens)


def small_groups(sample: Sample, settings: LayerChangeSettings, *, width: int) -> tuple[int, dict[str, int]]:
    """Return the fewest tokens of a group with rows, and the groups with fewer, with their numbers of tokens."""
    fewest = max(settings.group_tokens or WARNED_BELOW * width, REFUSED_BELOW * width)
    all_groups = (group for by in settings.groups for group in groups(sample, by))
    return fewest, {name: len(place) for name, place in all_groups if len(place) < fewest}


def group_changes(
    states_LND: list[NDArray[np.float32]], sample: Sample, by: Grouping, *, size: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows from layer l to l + 1 of each group that is large enough. All groups have equally many
    tokens; see `equal_parts`.

    A change from layer l to l + 1 has no row if all states of the group are equal in l or in l + 1. For example,
    the embeddings of a single type are equal if the encoder adds no positions.
    """
    width = states_LND[0].shape[1]
    size = None if size is None else max(size, REFUSED_BELOW * width)
    for name, place in equal_parts(groups(sample, by), fewest=WARNED_BELOW * width, size=size, seed=0):
        states = [layer_ND[place] for layer_ND in states_LND]
        for row in change_rows(states, sample.sentence_N[place], leaves_out_undefined=True):
            yield row | {"group": name}


def change_rows(
    states_LND: list[NDArray[np.float32]],
    sentence_N: NDArray[np.int64],
    *,
    from_embeddings: bool = False,
    leaves_out_undefined: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of layer changes of some tokens, with errors by the jackknife.

    Rows are from layer l to l + 1, and with `from_embeddings` from layer 0 to l too. A row has no error if its
    number is undefined, or there are too few tokens, without one of the blocks.

    Args:
        leaves_out_undefined: whether a step without a defined number has no row. Otherwise it is an error.

    Raises:
        MeasureError: fewer than five tokens per unit of width, or, without `leaves_out_undefined`, states of a
            layer that are all equal.
    """
    n, width = states_LND[0].shape
    require_tokens(n, width, measure="layer_change")
    top = len(states_LND) - 1
    steps = [(layer, layer + 1) for layer in range(top)]
    steps += [(0, layer) for layer in range(2, top + 1)] if from_embeddings else []
    parts = _moments(states_LND, sentence_N, steps)
    whole = sum(parts[1:], parts[0])
    left_out: dict[tuple[int, int, str], list[float]] = {}
    for part in parts if len(parts) > 1 else ():
        others = whole - part  # one at a time: with a wide encoder they are the largest thing in memory
        if len(others) >= REFUSED_BELOW * width:
            for (lower, upper), (metric, similarity) in itertools.product(steps, METRICS.items()):
                value = 1 - or_nan(similarity, others.side, lower, upper)  # NaN if only this block has variance
                left_out.setdefault((lower, upper, metric), []).append(value)
    for (lower, upper), (metric, similarity) in itertools.product(steps, METRICS.items()):
        try:
            value = 1 - similarity(whole.side(lower), whole.side(upper))
        except UndefinedError:
            if leaves_out_undefined:
                continue
            raise
        without = left_out.get((lower, upper, metric), [])
        yield {
            "metric": metric,
            "layer": lower,
            "layer_to": upper,
            "value": value,
            "floor": 1 - or_nan(similarity, whole.side, lower, top + upper),
            **errors(without if len(without) == len(parts) else []),
            "unit": "distance",
            "n": n,
            "d": width,
        }


def _moments(
    states_LND: list[NDArray[np.float32]], sentence_N: NDArray[np.int64], steps: list[tuple[int, int]]
) -> list[Moments]:
    """Return the moments of each block of sentences. Sides 0 to L are the layers. Sides L + 1 to 2 L are
    layers 1 to L with their tokens shuffled."""
    top = len(states_LND) - 1
    shuffled_N = np.random.default_rng(0).permutation(len(sentence_N))
    pairs = [*steps, *((lower, top + upper) for lower, upper in steps)]
    block_N = sentence_blocks(sentence_N)
    parts: list[Moments] = []
    for block in range(int(block_N.max()) + 1):
        (place,) = np.nonzero(block_N == block)
        sides = [layer_ND[place] for layer_ND in states_LND]
        sides += [layer_ND[shuffled_N[place]] for layer_ND in states_LND[1:]]
        parts.append(Moments(pairs=pairs, origin=parts[0].origin if parts else None))
        parts[-1].add(*map(to_device, sides))
    return parts
