"""Each wrong value of a setting, and each wrong name in a spec, is one sentence, in the right place."""

import pytest

from ablations.tasks.datasets import TASKS
from ablations.wording import listed
from lightning_modules.config.objectives import OBJECTIVES
from tests.support.wrong_specs import KINDS, cases, edited

WITH_ANSWERS = [name for name, task in TASKS.items() if task.kind != "minimal_pairs"]

VALUES = {
    "hidden_size: 64": {
        "hidden_size: wide": '5:24: encoder.hidden_size must be a valid integer, but is the text "wide"',
        'hidden_size: "64"': ('5:24: encoder.hidden_size must be a valid integer, but is the text "64"; write 64'),
        "hidden_size: 1_024": (
            '5:24: encoder.hidden_size must be a valid integer, but is the text "1_024"; write 1024'
        ),
        "hidden_size: 64.5": "5:24: encoder.hidden_size must be a valid integer, but is 64.5",
        "hidden_size: 1000001": (
            "5:24: encoder.hidden_size must be less than or equal to 1000000, but is 1000001; lower it"
        ),
        "hidden_size: 64, num_hidden_layers: 1000000000000": (
            "5:47: encoder.num_hidden_layers must be less than or equal to 10000, but is 1000000000000; lower it"
        ),
        "hidden_size: 64, dropout: 1": (
            "5:37: encoder.dropout must be less than 1, but is 1; lower it (1% is written 0.01)"
        ),
    },
    "max_steps: 20": {
        "max_steps: 1e3": "7:23: training.max_steps must be a valid integer, but is 1000.0; write 1000",
        "max_steps: 2147483648": (
            "7:23: training.max_steps must be less than 2147483648, but is 2147483648; lower it"
        ),
        "max_steps: 20, tokens_per_step: 2147483648": (
            "7:44: training.tokens_per_step must be less than 2147483648, but is 2147483648; lower it"
        ),
        "learning_rate: 1e308": (
            "7:27: training.learning_rate must be less than or equal to 1000000, but is 1e+308; lower it"
        ),
        "max_steps: 20, adam_epsilon: 1e308": (
            "7:41: training.adam_epsilon must be less than or equal to 1000000, but is 1e+308; lower it"
        ),
        "max_steps: yes": '7:23: training.max_steps must be a valid integer, but is the text "yes"',
        "max_steps: true": "7:23: training.max_steps must be a valid integer, but is true",
        "max_steps: -1": "7:23: training.max_steps must be greater than or equal to 0, but is -1; raise it",
        "max_steps: ~": ("7:23: training.max_steps must be a valid integer, but is empty; leave it out for 1000"),
        "max_steps: 20, gradient_clip_val: ~": (
            "7:46: training.gradient_clip_val must be a valid number, but is empty; leave it out for 1"
        ),
        "learning_rate: .nan": "7:27: training.learning_rate must be a finite number, but is nan",
        "learning_rate: 1e999": "7:27: training.learning_rate must be a finite number, but is inf",
        "learning_rate: high": '7:27: training.learning_rate must be a valid number, but is the text "high"',
        "learning_rate: 0": "7:27: training.learning_rate must be greater than 0, but is 0; raise it",
        "precision: bf16": (
            '7:23: training.precision must be 32-true or bf16-mixed, but is "bf16"; did you mean bf16-mixed?'
        ),
        "keep_checkpoints: some": (
            '7:30: training.keep_checkpoints must be a valid integer or all, but is "some"'
        ),
        "keep_checkpoints: 0": ("7:30: training.keep_checkpoints must be 'all' or at least 1, but is 0; raise it"),
        "loggers: [tensorboard, wandv]": (
            '7:35: an entry of training.loggers must be tensorboard or wandb, but is "wandv"; did you mean wandb?'
        ),
        "loggers: [wandb, wandb]": (
            "7:21: training.loggers must name each logger once, but is ['wandb', 'wandb']; remove the repeated one"
        ),
        "max_steps: 20, warmup_steps: 30": (
            "7:41: training.warmup_steps must not exceed max_steps, but 30 > 20; lower it"
        ),
    },
    "num_attention_heads: 4": {
        "num_attention_heads: 5": (
            "5:49: encoder.num_attention_heads must divide hidden_size, but hidden_size = 64 is not a multiple of "
            "5; change one of the two"
        ),
    },
    "{hidden_size: 64, num_attention_heads: 4}": {
        "{hidden_size: 30}": (
            "5:24: encoder.num_attention_heads must divide hidden_size, but hidden_size = 30 is not a multiple of "
            "4; change one of the two"
        ),
    },
    "kind: masked_lm}": {
        "kind: masked_lm, masking: {ratio: 1.5}}": (
            "6:47: objective.masking.ratio must be less than or equal to 1, but is 1.5; lower it (1.5% is written "
            "0.015)"
        ),
        "kind: masked_lm, masking: {ratio: 0}}": (
            "6:47: objective.masking.ratio must be greater than 0, but is 0; raise it"
        ),
        "kind: masked_lm, masking: {ratio: 40, predict: 15%, copies: 150%}}": (
            "6:47: objective.masking.ratio must be less than or equal to 1, but is 40; lower it (40% is written "
            '0.4)\n6:60: objective.masking.predict must be a valid number, but is the text "15%"; write '
            '0.15\n6:73: objective.masking.copies must be a valid integer, but is the text "150%"'
        ),
        "kind: masked_lm, masking: {ratio: 400, select: {kind: pmi, longest: 20}}}": (
            "6:47: objective.masking.ratio must be less than or equal to 1, but is 400; lower it\n6:81: "
            "objective.masking.select.longest must be less than or equal to 8, but is 20; lower it"
        ),
        "kind: masked_lm, masking: {mask: 0.9, random: 0.1, keep: 0.1}}": (
            "6:70: mask + random + keep must be 1, but 0.9 + 0.1 + 0.1 is 1.1; set all three"
        ),
        "kind: masked_lm, masking: {mask: 0.9}}": (
            "6:46: mask + random + keep must be 1, but 0.9 + 0.1 + 0.1 is 1.1; set all three"
        ),
    },
    "kind: masked_lm": {
        "kind: maskd_lm": (
            f'6:19: objective must be one of {len(OBJECTIVES)} kinds, but is "maskd_lm"; did you mean masked_lm?'
        ),
        "kind: bert": (
            f'6:19: objective must be one of {len(OBJECTIVES)} kinds, but is "bert"; did you mean masked_lm?'
        ),
        "kind: zzz": "6:19: objective must be of kind " + KINDS + ', but is "zzz"',
        "kind: 3": "6:19: objective must be of kind " + KINDS + ", but is 3",
    },
    "objective: {kind: masked_lm}": {
        "objective: masked_lm": (
            '6:12: objective must be a mapping of keys, but is the text "masked_lm"; write {kind: masked_lm}'
        ),
        "objective: masked": (
            '6:12: objective must be a mapping of keys, but is the text "masked"; write {kind: masked_lm}'
        ),
        "objective: {kind: masked_lm}\ninit:": (
            "7:1: init must be a mapping of keys, but is empty; write {} to change nothing"
        ),
    },
    "data: {kind: language}": {
        "data:": "4:1: data must be a mapping of keys, but is empty",
    },
    "mlm: {}": {
        # A run may lack `init`, so that only the specification refuses an empty one.
        "mlm: {init: }": (
            "9:9: arms.mlm.init must be a mapping of keys, but is empty; write {} to change nothing"
        ),
        "mlm:": "9:3: arms.mlm must be a mapping of keys, but is empty; write {} to change nothing",
    },
    "question: Which objective?": {
        'question: " "': (
            "3:11: question must not be empty; write the question of the comparison, or leave it out"
        ),
        "question: 42": "3:11: question must be text, but is 42; put it in quotes",
    },
    "kind: language": {
        "kind: files, train: [a.txt, 3], validation: ''": (
            "4:36: an entry of data.train must be text, but is 3; put it in quotes\n4:52: an entry of "
            "data.validation must not be empty"
        ),
        "kind: files, train: a.txt, validation: 60": (
            "4:47: data.validation must be a list, but is 60; write names of files, such as [validation.txt]"
        ),
    },
    "seeds: [0, 1]": {
        "seeds: [0, 1, 0]": "11:15: seeds has 0 twice; give it once",
        "seeds: []": "11:8: seeds must not be empty",
        "seeds: 3": ("11:8: seeds must be a list, but is 3; write [0, 1, 2] for 3 seeds, or [3] for seed 3 alone"),
        "seeds: 42": "11:8: seeds must be a list, but is 42; write [42]",
        "seeds: [-1, a, true]": (
            "11:9: an entry of seeds must be greater than or equal to 0, but is -1; raise it\n11:13: an entry of "
            'seeds must be a valid integer, but is the text "a"\n11:16: an entry of seeds must be a valid '
            "integer, but is true"
        ),
        "seeds: [9223372036854775808]": (
            "11:9: an entry of seeds must fit into 64 bits, as tables store it, but is 9223372036854775808"
        ),
    },
    "[layer_change]": {
        "[layer_chang]": (
            '12:12: an entry of measures must be one of 19 kinds, but is "layer_chang"; did you mean layer_change?'
        ),
        "[wordnet]": (
            "12:12: an entry of measures must be of kind layer_change, token_information, read_out, neighbours, "
            "geometry, influence, pictures, validation, minimal_pairs, probing, structural_probe, "
            "frozen_features, fine_tuning, baselines, parsing, conditional_independence, retrieval, generation or "
            'run_distance, but is "wordnet"'
        ),
        "[layer_change, {kind: layer_change}]": (
            '12:26: measures has "layer_change" twice; give it once, and write other settings, such as another '
            "treebank, into another file"
        ),
        "[{kind: probing, tasks: [tree_depth], effort: quick}, baselines]": (
            "12:11: measures must use the same examples of tree_depth for baselines as for probing, because they "
            "are compared; set `effort: quick` in baselines too, or name other tasks for baselines"
        ),
        "[{kind: frozen_features, tasks: [mrpc]}, {kind: baselines, tasks: [mrpc], examples: 300}]": (
            "12:11: measures must use the same examples of mrpc for baselines as for frozen_features, because "
            "they are compared; set `examples: 300` in frozen_features too, or name other tasks for baselines"
        ),
        "[{kind: baselines, tasks: [mrpc], effort: quick}, {kind: probing, tasks: [mrpc], effort: quick}]": (
            "12:11: measures must use the same examples of mrpc for baselines as for probing, because they are "
            "compared; their effort and examples are the same, but probing takes other examples by itself; name "
            "other tasks for baselines or for probing"
        ),
        "[{kind: baselines, tasks: [sst2, blimp]}]": (
            "12:44: measures.baselines.tasks has blimp, but this measure can use only "
            f"{listed(WITH_ANSWERS, 'and')}; leave blimp out"
        ),
        "layer_change": '12:11: measures must be a list, but is the text "layer_change"; write [layer_change]',
        "[{tokens: 200}]": (
            "12:12: an entry of measures lacks its kind, which is layer_change, token_information, read_out, "
            "neighbours, geometry, influence, pictures, validation, minimal_pairs, probing, structural_probe, "
            "frozen_features, fine_tuning, baselines, parsing, conditional_independence, retrieval, generation or "
            "run_distance"
        ),
    },
}

