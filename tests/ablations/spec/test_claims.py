"""Files of claims: every problem with its place, before anything runs."""

import json
from pathlib import Path

import pytest

from ablations.errors import SpecError, SpecProblems
from ablations.spec import claims as claims_file
from ablations.spec import load
from ablations.spec.claims import group_faults, groups_of_measures
from lightning_modules import plugins
from tests.support.claim_files import GOOD, write
from tests.support.command_line import ablate
from tests.support.errors import error_text

SPEC = """\
name: x
version: 1
data: {kind: language}
objective: {kind: masked_lm}
arms: {mlm: {}, clm: {}}
seeds: [0]
claims: [first]
"""


def test_a_good_file_is_its_claims(tmp_path):
    loaded = claims_file.load(write(tmp_path))
    (claim,) = loaded.claims
    assert (loaded.name, claim.name, claim.number, claim.family) == ("first", "both-sides-help", 6, "sight")
    assert list(claim.parts) == ["both-sides-help"]
    assert claim.parts["both-sides-help"].arm == "clm"


VERDICTS = "supported, contradicted, equivalent or open"
CHARACTERS = "letters a-z, digits and ._- and start with a letter or a digit (200 characters at most)"
BAD = [
    (
        "    source: Devlin et al. 2019, table 5\n",
        "",
        "3:5: claims.source is missing (paper or article that says so, and the place in it)",
    ),
    ("effect: 0.1", "effect: 0", "9:22: claims.smallest_effect must be greater than 0, but is 0; raise it"),
    (
        "expect: supported",
        "expect: suported",
        f'10:13: claims.expect must be {VERDICTS}, but is "suported"; did you mean supported?',
    ),
    ("    because", "    becuase", "11:5: claims.becuase is unknown; did you mean because?"),
    (
        "kind: difference",
        "kind: diference",
        '8:20: claims.effect must be one of 7 kinds, but is "diference"; did you mean difference?',
    ),
    ("metric: loss", "metrc: loss", "8:58: claims.effect.of.metrc is unknown; did you mean metric?"),
    (
        "minus: mlm}",
        "minus: mlm, at_least: 0.5, direction: either}",
        "8:13: claims.effect has direction: either, so it must have neither at_least nor at_most, which name a "
        "side; remove the bound, or remove direction",
    ),
    (
        "metric: loss}",
        "metric: loss, until: 0.5}",
        "8:36: claims.effect.of has until, which is read only with steps: area or steps: way; set steps, or "
        "remove until",
    ),
    (
        "metric: loss}",
        "metric: loss, steps: way, until: 0.5}",
        "8:36: claims.effect.of has steps: way, so it must read a gain, which is 0 where nothing is learned: "
        "metric: gain of learning, or read: gain of a loss",
    ),
    (
        "    effect:",
        "    provided: {ahead: {kind: difference, of: {measure: validation, metric: loss}, arm: clm, minus: mlm, "
        "direction: either}}\n    effect:",
        "8:116: claims.provided.ahead.direction must not be either in a condition (`provided`), because a "
        "condition holds only above 0; name the arm that is higher as arm, and the other as minus",
    ),
    (
        "[mlm, clm]",
        "[mlm]",
        "7:19: claims.needs.arms is mlm, but claim both-sides-help uses clm and mlm; make "
        "them equal, or leave claims.needs.arms out",
    ),
    (
        "[mlm, clm]",
        "[mlm, clm, mlm]",
        "7:19: claims.needs.arms is mlm, clm and mlm, but claim both-sides-help uses clm and mlm; make "
        "them equal, or leave claims.needs.arms out",
    ),
    (
        "[validation]",
        "[validation, parsing]",
        "7:41: claims.needs.measures is validation and parsing, but claim both-sides-help uses "
        "validation; make them equal, or leave claims.needs.measures out",
    ),
    (
        "[validation]",
        "[validatoin]",
        "7:41: claims.needs.measures is validatoin, but claim both-sides-help uses "
        "validation; make them equal, or leave claims.needs.measures out",
    ),
    (
        "    effect: {kind",
        "    effects:\n      one: {kind",
        "8:5: claims.effects must have two parts or more, but has only one; write a single part as `effect`",
    ),
    ("effect: {kind", "effcet: {kind", "8:5: claims.effcet is unknown; did you mean effect?"),
    (
        "minus: mlm}",
        "minus: mlm, at_least: 1, at_most: 2}",
        "8:13: claims.effect must have at_least or at_most, but has both",
    ),
    ("both-sides-help", "Both sides", f'3:11: claims.name must consist of {CHARACTERS}, but is "Both sides"'),
    ("version: 1", "version: 2", "1:10: version must be 1, but is 2; it is the format of this file, always 1"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), BAD, ids=[new or "missing" for _, new, _ in BAD])
