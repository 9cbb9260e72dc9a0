"""What is refused before anything is put on Ray, and what its tasks ask for. Ray itself is in test_ray.py."""

import json
import os
import socket
import sys
from types import SimpleNamespace

import pytest

from ablations.errors import SpecError
from ablations.runs.identity import create
from ablations.runs.places import arrays, ray_cluster, ray_nodes
from ablations.runs.places.place import PlaceFile, RayPlace, RayResources, load
from ablations.runs.places.ray_cluster import (
    RayError,
    attempt,
    connected,
    require_first_node,
    require_resources,
    written_to,
)
from ablations.runs.places.watch import require_free
from lightning_modules.errors import FilesError
from lightning_modules.training.run_directory import RunDirectory
from tests.support.command_line import ablate, refusal_of
from tests.support.errors import error_text
from tests.support.planned_spec import workspace_of, write
from tests.support.tiny_text import settings


@pytest.fixture
def workspace(tmp_path):
    return workspace_of(tmp_path)


NODES = [
    {"CPU": 8.0, "memory": 2.0**34, "node:10.0.0.1": 1.0},
    {"CPU": 2.0, "memory": 2.0**33, "GPU": 4.0, "accelerator_type:A100": 1.0},
]


def refusal(workspace, **place):
    return error_text(
        SpecError, lambda: require_resources(NODES, workspace.planned, PlaceFile(None, RayPlace(**place)))
    )


def test_what_no_node_has_is_refused_with_what_the_nodes_have(workspace):
    assert refusal(workspace, gpus=1, cpus=4) == (
        "--on ray: arm a: a run needs 4 cores, 1 GPU, but no node has that much (2 cores, 4 GPUs; 8 cores, 0 "
        "GPUs); lower the resources in the file of --place, or add a node to the cluster"
    )
    assert refusal(workspace, memory="32G", arms={"a": {"memory": "1G"}}) == (
        "--on ray: arm b: a run needs 1 core, 32G of memory, but no node has that much (2 cores, 8G of memory; "
        "8 cores, 16G of memory); lower the resources in the file of --place, or add a node to the cluster"
    )
    assert refusal(workspace, gpus=1, gpu_type="A10") == (
        '--on ray: arm a: gpu_type must be A100, but is "A10"; did you mean A100?'
    )
    assert error_text(
        SpecError,
        lambda: require_resources(NODES[:1], workspace.planned, PlaceFile(None, RayPlace(gpu_type="A10"))),
    ) == (
        '--on ray: arm a: gpu_type must be left out, because Ray knows no GPU type in this cluster, but is "A10"'
    )
    for place in ({"gpus": 0.25, "gpu_type": "A100"}, {"gpus": 4, "devices": 4}, {"cpus": 8, "memory": "16G"}):
        require_resources(NODES, workspace.planned, PlaceFile(None, RayPlace(**place)))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("cpus: 4\ngpus: 1", "1:1: arm a"),  # a node has either, none has both
        ("cpus: 1\ngpus: 8", "2:7: arm a"),
        ("memory: 1G\narms: {b: {memory: 32G}}", "2:20: arm b"),
        ("gpus: 1\ngpu_type: moon", "2:11: arm a"),
        ("cpus: 2\nnodes: 3", "2:8: arm a"),
        ("arms: {b: {gpus: 8}}\nnodes: 2", "1:18: arm b"),
    ],
)
def test_a_refusal_has_the_line_and_column_of_its_setting(workspace, text, place, tmp_path):
    (tmp_path / "ray.yaml").write_text(text)
    assert error_text(
        SpecError,
        lambda: require_resources(
            NODES, workspace.planned, load(tmp_path / "ray.yaml", RayPlace, arms=["a", "b"])
        ),
    ).startswith(f"{tmp_path / 'ray.yaml'}:{place}: ")


