"""Every mistake in a grid is one sentence, in the right place."""

import pytest

from tests.support.wrong_specs import SPEC, cases, edited

GRID = """\
grid:
  base: mlm
  axes:
    objective.masking.ratio: [0.05, 0.15]
    encoder.norm: [post, pre]
"""

GRIDS = {
    "base: mlm": {
        "base: mlmm": '14:9: grid.base must be the name of an arm, but is "mlmm"; did you mean mlm?',
        "base: clm": "16:5: objective.masking.ratio is not a setting of clm",
    },
    "  base: mlm\n": {
        "": "13:1: grid.base is missing (name of the arm to vary)",
    },
    "masking.ratio": {
        "masking.rate": (
            "16:5: objective.masking.rate is not a setting of mlm; did you mean objective.masking.ratio?"
        ),
    },
    "encoder.norm: [post, pre]": {
        "seed: [0, 1]": "17:5: seeds are replicates, so a grid cannot vary them; list them under seeds",
        "objective.masking: [{ratio: 1}]": (
            "17:5: objective.masking overlaps with objective.masking.ratio, which the grid also varies; vary only "
            "one of them"
        ),
        "encoder.hidden_size: [32, 30]": (
            "17:31: arm mlm,ratio=0.05,hidden_size=30: encoder.num_attention_heads must divide hidden_size, but "
            "hidden_size = 30 is not a multiple of 4; change one of the two"
        ),
    },
    "[post, pre]": {
        "[]": "17:19: grid.axes.encoder.norm must not be empty",
        "post": '17:19: grid.axes.encoder.norm must be a list, but is the text "post"; write [post]',
    },
    "[0.05, 0.15]": {
        "[1, 1.0]": "16:34: grid.axes.objective.masking.ratio has 1.0 twice; give it once",
        "[0.05, 1.5]": (
            "16:37: objective.masking.ratio must be less than or equal to 1, but is 1.5; lower it (1.5% is "
            "written 0.015)"
        ),
        f"[{', '.join(str(n / 20_000) for n in range(1, 10_002))}]": (
            "13:1: grid generates 10001 x 2 arms, but at most 10000 are allowed; vary fewer values"
        ),
    },
    "  axes:\n    objective.masking.ratio: [0.05, 0.15]\n    encoder.norm: [post, pre]\n": {
        "  axes: {}\n": (
            "13:1: grid must have axes or zip, or it generates no arm; write it as in `axes: "
            "{objective.masking.ratio: [0.15, 0.4]}`"
        ),
        "  zip: [encoder.norm]\n": (
            "15:8: grid.zip must be a mapping of keys, but is a list; write it as in `{encoder.hidden_size: [64, "
            "128], encoder.num_attention_heads: [2, 4]}`"
        ),
    },
    "  axes:\n    objective.masking.ratio: [0.05, 0.15]\n": {
        "  zip:\n    objective.masking.ratio: [0.05, 0.15, 0.4]\n": (
            "16:5: grid.zip must have lists of equal length, but objective.masking.ratio has 3 and encoder.norm "
            "has 2; write equally many values for each, or vary them under axes"
        ),
    },
    "[post, pre]\n": {
        "[post, pre]\n  exclude: {encoder.norm: pre}\n": (
            "18:12: grid.exclude must be a list, but is a mapping; write it as in `[{objective.masking.ratio: "
            "0.8, encoder.hidden_size: 64}]`"
        ),
        "[post, pre]\n  exclude: [{encoder.nrm: pre}]\n": (
            "18:14: the grid does not vary encoder.nrm; did you mean encoder.norm?"
        ),
        "[post, pre]\n  exclude: [{training.max_steps: 3}]\n": (
            "18:14: the grid does not vary training.max_steps; it varies objective.masking.ratio and encoder.norm"
        ),
        "[post, pre]\n  exclude: [{objective.masking.ratio: 0.5}]\n": (
            "18:39: the grid never makes objective.masking.ratio 0.5, only 0.05 and 0.15"
        ),
        "[post, pre]\n  exclude: [{}]\n": (
            "18:13: an entry of grid.exclude is empty, so it would exclude every combination; name settings with "
            "a value each, as in `{objective.masking.ratio: 0.8}`"
        ),
        "[post, pre]\n  exclude: [{encoder.norm: pre}, {encoder.norm: post}]\n": (
            "18:3: grid.exclude excludes every combination; remove an entry"
        ),
    },
    "    encoder.norm: [post, pre]\n": {
        (
            "  zip: {encoder.norm: [post, pre], training.max_steps: [20, 30]}\n  exclude: [{encoder.norm: pre, "
            "training.max_steps: 20}]\n"
        ): (
            "18:13: an entry of grid.exclude matches no arm, because grid.zip never pairs these values; remove it"
        ),
    },
    "masking.ratio: [0.05, 0.15]": {
        "masking: [{ratio: 0.15}, {ratio: '0.15'}]": (
            "13:1: grid generates 2 arms with the name mlm,masking=ratio-0.15,norm=post; write them under arms, "
            "each with a name of its own\n13:1: grid generates 2 arms with the name "
            "mlm,masking=ratio-0.15,norm=pre; write them under arms, each with a name of its own\n16:48: "
            'objective.masking.ratio must be a valid number, but is the text "0.15"; write 0.15'
        ),
    },
}


@pytest.mark.parametrize(("old", "new", "expected"), cases(GRIDS))
def test_one_mistake_in_a_grid_is_one_sentence(wrong, old, new, expected):
    assert wrong(SPEC + edited(old, new, GRID)) == expected.split("\n")


def test_a_generated_name_that_is_taken_is_refused(wrong):
    spec = edited("mlm: {}\n", "mlm: {}\n  mlm,ratio=0.15,norm=pre: {}\n") + GRID
    assert wrong(spec) == [
        "14:1: grid generates an arm mlm,ratio=0.15,norm=pre, but arms has an arm of this name; rename the arm "
        "under arms"
    ]


def test_a_generated_name_must_fit_a_folder(wrong):
    name = "m" * 190
    spec = edited("mlm: {}", f"{name}: {{}}") + edited("base: mlm", f"base: {name}", GRID)
    assert wrong(spec) == [
        "13:1: grid generates names of up to 211 characters, but the name of a folder has at most 200; vary "
        "fewer settings, or write these arms under arms"
    ]
