"""Preparation of runs: what is checked before the first one starts."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from ablations.errors import SpecProblems
from ablations.measures.information.estimate import smaller_half
from ablations.measures.reading.texts import Texts
from ablations.measures.token_information import questions_of
from ablations.runs.prepare import prepare_text
from lightning_modules.config import FilesData
from lightning_modules.config.contradictions import lacks_documents
from lightning_modules.data import token_store
from lightning_modules.errors import AblationsError
from tests.support.errors import error_text
from tests.support.planned_spec import SPEC, workspace_of
from tests.support.tiny_text import sentences


def test_tokens_that_changed_on_the_disk_are_refused_before_a_run_starts(tmp_path):
    """One other token id of the right size and range would train another model, and nobody would know."""
    workspace = workspace_of(tmp_path, measures=["validation"])
    prepare_text(workspace, workspace.planned, Console(quiet=True))
    (path,) = tmp_path.glob("out/tokens/*/train.ids.npy")
    ids = np.load(path, mmap_mode="r+")
    ids[5] ^= 1
    ids.flush()
    assert error_text(
        AblationsError, lambda: prepare_text(workspace, workspace.planned, Console(quiet=True))
    ).endswith(
        f": arms a and b: The token store {path.parent} is damaged: train.ids.npy has changed since it was "
        "written; delete the folder, then `ablate run` writes it again."
    )
    ids[5] ^= 1
    ids.flush()
    prepare_text(workspace, workspace.planned, Console(quiet=True))


def test_the_text_of_a_measure_is_checked_for_each_seed(tmp_path):
    """token_information cuts the text into halves by the seed. Text for one seed may not do for another."""

    def opened(clusters, seeds):
        sizes = {"tokens": 300, "types": 20, "clusters": clusters}
        measure = {"kind": "token_information", "about": ["input"], **sizes}
        return workspace_of(tmp_path, seeds=seeds, measures=[measure])

    workspace = opened(2, [0])
    (settings,) = workspace.experiment.measures
    data = workspace.planned[0].run.settings.data
    tokens = token_store.prepare(data, data_root=tmp_path, store=tmp_path / "out" / "tokens")
    sample = Texts(tokens, data, data_root=tmp_path).validation(settings).sample
    (question,) = questions_of(sample, settings, None)
    halves = {seed: smaller_half(sample.sentence_N[question.place_N], seed=seed) for seed in range(20)}
    fits, lacks = max(halves, key=halves.get), min(halves, key=halves.get)
    clusters = halves[fits] // 5
    assert halves[lacks] < 5 * clusters
    prepared = opened(clusters, [fits])
    prepare_text(prepared, prepared.planned, Console(quiet=True))
    refused = opened(clusters, [fits, lacks])
    with pytest.raises(AblationsError, match="clusters"):
        prepare_text(refused, refused.planned, Console(quiet=True))


TABLE = {"kind": "files", "train": "text.csv", "validation": "text.csv", "vocab_size": 256}


@pytest.mark.parametrize(
    ("data", "measure", "sentence"),
    [
        (
            SPEC["data"] | {"validation": 1},
            "geometry",
            "measure geometry: geometry compares occurrences in different sentences, but the text has 1 sentence; "
            "use more text.",
        ),
        (
            TABLE,
            {"kind": "validation", "input_formats": ["sentences", "full_sentences", "doc_sentences"]},
            "measure validation: doc_sentences needs data.document, the column whose value is the same for all "
            "sentences of a document; set it, or use sentences or full_sentences.",
        ),
        (
            TABLE,
            {"kind": "minimal_pairs", "tasks": ["mp.yaml"]},
            'measure minimal_pairs: task mp.yaml: its group columns near and far both have the value "1", but on '
            "different pairs, expected other values in one of them, as each value has one score; write for "
            "example near-1 and far-1.",
        ),
        (
            TABLE,
            {"kind": "frozen_features", "tasks": ["cola.yaml"]},
            "measure frozen_features: task cola.yaml: {path}/classes.csv, line 3: b is empty, expected a value; "
            "remove the row.",
        ),
    ],
)
def test_a_text_that_does_not_suit_a_measure_is_refused_before_a_run_starts(data, measure, sentence, tmp_path):
    (tmp_path / "text.csv").write_text("\n".join(["text", *sentences(300, seed=0)]), encoding="utf-8")
    pairs = "kind: minimal_pairs\nmetric: accuracy\ntext: [a, b]\ngroups: [near, far]\nfiles: {test: pairs.csv}\n"
    (tmp_path / "mp.yaml").write_text(pairs)
    classes = "kind: classification\nmetric: accuracy\ntext: [a]\nlabel: b\nfiles: {test: classes.csv}\n"
    (tmp_path / "cola.yaml").write_text(f"{classes}divided_by: a\n")
    (tmp_path / "pairs.csv").write_text("a,b,near,far\nx y,y x,1,2\ny z,z y,0,1\n")
    (tmp_path / "classes.csv").write_text("a,b\nx y,1\nz,\n")
    workspace = workspace_of(tmp_path, data=data, measures=[measure])
    assert error_text(
        AblationsError, lambda: prepare_text(workspace, workspace.planned, Console(quiet=True))
    ).endswith(f": {sentence.format(path=tmp_path)}")


TREE = "".join(f"{i}\t{word}\t_\tX\t_\t_\t{i - 1}\tdep\t_\t_\n" for i, word in enumerate("abc", start=1))


@pytest.mark.parametrize(
    ("measure", "content", "sentence"),
    [
        (
            "parsing",
            f"{TREE}\n# text = a b d\n{TREE}",
            '{path}, line 6: the labels do not match the text: expected word 3, "c", but the text has "d" in '
            '"a b d"; give words and text of the same sentence.',
        ),
        (
            "structural_probe",
            TREE,
            "the validation part of a.conllu has no sentences; give a treebank with more sentences.",
        ),
    ],
)
def test_a_treebank_without_the_trees_that_a_measure_needs_is_refused_before_a_run_starts(
    measure, content, sentence, tmp_path
):
    (tmp_path / "a.conllu").write_text(content, encoding="utf-8")
    workspace = workspace_of(tmp_path, measures=[{"kind": measure, "treebank": "a.conllu"}])
    error = error_text(AblationsError, lambda: prepare_text(workspace, workspace.planned, Console(quiet=True)))
    assert error.endswith(f": measure {measure}: {sentence.format(path=tmp_path / 'a.conllu')}")


def test_a_treebank_that_loses_most_of_its_trees_is_announced_before_a_run_starts(tmp_path):
    """Two of its three sentences are longer than `max_length`."""
    sentence = "1\ta\ta\tNOUN\t_\t_\t0\troot\t_\t_\n"
    sentence += "".join(f"{i}\ta\ta\tNOUN\t_\t_\t1\tdep\t_\t_\n" for i in range(2, 4))
    more = "".join(f"{i}\ta\ta\tNOUN\t_\t_\t1\tdep\t_\t_\n" for i in range(4, 40))
    (tmp_path / "a.conllu").write_text("\n".join([sentence, *[sentence + more] * 2, ""]), encoding="utf-8")
    measures = [{"kind": "parsing", "treebank": "a.conllu", "longest": 50}]
    workspace, console = workspace_of(tmp_path, measures=measures), Console(file=io.StringIO())
    prepare_text(workspace, workspace.planned, console)
    assert "\na.conllu: its trees have 2 of 78 dependencies. The others lead to" in console.file.getvalue()


def test_documents_are_needed_of_the_text_that_is_read():
    """Blank lines end documents in plain text."""
    data = FilesData.model_validate(TABLE | {"train": "text.txt"})
    assert lacks_documents(data, "sentence_pair", "train") is None
    assert lacks_documents(data, "sentence_pair", "validation").startswith("sentence_pair needs data.document, ")
    assert lacks_documents(data, "full_sentences", "validation") is None
    assert lacks_documents(data.model_copy(update={"document": "d"}), "sentence_pair", "validation") is None


def test_tokens_of_a_step_are_those_of_the_input_format(tmp_path):
    """Joined sentences share one START, so the text has fewer tokens than is stored."""
    data = workspace_of(tmp_path).planned[0].run.settings.data
    text = token_store.prepare(data, data_root=tmp_path, store=tmp_path / "out" / "tokens").train
    stored = len(text.ids)
    fits = workspace_of(tmp_path, training={"max_steps": 4, "tokens_per_step": stored})
    prepare_text(fits, fits.planned, Console(quiet=True))
    training = {"max_steps": 4, "tokens_per_step": stored, "input_format": "full_sentences"}
    refused = workspace_of(tmp_path, training=training)
    with pytest.raises(AblationsError) as caught:
        prepare_text(refused, refused.planned, Console(quiet=True))
    sentence = str(caught.value)
    joined = int(re.search(r"only ([\d,]+) in 300 sentences", sentence)[1].replace(",", ""))
    assert joined < stored
    assert sentence.endswith(
        f": a step has {stored:,} tokens (training.tokens_per_step), but the training text has only "
        f"{joined:,} in 300 sentences; give more text (data.train, training.sentences), or lower "
        "training.tokens_per_step."
    )


def test_too_few_negative_pairs_are_seen_before_a_run_starts(tmp_path):
    objective = {"kind": "masked_lm", "pair_loss": "next_sentence"}
    for tokens_per_step in (512, 64):
        training = {"max_steps": 4, "tokens_per_step": tokens_per_step, "input_format": "segment_pair"}
        workspace = workspace_of(tmp_path, objective=objective, training=training, arms={"a": {}})
        if tokens_per_step == 512:
            prepare_text(workspace, workspace.planned, Console(quiet=True))
    sentence = error_text(AblationsError, lambda: prepare_text(workspace, workspace.planned, Console(quiet=True)))
    assert (
        ": next_sentence needs second segments from another document in at least a quarter of the pairs"
        in sentence
    )


PLUGIN = """
from ablations.catalogue import Card
from ablations.measures.settings import MeasureSettings
from lightning_modules.config.masking import OwnSelection

