"""Every mistake in a spec is one sentence, in the right place, and all of them come at once."""

import pytest

from ablations.errors import Problem, SpecError
from ablations.spec import load
from tests.support.errors import error_text
from tests.support.wrong_specs import KINDS, SPEC, cases, edited


def test_a_good_spec_becomes_an_experiment(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    experiment = load.load(path)
    assert experiment.name == "trial"
    assert experiment.seeds == (0, 1)
    assert list(experiment.arms) == ["mlm", "clm"]
    assert experiment.written() == {
        "data": {"kind": "language"},
        "encoder": {"hidden_size": 64, "num_attention_heads": 4},
        "objective": {"kind": "masked_lm"},
        "training": {"max_steps": 20},
    }


def test_a_problem_knows_its_file_line_and_column(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(edited("version: 1", "version: 2"))
    with pytest.raises(SpecError) as caught:
        load.load(path)
    sentence = "version must be 1, but is 2; it is the format of this file, always 1"
    assert caught.value.problems == (Problem(str(path), 2, 10, sentence),)
    assert str(caught.value) == f"{path}:2:10: {sentence}"


KEYS = {
    "hidden_size: 64": {
        "hidden_sise: 64": "5:11: encoder.hidden_sise is unknown; did you mean hidden_size?",
        "heads: 4": "5:11: encoder.heads is unknown; did you mean num_attention_heads?",
        "bias: 1": "5:11: encoder.bias is unknown; did you mean encoder.embedding.bias?",
        "hidden_size: 64, hidden_size: 32": "5:28: hidden_size is written twice; the first is on line 5",
    },
    "{max_steps: 20}": {
        "{max_steps: 20, max_step: 30}": "7:27: training.max_step is unknown; did you mean max_steps?",
    },
    "question:": {
        "qestion:": "3:1: qestion is unknown; did you mean question?",
        ":": "3:1: a key is missing before this colon",
    },
    "seeds: [0, 1]\n": {
        "seeds: [0, 1]\nmax_steps: 3\n": "12:1: max_steps is unknown; did you mean training.max_steps?",
    },
    "kind: masked_lm}": {
        "kind: masked_lm, ratio: 0.4}": (
            "6:30: objective.ratio is unknown; did you mean objective.masking.ratio?"
        ),
        "kind: masked_lm, mask: 1}": (
            "6:30: objective.mask is unknown; did you mean masking or objective.masking.mask?"
        ),
    },
    "mlm: {}": {
        "mlm: {encodr: {}}": "9:9: arms.mlm.encodr is unknown; did you mean encoder?",
        "mlm: {seed: 3}": (
            "9:9: arms.mlm.seed is unknown; arms.mlm has the settings preset, data, encoder, objective, training "
            "and init"
        ),
    },
    "kind: causal_lm}": {
        "kind: causal_lm, masking: {}}": (
            "10:38: objective.masking is unknown; objective of kind causal_lm has the settings kind, sees, "
            "window, token_dropout, head and label_smoothing"
        ),
    },
    "[layer_change]": {
        "[{kind: layer_change, token: 9}]": (
            "12:33: measures.layer_change.token is unknown; did you mean tokens?"
        ),
    },
    "mlm: {}\n": {
        "mlm: {}\n  mlm: {}\n": "10:3: mlm is written twice; the first is on line 9",
    },
    "encoder:": {
        "[encoder]:": "5:1: a key must be plain text, but is a list or a mapping",
    },
}

MISSING = {
    "name: trial\n": {
        "": "1:1: name is missing (names the folder of the results)",
    },
    "version: 1\n": {
        "": "1:1: version is missing (the format of this file, always 1)",
    },
    "seeds: [0, 1]\n": {
        "": "1:1: seeds is missing (the replicates of every arm)",
    },
    "data: {kind: language}\n": {
        "": "1:1: data is missing; its kind is language, files or hub",
    },
    "{kind: language}": {
        "{kind: files, train: a.txt}": (
            "4:1: data.validation is missing (file or files for validation and for the layer measures)"
        ),
        "{train: 30}": "4:1: data lacks its kind, which is language, files or hub",
        # misspelt, so not missing too
        "{kind: files, trian: a.txt, validation: b.txt}": "4:21: data.trian is unknown; did you mean train?",
    },
    "objective: {kind: masked_lm}\n": {
        "": "8:3: arm mlm: objective is missing; its kind is " + KINDS,
    },
    "clm: {objective: {kind: causal_lm}}": {
        "hub: {data: {kind: hub}}": "10:9: arm hub: data.path is missing (name on the hub, or a local folder)",
    },
}


@pytest.mark.parametrize(("old", "new", "expected"), cases(KEYS) + cases(MISSING))
def test_one_mistake_is_one_sentence(wrong, old, new, expected):
    assert wrong(edited(old, new)) == expected.split("\n")


def test_all_mistakes_come_at_once_in_the_order_of_the_file(wrong):
    spec = """\
name: Trial
version: 2
data: {kind: language, vocab_size: 10}
encoder: {hidden_sise: 64}
arms:
  mlm: {objective: {kind: masked_lm, masking: {ratio: 40}}}
  clm: {objective: {kind: casual_lm}}
  mlm: {}
seeds: [1, 1]
measures: [layer_chang]
grid: {base: nlm, axes: {encoder.norm: [pre]}}
"""
    assert [problem.split(": ")[0] for problem in wrong(spec)] == [
        "1:7", "2:10", "3:36", "4:11", "6:55", "7:27", "8:3", "9:12", "10:12", "11:14"
    ]  # fmt: skip


def test_a_mistake_above_the_arms_is_said_once_and_one_in_each_arm_in_each(wrong):
    spec = edited("max_steps: 20", "max_steps: -1")
    spec = spec.replace("mlm: {}", "mlm: {encoder: {dropout: 2}}")
    spec = spec.replace("kind: causal_lm}}", "kind: causal_lm}, encoder: {dropout: 2}}")
    assert wrong(spec) == [
        "7:23: training.max_steps must be greater than or equal to 0, but is -1; raise it",
        "9:28: encoder.dropout must be less than 1, but is 2; lower it (2% is written 0.02)",
        "10:58: encoder.dropout must be less than 1, but is 2; lower it (2% is written 0.02)",
    ]


def test_a_section_that_every_arm_replaces_is_checked_too(wrong):
    spec = edited("{kind: masked_lm}", "{kind: masked_lm, masking: {ration: 0.4}}")
    spec = spec.replace("mlm: {}", "mt: {objective: {kind: translation}}")
    assert wrong(spec) == ["6:40: objective.masking.ration is unknown; did you mean ratio?"]


def test_a_section_above_the_arms_may_leave_to_them_what_each_says(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: x\nversion: 1\ndata: {validation: b.txt}\nobjective: {kind: masked_lm}\nseeds: [0]\n"
        "encoder: {hidden_size: 30}\n"
        "arms:\n  a: {data: {kind: files, train: a.txt}, encoder: {num_attention_heads: 3}}\n"
    )
    assert load.load(path).name == "x"


def test_what_an_arm_lacks_is_said_where_its_kind_was_chosen(wrong):
    spec = edited("mlm: {}", "mlm:\n    data:\n      kind: files\n      train: a.txt")
    assert wrong(spec) == [
        "10:5: arm mlm: data.validation is missing (file or files for validation and for the layer measures)"
    ]


def test_a_file_that_is_not_there_has_a_neighbour_that_was_meant(tmp_path):
    (tmp_path / "smoke.yaml").write_text(SPEC)
    assert error_text(SpecError, load.load, tmp_path / "smoke.yml") == (
        f"{tmp_path}/smoke.yml: this file does not exist; did you mean {tmp_path}/smoke.yaml?"
    )


def test_a_folder_is_no_spec(tmp_path):
    assert error_text(SpecError, load.load, tmp_path) == f"{tmp_path}: this is a folder; name a file"
