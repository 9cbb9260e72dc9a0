"""Rows of every measure on tasks, as they lie in results.parquet, with invented numbers."""

import numpy as np

from tests.support.fake_experiment import ARMS, LAYERS, run_of

TASKS = {
    "cola": (0.0, {"mlm": 0.18, "clm": 0.11, "mt": 0.06, "untrained": 0.01}),
    "sst2": (0.51, {"mlm": 0.79, "clm": 0.76, "mt": 0.74, "untrained": 0.68}),
    "rte": (0.53, {"mlm": 0.56, "clm": 0.53, "mt": 0.535, "untrained": 0.48}),
    "wikigold": (0.0, {"mlm": 0.41, "clm": 0.35, "mt": 0.33, "untrained": 0.12}),
    "xquad": (0.0, {"mlm": 0.12, "clm": 0.08, "mt": 0.09, "untrained": 0.07}),
}
"""Chance, and the score of each arm."""

NOISE, ERROR = 0.008, 0.011
ORDER = {"mlm": 0.04, "clm": 0.05, "mt": 0.02, "untrained": 0.0}
"""What is lost when words are shuffled."""

PAIRS = {
    "blimp": {"mlm": 0.64, "clm": 0.66, "untrained": 0.502},
    "blimp/syntax": {"mlm": 0.61, "clm": 0.62, "untrained": 0.5},
    "blimp/morphology": {"mlm": 0.74, "clm": 0.76, "untrained": 0.505},
    "blimp/adjunct_island": {"mlm": 0.56, "clm": 0.58, "untrained": 0.41},
    "blimp/wh_questions_subject_gap_long_distance": {"mlm": 0.8, "clm": 0.502, "untrained": 0.52},
    "lm_syneval": {"mlm": 0.7, "clm": 0.73, "untrained": 0.5},
    "lm_syneval/simple_agrmt": {"mlm": 0.9, "clm": 0.93, "untrained": 0.497},
}
PROBES = ("ud_pos", "sentence_length", "bigram_shift")
STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 500)


def score_rows(arms=ARMS, seeds=(0, 1, 2), *, tasks=TASKS, steps=()):
    """All of them. `steps`: what else was measured of minimal pairs and one task besides the last step."""
    rng = np.random.default_rng(11)
    for arm in arms:
        for seed in seeds:
            run = run_of(arm, seed)
            for rows in (_transfer, _baselines):
                yield from (run | row for row in rows(arm, rng, tasks))
            for rows in (_minimal_pairs, _probing, _trees, _independence, _retrieval, _generation):
                yield from (run | row for row in rows(arm, rng))
            for step in steps if arm != "untrained" else ():
                yield from (run | row | {"step": step} for row in _early(arm, rng, step, tasks))


def _score(measure, metric, group, value, floor, *, n, rng, error=ERROR, noise=NOISE, **more):
    value = value + noise * rng.standard_normal()
    row = {"measure": measure, "metric": metric, "group": group, "value": value, "floor": floor, "n": n}
    return row | {"standard_error": error} | more


def _transfer(arm, rng, tasks):
    for measure, times in (("fine_tuning", 1.0), ("frozen_features", 0.8)):
        for task, (floor, values) in tasks.items():
            value = floor + times * (values[arm] - floor)
            sample = {"n": 872, "rng": rng}
            yield _score(measure, "score", task, value, floor, **sample)
            if task == "cola":
                yield _score(measure, "accuracy", task, 0.69, 0.685, **sample)
            if task == "xquad":
                yield _score(measure, "exact_match", task, value / 2, 0.0, **sample)
            else:
                yield _score(measure, "shuffled_score", task, value - ORDER[arm], floor, **sample)
            for count in (100, 500, 1000) if task in ("sst2", "cola") else ():
                share = np.log(count) / np.log(8000)
                yield _score(measure, "score", f"{task}@{count}", floor + share * (value - floor), floor, **sample)


def _baselines(arm, rng, tasks):
    for task, (floor, _) in tasks.items():
        scored = {"majority": floor} | ({"tfidf": floor + 0.2} if task in ("cola", "sst2", "rte") else {})
        if task == "wikigold":
            scored |= {"word": 0.3, "word_window": 0.35}
        if task == "xquad":
            scored = {"place": 0.1, "beside_question": 0.14}
        for metric, value in scored.items():
            row = {"measure": "baselines", "metric": metric, "group": task, "value": value}
            yield row | {"floor": floor, "n": 872}
    # Of heads, who learn from more words than probes.
    for metric, value in (
        ("word", 0.79),
        ("word_window", 0.84),
        ("probed_word", 0.63),
        ("probed_word_window", 0.66),
    ):
        row = {"measure": "baselines", "metric": metric, "group": "ud_pos", "value": value}
        yield row | {"floor": 0.5, "n": 10_000}
    row = {"measure": "baselines", "metric": "tfidf", "group": "bigram_shift", "value": 0.52}
    yield row | {"floor": 0.5, "n": 10_000}


