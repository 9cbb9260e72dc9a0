"""What a page says about tasks: the tables, where a score is at chance, the curves, the joined table."""

import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablations import results
from reports.claims.judge import judge_claims
from reports.figures.by_arm import MOST_TASKS, TASKS_IN_SIGHT, by_arm
from reports.figures.curves import common_steps
from reports.folder import is_fresh, read
from reports.page import page
from reports.page.content import content
from reports.scores.runs import joined
from reports.scores.tables import beside_chance, score_tables
from reports.words import in_order, known_task, metric_words
from tests.support.fake_experiment import ARMS, LAYERS, figure_entries, plan, rows, write
from tests.support.fake_scores import PAIRS, STEPS, TASKS, run_of, score_rows
from tests.support.html_page import HOSTILE, MINUS, NONE, Page, strict_json
from tests.support.score_page import made


@pytest.fixture(scope="module")
def scores():
    """Four arms, three seeds, several steps."""
    return results.table(score_rows(steps=STEPS[:-1]))


@pytest.fixture(scope="module")
def tables(scores):
    return {table["measure"]: table for table in score_tables(scores, arms=ARMS)}


@pytest.fixture(scope="module")
def every(scores):
    return {figure["name"]: figure for figure in figure_entries(scores, arms=ARMS)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("tasks"))
    page.write(folder)
    return folder


@pytest.fixture(scope="module")
def shown(folder):
    return Page(folder / "report.html")


@pytest.fixture(scope="module")
def twin(folder):
    return strict_json(folder / "report.json")


def score(arm, seed, value, *, task="rte", measure="fine_tuning", metric="score", floor=0.5, step=500, **more):
    """One row."""
    own = {"measure": measure, "metric": metric, "group": task, "value": value, "floor": floor, "n": 277}
    return run_of(arm, seed, step=step) | own | more


def row_of(table, task, metric="score", layer=None):
    (found,) = [r for r in table["rows"] if (r["task"], r["metric"], r["layer"]) == (task, metric, layer)]
    return found


# Numbers ---------------------------------------------------------------------------------------------


def test_every_table_has_a_row_a_task_and_a_column_an_arm_in_the_order_of_the_plan(tables):
    assert list(tables) == [
        *("fine_tuning", "frozen_features", "minimal_pairs", "probing"),
        *("structural_probe", "parsing", "retrieval", "generation"),
    ]
    main = [row["task"] for row in tables["fine_tuning"]["rows"] if row["first"]]
    assert main == ["cola", "sst2", "rte", "wikigold", "xquad"]  # the catalogue's order
    assert tables["fine_tuning"]["arms"] == list(ARMS)
    assert tables["minimal_pairs"]["arms"] == ["mlm", "clm", "untrained"]
    assert "No score: mt." in tables["minimal_pairs"]["says"]


def test_cells_are_means_over_seeds_at_the_last_step_with_t_intervals(tables, scores):
    for task in TASKS:
        for arm in ARMS:
            own = scores[
                (scores["measure"] == "fine_tuning")
                & (scores["metric"] == "score")
                & (scores["group"] == task)
                & (scores["arm"] == arm)
                & scores["step"].isin([0 if arm == "untrained" else 500])
            ]["value"]
            cell = row_of(tables["fine_tuning"], task)["arms"][arm]
            low, high = stats.t.interval(0.95, 2, own.mean(), stats.sem(own))
            assert (cell["mean"], cell["low"], cell["high"]) == pytest.approx((own.mean(), low, high))
            assert (cell["band"], cell["seeds"]) == ("seeds", 3)


def test_each_score_names_its_metric(tables):
    named = {row["task"]: row["scored"] for row in tables["fine_tuning"]["rows"] if row["metric"] == "score"}
    assert named == {
        "cola": "Matthews correlation",
        "sst2": "accuracy",
        "rte": "accuracy",
        "wikigold": "F1 of entities",
        "xquad": "F1 of words",
    }
    assert (metric_words("stsb"), metric_words("mrpc"), metric_words("elsewhere")) == (
        "Pearson correlation",
        "F1",
        "score",
    )


