"""Every mistake in a spec is one sentence, in the right place, and all of them come at once."""

from typing import get_args

import pytest

from ablations.errors import Problem, SpecError
from ablations.spec import load
from ablations.tasks.datasets import TASKS, chosen
from ablations.tasks.settings import (
    BaselinesSettings,
    FineTuningSettings,
    FrozenFeaturesSettings,
    MinimalPairsSettings,
    ProbingSettings,
)
from ablations.wording import listed

TASK_SETTINGS = (
    BaselinesSettings,
    FineTuningSettings,
    FrozenFeaturesSettings,
    MinimalPairsSettings,
    ProbingSettings,
)

WITH_ANSWERS = [name for name, task in TASKS.items() if task.kind != "minimal_pairs"]

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

KINDS = (
    "masked_lm, causal_lm, translation, mixture, replaced_token, permutation_lm, naive_bidirectional_lm or "
    "skip_gram"
)


@pytest.fixture
def wrong(tmp_path):
    """The problems of a spec as ``line:column: sentence``."""

    def find(spec):
        path = tmp_path / "spec.yaml"
        path.write_bytes(spec if isinstance(spec, bytes) else spec.encode())
        with pytest.raises(SpecError) as caught:
            load.load(path)
        assert str(caught.value) == "\n".join(map(str, caught.value.problems))
        return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]

    return find


def edited(old, new, spec=SPEC):
    assert spec.count(old) == 1, f"{old!r} is to be replaced once"
    return spec.replace(old, new)


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
    assert caught.value.problems == (Problem(str(path), 2, 10, "version must be 1, but is 2"),)
    assert str(caught.value) == f"{path}:2:10: version must be 1, but is 2"


