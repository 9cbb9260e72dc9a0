"""Special ids and sub-words: a byte-level vocabulary trained on the text of a run, or the tokenizer of a
Hugging Face folder.

Vocabularies are trained by byte pair encoding (Sennrich, Haddow and Birch 2016, section 3.2) on UTF-8 bytes,
as in Radford et al. 2019, section 2.2. We differ in three points. Text is brought to Unicode's NFC form
first. A sentence is read as if a space stood before it, so that the first piece of every word begins with
one. And the vocabulary starts from the bytes of the training text instead of all 256, since an embedding that
is never trained only adds noise. Any other byte becomes [UNK], and is counted.

The tokenizer of a folder cuts text into its own pieces, but we number them anew: special ids first, then all
others in their order.

The special tokens are ids and nothing else: "[MASK]" written in a text is cut into pieces like any word.
Letters: V our vocabulary.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from lightning_modules.errors import DataError
from lightning_modules.files import sha256

PAD, UNKNOWN, START, END, MASK = range(5)
"""Special ids: the first ids of every vocabulary, in this order."""

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Names of the special ids. They are BERT's, so that exported models look familiar."""

FIRST_WORD_ID = len(SPECIAL_TOKENS)
"""First id that stands for text; all higher ids do too."""

SPACES = ("▁", "Ġ")
"""Signs that stand for a space at the beginning of a piece: those of Metaspace and of byte-level pieces."""

FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
"""Files of a folder that decide how text is cut."""

LONGEST_PART = 2**16
"""Largest number of bytes between two places where text is always cut, such as spaces. The time of training
grows with the square: 13 seconds for 50,000 bytes, hours for a million."""

_RUNS = re.compile(r"[\S\x1c-\x1f]+|\s+")
"""Runs with and without white space. The characters U+001C to U+001F are white space to Python, but not to the
tokenizer."""

NAMES = {
    PAD: ("pad_token",),
    UNKNOWN: ("unk_token",),
    START: ("cls_token", "bos_token"),
    END: ("sep_token", "eos_token"),
    MASK: ("mask_token",),
}
"""Names of our special ids in tokenizer_config.json; the first one that is there counts."""


def train(texts: Iterable[str], vocab_size: int, *, source: str) -> Tokenizer:
    """Train a vocabulary of exactly `vocab_size` pieces: the special tokens, the bytes, then merges by
    frequency.

    The result depends on how often each word occurs in `texts` and on nothing else: not on order, threads or
    random state.

    Args:
        source: name of the text in the error, such as "the sentences of data.train".

    Raises:
        DataError: the text has too few different words for so many pieces, too many different bytes for so
            few, or a part without spaces that is longer than LONGEST_PART.
    """
    learner = _tokenizer(models.BPE(unk_token=SPECIAL_TOKENS[UNKNOWN]))
    learner.train_from_iterator(
        _checked(texts, source),
        trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(SPECIAL_TOKENS), show_progress=False),
    )
    # The trainer's tokenizer would find special tokens in text. A tokenizer with the model alone does not.
    trained = _tokenizer(learner.model)
    size = trained.get_vocab_size()
    if size > vocab_size:
        raise DataError(
            f"data.vocab_size is {vocab_size:,}, but the special tokens and the different bytes of {source} "
            f"already need {size:,}; raise it to at least {size:,}."
        )
    if size < vocab_size:
        raise DataError(
            f"data.vocab_size is {vocab_size:,}, but {source} give only {size:,} sub-words; lower it to at most "
            f"{size:,}, or give more text."
        )
    assert [trained.id_to_token(i) for i in range(FIRST_WORD_ID)] == list(SPECIAL_TOKENS)
    return trained


def _checked(texts: Iterable[str], source: str) -> Iterator[str]:
    """Yield the texts; a DataError for one that has a part longer than LONGEST_PART."""
    cut = pre_tokenizers.ByteLevel(add_prefix_space=True)
    for text in texts:
        # Only long text is cut here, which is as slow as training: a character has at most four bytes, and a part
        # at most one space before its run.
        if len(text) > LONGEST_PART // 4 and any(
            run.end() - run.start() >= LONGEST_PART // 4 for run in _RUNS.finditer(text)
        ):
            part = max((part for part, _ in cut.pre_tokenize_str(unicodedata.normalize("NFC", text))), key=len)
            if len(part) > LONGEST_PART:
                raise DataError(
                    f"{source} have {len(part):,} bytes without a space in one sentence ({text[:40]!r}...), but "
                    f"at most {LONGEST_PART:,} are possible; put spaces between its words, or remove the sentence."
                )
        yield text


