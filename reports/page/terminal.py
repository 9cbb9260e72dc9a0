"""Tables on the terminal. `ablate diff` prints claims, results and settings of two experiments, in 80 columns.
`ablate claims` prints a line a claim, and below why claims are not run and what has changed."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablations.runs.terminal import console_for_tables
from ablations.wording import several
from reports.claims.judge import changes
from reports.claims.power import LARGE, SIZES, ClaimPower
from reports.claims.words import MOST_DECIMALS, confidence, effect, look_words, seeds_for_all, significant
from reports.folder import printable
from reports.words import ABSENT, MINUS, count, interval, is_absent, listed, moment

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
"""Characters of a line that a table needs; in fewer each claim has lines of its own."""

CLAIM_HEADS = ("verdict", "effect", "seeds", "can see", "would decide", "expected")


def claims_table(content: Mapping[str, Any]) -> None:
    """Print the content of claims.json for people; not narrower than its rows where nobody watches."""
    console = console_for_tables()
    if console.width < NARROWEST_CLAIM:
        _print_lines(console, content)
    else:
        _print_table(console, content)
    _print_sentence(console, "effect, seeds, can see: of the part that decides")
    _print_sentence(console, "can see: the smallest effect that these seeds find 8 times in 10")
    _print_sentence(
        console,
        "would decide: the seeds that find the smallest effect that matters, or its absence, 8 times in 10, in "
        "every part that is open; from and to, as few seeds tell their spread roughly",
    )
    _print_sentence(console, "(!): not as expected")
    for claim in content["claims"]:
        sentence = "; ".join(filter(None, (claim["rule"], look_words(claim))))
        _print_sentence(console, f"{_claim_label(claim)}: {claim['verdict']}: {sentence}")
    for file in content["files"]:
        for sentence in changes(file):
            _print_sentence(console, f"{file['name']}: {sentence}")


def power_table(powers: Sequence[ClaimPower | str]) -> None:
    """Print the chances of claims, and below how to read them."""
    console = console_for_tables()
    table = _table(title="chance that a claim is supported")
    table.add_column("claim", overflow="fold")
    for head in ("matters", "spread", *(f"n = {size}" for size in SIZES), f"{LARGE} x, all"):
        table.add_column(head, justify="right", no_wrap=True)
    shown = [one for one in powers if not isinstance(one, str)]
    for one in shown:
        name = one.claim if one.claim == one.part or not one.part else f"{one.claim}: {one.part}"
        chances = [f"{100 * chance:.0f}%" for chance in (*one.chances.values(), one.large_effect)]
        table.add_row(name, significant(one.smallest_effect), significant(one.spread), *chances)
    if shown:
        console.print(table)
        seeds = sorted({one.pilot_seeds for one in shown})
        _print_sentence(
            console,
            "n = ...: with so many seeds, if the effect is the smallest that matters; last: with all seeds, if it "
            f"is {LARGE} times as large; of the part that is hardest to see",
        )
        _print_sentence(
            console,
            f"spread: standard deviation between the pilot's {listed(list(map(str, seeds)))} seeds, which tell it "
            "roughly",
        )
    for sentence in powers:
        if isinstance(sentence, str):
            _print_sentence(console, sentence)


def _print_lines(console: Console, content: Mapping[str, Any]) -> None:
    """Print under the name of each claim what the table has in a row."""
    console.print(content["experiment"], style="italic", highlight=False, markup=False)
    for claim in content["claims"]:
        _, name, verdict, *others = _cells(claim)
        number = f"{claim['number']}. " if claim.get("number") else ""
        console.print(f"{number}{name}", style="bold", highlight=False, markup=False, soft_wrap=True)
        cells = [f"{head} {cell}" for head, cell in zip(CLAIM_HEADS[1:], others, strict=True) if cell]
        console.print("  " + "; ".join([verdict, *cells]), highlight=False, soft_wrap=True)


def _print_table(console: Console, content: Mapping[str, Any]) -> None:
    table = _table(title=content["experiment"])
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
        _claim_effect(claim),
        str(claim.get("n") if claim.get("n") is not None else ""),
        _number(claim.get("smallest_seen")),
        seeds_for_all(claim),
        claim.get("expect", ""),
    ]


def _claim_effect(claim: Mapping[str, Any]) -> str:
    if claim.get("effect") is None:
        return ""
    low, high = claim["low"], claim["high"]
    interval = f" [{_number(low)}, {_number(high)}]" if low is not None else ""
    return f"{_number(claim['effect'])}{interval} {claim['unit']}".rstrip().replace("[", r"\[")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _claim_label(claim: Mapping[str, Any]) -> str:
    number = claim.get("number")
    return f"{number}. {claim['name']}" if number else claim["name"]


def _print_sentence(console: Console, sentence: str) -> None:
    console.print(sentence, highlight=False, markup=False, soft_wrap=True)


SIDES = ("before", "after")
WHERE = {"on both sides": SIDES, "before, absent after": SIDES[:1], "after, absent before": SIDES[1:]}
LOSS_DIGITS = 3
NOT_RUN = "not run"

Row = tuple[str, ...]
"""A label and what stands in the columns; a cell may have several lines."""

HEADS: Row = ("Claims", *SIDES, "after - before")

NARROWEST = 16
"""Characters that labels get at least."""

MOST_OF_A_PATH = 40
"""Characters of a setting's path that stay in one line."""

