"""The tree is what docs/layout.md says, the pages hold together, and imports point one way."""

import ast
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from ablations.spec import load
from tests.support.layout import HEAD, layout

ROOT = Path(__file__).parents[2]
OURS = ("ablations", "lightning_modules", "reports")
MAY_IMPORT = {
    "lightning_modules": {"lightning_modules"},
    "ablations": {"lightning_modules", "ablations"},
    "reports": {"ablations", "reports"},
}
COMPOSES_EVERYTHING = Path("ablations/commands")
HEAVY = {
    "lightning": {"lightning_modules"},
    "matplotlib": {"reports"},
    "seaborn": {"reports"},
    "jinja2": {"reports"},
    "torch": {"lightning_modules", "ablations"},
}
FILES = sorted(path.relative_to(ROOT) for name in OURS for path in (ROOT / name).rglob("*.py"))


@functools.cache
def parsed(path):
    """The syntax tree of a file, which all tests share and none may change."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def imports(path):
    """Top-level names of all modules that a file imports, also inside functions."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_one_way(path):
    package, found = path.parts[0], set(imports(path))
    if path.parent != COMPOSES_EVERYTHING:
        assert found & set(OURS) <= MAY_IMPORT[package]
    for library, owners in HEAVY.items():
        assert library not in found or package in owners, f"{library} belongs to {owners}"


