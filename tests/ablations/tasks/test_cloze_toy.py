"""Label words behind sentences, halves of a file, and the [MASK] that a head reads in a label's place."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pydantic import ValidationError

from ablations.errors import MeasureError
from ablations.runs.prepare import _require_other_half
from ablations.tasks.datasets import SPLITS, TASKS, chosen
from ablations.tasks.encoding import encode_batch, encode_masked
from ablations.tasks.examples import read_examples
from ablations.tasks.probing import probed
from ablations.tasks.settings import FineTuningSettings
from ablations.tasks.transfer.heads import read_states, texts_of
from lightning_modules.config import FilesData, HubData, LanguageData, MaskingSettings
from lightning_modules.data.corpus import content_address, half_of, open_corpus
from lightning_modules.data.packing import BatchPlan, pack
from lightning_modules.data.token_store import prepare
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, START, read_tokenizer
from lightning_modules.errors import DataError
from lightning_modules.objectives import build
from lightning_modules.objectives.masked_lm import Masker
from lightning_modules.objectives.masking import Units
from tests.support import tiny_pretrained
from tests.support.errors import error_text
from tests.support.tiny_text import sentences, settings

WORDS = ("negative", "positive")
NO_NUMBER = (
    "a label must be the number of its word in data.label_words (0 for negative, 1 for positive); write these "
    "numbers in the column."
)
TASK = TASKS["sst2_at_mask"]
PHRASES = [*sentences(1800, seed=1), *["positive and negative"] * 200]  # label words may occur in sentences


def data(**more):
    files = dict.fromkeys(("train", "validation"), "sst2.parquet")
    labels = {"label": "label", "label_words": list(WORDS)}
    given = {"kind": "files", **files, "text": "sentence", "vocab_size": 320, "max_length": 64} | labels | more
    return FilesData.model_validate(given)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("toy")
    labels = np.random.default_rng(0).integers(0, 2, len(PHRASES))
    table = pa.table({"sentence": PHRASES, "label": labels})
    pq.write_table(table, root / "sst2.parquet")
    for split in SPLITS:
        path = root / TASK.files[split]
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    return root


@pytest.fixture(scope="module")
def text(root):
    return prepare(data(), data_root=root, store=root / "store")


def sentence_of(settings, root):
    return error_text(DataError, lambda: list(open_corpus(settings, data_root=root).rows("train")))


# Text ------------------------------------------------------------------------------------------------


def test_every_sentence_ends_with_the_word_for_its_label(root):
    table = pq.read_table(root / "sst2.parquet").to_pydict()
    expected = [f"{s} {WORDS[label]}" for s, label in zip(table["sentence"], table["label"], strict=True)]
    corpus = open_corpus(data(), data_root=root)
    assert [row.text for row in corpus.rows("train")] == expected
    assert [row.text for row in corpus.rows("validation")] == expected


def test_labels_of_text_formats_are_numbers_too(tmp_path):
    (tmp_path / "a.tsv").write_text("sentence\tlabel\nso good\t1\nso bad\t0\n")
    rows = open_corpus(data(train="a.tsv", validation="a.tsv"), data_root=tmp_path).rows("train")
    assert [row.text for row in rows] == ["so good positive", "so bad negative"]


def test_text_and_task_read_two_halves_that_share_no_row_and_are_the_whole(root):
    numbers = np.arange(1, len(PHRASES) + 1)
    first = np.array([half_of(int(number)) == "first" for number in numbers])
    assert abs(first.mean() - 0.5) < 4 * 0.5 / len(numbers) ** 0.5  # standard errors
    for half, mine in (("first", first), ("second", ~first)):
        read = [row.text for row in open_corpus(data(half=half), data_root=root).rows("train")]
        assert [line.rsplit(" ", 1)[0] for line in read] == [PHRASES[i] for i in np.flatnonzero(mine)]
    assert len(list(open_corpus(data(half="first"), data_root=root).rows("validation"))) == len(PHRASES)
    assert TASK.half == "second"
    assert read_examples(TASK, "train", data_root=root).first == [PHRASES[i] for i in np.flatnonzero(~first)]
    assert len(read_examples(TASK, "test", data_root=root)) == len(PHRASES)


def test_halves_and_label_words_count_in_the_address_where_they_are_given(root):
    plain = {"label": None, "label_words": []}
    variants = [data(**plain), data(), data(half="first"), data(half="second"), data(label_words=["x", "y"])]
    assert len({content_address(variant, root) for variant in variants}) == len(variants)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"label": None},
            "must come together with label; set label, the column of the labels, or leave both out",
        ),
        ({"label_words": []}, "must come together with label; set a word for each label, or leave both out"),
        ({"label_words": ["one"]}, "must be two or more different words without spaces, but is ['one']"),
        (
            {"label_words": ["one", "one"]},
            "must be two or more different words without spaces, but is ['one', 'one']",
        ),
    ],
)
def test_label_words_go_with_labels_and_differ(given, expected):
    with pytest.raises(ValidationError) as caught:
        data(**given)
    assert [str(error["ctx"]["error"]) for error in caught.value.errors()] == [expected]


def test_a_label_without_a_word_is_refused(tmp_path):
    for number, value in enumerate(("2", "", "pos")):
        (tmp_path / f"{number}.csv").write_text(f"sentence,label\ngood,1\nso so,{value}\n")
        settings = data(train=f"{number}.csv", validation=f"{number}.csv")
        assert sentence_of(settings, tmp_path) == (
            f"{tmp_path}/{number}.csv, line 3: the label is {value!r}, but {NO_NUMBER}"
        )
    (tmp_path / "a.txt").write_text("good\n")
    sentence = (
        f"{tmp_path}/a.txt is plain text without columns, but data.label names a column; use a file with "
        "columns, or leave data.label out."
    )
    told = sentence_of(data(train="a.txt", validation="a.txt", text="text"), tmp_path)
    assert told.splitlines() == [sentence, sentence]  # one of the training text, one of the validation text


def test_other_texts_have_no_label_words():
    assert "label_words" not in LanguageData.model_fields
    assert HubData(kind="hub", path="x", label="label", label_words=WORDS).label_words == WORDS


# What is hidden --------------------------------------------------------------------------------------


def corrupted(text, probability, *, epochs=4, seed=3):
    """Of every sentence of some epochs: which of its tokens were hidden, and what was shown."""
    masking = MaskingSettings.model_validate(
        {
            **{"ratio": 0.01, "count": "fixed", "mask": 1.0, "random": 0.0, "keep": 0.0},
            "select": {"kind": "label_word", "probability": probability},
        }
    )
    masker = Masker(masking, vocab_size=text.vocab_size, max_steps=1)
    masker.fit_to_text(text, text.train)
    steps = epochs * len(text.train.ids) // 4000
    plan = BatchPlan(text.train, tokens_per_step=4096, steps=steps, seed=0)
    found = []
    for number in range(steps):
        packed = pack(text.train, plan[number], row_length=64)
        source, shown = packed.source, masker.corrupt(packed, seed=seed)
        assert (shown.shown_N[shown.selected_N] == MASK).all()
        assert (shown.shown_N[~shown.selected_N] == source.ids_N[~shown.selected_N]).all()
        starts = np.flatnonzero(source.ids_N == START)
        found += zip(
            np.split(source.ids_N, starts[1:]), np.split(shown.selected_N, starts[1:]), strict=True
        )  # one a sentence
    return found


@pytest.mark.parametrize("probability", [0.0, 0.2, 0.6, 1.0])
def test_one_token_a_sentence_is_hidden_and_with_the_probability_its_label_word(text, probability):
    found = corrupted(text, probability)
    assert all(hidden.sum() == 1 and ids[hidden][0] >= FIRST_WORD_ID for ids, hidden in found)
    is_label = np.array([hidden[-2] for _, hidden in found])
    assert all(ids[-1] == END for ids, _ in found)
    error = (probability * (1 - probability) / len(is_label)) ** 0.5
    assert len(is_label) > 6000
    assert abs(is_label.mean() - probability) <= 4 * error  # standard errors; exactly, where it is 0 or 1


def test_the_other_tokens_are_hidden_equally_often(text):
    found = [(ids, hidden) for ids, hidden in corrupted(text, 0.2, epochs=8) if not hidden[-2]]
    place = np.array([np.flatnonzero(hidden)[0] / (len(ids) - 3) for ids, hidden in found])  # in (0, 1]
    others = np.array([len(ids) - 3 for ids, _ in found])
    error = (((others**2 - 1) / 12 / others**2).sum()) ** 0.5 / len(others)
    assert abs(place.mean() - ((others + 1) / 2 / others).mean()) < 4 * error  # standard errors of a uniform place


def test_which_it_is_depends_on_seed_and_epoch(text):
    one, same, other = (
        np.array([hidden[-2] for _, hidden in corrupted(text, 0.5, epochs=1, seed=seed)]) for seed in (1, 1, 2)
    )
    assert (one == same).all()
    assert 0.4 < (one == other).mean() < 0.6  # of 2,000, within 9 standard errors of one half


def test_label_words_that_are_no_tokens_or_were_cut_off_are_refused(root):
    select = MaskingSettings.model_validate({"select": {"kind": "label_word", "probability": 1.0}}).select

    def error_of(**more):
        tokens = prepare(data(**more), data_root=root, store=root / "store")
        return error_text(DataError, Units, select, tokens, tokens.train)

    pieces = error_of(vocab_size=36)
    assert pieces.startswith("data.label_words: 'negative' is cut into ")
    assert pieces.endswith(" sub-words, but must be one token; raise data.vocab_size, or choose a shorter word.")
    whole = prepare(data(), data_root=root, store=root / "store").train
    lost = int((whole.lengths > 10).sum())
    assert error_of(max_length=10) == (
        f"objective.masking.select: the label words of {lost:,} of {len(whole):,} sentences of data.train were "
        "cut off; raise data.max_length."
    )


def test_a_cut_sentence_that_ends_with_another_label_word_has_lost_its_own(root, tmp_path):
    (tmp_path / "bert").mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "word", *"abcdefgh"]
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(pieces))
    rows = "a word a word a positive negative word\t1\na word\t0\n" * 200
    (tmp_path / "a.tsv").write_text("sentence\tlabel\n" + rows)
    settings = data(train="a.tsv", validation="a.tsv", tokenizer="bert", vocab_size=len(pieces), max_length=9)
    tokens = prepare(settings, data_root=tmp_path, store=tmp_path / "store")
    select = MaskingSettings.model_validate({"select": {"kind": "label_word", "probability": 1.0}}).select
    assert error_text(DataError, Units, select, tokens, tokens.train) == (
        "objective.masking.select: the label words of 200 of 400 sentences of data.train were cut off; raise "
        "data.max_length."
    )


def test_label_words_are_cut_as_inside_a_sentence(tmp_path):
    """GPT-2's tokenizer has pieces with a space before them, as the label words have in the text."""
    tiny_pretrained.gpt2(tmp_path / "gpt2")
    (tmp_path / "a.tsv").write_text("text\tlabel\n" + "bad\t1\nbed\t0\n" * 20)
    content = json.loads((tmp_path / "gpt2/tokenizer.json").read_text())
    for letter in "xy":
        content["model"]["vocab"]["Ġ" + letter] = len(content["model"]["vocab"])
        content["model"]["merges"].append(["Ġ", letter])
    (tmp_path / "gpt2/tokenizer.json").write_text(json.dumps(content))
    given = read_tokenizer(tmp_path / "gpt2")
    about = {"kind": "files", "train": "a.tsv", "validation": "a.tsv", "text": "text", "label": "label"}
    about |= {"label_words": ["x", "y"], "tokenizer": "gpt2", "vocab_size": given.vocab_size(given.rows)}
    tokens = prepare(FilesData.model_validate(about), data_root=tmp_path, store=tmp_path / "store")
    select = MaskingSettings.model_validate({"select": {"kind": "label_word", "probability": 1.0}}).select
    hidden = tokens.train.ids[Units(select, tokens, tokens.train).allowed_N]
    assert tokens.tokenizer.decode(hidden.tolist()) == " y x" * 20


