"""`python -m benchmarks.coverage`: how often intervals of a score cover the truth, by simulation.

A score is the mean over seeds and examples. It varies over examples with a standard deviation of 1, over
seeds with `--seed-sd`, and with 0.3 over single answers. With 0.2 and 100 examples, seeds and examples
contribute equally to the error of a mean over four seeds. A good interval at 95% covers the truth in 95 of
100 experiments.
"""

from collections.abc import Callable
from pathlib import Path

import click
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from reports.statistics.seed_tests import Interval, t_interval
from reports.statistics.summaries import BOOTSTRAP_DRAWS, multi_bootstrap

SIZES = (3, 4, 5, 7, 10, 15, 25)
EXAMPLES = 100
NOISE = 0.3

Values = NDArray[np.float64]
Way = Callable[[Values, np.random.Generator], Interval]


def over_seeds(values_SN: Values, rng: np.random.Generator) -> Interval:
    """Return the t interval over seeds."""
    return t_interval(values_SN.mean(1), confidence=0.95)


def over_examples(values_SN: Values, rng: np.random.Generator) -> Interval:
    """Return the percentiles of the bootstrap over examples alone, with fixed seeds."""
    value_N = values_SN.mean(0)
    means = value_N[rng.integers(0, value_N.size, (BOOTSTRAP_DRAWS, value_N.size))].mean(1)
    return Interval(float(value_N.mean()), *map(float, np.quantile(means, (0.025, 0.975))))


def percentiles(values_SN: Values, rng: np.random.Generator) -> Interval:
    """Return the percentiles of the multi-bootstrap as in its source, which draws as many seeds and examples
    as there are."""
    seeds, examples = values_SN.shape
    share_BS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), BOOTSTRAP_DRAWS) / seeds
    share_BN = rng.multinomial(examples, np.full(examples, 1 / examples), BOOTSTRAP_DRAWS) / examples
    means = np.einsum("bs,sb->b", share_BS, values_SN @ share_BN.T)
    return Interval(float(values_SN.mean()), *map(float, np.quantile(means, (0.025, 0.975))))


WAYS: dict[str, Way] = {
    "multi-bootstrap, as here": lambda values_SN, rng: multi_bootstrap(values_SN, rng=rng),
    "multi-bootstrap, plain percentiles": percentiles,
    "t interval over seeds": over_seeds,
    "bootstrap over examples": over_examples,
}


def coverage(way: Way, seeds: int, *, seed_sd: float, experiments: int) -> float:
    """Return the share of experiments whose interval holds the truth, 0."""
    rng = np.random.default_rng(seeds)
    covered = 0
    for _ in range(experiments):
        parts = seed_sd * rng.normal(size=(seeds, 1)), rng.normal(size=(1, EXAMPLES))
        interval = way(sum(parts) + NOISE * rng.normal(size=(seeds, EXAMPLES)), rng)
        covered += interval.low <= 0 <= interval.high
    return covered / experiments


def draw(shares: dict[str, list[float]], path: Path) -> None:
    """Draw the coverage of each interval against the number of seeds into a file."""
    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for (name, share), marker in zip(shares.items(), "os^v", strict=True):
        axes.plot(SIZES, np.multiply(100, share), f"{marker}-", label=name)
    axes.axhline(95, color="0.6", lw=1)
    axes.set(xscale="log", xlabel="seeds", ylabel="intervals that hold the truth (%)", ylim=(20, 101))
    axes.set_xticks(SIZES, map(str, SIZES))
    axes.minorticks_off()
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, metadata={"Date": None})


@click.command()
@click.option("--experiments", default=400, show_default=True, help="Experiments of each number of seeds.")
@click.option("--seed-sd", default=0.2, show_default=True, help="Standard deviation between seeds.")
@click.option("--picture", type=click.Path(path_type=Path), help="Also draw the shares into this file.")
def main(experiments: int, seed_sd: float, picture: Path | None) -> None:
    """Print how often each interval at 95% holds the truth, by the number of seeds."""
    shares = {
        name: [coverage(way, size, seed_sd=seed_sd, experiments=experiments) for size in SIZES]
        for name, way in WAYS.items()
    }
    table = Table("interval", *map(str, SIZES), title=f"experiments covered, by seeds (n = {experiments:,})")
    for name, share in shares.items():
        table.add_row(name, *(f"{100 * one:.1f}%" for one in share))
    Console(width=120).print(table)
    if picture is not None:
        draw(shares, picture)


if __name__ == "__main__":
    main()
