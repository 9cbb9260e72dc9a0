"""Warnings about specs that are valid and probably not meant. No torch.

They are about validation on training text, text with many unknown or dropped tokens or repeated sentences, arms
without a difference that has an effect, arms that are not tuned, runs that do not depend on their seed, runs of an
earlier version of the spec, and seeds that were added after claims were judged.
"""

import json
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ablations.runs.identity import PlannedRun, description
from ablations.runs.records import last_plan
from ablations.spec.changes import differing
from ablations.wording import listed, several, shown
from lightning_modules.config import Data, FilesData, HubData, RunSettings
from lightning_modules.errors import AblationsError
from lightning_modules.files import may_exist, read_json, sha256
from lightning_modules.training.run_directory import RunDirectory

UNKNOWN_SHARE = 0.01
"""Smallest share of [UNK] among the tokens of a side of a split that gives a warning."""
DROPPED_SHARE = 0.1
"""Smallest share of dropped tokens of a side of a split (`data.max_length`) that gives a warning."""
SHARED_SHARE = 0.01
"""Smallest share of sentences or test examples that are also in the training text that gives a warning."""

REPEATED_SHARE = 0.05
"""Smallest share of repeated validation sentences that gives a warning. 10% of copies add 0.044 nats to
`cross_fitted` (docs/measures.md), nearly the 0.05 nats that a first claim calls the smallest effect that matters.
The limit is half of that share."""
HARMED_BY_COPIES = {
    "token_information": "cross_fitted of token_information",
    "read_out": "the probes of read_out",
}
"""Numbers that learn from some validation sentences and are tested on others, by kind of measure."""


def same_runs(
    arms: Mapping[str, RunSettings], decided_by_arm: Mapping[str, Hashable], *, seeds: Sequence[int]
) -> list[str]:
    """Return sentences on arms and seeds whose runs are the same.

    Args:
        decided_by_arm: as for `equal_arms`.
    """
    copied = copied_arms(arms, seeds=len(seeds))
    same_at_seed = equal_at_seed(arms, seeds=seeds)
    return [*equal_arms(decided_by_arm), *differ_in_unread(arms), *copies(copied), *same_at_seed]


def equal_arms(arms: Mapping[str, Hashable]) -> list[str]:
    """Return a sentence for each group of arms with equal settings, which share their runs.

    Args:
        arms: everything that decides what an arm computes, by the name of the arm.
    """
    groups: dict[Hashable, list[str]] = {}
    for arm, decided in arms.items():
        groups.setdefault(decided, []).append(arm)
    return [
        f"{listed(names, 'and')} have equal settings, so they share their runs and every difference between "
        "them is 0."
        for names in groups.values()
        if len(names) > 1
    ]


def differ_in_unread(arms: Mapping[str, RunSettings]) -> list[str]:
    """Return a sentence for each group of arms that differ only in settings that they do not read."""
    groups: dict[str, dict[str, RunSettings]] = {}
    for arm, settings in arms.items():
        groups.setdefault(json.dumps(_read(settings), sort_keys=True), {})[arm] = settings
    sentences = []
    for group in groups.values():
        paths, unread = _differing_paths(list(group.values())), next(iter(group.values())).unread
        if paths:
            reader = listed(list(dict.fromkeys(unread[path] for path in paths)), "and")
            sentences.append(
                f"{listed(list(group), 'and')} differ only in {listed(paths, 'and')}, which {reader} does not "
                "read, so they are the same runs, trained several times; remove all but one of these arms."
            )
    return sentences


def equal_at_seed(arms: Mapping[str, RunSettings], *, seeds: Sequence[int]) -> list[str]:
    """Return a sentence for each group of arms whose runs are the same at one seed, because an arm fixes a source
    of chance at this seed, where another arm has it anyway."""
    fixed = {
        seed
        for arm in arms.values()
        for source in arm.sources
        if (seed := getattr(arm.training.seeds, source)) is not None
    }
    sentences = []
    for seed in sorted(fixed & set(seeds)):
        groups: dict[Hashable, dict[str, RunSettings]] = {}
        for name, arm in arms.items():
            at_seed = tuple(arm.model_copy(update={"seed": seed}).seed_of(source) for source in arm.sources)
            groups.setdefault((_without_seeds(arm), at_seed), {})[name] = arm
        for group in groups.values():
            if len({arm.training.seeds for arm in group.values()}) > 1:
                sentences.append(
                    f"{listed(list(group), 'and')} are the same run at seed {seed}, because training.seeds fixes "
                    f"a source of chance at {seed}. Their differences are 0 at this seed and make effects look "
                    "smaller. Fix the source at a number that is not in `seeds`."
                )
    return sentences


