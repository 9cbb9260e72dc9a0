"""Tables of verdicts in README.md, which are made of the published claims.json of an experiment."""

import json
import re
from collections import Counter
from pathlib import Path

from reports.claims.verdicts import DECIDED
from reports.claims.words import effect

TABLE = re.compile(r"(<!-- verdicts of ([\w.-]+) -->\n)(.*?)(<!-- end of the verdicts -->)", re.DOTALL)


def with_verdicts(text: str, results: Path) -> str:
    """Return a text with every table of verdicts as `results/NAME/claims.json` has them."""
    return TABLE.sub(lambda match: f"{match[1]}\n{_table(results / match[2])}\n{match[4]}", text)


def _table(published: Path) -> str:
    entries = json.loads((published / "claims.json").read_text(encoding="utf-8"))["claims"]
    rows = [
        f"| {entry['says']} | **{entry['verdict']}** | {_effects(entry)} | {entry['n'] or 0} "
        f"| {entry['published'] or 'none'} |\n"
        for entry in entries
        if entry["verdict"] in DECIDED
    ]
    heads = "| claim | verdict | effect | seeds | in the paper |\n|---|---|---|--:|---|\n"
    others = Counter(entry["verdict"] for entry in entries if entry["verdict"] not in DECIDED)
    words = ", ".join(f"{number} {verdict}" for verdict, number in others.items())
    return heads + "".join(rows) + (f"\nOther claims of this experiment: {words}.\n" if words else "")


def _effects(entry: dict) -> str:
    """Every part that decides, with its name where there are several."""
    parts = [part for part in entry["parts"] if not part["condition"]]
    named = {part["name"]: effect(part) for part in parts}
    if len(named) == 1:
        return next(iter(named.values()))
    return "; ".join(f"{name.replace('-', ' ')} {text}" for name, text in named.items())
