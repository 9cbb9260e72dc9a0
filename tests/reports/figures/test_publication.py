"""Figures for papers and slides: their sizes, fonts and names."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from matplotlib.image import imread

from ablations.cli import main
from ablations.errors import ResultsError
from reports import folder as experiment_folder
from reports.claims.judge import judge_claims
from reports.figures.publication import DPI, MEDIA, drawn, panel_called, save
from reports.page.content import page_figures
from tests.support.fake_experiment import ARMS, rows, write
from tests.support.spec_files import write_spec


@pytest.fixture(scope="module")
def panels(tmp_path_factory):
    longer = [row | {"arm": "a-longer-name-of-an-arm" if row["arm"] == "mt" else row["arm"]} for row in rows()]
    folder = write(tmp_path_factory.mktemp("it"), table_rows=longer)
    experiment = experiment_folder.read(folder)
    experiment = experiment._replace(table=experiment_folder.results.read(folder / "results.parquet"))
    arms = [arm if arm != "mt" else "a-longer-name-of-an-arm" for arm in ARMS]
    experiment = experiment._replace(plan=experiment.plan.model_copy(update={"arms": arms}))
    return [panel for one in page_figures(judge_claims(experiment))[0] for panel in one.panels]


def test_files_have_the_width_of_their_medium_and_fonts_that_publishers_take(panels, tmp_path):
    pdf, png = save(panels[0], tmp_path / "print", medium="paper")
    assert (pdf.name, png.name) == (f"{panels[0].name}-paper.pdf", f"{panels[0].name}-paper.png")
    content = pdf.read_bytes()
    assert b"/CIDFontType2" in content
    assert b"/Type3" not in content
    assert imread(png).shape[1] == pytest.approx(3.03 * DPI, abs=1)


@pytest.mark.parametrize("medium", MEDIA)
def test_names_are_at_the_ends_of_lines_or_in_a_legend(panels, medium):
    figure = drawn(panels[0], MEDIA[medium])
    ends = [text.get_text() for ax in figure.axes for text in ax.texts if text.get_gid() == "end"]
    legend = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert bool(ends) != bool(legend)
    names = {re.sub(r"\s", "", name) for name in (*ends, *legend)}
    assert {"mlm", "clm", "a-longer-name-of-an-arm", "untrained"} <= names
    assert bool(legend) == (medium != "paper-wide")
    assert figure.get_figwidth() == MEDIA[medium].inches[0]


def test_letters_are_readable_in_print(panels):
    figure = drawn(panels[0], MEDIA["paper"])
    figure.canvas.draw()
    texts = [text for ax in figure.axes for text in (ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels())]
    assert min(text.get_size() for text in [*texts, *figure.legends[0].get_texts()]) >= 6.5


def test_the_command_lists_figures_and_writes_one(tmp_path):
    folder = write(tmp_path)
    listed = CliRunner().invoke(main, ["figure", str(folder)]).stdout.splitlines()
    assert "layer_change-pwcca " in listed[[line.split()[0] for line in listed].index("layer_change-pwcca")]
    assert all(re.fullmatch(r"\S+ +Figure \d+[a-z]\. .+: .+", line) for line in listed)
    result = CliRunner().invoke(main, ["figure", str(folder), "layer_change-pwcca", "--for", "slides"])
    files = [folder / f"print/layer_change-pwcca-slides.{ending}" for ending in ("pdf", "png")]
    assert result.stdout.splitlines() == [str(file) for file in files]
    assert all(file.is_file() for file in files)
    result = CliRunner().invoke(main, ["figure", str(folder), "learning-gain", "--for", "slides", "--wide"])
    assert (result.exit_code, "Error: --wide is for papers; leave it out." in result.stderr) == (2, True)


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
    listed = CliRunner().invoke(main, ["figure", *options])
    assert listed.stdout.startswith("layer_change-pwcca "), listed.output
    result = CliRunner().invoke(main, ["figure", str(tmp_path / "out" / "tried-seeds-0"), "--set", "seeds=[0]"])
    sentence = "Error: --set is for a spec, and a folder of results is named; leave one out."
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (2, sentence)


def test_a_name_that_is_no_figure_is_said_with_the_nearest(panels):
    with pytest.raises(ResultsError) as caught:
        panel_called("layer_change-pwca", panels)
    assert str(caught.value) == (
        "layer_change-pwca is no figure of this experiment; did you mean layer_change-pwcca? `ablate figure` "
        "without a name lists them."
    )
    assert panel_called("layer_change-pwcca", panels).metric == "pwcca"
