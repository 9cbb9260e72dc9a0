"""How probable a sentence is: against one forward pass for each piece, written out, and against the loss."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from ablations.catalogue import card
from ablations.errors import MeasureError
from ablations.tasks.encoding import encode_texts, pooled_states
from ablations.tasks.language_models import sentence_scores as module
from ablations.tasks.language_models.generation import next_log_probabilities
from ablations.tasks.language_models.sentence_scores import (
    Pieces,
    log_probabilities,
    masked_log_probabilities,
    pieces_of,
    pseudo_log_likelihoods,
    sentence_scores,
)
from ablations.tasks.structural_probe import tree_states
from ablations.tasks.trees import gold_trees
from lightning_modules import plugins
from lightning_modules.data.tokenizer import END, FIRST_WORD_ID, MASK, START, train
from lightning_modules.data.treebank import language_sentences
from lightning_modules.errors import PluginError
from lightning_modules.model.attention import EVERYTHING
from lightning_modules.objectives import build
from lightning_modules.objectives.causal_lm import CausalLM
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.mixture import Mixture
from lightning_modules.training.data_module import evaluate_parts
from tests.support.errors import error_text
from tests.support.tiny_text import sentences, settings

TEMPLATES = Path(__file__).parents[4] / "docs" / "plugins"
SCORED = {"causal_lm": CausalLM, "masked_lm": MaskedLM, "mixture": Mixture}
TEXTS = [*sentences(12, seed=5), "the dog", "the dog", "the cat", "", "a"]


def objective_of(kind, *, vocab_size=320, **sections):
    """One in float64 with all weights drawn, so that no piece is like another."""
    run = settings(kind, **sections)
    made = (SCORED.get(kind) or run.objective.module)(run, vocab_size=vocab_size).double()
    made.initialise()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=torch.float64), alpha=0.3)
    return made.eval()


def nats_of(objective, pieces):
    """Every score of every sentence that the objective has."""
    return np.stack([score.nats_S for score in sentence_scores(objective, pieces) if score is not None])


@torch.no_grad()
def naive(objective, shown, place, label, *, rank=None):
    """The log probability of one label at one place of one row."""
    row = torch.tensor([shown])
    sees = "left_only" if objective.run.objective.kind == "causal_lm" else objective.run.objective.sees
    top = objective.encoder(row, sees=sees, window=objective.window, rank_BT=rank)[-1]
    logits = objective.head(objective.encoder.head_input(top), objective.encoder.tokens.weight)[0, place]
    return (logits[label] - logits.exp().sum().log()).item()


def causal_naive(objective, ids):
    """One row for each prefix."""
    whole = [START, *ids, END]
    total = 0.0
    for i in range(1, len(whole)):
        prefix = whole[:i]
        position = torch.arange(i)[None]
        rank = (position, position) if objective.run.objective.kind == "mixture" else None
        total += naive(objective, prefix, i - 1, whole[i], rank=rank)
    return total


def masked_naive(objective, ids, words, *, within_word):
    """One row for each piece; `words` says which pieces a word has."""
    total = 0.0
    for word in words:
        for i, piece in enumerate(word):
            shown = [START, *ids, END]
            for hidden in word[i:] if within_word else [piece]:
                shown[1 + hidden] = MASK
            everything = torch.full((1, len(shown)), EVERYTHING)
            rank = (torch.arange(len(shown))[None], everything)
            ranks = rank if objective.run.objective.kind == "mixture" else None
            total += naive(objective, shown, 1 + piece, ids[piece], rank=ranks)
    return total


def words_by_spans(tokenizer, text):
    """The pieces of each word, found by characters."""
    spans = [span for _, span in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
    offsets = tokenizer.encode(text, add_special_tokens=False).offsets
    return [[i for i, (a, b) in enumerate(offsets) if start <= a and b <= stop] for start, stop in spans]


def spaced_by_its_normalizer(**more):
    """A tokenizer like Llama's: no words before pieces, and a sign for each space."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz", "Ġ"]
    merges = [("c", "a"), ("ca", "t"), ("▁", "cat"), ("▁", "a"), ("▁", "h")]
    names = [*letters, *("".join(pair) for pair in merges)]
    made = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    for name, value in more.items():
        setattr(made, name, value)
    return made


def words_of(tokenizer, text):
    """The pieces of each word, joined."""
    (pieces,) = pieces_of([text], tokenizer)
    names = tokenizer.encode(text).tokens
    assert sorted(pieces.word_P) == pieces.word_P.tolist()
    return ["".join(names[i] for i in np.flatnonzero(pieces.word_P == word)) for word in np.unique(pieces.word_P)]


