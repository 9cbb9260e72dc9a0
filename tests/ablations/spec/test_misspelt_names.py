"""Names that are misspelt: each is an error with its place and the nearest name, before anything runs."""

from dataclasses import replace
from typing import get_args

import pytest
from pydantic import TypeAdapter

from ablations import metric_groups
from ablations.catalogue import METRICS, OF_TASKS, Measure
from ablations.errors import SpecError
from ablations.measures.reading.sample import groups
from ablations.messages import ALSO_CALLED, kind_of, models_in
from ablations.metric_groups import GROUPS, PARADIGMS, groups_made, groups_of, metrics_of_task
from ablations.spec import claims as claims_file
from ablations.spec import load
from ablations.spec.claim_checks import effect_faults
from ablations.spec.contrasts import ClaimFile, Difference
from ablations.spec.experiment import Experiment
from ablations.tasks.datasets import TASKS
from ablations.tasks.settings import ConditionalIndependenceSettings
from ablations.wording import FEW, must_be, percentage_as_share
from lightning_modules.config import RunSettings
from lightning_modules.config.objectives import OBJECTIVES
from lightning_modules.data.language import minimal_pairs
from tests.support.claim_files import GOOD, write
from tests.support.command_line import ablate
from tests.support.errors import error_text
from tests.support.grouped_sample import sample

# Numbers ----------------------------------------------------------------------------------------------


def test_a_percentage_is_written_as_a_person_writes_it():
    """By hand: the digits with the point two places further left."""
    for hundredths in (*range(10, 400), *range(400, 10_001, 37)):
        digits = f"{hundredths:05d}"
        by_hand = f"{digits[:-4]}.{digits[-4:]}".rstrip("0").rstrip(".")
        percentage = f"{hundredths // 100}.{hundredths % 100:02d}"
        assert percentage_as_share(percentage) == percentage_as_share(float(percentage)) == by_hand


SPEC = """\
name: x
version: 1
data: {kind: language}
objective: {kind: masked_lm, masking: {ratio: 0.15}}
arms: {mlm: {}, clm: {}}
seeds: [0]
measures: [validation]
claims: [first]
"""
BELOW = "must be less than or equal to 1"
NUMBERS = [
    ("1.4", f"{BELOW}, but is 1.4; lower it (1.4% is written 0.014)"),
    ("33.3", f"{BELOW}, but is 33.3; lower it (33.3% is written 0.333)"),
    ("15", f"{BELOW}, but is 15; lower it (15% is written 0.15)"),
    ("100", f"{BELOW}, but is 100; lower it (100% is written 1)"),
    ("140", f"{BELOW}, but is 140; lower it"),
    ("-15", "must be greater than 0, but is -15; raise it"),
    ("0.7%", 'must be a valid number, but is the text "0.7%"; write 0.007'),
    ("15 %", 'must be a valid number, but is the text "15 %"; write 0.15'),
    ("0%", 'must be a valid number, but is the text "0%"; write 0'),
    ("140%", 'must be a valid number, but is the text "140%"'),
    ("'0.2'", 'must be a valid number, but is the text "0.2"; write 0.2'),
    ("'15'", 'must be a valid number, but is the text "15"; write 15'),
    ("-0.2%", 'must be a valid number, but is the text "-0.2%"'),
]


def sentences(folder, spec=SPEC, claims=GOOD):
    write(folder, claims)
    path = folder / "spec.yaml"
    path.write_text(spec, encoding="utf-8")
    return error_text(SpecError, load.load, path).replace(f"{folder}/", "").splitlines()


@pytest.mark.parametrize(("written", "sentence"), NUMBERS, ids=[written for written, _ in NUMBERS])
def test_a_share_that_is_none_is_answered_with_what_to_write(tmp_path, written, sentence):
    spec = SPEC.replace("0.15", written)
    assert sentences(tmp_path, spec) == [f"spec.yaml:4:47: objective.masking.ratio {sentence}"]


@pytest.mark.parametrize(
    ("where", "setting"),
    [
        ("data: {kind: language", "data.vocab_size"),
        ("masking: {ratio: 0.15", "objective.masking.copies"),
    ],
)
def test_a_size_that_no_array_holds_is_refused(tmp_path, where, setting):
    """It was accepted, and ended in an overflow during a run."""
    name = setting.rpartition(".")[2]
    (sentence,) = sentences(tmp_path, SPEC.replace(where, f"{where}, {name}: {10**20}"))
    assert sentence.endswith(f": {setting} must be less than {2**31}, but is {10**20}; lower it")


