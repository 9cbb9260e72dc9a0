"""Masked and causal sentences in one run: which is which, what each sees, and their losses."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightning_modules.data.packing import pack
from lightning_modules.data.sequences import single_sentences
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.model.attention import EVERYTHING
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.objectives.masking import COUNTED
from lightning_modules.training.data_module import evaluate_parts, row_length
from tests.support.sight import first_batch, influence, reach, spread
from tests.support.tiny_text import settings

ALL_MASK = {"ratio": 0.4, "mask": 1.0, "random": 0.0, "keep": 0.0}


def mixture(tokens, **objective):
    run = settings("mixture", objective=objective, seed=3, training={"tokens_per_step": 512})
    return first_batch(run, tokens)


def epoch_packed(data, epoch, *, sentences=None):
    """All sentences of the training text in some epoch, or some of them."""
    sentence_S = np.arange(len(data.split)) if sentences is None else np.asarray(sentences)
    step = single_sentences(data.split, sentence_S).of_epoch(epoch)
    return pack(data.split, step, row_length=row_length(data.split))


def causal_sentences(view, packed):
    """Which sentences are read from left to right, as {number: bool}; all tokens of one must agree."""
    query_N = view["query_rank_BT"].ravel()[packed.source.place_N]
    found = {}
    for number in np.unique(packed.source.sentence_N).tolist():
        mine = packed.source.sentence_N == number
        everything = query_N[mine] == EVERYTHING
        assert everything.all() or np.array_equal(query_N[mine], packed.source.position_N[mine])
        found[number] = not everything.all()
    return found


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_so_many_sentences_are_causal_drawn_anew_each_epoch(share, tokens):
    objective, data, _ = mixture(tokens, causal=share)
    coins = []
    for epoch in range(4):
        packed = epoch_packed(data, epoch)
        found = causal_sentences(objective.make_batch(packed, seed=data.seed), packed)
        coins.append([found[number] for number in range(len(data.split))])
    coins = np.array(coins)
    # Of n coins the share is that of the setting within 4 standard errors.
    assert coins.mean() == pytest.approx(share, abs=4 * (share * (1 - share) / coins.size) ** 0.5)
    both = (coins[0] & coins[1]).mean()
    assert both == pytest.approx(share**2, abs=4 * (share**2 * (1 - share**2) / coins.shape[1]) ** 0.5)


def test_which_and_how_depends_on_seed_epoch_and_sentence_alone(tokens):
    objective, data, _ = mixture(tokens)

    def shown(epoch, sentences, seed):
        packed = epoch_packed(data, epoch, sentences=sentences)
        view = objective.make_batch(packed, seed=seed)
        ids_N = view["tokens_BT"].ravel()[packed.source.place_N]
        rows = {number: ids_N[packed.source.sentence_N == number].tolist() for number in sentences}
        return causal_sentences(view, packed), rows

    some = [17, 4, 99, 250, 3, 8, 41, 42]
    coins, rows = shown(1, some, 5)
    for number in some:
        alone = shown(1, [number], 5)
        assert alone == ({number: coins[number]}, {number: rows[number]})
    many = list(range(40))
    assert shown(1, many, 5) != shown(2, many, 5) != shown(2, many, 6)


def test_a_causal_sentence_is_whole_and_asked_token_by_token_a_masked_one_is_masked(tokens):
    objective, data, _ = mixture(tokens, masking=ALL_MASK)
    packed = epoch_packed(data, 0)
    source, view = packed.source, objective.make_batch(packed, seed=data.seed)
    causal = causal_sentences(view, packed)
    shown, original = view["tokens_BT"].ravel(), source.grid(source.ids_N).ravel()
    asked, wanted = view["predict_N"][view["label_N"] != IGNORED], view["label_N"][view["label_N"] != IGNORED]
    follows = view["next_label_N"] != IGNORED
    after, label = view["next_N"][follows], view["next_label_N"][follows]
    of_place = np.full(len(shown), -1)
    of_place[source.place_N] = source.sentence_N
    assert not any(causal[number] for number in of_place[asked].tolist())
    assert all(causal[number] for number in of_place[after].tolist())
    # Hidden are exactly the places asked for, all of them in masked sentences.
    assert np.array_equal(np.flatnonzero(shown != original), np.sort(asked))
    assert (shown[asked] == MASK).all()
    assert np.array_equal(wanted, original[asked])
    # Every token of a causal sentence but START is asked for, once, at the place before it.
    expected = np.flatnonzero(np.array([causal.get(n, False) for n in of_place.tolist()]))
    not_first = np.isin(expected, source.place_N[source.position_N > 0])
    assert np.array_equal(np.sort(after), expected[not_first] - 1)
    assert np.array_equal(label, original[after + 1])
    counts = dict(zip(COUNTED, view["counts"].tolist(), strict=True))
    assert counts["hidden"] == counts["masked"] == len(asked)
    assert counts["kept"] == counts["random"] == counts["random_unchanged"] == 0


def test_a_causal_sentence_sees_its_left_and_a_masked_one_both_sides(tokens):
    objective, data, _ = mixture(tokens)
    packed = epoch_packed(data, 0)
    view = objective.make_batch(packed, seed=data.seed)
    causal, is_causal = causal_sentences(view, packed), np.zeros(view["tokens_BT"].shape, bool)
    is_causal.ravel()[packed.source.place_N] = [causal[n] for n in packed.source.sentence_N.tolist()]
    slots = view["sequence_BT"]
    row = next(
        b
        for b in range(len(slots))
        if {is_causal[b][slots[b] == s].any() for s in range(1, slots[b].max() + 1)} == {True, False}
        and (slots[b] == 0).any()
    )
    length = slots.shape[1]
    shared = {
        name: torch.from_numpy(view[name][row]).expand(length + 1, -1)
        for name in ("sequence_BT", "position_BT", "key_rank_BT", "query_rank_BT")
    }
    spread(objective)
    ids = torch.randint(9, 300, (length,), generator=torch.Generator().manual_seed(0))
    seen = influence(lambda rows: objective.encode(shared | {"tokens_BT": rows})[-1], ids)
    sequence = torch.from_numpy(slots[row])
    left, both = reach(sequence, length, 0), reach(sequence, length, length)
    expected = torch.where(torch.from_numpy(is_causal[row])[:, None], left, both)
    assert torch.equal(seen[sequence > 0], expected[sequence > 0])


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_the_loss_of_a_step_is_the_weighted_sum_of_two_means(share, tokens):
    objective, _, batch = mixture(tokens, causal=share, masking=ALL_MASK)
    objective.double()
    outputs = objective.training_step(batch, 0)
    with torch.no_grad():  # the formula: all logits, and the mean of each part's negative log probabilities
        top = objective.encode(batch)[-1].flatten(0, 1)
        logits = objective.head(top, objective.encoder.tokens.weight)
    means, asked = [], []
    for place, label in (("predict_N", "label_N"), ("next_N", "next_label_N")):
        known = batch[label] != IGNORED
        asked.append(int(known.sum()))
        assert asked[-1] > 0
        means.append(F.cross_entropy(logits[batch[place][known]], batch[label][known]).item())
    expected = (1 - share) * means[0] + share * means[1]
    assert outputs["loss"].item() == pytest.approx(expected, rel=1e-12)  # float64 sums in another order
    seen, predicted, line = objective.explain(outputs["totals"].tolist())
    assert seen == int(batch["source_tokens"])
    assert predicted == sum(asked)
    names = {"train/loss", "train/causal_lm", *(f"corruption/{name}" for name in COUNTED)}
    assert line.keys() == names
    assert line["train/loss"] == pytest.approx(means[0], rel=1e-12)
    assert line["train/causal_lm"] == pytest.approx(means[1], rel=1e-12)
    assert line["corruption/candidates"] == int(batch["counts"][0])
    assert line["corruption/masked"] == pytest.approx(asked[0] / int(batch["counts"][0]))


def test_its_evaluations_are_those_of_masked_lm_and_causal_lm(tokens):
    ours = spread(build(settings("mixture", objective={"masking": ALL_MASK}, seed=1), tokens))
    parts = evaluate_parts(ours, tokens.validation)
    for kind, name in (("masked_lm", "loss"), ("causal_lm", "causal_lm")):
        other = build(settings(kind, seed=2), tokens).double()
        other.load_state_dict(ours.state_dict())
        alone = evaluate_parts(other, tokens.validation)["loss"]
        assert int(alone.predictions) == int(parts[name].predictions) > 0
        assert alone.total.item() == pytest.approx(parts[name].total.item(), rel=1e-12)  # another order


def test_an_evaluation_counts_its_text_once_though_it_reads_it_twice(tokens):
    objective, data, _ = mixture(tokens)
    packed = epoch_packed(data, 0, sentences=range(30))
    view = objective.make_evaluation_batch(packed)
    assert view["source_tokens"] == len(packed.source.ids_N)
    assert view["tokens_BT"].shape[0] == 2 * packed.source.shape[0]
    assert view["counts"][0] == np.count_nonzero(packed.source.ids_N >= FIRST_WORD_ID)
    other, _, _ = first_batch(settings("mixture", objective={"masking": ALL_MASK, "causal": 0.9}, seed=8), tokens)
    frozen = other.make_evaluation_batch(packed)
    assert all(np.array_equal(frozen[name], view[name]) for name in view)  # whatever the run's seed and corruption
