"""A figure as SVG that can stand alone and inside a page, next to others.

Matplotlib's SVG names its parts alike in every figure, styles the whole document it is put into, and
carries a date. Here it gets names of its own, plain attributes that the strictest style policy allows and the
style of a page can overrule, no background, a description for readers who do not see it, and the same bytes for
the same figure.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

FONTS = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
_FONT_SIZE = re.compile(r"[\d.]+px")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")


def render(figure: Figure, *, name: str, label: str, description: str) -> str:
    """The figure as one `<svg>` element with the role of an image, all its text as text.

    Args:
        figure: drawn, not yet saved.
        name: unique on the page; letters, digits, `-` and `_`.
        label: what the figure is, in a few words.
        description: what it shows, for a reader who does not see it.
    """
    root = _without_namespaces(_saved(figure, name=name))
    for parent in root.iter():
        for child in [c for c in parent if c.tag in ("metadata", "style")]:
            parent.remove(child)
    _name_apart(root, prefix=name)
    for element in root.iter():
        _style_as_attributes(element)
        if element.text and not element.text.strip():
            element.text = None
        element.tail = None
    root.attrib |= {
        "xmlns": "http://www.w3.org/2000/svg",
        "role": "img",
        "aria-label": label,
        "aria-describedby": f"{name}-description",
        "fill": "#000000",  # said, so that a page can give what Matplotlib leaves black another colour
        "font-family": FONTS,
        "stroke-linejoin": "round",
    }
    described = ElementTree.Element("desc", id=f"{name}-description")
    described.text = description
    root.insert(0, described)
    return ElementTree.tostring(root, encoding="unicode")


@contextmanager
def lacking_glyphs() -> Iterator[None]:
    """Let text be laid out whose letters our fonts lack: it stays text, and the reader's fonts draw it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ ", category=UserWarning)
        yield


def _saved(figure: Figure, *, name: str) -> ElementTree.Element:
    """Matplotlib's own SVG, without a date and with identifiers that do not change from call to call."""
    sink = io.StringIO()
    for ground in (figure.patch, *(ax.patch for ax in figure.axes)):
        if to_hex(ground.get_facecolor()) == "#ffffff":
            ground.set_visible(False)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), lacking_glyphs():
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return ElementTree.fromstring(sink.getvalue())


def _without_namespaces(root: ElementTree.Element) -> ElementTree.Element:
    """Inside HTML the names stand alone: `svg`, `href`."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        for key in [key for key in element.attrib if "}" in key]:
            element.attrib[key.rpartition("}")[2]] = element.attrib.pop(key)
    return root


def _name_apart(root: ElementTree.Element, *, prefix: str) -> None:
    """Prefix the identifiers that something refers to, drop the others."""
    used = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "href":
                used.add(value.removeprefix("#"))
                element.set(key, f"#{prefix}-{value.removeprefix('#')}")
            elif match := _REFERENCE.search(value):
                used.add(match[1])
                element.set(key, _REFERENCE.sub(rf"url(#{prefix}-\1)", value))
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in used:
            element.set("id", f"{prefix}-{own}")


def _style_as_attributes(element: ElementTree.Element) -> None:
    """A page may forbid `style`; the same declarations as attributes of SVG are no styles to it."""
    for declaration in element.attrib.pop("style", "").split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":  # shorthand that older Matplotlib writes and that is no attribute
            key, value = "font-size", _FONT_SIZE.findall(value)[0]
        if key and key != "font-family":  # the whole figure has one
            element.set(key, value)