# Words and kinds --------------------------------------------------------------------------------------


def test_few_names_are_listed_and_of_many_the_nearest_alone():
    few, many = ["alpha", "beta"], ["alpha", *(f"name{i}" for i in range(FEW))]
    assert must_be("alpa", few, noun="x") == 'must be alpha or beta, but is "alpa"; did you mean alpha?'
    assert must_be("alpa", many, noun="a letter") == 'must be a letter, but is "alpa"; did you mean alpha?'
    listed = "must be alpha, name0, name1, name2, name3 or name4"
    assert must_be("zzz", many, noun="a letter") == f'{listed}, but is "zzz"'
    assert must_be(3, many, noun="a letter") == f"{listed}, but is 3"


def unions(model, seen=()):
    """Every union of models that are told apart by their kind, wherever a file may have one."""
    for field in model.model_fields.values():
        for annotation in (field.annotation, *get_args(field.annotation)):
            members = models_in(annotation)
            if len(members) > 1 and all(map(kind_of, members)):
                yield tuple(map(kind_of, members))
            for member in members:
                if member not in seen:
                    yield from unions(member, (*seen, member))


KINDS = sorted({kinds for model in (Experiment, RunSettings, ClaimFile) for kinds in unions(model)})


def test_the_unions_of_every_file_are_seen():
    first = {kinds[0] for kinds in KINDS}
    assert {"masked_lm", "language", "uniform", "natural", "difference"} <= first


@pytest.mark.parametrize("kinds", KINDS, ids=lambda kinds: kinds[0])
def test_a_kind_that_lacks_a_letter_is_answered_with_the_kind_first(kinds):
    for kind in kinds:
        sentence = must_be(kind[:-1], kinds, noun=f"one of {len(kinds)} kinds", prefix="of kind ")
        assert sentence.endswith(f"; did you mean {kind}?")
        assert len(kinds) <= FEW or sum(other in sentence for other in kinds if other not in kind) == 0


MEASURES = [kind for kind in map(kind_of, models_in(get_args(Measure)[0])) if kind]


@pytest.mark.parametrize("kind", MEASURES)
def test_an_unknown_measure_is_answered_with_the_nearest_and_nothing_else(tmp_path, kind):
    (sentence,) = sentences(tmp_path, SPEC.replace("[validation]", f"[{kind[:-1]}]"))
    assert sentence == (
        f"spec.yaml:7:12: an entry of measures must be one of {len(MEASURES)} kinds, but is "
        f'"{kind[:-1]}"; did you mean {kind}?'
    )


@pytest.mark.parametrize("task", sorted(TASKS))
def test_an_unknown_task_is_answered_with_the_nearest(tmp_path, task):
    wrong = task[:-1] + task[-1] * 2
    (sentence,) = sentences(tmp_path, SPEC.replace("[validation]", f"[{{kind: baselines, tasks: [{wrong}]}}]"))
    assert sentence.endswith(f'must be a task, but is "{wrong}"; did you mean {task}?')


DIRECTION = 'claims.effect.direction must be higher or either, but is "{}"{}'
EXCHANGE = "; to claim that it is lower, exchange arm and minus, or set at_most"


@pytest.mark.parametrize("word", ["negative", "lower", "less", "falling", "hihger", "eiter"])
def test_a_claim_of_less_is_told_how_it_is_written(tmp_path, word):
    hint = {"hihger": "; did you mean higher?", "eiter": "; did you mean either?"}.get(word, EXCHANGE)
    claims = GOOD.replace("minus: mlm}", f"minus: mlm, direction: {word}}}")
    (sentence,) = sentences(tmp_path, claims=claims)
    assert sentence == f"claims/first.yaml:8:106: {DIRECTION.format(word, hint)}"


@pytest.mark.parametrize("direction", ["higher", "either"])
def test_both_directions_are_good(direction):
    effect = {"kind": "difference", "of": {"measure": "validation", "metric": "loss"}, "arm": "a", "minus": "b"}
    assert Difference.model_validate(effect | {"direction": direction}).direction == direction


