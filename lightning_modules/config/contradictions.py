"""Rules between settings: values that are valid alone and impossible together."""

import math
from collections.abc import Iterator
from typing import Literal

from lightning_modules.config.data import ColumnSettings, Data, FilesData, LanguageData, is_plain_text
from lightning_modules.config.encoder import EncoderSettings
from lightning_modules.config.masking import (
    LANGUAGE_TAGS,
    Cloze,
    GenericWords,
    LabelWord,
    MaskingSettings,
    Steps,
    Uniform,
)
from lightning_modules.config.objectives import (
    GeneratorSettings,
    MaskedLMSettings,
    NaiveBidirectionalLMSettings,
    PermutationLMSettings,
    ReplacedTokenSettings,
    SkipGramSettings,
    TranslationSettings,
)
from lightning_modules.config.run import RunSettings
from lightning_modules.config.training import PAIR_FORMATS, InputFormat, Natural, NGrams
from lightning_modules.plugins import Plugin, failure

Contradiction = tuple[tuple[str, ...], str]


def contradictions(run: RunSettings) -> list[Contradiction]:
    """Return every contradiction between settings as (path, sentence); an empty list if there is none."""
    pairs = [*_text(run), *_word_order(run), *_input_format(run), *_objective(run), *_optimizer(run)]
    masking = getattr(run.objective, "masking", None)
    return [*pairs, *_masking(run, masking)] if masking else pairs


def _text(run: RunSettings) -> Iterator[Contradiction]:
    if run.training.max_steps and run.training.tokens_per_step < run.data.max_length:
        yield (
            ("training", "tokens_per_step"),
            "must be at least data.max_length, so that the longest sentence fits, but "
            f"{run.training.tokens_per_step} < {run.data.max_length}; raise it, or lower data.max_length",
        )
    rows = run.training.tokens_per_step // run.data.max_length
    if run.training.max_steps and run.training.accumulate > max(rows, 1):
        yield (
            ("training", "accumulate"),
            f"must be at most {max(rows, 1)}, the rows of a step (training.tokens_per_step / data.max_length), "
            f"but is {run.training.accumulate}; lower it, or raise training.tokens_per_step",
        )
    sentences = run.training.sentences
    if sentences is not None and isinstance(run.data, LanguageData) and sentences > run.data.train:
        yield (
            ("training", "sentences"),
            f"must be at most the number of sentences (data.train), but {sentences} > {run.data.train}; lower "
            "it, or raise data.train",
        )
    translates = isinstance(run.objective, TranslationSettings)
    if translates and isinstance(run.data, ColumnSettings) and not run.data.target:
        yield (
            ("objective", "kind"),
            "translation needs data.target, the column of the translations; set it, or remove the arm",
        )


def _word_order(run: RunSettings) -> Iterator[Contradiction]:
    order, longest = run.training.word_order, run.data.max_length - 2  # START and END
    if isinstance(order, NGrams) and order.n >= longest:
        yield (
            ("training", "word_order", "n"),
            f"must be below {longest} (data.max_length - 2, the tokens of the longest sentence), because "
            f"otherwise no n-gram can move, but is {order.n}; lower it",
        )


def _input_format(run: RunSettings) -> Iterator[Contradiction]:
    name = run.training.input_format
    if name == "sentences":
        return
    if run.objective.reads_sentences_alone:
        yield (
            ("training", "input_format"),
            f"must be sentences for {run.objective.kind}, which reads one sentence at a time, but is {name}; "
            "remove the setting, or remove the arm",
        )
    data = run.data
    if isinstance(data, ColumnSettings) and data.half is not None:
        yield (
            ("training", "input_format"),
            f"{name} joins sentences that follow each other, but data.half = {data.half} leaves out about every "
            "second one; set training.input_format to sentences, or remove data.half",
        )
    if lack := lacks_documents(data, name, "train"):
        yield ("training", "input_format"), lack


def lacks_documents(data: Data, input_format: InputFormat, split: Literal["train", "validation"]) -> str | None:
    """Return what an input format needs to know where documents of a text end; None if it needs no more."""
    if input_format in ("sentences", "full_sentences") or not isinstance(data, ColumnSettings) or data.document:
        return None
    if isinstance(data, FilesData) and all(map(is_plain_text, getattr(data, split))):
        return None
    return (
        f"{input_format} needs data.document, the column whose value is the same for all sentences of a "
        "document; set it, or use sentences or full_sentences"
    )


