"""The tokens of the tiny validation text that measures read."""

import pytest

from ablations.measures.reading.sample import first_tokens


@pytest.fixture
def sample(tokens):
    return first_tokens(tokens.validation, 10**6)
