"""Similarities of two layers: matrices and options that are refused, in whole sentences."""

import math
import re

import numpy as np
import pytest
import torch

from ablations.measures.similarity import (
    Side,
    debiased_cka,
    minibatch_cka,
    pwcca,
    rbf_cka,
    rsa,
    svcca,
)
from tests.support import matrices
from tests.support.matrices import MEASURES, D, N, complaint, normal

# Errors ----------------------------------------------------------------------------------------------


LABELS = {
    "cca": "CCA",
    "svcca": "SVCCA",
    "pwcca": "PWCCA",
    "pwcca_repo": "PWCCA",
    "linear_cka": "linear CKA",
    "debiased_cka": "debiased CKA",
    "minibatch_cka": "minibatch CKA",
    "rbf_cka": "RBF CKA",
    "rsa": "RSA",
    "procrustes": "Procrustes",
}
"""What sentences call a measure."""


@pytest.mark.parametrize("name", MEASURES)
def test_unfit_matrices_are_refused_by_every_measure(name, pair):
    measure, (x, y) = MEASURES[name], pair
    assert complaint(measure, x, y[1:]) == (
        f"{LABELS[name]} compares the same tokens on both sides, but x and y have 200 and 199 rows; "
        f"capture both from the same token occurrences, in the same order."
    )
    holed = y.copy()
    holed[17, 2], holed[18, 3] = np.nan, np.inf
    assert complaint(measure, x, holed) == (
        f"y must be finite, but 2 of {y.size} values are NaN or infinity, first at row 17, column 2; check "
        "whether the run diverged or padding was kept."
    )
    shape = (
        "{} must be a matrix of tokens by features, but its shape is {}; give one row for each token, without "
        "padding."
    )
    assert complaint(measure, x[None], y) == shape.format("x", "(1, 200, 8)")
    assert complaint(measure, x, y[:, :0]) == shape.format("y", "(200, 0)")
    kind = "{} must hold real numbers, but its type is {}."
    assert complaint(measure, x, y * 1j) == kind.format("y", "complex128")
    assert complaint(measure, torch.from_numpy(x * 1j), y) == kind.format("x", "torch.complex128")
    assert complaint(measure, np.full((N, D), "a"), y) == kind.format("x", "<U1")
    assert complaint(measure, x.astype(object), y) == kind.format(
        "x", "object; convert it, as with .to_numpy(float)"
    )
    assert complaint(measure, x, [[1.0, 2.0], [3.0]]) == (
        "y must be a matrix of tokens by features, but its rows have different lengths; give rows of equal length."
    )
    sparse = torch.from_numpy(y).to_sparse()
    assert complaint(measure, x, sparse) == "y is a sparse tensor; give a dense one, as with .to_dense()."
    assert complaint(measure, x, np.ma.masked_array(y, mask=y > 1)) == (
        "y is a masked array, but its mask would be ignored; give an array with only the rows that count."
    )


@pytest.mark.parametrize("name", sorted(set(MEASURES) - {"rsa"}))
def test_a_side_without_variance_is_refused(name, pair):
    assert complaint(MEASURES[name], pair[0], np.full((N, D), 0.1)) == (
        f"{LABELS[name]} is undefined: all 200 rows of y are equal; check whether the run has collapsed."
    )


def test_rsa_refuses_a_side_as_it_needs_uncentred_rows(pair):
    assert complaint(rsa, pair[0], Side.of(pair[1])) == (
        "y must be a matrix of tokens by features, but is a Side; give the matrix itself."
    )


@pytest.mark.parametrize("name", ["cca", "svcca", "pwcca", "pwcca_repo"])
def test_cca_is_refused_below_five_tokens_per_feature_and_warns_below_ten(name):
    measure, label = MEASURES[name], LABELS[name]
    x, y = normal(100, 4, seed=0), normal(100, 10, seed=1)
    message = (
        f"{label} needs at least 5 tokens per feature, which is 50 at a width of 10, but got 49; give "
        "more tokens or fewer features."
    )
    assert complaint(measure, x[:49], y[:49]) == message
    assert complaint(measure, y[:49], x[:49]) == message
    for tokens in (50, 99):
        warning = (
            f"{label} of {tokens} tokens at a width of 10: with fewer than 10 tokens per feature, most of a "
            "weak similarity is chance; show its floor beside it."
        )
        with pytest.warns(UserWarning, match=f"^{re.escape(warning)}$") as seen:
            measure(x[:tokens], y[:tokens])
        caller = matrices.__file__ if measure.__name__ == "<lambda>" else __file__
        assert [each.filename for each in seen] == [caller]
    measure(x, y)  # a warning would be an error here


def test_impossible_options_are_refused(pair):
    for variance in (0, 99, math.nan, "a", None, np.ones(2)):
        assert complaint(svcca, *pair, variance=variance) == (
            "variance is the share of variance that SVCCA keeps and must be above 0 and at most 1, but is "
            f"{variance!r}."
        )
    assert complaint(pwcca, *pair, weights="second") == (
        "weights of PWCCA must be 'first' or 'svcca_repo', but is 'second'."
    )
    for batch_size in (3, 201, 20.5, "a", None):
        assert complaint(minibatch_cka, *pair, batch_size=batch_size) == (
            f"minibatch CKA needs batches of 4 tokens up to all 200, but batch_size is {batch_size!r}."
        )
    for bandwidth in (0, math.nan, math.inf, "a", None):
        assert complaint(rbf_cka, *pair, bandwidth=bandwidth) == (
            f"RBF CKA needs a positive bandwidth, but bandwidth is {bandwidth!r}."
        )


def test_options_may_be_numbers_of_numpy(pair):
    assert svcca(*pair, variance=np.float32(1)) == svcca(*pair, variance=1)
    assert minibatch_cka(*pair, batch_size=np.int64(50)) == minibatch_cka(*pair, batch_size=50)
    assert rbf_cka(*pair, bandwidth=np.float64(0.5)) == rbf_cka(*pair, bandwidth=0.5)


def test_undefined_values_are_refused_and_not_returned_as_nan():
    assert complaint(debiased_cka, np.eye(5), normal(5, 2, seed=0)) == (
        "debiased CKA is undefined: all pairs of tokens of x are equally similar, so its unbiased HSIC with "
        "itself is 0; use more tokens."
    )
    assert complaint(debiased_cka, np.eye(3), np.eye(3)) == (
        "debiased CKA needs at least 4 tokens, got 3; capture more sentences."
    )
    mostly_equal = np.r_[np.tile(normal(1, 7, seed=0), (90, 1)), normal(10, 7, seed=1)]
    assert complaint(rbf_cka, normal(100, 2, seed=1), mostly_equal) == (
        "RBF CKA is undefined: at least half of all pairs of rows of y are equal, so the median distance is 0; "
        "leave repeated tokens out."
    )
    flat = normal(20, 3, seed=2)
    flat[[4, 7]] = 0.1
    assert complaint(rsa, flat, normal(20, 3, seed=3)) == (
        "RSA correlates rows, but all values are equal in 2 of the 20 rows of x, first in row 4; leave these "
        "tokens out on both sides."
    )
    assert complaint(rsa, normal(20, 3, seed=3), np.eye(20)) == (
        "RSA is undefined: all pairs of rows of y are equally similar; use more tokens."
    )