def test_a_run_on_more_nodes_than_the_cluster_has_is_refused(workspace):
    require_resources(NODES, workspace.planned, PlaceFile(None, RayPlace(nodes=2, cpus=2)))
    assert refusal(workspace, nodes=2, cpus=4) == (
        "--on ray: arm a: a run needs 2 nodes with 4 cores each, but the cluster has 1; lower the resources in "
        "the file of --place, or add a node to the cluster"
    )


def test_processes_of_a_run_on_several_nodes_are_numbered_through():
    job = RayResources(nodes=2, cpus=4, devices=2).of_job()
    made = [ray_nodes._variables({"A": "b"}, job, node=node, address="10.0.0.1", port=1234) for node in range(2)]
    names = ("GROUP_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "A")
    told = [tuple(variables[name] for name in names) for of_node in made for variables in of_node]
    assert told == [
        (node, local, str(2 * int(node) + int(local)), "4", "10.0.0.1", "1234", "b")
        for node in "01"
        for local in "01"
    ]


def test_a_cluster_that_is_not_there_is_one_sentence(monkeypatch):
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setattr(ray_cluster, "find_spec", lambda name: "there")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
        with pytest.raises(RayError) as error, connected(address):
            pass
    assert str(error.value) == (
        f"there is no cluster of Ray at {address} (Connection refused); start one with `ray start --head`, or "
        "write its address into the file of --place."
    )


def test_a_machine_of_no_cluster_is_one_sentence(monkeypatch, capfd):
    def init(**options):
        os.write(2, b"gcs_client.cc:210: Failed to get cluster ID from GCS server")  # the part in C++
        raise ConnectionError("Could not find any running Ray instance. Please specify the one to connect to.")

    errors = SimpleNamespace(AuthenticationError=type("AuthenticationError", (Exception,), {}))
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: "there")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, exceptions=errors))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(RayError) as error, connected("auto"):
        pass
    assert str(error.value) == (
        "there is no cluster of Ray on this machine; start one with `ray start --head`, join one with `ray start "
        "--address=ADDRESS`, or write the address of one into the file of --place."
    )
    assert capfd.readouterr() == ("", "")


def test_a_first_node_that_is_lost_is_one_sentence(monkeypatch):
    monkeypatch.setattr(ray_cluster, "SECONDS_WITHOUT_FIRST_NODE", 0.0)
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{first.getsockname()[1]}"
        first.listen()
        require_first_node(address)  # it answers
    assert error_text(RayError, require_first_node, address) == (
        f"the first node of Ray, {address}, does not answer any more (Connection refused); the runs at work are "
        "saved, so start the cluster again, then the same command."
    )


def test_a_node_of_this_machine_that_is_lost_is_one_sentence_and_not_one_of_each_run():
    class RayError(Exception):
        pass

    class LocalRayletDiedError(RayError):
        pass

    def get(task, timeout):
        raise LocalRayletDiedError("The task's local raylet died. Check raylet.out for more information.")

    errors = SimpleNamespace(
        RayTaskError=type("RayTaskError", (RayError,), {}),
        RayError=RayError,
        LocalRayletDiedError=LocalRayletDiedError,
    )
    assert error_text(
        ray_cluster.RayError, lambda: ray_cluster._why_ended(SimpleNamespace(get=get, exceptions=errors), "task")
    ) == (
        "the node of Ray on this machine has ended, and the tasks of this command have ended too; the runs at "
        "work are saved, so start the node again (`ray start`), then the same command."
    )


def test_what_this_process_says_meanwhile_goes_to_a_file_and_what_was_open_before_stays(tmp_path, capfd):
    path, before = tmp_path / "ray" / "messages.txt", sys.stdout
    for _ in range(2):  # a second command adds to it
        with written_to(path):
            print("of Python")
            print("of a thread", file=sys.stderr)
            os.write(2, b"of C++\n")
            print("for the terminal", file=before, flush=True)
    os.write(2, b"after\n")
    assert path.read_text() == "of Python\nof a thread\nof C++\n" * 2
    assert capfd.readouterr() == ("for the terminal\n" * 2, "after\n")


