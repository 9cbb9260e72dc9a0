"""Training of one run on several nodes of Ray: processes on each node of a placement group, which end together.

The task of the run is on the first node. It starts the processes there, and a task on each other node that starts
those of that node; it ends all when one is lost. They find each other as those of torchrun do.
"""

import os
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
"""Longest wait for processes that were asked to save; those of a lost node wait for it in vain."""
SECONDS_BETWEEN_LOOKS = 0.5


def train(one: JobFiles) -> int:
    """Train the run of a job on all nodes of the placement group that this task of Ray is in, as the first one.

    Where this process is asked to end, the run is saved.

    Returns the exit code of the first process that failed, or of the first of all.
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
            num_cpus=one.array.resources.cpus,
            num_gpus=one.array.resources.gpus,
        ).remote(str(one.folder), one.number, index, address, port)
        for index in range(1, one.array.resources.nodes)
    ]
    ranks = _start(one, 0, address, port)
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


def train_there(folder: str, number: int, index: int, address: str, port: int) -> int:
    """Train as the processes of another node of the run, as a task of Ray; returns the code of one that failed."""
    ranks = _start(arrays.read(Path(folder))[number], index, address, port)
    try:
        while all(rank.poll() in (None, 0) for rank in ranks) and None in [rank.returncode for rank in ranks]:
            time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        codes = _end(ranks)
    return next((code for code in codes if code != ExitCode.DONE), int(ExitCode.DONE))


def _code_of(ray: Any, task: Any) -> int:
    """Return the exit code that a task of another node ended with; that of a lost process if it was lost."""
    with suppress(ray.exceptions.RayError):
        return int(ray.get(task))
    return int(ExitCode.RANK_DIED)


def _start(one: JobFiles, node: int, address: str, port: int) -> list[subprocess.Popen[bytes]]:
    """Start the processes of one node, which save and end when their standard input closes."""
    resources = one.array.resources
    command = [*job.train_command(one, threads=max(1, resources.cpus // resources.devices)), "--tied"]
    with (one.folder / f"job-{one.number}.log").open("ab") as log:
        return [
            subprocess.Popen(command, cwd=one.folder, env=variables, stdin=subprocess.PIPE, stdout=log, stderr=log)
            for variables in _variables(os.environ, resources, node=node, address=address, port=port)
        ]


def _variables(
    environment: Mapping[str, str], resources: Any, *, node: int, address: str, port: int
) -> list[dict[str, str]]:
    """Return the variables of the processes of a node, by the names of torchrun."""
    shared = dict(environment) | ({} if resources.gpus else {"CUDA_VISIBLE_DEVICES": ""})
    shared |= {"MASTER_ADDR": address, "MASTER_PORT": str(port), "GROUP_RANK": str(node)}
    shared["WORLD_SIZE"] = str(resources.nodes * resources.devices)
    return [
        shared | {"LOCAL_RANK": str(local), "RANK": str(node * resources.devices + local)}
        for local in range(resources.devices)
    ]


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Ask processes to save by closing their standard input, wait, kill those that do not end; return their exit
    codes."""
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
