"""Information that probes read from each layer: about its token, about its neighbours and about what it
predicts.

Numbers are in nats, on held-out sentences. Information by k-means (`information/estimate.py`) is about the
geometry of the states: it is small if the label has a small share of their variance, even if every state
determines its label. A probe finds such a label.

Letters: N occurrences, D width, L + 1 layers, F folds, G blocks, V labels.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.information.estimate import blocks_of
from ablations.measures.information.plug_in import Labels, as_labels, entropy, require_equal_lengths
from ablations.measures.information.probes import (
    Examples,
    Probe,
    Whitening,
    fit_linear,
    fit_mlp,
    log_answers,
    log_frequencies,
)
from ablations.measures.jackknife import errors
from ablations.measures.reading.sample import Sample
from ablations.measures.reading.texts import Readings, Say, Texts
from ablations.measures.settings import ReadOutSettings
from ablations.measures.similarity.sides import Matrix, as_matrix, to_device
from ablations.measures.token_information import (
    LayerQuestion,
    Question,
    StatesOf,
    each_layer,
    questions_of,
    rows_of_run,
)
from lightning_modules.config import RunSettings
from lightning_modules.config.objectives import Output


def rows(readings: Readings, settings: ReadOutSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `read_out` of a run from its validation text."""
    return rows_of_run(read_out_rows, readings, settings)


