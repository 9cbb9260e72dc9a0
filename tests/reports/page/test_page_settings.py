"""Scores by a setting, on the page: the figure, its tables and its data."""

import io
import itertools
import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablations import results
from reports.folder import read
from reports.page import page
from reports.scores.runs import RUN_SCORES, compared_arms, joined
from reports.scores.tables import score_tables
from reports.words import signed_interval
from tests.support.fake_experiment import ARMS, folder_name, rows, settings, write
from tests.support.fake_scores import score_rows
from tests.support.html_page import Page, strict_json
from tests.support.remembered_drawings import empty_drawings

RATIOS = {"clm": 0.05, "mlm": 0.15, "mt": 0.8, "untrained": 0.15}
NAME = "by_objective_masking_ratio"
TITLE = "Scores by masking ratio"


def made(out, *, change, arms=ARMS, table_rows=None):
    """The experiment of other tests, its arms masked LM that differ in what `change` makes of their settings."""
    folder = write(
        out, arms=arms, table_rows=[*rows(arms), *score_rows(arms)] if table_rows is None else table_rows
    )
    for arm, seed in itertools.product(arms, (0, 1, 2)):
        path = out / "runs" / folder_name(arm, seed) / "run.json"
        own = settings(arm, seed)
        own["objective"] = {"kind": "masked_lm"}
        change(arm, own)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"settings": own}), encoding="utf-8")
    return folder


def by_ratio(arm, own):
    own["objective"]["masking"] = {"ratio": RATIOS[arm]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("ratio"), change=by_ratio)
    with empty_drawings():
        page.write(folder)
    return folder


@pytest.fixture(scope="module")
def figure(folder):
    (figure,) = [f for f in strict_json(folder / "report.json")["figures"] if f["kind"] == "settings"]
    return figure


def test_the_figure_has_a_panel_for_every_score_and_stands_among_the_layers(figure, folder):
    assert (figure["name"], figure["title"], figure["section"]) == (NAME, TITLE, "layers")
    assert [panel["title"] for panel in figure["panels"]] == [score.title for score in RUN_SCORES]
    assert (figure["setting"], figure["arms"]) == ("objective.masking.ratio", ["clm", "mlm", "mt"])
    names = [f["name"] for f in strict_json(folder / "report.json")["figures"]]
    assert names.index("token_information") < names.index(NAME) < names.index("probes")


def test_every_score_is_that_of_the_table_of_runs(figure, folder):
    """Read on another way for the table that joins everything, whose means are over the tasks of all four arms."""
    told = strict_json(folder / "report.json")
    table = joined(read(folder).table, told["runs"])
    names = ("gain", "change", "information_top", "minimal_pairs", "fine_tuning", "frozen_features", "probing")
    for panel, name in zip(figure["panels"], names, strict=True):
        for run in panel["runs"]:
            (row,) = [row for row in table["rows"] if (row["arm"], row["seed"]) == (run["arm"], run["seed"])]
            assert run["value"] == pytest.approx(row[name], rel=1e-12)  # float64 algebra


def test_the_floor_of_a_sum_is_the_sum_of_floors(figure, folder):
    table = results.read(folder / "results.parquet")
    own = table[(table["measure"] == "layer_change") & (table["metric"] == "pwcca") & (table["layer"] >= 1)]
    expected = own.groupby(["arm", "seed"])["floor"].sum()
    change = figure["panels"][1]
    for run in change["runs"]:
        assert run["floor"] == pytest.approx(expected[run["arm"], run["seed"]])
    tasks = table[(table["measure"] == "fine_tuning") & (table["metric"] == "score") & (table["arm"] == "mlm")]
    tasks = tasks[~tasks["group"].str.contains("[@/]") & (tasks["seed"] == 0)]
    (run,) = [run for run in figure["panels"][4]["runs"] if (run["arm"], run["seed"]) == ("mlm", 0)]
    assert run["floor"] == pytest.approx(tasks["floor"].mean())
    assert run["n"] == tasks["n"].min()


def test_the_table_has_a_row_an_arm_along_the_setting(shown, figure):
    header, body = shown.table(f"{TITLE}: mean over seeds")
    assert header[:4] == ["Arm", "Masking ratio", "Seeds", "a. Gain over no context (nats)"]
    assert [row[:3] for row in body] == [
        ["clm", "0.05", "3"],
        ["mlm", "0.15", "3"],
        ["mt", "0.8", "3"],
        ["untrained", "untrained", "3"],
    ]
    values = [run["value"] for run in figure["panels"][0]["runs"] if run["arm"] == "mt"]
    assert body[2][3].startswith(f"{np.mean(values):.3f} ± ")
    assert body[3][3] == "\N{EN DASH}"  # what training brings is no question without training


def test_the_numbers_of_a_panel_stand_by_their_value(shown):
    header, body = shown.table("Change of layers, sum: mean over seeds")
    assert header == ["Arm", "Masking ratio", "Mean", "Chance level", "Seeds"]
    assert [row[1] for row in body] == ["0.05", "0.15", "0.8", "untrained"]


