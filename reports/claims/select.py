"""Selection of a claim's numbers from a table of results: arrays over seeds, with the same seeds in every
arm.

A = arms, S = seeds, K = positions: layers, steps or groups.
"""

import copy
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from ablations.errors import ResultsError
from ablations.metric_groups import matches
from ablations.spec.contrasts import FEWEST_STEPS, Quantity
from ablations.wording import listed, several

Array = NDArray[np.float64]
Axis = Literal["none", "layers", "steps", "groups"]


class NotMeasured(ResultsError):
    """Error of an effect whose rows are missing in the table. The message names them, and is shown as the
    reason for `not run`."""


class PairedNumbers(NamedTuple):
    """Numbers of some arms, paired by seed."""

    seeds: tuple[int, ...]
    """Seeds that are complete in every arm."""
    values_ASK: Array
    positions: tuple[float, ...]
    """Positions along K: layers upwards, steps in order, or numbers of groups; a single 0 without an axis."""
    left_out: tuple[str, ...]
    """Notes on seeds that some arm has and another lacks, each with the reason."""


class Cell(NamedTuple):
    """Row of the table, reduced to the columns that effects read."""

    group: str | None
    layer: int | None
    layer_to: int | None
    step: int | None
    other_run_id: str | None
    n: int | None
    left_out: tuple[float, ...]
    """Value without each block of the text in turn; empty if not known."""
    value: float
    floor: float
    ceiling: float


class SeedTable:
    """Table of results with fast access by arm, seed, measure and metric."""

    def __init__(
        self, table: DataFrame, *, copied_arms: Collection[str] = (), ends: Mapping[str, int] | None = None
    ) -> None:
        """Read the table.

        Args:
            copied_arms: arms whose runs are the same for all seeds.
            ends: last step of each arm's training, as far as it is known.
        """
        self.copied_arms = frozenset(copied_arms)
        self.cells: dict[tuple[str, int, str, str], list[Cell]] = {}
        self.measures: set[str] = set()
        self.seeds: dict[str, list[int]] = {}
        self.seed_of: dict[str, int] = {}
        """Seed of each run."""
        self.blocks: dict[tuple[str, str], int] = {}
        """Number of text blocks that values leave out in turn, by measure and metric."""
        self._last: dict[tuple[str, int, str], int] = {}
        self.end = dict(ends or {})
        """Last step of each arm: of its training if that is known, else the last that was measured."""
        self._without: dict[int, SeedTable] = {}
        names = ("arm", "seed", "measure", "metric", "run_id", "group", "layer", "layer_to", "step")
        columns = [_plain(table[name]) for name in (*names, "other_run_id", "n")]
        columns.append([() if without is None else tuple(without) for without in _plain(table["left_out"])])
        numbers = table[["value", "floor", "ceiling"]].to_numpy(float, na_value=np.nan).T.tolist()
        for arm, seed, measure, metric, run, *of_cell in zip(*columns, *numbers, strict=True):
            cell = Cell(*of_cell)
            self.measures.add(measure)
            self.seed_of[run] = seed
            if seed not in self.seeds.setdefault(arm, []):
                self.seeds[arm].append(seed)
            if math.isnan(cell.value) and cell.layer is None:  # a layer without a number is still a layer
                continue
            if cell.left_out:
                self.blocks[measure, metric] = max(len(cell.left_out), self.blocks.get((measure, metric), 0))
            self.cells.setdefault((arm, seed, measure, metric), []).append(cell)
            if cell.step is not None:
                here = (arm, seed, measure)
                self._last[here] = max(cell.step, self._last.get(here, cell.step))
                self.end[arm] = max(cell.step, self.end.get(arm, cell.step))

    def without_block(self, block: int) -> "SeedTable":
        """Return the table with every value, as far as it keeps blocks, computed without one block of the text."""
        if block not in self._without:
            self._without[block] = self.with_cells(
                {
                    key: [
                        cell._replace(value=cell.left_out[block]) if block < len(cell.left_out) else cell
                        for cell in cells
                    ]
                    for key, cells in self.cells.items()
                }
            )
        return self._without[block]

    def with_cells(self, cells: Mapping[tuple[str, int, str, str], list[Cell]]) -> "SeedTable":
        """Return the table with these cells in place of its own, by arm, seed, measure and metric."""
        other = copy.copy(self)
        other.cells = dict(cells)
        other._without = {}
        return other

    def of_seeds(self, seeds: Collection[int]) -> "SeedTable":
        """Return the table with only these seeds."""
        other = self.with_cells({key: cells for key, cells in self.cells.items() if key[1] in seeds})
        other.seeds = {arm: [seed for seed in kept if seed in seeds] for arm, kept in self.seeds.items()}
        return other

    def at_layer(self, layer: float, of: Quantity) -> "SeedTable":
        """Return the table with only the rows of a quantity at one layer, as rows that have no layer."""
        cells_of_layer = {
            key: [cell._replace(layer=None, layer_to=None) for cell in cells if _position(cell, "layers") == layer]
            for key, cells in self.cells.items()
            if key[2:] == (of.measure, of.metric)
        }
        return self.with_cells(cells_of_layer)

    def copied_seeds(self, arms: Collection[str]) -> tuple[int, ...]:
        """Return the seeds whose runs of these arms are copies of those of the first seed; empty unless the
        runs of all these arms are the same for all seeds."""
        if not set(arms) <= self.copied_arms:
            return ()
        in_all = [seed for seed in self.seeds_of(arms) if all(seed in self.seeds.get(arm, ()) for arm in arms)]
        return tuple(in_all[1:])

    def last(self, arm: str, seed: int, measure: str, metric: str) -> list[Cell]:
        """Return the cells of a run at the end of its training; none if only earlier steps were measured."""
        step = self._last.get((arm, seed, measure))
        if step is not None and step < self.end[arm]:
            return []
        return [cell for cell in self.cells.get((arm, seed, measure, metric), []) if cell.step in (step, None)]

    def every(self, arm: str, seed: int, measure: str, metric: str) -> list[Cell]:
        """Return the cells of a run at all steps."""
        return self.cells.get((arm, seed, measure, metric), [])

    def seeds_of(self, arms: Iterable[str]) -> list[int]:
        """Return the seeds that any of the arms has, in order."""
        return sorted({seed for arm in arms for seed in self.seeds.get(arm, [])})


