"""Claims that are well formed and could never be judged: said before anything runs."""

import re

import pytest
from ruamel.yaml import YAML

from ablations import catalogue
from ablations.catalogue import METRICS, layers_of
from ablations.errors import SpecProblems
from ablations.spec import claims as claims_file
from ablations.spec.contrasts import EFFECT
from reports.words import METRICS as SHOWN
from tests.support.claim_files import GOOD, write
from tests.support.claim_tables import FILES

LINE = next(line for line in GOOD.splitlines() if "effect: {" in line)
LOSS = "of: {measure: validation, metric: loss}"
CHANGE = "of: {measure: layer_change, metric: pwcca}"
SCORE = 'of: {measure: fine_tuning, metric: score, groups: ["*"]}'
ALL = "score, accuracy, spearman, exact_match or shuffled_score"
BAD = {
    "{kind: difference, of: {measure: fine_tuning, metric: score}, arm: mlm, minus: clm}": (
        'effect.of must have groups, because every number of fine_tuning belongs to a task; write groups: ["*"] '
        "for the mean over all of them"
    ),
    (
        "{kind: difference, of: {measure: probing, metric: accuracy, layers: top, groups: [tree_deph]}, arm: mlm, "
        "minus: clm}"
    ): ('an entry of effect.of.groups must be a group of probing, but is "tree_deph"; did you mean tree_depth?'),
    '{kind: difference, of: {measure: fine_tuning, metric: scores, groups: ["*"]}, arm: mlm, minus: clm}': (
        f'effect.of.metric must be {ALL}, but is "scores"; did you mean score?'
    ),
    f"{{kind: difference, {CHANGE}, arm: mlm, minus: clm}}": (
        "effect.of must have layers or layer, because layer_change has a number for each layer"
    ),
    f"{{kind: shape, {LOSS}, arm: mlm, minus: clm, form: rise_to_top}}": (
        "effect.of must read a measure with layers, but validation has none"
    ),
    (
        "{kind: shape, of: {measure: layer_change, metric: pwcca, layers: sum}, arm: mlm, minus: clm, form: "
        "rise_to_top}"
    ): ("effect.of must have neither layers nor layer, because its effect covers all layers"),
    f"{{kind: difference, {LOSS}, arm: mlm, minus: mlm}}": (
        "effect must compare different arms, but mlm occurs 2 times"
    ),
    f"{{kind: difference, {LOSS}, arm: [mlm, clm], minus: [mt, clm]}}": (
        "effect must compare different arms, but clm occurs 2 times"
    ),
    (
        "{kind: difference, of: {measure: token_information, metric: cross_fitted, layers: rise_to_top}, arm: "
        "mlm, at_least: 0.1}"
    ): (
        "effect.of.layers is rise_to_top, which is positive for noise too; compare arms with minus, or write "
        "kind: shape with form: rise_to_top"
    ),
    f"{{kind: trend, {LOSS}, arms: [mlm, mlm, mlm]}}": "effect.arms must differ, but mlm occurs 3 times",
    f"{{kind: ahead, {LOSS}, arm: mlm, over: mlm}}": (
        "effect.over is the same arm as arm (mlm); name another arm"
    ),
    f"{{kind: share, {LOSS}, kept_by: mlm, whole: mlm, none: clm, smallest_gain: 0.1}}": (
        "effect must have three arms, but mlm occurs 2 times"
    ),
    f"{{kind: optimum, {LOSS}, arms: {{a: 1, b: 2, c: 2, d: 3}}, above: 1, below: 2, smallest_bend: 0.1}}": (
        "effect.arms must have different places, but 2 occurs 2 times"
    ),
    "{kind: apart, metric: pwcca, pairs: [[mlm, clm], [mt, mt]]}": (
        "effect.pairs must pair different arms, but has mt twice"
    ),
    "{kind: apart, metric: pwcca, pairs: [[mlm, clm]], than: [[clm, mlm]]}": (
        "effect has the same pair of arms twice in pairs and than; name each pair once"
    ),
    f"{{kind: difference, {LOSS}, arm: mlm}}": (
        "effect must have minus, at_least or at_most: without a comparison, every value of loss supports the claim"
    ),
    "{kind: shape, of: {measure: layer_change, metric: pwcca}, arm: mlm, form: top_over_lowest}": (
        "effect must have at_least above 0: top_over_lowest is a ratio, so without a bound every curve supports "
        "the claim"
    ),
    f"{{kind: difference, {SCORE}, arm: mlm, at_least: 60}}": (
        "effect.at_least must be between -1 and 1, because fine_tuning score is a share of at most 1, but is 60; "
        "for 60% write 0.6"
    ),
    f"{{kind: difference, {SCORE}, arm: mlm, minus: clm, at_most: -1.5}}": (
        "effect.at_most must be between -1 and 1, because fine_tuning score is a share of at most 1, but is -1.5; "
        "for -1.5% write -0.015"
    ),
    f"{{kind: trend, {SCORE}, arms: [n1, n2, mlm], smallest_effect: 1}}": (
        "effect.smallest_effect must be below 1, because fine_tuning score is a share of at most 1, but is 1; for "
        "1% write 0.01"
    ),
    f"{{kind: share, {SCORE}, kept_by: n1, whole: mlm, none: corpus, at_least: 0.6, smallest_gain: 2}}": (
        "effect.smallest_gain must be below 1, because fine_tuning score is a share of at most 1, but is 2; for "
        "2% write 0.02"
    ),
    (
        f"{{kind: optimum, {SCORE}, arms: {{a: 1, b: 2, c: 3, d: 9}}, above: 2, below: 5, smallest_bend: 1, "
        "smallest_effect: 2}"
    ): (
        "effect.smallest_bend must be below 1, because fine_tuning score is a share of at most 1, but is 1; for "
        "1% write 0.01"
    ),
    # more accurate than by chance would be contradicted
    "{kind: difference, of: {measure: fine_tuning, metric: score, groups: [sst2], read: gain}, arm: mlm}": (
        "effect.of.read must not be gain, because gain is the chance level minus the value, and of fine_tuning "
        "score more is better; leave read out; to compare an arm with its chance level, write it also as minus, "
        "with read: floor in minus_of"
    ),
    "{kind: trend, of: {measure: parsing, metric: uuas, groups: [language], read: gain}, arms: [a, b, c]}": (
        "effect.of.read must not be gain, because gain is the chance level minus the value, and of parsing uuas "
        "more is better; leave read out"
    ),
    "{kind: difference, of: {measure: validation, metric: loss, read: share_of_ceiling}, arm: mlm, minus: clm}": (
        "effect.of.read must not be share_of_ceiling, because numbers of validation have no ceiling; leave "
        "read out"
    ),
    "{kind: difference, of: {measure: learning, metric: gain, read: gain}, arm: mlm, minus: clm}": (
        "effect.of.read must not be gain, because gain is the chance level minus the value, and of learning gain "
        "more is better; leave read out"
    ),
    "{kind: difference, of: {measure: read_out, metric: mlp, layers: top, read: gain}, arm: mlm, minus: clm}": (
        "effect.of.read must not be gain, because gain is the chance level minus the value, and of read_out mlp "
        "more is better; leave read out"
    ),
    f"{{kind: difference, {LOSS}, arm: mlm, minus: clm, unit: bits}}": (
        'effect.unit must be nats, the unit of validation loss, but is "bits"'
    ),
    "{kind: trend, of: {measure: validation, metric: perplexity}, arms: [n1, n2, mlm], unit: nats}": (
        "effect.unit must not be nats, because this number of validation perplexity has no unit; remove it"
    ),
    f"{{kind: difference, {LOSS}, arm: mlm, minus: n1, minus_of: {{measure: validation, metric: perplexity}}}}": (
        "effect.minus_of must have the unit of claims.effect.of, but loss has nats, and perplexity has none"
    ),
}