def _objective(run: RunSettings) -> Iterator[Contradiction]:
    objective = run.objective
    if objective.plugin is not None:
        yield from _own_facts(run, objective.plugin)
    pair_loss = objective.pair_loss if isinstance(objective, MaskedLMSettings) else "none"
    if pair_loss != "none" and run.training.input_format not in PAIR_FORMATS:
        yield (
            ("objective", "pair_loss"),
            f"{pair_loss} needs sentence pairs, but training.input_format is {run.training.input_format}; set "
            f"training.input_format to {' or '.join(PAIR_FORMATS)}",
        )
    if pair_loss != "none" and objective.sees != "both_sides":
        yield (
            ("objective", "pair_loss"),
            f"{pair_loss} is predicted from the first token, but with objective.sees = {objective.sees} this "
            "token does not see the second segment; use both_sides",
        )
    if isinstance(objective, PermutationLMSettings) and objective.predict * run.training.tokens_per_step < 1:
        yield (
            ("objective", "predict"),
            "objective.predict leaves less than one token to predict in a step (training.tokens_per_step = "
            f"{run.training.tokens_per_step}); raise objective.predict",
        )
    if isinstance(objective, ReplacedTokenSettings):
        yield from _generator(run.encoder, objective.generator)
    if isinstance(objective, ReplacedTokenSettings) and objective.masking.keep == 1:
        yield (
            ("objective", "masking", "keep"),
            "must be below 1 for replaced_token, because with keep = 1 the generator sees every token and "
            "replaces nothing; raise mask",
        )
    unread = not isinstance(objective, SkipGramSettings) and objective.sees != "window"
    if unread and objective.window != type(objective).model_fields["window"].default:
        yield (
            ("objective", "window"),
            f"must be left out unless objective.sees is window, but objective.sees is {objective.sees}; change "
            "objective.sees, or remove window",
        )
    needs_positions = isinstance(objective, PermutationLMSettings | NaiveBidirectionalLMSettings)
    if needs_positions and run.encoder.positions == "none":
        yield (
            ("encoder", "positions"),
            f"must not be none for {objective.kind}, because its predictions depend only on positions; remove "
            "this setting, or remove the arm",
        )


def _optimizer(run: RunSettings) -> Iterator[Contradiction]:
    if run.training.optimizer.kind == "muon" and not run.objective.has_layers:
        yield (
            ("training", "optimizer"),
            f"must not be muon for {run.objective.kind}, because muon trains the matrices of blocks and "
            f"{run.objective.kind} has no blocks; use adamw or sgd",
        )


def _own_facts(run: RunSettings, plugin: Plugin) -> Iterator[Contradiction]:
    objective, sizes = run.objective, {"vocab_size": run.data.vocab_size, "max_steps": run.training.max_steps}
    try:
        numbers = [*objective.predictions.values(), objective.weights_per_token(run.encoder, **sizes)]
        # The plan counts parameters; 0 of them are possible.
        objective.own_parameters(run.encoder, vocab_size=run.data.vocab_size, max_length=run.data.max_length)
        if not all(0 < number < math.inf for number in numbers):
            yield (
                ("objective", "kind"),
                f"{plugin.name}: predictions and weights_per_token must give numbers above 0, but give "
                f"{', '.join(map(str, numbers))}; correct the file",
            )
    except (Exception, SystemExit) as error:  # the code of a user may raise anything
        yield ("objective", "kind"), str(failure(plugin.name, plugin.path, error)).rstrip(".")


