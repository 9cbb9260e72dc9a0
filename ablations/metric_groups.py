"""Groups that the rows of each metric can have: tasks, tokens by frequency, parts of speech and so on.

A file of claims is checked against them before there is a table: a group that no measure makes is misspelt.
Names that come from a user's file (treebanks, parts of minimal pairs in files, words of pictures) are not
known here, so every name is accepted for them. This module needs no torch.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, get_args

from ablations.catalogue import METRICS, OF_TASKS
from ablations.measures.settings import (
    AFTER_FINAL_NORM,
    RANK_BOUNDS,
    InfluenceSettings,
    LayerChangeSettings,
    QuestionSettings,
    ValidationSettings,
)
from ablations.tasks.datasets import TASKS, task_called
from ablations.tasks.settings import (
    BaselinesSettings,
    ConditionalIndependenceSettings,
    GenerationSettings,
    MinimalPairsSettings,
    ProbingSettings,
    RetrievalSettings,
    RetrievalTask,
    TaskSettings,
    TransferSettings,
)
from ablations.wording import FEW, guess, listed, shown
from lightning_modules import plugins
from lightning_modules.config import InputFormat
from lightning_modules.config.masking import Tag
from lightning_modules.config.training import word_order_name


@cache
def matches(group: str, pattern: str) -> bool:
    """Return whether a group fits a pattern; a star stands for any characters other than / and @."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/@]*"), group) is not None


class GroupFamily(NamedTuple):
    """Family of similar groups that are too many to list."""

    prefixes: tuple[str, ...]
    """Beginnings of the names of the groups."""
    has: Callable[[str], bool]
    """Whether a name with one of these beginnings is a group of the family."""
    examples: tuple[str, ...] = ()
    """Some groups of the family. A sentence shows the first one."""


class Groups(NamedTuple):
    """Groups that rows of a metric can have."""

    names: tuple[str, ...] = ()
    families: tuple[GroupFamily, ...] = ()
    whole: bool = True
    """Whether there are also rows without a group."""

    def has(self, group: str) -> bool:
        """Return whether a group, or a pattern with stars, can have rows."""
        if "*" not in group:
            return group in self.names or any(
                group.startswith(family.prefixes) and family.has(group) for family in self.families
            )
        head = group.partition("*")[0]
        prefixes = [prefix for family in self.families for prefix in family.prefixes]
        open_ended = any(prefix.startswith(head) or head.startswith(prefix) for prefix in prefixes)
        return open_ended or any(matches(name, group) for name in self.names)

    @property
    def examples(self) -> list[str]:
        """Names for a sentence that shows which groups there are."""
        return [*(family.examples[0] for family in self.families if family.examples), *self.names]

    def refusal(self, group: str, measure: str) -> str:
        """Return the end of a sentence that says that there is no such group, and what groups there are."""
        near = guess(group, [*(name for family in self.families for name in family.examples), *self.names])
        if near:
            return f"must be a group of {measure}, but is {shown(group)}{near}"
        few = self.examples if not self.families else self.examples[:FEW]
        return f"must be a group of {measure}, such as {listed(few)}, but is {shown(group)}"


def _form(pattern: str) -> Callable[[str], bool]:
    return lambda group: re.fullmatch(pattern, group) is not None


