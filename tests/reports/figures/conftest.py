"""A table of results for the figures."""

import pytest

from ablations import results
from tests.support.fake_experiment import rows


@pytest.fixture(scope="module")
def table():
    return results.table(rows())