def test_baselines_stand_beside_the_main_scores(tables):
    table = tables["fine_tuning"]
    assert table["beside"] == ["Chance", "Tag of the word", "TF-IDF or words"]
    assert row_of(table, "sst2")["beside"] == pytest.approx({"Chance": 0.51, "TF-IDF or words": 0.71})
    words = {"Chance": 0, "Tag of the word": 0.3, "TF-IDF or words": 0.35}
    assert row_of(table, "wikigold")["beside"] == pytest.approx(words)
    assert row_of(table, "sst2", "shuffled_score")["beside"] == pytest.approx({"Chance": 0.51})
    assert row_of(table, "xquad")["beside"]["TF-IDF or words"] == pytest.approx(0.14)
    parsing = tables["parsing"]
    assert [row["label"] for row in parsing["rows"]] == ["ud_en_ewt"] * 2
    assert parsing["beside"] == ["Adjacency chain", "Random trees"]
    assert parsing["rows"][0]["beside"] == pytest.approx({"Adjacency chain": 0.49, "Random trees": 0.21})
    assert tables["generation"]["beside"] == ["Random tokens", "Real text"]


def test_beside_probes_stand_baselines_that_learned_from_as_many_words(tables):
    table = tables["probing"]
    words = {"Chance": 0.5, "Tag of the word": 0.63, "TF-IDF or words": 0.66}
    assert row_of(table, "ud_pos", "accuracy")["beside"] == pytest.approx(words)
    assert row_of(table, "bigram_shift", "accuracy")["beside"]["TF-IDF or words"] == pytest.approx(0.52)


def test_beside_cosines_stand_cosines_of_words_whatever_is_done_to_the_states(tables):
    """And never what was trained for the task."""
    table = tables["retrieval"]
    for metric, value in (("spearman", 0.6), ("spearman_centred", 0.6)):
        row = row_of(table, "stsb", metric, "top")
        assert row["beside"] == pytest.approx({"Chance": 0, "TF-IDF": value})
    for metric, layer in (("recall_at_1", "top"), ("recall_at_1_centred", "top"), ("recall_at_1_reranked", None)):
        assert row_of(table, "next_sentence", metric, layer)["beside"]["TF-IDF"] == pytest.approx(0.02)
    assert "TF-IDF" not in row_of(table, "next_sentence", "reciprocal_rank", "top")["beside"]


def test_a_shuffled_score_stands_under_the_natural_one(tables):
    of_rows = [(row["task"], row["metric"]) for row in tables["fine_tuning"]["rows"]]
    for task in ("cola", "sst2", "rte", "wikigold"):
        assert of_rows.index((task, "shuffled_score")) == of_rows.index((task, "score")) + 1
    assert ("xquad", "shuffled_score") not in of_rows


def test_numbers_of_examples_and_parts_of_tasks_are_no_rows_of_the_table(tables):
    shown = [row["task"] for table in tables.values() for row in table["rows"]]
    assert not [task for task in shown if task and "@" in task]
    pairs = tables["minimal_pairs"]
    assert [(row["task"], row["indented"]) for row in pairs["rows"] if row["first"]] == [
        ("blimp", False),
        ("blimp/morphology", True),
        ("blimp/syntax", True),
        ("lm_syneval", False),
    ]
    folded = {part["title"]: [row["task"] for row in part["rows"]] for part in pairs["folded"]}
    assert folded == {
        "blimp, by paradigm": ["blimp/adjunct_island", "blimp/wh_questions_subject_gap_long_distance"],
        "lm_syneval, by case": ["lm_syneval/simple_agrmt"],
    }