def _generator(encoder: EncoderSettings, generator: GeneratorSettings) -> Iterator[Contradiction]:
    width, shrink = encoder.hidden_size, generator.shrink
    heads = max(1, encoder.num_attention_heads // shrink)
    if width % shrink:
        yield (
            ("objective", "generator", "shrink"),
            f"must divide encoder.hidden_size, but {width} / {shrink} is {width / shrink:g}; choose a divisor",
        )
    elif width // shrink % heads:
        yield (
            ("objective", "generator", "shrink"),
            f"must leave a width that the generator's {heads} heads divide, but {width} / {shrink} is "
            f"{width // shrink}; choose another divisor of encoder.hidden_size",
        )
    elif encoder.positions == "rotary" and width // shrink // heads % 2:
        yield (
            ("objective", "generator", "shrink"),
            "must leave heads of an even width for rotary positions, but the width of the generator's heads is "
            f"{width // shrink // heads}; choose another divisor of encoder.hidden_size",
        )


def _masking(run: RunSettings, masking: MaskingSettings) -> Iterator[Contradiction]:
    select = masking.select
    if masking.predict is not None and not isinstance(run.objective, MaskedLMSettings):
        yield (
            ("objective", "masking", "predict"),
            f"objective.masking.predict works only with masked_lm, because {run.objective.kind} always predicts "
            "the hidden tokens; remove it",
        )
    if masking.random_differs and not masking.random:
        yield (
            ("objective", "masking", "random_differs"),
            "must be left out without random tokens, but objective.masking.random is 0; raise "
            "objective.masking.random, or remove random_differs",
        )
    yield from _schedule(run, masking)
    least = masking.least_predicted() * run.training.tokens_per_step
    if least < 1:
        yield (
            ("objective", "masking", *_lowest(masking, least=masking.least_predicted())),
            f"objective.masking leaves less than one token to predict: {least:.2g} tokens in a step "
            f"(training.tokens_per_step = {run.training.tokens_per_step}); raise it",
        )
    if isinstance(select, Cloze | GenericWords):
        if not (select.words or select.file or select.part_of_speech):
            yield (
                ("objective", "masking", "select"),
                f"{select.kind} needs a lexicon; add words, file or part_of_speech",
            )
        yield from _lexicon(run, select)
        if select.part_of_speech and not select.treebank and run.data.kind != "language":
            yield (
                ("objective", "masking", "select", "part_of_speech"),
                "part_of_speech needs treebank, because only the built-in language has parts of speech; set "
                "treebank to a CoNLL-U file, or to a parquet file with the columns tokens and upos",
            )
    if isinstance(select, LabelWord):
        yield from _label_word(run, masking)
    order = run.training.word_order
    if not isinstance(select, Uniform) and not isinstance(order, Natural) and order.unit == "sub_words":
        yield (
            ("objective", "masking", "select"),
            f"{select.kind} needs whole words, but training.word_order moves sub-words; use uniform, or move "
            f"words",
        )


def _lowest(masking: MaskingSettings, *, least: float) -> tuple[str, ...]:
    """Return the path, inside the masking, of the setting that decides the smallest predicted share."""
    if masking.predict is not None:
        return ("predict",)
    if masking.schedule is None or masking.ratio == least:
        return ("ratio",)
    return ("schedule", "ratios" if isinstance(masking.schedule, Steps) else "to")


def _label_word(run: RunSettings, masking: MaskingSettings) -> Iterator[Contradiction]:
    """Yield the settings with which a sentence would lose its label word, or with which more than one token
    would be hidden."""
    where = ("objective", "masking", "select")
    if not getattr(run.data, "label_words", ()):
        yield (
            where,
            (
                "label_word needs data.label_words, the words that are written after sentences; set "
                "data.label_words"
            ),
        )
    if masking.count != "fixed" or masking.ratio * run.data.max_length > 1 or masking.schedule or masking.predict:
        yield (
            where,
            "label_word hides one token in each sentence; set objective.masking.count to fixed and ratio to at "
            f"most {1 / run.data.max_length:.2g} (1 / data.max_length), without schedule and predict",
        )
    if run.training.input_format != "sentences" or not isinstance(run.training.word_order, Natural):
        yield (
            where,
            "label_word needs sentences that end with their label word; set training.input_format to sentences "
            "and training.word_order to natural",
        )


def _schedule(run: RunSettings, masking: MaskingSettings) -> Iterator[Contradiction]:
    if masking.schedule is None:
        return
    if masking.copies is not None:
        yield (
            ("objective", "masking", "copies"),
            "must repeat the same masks, but objective.masking.schedule changes how many tokens are hidden; "
            "remove one of the two",
        )
    steps = run.training.max_steps
    if isinstance(masking.schedule, Steps) and 0 < steps <= masking.schedule.at[-1]:
        yield (
            ("objective", "masking", "schedule", "at"),
            f"must be below training.max_steps = {steps} (the first step has the number 0), but has "
            f"{masking.schedule.at[-1]}; lower it",
        )


def _lexicon(run: RunSettings, select: Cloze | GenericWords) -> Iterator[Contradiction]:
    at = ("objective", "masking", "select")
    for word in select.words:
        if word.split() != [word]:
            yield (
                (*at, "words"),
                f"must have single words, but {word!r} has a space; write each word as an entry of its own",
            )
    if select.treebank and not select.part_of_speech:
        yield (
            (*at, "treebank"),
            "must come together with part_of_speech, which is read from it; add part_of_speech, or remove "
            "treebank",
        )
    unknown = sorted(set(select.part_of_speech) - LANGUAGE_TAGS)
    if unknown and not select.treebank and run.data.kind == "language":
        yield (
            (*at, "part_of_speech"),
            f"has {unknown[0]}, but no word of the built-in language has this tag; name one of "
            f"{', '.join(sorted(LANGUAGE_TAGS))}",
        )
