"""Tables on the terminal: the verdicts on claims, the power of claims before the first run, and the differences
between two experiments (`ablate diff`), which fit 80 columns."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ablations.runs.terminal import console_for_tables, print_plainly
from ablations.wording import listed, printable, several
from reports.claims.entries import ClaimEntry
from reports.claims.judge import Judged, claim_file_changes
from reports.claims.power import LARGE, SIZES, ClaimPower
from reports.claims.words import (
    MOST_DECIMALS,
    confidence,
    headline_effect,
    left_out,
    look_words,
    mean_and_interval,
    other_verdicts,
    seeds_for_all,
    seeds_shown,
    significant,
)
from reports.words import ABSENT, count, interval, is_absent, moment, number

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


def claims_table(judged: Judged) -> None:
    """Print the verdicts of an experiment for people. Without a terminal, the table is as wide as its rows."""
    console = console_for_tables()
    if console.width < NARROWEST_CLAIM:
        _print_lines(console, judged)
    else:
        _print_table(console, judged)
    sentences = [sentence for sentence, is_shown in _explanations(judged.entries) if is_shown]
    for claim in judged.entries:
        notes = (claim.rule, look_words(claim), other_verdicts(claim), *left_out(claim))
        rule = "; ".join(filter(None, notes))
        sentences.append(f"{claim.label}: {claim.verdict}: {rule}")
    for file in judged.files:
        sentences += claim_file_changes(file)
    print_plainly(sentences, console)


def _explanations(claims: Sequence[ClaimEntry]) -> Iterator[tuple[str, bool]]:
    """Yield an explanation of each kind of number and sign, and whether the table has one of its kind."""
    yield "effect, seeds and can see are those of the part that decides", any(map(seeds_shown, claims))
    yield (
        "can see: the smallest effect that these seeds find 8 times in 10",
        any(not is_absent(claim.smallest_seen) for claim in claims),
    )
    yield (
        "would decide: the seeds that find the smallest effect that matters, or its absence, 8 times in 10, in "
        "every part that is open; it is a range, because few seeds give only a rough spread",
        any(map(seeds_for_all, claims)),
    )
    yield "(!): not as expected", any(claim.as_expected is False for claim in claims)


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


def _print_lines(console: Console, judged: Judged) -> None:
    """Print the cells of each claim in lines below its name."""
    console.print(judged.experiment.plan.experiment, style="italic", highlight=False, markup=False)
    for claim in judged.entries:
        _, name, verdict, *others = _cells(claim)
        number = f"{claim.number}. " if claim.number else ""
        console.print(f"{number}{name}", style="bold", highlight=False, markup=False, soft_wrap=True)
        cells = [f"{head} {cell}" for head, cell in zip(CLAIM_HEADS[1:], others, strict=True) if cell]
        console.print("  " + "; ".join([verdict, *cells]), highlight=False, soft_wrap=True)


def _print_table(console: Console, judged: Judged) -> None:
    table = bare_table(title=judged.experiment.plan.experiment)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("claim", overflow="fold")
    for name in CLAIM_HEADS:
        table.add_column(
            name,
            no_wrap=name in ("verdict", "effect", "expected"),
            overflow="fold",
            justify="right" if name in ("seeds", "can see", "would decide") else "left",
        )
    for claim in judged.entries:
        table.add_row(*_cells(claim))
    console.print(table)


def _cells(claim: ClaimEntry) -> list[str]:
    marker = " (!)" if claim.as_expected is False else ""
    return [
        str(claim.number or ""),
        claim.name + (f" ({claim.changed})" if claim.changed else ""),
        f"[{STYLES[claim.verdict]}]{claim.verdict}[/]{marker}",
        "" if is_absent(claim.effect) else escape(headline_effect(claim)),
        seeds_shown(claim),
        "" if is_absent(claim.smallest_seen) else f"{claim.smallest_seen:.3g}",
        seeds_for_all(claim),
        claim.expect or "",
    ]


def bare_table(*heads: str, title: str) -> Table:
    """Return a table without lines, with these column heads."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


# Differences between two experiments ----------------------------------------------------------------

SIDES = ("before", "after")
WHERE = {"on both sides": SIDES, "before, absent after": SIDES[:1], "after, absent before": SIDES[1:]}
LOSS_DIGITS = 3
NOT_RUN = "not run"

Row = tuple[str, ...]
"""Row of a table: its label and the cells of its columns; a cell may have several lines."""

HEADS: Row = ("Claims", *SIDES, "after - before")

NARROWEST = 16
"""Smallest number of characters for the column of labels."""

MOST_OF_A_PATH = 40
"""Largest number of characters of a setting's path on one line."""

