"""Tables of scores: their numbers, and what is called above, at and below chance."""

import io
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ablations import results
from ablations.tasks.metrics import share_error
from lightning_modules import plugins
from reports.claims.judge import judge_claims
from reports.folder import read
from reports.page.content import content
from reports.page.page import score_csv
from reports.scores.tables import beside_chance, score_tables
from reports.words import in_order, known_task, metric_words, number_or_range
from tests.support.fake_experiment import ARMS, LAYERS, write
from tests.support.fake_scores import TASKS
from tests.support.task_scores import row_of, score


@pytest.fixture(scope="module")
def tables(scores):
    return {table["measure"]: table for table in score_tables(scores, arms=ARMS)}


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


def test_main_scores_have_their_difference_from_the_first_arm_within_each_seed():
    values = {"mlm": (0.50, 0.60, 0.71), "clm": (0.52, 0.63, 0.72), "mt": (0.40, 0.55)}
    made = [score(arm, seed, v, task="sst2") for arm, by_seed in values.items() for seed, v in enumerate(by_seed)]
    made += [
        score(arm, seed, 0.5 + seed / 10, task="sst2", metric="shuffled_score")
        for arm in values
        for seed in (0, 1)
    ]
    (table,) = score_tables(results.table(made), arms=["mlm", "clm", "mt"])
    main, shuffled = table["rows"]
    assert table["base"] == "mlm"
    low, high = stats.ttest_rel(values["clm"], values["mlm"]).confidence_interval()
    assert main["arms"]["clm"]["difference"] == pytest.approx({"mean": 0.02, "low": low, "high": high, "seeds": 3})
    assert main["arms"]["mt"]["difference"]["mean"] == pytest.approx(-0.075)  # over the two seeds of both
    assert main["arms"]["mlm"]["difference"] is None
    assert {cell["difference"] for cell in shuffled["arms"].values()} == {None}


def test_there_is_no_difference_of_one_seed_or_without_the_first_arm():
    single = results.table([score("mlm", 0, 0.5), score("clm", 0, 0.6)])
    (table,) = score_tables(single, arms=["mlm", "clm"])
    assert {cell["difference"] for cell in table["rows"][0]["arms"].values()} == {None}
    others = results.table([score(arm, seed, 0.5 + seed / 9) for arm in ("clm", "mt") for seed in range(3)])
    (table,) = score_tables(others, arms=["mlm", "clm", "mt"])
    assert {cell["difference"] for cell in table["rows"][0]["arms"].values()} == {None}


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


def test_baselines_are_explained_only_where_a_column_has_them(tables, scores):
    """Pages of pre-trained encoders alone explained TF-IDF, which no column had."""

    def explained(built):
        return {
            table["measure"] for table in built if "TF-IDF is a linear model" in " ".join(table["how_to_read"])
        }

    assert explained(tables.values()) == {"fine_tuning", "probing"}
    assert explained(score_tables(scores[scores["measure"] != "baselines"], arms=ARMS)) == set()


def test_beside_probes_stand_baselines_that_learned_from_as_many_words(tables):
    table = tables["probing"]
    words = {"Chance": 0.5, "Tag of the word": 0.63, "TF-IDF or words": 0.66}
    assert row_of(table, "ud_pos", "accuracy")["beside"] == pytest.approx(words)
    assert row_of(table, "bigram_shift", "accuracy")["beside"]["TF-IDF or words"] == pytest.approx(0.52)


@pytest.fixture
def own_task(tmp_path):
    """Function that declares a task in a file of the user."""

    def declared(name, text):
        (tmp_path / name).write_text(text)
        plugins.look_beside(tmp_path / "spec.yaml")
        plugins.load(name)

    return declared