def _minimal_pairs(arm, rng):
    for group, values in PAIRS.items():
        n = {0: 46_993, 1: 1_000}[group.count("/")]
        error = 0.5 / np.sqrt(n)
        if arm in values:
            asked = {"accuracy": 0.0, "accuracy_within_word": 0.02, "accuracy_whole_words": -0.01}
            for metric, more in asked.items():
                if arm != "clm" or metric != "accuracy_within_word":
                    value = values[arm] + more
                    yield _score("minimal_pairs", metric, group, value, 0.5, n=n, rng=rng, error=error)
        for metric, value in (("by_length", 0.42), ("by_unigram", 0.55)):
            for of in ("accuracy", "accuracy_whole_words"):
                row = {"measure": "minimal_pairs", "metric": f"{of}_{metric}", "group": group, "value": value}
                yield row | {"floor": 0.5, "n": n}
        for metric, value in (("covered", 0.83), ("whole_words", 0.61)):
            yield {"measure": "minimal_pairs", "metric": metric, "group": group, "value": value, "n": n}


def _probing(arm, rng):
    for task in PROBES:
        top = {"mlm": 0.72, "clm": 0.66, "mt": 0.68, "untrained": 0.55}[arm]
        for layer in (*range(LAYERS + 1), None):
            bend = 0.03 if layer is None else -0.012 * (layer - 3) ** 2
            sample = {"n": 10_000, "rng": rng, "layer": layer}
            yield _score("probing", "accuracy", task, top + bend, 0.5, **sample)
            yield _score("probing", "selectivity", task, top - 0.5 + bend, 0.02, **sample)
            yield _score("probing", "code_length", task, 5_000 - 900 * top, 6_900.0, **sample, unit="nats")
            yield _score("probing", "compression", task, 1.2 + top + bend, 1.05, **sample)


def _trees(arm, rng):
    for layer in range(LAYERS + 1):
        value = {"mlm": 0.62, "clm": 0.57, "mt": 0.6, "untrained": 0.49}[arm] - 0.01 * (layer - 3) ** 2
        yield _score("structural_probe", "uuas", "ud_en_ewt", value, 0.49, n=8_213, rng=rng, layer=layer)
    if arm not in ("mlm", "untrained"):
        return
    for sweeps, value in ((250, 0.44), (500, 0.47), (1000, 0.49), (2000, 0.5)):
        group = "ud_en_ewt" if sweeps == 2000 else f"sweeps={sweeps}"
        value += 0.03 * (arm == "mlm")
        yield _score("parsing", "uuas", group, value, 0.49, n=3_902, rng=rng)
        yield _score("parsing", "conditional_information", group, value / 90, None, n=90_000, rng=rng, noise=1e-5)
    for metric, share in (("uuas_adjacent", 0.49), ("uuas_random", 0.21)):
        yield {"measure": "parsing", "metric": metric, "group": "ud_en_ewt", "value": share, "n": 3_902}
    yield _score("parsing", "uuas_minus_adjacent", "ud_en_ewt", value - 0.49, 0.0, n=3_902, rng=rng)


def _independence(arm, rng):
    for ratio in (0.15, 0.3, 0.5) if arm in ("mlm", "untrained") else ():
        for metric, value in (("joint_minus_chain", 0.06 - 0.05 * ratio), ("joint", 5.1), ("chain", 5.04)):
            value = value if arm == "mlm" else 0.001 * value
            yield _score(
                "conditional_independence", metric, f"ratio={ratio}", value, 0.0, n=5_000, rng=rng, unit="nats"
            )


def _retrieval(arm, rng):
    for layer in range(LAYERS + 1):
        for suffix, value in (("", 0.3), ("_centred", 0.45)):
            sample = {"rng": rng, "layer": layer}
            yield _score("retrieval", f"spearman{suffix}", "stsb", value - 0.01 * layer, 0.0, n=1_379, **sample)
            for metric in ("recall_at_1", "reciprocal_rank"):
                found = value / 10
                yield _score("retrieval", metric + suffix, "next_sentence", found, 0.001, n=1_000, **sample)
    yield {"measure": "retrieval", "metric": "spearman_tfidf", "group": "stsb", "value": 0.6, "n": 1_379}
    yield {
        "measure": "retrieval",
        "metric": "recall_at_1_tfidf",
        "group": "next_sentence",
        "value": 0.02,
        "n": 1_000,
    }
    # Pearson's correlation of ridge regression, which is trained: of no use beside cosines.
    yield {"measure": "baselines", "metric": "tfidf", "group": "stsb", "value": 0.42, "n": 1_379}
    yield _score("retrieval", "recall_at_1_reranked", "next_sentence", 0.05, 0.01, n=1_000, rng=rng)


def _generation(arm, rng):
    if arm not in ("mlm", "clm"):
        return
    for group in ("iterations=1", "iterations=4", None) if arm == "mlm" else (None,):
        steps = {"iterations=1": 1, "iterations=4": 4}.get(group, 10)
        yield _score("generation", "fluency", group, 5.2 - 0.05 * steps, 7.1, n=1_000, rng=rng, unit="nats")
        yield _score("generation", "distinct_2", group, 0.6, None, n=1_000, rng=rng)
    for metric, value in (("fluency_of_text", 4.1), ("distinct_2_of_text", 0.7)):
        yield {"measure": "generation", "metric": metric, "value": value, "n": 1_000}


def _early(arm, rng, step, tasks):
    share = np.log2(1 + step) / np.log2(501)
    for group in ("blimp", "lm_syneval"):
        if arm in PAIRS[group]:
            value = 0.5 + share * (PAIRS[group][arm] - 0.5)
            yield _score("minimal_pairs", "accuracy", group, value, 0.5, n=46_993, rng=rng)
    floor, values = tasks.get("sst2", (0.5, dict.fromkeys(ARMS, 0.7)))
    yield _score("fine_tuning", "score", "sst2", floor + share * (values[arm] - floor), floor, n=872, rng=rng)
