"""The corruption of masked LM against a plain reference, and its laws over many draws."""

from typing import Any

import numpy as np
import pytest

from lightning_modules.config import MaskingSettings
from lightning_modules.data.packing import PackedRows
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, START
from lightning_modules.objectives.masking import COUNTED, Corrupted, mask_tokens
from lightning_modules.randomness import derive, uniforms

V = 200


def text(lengths: list[int], *, epoch: int = 0, seed: int = 0) -> dict[str, Any]:
    """Sentences with START and END, as flat arrays."""
    rng = np.random.default_rng(seed)
    ids, sentence, position = [], [], []
    for number, length in enumerate(lengths):
        ids += [START, *rng.integers(FIRST_WORD_ID, V, length), END]
        sentence += [number] * (length + 2)
        position += list(range(length + 2))
    flat = {"sentence_N": np.array(sentence), "position_N": np.array(position)}
    return {"ids_N": np.array(ids), "epoch_N": np.full(len(ids), epoch)} | flat


def masked(flat: dict[str, Any], masking: MaskingSettings, *, showing_N=None, **options: Any) -> Corrupted:
    """Mask the sentences of `text`; those of a step without repetitions unless `showing_N` is given."""
    nothing_N = np.zeros(len(flat["ids_N"]), np.int64)
    source = PackedRows((1, len(nothing_N)), *[nothing_N] * (len(PackedRows._fields) - 1))._replace(
        ids_N=flat["ids_N"],
        epoch_N=flat["epoch_N"],
        sentence_N=flat["sentence_N"],
        offset_N=flat["position_N"],
        showing_N=nothing_N if showing_N is None else showing_N,
    )
    return mask_tokens(source, masking, **options)


def reference(ids_N, *, epoch_N, sentence_N, position_N, masking, vocab_size, seed, joined_N=None):
    """The same corruption from the written rule: one sentence, one unit, one token at a time."""
    key, shown, selected = derive(seed, "corruption"), ids_N.copy(), np.zeros(len(ids_N), bool)

    def draw(i: int, purpose: int) -> float:
        one = slice(i, i + 1)
        return uniforms(key, epoch_N[one], sentence_N[one], position_N[one], np.array([purpose])).item()

    for epoch, number in dict.fromkeys(zip(epoch_N.tolist(), sentence_N.tolist(), strict=True)):
        members = [i for i in range(len(ids_N)) if (epoch_N[i], sentence_N[i]) == (epoch, number)]
        candidates = [i for i in members if ids_N[i] not in (START, END)]
        n, width = len(candidates), masking.ratio * len(candidates)
        turn = uniforms(key, np.array([epoch]), np.array([number])).item() * n
        units = units_of(candidates, joined_N)
        if masking.count == "fixed":
            turn, width = int(turn), max(round(width), 1)
        laid = 0  # how much of the circle the units before take
        for unit in sorted(units, key=lambda unit: draw(unit[0], 0)):
            middle = (laid + len(unit) / 2 + turn) % n
            laid += len(unit)
            if masking.count == "independent":
                middle = draw(unit[0], 0) * n
            for i in unit if middle < width else []:
                selected[i] = True
                treatment = draw(i, 1)
                if treatment < masking.mask:
                    shown[i] = MASK
                elif treatment < masking.mask + masking.random:
                    shown[i] = FIRST_WORD_ID + int(draw(i, 2) * (vocab_size - FIRST_WORD_ID))
    return shown, selected


def units_of(candidates, joined_N):
    """The tokens of each unit."""
    units: list[list[int]] = []
    for i in candidates:
        if joined_N is not None and joined_N[i] and units:
            units[-1].append(i)
        else:
            units.append([i])
    return units


@pytest.mark.parametrize("ratio", [0.15, 0.5, 1.0])
@pytest.mark.parametrize("count", ["unbiased", "fixed", "independent"])
@pytest.mark.parametrize("units", ["tokens", "longer units"])
def test_equals_the_plain_reference(ratio, count, units):
    masking = MaskingSettings(ratio=ratio, mask=0.5, random=0.3, keep=0.2, count=count)
    flat = text([1, 7, 20, 3, 11] * 5)
    arguments = {"masking": masking, "vocab_size": V, "seed": 3}
    if units != "tokens":
        arguments["joined_N"] = np.random.default_rng(1).random(len(flat["ids_N"])) < 0.4
    ours = masked(flat, **arguments)
    shown, selected = reference(**flat, **arguments)
    assert np.array_equal(ours.selected_N, selected)
    assert np.array_equal(ours.shown_N, shown)