@pytest.mark.parametrize(("metric", "beside"), [("accuracy", 0.617), ("macro_f1", None), ("matthews", None)])
def test_beside_the_accuracy_of_a_probe_stands_a_baseline_only_if_it_is_an_accuracy_too(metric, beside, own_task):
    """Baselines have the metric of their task, and a macro F1 stood in a row of accuracies."""
    files = ", ".join(f"{split}: {split}.tsv" for split in ("train", "validation", "test"))
    own_task("cls.yaml", f"kind: classification\nmetric: {metric}\ntext: [a]\nfiles: {{{files}}}\n")
    made = [
        score("mlm", seed, 0.6, task="cls.yaml", measure=measure, metric=of)
        for measure, of in (("probing", "accuracy"), ("frozen_features", "score"), ("baselines", "tfidf"))
        for seed in range(3)
    ]
    made = [row | {"value": 0.617} if row["measure"] == "baselines" else row for row in made]
    frozen, probes = score_tables(results.table(made), arms=["mlm"])
    assert row_of(frozen, "cls.yaml")["beside"]["TF-IDF or words"] == pytest.approx(0.617)
    row = row_of(probes, "cls.yaml", "accuracy")
    assert row["beside"].get("TF-IDF or words") == (beside and pytest.approx(beside))


@pytest.mark.parametrize(
    ("groups", "title"),
    [
        ("phen, dist", "mp.yaml, by phen and dist"),
        ("dist", "mp.yaml, by dist"),
        ("field, dist", "mp.yaml, by dist"),  # fields have rows of the table itself
        ("field", "mp.yaml, by field"),
    ],
)
def test_parts_of_a_task_are_folded_under_the_names_of_their_columns_whatever_their_values_are(
    groups, title, own_task
):
    text = "kind: minimal_pairs\nmetric: accuracy\ntext: [good, bad]\nfiles: {test: pairs.tsv}\n"
    own_task("mp.yaml", f"{text}groups: [{groups}]\n")
    names = ["mp.yaml", "mp.yaml/syntax", "mp.yaml/near", "mp.yaml/a@b"]
    names = names if "field" in groups else [name for name in names if name != "mp.yaml/syntax"]
    made = [score("mlm", 0, 0.6, task=name, measure="minimal_pairs", metric="accuracy") for name in names]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    (folded,) = table["folded"]
    assert (folded["title"], [row["label"] for row in folded["rows"]]) == (title, ["a@b", "near"])


def test_numbers_beside_arms_that_differ_in_them_are_a_range():
    """Their mean, as of two tokenizers, is the number of no arm."""
    cuts = {"mlm": 0.484, "clm": 0.516, "mt": 0.484}
    made = [
        score(arm, 0, value, task="blimp", measure="minimal_pairs", metric=metric)
        for arm, cut in cuts.items()
        for metric, value in (("accuracy", 0.6), ("accuracy_by_length", 0.55), ("accuracy_by_unigram", cut))
    ]
    (table,) = score_tables(results.table(made), arms=[*cuts])
    beside = table["rows"][0]["beside"]
    assert beside["Frequent pieces"] == pytest.approx((0.484, 0.516))
    written = [number_or_range(value, 1, 100) for value in beside.values()]
    assert written == ["50.0", "55.0", "48.4–51.6"]
    assert number_or_range((0.4841, 0.4843), 1, 100) == "48.4"
    frame = pd.read_csv(io.StringIO(score_csv(table))).set_index("beside")
    assert frame.loc["Frequent pieces", ["low", "high"]].tolist() == pytest.approx([0.484, 0.516])
    assert frame.loc["Fewer pieces", "mean"] == pytest.approx(0.55)
    assert np.isnan(frame.loc["Frequent pieces", "mean"])


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
    scores = scores[scores["measure"].isin(["probing", "baselines"])]
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
        (1.0, 0.5, 1, "at"),  # one guess in two
        (1.0, 0.5, 4, "at"),  # one in sixteen
        (1.0, 0.5, 6, "above"),
        (1.0, 0.99, 4, "at"),
        (0.55, 0.5, 60, "at"),
        (0.55, 0.5, 400, "above"),
        (0.0, 0.0, 10, "at"),
    ],
)
def test_of_scores_that_are_0_or_1_in_all_runs_so_many_answers_decide(seeds, value, floor, n, expected):
    made = [score("mlm", seed, value, floor=floor, n=n, standard_error=0.0) for seed in range(seeds)]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert table["rows"][0]["arms"]["mlm"]["verdict"] == expected


