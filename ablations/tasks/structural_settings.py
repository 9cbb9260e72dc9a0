"""What a spec may say about the structural probe. No torch, no mathematics."""

from typing import Literal

from pydantic import Field

from ablations.tasks.settings import TreesSettings


class StructuralProbeSettings(TreesSettings):
    """Whether a linear map of a layer's states makes distances between words those of their dependency tree
    (Hewitt & Manning 2019)."""

    kind: Literal["structural_probe"]
    sentences: int | None = Field(None, ge=10)
    """Training sentences, drawn at random; fewer if there are fewer. For validation as many at most, for test
    1,000. 10,000 unless given, with `quick` 2,000: with 500 the map of a width of 128 knows its sentences by
    heart."""
    longest: int = Field(40, ge=3)
    """Words of the longest sentence, punctuation not counted."""
    rank: int = Field(64, ge=1)
    """Of the map; at most the encoder's width."""

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 2000, "full": 10_000}[self.effort]