def test_rates_are_those_asked_for():
    lengths = [3, 5, 8, 13, 21] * 4000
    flat = text(lengths)
    ours = masked(flat, masking=MaskingSettings(), vocab_size=V, seed=0)
    n, k = sum(lengths), int(ours.selected_N.sum())
    # Only the rounding of each sentence is random: its variance is at most 1/4 a sentence.
    assert abs(k - 0.15 * n) < 4 * np.sqrt(len(lengths) / 4)
    chosen, original = ours.shown_N[ours.selected_N], flat["ids_N"][ours.selected_N]
    collision = 0.1 / (V - FIRST_WORD_ID)  # a random token that equals the original
    for share, wanted in (((chosen == MASK).mean(), 0.8), ((chosen == original).mean(), 0.1 + collision)):
        assert abs(share - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / k)  # four standard errors
    assert np.array_equal(ours.shown_N[~ours.selected_N], flat["ids_N"][~ours.selected_N])


def test_special_tokens_are_never_selected_and_never_drawn():
    flat = text([6] * 5000)
    ours = masked(flat, masking=MaskingSettings(ratio=1, mask=0, random=1, keep=0), vocab_size=V, seed=0)
    special = flat["ids_N"] < FIRST_WORD_ID
    assert not ours.selected_N[special].any()
    assert ours.selected_N[~special].all()
    drawn = ours.shown_N[~special]
    counts = np.bincount(drawn, minlength=V)
    assert counts[:FIRST_WORD_ID].sum() == 0
    expected = len(drawn) / (V - FIRST_WORD_ID)
    chi_squared = ((counts[FIRST_WORD_ID:] - expected) ** 2 / expected).sum()
    freedom = V - FIRST_WORD_ID - 1
    assert abs(chi_squared - freedom) < 4 * np.sqrt(2 * freedom)  # four standard deviations of chi squared


def test_every_position_of_a_sentence_is_selected_equally_often():
    flat = text([10] * 20_000)
    ours = masked(flat, masking=MaskingSettings(), vocab_size=V, seed=0)
    rate = ours.selected_N.reshape(-1, 12)[:, 1:-1].mean(0)
    assert np.abs(rate - 0.15).max() < 4 * np.sqrt(0.15 * 0.85 / 20_000)  # four standard errors


def test_depends_on_seed_epoch_and_sentence_and_on_nothing_beside_them():
    flat = text([9, 14, 6, 30])
    arguments = {"masking": MaskingSettings(ratio=0.5), "vocab_size": V}
    whole = masked(flat, **arguments, seed=1)
    second = flat["sentence_N"] == 1
    alone = masked({name: values[second] for name, values in flat.items()}, **arguments, seed=1)
    assert np.array_equal(alone.shown_N, whole.shown_N[second])
    backwards = np.argsort(-flat["sentence_N"], kind="stable")
    turned = masked({name: values[backwards] for name, values in flat.items()}, **arguments, seed=1)
    assert np.array_equal(turned.shown_N, whole.shown_N[backwards])
    other_epoch = masked((flat | {"epoch_N": flat["epoch_N"] + 1}), **arguments, seed=1)
    other_seed = masked(flat, **arguments, seed=2)
    assert not np.array_equal(other_epoch.selected_N, whole.selected_N)
    assert not np.array_equal(other_seed.selected_N, whole.selected_N)


@pytest.mark.parametrize("count", ["unbiased", "independent", "fixed"])
def test_every_unit_is_hidden_equally_often_whatever_its_length(count):
    flat = text([10] * 5_000)  # sentences of units of 1, 2, 3 and 4 tokens
    joined = np.tile(np.array([0, 0, 0, 1, 0, 1, 1, 0, 1, 1, 1, 0], bool), 5_000)  # START, 1, 2, 3, 4, END
    ours = masked(flat, masking=MaskingSettings(ratio=0.3, count=count), vocab_size=V, seed=0, joined_N=joined)
    hidden = ours.selected_N.reshape(-1, 12)[:, [1, 2, 4, 7]]
    assert np.abs(hidden.mean(0) - 0.3).max() < 4 * np.sqrt(0.3 * 0.7 / 5_000)  # four standard errors
    whole = ours.selected_N.reshape(-1, 12)
    assert (whole[:, 2] == whole[:, 3]).all()
    assert (whole[:, 7:11] == whole[:, [7]]).all()


