"""Stock classes of transformers: which settings of a run each holds, and which class holds a run.

Classes are chosen by what they compute, not by their names. For instance, a masked LM with norms before its
sub-layers and a linear head is a GPT-2 whose attention sees both sides.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from lightning_modules.config import EncoderSettings, RunSettings, Settings, TranslationSettings
from lightning_modules.config.objectives import StockOutput
from lightning_modules.data.tokenizer import END, MASK, PAD, START
from lightning_modules.errors import AblationsError
from lightning_modules.model.parts import Parts, decoder_output_parts, head_parts, is_tied, stack_parts

State = Mapping[str, Tensor]
Trait = str | float | bool | None

ANY: tuple[Trait, ...] = ("any",)
"""Marker for held values: a class holds every value of the setting."""

TWO_OR_MORE: tuple[Trait, ...] = ("2 or more",)
"""Marker for held values: a class holds a window only if it is given and at least 2."""

TABLES = ("learned", "sinusoidal", "none")
"""Values of `encoder.positions` that a table can hold. Fixed positions are written into it; `none` is zeros."""

WIDE = "4 * hidden_size"


class ExportError(AblationsError, ValueError):
    """Error of a run that no stock class can hold."""


@dataclass(frozen=True)
class Stock:
    """Model type of transformers, with the way in which a run becomes one."""

    model_type: str
    """Name of the type, as in config.json."""
    classes: Mapping[StockOutput, str]
    """Name of the class for each output that the type has."""
    holds: Mapping[str, tuple[Trait, ...]]
    """Values of settings that the classes hold, by setting. `HELD` has those of all other settings."""
    config: Callable[[RunSettings], dict[str, Any]]
    """Function that returns the entries of config.json under the type's names."""
    names: Mapping[str, str]
    """Names of the weights in the classes, by plain name (`parts.py`); {} stands for the number of the block."""
    prefix: str
    """Prefix of the names of all weights but the head's, in classes that have a head."""
    arrange: Callable[[Parts, RunSettings], Parts] = field(default=lambda parts, run: parts)
    """Function that rearranges the parts before they are renamed."""
    stem: str = "encoder"
    """Name in a checkpoint of the stack of blocks that the classes hold."""

    def misfits(self, run: RunSettings, output: StockOutput) -> dict[str, Trait]:
        """Return the settings of the run that the classes do not hold, with their values."""
        return {key: value for key, value in traits(run, output).items() if not self._holds(key, value)}

    def _holds(self, key: str, value: Trait) -> bool:
        held = self.values_held(key)
        if held is TWO_OR_MORE:
            return isinstance(value, int) and value >= 2
        return held is ANY or value in held

    def values_held(self, key: str) -> tuple[Trait, ...]:
        """Return the values of a setting that the classes hold."""
        return self.holds.get(key, HELD[key])

    @property
    def reads_segments(self) -> bool:
        """Return whether the classes read `token_type_ids` as segments."""
        return "segments" in self.names

    def full_config(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Any]:
        """Return the content of config.json."""
        return {
            "model_type": self.model_type,
            "architectures": [self.classes[output]],
            "vocab_size": len(state[f"{self.stem}.tokens.weight"]),
            "pad_token_id": PAD,
            "bos_token_id": START,
            "eos_token_id": END,
            "mask_token_id": MASK,
            "tie_word_embeddings": is_tied(run),
            "dtype": "float32",
            **self.config(run),
        }

    def weights(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Tensor]:
        """Return all weights under the names of the class."""
        parts = self.arrange(self.body_parts(state, run), run)
        if output == "states":
            return self.renamed(parts, prefix="")
        return self.renamed(parts, prefix=self.prefix) | self.head_weights(state, run, output)

    def body_parts(self, state: State, run: RunSettings) -> Parts:
        """Return the parts of the stack that the classes hold."""
        return stack_parts(state, run, stem=self.stem)

    def head_weights(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Tensor]:
        """Return the weights of the head."""
        return self.named_head(head_parts(state), run)

    def named_head(self, parts: Parts, run: RunSettings) -> dict[str, Tensor]:
        """Return the weights of a head over a vocabulary under the names of the class. A head that shares the
        table of tokens is written without it. Some classes have two names for one bias, and need both unless
        the table is shared."""
        own_bias = f"{self.names['output']}.bias" if "output" in self.names else None
        bias_names = [name for name in (self.names.get("output.bias"), own_bias) if name is not None]
        tied = is_tied(run)
        left_out = ("output.bias", "output.weight") if tied else ("output.bias",)
        named = self.renamed({name: part for name, part in parts.items() if name not in left_out}, prefix="")
        return named | {name: parts["output.bias"].clone() for name in (bias_names[:1] if tied else bias_names)}

    def renamed(self, parts: Parts, *, prefix: str) -> dict[str, Tensor]:
        """Return parts under the names of the class. Each has its own memory."""
        return {prefix + self._new_name(name): part.contiguous().clone() for name, part in parts.items()}

    def _new_name(self, name: str) -> str:
        """Return the name of a part in the class."""
        module, _, kind = name.rpartition(".")
        number = ""
        if module.startswith("blocks."):
            _, number, inside = module.split(".", 2)
            module = f"blocks.{{}}.{inside}"
        if name in self.names:
            return self.names[name]
        return f"{self.names[module].format(number)}.{kind}"


