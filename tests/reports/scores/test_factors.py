"""Which settings arms vary one at a time, from the settings of their runs."""

import json
from itertools import combinations
from pathlib import Path

import pytest

from ablations.runs.records import Plan, Provenance, RunRecord, Tuning
from ablations.spec import grid, load
from lightning_modules.config import EncoderSettings, RunSettings, TrainingSettings
from lightning_modules.training.run_directory import RunState
from reports.folder import ReportedExperiment, ReportedRun
from reports.scores.by_setting import how_to_read
from reports.scores.factors import decisions, factors
from reports.words import SPLIT, words

ROOT = Path(__file__).parents[3]
SPECS = sorted((ROOT / "experiments").glob("*.yaml"))
MASKING = {"ratio": 0.15, "mask": 0.8, "random": 0.1, "keep": 0.1, "select": {"kind": "uniform"}}


def settings(*, objective="masked_lm", seed=0, **changes):
    """As in run.json; `changes` are by path, with __ for dots."""
    made = {
        "data": {"kind": "language", "vocab_size": 1024},
        "encoder": {"num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 256},
        "objective": {"kind": objective, "sees": "both_sides", "window": 2, "masking": dict(MASKING)},
        "training": {
            "max_steps": 500,
            "warmup_steps": 50,
            "word_order": {"kind": "natural"},
            "validate_every": 100,
            "keep_checkpoints": "all",
        },
        "seed": seed,
    }
    for path, value in changes.items():
        *above, name = path.split("__")
        section = made
        for part in above:
            section = section[part]
        section[name] = value
    return made


def steps_of(own):
    training = own.get("training")
    steps = training.get("max_steps") if isinstance(training, dict) else None
    return steps if isinstance(steps, int) else 500


def experiment(arms, *, folder=None):
    """One of these arms and their settings."""
    planned = [
        RunRecord(run_id=arm, folder=arm, arm=arm, seed=0, max_steps=steps_of(own)) for arm, own in arms.items()
    ]
    runs = [
        ReportedRun(plan, RunState(), Provenance(), own) for plan, own in zip(planned, arms.values(), strict=True)
    ]
    return ReportedExperiment(Plan(experiment="it", arms=list(arms), runs=planned), "", runs, None, 0, folder)


def found(**arms):
    return factors(experiment(arms))


def ratio(value, **more):
    return settings(objective__masking__ratio=value, **more)


def test_numbers_stand_where_they_belong_in_their_order():
    (factor,) = found(mlm=ratio(0.15), more=ratio(0.4), less=ratio(0.05))
    assert (factor.setting, factor.title, factor.numeric) == ("objective.masking.ratio", "masking ratio", True)
    assert [(level.arm, level.at, level.value) for level in factor.levels] == [
        ("less", 0.05, "0.05"),
        ("mlm", 0.15, "0.15"),
        ("more", 0.4, "0.4"),
    ]
    assert (factor.reference, factor.lines, factor.untrained) == ("mlm", ("",), None)


def test_arms_that_differ_in_two_settings_share_no_figure():
    both = ratio(0.4, encoder__num_hidden_layers=2)
    assert found(mlm=ratio(0.15), both=both) == []
    # with an arm between them each step is one setting, and still the two ends share no line
    layers, masked = sorted(found(mlm=ratio(0.15), deep=ratio(0.4), both=both), key=lambda factor: factor.setting)
    assert (layers.setting, layers.arms) == ("encoder.num_hidden_layers", ["both", "deep"])
    assert (masked.setting, masked.arms) == ("objective.masking.ratio", ["mlm", "deep"])


def test_names_keep_the_order_of_the_spec_and_numbers_come_first():
    (factor,) = found(
        dynamic=settings(),
        static_10=settings(objective__masking__copies=10),
        static_1=settings(objective__masking__copies=1),
    )
    assert [level.value for level in factor.levels] == ["1", "10", "new ones each time"]
    assert not factor.numeric
    assert [level.at for level in factor.levels] == [0, 1, 2]
    (factor,) = found(b=settings(objective__sees="itself"), a=settings(), w=settings(objective__sees="window"))
    assert [level.value for level in factor.levels] == ["itself", "both sides", "window of 2"]


def test_the_corruption_split_is_one_setting():
    none = settings(objective__masking=MASKING | {"mask": 1.0, "random": 0.0, "keep": 0.0})
    same = settings(objective__masking=MASKING | {"mask": 0.8, "random": 0.0, "keep": 0.2})
    (factor,) = found(mlm=settings(), only=none, same=same)
    assert factor.setting == SPLIT
    assert [level.value for level in factor.levels] == ["80/10/10", "100/0/0", "80/20/0"]
    assert factor.label == "corruption split (mask/same/random, %)"


def test_what_follows_from_a_setting_is_no_other_setting():
    warmup = TrainingSettings(max_steps=200).warmup_steps
    short = settings(training__max_steps=200, training__warmup_steps=warmup, training__validate_every=40)
    assert [factor.setting for factor in found(mlm=settings(), short=short)] == ["training.max_steps"]
    inside = EncoderSettings(hidden_size=128).intermediate_size
    wide = settings(encoder__hidden_size=128, encoder__intermediate_size=inside)
    assert [factor.setting for factor in found(mlm=settings(), wide=wide)] == ["encoder.hidden_size"]
    # a warm-up of its own is a second setting
    own = settings(training__max_steps=200, training__warmup_steps=warmup + 1)
    assert found(mlm=settings(), short=own) == []
    # and a window that nobody looks through is none
    assert found(mlm=settings(), other=settings(objective__window=7)) == []


def resolved(objective, **sections):
    run = {"data": {"kind": "language"}, "objective": objective, "seed": 0, **sections}
    return json.loads(RunSettings.model_validate(run).model_dump_json())


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("training.warmup_steps", resolved({"kind": "masked_lm"}, training={"max_steps": 70})),
        ("encoder.intermediate_size", resolved({"kind": "masked_lm"}, encoder={"hidden_size": 96})),
        ("objective.weight", resolved({"kind": "replaced_token"})),
        ("objective.weight", resolved({"kind": "replaced_token", "predict": "original"})),
    ],
)
def test_a_setting_counts_where_its_value_is_not_the_one_that_others_give_it(path, given):
    section, name = path.split(".")
    assert path not in decisions(given)
    changed = given | {section: given[section] | {name: given[section][name] + 1}}
    assert decisions(changed)[path] == given[section][name] + 1
    # a default that no other setting decides counts, though it is the default
    assert decisions(given)["encoder.dropout"] == EncoderSettings().dropout


