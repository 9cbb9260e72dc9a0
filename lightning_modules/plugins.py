"""Plugins: a user's own parts, which a spec names as ``my_measures.py:Rank`` or ``my_package:Rank``.

A part is an object of a Python file or of an installed package: the card of a measure, the settings of an
objective or of a selection, the content of a task. Loading a part executes its file. So a file is loaded only
if a spec, the option `--plugin` or the record of a planned run names it. From installed packages, only the
entry points of the group `pretraining_ablations` can be named.
"""

import ast
import hashlib
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from lightning_modules.errors import AblationsError, PluginError
from lightning_modules.files import read_file

GROUP = "pretraining_ablations"
"""Group of the entry points of installed packages."""

NAME = r"[^:\s]+:[A-Za-z_]\w*"
"""Pattern of the name of a part: a file or package, a colon, and the name of an object in it."""

TEXT = r"[\w.-]+\.yaml"
"""Pattern of the name of a file that is read and not executed, such as the file of a task."""


@dataclass(frozen=True)
class Plugin:
    """Plugin that was loaded."""

    name: str
    """Name as the spec writes it."""
    path: Path
    """File that was executed or read."""
    sha256: str
    """Hash of its source: of the file alone, or of all Python files of an installed package."""
    part: Any = field(compare=False)
    """Object that the name stands for. For a file that is only read, its content as bytes."""

    @property
    def record(self) -> dict[str, str]:
        """Return what another process needs to load the same plugin."""
        return {"path": str(self.path), "sha256": self.sha256}


@dataclass
class _Search:
    """Places where plugin files are looked for, and the plugins that were loaded from there."""

    folder: Path | None = None
    """Folder of the spec that the user named, or of results; None if plugins may lie in neither."""
    executes: bool = True
    """Whether files of the folder may be executed, which is false for a folder of results."""
    files: tuple[Path, ...] = ()
    loaded: dict[str, Plugin] = field(default_factory=dict)
    modules: dict[tuple[Path, str], ModuleType] = field(default_factory=dict)
    """Executed files, by path and hash, so that a class is the same object however often it is loaded."""


_search = _Search()


def is_name(value: Any) -> bool:
    """Return whether a value is written as the name of a part."""
    return isinstance(value, str) and re.fullmatch(NAME, value) is not None


def is_text(value: Any) -> bool:
    """Return whether a value is the name of a file that is read and not executed."""
    return isinstance(value, str) and re.fullmatch(TEXT, value) is not None


def look_beside(spec: Path | None, *, executes: bool = True, trusted: Iterable[Plugin] = ()) -> None:
    """Look for plugin files in the folder of this spec from now on, and forget all loaded plugins.

    Args:
        spec: path of the spec. With None only the files of `give_files` are used.
        executes: whether files of this folder may be executed, or only be read, as in a folder of results.
        trusted: loaded plugins that are not forgotten, because a spec of the user names them.
    """
    _search.folder = None if spec is None else spec.absolute().parent
    _search.executes = executes
    _search.loaded = {plugin.name: plugin for plugin in trusted}


def give_files(paths: Iterable[Path]) -> None:
    """Use these files for plugins of the same file names, wherever the spec lies (`--plugin`)."""
    _search.files = tuple(path.absolute() for path in paths)
    _search.loaded.clear()


def load(name: str, *, sha256: str | None = None) -> Plugin:
    """Return the plugin of a name, as it was when it was first loaded for the present spec.

    Args:
        sha256: hash that its source must have. A file with another hash is not executed.

    Raises:
        PluginError: the user named no such file, there is no such file or entry point, it cannot be executed, it
            has no such part, or its source has another hash.
    """
    if name not in _search.loaded:
        is_of_file = _is_file_name(name)
        _search.loaded[name] = _of_file(name, _place(name), sha256) if is_of_file else _of_package(name)
    plugin = _search.loaded[name]
    if sha256 not in (None, plugin.sha256):
        raise _changed(name, plugin.path)
    return plugin


def add_text(name: str, folder: Path, *, check: Callable[[Plugin], object]) -> None:
    """Load a file that is read and not executed from a folder of results, unless the spec has loaded one of this
    name.

    Args:
        check: is called with the plugin, and may raise an error, before it counts as loaded.

    Raises:
        PluginError: the file cannot be read.
    """
    if name not in _search.loaded:
        plugin = _of_file(name, folder / name)
        check(plugin)
        _search.loaded[name] = plugin


def loaded() -> list[Plugin]:
    """Return the plugins that were loaded for the present spec, sorted by name."""
    return [_search.loaded[name] for name in sorted(_search.loaded)]


def recall(records: Mapping[str, Mapping[str, str]]) -> None:
    """Load the plugins that another process has recorded, from the places where it found them.

    Args:
        records: `Plugin.record` of each, by name.

    Raises:
        PluginError: a file is gone, or its content has changed.
    """
    for name, record in records.items():
        path = Path(record["path"])
        plugin = _of_file(name, path, record["sha256"]) if _is_file_name(name) else _of_package(name)
        if plugin.sha256 != record["sha256"]:
            raise _changed(name, path)
        _search.loaded[name] = plugin


