"""Runs as models of lm-eval, the Language Model Evaluation Harness: `python -m ablations.lm_eval`.

This is the command `lm_eval` with all its options and one more model:

    python -m ablations.lm_eval --model pretraining_ablations --model_args run=out/runs/mlm-s0-... --tasks blimp

lm-eval does not find models of other packages by itself, so plain `lm_eval` does not know this one. In Python
`import ablations.lm_eval` is enough.
"""

import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ablations.errors import MeasureError
from ablations.tasks.language_models.sentence_scores import (
    TOKENS_AT_ONCE,
    Pieces,
    Scores,
    alike,
    pieces_of,
    sentence_scores,
)
from ablations.wording import listed, several
from lightning_modules.errors import AblationsError
from lightning_modules.objectives import build
from lightning_modules.training.checkpoint import load_weights
from lightning_modules.training.data_module import load_tokens
from lightning_modules.training.run_directory import RunDirectory

try:
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ModuleNotFoundError as error:
    raise SystemExit(
        "ablations.lm_eval needs lm-eval, which is not installed; install the extra [lm-eval]."
    ) from error


@register_model("pretraining_ablations")
class TrainedRun(LM):
    """Trained run as a language model of lm-eval, with the scores of minimal pairs (`sentence_scores`).

    A context and its continuation are cut into pieces as one text. White space before the context is dropped;
    white space after it belongs to the continuation. The pieces of the continuation are scored, including a
    piece that reaches over the border. Without a context the continuation is a sentence, as in minimal pairs,
    and a causal LM scores END too. If the same sentences are scored in one call, the scores are the same to
    the last digit, whatever their order.

    A context that is too long loses its beginning. A text of `loglikelihood_rolling` that is too long is read
    in windows of equal length. The last window scores only the pieces that the others did not score. END is
    scored once.

    Batches have as many tokens as in minimal pairs, whatever `--batch_size` says.
    """

    def __init__(
        self,
        run: str | None = None,
        step: int | None = None,
        score: str = "main",
        device: str | None = None,
        batch_size: Any = None,
        max_batch_size: Any = None,
        **others: Any,
    ) -> None:
        """Load a run.

        Args:
            run: folder of the run.
            step: step of a checkpoint that was kept. By default the last checkpoint; then the run must be
                done.
            score: `main`, `within_word` or `left_to_right` (see `Scores`).
            device: cpu or cuda, also with a number, as in cuda:1. Without a GPU it is always the CPU.
            batch_size: has no effect. lm-eval gives it to every model.
            max_batch_size: has no effect either.

        Raises:
            MeasureError: an argument is wrong, or the objective gives no probability to a sentence.
            CheckpointError: the checkpoint is missing or damaged.
            RunDirectoryError: the folder is not that of a run.
        """
        super().__init__()
        if others or not run:
            wrong = f"has {next(iter(others))}" if others else "lacks run"
            raise MeasureError(
                f"--model_args {wrong}, expected run=FOLDER and, if needed, step=N and score=NAME; correct it, "
                """or write --model_args '{"run": "FOLDER"}' if the name of the folder has a comma."""
            )
        directory = RunDirectory(Path(str(run)).absolute())  # lm-eval turns a name of digits into a number
        settings = directory.settings()
        tokens = load_tokens(directory, data_root=Path())
        self._objective = build(settings, tokens)
        _require_score(score, sentence_scores(self._objective, []), kind=settings.objective.kind, where=run)
        checkpoint = _checkpoint(directory, step, settings.training.max_steps)
        self._device = _device(device)
        self._step = load_weights(self._objective, checkpoint)
        self._objective.to(self._device)
        self._score, self._directory = score, directory
        self._tokenizer, self._room = tokens.tokenizer, settings.data.max_length - 2  # START and END

    def get_model_info(self) -> dict[str, Any]:
        """Return the facts about the model that lm-eval writes into its results."""
        description = self._directory.description()
        about = {name: description[name] for name in ("run_id", "arm", "seed")}
        return about | {"objective": self._objective.run.objective.kind, "step": self._step, "score": self._score}

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Return the score in nats of each continuation after its context, and whether each of its pieces is the
        most probable one at its place.

        Raises:
            MeasureError: a continuation is longer than the run can read.
        """
        texts = [_spaced(context + continuation) for context, continuation in _arguments(requests)]
        given = [len(_spaced(context)) for context, _ in _arguments(requests)]
        whole = pieces_of(texts, self._tokenizer, given=given)
        cut = sum(len(pieces.ids_P) > self._room for pieces in whole)
        fitting = [self._fitting(pieces, of) for pieces, of in zip(whole, requests, strict=True)]
        if cut:
            logging.getLogger(__name__).warning(
                "%s of %d lost the beginning, because the run reads at most %d pieces at once.",
                *(several(cut, "context"), len(requests), self._room),
            )
        scored: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        for numbers, nats, is_best in self._scored(fitting):
            for i, result in zip(numbers, zip(nats, is_best, strict=True), strict=True):
                scored[i] = result
                self.cache_hook.add_partial("loglikelihood", requests[i].args, result)
        return scored

    def loglikelihood_rolling(self, requests: Sequence[Instance]) -> list[float]:
        """Return the score of each text, in nats."""
        texts = [_spaced(text) for (text,) in _arguments(requests)]
        windows = [self._windows(pieces) for pieces in pieces_of(texts, self._tokenizer)]
        text_of = np.repeat(np.arange(len(texts)), [len(parts) for parts in windows])
        total = np.zeros(len(texts))
        for numbers, nats, _ in self._scored([part for parts in windows for part in parts]):
            np.add.at(total, text_of[numbers], nats)
        return [float(score) for score in total]

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Raise a MeasureError, because these models generate nothing."""
        raise MeasureError(
            f"{requests[0].task_name}: its output_type is generate_until, but pretraining_ablations generates "
            f"nothing; leave the task out, or write a causal LM with `ablate export` and take --model hf."
        )

    def _fitting(self, pieces: Pieces, request: Instance) -> Pieces:
        """Return a text without the beginning of its context if the run cannot read the whole text."""
        excess = max(0, len(pieces.ids_P) - self._room)
        if excess > pieces.given:
            raise MeasureError(
                f"{request.task_name}: a continuation has {len(pieces.ids_P) - pieces.given} pieces, but the "
                f"run reads at most {self._room} at once (data.max_length without START and END); leave the "
                "task out."
            )
        return pieces._replace(
            ids_P=pieces.ids_P[excess:], word_P=pieces.word_P[excess:], given=pieces.given - excess
        )

    def _windows(self, pieces: Pieces) -> list[Pieces]:
        """Return a text as windows that the run can read. Together they score each piece once."""
        P = len(pieces.ids_P)
        stops = [*range(self._room, P, self._room), P]
        starts = [max(0, stop - self._room) for stop in stops]
        return [
            Pieces(pieces.ids_P[start:stop], pieces.word_P[start:stop], given=before - start, ends=stop == P)
            for start, stop, before in zip(starts, stops, [0, *stops], strict=False)
        ]

    def _scored(self, pieces: Sequence[Pieces]) -> Iterator[tuple[list[int], list[float], list[bool]]]:
        """Yield the indices of texts that are scored together, their scores, and their `Score.is_best_S`."""
        with tqdm(total=len(pieces), desc="Scoring texts") as bar:
            for numbers in alike(pieces):
                score = getattr(sentence_scores(self._objective, [pieces[i] for i in numbers]), self._score)
                yield numbers.tolist(), score.nats_S.tolist(), score.is_best_S.tolist()
                bar.update(len(numbers))


