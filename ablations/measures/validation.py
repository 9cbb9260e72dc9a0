"""Validation loss of an objective, and quality of the translations of a translation model.

A head on pairs of segments also has its accuracy. The lengths of the segments alone help to guess: the end of
a document may be shorter, and documents may differ in the length of their sentences. The chance level
(`floor`) is therefore the better of two guesses without words: always the more frequent answer, and a small
decision tree on the two lengths, fitted on pairs of the training text.

Letters: N tokens or batches, V vocabulary, S sentences, Q pairs, K = 2 segments, G blocks, C changes, P parts.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.jackknife import BLOCKS, errors
from ablations.measures.reading.alignment import MARKS, UNSPACED
from ablations.measures.reading.texts import Readings, Say, Texts, padded
from ablations.measures.settings import ValidationSettings
from ablations.measures.visible_tokens import VisibleTokens
from lightning_modules.config import InputFormat, RunSettings
from lightning_modules.config.contradictions import lacks_documents
from lightning_modules.config.training import word_order_name
from lightning_modules.data.sequences import NO_PAIR, PAIR, PairLoss, Sequences, formatted, with_negative_pairs
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK, decode, starts_word
from lightning_modules.data.word_order import reordered
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives.masked_lm import EVALUATED, MaskedLM
from lightning_modules.objectives.objective import EVALUATION_SEED, Batch, Objective
from lightning_modules.objectives.translation import Translation
from lightning_modules.training.data_module import (
    TOKENS_AT_ONCE,
    evaluate_changed,
    evaluation_batches,
)

SENTENCES_AT_ONCE = 128

MOST_NATS = 700.0
"""Largest loss whose perplexity is computed, as in the log of training. From 710 on a float cannot hold it."""


def rows(readings: Readings, settings: ValidationSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `validation` of a run."""
    return validation(readings.objective, readings.tokens, settings)


