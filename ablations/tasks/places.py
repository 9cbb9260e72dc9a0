"""Answers of span tasks that are given without understanding: words at the same place of every context, or beside
the words of the question.

Words are what stands between spaces. A rule has a number of words, to be chosen by its score.
"""

from typing import NamedTuple

from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from ablations.tasks.examples import Examples

MOST_WORDS = 30
"""Of an answer at a fixed place, other than the whole context; a head's answers have as many tokens at most."""


class Words(NamedTuple):
    """Some words of every context: the first so many, the last so many, or all."""

    first: int | None = None
    last: int | None = None

    def answers(self, examples: Examples) -> list[str]:
        """Of each example; the question plays no part."""
        chosen = slice(None if self.last is None else -self.last, self.first)
        return [" ".join(context.split()[chosen]) for context in contexts(examples)]


class Beside(NamedTuple):
    """So many words of the context before the first one, or after the last one, that the question has too."""

    words: int
    after: bool

    def answers(self, examples: Examples) -> list[str]:
        """Of each example; all of the context before its end, or after its beginning, where it shares no word
        with the question. Stop words do not count."""
        found = []
        for question, context in zip(examples.first, contexts(examples), strict=True):
            words, asked = context.split(), {_plain(word) for word in question.split()} - ENGLISH_STOP_WORDS
            shared = [place for place, word in enumerate(words) if _plain(word) in asked]
            if self.after:
                first = max(shared, default=-1) + 1
                found.append(" ".join(words[first : first + self.words]))
            else:
                last = min(shared, default=len(words))
                found.append(" ".join(words[max(0, last - self.words) : last]))
        return found


Rule = Words | Beside

PLACES: tuple[Rule, ...] = (
    Words(),
    *(Words(first=count) for count in range(1, MOST_WORDS + 1)),
    *(Words(last=count) for count in range(1, MOST_WORDS + 1)),
)
"""Blind answers: they know nothing of the question."""

BESIDE_QUESTION: tuple[Rule, ...] = tuple(
    Beside(count, after) for after in (False, True) for count in range(1, MOST_WORDS + 1)
)
"""Answers that find the question's words in the context, and read nothing else."""


def contexts(examples: Examples) -> list[str]:
    """The texts that answers of spans are taken from."""
    assert examples.second is not None, "only spans have contexts"
    return examples.second


def _plain(word: str) -> str:
    return word.lower().strip(".,;:!?\"'()[]")