def read(
    rows: SeedTable,
    of: Quantity,
    arms: Sequence[str],
    *,
    axis: Axis = "none",
    fewest: int = 2,
    beside: Collection[str] = (),
) -> PairedNumbers:
    """Return the quantity of each arm at each position, for the seeds that are complete in every arm.

    All groups that the quantity names must be there, because a mean over fewer tasks would be a mean over
    other tasks. With `axis="none"` a run has one number, reduced over its layers or its course as the
    quantity says; along `steps` and `groups` it has one for each position. Over `steps`, the positions are those
    that some run of each arm has, and of each arm beside that was trained for as many steps. Over other axes, the
    positions are those that any run has. A run that lacks one of them is not complete.

    Args:
        fewest: smallest number of positions along the axis `layers` or `groups`.
        beside: further arms that the effect compares, whose groups must be the same.

    Raises:
        NotMeasured: no run of an arm has such rows, groups are missing, there are too few positions, or several
            rows would be the same number.
    """
    compared = tuple(dict.fromkeys((*arms, *beside)))
    of = _with_groups(rows, of, compared)
    if axis != "layers" and (of.layers != "none" or of.layer is not None):
        # Arm by arm, as they may have other numbers of layers.
        by_arm = [_over_layers(rows, of, arm, axis=axis, fewest=fewest, beside=compared) for arm in arms]
        return _long_enough(side_by_side(by_arm), of, axis, fewest)
    if axis == "none" and of.steps != "last":
        course = _area if of.steps == "area" else _way
        return course(read(rows, of, arms, axis="steps", beside=beside), of)
    cells_by_run, groups = _cells(rows, of, arms, compared, axis)
    numbers = {run: _means(cells, groups) for run, cells in cells_by_run.items()}
    positions = _positions(numbers, axis)
    if axis == "steps":
        positions = _steps_in_common(rows, of, positions, arms, beside)
    numbers = {
        run: {place: value for place, value in of_run.items() if not math.isnan(value)}
        for run, of_run in numbers.items()
    }
    if axis == "layers":
        positions = _layers_with_numbers(numbers, of, arms, positions)
    seeds, left_out = [], []
    for seed in rows.seeds_of(arms):
        lacking = [arm for arm in arms if not set(positions) <= set(numbers.get((arm, seed), {}))]
        if lacking:
            left_out.append(f"seed {seed}: numbers of arm {lacking[0]} are missing")
        else:
            seeds.append(seed)
    values = [[[numbers[arm, seed][position] for position in positions] for seed in seeds] for arm in arms]
    shape = (len(arms), len(seeds), len(positions))
    values_ASK = np.array(values, float).reshape(shape)
    reading = PairedNumbers(tuple(seeds), values_ASK, tuple(positions), tuple(left_out))
    return _long_enough(reading, of, axis, fewest)