GOOD_EFFECTS = [
    f"{{kind: difference, {LOSS}, arm: mlm, minus: n1, minus_of: {{measure: learning, metric: loss}}}}",
    f"{{kind: trend, {LOSS}, arms: [n1, n2, mlm]}}",
    "{kind: shape, of: {measure: layer_change, metric: pwcca}, arm: mlm, minus: clm, form: rise_to_top}",
    f"{{kind: share, {LOSS}, kept_by: n1, whole: mlm, none: corpus, smallest_gain: 0.1}}",
    f"{{kind: difference, {LOSS}, arm: [a, b], minus: [c, mlm]}}",
    f"{{kind: optimum, {LOSS}, arms: {{a: 1, b: 2, c: 3, mlm: 4}}, above: 1, below: 2, smallest_bend: 0.1}}",
    f"{{kind: ahead, {LOSS}, arm: mlm, over: clm, unit: nats per token}}",
    f"{{kind: ahead, {LOSS}, arm: mlm, over: clm, unit: natürliche Einheiten}}",
    "{kind: difference, of: {measure: neighbours, metric: position_distance, layers: top}, arm: mlm, minus: clm, "
    "unit: distance in words}",
    f"{{kind: share, {LOSS}, kept_by: n1, whole: mlm, none: corpus, smallest_gain: 0.1, unit: of the gain}}",
    "{kind: difference, of: {measure: read_out, metric: mlp, layers: top, read: share_of_ceiling}, arm: mlm, "
    "minus: clm, unit: of the entropy}",
    "{kind: difference, of: {measure: fine_tuning, metric: score, groups: [sst2]}, arm: mlm, minus: mlm, "
    "minus_of: {measure: fine_tuning, metric: score, groups: [sst2], read: floor}}",
    "{kind: difference, of: {measure: minimal_pairs, metric: accuracy, groups: [blimp], read: gain}, arm: mlm, "
    "at_least: -0.02}",  # at most two points above chance
    "{kind: apart, metric: pwcca, pairs: [[mlm, clm], [clm, mt]], than: [[mlm, mt]]}",
]