def test_the_data_are_beside_the_figure(folder, figure):
    for panel in figure["panels"]:
        data = pd.read_csv(io.StringIO((folder / panel["csv"]).read_text(encoding="utf-8")))
        assert len(data) == len(panel["runs"])
        assert panel["csv"] == f"figures/{panel['measure']}-{panel['metric']}-{NAME}.csv"
        assert set(data["setting"]) == {"objective.masking.ratio"}


def test_it_says_what_is_compared_and_over_which_tasks(shown, figure):
    assert "The arms compared here differ in one setting (masking ratio) and in nothing else." in shown.text
    assert "The broad pale line marks mlm, the first of these arms in the spec." in shown.text
    assert "Minimal pairs: mean over blimp and lm_syneval." in figure["notes"]
    assert any(note.startswith("Fine-tuning: mean over cola, ") for note in figure["notes"])
    assert figure["caption"].startswith("Small dots are seeds. The marks beside them are their means")


def test_an_arm_without_a_score_is_named(figure):
    assert {panel["measure"]: panel["without_rows"] for panel in figure["panels"]}["minimal_pairs"] == ["mt"]


def test_markdown_says_every_mean(folder, figure):
    text = (folder / "report.md").read_text(encoding="utf-8")
    assert f"{TITLE}." in text
    assert f"{figure['panels'][0]['description']}" in text


