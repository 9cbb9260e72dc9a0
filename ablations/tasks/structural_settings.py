"""What a spec may say about the structural probe. No torch, no mathematics."""

from pathlib import PurePath
from typing import Literal

from pydantic import Field

from ablations.measures.settings import MeasureSettings
from ablations.tasks.settings import Effort


class StructuralProbeSettings(MeasureSettings):
    """Whether a linear map of a layer's states makes distances between words those of their dependency tree
    (Hewitt & Manning 2019)."""

    kind: Literal["structural_probe"]
    treebank: str | None = None
    """A treebank (CoNLL-U, or parquet with the columns text, tokens, upos, heads and deprels), for text of other
    kinds, whose sentences are divided among training, validation and test; the built-in language has trees of its
    own."""
    effort: Effort = "full"
    """Training sentences unless given below: 2,000, or 10,000. With 500 the map of a width of 128 knows its
    sentences by heart."""
    sentences: int | None = Field(None, ge=10)
    """Training sentences, drawn at random; fewer if there are fewer. For validation as many at most, for test
    1,000."""
    longest: int = Field(40, ge=3)
    """Words of the longest sentence, punctuation not counted."""
    rank: int = Field(64, ge=1)
    """Of the map; at most the encoder's width."""

    @property
    def name(self) -> str:
        """Of the treebank: its folder, or the file without its ending where it has no folder."""
        if self.treebank is None:
            return "language"
        path = PurePath(self.treebank)
        return path.parent.name or path.name.split(".")[0]

    @property
    def sentences_wanted(self) -> int:
        return self.sentences or {"quick": 2000, "full": 10_000}[self.effort]