def test_series_are_folded_in_the_order_of_their_numbers(tables):
    (sweeps,) = tables["parsing"]["folded"]
    labels = [row["label"] for row in sweeps["rows"] if row["first"]]
    assert labels == ["250", "500", "1,000", "the most, as above"]
    (iterations,) = tables["generation"]["folded"]
    assert [row["task"] for row in iterations["rows"] if row["first"]] == ["iterations=1", "iterations=4", None]
    # Causal LM makes up sentences too, but not by iterations.
    assert all(set(row["arms"]) == {"mlm"} for row in iterations["rows"])
    assert set(row_of(tables["generation"], None, "fluency")["arms"]) == {"mlm", "clm"}


def test_no_layer_is_chosen_by_its_score(scores):
    """Raising one middle layer to 1 changes the curve and nothing in the table."""
    best = (scores["measure"] == "probing") & (scores["layer"] == 3).fillna(False)
    raised = scores.assign(value=scores["value"].where(~best, 1.0))
    before, after = (repr(score_tables(table, arms=ARMS)) for table in (scores, raised))
    assert before == after
    top = (scores["measure"] == "probing") & (scores["layer"] == LAYERS).fillna(False)
    assert repr(score_tables(scores.assign(value=scores["value"].where(~top, 1.0)), arms=ARMS)) != before


def test_the_top_layer_is_that_of_each_run():
    made = [
        score(arm, 0, 0.5 + layer / 10, measure="probing", metric="accuracy", layer=layer)
        for arm, depth in (("mlm", 2), ("clm", 4))
        for layer in range(depth + 1)
    ]
    (table,) = score_tables(results.table(made), arms=ARMS)
    cells = row_of(table, "rte", "accuracy", "top")["arms"]
    assert {arm: cell["mean"] for arm, cell in cells.items()} == pytest.approx({"mlm": 0.7, "clm": 0.9})


# Chance ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "error", "expected"),
    [
        ([0.60, 0.61, 0.62], None, "above"),
        ([0.49, 0.52, 0.51], None, "at"),
        ([0.40, 0.41, 0.42], None, "below"),
        ([0.60, 0.50], None, "at"),  # two seeds: thirteen standard errors
        ([0.53], 0.02, "at"),
        ([0.55], 0.02, "above"),
        ([0.45], 0.02, "below"),
        ([0.55], None, ""),  # one number says nothing of its spread
        ([0.5, 0.5, 0.5], None, "at"),  # always the most frequent answer
    ],
)
def test_a_score_is_judged_by_its_own_interval(values, error, expected):
    made = [score("mlm", seed, value, standard_error=error) for seed, value in enumerate(values)]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert table["rows"][0]["arms"]["mlm"]["verdict"] == expected


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize(
    ("value", "floor", "n", "expected"),
    [
        (0.0, 0.001, 1000, "at"),  # who guesses has none in a thousand more than one time in three
        (0.0, 0.1, 200, "below"),
        (0.0, 0.1, 10, "at"),
        (1.0, 0.5, 4, "above"),
        (1.0, 0.99, 4, "at"),
        (0.0, 0.0, 10, "at"),
    ],
)
def test_of_scores_that_are_0_or_1_in_all_runs_so_many_answers_decide(seeds, value, floor, n, expected):
    made = [score("mlm", seed, value, floor=floor, n=n, standard_error=0.0) for seed in range(seeds)]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert table["rows"][0]["arms"]["mlm"]["verdict"] == expected


def test_rounding_decides_nothing():
    assert 0.1 + 0.2 > 0.3
    assert beside_chance({"low": 0.1 + 0.2, "high": 0.1 + 0.2}, 0.3) == "at"
    assert beside_chance({"low": 0.3, "high": 0.3}, 0.1 + 0.2) == "at"
    assert beside_chance({"low": 0.3001, "high": 0.4}, 0.3) == "above"


