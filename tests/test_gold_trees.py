"""Which words of a treebank a parser is asked about, and where they are among the sub-words."""

import pytest

from ablations.errors import MeasureError
from ablations.measures.alignment import NO_WORD
from ablations.tasks.gold_trees import gold_tree, gold_trees
from lightning_modules.data.tokenizer import train
from lightning_modules.data.treebank import ROOT, LabelledSentence
from lightning_modules.vocabulary import END, START


def labelled(words, heads, tags=None, *, text=None, forms=None):
    words = tuple(words.split())
    tags = tuple(tags.split()) if tags else ("NOUN",) * len(words)
    relations, senses = ("dep",) * len(words), (None,) * len(words)
    return LabelledSentence(text or " ".join(words), words, tags, tuple(heads), relations, senses, forms or words)


@pytest.fixture(scope="module")
def tokenizer():
    """Knows the words a, b, c, dog and sees; everything else falls apart into letters."""
    return train(["a dog sees b dog c . , du ple xyz"] * 5, 32, what="a test")


def test_words_are_numbered_without_punctuation_and_edges_with_it_are_left_out(tokenizer):
    #                    0   1 2    3 4 5
    sentence = labelled("a , dog . b c", [2, 0, ROOT, 2, 3, 4], "DET PUNCT NOUN PUNCT NOUN NOUN")
    tree = gold_tree(sentence, tokenizer, where="here")
    assert tree.words == 4
    assert tree.edges == {(0, 1), (2, 3)}  # a-dog and b-c; b hangs on the full stop
    assert (tree.ids_T[0], tree.ids_T[-1]) == (START, END)
    assert tokenizer.decode(tree.ids_T[1:-1].tolist()).split() == list(sentence.words)
    named = [word for word in dict.fromkeys(tree.word_T.tolist()) if word != NO_WORD]
    assert named == [0, 1, 2, 3]
    assert (tree.word_T[[0, -1]] == NO_WORD).all()


def test_all_sub_words_of_a_word_belong_to_it(tokenizer):
    tree = gold_tree(labelled("a xyz dog", [1, ROOT, 1]), tokenizer, where="here")
    pieces = [tokenizer.decode([i]).strip() for i in tree.ids_T.tolist()]
    for word, text in enumerate(["a", "xyz", "dog"]):
        assert "".join(p for p, w in zip(pieces, tree.word_T.tolist(), strict=True) if w == word) == text


def test_the_second_word_of_a_contraction_is_left_out(tokenizer):
    sentence = labelled("a de le dog", [ROOT, 3, 3, 0], text="a du dog", forms=("a", "du", "", "dog"))
    tree = gold_tree(sentence, tokenizer, where="here")
    assert tree.words == 3
    assert tree.edges == {(0, 2), (1, 2)}


def test_sentences_are_chosen_by_their_length_without_punctuation(tokenizer):
    two = labelled("a dog .", [1, ROOT, 1], "DET NOUN PUNCT")
    three = labelled("a dog sees .", [1, 2, ROOT, 2], "DET NOUN VERB PUNCT")
    four = labelled("a dog sees b", [1, 2, ROOT, 2])
    bare = labelled("a b c", [None, None, None])
    everything = [two, three, four, bare]

    def words(**options):
        options = {"count": 10, "longest": 10, "max_length": 64} | options
        return sorted(tree.words for tree in gold_trees(everything, tokenizer, **options))

    assert words() == [3, 4]
    assert words(longest=3) == [3]
    assert len(words(count=1)) == 1
    with pytest.raises(MeasureError) as error:
        words(max_length=4)
    assert str(error.value) == (
        "sentences with trees are needed, of 3 to 10 words besides punctuation and at most 4 sub-words, but "
        "none of 4 is one; give another treebank or raise the measure's `longest`."
    )


def test_more_sentences_are_asked_for_and_the_first_ones_stay(tokenizer):
    sentences = [labelled("a dog sees" + " b" * i, [1, 2, ROOT, *[2] * i]) for i in range(7)]

    def chosen(count):
        return [t.words for t in gold_trees(sentences, tokenizer, count=count, longest=10, max_length=64)]

    assert sorted(chosen(7)) == [3, 4, 5, 6, 7, 8, 9]
    assert chosen(7)[:3] == chosen(3)
    assert chosen(7) != sorted(chosen(7))  # at random, since treebanks go from one kind of text to the next
