"""Where a row stands on the axis of a figure: its layer, its step, or a number in the name of its group."""

from typing import Literal, NamedTuple

import pandas as pd
from pandas import DataFrame, Series

Axis = Literal["layer", "step", "examples", "ratio"]


class AxisText(NamedTuple):
    """An axis in words."""

    label: str
    """Below a figure."""
    head: str
    """Above a column."""


AXES: dict[Axis, AxisText] = {
    "layer": AxisText("layer (0 = embeddings)", "Layer"),
    "step": AxisText("step", "Step"),
    "examples": AxisText("training examples", "Examples"),
    "ratio": AxisText("masking ratio", "Masking ratio"),
}

GROUPS: dict[Axis, str] = {"examples": r"(?s)^(.*)@(\d+)$", "ratio": r"(?s)^()ratio=(\d*\.?\d+(?:e-?\d+)?)$"}
"""How a group names what it is about, and its place: ``sst2@100``, ``ratio=0.15``."""

ALONG_STEPS = ("learning",)
"""Measures whose figures run along the steps of training unless another axis is asked for."""

FEWEST_STEPS = 3
"""Steps below which nothing is drawn over training: two are a pair of curves."""


def own_axis(measure: str) -> Axis:
    """What the figures of a measure run along unless told otherwise."""
    return "step" if measure in ALONG_STEPS else "layer"


def placed(rows: DataFrame, axis: Axis) -> DataFrame:
    """The rows that have a place on the axis, sorted by it, with two further columns: `x`, the place, and `about`,
    the group without it."""
    about, x = rows["group"], rows["layer"]
    if axis == "step":
        x = rows["step"].where(rows["layer"].isna())
    elif axis != "layer":
        found = rows["group"].str.extract(GROUPS[axis])
        about = found[0].where(found[0] != "")
        x = pd.to_numeric(found[1]).astype("Float64" if axis == "ratio" else "Int64")
    return rows.assign(x=x, about=about)[x.notna()].sort_values("x", kind="stable")


def is_about(rows: DataFrame, about: str | None) -> Series:
    """Which of the placed rows are about such tokens or such a task; None means all tokens."""
    wanted = rows["about"].isna() if about is None else (rows["about"] == about).fillna(False)
    return wanted.astype(bool)


def common_steps(rows: DataFrame) -> DataFrame:
    """The rows at steps at which every seed of their arm was measured on their task: a mean over other seeds at
    every step would jump from step to step."""
    every = rows.groupby(["about", "arm"], dropna=False)["seed"].transform("nunique")
    here = rows.groupby(["about", "arm", "step"], dropna=False)["seed"].transform("nunique")
    return rows[here == every]
