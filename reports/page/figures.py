"""Figures of a page in order, those that a spec adds, and the choice of the figure that answers the question.

A spec adds figures by plugins and published curves. A plugin's figure has one panel, with the rows that its
author selects and draws. Published curves are drawn beside those of the experiment.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.errors import PluginError
from ablations.spec.contrasts import Ahead, Claim, Difference
from ablations.spec.figures import NamedFigure, PublishedPoint, load_figure
from ablations.wording import listed
from reports.claims.judge import NOT_JUDGED, Judged
from reports.claims.verdicts import DECIDED
from reports.figures.by_arm import ArmLines, shown_name
from reports.figures.curves import ALONG_STEPS, Axis
from reports.figures.files import draw, lacking_glyphs
from reports.figures.lines import PublishedCurve
from reports.figures.panel import CEILING, FigureKind, FigureText, Panel, letters, lines_in_words
from reports.figures.style import MOST_LINES
from reports.figures.texts import FIGURES, OVER_TRAINING, of_plugin
from reports.folder import QUICK
from reports.scores.by_setting import setting_figures, setting_rows
from reports.scores.factors import Factor
from reports.words import is_of_plugin


class ClaimedMetric(NamedTuple):
    """Measure and metric that a claim reads."""

    measure: str
    metric: str
    along_steps: bool
    """Whether the claim compares the course of training, and not its end."""


def claimed_metrics(judged: Judged) -> list[ClaimedMetric]:
    """Return the readings of the claims; a reading appears as often as claims have it.

    Decided claims are read. If there are none, judged claims are; if there are none either, all claims.
    """
    verdicts = {entry.name: entry.verdict for entry in judged.entries}
    decided = [claim for name, claim in judged.claims.items() if verdicts[name] in DECIDED]
    tested = [claim for name, claim in judged.claims.items() if verdicts[name] not in NOT_JUDGED]
    return [reading for claim in decided or tested or judged.claims.values() for reading in read_by(claim)]


def read_by(claim: Claim) -> list[ClaimedMetric]:
    """Return the readings of the parts that decide a claim, without repetition."""
    along_steps = compares_courses(claim)
    read = (of for part in claim.parts.values() for of in part.quantities())
    return list(dict.fromkeys(ClaimedMetric(of.measure, of.metric, along_steps) for of in read))


def compares_courses(claim: Claim) -> bool:
    """Return whether a claim compares the course of training, and not its end."""
    return any(
        isinstance(part, Ahead) or (isinstance(part, Difference) and part.of.steps == "area")
        for part in claim.parts.values()
    )


def is_along(kind: str, measure: str, axis: Axis | None, *, along_steps: bool) -> bool:
    """Return whether a panel's lines have the axis that a claim compares: steps, or else layers or the ratio."""
    if kind not in ("arms", "pairs"):
        return False
    return measure in ALONG_STEPS or (axis == "step" if along_steps else axis in (None, "layer", "ratio"))


def times_read(panel: Panel, read: Iterable[ClaimedMetric]) -> int:
    """Return how many readings a panel shows. Against a setting it shows a loss as a gain, and only the end."""
    metrics = {panel.metric} | ({"loss"} if panel.metric == "gain" else set())
    return sum(
        reading.measure == panel.measure
        and reading.metric in metrics
        and panel.group is None
        and (
            (panel.kind == "settings" and not reading.along_steps)
            or is_along(panel.kind, panel.measure, panel.axis, along_steps=reading.along_steps)
        )
        for reading in read
    )


def answering(figures: Mapping[str, Sequence[Panel]], read: Sequence[ClaimedMetric]) -> str | None:
    """Return the name of the figure with the panel that shows most readings, the first of equals; None if no
    panel shows any.

    Args:
        figures: panels by the name of their figure.
    """
    most_read = {
        name: max((times_read(panel, read) for panel in panels), default=0) for name, panels in figures.items()
    }
    best = max(most_read.values(), default=0)
    return next((name for name, times in most_read.items() if times == best), None) if best else None


