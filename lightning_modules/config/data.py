"""Settings of the text: its source and how it is cut into sub-words."""

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from lightning_modules.config.settings import SETTING_LIMIT, Settings


class TextSettings(Settings):
    """Base of the settings of all text sources: how text is cut into sub-words."""

    vocab_size: int = Field(8192, ge=16, lt=SETTING_LIMIT)
    """Entries of each sub-word vocabulary, special tokens included. That of the sentences is trained on the
    natural `text` of the training split alone, that of the translations on its `target`."""
    max_length: int = Field(128, ge=8, lt=SETTING_LIMIT)
    """Longest sentence in tokens, special tokens included. Longer sentences are cut, counted and reported."""
    tokenizer: str | None = Field(None, min_length=1, exclude_if=lambda folder: folder is None)
    """Hugging Face folder whose tokenizer (WordPiece or BPE, as of BERT and GPT-2) cuts the text and its
    translations; relative paths start at --data-root. It decides `vocab_size`. Unless given, sub-words are
    trained on the text. None is not serialised: older texts have no such key."""


class LanguageData(TextSettings):
    """Text of the built-in language, generated from a seed with gold trees, senses and translations."""

    kind: Literal["language"]
    seed: int = Field(0, ge=0)
    """Seed of the language and of its text. It does not depend on the seed of a run."""
    train: int = Field(100_000, ge=1, lt=SETTING_LIMIT)
    """Sentences to train on."""
    validation: int = Field(4_000, ge=1, lt=SETTING_LIMIT)
    """Sentences of other documents, for validation and for the layer measures."""
    test: int = Field(4_000, ge=1, lt=SETTING_LIMIT)
    """Sentences held back for a final test. Neither training nor measures read them."""
    vocab_size: int = Field(1024, ge=16, lt=SETTING_LIMIT)
    max_length: int = Field(64, ge=8, lt=SETTING_LIMIT)


def _as_tuple(value: Any) -> Any:
    """Return a single file or a list of files as a tuple; other values stay as they are."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


Half = Literal["first", "second"]
Files = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_tuple)]


class ColumnSettings(TextSettings):
    """Base of the settings of texts in tables: which columns and which rows are read."""

    text: str = Field("text", min_length=1)
    """Column with one sentence a row."""
    target: str | None = Field(None, min_length=1)
    """Column with the translation of each sentence; translation arms need it."""
    document: str | None = Field(None, min_length=1)
    """Column that says which document a sentence belongs to. The rows of a document must stand together, and each
    sentence must have a document. Without the column, blank lines end documents in txt files, and any other file
    is one document."""
    half: Half | None = None
    """Half of the training rows to train on, drawn by row numbers (line numbers in other formats than parquet). A
    task may learn from the other half of a parquet file. The input format must be `sentences`."""
    label: str | None = Field(None, min_length=1)
    """Column with the number of each sentence's label, from 0. `label_words` has the word for each number."""
    label_words: tuple[str, ...] = Field((), strict=False)
    """Word for each label, in order. It becomes the last word of the sentence, in every split."""

    @field_validator("label_words")
    @classmethod
    def _a_word_for_each_label(cls, words: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if "label" in info.data and bool(words) != (info.data["label"] is not None):
            missing = "label, the column of the labels" if words else "a word for each label"
            raise ValueError(f"must come together with label; set {missing}, or leave both out")
        if words and (len(set(words)) < max(2, len(words)) or any(word.split() != [word] for word in words)):
            raise ValueError(f"must be two or more different words without spaces, but is {list(words)}")
        return words


class FilesData(ColumnSettings):
    """Text in local files: parquet, jsonl, csv or tsv with columns, or txt with a sentence a line; also .gz,
    except parquet."""

    kind: Literal["files"]
    train: Files = Field(min_length=1)
    """File or files to train on; relative paths start at --data-root."""
    validation: Files = Field(min_length=1)
    """File or files for validation and for the layer measures."""
    test: Files = ()
    """File or files held back for a final test. Neither training nor measures read them."""


def is_plain_text(file: str) -> bool:
    """Return whether a file is plain text by its ending. Blank lines end documents in it."""
    return file.lower().removesuffix(".gz").endswith(".txt")


class HubData(ColumnSettings):
    """Text of a data set of the Hugging Face hub, or of a local folder that `datasets.load_dataset` reads."""

    kind: Literal["hub"]
    path: str = Field(min_length=1)
    """Name on the hub, or a local folder (relative paths start at --data-root)."""
    name: str | None = Field(None, min_length=1)
    """Configuration of the data set, if it has several."""
    revision: str | None = Field(None, min_length=1)
    """Commit on the hub. Required for the hub, so that the text cannot change under a finished run."""
    train: str = Field("train", min_length=1)
    """Split to train on."""
    validation: str = Field("validation", min_length=1)
    """Split for validation and for the layer measures."""
    test: str | None = Field(None, min_length=1)
    """Split held back for a final test. Neither training nor measures read it."""


Data = Annotated[LanguageData | FilesData | HubData, Field(discriminator="kind")]