KEYS = [
    ("hidden_size: 64", "hidden_sise: 64", "5:11: encoder.hidden_sise is unknown; did you mean hidden_size?"),
    ("hidden_size: 64", "heads: 4", "5:11: encoder.heads is unknown; did you mean num_attention_heads?"),
    (
        "hidden_size: 64",
        "bias: 1",
        "5:11: encoder.bias is unknown; did you mean encoder.embedding.bias?",
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
        "9:9: arms.mlm.seed is unknown; arms.mlm takes preset, data, encoder, objective, training and init",
    ),
    (
        "kind: causal_lm}",
        "kind: causal_lm, masking: {}}",
        "10:38: objective.masking is unknown; objective of kind causal_lm takes kind, sees, window, "
        "token_dropout, head and label_smoothing",
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
        '5:24: encoder.hidden_size must be a valid integer, but is the text "wide"',
    ),
    (
        "hidden_size: 64",
        'hidden_size: "64"',
        '5:24: encoder.hidden_size must be a valid integer, but is the text "64"; write 64',
    ),
    (
        "hidden_size: 64",
        "hidden_size: 1_024",
        '5:24: encoder.hidden_size must be a valid integer, but is the text "1_024"; write 1024',
    ),
    ("hidden_size: 64", "hidden_size: 64.5", "5:24: encoder.hidden_size must be a valid integer, but is 64.5"),
    (
        "max_steps: 20",
        "max_steps: 1e3",
        "7:23: training.max_steps must be a valid integer, but is 1000.0; write 1000",
    ),
    ("max_steps: 20", "max_steps: yes", '7:23: training.max_steps must be a valid integer, but is the text "yes"'),
    ("max_steps: 20", "max_steps: true", "7:23: training.max_steps must be a valid integer, but is true"),
    (
        "max_steps: 20",
        "max_steps: -1",
        "7:23: training.max_steps must be greater than or equal to 0, but is -1; raise it",
    ),
    ("max_steps: 20", "max_steps: ~", "7:23: training.max_steps must be a valid integer, but is empty"),
    ("max_steps: 20", "learning_rate: .nan", "7:27: training.learning_rate must be a finite number, but is nan"),
    ("max_steps: 20", "learning_rate: 1e999", "7:27: training.learning_rate must be a finite number, but is inf"),
    (
        "max_steps: 20",
        "learning_rate: high",
        '7:27: training.learning_rate must be a valid number, but is the text "high"',
    ),
    (
        "max_steps: 20",
        "learning_rate: 0",
        "7:27: training.learning_rate must be greater than 0, but is 0; raise it",
    ),
    (
        "max_steps: 20",
        "precision: bf16",
        '7:23: training.precision must be 32-true or bf16-mixed, but is "bf16"; did you mean bf16-mixed?',
    ),
    (
        "max_steps: 20",
        "keep_checkpoints: some",
        '7:30: training.keep_checkpoints must be a valid integer or all, but is "some"',
    ),
    (
        "max_steps: 20",
        "keep_checkpoints: 0",
        "7:30: training.keep_checkpoints must be 'all' or at least 1, but is 0; raise it",
    ),
    (
        "max_steps: 20",
        "loggers: [tensorboard, wandv]",
        '7:35: an entry of training.loggers must be tensorboard or wandb, but is "wandv"; did you mean wandb?',
    ),
    (
        "max_steps: 20",
        "loggers: [wandb, wandb]",
        "7:21: training.loggers must name each logger once, but is ['wandb', 'wandb']; take the second one away",
    ),
    (
        "max_steps: 20",
        "max_steps: 20, warmup_steps: 30",
        "7:41: training.warmup_steps must not exceed max_steps, but 30 > 20; lower it",
    ),
    (
        "num_attention_heads: 4",
        "num_attention_heads: 5",
        "5:49: encoder.num_attention_heads must divide hidden_size, but 64 is not a multiple of 5; change "
        "one of the two",
    ),
    (
        "{hidden_size: 64, num_attention_heads: 4}",
        "{hidden_size: 30}",
        "5:24: encoder.num_attention_heads must divide hidden_size, but 30 is not a multiple of 4; change "
        "one of the two",
    ),
    (
        "hidden_size: 64",
        "hidden_size: 64, dropout: 1",
        "5:37: encoder.dropout must be less than 1, but is 1; lower it (1% is written 0.01)",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {ratio: 1.5}}",
        "6:47: objective.masking.ratio must be less than or equal to 1, but is 1.5; lower it (1.5% is "
        "written 0.015)",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {ratio: 0}}",
        "6:47: objective.masking.ratio must be greater than 0, but is 0; raise it",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {ratio: 40, predict: 15%, copies: 150%}}",
        "6:47: objective.masking.ratio must be less than or equal to 1, but is 40; lower it (40% is written "
        "0.4)\n"
        '6:60: objective.masking.predict must be a valid number, but is the text "15%"; write 0.15\n'
        '6:73: objective.masking.copies must be a valid integer, but is the text "150%"',
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {ratio: 400, select: {kind: pmi, longest: 20}}}",
        "6:47: objective.masking.ratio must be less than or equal to 1, but is 400; lower it\n"
        "6:81: objective.masking.select.longest must be less than or equal to 8, but is 20; lower it",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {mask: 0.9, random: 0.1, keep: 0.1}}",
        "6:70: mask + random + keep must be 1, but 0.9 + 0.1 + 0.1 is 1.1; set all three",
    ),
    (
        "kind: masked_lm}",
        "kind: masked_lm, masking: {mask: 0.9}}",
        "6:46: mask + random + keep must be 1, but 0.9 + 0.1 + 0.1 is 1.1; set all three",
    ),
    (
        "kind: masked_lm",
        "kind: maskd_lm",
        '6:19: objective must be one of 8 kinds, but is "maskd_lm"; did you mean masked_lm?',
    ),
    (
        "kind: masked_lm",
        "kind: bert",
        '6:19: objective must be one of 8 kinds, but is "bert"; did you mean masked_lm?',
    ),
    (
        "kind: masked_lm",
        "kind: zzz",
        "6:19: objective must be of kind " + KINDS + ', but is "zzz"',
    ),
    (
        "kind: masked_lm",
        "kind: 3",
        "6:19: objective must be of kind " + KINDS + ", but is 3",
    ),
    (
        "objective: {kind: masked_lm}",
        "objective: masked_lm",
        '6:12: objective must be a mapping of keys, but is the text "masked_lm"; write {kind: masked_lm}',
    ),
    (
        "objective: {kind: masked_lm}",
        "objective: masked",
        '6:12: objective must be a mapping of keys, but is the text "masked"; write {kind: masked_lm}',
    ),
    ("data: {kind: language}", "data:", "4:1: data must be a mapping of keys, but is empty"),
    ("mlm: {}", "mlm:", "9:3: arms.mlm must be a mapping of keys, but is empty; write {} to change nothing"),
    (
        "question: Which objective?",
        'question: " "',
        "3:11: question must not be empty; write what the comparison is to find out, or leave it out",
    ),
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
        "11:9: an entry of seeds must be greater than or equal to 0, but is -1; raise it\n"
        '11:13: an entry of seeds must be a valid integer, but is the text "a"\n'
        "11:16: an entry of seeds must be a valid integer, but is true",
    ),
    (
        "seeds: [0, 1]",
        "seeds: [9223372036854775808]",
        "11:9: an entry of seeds must fit into 64 bits, as tables store it, but is 9223372036854775808",
    ),
    (
        "[layer_change]",
        "[layer_chang]",
        '12:12: an entry of measures must be one of 19 kinds, but is "layer_chang"; did you mean layer_change?',
    ),
    (
        "[layer_change]",
        "[wordnet]",
        "12:12: an entry of measures must be of kind layer_change, token_information, read_out, neighbours, "
        "geometry, influence, pictures, validation, minimal_pairs, probing, structural_probe, frozen_features, "
        "fine_tuning, baselines, parsing, conditional_independence, retrieval, generation or run_distance, but is "
        '"wordnet"',
    ),
    (
        "[layer_change]",
        "[layer_change, {kind: layer_change}]",
        '12:26: measures has "layer_change" twice; each may be there once',
    ),
    (
        "[layer_change]",
        "[{kind: probing, tasks: [tree_depth], effort: quick}, baselines]",
        "12:11: measures must take the same examples of tree_depth for baselines as for probing, beside which "
        "they stand; give both the same effort and examples, or let baselines name other tasks",
    ),
    (
        "[layer_change]",
        "[{kind: baselines, tasks: [sst2, blimp]}]",
        f"12:44: measures.baselines.tasks has blimp, but the measure takes {listed(WITH_ANSWERS, 'and')}; "
        "leave blimp out",
    ),
    (
        "[layer_change]",
        "layer_change",
        '12:11: measures must be a list, but is the text "layer_change"; write [layer_change]',
    ),
    (
        "[layer_change]",
        "[{tokens: 200}]",
        "12:12: an entry of measures lacks its kind, which is layer_change, token_information, read_out, "
        "neighbours, geometry, influence, pictures, validation, minimal_pairs, probing, structural_probe, "
        "frozen_features, fine_tuning, baselines, parsing, conditional_independence, retrieval, generation or "
        "run_distance",
    ),
]