def _layers_with_numbers(
    numbers: Mapping[tuple[str, int], Mapping[float, float]],
    of: Quantity,
    arms: Sequence[str],
    layers: list[float],
) -> list[float]:
    """Return the layers in which every arm has a number.

    Raises:
        NotMeasured: no run of an arm has a number in a layer that the quantity reads: the top of fewer layers
            would be another layer, and their sum another sum.
    """
    needed = {"bottom": layers[:1], "top": layers[-1:]}.get(of.layers, layers)
    for arm in arms:
        of_arm = {layer for run, of_run in numbers.items() if run[0] == arm for layer in of_run}
        if lacking := [f"{layer:g}" for layer in needed if layer not in of_arm]:
            noun = "layer" if len(lacking) == 1 else "layers"
            raise NotMeasured(f"{_named(of)} has no number of arm {arm} in {noun} {listed(lacking, 'and')}")
        layers = [layer for layer in layers if layer in of_arm]
    return layers


def _long_enough(reading: PairedNumbers, of: Quantity, axis: Axis, fewest: int) -> PairedNumbers:
    """Return the reading.

    Raises:
        NotMeasured: it has too few positions for its axis.
    """
    positions = len(reading.positions)
    if axis == "steps" and positions < FEWEST_STEPS:
        number = several(positions, "step")
        raise NotMeasured(f"{_named(of)} has {number} in common, but a learning curve needs {FEWEST_STEPS}")
    if axis in ("layers", "groups") and positions < fewest:
        raise NotMeasured(
            f"{_named(of)} has {positions} of the {axis} that the effect covers, but the effect needs {fewest}"
        )
    return reading


def _cells(
    rows: SeedTable, of: Quantity, arms: Sequence[str], compared: Sequence[str], axis: Axis
) -> tuple[dict[tuple[str, int], dict[float, dict[str | None, float]]], frozenset[str | None]]:
    """Return the numbers of each run of the arms by position and group, and all groups of the compared arms.

    Raises:
        NotMeasured: an arm has no rows, or no run of it has a group that another arm has.
    """
    cells_by_run = {
        (arm, seed): _numbers(rows, of, arm, seed, axis=axis)
        for arm in (compared if of.groups else arms)
        for seed in rows.seeds.get(arm, [])
    }
    for arm in arms:
        runs = [cells_by_run.get((arm, seed), {}) for seed in rows.seeds.get(arm, [])]
        if axis == "steps" and any(runs) and not any(rows.end[arm] in cells for cells in runs):
            raise NotMeasured(f"{_named(of)} has no rows of arm {arm} at its last step, {rows.end[arm]:,}")
        if not any(runs):
            raise NotMeasured(f"{_named(of)} has no rows of arm {arm}{_where(of, axis)}")
    groups = _expected(cells_by_run)
    for arm in arms:
        of_arm = _expected({run: cells for run, cells in cells_by_run.items() if run[0] == arm})
        if lacking := sorted(filter(None, groups - of_arm)):
            raise NotMeasured(f"{_named(of)} has no rows of arm {arm} in {', '.join(lacking)}, which others have")
    return {run: cells for run, cells in cells_by_run.items() if run[0] in arms}, groups


