"""Laws of every experiment, tried on random specs: whatever is valid has one resolved form, runs that keep their
identity, and a table that can be read whichever measures are there; and it ends in a page."""

import functools
import itertools
import json
import math
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ablations.catalogue import CARDS, METRICS, for_run, layers_of
from ablations.runs import identity
from ablations.runs import rows as run_rows
from ablations.runs.workspace import Workspace
from ablations.spec import grid, load
from reports import folder as experiment_folder
from reports.page.summary import summary
from tests.support.command_line import ablate
from tests.support.random_specs import specs

quickly = settings(derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])


def written(folder, spec):
    path = Path(folder) / "drawn.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return path


def identities(experiment, folder):
    return [
        (run.run.arm, run.run.seed, run.run_id)
        for run in identity.placed_runs(grid.runs(experiment), out=folder / "out", data_root=folder)
    ]


def assert_resolves_to_itself(spec, data_root):
    with TemporaryDirectory() as folder:
        experiment = load.load(written(folder, spec))
        resolved = grid.resolved(experiment)
        again = load.load(written(folder, resolved))
    assert grid.resolved(again) == resolved
    assert identities(again, data_root) == identities(experiment, data_root)


@settings(quickly, max_examples=60)
@given(spec=specs())
def test_the_resolved_form_of_a_valid_spec_is_itself_and_has_the_same_runs(spec, data_root):
    assert_resolves_to_itself(spec, data_root)


@pytest.mark.slow
@settings(quickly, max_examples=1000)
@given(spec=specs())
def test_the_resolved_form_of_a_thousand_specs_is_itself_and_has_the_same_runs(spec, data_root):
    assert_resolves_to_itself(spec, data_root)


def fabricated(settings, layers, rng):
    """Rows as the measure writes them, with invented numbers and only the columns that it has something for."""
    rows = []
    for metric in METRICS[settings.kind]:
        row = {"metric": metric, "value": rng.random(), "unit": "1", "n": rng.randrange(1, 900)}
        if settings.kind == "pictures":
            points = [row | {"value": rng.random(), "group": f"ko|{place}|-|-|{place}"} for place in range(3)]
            rows += [point | {"layer": layer} for point in points for layer in range(layers)]
        elif layers_of(settings.kind) == "all":
            rows += [row | {"layer": layer, "floor": 0.0, "standard_error": 0.1} for layer in range(layers)]
        elif getattr(settings, "tasks", None):
            rows.append(row | {"group": settings.tasks[0], "floor": 0.5})
        else:
            rows.append(row | {"floor": 5.0})
    return pd.DataFrame(rows)


def fabricate(item, measures, rng, *, number=None):
    """A run's folder as after its training, with so many of its measures, by chance unless given; returns them."""
    identity.create(item)
    steps = item.run.settings.training.max_steps
    item.directory.checkpoints.mkdir()
    item.directory.last_checkpoint.write_bytes(b"weights")
    item.directory.write_state("done", step=steps, max_steps=steps, last_checkpoint_bytes=len(b"weights"))
    with item.directory.metrics.open("w") as log:
        log.write(json.dumps({"step": steps, "val/loss": 3.0, "val/predicted": 70}) + "\n")
    some = rng.sample(measures, rng.randint(0, len(measures)) if number is None else number)
    for one in some:
        rows = fabricated(one, item.run.settings.encoder.num_hidden_layers, rng)
        about = {"measure": one.kind, "step": steps, "key": run_rows.key(one), "sample": None, "files": None}
        run_rows.put(item.directory.path, rows.assign(**about))
    return some


def assert_table_agrees_with_what_is_missing(spec, drawn, data_root):
    rng = random.Random(drawn)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        workspace = Workspace.open(written(folder, spec), out=out, data_root=data_root)
        items = list({item.run_id: item for item in workspace.planned}.values())
        there = {}
        for item in rng.sample(items, rng.randint(1, min(2, len(items)))):
            asked = list(for_run(workspace.experiment.measures, item.run.settings, data_root=data_root))
            there[item.run_id] = fabricate(item, asked, rng)
        lacks = workspace.lacking()
        assert {run_id: one.number_requested - len(one.names) for run_id, one in lacks.items()} == {
            run_id: len(some) for run_id, some in there.items()
        }
        workspace.write_plan()
        workspace.write_table()
        read = experiment_folder.read(workspace.folder)
        assert summary(read)
    of_validation = {run_id for run_id, some in there.items() if any(one.kind == "validation" for one in some)}
    assert set(read.table.loc[read.table["measure"] == "learning", "run_id"]) == of_validation
    for run_id, rows in read.table.groupby("run_id"):
        assert set(rows["measure"]) - {"learning"} == {one.kind for one in there[run_id]}


