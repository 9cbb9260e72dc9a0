"""Similarities of two layers: pure functions of two matrices that hold the same tokens in the same order.

They take torch or numpy matrices and return a float, computed in float64. Widths may differ. `procrustes` is
a distance, the others are similarities. All but `rsa` centre the columns themselves. `effective_rank` and
`participation_ratio` are of one layer.

A conclusion is worth most if two kinds of similarity agree: `pwcca`, which ignores how much variance a
direction has, and `debiased_cka` or `procrustes`, which the directions of most variance decide.

All but `rsa` also take a `Side`, so that a matrix that is compared several times is decomposed once. All but
`rsa`, `rbf_cka` and `minibatch_cka` take a side of `Moments`: sums over batches, if memory cannot hold the
matrix.
"""

from ablations.measures.similarity.indices import (
    cca,
    debiased_cka,
    linear_cka,
    minibatch_cka,
    procrustes,
    pwcca,
    rbf_cka,
    rsa,
    svcca,
)
from ablations.measures.similarity.moments import Moments
from ablations.measures.similarity.sides import Side, effective_rank, participation_ratio

__all__ = [
    "Moments",
    "Side",
    "cca",
    "debiased_cka",
    "effective_rank",
    "linear_cka",
    "minibatch_cka",
    "participation_ratio",
    "procrustes",
    "pwcca",
    "rbf_cka",
    "rsa",
    "svcca",
]
