"""Hugging Face folders of every family, with random weights and a tokenizer of the alphabet."""

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

WIDTH, LAYERS, POSITIONS = 16, 3, 40
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = tuple("abcdefghijklmnopqrstuvwxyz")
VOCABULARY = 40  # more than there are tokens, as in many models

_USUAL = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": POSITIONS,
}
_GPT = {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 2, "n_positions": POSITIONS}
_T5 = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": LAYERS, "num_heads": 2}
_BART = {
    "vocab_size": VOCABULARY,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
_GROUPED = _USUAL | {"num_key_value_heads": 2, "head_dim": 8}
_GPT_NEO = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_layers": LAYERS, "num_heads": 2} | {
    "attention_types": [[["global", "local", "global"], 1]],
    "window_size": 4,
    "max_position_embeddings": POSITIONS,
}
_BLOOM = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": 2}
_XLM = {"vocab_size": VOCABULARY, "emb_dim": WIDTH, "n_layers": LAYERS, "n_heads": 2} | {
    "max_position_embeddings": POSITIONS,
    "mask_token_id": 4,
}
_DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
_DISTIL = {"vocab_size": VOCABULARY, "dim": WIDTH, "n_layers": LAYERS, "n_heads": 2, "hidden_dim": 32}


class Family(NamedTuple):
    """What a test knows of an architecture that the code has to find out."""

    config: str
    """Its class, less "Config"."""
    settings: dict[str, Any]
    blocks: str
    """The blocks of the encoder, by the name of their list."""
    longest: int | None = POSITIONS


FAMILIES = {
    "bert": Family("Bert", _USUAL, "encoder.layer"),
    "roberta": Family("Roberta", _USUAL, "encoder.layer", longest=POSITIONS - 1),
    "distilbert": Family("DistilBert", _DISTIL | {"max_position_embeddings": POSITIONS}, "transformer.layer"),
    "electra": Family("Electra", _USUAL | {"embedding_size": 8}, "encoder.layer"),
    "albert": Family("Albert", _USUAL | {"embedding_size": 8}, "encoder.albert_layer_groups"),
    "xlm-roberta": Family("XLMRoberta", _USUAL, "encoder.layer", longest=POSITIONS - 1),
    "camembert": Family("Camembert", _USUAL, "encoder.layer", longest=POSITIONS - 1),
    "mpnet": Family("MPNet", _USUAL | {"pad_token_id": 1}, "encoder.layer", longest=POSITIONS - 2),
    "deberta-v2": Family("DebertaV2", _USUAL | _DEBERTA, "encoder.layer"),
    "modernbert": Family("ModernBert", _USUAL, "layers"),
    "gpt2": Family("GPT2", _GPT, "h"),
    "gpt_neox": Family("GPTNeoX", _USUAL, "layers"),
    "t5": Family("T5", _T5, "block", longest=None),
    "bart": Family("Bart", _BART, "layers"),
    "marian": Family("Marian", _BART, "layers"),
    "longformer": Family(
        "Longformer", _USUAL | {"attention_window": [4] * LAYERS}, "encoder.layer", longest=POSITIONS - 1
    ),
    "roformer": Family("RoFormer", _USUAL, "encoder.layer"),
    "xlm": Family("XLM", _XLM, "layer_norm2"),
    "xlm-roberta-xl": Family("XLMRobertaXL", _USUAL, "encoder.layer", longest=POSITIONS - 1),
    "roberta-prelayernorm": Family("RobertaPreLayerNorm", _USUAL, "encoder.layer", longest=POSITIONS - 1),
    "esm": Family("Esm", _USUAL | {"position_embedding_type": "rotary", "mask_token_id": 4}, "encoder.layer"),
    "starcoder2": Family("Starcoder2", _USUAL | {"num_key_value_heads": 2, "sliding_window": None}, "layers"),
    "llama": Family("Llama", _USUAL, "layers"),
    "eurobert": Family("EuroBert", _USUAL, "layers"),
    "deberta": Family("Deberta", _USUAL | _DEBERTA, "encoder.layer"),
    "ernie": Family("Ernie", _USUAL, "encoder.layer"),
    "data2vec-text": Family("Data2VecText", _USUAL, "encoder.layer", longest=POSITIONS - 1),
    "megatron-bert": Family("MegatronBert", _USUAL, "encoder.layer"),
    "rembert": Family(
        "RemBert", _USUAL | {"input_embedding_size": 8, "output_embedding_size": 8}, "encoder.layer"
    ),
    "mt5": Family("MT5", _T5, "block", longest=None),
    "umt5": Family("UMT5", _T5, "block", longest=None),
    "mbart": Family("MBart", _BART, "layers"),
    "m2m_100": Family("M2M100", _BART, "layers"),
    "gpt_neo": Family("GPTNeo", _GPT_NEO, "h"),
    "gptj": Family("GPTJ", _GPT | {"rotary_dim": 4}, "h"),
    "bloom": Family("Bloom", _BLOOM, "h", longest=None),
    "mistral": Family("Mistral", _GROUPED, "layers"),
    "qwen2": Family("Qwen2", _GROUPED, "layers"),
    "qwen3": Family("Qwen3", _GROUPED, "layers"),
    "olmo": Family("Olmo", _GROUPED, "layers"),
    "olmo2": Family("Olmo2", _GROUPED, "layers"),
    "gemma": Family("Gemma", _GROUPED, "layers"),
    "gemma2": Family("Gemma2", _GROUPED, "layers"),
    "gemma3_text": Family("Gemma3Text", _GROUPED, "layers"),
    "phi3": Family("Phi3", _USUAL, "layers"),
    "smollm3": Family("SmolLM3", _GROUPED, "layers"),
}


