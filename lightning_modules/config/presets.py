"""Presets: settings of encoder, objective and training that a published model used together. No torch.

`bert` is the default. `voita-2019` is the public code of the authors of Voita et al. 2019 from May and June 2019
(lena-voita/the-story-of-heads and good-translation-wrong-in-context). The code of that paper is not public; that
it was the same is an inference.
"""

from typing import Any, Literal, get_args

from lightning_modules.config.objectives import OBJECTIVES

Preset = Literal["bert", "voita-2019"]

Sections = dict[str, dict[str, Any]]

VOITA_2019: Sections = {
    "encoder": {
        "norm": "pre",
        "positions": "sinusoidal",
        "embedding": {"scale": True, "bias": True, "norm": False},
        "initialisation": "glorot",
        "activation": "relu",
        "layer_norm_epsilon": 1e-6,
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "feed_forward_dropout": 0.1,
    },
    "objective": {"head": "linear", "label_smoothing": 0.1},
    "training": {
        "schedule": "inverse_sqrt",
        "adam_beta1": 0.9,
        "adam_beta2": 0.998,
        "adam_epsilon": 1e-9,
        "weight_decay": 0.0,
        "gradient_clip_val": 0.0,
    },
}
"""Sizes, steps, batches, learning rate and warm-up are not part of it. The authors' learning rate at step t is 4
times width^-0.5 times the smaller of t^-0.5 and t * 16,000^-1.5: its peak is 1.4e-3 for a width of 512."""

PRESETS: dict[Preset, Sections] = {"bert": {}, "voita-2019": VOITA_2019}

VOITA_OBJECTIVES: tuple[str, ...] = tuple(
    get_args(settings.model_fields["kind"].annotation)[0]
    for settings in OBJECTIVES
    if settings.model_fields.keys() >= VOITA_2019["objective"].keys()
)
"""Objectives that have the settings of the preset: those that the paper trains."""


def problem(preset: Preset, kind: str) -> str | None:
    """Say why a preset does not suit an objective, or return None."""
    if preset == "voita-2019" and kind not in VOITA_OBJECTIVES:
        return (
            f"preset voita-2019 is for {', '.join(VOITA_OBJECTIVES)}, but objective.kind is {kind}; write the "
            "settings of the encoder one by one"
        )
    return None
