"""Tables with every row that the shipped claims read: of nothing but noise, and as the literature has them."""

import copy
import functools
import re
from pathlib import Path

import numpy as np
import pandas as pd

from ablations import results
from ablations.spec import claims as claims_file
from ablations.spec import grid, load
from ablations.spec.contrasts import Claim
from reports.claims.select import SeedTable

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "experiments" / "claims"
FILES = sorted(CLAIMS.glob("*.yaml"))
LAYERS = 6
LAST, STEPS = 500, (0, 16, 32, 64, 128, 256, 500)
PROBED = ("ud_pos", "trec", "subj", "sst2")
"""Tasks that probes read from each layer too."""
TASKS = ("sst2", "trec", "subj", "mrpc", "rte", "sick", "stsb", "sick_relatedness", "wnut17", "wikigold")


@functools.cache
def shipped_file(name):
    """The claims of a file that we ship, in their order."""
    return claims_file.load(CLAIMS / f"{name}.yaml").claims


@functools.cache
def shipped():
    """Every claim we ship, by its number, `2b` being a part of claim 2, or by its name; the article's first."""
    claims = [claim for path in FILES for claim in shipped_file(path.stem)]
    article = sorted((claim for claim in claims if claim.number), key=lambda claim: whole_number(claim.number))
    ours = [claim for claim in claims if not claim.number]
    return {str(claim.number): claim for claim in article} | {claim.name: claim for claim in ours}


@functools.cache
def shipped_spec(name):
    """The experiment of a spec that we ship, and the names of its arms in their order."""
    experiment = load.load(CLAIMS.parent / name)
    return experiment, list(dict.fromkeys(run.arm for run in grid.runs(experiment)))


def whole_number(number):
    """The claim of the article that a claim is, or is a part of; 0 for one of our own."""
    return int(str(number or 0).rstrip("abc"))


GROUPED = {
    ("frozen_features", "score"): (*TASKS, "ud_pos"),
    ("validation", "pair_accuracy"): ("next_sentence", "sentence_order"),
    ("minimal_pairs", "accuracy_whole_words"): ("blimp", "lm_syneval"),
    ("validation", "loss"): ("masked",),
    ("probing", "accuracy"): ("bigram_shift", "coordination_inversion", *PROBED),
    ("conditional_independence", "joint_minus_chain"): ("ratio=0.15", "ratio=0.4", "ratio=0.8"),
    ("parsing", "uuas"): ("sweeps=250", "ud_en_ewt"),
    ("parsing", "uuas_adjacent"): ("ud_en_ewt",),
}
SINGLE = (
    *(("validation", name) for name in ("loss", "bleu")),
    *(("validation", name) for name in ("observed_clean", "observed_replaced", "recovered_replaced")),
)


def _places(steps):
    """Measure, metric, group, layer, layer_to and step of every row of a run."""
    for layer in range(LAYERS + 1):
        for group in (None, "output label", "shown token"):
            yield "token_information", "cross_fitted", group, layer, None, LAST
        yield "read_out", "linear", None, layer, None, LAST
        yield from (("probing", "accuracy", task, layer, None, LAST) for task in PROBED)
    for layer in range(LAYERS):
        yield "layer_change", "pwcca", None, layer, layer + 1, LAST
    for step in steps:
        yield "learning", "gain", None, None, None, step
        yield from (("fine_tuning", "score", task, None, None, step) for task in TASKS)
    for named, groups in GROUPED.items():
        yield from ((*named, group, None, None, LAST) for group in groups)
    yield from ((*named, None, None, None, LAST) for named in SINGLE)


def _run(arm, seed):
    return {"run_id": f"{arm}-{seed}", "arm": arm, "seed": seed}


def frame(claim, seeds):
    """The rows that a claim needs, of so many seeds; `value` is still 1, as every `floor` is."""
    return _frame(claim.model_dump_json(), seeds).copy()


@functools.cache
def _frame(source, seeds):
    """As `frame`; many tests ask for the same rows."""
    claim = Claim.model_validate_json(source)
    names, measures = claim.needs.arms, {"validation", *claim.needs.measures}  # every run has some validation
    kinds = {effect.kind for effect in claim.parts.values()}
    courses = [
        effect for effect in claim.parts.values() if effect.kind == "difference" and effect.of.steps != "last"
    ]
    steps = STEPS if "ahead" in kinds or courses else (LAST,)
    groups_read = {
        name
        for effect in (*claim.parts.values(), *claim.provided.values())
        for of in effect.quantities()
        for name in of.groups or ()
    }
    rows = []
    for arm in names:
        for seed in range(seeds):
            for measure, metric, group, layer, layer_to, step in _places(steps):
                if measure not in measures or (group == "masked" and group not in groups_read):
                    continue
                here = {"measure": measure, "metric": metric, "group": group, "layer": layer, "layer_to": layer_to}
                rows.append(_run(arm, seed) | here | {"step": step})
            if "run_distance" not in measures:
                continue
            runs = [(other, other_seed) for other in names for other_seed in range(seeds)]
            for other, other_seed in runs[runs.index((arm, seed)) + 1 :]:
                for layer in range(LAYERS + 1):
                    pair = {"measure": "run_distance", "metric": "pwcca", "group": other, "layer": layer}
                    compared = {"other_run_id": f"{other}-{other_seed}", "step": LAST}
                    rows.append(_run(arm, seed) | pair | compared)
    return results.table(row | {"experiment": "noise", "value": 1.0, "floor": 1.0, "ceiling": 1.0} for row in rows)


