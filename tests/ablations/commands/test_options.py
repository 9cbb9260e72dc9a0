"""Whatever is wrong with a path in a command line is told in a sentence, and nothing is lost."""

import errno
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import click
import pytest

from ablations.cli import Output, main
from ablations.runs.workspace import Workspace
from ablations.wording import GOES_ON
from lightning_modules.errors import FilesError
from lightning_modules.files import explained, make_folder, require_writable
from tests.support import fake_experiment, tiny_models
from tests.support.command_line import ablate
from tests.support.spec_files import write_spec
from tests.support.start_here import start_here
from tests.support.tiny_text import run_folder, sentences, settings
from tests.support.unprivileged import permissions_hold

NO_PATHS = {"nul": "a\0b", "no text": os.fsdecode(b"a\xff"), "empty": ""}
NOTHING = {
    "in a folder that is not readable": "secret/a",
    "below a file": "file/a",
    "in /proc": "/proc/x",
    "below nothing in /proc": "/proc/x/y",
    "too long": "x" * 300,
    "link to itself": "loop",
}
NO_FILES = {"not there": "nothing/there", "folder": "folder", "not readable": "secret.txt"} | NOTHING
NO_FOLDERS = {"file": "file", "not readable": "secret"} | NOTHING
NOT_WRITABLE = NO_FOLDERS | {"not writable": "shut", "in a folder that is not writable": "shut/a"}
NOT_THERE = NO_FOLDERS | {"not there": "nothing/there"}

GOOD = {
    ("diff", "before"): "results/article-tiny",
    ("diff", "after"): "results/article-tiny",
    ("export", "run_dir"): "out/runs/run-s0-0000000000",
    ("export", "folder"): "exported",
    ("analyse", "folders"): "model",
    ("analyse", "text"): "text.txt",
    ("report", "place"): "spec.yaml",
    "spec": "spec.yaml",
    "specs": "spec.yaml",
    "data_root": "data",
    "out": "out",
}
"""What the other paths of the same command are; an option that is not here is left out."""

WRITE = ("run", "claims", "report", "export", "analyse", "doctor")
FIRST = {"init": ["--text", "data/train.tsv"]}
"""What a command needs besides paths."""

READ_FOLDERS = {("export", "run_dir"): NOT_THERE, ("analyse", "folders"): NOT_THERE}


def path_parameters():
    """Every path that a command takes, and the places that are bad for it."""
    for verb, command in main.commands.items():
        for parameter in command.params:
            if not isinstance(parameter.type, click.Path):
                continue
            if parameter.name == "data_root":
                bad = NOT_THERE
            elif parameter.name in ("out", "published") or (verb, parameter.name) == ("export", "folder"):
                bad = NOT_WRITABLE if verb in WRITE else {}
            elif verb == "init":  # which writes its spec
                bad = {"a folder that is not writable": "shut", "a folder": "folder"}
            else:
                bad = READ_FOLDERS.get((verb, parameter.name), NO_FILES)
            if verb == "doctor":  # which takes seconds to look around first
                bad = {"not writable": "shut", "in /proc": "/proc/x"}
            yield verb, parameter.name, NO_PATHS | bad


def arguments(verb, name, place):
    """The command line with one path that is bad; the others are good, or left out where that is possible."""
    words = [verb, *FIRST.get(verb, ())]
    for parameter in main.commands[verb].params:
        path = place if parameter.name == name else GOOD.get((verb, parameter.name), GOOD.get(parameter.name))
        if isinstance(parameter.type, click.Path) and path is not None:
            words += [path] if isinstance(parameter, click.Argument) else [parameter.opts[0], path]
    return [*words, "--on", "slurm"] if name == "place_file" else words  # without --on no file is read


CLAIM = """
version: 1
claims:
  - name: mlm-first
    says: Masked LM has the lower loss.
    source: nobody
    needs: {arms: [mlm, mt], measures: [validation]}
    effect: {kind: difference, of: {measure: validation, metric: loss}, arm: mt, minus: mlm, direction: higher}
    smallest_effect: 0.1
    expect: supported
    because: it is made up
    family: made-up
"""


