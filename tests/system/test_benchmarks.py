"""How two sides are timed against each other."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ablations.runs.places import slurm_queue
from ablations.runs.places.place import Partition
from ablations.spec.experiment import Experiment
from ablations.spec.grid import runs
from benchmarks import (
    cluster_faults,
    commands,
    equal_time,
    gpu,
    parts,
    peers,
    pretended_slurm,
    scale,
    timing,
    training,
)
from benchmarks.__main__ import main, readable, table
from benchmarks.text import LENGTH, VOCABULARY, blocks, passages
from benchmarks.timing import Rates, Side, alternate
from lightning_modules.config import FilesData, operations_per_token
from lightning_modules.data.token_store import Split, prepare
from lightning_modules.errors import DataError
from lightning_modules.model.heads import summed_cross_entropy
from lightning_modules.objectives.masked_lm import MaskedLM
from tests.support.errors import error_text
from tests.support.tiny_text import settings, write_pairs


@pytest.fixture
def clock(monkeypatch):
    """A clock that only steps move."""

    class Clock:
        now = 0.0

    monkeypatch.setattr(timing.time, "perf_counter", lambda: Clock.now)
    return Clock


def test_sides_take_turns_in_whole_steps_after_a_warm_up_that_does_not_count(clock):
    order = []

    def side(name, seconds, units):
        def step():
            order.append(name)
            clock.now += 100.0 if order.count(name) <= 2 else seconds  # the warm-up is slow
            return units

        return Side(name, step)

    rates = alternate(side("ours", 0.5, 10.0), side("theirs", 2.0, 10.0), rounds=2, seconds=1.2, warm_up=2)
    turns = ["ours"] * 3 + ["theirs"] + ["theirs"] + ["ours"] * 3  # either side goes first in turn
    assert order == ["ours"] * 2 + ["theirs"] * 2 + turns
    assert rates.ours == pytest.approx([20, 20])
    assert rates.theirs == pytest.approx([5, 5])


def test_the_ratio_is_the_median_over_the_turns_and_not_of_the_medians():
    found = Rates(ours=[10.0, 40.0, 30.0], theirs=[10.0, 20.0, 10.0], settings=("a", "b")).summary()
    assert (found["ratio"], found["low"], found["high"], found["rounds"]) == (2, 1, 3, 3)
    assert (found["ours"], found["theirs"]) == (30, 10)
    assert (found["our_settings"], found["their_settings"]) == ("a", "b")


def test_the_peak_of_a_process_is_not_that_of_the_one_that_started_it():
    import_and_tell = "from benchmarks.memory import peak, resident; x = bytearray(50_000_000); x = None; "
    import_and_tell += "print(peak(), resident())"
    ballast = np.ones(100_000_000)
    told = subprocess.run([sys.executable, "-c", import_and_tell], check=True, capture_output=True, text=True)
    highest, now = map(int, told.stdout.split())
    assert now + 40e6 < highest < now + 400e6 < now + ballast.nbytes


def test_the_floor_is_that_of_the_products_and_of_the_update(monkeypatch):
    monkeypatch.setattr(timing, "matrix_rate", lambda device, dtype: 1e9)
    monkeypatch.setattr(timing, "copy_rate", lambda device: 1e6)
    run = settings()
    told = timing.floor(run)
    weights = sum(weight.numel() for weight in MaskedLM(run, vocab_size=run.data.vocab_size).parameters())
    assert told["bytes"] == 28 * weights
    assert told["operations"] == operations_per_token(run) * run.training.tokens_per_step
    assert told["seconds"] == pytest.approx(told["operations"] / 1e9 + told["bytes"] / 1e6)


def test_the_parts_of_a_step_have_the_floors_of_their_operations(monkeypatch):
    monkeypatch.setattr(parts, "matrix_rate", lambda device, dtype: 1e6)
    monkeypatch.setattr(parts, "copy_rate", lambda device: 1e6)
    states_ND, weights_DE, bias_E = torch.ones(8, 16), torch.ones(16, 4), torch.ones(4)

    def step():
        product_NE = torch.addmm(bias_E, states_ND, weights_DE)
        torch.nn.functional.gelu(product_NE)
        product_NE.mul_(2)
        torch.mm(states_ND, weights_DE, out=product_NE)
        return states_ND.cumsum(0)  # of no part that is named

    told = {row["part"]: row for row in parts.measured(Side("", step))}
    products = told["linear maps and vocabulary: products"]
    assert products["products"] == pytest.approx(2 * (2 * 8 * 16 * 4) / 1e6)
    read, written = 4 * (8 * 16 + 16 * 4), 4 * 8 * 4
    assert products["memory"] == pytest.approx((2 * read + 4 * 4 + 2 * written) / 1e6)
    assert told["GELU"]["memory"] == pytest.approx(2 * written / 1e6)
    scaled = told["products of numbers: dropout, attention weights, scales"]
    assert (scaled["calls"], scaled["memory"]) == (1, pytest.approx(2 * written / 1e6))
    assert told[parts.OTHER]["calls"] >= 1
    assert told[parts.OTHER]["memory"] == 0
    assert told["sum"]["calls"] == sum(row["calls"] for row in told.values() if "calls" in row) / 2
    assert all(row["alone"] > 0 for row in told.values() if "alone" in row)
    assert states_ND.equal(torch.ones(8, 16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_parts_of_a_step_have_all_products_of_the_vocabulary(monkeypatch, dtype):
    """The gradient of the embeddings is added in place in fp32, and multiplied before it is added in bf16."""
    monkeypatch.setattr(parts, "matrix_rate", lambda device, dtype: 1.0)
    N, D, V = 8, 16, 32
    hidden_ND, embeddings_VD = (torch.ones(n, D, dtype=dtype, requires_grad=True) for n in (N, V))
    label_N = torch.zeros(N, dtype=torch.long)

    def step():
        summed_cross_entropy(hidden_ND, embeddings_VD, None, label_N).backward()
        return 1.0

    told = {row["part"]: row for row in parts.measured(Side("", step))}
    of_logits_and_their_gradients = 3 * 2 * N * D * V
    sums_of_the_bias = 2 * N * V
    products = told["linear maps and vocabulary: products"]["products"]
    assert products == of_logits_and_their_gradients + sums_of_the_bias


def test_parts_of_no_step_are_refused():
    told = CliRunner().invoke(parts.main, ["--data-root", ".", "--only", "8x8"])
    assert (told.exit_code, told.output) == (
        1,
        "Error: --only: no step has '8x8' in its name, only masked_lm packed 6x256, masked_lm packed 4x128, "
        "masked_lm sentences 6x256, causal_lm packed 6x256, translation sentences 6x256.\n",
    )


def test_the_table_says_which_share_of_a_step_is_its_floor():
    row = {"what": "it", "unit": "tokens/s", "ours": 100.0, "theirs": 50.0, "ratio": 2.0, "target": 1.5}
    step = {"our_step_seconds": 0.4, "floor": {"seconds": 0.1}}
    cells = [list(column.cells) for column in table([row | step, row]).columns]
    assert [column.header for column in table([]).columns][-1] == "floor"
    assert cells[-1] == ["25%", ""]


def test_numbers_of_the_table_are_readable():
    numbers = [(17920.4, "17,920"), (0.0532, "0.0532"), (1.96, "1.96"), (99.96, "100"), (1_411_000.0, "1,411,000")]
    assert [readable(value) for value, _ in numbers] == [text for _, text in numbers]


def test_the_peers_are_told_to_drop_out_what_is_said():
    shape = {"layers": 1, "width": 64, "dropout": 0.1}
    assert peers.bert(**shape).config.attention_probs_dropout_prob == 0.1
    without = peers.bert(**shape, attention_dropout=0.0)
    assert (without.config.attention_probs_dropout_prob, without.config.hidden_dropout_prob) == (0, 0.1)


def test_blocks_are_the_same_ids_in_full_rows():
    ids = np.arange(3 * LENGTH + 5, dtype=np.uint16)
    cut = blocks(Split(ids, np.array([0, 7, len(ids)]), np.zeros(2, np.int32)))
    assert cut.lengths.tolist() == [LENGTH] * 3
    assert np.array_equal(cut.ids, ids[: 3 * LENGTH])
    assert cut.sentence(1)[0] == LENGTH


def test_passages_are_neighbours_of_a_document_that_fit_together():
    lengths, documents = [3, 4, 5, 6, 2, 9, 4], [0, 0, 0, 0, 1, 1, 1]
    ids = np.arange(sum(lengths), dtype=np.uint16)
    cut = passages(Split(ids, np.cumsum([0, *lengths]), np.array(documents, np.int32)), 12)
    assert cut.lengths.tolist() == [12, 6, 11, 4]
    assert cut.documents.tolist() == [0, 0, 1, 1]
    assert np.array_equal(np.concatenate([cut.sentence(i) for i in range(4)]), ids)


def test_a_side_is_waited_for_before_the_clock_is_read(clock):
    """As on a GPU, where a step has only begun when it returns."""
    begun = []

    def wait():
        clock.now += 0.5 * len(begun)
        begun.clear()

    def step():
        clock.now += 0.1
        begun.append(1)
        return 10.0

    assert timing.rate(Side("a", step, wait), seconds=0.99) == pytest.approx(100 / 6)


def test_a_side_is_waited_for_after_its_warm_up_and_after_each_turn(clock):
    done = []

    def step():
        clock.now += 1.0
        done.append("step")
        return 1.0

    alternate(
        Side("ours", step, lambda: done.append("wait")), Side("theirs", step), rounds=2, seconds=1, warm_up=3
    )
    assert [done[: i + 1].count("step") for i, what in enumerate(done) if what == "wait"] == [3, 7, 10]


@pytest.fixture(scope="module")
def little_text(tmp_path_factory):
    """The tiny text, with the vocabulary of the benchmarks."""
    root = tmp_path_factory.mktemp("little")
    for split, count in (("train", 5000), ("validation", 40)):
        write_pairs(root / f"{split}.tsv", count, seed=count)
    data = {"kind": "files", "train": "train.tsv", "validation": "validation.tsv"}
    data |= {"vocab_size": VOCABULARY, "max_length": LENGTH}
    return prepare(FilesData.model_validate(data), data_root=root, store=root / "tokens")


@pytest.mark.filterwarnings("ignore")  # torch's own, where torch.compile is first used
def test_the_rows_of_a_gpu_count_real_tokens_and_useful_operations(little_text, monkeypatch):
    """On a CPU, and as written: compiling both sides takes a minute."""
    monkeypatch.setattr(gpu, "WARM_UP", 1)
    monkeypatch.setattr(timing, "COPIED", 2**10)  # a floor of any height will do
    shape = gpu.Shape(1, 64, LENGTH, 512, 0.5)
    with torch.compiler.set_stance("force_eager"):
        rates, share = gpu.of_shape(shape, little_text, rounds=1, seconds=0.01, device="cpu")
    assert (rates["target"], share["target"]) == (2, 0.5)
    assert "torch.compile" in rates["our_settings"]
    assert "torch.compile" in rates["their_settings"]
    assert rates["ratio"] == pytest.approx(rates["ours"] / rates["theirs"])
    assert share["ratio"] == pytest.approx(share["ours"] / share["theirs"])
    a_token = rates["floor"]["operations"] / shape.tokens_per_step
    assert share["ours"] * 1e12 == pytest.approx(a_token * rates["ours"])


def test_batches_of_a_peer_have_the_rows_and_the_length_that_are_asked_for(little_text):
    batch, real = next(
        peers.masked_batches(little_text.train, little_text.tokenizer, grouped=True, rows=24, multiple=8)
    )
    assert batch["input_ids"].shape[0] == 24
    assert batch["input_ids"].shape[1] % 8 == 0
    assert int(batch["attention_mask"].sum()) == real


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize(("sentences", "used"), [(10, 8), (20, 20), (1100, 1000)])
def test_an_epoch_of_a_peer_has_each_sentence_at_most_once(grouped, sentences, used):
    """Also in a text of fewer sentences than the 50 batches of 4 that are sorted by length together."""
    batches = peers._orders(np.arange(sentences), grouped=grouped, rows=4)
    epochs = [np.concatenate([next(batches) for _ in range(used // 4)]) for _ in range(2)]
    assert all(len(set(epoch.tolist())) == used for epoch in epochs)
    assert not np.array_equal(*epochs)


def test_a_text_that_fills_no_batch_of_a_peer_is_refused():
    assert (
        error_text(DataError, lambda: next(peers._orders(np.ones(63), grouped=True)))
        == "a batch of the peer has 64 rows, but the text only 63; give more text."
    )


def test_both_sides_of_corruption_hide_tokens_of_the_same_blocks(monkeypatch, little_text):
    def one_step(*sides, rounds, seconds):
        return Rates(*([side.step()] for side in sides), settings=tuple(side.settings for side in sides))

    monkeypatch.setattr(training, "alternate", one_step)
    row = training.corruption(little_text, rounds=1)
    assert (row["ours"], row["theirs"]) == (1, 1)


def test_a_run_under_lightning_is_timed_against_the_bare_loop(little_text, tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "RUN", commands.RUN | {"layers": 1, "width": 64, "tokens_per_step": 256})
    monkeypatch.setattr(commands, "STEPS", 6)
    (tmp_path / "tokens").symlink_to(little_text.folder.parent)
    told = commands.lightning(tmp_path, little_text, rounds=2)
    assert told["rounds"] == 2
    assert 0 < told["low"] <= told["ratio"] <= told["high"]


def test_grids_are_told_as_one_wall_time_over_the_floor_of_all_runs(little_text, tmp_path, monkeypatch):
    commands = []

    def seconds_of(*arguments, environment):
        commands.append((arguments, environment))
        Path(arguments[arguments.index("--out") + 1]).mkdir()
        return 100.0

    monkeypatch.setattr(gpu, "seconds_of", seconds_of)
    monkeypatch.setattr(gpu, "floor_of_run", lambda run, device: run.seed)
    pairs = replace(little_text, train=replace(little_text.train, ids=np.zeros(100_000, np.uint16)))
    one, _ = gpu.grids(tmp_path, tmp_path, pairs, device="cpu")
    assert (one["ours"], one["at_most"], one["floor"]["seconds"]) == (100, 480, 3 * (1 + 2 + 3 + 4))
    assert "15 runs" in one["what"]
    assert [arguments[arguments.index("--slots") + 1] for arguments, _ in commands] == ["1", "3"]
    assert len({environment["TORCHINDUCTOR_CACHE_DIR"] for _, environment in commands}) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["paper-size.yaml"]


def test_the_grid_of_a_gpu_has_three_objectives_five_seeds_and_eight_epochs():
    experiment = Experiment.model_validate(gpu.grid_spec(source_tokens=1_000_000))
    planned = runs(experiment)
    assert {run.settings.objective.kind for run in planned} == {"masked_lm", "causal_lm", "translation"}
    assert len(planned) == 15
    for run in planned:
        training = run.settings.training
        assert training.max_steps * training.tokens_per_step == pytest.approx(8e6, abs=training.tokens_per_step)


def test_without_a_gpu_its_rows_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    told = CliRunner().invoke(main, ["gpu", "--data-root", str(tmp_path), "--out", str(tmp_path / "out")])
    assert told.exit_code == 1
    sentence = "Error: gpu: torch sees no GPU; run this group where torch.cuda.is_available().\n"
    assert told.output == sentence
    assert not (tmp_path / "out").exists()


def test_equal_time_warms_up_and_decays_by_the_clock(clock):
    rates = []

    def step(learning_rate):
        rates.append(learning_rate)
        clock.now += 1.0

    assert equal_time.trained(equal_time.Learner(step, lambda: 4.5), 2.0, seconds=40.0) == 4.5
    assert len(rates) == 40
    assert rates[:3] == pytest.approx([0, 1, 2])  # the warm-up is a twentieth, two seconds
    assert rates[-1] == pytest.approx(2 * (1 / 40) / 0.95)


def test_welchs_interval_covers_what_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        low, high = equal_time.welch_interval(list(1 + rng.normal(size=3)), list(2 * rng.normal(size=3)))
        covered += low <= 1 <= high
    # Welch is a little conservative at n = 3; never below 95% by more than three standard errors.
    assert covered / 2000 > 0.95 - 3 * (0.95 * 0.05 / 2000) ** 0.5


@pytest.mark.parametrize(("runs", "at_least"), [(50, 50), (10_000, 10_000)])
def test_a_grid_of_scale_has_as_many_runs_as_asked_for(runs, at_least):
    grid = scale.spec(runs)
    ratios, rates = (len(values) for values in grid["grid"]["axes"].values())
    assert at_least <= (1 + ratios * rates) * len(grid["seeds"]) <= 1.25 * at_least


def test_a_slurm_that_pretends_is_read_as_a_real_one(tmp_path, monkeypatch):
    cluster = tmp_path / "cluster"
    (cluster / "arrays").mkdir(parents=True)
    (cluster / "queue.txt").write_text("1\n" + pretended_slurm.line("1", 3, "RUNNING", "None", "scale-a"))
    monkeypatch.setenv("PATH", f"{scale.commands(tmp_path / 'bin')}:{os.environ['PATH']}")
    monkeypatch.setenv("PRETENDED_SLURM", str(cluster))
    (cluster / "arrays/1.json").write_text(json.dumps({"name": "scale-a", "folder": "a", "jobs": 5}))
    options = ["--array=0-1%4", "--job-name=scale-b", f"--chdir={tmp_path}"]
    assert slurm_queue.submit(options, tmp_path / "job.sh", "python") == "2"
    assert slurm_queue.queued_jobs() == [
        slurm_queue.QueuedJob("1_3", "scale-a", 3, "RUNNING", "None"),
        *(slurm_queue.QueuedJob(f"2_{i}", "scale-b", i, "PENDING", "None") for i in range(2)),
    ]
    slurm_queue.cancel("scale-b")
    assert [job.job for job in slurm_queue.queued_jobs()] == ["1_3"]
    work = Partition(pretended_slurm.NODES, "infinite", 8, 16000, ({},))
    assert slurm_queue.partitions() == {"": work, "work": work}
    assert slurm_queue.largest_array() == pretended_slurm.LARGEST_ARRAY


def test_a_fault_hits_no_process_that_is_not_of_the_grid(tmp_path):
    """The parent of an orphan is init, and that of init is 0: to kill 0 would be to kill ourselves."""
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleeps) as child:
        assert cluster_faults._ancestor(child.pid, 1, title="python") == os.getpid()
        for generations, title in ((1, "ray::"), (99, "")):
            with pytest.raises((ProcessLookupError, FileNotFoundError)):
                cluster_faults._ancestor(child.pid, generations, title=title)
        child.kill()
    number = tmp_path / "orphan"  # a pipe would stay open as long as the orphan holds an end of it
    subprocess.run(["sh", "-c", f"sleep 60 >/dev/null 2>&1 & echo $! > {number}"], check=True)
    orphan = int(number.read_text())
    try:
        with pytest.raises(ProcessLookupError):
            cluster_faults._ancestor(orphan, 1, title="ablations")
    finally:
        os.kill(orphan, signal.SIGKILL)
