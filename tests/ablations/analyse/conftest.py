"""A folder with a text for models beside it, and one whose model was analysed."""

import pytest

from tests.support import tiny_models
from tests.support.analysis import TEXT
from tests.support.command_line import ablate


@pytest.fixture
def place(tmp_path):
    """A folder with text.txt, and models beside it."""
    (tmp_path / "text.txt").write_text("\n".join(TEXT) + "\n")
    return tmp_path


@pytest.fixture(scope="session")
def analysed(tmp_path_factory):
    """Such a folder after the command with its usual measures, and what the command said; nobody may change it."""
    from tests.support.remembered_drawings import empty_drawings

    folder = tmp_path_factory.mktemp("analysed")
    (folder / "text.txt").write_text("\n".join(TEXT) + "\n")
    model = tiny_models.save(folder / "bert")
    with empty_drawings():
        done = ablate("analyse", model, "--text", folder / "text.txt", "--out", folder / "out")
    assert done.exit_code == 0, done.output
    return folder, done
