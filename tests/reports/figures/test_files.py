"""A title stands clear of what is written above it; and figures for papers and slides: sizes, fonts and names."""

import itertools
import re
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from ablations import results
from ablations.errors import ResultsError
from reports import folder as experiment_folder
from reports.claims.judge import judge_claims
from reports.figures import files
from reports.figures.by_arm import arm_panels
from reports.figures.by_setting import by_setting
from reports.figures.curves import learned
from reports.figures.files import DPI, MEDIA, draw_panel, panel_called, render, save
from reports.figures.groups import choose_groups, draw_groups, group_lines
from reports.figures.lines import written_above
from reports.figures.panel import Shown
from reports.figures.texts import LEARNING
from reports.page.content import page_figures
from tests.support.command_line import ablate
from tests.support.errors import error_text
from tests.support.fake_experiment import ARMS, rows, write
from tests.support.fake_layers import layer_rows
from tests.support.figures import token_information, with_styles
from tests.support.setting_panels import panels
from tests.support.spec_files import write_spec

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
    rows = choose_groups(layers, measure="layer_change", metric="pwcca", family="rank")
    return draw_groups(group_lines(rows, learned(layers), "rank")["mlm"], ax=ax)


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


@pytest.fixture(scope="module")
def page_panels(tmp_path_factory):
    longer = [row | {"arm": "a-longer-name-of-an-arm" if row["arm"] == "mt" else row["arm"]} for row in rows()]
    folder = write(tmp_path_factory.mktemp("it"), table_rows=longer)
    experiment = experiment_folder.read(folder)
    experiment = experiment._replace(table=experiment_folder.results.read(folder / "results.parquet"))
    arms = [arm if arm != "mt" else "a-longer-name-of-an-arm" for arm in ARMS]
    experiment = experiment._replace(plan=experiment.plan.model_copy(update={"arms": arms}))
    return [panel for one in page_figures(judge_claims(experiment))[0] for panel in one.panels]


def test_files_have_the_width_of_their_medium_and_fonts_that_publishers_take(page_panels, tmp_path):
    (pdf, png), boxes = save(page_panels[0], tmp_path / "print", medium="paper")
    assert boxes == ""
    assert (pdf.name, png.name) == (f"{page_panels[0].name}-paper.pdf", f"{page_panels[0].name}-paper.png")
    content = pdf.read_bytes()
    assert b"/CIDFontType2" in content
    assert b"/Type3" not in content
    assert imread(png).shape[1] == pytest.approx(3.03 * DPI, abs=1)


@pytest.mark.parametrize("medium", MEDIA)
def test_names_are_at_the_ends_of_lines_or_in_a_legend(page_panels, medium):
    figure = draw_panel(page_panels[0], MEDIA[medium])
    ends = [text.get_text() for ax in figure.axes for text in ax.texts if text.get_gid() == "end"]
    legend = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert bool(ends) != bool(legend)
    names = {re.sub(r"\s", "", name) for name in (*ends, *legend)}
    assert {"mlm", "clm", "a-longer-name-of-an-arm", "untrained"} <= names
    assert bool(legend) == (medium != "paper-wide")
    assert figure.get_figwidth() == MEDIA[medium].inches[0]


def test_letters_are_readable_in_print(page_panels):
    figure = draw_panel(page_panels[0], MEDIA["paper"])
    figure.canvas.draw()
    texts = [text for ax in figure.axes for text in (ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels())]
    assert min(text.get_size() for text in [*texts, *figure.legends[0].get_texts()]) >= 6.5