FOLDER = "and start with a letter or a digit (200 characters at most), because it names a folder, but is"

NAMES = [
    (
        "[layer_change]",
        "[{kind: run_distance, arms: [mlm, clmm]}]",
        '12:45: an entry of arms must be the name of an arm, but is "clmm"; did you mean clm?',
    ),
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
        "8:3: arm mlm: objective is missing; its kind is " + KINDS,
    ),
    (
        "clm: {objective: {kind: causal_lm}}",
        "hub: {data: {kind: hub}}",
        "10:9: arm hub: data.path is missing (name on the hub, or a local folder)",
    ),
    (  # misspelt, so not missing too
        "{kind: language}",
        "{kind: files, trian: a.txt, validation: b.txt}",
        "4:21: data.trian is unknown; did you mean train?",
    ),
]

TOGETHER = [
    (
        "mlm: {}",
        "mlm: {objective: {masking: {ratio: 1e-5}}}",
        "9:38: arm mlm: objective.masking leaves nothing to predict: 0.082 tokens in a step of "
        "training.tokens_per_step = 8192; raise it",
    ),
    (  # the end of the schedule, not where it starts
        "mlm: {}",
        "mlm: {objective: {masking: {ratio: 0.15, schedule: {kind: linear, to: 1e-5}}}}",
        "9:73: arm mlm: objective.masking leaves nothing to predict: 0.082 tokens in a step of "
        "training.tokens_per_step = 8192; raise it",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {schedule: {kind: steps, at: [5], ratios: [1e-5]}}}}",
        "9:72: arm mlm: objective.masking leaves nothing to predict: 0.082 tokens in a step of "
        "training.tokens_per_step = 8192; raise it",
    ),
    (
        "mlm: {}",
        "mlm: {training: {sentences: 200000}}",
        "9:31: arm mlm: training.sentences must be at most data.train, the sentences that there are, but 200000 > "
        "100000; lower it, or raise data.train",
    ),
    (
        "mlm: {}",
        "mlm: {training: {word_order: {kind: ngrams, n: 62}}}",
        "9:50: arm mlm: training.word_order.n must be below 62 (data.max_length - 2, what a sentence holds), "
        "or no "
        "n-gram could move, but is 62; lower it",
    ),
    (
        "max_steps: 20",
        "max_steps: 20, tokens_per_step: 50",
        "7:44: training.tokens_per_step must be at least data.max_length, or the longest sentence would never "
        "fit, but 50 < 64; raise it, or lower data.max_length",
    ),
    (
        "max_steps: 20",
        "max_steps: 20, accumulate: 129",
        "7:39: training.accumulate must be at most 128, the rows of a step (training.tokens_per_step / "
        "data.max_length), but is 129; lower it, or raise training.tokens_per_step",
    ),
    (
        "max_steps: 20",
        "accumulate: 0",
        "7:24: training.accumulate must be greater than or equal to 1, but is 0; raise it",
    ),
    (
        "mlm: {}",
        "mlm: {training: {optimizer: muno}}",
        '9:31: training.optimizer must be of kind adamw, muon or sgd, but is "muno"; did you mean muon?',
    ),
    (
        "mlm: {}",
        "mlm: {training: {optimizer: {kind: muon, beta1: 0.9}}}",
        "9:44: training.optimizer.beta1 is unknown; training.optimizer of kind muon takes kind, momentum, "
        "nesterov, ns_steps and adjust_lr_fn",
    ),
    (
        "mlm: {}",
        "mlm: {training: {optimizer: {kind: muon, weight_decay: 0.1}}}",
        "9:44: training.optimizer.weight_decay is unknown; did you mean training.weight_decay?",
    ),
    (
        "mlm: {}",
        "mlm: {encoder: {attention_window: 0}}",
        "9:37: encoder.attention_window must be greater than or equal to 1, but is 0; raise it",
    ),
    (
        "mlm: {}",
        "mlm: {training: {optimizer: {kind: sgd, momentum: 0.0, nesterov: true}}}",
        "9:68: arm mlm: training.optimizer.nesterov must be false without momentum, but momentum is 0; raise "
        "momentum, or take it away",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: skip_gram}, training: {optimizer: muon}}",
        "9:61: arm mlm: training.optimizer must not be muon for skip_gram, which has no blocks whose matrices it "
        "could train; use adamw or sgd",
    ),
    (
        "mlm: {}",
        "mlm: {data: {max_length: 9000}}",
        "9:28: arm mlm: training.tokens_per_step must be at least data.max_length, or the longest sentence would "
        "never fit, but 8192 < 9000; raise it, or lower data.max_length",
    ),
    (
        "mlm: {}",
        "mlm: {encoder: {hidden_size: 30}}",
        "9:32: arm mlm: encoder.num_attention_heads must divide hidden_size, but 30 is not a multiple of 4; "
        "change one of the two",
    ),
    (
        "mlm: {}",
        "mt: {data: {kind: files, train: a.txt, validation: b.txt}, objective: {kind: translation}}",
        "9:80: arm mt: translation needs data.target, the column that holds the translations; name it, or drop "
        "the arm",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {select: cloze}}}",
        "9:39: arm mlm: cloze needs words, file or part_of_speech, which say what is in its lexicon; add one",
    ),
    (
        "mlm: {}",
        "mlm: {data: {kind: files, train: a.txt, validation: b.txt}, "
        "objective: {masking: {select: {kind: cloze, part_of_speech: [NOUN]}}}}",
        "9:123: arm mlm: part_of_speech needs treebank beside it, a CoNLL-U file or a parquet file with the "
        "columns tokens and upos, since only the built-in language knows the parts of speech of its words",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {select: {kind: label_word, probability: 1.0}}}}",
        "9:39: arm mlm: label_word hides one token a sentence; set objective.masking.count to fixed and ratio to "
        "at most 0.016 (1 / data.max_length), without schedule and predict\n"
        "9:39: arm mlm: label_word needs data.label_words, the words that are written behind sentences; name them",
    ),
    (
        "mlm: {}",
        "mlm: {data: {kind: files, train: a.tsv, validation: a.tsv, label: label, label_words: [a, b]}, training: "
        "{word_order: corpus}, objective: {masking: {select: {kind: label_word, probability: 1.0}, count: fixed, "
        "ratio: 0.001}}}",
        "9:160: arm mlm: label_word needs sentences that end with their label word; set training.input_format to "
        "sentences and training.word_order to natural",
    ),
    (
        "mlm: {}",
        "mlm: {data: {kind: files, train: a.tsv, validation: a.tsv, label_words: [a, b]}}",
        "9:75: arm mlm: data.label_words must go with label: name label, the column of the labels that they name, "
        "or leave both out",
    ),
    (
        "mlm: {}",
        "mlm: {data: {kind: files, train: a.tsv, validation: a.tsv, label: x, label_words: [so good, bad]}}",
        "9:85: arm mlm: data.label_words must be two or more different words without spaces, but is "
        "['so good', 'bad']",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {pair_loss: next_sentence}}",
        "9:32: arm mlm: next_sentence needs pairs, but training.input_format is sentences; set it to "
        "sentence_pair or segment_pair",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: translation}, training: {input_format: segment_pair}}",
        "9:66: arm mlm: training.input_format must be sentences for translation, which reads one sentence at a "
        "time, but is segment_pair; take it away, or drop the arm",
    ),
    (
        "mlm: {}",
        "mlm: {data: {kind: files, train: a.csv, validation: b.csv}, training: {input_format: doc_sentences}}",
        "9:88: arm mlm: doc_sentences needs data.document, the column that says which sentences follow each "
        "other; "
        "name it, or use sentences or full_sentences",
    ),
    (
        "mlm: {}",
        "mlm: {training: {word_order: {kind: ngrams, unit: sub_words}}, objective: {masking: {select: "
        "whole_word}}}",
        "9:96: arm mlm: whole_word needs whole words, but training.word_order moves sub-words; use uniform, "
        "or move "
        "words",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: replaced_token, generator: {shrink: 3}}}",
        "9:63: arm mlm: objective.generator.shrink must divide encoder.hidden_size, but 64 / 3 is 21.3333; "
        "choose a "
        "divisor",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: replaced_token, generator: {shrink: 6}}, encoder: {hidden_size: 96, "
        "num_attention_heads: 32}}",
        "9:63: arm mlm: objective.generator.shrink must leave a width that the generator's 5 heads divide, "
        "but 96 / 6 is 16; choose another divisor of encoder.hidden_size",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: replaced_token, generator: {shrink: 2}}, encoder: {hidden_size: 6, "
        "num_attention_heads: 2, positions: sinusoidal}}",
        "9:63: arm mlm: objective.generator.shrink must leave an even width for sinusoidal positions, but 6 / 2 "
        "is 3; choose another divisor of encoder.hidden_size",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: replaced_token, generator: {shrink: 4}}, encoder: {hidden_size: 12, "
        "num_attention_heads: 2, positions: rotary}}",
        "9:63: arm mlm: objective.generator.shrink must leave heads of an even width for rotary positions, but "
        "the generator's are 3 wide; choose another divisor of encoder.hidden_size",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: replaced_token, masking: {mask: 0.0, random: 0.0, keep: 1.0}}}",
        "9:83: arm mlm: objective.masking.keep must be below 1 for replaced_token, whose generator would copy"
        " what it sees and replace nothing; raise mask",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {window: 7}}",
        "9:29: arm mlm: objective.window must stand with objective.sees = window, but that is both_sides, "
        "which reads no window; set it, or take window away",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {random_differs: true, random: 0.0, keep: 0.2}}}",
        "9:47: arm mlm: objective.masking.random_differs must stand with random tokens, but "
        "objective.masking.random is 0; raise it, or take random_differs away",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {copies: 4, schedule: {kind: linear, to: 0.3}}}}",
        "9:39: arm mlm: objective.masking.copies must be the same whenever they come again, but "
        "objective.masking.schedule changes how much is hidden; take one of the two away",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {schedule: {kind: steps, at: [5, 500], ratios: [0.1, 0.2]}}}}",
        "9:59: arm mlm: objective.masking.schedule.at must end before the last step, but 500 is not one of "
        "the training.max_steps = 20 steps, of which the first is 0; lower it",
    ),
    (
        "mlm: {}",
        'mlm: {objective: {masking: {select: {kind: cloze, words: ["very good"]}}}}',
        "9:60: arm mlm: objective.masking.select.words must hold single words, but 'very good' has a space; "
        "give its words one by one",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {select: {kind: generic, words: [good], treebank: bank.parquet}}}}",
        "9:80: arm mlm: objective.masking.select.treebank must stand with part_of_speech, which alone is read"
        " from it; add that, or take treebank away",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {select: {kind: cloze, part_of_speech: [PROPN]}}}}",
        "9:69: arm mlm: objective.masking.select.part_of_speech has PROPN, which no word of the built-in "
        "language is; its tags are ADJ, ADP, ADV, AUX, CCONJ, DET, NOUN, NUM, PART, PRON, PUNCT, SCONJ, VERB;"
        " name one of these",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {select: {kind: cloze, part_of_speech: [NOUNS]}}}}",
        '9:70: an entry of objective.masking.select.part_of_speech must be one of 17 words, but is "NOUNS"; did '
        "you mean NOUN?",
    ),
    (
        "seeds: [0, 1]",
        "match: predictions\ngrid: {base: mlm, axes: {objective.kind: [skip_gram]}}\nseeds: [0, 1]",
        "11:8: match: predictions cannot hold for arm mlm,kind=skip_gram, which predicts pairs of words; "
        "match flops or steps, or give the arm an experiment of its own",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: replaced_token, masking: {predict: 0.3}}}",
        "9:62: arm mlm: objective.masking.predict is for masked_lm; take it away, since replaced_token "
        "predicts what "
        "it hides",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {kind: permutation_lm}, encoder: {positions: none}}",
        "9:65: arm mlm: encoder.positions must not be none for permutation_lm, whose predictions know nothing but "
        "their place; take it away, or drop the arm",
    ),
    (
        "mlm: {}",
        "mlm: {encoder: {hidden_size: 12, num_attention_heads: 4, positions: rotary}}",
        "9:71: arm mlm: positions: rotary needs heads of an even width, but hidden_size / "
        "num_attention_heads is 3; change one of the three",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {schedule: {kind: steps, at: [5, 3], ratios: [0.1, 0.2]}}}}",
        "9:59: arm mlm: objective.masking.schedule.at must rise from entry to entry, but is [5, 3]; put them "
        "in order, each once",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {schedule: {kind: steps, at: [5], ratios: [0.1, 0.2]}}}}",
        "9:72: arm mlm: objective.masking.schedule.ratios must have an entry for each of at, but 2 is not 1; "
        "give as many",
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {select: spam}}}",
        '9:39: objective.masking.select must be one of 7 kinds, but is "spam"; did you mean span?',
    ),
    (
        "mlm: {}",
        "mlm: {objective: {masking: {predict: 2}}}",
        "9:40: objective.masking.predict must be less than or equal to 1, but is 2; lower it (2% is written 0.02)",
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), KEYS + VALUES + NAMES + MISSING + TOGETHER)
def test_one_mistake_is_one_sentence(wrong, old, new, expected):
    assert wrong(edited(old, new)) == expected.split("\n")


