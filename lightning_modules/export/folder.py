"""Export of a trained run as a Hugging Face folder, or as a series of folders, one per checkpoint.

DIR/  config.json  model.safetensors  tokenizer.json  tokenizer_config.json  settings.json  README.md
      generation_config.json   if the model generates text
      target_tokenizer/        if the model translates
      generator/               for replaced token detection, if a stock class holds the generator
DIR/step-00001000/ ...  index.json                                 for a series
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save
from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import TemplateProcessing

from lightning_modules.config import ReplacedTokenSettings, RunSettings
from lightning_modules.config.objectives import StockOutput
from lightning_modules.data import token_store
from lightning_modules.data.tokenizer import END, MASK, PAD, SPECIAL_TOKENS, START
from lightning_modules.errors import CheckpointError
from lightning_modules.export.card import Facts, Origin, card
from lightning_modules.export.post_norm import BERT_GENERATION, ELECTRA_GENERATOR, POST_NORM, ROBERTA
from lightning_modules.export.pre_norm import GPT2_DECODER, PRE_NORM, XLM_ROBERTA_XL
from lightning_modules.export.stock import Decoder, EncoderDecoder, ExportError, State, Stock, choose
from lightning_modules.files import sha256, whole_folder, write_json, write_whole
from lightning_modules.model.parts import EXPORTED, unscored_ids
from lightning_modules.objectives import build
from lightning_modules.objectives.objective import Objective
from lightning_modules.training.checkpoint import read_checkpoint, require_fit, unfit
from lightning_modules.training.run_directory import RunDirectory


def _pair(encoder: Stock, decoder: Decoder) -> EncoderDecoder:
    return EncoderDecoder(
        model_type="encoder-decoder",
        classes={"target_text": "EncoderDecoderModel"},
        holds={**encoder.holds, "objective.sees": ("both_sides",)},
        config=encoder.config,
        names={name: new for name, new in encoder.names.items() if name != "segments"},
        prefix="encoder.",
        encoder=encoder,
        decoder=decoder,
    )


ENCODER_DECODERS = (_pair(ROBERTA, BERT_GENERATION), _pair(XLM_ROBERTA_XL, GPT2_DECODER))
"""Pairs of an encoder and a decoder, post-norm and pre-norm. The first one that holds a run is taken."""

STOCKS = (*POST_NORM, *PRE_NORM, *ENCODER_DECODERS)
"""All stock classes. The first one that holds a run is taken."""


class Exported(NamedTuple):
    """Folder of an exported run."""

    folder: Path
    class_name: str
    """Name of the class of transformers that loads the folder."""


def export(run_dir: Path, folder: Path, *, encoder_alone: bool = False, origin: Origin | None = None) -> Exported:
    """Write the last checkpoint of a run to a folder, which appears whole or not at all.

    BERT's pooler has no counterpart in most runs. It is then left out, and the class initialises it.

    Args:
        encoder_alone: leave out heads, decoder and generator.
        origin: facts about the run that its folder does not have.

    Raises:
        ExportError: no stock class holds the settings of the run.
        CheckpointError: the run has no checkpoint that can be read, or its weights are not those of a model with
            the settings of the run, or are not finite.
        RunDirectoryError: run.json or the log of the run has changed.
        DataError: the token store of the run is missing or damaged.
        FilesError: the folder is not empty, or cannot be written.
    """
    source = _source(run_dir, encoder_alone=encoder_alone, origin=origin)
    with whole_folder(folder) as temporary:
        _write(source, source.directory.last_checkpoint, temporary)
    return Exported(folder, source.class_name)


def export_series(
    run_dir: Path, folder: Path, *, encoder_alone: bool = False, origin: Origin | None = None
) -> list[Exported]:
    """Write every checkpoint that a run has kept to a folder of its own, as `step-00001000`, with an index
    beside them.

    The whole series appears or nothing. index.json has one entry per step: the step, the name of its folder,
    the validation loss in nats for each predicted token (null if it is not known), and the SHA-256 of the
    weights.

    Raises:
        CheckpointError: the run has kept no checkpoint of a step, or one is refused as in `export`.
        ExportError: no stock class holds the settings of the run.
        FilesError: the folder is not empty, or cannot be written.
    """
    source = _source(run_dir, encoder_alone=encoder_alone, origin=origin)
    checkpoints = source.directory.kept_checkpoints()
    if not checkpoints:
        raise CheckpointError(
            f"{run_dir} has no checkpoints of steps (checkpoints/step=*.ckpt); train the run again, or leave "
            "--all-steps out to export the last checkpoint."
        )
    entries = []
    with whole_folder(folder) as temporary:
        for step, path in checkpoints.items():
            place = temporary / f"step-{step:08d}"
            _write(source, path, place)
            loss = source.origin.losses.get(step)
            weights = sha256(place / "model.safetensors")
            entries.append({"step": step, "folder": place.name, "validation_loss": loss, "sha256": weights})
        about = {"class": source.class_name, **{key: source.description[key] for key in ("run_id", "arm", "seed")}}
        write_json(temporary / "index.json", about | {"checkpoints": entries})
    return [Exported(folder / str(entry["folder"]), source.class_name) for entry in entries]


class _Source(NamedTuple):
    """Run to export, with the class that holds it."""

    directory: RunDirectory
    run: RunSettings
    description: Mapping[str, Any]
    origin: Origin
    stock: Stock
    output: StockOutput
    token_store: Path
    """Folder that has the run's tokenizers, as they were written."""
    module: Objective
    """Module of the run whose weights have a name and a shape, but no numbers."""

    @property
    def class_name(self) -> str:
        """Return the name of the class that holds the run."""
        return self.stock.classes[self.output]


