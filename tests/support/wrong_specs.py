"""A spec whose text tests edit, and the problems that loading it reports."""

from typing import get_args

import pytest

from ablations.errors import SpecError
from ablations.spec import load
from ablations.wording import listed
from lightning_modules.config.objectives import OBJECTIVES

SPEC = """\
name: trial
version: 1
question: Which objective?
data: {kind: language}
encoder: {hidden_size: 64, num_attention_heads: 4}
objective: {kind: masked_lm}
training: {max_steps: 20}
arms:
  mlm: {}
  clm: {objective: {kind: causal_lm}}
seeds: [0, 1]
measures: [layer_change]
"""

KINDS = listed([get_args(settings.model_fields["kind"].annotation)[0] for settings in OBJECTIVES])


def cases(sentences):
    """The cases of a table of sentences: by what is replaced, and then by what replaces it."""
    return [(old, new, sentence) for old, edits in sentences.items() for new, sentence in edits.items()]


def edited(old, new, spec=SPEC):
    assert spec.count(old) == 1, f"{old!r} is to be replaced once"
    return spec.replace(old, new)


def problems_of(path, spec):
    """The problems of a spec that is written to a path, as ``line:column: sentence``."""
    path.write_bytes(spec if isinstance(spec, bytes) else spec.encode())
    with pytest.raises(SpecError) as caught:
        load.load(path)
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]
