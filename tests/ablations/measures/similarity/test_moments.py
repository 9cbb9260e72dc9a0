"""Moments: what they give is what matrices in memory give, however the tokens come; what they refuse.

Shapes: N tokens, D and E features.
"""

import pickle
import re
from functools import reduce
from operator import add

import numpy as np
import pytest
import torch

from ablations.measures.similarity import (
    Moments,
    Side,
    cca,
    debiased_cka,
    effective_rank,
    linear_cka,
    minibatch_cka,
    participation_ratio,
    procrustes,
    pwcca,
    rbf_cka,
    rsa,
    svcca,
)
from tests.support import matrices
from tests.support.matrices import complaint, normal

N, D, E = 300, 7, 5

OF_MATRICES = ("minibatch_cka", "rbf_cka", "rsa")
MEASURES = {name: measure for name, measure in matrices.MEASURES.items() if name not in OF_MATRICES} | {
    "effective_rank": lambda x, y: effective_rank(x),
    "participation_ratio": lambda x, y: participation_ratio(x),
}

PROMISED = 1e-9


def layer(tokens, width, *, condition, seed):
    """Singular values from 1 down to 1 / condition, in directions of their own."""
    bases = [np.linalg.qr(normal(size, width, seed=seed + i))[0] for i, size in enumerate((tokens, width))]
    return bases[0] * np.geomspace(1, 1 / condition, width) @ bases[1].T * tokens**0.5


def related(*, condition=10.0, tokens=N):
    """Two layers of different widths, far from centred; the second knows some of the first."""
    x_ND = layer(tokens, D, condition=condition, seed=0)
    y_NE = layer(tokens, E, condition=condition, seed=2) + 0.5 * x_ND @ normal(D, E, seed=4)
    return x_ND + np.linspace(-3, 5, D), y_NE - 2


def streamed(*sides_ND, sizes=(1, 100, 1, 31), **options):
    """Moments of the sides, added in batches of these sizes, again and again."""
    moments = Moments(**options)
    start = 0
    while start < len(sides_ND[0]):
        for size in sizes:
            if start < len(sides_ND[0]):
                moments.add(*(side_ND[start : start + size] for side_ND in sides_ND))
                start += size
    return moments


def differences(x_ND, y_NE, moments):
    """What each measure gives for the moments' sides 0 and 1, both ways, less what it gives in memory."""
    sides = moments.side(0), moments.side(1)
    return {
        name: max(abs(measure(*sides) - measure(x_ND, y_NE)), abs(measure(*sides[::-1]) - measure(y_NE, x_ND)))
        for name, measure in MEASURES.items()
    }


# The same numbers as in memory ----------------------------------------------------------------------


CASES = {
    "well conditioned": related(),
    "condition 1e3": related(condition=1e3),
    "float32": tuple(z.astype(np.float32) for z in related()),
    "far from 0": tuple(z + 1e6 for z in related()),
    "large": tuple(z * 1e60 for z in related()),
    "small": tuple(z * 1e-60 for z in related()),
    "integers": tuple((10 * z).astype(np.int64) for z in related()),
    "one feature": (related()[0][:, :1], related()[1]),
    "as wide as moments go at once": related(tokens=2048 + 2048 + 7),
}


@pytest.mark.parametrize("case", CASES)
def test_moments_give_what_matrices_give_in_either_order(case):
    x, y = CASES[case]
    found = differences(x, y, streamed(x, y, sizes=(1, 100, 1, 31, 3000)))
    assert found == pytest.approx(dict.fromkeys(MEASURES, 0), abs=PROMISED)


@pytest.mark.parametrize("sizes", [(1,), (2, 3), (N,), (299, 1), (1, 299)])
def test_batches_of_any_sizes_give_the_same(sizes):
    x, y = related(condition=1e3)
    found = differences(x, y, streamed(x, torch.from_numpy(y), sizes=sizes))
    assert found == pytest.approx(dict.fromkeys(MEASURES, 0), abs=PROMISED)


