"""The site of the documentation: every key of a spec has an entry, and a reader's browser fetches nothing."""

import base64
import hashlib
import importlib.util
import inspect
import json
import re
import shutil
from pathlib import Path
from pkgutil import resolve_name

import pytest
from PIL import Image

from ablations.spec.load import schema
from lightning_modules.config import RunSettings
from lightning_modules.config.training import Muon, TrainingSettings
from tests.support.errors import error_text

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hook():
    place = importlib.util.spec_from_file_location("docs_hook", ROOT / "docs" / "hook.py")
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sections(hook):
    """The page of keys: the entries of each heading, as key: text."""
    parts = re.split(r"^## (.+)$", hook.keys(), flags=re.MULTILINE)[1:]
    return {
        heading: dict(re.findall(r"^\* \*\*`(\w+)`\*\*: (.+)$", text, flags=re.MULTILINE))
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_every_key_of_the_schema_has_one_entry(sections):
    spec = schema()
    forms = [spec, *spec["$defs"].values()]
    unused = spec["$defs"]["Overrides"]  # an arm: the sections of a spec again
    expected = sorted(sorted(form["properties"].keys() - {"kind"}) for form in forms if form is not unused)
    assert sorted(sorted(entries) for entries in sections.values()) == expected


def test_the_entries_say_what_the_models_say(sections):
    """Read from pydantic's own fields, not from the schema that the page is written from."""
    training = sections["`training`"]
    assert training.keys() == TrainingSettings.model_fields.keys()
    for name, field in TrainingSettings.model_fields.items():
        assert training[name].endswith(" ".join(field.description.split()))
    assert sections["`training.optimizer`, kind `muon`"].keys() == Muon.model_fields.keys() - {"kind"}
    assert training["accumulate"].startswith(
        "a whole number at least 1 and below 2,147,483,648; `1` unless given. Number of micro-batches "
    )
    assert training["precision"].startswith("`32-true` or `bf16-mixed`; `32-true` unless given. ")
    assert training["loggers"].startswith("a list of `tensorboard` or `wandb`; `[tensorboard]` unless given. ")
    assert {"`encoder`", "`data`, kind `files`", "`measures`, kind `fine_tuning`"} <= sections.keys()
    assert RunSettings.model_fields.keys() - {"seed"} <= sections["A spec"].keys()


@pytest.mark.parametrize(
    ("markdown", "name", "in_docs", "expected"),
    [
        ("[a](../experiments/README.md#x)", "guide.md", True, "[a](experiments/README.md#x)"),
        ("[a](docs/guide.md#x) ![b](docs/page.png)", "README.md", False, "[a](guide.md#x) ![b](page.png)"),
        ("[a](../docs/claims.md)", "experiments/README.md", False, "[a](../claims.md)"),
        ("[a](claims) [b](results/smoke/)", "experiments/README.md", False, "a b"),
        (
            "[a](https://example.org/docs/) [b](claims.md)",
            "guide.md",
            True,
            "[a](https://example.org/docs/) [b](claims.md)",
        ),
    ],
)
def test_links_lead_from_the_place_of_a_page_in_the_site(markdown, name, in_docs, expected, hook):
    assert hook.with_links_of_the_site(markdown, name=name, in_docs=in_docs) == expected


def test_links_of_a_page_in_a_folder_of_docs_lead_outside_by_one_step_less(hook):
    links = hook.with_links_of_the_site(
        "[a](../guide.md) [b](../../experiments/README.md)", name="tutorials/own-text.md", in_docs=True
    )
    assert links == "[a](../guide.md) [b](../experiments/README.md)"


def executed(folder):
    """A notebook of two cells with their outputs, and the page of an experiment that it wrote."""
    nbformat = pytest.importorskip("nbformat", reason="needs the extra [docs]")
    new = nbformat.v4
    outputs = [
        new.new_output("stream", text="Writing a.yaml\n\x1b[32msupported\x1b[0m\n"),
        new.new_output(
            "execute_result",
            data={
                "text/html": "<div>\n<style scoped>\n  th {}\n</style>\n"
                '<table border="1" class="dataframe"></table></div>'
            },
        ),
        new.new_output("display_data", data={"image/png": base64.b64encode(b"png").decode()}),
    ]
    cells = [
        new.new_markdown_cell("# Title"),
        new.new_code_cell("%%writefile a.yaml\nname: a", outputs=outputs),
        new.new_code_cell("%%sh\nablate run a.yaml"),
    ]
    nbformat.write(new.new_notebook(cells=cells), folder / "one.ipynb")
    page = folder / "one" / "out" / "mine"
    page.mkdir(parents=True)
    (page / "report.html").write_text("<p>page</p>")
    (page / "report.json").write_text(json.dumps({"experiment": "mine", "question": "Why?"}))
    return folder / "one.ipynb"


def test_a_notebook_becomes_a_page_with_its_outputs_and_what_it_wrote(hook, tmp_path):
    markdown, pictures = hook.tutorial(executed(tmp_path))
    assert '```yaml title="a.yaml"\nname: a\n```' in markdown
    assert "```sh\nablate run a.yaml\n```" in markdown
    assert "    supported\n" in markdown
    assert "<table></table>" in markdown
    for dropped in ("Writing", "\x1b", "%%", "<style"):
        assert dropped not in markdown
    assert pictures == {"pictures/one_1_2.png": b"png"}
    assert "![png](pictures/one_1_2.png)" in markdown
    assert "[notebook](one.ipynb)" in markdown
    assert "[mine](../gallery/mine.html)" in markdown


def test_the_gallery_names_the_question_of_each_page(hook, tmp_path):
    entry = hook.exhibit(executed(tmp_path))
    assert entry == "* [Why?](gallery/mine.html) ([how it was made](tutorials/one.md))\n"


def test_a_tutorial_that_nobody_executed_is_refused(hook, tmp_path):
    pytest.importorskip("nbformat", reason="needs the extra [docs]")
    assert (
        error_text(FileNotFoundError, hook.tutorial, tmp_path / "own.ipynb")
        == f"{tmp_path}/own.ipynb: the tutorial was not executed yet; `make docs` does it."
    )


def test_the_python_interface_has_a_promise_for_each_name():
    names = re.findall(r"(?m)^::: ([\w.]+)$", (ROOT / "docs" / "python.md").read_text(encoding="utf-8"))
    assert len(names) > 25
    for name in names:
        item = resolve_name(name)
        assert isinstance(item, dict) or inspect.getdoc(item), name


# The site that `make docs` has built ------------------------------------------------------------------

SITE = ROOT / "out" / "docs"
TUTORIALS = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md"))
ELSEWHERE = r"""["']?(?:https?:)?//"""
FETCHED = re.compile(
    rf"<(?:script|img|iframe|source)[^>]+src={ELSEWHERE}"
    rf"|<link[^>]+rel=[\"']?(?:stylesheet|preconnect|preload|icon)[^>]+href={ELSEWHERE}"
)


@pytest.fixture(scope="module")
def pages():
    pages = sorted(SITE.rglob("*.html"))
    assert pages, "run `make docs` first, as `make test-docs` does"
    return {page.relative_to(SITE).as_posix(): page.read_text(encoding="utf-8") for page in pages}


@pytest.mark.docs
def test_no_page_names_a_thing_to_fetch(pages):
    assert {"index.html", "start.html", "guide.html", "keys.html", "python.html", "gallery.html"} <= pages.keys()
    assert [name for name, text in pages.items() if FETCHED.search(text)] == []
    styles = [path.read_text(encoding="utf-8") for path in SITE.rglob("*.css")]
    assert styles
    assert not [style for style in styles if re.search(r"url\(['\"]?(?:https?:)?//", style)]


@pytest.mark.docs
@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_is_shown_with_what_its_cells_printed(name, pages):
    text = pages[f"tutorials/{name}.html"]
    assert "Traceback" not in text
    written = re.findall(r'href="\.\./gallery/([a-z-]+\.html)"', text)
    assert written
    for page in written:
        assert f"<title>{page.removesuffix('.html')}: " in pages[f"gallery/{page}"]
    notebook = json.loads((SITE / "tutorials" / f"{name}.ipynb").read_bytes())
    assert all(cell["execution_count"] for cell in notebook["cells"] if cell["cell_type"] == "code")


@pytest.mark.docs
def test_the_claim_of_the_tutorial_ends_in_a_verdict():
    content = json.loads((ROOT / "out/tutorials/own-claim/out/masking/claims.json").read_bytes())
    assert [claim["verdict"] for claim in content["claims"]] != ["not run"]


@pytest.mark.docs
def test_the_example_of_the_python_interface_runs(monkeypatch):
    """In the folder of the tutorial whose names it has."""
    monkeypatch.chdir(ROOT / "out" / "tutorials" / "own-claim")
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)
    assert names["verdicts"].keys() == {"more-masks-teach-more"}
    assert set(names["arms"]) == {"mlm-15", "mlm-40"}
    assert len(names["layers"]) == 3


