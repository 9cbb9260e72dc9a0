"""What masked LM says of tokens that it sees, and where they are hidden."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ablations.measures import visible_tokens as module
from ablations.measures.jackknife import BLOCKS, standard_error
from ablations.measures.visible_tokens import VisibleTokens
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.model.heads import IGNORED
from lightning_modules.objectives import build
from lightning_modules.training import data_module
from lightning_modules.training.data_module import evaluate_changed, evaluation_batches
from tests.support.tiny_text import settings


class Copier(torch.nn.Module):
    """A head that says what its state says: with `encode_at` giving ids, the guess is the token that is shown."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, shown_N, embeddings_VD):
        return torch.nn.functional.one_hot(self.answer(shown_N), len(embeddings_VD)).float()


def planted(tokens, answer):
    """A masked LM whose first guess is `answer` of the id that is shown."""
    objective = build(settings("masked_lm"), tokens)
    objective.encode_at = lambda batch, place_N: batch["tokens_BT"].flatten()[place_N]
    objective.head = Copier(answer)
    return objective


def by_hand(objective, tokens):
    """(shown, original) of the clean and of the replaced tokens of the evaluation text."""
    clean, replaced = [], []
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=512):
        shown = batch["tokens_BT"].flatten().tolist()
        labels = {
            place: label
            for place, label in zip(batch["predict_N"].tolist(), batch["label_N"].tolist(), strict=True)
            if label != IGNORED
        }
        for place, token in enumerate(shown):
            if place in labels and token != MASK and token != labels[place]:
                replaced.append((token, labels[place]))
            elif place not in labels and token >= FIRST_WORD_ID:
                clean.append(token)
    return clean, replaced


def observed(objective, split):
    """The rows of a split, without any losses."""
    visible = VisibleTokens(objective)
    evaluate_changed(objective, split, [], also=lambda number, batch, _: visible.read(number, batch))
    return visible.rows()


def values(objective, tokens):
    return {row["metric"]: row for row in observed(objective, tokens.validation)}


def test_who_copies_is_right_on_clean_tokens_and_never_recovers_one(tokens):
    objective = planted(tokens, lambda shown_N: shown_N)
    clean, replaced = by_hand(objective, tokens)
    rows = values(objective, tokens)
    assert rows["observed_clean"]["value"] == 1.0
    assert rows["observed_replaced"]["value"] == 1.0
    assert rows["recovered_replaced"]["value"] == 0.0
    assert rows["observed_clean"]["n"] == len(clean)
    assert rows["recovered_replaced"]["n"] == rows["observed_replaced"]["n"] == len(replaced)
    assert (rows["observed_clean"]["left_out"], rows["observed_clean"]["standard_error"]) == ([1.0] * BLOCKS, 0.0)


