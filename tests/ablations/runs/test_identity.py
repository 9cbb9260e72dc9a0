"""Identity of runs: what changes it and what does not."""

import hashlib
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ablations.errors import SpecError
from ablations.runs.identity import (
    check,
    create,
    placed_runs,
    require_loggers,
    restore,
    run_identity,
    self_contained,
)
from ablations.runs.workspace import Workspace
from ablations.spec import grid, load
from ablations.spec.experiment import Run
from lightning_modules import plugins, provenance
from lightning_modules.config import EncoderSettings, TrainingSettings
from lightning_modules.config.run import VOITA_2019, RunSettings
from lightning_modules.data import token_store
from lightning_modules.files import file_version
from lightning_modules.training.run_directory import RunDirectory, RunDirectoryError, RunState, checksum
from tests.support.errors import error_text
from tests.support.planned_spec import SPEC
from tests.support.tiny_text import settings

PLUGINS = Path(__file__).parents[3] / "docs" / "plugins"


def test_identity_changes_with_every_decision():
    base = settings()
    others = [
        settings(seed=1),
        settings("causal_lm"),
        settings(encoder={"num_hidden_layers": 3}),
        settings(encoder={"norm": "pre"}),
        settings(training={"learning_rate": 2e-3}),
        settings(objective={"masking": {"ratio": 0.4}}),
    ]
    ids = [run_identity(run, "0123456789") for run in (base, *others)]
    assert len({*ids, run_identity(base, "9876543210")}) == 8
    assert all(len(i) == 10 and int(i, 16) >= 0 for i in ids)


def test_identity_is_the_same_for_the_same_decisions_written_differently():
    written_out = settings(objective={"masking": {"ratio": 0.15, "mask": 0.8, "random": 0.1, "keep": 0.1}})
    assert run_identity(settings(), "0123456789") == run_identity(written_out, "0123456789")


def test_identity_is_new_only_where_the_computation_is():
    """In order: the default, and two settings that compute what they did; then the two that compute otherwise than
    the identities that they had (920c03ac88 and 305fb719f8)."""
    falling = {"kind": "linear", "to": 0.1}
    masking = [
        {},
        {"ratio": 0.3, "predict": 0.4},
        {"ratio": 0.3, "schedule": falling},
        {"count": "fixed"},
        {"predict": 0.4, "schedule": falling},
    ]
    assert [run_identity(settings(objective={"masking": one}), "0123456789") for one in masking] == [
        "4de9322e33",
        "0656c4987c",
        "5ae75ec2d4",
        "028fe64a44",
        "a9f5fc9106",
    ]


def test_skip_gram_is_new_where_its_text_has_other_frequencies():
    """The last two had the identities 706c99a245 and b2ea6dcce8, and the frequencies of the whole text."""
    texts = [
        {},
        {"word_order": {"kind": "ngrams", "n": 1}},
        {"sentences": 50},
        {"word_order": {"kind": "corpus"}},
    ]
    found = [run_identity(settings("skip_gram", training=training), "0123456789") for training in texts]
    assert found == ["7fc2697adb", "2ce7cc6006", "09462a2985", "c83d5ae6b3"]


def test_settings_that_are_new_change_an_identity_only_where_they_are_not_their_defaults():
    """The identities of a version that had none of these settings."""
    runs = settings(encoder={"norm": "pre"}), settings("causal_lm"), settings("translation")
    assert [run_identity(run, "0123456789") for run in runs] == ["fff3499432", "778929ab66", "d5497d5ad7"]
    encoder, training = VOITA_2019["encoder"], VOITA_2019["training"]
    others = [
        *(settings(encoder={name: value}) for name, value in encoder.items() if name != "dropout"),
        *(settings(training={name: value}) for name, value in training.items() if name != "adam_beta1"),
        settings(training={"adam_beta1": 0.8}),
        *(settings(objective={name: value}) for name, value in VOITA_2019["objective"].items()),
    ]
    assert len({run_identity(run, "0123456789") for run in (settings(), *others)}) == 1 + len(others) == 17
    later = [
        *(settings(training={"schedule": name}) for name in ("inverse_sqrt", "cosine", "constant", "wsd")),
        *(settings(encoder={"activation": name}) for name in ("relu", "swiglu")),
        settings(encoder={"norm_kind": "rms"}),
        *(settings(encoder={"positions": name}) for name in ("sinusoidal", "rotary", "alibi", "none")),
        *(settings(training={"optimizer": name}) for name in ("muon", "sgd")),
        settings(training={"optimizer": {"kind": "sgd", "momentum": 0.5}}),
        settings(encoder={"attention_window": 4}),
    ]
    assert len({run_identity(run, "0123456789") for run in (settings(), *later)}) == 1 + len(later)


