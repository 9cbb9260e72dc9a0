"""Analysis of one model: `ablate analyse` measures a model from a Hugging Face folder, and the same architecture
untrained, on a text.

The result is a table like an experiment's, of two arms with one seed.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ablations import results
from ablations.analyse import folder as analyse_folder
from ablations.analyse import measures as analyse_measures
from ablations.analyse import minimal_pairs
from ablations.analyse.measures import AnyMeasure
from ablations.analyse.model import HuggingFaceModel, hidden_states, load, untrained
from ablations.analyse.text import TokenisedText, sample_of, sentences, tokenise
from ablations.errors import MeasureError
from ablations.measures.geometry import geometry
from ablations.measures.layer_change import layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.read_out import read_out_rows
from ablations.measures.reading.labels import token_labels, with_texts
from ablations.measures.reading.sample import Sample
from ablations.measures.settings import (
    GeometrySettings,
    LayerChangeSettings,
    NeighboursSettings,
    ReadOutSettings,
    TokenInformationSettings,
)
from ablations.measures.similarity.cca import REFUSED_BELOW
from ablations.measures.token_information import information_rows
from ablations.runs.records import DataRecord, RunRecord
from ablations.tasks.settings import MinimalPairsSettings
from ablations.wording import listed, several
from lightning_modules.data.treebank import LabelledSentence, read_treebank
from lightning_modules.files import require_writable

Row = dict[str, Any]


def kept_rows(rows: Iterable[Row], settings: AnyMeasure) -> tuple[list[Row], list[str]]:
    """Return the rows of one measure, and in sentences why there are none or what to doubt in them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            whole = list(rows)
        except MeasureError as error:
            return [], [_named(settings.kind, str(error))]
    doubts = [warning for warning in warned if issubclass(warning.category, UserWarning)]
    for warning in warned:
        if warning not in doubts:  # of a library, not of a measure
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return whole, [_named(settings.kind, str(warning.message)) for warning in doubts]


def _named(measure: str, doubt: str) -> str:
    return doubt if doubt.startswith(measure) else f"{measure}: {doubt}"


def _rows(
    layers_LND: list[Any], settings: AnyMeasure, *, model: HuggingFaceModel, analysis: "Analysis"
) -> Iterator[Row]:
    sample, text = analysis.read.sample, analysis.read.text
    match settings:
        case MinimalPairsSettings():
            counts_V = np.bincount(text.ids[text.is_text], minlength=model.ids)
            yield from minimal_pairs.rows(model, settings, data_root=analysis.data_root, counts_V=counts_V)
        case LayerChangeSettings():
            yield from layer_change(layers_LND, sample, settings)
        case TokenInformationSettings():
            yield from information_rows(layers_LND, sample, settings)
        case ReadOutSettings():
            yield from read_out_rows(layers_LND, sample, settings)
        case NeighboursSettings():
            yield from neighbours(layers_LND, sample, settings)
        case GeometrySettings():
            yield from geometry(layers_LND, sample, settings)


Say = Callable[[str], None]

UNTRAINED = "untrained"
SEED = 0
"""The seed of the untrained weights, and of every row."""

UNFINISHED = f"The analysis has not ended, all of {UNTRAINED} still to come; run it again."


class Read(NamedTuple):
    """Text as a model reads it, and the tokens of it that are measured."""

    text: TokenisedText
    sample: Sample
    cut: int
    """Sentences of the sample that are longer than the model allows."""


class Arm(NamedTuple):
    """The results of a model."""

    plan: RunRecord
    """Its entry among the runs of plan.json."""
    rows: list[Row]
    doubts: list[str]
    """Sentences that say why measures have no rows, and what to doubt in those they have."""


@dataclass(frozen=True)
class Analysis:
    """Analysis of both models: what is measured, and where the results go."""

    target: Path
    read: Read
    width: int
    measures: Sequence[AnyMeasure]
    data_root: Path
    """Where the files of minimal pairs lie."""
    arguments: dict[str, Any]
    """Arguments of the analysis."""
    data: DataRecord
    """Entry of the text in the plan."""
    origin: dict[str, Any]
    say: Say


