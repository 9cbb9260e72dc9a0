"""Runs of an experiment as tasks of Ray, which decides when and on which node each of them runs.

The tasks live as long as the command that submitted them. If it ends or is killed, Ray ends them and their
runs are saved. The same command then submits what is missing. Ray is imported only if it is asked for.
"""

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from ablations.runs.calibration import longest_first
from ablations.runs.identity import PlannedRun
from ablations.runs.launch import Outcome
from ablations.runs.places import arrays, job, ray_nodes
from ablations.runs.places.place import PlaceFile, RayPlace, RayResources
from ablations.runs.places.watch import require_free, watch
from ablations.runs.progress import say_failed
from ablations.runs.workspace import Workspace
from ablations.wording import guess, listed, several, shown
from lightning_modules.errors import AblationsError, FilesError
from lightning_modules.files import explained, make_folder, open_no_link, require_writable

SECONDS_TO_CONNECT = 10.0
SECONDS_TO_SAVE = 120.0
"""Longest wait in seconds until runs are saved: those of an interrupted command, or of one that was killed
before."""
SECONDS_BETWEEN_LOOKS = 0.5
SECONDS_WITHOUT_FIRST_NODE = 20.0
"""Longest wait in seconds for an answer of the first node. After a minute without one, Ray itself ends this
process."""


class RayError(AblationsError, RuntimeError):
    """Error of Ray: it is not installed, does not answer, or refuses."""


class UnfinishedError(Exception):
    """Error of a task whose run is worth another attempt: Ray starts the task again."""


def carry_out(
    workspace: Workspace, items: Sequence[PlannedRun], *, place: PlaceFile[RayPlace]
) -> tuple[bool, list[Outcome]]:
    """Train and measure runs as tasks of Ray, and wait until they have ended. Runs with the same identity are
    trained once.

    Ctrl-C lets the runs save before it returns. Ray's own messages go into a file of the experiment.

    Returns whether somebody interrupted it, and the outcomes of the runs that failed.

    Raises:
        FilesError: the output root cannot be written to.
        RayError: Ray is not installed, or no cluster is at the address; nothing is submitted then. Or the
            first node, or that of this machine, is lost while runs are at work, which are saved then.
        SpecError: the text is unfit, no node has what a run needs, or a process works on a run elsewhere;
            nothing is submitted then.
    """
    require_writable(workspace.out)
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    todo = longest_first(items)
    messages = workspace.folder / "ray" / "messages.txt"
    with connected(place.content.address) as ray:  # fails at once if there is no cluster
        require_resources([node["Resources"] for node in ray.nodes() if node["Alive"]], todo, place)
        from ablations.runs.prepare import prepare_text  # imports torch

        prepare_text(workspace, todo, console)
        workspace.write_plan()
        todo = workspace.make_run_folders(todo)
        has_started = any((workspace.folder / "ray").glob("*/array.json"))  # an earlier command may be saving
        if has_started and any(item.directory.is_locked() for item in todo):
            console.print("runs of an earlier command are still at work; waiting until they are saved")
            require_free(todo, "was not started here", patience=SECONDS_TO_SAVE)
        require_free(todo, "was not started here")
        with written_to(messages):
            tasks, groups = _submit(ray, workspace, todo, place.content)
            submitted = f"submitted: {several(len(tasks), 'run')}; the messages of Ray are in {messages}"
            console.print(submitted, soft_wrap=True)
            interrupted, outcomes = _watch(ray, workspace, todo, tasks, groups, console)
            ray.shutdown()  # here, because it has messages too
    failed = say_failed(outcomes, console)
    if interrupted:
        console.print("interrupted; the same command continues from here", style="yellow")
    return interrupted, failed


