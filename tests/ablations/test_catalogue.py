"""The cards of measures: one for each kind that a spec may ask for, each leading to functions that are there."""

import ast
import inspect
from pathlib import Path
from pkgutil import resolve_name
from typing import get_args

import pytest

from ablations.catalogue import CARDS, LOGGED, METRICS, RunMeasure
from lightning_modules.config.objectives import OBJECTIVES

ROOT = Path(__file__).parents[2]
MOST_MODULES = {"measure": 9, "objective": 7}
MORE_MODULES = {"layer_change": 12, "run_distance": 14, "minimal_pairs": 12}
"""The most modules that spell the name of a kind: its settings, its card, its figure, names on the page and, of
the few that a score or a contrast reads by name, these. `minimal_pairs` is also a kind of task. `validation` is
also the name of a split, and is not counted."""


def kind_of(settings):
    return get_args(settings.model_fields["kind"].annotation)[0]


def test_every_kind_has_one_card():
    assert set(CARDS) == {*map(kind_of, get_args(RunMeasure)), "run_distance"}
    assert not set(CARDS) & set(LOGGED)
    assert set(METRICS) == {*CARDS, *LOGGED}


@pytest.mark.parametrize("kind", CARDS)
def test_a_card_leads_to_functions(kind):
    card = CARDS[kind]
    assert card.metrics
    if card.rows:
        assert list(inspect.signature(resolve_name(card.rows)).parameters) == ["readings", "settings", "say"]
    if card.require:
        assert list(inspect.signature(resolve_name(card.require)).parameters) == ["settings", "texts", "run"]
    assert bool(card.rows) == (kind != "run_distance")


def modules_that_spell(kinds):
    """For each kind, the source modules with its name as a string of its own."""
    modules = {kind: set() for kind in kinds}
    for package in ("lightning_modules", "ablations", "reports"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in modules:
                    modules[node.value].add(path.relative_to(ROOT))
    return modules


def test_few_modules_spell_the_name_of_a_kind():
    kinds = [("measure", kind) for kind in CARDS if kind != "validation"]
    kinds += [("objective", kind_of(settings)) for settings in OBJECTIVES]
    modules = modules_that_spell([kind for _, kind in kinds])
    for of, kind in kinds:
        paths = sorted(modules[kind])
        assert paths  # at least its settings
        assert len(paths) <= MORE_MODULES.get(kind, MOST_MODULES[of]), (kind, paths)