def test_words_of_a_tokenizer_that_cuts_no_words_begin_at_its_spaces():
    llama = spaced_by_its_normalizer()
    assert words_of(llama, "a cat hides the cat") == ["▁a", "▁cat", "▁hides", "▁the", "▁cat"]
    assert words_of(llama, "hides") == ["▁hides"]
    assert words_of(llama, "hi cĠb cĠ") == ["▁hi", "▁cĠb", "▁cĠ"]  # which is a letter where ▁ is the space
    unsplit = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    newer = spaced_by_its_normalizer(normalizer=normalizers.Sequence([]), pre_tokenizer=unsplit)
    assert words_of(newer, "a cat hides") == ["▁a", "▁cat", "▁hides"]
    assert pieces_of([""], newer)[0].word_P.tolist() == []


@pytest.mark.parametrize(
    "text",
    ["लड़का किताब पढ़ता है", "שָׁלוֹם עוֹלָם", "बिल्ली, 12 है!", "ที่บ้าน", "the cat, 12 dogs!"],
    ids=["hi", "he", "hi2", "th", "en"],
)
def test_marks_do_not_cut_words(text):
    tokenizer = train([text], FIRST_WORD_ID + len(set(f" {text}".encode())), source="the test")
    (pieces,) = pieces_of([text], tokenizer)
    spans = np.array(tokenizer.encode(text).offsets)
    ends = [spans[pieces.word_P == word].max() for word in np.unique(pieces.word_P)]
    words = [text[start:end].strip() for start, end in zip([0, *ends], ends, strict=False)]
    assert words == re.findall(r"[^\s\d,!]+|\d+|[,!]", text)


def test_words_that_a_tokenizer_cuts_are_kept(tokens):
    halves = spaced_by_its_normalizer(pre_tokenizer=pre_tokenizers.Split("cat", "isolated"))
    assert words_of(halves, "a cat hides") == ["▁a▁", "cat", "▁hides"]


@pytest.mark.parametrize("kind", ["causal_lm", "mixture"])
def test_log_probability_is_the_sum_over_prefixes_and_the_end(kind, tokens):
    objective, pieces = objective_of(kind), pieces_of(TEXTS, tokens.tokenizer)
    expected = [causal_naive(objective, sentence.ids_P.tolist()) for sentence in pieces]
    np.testing.assert_allclose(log_probabilities(objective, pieces).nats_S, expected, rtol=1e-12)  # float64


@pytest.mark.parametrize("kind", ["masked_lm", "mixture"])
def test_pseudo_log_likelihood_hides_a_piece_or_also_the_rest_of_its_word(kind, tokens):
    objective, pieces = objective_of(kind), pieces_of(TEXTS, tokens.tokenizer)
    scores = sentence_scores(objective, pieces)
    for i, text in enumerate(TEXTS):
        ids, words = pieces[i].ids_P.tolist(), words_by_spans(tokens.tokenizer, text)
        assert sorted(itertools.chain(*words)) == list(range(len(ids)))
        for found, within in ((scores.main, False), (scores.within_word, True)):
            expected = masked_naive(objective, ids, words, within_word=within)
            assert found.nats_S[i] == pytest.approx(expected, rel=1e-12)  # float64


@pytest.mark.parametrize("sees", ["left_only", "window", "itself"])
def test_masked_lm_reads_with_its_own_sight(sees, tokens):
    objective, pieces = objective_of("masked_lm", objective={"sees": sees}), pieces_of(TEXTS[:3], tokens.tokenizer)
    expected = [
        masked_naive(objective, x.ids_P.tolist(), words_by_spans(tokens.tokenizer, text), within_word=False)
        for x, text in zip(pieces, TEXTS, strict=False)
    ]
    found = sentence_scores(objective, pieces).main.nats_S
    np.testing.assert_allclose(found, expected, rtol=1e-12)  # float64
    both_sides = sentence_scores(objective_of("masked_lm"), pieces).main.nats_S
    assert np.abs(found - both_sides).min() > 1e-3