def test_a_disk_that_is_full_loses_messages_of_ray_and_nothing_else(tmp_path, capfd):
    (tmp_path / "ray").mkdir()
    path, before = tmp_path / "ray" / "messages.txt", sys.stdout
    path.symlink_to("/dev/full")
    with pytest.raises(FilesError) as error, written_to(path):
        pass
    assert str(error.value).startswith(f"{path} cannot be ")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_cluster, "open_no_link", os.open)
        with written_to(path):
            with pytest.raises(OSError, match="No space left on device"):
                print("of Python")
            print("for the terminal", file=before, flush=True)
    assert capfd.readouterr() == ("for the terminal\n", "")


def test_without_ray_the_extra_is_named_and_nothing_is_done(workspace, monkeypatch):
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: None)
    assert (
        refusal_of("run", workspace.spec, "--out", workspace.out, "--on", "ray")
        == "--on ray needs Ray, which is not installed; install the extra [ray], or leave `--on ray` out.\n"
    )
    assert not workspace.out.exists()


def test_a_token_that_others_can_read_is_refused(tmp_path, monkeypatch):
    token = tmp_path / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    ray_cluster.require_secret_token()  # none is there: the cluster has none, or Ray says what is missing
    token.touch(mode=0o600)
    ray_cluster.require_secret_token()
    token.chmod(0o640)
    assert error_text(RayError, ray_cluster.require_secret_token) == (
        f"{token}: other users can read this token of Ray; give `chmod 600 {token}`, then the same command."
    )


def test_a_cluster_without_a_token_is_refused(monkeypatch):
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: "there")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(RayError) as error, connected("auto"):
        pass
    assert str(error.value) == (
        "RAY_AUTH_MODE is disabled, so anyone who reaches the cluster of Ray can run programs in your name; "
        "unset it, create a token with `ray get-auth-token --generate`, and start the cluster again."
    )


def test_the_token_is_sent_to_every_address_and_a_wrong_one_is_one_sentence(monkeypatch):
    """Of itself Ray sends it to `auto` only, and says of a wrong one that no cluster is there."""

    def init(**options):
        modes.append(os.environ["RAY_AUTH_MODE"])
        raise ConnectionError("Failed to connect") from RuntimeError("RPC error: InvalidAuthToken: it is missing")

    modes = []
    errors = SimpleNamespace(AuthenticationError=type("AuthenticationError", (Exception,), {}))
    monkeypatch.setattr(ray_cluster, "find_spec", lambda name: "there")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, exceptions=errors))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_MODE")
    with pytest.raises(RayError) as error, connected("10.0.0.1"):
        pass
    assert modes == ["token"]
    assert str(error.value) == (
        "the token of this machine is not that of the cluster of Ray at 10.0.0.1; copy the token of the cluster "
        "to ~/.ray/auth_token with mode 0600, then give the command again."
    )


def test_a_dry_run_shows_what_each_run_asks_for_and_needs_no_ray(workspace, tmp_path):
    (tmp_path / "ray.yaml").write_text("{gpus: 0.5, memory: 3G, arms: {b: {gpus: 2, cpus: 4, gpu_type: A100}}}")
    options = ["--out", str(workspace.out), "--on", "ray", "--place", str(tmp_path / "ray.yaml"), "--dry-run"]
    done = ablate("run", workspace.spec, *options)
    assert done.exit_code == 0, done.output
    asks = {line.partition("-")[0]: line.partition(": ")[2] for line in done.output.splitlines()}
    assert asks == {"a": "1 core, 0.5 GPU, 3G of memory", "b": "4 cores, 2 GPUs, 3G of memory, of type A100"}
    assert not workspace.out.exists()
    assert "ray" not in sys.modules