@dataclass(frozen=True, eq=False)
class PageFigure:
    """Figure of the page with its panels."""

    text: FigureText
    number: int
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]
    """Sentences that are shown below it."""
    factor: Factor | None = None
    """Setting that its arms vary; None for other figures."""

    def entry(self) -> dict[str, Any]:
        """Return the figure as plain data, for the page and report.json."""
        text = self.text
        bands = {curve["band"] for panel in self.panels for curve in panel.curves}
        caption = text.kind.caption(bands, text.section == "tasks")
        has_ceiling = any("ceiling" in point for panel in self.panels for point in panel.points)
        facts = {
            "name": text.name,
            "number": self.number,
            "title": text.title,
            "kind": text.kind.name,
            "section": text.section,
            "caption": f"{caption} {CEILING}" if has_ceiling else caption,
            "notes": list(self.notes),
            "how_to_read": list(text.how_to_read),
            "n": text.n,
            "d": text.d,
            "panels": [panel.entry() for panel in self.panels],
            "samples": _samples(self.panels),
        }
        if self.factor is None:
            return facts
        rows = setting_rows(self.factor, self.panels)
        return facts | {
            "setting": self.factor.setting,
            "setting_title": self.factor.title,
            "reference_value": self.factor.reference_value,
            "arms": self.factor.arms,
            "rows": rows,
        }


def figures(
    table: DataFrame,
    *,
    arms: Sequence[str],
    factors: Sequence[Factor] = (),
    quick: Collection[str] = (),
    read: Sequence[ClaimedMetric] = (),
    published: Sequence[PublishedPoint] = (),
    objectives: Mapping[str, str] = MappingProxyType({}),
    described: Mapping[str, str] = MappingProxyType({}),
    of_authors: Sequence[tuple[FigureText, list[Panel]]] = (),
) -> list[PageFigure]:
    """Return every figure that has rows, with its panels.

    The figure that shows most readings of the claims comes first, and in it the panel that does. Without
    claims and with many arms, the first is the figure of scores by the setting that arms vary. Other such
    figures come before the maps.

    Args:
        arms: arms of the experiment in order.
        factors: settings that its arms vary.
        quick: measures with `effort: quick`; their figures say that they are no evidence.
        read: readings of the claims.
        published: points of published curves, drawn beside those of arms.
        objectives: kind of objective of each trained arm, which decides beside which arm a published curve is
            drawn.
        described: descriptions of the measures of plugins, by name.
        of_authors: figures of plugins with their panels, which come after the other figures of layers.
    """
    candidates: list[tuple[FigureText, list[Panel], Factor | None]]
    texts = (*FIGURES, *_of_plugins(table, described))
    measured = set(table["measure"].unique())
    candidates = [(text, _panels(table, text, measured=measured, arms=list(arms)), None) for text in texts]
    place = FIGURES.index(OVER_TRAINING)
    by_setting = setting_figures(table, factors, arms=arms)
    candidates[place:place] = [(figure.text, figure.panels, figure.factor) for figure in by_setting]
    candidates += [(text, panels, None) for text, panels in of_authors]
    shown = [
        (text, [beside_published(panel, published, objectives=objectives) for panel in panels], factor)
        for text, panels, factor in candidates
        if panels
    ]
    answer = answering({text.name: panels for text, panels, _ in shown}, read)
    if answer is None and len(arms) > MOST_LINES:  # too many for curves to answer anything
        answer = next((text.name for text, _, factor in shown if factor is not None), None)
    for text, panels, _ in shown:
        if text.name == answer:
            panels.sort(key=lambda panel: -times_read(panel, read))
    # In the order of the page; a stable sort keeps the order of the others.
    shown.sort(key=lambda figure: (figure[0].name != answer, figure[0].section == "tasks"))
    return [
        _figure(text, panels, factor, number=number, quick=quick)
        for number, (text, panels, factor) in enumerate(shown, start=1)
    ]


