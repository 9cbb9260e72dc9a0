"""Similarities of two layers: pure functions of two matrices that hold the same tokens in the same order.

Torch or numpy in, a float out, float64 inside. All but `procrustes`, a distance, are similarities; all but
`rsa` centre their columns themselves. Widths may differ. A conclusion is worth most where it holds under
`pwcca`, which ignores how much variance a direction has, and under `debiased_cka` or `procrustes`, which
the directions of most variance decide. `effective_rank` and `participation_ratio` are of one layer.

All but `rsa` also take a `Side`: a matrix that is compared several times is then decomposed once. All but
`rsa`, `rbf_cka` and `minibatch_cka` take a side of `Moments`: sums over batches, where memory holds no matrix.
"""

from ablations.measures.similarity.cca import cca, procrustes, pwcca, svcca
from ablations.measures.similarity.cka import debiased_cka, linear_cka, minibatch_cka, rbf_cka, rsa
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
