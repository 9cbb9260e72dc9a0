"""An objective that is not trained."""

import pytest

from lightning_modules.objectives import build
from tests.support.tiny_text import settings


@pytest.fixture(scope="module")
def objective(tokens):
    return build(settings(), tokens).eval()