def test_guesses_that_are_all_alike_are_rarely_called_better_or_worse_than_guesses():
    """Of forty scores at chance one looks better: the exact binomial test with one tail, for one run and three."""
    made, expected = [], {}
    for floor, answers in itertools.product([0.05, 0.25, 0.5, 0.9], [1, 2, 3, 5, 8, 20, 100]):
        for value, tail, beyond in ((1.0, "greater", "above"), (0.0, "less", "below")):
            p = stats.binomtest(int(value * answers), answers, floor, alternative=tail).pvalue
            error = share_error(np.full(answers, value))
            for seeds, known in ((1, error), (3, None)):
                task = f"{answers} answers, {value} right, chance {floor}, {seeds} runs"
                about = {"floor": floor, "n": answers}
                made += [
                    score("mlm", seed, value, standard_error=known, task=task) | about for seed in range(seeds)
                ]
                expected[task] = "at" if p > 0.025 else beyond
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert {row["task"]: row["arms"]["mlm"]["verdict"] for row in table["rows"]} == expected
    assert set(expected.values()) == {"above", "at", "below"}


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize(
    ("task", "value", "floor", "accuracy", "of_most_frequent", "n", "expected"),
    [
        ("cola", 1.0, 0.0, 1.0, 0.5, 4, "at"),  # all right: one guess in sixteen
        ("cola", 1.0, 0.0, 1.0, 0.5, 6, "above"),
        ("cola", 0.0, 0.0, 0.5, 0.5, 60, "at"),  # always the same answer
        ("mrpc", 0.0, 0.0645, 58 / 60, 58 / 60, 60, "at"),  # two positives, never found
        ("mrpc", 0.0, 0.0645, 0.0, 58 / 60, 60, "below"),
        ("cola", 0.4, 0.0, 0.85, 0.9, 1000, ""),  # more than chance, but less accurate than one answer to all
        ("cola", 1.0, 0.0, None, None, 4, ""),
        ("cola", 0.0, 0.0, None, None, 4, "at"),
        ("wnut17", 1.0, 0.1, None, None, 2, ""),
    ],
)
def test_equal_correlations_and_f1_are_judged_by_their_number_of_right_answers(
    task, value, floor, accuracy, of_most_frequent, n, expected, seeds
):
    made = []
    for seed in range(seeds):
        made.append(score("mlm", seed, value, task=task, floor=floor, n=n, standard_error=0.0))
        if accuracy is not None:
            more = {"metric": "accuracy", "floor": of_most_frequent, "n": n, "standard_error": 0.0}
            made.append(score("mlm", seed, accuracy, task=task, **more))
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert table["rows"][0]["arms"]["mlm"]["verdict"] == expected


def test_a_mean_of_0_over_runs_that_differ_is_judged_by_their_interval():
    made = [
        score("mlm", seed, value, measure="probing", metric="selectivity", floor=0.02, n=10_000)
        for seed, value in enumerate((-0.1, 0.1))
    ]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert table["rows"][0]["arms"]["mlm"]["verdict"] == "at"


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


def test_a_chance_below_0_and_correlations_of_any_task_are_explained(tables):
    assert tables["probing"]["how_to_read"][0].endswith(
        "For selectivity it is the score of the most frequent answer minus the score of the most frequent answer "
        "on the control task, so it may be negative."
    )
    assert "In tasks of sentences and pairs, it belongs to the rarest word" in tables["probing"]["how_to_read"][0]
    assert "The correlation is with the numbers of the task, such as" in tables["retrieval"]["how_to_read"][0]


def test_of_scores_that_are_at_chance_nearly_all_are_called_so():
    rng = np.random.default_rng(5)
    made = [score("mlm", seed, 0.5 + rng.normal(), task=f"t{i}") for i in range(150) for seed in range(4)]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    called = np.mean([row["arms"]["mlm"]["verdict"] == "at" for row in table["rows"]])
    # With 1.96 instead of Student's t, 86% would be called so, which is 5 standard errors less.
    assert abs(called - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 150)


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
        "At chance (the interval includes it): mlm on trec and rte; clm on all 3 tasks.",
        "Below chance: untrained on sst2 and rte.",
        "Every other main score is above chance.",
        "Further scores that are not above chance: words shuffled (mlm on rte).",
        "No score: mt.",
    ]


