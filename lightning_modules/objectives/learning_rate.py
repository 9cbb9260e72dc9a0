"""Learning rates: the factor on the peak of the learning rate at each step, from 0 to 1.

Steps are counted from 0. Over the warm-up the factor goes up to 1 in equal steps.
"""

import math

from lightning_modules.config import TrainingSettings

DECAY_SHARE = 0.1
"""Share of all steps over which `wsd` decays; Hu et al. 2024, section 4, find that a tenth is enough."""


def learning_rate_factor(step: int, training: TrainingSettings) -> float:
    """Return the factor on `training.learning_rate` at a step, as `training.schedule` says."""
    warmup, steps = training.warmup_steps, training.max_steps
    match training.schedule:
        case "linear":
            return warmup_then_decay(step, warmup, steps)
        case "inverse_sqrt":
            return warmup_then_inverse_sqrt(step, warmup)
        case "cosine":
            return warmup_then_cosine(step, warmup, steps)
        case "constant":
            return warmup_then_constant(step, warmup)
        case "wsd":
            return warmup_stable_decay(step, warmup, steps)


def warmup_then_decay(step: int, warmup_steps: int, max_steps: int) -> float:
    """Return the factor that falls in equal steps after the warm-up, and is 0 after the last."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return max(0.0, (max_steps - step) / max(1, max_steps - warmup_steps))


def warmup_then_inverse_sqrt(step: int, warmup_steps: int) -> float:
    """Return the factor that falls with the inverse square root of the number of steps after the warm-up."""
    number, warmup = step + 1, max(1, warmup_steps)
    return min(number / warmup, (warmup / number) ** 0.5)


def warmup_then_cosine(step: int, warmup_steps: int, max_steps: int) -> float:
    """Return the factor that falls as half a wave of the cosine after the warm-up, and is 0 after the last step
    (Loshchilov and Hutter 2017, equation 5, without restarts)."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return (1 - math.cos(math.pi * warmup_then_decay(step, warmup_steps, max_steps))) / 2


def warmup_then_constant(step: int, warmup_steps: int) -> float:
    """Return the factor that stays 1 after the warm-up."""
    return (step + 1) / warmup_steps if step < warmup_steps else 1.0


def warmup_stable_decay(step: int, warmup_steps: int, max_steps: int) -> float:
    """Return the factor that stays 1 after the warm-up, then falls in equal steps over the last `DECAY_SHARE` of
    all steps, and is 0 after the last (Hu et al. 2024, section 4).

    The decay is never longer than what the warm-up leaves. The paper leaves the form of the decay open and takes
    an exponential one; this is the linear one of Hägele et al. 2024.
    """
    decay_steps = min(max(1, round(DECAY_SHARE * max_steps)), max_steps - warmup_steps)
    if step < max_steps - decay_steps:
        return warmup_then_constant(step, warmup_steps)
    return max(0.0, (max_steps - step) / max(1, decay_steps))
