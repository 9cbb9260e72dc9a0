"""A local Hugging Face folder, checked before a model is made of it. No network, and no code from it."""

import hashlib
import json
import os
import re
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ablations.errors import MeasureError

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Names of weights, in the order in which transformers looks for them."""

SUPPORTED = ("bert", "roberta", "distilbert", "electra", "albert", "gpt2", "t5", "bart", "marian")
"""The model types whose layers are known: see `hugging_face`."""

LOCAL = {"local_files_only": True, "trust_remote_code": False}
"""Arguments with which everything in a folder is read."""

SAYS_NOTHING = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
"""Entries of config.json that do not decide what the model without its head computes."""

LONGEST_REASON = 300
"""Characters of what a library said that a sentence of ours repeats."""


@contextmanager
def library() -> Iterator[Any]:
    """Give transformers, which keeps its reports and progress bars to itself while the block runs.

    Raises:
        MeasureError: it is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise MeasureError(
            "transformers, which reads Hugging Face folders, is not installed; install it with "
            'pip install "pretraining-ablations[hf]".'
        ) from error
    logging = transformers.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def checked_config(folder: Path) -> dict[str, Any]:
    """Return config.json of a folder with weights, for a model of a supported architecture.

    Raises:
        MeasureError: one of these is not so.
    """
    if not folder.is_dir():
        raise MeasureError(
            f"{folder} is no folder; give one that holds the config.json, weights and tokenizer of a model."
        )
    try:
        config = json.loads((folder / "config.json").read_bytes())
        kind = config.get("model_type")
    except FileNotFoundError:
        raise MeasureError(
            f"{folder} has no config.json, so it holds no Hugging Face model; `ablate export` makes one of a run."
        ) from None
    except (OSError, ValueError, AttributeError) as error:
        raise MeasureError(
            f"{folder / 'config.json'} cannot be read ({reason(error)}); make or copy it again."
        ) from error
    if not isinstance(kind, str):
        raise MeasureError(
            f"{folder / 'config.json'} has no model_type, which says what it is; copy the model's own there."
        )
    if kind not in SUPPORTED:
        raise MeasureError(
            f"{folder}: models of model_type {kind!r} cannot be analysed, expected {', '.join(SUPPORTED[:-1])} or "
            f"{SUPPORTED[-1]}; give a model of one of these."
        )
    if not weight_files(folder):
        raise MeasureError(
            f"{folder} has no weights; expected {', '.join(WEIGHTS[:-1])} or {WEIGHTS[-1]} beside config.json."
        )
    if os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"):
        raise MeasureError(
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set, which lets a checkpoint execute code; unset it."
        )
    return config


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold the weights: one, or the parts that an index names; none where there are none.

    Raises:
        MeasureError: the index is none.
    """
    for name in WEIGHTS:
        if not (folder / name).is_file():
            continue
        if not name.endswith(".json"):
            return [folder / name]
        try:
            parts = json.loads((folder / name).read_bytes())["weight_map"].values()
            return [folder / part for part in sorted(set(parts))]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise MeasureError(f"{folder / name} is no index of weights; make or copy it again.") from error
    return []


def tokenizer_of(folder: Path) -> Any:
    """Return the tokenizer in the folder.

    Raises:
        MeasureError: there is none, or it cannot be loaded.
    """
    with library() as transformers, warnings.catch_warnings():
        # MarianTokenizer recommends sacremoses for a function that it never calls when it cuts a text.
        warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
        except Exception as error:  # whatever a damaged folder makes transformers raise
            if find_spec("sentencepiece") is None and _is_sentencepiece(folder):
                raise MeasureError(
                    f"{folder}: its tokenizer needs sentencepiece, which is not installed; install it with "
                    f'pip install "pretraining-ablations[hf]".'
                ) from error
            raise MeasureError(
                f"{folder}: the tokenizer cannot be loaded ({reason(error)}); save the model's own there, best as "
                f"tokenizer.json."
            ) from error
    # Without any file transformers makes a tokenizer that knows no words.
    names = {"tokenizer.json", *(type(tokenizer).vocab_files_names.values() or ["tokenizer_config.json"])}
    if not any((folder / name).is_file() for name in names):
        raise MeasureError(f"{folder} has no tokenizer; save the model's own there, best as tokenizer.json.")
    return tokenizer


def _is_sentencepiece(folder: Path) -> bool:
    """Return whether the tokenizer can only be a sentencepiece model, as Marian's on the Hub."""
    models = [path for ending in ("spm", "model") for path in folder.glob(f"*.{ending}")]
    return bool(models) and not (folder / "tokenizer.json").is_file()


def identity(config: dict[str, Any], weights: list[Path]) -> str:
    """Return ten hex digits of config.json, without what does not decide what is computed, and of the weights'
    bytes.

    Raises:
        MeasureError: a part of the weights is missing.
    """
    decisions = {name: value for name, value in config.items() if name not in SAYS_NOTHING}
    sha256 = hashlib.sha256(json.dumps(decisions, sort_keys=True).encode())
    for path in weights:
        try:
            with path.open("rb") as stream:
                sha256.update(hashlib.file_digest(stream, "sha256").digest())
        except OSError as error:
            raise MeasureError(f"{path} cannot be read ({error.strerror}); copy the whole folder.") from error
    return sha256.hexdigest()[:10]


def saved_step(folder: Path) -> int | None:
    """Return the step that transformers' Trainer has written beside the model; None where there is none."""
    try:
        step = json.loads((folder / "trainer_state.json").read_bytes())["global_step"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return step if isinstance(step, int) else None


def reason(error: Exception) -> str:
    """Return the first sentence of an error, on one line and not too long, as part of another sentence."""
    message = " ".join(str(error).split()) or type(error).__name__
    first = re.split(r"\.(?: (?=[A-Z])|$)", message, maxsplit=1)[0]
    return textwrap.shorten(first, LONGEST_REASON, placeholder=" ...")
