"""Joint probabilities of hidden neighbours against the chain rule, of models that are the truth and others."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from ablations.errors import MeasureError
from ablations.tasks.language_models import conditional_independence as module
from ablations.tasks.language_models.conditional_independence import (
    block_errors,
    independence_rows,
    neighbour_pairs,
    pair_scores,
    scores,
    second_tokens_elsewhere,
)
from ablations.tasks.language_models.sentence_scores import masked_log_probabilities
from ablations.tasks.settings import ConditionalIndependenceSettings
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK, START
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.exact_model import ExactModel, any_joint, markov_joint
from tests.support.tiny_text import settings


def asked(**changes):
    return ConditionalIndependenceSettings(kind="conditional_independence", **changes)


def nothing_else(tokens_BT):
    return torch.zeros_like(tokens_BT, dtype=torch.bool)


def test_of_the_truth_the_mean_is_minus_the_information_and_the_chain_rule_holds():
    """Over all sentences there are, each with its probability."""
    model = ExactModel(any_joint(3, 4, seed=1))
    tokens_BT, share_B = model.sentences_CT, model.joint.flatten()
    first_B = torch.ones(len(tokens_BT), dtype=torch.int64)
    found = pair_scores(model, tokens_BT, first_B, hidden_BT=nothing_else(tokens_BT))
    expected = -sum(share_B[i] * model.information(tokens_BT[i], 1, 2) for i in range(len(tokens_BT)))
    assert expected < -0.01
    assert (share_B @ (found.joint - found.chain)).item() == pytest.approx(expected.item(), abs=1e-12)
    around_B = model.joint.sum((1, 2), keepdim=True).expand_as(model.joint).flatten()
    assert torch.allclose(found.chain, (share_B / around_B).log(), atol=1e-12)  # float64


def test_neighbours_that_tell_nothing_about_each_other_lose_nothing():
    model = ExactModel(markov_joint(3, 3, stay=0.0))
    found = pair_scores(
        model, model.sentences_CT, torch.zeros(27, dtype=torch.int64), hidden_BT=nothing_else(model.sentences_CT)
    )
    assert torch.allclose(found.joint, found.chain, atol=1e-12)  # float64


def test_less_is_shown_so_the_neighbour_tells_more():
    """In a chain of equal tokens, with the tokens around the pair hidden or not; by hand for two values."""
    stay = 0.8
    model = ExactModel(markov_joint(2, 4, stay=stay))
    tokens_BT = torch.full((1, 4), FIRST_WORD_ID)
    same = (1 + stay) / 2

    def difference(hidden_BT):
        found = pair_scores(model, tokens_BT, torch.tensor([1]), hidden_BT=hidden_BT)
        return (found.joint - found.chain).item()

    alone = difference(torch.tensor([[True, False, False, True]]))
    assert alone == pytest.approx(np.log(0.5) - np.log(same))
    two_steps = same**3 + same * (1 - same) ** 2  # x_1 as the tokens around it, x_2 any
    all_ways = same**3 + 3 * same * (1 - same) ** 2
    expected = np.log(two_steps / all_ways) - np.log(same**2 / (same**2 + (1 - same) ** 2))
    assert difference(nothing_else(tokens_BT)) == pytest.approx(expected)
    assert alone < expected < 0


def test_a_model_that_is_misled_by_its_neighbours_comes_out_above():
    """The sign is not built in: hidden tokens are guessed evenly, but told of a neighbour it rules out the
    truth."""

    def model(tokens_BT, place_BK):
        told_BK = (tokens_BT != MASK).sum(1)[:, None].expand_as(place_BK) > 2
        share_BKV = torch.full((*place_BK.shape, 7), 0.5)
        share_BKV[..., FIRST_WORD_ID] = torch.where(told_BK, 0.1, 0.5)
        return share_BKV.log()

    tokens_BT = torch.tensor([[START, FIRST_WORD_ID, FIRST_WORD_ID, 3]])
    found = pair_scores(model, tokens_BT, torch.tensor([1]), hidden_BT=nothing_else(tokens_BT))
    assert (found.joint - found.chain).item() == pytest.approx(np.log(0.5) - np.log(0.1))


def test_the_model_is_shown_what_the_definition_says():
    seen = []

    def model(tokens_BT, place_BK):
        seen.append((tokens_BT[0].tolist(), place_BK[0].tolist()))
        return torch.full((1, place_BK.shape[1], 12), 1 / 12).log()

    hidden_BT = torch.tensor([[False, True, True, False, False, False]])
    pair_scores(model, torch.tensor([[2, 7, 8, 9, 10, 3]]), torch.tensor([2]), hidden_BT=hidden_BT)
    assert seen == [
        ([2, MASK, MASK, MASK, 10, 3], [2, 3]),
        ([2, MASK, MASK, 9, 10, 3], [2]),
        ([2, MASK, 8, MASK, 10, 3], [3]),
    ]


def test_pairs_are_the_same_at_every_ratio_and_masks_grow(tokens):
    seen = {}

    def model(tokens_BT, place_BK):
        if place_BK.shape[1] == 2:
            seen.setdefault(ratio, []).append((tokens_BT == MASK, place_BK))
        return torch.zeros(*place_BK.shape, 320)

    pairs = neighbour_pairs(tokens.validation, 80)
    for ratio in (0.05, 0.4, 0.8):
        scores(model, tokens.validation, pairs, ratio=ratio, device=torch.device("cpu"))
    for fewer, more in ((0.05, 0.4), (0.4, 0.8)):
        for (few_BT, place_BK), (many_BT, same_BK) in zip(seen[fewer], seen[more], strict=True):
            assert torch.equal(place_BK, same_BK)
            assert (few_BT <= many_BT).all()
    text = int((tokens.validation.ids >= FIRST_WORD_ID).sum()) - 160  # besides the pairs
    for ratio, batches in seen.items():
        hidden = sum(int(mask_BT.sum()) for mask_BT, _ in batches) - 160
        assert hidden / text == pytest.approx(ratio, abs=4 * (ratio * (1 - ratio) / text) ** 0.5)  # four s.e.


def test_pairs_are_neighbours_of_text_one_a_sentence(tokens):
    pairs = neighbour_pairs(tokens.validation, 50)
    assert pairs.sentence_S.tolist() == list(range(50))
    for sentence, first in zip(*pairs, strict=True):
        assert (tokens.validation.sentence(sentence)[first : first + 2] >= FIRST_WORD_ID).all()
    assert len(set(pairs.first_S.tolist())) > 5
    assert neighbour_pairs(tokens.validation, 30).first_S.tolist() == pairs.first_S[:30].tolist()


def test_padding_changes_nothing(tokens):
    """Sentences of different lengths in a batch, against each alone."""
    objective = build(settings(encoder={"dropout": 0.0}), tokens)
    model, device = masked_log_probabilities(objective, asks="a test"), torch.device("cpu")
    pairs = neighbour_pairs(tokens.validation, 20)
    whole = scores(model, tokens.validation, pairs, ratio=0.3, device=device)
    for i in range(20):
        one = type(pairs)(pairs.sentence_S[i : i + 1], pairs.first_S[i : i + 1])
        alone = scores(model, tokens.validation, one, ratio=0.3, device=device)
        assert [x[0] for x in alone] == pytest.approx([x[i] for x in whole], rel=1e-5)  # float32


def test_rows_are_by_ratio(tokens):
    objective = build(settings(encoder={"dropout": 0.0}), tokens)
    found = pd.DataFrame(independence_rows(objective, tokens.validation, asked(ratios=[0.15, 0.8])))
    assert found["group"].tolist() == ["ratio=0.15"] * 3 + ["ratio=0.8"] * 3
    assert found["metric"].tolist() == ["joint", "chain", "joint_minus_chain"] * 2
    assert set(found["n"]) == {80}
    joint, chain, difference = found["value"][:3]
    assert difference == pytest.approx(joint - chain)
    assert (found["standard_error"] > 0).all()
    assert found.loc[found["floor"].notna(), "metric"].tolist() == ["joint_minus_chain"] * 2
    pd.testing.assert_frame_equal(
        found, pd.DataFrame(independence_rows(objective, tokens.validation, asked(ratios=[0.15, 0.8])))
    )


# The floor -------------------------------------------------------------------------------------------


def planted(model, monkeypatch):
    """Let the measure ask a function for the log probabilities of hidden tokens."""
    monkeypatch.setattr(module, "masked_log_probabilities", lambda objective, asks: model)


def differences(tokens, *ratios):
    rows = pd.DataFrame(
        independence_rows(build(settings(), tokens), tokens.validation, asked(ratios=list(ratios)))
    )
    return rows[rows["metric"] == "joint_minus_chain"]


def test_tokens_that_tell_nothing_have_their_value_as_floor(tokens, monkeypatch):
    """The model gives each token its own share, whatever else it is shown."""
    log_V = torch.linspace(1, 2, 320, dtype=torch.float64).log()
    planted(lambda tokens_BT, place_BK: log_V.expand(*place_BK.shape, 320), monkeypatch)
    found = differences(tokens, 0.15, 0.8)
    assert found["value"].tolist() == found["floor"].tolist() == [0, 0]


def test_what_one_more_token_does_by_being_shown_is_in_the_floor(tokens, monkeypatch):
    """A model without any dependence between tokens that fears [MASK]: against a floor of 0 it would seem to have
    lost something by the neighbour's being hidden."""

    def fearful(tokens_BT, place_BK):
        hidden_BK = (tokens_BT == MASK).sum(1, keepdim=True).expand_as(place_BK)
        return (-0.1 * hidden_BK[..., None].double()).expand(-1, -1, 320)

    planted(fearful, monkeypatch)
    found = differences(tokens, 0.3)
    assert found["value"].item() == pytest.approx(-0.1)
    assert found["floor"].item() == pytest.approx(-0.1)