def _spaced(text: str) -> str:
    """Return a text with single spaces, as training read it."""
    return " ".join(text.split())


def _arguments(requests: Sequence[Instance]) -> list[tuple[str, ...]]:
    return [request.args for request in requests]


def _require_score(name: str, scores: Scores | None, *, kind: str, where: str) -> None:
    """Raise a MeasureError if the objective does not have the score."""
    if scores is None:
        raise MeasureError(
            f"{where}: objective.kind is {kind}, which gives no probability to a sentence; name a run of "
            "masked_lm, causal_lm or mixture."
        )
    names = [each for each, score in scores._asdict().items() if score is not None]
    if name not in names:
        raise MeasureError(f"{where}: {kind} has no score {name}, expected {listed(names)}; correct --model_args.")


def _checkpoint(directory: RunDirectory, step: int | None, max_steps: int) -> Path:
    """Return the checkpoint of a step; without a step the last one of a run that is done."""
    kept = directory.kept_checkpoints()
    steps = f"steps kept: {', '.join(map(str, kept)) or 'none'}"
    if step is None:
        state = directory.state()
        if state.state != "done":
            raise MeasureError(
                f"{directory.path}: the run is {state.state} at step {state.step or 0} of {max_steps}; finish "
                f"it with `ablate run`, or name a checkpoint with step=N in --model_args ({steps})."
            )
        return directory.last_checkpoint
    if step not in kept:
        raise MeasureError(f"{directory.path} has no checkpoint of step {step} ({steps}); name another step.")
    return kept[step]


def _device(name: str | None) -> torch.device:
    """Return the device of that name; the CPU if there is no GPU (lm-eval's default is cuda:0)."""
    device = name or "cuda"
    kind = device.partition(":")[0]
    if kind not in TOKENS_AT_ONCE:
        raise MeasureError(f"--device is {device}, expected {listed(list(TOKENS_AT_ONCE))}; give one of these.")
    return torch.device(device if kind == "cpu" or torch.cuda.is_available() else "cpu")


def main() -> None:
    """Run lm-eval. Errors that a user can act on are printed as one sentence, as with `ablate`."""
    try:
        cli_evaluate()
    except AblationsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