def without_figure(table: DataFrame, shown: Sequence[PageFigure]) -> list[str]:
    """Return a sentence on the measures of layers that have rows but no panel; empty without such measures."""
    of_layers = {panel.measure for text in FIGURES if text.section == "layers" for panel in text.shown}
    drawn = {panel.measure for figure in shown for panel in figure.panels}
    measured = table.loc[table["layer"].notna(), "measure"].unique()
    missing = [name for name in measured if name in of_layers - drawn]
    if not missing:
        return []
    return [f"No figure of {listed(missing, 'and')}: a curve needs two numbers. See results.parquet."]


def _of_plugins(table: DataFrame, described: Mapping[str, str]) -> list[FigureText]:
    """Return the text of a figure for each measure of a plugin that has numbers of layers."""
    measures = filter(is_of_plugin, table["measure"].unique())
    rows = table[table["measure"].isin([*measures]) & table["layer"].notna()]
    return [
        of_plugin(str(measure), part["metric"].unique().tolist(), described.get(str(measure), ""))
        for measure, part in rows.groupby("measure", sort=False)
    ]


def _panels(table: DataFrame, text: FigureText, *, measured: Collection[str], arms: list[str]) -> list[Panel]:
    """Return the panels of a figure. Measures that the table lacks, which are most, are skipped to save time."""
    panels = text.kind.panels
    assert panels is not None, f"{text.name} is in FIGURES, so its panels come from the table alone"
    of_table = [shown for shown in text.shown if shown.measure in measured]
    return [panel for shown in of_table for panel in panels(table, text, shown, arms=arms)]


def _figure(
    text: FigureText, panels: list[Panel], factor: Factor | None, *, number: int, quick: Collection[str]
) -> PageFigure:
    """Return the figure with its number on the page, and letters for its panels."""
    lettered = tuple(
        replace(panel, letter=letters(i), id=f"f{number}{letters(i)}") for i, panel in enumerate(panels)
    )
    of_quick = _of_panels(QUICK, [panel.letter for panel in lettered if panel.measure in quick], lettered)
    beside = _of_panels(PUBLISHED, [panel.letter for panel in lettered if PUBLISHED in panel.notes], lettered)
    notes = dict.fromkeys(note for panel in panels for note in panel.notes if note and note != PUBLISHED)
    return PageFigure(text, number, lettered, (*of_quick, *notes, *beside), factor)


def _of_panels(sentence: str, those: Sequence[str], panels: Sequence[Panel]) -> list[str]:
    """Return a sentence about some panels of a figure. It names their letters, unless they are all panels; the
    list is empty without such panels."""
    if 0 < len(those) < len(panels):
        return [f"Panel{'s' * (len(those) > 1)} {listed(those, 'and')}: {sentence[0].lower()}{sentence[1:]}"]
    return [sentence] * bool(those)


