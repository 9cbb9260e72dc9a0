"""Frozen features and fine-tuning: answers that are spans or tags, words in another order, and refusals."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ablations.errors import MeasureError
from ablations.tasks import metrics
from ablations.tasks.datasets import TASKS
from ablations.tasks.examples import WORD, Answer, Examples
from ablations.tasks.transfer import transfer
from ablations.tasks.transfer.heads import answers_of, best_span, texts_of
from ablations.tasks.transfer.transfer import natural_order, shuffled
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.tiny_text import settings
from tests.support.transfer import (
    CLASSES,
    ENTITIES,
    FEW,
    SPANS,
    WAYS,
    asked,
    divided,
    labelled,
    precedence,
    scored,
    texts,
)

# Answers ---------------------------------------------------------------------------------------------


def test_the_best_span_is_that_of_a_search_through_all():
    rng = np.random.default_rng(26)
    for _ in range(200):
        K, longest = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        start_K, end_K = rng.standard_normal((2, K)).astype(np.float32)
        legal = [(i, j) for i in range(K) for j in range(i, min(K, i + longest))]
        expected = max(legal, key=lambda pair: start_K[pair[0]] + end_K[pair[1]])
        assert best_span(start_K, end_K, longest=longest) == expected


def span_texts(tokens, contexts, answers, max_length=64):
    examples = Examples(["the cat"] * len(contexts), contexts, None, answers)
    return texts_of(TASKS[SPANS], examples, tokens.tokenizer, max_length=max_length)


def test_saying_the_target_of_a_span_is_saying_the_answer(tokens):
    contexts = ["a dog sees the small green bird", "the bird", "zyxwv qrs dog's  house"]
    wanted = ["the small", "the bird", "dog's  house"]
    answers = [Answer(c.index(w), c.index(w) + len(w)) for c, w in zip(contexts, wanted, strict=True)]
    read = span_texts(tokens, contexts, answers)
    said = answers_of(TASKS[SPANS], read)
    for i, answer in enumerate(wanted):
        target_K2 = said.target(read, i)
        assert target_K2.sum(0).tolist() == [1.0, 1.0]
        assert said.answer(target_K2.numpy(), read, i) == answer
    assert read.examples.right == wanted


def test_the_loss_of_a_span_is_the_mean_cross_entropy_of_its_two_ends(tokens):
    read = span_texts(tokens, ["a dog sees", "the small green bird"], [Answer(2, 5), Answer(4, 15)])
    said = answers_of(TASKS[SPANS], read)
    output_NO = torch.randn(read.bounds_E[-1], 2, generator=torch.Generator().manual_seed(0))
    target = [said.target(read, i) for i in range(2)]
    parts = output_NO.split(read.counts_E.tolist())
    expected = [
        F.cross_entropy(part[None, :, side], right[:, side].argmax()[None])
        for part, right in zip(parts, target, strict=True)
        for side in (0, 1)
    ]
    loss = said.loss(output_NO, torch.cat(target), torch.from_numpy(read.counts_E))
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-6)  # float32


def test_an_answer_behind_the_longest_text_is_not_learned_from_and_not_found(tokens):
    read = span_texts(tokens, ["a dog sees the bird here often"] * 2, [Answer(2, 5), Answer(24, 30)], max_length=9)
    said = answers_of(TASKS[SPANS], read)
    assert read.rows.rows[0].cut
    assert said.target(read, 0) is not None
    assert said.target(read, 1) is None
    anything_KO = np.random.default_rng(0).standard_normal((read.counts_E[1], 2)).astype(np.float32)
    assert metrics.exact_match([said.answer(anything_KO, read, 1)], ["often"]) == 0


def test_tags_are_those_of_the_first_pieces_and_the_most_frequent_behind_the_longest_text(tokens):
    words = [["the", "xyzzy", "dog"], ["sees", "cat"], ["a"] * 20]
    tags = [["O", "B-NP", "I-NP"], ["O", "B-NP"], ["O"] * 17 + ["B-NP"] * 3]
    examples = Examples([" ".join(sentence) for sentence in words], None, words, tags)
    task = TASKS[ENTITIES]
    read = texts_of(task, examples, tokens.tokenizer, max_length=12)
    said = answers_of(task, read)
    hand = [["O", "B-NP", "O"], ["B-NP", "B-NP"], ["B-NP"] * 20]
    names = ["B-NP", "I-NP", "O"]
    found = []
    for i, sentence in enumerate(hand):
        output_KO = np.eye(3, dtype=np.float32)[[names.index(tag) for tag in sentence[: read.counts_E[i]]]]
        found.append(said.answer(output_KO, read, i))
    kept = int(read.counts_E[2])
    assert read.counts_E.tolist()[:2] == [3, 2]
    assert 0 < kept < 20
    expected = [*hand[:2], ["B-NP"] * kept + ["O"] * (20 - kept)]
    assert found == expected
    assert metrics.score(task, found, read.examples.right) == metrics.score(task, expected, tags)
    assert said.target(read, 0).tolist() == [2, 0, 1]
    assert said.target(read, 2).tolist() == [2] * min(kept, 17)


# Another order of words ------------------------------------------------------------------------------


def test_shuffled_texts_have_the_same_words_and_none_at_its_place():
    first, second = [" ".join(map(str, range(n))) for n in range(2, 40)], ["1 2 3 4"] * 38
    moved, _ = shuffled(Examples(first, second, None, list(range(38))))
    for natural, other in zip(first + second, moved.first + (moved.second or []), strict=True):
        assert sorted(natural.split()) == sorted(other.split())
        assert all(a != b for a, b in zip(natural.split(), other.split(), strict=True))
    assert len(set(moved.second or [])) > 1  # each text by itself
    assert moved.answers == list(range(38))
    assert shuffled(Examples(["alone", ""], None, None, ["x", "y"])).examples.first == ["alone", ""]


def test_in_scripts_without_spaces_each_character_is_a_word():
    texts = ["这部电影很好看", "ภาษาไทย", "他 uses BERT"]
    assert [re.findall(WORD, text) for text in [*texts, "की बात, is it?"]] == [
        ["这", "部", "电", "影", "很", "好", "看"],
        ["ภ", "า", "ษ", "า", "ไ", "ท", "ย"],
        ["他", "uses", "BERT"],
        ["की", "बात", "is", "it"],
    ]
    moved = shuffled(Examples(texts, None, None, ["x"] * 3)).examples.first
    for natural, other in zip(texts, moved, strict=True):
        assert sorted(natural) == sorted(other)
        assert natural != other
    assert " " not in "".join(moved[:2])


def test_tags_move_with_their_words_and_back():
    words = [[str(i) for i in range(n)] for n in range(1, 12)]
    tags = [[f"t{word}" for word in sentence] for sentence in words]
    moved, place = shuffled(Examples([" ".join(sentence) for sentence in words], None, words, tags))
    assert [[f"t{word}" for word in sentence] for sentence in moved.words or []] == moved.answers
    assert moved.answers != tags
    assert natural_order(moved.answers, place) == tags


@pytest.mark.parametrize("task", [CLASSES, ENTITIES])
def test_an_encoder_without_any_order_says_the_same_of_shuffled_text(task, tokens):
    blind = build(settings(objective={"sees": "itself"}, encoder={"positions": "none", "dropout": 0.0}), tokens)
    sentences = texts(400, seed=27)
    if task == CLASSES:
        splits = labelled(sentences, [str(text.count("the") > text.count("dog")) for text in sentences])
    else:
        words = [text.split() for text in sentences]
        tags = [["B-NP" if word in ("dog", "cat", "bird") else "O" for word in sentence] for sentence in words]
        splits = divided(Examples(sentences, None, words, tags))
    for way in WAYS:
        found = scored(blind, tokens, splits, asked(way, task, seeds=1, epochs=2))
        assert found[task, "shuffled_score"]["value"] == found[task, "score"]["value"]


@pytest.mark.parametrize("way", WAYS)
def test_static_word_vectors_have_a_head_too(way, tokens):
    vectors = build(settings("skip_gram"), tokens)
    sentences = texts(660, seed=28, words=FEW[:6], shortest=6, longest=7)
    splits = labelled(sentences, [str("dog" in text.split()) for text in sentences])
    found = scored(vectors, tokens, splits, asked(way, seeds=1, epochs=10))
    assert found[CLASSES, "score"]["value"] > 0.95
    assert found[CLASSES, "shuffled_score"]["value"] == found[CLASSES, "score"]["value"]


# Refusals and stops ----------------------------------------------------------------------------------


def test_a_loss_that_is_no_number_is_refused(tokens):
    broken = build(settings(), tokens)
    with torch.no_grad():
        broken.encoder.blocks[0].attention.output.weight.fill_(float("nan"))
    sentence = (
        r"the loss became NaN or infinite \(language_topic, 140 examples, repetition 1\); give lower "
        r"learning_rates, or check whether the run itself diverged\."
    )
    for way in WAYS:
        with pytest.raises(MeasureError, match=f"^{sentence}$"):
            scored(broken, tokens, precedence(400, seed=29), asked(way))


@pytest.mark.parametrize("way", WAYS)
def test_a_score_that_is_no_number_after_any_epoch_is_refused(way, objective, tokens, monkeypatch):
    monkeypatch.setattr(transfer, "score", lambda *_: float("nan"))
    said = error_text(MeasureError, lambda: scored(objective, tokens, precedence(300, seed=29), asked(way)))
    assert re.fullmatch(
        r"the score on the validation part became NaN or infinite \(language_topic, \d+ examples, repetition 1\); "
        r"give lower learning_rates, or check whether the run itself diverged\.",
        said,
    )


def test_a_task_whose_answers_all_lie_behind_the_longest_text_is_refused(objective, tokens):
    examples = Examples(["here"] * 300, ["a dog sees the bird here often"] * 300, None, [Answer(24, 30)] * 300)
    assert error_text(
        MeasureError, lambda: scored(objective, tokens, divided(examples), asked("frozen", SPANS), max_length=9)
    ) == (
        "the answers of all training examples (40) were cut off, because they come after data.max_length "
        "tokens; raise data.max_length, or leave the task out."
    )


@pytest.mark.parametrize("way", WAYS)
def test_who_is_told_may_stop_it(way, objective, tokens):
    class Stopped(Exception):
        pass

    def stop(line):
        raise Stopped

    with pytest.raises(Stopped):
        scored(objective, tokens, precedence(300, seed=31), asked(way), say=stop)