def test_every_problem_has_its_place_and_a_remedy(tmp_path, old, new, sentence):
    path = write(tmp_path, GOOD.replace(old, new))
    assert error_text(SpecProblems, claims_file.load, path) == "\n".join(
        f"{path}:{line}" for line in sentence.splitlines()
    )


def test_neither_or_both_of_effect_and_effects_is_wrong(tmp_path):
    line = next(line for line in GOOD.splitlines(keepends=True) if "effect:" in line)
    with pytest.raises(
        SpecProblems,
        match=r":3:5: claim both-sides-help must have either effect, or effects .*, but has neither$",
    ):
        claims_file.load(write(tmp_path, GOOD.replace(line, "")))
    again = (
        "    effects: {a: "
        + line.split("effect: ")[1].strip()
        + ", b: "
        + line.split("effect: ")[1].strip()
        + "}\n"
    )
    with pytest.raises(SpecProblems, match=r"but has both$"):
        claims_file.load(write(tmp_path, GOOD.replace(line, line + again)))


def test_all_problems_are_said_at_once(tmp_path):
    text = GOOD.replace("expect: supported", "expect: yes").replace("metric: loss", "metrc: loss")
    with pytest.raises(SpecProblems) as error:
        claims_file.load(write(tmp_path, text))
    assert [problem.line for problem in error.value.problems] == [8, 10]


PARTS = """\
    effects:
      wrong-form: {kind: difference, of: {measure: validatoin, metric: loss}, arm: clm, mius: mlm}
      wrong-arm: {kind: difference, of: {measure: validation, metric: los}, arm: n1, minus: mlm}
"""


def test_the_wrong_form_of_one_part_hides_nothing_of_another(tmp_path):
    """Form, meaning, needs and names of one claim: all of them in one go."""
    line = next(line for line in GOOD.splitlines(keepends=True) if "effect:" in line)
    text = GOOD.replace(line, PARTS).replace("says: Seeing both sides helps.", "says: ''")
    text = text.replace("smallest_effect: 0.1", "smallest_effect: -1") + GOOD.partition("claims:\n")[2]
    path = write(tmp_path, text.replace(NEEDS, "measures: [validation], spec: gone.yaml}", 1))
    with pytest.raises(SpecProblems) as error:
        claims_file.load(path)
    assert [str(problem).removeprefix(f"{path}:") for problem in error.value.problems] == [
        "5:11: claims.says must not be empty",
        f"7:61: claims.needs.spec names gone.yaml, but there is no file {tmp_path / 'gone.yaml'}; name a "
        "spec in the folder that contains the folder of claims, or leave it out",
        "9:52: claims.effects.wrong-form.of.measure must be a measure of the table of results, but is "
        '"validatoin"; did you mean validation?',
        "9:89: claims.effects.wrong-form.mius is unknown; did you mean minus?",
        '10:71: claims.effects.wrong-arm.of.metric must be a metric of validation, but is "los"; did you mean '
        "loss?",
        "11:22: claims.smallest_effect must be greater than 0, but is -1; raise it",
        '15:11: claims has the name "both-sides-help" twice; give each name once',
        "16:13: claims has the number 6 twice; give each number once",
    ]


