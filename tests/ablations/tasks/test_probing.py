"""Probes on planted states: the layer that knows is found, and a probe that memorises is found out."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from ablations.errors import MeasureError
from ablations.tasks import linear, probing
from ablations.tasks.datasets import TASKS
from ablations.tasks.examples import Examples
from ablations.tasks.linear import learned_mix, mixed
from ablations.tasks.metrics import standard_error
from ablations.tasks.probing import (
    ANSWERS,
    FEWEST,
    NO_WORD,
    Probed,
    control_labels,
    deciding_words,
    probing_rows,
    task_rows,
)
from ablations.tasks.settings import ProbingSettings
from ablations.wording import listed
from tests.support.errors import error_text
from tests.support.tiny_text import sentences

SIZES = {"train": 600, "validation": 200, "test": 400}
LAYERS, WIDTH, KNOWS = 4, 16, 2
WORDS = 30


def planted(*, knows=KNOWS, memorises=None, signal=4.0, per_sentence=1):
    """States of `WORDS` kinds of examples: layer `knows` holds the label, layer `memorises` which kind it is."""
    rng = np.random.default_rng(0)
    kind_of_control = rng.choice(["a", "b", "c"], WORDS)
    name_of_kind = np.linalg.qr(rng.normal(size=(WORDS, WORDS)))[0]
    width = WIDTH if memorises is None else WORDS
    parts = {}
    for split, count in SIZES.items():
        labels, kinds = rng.choice(["a", "b", "c"], count), rng.integers(0, WORDS, count)
        states_LND = rng.normal(size=(LAYERS, count, width)).astype(np.float32)
        if knows is not None:
            states_LND[knows, :, :3] += signal * (labels[:, None] == np.array(["a", "b", "c"]))
        if memorises is not None:
            states_LND[memorises] += 20 * name_of_kind[kinds]
        sentence_N = np.arange(count) // per_sentence
        parts[split] = Probed(states_LND, labels, kind_of_control[kinds], sentence_N)
    return parts


def of_layers(parts, *layers):
    """The same examples with some of the layers alone."""
    return {split: replace(part, states_LND=part.states_LND[list(layers)]) for split, part in parts.items()}


def table(parts):
    rows = list(task_rows(parts, group="made up"))
    return {(row["metric"], row["layer"]): {**row, ANSWERS: list(row.get(ANSWERS, ()))} for row in rows}


@pytest.fixture(scope="module")
def found():
    return table(planted())


@pytest.fixture
def hardly_learned_mix(monkeypatch):
    """For tests of single layers: a mix is learned for each of ten blocks, which takes most of the time."""
    monkeypatch.setattr(linear, "STEPS", 5)


def test_every_layer_and_the_mix_have_all_metrics(found):
    metrics = ("accuracy", "selectivity", "code_length", "compression")
    wanted = {(metric, layer) for metric in metrics for layer in (*range(LAYERS), None)}
    assert set(found) == wanted | {("mix_weight", layer) for layer in range(LAYERS)}
    assert {row["group"] for row in found.values()} == {"made up"}
    assert all(found[metric, 0]["n"] == SIZES["test"] for metric in metrics[:2])
    assert all(found[metric, 0]["n"] == SIZES["train"] for metric in metrics[2:])
    assert all(found[metric, layer]["d"] == WIDTH for metric in metrics for layer in (0, None))


def test_the_code_is_of_the_training_labels_alone_and_noise_costs_little_more_than_frequencies(found):
    """Whatever strength of the probe the validation part would choose. What it cannot change is the same again."""
    parts = planted()
    shuffled = np.random.default_rng(1).permutation(parts["validation"].label_N)
    other = table(parts | {"validation": replace(parts["validation"], label_N=shuffled)})
    for layer in (*range(LAYERS), None):
        assert other["code_length", layer] == found["code_length", layer]
        assert other["compression", layer] == found["compression", layer]
    for layer in range(LAYERS):
        assert other["mix_weight", layer] == found["mix_weight", layer]
    for layer in set(range(LAYERS)) - {KNOWS}:
        row = found["code_length", layer]
        assert row["floor"] * 0.97 < row["value"] < row["floor"] * 1.05


def test_a_label_in_one_layer_is_read_there_and_nowhere_else(found):
    accuracy = {layer: found["accuracy", layer]["value"] for layer in range(LAYERS)}
    assert accuracy.pop(KNOWS) > 0.9
    error = 0.5 / SIZES["test"] ** 0.5  # of a guess, at most
    assert all(abs(value - 1 / 3) < 4 * error for value in accuracy.values())
    length = {layer: found["code_length", layer]["value"] for layer in range(LAYERS)}
    assert length.pop(KNOWS) < 0.5 * min(length.values())
    uniform = SIZES["train"] * np.log(3)
    for layer in range(LAYERS):
        row = found["compression", layer]
        assert row["value"] == pytest.approx(uniform / found["code_length", layer]["value"])
        assert row["standard_error"] / row["value"] == pytest.approx(
            found["code_length", layer]["standard_error"] / found["code_length", layer]["value"]
        )
        assert layer == KNOWS or row["value"] < 1.03  # nothing to compress
    assert found["code_length", 0]["unit"] == "nats"


def test_the_mix_finds_the_layer_that_knows(found):
    weights = [found["mix_weight", layer]["value"] for layer in range(LAYERS)]
    assert sum(weights) == pytest.approx(1)
    assert weights[KNOWS] > 0.7
    assert found["mix_weight", 0]["floor"] == 1 / LAYERS
    best, mix = found["accuracy", KNOWS], found["accuracy", None]
    assert mix["value"] > best["value"] - 4 * best["standard_error"]
    assert found["code_length", None]["value"] < 0.5 * found["code_length", 0]["value"]


@pytest.mark.usefixtures("hardly_learned_mix")
def test_a_mix_is_probed_as_a_layer_of_the_same_information_is(found):
    """The mean of a layer, itself again and its negative is the layer, but for its scale."""
    negative = {
        split: replace(part, states_LND=part.states_LND * np.float32([[[1]], [[1]], [[-1]]]))
        for split, part in of_layers(planted(), KNOWS, KNOWS, KNOWS).items()
    }
    mix = table(negative)
    for metric in ("accuracy", "selectivity", "code_length", "compression"):
        assert mix[metric, None]["value"] == pytest.approx(found[metric, KNOWS]["value"], rel=1e-3)  # fp32 fits
    assert mix["mix_weight", 0]["value"] < 0.6


def test_floors_are_those_of_the_labels_frequencies(found):
    parts = planted()
    _, counts = np.unique(parts["test"].label_N, return_counts=True)
    floor = counts.max() / counts.sum()
    names, counts = np.unique(parts["train"].control_N, return_counts=True)
    control_guess = names[counts.argmax()]
    assert found["accuracy", 1]["floor"] == floor
    assert found["selectivity", 1]["floor"] == pytest.approx(
        floor - (parts["test"].control_N == control_guess).mean()
    )
    uniform = SIZES["train"] * np.log(3)
    for layer in (0, KNOWS):
        assert found["compression", layer]["floor"] == pytest.approx(1, abs=0.02)
        assert found["code_length", layer]["floor"] == pytest.approx(uniform / found["compression", 0]["floor"])


@pytest.mark.usefixtures("hardly_learned_mix")
def test_errors_are_binomial_and_larger_where_examples_share_a_sentence(found):
    row = found["accuracy", KNOWS]
    p, n = row["value"], row["n"]
    assert row["standard_error"] == pytest.approx((p * (1 - p) / (n - 1)) ** 0.5)
    in_fours = table(of_layers(planted(per_sentence=4), KNOWS))["accuracy", 0]
    assert in_fours["value"] == p
    assert in_fours["standard_error"] != row["standard_error"]


@pytest.mark.usefixtures("hardly_learned_mix")
def test_a_probe_that_can_memorise_has_no_selectivity_where_labels_are_kinds():
    """In layer 1 each kind of input has a direction of its own, so that any labels of kinds can be read."""
    rows = table(of_layers(planted(memorises=1), 1, KNOWS))
    memory, knowledge = rows["selectivity", 0], rows["selectivity", 1]
    control = rows["accuracy", 0]["value"] - memory["value"]
    assert control > 0.9
    assert memory["value"] < -0.4  # it reads the control task and not the real one
    assert knowledge["value"] > 0.4
    assert rows["accuracy", 1]["value"] - knowledge["value"] < 0.5


@pytest.mark.usefixtures("hardly_learned_mix")
def test_a_control_task_of_one_label_gives_no_selectivity(found):
    """If no word is in ten training texts, all texts are of one kind."""
    parts = of_layers(planted(), KNOWS)
    of_one_kind = {
        split: replace(part, control_N=np.full_like(part.control_N, "a")) for split, part in parts.items()
    }
    assert {metric for metric, _ in found} - {metric for metric, _ in table(of_one_kind)} == {"selectivity"}


@pytest.mark.usefixtures("hardly_learned_mix")
def test_a_layer_has_the_same_rows_whatever_other_layers_there_are(found):
    again = table(of_layers(planted(), KNOWS))
    for metric in ("accuracy", "selectivity", "code_length", "compression"):
        assert again[metric, 0] == found[metric, KNOWS] | {"layer": 0}


def test_one_class_is_refused():
    parts = planted()
    only = {split: replace(part, label_N=np.full(len(part.label_N), "a")) for split, part in parts.items()}
    assert error_text(MeasureError, lambda: list(task_rows(only, group="made up"))) == (
        "probing: the 600 training examples of made up have only one class, but a probe needs two; raise the "
        "measure's `examples` if the task has more, or leave the task out."
    )


# The mix ---------------------------------------------------------------------------------------------


def test_without_a_label_anywhere_the_mix_prefers_no_layer_much():
    parts = planted(knows=None)
    weight_L = learned_mix(
        parts["train"].states_LND, np.unique(parts["train"].label_N, return_inverse=True)[1], classes=3, seed=0
    )
    assert weight_L.max() < 0.6


def test_a_mix_depends_on_its_seed_and_not_on_the_global_one():
    import torch

    states_LND = planted()["train"].states_LND
    label_N = np.unique(planted()["train"].label_N, return_inverse=True)[1]
    torch.manual_seed(1)
    first = learned_mix(states_LND, label_N, classes=3, seed=0)
    torch.manual_seed(2)
    assert (learned_mix(states_LND, label_N, classes=3, seed=0) == first).all()
    assert not (learned_mix(states_LND, label_N, classes=3, seed=1) == first).all()
    assert mixed(states_LND, np.eye(LAYERS)[1]) == pytest.approx(states_LND[1])


# Control tasks ---------------------------------------------------------------------------------------


def test_the_rarest_word_of_enough_training_sentences_decides():
    train = ["The dog sees"] * FEWEST + ["the cat"] * (FEWEST + 1) + ["the owl"] * (FEWEST - 1)
    texts = ["cat the dog", "The cat!", "an owl", "the owl", "ant", "sees dog"]
    assert deciding_words(texts, train=train) == ["dog", "cat", NO_WORD, "the", NO_WORD, "dog"]


def test_a_kind_has_one_label_drawn_from_those_of_the_task():
    kinds = [str(i) for i in range(3000)]
    labels = ["a"] * 70 + ["b"] * 20 + ["c"] * 10
    drawn = control_labels(kinds, labels=labels, seed=0)
    for name, share in (("a", 0.7), ("b", 0.2), ("c", 0.1)):
        assert abs((drawn == name).mean() - share) < 4 * (share * (1 - share) / 3000) ** 0.5  # standard errors
    assert control_labels([*reversed(kinds)], labels=labels, seed=0).tolist() == drawn.tolist()[::-1]
    assert control_labels(kinds, labels=labels, seed=1).tolist() != drawn.tolist()


# Standard errors -------------------------------------------------------------------------------------


def test_values_that_are_copies_count_once():
    value_N = np.random.default_rng(0).normal(size=100)
    single = standard_error(value_N, np.arange(100))
    assert single == pytest.approx(value_N.std(ddof=1) / 10)
    assert standard_error(np.repeat(value_N, 5), np.repeat(np.arange(100), 5)) == pytest.approx(single)
    assert standard_error(np.repeat(value_N, 5), np.arange(500)) < 0.6 * single
    assert np.isnan(standard_error(value_N, np.zeros(100, int)))


def test_the_error_of_clusters_is_that_of_drawing_clusters_again():
    rng = np.random.default_rng(1)
    cluster_N = np.repeat(np.arange(200), rng.integers(1, 12, 200))
    value_N = rng.normal(size=200)[cluster_N] + rng.normal(size=len(cluster_N))
    sums, sizes = np.bincount(cluster_N, weights=value_N), np.bincount(cluster_N)
    drawn = rng.integers(0, 200, (4000, 200))
    bootstrap = (sums[drawn].sum(1) / sizes[drawn].sum(1)).std()
    # 4,000 resamplings know a standard deviation to 1.1%; the rest is that both are approximations.
    assert standard_error(value_N, cluster_N) == pytest.approx(bootstrap, rel=0.1)


# Of an encoder ---------------------------------------------------------------------------------------


def probing_settings(task, **more):
    return ProbingSettings.model_validate({"kind": "probing", "tasks": [task], **more})


def texts_of(seed, count=120):
    texts = sentences(count, seed=seed)
    return Examples(texts, None, None, ["dog" if " dog " in f" {text} " else "none" for text in texts])


def words_of(seed, count=60):
    words = [text.split() for text in sentences(count, seed=seed)]
    tags = [["LONG" if len(word) > 4 else "SHORT" for word in sentence] for sentence in words]
    return Examples([" ".join(sentence) for sentence in words], None, words, tags)


@pytest.mark.usefixtures("hardly_learned_mix")
def test_sentences_are_probed_at_every_layer_of_an_encoder(objective, tokens):
    splits = {split: texts_of(seed, 400) for seed, split in enumerate(("train", "validation", "test"))}
    rows = list(
        probing_rows(
            objective, tokens.tokenizer, splits, probing_settings("language_tense", effort="quick"), max_length=64
        )
    )
    accuracy = {row["layer"]: row for row in rows if row["metric"] == "accuracy"}
    assert list(accuracy) == [0, 1, 2, None]
    # Even random embeddings know something of the words that they are of.
    assert accuracy[0]["value"] > accuracy[0]["floor"] + 4 * accuracy[0]["standard_error"]
    assert {row["group"] for row in rows} == {"language_tense"}


@pytest.mark.usefixtures("hardly_learned_mix")
def test_words_are_probed_up_to_so_many_of_whole_sentences(objective, tokens):
    splits = {split: words_of(seed) for seed, split in enumerate(("train", "validation", "test"))}
    chosen = probing_settings("language_parts_of_speech", examples=100)
    rows = list(probing_rows(objective, tokens.tokenizer, splits, chosen, max_length=64))
    n = {row["metric"]: row["n"] for row in rows}
    assert 100 - 13 <= n["code_length"] <= 100
    assert n["accuracy"] == sum(map(len, splits["test"].words))


def test_control_tags_belong_to_words_whatever_their_sentence(objective, tokens):
    splits = {split: words_of(seed) for seed, split in enumerate(("train", "validation", "test"))}
    task = probing_settings("language_parts_of_speech").task
    parts = probing.probed(objective, tokens.tokenizer, task, splits, max_length=64)
    tags: dict[str, set[str]] = {}
    for split, part in parts.items():
        flat = [word for sentence in splits[split].words for word in sentence]
        assert len(flat) == len(part.control_N)  # nothing was cut off
        for word, tag in zip(flat, part.control_N.tolist(), strict=True):
            tags.setdefault(word, set()).add(tag)
        assert part.label_N.tolist() == [tag for tags_of in splits[split].answers for tag in tags_of]
    assert all(len(found) == 1 for found in tags.values())
    assert set.union(*tags.values()) == {"LONG", "SHORT"}


def test_tasks_without_classes_are_refused():
    with pytest.raises(ValidationError) as error:
        probing_settings("stsb")
    taken = [name for name, task in TASKS.items() if task.kind in ("classification", "tagging")]
    assert error.value.errors()[0]["msg"] == (
        f"has stsb, but this measure can use only {listed(taken, 'and')}; leave stsb out"
    )
