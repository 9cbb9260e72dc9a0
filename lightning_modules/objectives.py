"""From a run's settings to the module that learns by them."""

from lightning_modules.causal_lm import CausalLM
from lightning_modules.config import RunSettings
from lightning_modules.data.tokens import Tokens
from lightning_modules.masked_lm import MaskedLM
from lightning_modules.objective import Objective
from lightning_modules.translation import Translation


def build(run: RunSettings, tokens: Tokens) -> Objective:
    """The run's objective on a fresh encoder, with the initial weights of its seed."""
    objective: Objective
    match run.objective.kind:
        case "masked_lm":
            objective = MaskedLM(run, vocab_size=tokens.vocab_size)
        case "causal_lm":
            objective = CausalLM(run, vocab_size=tokens.vocab_size)
        case "translation":
            assert tokens.target_vocab_size is not None
            objective = Translation(run, vocab_size=tokens.vocab_size, target_vocab_size=tokens.target_vocab_size)
    objective.initialise()
    return objective