def test_a_name_or_number_is_there_once(tmp_path):
    twice = GOOD + GOOD.partition("claims:\n")[2]
    path = write(tmp_path, twice)
    assert error_text(SpecProblems, claims_file.load, path).splitlines() == [
        f'{path}:13:11: claims has the name "both-sides-help" twice; give each name once',
        f"{path}:14:13: claims has the number 6 twice; give each number once",
    ]
    twice = GOOD + GOOD.partition("claims:\n")[2].replace("name: both-sides-help", "name: other")
    with pytest.raises(SpecProblems, match=r":14:13: claims has the number 6 twice; give each number once$"):
        claims_file.load(write(tmp_path, twice))


def spec(folder, claims="[first]"):
    path = folder / "spec.yaml"
    path.write_text(SPEC.replace("[first]", claims), encoding="utf-8")
    return path


def problems_of(path):
    return error_text(SpecError, load.load, path).splitlines()


def test_a_spec_is_checked_with_the_claims_it_names(tmp_path):
    write(tmp_path)
    assert load.load(spec(tmp_path)).claims == ("first",)
    wrong = write(tmp_path, GOOD.replace("expect: supported", "expect: surely"), "second")
    assert problems_of(spec(tmp_path, "[first, second]")) == [
        f'{wrong}:10:13: claims.expect must be supported, contradicted, equivalent or open, but is "surely"'
    ]


@pytest.mark.parametrize("text", ["language", "[language]", "{kind: [language]}", ""])
def test_a_wrong_text_is_a_problem_beside_those_of_the_claims(tmp_path, text):
    write(tmp_path, GOOD.replace("expect: supported", "expect: surely"))
    path = spec(tmp_path)
    path.write_text(path.read_text() + f"data: {text}\n", encoding="utf-8")
    places = [line.partition(": ")[0].rpartition("/")[2] for line in problems_of(path)]
    assert "first.yaml:10:13" in places
    assert any(place.startswith("spec.yaml:8:") for place in places)


def test_a_wrong_spec_hides_no_problem_of_its_claims(tmp_path):
    wrong = write(tmp_path, GOOD.replace("expect: supported", "expect: surely"))
    path = spec(tmp_path, "[first, first, ../first, 3, gone]")
    path.write_text(path.read_text().replace("seeds: [0]", "seeds: []"), encoding="utf-8")
    assert [line.partition(": ")[0] for line in problems_of(path)] == [
        f"{wrong}:10:13",
        *(f"{path}:{place}" for place in ("6:8", "7:24", "7:34", "7:37")),
    ]


NEEDS = "measures: [validation]}"


def test_an_experiment_that_a_claim_sends_its_readers_to_must_be_there(tmp_path):
    path = write(tmp_path, GOOD.replace(NEEDS, "measures: [validation], spec: specc.yaml}"))
    first = spec(tmp_path)
    sentence = f"{path}:7:61: claims.needs.spec names specc.yaml, but there is no file {tmp_path / 'specc.yaml'}; "
    assert problems_of(first) == [f"{sentence}did you mean spec.yaml?"]
    assert error_text(SpecProblems, claims_file.load, path) == f"{sentence}did you mean spec.yaml?"
    first_text = first.read_text(encoding="utf-8")
    first.rename(tmp_path / "other.yaml")
    remedy = "name a spec in the folder that contains the folder of claims, or leave it out"
    assert problems_of(tmp_path / "other.yaml") == [f"{sentence}{remedy}"]
    (tmp_path / "specc.yaml").write_text(first_text, encoding="utf-8")
    assert load.load(tmp_path / "other.yaml").claims == ("first",)