def test_of_the_truth_the_floor_is_by_how_much_a_false_neighbour_misleads():
    """Over all tokens from two sentences, each with its probability, nothing else shown; from the table of pairs
    alone: the divergence of independent tokens from their joint distribution."""
    model = ExactModel(any_joint(3, 4, seed=1))
    pair_VV = model.joint.sum((0, 3))
    apart_VV = pair_VV.sum(1, keepdim=True) * pair_VV.sum(0, keepdim=True)
    tokens_BT = torch.cartesian_prod(
        torch.zeros(1, dtype=torch.int64), *[torch.arange(3)] * 2, torch.zeros(1).long()
    )
    tokens_BT += FIRST_WORD_ID
    hidden_BT = torch.ones_like(tokens_BT, dtype=torch.bool)
    found = pair_scores(model, tokens_BT, torch.ones(9, dtype=torch.int64), hidden_BT=hidden_BT)
    floor = apart_VV.flatten() @ (found.joint - found.chain)
    assert floor.item() == pytest.approx((apart_VV * (apart_VV / pair_VV).log()).sum().item(), abs=1e-12)
    assert floor > 0.01
    value = pair_VV.flatten() @ (found.joint - found.chain)
    assert value.item() == pytest.approx(-(pair_VV * (pair_VV / apart_VV).log()).sum().item(), abs=1e-12)


