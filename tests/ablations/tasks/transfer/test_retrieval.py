"""Retrieval with planted vectors, planted texts and tiny encoders.

TF-IDF features against the formula, one sentence at a time.
"""

import gzip
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.sparse import csr_matrix

from ablations.catalogue import caveats, for_run
from ablations.errors import MeasureError
from ablations.runs import rows as run_rows
from ablations.tasks.datasets import TASKS, no_documents
from ablations.tasks.encoding import encode_texts, pooled_states, term_counts, tfidf_features
from ablations.tasks.examples import Examples, subset
from ablations.tasks.settings import RetrievalSettings
from ablations.tasks.transfer import retrieval
from ablations.tasks.transfer.retrieval import (
    Followed,
    Vectors,
    best,
    centred,
    cosines,
    cross_encoder,
    followed_sentences,
    next_sentence_rows,
    ranks,
    recall,
    recalls,
    reciprocal_rank,
    relatedness,
    relatedness_rows,
    reranked,
    unit,
    wrong_seconds,
)
from ablations.tasks.transfer.training import Trained
from lightning_modules.config import FilesData, HubData, LanguageData
from lightning_modules.data.tokenizer import FIRST_WORD_ID, decode
from lightning_modules.objectives import build
from tests.support.errors import error_text
from tests.support.tiny_text import WORDS, sentences, settings


def test_counts_are_those_of_text_alone(tokens):
    split = tokens.validation
    counts = term_counts(split, vocab_size=tokens.vocab_size).toarray()
    assert counts.shape == (len(split), tokens.vocab_size)
    assert counts[:, 2:FIRST_WORD_ID].sum() == 0  # START, END and MASK; an unknown piece is text
    for i in (0, 5, len(split) - 1):
        assert np.array_equal(counts[i], np.bincount(split.sentence(i)[1:-1], minlength=tokens.vocab_size))


def test_features_are_counts_times_the_rarity_in_training_text_at_unit_length(tokens):
    features = tfidf_features(tokens.validation, train=tokens.train, vocab_size=tokens.vocab_size).toarray()
    S = len(tokens.train)
    seen_in = np.zeros(tokens.vocab_size)
    for i in range(S):
        seen_in[np.unique(tokens.train.sentence(i)[1:-1])] += 1
    for i in (0, 3, 20):
        expected = np.zeros(tokens.vocab_size)
        for id_ in tokens.validation.sentence(i)[1:-1].tolist():
            expected[id_] += math.log((1 + S) / (1 + seen_in[id_])) + 1
        np.testing.assert_allclose(features[i], expected / np.linalg.norm(expected), atol=1e-12)


# Ranks -----------------------------------------------------------------------------------------------


