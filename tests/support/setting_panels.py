"""Panels of scores by a setting, from invented numbers."""

from ablations import results
from reports.scores.by_setting import setting_figures
from reports.scores.factors import Factor, Level

ARMS = ("mlm", "clm", "mt", "untrained")


PLACES = {"clm": 0.05, "mlm": 0.15, "mt": 0.8}


GAIN = {"mlm": 1.8, "clm": 1.2, "mt": 1.5, "untrained": -2.0}


TOP = {"mlm": 3.3, "clm": 1.6, "mt": 4.5, "untrained": 2.5}


NOISE = (-0.1, 0.0, 0.2)


def rows(*, gain=GAIN, top=TOP, seeds=NOISE, asked=None):
    """Validation and information of arms; `asked` are other numbers of predictions than 1,000."""
    for arm in ARMS:
        for seed, noise in enumerate(seeds):
            run = {"run_id": f"{arm}{seed}", "arm": arm, "seed": seed, "step": 0 if arm == "untrained" else 500}
            n = (asked or {}).get(arm, 1000)
            loss = {
                "measure": "validation",
                "metric": "loss",
                "value": 5.0 - gain[arm] - noise,
                "floor": 5.0,
                "n": n,
            }
            yield run | loss
            knows = {
                "measure": "token_information",
                "metric": "cross_fitted",
                "floor": 0.01,
                "n": 20_000,
                "d": 300,
            }
            yield run | knows | {"layer": 0, "value": 5.0}
            yield run | knows | {"layer": 1, "value": top[arm] + noise}


def factor(places=PLACES, *, lines=("",), of=None, **changes):
    numeric = not any(isinstance(value, str) for value in places.values())
    levels = [
        Level(arm, (of or {}).get(arm, 0), float(place) if numeric else float(i), str(place))
        for i, (arm, place) in enumerate(places.items())
    ]
    made = Factor(
        setting="objective.masking.ratio",
        title="masking ratio",
        label="masking ratio",
        numeric=numeric,
        logarithmic=False,
        lines=lines,
        levels=tuple(levels),
        reference="mlm",
        untrained="untrained",
    )
    return made._replace(**changes)


def panels(*, chosen=None, **changed):
    table = results.table(rows(**changed))
    return [panel for figure in setting_figures(table, [chosen or factor()], arms=ARMS) for panel in figure.panels]
