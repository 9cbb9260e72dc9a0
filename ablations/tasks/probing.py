"""Probes: linear classifiers of frozen states, layer by layer and of a learned mix of all layers.

Accuracy alone does not separate what a state knows from what a probe learns. Two further numbers do:
selectivity, the accuracy minus that of the same probe on a control task (Hewitt & Liang 2019), and the length
of the online code of the labels (Voita & Titov 2020).

A control task (Hewitt & Liang 2019, section 2) has labels that mean nothing, so only a probe that memorises
can predict them. Each kind of input has one random label, always the same, drawn from the labels of the real
task. For words the kind is the word. For sentences and pairs, for which the source has no control, the kind
is one of their words: the rarest of those that are in at least ten training sentences. So there are many
kinds, each occurs often enough to be learned, and the label is a function of the text that needs no
understanding.

Letters: L + 1 layers, N examples (sentences, pairs or words), D width, K classes.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from sklearn.preprocessing import StandardScaler
from tokenizers import Tokenizer

from ablations.errors import MeasureError
from ablations.measures.jackknife import means_left_out
from ablations.measures.reading.texts import Readings, Say
from ablations.tasks.datasets import SPLITS, Split, Task
from ablations.tasks.encoding import encode_examples, pooled_states, word_states
from ablations.tasks.examples import WORD, Examples, all_examples, part, source_of
from ablations.tasks.linear import (
    STRENGTHS,
    LabelledFeatures,
    Labels,
    best_classifier,
    classifier,
    frequency_log_probabilities,
    learned_mix,
    linear_log_probabilities,
    mixed,
    online_code,
)
from ablations.tasks.metrics import standard_error
from ablations.tasks.predictions import predictions
from ablations.tasks.settings import ProbingSettings
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms

FEWEST = 10
"""Number of training sentences that a word must be in to decide about a label."""

NO_WORD = ""
"""Word of a text none of whose words is in enough training texts."""

ANSWERS = "answers"
"""Additional key of the mix's row of `accuracy`: the answers of its probe."""


def deciding_words(texts: Sequence[str], *, train: Sequence[str]) -> list[str]:
    """Return the rarest word of each text that is in at least ten training texts; NO_WORD if there is none.
    Ties go to the first word in alphabetical order."""
    counts = Counter(word for text in train for word in _words(text))
    return [
        min(
            (word for word in _words(text) if counts[word] >= FEWEST),
            key=lambda word: (counts[word], word),
            default=NO_WORD,
        )
        for text in texts
    ]


def control_labels(
    kinds: Sequence[str], *, labels: Sequence[str] | NDArray[np.str_], seed: int
) -> NDArray[np.str_]:
    """Draw a label for each input from the labels of the real task. Inputs of a kind have the same label.

    Args:
        labels: labels of the training part, as often as they occur there.
    """
    names_K, counts_K = np.unique(labels, return_counts=True)
    until_K = counts_K.cumsum() / counts_K.sum()
    drawn = {kind: uniforms(derive(seed, "control task", kind), np.zeros(1, int))[0] for kind in set(kinds)}
    return names_K[np.searchsorted(until_K, [drawn[kind] for kind in kinds], side="right")]


def _words(text: str) -> set[str]:
    return set(re.findall(WORD, text.lower()))


@dataclass(frozen=True)
class Probed:
    """States and labels of the examples of a split."""

    states_LND: NDArray[np.float32]
    label_N: Labels
    control_N: Labels
    """Labels of the control task."""
    sentence_N: NDArray[np.int64]
    """Sentence that each example is from. Examples of different sentences are independent."""