def test_ranks_by_hand():
    score_QC = np.array([[3.0, 5, 1, 5], [3.0, 5, 1, 5], [3.0, 5, 1, 5], [2.0, 2, 2, 2]])
    found = ranks(score_QC, np.array([0, 1, 2, 3]))
    assert found.above_Q.tolist() == [2, 0, 3, 0]
    assert found.equal_Q.tolist() == [1, 2, 1, 4]
    assert recall(found, 1).tolist() == [0, 1 / 2, 0, 1 / 4]
    assert recall(found, 2).tolist() == [0, 1, 0, 1 / 2]
    assert recall(found, 3).tolist() == [1, 1, 0, 3 / 4]
    quarter = (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4
    np.testing.assert_allclose(reciprocal_rank(found), [1 / 3, (1 + 1 / 2) / 2, 1 / 4, quarter], rtol=1e-15)
    assert best(score_QC, 3).tolist() == [[1, 3, 0]] * 3 + [[0, 1, 2]]


def test_equal_candidates_count_as_if_chance_had_put_them_in_order():
    rng, orders = np.random.default_rng(0), 20_000
    score_C = rng.integers(0, 3, 12).astype(float)
    found = ranks(score_C[None], np.array([4]))
    assert found.equal_Q[0] > 2
    noise = rng.uniform(0, 0.5, (orders, 12))
    broken = ranks(score_C + noise, np.full(orders, 4))
    for of in (lambda x: recall(x, 3), reciprocal_rank):
        value = of(broken)
        assert of(found)[0] == pytest.approx(value.mean(), abs=4 * value.std() / orders**0.5)


def planted(first_PD, second_PD, layer=2, suffix=""):
    return Vectors(layer, suffix, unit(np.asarray(first_PD, float)), unit(np.asarray(second_PD, float)))


def by_metric(rows):
    return {row["metric"]: row for row in rows}


def test_the_place_of_the_right_one_is_found_exactly():
    # Candidates at angles 0, 1, 2, ... degrees; query i at the angle of candidate i + i, so i stands as the one
    # farther than i others on one side and as many on the other, or as there are.
    C = 50
    angle = np.radians(np.arange(C))
    candidates = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    shifted = np.radians(np.arange(C) * 2 + 0.25)
    queries = 7 * np.stack([np.cos(shifted), np.sin(shifted)], axis=1)  # length does not matter
    nearer = [sum(abs(c - (2 * q + 0.25)) < q + 0.25 for c in range(C)) for q in range(C)]
    found = by_metric(recalls(planted(queries, candidates)))
    assert found["recall_at_1"]["value"] == np.mean([n < 1 for n in nearer])
    assert found["recall_at_20"]["value"] == np.mean([n < 20 for n in nearer])
    assert found["reciprocal_rank"]["value"] == pytest.approx(np.mean([1 / (n + 1) for n in nearer]))
    hits = np.array([n < 20 for n in nearer])
    assert found["recall_at_20"]["standard_error"] == pytest.approx(hits.std(ddof=1) / C**0.5)
    assert {row["n"] for row in found.values()} == {C}
    assert {row["layer"] for row in found.values()} == {2}


def test_who_tells_nothing_apart_guesses():
    found = by_metric(recalls(planted(np.ones((40, 3)), np.ones((40, 3)))))
    for row in found.values():
        assert row["value"] == pytest.approx(row["floor"], rel=1e-12)
    assert found["recall_at_1"]["floor"] == 1 / 40
    assert found["recall_at_20"]["floor"] == 1 / 2
    assert found["reciprocal_rank"]["floor"] == pytest.approx((1 / np.arange(1, 41)).mean())
    assert by_metric(recalls(planted(np.eye(40), np.eye(40))))["recall_at_1"]["value"] == 1
    backwards = by_metric(recalls(planted(np.eye(40), -np.eye(40))))
    assert backwards["recall_at_1"]["value"] == backwards["recall_at_20"]["value"] == 0
    # None of forty is no sure thing, as one in forty is what guesses get.
    assert backwards["recall_at_1"]["value"] + 2 * backwards["recall_at_1"]["standard_error"] > 1 / 40


def test_equal_states_are_tied_wherever_they_stand():
    # In single precision, products of equal rows differ by their place in the matrix.
    state = np.random.default_rng(0).normal(size=768).astype(np.float32)
    equal = unit(np.tile(state, (1000, 1)))
    for row in recalls(Vectors(2, "", equal, equal)):
        assert row["value"] == pytest.approx(row["floor"], rel=1e-12)


def test_sparse_vectors_have_the_rows_of_dense_ones():
    rng = np.random.default_rng(3)
    first, second = (unit(rng.poisson(0.3, (60, 40)).astype(np.float32)) for _ in range(2))
    dense, sparse = Vectors(None, "", first, second), Vectors(None, "", csr_matrix(first), csr_matrix(second))
    np.testing.assert_allclose(cosines(sparse), cosines(dense), rtol=2**-23, strict=True)
    numbers = rng.normal(size=60).tolist()
    assert list(recalls(sparse)) == list(recalls(dense))
    assert relatedness(sparse, numbers) == pytest.approx(relatedness(dense, numbers))


def test_a_state_of_zeros_is_equally_far_from_all():
    vectors = planted(np.zeros((4, 3)), np.eye(4)[:, :3])
    assert np.isfinite(vectors.first_PD).all()
    assert by_metric(recalls(vectors))["recall_at_1"]["value"] == 1 / 4


def test_centring_takes_away_a_common_direction_and_nothing_else():
    rng = np.random.default_rng(1)
    own = rng.normal(size=(200, 8))
    common = own + 1000 * rng.normal(size=8)
    np.testing.assert_allclose(centred(common), centred(own), atol=1e-9)
    pair = np.stack([np.arange(0, 200, 2), np.arange(1, 200, 2)])
    wanted = (unit(centred(own))[pair[0]] * unit(centred(own))[pair[1]]).sum(1)
    row = relatedness(Vectors(0, "_centred", *unit(centred(common))[pair]), wanted)
    assert (row["metric"], row["value"]) == ("spearman_centred", pytest.approx(1, abs=1e-6))
    assert relatedness(Vectors(0, "", *unit(common)[pair]), wanted)["value"] < 0.9
    skewed = rng.exponential(size=(50, 3))
    np.testing.assert_allclose(centred(skewed).mean(0), 0, atol=1e-12)


def test_relatedness_is_a_correlation_of_ranks():
    angle = np.linspace(0.1, 3, 30)
    vectors = planted(np.tile([1.0, 0], (30, 1)), np.stack([np.cos(angle), np.sin(angle)], axis=1))
    assert relatedness(vectors, np.exp(-angle))["value"] == pytest.approx(1)
    assert relatedness(vectors, angle.tolist())["value"] == pytest.approx(-1)
    assert relatedness(planted(np.ones((5, 2)), np.ones((5, 2))), [1.0, 2, 3, 4, 5])["value"] == 0
    shuffled = np.random.default_rng(0).permutation(30)
    row = relatedness(vectors, shuffled.tolist())
    assert row["value"] == pytest.approx(stats.spearmanr(np.cos(angle), shuffled).statistic)
    assert (row["floor"], row["n"]) == (0.0, 30)


def test_the_standard_error_of_relatedness_is_how_far_it_varies():
    rng, n, drawings, rho = np.random.default_rng(2), 200, 1500, 0.6
    x, y = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], (drawings, n)).transpose(2, 0, 1)
    angle = np.pi / 2 - np.arctan(x)  # with the first axis: cosines in the order of x
    first = np.tile([1.0, 0], (n, 1))
    rows = [
        relatedness(planted(first, np.stack([np.cos(a), np.sin(a)], axis=1)), related)
        for a, related in zip(angle, y, strict=True)
    ]
    spread = np.std([row["value"] for row in rows])
    # The spread of 1,500 drawings is known to 1.8%; the formula itself is a good one to a few per cent.
    assert np.mean([row["standard_error"] for row in rows]) == pytest.approx(spread, rel=0.1)


