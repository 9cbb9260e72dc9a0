"""How much the other tokens change when one is out of their sight."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from ablations.errors import MeasureError
from ablations.measures import influence as module
from ablations.measures.influence import Chosen, choices, choose, distances, influence, require
from ablations.measures.jackknife import sentence_blocks
from ablations.measures.reading.sample import whole_sentences
from ablations.measures.reading.texts import Texts
from ablations.measures.settings import InfluenceSettings
from ablations.measures.similarity import pwcca
from lightning_modules.config import LanguageData
from lightning_modules.data.token_store import prepare
from lightning_modules.data.tokenizer import FIRST_WORD_ID, PAD
from lightning_modules.model.attention import Sight, sight_of, visible_in
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.tiny_text import settings


def asked(**changes):
    return InfluenceSettings(kind="influence", **{"sentences": 30} | changes)


@pytest.fixture
def objective(tokens):
    return build(settings(encoder={"dropout": 0.0}), tokens).eval()


def some_tokens(split, count=40):
    """The second text token of each of the first sentences."""
    return Chosen(np.arange(count), np.full(count, 2))


def others_of(split, chosen):
    return sum(len(split.sentence(i)) - 3 for i in chosen.sentence_S)


def masked_by_hand(objective, split, sentence, position, layer, *, hide):
    """The states of one sentence after `layer` blocks; in the last of them `position` is hidden."""
    ids_BT = torch.from_numpy(split.sentence(sentence).astype(np.int64))[None]
    states_BTD = objective.encoder.embed(ids_BT)
    seen = visible_in((ids_BT != PAD).long(), objective.run.objective.sees, objective.window)
    for number, block in enumerate(objective.encoder.blocks[:layer], start=1):
        visible = seen.clone()
        if hide and number == layer:
            visible[..., position] = False
            visible[..., position, position] = True
        score = torch.zeros(visible.shape).masked_fill(~visible, float("-inf"))
        _, turn = sight_of(objective.run.encoder, visible, states_BTD)
        states_BTD = block(states_BTD, Sight(score, turn))
    kept = [i for i in range(1, ids_BT.shape[1] - 1) if i != position]
    return states_BTD[0, kept].detach().numpy()


@pytest.mark.parametrize(
    ("kind", "positions"), [("masked_lm", "learned"), ("causal_lm", "learned"), ("masked_lm", "rotary")]
)
def test_influence_is_the_distance_of_two_versions_of_one_layer_computed_sentence_by_sentence(
    kind, positions, tokens
):
    encoder = {"dropout": 0.0, "positions": positions}
    objective, split = build(settings(kind, encoder=encoder), tokens).eval(), tokens.validation
    chosen = some_tokens(split)
    found = distances(objective, split, chosen, others_of(split, chosen), jackknife=False)
    for layer in (1, 2):
        versions = [
            np.concatenate(
                [masked_by_hand(objective, split, i, 2, layer, hide=hide) for i in chosen.sentence_S.tolist()]
            )
            for hide in (False, True)
        ]
        expected = 1 - pwcca(*versions)
        assert found[layer - 1][0] == pytest.approx(expected, rel=1e-3)  # float32 states, a small difference
        assert expected > 1e-6


def test_influence_is_zero_where_nobody_attends_to_the_token(tokens):
    blind = build(settings(objective={"sees": "itself"}, encoder={"dropout": 0.0}), tokens).eval()
    chosen = some_tokens(tokens.validation)
    for value, left_out in distances(blind, tokens.validation, chosen, others_of(tokens.validation, chosen)):
        assert value == pytest.approx(0, abs=1e-12)  # the very same states
        assert left_out == pytest.approx([0] * 10, abs=1e-12)


def test_a_token_that_is_attended_to_more_has_more_influence(objective, tokens):
    chosen = some_tokens(tokens.validation)
    others = others_of(tokens.validation, chosen)
    before = distances(objective, tokens.validation, chosen, others, jackknife=False)[0][0]
    with torch.no_grad():
        for block in objective.encoder.blocks:
            block.attention.query_key_value.weight *= 2  # sharper attention, larger values
    assert distances(objective, tokens.validation, chosen, others, jackknife=False)[0][0] > before


def test_causal_states_before_the_token_do_not_change(tokens):
    """Hiding a sentence's last token from those before it changes nothing."""
    objective = build(settings("causal_lm", encoder={"dropout": 0.0}), tokens).eval()
    split = tokens.validation
    last = Chosen(np.arange(40), split.lengths[:40] - 2)
    for value, _ in distances(objective, split, last, others_of(split, last), jackknife=False):
        assert value == pytest.approx(0, abs=1e-12)


