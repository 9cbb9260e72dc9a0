"""Training of a head, with the encoder or on frozen states, by the same loop, order of examples and initial
head.

The recipe is RoBERTa's on GLUE (Liu et al. 2019, section 5.1): the best of 10 epochs on the validation part
is kept, and the learning rate warms up and then decays linearly. As in BERT, batches have 32 examples, weight
decay is 0.01 (none on biases and norms), gradients are clipped at norm 1, and warm-up is a tenth (Devlin et
al. 2019, appendix A.3, and google-research/bert). Small encoders need higher learning rates: Turc et al. 2019
try 3e-5 to 3e-4, ELECTRA-Small takes 3e-4 (Clark et al. 2020, appendix B), and encoders here are smaller
still. The head starts from random weights and always learns at `HEAD_LEARNING_RATE`. Dropout is the encoder's.

Where we differ: few examples are shown more often, until there are `least_steps` steps, because ten epochs of
ten examples teach next to nothing (Zhang et al. 2021, "Revisiting Few-sample BERT Fine-tuning", section 6).
And batches hold texts of similar length.

Letters: B examples of a batch, M examples that are learned from, N items, O outputs.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ablations.errors import MeasureError
from ablations.measures.reading.texts import Say
from ablations.tasks.transfer.heads import Answers, Head, States, Texts
from lightning_modules.config import TrainingSettings
from lightning_modules.model.numerics import bf16_products
from lightning_modules.objectives.optimizer import learning_rate_factor
from lightning_modules.randomness import derive, uniforms

BATCH = 32
HEAD_LEARNING_RATE = 1e-2
"""Learning rate of a head, a linear map of scaled features. With a tenth of it the head falls short of what a
logistic regression reads from the same frozen states, and fine-tuning is worse too."""
WEIGHT_DECAY = 0.01
WARMUP = 0.1
CLIPPED_AT = 1.0

SORTED_BATCHES = 16
"""Number of batches whose texts are sorted by length together."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """Recipe of a training: the settings in which trainings differ."""

    epochs: int
    """Number of epochs, after each of which the validation part is scored. An epoch is one pass over the
    examples, or more if they are few."""
    learning_rate: float
    """Highest learning rate of the encoder."""
    least_steps: int
    """Smallest number of steps. A shorter training makes more passes."""
    repetition: int
    """Number of the repetition. It seeds the order of examples and dropout."""
    name: str
    """Name of the training in messages."""


class Trained(NamedTuple):
    """Weights of the best epoch of a training."""

    score: float
    """Score on the validation part."""
    weights: dict[str, Tensor]
    """Weights of the head and of the modules trained with it."""


class Trainee(nn.Module):
    """Head and the source of its features: weights that are trained together."""

    def __init__(self, states: States, head: Head, answers: Answers) -> None:
        super().__init__()
        self._states, self.answers = states, answers
        self.parts = nn.ModuleDict({"head": head, **states.trained})

    def outputs(self, texts: Texts, index_B: Integers) -> Tensor:
        return self.parts["head"](self._states.of(texts, index_B))

    @torch.no_grad()
    def answers_to(self, texts: Texts) -> list[Any]:
        """Return the answers to all examples by the present weights."""
        self.eval()
        output_NO = np.empty((texts.bounds_E[-1], self.answers.outputs), np.float32)
        for index_B in texts.rows.by_length():
            output_NO[texts.items(index_B)] = self.outputs(texts, index_B).float().cpu().numpy()
        parts = np.split(output_NO, texts.bounds_E[1:-1])
        return [self.answers.answer(output_KO, texts, i) for i, output_KO in enumerate(parts)]


def train(
    trainee: Trainee,
    texts: Texts,
    index_M: Integers,
    recipe: Recipe,
    *,
    score: Callable[[Trainee], float],
    say: Say,
) -> Trained:
    """Train from the present weights, and return those of the best epoch.

    The examples of each step depend only on the repetition and the examples, never on the encoder. Dropout is
    seeded by the repetition.

    Args:
        index_M: the examples to learn from. Those whose answer was cut off are left out.
        score: gives the score on the validation part. Ties go to the earliest epoch.
        say: called with a line for each epoch. It may raise an error to stop.

    Raises:
        MeasureError: the loss or the score is no longer a number, or all answers were cut off.
    """
    target = {i: right for i in index_M.tolist() if (right := trainee.answers.target(texts, i)) is not None}
    if not target:
        raise MeasureError(
            f"the answers of all training examples ({len(index_M):,}) were cut off, because they come after "
            "data.max_length tokens; raise data.max_length, or leave the task out."
        )
    kept_M = np.array(list(target), dtype=np.int64)
    per_pass = -(-len(kept_M) // BATCH)
    passes = max(recipe.epochs, -(-recipe.least_steps // per_pass))
    stepper = _Stepper(trainee, recipe.learning_rate, steps=passes * per_pass)
    best = Trained(-np.inf, {})
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(derive(recipe.repetition, "dropout"))
        for number in range(passes):
            trainee.train()
            order = batches(kept_M, texts.characters_E[kept_M], derive(recipe.repetition, "order", number))
            losses = [stepper.step(texts, index_B, [target[i] for i in index_B.tolist()]) for index_B in order]
            if not torch.isfinite(torch.stack(losses)).all():
                raise _diverged("loss", recipe)
            epoch = (number + 1) * recipe.epochs // passes
            if epoch > number * recipe.epochs // passes:
                reached = score(trainee)
                say(f"{recipe.name}, epoch {epoch} of {recipe.epochs}: {reached:.3f} on the validation part")
                if reached > best.score:
                    best = Trained(reached, {name: x.clone() for name, x in trainee.state_dict().items()})
    if not best.weights:  # no epoch had a number
        raise _diverged("score on the validation part", recipe)
    return best


def batches(index_M: Integers, length_M: Integers, seed: int) -> Iterator[Integers]:
    """Yield all examples once, in batches whose examples have similar lengths. The batches come in random order;
    the examples of a batch are sorted by length."""
    order_M = np.argsort(uniforms(seed, np.arange(len(index_M))), kind="stable")
    in_length_order: list[Integers] = []
    for first in range(0, len(order_M), SORTED_BATCHES * BATCH):
        alike = order_M[first : first + SORTED_BATCHES * BATCH]
        alike = alike[np.argsort(length_M[alike], kind="stable")]
        in_length_order += [index_M[alike[i : i + BATCH]] for i in range(0, len(alike), BATCH)]
    for i in np.argsort(uniforms(derive(seed, "batches"), np.arange(len(in_length_order))), kind="stable"):
        yield in_length_order[i]


class _Stepper:
    """Optimiser and learning rates of one training."""

    def __init__(self, trainee: Trainee, learning_rate: float, *, steps: int) -> None:
        groups: list[dict[str, Any]] = []
        for name, part in trainee.parts.items():
            rate = HEAD_LEARNING_RATE if name == "head" else learning_rate
            matrices = [parameter for parameter in part.parameters() if parameter.ndim >= 2]
            rest = [parameter for parameter in part.parameters() if parameter.ndim < 2]
            groups.append({"params": matrices, "lr": rate, "weight_decay": WEIGHT_DECAY})
            groups.append({"params": rest, "lr": rate, "weight_decay": 0.0})
        self._trainee = trainee
        self._optimizer = torch.optim.AdamW(groups, eps=1e-6, fused=True)
        schedule = TrainingSettings(schedule="linear", max_steps=steps, warmup_steps=round(WARMUP * steps))
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: learning_rate_factor(step, schedule)
        )

    def step(self, texts: Texts, index_B: Integers, target: Sequence[Tensor]) -> Tensor:
        """Take a step on a batch; return its loss before the step."""
        output_NO = self._trainee.outputs(texts, index_B)
        target_N = torch.cat(list(target)).to(output_NO.device)
        loss = self._trainee.answers.loss(output_NO, target_N, torch.from_numpy(texts.counts_E[index_B]))
        self._optimizer.zero_grad()
        with bf16_products(output_NO.device.type):
            torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._trainee.parameters(), CLIPPED_AT)
        self._optimizer.step()
        self._schedule.step()
        return loss.detach()


def _diverged(number: str, recipe: Recipe) -> MeasureError:
    return MeasureError(
        f"the {number} became NaN or infinite ({recipe.name}); give lower learning_rates, or check whether the "
        "run itself diverged."
    )
