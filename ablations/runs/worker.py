"""A process that trains and measures runs, one after the other: `python -m ablations.runs.worker`.

Python, torch and Lightning are imported once for many runs. Orders come as JSON lines on standard input,
answers go as JSON lines to standard output; everything a run prints goes to its own log.txt. When standard
input closes, because the launcher is done or dead, the run at hand is saved and the worker ends.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from ablations.catalogue import Measure, for_run
from ablations.runs.measure import measure
from ablations.runs.rows import missing
from lightning_modules.errors import AblationsError, ExitCode
from lightning_modules.files import refusal
from lightning_modules.model.numerics import keep_freed_memory
from lightning_modules.training.data_module import load_tokens
from lightning_modules.training.run_directory import RunBusyError, RunDirectory
from lightning_modules.training.stop import Interrupted, StopRequest
from lightning_modules.training.train import start

MEASURES: TypeAdapter[list[Measure]] = TypeAdapter(list[Measure])


def serve() -> None:
    """Take orders until there are none or somebody asks to stop."""
    keep_freed_memory()
    stop = StopRequest()
    stop.install()
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
    threading.Thread(target=_listen, args=(orders, stop), daemon=True).start()
    # A launcher that was killed reads no answer.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # whatever a library prints must not get among the answers
        while not stop.received and (order := orders.get()) is not None:
            answers.write(json.dumps(serve_one(order, stop)) + "\n")
            answers.flush()


def _listen(orders: "queue.Queue[dict[str, Any] | None]", stop: StopRequest) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    stop.ask()
    orders.put(None)


def serve_one(order: dict[str, Any], stop: StopRequest) -> dict[str, Any]:
    """Train one run if it is not done, then measure what is missing; the answer says how it went."""
    directory = RunDirectory(Path(order["run_dir"]))
    message: str | None = None
    begin = time.monotonic()
    try:
        with _output_to(directory.path / "log.txt"):
            try:
                code, message = _train_and_measure(directory, order, stop)
            except RunBusyError:
                code = ExitCode.BUSY
            except (Interrupted, KeyboardInterrupt):
                code = ExitCode.INTERRUPTED
            except Exception as error:  # a bug in one run must not end the others; the log has the traceback
                code, message = ExitCode.FAILED, _why(error, directory)
                with suppress(OSError):  # a full disk takes no log either
                    if isinstance(error, AblationsError):
                        print(error, file=sys.stderr, flush=True)
                    else:
                        traceback.print_exc()
    except OSError as error:  # there is no log to write to
        code, message = ExitCode.FAILED, _why(error, directory)
    seconds = time.monotonic() - begin
    return {"run_dir": order["run_dir"], "code": code, "message": message, "seconds": seconds}


def _why(error: Exception, directory: RunDirectory) -> str:
    """Return why a run failed, as a sentence where the error has one."""
    refused = refusal(error) if isinstance(error, OSError) and not isinstance(error, AblationsError) else None
    if refused is not None:
        reason, remedy = refused
        return f"{directory.path} cannot be written to: {reason}; {remedy}, then start again."
    return str(error) if isinstance(error, AblationsError) else f"{type(error).__name__}: {error}"


def _train_and_measure(
    directory: RunDirectory, order: dict[str, Any], stop: StopRequest
) -> tuple[ExitCode, str | None]:
    data_root = Path(order["data_root"])
    code = start(
        directory,
        data_root=data_root,
        devices=order["devices"],
        accelerator=order["accelerator"],
        threads=order["threads"],
        stop=stop,
    )
    if code != ExitCode.DONE:
        return code, directory.state().message
    measures_asked = MEASURES.validate_python(order["measures"])
    measures = list(for_run(measures_asked, directory.settings(), data_root=data_root))

    def say(what: str) -> None:
        print(what, flush=True)
        if stop.received:
            raise Interrupted

    torch.set_num_threads(order["threads"])
    recompute = order["recompute"]
    with directory.lock(), stop.at_once():  # what is measured is written whole or not at all
        if recompute or missing(directory.path, measures, data_root=data_root):
            tokens = load_tokens(directory, data_root=data_root)
            measure(directory, tokens, measures, data_root=data_root, say=say, recompute=recompute)
    return ExitCode.DONE, None


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Send standard output and error, also those of child processes, to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # what a full disk does not take is lost
                stream.flush()
        for target, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, target)
            os.close(copy)


if __name__ == "__main__":
    serve()
