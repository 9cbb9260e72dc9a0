"""Analysis of models: `ablate analyse` measures models from Hugging Face folders, and the same architectures
untrained, on a text.

The result is a table like an experiment's, of arms with one seed; a series of checkpoints has rows at every step.
"""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ablations import results
from ablations.analyse import folder as analyse_folder
from ablations.analyse import measures as analyse_measures
from ablations.analyse import minimal_pairs
from ablations.analyse.arms import SEED, ModelArm, Say, Subject, arms_of, name_of_all, twins_of
from ablations.analyse.measures import AnyMeasure
from ablations.analyse.model import HuggingFaceModel, hidden_states, load
from ablations.analyse.text import Read, TokenisedText, read_by_all, sentences
from ablations.errors import MeasureError
from ablations.measures.geometry import geometry
from ablations.measures.layer_change import layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.read_out import read_out_rows
from ablations.measures.reading.labels import with_texts
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
    layers_LND: list[Any], settings: AnyMeasure, *, model: HuggingFaceModel, read: Read, data_root: Path
) -> Iterator[Row]:
    sample, text = read.sample, read.text
    match settings:
        case MinimalPairsSettings():
            counts_V = np.bincount(text.ids[text.is_text], minlength=model.ids)
            yield from minimal_pairs.rows(model, settings, data_root=data_root, counts_V=counts_V)
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


class Arm(NamedTuple):
    """The results of a subject."""

    plan: RunRecord
    """Its entry among the runs of plan.json."""
    rows: list[Row]
    doubts: list[str]
    """Sentences that say why measures have no rows, and what to doubt in those they have."""


@dataclass(frozen=True)
class Analysis:
    """Analysis of all subjects: what is measured, and where the results go."""

    target: Path
    subjects: Sequence[Subject]
    """Those that the user gave, then the untrained twins."""
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
    *folders: Path,
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
    """Measure the models and their untrained twins; returns OUT/<name>, with the table, ready for a page.

    Each folder is an arm: a model, or a series of checkpoints that is measured at every step (`arms_of`). All are
    measured on the same sentences. Arms of equal architecture that cut the text alike share a twin. Measures that
    the text does not allow are left out; the plan says which, and why. The results of each arm are written before
    the next is measured; after a kill the plan says what is missing, and the same command starts over. The results
    of a whole analysis stay until the next one is whole.

    Args:
        labels: a treebank of the same sentences.
        column: of a table; without it the column `text`, or the only one with text.
        name: of the folder of results; without it, the models'.
        tokens: occurrences, whole sentences from the start of the text; fewer if it has fewer. Without it as many
            as the largest width needs, see `usual_tokens`.
        measures: without them, all that read states, of as many clusters as the text allows. All read the same
            `tokens`, not the number of their own.
        data_root: where the files of minimal pairs lie.

    Raises:
        MeasureError: a folder holds no model that can be read, or one that has diverged, or the text no token;
            the labels are of other sentences; a measure asks for what is not known, or none is possible; minimal
            pairs are asked for, but their files or a model's masked-LM head are missing; or the folder of results
            is an experiment's or of other models.
        DataError: text or labels are missing or damaged.
        FilesError: the folder of results cannot be written to.
    """
    of_pairs = [settings for settings in measures or () if isinstance(settings, MinimalPairsSettings)]
    analyse_measures.require_known(measures or (), labelled=labels is not None)
    for settings in of_pairs:
        minimal_pairs.require_tasks(settings, data_root=data_root)
    gold = _gold(text, labels=labels, column=column)
    default_name = name_of_all(analyse_folder.name_of(folder) for folder in folders)
    target = analyse_folder.place(out, default_name if name is None else name)
    arms = arms_of(folders, seed=SEED)
    analyse_folder.require_own(
        target, {arm.run_id: arm.folder for arm in arms}, [arm.untrained_id for arm in arms]
    )
    require_writable(target)
    models = [_facts(arm, with_head=bool(of_pairs), say=say) for arm in arms]
    if tokens is None:
        tokens = analyse_measures.usual_tokens([(model.width, model.layers + 1) for model in models])
    read = read_by_all(models, text, gold=gold, column=column, tokens=tokens)
    subjects = [Subject(arm.name, arm, model, each) for arm, model, each in zip(arms, models, read, strict=True)]
    for subject in subjects:
        _say_cut(subject, say)
    analysed = list(folders) if len(folders) > 1 else folders[0]
    arguments = {"analyse": analysed, "text": text, "labels": labels, "column": column, "tokens": tokens}
    analysis = Analysis(
        target=target,
        subjects=[*subjects, *twins_of(subjects)],
        measures=_usual(read, tokens, labelled=labels is not None) if measures is None else measures,
        data_root=data_root,
        arguments=arguments | ({"data_root": data_root} if of_pairs else {}),
        data=analyse_folder.data_record(
            text,
            sentences=read[0].sample.sentences,
            cut=max(each.cut for each in read),
            vocabulary_sizes={model.ids for model in models},
        ),
        origin=analyse_folder.origin(),
        say=say,
    )
    return _carry_out(analysis, text)


def _carry_out(analysis: Analysis, text: Path) -> Path:
    """Measure all subjects; results that were whole stay until all are measured."""
    is_new = not analyse_folder.is_whole(analysis.target)
    given = [subject for subject in analysis.subjects if not subject.is_twin]
    arms: list[Arm] = []
    for subject in analysis.subjects:
        arms.append(_measured(subject, analysis))
        if len(arms) == len(given) and not any(arm.rows for arm in arms):
            raise MeasureError(_why_nothing(arms[0].doubts, text, given[0]))
        if is_new and len(arms) < len(analysis.subjects) and any(arm.rows for arm in arms):
            _write(analysis, arms)
    for sentence in _write(analysis, arms):
        analysis.say(sentence)
    return analysis.target


