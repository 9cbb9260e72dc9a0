"""`ablate claims SPEC --new`: a first file of claims that can be judged as it is."""

import re
import shutil
from pathlib import Path

import pytest

from ablations.catalogue import METRICS
from ablations.skeletons import claims as claim_skeleton
from ablations.spec import claims as claims_file
from ablations.spec import grid, load
from tests.support.command_line import ablate, refusal_of
from tests.support.skeleton_verdict import verdict

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
SHIPPED = sorted(EXPERIMENTS.glob("*.yaml"))
SPEC = """\
name: mine
version: 1
data: {kind: language}
objective: {kind: masked_lm}
encoder: {num_hidden_layers: 2, hidden_size: 32}
arms: {mlm: {}, "1": {objective: {masking: {ratio: 0.4}}}}
seeds: [0, 1, 2]
measures: [validation]
"""


def write(folder, text=SPEC, name="mine"):
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def compared_in(spec):
    """The arms of the first claim about a spec that names its claims."""
    claim_skeleton.write(spec)
    (loaded,) = claims_file.load_named(load.load(spec).claims, spec=spec)
    return loaded.claims[0].needs.arms


def test_the_first_claim_compares_arms_on_one_text_if_any_two_have_one(tmp_path):
    """Losses and layers on two texts cannot be compared, whatever the objectives."""
    arms = "arms: {mlm: {}, other-text: {data: {seed: 1}}, clm: {objective: {kind: causal_lm}}}"
    text = re.sub("(?m)^arms:.*$", arms, SPEC)
    assert compared_in(write(tmp_path, f"{text}claims: [mine]\n")) == ("mlm", "clm")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_of_every_shipped_spec_it_is_good_and_ends_in_a_verdict(tmp_path, path):
    spec = shutil.copy(path, tmp_path / path.name)
    text = re.sub("(?m)^(claims|published):.*$", "", spec.read_text(encoding="utf-8"))
    spec.write_text(f"{text}\nclaims: [{path.stem}]\n", encoding="utf-8")
    written = claim_skeleton.write(spec)
    assert written == tmp_path / "claims" / f"{path.stem}.yaml"
    experiment = load.load(spec)
    (loaded,) = claims_file.load_named(experiment.claims, spec=spec)
    (claim,) = loaded.claims
    assert set(claim.needs.arms) <= {run.arm for run in grid.runs(experiment)}
    assert verdict(claim) in ("supported", "contradicted", "equivalent", "undecided")
    told = written.read_text(encoding="utf-8")
    named = {run.arm for run in grid.runs(experiment)} | {measure.kind for measure in experiment.measures}
    assert all(name in told for name in named - {"baselines", "pictures"})  # of which nothing is claimed of arms


def test_the_first_claim_does_not_compare_an_arm_with_its_copy(tmp_path):
    """The first value of an axis is often that of the base."""
    arms = 'arms: {mlm: {}, "1": {objective: {masking: {ratio: 0.4}}}}'
    axis = "arms: {mlm: {}}\ngrid: {base: mlm, axes: {objective.masking.ratio: [0.15, 0.4]}}"
    text = SPEC.replace(arms, axis)
    assert compared_in(write(tmp_path, f"{text}claims: [mine]\n")) == ("mlm", "mlm,ratio=0.4")


COMPARED = sorted(set(METRICS) - {"baselines", "pictures", "learning", "corruption"})


@pytest.mark.parametrize("measure", COMPARED)
def test_every_measure_alone_is_compared(tmp_path, measure):
    written = "{kind: run_distance, across_seeds: true}" if measure == "run_distance" else measure
    spec = write(tmp_path, SPEC.replace("[validation]", f"[{written}]") + "claims: [mine]\n")
    claim_skeleton.write(spec)
    (loaded,) = claims_file.load_named(load.load(spec).claims, spec=spec)
    assert loaded.claims[0].needs.measures == (measure,)
    assert verdict(loaded.claims[0])


def test_a_measure_of_trees_is_compared_on_its_treebank(tmp_path):
    """Groups of `parsing` are also numbers of sweeps, which are no treebanks."""
    spec = write(tmp_path, SPEC.replace("[validation]", "[{kind: parsing, treebank: ud_en_ewt/test.conllu}]"))
    (claim,) = claims_file.load(claim_skeleton.write(spec)).claims
    (of,) = claim.effect.quantities()
    assert (of.metric, of.groups) == ("uuas", ("ud_en_ewt",))
    assert claim.says == "uuas of parsing is higher in mlm than in 1."