def _without_seeds(settings: RunSettings) -> str:
    """Return the settings of a run that have an effect as text, without its seed and those of its sources of
    chance."""
    content = _read(settings)
    del content["training"]["seeds"]
    return json.dumps(content, sort_keys=True)


def _differing_paths(alike: Sequence[RunSettings]) -> list[str]:
    """Return the settings, among those that are not read, in which some runs differ."""
    first, *others = (settings.model_dump(mode="json", exclude={"seed"}) for settings in alike)
    paths = [path for other in others for path, *_ in differing(first, other)]
    return list(
        dict.fromkeys(
            unread for path in paths for unread in alike[0].unread if f"{path}.".startswith(f"{unread}.")
        )
    )


def _read(settings: RunSettings) -> dict[str, Any]:
    """Return the settings of a run that have an effect, without the seed."""
    content = settings.model_dump(mode="json", exclude={"seed"})
    for path in settings.unread:
        section, name = path.split(".")
        del content[section][name]
    return content


def tuned_in_part(trained: Sequence[str], tuned: Sequence[str]) -> list[str]:
    """Return a sentence on trained arms that stand beside tuned ones and are not tuned; an empty list without
    such arms."""
    left_out = [arm for arm in trained if arm not in tuned]
    if not tuned or not left_out:
        return []
    noun, verb, them = ("arm", "is", "it") if len(left_out) == 1 else ("arms", "are", "them")
    return [
        f"tune: {noun} {listed(left_out, 'and')} {verb} not tuned, so a difference from {listed(tuned, 'and')} "
        f"may come from the tuning; add {them} to tune.arms, or leave tune.arms out to tune all arms."
    ]


def copied_arms(arms: Mapping[str, RunSettings], *, seeds: int) -> list[str]:
    """Return the arms whose runs are copies of each other, as they are the same for all seeds. It is empty for
    one seed."""
    return [arm for arm, settings in arms.items() if seeds > 1 and settings.is_same_for_all_seeds]


def copies(arms: Sequence[str]) -> list[str]:
    """Return a sentence on the arms whose runs are the same for all seeds; an empty list if there are none."""
    if not arms:
        return []
    return [
        f"{listed(list(arms), 'and')}: the runs of all seeds are copies of one run, because no source of chance "
        "follows the seed (training.seeds, init and dropout). Claims about such arms alone count them as one "
        "seed, and their ± says nothing. Free a source, or give the experiment a single seed."
    ]


def validated_on_training(arms: Mapping[str, Data], data_root: Path) -> list[str]:
    """Return a sentence for each file or split that is both training and validation text; missing files are
    left out."""
    return _by_arm({arm: list(_shared(data, data_root)) for arm, data in arms.items()})


def unfit_text(
    arms: Mapping[str, Mapping[str, Any]], measures: Collection[str] = tuple(HARMED_BY_COPIES)
) -> list[str]:
    """Return a sentence for each text with many unknown tokens, and one each for many dropped tokens, for
    sentences of the training text and for repeated sentences.

    Args:
        arms: report of each arm's token store (tokens.json); empty if the store is not made yet.
        measures: kinds of measures of the spec. Repeated sentences matter only to those in HARMED_BY_COPIES.
    """
    facts = {
        arm: [*_unknown(report), *_dropped(report), *_in_training(report), *_repeated(report, measures)]
        for arm, report in arms.items()
    }
    return _by_arm(facts)


def _by_arm(sentences_by_arm: Mapping[str, Iterable[str]]) -> list[str]:
    """Return each sentence once. It begins with the names of its arms, unless these are all arms."""
    arms: dict[str, list[str]] = {}
    for arm, sentences in sentences_by_arm.items():
        for sentence in sentences:
            arms.setdefault(sentence, []).append(arm)
    return [
        sentence if len(names) == len(sentences_by_arm) else f"{listed(names, 'and')}: {sentence}"
        for sentence, names in arms.items()
    ]


def _shared(data: Data, data_root: Path) -> Iterator[str]:
    consequence = "losses and measures would use text that the models were trained on; name another"
    if isinstance(data, HubData) and data.train == data.validation:
        yield f"data.validation reads the split {data.validation}, as data.train does: {consequence} split."
    if not isinstance(data, FilesData):
        return
    for name in data.validation:
        equal_file = next(
            (other for other in data.train if _same_content(data_root / name, data_root / other)), None
        )
        if equal_file is not None:
            relation = (
                "as data.train does"
                if equal_file == name
                else f"which has the same content as {equal_file} of data.train"
            )
            yield f"data.validation reads {name}, {relation}: {consequence} file."


