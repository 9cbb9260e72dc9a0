"""`ablate analyse`: a model from a Hugging Face folder, and the same architecture untrained, measured on a text.

What comes out is a table as an experiment's, of two arms with one seed.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ablations import analysis_folder, analysis_measures, results
from ablations.analysed_text import sentences
from ablations.analysis_measures import StateMeasure
from ablations.errors import MeasureError
from ablations.hugging_face import HuggingFaceModel, load, untrained
from ablations.hugging_face_states import States, require_finite, states
from ablations.hugging_face_text import TokenisedText, sample_of, tokenise
from ablations.measures.cca import REFUSED_BELOW
from ablations.measures.geometry import geometry
from ablations.measures.labels import token_labels, with_texts
from ablations.measures.layer_change import changes, layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.sample import Sample
from ablations.measures.settings import (
    GeometrySettings,
    LayerChangeSettings,
    NeighboursSettings,
    TokenInformationSettings,
)
from ablations.measures.token_information import information_rows
from ablations.results import AFTER_NORM
from ablations.wording import listed
from lightning_modules.data.treebank import read_treebank

Row = dict[str, Any]
Say = Callable[[str], None]

UNTRAINED = "untrained"
SEED = 0
"""Of the untrained weights, and of every row."""


class Read(NamedTuple):
    """A text as a model reads it, and the tokens of it that are measured."""

    text: TokenisedText
    sample: Sample
    cut: int
    """Sentences of the sample that are longer than the model allows."""


class Arm(NamedTuple):
    """What a model comes to."""

    plan: dict[str, Any]
    """Its entry among the runs of plan.json."""
    rows: list[Row]
    refused: dict[str, None]
    """Why measures have no rows, and what to doubt in those they have."""


def analyse(
    folder: Path,
    *,
    text: Path,
    labels: Path | None = None,
    column: str | None = None,
    out: Path,
    name: str | None = None,
    tokens: int | None = None,
    measures: Sequence[StateMeasure] | None = None,
    say: Say,
) -> Path:
    """Measure the model and its untrained twin; returns OUT/<name>, with the table, ready for a page.

    Measures that the text does not allow are left out; the plan says which, and why.

    Args:
        labels: a treebank of the same sentences.
        column: of a table; without it the column `text`, or the only one with text.
        name: of the folder of results; without it, the model's.
        tokens: occurrences, whole sentences from the start of the text; fewer if it has fewer. Without it as many
            as the width needs, see `usual_tokens`.
        measures: without them, all that read states, of as many clusters as the text allows. All read the same
            `tokens`, not the number of their own.

    Raises:
        MeasureError: the folder holds no model that can be read, or one that has diverged, or the text no token;
            the labels are of other sentences; no measure is possible; or the folder of results is an experiment's
            or another model's.
        DataError: text or labels are missing or damaged.
    """
    target = analysis_folder.place(out, analysis_folder.name_of(folder) if name is None else name)
    say(f"loading {folder}")
    model = load(folder)
    analysis_folder.require_own(target, model)
    width, wanted_tokens = model.width, tokens
    if wanted_tokens is None:
        wanted_tokens = analysis_measures.usual_tokens(width=width, layers=model.layers + 1)
    read = _read(model, text, labels=labels, column=column, tokens=wanted_tokens)
    if read.cut:
        of = f"{read.cut:,} of {read.sample.sentences:,} sentences"
        say(f"{of} cut at {model.max_length} tokens, the model's longest")
    wanted = list(measures or analysis_measures.usual_measures(wanted_tokens, labelled=labels is not None))
    if measures is None:
        wanted = [analysis_measures.fitted(settings, read.sample) for settings in wanted]
    origin = analysis_folder.origin()
    arms = [_arm(model, read, wanted, arm=analysis_folder.arm_of(folder), origin=origin, of=target.name, say=say)]
    if not arms[0].rows:
        raise MeasureError(_why_nothing(arms[0].refused, text, read.sample, width=width))
    model = untrained(model, seed=SEED)
    arms.append(_arm(model, read, wanted, arm=UNTRAINED, origin=origin, of=target.name, say=say))
    more = "raise --tokens" if len(read.text) > read.sample.sentences else "give more text"
    kept = [settings for settings in wanted if any(row["measure"] == settings.kind for row in arms[0].rows)]
    notices = [*analysis_measures.caveats(kept, read.sample, width=width, remedy=more), *_told(arms)]
    for sentence in notices:
        say(sentence)
    analysis_folder.write(
        target,
        table=results.table([row for arm in arms for row in arm.rows]),
        told={"analyse": folder, "text": text, "labels": labels, "column": column, "tokens": wanted_tokens},
        measures=wanted,
        runs=[arm.plan for arm in arms],
        notices=notices,
        data=analysis_folder.data_record(text, sentences=read.sample.sentences, cut=read.cut, ids=model.ids),
    )
    return target


def _read(model: HuggingFaceModel, text: Path, *, labels: Path | None, column: str | None, tokens: int) -> Read:
    tokenised = tokenise(model, list(islice(sentences(text, column=column), tokens + 1)), tokens=tokens)
    sample = sample_of(tokenised, tokens=tokens, source=text)
    if labels is not None:
        sample = labelled(sample, tokenised, labels=labels, text=text, column=column)
    return Read(tokenised, sample, int(tokenised.cut_S[: sample.sentences].sum()))


def _arm(
    model: HuggingFaceModel,
    read: Read,
    measures: Sequence[StateMeasure],
    *,
    arm: str,
    origin: dict[str, Any],
    of: str,
    say: Say,
) -> Arm:
    """One of the two models, measured; its states, the largest thing in memory, are gone afterwards."""
    say(f"{arm}: reading {len(read.sample):,} tokens")
    found = states(model, read.text, read.sample)
    require_finite(found, folder=model.folder)
    plan = analysis_folder.run(
        model, arm=arm, seed=SEED, normalised=found.normalised_ND is not None, origin=origin
    )
    about = {"experiment": of, "run_id": model.run_id, "arm": arm, "seed": SEED, "step": model.step}
    rows: list[Row] = []
    refused: dict[str, None] = {}
    for settings in measures:
        say(f"{arm}: measuring {settings.kind}")
        own, doubts = rows_of(found, read.sample, settings)
        rows += [about | {"measure": settings.kind} | row for row in own]
        refused |= {_named(settings.kind, doubt): None for doubt in doubts}
    return Arm(plan, rows, refused)


def _why_nothing(refused: dict[str, None], text: Path, sample: Sample, *, width: int) -> str:
    """One sentence on why there is no row."""
    if len(refused) == 1 or len(sample) >= REFUSED_BELOW * width:
        return next(iter(refused))
    counted = f"{len(sample):,} token{'s' * (len(sample) != 1)} in {sample.sentences:,} sentence"
    return (
        f"{text} has {counted}{'s' * (sample.sentences != 1)}, too few for any measure of a model of width "
        f"{width:,}; give at least {REFUSED_BELOW * width:,} tokens."
    )


def _told(arms: Sequence[Arm]) -> list[str]:
    """What was refused or doubted, each once, with the arms that it is about."""
    sentences = dict.fromkeys(sentence for arm in arms for sentence in arm.refused)
    return [
        f"{listed([arm.plan['arm'] for arm in arms if sentence in arm.refused], 'and')}: {sentence}"
        for sentence in sentences
    ]


def labelled(
    sample: Sample, tokenised: TokenisedText, *, labels: Path, text: Path, column: str | None = None
) -> Sample:
    """The sample with what a treebank of the same sentences says of its words.

    Raises:
        MeasureError: the treebank has other sentences, or the tokenizer does not say where its tokens stand.
        DataError: the treebank is missing or damaged.
    """
    if tokenised.spans is None:
        raise MeasureError(
            f"--labels {labels}: the model's tokenizer does not say where its tokens stand in the text; give a "
            f"model with a tokenizer.json, or leave the labels out."
        )
    known = with_texts(
        read_treebank(labels), list(sentences(text, column=column)), labels_from=str(labels), texts_from=str(text)
    )
    found = token_labels(known[: sample.sentences], tokenised.text_spans()[: sample.sentences])
    return replace(sample, labels=found.codes, names=found.names)


def rows_of(found: States, sample: Sample, settings: StateMeasure) -> tuple[list[Row], list[str]]:
    """The rows of one measure, and in sentences why there are none or what to doubt in them."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            rows = list(_rows(found.layers_LND, sample, settings))
            if found.normalised_ND is not None:
                rows += _after_norm(found, sample, settings)
        except MeasureError as error:
            return [], [str(error)]
    doubts = [warning for warning in warned if issubclass(warning.category, UserWarning)]
    for warning in warned:
        if warning not in doubts:  # of a library, not of a measure
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return rows, [str(warning.message) for warning in doubts]