def test_dependent_constant_and_repeated_features_are_no_directions():
    x, y = related()
    low_rank = x[:, :2] @ normal(2, D, seed=5) + 3
    held_twice = np.c_[x, x[:, :3], np.full((N, 2), 0.1), x[:, :1] + x[:, 1:2]]
    for left in (low_rank, held_twice):
        moments = streamed(left, y)
        found = differences(left, y, moments)
        # The compatible weights depend on signs of singular vectors that dependent features leave open.
        assert found | {"pwcca_repo": 0} == pytest.approx(dict.fromkeys(MEASURES, 0), abs=PROMISED)
        assert cca(moments.side(0), moments.side(0)) == pytest.approx(1, abs=PROMISED)
    assert len(streamed(low_rank, y).side(0).principal.singular_K) == 2
    assert len(streamed(held_twice, y).side(0).principal.singular_K) == D


def test_golden_values_of_public_code_hold_for_batches():
    random = np.random.RandomState(1337)
    x_ND = random.randn(100, 10)
    y_ND = random.randn(100, 10) + x_ND
    x, y = map(streamed(x_ND, y_ND, sizes=(7,)).side, (0, 1))
    found = [cca(x, y), pwcca(x, y), pwcca(y, x), pwcca(x, y, weights="svcca_repo"), svcca(x, y, variance=0.9)]
    assert found == pytest.approx([0.731014, 0.734668, 0.736841, 0.736982, 0.705765], abs=1e-6)  # six places
    assert [linear_cka(x, y), debiased_cka(x, y)] == pytest.approx([0.55761, 0.51346], abs=1e-5)  # five places
    assert [procrustes(x, y), effective_rank(y)] == pytest.approx([0.726285, 9.844481], abs=1e-6)


def test_what_a_side_knows_equals_loops_over_tokens():
    x, y = (z[:20] for z in related())
    sides = [streamed(x, y, sizes=(3, 1)).side(i) for i in (0, 1)]
    cross, lengths, squares = np.zeros((D, E)), 0.0, [0.0, 0.0]
    for token in range(20):
        a, b = x[token] - x.mean(0), y[token] - y.mean(0)
        cross += np.outer(a, b)
        lengths += sum(a**2) * sum(b**2)
        squares = [squares[0] + sum(a**2), squares[1] + sum(b**2)]
    scale = 1 / np.sqrt(squares)  # sides are scaled to a sum of squares of 1
    assert sides[0].cross(sides[1]).numpy() == pytest.approx(cross * scale[0] * scale[1], abs=1e-12)  # rounding
    assert sides[1].cross(sides[0]).numpy() == pytest.approx(cross.T * scale[0] * scale[1], abs=1e-12)
    assert sides[0].lengths_with(sides[1]).item() == pytest.approx(lengths * (scale[0] * scale[1]) ** 2, abs=1e-12)
    assert sides[0].mean_D.numpy() == pytest.approx(scale[0] * x.mean(0), abs=1e-12)
    for z, side in zip((x, y), sides, strict=True):
        kept = side.principal.factor_KD
        z = (z - z.mean(0)) / np.linalg.norm(z - z.mean(0))
        assert (kept.T @ kept).numpy() == pytest.approx(z.T @ z, abs=1e-12)
        assert side.squared_length == 1
        assert (len(side), side.width) == z.shape


def test_another_pairing_of_tokens_changes_the_similarities():
    x, y = related()
    shuffled = y[np.random.default_rng(0).permutation(N)]
    found = differences(x, y, streamed(x, shuffled))
    of_pairs = set(MEASURES) - {"effective_rank", "participation_ratio"}
    assert all(found[name] > 1e-3 for name in of_pairs)