@pytest.mark.parametrize("count", ["unbiased", "independent", "fixed"])
def test_units_of_two_tokens_are_hidden_as_often_as_single_tokens(count):
    """Of six words of one piece and one of two, 15% is 1.2 tokens: `fixed` makes that one."""
    flat = text([8] * 20_000)
    joined = np.tile(np.array([0, 0, 0, 0, 1, 0, 0, 0, 0, 0], bool), 20_000)
    masking = MaskingSettings(count=count)
    ours = masked(flat, masking=masking, vocab_size=V, seed=0, joined_N=joined)
    share = 1 / 8 if count == "fixed" else 0.15
    rates = ours.selected_N.reshape(-1, 10)[:, 1:-1].mean(0)
    assert np.abs(rates - share).max() < 4 * np.sqrt(share * (1 - share) / 20_000)  # four standard errors


def test_fixed_counts_are_rounded_as_python_rounds():
    lengths = list(range(1, 61))
    ours = masked(text(lengths), masking=MaskingSettings(count="fixed"), vocab_size=V, seed=0)
    starts = np.cumsum([0, *(np.array(lengths) + 2)])[:-1]
    hidden = np.add.reduceat(ours.selected_N.astype(int), starts)
    assert hidden.tolist() == [max(1, round(0.15 * n)) for n in lengths]
    assert (hidden[9], hidden[49], hidden[29]) == (2, 8, 4)  # 1.5 and 7.5 go up, 4.5 goes down


def test_the_number_hidden_varies_as_count_says():
    lengths = [7, 20, 41] * 3000
    flat = text(lengths)
    starts = np.concatenate([[0], np.cumsum(np.array(lengths) + 2)[:-1]])

    def counts(count):
        ours = masked(flat, masking=MaskingSettings(count=count), vocab_size=V, seed=0)
        return np.add.reduceat(ours.selected_N.astype(int), starts).reshape(-1, 3)

    assert (counts("fixed") == [1, 3, 6]).all()  # 1.05, 3 and 6.15 to the nearest
    assert (np.abs(counts("unbiased") - [1.05, 3, 6.15]) < 1).all()
    independent = counts("independent")
    binomial = np.array([7, 20, 41]) * 0.15 * 0.85
    # The variance of 3,000 binomial numbers, with four standard errors of a variance (about sqrt(2 / n)).
    assert np.abs(independent.var(0) / binomial - 1).max() < 4 * np.sqrt(2.5 / 3000)


def test_fixed_counts_hide_at_least_one_token():
    ours = masked(text([1, 2, 3] * 50), masking=MaskingSettings(count="fixed"), vocab_size=V, seed=0)
    assert ours.selected_N.sum() == 150


def test_a_sentence_that_follows_itself_in_the_next_epoch_is_masked_as_alone():
    """Static masks of two epochs have one copy, but the two sentences are two."""
    arguments = {"masking": MaskingSettings(copies=1, ratio=0.2), "vocab_size": V, "seed": 0}
    epochs = [text([9], epoch=epoch) for epoch in (0, 1)]
    both = masked({name: np.concatenate([epoch[name] for epoch in epochs]) for name in epochs[0]}, **arguments)
    alone = [masked(epoch, **arguments) for epoch in epochs]
    assert np.array_equal(both.selected_N, np.concatenate([one.selected_N for one in alone]))
    assert np.array_equal(both.shown_N, np.concatenate([one.shown_N for one in alone]))


@pytest.mark.parametrize("copies", [1, 3])
def test_static_masks_come_back_after_their_copies(copies):
    arguments = {"masking": MaskingSettings(copies=copies), "vocab_size": V, "seed": 0}
    epochs = [masked(text([30] * 20, epoch=epoch), **arguments) for epoch in range(2 * copies)]
    for first, again in zip(epochs[:copies], epochs[copies:], strict=True):
        assert np.array_equal(first.shown_N, again.shown_N)
        assert np.array_equal(first.selected_N, again.selected_N)
    assert len({epoch.shown_N.tobytes() for epoch in epochs}) == copies