GRID = """\
grid:
  base: mlm
  axes:
    objective.masking.ratio: [0.05, 0.15]
    encoder.norm: [post, pre]
"""

GRIDS = [
    ("base: mlm", "base: mlmm", '14:9: grid.base must be the name of an arm, but is "mlmm"; did you mean mlm?'),
    ("  base: mlm\n", "", "13:1: grid.base is missing (name of the arm to vary)"),
    (
        "masking.ratio",
        "masking.rate",
        "16:5: objective.masking.rate is no setting of mlm; did you mean objective.masking.ratio?",
    ),
    ("base: mlm", "base: clm", "16:5: objective.masking.ratio is no setting of clm"),
    (
        "encoder.norm: [post, pre]",
        "seed: [0, 1]",
        "17:5: seeds are replicates and cannot be varied; list them under seeds",
    ),
    (
        "encoder.norm: [post, pre]",
        "objective.masking: [{ratio: 1}]",
        "17:5: objective.masking overlaps with objective.masking.ratio, which the grid varies already; "
        "vary one of them",
    ),
    ("[post, pre]", "[]", "17:19: grid.axes.encoder.norm must not be empty"),
    ("[post, pre]", "post", '17:19: grid.axes.encoder.norm must be a list, but is the text "post"; write [post]'),
    ("[0.05, 0.15]", "[1, 1.0]", "16:34: grid.axes.objective.masking.ratio has 1.0 twice; each may be there once"),
    (
        "[0.05, 0.15]",
        "[0.05, 1.5]",
        "16:37: objective.masking.ratio must be less than or equal to 1, but is 1.5; lower it (1.5% is "
        "written 0.015)",
    ),
    (
        "encoder.norm: [post, pre]",
        "encoder.hidden_size: [32, 30]",
        "17:31: arm mlm,ratio=0.05,hidden_size=30: encoder.num_attention_heads must divide hidden_size, "
        "but 30 is not a multiple of 4; change one of the two",
    ),
    (
        "  axes:\n    objective.masking.ratio: [0.05, 0.15]\n    encoder.norm: [post, pre]\n",
        "  axes: {}\n",
        "13:1: grid must have axes or zip, or it generates no arm; write it as in "
        "`axes: {objective.masking.ratio: [0.15, 0.4]}`",
    ),
    (
        "  axes:\n    objective.masking.ratio: [0.05, 0.15]\n",
        "  zip:\n    objective.masking.ratio: [0.05, 0.15, 0.4]\n",
        "16:5: grid.zip must pair lists of one length, but objective.masking.ratio has 3 and encoder.norm has 2; "
        "write as many values for each, or vary them under axes",
    ),
    (
        "  axes:\n    objective.masking.ratio: [0.05, 0.15]\n    encoder.norm: [post, pre]\n",
        "  zip: [encoder.norm]\n",
        "15:8: grid.zip must be a mapping of keys, but is a list; write it as in "
        "`{encoder.hidden_size: [64, 128], encoder.num_attention_heads: [2, 4]}`",
    ),
    (
        "[post, pre]\n",
        "[post, pre]\n  exclude: {encoder.norm: pre}\n",
        "18:12: grid.exclude must be a list, but is a mapping; write it as in "
        "`[{objective.masking.ratio: 0.8, encoder.hidden_size: 64}]`",
    ),
    (
        "[post, pre]\n",
        "[post, pre]\n  exclude: [{encoder.nrm: pre}]\n",
        "18:14: the grid does not vary encoder.nrm; did you mean encoder.norm?",
    ),
    (
        "[post, pre]\n",
        "[post, pre]\n  exclude: [{training.max_steps: 3}]\n",
        "18:14: the grid does not vary training.max_steps; it varies objective.masking.ratio and encoder.norm",
    ),
    (
        "[post, pre]\n",
        "[post, pre]\n  exclude: [{objective.masking.ratio: 0.5}]\n",
        "18:39: the grid never makes objective.masking.ratio 0.5, only 0.05 and 0.15",
    ),
    (
        "[post, pre]\n",
        "[post, pre]\n  exclude: [{}]\n",
        "18:13: an entry of grid.exclude is empty, which would leave out every combination; name settings and a "
        "value of each, as in `{objective.masking.ratio: 0.8}`",
    ),
    (
        "[post, pre]\n",
        "[post, pre]\n  exclude: [{encoder.norm: pre}, {encoder.norm: post}]\n",
        "18:3: grid.exclude leaves no combination",
    ),
    (
        "    encoder.norm: [post, pre]\n",
        "  zip: {encoder.norm: [post, pre], training.max_steps: [20, 30]}\n"
        "  exclude: [{encoder.norm: pre, training.max_steps: 20}]\n",
        "18:13: an entry of grid.exclude matches nothing, since grid.zip never pairs these values",
    ),
    (
        "[0.05, 0.15]",
        f"[{', '.join(str(n / 20_000) for n in range(1, 10_002))}]",
        "13:1: grid generates 10001 x 2 arms; more than 10000 cannot be meant",
    ),
    (
        "masking.ratio: [0.05, 0.15]",
        "masking: [{ratio: 0.15}, {ratio: '0.15'}]",
        "13:1: grid generates 2 arms called mlm,masking=ratio-0.15,norm=post; write them under arms, "
        "each with a name of its own\n"
        "13:1: grid generates 2 arms called mlm,masking=ratio-0.15,norm=pre; write them under arms, "
        "each with a name of its own\n"
        '16:48: objective.masking.ratio must be a valid number, but is the text "0.15"; write 0.15',
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), GRIDS)
def test_one_mistake_in_a_grid_is_one_sentence(wrong, old, new, expected):
    assert wrong(SPEC + edited(old, new, GRID)) == expected.split("\n")


