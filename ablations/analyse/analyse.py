"""Analysis of models: `ablate analyse` measures models from Hugging Face folders, and untrained twins, on a
text.

A twin has the same architecture and random weights. The result is a table like that of an experiment, with
arms of one seed. A series of checkpoints has rows at every step.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pandas import DataFrame

from ablations import results
from ablations.analyse import folder as analyse_folder
from ablations.analyse import measures as analyse_measures
from ablations.analyse import minimal_pairs
from ablations.analyse.arms import SEED, ModelArm, Subject, SubjectModel, arms_of, twins_of
from ablations.analyse.folder import MeasureResults, Row, forget_kept, keep, kept_file, read_kept, rows_and_doubts
from ablations.analyse.measures import AnyMeasure
from ablations.analyse.model import HuggingFaceModel, load
from ablations.analyse.text import ReadText, read_by_all, require_finite, sentences, states
from ablations.catalogue import card
from ablations.errors import MeasureError
from ablations.measures.geometry import geometry
from ablations.measures.layer_change import layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.read_out import read_out_rows
from ablations.measures.reading.labels import with_texts
from ablations.measures.reading.texts import Say
from ablations.measures.settings import (
    REFUSED_BELOW,
    GeometrySettings,
    LayerChangeSettings,
    NeighboursSettings,
    ReadOutSettings,
    TokenInformationSettings,
)
from ablations.measures.token_information import information_rows
from ablations.runs.doubts import repeated_sentences
from ablations.runs.records import DataRecord, RunRecord
from ablations.tasks.datasets import files_now
from ablations.tasks.settings import MinimalPairsSettings
from ablations.wording import listed, several
from lightning_modules.data.treebank import LabelledSentence, read_treebank
from lightning_modules.files import require_writable, sha256


def _rows(
    layers_LND: list[Any], settings: AnyMeasure, *, model: HuggingFaceModel, read: ReadText, data_root: Path
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
            yield from geometry(layers_LND, sample)


class ArmResults(NamedTuple):
    """Results of a subject, from all its models."""

    plan: RunRecord
    """Entry of the subject in the runs of plan.json."""
    table: DataFrame
    doubts: list[str]
    """Sentences that say why measures have no rows, or why their rows are to be doubted."""


@dataclass(frozen=True)
class Analysis:
    """Analysis of all subjects: what is measured, and where the results go."""

    target: Path
    subjects: Sequence[Subject]
    """Arms that the user gave, then the untrained twins."""
    measures: Sequence[AnyMeasure]
    data_root: Path
    """Folder with the files of minimal pairs."""
    arguments: dict[str, Any]
    """Arguments of the command, for the folder of results."""
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
    """Measure the models and their untrained twins. Return OUT/<name>, with the table, ready for a page.

    Each folder is an arm (`arms_of`), and all are measured on the same sentences. Measures that the text does
    not allow are left out; the plan says which, and why. The results of each arm are written before the next
    arm is measured. After a kill the plan says what is missing, and the same command continues. A new analysis
    measures everything again. Until it is complete, the results of an earlier complete one stay.

    Args:
        labels: treebank of the same sentences.
        column: column of a table. By default the column `text`, or the only one with text.
        name: name of the folder of results. By default made from the names of the models.
        tokens: highest number of tokens that are measured, in whole sentences from the start of the text. By
            default as many as the largest width needs (`usual_tokens`).
        measures: measures to compute. By default four of hidden states, with as many clusters as the
            text allows. All read the same `tokens`, not the number in their settings.
        data_root: folder with the files of minimal pairs.

    Raises:
        MeasureError: a folder holds no model that can be read, or a model that has diverged; the text has no
            token; the labels are of other sentences; a measure needs something that is not known, or no
            measure is possible; files or a masked-LM head for minimal pairs are missing; or the folder of
            results belongs to an experiment or to other models.
        DataError: text or labels are missing or damaged.
        FilesError: the folder of results cannot be written to.
    """
    of_pairs = [settings for settings in measures or () if isinstance(settings, MinimalPairsSettings)]
    analyse_measures.require_known(measures or (), labelled=labels is not None)
    for settings in of_pairs:
        minimal_pairs.require_tasks(settings, data_root=data_root)
    gold = _gold(text, labels=labels, column=column)
    arms = arms_of(folders, seed=SEED)
    target = _folder_of_results(out, name, folders, arms)
    subjects, tokens = _subjects(arms, text, gold, column=column, tokens=tokens, with_head=bool(of_pairs), say=say)
    given = list(folders) if len(folders) > 1 else folders[0]
    arguments = {"analyse": given, "text": text, "labels": labels, "column": column, "tokens": tokens}
    analysis = Analysis(
        target=target,
        subjects=[*subjects, *twins_of(subjects)],
        measures=_usual(subjects, tokens, labelled=labels is not None) if measures is None else measures,
        data_root=data_root,
        arguments=arguments | ({"data_root": data_root} if of_pairs else {}),
        data=_data(text, subjects),
        origin=analyse_folder.origin(),
        say=say,
    )
    return _carry_out(analysis, text)


def _folder_of_results(out: Path, name: str | None, folders: Sequence[Path], arms: Sequence[ModelArm]) -> Path:
    """Return the folder of results, after checking that it can be written to and that it belongs to no
    experiment and to no other models."""
    default_name = "-and-".join(map(analyse_folder.name_from_folder, folders))[: analyse_folder.LONGEST_NAME]
    target = analyse_folder.results_folder(out, default_name if name is None else name)
    models = {arm.run_id: arm.folder for arm in arms}
    analyse_folder.require_own(target, models, [arm.untrained_id for arm in arms])
    require_writable(target)
    return target


def _subjects(
    arms: Sequence[ModelArm],
    text: Path,
    gold: list[LabelledSentence],
    *,
    column: str | None,
    tokens: int | None,
    with_head: bool,
    say: Say,
) -> tuple[list[Subject], int]:
    """Return the arms with the text as each model reads it, and the number of tokens to measure."""
    models = [_facts(arm, with_head=with_head, say=say) for arm in arms]
    if tokens is None:
        tokens = analyse_measures.usual_tokens([(model.width, model.layers + 1) for model in models])
    read = read_by_all(models, text, gold=gold, column=column, tokens=tokens)
    subjects = [Subject(arm.name, arm, model, each) for arm, model, each in zip(arms, models, read, strict=True)]
    for subject in subjects:
        if cut := subject.read.cut:
            of_all = several(subject.read.sample.sentences, "sentence")
            longest = subject.model.max_length
            say(f"{subject.name}: {cut:,} of {of_all} are cut, because the model reads at most {longest} tokens")
    return subjects, tokens


def _data(text: Path, subjects: Sequence[Subject]) -> DataRecord:
    """Return the entry of the text in the plan. Its vocabulary size is None if the models have different ones."""
    cut = max(subject.read.cut for subject in subjects)
    vocabulary_sizes = {subject.model.ids for subject in subjects}
    return DataRecord(
        content_sha256=sha256(text),
        description=f"the first {several(subjects[0].read.sample.sentences, 'sentence')} of {text.name}",
        vocab_size=vocabulary_sizes.pop() if len(vocabulary_sizes) == 1 else None,
        cut={"sentence": cut} if cut else {},
    )


def _carry_out(analysis: Analysis, text: Path) -> Path:
    """Measure all subjects and return the folder of results; complete earlier results stay until the end."""
    is_new = not analyse_folder.is_whole(analysis.target)
    given = [subject for subject in analysis.subjects if not subject.is_twin]
    arms: list[ArmResults] = []
    for subject in analysis.subjects:
        arms.append(_measured(subject, analysis))
        if len(arms) == len(given) and not any(len(arm.table) for arm in arms):
            raise MeasureError(_why_nothing(arms[0].doubts, text, given[0]))
        if is_new and len(arms) < len(analysis.subjects) and any(len(arm.table) for arm in arms):
            _write(analysis, arms)
    notices = _write(analysis, arms)
    forget_kept(analysis.target)
    for sentence in notices:
        analysis.say(sentence)
    return analysis.target


def _facts(arm: ModelArm, *, with_head: bool, say: Say) -> HuggingFaceModel:
    """Return the facts about a model, or about the first checkpoint of a series, without its weights.

    The model is loaded for this, so that a model that cannot be measured is refused before anything is
    measured.
    """
    say(f"loading {arm.folder}")
    model = load(arm.checkpoints[0].folder, tokenizer_folder=arm.tokenizer_folder)
    if with_head:
        minimal_pairs.with_head(model)
    return replace(model, model=None)


def _usual(subjects: Sequence[Subject], tokens: int, *, labelled: bool) -> list[AnyMeasure]:
    """Return the default measures, with as many clusters as every text allows."""
    usual = analyse_measures.usual_measures(tokens, labelled=labelled)
    for subject in subjects:
        usual = [analyse_measures.fitted(settings, subject.read.sample) for settings in usual]
    return usual


def _gold(text: Path, *, labels: Path | None, column: str | None) -> list[LabelledSentence]:
    """Return the sentences with their labels; empty without labels.

    This is called before a model is loaded, which may take long, so that errors in the files are reported at
    once.
    """
    if labels is None:
        next(sentences(text, column=column))
        return []
    texts = list(sentences(text, column=column))
    return with_texts(read_treebank(labels), texts, labels_from=str(labels), texts_from=str(text))


def _measured(subject: Subject, analysis: Analysis) -> ArmResults:
    """Measure one subject. The hidden states of one model are freed before the next model is loaded."""
    measured: list[MeasureResults] = []
    for part in subject.parts(analysis.say):
        measured += _measured_model(part, subject, analysis)
    plan = analyse_folder.run(part.facts, arm=subject.name, seed=SEED, origin=analysis.origin)
    doubts = dict.fromkeys(doubt for each in measured for doubt in each.doubts)
    return ArmResults(plan, results.concat(each.table for each in measured), list(doubts))


def _measured_model(part: SubjectModel, subject: Subject, analysis: Analysis) -> list[MeasureResults]:
    """Return the results of one model, measured now or kept by an analysis that was killed.

    The model is loaded only if a result is missing.
    """
    sample, say = subject.read.sample, analysis.say
    about: Row = {"experiment": analysis.target.name, "run_id": part.facts.run_id}
    about |= {"arm": subject.name, "seed": SEED, "step": part.facts.step}
    model, layers_LND, without_rows = None, list[Any](), dict[Path, MeasureResults]()
    measured = []
    for settings in analysis.measures:
        path = kept_file(analysis.target, _depends_on(part, subject, settings, analysis) | about)
        if (before := read_kept(path)) is not None:
            say(f"{part.label}: {settings.kind} was measured before")
            measured.append(before)
            continue
        if model is None:
            model = part.load()
            say(f"{part.label}: reading {several(len(sample), 'token')}")
            layers_LND = states(model, subject.read.text, sample)
            require_finite(layers_LND, folder=model.folder)
        say(f"{part.label}: measuring {settings.kind}")
        rows = _rows(layers_LND, settings, model=model, read=subject.read, data_root=analysis.data_root)
        whole, doubts = rows_and_doubts(rows, settings)
        table = results.table(about | {"measure": settings.kind} | row for row in whole)
        measured.append(MeasureResults(table, doubts))
        if whole:
            keep(path, measured[-1])
        else:
            without_rows[path] = measured[-1]
    if any(len(each.table) for each in measured):  # an analysis that measures nothing leaves no files
        for path, each in without_rows.items():
            keep(path, each)
    return measured


def _depends_on(part: SubjectModel, subject: Subject, settings: AnyMeasure, analysis: Analysis) -> dict[str, Any]:
    """Return everything that the rows of a measure depend on: model, text, settings and code."""
    read, origin = subject.read, analysis.origin
    facts: dict[str, Any] = {"model": part.identity, "settings": settings.model_dump(mode="json")}
    facts |= {
        "version": card(settings.kind).version,
        "sentences": read.sample.sentences,
        "tokens": len(read.sample),
    }
    facts |= {name: origin.get(name) for name in ("commit", "versions", "threads")}
    facts["ids"] = hashlib.sha256(read.text.ids.tobytes()).hexdigest()
    facts["files"] = [sha256(path) for name in ("text", "labels") if (path := analysis.arguments[name])]
    if isinstance(settings, MinimalPairsSettings):
        facts["pairs"] = [files_now(each, analysis.data_root) for each in settings.parts(built_in=False)]
        facts["tokenizer"] = subject.model.tokenizer.backend_tokenizer.to_str()
    return facts


def _write(analysis: Analysis, arms: Sequence[ArmResults]) -> list[str]:
    """Write the results of the arms into the folder, and return the notices for a reader."""
    to_come = [subject.name for subject in analysis.subjects[len(arms) :]]
    unfinished = [analyse_folder.UNFINISHED.format(listed(to_come, "and"))] if to_come else []
    doubts = _by_arm([(arm.plan.arm, arm.doubts) for arm in arms])
    notices = [*unfinished, *_caveats(analysis, arms), *doubts]
    analyse_folder.write(
        analysis.target,
        table=results.concat(arm.table for arm in arms),
        arguments=analysis.arguments,
        measures=analysis.measures,
        of=listed([subject.name for subject in analysis.subjects if not subject.is_twin], "and"),
        runs=[arm.plan for arm in arms],
        notices=notices,
        data=analysis.data,
    )
    return notices


def _caveats(analysis: Analysis, arms: Sequence[ArmResults]) -> list[str]:
    """Return the caveats of the measures on each model's tokens, with its name if there are several."""
    caveats = []
    for subject, arm in zip(analysis.subjects, arms, strict=False):
        sample, measured = subject.read.sample, set(arm.table["measure"])
        with_rows = [settings for settings in analysis.measures if settings.kind in measured]
        remedy = "raise --tokens" if len(subject.read.text) > sample.sentences else "give more text"
        of_arm = [
            *subject.model.caveats,
            *repeated_sentences("the text", sample.repeated, of=sample.sentences, measures=measured),
            *analyse_measures.caveats(with_rows, sample, width=subject.model.width, remedy=remedy),
        ]
        caveats.append((subject.name, [] if subject.is_twin else of_arm))
    if sum(not subject.is_twin for subject in analysis.subjects) == 1:
        return caveats[0][1]
    return _by_arm(caveats)


def _why_nothing(doubts: list[str], text: Path, subject: Subject) -> str:
    """Return a sentence that says why there are no rows."""
    sample, width = subject.read.sample, subject.model.width
    if len(doubts) == 1 or len(sample) >= REFUSED_BELOW * width:
        return doubts[0]
    counted = f"{several(len(sample), 'token')} in {several(sample.sentences, 'sentence')}"
    return (
        f"{text} has {counted}, which is too few for any measure of a model of "
        f"width {width:,}; give at least {REFUSED_BELOW * width:,} tokens."
    )


def _by_arm(sentences: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return each sentence once, after the names of the arms that it is about."""
    once = dict.fromkeys(sentence for _, of_arm in sentences for sentence in of_arm)
    return [
        f"{listed([arm for arm, of_arm in sentences if sentence in of_arm], 'and')}: {sentence}"
        for sentence in once
    ]
