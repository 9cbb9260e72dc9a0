"""Words of the page: names of metrics, settings and tasks, and the writing of numbers.

A metric has words for its panel, axis and chance level, and a number of digits. Numbers have no more digits
than they carry, and a true minus; an en dash stands for an absent number. Names that the catalogue does not
know are kept.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pandas import Series

from ablations.tasks.datasets import TASKS, Metric, Task, loaded_task
from ablations.wording import listed

ABSENT = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"


def is_absent(value: Any) -> bool:
    """Return whether a number is absent: null or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def anywhere(rows: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Return whether any row of a table has a number under that name, alone or as a mean."""
    values = [row[name]["mean"] if isinstance(row[name], Mapping) else row[name] for row in rows]
    return not all(is_absent(value) for value in values)


def number(value: float | None, digits: int = 2, scale: float = 1) -> str:
    """Return the value times `scale`, with `digits` decimals and commas between thousands: ``1,234.50``. A 0
    has no minus before it; an absent value is an en dash."""
    if is_absent(value):
        return ABSENT
    assert value is not None
    value *= scale
    if math.isinf(value):
        return f"{MINUS}∞" if value < 0 else "∞"
    written = f"{value:,.{digits}f}"
    return written.removeprefix("-") if not written.strip("-0.") else written.replace("-", MINUS)


def number_or_range(value: float | Sequence[float] | None, digits: int = 2, scale: float = 1) -> str:
    """Return a number, or a range of two: ``48.4–51.6``. If both ends look alike, it is one number."""
    ends = value if isinstance(value, Sequence) else [value]
    return "–".join(dict.fromkeys(number(end, digits, scale) for end in ends))


def count(value: float | None) -> str:
    """Return a whole number with commas between thousands."""
    return number(value, 0)


def trillions(value: float | None) -> str:
    """Return the value in 10^12 with two decimals, or with two significant digits if it is below 0.1."""
    if value is None or not 0 < value < 1e11:
        return number(value, 2, 1e-12)
    return number(value, 13 - math.floor(math.log10(value)), 1e-12)


def percent(value: float | None) -> str:
    """Return a share in percent: a whole number without the sign %."""
    return count(None if value is None else 100 * value)


def interval(summary: dict[str, Any], digits: int = 2, scale: float = 1) -> str:
    """Return a mean and half the width of its interval, if there is one, times `scale`: ``1.82 ± 0.05``."""
    if is_absent(summary["mean"]):
        return ABSENT
    mean = number(summary["mean"], digits, scale)
    if is_absent(summary["high"]):
        return mean
    return f"{mean} ± {number(summary['high'] - summary['mean'], digits, scale)}"


def signed_interval(summary: dict[str, Any], digits: int = 2, scale: float = 1) -> str:
    """Return a mean difference with its sign and half the width of its interval, times `scale`:
    ``+0.17 ± 0.03``."""
    written = interval(summary, digits, scale)
    is_zero = not any(digit in "123456789" for digit in written.partition(" ")[0])
    return "+" * (summary["mean"] > 0 and not is_zero) + written


def duration(seconds: float | None) -> str:
    """Return a time in the two largest units that matter: ``57 s``, ``3 min 12 s``, ``2 h 05 min``."""
    if seconds is None or not math.isfinite(seconds):
        return ABSENT
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60:02} min"


def tuning_remark(tuned: Mapping[str, Any]) -> str:
    """Return the reason to doubt the settings that were chosen for an arm; empty if there is none."""
    if tuned["chosen"] is None and tuned["trials"] and not tuned["open"]:
        return "every trial diverged"
    if tuned["open"] or tuned["chosen"] is None:
        return "not tuned yet"
    if tuned["at_edge"]:
        return f"at the edge of what was tried ({listed(tuned['at_edge'], 'and')}): a better value may lie beyond"
    return ""


def spread_sd(row: Mapping[str, Any], column: Mapping[str, Any]) -> str:
    """Return the standard deviation of a row of `spread_tables` with its interval: ``0.012 [0.008, 0.021]``."""
    digits, scale = column["digits"] + 1, column["scale"]
    return _with_interval(*(number(row[name], digits, scale) for name in ("sd", "sd_low", "sd_high")))


def spread_share(row: Mapping[str, Any]) -> str:
    """Return the share of the variance of a row of `spread_tables` with its interval, in percent."""
    return _with_interval(*(percent(row[name]) for name in ("share", "share_low", "share_high")))


def _with_interval(value: str, low: str, high: str) -> str:
    return value if low == ABSENT else f"{value} [{low}, {high}]"


def moment(text: str | None) -> str:
    """Return an ISO 8601 time to the minute, with its zone. Other text stays as it is."""
    if not text:
        return ABSENT
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time:%Y-%m-%d %H:%M} {time.tzname() or ''}".rstrip()


def part_of_whole(part: float | None, whole: float | None) -> str:
    """Return a part and a whole: ``120 / 500``."""
    return f"{count(part)} / {count(whole)}"


SPLIT = "objective.masking.{mask,keep,random}"
"""Settings that count as one decision, as they sum to 1."""

TITLES = {
    "encoder.attention_dropout": "dropout of attention",
    "encoder.attention_window": "window of attention",
    "encoder.embedding.bias": "bias of layer 0",
    "encoder.embedding.norm": "layer norm of layer 0",
    "encoder.embedding.scale": "scaled token embeddings",
    "encoder.feed_forward_dropout": "dropout inside the feed-forward layers",
    "encoder.hidden_size": "width",
    "encoder.initialisation": "initial weights",
    "encoder.intermediate_size": "width inside the feed-forward layers",
    "encoder.layer_norm_epsilon": "epsilon of layer norms",
    "encoder.norm": "place of the layer norm",
    "encoder.norm_kind": "kind of norm",
    "encoder.num_attention_heads": "number of heads",
    "encoder.num_hidden_layers": "number of layers",
    "encoder.positions": "positions",
    "objective.causal": "share of causal LM",
    "objective.decoder.num_hidden_layers": "layers of the decoder",
    "objective.head": "prediction head",
    "objective.label_smoothing": "label smoothing",
    "objective.masking.copies": "number of fixed masks",
    "objective.masking.count": "number of hidden tokens",
    "objective.masking.predict": "predicted share",
    "objective.masking.random_differs": "random token never the original",
    "objective.masking.ratio": "masking ratio",
    "objective.masking.schedule": "schedule of the ratio",
    "objective.masking.select": "what is hidden",
    "objective.pair_loss": "loss on pairs",
    "objective.sees": "what a token sees",
    "objective.token_dropout": "token dropout",
    SPLIT: "corruption split",
    "training.input_format": "input format",
    "training.max_steps": "training steps",
    "training.optimizer": "optimiser",
    "training.schedule": "schedule of the learning rate",
    "training.sentences": "training sentences",
    "training.tokens_per_step": "tokens a step",
    "training.word_order": "word order",
}
"""Titles of settings. A setting that is not here keeps its own name."""

UNITS = {SPLIT: "mask/same/random, %"}
"""Units of a setting's values, if its title does not say them."""

LETTERS = 30
"""Largest number of letters of a value on an axis or in a table. A longer value is cut; the spec has the whole."""
CUT = "…"
"""Mark at the end of a value that was cut."""

NOT_GIVEN = {
    "encoder.attention_window": "no limit",
    "objective.masking.copies": "new ones each time",
    "objective.masking.predict": "as hidden",
    "objective.masking.schedule": "constant",
    "training.sentences": "all",
}
"""Words for a setting without a value."""


class Name(NamedTuple):
    """Name of a setting in words."""

    title: str
    """Title in the middle of a sentence."""
    label: str
    """Label below an axis, with the unit."""


def setting_name(setting: str) -> Name:
    """Return the name of a setting in words; a setting that is not known keeps its own name."""
    title = TITLES.get(setting) or setting.rpartition(".")[2].replace("_", " ")
    return Name(title, f"{title} ({UNITS[setting]})" if setting in UNITS else title)


def words(setting: str, values: Sequence[Any]) -> list[str]:
    """Return the values of a setting in words, one text for each value.

    A value with a kind and parameters is written with the parameters that tell it from others of its kind. A
    parameter that more than half of them share is left out. A long text is cut unless another value would have
    the same words.
    """
    kinds = [value for value in values if isinstance(value, dict)]
    whole, cut = (
        [
            _mapping(value, kinds, letters) if isinstance(value, dict) else _word(setting, value, letters)
            for value in values
        ]
        for letters in (None, LETTERS)
    )
    return cut if len(set(cut)) == len(set(whole)) else whole


def _word(setting: str, value: Any, letters: int | None) -> str:
    if value is None:
        return NOT_GIVEN.get(setting, "none")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return count(value) if isinstance(value, int) else f"{value:g}"
    if setting == SPLIT:
        return "/".join(f"{100 * share:g}" for share in value)
    word = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    is_long = letters is not None and len(word) > letters
    shown = f"{word[: LETTERS - 1]}{CUT}" if is_long else word
    return shown if set("./:") & set(word) else shown.replace("_", " ")  # names of files and plugins stay


def _mapping(value: dict[str, Any], others: Sequence[dict[str, Any]], letters: int | None) -> str:
    same_kind = [other for other in others if other.get("kind") == value.get("kind")]
    numbers: list[str] = []
    names: list[str] = []
    for name in dict.fromkeys(name for other in same_kind for name in other if name != "kind"):
        word = _word("", value.get(name), letters)
        shared = Counter(_word("", other.get(name), letters) for other in same_kind)
        if 2 * shared[word] <= len(same_kind):
            is_name = isinstance(value.get(name), str)
            (names if is_name else numbers).append(word if is_name else f"{name.replace('_', ' ')}={word}")
    return " ".join([_word("", value.get("kind", ""), letters), *numbers, *names])


WORDS: dict[Metric, str] = {
    "accuracy": "accuracy",
    "matthews": "Matthews correlation",
    "f1": "F1",
    "macro_f1": "macro-averaged F1",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "entity_f1": "F1 of entities",
    "overlap_f1": "F1 of words",
    "exact_match": "exact match",
}

FIELDS = ("morphology", "syntax", "syntax_semantics", "syntax/semantics", "semantics")
"""Fields of BLiMP: groups of several paradigms."""

_PLACES = {name: place for place, name in enumerate(TASKS)}


def known_task(name: str | None) -> Task | None:
    """Return the task of that name; None if it is not known.

    It is searched in the catalogue, then in the task files that the spec names. Tables write `language` for
    the minimal pairs of the built-in language.
    """
    if name is None or name in TASKS:
        return TASKS.get(name or "")
    return loaded_task(name) or TASKS.get(f"{name}_minimal_pairs")


def metric_words(name: str | None) -> str:
    """Return the meaning of `score` for a task: ``Matthews correlation``."""
    task = known_task(name)
    return "score" if task is None else WORDS[task.metric]


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names once each, in the order of the catalogue; unknown names come last, as they appear."""
    different = list(dict.fromkeys(names))
    place = {name: _PLACES.get(getattr(known_task(name), "name", ""), len(_PLACES)) for name in different}
    return sorted(different, key=place.__getitem__)


def parts(name: str) -> tuple[str, str]:
    """Return a task and its part: ``("blimp", "adjunct_island")``. The part is empty for a whole task."""
    task, _, part = name.partition("/")
    return task, part


def are_whole(groups: Series) -> Series:
    """Return for each group whether it is a whole task: not absent, no part, and no number of its examples."""
    return ~groups.fillna("/").str.contains("[/@]").astype(bool)


CCA_MEASURES = ("layer_change", "influence", "run_distance")
"""Measures whose similarities are inflated by chance if there are few tokens per dimension."""

TASK_MEASURES = (
    *("fine_tuning", "frozen_features", "minimal_pairs", "probing", "structural_probe", "parsing"),
    *("conditional_independence", "retrieval"),
)
"""Measures whose standard errors are over examples rather than over text."""

NEXT_LAYER_METRICS = ("layer_change", "update_norm")
"""Measures and metrics that compare a layer with the next one."""


class MetricWords(NamedTuple):
    """Words for one metric."""

    title: str
    """Title of its panel."""
    axis: str
    """Label of the axis of values, with the unit."""
    floor: str
    """Data on which the chance level is computed."""
    unit: str = "1"
    digits: int = 3
    ceiling: str = ""
    """Largest possible value, in a few words; empty if no such line is drawn."""


ENTROPY = "entropy of the labels"

PWCCA = MetricWords(f"1 {MINUS} PWCCA similarity", f"1 {MINUS} PWCCA", "rows shuffled")
DEBIASED_CKA = MetricWords(f"1 {MINUS} debiased CKA", f"1 {MINUS} debiased CKA", "rows shuffled")

METRICS = {
    ("learning", "gain"): MetricWords("Gain over no context", "gain over no context (nats)", "no context", "nats"),
    ("layer_change", "pwcca"): PWCCA,
    ("layer_change", "debiased_cka"): DEBIASED_CKA,
    ("token_information", "cross_fitted"): MetricWords(
        "Cross-fitted estimate", "cross-fitted information (nats)", "labels shuffled", "nats", ceiling=ENTROPY
    ),
    ("token_information", "plug_in"): MetricWords(
        "Plug-in estimate", "plug-in information (nats)", "labels shuffled", "nats", ceiling=ENTROPY
    ),
    ("read_out", "linear"): MetricWords(
        "Linear probe", "information read linearly (nats)", "labels shuffled", "nats", ceiling=ENTROPY
    ),
    ("read_out", "mlp"): MetricWords(
        "Probe with a hidden layer",
        "information read by an MLP (nats)",
        "labels shuffled",
        "nats",
        ceiling=ENTROPY,
    ),
    ("run_distance", "pwcca"): PWCCA,
    ("run_distance", "debiased_cka"): DEBIASED_CKA,
    **{
        ("neighbours", metric): MetricWords(title, axis, "neighbours at random")
        for metric, title, axis in (
            ("same_token", "Same token", "share with the same token"),
            ("same_left", "Same token to the left", "share with the same left"),
            ("same_right", "Same token to the right", "share with the same right"),
            ("same_relation", "Same syntactic relation", "share with the same relation"),
            ("same_left_part", "Same syntax to the left", "share with the same left part"),
            ("same_right_part", "Same syntax to the right", "share with the same right part"),
            ("same_sense", "Same sense", "share with the same sense"),
        )
    },
    ("neighbours", "position_distance"): MetricWords(
        "Distance of positions", "difference of positions (tokens)", "neighbours at random", "tokens", digits=2
    ),
    ("geometry", "anisotropy"): MetricWords("Anisotropy", "mean cosine of two tokens", "states minus their mean"),
    ("geometry", "self_similarity"): MetricWords(
        "Self-similarity", "mean cosine minus anisotropy", "tokens shuffled"
    ),
    ("geometry", "effective_rank"): MetricWords(
        "Effective rank", "effective rank (dimensions)", "columns shuffled", "dimensions", digits=1
    ),
    ("geometry", "participation_ratio"): MetricWords(
        "Participation ratio", "participation ratio (dimensions)", "columns shuffled", "dimensions", digits=1
    ),
    ("geometry", "update_norm"): MetricWords(
        "Size of the update", "update / state (ratio of norms)", "rows shuffled"
    ),
    ("influence", "pwcca"): PWCCA._replace(floor="a token beside it", digits=5),
    ("probing", "accuracy"): MetricWords("Accuracy", "accuracy", "most frequent answer"),
    ("probing", "selectivity"): MetricWords(
        "Selectivity", "accuracy minus that of control task", "most frequent answers"
    ),
    ("probing", "compression"): MetricWords(
        "Compression", "uniform code / online code", "frequencies of answers", digits=2
    ),
    ("probing", "mix_weight"): MetricWords("Weight", "share of the learned mix", "equal weights"),
    ("structural_probe", "uuas"): MetricWords("Undirected edges", "UUAS", "adjacency chain"),
    ("retrieval", "spearman_centred"): MetricWords("Correlation", "Spearman correlation", "no relation"),
    ("retrieval", "spearman"): MetricWords("Correlation", "Spearman correlation", "no relation"),
    ("retrieval", "recall_at_1_centred"): MetricWords("Recall at 1", "recall at 1", "order at random"),
    ("retrieval", "recall_at_1"): MetricWords("Recall at 1", "recall at 1", "order at random"),
    ("parsing", "uuas"): MetricWords("Undirected edges", "UUAS", "adjacency chain"),
    ("minimal_pairs", "accuracy"): MetricWords("Accuracy", "accuracy", "one in two"),
    ("frozen_features", "score"): MetricWords("Score", "score", "most frequent answer"),
    ("fine_tuning", "score"): MetricWords("Score", "score", "most frequent answer"),
    ("conditional_independence", "joint_minus_chain"): MetricWords(
        "Joint less chain", "joint minus chain (nats a pair)", "second token of another sentence", "nats"
    ),
    ("conditional_independence", "joint"): MetricWords("Joint", "joint log probability (nats)", "chance", "nats"),
    ("conditional_independence", "chain"): MetricWords(
        "Chain", "log probability by chain (nats)", "chance", "nats"
    ),
    ("pictures", "word"): MetricWords("By word", "", ""),
    ("pictures", "position"): MetricWords("By position in the sentence", "", ""),
    ("pictures", "relation"): MetricWords("By relation", "", ""),
    ("pictures", "sense"): MetricWords("By sense", "", ""),
}


def words_of_metric(measure: str, metric: str) -> MetricWords:
    """Return the words of a metric. A metric that is not in METRICS keeps its own name; a plugin's metric has
    the class name of its measure before it."""
    words = metric.replace("_", " ") if is_of_plugin(measure) else metric
    title = f"{measure.partition(':')[2]}: {words}" if is_of_plugin(measure) else metric
    return METRICS.get((measure, metric)) or MetricWords(title, words, "chance")


def is_of_plugin(measure: str) -> bool:
    """Return whether a measure comes from a plugin, whose names have a colon: ``my_measures.py:Rank``."""
    return ":" in measure


def axis_label(measure: str, metric: str, about: str | None = None) -> str:
    """Return the label of the axis of values. `about` names the measured token, if it is not the one read."""
    label = words_of_metric(measure, metric).axis
    return f"{about}, {label.replace(' information', '')}" if about else label


def task_axis_label(measure: str, metric: str, task: str | None) -> str:
    """Return the label of the axis of values for a panel about a task, or about the mean over tasks; the task
    decides what `score` means."""
    if metric != "score":
        return axis_label(measure, metric)
    return "mean score over tasks" if task is None else metric_words(task)


def leads_on(measure: str, metric: str) -> bool:
    """Return whether the metric compares a layer with the next one."""
    return bool({measure, metric} & set(NEXT_LAYER_METRICS))
