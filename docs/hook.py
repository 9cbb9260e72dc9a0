"""Hook of mkdocs: the pages outside docs/, the page of all keys of a spec, written from their docstrings, the
tutorials with their outputs, and the pages of results that these wrote."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablations.spec.load import schema
from ablations.wording import listed

ROOT = Path(__file__).parents[1]
OUTSIDE = ("*.md", "LICENSE", "NOTICE", "experiments/**/*", "benchmarks/**/*.md")
"""Files outside docs/ that pages link to; they have the same place in the site."""
KEYS = "keys.md"
TUTORIALS = ROOT / "out" / "tutorials"
"""Folder of the notebooks that `make docs` has executed, each with the folder in which it ran beside it."""
GALLERY = "gallery.md"
WORDS = {"integer": "a whole number", "number": "a number", "string": "text", "boolean": "`true` or `false`"}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages and files outside docs/, the page of keys, the tutorials and the pages of results."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, KEYS, content=keys()))
    for path in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        notebook = TUTORIALS / f"{path.stem}.ipynb"
        markdown, pictures = tutorial(notebook)
        files.remove(files.src_uris[f"tutorials/{path.name}"])  # the same without outputs
        files.append(File.generated(config, f"tutorials/{path.name}", content=markdown))
        files.append(File.generated(config, f"tutorials/{notebook.name}", abs_src_path=str(notebook)))
        for name, content in pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
        for page in pages_of(notebook):
            files.append(File.generated(config, f"gallery/{page.parent.name}.html", abs_src_path=str(page)))
    for path in sorted({path for pattern in OUTSIDE for path in ROOT.glob(pattern) if path.is_file()}):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix != ".xz":  # archives of runs, which nobody reads here
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return a page with links that fit the site, where docs/ is the root; the gallery with the pages of the
    tutorials."""
    if page.file.src_uri == GALLERY:
        markdown += "".join(map(exhibit, sorted(TUTORIALS.glob("*.ipynb"))))
    return with_links_of_the_site(
        markdown, name=page.file.src_uri, in_docs=(ROOT / "docs" / page.file.src_uri).exists()
    )


def with_links_of_the_site(markdown: str, *, name: str, in_docs: bool) -> str:
    """Return a page whose links lead from its place in the site; links to folders become plain words."""
    up = "../" * name.count("/")
    outside, inside = (f"]({up}../", f"]({up}") if in_docs else (f"]({up}docs/", f"]({up}")
    markdown = markdown.replace(outside, inside)
    return re.sub(r"\[([^]]+)\]\((?!https://)(?:[^)#]*/)?[a-z]*\)", r"\1", markdown)