@pytest.mark.parametrize("medium", MEDIA)
def test_a_legend_of_long_names_is_below_the_axes(medium):
    arms = [f"mlm,ratio=0.{i},positions=sinusoidal,word_order=natural,head=tied" for i in range(1, 9)]
    one_row = {"seed": 0, "measure": "learning", "metric": "gain", "floor": 0.0}
    learned_rows = [
        one_row | {"arm": arm, "run_id": arm, "step": step, "value": step / 100}
        for arm in arms
        for step in (30, 60)
    ]
    (panel,) = arm_panels(results.table(learned_rows), LEARNING, Shown("learning", "gain"), arms=arms)
    figure = draw_panel(panel, MEDIA[medium])
    FigureCanvasAgg(figure).draw()
    (ax,), legends = figure.axes, figure.legends
    assert ax.bbox.height / figure.dpi > MEDIA[medium].inches[1] / 2
    assert all(legend.get_window_extent().y1 < ax.get_tightbbox().y0 for legend in legends)
    assert all(legend.get_window_extent().y0 >= 0 for legend in legends)
    assert bool(legends) == (medium != "paper-wide")


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("last", [60, 3000, 500_000])
def test_steps_below_a_learning_curve_have_room(medium, last):
    steps = [last * i // 6 for i in range(1, 7)]
    one_row = {"arm": "mlm", "run_id": "mlm0", "seed": 0, "measure": "learning", "metric": "gain", "floor": 0.0}
    learned_rows = [one_row | {"step": step, "value": 2 - 1 / step} for step in steps]
    shown = Shown("learning", "gain")
    (panel,) = arm_panels(results.table(learned_rows), LEARNING, shown, arms=["mlm"])
    figure = draw_panel(panel, MEDIA[medium])
    FigureCanvasAgg(figure).draw()
    (ax,) = figure.axes
    first, end = ax.get_xlim()
    labels = [tick.label1 for tick in ax.xaxis.get_major_ticks() if first <= tick.get_loc() <= end]
    boxes = [label.get_window_extent() for label in labels]
    assert len(boxes) >= 3
    apart = [right.x0 - left.x1 for left, right in itertools.pairwise(boxes)]
    assert min(apart) > boxes[0].height / 4


def test_the_command_lists_figures_and_writes_one(tmp_path):
    folder = write(tmp_path)
    listed = ablate("figure", folder).stdout.splitlines()
    assert "layer_change-pwcca " in listed[[line.split()[0] for line in listed].index("layer_change-pwcca")]
    assert all(re.fullmatch(r"\S+ +Figure \d+[a-z]\. .+: .+", line) for line in listed)
    before = sorted(folder.rglob("*"))
    out = tmp_path / "figures"
    named = ["figure", str(folder), "layer_change-pwcca", "--for", "slides", "--out", str(out)]
    result = ablate(*named)
    files = [out / folder.name / f"print/layer_change-pwcca-slides.{ending}" for ending in ("pdf", "png")]
    assert result.stdout.splitlines() == [str(file) for file in files]
    assert all(file.is_file() for file in files)
    assert sorted(folder.rglob("*")) == before  # nothing is written into published results
    result = ablate("figure", folder, "learning-gain", "--for", "slides", "--wide")
    assert (result.exit_code, "Error: --wide works only with --for paper; leave it out." in result.stderr) == (
        2,
        True,
    )


def test_results_without_a_row_have_no_figures_and_the_command_says_so(tmp_path):
    folder = write(tmp_path)
    results.write(results.read(folder / "results.parquet").iloc[:0], folder / "results.parquet")
    listed = ablate("figure", folder)
    expected = f"{folder} has no figures yet; `ablate run` measures what they show.\n"
    assert (listed.exit_code, listed.stdout) == (0, expected)


def test_settings_of_a_command_line_lead_to_the_figures_of_their_results(tmp_path):
    """The spec may name a file that lies elsewhere; of a folder there is nothing to set."""
    folder, parts = write(tmp_path / "out"), tmp_path / "parts"
    parts.mkdir()
    plugin = Path(__file__).parents[3] / "docs" / "plugins" / "my_figure.py"
    (parts / "my_figure.py").write_bytes(plugin.read_bytes())
    spec = write_spec(tmp_path, figures=["my_figure.py:LossByChange"])
    folder.rename(tmp_path / "out" / "tried-seeds-0")
    options = [
        str(spec),
        "--set",
        "seeds=[0]",
        "--plugin",
        str(parts / "my_figure.py"),
        "--out",
        str(tmp_path / "out"),
    ]
    listed = ablate("figure", *options)
    assert listed.stdout.startswith("layer_change-pwcca "), listed.output
    result = ablate("figure", tmp_path / "out" / "tried-seeds-0", "--set", "seeds=[0]")
    sentence = "Error: --set needs a spec, but you named a folder of results; leave --set out, or name the spec."
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, sentence)


def test_a_name_that_is_no_figure_is_said_with_the_nearest(page_panels):
    assert error_text(ResultsError, panel_called, "layer_change-pwca", page_panels) == (
        "layer_change-pwca is not a figure of this experiment; did you mean layer_change-pwcca? `ablate figure` "
        "without a name lists them."
    )
    assert panel_called("layer_change-pwcca", page_panels).metric == "pwcca"


def test_places_are_written_in_hundredths_of_a_point_and_words_as_they_are():
    ax = Figure(figsize=(3, 2)).subplots()
    ax.plot([0.1234567, 0.7654321], [1 / 3, 2 / 3])
    ax.set_title("x = 0.1234567")
    svg = render(ax.figure, name="places")
    assert "x = 0.1234567" in svg
    assert not re.search(r' (d|x|y)="[^"]*\.\d{3}', svg)
    assert "rotate(-0 " not in svg
    assert re.search(r' d="M \d+\.\d\d \d+\.\d\d', svg)


def test_a_repeated_style_is_a_class_and_every_shape_keeps_its_style(monkeypatch):
    def drawn():
        ax = Figure(figsize=(3, 2)).subplots()
        for height in (1, 2, 3):
            ax.plot([0, 1, 2], [height] * 3, marker="o", color=f"C{height % 2}")
        ax.set_title('style="fill: red" style="fill: red" class="s0"')  # words are no styles
        return render(ax.figure, name="styles")

    named = drawn()
    monkeypatch.setattr(files, "_named_styles", lambda svg: svg)
    plain = drawn()
    assert len(named) < 0.9 * len(plain)
    tags = re.findall(r"<[^>]*>", named)
    styles = re.findall(r'style="([^"]*)"', " ".join(tags))
    assert len(styles) == len(set(styles))
    assert with_styles(named) == plain
