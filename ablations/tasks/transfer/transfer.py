"""Frozen features against fine-tuning: the same head on the same examples, in both ways, several times over.

Each repetition has its own initial head and order of examples, the same for every encoder. A number is the
mean over repetitions. Its standard error says how far it would move with other heads and orders, and with
other test examples; of spans with questions on other paragraphs, or on other values of `divided_by`, because
questions on one paragraph resemble each other. All repetitions have the same test examples.

The test texts are also scored with their words in another order, which shows how much a trained head needs
word order. Sinha et al. 2021 shuffle the text that is learned from. Here heads learn from natural text, and
only the test text is shuffled. As there, no word keeps its place: the permutation is random and of a single
cycle.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from tokenizers import Tokenizer

from ablations.measures.jackknife import BLOCKS, errors
from ablations.measures.reading.texts import Readings, Say
from ablations.tasks.datasets import SPLITS, Metric, Split
from ablations.tasks.examples import SPACED, Examples, all_examples, drawn, part, source_of
from ablations.tasks.metrics import chance, score
from ablations.tasks.predictions import points_metric, points_of, predictions
from ablations.tasks.settings import FineTuningSettings, TransferSettings
from ablations.tasks.transfer.heads import (
    FrozenStates,
    Head,
    States,
    Texts,
    TunedStates,
    answers_of,
    scale_of,
    texts_of,
)
from ablations.tasks.transfer.training import Recipe, Trained, Trainee, train
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms


class Shuffled(NamedTuple):
    """Examples with their words in another order."""

    examples: Examples
    place: list[NDArray[np.int64]]
    """Place of each word in its natural sentence, for tagging; empty for other tasks."""


def shuffled(examples: Examples) -> Shuffled:
    """Return examples with the words of every text in another order. The two texts of a pair are shuffled
    apart.

    Words are what stands between blanks, or what the task says. In scripts without spaces they are characters.
    Blanks stay where they are. The order depends only on the numbers of the example, of the text in it and of the
    word in that, so it is the same for every encoder.
    """
    if examples.words is not None:
        place = [_order(len(words), i, 0) for i, words in enumerate(examples.words)]
        moved = [[words[p] for p in order] for words, order in zip(examples.words, place, strict=True)]
        tags = [[tags[p] for p in order] for tags, order in zip(examples.answers, place, strict=True)]
        return Shuffled(Examples([" ".join(words) for words in moved], None, moved, tags), place)
    first = [_moved(text, i, 0) for i, text in enumerate(examples.first)]
    second = None if examples.second is None else [_moved(text, i, 1) for i, text in enumerate(examples.second)]
    return Shuffled(Examples(first, second, None, examples.answers), [])


def natural_order(answers: list[Any], place: list[NDArray[np.int64]]) -> list[list[Any]]:
    """Return the answers for shuffled words in the natural order of the words, where entities of several
    words are whole again."""
    return [[tags[i] for i in np.argsort(order)] for tags, order in zip(answers, place, strict=True)]


def _moved(text: str, example: int, number: int) -> str:
    words = re.findall(SPACED, text)
    moved = (words[i] for i in _order(len(words), example, number))
    return re.sub(SPACED, lambda _: next(moved), text)


def _order(count: int, example: int, number: int) -> NDArray[np.int64]:
    """Return the number of the word that stands at each place in the new order of `count` words."""
    chance = uniforms(derive(0, "shuffled text"), np.array([example]), np.array([number]), np.arange(count))
    circle = np.argsort(chance, kind="stable")
    order = np.empty(count, dtype=np.int64)
    order[circle] = np.roll(circle, -1)  # each place gets the next word on the circle
    return order


Said = Mapping[str, list[Any]]
"""Answers to the test examples, by the order of their words: `natural` and `shuffled`."""


def rows(readings: Readings, settings: TransferSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `frozen_features` or of `fine_tuning` of one task for a run."""
    name = settings.task_name
    return transfer_rows(
        readings.objective,
        readings.tokens.tokenizer,
        all_examples(name, source_of(readings, settings)),
        settings,
        max_length=readings.objective.run.data.max_length,
        say=say,
        frozen=readings.shared(name, lambda: FrozenStates(readings.objective)),
        counts_V=readings.tokens.source_counts_V,
    )