def _place(name: str) -> Path:
    """Return the path of a plugin file: the one given with `--plugin`, or the one beside the spec.

    Raises:
        PluginError: the user named neither. Results of somebody else must not choose what is executed, but a
            file that is only read may lie beside them.
    """
    file = name.partition(":")[0]
    given = next((path for path in _search.files if path.name == Path(file).name), None)
    if given is not None:
        return given
    if _search.folder is None or not (_search.executes or is_text(name)):
        raise PluginError(
            f"{name}: a file that only a folder of results names is not read; if you trust it, name it with "
            "--plugin."
        )
    return _search.folder / file


def _is_file_name(name: str) -> bool:
    return name.partition(":")[0].endswith((".py", ".yaml"))


def _changed(name: str, path: Path) -> PluginError:
    return PluginError(
        f"{name}: {path} has changed since the run was planned; restore the file, or start `ablate run` with the "
        "spec, which plans a new run with the changed file."
    )


def _of_file(name: str, path: Path, sha256: str | None = None) -> Plugin:
    """Return the plugin in a file.

    Args:
        sha256: hash that its content must have. A file with another hash is not executed.
    """
    try:
        source = read_file(path)
    except OSError as error:
        remedy = "put the file beside the spec, or name it with --plugin"
        if sha256 is not None:
            remedy += ", then start `ablate run` with the spec"
        raise PluginError(f"{name}: {path} cannot be read ({error.strerror}); {remedy}.") from error
    digest = hashlib.sha256(source).hexdigest()
    if sha256 not in (None, digest):
        raise _changed(name, path)
    if is_text(name):
        return Plugin(name, path, digest, source)
    if (path, digest) not in _search.modules:
        _search.modules[path, digest] = _executed(name, path, source, digest)
    module, part_name = _search.modules[path, digest], name.partition(":")[2]
    if not hasattr(module, part_name):
        names = ", ".join(_names_defined(ast.parse(source).body)) or "no name"
        raise PluginError(f"{name}: {path} has no {part_name}; it defines {names}.")
    return Plugin(name, path, digest, getattr(module, part_name))


def _executed(name: str, path: Path, source: bytes, digest: str) -> ModuleType:
    """Execute a file as a module that no import statement finds."""
    module = ModuleType(f"plugin_{path.stem}_{digest[:10]}")
    module.__file__ = str(path)
    linecache.checkcache(str(path))  # docstrings of settings are read from the source
    sys.modules[module.__name__] = module  # annotations are looked up there
    try:
        exec(compile(source, path, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:  # sys.exit() in the file would end the command without a word
        del sys.modules[module.__name__]
        raise failure(name, path, error) from error
    return module


@contextmanager
def guarded(plugin: Plugin | None, *, setting: str = "") -> Iterator[None]:
    """Raise what the code of a plugin raises as one sentence with the line of its file. Errors that are sentences
    already stay as they are, and so do all errors without a plugin.

    Args:
        setting: setting that names the plugin, for the error.
    """
    try:
        yield
    except (Exception, SystemExit) as error:  # sys.exit() in the file would end the command without a word
        if plugin is None or isinstance(error, AblationsError | ValidationError):
            raise
        raise failure(f"{setting}: {plugin.name}" if setting else plugin.name, plugin.path, error) from error


def failure(name: str, path: Path, error: BaseException) -> PluginError:
    """Return an error that says what the code of a plugin has raised, and in which line of the file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    line = lines[-1] if lines else None
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    if isinstance(error, SyntaxError):
        line, reason = error.lineno, error.msg
    place = str(path) if line is None else f"{path}, line {line}"
    return PluginError(f"{name}: {place}: {type(error).__name__}: {reason}; correct the file.")


def _of_package(name: str) -> Plugin:
    """Return the plugin that an entry point of an installed package names."""
    package, _, part_name = name.partition(":")
    points = entry_points(group=GROUP)
    point = next(
        (entry for entry in points if entry.name == part_name and entry.module.partition(".")[0] == package), None
    )
    if point is None:
        names = ", ".join(sorted(f"{entry.module.partition('.')[0]}:{entry.name}" for entry in points))
        raise PluginError(
            f"{name}: no installed package has the entry point {part_name} of {package} in its group {GROUP} "
            f"({names or 'there are none'}); install the package, or name a file, as in "
            f"my_measures.py:{part_name}."
        )
    try:
        part = point.load()
    except (Exception, SystemExit) as error:
        first = str(error).partition("\n")[0]
        reason = f"{type(error).__name__}: {first}"
        raise PluginError(f"{name}: {point.value} cannot be loaded: {reason}; correct the package.") from error
    path = Path(str(sys.modules[point.module].__file__))
    root = Path(str(sys.modules[package].__file__))
    files = sorted(root.parent.rglob("*.py")) if root.name == "__init__.py" else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return Plugin(name, path, digest.hexdigest(), part)


def _names_defined(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the public names that the statements of a module define, without those that it imports."""
    for statement in statements:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            names = [statement.name]
        elif isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        else:
            continue
        yield from (name for name in names if not name.startswith("_"))