# Arms -------------------------------------------------------------------------------------------------

OTHER = "if another experiment has this arm, name its spec in claims.needs.spec"


def test_a_misspelt_arm_is_said_at_every_place_with_the_nearest_name(tmp_path):
    assert sentences(tmp_path, claims=GOOD.replace("mlm", "mlmm")) == [
        'claims/first.yaml:8:90: claims.effect names the arm "mlmm", but spec.yaml does not have it; did you mean '
        f"mlm? ({OTHER})",
    ]


def test_an_arm_that_is_like_none_is_an_error_too(tmp_path):
    (sentence,) = sentences(tmp_path, claims=GOOD.replace("mlm", "word2vec"))
    assert sentence == (
        'claims/first.yaml:8:90: claims.effect names the arm "word2vec", but spec.yaml does not have it; its '
        f"arms are mlm and clm ({OTHER})"
    )


NOT_EQUAL = (
    "claims.needs.arms is {}, but claim both-sides-help uses {}; make them equal, or leave claims.needs.arms out"
)


def test_a_slip_in_an_effect_alone_is_said_at_both_places(tmp_path):
    needs, effect = sentences(tmp_path, claims=GOOD.replace("minus: mlm", "minus: mlmm"))
    assert needs == f"claims/first.yaml:7:19: {NOT_EQUAL.format('mlm and clm', 'clm and mlmm')}"
    assert effect == (
        'claims/first.yaml:8:90: claims.effect names the arm "mlmm", but spec.yaml does not have it; did you mean '
        f"mlm? ({OTHER})"
    )


def test_a_slip_in_the_needs_alone_is_said_once(tmp_path):
    (sentence,) = sentences(tmp_path, claims=GOOD.replace("[mlm, clm]", "[mlmm, clm]"))
    assert sentence == f"claims/first.yaml:7:19: {NOT_EQUAL.format('mlmm and clm', 'clm and mlm')}"


def test_other_problems_of_a_file_hide_no_misspelt_arm(tmp_path):
    """And those of the spec neither, as long as its arms can be read."""
    claims = GOOD.replace("mlm", "mlmm").replace("expect: supported", "expect: surely")
    found = sentences(tmp_path, SPEC.replace("ratio: 0.15", "ratio: 15"), claims)
    assert [sentence.partition(": ")[0] for sentence in found] == [
        *(f"claims/first.yaml:{place}" for place in ("8:90", "10:13")),
        "spec.yaml:4:47",
    ]


WITH_SPEC = GOOD.replace("measures: [validation]}", "measures: [validation], spec: all.yaml}")


def test_the_experiment_that_a_claim_names_has_its_arms(tmp_path):
    """So a file of claims may be shared by a spec that has few of them."""
    (tmp_path / "all.yaml").write_text(SPEC.replace("clm:", "word2vec:").replace("claims: [first]\n", ""))
    claims = WITH_SPEC.replace("clm", "word2vec")
    write(tmp_path, claims)
    few = tmp_path / "spec.yaml"
    few.write_text(SPEC.replace(", clm: {}", ""))
    assert load.load(few).claims == ("first",)
    found = sentences(tmp_path, claims=claims.replace("word2vec", "word3vec"))
    (sentence,) = found
    assert sentence.endswith(
        ': claims.effect names the arm "word3vec", but claims.needs.spec is all.yaml, which does not have it; did '
        "you mean word2vec?"
    )
    with pytest.raises(SpecError, match=r'claims.effect names the arm "word3vec"'):
        claims_file.load(tmp_path / "claims" / "first.yaml")  # also where no spec is at hand


def test_of_a_spec_whose_arms_cannot_be_read_nothing_is_said(tmp_path):
    """It has problems of its own, and no arm is taken for misspelt because of these."""
    write(tmp_path, WITH_SPEC)
    for text in ("", "arms: 3", "arms: {mlm: {}}\ngrid: {base: nlm, axes: {}}", "arms: ["):
        (tmp_path / "all.yaml").write_text(text)
        assert claims_file.load(tmp_path / "claims" / "first.yaml").claims


