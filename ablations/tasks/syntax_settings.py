"""What a spec may say about syntax without supervision and about masked LM's assumption. No torch, no
mathematics."""

from typing import Annotated, Literal

from pydantic import Field

from ablations.measures.settings import MeasureSettings
from ablations.tasks.settings import Effort, TreesSettings


class ParsingSettings(TreesSettings):
    """Trees without supervision: which words of a sentence depend on each other given all others, as a masked LM
    has it (conditional mutual information, by Gibbs sampling), against the trees of a treebank."""

    kind: Literal["parsing"]
    sentences: int | None = Field(None, ge=2)
    """Sentences, drawn at random, the same in all arms and seeds; fewer if there are fewer that short. 400 unless
    given, with `quick` 100."""
    sweeps: int | None = Field(None, ge=24)
    """How often Gibbs sampling draws both tokens of a pair; 2,000 unless given, with `quick` 50. A pair's
    information is underestimated by a few sweeps."""
    longest: int = Field(10, ge=3)
    """Words of the longest sentence, punctuation not counted."""
    window: int = Field(10, ge=2)
    """Sub-words that stand as far apart, or farther, are taken to be independent."""

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 100, "full": 400}[self.effort]

    @property
    def sweeps_wanted(self) -> int:
        return self.sweeps or {"quick": 50, "full": 2000}[self.effort]


class ConditionalIndependenceSettings(MeasureSettings):
    """What it costs masked LM to predict two neighbours that are both hidden as if they were independent."""

    kind: Literal["conditional_independence"]
    effort: Effort = "full"
    """Sentences unless given below: 300, or 3,000."""
    sentences: int | None = Field(None, ge=20)
    """Sentences of the validation text from its start, each with one pair; fewer if it has fewer."""
    ratios: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(
        (0.05, 0.15, 0.3, 0.4, 0.6, 0.8), min_length=1, strict=False
    )
    """Probabilities with which each of the other tokens is hidden, too."""

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 300, "full": 3000}[self.effort]
