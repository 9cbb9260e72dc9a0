"""What a run costs, before it runs: parameters, tokens, operations, and seconds where a machine is known."""

import json
import statistics
from pathlib import Path

from lightning_modules.config import EncoderSettings, RunSettings
from lightning_modules.files import write_json
from lightning_modules.operations import operations_per_token


def parameters(run: RunSettings) -> int:
    """Trained numbers of the whole module, heads and decoder included."""
    encoder, vocab = run.encoder, run.data.vocab_size
    width = encoder.hidden_size
    positions = run.data.max_length * width if encoder.positions == "learned" else 0
    total = vocab * width + positions + 2 * width + encoder.num_hidden_layers * _encoder_block(encoder)
    if run.objective.kind == "translation":
        attention = 4 * (width * width + width) + 2 * width
        block = _encoder_block(encoder) + attention
        return (
            total
            + vocab * width
            + run.data.max_length * width
            + 2 * width
            + (run.objective.decoder.num_hidden_layers * block)
        )
    return total + width * width + 3 * width + vocab


def _encoder_block(encoder: EncoderSettings) -> int:
    width, inside = encoder.hidden_size, encoder.intermediate_size
    return 4 * (width * width + width) + 2 * width * inside + inside + width + 4 * width


def tokens(run: RunSettings) -> int:
    """Real source tokens of a run, at most."""
    return run.training.max_steps * run.training.tokens_per_step


def flops(run: RunSettings) -> float:
    """Useful operations of training."""
    return operations_per_token(run) * tokens(run)


def seconds(run: RunSettings, calibration: Path) -> float | None:
    """Estimated seconds of training on this machine; none before a run of the same kind and width ended on it."""
    rates = _read(calibration).get(_kind(run), [])
    if run.training.max_steps == 0:
        return 0.0
    return flops(run) / statistics.median(rates) if rates else None


def calibrate(run: RunSettings, measured_seconds: float, calibration: Path) -> None:
    """Remember how fast a finished run was; the last few of each kind count."""
    if measured_seconds <= 0 or run.training.max_steps == 0:
        return
    rates = _read(calibration)
    kept = [*rates.get(_kind(run), []), flops(run) / measured_seconds][-9:]
    write_json(calibration, rates | {_kind(run): kept})


def _kind(run: RunSettings) -> str:
    encoder = run.encoder
    return (
        f"{run.objective.kind}/{encoder.num_hidden_layers}x{encoder.hidden_size}"
        f"/{run.data.vocab_size}/{run.training.tokens_per_step}/{run.training.precision}"
    )


def _read(calibration: Path) -> dict[str, list[float]]:
    try:
        return json.loads(calibration.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
