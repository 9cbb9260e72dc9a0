"""Tables of the page as CSV, the numbers as they are computed, not as they are rounded."""

from typing import Any

from pandas import DataFrame

COLUMNS = (
    *("task", "part", "metric", "layer", "arm", "beside", "mean", "low", "high"),
    *("band", "seeds", "floor", "verdict", "n"),
)
"""Of scores: a row has an arm, or is about what stands beside them."""


def score_csv(table: dict[str, Any]) -> str:
    """All rows of a table of scores, its folded ones too."""
    bodies = [("", table["rows"]), *((part["title"], part["rows"]) for part in table["folded"])]
    rows = []
    for title, body in bodies:
        for row in body:
            same = {name: row[name] for name in ("task", "metric", "layer")} | {"part": title or None}
            same["n"] = max(row["n"], default=None)
            rows += [same | {"beside": head, "mean": value} for head, value in row["beside"].items()]
            rows += [same | {"arm": arm} | cell for arm, cell in row["arms"].items()]
    return _csv(DataFrame(rows, columns=list(COLUMNS)).astype({"seeds": "Int64"}))


def joined_csv(table: dict[str, Any]) -> str:
    """A row a run."""
    names = ["arm", "seed", "run_id", *(column["name"] for column in table["columns"])]
    return _csv(DataFrame(table["rows"], columns=names))


def tables_of(said: dict[str, Any]) -> dict[str, str]:
    """The CSV of every table of the page's content, by its name."""
    found = {table["name"]: score_csv(table) for table in said["tasks"]}
    return found | ({"joined": joined_csv(said["joined"])} if said["joined"]["rows"] else {})


def _csv(frame: DataFrame) -> str:
    return frame.to_csv(index=False, lineterminator="\n")
