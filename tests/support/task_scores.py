"""Rows of scores, and rows of the tables that are made of them."""

from tests.support.fake_scores import run_of


def score(arm, seed, value, *, task="rte", measure="fine_tuning", metric="score", floor=0.5, step=500, **more):
    """One row."""
    own = {"measure": measure, "metric": metric, "group": task, "value": value, "floor": floor, "n": 277}
    return run_of(arm, seed, step=step) | own | more


def row_of(table, task, metric="score", layer=None):
    (found,) = [r for r in table["rows"] if (r["task"], r["metric"], r["layer"]) == (task, metric, layer)]
    return found