def _watch(
    ray: Any,
    workspace: Workspace,
    todo: Sequence[PlannedRun],
    tasks: Mapping[str, Any],
    groups: Mapping[str, Any],
    console: Console,
) -> tuple[bool, list[Outcome]]:
    """Wait until the tasks have ended or somebody interrupts, which lets their runs save.

    Returns whether somebody interrupted it, and the outcomes of the runs.
    """
    first_node = ray.get_runtime_context().gcs_address
    reasons: dict[str, str] = {}

    def look(not_ended: Collection[str]) -> tuple[set[str], str]:
        require_first_node(first_node)
        open_names = {name for name, task in tasks.items() if not ray.wait([task], timeout=0)[0]}
        for name in tasks.keys() - open_names - reasons.keys():
            reasons[name] = _why_ended(ray, tasks[name])
            if name in groups:
                ray.util.remove_placement_group(groups[name])
        of_tasks = open_names.intersection(not_ended)  # a task ends some seconds after its run
        at_work = sum(item.directory.is_locked() for item in todo if item.directory.path.name in of_tasks)
        return open_names, f"on Ray: {at_work} at work, {len(of_tasks) - at_work} waiting"

    interrupted, outcomes = watch(workspace, todo, console, look=look, why_lost=reasons.__getitem__)
    if interrupted:
        console.print("stopping; the runs at work are saved first", style="yellow")
        for task in tasks.values():
            ray.cancel(task)
        ray.wait(list(tasks.values()), num_returns=len(tasks), timeout=SECONDS_TO_SAVE)
    return interrupted, outcomes


