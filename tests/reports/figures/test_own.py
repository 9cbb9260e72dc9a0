"""A figure of one's own on a page: its picture, its CSV, its numbers in report.json, and what fails in it."""

import hashlib
import io
import json
import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from ablations.cli import main
from ablations.commands.results import show_page
from ablations.spec.figures import OwnFigure
from lightning_modules import plugins
from reports.page import page
from tests.support.command_line import ablate
from tests.support.fake_experiment import ARMS, CHANGE, rows, write

TEMPLATE = Path(__file__).parents[3] / "docs" / "plugins" / "my_figure.py"
NAME = "my_figure_py_LossByChange"
CARD = """
from ablations.spec.figures import OwnFigure

def rows(table):
    return {rows}

def draw(rows, figure):
    {draw}

LossByChange = OwnFigure(title="mine", how_to_read=("read it",), rows=rows, draw=draw)
"""


def little(out):
    """Write an experiment whose page has two panels, as most tests here need no more."""
    arms, seeds = ("mlm", "clm"), (0, 1)
    kept = [row for row in rows(arms, seeds) if row["metric"] in ("pwcca", "loss")]
    return write(out, arms=arms, seeds=seeds, table_rows=kept)


def planned(folder, sources):
    """Name a figure of each source, by the name of its file, in the plan of an experiment, and give their files
    as --plugin does; returns the files."""
    paths = {name: folder.parent / name for name in sources}
    figures = {}
    for name, source in sources.items():
        paths[name].write_text(source)
        record = {"path": str(paths[name]), "sha256": hashlib.sha256(source.encode()).hexdigest()}
        figures[f"{name}:LossByChange"] = record
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"figures": figures}))
    plugins.give_files(paths.values())
    return paths


def of_plugins(paths):
    """Return the options that give the files."""
    return [word for path in paths.values() for word in ("--plugin", str(path))]


@pytest.fixture(autouse=True)
def nothing_given():
    """A folder of results alone, as in a command without --plugin."""
    plugins.look_beside(None)
    yield
    plugins.give_files(())


def test_the_template_is_the_last_figure_with_picture_csv_and_json(tmp_path):
    folder = write(tmp_path, table_rows=[row for row in rows() if row["metric"] in ("pwcca", "loss")])
    paths = planned(folder, {"my_figure.py": TEMPLATE.read_text()})
    html = page.write(folder).read_text()
    figure = json.loads((folder / "report.json").read_text())["figures"][-1]
    assert (figure["name"], figure["title"]) == (NAME, "Validation loss and change of tokens")
    assert figure["caption"] == (
        "The authors of this experiment wrote this figure. Its source says how it is drawn."
    )
    (panel,) = figure["panels"]
    csv = pd.read_csv(io.StringIO((folder / panel["csv"]).read_text()))
    pd.testing.assert_frame_equal(csv, pd.DataFrame(panel["rows"]), rtol=1e-11)  # twelve digits
    assert csv.columns.tolist() == ["arm", "seed", "step", "change", "loss"]
    assert csv.groupby("arm").size().to_dict() == dict.fromkeys(ARMS, 3)
    change = csv.groupby("arm")["change"].mean()
    for arm in ARMS:  # numbers that were invented with 4% of noise each
        assert change[arm] == pytest.approx(sum(CHANGE[arm]), rel=0.1)
    svg = (folder / panel["svg"]).read_text()
    assert "change over all layers (PWCCA distance)" in svg
    assert f'<section aria-labelledby="{NAME}">' in html
    assert f"{NAME}-curves" not in html, "there are no curves"
    assert "Each point is a run at its last step" in (folder / "report.md").read_text()
    given = of_plugins(paths)
    listed = CliRunner().invoke(main, ["figure", str(folder), *given], catch_exceptions=False).output
    name, _, title = listed.splitlines()[-1].partition("  Figure ")
    assert (name.strip(), title[2:]) == (NAME, ". Validation loss and change of tokens")
    for called in (NAME, "my_figure.py:LossByChange"):
        drawn = CliRunner().invoke(
            main, ["figure", str(folder), called, *given, "--out", str(folder.parent)], catch_exceptions=False
        )
        assert drawn.exit_code == 0
        assert drawn.output.splitlines()[0] == str(folder / "print" / f"{NAME}-paper.pdf")


