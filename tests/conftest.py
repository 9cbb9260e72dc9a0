"""Fixtures of all tests: a tiny text, its tokens and run folders on it."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked_worker import ForkedWorker
from tests.support.tiny_text import run_folder, settings, write_pairs

SYSTEM = Path(__file__).parent / "system"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, which makes tables as wide as its terminal


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of the whole system, which are the longest, come first, so that all processes end together."""
    items.sort(key=lambda item: SYSTEM not in item.path.parents)


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over the modules, which stay: it would search them in all tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    """Workers that a test has started by this process do not import for seconds each, and have one thread.

    Tests run side by side: two threads of a run would wait for each other where another test has a core.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablations.runs.launch.threads_per_process", lambda processes: 1)
        patch.setattr("ablations.runs.launch.start_process", ForkedWorker)
        yield


@pytest.fixture(scope="session", autouse=True)
def remembered_drawings() -> Iterator[None]:
    """Pages of tests draw the same panel once; where no test makes pages, nothing is imported for them."""
    with pytest.MonkeyPatch.context() as patch:
        if page := sys.modules.get("reports.page.page"):
            from tests.support.remembered_drawings import remembered_drawing

            patch.setattr(page, "draw", remembered_drawing)
        yield


@pytest.fixture(autouse=True)
def threads_of_torch() -> Iterator[None]:
    """A test that sets torch's number of threads does not set it for the tests after it, which would run ten times
    as long: two processes of two threads each wait for each other on two cores."""
    torch = sys.modules.get("torch")
    before = torch and torch.get_num_threads()
    yield
    if torch and torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture
def undrawn() -> Iterator[None]:
    """Images of pages are empty, for a test that does not look at them."""
    from tests.support.remembered_drawings import empty_drawings

    with empty_drawings():
        yield


@pytest.fixture
def small_heap() -> None:
    """The garbage collector does not look at the objects of other tests, which a command would not have."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.tsv (600 pairs) and validation.tsv (80)."""
    root = tmp_path_factory.mktemp("data")
    write_pairs(root / "train.tsv", 600, seed=0)
    write_pairs(root / "validation.tsv", 80, seed=1)
    return root


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where token stores of the session lie."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="session")
def tokens(data_root: Path, store: Path) -> Any:
    """The tiny text as tokens."""
    from lightning_modules.data.token_store import prepare

    return prepare(settings().data, data_root=data_root, store=store)


@pytest.fixture
def make_run(tmp_path: Path, data_root: Path, tokens: Any) -> Callable[..., Any]:
    """Makes a run folder under tmp_path/out."""

    def make(run: Any, name: str = "run-s0-0000000000", out: str = "out") -> Any:
        return run_folder(run, tokens, out=tmp_path / out, name=name)

    return make


@pytest.fixture
def train_run(make_run: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a run folder and trains the run."""
    from tests.support.start_here import start_here

    def train(*arguments: Any, **options: Any) -> Any:
        directory = make_run(*arguments, **options)
        start_here(directory)
        return directory

    return train
