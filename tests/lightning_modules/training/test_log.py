"""Loggers: the record is the same with any of them, and Weights & Biases stays offline and learns no key."""

import importlib.util

import pytest

from lightning_modules.errors import Interrupted
from lightning_modules.training import log
from lightning_modules.training.fit import train
from lightning_modules.training.log import LoggerError, loggers_of
from tests.support.errors import error_text
from tests.support.stop_after import StopAfter
from tests.support.tiny_text import settings

KEY = "0123456789abcdef" * 2 + "01234567"  # of the length of a real one
NAME = "run-s0-0123456789"


def run_to(directory, tokens, step=10**9):
    stop = StopAfter(step)
    directory.checkpoints.mkdir(exist_ok=True)
    train(directory, tokens, threads=1, accelerator="cpu", stop=stop, on_line=stop.on_line)


@pytest.fixture
def wandb(monkeypatch):
    """The real package, with a key in the environment and no word about its mode."""
    package = pytest.importorskip("wandb", reason="needs wandb, the extra [wandb]")
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_SILENT", "true")
    return package


def test_a_run_of_wandb_is_offline_goes_on_with_its_id_and_holds_no_key(wandb, make_run, tokens):
    run = settings(training={"loggers": ["wandb"]})
    directory, plain = make_run(run, NAME), make_run(settings(training={"loggers": []}), NAME, out="plain")
    with pytest.raises(Interrupted):
        run_to(directory, tokens, 4)
    assert wandb.run is None  # the next run of the process has one of its own
    run_to(directory, tokens)
    run_to(plain, tokens)
    starts = sorted(path.name for path in (directory.path / "wandb").glob("*run-*") if not path.is_symlink())
    assert len(starts) == 2
    assert all(name.startswith("offline-run-") and name.endswith("-0123456789") for name in starts)
    for start in starts:
        logged = (directory.path / "wandb" / start / "run-0123456789.wandb").read_bytes()
        assert all(
            word in logged for word in (b"train/loss", b"trainer/global_step", b"tokens_per_step", NAME.encode())
        )
    files = [path for path in directory.path.parent.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert directory.last_weights.read_bytes() == plain.last_weights.read_bytes()
    assert not (plain.path / "wandb").exists()
    assert not (plain.path / "tensorboard").exists()


def test_the_record_is_first_and_the_others_are_those_that_the_settings_name(wandb, make_run):
    def names(*chosen):
        run = settings(training={"loggers": list(chosen)})
        directory = make_run(run, NAME, out="-".join(("out", *chosen)))
        return [type(one).__name__ for one in loggers_of(run, directory, resume=None)]

    assert names() == ["JsonLinesLogger"]
    assert names("tensorboard") == ["JsonLinesLogger", "TensorBoardLogger"]
    assert names("wandb", "tensorboard") == ["JsonLinesLogger", "TensorBoardLogger", "WandbLogger"]
    assert settings().training.loggers == ("tensorboard",)


@pytest.mark.parametrize(
    ("mode", "resumes", "expected"),
    [
        (None, False, {"mode": "offline", "resume": None, "project": "pretraining-ablations"}),
        (None, True, {"mode": "offline", "resume": "allow", "project": "pretraining-ablations"}),
        ("online", False, {"mode": "online", "resume": None, "project": "mine"}),
        ("online", True, {"mode": "online", "resume": "allow", "project": "mine"}),
    ],
)
def test_what_wandb_is_told(mode, resumes, expected, wandb, make_run, monkeypatch):
    if mode is not None:
        monkeypatch.setenv("WANDB_MODE", mode)
        monkeypatch.setenv("WANDB_PROJECT", "mine")
    told = []

    class Refused(wandb.errors.UsageError):
        pass

    def init(**options):
        told.append(options)
        raise Refused("No API key configured. Use `wandb login` to log in.\nmore")

    monkeypatch.setattr("wandb.init", init)
    run = settings(training={"loggers": ["wandb"]})
    directory = make_run(run, NAME)
    logger = loggers_of(run, directory, resume=directory.last_checkpoint if resumes else None)[-1]
    trainer = type("Trainer", (), {"loggers": [logger], "is_global_zero": True})()
    with pytest.raises(LoggerError) as error, log.started(trainer):
        pass
    assert str(error.value) == (
        "W&B cannot start (No API key configured. Use `wandb login` to log in); run `wandb login`, set WANDB_MODE "
        "to offline, or leave wandb out of training.loggers."
    )
    (options,) = told
    assert expected.items() <= options.items()
    assert (options["name"], options["id"], options["group"]) == (NAME, "0123456789", "run")
    assert options["config"]["training"]["max_steps"] == 12
    assert options["config"]["seed"] == 0
    assert (options["settings"].disable_git, options["settings"].disable_code) == (True, True)
    assert options["settings"].console == "off"


def test_a_mode_of_wandb_that_there_is_not_is_one_sentence(wandb, make_run, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "onlin")
    run = settings(training={"loggers": ["wandb"]})
    logger = loggers_of(run, make_run(run, NAME), resume=None)[-1]
    trainer = type("Trainer", (), {"loggers": [logger], "is_global_zero": True})()
    with (
        pytest.raises(
            LoggerError, match=r"^W&B cannot start \(Input should be 'online', 'offline'.*\); run [^\n]*$"
        ),
        log.started(trainer),
    ):
        pass


def test_wandb_that_is_not_installed_is_one_sentence(make_run, monkeypatch):
    monkeypatch.setattr(log, "find_spec", lambda name: importlib.util.find_spec(f"{name}_is_not_there"))
    run = settings(training={"loggers": ["wandb"]})
    assert error_text(LoggerError, lambda: loggers_of(run, make_run(run), resume=None)) == (
        "training.loggers names wandb, which is not installed; install the extra [wandb], or leave wandb out."
    )