class LaterEncoder(EncoderSettings):
    """Settings of an encoder that has one setting more."""

    residual_scale: float = 1.0


class LaterTraining(TrainingSettings):
    """Settings of training that have one setting more."""

    lookahead: int | None = None


class LaterRun(RunSettings):
    """Settings of a run of a later version."""

    encoder: LaterEncoder
    training: LaterTraining


def test_a_later_setting_of_encoder_or_training_changes_an_identity_only_where_it_is_not_its_default():
    def identity(**sections):
        content = settings().model_dump()
        return run_identity(
            LaterRun.model_validate(content | {name: content[name] | values for name, values in sections.items()}),
            "0123456789",
        )

    assert identity() == run_identity(settings(), "0123456789"), (
        "a later setting enters every identity; see FIRST_SETTINGS in ablations/runs/identity.py"
    )
    assert len({identity(), identity(encoder={"residual_scale": 0.5}), identity(training={"lookahead": 5})}) == 3


def test_loggers_are_no_part_of_an_identity():
    runs = [settings(training={"loggers": names}) for names in ([], ["wandb"], ["tensorboard", "wandb"])]
    assert {run_identity(run, "0123456789") for run in runs} == {run_identity(settings(), "0123456789")}


def test_micro_batches_are_no_part_of_an_identity_and_a_run_that_goes_on_takes_those_of_today(
    data_root, tmp_path, monkeypatch
):
    def planned(parts):
        run = Run("mlm", 0, settings(training={"accumulate": parts}))
        return placed_runs((run,), out=tmp_path, data_root=data_root)[0]

    whole, cut = planned(1), planned(2)
    assert whole.run_id == cut.run_id
    create(whole)
    with whole.directory.lock():  # while it is trained
        create(cut)
        assert whole.directory.settings().training.accumulate == 1
        with monkeypatch.context() as patch:  # as where it was locked since
            patch.setattr(RunDirectory, "is_locked", lambda self: False)
            create(cut)
        assert whole.directory.settings().training.accumulate == 1
    create(cut)
    assert whole.directory.settings().training.accumulate == 2
    whole.directory.checkpoints.mkdir()
    whole.directory.last_checkpoint.write_bytes(b"weights")
    whole.directory.write_state("done", step=12, last_checkpoint_bytes=len(b"weights"))
    create(planned(3))
    assert whole.directory.settings().training.accumulate == 2  # those that it was trained with


def done(item):
    """Leave a run as training leaves it."""
    create(item)
    item.directory.checkpoints.mkdir()
    item.directory.last_checkpoint.write_bytes(b"weights")
    item.directory.write_state("done", step=12, last_checkpoint_bytes=len(b"weights"))


def test_a_done_run_takes_the_present_place_of_its_text_and_keeps_what_it_was_trained_with(data_root, tmp_path):
    """Otherwise a measure that is added after its text was renamed would not find the text."""
    for name in ("train.tsv", "validation.tsv"):
        shutil.copy(data_root / name, tmp_path / name)
    first = placed_runs((Run("mlm", 0, settings()),), out=tmp_path, data_root=tmp_path)[0]
    done(first)
    (tmp_path / "train.tsv").rename(tmp_path / "renamed.tsv")
    changed = settings(data={"train": "renamed.tsv"}, training={"accumulate": 2})
    again = placed_runs((Run("mlm", 0, changed),), out=tmp_path, data_root=tmp_path)[0]
    assert again.directory.path == first.directory.path
    with first.directory.lock():  # while it is measured
        create(again)
        assert first.directory.settings() == settings()
    create(again)
    assert first.directory.settings() == settings(data={"train": "renamed.tsv"})
    written = first.directory.description()
    assert written["checksum"] == checksum(written)
    version = file_version(first.directory.path / "run.json")
    create(again)
    assert file_version(first.directory.path / "run.json") == version  # nothing to write


