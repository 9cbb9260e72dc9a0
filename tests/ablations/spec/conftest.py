"""The fixture of the tests of mistakes in specs."""

from functools import partial

import pytest

from tests.support.wrong_specs import problems_of


@pytest.fixture
def wrong(tmp_path):
    """The problems of a spec as ``line:column: sentence``."""
    return partial(problems_of, tmp_path / "spec.yaml")