def test_the_measure_of_a_plugin_is_compared_by_its_first_metric(tmp_path):
    shutil.copy(EXPERIMENTS.parent / "docs" / "plugins" / "my_measures.py", tmp_path)
    rank = '{kind: "my_measures.py:Rank"}'
    spec = write(tmp_path, SPEC.replace("[validation]", f"[{rank}]") + "claims: [mine]\n")
    written = claim_skeleton.write(spec).read_text(encoding="utf-8")
    (claim,) = claims_file.load_named(load.load(spec).claims, spec=spec)[0].claims
    (of,) = claim.effect.quantities()
    assert (of.measure, of.metric, of.layers) == ("my_measures.py:Rank", "rank", "top")
    assert claim.says == "rank of my_measures.py:Rank in the top layer is higher in mlm than in 1."
    assert "#   {measure: my_measures.py:Rank, metric: rank, layers: top}: rank\n" in written
    assert verdict(claim)


KINDS = (
    *("masked_lm", "causal_lm", "translation", "mixture", "replaced_token", "permutation_lm", "skip_gram"),
    "naive_bidirectional_lm",
)


@pytest.mark.parametrize("kind", KINDS)
def test_one_arm_is_compared_with_a_guess_without_context(tmp_path, kind):
    alone = re.sub("arms: .*", f"arms: {{only: {{objective: {{kind: {kind}}}}}}}", SPEC)
    spec = write(tmp_path, alone.replace("objective: {kind: masked_lm}\n", ""))
    claim_skeleton.write(spec)
    (claim,) = claims_file.load(tmp_path / "claims" / "mine.yaml").claims
    (effect,) = claim.parts.values()
    assert (effect.arm, effect.minus, effect.of.read) == ("only", None, "gain")
    unlike = kind in ("replaced_token", "skip_gram")
    assert effect.of.metric == ("objective_loss" if unlike else "loss")


def test_it_says_where_it_wrote_and_what_is_next(tmp_path):
    spec = write(tmp_path)
    done, path = ablate("claims", spec, "--new"), tmp_path / "claims" / "mine.yaml"
    assert (done.exit_code, done.output) == (
        0,
        f"{path} is written with a first claim for you to change; `ablate validate --claims-schema` explains "
        f"every key\nnext: set `claims: [mine]` in {spec}, then `ablate validate {spec}`\n",
    )
    spec.write_text(SPEC + "claims: [mine]\n", encoding="utf-8")
    assert ablate("validate", spec).exit_code == 0


@pytest.mark.parametrize(
    ("named", "change"),
    [
        ("[mine]", ""),
        ("[theirs, mine]", ""),
        ("[theirs]", "set `claims: [theirs, mine]` in {spec}, then "),
    ],
)
def test_what_is_next_leaves_the_claims_that_the_spec_names(tmp_path, named, change):
    spec = write(tmp_path, f"{SPEC}claims: {named}\n")
    assert ablate("claims", spec, "--new").output.splitlines()[-1] == (
        f"next: {change.format(spec=spec)}`ablate validate {spec}`"
    )


def test_a_spec_may_name_its_claims_before_they_are_written(tmp_path):
    spec = write(tmp_path, SPEC + "claims: [mine]\n")
    path = tmp_path / "claims" / "mine.yaml"
    assert ablate("validate", spec).stderr == (
        f"{spec}:9:10: claims names mine, but there is no file {path}; `ablate claims {spec} --new` writes one\n"
    )
    assert ablate("claims", spec, "--new").exit_code == 0
    assert ablate("validate", spec).exit_code == 0


def test_no_file_is_overwritten(tmp_path):
    spec = write(tmp_path)
    path = tmp_path / "claims" / "mine.yaml"
    path.parent.mkdir()
    for make in (lambda: path.write_text("mine"), lambda: path.symlink_to("nowhere")):
        make()
        assert (
            refusal_of("claims", spec, "--new")
            == f"{path} already exists and was not changed; add your claims to it.\n"
        )
        assert path.is_symlink() or path.read_text() == "mine"
        path.unlink()


def test_a_wrong_spec_and_one_that_compares_nothing_get_none(tmp_path):
    spec = write(tmp_path, SPEC.replace("seeds: [0, 1, 2]", "seeds: []"))
    assert ablate("claims", spec, "--new").stderr == f"{spec}:7:8: seeds must not be empty\n"
    for measures in ("[baselines]", "[run_distance]"):  # without `across_seeds` no claim `apart` can be judged
        spec = write(tmp_path, SPEC.replace("[validation]", measures))
        assert ablate("claims", spec, "--new").stderr == (
            f"{spec}: the spec measures nothing that a claim could compare between its arms; add a measure, as in "
            "`measures: [validation]`.\n"
        )
    assert not (tmp_path / "claims").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    spec = write(tmp_path)
    (tmp_path / "claims").write_text("a file in the way")
    done = ablate("claims", spec, "--new")
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "claims") in done.stderr
