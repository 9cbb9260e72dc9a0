"""`python -m benchmarks.looks`: ways to test a claim at several looks, compared by simulation.

Differences between two arms are normal with a standard deviation of 1 between seeds. A claim stops at the
first look at which it is supported, contradicted or equivalent, by the rules of `reports.claims.verdicts`,
and is never given up. T tests that share the error among the looks are compared with a confidence sequence.
The sequence is made of the Bayes factor of the t test with a normal prior of the standardised effect (Gonen et
al. 2005), which bounds the error over all looks (Perez-Ortiz et al. 2024).
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import special

from ablations.spec.experiment import SeedsUntilDecided
from reports.claims.outcomes import look_levels

LOOKS = SeedsUntilDecided(first=3, up_to=20, until="decided").looks
EVERY = tuple(range(3, 21))
CASES = (
    (0.0, 1.0),
    (0.0, 2.0),
    (0.5, 0.5),
    (1.0, 0.5),
    (1.5, 0.5),
    (2.0, 1.0),
    (3.0, 1.0),
    (5.0, 1.0),
    (10.0, 1.0),
)
"""Pairs of an effect and the smallest effect that matters, in standard deviations."""
MOST_FIXED = 60

Decides = Callable[[NDArray[np.float64], NDArray[np.float64], float], NDArray[np.bool_]]
"""Function of means and standard deviations of shape (draws, looks), and of the smallest effect: returns
whether each look decides."""


def simulated(mean: float, sizes: Sequence[int], draws: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of the seeds so far at each look, both of shape (draws, looks)."""
    values = np.random.default_rng(1).normal(mean, 1.0, (draws, sizes[-1]))
    parts = [values[:, :size] for size in sizes]
    return np.stack([part.mean(1) for part in parts], 1), np.stack([part.std(1, ddof=1) for part in parts], 1)


def t_test(sizes: Sequence[int], levels: Sequence[float]) -> Decides:
    """Return the rule of verdicts with t tests at the level of each look."""
    n, alpha = np.asarray(sizes), np.asarray(levels)

    def decides(mean: NDArray[np.float64], sd: NDArray[np.float64], margin: float) -> NDArray[np.bool_]:
        def above(bound: float) -> NDArray[np.float64]:
            return np.asarray(special.stdtr(n - 1, (bound - mean) / (sd / np.sqrt(n))))

        equivalent = np.maximum(above(-margin), 1 - above(margin)) <= alpha
        return equivalent | (2 * np.minimum(above(0), 1 - above(0)) <= alpha)

    return decides


def sequence(sizes: Sequence[int], level: float, variance: float) -> Decides:
    """Return the rule of verdicts with a confidence sequence; `variance` is that of the prior of the
    standardised effect."""
    n = np.asarray(sizes, float)

    def decides(mean: NDArray[np.float64], sd: NDArray[np.float64], margin: float) -> NDArray[np.bool_]:
        def refuses(bound: float, at: float) -> NDArray[np.bool_]:
            square = np.square((mean - bound) / (sd / np.sqrt(n)))
            factor = np.log1p(square / (n - 1)) - np.log1p(square / ((n - 1) * (1 + n * variance)))
            return np.asarray(n / 2 * factor - np.log1p(n * variance) / 2 >= -np.log(at))

        inside = refuses(-margin, 2 * level) & (mean > -margin) & refuses(margin, 2 * level) & (mean < margin)
        return inside | refuses(0, level)

    return decides


def draw(path: Path, level: float) -> None:
    """Draw the mean above which a claim is supported at each look, and the path of the mean in one
    experiment."""
    levels, every = look_levels(LOOKS, level=level), np.arange(3, 21)
    values = np.random.default_rng(4).normal(1.2, 1.0, LOOKS[-1])
    means, spreads = values.cumsum() / np.arange(1, 21), [values[:size].std(ddof=1) for size in LOOKS]

    def bound(at: Any, size: Any, spread: Any = 1.0) -> Any:
        return special.stdtrit(size - 1, 1 - np.asarray(at) / 2) * spread / np.sqrt(size)

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    axes.plot(every, bound(level, every), color="0.6", label="one look alone, at 5%")
    axes.plot(LOOKS, bound(levels, np.asarray(LOOKS)), "o-", color="C0", label=f"each of {len(LOOKS)} looks")
    stop = next(i for i, size in enumerate(LOOKS) if means[size - 1] > bound(levels[i], size, spreads[i]))
    seen = np.arange(1, LOOKS[stop] + 1)
    axes.plot(seen, means[: LOOKS[stop]], "-", color="C1", label="mean of one experiment")
    axes.plot(LOOKS[: stop + 1], means[np.asarray(LOOKS[: stop + 1]) - 1], "s", color="C1")
    axes.annotate(
        "stops here",
        (LOOKS[stop], means[LOOKS[stop] - 1]),
        (LOOKS[stop] + 1.5, 2.2),
        arrowprops={"arrowstyle": "->"},
    )
    axes.set(
        xlabel="seeds",
        ylabel="mean difference\n(standard deviations)",
        xticks=LOOKS,
        ylim=(0, 6),
        xlim=(0.5, 20.5),
    )
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


@click.command()
@click.option("--draws", default=20_000, show_default=True, help="Experiments of each case.")
@click.option("--level", default=0.05, show_default=True, help="Error over all looks.")
@click.option(
    "--picture", type=click.Path(path_type=Path), help="Also draw the bounds of the looks into this file."
)
def main(draws: int, level: float, picture: Path | None) -> None:
    """Print the mean number of seeds, the share of claims that are decided, and the seeds saved.

    They are saved in comparison with one look that decides as many; or 99%, where more are decided.
    """
    if picture is not None:
        draw(picture, level)
    ways: dict[str, tuple[Sequence[int], Decides]] = {
        f"t tests, error spent with n: {len(LOOKS)} looks": (
            LOOKS,
            t_test(LOOKS, look_levels(LOOKS, level=level)),
        ),
        f"t tests, error spent with n: {len(EVERY)} looks": (
            EVERY,
            t_test(EVERY, look_levels(EVERY, level=level)),
        ),
        "confidence sequence, prior variance 1": (EVERY, sequence(EVERY, level, 1)),
        "confidence sequence, prior variance 10": (EVERY, sequence(EVERY, level, 10)),
    }
    fixed = tuple(range(3, MOST_FIXED + 1))
    table = Table(
        "effect", "matters", *ways, title=f"seeds, decided, seeds saved (level {level:g}, n = {draws:,})"
    )
    for mean, margin in CASES:
        at_once = t_test(fixed, [level] * len(fixed))(*simulated(mean, fixed, draws), margin).mean(0)
        cells = []
        for sizes, decides in ways.values():
            hits = decides(*simulated(mean, sizes, draws), margin)
            is_decided = hits.any(1)
            stop = np.asarray(sizes)[np.where(is_decided, hits.argmax(1), len(sizes) - 1)].mean()
            alike = next(
                (n for n, share in zip(fixed, at_once, strict=True) if share >= min(0.99, is_decided.mean())), None
            )
            saved = f"{100 * (1 - stop / alike):.0f}%" if alike else "?"
            cells.append(f"{stop:.1f}  {100 * is_decided.mean():.0f}%  {saved}")
        table.add_row(f"{mean:g}", f"{margin:g}", *cells)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
