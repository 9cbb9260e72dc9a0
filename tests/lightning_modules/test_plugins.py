"""Parts of one's own: files and packages that are named, executed once, and recognised by their source."""

import os
import sys
from importlib.metadata import EntryPoint

import pytest

from lightning_modules import plugins
from lightning_modules.errors import PluginError
from tests.support.errors import error_text


@pytest.fixture
def beside(tmp_path):
    """Files of the folder of a spec, where plugins are looked for."""

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        plugins.look_beside(tmp_path / "spec.yaml")
        return tmp_path

    yield write
    plugins.give_files(())
    plugins.look_beside(tmp_path / "nowhere" / "spec.yaml")


@pytest.mark.parametrize("name", ["a.py:Rank", "folder/a.py:rank_2", "my_package:Rank"])
def test_a_name_has_a_place_and_a_thing(name):
    assert plugins.is_name(name)


@pytest.mark.parametrize("name", ["layer_change", "a.py", "a.py:", ":Rank", "a.py:2", "a b.py:Rank", None, {}])
def test_other_words_are_no_names(name):
    assert not plugins.is_name(name)


def test_a_part_is_an_object_of_its_file(beside):
    folder = beside(a="Rank = 7\n")
    plugin = plugins.load("a.py:Rank")
    assert (plugin.part, plugin.path) == (7, folder / "a.py")
    assert plugins.loaded() == [plugin]


def test_a_file_is_executed_once_for_each_content(beside):
    beside(a="class Rank: pass\n")
    first = plugins.load("a.py:Rank").part
    beside()
    assert plugins.load("a.py:Rank").part is first
    beside(a="class Rank: changed = True\n")
    assert plugins.load("a.py:Rank").part is not first


def test_nothing_is_executed_before_it_is_named(beside, tmp_path):
    beside(a=f"open({str(tmp_path / 'executed')!r}, 'w').close()\nRank = 1\n")
    plugins.give_files([tmp_path / "a.py"])
    assert not (tmp_path / "executed").exists()
    plugins.load("a.py:Rank")
    assert (tmp_path / "executed").exists()


def test_a_file_of_the_command_line_takes_the_place_of_that_beside_the_spec(beside, tmp_path):
    beside(a="Rank = 'beside'\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.py").write_text("Rank = 'given'\n")
    plugins.give_files([tmp_path / "elsewhere" / "a.py"])
    assert plugins.load("a.py:Rank").part == "given"


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        ("", "b.py:Rank",
            "b.py:Rank: {}/b.py cannot be read (No such file or directory); put the file beside the spec, or "
            "name it with --plugin."),
        ("import math\nfrom typing import Any\nOther = _X = 1\nclass Ranks: ...\n", "a.py:Rank",
            "a.py:Rank: {}/a.py has no Rank; it defines Other, Ranks."),
        ("import math\n", "a.py:Rank", "a.py:Rank: {}/a.py has no Rank; it defines no name."),
        ("x = 1\ndef f(:\n", "a.py:Rank", "a.py:Rank: {}/a.py, line 2: SyntaxError: invalid syntax; correct the "
         "file."),
        ("x = 1\n\n1 / 0\n", "a.py:Rank", "a.py:Rank: {}/a.py, line 3: ZeroDivisionError: division by zero; "
         "correct the file."),
        ("import sys\n\nsys.exit(3)\n", "a.py:Rank", "a.py:Rank: {}/a.py, line 3: SystemExit: 3; "
         "correct the file."),
        ("", "os:system", "os:system: no installed package has the entry point system of os in its group "
         "pretraining_ablations (there are none); install the package, or name a file, as in "
         "my_measures.py:system."),
    ],
)  # fmt: skip
def test_a_part_that_is_not_to_be_had_is_one_sentence(beside, text, name, sentence, monkeypatch):
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])
    folder = beside(a=text)
    assert error_text(PluginError, plugins.load, name) == sentence.format(folder)


def test_in_a_folder_of_results_files_are_read_and_none_is_executed(beside, tmp_path):
    folder = beside(a="raise SystemError('must not be executed')\n")
    (folder / "task.yaml").write_text("kind: span\n")
    plugins.look_beside(folder / "spec.yaml", executes=False)
    assert plugins.load("task.yaml").part == b"kind: span\n"
    assert error_text(PluginError, plugins.load, "a.py:Rank") == (
        "a.py:Rank: a file that only a folder of results names is not read; if you trust it, name it with "
        "--plugin."
    )
    os.mkfifo(folder / "pipe.yaml")
    (folder / "device.yaml").symlink_to("/dev/zero")
    for name in ("pipe.yaml", "device.yaml"):
        assert error_text(PluginError, plugins.load, name) == (
            f"{name}: {folder}/{name} cannot be read (it is not an ordinary file); put the file beside the spec, "
            "or name it with --plugin."
        )


def test_another_process_loads_the_same_source_or_none(beside, tmp_path):
    folder = beside(a="Rank = 7\n")
    records = {"a.py:Rank": plugins.load("a.py:Rank").record}
    plugins.look_beside(tmp_path / "nowhere" / "spec.yaml")
    plugins.recall(records)
    assert plugins.load("a.py:Rank").part == 7
    (folder / "a.py").write_text("raise SystemError('must not be executed')\n")
    assert error_text(PluginError, plugins.recall, records) == (
        f"a.py:Rank: {folder}/a.py has changed since the run was planned; restore the file, or start `ablate "
        "run` with the spec, which plans a new run with the changed file."
    )


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Package with an entry point, as if it were installed."""
    folder = tmp_path / "some_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "cards.py").write_text("from some_package.numbers import Rank\n")
    (folder / "numbers.py").write_text("Rank = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("Rank", "some_package.cards:Rank", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point] if group == plugins.GROUP else [])
    yield folder
    for name in [name for name in sys.modules if name.startswith("some_package")]:
        del sys.modules[name]


def test_an_entry_point_of_a_package_is_hashed_with_all_its_files(beside, package):
    beside()
    plugin = plugins.load("some_package:Rank")
    assert (plugin.part, plugin.path) == (7, package / "cards.py")
    (package / "numbers.py").write_text("Rank = 8\n")
    with pytest.raises(PluginError, match="has changed since the run was planned; restore"):
        plugins.recall({plugin.name: plugin.record})
    with pytest.raises(PluginError, match=r"the entry point Other of some_package .*\(some_package:Rank\)"):
        plugins.load("some_package:Other")