def test_a_measure_of_a_plugin_that_is_not_read_says_how_to_read_it(tmp_path):
    own = GOOD.replace("[validation]", "['mine.py:Norm']").replace(
        "measure: validation", "measure: 'mine.py:Norm'"
    )
    path = write(tmp_path, own)
    plugins.look_beside(None)
    not_read = (
        "cannot be read: mine.py:Norm: a file that only a folder of results names is not read; if you trust it, "
        "name it with --plugin"
    )
    sentences = [line.partition(": ")[2] for line in error_text(SpecError, claims_file.load, path).splitlines()]
    assert sentences == [f"claims.effect.of.measure {not_read}"]


def test_a_copy_among_results_has_no_specs_beside_it(tmp_path):
    """So that `ablate diff` reads it, and the verdicts."""
    path = write(tmp_path, GOOD.replace(NEEDS, "measures: [validation], spec: gone.yaml}"))
    assert len(problems_of(spec(tmp_path))) == 1
    (tmp_path / "plan.json").touch()
    assert claims_file.load(path).claims
    assert load.load(spec(tmp_path)).claims == ("first",)


def test_a_file_of_claims_that_is_missing_is_a_problem_of_the_spec(tmp_path):
    write(tmp_path)
    path = spec(tmp_path, "[firts]")
    there = tmp_path / "claims" / "firts.yaml"
    assert problems_of(path) == [
        f"{path}:7:10: claims names firts, but there is no file {there}; did you mean first?"
    ]


def test_the_name_of_a_file_of_claims_has_no_ending(tmp_path):
    write(tmp_path)
    path = spec(tmp_path, "[first.yaml]")
    assert problems_of(path) == [
        f"{path}:7:10: claims names first.yaml, but there is no file {tmp_path / 'claims/first.yaml.yaml'}; write "
        "the name without .yaml"
    ]


def test_a_claim_in_two_files_is_a_problem_of_the_spec(tmp_path):
    write(tmp_path)
    write(tmp_path, name="second")
    path = spec(tmp_path, "[first, second]")
    assert problems_of(path) == [
        f"{path}:7:17: claims names second and first, but both files have a claim both-sides-help; rename one"
    ]


def test_the_hash_of_a_claim_is_of_what_it_means(tmp_path):
    plain = claims_file.load(write(tmp_path))
    commented = claims_file.load(
        write(tmp_path, "# why\n" + GOOD.replace("{arms: [mlm, clm], ", "{arms: [mlm, clm],  "))
    )
    other = claims_file.load(write(tmp_path, GOOD.replace("smallest_effect: 0.1", "smallest_effect: 0.2")))
    assert plain.digests == commented.digests
    assert plain.sha256 != commented.sha256
    assert plain.digests != other.digests


def test_a_part_may_be_called_as_a_hint_and_still_enters_the_hash(tmp_path):
    """`needs.spec` is a hint and does not; a part of that name does."""
    effect = "{kind: difference, of: {measure: validation, metric: loss}, arm: clm, minus: mlm}"
    turned = effect.replace("arm: clm, minus: mlm", "arm: mlm, minus: clm")
    assert f"effect: {effect}" in GOOD
    one, other = (
        claims_file.load(
            write(tmp_path, GOOD.replace(f"effect: {effect}", f"effects: {{spec: {part}, b: {effect}}}"))
        )
        for part in (effect, turned)
    )
    assert one.digests != other.digests
    (tmp_path / "it.yaml").write_text(SPEC)
    hinted = claims_file.load(write(tmp_path, GOOD.replace("needs: {", "needs: {spec: it.yaml, ")))
    assert hinted.digests == claims_file.load(write(tmp_path)).digests


def test_a_key_that_came_later_and_says_nothing_leaves_the_hash_as_it_was(tmp_path):
    """So that experiments planned before it was there do not take every claim for changed."""
    plain = claims_file.load(write(tmp_path))
    spelt = claims_file.load(write(tmp_path, GOOD.replace("metric: loss", "metric: loss, or_groups: []")))
    assert plain.digests == spelt.digests
    given = claims_file.load(
        write(tmp_path, GOOD.replace("metric: loss", "metric: loss, groups: [masked], or_groups: [kept]"))
    )
    assert plain.digests != given.digests
    assert plain.digests["both-sides-help"] == ("264a24512143c753de52f17c3c266962f3d11dc2fcab98c718adff70fd5e2269")


