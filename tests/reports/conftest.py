"""Scores of tasks in a table of results."""

import pytest

from ablations import results
from tests.support.fake_scores import STEPS, score_rows


@pytest.fixture(scope="session")
def scores():
    """Four arms, three seeds, several steps."""
    return results.table(score_rows(steps=STEPS[:-1]))
