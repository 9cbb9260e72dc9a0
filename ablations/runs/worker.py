"""Worker process, which trains and measures runs one after the other: `python -m ablations.runs.worker`.

It imports Python's packages, torch and Lightning once for many runs. It reads orders as JSON lines from
standard input, and writes answers as JSON lines to standard output. Everything that a run prints goes to the
run's own log.txt. If standard input closes, because the launcher has ended or is dead, the current run is
saved and the worker ends. If it hangs, it ends some minutes later without saving.
"""

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pandas as pd
import torch

from ablations import results
from ablations.catalogue import MEASURES, RunMeasure, card, for_run
from ablations.errors import MeasureError
from ablations.measures.reading.texts import Readings, Say
from ablations.measures.settings import StateSettings
from ablations.runs.rows import (
    key,
    missing_measures,
    name_for_users,
    note_refusals,
    open_checkpoints,
    put,
    put_predictions,
)
from ablations.tasks.datasets import files_now
from lightning_modules import plugins
from lightning_modules.data.token_store import Tokens
from lightning_modules.errors import (
    AblationsError,
    DataError,
    ExitCode,
    Interrupted,
    OutOfMemoryError,
    StopRequest,
)
from lightning_modules.files import explained, open_no_link, refusal
from lightning_modules.model.numerics import keep_freed_memory, out_of_memory
from lightning_modules.objectives import build
from lightning_modules.training.checkpoint import load_weights
from lightning_modules.training.data_module import load_tokens
from lightning_modules.training.run_directory import RunBusyError, RunDirectory
from lightning_modules.training.train import start

Row = dict[str, Any]

SECONDS_TO_END = 600
"""Seconds after the launcher's end in which a run can be saved. A worker that hangs would keep the run's lock."""

SECONDS_BETWEEN_LAYERS = 5
"""Least time between two lines of the log about layers that a measure has done."""


def measure(
    directory: RunDirectory,
    tokens: Tokens,
    measures: Sequence[RunMeasure],
    *,
    data_root: Path,
    say: Say,
    recompute: bool = False,
) -> None:
    """Compute the missing measures of a run's checkpoints, or all with `recompute`, and write them into
    `measures.parquet`.

    Each measure of each checkpoint is written when it is ready, so a kill loses one at most. Old rows stay
    until new ones replace them.

    Raises:
        MeasureError: measures could not be computed, because the text or the width does not allow them, a
            file is damaged, or their code fails. The other measures are written all the same, and the run's
            folder keeps the reasons.
        OutOfMemoryError: the same, and at least one of these measures ran out of memory, so that it may succeed
            when more is free.
        CheckpointError: the checkpoint is missing or damaged.
    """
    todo: dict[Path, list[RunMeasure]] = {}
    for settings in measures:
        for path in open_checkpoints(directory.path, settings, data_root=data_root, recompute=recompute).values():
            todo.setdefault(path, []).append(settings)
    if not todo:
        return
    refused: dict[str, dict[str, None]] = {}
    is_short_of_memory = False
    readings = Readings(build(directory.settings(), tokens), tokens, data_root=data_root)
    for path, open_measures in todo.items():
        step = load_weights(readings.objective, path)
        readings.forget_states()
        # Measures of one task follow each other: they share its examples, and fine-tuning uses the hidden
        # states of training examples that frozen features have read. (Probes read all layers, of other
        # examples.)
        for settings in sorted(open_measures, key=lambda settings: getattr(settings, "tasks", None) or ()):
            head = f"measuring {name_for_users(settings)} at step {step:,}"
            say(head)

            def say_more(line: str, head: str = head) -> None:
                say(f"{head}: {line}")

            files = files_now(settings, data_root)  # before they are read, in case somebody changes them meanwhile
            try:
                rows, sample = measure_rows(readings, settings, say=say_more)
            except Exception as error:  # a bug in one measure must not stop the others; the log has it
                if not isinstance(error, MeasureError | DataError):
                    traceback.print_exc()
                is_short_of_memory |= out_of_memory(error) is not None
                why = _why(error, directory).removeprefix(f"{settings.kind}: ")
                refused.setdefault(key(settings), {})[why] = None
                continue
            about = {"measure": settings.kind, "step": step, "key": key(settings)}
            _write_rows(directory, rows, about, {"sample": sample, "files": files})
    tried = {
        key(settings): name_for_users(settings) for open_measures in todo.values() for settings in open_measures
    }
    note_refusals(directory.path, {failed: " ".join(why) for failed, why in refused.items()}, tried=tried)
    if refused:
        kind = OutOfMemoryError if is_short_of_memory else MeasureError
        raise kind(" ".join(_named(tried[failed], why) for failed in refused for why in refused[failed]))


