"""What tasks score without an encoder."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter, ValidationError

from ablations.catalogue import Measure
from ablations.tasks import baselines, probing
from ablations.tasks.baselines import baseline_rows, score_rows
from ablations.tasks.datasets import SPLITS, TASKS, Task
from ablations.tasks.examples import Answer, Examples, part, read_examples
from ablations.tasks.settings import BaselinesSettings, FineTuningSettings, ProbingSettings, mismatched_baselines
from ablations.wording import listed
from lightning_modules import plugins
from tests.support.tiny_text import sentences


def of(make, count=300):
    return {split: make(sentences(count, seed=seed)) for seed, split in enumerate(("train", "validation", "test"))}


def values(task, splits):
    return {row["metric"]: row["value"] for row in score_rows(task, splits=splits)}


def test_a_label_that_is_a_word_or_two_neighbours_is_told_from_the_text():
    def by_word(texts):
        return Examples(texts, None, None, [str("dog" in text.split()) for text in texts])

    def by_neighbours(texts):
        return Examples(texts, None, None, [str("the the" in text) for text in texts])

    def by_character(texts):
        """Text of Chinese characters, without spaces."""
        written = ["".join(chr(0x4E00 + ord(letter)) for letter in text if letter != " ") for text in texts]
        return Examples(written, None, None, [str("dog" in text.split()) for text in texts])

    task = TASKS["sst2"]
    for make in (by_word, by_neighbours, by_character):
        splits = of(make)
        found = values(task, splits)
        assert set(found) == {"majority", "tfidf"}
        assert found["tfidf"] > found["majority"] + 0.5 * (1 - found["majority"])


def test_a_label_that_is_not_in_the_text_is_not_told():
    rng = np.random.default_rng(0)
    splits = of(lambda texts: Examples(texts, None, None, rng.choice(["0", "1"], len(texts)).tolist()))
    rows = list(score_rows(TASKS["sst2"], splits=splits))
    share = {name: np.mean([answer == name for answer in splits["test"].answers]) for name in "01"}
    assert [row["floor"] for row in rows] == [max(share.values())] * 2
    assert [row["metric"] for row in rows] == ["majority", "tfidf"]
    assert all((row["group"], row["n"]) == ("sst2", 300) for row in rows)
    assert rows[0]["value"] == share[max("01", key=splits["train"].answers.count)]
    assert abs(rows[1]["value"] - 0.5) < 4 * 0.5 / 300**0.5  # standard errors of a guess


def test_pairs_are_compared():
    """Neither text alone says whether the two are the same."""

    def pairs(texts):
        other = [text if i % 2 else texts[i - 1] for i, text in enumerate(texts)]
        return Examples(texts, other, None, [str(i % 2) for i in range(len(texts))])

    assert values(TASKS["rte"], of(pairs))["tfidf"] > 0.9


def test_words_of_second_texts_alone_are_known():
    def told_by_the_second(texts):
        other = [("yes it is", "never at all")[i % 2] for i in range(len(texts))]
        return Examples(["which"] * len(texts), other, None, [str(i % 2) for i in range(len(texts))])

    assert values(TASKS["rte"], of(told_by_the_second))["tfidf"] == 1


def test_numbers_are_told_by_ridge_regression():
    def presence(texts):
        return Examples(texts, texts, None, [float("dog" in text.split()) for text in texts])

    found = values(TASKS["stsb"], of(presence))
    assert found["majority"] == 0
    assert found["tfidf"] > 0.8


def tagged(by):
    def make(texts):
        words = [text.split() for text in texts]
        return Examples(texts, None, words, [by(sentence) for sentence in words])

    return make


def test_a_tag_of_a_word_is_remembered_and_one_of_its_neighbour_needs_the_window():
    task = TASKS["language_parts_of_speech"]
    of_word = values(task, of(tagged(lambda words: ["D" if word in ("the", "a") else "X" for word in words])))
    assert set(of_word) == {"majority", "word", "word_window"}
    assert of_word["word"] == 1
    assert of_word["word_window"] > 0.99
    of_neighbour = values(
        task, of(tagged(lambda words: ["S", *("T" if word == "the" else "O" for word in words[:-1])]))
    )
    assert of_neighbour["word_window"] > 0.99 > 0.9 > of_neighbour["word"]


def test_a_new_word_has_the_most_frequent_tag():
    train = Examples(["a b b"], None, [["a", "b", "b"]], [["X", "Y", "Y"]])
    test = Examples(["a c"], None, [["a", "c"]], [["X", "Y"]])
    splits = {"train": train, "validation": train, "test": test}
    assert values(Task("made up", "tagging", "accuracy"), splits)["word"] == 1


# Spans -----------------------------------------------------------------------------------------------


def asked_about(texts, place):
    """The question is the third word, the answer the word at a place from it."""
    words = [["start", *text.split(), "end", "end"] for text in texts]
    starts = [len(" ".join(of[: 2 + place])) + 1 for of in words]
    answers = [Answer(at, at + len(of[2 + place])) for at, of in zip(starts, words, strict=True)]
    return Examples([of[2] for of in words], [" ".join(of) for of in words], None, answers)


@pytest.mark.parametrize("place", [-1, 1])
def test_an_answer_beside_a_word_of_the_question_is_found(place):
    def unlike(texts):
        """No word twice, so that the question stands at one place."""
        return asked_about(
            [" ".join(f"{word}{i}" for i, word in enumerate(text.split())) for text in texts], place
        )

    found = values(TASKS["xquad"], of(unlike, count=40))
    assert set(found) == {"place", "beside_question"}
    assert found["beside_question"] == 1


def test_an_answer_at_the_same_place_is_found_without_the_question():
    def last_two(texts):
        contexts = [f"{text} x{i} y{i}" for i, text in enumerate(texts)]
        answers = [Answer(len(text) + 1, len(context)) for text, context in zip(texts, contexts, strict=True)]
        return Examples(["who"] * len(texts), contexts, None, answers)

    splits = of(last_two, count=40)
    (place, _) = score_rows(TASKS["xquad"], splits=splits)
    assert (place["value"], place["floor"]) == (1, 1)


def test_the_rule_is_chosen_on_the_training_part():
    """There the first word is the answer, in the test part the last one."""

    def at(end):
        def make(texts):
            contexts = [f"f{i} {text} l{i}" for i, text in enumerate(texts)]
            firsts = [context.index(" ") for context in contexts]
            lasts = [context.rindex(" ") + 1 for context in contexts]
            answers = [Answer(last, len(c)) if end else Answer(0, first)
                       for c, first, last in zip(contexts, firsts, lasts, strict=True)]  # fmt: skip
            return Examples(["who"] * len(texts), contexts, None, answers)

        return make

    splits = of(at(end=False), count=40) | {"test": of(at(end=True), count=40)["test"]}
    (place, _) = score_rows(TASKS["xquad"], splits=splits)
    assert (place["value"], place["floor"]) == (0, 1)


def test_of_one_class_or_tag_the_answer_is_this_one():
    splits = of(lambda texts: Examples(texts, None, None, ["0"] * len(texts)), count=20)
    assert values(TASKS["sst2"], splits) == {"majority": 1, "tfidf": 1}
    splits = of(tagged(lambda words: ["X"] * len(words)), count=20)
    assert values(TASKS["ud_pos"], splits) == {"majority": 1, "word": 1, "word_window": 1}


def written(task, folder, split, columns):
    place = folder / task.files[split]
    place.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), place)


@pytest.mark.parametrize(
    ("kind", "more", "columns"),
    [
        ("classification", {"metric": "matthews"},
         lambda a, b: {"sentence": a, "label": [0, 1] * 20}),
        ("classification", {"metric": "f1", "positive": "b", "text": ("one", "two")},
         lambda a, b: {"one": a, "two": b, "label": [*"abcb"] * 10}),
        ("classification", {"metric": "macro_f1", "text": ("one", "two")},
         lambda a, b: {"one": a, "two": b, "label": [*"abca"] * 10}),
        ("regression", {"metric": "spearman"},
         lambda a, b: {"sentence": a, "label": [float(len(text)) for text in a]}),
        ("tagging", {"metric": "entity_f1", "text": ("tokens",)},
         lambda a, b: {"tokens": [text.split() for text in a],
                       "label": [["S-X" if word == "the" else "O" for word in text.split()] for text in a]}),
        ("span", {"metric": "exact_match", "text": ("question", "context"), "start": "at"},
         lambda a, b: {"question": b, "context": a, "label": [text.split()[0] for text in a], "at": [0] * len(a)}),
    ],
)  # fmt: skip
def test_a_task_of_a_known_kind_is_an_entry_and_its_files(kind, more, columns, tmp_path):
    files = {split: f"new/{split}.parquet" for split in SPLITS}
    task = Task("new", kind, files=files, **more)
    for seed, split in enumerate(SPLITS):
        written(task, tmp_path, split, columns(sentences(40, seed=seed), sentences(40, seed=seed + 3)))
    splits = {split: read_examples(task, split, data_root=tmp_path) for split in SPLITS}
    for row in score_rows(task, splits=splits):
        assert (row["group"], row["n"]) == ("new", 40)
        assert -1 <= row["value"] <= 1
        assert 0 <= row["floor"] <= 1


# Parts -----------------------------------------------------------------------------------------------


def test_minimal_pairs_are_refused():
    with pytest.raises(ValidationError) as error:
        BaselinesSettings(kind="baselines", tasks=("blimp",))
    taken = [name for name, task in TASKS.items() if task.kind != "minimal_pairs"]
    assert error.value.errors()[0]["msg"] == (
        f"has blimp, but this measure can use only {listed(taken, 'and')}; leave blimp out"
    )


def given_to(settings, splits, monkeypatch):
    """The parts that baselines learn from and are scored on, one after the other."""
    given = []
    row = {"metric": "word", "n": 0}
    monkeypatch.setattr(baselines, "score_rows", lambda task, *, splits: given.append(splits) or iter([row]))
    rows = list(baseline_rows(settings, splits))
    return given, rows


@pytest.mark.parametrize("more", [{}, {"effort": "quick"}, {"examples": 20}, {"effort": "quick", "examples": 20}])
def test_baselines_take_what_the_heads_and_the_probes_take(more, monkeypatch):
    """As these measures themselves cut their parts, which have texts of their own."""
    splits = of(tagged(lambda words: ["X"] * len(words)), count=1500)
    settings = BaselinesSettings.model_validate({"kind": "baselines", "tasks": ["ud_pos"], **more})
    (heads, probes), rows = given_to(settings, splits, monkeypatch)
    tuned = FineTuningSettings.model_validate({"kind": "fine_tuning", "tasks": ["ud_pos"], **more})
    assert heads == {split: part(splits[split], tuned, split) for split in splits}

    taken = {}
    monkeypatch.setattr(probing, "probed", lambda objective, tokenizer, task, parts, **_: taken.update(parts))
    monkeypatch.setattr(probing, "task_rows", lambda parts, *, group: iter(()))
    of_probes = ProbingSettings.model_validate({"kind": "probing", "tasks": ["ud_pos"], **more})
    list(probing.probing_rows(None, None, splits, of_probes, max_length=64))
    assert probes == taken
    assert len(heads["train"]) > len(probes["train"])
    assert [(row["metric"], row["n"]) for row in rows] == [
        ("word", 0),
        ("probed_word", sum(map(len, splits["test"].words))),
    ]


@pytest.mark.parametrize(
    ("task", "measures"),
    [
        ("sst2", ["frozen_features"]),
        ("xquad", ["frozen_features"]),
        ("tree_depth", ["probing"]),
        ("ud_pos", ["frozen_features", "probing"]),
        ("wikigold", ["frozen_features"]),
    ],
)
def test_each_task_has_the_baselines_of_what_is_measured_on_it(task, measures):
    settings = BaselinesSettings(kind="baselines", effort="quick", tasks=(task,), examples=70)
    assert [measure.kind for measure in settings.compared_measures] == measures
    assert all(
        (measure.most_examples("train"), measure.task.name) == (70, task) for measure in settings.compared_measures
    )


@pytest.mark.parametrize(
    ("metric", "measures"),
    [("accuracy", ["frozen_features", "probing"]), ("entity_f1", ["frozen_features"])],
)
def test_a_declared_task_of_tags_has_the_baselines_of_heads_and_of_probes(metric, measures, tmp_path):
    """Probes score tags by their accuracy, so that tags of entities have no baseline of theirs."""
    (tmp_path / "tags.yaml").write_text(
        f"kind: tagging\nmetric: {metric}\ntext: [tokens]\nlabel: tags\n"
        "files: {test: a.jsonl}\ndivided_by: tags\n"
    )
    plugins.look_beside(tmp_path / "spec.yaml")
    of_tags = {"tasks": ["tags.yaml"], "effort": "quick"}
    settings = BaselinesSettings.model_validate({"kind": "baselines"} | of_tags)
    assert [measure.kind for measure in settings.compared_measures] == measures
    if metric == "accuracy":
        both = [settings, *(TypeAdapter(Measure).validate_python({"kind": kind} | of_tags) for kind in measures)]
        assert mismatched_baselines(both) is None


@pytest.mark.parametrize(
    ("own", "other", "unlike"),
    [
        ({}, {"kind": "fine_tuning"}, None),
        ({}, {"kind": "probing"}, None),
        ({"effort": "quick"}, {"kind": "fine_tuning", "effort": "quick"}, None),
        ({"effort": "quick"}, {"kind": "fine_tuning"}, ("fine_tuning", "sst2")),
        ({"examples": 100}, {"kind": "fine_tuning", "examples": 200}, ("fine_tuning", "sst2")),
        ({"examples": 100, "tasks": ["mrpc"]}, {"kind": "frozen_features", "tasks": ["rte"]}, None),
        ({"tasks": ["mrpc"]}, {"kind": "probing", "tasks": ["mrpc"]}, None),
        ({"effort": "quick"}, {"kind": "probing", "tasks": ["ud_pos"]}, ("probing", "ud_pos")),
        # Of the test part frozen features would take 1,000 and probes take all.
        ({"effort": "quick", "tasks": ["mrpc"]},
         {"kind": "probing", "effort": "quick", "tasks": ["mrpc"]}, ("probing", "mrpc")),
    ],
)  # fmt: skip
def test_baselines_beside_what_takes_other_examples_are_found(own, other, unlike):
    measures = TypeAdapter(list[Measure]).validate_python([{"kind": "baselines"} | own, "validation", other])
    found = mismatched_baselines(measures)
    if unlike is not None and unlike[1] == "sst2":
        assert found is not None
        assert found[0] == unlike[0]
    else:
        assert found == unlike
    assert mismatched_baselines(measures[1:]) is None


def test_quick_baselines_are_those_of_the_quick_tasks():
    quick = BaselinesSettings(kind="baselines", effort="quick").parts(built_in=False)
    names = ["bigram_shift", "tree_depth", "ud_pos", "sst2", "mrpc", "wikigold"]
    assert [part.task.name for part in quick] == names
    assert len(BaselinesSettings(kind="baselines").parts(built_in=False)) > len(quick)
