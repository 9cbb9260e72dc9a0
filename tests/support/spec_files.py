"""A tiny spec file."""

import json


def write_spec(folder, text="", **changes):
    spec = {
        "name": "tried",
        "version": 1,
        "data": {"kind": "files", "train": "train.tsv", "validation": "validation.tsv", "target": "target",
                 "vocab_size": 320, "max_length": 64},
        "encoder": {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2},
        "training": {"max_steps": 4, "tokens_per_step": 128},
        "arms": {"mlm": {"objective": {"kind": "masked_lm"}}, "mt": {"objective": {"kind": "translation"}}},
        "seeds": [0, 1],
        "measures": ["validation"],
    }  # fmt: skip
    path = folder / "spec.yaml"
    path.write_text(text or json.dumps(spec | changes))
    return path
