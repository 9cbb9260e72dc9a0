"""Sentences made up by toy models whose answers are known and by tiny encoders, and the scores of sentences."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ablations.errors import MeasureError
from ablations.tasks.language_models.generation import (
    Judge,
    _random_text,
    distinct,
    drawing,
    from_left_to_right,
    generation_rows,
    mask_predict,
    next_log_probabilities,
)
from ablations.tasks.language_models.sentence_scores import masked_log_probabilities
from ablations.tasks.settings import GenerationSettings
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, PAD, START
from lightning_modules.objectives import build
from lightning_modules.training.data_module import evaluation_batches
from tests.support.errors import error_text
from tests.support.sight import spread
from tests.support.tiny_text import settings

CPU = torch.device("cpu")
A, B, C = range(FIRST_WORD_ID, FIRST_WORD_ID + 3)
V = FIRST_WORD_ID + 3

METRICS = ("fluency", "distinct_1", "distinct_2", "copied", "length")
GROUPS = {"causal_lm": [None], "masked_lm": [None, "iterations=1"], "mixture": [None, "iterations=1", "causal_lm"]}


def shares(**probabilities):
    """Log probabilities V."""
    row = torch.zeros(V)
    for name, value in probabilities.items():
        row[{"A": A, "B": B, "C": C, "END": END}[name]] = value
    return row.log()


NEXT = {
    START: shares(A=0.7, B=0.2, END=0.1),
    A: shares(A=0.1, B=0.6, END=0.3),
    B: shares(A=0.5, END=0.5),
}


def markov(tokens_BT):
    """A model that looks at the last token alone."""
    return torch.stack([NEXT[last] for last in tokens_BT[:, -1].tolist()])


def made(count, *, max_length=30, key=1, rows=64, model=markov, drawn=None):
    return from_left_to_right(
        model, count, max_length=max_length, key=key, drawn=drawn or drawing(), rows=rows, device=CPU
    )


def near(found, p, n):
    """Within 4 standard errors."""
    assert found == pytest.approx(p, abs=4 * math.sqrt(p * (1 - p) / n))


# Drawing ---------------------------------------------------------------------------------------------


def drawn_at(uniform, **options):
    share = torch.tensor([[0.15, 0.5, 0.05, 0.3]]).log().expand(len(uniform), 4)
    return drawing(**options)(share, torch.tensor(uniform, dtype=torch.float64)).tolist()


def test_a_token_is_drawn_by_its_probability():
    assert drawn_at([0.0, 0.149, 0.151, 0.649, 0.651, 0.699, 0.701, 0.999]) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_top_p_leaves_the_most_probable_ones_that_reach_it():
    # 0.5 and 0.3 are the first that have 0.6 together; of them 1 has 0.625.
    assert drawn_at([0.0, 0.62, 0.63, 1 - 2**-53], top_p=0.6) == [1, 1, 3, 3]
    assert drawn_at([0.0, 0.99], top_p=0.4) == [1, 1]
    # Just below and just above what three have together.
    assert drawn_at([0.0], top_p=0.94) == [0]
    assert 2 not in drawn_at(np.linspace(0, 0.999, 50).tolist(), top_p=0.94)
    assert 2 in drawn_at(np.linspace(0, 0.999, 50).tolist(), top_p=0.96)


def test_half_the_temperature_squares_the_odds():
    squares = np.array([0.15, 0.5, 0.05, 0.3]) ** 2
    edges = np.cumsum(squares / squares.sum())
    for i, edge in enumerate(edges[:-1]):
        assert drawn_at([edge - 1e-6, edge + 1e-6], temperature=0.5) == [i, i + 1]


# From left to right ----------------------------------------------------------------------------------


def test_sentences_are_as_frequent_as_the_model_says():
    n = 4000
    found = [tuple(sentence.tolist()) for sentence in made(n)]
    near(found.count((START, END)) / n, 0.1, n)
    near(found.count((START, A, END)) / n, 0.7 * 0.3, n)
    near(found.count((START, B, A, B, END)) / n, 0.2 * 0.5 * 0.6 * 0.5, n)
    assert all(END not in sentence[:-1] for sentence in found)


def test_a_sentence_ends_at_end_or_at_the_longest_length():
    found = made(500, max_length=4)
    assert all(len(sentence) == 4 or sentence[-1] == END for sentence in found)
    assert any(len(sentence) == 4 and sentence[-1] != END for sentence in found)
    assert any(len(sentence) == 2 for sentence in found)


def test_a_sentence_depends_on_its_number_and_the_key_alone():
    whole = made(50)
    for other in (made(50, rows=1), made(50, rows=7), made(80)[:50]):
        assert all(np.array_equal(a, b) for a, b in zip(whole, other, strict=True))
    torch.manual_seed(5)
    assert all(np.array_equal(a, b) for a, b in zip(whole, made(50), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(whole, made(50, key=2), strict=True))


@pytest.mark.parametrize("kind", ["causal_lm", "mixture"])
def test_the_next_token_is_predicted_as_in_evaluation(kind, tokens):
    objective = spread(build(settings(kind), tokens))
    split = tokens.validation.head(1)
    (batch,) = evaluation_batches(objective, split, tokens_per_step=100)
    place, label = ("next_N", "next_label_N") if kind == "mixture" else ("predict_N", "label_N")
    asked = batch[label] >= 0
    with torch.no_grad():
        top_ND = objective.encode_at(batch, batch[place][asked])
        logits_NV = objective.head(top_ND, objective.encoder.tokens.weight)
    logits_NV[:, [PAD, START, MASK]] = -math.inf
    expected_NV = logits_NV.log_softmax(-1)
    ids = torch.from_numpy(split.sentence(0).astype(np.int64))
    model = next_log_probabilities(objective)
    assert len(expected_NV) == len(ids) - 1
    for t in range(1, len(ids)):
        torch.testing.assert_close(model(ids[None, :t])[0], expected_NV[t - 1], rtol=0, atol=1e-10)  # float64


def test_tiny_causal_lm_is_sampled_by_its_own_probabilities(tokens):
    objective = spread(build(settings("causal_lm"), tokens))
    model, n = next_log_probabilities(objective), 4000
    share_V = model(torch.tensor([[START]]))[0].exp().numpy()
    first = [int(sentence[1]) for sentence in made(n, max_length=2, rows=1000, model=model)]
    count_V = np.bincount(first, minlength=tokens.vocab_size)
    assert not count_V[share_V == 0].any()
    often = share_V * n >= 5
    found = np.append(count_V[often], count_V[~often].sum())
    expected = np.append(share_V[often], share_V[~often].sum()) * n
    freedom = len(found) - 1
    assert freedom > 5
    # Chi-squared has mean `freedom` and variance twice that; 5 standard deviations.
    assert ((found - expected) ** 2 / expected).sum() < freedom + 5 * math.sqrt(2 * freedom)


# Mask-predict ----------------------------------------------------------------------------------------


def by_place(tokens_BT, place_BK):
    """A model that is certain: token A + place mod 3."""
    wanted_BK = A + place_BK % 3
    return torch.nn.functional.one_hot(wanted_BK, V).double().log()


class Toy:
    """A model with other odds at every place, which change with what is shown; notes which places it is asked
    for."""

    def __init__(self):
        self.asked = []

    def __call__(self, tokens_BT, place_BK):
        assert (tokens_BT.gather(1, place_BK) == MASK).all()
        assert (tokens_BT == MASK).sum() == place_BK.numel()  # asked for all that is hidden
        self.asked.append(place_BK)
        shown_B1 = ((tokens_BT > MASK) * tokens_BT).sum(1, keepdim=True)
        a_BK = torch.sigmoid(torch.sin(3.0 * place_BK + shown_B1)).double()
        share_BKV = torch.zeros(*place_BK.shape, V, dtype=torch.float64)
        share_BKV[..., A], share_BKV[..., B], share_BKV[..., C] = 0.8 * a_BK, 0.8 * (1 - a_BK), 0.2
        return share_BKV.log()


def filled(model, lengths, *, iterations=4, key=1, drawn=None):
    return mask_predict(
        model, lengths, iterations=iterations, key=key, drawn=drawn or drawing(), vocab_size=V, device=CPU
    )


@pytest.mark.parametrize("iterations", [1, 2, 10])
def test_a_certain_model_is_reproduced_and_nothing_stays_hidden(iterations):
    lengths = [4, 0, 1, 7, 4]
    for length, sentence in zip(lengths, filled(by_place, lengths, iterations=iterations), strict=True):
        assert sentence.tolist() == [START, *(A + place % 3 for place in range(1, length + 1)), END]


def test_the_least_certain_are_hidden_again_fewer_in_every_step():
    model, chosen, length, iterations = Toy(), [], 7, 3

    def drawn(log_share_NV, uniform_N):
        token_N = drawing()(log_share_NV, uniform_N)
        chosen.append(list(zip(log_share_NV.gather(1, token_N[:, None])[:, 0].tolist(), token_N, strict=True)))
        return token_N

    (sentence,) = filled(model, [length], iterations=iterations, drawn=drawn)
    assert [asked.shape[1] for asked in model.asked] == [7, 4, 2]  # floor(7 (3 - t) / 3)
    standing = {}
    for step, asked in enumerate(model.asked):
        places = asked[0].tolist()
        if step:  # the share is that of when it was drawn, whatever is known by now
            assert sorted(places) == sorted(sorted(standing, key=standing.get)[: len(places)])
        standing |= dict(zip(places, chosen[step], strict=True))
    assert sentence[1:-1].tolist() == [standing[place][1] for place in range(1, length + 1)]


def test_each_sentence_depends_on_its_number_and_the_key_alone():
    lengths = [5, 3, 5, 8, 5]
    whole = filled(Toy(), lengths)
    alone = [filled(Toy(), lengths[: i + 1])[-1] for i in range(len(lengths))]
    assert all(np.array_equal(a, b) for a, b in zip(whole, alone, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(whole, filled(Toy(), lengths, key=2), strict=True))


def test_in_one_step_tokens_are_drawn_apart_from_each_other():
    """All or nothing: both tokens should agree. One step cannot know; the second sees the token that is kept."""

    def agreeing(tokens_BT, place_BK):
        share_BKV = torch.zeros(*place_BK.shape, V, dtype=torch.float64)
        for row, places in enumerate(place_BK.tolist()):
            shown = [token for token in tokens_BT[row, 1:-1].tolist() if token != MASK]
            for k in range(len(places)):
                share_BKV[row, k, shown if shown else [A, B]] = 1.0 if shown else 0.5
        return share_BKV.log()

    n = 2000
    once = [len(set(sentence[1:-1].tolist())) == 1 for sentence in filled(agreeing, [2] * n, iterations=1)]
    twice = [len(set(sentence[1:-1].tolist())) == 1 for sentence in filled(agreeing, [2] * n, iterations=2)]
    near(np.mean(once), 0.5, n)
    assert all(twice)


def test_a_token_that_is_drawn_again_has_nothing_to_do_with_the_one_before():
    def any_of_three(tokens_BT, place_BK):
        return torch.full((*place_BK.shape, 3), 1 / 3, dtype=torch.float64).log()

    chosen, n = [], 2000

    def drawn(log_share_NV, uniform_N):
        chosen.append(drawing()(log_share_NV, uniform_N))
        return chosen[-1]

    mask_predict(any_of_three, [2] * n, iterations=2, key=1, drawn=drawn, vocab_size=V * 2**12, device=CPU)
    first = torch.cat([token_N.view(-1, 2)[:, 0] for token_N in chosen[::2]])  # of equal ones the first is hidden
    again = torch.cat(chosen[1::2])
    assert len(first) == len(again) == n
    near((first == again).double().mean().item(), 1 / 3, n)


def test_tiny_masked_lm_leaves_no_special_token_inside(tokens):
    objective = spread(build(settings("masked_lm"), tokens))
    lengths = [1, 6, 6, 12]
    found = mask_predict(
        masked_log_probabilities(objective, asks="generation"),
        lengths,
        iterations=3,
        key=0,
        drawn=drawing(),
        vocab_size=tokens.vocab_size,
        device=CPU,
    )
    for length, sentence in zip(lengths, found, strict=True):
        assert (sentence[0], sentence[-1], len(sentence)) == (START, END, length + 2)
        assert (sentence[1:-1] >= FIRST_WORD_ID).all()


def test_different_ngrams_over_the_number_of_tokens():
    sentences = [np.array([START, A, B, A, END]), np.array([START, A, END]), np.array([START, A, B])]
    assert distinct(sentences, 1) == 2 / 6
    assert distinct(sentences, 2) == 2 / 6  # A B twice, B A; none across sentences, none with START and END
    assert distinct([np.array([START, END])], 1) == 0


def test_random_text_has_tokens_by_their_frequency():
    counts_V = np.zeros(FIRST_WORD_ID + 3, dtype=np.int64)
    counts_V[FIRST_WORD_ID:], counts_V[START] = (6, 3, 1), 100
    text = [np.array([START, *[A] * 500, END])] * 20
    made = np.stack(_random_text(text, counts_V))
    assert (made[:, 0] == START).all()
    assert (made[:, -1] == END).all()
    share = np.bincount(made[:, 1:-1].ravel() - FIRST_WORD_ID, minlength=3) / 10_000
    np.testing.assert_allclose(share, (0.6, 0.3, 0.1), atol=4 * 0.5 / 100)


def rows(kind, tokens, **more):
    asked = GenerationSettings(kind="generation", **{"sentences": 12, "iterations": (1, 2), **more})
    found = list(generation_rows(build(settings(kind), tokens).eval(), tokens, asked))
    keyed = {(row.get("group"), row["metric"]): row for row in found}
    assert len(keyed) == len(found)
    return keyed


@pytest.fixture(scope="module")
def by_kind(tokens):
    return {kind: rows(kind, tokens) for kind in GROUPS}


@pytest.mark.parametrize("kind", GROUPS)
def test_every_way_has_all_metrics_and_the_text_beside_it(kind, by_kind):
    found = by_kind[kind]
    own = {(group, metric) for group in GROUPS[kind] for metric in METRICS}
    assert set(found) == own | {(None, f"{metric}_of_text") for metric in METRICS}
    text = {metric: found[None, f"{metric}_of_text"]["value"] for metric in METRICS}
    assert text == {metric: by_kind["causal_lm"][None, f"{metric}_of_text"]["value"] for metric in METRICS}
    if kind != "causal_lm":
        assert found[None, "length"]["value"] == text["length"]
    # Not trained, so less fluent than text; and text more than tokens that are drawn by their frequency.
    assert text["fluency"] < min(found[None, "fluency"]["value"], found[None, "fluency"]["floor"])


def test_a_mixture_makes_up_both_kinds_of_sentences(by_kind):
    """An untrained one has the weights of a masked LM and of a causal LM at once."""
    mixture = by_kind["mixture"]
    assert mixture[None, "fluency"]["value"] == by_kind["masked_lm"][None, "fluency"]["value"]
    assert mixture["causal_lm", "fluency"]["value"] == by_kind["causal_lm"][None, "fluency"]["value"]


def test_what_real_text_scores(tokens):
    S = len(tokens.validation)
    found = rows("masked_lm", tokens, sentences=10 * S, iterations=(1,))
    assert found[None, "length"]["n"] == found[None, "length_of_text"]["n"] == S
    real = [tokens.validation.sentence(i) for i in range(S)]
    lengths = np.array([len(sentence) - 2 for sentence in real])
    length = found[None, "length_of_text"]
    assert length["value"] == pytest.approx(lengths.mean())
    assert length["standard_error"] == pytest.approx(lengths.std(ddof=1) / S**0.5)
    known = {tokens.train.sentence(i).tobytes() for i in range(len(tokens.train))}
    assert found[None, "copied_of_text"]["value"] == np.mean([sentence.tobytes() in known for sentence in real])
    nats = Judge(tokens.train, vocab_size=tokens.vocab_size).nats(real)
    fluency = found[None, "fluency_of_text"]
    assert fluency["n"] == sum(lengths + 1)
    assert fluency["value"] == pytest.approx(np.concatenate(nats).mean())
    # The standard error of a ratio, by drawing sentences again; 2,000 drawings tell it to 1.6%, here 4 of these.
    rng, total_S = np.random.default_rng(0), np.array([x.sum() for x in nats])
    drawn = rng.integers(0, S, (2000, S))
    again = total_S[drawn].sum(1) / (lengths + 1)[drawn].sum(1)
    assert fluency["standard_error"] == pytest.approx(again.std(), rel=0.064)


def test_training_text_is_copied(tokens):
    same = replace(tokens, validation=tokens.train.head(50))
    found = rows("masked_lm", same, iterations=(1,))
    assert found[None, "copied_of_text"]["value"] == 1
    assert found[None, "copied"]["value"] == 0


def test_global_random_numbers_do_not_matter(tokens, by_kind):
    torch.manual_seed(1)
    assert rows("mixture", tokens) == by_kind["mixture"]


def test_what_is_no_language_model_is_refused(tokens):
    assert error_text(MeasureError, rows, "translation", tokens) == (
        "generation needs a language model, but translation is not one; leave the measure out, or give the arm "
        "a spec of its own."
    )