def test_arms_with_fewer_seeds_on_a_task_are_named():
    counts = {("rte", "mlm"): 3, ("rte", "clm"): 2, ("sst2", "mlm"): 3, ("sst2", "clm"): 3}
    counts |= {(task, "mt"): 2 for task in ("rte", "sst2")}
    made = [
        score(arm, seed, 0.9 + seed / 1000, task=task)
        for (task, arm), seeds in counts.items()
        for seed in range(seeds)
    ]
    (table,) = score_tables(results.table(made), arms=["mlm", "clm", "mt"])
    assert table["says"][-1] == "Fewer than 3 seeds: clm on rte (2); mt on both tasks (2)."
    (table,) = score_tables(results.table([row for row in made if row["seed"] < 2]), arms=["mlm", "clm", "mt"])
    assert not [sentence for sentence in table["says"] if sentence.startswith("Fewer")]


def test_when_all_is_above_chance_it_is_said_and_what_is_not_judged_too():
    made = [score("mlm", seed, 0.9 + seed / 100) for seed in range(3)]
    assert score_tables(results.table(made), arms=["mlm"])[0]["says"] == ["Every main score is above chance."]
    (table,) = score_tables(results.table([*made, score("clm", 0, 0.7)]), arms=["mlm", "clm"])
    assert table["says"] == [
        "Not judged, because there is no interval: clm on rte.",
        "Every other main score is above chance.",
        "Fewer than 3 seeds: clm on rte (1).",
    ]


def test_a_table_of_a_part_of_everything_says_first_that_it_is_no_evidence(tmp_path):
    made = [
        score("mlm", seed, 0.9 + seed / 100, measure=m) for seed in range(3) for m in ("probing", "fine_tuning")
    ]
    made = [row | {"metric": "accuracy"} if row["measure"] == "probing" else row for row in made]
    whole, part = score_tables(results.table(made), arms=["mlm"], quick=("probing",))
    assert (whole["measure"], whole["says"]) == ("fine_tuning", ["Every main score is above chance."])
    assert part["says"] == [
        "Measured with effort quick, on a part of the data: no evidence.",
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
        "Further scores that are not above chance: selectivity, mix of layers (mlm on rte) and compression, "
        "mix of layers (mlm on rte).",
    ]


def test_n_of_probes_counts_training_examples_where_the_code_of_their_answers_is_scored():
    """n of compression is the number of training examples, and the table said that n counts test examples."""
    made = [
        score("mlm", seed, 0.7, measure="probing", n=n) | {"metric": metric}
        for metric, n in (("accuracy", 1398), ("compression", 500))
        for seed in range(3)
    ]
    (table,) = score_tables(results.table(made), arms=["mlm"])
    assert {row["metric"]: row["n"] for row in table["rows"]} == {"accuracy": [1398], "compression": [500]}
    assert table["n"] == "test examples; for compression, training examples"


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
        "At chance (the interval includes it): mlm, clm and untrained on 1 of 2.",
        "Below chance: untrained on 1 of 2.",
        "Every other main score is above chance.",
    ]


def test_many_arms_are_counted():
    arms = [f"a{i}" for i in range(8)]
    at = [score("mlm", seed, 0.5 + (seed - 1) / 100) for seed in range(3)]
    made = [row | {"arm": arm, "run_id": f"{arm}-{row['seed']}"} for arm in arms for row in at]
    assert score_tables(results.table(made), arms=arms)[0]["says"][0].endswith("includes it): all 8 arms on rte.")
    made = [row | {"value": row["value"] + 0.4} if row["arm"] == "a0" else row for row in made]
    assert score_tables(results.table(made), arms=arms)[0]["says"][0].endswith("includes it): 7 of 8 arms on rte.")


# Names -----------------------------------------------------------------------------------------------


def test_tasks_of_the_catalogue_come_first_and_in_its_order():
    assert in_order(["elsewhere", "sst2", "blimp", "cola", "sst2", "another"]) == [
        *("cola", "sst2", "blimp", "elsewhere", "another"),
    ]
    assert known_task("language").name == "language_minimal_pairs"
    assert known_task("elsewhere") is None
    assert known_task(None) is None
