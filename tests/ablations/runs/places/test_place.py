"""What a file of `--place` may say, and what sbatch is told."""

import pytest

from ablations.errors import SpecError
from ablations.runs.places.place import RayPlace, Resources, SlurmPlace, load
from tests.support.errors import error_text


def problems(tmp_path, text, kind=SlurmPlace):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return error_text(SpecError, load, path, kind, arms=["mlm", "clm"]).replace(f"{path}:", "").splitlines()


@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        "partion: gpu": "1:1: partion is unknown; did you mean partition?",
        "time_limit: 60": (
            '1:13: time_limit must be hours:minutes:seconds, as in 12:00:00 or 2-00:00:00, but is "60"'
        ),
        "memory: 16": '1:9: memory must be a number with M, G or T, as in 16G, but is "16"',
        "time_limit: 2:00": (
            '1:13: time_limit must be hours:minutes:seconds, as in 12:00:00 or 2-00:00:00, but is "2:00"'
        ),
        "time_limit: 2:99:00": (
            '1:13: time_limit must be hours:minutes:seconds, as in 12:00:00 or 2-00:00:00, but is "2:99:00"'
        ),
        "partition: gpu\ntime_limit: 00:03:00": (
            "2:13: time_limit must be at least 210 seconds, 90 more than seconds_to_save, because SLURM may warn "
            "of it a minute early, but is 00:03:00; raise it, or lower seconds_to_save"
        ),
        "arms: {mlm: {time_limit: 00:01:00}}": (
            "1:26: arms.mlm.time_limit must be at least 210 seconds, 90 more than seconds_to_save, because SLURM "
            "may warn of it a minute early, but is 00:01:00; raise it, or lower seconds_to_save"
        ),
        "memory: 16 GB": '1:9: memory must be a number with M, G or T, as in 16G, but is "16 GB"',
        "gpus: -1": "1:7: gpus must be greater than or equal to 0, but is -1; raise it",
        "nodes: 2\nruns_per_job: 3": (
            "1:1: a job on several nodes trains only one run, but nodes is 2 and runs_at_once or runs_per_job "
            "is above 1; set both to 1"
        ),
        "runs_at_once: 2\nruns_per_job: 1": "1:1: runs_per_job must be at least runs_at_once = 2, but is 1",
        "gpus: 2\ndevices: 2\nruns_at_once: 2": (
            "1:1: gpus must be at least devices times runs_at_once = 4, but is 2; runs of several devices share "
            "no GPU"
        ),
        "arms: {mml: {gpus: 1}}": (
            '1:8: a name in arms must be the name of an arm, but is "mml"; did you mean mlm?'
        ),
        "nodes: 2\narms: {mlm: {runs_at_once: 2}}": (
            "2:13: a job on several nodes trains only one run, but nodes is 2 and runs_at_once or runs_per_job "
            "is above 1; set both to 1"
        ),
        "": "1:1: this file is empty; start it with a partition, as in `partition: gpu`",
    }.items(),
)
def test_a_problem_is_a_line_with_its_place(tmp_path, text, sentence):
    assert problems(tmp_path, text) == [sentence]


@pytest.mark.parametrize(
    "text", ["low; touch x", "$(touch x)", "`touch x`", "a b", "--wrap=touch", "a'b", 'a"b', "a\\nb"]
)
@pytest.mark.parametrize("name", ["partition", "account", "qos", "constraint", "gpu_type"])
def test_what_is_no_name_never_reaches_sbatch(tmp_path, name, text):
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\\\\n", "\\n")
    (problem,) = problems(tmp_path, f'{name}: "{quoted}"')
    kind = "features" if name == "constraint" else "a name"
    assert f"{name} must be {kind} that SLURM accepts, but is " in problem


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("adress: auto", "1:1: adress is unknown; did you mean address?"),
        ("partition: gpu", "1:1: partition is unknown; this file has the settings nodes, cpus, gpus, gpu_type, "),
        ("gpus: 1.5", "1:1: gpus above 1 must be a whole number, but is 1.5"),
        (
            "gpus: 0.5\ndevices: 2",
            "1:1: gpus must be at least devices = 2, but is 0.5; runs of several devices share no GPU",
        ),
        (
            "devices: 2\narms: {mlm: {gpus: 1}}",
            "2:13: gpus must be at least devices = 2, but is 1; runs of several devices share no GPU",
        ),
        ("", "1:1: this file is empty; start it with an address, as in `address: auto`"),
    ],
)
def test_a_problem_of_a_file_for_ray_is_a_line_with_its_place(tmp_path, text, sentence):
    (problem,) = problems(tmp_path, text, RayPlace)
    assert problem.startswith(sentence)


def test_a_file_that_is_to_be_read_before_must_be_there(tmp_path):
    (problem,) = problems(tmp_path, "before: nothing.sh")
    assert problem == (
        f"1:9: the file of `before`, {tmp_path / 'nothing.sh'}, does not exist; correct its name, or delete "
        "`before`"
    )
    (tmp_path / "cluster.sh").write_text("module load cuda\n")
    (tmp_path / "cluster.yaml").write_text("before: cluster.sh")
    assert load(tmp_path / "cluster.yaml", SlurmPlace, arms=[]).before == tmp_path / "cluster.sh"


def test_without_a_file_the_cluster_decides():
    assert load(None, SlurmPlace, arms=["mlm"]).content == SlurmPlace()
    assert Resources().options() == ["--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1"]


def test_an_arm_changes_what_it_writes_and_keeps_the_rest():
    assert SlurmPlace(time_limit="0:00:00").time_limit == "0:00:00"  # no limit
    assert SlurmPlace(constraint="[a100|v100]").options()[0] == "--constraint=[a100|v100]"
    place = SlurmPlace(partition="gpu", gpus=1, time_limit="12:00:00", arms={"big": Resources(gpus=4, devices=4)})
    assert place.of_arm("small").options() == [
        *("--partition=gpu", "--time=12:00:00"),
        *("--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=1", "--gres=gpu:1"),
    ]
    assert place.of_arm("big") == Resources(partition="gpu", time_limit="12:00:00", gpus=4, devices=4)


def test_several_nodes_have_a_task_for_each_device():
    options = Resources(nodes=2, gpus=4, devices=4, cpus=32, gpu_type="a100", memory="64G").options()
    assert options == [
        "--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=8", "--mem=64G", "--gres=gpu:a100:4",
    ]  # fmt: skip
