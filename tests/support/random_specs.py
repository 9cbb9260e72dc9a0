"""Random valid specs, for tests that must hold of every experiment: what `validate` accepts."""

from typing import Any, get_args

from hypothesis import strategies as st

from lightning_modules.config.objectives import OBJECTIVES
from lightning_modules.config.run import VOITA_OBJECTIVES

Spec = dict[str, Any]

KINDS = tuple(get_args(settings.model_fields["kind"].annotation)[0] for settings in OBJECTIVES)
SHARES = ((0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.5, 0.5, 0.0), (0.0, 0.5, 0.5), (0.3, 0.3, 0.4))
TRAINED_ON_TASKS = ("probing", "frozen_features", "fine_tuning", "baselines")
ratios = st.sampled_from((0.05, 0.15, 0.4, 0.8, 1.0))
units = st.sampled_from(("words", "sub_words"))


def some(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Spec]:
    """Draw a mapping with any of these settings."""
    return st.fixed_dictionaries({}, optional=optional)


def subsets(names: Any, *, least: int = 1, most: int | None = None) -> st.SearchStrategy[list[Any]]:
    """Draw a list without repetitions."""
    return st.lists(st.sampled_from(tuple(names)), min_size=least, max_size=most, unique=True)


@st.composite
def word_orders(draw: st.DrawFn) -> Any:
    """Draw an order of words, by its name or with settings."""
    kind = draw(st.sampled_from(("natural", "ngrams", "blocks", "corpus", "uniform")))
    own = {"ngrams": {"n": st.integers(1, 4)}, "blocks": {"length": st.integers(2, 64)}}.get(kind, {})
    return kind if kind == "natural" else {"kind": kind} | draw(some(unit=units, **own))


@st.composite
def selections(draw: st.DrawFn, *, words: tuple[str, ...]) -> Any:
    """Draw what is hidden together; lexica have words of the text."""
    kind = draw(st.sampled_from(("uniform", "whole_word", "span", "pmi", "cloze", "generic")))
    match kind:
        case "span":
            return {"kind": kind} | draw(
                some(probability=st.sampled_from((0.2, 0.9, 1.0)), longest=st.integers(1, 5))
            )
        case "pmi":
            # A text of a few hundred sentences repeats few n-grams.
            return {"kind": kind, "least_count": 2} | draw(some(longest=st.integers(2, 8)))
        case "cloze" | "generic":
            return {"kind": kind, "words": draw(subsets(words))}
    return kind


@st.composite
def maskings(draw: st.DrawFn, *, objective: str, training: Spec, words: tuple[str, ...]) -> Spec:
    """Draw settings of masking that fit the objective and the training."""
    mask, random, keep = draw(st.sampled_from(SHARES))
    masking = {"mask": mask, "random": random, "keep": keep}
    masking |= draw(some(ratio=ratios, count=st.sampled_from(("unbiased", "fixed", "independent"))))
    if random and draw(st.booleans()):
        masking["random_differs"] = True
    order = training.get("word_order", "natural")
    if order == "natural" or order.get("unit", "words") == "words":
        masking["select"] = draw(selections(words=words))
    if objective == "masked_lm":
        masking |= draw(some(predict=ratios))
    if draw(st.booleans()):
        return masking | draw(some(copies=st.integers(1, 5)))
    schedules = [st.fixed_dictionaries({"kind": st.sampled_from(("linear", "cosine")), "to": ratios})]
    if training["max_steps"] >= 2:
        schedules.append(
            st.fixed_dictionaries(
                {"kind": st.just("steps"), "at": st.just([1]), "ratios": st.lists(ratios, min_size=1, max_size=1)}
            )
        )
    return masking | {"schedule": draw(st.one_of(schedules))}


