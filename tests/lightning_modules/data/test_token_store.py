"""The token store holds exactly the text; it appears whole, once, and is found by what the text is."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest

from lightning_modules.config import FilesData
from lightning_modules.data import tokenising
from lightning_modules.data.corpus import content_address, open_corpus
from lightning_modules.data.token_store import _digest, address, load, prepare
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, START, UNKNOWN, decode, starts_word, train
from lightning_modules.errors import DataError, FilesError, OutOfMemoryError
from tests.support.errors import error_text
from tests.support.unprivileged import permissions_hold

MAX_LENGTH = 16
WORDS = ["".join(word) for word in np.random.default_rng(9).choice(list("abdeghiklmnorstuwz"), (150, 5))]


def lines(seed, count, longest):
    """Zipfian sentences; documents of five, an empty row now and then."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    for i in range(count):
        words = list(rng.choice(WORDS, rng.integers(1, longest + 1), p=weights / weights.sum()))
        blank = i % 17 == 3
        yield {
            "text": "" if blank else " ".join(words),
            "target": "" if blank else " ".join(word.upper() for word in reversed(words)),
            "document": i // 5,
        }


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("text")
    for split, seed, count, longest in (("train", 0, 400, 12), ("validation", 1, 60, 5), ("test", 2, 40, 5)):
        rows = list(lines(seed, count, longest))
        if split == "test":
            rows[0] = {"text": "gross £ 5", "target": "GROSS £", "document": 0}
        (root / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def settings(**more):
    base = {"train": "train.jsonl", "validation": "validation.jsonl", "test": "test.jsonl", "vocab_size": 300}
    return FilesData(
        kind="files", **base | {"max_length": MAX_LENGTH, "target": "target", "document": "document"} | more
    )


@pytest.fixture(scope="module")
def said():
    return []


@pytest.fixture(scope="module")
def tokens(root, said, tmp_path_factory):
    return prepare(
        settings(), data_root=root, store=tmp_path_factory.mktemp("out") / "store", progress=said.append
    )


def rows_of(root, split):
    return list(open_corpus(settings(), data_root=root).rows(split))


def whole(tokenizer, text):
    """A sentence's ids, derived without the code under test."""
    return [START, *tokenizer.encode(text, add_special_tokens=False).ids, END]


def cut(ids):
    return ids if len(ids) <= MAX_LENGTH else [*ids[: MAX_LENGTH - 1], END]


# Content ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["train", "validation", "test"])
def test_every_sentence_is_there_in_order_with_its_translation(tokens, root, name):
    rows, split = rows_of(root, name), getattr(tokens, name)
    assert len(split) == len(rows) > 30
    for i, row in enumerate(rows):
        assert split.sentence(i).tolist() == cut(whole(tokens.tokenizer, row.text))
        assert split.target_sentence(i).tolist() == cut(whole(tokens.target_tokenizer, row.target))
    assert split.documents.tolist() == [row.document for row in rows]
    assert split.lengths.tolist() == [len(split.sentence(i)) for i in range(len(split))]
    assert split.target_lengths.tolist() == [len(split.target_sentence(i)) for i in range(len(split))]
    assert split.lengths.sum() == len(split.ids)
    assert max(split.lengths.max(), split.target_lengths.max()) <= MAX_LENGTH
    assert (split.ids.dtype, split.offsets.dtype, split.documents.dtype) == (np.uint16, np.int64, np.int32)


def test_a_sentence_that_is_not_cut_reads_back(tokens, root):
    rows = rows_of(root, "validation")
    for i in np.flatnonzero(tokens.validation.lengths < MAX_LENGTH):
        assert decode(tokens.tokenizer, tokens.validation.sentence(i)) == rows[i].text


def test_the_vocabularies_are_learnt_from_the_training_split_alone(tokens, root):
    rows = rows_of(root, "train")
    assert tokens.tokenizer.to_str() == train((row.text for row in rows), 300, source="").to_str()
    assert tokens.target_tokenizer.to_str() == train((row.target for row in rows), 300, source="").to_str()
    assert (tokens.vocab_size, tokens.target_vocab_size) == (300, 300)
    assert tokens.source_counts_V.tolist() == np.bincount(tokens.train.ids, minlength=300).tolist()
    assert tokens.target_counts_V.tolist() == np.bincount(tokens.train.target_ids, minlength=300).tolist()


@pytest.mark.parametrize("name", ["train", "validation", "test"])
@pytest.mark.parametrize("side", ["source", "target"])
def test_the_report_counts_what_is_there(tokens, root, name, side):
    report = tokens.report["splits"][name][side]
    tokenizer = tokens.tokenizer if side == "source" else tokens.target_tokenizer
    texts = [row.text if side == "source" else row.target for row in rows_of(root, name)]
    lengths = [len(whole(tokenizer, text)) for text in texts]
    kept = [cut(whole(tokenizer, text)) for text in texts]
    starts = set(np.flatnonzero(starts_word(tokenizer)))
    words = one_piece = 0
    for ids in kept:
        begins = [i for i, piece in enumerate(ids) if piece in starts]
        ends = [*begins[1:], len(ids) - 1]
        words += len(begins)
        one_piece += sum(end - begin == 1 for begin, end in zip(begins, ends, strict=True))
    unknown = sum(ids.count(UNKNOWN) for ids in kept)
    assert report == {
        "tokens": sum(map(len, kept)),
        "cut": sum(length > MAX_LENGTH for length in lengths),
        "dropped": sum(lengths) - sum(map(len, kept)),
        "unknown": unknown,
        "unknown_share": unknown / sum(map(len, kept)),
        "words": words,
        "one_piece_word_share": one_piece / words,
        "whole_length_percentiles": {
            str(p): int(np.percentile(lengths, p, method="inverted_cdf")) for p in (1, 5, 25, 50, 75, 95, 99, 100)
        },
    }


def test_what_was_cut_left_out_or_unknown_is_said(tokens, said):
    train_report, test_report = tokens.report["splits"]["train"], tokens.report["splits"]["test"]
    assert train_report["sentences"] == 376
    assert train_report["skipped"] == 24
    assert train_report["source"]["cut"] > 10
    assert test_report["source"]["unknown"] == 3  # two bytes of the pound sign, one of the digit
    source, target = train_report["source"], train_report["target"]
    lost = {
        side: f"dropped {report['dropped']:,} of {report['dropped'] + report['tokens']:,} tokens."
        for side, report in (("source", source), ("target", target))
    }
    for sentence in (
        "Reading data.train.",
        "Training 300 sub-words on data.train.",
        f"data.train: 376 sentences, {len(tokens.train.ids):,} tokens, 80 documents.",
        "data.train: 24 rows without a sentence or a translation were left out.",
        f"data.train: {source['cut']} of 376 sentences are longer than data.max_length = 16 tokens and were cut, "
        f"which {lost['source']}",
        f"data.train: {target['cut']} of 376 translations are longer than data.max_length = 16 tokens and were "
        f"cut, which {lost['target']}",
        "data.test: 3 bytes of the sentences do not occur in training and became [UNK].",
    ):
        assert said.count(sentence) == 1
    assert not [sentence for sentence in said if "validation" in sentence and "[UNK]" in sentence]


def test_the_size_of_batches_does_not_matter(tokens, root, tmp_path, monkeypatch):
    monkeypatch.setattr(tokenising, "SENTENCES_AT_ONCE", 7)
    again = prepare(settings(), data_root=root, store=tmp_path)
    assert again.address == tokens.address
    assert again.report["files"] == tokens.report["files"]  # every byte of every array
    assert again.report["splits"] == tokens.report["splits"]


def test_references_are_the_translations_as_they_stand_in_the_file(tmp_path):
    """The ids have neither bytes that training lacks nor what was cut; letters are composed, as in the ids."""
    train_rows = [{"text": word, "target": f"x y {word}"} for word in WORDS]
    targets = ["x \u2603 y", "cafe\u0301 x", " ".join(WORDS[:40])]
    for name, rows in (("train", train_rows), ("validation", [{"text": "a", "target": t} for t in targets])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = settings(test=[], document=None, vocab_size=40)
    tokens = prepare(data, data_root=tmp_path, store=tmp_path / "store")
    assert tokens.references == [targets[0], "caf\u00e9 x", targets[2]]
    for i, text in enumerate(tokens.references):
        assert decode(tokens.target_tokenizer, tokens.validation.target_sentence(i)) != text


def test_a_store_of_an_earlier_version_gets_its_references(copy, root):
    (copy / "validation.references.json").unlink()
    path = copy / "tokens.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"], manifest["files"]["validation.references.json"]
    path.write_text(json.dumps(manifest | {"sha256": _digest(manifest)}))
    tokens = prepare(settings(), data_root=root, store=copy.parent)
    assert tokens.folder == copy
    assert tokens.references == [row.target for row in rows_of(root, "validation")]
    assert prepare(settings(), data_root=root, store=copy.parent, check="hashes").references == tokens.references


def test_without_translations_and_test_split_there_are_none(root, tmp_path):
    tokens = prepare(settings(target=None, test=[]), data_root=root, store=tmp_path)
    assert tokens.test is None
    assert tokens.target_vocab_size is None
    assert tokens.target_counts_V is None
    assert tokens.train.target_ids is None
    with pytest.raises(AssertionError, match="no translations"):
        tokens.train.target_sentence(0)
    with pytest.raises(AssertionError, match="no translations"):
        print(tokens.references)


def test_a_large_vocabulary_takes_wider_ids(tmp_path):
    """The last of 65,537 ids does not fit in 16 bits."""
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = ["".join(word) for word in np.random.default_rng(0).choice(letters, (16_000, 10))]
    (tmp_path / "a.txt").write_text("\n".join(words))
    data = FilesData(kind="files", train="a.txt", validation="a.txt", vocab_size=65_537)
    tokens = prepare(data, data_root=tmp_path, store=tmp_path / "store")
    assert tokens.train.ids.dtype == np.uint32
    assert [decode(tokens.tokenizer, tokens.train.sentence(i)) for i in (0, 15_999)] == [words[0], words[-1]]
    assert len(tokens.source_counts_V) == 65_537


def test_arrays_stay_on_disk_and_nothing_can_be_reassigned(tokens):
    assert isinstance(tokens.train.ids.base, np.memmap)
    assert not tokens.train.ids.flags.writeable
    with pytest.raises(FrozenInstanceError):
        tokens.train.ids = tokens.train.ids


# Identity --------------------------------------------------------------------------------------------


def test_the_address_is_the_text_and_how_it_is_cut(tokens, root, tmp_path):
    assert tokens.address == tokens.folder.name == address(settings(), root)
    assert tokens.report["content_sha256"] == content_address(settings(), root)
    assert len(tokens.address) == 10
    assert int(tokens.address, 16) >= 0
    shutil.copytree(root, tmp_path / "elsewhere")
    assert address(settings(), tmp_path / "elsewhere") == tokens.address
    others = [settings(vocab_size=301), settings(max_length=17), settings(target=None), settings(test=[])]
    assert len({tokens.address, *(address(other, root) for other in others)}) == 5


def test_a_store_is_made_once(tokens, root):
    before = {path: path.stat().st_mtime_ns for path in tokens.folder.iterdir()}
    said = []
    again = prepare(settings(), data_root=root, store=tokens.folder.parent, progress=said.append)
    assert said == []
    assert {path: path.stat().st_mtime_ns for path in again.folder.iterdir()} == before
    assert sorted(path.name for path in again.folder.parent.iterdir()) == [f".{again.address}.lock", again.address]


# Other processes -------------------------------------------------------------------------------------

MAKE = """
import os, signal, sys
from pathlib import Path
from lightning_modules.config import FilesData
from lightning_modules.data.token_store import prepare
settings = FilesData.model_validate_json(sys.argv[1])
def progress(sentence):
    print(sentence, flush=True)
    if sentence.startswith(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
print(prepare(settings, data_root=Path(sys.argv[2]), store=Path(sys.argv[3]), progress=progress).address)
print("torch" in sys.modules)
"""


def maker(root, store, *, die_at="-"):
    command = [sys.executable, "-c", MAKE, settings().model_dump_json(), root, store, die_at]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_at_once_make_one_store(tokens, root, tmp_path):
    processes = [maker(root, tmp_path) for _ in range(2)]
    said = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(text.count("Reading data.train.") for text in said) == [0, 1]
    assert [text[-2:] for text in said] == [[tokens.address, "False"]] * 2
    assert load(tmp_path / tokens.address, check="hashes").report["files"] == tokens.report["files"]


@pytest.mark.parametrize("moment", ["Training", "data.validation: "])
def test_a_killed_maker_leaves_nothing_that_is_taken_for_a_store(tokens, root, tmp_path, moment):
    process = maker(root, tmp_path, die_at=moment)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / tokens.address).exists()
    assert (tmp_path / f".{tokens.address}.partial").exists()
    again = prepare(settings(), data_root=root, store=tmp_path)
    assert again.report["files"] == tokens.report["files"]
    assert not (tmp_path / f".{tokens.address}.partial").exists()