def _source(run_dir: Path, *, encoder_alone: bool, origin: Origin | None) -> _Source:
    directory = RunDirectory(run_dir)
    run, description = directory.settings(), directory.description()
    output: StockOutput | None = run.objective.stock_output
    if output is None:
        raise ExportError(
            f"{run_dir}: objective.kind is {run.objective.kind}, but no stock class of transformers can compute "
            "it; read checkpoints/last.safetensors with this package."
        )
    output = "states" if encoder_alone else output
    stock = choose(STOCKS, run, output, where=str(run_dir))
    tokens = token_store.load(directory.path.absolute().parent.parent / "tokens" / description["tokens"])
    losses = validation_losses(directory) | dict(origin.losses if origin else {})
    with torch.device("meta"):
        module = build(run, tokens)
    complete = Origin(questions=origin.questions if origin else {}, losses=losses)
    return _Source(directory, run, description, complete, stock, output, tokens.folder, module)


def validation_losses(directory: RunDirectory) -> dict[int, float]:
    """Return the validation losses that training logged, by step; empty without a log.

    Raises:
        RunDirectoryError: the log has changed since training ended.
    """
    losses = {}
    for line in directory.require_log().splitlines() if directory.metrics.is_file() else []:
        try:
            entry = json.loads(line)
            if entry.get("val/loss") is not None:
                losses[entry["step"]] = entry["val/loss"]
        except (ValueError, KeyError, AttributeError, RecursionError):  # the last line of a run that was killed
            break
    return losses


def _write(source: _Source, checkpoint: Path, folder: Path) -> None:
    """Write one checkpoint to an empty folder."""
    run, stock, output = source.run, source.stock, source.output
    read = read_checkpoint(checkpoint)
    state: State = read["state_dict"]
    require_fit(checkpoint, state, source.module)
    if (wrong := next((name for name, tensor in state.items() if not tensor.isfinite().all()), None)) is not None:
        raise unfit(checkpoint, f"{wrong} has a number that is not finite")
    config = stock.full_config(state, run, output)
    generator = ELECTRA_GENERATOR if output != "states" and has_stock_generator(run) else None
    facts = Facts(
        run=run,
        description=source.description,
        provenance=source.directory.provenance(),
        origin=source.origin,
        class_name=source.class_name,
        output=output,
        step=read["global_step"],
        has_generator=generator is not None,
        is_decoder_made_to_see=config.get("is_causal") is False,
    )
    about = {EXPORTED: facts.entry()}
    _write_model(stock, state, run, output, folder, about=about)
    if facts.generates:
        ids = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}
        starts = {"decoder_start_token_id": START} if "decoder" in config else {}
        never = {"suppress_tokens": list(unscored)} if (unscored := unscored_ids(run)) else {}
        write_json(folder / "generation_config.json", ids | starts | never | {"max_length": run.data.max_length})
    longest = run.data.max_length
    write_tokenizer(
        source.token_store / "tokenizer.json", folder, max_length=longest, segments=stock.reads_segments
    )
    if "decoder" in config:
        target = folder / "target_tokenizer"
        write_tokenizer(source.token_store / "target_tokenizer.json", target, max_length=longest, segments=False)
    if generator is not None:
        _write_model(generator, state, run, "token", folder / "generator", about=about)
        write_tokenizer(
            source.token_store / "tokenizer.json", folder / "generator", max_length=longest, segments=True
        )
    write_json(folder / "settings.json", source.description["settings"])
    write_whole(folder / "README.md", card(facts).encode())