def test_arms_that_a_grid_generates_are_there(tmp_path):
    grid = "grid: {base: mlm, axes: {objective.masking.ratio: [0.4]}}\nclaims"
    claims = GOOD.replace("clm", "'mlm,ratio=0.4'")
    write(tmp_path, claims)
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("claims", grid))
    assert load.load(path).claims
    assert (
        "did you mean mlm,ratio=0.4?"
        in sentences(tmp_path, SPEC.replace("claims", grid), GOOD.replace("clm", "'mlm,ratio=0.3'"))[0]
    )


def test_what_stands_beside_a_claim_and_the_arms_of_other_runs_are_looked_at(tmp_path):
    distance = "of: {measure: run_distance, metric: pwcca, layers: top, groups: [clmm]}"
    beside = f"    beside: {{far: {{kind: difference, {distance}, arm: mlm, at_least: 0.1}}}}\n    smallest_effect"
    (sentence,) = sentences(tmp_path, claims=GOOD.replace("    smallest_effect", beside))
    assert sentence.startswith("claims/first.yaml:9:")
    assert 'claims.beside.far names the arm "clmm", but spec.yaml does not have it; did you mean clm?' in sentence


# Groups -----------------------------------------------------------------------------------------------


def group_problems(folder, measure, metric, groups, *, layers=""):
    of = f"{{measure: {measure}, metric: {metric}{layers}, groups: {groups}}}"
    effect = f"effect: {{kind: difference, of: {of}, arm: clm, minus: mlm}}"
    lines = [f"    {effect}" if "effect: {" in line else line for line in GOOD.splitlines()]
    path = write(folder, "\n".join(lines).replace("[validation]", f"[{measure}]"))
    try:
        claims_file.load(path)
    except SpecError as error:
        return [str(problem).partition("claims.effect.of.groups ")[2] for problem in error.problems]
    return []


TOP = ", layers: top"
MISSPELT = [
    ("fine_tuning", "score", "", "sst3", 'must be a group of fine_tuning, but is "sst3"; did you mean sst2?'),
    ("fine_tuning", "score", "", "sst2@100", None),
    ("fine_tuning", "score", "", "sst2@", "must be"),
    ("fine_tuning", "score", "", "lang*", None),
    ("fine_tuning", "score", "", "blimp", "must be"),
    ("fine_tuning", "score", "", "lnag*", "must be"),
    ("probing", "accuracy", TOP, "sst2@100", "must be"),
    ("layer_change", "pwcca", TOP, "tag NUON", "must be a group of layer_change, but"),
    ("layer_change", "pwcca", TOP, "rank 1-10", None),
    ("layer_change", "pwcca", TOP, "rank 30001-41234", None),
    ("layer_change", "pwcca", TOP, "rank 1-11", "must be"),
    ("layer_change", "pwcca", TOP, "rank *", None),
    ("influence", "pwcca", TOP, "tag *", None),
    ("influence", "pwcca", TOP, "tags *", "must be"),
    ("token_information", "cross_fitted", TOP, "previous", "must be a group of token_information, but"),
    ("conditional_independence", "joint", "", "ratio=0.15", None),
    ("conditional_independence", "joint", "", "ratio=0.150", "must be"),
    ("conditional_independence", "joint", "", "ratio=15", "must be"),
    ("conditional_independence", "joint", "", "'ratio=*'", None),
    ("minimal_pairs", "accuracy", "", "language/agreement_simpl", "must be a group of minimal_pairs, but"),
    ("minimal_pairs", "accuracy", "", "blimp/anything_at_all", None),
    ("minimal_pairs", "accuracy", "", "language/*", None),
    ("retrieval", "spearman", TOP, "stbs", 'must be a group of retrieval, but is "stbs"; did you mean stsb?'),
    ("generation", "fluency", "", "iterations=4", None),
    ("generation", "fluency", "", "iteration=4", "must be"),
    ("validation", "loss", "", "maskd", 'must be a group of validation, but is "maskd"; did you mean masked?'),
    ("validation", "loss", "", "'ngrams, n 3'", None),
    ("validation", "pair_accuracy", "", "next_sentence", None),
    ("parsing", "uuas", "", "my_treebank", None),
]  # fmt: skip


@pytest.mark.parametrize(("measure", "metric", "layers", "group", "refusal"), MISSPELT)
def test_a_group_that_no_measure_makes_is_an_error(tmp_path, measure, metric, layers, group, refusal):
    written = group if group.startswith("'") else f'"{group}"'
    found = group_problems(tmp_path, measure, metric, f"[{written}]", layers=layers)
    assert len(found) == (refusal is not None)
    assert all(sentence.startswith(refusal) for sentence in found)


