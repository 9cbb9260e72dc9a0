"""Rows of token information for figures."""

from ablations import results


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