class Vowels(OwnSelection):
    def allowed(self, tokens, split):
        return [tokens.tokenizer.id_to_token(i)[-1] in "aeiou" for i in split]

class Words(OwnSelection):
    def joined(self, tokens, split):
        return tokens.vocabulary

class Settings(MeasureSettings):
    pass

def rows(readings, settings, say):
    yield {}

def require(settings, texts, run):
    texts.nothing

Mine = Card(rows=rows, metrics=("mine",), settings=Settings, require=require)
"""


def test_code_of_plugins_that_fails_is_a_sentence_with_its_line_for_each_arm_and_measure(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    arms = {"fine": {}} | {
        name: {"objective": {"masking": {"select": f"mine.py:{kind}"}}}
        for name, kind in (("vowels", "Vowels"), ("words", "Words"), ("again", "Words"))
    }
    workspace = workspace_of(tmp_path, arms=arms, measures=["mine.py:Mine"])
    lines = error_text(
        SpecProblems, lambda: prepare_text(workspace, workspace.planned, Console(quiet=True))
    ).splitlines()
    select, file = "objective.masking.select: mine.py:", f"{tmp_path}/mine.py"
    assert [line.partition(": ")[2] for line in lines] == [
        f"arm vowels: {select}Vowels: {file}, line 8: TypeError: 'Split' object is not iterable; "
        "correct the file.",
        f"arms words and again: {select}Words: {file}, line 12: AttributeError: 'Tokens' object has no attribute "
        "'vocabulary'; correct the file.",
        f"measure mine.py:Mine: {file}, line 21: AttributeError: 'Texts' object has no attribute 'nothing'; "
        "correct the file.",
    ]
