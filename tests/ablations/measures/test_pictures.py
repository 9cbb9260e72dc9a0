"""Pictures of the occurrences of words: which are drawn, and what is kept near what."""

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from ablations.errors import MeasureError
from ablations.measures.pictures import occurrences, pictures
from ablations.measures.reading.sample import whole_sentences
from ablations.measures.settings import PicturesSettings
from lightning_modules.data.tokenizer import FIRST_WORD_ID, train
from tests.support.errors import error_text


def asked(*words, **changes):
    return PicturesSettings(kind="pictures", words=words, **changes)


def test_each_word_has_its_occurrences_the_same_in_every_layer(tokens, sample):
    layers = [np.random.default_rng(i).standard_normal((len(sample), 8)).astype(np.float32) for i in range(2)]
    rows = pd.DataFrame(pictures(layers, sample, asked("the", "dog", occurrences=12), tokens.tokenizer))
    assert rows.groupby(["layer", "metric"])["group"].apply(tuple).nunique() == 1
    at = rows[(rows["layer"] == 0) & (rows["metric"] == "x")]["group"].str.split("|", expand=True)
    assert at[0].value_counts().to_dict() == {"the": 12, "dog": 12}
    assert (rows["n"] == 24).all()
    assert rows["value"].abs().max() <= 1
    again = pd.DataFrame(pictures(layers, sample, asked("the", "dog", occurrences=12), tokens.tokenizer))
    pd.testing.assert_frame_equal(rows, again)


def test_a_name_says_where_the_occurrence_stands(tokens, sample):
    place_P, name_P = occurrences(sample, asked("cat"), tokens.tokenizer)
    for place, name in zip(place_P, name_P, strict=True):
        word, position, relation, sense, _ = name.split("|")
        sentence = tokens.validation.sentence(sample.sentence_N[place])
        assert tokens.tokenizer.id_to_token(int(sentence[int(position)])) == "Ġ" + word
        assert (relation, sense) == ("-", "-")
    assert len(set(name_P)) == len(name_P)


def test_what_is_apart_in_a_layer_is_apart_in_its_picture(tokens, sample):
    the = tokens.tokenizer.encode("the", add_special_tokens=False).ids[0]
    apart_ND = np.random.default_rng(0).standard_normal((len(sample), 8)).astype(np.float32)
    apart_ND[sample.token_N == the] += 50
    rows = pd.DataFrame(pictures([apart_ND], sample, asked("the", "dog"), tokens.tokenizer))
    flat = rows.pivot(index="group", columns="metric", values="value")
    is_the = flat.index.str.startswith("the|")
    centres = [flat[part].mean() for part in (is_the, ~is_the)]
    spread = max(flat[part].std().max() for part in (is_the, ~is_the))
    assert np.linalg.norm(centres[0] - centres[1]) > 3 * spread


def test_states_that_are_equal_are_one_point(tokens, sample):
    """As layer 0 of one word where no positions are added. t-SNE of these ends the process or draws rounding."""
    equal_ND = np.full((len(sample), 8), 0.3, np.float32)
    apart_ND = np.random.default_rng(0).standard_normal((len(sample), 8)).astype(np.float32)
    rows = pd.DataFrame(pictures([equal_ND, apart_ND], sample, asked("the", occurrences=16), tokens.tokenizer))
    assert (rows[rows["layer"] == 0]["value"] == 0).all()
    assert rows[rows["layer"] == 1]["value"].abs().max() == 1


@pytest.mark.parametrize("scale", [2.0**100, 2.0**-100])
def test_a_picture_does_not_depend_on_the_scale_of_the_states(scale, tokens, sample):
    """Squares of such states are too large, or too small, for a float."""
    states_ND = np.random.default_rng(0).standard_normal((len(sample), 8)).astype(np.float32)
    by_scale = [
        pd.DataFrame(pictures([x_ND], sample, asked("the", occurrences=16), tokens.tokenizer))
        for x_ND in (states_ND, states_ND * np.float32(scale))
    ]
    pd.testing.assert_frame_equal(*by_scale)


def test_states_that_are_not_finite_are_refused(tokens, sample):
    states_ND = np.full((len(sample), 8), np.nan, np.float32)
    refused = asked("the", occurrences=16)
    assert error_text(MeasureError, lambda: [*pictures([states_ND], sample, refused, tokens.tokenizer)]) == (
        "states must be finite, but 128 of 128 values are NaN or infinity, first at row 0, column 0; check "
        "whether the run diverged or padding was kept."
    )


def test_words_of_several_pieces_are_refused(tokens, sample):
    pieces = len(tokens.tokenizer.encode("hippopotamus", add_special_tokens=False).ids)
    assert error_text(
        MeasureError, lambda: occurrences(sample, asked("the", "hippopotamus"), tokens.tokenizer)
    ) == (
        f"pictures show words of one sub-word, but 'hippopotamus' has {pieces} sub-words; choose a more "
        "frequent word."
    )


def test_rare_words_are_refused(tokens, sample):
    few = sample.at(np.flatnonzero(sample.token_N != sample.token_N[0]))
    word = tokens.tokenizer.decode([int(sample.token_N[0])]).strip()
    assert error_text(MeasureError, lambda: occurrences(few, asked(word), tokens.tokenizer)) == (
        f"pictures need 5 occurrences of each word as one sub-word, but {word!r} has 0 in the validation text; "
        "choose another word."
    )


def test_a_word_is_cut_as_inside_a_sentence_by_a_tokenizer_without_a_space_before_sentences():
    """The word is another piece at the start of a sentence, which may also be a part of other words."""
    names = [*("." * (i + 9) for i in range(5)), *sorted(pre_tokenizers.ByteLevel.alphabet()), "Ġa"]
    gpt2 = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, [("Ġ", "a")]))
    gpt2.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ids = [gpt2.encode(f"a b a ca a a! a! d{i}", add_special_tokens=False).ids for i in range(4)]
    token_N = np.concatenate(ids)
    ends = np.cumsum([0, *map(len, ids)])
    sample = whole_sentences(token_N, ends, np.ones(len(token_N), bool), len(token_N))
    inside, alone, mark = (gpt2.token_to_id(name) for name in ("Ġa", "a", "!"))
    place_P, _ = occurrences(sample, asked("a", "!"), gpt2)
    assert set(sample.token_N[place_P].tolist()) == {inside, mark}
    assert alone in token_N
    assert (sample.token_N[place_P] == inside).sum() == 4 * 4


def test_a_word_of_a_script_without_spaces_is_found_at_the_start_of_sentences_and_inside_them():
    """There, it is another sub-word: one without a space before it. The text has 11 bytes; 9 merges are learnt."""
    texts = ["王様が", "が王様", "王様", "が、王様"]
    tokenizer = train(texts, FIRST_WORD_ID + 11 + 9, source="the test")
    ids = tokenizer.encode_batch(texts * 3, add_special_tokens=False)
    token_N = np.concatenate([encoding.ids for encoding in ids])
    ends = np.cumsum([0, *(len(encoding.ids) for encoding in ids)])
    sample = whole_sentences(token_N, ends, np.ones(len(token_N), bool), len(token_N))
    place_P, _ = occurrences(sample, asked("王様"), tokenizer)
    assert [tokenizer.decode([i]) for i in sample.token_N[place_P]] == [" 王様", "王様", " 王様", "王様"] * 3
    assert error_text(MeasureError, lambda: occurrences(sample, asked("様が"), tokenizer)) == (
        "pictures show words of one sub-word, but '様が' has 2 sub-words; choose a more frequent word."
    )