def side_by_side(readings: Sequence[PairedNumbers]) -> PairedNumbers:
    """Return several readings as one of all their arms, with the seeds and positions that are in all."""
    seeds = tuple(seed for seed in readings[0].seeds if all(seed in reading.seeds for reading in readings))
    positions = tuple(
        place for place in readings[0].positions if all(place in reading.positions for reading in readings)
    )
    values = [
        reading.values_ASK[:, [reading.seeds.index(seed) for seed in seeds]][
            ..., [reading.positions.index(place) for place in positions]
        ]
        for reading in readings
    ]
    lost = {seed for reading in readings for seed in reading.seeds} - set(seeds)
    notes = [note for reading in readings for note in reading.left_out]
    noted = {note.partition(":")[0] for note in notes}
    notes += [f"seed {seed}: not in every arm" for seed in sorted(lost) if f"seed {seed}" not in noted]
    return PairedNumbers(seeds, np.concatenate(values), positions, tuple(dict.fromkeys(notes)))


def _over_layers(
    rows: SeedTable, of: Quantity, arm: str, *, axis: Axis, fewest: int, beside: Collection[str]
) -> PairedNumbers:
    """Return the quantity of one arm at each position, with its layers reduced to one number.

    Raises:
        NotMeasured: as in `read`, or the layer that the quantity names is not there.
    """
    whole = read(rows, of, [arm], axis="layers", fewest=of.layers_needed, beside=beside)
    if of.layer is not None and of.layer not in whole.positions:
        raise NotMeasured(f"{_named(of)} has no layer {of.layer}")
    values_ASKL = whole.values_ASK[:, :, None]
    layers = whole.positions
    if axis != "none":
        layers = layers if of.layer is None else (of.layer,)
        plain = of.model_copy(update={"layers": "none", "layer": None})
        beside_layers = [
            read(rows.at_layer(layer, of), plain, [arm], axis=axis, fewest=fewest, beside=beside)
            for layer in layers
        ]
        whole = side_by_side(beside_layers)  # (L, S, K)
        values_ASKL = np.moveaxis(whole.values_ASK, 0, -1)[None]
    if of.layer is not None:
        values_ASK = values_ASKL[..., layers.index(of.layer)]
    else:
        values_ASK = _OF_LAYERS[of.layers](values_ASKL)
    return whole._replace(values_ASK=values_ASK, positions=(0,) if axis == "none" else whole.positions)


_OF_LAYERS: Mapping[str, Callable[[Array], Array]] = {
    "top": lambda values: values[..., -1],
    "bottom": lambda values: values[..., 0],
    "mean": lambda values: values.mean(-1),
    "sum": lambda values: values.sum(-1),
    "drop": lambda values: values[..., 0] - values[..., -1],
    "fall_to_inner": lambda values: values[..., 0] - values[..., 1:-1].min(-1),
    "rise_to_top": lambda values: values[..., -1] - values[..., 1:-1].min(-1),
}


def at_share(share: float, last: float) -> float:
    """Return the step at a share of training that ends with the last step.

    It is rounded, so that a checkpoint at 57% of 100 steps is not later than 0.57 * 100 = 56.99999999999999.
    """
    return round(share * last, 6)


def _require_measured(whole: PairedNumbers, of: Quantity) -> None:
    """Raise NotMeasured if the first checkpoint comes after the share `until` of training."""
    if whole.positions[0] > at_share(of.until, whole.positions[-1]):
        raise NotMeasured(
            f"{_named(of)} is first measured at step {whole.positions[0]:,.0f}, after the {100 * of.until:g}% of "
            "training (until) at which the effect reads it"
        )


def _at_steps(whole: PairedNumbers, at: Array) -> Array:
    """Return the learning curves at some steps (arms, seeds, steps). They are straight between checkpoints."""
    curves = [[np.interp(at, whole.positions, curve) for curve in arm] for arm in whole.values_ASK]
    return np.array(curves, float).reshape(*whole.values_ASK.shape[:2], len(at))


