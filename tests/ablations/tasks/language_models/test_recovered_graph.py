"""A masked LM that learnt from samples of a known graph: the graph can be read from it."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import mutual_info_score, roc_auc_score

from ablations.tasks.language_models.parsing import conditional_information
from ablations.tasks.language_models.sentence_scores import masked_log_probabilities
from lightning_modules.data.tokenizer import FIRST_WORD_ID, MASK
from lightning_modules.objectives.masked_lm import MaskedLM
from tests.support.tiny_text import settings

VARIABLES, VALUES = 9, 3
PAIRS = list(itertools.combinations(range(VARIABLES), 2))
STEPS = 500


@pytest.fixture(scope="module")
def graph():
    """A tree over shuffled places, and how strong its edges are: a hub with four strong ones, each of which ends
    in a weak one."""
    place = np.random.default_rng(3).permutation(VARIABLES)
    strong, weak = [(0, 1), (0, 2), (0, 3), (0, 4)], [(1, 5), (2, 6), (3, 7), (4, 8)]
    return place, dict.fromkeys(strong, 0.9) | dict.fromkeys(weak, 0.4)


@pytest.fixture(scope="module")
def samples(graph):
    """Each variable is as its parent with the probability of the edge, else any value."""
    place, strengths = graph
    rng = np.random.default_rng(4)
    drawn = rng.integers(VALUES, size=(20_000, VARIABLES))
    for (parent, child), strength in strengths.items():
        copies = rng.random(len(drawn)) < strength
        drawn[copies, child] = drawn[copies, parent]
    return torch.from_numpy(drawn[:, np.argsort(place)] + FIRST_WORD_ID)


@pytest.fixture(scope="module")
def is_edge(graph):
    place, strengths = graph
    edges = {frozenset((int(place[a]), int(place[b]))) for a, b in strengths}
    return [frozenset(pair) in edges for pair in PAIRS]


def fresh():
    encoder = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4, "dropout": 0.0}
    run = settings(encoder=encoder, data={"max_length": VARIABLES})
    objective = MaskedLM(run, vocab_size=FIRST_WORD_ID + VALUES)
    objective.initialise()
    return objective


@pytest.fixture(scope="module")
def trained(samples):
    """Masked LM as ever: three of nine are hidden and predicted."""
    objective, rng = fresh(), torch.Generator().manual_seed(5)
    optimizer = torch.optim.AdamW(objective.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=STEPS)
    for _ in range(STEPS):
        rows_BT = samples[torch.randint(len(samples), (256,), generator=rng)]
        hidden_BT = torch.rand(rows_BT.shape, generator=rng).argsort(1) < 3
        shown_BT = rows_BT.masked_fill(hidden_BT, MASK)
        top_BTD = objective.encoder(shown_BT, sees="both_sides")[-1]
        loss = objective.head.loss(top_BTD[hidden_BT], objective.encoder.tokens.weight, rows_BT[hidden_BT])
        optimizer.zero_grad()
        (loss.total / loss.predictions).backward()
        optimizer.step()
        schedule.step()
    return objective


def found_information(objective, samples, *, rows=30, sweeps=20):
    """Of each pair, the mean over some samples and both sides."""
    chains = samples[:rows].repeat_interleave(len(PAIRS), 0)
    information_KB2 = conditional_information(
        masked_log_probabilities(objective, asks="a test"),
        chains,
        torch.tensor(PAIRS).repeat(rows, 1),
        uniform_BR2=torch.rand(len(chains), sweeps, 2, generator=torch.Generator().manual_seed(6)),
        stops=(sweeps,),
    )
    return information_KB2[0].mean(-1).view(rows, -1).mean(0).numpy()


def test_a_trained_masked_lm_knows_the_graph(trained, samples, is_edge):
    assert roc_auc_score(is_edge, found_information(trained, samples)) >= 0.95


def test_what_is_found_is_the_graph_and_not_what_goes_together(trained, samples, is_edge):
    """Two strong edges in a row make their ends go together more than one weak edge does: information without the
    rest takes some of these for edges. Without training there is nothing to find."""
    found = roc_auc_score(is_edge, found_information(trained, samples))
    columns = samples.numpy().T
    together = [mutual_info_score(columns[a], columns[b]) for a, b in PAIRS]
    assert roc_auc_score(is_edge, together) < 0.95 < found
    assert roc_auc_score(is_edge, found_information(fresh(), samples)) < 0.8
