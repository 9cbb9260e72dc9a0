"""Analyses of tiny models: their text, their measures, and the command."""

import json

from click.testing import CliRunner

from ablations import results
from ablations.analyse.analyse import analyse
from ablations.cli import main
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


def ablate(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def quietly(folder, place, **options):
    """The table of an analysis."""
    told = {"text": place / "text.txt", "out": place / "out", "measures": [CHANGE, INFORMATION, NEAR, SHAPE]}
    return results.read(analyse(folder, **(told | options), say=lambda _: None) / "results.parquet")


def notices(place, name="bert"):
    """What the page says of an analysis besides its numbers."""
    return json.loads((place / "out" / name / "plan.json").read_text())["notices"]