def test_rows_are_by_group_and_layer_over_equally_many_others(objective, sample, tokens):
    rows = pd.DataFrame(influence(objective, tokens.validation, sample, asked()))
    assert rows["n"].nunique() == 1
    assert set(rows["metric"]) == {"pwcca"}
    assert rows.groupby("group")["layer"].apply(list).tolist() == [[1, 2]] * rows["group"].nunique()
    assert all(name.startswith("rank ") for name in rows["group"])
    assert (rows["value"] > 0).all()
    assert (rows["floor"] > 0).all()
    assert np.isfinite(rows["standard_error"]).all()
    again = pd.DataFrame(influence(objective, tokens.validation, sample, asked()))
    pd.testing.assert_frame_equal(rows, again)


def test_chosen_tokens_are_of_the_group_one_a_sentence(sample, tokens):
    for name, chosen in choices(tokens.validation, sample, "frequency", 30).items():
        first, last = map(int, name.removeprefix("rank ").split("-"))
        assert len(chosen.sentence_S) == 30
        assert (np.diff(chosen.sentence_S) > 0).all()
        for sentence, position in zip(*chosen, strict=True):
            here = (sample.sentence_N == sentence) & (sample.position_N == position)
            assert first <= sample.rank_N[here].item() <= last


def test_sentences_of_one_token_are_not_chosen_for_nobody_else_is_there():
    lengths = np.array([1] * 40 + [2] * 25)
    ids = np.full(lengths.sum(), FIRST_WORD_ID)
    alone = whole_sentences(ids, np.concatenate([[0], np.cumsum(lengths)]), np.ones(len(ids), bool), len(ids))
    chosen = choose(alone, np.arange(len(ids)), 25, "any")
    assert chosen is not None
    assert chosen.sentence_S.tolist() == list(range(40, 65))
    assert choose(alone, np.arange(len(ids)), 26, "any") is None


def test_the_floor_is_of_another_token_of_the_same_sentences_drawn_for_each_group(
    objective, sample, tokens, monkeypatch
):
    measured = []

    def distances_of(_objective, _split, chosen, others, *, jackknife=True):
        measured.append((chosen, others, jackknife))
        return [(len(measured) + layer / 10, [0.0, 1.0]) for layer in (1, 2)]

    monkeypatch.setattr(module, "distances", distances_of)
    rows = list(influence(objective, tokens.validation, sample, asked()))
    assert len(rows) == len(measured)  # two layers of the group's tokens, and of others
    shares = []
    pairs = list(zip(measured[::2], measured[1::2], strict=True))
    for number, ((own, n, _), (random, same_n, jackknife)) in enumerate(pairs):
        assert (n, jackknife) == (same_n, False)
        assert np.array_equal(own.sentence_S, random.sentence_S)
        assert (own.position_S != random.position_S).all()
        last_S = tokens.validation.lengths[own.sentence_S] - 2  # END stands behind it
        assert ((random.position_S >= 1) & (random.position_S <= last_S)).all()
        long = last_S > 2
        rank_S = random.position_S - (random.position_S > own.position_S) - 1  # among the others, from 0
        shares += (rank_S / (last_S - 2).clip(min=1))[long].tolist()
        for layer, row in enumerate(rows[2 * number : 2 * number + 2], start=1):
            assert row["value"] == pytest.approx(2 * number + 1 + layer / 10)
            assert row["floor"] == pytest.approx(2 * number + 2 + layer / 10)
            assert (row["layer"], row["standard_error"], row["n"], row["d"]) == (layer, 0.5, n, 16)
    # As many others in each group as the one with the fewest has.
    there = {others_of(tokens.validation, own) for (own, *_), _ in pairs}
    assert len(there) > 1
    assert {n for _, n, _ in measured} == {min(there)}
    # Any other is equally likely: means of what is at most as wide as from 0 to 1, four standard errors.
    assert np.mean(shares) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(len(shares)))


