"""How similar two layers are: pure functions of two matrices that hold the same tokens in the same order.

Torch or numpy in, a float out, float64 inside. All but `procrustes`, a distance, are similarities; all but
`rsa` centre their columns themselves. Widths may differ. A conclusion is worth most where it holds under
`pwcca`, which ignores how much variance a direction has, and under `debiased_cka` or `procrustes`, which
the directions of most variance decide.

All but `rsa` also take a `Side`: a matrix that is compared several times is then decomposed once.
"""

from ablations.measures.cca import cca, pwcca, svcca
from ablations.measures.cka import debiased_cka, linear_cka, minibatch_cka, rbf_cka
from ablations.measures.geometry import procrustes, rsa
from ablations.measures.matrices import Side

__all__ = [
    "Side",
    "cca",
    "debiased_cka",
    "linear_cka",
    "minibatch_cka",
    "procrustes",
    "pwcca",
    "rbf_cka",
    "rsa",
    "svcca",
]
