"""Settings of the text: its source and how it is cut into sub-words."""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from lightning_modules.config.settings import Settings


class TextSettings(Settings):
    """Base of the settings of every text source: how it is cut into sub-words."""

    vocab_size: int = Field(8192, ge=16)
    """Entries of each sub-word vocabulary, special tokens included. The source's is trained on the natural
    `text` of the training split alone, the decoder's on its `target`."""
    max_length: int = Field(128, ge=8)
    """Longest sentence in tokens, special tokens included. A longer one is cut, counted and reported."""
    tokenizer: str | None = Field(None, min_length=1)
    """Hugging Face folder whose tokenizer cuts the text, and its translations: WordPiece or BPE, as of BERT and
    GPT-2; relative paths start at --data-root. `vocab_size` follows from it. Unless given, sub-words are trained
    on the text."""

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `tokenizer` out where there is none, as text from before it has no such key."""
        written: dict[str, Any] = handler(self)
        return {name: value for name, value in written.items() if name != "tokenizer" or value is not None}


class LanguageData(TextSettings):
    """The built-in language: a seeded generator with gold trees, senses and translations, no download."""

    kind: Literal["language"]
    seed: int = Field(0, ge=0)
    """Seed of the language and of its text. It is no part of a run's randomness."""
    train: int = Field(100_000, ge=1)
    """Sentences to train on."""
    validation: int = Field(4_000, ge=1)
    """Sentences of other documents, for validation and for the layer measures."""
    test: int = Field(4_000, ge=1)
    """Sentences that nothing looks at until the end."""
    vocab_size: int = Field(1024, ge=16)
    max_length: int = Field(64, ge=8)


def _as_tuple(value: Any) -> Any:
    """Return one file, or a list of files, as a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Half = Literal["first", "second"]
Files = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_tuple)]


class ColumnSettings(TextSettings):
    """Names of the columns of a table that hold the text."""

    text: str = Field("text", min_length=1)
    """Column with one sentence a row."""
    target: str | None = Field(None, min_length=1)
    """Column with the translation of that sentence; translation arms need it."""
    document: str | None = Field(None, min_length=1)
    """Column that says which document a sentence belongs to; its rows are contiguous. Without it, a text
    file's blank lines end documents, and any other file is one document."""
    half: Half | None = None
    """Train on one half of the training rows, drawn by their numbers; a task may learn from the other one."""
    label: str | None = Field(None, min_length=1)
    """Column with the number of each sentence's label, from 0, which `label_words` writes behind the sentence."""
    label_words: tuple[str, ...] = Field((), strict=False)
    """The word for each label, in order: it becomes the last word of the sentence, in every split."""

    @field_validator("label_words")
    @classmethod
    def _a_word_for_each_label(cls, words: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "label" in info.data and bool(words) != (info.data["label"] is not None):
            missing = "label, the column of the labels that they name" if words else "a word for each label"
            raise ValueError(f"must go with label: name {missing}, or leave both out")
        if words and (len(set(words)) < max(2, len(words)) or any(word.split() != [word] for word in words)):
            raise ValueError(f"must be two or more different words without spaces, but is {list(words)}")
        return words


class FilesData(ColumnSettings):
    """Local files: parquet, jsonl, csv, tsv (also .gz) with columns, or txt with a sentence a line."""

    kind: Literal["files"]
    train: Files = Field(min_length=1)
    """File or files to train on; relative paths start at --data-root."""
    validation: Files = Field(min_length=1)
    """File or files for validation and for the layer measures."""
    test: Files = ()
    """File or files that nothing looks at until the end."""


class HubData(ColumnSettings):
    """A data set of the Hugging Face hub, or a local folder that `datasets.load_dataset` reads."""

    kind: Literal["hub"]
    path: str = Field(min_length=1)
    """Name on the hub, or a local folder (relative paths start at --data-root)."""
    name: str | None = Field(None, min_length=1)
    """Configuration of the data set, where it has several."""
    revision: str | None = Field(None, min_length=1)
    """Commit on the hub. Needed there, so that the text cannot change under a finished run."""
    train: str = Field("train", min_length=1)
    """Split to train on."""
    validation: str = Field("validation", min_length=1)
    """Split for validation and for the layer measures."""
    test: str | None = Field(None, min_length=1)
    """Split that nothing looks at until the end."""


Data = Annotated[LanguageData | FilesData | HubData, Field(discriminator="kind")]
