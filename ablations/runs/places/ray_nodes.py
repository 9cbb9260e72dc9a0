"""Training of one run on several nodes of Ray: processes on each node of a placement group, which end
together.

The task of the run is on the first node. It starts the processes of this node, and a task on each other node,
which starts the processes there. It ends all of them if one is lost. They find each other as processes of
torchrun do.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ablations.runs.places import arrays, job
from ablations.runs.places.arrays import JobFiles
from lightning_modules.errors import ExitCode

SECONDS_TO_SAVE = 60.0
"""Longest wait in seconds for processes that were asked to save. If a node was lost, the wait may be in
vain."""
SECONDS_BETWEEN_LOOKS = 0.5


def train(job_files: JobFiles) -> int:
    """Train the run of a job on all nodes of the placement group of this task of Ray, which is on the first
    node.

    If this process is asked to end, the run is saved.

    Returns the exit code of the first process that failed, or DONE if none failed.
    """
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = ray.util.get_current_placement_group()
    assert group is not None
    address, port = ray.util.get_node_ip_address(), _free_port()
    task = ray.remote(max_retries=0, max_calls=1)(train_there)
    others = [
        task.options(
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
            num_cpus=job_files.array.resources.cpus,
            num_gpus=job_files.array.resources.gpus,
        ).remote(str(job_files.folder), job_files.number, index, address, port)
        for index in range(1, job_files.array.resources.nodes)
    ]
    ranks = _start(job_files, 0, address, port)
    try:
        while None in [rank.poll() for rank in ranks]:
            ended, _ = ray.wait(others, num_returns=len(others), timeout=0)
            is_lost = any(_code_of(ray, other) != ExitCode.DONE for other in ended)
            if is_lost or any(rank.returncode not in (None, 0) for rank in ranks):
                break
            time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        codes = _end(ranks)
    ended, late = ray.wait(others, num_returns=len(others), timeout=SECONDS_TO_SAVE)
    for other in late:
        ray.cancel(other, force=True)
    codes += [_code_of(ray, other) for other in ended] + [int(ExitCode.FAILED) for _ in late]
    return next((code for code in codes if code != ExitCode.DONE), int(ExitCode.DONE))


def heed_cancelling() -> None:
    """Let Ray cancel the task that calls this. Ray interrupts a task as SIGINT does, which does nothing where a
    script started Ray in the background, because such a Ray ignores SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def train_there(folder: str, number: int, index: int, address: str, port: int) -> int:
    """Train on another node of the run, as a task of Ray. Returns the exit code of a process that failed, or
    DONE."""
    heed_cancelling()
    ranks = _start(arrays.read(Path(folder))[number], index, address, port)
    try:
        while all(rank.poll() in (None, 0) for rank in ranks) and None in [rank.returncode for rank in ranks]:
            time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        codes = _end(ranks)
    return next((code for code in codes if code != ExitCode.DONE), int(ExitCode.DONE))


def _code_of(ray: Any, task: Any) -> int:
    """Return the exit code of a task on another node; RANK_DIED if the task was lost."""
    with suppress(ray.exceptions.RayError):
        return int(ray.get(task))
    return int(ExitCode.RANK_DIED)


def _start(job_files: JobFiles, node: int, address: str, port: int) -> list[subprocess.Popen[bytes]]:
    """Start the processes of one node, which save and end when their standard input closes."""
    resources = job_files.array.resources
    command = [*job.train_command(job_files, threads=max(1, resources.cpus // resources.devices)), "--tied"]
    with (job_files.folder / f"job-{job_files.number}.log").open("ab") as log:
        return [
            subprocess.Popen(
                command, cwd=job_files.folder, env=variables, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
            for variables in _variables(os.environ, resources, node=node, address=address, port=port)
        ]


def _variables(
    environment: Mapping[str, str], resources: Any, *, node: int, address: str, port: int
) -> list[dict[str, str]]:
    """Return the environment variables of each process of a node, with the names that torchrun uses."""
    shared = dict(environment) | ({} if resources.gpus else {"CUDA_VISIBLE_DEVICES": ""})
    shared |= {"MASTER_ADDR": address, "MASTER_PORT": str(port), "GROUP_RANK": str(node)}
    shared["WORLD_SIZE"] = str(resources.nodes * resources.devices)
    return [
        shared | {"LOCAL_RANK": str(local), "RANK": str(node * resources.devices + local)}
        for local in range(resources.devices)
    ]


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """End processes, and return their exit codes.

    Closing their standard input asks them to save. Those that do not end in time are killed.
    """
    for rank in ranks:
        assert rank.stdin is not None
        rank.stdin.close()
    deadline = time.monotonic() + SECONDS_TO_SAVE
    while None in [rank.poll() for rank in ranks] and time.monotonic() < deadline:
        time.sleep(0.05)
    for rank in ranks:
        rank.kill()
    return [rank.wait() for rank in ranks]


def _free_port() -> int:
    """Return a port of this node that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