def test_arms_that_differ_in_more_have_no_such_figure(tmp_path, undrawn):
    def two(arm, own):
        by_ratio(arm, own)
        own["encoder"]["num_hidden_layers"] = ARMS.index(arm) + 1

    three = ("mlm", "clm", "mt")
    folder = made(tmp_path, change=two, arms=three, table_rows=rows(three))
    page.write(folder)
    assert all(figure["kind"] != "settings" for figure in strict_json(folder / "report.json")["figures"])


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Arms of which two differ in more than one setting."""

    def two(arm, own):
        by_ratio(arm, own)
        own["encoder"]["num_hidden_layers"] = ARMS.index(arm) + 1

    folder = made(tmp_path_factory.mktemp("apart"), change=two)
    with empty_drawings():
        page.write(folder)
    return folder


def test_arms_are_compared_with_the_first_within_each_seed_unless_a_table_of_a_setting_has_it_already(
    folder, apart
):
    assert strict_json(folder / "report.json")["compared"]["in_figure"]
    assert "## Arms compared" not in (folder / "report.md").read_text("utf-8")
    assert "Arms compared" not in (folder / "report.html").read_text("utf-8")
    assert (folder / "tables/compared.tex").is_file()  # papers have no room for the figure of each setting
    compared = strict_json(apart / "report.json")["compared"]
    assert compared["base"] == "mlm"
    table = results.read(apart / "results.parquet")
    scores = table[(table["measure"] == "fine_tuning") & (table["metric"] == "score")]
    scores = scores[~scores["group"].str.contains("[@/]")]
    by_task = scores.pivot(index=["arm", "seed"], columns="group", values="value")
    means = by_task.dropna(axis=1).mean(axis=1).unstack("arm")  # over the tasks that every run has
    for row in compared["rows"]:
        cell = row["cells"]["Fine-tuning"]
        assert cell["mean"] == pytest.approx(means[row["arm"]].mean())
        if row["arm"] == "mlm":
            assert cell["difference"] is None
            continue
        paired = stats.ttest_rel(means[row["arm"]], means["mlm"]).confidence_interval(0.95)
        assert (cell["difference"]["low"], cell["difference"]["high"]) == pytest.approx(tuple(paired))
    header, body = Page(apart / "report.html").table("Scores at the last step")
    assert header[:3] == ["Arm", "Seeds", "Gain over no context (nats)"]
    assert [row[0] for row in body] == list(ARMS)
    assert "## Arms compared" in (apart / "report.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("seeds", "says"), [((0,), False), ((0, 1), True)])
def test_the_caption_speaks_of_intervals_only_with_several_seeds(tmp_path, undrawn, seeds, says):
    folder = write(tmp_path, arms=("mlm", "clm"), seeds=seeds)
    page.write(folder)
    text = (folder / "report.md").read_text(encoding="utf-8")
    caption = text.partition("## Arms compared")[2].partition("|")[0]
    assert "In brackets: difference from mlm" in caption
    words = ("± half its 95% t interval", "within each seed", "the intervals of claims")
    assert [word in caption for word in words] == [says] * 3


def test_differences_in_markdown_are_escaped_once(apart):
    """Rendered, two backslashes before a sign are one: the page of GitHub showed "(\\+0.047 ± 0.052)"."""
    text = (apart / "report.md").read_text(encoding="utf-8")
    compared = strict_json(apart / "report.json")["compared"]
    digits = {column["title"]: column["digits"] for column in compared["columns"]}
    differences = [
        signed_interval(cell["difference"], digits[title])
        for row in compared["rows"]
        for title, cell in row["cells"].items()
        if cell["difference"]
    ]
    assert any(written.startswith("+") for written in differences)
    assert all(f" ({page.escaped(written)})" in text for written in differences)
    assert "\\\\" not in text


def test_gains_of_arms_that_predict_other_things_are_not_subtracted(apart):
    table = results.read(apart / "results.parquet")
    is_loss = (table["measure"] == "validation") & (table["metric"] == "loss")
    table.loc[is_loss & (table["arm"] == "mt"), "n"] += 7
    by_arm = {row["arm"]: row["cells"]["Gain over no context"] for row in compared_arms(table, ARMS)["rows"]}
    assert by_arm["mt"]["difference"] is None
    assert by_arm["clm"]["difference"]["mean"] == pytest.approx(by_arm["clm"]["mean"] - by_arm["mlm"]["mean"])


def test_scores_of_pairs_of_different_numbers_are_not_subtracted():
    table = results.table(list(rows()))
    losses = table[(table["measure"] == "validation") & (table["metric"] == "loss")]
    pairs = losses.assign(measure="minimal_pairs", metric="accuracy", group="blimp", n=160, floor=0.5, layer=pd.NA)
    pairs.loc[pairs["arm"] == "mt", "n"] = 62
    compared = compared_arms(pairs, ARMS)
    by_arm = {row["arm"]: row["cells"]["Minimal pairs"]["difference"] for row in compared["rows"]}
    assert by_arm["mt"] is None
    assert by_arm["clm"] is not None
    assert compared["columns"][0]["note"] == (
        "Minimal pairs: mean over blimp. Minimal pairs: no difference between arms scored on different examples."
    )
    (of_task,) = score_tables(pairs, arms=ARMS)
    by_arm = {arm: cell["difference"] for arm, cell in of_task["rows"][0]["arms"].items()}
    assert by_arm["mt"] is None
    assert by_arm["clm"] is not None


SUM, AT_THE_TOP = "Change of layers, sum", "Information about the input token at the top"


@pytest.mark.parametrize(
    ("other", "left_out"),
    [
        ("nothing", []),
        ("number of tokens", [SUM, AT_THE_TOP]),
        ("entropy", [SUM, AT_THE_TOP]),
        ("text", [SUM, AT_THE_TOP]),
        ("number of layers", [SUM]),
    ],
)
def test_numbers_of_layers_are_not_subtracted_if_tokens_or_the_number_of_layers_differ(tmp_path, other, left_out):
    folder = made(tmp_path, change=by_ratio)
    for path in (tmp_path / "runs").glob("*/run.json"):
        about = json.loads(path.read_text())
        is_other = other == "text" and about["arm"] == "mt"
        path.write_text(json.dumps(about | {"tokens": "fedcba9876" if is_other else "0123456789"}))
    table = read(folder).table
    of_mt = table["layer"].notna() & (table["arm"] == "mt")
    table.loc[of_mt, "n"] += other == "number of tokens"
    table.loc[of_mt, "ceiling"] += other == "entropy"
    table = table[~(of_mt & table["layer_to"].eq(2).fillna(False) & (other == "number of layers"))]
    compared = compared_arms(table, ARMS)
    cells = {row["arm"]: row["cells"] for row in compared["rows"]}
    assert [title for title in (SUM, AT_THE_TOP) if cells["mt"][title]["difference"] is None] == left_out
    assert all(cells["clm"][title]["difference"] for title in (SUM, AT_THE_TOP))
    noted = [column["title"] for column in compared["columns"] if "no difference between arms" in column["note"]]
    assert noted == ["Gain over no context", *left_out]


def test_later_figures_say_only_what_is_new(tmp_path, undrawn):
    def two(arm, own):
        own["training"]["max_steps"] = 500
        own["encoder"]["num_hidden_layers"] = 2 if arm == "clm" else 6
        own["encoder"]["norm"] = "pre" if arm == "mt" else "post"

    three = ("mlm", "clm", "mt")
    folder = made(tmp_path, change=two, arms=three, table_rows=rows(three))
    page.write(folder)
    drawn = [f for f in strict_json(folder / "report.json")["figures"] if f["kind"] == "settings"]
    assert [f["setting"] for f in drawn] == ["encoder.num_hidden_layers", "encoder.norm"]
    assert drawn[1]["how_to_read"] == [
        "The arms compared here differ in one setting (place of the layer norm) and in nothing else. Read it "
        "like the scores by number of layers."
    ]


def test_hostile_settings_are_text(tmp_path):
    def hostile(arm, own):
        own["training"]["<b>&../../x"] = "<script>alert(1)</script>$\\x$" if arm == "mt" else "plain"

    folder = made(tmp_path, change=hostile, arms=("mlm", "mt"), table_rows=[*rows(("mlm", "mt"))])
    source = page.write(folder).read_text(encoding="utf-8")
    assert "<b>" not in source
    assert "<script>alert" not in source
    (figure,) = [f for f in strict_json(folder / "report.json")["figures"] if f["kind"] == "settings"]
    assert figure["name"] == "by_training_b_x"
    assert all((folder / panel["svg"]).parent == folder / "figures" for panel in figure["panels"])
