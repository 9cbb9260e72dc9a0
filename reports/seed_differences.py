"""How far two means over seeds lie apart, of the same seeds or of others."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from reports.seed_tests import t_interval
from reports.statistics import ROUNDING

CONFIDENCE = 0.95
"""Of the intervals of differences."""

Seeds = Mapping[int, float]
"""A number a seed."""


def difference(before: Seeds, after: Seeds) -> dict[str, Any] | None:
    """Mean of `after` less that of `before`, and its 95% t interval; None without a number on both sides.

    Keys `mean, low, high, confidence, paired`. Where both sides have the same seeds the interval is that of the
    differences within seeds. Otherwise it is Welch's, for independent seeds; if some seed then has a run on both
    sides, it is wider than it need be. No interval where a side has one seed, or there is no spread. What is less
    than the rounding of the numbers compared is 0.
    """
    paired = before.keys() == after.keys()
    if not before or not after:
        return None
    if paired:
        mean, low, high = t_interval([after[seed] - before[seed] for seed in before], confidence=CONFIDENCE)
    else:
        mean, low, high = _welch(list(before.values()), list(after.values()))
    if not math.isfinite(mean):
        return None
    # Of two equal numbers one may have been computed in another order: their difference says nothing.
    rounding = ROUNDING * max(map(abs, (*before.values(), *after.values())))
    ends = {"low": low, "high": high} if high - low > rounding else {"low": None, "high": None}
    return {"mean": mean if abs(mean) > rounding else 0.0, **ends, "confidence": CONFIDENCE, "paired": paired}


def _welch(before: list[float], after: list[float]) -> tuple[float, float, float]:
    """Return the mean difference and its interval for independent seeds whose variances may differ."""
    mean = float(np.mean(after) - np.mean(before))
    if min(len(before), len(after)) < 2 or not math.isfinite(mean):
        return mean, math.nan, math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a side whose seeds agree
        interval = stats.ttest_ind(after, before, equal_var=False).confidence_interval(CONFIDENCE)
    return mean, float(interval.low), float(interval.high)
