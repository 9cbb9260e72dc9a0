"""What a page says about tasks: its section, the curves, the joined table."""

import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from ablations import results
from reports.figures.by_arm import MOST_TASKS, TASKS_IN_SIGHT, by_arm
from reports.figures.curves import common_steps
from reports.folder import is_fresh
from reports.page import page
from reports.scores.runs import RUN_SCORES, joined, run_numbers, task_scores
from reports.scores.tables import score_tables
from tests.support.fake_experiment import ARMS, LAYERS, figure_entries, plan, rows, write
from tests.support.fake_scores import PAIRS, STEPS, TASKS, run_of
from tests.support.html_page import HOSTILE, MINUS, NONE, Page, strict_json
from tests.support.score_page import made
from tests.support.task_scores import row_of, score


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("tasks"))
    page.write(folder)
    return folder


@pytest.fixture(scope="module")
def every(scores):
    return {figure["name"]: figure for figure in figure_entries(scores, arms=ARMS)}


# The page --------------------------------------------------------------------------------------------


def test_the_section_has_its_tables_its_figures_and_the_runs_in_this_order(shown):
    headings = [data for tag, data in shown.texts if tag == "h2"]
    assert [heading.partition(". ")[2] or heading for heading in headings] == [
        *("Change between consecutive layers", "What was run", "Contents", "Arms compared"),
        *("Information about the input token", "Tasks"),
        *("Scores by number of training examples", "Masked tokens and their independence of each other"),
        *("Runs", "Pre-training, layers and tasks together", "Provenance", "Spec"),
    ]
    tables = [data for tag, data in shown.texts if tag == "h3" and data.startswith("Table")]
    assert tables == ["Table 1. Fine-tuning", "Table 2. Minimal pairs", "Table 3. Trees without supervision"]
    linked = [a["href"] for tag, a in shown.tags if tag == "a" and a["href"].startswith("#")]
    assert linked[: len(headings) - 1] == [f"#{a['aria-labelledby']}" for t, a in shown.tags if t == "section"]
    assert linked[len(headings) - 1 :] == ["#table-fine_tuning", "#table-minimal_pairs", "#table-parsing"]


def test_names_are_unique_references_hold_and_rows_are_whole(shown):
    assert "table-fine_tuning" in shown.names


def test_a_table_of_scores_as_it_is_read(folder, shown, twin):
    header, body = shown.table("Table 1: scores times 100, mean over seeds ± half its 95% t interval; n counts")
    assert header == ["Task", "Chance", "TF-IDF or words", *ARMS, "n"]
    assert [row[0] for row in body] == [
        *("cola Matthews correlation", "words shuffled", "accuracy", "rte accuracy", "words shuffled"),
    ]
    cells = row_of(twin["tasks"][0], "cola")["arms"]
    expected = f"{100 * cells['mlm']['mean']:.1f} ± {100 * (cells['mlm']['high'] - cells['mlm']['mean']):.1f}"
    assert body[0][:4] == ["cola Matthews correlation", "0.0", "20.0", expected]
    difference = cells["clm"]["difference"]
    half = 100 * (difference["high"] - difference["mean"])
    signed = f"{100 * difference['mean']:+.1f} ± {half:.1f}".replace("-", MINUS)
    assert body[0][4].endswith(signed)
    assert f" ({signed})" in (folder / "report.md").read_text()
    assert "In grey: difference of the main score from mlm within each seed." in shown.text
    assert body[0][-1] == "872"
    assert body[1][2] == NONE


def test_every_verdict_is_marked_in_sight_and_in_words(shown, twin):
    cells = [
        cell
        for table in twin["tasks"]
        for part in (table, *table["folded"])
        for row in part["rows"]
        for cell in row["arms"].values()
    ]
    assert {cell["verdict"] for cell in cells} == {"above", "at", "below", ""}
    for sign, kind in (("†", "at"), ("‡", "below")):
        marked = [cell for table in shown.tables for row in table["rows"] for cell in row if sign in cell]
        assert len(marked) == sum(cell["verdict"] == kind for cell in cells)
        assert all(
            re.search(rf"{sign} \({kind} (chance|the adjacency chain)\)($| ?[+{MINUS}\d])", cell)
            for cell in marked
        )
    titles = [a["title"] for _, a in shown.tags if a.get("class") == "mark"]
    assert len(titles) == sum(cell["verdict"] in ("at", "below") for cell in cells)
    for table in twin["tasks"]:
        assert " ".join(table["says"]) in shown.text


