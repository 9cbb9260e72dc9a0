"""Token occurrences by frequency and by part of speech: which there are, and equally many of each."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ablations.measures.sample import NO_LABEL, Sample
from ablations.measures.settings import RANK_BOUNDS, Grouping
from lightning_modules.randomness import derive


def groups(sample: Sample, by: Grouping) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """The groups that occur, each with its name and its occurrences, as ascending places in the sample.

    `rank 1-10`, `rank 11-25`, ... from frequent to rare; `tag ADJ`, ... in the order of the alphabet. Without
    labels there are no parts of speech."""
    if by == "frequency":
        first = 1
        for last in (*RANK_BOUNDS, int(sample.rank_N.max())):
            place = np.flatnonzero((sample.rank_N >= first) & (sample.rank_N <= last))
            if len(place):
                yield f"rank {first}-{last}", place
            first = last + 1
    elif "tag" in sample.labels:
        code_N, names = sample.labels["tag"], sample.names["tag"]
        for code in sorted(set(code_N.tolist()) - {NO_LABEL}, key=lambda code: names[code]):
            if names[code]:
                yield f"tag {names[code]}", np.flatnonzero(code_N == code)


def equal_parts(
    parts: Iterable[tuple[str, NDArray[np.int64]]], *, fewest: int, wanted: int | None, seed: int
) -> list[tuple[str, NDArray[np.int64]]]:
    """The groups with at least `wanted` occurrences, that many of each, drawn at random and put in order.

    Without `wanted` it is the size of the smallest group that has at least `fewest`. Which are drawn depends on
    the seed and the group alone."""
    found = [(name, place) for name, place in parts if len(place) >= (wanted or fewest)]
    size = wanted or min((len(place) for _, place in found), default=0)
    draws = [np.random.default_rng(derive(seed, name)) for name, _ in found]
    return [
        (name, np.sort(rng.choice(place, size, replace=False)))
        for rng, (name, place) in zip(draws, found, strict=True)
    ]
