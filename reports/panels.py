"""The figures of a page as data, in its order: which panels there are, and what they show."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from pandas import DataFrame

from reports.descriptions import caption, letters
from reports.factors import Factor
from reports.figure_text import FigureText, Kind
from reports.folder import QUICK
from reports.numbers import listed
from reports.panel import Panel
from reports.panels_between_arms import arm_panels, pair_panels
from reports.panels_by_setting import SettingFigure, setting_figures, setting_rows
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


def figures(
    table: DataFrame, *, arms: Sequence[str], factors: Sequence[Factor] = (), quick: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Every figure that has rows, with its panels; scores by what the arms vary stand before the maps.

    Args:
        quick: measures of which a figure says that they are no evidence.
    """
    drawn = [_figure(text, _panels(table, text, arms=list(arms))) for text in FIGURES]
    place = FIGURES.index(OVER_TRAINING)
    drawn[place:place] = [_by_setting(figure) for figure in setting_figures(table, factors)]
    drawn = [figure for figure in drawn if figure["panels"]]
    for number, figure in enumerate(drawn, start=1):
        for panel in figure["panels"]:
            panel["id"] = f"f{number}{panel['letter']}"  # short, as it is in front of every name in a drawing
        figure["notes"][:0] = _quick_words(figure["panels"], quick)
    return drawn


def _panels(table: DataFrame, text: FigureText, *, arms: list[str]) -> list[Panel]:
    return [panel for shown in text.shown for panel in PANELS[text.kind](table, text, shown, arms=arms)]


def _by_setting(figure: SettingFigure) -> dict[str, Any]:
    made = _figure(figure.text, figure.panels)
    return made | {"setting": figure.factor.setting, "arms": figure.factor.arms, "rows": setting_rows(figure)}


def _figure(text: FigureText, panels: list[Panel]) -> dict[str, Any]:
    for i, panel in enumerate(panels):
        panel["letter"] = letters(i)
    notes = dict.fromkeys(note for panel in panels for note in panel.pop("notes", ()) if note)
    return {
        "name": text.name,
        "title": text.title,
        "kind": text.kind,
        "section": text.section,
        "caption": caption(
            text.kind,
            {curve["band"] for panel in panels for curve in panel["curves"]},
            about_tasks=text.section == "tasks",
        ),
        "notes": list(notes),
        "how_to_read": list(text.how_to_read),
        "n": text.n,
        "d": text.d,
        "panels": panels,
        "samples": _samples(panels),
    }


def _quick_words(panels: list[Panel], quick: Collection[str]) -> list[str]:
    """What to say of the panels of these measures: which they are, unless they are all."""
    those = [panel["letter"] for panel in panels if panel["measure"] in quick]
    if 0 < len(those) < len(panels):
        return [f"Panel{'s' * (len(those) > 1)} {listed(those)}: {QUICK[0].lower()}{QUICK[1:]}"]
    return [QUICK] * bool(those)


def _samples(panels: list[Panel]) -> list[dict[str, Any]]:
    """The curves behind panels, once for all panels that have the same: their letters, and the curves."""
    found: list[dict[str, Any]] = []
    for panel in panels:
        same = next((sample for sample in found if sample["curves"] == panel["curves"]), None)
        if same is None:
            found.append(same := {"panels": [], "curves": panel["curves"]})
        same["panels"].append(panel["letter"])
    return found