def test_precision_falls_with_the_square_of_a_directions_share_until_it_is_cut_off():
    h = np.linalg.qr(np.c_[np.ones(500), normal(500, 4, seed=0)])[0][:, 1:]
    y = h[:, [0, 1, 3]] + 0.5 * h[:, [2, 2, 2]]
    for share, error in ((1e-3, 1e-9), (1e-4, 1e-7), (1e-5, 1e-5)):
        x = h[:, :3] * [1, 1, share] @ np.linalg.qr(normal(3, 3, seed=1))[0]
        assert cca(*map(streamed(x, y).side, (0, 1))) == pytest.approx(cca(x, y), abs=error)  # 10 x 1e-16 / s^2
    for share in (0.9e-6, 1e-8, 0.0):
        x = h[:, :3] * [1, 1, share]
        assert cca(*map(streamed(x, y).side, (0, 1))) == pytest.approx(cca(h[:, :2], y), abs=PROMISED)


# Memory, pairs, parts -------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_tokens():
    x, y = related(tokens=5000)
    few, many = streamed(x[:10], y[:10]), streamed(x, y)
    assert len(pickle.dumps(many)) < len(pickle.dumps(few)) + 8  # the count has more digits


def test_only_the_named_pairs_are_kept_and_cost_memory():
    sides = [layer(400, 40, condition=10.0, seed=seed) for seed in range(5)]
    every, neighbours = streamed(*sides), streamed(*sides, pairs=[(0, 1), (2, 1), (1, 2), (3, 4), (2, 4)])
    for i, j in ((0, 1), (1, 0), (1, 2), (2, 1), (4, 3), (2, 4), (3, 3)):
        for measure in (pwcca, debiased_cka):
            found = measure(neighbours.side(i), neighbours.side(j))
            assert found == pytest.approx(measure(every.side(i), every.side(j)), abs=1e-12)  # rounding
    assert complaint(procrustes, neighbours.side(3), neighbours.side(1)) == (
        "Procrustes needs sides 3 and 1, but these Moments do not keep that pair; name it in `pairs`."
    )
    assert complaint(procrustes, neighbours.side(0), neighbours.side(2)) == (
        "Procrustes needs sides 0 and 2, but these Moments do not keep that pair; name it in `pairs`."
    )
    matrices = (len(pickle.dumps(every)) - len(pickle.dumps(neighbours))) / (8 * 40**2)
    assert matrices == pytest.approx(15 - 9, abs=0.1)  # five sides and ten pairs, or four


def test_parts_of_a_text_add_up_to_it_and_one_may_be_left_out():
    x, y = related()
    first = streamed(x[:90], y[:90])
    parts = [first] + [
        streamed(x[part], y[part], origin=first.origin) for part in (slice(90, 91), slice(91, 200), slice(200, N))
    ]
    whole = reduce(add, parts)
    assert [len(part) for part in (*parts, whole)] == [90, 1, 109, 100, N]
    assert max(differences(x, y, whole).values()) < PROMISED
    assert max(differences(x[90:], y[90:], whole - parts[0]).values()) < PROMISED
    assert max(differences(np.r_[x[:91], x[200:]], np.r_[y[:91], y[200:]], whole - parts[2]).values()) < PROMISED
    assert max(differences(x[:90], y[:90], first).values()) < PROMISED  # as it was
    whole.add(x[:10], y[:10])
    assert max(differences(np.r_[x, x[:10]], np.r_[y, y[:10]], whole).values()) < PROMISED
    empty = Moments(origin=first.origin)
    assert len(empty) == 0
    assert max(differences(x[:90], y[:90], first - empty + empty).values()) < PROMISED


def test_moments_that_differ_in_pairs_or_origin_are_not_added_up():
    x, y = related()
    first = streamed(x, y)
    message = (
        "Only Moments with the same pairs and the same origin can be added or subtracted; create the second as "
        "Moments(pairs=..., origin=first.origin)."
    )
    for other in (
        streamed(x[1:], y[1:]),
        streamed(x, y, pairs=[(0, 1)], origin=first.origin),
        streamed(x, origin=first.origin[:1]),
        streamed(x[:, :3], y, origin=[first.origin[0][:3], first.origin[1]]),
    ):
        assert complaint(lambda other=other: first + other) == message
        assert complaint(lambda other=other: first - other) == message
    more = streamed(x, y, origin=first.origin)
    more.add(x, y)
    assert complaint(lambda: first - more) == (
        "Moments of 600 tokens cannot be subtracted from Moments of 300 tokens; subtract a part from the whole."
    )


