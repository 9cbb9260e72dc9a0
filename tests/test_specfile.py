"""Every mistake in a spec is one sentence, in the right place, and all of them come at once."""

import pytest

from ablations import specfile
from ablations.errors import SpecError
from ablations.problems import Problem

SPEC = """\
name: trial
version: 1
question: Which objective?
data: {kind: language}
encoder: {hidden_size: 64, num_attention_heads: 4}
objective: {kind: masked_lm}
training: {max_steps: 20}
arms:
  mlm: {}
  clm: {objective: {kind: causal_lm}}
seeds: [0, 1]
measures: [layer_change]
"""


@pytest.fixture
def wrong(tmp_path):
    """The problems of a spec as ``line:column: sentence``."""

    def find(spec):
        path = tmp_path / "spec.yaml"
        path.write_bytes(spec if isinstance(spec, bytes) else spec.encode())
        with pytest.raises(SpecError) as caught:
            specfile.load(path)
        assert str(caught.value) == "\n".join(map(str, caught.value.problems))
        return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]

    return find


def edited(old, new, spec=SPEC):
    assert spec.count(old) == 1, f"{old!r} is to be replaced once"
    return spec.replace(old, new)


def test_a_good_spec_becomes_an_experiment(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    experiment = specfile.load(path)
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
        specfile.load(path)
    assert caught.value.problems == (Problem(str(path), 2, 10, "version must be 1, but is 2"),)
    assert str(caught.value) == f"{path}:2:10: version must be 1, but is 2"


KEYS = [
    ("hidden_size: 64", "hidden_sise: 64", "5:11: encoder.hidden_sise is unknown; did you mean hidden_size?"),
    ("hidden_size: 64", "heads: 4", "5:11: encoder.heads is unknown; did you mean num_attention_heads?"),
    (
        "hidden_size: 64",
        "bias: 1",
        "5:11: encoder.bias is unknown; encoder takes num_hidden_layers, hidden_size, num_attention_heads, "
        "intermediate_size, dropout, norm and positions",
    ),
    (
        "{max_steps: 20}",
        "{max_steps: 20, max_step: 30}",
        "7:27: training.max_step is unknown; did you mean max_steps?",
    ),
    ("question:", "qestion:", "3:1: qestion is unknown; did you mean question?"),
    (
        "seeds: [0, 1]\n",
        "seeds: [0, 1]\nmax_steps: 3\n",
        "12:1: max_steps is unknown; did you mean training.max_steps?",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, ratio: 0.4}",
        "6:30: objective.ratio is unknown; did you mean objective.masking.ratio?",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, mask: 1}",
        "6:30: objective.mask is unknown; did you mean masking or objective.masking.mask?",
    ),
    ("mlm: {}", "mlm: {encodr: {}}", "9:9: arms.mlm.encodr is unknown; did you mean encoder?"),
    (
        "mlm: {}",
        "mlm: {seed: 3}",
        "9:9: arms.mlm.seed is unknown; arms.mlm takes data, encoder, objective and training",
    ),
    (
        "kind: causal_lm}",
        "kind: causal_lm, masking: {}}",
        "10:38: objective.masking is unknown; objective of kind causal_lm takes kind and sees",
    ),
    (
        "[layer_change]",
        "[{kind: layer_change, token: 9}]",
        "12:33: measures.layer_change.token is unknown; did you mean tokens?",
    ),
    (
        "hidden_size: 64",
        "hidden_size: 64, hidden_size: 32",
        "5:28: hidden_size is written twice; the first is on line 5",
    ),
    ("mlm: {}\n", "mlm: {}\n  mlm: {}\n", "10:3: mlm is written twice; the first is on line 9"),
    ("encoder:", "[encoder]:", "5:1: a key must be plain text, but is a list or a mapping"),
    ("question:", ":", "3:1: a key is missing before this colon"),
]