def needs(effect):
    """The file with this effect, its needs being what the effect uses."""
    made = EFFECT.validate_python(YAML(typ="safe").load(effect))
    arms, measures = sorted(set(made.arms_needed())), sorted({of.measure for of in made.quantities()})
    text = GOOD.replace(LINE, f"    effect: {effect}")
    return text.replace("[mlm, clm], measures: [validation]", f"{arms}, measures: {measures}".replace("'", ""))


def problems(folder, text):
    with pytest.raises(SpecProblems) as error:
        claims_file.load(write(folder, text))
    return [problem.sentence for problem in error.value.problems]


@pytest.mark.parametrize(("effect", "sentence"), BAD.items(), ids=BAD.values())
def test_what_could_never_be_judged_is_a_problem(tmp_path, effect, sentence):
    assert problems(tmp_path, needs(effect)) == [re.sub("effect", "claims.effect", sentence, count=1)]


@pytest.mark.parametrize(
    ("name", "provided", "key", "why"),
    [
        ("learned", "learned", "learned", "another effect has the same name"),
        ("learned", "learned-peak", "learned-peak", "a part of learned may have this name"),
        ("learned", "learned-step-10", "learned-step-10", "a part of learned may have this name"),
    ],
)
def test_a_condition_has_no_name_of_an_effect_which_would_replace_it(tmp_path, name, provided, key, why):
    condition = f"    provided: {{{provided}: {{kind: difference, {LOSS}, arm: mlm, minus: clm}}}}\n"
    text = GOOD.replace("name: both-sides-help", f"name: {name}") + condition
    assert problems(tmp_path, text) == [f"claims.provided.{key} needs another name, because {why}"]
    assert claims_file.load(write(tmp_path, text.replace(f"{{{provided}:", "{other:")))


def of(measure, metric, **more):
    keys = {"measure": measure, "metric": metric} | more
    return f"of: {{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}"


@pytest.mark.parametrize(
    "effect",
    [
        f"{{kind: difference, {of('validation', 'bleu')}, arm: mlm, at_least: 60}}",
        f"{{kind: difference, {SCORE}, arm: mlm, at_least: 1}}",
        f"{{kind: difference, {SCORE}, arm: mlm, minus: clm, minus_of: {{measure: validation, metric: chrf}}, "
        "smallest_effect: 2}",
        f"{{kind: difference, {of('neighbours', 'same_token', layers='sum')}, arm: mlm, at_least: 3}}",
        f"{{kind: difference, {of('neighbours', 'position_distance', layers='top')}, arm: mlm, at_least: 3}}",
        f"{{kind: difference, {of('fine_tuning', 'score', groups='[sst2]', read='share_of_floor')}, arm: mlm, "
        "at_least: 1.5}",
        f"{{kind: shape, {of('neighbours', 'same_token')}, arm: mlm, form: top_over_lowest, at_least: 2}}",
        f"{{kind: share, {SCORE}, kept_by: n1, whole: mlm, none: corpus, at_least: 1.1, smallest_gain: 0.1}}",
        f"{{kind: optimum, {SCORE}, arms: {{a: 1, b: 2, c: 3, d: 9}}, above: 2, below: 5, smallest_bend: 0.1, "
        "smallest_effect: 2}",
    ],
)
def test_numbers_above_1_are_accepted_where_what_is_compared_may_be_larger(tmp_path, effect):
    assert claims_file.load(write(tmp_path, needs(effect))).claims


