"""Examples: the specs that the package ships, with the claims and published curves that they name.

A wheel has them inside the package. In a checkout they are beside the packages, in `experiments`. This module
needs no torch.
"""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from ablations import yamlfile
from ablations.errors import SpecError
from ablations.spec import claims, grid, load
from ablations.spec.figures import published_path
from ablations.wording import nearest
from lightning_modules.config import FilesData
from lightning_modules.errors import FilesError
from lightning_modules.files import require_writable, write_whole

FOLDER = "experiments"
"""Name of the folder of the examples, in a checkout and where they are copied to."""

_PACKAGE = Path(__file__).parents[1]
SHIPPED = _PACKAGE / FOLDER if (_PACKAGE / FOLDER).is_dir() else _PACKAGE.parent / FOLDER


def notice() -> Path:
    """Return the file NOTICE, which gives the sources of the texts that the package does not contain.

    In a wheel the file is among the licences; in a checkout it is beside the packages.
    """
    in_checkout = _PACKAGE.parent / "NOTICE"
    if in_checkout.exists():
        return in_checkout
    return next(
        Path(str(file.locate())) for file in metadata.files("pretraining-ablations") or () if file.name == "NOTICE"
    )


class Example(NamedTuple):
    """Example as `ablate examples` lists it."""

    name: str
    cost: str
    """Time that its runs took or may take, on two CPU cores unless it says otherwise."""
    needs_files: bool
    """Whether it reads text that the package does not contain."""
    question: str


def examples() -> list[Example]:
    """Return all examples, sorted by name."""
    return [_example(path) for path in sorted(SHIPPED.glob("*.yaml"), key=lambda path: path.stem)]


def _example(path: Path) -> Example:
    data = yamlfile.read(path).content["data"]
    opening = header(path)
    return Example(path.stem, short_cost(opening["Cost"]), data["kind"] != "language", opening["Question"])


def header(path: Path) -> dict[str, str]:
    """Return the opening lines of a shipped spec by their keys; a line without a key continues the last. Raise
    a ValueError for a line before `name:` that is no comment of that form."""
    opening: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").split("name:", 1)[0].splitlines():
        match = re.fullmatch(r"# ([A-Z]\w+(?: \w+)*)?  +(.+)", line)
        if match is None or not (match[1] or opening):
            raise ValueError(
                f"{path}: the opening line {line!r} has another form than '# Runs      12 = 4 arms x 3 seeds'; "
                "correct it."
            )
        key = match[1] or list(opening)[-1]
        opening[key] = f"{opening[key]} {match[2]}" if key in opening else match[2]
    return opening


def short_cost(cost: str) -> str:
    """Return the time in the `Cost` line of a spec without how it was measured, such as `16 min`."""
    return re.sub(r" on 2( quiet)? CPU cores$", "", re.split(r" \(|;|,| with ", cost)[0])


def copy(name: str, folder: Path) -> list[Path]:
    """Copy an example to a folder, with all files that it needs to be valid. Return the paths of all files.

    The files are the claims and published curves that it names, the specs that these claims refer to, and the
    files that those need in turn. A file that already exists with the same content is not changed.

    Raises:
        SpecError: there is no such example.
        FilesError: a file with other content is in the way, or the folder cannot be written to. In both cases
            nothing is copied.
    """
    files = {folder / path.relative_to(SHIPPED): path.read_bytes() for path in _with_needed(_path_of(name))}
    for path, content in files.items():
        if path.exists() and (not path.is_file() or path.read_bytes() != content):
            raise FilesError(
                f"{path} already exists and differs from the example; move it away, or give the command in "
                "another folder."
            )
    require_writable(folder)
    for path, content in files.items():
        if not path.exists():
            write_whole(path, content)
    return list(files)


def _path_of(name: str) -> Path:
    path, names = SHIPPED / f"{name}.yaml", [file.stem for file in sorted(SHIPPED.glob("*.yaml"))]
    if name not in names:
        meant = nearest(name, names)
        hint = f"did you mean {meant}?" if meant else "`ablate examples` lists all."
        raise SpecError(f"there is no example {name}; {hint}")
    return path


def _with_needed(spec: Path) -> list[Path]:
    """Return a spec and all files that it needs, directly or not; each file is before those that it needs."""
    paths = [spec]
    for path in paths:  # the list grows in the loop
        paths += [needed for needed in dict.fromkeys(_needed(path)) if needed not in paths]
    return paths


def _needed(path: Path) -> Iterator[Path]:
    """Yield the files that a spec or a file of claims names."""
    if path.suffix != ".yaml":
        return
    content: dict[str, Any] = yamlfile.read(path).content
    if path.parent.name == claims.FOLDER:
        needs = (claim.get("needs", {}) for claim in content["claims"])
        yield from (SHIPPED / need["spec"] for need in needs if "spec" in need)
        return
    yield from (claims.path_of(name, spec=path) for name in content.get("claims", ()))
    yield from (published_path(name, spec=path) for name in content.get("published", ()))


def files_of(spec: Path) -> list[str]:
    """Return the files of text, lexica and treebanks that a spec needs, as it names them.

    Files of tasks are not included, because tasks without files are left out.
    """
    experiment = load.load(spec)
    files: list[str | None] = []
    for run in grid.runs(experiment):
        data, masking = run.settings.data, getattr(run.settings.objective, "masking", None)
        if isinstance(data, FilesData):
            files += [*data.train, *data.validation, *data.test]
        if masking is not None:
            files += [getattr(masking.select, key, None) for key in ("file", "treebank")]
    files += [getattr(measure, "treebank", None) for measure in experiment.measures]
    return list(dict.fromkeys(filter(None, files)))