def test_a_metric_without_groups_takes_none(tmp_path):
    of = "{measure: validation, metric: bleu, groups: [masked]}"
    claims = GOOD.replace("{measure: validation, metric: loss}", of)
    assert sentences(tmp_path, claims=claims) == [
        "claims/first.yaml:8:72: claims.effect.of must not have groups, because validation bleu has no groups; "
        "remove groups"
    ]


def test_groups_are_those_that_the_measures_make():
    tokens = sample(range(20, 20 + 40_000))
    ranks = [name for name, _ in groups(tokens, "frequency")]
    assert len(ranks) == 12
    assert all(GROUPS["layer_change"].has(name) for name in ranks)
    assert tuple(minimal_pairs.PARADIGMS) == PARADIGMS
    assert set(GROUPS) <= set(METRICS)
    for measure in OF_TASKS:
        assert not groups_of(measure, METRICS[measure][0]).whole


# Claims that a spec cannot run ------------------------------------------------------------------------


def test_claims_that_a_spec_does_not_run_are_named_with_the_reason(tmp_path):
    """Whether arms or measures are missing; what a log says is there with `validation`."""
    (tmp_path / "all.yaml").write_text(SPEC)
    other = GOOD.partition("claims:\n")[2].replace("both-sides-help", "other").replace("number: 6", "number: 7")
    logged = other.replace("other", "logged").replace("number: 7", "number: 8").replace("loss", "gain")
    path = write(tmp_path, WITH_SPEC + other + logged.replace("validation", "learning"))
    files = [claims_file.load(path)]

    def not_run(arms, measures):
        return list(claims_file.not_run(files, arms=arms, measures=measures, groups={}))

    elsewhere = "claims that are not run here, but in all.yaml: both-sides-help"
    assert not_run(["mlm", "clm"], ["validation"]) == []
    assert not_run(["mlm"], ["validation"]) == [elsewhere]
    assert not_run(["mlm", "clm"], ["geometry"]) == [
        "claim other is not run: it needs the measure validation",
        "claim logged is not run: it needs the measure learning",
        elsewhere,
    ]


@pytest.mark.parametrize(
    ("of", "lack"),
    [
        (
            "{measure: minimal_pairs, metric: accuracy, groups: [language]}",
            "gives no probability to a sentence",
        ),
        ("{measure: learning, metric: gain}", "has no loss over the vocabulary, but objective_loss"),
        ("{measure: corruption, metric: hidden}", None),
        ("{measure: validation, metric: loss}", "has no loss over the vocabulary, but objective_loss"),
        ("{measure: validation, metric: bleu}", "does not translate"),
        ("{measure: validation, metric: pair_accuracy, groups: [next_sentence]}", "has no pair_loss here"),
        ("{measure: validation, metric: loss, groups: [generator]}", None),
        ("{measure: validation, metric: objective_loss}", None),
        ("{measure: validation, metric: objective_loss}, minus_of: {measure: validation, metric: loss}", None),
        ("{measure: geometry, metric: participation_ratio, layers: top}", None),
    ],
)
def test_a_claim_on_a_metric_that_an_objective_does_not_have_is_named(of, lack, tmp_path):
    """Both arms of the claim have the measure, and replaced_token never makes these numbers."""
    measure = of.partition("measure: ")[2].partition(",")[0]
    claims = GOOD.replace("{measure: validation, metric: loss}", of).replace("[validation]", f"[{measure}]")
    write(tmp_path, claims)
    (tmp_path / "spec.yaml").write_text(
        SPEC.replace("clm: {}", "clm: {objective: {kind: replaced_token}}").replace(
            "[validation]", "[validation, minimal_pairs, geometry]"
        )
    )
    metric = of.partition("metric: ")[2].partition(",")[0].rstrip("}")
    reason = f"{measure} {metric} is not measured on clm, because replaced_token {lack}"
    said = ablate("validate", tmp_path / "spec.yaml").stdout
    assert [line.strip().partition(";")[0] for line in said.splitlines() if "cannot be judged" in line] == (
        [] if lack is None else [f"claim both-sides-help cannot be judged: {reason}"]
    )


