"""In which order the words of the training text stand."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from lightning_modules.config.settings import Settings, from_name


class Natural(Settings):
    """As written."""

    kind: Literal["natural"]


class Shuffled(Settings):
    """Base of the orders that are none."""

    kind: str
    unit: Literal["words", "sub_words"] = "words"
    """What is moved or redrawn: words before they are cut into sub-words, so that the inside of a word stays as
    it is, or sub-words afterwards."""


class NGrams(Shuffled):
    """Every sentence by itself: n-grams that do not overlap are moved as a whole, what is left one by one."""

    kind: Literal["ngrams"]
    n: int = Field(1, ge=1)
    """Words (or sub-words) that stay together; 1 moves every one."""


class Blocks(Shuffled):
    """Blocks of the running text, whatever sentences and documents end inside them; sentences keep their
    numbers of words."""

    kind: Literal["blocks"]
    length: int = Field(512, ge=2)
    """Words (or sub-words) of a block."""


class Corpus(Shuffled):
    """Every word redrawn with its frequency in the training text; sentences keep their numbers of words."""

    kind: Literal["corpus"]


class UniformDraw(Shuffled):
    """Every word redrawn from those of the training text, frequent or not; sentences keep their numbers of
    words."""

    kind: Literal["uniform"]


WordOrder = Annotated[
    Annotated[Natural | NGrams | Blocks | Corpus | UniformDraw, Field(discriminator="kind")],
    BeforeValidator(from_name),
]
"""The orders of Sinha et al. 2021, section 3."""


def name_of(order: Natural | Shuffled) -> str:
    """A short name, as in `ngrams, n 2` or `corpus, sub_words`."""
    match order:
        case NGrams():
            name = f"ngrams, n {order.n}"
        case Blocks():
            name = f"blocks of {order.length}"
        case _:
            name = str(order.kind)
    return f"{name}, sub_words" if isinstance(order, Shuffled) and order.unit == "sub_words" else name