OF_ARM = "letters a-z and A-Z, digits and ._+=,-"
FOLDER = "and start with a letter or a digit (200 characters at most), but is"

NAMES = {
    "[layer_change]": {
        "[{kind: run_distance, arms: [mlm, clmm]}]": (
            '12:45: an entry of arms must be the name of an arm, but is "clmm"; did you mean clm?'
        ),
    },
    "name: trial": {
        "name: ../trial": f'1:7: name must consist of letters a-z, digits and ._- {FOLDER} "../trial"',
        "name: runs": (
            "1:7: name must not be runs, because the output root has a folder of this name for all runs; choose "
            "another name"
        ),
        "name: tokens": (
            "1:7: name must not be tokens, because the output root has a folder of this name for all tokens; "
            "choose another name"
        ),
    },
    "mlm: {}": {
        "../mlm: {}": f'9:3: a name in arms must consist of {OF_ARM} {FOLDER} "../mlm"',
        "a b: {}": f'9:3: a name in arms must consist of {OF_ARM} {FOLDER} "a b"',
        "größe: {}": f'9:3: a name in arms must consist of {OF_ARM} {FOLDER} "größe"',
    },
    "measures: [layer_change]": {
        "claims: closer.yaml": '12:9: claims must be a list, but is the text "closer.yaml"; write [closer]',
        "claims: [../secret]": (
            f'12:10: an entry of claims must consist of letters a-z, digits and ._- {FOLDER} "../secret"'
        ),
    },
}


@pytest.mark.parametrize(("old", "new", "expected"), cases(VALUES) + cases(NAMES))
def test_one_mistake_is_one_sentence(wrong, old, new, expected):
    assert wrong(edited(old, new)) == expected.split("\n")