def test_without_a_floor_nothing_is_judged():
    assert beside_chance({"low": 0.1, "high": 0.2}, float("nan")) == ""
    made = [score("mlm", seed, 0.6 + seed / 100, floor=None) for seed in range(3)]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert (table["says"], table["rows"][0]["arms"]["mlm"]["verdict"]) == ([], "")


def test_of_scores_that_are_at_chance_nearly_all_are_called_so():
    rng = np.random.default_rng(5)
    made = [score("mlm", seed, 0.5 + rng.normal(), task=f"t{i}") for i in range(400) for seed in range(4)]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    called = np.mean([row["arms"]["mlm"]["verdict"] == "at" for row in table["rows"]])
    assert abs(called - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 400)


def test_sentences_say_what_the_marks_say():
    values = {
        ("rte", "mlm"): 0.5, ("rte", "clm"): 0.5, ("rte", "untrained"): 0.4,
        ("sst2", "mlm"): 0.8, ("sst2", "clm"): 0.5, ("sst2", "untrained"): 0.4,
        ("trec", "mlm"): 0.5, ("trec", "clm"): 0.5, ("trec", "untrained"): 0.9,
    }  # fmt: skip
    made = [
        score(arm, seed, value + (seed - 1) / 1000, task=task)
        for (task, arm), value in values.items()
        for seed in range(3)
    ]
    made += [score("mlm", seed, 0.5 + (seed - 1) / 1000, metric="shuffled_score") for seed in range(3)]
    (table,) = score_tables(results.table(made), arms=["mlm", "clm", "mt", "untrained"])
    assert table["says"] == [
        "At chance, that is, with chance inside the interval: mlm on trec and rte; clm on all 3 tasks.",
        "Below chance: untrained on sst2 and rte.",
        "Every other main score is above chance.",
        "Of the other rows, not above chance: words shuffled (mlm on rte).",
        "No score: mt.",
    ]


def test_when_all_is_above_chance_it_is_said_and_what_is_not_judged_too():
    made = [score("mlm", seed, 0.9 + seed / 100) for seed in range(3)]
    assert score_tables(results.table(made), arms=["mlm"])[0]["says"] == ["Every main score is above chance."]
    (table,) = score_tables(results.table([*made, score("clm", 0, 0.7)]), arms=["mlm", "clm"])
    assert table["says"] == [
        "Not judged, for want of an interval: clm on rte.",
        "Every other main score is above chance.",
    ]


def test_a_table_of_a_part_of_everything_says_first_that_it_is_no_evidence(tmp_path):
    made = [
        score("mlm", seed, 0.9 + seed / 100, measure=m) for seed in range(3) for m in ("probing", "fine_tuning")
    ]
    made = [row | {"metric": "accuracy"} if row["measure"] == "probing" else row for row in made]
    whole, part = score_tables(results.table(made), arms=["mlm"], quick=("probing",))
    assert (whole["measure"], whole["says"]) == ("fine_tuning", ["Every main score is above chance."])
    assert part["says"] == [
        "Measured with effort quick, on a part of everything: no evidence.",
        "Every main score is above chance.",
    ]
    folder = write(tmp_path, arms=("mlm",), table_rows=made)
    measures = "measures: [{kind: probing, effort: quick}, {kind: fine_tuning, effort: full}, minimal_pairs]\n"
    (folder / "spec.yaml").write_text(measures)
    experiment = read(folder)
    assert (experiment.measures, experiment.quick) == (("probing", "fine_tuning", "minimal_pairs"), ("probing",))
    assert content(judge_claims(experiment), [])["tasks"][1]["says"] == part["says"]


def test_probes_above_chance_that_tell_no_more_than_frequencies_are_named():
    """Accuracy may be above its floor where selectivity and compression are not: a probe has learned the words."""
    found = {"accuracy": (0.7, 0.5), "selectivity": (0.02, 0.02), "compression": (0.9, 1.05)}
    made = [
        score("mlm", seed, value + (seed - 1) / 100, measure="probing") | {"metric": metric, "floor": floor}
        for metric, (value, floor) in found.items()
        for seed in range(3)
    ]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert table["says"] == [
        "Every main score is above chance.",
        "Of the other rows, not above chance: selectivity, mix of layers (mlm on rte) "
        "and compression, mix of layers (mlm on rte).",
    ]