def test_label_words_without_a_token_of_their_own_are_refused(tmp_path):
    """Both would be [UNK], which is never hidden, and nobody could tell one label from the other."""
    (tmp_path / "bert").mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fine", "dull", "film", *"abcdefgh"]
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(pieces))
    (tmp_path / "text.tsv").write_text("text\tlabel\n" + "fine film\t1\ndull film\t0\n" * 20)
    select = MaskingSettings.model_validate({"select": {"kind": "label_word", "probability": 1.0}}).select
    for words, missing in ((["snow", "rain"], "snow"), (["fine", "rain"], "rain"), (["fine", "Fine"], "Fine")):
        about = {"kind": "files", "train": "text.tsv", "validation": "text.tsv", "text": "text", "label": "label"}
        about |= {"label_words": words, "tokenizer": "bert", "vocab_size": 16}
        tokens = prepare(FilesData.model_validate(about), data_root=tmp_path, store=tmp_path / "store")
        assert error_text(DataError, Units, select, tokens, tokens.train) == (
            f"data.label_words: {missing!r} has no token of its own in the tokenizer; choose another word."
        )


# What is read ----------------------------------------------------------------------------------------


def test_a_mask_stands_behind_the_text_and_is_never_cut_off(text):
    short, long = "the green dog", " ".join(["cat"] * 40)
    rows = encode_masked([short, long], text.tokenizer, max_length=12).rows
    pieces = text.tokenizer.encode(short, add_special_tokens=False).ids
    assert rows[0].ids_T.tolist()[-2:] == [MASK, END]
    assert rows[0].ids_T.tolist()[: len(pieces) + 1] == [START, *pieces]
    assert [len(rows[1].ids_T), rows[1].cut, rows[1].ids_T.tolist()[-2:]] == [12, True, [MASK, END]]
    assert all(len(column) == len(rows[0].ids_T) for column in rows[0][:4])


