"""Check whether a text says which of its sentences follow each other. No torch.

A text without documents is read as one, for the sequences that are cut from it. Its neighbours need not be
related, as in files of single sentences, and the text does not tell one case from the other: only declared
documents count. In plain text these are blank lines, as for formats of sentence pairs
(`lightning_modules.config.contradictions`).
"""

import itertools
from pathlib import Path

from lightning_modules.config import Data, FilesData, LanguageData
from lightning_modules.data.tables import numbered_lines

LINES = 10_000
"""Number of lines of each file of plain text that are searched for a blank one."""


def no_documents(data: Data, data_root: Path) -> str | None:
    """Return why it is not known of the training or the validation text which sentences follow each other; None
    where it is.

    Raises:
        DataError: a file of plain text is damaged.
    """
    if isinstance(data, LanguageData):
        return None
    if data.half is not None:
        return (
            f"data.half = {data.half} takes half of the training sentences: neighbours need not follow each other"
        )
    if data.document is not None:
        return None
    files = (*data.train, *data.validation) if isinstance(data, FilesData) else ()
    if not files or any(not name.removesuffix(".gz").endswith(".txt") for name in files):
        return "there is no data.document, the column that says which sentences follow each other"
    for name in files:
        if not (data_root / name).is_file():
            return f"{name} is not in {data_root}"
        if not _divided(data_root / name):
            return f"{name} has no blank line in its first {LINES:,} that says where a document ends"
    return None


def _divided(path: Path) -> bool:
    """Return whether a blank line stands between two sentences."""
    gap = written = False
    for _, line in itertools.islice(numbered_lines(path), LINES):
        if not line.strip():
            gap = written
        elif gap:
            return True
        else:
            written = True
    return False