def modules_imported(path):
    """Files and folders of this project that a file imports as it runs, also inside functions."""
    nodes = [*ast.walk(parsed(path))]
    blocks = [node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    for_types = {id(node) for block in blocks for line in block.body for node in ast.walk(line)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in OURS and id(node) not in for_types:
            for name in [f"{node.module}.{alias.name}" for alias in node.names]:
                place = Path(*name.split("."))
                yield next(
                    part
                    for part in (place, *place.parents)
                    if (ROOT / part.with_suffix(".py")).is_file() or (ROOT / part).is_dir()
                )


def room(path):
    """The folder of a package in which a module stands, or the module if it stands in no folder."""
    return Path(*path.with_suffix("").parts[:2])


@pytest.mark.parametrize("package", OURS)
def test_no_two_folders_of_a_package_import_each_other(package):
    """Nor in a circle over others. A module at the root of a package counts as a folder."""
    graph = {}
    for path in [path for path in FILES if path.parts[0] == package and len(path.parts) > 1]:
        needs = {room(place) for place in modules_imported(path) if place.parts[0] == package}
        graph.setdefault(room(path), set()).update(needs - {room(path), Path(package)})
    assert len(graph) > 5
    assert [*TopologicalSorter(graph).static_order()]  # raises CycleError


def test_folders_and_files_are_as_many_as_a_reader_can_hold():
    modules = [path for path in FILES if path.name != "__init__.py"]
    assert len(modules) <= 200, "join two modules that belong together first, as CONTRIBUTING.md says"
    by_folder = Counter(path.parent for path in modules)
    assert {str(folder): count for folder, count in by_folder.items() if count > 16} == {}


SECOND_SENTENCE = re.compile(r"[.!?] [A-Z{]")


def error_texts(tree):
    """The texts in calls of errors, with {} for what is filled in."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("Error"):
            continue
        for node in ast.walk(call):
            if isinstance(node, ast.JoinedStr):
                yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_an_error_is_one_sentence():
    """As far as its text stands in the call; what is put together elsewhere is left to the tests of each error."""
    texts = {(path, text) for path in FILES for text in error_texts(parsed(path))}
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
    assert any(map(SECOND_SENTENCE.search, error_texts(ast.parse(code)))) is found


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["validate", "experiments/smoke.yaml"],
        ["plan", "experiments/article-tiny.yaml"],
        ["plan", "experiments/masking-schedule.yaml"],  # match: predictions, on a text without a token store
    ],
    ids=lambda command: command[-1],
)
def test_looking_does_not_load_torch(command, tmp_path):
    code = (
        "import sys\n"
        "from ablations.cli import main\n"
        "try:\n"
        f"    main({command + (['--out', str(tmp_path)] if command[0] == 'plan' else [])!r})\n"
        "except SystemExit as done:\n"
        "    assert not done.code\n"
        "heavy = {'torch', 'lightning', 'matplotlib', 'jinja2', 'ray'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


def test_no_other_distribution_provides_our_names():
    """``reports`` also exists on the package index; installed next to an editable checkout, it would win."""
    providers = packages_distributions()
    assert {one for name in OURS for one in providers.get(name, ())} <= {"pretraining-ablations"}


def test_the_layout_is_the_tree():
    """After a wanted change: ``REWRITE_LAYOUT=1 pytest tests -k layout``."""
    page, written = ROOT / "docs" / "layout.md", layout(ROOT)
    if os.environ.get("REWRITE_LAYOUT"):
        page.write_text(written, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == written, (
        "docs/layout.md is no longer the tree; write it again: REWRITE_LAYOUT=1 pytest tests -k layout"
    )
    assert all(f"- `{path.name}`" in written for path in FILES if path.name != "__init__.py")


def test_a_layout_has_a_heading_a_folder_and_the_first_sentence_of_each_module(tmp_path):
    inner = tmp_path / "ablations" / "inner"
    for folder in (tmp_path / "lightning_modules", inner, tmp_path / "reports" / "__pycache__"):
        folder.mkdir(parents=True)
    (tmp_path / "lightning_modules" / "__init__.py").write_text('"""How a model learns. No grids."""')
    (tmp_path / "lightning_modules" / "a.py").write_text('"""Return a: as in 5.1, e.g. the\nfirst. And more."""')
    (inner / "page.css").write_text("p {}")
    assert layout(tmp_path).removeprefix(HEAD) == (
        "\n## lightning_modules\n\nHow a model learns.\n\n- `a.py`: Return a: as in 5.1, e.g. the first.\n"
        "\n## ablations/inner\n\n- `page.css`\n"
    )
    (inner / "b.py").write_text("x = 1")
    with pytest.raises(ValueError, match="the module has no docstring; say in its first line what it is"):
        layout(tmp_path)


PAGES = [
    page for folder in ("*", "docs/*", "experiments/*", "benchmarks/**/*") for page in ROOT.glob(f"{folder}.md")
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def texts_of_a_user(tree, *, docstrings):
    """Texts that a user may read: all but docstrings, which are texts of commands alone."""
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and (docstrings or id(node) not in silent):
            yield str(node.value)


@pytest.mark.parametrize("folder", OURS)
def test_no_text_of_a_user_names_a_page_that_a_wheel_lacks(folder):
    texts = [
        (str(path), text)
        for path in FILES
        if path.parts[0] == folder
        for text in texts_of_a_user(parsed(path), docstrings=path.parent == COMPOSES_EVERYTHING)
    ]
    assert texts
    assert [(path, text) for path, text in texts if re.search(r"\b(docs|benchmarks)/\w|LOG\.md", text)] == []


def test_a_text_of_a_user_is_told_from_a_docstring():
    tree = ast.parse('"""a"""\ndef run():\n    """b"""\n    say(f"c {d}", "e")\nf = x\n"""g"""\n')
    assert set(texts_of_a_user(tree, docstrings=False)) == {"c ", "e"}
    assert set(texts_of_a_user(tree, docstrings=True)) == {"a", "b", "c ", "e", "g"}


def test_the_readme_is_read_in_three_minutes():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1400


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_specs_in_the_pages_are_valid(page, tmp_path):
    blocks = re.findall(r"```yaml\n(name:.+?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        spec = tmp_path / "my-text.yaml"
        spec.write_text(block, encoding="utf-8")
        assert load.load(spec).arms


def test_no_file_is_named_after_nothing():
    assert not [path for path in FILES if path.stem in {"utils", "util", "helpers", "common", "misc"}]


def test_no_test_module_imports_another():
    for path in (ROOT / "tests").rglob("*.py"):
        imported = re.findall(r"(?m)^\s*from (\S+) import", path.read_text(encoding="utf-8"))
        assert not [name for name in imported if re.match(r"tests\..*\btest_", name)], path


HEADLESS = re.compile(
    r"(of|the same|same|those|they|what|where|how|whether|that|who|whose|it|its|as|at|by|on|which)\b"
)
"""Beginnings of sentences whose subject stands elsewhere."""
EMPTY_NAMES = {
    *("found", "own", "said", "told", "there", "made", "known", "asked", "wanted"),
    *("more", "most", "some", "one", "same", "again", "now", "so", "lacks", "takes", "thing"),
    *("this", "it", "its", "which", "what", "who", "mine", "ours"),
}
"""Names that mean nothing alone."""


def headless_docstrings(tree):
    """First lines of the docstrings of a module, its classes and functions that make no sense alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if HEADLESS.match(first.lower()):
                yield first


def empty_names(tree):
    """Assigned names, parameters, functions and attributes that mean nothing alone."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case ast.arg(arg=name) | ast.FunctionDef(name=name):
                pass
            case _:
                continue
        if (name.lower() if name.isupper() else name).strip("_") in EMPTY_NAMES:
            yield name


@pytest.mark.parametrize("folder", OURS)
def test_docstrings_and_names_make_sense_alone(folder):
    trees = {path: parsed(path) for path in FILES if path.parts[0] == folder}
    assert trees
    assert not [(str(path), line) for path, tree in trees.items() for line in headless_docstrings(tree)]
    assert not [(str(path), name) for path, tree in trees.items() for name in empty_names(tree)]


def test_a_headless_docstring_and_an_empty_name_are_noticed():
    tree = ast.parse(
        '"""Tables of scores."""\n'
        'class A:\n    """What a table is made from."""\n    def asked(self, told):\n        """Of a run."""\n'
        '        self.made = wanted = told\n        return self.own, "found"\n'
        'def whole():\n    """Ofsets, thoset and whatnot."""\n    unknown = known_step = 1\n'
    )
    assert set(headless_docstrings(tree)) == {"What a table is made from.", "Of a run."}
    assert set(empty_names(tree)) == {"asked", "told", "made", "wanted"}