def test_a_claim_on_corruption_of_an_objective_without_masks_is_named(tmp_path):
    of = "{measure: corruption, metric: hidden}"
    claims = GOOD.replace("{measure: validation, metric: loss}", of).replace("[validation]", "[corruption]")
    write(tmp_path, claims)
    (tmp_path / "spec.yaml").write_text(SPEC.replace("clm: {}", "clm: {objective: {kind: causal_lm}}"))
    reason = "corruption hidden is not measured on clm, because causal_lm hides no tokens"
    assert f"claim both-sides-help cannot be judged: {reason}" in ablate("validate", tmp_path / "spec.yaml").stdout


def test_a_claim_on_a_task_that_the_spec_does_not_measure_is_named(tmp_path):
    """A spec that has the arms and the measure looks complete, and the verdict would never come."""
    (tmp_path / "all.yaml").write_text(SPEC)
    of = "{measure: frozen_features, metric: score, groups: [ud_pos, wnut17]}"
    shared = WITH_SPEC.replace("{measure: validation, metric: loss}", of).replace(
        "[validation]", "[frozen_features]"
    )
    write(tmp_path, shared)
    files = [claims_file.load(tmp_path / "claims" / "first.yaml")]

    def not_run(*tasks):
        measures = [{"kind": "frozen_features", "tasks": list(tasks)}]
        groups = claims_file.groups_of_measures(measures, {"files"})
        arms = ["mlm", "clm"]
        return list(claims_file.not_run(files, arms=arms, measures=["frozen_features"], groups=groups))

    assert not_run("ud_pos", "wnut17", "sst2") == []
    assert not_run("ud_pos") == [
        "claim both-sides-help is not run: frozen_features does not measure wnut17; add it"
    ]


def test_a_claim_on_different_seeds_needs_a_distance_across_seeds(tmp_path):
    """Otherwise all runs would be trained before the verdict says what lacks."""
    apart = "{kind: apart, metric: pwcca, pairs: [[mlm, clm]]}"
    (effect,) = [line.strip() for line in GOOD.splitlines() if line.strip().startswith("effect:")]
    claims = GOOD.replace(effect, f"effect: {apart}").replace("[validation]", "[run_distance]")
    compared = SPEC.replace("clm: {}", "clm: {objective: {kind: causal_lm}}")

    def spec(measure):
        return compared.replace("[validation]", f"[validation, {measure}]")

    for measure in ("run_distance", "{kind: run_distance, across_seeds: false}"):
        assert sentences(tmp_path, spec(measure), claims) == [
            "spec.yaml:7:24: run_distance must have across_seeds: true, because claim both-sides-help compares "
            "arms at different seeds (apart)"
        ]
    assert sentences(tmp_path, spec("{kind: run_distance, across_seeds: true, arms: [mlm]}"), claims) == [
        "spec.yaml:7:71: run_distance.arms must name clm, which claim both-sides-help compares (apart)"
    ]
    without_an_arm = spec("run_distance").replace("clm: {", "other: {")
    assert not any("across_seeds" in sentence for sentence in sentences(tmp_path, without_an_arm, claims))
    across = spec("{kind: run_distance, across_seeds: true}")
    (tmp_path / "all.yaml").write_text(across)
    write(tmp_path, claims)
    assert ablate("validate", tmp_path / "all.yaml").output == f"{tmp_path / 'all.yaml'}: good, 2 runs\n"
    write(tmp_path, claims.replace("needs: {", "needs: {spec: all.yaml, "))
    path = tmp_path / "some.yaml"
    path.write_text(spec("run_distance"))
    assert ablate("validate", path).output == (
        f"{path}: good, 2 runs\n"
        "  claim both-sides-help is not run: it needs run_distance with across_seeds: true\n"
    )


def test_validate_names_them_below_the_spec(tmp_path):
    (tmp_path / "all.yaml").write_text(SPEC)
    write(tmp_path, WITH_SPEC)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC.replace(", clm: {}", ""))
    done = ablate("validate", spec)
    assert (done.exit_code, done.output) == (
        0,
        f"{spec}: good, 1 run\n  claims that are not run here, but in all.yaml: both-sides-help\n",
    )