def test_figures_are_numbered_in_the_order_of_the_page(tmp_path, undrawn):
    """Figures of plugins were 6 and 7, and stood before figure 5, which is about tasks."""
    probes = [
        row | {"measure": "probing", "metric": "accuracy", "group": "tense"}
        for row in rows()
        if row["metric"] == "plug_in"
    ]
    folder = write(tmp_path, table_rows=[*rows(), *probes])
    planned(folder, {"my_figure.py": TEMPLATE.read_text()})
    titles = re.findall(r">(Figure \d+\. [^<]*)</h", page.write(folder).read_text())
    assert [title.split(".")[0] for title in titles] == [f"Figure {i + 1}" for i in range(len(titles))]
    assert titles[-2:] == [
        f"Figure {len(titles) - 1}. Validation loss and change of tokens",
        f"Figure {len(titles)}. What a linear probe reads from each layer",
    ]


def failing(folder, capsys):
    """Write the page; returns its notices on figures, and what the terminal says of them."""
    path = page.write(folder)
    assert not show_page(path)
    notices = json.loads((folder / "report.json").read_text())["notices"]
    return [notice for notice in notices if notice["kind"] == "figure"], capsys.readouterr()


FAILING = {
    "rows": ("table['loss']", "pass", "{path}, line 5: KeyError: 'loss'; correct the file."),
    "draw": (
        "table",
        "figure.plot()",
        "{path}, line 8: AttributeError: 'Figure' object has no attribute 'plot'; correct the file.",
    ),
    "exit": ("table", "__import__('sys').exit(3)", "{path}, line 8: SystemExit: 3; correct the file."),
    "no_table": (
        "7",
        "pass",
        "rows must return a DataFrame, but its result is of the type int; correct the file.",
    ),
    # What fails in our code and not in a line of the file: a formula that is laid out, rows that are no JSON.
    "formula": ("table", "figure.suptitle('$\\\\nothing$')", "{path}: ValueError: \\nothing; correct the file."),
    "columns": (
        "table[['arm', 'arm']]",
        "pass",
        "{path}: ValueError: DataFrame columns must be unique for orient='records'; correct the file.",
    ),
}


def test_figures_that_fail_are_notices_and_all_else_is_drawn(tmp_path, capsys):
    folder = little(tmp_path)
    page.write(folder)
    before = (folder / "report.json").read_text()
    sources = {f"{name}.py": CARD.format(rows=rows, draw=draw) for name, (rows, draw, _) in FAILING.items()}
    paths = planned(folder, sources)
    expected = {
        name: f"{name}.py:LossByChange: " + sentence.format(path=paths[f"{name}.py"])
        for name, (_, _, sentence) in FAILING.items()
    }
    notices, terminal = failing(folder, capsys)
    assert notices == [{"kind": "figure", "text": text, "group": "wrong"} for text in expected.values()]
    assert terminal.err == "".join(f"failed: {text}\n" for text in expected.values())
    html = (folder / "report.html").read_text()
    assert all(html.count(f"{name}.py:LossByChange: ") == 1 for name in FAILING)
    assert json.loads((folder / "report.json").read_text())["figures"] == json.loads(before)["figures"]
    given = of_plugins(paths)
    listed = ablate("figure", folder, *given)
    assert (listed.exit_code, listed.stderr) == (1, terminal.err)
    assert "layer_change-pwcca" in listed.stdout
    for name, text in expected.items():
        result = ablate("figure", folder, f"{name}_py_LossByChange", *given)
        assert (result.exit_code != 0, result.stderr) == (True, f"{text}\n")
    assert ablate("figure", folder, "layer_change-pwcca").exit_code == 0


def test_letters_that_the_fonts_lack_are_named_as_they_are_boxes_in_print(tmp_path):
    folder = little(tmp_path)
    letters = CARD.format(rows="table", draw="figure.text(0.1, 0.5, '\U00013000 a \U0001200b')")
    given = of_plugins(planned(folder, {"my_figure.py": letters}))
    page.write(folder)
    svg = f"figures/{NAME}.svg"
    assert "\U00013000 a \U0001200b" in (folder / svg).read_text()
    result = ablate("figure", folder, NAME, *given, "--out", folder.parent)
    assert result.exit_code == 0
    assert result.stderr == (
        "The fonts here have no \U0001200b \U00013000, so these are empty boxes in both files; use "
        f"{svg} of the page, where they are text that a browser or Inkscape draws with its fonts.\n"
    )
    assert ablate("figure", folder, "layer_change-pwcca", "--out", folder.parent).stderr == ""


