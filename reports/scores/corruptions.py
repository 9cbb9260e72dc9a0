"""Corruption by arm: what was done to the tokens that masked LM predicts, and what it predicts at visible
tokens."""

from collections.abc import Sequence
from typing import Any

from pandas import DataFrame, concat

from reports.statistics.summaries import last_step, mean_interval

RATES = ("hidden", "masked", "random", "kept", "collision_rate")
"""Rates of `corruption`, as the run's log counted them."""

LOSSES = ("masked", "random", "kept")
"""Groups of the loss of `validation`: how the predicted token was shown."""

OBSERVED = ("observed_clean", "observed_replaced", "recovered_replaced")
"""Metrics of `validation`; see `ablations.measures.validation`."""

GUESSED = "guessed_clean"
"""The floor of `observed_clean` as a number of its own: how often the same tokens are guessed where hidden."""

NO_MEAN = {"mean": None, "low": None, "high": None, "seeds": 0}


def corruptions(table: DataFrame, *, arms: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row an arm that has any of the numbers: each a mean over seeds with its 95% t interval, under the
    names of `RATES`, `OBSERVED`, `GUESSED` and `loss_` with one of `LOSSES`; of the last step."""
    last = last_step(table[table["measure"].isin(["corruption", "validation"])])
    by_treatment = (last["metric"] == "loss") & last["group"].isin(LOSSES)
    of_all_tokens = last["group"].isna() & last["metric"].isin([*RATES, *OBSERVED])
    chosen = last[by_treatment | of_all_tokens]
    chosen = chosen.assign(name=chosen["metric"].where(chosen["group"].isna(), "loss_" + chosen["group"]))
    guessed = chosen[chosen["metric"] == OBSERVED[0]]
    guessed = guessed.assign(name=GUESSED, value=guessed["floor"]).dropna(subset="value")
    chosen = concat([chosen, guessed], ignore_index=True)
    means = {
        (row["arm"], row["name"]): {name: row[name] for name in NO_MEAN}
        for row in mean_interval(chosen, by=["arm", "name"]).to_dict("records")
    }
    names = [*RATES, *(f"loss_{group}" for group in LOSSES), GUESSED, *OBSERVED]
    measured_arms = {arm for arm, _ in means}
    return [
        {"arm": arm} | {name: means.get((arm, name), NO_MEAN) for name in names}
        for arm in arms
        if arm in measured_arms
    ]


SHOWN = frozenset({*RATES, *OBSERVED})
"""Metrics that the table shows."""