@st.composite
def objectives(draw: st.DrawFn, *, kind: str, encoder: Spec, training: Spec, words: tuple[str, ...]) -> Spec:
    """Draw settings of an objective that fit the encoder and the training."""
    objective: Spec = {"kind": kind}
    if kind in ("masked_lm", "mixture", "replaced_token") and draw(st.booleans()):
        objective["masking"] = draw(maskings(objective=kind, training=training, words=words))
    sees = {"causal_lm": ("left_only", "window", "itself")}.get(
        kind, ("both_sides", "left_only", "window", "itself")
    )
    if kind in ("masked_lm", "causal_lm", "translation", "replaced_token") and draw(st.booleans()):
        objective["sees"] = draw(st.sampled_from(sees))
        if objective["sees"] == "window":
            objective |= draw(some(window=st.integers(1, 4)))
    pairs = training.get("input_format") in ("sentence_pair", "segment_pair")
    return objective | draw(
        _settings_of(kind, pairs=pairs and objective.get("sees", "both_sides") == "both_sides")
    )


def _settings_of(kind: str, *, pairs: bool) -> st.SearchStrategy[Spec]:
    """Draw what only one objective knows; a loss on pairs where there are pairs."""
    pair_losses = ("none", "next_sentence", "sentence_order") if pairs else ("none",)
    dropout, layers = st.sampled_from((0.0, 0.2)), st.integers(1, 2)
    generator = some(shrink=st.sampled_from((1, 2)), num_hidden_layers=layers).map(
        lambda drawn: {"shrink": 2} | drawn
    )
    replaced = {
        "predict": st.sampled_from(("replaced", "original")),
        "loss_on": st.sampled_from(("all", "selected")),
        "weight": st.sampled_from((0.5, 10.0)),
    }
    neighbours = {"window": st.integers(1, 5), "negatives": st.integers(1, 5)}
    output = {"head": st.sampled_from(("bert", "linear")), "label_smoothing": st.sampled_from((0.0, 0.1))}
    return {
        "masked_lm": some(pair_loss=st.sampled_from(pair_losses), **output),
        "causal_lm": some(token_dropout=dropout, **output),
        "translation": st.fixed_dictionaries(
            {"decoder": st.fixed_dictionaries({"num_hidden_layers": layers})},
            optional=output | {"token_dropout": dropout, "head": st.sampled_from(("tied", "linear"))},
        ),
        "mixture": some(causal=st.sampled_from((0.1, 0.5, 0.9))),
        "replaced_token": st.fixed_dictionaries({"generator": generator}, optional=replaced),
        "permutation_lm": some(predict=ratios),
        "skip_gram": some(**neighbours, subsample=st.sampled_from((None, 1e-2))),
    }.get(kind, some())


@st.composite
def encoders(draw: st.DrawFn) -> Spec:
    """Draw the shape of a tiny encoder."""
    encoder = {"num_hidden_layers": draw(st.integers(1, 3)), "hidden_size": draw(st.sampled_from((8, 16)))}
    encoder["num_attention_heads"] = draw(st.sampled_from((1, 2, 4)))
    dropouts = st.sampled_from((0.0, 0.3))
    return encoder | draw(
        some(
            intermediate_size=st.sampled_from((5, 32)),
            dropout=dropouts,
            attention_dropout=dropouts,
            feed_forward_dropout=dropouts,
            norm=st.sampled_from(("post", "pre")),
            norm_kind=st.sampled_from(("layer", "rms")),
            attention_window=st.sampled_from((None, 1, 3)),
            embedding=some(scale=st.booleans(), bias=st.booleans(), norm=st.booleans()),
            initialisation=st.sampled_from(("normal", "glorot")),
            activation=st.sampled_from(("gelu", "relu", "swiglu")),
            layer_norm_epsilon=st.sampled_from((1e-12, 1e-6)),
        )
    )


@st.composite
def trainings(draw: st.DrawFn, *, steps: st.SearchStrategy[int], formats: tuple[str, ...]) -> Spec:
    """Draw a training of few steps."""
    most = draw(steps)
    training = {"max_steps": most, "tokens_per_step": draw(st.sampled_from((128, 200)))}
    return training | draw(
        some(
            input_format=st.sampled_from(formats),
            word_order=word_orders(),
            warmup_steps=st.integers(0, most),
            schedule=st.sampled_from(("linear", "inverse_sqrt", "cosine", "constant", "wsd")),
            adam_beta2=st.sampled_from((0.98, 0.998)),
            accumulate=st.sampled_from((1, 2)),
            validate_every=st.integers(1, 3),
            keep_checkpoints=st.one_of(st.just("all"), st.integers(1, 3)),
            gradient_clip_val=st.sampled_from((0.0, 1.0)),
            precision=st.sampled_from(("32-true", "bf16-mixed")),
            sentences=st.sampled_from((250, 300)),
        )
    )