VALUES = [
    (
        "hidden_size: 64",
        "hidden_size: wide",
        '5:24: encoder.hidden_size must be a whole number, but is the text "wide"',
    ),
    (
        "hidden_size: 64",
        'hidden_size: "64"',
        '5:24: encoder.hidden_size must be a whole number, but is the text "64"; write 64',
    ),
    (
        "hidden_size: 64",
        "hidden_size: 1_024",
        '5:24: encoder.hidden_size must be a whole number, but is the text "1_024"; write 1024',
    ),
    ("hidden_size: 64", "hidden_size: 64.5", "5:24: encoder.hidden_size must be a whole number, but is 64.5"),
    (
        "max_steps: 20",
        "max_steps: 1e3",
        "7:23: training.max_steps must be a whole number, but is 1000.0; write 1000",
    ),
    ("max_steps: 20", "max_steps: yes", '7:23: training.max_steps must be a whole number, but is the text "yes"'),
    ("max_steps: 20", "max_steps: true", "7:23: training.max_steps must be a whole number, but is true"),
    ("max_steps: 20", "max_steps: -1", "7:23: training.max_steps must be at least 0, but is -1"),
    ("max_steps: 20", "max_steps: ~", "7:23: training.max_steps must be a whole number, but is empty"),
    ("max_steps: 20", "learning_rate: .nan", "7:27: training.learning_rate must be a finite number, but is nan"),
    ("max_steps: 20", "learning_rate: 1e999", "7:27: training.learning_rate must be a finite number, but is inf"),
    (
        "max_steps: 20",
        "learning_rate: high",
        '7:27: training.learning_rate must be a number, but is the text "high"',
    ),
    ("max_steps: 20", "learning_rate: 0", "7:27: training.learning_rate must be greater than 0, but is 0"),
    (
        "max_steps: 20",
        "precision: bf16",
        '7:23: training.precision must be 32-true or bf16-mixed, but is "bf16"; did you mean bf16-mixed?',
    ),
    (
        "max_steps: 20",
        "keep_checkpoints: some",
        '7:30: training.keep_checkpoints must be a whole number or all, but is "some"',
    ),
    (
        "max_steps: 20",
        "keep_checkpoints: 0",
        "7:30: training.keep_checkpoints must be 'all' or at least 1, but is 0",
    ),
    (
        "max_steps: 20",
        "max_steps: 20, warmup_steps: 30",
        "7:41: training.warmup_steps must not exceed max_steps, but 30 > 20",
    ),
    (
        "num_attention_heads: 4",
        "num_attention_heads: 5",
        "5:49: encoder.num_attention_heads must divide hidden_size, but 64 is not a multiple of 5",
    ),
    (
        "{hidden_size: 64, num_attention_heads: 4}",
        "{hidden_size: 30}",
        "5:24: encoder.num_attention_heads must divide hidden_size, but 30 is not a multiple of 4",
    ),
    (
        "hidden_size: 64",
        "hidden_size: 64, dropout: 1",
        "5:37: encoder.dropout must be at least 0 and less than 1, but is 1",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {ratio: 1.5}}",
        "6:47: objective.masking.ratio must be greater than 0 and at most 1, but is 1.5",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {ratio: 0}}",
        "6:47: objective.masking.ratio must be greater than 0 and at most 1, but is 0",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {mask: 0.9, random: 0.1, keep: 0.1}}",
        "6:70: mask + random + keep must be 1, but 0.9 + 0.1 + 0.1 is 1.1",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {mask: 0.9}}",
        "6:46: mask + random + keep must be 1, but 0.9 + 0.1 + 0.1 is 1.1",
    ),
    (
        "kind: masked_lm",
        "kind: maskd_lm",
        '6:19: objective must be of kind masked_lm, causal_lm or translation, but is "maskd_lm"; did you mean masked_lm?',
    ),
    (
        "kind: masked_lm",
        "kind: 3",
        "6:19: objective must be of kind masked_lm, causal_lm or translation, but is 3",
    ),
    (
        "objective: {kind: masked_lm}",
        "objective: masked_lm",
        '6:12: objective must be a mapping of keys, but is the text "masked_lm"; write {kind: masked_lm}',
    ),
    ("data: {kind: language}", "data:", "4:1: data must be a mapping of keys, but is empty"),
    ("mlm: {}", "mlm:", "9:3: arms.mlm must be a mapping of keys, but is empty; write {} to change nothing"),
    ("question: Which objective?", "question: 42", "3:11: question must be text, but is 42; put it in quotes"),
    (
        "kind: language",
        "kind: files, train: [a.txt, 3], validation: ''",
        "4:36: an entry of data.train must be text, but is 3; put it in quotes\n"
        "4:52: an entry of data.validation must not be empty",
    ),
    ("seeds: [0, 1]", "seeds: [0, 1, 0]", "11:15: seeds has 0 twice; each may be there once"),
    ("seeds: [0, 1]", "seeds: []", "11:8: seeds must not be empty"),
    ("seeds: [0, 1]", "seeds: 3", "11:8: seeds must be a list, but is 3; write [3]"),
    (
        "seeds: [0, 1]",
        "seeds: [-1, a, true]",
        "11:9: an entry of seeds must be at least 0, but is -1\n"
        '11:13: an entry of seeds must be a whole number, but is the text "a"\n'
        "11:16: an entry of seeds must be a whole number, but is true",
    ),
    (
        "seeds: [0, 1]",
        "seeds: [9223372036854775808]",
        "11:9: an entry of seeds must fit into 64 bits, as tables store it, but is 9223372036854775808",
    ),
    (
        "[layer_change]",
        "[layer_chang]",
        "12:12: an entry of measures must be of kind layer_change, token_information or validation, "
        'but is "layer_chang"; did you mean layer_change?',
    ),
    (
        "[layer_change]",
        "[layer_change, {kind: layer_change}]",
        '12:26: measures has "layer_change" twice; each may be there once',
    ),
    (
        "[layer_change]",
        "layer_change",
        '12:11: measures must be a list, but is the text "layer_change"; write [layer_change]',
    ),
    (
        "[layer_change]",
        "[{tokens: 200}]",
        "12:12: an entry of measures lacks its kind, which is layer_change, token_information or validation",
    ),
]

