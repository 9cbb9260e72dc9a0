"""Seeds of single sources of chance: each moves what it says and nothing else."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lightning_modules.objectives import build
from lightning_modules.training.data_module import RunData
from lightning_modules.training.fit import StepSeed, train
from tests.support.stop_after import StopAfter
from tests.support.tiny_text import settings

SOURCES = ("init", "order", "corruption", "dropout")


def drawn(run, tokens):
    """What each source decides of a run's first step: weights, sentences, places and inputs that were hidden, and
    the seed of dropout."""
    objective = build(run, tokens)
    data = RunData(objective, tokens)
    StepSeed().on_train_batch_start(SimpleNamespace(global_step=0, global_rank=0), objective, None, 0)
    return {
        "init": torch.cat([weight.flatten() for weight in objective.parameters()]).numpy(force=True),
        "order": np.asarray(data.plan[0].sentence_S),
        "corruption": data.seed,
        "dropout": torch.initial_seed(),
    }


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_with_a_seed_is_the_same_in_all_runs_and_the_others_are_not(source, tokens):
    fixed = {"seeds": {source: 7}}
    one, two = (drawn(settings(seed=seed, training=fixed), tokens) for seed in (0, 1))
    as_in_run_7 = drawn(settings(seed=7), tokens)
    for name in SOURCES:
        assert np.array_equal(one[name], two[name]) == (name == source), name
        assert np.array_equal(one[name], as_in_run_7[name]) == (name == source), name


def test_the_corruption_of_a_batch_follows_its_seed_alone(tokens):
    def batch(seed, **seeds):
        run = settings(seed=seed, training={"seeds": seeds})
        return RunData(build(run, tokens), tokens).batch(0)

    same_text = {"order": 3}
    one, two = batch(0, corruption=5, **same_text), batch(1, corruption=5, **same_text)
    assert all(torch.equal(one[name], two[name]) for name in one)
    other = batch(0, corruption=6, **same_text)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_a_run_whose_sources_all_have_a_seed_is_the_run_of_this_seed_to_the_bit(make_run, tokens):
    def weights(name, seed, **seeds):
        directory = make_run(settings(seed=seed, training={"seeds": seeds}), f"run-s{seed}-{name:0>10}")
        directory.checkpoints.mkdir()
        stop = StopAfter(10**9)
        train(directory, tokens, threads=1, accelerator="cpu", stop=stop, on_line=stop.on_line)
        return directory.last_weights.read_bytes()

    of_seed_7 = weights("a", 7)
    assert weights("b", 0, **dict.fromkeys(SOURCES, 7)) == of_seed_7
    assert weights("c", 0, **dict.fromkeys(SOURCES[:3], 7)) != of_seed_7  # dropout is another


NO_DROPOUT = {"encoder": {"dropout": 0.0}}


@pytest.mark.parametrize(
    ("kind", "fixed", "sections"),
    [
        ("masked_lm", "init order corruption dropout", {}),
        ("masked_lm", "init order corruption", {}),
        ("masked_lm", "init order corruption", NO_DROPOUT),
        ("masked_lm", "init order corruption", {"encoder": {"dropout": 0.0, "attention_dropout": 0.1}}),
        ("masked_lm", "init order", NO_DROPOUT),
        ("masked_lm", "order corruption", NO_DROPOUT),
        ("masked_lm", "init", {"training": {"max_steps": 0}}),
        ("causal_lm", "init order", NO_DROPOUT),
        ("causal_lm", "init order", NO_DROPOUT | {"objective": {"token_dropout": 0.1}}),
        ("causal_lm", "init", NO_DROPOUT),
        ("translation", "init order", NO_DROPOUT),
        ("naive_bidirectional_lm", "init order", NO_DROPOUT),
        ("permutation_lm", "init order", NO_DROPOUT),
        ("mixture", "init order", NO_DROPOUT),
        ("replaced_token", "init order", NO_DROPOUT),
        ("replaced_token", "init order corruption", {}),
        ("skip_gram", "init order corruption", {}),  # has no layers with dropout
        ("skip_gram", "init order", {}),
    ],
)
def test_runs_of_two_seeds_are_equal_exactly_if_no_source_that_they_use_is_free(
    kind, fixed, sections, make_run, tokens
):
    training = {"max_steps": 2, "seeds": dict.fromkeys(fixed.split(), 7)} | sections.get("training", {})

    def trained(seed):
        run = settings(kind, seed=seed, **sections | {"training": training})
        directory = make_run(run, f"run-s{seed}-0000000000")
        directory.checkpoints.mkdir()
        stop = StopAfter(10**9)
        train(directory, tokens, threads=1, accelerator="cpu", stop=stop, on_line=stop.on_line)
        return run.is_same_for_all_seeds, directory.last_weights.read_bytes()

    (said, one), (_, two) = trained(0), trained(1)
    assert said == (one == two)


def test_words_that_move_follow_the_seed_of_the_order(tokens):
    def text(seed, **seeds):
        moved = {"word_order": {"kind": "ngrams", "n": 1}, "seeds": seeds}
        return RunData(build(settings(seed=seed, training=moved), tokens), tokens).split.ids

    assert np.array_equal(text(0, order=4), text(1, order=4))
    assert not np.array_equal(text(0), text(1))
