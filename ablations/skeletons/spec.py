"""First spec for a user's own text, with comments. Its sizes follow from the text.

If no file for validation is named, sentences are held out from the end of the text, whole documents if there
are several. This module needs no torch.
"""

import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ablations.errors import SpecError
from ablations.messages import ALSO_CALLED
from ablations.spec import load
from ablations.spec.experiment import LONGEST_NAME
from ablations.wording import listed, several
from lightning_modules.config import FilesData
from lightning_modules.data import corpus, tables
from lightning_modules.data.corpus import Row
from lightning_modules.data.tokenizer import encode, sub_words_at_least, train
from lightning_modules.errors import DataError
from lightning_modules.files import atomic, make_folder

OBJECTIVES = {
    name: next((kind for kind, names in ALSO_CALLED.items() if name in names), name)
    for name in ("mlm", "clm", "mt", "mixture", "electra", "xlnet")
}
"""Kinds of objectives, by the names of the arms that have them."""


class Size(NamedTuple):
    """Size of a model, with the settings of its training."""

    encoder: str
    width: int
    tokens_per_step: int
    learning_rate: str
    most_steps: int
    about: str


SIZES = {
    "tiny": Size("num_hidden_layers: 4, hidden_size: 64, num_attention_heads: 4", 64, 2048, "2e-3", 2_000,
                 "minutes a run on a laptop"),
    "small": Size("num_hidden_layers: 6, hidden_size: 256, num_attention_heads: 4", 256, 8192, "5e-4", 20_000,
                  "wants a GPU"),
    "base": Size("num_hidden_layers: 12, hidden_size: 768, num_attention_heads: 12", 768, 32_768, "2e-4", 100_000,
                 "as BERT base; a run takes hours to days on a large GPU"),
}  # fmt: skip

PASSES = 10
"""Number of times that training reads the text, within the limits on steps.

Up to 4 times are nearly as good as new text, and after about 40 times the text teaches nothing more
(Muennighoff et al. 2023).
"""
FEWEST_STEPS = 200
OCCURRENCES = 100
"""Average number of occurrences of a sub-word below which its embedding is learned badly."""
PIECES_PER_WORD = 1.9
"""Approximate sub-words of a word of English prose, for a vocabulary of 2,048."""
MOST_SUB_WORDS = 32_768
SAMPLE = 20_000
"""Number of sentences that are cut into sub-words, to see how long they are."""
FEWEST_PIECES = 512
"""Size of a vocabulary below which most sub-words are single letters."""
HELD_OUT, MOST_HELD_OUT = 0.05, 10_000
"""Share of a text that is held out for validation, and the highest number of sentences."""
FEWEST_SUB_WORDS = 16
"""Size of the smallest vocabulary (`data.vocab_size`)."""
FEWEST_WORDS = 2_000
"""Number of words of text below which no vocabulary can be learned."""
LONGEST_WORD, BYTES_PER_WORD = 30, 6
"""Bytes above which the text between two spaces counts as several words, and bytes of each of these words. So
text in Chinese, Japanese or Thai, which has no spaces between words, does not count as a few words."""


class Text(NamedTuple):
    """Counts of a text, from one reading."""

    sentences: int
    words: int
    """Number of words, which spaces separate; see `LONGEST_WORD`."""
    different_words: int
    signs: int
    """Number of different bytes."""
    documents: int
    sub_words: int
    """Vocabulary size for which both the text and its translations have enough different words."""


class Vocabulary(NamedTuple):
    """Number of sub-words for a text, and the lengths of the text in them."""

    size: int
    why: str
    """Comment on the size in the spec."""
    pieces: float
    """Mean number of sub-words of a word."""
    longest: int
    """Number of tokens that 99 of 100 sentences, and 99 of 100 translations, do not exceed."""


class Choice(NamedTuple):
    """Choices of a user about a spec, where the text does not decide."""

    texts: tuple[str, ...]
    validation: tuple[str, ...] = ()
    column: str | None = None
    target: str | None = None
    document: str | None = None
    arms: tuple[str, ...] = ("mlm", "clm")
    size: str = "tiny"
    steps: int | None = None
    seeds: int = 3


