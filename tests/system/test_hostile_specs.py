"""Spec files that are made to execute code, to fill the memory or to break their reader: sentences, soon."""

import copy
import json
import re
import resource
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ablations.errors import SpecError
from ablations.spec import load
from tests.support.forked_worker import FORK_SERVER
from tests.support.hostile import GADGETS, PAYLOADS, watched

SPEC = {
    "name": "it",
    "version": 1,
    "question": "What?",
    "data": {"kind": "language", "train": 400, "vocab_size": 320, "max_length": 64},
    "encoder": {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "dropout": 0.1},
    "training": {"max_steps": 4, "tokens_per_step": 128, "learning_rate": 1e-3, "keep_checkpoints": 3},
    "arms": {"mlm": {"objective": {"kind": "masked_lm", "masking": {"ratio": 0.15}}}},
    "grid": {"base": "mlm", "axes": {"objective.masking.ratio": [0.2, 0.4]}},
    "seeds": [0, 1],
    "measures": ["validation", {"kind": "layer_change"}],
}
VALUES = (
    *(None, True, -1, 0, 2**63, 10**30, -(10**30), 1e308, "", " ", "x" * 5000, [], {}, [[]], [None], [{}]),
    *(
        {"kind": "masked_lm", "__class__": "os.system"},
        {"_target_": "os.system", "_args_": ["touch x"]},
        [0] * 50,
    ),
    *({f"k{n}": n for n in range(30)}, "__import__('os').system('touch x')", "${oc.env:HOME}", PAYLOADS[0]),
)
SECONDS, BYTES = 3.0, 200_000_000  # a second on a quiet core


def places(value, path=()):
    """Yield the path of every value of a nested spec but the whole."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def changed(path, value):
    spec = copy.deepcopy(SPEC)
    inner = spec
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(spec)


BASE = json.dumps(SPEC)[:-1]
BOMBS = {
    "laughs": "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)),
    "merges": "a: &a {x: 1}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(2000)),
    "an alias of itself": "a: &a [*a]\n",
    "lists in lists": "a: " + "[" * 120_000,
    "mappings in mappings": "a: " + "{a: " * 40_000,
    "blocks in blocks": "".join(" " * n + f"a{n}:\n" for n in range(500)),
    "keys that are lists": "? " * 60_000 + "a",
    "a number of many digits": "version: " + "9" * 200_000,
    "a number in base 16": "version: 0x" + "f" * 200_000,
    "a number in base 60": "version: " + "1:" * 90_000 + "1",
    "many keys": "".join(f"k{n}: {n}\n" for n in range(20_000)),
    "the same key often": "name: x\n" * 25_000,
    "many documents": "---\na: 1\n" * 20_000,
    "a long line": "question: " + "x" * 250_000,
    "a file that is too large": "#" * 300_000,
    "a quote without an end": 'question: "' + "x" * 200_000,
    "escapes": 'question: "' + "\\x41" * 60_000 + '"',
    "controls": "question: \x00\x01\x02",
    "half characters": "question: \ud800".encode("utf-8", "surrogatepass"),
    "another encoding": "name: x".encode("utf-32"),
    "bytes": bytes(range(256)) * 50,
    "nothing": "",
    "a list": "[1, 2]",
    "a directive": "%YAML 1.1\n%TAG ! tag:yaml.org,2002:python/\n---\na: !object/apply:os.system [x]",
    "an arm for each atom": BASE[: BASE.index('"grid"')]
    + '"grid": {"base": "mlm", "axes": {'
    + ", ".join(f'"{key}": {[*range(1, 30)]}' for key in ("training.max_steps", "training.warmup_steps",
                "encoder.num_hidden_layers", "training.keep_checkpoints", "training.validate_every",
                "training.accumulate", "data.max_length", "data.vocab_size", "data.train"))
    + '}}, "seeds": [0], "measures": ["validation"]}',
    "a seed for each atom": BASE.replace("[0, 1]", "{first: 3, up_to: 1000000000000, until: decided}") + "}",
    "many seeds": BASE.replace("[0, 1]", str([*range(30_000)])) + "}",
    "many arms": BASE.replace('"grid"', '"more"').replace(
        '"arms": {', '"arms": {' + "".join(f'"a{n}": {{}}, ' for n in range(3000))
    ) + "}",
}  # fmt: skip
TAGS = (
    *("python/object/apply", "python/object/new", "python/object", "python/name", "python/module", "python/tuple"),
    *("python/bytes", "binary", "set", "omap", "timestamp", "ruby/object:Gem", "java.net.URL", "js/function"),
)


def corpus():
    """Yield all spec files: every second value at each place, gadgets behind tags, and what is made to grow."""
    for number, path in enumerate(places(SPEC)):
        yield from (changed(path, value) for value in VALUES[number % 2 :: 2])
    for number, gadget in enumerate(GADGETS):
        tag = TAGS[number % len(TAGS)]
        yield f"name: it\nquestion: !!{tag}{':' * tag.startswith('python')}{gadget} [touch x]\n"
        yield f"name: !<tag:yaml.org,2002:{tag}:{gadget}> touch x\n"
    yield from BOMBS.values()


def test_the_spec_that_is_changed_is_good(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(SPEC))
    assert load.load(path).name == "it"


@pytest.mark.usefixtures("small_heap")
def test_hostile_specs_are_sentences_and_nothing_is_executed(tmp_path):
    path = tmp_path / "spec.yaml"
    cases = list(corpus())
    assert len(cases) > 500
    for case in cases:
        path.write_bytes(case if isinstance(case, bytes) else case.encode("utf-8", "surrogatepass"))
        begin = time.process_time()
        with watched() as seen:
            try:
                load.load(path)
            except SpecError as error:
                for problem in error.problems:
                    line = str(problem)
                    assert re.match(re.escape(str(path)) + r":\d+:\d+: ", line), case[:300]
                    assert "\n" not in line, case[:300]
                    assert len(line) < 3000, case[:300]
        assert seen == [], case[:300]
        assert time.process_time() - begin < SECONDS, case[:300]
    assert [file.name for file in tmp_path.iterdir()] == ["spec.yaml"]


@contextmanager
def little_memory():
    """Let the process take little more memory than it has, which the system sees to."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        yield
    except MemoryError:
        sys.exit(1)


def _allocate(size):
    with little_memory():
        bytearray(size)


def _load(paths):
    for path in paths:
        with little_memory(), suppress(SpecError):
            load.load(path)
        path.unlink()


def exit_code(act, argument):
    process = FORK_SERVER.Process(target=act, args=(argument,), daemon=True)
    process.start()
    process.join()
    return process.exitcode


def test_more_memory_than_a_spec_may_take_is_noticed():
    assert [exit_code(_allocate, size) for size in (BYTES // 2, BYTES * 3 // 2)] == [0, 1]


def test_no_bomb_takes_much_memory(tmp_path):
    for name, case in BOMBS.items():
        path = tmp_path / name.replace(" ", "-")
        path.write_bytes(case if isinstance(case, bytes) else case.encode("utf-8", "surrogatepass"))
    code = exit_code(_load, sorted(tmp_path.iterdir()))
    assert ([path.name for path in tmp_path.iterdir()], code) == ([], 0)  # the first that is left took too much
