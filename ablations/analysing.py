"""`ablate analyse`: a model from a Hugging Face folder, and the same architecture untrained, measured on a text.

What comes out is a table as an experiment's, of two arms with one seed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ablations import analysis_folder, analysis_measures, results
from ablations.analysed_text import sentences
from ablations.analysis_begun import Begun, Measured
from ablations.analysis_measures import StateMeasure
from ablations.analysis_rows import Row, rows_of
from ablations.errors import MeasureError
from ablations.hugging_face import HuggingFaceModel, load, untrained
from ablations.hugging_face_states import States, require_finite, states
from ablations.hugging_face_text import TokenisedText, sample_of, tokenise
from ablations.measures.cca import REFUSED_BELOW
from ablations.measures.labels import token_labels, with_texts
from ablations.measures.sample import Sample
from ablations.wording import listed, several
from lightning_modules.data.treebank import LabelledSentence, read_treebank
from lightning_modules.files import make_folder

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
    """What a model comes to, as far as it is measured."""

    plan: dict[str, Any]
    """Its entry among the runs of plan.json."""
    rows: list[Row]
    refused: dict[str, None]
    """Why measures have no rows, and what to doubt in those they have."""
    unmeasured: list[str]
    """The measures that are still to come."""


@dataclass(frozen=True)
class Analysis:
    """What is measured of both models, and where it goes."""

    target: Path
    read: Read
    width: int
    measures: Sequence[StateMeasure]
    told: dict[str, Any]
    """What was asked for."""
    data: dict[str, Any]
    """What the plan says of the text."""
    origin: dict[str, Any]
    begun: Begun
    write_early: bool
    """Whether rows are written as soon as they are there: not over those of a whole analysis."""
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
    measures: Sequence[StateMeasure] | None = None,
    say: Say,
) -> Path:
    """Measure the model and its untrained twin; returns OUT/<name>, with the table, ready for a page.

    Measures that the text does not allow are left out; the plan says which, and why. Each measure of each model is
    written when it is ready, so a kill loses one at most; the plan then says what is not measured, and the next
    analysis of the same things goes on from there. What a whole analysis has written stays until the next one is
    whole.

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
            the labels are of other sentences; a measure asks for what is not known, or none is possible; or the
            folder of results is an experiment's or another model's.
        DataError: text or labels are missing or damaged.
        FilesError: the folder of results cannot be written to.
    """
    analysis_measures.require_known(measures or (), labelled=labels is not None)
    gold = _gold(text, labels=labels, column=column)
    target = analysis_folder.place(out, analysis_folder.name_of(folder) if name is None else name)
    say(f"loading {folder}")
    model = load(folder)
    analysis_folder.require_own(target, model)
    make_folder(target)  # before anything is measured that could not be kept
    if tokens is None:
        tokens = analysis_measures.usual_tokens(width=model.width, layers=model.layers + 1)
    read = _read(model, text, gold=gold, column=column, tokens=tokens, say=say)
    if measures is None:
        usual = analysis_measures.usual_measures(tokens, labelled=labels is not None)
        measures = [analysis_measures.fitted(settings, read.sample) for settings in usual]
    analysis = Analysis(
        target=target,
        read=read,
        width=model.width,
        measures=measures,
        told={"analyse": folder, "text": text, "labels": labels, "column": column, "tokens": tokens},
        data=analysis_folder.data_record(text, sentences=read.sample.sentences, cut=read.cut, ids=model.ids),
        origin=analysis_folder.origin(),
        begun=Begun(target / "begun", {"tokens": tokens, **_contents(text=text, labels=labels), "column": column}),
        write_early=not analysis_folder.is_whole(target),
        say=say,
    )
    own = _measured(model, analysis, arm=analysis_folder.arm_of(folder))
    if not own.rows:
        raise MeasureError(_why_nothing(own.refused, text, read.sample, width=model.width))
    model = untrained(model, seed=SEED)
    for sentence in _write(analysis, [own, _measured(model, analysis, arm=UNTRAINED, beside=[own])]):
        say(sentence)
    analysis.begun.remove()
    return target


def _gold(text: Path, *, labels: Path | None, column: str | None) -> list[LabelledSentence]:
    """The sentences with their labels; none without labels. Before a model is read, which may take long, so that
    what is wrong with either file comes at once."""
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
        if unplaced := int((~tokenised.placed_S[: sample.sentences]).sum()):
            of_all = several(sample.sentences, "sentence")
            say(f"{unplaced:,} of {of_all} without labels, as the tokenizer's pieces do not spell them")
    if cut := int(tokenised.cut_S[: sample.sentences].sum()):
        of_all = several(sample.sentences, "sentence")
        say(f"{cut:,} of {of_all} cut at {model.max_length} tokens, the model's longest")
    return Read(tokenised, sample, cut)


def _measured(model: HuggingFaceModel, analysis: Analysis, *, arm: str, beside: Sequence[Arm] = ()) -> Arm:
    """One of the two models, measured; its states, the largest thing in memory, are gone afterwards, and are not
    read where everything was measured before.

    Args:
        beside: what is written with it.
    """
    sample, say = analysis.read.sample, analysis.say
    about: Row = {"experiment": analysis.target.name, "run_id": model.run_id}
    about |= {"arm": arm, "seed": SEED, "step": model.step}
    measured = Arm({}, [], {}, [settings.kind for settings in analysis.measures])
    found: States | None = None
    for settings in analysis.measures:
        there = analysis.begun.there(model.run_id, settings)
        if there is None:
            found = _states(model, analysis, arm=arm) if found is None else found
            say(f"{arm}: measuring {settings.kind}")
            rows, doubts = rows_of(found, sample, settings)
            rows = [about | {"measure": settings.kind} | row for row in rows]
            there = Measured(rows, doubts, normalised=found.normalised_ND is not None)
            if rows:
                analysis.begun.keep(model.run_id, settings, there)
        else:
            say(f"{arm}: {settings.kind} was measured before")
        measured.plan.update(
            analysis_folder.run(model, arm=arm, seed=SEED, normalised=there.normalised, origin=analysis.origin)
        )
        measured.rows.extend(there.rows)
        measured.refused.update(dict.fromkeys(there.doubts))
        measured.unmeasured.remove(settings.kind)
        if analysis.write_early and measured.rows:
            _write(analysis, [*beside, measured])
    return measured


def _states(model: HuggingFaceModel, analysis: Analysis, *, arm: str) -> States:
    """All that the measures read of a model."""
    analysis.say(f"{arm}: reading {several(len(analysis.read.sample), 'token')}")
    found = states(model, analysis.read.text, analysis.read.sample)
    require_finite(found, folder=model.folder)
    return found


def _contents(**files: Path | None) -> dict[str, str | None]:
    """A digest of each file."""
    return {name: None if path is None else analysis_folder.digest(path) for name, path in files.items()}


def _write(analysis: Analysis, arms: Sequence[Arm]) -> list[str]:
    """Put what there is into the folder of results; returns what a reader must know of it."""
    sample, first = analysis.read.sample, arms[0]
    tried = [settings for settings in analysis.measures if settings.kind not in first.unmeasured]
    kept = [settings for settings in tried if any(row["measure"] == settings.kind for row in first.rows)]
    remedy = "raise --tokens" if len(analysis.read.text) > sample.sentences else "give more text"
    caveats = analysis_measures.caveats(kept, sample, width=analysis.width, remedy=remedy)
    notices = [*_unfinished(arms), *caveats, *_told(arms)]
    analysis_folder.write(
        analysis.target,
        table=results.table([row for arm in arms for row in arm.rows]),
        told=analysis.told,
        measures=analysis.measures,
        runs=[arm.plan | {"state": "running" if arm.unmeasured else "done"} for arm in arms],
        notices=notices,
        data=analysis.data,
    )
    return notices


def _unfinished(arms: Sequence[Arm]) -> Iterator[str]:
    """What is not measured yet, in a sentence for whoever finds the folder so."""
    missing = [f"{listed(arm.unmeasured, 'and')} of {arm.plan['arm']}" for arm in arms if arm.unmeasured]
    if len(arms) < 2:
        missing.append(f"all of {UNTRAINED}")
    if missing:
        yield f"The analysis has not ended, {listed(missing, 'and')} still to come; run it again."


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


def labelled(sample: Sample, tokenised: TokenisedText, gold: Sequence[LabelledSentence]) -> Sample:
    """The sample with what is known of the words of its sentences, which `gold` has first.

    Raises:
        MeasureError: a sentence does not have the words of its text, or it is not known where tokens stand.
    """
    if not tokenised.placed_S[: sample.sentences].any():
        raise MeasureError(
            "the model's tokenizer neither says where its tokens stand in the text nor has pieces that spell it; "
            "give a model with a tokenizer.json, or leave --labels out."
        )
    found = token_labels(gold[: sample.sentences], tokenised.text_spans()[: sample.sentences])
    return replace(sample, labels=found.codes, names=found.names)