def _named(measure: str, why: str) -> str:
    """Return why a measure failed, after its name for users, unless the reason begins with this name."""
    return why if why.startswith(f"{measure} ") else f"{measure}: {why}"


def _write_rows(
    directory: RunDirectory, rows: Sequence[Row], about: dict[str, Any], origin: dict[str, Any]
) -> None:
    """Write the rows of one measure at one checkpoint, and its predictions, into a run's folder.

    Args:
        about: columns of rows and predictions: measure, step and key.
        origin: further columns of rows: sample and files.
    """
    if predicted := [row["predictions"] for row in rows if "predictions" in row]:
        # Predictions first, so that a measure with rows always has its predictions too.
        put_predictions(directory.path, pd.concat(predicted, ignore_index=True).assign(**about))
    directory.require_lock()
    table = pd.DataFrame([row for row in rows if "predictions" not in row])
    put(directory.path, table.assign(**about, **origin))


def measure_rows(
    readings: Readings, settings: RunMeasure, *, say: Say = lambda line: None
) -> tuple[list[Row], str | None]:
    """Compute the rows of one measure; for `TaskSettings` and `RetrievalSettings` those of one task.

    Returns the rows, and the digest of the sample of tokens that they were computed from (None if there is no
    sample). A row whose only key is `predictions` is a table of predictions for single examples.

    Args:
        say: called with lines on the progress of long work; it may raise, to stop the work.

    Raises:
        DataError: a file that the measure reads is missing or damaged.
        MeasureError: the run or its text does not allow the measure.
        PluginError: the code of a user's own measure fails.
    """
    function = card(settings.kind).rows
    try:
        function = resolve_name(function) if isinstance(function, str) else function
        rows = list(_reported(function(readings, settings, say), say))
    except (Exception, SystemExit) as error:  # sys.exit() in the file would end the worker without a word
        plugin = settings.plugin
        if plugin is None or isinstance(error, AblationsError) or out_of_memory(error) is not None:
            raise
        raise plugins.failure(plugin.name, plugin.path, error) from error
    if settings.plugin is not None:
        rows = _own_rows(rows, settings, layers=readings.objective.run.encoder.num_hidden_layers)
    if not rows:
        raise MeasureError(
            "there is nothing to measure in this text for this run, so there are no numbers; give more text, or "
            "leave the measure out."
        )
    if not isinstance(settings, StateSettings):
        return rows, None
    digest = readings.texts.validation(settings).sample.digest
    if (path := getattr(settings, "treebank", None)) is not None:
        digest += readings.texts.treebank(path, settings).sample.digest
    return rows, digest


def _reported(rows: Iterable[Row], say: Say) -> Iterator[Row]:
    """Yield the rows of a measure, and say which layer is done when the layer before was said long ago."""
    last = time.monotonic()
    for row in rows:
        layer = row.get("layer") if isinstance(row, Mapping) else None
        if layer is not None and time.monotonic() - last > SECONDS_BETWEEN_LAYERS:
            last = time.monotonic()
            say(f"layer {layer} done")
        yield row


def _own_rows(rows: Sequence[Row], settings: RunMeasure, *, layers: int) -> list[Row]:
    """Return the rows of a user's own measure, with numbers of Python in place of arrays with one number.

    Args:
        layers: index of the top layer of the encoder.

    Raises:
        MeasureError: there are none, one is no mapping or of a layer above the top, or the card lacks a metric of
            theirs or says otherwise whether they have a layer.
        ResultsError: a column is unknown, a value is not of its type, or two rows are for one observation.
    """
    metrics = card(settings.kind).metrics
    if not rows:
        raise MeasureError(f"{settings.kind}: its function rows has yielded nothing; yield at least one row.")
    if (wrong := next((row for row in rows if not isinstance(row, Mapping)), None)) is not None:
        raise MeasureError(
            f"{settings.kind}: its function rows has yielded {str(wrong)!r}, expected a mapping with metric and "
            "value; correct the file."
        )
    if (other := next((row.get("metric") for row in rows if row.get("metric") not in metrics), None)) is not None:
        raise MeasureError(
            f"{settings.kind}: its function rows has yielded the metric {other}, which its card does not list "
            f"({', '.join(metrics)}); add it to the card."
        )
    plain = [
        {name: value.item() if getattr(value, "ndim", None) == 0 else value for name, value in row.items()}
        for row in rows
    ]
    about = {"experiment": "", "run_id": "", "arm": "", "seed": 0, "measure": settings.kind}
    table = results.table(({**row, **about} for row in plain), source=settings.kind)
    highest = int(table[["layer", "layer_to"]].fillna(0).to_numpy(int).max())
    if highest > layers:
        raise MeasureError(
            f"{settings.kind}: its function rows has yielded layer {highest}, but the layers of the encoder are 0 "
            f"(embeddings) to {layers}; correct the file."
        )
    promised, has_layer = card(settings.kind).layers, table["layer"].notna()
    if (promised == "none" and has_layer.any()) or (promised == "all" and not has_layer.all()):
        yielded, fit = ("with a layer", "all") if promised == "none" else ("without a layer", "none")
        raise MeasureError(
            f"{settings.kind}: its function rows has yielded a row {yielded}, but its card has "
            f'layers="{promised}"; write layers="{fit}" into the card, or "some" if only some rows have a layer.'
        )
    return plain


