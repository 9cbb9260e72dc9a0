"""What the seeds say about one effect: probabilities of one side, and the interval that agrees with them.

The t test of the seeds decides, with two additions.

*Seeds that all show the same number* have no spread, and so no t test. There the sign-flip test does: that n seeds
lie on one side of a number which is their median happens once in 2^n. From six seeds on that is enough for a claim
that is judged alone.

*Layers that seeds choose for each other.* A seed's effect at the layer where the others are lowest has the right
mean (0 where curves are flat), but not the spread that a t test believes in: the others are nearly all the seeds,
so all choose as their common mean says, and are then tested by the numbers that they chose by; only where two
layers are nearly as low do seeds change sides, all at once and far. On flat curves of 20 seeds the t test at 2.5%
a side finds a form in 6 to 10 of 100 experiments and its opposite in 6 to 13, more than with fewer seeds, so no
stricter level mends it. Therefore an effect that is the largest over layers must also hold at one of them at the
level divided by their number (Bonferroni; union-intersection), and to be refuted must be refuted at each
(intersection-union, Berger 1982); for the smallest over layers it is the other way round. Either side then errs
at most at its level, whatever the layers have to do with each other. Halves of the seeds that choose for each
other would do too, but leave half of the seeds for each test.
"""

import numpy as np
from numpy.typing import NDArray

from reports import seed_tests
from reports.seed_effects import SeedEffects
from reports.seed_tests import Interval


def above(effects: SeedEffects, *, against: float = 0.0) -> float:
    """Probability of seeds that lie at least so high, if the effect were `against` or less."""
    alone = float(seed_tests.one_sided(effects.values, against=against))
    if effects.at_layers_LMS is None:
        return alone
    at_LM = seed_tests.one_sided(effects.at_layers_LMS, against=against)
    return max(alone, min(1.0, len(at_LM) * float(at_LM.max(1).min())))


def below(effects: SeedEffects, *, against: float = 0.0) -> float:
    """Probability of seeds that lie at least so low, if the effect were `against` or more."""
    return above(_mirrored(effects), against=-against)


def interval(effects: SeedEffects, *, confidence: float) -> Interval:
    """Mean over seeds, and every effect that neither side refuses at half of 1 - confidence.

    The t interval; where layers were chosen, widened to what holds at whichever layers. Of seeds that all show
    the same number it has no width and says nothing. NaN on either side as in `seed_tests.t_interval`.
    """
    own = seed_tests.t_interval(effects.values, confidence=confidence)
    if effects.at_layers_LMS is None or np.isnan(own.low):
        return own
    low = min(own.low, _lowest(effects.at_layers_LMS, confidence=confidence))
    high = max(own.high, -_lowest(_swapped(effects.at_layers_LMS), confidence=confidence))
    return Interval(own.mean, low, high)


def shared_level(effects: SeedEffects, level: float) -> float:
    """The level of a test at one of the layers that could have been chosen; without a choice, the whole one."""
    return level if effects.at_layers_LMS is None else level / max(effects.at_layers_LMS.shape[:2])


def _lowest(at_LMS: NDArray[np.float64], *, confidence: float) -> float:
    """The lower bound of the largest over L of the smallest over M."""
    part = 1 - (1 - confidence) / len(at_LMS)
    return max(min(seed_tests.t_interval(values, confidence=part).low for values in row) for row in at_LMS)


def _mirrored(effects: SeedEffects) -> SeedEffects:
    at = effects.at_layers_LMS
    return effects._replace(values=-effects.values, at_layers_LMS=None if at is None else _swapped(at))


def _swapped(at_LMS: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of minus the effect. Which of largest and smallest comes first makes no difference, as each number is one of
    its L minus one of its M."""
    return -at_LMS.swapaxes(0, 1)
