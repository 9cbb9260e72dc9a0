"""Heads on frozen and on trained encoders: what each can and cannot learn, and that nothing else is changed."""

import itertools
import weakref
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from ablations.tasks.datasets import TASKS
from ablations.tasks.encoding import pooled_states
from ablations.tasks.examples import Answer, Examples
from ablations.tasks.settings import FineTuningSettings, FrozenFeaturesSettings
from ablations.tasks.transfer.heads import (
    FrozenStates,
    Head,
    Scale,
    TunedStates,
    answers_of,
    read_states,
    scale_of,
    texts_of,
)
from ablations.tasks.transfer.training import Recipe, Trainee, batches, train
from ablations.tasks.transfer.transfer import _Transfer
from lightning_modules.objectives import build
from tests.support.products_seen import ProductsSeen
from tests.support.tiny_text import settings
from tests.support.transfer import (
    CLASSES,
    NUMBERS,
    SPANS,
    TAGGING,
    WAYS,
    asked,
    divided,
    labelled,
    precedence,
    quiet,
    scored,
    texts,
)


def score_of(objective, tokens, splits, wanted, metric="score"):
    return scored(objective, tokens, splits, wanted)[wanted.task.name, metric]["value"]


def weights(objective):
    return {name: tensor.clone() for name, tensor in objective.state_dict().items()}


@pytest.fixture(scope="module")
def direction(objective, tokens):
    """Sentences, and how far each lies in a random direction of the frozen states."""
    sentences = texts(900, seed=3)
    read = texts_of(TASKS[CLASSES], Examples(sentences, None, None, [""] * 900), tokens.tokenizer, max_length=64)
    states_NF = pooled_states(objective, read.rows)[-1]
    scaled_NF = (states_NF - states_NF.mean(0)) / states_NF.std(0)
    return np.array(sentences), scaled_NF @ np.random.default_rng(4).standard_normal(states_NF.shape[1])


# What is learned -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_a_linear_function_of_the_frozen_states_is_learned_either_way(way, objective, tokens, direction):
    sentences, along = direction
    clear = np.abs(along - np.median(along)) > np.quantile(np.abs(along - np.median(along)), 0.3)
    labels = np.where(along > np.median(along), "high", "low")
    splits = labelled(sentences[clear], labels[clear])
    assert score_of(objective, tokens, splits, asked(way, seeds=1, epochs=12)) > 0.9


@pytest.mark.parametrize("way", WAYS)
def test_a_number_that_is_linear_in_the_frozen_states_is_learned_either_way(way, objective, tokens, direction):
    sentences, along = direction
    splits = labelled(sentences, [float(x) for x in 100 + 5 * along])  # neither scale nor mean matter
    found = scored(objective, tokens, splits, asked(way, NUMBERS, seeds=1))
    assert found[NUMBERS, "score"]["value"] > 0.9
    assert found[NUMBERS, "spearman"]["value"] > 0.8  # ranks, where Pearson's is the score


def test_which_of_two_words_comes_first_is_learned_by_training_the_encoder_alone(objective, tokens):
    splits = precedence(1200, seed=5)
    frozen = score_of(objective, tokens, splits, asked("frozen", seeds=1))
    tuned = scored(objective, tokens, splits, asked("tuned", seeds=1, epochs=12))
    assert tuned[CLASSES, "score"]["value"] > 0.9
    assert frozen < 0.7
    assert tuned[CLASSES, "shuffled_score"]["value"] < 0.7  # nothing but the order tells


def beside(count, step, seed):
    """Sentences of two words whose tags are the word before (-1) or after (1)."""
    rng = np.random.default_rng(seed)
    words = [list(rng.choice(["dog", "cat"], 6)) for _ in range(count)]
    tags = []
    for sentence in words:
        around = [sentence[i + step] if 0 <= i + step < 6 else "edge" for i in range(6)]
        tags.append([str(tag) for tag in around])
    words = [[str(word) for word in sentence] for sentence in words]
    return divided(Examples([" ".join(sentence) for sentence in words], None, words, tags), test=100)