def serve() -> None:
    """Carry out orders until there are no more or somebody asks to stop."""
    keep_freed_memory()
    stop = StopRequest()
    stop.install()
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
    # A process that makes batches for a GPU is forked from this one and closes sys.stdin first. It would wait
    # for ever for a thread that reads from it.
    lines = os.fdopen(os.dup(0), encoding="utf-8")
    with open(os.devnull, encoding="utf-8") as nothing:
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_listen, args=(lines, orders, stop), daemon=True).start()
    # The pipe is broken if the launcher was killed.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # whatever a library prints must not get among the answers
        while not stop.received and (order := orders.get()) is not None:
            answers.write(json.dumps(serve_one(order, stop)) + "\n")
            answers.flush()


def _listen(lines: Iterable[str], orders: "queue.Queue[dict[str, Any] | None]", stop: StopRequest) -> None:
    for line in lines:
        orders.put(json.loads(line))
    stop.ask()
    orders.put(None)
    time.sleep(SECONDS_TO_END)
    os._exit(ExitCode.INTERRUPTED)  # this thread ends with the process, unless the main thread hangs


def serve_one(order: dict[str, Any], stop: StopRequest) -> dict[str, Any]:
    """Train one run if it is not done, then compute its missing measures.

    Returns the answer: the run's folder, an exit code, a message or None, the seconds that it took, and whether
    it did the whole run.
    """
    directory = RunDirectory(Path(order["run_dir"]))
    message: str | None = None
    is_new = False
    begin = time.monotonic()
    try:
        with _output_to(directory.path / "log.txt"):
            try:
                is_new = directory.state().state == "planned"
                code, message = _train_and_measure(directory, order, stop)
            except RunBusyError:
                code = ExitCode.BUSY
            except (Interrupted, KeyboardInterrupt):
                code = ExitCode.INTERRUPTED
            except Exception as error:  # a bug in one run must not end the others; the log has the traceback
                code = ExitCode.OUT_OF_MEMORY if out_of_memory(error) is not None else ExitCode.FAILED
                message = _why(error, directory)
                with suppress(OSError):  # a full disk takes no log either
                    if isinstance(error, AblationsError):
                        print(error, file=sys.stderr, flush=True)
                    else:
                        traceback.print_exc()
    except OSError as error:  # there is no log to write to
        code, message = ExitCode.FAILED, _why(error, directory)
    seconds = time.monotonic() - begin
    in_one_go = is_new and code == ExitCode.DONE
    about = {"code": code, "message": message, "seconds": seconds, "in_one_go": in_one_go}
    return {"run_dir": order["run_dir"], **about}


def _why(error: Exception, directory: RunDirectory) -> str:
    """Return why a run failed, as a sentence if the error has one."""
    refused = refusal(error) if isinstance(error, OSError) and not isinstance(error, AblationsError) else None
    if (no_room := out_of_memory(error)) is not None and not isinstance(error, AblationsError):
        return f"measuring ran out of memory ({no_room}); lower the measure's tokens, or lower --slots."
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
    plugins.recall(order["plugins"])
    measures_asked = MEASURES.validate_python(order["measures"])
    measures = list(for_run(measures_asked, directory.settings(), data_root=data_root))

    def say(line: str) -> None:
        print(line, flush=True)
        if stop.received:
            raise Interrupted

    torch.set_num_threads(order["threads"])
    recompute = order["recompute"]
    with directory.lock(), stop.at_once():  # rows are written whole or not at all, so it may end anywhere
        if recompute or missing_measures(directory.path, measures, data_root=data_root):
            tokens = load_tokens(directory, data_root=data_root)
            measure(directory, tokens, measures, data_root=data_root, say=say, recompute=recompute)
    return ExitCode.DONE, None


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Append standard output and error, also those of child processes, to a file while the block runs."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    with explained(log), open(log, "ab", opener=open_no_link) as file:
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