def test_what_is_folded_and_what_is_explained(shown, twin):
    summaries = [data for tag, data in shown.texts if tag == "summary"]
    assert "blimp, by paradigm (2 rows)" in summaries
    assert "By number of sweeps: has sampling converged? (8 rows)" in summaries
    for table in twin["tasks"]:
        assert all(paragraph in shown.text for paragraph in table["how_to_read"])
    assert "No arm is marked as the best." in shown.text
    assert not [tag for tag, _ in shown.tags if tag in ("b", "mark")]


def test_tables_are_files_too_and_their_loss_is_noticed(folder, twin, tmp_path):
    for table in twin["tasks"]:
        frame = pd.read_csv(folder / table["csv"])
        cells = [row["arms"] for part in (table, *table["folded"]) for row in part["rows"]]
        means = [cell["mean"] for arms in cells for cell in arms.values()]
        assert sorted(frame.loc[frame["arm"].notna(), "mean"]) == pytest.approx(sorted(means))
        lows = [cell["difference"]["low"] for arms in cells for cell in arms.values() if cell["difference"]]
        assert sorted(frame["difference_low"].dropna()) == pytest.approx(sorted(lows))
        trees = ("ud_en_ewt", "sweeps=250", "sweeps=500", "sweeps=1000")
        assert set(frame["task"].dropna()) <= {*TASKS, *PAIRS, *trees}
        assert pd.read_csv(folder / table["csv"], dtype=str)["n"].dropna().str.isdecimal().all()
    runs = pd.read_csv(folder / "figures/joined.csv", dtype={"run_id": str})
    assert list(runs["run_id"]) == [row["run_id"] for row in twin["joined"]["rows"]]
    assert is_fresh(folder)
    (folder / "figures/table-fine_tuning.csv").rename(tmp_path / "aside")
    assert not is_fresh(folder)
    (tmp_path / "aside").rename(folder / "figures/table-fine_tuning.csv")


def test_the_file_of_a_table_has_the_n_of_each_arm():
    made = [score("mlm", seed, 0.8 + seed / 100, n=400) for seed in range(3)]
    made += [score("clm", seed, 0.7 + seed / 100, n=(250, 300, 260)[seed]) for seed in range(3)]
    (table,) = score_tables(results.table(made), arms=["mlm", "clm"])
    frame = pd.read_csv(io.StringIO(page.score_csv(table)))
    assert frame["n"].groupby(frame["arm"].fillna("Chance")).first().to_dict() == {
        "mlm": 400,
        "clm": 250,
        "Chance": 400,
    }


def test_the_caption_of_the_joined_table_explains_only_its_columns(tmp_path):
    """Without `token_information` or `validation` it explained numbers of which the table has no column."""
    text = Page(page.write(write(tmp_path, arms=("mlm",), seeds=(0,), table_rows=[score("mlm", 0, 0.8)]))).text
    assert "Compare losses only between runs that predict the same thing." not in text
    assert "Information is about the input token" not in text


def test_with_one_seed_the_caption_says_what_the_error_is_over(tmp_path):
    made = [score("mlm", 0, 0.8, standard_error=0.01)]
    folder = write(tmp_path, arms=("mlm",), seeds=(0,), table_rows=made)
    text = Page(page.write(folder)).text
    over = "over test examples and over repetitions with other heads and other orders of training examples"
    assert f"Table 1: scores times 100, one seed ± 1.96 of its standard errors {over}" in text
    assert "80.0 ± 2.0" in text