def rows(readings: Readings, settings: ProbingSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `probing` of one task for a run."""
    splits = all_examples(settings.task_name, source_of(readings, settings))
    return probing_rows(
        readings.objective,
        readings.tokens.tokenizer,
        splits,
        settings,
        max_length=readings.objective.run.data.max_length,
        counts_V=readings.tokens.source_counts_V,
    )


def probing_rows(
    objective: Objective,
    tokenizer: Tokenizer,
    splits: Mapping[Split, Examples],
    settings: ProbingSettings,
    *,
    max_length: int,
    counts_V: NDArray[np.int64] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of `accuracy`, `selectivity`, `code_length` and `compression` for each layer and, with layer
    null, for the mix; and of `mix_weight` for each layer.

    The chance level (`floor`) is that of a probe that only knows the frequencies of the labels. For accuracy
    it is the share of the test part's most frequent label, the best that one answer to everything can reach.
    For selectivity it is this share minus the score of the most frequent training label in the control task.
    There is no selectivity if all training examples have one control label, as if no word is in ten training
    texts.
    For the weights of the mix it is equal weights. n counts test examples, or training examples for the code
    and the weights. d is the number of features.

    Args:
        counts_V: how often each id occurs in the training text. Without it the predictions of the mix are not
            kept.

    Raises:
        MeasureError: the training part has only one class.
    """
    task = settings.task
    limited = {split: part(splits[split], settings, split) for split in SPLITS}
    parts = probed(objective, tokenizer, task, limited, max_length=max_length)
    for row in task_rows(parts, group=task.name):
        answer_N = row.pop(ANSWERS, None)
        yield row
        if answer_N is not None and settings.predictions and counts_V is not None:
            yield {
                "predictions": _predictions(answer_N, parts["test"], limited["test"], task, tokenizer, counts_V)
            }


def _predictions(
    answer_N: NDArray[np.str_],
    test: Probed,
    examples: Examples,
    task: Task,
    tokenizer: Tokenizer,
    counts_V: NDArray[np.int64],
) -> DataFrame:
    """Return the predictions of a probe. Those for the words of a sentence are one example."""
    weight_S = np.bincount(test.sentence_N, minlength=len(examples))
    right_S = np.bincount(test.sentence_N, weights=np.equal(answer_N, test.label_N), minlength=len(examples))
    answers: list[list[str]] = [[] for _ in range(len(examples))]
    for sentence, answer in zip(test.sentence_N.tolist(), answer_N.tolist(), strict=True):
        answers[sentence].append(answer)
    return predictions(
        examples,
        task=task.name,
        metric="accuracy",
        points_N=right_S / np.maximum(weight_S, 1),
        weight_N=weight_S,
        answers_RN=[answers],
        tokenizer=tokenizer,
        counts_V=counts_V,
    )


def probed(
    objective: Objective,
    tokenizer: Tokenizer,
    task: Task,
    splits: Mapping[Split, Examples],
    *,
    max_length: int,
) -> dict[Split, Probed]:
    """Return the states of each split, with the labels of the real task and of the control task."""
    parts: dict[Split, Probed] = {}
    for split in SPLITS:  # first the training part, from which the labels of the control task are drawn
        examples = splits[split]
        rows = encode_examples(task, examples, tokenizer, max_length=max_length)
        if task.kind == "tagging":
            assert examples.words is not None
            states_LND, sentence_N, word_N = word_states(objective, rows)
            places = list(zip(sentence_N.tolist(), word_N.tolist(), strict=True))
            labels = [examples.answers[sentence][word] for sentence, word in places]
            kinds = [examples.words[sentence][word] for sentence, word in places]
        else:
            states_LND, sentence_N = pooled_states(objective, rows), np.arange(len(examples))
            labels = examples.answers
            kinds = deciding_words(_texts(examples), train=_texts(splits["train"]))
        label_N = np.array(labels)
        drawn_from = parts["train"].label_N if parts else label_N
        control_N = control_labels(kinds, labels=drawn_from, seed=0)
        parts[split] = Probed(states_LND, label_N, control_N, sentence_N)
    return parts


def _texts(examples: Examples) -> list[str]:
    if examples.second is None:
        return examples.first
    return [f"{first} {second}" for first, second in zip(examples.first, examples.second, strict=True)]


def task_rows(parts: Mapping[Split, Probed], *, group: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a task from states and labels; see `probing_rows`."""
    classes = len(np.unique(parts["train"].label_N))
    if classes < 2:
        raise MeasureError(
            f"probing: the {len(parts['train'].label_N):,} training examples of {group} have only one class, "
            "but a probe needs two; raise the measure's `examples` if the task has more, or leave the task out."
        )
    parts = _standardised(parts)
    layers = len(parts["train"].states_LND)
    for layer in range(layers):
        states = {split: part.states_LND[layer] for split, part in parts.items()}
        for row in _layer_rows(parts, states, states):
            yield {"group": group, "layer": layer} | row
    weight_L = _mix_of(parts["train"], "label_N")
    control_L = _mix_of(parts["train"], "control_N")
    for row in _layer_rows(parts, _mixes(parts, weight_L), _mixes(parts, control_L), mixes=True):
        yield {"group": group, "layer": None} | row
    for layer, weight in enumerate(weight_L.tolist()):
        common = {"metric": "mix_weight", "group": group, "layer": layer}
        yield common | {"value": weight, "floor": 1 / layers, "n": len(parts["train"].label_N)}


def _standardised(parts: Mapping[Split, Probed]) -> dict[Split, Probed]:
    """Return each split with states of which every feature has mean 0 and variance 1 in the training part."""
    scalers = [StandardScaler().fit(layer_ND) for layer_ND in parts["train"].states_LND]
    standardised = {}
    for split, each in parts.items():
        scaled = [scaler.transform(layer_ND) for scaler, layer_ND in zip(scalers, each.states_LND, strict=True)]
        standardised[split] = replace(each, states_LND=np.stack(scaled).astype(np.float32))
    return standardised


def _mix_of(train: Probed, labels: str) -> NDArray[np.float64]:
    names_K, label_N = np.unique(getattr(train, labels), return_inverse=True)
    return learned_mix(train.states_LND, label_N, classes=len(names_K), seed=derive(0, "mix", labels))


StatesBySplit = Mapping[Split, NDArray[np.float32]]


def _mixes(parts: Mapping[Split, Probed], weight_L: NDArray[np.float64]) -> StatesBySplit:
    """Return the mix of each split, standardised as a layer is.

    A mean over layers lowers the variance of features that differ between layers. Without standardising, the
    probe would need larger weights for them, which its penalty punishes."""
    states = {split: mixed(part.states_LND, weight_L) for split, part in parts.items()}
    scaler = StandardScaler().fit(states["train"])
    return {split: scaler.transform(states_ND) for split, states_ND in states.items()}


def _layer_rows(
    parts: Mapping[Split, Probed], states: StatesBySplit, control: StatesBySplit, *, mixes: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one layer or mix, without `group` and `layer`.

    Args:
        control: states for the control task, for which a mix has weights of its own.
        mixes: whether the weights of the layers are learned anew for each block of the code.
    """
    train, validation, test = (parts[split] for split in SPLITS)
    common = {"d": states["train"].shape[1]}
    probe = best_classifier(
        LabelledFeatures(states["train"], train.label_N),
        LabelledFeatures(states["validation"], validation.label_N),
    )
    answer_N = probe.predict(states["test"])
    right_N = np.equal(answer_N, test.label_N)
    # The chance level of accuracy is the best constant answer. That of the control task is the constant answer
    # that a probe without features learns.
    guessed_N = np.equal(_most_frequent(test.label_N), test.label_N)
    accuracy = common | _mean_row("accuracy", right_N, guessed_N, test.sentence_N)
    yield accuracy | ({ANSWERS: answer_N} if mixes else {})
    if len(np.unique(train.control_N)) > 1:
        memory = _control_probe(LabelledFeatures(control["train"], train.control_N), probe.strength)
        better_N = right_N.astype(float) - np.equal(memory(control["test"]), test.control_N)
        guessed_better_N = guessed_N.astype(float) - np.equal(_most_frequent(train.control_N), test.control_N)
        yield common | _mean_row("selectivity", better_N, guessed_better_N, test.sentence_N)
    yield from (common | row for row in _code_rows(train, states["train"], mixes=mixes))


def _mean_row(metric: str, score_N: Any, guessed_N: Any, sentence_N: Any) -> dict[str, Any]:
    """Return the row of a mean over examples, with errors over sentences. Its chance level is the mean of
    guesses."""
    return {
        "metric": metric,
        "value": float(score_N.mean()),
        "floor": float(guessed_N.mean()),
        "n": len(score_N),
        "standard_error": standard_error(score_N, sentence_N),
        "left_out": means_left_out(score_N, sentence_N),
    }


def _control_probe(train: LabelledFeatures, strength: float) -> Any:
    """Return the probe for the control task as a function of states. If all labels are the same, the
    function returns that label."""
    if len(np.unique(train.y_N)) == 1:
        return lambda x_ND: np.full(len(x_ND), train.y_N[0])
    return classifier(train, strength=strength).predict


def _most_frequent(label_N: Labels) -> str:
    names_K, counts_K = np.unique(label_N, return_counts=True)
    return str(names_K[counts_K.argmax()])


def _code_rows(train: Probed, states_ND: NDArray[np.float32], *, mixes: bool) -> Iterator[dict[str, Any]]:
    """Yield the code length of the training labels, sentence by sentence in random order, and the
    compression: the length with equal probability for all classes, divided by the code length.

    The sender tries every strength of the probe, takes the one with the shortest code, and says which. A
    strength that is best with all labels may have a long code, because most blocks are sent after few labels.
    """
    names_K, label_N = np.unique(train.label_N, return_inverse=True)
    K, N = len(names_K), len(label_N)
    # Sentences come in random order, the examples of a sentence one after the other.
    names_S, place_N = np.unique(train.sentence_N, return_inverse=True)
    rank_S = np.random.default_rng(derive(0, "online code")).permutation(len(names_S))
    order_N = np.argsort(rank_S[place_N], kind="stable")
    label_N, x_ND = label_N[order_N], states_ND[order_N]
    states_LND = train.states_LND[:, order_N] if mixes else None

    @cache
    def features(begin: int, end: int) -> NDArray[np.float32]:
        if states_LND is None:
            return x_ND[:end]
        weight_L = learned_mix(states_LND[:, :begin], label_N[:begin], classes=K, seed=derive(0, "mix", begin))
        return StandardScaler().fit_transform(mixed(states_LND, weight_L))[:end]

    def learn(begin: int, end: int, strength: float) -> NDArray[np.float64]:
        mine_ND = features(begin, end)
        return linear_log_probabilities(
            mine_ND[:begin], label_N[:begin], mine_ND[begin:], classes=K, strength=strength
        )

    def learn_frequencies(begin: int, end: int) -> NDArray[np.float64]:
        return frequency_log_probabilities(label_N[:begin], end - begin, classes=K)

    codes = (online_code(label_N, classes=K, learn=partial(learn, strength=each)) for each in STRENGTHS)
    nats_N = min(codes, key=np.sum)
    length = float(nats_N.sum()) + np.log(len(STRENGTHS))
    uniform = N * np.log(K)
    without = float(online_code(label_N, classes=K, learn=learn_frequencies).sum())
    error = N * standard_error(nats_N, train.sentence_N[order_N])
    row = {"metric": "code_length", "value": length, "floor": without, "unit": "nats"}
    yield row | {"n": N, "standard_error": error}
    row = {"metric": "compression", "value": uniform / length, "floor": uniform / without}
    yield row | {"n": N, "standard_error": uniform / length**2 * error}