def test_the_mask_stands_where_pre_training_has_the_label(text):
    """Token for token: a sentence of the text with its label hidden is a row of the task."""
    found = corrupted(text, 1.0, epochs=1)
    shown = {tuple(np.where(hidden, MASK, ids).tolist()) for ids, hidden in found}
    rows = encode_masked(PHRASES, text.tokenizer, max_length=64).rows
    assert len(shown) > 1000
    assert shown <= {tuple(row.ids_T.tolist()) for row in rows}


def test_heads_and_probes_read_the_state_at_the_mask(root, text):
    torch.manual_seed(0)
    objective = build(settings("masked_lm"), text).eval()
    examples = read_examples(TASK, "train", data_root=root).take(range(20))
    texts = texts_of(TASK, examples, text.tokenizer, max_length=64)
    index_B = np.arange(20)
    batch = texts.rows.batch(index_B)
    with torch.no_grad():
        found_ND = read_states(objective, texts, index_B)
        top_BTD = encode_batch(objective, batch)[-1]
    assert torch.equal(found_ND, top_BTD[batch["tokens_BT"] == MASK])
    assert (texts.counts_E == 1).all()
    parts = probed(objective, text.tokenizer, TASK, dict.fromkeys(SPLITS, examples), max_length=64)
    np.testing.assert_array_equal(parts["test"].states_LND[-1], found_ND.numpy())


def test_a_task_of_half_a_file_is_only_chosen_by_name():
    assert TASK.name not in chosen(lambda task: True, built_in=False)
    assert "sst2" in chosen(lambda task: True, built_in=False)


def test_a_task_on_the_half_that_is_the_text_is_refused():
    asked = FineTuningSettings(kind="fine_tuning", tasks=(TASK.name,))

    def run(half):
        return settings().model_copy(update={"data": data(half=half)})

    _require_other_half(run("first"), asked)
    assert error_text(MeasureError, lambda: _require_other_half(run("second"), asked)) == (
        "sst2_at_mask learns from the second half of its file, but the training text is the same half; set "
        "data.half to the other half."
    )
