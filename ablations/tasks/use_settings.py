"""What a spec may say about retrieval and generation. No torch, no mathematics."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator

from ablations.measures.settings import MeasureSettings
from ablations.tasks.catalogue import TASKS
from ablations.tasks.settings import Effort
from lightning_modules.config import Data

NEXT_SENTENCE = "next_sentence"


class RetrievalSettings(MeasureSettings):
    """Which texts belong together: by the cosine of their mean states (bi-encoder), and by a head on the states of
    both in one (cross-encoder)."""

    kind: Literal["retrieval"]
    tasks: tuple[Literal["stsb", "sick_relatedness", "next_sentence"], ...] | None = Field(
        None, min_length=1, strict=False
    )
    """How related people find two sentences, in two data sets, and which sentence of the text follows another.
    Unless given, all; where the text is the built-in language, the last alone."""
    effort: Effort = "full"
    """Sizes unless given below: 500 pairs, 200 candidates, 500 training pairs; or all, 1,000 and 5,000."""
    pairs: int | None = Field(None, ge=10)
    """Pairs of each task of relatedness, drawn at random; fewer if there are fewer."""
    candidates: int | None = Field(None, ge=40)
    """Sentences of the validation text among which the one that follows is looked for; fewer if it has fewer."""
    training_pairs: int | None = Field(None, ge=40)
    """Sentences of the training text, each with the one that follows it, to train the cross-encoder on; fewer if
    it has fewer."""
    epochs: int = Field(3, ge=1)
    """Over the training pairs."""
    learning_rate: float = Field(3e-4, gt=0)
    """Of the cross-encoder."""

    def parts(self, *, built_in: bool) -> tuple[Self, ...]:
        """The same settings for one task each."""
        all_tasks = (NEXT_SENTENCE,) if built_in else ("stsb", "sick_relatedness", NEXT_SENTENCE)
        return tuple(self.model_copy(update={"tasks": (name,)}) for name in self.tasks or all_tasks)

    @property
    def task(self) -> str:
        """The name of the task of settings for one."""
        (name,) = self.tasks or ()
        return name

    def problem(self, data: Data, data_root: Path) -> str | None:
        """Why the task of settings for one cannot be run with a text; None if it can."""
        if self.task == NEXT_SENTENCE:
            from ablations.tasks.documents import no_documents  # numpy, which to read a spec does without

            return no_documents(data, data_root)
        return TASKS[self.task].problem(data_root)

    @property
    def pairs_wanted(self) -> int | None:
        """None for all."""
        return self.pairs or {"quick": 500, "full": None}[self.effort]

    @property
    def candidates_wanted(self) -> int:
        return self.candidates or {"quick": 200, "full": 1000}[self.effort]

    @property
    def training_pairs_wanted(self) -> int:
        return self.training_pairs or {"quick": 500, "full": 5000}[self.effort]


class GenerationSettings(MeasureSettings):
    """Sentences that a language model makes up: from left to right by a causal one, all at once and then improved
    (mask-predict) by a masked one; how fluent they are, and how diverse."""

    kind: Literal["generation"]
    effort: Effort = "full"
    """Sentences unless given below: 200, or 1,000."""
    sentences: int | None = Field(None, ge=2)
    """Sentences to make up."""
    temperature: float = Field(1.0, gt=0)
    """Logits are divided by it before a token is drawn; 1 draws by the model's own probabilities."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Tokens are drawn from the most probable ones that together have this probability (Holtzman et al. 2020)."""
    iterations: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 4, 10), min_length=1, strict=False)
    """Numbers of steps of mask-predict, ascending; each is a way of its own, and the last one the main one."""

    @field_validator("iterations")
    @classmethod
    def _ascending(cls, iterations: tuple[int, ...]) -> tuple[int, ...]:
        if list(iterations) != sorted(iterations):
            raise ValueError("must ascend, as the last number is the main one; put them in order")
        return iterations

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 200, "full": 1000}[self.effort]
