"""A tiny text, its tokens and run folders on it, shared by the tests."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_text import run_folder

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture
def make_run(tmp_path: Path, data_root: Path, tokens: Any) -> Callable[..., Any]:
    """Makes a run folder under tmp_path/out."""

    def make(run: Any, name: str = "run-s0-0000000000", out: str = "out") -> Any:
        return run_folder(run, tokens, out=tmp_path / out, name=name)

    return make