READING = (
    "Effects are those of the part that decides on each side; their intervals are at the level of the claim in "
    "its family. Intervals of differences are at 95%: within seeds if both sides have the same seeds, Welch's "
    "otherwise. A different verdict alone is no evidence of a different effect; the difference is."
)


def diff_tables(content: Mapping[str, Any]) -> None:
    """Print the result of `reports.page.diff.compare` for people, 80 columns wide without a terminal."""
    console = Console()
    for side in SIDES:
        _say_whole(console, f"{side}: {content[side]['folder']}")
        _print_plain(console, f"  {_side(content[side])}")
    same_runs, runs = content["same_runs"], max(content[side]["runs"] for side in SIDES)
    verb = "is" if same_runs == 1 else "are"
    _print_plain(console, f"{count(same_runs)} of {several(runs, 'run')} {verb} the same on both sides.")
    _claims(console, content["claims"])
    _files(console, content["files"])
    _results(console, content)
    _settings(console, content["settings"])


def _side(side: Mapping[str, Any]) -> str:
    facts = [side["experiment"], several(side["runs"], "run"), several(len(side["seeds"]), "seed")]
    facts += [f"planned {moment(side['planned'])}"] * bool(side["planned"])
    facts += [f"commit {listed([commit[:7] for commit in side['commits']], 'and')}"] * bool(side["commits"])
    return ", ".join(facts)


# Claims ----------------------------------------------------------------------------------------------


def _claims(console: Console, claims: Sequence[Mapping[str, Any]]) -> None:
    """Print the claims that are judged on at least one side or whose text differs, then the names of the
    others."""
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
    """Print the rows of each claim under its name, all in the same columns."""
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
    """Yield the verdicts of a claim, the keys that differ, and the effects of parts that decide on a side."""
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
            levels = [confidence(part[side]["confidence"]) for side in SIDES if part[side]]
            if len(set(levels)) > 1:
                yield "  confidence", *levels, "another"


def _effect(part: Mapping[str, Any] | None) -> str:
    """Return a mean with n, and its interval on the next line."""
    if part is None:
        return ABSENT
    mean, *interval = _mean_and_interval(part)
    return "\n".join([f"{mean}, n {part['n']}", *interval])


def _difference(difference: Mapping[str, Any] | None) -> str:
    return "\n".join(_mean_and_interval({**difference, "effect": difference["mean"]})) if difference else ABSENT


def _mean_and_interval(part: Mapping[str, Any]) -> list[str]:
    """Return mean and interval as two texts without the unit, with exponents if all decimals would be zeros."""
    mean, low, high = (part[name] for name in ("effect", "low", "high"))
    if not any(map(is_absent, (mean, low, high))) and 0 < (high - low) / 2 < 10.0 ** (1 - MOST_DECIMALS):
        return [significant(mean), f"[{significant(low)}, {significant(high)}]"]
    mean, bracket, ends = mean_and_interval(mean, low, high).partition(" [")
    return [mean, f"[{ends}"] if bracket else [mean]


def _reasons(console: Console, claim: Mapping[str, Any]) -> None:
    """Print why the verdict of a claim differs, or why a side was not run."""
    for side in SIDES:
        judged = claim[side]
        if judged and ("verdict" in claim["changed"] or judged["verdict"] == NOT_RUN):
            _print_plain(console, f"{_label(claim)}, {side}: {judged['verdict']}: {judged['rule']}")


def _files(console: Console, files: Sequence[Mapping[str, Any]]) -> None:
    """Print the hashes of files of claims that differ."""
    for file in files:
        if file["before"] != file["after"]:
            hashes = [(file[side] or "none")[:10] for side in SIDES]
            _print_plain(console, f"File of claims {file['name']}: {hashes[0]} before, {hashes[1]} after.")


def _label(claim: Mapping[str, Any]) -> str:
    """Return the name of a claim, after its number if it has one."""
    return f"{claim['number']}. {claim['name']}" if claim["number"] else str(claim["name"])


def _is_judged(claim: Mapping[str, Any]) -> bool:
    return any(claim[side] and claim[side]["verdict"] != NOT_RUN for side in SIDES)


# Results and settings --------------------------------------------------------------------------------


