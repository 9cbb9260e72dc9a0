"""The corruption of masked LM against a plain reference, and its laws over many draws."""

from typing import Any

import numpy as np
import pytest

from lightning_modules.config import MaskingSettings
from lightning_modules.corruption import mask_tokens
from lightning_modules.randomness import derive, uniforms
from lightning_modules.vocabulary import END, FIRST_WORD_ID, MASK, START

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
            turn, width = int(turn), max(width, 1)
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
    arguments = {**flat, "masking": masking, "vocab_size": V, "seed": 3}
    if units != "tokens":
        arguments["joined_N"] = np.random.default_rng(1).random(len(flat["ids_N"])) < 0.4
    ours = mask_tokens(**arguments)
    shown, selected = reference(**arguments)
    assert np.array_equal(ours.selected_N, selected)
    assert np.array_equal(ours.shown_N, shown)


def test_rates_are_those_asked_for():
    lengths = [3, 5, 8, 13, 21] * 4000
    flat = text(lengths)
    ours = mask_tokens(**flat, masking=MaskingSettings(), vocab_size=V, seed=0)
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
    ours = mask_tokens(**flat, masking=MaskingSettings(ratio=1, mask=0, random=1, keep=0), vocab_size=V, seed=0)
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
    ours = mask_tokens(**flat, masking=MaskingSettings(), vocab_size=V, seed=0)
    rate = ours.selected_N.reshape(-1, 12)[:, 1:-1].mean(0)
    assert np.abs(rate - 0.15).max() < 4 * np.sqrt(0.15 * 0.85 / 20_000)  # four standard errors


def test_depends_on_seed_epoch_and_sentence_and_on_nothing_beside_them():
    flat = text([9, 14, 6, 30])
    arguments = {"masking": MaskingSettings(ratio=0.5), "vocab_size": V}
    whole = mask_tokens(**flat, **arguments, seed=1)
    second = flat["sentence_N"] == 1
    alone = mask_tokens(**{name: values[second] for name, values in flat.items()}, **arguments, seed=1)
    assert np.array_equal(alone.shown_N, whole.shown_N[second])
    backwards = np.argsort(-flat["sentence_N"], kind="stable")
    turned = mask_tokens(**{name: values[backwards] for name, values in flat.items()}, **arguments, seed=1)
    assert np.array_equal(turned.shown_N, whole.shown_N[backwards])
    other_epoch = mask_tokens(**(flat | {"epoch_N": flat["epoch_N"] + 1}), **arguments, seed=1)
    other_seed = mask_tokens(**flat, **arguments, seed=2)
    assert not np.array_equal(other_epoch.selected_N, whole.selected_N)
    assert not np.array_equal(other_seed.selected_N, whole.selected_N)