def analyse(
    folder: Path,
    *,
    text: Path,
    labels: Path | None = None,
    column: str | None = None,
    out: Path,
    name: str | None = None,
    tokens: int | None = None,
    measures: Sequence[AnyMeasure] | None = None,
    data_root: Path = Path(),
    say: Say,
) -> Path:
    """Measure the model and its untrained twin; returns OUT/<name>, with the table, ready for a page.

    Measures that the text does not allow are left out; the plan says which, and why. The results of the model are
    written before its twin is measured; after a kill the plan says that the twin is missing, and the same command
    starts over. The results of a whole analysis stay until the next one is whole.

    Args:
        labels: a treebank of the same sentences.
        column: of a table; without it the column `text`, or the only one with text.
        name: of the folder of results; without it, the model's.
        tokens: occurrences, whole sentences from the start of the text; fewer if it has fewer. Without it as many
            as the width needs, see `usual_tokens`.
        measures: without them, all that read states, of as many clusters as the text allows. All read the same
            `tokens`, not the number of their own.
        data_root: where the files of minimal pairs lie.

    Raises:
        MeasureError: the folder holds no model that can be read, or one that has diverged, or the text no token;
            the labels are of other sentences; a measure asks for what is not known, or none is possible; minimal
            pairs are asked for, but their files or the model's masked-LM head are missing; or the folder of
            results is an experiment's or another model's.
        DataError: text or labels are missing or damaged.
        FilesError: the folder of results cannot be written to.
    """
    of_pairs = [settings for settings in measures or () if isinstance(settings, MinimalPairsSettings)]
    analyse_measures.require_known(measures or (), labelled=labels is not None)
    for settings in of_pairs:
        minimal_pairs.require_tasks(settings, data_root=data_root)
    gold = _gold(text, labels=labels, column=column)
    target = analyse_folder.place(out, analyse_folder.name_of(folder) if name is None else name)
    say(f"loading {folder}")
    model = _loaded(folder, target, with_head=bool(of_pairs))
    if tokens is None:
        tokens = analyse_measures.usual_tokens(width=model.width, layers=model.layers + 1)
    read = _read(model, text, gold=gold, column=column, tokens=tokens, say=say)
    arguments = {"analyse": folder, "text": text, "labels": labels, "column": column, "tokens": tokens}
    analysis = Analysis(
        target=target,
        read=read,
        width=model.width,
        measures=_usual(read.sample, tokens, labelled=labels is not None) if measures is None else measures,
        data_root=data_root,
        arguments=arguments | ({"data_root": data_root} if of_pairs else {}),
        data=analyse_folder.data_record(text, sentences=read.sample.sentences, cut=read.cut, ids=model.ids),
        origin=analyse_folder.origin(),
        say=say,
    )
    trained = _measured(model, analysis, arm=analyse_folder.arm_of(folder))
    if not trained.rows:
        raise MeasureError(_why_nothing(trained.doubts, text, read.sample, width=model.width))
    if not analyse_folder.is_whole(target):
        _write(analysis, [trained])
    model = untrained(model, seed=SEED)  # memory then holds one of the two
    for sentence in _write(analysis, [trained, _measured(model, analysis, arm=UNTRAINED)]):
        say(sentence)
    return target


def _loaded(folder: Path, target: Path, *, with_head: bool) -> HuggingFaceModel:
    """Load the model, and refuse what could not be measured or not be kept before anything is measured."""
    model = load(folder)
    if with_head:
        minimal_pairs.with_head(model)
    analyse_folder.require_own(target, model)
    require_writable(target)
    return model


def _usual(sample: Sample, tokens: int, *, labelled: bool) -> list[AnyMeasure]:
    """Return all measures that read states, of as many clusters as the text allows."""
    usual = analyse_measures.usual_measures(tokens, labelled=labelled)
    return [analyse_measures.fitted(settings, sample) for settings in usual]


