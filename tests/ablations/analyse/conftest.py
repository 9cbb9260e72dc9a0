"""A folder with a text for models beside it."""

import pytest

from tests.support.analysis import TEXT


@pytest.fixture
def place(tmp_path):
    """A folder with text.txt, and models beside it."""
    (tmp_path / "text.txt").write_text("\n".join(TEXT) + "\n")
    return tmp_path