def test_other_objectives_texts_and_untrained_encoders_are_no_settings():
    start = {"training__max_steps": 0, "training__warmup_steps": 0}
    assert found(mlm=settings(), clm=settings(objective="causal_lm")) == []
    assert found(mlm=settings(), other=settings(data__vocab_size=4096)) == []
    assert found(mlm=settings(), untrained=settings(**start)) == []
    (factor,) = found(mlm=ratio(0.15), more=ratio(0.4), start=ratio(0.15, **start))
    assert (factor.arms, factor.untrained) == (["mlm", "more"], "start")
    (factor,) = found(mlm=ratio(0.15), more=ratio(0.4), start=ratio(0.3, **start))
    assert factor.untrained is None  # of another arm


def test_values_that_were_tuned_for_each_arm_are_no_other_setting():
    rate = "training.learning_rate"
    arms = {
        "mlm": ratio(0.15, training__learning_rate=0.001),
        "more": ratio(0.4, training__learning_rate=0.002),
        "untuned": ratio(0.4, training__learning_rate=0.004),
        "start": ratio(0.15, training__learning_rate=0.01, training__max_steps=0, training__warmup_steps=0),
    }
    whole = experiment(arms)
    assert factors(whole)[0].setting == rate  # of `more` and `untuned`
    assert len(factors(whole)) == 1
    tuned = [{"arm": arm, "chosen": {rate: arms[arm]["training"]["learning_rate"]}} for arm in ("mlm", "more")]
    tuning = Tuning(settings={rate: [0.001, 0.002]}, seeds=[9], part_of_steps=1, arms=tuned)
    plan = whole.plan.model_copy(update={"tuning": tuning})
    by_ratio, by_rate = factors(whole._replace(plan=plan))
    assert (by_ratio.arms, by_ratio.tuned, by_ratio.untrained) == (["mlm", "more"], (rate,), "start")
    assert [level.value for level in by_rate.levels] == ["0.004", "tuned"]
    assert by_rate.tuned == ()
    assert how_to_read(by_ratio, [], first=None, has_intervals=True)[0].startswith(
        "The arms compared here differ in one setting (masking ratio) and in nothing else but what was tuned for "
        "each of them (learning rate). Runs"
    )


