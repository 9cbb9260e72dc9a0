"""Rows of a data set of the Hugging Face hub, or of a local folder that `datasets.load_dataset` reads.

Data only: `datasets` 4 and later run no code of a data set and load no pickles. `datasets` is imported where
it is used, since it takes a second and brings torch along as soon as rows are read.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning_modules.config import HubData
from lightning_modules.data.tables import Cells, Columns, Source, cell, check_column
from lightning_modules.errors import DataError

ROWS_AT_ONCE = 1000


def local_folder(settings: HubData, data_root: Path) -> Path | None:
    """Return the folder that `data.path` names, or None where it names a data set on the hub.

    Raises:
        DataError: neither a folder nor a name that the hub could know, or no commit for the hub.
    """
    folder = data_root / settings.path
    if folder.is_dir():
        return folder
    if folder.is_file():
        raise DataError(f"{folder} is a file, but data.path of kind hub is a folder or a name; use kind: files.")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", settings.path) or settings.path.startswith("."):
        raise DataError(
            f"{folder} does not exist (data.path; relative paths start at --data-root); correct the path."
        )
    if settings.revision is None or not re.fullmatch(r"[0-9a-f]{40}", settings.revision):
        given = "is missing" if settings.revision is None else f"is {settings.revision!r}"
        raise DataError(
            f"data.revision {given}, but {settings.path!r} is no folder under {data_root} and on the hub the text "
            f"could change under a finished run; give the commit, 40 hexadecimal digits."
        )
    return None


def check_splits(settings: HubData, folder: Path) -> None:
    """Compare the splits and, where the folder declares them, the columns with what is asked for.

    Raises:
        DataError: the folder is no data set, or a split or column is missing.
    """
    import datasets

    with _explained(settings), tempfile.TemporaryDirectory() as cache:
        builder = datasets.load_dataset_builder(str(folder), settings.name, cache_dir=cache)
        splits, features = list(builder.config.data_files or ()), builder.info.features
    for setting in ("train", "validation", "test"):
        split = getattr(settings, setting)
        for name in re.split(r"\[.*?\]|\+", split or ""):  # parts and sums: train[:90%], train+validation
            if name and splits and name not in splits:
                listed = ", ".join(repr(str(existing)) for existing in splits)
                raise DataError(
                    f"{folder} has no split {name!r} (data.{setting}), only {listed}; name one that is there."
                )
    for setting in Columns._fields:
        column = getattr(settings, setting)
        if column is not None and features is not None and column.partition(".")[0] not in features:
            check_column(str(folder), setting, column, list(features))


def split_source(settings: HubData, folder: Path | None, split: str) -> Source:
    """Return the rows of one split as a source.

    A data set of the hub is kept in Hugging Face's cache; a folder is streamed, without a copy, unless only a
    part of a split is asked for, which `datasets` cannot stream.
    """
    columns = Columns(settings.text, settings.target, settings.document, settings.label)

    def cells() -> Iterator[Cells]:
        with _explained(settings), tempfile.TemporaryDirectory() as cache:
            yield from _rows(_load(settings, folder, split, cache), columns, f"{settings.path}, split {split!r}")

    return Source(f"{settings.path}, split {split!r}", "row", cells)


def _load(settings: HubData, folder: Path | None, split: str, cache: str) -> Any:
    import datasets

    if folder is not None:
        whole = not re.search(r"[\[+]", split)
        return datasets.load_dataset(str(folder), settings.name, split=split, streaming=whole, cache_dir=cache)
    return datasets.load_dataset(settings.path, settings.name, split=split, revision=settings.revision)


def _rows(dataset: Any, columns: Columns, where: str) -> Iterator[Cells]:
    number, settings = 0, list(columns._asdict().items())
    if dataset.column_names is not None:  # a folder of json lines is only known once it is read
        outer = {setting: name.partition(".")[0] for setting, name in settings if name is not None}
        for setting, name in outer.items():
            check_column(where, setting, name, dataset.column_names)
        dataset = dataset.select_columns(sorted(set(outer.values())))  # no pictures or sounds are decoded
    for batch in dataset.iter(batch_size=ROWS_AT_ONCE):
        for values in zip(*batch.values(), strict=True):
            number += 1
            row = dict(zip(batch, values, strict=True))
            place = f"{where}, row {number}"
            yield Cells(number, *(cell(row, setting, name, place) for setting, name in settings))


@contextmanager
def _explained(settings: HubData) -> Iterator[None]:
    """Turn errors of `datasets` into DataErrors; for most of what can be wrong `datasets` has no error of its
    own."""
    from datasets.exceptions import DatasetsError

    try:
        yield
    except DataError:
        raise
    except ConnectionError as error:
        raise DataError(
            f"The data set {settings.path!r} cannot be fetched from the hub: no connection; run once with a "
            f"network, after which it is read from Hugging Face's cache, or use local files."
        ) from error
    except (DatasetsError, OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(
            f"The data set {settings.path!r} cannot be read: {reason}; check data.path, name, revision and splits."
        ) from error