def test_hostile_names_of_tasks_and_parts_are_text_and_their_files_plain(tmp_path):
    kept = [
        score("mlm", seed, 0.5 + seed / 100, task=task, measure=measure, metric=metric, **more)
        for seed in range(2)
        for measure, metric, task, more in (
            ("fine_tuning", "score", HOSTILE.replace("/", "|"), {}),
            *(("fine_tuning", "score", f"{HOSTILE.replace('/', '|')}@{n}", {}) for n in (10, 20)),
            ("minimal_pairs", "accuracy", f"blimp/{HOSTILE}", {}),
            ("probing", "accuracy", f"$x^{HOSTILE.replace('/', '|')}", {"layer": 0}),
        )
    ]
    folder = write(tmp_path, arms=("mlm",), seeds=(0, 1), table_rows=kept)
    shown = Page(page.write(folder))
    assert not shown.foreign
    assert shown.text.count("<script>alert('1')<") >= 4
    files = [path.name for path in (folder / "figures").iterdir()]
    assert all(re.fullmatch(r"[\w-]+\.(svg|csv)", name, re.ASCII) for name in files)
    assert len([name for name in files if name.startswith("fine_tuning-score-examples-1_")]) == 2


def test_names_of_a_grid_break_after_commas_and_equals_signs_and_stay_text(tmp_path):
    arm = f"ratio=0.4,norm=pre,{HOSTILE}"
    made = [score("mlm", 0, 0.8, standard_error=0.01) | {"arm": arm}]
    changes = {"arms": [arm], "runs": [plan(("mlm",), (0,))["runs"][0] | {"arm": arm}]}
    shown = Page(page.write(write(tmp_path, arms=("mlm",), seeds=(0,), table_rows=made, plan_changes=changes)))
    header, _ = shown.table("Table 1")
    assert header[2] == " ".join(arm.split())
    assert [tag for tag, _ in shown.tags].count("wbr") == arm.count(",") + arm.count("=") + arm.count("_")
    assert not shown.foreign


def test_a_page_without_tasks_has_neither_section_nor_files(tmp_path):
    kept = [row for row in rows(("mlm",), (0,)) if row["measure"] == "validation"]
    folder = write(tmp_path, arms=("mlm",), seeds=(0,), table_rows=kept)
    shown = Page(page.write(folder))
    assert "Tasks" not in shown.text
    said = strict_json(folder / "report.json")
    assert (said["tasks"], said["joined"]["rows"]) == ([], [])
    assert not list((folder / "figures").glob("table-*"))


# Curves ----------------------------------------------------------------------------------------------


def test_there_is_a_panel_for_each_task_found(every):
    assert [name for name, figure in every.items() if figure["section"] == "tasks"] == list(every)
    assert list(every) == ["probes", "structure", "retrieval", "examples", "scores_over_training", "independence"]
    probes = every["probes"]["panels"]
    assert [(panel["group"], panel["metric"], panel["folded"]) for panel in probes] == [
        (task, metric, metric != "accuracy")
        for metric in ("accuracy", "selectivity", "compression")
        for task in ("ud_pos", "sentence_length", "bigram_shift")
    ]
    assert [(panel["title"], panel["part"]) for panel in every["examples"]["panels"]] == [
        (f"{way}, {task}", way) for way in ("Fine-tuning", "Frozen features") for task in ("cola", "sst2")
    ]
    names = [panel["name"] for figure in every.values() for panel in figure["panels"]]
    assert len(set(names)) == len(names)


def test_figures_of_a_part_of_everything_say_that_they_are_no_evidence(scores):
    quick = {
        f["name"]: f["notes"] for f in figure_entries(scores, arms=ARMS, quick=("probing", "frozen_features"))
    }
    plain = {f["name"]: f["notes"] for f in figure_entries(scores, arms=ARMS)}
    said = "easured with effort quick, on a part of the data: no evidence."
    assert quick["probes"] == [f"M{said}", *plain["probes"]]
    assert quick["examples"] == [f"Panels c and d: m{said}", *plain["examples"]]
    assert quick["structure"] == plain["structure"]


