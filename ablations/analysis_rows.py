"""Computes the rows of a measure of the layers of a model from elsewhere."""

import warnings
from collections.abc import Iterator
from typing import Any

from ablations.analysis_measures import StateMeasure
from ablations.errors import MeasureError
from ablations.measures.geometry import geometry
from ablations.measures.layer_change import layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.sample import Sample
from ablations.measures.settings import (
    GeometrySettings,
    LayerChangeSettings,
    NeighboursSettings,
    TokenInformationSettings,
)
from ablations.measures.token_information import information_rows

Row = dict[str, Any]


def rows_of(layers_LND: list[Any], sample: Sample, settings: StateMeasure) -> tuple[list[Row], list[str]]:
    """Return the rows of one measure, and in sentences why there are none or what to doubt in them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            rows = list(_rows(layers_LND, sample, settings))
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
