"""Forms of curves as one number per seed: over layers, over an ordered factor, and at an optimum.

Arrays go in, arrays come out. S = seeds, K = positions in their order.

If the lowest layer were taken from the same numbers that are then judged, noise alone would show a minimum:
the top minus the lowest is never below 0. Here the layer is the lowest of the mean over the other seeds, so a
seed's own number at that layer can lie on either side.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
Places = NDArray[np.intp]


class Form(NamedTuple):
    """Form of a curve: the value of each seed, its chosen layer (as place in the curve), and its values at all
    layers that could have been chosen."""

    values_S: Array
    chosen_S: Places
    at_layers_LS: Array
    extreme: Literal["largest", "smallest"]
    """Extreme over layers that equals the form if the curve has no noise."""
    ratio_of: tuple[Array, Array, float] | None = None
    """Numerators, denominators and the bound of a ratio; None for a difference."""


def lowest_elsewhere(values_SK: Array, *, among: Places) -> Places:
    """Return for each seed the place, among the given ones, with the lowest mean over all other seeds.

    Needs two seeds.
    """
    others_SK = (values_SK.sum(0) - values_SK) / (len(values_SK) - 1)
    return among[others_SK[:, among].argmin(1)]


def _inner(values_SK: Array) -> Places:
    return np.arange(1, values_SK.shape[1] - 1)


def _at(values_SK: Array, places_S: Places) -> Array:
    return np.take_along_axis(values_SK, places_S[:, None], axis=1)[:, 0]


def rise_to_top(values_SK: Array) -> Form:
    """Return the top minus the lowest inner layer, which is chosen for each seed on the other seeds."""
    return _above_inner(values_SK[:, -1], values_SK)


def fall_to_inner(values_SK: Array) -> Form:
    """Return the bottom minus the lowest inner layer, which is chosen for each seed on the other seeds. If
    the curve also rises to the top, its minimum is an inner layer."""
    return _above_inner(values_SK[:, 0], values_SK)


def _above_inner(end_S: Array, values_SK: Array) -> Form:
    inner = _inner(values_SK)
    chosen = lowest_elsewhere(values_SK, among=inner)
    return Form(end_S - _at(values_SK, chosen), chosen, end_S - values_SK[:, inner].T, "largest")


def top_is_lowest(values_SK: Array) -> Form:
    """Return the lowest layer below the top, which is chosen for each seed on the other seeds, minus the top."""
    chosen = lowest_elsewhere(values_SK, among=np.arange(values_SK.shape[1] - 1))
    each_LS = values_SK[:, :-1].T - values_SK[:, -1]
    return Form(_at(values_SK, chosen) - values_SK[:, -1], chosen, each_LS, "smallest")


def top_over_lowest(values_SK: Array, *, ratio: float) -> Form:
    """Return the ratio of the top to the lowest of the other layers, minus `ratio`. It is linear in each
    seed, so that its mean is the ratio of the means minus `ratio` (Fieller's form)."""
    chosen = lowest_elsewhere(values_SK, among=np.arange(values_SK.shape[1] - 1))
    low = _at(values_SK, chosen)
    each_LS = values_SK[:, -1] - ratio * values_SK[:, :-1].T
    return _ratio(values_SK[:, -1], low, ratio, chosen, each_LS)


def rise_after_inner(values_SK: Array, *, ratio: float) -> Form:
    """Return the ratio of the highest layer above the lowest inner layer to this inner layer, minus `ratio`, in
    the linear form of `top_over_lowest`. Both layers are chosen on the other seeds."""
    chosen = lowest_elsewhere(values_SK, among=_inner(values_SK))
    others_SK = (values_SK.sum(0) - values_SK) / (len(values_SK) - 1)
    above = np.arange(values_SK.shape[1])[None, :] > chosen[:, None]
    peak = np.where(above, others_SK, -np.inf).argmax(1)
    low = _at(values_SK, chosen)
    last = values_SK.shape[1] - 1
    each_LS = np.stack(
        [
            values_SK[:, high] - ratio * values_SK[:, inner]
            for inner in range(1, last)
            for high in range(inner + 1, last + 1)
        ]
    )
    return _ratio(_at(values_SK, peak), low, ratio, chosen, each_LS)


def _ratio(above_S: Array, below_S: Array, ratio: float, chosen_S: Places, each_LS: Array) -> Form:
    """Return a ratio of means minus `ratio`. Seeds and layers are divided by the same number, which changes the
    unit and no test. The effect is not tested as a ratio if the mean of the denominators is not positive."""
    unit = abs(below_S.mean())
    values_S = (above_S - ratio * below_S) / unit
    ratio_of = (above_S, below_S, ratio) if below_S.mean() > 0 else None
    return Form(values_S, chosen_S, each_LS / unit, "largest", ratio_of)


def rise(values_SK: Array) -> Array:
    """Return how far the straight line through each seed's values rises from the first place to the last.

    It is continuous. A rank correlation is not: with a clear trend it is the same in every seed.
    """
    places = np.arange(values_SK.shape[1]) - (values_SK.shape[1] - 1) / 2
    slope_S = values_SK @ places / (places @ places)
    return slope_S * (values_SK.shape[1] - 1)


class Parabola(NamedTuple):
    """Least-squares parabola for each seed: height = a + slope x + bend x^2."""

    slope_S: Array
    bend_S: Array

    def derivative(self, place: float) -> Array:
        """Return the derivative of each seed's parabola at a place."""
        return self.slope_S + 2 * self.bend_S * place


def parabola(places_K: Array, values_SK: Array) -> Parabola:
    """Fit a parabola to the values of each seed alone."""
    design = np.vander(places_K, 3)
    coefficients, *_ = np.linalg.lstsq(design, values_SK.T, rcond=None)
    return Parabola(coefficients[1], coefficients[0])


class Ratio(NamedTuple):
    """Ratio of two means with its interval; both ends are NaN if the denominator may be 0."""

    value: float
    low: float
    high: float


def ratio_interval(above_S: Array, below_S: Array, *, confidence: float) -> Ratio:
    """Return Fieller's interval of mean(above) / mean(below): all r for which above - r below may have mean
    0. Both ends are NaN below two seeds."""
    size = len(above_S)
    value = float(above_S.mean() / below_S.mean())
    if size < 2:
        return Ratio(value, np.nan, np.nan)
    covariance = np.cov(above_S, below_S) / size
    critical = stats.t.ppf((1 + confidence) / 2, size - 1) ** 2
    a = below_S.mean() ** 2 - critical * covariance[1, 1]
    b = -2 * (above_S.mean() * below_S.mean() - critical * covariance[0, 1])
    c = above_S.mean() ** 2 - critical * covariance[0, 0]
    root = b * b - 4 * a * c
    if a <= 0 or root < -1e-12 * b * b:  # float64: a few roundings of b * b, as if all seeds are equal
        return Ratio(value, np.nan, np.nan)
    low, high = ((-b + sign * np.sqrt(max(root, 0.0))) / (2 * a) for sign in (-1, 1))
    return Ratio(value, float(low), float(high))
