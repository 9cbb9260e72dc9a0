"""The tree is what the README says, and imports point one way."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("ablations", "lightning_modules", "reports")
MAY_IMPORT = {
    "lightning_modules": {"lightning_modules"},
    "ablations": {"lightning_modules", "ablations"},
    "reports": {"ablations", "reports"},
}
COMPOSES_EVERYTHING = Path("ablations/cli.py")
HEAVY = {
    "lightning": {"lightning_modules"},
    "matplotlib": {"reports"},
    "seaborn": {"reports"},
    "jinja2": {"reports"},
    "torch": {"lightning_modules", "ablations"},
}
FILES = sorted(path.relative_to(ROOT) for name in OURS for path in (ROOT / name).rglob("*.py"))


def imports(path):
    """Top-level names of all modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_one_way(path):
    package, found = path.parts[0], set(imports(path))
    if path != COMPOSES_EVERYTHING:
        assert found & set(OURS) <= MAY_IMPORT[package]
    for library, owners in HEAVY.items():
        assert library not in found or package in owners, f"{library} belongs to {owners}"


SECOND_SENTENCE = re.compile(r"[.!?] [A-Z{]")


def error_texts(source):
    """The texts in calls of errors, with {} for what is filled in."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("Error"):
            continue
        for node in ast.walk(call):
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_an_error_is_one_sentence():
    """As far as its text stands in the call; what is put together elsewhere is left to the tests of each error."""
    texts = {(path, text) for path in FILES for text in error_texts((ROOT / path).read_text(encoding="utf-8"))}
    assert len(texts) > 200
    assert [(path, text) for path, text in texts if SECOND_SENTENCE.search(text)] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raise DataError("a is empty; give text.")', False),
        ('raise DataError(f"{path}.txt is of v1.5; give {rows} rows.") from error', False),
        ('say("Done. Next.")', False),
        ('raise DataError("a is empty. Give text.")', True),
        ('raise DataError(f"{path} is empty. " f"{remedy}.")', True),
        ('problem = errors.DataError("a is " + ("empty. Give text." if empty else "there."))', True),
    ],
)
def test_a_second_sentence_is_found(code, found):
    assert any(map(SECOND_SENTENCE.search, error_texts(code))) is found


@pytest.mark.parametrize(
    "command",
    [["--help"], ["validate", "experiments/smoke.yaml"], ["plan", "experiments/article-tiny.yaml"]],
    ids=lambda command: command[0],
)
def test_looking_does_not_load_torch(command, tmp_path):
    code = (
        "import sys\n"
        "from ablations.cli import main\n"
        "try:\n"
        f"    main({command + (['--out', str(tmp_path)] if command[0] == 'plan' else [])!r})\n"
        "except SystemExit as done:\n"
        "    assert not done.code\n"
        "heavy = {'torch', 'lightning', 'matplotlib', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


@pytest.mark.parametrize("name", OURS)
def test_no_other_distribution_provides_our_names(name):
    """``reports`` also exists on the package index; installed next to an editable checkout, it would win."""
    assert set(packages_distributions().get(name, ())) <= {"pretraining-ablations"}


def test_the_readme_map_is_the_tree():
    """Every file of the three packages has its line in the map, and every line a file."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("## Map")[1].split("```")[1]
    listed, folder = set(), {}
    for line in block.splitlines()[1:]:
        match = re.match(r"( *)(\S+)", line)
        if match is None:
            continue
        depth, name = len(match[1]) // 2, match[2]
        folder[depth] = name
        if name.endswith((".py", ".html", ".css", ".js", ".md")):
            listed.add("".join(folder[level] for level in range(depth)) + name)
    templates = {str(p.relative_to(ROOT)) for p in (ROOT / "reports/templates").iterdir()}
    there = {str(path) for path in FILES if path.name != "__init__.py"} | templates
    assert listed == there


def test_no_file_is_named_after_nothing():
    assert not [path for path in FILES if path.stem in {"utils", "util", "helpers", "common", "misc"}]
