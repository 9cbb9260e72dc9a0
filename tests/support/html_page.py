"""A page of results, read as HTML."""

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"


class Page(HTMLParser):
    """A page as its reader meets it: tags with attributes, texts by tag, tables as lists of rows."""

    VOID = ("meta", "link", "br", "line", "wbr", "img")

    def __init__(self, path):
        super().__init__()
        self.source = Path(path).read_text(encoding="utf-8")
        self.tags, self.texts, self.tables, self.open = [], [], [], []
        self.feed(
            re.sub("</?bdi>", "", self.source)
        )  # it gives a part of a text its own direction, and is no text
        assert not self.open, "every tag is closed"

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in self.VOID:
            return
        self.open.append(tag)
        if tag == "table":
            self.tables.append({"caption": "", "rows": []})
        elif tag == "tr":
            self.tables[-1]["rows"].append([])
        elif tag in ("th", "td"):
            self.tables[-1]["rows"][-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))
        if {"th", "td"} & set(self.open):
            row = self.tables[-1]["rows"][-1]
            row[-1] += data
        elif "caption" in self.open:
            self.tables[-1]["caption"] += data

    @property
    def text(self):
        return " ".join(" ".join(data for tag, data in self.texts if tag != "style").split())

    @property
    def names(self):
        """The names of its parts. Each is there once, references hold, tables are whole and nothing is foreign."""
        names = self.attributes("id")
        assert len(names) == len(set(names))
        wanted = [address[1:] for address in self.attributes("href") if address[0] == "#"]
        wanted += [
            part for part in self.attributes("aria-labelledby", "aria-describedby") for part in part.split()
        ]
        assert set(wanted) <= set(names)
        assert all(len(row) == len(table["rows"][0]) for table in self.tables for row in table["rows"])
        assert all(attributes.get("scope") in ("col", "row") for tag, attributes in self.tags if tag == "th")
        assert not self.attributes("style")
        assert not self.foreign
        return names

    @property
    def images(self):
        """The figures: the alternative text of each, and the SVG that is in its address."""
        found = [attributes for tag, attributes in self.tags if tag == "img"]
        return [(one["alt"], base64.b64decode(one["src"].partition("base64,")[2]).decode()) for one in found]

    @property
    def foreign(self):
        """Tags that no text may bring in, without the page's own script, its last tag, and its figures."""
        known = [
            tag for tag, attributes in self.tags if not attributes.get("src", "").startswith("data:image/svg+xml;")
        ]
        own = known[:-1] if known[-1] == "script" else known
        return set(own) & {"script", "img", "image", "form", "iframe", "object", "embed", "base", "foreignobject"}

    def attributes(self, *names):
        return [value for _, attributes in self.tags for name, value in attributes.items() if name in names]

    def table(self, caption):
        """The one table whose caption starts like that: its header, and its rows by their first cells."""
        (found,) = [table["rows"] for table in self.tables if table["caption"].startswith(caption)]
        header, *body = [[" ".join(cell.split()) for cell in row] for row in found]
        return header, body


def strict_json(path):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


HOSTILE = (
    "</style></title><script>alert('1')</script><img src=x onerror=\"alert(2)\">&amp; “naïve” 日本 🙂 ]]> {{ 7 }}"
)
