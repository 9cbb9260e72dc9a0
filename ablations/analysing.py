"""`ablate analyse`: a model from a Hugging Face folder, and the same architecture untrained, measured on a text.

What comes out is a table as an experiment's, of two arms with one seed.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from ablations import analysis_folder, results
from ablations.analysed_text import sentences
from ablations.errors import MeasureError
from ablations.hugging_face import load, untrained
from ablations.hugging_face_states import States, states
from ablations.hugging_face_text import TokenisedText, sample_of, tokenise
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
from lightning_modules.data.treebank import read_treebank

Row = dict[str, Any]
Say = Callable[[str], None]
StateMeasure = LayerChangeSettings | TokenInformationSettings | NeighboursSettings | GeometrySettings

AFTER_NORM = "after final norm"
"""Group of the rows that read the last layer's states after the model's final norm."""

UNTRAINED = "untrained"
SEED = 0
"""Of the untrained weights, and of every row."""


def analyse(
    folder: Path,
    *,
    text: Path,
    labels: Path | None = None,
    column: str | None = None,
    out: Path,
    name: str | None = None,
    tokens: int = 50_000,
    measures: Sequence[StateMeasure] | None = None,
    say: Say,
) -> Path:
    """Measure the model and its untrained twin; returns OUT/<name>, with the table, ready for a page.

    Measures that the text does not allow are left out; the plan says which, and why.

    Args:
        labels: a treebank of the same sentences.
        column: of a table; without it the column `text`, or the only one with text.
        name: of the folder of results; without it, the model's.
        tokens: occurrences, whole sentences from the start of the text; fewer if it has fewer.
        measures: without them, all that read states. All read the same `tokens`, not the number of their own.

    Raises:
        MeasureError: the folder holds no model that can be read, or the text no token; the labels are of other
            sentences; no measure is possible; or the folder of results is an experiment's.
        DataError: text or labels are missing or damaged.
    """
    target = analysis_folder.place(out, analysis_folder.name_of(folder) if name is None else name)
    lines = list(islice(sentences(text, column=column), tokens + 1))
    say(f"loading {folder}")
    model = load(folder)
    tokenised = tokenise(model, lines, tokens=tokens)
    sample = sample_of(tokenised, tokens=tokens, source=text)
    if labels is not None:
        sample = labelled(sample, tokenised, labels=labels, text=text, column=column)
    cut = int(tokenised.cut_S[: sample.sentences].sum())
    if cut:
        say(f"{cut:,} of {sample.sentences:,} sentences cut at {model.max_length} tokens, the model's longest")
    wanted = default_measures(tokens, labelled=labels is not None) if measures is None else measures
    rows: list[Row] = []
    refused: dict[str, None] = {}
    runs, origin = [], analysis_folder.origin()
    for arm in (analysis_folder.arm_of(folder), UNTRAINED):
        model = untrained(model, seed=SEED) if arm == UNTRAINED else model
        say(f"{arm}: reading {len(sample):,} tokens")
        found = states(model, tokenised, sample)
        normalised = found.normalised_ND is not None
        runs.append(analysis_folder.run(model, arm=arm, seed=SEED, normalised=normalised, origin=origin))
        about = {"experiment": target.name, "run_id": model.run_id, "arm": arm, "seed": SEED, "step": model.step}
        for settings in wanted:
            say(f"{arm}: measuring {settings.kind}")
            own, doubts = rows_of(found, sample, settings)
            rows += [about | {"measure": settings.kind} | row for row in own]
            refused |= {_named(settings.kind, doubt): None for doubt in doubts}
    if not rows:
        raise MeasureError(" ".join(refused))
    for sentence in refused:
        say(sentence)
    analysis_folder.write(
        target,
        table=results.table(rows),
        told={"analyse": folder, "text": text, "labels": labels, "column": column, "tokens": tokens},
        measures=wanted,
        runs=runs,
        notices=list(refused),
        data=analysis_folder.data_record(text, sentences=sample.sentences, cut=cut, ids=model.ids),
    )
    return target


def default_measures(tokens: int, *, labelled: bool) -> list[StateMeasure]:
    """Every measure that reads states, with what needs labels if there are some."""
    groups = ["frequency", *["part_of_speech"] * labelled]
    about = ["input", "previous", "next"]
    return [
        LayerChangeSettings.model_validate({"kind": "layer_change", "tokens": tokens, "groups": groups}),
        TokenInformationSettings.model_validate({"kind": "token_information", "tokens": tokens, "about": about}),
        NeighboursSettings(kind="neighbours", tokens=tokens),
        GeometrySettings(kind="geometry", tokens=tokens),
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
