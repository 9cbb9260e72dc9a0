"""Analyses of tiny models: their texts, states and measures."""

import json

from ablations import results
from ablations.analyse.analyse import analyse
from ablations.analyse.model import load
from ablations.analyse.text import sample_of, states, tokenise
from ablations.measures.settings import (
    GeometrySettings,
    LayerChangeSettings,
    NeighboursSettings,
    TokenInformationSettings,
)
from tests.support import tiny_models

CHANGE = LayerChangeSettings.model_validate({"kind": "layer_change", "groups": ["frequency"]})


INFORMATION = TokenInformationSettings(
    kind="token_information", types=10, clusters=8, about=("input", "previous", "next")
)


NEAR = NeighboursSettings(kind="neighbours", types=10, occurrences=21, neighbours=5, neighbours_of_type=5)


SHAPE = GeometrySettings(kind="geometry")


TEXT = tiny_models.sentences(120, longest=12)


CUT_TEXT = [*tiny_models.sentences(30), "a " * 60]
"""Text whose last sentence is longer than most models read."""


def quietly(folder, place, **options):
    """The table of an analysis."""
    told = {"text": place / "text.txt", "out": place / "out", "measures": [CHANGE, INFORMATION, NEAR, SHAPE]}
    return results.read(analyse(folder, **(told | options), say=lambda _: None) / "results.parquet")


def notices(place, name="bert"):
    """What the page says of an analysis besides its numbers."""
    return json.loads((place / "out" / name / "plan.json").read_text())["notices"]


def read(folder, text=CUT_TEXT, **options):
    """The model, its tokens, all of them as a sample, and their states."""
    loaded = load(folder)
    tokenised = tokenise(loaded, text, tokens=10**6)
    sample = sample_of(tokenised, tokens=10**6, source=folder)
    return loaded, tokenised, sample, states(loaded, tokenised, sample, **options)
