"""Numbers of predictions of a run, expected from its settings and counted in its text.

Letters: S sentences of an epoch, Q sequences, N tokens, V vocabulary.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lightning_modules.config import MaskingSettings, RunSettings, SkipGramSettings
from lightning_modules.config.masking import OwnSelection
from lightning_modules.config.objectives import Predicted
from lightning_modules.data.sequences import epochs
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import FIRST_WORD_ID
from lightning_modules.data.word_order import training_text
from lightning_modules.errors import DataError
from lightning_modules.objectives.masking import Units
from lightning_modules.objectives.skip_gram import pairs_per_token, training_counts

SCHEDULE_PLACES = 65
"""Number of steps at which a linear or cosine schedule is evaluated; the share is nearly linear in between."""


class Epoch(NamedTuple):
    """Counts of one epoch of a run."""

    tokens: int
    """Number of real source tokens, special tokens included."""
    sequences: int
    text_S: NDArray[np.int64]
    """Number of tokens of each sentence that are read and not special."""
    allowed_S: NDArray[np.int64]
    """Number of tokens of `text_S` that a lexicon allows to be hidden; all of them without a lexicon."""


def counted(run: RunSettings, tokens: Tokens) -> Epoch:
    """Return how many tokens, sequences and tokens to hide the first epoch of a run has."""
    split, _ = training_text(run, tokens)
    training, max_length = run.training, run.data.max_length
    epoch = epochs(split, training.input_format, max_length=max_length, seed=run.seed_of("order"))(0)
    sequences = epoch.part(0, len(epoch.lengths_Q))
    first_S = split.offsets[sequences.sentence_S] + 1  # after START
    stop_S = first_S + sequences.pieces_S

    def of_each(property_N: NDArray[np.bool_]) -> NDArray[np.int64]:
        before = np.concatenate([[0], np.cumsum(property_N)])
        return before[stop_S] - before[first_S]

    is_text_N = split.ids >= FIRST_WORD_ID
    text_S = allowed_S = of_each(is_text_N)
    masking = getattr(run.objective, "masking", None)
    if masking is not None and masking.leaves_out:
        allowed_N = Units(masking.select, tokens, split).allowed_N
        allowed_S = text_S if allowed_N is None else of_each(is_text_N & allowed_N)
    return Epoch(int(epoch.lengths_Q.sum()), len(sequences), text_S, allowed_S)


def predicted_share(masking: MaskingSettings, epoch: Epoch, *, step: int, max_steps: int) -> float:
    """Return the expected number of predictions for each source token of an epoch, at one step.

    The masking ratio and the number of repetitions are those of the step.
    """
    ratio = masking.ratio_at(step, max_steps)
    predicted_S = (ratio if masking.predict is None else masking.predict) * epoch.text_S
    if masking.count == "fixed":
        hidden_S = np.maximum(np.rint(ratio * epoch.text_S), 1)
        predicted_S = np.minimum(
            np.maximum(np.rint(predicted_S), 1), masking.repeats_at(step, max_steps) * hidden_S
        )
    return float(np.minimum(predicted_S, epoch.allowed_S).sum()) / epoch.tokens


def mean_predicted_share(masking: MaskingSettings, epoch: Epoch, *, max_steps: int) -> float:
    """Return the mean of `predicted_share` over the steps of a run.

    For a linear or cosine schedule it is the mean over at most `SCHEDULE_PLACES` steps at equal distances.
    """
    if masking.schedule is None:
        return predicted_share(masking, epoch, step=0, max_steps=max_steps)
    if masking.schedule.kind == "steps":
        starts = [0, *masking.schedule.at]
        lasting = np.diff([*starts, max_steps])
        shares = [predicted_share(masking, epoch, step=step, max_steps=max_steps) for step in starts]
        return float(lasting @ shares) / max_steps
    steps = np.linspace(0, max_steps - 1, num=min(max_steps, SCHEDULE_PLACES)).round().astype(int).tolist()
    return float(np.mean([predicted_share(masking, epoch, step=step, max_steps=max_steps) for step in steps]))


def allowed_part(run: RunSettings, tokens: Tokens) -> float:
    """Return the part of a run's predictions that its selection leaves: the expected predictions of an epoch over
    those without a lexicon. It is 1 for selections that may hide every token, and without training."""
    masking: MaskingSettings | None = getattr(run.objective, "masking", None)
    max_steps = run.training.max_steps
    if masking is None or not masking.leaves_out or not max_steps:
        return 1.0
    epoch = counted(run, tokens)
    of_all = mean_predicted_share(masking, epoch._replace(allowed_S=epoch.text_S), max_steps=max_steps)
    return mean_predicted_share(masking, epoch, max_steps=max_steps) / of_all


def predictions_per_token(run: RunSettings, tokens: Tokens) -> float:
    """Return the expected number of predictions for each real source token; for skip-gram, of pairs.

    They are counted sentence by sentence. So the number takes into account a lexicon with too few words in a
    sentence, `count: fixed`, and the special tokens of an input format.
    """
    if isinstance(run.objective, SkipGramSettings):
        return pairs_per_token(run.objective, training_text(run, tokens)[0], training_counts(run, tokens))
    epoch = counted(run, tokens)
    shares = (
        share * _tokens_of_sort(sort, run, tokens, epoch) for sort, share in run.objective.predictions.items()
    )
    return sum(shares)


def _tokens_of_sort(sort: Predicted, run: RunSettings, tokens: Tokens, epoch: Epoch) -> float:
    """Return the number of tokens of a kind of prediction in an epoch, per real source token."""
    match sort:
        case "selected":
            masking: MaskingSettings = getattr(run.objective, "masking")  # noqa: B009
            return mean_predicted_share(masking, epoch, max_steps=run.training.max_steps)
        case "next":
            return 1 - epoch.sequences / epoch.tokens
        case "text":
            return int(epoch.text_S.sum()) / epoch.tokens
        case "target":
            targets = tokens.train.target_lengths[: epoch.sequences] - 1  # all but START
            return int(targets.sum()) / epoch.tokens
        case "pairs":
            raise AssertionError("pairs of words are counted in the text")


def require_predictions(run: RunSettings, tokens: Tokens) -> None:
    """Raise a DataError if there is nothing to predict: a lexicon is expected to leave less than one token in some
    step, or skip-gram has no sentence of two tokens."""
    if isinstance(run.objective, SkipGramSettings):
        sentences = run.training.sentences
        _require_pairs(tokens.train if sentences is None else tokens.train.head(sentences))
    masking = getattr(run.objective, "masking", None)
    if masking is None or not masking.leaves_out:
        return
    prefix = "" if isinstance(masking.select, OwnSelection) else "the lexicon of "
    epoch, max_steps, tokens_per_step = counted(run, tokens), run.training.max_steps, run.training.tokens_per_step
    schedule = masking.schedule
    steps = {0, *schedule.at} if schedule is not None and schedule.kind == "steps" else {0, max_steps - 1}
    least = tokens_per_step * min(
        predicted_share(masking, epoch, step=step, max_steps=max_steps) for step in steps
    )
    if least < 1:
        raise DataError(
            f"objective.masking.select: {prefix}{masking.select.kind} leaves {least:.2g} tokens to predict in a "
            f"step (training.tokens_per_step = {tokens_per_step:,}), expected at least 1; give more frequent "
            "words, or raise objective.masking.ratio."
        )


def _require_pairs(text: Split) -> None:
    """Raise a DataError if no sentence of a text has two tokens that are not special."""
    if np.add.reduceat(text.ids >= FIRST_WORD_ID, text.offsets[:-1], dtype=np.int64).max() < 2:
        raise DataError(
            "skip_gram learns from pairs of words, but no sentence of data.train has two tokens; give text with "
            "longer sentences, or remove the arm."
        )