def transfer_rows(
    objective: Objective,
    tokenizer: Tokenizer,
    splits: Mapping[Split, Examples],
    settings: TransferSettings,
    *,
    max_length: int,
    say: Say,
    frozen: FrozenStates | None = None,
    counts_V: NDArray[np.int64] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the scores of one task, by frozen features or by fine-tuning, as the settings say. The objective
    stays as it is.

    `score` is the task's own metric. If it is another metric, classes also have `accuracy`, and numbers
    `spearman`. Spans always have `exact_match`. `shuffled_score` is the same head's `score` on the test texts
    with their words in another order. Spans do not have it, because in another order they are no spans. The
    learning curve is the `score` of groups TASK@EXAMPLES. The chance level (`floor`) is `metrics.chance`.

    For every point of the learning curve, the epoch is chosen on the whole validation part, and the learning
    rate with all training examples. So the curve shows what the examples of a point teach the weights, not the
    score of somebody who has no other examples.

    Args:
        say: called with a line for each epoch. It may raise an error to stop.
        frozen: states of the encoder that other measures of the task read as well. Missing states are added
            to it.
        counts_V: how often each id occurs in the training text. Without it predictions are not kept.

    Raises:
        MeasureError: the loss or the score on the validation part is no longer a number.
    """
    task = settings.task
    frozen = frozen or FrozenStates(objective)
    transfer = _Transfer(objective, tokenizer, splits, settings, max_length=max_length, say=say, frozen=frozen)
    first = {rate: transfer.train(0, transfer.train_size, rate) for rate in settings.rates}
    rate = max(first, key=lambda rate: first[rate].score)
    others = (
        transfer.train(repetition, transfer.train_size, rate) for repetition in range(1, settings.repetitions)
    )
    # Each training is tested before the next one begins, and no weights stay in memory after that.
    answers = [transfer.tested(first.pop(rate))]
    first.clear()
    answers += (transfer.tested(trained) for trained in others)
    for metric in task.transfer_metrics:
        yield transfer.row(metric, task.name, answers)
    if settings.predictions and counts_V is not None:
        yield {"predictions": transfer.predictions(answers, counts_V)}
    if settings.learning_curve:  # the last point of the curve
        yield transfer.row("score", f"{task.name}@{transfer.train_size}", answers)
    for count in sorted({count for count in settings.learning_curve if count < transfer.train_size}):
        curve = (transfer.train(repetition, count, rate) for repetition in range(settings.repetitions))
        yield transfer.row("score", f"{task.name}@{count}", [transfer.tested(trained) for trained in curve])


class _Transfer:
    """Transfer of an encoder to a task: what all its trainings share."""

    def __init__(
        self,
        objective: Objective,
        tokenizer: Tokenizer,
        splits: Mapping[Split, Examples],
        settings: TransferSettings,
        *,
        max_length: int,
        say: Say,
        frozen: FrozenStates,
    ) -> None:
        self.settings, self.task, self.say, self.tokenizer = settings, settings.task, say, tokenizer
        examples = {split: part(splits[split], settings, split) for split in SPLITS}

        def read(of_split: Examples) -> Texts:
            return texts_of(self.task, of_split, tokenizer, max_length=max_length)

        self.texts = {split: read(of_split) for split, of_split in examples.items()}
        self.right = {split: texts.examples.right for split, texts in self.texts.items()}
        self.order = shuffled(examples["test"]) if self.task.kind != "span" else None
        self.moved = read(self.order.examples) if self.order is not None else None
        tuned = TunedStates(objective) if isinstance(settings, FineTuningSettings) else None
        self.states: States = tuned or frozen
        self.answers = answers_of(self.task, self.texts["train"])
        # Before any training both have the same states, unless the precision differs.
        self.scale = scale_of(tuned if tuned and tuned.mixed else frozen, self.texts["train"])

    @property
    def train_size(self) -> int:
        """Number of training examples."""
        return len(self.texts["train"])

    def trainee(self, repetition: int) -> Trainee:
        """Return a new head, with the encoder as pre-training left it."""
        self.states.restart()
        head = Head(self.scale, self.answers.outputs, seed=repetition)
        return Trainee(self.states, head, self.answers)

    def train(self, repetition: int, count: int, rate: float) -> Trained:
        """Train on `count` examples, and return the weights of the best epoch."""
        index_M = drawn(derive(repetition, "learning curve"), self.train_size, count)
        name = f"{self.task.name}, {len(index_M):,} examples, repetition {repetition + 1}"
        if len(self.settings.rates) > 1:
            name += f", learning rate {rate:g}"
        settings = self.settings
        recipe = Recipe(settings.epochs_wanted, rate, settings.least_steps, repetition, name)
        return train(
            self.trainee(repetition),
            self.texts["train"],
            index_M,
            recipe,
            score=lambda trainee: score(
                self.task, trainee.answers_to(self.texts["validation"]), self.right["validation"]
            ),
            say=self.say,
        )

    def tested(self, trained: Trained) -> Said:
        """Return the answers of a trained head to the test texts, and to these texts with their words in
        another order."""
        trainee = self.trainee(0)
        trainee.load_state_dict(trained.weights)
        natural = trainee.answers_to(self.texts["test"])
        if self.moved is None or self.order is None:
            return {"natural": natural}
        moved = trainee.answers_to(self.moved)
        return {
            "natural": natural,
            "shuffled": natural_order(moved, self.order.place) if self.task.kind == "tagging" else moved,
        }

    def predictions(self, repetitions: Sequence[Said], counts_V: NDArray[np.int64]) -> DataFrame:
        """Return the predictions for the test examples, from the answers in each repetition."""
        examples, said_SN = self.texts["test"].examples, [answers["natural"] for answers in repetitions]
        return predictions(
            examples,
            task=self.task.name,
            metric=points_metric(self.task),
            points_N=np.mean([points_of(self.task, said_N, self.right["test"]) for said_N in said_SN], axis=0),
            weight_N=None if examples.words is None else [len(words) for words in examples.words],
            answers_RN=said_SN,
            tokenizer=self.tokenizer,
            counts_V=counts_V,
        )

    def row(self, metric: str, group: str, repetitions: Sequence[Said]) -> dict[str, Any]:
        """Return the row of one metric, from the answers in each repetition."""
        right_N = self.right["test"]
        said_SN = [answers["shuffled" if metric == "shuffled_score" else "natural"] for answers in repetitions]
        task = self.task
        if metric not in ("score", "shuffled_score"):
            task = replace(task, metric=cast(Metric, metric))
        metric_of = partial(score, task)

        def mean_of(index_M: Sequence[int]) -> float:
            right_M = [right_N[i] for i in index_M]
            return float(np.mean([metric_of([said_N[i] for i in index_M], right_M) for said_N in said_SN]))

        value_S = np.array([metric_of(said_N, right_N) for said_N in said_SN])
        over_examples = _errors_over_examples(mean_of, self.texts["test"].examples.cluster or range(len(right_N)))
        of_heads = value_S.var(ddof=1) / len(value_S) if len(value_S) > 1 else 0.0
        return {
            "metric": metric,
            "group": group,
            "value": float(value_S.mean()),
            "floor": chance(task, self.texts["test"].examples),
            "unit": "",
            "n": len(right_N),
            **over_examples,
            "standard_error": float(np.sqrt(of_heads + over_examples["standard_error"] ** 2)),
        }


def _errors_over_examples(statistic: Callable[[Sequence[int]], float], cluster_N: Sequence[Any]) -> dict[str, Any]:
    """Return the error of a number that is computed from examples, as the cells of a row; NaN for fewer than
    two clusters.

    Args:
        cluster_N: the cluster of each example. Only examples of different clusters are independent.
    """
    number = {cluster: i for i, cluster in enumerate(dict.fromkeys(cluster_N))}
    groups = min(BLOCKS, len(number))
    group_C = np.random.default_rng(derive(0, "groups of test examples")).permutation(len(number)) % groups
    group_N = group_C[[number[cluster] for cluster in cluster_N]]
    without = [np.flatnonzero(group_N != group).tolist() for group in range(groups)]
    return errors([statistic(index_M) for index_M in without if index_M])
