"""Looks at claims on disk: how many seeds arms have, which look is due, and what a changed spec says."""

import json

import pytest

from ablations.errors import ResultsError, SpecError
from ablations.runs.records import Look, Looks, look_due, with_look, with_more_seeds, write_looks
from ablations.runs.workspace import Workspace
from tests.support.errors import error_text
from tests.support.planned_spec import SPEC, opened, write

SEEDS = {"first": 3, "up_to": 6, "until": "decided", "start": 10}
CLAIM = {
    "name": "more",
    "says": "It is so.",
    "source": "here",
    "needs": {"arms": ["a", "b"], "measures": ["validation"]},
    "effect": {"kind": "difference", "of": {"measure": "validation", "metric": "loss"}, "arm": "a", "minus": "b"},
    "smallest_effect": 0.01,
    "expect": "open",
    "because": "so",
    "family": "one",
}


def written(folder, *, seeds=SEEDS, **changes):
    (folder / "claims").mkdir(exist_ok=True)
    (folder / "claims" / "some.yaml").write_text(json.dumps({"version": 1, "claims": [CLAIM]}))
    return write(folder, **{"seeds": seeds, "measures": ["validation"], "claims": ["some"]} | changes)


@pytest.fixture
def spec(tmp_path):
    return written(tmp_path)


def seeds_of(workspace):
    return {arm: [item.run.seed for item in workspace.planned if item.run.arm == arm] for arm in workspace.arms}


def some(*, seeds_of=None, taken=()):
    seeds = {"a": 3, "b": 3} if seeds_of is None else seeds_of
    return Looks(all_seeds=list(range(10, 16)), sizes=[3, 4, 5, 6], seeds_of=seeds, taken=list(taken))


def test_at_first_every_arm_has_the_seeds_of_the_first_look(spec):
    workspace = opened(spec)
    assert seeds_of(workspace) == {"a": [10, 11, 12], "b": [10, 11, 12]}
    assert workspace.look_due() is None  # nothing is trained
    assert workspace.seeds_to_come() == [
        "seeds: 3 for 2 arms planned so far; the claims are judged with 3, 4, 5 and 6 seeds, and arms of open "
        "claims get more seeds, up to 12 runs in all."
    ]
    assert workspace.plan().looks == some()


def test_the_seeds_are_those_of_a_list(spec, tmp_path):
    listed = written(tmp_path, seeds=[10, 11, 12])
    by_list = {item.run_id for item in Workspace.open(listed, out=tmp_path / "out", data_root=tmp_path).planned}
    assert {item.run_id for item in opened(written(tmp_path)).planned} == by_list


def test_a_look_is_due_when_all_runs_of_an_arm_have_ended_and_is_taken_once():
    assert look_due(some(), ended=[], measures=["validation"]) is None
    look = look_due(some(), ended=["a", "b"], measures=["validation"])
    assert (look.seeds, look.arms) == (3, ["a", "b"])
    after = with_look(some(), look)
    assert look_due(after, ended=["a", "b"], measures=["validation"]) is None


def test_an_arm_whose_run_failed_is_looked_at_later():
    first = look_due(some(), ended=["a"], measures=["validation"])
    assert first.arms == ["a"]
    later = with_look(some(), first)
    second = look_due(later, ended=["a", "b"], measures=["validation"])
    assert (second.seeds, second.arms) == (3, ["b"])
    both = with_look(later, second)
    assert both.sizes_of(["a", "b"]) == [3]
    assert later.sizes_of(["a", "b"]) == []


def test_arms_of_open_claims_get_the_seeds_of_the_next_look():
    taken = some(taken=[Look(seeds=3, arms=["a", "b"])])
    after = with_more_seeds(taken, seeds_of={"a": 4}, futile=["other"])
    assert after.seeds_of == {"a": 4, "b": 3}
    assert after.taken[-1].futile == ["other"]
    assert look_due(after, ended=["b"], measures=["validation"]) is None
    assert look_due(after, ended=["a", "b"], measures=["validation"]).arms == ["a"]


def test_no_arm_loses_seeds():
    taken = some(seeds_of={"a": 6, "b": 3}, taken=[Look(seeds=3, arms=["a", "b"])])
    assert with_more_seeds(taken, seeds_of={"a": 4, "b": 4}, futile=[]).seeds_of == {"a": 6, "b": 4}