def test_the_smallest_effect_of_a_claim_on_shares_is_no_number_of_points(tmp_path):
    effect = f"{{kind: difference, {SCORE}, arm: mlm, minus: clm}}"
    assert problems(tmp_path, needs(effect).replace("smallest_effect: 0.1", "smallest_effect: 1")) == [
        "claims.smallest_effect must be below 1, because fine_tuning score is a share of at most 1, "
        "but is 1; for 1% write 0.01"
    ]
    assert len(problems(tmp_path, needs(effect).replace("smallest_effect: 0.1", "smallest_effect: -1"))) == 1
    own = needs(effect.replace("minus: clm", "minus: clm, smallest_effect: 0.01"))
    for text in (own, GOOD):
        assert claims_file.load(write(tmp_path, text.replace("smallest_effect: 0.1", "smallest_effect: 1"))).claims


@pytest.mark.parametrize(
    ("effect", "is_bounded"),
    [
        (f"{{kind: difference, {LOSS}, arm: mlm, minus: clm, at_least: 0.1}}", True),
        (f"{{kind: difference, {LOSS}, arm: mlm, minus: clm}}", False),
        (f"{{kind: difference, {LOSS}, arm: mlm, at_least: 0}}", False),
        (
            "{kind: shape, of: {measure: layer_change, metric: pwcca}, arm: mlm, form: top_over_lowest, "
            "at_least: 2}",
            True,
        ),
        (f"{{kind: share, {LOSS}, kept_by: n1, whole: mlm, none: corpus, smallest_gain: 0.1}}", True),
        (
            f"{{kind: optimum, {LOSS}, arms: {{a: 1, b: 2, c: 3, mlm: 4}}, above: 1, below: 2, "
            "smallest_bend: 0.1}",
            True,
        ),
    ],
)
def test_what_has_a_bound_or_is_a_share_is_not_expected_to_be_equivalent(tmp_path, effect, is_bounded):
    text = re.sub(r"expect: \w+", "expect: equivalent", needs(effect))
    if not is_bounded:
        claims_file.load(write(tmp_path, text))
        return
    assert problems(tmp_path, text) == [
        "claims.expect must be supported, contradicted or open, but is equivalent: claims.effect has a bound "
        "or is a share, so it is never equivalent"
    ]


def test_a_claim_of_either_direction_alone_is_not_expected_to_be_contradicted(tmp_path):
    either = f"{{kind: difference, {LOSS}, arm: mlm, minus: clm, direction: either}}"
    text = re.sub(r"expect: \w+", "expect: contradicted", needs(either))
    assert problems(tmp_path, text) == [
        "claims.expect must be supported, equivalent or open, but is contradicted: claims.effect has direction: "
        "either, so it is never contradicted"
    ]
    directed = either.replace(", direction: either", "")
    parts = f"effects: {{any: {either}, one: {directed}}}"  # the other part can contradict it
    claims_file.load(write(tmp_path, text.replace(f"effect: {either}", parts)))
    claims_file.load(write(tmp_path, text.replace(either, directed)))


@pytest.mark.parametrize("effect", GOOD_EFFECTS, ids=lambda effect: effect.split(",")[0].removeprefix("{kind: "))
def test_needs_may_be_left_out_and_follow_from_the_effects(tmp_path, effect):
    text = needs(effect)
    (written,) = claims_file.load(write(tmp_path, text)).claims
    (left_out,) = claims_file.load(write(tmp_path, re.sub(r"    needs: .*\n", "", text))).claims
    for key in ("arms", "measures"):
        assert sorted(getattr(left_out.needs, key)) == sorted(getattr(written.needs, key))
    few = claims_file.load(write(tmp_path, re.sub(r"needs: .*\n", "needs: {seeds: 9}\n", text))).claims[0].needs
    assert few == left_out.needs.model_copy(update={"seeds": 9})
    (problem,) = problems(tmp_path, text.replace("needs: {arms: [", "needs: {arms: [zzz, "))
    assert "claims.needs.arms is zzz" in problem


def test_an_optimum_needs_a_bound(tmp_path):
    boundless = f"{{kind: optimum, {LOSS}, arms: {{mlm: 1, b: 2, clm: 3, d: 4}}, smallest_bend: 0.1}}"
    assert problems(tmp_path, GOOD.replace(LINE, f"    effect: {boundless}")) == [
        "claims.effect must have a bound of its place: above, below or both"
    ]