def tutorial(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """Return an executed notebook in Markdown, with links to it and to the pages that it wrote; and its pictures.

    Raises:
        FileNotFoundError: nobody has executed it.
    """
    import nbformat
    from nbconvert import MarkdownExporter
    from nbconvert.preprocessors import CoalesceStreamsPreprocessor

    if not notebook.is_file():
        raise FileNotFoundError(f"{notebook}: the tutorial was not executed yet; `make docs` does it.")
    names = {"unique_key": notebook.stem, "output_files_dir": "pictures"}
    exporter = MarkdownExporter()
    exporter.register_preprocessor(CoalesceStreamsPreprocessor(), enabled=True)  # a command prints in many pieces
    body, resources = exporter.from_notebook_node(nbformat.read(notebook, 4), resources=names)
    end = f"This page is a [notebook]({notebook.name}), executed when the site was built."
    if pages := [f"[{page.parent.name}](../gallery/{page.parent.name}.html)" for page in pages_of(notebook)]:
        end += f" Pages of results that it wrote: {listed(pages, 'and')}."
    return f"{as_of_the_site(body)}\n\n---\n\n{end}\n", resources["outputs"]


def as_of_the_site(markdown: str) -> str:
    """Return the Markdown of a notebook with the magics of cells as languages and titles, and plain tables."""
    markdown = re.sub(r"```\w*\n(?:%%sh\n|!)", "```sh\n", markdown)
    for suffix, language in (("py", "python"), ("yaml", "yaml")):
        written = rf"```\w*\n%%writefile (\S+\.{suffix})\n"
        markdown = re.sub(written, rf'```{language} title="\1"\n', markdown)
    markdown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", markdown)  # colours, which a kernel asks all commands for
    markdown = re.sub(r"(?m)^    (Writing|Overwriting) \S+\n", "", markdown)
    markdown = re.sub(r"<style scoped>.*?</style>\n", "", markdown, flags=re.DOTALL)
    return markdown.replace('<table border="1" class="dataframe">', "<table>")


def pages_of(notebook: Path) -> list[Path]:
    """Return the pages of results that a notebook wrote."""
    return sorted((notebook.parent / notebook.stem).glob("out/*/report.html"))


def exhibit(notebook: Path) -> str:
    """Return the entries of the gallery for the pages of a notebook."""
    entries = []
    for page in pages_of(notebook):
        report = json.loads((page.parent / "report.json").read_bytes())
        name = report["experiment"]
        made = f"([how it was made](tutorials/{notebook.stem}.md))"
        entries.append(f"* [{report['question'] or name}](gallery/{name}.html) {made}\n")
    return "".join(entries)


def keys() -> str:
    """Return the page of all keys of a spec in Markdown, section by section, from its JSON Schema."""
    spec = schema()
    lines = [
        "# Keys of a spec\n",
        "Written from the settings themselves; `ablate validate --schema` prints the same for an editor. A key "
        "without a default is needed where its section is written, or follows from others as it says.\n",
    ]
    for heading, section in _sections(spec, (), spec["$defs"], set()):
        lines += [f"## {heading}\n", f"{_one_line(section.get('description', ''))}\n"]
        lines += [_entry(key, form) for key, form in section["properties"].items() if key != "kind"]
        lines.append("")
    return "\n".join(lines)


def _sections(
    section: dict[str, Any], path: tuple[str, ...], sections: dict[str, Any], met: set[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a section and then every section below it, each under the first place where it may stand."""
    kind = section["properties"].get("kind", {}).get("const")
    yield f"`{'.'.join(path)}`" + (f", kind `{kind}`" if kind else "") if path else "A spec", section
    for key, form in section["properties"].items():
        for name in _references(form):
            if name not in met:
                met.add(name)
                yield from _sections(sections[name], (*path, key), sections, met)


def _references(form: Any) -> Iterator[str]:
    """Yield the names of the sections that a form refers to."""
    if isinstance(form, dict):
        if "$ref" in form:
            yield form["$ref"].rpartition("/")[2]
        for part in (
            *form.get("anyOf", ()),
            *form.get("oneOf", ()),
            form.get("items"),
            form.get("additionalProperties"),
        ):
            yield from _references(part)


def _entry(key: str, form: dict[str, Any]) -> str:
    default = f"; `{_written(form['default'])}` unless given" if "default" in form else ""
    return f"* **`{key}`**: {listed(_forms(form))}{default}. {_one_line(form.get('description', ''))}".rstrip()


def _forms(form: dict[str, Any]) -> list[str]:
    """Return what a key may hold, in words, each once."""
    if parts := form.get("anyOf") or form.get("oneOf"):
        return list(dict.fromkeys(word for part in parts for word in _forms(part)))
    if "$ref" in form:
        return ["a mapping"]
    if "enum" in form or "const" in form:
        return [f"`{_written(value)}`" for value in form.get("enum") or [form["const"]]]
    match form.get("type"):
        case "array":
            items = form.get("items") or {}
            return [f"a list of {listed(_forms(items))}" if items else "a list"]
        case "object":
            return ["a mapping"]
        case "null":
            return ["empty"]
        case kind:
            return [WORDS.get(kind or "", "a value") + _limits(form)]


def _limits(form: dict[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    limits = [f"{word} {form[key]:,.12g}" for key, word in words.items() if key in form]
    return f" {' and '.join(limits)}" if limits else ""


def _written(value: Any) -> str:
    """Return a value as a spec writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    words = {True: "true", False: "false", None: "empty"}
    return words[value] if value is None or isinstance(value, bool) else str(value) or '""'


def _one_line(text: str) -> str:
    return " ".join(text.split())