def _results(console: Console, content: Mapping[str, Any]) -> None:
    if not content["results"]:
        _print_plain(console, "\nNeither side has a validation loss.")
        return
    table = bare_table(
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
    table = bare_table("setting", *SIDES, title="Settings that differ")
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


# Examples --------------------------------------------------------------------------------------------

POINTS_DIGITS = 3
MOST_ANSWERS = 3
"""Largest number of different answers to an example that are printed."""


def example_tables(content: Mapping[str, Any]) -> None:
    """Print the result of `reports.page.flips.compare_examples` for people."""
    console = Console()
    for side in SIDES:
        _say_whole(console, f"{side}: {content[side]}")
    for task in content["tasks"]:
        _task(console, task, by=content["by"])
    notes = list(_notes(content["tasks"]))
    if notes:
        _print_plain(console, f"\n{' '.join(notes)}")


def _notes(tasks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what a reader must know of the columns, intervals and answers that the tables of `tasks` have."""
    if any(task["seeds"] for task in tasks):
        yield (
            "better, worse: examples that the second side answers better, or worse; p: exact sign test, which is "
            "about these two models, not about other seeds."
        )
    numbers = [part for task in tasks for part in (task, *task["slices"])]
    ways = {
        "the t interval over seeds": any(task["over_seeds"]["low"] is not None for task in tasks),
        "the multi-bootstrap over seeds and examples": any("[" in _bootstrapped(part) for part in numbers),
    }
    if any(ways.values()):
        yield f"Intervals are at 95%: {', '.join(way for way, is_shown in ways.items() if is_shown)}."
    if any(task["listed"] for task in tasks):
        yield "In brackets behind an answer: how many runs or heads gave it."


def _task(console: Console, task: Mapping[str, Any], *, by: str | None) -> None:
    title = f"{task['measure']} {task['task']}, {task['metric']}: {several(task['examples'], 'example')}"
    if task["only_on_one_side"]:
        title += f", and {count(task['only_on_one_side'])} that some run lacks"
    _print_plain(console, f"\n{title}")
    if task["seeds"]:
        table = bare_table("seed", *SIDES, "better", "worse", "p", title="")
        for row in task["seeds"]:
            seed = f"{row['before']}" if row["before"] == row["after"] else f"{row['before']} and {row['after']}"
            means = [number(row[f"mean_{side}"], POINTS_DIGITS) for side in SIDES]
            table.add_row(seed, *means, count(row["better"]), count(row["worse"]), f"{row['p']:.2g}")
        console.print(table)
    else:
        _print_plain(console, "The two sides have no seed in common, so that no examples are paired.")
    if len(task["seeds"]) > 1:
        _print_plain(
            console,
            f"In every seed: better on {count(task['better_in_every_seed'])}, worse on "
            f"{count(task['worse_in_every_seed'])}.",
        )
    _print_plain(console, f"after - before: {_both(task)}")
    if task["slices"]:
        table = bare_table(f"by {by}", "examples", *SIDES, "after - before", title="")
        for part in task["slices"]:
            means = [number(part[f"mean_{side}"], POINTS_DIGITS) for side in SIDES]
            table.add_row(_plain(part["slice"]), count(part["examples"]), *means, _plain(_bootstrapped(part)))
        console.print(table)
    for example in task["listed"]:
        _example(console, example)


def _both(numbers: Mapping[str, Any]) -> str:
    """Return the difference with its interval over seeds and examples, and with its interval over seeds."""
    shown = _bootstrapped(numbers)
    ways = [" by multi-bootstrap"] * ("[" in shown)
    if numbers["over_seeds"]["low"] is not None:
        ends = [number(numbers["over_seeds"][end], POINTS_DIGITS) for end in ("low", "high")]
        ways.append(f"{';' if ways else ''} [{', '.join(ends)}] by the t interval")
    if not ways:
        ways = [
            "; no interval, as all seeds agree" if len(numbers["seeds"]) > 1 else "; too few seeds for an interval"
        ]
    return f"{shown}{''.join(ways)}"


def _bootstrapped(numbers: Mapping[str, Any]) -> str:
    both = numbers["over_seeds_and_examples"]
    mean, *ends = (None if both[name] is None else number(both[name], POINTS_DIGITS) for name in both)
    return f"{mean} [{', '.join(map(str, ends))}]" if None not in ends else str(mean)


def _example(console: Console, example: Mapping[str, Any]) -> None:
    """Print an example in two lines: its texts, the right answer, and the answers of both sides."""
    kind = "better" if example["mean_after"] > example["mean_before"] else "worse"
    texts = " | ".join(filter(None, (example["text"], example["second"])))
    _say_whole(console, f"{kind} {example['example']}  {texts}")
    right = f"{example['label']}: " if example["label"] is not None else ""
    answers = [", ".join(example[side][:MOST_ANSWERS]) for side in SIDES]
    points = [significant(example[f"mean_{side}"], 2) for side in SIDES]
    _say_whole(console, f"  {right}{answers[0]} -> {answers[1]}; points {points[0]} -> {points[1]}")


# Lines -----------------------------------------------------------------------------------------------


def _plain(text: str, style: str = "") -> Text:
    """Return text without control characters for the terminal."""
    return Text(printable(text), style)


def _print_plain(console: Console, sentence: str) -> None:
    console.print(_plain(sentence))


def _say_whole(console: Console, sentence: str) -> None:
    """Print a sentence without line breaks, so that a path in it stays whole."""
    console.print(_plain(sentence), soft_wrap=True)
