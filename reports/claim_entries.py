"""What the page says of each claim beyond its verdict, as plain data: its plot, and where it is shown."""

import re
from collections.abc import Mapping
from typing import Any

from pandas import DataFrame

from ablations.claim import Claim
from ablations.effects import Crossing, Difference
from reports.axes import ALONG_STEPS
from reports.claim_texts import described
from reports.corruptions import SHOWN
from reports.folder import printable

NO_CLAIM: dict[str, Any] = {"number": None, "says": None, "as_expected": None, "parts": [], "beside": []}
"""What the entry of a file that cannot be read lacks."""

COLUMNS = (
    *("claim", "part", "decides", "seed", "value", "unit", "layer"),
    *("effect", "low", "high", "confidence", "smallest_effect", "verdict"),
)


def claim_entries(claims: Mapping[str, Claim], said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of the claims, each with further facts.

    `id` is its place on the page; `plot` the files of its plot, None where it is not judged; `shown_in` the
    figures and tables of what it reads.

    Args:
        claims: as their files have them, by name.
        said: the page's content, with the verdicts.
    """
    names: set[str] = set()
    entries = []
    for entry in _printable(said["claims"]):
        name = f"claim-{re.sub('[^a-z0-9._-]+', '_', entry['name'])}"
        while name in names:  # a file that is missing has any name, and names differ in what is left out here
            name += "_"
        names.add(name)
        made = NO_CLAIM | entry | {"id": name, "plot": None, "shown_in": []}
        if "says" in entry:
            made |= {"shown_in": _shown_in(entry, claims.get(entry["name"]), said)}
        if entry["verdict"] != "not run":
            made["plot"] = {kind: f"figures/{name}.{kind}" for kind in ("svg", "csv")} | {
                "label": f"Effect of claim {entry['number'] or entry['name']}",
                "description": described(entry),
            }
        entries.append(made)
    return entries


def _printable(value: Any) -> Any:
    """The value, every text in it fit for HTML and SVG: a file of claims may hold any character."""
    if isinstance(value, dict):
        return {name: _printable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(part) for part in value]
    return printable(value) if isinstance(value, str) else value


def claim_csv(entry: Mapping[str, Any]) -> str:
    """The effects of a claim: a row a part and seed."""
    rows = []
    for decides, parts in (("yes", entry["parts"]), ("no", entry["beside"])):
        for part in parts:
            same = {"claim": entry["name"], "part": part["name"], "decides": decides, "unit": part["unit"]}
            same |= {name: part[name] for name in COLUMNS[-6:]}
            layers = part["chosen_layers"] or [None] * len(part["seeds"])
            rows += [
                same | {"seed": seed, "value": value, "layer": layer}
                for seed, value, layer in zip(part["seeds"], part["values"], layers, strict=True)
            ]
    frame = DataFrame(rows, columns=list(COLUMNS)).astype({"seed": "Int64", "layer": "Int64"})
    return frame.to_csv(index=False, lineterminator="\n")


def _along_steps(claim: Claim | None) -> bool:
    """Whether the course of training is compared, not its end."""
    parts = claim.parts.values() if claim else ()
    return any(
        isinstance(part, Crossing) or (isinstance(part, Difference) and part.of.steps == "area") for part in parts
    )


def _shown_in(entry: Mapping[str, Any], claim: Claim | None, said: Mapping[str, Any]) -> list[dict[str, str]]:
    """Of each measure the figure and the table that show it, where the page has them."""
    found = []
    metrics = _metrics(claim)
    for measure in entry["needs"]["measures"]:
        for number, figure in enumerate(said["figures"], start=1):
            if any(_shows(panel, measure, along_steps=_along_steps(claim)) for panel in figure["panels"]):
                found.append({"id": figure["name"], "title": f"Figure {number}. {figure['title']}"})
                break
        found += [
            {"id": table["name"], "title": f"Table {number}. {table['title']}"}
            for number, table in enumerate(said["tasks"], start=1)
            if table["measure"] == measure
        ]
    found += [
        {"id": figure["name"], "title": f"Figure {number}. {figure['title']}"}
        for number, figure in enumerate(said["figures"], start=1)
        if figure.get("kind") == "settings" and _by_setting(figure, entry["needs"], metrics)
    ]
    if metrics & SHOWN and said["corruptions"]:
        found.append({"id": "corruption-table", "title": "Masked LM and its tokens"})
    if "validation" in entry["needs"]["measures"] and metrics - SHOWN:
        found.append({"id": "arm-table", "title": "Arms"})
    return found


def _metrics(claim: Claim | None) -> set[str]:
    """What its parts read."""
    parts = claim.parts.values() if claim else ()
    quantities = (getattr(part, "of", None) for part in parts)  # distances of runs have a measure of their own
    return {of.metric for of in quantities if of is not None and of.metric}


def _by_setting(figure: Mapping[str, Any], needs: Mapping[str, Any], metrics: set[str]) -> bool:
    """Whether a figure of arms that differ in a setting compares what a claim compares; a loss shows as a gain."""
    compared = set(figure["arms"]) & set(needs["arms"])
    drawn = metrics | ({"gain"} if "loss" in metrics else set())
    return len(compared) > 1 and any(
        panel["measure"] in needs["measures"] and panel["metric"] in drawn for panel in figure["panels"]
    )


def _shows(panel: Mapping[str, Any], measure: str, *, along_steps: bool) -> bool:
    if panel["measure"] != measure or panel["kind"] not in ("arms", "pairs"):
        return False
    if measure in ALONG_STEPS:
        return True
    return bool(panel["axis"] == "step" if along_steps else panel["axis"] in (None, "layer", "ratio"))