def test_until_the_first_run_a_plan_has_the_claims_of_today_and_then_those_of_that_day(tmp_path):
    def planned(before, runs_started, at):
        return claims_file.planned([claims_file.load(path)], before, runs_started=runs_started, at=at)

    path = write(tmp_path)
    first = planned([], 0, "monday")
    assert first[0]["planned"] == "monday"
    assert planned(first, 0, "tuesday") == first  # unchanged
    path.write_text(GOOD.replace("0.1", "0.2"), encoding="utf-8")
    second = planned(first, 0, "wednesday")
    assert (second[0]["planned"], second[0]["runs_before"]) == ("wednesday", 0)
    path.write_text(GOOD.replace("0.1", "0.3"), encoding="utf-8")
    (late,) = planned(second, 3, "thursday")
    assert late == second[0] | {"sha256": claims_file.load(path).sha256}
    assert late["sha256"] != late["planned_sha256"]
    none_left = {"at": "friday", "files": [], "before": [late]}
    assert claims_file.planned(**none_left, runs_started=3) == [late]  # so that the page can say it
    assert claims_file.planned(**none_left, runs_started=0) == []
    assert planned([], 3, "friday")[0]["runs_before"] == 3
    assert json.loads(json.dumps(second)) == second


def test_runs_that_come_into_a_plan_later_and_started_before_its_claims_are_counted(tmp_path):
    files = [claims_file.load(write(tmp_path))]
    first = claims_file.planned(files, [], runs_started=0, at="2026-12-02")
    at = {"runs_started": 4, "at": "2026-12-04"}
    (pooled,) = claims_file.planned(files, first, joined=["2026-12-01", "2026-12-01", "2026-12-03"], **at)
    assert pooled == first[0] | {"runs_before": 2}
    assert claims_file.planned(files, [pooled], **at) == [pooled]


def test_the_folder_of_results_keeps_a_copy(tmp_path):
    loaded = claims_file.load(write(tmp_path))
    out = tmp_path / "out"
    out.mkdir()
    claims_file.keep([loaded], out)
    assert (out / "claims" / "first.yaml").read_bytes() == Path(tmp_path / "claims" / "first.yaml").read_bytes()


MEASURES = [
    {"kind": "fine_tuning", "tasks": ["sst2", "mrpc"]},
    {"kind": "token_information", "about": ["input", "previous"]},
    {"kind": "layer_change", "groups": ["frequency"]},
    {"kind": "conditional_independence", "ratios": [0.15, 0.4]},
    {"kind": "generation", "iterations": [1, 4]},
    {"kind": "nothing"},
    {"kind": "validation", "input_formats": ["doc_sentences"], "word_orders": [{"kind": "ngrams", "n": 2}]},
]


def found(measure, metric, groups, *, needs=None, or_groups=(), kinds=("files",)):
    of = {"measure": measure, "metric": metric, "groups": groups, "or_groups": list(or_groups)}
    effect = {"kind": "difference", "of": of, "arm": "a", "minus": "b"}
    claim = {"name": "x", "needs": {"arms": ["a", "b"], "measures": [measure]} | (needs or {}), "effect": effect}
    return list(group_faults([claim], groups_of_measures(MEASURES, kinds), spec="my.yaml"))