READING = (
    "Effects are those that decide on either side; their intervals are at the level of the claim in its "
    "family. Those of differences are at 95%, within seeds where both sides have the same, Welch's elsewhere. "
    "Another verdict alone is no evidence of another effect; the difference is."
)


def diff_tables(content: Mapping[str, Any]) -> None:
    """Print the result of `reports.page.diff.compare`, for people; 80 columns wide where there is no terminal."""
    console = Console()
    for side in SIDES:
        _say_whole(console, f"{side}: {content[side]['folder']}")
        _print_plain(console, f"  {_side(content[side])}")
    same, most = content["same_runs"], max(content[side]["runs"] for side in SIDES)
    _print_plain(
        console, f"{count(same)} of {several(most, 'run')} {'is' if same == 1 else 'are'} the same on both sides."
    )
    _claims(console, content["claims"])
    _files(console, content["files"])
    _results(console, content)
    _settings(console, content["settings"])


def _side(side: Mapping[str, Any]) -> str:
    facts = [side["experiment"], several(side["runs"], "run"), several(len(side["seeds"]), "seed")]
    facts += [f"planned {moment(side['planned'])}"] * bool(side["planned"])
    facts += [f"commit {listed([commit[:7] for commit in side['commits']])}"] * bool(side["commits"])
    return ", ".join(facts)


# Claims ----------------------------------------------------------------------------------------------


def _claims(console: Console, claims: Sequence[Mapping[str, Any]]) -> None:
    """Print the claims that were judged on a side, or are written otherwise; then the others by name."""
    if not claims:
        _print_plain(console, "\nNeither side has claims; a spec names them, as in `claims: [article]`.")
        return
    listed_claims = [claim for claim in claims if claim["changed"] or _is_judged(claim)]
    if listed_claims:
        _effects(console, listed_claims)
        _print_plain(console, READING)
        for claim in listed_claims:
            _reasons(console, claim)
    other_claims = [claim for claim in claims if claim not in listed_claims]
    for where, here in WHERE.items():
        names = [_label(claim) for claim in other_claims if tuple(side for side in SIDES if claim[side]) == here]
        if names:
            _print_plain(console, f"Not run {where}: {', '.join(names)}.")


def _effects(console: Console, claims: Sequence[Mapping[str, Any]]) -> None:
    """Print under the name of each claim its rows, all in the same columns."""
    rows = {_label(claim): list(_rows(claim)) for claim in claims}
    cells = [HEADS, *(row for claim_rows in rows.values() for row in claim_rows)]
    widths = [max(len(line) for row in cells for line in row[place].split("\n")) for place in range(1, len(HEADS))]
    names = max(NARROWEST, console.width - sum(width + 2 for width in widths))

    def show(row: Row, style: str | None = None) -> None:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for width in (names - 2, *widths):
            grid.add_column(width=width, overflow="fold")
        label = textwrap.fill(row[0], names - 2, subsequent_indent="  ")
        grid.add_row(_plain(label), *(_plain(cell, STYLES.get(cell, "")) for cell in row[1:]), style=style)
        console.print(grid)

    console.print()
    show(HEADS, style="bold")
    for label, claim_rows in rows.items():
        console.print(_plain(label))
        for row in claim_rows:
            show(row)