@contextmanager
def written_to(path: Path) -> Iterator[None]:
    """Append the standard output and error of this process, as of Ray's threads, to a file while the block
    runs.

    Whoever holds the old `sys.stdout` or `sys.stderr`, as a console may, still writes to the old place. Messages
    for which the disk has no room are lost.

    Raises:
        FilesError: the file cannot be opened.
    """
    make_folder(path.parent)
    with explained(path):
        descriptor = open_no_link(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    file = os.fdopen(descriptor, "a", encoding="utf-8", buffering=1)
    try:
        with redirect_stdout(file), redirect_stderr(file):
            errors = os.dup(2)  # where the part of Ray that is not Python writes
            os.dup2(file.fileno(), 2)
            try:
                yield
            finally:
                os.dup2(errors, 2)
                os.close(errors)
    finally:
        with suppress(OSError):  # a full disk; only messages of Ray are lost
            file.close()


def require_first_node(address: str) -> None:
    """Wait until the first node of a cluster answers; without this node Ray does nothing more.

    Raises:
        RayError: it did not answer for SECONDS_WITHOUT_FIRST_NODE.
    """
    deadline = time.monotonic() + SECONDS_WITHOUT_FIRST_NODE
    while True:
        try:
            return _connect(address)
        except OSError as error:
            if time.monotonic() >= deadline:
                raise RayError(
                    f"the first node of Ray, {address}, does not answer any more ({error.strerror or error}); "
                    "the runs at work are saved, so start the cluster again, then the same command."
                ) from None
        time.sleep(SECONDS_BETWEEN_LOOKS)


def dry_run(workspace: Workspace, items: Sequence[PlannedRun], *, place: PlaceFile[RayPlace]) -> Iterator[str]:
    """Yield a line for each run that would be submitted, with the resources that it needs."""
    for item in longest_first(items):
        resources = place.content.of_arm(item.run.arm)
        on_each = f" on each of {resources.nodes} nodes" if resources.nodes > 1 else ""
        yield f"{item.directory.path.name}: {resources_in_words(resources.needs())}{on_each}"


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Connect to a cluster while the block runs; yields the module `ray`.

    Raises:
        RayError: Ray is not installed, no cluster is at the address, or others can read its token.
    """
    if find_spec("ray") is None:
        raise RayError(
            "--on ray needs Ray, which is not installed; install the extra [ray], or leave `--on ray` out."
        )
    require_secret_token()
    _require_listening(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")  # otherwise Ray sends its token only to `auto`
    import ray

    try:
        with TemporaryDirectory() as folder, written_to(Path(folder) / "messages.txt"):  # the error says it once
            ray.init(address=address, log_to_driver=False, configure_logging=False)
    except ray.exceptions.AuthenticationError:
        raise RayError(
            f"this machine has no token for the cluster of Ray at {address}; copy the token of the cluster to "
            "~/.ray/auth_token with mode 0600, then give the command again."
        ) from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        if "InvalidAuthToken" in f"{error} {error.__cause__}":
            raise RayError(
                f"the token of this machine is not that of the cluster of Ray at {address}; copy the token of the "
                "cluster to ~/.ray/auth_token with mode 0600, then give the command again."
            ) from error
        reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        if reason == "Could not find any running Ray instance":  # if the address is `auto`
            raise RayError(
                "there is no cluster of Ray on this machine; start one with `ray start --head`, join one with "
                "`ray start --address=ADDRESS`, or write the address of one into the file of --place."
            ) from None
        raise RayError(
            f"the cluster of Ray at {address} cannot be used ({reason}); start one with `ray start --head`, or "
            "write the address of another into the file of --place (this machine needs its token and the same "
            "version of Ray)."
        ) from error
    handler = signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray's own would end at once
    try:
        yield ray
    finally:
        signal.signal(signal.SIGTERM, handler)
        ray.shutdown()


def require_secret_token() -> None:
    """Raise a RayError if the cluster needs no token, or if other users of this machine can read the token.
    Either lets others run programs as you."""
    if os.environ.get("RAY_AUTH_MODE") == "disabled":
        raise RayError(
            "RAY_AUTH_MODE is disabled, so anyone who reaches the cluster of Ray can run programs in your "
            "name; unset it, create a token with `ray get-auth-token --generate`, and start the cluster again."
        )
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise RayError(
            f"{path}: other users can read this token of Ray; give `chmod 600 {path}`, then the same command."
        )


def _require_listening(address: str) -> None:
    """Raise a RayError if nobody listens at an address, since Ray itself would wait a minute. Addresses
    without a port, such as `auto`, are not checked."""
    if not address.rpartition(":")[2].isdigit():
        return
    try:
        _connect(address)
    except OSError as error:
        raise RayError(
            f"there is no cluster of Ray at {address} ({error.strerror or error}); start one with `ray start "
            "--head`, or write its address into the file of --place."
        ) from None


def _connect(address: str) -> None:
    host, _, port = address.rpartition(":")
    socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=SECONDS_TO_CONNECT).close()


def require_resources(
    nodes: Sequence[Mapping[str, float]], items: Sequence[PlannedRun], place: PlaceFile[RayPlace]
) -> None:
    """Raise a SpecError for an arm with runs that the nodes of the cluster could never take.

    Args:
        nodes: resources of each node, by Ray's names.
    """
    prefix = "accelerator_type:"
    types = sorted({name.removeprefix(prefix) for node in nodes for name in node if name.startswith(prefix)})
    for arm in dict.fromkeys(item.run.arm for item in items):
        resources = place.content.of_arm(arm)
        if resources.gpu_type is not None and resources.gpu_type not in types:
            choice = listed(types) if types else "left out, because Ray knows no GPU type in this cluster"
            guessed = guess(resources.gpu_type, types)
            sentence = f"arm {arm}: gpu_type must be {choice}, but is {shown(resources.gpu_type)}{guessed}"
            raise place.refusal(place.path_of("gpu_type", arm), sentence)
        needs = resources.needs()
        needed = resources_in_words(needs)
        fit = sum(all(node.get(name, 0) >= amount for name, amount in needs.items()) for node in nodes)
        if fit >= resources.nodes:
            continue
        if fit:
            setting, needed = "nodes", f"{resources.nodes} nodes with {needed} each"
            lack = f"the cluster has {fit}"
        else:
            sizes = {resources_in_words({name: node.get(name, 0) for name in needs}) for node in nodes}
            lack = f"no node has that much ({'; '.join(sorted(sizes))})"
            scarce = next((name for name in needs if all(node.get(name, 0) < needs[name] for node in nodes)), "")
            setting = {"CPU": "cpus", "GPU": "gpus"}.get(scarce, scarce)
        raise place.refusal(
            place.path_of(setting, arm),
            f"arm {arm}: a run needs {needed}, but {lack}; lower the resources in the file of --place, or add a "
            "node to the cluster",
        )


def resources_in_words(needs: Mapping[str, float]) -> str:
    """Return resources, given by Ray's names, as text for users: ``2 cores, 0.25 GPU, 16G of memory``."""
    words = []
    for name, amount in needs.items():
        if name == "CPU":
            words.append(several(int(amount), "core"))
        elif name == "GPU":
            words.append(several(int(amount), "GPU") if amount == int(amount) else f"{amount:g} GPU")
        elif name == "memory":
            words.append(f"{amount / 2**30:.3g}G of memory")
        elif amount:
            words.append(f"of type {name.partition(':')[2]}")
    return ", ".join(words)


def _submit(
    ray: Any, workspace: Workspace, items: Sequence[PlannedRun], place: RayPlace
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Submit a task for each run, in the given order.

    Returns the tasks, and the placement groups of runs on several nodes, by the names of the runs' folders. A
    group waits until its nodes are free, and is removed when this command ends.
    """
    names_by_resources: dict[RayResources, list[str]] = {}
    for item in items:
        names_by_resources.setdefault(place.of_arm(item.run.arm), []).append(item.directory.path.name)
    jobs: dict[str, tuple[RayResources, Path, int]] = {}
    for resources, names in names_by_resources.items():
        folder = arrays.new_folder(workspace.folder, "ray")
        single = [[name] for name in names]
        arrays.write(folder, arrays.of_workspace(workspace, single, resources.of_job(), tries=place.tries))
        jobs |= {name: (resources, folder, number) for number, name in enumerate(names)}
    # `job.begin` limits the attempts, as it knows the progress. Ray itself repeats lost tasks without limit.
    task = ray.remote(max_retries=-1, retry_exceptions=[UnfinishedError], max_calls=1)(attempt)
    tasks, groups = {}, {}
    for item in items:
        name = item.directory.path.name
        resources, folder, number = jobs[name]
        if resources.nodes > 1:
            bundles = [resources.needs()] * resources.nodes
            groups[name] = ray.util.placement_group(bundles, strategy="STRICT_SPREAD", name=name)
        options = _options(resources, groups.get(name))
        tasks[name] = task.options(name=name, **options).remote(str(folder), number)
    return tasks, groups


def _options(resources: RayResources, group: Any) -> dict[str, Any]:
    needs = resources.needs()
    options: dict[str, Any] = {"num_cpus": resources.cpus, "num_gpus": resources.gpus}
    if group is not None:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
        return options | {"scheduling_strategy": strategy}
    if "memory" in needs:
        options["memory"] = int(needs["memory"])
    if resources.gpu_type is not None:
        options["accelerator_type"] = resources.gpu_type
    return options


def attempt(folder: str, number: int) -> None:
    """Make one attempt of a job, as a task of Ray: train and measure its run in a separate process. A run on
    several nodes is trained there first.

    However this task ends, the standard input of the separate process closes, so that it saves the run.

    Raises:
        FilesError: this node does not see the folder.
        UnfinishedError: something is left that is worth another attempt.
    """
    ray_nodes.heed_cancelling()
    path = Path(folder)
    if not (path / "array.json").is_file():
        raise FilesError(
            f"{path} does not exist on {socket.gethostname()}; choose an output root (--out) that all nodes of "
            "the cluster share."
        )
    job_files = arrays.read(path)[number]
    if job.begin(job_files):
        hidden = {} if job_files.array.resources.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        # A trained run whose checkpoint is gone is trained again if it lacks a measure.
        is_to_train = not all(job_files.directory(name).is_done() for name in job_files.run_names)
        code = ray_nodes.train(job_files) if job_files.array.resources.nodes > 1 and is_to_train else 0
        with (path / f"job-{number}.log").open("ab") as log:
            work = subprocess.Popen(
                [sys.executable, "-P", "-m", "ablations.runs.places.job", "tied", str(number), str(code)],
                cwd=path,
                env=os.environ | hidden,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
            try:
                while work.poll() is None:  # short sleeps: Ray can cancel a task between two of them
                    time.sleep(SECONDS_BETWEEN_LOOKS)
            finally:
                work.communicate()  # closes its standard input, and waits
    if job.is_left(job_files):
        raise UnfinishedError(" ".join(job.worth_trying(job_files)))


def _why_ended(ray: Any, task: Any) -> str:
    """Return why a task ended without finishing its run.

    Raises:
        RayError: the node of this command is lost, and with it all of its tasks.
    """
    try:
        ray.get(task, timeout=SECONDS_TO_CONNECT)
    except ray.exceptions.LocalRayletDiedError:
        raise RayError(
            "the node of Ray on this machine has ended, and the tasks of this command have ended too; the runs at "
            "work are saved, so start the node again (`ray start`), then the same command."
        ) from None
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        return str(cause) if isinstance(cause, AblationsError) else f"Ray: {type(cause).__name__}: {cause}"
    except ray.exceptions.RayError as error:
        return f"Ray: {' '.join(str(error).split())}"
    return "its task has ended, but the run has not; read the logs in its folder"