def test_a_full_disk_is_a_sentence_and_leaves_nothing(tokens, root, tmp_path):
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))\n{MAKE}"
    command = [sys.executable, "-c", limited, settings().model_dump_json(), root, tmp_path, "-"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == (
        f"lightning_modules.errors.FilesError: {tmp_path}/{tokens.address} cannot be written: the file is larger "
        f"than the limit; raise the limit (ulimit -f), then start again."
    )
    assert [path.name for path in tmp_path.iterdir()] == [f".{tokens.address}.lock"]


@pytest.mark.parametrize(("call", "code"), [("mkdir", 13), ("open", 28), ("rename", 30)])
def test_a_store_that_may_not_be_written_is_a_sentence(tokens, root, tmp_path, monkeypatch, call, code):
    def refuse(path, *arguments, **named):
        if Path(path).is_relative_to(tmp_path):
            raise OSError(code, os.strerror(code), str(path))
        return original(path, *arguments, **named)

    original = getattr(os, call)
    content_address(settings(), root)  # reads the text while that still works
    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(FilesError, match=rf"^{tmp_path}.* cannot be written: .*; .*, then start again\.$"):
            prepare(settings(), data_root=root, store=tmp_path / "store")
    assert not list(tmp_path.glob(f"store/*{tokens.address}")) + list(tmp_path.glob("store/*.partial"))


def test_text_that_is_unfit_leaves_nothing(root, tmp_path):
    sentence = (
        r"^data\.vocab_size is 60,000, but the sentences of data\.train give only [\d,]+ sub-words; lower it "
        r"to at most [\d,]+, or give more text\.$"
    )
    with pytest.raises(DataError, match=sentence):
        prepare(settings(vocab_size=60_000), data_root=root, store=tmp_path)
    (tmp_path / "bad.jsonl").write_text(json.dumps({"text": "a", "target": "A", "document": 0}) + "\nbroken\n")
    assert error_text(
        DataError,
        lambda: prepare(
            settings(validation=str(tmp_path / "bad.jsonl")), data_root=root, store=tmp_path / "store"
        ),
    ) == (
        f"{tmp_path}/bad.jsonl, line 2: this is not valid JSON (Expecting value); write one object in each line."
    )
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".lock", ".jsonl"}


