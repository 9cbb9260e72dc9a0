"""Processes of one run on several devices: one fate, and an exit code that tells what became of them."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from lightning_modules.errors import DataError, ExitCode, StopRequest
from lightning_modules.training import ranks, train
from lightning_modules.training.ranks import AddressError, RankDiedError, joined_ranks, lost_rank, run_ranks
from tests.support.tiny_text import settings

LIMIT = 30  # seconds; a hang is a failure

SAVES = "import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(75))\n"
"""A rank that saves within no time when it is asked to."""
WAITS = "import time\nwhile True: time.sleep(0.01)"
"""What a rank does that has not ended: it waits, as for the others."""


def fails(code, *, after=None, before=None):
    """A rank that ends with an exit code, when a file is there; or leaves a file behind."""
    wait = f"import time\nwhile not os.path.exists({str(after)!r}): time.sleep(0.01)\n" if after else ""
    return wait + (f"open({str(before)!r}, 'w')\n" if before else "") + f"os._exit({code})"


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Start ranks that do what their scripts say, and return the exit code of the run."""
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    monkeypatch.setattr(ranks, "POLL_SECONDS", 0.01)
    popen, started = subprocess.Popen, []

    def call(*scripts, after=None):
        stop = StopRequest()
        started.clear()

        def start(command, *, env, **options):
            assert command[:3] == [sys.executable, "-P", "-m"]  # nothing is imported from the current folder
            script = SAVES + scripts[int(env["LOCAL_RANK"])]
            started.append(popen([sys.executable, "-S", "-c", script], env=env, **options))
            if after is not None and len(started) == len(scripts):
                after(started, stop)
            return started[-1]

        monkeypatch.setattr(ranks.subprocess, "Popen", start)
        begin = time.monotonic()
        try:
            return run_ranks(tmp_path, devices=len(scripts), accelerator="cpu", lock=lock, stop=stop)
        finally:
            assert time.monotonic() - begin < LIMIT
            assert all(rank.returncode is not None for rank in started)

    yield call
    os.close(lock)


def test_the_code_of_a_run_is_that_of_the_rank_that_knows_best(trained, tmp_path):
    assert trained("", "") == ExitCode.DONE
    assert trained(fails(1), WAITS) == ExitCode.FAILED
    assert trained(WAITS, fails(1)) == ExitCode.FAILED
    over = tmp_path / "over"
    assert trained(fails(1, after=over), fails(66, before=over)) == ExitCode.NOT_FINITE
    assert trained(fails(75), WAITS) == ExitCode.INTERRUPTED  # somebody asked one rank to stop


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("waits", [True, False])  # the other one misses it: it waits for it, or fails
def test_a_killed_rank_is_named_and_takes_the_others_along(rank, waits, trained, tmp_path):
    over = tmp_path / "over"
    scripts = [WAITS if waits else fails(1, after=over)] * 2
    scripts[rank] = f"open({str(over)!r}, 'w')\nos.kill(os.getpid(), signal.SIGKILL)"
    with pytest.raises(RankDiedError) as error:
        trained(*scripts)
    assert str(error.value) == (
        f"process {rank + 1} of the 2 that train the run was killed (SIGKILL), probably because memory is "
        "short; lower --slots and give the command again: the run continues from its last checkpoint."
    )
    assert error.value.exit_code == ExitCode.RANK_DIED


def test_a_rank_that_does_not_end_with_the_others_is_killed_and_does_not_count_as_killed(trained, monkeypatch):
    """The first rank has failed with an error of its own; that it waited too long says nothing of the second."""
    monkeypatch.setattr(ranks, "SECONDS_TO_END", 0.5)
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
    assert trained("import time; time.sleep(1); os._exit(1)", deaf) == ExitCode.FAILED


def test_a_frozen_rank_saves_with_the_others_when_the_run_is_to_stop(trained):
    def freeze(started, stop):
        time.sleep(0.5)  # it listens to SIGTERM by then
        started[1].send_signal(signal.SIGSTOP)
        stop.received = True

    assert trained(WAITS, WAITS, after=freeze) == ExitCode.INTERRUPTED


