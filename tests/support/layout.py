"""docs/layout.md: every module of the three packages with the first sentence of its docstring."""

import ast
import re
from pathlib import Path

PACKAGES = ("lightning_modules", "ablations", "reports")
LISTED = (".py", ".html", ".css", ".js", ".md")

HEAD = """# Layout

Imports go one way: `lightning_modules` -> `ablations` -> `reports`. This page is written from the first
sentence of each module: `REWRITE_LAYOUT=1 pytest tests -k layout`.
"""


def layout(root: Path) -> str:
    """Return the page: a heading a folder, a line a file.

    Raises:
        ValueError: a module has no docstring.
    """
    return HEAD + "".join(_section(folder, root) for name in PACKAGES for folder in _folders(root / name))


def _folders(folder: Path) -> list[Path]:
    inner = sorted(path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__")
    return [folder] + [each for path in inner for each in _folders(path)]


def _section(folder: Path, root: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.suffix in LISTED)
    if not files:
        return ""
    about = [f"{_first_sentence(path)}\n" for path in files if path.name == "__init__.py"]
    lines = [_line(path) for path in files if path.name != "__init__.py"]
    return "\n".join([f"\n## {folder.relative_to(root).as_posix()}\n", *about, *lines, ""])


def _line(path: Path) -> str:
    return f"- `{path.name}`: {_first_sentence(path)}" if path.suffix == ".py" else f"- `{path.name}`"


def _first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    if docstring is None:
        raise ValueError(f"{path}: the module has no docstring; say in its first line what it is.")
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[.?]) (?=[A-Z`])", paragraph)[0]
