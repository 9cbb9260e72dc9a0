"""First file of claims for a spec: one claim that can be judged, and comments on others.

The claim compares two arms in a number that the spec measures for both, so a run ends in a verdict on it.
Nobody predicted it: the user should change it. This module needs no torch.
"""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ablations.catalogue import Measure, card, metrics_of, suits
from ablations.errors import SpecError
from ablations.measures.settings import RunDistanceSettings
from ablations.metric_groups import groups_of
from ablations.spec import claims as claims_file
from ablations.spec import grid, load
from ablations.spec.experiment import Experiment, Run
from ablations.tasks.settings import TreesSettings
from ablations.wording import listed
from lightning_modules.files import atomic, explained

NOT_COMPARED = ("baselines", "pictures")
"""Measures that a claim cannot compare between arms."""

APART = "{kind: apart, metric: pwcca, pairs: ...}"
"""Effect of a claim that reads `run_distance` with `across_seeds`."""


def write(spec: Path) -> Path:
    """Write a first file of claims for a spec, in the folder `claims` beside it, and return its path.

    Raises:
        SpecProblems: the spec is wrong. The claims that it names are not checked.
        SpecError: the file exists already, or the spec measures nothing that a claim could compare.
        FilesError: the disk is full, or the folder cannot be written to.
    """
    experiment = load.load(spec, beside="unread")
    path = claims_file.path_of(experiment.name, spec=spec)
    if path.exists() or path.is_symlink():
        raise SpecError(f"{path} already exists and was not changed; add your claims to it.")
    text = skeleton(experiment, spec=spec)
    with explained(path.parent):
        path.parent.mkdir(exist_ok=True)
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def skeleton(experiment: Experiment, *, spec: Path) -> str:
    """Return the content of the file of claims.

    Raises:
        SpecError: the spec measures nothing that a claim could compare.
    """
    runs = {run.arm: run for run in grid.runs(experiment)}
    return f"""\
# Claims about {experiment.name}. Write them before the runs: the page says how many runs came before a claim.
# Meaning of each key: ablate validate --claims-schema. To check this file: ablate validate {spec}
#
# Arms: {", ".join(runs)}
# What a claim can compare (`of`), and the possible metrics of each measure:
{"".join(_comments(experiment))}#
# An effect is the number of `arm` minus the number of `minus`, and the claim says that it is above 0. To claim
# that an arm has less, exchange the two arms.
version: 1
claims:
{_first_claim(experiment, runs, spec=spec)}"""


