"""The table that experiments/README.md makes of the opening lines of shipped specs."""

from pathlib import Path

from ablations.skeletons.examples import header, short_cost

START, END = "<!-- table of specs -->\n", "<!-- end of the table -->\n"


def table(folder: Path) -> str:
    """Return the table of the specs in a folder, by state and then by name, between the marks around it."""
    specs = sorted((header(path)["State"], path) for path in folder.glob("*.yaml"))
    rows = []
    for state, path in specs:
        opening = header(path)
        cost = short_cost(opening["Cost"])
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