def test_a_random_word_may_be_the_original_or_never_is():
    flat = text([10] * 8000)
    for differs, expected in ((False, 1 / (V - FIRST_WORD_ID)), (True, 0)):
        masking = MaskingSettings(ratio=1, mask=0, random=1, keep=0, random_differs=differs)
        ours = masked(flat, masking=masking, vocab_size=V, seed=0)
        is_text = flat["ids_N"] >= FIRST_WORD_ID
        same = (ours.shown_N == flat["ids_N"])[is_text]
        assert abs(same.mean() - expected) <= 4 * np.sqrt(expected / same.size)  # four standard errors
        drawn = np.bincount(ours.shown_N[is_text], minlength=V)[FIRST_WORD_ID:]
        mean = same.size / (V - FIRST_WORD_ID)
        assert ((drawn - mean) ** 2 / mean).sum() < (V - FIRST_WORD_ID) + 4 * np.sqrt(2 * V)  # chi squared
        counted = dict(zip(COUNTED, ours.counts.tolist(), strict=True))
        assert counted["random_unchanged"] == same.sum()
        assert counted["candidates"] == counted["hidden"] == counted["random"] == is_text.sum()


def test_what_was_done_is_counted():
    flat = text([30] * 300)
    ours = masked(flat, masking=MaskingSettings(mask=0.5, random=0.3, keep=0.2), vocab_size=V, seed=0)
    counted = dict(zip(COUNTED, ours.counts.tolist(), strict=True))
    hidden = ours.selected_N
    assert counted["hidden"] == hidden.sum() == counted["masked"] + counted["random"] + counted["kept"]
    assert counted["masked"] == (ours.shown_N == MASK).sum()
    assert counted["kept"] + counted["random_unchanged"] == (ours.shown_N == flat["ids_N"])[hidden].sum()


@pytest.mark.parametrize(("ratio", "predict"), [(0.15, 0.05), (0.4, 0.15), (0.15, 0.4), (0.4, 1.0), (0.3, 0.6)])
@pytest.mark.parametrize("count", ["unbiased", "independent", "fixed"])
def test_corruption_and_prediction_rates_apart(ratio, predict, count):
    """Wettig et al. 2023: each showing hides `ratio`, and no token is asked for twice."""
    all_seen = {"mask": 1.0, "random": 0.0, "keep": 0.0}  # so that what is shown tells what is hidden
    masking = MaskingSettings(ratio=ratio, predict=predict, count=count, **all_seen)
    showings = masking.repeats_at(0, 1)
    assert showings == max(1, int(np.ceil(predict / ratio - 1e-9)))
    lengths = [3, 11, 24, 40] * 400
    flat = text(lengths)
    asked = np.zeros((showings, len(flat["ids_N"])), bool)
    shown = []
    for showing in range(showings):
        showing_N = np.full(len(flat["ids_N"]), showing)
        ours = masked(flat, masking=masking, vocab_size=V, seed=0, showing_N=showing_N)
        asked[showing] = ours.selected_N
        shown.append(ours)
    assert asked.sum(0).max() == 1
    n, sentences = sum(lengths), len(lengths)
    if count == "fixed":
        starts = np.cumsum([0, *(np.array(lengths) + 2)])[:-1]
        hidden = [max(1, round(ratio * n)) for n in lengths]
        for one in shown:  # the same number in every showing: round(ratio n), as Wettig et al. have it
            of_each = np.add.reduceat(((one.shown_N != flat["ids_N"]) | one.selected_N).astype(int), starts)
            assert of_each.tolist() == hidden
        most = [min(n, showings * k) for n, k in zip(lengths, hidden, strict=True)]
        expected = [min(k, max(1, round(predict * n))) for n, k in zip(lengths, most, strict=True)]
        assert np.add.reduceat(asked.sum(0), starts).tolist() == expected
        return
    spread = 4 * np.sqrt(sentences / 4) if count == "unbiased" else 4 * np.sqrt(n / 4)  # four standard errors
    assert abs(asked.sum() - predict * n) < spread
    for one in shown:
        assert abs(one.counts[COUNTED.index("hidden")] - ratio * n) < spread