@pytest.fixture(scope="module")
def shared(data_root, tokens, tmp_path_factory):
    """A spec with its text, a run without steps, a model, results, and what is in the way of a path."""
    root = tmp_path_factory.mktemp("given")
    directory = run_folder(settings(training={"max_steps": 0}), tokens, out=root / "out")
    start_here(directory, data_root=data_root)
    (root / "data").symlink_to(data_root)
    (root / "claims").mkdir()
    (root / "claims" / "one.yaml").write_text(CLAIM)
    write_spec(root, claims=["one"], seeds=[0, 1, 2])
    fake_experiment.write(root / "results")
    tiny_models.save(root / "model")
    (root / "text.txt").write_text("\n".join(sentences(50, seed=0)))
    (root / "file").write_text("one")
    (root / "loop").symlink_to("loop")
    for name in ("folder", "secret", "shut"):
        (root / name).mkdir()
    (root / "secret.txt").write_text("secret")
    for name, mode in (("secret.txt", 0), ("secret", 0), ("shut", 0o555)):
        (root / name).chmod(mode)
    yield root
    (root / "secret").chmod(0o700)


@pytest.fixture
def folder(shared, monkeypatch):
    """It, as the folder in which commands run."""
    monkeypatch.chdir(shared)
    return shared


def content(folder):
    """Every file below a folder that can be read, with its size and when it was written."""
    return {
        path: (path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*") if not path.is_dir()
    }


@pytest.mark.parametrize(
    ("verb", "name", "bad"), [pytest.param(*case, id="-".join(case[:2])) for case in path_parameters()]
)
def test_a_bad_path_is_a_sentence_and_leaves_everything_as_it_was(verb, name, bad, folder):
    before = content(folder)
    for what, place in bad.items():
        with permissions_hold():
            result = ablate(*arguments(verb, name, place))
        assert isinstance(result.exception, SystemExit), (what, result.exception)
        assert result.exit_code == 2, (what, result.output)
        sentence = result.stderr.strip().splitlines()[-1]
        assert "expected" in sentence if what == "empty" else ascii(place)[1:-1] in sentence, (what, sentence)
    assert content(folder) == before


def test_a_file_of_claims_that_may_not_be_read_is_a_sentence(folder):
    (folder / "claims").chmod(0)
    try:
        with permissions_hold():
            result = ablate("plan", "spec.yaml", "--data-root", "data")
    finally:
        (folder / "claims").chmod(0o700)
    assert result.exit_code == 2
    assert result.stderr.strip() == (
        f"{Path('claims/one.yaml')}: permission is denied; change the permissions or choose another folder."
    )


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "out/tried/plan.json"),
        PermissionError(errno.EACCES, "Permission denied"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", "out/tried/plan.json"),
        OSError("not about a file"),
        ValueError("a bug"),
    ],
    ids=repr,
)
def test_a_bug_keeps_its_traceback(error, folder, monkeypatch):
    def fail(path, **_):
        raise error

    monkeypatch.setattr("ablations.spec.load.load", fail)
    result = ablate("plan", "spec.yaml", "--data-root", "data")
    assert result.exception is error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/elsewhere/x"),
            "/elsewhere/x: the disk is full; free some space.",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", b"/elsewhere/x"),
            "/elsewhere/x: permission is denied; change the permissions or choose another folder.",
        ),
    ],
    ids=repr,
)
def test_a_refusal_of_the_operating_system_is_a_sentence(error, sentence, folder, monkeypatch):
    def fail(path, **_):
        raise error

    monkeypatch.setattr("ablations.spec.load.load", fail)
    result = ablate("plan", "spec.yaml", "--data-root", "data")
    assert (result.exit_code, result.stderr) == (2, f"{sentence}\n")


def test_a_folder_that_is_to_be_written_to_is_tried_before_there_is_anything_to_write(tmp_path):
    require_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "a").chmod(0o555)
    with permissions_hold(), pytest.raises(FilesError) as caught:
        make_folder(tmp_path / "a")
    with permissions_hold(), pytest.raises(FilesError) as tried:
        require_writable(tmp_path / "a" / "new" / "er")
    assert str(tried.value) == str(caught.value).replace("/a cannot", "/a/new/er cannot")
    assert str(caught.value) == (
        f"{tmp_path / 'a'} cannot be written: permission is denied; change the permissions or choose another "
        f"folder, then start again."
    )