def _rows(claim: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the verdicts of a claim, what is written otherwise, and the effects that decide on either side."""
    before, after = (claim[side] or {} for side in SIDES)
    verdicts = (side.get("verdict", "no such claim") for side in (before, after))
    yield "  verdict", *verdicts, "another" if "verdict" in claim["changed"] else ""
    for name in claim["changed"]:
        if name == "smallest_effect":
            yield "  smallest effect", significant(before[name]), significant(after[name]), "another"
        elif name != "verdict":
            yield f"  {name}", "", "", "written otherwise"
    for part in claim["parts"]:
        if part["name"] in (before.get("deciding"), after.get("deciding")):
            name = "effect" if part["name"] == claim["name"] else part["name"]
            label = f"  {name}, {part['unit']}" if part["unit"] else f"  {name}"
            yield label, *(_effect(part[side]) for side in SIDES), _difference(part["difference"])
            levels = [confidence(part[side]) for side in SIDES if part[side]]
            if len(set(levels)) > 1:
                yield "  confidence", *levels, "another"


def _effect(part: Mapping[str, Any] | None) -> str:
    """Return a mean and n, and below them the interval."""
    if part is None:
        return ABSENT
    mean, *interval = _mean_and_interval(part)
    return "\n".join([f"{mean}, n {part['n']}", *interval])


def _difference(difference: Mapping[str, Any] | None) -> str:
    return "\n".join(_mean_and_interval({**difference, "effect": difference["mean"]})) if difference else ABSENT


def _mean_and_interval(part: Mapping[str, Any]) -> list[str]:
    """Return mean and interval without the unit; with exponents where decimals would be zeros alone."""
    mean, low, high = (part[name] for name in ("effect", "low", "high"))
    if not any(map(is_absent, (mean, low, high))) and 0 < (high - low) / 2 < 10.0 ** (1 - MOST_DECIMALS):
        return [significant(mean), f"[{significant(low)}, {significant(high)}]"]
    mean, bracket, ends = effect({**part, "unit": ""}).partition(" [")
    return [mean, f"[{ends}"] if bracket else [mean]


def _reasons(console: Console, claim: Mapping[str, Any]) -> None:
    """Print why a verdict is another one, or why a side that is not run is not."""
    for side in SIDES:
        judged = claim[side]
        if judged and ("verdict" in claim["changed"] or judged["verdict"] == NOT_RUN):
            _print_plain(console, f"{_label(claim)}, {side}: {judged['verdict']}: {judged['rule']}")


def _files(console: Console, files: Sequence[Mapping[str, Any]]) -> None:
    """Print files of claims that are not the same, by their hashes."""
    for file in files:
        if file["before"] != file["after"]:
            hashes = [(file[side] or "none")[:10] for side in SIDES]
            _print_plain(console, f"File of claims {file['name']}: {hashes[0]} before, {hashes[1]} after.")


def _is_judged(claim: Mapping[str, Any]) -> bool:
    return any(claim[side] and claim[side]["verdict"] != NOT_RUN for side in SIDES)


def _label(claim: Mapping[str, Any]) -> str:
    return f"{claim['number']}. {claim['name']}" if claim["number"] else str(claim["name"])


# Results and settings --------------------------------------------------------------------------------


def _results(console: Console, content: Mapping[str, Any]) -> None:
    if not content["results"]:
        _print_plain(console, "\nNeither side has a validation loss.")
        return
    table = _table(
        "arm", "", *SIDES, "after - before", title="Validation, nats a predicted token: mean over seeds"
    )
    arm = None
    for row in content["results"]:
        cells = [row["result"], *(_mean(row[side]) for side in SIDES), _mean(row["difference"])]
        table.add_row(Text(row["arm"] if row["arm"] != arm else ""), *map(_plain, cells))
        arm = row["arm"]
    console.print()
    console.print(table)
    texts = {content[side]["text_sha256"] for side in SIDES} - {None}
    other = " The two sides read different text, so these are losses on other tokens." if len(texts) > 1 else ""
    _print_plain(console, f"± is half a 95% interval; gain: nats below the best guess without context.{other}")


def _mean(mean: Mapping[str, Any] | None) -> str:
    if mean is None:
        return ABSENT
    n = f", n {mean['n']}" if "n" in mean else ""
    return interval(dict(mean), LOSS_DIGITS) + n


def _settings(console: Console, settings: Mapping[str, Any]) -> None:
    if settings["not_compared"]:
        _say_whole(console, f"\nSettings are not compared: {settings['not_compared']}")
        return
    if not settings["changes"]:
        _print_plain(console, "\nThe two specs come to the same settings.")
        return
    table = _table("setting", *SIDES, title="Settings that differ")
    path, *values = table.columns
    paths = ("setting", *(change["path"] for change in settings["changes"]))
    path.width = min(MOST_OF_A_PATH, max(map(len, paths)))
    for column in values:
        column.max_width = max(NARROWEST, (console.width - path.width - 2) // 2)
    for change in settings["changes"]:
        arms = f"\n  in {', '.join(change['arms'])}" if change["arms"] else ""
        table.add_row(_plain(change["path"] + arms), *(_plain(_value(change[side])) for side in SIDES))
    console.print()
    console.print(table)


def _value(value: Any) -> str:
    if value is None:
        return ABSENT
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# Lines -----------------------------------------------------------------------------------------------


def _table(*heads: str, title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _plain(text: str, style: str = "") -> Text:
    """Return text with the minus that other programs read, and without what a terminal would obey."""
    return Text(printable(text).replace(MINUS, "-").replace(ABSENT, "-"), style)


def _print_plain(console: Console, sentence: str) -> None:
    console.print(_plain(sentence))


def _say_whole(console: Console, sentence: str) -> None:
    """Print a sentence in one line, so that a path in it stays whole."""
    console.print(_plain(sentence), soft_wrap=True)
