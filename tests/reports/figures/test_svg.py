"""A title stands clear of what is written above a figure, whatever title it is given."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from ablations import results
from reports.figures.by_setting import by_setting
from reports.figures.groups import by_group
from reports.figures.lines import written_above
from tests.support.fake_experiment import rows
from tests.support.fake_layers import layer_rows
from tests.support.figures import token_information
from tests.support.setting_panels import panels

TITLES = ("plug-in", "What is known of a token in each layer,\nby the bound from below")


def overlaps(ax):
    """Pairs of a title and another text that stand on each other, once drawn."""
    figure = ax.figure
    FigureCanvasAgg(figure).draw()
    titles = [ax.title, ax._left_title, ax._right_title]
    others = [text for text in figure.findobj(Text) if text not in titles]
    return [
        (title.get_text(), other.get_text())
        for title in titles
        for other in others
        if title.get_text() and other.get_text().strip() and other.get_visible()
        if title.get_window_extent().overlaps(other.get_window_extent())
    ]


@pytest.fixture(scope="module")
def table():
    """Two arms whose floors lie far beyond every axis."""
    made = results.table(rows(("mlm", "clm")))
    return made.assign(floor=99.0)


@pytest.fixture(scope="module")
def layers():
    made = results.table(
        row for row in layer_rows(("mlm",), (0, 1), steps=(500,)) if row["measure"] in ("layer_change", "learning")
    )
    return made.assign(floor=99.0)


def information(ax, table, layers):
    return token_information(table, ax=ax, metric="plug_in")


def of_groups(ax, table, layers):
    return by_group(layers, ax=ax, arm="mlm", family="rank")


def of_a_setting(ax, table, layers):
    near = {"mlm": 4.01, "clm": 4.0, "mt": 4.02, "untrained": 2.5}
    return by_setting(panels(top=near, seeds=(0.0, 0.001))[1].content, ax=ax)  # its note has two lines


@pytest.mark.parametrize("loc", ["left", "center", "right"])
@pytest.mark.parametrize("title", TITLES, ids=["short", "long"])
@pytest.mark.parametrize("draw", [information, of_groups, of_a_setting])
def test_a_title_stands_above_what_is_written_out(draw, title, loc, table, layers):
    ax = draw(Figure(figsize=(4.8, 3.5)).subplots(), table, layers)
    assert written_above(ax)
    assert not overlaps(ax)
    ax.set_title("")
    ax.set_title("", loc="left")
    ax.set_title(title, loc=loc)
    assert not overlaps(ax)


@pytest.mark.parametrize("layout", ["constrained", "tight"])
def test_a_title_is_inside_the_figure_where_its_layout_is_made_to_fit(layout, table, layers):
    figure = Figure(figsize=(4.8, 3.5), layout=layout)
    ax = information(figure.subplots(), table, layers)
    ax.set_title(TITLES[1])
    assert not overlaps(ax)
    assert ax.title.get_window_extent().y1 <= figure.bbox.y1


def test_a_title_that_is_put_on_the_note_is_found(table, layers):
    ax = information(Figure().subplots(), table, layers)
    ax.set_title("plug-in", loc="right", y=1.0)
    assert overlaps(ax) == [("plug-in", "\n".join(written_above(ax)))]
