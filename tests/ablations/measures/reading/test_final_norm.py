"""The top layer of a pre-norm encoder, read before and after the norm above all blocks."""

import numpy as np
import pandas as pd
import pytest
import torch

from ablations.measures import layer_change, token_information
from ablations.measures.reading.texts import Readings
from ablations.measures.settings import AFTER_FINAL_NORM, LayerChangeSettings, TokenInformationSettings
from ablations.measures.similarity import pwcca
from lightning_modules.config import RunSettings
from lightning_modules.data import token_store
from lightning_modules.objectives import build
from tests.support.information import token_information as information_of

LAYERS = 3
CHANGE = LayerChangeSettings(kind="layer_change", tokens=800)
INFORMATION = TokenInformationSettings(kind="token_information", tokens=800, types=40, clusters=8)


def settings(norm: str = "pre", kind: str = "masked_lm") -> RunSettings:
    return RunSettings.model_validate(
        {
            "data": {"kind": "language", "train": 400, "validation": 120, "test": 10, "vocab_size": 300},
            "encoder": {
                "num_hidden_layers": LAYERS,
                "hidden_size": 16,
                "num_attention_heads": 2,
                "norm": norm,
            },
            "objective": {"kind": kind},
            "training": {"max_steps": 2, "tokens_per_step": 256},
            "seed": 0,
        }
    )


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    return token_store.prepare(settings().data, data_root=folder, store=folder / "tokens")


def read(tokens, tmp_path, **changes):
    objective = build(settings(**changes), tokens)
    torch.manual_seed(0)
    with torch.no_grad():  # a norm as training leaves it, which is no longer the identity's scale
        if objective.run.objective.kind != "skip_gram":
            objective.encoder.norm.weight.uniform_(0.2, 3)
            objective.encoder.norm.bias.normal_()
    return Readings(objective, tokens, data_root=tmp_path)


def plain_norm(states_ND: np.ndarray, norm: torch.nn.LayerNorm) -> np.ndarray:
    """Layer norm from its formula, in float64."""
    states_ND = states_ND.astype(np.float64)
    centred_ND = states_ND - states_ND.mean(1, keepdims=True)
    scaled_ND = centred_ND / np.sqrt((centred_ND**2).mean(1, keepdims=True) + norm.eps)
    return scaled_ND * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def test_the_last_step_is_there_twice_and_the_second_ends_after_the_norm(tokens, tmp_path):
    readings = read(tokens, tmp_path)
    rows = pd.DataFrame(layer_change.rows(readings, CHANGE, print)).query("metric == 'pwcca'")
    reading = readings.texts.validation(CHANGE)
    *_, below_ND, top_ND = readings.states(reading)
    steps = rows[(rows["layer"] == LAYERS - 1) & (rows["layer_to"] == LAYERS)]
    before, after = (steps[steps["group"].isna()], steps[steps["group"] == AFTER_FINAL_NORM])
    normed_ND = plain_norm(top_ND, readings.objective.encoder.norm)
    assert before["value"].item() == pytest.approx(1 - pwcca(below_ND, top_ND), abs=1e-6)
    assert after["value"].item() == pytest.approx(1 - pwcca(below_ND, normed_ND), abs=1e-6)
    assert abs(before["value"].item() - after["value"].item()) > 1e-4  # a norm is no linear map
    assert set(rows["group"].dropna()) == {AFTER_FINAL_NORM}


def test_the_information_about_the_input_token_is_there_once_more_after_the_norm(tokens, tmp_path):
    readings = read(tokens, tmp_path)
    rows = pd.DataFrame(token_information.rows(readings, INFORMATION, print)).query("metric == 'plug_in'")
    reading = readings.texts.validation(INFORMATION)
    (question,) = token_information.questions_of(reading.sample, INFORMATION, "masked")[:1]
    normed_ND = plain_norm(readings.states(reading)[-1], readings.objective.encoder.norm).astype(np.float32)
    expected = information_of(
        torch.from_numpy(normed_ND[question.place_N]),
        question.label_N,
        reading.sample.sentence_N[question.place_N],
        clusters=INFORMATION.clusters,
        seed=0,
    )
    after = rows[rows["group"] == AFTER_FINAL_NORM]
    assert after["layer"].tolist() == [LAYERS]
    assert after["value"].item() == pytest.approx(expected.plug_in, abs=1e-6)
    assert len(rows[rows["group"].isna()]) == LAYERS + 1


@pytest.mark.parametrize("changes", [{"norm": "post"}, {"kind": "skip_gram"}], ids=["post", "skip_gram"])
def test_without_a_norm_above_all_blocks_there_are_no_such_rows(changes, tokens, tmp_path):
    readings = read(tokens, tmp_path, **changes)
    assert readings.after_final_norm(readings.texts.validation(CHANGE)) is None