def _named(measure: str, doubt: str) -> str:
    return doubt if doubt.startswith(measure) else f"{measure}: {doubt}"


def _rows(layers_LND: list[Any], sample: Sample, settings: StateMeasure) -> Iterator[Row]:
    match settings:
        case LayerChangeSettings():
            return layer_change(layers_LND, sample, settings)
        case TokenInformationSettings():
            return information_rows(layers_LND, sample, settings)
        case NeighboursSettings():
            return neighbours(layers_LND, sample, settings)
        case GeometrySettings():
            return geometry(layers_LND, sample, settings)


def _after_norm(found: States, sample: Sample, settings: StateMeasure) -> Iterator[Row]:
    """The rows of the last layer's states after the final norm: a layer's own, or how much the norm changes it."""
    assert found.normalised_ND is not None
    top = len(found.layers_LND) - 1
    if isinstance(settings, LayerChangeSettings):
        for row in changes([found.layers_LND[top], found.normalised_ND], sample.sentence_N):
            yield row | {"group": AFTER_NORM, "layer": top, "layer_to": top}
        return
    for row in _rows([found.normalised_ND], sample, settings):
        group = row.get("group")
        yield row | {"group": AFTER_NORM if group is None else f"{group}, {AFTER_NORM}", "layer": top}
