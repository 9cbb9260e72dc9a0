"""Figure of one's own: the validation loss of each run over how much its layers change a token.

Copy the file beside a spec that measures `validation` and `layer_change`, and name the figure there:

    figures: ["my_figure.py:LossByChange"]
"""

from typing import Any

from ablations.spec.figures import OwnFigure


def rows(table: Any) -> Any:
    """Return a row for each run: its arm, its seed, the sum of the distances between its layers, and its loss."""
    # The table has one number a row; docs/howto.md lists its columns. Numbers of groups of tokens are left out.
    of_all = table[table["group"].isna()]
    change = of_all[(of_all["measure"] == "layer_change") & (of_all["metric"] == "pwcca")]
    change = change[
        change["layer_to"] == change["layer"] + 1
    ]  # some rows lead from the embeddings to a later layer
    loss = of_all[(of_all["measure"] == "validation") & (of_all["metric"] == "loss")]
    # The rows are the CSV of the figure and its numbers in report.json; without rows the page has no such figure.
    run = ["arm", "seed", "step"]
    both = change.groupby(run)["value"].sum().rename("change").to_frame()
    both = both.join(loss.set_index(run)["value"].rename("loss"), how="inner").reset_index()
    return both[both["step"] == both.groupby(["arm", "seed"])["step"].transform("max")]


def draw(rows: Any, figure: Any) -> None:
    """Draw a point for each run, with a colour for each arm."""
    ax = figure.subplots()
    for arm, part in rows.groupby("arm", sort=False):
        ax.scatter(part["change"], part["loss"], label=arm)
    ax.set(xlabel="change over all layers (PWCCA distance)", ylabel="validation loss (nats)")
    ax.legend()


LossByChange = OwnFigure(
    title="Validation loss and change of tokens",
    how_to_read=("Each point is a run at its last step: how much its layers change a token, and its loss.",),
    rows=rows,
    draw=draw,
)
