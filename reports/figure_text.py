"""What is known of a figure of the page before any numbers: what it shows and how to read it."""

from typing import Literal, NamedTuple

from reports.axes import Axis

Kind = Literal["arms", "pairs", "groups", "maps", "pictures", "settings"]
"""A panel has a line an arm, a line a pair of arms, or is of one arm: a line a group of tokens, its map, or where
tokens lie in some of its layers. Of settings it has a mark an arm, at its value of the setting."""


class Shown(NamedTuple):
    """What a panel shows, or one panel for each arm."""

    measure: str
    metric: str
    title: str = ""
    """Its metric's title unless given."""
    about: str | None = None
    """The rows' group; None means all tokens."""
    part: str = ""
    """The heading of the part of the figure that it stands in, if any; of maps, each metric is one."""
    folded: bool = False
    """Whether that part is opened on demand."""
    each: bool = False
    """Whether there is such a panel for each task that the rows are about, instead of the one in `about`."""
    axis: Axis | None = None
    """What a panel with a line an arm runs along, if not its measure's own axis."""


class FigureText(NamedTuple):
    """One figure of the page."""

    name: str
    title: str
    kind: Kind
    shown: tuple[Shown, ...]
    n: str
    """What n counts."""
    d: str
    how_to_read: tuple[str, ...]
    family: str = ""
    """Of groups: the first word of their names."""
    section: Literal["layers", "tasks"] = "layers"
    """Where on the page it stands."""