def noise(rows, *, rng, centre, spread, alike=0.0):
    """Yield normal numbers for the rows without end: independent, or those of one run, measure and metric as
    correlated as `alike` says, and half of that across the arms of a seed."""
    kept = (("arm", "seed"), ("seed",)) if alike else ()
    groups = [rows.groupby([*keys, "measure", "metric"]).ngroup().to_numpy() for keys in kept]
    while True:
        values = rng.normal(0, 1, len(rows))
        for group in groups:
            values = values + rng.normal(0, 1, group.max() + 1)[group] * np.sqrt(0.5 * alike / (1 - alike))
        yield centre + spread * values * np.sqrt(1 - alike)


def looked_up(rows, values):
    """Yield for each set of values the table of the rows with these values. The rows are looked up once."""
    numbered = SeedTable(rows.assign(value=np.arange(len(rows), dtype=float)))
    places = {key: [(int(cell.value), cell) for cell in cells] for key, cells in numbered.cells.items()}
    for of_rows in values:
        table = copy.copy(numbered)
        numbers = of_rows.tolist()
        table.cells = {
            key: [cell._replace(value=numbers[place]) for place, cell in cells] for key, cells in places.items()
        }
        yield table


# Numbers as the literature has them, where it has any; otherwise such as its authors would expect ----------------

SCORES = {
    "mlm": 0.86, "clm": 0.82, "mlm-left": 0.83, "mlm-itself": 0.70, "100-0-0": 0.861, "untrained": 0.60,
    "n4": 0.85, "n3": 0.845, "n2": 0.84, "n1": 0.83, "blocks": 0.77, "corpus": 0.70,
    "ratio-5": 0.84, "ratio-30": 0.872, "ratio-40": 0.872, "ratio-60": 0.865, "ratio-80": 0.84,
    "cloze": 0.90, "generic": 0.855,
    "quarter-steps": 0.80, "half-steps": 0.83, "half-depth": 0.83, "half-width": 0.82,
    "segments": 0.85, "segments-nsp": 0.855, "pairs": 0.83, "pairs-nsp": 0.82,
}  # fmt: skip
FROZEN = {"mlm": 0.949, "quarter-steps": 0.945, "100-0-0": 0.940, "n1": 0.80, "word2vec": 0.70, "untrained": 0.60}
INFORMATION = {
    "mlm": (5.22, 5.22, 5.18, 5.05, 4.93, 4.99, 5.10),
    "clm": (5.30, 5.285, 5.22, 5.05, 4.80, 4.47, 3.97),
    "mt": (5.21, 5.21, 5.20, 5.10, 4.94, 4.76, 4.47),
    "100-0-0": (5.22, 5.22, 5.18, 5.05, 4.93, 4.90, 4.90),
}
OUTPUT = {"output label": 2.38, "shown token": 0.94}
"""Of masked LM at the top, in figure 2 of the paper."""
CHANGE = {
    "mlm": (0.2, 0.0896, 0.0772, 0.0625, 0.0656, 0.1107),
    "clm": (0.2, 0.0747, 0.0668, 0.0649, 0.0791, 0.0704),
    "mt": (0.2, 0.0642, 0.0642, 0.0533, 0.049, 0.0389),
    "mt-other-norm": (0.2, 0.0642, 0.0642, 0.0533, 0.049, 0.0389),
}
CURVES = {"layer_change": CHANGE, "read_out": {"mlm": (5.20, 5.20, 5.18, 5.15, 5.12, 5.08, 5.00)}}
"""Curves over layers; nobody has published what a probe reads."""
DISTANCE = {
    frozenset({"mt", "mlm"}): (0.4, 0.424, 0.430, 0.437, 0.454, 0.470, 0.535),
    frozenset({"clm", "mt"}): (0.4, 0.452, 0.475, 0.497, 0.520, 0.557, 0.603),
    frozenset({"clm", "mlm"}): (0.4, 0.408, 0.439, 0.463, 0.488, 0.523, 0.604),
    frozenset({"mt"}): (0.3, 0.302, 0.305, 0.310, 0.315, 0.312, 0.309),
    frozenset({"clm"}): (0.3, 0.332, 0.335, 0.337, 0.345, 0.359, 0.370),
    frozenset({"mlm"}): (0.3, 0.257, 0.275, 0.291, 0.302, 0.322, 0.370),
}
BY_ARM = {
    "loss": {"mlm": 0.4, "mlm-itself": 0.9, "naive-1": 0.42, "naive-2": 0.015},
    "bleu": {"mt": 25.0, "mt-other-norm": 25.0},
    "observed_clean": {"mlm": 0.9, "80-20-0": 0.99, "80-0-20": 0.23, "80-0-20-other": 0.0, "100-0-0": 0.23},
    "observed_replaced": {"mlm": 0.3, "80-20-0": 0.9},
    "recovered_replaced": {"mlm": 0.4, "80-20-0": 0.1},
    "accuracy_whole_words": {"mlm": 0.80, "corpus": 0.50, "n1": 0.56},
    "uuas": {"mlm": 0.588, "n1": 0.50},
    "uuas_adjacent": {"mlm": 0.541, "n1": 0.541},
    "pair_accuracy": {
        "segments-nsp": {"sentence_order": 0.52, "next_sentence": 0.905},
        "segments-sop": {"next_sentence": 0.789, "sentence_order": 0.865},
    },
}
CEILINGS = {"token_information": 5.3}
"""Entropy of the tokens, close to the information of layer 0 in the paper."""
FLOORS = {"joint_minus_chain": 0.0, "pair_accuracy": 0.55}
"""Chance levels that the literature's numbers are read beside; 55% by the lengths of two sentences."""
JOINT_MINUS_CHAIN = {"ratio=0.15": -0.1, "ratio=0.4": -0.2, "ratio=0.8": -0.4}