def test_a_share_is_kept_without_each_tenth_of_the_rows(tokens, monkeypatch):
    """Also where the text is read in several batches."""
    monkeypatch.setattr(data_module, "TOKENS_AT_ONCE", 256)
    row_clean = []  # (row, token) of each clean token, by hand
    objective, first = build(settings("masked_lm"), tokens), 0
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=256):
        places = set(batch["predict_N"][batch["label_N"] != IGNORED].tolist())
        rows, length = batch["tokens_BT"].shape
        shown = batch["tokens_BT"].flatten().tolist()
        row_clean += [
            (first + place // length, token)
            for place, token in enumerate(shown)
            if place not in places and token >= FIRST_WORD_ID
        ]
        first += rows
    favourite = int(np.bincount([token for _, token in row_clean]).argmax())
    row = values(planted(tokens, lambda shown_N: torch.full_like(shown_N, favourite)), tokens)["observed_clean"]
    without = [
        np.mean([token == favourite for number, token in row_clean if number % BLOCKS != block])
        for block in range(BLOCKS)
    ]
    assert first > 2 * BLOCKS
    assert row["left_out"] == pytest.approx(without)
    assert row["standard_error"] == pytest.approx(standard_error(without))


def test_who_copies_guesses_hidden_tokens_by_what_it_says_at_mask(tokens):
    """At [MASK] the planted model has one answer."""
    clean, replaced = by_hand(build(settings("masked_lm"), tokens), tokens)
    favourite = int(np.bincount(clean).argmax())
    objective = planted(tokens, lambda shown_N: torch.where(shown_N == MASK, favourite, shown_N))
    rows = values(objective, tokens)
    assert rows["observed_clean"]["floor"] == pytest.approx(np.mean([token == favourite for token in clean]))
    for place, metric in enumerate(("observed_replaced", "recovered_replaced")):
        share = np.mean([pair[place] == favourite for pair in replaced])
        assert rows[metric]["floor"] == pytest.approx(share)


def test_one_answer_for_all_scores_its_frequency_as_its_floor_does(tokens):
    _, replaced = by_hand(build(settings("masked_lm"), tokens), tokens)
    originals = np.bincount([original for _, original in replaced])
    favourite = int(originals.argmax())
    rows = values(planted(tokens, lambda shown_N: torch.full_like(shown_N, favourite)), tokens)
    assert rows["recovered_replaced"]["value"] == pytest.approx(originals.max() / len(replaced))
    assert all(row["floor"] == row["value"] for row in rows.values())


def test_who_reads_the_context_alone_is_at_its_floor_and_far_above_the_most_frequent_token(tokens):
    """A text that counts, and a model that says what follows the token on the left, whatever it sees itself."""
    split = tokens.validation
    counting = split.ids.astype(np.int64)
    is_text_N = counting >= FIRST_WORD_ID
    counting[is_text_N] = FIRST_WORD_ID + np.arange(len(counting))[is_text_N] % 100
    objective = planted(tokens, lambda left_N: left_N + 1)
    objective.encode_at = lambda batch, place_N: batch["tokens_BT"].flatten()[place_N - 1]
    row = next(observed(objective, replace(split, ids=counting)))
    error = (0.25 / row["n"]) ** 0.5
    assert row["metric"] == "observed_clean"
    assert 0.5 < row["value"] < 0.9  # the first token of a sentence has none on the left, and some are corrupted
    assert row["floor"] == pytest.approx(row["value"], abs=4 * error)  # four standard errors


def test_each_clean_token_is_hidden_once_with_the_text_around_it(tokens):
    objective = planted(tokens, lambda shown_N: shown_N)
    plain, seen = objective.encode_at, []

    def spy(batch, place_N):
        seen.append((batch["tokens_BT"].flatten(), place_N))
        return plain(batch, place_N)

    objective.encode_at = spy
    clean, replaced = by_hand(build(settings("masked_lm"), tokens), tokens)
    list(observed(objective, tokens.validation))
    turns = [(shown_N, place_N) for shown_N, place_N in seen if len(place_N) and (shown_N[place_N] == MASK).all()]
    of_replaced, in_turns = turns[:1], turns[1:]
    assert len(in_turns) == module.TURNS
    assert sorted(torch.cat([place_N for _, place_N in in_turns]).tolist()) == sorted(
        next(place_N[: len(clean)] for _, place_N in seen if len(place_N) == len(clean) + len(replaced)).tolist()
    )
    for shown_N, place_N in in_turns:
        assert int((shown_N == MASK).sum()) == len(place_N), "all others are as they are in the text"
        assert len(place_N) == pytest.approx(len(clean) / module.TURNS, rel=0.3)  # four s.e. of 190 tokens
    assert [len(place_N) for _, place_N in of_replaced] == [len(replaced)]


def test_a_real_head_is_asked_for_hidden_tokens(tokens, monkeypatch):
    """With all clean tokens hidden at once, so that the definition needs no drawing of turns."""
    monkeypatch.setattr(module, "TURNS", 1)
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens).eval()
    right = total = 0
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=512):
        shown_N = batch["tokens_BT"].flatten().clone()
        asked = {
            place: label
            for place, label in zip(batch["predict_N"].tolist(), batch["label_N"].tolist(), strict=True)
            if label != IGNORED
        }
        clean = [i for i, token in enumerate(shown_N.tolist()) if token >= FIRST_WORD_ID and i not in asked]
        truth_N = shown_N[clean]
        shown_N[list(asked)] = torch.tensor(list(asked.values()))
        shown_N[clean] = MASK
        with torch.no_grad():
            top_BTD = objective.encode(batch | {"tokens_BT": shown_N.view_as(batch["tokens_BT"])})[-1]
            score_BTV = objective.head(top_BTD, objective.encoder.tokens.weight)[..., FIRST_WORD_ID:]
        guess_N = score_BTV.argmax(-1).flatten()[clean] + FIRST_WORD_ID
        right, total = right + int((guess_N == truth_N).sum()), total + len(clean)
    row = values(objective, tokens)["observed_clean"]
    assert row["n"] == total
    assert row["floor"] == pytest.approx(right / total, abs=2 / total)  # ties by rounding


def test_a_real_head_is_read_at_the_places_that_are_asked_for(tokens, monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    objective = build(settings("masked_lm"), tokens).eval()
    right = total = 0
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=512):
        with torch.no_grad():
            top_BTD = objective.encode(batch)[-1]
            score_BTV = objective.head(top_BTD, objective.encoder.tokens.weight)[..., FIRST_WORD_ID:]
        guess_N = score_BTV.argmax(-1).flatten() + FIRST_WORD_ID
        shown_N = batch["tokens_BT"].flatten()
        asked = set(batch["predict_N"][batch["label_N"] != IGNORED].tolist())
        for place, token in enumerate(shown_N.tolist()):
            if token >= FIRST_WORD_ID and place not in asked:
                right, total = right + int(guess_N[place] == token), total + 1
    row = values(objective, tokens)["observed_clean"]
    assert (row["n"], row["value"]) == (total, pytest.approx(right / total))
