"""Training of a run in the process of the test."""

from lightning_modules.errors import StopRequest
from lightning_modules.training.train import start


def start_here(directory, stop=None, *, data_root=None):
    """Start a run on one thread of the CPU, and return its exit code; a `StopAfter` stops or disturbs it."""
    on_line = getattr(stop, "on_line", None)
    where = {"data_root": data_root or directory.path, "accelerator": "cpu", "threads": 1}
    return start(directory, stop=stop or StopRequest(), on_line=on_line, **where)
