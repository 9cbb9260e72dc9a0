"""The rows of a measure of a model from elsewhere: of its layers, and of the last one after a final norm."""

import warnings
from collections.abc import Iterator
from typing import Any

from ablations.analysis_measures import StateMeasure
from ablations.errors import MeasureError
from ablations.hugging_face_states import States
from ablations.measures.geometry import geometry
from ablations.measures.layer_change import changes, layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.sample import Sample
from ablations.measures.settings import (
    GeometrySettings,
    LayerChangeSettings,
    NeighboursSettings,
    TokenInformationSettings,
)
from ablations.measures.token_information import information_rows
from ablations.results import AFTER_NORM

Row = dict[str, Any]


def rows_of(found: States, sample: Sample, settings: StateMeasure) -> tuple[list[Row], list[str]]:
    """The rows of one measure, and in sentences why there are none or what to doubt in them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            rows = list(_rows(found.layers_LND, sample, settings))
            if found.normalised_ND is not None:
                rows += _after_norm(found, sample, settings)
        except MeasureError as error:
            return [], [_named(settings.kind, str(error))]
    doubts = [warning for warning in warned if issubclass(warning.category, UserWarning)]
    for warning in warned:
        if warning not in doubts:  # of a library, not of a measure
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return rows, [_named(settings.kind, str(warning.message)) for warning in doubts]


def _named(measure: str, doubt: str) -> str:
    return doubt if doubt.startswith(measure) else f"{measure}: {doubt}"


def _rows(layers_LND: list[Any], sample: Sample, settings: StateMeasure) -> Iterator[Row]:
    match settings:
        case LayerChangeSettings():
            return layer_change(layers_LND, sample, settings)
        case TokenInformationSettings():
            return information_rows(layers_LND, sample, settings)
        case NeighboursSettings():
            return neighbours(layers_LND, sample, settings)
        case GeometrySettings():
            return geometry(layers_LND, sample, settings)


def _after_norm(found: States, sample: Sample, settings: StateMeasure) -> Iterator[Row]:
    """The rows of the last layer's states after the final norm: a layer's own, or how much the norm changes it."""
    assert found.normalised_ND is not None
    top = len(found.layers_LND) - 1
    if isinstance(settings, LayerChangeSettings):
        for row in changes([found.layers_LND[top], found.normalised_ND], sample.sentence_N):
            yield row | {"group": AFTER_NORM, "layer": top, "layer_to": top}
        return
    for row in _rows([found.normalised_ND], sample, settings):
        group = row.get("group")
        yield row | {"group": AFTER_NORM if group is None else f"{group}, {AFTER_NORM}", "layer": top}
