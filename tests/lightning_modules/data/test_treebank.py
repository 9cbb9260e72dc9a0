"""Treebanks: what stands in a file, in both formats; and one sentence for whatever is wrong with it."""

import gzip
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightning_modules.data.language import Language
from lightning_modules.data.treebank import ROOT, LabelledSentence, language_sentences, read_treebank
from lightning_modules.errors import DataError
from tests.support.errors import error_text

EXAMPLE = """\
# newdoc id = a
# sent_id = a-1
# text = Je  viens du\u00a0marché, dit-il.
# text_en = I come from the market, he says.
1	Je	il	PRON	_	Person=1	2	nsubj	_	_
2	viens	venir	VERB	_	_	6	ccomp	_	_
3-4	du	_	_	_	_	_	_	_	_
3	de	de	ADP	_	_	5	case	_	_
4	le	le	DET	_	_	5	det	_	_
5	marché	marché	NOUN	_	_	2	obl:arg	_	SpaceAfter=No
5.1	vu	voir	VERB	_	_	_	_	2:conj	_
6-7	,dit	_	_	_	_	_	_	_	_
6	,	,	PUNCT	_	_	7	punct	_	_
7	dit	dire	VERB	_	_	0	root	_	_
8	-il	il	PRON	_	_	7	nsubj	_	SpaceAfter=No
9	.	.	PUNCT	_	_	7	punct	_	_

# text =
1	1 000	1 000	NUM	_	_	2	nummod	_	SpaceAfter=No|Gloss=thousand
2-3	aux	_	_	_	_	_	_	_	Gloss=x|SpaceAfter=No
2	à	à	_	_	_	_	_	_	SpaceAfter=No
3	les	le	DET	_	_	2	_	_	_
4	!	!	PUNCT	_	_	0	root	_	_
"""