_RANKS = tuple(
    f"rank {first}-{last}"
    for first, last in zip((1, *(bound + 1 for bound in RANK_BOUNDS)), RANK_BOUNDS, strict=False)
)
_RARE = GroupFamily((f"rank {RANK_BOUNDS[-1] + 1}-",), _form(r"rank \d+-[1-9]\d*"))
"""Group of the rarest tokens. Its name ends with the last rank of a text."""
_TAGS = tuple(f"tag {tag}" for tag in get_args(Tag))
_TOKENS = (*_RANKS, *_TAGS)
_RATIOS = GroupFamily(("ratio=",), _form(r"ratio=([01]|0\.\d*[1-9]|[1-9](\.\d*[1-9])?e-\d\d)"), ("ratio=0.15",))
_ITERATIONS = GroupFamily(("iterations=",), _form(r"iterations=[1-9]\d*"), ("iterations=4",))
_ORDERS = (
    GroupFamily(
        ("ngrams, n ",), _form(r"ngrams, n [1-9]\d*(, sub_words)?"), ("ngrams, n 1", "ngrams, n 2, sub_words")
    ),
    GroupFamily(("blocks of ",), _form(r"blocks of [1-9]\d*(, sub_words)?"), ("blocks of 512",)),
)
_OTHER_ORDERS = ("natural", *(name + unit for name in ("corpus", "uniform") for unit in ("", ", sub_words")))
_ANY = GroupFamily(("",), lambda _: True)
_TREATMENTS = ("masked", "kept", "random")
_PAIR_TASKS = ("next_sentence", "sentence_order")


def _tasks_of(settings: type[TaskSettings]) -> tuple[str, ...]:
    return tuple(name for name, task in TASKS.items() if settings.can_measure(task))


def _of_tasks(names: Iterable[str]) -> Groups:
    return Groups(tuple(names), whole=False)


def _transferred(names: tuple[str, ...]) -> Groups:
    """Return the groups of tasks, and of points of their learning curves, such as `sst2@100`."""
    curve = GroupFamily(
        tuple(f"{name}@" for name in names), _form(r"[^@]+@[1-9]\d*"), tuple(f"{name}@100" for name in names)
    )
    return Groups(names, (curve,), whole=False)


PARADIGMS: Final = (
    *("agreement_simple", "agreement_across_phrase", "agreement_across_clause", "agreement_in_clause"),
    *("determiner_noun", "verb_form", "tense_concord", "noun_order", "phrase_order"),
)
"""Names of the paradigms of minimal pairs in the built-in language."""

_PAIRS = ("blimp", "lm_syneval", "language", *(f"language/{name}" for name in PARADIGMS))
_PARTS = GroupFamily(("blimp/", "lm_syneval/"), _form(r"[^/]+/.+"))
_LOSSES = Groups(
    (*_TREATMENTS, "causal_lm", "generator", *get_args(InputFormat), *_OTHER_ORDERS), families=_ORDERS
)

_QUESTIONS = Groups(("previous token", "next token", "output label", "shown token", AFTER_FINAL_NORM))

GROUPS: Final[Mapping[str, Groups]] = MappingProxyType(
    {
        "layer_change": Groups((*_TOKENS, AFTER_FINAL_NORM), (_RARE,)),
        "influence": Groups(_TOKENS, (_RARE,), whole=False),
        "token_information": _QUESTIONS,
        "read_out": _QUESTIONS,
        "run_distance": Groups(families=(_ANY,), whole=False),  # a group is the arm of the other run
        "pictures": Groups(families=(_ANY,), whole=False),
        "structural_probe": Groups(families=(_ANY,), whole=False),
        "parsing": Groups(families=(_ANY,), whole=False),
        "probing": _of_tasks(_tasks_of(ProbingSettings)),
        "baselines": _of_tasks(_tasks_of(BaselinesSettings)),
        "frozen_features": _transferred(_tasks_of(TransferSettings)),
        "fine_tuning": _transferred(_tasks_of(TransferSettings)),
        "minimal_pairs": Groups(_PAIRS, (_PARTS,), whole=False),
        "retrieval": _of_tasks(get_args(RetrievalTask)),
        "conditional_independence": Groups(families=(_RATIOS,), whole=False),
        "generation": Groups(("causal_lm",), (_ITERATIONS,)),
    }
)
"""Groups by measure. A measure that is missing here has no groups."""