def _facts(arm: ModelArm, *, with_head: bool, say: Say) -> HuggingFaceModel:
    """Return the facts about a model, or about the first checkpoint of a series. It is loaded for this, so that
    what could not be measured is refused before anything is."""
    say(f"loading {arm.folder}")
    model = load(arm.checkpoints[0].folder, tokenizer_folder=arm.tokenizer_folder)
    if with_head:
        minimal_pairs.with_head(model)
    return replace(model, model=None)


def _usual(read: Sequence[Read], tokens: int, *, labelled: bool) -> list[AnyMeasure]:
    """Return all measures that read states, of as many clusters as the text allows for every model."""
    usual = analyse_measures.usual_measures(tokens, labelled=labelled)
    for each in read:
        usual = [analyse_measures.fitted(settings, each.sample) for settings in usual]
    return usual


def _say_cut(subject: Subject, say: Say) -> None:
    """Say how many sentences are too long for the model."""
    if cut := subject.read.cut:
        of_all = several(subject.read.sample.sentences, "sentence")
        say(f"{subject.name}: {cut:,} of {of_all} cut at {subject.model.max_length} tokens, the model's longest")


def _gold(text: Path, *, labels: Path | None, column: str | None) -> list[LabelledSentence]:
    """Return the sentences with their labels; none without labels. Before a model is read, which may take long, so
    that what is wrong with either file comes at once."""
    if labels is None:
        next(sentences(text, column=column))
        return []
    texts = list(sentences(text, column=column))
    return with_texts(read_treebank(labels), texts, labels_from=str(labels), texts_from=str(text))


def _measured(subject: Subject, analysis: Analysis) -> Arm:
    """Measure one subject; the states of a model, the largest thing in memory, are gone before the next is
    loaded."""
    sample, say = subject.read.sample, analysis.say
    measured_rows: list[Row] = []
    all_doubts: dict[str, None] = {}
    for called, model in subject.models(say):
        say(f"{called}: reading {several(len(sample), 'token')}")
        layers_LND = states(model, subject.read.text, sample)
        require_finite(layers_LND, folder=model.folder)
        about: Row = {"experiment": analysis.target.name, "run_id": model.run_id}
        about |= {"arm": subject.name, "seed": SEED, "step": model.step}
        for settings in analysis.measures:
            say(f"{called}: measuring {settings.kind}")
            rows = _rows(layers_LND, settings, model=model, read=subject.read, data_root=analysis.data_root)
            whole, doubts = kept_rows(rows, settings)
            measured_rows.extend(about | {"measure": settings.kind} | row for row in whole)
            all_doubts |= dict.fromkeys(doubts)
        plan = analyse_folder.run(model, arm=subject.name, seed=SEED, origin=analysis.origin)
        del layers_LND, model
    return Arm(plan, measured_rows, list(all_doubts))


def _write(analysis: Analysis, arms: Sequence[Arm]) -> list[str]:
    """Put the results of the arms into the folder; returns what a reader must know of them."""
    to_come = [subject.name for subject in analysis.subjects[len(arms) :]]
    unfinished = [analyse_folder.UNFINISHED.format(listed(to_come, "and"))] if to_come else []
    doubts = _by_arm([(arm.plan.arm, arm.doubts) for arm in arms])
    notices = [*unfinished, *_caveats(analysis, arms), *doubts]
    analyse_folder.write(
        analysis.target,
        table=results.table([row for arm in arms for row in arm.rows]),
        arguments=analysis.arguments,
        measures=analysis.measures,
        of=listed([subject.name for subject in analysis.subjects if not subject.is_twin], "and"),
        runs=[arm.plan for arm in arms],
        notices=notices,
        data=analysis.data,
    )
    return notices


def _caveats(analysis: Analysis, arms: Sequence[Arm]) -> list[str]:
    """Return the caveats of the measures on the tokens of each model; they name it where there are several."""
    caveats = []
    for subject, arm in zip(analysis.subjects, arms, strict=False):
        sample, measured = subject.read.sample, {row["measure"] for row in arm.rows}
        with_rows = [settings for settings in analysis.measures if settings.kind in measured]
        remedy = "raise --tokens" if len(subject.read.text) > sample.sentences else "give more text"
        of_arm = analyse_measures.caveats(with_rows, sample, width=subject.model.width, remedy=remedy)
        caveats.append((subject.name, [] if subject.is_twin else list(of_arm)))
    if sum(not subject.is_twin for subject in analysis.subjects) == 1:
        return caveats[0][1]
    return _by_arm(caveats)


def _why_nothing(doubts: list[str], text: Path, subject: Subject) -> str:
    """Return one sentence on why there is no row."""
    sample, width = subject.read.sample, subject.model.width
    if len(doubts) == 1 or len(sample) >= REFUSED_BELOW * width:
        return doubts[0]
    counted = f"{len(sample):,} token{'s' * (len(sample) != 1)} in {sample.sentences:,} sentence"
    return (
        f"{text} has {counted}{'s' * (sample.sentences != 1)}, too few for any measure of a model of width "
        f"{width:,}; give at least {REFUSED_BELOW * width:,} tokens."
    )


def _by_arm(sentences: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return the sentences of all arms, each once, with the arms that it is about."""
    once = dict.fromkeys(sentence for _, of_arm in sentences for sentence in of_arm)
    return [
        f"{listed([arm for arm, of_arm in sentences if sentence in of_arm], 'and')}: {sentence}"
        for sentence in once
    ]


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
