"""Figures with a line for each group of tokens of one arm: frequency ranks or parts of speech."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ablations.results import SHOWN
from reports.figures.by_arm import arm_label, shown_name
from reports.figures.curves import FEWEST_PLACES, Curve, curves_by_arm, learned, metric_rows, order, require
from reports.figures.files import lay_out
from reports.figures.lines import Line, PanelLook, draw_lines
from reports.figures.panel import (
    CHANGE,
    CHANGE_CKA,
    MOST_PANELS,
    FigureKind,
    FigureText,
    Panel,
    Shown,
    facts,
    facts_of,
    left_out_note,
    line_caption,
    lines_in_words,
    points_of,
    rows_shown,
    without_panel,
)
from reports.figures.style import group_styles, label_layers
from reports.statistics.summaries import bands, last_step
from reports.words import MINUS, axis_label, count, leads_on, words_of_metric

FAMILIES = {"rank": "frequency rank", "tag": "part of speech"}
"""Kinds of groups by the first word of their names, with the name that a panel uses."""


def choose_groups(table: DataFrame, *, measure: str, metric: str, family: str) -> DataFrame:
    """Return the rows of all groups of a family, at each run's last step, prepared as `choose` prepares those
    of all tokens.

    Raises:
        ResultsError: the table has no such rows.
    """
    rows = metric_rows(table, measure=measure, metric=metric)
    of_family = rows["group"].str.startswith(f"{family} ").fillna(False).astype(bool)
    measured_quantity = f"{measure} {metric}"
    return last_step(
        require(rows[of_family & rows["other_run_id"].isna()], table, measured_quantity, family, by="layer")
    )


class GroupLines(NamedTuple):
    """Content of a figure of one arm with a line for each group of tokens."""

    family: str
    arm_rows: DataFrame
    """Rows of the arm."""
    lines: dict[str, str]
    """Groups in order, by their value in the column `line`."""
    curve: Curve
    rows: DataFrame
    """Rows of all arms that the axis fits, with one `line` for each group of an arm."""
    summary: DataFrame
    """Result of `bands` for these rows, computed once for all arms."""

    def draw(self, figure: Figure) -> None:
        """Draw the lines."""
        lay_out(figure, lambda ax: draw_groups(self, ax=ax), names=list(self.lines.values()))


def group_lines(rows: DataFrame, gains: Mapping[str, float], family: str) -> dict[str, GroupLines]:
    """Return the content of the figure of each arm. All these figures have the same axis.

    Args:
        rows: rows of `choose_groups` for the arms that are compared.
        gains: result of `learned`.
        family: first word of the groups' names.
    """
    rows = rows.assign(line=[_line(*names) for names in zip(rows["arm"], rows["group"], strict=True)])
    summary = bands(rows)
    by_arm = {}
    for arm, curve in curves_by_arm(rows, gains).items():
        arm_rows = rows[rows["arm"] == arm]
        lines = {_line(arm, group): group for group in group_styles(arm_rows["group"].unique().tolist())}
        band = str(summary.loc[summary["line"].isin(lines.keys()), "band"].max())
        by_arm[arm] = GroupLines(family, arm_rows, lines, curve._replace(band=band), rows, summary)
    return by_arm


def draw_groups(drawn: GroupLines, *, ax: Axes) -> Axes:
    """Draw the content of one arm from `group_lines`, and return the axes."""
    measure, metric = drawn.arm_rows[["measure", "metric"]].iloc[0]
    styles = group_styles(list(drawn.lines.values()))
    lines = [Line(line, shown_name(group_label(group)), styles[group]) for line, group in drawn.lines.items()]
    # Shuffled rows give all groups one chance level; in `influence` each group has its own random tokens.
    own_floors = measure == "influence"
    note = f"a line each {FAMILIES.get(drawn.family, drawn.family)}"
    look = PanelLook(
        words_of_metric(measure, metric).floor, opacity=0.1, seeds=False, own_floors=own_floors, note=note
    )
    draw_lines(drawn.rows, drawn.summary, lines, ax=ax, look=look)
    label_layers(ax, drawn.arm_rows["x"].tolist(), leads=leads_on(measure, metric))
    ax.set_ylabel(axis_label(measure, metric))
    ax.set_title(arm_label(drawn.curve), loc="left", fontsize="medium")
    return ax


def group_label(group: str) -> str:
    """Return the name of a group without its family: ``1–10``, ``NOUN``."""
    family, _, name = group.partition(" ")
    return name.replace("-", "\N{EN DASH}") if family == "rank" else name or group


def _line(arm: str, group: str) -> str:
    return f"{arm}\n{group}"


def group_panels(table: DataFrame, text: FigureText, shown: Shown, *, arms: list[str]) -> Iterator[Panel]:
    """Yield a panel for each arm, with a line for each group."""
    if not rows_shown(table, shown)["group"].str.startswith(f"{text.family} ").any():
        return
    rows = choose_groups(table, measure=shown.measure, metric=shown.metric, family=text.family)
    if rows["x"].nunique() < FEWEST_PLACES:
        return
    present = order(rows, arms)
    arms_shown = present[:MOST_PANELS]
    every = group_lines(rows[rows["arm"].isin(arms_shown)], learned(table), text.family)
    notes = (groups_note(sorted({int(n) for n in rows["n"].dropna()})), left_out_note(present))
    for i, arm in enumerate(arms_shown):
        drawn = every[arm]
        numbers = points_of(drawn.rows, drawn.summary, shown, key="group", names=drawn.lines)
        about = facts_of(text, shown, arm=arm, place=i)
        yield Panel(
            **about,
            content=drawn,
            rows=drawn.arm_rows[SHOWN],
            points=[{"arm": arm} | point for point in numbers],
            curves=[facts(drawn.curve)],
            description=f"{arm}. " + lines_in_words(numbers, line="group", digits=about["digits"]),
            without_rows=without_panel(i, arms, present),
            notes=notes,
        )


def groups_note(sizes: Sequence[int]) -> str:
    """Return a note on whether the groups have equally many tokens; empty if no size is known."""
    if not sizes:
        return ""
    if min(sizes) == max(sizes):
        return f"All groups have n = {count(sizes[0])}."
    return (
        f"Groups differ in n, {count(min(sizes))} to {count(max(sizes))}. Similarity is inflated in small "
        "groups, so do not compare the groups."
    )


GROUP_LINES = FigureKind("groups", group_panels, line_caption)
"""Kind of panels of one arm with a line for each group of tokens."""

CHANGE_BY_RANK = FigureText(
    name="change_by_rank",
    title="Change by frequency of the token",
    kind=GROUP_LINES,
    shown=(CHANGE, CHANGE_CKA._replace(part=f"1 {MINUS} debiased CKA", folded=True)),
    family="rank",
    n="tokens in each group",
    d="dimensions",
    how_to_read=(
        "Each line is a group of tokens by frequency rank; rank 1 is the most frequent token. Each point is, "
        f"as above, 1 {MINUS} similarity between their states in a layer and in the next one. The chance level "
        "is the mean over the groups. Where lines cross, layers treat frequent and rare tokens differently.",
        "Similarity is inflated if there are few tokens per dimension, so all groups have equally many tokens. "
        "Compare groups with each other and between arms, not with the change of all tokens above. A group of "
        "few token types varies less than a group of many, whatever a layer does. So compare its line with "
        "that of the untrained encoder.",
    ),
)

CHANGE_BY_TAG = CHANGE_BY_RANK._replace(
    name="change_by_tag",
    title="Change by part of speech",
    family="tag",
    how_to_read=(
        "Each line is the tokens of one part of speech; only the first sub-word of each word counts. Each "
        f"point is, as above, 1 {MINUS} similarity between their states in a layer and in the next one. The "
        "chance level is the mean over the groups.",
        "All groups have equally many tokens. Compare groups with each other and between arms, not with the "
        "change of all tokens. Parts of speech differ in frequency, so check whether frequency alone explains "
        "a difference.",
    ),
)

INFLUENCE_BY_RANK = FigureText(
    name="influence_by_rank",
    title="Influence on other tokens by frequency",
    kind=GROUP_LINES,
    shown=(Shown("influence", "pwcca"),),
    family="rank",
    n="other tokens for each group",
    d="dimensions",
    how_to_read=(
        "In some sentences, one token of a group is hidden from the attention of the other tokens, in one "
        f"layer only. Each point is 1 {MINUS} PWCCA between the states of the other tokens with and without it. "
        "It is 0 if none of them attends to the token. The chance level, dashed in the colour of its group, is "
        "the influence of a random token of the same sentences. A group above its floor matters more than the "
        "tokens around it.",
        "The numbers are small, since one token is a small part of what the others attend to; their order "
        "counts. All groups have equally many other tokens. Only attention within the layer is cut. What a "
        "token has passed on in lower layers stays, so influence does not say how much a model needs a token. "
        "To find where the influence of rare tokens comes from, Voita et al. 2019 train again with a tenth of "
        "the input tokens replaced at random (`token_dropout: 0.1`). Then rare tokens should no longer stand "
        "out. Only an arm with that setting shows it: objectives-all has clm-dropout and mt-dropout, the "
        "article's experiments have none. Without such an arm, this figure describes a peak at rare tokens and "
        "does not explain it.",
    ),
)

INFLUENCE_BY_TAG = INFLUENCE_BY_RANK._replace(
    name="influence_by_tag", title="Influence on other tokens by part of speech", family="tag"
)