def test_each_second_token_goes_to_another_sentence(tokens):
    pairs = neighbour_pairs(tokens.validation, 50)
    marked = [1000 * i + np.arange(length) for i, length in enumerate(tokens.validation.lengths.tolist())]
    numbered = replace(tokens.validation, ids=np.concatenate(marked))
    elsewhere_S = second_tokens_elsewhere(numbered, pairs)
    assert sorted(elsewhere_S) == [1000 * i + first + 1 for i, first in zip(*pairs, strict=True)]
    assert (elsewhere_S // 1000 != pairs.sentence_S).all()
    steps = np.diff(elsewhere_S // 1000)
    assert len(set(steps.tolist())) > 10, "sentences beside each other are not paired"


def test_the_floor_is_that_of_the_text_with_the_tokens_exchanged(tokens):
    """Sentence by sentence, against what the measure does in batches."""
    objective = build(settings(encoder={"dropout": 0.0}), tokens)
    model = masked_log_probabilities(objective, asks="a test")
    pairs = neighbour_pairs(tokens.validation, 80)
    by_hand = []
    for sentence, first, second in zip(*pairs, second_tokens_elsewhere(tokens.validation, pairs), strict=True):
        tokens_T = torch.from_numpy(tokens.validation.sentence(sentence).astype(np.int64))
        tokens_T[first + 1] = int(second)
        found = pair_scores(model, tokens_T[None], torch.tensor([first]), hidden_BT=nothing_else(tokens_T[None]))
        by_hand.append((found.joint - found.chain).item())
    rows = pd.DataFrame(independence_rows(objective, tokens.validation, asked(ratios=[0.0])))
    assert rows["floor"].dropna().item() == pytest.approx(np.mean(by_hand), abs=1e-5)  # float32


def test_the_error_of_independent_numbers_is_the_usual_one():
    values_S = np.random.default_rng(0).normal(size=10_000)
    assert block_errors(values_S)["standard_error"] == pytest.approx(
        0.01, rel=0.7
    )  # ten blocks: a quarter is one standard error


def test_what_cannot_be_measured_is_refused(tokens):
    assert error_text(
        MeasureError,
        lambda: list(independence_rows(build(settings("causal_lm"), tokens), tokens.validation, asked())),
    ) == (
        "conditional_independence needs an objective that predicts hidden tokens, but causal_lm does not; "
        "leave the measure out, or give the arm a spec of its own."
    )
    assert error_text(MeasureError, lambda: neighbour_pairs(tokens.validation.head(7), 20)) == (
        "conditional_independence needs at least 20 sentences with two neighbouring tokens that are not [UNK], "
        "but only 7 of 7 have them; give more text."
    )
