"""Opening lines of shipped specs, and the table that experiments/README.md makes of them."""

import re
from pathlib import Path

START, END = "<!-- table of specs -->\n", "<!-- end of the table -->\n"


def header(path: Path) -> dict[str, str]:
    """Return the opening lines of a spec by their keys; a line without a key continues the one before.

    Raises:
        ValueError: a line before the name is no comment of that form.
    """
    opening: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").split("name:", 1)[0].splitlines():
        match = re.fullmatch(r"# ([A-Z]\w+(?: \w+)*)?  +(.+)", line)
        if match is None or not (match[1] or opening):
            raise ValueError(f"{path}: {line!r} is no opening line, as '# Runs      12 = 4 arms x 3 seeds'.")
        key = match[1] or list(opening)[-1]
        opening[key] = f"{opening[key]} {match[2]}" if key in opening else match[2]
    return opening


def table(folder: Path) -> str:
    """Return the table of the specs in a folder, by state and then by name, between the marks around it."""
    specs = sorted((header(path)["State"], path) for path in folder.glob("*.yaml"))
    rows = []
    for state, path in specs:
        opening = header(path)
        cost = re.sub(r" on 2( quiet)? CPU cores$", "", re.split(r" \(|;|,| with ", opening["Cost"])[0])
        results = path.parent / "results" / path.stem
        links = [
            f"[{word}](results/{path.stem}/{name})"
            for word, name in (("report", "report.md"), ("findings", "findings.md"))
            if (results / name).is_file()
        ]
        cells = (
            f"[{path.stem}]({path.name})",
            opening["Question"],
            opening["Runs"].split(" =")[0],
            cost,
            state,
            ", ".join(links),
        )
        rows.append(f"| {' | '.join(cells)} |\n")
    heads = "| spec | question | runs | cost | state | results |\n|---|---|--:|---|---|---|\n"
    return f"{START}\n{heads}{''.join(rows)}\n{END}"