def test_a_generated_name_that_is_taken_is_refused(wrong):
    spec = edited("mlm: {}\n", "mlm: {}\n  mlm,ratio=0.15,norm=pre: {}\n") + GRID
    assert wrong(spec) == ["14:1: grid generates an arm mlm,ratio=0.15,norm=pre, but arms has one of this name"]


def test_a_generated_name_must_fit_a_folder(wrong):
    name = "m" * 190
    spec = edited("mlm: {}", f"{name}: {{}}") + edited("base: mlm", f"base: {name}", GRID)
    assert wrong(spec) == [
        "13:1: grid generates names of up to 211 characters, but a folder's name has 200 at most; "
        "vary less at once, or write such arms under arms"
    ]


@pytest.mark.parametrize(
    ("measure", "at", "expected"),
    [
        (
            "{kind: minimal_pairs, tasks: [blimp, sst2, cola]}",
            "sst2",
            "measures.minimal_pairs.tasks has sst2 and cola, but the measure takes blimp, lm_syneval and "
            "language_minimal_pairs; leave sst2 and cola out",
        ),
        (
            "{kind: minimal_pairs, tasks: [blimp]}",
            "blimp",
            "an entry of tasks must suit the text of every arm, but blimp is of files and the text of mlm of the "
            "built-in language; take language_minimal_pairs",
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
    [
        ("parsing", f"data of kind files has no trees; {TREEBANK}, or leave parsing out"),
        (
            "{kind: structural_probe, effort: quick}",
            f"data of kind files has no trees; {TREEBANK}, or leave structural_probe out",
        ),
        (
            "{kind: influence, groups: [part_of_speech]}",
            f"groups has part_of_speech, but data of kind files has none; {TREEBANK}, or leave it out",
        ),
    ],
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


def test_a_task_of_the_built_in_language_is_refused_where_one_arm_reads_files(wrong):
    spec = edited("[layer_change]", "[{kind: minimal_pairs, tasks: [language_minimal_pairs]}]")
    (problem,) = wrong(spec.replace("clm: {", "clm: {data: {kind: files, train: a, validation: b}, "))
    assert problem == (
        "12:42: an entry of tasks must suit the text of every arm, but language_minimal_pairs is of the built-in "
        "language and the text of clm of files; take blimp or lm_syneval"
    )


@pytest.mark.parametrize("settings", TASK_SETTINGS, ids=lambda settings: settings.__name__)
def test_a_spec_may_name_every_task_that_a_measure_takes_by_itself(settings):
    """And others: probes read classes of any task, heads learn what probes ask for."""
    kind = get_args(settings.model_fields["kind"].annotation)[0]
    for built_in in (True, False):
        settings.model_validate({"kind": kind, "tasks": chosen(settings.suits, built_in=built_in)})
        taken = [name for name, task in TASKS.items() if settings.takes(task)]
        settings.model_validate({"kind": kind, "tasks": taken})


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


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", "1:1: this file is empty; it starts with a name, as in `name: my-experiment`"),
        ("# nothing\n", "1:1: this file is empty; it starts with a name, as in `name: my-experiment`"),
        ("- name: x\n", "1:1: this file must hold keys, as in `name: my-experiment`, but is a list"),
        ("name", "1:1: this file must hold keys, as in `name: my-experiment`, but is a single value"),
        (SPEC + "---\nname: y\n", "13:1: a second document starts here; a file holds one, so drop this `---`"),
        (
            "%YAML 1.1\n---\nname: x\n",
            "1:1: this file asks for YAML 1.1, but is read as YAML 1.2; drop its %YAML line",
        ),
        (
            "# a\n%YAML 1.3\n---\nname: x\n",
            "2:1: this file asks for YAML 1.3, but is read as YAML 1.2; drop its %YAML line",
        ),
        (
            "name: a: b",
            "1:8: a colon is not expected here; check the indentation, and quote text with ': ' in it",
        ),
        ("arms:\n\tmlm: {}", "2:1: a tab cannot indent YAML; use spaces"),
        (
            "data: {kind: language\nseeds: [0]",
            "2:6: a comma or } is missing before this; its bracket was opened on line 1",
        ),
        ("seeds: [0, 1", "1:13: a comma or ] is missing before this; its bracket was opened on line 1"),
        ("arms:\n  a: {}\n b: {}", "3:2: this does not continue what started on line 1; check the indentation"),
        ("name: 'x", "1:9: the quote opened on line 1 is never closed"),
        ("name: x\nversion", "2:8: a colon is missing after this key; write `key: value`"),
        ("name: @x", "1:7: text cannot start with @; put it in quotes"),
        (r'name: "a\qb"', r"1:10: \q means nothing in double quotes; use single quotes, or \\ for \ "[:-1]),
        (r'name: "\UFFFFFFFF"', r"1:8: this escape names no character; the last one is \U0010FFFF"),
        ("name: }", "1:7: a value is missing here"),
        ("name: x\0", "1:8: the character U+0000 is not allowed in YAML"),
        (b"name: x\nquestion: caf\xe9\n", "2:14: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        ("name: x".encode("utf-16"), "1:1: byte 0xff is not UTF-8; save the file as UTF-8"),
        ("a: " + "[" * 100_000, "1:36: this is nested more than 32 levels deep; a spec needs about seven"),
        ("# " + "x" * 2**18, "1:1: this file is larger than 256 KiB; a spec is a page of text"),
    ],
)
def test_what_is_no_yaml_mapping_is_one_sentence(wrong, spec, expected):
    assert wrong(spec) == [expected]


def test_nothing_is_constructed_and_nothing_expands(wrong, tmp_path):
    spec = edited("question: Which objective?", f"question: !!python/object/apply:os.mkdir [{tmp_path}/made]")
    spec = spec.replace("seeds: [0, 1]", "seeds: !!set {0, 1}").replace("mlm: {}", "mlm: &arm {}\n  copy: *arm")
    assert wrong(spec) == [
        "3:11: tags such as !!python/object/apply:os.mkdir are not allowed; write the plain value",
        "9:8: anchors such as &arm are not allowed; write the value where it is used",
        "10:9: aliases such as *arm are not allowed; write the value out",
        "12:8: tags such as !!set are not allowed; write the plain value",
    ]
    assert not (tmp_path / "made").exists()


def test_aliases_that_would_grow_without_end_are_refused(wrong):
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 12))
    problems = wrong(f"name: x\nl0: &l0 [lol]\n{levels}")
    assert len([problem for problem in problems if "aliases such as" in problem]) == 99


def test_a_file_that_is_not_there_has_a_neighbour_that_was_meant(tmp_path):
    (tmp_path / "smoke.yaml").write_text(SPEC)
    with pytest.raises(SpecError) as caught:
        load.load(tmp_path / "smoke.yml")
    assert str(caught.value) == (
        f"{tmp_path}/smoke.yml:1:1: this file does not exist; did you mean {tmp_path}/smoke.yaml?"
    )


def test_a_folder_is_no_spec(tmp_path):
    with pytest.raises(SpecError) as caught:
        load.load(tmp_path)
    assert str(caught.value) == f"{tmp_path}:1:1: this is a folder; name one file in it"
