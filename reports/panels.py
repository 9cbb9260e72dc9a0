"""The figures of a page in its order: which panels each has."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pandas import DataFrame

from reports.descriptions import caption, letters
from reports.factors import Factor
from reports.figure_text import FigureText, Kind
from reports.folder import QUICK
from reports.numbers import listed
from reports.panel import Panel
from reports.panels_between_arms import arm_panels, pair_panels
from reports.panels_by_setting import setting_figures, setting_rows
from reports.panels_within_arms import group_panels, map_panels, picture_panels
from reports.texts_between_arms import (
    GEOMETRY,
    LAYER_CHANGE,
    LEARNING,
    NEIGHBOURS,
    OTHER_INFORMATION,
    RUN_DISTANCE,
    TOKEN_INFORMATION,
)
from reports.texts_tasks import EXAMPLES, INDEPENDENCE, PROBES, RETRIEVAL, SCORES_OVER_TRAINING, STRUCTURE
from reports.texts_within_arms import (
    CHANGE_BY_RANK,
    CHANGE_BY_TAG,
    INFLUENCE_BY_RANK,
    INFLUENCE_BY_TAG,
    OVER_TRAINING,
    PICTURES,
)

FIGURES = (
    LEARNING,
    LAYER_CHANGE,
    TOKEN_INFORMATION,
    OTHER_INFORMATION,
    RUN_DISTANCE,
    NEIGHBOURS,
    GEOMETRY,
    CHANGE_BY_RANK,
    CHANGE_BY_TAG,
    INFLUENCE_BY_RANK,
    INFLUENCE_BY_TAG,
    OVER_TRAINING,
    PICTURES,
    PROBES,
    STRUCTURE,
    RETRIEVAL,
    EXAMPLES,
    SCORES_OVER_TRAINING,
    INDEPENDENCE,
)
"""In the order of the page."""

PANELS: dict[Kind, Callable[..., Iterator[Panel]]] = {
    "arms": arm_panels,
    "pairs": pair_panels,
    "groups": group_panels,
    "maps": map_panels,
    "pictures": picture_panels,
}
"""What makes the panels of one metric of a figure."""


@dataclass(frozen=True, eq=False)
class PageFigure:
    """A figure of the page with its panels."""

    text: FigureText
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]
    """Sentences for below it."""
    factor: Factor | None = None
    """The setting that its arms vary, if it is a figure of one."""

    def entry(self) -> dict[str, Any]:
        """Return the figure as plain data, for the page and report.json."""
        text = self.text
        bands = {curve["band"] for panel in self.panels for curve in panel.curves}
        told = {
            "name": text.name,
            "title": text.title,
            "kind": text.kind,
            "section": text.section,
            "caption": caption(text.kind, bands, about_tasks=text.section == "tasks"),
            "notes": list(self.notes),
            "how_to_read": list(text.how_to_read),
            "n": text.n,
            "d": text.d,
            "panels": [panel.entry() for panel in self.panels],
            "samples": _samples(self.panels),
        }
        if self.factor is None:
            return told
        rows = setting_rows(self.factor, self.panels)
        return told | {"setting": self.factor.setting, "arms": self.factor.arms, "rows": rows}


def figures(
    table: DataFrame, *, arms: Sequence[str], factors: Sequence[Factor] = (), quick: Collection[str] = ()
) -> list[PageFigure]:
    """Every figure that has rows, with its panels; scores by what the arms vary stand before the maps.

    Args:
        table: the results.
        arms: the experiment's, in its order.
        factors: the settings that its arms vary.
        quick: measures of which a figure says that they are no evidence.
    """
    made: list[tuple[FigureText, list[Panel], Factor | None]]
    made = [(text, _panels(table, text, arms=list(arms)), None) for text in FIGURES]
    place = FIGURES.index(OVER_TRAINING)
    by_setting = setting_figures(table, factors, arms=arms)
    made[place:place] = [(figure.text, figure.panels, figure.factor) for figure in by_setting]
    shown = [(text, panels, factor) for text, panels, factor in made if panels]
    return [
        _figure(text, panels, factor, number=number, quick=quick)
        for number, (text, panels, factor) in enumerate(shown, start=1)
    ]


def _panels(table: DataFrame, text: FigureText, *, arms: list[str]) -> list[Panel]:
    return [panel for shown in text.shown for panel in PANELS[text.kind](table, text, shown, arms=arms)]


def _figure(
    text: FigureText, panels: list[Panel], factor: Factor | None, *, number: int, quick: Collection[str]
) -> PageFigure:
    """The figure that is this one on the page: its panels get their letters."""
    lettered = tuple(
        replace(panel, letter=letters(i), id=f"f{number}{letters(i)}") for i, panel in enumerate(panels)
    )
    notes = dict.fromkeys(note for panel in panels for note in panel.notes if note)
    return PageFigure(text, lettered, (*_quick_words(lettered, quick), *notes), factor)


def _quick_words(panels: Sequence[Panel], quick: Collection[str]) -> list[str]:
    """What to say of the panels of these measures: which they are, unless they are all."""
    those = [panel.letter for panel in panels if panel.measure in quick]
    if 0 < len(those) < len(panels):
        return [f"Panel{'s' * (len(those) > 1)} {listed(those)}: {QUICK[0].lower()}{QUICK[1:]}"]
    return [QUICK] * bool(those)


def _samples(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The curves behind panels, once for all panels that have the same: their letters, and the curves."""
    found: list[dict[str, Any]] = []
    for panel in panels:
        same = next((sample for sample in found if sample["curves"] == panel.curves), None)
        if same is None:
            found.append(same := {"panels": [], "curves": panel.curves})
        same["panels"].append(panel.letter)
    return found