def _area(whole: PairedNumbers, of: Quantity) -> PairedNumbers:
    """Return the mean of a learning curve from the first checkpoint to the share `until` of training.

    Raises:
        NotMeasured: the first checkpoint comes later.
    """
    _require_measured(whole, of)
    steps = np.array(whole.positions)
    end = at_share(of.until, steps[-1])
    inside = steps[steps <= end]
    grid = np.append(inside, end) if inside[-1] < end else inside
    curve = _at_steps(whole, grid)
    means = np.trapezoid(curve, grid, axis=-1) / (end - steps[0]) if end > steps[0] else curve[..., 0]
    return whole._replace(values_ASK=means[..., None], positions=(0,))


def _way(whole: PairedNumbers, of: Quantity) -> PairedNumbers:
    """Return which share of each run's final gain is reached at the share `until` of its steps.

    A gain of 0 means that nothing is learned, so what was learned before the first checkpoint counts too. A
    run without a final gain above 0 has NaN.

    Raises:
        NotMeasured: the first checkpoint comes later.
    """
    _require_measured(whole, of)
    place = at_share(of.until, whole.positions[-1])
    final = whole.values_ASK[..., -1:]
    values_ASK = _at_steps(whole, np.array([place])) / np.where(final > 0, final, np.nan)
    return whole._replace(values_ASK=values_ASK, positions=(0,))


def groups_read(rows: SeedTable, of: Quantity, arms: Iterable[str]) -> tuple[str, ...]:
    """Return the tasks or other groups over which a quantity of these arms is averaged, sorted. Returns an
    empty tuple if the quantity has no groups."""
    if not of.groups:
        return ()
    arms = list(arms)
    chosen = _with_groups(rows, of, arms)
    return tuple(sorted(group for group in _groups_there(rows, of, arms) if group and _is_selected(group, chosen)))


def _with_groups(rows: SeedTable, of: Quantity, arms: Iterable[str]) -> Quantity:
    """Return the quantity with the one of its two lists of groups that was measured completely; the first
    list if both were.

    Raises:
        NotMeasured: both lists lack groups.
    """
    if not of.groups:
        return of
    measured = _groups_there(rows, of, arms)
    if measured <= {None}:  # without any rows the caller raises
        return of
    lists = [groups for groups in (of.groups, of.or_groups) if groups]
    lacking = [
        [name for name in names if not any(matches(group or "", name) for group in measured)] for names in lists
    ]
    for groups, missing in zip(lists, lacking, strict=True):
        if not missing:
            return of.model_copy(update={"groups": groups, "or_groups": ()})
    named = ", or else of ".join(", ".join(missing) for missing in lacking)
    raise NotMeasured(f"{_named(of)} has no rows of {named}, which the claim names")


def _groups_there(rows: SeedTable, of: Quantity, arms: Iterable[str]) -> set[str | None]:
    """Return the groups that any run of the arms has."""
    runs = [(arm, seed) for arm in arms for seed in rows.seeds.get(arm, [])]
    cells = (cell for arm, seed in runs for cell in rows.every(arm, seed, of.measure, of.metric))
    return {cell.group for cell in cells if not math.isnan(cell.value)}


def _numbers(
    rows: SeedTable, of: Quantity, arm: str, seed: int, *, axis: Axis
) -> dict[float, dict[str | None, float]]:
    """Return a run's numbers by position and group. A layer that was read without a number has NaN."""
    take = rows.every if axis == "steps" else rows.last
    numbers: dict[float, dict[str | None, float]] = {}
    for cell in take(arm, seed, of.measure, of.metric):
        position = _position(cell, axis)
        value = _value(cell, of)
        if position is None or not _is_selected(cell.group, of):
            continue
        is_unknown_layer = math.isnan(cell.value) and axis == "layers" and of.layer in (None, position)
        if math.isnan(value) and not is_unknown_layer:
            continue
        if cell.other_run_id is not None and rows.seed_of.get(cell.other_run_id, seed) != seed:
            continue  # distances between two seeds are read by `apart` alone
        by_group, group = numbers.setdefault(position, {}), None if axis == "groups" else cell.group
        if group in by_group:
            raise NotMeasured(f"{_named(of)} has several numbers for one place of the effect; name fewer groups")
        by_group[group] = value
    has_numbers = not all(math.isnan(value) for by_group in numbers.values() for value in by_group.values())
    return numbers if has_numbers else {}


