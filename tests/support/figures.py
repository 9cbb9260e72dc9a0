"""Rows of token information for figures."""

from functools import partial

from ablations import results
from reports.figures.by_arm import by_arm


def information(values_by_seed, *, floor=None, arm="mlm", **changes):
    """Rows of token information, one list of values by layer for each seed."""
    return results.table(
        {
            "run_id": f"{arm}{seed}",
            "arm": arm,
            "seed": seed,
            "step": 8,
            "measure": "token_information",
            "metric": "cross_fitted",
            "layer": layer,
            "value": value,
            "floor": floor,
        }
        | changes
        for seed, values in enumerate(values_by_seed)
        for layer, value in enumerate(values)
    )


layer_change = partial(by_arm, measure="layer_change", metric="pwcca")
token_information = partial(by_arm, measure="token_information", metric="cross_fitted")
read_out = partial(by_arm, measure="read_out", metric="linear")
learning = partial(by_arm, measure="learning", metric="gain")
neighbours = partial(by_arm, measure="neighbours", metric="same_token")
geometry = partial(by_arm, measure="geometry", metric="effective_rank")