def sub_words_at_least(words: Iterable[str], *, limit: int) -> int:
    """Return a `vocab_size` that `train` can reach with these words: the number of special tokens, bytes and
    words. Parts of a word that are never joined count one by one. A larger size may be possible.

    Args:
        limit: number of words and parts at which counting stops.
    """
    cut, pieces, parts = pre_tokenizers.ByteLevel(add_prefix_space=True), set[str](), set[str]()
    for word in words:
        parts.update(part for part, _ in cut.pre_tokenize_str(unicodedata.normalize("NFC", word)))
        if len(parts) >= limit:
            break
    for part in parts:
        pieces |= {part, *part}
    return FIRST_WORD_ID + len(pieces)


def _tokenizer(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return the ids of every sentence: START, all pieces, END. Nothing is cut off."""
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [[START, *encoding.ids, END] for encoding in encodings]


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Return the text of a sentence's ids, up to END if it occurs; special ids are left out.

    This is the text that was encoded, up to NFC, if every byte was known.
    """
    pieces = [int(i) for i in takewhile(lambda i: i != END, ids) if i >= FIRST_WORD_ID]
    return tokenizer.decode(pieces, skip_special_tokens=False).removeprefix(" ")


def starts_word(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return a mask of the pieces that begin a word: one boolean for each id, False for special ids.

    Words are separated by spaces, and a sentence has exactly as many such pieces as words. Tokenizers of
    folders may differ. For WordPiece each punctuation mark is a word, as in BERT's whole-word masking, and
    UNKNOWN stands for a whole word, which it begins. A GPT-2 tokenizer may put no space before a sentence;
    its first word then has no such piece, so `word_starts` knows it by its place.
    """
    inside = getattr(tokenizer.model, "continuing_subword_prefix", None) or None
    starts_V = np.zeros(tokenizer.get_vocab_size(), dtype=np.bool_)
    space = _space_of(tokenizer.get_vocab()) or SPACES[-1]
    for piece, i in tokenizer.get_vocab().items():
        begins = piece.startswith(space) if inside is None else not piece.startswith(inside)
        starts_V[i] = i >= FIRST_WORD_ID and begins
    starts_V[UNKNOWN] = isinstance(tokenizer.model, models.WordPiece)
    return starts_V


def word_starts(
    ids_N: NDArray[np.integer], starts_V: NDArray[np.bool_], *, first_N: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which tokens begin a word, shape N: the pieces that begin one, and the first piece of a sentence,
    before which some tokenizers put no space (GPT-2's).

    Args:
        starts_V: mask of the ids that begin a word, as `starts_word` returns it.
        first_N: mask of the tokens after START.
    """
    return starts_V[ids_N] | (first_N & ((ids_N >= FIRST_WORD_ID) | (ids_N == UNKNOWN)))


def space_before(tokenizer: Tokenizer) -> str:
    """Return what must stand before a word so that it is cut as inside a sentence: a space if only a space in
    the text makes a piece that begins with one, as for GPT-2, and otherwise nothing."""
    alone, after_space = ("".join(tokenizer.encode(text, add_special_tokens=False).tokens) for text in ("a", " a"))
    return " " if after_space.startswith(SPACES) and not alone.startswith(SPACES) else ""


def _space_of(pieces: Iterable[str]) -> str | None:
    """Return the one of `SPACES` that the pieces are written with; None if no piece begins with one.

    Byte-level pieces never have the sign of Metaspace. Metaspace pieces may have that of byte-level ones,
    which is a letter of Maltese.
    """
    return next((space for space in SPACES if any(piece.startswith(space) for piece in pieces)), None)


def is_punctuation(tokenizer: Tokenizer, *, or_space: bool = False) -> NDArray[np.bool_]:
    """Return a mask of the pieces of which all characters are what Unicode calls punctuation: one boolean for
    each id, False for special ids.

    Symbols such as + and $ are none, and neither are vowel signs, which follow a letter in the scripts of India.

    Args:
        or_space: whether a piece that is only a space counts too.
    """
    V = tokenizer.get_vocab_size()
    texts = tokenizer.decode_batch([[i] for i in range(V)], skip_special_tokens=False)
    # A part of a character decodes to U+FFFD, which is a symbol: it may be a part of a letter.
    kinds = [{unicodedata.category(c)[0] for c in text.strip()} for text in texts]
    return np.array([i >= FIRST_WORD_ID and (kinds[i] == {"P"} or (or_space and not kinds[i])) for i in range(V)])


_BRACKETS = pre_tokenizers.Split(Regex(r"\[(?=(PAD|UNK|CLS|SEP|MASK)\])"), "isolated")
"""Cut after the first bracket of a special token's name in a text."""


class FolderTokenizer(NamedTuple):
    """Tokenizer of a Hugging Face folder, as its files describe it."""

    folder: Path
    content: Mapping[str, Any]
    """Content of tokenizer.json, or the same made of vocab.txt, or of vocab.json and merges.txt."""
    special: tuple[int | None, ...]
    """The folder's ids of our special ids, in our order; None for those that it lacks."""

    @property
    def rows(self) -> int:
        """Return one more than the highest id of the folder."""
        added = [token["id"] for token in self.content["added_tokens"]]
        return max(*self.content["model"]["vocab"].values(), *added, -1) + 1

    def without_row(self) -> tuple[int, ...]:
        """Return our special ids that have no row of their own in the folder. Of several ids that share a row, one
        has it: END or UNKNOWN, if they are among them, since these two may have to be predicted."""
        owner = {self.special[i]: i for i in (MASK, START, PAD, UNKNOWN, END)}  # the last of several stays
        owners = {i for row, i in owner.items() if row is not None}
        return tuple(i for i in range(FIRST_WORD_ID) if i not in owners)

    def order(self, rows: int) -> list[int | None]:
        """Return the folder's id for each of our ids: first for the special ids, then for all others below
        `rows`, rising. None stands for a special id that the folder lacks.

        Args:
            rows: rows of the embedding table of a model; at least those of the tokenizer.
        """
        taken = set(self.special)
        return [*self.special, *(i for i in range(rows) if i not in taken)]

    def vocab_size(self, rows: int) -> int:
        """Return V, the number of our ids, for a model with so many rows."""
        return len(self.order(rows))

    def renumbered(self, vocab_size: int) -> Tokenizer:
        """Return the tokenizer with our ids.

        Some ids have no piece of a text: a model may have more rows than there are pieces, and a piece may be
        named like one of our special tokens. They get names with a space, which no text contains as a piece.
        Merges that make a special token are left out, as special tokens are never read in a text. If the
        tokenizer looks up whole words, the bracket before such a name becomes a word of its own.
        """
        named = {i for i in self.special if i is not None}
        order = self.order(vocab_size - FIRST_WORD_ID + len(named))
        pieces = {i: piece for piece, i in self.content["model"]["vocab"].items()}
        added_words = (token for token in self.content["added_tokens"] if not token["special"])
        words = [token for token in added_words if token["content"] not in SPECIAL_TOKENS]
        ids = {row: i for i, row in enumerate(order) if i >= FIRST_WORD_ID and row is not None}
        added = [token | {"id": ids[token["id"]]} for token in words if token["id"] in ids]
        pieces |= {token["id"]: token["content"] for token in words}
        vocabulary = {name: i for i, name in enumerate(SPECIAL_TOKENS)}
        without_piece = {row for row in ids if pieces.get(row, SPECIAL_TOKENS[0]) in SPECIAL_TOKENS}
        vocabulary |= {f"[row {row}]" if row in without_piece else pieces[row]: i for row, i in ids.items()}
        model = dict(self.content["model"]) | {"vocab": vocabulary}
        if "merges" in model:
            pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
            kept, prefix = vocabulary.keys() - set(SPECIAL_TOKENS), model.get("continuing_subword_prefix") or ""
            model["merges"] = [[a, b] for a, b in pairs if {a, b, a + b.removeprefix(prefix)} <= kept]
        if model.get("unk_token") is not None:
            model["unk_token"] = SPECIAL_TOKENS[UNKNOWN]
        plain = {
            "added_tokens": added,
            "post_processor": None,
            "truncation": None,
            "padding": None,
            "model": model,
        }
        tokenizer = Tokenizer.from_str(json.dumps(dict(self.content) | plain))
        names = tokenizer.encode_batch(list(SPECIAL_TOKENS))
        if any(i < FIRST_WORD_ID and i != UNKNOWN for name in names for i in name.ids):
            given = [] if tokenizer.pre_tokenizer is None else [tokenizer.pre_tokenizer]
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([_BRACKETS, *given])
        return tokenizer


def read_tokenizer(folder: Path) -> FolderTokenizer:
    """Return the tokenizer of a folder.

    Raises:
        DataError: there is no tokenizer, it cannot be read, it is neither WordPiece nor BPE, its pieces do not
            show where a word begins or hold more than one, or it names no token for the start or the end of a
            sentence.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder; set data.tokenizer to a folder with a tokenizer.json or a vocab.txt."
        )
    try:
        config = _config(folder)
        content = _content(folder, config)
        kind = None if content is None else content["model"]["type"]
    except (KeyError, TypeError, AttributeError) as error:  # JSON of another kind of file
        raise DataError(
            f"{folder}: tokenizer.json or tokenizer_config.json does not have the form that Hugging Face writes; "
            "save the tokenizer again with `save_pretrained` of transformers."
        ) from error
    except Exception as error:  # `tokenizers` has no class of its own for a damaged file
        raise DataError(f"{folder}: its tokenizer cannot be read ({error}); copy the folder again.") from error
    if content is None:
        raise DataError(
            f"{folder} has no tokenizer, expected tokenizer.json, vocab.txt, or vocab.json with merges.txt; "
            "save the model's own tokenizer in this folder."
        )
    if kind not in ("WordPiece", "BPE"):
        raise DataError(
            f"{folder}: its tokenizer is of type {kind}, expected WordPiece or BPE; use another tokenizer."
        )
    ids = content["model"]["vocab"] | {token["content"]: token["id"] for token in content["added_tokens"]}
    special = tuple(_special(i, config, ids) for i in range(FIRST_WORD_ID))
    for i, border in ((START, "start"), (END, "end")):
        if special[i] is None:
            raise DataError(
                f"{folder}: its tokenizer has no token for the {border} of a sentence; in tokenizer_config.json "
                f"name a token of its vocabulary as {' or '.join(NAMES[i])}."
            )
    marked = content["model"].get("continuing_subword_prefix") or _space_of(content["model"]["vocab"]) is not None
    if content["model"].get("end_of_word_suffix") or not marked:
        raise DataError(
            f"{folder}: the pieces of its tokenizer do not mark where a word begins, expected "
            f"{' or '.join(SPACES)} before the first piece of a word; use another tokenizer."
        )
    if (piece := _of_two_words(content["model"])) is not None:
        raise DataError(
            f"{folder}: the piece {piece!r} of its tokenizer goes beyond the end of a word, expected pieces of "
            "one word; use another tokenizer, or train it with a pre-tokenizer that cuts at spaces."
        )
    return FolderTokenizer(folder, content, special)


def _of_two_words(model: Mapping[str, Any]) -> str | None:
    """Return a piece with a space after a character of a word; None if there is none."""
    space = None if model.get("continuing_subword_prefix") else _space_of(model["vocab"])
    if space is None:
        return None
    decoder = decoders.Replace(space, " ") if space == SPACES[0] else decoders.ByteLevel()
    inside = (piece for piece in model["vocab"] if space in piece.lstrip(space))
    return next((piece for piece in inside if re.search(r"\S ", decoder.decode([piece]))), None)


def content_of(folder: Path) -> list[tuple[str, str]]:
    """Return the name and the SHA-256 of every file that decides how text is cut."""
    return [(name, sha256(folder / name)) for name in FILES if (folder / name).is_file()]


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            config |= json.loads((folder / name).read_bytes())
    return config


def _special(i: int, config: Mapping[str, Any], ids: Mapping[str, int]) -> int | None:
    """Return the folder's id for one of our special ids, by the folder's name for it or else by BERT's; None
    if there is none."""
    for name in NAMES[i]:
        token = config.get(name)
        token = token["content"] if isinstance(token, dict) else token
        if isinstance(token, str) and token in ids:
            return ids[token]
    return ids.get(SPECIAL_TOKENS[i])


def _content(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of tokenizer.json, or the same made of older files as the classes of BERT and GPT-2
    do it; None if there are no such files."""
    if (folder / "tokenizer.json").is_file():
        content: dict[str, Any] = json.loads((folder / "tokenizer.json").read_bytes())
        if "type" not in content["model"]:  # as in GPT-2's folder; the library finds the type by itself
            content = json.loads(Tokenizer.from_str(json.dumps(content)).to_str())
        return content
    if (folder / "vocab.txt").is_file():
        # Only line feeds end a line here, because a piece may be another separator, such as U+2028.
        pieces = (folder / "vocab.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=config.get("do_lower_case", True),
            strip_accents=config.get("strip_accents"),
            handle_chinese_chars=config.get("tokenize_chinese_chars", True),
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=config.get("add_prefix_space", False))
        tokenizer.decoder = decoders.ByteLevel()
    else:
        return None
    content = json.loads(tokenizer.to_str())
    return content
