"""Settings of the model that a run starts from."""

from typing import Literal

from pydantic import Field

from lightning_modules.config.settings import Settings


class HuggingFaceInit(Settings):
    """A local Hugging Face folder that a run starts from: its architecture, its tokenizer and its weights.

    `encoder`, `objective.head`, `data.vocab_size` and `data.tokenizer` follow from the folder.
    """

    kind: Literal["hugging_face"]
    path: str = Field(min_length=1)
    """Folder with config.json, tokenizer and model.safetensors; relative paths start at --data-root."""
    weights: Literal["folder", "random"] = "folder"
    """Weights of the folder; or random ones, as of any other run, in the same architecture with the same
    tokenizer."""
    head: Literal["folder", "random"] = "folder"
    """Prediction head of the folder; or a random one for a folder that has none. What a random head predicts means
    nothing before it is trained."""
    content: str | None = Field(None, pattern="^[0-9a-f]{64}$")
    """SHA-256 over what the run reads of the folder. It is filled in; a spec may state it, so that another model
    in the folder is refused."""
