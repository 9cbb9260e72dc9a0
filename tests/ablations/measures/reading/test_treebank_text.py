"""Measures that read a treebank beside the validation text."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ablations.errors import MeasureError
from ablations.measures import influence, layer_change, neighbours
from ablations.measures.reading.texts import Readings, treebank_text
from ablations.measures.settings import InfluenceSettings, LayerChangeSettings, NeighboursSettings
from lightning_modules.config import RunSettings
from lightning_modules.data import token_store
from lightning_modules.data.treebank import language_sentences
from lightning_modules.objectives import build
from tests.support.errors import error_text

TREEBANK = "bank.parquet"
CHANGE = LayerChangeSettings(
    kind="layer_change", tokens=3000, groups=("frequency", "part_of_speech"), treebank=TREEBANK
)
INFLUENCE = InfluenceSettings(
    kind="influence", tokens=3000, groups=("frequency", "part_of_speech"), sentences=80, treebank=TREEBANK
)
NEIGHBOURS = NeighboursSettings(
    kind="neighbours", tokens=3000, occurrences=20, neighbours=5, neighbours_of_type=5, treebank=TREEBANK
)
MEASURES = {layer_change: CHANGE, influence: INFLUENCE, neighbours: NEIGHBOURS}

RUN = RunSettings.model_validate(
    {
        "data": {"kind": "language", "train": 400, "validation": 300, "test": 10, "vocab_size": 400},
        "encoder": {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2},
        "objective": {"kind": "masked_lm"},
        "training": {"max_steps": 2, "tokens_per_step": 256},
        "seed": 0,
    }
)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    return token_store.prepare(RUN.data, data_root=folder, store=folder / "tokens")


def write_treebank(path, count):
    """Sentences of the built-in language that are not those of the validation text."""
    sentences = language_sentences(0, "test", count)
    columns = {
        "text": [s.text for s in sentences],
        "tokens": [list(s.words) for s in sentences],
        "upos": [list(s.tags) for s in sentences],
        "heads": [[head + 1 for head in s.heads] for s in sentences],
        "deprels": [list(s.relations) for s in sentences],
    }
    pq.write_table(pa.table(columns), path)


def numbers(measure, readings, asked):
    """The values by metric, group and layers, each of which has one."""
    rows = list(measure.rows(readings, asked, print))
    values = {
        (row["metric"], row.get("group"), row["layer"], row.get("layer_to")): (row["value"], row["n"])
        for row in rows
    }
    assert len(values) == len(rows)
    return values


@pytest.mark.parametrize("measure", MEASURES)
def test_labels_are_those_of_the_treebank_also_where_the_text_has_its_own(measure, tokens, tmp_path):
    """The built-in language has labels, so each number by label came from both texts."""
    write_treebank(tmp_path / TREEBANK, 200)
    readings, asked = Readings(build(RUN, tokens), tokens, data_root=tmp_path), MEASURES[measure]
    values = numbers(measure, readings, asked)
    of_text = numbers(measure, readings, asked.model_copy(update={"treebank": None}))
    by_label = {key for key in values if key[0] in neighbours.SYNTAX or (key[1] or "").startswith("tag ")}
    assert by_label
    for key, value in values.items():
        assert (value == of_text.get(key)) == (key not in by_label)


@pytest.mark.parametrize("max_length", [6, 64])
def test_a_treebank_is_read_until_there_are_enough_tokens(max_length, tokens, tmp_path):
    write_treebank(tmp_path / TREEBANK, 600)
    sample = treebank_text(tokens, tmp_path / TREEBANK, 1000, max_length).sample
    assert 1000 - max_length < len(sample) <= 1000


def refusal(measure, texts):
    return error_text(MeasureError, measure.require, MEASURES[measure], texts, RUN)


def test_a_treebank_that_is_too_small_is_refused_before_training(tokens, tmp_path):
    write_treebank(tmp_path / TREEBANK, 10)
    texts = Readings(build(RUN, tokens), tokens, data_root=tmp_path).texts
    assert refusal(influence, texts) == (
        "influence needs a group of tokens that occurs in 80 sentences of two words or more, but no group by "
        "part_of_speech does; give more text, or lower the measure's `sentences`."
    )
    assert refusal(neighbours, texts).startswith(
        "neighbours needs 2 types with 20 occurrences or more, but the text has "
    )
