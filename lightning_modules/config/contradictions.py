"""Settings that are fine alone and impossible together."""

from collections.abc import Iterator

from lightning_modules.config.data import ColumnSettings, FilesData
from lightning_modules.config.masking import Cloze, Generic, LabelWord, MaskingSettings, Uniform
from lightning_modules.config.objectives import MaskedLMSettings, PermutationLMSettings, ReplacedTokenSettings
from lightning_modules.config.run import RunSettings
from lightning_modules.config.training import PAIR_FORMATS
from lightning_modules.config.word_order import Natural

Contradiction = tuple[tuple[str, ...], str]


def contradictions(run: RunSettings) -> list[Contradiction]:
    """What is impossible, as (path, sentence); empty when all is well."""
    found = [*_text(run), *_input_format(run), *_objective(run)]
    masking = getattr(run.objective, "masking", None)
    return [*found, *_masking(run, masking)] if masking else found


def _text(run: RunSettings) -> Iterator[Contradiction]:
    if run.training.max_steps and run.training.tokens_per_step < run.data.max_length:
        yield (
            ("training", "tokens_per_step"),
            f"must be at least data.max_length, or the longest sentence would never fit, "
            f"but {run.training.tokens_per_step} < {run.data.max_length}",
        )
    if run.objective.kind == "translation" and isinstance(run.data, ColumnSettings) and not run.data.target:
        yield (
            ("objective", "kind"),
            "translation needs data.target, the column that holds the translations; name it, or drop the arm",
        )


def _input_format(run: RunSettings) -> Iterator[Contradiction]:
    name = run.training.input_format
    if name == "sentences":
        return
    if run.objective.kind in ("translation", "skip_gram"):
        yield (
            ("training", "input_format"),
            f"must be sentences for {run.objective.kind}, which reads one sentence at a time, but is {name}",
        )
    data = run.data
    if name != "full_sentences" and isinstance(data, ColumnSettings) and not data.document:
        plain = isinstance(data, FilesData) and all(
            file.removesuffix(".gz").endswith(".txt") for file in data.train
        )
        if not plain:  # where a blank line ends a document
            yield (
                ("training", "input_format"),
                f"{name} needs data.document, the column that says which sentences follow each other; name it, or "
                f"use sentences or full_sentences",
            )


def _objective(run: RunSettings) -> Iterator[Contradiction]:
    objective = run.objective
    pair_loss = objective.pair_loss if isinstance(objective, MaskedLMSettings) else "none"
    if pair_loss != "none" and run.training.input_format not in PAIR_FORMATS:
        yield (
            ("objective", "pair_loss"),
            f"{pair_loss} needs pairs; set training.input_format to {' or '.join(PAIR_FORMATS)}, which is "
            f"{run.training.input_format}",
        )
    if pair_loss != "none" and objective.sees != "both_sides":
        yield (
            ("objective", "pair_loss"),
            f"{pair_loss} is told from the first token, which sees no second segment with objective.sees = "
            f"{objective.sees}; use both_sides",
        )
    if isinstance(objective, PermutationLMSettings) and objective.predict * run.training.tokens_per_step < 1:
        yield (
            ("objective", "predict"),
            f"objective.predict leaves nothing to predict in a step of training.tokens_per_step = "
            f"{run.training.tokens_per_step}; raise it",
        )
    if isinstance(objective, ReplacedTokenSettings):
        width, shrink = run.encoder.hidden_size, objective.generator.shrink
        heads = max(1, run.encoder.num_attention_heads // shrink)
        if width % shrink or width // shrink % heads:
            yield (
                ("objective", "generator", "shrink"),
                f"must divide encoder.hidden_size into a width that its {heads} heads divide, but "
                f"{width} / {shrink} is {width / shrink:g}",
            )
    if objective.kind in ("permutation_lm", "naive_bidirectional_lm") and run.encoder.positions == "none":
        yield (
            ("encoder", "positions"),
            f"must be learned for {objective.kind}, whose predictions know nothing but their place, but is none",
        )


def _masking(run: RunSettings, masking: MaskingSettings) -> Iterator[Contradiction]:
    select = masking.select
    if masking.predict is not None and run.objective.kind != "masked_lm":
        yield (
            ("objective", "masking", "predict"),
            f"objective.masking.predict is for masked_lm; take it away, since {run.objective.kind} predicts "
            f"what it hides",
        )
    least = masking.least_predicted() * run.training.tokens_per_step
    if least < 1:
        yield (
            ("objective", "masking", "ratio" if masking.predict is None else "predict"),
            f"objective.masking leaves nothing to predict: {least:.2g} tokens in a step of "
            f"training.tokens_per_step = {run.training.tokens_per_step}; raise it",
        )
    if isinstance(select, Cloze | Generic):
        if not (select.words or select.file or select.part_of_speech):
            yield (
                ("objective", "masking", "select"),
                f"{select.kind} needs words, file or part_of_speech, which say what is in its lexicon; add one",
            )
        if select.part_of_speech and not select.treebank and run.data.kind != "language":
            yield (
                ("objective", "masking", "select", "part_of_speech"),
                "part_of_speech needs treebank beside it, a parquet file with the columns tokens and upos, since "
                "only the built-in language knows the parts of speech of its words",
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


def _label_word(run: RunSettings, masking: MaskingSettings) -> Iterator[Contradiction]:
    """What would leave a sentence without its label word, or hide more of it than one token."""
    where = ("objective", "masking", "select")
    if not getattr(run.data, "label_words", ()):
        yield where, "label_word needs data.label_words, the words that are written behind sentences; name them"
    if masking.count != "fixed" or masking.ratio * run.data.max_length > 1 or masking.schedule or masking.predict:
        yield (
            where,
            f"label_word hides one token a sentence; set objective.masking.count to fixed and ratio to at most "
            f"{1 / run.data.max_length:.2g} (1 / data.max_length), without schedule and predict",
        )
    if run.training.input_format != "sentences" or not isinstance(run.training.word_order, Natural):
        yield (
            where,
            "label_word needs sentences that end with their label word; set training.input_format to sentences "
            "and training.word_order to natural",
        )