def tokenizer(**options: Any) -> Any:
    """Letters are tokens, everything else is unknown; [CLS] and [SEP] stand around a sentence."""
    import transformers

    ids = {word: i for i, word in enumerate((*SPECIAL, *WORDS))}
    made = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
    )
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names | options)


def byte_level_tokenizer() -> Any:
    """Every byte is a token, and stays one; the special tokens are RoBERTa's."""
    import transformers

    special = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
    ids = {piece: i for i, piece in enumerate((*special, *sorted(pre_tokenizers.ByteLevel.alphabet())))}
    made = Tokenizer(models.BPE(ids, [], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", ids["<s>"]), ("</s>", ids["</s>"])]
    )
    names = dict(zip(("pad_token", "unk_token", "bos_token", "eos_token", "mask_token"), special, strict=True))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


def model(family: str, **changes: Any) -> Any:
    """A model with all weights drawn at random, those of norms too, without a head."""
    import transformers

    settings = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3} | FAMILIES[family].settings | changes
    config = getattr(transformers, f"{FAMILIES[family].config}Config")(**settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        made = transformers.AutoModel.from_config(config)
        with torch.no_grad():
            for parameter in filter(lambda parameter: parameter.requires_grad, made.parameters()):
                parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def save(folder: Path, family: str = "bert", **changes: Any) -> Path:
    """A folder with such a model and the tokenizer."""
    model(family, **changes).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def sentences(count: int, *, seed: int = 0, longest: int = 20) -> list[str]:
    """Letters by a Zipf law, now and then a word that the tokenizer does not know."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, len(WORDS) + 2)
    draw = (
        rng.choice([*WORDS, "what?"], rng.integers(1, longest), p=weights / weights.sum()) for _ in range(count)
    )
    return [" ".join(words) for words in draw]


SENTENCES = sentences(40, seed=3)


def sentencepiece_model() -> Any:
    """Trained on `SENTENCES`, with ids as T5 has them: 0 is padding, 1 the end, 2 what is unknown."""
    import sentencepiece

    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=written,
        vocab_size=VOCABULARY,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        num_threads=1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


def save_sentencepiece(folder: Path, pieces: Any) -> None:
    """Put it into the folder of a Marian or T5 in place of its tokenizer, in files as on the Hub."""
    for path in folder.glob("tokenizer*"):
        path.unlink()
    if "marian" not in folder.name:
        (folder / "spiece.model").write_bytes(pieces.serialized_model_proto())
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer", "extra_ids": 0}')
        return
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(pieces.serialized_model_proto())
    ids = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    (folder / "vocab.json").write_text(json.dumps(ids))
    told = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