def _gold(text: Path, *, labels: Path | None, column: str | None) -> list[LabelledSentence]:
    """Return the sentences with their labels; none without labels. Before a model is read, which may take long, so
    that what is wrong with either file comes at once."""
    if labels is None:
        next(sentences(text, column=column))
        return []
    texts = list(sentences(text, column=column))
    return with_texts(read_treebank(labels), texts, labels_from=str(labels), texts_from=str(text))


def _read(
    model: HuggingFaceModel,
    text: Path,
    *,
    gold: Sequence[LabelledSentence],
    column: str | None,
    tokens: int,
    say: Say,
) -> Read:
    read = islice(sentences(text, column=column), tokens + 1)
    tokenised = tokenise(model, list(read), tokens=tokens)
    sample = sample_of(tokenised, tokens=tokens, source=text)
    if gold:
        sample = labelled(sample, tokenised, gold)
    if cut := int(tokenised.cut_S[: sample.sentences].sum()):
        of_all = several(sample.sentences, "sentence")
        say(f"{cut:,} of {of_all} cut at {model.max_length} tokens, the model's longest")
    return Read(tokenised, sample, cut)


def _measured(model: HuggingFaceModel, analysis: Analysis, *, arm: str) -> Arm:
    """Measure one of the two models; its states, the largest thing in memory, are gone afterwards."""
    sample, say = analysis.read.sample, analysis.say
    say(f"{arm}: reading {several(len(sample), 'token')}")
    layers_LND = states(model, analysis.read.text, sample)
    require_finite(layers_LND, folder=model.folder)
    about: Row = {"experiment": analysis.target.name, "run_id": model.run_id}
    about |= {"arm": arm, "seed": SEED, "step": model.step}
    measured_rows: list[Row] = []
    all_doubts: list[str] = []
    for settings in analysis.measures:
        say(f"{arm}: measuring {settings.kind}")
        rows, doubts = kept_rows(_rows(layers_LND, settings, model=model, analysis=analysis), settings)
        measured_rows.extend(about | {"measure": settings.kind} | row for row in rows)
        all_doubts.extend(dict.fromkeys(doubts))
    plan = analyse_folder.run(model, arm=arm, seed=SEED, origin=analysis.origin)
    return Arm(plan, measured_rows, all_doubts)


def _write(analysis: Analysis, arms: Sequence[Arm]) -> list[str]:
    """Put the results of the arms into the folder; returns what a reader must know of them."""
    sample, measured = analysis.read.sample, {row["measure"] for row in arms[0].rows}
    with_rows = [settings for settings in analysis.measures if settings.kind in measured]
    remedy = "raise --tokens" if len(analysis.read.text) > sample.sentences else "give more text"
    caveats = analyse_measures.caveats(with_rows, sample, width=analysis.width, remedy=remedy)
    notices = [*[UNFINISHED] * (len(arms) < 2), *caveats, *_doubts(arms)]
    analyse_folder.write(
        analysis.target,
        table=results.table([row for arm in arms for row in arm.rows]),
        arguments=analysis.arguments,
        measures=analysis.measures,
        runs=[arm.plan for arm in arms],
        notices=notices,
        data=analysis.data,
    )
    return notices


def _why_nothing(doubts: list[str], text: Path, sample: Sample, *, width: int) -> str:
    """Return one sentence on why there is no row."""
    if len(doubts) == 1 or len(sample) >= REFUSED_BELOW * width:
        return doubts[0]
    counted = f"{len(sample):,} token{'s' * (len(sample) != 1)} in {sample.sentences:,} sentence"
    return (
        f"{text} has {counted}{'s' * (sample.sentences != 1)}, too few for any measure of a model of width "
        f"{width:,}; give at least {REFUSED_BELOW * width:,} tokens."
    )