@pytest.mark.parametrize(
    ("kind", "step", "learned"), [("causal_lm", 1, False), ("causal_lm", -1, True), ("masked_lm", 1, True)]
)
def test_a_causal_encoder_is_fine_tuned_with_its_own_mask(kind, step, learned, tokens):
    made = build(settings(kind, encoder={"dropout": 0.0}), tokens)
    value = score_of(made, tokens, beside(460, step, seed=6), asked("tuned", TAGGING, seeds=1, epochs=10))
    # Without the next word: the edge, and of the other five tags half.
    assert (value > 0.9) if learned else (value < 1 / 6 + 5 / 6 * 0.5 + 4 * np.sqrt(0.25 / 600))


@pytest.mark.parametrize("way", WAYS)
def test_labels_without_meaning_are_guessed(way, objective, tokens):
    coins = np.random.default_rng(7).choice(["heads", "tails"], 660)
    value = score_of(objective, tokens, labelled(texts(660, seed=8), map(str, coins)), asked(way, seeds=1))
    assert value == pytest.approx(0.5, abs=3 * np.sqrt(0.25 / 200))  # standard errors of 200 coins


@pytest.mark.parametrize("way", WAYS)
def test_whether_two_texts_are_the_same_is_read_from_the_pair(way, tokens):
    without_positions = build(settings(encoder={"positions": "none", "dropout": 0.0}), tokens)  # same means
    first, other = texts(600, seed=9), texts(600, seed=10)
    same = np.random.default_rng(11).random(600) < 0.5
    second = [a if s else b for a, b, s in zip(first, other, same, strict=True)]
    splits = divided(Examples(first, second, None, ["yes" if s else "no" for s in same]))
    wanted = asked(way, "language_same_document", seeds=1, epochs=10)
    assert score_of(without_positions, tokens, splits, wanted) > 0.95


@pytest.mark.parametrize("way", WAYS)
def test_the_place_of_an_answer_is_learned_either_way(way, objective, tokens):
    """The answer is the only made-up word with its article."""
    rng = np.random.default_rng(12)
    contexts, answers = [], []
    for sentence in texts(460, seed=13, words=("sees", "likes", "often"), shortest=2, longest=7):
        words = sentence.split()
        place = int(rng.integers(len(words)))
        words[place:place] = ["the", "dog"]
        start = sum(len(word) + 1 for word in words[:place])
        contexts.append(" ".join(words))
        answers.append(Answer(start, start + len("the dog")))
    splits = divided(Examples(["here"] * 460, contexts, None, answers), test=100)
    found = scored(objective, tokens, splits, asked(way, SPANS, seeds=1, epochs=10))
    assert found[SPANS, "score"]["value"] > 0.9
    assert found[SPANS, "exact_match"]["value"] > 0.9
    assert (SPANS, "shuffled_score") not in found