def is_suspended(process):
    with open(f"/proc/{process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def test_a_frozen_rank_for_which_the_others_wait_is_woken(trained, monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(ranks, "SECONDS_SUSPENDED", 0.5)
    over, seen = tmp_path / "over", []

    def freeze(started, stop):
        os.kill(started[1].pid, signal.SIGSTOP)
        while not is_suspended(started[1]):
            time.sleep(0.01)
        seen.append(over.exists())

    waits, ends = fails(0, after=over), f"import time\ntime.sleep(0.2)\nopen({str(over)!r}, 'w')\nos._exit(0)"
    assert trained(waits, ends, after=freeze) == ExitCode.DONE
    assert seen == [False]
    assert capfd.readouterr().out == "process 2 of the 2 that train the run was suspended; it is resumed now\n"


def test_ranks_that_are_all_frozen_stay_so(trained, monkeypatch, tmp_path):
    """Somebody wants the run to pause; no rank waits for another."""
    monkeypatch.setattr(ranks, "SECONDS_SUSPENDED", 0.1)
    over, still = tmp_path / "over", []

    def freeze(started, stop):
        for rank in started:
            os.kill(rank.pid, signal.SIGSTOP)

        def go_on():
            time.sleep(1)
            still.extend(map(is_suspended, started))
            over.touch()
            for rank in started:
                os.kill(rank.pid, signal.SIGCONT)

        threading.Thread(target=go_on).start()

    ends = fails(0, after=over)
    assert trained(ends, ends, after=freeze) == ExitCode.DONE
    assert still == [True, True]


def test_a_rank_that_is_killed_while_the_run_stops_leaves_it_interrupted(trained):
    def kill(started, stop):
        stop.received = True
        started[0].kill()

    assert trained(WAITS, WAITS, after=kill) == ExitCode.INTERRUPTED


def test_a_lost_process_on_another_node_is_said_in_words():
    closed = RuntimeError(
        "[/torch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:44759. GLHF!"
    )
    for error in (closed, dist.DistNetworkError("Interrupted system call")):
        assert str(lost_rank(error)) == (
            "another process of this run, on this or another node, ended or does not answer; the run continues "
            "from its last checkpoint."
        )
    for error in (
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        DataError("Broken pipe"),
        OSError("x"),
    ):
        assert lost_rank(error) is None


@pytest.mark.parametrize("reason", ["last.ckpt cannot be written: the disk is full.", None])
def test_a_process_that_misses_another_says_so_and_keeps_the_reason_of_the_other(
    reason, make_run, data_root, monkeypatch, capfd
):
    """The first process had no room for its checkpoint. The second only misses it, and is the last to write."""
    directory, options = make_run(settings()), {"devices": 2, "accelerator": "cpu"}
    directory.write_state("running" if reason is None else "failed", **({"message": reason} if reason else {}))
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(train, "stop_when_orphaned", lambda stop: None)
    monkeypatch.setattr(train, "joined_ranks", closed_by_peer)
    assert train._rank(directory, data_root=data_root, stop=StopRequest(), **options) == ExitCode.FAILED
    sentence = (
        "another process of this run, on this or another node, ended or does not answer; the run continues from "
        "its last checkpoint."
    )
    with directory.lock():
        assert (directory.state().state, directory.state().message) == ("failed", reason or sentence)
    assert capfd.readouterr().err == f"RuntimeError: Connection closed by peer [127.0.0.1]:6569.\n{sentence}\n"


def closed_by_peer(*, accelerator):
    raise RuntimeError("Connection closed by peer [127.0.0.1]:6569.")


def test_an_address_that_a_node_does_not_know_is_said_at_once(monkeypatch, make_run, data_root, capfd):
    """Torch would try for more than ten minutes. The log of the job has the sentence of each process, as only the
    first writes the state of the run."""
    variables = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "1"}
    variables |= {"MASTER_ADDR": "no-such-host.invalid", "MASTER_PORT": "20000"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AddressError) as raised, joined_ranks(accelerator="cpu"):
        pass
    assert re.fullmatch(
        r"process 2 of 2 on \S+ does not know the address no-such-host\.invalid of the first process \(.+\); set "
        "MASTER_ADDR in the file of `before` to a name or number that all nodes know\\.",
        str(raised.value),
    )
    options = {"data_root": data_root, "devices": 1, "nodes": 2, "accelerator": "cpu", "threads": 1}
    assert train._rank_of_nodes(make_run(settings()), stop=StopRequest(), **options) == ExitCode.FAILED
    assert capfd.readouterr().err == f"{raised.value}\n"


def test_a_first_process_that_does_not_answer_is_said_and_not_waited_for_any_longer(monkeypatch, capfd):
    """A firewall, or an address of another network. Torch would try for ten minutes."""
    clock = [0.0]

    def silent(address, timeout):
        clock[0] += timeout
        raise TimeoutError("timed out")

    monkeypatch.setattr(ranks.socket, "create_connection", silent)
    monkeypatch.setattr(ranks, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: None))
    with pytest.raises(AddressError) as raised:
        ranks._wait_for_first("process 2 of 2 on n2", "192.0.2.1", 20000)
    remedy = "on SLURM, set MASTER_ADDR in the file of `before` to an address that all nodes reach"
    assert str(raised.value) == (
        "process 2 of 2 on n2 has waited 130 seconds for the first process at 192.0.2.1:20000 (timed out); "
        f"{remedy}."
    )
    assert capfd.readouterr().err == (
        "process 2 of 2 on n2 has waited 70 seconds for the first process at 192.0.2.1:20000 (timed out) and "
        f"waits on; if this does not end, {remedy}\n"
    )


def test_a_first_process_that_has_not_started_yet_is_waited_for(monkeypatch, capfd):
    """Its node refuses connections until then. On a slow file system the start takes minutes."""
    clock = [0.0]
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))

        def sleep(seconds):
            clock[0] += 30
            if clock[0] == 540:
                first.listen()

        monkeypatch.setattr(ranks, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
        port = first.getsockname()[1]
        ranks._wait_for_first("process 2 of 2 on n2", "127.0.0.1", port)
        assert clock[0] == 540
        notice = (
            f"has waited 90 seconds for the first process at 127.0.0.1:{port} (Connection refused) and waits on"
        )
        assert capfd.readouterr().err.count(notice) == 1
    with pytest.raises(AddressError, match=rf"has waited 630 seconds .* at 127\.0\.0\.1:{port} "):
        ranks._wait_for_first("process 2 of 2 on n2", "127.0.0.1", port)


def test_nobody_can_take_the_port_of_a_run_before_its_ranks_bind_it(trained):
    """The process that starts the ranks listens on it already."""
    connects = (
        "import socket; socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))"
    )
    taken = (
        "import socket\n"
        "try: socket.create_server(('0.0.0.0', int(os.environ['MASTER_PORT'])))\n"
        "except OSError: sys.exit(0)\n"
        "sys.exit(1)"
    )
    assert trained(connects, taken) == ExitCode.DONE
