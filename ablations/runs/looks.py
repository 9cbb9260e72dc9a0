"""Looks at claims on disk: how many seeds each arm has so far, and which looks were taken. No torch.

looks.json is written before the first run, and when a look has been taken. A command that ends before that takes
the same look again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from ablations.errors import ResultsError, SpecError
from ablations.runs.records import Look, Looks
from ablations.spec.experiment import Experiment, Run, SeedsUntilDecided
from ablations.wording import listed, several
from lightning_modules.files import make_folder, read_json, write_json
from lightning_modules.provenance import now

FILE = "looks.json"
"""Name of the record in the experiment's folder."""


def looks_of(experiment: Experiment, *, arms: Sequence[str], folder: Path) -> Looks | None:
    """Return the looks that were taken and the seeds of each arm; None for a spec with a fixed list of seeds.

    Args:
        arms: all arms of the experiment. One that was added since has the seeds of the first look.
        folder: of the experiment's results.

    Raises:
        SpecError: the runs have begun, and the spec now has other seeds.
        ResultsError: looks.json is damaged.
    """
    seeds = experiment.seeds
    if not isinstance(seeds, SeedsUntilDecided):
        return None
    fresh = Looks(all_seeds=list(seeds.all), sizes=list(seeds.looks), seeds_of=dict.fromkeys(arms, seeds.looks[0]))
    path = folder / FILE
    if not path.exists():
        return fresh
    try:
        kept = Looks.model_validate(read_json(path))
    except (ValueError, ValidationError) as error:
        raise ResultsError(
            f"{path} cannot be read; delete it, and `ablate run` takes the looks again, with the same results."
        ) from error
    if (kept.all_seeds, kept.sizes) != (fresh.all_seeds, fresh.sizes):
        raise SpecError(
            f"seeds: the runs began with looks at {listed([str(size) for size in kept.sizes], 'and')} seeds, the "
            f"first of them {kept.all_seeds[0]}, and others would change the error rate; write the seeds as they "
            "were, or give the experiment another name and another start."
        )
    return kept.model_copy(update={"seeds_of": fresh.seeds_of | kept.seeds_of})


def runs_so_far(looks: Looks, runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs of the seeds that each arm has so far."""
    place = {seed: number for number, seed in enumerate(looks.all_seeds)}
    return tuple(run for run in runs if place[run.seed] < looks.seeds_of[run.arm])


def due(looks: Looks, *, ended: Collection[str]) -> Look | None:
    """Return the look that is to be taken now; None where every arm that ended was looked at with its seeds.

    Args:
        ended: arms of which every run so far is trained and measured.
    """
    for size in looks.sizes:
        arms = [arm for arm in ended if looks.seeds_of[arm] == size and size not in looks.sizes_of([arm])]
        if arms:
            return Look(seeds=size, arms=arms, taken=now())
    return None


def with_look(looks: Looks, look: Look) -> Looks:
    """Return the looks with another one."""
    return looks.model_copy(update={"taken": [*looks.taken, look]})


def continued(looks: Looks, *, seeds_of: Mapping[str, int], futile: Sequence[str]) -> Looks:
    """Return the looks after the last one, with the seeds that arms get.

    Args:
        seeds_of: arms of open claims with their seeds at the next look; no arm loses seeds.
        futile: claims that are given up at the last look.
    """
    more = {arm: max(seeds, looks.seeds_of[arm]) for arm, seeds in seeds_of.items()}
    taken = list(looks.taken)
    if futile:
        taken[-1] = taken[-1].model_copy(update={"futile": [*taken[-1].futile, *futile]})
    return looks.model_copy(update={"taken": taken, "seeds_of": looks.seeds_of | more})


def write(looks: Looks, folder: Path) -> None:
    """Write looks.json into an experiment's folder."""
    make_folder(folder)
    write_json(folder / FILE, looks.model_dump(mode="json"))


def in_words(looks: Looks) -> str:
    """Return a sentence on how many seeds are planned, and may be."""
    arms_with = {size: sum(seeds == size for seeds in looks.seeds_of.values()) for size in looks.sizes}
    so_far = [f"{size} for {several(arms, 'arm')}" for size, arms in arms_with.items() if arms]
    return (
        f"seeds: planned so far are {listed(so_far, 'and')}; the claims are looked at with "
        f"{listed([str(size) for size in looks.sizes], 'and')} seeds, and arms of open claims get more, which "
        f"makes {several(looks.sizes[-1] * len(looks.seeds_of), 'run')} at most."
    )