def _position(cell: Cell, axis: Axis) -> float | None:
    """Return the position of a row on the axis; None if it has none."""
    if axis == "layers":
        to_next = cell.layer_to is None or (cell.layer_to == (cell.layer or 0) + 1 and cell.layer != 0)
        return cell.layer if to_next else None
    if cell.layer is not None:
        return None
    if axis == "groups":
        number = re.search(r"\d+(\.\d+)?$", cell.group or "")
        return float(number[0]) if number else None
    return cell.step if axis == "steps" else 0


def _value(cell: Cell, of: Quantity) -> float:
    match of.read:
        case "floor":
            return cell.floor
        case "gain":
            return cell.floor - cell.value
        case "share_of_floor":
            return cell.value / cell.floor if cell.floor else np.nan
        case "share_of_ceiling":
            return cell.value / cell.ceiling if cell.ceiling else np.nan
    return cell.value


def _is_selected(group: str | None, of: Quantity) -> bool:
    if not of.groups:
        return group is None
    if group is None:
        return False
    return any(matches(group, name) for name in of.groups) and not any(matches(group, name) for name in of.without)


def _expected(
    cells_by_run: dict[tuple[str, int], dict[float, dict[str | None, float]]],
) -> frozenset[str | None]:
    """Return the groups of which any run has a number. A mean over fewer would be a mean over other tasks."""
    by_groups = [by_group for run in cells_by_run.values() for by_group in run.values()]
    return frozenset(group for by_group in by_groups for group, value in by_group.items() if not math.isnan(value))


def _means(cells: dict[float, dict[str | None, float]], groups: frozenset[str | None]) -> dict[float, float]:
    """Return the mean over groups at each position that has all of them."""
    return {
        place: _mean([value for group, value in by_group.items() if group in groups])
        for place, by_group in cells.items()
        if by_group.keys() >= groups
    }


def _mean(values: list[float]) -> float:
    return float(np.mean(values) if len(values) > 1 else values[0])  # most have one group, and this is faster


def _positions(numbers: Mapping[tuple[str, int], dict[float, float]], axis: Axis) -> list[float]:
    """Return the positions in order: steps at which each arm has a run with a number, or all layers or groups of
    any run."""
    by_arm: dict[str, set[float]] = {}
    for (arm, _), run in numbers.items():
        by_arm.setdefault(arm, set()).update(run)
    if not by_arm:
        return []
    sets = by_arm.values()
    return sorted(set.intersection(*sets) if axis == "steps" else set.union(*sets))


def _steps_in_common(
    rows: SeedTable, of: Quantity, steps: list[float], arms: Sequence[str], beside: Collection[str]
) -> list[float]:
    """Return the steps that the arms beside have too, as far as they were trained for equally many steps. A mean
    over other checkpoints is another number even of the same curve."""
    ends = {rows.end.get(arm) for arm in arms}
    for other in beside:
        if other not in arms and {rows.end.get(other)} == ends:
            runs = [rows.every(other, seed, of.measure, of.metric) for seed in rows.seeds.get(other, [])]
            measured = {cell.step for cells in runs for cell in cells}
            steps = [step for step in steps if step in measured or not measured]  # an arm may lack a layer
    return steps


def _named(of: Quantity) -> str:
    return f"{of.measure} {of.metric}"


def _where(of: Quantity, axis: Axis) -> str:
    groups = [group for group in of.groups if group != "*"]
    read = {"value": "", "share_of_ceiling": " with a ceiling"}.get(of.read, " with a chance level")
    return (f" in {', '.join(groups)}" if groups else "") + (" by step" if axis == "steps" else "") + read


def _plain(column: Any) -> list[Any]:
    """Return the values of a column as a list, with None for absent ones."""
    return list(column.to_numpy(dtype=object, na_value=None))
