"""What the other layer-wise measures add to the finished experiment: invented, shaped like Voita et al. 2019."""

import numpy as np

from tests.support.fake_experiment import ARMS, CHANGE, GAIN, LAYERS, rows

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 500)
LABELS = {
    ("mlm", "previous token"): [0.6, 1.3, 1.9, 2.0, 1.8, 1.5, 1.3],
    ("clm", "previous token"): [0.6, 2.3, 2.4, 2.2, 1.9, 1.6, 1.4],
    ("mt", "previous token"): [0.6, 1.2, 1.6, 1.8, 1.9, 1.9, 1.8],
    ("mlm", "next token"): [0.6, 1.3, 1.8, 2.0, 1.9, 1.6, 1.4],
    ("clm", "next token"): [0.6, 0.7, 0.9, 1.1, 1.3, 1.5, 1.6],
    ("mt", "next token"): [0.6, 1.3, 1.7, 1.9, 1.9, 1.8, 1.8],
    ("mlm", "output label"): [0.72, 0.70, 0.96, 1.34, 2.05, 2.36, 2.38],
    ("clm", "output label"): [1.81, 2.10, 2.18, 2.25, 2.30, 2.34, 2.35],
    ("mlm", "shown token"): [6.90, 6.90, 6.82, 5.41, 2.29, 1.41, 0.94],
}
# Of each metric its floor, and what mlm has in layer 0, 1, ...; other arms are nearer to the floor.
NEIGHBOURS = {
    "same_token": (0.01, [0.99, 0.99, 0.98, 0.97, 0.97, 0.96, 0.96]),
    "position_distance": (6.9, [0.6, 2.4, 4.2, 5.5, 6.1, 6.3, 6.4]),
    "same_left": (0.08, [0.09, 0.22, 0.24, 0.24, 0.23, 0.23, 0.23]),
    "same_right": (0.07, [0.08, 0.25, 0.28, 0.27, 0.27, 0.26, 0.25]),
    "same_relation": (0.36, [0.38, 0.46, 0.52, 0.54, 0.55, 0.54, 0.53]),
    "same_left_part": (0.36, [0.38, 0.53, 0.57, 0.58, 0.58, 0.56, 0.57]),
    "same_right_part": (0.45, [0.47, 0.60, 0.68, 0.69, 0.70, 0.69, 0.68]),
    "same_sense": (0.50, [0.51, 0.70, 0.81, 0.88, 0.91, 0.90, 0.86]),
}
GEOMETRY = {
    "anisotropy": (0.01, [0.02, 0.10, 0.17, 0.22, 0.28, 0.33, 0.21]),
    "self_similarity": (-0.01, [0.94, 0.76, 0.58, 0.47, 0.38, 0.30, 0.42]),
    "effective_rank": (62.1, [55.0, 53.1, 51.0, 48.2, 45.0, 44.1, 47.5]),
    "participation_ratio": (60.2, [37.0, 31.1, 27.0, 24.2, 21.0, 20.1, 25.5]),
}
REACHED = {"mlm": 1.0, "clm": 0.8, "mt": 0.9, "untrained": 0.3}
RANKS = ("1-10", "11-25", "26-50", "51-100", "101-250", "251-500", "501-1000", "1001-2500")
TAGS = ("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "NOUN", "PRON", "PUNCT", "SCONJ", "VERB")
INFLUENCE = {"mlm": 0.0033, "clm": 0.008, "mt": 0.002, "untrained": 0.0004}
BETWEEN_ARMS, BETWEEN_SEEDS = (
    [0.21, 0.41, 0.44, 0.46, 0.49, 0.52, 0.60],
    [0.31, 0.30, 0.31, 0.31, 0.32, 0.33, 0.35],
)


def layer_rows(arms=ARMS, seeds=(0, 1, 2), *, steps=STEPS):
    """Those of `fake_experiment.rows`, with standard errors, and of every other measure; `steps` end in 500."""
    rng = np.random.default_rng(8)
    last = [row | {"standard_error": abs(row["value"]) / 50} for row in rows(arms, seeds)]
    runs = {(row["arm"], row["seed"]): row | {"standard_error": None} for row in last}
    about = ("experiment", "run_id", "arm", "seed", "step")
    runs = {name: {column: row[column] for column in about} for name, row in runs.items()}
    for run in runs.values():
        last += [row for made in (_labels, _neighbours, _geometry, _groups, _pictures) for row in made(run, rng)]
        last += _learning(run, steps)
        last += _read_out(run)
    yield from last
    for row in last:
        if row["arm"] != "untrained" and row["measure"] not in ("learning", "validation", "pictures"):
            yield from _earlier(row, steps)
    for row in _distances(runs):
        yield row
        yield from _earlier(row, steps)


def _earlier(row, steps):
    for step in steps[:-1]:
        yield row | {"step": step, "value": row["value"] * (0.7 + 0.3 * _trained(step))}


def _trained(step):
    return np.log2(1 + step) / np.log2(501)


def _learning(run, steps):
    for step in steps[1:] if run["arm"] != "untrained" else ():
        point = {"measure": "learning", "metric": "gain", "unit": "nats", "n": 12_040, "floor": 0.0}
        yield run | point | {"step": step, "value": GAIN[run["arm"]] * _trained(step)}


def _labels(run, rng):
    for (arm, group), values in LABELS.items():
        sample = {"measure": "token_information", "group": group, "unit": "nats", "n": 30_112, "d": 1000}
        for layer, nats in enumerate(values if arm == run["arm"] else ()):
            for metric, shift, floor in (("cross_fitted", 0.0, -0.03), ("plug_in", 0.4, 1.72)):
                value = _noisy(nats, rng) + shift
                yield run | sample | {"metric": metric, "layer": layer, "value": value, "floor": floor}


def _read_out(run):
    about = [(None, "mlm", [5.8] * 7), *((group, arm, values) for (arm, group), values in LABELS.items())]
    for group, arm, values in about:
        sample = {"measure": "read_out", "group": group, "unit": "nats", "n": 30_112, "d": 64, "ceiling": 5.9}
        for layer, nats in enumerate(values if arm == run["arm"] else ()):
            for metric in ("linear", "mlp"):
                value = min(5.9, 0.9 * nats)
                yield run | sample | {"metric": metric, "layer": layer, "value": value, "floor": -0.001}


def _neighbours(run, rng):
    yield from _by_layer(run, rng, NEIGHBOURS, {"measure": "neighbours", "unit": "", "n": 10_000, "d": 64})


def _geometry(run, rng):
    sample = {"measure": "geometry", "unit": "", "n": 41_873, "d": 64}
    yield from _by_layer(run, rng, GEOMETRY, sample)
    for layer, change in enumerate(CHANGE[run["arm"]]):
        value = {"value": _noisy(5 * change, rng), "floor": 1.4}
        yield run | sample | {"metric": "update_norm", "layer": layer, "layer_to": layer + 1} | value


def _by_layer(run, rng, metrics, sample):
    for metric, (floor, values) in metrics.items():
        for layer, value in enumerate(values):
            value = _noisy(floor + REACHED[run["arm"]] * (value - floor), rng, share=0.005)
            number = {"value": value, "floor": floor, "standard_error": abs(value) / 60}
            yield run | sample | {"metric": metric, "layer": layer} | number


def _groups(run, rng):
    for i, group in enumerate([*(f"rank {ranks}" for ranks in RANKS), *(f"tag {tag}" for tag in TAGS)]):
        often = 1.5 - (0.12 * i if i < len(RANKS) else 0.06 * (7 * i % 11))
        change = {"measure": "layer_change", "group": group, "unit": "distance", "n": 1280, "d": 64}
        for layer, amount in enumerate(CHANGE[run["arm"]]):
            place = {"layer": layer, "layer_to": layer + 1, "standard_error": amount / 9}
            turned = 2 - often if (run["arm"], layer) == ("mlm", LAYERS - 1) else often
            for metric, times, floor in (("pwcca", 1.0, 0.871), ("debiased_cka", 1.6, 1.0)):
                number = {"value": _noisy(times * amount * turned, rng), "floor": _noisy(floor, rng, share=0.004)}
                yield run | change | place | {"metric": metric} | number
        influence = {
            "measure": "influence",
            "metric": "pwcca",
            "group": group,
            "unit": "distance",
            "n": 4211,
            "d": 64,
        }
        for layer in range(1, LAYERS + 1):
            amount = INFLUENCE[run["arm"]] / layer
            number = {"value": _noisy(amount * (2 - often), rng), "floor": _noisy(amount, rng)}
            yield run | influence | {"layer": layer, "standard_error": amount / 9} | number


def _pictures(run, rng, *, each=12):
    relations, senses = ("nsubj", "obj", "root"), {"saw": "saw (noun)", "light": "light (adjective)"}
    for number, word in enumerate(("walks", "walk", "saw", "light")):
        for i in range(each):
            name = f"{word}|{1 + (5 * i + number) % 11}|{relations[i % 3]}|{senses.get(word, '-')}|{i}"
            for layer in range(LAYERS + 1):
                middle = 0.6 * np.array([np.cos(1.5 * number), np.sin(1.5 * number)])
                for metric, value in zip(("x", "y"), middle + 0.12 * rng.standard_normal(2), strict=True):
                    place = {"measure": "pictures", "metric": metric, "group": name, "layer": layer}
                    yield run | place | {"value": float(np.clip(value, -1, 1)), "unit": "", "n": 4 * each, "d": 64}


def _distances(runs):
    """Every two arms with the same seed and every two seeds of an arm; no arm with the untrained one."""
    trained = [run for run in runs.values() if run["arm"] != "untrained"]
    for i, run in enumerate(trained):
        for other in trained[i + 1 :]:
            if (run["arm"] == other["arm"]) != (run["seed"] == other["seed"]):
                between = BETWEEN_SEEDS if run["arm"] == other["arm"] else BETWEEN_ARMS
                shift = 0.02 * (ARMS.index(run["arm"]) + ARMS.index(other["arm"])) + 0.003 * run["seed"]
                pair = {"measure": "run_distance", "group": other["arm"], "other_run_id": other["run_id"]}
                sample = {"unit": "distance", "n": 41_873, "d": 64}
                for metric, times, floor in (("pwcca", 1.0, 0.962), ("debiased_cka", 0.8, 1.0)):
                    for layer, amount in enumerate(between):
                        number = {
                            "metric": metric,
                            "layer": layer,
                            "value": times * (amount + shift),
                            "floor": floor,
                        }
                        yield run | pair | sample | number


def _noisy(value, rng, *, share=0.02):
    return value * (1 + share * rng.standard_normal())