def _doubts(arms: Sequence[Arm]) -> list[str]:
    """Return the refusals and doubts of all arms, each once, with the arms that it is about."""
    sentences = dict.fromkeys(sentence for arm in arms for sentence in arm.doubts)
    return [
        f"{listed([arm.plan.arm for arm in arms if sentence in arm.doubts], 'and')}: {sentence}"
        for sentence in sentences
    ]


def labelled(sample: Sample, tokenised: TokenisedText, gold: Sequence[LabelledSentence]) -> Sample:
    """Return the sample with the labels of the words of its sentences, which `gold` has first.

    Raises:
        MeasureError: a sentence does not have the words of its text, or the tokenizer is not a fast one.
    """
    if tokenised.spans is None:
        raise MeasureError(
            "the model's tokenizer does not say where its tokens stand in the text; give a model with a "
            "tokenizer.json, or leave --labels out."
        )
    token_facts = token_labels(gold[: sample.sentences], tokenised.text_spans()[: sample.sentences])
    return replace(sample, labels=token_facts.codes, names=token_facts.names)


TOKENS_AT_ONCE = 8192
"""Tokens that are read together."""


@torch.no_grad()
def states(
    model: HuggingFaceModel, text: TokenisedText, sample: Sample, *, tokens_at_once: int = TOKENS_AT_ONCE
) -> list[NDArray[np.float32]]:
    """Return the states of all text tokens of the sampled sentences, in their order.

    Returns:
        L + 1 arrays ND: what enters the first block, then what leaves each block.
    """
    place = np.cumsum(text.is_text) - 1
    layers_LND = [np.empty((len(sample), model.width), np.float32) for _ in range(model.layers + 1)]
    for index_BT in _batches(text, sample.sentences, tokens_at_once):
        is_text_BT = text.is_text[index_BT]
        inputs = {"input_ids": text.ids[index_BT], "attention_mask": np.ones_like(index_BT)}
        if text.types is not None:
            inputs["token_type_ids"] = text.types[index_BT]
        tensors = {name: torch.from_numpy(array).to(model.device) for name, array in inputs.items()}
        states_LBTD = hidden_states(model.model, tensors, final_norm=model.final_norm)
        for layer_ND, layer_BTD in zip(layers_LND, states_LBTD, strict=True):
            layer_ND[place[index_BT][is_text_BT]] = (
                layer_BTD[torch.from_numpy(is_text_BT).to(layer_BTD.device)].float().cpu().numpy()
            )
    return layers_LND


def require_finite(layers_LND: list[NDArray[np.float32]], *, folder: Path) -> None:
    """Refuse states that no measure could read.

    Raises:
        MeasureError: a state holds NaN or infinity; the first layer that does is named.
    """
    for layer, states_ND in enumerate(layers_LND):
        broken = np.flatnonzero(~np.isfinite(states_ND).all(axis=1))
        if len(broken):
            hold = "holds" if len(broken) == 1 else "hold"
            raise MeasureError(
                f"{folder}: {len(broken):,} of {len(states_ND):,} states of layer {layer} {hold} NaN or "
                f"infinity, as of a diverged training or of damaged weights; give another checkpoint of the model."
            )


def _batches(text: TokenisedText, sentences: int, tokens_at_once: int) -> Iterator[NDArray[np.int64]]:
    """Yield the places of the tokens of sentences of one length, a sentence a row; those without text are left
    out."""
    length_S = np.diff(text.offsets[: sentences + 1])
    before = np.concatenate([[0], np.cumsum(text.is_text)])
    has_text_S = before[text.offsets[1 : sentences + 1]] > before[text.offsets[:sentences]]
    for T in np.unique(length_S[has_text_S]).tolist():
        (same,) = np.nonzero(has_text_S & (length_S == T))
        rows = max(1, tokens_at_once // T)
        for first in range(0, len(same), rows):
            yield text.offsets[same[first : first + rows], None] + np.arange(T)
