"""Rows of token information for figures, what is drawn in their axes, and the styles of their shapes."""

import re
from functools import partial

from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from ablations import results
from reports.figures.by_arm import by_arm


def information(values_by_seed, *, floor=None, arm="mlm", **changes):
    """Rows of token information, one list of values by layer for each seed."""
    return results.table(
        {
            "run_id": f"{arm}{seed}",
            "arm": arm,
            "seed": seed,
            "step": 8,
            "measure": "token_information",
            "metric": "cross_fitted",
            "layer": layer,
            "value": value,
            "floor": floor,
        }
        | changes
        for seed, values in enumerate(values_by_seed)
        for layer, value in enumerate(values)
    )


layer_change = partial(by_arm, measure="layer_change", metric="pwcca")
token_information = partial(by_arm, measure="token_information", metric="cross_fitted")
read_out = partial(by_arm, measure="read_out", metric="linear")
learning = partial(by_arm, measure="learning", metric="gain")
neighbours = partial(by_arm, measure="neighbours", metric="same_token")
geometry = partial(by_arm, measure="geometry", metric="effective_rank")


def axes():
    return Figure().subplots()


def means(ax):
    """The curve of each arm: colour -> line."""
    return {to_hex(line.get_color()).upper(): line for line in ax.lines if line.get_gid() == "mean"}


def floors(ax):
    return [line for line in ax.lines if line.get_gid() == "floor"]


def ceilings(ax):
    return [line for line in ax.lines if line.get_gid() == "ceiling"]


def seed_lines(ax):
    """Return the points of each seed's line, of all arms one after the other."""
    lines = [part for part in ax.collections if part.get_gid() == "seed"]
    return [path.vertices for part in lines for path in part.get_paths()]


def bands(ax):
    return [part for part in ax.collections if part.get_gid() == "band"]


def names(ax):
    """The names at the ends of lines."""
    assert ax.get_legend() is None
    return [text.get_text() for text in ax.texts if text.get_gid() == "end"]


def with_styles(svg: str) -> str:
    """Return an SVG document with its styles at its shapes, in place of classes."""
    rules = dict(re.findall(r"[.](s[0-9]+){([^}]*)}", svg))
    bare = re.sub(r"[.]s[0-9]+{[^}]*}", "", svg)
    return re.sub(r'(<[^>]*) class="(s[0-9]+)"', lambda tag: f'{tag[1]} style="{rules[tag[2]]}"', bare)