def _samples(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Return the facts about the curves of panels: an entry for all panels with the same facts, with the letters
    of these panels and the curves."""
    samples: list[dict[str, Any]] = []
    for panel in panels:
        sample_of_panel = next((sample for sample in samples if sample["curves"] == panel.curves), None)
        if sample_of_panel is None:
            samples.append(sample_of_panel := {"panels": [], "curves": panel.curves})
        sample_of_panel["panels"].append(panel.letter)
    return samples


SOURCE = "The authors of this experiment wrote this figure. Its source says how it is drawn."
PLUGIN_FIGURE = FigureKind("own", None, lambda bands, about_tasks: SOURCE)


class PluginContent(NamedTuple):
    """Content of a figure by a plugin."""

    figure: NamedFigure
    rows: DataFrame

    def draw(self, figure: Figure) -> None:
        """Call the plugin's function on the rows, then lay out the figure, so that bad formulas fail here."""
        self.figure.draw(self.rows, figure)
        with lacking_glyphs():
            self.figure.attempt(figure.draw_without_rendering)


def plugin_figures(
    table: DataFrame, records: Mapping[str, Mapping[str, str]]
) -> tuple[list[tuple[FigureText, list[Panel]]], dict[str, str]]:
    """Return the text and the panels of each plugin figure (an empty list if it has no rows), and an error
    sentence for each that fails, by its name on the page.

    Each figure is drawn once as a trial, so that a figure that fails leaves no gap in the numbering of
    figures.

    Args:
        records: `Plugin.record` of each figure, by its name in the spec. Its path is not used, because the folder
            may be from somebody else.
    """
    figures, failures = [], {}
    for name, record in records.items():
        try:
            text, panels = _plugin_figure(table, load_figure(name, sha256=record.get("sha256")))
            for panel in panels:
                draw(panel)
        except PluginError as error:
            failures[name_on_page(name)] = str(error)
        else:
            figures.append((text, panels))
    return figures, failures


def without_rows(names: Iterable[str], shown: Sequence[PageFigure], failures: Collection[str]) -> list[str]:
    """Return a sentence for each plugin figure, by its name in the spec, that has no rows."""
    on_page = {figure.text.name for figure in shown}
    empty = [name for name in names if name_on_page(name) not in on_page.union(failures)]
    return [f"No figure {name}: it returns no rows from this table of results." for name in empty]


def name_on_page(name: str) -> str:
    """Return the name on the page of a plugin figure with this name in the spec."""
    return re.sub(r"\W+", "_", name)


def _plugin_figure(table: DataFrame, figure: NamedFigure) -> tuple[FigureText, list[Panel]]:
    rows, card = figure.rows(table), figure.card
    name = name_on_page(figure.name)
    text = FigureText(name, card.title, PLUGIN_FIGURE, shown=(), n="", how_to_read=card.how_to_read)
    panel = Panel(
        name=name,
        data=name,
        kind=PLUGIN_FIGURE.name,
        measure=figure.name,
        metric="",
        title=card.title,
        unit="1",
        digits=0,
        content=PluginContent(figure, rows),
        rows=rows,
        points=[],
        description=" ".join(card.how_to_read),
        kind_fields={"rows": json.loads(figure.attempt(rows.to_json, orient="records", double_precision=15))},
    )
    return text, [panel] if len(rows) else []


def beside_published(panel: Panel, points: Sequence[PublishedPoint], *, objectives: Mapping[str, str]) -> Panel:
    """Return the panel with the published curves of its metric, if it has a line for each arm and such curves
    exist.

    Args:
        objectives: kind of objective of each trained arm. A curve gets the colour of the first arm in the
            panel with its objective; without such an arm it is left out.
    """
    drawn = panel.content
    if not isinstance(drawn, ArmLines) or drawn.axis is not None:
        return panel
    shown = [curve.arm for curve in drawn.curves if drawn.family is None or curve.arm in drawn.family.arms]
    of_metric = [
        point
        for point in points
        if (point.measure, point.metric, point.group) == (drawn.measure, drawn.metric, drawn.group)
    ]
    curves, published_points = [], []
    for source, objective in dict.fromkeys((point.source, point.objective) for point in of_metric):
        arm = next((arm for arm in shown if objectives.get(arm) == objective), None)
        if arm is None:
            continue
        name = f"{source}, {objective.replace('_lm', ' LM')}"
        curve = [point for point in of_metric if (point.source, point.objective) == (source, objective)]
        y_by_x = {point.layer: point.value for point in curve}
        curves.append(PublishedCurve(shown_name(name), drawn.styles[arm].colour, y_by_x))
        published_points += [_published_point(point, name) for point in curve]
    if not curves:
        return panel
    return replace(
        panel,
        content=drawn._replace(published=tuple(curves)),
        points=[*panel.points, *published_points],
        description=f"{panel.description} {lines_in_words(published_points, line='arm', digits=panel.digits)}",
        notes=(*panel.notes, PUBLISHED),
    )


PUBLISHED = (
    "Long dashes with hollow points are published curves of other models on other text. Compare only their shape."
)


def _published_point(point: PublishedPoint, name: str) -> dict[str, Any]:
    """Return the entry of a published point. Its band is the error of reading it; NaN if it is not known."""
    error = float("nan") if point.error is None else point.error
    return {
        "arm": name,
        "layer": point.layer,
        "layer_to": point.layer_to,
        "mean": point.value,
        "low": point.value - error,
        "high": point.value + error,
        "band": "published",
        "seeds": 0,
        "floor": float("nan"),
    }
