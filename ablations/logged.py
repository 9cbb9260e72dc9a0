"""What a run's log says of its learning and of its corruption, as rows of the table. No torch."""

import json
import math
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


def corruption(log: Path, *, vocab_size: int, random_differs: bool) -> Iterator[Row]:
    """What training hid, over all its steps: shares of the tokens that could be hidden, and how often a token that
    was replaced at random came out as it was (`collision_rate`), whose floor is that of a uniform draw.

    Args:
        random_differs: whether the original is left out of the draw; the floor is 0 then.
    """
    logged = [line for line in _lines(log) if "corruption/random_unchanged" in line]
    if not logged:
        return
    row = {"measure": "corruption", "step": logged[-1]["step"], "unit": ""}
    # A line's shares are of its own candidates; lines of older logs, without their number, count alike.
    weights = [line.get("corruption/candidates", 1.0) for line in logged]

    def over_all(name: str) -> float:
        parts = (weight * line[f"corruption/{name}"] for weight, line in zip(weights, logged, strict=True))
        return math.fsum(parts) / max(math.fsum(weights), 1.0)

    for name in TREATED:
        yield row | {"metric": name, "value": over_all(name)}
    if random := over_all("random"):
        floor = 0.0 if random_differs else 1 / (vocab_size - FIRST_WORD_ID)
        yield row | {"metric": "collision_rate", "value": over_all("random_unchanged") / random, "floor": floor}


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    if log.exists():
        for text in log.read_text(encoding="utf-8").splitlines():
            yield json.loads(text)
