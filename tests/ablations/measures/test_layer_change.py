"""How much a layer changes its tokens, all of them and by group."""

import math

import numpy as np
import pandas as pd
import pytest

from ablations.errors import MeasureError
from ablations.measures.jackknife import sentence_blocks, standard_error
from ablations.measures.layer_change import change_rows, group_changes, layer_change
from ablations.measures.reading.sample import Sample, whole_sentences
from ablations.measures.settings import LayerChangeSettings
from ablations.measures.similarity import debiased_cka, pwcca
from tests.support.errors import error_text

D = 4


def made_up(tokens: int = 2000, *, seed: int = 0) -> tuple[list[np.ndarray], Sample]:
    """Three layers, the second a linear map of the first and the third half noise; tags VERB and NOUN."""
    rng = np.random.default_rng(seed)
    first_ND = rng.standard_normal((tokens, D)) * [3, 2, 1, 0.5] + 5
    second_ND = first_ND @ rng.standard_normal((D, D))
    third_ND = second_ND + 4 * rng.standard_normal((tokens, D))
    ids = rng.zipf(1.4, tokens) % 500 + 5
    sample = whole_sentences(
        ids,
        np.arange(0, tokens + 1, 10),
        np.ones(tokens, bool),
        tokens,
        labels={"tag": rng.integers(0, 2, tokens)},
        names={"tag": ("VERB", "NOUN")},
    )
    return [layer.astype(np.float32) for layer in (first_ND, second_ND, third_ND)], sample


def asked(**changes):
    return LayerChangeSettings(kind="layer_change", **changes)


def test_change_is_one_minus_similarity_of_consecutive_layers_and_from_the_embeddings():
    layers, sample = made_up()
    rows = pd.DataFrame(layer_change(layers, sample, asked()))
    assert sorted({(a, b) for a, b in zip(rows["layer"], rows["layer_to"], strict=True)}) == [
        (0, 1),
        (0, 2),
        (1, 2),
    ]
    for row in rows.itertuples():
        similarity = {"pwcca": pwcca, "debiased_cka": debiased_cka}[row.metric]
        assert row.value == pytest.approx(1 - similarity(layers[row.layer], layers[row.layer_to]), abs=1e-9)
        assert row.floor > row.value  # unrelated tokens are farther apart
        assert (row.n, row.d) == (2000, D)
    assert rows.query("metric == 'pwcca' and layer == 0 and layer_to == 1")["value"].item() == pytest.approx(
        0, abs=1e-6
    )


@pytest.mark.parametrize(("metric", "similarity"), [("pwcca", pwcca), ("debiased_cka", debiased_cka)])
def test_the_error_is_that_of_leaving_out_blocks_of_sentences(metric, similarity):
    layers, sample = made_up()
    row = next(r for r in change_rows(layers, sample.sentence_N) if r["layer"] == 1 and r["metric"] == metric)
    block_N = sentence_blocks(sample.sentence_N)
    left_out = [1 - similarity(layers[1][block_N != g], layers[2][block_N != g]) for g in range(10)]
    assert row["standard_error"] == pytest.approx(standard_error(left_out), rel=1e-6)
    swapped = [1 - similarity(layers[2][block_N != g], layers[1][block_N != g]) for g in range(10)]
    if metric == "pwcca":  # whose weights are those of the lower layer
        assert row["standard_error"] != pytest.approx(standard_error(swapped), rel=1e-3)


def test_the_floor_is_the_same_number_after_the_tokens_of_the_upper_layer_were_shuffled():
    """With few tokens, so that it matters whose weights count: those of the lower layer, unshuffled."""
    layers, sample = made_up(60)
    shuffled_N = np.random.default_rng(0).permutation(60)
    for row in change_rows(layers, sample.sentence_N):
        similarity = {"pwcca": pwcca, "debiased_cka": debiased_cka}[row["metric"]]
        lower, upper = layers[row["layer"]], layers[row["layer_to"]][shuffled_N]
        assert row["floor"] == pytest.approx(1 - similarity(lower, upper), abs=1e-9)
        if row["metric"] == "pwcca" and row["layer"] == 1:
            assert abs(similarity(lower, upper) - similarity(upper, lower)) > 1e-4


def test_the_error_is_about_the_spread_over_texts():
    rows = []
    for seed in range(40):
        layers, sample = made_up(1000, seed=seed)
        layers[2] = (layers[0] + np.random.default_rng(seed + 100).standard_normal((1000, D)) * 2).astype(
            np.float32
        )
        rows.append(
            next(r for r in change_rows([layers[0], layers[2]], sample.sentence_N) if r["metric"] == "pwcca")
        )
    spread = np.std([row["value"] for row in rows], ddof=1)
    error = math.sqrt(np.mean([row["standard_error"] ** 2 for row in rows]))
    # Spread over 40 texts is known to 11%, the mean of 40 variances of 10 blocks to 4%: three times both.
    assert error == pytest.approx(spread, rel=0.36)