def write(path: Path, choice: Choice, *, data_root: Path, overwrite: bool = False) -> list[Path]:
    """Write a spec and return the paths of the written files.

    If no file for validation is named, the two parts of the text are written beside the spec.

    Raises:
        DataError: the text cannot be read, or is too short.
        SpecError: a file exists already, or an arm needs a column of translations that is not named.
    """
    if "mt" in choice.arms and choice.target is None:
        raise SpecError("--arm mt needs the column of the translations; name it with --target.")
    ending = "txt" if choice.target is None else "jsonl"
    splits = () if choice.validation else ("train", "validation")
    parts = [path.with_name(f"{path.stem}-{split}.{ending}") for split in splits]
    for file in (path, *parts):
        if not overwrite and (file.exists() or file.is_symlink()):
            raise SpecError(f"{file} already exists; choose another name, or add --overwrite.")
    choice = choice._replace(column=choice.column or _column(choice, data_root))
    data = _data(choice, choice.texts, choice.validation or choice.texts)
    unfit = corpus.problems(data, data_root)
    if wrong := [sentence for split, sentence in unfit if choice.validation or split == "train"]:
        raise DataError("\n".join(wrong))
    rows = corpus.open_corpus(data, data_root=data_root)
    text = count(rows.rows("train"))
    if text.words < FEWEST_WORDS:
        raise DataError(
            f"{listed(choice.texts, 'and')}: {several(text.words, 'word')} are too few for training, expected "
            f"at least {FEWEST_WORDS:,}; give more text."
        )
    if parts and text.sentences == 1:
        raise DataError(
            f"{listed(choice.texts, 'and')}: all text is one sentence, so no sentence can be held out for "
            "validation; write each sentence in a line or row of its own, or give other text with --validation."
        )
    vocabulary = vocabulary_of(rows.rows("train"), text)
    make_folder(path.absolute().parent)
    if parts:
        held_out = _held_out(rows.rows("train"), text)
        _write_parts(parts, rows.rows("train"), text.sentences - held_out, choice)
        names = tuple(str(part) if part.is_absolute() else part.as_posix() for part in parts)
        columns = {"text": "text", "target": None, "document": None}
        if choice.target is not None:
            columns |= {"target": "target", "document": "document"}
        data = data.model_copy(update={"train": names[:1], "validation": names[1:], **columns})
    else:
        held_out = 0
    validated = count(corpus.open_corpus(data, data_root=Path.cwd() if parts else data_root).rows("validation"))
    with atomic(path) as temporary:
        sizes: dict[str, Any] = {"vocabulary": vocabulary, "validated": validated, "held_out": held_out}
        content = skeleton(path, choice, data=data, text=text, **sizes)
        temporary.write_text(content, encoding="utf-8")
    load.load(path)
    return [path, *parts]


def _column(choice: Choice, data_root: Path) -> str | None:
    """Return the only text column of a table without a column `text`; None if no name is needed. Raise a
    DataError if several columns have text."""
    file = data_root / choice.texts[0]
    if not file.is_file() or tables.format_of(file) in (None, ".txt"):
        return None
    columns = [name for name in tables.text_columns(file) if name not in (choice.target, choice.document)]
    if "text" in columns or not columns:
        return None
    if len(columns) > 1:
        raise DataError(
            f"{file} has text in {listed(columns, 'and')}; name the column of the sentences with --column."
        )
    return columns[0]


def _data(choice: Choice, train: Sequence[str], validation: Sequence[str]) -> FilesData:
    columns = {"text": choice.column, "target": choice.target, "document": choice.document}
    named = {key: value for key, value in columns.items() if value is not None}
    return FilesData.model_validate(
        {"kind": "files", "train": list(train), "validation": list(validation), **named}
    )


def count(rows: Iterable[Row]) -> Text:
    """Count sentences, words and documents of a text in one reading."""
    sentences = words = document = 0
    different: set[str] = set()
    of_targets: set[str] = set()
    signs: set[int] = set()
    for row in rows:
        of_sentence = row.text.split(" ")
        sentences, words, document = sentences + 1, words + sum(map(_words_in, of_sentence)), row.document
        if sentences <= 1_000_000:  # the words of more sentences would only fill the memory
            different.update(of_sentence)
            signs.update(row.text.encode())
            of_targets.update((row.target or "").split())
    sides = [side for side in (different, of_targets) if side]
    sub_words = min(sub_words_at_least(side, limit=MOST_SUB_WORDS) for side in sides)
    return Text(sentences, words, len(different), len(signs), document + 1, sub_words)


def _words_in(between_spaces: str) -> int:
    """Return how many words a text without a space counts as."""
    if len(between_spaces) * 4 <= LONGEST_WORD:  # a character has at most four bytes
        return 1
    size = len(between_spaces.encode())
    return 1 if size <= LONGEST_WORD else math.ceil(size / BYTES_PER_WORD)


