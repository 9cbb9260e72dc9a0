"""Our tokenizer as one that transformers loads: the same ids, and special tokens where they stand in a text."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.pre_tokenizers import ByteLevel, Metaspace, Sequence
from tokenizers.processors import TemplateProcessing

from lightning_modules.files import atomic, write_json
from lightning_modules.vocabulary import END, MASK, SPECIAL_TOKENS, START


def write_tokenizer(source: Path, folder: Path, *, max_length: int, segments: bool) -> None:
    """Write our tokenizer as one that knows the special tokens where they stand in a text.

    All other text gets the ids that it gets in training. The mask swallows the space before it, as RoBERTa's does,
    and what stands behind the mask gets no space of its own: the pieces around the mask are those that they are
    around a word.

    Args:
        max_length: longest text in ids, special ones included.
        segments: whether the model reads the number of a token's segment.
    """
    tokenizer = Tokenizer.from_file(str(source))
    # ByteLevel would put a space before all that follows a special token; Metaspace puts one before the text.
    if getattr(tokenizer.pre_tokenizer, "add_prefix_space", False):
        tokenizer.pre_tokenizer = Sequence(
            [Metaspace(replacement=" ", prepend_scheme="first", split=False), ByteLevel(add_prefix_space=False)]
        )
    special = [
        AddedToken(name, lstrip=i == MASK, normalized=False, special=True) for i, name in enumerate(SPECIAL_TOKENS)
    ]
    tokenizer.add_special_tokens(special)
    start, end = SPECIAL_TOKENS[START], SPECIAL_TOKENS[END]
    tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(start, START), (end, END)],
    )
    written = json.loads(tokenizer.to_str())
    with atomic(folder / "tokenizer.json") as temporary:
        temporary.write_text(json.dumps(written, ensure_ascii=False), encoding="utf-8")
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_length,
            "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
            "padding_side": "right",
        }
        | {"added_tokens_decoder": {str(token.pop("id")): token for token in written["added_tokens"]}}
        | dict(zip(names, SPECIAL_TOKENS, strict=True)),
    )
