"""Costs of a run before it runs: tokens, operations, evaluations. No torch."""

from ablations.catalogue import Measure
from lightning_modules.config import RunSettings, operations_per_token


def tokens(run: RunSettings) -> int:
    """Return the real source tokens of a run, at most."""
    return run.training.max_steps * run.training.tokens_per_step


def flops(run: RunSettings) -> float:
    """Return the useful operations of training; of skip-gram, at most (see `operations_per_token`)."""
    return operations_per_token(run) * tokens(run)


def evaluations(run: RunSettings) -> int:
    """Return how often a run is evaluated while it trains."""
    return -(-run.training.max_steps // run.training.validate_every)


def measured_checkpoints(settings: Measure, run: RunSettings) -> int:
    """Return how many checkpoints a measure reads: the last, or 0, the powers of two and the last, as far as they
    are kept."""
    steps, keep = run.training.max_steps, run.training.keep_checkpoints
    if settings.checkpoints == "last":
        return 1
    saved = len({0, steps} | {2**i for i in range(steps.bit_length())})
    return saved if keep == "all" else min(saved, keep)
