"""Gibbs sampling of a pair, and the information that is read from it, against distributions that are known."""

import itertools

import numpy as np
import pytest
import torch

from ablations.tasks.language_models.parsing import conditional_information, entropy, gibbs
from ablations.tasks.language_models.sentence_scores import draw, masked_log_probabilities
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.objectives import build
from tests.support.exact_model import ExactModel, any_joint, markov_joint
from tests.support.tiny_text import settings


def estimates(model, sentence_T, pair, *, chains, sweeps, stops=None, seed=0):
    """Shape (stops, chains, 2): independent chains of one pair of one sentence."""
    return conditional_information(
        model,
        sentence_T.expand(chains, -1),
        torch.tensor(pair).expand(chains, 2),
        uniform_BR2=torch.rand(chains, sweeps, 2, generator=torch.Generator().manual_seed(seed)),
        stops=stops or (sweeps,),
    )


def mean_and_error(values):
    return values.mean().item(), values.std().item() / len(values) ** 0.5


@pytest.mark.parametrize("pair", [(0, 1), (0, 3), (1, 2)])
def test_the_estimate_is_the_information_of_the_distribution(pair):
    model = ExactModel(any_joint(3, 4, seed=1))
    sentence_T = model.draw(1, seed=2)[0]
    expected = model.information(sentence_T, *pair)
    assert expected > 0.01
    for side_B in estimates(model, sentence_T, pair, chains=150, sweeps=300)[0].T:
        mean, error = mean_and_error(side_B)
        assert mean == pytest.approx(expected, abs=4 * error)  # Monte Carlo; four standard errors
        assert error < expected / 20


def test_tokens_that_are_independent_given_the_rest_have_none_though_they_go_together():
    model = ExactModel(markov_joint(3, 3, stay=0.8))
    sentence_T = torch.tensor([0, 0, 0]) + FIRST_WORD_ID
    ends = ExactModel(model.joint.sum(1))  # without the one between them
    assert ends.information(sentence_T[:2], 0, 1) > 0.1
    assert estimates(model, sentence_T, (0, 2), chains=10, sweeps=50).max() < 1e-12
    assert estimates(model, sentence_T, (0, 1), chains=10, sweeps=50).min() > 1e-3


def test_it_has_the_mean_of_the_authors_estimator_and_less_noise():
    """Theirs, by a loop of its own: of what was drawn, log p_r less log of the mean of all p_r."""
    model = ExactModel(any_joint(3, 4, seed=5))
    sentence_T, (i, j), sweeps, chains = model.draw(1, seed=3)[0], (1, 3), 100, 300
    rng = torch.Generator().manual_seed(8)
    tokens_BT = sentence_T.repeat(chains, 1)
    tokens_BT[:, [i, j]] = MASK
    shares, drawn = [], []
    for sweep in range(sweeps):
        for place in (i, j):
            tokens_BT[:, place] = MASK
            share_BV = model(tokens_BT, torch.full((chains, 1), place)).exp()[:, 0]
            tokens_BT[:, place] = torch.multinomial(share_BV, 1, generator=rng)[:, 0]
            if place == i and sweep >= sweeps // 5:
                shares.append(share_BV)
                drawn.append(tokens_BT[:, i].clone())
    share_RBV, drawn_RB = torch.stack(shares), torch.stack(drawn)
    own_RB = share_RBV.gather(2, drawn_RB[..., None])[..., 0].log()
    mean_RB = share_RBV.mean(0).expand_as(share_RBV).gather(2, drawn_RB[..., None])[..., 0].log()
    theirs, their_error = mean_and_error((own_RB - mean_RB).mean(0))
    ours, our_error = mean_and_error(
        estimates(model, sentence_T, (i, j), chains=chains, sweeps=sweeps, seed=1)[0, :, 0]
    )
    assert ours == pytest.approx(theirs, abs=4 * (their_error**2 + our_error**2) ** 0.5)
    assert our_error < their_error / 2


def test_more_sweeps_come_closer_and_few_underestimate():
    model = ExactModel(any_joint(3, 4, seed=1))
    sentence_T = model.draw(1, seed=2)[0]
    found_KB2 = estimates(model, sentence_T, (0, 1), chains=200, sweeps=200, stops=(4, 12, 50, 200))
    expected = model.information(sentence_T, 0, 1)
    distances = (found_KB2 - expected).square().mean((1, 2)).sqrt().tolist()
    assert all(later < 0.8 * sooner for sooner, later in itertools.pairwise(distances))
    mean, error = mean_and_error(found_KB2[0].mean(1))
    assert mean < expected - 4 * error


def test_a_stop_sees_what_stopping_there_would_have_seen():
    model = ExactModel(any_joint(2, 3, seed=1))
    sentence_T = model.draw(1, seed=2)[0]
    together = estimates(model, sentence_T, (0, 2), chains=5, sweeps=40, stops=(10, 20, 40))
    for place, stop in enumerate((10, 20, 40)):
        alone = estimates(model, sentence_T, (0, 2), chains=5, sweeps=40, stops=(stop,))
        assert torch.allclose(together[place], alone[0], atol=1e-12)  # float64