def test_looks_json_brings_back_the_seeds_of_each_arm(spec):
    workspace = opened(spec)
    write_looks(some(seeds_of={"a": 6, "b": 4}, taken=[Look(seeds=3, arms=["a", "b"])]), workspace.folder)
    again = opened(spec)
    assert seeds_of(again) == {"a": [10, 11, 12, 13, 14, 15], "b": [10, 11, 12, 13]}
    assert again.select([], [15])[0].run.seed == 15
    assert (
        error_text(SpecError, again.select, [], [99])
        == f"--seed 99: {spec} has no such seed; it has 10, 11, 12, 13, 14, 15."
    )


def test_an_arm_that_is_added_later_begins_with_the_first_look(spec):
    workspace = opened(spec)
    write_looks(some(seeds_of={"a": 6, "b": 4}, taken=[Look(seeds=3, arms=["a", "b"])]), workspace.folder)
    more = written(spec.parent, arms=SPEC["arms"] | {"c": {"training": {"max_steps": 3}}})
    assert seeds_of(opened(more))["c"] == [10, 11, 12]


def test_runs_that_arms_share_are_counted_once_in_the_most_runs_of_all_looks(spec):
    shared = written(spec.parent, arms=SPEC["arms"] | {"same-as-a": SPEC["arms"]["a"]})
    assert opened(shared).seeds_to_come() == [
        "seeds: 3 for 3 arms planned so far; the claims are judged with 3, 4, 5 and 6 seeds, and arms of open "
        "claims get more seeds, up to 12 runs in all."
    ]


def test_an_arm_without_a_claim_gets_no_further_seeds(spec):
    more = written(spec.parent, arms=SPEC["arms"] | {"c": {"training": {"max_steps": 3}}})
    assert opened(more).seeds_to_come() == [
        "seeds: 3 for 3 arms planned so far; the claims are judged with 3, 4, 5 and 6 seeds, and arms of open "
        "claims get more seeds, up to 15 runs in all."
    ]


def test_an_arm_that_was_removed_is_not_counted_and_keeps_its_seeds(spec):
    workspace = opened(spec)
    write_looks(some(seeds_of={"a": 6, "b": 3, "gone": 4}, taken=[Look(seeds=3, arms=["a"])]), workspace.folder)
    again = opened(spec)
    assert again.seeds_to_come() == [
        "seeds: 3 for 1 arm and 6 for 1 arm planned so far; the claims are judged with 3, 4, 5 and 6 seeds, and "
        "arms of open claims get more seeds, up to 12 runs in all."
    ]
    assert again.looks.seeds_of["gone"] == 4


@pytest.mark.parametrize("seeds", [SEEDS | {"up_to": 20}, [10, 11, 12, 13, 14]], ids=["looks", "list"])
def test_other_seeds_than_those_of_the_first_run_are_refused(spec, seeds):
    """A list of seeds would judge the claims once more, at the level of a single look."""
    workspace = opened(spec)
    workspace.fix_looks()
    workspace.write_plan()
    workspace.planned[0].directory.path.mkdir(parents=True)
    workspace.planned[0].directory.write_state("running", step=0)
    assert error_text(SpecError, lambda: opened(written(spec.parent, seeds=seeds))) == (
        "seeds: this experiment started with looks at 3, 4, 5 and 6 seeds, beginning with seed 10, and other "
        "looks would change the error rate; write the seeds as they were, or give the experiment another name "
        "and another first seed."
    )


def test_other_seeds_are_accepted_until_a_run_has_started_or_a_look_was_taken(spec):
    """The first `ablate run` may end before it, as where the text is unfit."""
    workspace = opened(spec)
    workspace.fix_looks()
    workspace.write_plan()
    other = written(spec.parent, seeds=SEEDS | {"up_to": 20})
    opened(other).fix_looks()
    assert opened(other).looks.all_seeds == list(range(10, 30))
    assert opened(written(spec.parent, seeds=[10, 11])).looks is None
    written(spec.parent, seeds=SEEDS | {"up_to": 20})
    write_looks(some(taken=[Look(seeds=3, arms=["a", "b"])]), workspace.folder)
    with pytest.raises(SpecError, match="this experiment started with looks at 3, 4, 5 and 6 seeds"):
        opened(other)


def test_a_damaged_looks_json_is_named(spec):
    folder = opened(spec).folder
    folder.mkdir(parents=True)
    (folder / "looks.json").write_text('{"sizes": 3}')
    assert error_text(ResultsError, opened, spec) == (
        f"{folder / 'looks.json'} cannot be read; delete it, and `ablate run` judges the claims again at each "
        "look, with the same results."
    )
