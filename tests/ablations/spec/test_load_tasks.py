"""A spec names tasks and labels that suit its text, or learns which would."""

from typing import get_args

import pytest

from ablations.spec import load
from ablations.tasks.datasets import TASKS, chosen
from ablations.tasks.settings import (
    BaselinesSettings,
    FineTuningSettings,
    FrozenFeaturesSettings,
    MinimalPairsSettings,
    ProbingSettings,
)
from tests.support.wrong_specs import SPEC, edited

TASK_SETTINGS = (
    BaselinesSettings,
    FineTuningSettings,
    FrozenFeaturesSettings,
    MinimalPairsSettings,
    ProbingSettings,
)


@pytest.mark.parametrize(
    ("measure", "at", "expected"),
    [
        (
            "{kind: minimal_pairs, tasks: [blimp, sst2, cola]}",
            "sst2",
            "measures.minimal_pairs.tasks has sst2 and cola, but this measure can use only blimp, lm_syneval "
            "and language_minimal_pairs; leave sst2 and cola out",
        ),
        (
            "{kind: minimal_pairs, tasks: [blimp]}",
            "blimp",
            "an entry of tasks must suit the text of every arm, but blimp is for files and the text of mlm is "
            "the built-in language; choose language_minimal_pairs",
        ),
    ],
    ids=["another kind", "another text"],
)
def test_a_task_that_does_not_suit_is_found_with_those_that_do(wrong, measure, at, expected):
    spec = edited("[layer_change]", f"[{measure}]", SPEC)
    column = spec.splitlines()[-1].index(at) + 1
    assert wrong(spec) == [f"12:{column}: {expected}"]


def test_an_empty_list_of_tasks_is_no_way_to_ask_for_all(wrong):
    spec = edited("[layer_change]", "[{kind: probing, tasks: []}]")
    assert wrong(spec) == ["12:35: measures.probing.tasks must not be empty"]


TREEBANK = "set treebank to a CoNLL-U or parquet file"


@pytest.mark.parametrize(
    ("measure", "sentence"),
    {
        "parsing": f"data of kind files have no trees; {TREEBANK}, or leave parsing out",
        "{kind: structural_probe, effort: quick}": (
            f"data of kind files have no trees; {TREEBANK}, or leave structural_probe out"
        ),
        "{kind: influence, groups: [part_of_speech]}": (
            f"groups has part_of_speech, but data of kind files have no parts of speech; {TREEBANK}, or leave "
            "part_of_speech out"
        ),
    }.items(),
    ids=["parsing", "structural_probe", "influence"],
)
def test_labels_that_a_text_does_not_have_are_asked_of_a_treebank(wrong, tmp_path, measure, sentence):
    spec = edited("[layer_change]", f"[{measure}]")
    (tmp_path / "good.yaml").write_text(spec)
    load.load(tmp_path / "good.yaml")  # the built-in language has them
    files = spec.replace("mlm: {}", "mlm: {data: {kind: files, train: a, validation: b}}")
    assert wrong(files) == [f"12:12: {sentence}"]
    named = "treebank: gum.conllu}"
    measure = f"{measure[:-1]}, {named}" if measure.endswith("}") else f"{{kind: {measure}, {named}"
    (tmp_path / "good.yaml").write_text(edited("[layer_change]", f"[{measure}]"))
    load.load(tmp_path / "good.yaml")


def test_too_few_tokens_for_the_width_of_an_arm_are_refused(wrong, tmp_path):
    """CCA needs five tokens for each dimension. The base has a width of 64; `run_distance` reads its arms."""
    measures = "[{kind: layer_change, tokens: 319}, {kind: run_distance, tokens: 639, arms: [mlm]}]"
    spec = edited("[layer_change]", measures)
    problem = "must be at least 5 for each unit of the width, which is"
    assert wrong(spec) == [f"12:12: tokens of layer_change {problem} 320 for encoder.hidden_size 64, but is 319"]
    enough = spec.replace("319", "320").replace("clm: {", "clm: {encoder: {hidden_size: 128}, ")
    assert wrong(enough) == [
        f"12:12: tokens of layer_change {problem} 640 for encoder.hidden_size 128, but is 320"
    ]
    (tmp_path / "good.yaml").write_text(enough.replace("320", "640"))
    load.load(tmp_path / "good.yaml")
    (problem,) = wrong(enough.replace("320", "640").replace("arms: [mlm]", "arms: [clm]"))
    assert problem.endswith("which is 640 for encoder.hidden_size 128, but is 639")


def test_a_task_of_the_built_in_language_is_refused_where_one_arm_reads_files(wrong):
    spec = edited("[layer_change]", "[{kind: minimal_pairs, tasks: [language_minimal_pairs]}]")
    (problem,) = wrong(spec.replace("clm: {", "clm: {data: {kind: files, train: a, validation: b}, "))
    assert problem == (
        "12:42: an entry of tasks must suit the text of every arm, but language_minimal_pairs is for the "
        "built-in language and the text of clm is files; choose blimp or lm_syneval"
    )


@pytest.mark.parametrize("settings", TASK_SETTINGS, ids=lambda settings: settings.__name__)
def test_a_spec_may_name_every_task_that_a_measure_takes_by_itself(settings):
    """And others: probes read classes of any task, heads learn what probes ask for."""
    kind = get_args(settings.model_fields["kind"].annotation)[0]
    for built_in in (True, False):
        settings.model_validate({"kind": kind, "tasks": chosen(settings.suits, built_in=built_in)})
        taken = [name for name, task in TASKS.items() if settings.can_measure(task)]
        settings.model_validate({"kind": kind, "tasks": taken})