def test_the_origin_is_near_the_means_of_the_first_tokens_and_any_near_one_will_do():
    x, y = related()
    moments = streamed(x, y, sizes=(50,))
    assert moments.origin[0].numpy() == pytest.approx(x[:50].mean(0), abs=1e-12)  # rounding
    constant = streamed(np.full((N, 3), 0.9), y, sizes=(77,))
    assert (constant.origin[0] == 0.9).all()  # exactly, or a constant feature would be noise
    near = [torch.from_numpy(z.mean(0) + 2 * z.std(0)) for z in (x, y)]
    given = streamed(x, y, origin=near)
    near[1] += 1  # the caller's own
    assert max(differences(x, y, given).values()) < PROMISED


def test_what_was_made_in_inference_mode_goes_on_outside_of_it():
    x, y = (torch.from_numpy(z) for z in related())
    with torch.inference_mode():
        moments = Moments()
        moments.add(x[:10] * 1, y[:10] * 1)
        total = moments + moments
    for sums in (moments, total):
        sums.add(x.clone().requires_grad_(), y)
    assert len(moments) == N + 10
    x, y = torch.cat([x[:10], x]), torch.cat([y[:10], y])
    assert max(differences(x, y, moments).values()) < PROMISED


def test_batches_stay_as_they_are():
    x, y = related()
    read_only = x.copy()
    read_only.flags.writeable = False
    moments = streamed(read_only[::-1], np.asfortranarray(y[::-1]))
    assert np.array_equal(read_only, related()[0])
    assert np.array_equal(y, related()[1])
    assert max(differences(x, y, moments).values()) < PROMISED


@pytest.mark.gpu
def test_the_same_on_a_gpu():
    x, y = related(condition=1e3)
    moments = streamed(torch.from_numpy(x).cuda(), y)
    assert moments.origin[0].is_cuda
    assert max(differences(x, y, moments).values()) < PROMISED
    part = streamed(x, y, origin=[vector_D.cpu() for vector_D in moments.origin])
    assert max(differences(x, y, moments + part - part).values()) < PROMISED
    sides = Side.of(torch.from_numpy(x).cuda()), Side.of(torch.from_numpy(y).cuda())
    for measure in MEASURES.values():
        assert measure(*sides) == pytest.approx(measure(x, y), abs=PROMISED)


# Refusals --------------------------------------------------------------------------------------------


