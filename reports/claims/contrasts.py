"""Effects of contrasts, computed from a table of results: one number per seed, positive if it agrees with the
claim.

The seed is the unit. Initial weights, data order and corruption are paired across arms, so a difference
between seeds that all arms share cancels. Nothing is clipped and no seed is chosen, so noise lies below 0 as
often as above.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import special

from ablations.spec.contrasts import (
    Ahead,
    Apart,
    Arms,
    Contrast,
    Difference,
    Effect,
    Optimum,
    Quantity,
    Shape,
    Share,
    Trend,
)
from ablations.wording import listed
from reports.claims.select import (
    Array,
    NotMeasured,
    PairedNumbers,
    SeedTable,
    at_share,
    groups_read,
    read,
    side_by_side,
)
from reports.statistics import curve_shapes
from reports.statistics.curve_shapes import Form
from reports.statistics.seed_tests import SeedEffects, constant, page_trend, shared_error
from reports.statistics.summaries import distances_between_seeds, pseudo_values


def apart(effect: Apart, rows: SeedTable) -> dict[str, SeedEffects]:
    """Return how much further apart some pairs of arms lie than runs of one arm, or than other pairs of arms.

    Distances are averaged over the layers from `from_layer` on. Arms are compared at different seeds, as runs
    of one arm are: D(a_i, b_j) for i other than j, minus half of D(a_i, a_j) + D(b_i, b_j). Arms with the
    same seed share their initial weights and data order, so they would be close for another reason than their
    objectives. Each distance belongs to two seeds. The jackknife over seeds turns the distances into one number
    per seed, so that they count as no more evidence than the seeds. All numbers are NaN below three seeds.
    """
    pairs = [*effect.pairs, *effect.than]
    arms = {arm for pair in pairs for arm in pair}
    seeds = [seed for seed in rows.seeds_of(arms) if all(seed in rows.seeds.get(arm, []) for arm in arms)]
    notes = [f"seed {seed}: not in every arm" for seed in rows.seeds_of(arms) if seed not in seeds]
    if len(seeds) < 3:
        return {"": SeedEffects(tuple(seeds), np.full(len(seeds), np.nan), left_out=tuple(notes))}
    near_pairs = effect.than or [(arm, arm) for pair in effect.pairs for arm in pair]
    further_SS = _mean_distance(rows, effect, effect.pairs, seeds) - _mean_distance(
        rows, effect, near_pairs, seeds
    )
    while np.isnan(further_SS).any():  # a run without distances to others makes a row and a column NaN
        place = int(np.isnan(further_SS).sum(0).argmax())
        notes.append(f"seed {seeds.pop(place)}: distances to other seeds are missing")
        further_SS = np.delete(np.delete(further_SS, place, 0), place, 1)
    values = distances_between_seeds(further_SS) if len(seeds) > 2 else np.full(len(seeds), np.nan)
    return {"": SeedEffects(tuple(seeds), values, left_out=tuple(notes))}


def _mean_distance(rows: SeedTable, effect: Apart, pairs: Sequence[tuple[str, str]], seeds: list[int]) -> Array:
    """Return a symmetric matrix (seeds x seeds) of distances between runs at two seeds: the mean over pairs
    of arms, over both directions and over layers. It is NaN where one of them is missing."""
    return np.mean([_distances(rows, effect, pair, seeds) for pair in pairs], axis=0)


def _distances(rows: SeedTable, effect: Apart, pair: tuple[str, str], seeds: list[int]) -> Array:
    place = {seed: index for index, seed in enumerate(seeds)}
    by_layer: dict[int, Array] = {}
    counts: dict[int, Array] = {}
    for first, second in dict.fromkeys((pair, pair[::-1])):
        for seed in seeds:
            for cell in rows.last(first, seed, "run_distance", effect.metric):
                other = rows.seed_of.get(cell.other_run_id or "")
                layer = -1 if cell.layer is None else cell.layer
                if cell.group == second and other in place and other != seed and layer >= effect.from_layer:
                    for here in ((place[seed], place[other]), (place[other], place[seed])):
                        by_layer.setdefault(layer, np.zeros((len(seeds), len(seeds))))[here] += cell.value
                        counts.setdefault(layer, np.eye(len(seeds)))[here] += 1
    if not by_layer:
        raise NotMeasured(
            f"run_distance {effect.metric} has no rows of {pair[0]} and {pair[1]} at different seeds from layer "
            f"{effect.from_layer} on" + ("" if pair[0] == pair[1] else "; set across_seeds: true in the measure")
        )
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN
        return np.asarray(np.mean([by_layer[layer] / counts[layer] for layer in sorted(by_layer)], axis=0))


SHOWN_CONFIDENCE = 0.95
"""Confidence of intervals that are shown beside an effect and do not decide."""


def effects(effect: Effect, rows: SeedTable) -> dict[str, SeedEffects]:
    """Return the numbers per seed of an effect, by the name of the part. Several parts must all hold; a
    single part has an empty name. Runs that are copies of each other count as one seed.

    Raises:
        NotMeasured: the table lacks rows that the effect needs.
    """
    arms = list(effect.arms_needed())
    copied = () if effect.in_each_seed else rows.copied_seeds(arms)  # a condition may hold in each copy
    if copied:
        rows = rows.of_seeds(set(rows.seeds_of(arms)) - set(copied))
    with np.errstate(divide="ignore", invalid="ignore"):  # numbers that are not finite give no verdict
        parts = _with_text_errors(effect, rows, _CONTRASTS[type(effect)](effect, rows))
    groups = _groups(effect, rows)
    notes = tuple(dict.fromkeys(_different_samples(effect, rows)))
    return {
        name: part._replace(
            left_out=(*part.left_out, *notes),
            smallest=part.smallest or effect.smallest_effect,
            unit="" if name in IN_UNIT_OF_QUANTITY else effect.unit,
            groups=groups,
            copied_seeds=copied,
        )
        for name, part in parts.items()
    }


IN_UNIT_OF_QUANTITY = ("gain", "gain-elsewhere", "peak")
"""Parts in the unit of the quantity, which the claim does not name: the unit of the claim is that of a share of
the gain, or of the place of the peak."""


def _groups(effect: Effect, rows: SeedTable) -> tuple[str, ...]:
    """Return the tasks or other groups over which the effect is averaged."""
    read_by_each = (groups_read(rows, of, effect.arms_needed()) for of in effect.quantities())
    return tuple(dict.fromkeys(name for names in read_by_each for name in names))


def _different_samples(effect: Effect, rows: SeedTable) -> Iterator[str]:
    """Yield a note on each quantity that the arms of an effect have of different tokens or examples. A gain is
    measured from the chance level of its own tokens, so it needs none."""
    arms = tuple(dict.fromkeys(effect.arms_needed()))
    for of in effect.quantities():
        if of.metric == "gain" or of.read == "gain":
            continue
        for group in groups_read(rows, of, arms) or (None,):
            arms_by_sample: dict[str, list[str]] = {}
            for arm in arms:
                if sample := _sample(rows, of, arm, group):
                    arms_by_sample.setdefault(sample, []).append(arm)
            if len(arms_by_sample) > 1:
                measured = "; ".join(
                    f"{sample} in {listed(names, 'and')}" for sample, names in arms_by_sample.items()
                )
                yield (
                    f"{of.measure} {of.metric}{f' of {group}' if group else ''}: the arms were measured on "
                    f"different tokens or examples ({measured}), and the effect may come from these"
                )
                break  # one group is enough


def _sample(rows: SeedTable, of: Quantity, arm: str, group: str | None) -> str:
    """Return what a quantity of an arm was measured on in a group, in words: ``n = 13,041, chance level 5.38``.

    The chance level belongs to it only if it depends on the text alone, as that of a loss does.
    """
    has_unigram = (
        group is None and of.measure in ("validation", "learning") and of.metric in ("loss", "perplexity")
    )
    facts = {
        (cell.n, f", chance level {cell.floor:.6g}" if has_unigram else "")
        for seed in rows.seeds.get(arm, [])
        for cell in rows.every(arm, seed, of.measure, of.metric)
        if cell.group == group and cell.n is not None
    }
    return " or ".join(f"n = {n:,}{floor}" for n, floor in sorted(facts))


def _with_text_errors(effect: Effect, rows: SeedTable, parts: dict[str, SeedEffects]) -> dict[str, SeedEffects]:
    """Return the parts with the error that comes from the text, which all seeds share.

    The whole contrast is computed again without each block of the text, so what all its arms share cancels.
    The parts stay as they are if the measure keeps no numbers without blocks.
    """
    blocks = max((rows.blocks.get((of.measure, of.metric), 0) for of in effect.quantities()), default=0)
    if blocks < 2:
        return parts
    groups = _groups(effect, rows)
    without: list[dict[str, SeedEffects]] = []
    for block in range(blocks):
        table = rows.without_block(block)
        try:
            others = _CONTRASTS[type(effect)](effect, table)
            without.append(others if _groups(effect, table) == groups else {})
        except NotMeasured:  # rows that are NaN without the block
            without.append({})
    return {name: _with_text_error(part, [each.get(name) for each in without]) for name, part in parts.items()}


def _with_text_error(part: SeedEffects, without: Sequence[SeedEffects | None]) -> SeedEffects:
    """Return the part with the error of the text, and with a note on blocks without which it has no number."""
    if len(part.seeds) < 2 or not np.isfinite(part.values).all():
        return part
    comparable = {
        block: other
        for block, other in enumerate(without, start=1)
        if other is not None and other.seeds == part.seeds and np.isfinite(other.values).all()
    }
    if lacking := [str(block) for block in range(1, len(without) + 1) if block not in comparable]:
        blocks = (
            f"{'block' if len(lacking) == 1 else 'blocks'} {listed(lacking, 'and')} of {len(without)} of the text"
        )
        wide = (
            "the error of the text comes from the others"
            if len(comparable) > 1
            else "its error of the text is not known"
        )
        note = f"{blocks}: without {'it' if len(lacking) == 1 else 'them'} the effect is not known; {wide}"
        part = part._replace(left_out=(*part.left_out, note))
    if len(comparable) < 2:
        return part
    error = shared_error([other.values for other in comparable.values()], blocks=len(without))
    at_LM = None
    if part.at_layers_LMS is not None:
        at = np.array([other.at_layers_LMS for other in comparable.values()], float)
        at_LM = np.array(
            [
                [shared_error(at[:, low, high], blocks=len(without)) for high in range(at.shape[2])]
                for low in range(at.shape[1])
            ]
        )
    return part._replace(text_error=error, text_error_LM=at_LM, text_blocks=len(comparable))


def difference(effect: Difference, rows: SeedTable) -> dict[str, SeedEffects]:
    """Return arm minus arm within each seed, or a number minus a bound that the claim fixed beforehand.
    Several arms count as their mean.

    Groups are averaged within the seed first, because the tasks of one run are no independent evidence.
    """
    beside = tuple(effect.arms_needed()) if effect.minus_of in (None, effect.of) else ()
    readings = [_mean_of_arms(rows, effect.of, effect.arm, beside=beside)]
    if effect.minus is not None:
        readings.append(_mean_of_arms(rows, effect.minus_of or effect.of, effect.minus, beside=beside))
    seeds, numbers, left_out = _paired(readings)
    numbers_S = numbers[0] - numbers[1] if effect.minus is not None else numbers[0]
    values = effect.at_most - numbers_S if effect.at_most is not None else numbers_S - (effect.at_least or 0.0)
    bounds = {name: bound for name in ("at_least", "at_most") if (bound := getattr(effect, name))}
    shown_numbers = {"measured": float(np.mean(numbers_S)), **bounds} if bounds and seeds else {}
    part = SeedEffects(seeds, values, direction=effect.direction, left_out=left_out, bounded=effect.has_bound)
    return {"": part._replace(shown_numbers=shown_numbers)}


def _mean_of_arms(rows: SeedTable, of: Quantity, arms: Arms, *, beside: Sequence[str]) -> PairedNumbers:
    """Return the quantity of an arm, or the mean over several arms in the shape of one arm.

    Args:
        beside: arms whose groups must be the same.
    """
    reading = read(rows, of, [arms] if isinstance(arms, str) else arms, beside=beside)
    return reading._replace(values_ASK=reading.values_ASK.mean(0, keepdims=True))


def trend(effect: Trend, rows: SeedTable) -> dict[str, SeedEffects]:
    """Return the rise of the straight line through each seed's values, from the first place to the last.

    A single large step makes the line rise. Page's test must therefore hold too: it reads ranks alone, and
    needs steps that agree. A rank correlation is no suitable effect, because a clear trend gives the same
    number in every seed and leaves no spread to test.
    """
    if effect.over == "arms":
        reading = read(rows, effect.of, effect.arms)
        curves_SK = reading.values_ASK[..., 0].T
    else:
        reading = read(rows, effect.of, effect.arms, axis=effect.over)
        curves_SK = reading.values_ASK[0]
    if effect.direction == "falling":
        curves_SK = -curves_SK
    enough = len(curves_SK) >= 2 and curves_SK.shape[1] >= 3
    page = page_trend(curves_SK) if enough else None
    values = curve_shapes.rise(curves_SK)
    places = curves_SK.shape[1] if enough else 0
    return {"": SeedEffects(reading.seeds, values, left_out=reading.left_out, page=page, places=places)}


def shape(effect: Shape, rows: SeedTable) -> dict[str, SeedEffects]:
    """Return the form of the curve over layers. Each seed is judged at the layer that the other seeds choose.

    A seed's own numbers do not help to choose its layer, so the expected effect is exactly 0 if the curve is
    flat. The choice makes the seeds dependent on each other. `reports.statistics.seed_tests` explains this, and
    why the tests also read every layer that could have been chosen.
    """
    arms = [effect.arm, *filter(None, [effect.minus])]
    reading = read(rows, effect.of, arms, axis="layers")
    if len(reading.positions) < 3:
        raise NotMeasured(f"{effect.of.measure} {effect.of.metric} has two layers and no inner layer")
    if len(reading.seeds) < 2:  # there are no other seeds to choose the layer
        return {"": _without_number(reading)}
    forms = [_form(effect, curves_SK) for curves_SK in reading.values_ASK]
    if effect.form not in _DIFFERENCES and forms[0].ratio_of is None:  # the lowest layer is not above 0
        return {"": _without_number(reading)}
    values = forms[0].values_S - forms[1].values_S if len(forms) > 1 else forms[0].values_S
    at_layers_LMS = _at_layers(forms)
    if effect.form in _DIFFERENCES:
        values, at_layers_LMS = values - effect.at_least, at_layers_LMS - effect.at_least
    chosen = tuple(int(reading.positions[place]) for place in forms[0].chosen_S)
    part = SeedEffects(reading.seeds, values, left_out=reading.left_out, bounded=effect.has_bound)
    shown_numbers = {"at_least": effect.at_least} if effect.at_least else {}
    part = part._replace(chosen=chosen, at_layers_LMS=at_layers_LMS, shown_numbers=shown_numbers)
    return {"": part._replace(ratio_of=forms[0].ratio_of)}  # a ratio is not compared with that of another arm


def _at_layers(forms: list[Form]) -> Array:
    """Return the form at every layer that could have been chosen, as LMS; the true effect is the largest over
    L of the smallest over M.

    With two arms, L has the layers of one arm and M those of the other.
    """
    first = forms[0].at_layers_LS
    second = forms[1].at_layers_LS if len(forms) > 1 else np.zeros((1, first.shape[1]))
    if forms[0].extreme == "largest":
        return first[:, None] - second[None, :]
    return first[None, :] - second[:, None]


_DIFFERENCES: Mapping[str, Callable[[Array], Form]] = {
    "rise_to_top": curve_shapes.rise_to_top,
    "fall_to_inner": curve_shapes.fall_to_inner,
    "top_is_lowest": curve_shapes.top_is_lowest,
}


def _form(effect: Shape, curves_SK: Array) -> Form:
    if effect.form == "top_over_lowest":
        return curve_shapes.top_over_lowest(curves_SK, ratio=effect.at_least)
    if effect.form == "rise_after_inner":
        return curve_shapes.rise_after_inner(curves_SK, ratio=effect.at_least)
    return _DIFFERENCES[effect.form](curves_SK)


def kept_share(effect: Share, rows: SeedTable) -> dict[str, SeedEffects]:
    """Return the share of a gain that is kept, minus the share that the claim sets; and the condition that
    there is a gain.

    A ratio of two noisy numbers has no mean. The test is therefore Fieller's: kept - r gain is linear in each
    seed, and divided by the mean gain its mean is exactly the share minus r. Two shares are compared by the
    jackknife over seeds. A share means nothing without a gain, so a condition asks for a gain above
    `smallest_gain`. If that condition is not confirmed, the claim stays open whatever the share is.
    """
    arms = (effect.kept_by, effect.none, effect.whole)
    readings = [read(rows, of, arms) for of in (effect.of, effect.than_of) if of is not None]
    seeds, numbers, left_out = _paired(readings)
    kept = [part[0] - part[1] for part in numbers]
    gain = [part[2] - part[1] for part in numbers]
    common = SeedEffects(seeds, np.empty(0), left_out=left_out)
    parts = {
        name: common._replace(
            values=gained - effect.smallest_gain, smallest=effect.smallest_gain, bounded=True, condition=True
        )
        for name, gained in zip(("gain", "gain-elsewhere"), gain, strict=False)
    }
    intervals = [_shown(*two) for two in zip(kept, gain, strict=True)]
    ratio_of = None
    if effect.than_of is None:
        ratio_of = (kept[0], gain[0], effect.at_least)
        values = (kept[0] - effect.at_least * gain[0]) / gain[0].mean()  # NaN, and so no verdict, if that is 0
        shown_numbers = intervals[0]
    else:
        values = _difference_of_shares(kept, gain, at_least=effect.at_least)
        shown_numbers = intervals[0] | {f"{name}_elsewhere": number for name, number in intervals[1].items()}
    if effect.at_least:
        shown_numbers = shown_numbers | {"at_least": effect.at_least}
    share = common._replace(
        values=values, bounded=effect.has_bound, shown_numbers=shown_numbers, ratio_of=ratio_of
    )
    return {"": share} | parts


def _difference_of_shares(kept: list[Array], gain: list[Array], *, at_least: float) -> Array:
    columns_SK = np.stack([kept[0], gain[0], kept[1], gain[1]], axis=1)

    def statistic(values_SK: Array) -> float:
        first, whole, second, other = values_SK.mean(0)
        return float(first / whole - second / other)

    if len(columns_SK) < 2:
        return np.full(len(columns_SK), np.nan)
    return pseudo_values(statistic, columns_SK) - at_least


def _shown(kept: Array, gain: Array) -> dict[str, float]:
    if not len(gain) or gain.mean() == 0:
        return {}
    ratio = curve_shapes.ratio_interval(kept, gain, confidence=SHOWN_CONFIDENCE)
    return {"share": ratio.value, "share_low": ratio.low, "share_high": ratio.high}


def optimum(effect: Optimum, rows: SeedTable) -> dict[str, SeedEffects]:
    """Return two or three parts: whether a curve has a highest point, and the distance of that point from each
    bound; one part without a number if no seed is complete.

    The arm with the best score is no estimate of the optimum: it has no interval, and among equal arms any of
    them may win. The top of a fitted parabola is an estimate, but the top in a single seed is a ratio without
    a mean, above all if the curve is nearly straight. The derivative of the parabola at a place fixed
    beforehand is linear in each seed, and has the sign of the distance from that place to the top (Fieller).
    Divided by the mean bend, its mean is exactly that distance. The top and its interval are shown beside the
    effect, in the unit of the arms.
    """
    places = np.array(list(effect.arms.values()))
    reading = read(rows, effect.of, list(effect.arms))
    on_scale, back = (_log_odds, special.expit) if effect.scale == "log_odds" else (np.asarray, np.asarray)
    x = on_scale(places)
    heights_SK = reading.values_ASK[..., 0].T
    if not len(heights_SK):
        return {"": _without_number(reading)}
    if constant(heights_SK).all():  # a flat curve has no highest point
        return {"": _without_number(reading)}
    fit = curve_shapes.parabola(x, heights_SK)
    twice = 2 * abs(fit.bend_S.mean())
    fall = -fit.bend_S * ((x.max() - x.min()) / 2) ** 2
    values_by_part, shown_numbers = {"peak": fall}, {}
    ratios: dict[str, tuple[Array, Array, float]] = {}
    if fit.bend_S.mean() < 0:
        top = curve_shapes.ratio_interval(fit.slope_S, -2 * fit.bend_S, confidence=SHOWN_CONFIDENCE)
        names = ("top", "top_low", "top_high")
        shown_numbers = {name: float(back(np.array(place))) for name, place in zip(names, top, strict=True)}
    for name, bound in effect.bounds.items():
        sign, place = (1 if name == "above" else -1), float(on_scale(np.array(bound)))
        values_by_part[name] = sign * fit.derivative(place) / twice
        if fit.bend_S.mean() < 0:
            ratios[name] = (sign * fit.slope_S, -2 * fit.bend_S, sign * place)
    return {
        name: SeedEffects(
            reading.seeds,
            values,
            smallest=effect.smallest_bend if name == "peak" else None,
            left_out=reading.left_out,
            bounded=name != "peak",
            shown_numbers=shown_numbers,
            ratio_of=ratios.get(name),
        )
        for name, values in values_by_part.items()
    }


def _log_odds(share: Array) -> Array:
    return np.log(share / (1 - share))


def ahead(effect: Ahead, rows: SeedTable) -> dict[str, SeedEffects]:
    """Return by how much one learning curve lies above another, at each checkpoint from a share of training
    on. All checkpoints must hold.

    The share of training at which noisy curves cross for the last time cannot be tested: it is the last of
    many crossings, and grows with the noise.
    """
    reading = read(rows, effect.of, (effect.arm, effect.over), axis="steps")
    steps = np.array(reading.positions)
    first = at_share(effect.since, steps[-1])
    ahead_SK = reading.values_ASK[0] - reading.values_ASK[1]
    return {
        f"step-{int(step)}": SeedEffects(reading.seeds, ahead_SK[:, place], left_out=reading.left_out)
        for place, step in enumerate(steps)
        if step >= first
    }


def _paired(readings: list[PairedNumbers]) -> tuple[tuple[int, ...], list[Array], tuple[str, ...]]:
    """Return the seeds that all readings have, the numbers of each reading at these seeds, and notes on the
    seeds that are left out.

    The readings have no axis. Numbers have the shape (arms, seeds), or (seeds,) for a reading of one arm.
    """
    whole = side_by_side(readings)
    ends = np.cumsum([len(reading.values_ASK) for reading in readings])[:-1]
    numbers = [part[0] if len(part) == 1 else part for part in np.split(whole.values_ASK[..., 0], ends)]
    return whole.seeds, numbers, whole.left_out


def _without_number(reading: PairedNumbers) -> SeedEffects:
    """Return an effect without numbers (NaN), for too few seeds."""
    return SeedEffects(reading.seeds, np.full(len(reading.seeds), np.nan), left_out=reading.left_out)


_CONTRASTS: Mapping[type[Contrast], Callable[[Any, SeedTable], dict[str, SeedEffects]]] = {
    Difference: difference,
    Trend: trend,
    Shape: shape,
    Share: kept_share,
    Optimum: optimum,
    Ahead: ahead,
    Apart: apart,
}