def test_a_damaged_description_of_a_done_run_stays_for_the_worker_to_say(data_root, tmp_path):
    item = placed_runs((Run("mlm", 0, settings()),), out=tmp_path, data_root=data_root)[0]
    done(item)
    path = item.directory.path / "run.json"
    path.write_bytes(b"{")
    create(item)
    assert path.read_bytes() == b"{"


def test_a_done_run_loses_a_plugin_that_its_spec_does_not_name(data_root, tmp_path):
    """Its folder may be from somebody else, and workers execute the plugins that run.json names."""
    item = placed_runs((Run("mlm", 0, settings()),), out=tmp_path, data_root=data_root)[0]
    done(item)
    path, canary = item.directory.path / "run.json", tmp_path / "canary"
    source = f"import pathlib\npathlib.Path({str(canary)!r}).touch()\nRare = 1\n"
    (tmp_path / "evil.py").write_text(source)
    record = {"path": str(tmp_path / "evil.py"), "sha256": hashlib.sha256(source.encode()).hexdigest()}
    before = item.directory.description()
    planted = before | {"plugins": {"evil.py:Rare": record}}
    path.write_text(json.dumps(planted | {"checksum": checksum(planted)}))
    create(item)
    assert item.directory.settings() == settings()
    assert item.directory.description() == before
    assert not canary.exists()


@pytest.fixture
def planned_beside(data_root, tmp_path):
    """Plans a run whose corruption is in a file of a folder."""

    def planned(folder):
        plugins.look_beside(folder / "spec.yaml")
        select = {"kind": "my_corruption.py:Rare", "frequent": 5}
        run = Run("rare", 0, settings(objective={"masking": {"select": select}}))
        return placed_runs((run,), out=tmp_path, data_root=data_root)[0]

    return planned


def test_a_done_run_takes_the_present_place_of_its_plugin(planned_beside, tmp_path):
    (tmp_path / "here").mkdir()
    shutil.copy(PLUGINS / "my_corruption.py", tmp_path / "here")
    first = planned_beside(tmp_path / "here")
    done(first)
    (tmp_path / "here").rename(tmp_path / "there")
    with pytest.raises(RunDirectoryError, match="cannot be read"):
        first.directory.settings()
    create(planned_beside(tmp_path / "there"))
    assert first.directory.settings().objective.masking.select.frequent == 5
    assert first.directory.description()["plugins"]["my_corruption.py:Rare"]["path"] == str(
        tmp_path / "there/my_corruption.py"
    )


def test_a_complete_run_takes_the_present_place_of_its_plugin_only_if_the_recorded_one_is_empty(
    planned_beside, tmp_path
):
    for folder in ("here", "copy"):
        (tmp_path / folder).mkdir()
        shutil.copy(PLUGINS / "my_corruption.py", tmp_path / folder)
    first = planned_beside(tmp_path / "here")
    done(first)
    before = (first.directory.path / "run.json").read_bytes()
    restore(planned_beside(tmp_path / "copy"))  # a copy of the spec, for example that of somebody else
    assert (first.directory.path / "run.json").read_bytes() == before
    (tmp_path / "here").rename(tmp_path / "there")
    assert error_text(RunDirectoryError, first.directory.settings) == (
        f"{first.directory.path / 'run.json'}: my_corruption.py:Rare: {tmp_path}/here/my_corruption.py cannot be "
        "read (No such file or directory); put the file beside the spec, or name it with --plugin, then start "
        "`ablate run` with the spec."
    )
    restore(planned_beside(tmp_path / "there"))
    assert first.directory.settings().objective.masking.select.frequent == 5


def test_a_lexicon_that_has_changed_is_read_again(tmp_path):
    path = tmp_path / "words.txt"
    select = {"kind": "generic", "file": "words.txt"}
    run = Run("arm", 0, settings(objective={"masking": {"select": select}}))

    def words():
        return self_contained(run, tmp_path).settings.objective.masking.select.words

    path.write_text("dog\n")
    assert words() == words() == ("dog",)
    path.write_text("cats\n")
    assert words() == ("cats",)