def test_what_a_mixture_has_is_what_its_parts_have(tokens):
    """The same weights as a masked LM and as a causal LM."""
    pieces = pieces_of(TEXTS, tokens.tokenizer)
    mixed = sentence_scores(objective_of("mixture"), pieces)
    masked, causal = (sentence_scores(objective_of(kind), pieces) for kind in ("masked_lm", "causal_lm"))
    for one, other in (
        (mixed.main, masked.main),
        (mixed.within_word, masked.within_word),
        (mixed.left_to_right, causal.main),
    ):
        np.testing.assert_allclose(one.nats_S, other.nats_S, rtol=1e-12)
    assert (causal.within_word, causal.left_to_right, masked.left_to_right) == (None, None, None)


def test_the_two_variants_agree_on_whole_words_and_on_no_split_one(tokens):
    pieces = pieces_of(TEXTS[:12], tokens.tokenizer)
    objective = objective_of("masked_lm")
    assert all(np.diff(sentence.word_P).min() == 0 for sentence in pieces), "each has a word that is split"
    plain, within = nats_of(objective, pieces)
    assert np.abs(plain - within).min() > 1e-6
    apart = [sentence._replace(word_P=np.arange(len(sentence.ids_P))) for sentence in pieces]
    whole_plain, whole_within = nats_of(objective, apart)
    np.testing.assert_array_equal(whole_plain, whole_within)
    np.testing.assert_allclose(whole_plain, plain, rtol=1e-12)


def test_the_probabilities_of_all_sentences_sum_to_one():
    """Of those with at most two pieces, and of all that begin with three."""
    V = 8
    objective = objective_of("causal_lm", vocab_size=V)
    with torch.no_grad():
        objective.head.bias[END] += 2
    alphabet = [i for i in range(V) if i != END]
    short = [ids for P in range(3) for ids in itertools.product(alphabet, repeat=P)]
    pieces = [Pieces(np.array(ids, dtype=np.int64), np.arange(len(ids))) for ids in short]
    score = log_probabilities(objective, pieces).nats_S
    rows = torch.tensor([[START, *ids] for ids in itertools.product(alphabet, repeat=3)])
    with torch.no_grad():
        top = objective.encoder(rows, sees="left_only", sequence_BT=torch.ones_like(rows))[-1]
        share = objective.head(top, objective.encoder.tokens.weight).softmax(-1)
    begin = share[:, :-1].gather(-1, rows[:, 1:, None]).prod(1).sum().item()
    assert 0.05 < begin < 0.95
    assert np.exp(score).sum() + begin == pytest.approx(1, abs=1e-12)


def test_log_probabilities_add_up_to_the_loss(tokens):
    objective = objective_of("causal_lm")
    split = tokens.validation
    inside = [split.sentence(i)[1:-1].astype(np.int64) for i in range(len(split))]
    pieces = [Pieces(ids_P, np.arange(len(ids_P))) for ids_P in inside]
    total, predictions = evaluate_parts(objective, split)["loss"]
    assert predictions == sum(len(sentence.ids_P) + 1 for sentence in pieces)
    assert -log_probabilities(objective, pieces).nats_S.sum() == pytest.approx(total.item(), rel=1e-12)


@pytest.mark.parametrize("kind", SCORED)
def test_neither_batches_nor_the_other_sentences_matter(kind, tokens, monkeypatch):
    objective, pieces = objective_of(kind), pieces_of(TEXTS, tokens.tokenizer)
    whole = nats_of(objective, pieces)
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", {"cpu": 30})
    small = nats_of(objective, pieces)
    np.testing.assert_allclose(small, whole, rtol=1e-12)
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", {"cpu": 1})
    order = np.random.default_rng(0).permutation(len(pieces))[:7]
    some = nats_of(objective, [pieces[i] for i in order])
    np.testing.assert_allclose(some, whole[:, order], rtol=1e-12)


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm"])
def test_scoring_says_how_many_sentences_are_done(kind):
    sentences, lines = [Pieces(np.full(P, 10), np.arange(P)) for P in (3, 2, 3)], []
    sentence_scores(objective_of(kind), sentences, say=lines.append)
    assert lines == ["1 of 3 sentences scored", "3 of 3 sentences scored"]


def rows_read(objective, pieces, monkeypatch):
    """How many rows go through the encoder."""
    shown = []
    encode = objective.encode

    def counted(batch, **more):
        shown.extend(map(tuple, batch["tokens_BT"].tolist()))
        return encode(batch, **more)

    monkeypatch.setattr(objective, "encode", counted)
    sentence_scores(objective, pieces)
    assert len(set(shown)) == len(shown)
    return len(shown)


