"""What is said of made-up sentences: by hand, by drawing again, and of every objective that makes some up."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ablations.errors import MeasureError
from ablations.tasks.language_models.generation import Judge, _random_text, distinct, generation_rows
from ablations.tasks.settings import GenerationSettings
from lightning_modules.objectives import build
from lightning_modules.vocabulary import END, FIRST_WORD_ID, START
from tests.support.tiny_text import settings

A, B = FIRST_WORD_ID, FIRST_WORD_ID + 1

METRICS = ("fluency", "distinct_1", "distinct_2", "copied", "length")
GROUPS = {"causal_lm": [None], "masked_lm": [None, "iterations=1"], "mixture": [None, "iterations=1", "causal_lm"]}


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
    with pytest.raises(MeasureError) as error:
        rows("translation", tokens)
    assert str(error.value) == (
        "generation asks for a language model, but translation is none; leave the measure out, or give the arm a "
        "spec of its own."
    )
