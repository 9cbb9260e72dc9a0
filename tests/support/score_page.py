"""An experiment whose page shows scores."""

from tests.support.fake_experiment import rows, write
from tests.support.fake_scores import TASKS, score_rows

KEPT = ("fine_tuning", "baselines", "minimal_pairs", "parsing", "conditional_independence")
"""Measures few enough to draw in a test."""


def made(out):
    """An experiment with few tasks."""
    few = {task: TASKS[task] for task in ("cola", "rte")}
    scored = [row for row in score_rows(tasks=few) if row["measure"] in KEPT]
    kept = [row for row in rows() if row["metric"] not in ("debiased_cka", "plug_in")]
    return write(out, table_rows=[*kept, *scored])
