"""First spec for a user's own text, with comments. Its sizes follow from the text, which is read once.

If no file for validation is named, sentences are held out from the end of the text, whole documents if there
are several. This module needs no torch.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ablations.errors import SpecError
from ablations.messages import ALSO_CALLED
from ablations.spec import load
from ablations.spec.experiment import LONGEST_NAME
from ablations.wording import listed, several
from lightning_modules.config import FilesData
from lightning_modules.data import corpus, tables
from lightning_modules.data.corpus import Row
from lightning_modules.data.tokenizer import sub_words_at_least
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
PIECES_PER_WORD = {512: 2.8, 1024: 2.2, 2048: 1.9, 4096: 1.6, 8192: 1.5, 32_768: 1.3}
"""Approximate sub-words of a word of English prose, by the largest vocabulary that the number holds for."""
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
    long: int
    """Number of words that 99 of 100 sentences do not exceed."""
    sub_words: int
    """Vocabulary size for which both the text and its translations have enough different words."""


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
        temporary.write_text(
            skeleton(path, choice, data=data, text=text, validated=validated, held_out=held_out), encoding="utf-8"
        )
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
    lengths: Counter[int] = Counter()
    for row in rows:
        of_sentence = row.text.split(" ")
        length = sum(map(_words_in, of_sentence))
        sentences, words, document = sentences + 1, words + length, row.document
        lengths[length] += 1
        if sentences <= 1_000_000:  # the words of more sentences would only fill the memory
            different.update(of_sentence)
            signs.update(row.text.encode())
            of_targets.update((row.target or "").split())
    below = 0
    for long in sorted(lengths):
        below += lengths[long]
        if below >= 0.99 * sentences:
            break
    sides = [side for side in (different, of_targets) if side]
    sub_words = min(sub_words_at_least(side, limit=max(PIECES_PER_WORD)) for side in sides)
    return Text(sentences, words, len(different), len(signs), document + 1, long, sub_words)


def _words_in(between_spaces: str) -> int:
    """Return how many words a text without a space counts as."""
    if len(between_spaces) * 4 <= LONGEST_WORD:  # a character has at most four bytes
        return 1
    size = len(between_spaces.encode())
    return 1 if size <= LONGEST_WORD else math.ceil(size / BYTES_PER_WORD)


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


def skeleton(path: Path, choice: Choice, *, data: FilesData, text: Text, validated: Text, held_out: int) -> str:
    """Return the content of the spec file."""
    size = SIZES[choice.size]
    vocabulary, why_vocabulary = vocabulary_size(text)
    pieces = pieces_per_word(vocabulary)
    steps, why_steps = (choice.steps, "optimiser steps") if choice.steps else steps_of(text, size, pieces=pieces)
    counts = {"sentence": text.sentences, "word": text.words, "document": text.documents}
    read = ", ".join(several(number_of, noun) for noun, number_of in counts.items())
    arms = "".join(f"  {arm}: {{objective: {{kind: {OBJECTIVES[arm]}}}}}\n" for arm in choice.arms)
    measures = _measures(int(validated.words * pieces), size, vocabulary)
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
{_columns(choice, held_out)}  vocab_size: {vocabulary}  # {why_vocabulary}
  max_length: {_max_length(text, pieces)}  # tokens; 99 of 100 sentences have at most {several(text.long, "word")}
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


def vocabulary_size(text: Text) -> tuple[int, str]:
    """Return a number of sub-words that suits a text, and the reason for it."""
    ideal = max(text.words * PIECES_PER_WORD[2048] / OCCURRENCES, FEWEST_PIECES)
    size = 2 ** math.floor(math.log2(min(ideal, text.different_words, max(PIECES_PER_WORD))))
    if size < text.signs + 32 or size > text.sub_words:
        size = max(FEWEST_SUB_WORDS, min(text.signs + 32, text.sub_words))
        return size, f"sub-words; few, because the text has few different words, and {text.signs} different bytes"
    times = text.words * pieces_per_word(size) / size
    times = round(times, -1 if times < 1000 else -2)
    return size, f"sub-words; each then occurs about {times:,.0f} times on average, rare ones less"


def pieces_per_word(vocabulary: int) -> float:
    """Return the approximate number of sub-words of a word, for a vocabulary of this size."""
    return next(pieces for size, pieces in PIECES_PER_WORD.items() if vocabulary <= size)


def steps_of(text: Text, size: Size, *, pieces: float) -> tuple[int, str]:
    """Return a number of steps that suits a text with `pieces` sub-words a word, and the reason for it."""
    tokens = text.words * pieces + 2 * text.sentences
    ideal = PASSES * tokens / size.tokens_per_step
    steps = int(round(min(max(ideal, FEWEST_STEPS), size.most_steps), -1 if ideal < 1000 else -2))
    passes = steps * size.tokens_per_step / tokens
    read = f"read {passes:.0%} of the text" if passes < 0.95 else f"read the text about {max(1, passes):.0f} times"
    return steps, f"optimiser steps; they {read}"


def _max_length(text: Text, pieces: float) -> int:
    tokens = text.long * pieces + 2
    return next((length for length in (32, 64, 128, 256) if tokens <= length), 512)


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
