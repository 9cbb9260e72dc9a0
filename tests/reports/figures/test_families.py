"""Arms whose names begin alike share a panel, none is lost, and no panel has more than it has room for."""

import json
from pathlib import Path

import pytest

from reports.figures.families import MOST_LINES, families
from tests.support.many_arms import ARMS

GOLDEN = sorted(Path(__file__).parents[2].glob("golden/*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_arm_of_a_shipped_spec_is_in_one_family_that_has_room(path):
    arms = list(json.loads(path.read_text(encoding="utf-8"))["arms"])
    groups = families(arms)
    assert sorted(arm for family in groups for arm in family.arms) == sorted(arms)
    assert all(1 <= len(family.arms) <= MOST_LINES for family in groups)
    assert (len(groups) == 1) == (len(arms) <= MOST_LINES)
    assert all(arm == family.shared + family.short(arm) for family in groups for arm in family.arms)
    assert len({family.short(arm) for family in groups[:1] for arm in family.arms}) == len(groups[0].arms)


def test_few_arms_are_together_and_keep_their_names():
    (family,) = families(["mlm-a", "mlm-b"])
    assert (family.name, family.arms, family.short("mlm-a")) == ("", ("mlm-a", "mlm-b"), "mlm-a")


def test_names_that_begin_alike_are_a_family_and_a_large_one_is_parted_at_its_next_word():
    groups = families(ARMS)
    assert [family.name for family in groups] == [
        *("mlm-post", "mlm-pre", "clm-post", "clm-pre", "mt-post", "mt-pre", "untrained")
    ]
    assert groups[0].short("mlm-post-learned-bert") == "learned-bert"
    assert groups[0].short("clm-post-learned-bert") == "clm-post-learned-bert"  # of another family
    assert groups[-1].short("untrained-scaled") == "untrained-scaled"  # since an arm is called untrained


def test_small_families_share_a_panel():
    groups = families(["mlm", "clm", "mt", "ratio-5", "ratio-30", "ratio-60", "n1", "n2", "n3", "n4"])
    assert [family.name for family in groups] == ["mlm, clm and mt", "ratio", "n1 …"]


@pytest.mark.parametrize("number", [9, 16, 40])
def test_names_without_words_in_common_are_parted_evenly(number):
    sizes = [len(family.arms) for family in families([f"{i}" for i in range(number)])]
    assert sum(sizes) == number
    assert max(sizes) - min(sizes) <= max(sizes) // 2