def test_unfit_batches_are_refused_and_leave_nothing_behind():
    x, y = related()
    moments = streamed(x, y)
    before = pwcca(moments.side(0), moments.side(1))

    def refused(*batch):
        return complaint(moments.add, *batch)

    for value in ("nan", "inf", "-inf"):
        holed = np.tile(y, (10, 1)).astype(np.float32)
        holed[2500, 3] = float(value)  # after a block of good tokens
        assert refused(np.tile(x, (10, 1)), holed) == (
            f"side 1 must be finite, but the batch has {value} at row 2500, column 3; check whether the run "
            "diverged or padding was kept."
        )
        holed = torch.from_numpy(x).clone()
        holed[17, 2] = float(value)
        assert refused(holed, y) == (
            f"side 0 must be finite, but the batch has {value} at row 17, column 2; check whether the run "
            "diverged or padding was kept."
        )
    assert refused(-1e71 * x, y) == (
        f"side 0 has values up to {1e71 * np.abs(x).max():.3g}, which is too large for sums of fourth powers; "
        "divide it by its largest absolute value."
    )
    assert refused(x, np.full((N, E), -2e70)) == (
        "side 1 has values up to 2e+70, which is too large for sums of fourth powers; divide it by its largest "
        "absolute value."
    )
    assert refused(x, y[1:]) == (
        "All sides of Moments must have the same tokens, but they have 300, 299 rows; capture all sides from "
        "the same token occurrences, in the same order."
    )
    message = (
        "The sides of these Moments have the widths 7, 5, but those of the batch have {}; "
        "make new Moments for another encoder."
    )
    assert refused(x, y[:, 1:]) == message.format("7, 4")
    assert refused(x) == message.format("7")
    assert refused() == message.format("none")
    message = (
        "side {} must be a matrix of tokens by features, but its shape is {}; give one row for each token, "
        "without padding."
    )
    assert refused(x, y[:0]) == message.format(1, "(0, 5)")
    assert refused(x[0], y) == message.format(0, "(7,)")
    assert refused(x, torch.from_numpy(y)[None]) == message.format(1, "(1, 300, 5)")
    assert refused(x, y * 1j) == "side 1 must hold real numbers, but its type is complex128."
    assert refused(x, np.full((N, E), "a")) == "side 1 must hold real numbers, but its type is <U1."
    assert refused(x, moments.side(1)) == (
        "side 1 must be a matrix of tokens by features, but is a MomentSide; give the matrix itself."
    )
    assert len(moments) == N
    assert pwcca(moments.side(0), moments.side(1)) == before


def test_sides_that_are_not_there_are_refused():
    x, y = related()
    moments = streamed(x, y)
    message = "There is no side {}: the sides are 0 to 1."
    assert complaint(moments.side, 2) == message.format(2)
    assert complaint(moments.side, -1) == message.format(-1)
    assert complaint(Moments().side, 0) == ("These Moments have neither origin nor tokens yet; add a batch first.")
    assert complaint(lambda: Moments().origin) == complaint(Moments().side, 0)
    assert complaint(Moments(origin=moments.origin).side, 0) == "These Moments hold no tokens; add a batch first."
    assert complaint((moments - moments).side, 0) == "These Moments hold no tokens; add a batch first."
    assert complaint(Moments().add) == "Moments need at least one side; give a matrix for each layer."
    assert complaint(Moments, origin=[]) == "Moments need at least one side; give a matrix for each layer."
    message = "`pairs` names side {}, but the sides are 0 to 1; name existing sides."
    assert complaint(Moments(pairs=[(0, 1), (4, 2), (3, 1)]).add, x, y) == message.format(2)
    assert complaint(Moments, pairs=[(0, -1)], origin=moments.origin) == message.format(-1)
    assert complaint(Moments, origin=[x[0], y]) == (
        "origin 1 must be a vector with a number for each feature, but its shape is (300, 5)."
    )
    assert complaint(Moments, origin=[x[0] * np.nan]) == (
        "origin 0 must be finite, but 7 of 7 values are NaN or infinity, first at row 0, column 0; check "
        "whether the run diverged or padding was kept."
    )


def test_only_sides_that_were_added_up_together_are_compared():
    x, y = related()
    moments = streamed(x, y)
    assert complaint(linear_cka, moments.side(0), streamed(x, y).side(1)) == (
        "linear CKA compares sides of the same Moments, but x and y belong to different Moments; add the "
        "batches of both to the same Moments."
    )
    message = (
        "PWCCA compares two matrices, or two sides of the same Moments, but got a matrix and a side; add both "
        "to the same Moments."
    )
    for mixture in ((moments.side(0), y), (x, moments.side(1)), (Side.of(x), moments.side(1))):
        assert complaint(pwcca, *mixture) == message
    left, right = moments.side(0), moments.side(1)
    linear_cka(left, right)
    moments.add(x, y)
    message = "Side {} was read when there were 300 tokens, but now there are 600; read the side again."
    assert complaint(linear_cka, left, moments.side(1)) == message.format(0)
    assert complaint(linear_cka, moments.side(0), right) == message.format(1)
    assert complaint(cca, left, right) == message.format(0)
    unused = streamed(x, y)
    side = unused.side(1)
    unused.add(x, y)
    for measure in (effective_rank, participation_ratio):
        assert complaint(measure, side) == message.format(1)
    assert linear_cka(moments.side(0), moments.side(1)) == pytest.approx(linear_cka(x, y), abs=PROMISED)