def test_no_row_is_read_twice(tokens, monkeypatch):
    """A pair that differs in one place has one masked row in common; a split word of n pieces adds n - 1 rows."""
    pair = [Pieces(np.array(ids), np.arange(4)) for ids in ([10, 11, 12, 13], [10, 11, 20, 13])]
    assert rows_read(objective_of("masked_lm"), [*pair, *pair], monkeypatch) == 4 + 4 - 1
    split = Pieces(np.array([10, 11, 12, 13]), np.array([0, 1, 1, 1]))
    assert rows_read(objective_of("masked_lm"), [split], monkeypatch) == 4 + 2
    assert rows_read(objective_of("causal_lm"), [*pair, *pair], monkeypatch) == 2


@pytest.mark.parametrize(
    "kind", ["translation", "replaced_token", "permutation_lm", "naive_bidirectional_lm", "skip_gram"]
)
def test_the_others_have_no_probability_of_a_sentence(kind, tokens):
    assert sentence_scores(build(settings(kind), tokens), pieces_of(TEXTS, tokens.tokenizer)) is None


def test_punctuation_is_a_word_of_its_own(tokens):
    """So a full stop is not hidden with the word before it."""
    words = pieces_of(["the dog sees"], tokens.tokenizer)[0].word_P
    assert len(np.unique(words)) == 3
    stopped = pieces_of(["the dog's cat."], tokens.tokenizer)[0].word_P
    assert len(np.unique(stopped)) == 5


# A given beginning ------------------------------------------------------------------------------------


def test_a_given_beginning_is_read_and_not_scored(tokens):
    """Causal LM: probabilities multiply. Masked LM: the sum of the terms of the other pieces alone."""
    causal, masked = objective_of("causal_lm"), objective_of("masked_lm")
    for sentence in pieces_of(TEXTS[:4], tokens.tokenizer):
        P = len(sentence.ids_P)
        rest = [sentence._replace(given=given) for given in range(P + 1)]
        begun = [
            sentence._replace(ids_P=sentence.ids_P[:n], word_P=sentence.word_P[:n], ends=False)
            for n in range(P + 1)
        ]
        whole = log_probabilities(causal, [sentence]).nats_S
        both = log_probabilities(causal, rest).nats_S + log_probabilities(causal, begun).nats_S
        np.testing.assert_allclose(both, np.full(P + 1, whole), rtol=1e-12)
        for score in pseudo_log_likelihoods(masked, rest):
            assert score.nats_S[P] == 0
        plain = pseudo_log_likelihoods(masked, rest)[0].nats_S
        hidden_alone = [masked_naive(masked, sentence.ids_P.tolist(), [[i]], within_word=False) for i in range(P)]
        np.testing.assert_allclose(plain[:-1] - plain[1:], hidden_alone, rtol=1e-9)  # differences of sums


def test_a_piece_over_the_border_is_scored(tokens):
    """The characters that are given end before, inside and behind the last word."""
    text, tokenizer = "the dog sees", tokens.tokenizer
    assert len(pieces_of([text], tokenizer)[0].ids_P) == 3
    borders = {0: 0, 3: 1, 7: 2, 8: 2, 9: 2, 12: 3}
    sentences_ = pieces_of([text] * len(borders), tokenizer, given=list(borders))
    assert [sentence.given for sentence in sentences_] == list(borders.values())
    assert [sentence.ends for sentence in sentences_] == [border == 0 for border in borders]


@pytest.mark.parametrize("kind", SCORED)
def test_a_sentence_is_best_if_each_of_its_pieces_is(kind, tokens):
    """Where one piece has a large bias, sentences of this piece alone are best, and END is not."""
    objective = objective_of(kind)
    the, dog = pieces_of(["the dog"], tokens.tokenizer)[0].ids_P.tolist()
    with torch.no_grad():
        objective.head.bias[the] += 1000
    rows = [[the] * 3, [the, dog, the], [dog, the, the]]
    pieces = [Pieces(np.array(ids), np.arange(3)) for ids in rows]
    pieces += [pieces[2]._replace(given=1), pieces[2]._replace(given=1, ends=False)]
    masked, causal = [True, False, False, True, True], [False, False, False, False, True]
    expected = {"causal_lm": [causal], "masked_lm": [masked] * 2, "mixture": [masked, masked, causal]}[kind]
    scores = sentence_scores(objective, pieces)
    assert [score.is_best_S.tolist() for score in scores if score is not None] == expected


# Objectives of one's own -----------------------------------------------------------------------------


