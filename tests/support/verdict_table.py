"""Tables of verdicts in Markdown pages, which are made from the published claims.json of the experiments.

A page names its table in a comment: below `<!-- verdicts on real text -->` stand the numbered claims that are
decided there, and a sentence on the other ones, each claim by the experiment with most seeds, whatever its
verdict (of several, that with the widest encoder, then the one planned first); below `<!-- verdicts on all
numbered claims -->` all of them with every verdict by kind of text. A table ends at `<!-- end of the
verdicts -->`.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

from ablations import yamlfile
from ablations.wording import listed
from reports.claims.entries import ClaimEntry
from reports.claims.verdicts import DECIDED
from reports.claims.words import beside_verdict, headline_effect, other_verdicts, seeds_shown
from tests.support.judged import claim_entry

TABLE = re.compile(
    r"(<!-- verdicts on (real text|all numbered claims) -->\n)(.*?)(<!-- end of the verdicts -->)", re.DOTALL
)
UNDECIDED = ("undecided", "not testable here")
"""Verdicts of claims that were measured and not decided."""


class Published(NamedTuple):
    """A numbered claim in one published experiment."""

    experiment: str
    on_real_text: bool
    is_partial: bool
    """Whether the spec says that the experiment has not come to its planned end."""
    width: int
    """Width of the experiment's encoder; 0 if the spec leaves it out."""
    planned: str
    """Time when the claim was planned with this experiment."""
    entry: ClaimEntry


def with_verdicts(page: Path, results: Path) -> str:
    """Return the text of a page with its tables as `results/NAME/claims.json` have them."""
    text, published = page.read_text(encoding="utf-8"), _published(results)
    place = results.relative_to(page.parent).as_posix()
    tables = {"real text": _decided_on_real_text, "all numbered claims": _all_numbered}
    return TABLE.sub(lambda match: f"{match[1]}\n{tables[match[2]](published, place)}\n{match[4]}", text)


def _published(results: Path) -> list[Published]:
    """Return the numbered claims of all experiments by number; those of one number in the order of the names."""
    claims = []
    for path in sorted(results.glob("*/claims.json")):
        ran = yamlfile.read(path.with_name("spec.yaml")).content
        width = ran.get("encoder", {}).get("hidden_size", 0)
        judged = json.loads(path.read_text(encoding="utf-8"))
        planned = {file["name"]: file["planned"] for file in judged.get("files", ())}
        spec = results.with_name(f"{path.parent.name}.yaml")
        is_partial = spec.exists() and "# State     partial\n" in spec.read_text(encoding="utf-8")
        claims += [
            Published(
                path.parent.name,
                ran["data"]["kind"] != "language",
                is_partial,
                width,
                planned.get(entry.get("file"), ""),
                claim_entry(**entry),
            )
            for entry in judged["claims"]
            if entry["number"]
        ]
    return sorted(claims, key=lambda claim: _order(claim.entry.number))


def _order(number: int | str) -> tuple[int, str]:
    digits, letter = re.fullmatch(r"(\d+)([a-z]?)", str(number)).groups()
    return int(digits), letter


def _decided_on_real_text(published: list[Published], place: str) -> str:
    measured = _with_most_seeds([claim for claim in published if claim.on_real_text])
    rows = [
        f"|{entry.number}. {entry.says}|{_verdict(entry)}|{headline_effect(entry)}"
        f"|[{seeds_shown(entry)}{'*' * is_partial}]({place}/{name}/findings.md)|{_literature(entry)}|\n"
        for name, _, is_partial, _, _, entry in measured
        if entry.verdict in DECIDED
    ]
    preliminary = any(claim.is_partial and claim.entry.verdict in DECIDED for claim in measured)
    note = "\n\\* Preliminary: the experiment has not ended.\n" * preliminary
    heads = "|claim|verdict|effect|seeds|published|\n|---|---|---|--:|---|\n"
    others = {
        verdict: [str(claim.entry.number) for claim in measured if claim.entry.verdict == verdict]
        for verdict in UNDECIDED
    }
    words = "; ".join(f"{verdict}: {listed(numbers, 'and')}" for verdict, numbers in others.items() if numbers)
    return heads + "".join(rows) + note + (f"\n{words[0].upper()}{words[1:]}.\n" if words else "")


def _literature(entry: ClaimEntry) -> str:
    """Return the published numbers, without words beside them and without brackets of two statements."""
    first, _, beside = re.sub(r" \([^)]*;[^)]*\)", "", entry.published or "none").partition(";")
    has_numbers = not first.startswith("no measurement") and re.search(r"\d", beside)
    return f"{first};{beside}" if has_numbers else first


def _verdict(entry: ClaimEntry) -> str:
    """Return the verdict, with the number of parts that hold if not all do, and with other verdicts by other
    readings: ``**partly** (1 of 5 parts hold); supported after the final norm``."""
    parts = f" ({beside_verdict(entry)})" if entry.verdict == "partly" else ""
    return f"**{entry.verdict}**{parts}" + (f"; {others}" if (others := other_verdicts(entry)) else "")


def _with_most_seeds(claims: list[Published]) -> list[Published]:
    """Return each claim that was measured once, by the experiment that judges it with most seeds. Of experiments
    with as many seeds, one that could test it comes first, then that with the widest encoder, then the one planned
    first."""

    def weight(claim: Published) -> tuple[int, bool, int]:
        return claim.entry.n, claim.entry.verdict != "not testable here", claim.width

    measured = [claim for claim in claims if claim.entry.verdict in (*DECIDED, *UNDECIDED)]
    most: dict[str, Published] = {}
    for claim in sorted(measured, key=lambda claim: claim.planned):
        before = most.setdefault(str(claim.entry.number), claim)
        if weight(claim) > weight(before):
            most[str(claim.entry.number)] = claim
    return [claim for claim in measured if most[str(claim.entry.number)] is claim]


def _all_numbered(published: list[Published], place: str) -> str:
    lines = ["| claim | on real text | on the built-in language |\n|---|---|---|\n"]
    for number in dict.fromkeys(claim.entry.number for claim in published):
        same = [claim for claim in published if claim.entry.number == number]
        cells = [
            _verdicts([claim for claim in same if claim.on_real_text is real], place) for real in (True, False)
        ]
        lines.append(f"| {number}. {same[0].entry.says} | {' | '.join(cells)} |\n")
    return "".join(lines)


def _verdicts(claims: list[Published], place: str) -> str:
    measured = [claim for claim in claims if claim.entry.verdict in (*DECIDED, *UNDECIDED)]
    return (
        "<br>".join(
            f"{_verdict(entry)}: {headline_effect(entry)}, n = {seeds_shown(entry)} "
            f"([{name}]({place}/{name}/findings.md))"
            for name, _, _, _, _, entry in measured
        )
        or "not run"
    )
