"""Which numbers a table of results can hold: metrics of each measure, and whether they are of layers. No torch.

For what is asked of a table before there is one, as in a file of claims. A measure that gets a new metric says so
here; a test compares the list with the measures and with the metrics that a page names.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_RANKED = ("recall_at_1", "recall_at_20", "reciprocal_rank", "spearman")
_OF_TEXT = ("copied", "distinct_1", "distinct_2", "fluency", "length")
_OF_TASKS = ("score", "accuracy", "spearman", "exact_match", "shuffled_score")

METRICS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "layer_change": ("pwcca", "debiased_cka"),
        "token_information": ("cross_fitted", "plug_in"),
        "run_distance": ("pwcca", "debiased_cka"),
        "neighbours": (
            *("same_token", "position_distance", "same_left", "same_right", "same_sense"),
            *("same_relation", "same_left_part", "same_right_part"),
        ),
        "geometry": (*("anisotropy", "self_similarity", "effective_rank", "participation_ratio", "update_norm"),),
        "influence": ("pwcca",),
        "pictures": ("x", "y"),
        "structural_probe": ("uuas",),
        "probing": ("accuracy", "selectivity", "code_length", "compression", "mix_weight"),
        "retrieval": (
            *(metric + of for of in ("", "_centred", "_tfidf") for metric in _RANKED),
            "recall_at_1_reranked",
        ),
        "validation": (
            *("loss", "perplexity", "objective_loss", "bleu", "chrf", "pair_accuracy"),
            *("observed_clean", "observed_replaced", "recovered_replaced"),
        ),
        "minimal_pairs": (
            *("accuracy", "accuracy_within_word", "accuracy_left_to_right", "accuracy_whole_words"),
            *("covered", "whole_words"),
        ),
        "frozen_features": _OF_TASKS,
        "fine_tuning": _OF_TASKS,
        "baselines": (
            *("majority", "tfidf", "word", "word_window", "place", "beside_question"),
            *("probed_majority", "probed_word", "probed_word_window"),
        ),
        "parsing": ("uuas", "uuas_adjacent", "uuas_random", "uuas_minus_adjacent", "conditional_information"),
        "conditional_independence": ("joint_minus_chain", "joint", "chain"),
        "generation": (*_OF_TEXT, *(f"{metric}_of_text" for metric in _OF_TEXT)),
        "learning": ("gain", "loss"),
        "corruption": ("collision_rate", "hidden", "masked", "kept", "random"),
    }
)
"""By measure."""

LOGGED: Final = ("learning", "corruption")
"""Measures that no spec asks for: they are read of a run's log where `validation` is measured."""

OF_LAYERS: Final = frozenset(
    {
        *("layer_change", "token_information", "run_distance", "neighbours", "geometry", "influence"),
        *("pictures", "structural_probe"),
    }
)
"""Measures whose every number is of a layer, or of two."""

PARTLY_OF_LAYERS: Final = frozenset(("probing", "retrieval"))
"""Measures that have numbers of layers and others."""

OF_TASKS: Final = frozenset(("minimal_pairs", "probing", "frozen_features", "fine_tuning", "baselines"))
"""Measures whose every number is of a task of the catalogue, or of a part of one."""

OF_TREEBANKS: Final = frozenset(("structural_probe", "parsing"))
"""Measures whose every number is of a treebank."""
