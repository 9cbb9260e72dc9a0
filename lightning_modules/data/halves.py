"""The two halves of a table, for text and for tasks that share a file and must not share a row."""

from lightning_modules.config.data import Half
from lightning_modules.randomness import derive


def half_of(number: int) -> Half:
    """The half of a row: drawn by its number in its file, from 1, and by nothing else."""
    return "second" if derive(0, "half", number) % 2 else "first"
