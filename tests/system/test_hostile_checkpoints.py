"""Checkpoints that are made to execute code, fill the memory or break their reader: each is one sentence."""

import os
import pickle
import struct
import time
import zipfile

import pytest

from lightning_modules.errors import CheckpointError
from lightning_modules.training.checkpoint import read_checkpoint
from tests.support.hostile import GADGETS, archive, pickles, watched

PROTOCOL = b"\x80\x02"


def tensor(numel, size, stride, *, offset=0, kind="FloatStorage", key="0", location="cpu"):
    """The pickle of a checkpoint with one tensor over a storage that says how many numbers it holds."""

    def integer(value):
        return pickle.LONG1 + b"\x09" + value.to_bytes(9, "little", signed=True)

    def text(value):
        return pickle.BINUNICODE + struct.pack("<I", len(value)) + value.encode()

    def integers(values):
        return pickle.MARK + b"".join(map(integer, values)) + pickle.TUPLE

    storage = pickle.MARK + text("storage") + f"ctorch\n{kind}\n".encode()
    storage += text(key) + text(location) + integer(numel) + pickle.TUPLE + pickle.BINPERSID
    parts = pickle.MARK + storage + integer(offset) + integers(size) + integers(stride)
    parts += pickle.NEWFALSE + b"ccollections\nOrderedDict\n)R" + pickle.TUPLE
    made = b"ctorch._utils\n_rebuild_tensor_v2\n" + parts + pickle.REDUCE
    content = text("state_dict") + pickle.EMPTY_DICT + text("weight") + made + pickle.SETITEM + pickle.SETITEM
    return PROTOCOL + pickle.EMPTY_DICT + content + text("global_step") + integer(1) + pickle.SETITEM + pickle.STOP


FOUR = ("data/0", struct.pack("<4f", 1, 2, 3, 4))
HUGE = 2**62
TENSORS = {
    "more numbers than bytes": tensor(HUGE, [4], [1]),
    "larger than its storage": tensor(4, [HUGE], [1]),
    "a product that overflows": tensor(4, [2**40, 2**40], [2**40, 1]),
    "a negative size": tensor(4, [-4], [1]),
    "a negative stride": tensor(4, [4], [-1]),
    "an offset behind the end": tensor(4, [4], [1], offset=HUGE),
    "a negative offset": tensor(4, [4], [1], offset=-8),
    "no such storage": tensor(4, [4], [1], key="../../../etc/passwd"),
    "a storage of another kind": tensor(4, [4], [1], kind="QuantumStorage"),
    "more sizes than strides": tensor(4, [2, 2], [1]),
}
BROKEN = {
    "nothing": b"",
    "a letter": b"x",
    "text": b"this is no checkpoint\n" * 40,
    "a zip without parts": archive(b"")[-22:],
    "an empty pickle": archive(b""),
    "an unknown opcode": archive(PROTOCOL + b"\xff."),
    "an unknown protocol": archive(b"\x80\x7f."),
    "a pickle without an end": archive(PROTOCOL + b"]" * 100),
    "a stack that is empty": archive(PROTOCOL + b"0" * 5 + b"."),
    "a place in the memo that is not there": archive(PROTOCOL + b"h\x09."),
    "a string of 4 GB": archive(PROTOCOL + b"X\xff\xff\xff\xffa."),
    "a string of 2^63 bytes": archive(b"\x80\x04\x8d" + b"\xff" * 8 + b"a."),
    "a number of 2 GB": archive(PROTOCOL + b"\x8b\xff\xff\xff\x7f1."),
    "a number of no digits": archive(PROTOCOL + b"Ix\n."),
    "a frame of 2^63 bytes": archive(b"\x80\x04\x95" + b"\xff" * 8 + b"."),
    "lists 100,000 deep": archive(PROTOCOL + b"]" * 100_000 + b"a" * 99_999 + b"."),
    "tuples 100,000 deep": archive(PROTOCOL + b")" + b"\x85" * 100_000 + b"."),
    "an extension": archive(PROTOCOL + b"\x82\x01."),
    "a persistent id that is text": archive(PROTOCOL + b"X\x01\x00\x00\x00aQ."),
    "a list for a checkpoint": archive(PROTOCOL + b"]."),
    "a number for a checkpoint": archive(PROTOCOL + b"K\x01."),
    "a bomb of zeros": archive(pickle.dumps({}), ("data/0", bytes(20_000_000)), compression=zipfile.ZIP_DEFLATED),
    "a bomb in bzip2": archive(pickle.dumps({}), ("data/0", bytes(20_000_000)), compression=zipfile.ZIP_BZIP2),
    "half of itself": archive(pickle.dumps({}))[:150],
    "a part twice": archive(tensor(4, [4], [1]), FOUR, ("data.pkl", pickle.dumps(print))),
    "a part that leads out": archive(PROTOCOL + b"N.", ("../../../escaped", b"x")),
    "a version of the future": archive(PROTOCOL + b"N.", ("version", b"9" * 400)),
    "a script beside it": archive(PROTOCOL + b"N.", ("code/__torch__.py", b"import os; os.system('touch x')")),
}


def corpus(canary):
    """Yield all files by name: each way of calling each gadget, as a checkpoint or a bare pickle, and the rest."""
    for number, name in enumerate(GADGETS):
        for form, content in pickles(name, f"touch {canary}"):
            bare = number % 3 == 2
            yield f"{name}, {form}{', bare' * bare}", content if bare else archive(content)
    yield from BROKEN.items()
    for name, content in TENSORS.items():
        yield f"tensor: {name}", archive(content, FOUR)


def test_a_tensor_that_is_as_it_says_is_read(tmp_path):
    """The counter-example: the corpus is refused for what is wrong with it, and not for its form."""
    path = tmp_path / "last.ckpt"
    path.write_bytes(archive(tensor(4, [4], [1], location="; touch x"), FOUR))  # devices are the reader's choice
    assert read_checkpoint(path)["state_dict"]["weight"].tolist() == [1, 2, 3, 4]


def test_the_watch_sees_what_it_is_for(tmp_path):
    with watched() as seen:
        pickle.loads(next(iter(pickles("os.system", "true")))[1])
        (tmp_path / "written").write_text("x")
    assert {event.split()[0] for event in seen} >= {"os.system", "open", "pickle.find_class"}


@pytest.mark.usefixtures("small_heap")
def test_no_hostile_checkpoint_is_executed_and_each_is_one_sentence(tmp_path):
    canary, folder = tmp_path / "canary", tmp_path / "run"
    folder.mkdir()
    path = folder / "last.ckpt"
    cases = dict(corpus(canary))
    assert len(cases) > 500
    for name, content in cases.items():
        path.write_bytes(content)
        begin = time.process_time()
        with watched() as seen, pytest.raises(CheckpointError) as error:
            read_checkpoint(path)
        sentence = str(error.value)
        assert sentence.startswith((f"{path}: ", f"{path} ")), name
        assert sentence.endswith("."), name
        assert "\n" not in sentence, name
        assert seen == [], name
        assert time.process_time() - begin < 1, name
    assert os.listdir(tmp_path) == ["run"]
    assert os.listdir(folder) == ["last.ckpt"]