def test_groups_are_equally_large_and_the_change_is_that_of_their_own_tokens():
    layers, sample = made_up(6000)
    noun_N = sample.labels["tag"] == 1
    layers[1][noun_N] += np.random.default_rng(1).standard_normal((noun_N.sum(), D)).astype(np.float32) * 20
    rows = pd.DataFrame(layer_change(layers, sample, asked(groups=("frequency", "part_of_speech"))))
    tags = rows[rows["group"].fillna("").str.startswith("tag")]
    assert set(tags["group"]) == {"tag NOUN", "tag VERB"}
    assert tags["n"].nunique() == 1
    ranked = rows[rows["group"].fillna("").str.startswith("rank")]
    assert ranked["n"].nunique() == 1
    first = tags[(tags["layer"] == 0) & (tags["metric"] == "pwcca")].set_index("group")["value"]
    assert first["tag VERB"] == pytest.approx(0, abs=1e-6)  # a linear map of all its tokens
    assert first["tag NOUN"] > 0.3
    assert (rows[rows["group"].notna()]["layer_to"] == rows[rows["group"].notna()]["layer"] + 1).all()


def test_a_group_size_of_ones_own_leaves_out_smaller_groups():
    layers, sample = made_up(6000)
    sizes = dict(_sizes(group_changes(layers, sample, "frequency", size=1000)))
    assert set(sizes.values()) == {1000}
    smaller = dict(_sizes(group_changes(layers, sample, "frequency")))
    assert set(smaller) > set(sizes)


def _sizes(rows):
    return {(row["group"], row["n"]) for row in rows}


def test_without_labels_there_are_no_parts_of_speech():
    layers, sample = made_up()
    bare = Sample(
        sample.sentences,
        *(getattr(sample, f"{name}_N") for name in ("token", "sentence", "position", "left", "right", "rank")),
    )
    assert list(group_changes(layers, bare, "part_of_speech")) == []


def test_too_few_tokens_for_the_width_are_refused_and_a_few_more_have_no_error():
    layers, sample = made_up(20)
    warning = (
        r"^PWCCA of 20 tokens at a width of 4: with fewer than 10 tokens per feature, most of a weak "
        r"similarity is chance; show its floor beside it\.$"
    )
    with pytest.warns(UserWarning, match=warning):
        found = list(change_rows(layers, sample.sentence_N))
    assert all(math.isnan(row["standard_error"]) for row in found)  # 18 tokens are below 5 for each of 4 features
    assert error_text(
        MeasureError, lambda: list(change_rows([layer[:19] for layer in layers], sample.sentence_N[:19]))
    ) == (
        "layer_change needs at least 5 tokens per feature, which is 20 at a width of 4, but got 19; "
        "give more tokens or fewer features."
    )


def punctuation_of_one_type(layers, sample):
    """The same layers and sample, but embeddings without positions: all of tag VERB are equal in layer 0."""
    verb_N = sample.labels["tag"] == 0
    layers[0][verb_N] = layers[0][verb_N][0]
    return verb_N


def test_a_group_of_equal_embeddings_leaves_out_only_its_first_step():
    layers, sample = made_up(6000)
    verb_N = punctuation_of_one_type(layers, sample)
    rows = pd.DataFrame(layer_change(layers, sample, asked(groups=("part_of_speech",))))
    steps = rows.groupby("group")["layer"].apply(set).to_dict()
    assert steps == {"tag VERB": {1}, "tag NOUN": {0, 1}}
    everything = rows[rows["group"].isna()]
    assert set(zip(everything["layer"], everything["layer_to"], strict=True)) == {(0, 1), (1, 2), (0, 2)}
    assert rows["standard_error"].notna().all()
    with pytest.raises(MeasureError) as error:  # tokens of all groups that are equal are a collapsed run
        list(change_rows([layer[verb_N] for layer in layers], sample.sentence_N[verb_N]))
    assert str(error.value) == (
        f"PWCCA is undefined: all {verb_N.sum()} rows of x are equal; check whether the run has collapsed."
    )


@pytest.mark.parametrize("block", [0, 7])
def test_a_number_that_one_block_alone_defines_has_no_error(block):
    """Whichever block the origin of the sums is from."""
    layers, sample = made_up(6000)
    layers[0][sentence_blocks(sample.sentence_N) != block] = 1.25
    for row in change_rows(layers, sample.sentence_N):
        assert math.isfinite(row["value"])
        is_defined = row["layer"] == 1
        assert math.isfinite(row["standard_error"]) == is_defined
        assert np.flatnonzero(np.isnan(row["left_out"])).tolist() == ([] if is_defined else [block])