RECIPE = re.compile(r"-(post|pre)-\w+-\w+$")
"""End of the names of arms with other recipes of the encoder: the paper has one number for all of them."""


def _expected(row):
    """The number that the literature predicts in a row."""
    arm, group = RECIPE.sub("", row["arm"]), row["group"]
    match row["measure"], row["metric"]:
        case "fine_tuning", _:
            late = min(1.0, 0.6 + row["step"] / 1250)
            behind = 0.05 if arm == "mlm" and row["step"] < 50 else 0.0  # ahead from a tenth of 500 steps on
            return SCORES[arm] * late - behind
        case "learning", _:  # masked LM has a quarter of its gain at a quarter of the steps, causal LM half
            return {"mlm": 0.5, "clm": 1.0}[arm] * (row["step"] / LAST) ** {"mlm": 1.0, "clm": 0.5}[arm]
        case "frozen_features", _:
            return FROZEN[arm]
        case "token_information", _:
            return INFORMATION[arm][row["layer"]] if pd.isna(group) else OUTPUT[group]
        case ("layer_change" | "read_out") as measure, _:
            return CURVES[measure][arm][row["layer"]]
        case "run_distance", _:
            return DISTANCE[frozenset({arm, group})][row["layer"]]  # whatever the seeds
        case "conditional_independence", _:
            return JOINT_MINUS_CHAIN[group]
        case _, "pair_accuracy":
            return BY_ARM["pair_accuracy"].get(arm, {}).get(group, 0.5)
        case _, metric:
            return BY_ARM.get(metric, {}).get(arm, 1.0)


SPREADS = {
    "token_information": 0.03,
    "read_out": 0.01,
    "layer_change": 0.003,
    "run_distance": 0.01,
    "fine_tuning": 0.005,
    "frozen_features": 0.005,
    "minimal_pairs": 0.01,
    "parsing": 0.005,
    "learning": 0.01,
    "conditional_independence": 0.01,
}
"""Standard deviations between seeds as in the experiments here, of one number of a run; of others .01, of BLEU
1."""


def literature(table, *, rng):
    """The rows of `frame` with the numbers of the literature and a realistic spread between seeds."""
    return next(tables_of_literature(table, rng=rng))


def tables_of_literature(table, *, rng):
    """Tables without end as `literature` makes one."""
    expected = [_expected(row) for row in table.to_dict("records")]
    spread = table["measure"].map(SPREADS).fillna(0.01).where(table["metric"] != "bleu", 1.0)
    floors = table["metric"].map(FLOORS).fillna(table["floor"])
    ceilings = table["measure"].map(CEILINGS).fillna(table["ceiling"])
    while True:
        value = pd.Series(rng.normal(expected, spread), index=table.index)
        yield table.assign(value=value, floor=floors, ceiling=ceilings)
