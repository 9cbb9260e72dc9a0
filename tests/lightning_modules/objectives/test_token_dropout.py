"""Token dropout: random tokens in the place of some that are shown, and nothing else changes."""

import numpy as np
import pytest
import torch

from lightning_modules.data.packing import pack
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START, UNKNOWN
from lightning_modules.objectives import build
from lightning_modules.objectives.masking import replace_tokens
from lightning_modules.randomness import derive, uniforms
from lightning_modules.training.data_module import evaluate_parts
from tests.support.sight import first_batch
from tests.support.tiny_text import settings

V, COUNT = 60, 500


def made_split():
    """Sentences of 0 to 19 words, some of them unknown."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 20, COUNT)
    rows = [np.where(rng.random(n) < 0.1, UNKNOWN, rng.integers(FIRST_WORD_ID, V, n)) for n in lengths]
    ids = np.concatenate([[START, *row, END] for row in rows])
    return Split(ids.astype(np.uint16), np.cumsum([0, *(lengths + 2)]), np.zeros(COUNT, np.int32))


SPLIT = made_split()


def rows_of(sentences=range(COUNT), *, epoch=0):
    """Sentences of an epoch packed in rows."""
    step = single_sentences(SPLIT, np.array(sentences)).of_epoch(epoch)
    return pack(SPLIT, step, row_length=32).source


def test_a_share_of_zero_returns_the_ids_themselves():
    source = rows_of()
    assert replace_tokens(source, 0.0, vocab_size=V, seed=1) is source.ids_N


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_so_many_words_are_replaced_by_words_drawn_evenly(share):
    source = rows_of()
    before = source.ids_N.copy()
    shown_N = replace_tokens(source, share, vocab_size=V, seed=1)
    assert np.array_equal(source.ids_N, before)
    word_N = source.ids_N >= FIRST_WORD_ID
    assert {START, END, UNKNOWN} == set(source.ids_N[~word_N].tolist())
    assert np.array_equal(shown_N[~word_N], source.ids_N[~word_N])
    assert (shown_N[word_N] >= FIRST_WORD_ID).all()
    assert shown_N.max() < V
    changed_N = shown_N != source.ids_N
    n, words = np.count_nonzero(word_N), V - FIRST_WORD_ID
    p = share * (1 - 1 / words)  # a draw may be what stood there
    # Binomial, within 4 standard errors.
    assert changed_N.sum() / n == pytest.approx(p, abs=4 * (p * (1 - p) / n) ** 0.5)
    counts = np.bincount(shown_N[changed_N], minlength=V)[FIRST_WORD_ID:]
    expected = changed_N.sum() / words  # within a hundredth: what stood there is nearly even too
    assert expected > 5  # or the statistic has no chi-squared distribution
    freedom = words - 1
    # Its mean is the degrees of freedom and its variance twice that; 5 standard deviations.
    assert ((counts - expected) ** 2 / expected).sum() < freedom + 5 * (2 * freedom) ** 0.5


def test_which_and_by_what_follows_seed_epoch_sentence_and_offset_alone():
    source, key = rows_of(range(30), epoch=3), derive(7, "token dropout")
    shown_N = replace_tokens(source, 0.3, vocab_size=V, seed=7)
    for n in range(len(shown_N)):  # the written rule, one token at a time
        where = [np.array([x[n]]) for x in (source.epoch_N, source.sentence_N, source.offset_N)]
        chosen, drawn = (uniforms(key, *where, np.array([purpose])).item() for purpose in (0, 1))
        replaced = source.ids_N[n] >= FIRST_WORD_ID and chosen < 0.3
        assert shown_N[n] == (FIRST_WORD_ID + int(drawn * (V - FIRST_WORD_ID)) if replaced else source.ids_N[n])
    alone = rows_of([12], epoch=3)
    assert np.array_equal(
        replace_tokens(alone, 0.3, vocab_size=V, seed=7), shown_N[source.sentence_N == 12]
    )  # in any company
    other_epoch = replace_tokens(rows_of(range(30), epoch=4), 0.3, vocab_size=V, seed=7)
    assert not np.array_equal(other_epoch, shown_N)
    assert not np.array_equal(replace_tokens(source, 0.3, vocab_size=V, seed=8), shown_N)


@pytest.mark.parametrize("kind", ["causal_lm", "translation"])
def test_what_is_asked_for_and_every_evaluation_stay_what_they_are(kind, tokens):
    plain, _, without = first_batch(settings(kind), tokens)
    dropping, data, batch = first_batch(settings(kind, objective={"token_dropout": 0.4}), tokens)
    assert batch.keys() == without.keys()
    differing = {name for name in batch if not torch.equal(batch[name], without[name])}
    assert differing == {"tokens_BT"}  # neither labels nor places nor translations
    special = without["tokens_BT"] < FIRST_WORD_ID
    assert torch.equal(batch["tokens_BT"][special], without["tokens_BT"][special])
    assert (batch["tokens_BT"][~special] >= FIRST_WORD_ID).all()
    assert all(torch.equal(x, data.batch(0)[name]) for name, x in batch.items())  # again the same
    ours, theirs = (evaluate_parts(objective, tokens.validation)["loss"] for objective in (dropping, plain))
    assert ours == theirs  # same weights, same text: the same bits


def test_it_takes_no_parameters_and_leaves_initial_weights_alone(tokens):
    for kind in ("causal_lm", "translation"):
        plain, dropping = (
            build(settings(kind, objective={"token_dropout": share}, seed=3), tokens).state_dict()
            for share in (0.0, 0.5)
        )
        assert plain.keys() == dropping.keys()
        assert all(torch.equal(plain[name], dropping[name]) for name in plain)
