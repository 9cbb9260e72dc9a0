"""Linear models of frozen features: logistic regression over all classes and, for numbers, ridge regression.

How much the weights are held down is chosen on a validation part, by the log-probability of its labels or by its
squared error: both tell more from few examples than accuracy does.

Letters: N examples, D features, K classes.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression, Ridge

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)
"""For standardised features: the variance of the Gaussian prior on each weight, scikit-learn's C."""
PENALTIES = (0.1, 1.0, 10.0, 100.0)
"""Penalties of ridge regression: scikit-learn's alpha."""
MOST_ITERATIONS = 5000
"""Enough for every fit to converge, which a hundred or so do; a fit that does not warns."""

Features: TypeAlias = NDArray[np.floating] | csr_matrix
"""Dense or sparse, shape ND."""
Labels = NDArray[np.str_]


class Part(NamedTuple):
    """Features of one part and their targets: classes or numbers, shape N."""

    x_ND: Features
    y_N: NDArray[np.str_] | NDArray[np.int64] | NDArray[np.float64]


class Classifier(NamedTuple):
    """A fitted classifier."""

    model: LogisticRegression
    strength: float

    def says(self, x_ND: Features) -> Labels:
        """Return the most probable class of each example."""
        return np.asarray(self.model.predict(x_ND))


def classifier(train: Part, *, strength: float, weight_N: NDArray[np.float64] | None = None) -> Classifier:
    """Fit multinomial logistic regression with an L2 penalty on all weights but the intercepts.

    Args:
        weight_N: how much each example counts; all the same unless given.
    """
    model = LogisticRegression(C=strength, max_iter=MOST_ITERATIONS)
    return Classifier(model.fit(train.x_ND, train.y_N, sample_weight=weight_N), strength)


def best_classifier(train: Part, validation: Part, *, strengths: Sequence[float] = STRENGTHS) -> Classifier:
    """Return the classifier, of all strengths, that gives the validation part's labels the highest probability.

    Labels that the training part lacks say nothing about it and are passed over.
    """
    fitted = [classifier(train, strength=strength) for strength in strengths]
    return max(fitted, key=lambda each: _log_probability(each.model, validation))


def _log_probability(model: LogisticRegression, part: Part) -> float:
    known_N = np.flatnonzero(np.isin(part.y_N, model.classes_))
    with np.errstate(divide="ignore"):  # a probability may be 0 to all digits
        log_p_NK = model.predict_log_proba(part.x_ND[known_N]) if len(known_N) else np.zeros((0, 1))
    class_N = np.searchsorted(model.classes_, part.y_N[known_N])
    return float(log_p_NK[np.arange(len(known_N)), class_N].sum())


def best_ridge(train: Part, validation: Part, *, penalties: Sequence[float] = PENALTIES) -> Ridge:
    """Return the ridge regression, of all penalties, with the smallest squared error on the validation part."""
    fitted = [Ridge(alpha=penalty).fit(train.x_ND, train.y_N) for penalty in penalties]
    return min(fitted, key=lambda each: _squared_error(each, validation))


def _squared_error(model: Ridge, part: Part) -> float:
    return float(np.square(model.predict(part.x_ND) - part.y_N).sum())
