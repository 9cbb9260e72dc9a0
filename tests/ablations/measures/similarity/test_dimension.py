"""Dimension of a layer, held against its definition, its laws and cases worked out by hand."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from ablations.measures.similarity import (
    Side,
    effective_rank,
    participation_ratio,
)
from tests.support.matrices import DIMENSIONS, ORDER, D, N, complaint, normal, rotation, same


def test_dimensions_equal_their_definitions_on_eigenvalues_of_the_covariance(pair):
    for x in (*pair, normal(5, 9, seed=0)):  # fewer tokens than features, too
        variances = np.linalg.eigvalsh(np.cov(x, rowvar=False)).clip(0)
        deviations = np.sqrt(variances)
        entropy = scipy.stats.entropy(deviations / deviations.sum())
        assert effective_rank(x) == same(math.exp(entropy), abs=1e-5)  # roots of rounding in place of zeros
        assert participation_ratio(x) == same(variances.sum() ** 2 / (variances**2).sum())


def test_dimensions_of_two_directions_worked_out_by_hand():
    """Singular values 3 and 1: three quarters and a quarter of their sum, 9 and 1 tenths of their squares."""
    h = np.linalg.qr(np.c_[np.ones(20), normal(20, 2, seed=0)])[0][:, 1:]
    assert effective_rank(h * [3, 1]) == same(4 / 3**0.75)
    assert participation_ratio(h * [3, 1]) == same(100 / 82)


@pytest.mark.parametrize("name", DIMENSIONS)
def test_dimensions_lie_between_a_line_and_all_directions_there_are(name):
    measure = DIMENSIONS[name]
    line = normal(50, 1, seed=0) @ normal(1, 6, seed=1) + normal(6, seed=2)
    assert measure(line) == same(1)
    h = np.linalg.qr(np.c_[np.ones(50), normal(50, 6, seed=3)])[0][:, 1:]
    assert measure(h) == same(6)
    assert measure(np.eye(4, 10)) == same(3)  # as many as tokens allow: the corners of a tetrahedron
    assert measure(normal(2, 10, seed=4)) == same(1)
    white = [measure(normal(2000, 20, seed=seed)) for seed in range(5)]
    assert np.mean(white) == same(20 / (1 + 20 / 2000), abs=0.2)  # chance spreads variances by 1 +- sqrt(D / N)
    for seed in range(20):
        x = normal(30, 5, seed=seed) * np.geomspace(1, 10, 5)
        assert 1 <= participation_ratio(x) <= effective_rank(x) <= 5


@pytest.mark.parametrize("name", DIMENSIONS)
def test_dimensions_ignore_means_rotations_and_scale_and_nothing_else(name, pair):
    measure, x = DIMENSIONS[name], pair[0]
    for alike in (
        x + 5 * normal(D, seed=10),
        7 * x,
        2.0**500 * x,
        x @ rotation(D, seed=12),
        x[ORDER],
        x[:, ::-1],
        np.c_[x, x],
        np.c_[x, np.full((N, 2), 0.1)],
        torch.from_numpy(x).requires_grad_(),
        Side.of(x),
    ):
        assert measure(alike) == same(measure(x))
    assert type(measure(x)) is float
    for other in (x @ normal(D, D, seed=14), x * np.linspace(1, 2, D), np.c_[x, x[:, :1]], x[: N // 2], x**2):
        assert measure(other) != same(measure(x), abs=1e-4)  # far above rounding


@pytest.mark.parametrize(
    ("name", "label"),
    [("effective_rank", "effective rank"), ("participation_ratio", "participation ratio")],
)
def test_dimensions_refuse_what_has_none(name, label):
    measure = DIMENSIONS[name]
    assert complaint(measure, np.full((9, 3), 0.1)) == (
        f"{label} is undefined: all 9 rows of x are equal; check whether the run has collapsed."
    )
    assert (
        complaint(measure, np.ones((1, 3))) == f"{label} needs at least 2 tokens, got 1; capture more sentences."
    )
    assert complaint(measure, np.full((9, 3), np.nan)) == (
        "x must be finite, but 27 of 27 values are NaN or infinity, first at row 0, column 0; check whether "
        "the run diverged or padding was kept."
    )