# What is left alone ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("training", [True, False])
def test_the_objective_comes_back_as_it_was(way, training, tokens):
    made = build(settings(), tokens).train(training)
    before, modes = weights(made), [module.training for module in made.modules()]
    state = torch.get_rng_state()
    scored(made, tokens, precedence(300, seed=14), asked(way, seeds=1, epochs=1))
    assert all(torch.equal(before[name], tensor) for name, tensor in made.state_dict().items())
    assert [module.training for module in made.modules()] == modes
    assert all(parameter.requires_grad and parameter.grad is None for parameter in made.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_frozen_states_stay_and_tuned_states_start_again(objective, tokens):
    read = texts_of(TASKS[CLASSES], precedence(300, seed=15)["train"], tokens.tokenizer, max_length=64)
    index_N = np.arange(len(read))
    expected_NF = torch.from_numpy(pooled_states(objective, read.rows)[-1])
    for states in (FrozenStates(objective), TunedStates(objective)):
        scale = scale_of(states, read)
        answers = answers_of(TASKS[CLASSES], read)
        trainee = Trainee(states, Head(scale, answers.outputs, seed=0), answers)
        with torch.no_grad():
            assert torch.allclose(states.of(read, index_N), expected_NF, atol=1e-6)  # float32, other batches
        train(trainee, read, index_N, Recipe(1, 1e-3, 1, 0, "x"), score=lambda trainee: 0.0, say=quiet)
        trainee.eval()
        with torch.no_grad():
            after_NF = states.of(read, index_N)
            assert torch.allclose(after_NF, expected_NF, atol=1e-6) == isinstance(states, FrozenStates)
            states.restart()
            assert torch.allclose(states.of(read, index_N), expected_NF, atol=1e-6)


def test_an_encoder_is_fine_tuned_in_the_precision_of_its_pre_training(tokens):
    read = texts_of(TASKS[CLASSES], precedence(300, seed=16)["train"], tokens.tokenizer, max_length=64)
    index_N = np.arange(len(read))
    found = {}
    for precision in ("32-true", "bf16-mixed"):
        torch.manual_seed(0)
        objective = build(settings("masked_lm", training={"precision": precision}), tokens).eval()
        with torch.no_grad():
            for states in (FrozenStates(objective), TunedStates(objective)):
                found[precision, type(states)] = states.of(read, index_N)
    plain_NF = found["32-true", FrozenStates]
    assert torch.equal(plain_NF, found["bf16-mixed", FrozenStates])
    assert torch.allclose(plain_NF, found["32-true", TunedStates], atol=1e-6)
    mixed_NF = found["bf16-mixed", TunedStates]
    assert mixed_NF.dtype == torch.float32
    assert not torch.allclose(plain_NF, mixed_NF, atol=1e-4)
    # Products of bf16 round to 2^-8; states after the last norm are of size 1.
    assert torch.allclose(plain_NF, mixed_NF, atol=0.05)


def test_fine_tuning_leaves_no_product_of_bf16_to_a_processor_without(tokens, monkeypatch):
    monkeypatch.setattr("lightning_modules.model.numerics.cpu_multiplies_bf16", lambda: False)
    objective = build(settings("masked_lm", training={"precision": "bf16-mixed"}), tokens).eval()
    read = texts_of(TASKS[CLASSES], precedence(300, seed=15)["train"], tokens.tokenizer, max_length=64)
    index_N = np.arange(len(read))
    with ProductsSeen() as seen:
        states, answers = TunedStates(objective), answers_of(TASKS[CLASSES], read)
        trainee = Trainee(states, Head(scale_of(states, read), answers.outputs, seed=0), answers)
        train(trainee, read, index_N, Recipe(1, 1e-3, 1, 0, "x"), score=lambda trainee: 0.0, say=quiet)
        trainee.answers_to(read)
    assert seen.types == {torch.float32}


def test_features_are_scaled_by_what_they_are_in_the_training_texts(objective, tokens):
    read = texts_of(TASKS[CLASSES], precedence(300, seed=16)["train"], tokens.tokenizer, max_length=64)
    states_NF = pooled_states(objective, read.rows)[-1].astype(np.float64)
    for states in (FrozenStates(objective), TunedStates(objective)):
        mean_F, deviation_F = scale_of(states, read)
        np.testing.assert_allclose(mean_F, states_NF.mean(0), atol=1e-5)  # float32 states
        np.testing.assert_allclose(deviation_F, states_NF.std(0), atol=1e-5)


@contextmanager
def texts_encoded(objective):
    """The texts that an objective encodes in the block, and no copy of it that is trained."""
    encoded = []

    def counted(who, texts, index_B, *, mixed=False):
        if who is objective:
            encoded.extend(texts.rows.rows[i].ids_T.tobytes() for i in index_B)
        return read_states(who, texts, index_B, mixed=mixed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablations.tasks.transfer.heads.read_states", counted)
        yield encoded


SHARED = {CLASSES: precedence(300, seed=18), TAGGING: beside(300, 1, 18)}


@pytest.fixture(scope="module")
def alone(tokens):
    """Of each task, the rows of each way that shares nothing, and how many texts it encodes."""
    objective, ways = build(settings(), tokens).eval(), {}
    for task, splits in SHARED.items():
        for way in WAYS:
            with texts_encoded(objective) as encoded:
                wanted = asked(way, task, seeds=1, epochs=1)
                ways[task, way] = scored(objective, tokens, splits, wanted), len(encoded)
    return ways


@pytest.mark.parametrize("order", list(itertools.permutations(WAYS)), ids="-".join)
@pytest.mark.parametrize("task", [CLASSES, TAGGING])
def test_measures_of_a_task_share_the_states_of_its_texts(task, order, tokens, alone):
    objective = build(settings(), tokens).eval()
    splits, shared = SHARED[task], FrozenStates(objective)
    with texts_encoded(objective) as encoded:
        for way in order:
            wanted = asked(way, task, seeds=1, epochs=1)
            assert scored(objective, tokens, splits, wanted, frozen=shared) == alone[task, way][0]
    assert len(encoded) == alone[task, "frozen"][1]
    assert alone[task, "tuned"][1] == len(splits["train"])


def test_texts_share_states_where_a_head_reads_the_same_of_them(objective, tokens):
    def read(sentences, task=CLASSES):
        return texts_of(TASKS[task], Examples(sentences, None, None, [""] * 2), tokens.tokenizer, max_length=64)

    some = read(["the dog", "a cat often"])
    assert some.digest == read(["the dog", "a cat often"]).digest
    assert some.digest != read(["a cat often", "the dog"]).digest
    assert some.digest != read(["the dog a", "cat often"]).digest
    words = [["the", "dog"], ["a", "cat", "often"]]
    tags = [["x"] * 2, ["x"] * 3]
    tagged = Examples(["the dog", "a cat often"], None, words, tags)
    assert some.digest != texts_of(TASKS[TAGGING], tagged, tokens.tokenizer, max_length=64).digest


def test_an_encoder_of_other_precision_scales_by_its_own_states(tokens):
    splits = precedence(300, seed=19)
    made = build(settings("masked_lm", training={"precision": "bf16-mixed"}), tokens).eval()
    shared = FrozenStates(made)
    wanted = asked("tuned", seeds=1, epochs=1)
    assert scored(made, tokens, splits, wanted, frozen=shared) == scored(made, tokens, splits, wanted)
    assert not shared._kept


# Repetitions and order -------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_the_same_settings_give_the_same_rows_whatever_the_global_state(way, objective, tokens):
    splits, wanted = precedence(300, seed=17), asked(way, epochs=1)
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(scored(objective, tokens, splits, wanted))
    assert found[0] == found[1]
    assert found[0][CLASSES, "score"]["standard_error"] > 0  # repetitions differ


class Recorded:
    """States of no encoder, of any width; remembers what it was asked for."""

    def __init__(self, width):
        self.width, self.asked, self.trained = width, [], {}

    def restart(self):
        pass

    def of(self, texts, index_B):
        self.asked.append(index_B.tolist())
        rng = np.random.default_rng(index_B)
        return torch.from_numpy(rng.standard_normal((len(index_B), self.width), dtype=np.float32))


def order_of(width, read, repetition):
    states, answers = Recorded(width), answers_of(TASKS[CLASSES], read)
    scale = Scale(torch.zeros(width), torch.ones(width))
    trainee = Trainee(states, Head(scale, answers.outputs, seed=repetition), answers)
    recipe = Recipe(3, 1e-3, 1, repetition, "x")
    train(trainee, read, np.arange(len(read)), recipe, score=lambda trainee: 0.0, say=quiet)
    return states.asked


def test_every_encoder_is_shown_the_examples_in_the_same_order(tokens):
    read = texts_of(TASKS[CLASSES], precedence(400, seed=18)["train"], tokens.tokenizer, max_length=64)
    narrow, wide = order_of(4, read, 0), order_of(9, read, 0)
    assert narrow == wide
    assert narrow != order_of(4, read, 1)
    passes = len(narrow) // 3
    for first in (0, passes, 2 * passes):
        assert sorted(itertools.chain(*narrow[first : first + passes])) == list(range(len(read)))
    assert narrow[:passes] != narrow[passes : 2 * passes]


def test_batches_hold_each_example_once_and_texts_of_similar_length():
    length_M = np.random.default_rng(19).integers(1, 100, 1000)
    found = list(batches(np.arange(1000) + 5, length_M, seed=3))
    assert sorted(np.concatenate(found)) == list(range(5, 1005))
    assert {len(batch) for batch in found} <= {32, 1000 - 512 - 15 * 32}
    inside = np.mean([np.ptp(length_M[batch - 5]) for batch in found])
    assert inside < np.ptp(length_M) / 4
    assert np.mean(np.diff([length_M[batch - 5].mean() for batch in found]) > 0) < 0.8  # nor from short to long


def test_few_examples_are_shown_until_there_are_enough_steps_and_scored_as_often(objective, tokens):
    read = texts_of(TASKS[CLASSES], precedence(400, seed=20)["train"], tokens.tokenizer, max_length=64)
    states, answers, said = Recorded(4), answers_of(TASKS[CLASSES], read), []
    trainee = Trainee(states, Head(Scale(torch.zeros(4), torch.ones(4)), 2, seed=0), answers)
    recipe = Recipe(3, 1e-3, 50, 0, "x")
    train(trainee, read, np.arange(10), recipe, score=lambda trainee: 0.0, say=said.append)
    assert len(states.asked) == 50  # one batch a pass
    assert [line.split(":")[0] for line in said] == [f"x, epoch {i} of 3" for i in (1, 2, 3)]


def test_the_best_epoch_is_kept_and_of_equal_ones_the_first(tokens):
    read = texts_of(TASKS[CLASSES], precedence(300, seed=21)["train"], tokens.tokenizer, max_length=64)
    answers, seen, scores = answers_of(TASKS[CLASSES], read), [], iter([0.3, 0.7, 0.1, 0.7])
    trainee = Trainee(Recorded(4), Head(Scale(torch.zeros(4), torch.ones(4)), 2, seed=0), answers)

    def judge(trainee):
        seen.append(weights(trainee))
        return next(scores)

    best = train(trainee, read, np.arange(len(read)), Recipe(4, 1e-3, 1, 0, "x"), score=judge, say=quiet)
    assert best.score == 0.7
    assert all(torch.equal(best.weights[name], tensor) for name, tensor in seen[1].items())
    assert not torch.equal(best.weights["parts.head.linear.weight"], seen[3]["parts.head.linear.weight"])


def test_the_learning_rate_that_is_best_on_the_validation_part_is_taken_for_all(objective, tokens):
    lines = []
    wanted = asked("tuned", seeds=2, epochs=2, learning_rates=(1e-7, 3e-3), learning_curve=(20,))
    scored(objective, tokens, precedence(400, seed=22), wanted, say=lines.append)
    trainings = dict.fromkeys(line.split(", epoch")[0] for line in lines)
    assert list(trainings) == [
        "language_topic, 140 examples, repetition 1, learning rate 1e-07",
        "language_topic, 140 examples, repetition 1, learning rate 0.003",
        "language_topic, 140 examples, repetition 2, learning rate 0.003",
        "language_topic, 20 examples, repetition 1, learning rate 0.003",
        "language_topic, 20 examples, repetition 2, learning rate 0.003",
    ]


def test_each_repetition_is_tested_before_the_next_is_trained(objective, tokens, monkeypatch):
    """The weights of all repetitions at once may be more than a device holds."""
    alive, most = [], 0

    def counted(self, trained):
        nonlocal most
        alive.append(weakref.ref(trained.weights["parts.head.linear.weight"]))
        most = max(most, sum(reference() is not None for reference in alive))
        return tested(self, trained)

    tested = _Transfer.tested
    monkeypatch.setattr(_Transfer, "tested", counted)
    wanted = asked("tuned", seeds=2, epochs=1, learning_rates=(1e-3, 3e-3), learning_curve=(20,))
    scored(objective, tokens, precedence(300, seed=22), wanted)
    assert (len(alive), most) == (2 * 2, 1)


# Rows ------------------------------------------------------------------------------------------------


def test_rows_of_a_task_and_of_its_learning_curve(objective, tokens):
    splits = precedence(400, seed=23)
    wanted = asked("frozen", "language_acceptability", seeds=3, epochs=2, learning_curve=(10, 50, 140, 5000))
    found = scored(objective, tokens, splits, wanted)
    name = "language_acceptability"
    assert list(found) == [
        (name, "score"),
        (name, "accuracy"),
        (name, "shuffled_score"),
        (f"{name}@140", "score"),  # all of them: the task itself, and the last point of its curve
        (f"{name}@10", "score"),
        (f"{name}@50", "score"),
    ]  # there are no 5,000
    assert found[f"{name}@140", "score"]["value"] == found[name, "score"]["value"]
    assert {row["n"] for row in found.values()} == {200}
    majority = max(set(splits["train"].answers), key=splits["train"].answers.count)
    assert found[name, "accuracy"]["floor"] == np.mean([label == majority for label in splits["test"].answers])
    assert found[name, "score"]["floor"] == 0.0  # Matthews


def test_a_value_is_the_mean_over_repetitions_and_its_error_over_these_and_the_test_examples(objective, tokens):
    splits = precedence(400, seed=24)
    one, two = (scored(objective, tokens, splits, asked("frozen", seeds=s, epochs=2)) for s in (1, 2))
    first, both = one[CLASSES, "score"], two[CLASSES, "score"]
    # Of one repetition, that of 200 test examples, by twenty groups: a fifth of it is chance, four times at most.
    share = first["value"]
    assert first["standard_error"] == pytest.approx((share * (1 - share) / 199) ** 0.5, rel=0.65)
    second = 2 * both["value"] - first["value"]
    of_heads = abs(first["value"] - second) / 2  # sd / sqrt 2 of two numbers
    assert both["standard_error"] > of_heads
    of_examples = (both["standard_error"] ** 2 - of_heads**2) ** 0.5
    assert of_examples == pytest.approx(first["standard_error"], rel=0.65)


def test_more_questions_on_each_paragraph_are_no_more_evidence(objective, tokens):
    splits, wanted = precedence(400, seed=24), asked("frozen", seeds=1, epochs=1)
    once = scored(objective, tokens, splits, wanted)[CLASSES, "score"]
    thrice = splits["test"].take(np.repeat(range(200), 3))
    asked_thrice = splits | {"test": replace(thrice, cluster=[str(i // 3) for i in range(600)])}
    found = scored(objective, tokens, asked_thrice, wanted)[CLASSES, "score"]
    assert found["n"] == 3 * once["n"]
    assert [found["standard_error"], *found["left_out"]] == pytest.approx(
        [once["standard_error"], *once["left_out"]]
    )


def test_quick_takes_a_part_of_everything(objective, tokens):
    splits = labelled(texts(2600, seed=25), ["yes", "no"] * 1300)
    lines = []
    quick = FrozenFeaturesSettings(kind="frozen_features", tasks=(CLASSES,), effort="quick", epochs=1)
    found = scored(objective, tokens, splits, quick, say=lines.append)
    assert lines[0].startswith("language_topic, 1,000 examples, repetition 1, epoch 1 of 1: ")
    assert len(lines) == 3
    fewer = FrozenFeaturesSettings(kind="frozen_features", tasks=(CLASSES,), effort="quick", examples=100)
    assert fewer.most_examples("train") == 100
    assert fewer.most_examples("test") == 1000
    full = FineTuningSettings(kind="fine_tuning", tasks=(CLASSES,))
    assert (full.most_examples("train"), full.most_examples("test"), full.repetitions, full.epochs_wanted) == (
        10_000,
        None,
        5,
        10,
    )
    assert full.rates == (1e-4, 3e-4, 1e-3)
    assert FineTuningSettings(kind="fine_tuning", tasks=(CLASSES,), effort="quick").rates == (3e-4, 1e-3)
    assert found[CLASSES, "score"]["n"] == 200
