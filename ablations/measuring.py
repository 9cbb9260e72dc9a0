"""From a run's last checkpoint to its rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pandas as pd
import torch

from ablations.errors import MeasureError
from ablations.measured import key, missing, put
from ablations.measures.information import most_frequent, token_information
from ablations.measures.layer_change import layer_change
from ablations.measures.sample import Sample, first_tokens
from ablations.measures.settings import LayerChangeSettings, Measure, TokenInformationSettings, ValidationSettings
from ablations.measures.states import layer_states
from ablations.measures.validation import validation
from lightning_modules.checkpoint import read_checkpoint
from lightning_modules.data.tokens import Tokens
from lightning_modules.objective import Objective
from lightning_modules.objectives import build
from lightning_modules.run_directory import RunDirectory

Say = Callable[[str], None]


def measure(
    directory: RunDirectory, tokens: Tokens, measures: Sequence[Measure], *, say: Say, again: bool = False
) -> None:
    """Compute what is missing (or, `again`, all) from the run's last checkpoint into `measures.parquet`.

    Each measure is written when it is ready, so a kill loses one measure at most, and old rows stay until
    new ones replace them.

    Raises:
        MeasureError: the text or the width does not allow a measure; the other measures are there all the same.
        CheckpointError: the checkpoint is missing or damaged.
    """
    todo = list(measures) if again else missing(directory.path, measures)
    if not todo:
        return
    objective, step = load(directory, tokens)
    states: dict[str, Any] = {}
    refused: list[str] = []
    for settings in todo:
        say(f"measuring {settings.kind}")
        try:
            rows, sample = rows_of(objective, tokens, settings, states)
        except MeasureError as error:
            refused.append(f"{settings.kind}: {error}")
            continue
        frame = pd.DataFrame(rows).assign(measure=settings.kind, step=step, key=key(settings), sample=sample)
        put(directory.path, frame)
    if refused:
        raise MeasureError(" ".join(refused))


def load(directory: RunDirectory, tokens: Tokens) -> tuple[Objective, int]:
    """A trained run's module in evaluation mode, on the GPU if there is one, and the step it stands at."""
    objective = build(directory.settings(), tokens)
    checkpoint = read_checkpoint(directory.last_checkpoint)
    objective.load_state_dict(checkpoint["state_dict"])
    return objective.to("cuda" if torch.cuda.is_available() else "cpu").eval(), checkpoint["global_step"]


def rows_of(
    objective: Objective, tokens: Tokens, settings: Measure, states: dict[str, Any]
) -> tuple[list[dict[str, Any]], str | None]:
    """The rows of one measure, and the digest of the sample it read; `states` keeps that sample's for the next."""
    if isinstance(settings, ValidationSettings):
        return list(validation(objective, tokens, settings)), None
    sample = first_tokens(tokens.validation, settings.tokens)
    if sample.digest not in states:
        states.clear()  # one sample's states at a time: they are the largest thing in memory
        states[sample.digest] = layer_states(objective, tokens.validation, sample)
    layers = states[sample.digest]
    if isinstance(settings, LayerChangeSettings):
        return list(layer_change(layers, seed=0)), sample.digest
    return list(_information(layers, sample, settings)), sample.digest


def _information(
    layers: list[Any], sample: Sample, settings: TokenInformationSettings
) -> Iterator[dict[str, Any]]:
    frequent_N = most_frequent(sample.token_N, settings.types)
    for layer, states_ND in enumerate(layers):
        information = token_information(
            states_ND[frequent_N],
            sample.token_N[frequent_N],
            sample.sentence_N[frequent_N],
            clusters=settings.clusters,
            seed=0,  # the same halves and shuffles in every layer: less noise in their differences
        )
        for metric in ("plug_in", "cross_fitted"):
            yield {
                "metric": metric,
                "layer": layer,
                "value": getattr(information, metric),
                "floor": getattr(information, f"{metric}_floor"),
                "unit": "nats",
                "n": information.n,
                "d": information.clusters,
            }
