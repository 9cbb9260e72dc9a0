"""Styles of lines: arms, pairs of arms and groups of tokens, told apart by more than colour."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib.colors import to_hex

from reports.figures.families import families


class Style(NamedTuple):
    """Style of a line; nobody needs colour alone to tell lines apart."""

    colour: str
    marker: str
    line: Any
    """A matplotlib line style; dashes are kept for floors."""
    filling: str | None = None
    """Colour of the markers where it is not that of the line."""


SOLID, DASH_DOT, DOTTED, DASH_DOT_DOT = "solid", (0, (6, 1.5, 1, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1, 1, 1))
DASH_DASH_DOT = (0, (4, 1.2, 4, 1.2, 1, 1.2))
"""Line style of pairs of arms alone, in place of what is dotted."""

FIXED_STYLES = {
    "mlm": Style("#0072B2", "o", SOLID),
    "clm": Style("#D55E00", "s", DASH_DOT),
    "mt": Style("#009E73", "^", DASH_DOT_DOT),
    "untrained": Style("#000000", "X", DOTTED),
}
"""Arms that most experiments have, the same in all of them. Colours: Okabe and Ito 2008."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#332288", "#5C4B00", "#882255")
"""Four of Okabe and Ito's, whose yellow, orange and sky blue have contrasts below 3 on white, two of Paul Tol's
muted ones, https://personal.sron.nl/~pault/, and an olive: colour-blind readers tell each two apart as well as the
most similar of the four."""

GREY = "#767676"
"""Colour of the arm that the others of a panel are read against; its contrast on white is 4.5."""

MARKERS = ("o", "s", "^", "D", "v", "P", "*", "<", "d", ">", "p")
LINES = (SOLID, DASH_DOT, DASH_DOT_DOT, DOTTED)
# 11 markers and 4 lines have no common divisor, so that both together repeat after 44 uses of a colour.

MARK_POINTS = {"*": 11.0, "P": 8.5, "X": 8.0, "d": 8.5, "<": 7.5, ">": 7.5}
"""Sizes of marks in points, so that all look equally large; of the others `USUAL_POINTS`."""
USUAL_POINTS = 7.0

TAGS = (
    *("NOUN", "PROPN", "PRON", "VERB", "AUX", "ADJ", "ADV", "DET", "ADP"),
    *("CCONJ", "SCONJ", "PART", "NUM", "PUNCT", "INTJ", "SYM", "X"),
)
"""Universal parts of speech in the order of their looks and of a legend, related ones side by side."""

LIGHTEST = 0.58
"""Place of the rarest words on their palette: its light end is lost on white."""


def mark_points(marker: str) -> float:
    """Return the size of a mark that stands alone."""
    return MARK_POINTS.get(marker, USUAL_POINTS)


def arm_styles(arms: Sequence[str]) -> dict[str, Style]:
    """Return the style of each arm, decided by the arms of the experiment and their order alone.

    Arms at the same place of their families have the same colour, and those of a panel different ones as long as
    there are colours. No two arms have the same colour, marker and line, nor the same colour and marker, which is
    what single dots show, among the first 44; nor does an arm look like one of the fixed ones.
    """
    styles: dict[str, Style] = {}
    uses: Counter[str] = Counter()
    for family in families(list(dict.fromkeys(arms))):
        fixed = {FIXED_STYLES[arm].colour for arm in family.arms if arm in FIXED_STYLES}
        free = [colour for colour in COLOURS if colour not in fixed]
        for i, arm in enumerate(arm for arm in family.arms if arm not in FIXED_STYLES):
            colour = free[i % len(free)]
            # Whenever a colour comes again, so do the next marker and the next line. The first markers are
            # those of the fixed arms.
            turn = COLOURS.index(colour) + uses[colour]
            styles[arm] = Style(colour, MARKERS[(turn + 3) % len(MARKERS)], LINES[turn % len(LINES)])
            uses[colour] += 1
    return {arm: FIXED_STYLES.get(arm) or styles[arm] for arm in arms}


def pair_style(first: Style, second: Style) -> Style:
    """Return the style of two arms compared: the line of the second with the markers of the first."""
    line = DASH_DASH_DOT if second.line == DOTTED else second.line
    return Style(second.colour, first.marker, line, filling=first.colour)


def grey_style(arm: Style) -> Style:
    """Return the style of an arm that others are read against: its marker and line in grey."""
    return arm._replace(colour=GREY)


def seeds_style(arm: Style) -> Style:
    """Return the style of an arm's own seeds compared: its colour and marker, dotted and hollow."""
    return Style(arm.colour, arm.marker, DOTTED, filling="white")


def group_styles(groups: Sequence[str]) -> dict[str, Style]:
    """Return the style of each group of tokens, in the order of a legend.

    Frequency ranks run through a sequential palette, from dark (frequent) to light (rare); every part of speech
    looks the same in every experiment.
    """
    ranks = sorted((group for group in groups if _first_rank(group)), key=_first_rank)
    shades = colormaps["viridis"]
    styles = {
        group: Style(to_hex(shades(LIGHTEST * i / max(1, len(ranks) - 1))), MARKERS[i % len(MARKERS)], SOLID)
        for i, group in enumerate(ranks)
    }
    unknown = sorted(set(groups) - set(ranks) - {f"tag {tag}" for tag in TAGS})
    for i, group in enumerate([*(f"tag {tag}" for tag in TAGS), *unknown]):
        if group in groups:
            styles[group] = Style(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], LINES[i % len(LINES)])
    return styles


def _first_rank(group: str) -> int:
    """Return the most frequent rank of a group of ranks; 0 for other groups."""
    match = re.match(r"rank (\d+)", group)
    return int(match[1]) if match else 0