def test_groups_of_the_same_tokens_have_floors_of_their_own(objective, sample, tokens, monkeypatch):
    measured, chosen = [], some_tokens(tokens.validation)
    monkeypatch.setattr(module, "choices", lambda *_: {"rank 1-10": chosen, "rank 11-25": chosen})
    monkeypatch.setattr(
        module, "distances", lambda *given, **_: measured.append(given[2]) or [(0.1, [0.1, 0.2])] * 2
    )
    list(influence(objective, tokens.validation, sample, asked()))
    one, other = measured[1::2]
    assert not np.array_equal(one.position_S, other.position_S)


def test_which_sentences_and_which_of_their_tokens_are_chosen_is_chance():
    ids, count = np.full(5 * 400, FIRST_WORD_ID), 400
    alike = whole_sentences(ids, np.arange(0, 5 * count + 1, 5), np.ones(len(ids), bool), len(ids))
    chosen = choose(alike, np.arange(len(ids)), 200, "any")
    # Means of uniform draws: 5 standard errors.
    assert chosen.sentence_S.mean() == pytest.approx((count - 1) / 2, abs=5 * count / math.sqrt(12 * 200))
    assert chosen.position_S.mean() == pytest.approx(2, abs=5 * math.sqrt(2 / 200))
    other = choose(alike, np.arange(len(ids)), 200, "other")
    assert not np.array_equal(chosen.sentence_S, other.sentence_S)
    again = choose(alike, np.arange(len(ids)), 200, "any")
    assert all(map(np.array_equal, chosen, again))


def test_what_is_left_out_is_the_influence_without_a_tenth_of_the_sentences(objective, tokens):
    chosen = some_tokens(tokens.validation, 60)
    found = distances(objective, tokens.validation, chosen, others_of(tokens.validation, chosen))
    block_S = sentence_blocks(np.arange(60))
    left_out = []
    for block in range(10):
        kept = Chosen(*(part[block_S != block] for part in chosen))
        others = others_of(tokens.validation, kept)
        left_out.append(distances(objective, tokens.validation, kept, others, jackknife=False))
    for layer in (0, 1):
        without = [values[layer][0] for values in left_out]
        assert found[layer][1] == pytest.approx(without, rel=1e-3)  # float32 states in other batches
        assert left_out[0][layer][1] == []


def test_a_warning_comes_once_and_not_for_each_block(objective, tokens):
    chosen = some_tokens(tokens.validation, 60)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        distances(objective, tokens.validation, chosen, 150)
    messages = [str(warning.message) for warning in caught if "PWCCA" in str(warning.message)]
    assert messages
    assert len(set(messages)) == 1


def test_influence_is_over_the_first_others_alone(objective, tokens):
    few, many = some_tokens(tokens.validation, 30), some_tokens(tokens.validation, 60)
    n = others_of(tokens.validation, few)
    expected = distances(objective, tokens.validation, few, n)
    for of_many, of_few in zip(distances(objective, tokens.validation, many, n), expected, strict=True):
        assert of_many[0] == pytest.approx(of_few[0], rel=1e-3)  # float32 states in other batches
        assert of_many[1] == pytest.approx(of_few[1], rel=1e-3)  # the blocks are of what counts


@pytest.mark.parametrize("kind", ["files", "language"])
@pytest.mark.parametrize(("count", "remedy"), [(50_000, "give more text"), (100, "raise the measure's `tokens`")])
def test_too_few_sentences_are_refused_with_the_limit_that_was_reached(kind, count, remedy, tokens, tmp_path):
    data = settings().data
    if kind == "language":
        data = LanguageData(kind="language", train=60, validation=30, test=5, vocab_size=300)
        tokens = prepare(data, data_root=tmp_path, store=tmp_path / "tokens")
    texts = Texts(tokens, data, data_root=tmp_path)
    assert error_text(MeasureError, require, asked(sentences=5000, tokens=count), texts, settings()) == (
        "influence needs a group of tokens that occurs in 5000 sentences of two words or more, but no group by "
        f"frequency does; {remedy}, or lower the measure's `sentences`."
    )


def test_encoders_without_attention_of_one_kind_are_refused(tokens, sample):
    words = build(settings("skip_gram"), tokens)
    assert error_text(MeasureError, lambda: list(influence(words, tokens.validation, sample, asked()))) == (
        "influence hides a token from attention, but skip_gram has no single stack of attention layers; leave "
        "the measure out, or give the arm a spec of its own."
    )