def test_a_figure_without_rows_is_a_notice_and_no_failure(tmp_path, capsys):
    folder = little(tmp_path)
    planned(folder, {"my_figure.py": CARD.format(rows="table[:0]", draw="pass")})
    assert show_page(page.write(folder))
    text = "No figure my_figure.py:LossByChange: it returns no rows from this table of results."
    assert {"kind": "measures", "text": text, "group": "as planned"} in json.loads(
        (folder / "report.json").read_text()
    )["notices"]


def test_a_figure_behind_one_that_fails_keeps_its_place(tmp_path, capsys):
    folder = little(tmp_path)
    bad = CARD.format(rows="table['loss']", draw="pass")
    planned(folder, {"my_figure.py": bad, "good.py": TEMPLATE.read_text()})
    notices, _ = failing(folder, capsys)
    assert len(notices) == 1
    figures = json.loads((folder / "report.json").read_text())["figures"]
    assert [figure["number"] for figure in figures] == list(range(1, len(figures) + 1))
    assert figures[-1]["name"] == "good_py_LossByChange"


def test_a_source_that_is_not_that_of_the_plan_is_not_executed(tmp_path, capsys):
    folder = little(tmp_path)
    paths = planned(folder, {"my_figure.py": CARD.format(rows="table", draw="pass")})
    paths["my_figure.py"].write_text("raise SystemExit")
    (notice,), _ = failing(folder, capsys)
    assert "has changed since the run was planned" in notice["text"]


@pytest.mark.parametrize("verb", ["report", "figure", "diff"])
@pytest.mark.parametrize("place", ["path of the plan", "folder of the results", "folder of the command"])
def test_a_folder_of_results_cannot_choose_what_is_executed(tmp_path, monkeypatch, verb, place):
    """Somebody else may have made the folder: `report` executed the file that its plan named, and `diff` one
    beside its spec."""
    folder, canary = little(tmp_path / "from"), tmp_path / "canary"
    (path,) = planned(folder, {"evil.py": f"import pathlib; pathlib.Path({str(canary)!r}).touch()"}).values()
    if place == "folder of the results":
        path.rename(folder / "evil.py")
    elif place == "folder of the command":
        monkeypatch.chdir(path.parent)
    arms = "arms: {mlm: {objective: {kind: masked_lm}}}\nseeds: [0]\nmeasures: [validation, 'evil.py:Rank']\n"
    spec = f"name: grid\nversion: 1\ndata: {{kind: language}}\n{arms}figures: ['evil.py:LossByChange']\n"
    (folder / "spec.yaml").write_text(spec)
    arguments = [str(folder), str(folder)] if verb == "diff" else [str(folder)]
    result = ablate(verb, *arguments, "--out", tmp_path / "out")
    assert not canary.exists()
    sentence = (
        "evil.py:LossByChange: a file that only a folder of results names is not read; if you trust it, name it "
        "with --plugin."
    )
    if verb == "diff":
        assert (result.exit_code, result.stderr) == (0, "")
    else:
        assert (result.exit_code, result.stderr) == (1, f"failed: {sentence}\n")


def test_one_paragraph_in_place_of_several_is_refused():
    with pytest.raises(
        TypeError, match="how_to_read must be a tuple of paragraphs, but is one text; put it into a tuple"
    ):
        OwnFigure(title="mine", how_to_read=("read it"), rows=len, draw=print)


def test_a_figure_cannot_change_the_table_of_others(tmp_path):
    """The rows that it gets are its own."""
    reports = []
    for name, body in (("reads", "table[:0]"), ("changes", "table.__setitem__('value', 0.0) or table[:0]")):
        folder = little(tmp_path / name)
        planned(folder, {"my_figure.py": CARD.format(rows=body, draw="pass")})
        page.write(folder)
        reports.append((folder / "report.md").read_text())
    assert reports[0] == reports[1]