@pytest.mark.parametrize("predict", [0.1, 0.4, 0.7])
def test_a_schedule_of_the_corruption_leaves_the_share_predicted(predict):
    schedule = {"kind": "steps", "at": [1, 2, 3], "ratios": [0.4, 0.6, 1.0]}
    masking = MaskingSettings.model_validate({"ratio": 0.15, "schedule": schedule, "predict": predict})
    assert [masking.repeats_at(step, 4) for step in range(4)] == [
        max(1, int(np.ceil(predict / ratio))) for ratio in (0.15, 0.4, 0.6, 1.0)
    ]
    assert masking.mean_repeats(4) == np.mean([masking.repeats_at(step, 4) for step in range(4)])
    assert masking.mean_predicted(4) == masking.least_predicted() == predict
    flat = text([20] * 500)
    for step in range(4):
        ratio, asked = masking.ratio_at(step, 4), 0
        for showing in range(masking.repeats_at(step, 4)):
            showing_N = np.full(len(flat["ids_N"]), showing)
            settings = {"masking": masking, "vocab_size": V, "seed": 0, "ratio": ratio}
            ours = masked(flat, **settings, showing_N=showing_N)
            # Whole numbers of the 20 tokens, so that nothing is rounded at random.
            assert ours.counts[COUNTED.index("hidden")] == round(ratio * 10_000)
            asked += int(ours.selected_N.sum())
        assert asked == round(predict * 10_000)


@pytest.mark.parametrize("lengths", [[9, 14, 6], [9]], ids=["three sentences", "one, which follows itself"])
def test_all_showings_of_a_step_are_what_each_is_alone(lengths):
    masking = MaskingSettings(ratio=0.2, predict=0.5)
    flat = text(lengths)
    both = {name: np.tile(values, 3) for name, values in flat.items()}
    showing_N = np.repeat([0, 1, 2], len(flat["ids_N"]))
    whole = masked(both, masking=masking, vocab_size=V, seed=5, showing_N=showing_N)
    for showing in range(3):
        mine = showing_N == showing
        alone = masked(flat, masking=masking, vocab_size=V, seed=5, showing_N=showing_N[mine])
        assert np.array_equal(alone.shown_N, whole.shown_N[mine])
        assert np.array_equal(alone.selected_N, whole.selected_N[mine])


def test_a_lexicon_loses_as_many_tokens_as_no_lexicon_would():
    lengths = [20] * 6000
    flat = text(lengths)
    rng = np.random.default_rng(0)
    allowed = rng.random(len(flat["ids_N"])) < 0.4
    ours = masked(flat, masking=MaskingSettings(), vocab_size=V, seed=0, candidate_N=allowed)
    assert not ours.selected_N[~allowed].any()
    is_text = flat["ids_N"] >= FIRST_WORD_ID
    assert ours.counts[COUNTED.index("candidates")] == (allowed & is_text).sum()
    there = (allowed & is_text).reshape(-1, 22).sum(1)
    expected = np.minimum(0.15 * 20, there)  # a sentence with fewer such words loses all of them
    assert (np.abs(ours.selected_N.reshape(-1, 22).sum(1) - expected) < 1).all()
    assert abs(ours.selected_N.sum() - expected.sum()) < 4 * np.sqrt(len(lengths) / 4)  # four standard errors


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (None, [0.3, 0.3, 0.3, 0.3, 0.3]),
        ({"kind": "linear", "to": 0.1}, [0.3, 0.25, 0.2, 0.15, 0.1]),
        ({"kind": "cosine", "to": 0.1}, [0.3, 0.2 + 0.1 * np.sqrt(0.5), 0.2, 0.2 - 0.1 * np.sqrt(0.5), 0.1]),
        ({"kind": "steps", "at": [1, 3], "ratios": [0.4, 0.5]}, [0.3, 0.4, 0.4, 0.5, 0.5]),
    ],
    ids=str,
)
def test_the_ratio_follows_its_schedule(schedule, expected):
    masking = MaskingSettings.model_validate({"ratio": 0.3, "schedule": schedule})
    assert [masking.ratio_at(step, 5) for step in range(5)] == pytest.approx(expected)
    assert masking.mean_ratio(5) == pytest.approx(np.mean(expected))
    assert masking.ratio_at(0, 1) == 0.3
