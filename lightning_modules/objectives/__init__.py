"""Objectives: from a run's settings to the module that is trained."""

from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Tokens
from lightning_modules.objectives.masked_lm import MaskedLM, Mixture
from lightning_modules.objectives.objective import Objective
from lightning_modules.objectives.replaced_token import ReplacedToken
from lightning_modules.objectives.skip_gram import SkipGram
from lightning_modules.objectives.translation import Translation
from lightning_modules.objectives.unmasked_lm import CausalLM, NaiveBidirectionalLM, PermutationLM


def build(run: RunSettings, tokens: Tokens) -> Objective:
    """Return the run's objective on a fresh encoder, with the initial weights of its seed."""
    objective: Objective
    match run.objective.kind:
        case "masked_lm":
            objective = MaskedLM(run, vocab_size=tokens.vocab_size)
        case "causal_lm":
            objective = CausalLM(run, vocab_size=tokens.vocab_size)
        case "translation":
            assert tokens.target_vocab_size is not None
            objective = Translation(run, vocab_size=tokens.vocab_size, target_vocab_size=tokens.target_vocab_size)
        case "mixture":
            objective = Mixture(run, vocab_size=tokens.vocab_size)
        case "replaced_token":
            objective = ReplacedToken(run, vocab_size=tokens.vocab_size)
        case "permutation_lm":
            objective = PermutationLM(run, vocab_size=tokens.vocab_size)
        case "naive_bidirectional_lm":
            objective = NaiveBidirectionalLM(run, vocab_size=tokens.vocab_size)
        case "skip_gram":
            objective = SkipGram(run, vocab_size=tokens.vocab_size, counts_V=tokens.source_counts_V)
    objective.initialise()
    return objective