def test_points_are_means_at_their_places(every, scores):
    places = {"examples": ("fine_tuning", (100, 500, 1000)), "scores_over_training": ("minimal_pairs", STEPS)}
    for name, (measure, expected) in places.items():
        axis = "examples" if name == "examples" else "step"
        panel = next(panel for panel in every[name]["panels"] if panel["measure"] == measure and panel["group"])
        mlm = [point for point in panel["points"] if point["arm"] == "mlm"]
        assert [point[axis] for point in mlm] == list(expected)
        own = scores[(scores["measure"] == measure) & (scores["arm"] == "mlm")]
        own = own[own["metric"] == panel["metric"]]
        for point in mlm:
            group = f"{panel['group']}@{point[axis]}" if axis == "examples" else panel["group"]
            here = own[(own["group"] == group) & (own["step"] == (500 if axis == "examples" else point["step"]))]
            assert (point["mean"], point["seeds"]) == (pytest.approx(here["value"].mean()), 3)
    (joint,) = [panel for panel in every["independence"]["panels"] if not panel["folded"]]
    assert [point["ratio"] for point in joint["points"] if point["arm"] == "mlm"] == [0.15, 0.3, 0.5]
    assert joint["without_rows"] == ["clm", "mt"]
    assert "at 0.15" in joint["description"]


def test_scores_over_training_want_three_steps_and_every_seed():
    def made(steps):
        return results.table(
            score("mlm", seed, 0.6, task="sst2", step=step) for seed, of in steps.items() for step in of
        )

    assert not figure_entries(made({0: (0, 500), 1: (0, 500)}), arms=["mlm"])
    assert not figure_entries(made({0: (0, 1, 2), 1: (4, 8, 16)}), arms=["mlm"])
    (figure,) = figure_entries(made({0: (0, 1, 2, 500), 1: (0, 1, 500)}), arms=["mlm"])
    assert [point["step"] for point in figure["panels"][0]["points"]] == [0, 1, 500]
    kept = common_steps(made({0: (0, 1, 2, 500), 1: (0, 1, 500)}).assign(about="sst2"))
    assert set(kept["step"]) == {0, 1, 500}


def test_the_mean_over_tasks_comes_first_over_training_and_is_over_the_same_tasks_everywhere():
    """Task `few` is not in every run, and mlm lacks sst2 at step 4 of seed 1."""
    levels = {"cola": 0.2, "sst2": 0.6, "few": 9.0}
    made = results.table(
        score(arm, seed, levels[task] + step / 100 + better, task=task, step=step)
        for arm, better in (("mlm", 0.1), ("clm", 0.0))
        for seed in (0, 1)
        for task in levels
        for step in (0, 2, 4, 8)
        if (task, arm) != ("few", "clm") and (arm, seed, task, step) != ("mlm", 1, "sst2", 4)
    )
    (figure,) = figure_entries(made, arms=["mlm", "clm"])
    first = figure["panels"][0]
    assert (first["group"], first["title"], first["name"]) == (
        None,
        "Fine-tuning, mean over tasks",
        "fine_tuning-score-step",
    )
    assert [panel["group"] for panel in figure["panels"]] == [None, "cola", "sst2", "few"]
    points = {(point["arm"], point["step"]): point["mean"] for point in first["points"]}
    assert points == {
        ("mlm", 0): pytest.approx(0.5),
        ("mlm", 2): pytest.approx(0.52),
        ("mlm", 8): pytest.approx(0.58),
        ("clm", 0): pytest.approx(0.4),
        ("clm", 2): pytest.approx(0.42),
        ("clm", 4): pytest.approx(0.44),
        ("clm", 8): pytest.approx(0.48),
    }
    (alone,) = figure_entries(made[made["group"] == "cola"], arms=["mlm", "clm"])
    assert [panel["group"] for panel in alone["panels"]] == ["cola"]


def test_of_many_tasks_the_first_are_in_sight_more_are_folded_and_the_others_named():
    names = [f"t{i}" for i in range(MOST_TASKS + 2)]
    made = [
        score("mlm", 0, 0.6, task=name, measure="probing", metric="accuracy", layer=layer)
        for name in names
        for layer in range(2)
    ]
    (figure,) = figure_entries(results.table(made), arms=["mlm"])
    parts = [(panel["group"], panel["part"], panel["folded"]) for panel in figure["panels"]]
    assert parts == [
        (name, "" if i < TASKS_IN_SIGHT else "Further tasks", i >= TASKS_IN_SIGHT)
        for i, name in enumerate(names[:MOST_TASKS])
    ]
    assert figure["notes"] == ["Only the first 12 tasks have panels; results.parquet also has t12 and t13."]


