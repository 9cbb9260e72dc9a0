"""Lists of words that decide what is hidden: where they come from, and which words of a text are in them.

In a list and in a text, words are the same that `bare` writes alike. A word is what stands between spaces; a word
that a treebank cuts in two, as "don't" into "do" and "n't", is therefore in a text but not in a list made from it.

Letters: N tokens, W words, C types (different words).
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lightning_modules.config.data import Data, LanguageData
from lightning_modules.config.masking import Cloze, Generic
from lightning_modules.data.tokenizer import decode
from lightning_modules.data.treebank import parquet_rows, read_treebank
from lightning_modules.data.words import Words, word_types
from lightning_modules.errors import DataError
from lightning_modules.vocabulary import UNKNOWN

COMMENTS = (";", "#")
"""What a line of a file begins with that is no word; published opinion lexica have such lines."""

LANGUAGE_SENTENCES = 20_000
"""Training sentences in which the built-in language tags its words, however many a run trains on. They take a
second; of language 0 they lack one word, of 1,293 that occur in 60,000 sentences."""

WHERE = "objective.masking.select"


def bare(word: str) -> str:
    """A word without case (Unicode's case folding), in NFC form, without punctuation at its ends.

    Punctuation is what Unicode calls so; signs such as + and $ are none. A word of punctuation alone keeps it.
    """
    folded = unicodedata.normalize("NFC", word.casefold())
    inner = [i for i, c in enumerate(folded) if not unicodedata.category(c).startswith("P")]
    return folded[inner[0] : inner[-1] + 1] if inner else folded


def resolved(settings: Cloze | Generic, *, data: Data, data_root: Path) -> Cloze | Generic:
    """The settings with all words of the list in `words`: sorted, distinct and `bare`, and the other fields empty.

    What a run keeps, so that it does not depend on files. Resolved settings are resolved to themselves.

    Args:
        data: the text of the run. Parts of speech without a treebank are those of the built-in language.
        data_root: where relative paths start.

    Raises:
        DataError: no list is given, or a file, a word or a part of speech is unfit.
    """
    if not (settings.words or settings.file or settings.part_of_speech):
        raise DataError(
            f"{WHERE}: {settings.kind} needs words, file or part_of_speech, but none of them is given; add one."
        )
    if settings.treebank and not settings.part_of_speech:
        raise DataError(
            f"{WHERE}.treebank is only read for part_of_speech, which is not given; add it or remove treebank."
        )
    words = {_checked(word, f"{WHERE}.words") for word in settings.words}
    if settings.file:
        words |= _words_of_file(data_root / settings.file)
    if settings.part_of_speech:
        words |= _words_of_tags(settings, data, data_root)
    empty = {"file": None, "part_of_speech": (), "treebank": None}
    return settings.model_copy(update={"words": tuple(sorted(words)), **empty})


def in_lexicon(
    ids_N: NDArray[np.integer], words: Words, tokenizer: Tokenizer, lexicon: Collection[str]
) -> NDArray[np.bool_]:
    """Which words of a text are in a list. Shape W.

    Compared are `bare` words. A word with a byte that the tokenizer does not know is in no list.
    """
    ids_N, listed = np.asarray(ids_N), {bare(word) for word in lexicon}
    type_W, first_C = word_types(ids_N, words)
    belongs_C = np.zeros(len(first_C), np.bool_)
    bounds = zip(words.start_W[first_C].tolist(), words.length_W[first_C].tolist(), strict=True)
    for c, (start, length) in enumerate(bounds):
        pieces = ids_N[start : start + length].tolist()
        belongs_C[c] = UNKNOWN not in pieces and bare(decode(tokenizer, pieces)) in listed
    return belongs_C[type_W]


def _checked(word: str, where: str) -> str:
    """The bare word, if it is one word."""
    if word.split() != [word]:
        raise DataError(
            f"{where}: {word!r} has a space, but a word is what stands between spaces; give its words one by one."
        )
    return bare(word)


# Files -----------------------------------------------------------------------------------------------


def _words_of_file(path: Path) -> set[str]:
    where, words = f"{WHERE}.file", set()
    for number, line in enumerate(_bytes(path, where).split(b"\n"), start=1):
        try:
            word = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}, line {number}: byte {line[error.start]:#04x} is no UTF-8 ({where}); convert the file to "
                f"UTF-8."
            ) from error
        if word and not word.startswith(COMMENTS):
            words.add(_checked(word, f"{path}, line {number}"))
    if not words:
        raise DataError(
            f"{path} has no words ({where}): all its lines are blank or begin with {' or '.join(COMMENTS)}; "
            f"write a word a line."
        )
    return words


def _bytes(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{path} does not exist ({where}; relative paths start at --data-root); correct the path."
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({where}): {error.strerror}; correct the path.") from error


# Parts of speech -------------------------------------------------------------------------------------


def _words_of_tags(settings: Cloze | Generic, data: Data, data_root: Path) -> set[str]:
    """The words whose most frequent tag is asked for."""
    if settings.treebank:
        path = data_root / settings.treebank
        tag_by_word, source = _most_frequent_tags(_treebank(path)), str(path)
    elif isinstance(data, LanguageData):
        tag_by_word, source = _most_frequent_tags(_language(data.seed)), "the built-in language"
    else:
        raise DataError(
            f"{WHERE}.part_of_speech needs a treebank, since data of kind {data.kind} has no parts of speech; set "
            f"{WHERE}.treebank to a CoNLL-U file, or a parquet file with the columns tokens and upos."
        )
    there = set(tag_by_word.values())
    for tag in settings.part_of_speech:
        if tag not in there:
            known = ", ".join(sorted(there))
            instead = f"only {known}; name one of these" if there else "as none has a tag; name another treebank"
            raise DataError(f"{WHERE}.part_of_speech: no word of {source} is most often {tag!r}, {instead}.")
    return {word for word, tag in tag_by_word.items() if tag in settings.part_of_speech}


def _most_frequent_tags(tagged: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The tag that each bare word has most often; of equally frequent ones the alphabetically first."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (form, tag), count in Counter(tagged).items():
        if form.split() == [form]:  # some treebanks have words such as "1 000"
            counts[bare(form)][tag] += count
    return {word: min(tags, key=lambda tag: (-tags[tag], tag)) for word, tags in counts.items()}


def _language(seed: int) -> Iterator[tuple[str, str]]:
    from lightning_modules.data.language import Language  # its grammar is only imported where it is spoken

    for _, sentence in Language(seed).sentences("train", LANGUAGE_SENTENCES):
        yield from zip(sentence.words, sentence.tags, strict=True)


def _treebank(path: Path) -> Iterator[tuple[str, str]]:
    """Words and tags of a treebank, in order; of a CoNLL-U file those that have a tag."""
    if not path.exists():
        raise DataError(
            f"{path} does not exist ({WHERE}.treebank; relative paths start at --data-root); correct the path."
        )
    if not path.name.lower().endswith(".parquet"):
        for sentence in read_treebank(path):
            yield from ((word, tag) for word, tag in zip(sentence.words, sentence.tags, strict=True) if tag)
        return
    for words, tags in parquet_rows(path, ("tokens", "upos"), where=f" ({WHERE}.treebank)"):
        yield from zip(words, tags, strict=True)