def test_a_chain_is_the_same_in_every_company():
    model = ExactModel(any_joint(3, 4, seed=1))
    tokens_BT, pair_B2 = model.draw(6, seed=4), torch.tensor([(0, 1), (0, 2), (1, 3)] * 2)
    uniform_BR2 = torch.rand(6, 20, 2, generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()

    def found(rows):
        return conditional_information(
            model, tokens_BT[rows], pair_B2[rows], uniform_BR2=uniform_BR2[rows], stops=(20,)
        )

    whole = found(slice(None))
    assert torch.allclose(torch.cat([found(slice(0, 1)), found(slice(1, 6))], 1), whole, atol=1e-12)  # float64
    assert whole.std() > 0
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("remembered", [1, 2, 64])
def test_what_is_remembered_changes_the_cost_alone(remembered):
    exact, asked = ExactModel(any_joint(4, 3, seed=1)), []

    def model(tokens_BT, place_BK):
        asked.append(len(tokens_BT))
        return exact(tokens_BT, place_BK)

    options = {"uniform_BR2": torch.rand(8, 50, 2, generator=torch.Generator().manual_seed(0)), "stops": (50,)}
    tokens_BT, pair_B2 = exact.draw(8, seed=4), torch.tensor([(0, 1), (2, 0)] * 4)
    found = conditional_information(model, tokens_BT, pair_B2, remembered=remembered, **options)
    shares = [share_BV for _, _, share_BV in gibbs(exact, tokens_BT, pair_B2, options["uniform_BR2"])]
    late_RB = torch.stack(shares[20::2])
    by_hand = entropy(late_RB.mean(0)) - torch.stack([entropy(share_BV) for share_BV in late_RB]).mean(0)
    assert torch.allclose(found[0, :, 0], by_hand, atol=1e-12)  # float64
    most = {1: 8 * 100, 2: 8 * 70, 64: 8 * 2 * 5}[remembered]  # four values and [MASK] on either side
    assert sum(asked) <= most
    assert max(asked) == 8


def test_sampling_goes_in_turn_from_hidden_tokens_and_leaves_the_rest():
    seen = []

    def model(tokens_BT, place_BK):
        seen.append(tokens_BT.clone())
        return torch.full((len(tokens_BT), 1, 8), 1 / 8).log()

    sentence_BT, pair_B2 = torch.tensor([[2, 5, 6, 7, 3]]), torch.tensor([[1, 3]])
    steps = [(sweep, side) for sweep, side, _ in gibbs(model, sentence_BT, pair_B2, torch.full((1, 2, 2), 0.7))]
    assert steps == [(0, 0), (0, 1), (1, 0), (1, 1)]
    five = int(0.7 * 8)
    assert [row.tolist()[0] for row in seen] == [
        [2, MASK, 6, MASK, 3],
        [2, five, 6, MASK, 3],
        [2, MASK, 6, five, 3],  # and the next one would be the second again
    ]
    assert sentence_BT.tolist() == [[2, 5, 6, 7, 3]]


def test_tokens_are_drawn_by_their_probability_and_never_without_any():
    share_V = torch.tensor([0, 0, 0.2, 0, 0.5, 0.3, 0])
    N = 20_000
    uniform_N = torch.rand(N, generator=torch.Generator().manual_seed(3))
    counts_V = torch.bincount(draw(share_V.expand(N, -1), uniform_N), minlength=7)
    assert counts_V[share_V == 0].sum() == 0
    expected_V, error_V = N * share_V, (N * share_V * (1 - share_V)).sqrt()
    assert (abs(counts_V - expected_V) <= 4 * error_V).all()  # four standard errors
    assert draw(share_V[None], torch.tensor([0.0])).item() == 2
    assert draw(share_V[None], torch.tensor([1.0])).item() == 6  # no id beyond the last


def test_entropy_counts_impossible_tokens_as_nothing():
    assert entropy(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).tolist() == pytest.approx([np.log(2), 0])


def test_a_masked_lm_is_asked_as_in_training_at_the_places_alone(tokens):
    objective = build(settings(encoder={"dropout": 0.0}), tokens)
    tokens_BT = torch.from_numpy(tokens.validation.sentence(0).astype(np.int64)).repeat(2, 1)
    place_BK = torch.tensor([[1, 3], [2, 2]])
    shown_BT = tokens_BT.scatter(1, place_BK, MASK)
    log_BKV = masked_log_probabilities(objective, asks="a test")(shown_BT, place_BK)
    position_BT = torch.arange(shown_BT.shape[1]).expand(2, -1)
    shape = {"sequence_BT": torch.ones_like(shown_BT), "position_BT": position_BT}
    place_N = torch.tensor([1, 3, shown_BT.shape[1] + 2])
    for label in (FIRST_WORD_ID, 40):
        batch = {"tokens_BT": shown_BT, "predict_N": place_N, "label_N": torch.full((3,), label)} | shape
        special = objective.head(objective.encode_at(batch, place_N), objective.encoder.tokens.weight)
        lost_N = special.log_softmax(-1)[:, FIRST_WORD_ID:].logsumexp(-1)  # training's softmax has all ids
        expected = -objective.losses(batch)["loss"].total - lost_N.sum()
        found = log_BKV[0, 0, label] + log_BKV[0, 1, label] + log_BKV[1, 0, label]
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)  # float32
    assert torch.equal(log_BKV[1, 0], log_BKV[1, 1])
    assert torch.isinf(log_BKV[..., :FIRST_WORD_ID]).all()
    assert torch.allclose(log_BKV.exp().sum(-1), torch.ones(2, 2))
    assert not objective.training
