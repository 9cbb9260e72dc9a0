"""Tables of claims on the terminal: the verdicts, and the power of claims before the first run."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ablations.runs.terminal import console_for_tables, print_plainly
from ablations.wording import listed
from reports.claims.judge import claim_file_changes
from reports.claims.power import LARGE, SIZES, ClaimPower
from reports.claims.words import headline_effect, look_words, seeds_for_all, seeds_shown, significant

STYLES = {
    "supported": "green",
    "contradicted": "red",
    "equivalent": "cyan",
    "partly": "cyan",
    "undecided": "yellow",
    "not testable here": "dim",
    "insufficient evidence": "dim",
    "not run": "dim",
}


NARROWEST_CLAIM = 132
"""Smallest number of characters of a line for a table; on narrower terminals each claim has its own lines."""

CLAIM_HEADS = ("verdict", "effect", "seeds", "can see", "would decide", "expected")


def claims_table(content: Mapping[str, Any]) -> None:
    """Print the content of claims.json for people. Without a terminal, the table is as wide as its rows."""
    console = console_for_tables()
    if console.width < NARROWEST_CLAIM:
        _print_lines(console, content)
    else:
        _print_table(console, content)
    sentences = [sentence for sentence, is_shown in _explanations(content["claims"]) if is_shown]
    for claim in content["claims"]:
        rule = "; ".join(filter(None, (claim["rule"], look_words(claim))))
        sentences.append(f"{claim_label(claim)}: {claim['verdict']}: {rule}")
    for file in content["files"]:
        sentences += [f"{file['name']}: {sentence}" for sentence in claim_file_changes(file)]
    print_plainly(sentences, console)


def _explanations(claims: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Yield an explanation of each kind of number and sign, and whether the table has one of its kind."""
    yield "effect, seeds and can see are those of the part that decides", any(map(seeds_shown, claims))
    yield (
        "can see: the smallest effect that these seeds find 8 times in 10",
        any(claim.get("smallest_seen") is not None for claim in claims),
    )
    yield (
        "would decide: the seeds that find the smallest effect that matters, or its absence, 8 times in 10, in "
        "every part that is open; it is a range, because few seeds give only a rough spread",
        any(map(seeds_for_all, claims)),
    )
    yield "(!): not as expected", any(claim.get("as_expected") is False for claim in claims)


def power_table(powers: Sequence[ClaimPower | str]) -> None:
    """Print the chances of claims, and how to read them."""
    console = console_for_tables()
    table = bare_table(title="chance that a claim is supported")
    table.add_column("claim", overflow="fold")
    for head in ("matters", "spread", *(f"n = {size}" for size in SIZES), f"{LARGE} x, all"):
        table.add_column(head, justify="right", no_wrap=True)
    shown = [power for power in powers if not isinstance(power, str)]
    for power in shown:
        name = power.claim if power.claim == power.part or not power.part else f"{power.claim}: {power.part}"
        chances = [f"{100 * chance:.0f}%" for chance in (*power.chances.values(), power.large_effect)]
        table.add_row(name, significant(power.smallest_effect), significant(power.spread), *chances)
    if shown:
        console.print(table)
        seeds = sorted({power.pilot_seeds for power in shown})
        reading = (
            "n = ...: with this number of seeds, if the effect is the smallest that matters; last: with all "
            f"seeds, if it is {LARGE} times as large; both for the part that is hardest to see",
            f"spread: standard deviation between the pilot's {listed([*map(str, seeds)], 'and')} seeds, a rough "
            "estimate",
        )
        print_plainly(reading, console)
    print_plainly((sentence for sentence in powers if isinstance(sentence, str)), console)


def _print_lines(console: Console, content: Mapping[str, Any]) -> None:
    """Print the cells of each claim in lines below its name."""
    console.print(content["experiment"], style="italic", highlight=False, markup=False)
    for claim in content["claims"]:
        _, name, verdict, *others = _cells(claim)
        number = f"{claim['number']}. " if claim.get("number") else ""
        console.print(f"{number}{name}", style="bold", highlight=False, markup=False, soft_wrap=True)
        cells = [f"{head} {cell}" for head, cell in zip(CLAIM_HEADS[1:], others, strict=True) if cell]
        console.print("  " + "; ".join([verdict, *cells]), highlight=False, soft_wrap=True)


def _print_table(console: Console, content: Mapping[str, Any]) -> None:
    table = bare_table(title=content["experiment"])
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for name in CLAIM_HEADS:
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
        "" if claim.get("effect") is None else escape(headline_effect(claim)),
        seeds_shown(claim),
        "" if claim.get("smallest_seen") is None else f"{claim['smallest_seen']:.3g}",
        seeds_for_all(claim),
        claim.get("expect", ""),
    ]


def claim_label(claim: Mapping[str, Any]) -> str:
    """Return the name of a claim, after its number if it has one."""
    return f"{claim['number']}. {claim['name']}" if claim.get("number") else claim["name"]


def bare_table(*heads: str, title: str) -> Table:
    """Return a table without lines, with these column heads."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table
