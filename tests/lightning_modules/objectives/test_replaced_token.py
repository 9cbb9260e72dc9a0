"""Replaced token detection: what is drawn, what is judged, and both losses against a plain computation."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightning_modules.config import EncoderSettings, ReplacedTokenSettings, contradictions
from lightning_modules.data.packing import pack
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build, replaced_token
from lightning_modules.objectives.replaced_token import Generator
from lightning_modules.randomness import derive, uniforms
from lightning_modules.training.data_module import as_tensors
from tests.support.plain_block import plain_block, plain_embedding, plain_logits
from tests.support.sight import first_batch, spread
from tests.support.tiny_text import settings

VARIANTS = [("replaced", "all"), ("replaced", "selected"), ("original", "all"), ("original", "selected")]


def detection(tokens, **objective):
    return first_batch(settings("replaced_token", objective=objective, seed=4), tokens)


def judged(objective, batch):
    """The ids that the encoder is shown, and the labels of its judgements."""
    seen = {}

    def encode_at(batch, *places_N):
        seen["filled_BT"] = batch["tokens_BT"]
        return type(objective).encode_at(objective, batch, *places_N)

    def loss(hidden_ND, *rest):
        seen["label_N"] = rest[-1]
        return type(objective.head).loss(objective.head, hidden_ND, *rest)

    objective.encode_at, objective.head.loss = encode_at, loss
    with torch.no_grad():
        objective.losses(batch)
    del objective.encode_at, objective.head.loss
    return seen["filled_BT"], seen["label_N"]


@torch.no_grad()
def plain_losses(objective, source, masked_N, seed):
    """Sums of both losses and of what is replaced, one sentence at a time."""
    E, generator, encoder = objective.encoder.tokens.weight, objective.generator, objective.encoder
    judge_total, generator_total, replaced, count = 0.0, 0.0, 0, 0
    for number in np.unique(source.sentence_N):
        mine = np.flatnonzero(source.sentence_N == number)
        original, masked = source.ids_N[mine], masked_N[mine]
        guess = generator.project(plain_embedding(encoder, masked))
        for block in generator.blocks:
            guess = plain_block(block, guess, guess)
        logits = plain_logits(generator.head, guess, E)
        filled = original.copy()
        for t in np.flatnonzero(masked == MASK):
            generator_total -= logits[t].log_softmax(-1)[original[t]].item()
            probability = logits[t, FIRST_WORD_ID:].softmax(-1).numpy()
            counters = (np.array([x[mine[t]]]) for x in (source.epoch_N, source.sentence_N, source.offset_N))
            uniform = uniforms(derive(seed, "generator"), *counters).item()
            filled[t] = FIRST_WORD_ID + np.count_nonzero(np.cumsum(probability) <= uniform)
        top = plain_embedding(encoder, filled)
        for block in encoder.blocks:
            top = plain_block(block, top, top)
        where = original >= FIRST_WORD_ID if objective.run.objective.loss_on == "all" else masked == MASK
        for t in np.flatnonzero(where):
            is_replaced = filled[t] != original[t]
            if objective.run.objective.predict == "replaced":
                head = objective.head
                logit = head.output(F.gelu(head.transform(top[t]))).item()
                judge_total += math.log1p(math.exp(-logit if is_replaced else logit))
            else:
                judge_total -= plain_logits(objective.head, top[t], E).log_softmax(-1)[original[t]].item()
            replaced, count = replaced + bool(is_replaced), count + 1
    return judge_total, generator_total, replaced, count


@pytest.mark.parametrize(("predict", "loss_on"), VARIANTS)
def test_both_losses_are_those_of_a_plain_computation_in_float64(predict, loss_on, tokens):
    objective, data, _ = detection(tokens, predict=predict, loss_on=loss_on)
    spread(objective)
    with torch.no_grad():  # a generator that is neither sure nor without a clue
        objective.generator.head.transform.weight.mul_(0.1)
    packed = pack(data.split, data.plan[1], row_length=data.row_length)
    view = objective.make_batch(packed, seed=data.seed)
    parts = objective.losses(as_tensors(view))
    masked_N = view["masked_BT"].ravel()[packed.source.place_N]
    judge, generator, replaced, count = plain_losses(objective, packed.source, masked_N, data.seed)
    hidden = np.count_nonzero(masked_N == MASK)
    assert 0 < hidden < np.count_nonzero(packed.source.ids_N >= FIRST_WORD_ID)
    assert 0 < replaced <= hidden
    expected = {"loss": (judge, count), "generator": (generator, hidden), "replaced": (replaced, count)}
    assert parts.keys() == expected.keys() == objective.parts.keys()
    for name, (total, predictions) in expected.items():
        assert int(parts[name].predictions) == predictions
        assert parts[name].total.item() == pytest.approx(total, rel=1e-9)  # float64, and sums of hundreds
    weight = 50 if predict == "replaced" else 1
    step = objective.training_step(as_tensors(view), 0)["loss"].item()
    assert step == pytest.approx(weight * judge / count + generator / hidden, rel=1e-9)


def test_judged_are_all_words_or_the_selected_ones_and_labelled_as_asked(tokens):
    for predict, loss_on in VARIANTS:
        objective, data, _ = detection(tokens, predict=predict, loss_on=loss_on)
        batch = data.batch(2)
        filled_BT, label_N = judged(objective, batch)
        original, filled = batch["tokens_BT"].flatten(), filled_BT.flatten()
        hidden = (batch["masked_BT"] == MASK).flatten()
        where = original >= FIRST_WORD_ID if loss_on == "all" else hidden
        known = label_N != IGNORED
        assert batch["judge_N"][known].sort().values.tolist() == where.nonzero().flatten().tolist()
        place = batch["judge_N"][known]
        expected = (filled != original).long() if predict == "replaced" else original
        assert torch.equal(label_N[known], expected[place])
        # What fills the predictions up to a round number points at place 0 and must leave it alone.
        assert (batch["label_N"] == IGNORED).any()
        assert (batch["predict_N"][batch["label_N"] == IGNORED] == 0).all()
        assert torch.equal(filled[~hidden], original[~hidden])
        assert (filled != original).any()


def test_a_token_drawn_equal_to_the_original_counts_as_original(tokens):
    objective, data, batch = detection(tokens, masking={"ratio": 0.6, "mask": 1.0, "random": 0.0, "keep": 0.0})
    likely = int(np.bincount(data.split.ids)[FIRST_WORD_ID:].argmax()) + FIRST_WORD_ID
    with torch.no_grad():
        objective.generator.head.bias[likely] = 1e4
    filled_BT, label_N = judged(objective, batch)
    hidden = batch["masked_BT"] == MASK
    assert (filled_BT[hidden] == likely).all()
    was_likely = (batch["tokens_BT"] == likely).flatten()[batch["judge_N"]]
    is_hidden = hidden.flatten()[batch["judge_N"]]
    known = label_N != IGNORED
    assert (was_likely & is_hidden & known).any()
    assert torch.equal(label_N[known] == 1, (is_hidden & ~was_likely)[known])
    parts = objective.losses(batch)
    assert parts["replaced"].total == (label_N == 1).sum()
    assert parts["replaced"].predictions == known.sum()


def test_what_is_drawn_follows_the_key_and_not_the_devices(tokens):
    objective, data, _ = detection(tokens)
    spread(objective)

    def drawn(seed, ranks):
        found = {}
        for rank in range(ranks):
            shape = {"row_length": data.row_length, "rows": 4, "rank": rank, "ranks": ranks}
            packed = pack(data.split, data.plan[3], **shape)
            filled_BT, _ = judged(objective, as_tensors(objective.make_batch(packed, seed=seed)))
            ids_N = filled_BT.numpy().ravel()[packed.source.place_N]
            for number in np.unique(packed.source.sentence_N).tolist():
                found[number] = ids_N[packed.source.sentence_N == number].tolist()
        return found

    assert drawn(5, 1) == drawn(5, 1) == drawn(5, 2) == drawn(5, 3)
    assert drawn(5, 1) != drawn(6, 1)


def generator_of(vocab_size):
    shape = EncoderSettings(num_hidden_layers=1, hidden_size=16, num_attention_heads=4, dropout=0.0)
    return spread(Generator(shape, ReplacedTokenSettings(kind="replaced_token"), vocab_size=vocab_size))


def test_drawn_tokens_follow_the_softmax_over_words(monkeypatch):
    V, N = 40, 40_000
    generator = generator_of(V)
    rng = torch.Generator().manual_seed(1)
    guess_G, embeddings_VD = (torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in ((4,), (V, 16)))
    with torch.no_grad():
        embeddings_VD *= 0.3
        generator.head.bias[:FIRST_WORD_ID] = 30.0  # special tokens would win if they were allowed to
        logits = plain_logits(generator.head, guess_G, embeddings_VD)
    uniform_N = torch.from_numpy(uniforms(derive(0, "a test"), np.arange(N)))
    drawn_N = generator.draw(guess_G.expand(N, -1), embeddings_VD, uniform_N)
    assert drawn_N.min() >= FIRST_WORD_ID
    expected = N * logits[FIRST_WORD_ID:].softmax(-1).numpy()
    counts = np.bincount(drawn_N, minlength=V)[FIRST_WORD_ID:]
    assert expected.min() > 5  # or the statistic has no chi-squared distribution
    assert expected.max() > 20 * expected.min()  # far from uniform
    freedom = len(expected) - 1
    # Its mean is the degrees of freedom and its variance twice that; 5 standard deviations.
    assert ((counts - expected) ** 2 / expected).sum() < freedom + 5 * (2 * freedom) ** 0.5
    monkeypatch.setattr(replaced_token, "LOGITS_AT_ONCE", 17 * V)
    assert torch.equal(generator.draw(guess_G.expand(N, -1), embeddings_VD, uniform_N), drawn_N)  # in slices


def test_the_ends_of_the_uniform_draw_the_first_and_the_last_word():
    V = 40
    generator = generator_of(V)
    with torch.no_grad():
        generator.head.bias.copy_(torch.where(torch.arange(V) < FIRST_WORD_ID, 30.0, 0.0))
    uniform_N = torch.tensor([0.0, np.nextafter(1.0, 0.0)], dtype=torch.float64)
    embeddings_VD = torch.zeros(V, 16, dtype=torch.float64)
    drawn = generator.draw(torch.ones(2, 4, dtype=torch.float64), embeddings_VD, uniform_N)
    assert drawn.tolist() == [FIRST_WORD_ID, V - 1]


def test_no_gradient_flows_from_the_judge_into_the_generator(tokens):
    objective, _, batch = detection(tokens)

    def touched(part):
        objective.zero_grad()
        objective.losses(batch)[part].total.backward()
        return {name for name, p in objective.named_parameters() if p.grad is not None and p.grad.any()}

    names = {name for name, _ in objective.named_parameters()}
    embeddings = {
        name for name in names if name.startswith(("encoder.tokens", "encoder.positions", "encoder.norm"))
    }
    assert touched("generator") == embeddings | {name for name in names if name.startswith("generator.")}
    assert touched("loss") == {name for name in names if not name.startswith("generator.")}


@pytest.mark.parametrize("sees", ["both_sides", "left_only", "itself"])
def test_the_generator_sees_what_the_encoder_sees(sees, tokens):
    objective, _, batch = detection(tokens, sees=sees)
    spread(objective)
    last = int(batch["predict_N"][batch["label_N"] != IGNORED].max())
    row, column = divmod(last, batch["masked_BT"].shape[1])
    totals = []
    for beside in (0, -1, 1):  # nothing changed; to the left of a hidden token; to its right
        changed = batch | {"masked_BT": batch["masked_BT"].clone(), "predict_N": torch.tensor([last])}
        changed |= {"label_N": torch.tensor([9]), "uniform_N": torch.tensor([0.5], dtype=torch.float64)}
        if beside:
            changed["masked_BT"][row, column + beside] = 11
        totals.append(objective.losses(changed)["generator"].total.item())
    seen = [abs(total - totals[0]) > 1e-9 for total in totals[1:]]  # float64, and losses of a few nats
    assert seen == {"both_sides": [True, True], "left_only": [True, False], "itself": [False, False]}[sees]


def test_a_generator_of_odd_width_reads_sinusoidal_positions(tokens):
    """They are in the embeddings of the encoder, so nothing sinusoidal has the width of the generator."""
    encoder = {"hidden_size": 6, "positions": "sinusoidal"}
    run = settings("replaced_token", encoder=encoder, objective={"generator": {"shrink": 2}})
    assert contradictions(run) == []
    objective, _, batch = first_batch(run, tokens)
    assert objective.generator.shape.hidden_size == 3
    assert all(torch.isfinite(part.total) for part in objective.losses(batch).values())


def test_chance_is_the_entropy_of_the_share_that_is_replaced(tokens):
    objective, _, _ = detection(tokens)
    share = 0.13
    expected = -share * math.log(share) - (1 - share) * math.log(1 - share)
    unigram = {"generator": 4.0}
    assert objective.chance("loss", {"replaced": share}, unigram) == pytest.approx(expected)
    assert (
        objective.chance("loss", {"replaced": 0.0}, unigram)
        == 0
        == objective.chance("loss", {"replaced": 1.0}, unigram)
    )
    originals = build(settings("replaced_token", objective={"predict": "original"}), tokens)
    # What is shown, unless it was replaced; then what the generator's own floor can say.
    assert originals.chance("loss", {"replaced": share}, unigram) == pytest.approx(expected + share * 4.0)
