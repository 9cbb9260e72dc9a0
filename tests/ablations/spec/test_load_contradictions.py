"""Values of a spec that are valid alone and impossible together are one sentence, at one of them."""

import pytest

from lightning_modules.config import contradictions
from tests.support.tiny_text import settings
from tests.support.wrong_specs import cases, edited

TOGETHER = {
    "mlm: {}": {
        "mlm: {objective: {masking: {ratio: 1e-5}}}": (
            "9:38: arm mlm: objective.masking leaves less than one token to predict: 0.082 tokens in a step "
            "(training.tokens_per_step = 8192); raise it"
        ),
        # the end of the schedule, not where it starts
        "mlm: {objective: {masking: {ratio: 0.15, schedule: {kind: linear, to: 1e-5}}}}": (
            "9:73: arm mlm: objective.masking leaves less than one token to predict: 0.082 tokens in a step "
            "(training.tokens_per_step = 8192); raise it"
        ),
        "mlm: {objective: {masking: {schedule: {kind: steps, at: [5], ratios: [1e-5]}}}}": (
            "9:72: arm mlm: objective.masking leaves less than one token to predict: 0.082 tokens in a step "
            "(training.tokens_per_step = 8192); raise it"
        ),
        "mlm: {training: {sentences: 200000}}": (
            "9:31: arm mlm: training.sentences must be at most the number of sentences (data.train), but 200000 > "
            "100000; lower it, or raise data.train"
        ),
        "mlm: {training: {word_order: {kind: ngrams, n: 62}}}": (
            "9:50: arm mlm: training.word_order.n must be below 62 (data.max_length - 2, the tokens of the "
            "longest sentence), because otherwise no n-gram can move, but is 62; lower it"
        ),
        "mlm: {training: {optimizer: muno}}": (
            '9:31: training.optimizer must be of kind adamw, muon or sgd, but is "muno"; did you mean muon?'
        ),
        "mlm: {training: {optimizer: {kind: muon, beta1: 0.9}}}": (
            "9:44: training.optimizer.beta1 is unknown; training.optimizer of kind muon has the settings kind, "
            "momentum, nesterov, ns_steps and adjust_lr_fn"
        ),
        "mlm: {training: {optimizer: {kind: muon, weight_decay: 0.1}}}": (
            "9:44: training.optimizer.weight_decay is unknown; did you mean training.weight_decay?"
        ),
        "mlm: {objective: {kind: masked_lm, masking: {select: span, length: 3}}}": (
            "9:62: objective.masking.length is unknown; objective.masking has the settings ratio, schedule, mask, "
            "random, keep, random_differs, select, count, copies and predict"
        ),
        "mlm: {encoder: {attention_window: 0}}": (
            "9:37: encoder.attention_window must be greater than or equal to 1, but is 0; raise it"
        ),
        "mlm: {training: {optimizer: {kind: sgd, momentum: 0.0, nesterov: true}}}": (
            "9:68: arm mlm: training.optimizer.nesterov must be false without momentum, but momentum is 0; raise "
            "momentum, or remove nesterov"
        ),
        "mlm: {objective: {kind: skip_gram}, training: {optimizer: muon}}": (
            "9:61: arm mlm: training.optimizer must not be muon for skip_gram, because muon trains the matrices "
            "of blocks and skip_gram has no blocks; use adamw or sgd"
        ),
        "mlm: {data: {max_length: 9000}}": (
            "9:28: arm mlm: training.tokens_per_step must be at least data.max_length, so that the longest "
            "sentence fits, but 8192 < 9000; raise it, or lower data.max_length"
        ),
        "mlm: {encoder: {hidden_size: 30}}": (
            "9:32: arm mlm: encoder.num_attention_heads must divide hidden_size, but hidden_size = 30 is not a "
            "multiple of 4; change one of the two"
        ),
        "mt: {data: {kind: files, train: a.txt, validation: b.txt}, objective: {kind: translation}}": (
            "9:80: arm mt: translation needs data.target, the column of the translations; set it, or remove the "
            "arm"
        ),
        "mlm: {objective: {masking: {select: cloze}}}": (
            "9:39: arm mlm: cloze needs a lexicon; add words, file or part_of_speech"
        ),
        (
            "mlm: {data: {kind: files, train: a.txt, validation: b.txt}, objective: {masking: {select: {kind: "
            "cloze, part_of_speech: [NOUN]}}}}"
        ): (
            "9:123: arm mlm: part_of_speech needs treebank, because only the built-in language has parts of "
            "speech; set treebank to a CoNLL-U file, or to a parquet file with the columns tokens and upos"
        ),
        "mlm: {objective: {masking: {select: {kind: label_word, probability: 1.0}}}}": (
            "9:39: arm mlm: label_word hides one token in each sentence; set objective.masking.count to fixed and "
            "ratio to at most 0.016 (1 / data.max_length), without schedule and predict\n9:39: arm mlm: "
            "label_word needs data.label_words, the words that are written after sentences; set data.label_words"
        ),
        (
            "mlm: {data: {kind: files, train: a.tsv, validation: a.tsv, label: label, label_words: [a, b]}, "
            "training: {word_order: corpus}, objective: {masking: {select: {kind: label_word, probability: 1.0}, "
            "count: fixed, ratio: 0.001}}}"
        ): (
            "9:160: arm mlm: label_word needs sentences that end with their label word; set training.input_format "
            "to sentences and training.word_order to natural"
        ),
        "mlm: {data: {kind: files, train: a.tsv, validation: a.tsv, label_words: [a, b]}}": (
            "9:75: arm mlm: data.label_words must come together with label; set label, the column of the labels, "
            "or leave both out"
        ),
        "mlm: {data: {kind: files, train: a.tsv, validation: a.tsv, label: x, label_words: [so good, bad]}}": (
            "9:85: arm mlm: data.label_words must be two or more different words without spaces, but is ['so "
            "good', 'bad']"
        ),
        "mlm: {objective: {pair_loss: next_sentence}}": (
            "9:32: arm mlm: next_sentence needs sentence pairs, but training.input_format is sentences; set "
            "training.input_format to sentence_pair or segment_pair"
        ),
        "mlm: {objective: {kind: translation}, training: {input_format: segment_pair}}": (
            "9:66: arm mlm: training.input_format must be sentences for translation, which reads one sentence at "
            "a time, but is segment_pair; remove the setting, or remove the arm"
        ),
        "mlm: {data: {kind: files, train: a.csv, validation: b.csv}, training: {input_format: doc_sentences}}": (
            "9:88: arm mlm: doc_sentences needs data.document, the column whose value is the same for all "
            "sentences of a document; set it, or use sentences or full_sentences"
        ),
        (
            "mlm: {data: {kind: files, train: a.tsv, validation: a.tsv, document: d, half: first}, training: "
            "{input_format: segment_pair}}"
        ): (
            "9:114: arm mlm: segment_pair joins sentences that follow each other, but data.half = first leaves "
            "out about every second one; set training.input_format to sentences, or remove data.half"
        ),
        (
            "mlm: {training: {word_order: {kind: ngrams, unit: sub_words}}, objective: {masking: {select: "
            "whole_word}}}"
        ): (
            "9:96: arm mlm: whole_word needs whole words, but training.word_order moves sub-words; use uniform, "
            "or move words"
        ),
        "mlm: {objective: {kind: replaced_token, generator: {shrink: 3}}}": (
            "9:63: arm mlm: objective.generator.shrink must divide encoder.hidden_size, but 64 / 3 is 21.3333; "
            "choose a divisor"
        ),
        (
            "mlm: {objective: {kind: replaced_token, generator: {shrink: 6}}, encoder: {hidden_size: 96, "
            "num_attention_heads: 32}}"
        ): (
            "9:63: arm mlm: objective.generator.shrink must leave a width that the generator's 5 heads divide, "
            "but 96 / 6 is 16; choose another divisor of encoder.hidden_size"
        ),
        (
            "mlm: {objective: {kind: replaced_token, generator: {shrink: 4}}, encoder: {hidden_size: 12, "
            "num_attention_heads: 2, positions: rotary}}"
        ): (
            "9:63: arm mlm: objective.generator.shrink must leave heads of an even width for rotary positions, "
            "but the width of the generator's heads is 3; choose another divisor of encoder.hidden_size"
        ),
        "mlm: {objective: {kind: replaced_token, masking: {mask: 0.0, random: 0.0, keep: 1.0}}}": (
            "9:83: arm mlm: objective.masking.keep must be below 1 for replaced_token, because with keep = 1 the "
            "generator sees every token and replaces nothing; raise mask"
        ),
        "mlm: {objective: {window: 7}}": (
            "9:29: arm mlm: objective.window must be left out unless objective.sees is window, but objective.sees "
            "is both_sides; change objective.sees, or remove window"
        ),
        "mlm: {objective: {masking: {random_differs: true, random: 0.0, keep: 0.2}}}": (
            "9:47: arm mlm: objective.masking.random_differs must be left out without random tokens, but "
            "objective.masking.random is 0; raise objective.masking.random, or remove random_differs"
        ),
        "mlm: {objective: {masking: {copies: 4, schedule: {kind: linear, to: 0.3}}}}": (
            "9:39: arm mlm: objective.masking.copies must repeat the same masks, but objective.masking.schedule "
            "changes how many tokens are hidden; remove one of the two"
        ),
        "mlm: {objective: {masking: {schedule: {kind: steps, at: [5, 500], ratios: [0.1, 0.2]}}}}": (
            "9:59: arm mlm: objective.masking.schedule.at must be below training.max_steps = 20 (the first step "
            "has the number 0), but has 500; lower it"
        ),
        'mlm: {objective: {masking: {select: {kind: cloze, words: ["very good"]}}}}': (
            "9:60: arm mlm: objective.masking.select.words must have single words, but 'very good' has a space; "
            "write each word as an entry of its own"
        ),
        "mlm: {objective: {masking: {select: {kind: generic, words: [good], treebank: bank.parquet}}}}": (
            "9:80: arm mlm: objective.masking.select.treebank must come together with part_of_speech, which is "
            "read from it; add part_of_speech, or remove treebank"
        ),
        "mlm: {objective: {masking: {select: {kind: cloze, part_of_speech: [PROPN]}}}}": (
            "9:69: arm mlm: objective.masking.select.part_of_speech has PROPN, but no word of the built-in "
            "language has this tag; name one of ADJ, ADP, ADV, AUX, CCONJ, DET, NOUN, NUM, PART, PRON, PUNCT, "
            "SCONJ, VERB"
        ),
        "mlm: {objective: {masking: {select: {kind: cloze, part_of_speech: [NOUNS]}}}}": (
            '9:70: an entry of objective.masking.select.part_of_speech must be one of 17 words, but is "NOUNS"; '
            "did you mean NOUN?"
        ),
        "mlm: {objective: {kind: replaced_token, masking: {predict: 0.3}}}": (
            "9:62: arm mlm: objective.masking.predict works only with masked_lm, because replaced_token always "
            "predicts the hidden tokens; remove it"
        ),
        "mlm: {objective: {kind: permutation_lm}, encoder: {positions: none}}": (
            "9:65: arm mlm: encoder.positions must not be none for permutation_lm, because its predictions depend "
            "only on positions; remove this setting, or remove the arm"
        ),
        "mlm: {encoder: {hidden_size: 12, num_attention_heads: 4, positions: rotary}}": (
            "9:71: arm mlm: positions: rotary needs heads of an even width, but hidden_size / num_attention_heads "
            "is 3; change one of the three"
        ),
        "mlm: {objective: {masking: {schedule: {kind: steps, at: [5, 3], ratios: [0.1, 0.2]}}}}": (
            "9:59: arm mlm: objective.masking.schedule.at must rise from entry to entry, but is [5, 3]; put the "
            "entries in order, each once"
        ),
        "mlm: {objective: {masking: {schedule: {kind: steps, at: [5], ratios: [0.1, 0.2]}}}}": (
            "9:72: arm mlm: objective.masking.schedule.ratios must have one entry for each entry of at, but has 2 "
            "and at has 1; give equally many"
        ),
        "mlm: {objective: {masking: {select: spam}}}": (
            '9:39: objective.masking.select must be one of 7 kinds, but is "spam"; did you mean span?'
        ),
        "mlm: {objective: {masking: {predict: 2}}}": (
            "9:40: objective.masking.predict must be less than or equal to 1, but is 2; lower it (2% is written "
            "0.02)"
        ),
    },
    "max_steps: 20": {
        "max_steps: 20, tokens_per_step: 50": (
            "7:44: training.tokens_per_step must be at least data.max_length, so that the longest sentence fits, "
            "but 50 < 64; raise it, or lower data.max_length"
        ),
        "max_steps: 20, accumulate: 129": (
            "7:39: training.accumulate must be at most 128, the rows of a step (training.tokens_per_step / "
            "data.max_length), but is 129; lower it, or raise training.tokens_per_step"
        ),
        "accumulate: 0": "7:24: training.accumulate must be greater than or equal to 1, but is 0; raise it",
    },
    "seeds: [0, 1]": {
        "match: predictions\ngrid: {base: mlm, axes: {objective.kind: [skip_gram]}}\nseeds: [0, 1]": (
            "11:8: match: predictions is not possible for arm mlm,kind=skip_gram, because it predicts pairs of "
            "words; write match: flops or match: steps, or give the arm an experiment of its own"
        ),
    },
}


@pytest.mark.parametrize(("old", "new", "expected"), cases(TOGETHER))
def test_one_mistake_is_one_sentence(wrong, old, new, expected):
    assert wrong(edited(old, new)) == expected.split("\n")


@pytest.mark.parametrize("train", ["a.txt", "A.TXT", "a.Txt.GZ", ["a.txt.gz", "B.txt"]])
def test_plain_text_has_documents_however_its_ending_is_written(train):
    run = settings(data={"train": train, "target": None}, training={"input_format": "doc_sentences"})
    assert contradictions(run) == []
