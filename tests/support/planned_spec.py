"""A tiny spec for plans, as a file and as an experiment on disk."""

import json

from ablations.runs.workspace import Workspace

SPEC = {
    "name": "it",
    "version": 1,
    "data": {"kind": "language", "train": 300, "validation": 100, "test": 10, "vocab_size": 256},
    "encoder": {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2},
    "objective": {"kind": "masked_lm"},
    "training": {"max_steps": 4, "tokens_per_step": 128},
    "arms": {"a": {}, "b": {"training": {"max_steps": 2}}},
    "seeds": [0, 1],
}


def write(folder, **changes):
    """Write the spec into a folder, and return its path."""
    path = folder / "it.yaml"
    path.write_text(json.dumps(SPEC | changes), encoding="utf-8")
    return path


def opened(spec, **options):
    return Workspace.open(spec, out=spec.parent / "out", data_root=spec.parent, **options)


def workspace_of(folder, **changes):
    """Return the experiment of the spec in a folder, with changes."""
    return opened(write(folder, **changes))