@pytest.mark.docs
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_asks_for_files_alone_and_nothing_is_wider_than_the_window(width):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    from playwright.sync_api import sync_playwright

    requests = []
    own = {"executable_path": chromium, "args": ["--no-sandbox"]}
    with sync_playwright() as playwright, playwright.chromium.launch(**own) as browser:
        context = browser.new_context(offline=True, viewport={"width": width, "height": 900})
        tab = context.new_page()
        tab.on("request", lambda request: requests.append(request.url))
        for name in ("start", "howto", "gallery", "python", *(f"tutorials/{name}" for name in TUTORIALS)):
            tab.goto((SITE / f"{name}.html").as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, name
    assert requests
    assert {url.split(":")[0] for url in requests} <= {"file", "data", "blob"}


def test_the_picture_in_the_readme_shows_the_verdicts_that_are_published():
    """The PNG holds the SHA-256 of the claims.json that it shows. After other verdicts, take the first 1,280 x
    2,000 pixels of the page of article-512 again, and save them with the new hash as the text `claims.json`."""
    claims = ROOT / "experiments/results/article-512/claims.json"
    with Image.open(ROOT / "docs/page.png") as picture:
        assert picture.size == (1280, 2000)
        assert picture.text == {"claims.json": hashlib.sha256(claims.read_bytes()).hexdigest()}
