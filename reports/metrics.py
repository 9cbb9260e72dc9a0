"""What each metric is called on a page: its panel, its axis, its floor, and to how many digits it is written."""

from typing import NamedTuple

from reports.numbers import MINUS
from reports.task_names import metric_words

CCA_MEASURES = ("layer_change", "influence", "run_distance")
"""Measures whose similarities chance inflates where there are few tokens per dimension."""

TASK_MEASURES = (
    *("fine_tuning", "frozen_features", "minimal_pairs", "probing", "structural_probe", "parsing"),
    *("conditional_independence", "retrieval"),
)
"""Measures whose standard errors are over examples rather than over text."""

NEXT_LAYER_METRICS = ("layer_change", "update_norm")
"""Measures or metrics that lead from a layer to the next."""


class Metric(NamedTuple):
    """One way of measuring, in words."""

    title: str
    """Of its panel."""
    axis: str
    """Of the axis of values, with the unit."""
    floor: str
    """What the data of the chance floor are."""
    unit: str = "1"
    digits: int = 3


METRICS = {
    ("learning", "gain"): Metric("Gain over no context", "gain over no context (nats)", "no context", "nats"),
    ("layer_change", "pwcca"): Metric(f"1 {MINUS} PWCCA similarity", f"1 {MINUS} PWCCA", "rows shuffled"),
    ("layer_change", "debiased_cka"): Metric(
        f"1 {MINUS} debiased CKA", f"1 {MINUS} debiased CKA", "rows shuffled"
    ),
    ("token_information", "cross_fitted"): Metric(
        "Cross-fitted estimate", "cross-fitted information (nats)", "labels shuffled", "nats"
    ),
    ("token_information", "plug_in"): Metric(
        "Plug-in estimate", "plug-in information (nats)", "labels shuffled", "nats"
    ),
    ("run_distance", "pwcca"): Metric(f"1 {MINUS} PWCCA similarity", f"1 {MINUS} PWCCA", "rows shuffled"),
    ("run_distance", "debiased_cka"): Metric(
        f"1 {MINUS} debiased CKA", f"1 {MINUS} debiased CKA", "rows shuffled"
    ),
    ("neighbours", "same_token"): Metric("Same token", "share with the same token", "neighbours at random"),
    ("neighbours", "position_distance"): Metric(
        "Distance of positions", "difference of positions (tokens)", "neighbours at random", "tokens", digits=2
    ),
    ("neighbours", "same_left"): Metric(
        "Same token to the left", "share with the same left", "neighbours at random"
    ),
    ("neighbours", "same_right"): Metric(
        "Same token to the right", "share with the same right", "neighbours at random"
    ),
    ("neighbours", "same_relation"): Metric(
        "Same syntactic relation", "share with the same relation", "neighbours at random"
    ),
    ("neighbours", "same_left_part"): Metric(
        "Same syntax to the left", "share with the same left part", "neighbours at random"
    ),
    ("neighbours", "same_right_part"): Metric(
        "Same syntax to the right", "share with the same right part", "neighbours at random"
    ),
    ("neighbours", "same_sense"): Metric("Same sense", "share with the same sense", "neighbours at random"),
    ("geometry", "anisotropy"): Metric("Anisotropy", "mean cosine of two tokens", "states less their mean"),
    ("geometry", "self_similarity"): Metric("Self-similarity", "mean cosine less anisotropy", "tokens shuffled"),
    ("geometry", "effective_rank"): Metric(
        "Effective rank", "effective rank (dimensions)", "columns shuffled", "dimensions", digits=1
    ),
    ("geometry", "participation_ratio"): Metric(
        "Participation ratio", "participation ratio (dimensions)", "columns shuffled", "dimensions", digits=1
    ),
    ("geometry", "update_norm"): Metric("Size of the update", "update / state (ratio of norms)", "rows shuffled"),
    ("influence", "pwcca"): Metric(
        f"1 {MINUS} PWCCA similarity", f"1 {MINUS} PWCCA", "a token beside it", digits=5
    ),
    ("probing", "accuracy"): Metric("Accuracy", "accuracy", "most frequent answer"),
    ("probing", "selectivity"): Metric(
        "Selectivity", "accuracy less that of control task", "most frequent answers"
    ),
    ("probing", "compression"): Metric(
        "Compression", "uniform code / online code", "frequencies of answers", digits=2
    ),
    ("probing", "mix_weight"): Metric("Weight", "share of the learned mix", "equal weights"),
    ("structural_probe", "uuas"): Metric("Undirected edges", "UUAS", "adjacency chain"),
    ("retrieval", "spearman_centred"): Metric("Correlation", "Spearman correlation", "no relation"),
    ("retrieval", "spearman"): Metric("Correlation", "Spearman correlation", "no relation"),
    ("retrieval", "recall_at_1_centred"): Metric("Recall at 1", "recall at 1", "order at random"),
    ("retrieval", "recall_at_1"): Metric("Recall at 1", "recall at 1", "order at random"),
    ("parsing", "uuas"): Metric("Undirected edges", "UUAS", "adjacency chain"),
    ("minimal_pairs", "accuracy"): Metric("Accuracy", "accuracy", "one in two"),
    ("frozen_features", "score"): Metric("Score", "score", "most frequent answer"),
    ("fine_tuning", "score"): Metric("Score", "score", "most frequent answer"),
    ("conditional_independence", "joint_minus_chain"): Metric(
        "Joint less chain", "joint less chain (nats a pair)", "independent tokens", "nats"
    ),
    ("conditional_independence", "joint"): Metric("Joint", "joint log probability (nats)", "chance", "nats"),
    ("conditional_independence", "chain"): Metric("Chain", "log probability by chain (nats)", "chance", "nats"),
    ("pictures", "word"): Metric("By word", "", ""),
    ("pictures", "position"): Metric("By position in the sentence", "", ""),
    ("pictures", "relation"): Metric("By relation", "", ""),
    ("pictures", "sense"): Metric("By sense", "", ""),
}


def named(measure: str, metric: str) -> Metric:
    """The metric's names; its own for one that has no others."""
    return METRICS.get((measure, metric)) or Metric(metric, metric, "chance")


def axis_label(measure: str, metric: str, about: str | None = None) -> str:
    """The label of the axis of values; `about` is another token than the one that is read."""
    label = named(measure, metric).axis
    return f"{about}, {label.replace(' information', '')}" if about else label


def task_axis_label(measure: str, metric: str, task: str | None) -> str:
    """The same for a panel about a task: what `score` is depends on it."""
    return metric_words(task) if metric == "score" else axis_label(measure, metric)


def leads_on(measure: str, metric: str) -> bool:
    """Whether the metric compares a layer with the next."""
    return bool({measure, metric} & set(NEXT_LAYER_METRICS))
