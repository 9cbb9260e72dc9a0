"""Measures of states that lie in the CPU's memory: what is heavy goes to the GPU, with the same numbers."""

import numpy as np
import pytest
import torch

from ablations.measures.geometry import geometry
from ablations.measures.information import probes
from ablations.measures.layer_change import layer_change
from ablations.measures.neighbours import neighbours
from ablations.measures.read_out import read_out_rows
from ablations.measures.reading.sample import Sample, ranks
from ablations.measures.settings import (
    LayerChangeSettings,
    NeighboursSettings,
    ReadOutSettings,
    TokenInformationSettings,
)
from ablations.measures.similarity import sides
from ablations.measures.similarity.sides import to_device
from ablations.measures.token_information import information_rows

MEASURES = {
    "layer_change": (layer_change, LayerChangeSettings(kind="layer_change", groups=("frequency",))),
    "neighbours": (
        neighbours,
        NeighboursSettings(kind="neighbours", types=8, occurrences=30, neighbours=5, neighbours_of_type=5),
    ),
    "geometry": (geometry,),
    "token_information": (
        information_rows,
        TokenInformationSettings(kind="token_information", types=10, clusters=8, about=("input", "next")),
    ),
    "read_out": (read_out_rows, ReadOutSettings(kind="read_out", types=10, about=("input", "next"))),
}


@pytest.fixture(scope="module")
def sample():
    """Two hundred sentences of eight tokens of ten types, 40% of them the most frequent one."""
    rng = np.random.default_rng(0)
    token_N = 5 + rng.choice(10, 1600, p=[0.4, *[0.6 / 9] * 9])
    left_N, right_N = np.roll(token_N, 1), np.roll(token_N, -1)
    sentence_N, position_N = np.divmod(np.arange(1600), 8)
    rank_N = ranks(np.bincount(token_N))[token_N]
    return Sample(200, token_N, sentence_N, position_N + 1, left_N, right_N, rank_N)


@pytest.fixture(scope="module")
def states(sample):
    """Three layers of width 6, in which a token's type fades."""
    rng = np.random.default_rng(1)
    types = rng.standard_normal((20, 6))[sample.token_N]
    return [(types + noise * rng.standard_normal(types.shape)).astype(np.float32) for noise in (0.3, 0.6, 1.0)]


def numbers(name, states, sample):
    measure, *settings = MEASURES[name]
    rows = list(measure(states, sample, *settings))
    return np.array([[row["value"], row["floor"], row["standard_error"]] for row in rows])


def test_without_a_gpu_nothing_is_copied(states, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert to_device(states[0]) is states[0]


@pytest.mark.parametrize("name", MEASURES)
def test_tensors_have_the_numbers_of_arrays(name, states, sample, monkeypatch):
    """As on a GPU, where the very functions get tensors; on the CPU these must not differ at all."""
    monkeypatch.setattr(probes, "HIDDEN_STEPS", 4)  # 100 steps are the same again
    expected = numbers(name, states, sample)
    gone_over = []

    def as_on_a_gpu(values):
        gone_over.append(values.shape)
        return torch.from_numpy(np.array(values))

    for module in ("layer_change", "neighbours", "geometry", "token_information", "read_out"):
        monkeypatch.setattr(f"ablations.measures.{module}.to_device", as_on_a_gpu)
    np.testing.assert_array_equal(numbers(name, states, sample), expected)
    assert gone_over


@pytest.mark.gpu
@pytest.mark.parametrize("name", MEASURES)
def test_a_gpu_has_the_numbers_of_the_cpu(name, states, sample, monkeypatch):
    found = numbers(name, states, sample)
    monkeypatch.setattr(sides.torch.cuda, "is_available", lambda: False)
    # By rounding k-means may put a token between two clusters elsewhere, one of 1,600, and a probe stop elsewhere.
    atol = 1e-2 if name in ("token_information", "read_out") else 1e-5
    np.testing.assert_allclose(found, numbers(name, states, sample), atol=atol)
