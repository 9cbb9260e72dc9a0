"""Groups of tokens by frequency and part of speech."""

import numpy as np

from ablations.measures.reading.sample import (
    NO_LABEL,
    equal_parts,
    first_tokens,
    groups,
    is_text_token,
    ranks,
)
from ablations.measures.settings import RANK_BOUNDS
from lightning_modules.data.tokenizer import END, START
from tests.support.grouped_sample import sample


def test_ranks_count_from_the_most_frequent_and_ties_go_to_the_lower_id():
    assert ranks(np.array([3, 9, 0, 9])).tolist() == [3, 1, 4, 2]


def test_groups_by_frequency_are_those_of_voita_et_al_and_hold_every_token_once():
    rng = np.random.default_rng(0)
    text = sample(rng.zipf(1.3, 20_000) % 3000)
    found = dict(groups(text, "frequency"))
    assert list(found)[:4] == ["rank 1-10", "rank 11-25", "rank 26-50", "rank 51-100"]
    assert sorted(np.concatenate(list(found.values())).tolist()) == list(range(20_000))
    for name, place in found.items():
        first, last = map(int, name.removeprefix("rank ").split("-"))
        assert last in RANK_BOUNDS
        assert text.rank_N[place].min() >= first
        assert text.rank_N[place].max() <= last


def test_special_ids_take_no_rank_from_the_text(tokens):
    """START and END are in every sentence, and so are among the most frequent ids of a training text."""
    counts_V = tokens.source_counts_V
    assert {START, END} <= set(np.argsort(-counts_V)[:10].tolist())
    text = first_tokens(tokens.validation, 10**6, counts_V=counts_V)
    by_count = np.argsort(-counts_V, kind="stable")
    expected = {int(token): rank for rank, token in enumerate(by_count[is_text_token(by_count)], start=1)}
    assert text.rank_N.tolist() == [expected[token] for token in text.token_N.tolist()]
    first = dict(groups(text, "frequency"))["rank 1-10"]
    assert set(text.token_N[first].tolist()) == {token for token, rank in expected.items() if rank <= 10}


def test_beyond_the_last_bound_there_is_one_more_group():
    text = sample(np.repeat(np.arange(30_100), 10))
    assert list(groups(text, "frequency"))[-1][0] == "rank 30001-30100"


def test_groups_by_part_of_speech_leave_out_what_has_none():
    labels = {"tag": np.array([1, 0, NO_LABEL, 1, 2] * 2)}
    text = sample(np.arange(10), labels, {"tag": ("VERB", "NOUN", "")})
    assert {name: place.tolist() for name, place in groups(text, "part_of_speech")} == {
        "tag NOUN": [0, 3, 5, 8],
        "tag VERB": [1, 6],
    }
    assert next(groups(text, "part_of_speech"))[0] == "tag NOUN"  # by name, not by code
    assert list(groups(sample(np.arange(10)), "part_of_speech")) == []


def test_groups_are_made_equal_and_small_ones_left_out():
    parts = [("a", np.arange(100)), ("b", np.arange(100, 150)), ("c", np.arange(150, 155))]
    equal = equal_parts(parts, fewest=20, size=None, seed=0)
    assert [(name, len(place)) for name, place in equal] == [("a", 50), ("b", 50)]
    for (_, drawn), (_, place) in zip(equal, parts, strict=False):
        assert set(drawn) <= set(place)
        assert (np.diff(drawn) > 0).all()
    assert [len(p) for _, p in equal_parts(parts, fewest=20, size=60, seed=0)] == [60]
    assert equal_parts(parts, fewest=200, size=None, seed=0) == []
    # What is drawn of a group does not depend on which others there are.
    alone = equal_parts(parts[:1], fewest=20, size=50, seed=0)
    assert alone[0][1].tolist() == equal[0][1].tolist()
    assert equal_parts(parts[:1], fewest=20, size=50, seed=1)[0][1].tolist() != alone[0][1].tolist()
