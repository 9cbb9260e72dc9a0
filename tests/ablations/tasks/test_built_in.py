"""The tasks of the built-in language: their texts and answers are those of its grammar."""

from collections import Counter
from pathlib import Path

import pytest

from ablations.tasks import built_in as made_by
from ablations.tasks.datasets import SPLITS, TASKS
from ablations.tasks.examples import read_examples
from lightning_modules.data.language import Language
from lightning_modules.data.language.minimal_pairs import PARADIGMS, minimal_pairs
from lightning_modules.errors import DataError
from tests.support.errors import error_text

BUILT_IN = [task for task in TASKS.values() if task.built_in]
TRAINED = [task for task in BUILT_IN if task.kind != "minimal_pairs"]
NOWHERE = Path("nowhere")


def built_in(task, split, seed=0):
    return read_examples(task, split, data_root=NOWHERE, language_seed=seed)


SIZES = {"train": 120, "validation": 60, "test": 100}
PAIRS = 12


@pytest.fixture(autouse=True, scope="module")
def smaller():
    """Splits of another size, so that the tests are quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made_by, "SIZES", SIZES)
        patch.setattr(made_by, "PAIRS_OF_PARADIGM", PAIRS)
        yield


@pytest.fixture(scope="module")
def made(smaller):
    """Every built-in task that is trained on."""
    return {task.name: {split: built_in(task, split) for split in SPLITS} for task in TRAINED}


@pytest.mark.parametrize("task", TRAINED, ids=lambda task: task.name)
def test_splits_of_built_in_tasks_are_whole_and_share_hardly_a_text(task, made):
    splits = made[task.name]
    texts = {}
    for split, examples in splits.items():
        assert len(examples) == len(examples.answers) == SIZES[split]
        second = examples.second or examples.first
        texts[split] = set(zip(examples.first, second, strict=True))
        # Short sentences come twice by chance.
        assert len(texts[split]) >= 0.99 * len(examples)
    for a, b in [("train", "test"), ("validation", "test"), ("train", "validation")]:
        assert len(texts[a] & texts[b]) <= 0.01 * len(texts[a])


def test_acceptability_shows_one_half_of_pairs_that_no_other_split_and_no_measure_has(made):
    """By the pair itself: of two splits with one pair, half would show the other half of it."""
    paradigms = len(PARADIGMS)
    each = {split: -(-size // paradigms) for split, size in SIZES.items()}
    pairs = [list(minimal_pairs(Language(0), name, PAIRS + sum(each.values()))) for name in PARADIGMS]
    task = made["language_acceptability"]
    number = PAIRS
    for split in SPLITS:
        shown = zip(task[split].first, task[split].answers, strict=True)
        for i, (text, label) in enumerate(shown):
            pair = pairs[i % paradigms][number + i // paradigms]
            assert text == " ".join(pair.grammatical if label == "1" else pair.ungrammatical)
        number += each[split]
    measured = built_in(TASKS["language_minimal_pairs"], "test")
    assert measured.first[:PAIRS] == [" ".join(pair.grammatical) for pair in pairs[0][:PAIRS]]


@pytest.mark.parametrize("name", ["acceptability", "same_document", "word_order"])
def test_labels_drawn_by_a_coin_are_balanced(name, made):
    for split, examples in made[f"language_{name}"].items():
        counts = Counter(examples.answers)
        assert len(counts) == 2
        assert abs(max(counts.values()) / SIZES[split] - 0.5) < 4 * 0.5 / SIZES[split] ** 0.5  # standard errors


@pytest.mark.parametrize("task", BUILT_IN, ids=lambda task: task.name)
def test_a_built_in_task_depends_on_the_seed_of_the_language_alone(task, made):
    first = made.get(task.name, {}).get("validation") or built_in(task, "test")
    split = "test" if task.kind == "minimal_pairs" else "validation"
    assert built_in(task, split) == first
    assert built_in(task, split, seed=1).first != first.first


def test_labels_are_those_of_the_grammar(made):
    """Sentence for sentence: the language is asked again."""
    language, task = Language(0), made["language_tense"]["test"]
    sentences = [language.document("task: test", number)[0] for number in range(30)]
    with_tense = [s for s in sentences if s.tense is not None]
    assert task.first[: len(with_tense)] == [s.text for s in with_tense]
    assert task.answers[: len(with_tense)] == [s.tense for s in with_tense]
    speech = made["language_parts_of_speech"]["test"]
    assert speech.answers[:30] == [list(s.tags) for s in sentences]
    assert speech.words[:30] == [list(s.words) for s in sentences]
    assert speech.first[:30] == [" ".join(s.words) for s in sentences]


def test_swapped_words_are_two_neighbours(made):
    language, task = Language(0), made["language_word_order"]["test"]
    for number in range(60):
        natural = language.document("task: test", number)[0].words
        shown = task.first[number].split()
        moved = [i for i, (a, b) in enumerate(zip(natural, shown, strict=True)) if a != b]
        assert (len(moved) == 2) == (task.answers[number] == "swapped")
        if moved:
            assert moved[1] == moved[0] + 1
            assert [shown[i] for i in moved] == [natural[i] for i in reversed(moved)]
        else:
            assert task.answers[number] == "natural"


def test_a_second_sentence_follows_the_first_if_the_label_says_so(made):
    language, task = Language(0), made["language_same_document"]["test"]
    for number in range(40):
        first, follows = language.document("task: test", 2 * number)[:2]
        other = language.document("task: test", 2 * number + 1)[1]
        assert task.first[number] == first.text
        assert task.second[number] == (follows if task.answers[number] == "1" else other).text


def test_the_answer_of_a_question_is_where_its_span_says_and_ends_in_the_subject(made):
    language, task = Language(0), made["language_subject"]["test"]
    for number in range(SIZES["test"]):
        context, answer = task.second[number], task.answers[number]
        said = context[answer.start : answer.stop].split()
        sentence = language.document("task: test", number)[0]
        root = sentence.heads.index(-1)
        assert task.first[number] == sentence.words[root]
        before = len(context[: answer.start].split())
        assert sentence.words[before : before + len(said)] == tuple(said)
        noun = before + len(said) - 1
        assert (sentence.heads[noun], sentence.relations[noun]) == (root, "nsubj")


def test_noun_phrases_are_spans_that_end_in_a_noun(made):
    task, speech = made["language_noun_phrases"]["test"], made["language_parts_of_speech"]["test"]
    for spans, tags in zip(task.answers[:200], speech.answers[:200], strict=True):
        ends = [i for i, span in enumerate(spans) if span != "O" and [*spans, "O"][i + 1] != "I-NP"]
        assert ends == [i for i, tag in enumerate(tags) if tag == "NOUN"]
        assert not any(b == "I-NP" and a == "O" for a, b in zip(["O", *spans], spans, strict=False))


def test_minimal_pairs_are_equally_many_of_each_paradigm():
    examples = built_in(TASKS["language_minimal_pairs"], "test")
    assert set(Counter(examples.groups).values()) == {PAIRS}
    assert all(good != bad for good, bad in zip(examples.first, examples.second, strict=True))


def test_a_built_in_task_needs_the_language():
    assert error_text(DataError, read_examples, TASKS["language_tense"], "test", data_root=NOWHERE) == (
        "task language_tense: its examples come from the built-in language, but the data are files; leave the "
        "task out."
    )
