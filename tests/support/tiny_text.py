"""A tiny text, settings of runs on it, and run folders."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ("the a dog cat bird fish tree house sees likes hears small old green often here " * 2).split()


SECTIONS: dict[str, Any] = {
    "encoder": {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "dropout": 0.1},
    "training": {"max_steps": 12, "tokens_per_step": 128, "learning_rate": 1e-3, "validate_every": 6},
}


def sentences(count: int, *, seed: int) -> list[str]:
    """Sentences of 3 to 12 words drawn with a Zipf law, with a few made-up words so that pieces differ."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    made = []
    for _ in range(count):
        words = list(rng.choice(WORDS, size=rng.integers(3, 13), p=weights / weights.sum()))
        words.append("".join(rng.choice(list("abcdefghijklmnop"), size=rng.integers(3, 9))))
        made.append(" ".join(words))
    return made


def write_pairs(path: Path, count: int, *, seed: int) -> None:
    """Sentences and as their translation the same words backwards."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["text", "target"])
        writer.writerows((text, " ".join(reversed(text.split()))) for text in sentences(count, seed=seed))


def settings(kind: str = "masked_lm", *, seed: int = 0, **sections: Any) -> Any:
    """RunSettings on the tiny text; sections are laid over the tiny defaults."""
    from lightning_modules.config import RunSettings

    objective: dict[str, Any] = {"kind": kind}
    if kind == "translation":
        objective["decoder"] = {"num_hidden_layers": 1}
    data = {"kind": "files", "train": "train.tsv", "validation": "validation.tsv", "target": "target"}
    return RunSettings.model_validate(
        {
            "data": data | {"vocab_size": 320, "max_length": 64} | sections.get("data", {}),
            "encoder": SECTIONS["encoder"] | sections.get("encoder", {}),
            "objective": objective | sections.get("objective", {}),
            "training": SECTIONS["training"] | sections.get("training", {}),
            "seed": seed,
        }
    )


def run_folder(run: Any, tokens: Any, *, out: Path, name: str = "run-s0-0000000000") -> Any:
    """Make a run folder in an output root, its token store in place."""
    from lightning_modules.files import write_json
    from lightning_modules.training.run_directory import RunDirectory

    path = out / "runs" / name
    path.mkdir(parents=True)
    link = out / "tokens"
    if not link.exists():
        link.symlink_to(tokens.folder.parent)
    described = {"run_id": name[-10:], "arm": "run", "seed": run.seed, "tokens": tokens.address}
    write_json(path / "run.json", described | {"settings": run.model_dump(mode="json")})
    return RunDirectory(path)
