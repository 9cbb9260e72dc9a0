"""The page of an experiment: one HTML file that needs nothing else, and the same content as JSON."""

import base64
import hashlib
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import seaborn as sns
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.results import COLUMNS, write_whole
from reports import folder as experiment_folder
from reports import numbers, svg
from reports.content import content
from reports.curves import choose
from reports.figures import arm_styles
from reports.freshness import digest
from reports.panels import drawing, place

TEMPLATES = Path(__file__).parent / "templates"

EMBEDDED_CSV_BYTES = 1_000_000
"""Most bytes of CSV inside the page, all panels together; beyond that a panel links its file alone."""

PANEL_INCHES = 4.8, 3.5
"""Width and height of a panel above its legend: on a phone its text is about as large as the page's."""

LEGEND_LINE_INCHES = 0.2


class Panel(NamedTuple):
    """A drawn panel: what goes into its files and into the page."""

    svg: str
    csv: str


def write(folder: Path) -> Path:
    """Write report.html, report.json and figures/ into the experiment's folder; returns the HTML's path.

    Reads only what lies in `folder` and in the `runs` beside it. The same input gives the same bytes.
    Runs that are missing or failed are said to be so; a page is written whatever the state.

    Raises:
        ResultsError: a file of the experiment is damaged or plan.json missing, or the page cannot be written.
    """
    experiment = experiment_folder.read(folder)
    said = content(experiment) | {"made_from": digest(folder)}
    drawn = {}
    for figure in said["figures"]:
        for panel in figure["panels"]:
            drawn[panel["name"]] = made = _draw(experiment.table, panel, arms=experiment.plan.arms)
            write_whole(folder / panel["svg"], made.svg.encode())
            write_whole(folder / panel["csv"], made.csv.encode())
    written = json.dumps(_finite(said), ensure_ascii=False, allow_nan=False, indent=1)
    write_whole(folder / "report.json", written.encode())
    write_whole(folder / "report.html", html(said, drawn).encode())
    return folder / "report.html"


def html(said: dict[str, Any], drawn: dict[str, Panel]) -> str:
    """The page: `said` is the content, `drawn` its panels by name. Everything but the drawings is escaped."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    written = ("count", "duration", "interval", "moment", "number", "percent", "share")
    environment.filters |= {name: getattr(numbers, name) for name in written}
    environment.filters |= {"place": place, "known": lambda values: values or numbers.ABSENT}
    environment.filters["anywhere"] = _anywhere
    style = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    embed = sum(len(panel.csv) for panel in drawn.values()) <= EMBEDDED_CSV_BYTES
    return environment.get_template("page.html").render(
        said,
        style=Markup(style),
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
        svg={name: Markup(panel.svg) for name, panel in drawn.items()},
        csv={name: base64.b64encode(panel.csv.encode()).decode() for name, panel in drawn.items() if embed},
        swatch=_swatches([arm["arm"] for arm in said["arms"]]),
    )


def _anywhere(rows: list[dict[str, Any]], name: str) -> bool:
    """Whether any row of a table has a number of that name, alone or as a mean."""
    values = [row[name]["mean"] if isinstance(row[name], dict) else row[name] for row in rows]
    return not all(numbers.is_absent(value) for value in values)


def _draw(table: DataFrame, panel: dict[str, Any], *, arms: list[str]) -> Panel:
    """The panel's picture, its legend below it, and the rows it shows."""
    with sns.axes_style("ticks"), sns.plotting_context("paper", font_scale=1.1):
        figure = Figure(figsize=PANEL_INCHES, layout="constrained")
        ax = drawing(panel["measure"])(table, ax=figure.subplots(), metric=panel["metric"], arms=arms)
        sns.move_legend(ax, "upper left", bbox_to_anchor=(-0.06, -0.19), frameon=False, borderaxespad=0)
        legend = ax.get_legend()
        assert legend is not None
        lines = [line for text in legend.get_texts() for line in text.get_text().split("\n")]
        figure.set_figheight(PANEL_INCHES[1] + LEGEND_LINE_INCHES * len(lines))
        picture = svg.render(figure, name=panel["name"], label=panel["title"], description=panel["description"])
    rows = choose(table, measure=panel["measure"], metric=panel["metric"])
    return Panel(svg=picture, csv=rows[list(COLUMNS)].to_csv(index=False, lineterminator="\n"))


def _swatches(arms: list[str]) -> dict[str, dict[str, str]]:
    """Colour and dashes of each arm's line, as attributes of SVG."""
    return {
        arm: {
            "colour": style.colour,
            "dashes": "none" if style.line == "solid" else " ".join(f"{1.8 * part:g}" for part in style.line[1]),
        }
        for arm, style in arm_styles(arms).items()
    }


def _finite(value: Any) -> Any:
    """The value with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