def test_a_panel_says_its_task_and_its_metric_and_spreads_its_axis(scores):
    drawn, (left, right) = plt.subplots(1, 2)
    by_arm(scores, ax=left, measure="fine_tuning", metric="score", group="cola", axis="examples", arms=ARMS)
    assert (left.get_title(loc="left"), left.get_ylabel()) == ("cola", "Matthews correlation")
    assert (left.get_xlabel(), left.get_xscale()) == ("training examples", "symlog")
    assert [tick.get_text() for tick in left.get_xticklabels()] == ["100", "500", "1,000"]
    by_arm(scores, ax=right, measure="minimal_pairs", metric="accuracy", group="blimp", axis="step", arms=ARMS)
    means = {line.get_label().split(" ")[0]: line for line in right.lines if line.get_gid() == "mean"}
    assert list(means["mlm"].get_xdata()) == list(STEPS)
    at = right.transData.transform([(step, 0.5) for step in (0, 1, 2, 4, 256)])[:, 0]
    assert np.all(np.diff(at) > 0)
    assert at[2] - at[1] == pytest.approx(at[3] - at[2])
    assert left.get_xlim()[0] > 0 > right.get_xlim()[0]
    plt.close(drawn)


def test_files_hold_the_rows_of_their_task(folder, twin):
    figures_of_tasks = [figure for figure in twin["figures"] if figure["section"] == "tasks"]
    for panel in (panel for figure in figures_of_tasks for panel in figure["panels"]):
        frame = pd.read_csv(io.BytesIO((folder / panel["csv"]).read_bytes()))
        assert list(frame) == results.SHOWN
        assert set(frame["measure"] + "-" + frame["metric"]) == {f"{panel['measure']}-{panel['metric']}"}
        if panel["axis"] == "examples":
            assert set(frame["group"]) == {f"{panel['group']}@{count}" for count in (100, 500, 1000)}


# One row a run ---------------------------------------------------------------------------------------


def test_the_joined_table_has_a_row_a_run_with_its_own_numbers(twin, folder):
    table = results.read(folder / "results.parquet")
    said = twin["joined"]
    runs = [(arm, seed) for arm in ARMS for seed in range(3)]
    assert [(row["arm"], row["seed"]) for row in said["rows"]] == runs
    for row in said["rows"]:
        own = table[(table["arm"] == row["arm"]) & (table["seed"] == row["seed"])]
        change = own[(own["measure"] == "layer_change") & (own["metric"] == "pwcca")]
        steps = change[(change["layer"] > 0) & (change["layer_to"] == change["layer"] + 1)]
        assert row["change"] == pytest.approx(steps["value"].sum())
        assert len(steps) == LAYERS - 1
        known_nats = own[own["metric"] == "cross_fitted"].set_index("layer")["value"]
        assert row["information_first"] == known_nats[0]
        assert row["information_least"] == known_nats.min()
        assert row["information_top"] == known_nats[LAYERS]
        tuned = own[(own["measure"] == "fine_tuning") & (own["metric"] == "score")].set_index("group")["value"]
        assert row["fine_tuning"] == pytest.approx(tuned[["cola", "rte"]].mean())
        loss = own[(own["measure"] == "validation") & (own["metric"] == "loss")].iloc[0]
        assert (row["loss"], row["gain"]) == pytest.approx((loss["value"], loss["floor"] - loss["value"]))
        pairs = own[(own["measure"] == "minimal_pairs") & (own["metric"] == "accuracy")]
        pairs = pairs.set_index("group")["value"]
        expected = None if row["arm"] == "mt" else pytest.approx(pairs[["blimp", "lm_syneval"]].mean())
        assert row["minimal_pairs"] == expected


def without_number(every, **where):
    """Return the rows; those of the first run of clm that fit have the value NaN."""
    clm = where | {"arm": "clm", "seed": 0}
    return [row | {"value": np.nan} if clm.items() <= row.items() else row for row in every]