@pytest.mark.parametrize(
    ("measure", "metric", "group", "why"),
    [
        ("fine_tuning", "score", "sst1", '"sst1" with these settings, only sst2 and mrpc; did you mean sst2?'),
        ("fine_tuning", "score", "rte@100", '"rte@100" with these settings, only sst2 and mrpc'),
        (
            "token_information",
            "plug_in",
            "next token",
            '"next token" with these settings, only previous token and after final norm',
        ),
        ("layer_change", "pwcca", "tag NOUN", '"tag NOUN" with these settings, only rank'),
        ("conditional_independence", "joint", "ratio=0.3", '"ratio=0.3" with these settings, only ratio=0.15 and'),
        (
            "generation",
            "fluency",
            "iterations=9",
            '"iterations=9" with these settings, only causal_lm, iterations=1',
        ),
        ("validation", "loss", "ngrams, n 1", '"ngrams, n 1" with these settings, only masked, kept, random, '),
        ("validation", "loss", "full_sentences", '"full_sentences" with these settings, only masked, kept, '),
    ],
)
def test_a_group_that_no_measure_of_the_spec_makes_is_an_error(measure, metric, group, why):
    (fault,) = found(measure, metric, ["*", group])
    assert fault.path == ("claims", 0, "effect", "of", "groups", 1)
    assert fault.sentence.startswith(f"claims.effect: {measure} of my.yaml never makes the group {why}")


@pytest.mark.parametrize(
    ("measure", "metric", "groups"),
    [
        ("fine_tuning", "score", ["sst2", "mrpc@100", "*"]),
        ("token_information", "plug_in", ["previous token"]),
        ("layer_change", "pwcca", ["rank 1-10"]),
        ("conditional_independence", "joint", ["ratio=0.4"]),
        ("generation", "fluency", ["iterations=4", "causal_lm"]),
        ("validation", "loss", ["masked", "doc_sentences", "ngrams, n 2"]),
        ("probing", "accuracy", ["tree_depth"]),  # which the spec does not measure: another sentence says so
    ],
)
def test_a_group_that_may_be_made_is_none(measure, metric, groups):
    assert found(measure, metric, groups) == []


def test_other_experiments_and_other_texts_are_left_alone():
    assert found("fine_tuning", "score", ["rte"], needs={"spec": "other.yaml"}) == []
    assert found("fine_tuning", "score", ["rte"], or_groups=["sst2"]) == []
    assert len(found("fine_tuning", "score", ["rte"], or_groups=["trec"])) == 1
    built_in = groups_of_measures([{"kind": "fine_tuning"}], ("language",))["fine_tuning"]
    assert "language_topic" in built_in
    assert "sst2" not in built_in
    assert {"language_topic", "sst2"} <= set(
        groups_of_measures([{"kind": "fine_tuning"}], ("language", "files"))["fine_tuning"]
    )


# Claims that can have no verdict ----------------------------------------------------------------------

CHANGE = "of: {measure: layer_change, metric: pwcca"
LOSS = "of: {measure: validation, metric: loss"
GAIN = "of: {measure: learning, metric: gain"