def test_a_curve_of_three_arms_is_too_short(tmp_path):
    short = f"{{kind: optimum, {LOSS}, arms: {{mlm: 1, b: 2, clm: 3}}, above: 1, below: 2, smallest_bend: 0.1}}"
    assert problems(tmp_path, GOOD.replace(LINE, f"    effect: {short}")) == [
        "claims.effect must have at least four arms, each with its place, but has 3"
    ]


def with_more(more):
    return GOOD.replace("    smallest_effect", f"{more}    smallest_effect")


def test_conditions_need_their_arms_and_what_stands_beside_may_have_others(tmp_path):
    loss = f"{{kind: difference, {LOSS}, arm: mlm, minus: clm-450}}"
    beside, provided = (with_more(f"    {key}: {{it: {loss}}}\n") for key in ("beside", "provided"))
    assert claims_file.load(write(tmp_path, beside)).claims[0].needs.arms == ("mlm", "clm")
    remedy = "make them equal, or leave claims.needs.arms out"
    assert problems(tmp_path, provided) == [
        f"claims.needs.arms is mlm and clm, but claim both-sides-help uses clm, mlm and clm-450; {remedy}"
    ]
    assert problems(tmp_path, beside.replace("[mlm, clm]", "[mlm, clm, clm-450]")) == [
        f"claims.needs.arms is mlm, clm and clm-450, but claim both-sides-help uses clm and mlm; {remedy}"
    ]
    left_out = provided.replace("arms: [mlm, clm], ", "")
    assert claims_file.load(write(tmp_path, left_out)).claims[0].needs.arms == ("clm", "mlm", "clm-450")


def test_a_misspelt_measure_is_said_where_it_stands_and_once(tmp_path):
    slip = GOOD.replace("measure: validation", "measure: validationn")
    assert problems(tmp_path, slip) == [
        'claims.effect.of.measure must be a measure of the table of results, but is "validationn"; did you mean '
        "validation?"
    ]


def test_one_arm_may_be_compared_with_another_reading_of_itself(tmp_path):
    of, minus_of = (
        f"{{measure: parsing, metric: {metric}, groups: [language]}}" for metric in ("uuas", "uuas_adjacent")
    )
    effect = f"{{kind: difference, of: {of}, arm: mlm, minus: mlm, minus_of: {minus_of}}}"
    assert claims_file.load(write(tmp_path, needs(effect))).claims


def test_all_problems_of_all_claims_are_said_at_once_with_their_lines(tmp_path):
    first = GOOD.replace("metric: loss", "metric: losss").replace("Seeing both sides helps.", "' '")
    second = GOOD.partition("claims:\n")[2].replace("name: both-sides-help", "name: other")
    second = second.replace("number: 6", "number: 7").replace("expect: supported", "expect: yes")
    third = second.replace("other", "third").replace("7", "8").replace("expect: yes", "expect: open")
    with pytest.raises(SpecProblems) as error:
        claims_file.load(write(tmp_path, first + second + third.replace("minus: mlm", "minus: clm")))
    found = error.value.problems
    assert [(problem.line, problem.sentence.split(" must ")[0]) for problem in found] == [
        (5, "claims.says"),
        (8, "claims.effect.of.metric"),
        (20, "claims.expect"),
        (
            27,
            "claims.needs.arms is mlm and clm, but claim third uses clm; make them equal, or leave "
            "claims.needs.arms out",
        ),
        (28, "claims.effect"),
    ]


def test_an_empty_file_is_told_how_a_file_of_claims_begins(tmp_path):
    assert problems(tmp_path, "") == ["this file is empty; start it with a version, as in `version: 1`"]
    assert problems(tmp_path, "[1]") == ["this file must hold keys, as in `version: 1`, but is a list"]


def test_every_measure_is_in_the_list_and_every_metric_that_a_page_names():
    kinds = {settings.model_fields["kind"].annotation.__args__[0] for settings in catalogue.RunMeasure.__args__}
    assert set(METRICS) == {*kinds, "run_distance", "learning", "corruption"}
    drawn = [pair for pair in SHOWN if pair[0] != "pictures"]  # which are named after what colours them
    assert all(metric in METRICS[measure] for measure, metric in drawn)
    assert {layers_of(measure) for measure in METRICS} == {"all", "some", "none"}


def test_shipped_claims_pass():
    assert all(claims_file.load(path).claims for path in FILES)