# Damage ----------------------------------------------------------------------------------------------


@pytest.fixture
def copy(tokens, tmp_path):
    return Path(shutil.copytree(tokens.folder, tmp_path / tokens.address))


def damaged(folder, check="sizes"):
    with pytest.raises(DataError) as caught:
        load(folder, check=check)
    head, tail = (
        f"The token store {folder} is damaged: ",
        "; delete the folder, then `ablate run` writes it again.",
    )
    assert str(caught.value).startswith(head)
    assert str(caught.value).endswith(tail)
    return str(caught.value).removeprefix(head).removesuffix(tail)


def test_every_file_is_missed_and_every_length_checked(copy):
    names = [path.name for path in copy.iterdir()]
    assert len(names) == 21  # 3 x 5 arrays, 2 counts, 2 vocabularies, references, tokens.json
    for name in names:
        data = (copy / name).read_bytes()
        (copy / name).write_bytes(data[:-1])
        if name == "tokens.json":
            assert load(copy).address == copy.name  # without its last line feed it says the same
            (copy / name).write_bytes(data[:-3])
            assert damaged(copy) == "tokens.json is missing or unreadable"
        else:
            assert damaged(copy) == f"{name} is shorter or longer than written"
        (copy / name).unlink()
        assert damaged(copy) == (
            f"{name} is missing" if name != "tokens.json" else "tokens.json is missing or unreadable"
        )
        (copy / name).write_bytes(data)
    load(copy, check="hashes")


