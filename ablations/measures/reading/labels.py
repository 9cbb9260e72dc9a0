r"""Labels of words, for each token occurrence that a measure reads. No torch.

Labels are `tag` (universal part of speech), `relation` (to the head), `left_part` and `right_part` (syntactic
links of a word on either side) and `sense` (which of two lemmas a form of the built-in language belongs to).
A word counts once: its first sub-word has its labels, and the others have none. Only words of one sub-word
have a sense, so that occurrences of a sub-word differ in sense alone and not in form.

The parts stand in for those of CCG supertags in Voita et al. 2019 (https://arxiv.org/abs/1909.01380, section
6.2), because treebanks of Universal Dependencies have no supertags. A supertag says what a word combines with
on either side: (S\NP)/NP is a sentence that lacks a noun phrase on its left and one on its right. The
relations of a word's dependents say the same, and so does its own relation, on the side of its head. Unlike
in CCG, modifiers count, and a punctuation mark has a relation to its head.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from ablations.errors import MeasureError
from ablations.measures.reading.alignment import NO_WORD, UNSPACED, align
from ablations.measures.reading.sample import NO_LABEL
from ablations.wording import shown
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import END, SPACES, START
from lightning_modules.data.treebank import ROOT, LabelledSentence

NOTHING = "-"
"""Name of a part without links."""

JOINED: Final = rf"{UNSPACED}|[\u3001-\u303f\uff01-\uff9f]"
"""Pattern of a character before which no space stands inside a sentence: one of a script without spaces, or the
punctuation and the letters of full or half width of such scripts."""

NEUTRAL: Final = "1"
"""Character that sub-words seldom join with a letter after it."""

Span = tuple[int, int]
"""Place in the text of a sub-word's first character, and the place after its last."""


class Labels(NamedTuple):
    """Labels of token occurrences. A label that no occurrence has is left out."""

    codes: Mapping[str, NDArray[np.int64]]
    """Code of each occurrence, by label; NO_LABEL if it has none."""
    names: Mapping[str, tuple[str, ...]]
    """Meanings of the codes, by label, in alphabetical order."""


# Words -----------------------------------------------------------------------------------------------


def word_labels(sentence: LabelledSentence) -> dict[str, list[str]]:
    """Return every label of every word, by name of the label; an empty text if a word has none."""
    relations = [relation.partition(":")[0] for relation in sentence.relations]
    left, right = parts(sentence.heads, relations)
    senses = zip(sentence.words, sentence.senses, strict=True)
    return {
        "tag": list(sentence.tags),
        "relation": relations,
        "left_part": left,
        "right_part": right,
        "sense": ["" if sense is None else f"{word} {sense}" for word, sense in senses],
    }