def test_arms_alike_in_everything_else_are_a_line_of_their_own():
    (factor,) = found(
        mlm=settings(),
        long=settings(training__max_steps=1000, training__warmup_steps=100),
        clm=settings(objective="causal_lm"),
        clm_long=settings(objective="causal_lm", training__max_steps=1000, training__warmup_steps=100),
        alone=settings(objective="translation"),
    )
    assert factor.lines == ("masked_lm", "causal_lm")
    assert [(level.arm, level.line) for level in factor.levels] == [
        ("mlm", 0),
        ("long", 0),
        ("clm", 1),
        ("clm_long", 1),
    ]
    ratios, steps = found(
        **{
            f"{share}-{norm}": ratio(share, encoder__norm=norm)
            for norm in ("post", "pre")
            for share in (0.15, 0.4)
        }
    )
    assert ratios.lines == ("place of the layer norm: post", "place of the layer norm: pre")
    assert steps.lines == ("masking ratio: 0.15", "masking ratio: 0.4")


def test_what_is_predicted_as_it_is_hidden_stands_at_the_ratio():
    (factor,) = found(mlm=settings(), half=settings(objective__masking__predict=0.075))
    assert [(level.arm, level.at) for level in factor.levels] == [("half", 0.075), ("mlm", 0.15)]


@pytest.mark.parametrize(
    ("values", "logarithmic"),
    [((0.05, 0.8), False), ((1e-4, 1e-3), True), ((125, 1000), True), ((0, 1000), False), ((3, 6), False)],
)
def test_numbers_far_apart_stand_on_a_logarithmic_axis_unless_they_are_shares(values, logarithmic):
    (factor,) = found(**{f"a{i}": settings(training__some_number=value) for i, value in enumerate(values)})
    assert factor.logarithmic is logarithmic


def test_steps_that_a_spec_matches_are_no_setting(tmp_path):
    arms = {"mlm": ratio(0.15), "more": ratio(0.4, training__max_steps=188, training__warmup_steps=19)}
    assert factors(experiment(arms, folder=tmp_path)) == []
    for written, settings_found in (("match: predictions", 1), ("match: steps", 0), ("match: [", 0)):
        (tmp_path / "spec.yaml").write_text(f"name: it\n{written}\n", encoding="utf-8")
        assert len(factors(experiment(arms, folder=tmp_path))) == settings_found


def test_arms_without_settings_and_odd_ones_are_left_out():
    assert found(mlm={}, other={"training": 7}) == []
    odd = settings(training__max_steps="many", encoder__hidden_size=[1], objective__masking="all of it")
    assert found(mlm=settings(), odd=odd) == []


def test_a_word_order_is_called_by_what_tells_it_from_others():
    orders = [
        {"kind": "natural"},
        *({"kind": "ngrams", "unit": "words", "n": n} for n in (1, 2, 3)),
        {"kind": "ngrams", "unit": "sub_words", "n": 1},
        {"kind": "blocks", "unit": "words", "length": 512},
    ]
    assert words("training.word_order", orders) == [
        *("natural", "ngrams n=1", "ngrams n=2", "ngrams n=3", "ngrams n=1 sub words", "blocks")
    ]
    assert words("objective.masking.random_differs", [True, False]) == ["yes", "no"]
    assert words("training.sentences", [None, 10_000]) == ["all", "10,000"]
    assert len(words("it", ["x" * 1000])[0]) == 30
    files = ["my_corruption.py:Rare", "../my_words.txt"]
    assert words("objective.masking.select", [*files, "whole_word"]) == [*files, "whole word"]


# The specs we ship ------------------------------------------------------------------------------------

