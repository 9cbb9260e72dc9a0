"""Sub-words: byte-level byte pair encoding (Sennrich, Haddow and Birch 2016, section 3.2, on UTF-8 bytes as
in Radford et al. 2019, section 2.2), trained on the text of a run.

Where we differ from Radford et al.: text is brought to Unicode's NFC form first; a sentence is read as if a
space stood before it, so that the first piece of every word begins with one; and the vocabulary starts from
the bytes that the training text has instead of all 256, since an embedding that is never trained only adds
noise. A byte it lacks becomes [UNK], and is counted.

The special tokens are ids and nothing else: "[MASK]" written in a text is cut into pieces like any word.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.normalizers import NFC
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from lightning_modules.errors import DataError
from lightning_modules.vocabulary import END, FIRST_WORD_ID, SPECIAL_TOKENS, START, UNKNOWN

_SPACE = "Ġ"  # how byte-level pieces write the byte of a space


def train(texts: Iterable[str], vocab_size: int, *, what: str) -> Tokenizer:
    """Train a vocabulary of exactly `vocab_size` pieces: the special tokens, the bytes, then merges by frequency.

    Depends on how often each word occurs in `texts` and on nothing else: neither order, nor threads, nor
    random state.

    Args:
        what: name of the text in the error, such as "the sentences of data.train".

    Raises:
        DataError: the text has too few different words for so many pieces, or too many different bytes for so few.
    """
    learner = _tokenizer(BPE(unk_token=SPECIAL_TOKENS[UNKNOWN]))
    learner.train_from_iterator(
        texts, BpeTrainer(vocab_size=vocab_size, special_tokens=list(SPECIAL_TOKENS), show_progress=False)
    )
    # The trainer registers the special tokens so that they are found in text; the model alone does not know
    # them as such.
    trained = _tokenizer(learner.model)
    size = trained.get_vocab_size()
    if size > vocab_size:
        raise DataError(
            f"data.vocab_size is {vocab_size:,}, but the special tokens and the different bytes of {what} are "
            f"{size:,} sub-words already; raise it to at least that."
        )
    if size < vocab_size:
        raise DataError(
            f"data.vocab_size is {vocab_size:,}, but {what} give only {size:,} sub-words; lower it to at most "
            f"that, or give more text."
        )
    assert [trained.id_to_token(i) for i in range(FIRST_WORD_ID)] == list(SPECIAL_TOKENS)
    return trained


def _tokenizer(model: BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True)
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Return START, pieces, END for every sentence, whole."""
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
    return [[START, *encoding.ids, END] for encoding in encodings]


def decode(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """Return the text of a sentence's ids, up to END if it occurs; special ids are left out.

    Gives back what was encoded, up to NFC, where every byte was known.
    """
    pieces = [int(i) for i in takewhile(lambda i: i != END, ids) if i >= FIRST_WORD_ID]
    return tokenizer.decode(pieces, skip_special_tokens=False).removeprefix(" ")


def starts_word(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return which pieces begin a word (what stands between spaces): one boolean for each id, False for special
    ones.

    A sentence has exactly as many such pieces as words. Two tokenizers from elsewhere differ: to WordPiece each
    punctuation mark is a word, as in BERT's whole-word masking; and the first word of a sentence has no such piece
    where GPT-2's puts no space before it.
    """
    inside = getattr(tokenizer.model, "continuing_subword_prefix", None) or None
    starts_V = np.zeros(tokenizer.get_vocab_size(), dtype=np.bool_)
    for piece, i in tokenizer.get_vocab().items():
        begins = piece.startswith(_SPACE) if inside is None else not piece.startswith(inside)
        starts_V[i] = i >= FIRST_WORD_ID and begins
    return starts_V


def is_punctuation(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return which pieces have neither letter nor digit nor a part of one: one boolean for each id, False for
    special ones."""
    V = tokenizer.get_vocab_size()
    texts = tokenizer.decode_batch([[i] for i in range(V)], skip_special_tokens=False)
    # A part of a character decodes to U+FFFD, which says nothing about what it is a part of.
    mute = [not any(c.isalnum() or c == "\ufffd" for c in text) for text in texts]
    return np.array([i >= FIRST_WORD_ID and mute[i] for i in range(V)])