def written(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz", "A.CoNLLU"])
@pytest.mark.parametrize(
    "change", [str, lambda text: text.replace("\n", "\r\n"), lambda text: "\ufeff" + text + "\n\n"]
)
def test_conllu(tmp_path, name, change):
    first, second = read_treebank(written(tmp_path / name, change(EXAMPLE)))
    assert first == LabelledSentence(
        text="Je viens du marché, dit-il.",
        words=("Je", "viens", "de", "le", "marché", ",", "dit", "-il", "."),
        tags=("PRON", "VERB", "ADP", "DET", "NOUN", "PUNCT", "VERB", "PRON", "PUNCT"),
        heads=(1, 5, 4, 4, 1, 6, ROOT, 6, 6),
        relations=("nsubj", "ccomp", "case", "det", "obl:arg", "punct", "root", "nsubj", "punct"),
        senses=(None,) * 9,
        forms=("Je", "viens", "du", "", "marché", ",", "dit", "-il", "."),  # ",dit" is its words in a row
        where=f"{tmp_path / name}, line 5",
    )
    assert second == LabelledSentence(
        text="1 000aux!",  # the spaces of the surface count, those of its words do not
        words=("1 000", "à", "les", "!"),
        tags=("NUM", "", "DET", "PUNCT"),
        heads=(1, None, 1, ROOT),
        relations=("nummod", "", "", "root"),
        senses=(None,) * 4,
        forms=("1 000", "aux", "", "!"),
        where=f"{tmp_path / name}, line 19",
    )


def test_a_text_is_put_together_where_there_is_none(tmp_path):
    lines = [line for line in EXAMPLE.splitlines() if "text" not in line]
    sentences = read_treebank(written(tmp_path / "a.conllu", "\n".join(lines)))  # and no line end at the end
    assert [sentence.text for sentence in sentences] == ["Je viens du marché,dit -il.", "1 000aux!"]


def columns(sentences: list[LabelledSentence]) -> dict[str, list]:
    return {
        "text": [s.text for s in sentences],
        "tokens": [list(s.words) for s in sentences],
        "upos": [list(s.tags) for s in sentences],
        "heads": [[head + 1 for head in s.heads] for s in sentences],
        "deprels": [list(s.relations) for s in sentences],
    }


def parquet(path: Path, sentences: list[LabelledSentence], **other) -> Path:
    table = {name: values for name, values in (columns(sentences) | other).items() if values is not None}
    pq.write_table(pa.table(table), path)
    return path


def conllu(path: Path, sentences: list[LabelledSentence]) -> Path:
    lines = []
    for s in sentences:
        lines += [f"# text = {s.text}"]
        for i, (word, tag, head, relation) in enumerate(zip(s.words, s.tags, s.heads, s.relations, strict=True)):
            lines += ["\t".join([str(i + 1), word, "_", tag or "_", "_", "_", str(head + 1), relation, "_", "_"])]
        lines += [""]
    return written(path, "\n".join(lines))


def random_sentences(rng: np.random.Generator, count: int) -> list[LabelledSentence]:
    """Words with heads that are forests: each word is below one that comes before it in a random order."""
    made = []
    for _ in range(count):
        W = int(rng.integers(1, 9))
        order, heads = rng.permutation(W), [ROOT] * W
        for i in range(1, W):
            heads[order[i]] = int(rng.choice([ROOT, *order[:i]]))
        words = tuple("".join(rng.choice(list("abcé"), 3)) for _ in range(W))
        relations = tuple("root" if head == ROOT else "dep:x" for head in heads)
        tags = tuple(rng.choice(["NOUN", "VERB", ""], W).tolist())
        made.append(LabelledSentence(" ".join(words), words, tags, tuple(heads), relations, (None,) * W, words))
    return made


def test_both_formats_give_back_what_was_written(tmp_path):
    sentences = random_sentences(np.random.default_rng(0), 50)
    for written_as in (conllu(tmp_path / "a.conllu", sentences), parquet(tmp_path / "a.parquet", sentences)):
        assert [sentence._replace(where="") for sentence in read_treebank(written_as)] == sentences
    assert [sentence.where for sentence in read_treebank(tmp_path / "a.parquet")][1:3] == [
        f"{tmp_path / 'a.parquet'}, row 2",
        f"{tmp_path / 'a.parquet'}, row 3",
    ]


def test_sentences_of_the_built_in_language():
    ours = language_sentences(3, "validation", 20)
    for sentence, (_, theirs) in zip(ours, Language(3).sentences("validation", 20), strict=True):
        for name in ("text", "words", "tags", "heads", "relations", "senses"):
            assert getattr(sentence, name) == getattr(theirs, name)
        assert sentence.forms == theirs.words
    assert any(sense is not None for sentence in ours for sense in sentence.senses)


# What is wrong with a file ---------------------------------------------------------------------------


def error_of(path: Path) -> str:
    return error_text(DataError, read_treebank, path).removeprefix(str(path))


def line(number: str, head: str = "0", form: str = "word") -> str:
    return f"{number}\t{form}\t_\tNOUN\t_\t_\t{head}\tdep\t_\t_\n"


def test_a_file_that_is_none(tmp_path):
    assert error_of(tmp_path / "gone.conllu") == " does not exist, expected a treebank; correct the path."
    expected = ", expected a file that ends in .conllu, .conllu.gz or .parquet; name, convert or rename the file."
    (tmp_path / "folder.conllu").mkdir()
    assert error_of(tmp_path / "folder.conllu") == f" is a folder{expected}"
    for name in ("a.conll", "a.parquet.gz", "conllu"):
        assert error_of(written(tmp_path / name, EXAMPLE)) == f" is no treebank by its ending{expected}"
    for text in ("", "\n\n", "# text = no words\n\n"):
        assert error_of(written(tmp_path / "a.conllu", text)) == (
            " has no sentences; give a treebank with at least one."
        )
    none = pa.table(columns(random_sentences(np.random.default_rng(0), 1))).slice(0, 0)
    pq.write_table(none, tmp_path / "a.parquet")
    assert error_of(tmp_path / "a.parquet") == " has no sentences; give a treebank with at least one."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "# text = a\n1\ta\n",
            ", line 2: expected the 10 columns of CoNLL-U, with tabs between them, but found 2; correct the line.",
        ),
        (
            line("1") + line("2").replace("\t", " "),
            ", line 2: expected the 10 columns of CoNLL-U, with tabs between them, but found 1; correct the line.",
        ),
        (
            line("1") + line("2", "4") + line("3"),
            ", line 2: the head of 'word' is 4, expected 0 (root) or the number of a word, 1 to 3; correct it.",
        ),
        (
            line("1", "-1"),
            ", line 1: the head of 'word' is -1, expected 0 (root) or the number of a word, 1 to 1; correct it.",
        ),
        (
            line("1") + "\n" + line("1", "zero"),
            ", line 3: the head of 'word' is 'zero', expected 0 (root), the number of a word, or _ for no "
            "annotation; correct it.",
        ),
        (
            line("1") + line("2", "2"),
            ", line 2: the heads above 'word' form a circle, expected a path to a root (head 0); correct them.",
        ),
        (
            line("1") + line("2", "4", "x") + line("3", "2") + line("4", "3"),
            ", line 2: the heads above 'x' form a circle, expected a path to a root (head 0); correct them.",
        ),
        (
            line("1", form=" ") + line("2", form=" "),
            ", line 1: a sentence has no text; correct or remove it.",
        ),
        (
            line("1-2") + line("1"),
            ", line 2: the sentence ends before its word 2; add the missing word.",
        ),
        (
            line("1.1"),
            ", line 1: the sentence ends before its word 1; add the missing word.",
        ),
    ],
)
def test_malformed_conllu(tmp_path, text, expected):
    assert error_of(written(tmp_path / "a.conllu", text)) == expected