@pytest.mark.parametrize(
    ("where", "column", "place"),
    [
        ({"measure": "layer_change", "metric": "pwcca", "layer": 3, "layer_to": 4}, "change", 1),
        ({"measure": "token_information", "metric": "cross_fitted", "layer": LAYERS}, "information_top", 2),
        ({"measure": "token_information", "metric": "cross_fitted", "layer": 0}, "information_first", None),
        ({"measure": "token_information", "metric": "cross_fitted", "layer": 2}, "information_least", None),
    ],
)
def test_without_the_number_of_a_layer_a_run_has_none_for_its_layers(where, column, place):
    """Not the sum of the other layers, nor the layer below the top."""
    every = list(rows())
    for measured, expected in ((every, 3), (without_number(every, **where), 2)):
        table = results.table(measured)
        runs = [
            {"arm": arm, "seed": seed, "run_id": "", "loss": 1.0, "gain": 1.0} for arm in ARMS for seed in range(3)
        ]
        _, of_runs = run_numbers(table, runs)
        numbers = [row[column] for row in of_runs if row["arm"] == "clm"]
        assert sum(number is not None for number in numbers) == expected
        assert np.ptp([number for number in numbers if number is not None]) < 0.2
        if place is not None:
            values = RUN_SCORES[place].rows(table).query("arm == 'clm'")["value"]
            assert values.notna().sum() == expected


def test_without_a_number_of_the_top_layer_a_probe_has_none():
    made = [
        score("mlm", seed, 0.5 + layer / 10, measure="probing", metric="accuracy", layer=layer)
        for seed in range(2)
        for layer in range(3)
    ]
    made[2]["value"] = np.nan
    scores = task_scores(results.table(made), "probing")
    assert scores[["seed", "layer", "value"]].to_numpy().tolist() == [[1, 2, 0.7]]


def test_the_joined_table_as_it_is_read(shown, twin):
    header, body = shown.table("Table 4: every run at its last step.")
    assert header == [
        *("Arm", "Seed", "Validation loss (nats)", "Gain over no context (nats)"),
        *("Change of layers, sum (from 1→2)",),
        *(
            "Information at layer 0 (nats)",
            "Information, minimum over layers (nats)",
            "Information at the top (nats)",
            "Fine-tuning (mean)",
        ),
        "Minimal pairs (mean)",
    ]
    first = twin["joined"]["rows"][0]
    assert body[0] == [
        *("mlm", "0", f"{first['loss']:.3f}", f"{first['gain']:.2f}", f"{first['change']:.3f}"),
        *(f"{first[f'information_{place}']:.2f}" for place in ("first", "least", "top")),
        *(f"{100 * first[name]:.1f}" for name in ("fine_tuning", "minimal_pairs")),
    ]
    assert body[6][-1] == NONE
    assert body[9][3].startswith(MINUS)


def test_means_are_over_the_tasks_that_every_run_has():
    made = [score(arm, 0, value, task="rte") for arm, value in (("mlm", 0.6), ("clm", 0.5))]
    made += [score("mlm", 0, 0.9, task="sst2"), score("mlm", 0, 0.1, task="rte@100")]
    runs = [run_of(arm, 0) | {"loss": None, "gain": None} for arm in ("mlm", "clm", "mt")]
    said = joined(results.table(made), runs)
    assert [row["fine_tuning"] for row in said["rows"]] == [0.6, 0.5, None]
    assert said["notes"] == ["Fine-tuning: mean over rte (not sst2, which some runs lack)."]
    assert said["tasks"] == {"fine_tuning": ["rte"]}
    apart = joined(results.table([score("mlm", 0, 0.6, task="rte"), score("clm", 0, 0.6, task="sst2")]), runs)
    assert apart["notes"] == []
    assert apart["rows"] == []


def test_of_probes_the_mix_counts_or_the_top_layer_where_there_is_none(scores):
    runs = [run_of(arm, 0) | {"loss": None, "gain": None} for arm in ARMS]
    probes = scores[(scores["measure"] == "probing") & (scores["metric"] == "accuracy") & (scores["seed"] == 0)]
    by_layer = probes[probes["layer"].notna()]
    for kept, own in ((probes, probes[probes["layer"].isna()]), (by_layer, probes[probes["layer"] == LAYERS])):
        found = {row["arm"]: row["probing"] for row in joined(kept, runs)["rows"]}
        assert found == pytest.approx(own.groupby("arm")["value"].mean().to_dict())