def test_validate_counts_the_most_runs_of_seeds_that_are_added(tmp_path):
    spec = tmp_path / "spec.yaml"
    adding = SPEC.replace("seeds: [0]", "seeds: {first: 3, up_to: 5, until: decided}")
    spec.write_text(adding.replace("clm: {}", "clm: {objective: {kind: causal_lm}}"))
    write(tmp_path, GOOD)
    done = ablate("validate", spec)
    assert done.output == f"{spec}: good, at most 10 runs\n"


@pytest.mark.parametrize(
    ("kind", "meant"), [("mlm", "masked_lm"), ("ELECTRA", "replaced_token"), ("word2vec", "skip_gram")]
)
def test_another_name_of_an_objective_is_known(kind, meant, tmp_path):
    spec = tmp_path / "x.yaml"
    spec.write_text(SPEC.replace("masked_lm, masking: {ratio: 0.15}", kind).replace("claims: [first]\n", ""))
    assert error_text(SpecError, load.load, spec) == (
        f'{spec}:4:19: objective must be one of {len(OBJECTIVES)} kinds, but is "{kind}"; did you mean {meant}?'
    )


def test_other_names_of_kinds_are_of_kinds_that_there_are_and_of_no_two():
    kinds = {kind for model in (*models_of("objective"), *models_of("data")) if (kind := kind_of(model))}
    assert set(ALSO_CALLED) <= kinds
    others = [other for names in ALSO_CALLED.values() for other in names]
    assert len(others) == len(set(others))
    assert not kinds & set(others)


def models_of(section):
    return models_in(RunSettings.model_fields[section].annotation)


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("sst2", ("score", "shuffled_score")),
        ("cola", ("score", "accuracy", "shuffled_score")),
        ("mrpc", ("score", "accuracy", "shuffled_score")),
        ("stsb", ("score", "spearman", "shuffled_score")),
        ("ud_pos", ("score", "shuffled_score")),
        ("wnut17", ("score", "shuffled_score")),
        ("xquad", ("score", "exact_match")),
    ],
)
def test_the_metrics_of_a_task_are_those_that_transfer_computes(name, metrics):
    assert metrics_of_task("fine_tuning", name) == TASKS[name].transfer_metrics == metrics
    assert metrics_of_task("frozen_features", f"{name}@100") == ("score",)


def test_spans_that_are_scored_by_exact_match_have_it_as_a_metric_too(monkeypatch):
    spans = replace(TASKS["xquad"], metric="exact_match")
    monkeypatch.setattr(metric_groups, "task_called", lambda name: spans)
    assert metrics_of_task("fine_tuning", spans.name) == ("score", "exact_match")


def test_the_groups_of_small_ratios_are_groups_of_the_measure():
    settings = ConditionalIndependenceSettings(kind="conditional_independence", ratios=(0.15, 1e-5, 1.0))
    made = groups_made(settings, ["language"])
    assert made == ("ratio=0.15", "ratio=1e-05", "ratio=1")
    assert all(groups_of("conditional_independence", "joint").has(name) for name in made)


@pytest.mark.parametrize(
    ("measure", "metric"), [("layer_change", "pwcca"), ("token_information", "plug_in"), ("read_out", "mlp")]
)
def test_numbers_after_the_final_norm_are_groups_that_a_claim_may_read(measure, metric):
    settings = TypeAdapter(Measure).validate_python(measure)
    assert "after final norm" in groups_made(settings, ["files"])
    assert groups_of(measure, metric).has("after final norm")


def test_a_metric_that_a_task_lacks_is_an_error_with_those_that_it_has(tmp_path):
    of = {"measure": "fine_tuning", "metric": "spearmann", "groups": ["sst2"]}
    for metric, named, why in (
        ("spearman", ["sst2"], 'score or shuffled_score for sst2, but is "spearman"'),
        ("score", ["sst2", "sst2@100"], None),
        ("accuracy", ["sst2@100"], 'score for sst2@100, but is "accuracy"'),
    ):
        found = list(
            effect_faults(
                {"of": of | {"metric": metric, "groups": named}}, None, ("effect",), name="claims.effect"
            )
        )
        sentences = [fault.sentence for fault in found if fault.path == ("effect", "of", "metric")]
        assert sentences == ([f"claims.effect.of.metric must be {why}"] if why else [])