FOLDER = "and start with a letter or a digit (200 characters at most), because it names a folder, but is"

NAMES = [
    (
        "name: trial",
        "name: ../trial",
        f'1:7: name must consist of lower-case letters, digits and ._- {FOLDER} "../trial"',
    ),
    (
        "name: trial",
        "name: Trial",
        f'1:7: name must consist of lower-case letters, digits and ._- {FOLDER} "Trial"',
    ),
    ("name: trial", "name: ''", f'1:7: name must consist of lower-case letters, digits and ._- {FOLDER} ""'),
    ("name: trial", "name: .", f'1:7: name must consist of lower-case letters, digits and ._- {FOLDER} "."'),
    (
        "name: trial",
        "name: runs",
        "1:7: name must not be runs: beside the experiments, a folder of this name holds all runs",
    ),
    (
        "name: trial",
        "name: tokens",
        "1:7: name must not be tokens: beside the experiments, a folder of this name holds all tokens",
    ),
    ("mlm: {}", "../mlm: {}", f'9:3: a name in arms must consist of letters, digits and ._+=,- {FOLDER} "../mlm"'),
    ("mlm: {}", "a b: {}", f'9:3: a name in arms must consist of letters, digits and ._+=,- {FOLDER} "a b"'),
    (
        "measures: [layer_change]",
        "claims: [../secret]",
        f'12:10: an entry of claims must consist of lower-case letters, digits and ._- {FOLDER} "../secret"',
    ),
]

MISSING = [
    ("name: trial\n", "", "1:1: name is missing (names the folder of the results)"),
    ("version: 1\n", "", "1:1: version is missing (the format of this file, always 1)"),
    ("seeds: [0, 1]\n", "", "1:1: seeds is missing (the replicates of every arm)"),
    ("data: {kind: language}\n", "", "1:1: data is missing; its kind is language, files or hub"),
    (
        "{kind: language}",
        "{kind: files, train: a.txt}",
        "4:1: data.validation is missing (file or files for validation and for the layer measures)",
    ),
    ("{kind: language}", "{train: 30}", "4:1: data lacks its kind, which is language, files or hub"),
    (
        "objective: {kind: masked_lm}\n",
        "",
        "8:3: arm mlm: objective is missing; its kind is masked_lm, causal_lm or translation",
    ),
    (
        "clm: {objective: {kind: causal_lm}}",
        "hub: {data: {kind: hub}}",
        "10:9: arm hub: data.path is missing (name on the hub, or a local folder (relative paths start at --data-root))",
    ),
    (  # misspelt, so not missing too
        "{kind: language}",
        "{kind: files, trian: a.txt, validation: b.txt}",
        "4:21: data.trian is unknown; did you mean train?",
    ),
]

TOGETHER = [
    (
        "max_steps: 20",
        "max_steps: 20, tokens_per_step: 50",
        "7:44: training.tokens_per_step must be at least data.max_length, or the longest sentence would never fit, "
        "but 50 < 64",
    ),
    (
        "mlm: {}",
        "mlm: {data: {max_length: 9000}}",
        "9:28: arm mlm: training.tokens_per_step must be at least data.max_length, or the longest sentence would "
        "never fit, but 8192 < 9000",
    ),
    (
        "mlm: {}",
        "mlm: {encoder: {hidden_size: 30}}",
        "9:32: arm mlm: encoder.num_attention_heads must divide hidden_size, but 30 is not a multiple of 4",
    ),
    (
        "mlm: {}",
        "mt: {data: {kind: files, train: a.txt, validation: b.txt}, objective: {kind: translation}}",
        "9:80: arm mt: translation needs data.target, the column that holds the translations; name it, or drop the arm",
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), KEYS + VALUES + NAMES + MISSING + TOGETHER)
def test_one_mistake_is_one_sentence(wrong, old, new, expected):
    assert wrong(edited(old, new)) == expected.split("\n")
