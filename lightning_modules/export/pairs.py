"""Stock encoder-decoders: the class that joins an encoder and a decoder of two types, each with its vocabulary."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lightning_modules.config import RunSettings, TranslationSettings
from lightning_modules.config.objectives import StockOutput
from lightning_modules.export.parts import decoder_output_parts
from lightning_modules.export.post_norm import BERT_BODY, ROBERTA, bert_config, with_positions
from lightning_modules.export.pre_norm import GPT2_BODY, XLM_ROBERTA_XL, gpt2_config, gpt2_parts
from lightning_modules.export.stock import State, Stock
from lightning_modules.vocabulary import END, PAD, START


@dataclass(frozen=True)
class Decoder(Stock):
    """Stock decoder that attends to the states of an encoder."""

    stem: str = "decoder"

    def head_weights(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Tensor]:
        """Return the weights that score the tokens of a translation."""
        parts = decoder_output_parts(state)
        return self.named_head(parts, run)


def decoder_config(config: dict[str, Any], run: RunSettings, *, layers: str) -> dict[str, Any]:
    """Return the entries of config.json of a decoder.

    Args:
        config: those of an encoder of the type.
        layers: name of the number of blocks.
    """
    assert isinstance(run.objective, TranslationSettings)
    return config | {
        layers: run.objective.decoder.num_hidden_layers,
        "is_causal": True,
        "is_decoder": True,
        "add_cross_attention": True,
    }


BERT_GENERATION = Decoder(
    model_type="bert-generation",
    classes={"target_text": "BertGenerationDecoder"},
    holds={},
    config=lambda run: decoder_config(bert_config(run), run, layers="num_hidden_layers"),
    names={name: new for name, new in BERT_BODY.items() if name != "segments"}
    | {
        "blocks.{}.source_query": "encoder.layer.{}.crossattention.self.query",
        "blocks.{}.source_key": "encoder.layer.{}.crossattention.self.key",
        "blocks.{}.source_value": "encoder.layer.{}.crossattention.self.value",
        "blocks.{}.source_output": "encoder.layer.{}.crossattention.output.dense",
        "blocks.{}.source_norm": "encoder.layer.{}.crossattention.output.LayerNorm",
        "output": "lm_head.decoder",
        "output.bias": "lm_head.bias",
    },
    prefix="bert.",
    arrange=with_positions,
)

GPT2_DECODER = Decoder(
    model_type="gpt2",
    classes={"target_text": "GPT2LMHeadModel"},
    holds={},
    config=lambda run: decoder_config(gpt2_config(run), run, layers="n_layer"),
    names=GPT2_BODY
    | {
        "blocks.{}.source_query": "h.{}.crossattention.q_attn",
        "blocks.{}.source_key_value": "h.{}.crossattention.c_attn",
        "blocks.{}.source_output": "h.{}.crossattention.c_proj",
        "blocks.{}.source_norm": "h.{}.ln_cross_attn",
    },
    prefix="transformer.",
    arrange=gpt2_parts,
)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder(Stock):
    """Stock class of an encoder and a decoder, each with its own vocabulary."""

    encoder: Stock
    decoder: Decoder

    def full_config(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Any]:
        """Return config.json, which holds that of the encoder and that of the decoder."""
        return {
            "model_type": self.model_type,
            "architectures": [self.classes[output]],
            "pad_token_id": PAD,
            "bos_token_id": START,
            "eos_token_id": END,
            "decoder_start_token_id": START,
            "is_encoder_decoder": True,
            "dtype": "float32",
            "encoder": self.encoder.full_config(state, run, "states"),
            "decoder": self.decoder.full_config(state, run, output),
        }

    def weights(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Tensor]:
        """Return the weights of both under the names of the class."""
        encoder = self.encoder.weights(state, run, "states")
        decoder = self.decoder.weights(state, run, output)
        return {f"encoder.{name}": part for name, part in encoder.items()} | {
            f"decoder.{name}": part for name, part in decoder.items()
        }


def _pair(encoder: Stock, decoder: Decoder) -> EncoderDecoder:
    return EncoderDecoder(
        model_type="encoder-decoder",
        classes={"target_text": "EncoderDecoderModel"},
        holds={**encoder.holds, "objective.sees": ("both_sides",)},
        config=encoder.config,
        names={name: new for name, new in encoder.names.items() if name != "segments"},
        prefix="encoder.",
        encoder=encoder,
        decoder=decoder,
    )


ENCODER_DECODERS = (_pair(ROBERTA, BERT_GENERATION), _pair(XLM_ROBERTA_XL, GPT2_DECODER))
"""Post-norm and pre-norm ones; the first that holds a run is taken."""