@pytest.mark.parametrize(
    ("numbers", "wrong", "expected"),
    [
        (["1", "3"], 1, 2),
        (["1", "1"], 1, 2),
        (["1", "x"], 1, 2),
        (["0"], 0, 1),
        (["1", "3-4"], 1, 2),
        (["1", "2-1"], 1, 2),
        (["1-2", "1-2"], 1, 1),
        (["1-3", "1", "2-3"], 2, 2),
        (["1", "2-"], 1, 2),
        (["1", ""], 1, 2),
    ],
)
def test_words_that_are_not_numbered_in_order(tmp_path, numbers, wrong, expected):
    text = "# comment\n" + "".join(map(line, numbers))
    assert error_of(written(tmp_path / "a.conllu", text)) == (
        f", line {wrong + 2}: the number of the word is {numbers[wrong]!r}, expected {expected}; number "
        "the words of each sentence 1, 2, 3 and so on, write a multi-word token before its words, and put an "
        "empty line between sentences."
    )


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_bytes(EXAMPLE.encode("latin-1", "replace"))
    assert error_of(path) == (
        ", line 3: byte 0xa0 at position 22 of the line is not UTF-8; convert the file to UTF-8, or remove the "
        "line."
    )
    path = written(tmp_path / "a.conllu.gz", (EXAMPLE + "\n") * 100)
    path.write_bytes(path.read_bytes()[:-20])
    assert error_of(path).endswith("; write or copy it again.")
    assert " cannot be read after line " in error_of(path)
    path = tmp_path / "b.conllu.gz"
    path.write_text(EXAMPLE)
    assert error_of(path) == " cannot be read: Not a gzipped file (b'# '); write or copy it again."


def test_malformed_parquet(tmp_path):
    sentences = random_sentences(np.random.default_rng(1), 3)
    right, path = columns(sentences), tmp_path / "a.parquet"
    treebank = "write tokens, upos, heads and deprels with a list a sentence, and text."
    for name in right:
        assert error_of(parquet(path, sentences, **{name: None})) == (
            f": expected one column {name!r}, but the columns are "
            f"{', '.join(repr(other) for other in right if other != name)}; {treebank}"
        )
    wrong = {
        "text": (right["tokens"], "list<element: string>", "text", "a text"),
        "tokens": (right["text"], "string", "lists of text", "a list of words"),
        "upos": (right["heads"], "list<element: int64>", "lists of text", "a list of tags"),
        "heads": (right["upos"], "list<element: string>", "lists of whole numbers", "a list of heads"),
        "deprels": (right["text"], "string", "lists of text", "a list of relations"),
    }
    for name, (values, kind, wanted, entries) in wrong.items():
        assert error_of(parquet(path, sentences, **{name: values})) == (
            f": column {name!r} holds {kind}, expected {wanted}; write {entries} a sentence."
        )
    for name, entry in {"upos": "tag", "heads": "head", "deprels": "relation"}.items():
        for cut in (None, [], [None] * len(sentences[1].words)):
            values = [right[name][0], cut, right[name][2]]
            assert error_of(parquet(path, sentences, **{name: values})) == (
                f", row 2: {name} must have a {entry} for every word in tokens; correct or remove the row."
            )
    for text in (None, "", " "):
        assert error_of(parquet(path, sentences, text=[text, "b", "c"])) == (
            ", row 1: no text, expected a sentence; correct or remove the row."
        )
    nothing = {name: [[], *right[name][1:]] for name in right if name != "text"}
    assert error_of(parquet(path, sentences, **nothing)) == (
        ", row 1: no words, expected a sentence; correct or remove the row."
    )
    words, W = sentences[2].words, len(sentences[2].words)
    heads = [*right["heads"][:2], [0] * (W - 1) + [W + 1]]
    assert error_of(parquet(path, sentences, heads=heads)) == (
        f", row 3, word {W}: the head of {words[-1]!r} is {W + 1}, expected 0 (root) or the number of a word, 1 "
        f"to {W}; correct it."
    )
    path.write_text("no parquet, although it says so in its name")
    assert error_of(path).startswith(" cannot be read as parquet: Parquet magic bytes not found")
    assert error_of(path).endswith("; write or copy it again.")


def test_a_long_sentence_is_read_in_time_proportional_to_its_length(tmp_path):
    """Each head is the next word. A walk to the root from every word would take 450 million steps."""
    words = 30_000
    text = "".join(line(str(number), str(number + 1)) for number in range(1, words)) + line(str(words), "0")
    begin = time.process_time()
    (sentence,) = read_treebank(written(tmp_path / "a.conllu", text))
    assert time.process_time() - begin < 5  # it takes 0.2 s, and all walks together take 20 s
    assert sentence.heads == (*range(1, words), ROOT)