def _comments(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each measure with the metrics that a claim can read."""
    for settings in experiment.measures:
        metrics = listed(metrics_of(settings.kind))
        if isinstance(settings, RunDistanceSettings):
            yield f"#   {APART} of run_distance (with across_seeds: true): {metrics}\n"
        elif settings.kind == "validation":
            yield f"#   {{measure: validation, metric: loss}}: {metrics}\n"
            yield "#   {measure: learning, metric: gain}, the same over the course of training: gain or loss\n"
        elif settings.kind not in NOT_COMPARED:
            yield f"#   {_of(settings)}: {metrics}\n"


def _of(settings: Measure) -> str:
    """Return the number that a claim about a measure reads: the first metric of its card, for the top layer and as
    the mean over its groups if it has layers and groups. For `validation` it is the gain."""
    kind = settings.kind
    if kind == "validation":
        return "{measure: validation, metric: loss, read: gain}"
    facts, metric = card(kind), _metric(kind)
    group = settings.treebank_name if isinstance(settings, TreesSettings) else "*"
    has_groups = facts.groups is not None or not groups_of(kind, metric).whole
    groups = f", groups: [{json.dumps(group, ensure_ascii=False)}]" if has_groups else ""
    return f"{{measure: {kind}, metric: {metric}{groups}{', layers: top' if facts.layers != 'none' else ''}}}"


def _metric(measure: str) -> str:
    return card(measure).metrics[0]


def _first_claim(experiment: Experiment, runs: Mapping[str, Run], *, spec: Path) -> str:
    for settings in sorted(experiment.measures, key=lambda settings: settings.kind != "validation"):
        if arms := _arms(settings, runs):
            return _written(settings, arms, runs, family=experiment.name)
    raise SpecError(
        f"{spec}: the spec measures nothing that a claim could compare between its arms; add a measure, as in "
        "`measures: [validation]`."
    )


def _arms(settings: Measure, runs: Mapping[str, Run]) -> Sequence[str]:
    """Return the two arms that the first claim compares; empty if a measure cannot compare any.

    For `validation` one arm is enough. Pairs that read the same text come first, then pairs with the same kind of
    objective, then pairs of trained arms.
    """
    alike: Callable[[Run], str] = {"validation": _loss, "run_distance": _layers}.get(settings.kind, lambda _: "")
    fit = [arm for arm, run in runs.items() if _has(settings, run)]
    whole = {arm: runs[arm].settings.model_dump_json(exclude={"seed"}) for arm in fit}
    pairs = [
        (first, second)
        for first, second in itertools.combinations(fit, 2)
        if alike(runs[first]) == alike(runs[second]) and whole[first] != whole[second]
    ]

    def rank(pair: tuple[str, str]) -> tuple[bool, bool, bool]:
        first, second = (runs[arm].settings for arm in pair)
        untrained = not (first.training.max_steps and second.training.max_steps)
        return first.data != second.data, first.objective.kind != second.objective.kind, untrained

    return min(pairs, key=rank, default=tuple(fit[:1]) if settings.kind == "validation" else ())


def _has(settings: Measure, run: Run) -> bool:
    """Return whether the table has numbers of this run and measure that a claim may read."""
    if isinstance(settings, RunDistanceSettings):
        is_compared = settings.across_seeds and (not settings.arms or run.arm in settings.arms)
        return is_compared and run.settings.objective.has_layers
    return settings.kind not in NOT_COMPARED and suits(settings, run.settings)


def _layers(run: Run) -> str:
    return str(run.settings.encoder.num_hidden_layers)


def _loss(run: Run) -> str:
    return "loss" if run.settings.objective.has_vocabulary_loss else "objective_loss"


def _written(settings: Measure, arms: Sequence[str], runs: Mapping[str, Run], *, family: str) -> str:
    measure, names = settings.kind, ", ".join(map(_quoted, arms))
    smallest, unit = ("0.05", "nats") if measure == "validation" else ("0.01", "")
    if measure == "run_distance":
        unit = "distance"
        says = f"{arms[0]} and {arms[1]} differ more from each other than the seeds of each arm do."
        effect = f"{APART.replace('...', f'[[{names}]]')[:-1]}, unit: {unit}}}"
    else:
        of = _of(settings).replace("metric: loss", f"metric: {_loss(runs[arms[0]])}")
        where = " in the top layer" if "layers: top" in of else ""
        says = f"{_metric(measure)} of {measure}{where} is higher in {arms[0]} than in {arms[-1]}."
        if measure == "validation":
            says = f"{arms[0]} gains more on a guess without context than {arms[-1]}."
        if len(arms) == 1:
            says = f"{arms[0]} has learned more than how frequent tokens are."
        minus = f", minus: {_quoted(arms[1])}" if len(arms) == 2 else ""
        of_unit = f", unit: {unit}" if unit else ""
        effect = f"{{kind: difference, of: {of}, arm: {_quoted(arms[0])}{minus}{of_unit}}}"
    return f"""\
  - name: first-claim
    says: {json.dumps(says, ensure_ascii=False)}
    source: nobody yet  # paper and section, or who expects it
    effect: {effect}
    smallest_effect: {smallest}  # smaller ones do not matter; decide before the runs
    expect: open  # or your prediction: supported, contradicted or equivalent
    because: nothing is predicted yet  # why you expect it, with numbers if possible
    family: {family}  # claims of one family are judged together and share the error level
"""


def _quoted(name: str) -> str:
    """Return a name, quoted if YAML needs that, also within brackets."""
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]*", name) and name.lower() not in ("true", "false", "null")
    return name if plain else json.dumps(name)