def require(settings: ValidationSettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if an input format needs documents, but the text does not say where they end."""
    for name in () if run.objective.reads_sentences_alone else settings.input_formats:
        if lack := lacks_documents(run.data, name, "validation"):
            raise MeasureError(f"{lack}.")


def validation(objective: Objective, tokens: Tokens, settings: ValidationSettings) -> Iterator[dict[str, Any]]:
    """Yield rows of loss (nats per prediction) and perplexity. Translation also has BLEU and chrF (0 to 100).
    A run with a loss on sentence pairs also has its accuracy on both pair tasks (next sentence and sentence
    order), in the input format of its training.

    Masked LM predicts 15% of the tokens, 80-10-10, with one corruption for all arms and seeds. `group` is
    null for the loss that an objective is named after. Otherwise it names another part of the loss
    (`generator`, `causal_lm`), how a token was shown (`masked`, `kept`, `random`), an input format, or the
    word order of a shuffled copy. A loss that is not over the vocabulary, and so cannot be compared with one
    that is, has the metric `objective_loss`.

    The chance level (`floor`) of a loss over the vocabulary is the loss, on the same predictions, of a model
    that only knows how frequent each token is in the training text. The chance level of another loss is that
    of a guess that knows the shares of the answers. The chance level of BLEU and chrF is the score of the
    same translations with the references shuffled. A text of ten batches (of 8,192 tokens) or more gives
    losses an error over the text. `pair_accuracies` and `visible_tokens` explain their own.
    """
    treatments = _treatments(objective)
    visible = VisibleTokens(objective) if isinstance(objective, MaskedLM) else None
    whole, *treated = _evaluated(
        objective,
        tokens.validation,
        [_unchanged, *treatments.values()],
        also=lambda *batch: None if visible is None else visible.read(*batch),
    )
    yield from _losses(objective, tokens, tokens.validation, whole)
    yield from _by_treatment(dict(zip(treatments, treated, strict=True)))
    if visible is not None:
        yield from visible.rows()
    if not objective.run.objective.reads_sentences_alone:
        for name in settings.input_formats:
            yield from _in_format(objective, tokens.validation, name)
    for order in settings.word_orders:
        split, _ = reordered(
            tokens.validation,
            order,
            starts_V=starts_word(tokens.tokenizer),
            max_length=objective.run.data.max_length,
            seed=EVALUATION_SEED,
        )
        for row in _losses(objective, tokens, split, *_evaluated(objective, split)):
            if row["group"] is None:
                yield row | {"group": word_order_name(order)}
    if objective.pair_loss != "none":
        yield from pair_accuracies(objective, tokens)
    if isinstance(objective, Translation):
        yield from _translation_scores(objective, tokens, settings)


class MeanLoss(NamedTuple):
    """Mean of a part of the loss over a text; for an accuracy, the share of right predictions."""

    mean: float
    """Nats per prediction; NaN without predictions."""
    predictions: int
    left_out: tuple[float, ...] = ()
    """Mean without each of `BLOCKS` blocks of neighbouring sentences; empty for a text of fewer batches."""


def _unchanged(batch: Batch) -> Batch:
    return batch


def _evaluated(
    objective: Objective,
    split: Split,
    changes: Sequence[Callable[[Batch], Batch]] = (_unchanged,),
    *,
    sequences: Sequences | None = None,
    also: Callable[[int, Batch], None] = lambda number, batch: None,
) -> list[dict[str, MeanLoss]]:
    """Return the mean of each part of the loss over a split, for each change of its batches."""
    batches: list[Tensor] = []

    def read(number: int, batch: Batch, batch_CP2: Tensor) -> None:
        batches.append(batch_CP2)
        also(number, batch)

    sums = evaluate_changed(objective, split, changes, sequences=sequences, also=read)
    without_GCP2 = _without_each_block(torch.stack(batches).cpu().numpy())
    return [
        {
            name: MeanLoss(
                _mean(*loss), int(loss.predictions), tuple(map(_mean, *without_GCP2[:, change, part].T))
            )
            for part, (name, loss) in enumerate(parts.items())
        }
        for change, parts in enumerate(sums)
    ]


def _without_each_block(sums_NCP2: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums over all batches but those of each block, for `BLOCKS` blocks of neighbouring batches;
    no blocks for fewer batches."""
    count = len(sums_NCP2)
    starts = np.arange(BLOCKS if count >= BLOCKS else 0) * count // BLOCKS
    return sums_NCP2.sum(0) - np.add.reduceat(sums_NCP2, starts)


def _mean(total: Tensor | float, predictions: Tensor | float) -> float:
    return float(total / predictions) if predictions else math.nan


def _losses(
    objective: Objective, tokens: Tokens, split: Split, evaluated: dict[str, MeanLoss]
) -> Iterator[dict[str, Any]]:
    parts = {name: part for name, part in evaluated.items() if part.predictions}
    means = {name: part.mean for name, part in parts.items()}
    unigram = unigram_losses(objective, tokens, split)
    for name, weight in objective.parts.items():
        if name not in parts or not weight:
            continue
        mean, count, left_out = parts[name]
        floor = unigram[name] if name in unigram else objective.chance(name, means, unigram)
        group = None if name == "loss" else name
        metric = "loss" if name in unigram else "objective_loss"
        row = {"metric": metric, "group": group, "value": mean, "floor": floor, "unit": "nats", "n": count}
        yield row | errors(left_out)
        if name in unigram:
            value, chance, *without = (math.exp(min(nats, MOST_NATS)) for nats in (mean, floor, *left_out))
            row |= {"metric": "perplexity", "value": value, "floor": chance, "unit": ""}
            yield row | errors(without)


Treatment = Callable[[Tensor, Tensor], Tensor]
"""Function from the shown and the original tokens to which of them have this treatment."""

TREATMENTS: dict[str, Treatment] = {
    "masked": lambda shown_N, label_N: shown_N == MASK,
    "kept": lambda shown_N, label_N: shown_N == label_N,
    "random": lambda shown_N, label_N: (shown_N != MASK) & (shown_N != label_N),
}


def _treatments(objective: Objective) -> Mapping[tuple[str, bool], Callable[[Batch], Batch]]:
    """Return changes of a batch of masked LM, by treatment and by whether its tokens are shown as [MASK]
    instead.

    A change leaves only the predictions of its treatment. The mapping is empty for other objectives.
    """
    part = objective.vocabulary_parts[0] if objective.vocabulary_parts else None
    if part is None or part.shown is None or part.name != "loss":
        return {}
    shown, place = part.shown

    def only(belongs: Treatment, batch: Batch) -> Batch:
        label_N = batch[part.labels]
        keep_N = belongs(batch[shown].flatten()[batch[place]], label_N)
        return batch | {part.labels: torch.where(keep_N, label_N, IGNORED)}

    def hidden(belongs: Treatment, batch: Batch) -> Batch:
        batch = only(belongs, batch)
        tokens_N = batch[shown].flatten().clone()
        tokens_N[batch[place][batch[part.labels] != IGNORED]] = MASK
        return batch | {shown: tokens_N.view_as(batch[shown])}

    visible = {(name, False): partial(only, belongs) for name, belongs in TREATMENTS.items()}
    return visible | {(name, True): partial(hidden, TREATMENTS[name]) for name in TREATMENTS if name != "masked"}


def _by_treatment(evaluated: Mapping[tuple[str, bool], dict[str, MeanLoss]]) -> Iterator[dict[str, Any]]:
    """Yield the loss of masked LM separately for tokens that are shown as [MASK], as they were, and as
    another token.

    An arm that was trained on only one of these has not met the others. The chance level (`floor`) of the
    latter two is the loss of the same model at the same tokens when they are shown as [MASK].
    """
    for (name, is_hidden), parts in evaluated.items():
        if is_hidden:
            continue
        row = _row_of(parts["loss"], group=name)
        if name == "masked":
            yield from row
            continue
        floor = evaluated[name, True]["loss"].mean
        yield from ({**of_visible, "floor": floor} for of_visible in row)


def _in_format(objective: Objective, split: Split, input_format: InputFormat) -> Iterator[dict[str, Any]]:
    """Yield the loss when the text is read in an input format."""
    sequences = None if input_format == "sentences" else _in_order(split, objective.run, input_format)
    (parts,) = _evaluated(objective, split, sequences=sequences)
    is_over_vocabulary = any(part.name == "loss" for part in objective.vocabulary_parts)
    yield from _row_of(
        parts["loss"], group=input_format, metric="loss" if is_over_vocabulary else "objective_loss"
    )


def _in_order(split: Split, run: RunSettings, input_format: InputFormat) -> Sequences:
    """Return a split in its own order as the sequences of an input format that joins sentences."""
    document_S, length = split.documents.astype(np.int64), run.data.max_length
    return formatted(split, np.arange(len(split)), document_S, input_format, max_length=length)


def _row_of(loss: MeanLoss, *, group: str, metric: str = "loss") -> Iterator[dict[str, Any]]:
    if loss.predictions:
        row = {"metric": metric, "group": group, "value": loss.mean, "unit": "nats", "n": loss.predictions}
        yield row | errors(loss.left_out)


def unigram_losses(objective: Objective, tokens: Tokens, split: Split) -> dict[str, float]:
    """Return the mean loss, in nats, of the best guess without context of the predictions in a split, for
    every part over a vocabulary.

    The guess knows the token frequencies p of the training text: each count plus one, among the ids that the
    objective may have to predict. At a token that masked LM predicts and that is not shown as [MASK], it also
    knows how evaluation corrupts. If w is shown, the original was w with weight p(w) keep, and any token o
    with weight p(o) random / W, where W is the number of ids without the special ones.
    """
    counts_V = tokens.target_counts_V if objective.needs_targets else tokens.source_counts_V
    assert counts_V is not None
    parts = objective.vocabulary_parts
    share_V = {part.name: _shares(counts_V, part.special) for part in parts}
    total, count = dict.fromkeys(share_V, 0.0), dict.fromkeys(share_V, 0)
    for batch in evaluation_batches(objective, split, tokens_per_step=TOKENS_AT_ONCE):
        for part in parts:
            predicted = batch[part.labels] != IGNORED
            label_N = batch[part.labels][predicted].numpy()
            nats_N = -np.log(share_V[part.name][label_N])
            if part.shown is not None:
                shown_BT, place_N = (batch[name] for name in part.shown)
                shown_N = shown_BT.flatten()[place_N[predicted]].numpy()
                nats_N = np.where(shown_N == MASK, nats_N, _shown_nats(share_V[part.name], label_N, shown_N))
            total[part.name] += nats_N.sum()
            count[part.name] += len(label_N)
    return {name: total[name] / max(1, count[name]) for name in total}


def _shares(counts_V: NDArray[np.int64], special: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the probability of each id; 0 for ids that are never predicted."""
    ids_V = np.arange(len(counts_V))
    smoothed_V = np.where((ids_V >= FIRST_WORD_ID) | np.isin(ids_V, special), counts_V + 1.0, 0.0)
    return smoothed_V / smoothed_V.sum()


def _shown_nats(
    share_V: NDArray[np.float64], label_N: NDArray[np.int64], shown_N: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the nats of the true token given the shown one, by Bayes' rule, under the corruption of
    evaluation."""
    random = EVALUATED.random / (len(share_V) - FIRST_WORD_ID)
    kept_N = share_V[shown_N] * EVALUATED.keep
    return -np.log((share_V[label_N] * random + np.where(label_N == shown_N, kept_N, 0)) / (kept_N + random))


def _translation_scores(
    objective: Translation, tokens: Tokens, settings: ValidationSettings
) -> Iterator[dict[str, Any]]:
    hypotheses, references = translations(objective, tokens, settings.translations)
    if not references:  # every pair was cut at `max_length`
        return
    shuffled = [references[i] for i in np.random.default_rng(0).permutation(len(references))]
    for metric, score in (("bleu", bleu), ("chrf", chrf)):
        yield {
            "metric": metric,
            "value": score(hypotheses, references),
            "floor": score(hypotheses, shuffled),
            "unit": "0-100",
            "n": len(references),
        }


def translations(objective: Translation, tokens: Tokens, sentences: int) -> tuple[list[str], list[str]]:
    """Return greedy translations of the first sentences of the validation text, and their references: the
    translations of its files, in NFC.

    Pairs as long as `max_length` on either side are left out, because they may have been cut.
    """
    assert tokens.target_tokenizer is not None
    objective.eval()
    split, max_length = tokens.validation, objective.run.data.max_length
    whole = np.flatnonzero((split.lengths < max_length) & (split.target_lengths < max_length))[:sentences]
    order = whole[np.argsort(split.lengths[whole], kind="stable")]  # similar lengths need little padding
    hypotheses: dict[int, str] = {}
    for start in range(0, len(order), SENTENCES_AT_ONCE):
        chosen = order[start : start + SENTENCES_AT_ONCE].tolist()
        rows = padded(map(split.sentence, chosen)).to(objective.device)
        for i, ids in zip(chosen, objective.translate(rows, max_length=max_length), strict=True):
            hypotheses[i] = decode(tokens.target_tokenizer, ids)
    return [hypotheses[i] for i in whole.tolist()], [tokens.references[i] for i in whole.tolist()]


CHARACTER_WORDS: Final = (
    rf"(?:{UNSPACED}|[\u2600-\u27bf\u2e80-\u303f\u3100-\u312f\u31a0-\u31ef\u3200-\u33ff\ufe10-\ufe1f\ufe30-\ufe4f"
    rf"\uff00-\uffef])[{MARKS}]*"
)
"""Pattern of the characters that are words of their own in BLEU, each with its marks: those of scripts without
spaces, and the signs that sacreBLEU's tokenisation `zh` separates, such as full-width punctuation and ★; 13a
leaves ★ within its word."""


def bleu(hypotheses: list[str], references: list[str]) -> float:
    """Return corpus BLEU of sacreBLEU (13a tokenisation, mixed case, exponential smoothing), 0 to 100; NaN
    without sentences.

    Each character of `CHARACTER_WORDS` is a word, so Chinese has the number of sacreBLEU's tokenisation `zh`.
    Japanese, Thai, Lao, Burmese and Khmer are cut in the same way.
    """
    import sacrebleu  # only translation needs it

    if not references:
        return math.nan
    spaced = [[re.sub(CHARACTER_WORDS, r" \g<0> ", text) for text in texts] for texts in (hypotheses, references)]
    # `force` only silences advice on text with a space before its full stops, as the built-in language has.
    return min(100.0, float(sacrebleu.corpus_bleu(spaced[0], [spaced[1]], force=True).score))  # rounding


def chrf(hypotheses: list[str], references: list[str]) -> float:
    """Return chrF2 of sacreBLEU (character n-grams up to 6, no words), 0 to 100; NaN without sentences."""
    import sacrebleu  # only translation needs it

    return float(sacrebleu.corpus_chrf(hypotheses, [references]).score) if references else math.nan


TASKS: tuple[PairLoss, ...] = ("next_sentence", "sentence_order")
TRAINING_SENTENCES = 100_000
"""Number of sentences, from the start of the training text, that the guess by lengths is fitted on."""
LEAVES, FEWEST_IN_LEAF = 16, 50
"""Size of the decision tree: few decisions, each from many pairs, so that it finds no rule in chance."""


def pair_accuracies(objective: Objective, tokens: Tokens) -> Iterator[dict[str, Any]]:
    """Yield the accuracy of the head on pairs of the validation text in both tasks, whichever it was trained
    on. n counts pairs.

    The chance level (`floor`) is the share of the more frequent answer, or the accuracy of a guess from the
    lengths of the two segments if that is higher. The guess is fitted on the training text.
    """
    for task in TASKS:
        sequences = pairs(objective.run, tokens.validation, task)
        (parts,) = _evaluated(objective, tokens.validation, sequences=sequences)
        accuracy = parts[f"{objective.pair_loss}_accuracy"]
        if accuracy.predictions:
            training = pairs(objective.run, tokens.train.head(TRAINING_SENTENCES), task)
            floor = floor_of_pairs(lengths_and_labels(training), lengths_and_labels(sequences))
            row = {"metric": "pair_accuracy", "group": task, "value": accuracy.mean, "floor": floor, "unit": ""}
            yield row | {"n": accuracy.predictions} | errors(accuracy.left_out)


def pairs(run: RunSettings, split: Split, task: PairLoss) -> Sequences:
    """Return a split in the training's input format, with half of the pairs turned into negative pairs of the
    task."""
    natural = _in_order(split, run, run.training.input_format)
    return with_negative_pairs(natural, task, split.documents, seed=EVALUATION_SEED)


class Lengths(NamedTuple):
    """Lengths of the two segments of some pairs, in pieces, and whether each pair stands in the text as it is."""

    pieces_QK: NDArray[np.float64]
    is_pair_Q: NDArray[np.bool_]


def lengths_and_labels(sequences: Sequences) -> Lengths:
    """Return the lengths of both segments, and the label, of each sequence that has two segments."""
    segment_S = 2 * sequences.sequence_S + sequences.segment_S
    pieces_QK = np.bincount(segment_S, sequences.pieces_S, minlength=2 * len(sequences)).reshape(-1, 2)
    has_two_Q = sequences.label_Q != NO_PAIR
    return Lengths(pieces_QK[has_two_Q], sequences.label_Q[has_two_Q] == PAIR)


def floor_of_pairs(training: Lengths, scored: Lengths) -> float:
    """Return the accuracy on the scored pairs of a guess without words.

    The guess is the better one of two: the more frequent answer, and a decision tree on the lengths and their
    difference, fitted on the training pairs.
    """
    share = scored.is_pair_Q.mean()
    most_frequent = float(max(share, 1 - share))
    if not len(training.is_pair_Q):
        return most_frequent
    tree = DecisionTreeClassifier(max_leaf_nodes=LEAVES, min_samples_leaf=FEWEST_IN_LEAF, random_state=0)
    tree.fit(_features(training), training.is_pair_Q)
    return max(most_frequent, float((tree.predict(_features(scored)) == scored.is_pair_Q).mean()))


def _features(lengths: Lengths) -> NDArray[np.float64]:
    return np.column_stack([lengths.pieces_QK, np.diff(lengths.pieces_QK)])
