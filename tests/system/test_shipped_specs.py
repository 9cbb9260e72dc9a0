"""Every spec we ship loads, is what its golden file says, and opens with six true lines.

After a wanted change: ``REWRITE_GOLDEN=1 pytest tests/system/test_shipped_specs.py``, and read the difference.
"""

import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from ablations.runs.prepare import prepare_text
from ablations.runs.workspace import Workspace
from ablations.skeletons.examples import header
from ablations.spec import grid, load
from ablations.spec.experiment import SeedsUntilDecided
from ablations.spec.tuning import combinations, tuned_arms
from ablations.wording import several
from tests.support.golden import golden_text, unfolded
from tests.support.spec_headers import END, START, table
from tests.support.verdict_table import TABLE, with_verdicts

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SPECS = sorted((ROOT / "experiments").glob("*.yaml"))
shipped = pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)


@shipped
def test_resolves_to_its_golden_file(path):
    resolved = grid.resolved(load.load(path))
    golden = GOLDEN / f"{path.stem}.json"
    if os.environ.get("REWRITE_GOLDEN"):
        golden.write_text(golden_text(resolved), encoding="utf-8")
    written = golden.read_text(encoding="utf-8")
    assert written == golden_text(resolved)
    assert json.dumps(unfolded(json.loads(written))) == json.dumps(resolved)


def test_a_golden_file_has_differences_by_path_and_other_kinds_whole():
    first = {"a": {"kind": "x", "size": 1, "words": ["one word", "b"]}, "steps": 10}
    second = {"a": {"kind": "x", "size": 1.0, "words": ["one word", "b"]}, "steps": 10}
    third = {"a": {"kind": "y", "rate": None}, "steps": 0}
    resolved = {"name": "n", "arms": {"first": first, "second": second, "same": first, "third": third}}
    golden = json.loads(golden_text(resolved))
    assert golden["arms"] == {
        "first": first,
        "second": {"a.size": 1.0},
        "same": {},
        "third": {"a": {"kind": "y", "rate": None}, "steps": 0},
    }
    assert json.dumps(unfolded(golden)) == json.dumps(resolved)


def test_no_golden_file_is_left_over():
    assert {path.stem for path in GOLDEN.glob("*.json")} == {path.stem for path in SPECS}


@shipped
def test_is_called_like_its_file(path):
    assert load.load(path).name == path.stem


def trials_of(experiment):
    """The number of runs of trials before those of the arms."""
    tune = experiment.tune
    if tune is None:
        return 0
    return (tune.budget or len(tuned_arms(experiment)) * len(list(combinations(tune)))) * len(tune.seeds)


@shipped
def test_opens_with_question_runs_cost_expect_start_and_state(path):
    experiment = load.load(path)
    opening = header(path)
    assert list(opening)[:6] == ["Question", "Runs", "Cost", "Expect", "Start", "State"]
    assert opening["Question"] == experiment.question
    runs = grid.runs(experiment)
    arms, seeds = len({run.arm for run in runs}), experiment.seeds
    trials = trials_of(experiment)
    after = f", after {trials} trials" if trials else ""
    if isinstance(seeds, SeedsUntilDecided):
        first, most = seeds.first, seeds.up_to
        assert opening["Runs"] == f"{arms * first} to {arms * most} = {arms} arms x {first} to {most} seeds{after}"
    else:
        most = len(seeds)
        assert opening["Runs"] == f"{arms * most} = {several(arms, 'arm')} x {most} seeds{after}"
    assert len(runs) == arms * most
    command = f"ablate run {path.relative_to(ROOT).as_posix()}"
    assert (opening["Start"] + " ").startswith(command + " ")
    assert opening["State"] in {"complete", "partial", "unrun"}


def test_the_table_of_experiments_is_what_the_specs_say():
    """After a wanted change: ``REWRITE_GOLDEN=1 pytest tests/system/test_shipped_specs.py``."""
    readme = ROOT / "experiments" / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(START)
    written = before + table(ROOT / "experiments") + rest.split(END)[1]
    if os.environ.get("REWRITE_GOLDEN"):
        readme.write_text(written, encoding="utf-8")
    assert readme.read_text(encoding="utf-8") == written


