"""What `ablate claims` prints: a line a claim, and below why claims are not run and what has changed."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from ablations.tables import console_for_tables
from reports.claim_texts import seeds_for_all
from reports.claims import changes

STYLES = {
    "supported": "green",
    "contradicted": "red",
    "equivalent": "cyan",
    "undecided": "yellow",
    "insufficient evidence": "dim",
    "not run": "dim",
}


NARROWEST = 132
"""Characters of a line that a table needs; in fewer each claim has lines of its own."""

HEADS = ("verdict", "effect", "seeds", "can see", "would decide", "expected")


def claims_table(content: Mapping[str, Any]) -> None:
    """The content of claims.json for people; not narrower than its rows where nobody watches."""
    console = console_for_tables()
    if console.width < NARROWEST:
        _print_lines(console, content)
    else:
        _print_table(console, content)
    _say(console, "effect, seeds, can see: of the part that decides")
    _say(console, "can see: the smallest effect that these seeds find 8 times in 10")
    _say(
        console,
        "would decide: the seeds that find the smallest effect that matters, or its absence, 8 times in 10, in "
        "every part that is open; none: a condition surely fails, which more seeds do not mend",
    )
    _say(console, "(!): not as expected")
    for claim in content["claims"]:
        _say(console, f"{_label(claim)}: {claim['verdict']}: {claim['rule']}")
    for file in content["files"]:
        for sentence in changes(file):
            _say(console, f"{file['name']}: {sentence}")


def _print_lines(console: Console, content: Mapping[str, Any]) -> None:
    """Under the name of each claim what the table has in a row."""
    console.print(content["experiment"], style="italic", highlight=False, markup=False)
    for claim in content["claims"]:
        _, name, verdict, *others = _cells(claim)
        number = f"{claim['number']}. " if claim.get("number") else ""
        console.print(f"{number}{name}", style="bold", highlight=False, markup=False, soft_wrap=True)
        said = [f"{head} {cell}" for head, cell in zip(HEADS[1:], others, strict=True) if cell]
        console.print("  " + "; ".join([verdict, *said]), highlight=False, soft_wrap=True)


def _print_table(console: Console, content: Mapping[str, Any]) -> None:
    table = Table(title=content["experiment"], title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for name in HEADS:
        table.add_column(
            name,
            no_wrap=name in ("verdict", "effect", "expected"),
            overflow="fold",
            justify="right" if name in ("seeds", "can see", "would decide") else "left",
        )
    for claim in content["claims"]:
        table.add_row(*_cells(claim))
    console.print(table)


def _cells(claim: Mapping[str, Any]) -> list[str]:
    verdict = claim["verdict"]
    marker = {None: "", True: "", False: " (!)"}[claim.get("as_expected")]
    return [
        str(claim.get("number") or ""),
        claim["name"] + (f" ({claim['changed']})" if claim.get("changed") else ""),
        f"[{STYLES[verdict]}]{verdict}[/]{marker}",
        _effect(claim),
        str(claim.get("n") if claim.get("n") is not None else ""),
        _number(claim.get("smallest_seen")),
        seeds_for_all(claim),
        claim.get("expect", ""),
    ]


def _effect(claim: Mapping[str, Any]) -> str:
    if claim.get("effect") is None:
        return ""
    low, high = claim["low"], claim["high"]
    interval = f" [{_number(low)}, {_number(high)}]" if low is not None else ""
    return f"{_number(claim['effect'])}{interval} {claim['unit']}".rstrip().replace("[", r"\[")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _label(claim: Mapping[str, Any]) -> str:
    number = claim.get("number")
    return f"{number}. {claim['name']}" if number else claim["name"]


def _say(console: Console, sentence: str) -> None:
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)