@st.composite
def measures(
    draw: st.DrawFn, *, arms: list[str], language: bool, efforts: tuple[str, ...], most: int
) -> list[Any]:
    """Draw measures, each by its name or with settings that make it quick."""
    drawn = draw(subsets([kind for kind in SETTINGS if language or kind not in OF_LANGUAGE], most=most))
    # Baselines learn from the examples that other measures take, so all take alike.
    common = {"effort": draw(st.sampled_from(efforts)), "examples": 20}
    return [draw(_measure(kind, arms=arms, language=language, common=common)) for kind in drawn]


TOKENS = {"tokens": st.sampled_from((500, 1000, 50_000))}
TAGS = ("frequency", "part_of_speech")
CLASSES, TAGGED = ("language_topic", "language_noun_phrases"), ("language_parts_of_speech", "language_tense")
ONE_TRAINING = {"seeds": 1, "epochs": 1}

SETTINGS: dict[str, tuple[Spec, Spec]] = {
    "validation": (
        {},
        {
            "translations": st.integers(1, 20),
            "word_orders": st.lists(word_orders(), max_size=2, unique_by=repr),
            "input_formats": subsets(("sentences", "full_sentences"), least=0),
        },
    ),
    "layer_change": ({}, {**TOKENS, "groups": subsets(TAGS, least=0)}),
    "token_information": (
        {"clusters": 5},
        {
            **TOKENS,
            "types": st.integers(20, 60),
            "clusters": st.integers(2, 8),
            "about": subsets(("input", "previous", "next", "output")),
        },
    ),
    "read_out": (
        {},
        {
            **TOKENS,
            "types": st.integers(20, 60),
            "about": subsets(("input", "previous", "next", "output")),
        },
    ),
    "geometry": ({}, TOKENS),
    "influence": ({"sentences": 20}, {**TOKENS, "groups": subsets(TAGS)}),
    "neighbours": ({"types": 10, "occurrences": 10, "neighbours": 3, "neighbours_of_type": 2}, TOKENS),
    "run_distance": ({}, TOKENS),
    "pictures": ({"words": ["ko", "fel"], "occurrences": 5}, TOKENS),
    "generation": ({"sentences": 5}, {"iterations": st.sampled_from(([1], [1, 2])), "top_p": ratios}),
    "conditional_independence": ({"sentences": 20}, {"ratios": subsets((0, 0.15, 1.0))}),
    "structural_probe": ({"sentences": 20}, {"rank": st.integers(1, 4)}),
    "parsing": ({"sentences": 3, "sweeps": 24, "longest": 5}, {"window": st.integers(2, 10)}),
    "minimal_pairs": ({"pairs": 3}, {}),
    "retrieval": ({"pairs": 10, "candidates": 40, "training_pairs": 40, "epochs": 1}, {}),
    "probing": ({"tasks": TAGGED}, {"tasks": subsets(TAGGED)}),
    "frozen_features": ({"tasks": CLASSES[:1], **ONE_TRAINING}, {"tasks": subsets(CLASSES)}),
    "fine_tuning": ({"tasks": CLASSES[:1], **ONE_TRAINING, "learning_rates": [1e-3]}, {"tasks": subsets(CLASSES)}),
    "baselines": ({"tasks": TAGGED}, {"tasks": subsets((*CLASSES, *TAGGED))}),
}
"""What is always written of a measure, and what may be."""

OF_LANGUAGE = ("structural_probe", "parsing", "pictures")
"""Measures that need the built-in language, or a treebank or words of another text."""


