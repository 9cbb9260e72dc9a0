"""Accuracy of a head on pairs of segments, beside what the lengths of the segments alone tell.

Lengths tell something: the end of a document may be shorter, and documents may differ in the length of their
sentences. So the floor is the better of two guesses without words: always the more frequent answer, and a small
tree of decisions on the two lengths, fitted on pairs of the training text.

Letters: S sentences, Q pairs, K = 2 segments.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from lightning_modules.config import RunSettings
from lightning_modules.data.negative_pairs import PairLoss, rearranged
from lightning_modules.data.sequences import NO_PAIR, PAIR, Sequences, formatted
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.objectives.objective import EVALUATION_SEED, Objective
from lightning_modules.training.evaluation import evaluate_parts

TASKS: tuple[PairLoss, ...] = ("next_sentence", "sentence_order")
TRAINING_SENTENCES = 100_000
"""Sentences from the start of the training text that the guess by lengths learns from."""
LEAVES, FEWEST_IN_LEAF = 16, 50
"""Size of the tree: few decisions, each from many pairs, so that it finds no rule in chance."""


def pair_accuracies(objective: Objective, tokens: Tokens) -> Iterator[dict[str, Any]]:
    """Yield the accuracy of the head on pairs of the validation text in both tasks, whichever of the two it was
    trained on; n counts pairs.

    The floor is the share of the more frequent answer, or, if that is more, the accuracy of a guess from the
    lengths of the two segments that was fitted on the training text.
    """
    for task in TASKS:
        sequences = pairs(objective.run, tokens.validation, task)
        right = evaluate_parts(objective, tokens.validation, sequences=sequences)[
            f"{objective.pair_loss}_accuracy"
        ]
        if count := int(right.predictions):
            training = pairs(objective.run, tokens.train.head(TRAINING_SENTENCES), task)
            floor = floor_of_pairs(lengths_and_labels(training), lengths_and_labels(sequences))
            accuracy = right.total.item() / count
            yield {"metric": "pair_accuracy", "group": task, "value": accuracy, "floor": floor} | {
                "unit": "",
                "n": count,
            }


def pairs(run: RunSettings, split: Split, task: PairLoss) -> Sequences:
    """Return a split in the training's input format, with half of the pairs spoilt as the task says."""
    document_S = split.documents.astype(np.int64)
    input_format, length = run.training.input_format, run.data.max_length
    natural = formatted(split, np.arange(len(split)), document_S, input_format, max_length=length)
    return rearranged(natural, task, split.documents, seed=EVALUATION_SEED)


class Lengths(NamedTuple):
    """Lengths of the segments of some pairs, and whether each pair stands in the text as it is."""

    pieces_QK: NDArray[np.float64]
    is_pair_Q: NDArray[np.bool_]


def lengths_and_labels(sequences: Sequences) -> Lengths:
    """Return the pieces of both segments and the label of each sequence that has two segments."""
    segment_S = 2 * sequences.sequence_S + sequences.segment_S
    pieces_QK = np.bincount(segment_S, sequences.pieces_S, minlength=2 * len(sequences)).reshape(-1, 2)
    has_two_Q = sequences.label_Q != NO_PAIR
    return Lengths(pieces_QK[has_two_Q], sequences.label_Q[has_two_Q] == PAIR)


def floor_of_pairs(training: Lengths, scored: Lengths) -> float:
    """Return the accuracy of a guess without words on the scored pairs: of the more frequent answer, or of a tree
    of decisions on the lengths and their difference that is fitted on the training pairs, if it is better."""
    share = scored.is_pair_Q.mean()
    most_frequent = float(max(share, 1 - share))
    if not len(training.is_pair_Q):
        return most_frequent
    tree = DecisionTreeClassifier(max_leaf_nodes=LEAVES, min_samples_leaf=FEWEST_IN_LEAF, random_state=0)
    tree.fit(_features(training), training.is_pair_Q)
    return max(most_frequent, float((tree.predict(_features(scored)) == scored.is_pair_Q).mean()))


def _features(lengths: Lengths) -> NDArray[np.float64]:
    return np.column_stack([lengths.pieces_QK, np.diff(lengths.pieces_QK)])
