"""Settings and their values in words, for axes and legends."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from reports.numbers import count

SPLIT = "objective.masking.{mask,keep,random}"
"""Three settings that are one decision: they sum to 1."""

TITLES = {
    "encoder.hidden_size": "width",
    "encoder.intermediate_size": "width inside the feed-forward layers",
    "encoder.norm": "place of the layer norm",
    "encoder.num_attention_heads": "number of heads",
    "encoder.num_hidden_layers": "number of layers",
    "encoder.positions": "positions",
    "objective.causal": "share of causal LM",
    "objective.decoder.num_hidden_layers": "layers of the decoder",
    "objective.masking.copies": "number of fixed masks",
    "objective.masking.count": "number of hidden tokens",
    "objective.masking.predict": "predicted share",
    "objective.masking.random_differs": "random token never the original",
    "objective.masking.ratio": "masking ratio",
    "objective.masking.schedule": "schedule of the ratio",
    "objective.masking.select": "what is hidden",
    "objective.pair_loss": "loss on pairs",
    "objective.sees": "what a token sees",
    "objective.token_dropout": "token dropout",
    SPLIT: "corruption split",
    "training.input_format": "input format",
    "training.max_steps": "training steps",
    "training.sentences": "training sentences",
    "training.tokens_per_step": "tokens a step",
    "training.word_order": "word order",
}
"""Of the others, their own name."""

UNITS = {SPLIT: "mask/same/random, %"}
"""What the values of a setting are, where its title does not say it."""

LETTERS = 30
"""Of a value, on an axis and in a table; the spec has the rest of a longer one."""

ABSENT = {
    "objective.masking.copies": "new ones each time",
    "objective.masking.predict": "as hidden",
    "objective.masking.schedule": "constant",
    "training.sentences": "all",
}
"""What it means that a setting is not given."""


class Name(NamedTuple):
    """A setting in words."""

    title: str
    """In the middle of a sentence."""
    label: str
    """Below an axis, with the unit."""


def name_of(setting: str) -> Name:
    """The setting in words; one that is not known keeps its own name."""
    title = TITLES.get(setting) or setting.rpartition(".")[2].replace("_", " ")
    return Name(title, f"{title} ({UNITS[setting]})" if setting in UNITS else title)


def words(setting: str, values: Sequence[Any]) -> list[str]:
    """The values of a setting, one each.

    Of a value that has a kind and parameters, only those parameters are said that tell it from others of its kind;
    one that most of them share is left out.
    """
    kinds = [value for value in values if isinstance(value, dict)]
    return [_mapping(value, kinds) if isinstance(value, dict) else _word(setting, value) for value in values]


def _word(setting: str, value: Any) -> str:
    if value is None:
        return ABSENT.get(setting, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return count(value) if isinstance(value, int) else f"{value:g}"
    if setting == SPLIT:
        return "/".join(f"{100 * share:g}" for share in value)
    word = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return (word if len(word) <= LETTERS else f"{word[: LETTERS - 1]}…").replace("_", " ")


def _mapping(value: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    same_kind = [other for other in others if other.get("kind") == value.get("kind")]
    numbers: list[str] = []
    names: list[str] = []
    for name in dict.fromkeys(name for other in same_kind for name in other if name != "kind"):
        own = _word("", value.get(name))
        shared = Counter(_word("", other.get(name)) for other in same_kind)
        if 2 * shared[own] <= len(same_kind):
            is_name = isinstance(value.get(name), str)
            (names if is_name else numbers).append(own if is_name else f"{name.replace('_', ' ')}={own}")
    return " ".join([_word("", value.get("kind", "")), *numbers, *names])