@pytest.mark.parametrize("name", ["README.md", "experiments/README.md"])
def test_pages_have_the_verdicts_that_are_published(name):
    """After a wanted change: ``REWRITE_GOLDEN=1 pytest tests/system/test_shipped_specs.py``."""
    page = ROOT / name
    written = with_verdicts(page, ROOT / "experiments" / "results")
    if os.environ.get("REWRITE_GOLDEN"):
        page.write_text(written, encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    assert TABLE.search(text)
    assert text == written


def test_a_claim_is_listed_by_the_experiment_with_most_seeds_on_real_text(tmp_path):
    """Counter-examples: 3a with 8 seeds counts, although only 5 seeds decide; 4 is decided on another text; 6 was
    testable in one of two experiments of 3 seeds; 10 is undecided in the wider of two experiments of 5 seeds."""
    judged = {
        "five": ("files", 8, {"3a": ("contradicted", 5), "6": ("undecided", 3), "9": ("not run", None)}),
        "eight": (
            "files",
            8,
            {"3a": ("undecided", 8), "4": ("not testable here", 3), "6": ("not testable here", 3)},
        ),
        "language": ("language", 64, {"3a": ("not testable here", 12), "4": ("contradicted", 12)}),
        "narrow": ("files", 8, {"10": ("contradicted", 5)}),
        "wide": ("files", 32, {"10": ("undecided", 5)}),
    }
    for name, (kind, width, claims) in judged.items():
        folder = tmp_path / "results" / name
        folder.mkdir(parents=True)
        (folder / "spec.yaml").write_text(
            f"data: {{kind: {kind}}}\nencoder: {{hidden_size: {width}}}\n", encoding="utf-8"
        )
        entries = [{"number": number, "verdict": verdict, "n": n} for number, (verdict, n) in claims.items()]
        (folder / "claims.json").write_text(json.dumps({"claims": entries}), encoding="utf-8")
    page = tmp_path / "README.md"
    page.write_text("<!-- verdicts on real text -->\n<!-- end of the verdicts -->\n", encoding="utf-8")
    assert with_verdicts(page, tmp_path / "results").splitlines()[5:] == [
        "Undecided: 3a, 6 and 10; not testable here: 4.",
        "",
        "<!-- end of the verdicts -->",
    ]


LANGUAGE = {"kind": "language", "train": 2000, "validation": 400, "test": 10, "vocab_size": 512, "max_length": 64}
SIZES = {
    "tokens": 2000,
    "types": 20,
    "clusters": 20,
    "occurrences": 10,
    "neighbours": 5,
    "neighbours_of_type": 2,
    "words": ["tu", "til"],
    "treebank": None,
    "sentences": 20,
}


def small(resolved):
    """The same arms and measures, on a small encoder and a small text of the built-in language."""
    for arm in resolved["arms"].values():
        layers = min(2, arm["encoder"]["num_hidden_layers"])
        shape = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 32, "num_hidden_layers": layers}
        arm["encoder"] |= shape
        arm["training"]["tokens_per_step"] = 512
        arm["data"] = LANGUAGE
        if arm["training"]["sentences"] is not None:
            arm["training"]["sentences"] = min(arm["training"]["sentences"], LANGUAGE["train"])
        select = arm["objective"].get("masking", {}).get("select", {})
        if "treebank" in select:
            select["treebank"] = None
        if select.get("words"):
            select["words"] = SIZES["words"]
        if (
            select.get("kind") == "label_word"
        ):  # which is of labelled text: tests/ablations/tasks/test_cloze_toy.py
            arm["objective"]["masking"]["select"] = {"kind": "uniform"}
    for measure in resolved["measures"]:
        measure |= {name: size for name, size in SIZES.items() if name in measure and measure[name] is not None}
        if "tasks" in measure:
            measure["tasks"] = None  # those of this text
    return resolved | {"seeds": [0], "claims": [], "published": []}


@shipped
def test_can_start(path, tmp_path, tmp_path_factory):
    """What is asked before the first run starts is there, for every arm with every measure."""
    spec = tmp_path / path.name
    spec.write_text(json.dumps(small(grid.resolved(load.load(path)))), encoding="utf-8")
    workspace = Workspace.open(spec, out=tmp_path_factory.getbasetemp() / "started", data_root=tmp_path)
    prepare_text(workspace, workspace.planned, Console(quiet=True))