def test_many_tasks_are_counted_and_parts_always():
    made = [score("mlm", seed, 0.5 + (seed - 1) / 100, task=f"t{i}") for i in range(8) for seed in range(3)]
    made += [score("mlm", seed, 0.9 + seed / 100) for seed in range(3)]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert table["says"][0].endswith(": mlm on 8 of 9.")
    parts = {"mlm": (0.5, 0.9), "clm": (0.9, 0.5), "untrained": (0.5, 0.4)}
    made = [
        score(arm, seed, value + (seed - 1) / 100, task=f"blimp/{i}", measure="minimal_pairs", metric="accuracy")
        for arm, values in parts.items()
        for i, value in enumerate(values)
        for seed in range(3)
    ]
    whole = [score("mlm", 0, 0.9, task="blimp", measure="minimal_pairs", metric="accuracy")]
    (table,) = score_tables(results.table([*made, *whole]), arms=["mlm", "clm", "untrained"])
    assert table["folded"][0]["says"] == [
        "At chance, that is, with chance inside the interval: mlm, clm and untrained on 1 of 2.",
        "Below chance: untrained on 1 of 2.",
        "Every other main score is above chance.",
    ]


def test_many_arms_are_counted():
    arms = [f"a{i}" for i in range(8)]
    at = [score("mlm", seed, 0.5 + (seed - 1) / 100) for seed in range(3)]
    made = [row | {"arm": arm, "run_id": f"{arm}-{row['seed']}"} for arm in arms for row in at]
    assert score_tables(results.table(made), arms=arms)[0]["says"][0].endswith("interval: all 8 arms on rte.")
    made = [row | {"value": row["value"] + 0.4} if row["arm"] == "a0" else row for row in made]
    assert score_tables(results.table(made), arms=arms)[0]["says"][0].endswith("interval: 7 of 8 arms on rte.")


# The page --------------------------------------------------------------------------------------------


def test_the_section_has_its_tables_its_figures_and_the_runs_in_this_order(shown):
    headings = [data for tag, data in shown.texts if tag == "h2"]
    assert [heading.partition(". ")[2] or heading for heading in headings] == [
        *("Change between consecutive layers", "What was run", "Contents", "Information about the input token"),
        *("Tasks", "Scores by number of training examples", "Masked tokens and their independence of each other"),
        *("Runs", "Pre-training, layers and tasks together", "Provenance", "Spec"),
    ]
    tables = [data for tag, data in shown.texts if tag == "h3" and data.startswith("Table")]
    assert tables == ["Table 1. Fine-tuning", "Table 2. Minimal pairs", "Table 3. Trees without supervision"]
    linked = [a["href"] for tag, a in shown.tags if tag == "a" and a["href"].startswith("#")]
    assert linked[: len(headings) - 1] == [f"#{a['aria-labelledby']}" for t, a in shown.tags if t == "section"]
    assert linked[len(headings) - 1 :] == ["#table-fine_tuning", "#table-minimal_pairs", "#table-parsing"]


def test_names_are_unique_references_hold_and_rows_are_whole(shown):
    names = shown.attributes("id")
    assert len(names) == len(set(names))
    wanted = [a[1:] for a in shown.attributes("href") if a[0] == "#"]
    assert set(wanted + shown.attributes("aria-labelledby", "aria-describedby")) <= set(names)
    assert all(len(row) == len(table["rows"][0]) for table in shown.tables for row in table["rows"])
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in shown.tags if tag == "th")
    assert not shown.attributes("style")
    assert not shown.foreign