def test_a_dry_run_shows_the_trials_first_and_says_which_runs_follow(tmp_path):
    tune = {"settings": {"training.learning_rate": [1e-3, 2e-3]}, "arms": ["a"], "seeds": [9]}
    write(tmp_path, tune=tune)
    options = ["--out", str(tmp_path / "out"), "--on", "ray", "--dry-run"]
    done = ablate("run", tmp_path / "it.yaml", *options)
    assert done.exit_code == 0, done.output
    assert [line.partition(": ")[0].rpartition("-")[0] or line for line in done.output.splitlines()] == [
        "a,learning_rate=0.001-s9",
        "a,learning_rate=0.002-s9",
        "The runs of a follow when their trials have ended.",
        "b-s0",
        "b-s1",
    ]


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_trained_run_without_its_checkpoint_is_trained_on_all_nodes_again(has_checkpoint, tmp_path, monkeypatch):
    """It lacks a measure."""
    directory = RunDirectory(tmp_path / "runs" / "mlm-s0-0000000000")
    directory.checkpoints.mkdir(parents=True)
    (directory.path / "run.json").write_text(json.dumps({"settings": settings().model_dump(mode="json")}))
    directory.write_state("done", step=1, last_checkpoint_bytes=7)
    if has_checkpoint:
        directory.last_checkpoint.write_bytes(b"weights")
    folder = arrays.new_folder(tmp_path / "it", "ray")
    array = arrays.Array(
        data_root=str(tmp_path),
        runs=str(directory.path.parent),
        jobs=[[directory.path.name]],
        measures=[{"kind": "validation"}],
        resources=RayResources(nodes=2).of_job(),
        tries=1,
    )
    arrays.write(folder, array)
    trained, commands = [], []

    def train(job_files):
        trained.append(job_files.run_names)
        return 0

    def start(command, **options):
        commands.append(command)
        return SimpleNamespace(poll=lambda: 0, communicate=lambda: None)

    monkeypatch.setattr(ray_nodes, "train", train)
    monkeypatch.setattr(ray_cluster.subprocess, "Popen", start)
    attempt(str(folder), 0)  # gives up after one attempt without progress
    assert trained == ([] if has_checkpoint else [[directory.path.name]])
    assert commands == [[sys.executable, "-P", "-m", "ablations.runs.places.job", "tied", "0", "0"]]


def test_the_worker_of_a_run_with_a_part_of_a_gpu_sees_one():
    job = RayResources(gpus=0.25, cpus=3).of_job()
    assert (job.gpus, job.cpus, job.devices) == (1, 3, 1)


def test_a_node_that_does_not_see_the_output_root_says_so(tmp_path):
    assert error_text(FilesError, lambda: attempt(str(tmp_path / "gone"), 0)) == (
        f"{tmp_path / 'gone'} does not exist on {socket.gethostname()}; choose an output root (--out) that all "
        "nodes of the cluster share."
    )


def test_a_run_that_is_at_work_elsewhere_is_refused(workspace):
    item = workspace.planned[0]
    create(item)
    with item.directory.lock(), pytest.raises(SpecError) as error:
        require_free([item], "was not started here")
    assert str(error.value) == (
        f"{item.directory.path.name}: a process that was not started here is using this run; wait for it or end "
        "it, then give the command again; nothing was submitted."
    )


def test_endings_of_both_engines_are_read(tmp_path):
    for engine in ("slurm", "ray"):
        folder = arrays.new_folder(tmp_path / "it", engine)
        array = arrays.Array(
            data_root=".", runs="runs", jobs=[[engine]], measures=[], resources=RayResources().of_job(), tries=1
        )
        arrays.write(folder, array)
        (one,) = arrays.read(folder)
        one.write(arrays.Attempts(endings={engine: arrays.Ending(message="why", is_final=True)}))
    assert sorted(arrays.endings(tmp_path)) == ["ray", "slurm"]
    assert len(arrays.written(tmp_path)) == 1  # what SLURM's queue is compared with
