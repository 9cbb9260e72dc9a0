"""The text that a run is trained on: some of the sentences, with their words in the order that it asks for."""

from typing import Any

from lightning_modules.config import RunSettings
from lightning_modules.data.tokenizer import starts_word
from lightning_modules.data.tokens import Split, Tokens
from lightning_modules.data.words import require_boundaries
from lightning_modules.word_order import reordered


def training_text(run: RunSettings, tokens: Tokens) -> tuple[Split, dict[str, Any] | None]:
    """The sentences, and the manifest of what another word order changed; None where it is natural, which the text
    of a run without steps always is.

    Raises:
        DataError: words are to be moved in a text that has none.
    """
    training = run.training
    natural = tokens.train if training.sentences is None else tokens.train.head(training.sentences)
    if not training.max_steps or training.word_order.kind == "natural":
        return natural, None
    require_words(run, tokens)
    return reordered(
        natural,
        training.word_order,
        starts_V=starts_word(tokens.tokenizer),
        max_length=run.data.max_length,
        seed=run.seed,
    )


def require_words(run: RunSettings, tokens: Tokens) -> None:
    """Refuse to move words in a text without spaces.

    Raises:
        DataError: no sentence has a second word.
    """
    order = run.training.word_order
    if order.kind != "natural" and order.unit == "words":
        starts_V = starts_word(tokens.tokenizer)
        require_boundaries(
            tokens.train, starts_V, setting="training.word_order", instead="set its unit to sub_words"
        )
