"""Scripts in every text that reaches a page: shown as text, never executed, and no address is asked."""

import json
import re

import pytest

from reports.page import page
from tests.support.fake_experiment import plan, rows, write
from tests.support.hostile import PAYLOADS
from tests.support.html_page import Page

PLACES = ("question", "arm", "claims", "description", "address", "message", "spec")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An experiment in which all payloads stand at every place, with its page."""
    text = " ".join(PAYLOADS)
    arm = f"mlm {text}"
    changes = {
        "question": text,
        "arms": [arm],
        "claims": list(PAYLOADS),
        "runs": [run | {"arm": arm} for run in plan(("mlm",))["runs"]],
        "data": {"description": text, "address": text},
    }
    states = {("mlm", 0): {"state": "failed", "message": text}}
    table_rows = [row | {"arm": arm} for row in rows(("mlm",))]
    out = tmp_path_factory.mktemp("hostile")
    made = write(out, arms=("mlm",), table_rows=table_rows, plan_changes=changes, states=states)
    (made / "spec.yaml").write_text(f"# {text}\n", encoding="utf-8")
    page.write(made)
    return made


def test_there_are_enough_payloads():
    assert len(PAYLOADS) * len(PLACES) > 600
    assert len(set(PAYLOADS)) == len(PAYLOADS)


def test_the_page_shows_them_as_text_and_has_no_tag_of_theirs(folder):
    shown = Page(folder / "report.html")
    assert not shown.foreign
    assert [attributes for tag, attributes in shown.tags if tag == "script"] == [{}]
    assert not any(name.startswith("on") for _, attributes in shown.tags for name in attributes)
    for address in shown.attributes("src", "href", "xlink:href", "action", "data", "srcdoc", "formaction"):
        own = ("data:image/svg+xml;", "data:text/csv;", "#", "figures/", "tables/")
        assert address == "data:," or address.startswith(own), address[:80]
    for payload in PAYLOADS:
        once = " ".join(payload.replace("\x00", "\N{REPLACEMENT CHARACTER}").split())
        assert shown.text.count(once) >= 6, payload


def test_drawings_hold_them_as_text_too(folder):
    drawings = list(folder.glob("figures/*.svg"))
    assert drawings
    for path in drawings:
        assert not re.search(
            r"(?i)<(script|image|foreignobject|iframe|style[^>]*>@import)|\\son\\w+\\s*=", _tags(path)
        ), path


def _tags(path):
    """Return the tags of a file with their attributes, without the text between them."""
    return " ".join(re.findall(r"<[^>]*>", path.read_text(encoding="utf-8")))


def test_markdown_json_and_latex_hold_them_escaped(folder):
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    outside_of_code = "\n".join(line for line in markdown.splitlines() if not line.startswith("    "))
    assert not re.search(r"(?i)<(?!figures/|/?(sub|sup|br)\b)[a-z/!]", outside_of_code)
    assert not re.search(r"(?<!\\)\]\((javascript:|//)", outside_of_code)
    (arm,) = json.loads((folder / "report.json").read_text(encoding="utf-8"))["arms"]
    assert all(payload.replace("\x00", "\N{REPLACEMENT CHARACTER}") in arm["arm"] for payload in PAYLOADS)
    for path in folder.glob("tables/*.tex"):
        assert not re.search(r"\\(input|write|immediate)\b", path.read_text(encoding="utf-8"))