def _same_content(first: Path, second: Path) -> bool:
    try:
        return first.stat().st_size == second.stat().st_size and sha256(first) == sha256(second)
    except OSError:
        return False


def _unknown(report: Mapping[str, Any]) -> Iterator[str]:
    shares = {place: facts["unknown_share"] for place, facts in _sides(report)}
    if where := _of_tokens(shares, at_least=UNKNOWN_SHARE):
        is_given = report.get("settings", {}).get("tokenizer") is not None
        why = "data.tokenizer does not know them" if is_given else "their letters do not occur in data.train"
        yield f"{where} are [UNK], because {why}; losses and measures on this text say little."


def _dropped(report: Mapping[str, Any]) -> Iterator[str]:
    shares = {}
    for place, facts in _sides(report):
        dropped = facts.get("dropped", 0)  # older token stores do not count them
        shares[place] = dropped / max(1, dropped + facts["tokens"])
    if where := _of_tokens(shares, at_least=DROPPED_SHARE):
        yield (
            f"{where} come after the first {report['settings']['max_length']} (data.max_length) and were dropped; "
            "write one sentence a line, or raise data.max_length."
        )


def _in_training(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if splits share sentences with the training text. The built-in language repeats short
    sentences by chance, which is no mistake of the user."""
    if report.get("settings", {}).get("kind") == "language":
        return
    shared = [
        f"{several(count, 'sentence')} ({_percent(count / facts['sentences'])}) of data.{split}"
        for split, facts in report.get("splits", {}).items()
        # Older token stores do not count them.
        if (count := facts.get("in_training", 0)) and count / facts["sentences"] >= SHARED_SHARE
    ]
    if shared:
        yield (
            f"data.train also has {listed(shared, 'and')}, so losses and measures look better than they are; "
            "remove these sentences from data.train or from the other text."
        )


def _repeated(report: Mapping[str, Any], measures: Collection[str]) -> Iterator[str]:
    facts = report.get("splits", {}).get("validation", {})
    count = facts.get("repeated", 0)  # older token stores do not count them
    yield from repeated_sentences("data.validation", count, of=facts.get("sentences", 0), measures=measures)


def repeated_sentences(text: str, count: int, *, of: int, measures: Collection[str]) -> Iterator[str]:
    """Yield a sentence if so many sentences of a text repeat an earlier one that numbers of these measures are too
    high.

    Args:
        text: the text in words, such as ``data.validation``.
        of: number of all its sentences.
        measures: kinds of measures. Repeated sentences matter only to those in HARMED_BY_COPIES.
    """
    harmed = [numbers for kind, numbers in HARMED_BY_COPIES.items() if kind in measures]
    if harmed and count and (share := count / of) >= REPEATED_SHARE:
        yield (
            f"{text} repeats {several(count, 'sentence')} ({_percent(share)}), which makes "
            f"{listed(harmed, 'and')} too high; remove the copies."
        )


def _of_tokens(shares: Mapping[str, float], *, at_least: float) -> str:
    """Return the places with that share of tokens or more, in words: ``14% of the tokens in sentences of
    data.train and 16% in translations of data.train``; empty if there are none."""
    many = [f"{_percent(share)} in {place}" for place, share in shares.items() if share >= at_least]
    return listed(many, "and").replace(" in ", " of the tokens in ", 1)


def _sides(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the facts about each side of each split, with its place in words: ``translations of data.train``."""
    for split, sides in report.get("splits", {}).items():
        for side, noun in (("source", "sentences"), ("target", "translations")):
            if sides.get(side):
                yield f"{noun} of data.{split}", sides[side]


def _percent(share: float) -> str:
    """Return a share in per cent. A share above 99% has one decimal, and is 100% only if nothing is missing."""
    return f"{min(99.9, 100 * share):.1f}%" if 0.99 < share < 1 else f"{100 * share:.0f}%"


MOST_SETTINGS = 4
"""Largest number of settings that are named for an arm."""


def earlier_runs(folder: Path, planned: Sequence[PlannedRun], *, out: Path) -> list[str]:
    """Return a sentence on runs of an earlier version of the spec; an empty list if there are none.

    These runs were started, are in the last plan of the folder as its runs or as earlier ones, and are not planned
    now.

    Args:
        folder: folder of the experiment's results, with the plan.json of the spec that ran last.
        planned: runs of the spec as it is now.
    """
    before = last_plan(folder)
    planned_ids = {item.run_id for item in planned}
    earlier = [
        (run.arm, run.seed, directory)
        for run in ((*before.runs, *before.earlier) if before else ())
        if run.run_id not in planned_ids
        and may_exist((directory := RunDirectory(out / "runs" / run.folder)).path / "state.json")
    ]
    if not earlier:
        return []
    count, verb = several(len(earlier), "run"), "is" if len(earlier) == 1 else "are"
    return [
        f"{count} of an earlier version of this spec {verb} in {out / 'runs'} and not used by the current "
        f"version: {'; '.join(_differences(earlier, planned))}."
    ]


def judged_with(seeds: Collection[int], folder: Path) -> list[int]:
    """Return the numbers of seeds with which claims were judged before seeds were added or removed.

    A verdict that is followed by other seeds is a look that nobody has planned. Looks of `until: decided` are
    planned, and are not among these.

    Args:
        seeds: all seeds that runs of the spec may have.
        folder: folder of the experiment's results, with the plan.json and claims.json of the spec that ran last.
    """
    before = last_plan(folder)
    seeds_before = {run.seed for run in before.runs} if before else set()
    if before is None or not seeds_before & set(seeds):
        return []
    judged = 0
    if before.looks is None:
        with suppress(AblationsError, KeyError, TypeError, AttributeError):  # never judged, or damaged
            entries = read_json(folder / "claims.json")["claims"]
            judged = max((entry["n"] for entry in entries if isinstance(entry.get("n"), int)), default=0)
    is_new = judged and judged not in before.judged_with and set(seeds) != seeds_before
    return [*before.judged_with, judged] if is_new else before.judged_with


def seeds_changed(judged: Sequence[int]) -> list[str]:
    """Return a list with one sentence on the numbers of `judged_with`, or an empty list."""
    if not judged:
        return []
    noun = "seed" if list(judged) == [1] else "seeds"
    return [
        f"seeds: claims were judged with {listed([str(number_of) for number_of in judged], 'and')} {noun} before "
        "seeds were added or removed, so wrong verdicts are more frequent than the page says; begin with new "
        "seeds, and with `until: decided`, which fixes in advance when claims are judged."
    ]


def _differences(earlier: Sequence[tuple[str, int, RunDirectory]], planned: Sequence[PlannedRun]) -> Iterator[str]:
    """Yield how earlier runs differ from those that are planned now; arms with the same difference are named
    together."""
    planned_runs = {(item.run.arm, item.run.seed): item for item in planned}
    arms: dict[str, dict[str, None]] = {}
    for arm, seed, directory in earlier:
        if not any(arm == other for other, _ in planned_runs):
            how = "not in the spec now"
        elif (arm, seed) not in planned_runs:
            how = f"without seed {seed} now"
        else:
            how = _settings(directory, description(planned_runs[arm, seed]))
        arms.setdefault(how, {})[arm] = None
    for how, names in arms.items():
        yield f"{'arm' if len(names) == 1 else 'arms'} {listed(list(names), 'and')} {how}"


def _settings(directory: RunDirectory, planned: dict[str, Any]) -> str:
    """Return how the settings of an earlier run differ from those that are planned now, with both values."""
    try:
        before = directory.description()
    except AblationsError:
        return "with settings that cannot be read"
    changes = [
        f"{path} ({_value(old)}, now {_value(new)})"
        for path, old, new in differing(before["settings"], planned["settings"])
    ]
    if not changes:
        sources = [
            {name: plugin["sha256"] for name, plugin in run.get("plugins", {}).items()}
            for run in (before, planned)
        ]
        changed = [name for name, sha256 in sources[1].items() if sources[0].get(name, sha256) != sha256]
        if changed:
            return f"with another source of {listed(changed, 'and')} now"
        other = "text" if before["tokens"] != planned["tokens"] else "version of this project"
        return f"with another {other} now"
    unnamed = len(changes) - MOST_SETTINGS
    listed_changes = listed(
        changes if unnamed <= 0 else [*changes[:MOST_SETTINGS], several(unnamed, "other setting")], "and"
    )
    return f"differed in {listed_changes}"


def _value(value: Any) -> str:
    """Return a value as short text."""
    return json.dumps(value) if isinstance(value, list) else "none" if value is None else shown(value)