def vocabulary_of(rows: Iterable[Row], text: Text) -> Vocabulary:
    """Return the vocabulary for a text. The lengths come from sub-words that are trained on `SAMPLE` of its
    sentences."""
    size, is_small = vocabulary_size(text)
    sample = list(itertools.islice(rows, 0, None, math.ceil(text.sentences / SAMPLE)))
    sentences = [row.text for row in sample]
    targets = [row.target for row in sample if row.target is not None]
    lengths = [_lengths(side, size) for side in (sentences, targets) if side]
    words = sum(_words_in(part) for sentence in sentences for part in sentence.split(" "))
    pieces = (sum(lengths[0]) - 2 * len(sentences)) / words
    times = text.words * pieces / size
    why = (
        f"each then occurs about {round(times, -1 if times < 1000 else -2):,.0f} times on average, rare ones less"
    )
    if is_small:
        why = f"few, because the text has few different words, and {text.signs} different bytes"
    longest = max(int(np.quantile(of_side, 0.99, method="higher")) for of_side in lengths)
    return Vocabulary(size, f"sub-words; {why}", pieces, longest)


def _lengths(sentences: Sequence[str], vocabulary: int) -> list[int]:
    """Return the number of tokens of each sentence, cut by sub-words that are trained on these sentences."""
    try:
        tokenizer = train(sentences, vocabulary, source="the sentences")
    except DataError:  # the whole text gives so many sub-words, but these sentences do not
        words = {word for sentence in sentences for word in sentence.split(" ")}
        tokenizer = train(sentences, sub_words_at_least(words, limit=vocabulary), source="the sentences")
    return [len(ids) for ids in encode(tokenizer, sentences)]


# Validation ------------------------------------------------------------------------------------------


def _held_out(rows: Iterable[Row], text: Text) -> int:
    """Return the number of sentences at the end of the text that are held out.

    These are whole documents, about as long as wanted, if the last ones have between half and twice the wanted
    number of sentences.
    """
    most_sentences = max(1, min(MOST_HELD_OUT, math.ceil(text.sentences * HELD_OUT)))
    if text.documents == 1:
        return most_sentences
    lengths = [sum(1 for _ in group) for _, group in itertools.groupby(rows, key=lambda row: row.document)]
    whole = [*itertools.accumulate(reversed(lengths))][::-1]
    nearest = min(whole, key=lambda sentences: abs(sentences - most_sentences))
    return nearest if most_sentences / 2 <= nearest <= 2 * most_sentences else most_sentences


def _write_parts(parts: Sequence[Path], rows: Iterable[Row], kept: int, choice: Choice) -> None:
    """Write the first `kept` sentences into one file and the rest into another."""
    iterator = iter(rows)
    for part, sentences in zip(parts, (itertools.islice(iterator, kept), iterator), strict=True):
        document = None
        with atomic(part) as temporary, temporary.open("w", encoding="utf-8") as file:
            for row in sentences:
                if choice.target is not None:
                    record = {"text": row.text, "target": row.target, "document": row.document}
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                    continue
                file.write("\n" * (document not in (None, row.document)) + row.text + "\n")
                document = row.document


# The spec --------------------------------------------------------------------------------------------


