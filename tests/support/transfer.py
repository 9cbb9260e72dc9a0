"""Tasks for frozen features and fine-tuning, and their scores."""

import numpy as np

from ablations.tasks.examples import Examples
from ablations.tasks.settings import FineTuningSettings, FrozenFeaturesSettings
from ablations.tasks.transfer.transfer import transfer_rows
from tests.support.tiny_text import WORDS

WAYS = {"frozen": FrozenFeaturesSettings, "tuned": FineTuningSettings}


KINDS = {"frozen": "frozen_features", "tuned": "fine_tuning"}


CLASSES, TAGGING, ENTITIES, SPANS, NUMBERS = (
    "language_topic",
    "language_parts_of_speech",
    "language_noun_phrases",
    "language_subject",
    "stsb",
)


FEW = tuple(dict.fromkeys(WORDS))


def asked(way, task=CLASSES, **changes):
    usual = {"seeds": 2, "epochs": 6, "effort": "quick"} | ({"learning_rates": (3e-3,)} if way == "tuned" else {})
    return WAYS[way](kind=KINDS[way], tasks=(task,), **usual | changes)


def quiet(line):
    pass


def scored(objective, tokens, splits, wanted, *, say=quiet, max_length=64, **more):
    rows = list(transfer_rows(objective, tokens.tokenizer, splits, wanted, max_length=max_length, say=say, **more))
    return {(row["group"], row["metric"]): row for row in rows}


def texts(count, *, seed, words=FEW, shortest=3, longest=12):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(words, rng.integers(shortest, longest))) for _ in range(count)]


def divided(examples, validation=60, test=200):
    last = len(examples)
    bounds = {"train": (validation + test, last), "validation": (test, validation + test), "test": (0, test)}
    return {split: examples.take(range(*pair)) for split, pair in bounds.items()}


def labelled(sentences, labels):
    return divided(Examples(list(sentences), None, None, list(labels)))


def precedence(count, seed):
    rng = np.random.default_rng(seed)
    sentences, labels = [], []
    for _ in range(count):
        words = list(rng.choice(["the", "a", "often", "here"], 4))
        first, second = sorted(rng.choice(5, 2, replace=False))
        dog_first = bool(rng.integers(2))
        words.insert(first, "dog" if dog_first else "cat")
        words.insert(second + 1, "cat" if dog_first else "dog")
        sentences.append(" ".join(words))
        labels.append("dog" if dog_first else "cat")
    return labelled(sentences, labels)
