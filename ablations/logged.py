"""What a run's log says of its learning and of its corruption, as rows of the table. No torch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning_modules.vocabulary import FIRST_WORD_ID

Row = dict[str, Any]

TREATED = ("hidden", "masked", "random", "kept")
"""What a corruption's log counts, as shares of the tokens that could be hidden."""


def learning(log: Path, *, floor: float) -> Iterator[Row]:
    """Of every validation during training the loss, and the gain, that is the floor minus the loss.

    Args:
        floor: the loss of a guess without context on the same predictions.
    """
    for line in _lines(log):
        if (loss := line.get("val/loss")) is None:
            continue
        row = {"measure": "learning", "step": line["step"], "unit": "nats", "n": line["val/predicted"]}
        yield row | {"metric": "loss", "value": loss, "floor": floor}
        yield row | {"metric": "gain", "value": floor - loss, "floor": 0.0}


def corruption(log: Path, *, vocab_size: int) -> Iterator[Row]:
    """What training hid, over all its steps: shares of the tokens that could be hidden, and how often a token that
    was replaced at random came out as it was (`collision_rate`), whose floor is that of a uniform draw."""
    logged = [line for line in _lines(log) if "corruption/random_unchanged" in line]
    if not logged:
        return
    row = {"measure": "corruption", "step": logged[-1]["step"], "unit": ""}
    # The lines are of equally many steps, and steps of equally many tokens.
    shares = {name: sum(line[f"corruption/{name}"] for line in logged) / len(logged) for name in TREATED}
    for name, share in shares.items():
        yield row | {"metric": name, "value": share}
    if shares["random"]:
        unchanged = sum(line["corruption/random_unchanged"] for line in logged) / len(logged)
        floor = 1 / (vocab_size - FIRST_WORD_ID)
        yield row | {"metric": "collision_rate", "value": unchanged / shares["random"], "floor": floor}


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    if log.exists():
        for text in log.read_text(encoding="utf-8").splitlines():
            yield json.loads(text)