def skeleton(
    path: Path,
    choice: Choice,
    *,
    data: FilesData,
    text: Text,
    vocabulary: Vocabulary,
    validated: Text,
    held_out: int,
) -> str:
    """Return the content of the spec file."""
    size = SIZES[choice.size]
    of_text = steps_of(text, size, pieces=vocabulary.pieces)
    steps, why_steps = (choice.steps, "optimiser steps") if choice.steps else of_text
    counts = {"sentence": text.sentences, "word": text.words, "document": text.documents}
    read = ", ".join(several(number_of, noun) for noun, number_of in counts.items())
    arms = "".join(f"  {arm}: {{objective: {{kind: {OBJECTIVES[arm]}}}}}\n" for arm in choice.arms)
    measures = _measures(int(validated.words * vocabulary.pieces), size, vocabulary.size)
    does = "does" if len(choice.arms) == 1 else "do"
    why_seeds = f"{'an interval' if choice.seeds >= 3 else 'too few for a verdict, which'} needs 3 or more"
    product = f"{several(len(choice.arms) + 1, 'arm')} x {several(choice.seeds, 'seed')}"
    return f"""\
# Written by `ablate init` from {listed(choice.texts, "and")}: {read}.
# Runs: {(len(choice.arms) + 1) * choice.seeds} = {product}. Change what you like, then:
#   ablate validate {path}   # shows every problem at once
#   ablate text {path}       # shows what the text is made of: cut, unknown, repeated and shared sentences
#   ablate plan {path}       # shows the runs and, after `ablate doctor`, their time
#   ablate run {path}        # trains, measures and writes the page
name: {name_from_file(path)}
version: 1
question: What {does} {listed(choice.arms, "and")} teach an encoder about this text?
data:
  kind: files
  train: {_names(data.train)}
  validation: {_names(data.validation)}  # {_why_validation(validated, held_out)}
{_columns(choice, held_out)}  vocab_size: {vocabulary.size}  # {vocabulary.why}
  max_length: {_max_length(vocabulary.longest)}  # tokens; 99 of 100 sentences have at most {vocabulary.longest}
encoder: {{{size.encoder}}}  # size {choice.size}: {size.about}
training:
  max_steps: {steps}  # {why_steps}
  tokens_per_step: {size.tokens_per_step}
  learning_rate: {size.learning_rate}
arms:
{arms}  untrained: {{objective: {{kind: masked_lm}}, training: {{max_steps: 0}}}}  # initial weights
seeds: {list(range(choice.seeds))}  # {why_seeds}
measures:
{measures}# What you expect, written before the runs: `ablate claims {path} --new`, then
# claims: [{name_from_file(path)}]
"""


def vocabulary_size(text: Text) -> tuple[int, bool]:
    """Return a number of sub-words that suits a text, and whether it is small because the text has few different
    words."""
    ideal = max(text.words * PIECES_PER_WORD / OCCURRENCES, FEWEST_PIECES)
    size = 2 ** math.floor(math.log2(min(ideal, text.different_words, MOST_SUB_WORDS)))
    if text.signs + 32 <= size <= text.sub_words:
        return size, False
    return max(FEWEST_SUB_WORDS, min(text.signs + 32, text.sub_words)), True


def steps_of(text: Text, size: Size, *, pieces: float) -> tuple[int, str]:
    """Return a number of steps that suits a text with `pieces` sub-words a word, and the reason for it."""
    tokens = text.words * pieces + 2 * text.sentences
    ideal = PASSES * tokens / size.tokens_per_step
    steps = int(round(min(max(ideal, FEWEST_STEPS), size.most_steps), -1 if ideal < 1000 else -2))
    passes = steps * size.tokens_per_step / tokens
    read = f"read {passes:.0%} of the text" if passes < 0.95 else f"read the text about {max(1, passes):.0f} times"
    return steps, f"optimiser steps; they {read}"


def _max_length(longest: int) -> int:
    return next((length for length in (32, 64, 128, 256) if longest <= length), 512)


def name_from_file(path: Path) -> str:
    """Return a name for an experiment, made from the name of its file."""
    name = re.sub("[^a-z0-9._-]+", "-", path.stem.lower()).strip("-._")[:LONGEST_NAME] or "my-text"
    return f"my-{name}" if name in ("runs", "tokens") else name


def _names(files: Sequence[str]) -> str:
    names = [json.dumps(name, ensure_ascii=False) for name in files]
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def _columns(choice: Choice, held_out: int) -> str:
    """Return the lines of the spec that name columns. Held-out parts have columns of our own."""
    if held_out:
        return "" if choice.target is None else "  target: target\n  document: document\n"
    columns = {"text": choice.column, "target": choice.target, "document": choice.document}
    return "".join(f"  {key}: {json.dumps(name, ensure_ascii=False)}\n" for key, name in columns.items() if name)


def _why_validation(validated: Text, held_out: int) -> str:
    if held_out:
        return f"the last {several(held_out, 'sentence')} of the text, which training does not see"
    return f"{several(validated.sentences, 'sentence')}, {several(validated.words, 'word')}"


def _measures(tokens: int, size: Size, vocabulary: int) -> str:
    """Return the lines of the measures for which `tokens` tokens of validation text are enough."""
    lines = ["  - validation\n"]
    if tokens >= 10 * size.width:
        lines.append("  - layer_change\n")
    types = next((types for types in (1000, 300, 100) if tokens >= 40 * types), None)
    if types is not None:
        types = min(types, vocabulary)
        lines.append(f"  - {{kind: token_information, types: {types}, clusters: {types}}}\n")
    if len(lines) < 3:
        lines.append(f"  # more measures need more validation text than {tokens:,} tokens\n")
    return "".join(lines)
