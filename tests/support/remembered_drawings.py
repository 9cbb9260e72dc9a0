"""Drawings of pages of tests, which take most of the time of a page."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reports.figures.files import Drawing, draw

_DRAWINGS = {}


def remembered_drawing(panel):
    """Return what `draw` returns. The same panel gives the same bytes, so it is drawn once in a process."""
    key = pickle.dumps((panel.id, panel.title, panel.content, panel.csv_text()))
    if key not in _DRAWINGS:
        _DRAWINGS[key] = draw(panel)
    return _DRAWINGS[key]


def empty_drawing(panel):
    """Return the data of the panel with an empty image."""
    return Drawing(svg='<svg xmlns="http://www.w3.org/2000/svg"/>', csv=panel.csv_text())


@contextmanager
def empty_drawings() -> Iterator[None]:
    """Leave the images of pages empty that are written meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reports.page.page.draw", empty_drawing)
        yield