def require(settings: ReadOutSettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if the text has too few sentences."""
    sample = texts.validation(settings).sample
    _require_enough(questions_of(sample, settings, run.objective.output), sample)


def read_out_rows(
    states_LND: list[NDArray[np.float32]],
    sample: Sample,
    settings: ReadOutSettings,
    *,
    output: Output = None,
    seed: int = 0,
    normed_ND: NDArray[np.float32] | None = None,
    states_of: StatesOf | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows `linear` and `mlp` of each layer for the tokens in `settings.about`, in the groups of
    `token_information`.

    The chance level (`floor`) has the labels shuffled among the occurrences. The ceiling is the entropy of
    the labels. The error over the text (`standard_error`, `left_out`) is for the same probes on another text.
    It does not include how the probes would change with the text.

    Args:
        output: which token the encoder's output predicts. None: no rows about the output.
        seed: seed of the run. It draws folds, probes and shuffles, which are the same in all layers and arms.
        normed_ND: the top layer after the encoder's final norm, for the rows of that group.
        states_of: reads the text with some tokens replaced. Masked LM's output needs it.

    Raises:
        MeasureError: too few sentences, or as `questions_of`.
    """
    questions = questions_of(sample, settings, output)
    _require_enough(questions, sample)
    for question in each_layer(
        questions, states_LND, sample, types=settings.types, normed_ND=normed_ND, states_of=states_of
    ):
        yield from _layer_rows(question, seed=seed)


def _layer_rows(question: LayerQuestion, *, seed: int) -> Iterator[dict[str, Any]]:
    information = read_out(to_device(question.states_ND), question.label_N, question.sentence_N, seed=seed)
    for metric, probe in information._asdict().items():
        yield {
            "metric": metric,
            "group": question.group,
            "layer": question.layer,
            "value": probe.value,
            "floor": probe.floor,
            "ceiling": entropy(question.label_N),
            **errors(probe.left_out),
            "unit": "nats",
            "n": len(question.label_N),
            "d": question.states_ND.shape[1],
        }


def _require_enough(questions: list[Question], sample: Sample) -> None:
    for question in questions:
        require_sentences(sample.sentence_N[question.place_N])


FOLDS = 3
"""Number of parts of the sentences. Each part is scored by probes that were fitted on the others."""

STOPPING = 8
"""One in this many of a probe's sentences is not fitted on but decides when fitting stops."""

FEWEST_SENTENCES = 2 * FOLDS
"""Smallest number of sentences that leaves each fold some to fit on and some to stop by."""


class ReadInformation(NamedTuple):
    """Information that one kind of probe reads, in nats. It is not clipped at 0."""

    value: float
    floor: float
    """Chance level: the value with the labels shuffled among the tokens, where the true information is 0."""
    left_out: list[float]
    """The value without block 0, without block 1, ... of the text, with the same probes."""


class ReadOut(NamedTuple):
    """Information that each kind of probe reads."""

    linear: ReadInformation
    mlp: ReadInformation


def read_out(states_ND: Matrix, labels_N: Labels, sentences_N: Labels, *, seed: int) -> ReadOut:
    """Return what a linear probe and a probe with a hidden layer read from states about labels, in nats.

    Sentences are split at random into three folds. Probes of a fold are scored on it and fitted on the
    sentences of the other folds. One in eight of these sentences only decides when to stop. Let q(t|x) be the
    probe's answer (`log_answers`), and t_i, x_i the n labels and states that it is scored on. Then a fold's
    number is the mean over i of log q(t_i|x_i) / r(t_i), where r(t) is the mean of q(t|x_i) over i. This is
    the cross-entropy of the labels without the states, minus that with them. Folds are weighted by their
    tokens.

    By the argument at `cross_fitted` its expectation is no larger than the mutual information of label and
    state. It is at most the entropy of the labels, and 0 for a probe that makes no use of the states. It
    excludes what such a probe cannot read, or cannot learn from this number of tokens.

    Equal seeds and sentences give equal folds, orders and shuffles, so layers and arms differ only by their
    states. An invertible linear map of the states changes the number by the noise of the fit alone: with 6,000
    tokens by up to about .005 nats for the linear probe and .02 for the other. States on a GPU are probed there.

    Raises:
        MeasureError: arguments that are unfit or of unequal lengths, or fewer than six sentences.
    """
    states_ND = as_matrix(states_ND, name="states", single=True)
    labels_N, sentences_N = as_labels(labels_N, name="labels"), as_labels(sentences_N, name="sentences")
    require_equal_lengths(states=states_ND, labels=labels_N, sentences=sentences_N)
    split, shuffle = np.random.default_rng(seed).spawn(2)
    fold_N, is_stopping_N = folds(sentences_N, rng=split)
    block_N = blocks_of(sentences_N)
    shuffled_N = shuffle.permutation(labels_N)
    scores: dict[str, list[_Score]] = {"linear": [], "mlp": [], "linear floor": [], "mlp floor": []}
    for fold in range(FOLDS):
        others_N = fold_N != fold
        parts = [_index(part_N, states_ND) for part_N in (others_N & ~is_stopping_N, others_N & is_stopping_N)]
        x_NK = Whitening.of(states_ND[parts[0]])(states_ND)
        for name, numbers_N in (("", labels_N), (" floor", shuffled_N)):
            label_N = torch.from_numpy(numbers_N).to(states_ND.device)
            fitted, stopping = (Examples(x_NK[part_N], label_N[part_N]) for part_N in parts)
            labels = int(labels_N.max()) + 1
            linear = fit_linear(fitted, stopping, labels=labels, seed=seed)
            mlp = fit_mlp(linear, fitted, stopping, seed=seed)
            guess_V = log_frequencies(fitted.label_N, labels)
            blocks = [_index(~others_N & (block_N == block), states_ND) for block in range(block_N.max() + 1)]
            for kind, probe in (("linear", linear), ("mlp", mlp)):
                scores[kind + name].append(_Score.of(probe, x_NK, label_N, blocks, guess_V=guess_V))

    def read(kind: str) -> ReadInformation:
        left_out = [_information(scores[kind], without=block) for block in range(block_N.max() + 1)]
        return ReadInformation(_information(scores[kind]), _information(scores[f"{kind} floor"]), left_out)

    return ReadOut(read("linear"), read("mlp"))


def folds(sentences_N: Labels, *, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the fold of each token, from 0, and whether its sentence decides when fitting stops.

    Sentences are split whole and at random. A sentence that stops the fitting does so for the probes of the
    other folds.

    Raises:
        MeasureError: fewer than six sentences.
    """
    sentences_N = as_labels(sentences_N, name="sentences")
    require_sentences(sentences_N)
    place_N = rng.permutation(int(sentences_N.max()) + 1)[sentences_N]
    return place_N % FOLDS, place_N // FOLDS % STOPPING == 0


def require_sentences(sentences_N: Labels) -> None:
    """Raise a MeasureError if there are fewer than six sentences, which are too few for probes."""
    sentences = len(np.unique(sentences_N))
    if sentences < FEWEST_SENTENCES:
        raise MeasureError(
            f"probes need at least {FEWEST_SENTENCES} sentences (they learn from some and are scored on "
            f"others), but the text has {sentences}; use more text."
        )


class _Score(NamedTuple):
    """Predictions of a probe for the tokens of a fold."""

    tokens_G: np.ndarray
    log_q_G: np.ndarray
    """Sum of the log probabilities of the labels of a block's tokens."""
    count_GV: np.ndarray
    log_sum_GV: np.ndarray
    """Log of the sum of the probabilities of each label over a block's tokens."""

    @classmethod
    @torch.no_grad()
    def of(cls, probe: Probe, x_NK: Tensor, label_N: Tensor, blocks: list[Tensor], *, guess_V: Tensor) -> "_Score":
        tokens, sums, counts, log_sums = [], [], [], []
        for place_B in blocks:
            log_q_BV = log_answers(probe, x_NK[place_B], guess_V)
            label_B = label_N[place_B]
            tokens.append(len(place_B))
            sums.append(log_q_BV.gather(1, label_B[:, None]).sum().item())
            counts.append(label_B.bincount(minlength=log_q_BV.shape[1]).cpu().numpy())
            # Logs are kept, because a probability may be too small for a float.
            log_sums.append(log_q_BV.logsumexp(0).cpu().numpy())
        return cls(np.array(tokens), np.array(sums), np.stack(counts), np.stack(log_sums))


def _information(scores: list[_Score], without: int | None = None) -> float:
    """Return the information in all blocks, or in all but one; NaN if no token is left."""
    total = tokens = 0.0
    for score in scores:
        kept_G = np.arange(len(score.tokens_G)) != without
        if not score.tokens_G[kept_G].any():
            continue
        n = score.tokens_G[kept_G].sum()
        log_r_V = np.logaddexp.reduce(score.log_sum_GV[kept_G]) - np.log(n)
        count_V = score.count_GV[kept_G].sum(0)
        total += score.log_q_G[kept_G].sum() - count_V[count_V > 0] @ log_r_V[count_V > 0]
        tokens += n
    return float(total / tokens) if tokens else float("nan")


def _index(chosen_N: np.ndarray, states_ND: Tensor) -> Tensor:
    return torch.from_numpy(np.flatnonzero(chosen_N)).to(states_ND.device)