@pytest.mark.parametrize(
    ("effect", "lack"),
    [
        (
            f"kind: difference, {CHANGE}, layer: 2}}, arm: mlm, minus: clm",
            "it reads layer 2 of layer_change pwcca, which is measured in only layer 1 of mlm and clm",
        ),
        (
            f"kind: difference, {CHANGE}, layer: 0}}, arm: mlm, minus: deep",
            "it reads layer 0 of layer_change pwcca, which is measured in only layer 1 of mlm; it reads layer 0 "
            "of layer_change pwcca, which is measured in only the layers 1 to 3 of deep",
        ),
        (f"kind: difference, {CHANGE}, layer: 1}}, arm: mlm, minus: clm", None),
        (f"kind: difference, {CHANGE}, layers: top}}, arm: mlm, minus: clm", None),
        (
            f"kind: difference, {CHANGE}, layers: drop}}, arm: deep, minus: flat",
            "it needs 2 layers of layer_change pwcca, which is measured in no layer of flat",
        ),
        (
            f"kind: trend, over: layers, {CHANGE}}}, arms: [mlm]",
            "it needs 2 layers of layer_change pwcca, which is measured in only layer 1 of mlm",
        ),
        (
            f"kind: shape, form: rise_to_top, {CHANGE}}}, arm: mlm",
            "it needs 3 layers of layer_change pwcca, which is measured in only layer 1 of mlm",
        ),
        (f"kind: shape, form: rise_to_top, {CHANGE}}}, arm: deep", None),
        (
            "kind: difference, of: {measure: geometry, metric: anisotropy, layer: 3}, arm: deep, minus: clm",
            "it reads layer 3 of geometry anisotropy, which is measured in only the layers 0 to 2 of clm",
        ),
        (
            "kind: difference, of: {measure: geometry, metric: update_norm, layer: 2}, arm: deep, minus: clm",
            "it reads layer 2 of geometry update_norm, which is measured in only layer 1 of clm",
        ),
        (
            'kind: trend, over: layers, of: {measure: influence, metric: pwcca, groups: ["*"]}, arms: [flat]',
            "it needs 2 layers of influence pwcca, which is measured in only layer 1 of flat",
        ),
        (
            f"kind: ahead, {LOSS}}}, arm: mlm, over: clm",
            "validation loss is measured at 1 step of mlm and clm, but a learning curve needs 3; set checkpoints: "
            "all in the measure",
        ),
        (
            f"kind: difference, {LOSS}, steps: area}}, arm: mlm, minus: clm",
            "validation loss is measured at 1 step of mlm and clm, but a learning curve needs 3; set checkpoints: "
            "all in the measure",
        ),
        ('kind: ahead, of: {measure: fine_tuning, metric: score, groups: ["*"]}, arm: mlm, over: clm', None),
        (
            'kind: ahead, of: {measure: fine_tuning, metric: score, groups: ["*"]}, arm: mlm, over: short',
            "fine_tuning score is measured at 2 steps of short, but a learning curve needs 3",
        ),
        (f"kind: ahead, {GAIN}}}, arm: mlm, over: clm", None),
        (f"kind: difference, {GAIN}, steps: area, until: 0.2}}, arm: mlm, minus: clm", None),
        (
            f"kind: difference, {GAIN}, steps: area, until: 0.001}}, arm: mlm, minus: clm",
            "learning gain is first measured at step 8 of mlm and clm, after the 0.1% of training (until) at "
            "which the effect reads it",
        ),
        (
            "kind: ahead, of: {measure: corruption, metric: hidden}, arm: mlm, over: deep",
            "corruption hidden is measured at 1 step of mlm and deep, but a learning curve needs 3",
        ),
    ],
)
def test_a_claim_on_a_layer_or_a_curve_that_is_never_measured_is_named(effect, lack, tmp_path):
    """The spec decides it, and training takes days."""
    measure, arms = effect.partition("measure: ")[2].partition(",")[0], ["mlm", "clm", "deep", "flat", "short"]
    named = ", ".join(arm for arm in arms if f" {arm}" in effect or f"[{arm}" in effect)
    text = GOOD.replace("[mlm, clm], measures: [validation]", f"[{named}], measures: [{measure}]")
    line = next(line for line in text.splitlines() if line.startswith("    effect: "))
    write(tmp_path, text.replace(line, f"    effect: {{{effect}}}"))
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        """\
name: x
version: 1
data: {kind: language}
objective: {kind: masked_lm}
encoder: {num_hidden_layers: 2}
training: {max_steps: 40}
arms:
  mlm: {}
  clm: {objective: {kind: causal_lm}}
  deep: {encoder: {num_hidden_layers: 4}}
  flat: {encoder: {num_hidden_layers: 1}}
  short: {training: {keep_checkpoints: 2}}
seeds: [0]
measures: [validation, layer_change, geometry, influence, {kind: fine_tuning, checkpoints: all}]
claims: [first]
"""
    )
    good, *notices = ablate("validate", spec).stdout.splitlines()
    assert good == f"{spec}: good, 5 runs"
    said = [line.strip() for line in notices if "cannot be judged" in line]
    assert said == ([] if lack is None else [f"claim both-sides-help cannot be judged: {lack}"])
