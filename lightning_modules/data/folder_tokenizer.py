"""The tokenizer of a Hugging Face folder in our numbering: special ids first, then all others in their order. No
torch.

Text is cut into the same pieces as by the folder's own tokenizer. Special tokens that are written in a text are
cut into pieces like any word, as with sub-words of our own. Letters: V our vocabulary.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from lightning_modules.errors import DataError
from lightning_modules.files import sha256
from lightning_modules.vocabulary import END, FIRST_WORD_ID, MASK, PAD, SPECIAL_TOKENS, START, UNKNOWN

FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
)
"""Files that decide how text is cut."""

NAMES = {
    PAD: ("pad_token",),
    UNKNOWN: ("unk_token",),
    START: ("cls_token", "bos_token"),
    END: ("sep_token", "eos_token"),
    MASK: ("mask_token",),
}
"""Names in tokenizer_config.json of each of our special ids, the first that is there."""


class FolderTokenizer(NamedTuple):
    """Tokenizer of a folder, as its files say."""

    folder: Path
    content: Mapping[str, Any]
    """tokenizer.json, or the same made of vocab.txt, or of vocab.json and merges.txt."""
    special: tuple[int | None, ...]
    """Ids in the folder of our special ids, in our order; None for those that it does not have."""

    @property
    def rows(self) -> int:
        """Return one more than the highest id of the folder."""
        added = [token["id"] for token in self.content["added_tokens"]]
        return max(*self.content["model"]["vocab"].values(), *added, -1) + 1

    def order(self, rows: int) -> list[int | None]:
        """Return the folder's id of each of our ids: of the special ids, then of all others below `rows`, rising.

        Args:
            rows: of the table of a model; at least those of the tokenizer.
        """
        taken = set(self.special)
        return [*self.special, *(i for i in range(rows) if i not in taken)]

    def vocab_size(self, rows: int) -> int:
        """Return the number of our ids, V."""
        return len(self.order(rows))

    def renumbered(self, vocab_size: int) -> Tokenizer:
        """Return the tokenizer in our numbering. Ids without a piece, as a model may have more rows than there are
        pieces, get a name with a space, which no text contains as a piece."""
        named = {i for i in self.special if i is not None}
        order = self.order(vocab_size - FIRST_WORD_ID + len(named))
        pieces = {i: piece for piece, i in self.content["model"]["vocab"].items()}
        words = [token for token in self.content["added_tokens"] if not token["special"]]
        ids = {row: i for i, row in enumerate(order) if i >= FIRST_WORD_ID and row is not None}
        added = [token | {"id": ids[token["id"]]} for token in words if token["id"] in ids]
        pieces |= {token["id"]: token["content"] for token in words}
        vocabulary = {name: i for i, name in enumerate(SPECIAL_TOKENS)}
        vocabulary |= {pieces.get(row, f"[row {row}]"): i for row, i in ids.items()}
        model = dict(self.content["model"]) | {"vocab": vocabulary}
        if model.get("unk_token") is not None:
            model["unk_token"] = SPECIAL_TOKENS[UNKNOWN]
        plain = {
            "added_tokens": added,
            "post_processor": None,
            "truncation": None,
            "padding": None,
            "model": model,
        }
        return Tokenizer.from_str(json.dumps(dict(self.content) | plain))


def read_tokenizer(folder: Path) -> FolderTokenizer:
    """Return the tokenizer of a folder.

    Raises:
        DataError: there is none, it cannot be read, or it is of another kind than WordPiece and BPE, or names no
            token for the start or the end of a sentence.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder} is no folder; data.tokenizer must name one with a tokenizer.json or a vocab.txt."
        )
    try:
        config = _config(folder)
        content = _content(folder, config)
        kind = None if content is None else content["model"]["type"]
    except Exception as error:  # what tokenizers raises on a damaged file has no class of its own
        raise DataError(f"{folder}: its tokenizer cannot be read ({error}); copy the folder again.") from error
    if content is None:
        raise DataError(
            f"{folder} has no tokenizer, expected tokenizer.json, vocab.txt, or vocab.json with merges.txt; save "
            f"the model's own there."
        )
    if kind not in ("WordPiece", "BPE"):
        raise DataError(
            f"{folder}: its tokenizer is of the kind {kind}, expected WordPiece or BPE; use another model."
        )
    ids = content["model"]["vocab"] | {token["content"]: token["id"] for token in content["added_tokens"]}
    special = tuple(_special(i, config, ids) for i in range(FIRST_WORD_ID))
    for i, what in ((START, "start"), (END, "end")):
        if special[i] is None:
            raise DataError(
                f"{folder}: its tokenizer names no token for the {what} of a sentence; add "
                f"{' or '.join(NAMES[i])} to tokenizer_config.json."
            )
    return FolderTokenizer(folder, content, special)


def content_of(folder: Path) -> list[tuple[str, str]]:
    """Return name and SHA-256 of every file that decides how text is cut."""
    return [(name, sha256(folder / name)) for name in FILES if (folder / name).is_file()]


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            config |= json.loads((folder / name).read_bytes())
    return config


def _special(i: int, config: Mapping[str, Any], ids: Mapping[str, int]) -> int | None:
    """Return the folder's id of one of our special ids; its name is BERT's where the folder gives none."""
    for name in NAMES[i]:
        token = config.get(name)
        token = token["content"] if isinstance(token, dict) else token
        if isinstance(token, str) and token in ids:
            return ids[token]
    return ids.get(SPECIAL_TOKENS[i])


def _content(folder: Path, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return tokenizer.json, or the same made of older files as the classes of BERT and GPT-2 do; None without
    any."""
    if (folder / "tokenizer.json").is_file():
        content: dict[str, Any] = json.loads((folder / "tokenizer.json").read_bytes())
        return content
    if (folder / "vocab.txt").is_file():
        pieces = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
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