def test_validate_finds_all_files_of_a_spec_that_may_not_be_read(folder):
    (folder / "locked").mkdir()
    for name in ("t.tsv", "words.txt", "bank.conllu"):
        (folder / "locked" / name).write_text("text\nthe dog\n")
    arms = {
        "mlm": {},
        "file": {"objective": {"masking": {"select": {"kind": "cloze", "file": "locked/words.txt"}}}},
    }
    spec = write_spec(
        folder / "folder",
        data={"kind": "files", "train": "locked/t.tsv", "validation": "a" * 300 + ".tsv"},
        objective={"kind": "masked_lm"},
        arms=arms,
        measures=[{"kind": "layer_change", "treebank": "locked/bank.conllu"}],
    )
    try:
        (folder / "locked").chmod(0)
        with permissions_hold():
            result = ablate("validate", spec, "--data-root", ".")
    finally:
        (folder / "locked").chmod(0o700)
        spec.unlink()
    denied = "Permission denied; correct the path."
    assert {line.partition(": ")[2] for line in result.stderr.splitlines()} == {
        f"{folder}/locked/t.tsv cannot be read (data.train): {denied}",
        f"{folder}/{'a' * 300}.tsv cannot be read (data.validation): File name too long; correct the path.",
        f"arm file: {folder}/locked/words.txt cannot be read (objective.masking.select.file): {denied}",
        f"measure layer_change: {folder}/locked/bank.conllu cannot be read: {denied}",
    }
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("init", "Number of seeds of each arm. [default: 3]"),
        ("figure", "Sizes and fonts for a paper or for slides. [default: paper]"),
        ("run", "gpus and memory. Works only with --on slurm or --on ray."),
        ("export", "RUN_DIR is the folder of a run, such as out/runs/mlm-s0-4adb6d4d99. DIR is new or empty."),
        ("doctor", "It keeps the speeds in the output root; `plan` estimates times from them."),
        ("validate", "Usage: main validate [OPTIONS] [SPEC]..."),
        (
            None,
            "Exit codes: 0 good; 1 a run or a figure failed, `doctor` found a problem, or with --strict a claim "
            "was not as expected or none was judged; 2 the command stopped with an error, such as a wrong option, "
            "a wrong spec or a full disk; 130 interrupted.",
        ),
    ],
)
def test_a_help_text_says_what_an_option_takes_and_what_comes_back(command, sentence):
    shown = ablate(*([command] if command else []), "--help").output
    assert sentence in " ".join(shown.split())


def test_a_place_that_is_no_spec_is_said_with_what_to_name(tmp_path):
    def refusal(*arguments):
        result = ablate(*arguments)
        return result.exit_code, result.stderr

    gone = tmp_path / "gone"
    assert refusal("report", gone) == (
        2,
        f"{gone} does not exist; name a folder of results, such as out/NAME, or a spec, such as NAME.yaml.\n",
    )
    spec = tmp_path / "gone.yaml"
    assert refusal("report", spec) == (2, f"{spec}: this file does not exist\n")
    assert refusal("claims", tmp_path) == (
        2,
        f"{tmp_path} is a folder; name a spec (`ablate report FOLDER` judges published results).\n",
    )


def test_a_command_without_a_standard_output_ends_well(tmp_path):
    command = f"exec {sys.executable} -m ablations.cli status --out {tmp_path} >&-"
    ended = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def ended(words, cwd):
    """Exit code and standard error of a command of bash, in which ABLATE stands for `ablate`."""
    command = words.replace("ABLATE", f"{sys.executable} -m ablations.cli")
    result = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], cwd=cwd, capture_output=True, text=True)
    return result.returncode, result.stderr


@pytest.mark.parametrize("command", ["status", "plan --resolved spec.yaml --data-root data"])
def test_a_full_disk_behind_the_output_is_one_sentence(command, folder):
    sentence = "the standard output: the disk is full; free some space.\n"
    assert ended(f"ABLATE {command} > /dev/full", folder) == (2, sentence)


def test_a_reader_who_closes_the_output_ends_the_command_without_a_word(folder):
    code, said = ended("ABLATE plan --resolved spec.yaml --data-root data | head -c 1", folder)
    assert (code in (0, 1), said) == (True, "")


def test_a_full_disk_behind_the_output_is_not_that_of_a_file_that_is_written_meanwhile(tmp_path):
    with open("/dev/full", "w") as full:
        output = Output(full)
        with pytest.raises(OSError, match=r"^\[Errno 28\] .*: 'the standard output'$"), explained(tmp_path):
            print("Reading data", file=output, flush=True)
        with suppress(OSError):
            full.close()


@pytest.mark.parametrize(("command", "says"), [("run", f"{GOES_ON}\n"), ("measure", ""), ("plan", "")])
def test_an_interrupt_before_the_first_run_says_that_the_command_goes_on(tmp_path, monkeypatch, command, says):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Workspace, "open", interrupt)
    result = ablate(command, write_spec(tmp_path))
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", says)
