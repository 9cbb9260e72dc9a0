"""Made matrices, and every measure of similarity with what it ignores."""

from functools import partial

import numpy as np
import pytest

from ablations.errors import MeasureError
from ablations.measures.similarity import (
    cca,
    debiased_cka,
    effective_rank,
    linear_cka,
    minibatch_cka,
    participation_ratio,
    procrustes,
    pwcca,
    rbf_cka,
    rsa,
    svcca,
)
from tests.support.errors import error_text

N, D = 200, 8


MEASURES = {
    "cca": cca,
    "svcca": lambda x, y: svcca(x, y, variance=0.9),
    "pwcca": pwcca,
    "pwcca_repo": lambda x, y: pwcca(x, y, weights="svcca_repo"),
    "linear_cka": linear_cka,
    "debiased_cka": debiased_cka,
    "minibatch_cka": lambda x, y: minibatch_cka(x, y, batch_size=50),
    "rbf_cka": rbf_cka,
    "rsa": rsa,
    "procrustes": procrustes,
}


def same(value, abs=1e-9):
    """Algebra in float64: equal up to the rounding of a few hundred operations."""
    return pytest.approx(value, rel=0, abs=abs)


def normal(*shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def rotation(size, seed):
    return np.linalg.qr(normal(size, size, seed=seed))[0]


ORDER = np.random.default_rng(0).permutation(N)


# How many directions a layer has ---------------------------------------------------------------------

DIMENSIONS = {"effective_rank": effective_rank, "participation_ratio": participation_ratio}


complaint = partial(error_text, MeasureError)