def test_a_flipped_bit_anywhere_is_found(copy):
    rng = np.random.default_rng(0)
    for path in sorted(copy.iterdir()):
        data = bytearray(path.read_bytes())
        for place in rng.choice(len(data) - 1, 8, replace=False):
            data[place] ^= 4
            path.write_bytes(data)
            damaged(copy, "hashes")
            data[place] ^= 4
        path.write_bytes(data)
    load(copy, check="hashes")


def test_a_header_that_lies_is_found_without_hashes(copy):
    path = copy / "train.ids.npy"
    data = path.read_bytes()
    for old, new in ((b"'<u2'", b"'<i2'"), (b"(", b"[")):
        path.write_bytes(data.replace(old, new, 1))
        assert damaged(copy) in ("train.ids.npy has changed since it was written", "train.ids.npy is not an array")


@pytest.mark.parametrize("name", ["tokens.json", "train.ids.npy"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(copy, name):
    (copy / name).chmod(0)
    with permissions_hold():
        assert error_text(DataError, load, copy) == (
            f"{copy / name} cannot be read: permission is denied; change the permissions or choose another "
            "folder, then start again."
        )


@pytest.mark.parametrize(
    ("number", "kind", "reason"),
    [
        (errno.EMFILE, DataError, "this program has too many open files; raise the limit (ulimit -n)"),
        (
            errno.ENOMEM,
            OutOfMemoryError,
            "there is not enough memory; end other programs, or raise the limit (ulimit -v)",
        ),
    ],
)
def test_a_shortage_is_not_called_damage(copy, monkeypatch, number, kind, reason):
    def load_nothing(path, **options):
        raise OSError(number, os.strerror(number))  # as of open or mmap

    monkeypatch.setattr(np, "load", load_nothing)
    assert error_text(kind, load, copy) == f"{copy / 'train.ids.npy'} cannot be read: {reason}, then start again."


def test_a_pickle_is_never_loaded(copy):
    path, manifest = copy / "train.ids.npy", json.loads((copy / "tokens.json").read_text())
    np.save(path, np.array([{}] * 9, dtype=object), allow_pickle=True)
    manifest["files"][path.name]["bytes"] = path.stat().st_size
    del manifest["sha256"]
    # Whoever attacks knows how to sign.
    (copy / "tokens.json").write_text(json.dumps(manifest | {"sha256": _digest(manifest)}))
    assert damaged(copy) == "train.ids.npy is not an array"


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    assert error_text(DataError, load, tmp_path / "no") == (
        f"{tmp_path}/no does not exist, expected a token store; start `ablate run`, which writes it."
    )


def test_a_damaged_store_is_made_again_once_it_is_deleted(root, copy, tokens):
    (copy / "tokens.json").unlink()
    assert error_text(DataError, lambda: prepare(settings(), data_root=root, store=copy.parent)) == (
        f"The token store {copy} is damaged: tokens.json is missing or unreadable; delete the folder, then "
        "`ablate run` writes it again."
    )
    shutil.rmtree(copy)
    assert prepare(settings(), data_root=root, store=copy.parent).report["files"] == tokens.report["files"]


def test_ids_below_the_first_word_are_only_the_ends_and_unknown_bytes(tokens):
    """Counter-check of the counts: every sentence has one START and one END, nothing is padded or masked."""
    counts = np.bincount(tokens.train.ids, minlength=FIRST_WORD_ID)[:FIRST_WORD_ID]
    assert counts.tolist() == [0, 0, 376, 376, 0]