@pytest.mark.parametrize(
    "measure", [rsa, rbf_cka, lambda x, y: minibatch_cka(x, y, batch_size=50)], ids=["rsa", "rbf", "minibatch"]
)
def test_measures_that_need_the_tokens_refuse_moments(measure):
    x, y = related()
    moments = streamed(x, y)
    message = "{} must be a matrix of tokens by features, but is a MomentSide; give the matrix itself."
    assert complaint(measure, moments.side(0), moments.side(1)) == message.format("x")
    assert complaint(measure, x, moments.side(1)) == message.format("y")


def test_sides_that_hardly_vary_are_refused():
    x, y = related()
    moments = streamed(x, np.full((N, 3), 0.1), sizes=(50,))
    for measure, label in ((pwcca, "PWCCA"), (debiased_cka, "debiased CKA"), (procrustes, "Procrustes")):
        assert complaint(measure, moments.side(0), moments.side(1)) == (
            f"{label} is undefined: all 300 rows of y are equal; check whether the run has collapsed."
        )
    assert complaint(participation_ratio, moments.side(1)) == (
        "participation ratio is undefined: all 300 rows of x are equal; check whether the run has collapsed."
    )
    message = (
        "Side 1 varies too little for precise sums: its means are more than 10 standard deviations from the "
        "origin; give an `origin` near the means."
    )
    deviation_E = np.linalg.norm(y.std(0)) * np.eye(E)[2]  # of all features together, in one direction
    near, far = ([x.mean(0), y.mean(0) + count * deviation_E] for count in (9.9, 10.1))
    assert max(differences(x, y, streamed(x, y, origin=near)).values()) < PROMISED
    assert complaint(streamed(x, y, origin=far).side, 1) == message
    assert complaint(streamed(x, np.full((N, 3), 0.1), origin=[x[0], np.zeros(3)]).side, 1) == message
    assert complaint(streamed(x, 1e-75 * (y - y.mean(0)), origin=[x[0], np.zeros(E)]).side, 1) == (
        "The values of side 1 vary too little for precise sums (by less than 1e-70); divide them by the "
        "largest absolute value."
    )


def test_tokens_of_all_batches_together_decide_whether_there_are_enough():
    x, y = normal(100, 4, seed=0), normal(100, 10, seed=1)

    def sides(tokens):
        return map(streamed(x[:tokens], y[:tokens], sizes=(7,)).side, (0, 1))

    for measure, label in ((cca, "CCA"), (svcca, "SVCCA"), (pwcca, "PWCCA")):
        assert complaint(measure, *sides(49)) == (
            f"{label} needs at least 5 tokens per feature, which is 50 at a width of 10, but got 49; "
            "give more tokens or fewer features."
        )
        for tokens in (50, 99):
            warning = (
                f"{label} of {tokens} tokens at a width of 10: with fewer than 10 tokens per feature, most of a "
                "weak similarity is chance; show its floor beside it."
            )
            with pytest.warns(UserWarning, match=f"^{re.escape(warning)}$"):
                measure(*sides(tokens))
        measure(*sides(100))  # a warning would be an error here
    message = "{} needs at least {} tokens, got {}; capture more sentences."
    assert complaint(debiased_cka, *sides(3)) == message.format("debiased CKA", 4, 3)
    assert complaint(procrustes, *sides(1)) == message.format("Procrustes", 2, 1)
    assert complaint(effective_rank, next(sides(1))) == message.format("effective rank", 2, 1)