@pytest.fixture
def ahead():
    """The module of the template, which predicts the token after the next one."""
    plugins.look_beside(TEMPLATES / "spec.yaml")
    return objective_of("my_objective.py:Ahead")


@torch.no_grad()
def test_an_objective_of_ones_own_says_how_a_sentence_is_scored(ahead, tokens, monkeypatch):
    pieces = pieces_of(TEXTS, tokens.tokenizer)
    scores = sentence_scores(ahead, pieces)
    for sentence, nats in zip(pieces, scores.main.nats_S, strict=True):
        whole = [START, *sentence.ids_P.tolist(), END]
        expected = -np.log(320)  # nothing predicts the first piece: a uniform guess
        for i in range(2, len(whole)):
            expected += naive(ahead, whole[: i - 1], i - 2, whole[i])
        assert nats == pytest.approx(expected, rel=1e-9)
    assert scores.within_word is None
    assert scores.left_to_right is None
    monkeypatch.setitem(module.LOGITS_AT_ONCE, "cpu", 1)  # a row at once
    assert sentence_scores(ahead, pieces).main.nats_S == pytest.approx(scores.main.nats_S, rel=1e-9)


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm"])
def test_a_model_whose_weights_are_no_numbers_is_refused_by_every_measure(kind, tokens):
    """Ranks, trees and draws of NaN would be numbers."""
    objective = build(settings(kind), tokens).eval()
    for weight in objective.parameters():
        weight.data.fill_(torch.nan)
    rows = encode_texts(["the dog", "a cat"], tokens.tokenizer, max_length=64)
    language = language_sentences(0, "test", 4)
    trees = gold_trees(language, tokens.tokenizer, count=4, longest=40, max_length=64, where="here")
    ids_BT, place_BK = torch.full((2, 5), MASK), torch.zeros(2, 1, dtype=torch.int64)
    log_shares = {
        "masked_lm": lambda: masked_log_probabilities(objective, asks="x")(ids_BT, place_BK),
        "causal_lm": lambda: next_log_probabilities(objective)(ids_BT),
    }
    for measured, unknown in (
        (lambda: pooled_states(objective, rows), "values of the encoder's states are NaN; look for"),
        (lambda: tree_states(objective, trees), "values of the encoder's states are NaN; look for"),
        (log_shares[kind], "2 of 2 log probabilities of sub-words are NaN, because"),
    ):
        assert unknown in error_text(MeasureError, measured)


def test_logits_that_are_no_numbers_are_refused(ahead, tokens, monkeypatch):
    logits = type(ahead).sentence_logits
    monkeypatch.setattr(type(ahead), "sentence_logits", lambda self, batch: logits(self, batch) * torch.nan)
    assert error_text(MeasureError, lambda: sentence_scores(ahead, pieces_of(["the dog"], tokens.tokenizer))) == (
        "3 of 3 log probabilities of sub-words are NaN, because the logits of the model are NaN or infinite; look "
        "for a diverged run, or for a fault in an objective of your own."
    )


def test_an_output_is_enough_for_an_objective_with_a_head(ahead, tokens, monkeypatch):
    """As causal LM it is scored by the token after each token, which is another number."""
    pieces = pieces_of(TEXTS, tokens.tokenizer)
    own = sentence_scores(ahead, pieces).main.nats_S
    monkeypatch.setattr(type(ahead.run.objective), "output", "next")
    as_causal = sentence_scores(ahead, pieces).main.nats_S
    expected = [causal_naive(ahead, sentence.ids_P.tolist()) for sentence in pieces]
    assert as_causal == pytest.approx(expected, rel=1e-9)
    assert not np.allclose(as_causal, own)


def test_an_output_without_a_head_is_refused_before_training(tokens, tmp_path):
    source = (TEMPLATES / "my_objective.py").read_text()
    source = source.replace("self.head = self.build_head()", "pass").replace('= "own"', '= "hidden"')
    (tmp_path / "headless.py").write_text(source)
    plugins.look_beside(tmp_path / "spec.yaml")
    assert error_text(PluginError, lambda: build(settings("headless.py:Ahead"), tokens)) == (
        "headless.py:Ahead has the output hidden, but its module has no self.head; define self.head, or leave "
        "output out."
    )


def test_minimal_pairs_suit_an_own_score_and_generation_does_not(ahead):
    own = ahead.run.objective
    assert card("minimal_pairs").need.is_met(own)
    assert not card("generation").need.is_met(own)
    assert card("generation").need.is_met(settings("causal_lm").objective)