@dataclass(frozen=True)
class Decoder(Stock):
    """Stock decoder that attends to the states of an encoder."""

    stem: str = "decoder"

    def head_weights(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Tensor]:
        """Return the weights that score the tokens of a translation."""
        parts = decoder_output_parts(state)
        return self.named_head(parts, run)


def decoder_config(config: dict[str, Any], run: RunSettings, *, layers: str) -> dict[str, Any]:
    """Return a decoder's entries of config.json.

    Args:
        config: entries of an encoder of the same type.
        layers: name of the entry with the number of blocks.
    """
    assert isinstance(run.objective, TranslationSettings)
    # A decoder sees the left without `is_causal`. With it, transformers also hides the right of the source.
    common = {name: value for name, value in config.items() if name != "is_causal"}
    return common | {
        layers: run.objective.decoder.num_hidden_layers,
        "is_decoder": True,
        "add_cross_attention": True,
    }


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder(Stock):
    """Stock class of an encoder with a decoder, each with its own vocabulary."""

    encoder: Stock
    decoder: Decoder

    def full_config(self, state: State, run: RunSettings, output: StockOutput) -> dict[str, Any]:
        """Return the content of config.json, in which those of the encoder and of the decoder are entries."""
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


FREE = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"),
    *("dropout", "attention_dropout", "feed_forward_dropout", "initialisation", "layer_norm_epsilon"),
    *("embedding.scale", "embedding.bias"),
)
"""Settings of the encoder of which every class holds all values: an entry of its config.json has the value, the
weights have it, or states do not depend on it after training."""


def by_path(settings: Settings, section: str) -> dict[str, Trait]:
    """Return all values of a section, and of the sections inside it, by dotted path."""
    values: dict[str, Trait] = {}
    for name, value in settings:
        path = f"{section}.{name}"
        values |= by_path(value, path) if isinstance(value, Settings) else {path: value}
    return values


HELD: dict[str, tuple[Trait, ...]] = {
    **{path: (value,) for path, value in by_path(EncoderSettings(), "encoder").items()},
    **{f"encoder.{name}": ANY for name in FREE},
    "encoder.positions": TABLES,
    "encoder.activation": ("gelu", "relu"),
    "objective.sees": ("both_sides", "left_only"),
    "objective.head": ("bert",),
    "training.input_format": ANY,
}
"""Values that a class holds unless its `holds` says otherwise. They are BERT's. Of a setting of the encoder that
is not named here, a class holds the default alone."""


def traits(run: RunSettings, output: StockOutput) -> dict[str, Trait]:
    """Return the settings that decide which class holds a run.

    `sees: window` becomes a window of attention: a class does not know which of the two settings asked for
    it.
    """
    encoder, objective = run.encoder, run.objective
    sees, window = objective.sees, encoder.attention_window
    if sees == "window":
        window = min(objective.window, window or objective.window)
        sees = "left_only" if objective.output == "next" else "both_sides"
    values = by_path(encoder, "encoder") | {
        "encoder.attention_window": window,
        "objective.sees": sees,
        "training.input_format": run.training.input_format if run.has_segments else "any",
    }
    if encoder.intermediate_size == 4 * encoder.hidden_size:
        values["encoder.intermediate_size"] = WIDE
    if output in ("token", "next_token", "token_and_pair"):
        values["objective.head"] = getattr(objective, "head", "bert")
    return values


def window_of(run: RunSettings) -> int | None:
    """Return the largest distance at which a token attends to another; None if there is no limit."""
    window = traits(run, "states")["encoder.attention_window"]
    assert window is None or isinstance(window, int)
    return window


def sees_left(run: RunSettings) -> bool:
    """Return whether no token attends to tokens on its right."""
    return traits(run, "states")["objective.sees"] == "left_only"


def choose(stocks: Sequence[Stock], run: RunSettings, output: StockOutput, *, where: str) -> Stock:
    """Return the first of some stock classes that holds a run.

    Args:
        where: beginning of the error sentence.

    Raises:
        ExportError: no class holds the run. The error names the settings that the nearest class lacks.
    """
    able = [stock for stock in stocks if output in stock.classes]
    nearest = min(able, key=lambda stock: len(stock.misfits(run, output)))
    misfits = nearest.misfits(run, output)
    if not misfits:
        return nearest
    has_encoder = output != "states" and any(
        not stock.misfits(run, "states") for stock in stocks if "states" in stock.classes
    )
    remedy = (
        "add --encoder to export only the encoder, which a stock class can hold"
        if has_encoder
        else "read checkpoints/last.safetensors with this package, or train an arm with these settings"
    )
    lacking = " and ".join(f"{key} is {_written(value)}" for key, value in misfits.items())
    needs = " and ".join(f"{key}: {' or '.join(map(_written, nearest.values_held(key)))}" for key in misfits)
    raise ExportError(
        f"{where}: {lacking}, but no stock class of transformers can hold this with the other settings of the "
        f"run; the nearest, {nearest.classes[output]}, needs {needs}; {remedy}."
    )


def _written(value: Trait) -> str:
    """Return a setting as it is written in a spec."""
    return value if isinstance(value, str) else json.dumps(value)
