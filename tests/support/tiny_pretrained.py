"""Tiny folders of BERT and GPT-2 with heads, random weights and tokenizers whose special ids stand anywhere."""

import json
from pathlib import Path
from string import ascii_lowercase, digits
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lightning_modules.config import RunSettings
from lightning_modules.pretrained.folder import with_folder

BERT_PIECES = [
    *("[unused0]", "[UNK]", *ascii_lowercase, "[CLS]", ".", "[MASK]", *digits, "[SEP]"),
    *(f"##{letter}" for letter in ascii_lowercase + digits),
    *("[PAD]", "##an", "the"),
]
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
END_OF_TEXT = "<|endoftext|>"


def perturbed(model: Any) -> Any:
    """Move all weights, so that no norm or bias is that of a fresh model."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def bert(folder: Path, *, of: str = "BertForMaskedLM", **changes: Any) -> Any:
    """Write a BERT with vocab.txt, three rows more than pieces; returns the stock model."""
    import transformers

    size = {"vocab_size": len(BERT_PIECES) + 3, "max_position_embeddings": 40}
    settings = SHAPE | size | {"pad_token_id": BERT_PIECES.index("[PAD]")} | changes
    model = perturbed(getattr(transformers, of)(transformers.BertConfig(**settings)))
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(BERT_PIECES) + "\n")
    return model


def gpt2(folder: Path, *, word_pieces: bool = False, **changes: Any) -> Any:
    """Write a GPT-2 with a byte-level tokenizer.json and one special token; returns the stock model.

    Args:
        word_pieces: whether it has the vocab.txt of BERT instead, with all special tokens.
    """
    import transformers

    made = bytes_tokenizer()
    rows = len(BERT_PIECES) if word_pieces else made.get_vocab_size()
    size = {"vocab_size": rows, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
    end = rows - 2
    config = transformers.GPT2Config(**size | changes, bos_token_id=end, eos_token_id=end)
    model = perturbed(transformers.GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    if word_pieces:
        (folder / "vocab.txt").write_text("\n".join(BERT_PIECES) + "\n")
        return model
    made.save(str(folder / "tokenizer.json"))
    names = {f"{name}_token": END_OF_TEXT for name in ("unk", "bos", "eos")}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return model


def bytes_tokenizer() -> Tokenizer:
    """Every byte, one merge, and GPT-2's only special token."""
    pieces = [*sorted(pre_tokenizers.ByteLevel.alphabet()), END_OF_TEXT, "an"]
    made = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, [("a", "n")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([END_OF_TEXT])
    return made


OBJECTIVES = {"bert": "masked_lm", "gpt2": "causal_lm"}


def resolved(root: Path, family: str, *, path: str | None = None, **sections: Any) -> RunSettings:
    """Return the settings of a run that starts from ROOT/<family>, or from another path under ROOT.

    Args:
        sections: laid over data, encoder, objective, training and init.
    """
    text = {"kind": "files", "train": "train.tsv", "validation": "validation.tsv", "max_length": 24}
    written = {
        "data": text,
        "encoder": {},
        "objective": {"kind": OBJECTIVES[family]},
        "training": {"max_steps": 4, "tokens_per_step": 128},
        "init": {"kind": "hugging_face", "path": str(root / (path or family))},
    }
    laid_over = {name: content | sections.get(name, {}) for name, content in written.items()}
    return with_folder(RunSettings.model_validate(laid_over | {"seed": 0}), root)