def _measure(kind: str, *, arms: list[str], language: bool, common: Spec) -> st.SearchStrategy[Any]:
    always, own = SETTINGS[kind]
    optional = {"checkpoints": st.sampled_from(("last", "all"))} | own
    if kind in TRAINED_ON_TASKS:
        always = always | common
    elif kind in ("minimal_pairs", "retrieval", "parsing", "structural_probe"):
        always = always | {"effort": common["effort"]}
    if kind == "run_distance":
        optional["arms"] = subsets(arms)
    if not language:  # tasks and labels are those of the built-in language
        always = {name: value for name, value in always.items() if name != "tasks"}
        optional = {name: drawn for name, drawn in optional.items() if name not in ("tasks", "groups")}
    written = some(**optional).map(lambda drawn: {"kind": kind} | always | drawn)
    return written if always else st.one_of(st.just(kind), written)


@st.composite
def specs(
    draw: st.DrawFn,
    *,
    steps: st.SearchStrategy[int] = st.sampled_from((0, 1, 2, 60)),  # noqa: B008 (strategies never change)
    language: st.SearchStrategy[bool] = st.booleans(),  # noqa: B008
    most_arms: int = 3,
    most_measures: int = 4,
    efforts: tuple[str, ...] = ("quick", "full"),
) -> Spec:
    """Draw a spec that `validate` accepts, on the built-in language or on train.tsv and validation.tsv."""
    built_in = draw(language)
    data: Spec = {"vocab_size": draw(st.sampled_from((256, 320))), "max_length": 64}
    if built_in:
        data |= {"kind": "language", "train": 400, "validation": 200, "test": 10, "seed": draw(st.integers(0, 1))}
        words: tuple[str, ...] = ("ko", "tu", "til", "fel")
    else:
        data |= {"kind": "files", "train": "train.tsv", "validation": "validation.tsv", "target": "target"}
        words = ("the", "a", "dog", "cat")
    every_format = ("sentences", "sentence_pair", "segment_pair", "full_sentences", "doc_sentences")
    encoder = draw(encoders())
    training = draw(trainings(steps=steps, formats=every_format if built_in else ("sentences", "full_sentences")))
    kinds = [kind for kind in KINDS if _fits(kind, training)]
    arms: dict[str, Any] = {}
    for name in ("a", "b", "c")[: draw(st.integers(1, most_arms))]:
        kind = draw(st.sampled_from(kinds))
        arms[name] = {"objective": draw(objectives(kind=kind, encoder=encoder, training=training, words=words))}
        if kind in VOITA_OBJECTIVES:
            arms[name] |= draw(some(preset=st.sampled_from(("bert", "voita-2019"))))
        if draw(st.booleans()):
            arms[name]["training"] = draw(
                some(learning_rate=st.sampled_from((1e-4, 1e-2)), weight_decay=st.just(0.0))
            )
    spec: Spec = {"name": "drawn", "version": 1, "data": data, "encoder": encoder, "training": training}
    spec |= {"arms": arms, "seeds": draw(subsets(range(4), most=2))}
    if draw(st.booleans()):
        spec["grid"] = {"base": "a"} | draw(_grids())
    if training["max_steps"] and built_in and draw(st.booleans()):
        learned = any(
            arm["objective"]["kind"] in ("permutation_lm", "naive_bidirectional_lm") for arm in arms.values()
        )
        positions = ("learned", "sinusoidal", "rotary", "alibi", *(() if learned else ("none",)))
        encoder["positions"] = draw(st.sampled_from(positions))
    spec["measures"] = draw(measures(arms=list(arms), language=built_in, efforts=efforts, most=most_measures))
    return spec


def _fits(kind: str, training: Spec) -> bool:
    return kind not in ("translation", "skip_gram") or training.get("input_format", "sentences") == "sentences"


def _grids() -> st.SearchStrategy[Spec]:
    axes = some(**{"encoder.norm": st.just(["post", "pre"]), "encoder.dropout": subsets((0.0, 0.1, 0.2))}).filter(
        bool
    )
    pairs = st.just({"training.learning_rate": [1e-3, 2e-3], "training.weight_decay": [0.0, 0.1]})
    return st.one_of(st.fixed_dictionaries({"axes": axes}), st.fixed_dictionaries({"axes": axes, "zip": pairs}))