OF_METRICS: Final[Mapping[tuple[str, str], Groups]] = MappingProxyType(
    {
        ("validation", "loss"): _LOSSES,
        ("validation", "perplexity"): Groups(("causal_lm", "generator", *_OTHER_ORDERS), families=_ORDERS),
        ("validation", "objective_loss"): Groups((*get_args(InputFormat), *_OTHER_ORDERS), families=_ORDERS),
        ("validation", "pair_accuracy"): Groups(_PAIR_TASKS, whole=False),
    }
)
"""Groups by measure and metric, for measures whose metrics have different groups."""


def metrics_of_task(measure: str, group: str) -> tuple[str, ...] | None:
    """Return the metrics that a measure has for a task, or a point of its learning curve (`task@examples`).

    Returns None if all tasks have the same metrics, or if the task is not known.
    """
    name, _, examples = group.partition("@")
    if measure == "retrieval" and name in GROUPS[measure].names:
        of_order = [metric for metric in METRICS[measure] if not metric.startswith("spearman")]
        return tuple(of_order) if name == "next_sentence" else ("spearman", "spearman_centred", "spearman_tfidf")
    is_known = name in TASKS or name in _task_files()
    if measure not in ("frozen_features", "fine_tuning") or not is_known:
        return None
    return ("score",) if examples else task_called(name).transfer_metrics


def groups_of(measure: str, metric: str) -> Groups:
    """Return the groups that rows of a metric can have."""
    if metric.endswith("_of_text"):
        return Groups()
    if plugins.is_name(measure):
        return Groups(families=(_ANY,))
    groups = OF_METRICS.get((measure, metric)) or GROUPS.get(measure, Groups())
    if measure not in {*OF_TASKS, "retrieval"} or not (files := _task_files()):
        return groups
    examples = tuple(f"{name}/VALUE" for name in files if measure == "minimal_pairs")
    parts = GroupFamily(tuple(name + sign for name in files for sign in "@/"), _form(r".+[@/].+"), examples)
    return groups._replace(names=(*files, *groups.names), families=(*groups.families, parts))


def _task_files() -> list[str]:
    """Return the names of the user's own tasks that are loaded."""
    return [plugin.name for plugin in plugins.loaded() if plugins.is_text(plugin.name)]


ABOUT = {
    "previous": ("previous token",),
    "next": ("next token",),
    "output": ("output label", "shown token"),
}
"""Groups of `token_information` and `read_out` by their setting `about`."""
BY = {"frequency": "rank", "part_of_speech": "tag"}
"""Beginning of the names of groups, by the property that tokens are grouped by."""


def groups_made(settings: Any, data_kinds: Collection[str]) -> tuple[str, ...] | None:
    """Return the groups that a measure makes with its settings; None if that is not known.

    For groups of tokens only the beginning of the name is returned, for parts of a task only the task.

    Args:
        data_kinds: `data.kind` of the arms. Their norms are not known: groups of `norm: pre` are returned.
    """
    match settings:
        case TaskSettings() | RetrievalSettings():
            parts = [part for kind in data_kinds for part in settings.parts(built_in=kind == "language")]
            tasks = tuple(dict.fromkeys(name for part in parts for name in part.tasks or ()))
            return tuple(map(settings.group_of, tasks)) if isinstance(settings, MinimalPairsSettings) else tasks
        case QuestionSettings():
            names = [name for about in settings.about for name in ABOUT.get(about, ())]
            return (*names, *[AFTER_FINAL_NORM] * ("input" in settings.about))
        case LayerChangeSettings():
            return (*(BY[by] for by in settings.groups), AFTER_FINAL_NORM)
        case InfluenceSettings():
            return tuple(BY[by] for by in settings.groups)
        case ConditionalIndependenceSettings():
            return tuple(map(settings.group_of, settings.ratios))
        case GenerationSettings():
            return ("causal_lm", *(f"iterations={count}" for count in settings.iterations))
        case ValidationSettings():
            orders = map(word_order_name, settings.word_orders)
            return (*_TREATMENTS, "causal_lm", "generator", *_PAIR_TASKS, *settings.input_formats, *orders)
    return None
