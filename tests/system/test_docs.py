"""The site of the documentation: every key of a spec has an entry, and a reader's browser fetches nothing."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablations.spec.schema import schema
from lightning_modules.config import RunSettings
from lightning_modules.config.training import Muon, TrainingSettings

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
    assert training["accumulate"].startswith("a whole number at least 1; `1` unless given. Micro-batches ")
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


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path):
    pytest.importorskip("material", reason="needs mkdocs-material, the extra [docs]")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    pages = list(tmp_path.rglob("*.html"))
    assert {"index.html", "guide.html", "keys.html"} <= {page.name for page in pages}
    elsewhere = r"""["']?(?:https?:)?//"""
    links = r"<link[^>]+rel=[\"']?(?:stylesheet|preconnect|preload|icon)[^>]+href="
    fetched = re.compile(rf"<(?:script|img|iframe|source)[^>]+src={elsewhere}|{links}{elsewhere}")
    assert [page for page in pages if fetched.search(page.read_text(encoding="utf-8"))] == []
    styles = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.css")]
    assert styles
    assert not [style for style in styles if re.search(r"url\(['\"]?(?:https?:)?//", style)]
