"""How numbers are written: no more digits than they carry, a true minus, an en dash for what is absent."""

import math
from datetime import datetime
from typing import Any

from ablations.wording import several as several

ABSENT = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"


def is_absent(value: Any) -> bool:
    """Whether there is no number: null or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def number(value: float | None, digits: int = 2, scale: float = 1) -> str:
    """The value times `scale` with that many decimals and commas between thousands, and no minus before a 0:
    ``1,234.50``."""
    if is_absent(value):
        return ABSENT
    assert value is not None
    value *= scale
    if math.isinf(value):
        return f"{MINUS}∞" if value < 0 else "∞"
    written = f"{value:,.{digits}f}"
    return written.removeprefix("-") if not written.strip("-0.") else written.replace("-", MINUS)


def count(value: float | None) -> str:
    """A whole number with commas between thousands."""
    return number(value, 0)


def percent(value: float | None) -> str:
    """A share as a whole number of hundredths."""
    return count(None if value is None else 100 * value)


def interval(summary: dict[str, Any], digits: int = 2, scale: float = 1) -> str:
    """A mean and half the width of its interval, times `scale`: ``1.82 ± 0.05``; the mean alone where there is no
    interval."""
    if is_absent(summary["mean"]):
        return ABSENT
    mean = number(summary["mean"], digits, scale)
    if is_absent(summary["high"]):
        return mean
    return f"{mean} ± {number(summary['high'] - summary['mean'], digits, scale)}"


def duration(seconds: float | None) -> str:
    """A time in the two largest units that matter: ``57 s``, ``3 min 12 s``, ``2 h 05 min``."""
    if seconds is None or not math.isfinite(seconds):
        return ABSENT
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02} min"


def moment(text: str | None) -> str:
    """An ISO 8601 time to the minute, with its zone; text that is no such time stays as it is."""
    if not text:
        return ABSENT
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time:%Y-%m-%d %H:%M} {time.tzname() or ''}".rstrip()


def share(part: float | None, whole: float | None) -> str:
    """``120 / 500``."""
    return f"{count(part)} / {count(whole)}"


def listed(words: list[str]) -> str:
    """The words with commas and a last *and*."""
    return ", ".join(words[:-1]) + " and " + words[-1] if len(words) > 1 else "".join(words)