def has_stock_generator(run: RunSettings) -> bool:
    """Return whether the run has a generator that a stock class can hold."""
    objective = run.objective
    if not isinstance(objective, ReplacedTokenSettings) or objective.generator.shrink == 1:
        return False
    return not ELECTRA_GENERATOR.misfits(run, "states")


def _write_model(
    stock: Stock, state: State, run: RunSettings, output: StockOutput, folder: Path, *, about: dict[str, Any]
) -> None:
    write_whole(folder / "model.safetensors", save(stock.weights(state, run, output), metadata={"format": "pt"}))
    write_json(folder / "config.json", stock.full_config(state, run, output) | about)


def write_tokenizer(source: Path, folder: Path, *, max_length: int, segments: bool) -> None:
    """Write our tokenizer as a Hugging Face one: it adds START and END, and special tokens in a text are read
    as such.

    All other text gets the same ids as in training. The mask includes the space before it, as RoBERTa's does,
    and no space is added to the text after it. So the pieces around a mask are the same as around a word. Some
    tokenizers of folders still add that space: those with a `Prepend` normalizer or with one that removes a
    space at the start of a text, and those that cut a text before `ByteLevel` or `Metaspace` adds spaces.

    Args:
        max_length: longest text in ids, special ones included.
        segments: whether the model reads the number of a token's segment.
    """
    tokenizer = Tokenizer.from_file(str(source))
    normalizer = tokenizer.normalizer
    # Metaspace knows the start of a text by its offset 0, which a space that is removed would have.
    if normalizer is None or normalizer.normalize_str(" a") != normalizer.normalize_str("a"):
        content = json.loads(tokenizer.to_str())
        content["pre_tokenizer"] = _with_space_at_start(content["pre_tokenizer"])
        tokenizer = Tokenizer.from_str(json.dumps(content))
    special = [
        AddedToken(name, lstrip=i == MASK, normalized=False, special=True) for i, name in enumerate(SPECIAL_TOKENS)
    ]
    tokenizer.add_special_tokens(special)
    start, end = SPECIAL_TOKENS[START], SPECIAL_TOKENS[END]
    tokenizer.post_processor = TemplateProcessing(
        single=f"{start} $A {end}",
        pair=f"{start} $A {end} $B:1 {end}:1",
        special_tokens=[(start, START), (end, END)],
    )
    written = json.loads(tokenizer.to_str())
    write_whole(folder / "tokenizer.json", json.dumps(written, ensure_ascii=False).encode())
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": max_length,
            "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
            "padding_side": "right",
        }
        | {"added_tokens_decoder": {str(token.pop("id")): token for token in written["added_tokens"]}}
        | dict(zip(names, SPECIAL_TOKENS, strict=True)),
    )


def _with_space_at_start(cutter: Any) -> Any:
    """Return a pre-tokenizer that puts a space before the whole text only, and not after each special token too.

    A step after the first one puts a space before each part that it gets, so it stays as it is.
    """
    if cutter is None:
        return None
    if cutter["type"] == "Sequence" and cutter["pretokenizers"]:
        first, *rest = cutter["pretokenizers"]
        return cutter | {"pretokenizers": [_with_space_at_start(first), *rest]}
    if cutter["type"] == "Metaspace" and cutter["prepend_scheme"] == "always":
        return cutter | {"prepend_scheme": "first"}
    if cutter["type"] == "ByteLevel" and cutter["add_prefix_space"]:
        space = {"type": "Metaspace", "replacement": " ", "prepend_scheme": "first", "split": False}
        return {"type": "Sequence", "pretokenizers": [space, cutter | {"add_prefix_space": False}]}
    return cutter