def test_a_table_of_scores_as_it_is_read(shown, twin):
    header, body = shown.table("Table 1: scores times 100, mean over seeds ± half its 95% t interval; n counts")
    assert header == ["Task", "Chance", "TF-IDF or words", *ARMS, "n"]
    assert [row[0] for row in body] == [
        *("cola Matthews correlation", "words shuffled", "accuracy", "rte accuracy", "words shuffled"),
    ]
    cells = row_of(twin["tasks"][0], "cola")["arms"]
    expected = f"{100 * cells['mlm']['mean']:.1f} ± {100 * (cells['mlm']['high'] - cells['mlm']['mean']):.1f}"
    assert body[0][:4] == ["cola Matthews correlation", "0.0", "20.0", expected]
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
        assert all(re.search(rf"{sign} \({kind} (chance|the adjacency chain)\)$", cell) for cell in marked)
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
        trees = ("ud_en_ewt", "sweeps=250", "sweeps=500", "sweeps=1000")
        assert set(frame["task"].dropna()) <= {*TASKS, *PAIRS, *trees}
        assert pd.read_csv(folder / table["csv"], dtype=str)["n"].dropna().str.isdecimal().all()
    runs = pd.read_csv(folder / "figures/joined.csv", dtype={"run_id": str})
    assert list(runs["run_id"]) == [row["run_id"] for row in twin["joined"]["rows"]]
    assert is_fresh(folder)
    (folder / "figures/table-fine_tuning.csv").rename(tmp_path / "aside")
    assert not is_fresh(folder)
    (tmp_path / "aside").rename(folder / "figures/table-fine_tuning.csv")


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


def test_names_of_a_grid_break_after_commas_and_stay_text(tmp_path):
    arm = f"ratio=0.4,norm=pre,{HOSTILE}"
    made = [score("mlm", 0, 0.8, standard_error=0.01) | {"arm": arm}]
    changes = {"arms": [arm], "runs": [plan(("mlm",), (0,))["runs"][0] | {"arm": arm}]}
    shown = Page(page.write(write(tmp_path, arms=("mlm",), seeds=(0,), table_rows=made, plan_changes=changes)))
    header, _ = shown.table("Table 1")
    assert header[2] == " ".join(arm.split())
    assert [tag for tag, _ in shown.tags].count("wbr") == 2
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
    said = "easured with effort quick, on a part of everything: no evidence."
    assert quick["probes"] == [f"M{said}", *plain["probes"]]
    assert quick["examples"] == [f"Panels c and d: m{said}", *plain["examples"]]
    assert quick["structure"] == plain["structure"]


def test_points_are_means_at_their_places(every, scores):
    places = {"examples": ("fine_tuning", (100, 500, 1000)), "scores_over_training": ("minimal_pairs", STEPS)}
    for name, (measure, expected) in places.items():
        axis = "examples" if name == "examples" else "step"
        panel = next(panel for panel in every[name]["panels"] if panel["measure"] == measure)
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
    assert figure["notes"] == ["Only the first 12 tasks have panels; in results.parquet alone: t12 and t13."]


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


def test_the_joined_table_as_it_is_read(shown, twin):
    header, body = shown.table("Table 4: every run at its last step.")
    assert header == [
        *("Arm", "Seed", "Validation loss (nats)", "Gain over no context (nats)"),
        *("Change of layers, sum (from 1→2)",),
        *("Information at layer 0 (nats)", "Its minimum (nats)", "At the top (nats)", "Fine-tuning (mean)"),
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
    assert said["notes"] == ["Fine-tuning: over rte (not sst2, which some run lacks)."]
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


# Names -----------------------------------------------------------------------------------------------


def test_tasks_of_the_catalogue_come_first_and_in_its_order():
    assert in_order(["elsewhere", "sst2", "blimp", "cola", "sst2", "another"]) == [
        *("cola", "sst2", "blimp", "elsewhere", "another"),
    ]
    assert known_task("language").name == "language_minimal_pairs"
    assert known_task("elsewhere") is None
    assert known_task(None) is None