def parts(heads: Sequence[int | None], relations: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the syntactic links of each word on its left and on its right, such as "^obj det" for an object
    with a determiner.

    First comes the word's own relation, marked ^, if its head stands on that side. Then come the relations of
    its dependents there, in the order of the sentence. Punctuation among the dependents is left out, because
    CCG categories say nothing about it. A side without links is "-". All sides are "" if a head or relation of the
    sentence is not known.
    """
    with_head = [(word, head) for word, head in enumerate(heads) if head is not None]
    if len(with_head) < len(heads) or "" in relations:
        return [""] * len(heads), [""] * len(heads)
    attached = [(word, head) for word, head in with_head if head != ROOT]
    left: list[list[str]] = [[] for _ in heads]
    right: list[list[str]] = [[] for _ in heads]
    for word, head in attached:
        (left if head < word else right)[word].append("^" + relations[word])
    for word, head in attached:
        if relations[word] != "punct":
            (right if head < word else left)[head].append(relations[word])
    return [" ".join(links) or NOTHING for links in left], [" ".join(links) or NOTHING for links in right]


# Tokens ----------------------------------------------------------------------------------------------


def token_labels(
    sentences: Sequence[LabelledSentence], spans: Iterable[Sequence[Span]], *, length: int | None = None
) -> Labels:
    """Return the labels of the sub-words of some sentences, one sentence after the other.

    Args:
        spans: for each sentence, the characters of its `text` that each sub-word stands for (see `spans_of`).
        length: largest number of sub-words of a sentence, where it is cut. Default: all.

    Raises:
        MeasureError: a sentence does not have the words of its text.
    """
    by_name: dict[str, list[str]] = {}
    for number, (sentence, spans_T) in enumerate(zip(sentences, spans, strict=True), start=1):
        word_T = align(sentence.text, sentence.forms, spans_T, where=sentence.where or f"sentence {number}")
        labelled_T = np.where(first_sub_words(word_T), word_T, len(sentence.words))
        words, sub_words = np.unique(word_T, return_counts=True)
        alone_T = np.where(np.isin(word_T, words[sub_words == 1]), labelled_T, len(sentence.words))
        for name, label_W in word_labels(sentence).items():
            place_T = (alone_T if name == "sense" else labelled_T)[:length]
            by_name.setdefault(name, []).extend(map([*label_W, ""].__getitem__, place_T.tolist()))
    codes, names = {}, {}
    for name, label_N in by_name.items():
        distinct = sorted({label for label in label_N if label})
        if distinct:
            code = {"": NO_LABEL} | {label: i for i, label in enumerate(distinct)}
            codes[name] = np.array([code[label] for label in label_N], dtype=np.int64)
            names[name] = tuple(distinct)
    return Labels(codes, names)


def first_sub_words(word_T: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which sub-words of a sentence are the first of their word."""
    first_T = np.zeros(len(word_T), dtype=np.bool_)
    first_T[np.unique(word_T, return_index=True)[1]] = True
    return first_T & (word_T != NO_WORD)


def spans_of(encoding: Encoding, text: str) -> list[Span]:
    """Return the characters of the text that each piece of an encoding stands for; an empty span for special
    tokens.

    It works for our tokenizer and the fast ones of Hugging Face. A piece that is only the space before a word
    also has an empty span. (The space before the first word is not in the text, and the tokenizer gives it
    the word's first character.)
    """
    return [
        (0, 0) if special or (piece in SPACES and text[start:end] != piece) else (start, end)
        for piece, (start, end), special in zip(
            encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True
        )
    ]


def spaced_word(space: str, word: str) -> str:
    """Return a word as it is read inside a sentence, where a space stands before letters and digits, and none
    before punctuation.

    Args:
        space: `space_before` of the tokenizer.
    """
    return space * word[:1].isalnum() + word


def joined_words(
    words: Iterable[tuple[str, str]], tokenizer: Tokenizer
) -> dict[tuple[str, str], tuple[list[int], list[Span]]]:
    """Return words that follow another without a space (`JOINED`), as they are cut there: the ids of their
    sub-words, and the characters of the word that each stands for.

    A word is cut behind the word before it. If a sub-word holds the end of that one and the beginning of this one,
    it is cut behind `NEUTRAL`. If this does not help either, or if the sub-words begin with a space, the word is
    left out.

    Args:
        words: each word, behind the word before it.
    """
    cut = {}
    left = list(dict.fromkeys(words))
    for neutral in ("", NEUTRAL):
        texts = [(neutral or before) + word for before, word in left]
        encodings = tokenizer.encode_batch(texts, add_special_tokens=False)
        for pair, text, encoding in zip(left, texts, encodings, strict=True):
            border = len(text) - len(pair[1])
            inside = [i for i, (_, end) in enumerate(encoding.offsets) if end > border]
            spans = [(encoding.offsets[i][0] - border, encoding.offsets[i][1] - border) for i in inside]
            if spans and spans[0][0] >= 0 and not encoding.tokens[inside[0]].startswith(SPACES):
                cut[pair] = [encoding.ids[i] for i in inside], spans
        left = [pair for pair in left if pair not in cut]
    return cut


# Splits ----------------------------------------------------------------------------------------------


def labelled_split(
    sentences: Sequence[LabelledSentence], tokenizer: Tokenizer, *, max_length: int
) -> tuple[Split, Labels]:
    """Return the split of a token store that these sentences make, and the labels of its text tokens in
    order.

    Each sentence is a document of its own, made of START, pieces and END. A sentence of more than
    `max_length` tokens is cut, as in a token store.

    Raises:
        MeasureError: a sentence does not have the words of its text.
    """
    encodings = tokenizer.encode_batch([sentence.text for sentence in sentences], add_special_tokens=False)
    ids = [[START, *encoding.ids[: max_length - 2], END] for encoding in encodings]
    split = Split.of_sentences(ids, vocab_size=tokenizer.get_vocab_size())
    spans = (spans_of(*both) for both in zip(encodings, (sentence.text for sentence in sentences), strict=True))
    return split, token_labels(sentences, spans, length=max_length - 2)


def labels_of_split(
    split: Split, sentences: Sequence[LabelledSentence], tokenizer: Tokenizer, *, max_length: int
) -> Labels:
    """Return the labels of a split's text tokens, in order. The split must hold the first of the labelled
    sentences.

    Raises:
        MeasureError: a sentence of the split is missing or differs, or does not have the words of its text.
    """
    labelled, labels = labelled_split(sentences[: len(split)], tokenizer, max_length=max_length)
    for i in range(len(split)):
        if i == len(labelled) or not np.array_equal(labelled.sentence(i), split.sentence(i)):
            difference = f"is {shown(sentences[i].text, 80)}" if i < len(labelled) else "is missing"
            raise MeasureError(
                f"the labels are of another text: sentence {i + 1} with labels {difference}, expected the "
                "sentence of the tokens; give labels of this text."
            )
    return labels


# A text and its labels -------------------------------------------------------------------------------


def with_texts(
    sentences: Sequence[LabelledSentence], texts: Sequence[str], *, labels_from: str, texts_from: str
) -> list[LabelledSentence]:
    """Return the labelled sentences with their texts from another source, which may differ in white space.

    Args:
        labels_from: name of the source of the sentences, for errors.
        texts_from: name of the source of the texts.

    Raises:
        MeasureError: a text differs in more than white space, or one source has more sentences.
    """
    for number, (sentence, text) in enumerate(zip(sentences, texts, strict=False), start=1):
        if _without_spaces(sentence.text) != _without_spaces(text):
            raise MeasureError(
                f"{labels_from} has labels of another text than {texts_from}: sentence {number} is "
                f"{shown(sentence.text, 80)} in the labels and {shown(text, 80)} in the text; give labels of "
                "these sentences in this order."
            )
    if len(sentences) != len(texts):
        raise MeasureError(
            f"{labels_from} has {len(sentences):,} sentences and {texts_from} has {len(texts):,}, which are the "
            "same up to the end of the shorter file; give labels of all sentences and no others."
        )
    return [sentence._replace(text=text) for sentence, text in zip(sentences, texts, strict=True)]


def _without_spaces(text: str) -> str:
    return "".join(unicodedata.normalize("NFC", text).split())
