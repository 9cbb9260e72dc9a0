"""Data sets of the hub and local folders of them, offline."""

import json
import os
import socket
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lightning_modules.config import HubData
from lightning_modules.data.corpus import Row, check, content_address, open_corpus, problems
from lightning_modules.errors import DataError
from tests.support.errors import error_text

ROWS = [
    {"text": "One.", "pair": {"en": "A", "de": "B"}, "document": 7, "n": 1},
    {"text": " ", "pair": {"en": "", "de": ""}, "document": 7, "n": 2},
    {"text": "Two  two.", "pair": {"en": "C", "de": "D"}, "document": 8, "n": 3},
]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("asked the network"))


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "data set"
    folder.mkdir()
    train = [row | {"document": row["document"] + 2 * i} for i in range(701) for row in ROWS]
    pq.write_table(pa.Table.from_pylist(train[:-3]), folder / "train-00000-of-00002.parquet")
    pq.write_table(pa.Table.from_pylist(train[-3:]), folder / "train-00001-of-00002.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "validation.parquet")
    return folder


def hub(**settings):
    return HubData(kind="hub", **{"path": "data set"} | settings)


def rows_of(settings, root, split="validation"):
    rows = open_corpus(settings, data_root=root).rows(split)
    return list(rows), rows.skipped


def sentence_of(settings, root, split="validation"):
    return error_text(DataError, rows_of, settings, root, split)


def test_a_local_folder_is_read_without_network_and_without_leaving_a_copy(folder, monkeypatch):
    before = sorted(folder.parent.rglob("*"))
    settings = hub(target="pair.de", document="document")
    assert rows_of(settings, folder.parent) == ([Row("One.", "B", 0), Row("Two two.", "D", 1)], 1)
    found, skipped = rows_of(settings, folder.parent, "train")
    assert (len(found), skipped) == (2 * 701, 701)  # both files, over several batches
    assert found[-1] == Row("Two two.", "D", 1401)
    assert sorted(folder.parent.rglob("*")) == before
    assert open_corpus(settings, data_root=folder.parent).splits == ("train", "validation")


def test_other_formats_and_parts_of_splits(tmp_path):
    (tmp_path / "set").mkdir()
    for split in ("train", "test"):
        (tmp_path / "set" / f"{split}.jsonl").write_text(
            "".join(json.dumps({"text": f"{split} {i}"}) + "\n" for i in range(10))
        )
    settings = hub(path="set", train="train[:80%]", validation="train[80%:]", test="test")
    check(settings, tmp_path)
    assert [row.text for row in rows_of(settings, tmp_path)[0]] == ["train 8", "train 9"]
    assert len(rows_of(settings, tmp_path, "train")[0]) == 8
    assert len(rows_of(settings, tmp_path, "test")[0]) == 10


def test_what_is_missing_is_a_sentence(folder):
    root = folder.parent
    assert sentence_of(hub(train="training"), root) == (
        f"{folder} has no split 'training' (data.train), only 'train', 'validation'; name one of these."
    )
    assert sentence_of(hub(text="txt"), root) == (
        "data set, split 'validation' has no column 'txt' (data.text), only 'text', 'pair', "
        "'document', 'n'; did you mean 'text'?"
    )
    assert sentence_of(hub(text="pair.fr"), root) == (
        "data set, split 'validation', row 1 has no column 'pair.fr' (data.text), only 'pair.en', "
        "'pair.de'; did you mean 'pair.en'?"
    )
    assert sentence_of(hub(text="n"), root) == (
        "data set, split 'validation', row 1: column 'n' has 1 (int), expected text; correct or remove the row."
    )
    assert sentence_of(hub(name="french"), root) == (
        "The data set 'data set' cannot be read: BuilderConfig 'french' not found. Available: ['default']; "
        "check data.path, name, revision and splits."
    )
    (root / "empty").mkdir()
    assert sentence_of(hub(path="empty"), root) == (
        f"The data set 'empty' cannot be read: The directory at {root}/empty doesn't contain any data files; "
        f"check data.path, name, revision and splits."
    )


def test_a_damaged_file_in_a_folder_is_a_sentence(folder):
    path = folder / "validation.parquet"
    path.write_bytes(path.read_bytes()[:300])
    told = sentence_of(hub(), folder.parent)
    assert told.startswith("The data set 'data set' cannot be read: ")
    assert told.endswith("; check data.path, name, revision and splits.")


def test_a_remote_data_set_needs_a_commit(tmp_path):
    (tmp_path / "file").write_text("")
    moves = (
        f"but 'a/b' is not a folder under {tmp_path}, and a text on the hub may change after a run; "
        f"give the commit, 40 hexadecimal digits."
    )
    for settings, sentence in (
        (hub(path="a/b"), f"data.revision is missing, {moves}"),
        (hub(path="a/b", revision="main"), f"data.revision is 'main', {moves}"),
        (
            hub(path="./a"),
            f"{tmp_path}/a does not exist (data.path; relative paths start at --data-root); correct the path.",
        ),
        (
            hub(path="file"),
            f"{tmp_path}/file is a file, but data.path of kind hub must be a folder or a name on the hub; write "
            "kind: files for a file.",
        ),
    ):
        assert problems(settings, tmp_path) == [("path", sentence)]
    assert problems(hub(path="a/b", revision="0" * 40), tmp_path) == []


def test_without_a_network_a_remote_data_set_is_a_sentence(tmp_path):
    code = (
        "from pathlib import Path; from lightning_modules.config import HubData\n"
        "from lightning_modules.data.corpus import open_corpus\n"
        "settings = HubData(kind='hub', path='nobody/nothing', revision='0' * 40)\n"
        "next(iter(open_corpus(settings, data_root=Path()).rows('train')))"
    )
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert ended.stderr.splitlines()[-1] == (
        "lightning_modules.errors.DataError: The data set 'nobody/nothing' cannot be downloaded from the hub: "
        "no connection; give the command once with a network (later it is read from Hugging Face's cache), or "
        "use local files."
    )


def test_the_address_of_a_folder_is_what_is_in_it(folder):
    root = folder.parent
    base = content_address(hub(), root)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x").write_text("hidden")
    renamed = folder.rename(root / "renamed")
    assert content_address(hub(path="renamed", vocab_size=500), root) == base
    assert content_address(hub(path=str(renamed)), root) == base
    assert content_address(hub(path="renamed", validation="train"), root) != base
    (renamed / "validation.parquet").rename(renamed / "test.parquet")
    assert content_address(hub(path="renamed", validation="train", test="test"), root) != base
    assert error_text(DataError, lambda: content_address(hub(path="renamed"), root)) == (
        f"{renamed} has no split 'validation' (data.validation), only 'train', 'test'; name one of these."
    )


def test_looking_at_a_folder_does_not_load_torch(folder):
    code = (
        "import sys; from pathlib import Path; from lightning_modules.config import HubData\n"
        "from lightning_modules.data.corpus import content_address\n"
        "content_address(HubData(kind='hub', path=sys.argv[1]), Path()); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True)