RUNS = {"spec": specs(most_arms=2), "drawn": st.integers(0, 10**6)}


@settings(quickly, max_examples=60)
@given(**RUNS)
def test_any_measures_of_any_runs_make_a_table_that_is_read_and_agrees_with_what_is_missing(
    spec, drawn, data_root
):
    assert_table_agrees_with_what_is_missing(spec, drawn, data_root)


@pytest.mark.slow
@settings(quickly, max_examples=1000)
@given(**RUNS)
def test_any_measures_of_a_thousand_specs_make_a_table_that_is_read(spec, drawn, data_root):
    assert_table_agrees_with_what_is_missing(spec, drawn, data_root)


KINDS = tuple(CARDS)
PAIRS = tuple(itertools.combinations(KINDS, 2))
ARMS = {kind: {"objective": {"kind": kind}} for kind in ("masked_lm", "causal_lm", "skip_gram")}
TINY = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2}


def page_of(measures, folder):
    """Make the page of an experiment whose first arm has all its measures and whose second only the first."""
    settings = {"pictures": {"words": ["ko"]}}
    asked = [{"kind": kind} | settings.get(kind, {}) for kind in measures]
    data, training = {"kind": "language", "train": 2000, "validation": 400, "test": 50}, {"max_steps": 2}
    spec = {"name": "drawn", "version": 1, "data": data, "encoder": TINY, "training": training}
    path = written(folder, spec | {"arms": ARMS, "seeds": [0], "measures": asked})
    workspace = Workspace.open(path, out=folder / "out", data_root=folder)
    for item, number in zip(workspace.planned, (len(asked), 1, 0), strict=True):
        wanted = list(for_run(workspace.experiment.measures, item.run.settings, data_root=folder))[:number]
        fabricate(item, wanted, random.Random(0), number=len(wanted))
    workspace.write_plan()
    workspace.write_table()
    command = ["report", str(path), "--out", str(folder / "out"), "--data-root", str(folder)]
    done = ablate(*command)
    assert done.exit_code == 0, done.output
    return json.loads((folder / "out" / "drawn" / "report.json").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_every_measure_alone_ends_in_a_page(kind, tmp_path):
    assert page_of([kind], tmp_path)["experiment"] == "drawn"


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_every_pair_of_measures_ends_in_a_page(pair, tmp_path):
    assert page_of(pair, tmp_path)["experiment"] == "drawn"


TRAINED = 40


@functools.cache
def different_specs():
    """Specs of up to three runs of two steps, no two with the same objectives and measures."""
    found = {}

    @settings(quickly, max_examples=20 * TRAINED, phases=[Phase.generate])
    @given(spec=specs(steps=st.sampled_from((0, 2, 2, 2)), most_arms=2, most_measures=2, efforts=("quick",)))
    def collect(spec):
        kinds = [arm["objective"]["kind"] for arm in spec["arms"].values()]
        asked = [one if isinstance(one, str) else one["kind"] for one in spec["measures"]]
        generated = spec.get("grid", {})
        paired = max((len(values) for values in generated.get("zip", {}).values()), default=1)
        if len(kinds) + paired * math.prod(map(len, generated.get("axes", {}).values())) * bool(generated) > 3:
            return
        found.setdefault((*sorted(kinds), *sorted(asked)), spec | {"seeds": spec["seeds"][:1]})

    collect()
    every = len(found) // TRAINED  # the first ones are simple
    return list(found.values())[::every][:TRAINED]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(TRAINED))
def test_whatever_is_valid_ends_in_a_page(number, data_root, tmp_path):
    """Training for two steps, measuring and drawing end well; or a sentence says before what the text lacks."""
    path, out = written(tmp_path, different_specs()[number]), tmp_path / "out"
    command = ["run", str(path), "--out", str(out), "--data-root", str(data_root)]
    done = ablate(*command)
    if done.exit_code == 2:
        assert done.stderr.startswith(f"{path}:")
        assert done.stderr.count("\n") == 1
        assert not (out / "runs").exists()
        return
    assert done.exit_code == 0, done.output
    assert (out / "drawn" / "report.html").stat().st_size
    again = ablate(*command)
    assert (again.exit_code, "nothing to do" in again.output) == (0, True)
