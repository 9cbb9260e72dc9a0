"""Experiment on disk: its spec, its runs and the folder of its results. No torch."""

import functools
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablations.catalogue import Measure, caveats, distance_settings, for_run
from ablations.errors import SpecError
from ablations.runs import doubts, identity, plan, tuning
from ablations.runs.identity import PlannedRun
from ablations.runs.plan import Lacking, lacking, run_status
from ablations.runs.records import (
    DataRecord,
    Look,
    Looks,
    Plan,
    RunRecord,
    RunStatus,
    look_due,
    looks_in_words,
    looks_of,
    runs_so_far,
    with_look,
    with_more_seeds,
    write_looks,
)
from ablations.runs.tuning import Search
from ablations.spec import claims as claims_file
from ablations.spec import given_settings, grid, load
from ablations.spec.experiment import Experiment, Run
from ablations.spec.figures import keep_published, published_points
from ablations.tasks.datasets import files_now, keep_tasks
from ablations.wording import listed
from lightning_modules import plugins
from lightning_modules.config import Data, RunSettings
from lightning_modules.data import token_store
from lightning_modules.data.token_store import Tokens
from lightning_modules.data.word_order import require_words
from lightning_modules.errors import AblationsError, DataError
from lightning_modules.files import locked, make_folder, write_json
from lightning_modules.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Workspace:
    """Spec together with the output root that it is run in."""

    spec: Path
    written: bytes
    """Content of the spec when it was opened, with the settings from the command line."""
    changed_spec: given_settings.ChangedSpec
    """The spec with the settings from the command line, as it was opened."""
    out: Path
    data_root: Path
    experiment: Experiment
    planned: list[PlannedRun]
    matched: bool = True
    """Whether the runs have the steps that `match` gives them; otherwise they have those of the spec."""
    overrides: tuple[str, ...] = ()
    """Settings from the command line that override the spec, each as KEY=VALUE."""
    search: Search | None = None
    """Search for the arms' settings; None if the spec has no `tune`. Arms that are not tuned yet have the
    settings of the spec."""
    looks: Looks | None = None
    """Looks at the claims; None if the seeds are a fixed list."""
    later_measures: tuple[Measure, ...] = ()
    """Measures that are computed only on later runs, after the trials, but whose text is checked now."""

    @classmethod
    def open(
        cls, spec: Path, *, out: Path, data_root: Path, overrides: Sequence[str] = (), tokenise: bool = False
    ) -> "Workspace":
        """Return the workspace of a spec, with the identity and the folder of each run.

        Args:
            overrides: settings from the command line that override the spec, each as KEY=VALUE.
            tokenise: whether text may be tokenised. `match` may need the tokens of the text. If they are
                missing and must not be made, the runs are not matched, and `warnings` says so.

        Raises:
            SpecError: the spec is wrong, or its text or a lexicon is missing or lacks what the spec names.
        """
        experiment = load.load(spec, overrides=overrides)
        # They are kept, because the user may edit the file while runs are trained.
        changed_spec = given_settings.laid_over(spec, overrides)
        written = changed_spec.text.encode() if changed_spec.overrides else spec.read_bytes()
        out, data_root = out.absolute(), data_root.absolute()
        text = functools.partial(_text, out=out, data_root=data_root, tokenise=tokenise)
        contained = functools.partial(identity.self_contained_runs, spec, data_root=data_root, overrides=overrides)

        arms = list(grid.arms_of(experiment))
        seen = looks_of(experiment, arms=arms, folder=out / experiment.name)

        def resolved(tuned: Mapping[str, Mapping[str, Any]]) -> tuple[tuple[Run, ...], bool]:
            runs = grid.runs(experiment, tuned=tuned)
            runs = contained(runs if seen is None else runs_so_far(seen, runs))
            try:
                return grid.matched(experiment, runs, text=text), True
            except _NotTokenisedError:
                return runs, False

        place = functools.partial(
            identity.placed_runs, out=out, data_root=data_root, existing=identity.folders(out)
        )
        runs, matched = resolved({})
        search = tuning.search(
            experiment,
            steps={run.arm: run.settings.training.max_steps for run in runs} if matched else {},
            folder=out / experiment.name,
            place=lambda runs: place(contained(runs)),
        )
        if search is not None and search.tuning.chosen:
            runs, matched = resolved(search.tuning.chosen)
        planned = place(runs)
        return cls(
            spec,
            written,
            changed_spec,
            out,
            data_root,
            experiment,
            planned,
            matched=matched,
            overrides=tuple(overrides),
            search=search,
            looks=seen,
        )

    def opened_again(self) -> "Workspace":
        """Return the workspace opened again, with what the output root holds now.

        Raises:
            SpecError: as `open`, or the spec has other settings now.
        """
        reopened = Workspace.open(
            self.spec, out=self.out, data_root=self.data_root, overrides=self.overrides, tokenise=True
        )
        if reopened.experiment != self.experiment:
            raise SpecError(
                f"{self.spec} was changed while its runs were trained, so this command ends here and keeps what "
                "is trained; start it again, and it goes on with the spec as it is now."
            )
        return reopened

    def changed(self) -> list[str]:
        """Return a list of one sentence on the settings from the command line; an empty list without any."""
        if not self.changed_spec.overrides:
            return []
        name = self.changed_spec.name
        others = f", so those of {name} stay as they are."
        if self.experiment.name == name:  # --set name=NAME with the name that the spec has
            others = f" and replace those of {name}; give another name to keep them."
        return [
            f"Changed by {given_settings.OPTION}: {listed(self.changed_spec.sentences, 'and')}. The results go "
            f"to {self.folder}{others}"
        ]

    def unmatched(self) -> list[str]:
        """Return a sentence if the runs have the steps of the spec although `match` asks for others; else an
        empty list."""
        if self.matched:
            return []
        return [
            f"{self.spec}: match: {self.experiment.match} needs the tokens of this text, but they are not in "
            f"{self.out / 'tokens'} yet; `ablate run {self.spec}` writes them. Until then every arm is shown "
            "with the steps of the spec."
        ]

    @property
    def folder(self) -> Path:
        """Return the folder of the experiment's results."""
        return self.out / self.experiment.name

    @property
    def arms(self) -> list[str]:
        """Return the names of the arms, in the order of the spec."""
        return list(dict.fromkeys(item.run.arm for item in self.planned))

    @property
    def settings_by_arm(self) -> dict[str, RunSettings]:
        """Return the settings of each arm's last planned run, by the name of the arm."""
        return {item.run.arm: item.run.settings for item in self.planned}

    def select(self, arms: Sequence[str], seeds: Sequence[int]) -> list[PlannedRun]:
        """Return the runs of the given arms and seeds; an empty list means all.

        Raises:
            SpecError: an arm or seed that the spec does not have.
        """
        all_seeds = list(dict.fromkeys(item.run.seed for item in self.planned))
        for noun, values, available in (("arm", arms, self.arms), ("seed", seeds, all_seeds)):
            for value in values:
                if value not in available:
                    names = ", ".join(map(str, available))
                    raise SpecError(f"--{noun} {value}: {self.spec} has no such {noun}; it has {names}.")
        return [
            item
            for item in self.planned
            if (not arms or item.run.arm in arms) and (not seeds or item.run.seed in seeds)
        ]

    def todo(self, selected: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Return the selected runs that are not trained or lack a measure, without arms that wait for their
        settings, and without runs whose files cannot be read."""
        lacking_by_run, waiting = self.lacking(), self.waiting_arms()
        return [
            item
            for item in selected
            if item.run.arm not in waiting
            and (item.run_id not in lacking_by_run or lacking_by_run[item.run_id].names)
        ]

    def waiting_arms(self) -> list[str]:
        """Return the arms whose settings are not chosen yet."""
        return [] if self.search is None else self.search.waiting()

    def look_due(self) -> "Look | None":
        """Return the look at the claims that is to be taken now; None if runs must end first, or if no look
        is left."""
        if self.looks is None:
            return None
        is_open = {item.run.arm for item in self.todo(self.planned)}
        is_open |= {*self.waiting_arms(), *(run.arm for run in self.unreadable())}
        kinds = list(dict.fromkeys(measure.kind for measure in self.experiment.measures))
        look = look_due(self.looks, ended=[arm for arm in self.arms if arm not in is_open], measures=kinds)
        if look is None:
            return None
        first = {arm: run_id for arm, run_id in self._first_runs().items() if arm in look.arms}
        return look.model_copy(update={"first_runs": first})

    def _first_runs(self) -> dict[str, str]:
        """Return the identity of the run with the first seed, by arm."""
        first = self.experiment.all_seeds[0]
        return {item.run.arm: item.run_id for item in self.planned if item.run.seed == first}

    def seeds_to_come(self) -> list[str]:
        """Return a sentence on the seeds so far and the looks to come; an empty list if the seeds are a fixed
        list."""
        if self.looks is None:
            return []
        files = claims_file.load_named(self.experiment.claims, spec=self.spec)
        with_claim = {arm for file in files for claim in file.claims for arm in claim.needs.arms}
        seeds_of_run: dict[str, int] = {}  # arms with equal settings share a run
        for arm, run_id in self._first_runs().items():
            seeds = self.looks.sizes[-1] if arm in with_claim else self.looks.seeds_of[arm]
            seeds_of_run[run_id] = max(seeds, seeds_of_run.get(run_id, 0))
        return [looks_in_words(self.looks, self.arms, most_runs=sum(seeds_of_run.values()))]

    def with_look(self, look: Look) -> "Workspace":
        """Return the workspace with one more look; looks.json is not written."""
        assert self.looks is not None
        return replace(self, looks=with_look(self.looks, look))

    def go_on(self, *, seeds_of: Mapping[str, int], futile: Sequence[str]) -> "Workspace":
        """Write the looks to looks.json, and return the workspace with more seeds for arms with open claims.

        Args:
            seeds_of: number of seeds at the next look, by arm.
            futile: claims that are given up at the last look.
        """
        assert self.looks is not None
        write_looks(with_more_seeds(self.looks, seeds_of=seeds_of, futile=futile), self.folder)
        return self.opened_again()

    def fix_looks(self) -> None:
        """Write looks.json before the first run, so that the looks are fixed; does nothing if the seeds are a
        list."""
        if self.looks is not None:
            write_looks(self.looks, self.folder)

    def for_trials(self) -> "Workspace":
        """Return a copy of the workspace without measures. It is for trials, of which only the validation
        loss is read. The text is checked for the measures all the same, before the trials are trained."""
        return replace(
            self,
            experiment=self.experiment.model_copy(update={"measures": ()}),
            later_measures=self.experiment.measures,
        )

    def lacking(self) -> dict[str, Lacking]:
        """Return what each trained run lacks, by its identity."""
        return lacking(self.experiment, self.planned, folder=self.folder, data_root=self.data_root)

    def unreadable(self) -> list[RunRecord]:
        """Return the runs of which a file is damaged or cannot be read; their records say why."""
        lacking_by_run = self.lacking()
        runs = [run_status(item, run).record for item in self.planned if (run := lacking_by_run.get(item.run_id))]
        return [run for run in runs if run.unreadable is not None]

    def readable(self) -> list[PlannedRun]:
        """Return the runs whose state, settings, log and provenance can be read. Files that have not changed since
        the table was made were whole then."""
        from ablations.runs import gather

        record = gather.read_record(self.folder)
        return [
            item
            for item in self.planned
            if record.measured_in(item.directory.path) is not None or plan.unreadable(item.directory) is None
        ]

    def pairs_to_compare(self, *, recompute: bool = False) -> int:
        """Return the number of comparisons (a pair of trained runs at a step) that are missing; with
        `recompute` that of all. It is 0 if the spec does not ask for distances."""
        settings = distance_settings(self.experiment.measures)
        if settings is None:
            return 0
        from ablations.runs import measure_pairs

        pairs = measure_pairs.pairs_to_measure(self.folder, self.readable(), settings, recompute=recompute)
        return sum(map(len, pairs.values()))

    def make_run_folders(self, items: Sequence[PlannedRun]) -> list[PlannedRun]:
        """Make the folders of runs that are to be trained or measured, and return the runs with their folders.

        If another command has made a folder for the same run meanwhile, under the name of an arm of its own,
        the run gets that folder. Otherwise it would be trained twice.
        """

        def placed(item: PlannedRun) -> PlannedRun:
            path = existing.get(item.run_id, item.directory.path)
            return item if path == item.directory.path else item._replace(directory=RunDirectory(path))

        make_folder(self.out)
        with locked(self.out / ".runs.lock"):
            existing = identity.folders(self.out)
            self.planned[:] = map(placed, self.planned)
            items = [placed(item) for item in items]
            for item in items:
                identity.create(item)
        return items

    def plan(self, selected: Sequence[PlannedRun] | None = None, *, slots: int = 1, devices: int = 1) -> Plan:
        """Return the plan of the selected runs and of the trials before them; of all runs unless some are
        selected."""
        options: dict[str, Any] = {
            "out": self.out,
            "data_root": self.data_root,
            "slots": slots,
            "devices": devices,
        }
        items = list(self.planned if selected is None else selected)
        content = plan.plan(
            self.experiment,
            items,
            lacking=self.lacking(),
            arms=self.arms,
            without_settings=[] if self.search is None else [tuned.arm for tuned in self.search.diverged()],
            **options,
        )
        if self.looks is not None:
            content = content.model_copy(update={"looks": self.looks})
        if self.search is None:
            return content
        bare, arms = self.for_trials().experiment, list(dict.fromkeys(item.run.arm for item in items))
        trials = plan.plan(bare, self.search.open_of(arms), lacking={}, arms=arms, **options)
        can_estimate = content.seconds is not None and trials.seconds is not None
        return content.model_copy(
            update={
                "tuning": self.search.tuning,
                "trials": trials.runs,
                "seconds": (content.seconds or 0) + (trials.seconds or 0) if can_estimate else None,
                "notes": [*content.notes, *self.search.later_trials()],
            }
        )

    def write_results(self) -> Plan:
        """Write the table of results, and then plan, spec and claims, into the experiment's folder, and return
        the plan.

        The table comes first: its record says what is measured, so the plan need not read the rows of all runs.

        Raises:
            SpecError: the runs cannot be matched as the spec asks (`match`).
        """
        self._require_matched()
        make_folder(self.folder)
        self.write_table()
        return self.write_plan()

    def _require_matched(self) -> None:
        for sentence in self.unmatched():
            raise SpecError(sentence)

    def write_plan(self) -> Plan:
        """Write plan, spec, claims and the state of tuning into the experiment's folder, and return the plan.

        Raises:
            SpecError: the runs cannot be matched as the spec asks (`match`).
        """
        from ablations.runs import rows as run_rows

        if self.later_measures:  # the runs of the experiment lack these, whatever the trials read
            measures = {"measures": self.later_measures}
            experiment = self.experiment.model_copy(update=measures)
            return replace(self, experiment=experiment, later_measures=()).write_plan()
        self._require_matched()
        measured_keys = functools.cache(  # reads all runs, and only a task without files needs it
            lambda: run_rows.measured_keys(
                item.directory.path for item in plan.readable(self.planned, self.lacking())
            )
        )
        notices = caveats(
            self.experiment.measures,
            self.settings_by_arm,
            data_root=self.data_root,
            is_there=lambda settings: run_rows.key(settings) in measured_keys(),
        )
        claims = claims_file.load_named(self.experiment.claims, spec=self.spec)
        notices += claims_file.never_measured(claims, measures=self.experiment.measures, arms=self.settings_by_arm)
        content = self.plan().model_copy(
            update={
                "published": published_points(self.experiment.published, spec=self.spec),
                "described": {
                    settings.kind: inspect.cleandoc(settings.__doc__ or "").partition("\n\n")[0]
                    for settings in self.experiment.measures
                    if settings.plugin is not None
                },
                "figures": {name: plugins.load(name).record for name in self.experiment.figures},
                "copied_arms": doubts.copied_arms(self.settings_by_arm, seeds=len(self.experiment.all_seeds)),
                "notices": [*notices, *self.same_runs(), *_of_plugins()],
                "warnings": self.warnings(),
                "judged_with": doubts.judged_with(self.experiment.all_seeds, self.folder),
            }
        )
        trained = {run.run_id for run in content.runs if run.state == "done"}
        for item in self.planned:
            if item.run_id in trained:
                identity.restore(item)
        if self.changed_spec.overrides:
            content = content.model_copy(
                update={"given": self.changed_spec.sentences, "changed_from": self.changed_spec.name}
            )
        keep_published(self.experiment.published, self.folder, spec=self.spec)
        keep_tasks(self.experiment.measures, self.folder)
        plan.write(content, self.folder, spec=self.written, claims=claims, data=self._describe_data())
        if self.search is not None:
            write_json(self.folder / tuning.FILE, self.search.tuning.model_dump(mode="json"))
        return content

    def _describe_data(self) -> DataRecord:
        """Return facts about the text of the first arm; an empty record before its tokens are made."""
        report = _token_report(self.out, self.planned[0].tokens)
        if not report:
            return DataRecord()
        splits = report["splits"]
        cut = {
            f"{noun} {use}": splits[split][side]["cut"]
            for split, use in (("train", "to train on"), ("validation", "to validate on"), ("test", "to test on"))
            for side, noun in (("source", "sentence"), ("target", "translation"))
            if splits.get(split, {}).get(side, {}).get("cut")
        }
        return DataRecord(
            address=report["address"],
            content_sha256=report["content_sha256"],
            description=_in_words(self.planned[0].run.settings.data),
            train_sentences=report["splits"]["train"]["sentences"],
            validation_sentences=report["splits"]["validation"]["sentences"],
            validation_in_training=report["splits"]["validation"].get("in_training"),
            train_tokens=report["splits"]["train"]["source"]["tokens"],
            vocab_size=report["vocab_size"],
            cut=cut,
        )

    def write_table(self) -> None:
        """Gather the rows of the runs whose files can be read into results.parquet."""
        from ablations.runs import gather
        from ablations.runs.rows import key

        measures = self.experiment.measures
        run_measures = [settings for run in self.settings_by_arm.values() for settings in for_run(measures, run)]
        keys = {key(settings): files_now(settings, self.data_root) for settings in (*run_measures, *measures)}
        if gather.is_current(self.experiment.name, self.planned, keys=keys, folder=self.folder):
            return
        update = functools.partial(gather.update, self.experiment.name, keys=keys, folder=self.folder)
        try:
            update(self.readable())
        except AblationsError:  # mostly damaged rows, which `lacking` finds; any other error comes again
            update(plan.readable(self.planned, self.lacking()))

    def statuses(self) -> list[RunStatus]:
        """Return the status of every run of the spec, then of the runs of all trials that are known so far. For
        trained runs of the spec it has the measures that they lack, as in a plan."""
        lacking_by_run = self.lacking()
        trials = [] if self.search is None else self.search.trials
        statuses = [run_status(item, lacking_by_run.get(item.run_id)) for item in self.planned]
        return [*statuses, *map(run_status, trials)]

    def same_runs(self) -> list[str]:
        """Return sentences on arms and seeds whose runs are the same; see `doubts.same_runs`."""
        first = [item for item in self.planned if item.run.seed == self.experiment.all_seeds[0]]
        arms = {item.run.arm: item.run.settings for item in first}
        return doubts.same_runs(arms, self._first_runs(), seeds=self.experiment.all_seeds)

    def warnings(self) -> list[str]:
        """Return warnings about the spec: arms that are not matched or not tuned yet, and text that is
        probably not meant.

        The tokens of a text are judged only once they are made.
        """
        arms = {item.run.arm: item for item in self.planned if item.run.seed == self.experiment.all_seeds[0]}
        reports = {address: _token_report(self.out, address) for address in {i.tokens for i in arms.values()}}
        settings_by_arm = {arm: item.run.settings for arm, item in arms.items()}
        return [
            *self.unmatched(),
            *([] if self.search is None else self.search.sentences()),
            *([] if self.search is None else tuning.rescaled(self.search.tuning, settings_by_arm)),
            *doubts.seeds_changed(doubts.judged_with(self.experiment.all_seeds, self.folder)),
            *doubts.tuned_in_part(
                [arm for arm, item in arms.items() if item.run.settings.training.max_steps > 0],
                [] if self.search is None else [tuned.arm for tuned in self.search.tuning.arms],
            ),
            *doubts.validated_on_training(
                {arm: settings.data for arm, settings in settings_by_arm.items()}, self.data_root
            ),
            *doubts.unfit_text(
                {arm: reports[item.tokens] for arm, item in arms.items()},
                [settings.kind for settings in self.experiment.measures],
            ),
            *self._unchecked_text(arms, reports),
        ]

    def _unchecked_text(self, arms: Mapping[str, PlannedRun], reports: Mapping[str, Any]) -> list[str]:
        """Return a sentence if tokens of a text are gone although a run on it is trained; else an empty list."""
        if not any(
            not reports[item.tokens] and plan.unreadable(item.directory) is None and item.directory.is_trained()
            for item in arms.values()
        ):
            return []
        return [
            f"data: the tokens of this text are not in {self.out / 'tokens'} any more, so it was not checked for "
            f"unknown words and for repeated sentences; `ablate text {self.spec}` writes them, and then `ablate "
            f"report {self.spec}` checks the text."
        ]

    def require_words(self) -> None:
        """Refuse arms that are not trained yet and need words, if their text has none.

        The tokens of a text are judged only once they are made.

        Raises:
            SpecProblems: the selection or the word order of an arm needs words; the error has all such arms.
        """
        load_tokens = functools.cache(lambda address: token_store.load(self.out / "tokens" / address))
        unfit: list[tuple[str, str | None, str]] = []
        for item in {item.run.arm: item for item in self.readable() if not item.directory.is_trained()}.values():
            if item.run.settings.training.max_steps and _token_report(self.out, item.tokens):
                try:
                    require_words(item.run.settings, load_tokens(item.tokens))
                except DataError as error:
                    unfit.append((item.run.arm, None, str(error)))
        if unfit:
            raise load.unfit_files(self.spec, unfit, overrides=self.overrides)

    def earlier_runs(self) -> list[str]:
        """Return a sentence on runs of an earlier version of the spec; an empty list if there are none."""
        return doubts.earlier_runs(self.folder, self.planned, out=self.out)


def _of_plugins() -> list[str]:
    """Return a sentence on each loaded plugin, with the hash of its source."""
    return [
        f"{plugin.name} is your own {'task' if plugins.is_text(plugin.name) else 'code'} ("
        + (
            "SHA-256 of the file"
            if plugin.name.startswith(plugin.path.name)
            else "hash of all files of its package"
        )
        + f": {plugin.sha256[:16]})."
        for plugin in plugins.loaded()
    ]


def _token_report(out: Path, address: str) -> dict[str, Any]:
    """Return the report of a token store (tokens.json); empty before it is made."""
    folder = out / "tokens" / address
    return token_store.read_report(folder) if (folder / "tokens.json").exists() else {}


class _NotTokenisedError(Exception):
    """Error: the tokens of a text are missing and must not be made."""


def _text(run: RunSettings, *, out: Path, data_root: Path, tokenise: bool) -> Tokens:
    """Return the tokens of a run's text. If they are missing, make them if `tokenise`, or else raise a
    _NotTokenisedError."""
    store = out / "tokens"
    if tokenise:
        return token_store.prepare(run.data, data_root=data_root, store=store)
    folder = store / token_store.address(run.data, data_root)
    if not folder.is_dir():
        raise _NotTokenisedError
    return token_store.load(folder)


def _in_words(data: Data) -> str:
    match data.kind:
        case "language":
            return f"the built-in language, seed {data.seed}"
        case "files":
            return ", ".join(data.train)
        case "hub":
            return f"{data.path} {data.name or ''}".strip()
