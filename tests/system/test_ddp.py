"""Two devices give the result of one, end together, and leave nothing behind. CPU processes, gloo."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lightning_modules.training.checkpoint import read_checkpoint
from lightning_modules.training.ranks import free_port
from tests.support.tiny_text import settings

LIMIT = 120  # seconds; a hang is a failure
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def command(directory, devices):
    return [
        sys.executable, "-m", "lightning_modules.training.train", str(directory.path),
        "--devices", str(devices), "--accelerator", "cpu", "--threads", "1",
    ]  # fmt: skip


def train(directory, devices):
    return subprocess.run(
        command(directory, devices), env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT, check=False
    )


def losses(directory):
    lines = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    return [line.get("train/loss", line.get("val/loss")) for line in lines]


DOUBLE = """
import sys
from pathlib import Path
import torch
import torch.distributed as dist
from lightning_modules.training.data_module import RunData
from lightning_modules.data.token_store import load
from lightning_modules.objectives import build
from lightning_modules.training.run_directory import RunDirectory

runs, store, target = map(Path, sys.argv[1:4])
rank, ranks = int(sys.argv[4]), int(sys.argv[5])
torch.set_num_threads(1)
if ranks > 1:
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[6], rank=rank, world_size=ranks)
tokens = load(store)
weights = {}
for path in sorted(runs.iterdir()):
    objective = build(RunDirectory(path).settings(), tokens).double().train()
    model = torch.nn.parallel.DistributedDataParallel(objective) if ranks > 1 else objective
    model.forward = model.forward if ranks > 1 else objective.training_step
    objective.forward = objective.training_step
    data = RunData(objective, tokens)
    class Share:
        global_rank, world_size = rank, ranks
    data.trainer = Share
    optimizer = objective.configure_optimizers()["optimizer"]
    for step in range(5):
        optimizer.zero_grad()
        model(data.batch(step), step)["loss"].backward()
        objective.configure_gradient_clipping(optimizer)
        optimizer.step()
    weights |= {f"{path.name} {name}": tensor for name, tensor in objective.state_dict().items()}
if rank == 0:
    torch.save(weights, target)
"""

LEARNING = [
    ("masked_lm", {}, {}),
    ("masked_lm", {"masking": {"select": "span", "predict": 0.3}}, {"word_order": "corpus"}),
    ("masked_lm", {"pair_loss": "sentence_order"}, {"input_format": "segment_pair"}),
    ("causal_lm", {"sees": "window"}, {"input_format": "full_sentences"}),
    ("translation", {"token_dropout": 0.2}, {}),
    ("mixture", {}, {}),
    ("replaced_token", {}, {}),
    ("permutation_lm", {}, {}),
    ("naive_bidirectional_lm", {}, {}),
    ("skip_gram", {}, {}),
]


def test_two_devices_give_the_weights_of_one_in_float64(make_run, tokens, tmp_path):
    for number, (kind, objective, training) in enumerate(LEARNING):
        run = settings(kind, encoder={"dropout": 0.0}, objective=objective, training=training)
        runs = make_run(run, f"{kind}-s0-{number:010}").path.parent
    (tmp_path / "double.py").write_text(DOUBLE)

    def result(ranks):
        target, port = tmp_path / f"{ranks}.pt", str(free_port())
        arguments = [sys.executable, tmp_path / "double.py", runs, tokens.folder, target]
        processes = [
            subprocess.Popen([*map(str, arguments), str(rank), str(ranks), port], env=ENVIRONMENT)
            for rank in range(ranks)
        ]
        assert [process.wait(LIMIT) for process in processes] == [0] * ranks
        return torch.load(target, weights_only=True)

    one, two = result(1), result(2)
    assert len({name.split()[0] for name in one}) == len(LEARNING)
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-9, rtol=0, msg=name)


def test_a_run_on_two_devices_logs_the_losses_of_one(make_run):
    run = settings(encoder={"dropout": 0.0})
    one, two = make_run(run, "one-s0-0000000000"), make_run(run, "two-s0-0000000000")
    for directory, devices in ((one, 1), (two, 2)):
        done = train(directory, devices)
        assert done.returncode == 0, done.stderr
    assert losses(one) == pytest.approx(losses(two), abs=1e-5)  # float32 sums in another order
    a, b = one.state(), two.state()
    assert (a.tokens_seen, a.tokens_predicted) == (b.tokens_seen, b.tokens_predicted)
    assert two.provenance()["devices"] == 2


def ranks_of(process):
    """Process ids of the children, by rank."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status, environment = (path / "stat").read_text(), (path / "environ").read_bytes()
        except OSError:
            continue
        if int(status.rsplit(")", 1)[1].split()[1]) == process.pid:
            ranks = [part for part in environment.split(b"\0") if part.startswith(b"LOCAL_RANK=")]
            if ranks:
                found[int(ranks[0].split(b"=")[1])] = int(path.name)
    return found


def wait_for(condition):
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def started(directory):
    """A run on two devices that has logged its second step."""
    process = subprocess.Popen(command(directory, 2), env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    wait_for(lambda: directory.metrics.exists() and len(directory.metrics.read_text().splitlines()) >= 2)
    return process


LONG = {"max_steps": 100_000, "validate_every": 100_000}


@pytest.mark.parametrize("who", ["launcher", "rank 1"])
def test_sigterm_to_one_or_all_saves_within_a_step_and_resumes(who, make_run):
    directory = make_run(settings(training=LONG))
    process = started(directory)
    target = process.pid if who == "launcher" else ranks_of(process)[1]
    os.kill(target, signal.SIGTERM)
    assert process.wait(LIMIT) == 75
    assert directory.state().state == "interrupted"
    saved = read_checkpoint(directory.last_checkpoint)["global_step"]
    logged = max(json.loads(line)["step"] for line in directory.metrics.read_text().splitlines())
    assert 0 <= saved - logged < 1000  # the log has a line every fifty steps
    assert saved > 0


@pytest.mark.parametrize("who", ["launcher", "rank 0"])
def test_a_killed_process_takes_the_others_with_it(who, make_run):
    directory = make_run(settings(training=LONG))
    process = started(directory)
    ranks = ranks_of(process)
    assert sorted(ranks) == [0, 1]
    os.kill(process.pid if who == "launcher" else ranks[0], signal.SIGKILL)
    code = process.wait(LIMIT)
    assert code != 0
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ranks.values()))
    assert not directory.is_locked()
    assert directory.state().state in ("interrupted", "failed")