EXPECTED = {
    "article-tiny": {},
    "article-layers": {},
    "masking-ratio": {"objective.masking.ratio": 6},
    "word-order": {"training.word_order": 9, "encoder.positions": 2},
    "sentence-pairs": {"training.input_format": 6, "objective.pair_loss": 5},
    "unmasking-tiny": {
        **{SPLIT: 4, "objective.sees": 2, "objective.pair_loss": 2, "encoder.num_hidden_layers": 2},
        **{"encoder.norm": 2, "training.word_order": 2, "objective.masking.random_differs": 2},
    },
}


def shipped(path):
    """The factors of a spec, and the settings of its arms as run.json has them."""
    arms = {run.arm: run.settings.model_dump(mode="json") for run in grid.runs(load.load(path))}
    return found(**arms), arms


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items(), ids=EXPECTED)
def test_the_settings_of_shipped_specs(name, expected):
    known, _ = shipped(ROOT / "experiments" / f"{name}.yaml")
    assert {factor.setting: len(factor.levels) for factor in known} == expected


MAY_FOLLOW = {
    "training.max_steps": {"training.warmup_steps", "training.validate_every"},
    "encoder.hidden_size": {"encoder.intermediate_size"},
    "objective.sees": {"objective.window"},
    "objective.predict": {"objective.weight"},  # the loss of the one is much smaller
    SPLIT: {f"objective.masking.{name}" for name in ("mask", "keep", "random")},
}


def leaves(value, path=""):
    if isinstance(value, dict):
        return {k: v for name, part in value.items() for k, v in leaves(part, f"{path}.{name}".strip(".")).items()}
    return {path: json.dumps(value)}


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_arms_of_a_line_differ_in_the_setting_alone(path):
    """Derived again, from every number of the settings."""
    known, arms = shipped(path)
    for factor in known:
        allowed = {factor.setting} | MAY_FOLLOW.get(factor.setting, set())
        for one, other in combinations(factor.levels, 2):
            if one.line != other.line:
                continue
            first, second = leaves(arms[one.arm]), leaves(arms[other.arm])
            differ = {name for name in {*first, *second} if first.get(name) != second.get(name)}
            assert differ
            assert all(name in allowed or name.startswith(f"{factor.setting}.") for name in differ), differ
            assert one.at != other.at


def test_long_values_with_the_same_beginning_have_places_and_words_of_their_own():
    verbs = ["accept", "believe", "choose", "decide", "explain"]
    first, second = ({"kind": "words", "words": [*verbs, last]} for last in ("find", "go"))
    uniform = {"kind": "uniform"}
    whole = [f"words words={', '.join([*verbs, last])}" for last in ("find", "go")]
    assert words("objective.masking.select", [first, second, uniform]) == [*whole, "uniform"]
    assert words("objective.masking.select", [first, uniform]) == ["words", "uniform"]
    assert words("it", ["x" * 40, "x" * 41]) == ["x" * 40, "x" * 41]
    assert words("it", ["x" * 40, "x" * 40]) == [f"{'x' * 29}…"] * 2
    selects = {"base": uniform, "find": first, "go": second}
    (factor,) = found(
        **{arm: settings(objective__masking={**MASKING, "select": select}) for arm, select in selects.items()}
    )
    assert [(level.arm, level.at) for level in factor.levels] == [("base", 0.0), ("find", 1.0), ("go", 2.0)]


@pytest.mark.parametrize("last", ["zoo", "abandon"])
def test_a_lexicon_is_called_by_its_first_arm(last):
    """A run has the words of a part of speech, not its name."""
    verbs = {"kind": "cloze", "words": [f"verb{i}" for i in range(2000)]}
    nouns = {"kind": "cloze", "words": [*(f"verb{i}" for i in range(last == "zoo", 2000)), last]}
    selects = {"any": {"kind": "uniform"}, "verbs": verbs, "nouns": nouns}
    arms = {arm: settings(objective__masking={**MASKING, "select": select}) for arm, select in selects.items()} | {
        "verbs-40": settings(objective__masking={**MASKING, "ratio": 0.4, "select": verbs})
    }
    factor = next(factor for factor in found(**arms) if factor.setting == "objective.masking.select")
    assert [level.value for level in factor.levels] == ["uniform", "cloze (verbs)", "cloze (nouns)"]