def test_ranked_again_by_hand():
    near_QK = np.array([[0, 2, 3], [2, 3, 0], [1, 2, 0], [3, 0, 1]])
    score_QK = np.array([[0.1, 0.5, 0.2], [9.0, 9, 9], [0.0, 3, 1], [4.0, 4, 1]])
    # The first has its right one, but not on top; the second has not got it; the third has it there; the fourth
    # has it there beside another one.
    row = reranked(near_QK, score_QK)
    assert row["value"] == (0 + 0 + 1 + 1 / 2) / 4
    assert row["floor"] == 3 / 4 / 3
    assert (row["metric"], row["n"]) == ("recall_at_1_reranked", 4)


# Texts -----------------------------------------------------------------------------------------------


def with_documents(split, length):
    return replace(split, documents=(np.arange(len(split)) // length).astype(np.int32))


def test_pairs_follow_each_other_in_a_document_and_no_text_is_there_twice(tokens):
    split = with_documents(tokens.train, 5)
    found = followed_sentences(split, tokens.tokenizer, 10**6)
    texts = [decode(tokens.tokenizer, split.sentence(i)) for i in range(len(split))]
    both = [*found.first, *found.second]
    assert len(both) == len(set(both))
    place = {text: i for i, text in enumerate(texts)}
    first, second = ([place[text] for text in side] for side in found)
    assert all(b == a + 1 for a, b in zip(first, second, strict=True))
    assert {a % 5 for a in first} == {0, 2}  # of five sentences two pairs; the fifth has no partner
    assert len(first) == 2 * 120  # all texts differ here
    assert first != sorted(first)
    some = followed_sentences(split, tokens.tokenizer, 30)
    assert some == Followed(found.first[:30], found.second[:30])


def test_a_text_that_is_there_twice_is_taken_once(tokens):
    split = with_documents(tokens.train.head(4), 2)
    ids = [split.sentence(i) for i in (0, 1, 0, 2, 3, 3)]
    doubled = replace(
        split,
        ids=np.concatenate(ids),
        offsets=np.cumsum([0, *map(len, ids)]),
        documents=np.array([0, 0, 1, 1, 2, 2], np.int32),
    )
    found = followed_sentences(doubled, tokens.tokenizer, 10)
    assert len(found.first) == 1
    assert found.first[0] == decode(tokens.tokenizer, split.sentence(0))


def test_documents_of_single_sentences_have_no_pairs(tokens):
    assert followed_sentences(with_documents(tokens.train, 1), tokens.tokenizer, 10) == Followed([], [])


def test_wrong_texts_are_never_the_right_ones_and_otherwise_equally_frequent():
    counts = np.zeros((6, 6), int)
    n = 3000
    second = [str(i % 6) for i in range(6 * n)]
    for right, wrong in zip(second, wrong_seconds(second), strict=True):
        counts[int(right), int(wrong)] += 1
    p = 1 / 6  # other copies of the same text are wrong ones here
    assert abs(counts / n - p).max() < 5 * (p * (1 - p) / n) ** 0.5
    numbers = [str(i) for i in range(500)]
    assert not any(a == b for a, b in zip(numbers, wrong_seconds(numbers), strict=True))


# Cross-encoder ---------------------------------------------------------------------------------------

TOPICS = [WORDS[i : i + 6] for i in (0, 6, 12)]


def of_topics(count, *, seed, same):
    """Pairs of sentences of one topic each; the same in both, or not more often than by chance."""
    rng = np.random.default_rng(seed)
    topic_P = rng.integers(0, 3, count)
    other_P = topic_P if same else rng.integers(0, 3, count)
    draw = lambda topic: " ".join(rng.choice(TOPICS[topic], 8))  # noqa: E731
    return Followed([draw(topic) for topic in topic_P], [draw(topic) for topic in other_P])


def test_pairs_that_are_held_out_share_no_text_with_those_that_are_learned_from(tokens, monkeypatch):
    seen = []

    def untrained(trainee, texts, index_M, recipe, **rest):
        seen.append((texts.examples, index_M))
        return Trained(0.0, trainee.state_dict())

    monkeypatch.setattr("ablations.tasks.transfer.retrieval.train", untrained)
    pairs = Followed([f"dog {i}" for i in range(50)], [f"cat {i}" for i in range(50)])
    objective, wanted = build(settings("masked_lm"), tokens), RetrievalSettings(kind="retrieval")
    cross_encoder(objective, pairs, tokens.tokenizer, wanted, max_length=64, say=lambda line: None)
    ((examples, learned),) = seen
    held = np.setdiff1d(np.arange(len(examples)), learned)
    assert (len(held), len(learned)) == (2 * 5, 2 * 45)
    assert not {*examples.take(held).second} & {*examples.take(learned).second}


@pytest.mark.parametrize("same", [True, False])
def test_a_cross_encoder_learns_what_is_there_to_be_learned(same, tokens, monkeypatch):
    objective = build(settings("masked_lm", encoder={"dropout": 0.0}), tokens).eval()
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    asked = RetrievalSettings(kind="retrieval", epochs=1)
    monkeypatch.setattr("ablations.tasks.transfer.retrieval.LEAST_STEPS", 100)
    said = []
    score = cross_encoder(
        objective,
        of_topics(600, seed=0, same=same),
        tokens.tokenizer,
        asked,
        max_length=64,
        say=said.append,
    )
    assert all(torch.equal(value, before[name]) for name, value in objective.state_dict().items())
    n = 500
    test = of_topics(n, seed=1, same=same)
    wrong = np.roll(test.second, 1).tolist()
    right = (score(*test) > score(test.first, wrong)).mean()
    # Where the topics are alike the best that can be done is 5 in 6; where not, 1 in 2.
    if same:
        assert right > 0.5 + 5 * 0.5 / n**0.5
    else:
        assert right == pytest.approx(0.5, abs=4 * 0.5 / n**0.5)
    assert len(said) == 1


def test_the_encoder_is_trained_with_the_head(tokens, monkeypatch):
    monkeypatch.setattr("ablations.tasks.transfer.retrieval.LEAST_STEPS", 5)
    objective, pairs = build(settings("masked_lm"), tokens).eval(), of_topics(40, seed=0, same=True)

    def scores(rate):
        asked = RetrievalSettings(kind="retrieval", epochs=1, learning_rate=rate)
        trained = cross_encoder(objective, pairs, tokens.tokenizer, asked, max_length=64, say=lambda line: None)
        return trained(*pairs)

    assert np.array_equal(scores(1e-3), scores(1e-3))
    assert not np.allclose(scores(1e-3), scores(1e-9))


def test_the_epoch_is_chosen_on_pairs_that_were_not_learned_from(tokens, monkeypatch):
    learned, scored = [], []

    def read(texts, index):
        return [texts.rows.rows[i].ids_T.tobytes() for i in index]

    def training(trainee, texts, index_M, recipe, *, score, say):
        learned.extend(read(texts, index_M))
        return train(trainee, texts, index_M, recipe, score=score, say=say)

    def scoring(trainee, texts):
        scored.append(read(texts, range(len(texts))))
        return scores(trainee, texts)

    scores, train = retrieval._scores, retrieval.train
    monkeypatch.setattr(retrieval, "_scores", scoring)
    monkeypatch.setattr(retrieval, "train", training)
    monkeypatch.setattr(retrieval, "LEAST_STEPS", 5)
    pairs = Followed(sentences(60, seed=5), sentences(60, seed=6))
    asked = RetrievalSettings(kind="retrieval", epochs=2)
    objective = build(settings("masked_lm"), tokens).eval()
    cross_encoder(objective, pairs, tokens.tokenizer, asked, max_length=64, say=lambda line: None)
    assert len(scored) == 2
    assert [len(texts) for texts in scored] == [2 * 6] * 2
    assert len(learned) == 2 * 54
    assert not set(learned) & set(scored[0])


# Rows ------------------------------------------------------------------------------------------------

ASKED = RetrievalSettings(kind="retrieval", pairs=30, candidates=40, training_pairs=40, epochs=1)


def of_task(name):
    return ASKED.model_copy(update={"tasks": (name,)})


def examples(count=50):
    first, second = sentences(count, seed=5), sentences(count, seed=6)
    return Examples(first, second, None, np.random.default_rng(0).uniform(0, 5, count).tolist())


def found_rows(kind, tokens):
    objective = build(settings(kind), tokens).eval()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablations.tasks.transfer.retrieval.LEAST_STEPS", 5)
        rows = list(relatedness_rows(objective, tokens, of_task("stsb"), examples(), max_length=64))
        rows += next_sentence_rows(objective, tokens, of_task("next_sentence"), max_length=64)
    keyed = {(row["group"], row["layer"], row["metric"]): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


@pytest.fixture(scope="module")
def in_documents(tokens):
    return replace(tokens, train=with_documents(tokens.train, 4), validation=with_documents(tokens.validation, 4))


@pytest.fixture(scope="module")
def masked(in_documents):
    return found_rows("masked_lm", in_documents)


def test_every_layer_both_ways_and_tfidf_and_the_cross_encoder(masked):
    expected = {("next_sentence", None, "recall_at_1_reranked")}
    for group, metrics in {
        "stsb": ["spearman"],
        "next_sentence": ["recall_at_1", "recall_at_20", "reciprocal_rank"],
    }.items():
        for metric in metrics:
            expected |= {(group, layer, metric) for layer in (0, 1, 2)}
            expected |= {(group, layer, f"{metric}_centred") for layer in (0, 1, 2)}
            expected |= {(group, None, f"{metric}_tfidf")}
    assert set(masked) == expected
    assert {row["n"] for (group, *_), row in masked.items() if group == "stsb"} == {30}
    assert {row["n"] for (group, *_), row in masked.items() if group == "next_sentence"} == {40}
    reachable = masked["next_sentence", 2, "recall_at_20_centred"]["value"]
    assert masked["next_sentence", None, "recall_at_1_reranked"]["floor"] == pytest.approx(reachable / 20)
    assert masked["next_sentence", None, "recall_at_1_reranked"]["value"] <= reachable


def test_a_number_worked_out_from_the_states_of_single_texts(masked, tokens):
    objective = build(settings("masked_lm"), tokens).eval()
    chosen = subset(examples(), 30, seed=0)
    cosines = []
    for a, b in zip(chosen.first, chosen.second, strict=True):
        x, y = (
            pooled_states(objective, encode_texts([text], tokens.tokenizer, max_length=64))[2, 0]
            for text in (a, b)
        )
        cosines.append(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    expected = stats.spearmanr(cosines, chosen.answers).statistic
    # States differ by rounding with what a text is batched with, which moves no cosine past another one here.
    assert min(np.diff(np.sort(cosines))) > 1e-6
    assert masked["stsb", 2, "spearman"]["value"] == pytest.approx(expected, abs=1e-12)


def test_tfidf_is_the_same_for_all_encoders_and_states_are_not(masked, in_documents):
    other = found_rows("causal_lm", in_documents)
    assert set(other) == set(masked)
    for key, row in masked.items():
        if key[2].endswith("_tfidf"):
            assert row == other[key]
    assert any(masked["stsb", 2, m] != other["stsb", 2, m] for m in ("spearman", "spearman_centred"))


def test_global_random_numbers_do_not_matter(masked, in_documents):
    torch.manual_seed(99)
    assert found_rows("masked_lm", in_documents) == masked


def test_each_text_is_encoded_once(in_documents, monkeypatch):
    read = []

    def counted(objective, rows):
        read.extend(row.ids_T.tobytes() for row in rows.rows)
        return pooled_states(objective, rows)

    monkeypatch.setattr("ablations.tasks.transfer.retrieval.pooled_states", counted)
    found_rows("masked_lm", in_documents)
    assert len(read) == len(set(read)) == 2 * (30 + 40)


@pytest.mark.parametrize(
    ("train", "validation", "where"), [(400, 1, "data.validation has 0 pairs"), (1, 400, "data.train has 0 pairs")]
)
def test_text_of_single_sentences_is_refused(train, validation, where, tokens):
    text = replace(
        tokens,
        train=with_documents(tokens.train, train),
        validation=with_documents(tokens.validation, validation),
    )
    objective = build(settings("masked_lm"), text).eval()
    assert error_text(
        MeasureError, lambda: next(next_sentence_rows(objective, text, of_task("next_sentence"), max_length=64))
    ) == (
        f"{where} of sentences that follow each other in a document and occur nowhere else, but next_sentence "
        "needs 40; give more text, or leave next_sentence out of the measure's tasks."
    )


# Which tasks are asked -------------------------------------------------------------------------------

FOLLOW = "next_sentence"
NO_COLUMN = "data.document is not set, so it is not known which sentences follow each other"


def files(train="t.txt", validation="v.txt", **more):
    return FilesData.model_validate({"kind": "files", "train": train, "validation": validation} | more)


def test_documents_are_known_where_the_data_say_so(tmp_path):
    assert no_documents(LanguageData(kind="language"), tmp_path) is None
    assert no_documents(files("t.parquet", "v.parquet", document="doc_id"), tmp_path) is None
    hub = {"kind": "hub", "path": "somewhere", "revision": "main"}
    assert no_documents(HubData.model_validate(hub | {"document": "doc_id"}), tmp_path) is None
    assert no_documents(HubData.model_validate(hub), tmp_path) == NO_COLUMN
    for mixed in (files("t.parquet"), files(validation="v.tsv.gz"), files(["t.txt", "u.csv"])):
        assert no_documents(mixed, tmp_path) == NO_COLUMN
    halved = files("t.parquet", "v.parquet", document="doc_id", half="first")
    assert no_documents(halved, tmp_path) == (
        "data.half = first takes only half of the training sentences, so the remaining neighbours may not "
        "follow each other in the document"
    )


def test_blank_lines_between_sentences_are_documents(tmp_path):
    (tmp_path / "t.txt").write_text("\nA b.\nC d.\n\nE f.\n")
    with gzip.open(tmp_path / "v.txt.gz", "wt") as file:
        file.write("A b.\n  \nC d.\n")
    (tmp_path / "T.TXT").write_text("A b.\n\nE f.\n")
    assert no_documents(files(validation="v.txt.gz"), tmp_path) is None
    assert no_documents(files("T.TXT", "v.txt.gz"), tmp_path) is None
    # Before the first sentence and behind the last a blank line divides nothing.
    (tmp_path / "v.txt").write_text("\n\nA b.\nC d.\n\n\n")
    none_in = "v.txt has no blank line in its first 10,000, so it is not known where documents end"
    assert no_documents(files(), tmp_path) == none_in
    assert no_documents(files(["t.txt", "v.txt"], "t.txt"), tmp_path) == none_in  # one file is enough to mislead
    assert no_documents(files(), tmp_path / "elsewhere") == f"t.txt is not in {tmp_path / 'elsewhere'}"


def test_a_long_file_is_not_read_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("ablations.tasks.datasets.LINES", 3)
    (tmp_path / "t.txt").write_text("A\n\nB\n")
    (tmp_path / "v.txt").write_text("A\nB\n\nC\n")
    assert no_documents(files(validation="t.txt"), tmp_path) is None
    assert no_documents(files(), tmp_path) == (
        "v.txt has no blank line in its first 3, so it is not known where documents end"
    )


def with_data(data):
    return settings("masked_lm").model_copy(update={"data": data})


def asked_of(run, measures, **more):
    return [part.tasks for part in for_run(measures, run, **more)]


def test_what_cannot_be_asked_is_said_and_asked_for_when_it_can_be(tmp_path):
    measures = [RetrievalSettings(kind="retrieval")]
    run = with_data(files("t.parquet", "v.parquet"))
    first = {name: next(iter(TASKS[name].files.values())) for name in ("stsb", "sick_relatedness")}
    assert asked_of(run, measures, data_root=tmp_path) == []
    assert caveats(measures, {"mlm": run}, data_root=tmp_path) == [
        f"retrieval: stsb and sick_relatedness not run: {first['stsb']} and others are not in {tmp_path}.",
        f"retrieval: next_sentence not run: {NO_COLUMN}.",
    ]
    for path in TASKS["stsb"].files.values():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert asked_of(run, measures, data_root=tmp_path) == [("stsb",)]
    assert asked_of(run, measures) == [("stsb",), ("sick_relatedness",), (FOLLOW,)]  # rows of any of them count
    # Each has a key of its own: what has rows does not hide what has none.
    parts = list(for_run(measures, run))
    assert len({run_rows.key(part) for part in parts}) == 3


def test_the_arms_that_a_task_is_not_run_for_are_named(tmp_path):
    measures = [RetrievalSettings(kind="retrieval", tasks=(FOLLOW,))]
    runs = {
        "plain": with_data(files("t.parquet", "v.parquet")),
        "novels": with_data(files("t.parquet", "v.parquet", document="doc_id")),
        "language": with_data(LanguageData(kind="language")),
    }
    assert caveats(measures, runs, data_root=tmp_path) == [
        f"retrieval: next_sentence not run for plain: {NO_COLUMN}."
    ]
    assert [asked_of(run, measures, data_root=tmp_path) for run in runs.values()] == [[], [(FOLLOW,)], [(FOLLOW,)]]


def test_of_the_built_in_language_the_next_sentence_is_asked_alone(tmp_path):
    run = with_data(LanguageData(kind="language"))
    measures = [RetrievalSettings(kind="retrieval")]
    assert asked_of(run, measures, data_root=tmp_path) == [(FOLLOW,)]
    assert caveats(measures, {"mlm": run}, data_root=tmp_path) == []