def test_identity_depends_on_the_text_and_not_on_its_path(data_root, tmp_path):
    for name in ("train.tsv", "validation.tsv"):
        shutil.copy(data_root / name, tmp_path / name)
    here, there = (token_store.address(settings().data, root) for root in (data_root, tmp_path))
    assert here == there
    with (tmp_path / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("one more\tmore one\n")
    assert token_store.address(settings().data, tmp_path) != here


def test_a_run_that_is_there_keeps_its_folder_whatever_its_arm_is_called(data_root, tmp_path):
    first = placed_runs((Run("mlm", 0, settings()),), out=tmp_path, data_root=data_root)[0]
    create(first)
    again, new = placed_runs(
        (Run("baseline", 0, settings()), Run("baseline", 1, settings(seed=1))), out=tmp_path, data_root=data_root
    )
    assert again.directory.path == first.directory.path == tmp_path / "runs" / f"mlm-s0-{first.run_id}"
    assert new.directory.path.name == f"baseline-s1-{new.run_id}"
    assert new.directory.state() == RunState(state="planned", step=0)
    assert again.directory.settings() == settings()


def test_a_run_whose_process_is_gone_stands_at_its_last_save(data_root, tmp_path):
    first = placed_runs((Run("mlm", 0, settings()),), out=tmp_path, data_root=data_root)[0]
    create(first)
    first.directory.write_state("running", step=4, saved_step=4)
    first.directory.write_state("running", step=9)  # and then it is killed
    assert (first.directory.state().state, first.directory.state().step) == ("interrupted", 4)
    with first.directory.lock():
        assert (first.directory.state().state, first.directory.state().step) == ("running", 9)


def test_runs_that_share_their_sections_have_the_identities_of_runs_that_do_not(data_root, tmp_path):
    """Of runs of an arm, which differ in their seed alone, the rest is worked out once; in any order."""
    arms = {"mlm": settings(), "clm": settings("causal_lm"), "wide": settings(encoder={"hidden_size": 24})}
    order = [("mlm", 0), ("mlm", 1), ("clm", 0), ("mlm", 2), ("wide", 1), ("wide", 0), ("clm", 1)]
    runs = [Run(arm, seed, arms[arm].model_copy(update={"seed": seed})) for arm, seed in order]
    assert runs[0].settings.differs_in_seed_alone(runs[1].settings)
    assert not runs[0].settings.differs_in_seed_alone(settings(seed=1))  # equal, and other objects
    placed = placed_runs(runs, out=tmp_path, data_root=data_root)
    alone = [
        run_identity(RunSettings.model_validate_json(run.settings.model_dump_json()), item.tokens)
        for run, item in zip(runs, placed, strict=True)
    ]
    assert [item.run_id for item in placed] == alone
    assert len(set(alone)) == len(order)


def test_two_arms_with_the_same_settings_share_a_run(data_root, tmp_path):
    one, two = placed_runs((Run("a", 0, settings()), Run("b", 0, settings())), out=tmp_path, data_root=data_root)
    assert one.run_id == two.run_id
    assert one.directory.path == two.directory.path
    assert isinstance(one.directory.path, Path)


def test_the_commit_is_our_own_and_never_that_of_a_checkout_around_us(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    copy = Path(shutil.copy(provenance.__file__, tmp_path / "copied.py"))
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "somebody else's"], check=True)
    spec = importlib.util.spec_from_file_location("copied", copy)
    copied = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copied)
    assert copied.checkout() == {"commit": None, "dirty": None}
    (tmp_path / ".gitignore").write_text("__pycache__\n")
    subprocess.run([*git, "add", "copied.py", ".gitignore"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "ours"], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    assert copied.checkout() == {"commit": head, "dirty": False}


def test_a_logger_that_is_not_installed_is_refused_at_its_place_in_the_spec(tmp_path, monkeypatch):
    spec = tmp_path / "it.yaml"
    arms = {"mlm": {"training": {"loggers": ["tensorboard", "wandb"]}}}
    spec.write_text(json.dumps(SPEC | {"arms": arms}, indent=1), encoding="utf-8")
    monkeypatch.setattr("ablations.runs.identity.find_spec", lambda name: None)
    Workspace.open(spec, out=tmp_path / "out", data_root=tmp_path)  # results can still be read
    experiment = load.load(spec)
    runs = grid.runs(experiment)
    sentence = (
        f"{spec}:26:16: arm mlm: training.loggers names wandb, which is not installed; install the extra [wandb], "
        "or leave it out"
    )
    assert error_text(SpecError, require_loggers, spec, runs) == sentence
    assert error_text(SpecError, check, spec, experiment, runs, data_root=tmp_path) == sentence
    monkeypatch.setattr("ablations.runs.identity.find_spec", lambda name: object())
    require_loggers(spec, runs)
