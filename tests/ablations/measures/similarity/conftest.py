"""Two layers that are related."""

import numpy as np
import pytest

from tests.support.matrices import D, N, normal


@pytest.fixture
def pair():
    """Two related layers, anisotropic and far from centred, as real ones are."""
    x_ND = normal(N, D, seed=0) * np.linspace(0.3, 3, D) + np.linspace(-2, 4, D)
    y_ND = x_ND @ normal(D, D, seed=1) + 4 * normal(N, D, seed=2)
    return x_ND, y_ND
