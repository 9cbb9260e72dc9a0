"""Texts of the tables of scores: rows and columns of each table, and how to read it."""

from typing import Literal, NamedTuple


class ScoreRow(NamedTuple):
    """Score that has a row for each task of a table."""

    metric: str
    label: str = ""
    """Label of the row; if empty, the words of the task's own metric."""
    layer: Literal["", "top"] = ""
    """Layer of the score: `top` for measures with numbers by layer; empty for numbers without a layer, which
    stand for all layers or their mix."""
    judged: bool = True
    """Whether the score is compared with its chance level."""
    constant: bool = False
    """Whether all seeds must have the same value, so that there is no interval."""
    scale: float = 100
    digits: int = 1


class SharedColumn(NamedTuple):
    """Column with the same numbers for all arms."""

    label: str
    metrics: tuple[str, ...]
    """Metrics of the column; the first that exists is taken. `{}` stands for the metric of the row without
    `_centred` and `_reranked`, which have no counterpart for words."""
    measure: str = ""
    """Measure of the column; if empty, that of the table."""
    of_all: bool = False
    """Whether one number without a group serves all rows of the metric."""


class Series(NamedTuple):
    """Series of groups such as ``sweeps=250``, which is a folded table."""

    family: str
    title: str
    scores: tuple[ScoreRow, ...]


class TableText(NamedTuple):
    """Text of one table, which has a row for each task and a column for each arm."""

    measure: str
    title: str
    n: str
    """Unit that n counts."""
    scores: tuple[ScoreRow, ...]
    """Scores of each task; the sentences above the table are about the first one that is judged."""
    how_to_read: tuple[str, ...]
    error: str = "over examples"
    """Items over which the standard error of one run is computed, as part of a sentence."""
    beside: tuple[SharedColumn, ...] = ()
    floor: str = "Chance"
    """Head of the column of chance levels; without such a column if empty."""
    chance: str = "chance"
    """Words for the chance level in sentences about scores."""
    of_all: str = "all"
    """Label of rows without a group."""
    series: Series | None = None

    @property
    def name(self) -> str:
        return f"table-{self.measure}"


WITHOUT_ENCODER = (
    SharedColumn("Tag of the word", ("word",), "baselines"),
    SharedColumn("TF-IDF or words", ("tfidf", "word_window", "beside_question"), "baselines"),
)
"""Columns of baselines without an encoder, on the training and test examples of frozen features and
fine-tuning."""

WITHOUT_ENCODER_PROBED = (
    SharedColumn("Tag of the word", ("probed_word",), "baselines"),
    SharedColumn("TF-IDF or words", ("probed_word_window", "tfidf"), "baselines"),
)
"""Columns of baselines on the examples of probes, which have fewer words with tags."""

CHANCE = (
    "Chance is the most that answers score which do not look at what is asked: one and the same answer to every "
    "test example, for spans the same place in every context; 0 where the metric says so by definition."
)

OF_WORDS = (
    "TF-IDF is a linear model on words and pairs of neighbouring words; where words have tags, it is one on "
    "the word and its two neighbours, beside which stands the most frequent tag of the word alone; for spans it "
    "is so many words beside those that the question shares with the context. All learn from the same examples as "
    "the encoders."
)

ORDER = (
    "Words shuffled is the same trained head on the same test texts with their words in another order: what it "
    "loses is what it made of word order."
)

TRANSFER = (
    ScoreRow("score"),
    ScoreRow("shuffled_score", "words shuffled"),
    ScoreRow("accuracy", "accuracy"),
    ScoreRow("exact_match", "exact match"),
)

FINE_TUNING = TableText(
    measure="fine_tuning",
    title="Fine-tuning",
    n="test examples",
    scores=TRANSFER,
    beside=WITHOUT_ENCODER,
    error="over test examples and over repetitions with other heads and other orders of training examples",
    how_to_read=(
        f"The encoder is trained on the task with a head on top. {CHANCE}",
        f"{ORDER} {OF_WORDS}",
    ),
)

FROZEN_FEATURES = FINE_TUNING._replace(
    measure="frozen_features",
    title="Frozen features",
    how_to_read=(
        "The same head on the states as pre-training left them: what lies in them, rather than what they can "
        "become. Where fine-tuning of the untrained encoder reaches as far, the task does not need "
        "pre-training.",
    ),
)

MINIMAL_PAIRS = TableText(
    measure="minimal_pairs",
    title="Minimal pairs",
    n="pairs",
    scores=(
        ScoreRow("accuracy", "accuracy"),
        ScoreRow("accuracy_within_word", "accuracy, words hidden to their end"),
        ScoreRow("accuracy_left_to_right", "accuracy, left to right"),
        ScoreRow("accuracy_whole_words", "accuracy, whole words alone"),
        ScoreRow("covered", "pairs of known words", judged=False, constant=True),
        ScoreRow("whole_words", "pairs of whole words", judged=False, constant=True),
    ),
    beside=(SharedColumn("Fewer pieces", ("{}_by_length",)), SharedColumn("Frequent pieces", ("{}_by_unigram",))),
    error="over pairs, as if they were independent",
    how_to_read=(
        "How often the grammatical one of two sentences has the higher probability: the sum of the log "
        "probabilities of its tokens, each from its left context (causal LM) or from all others (masked LM: "
        "pseudo-log-likelihood, Salazar et al. 2020). With words hidden to their end, the rest of a split word "
        "is hidden too (Kauf and Ivanova 2023). An objective without a probability of a sentence has no score.",
        "Sums favour the sentence that is cut into fewer pieces. Pairs of whole words are those in which each "
        "word that differs is one piece; pairs of known words have no piece that the training text lacks. "
        "Below chance is no mistake of the page: a model may prefer what is frequent to what is grammatical. "
        "Two guesses without a model stand beside: that the sentence of fewer pieces is the good one, and that "
        "the one whose pieces are more frequent in the training text is (the sum of their log frequencies). A "
        "score that is no better than these shows no grammar.",
    ),
)

PROBING = TableText(
    measure="probing",
    title="Probes",
    n="test examples",
    scores=(
        ScoreRow("accuracy", "accuracy, mix of layers"),
        ScoreRow("selectivity", "selectivity, mix of layers"),
        ScoreRow("compression", "compression, mix of layers", scale=1, digits=2),
        ScoreRow("accuracy", "accuracy, top layer", layer="top"),
    ),
    beside=WITHOUT_ENCODER_PROBED,
    how_to_read=(
        "A linear classifier on frozen states, its mix of layers learned on the training part. No best layer "
        "is chosen: its score would be the highest of several on the same examples. Selectivity is the "
        "accuracy less that on a control task with random answers for each word (Hewitt and Liang 2019); "
        "compression is how many times shorter the answers are when the states are known (Voita and Titov "
        "2020). Chance, in these two rows, is what a probe has that knows only how frequent the answers are.",
        f"{CHANCE} {OF_WORDS}",
    ),
)

STRUCTURAL_PROBE = TableText(
    measure="structural_probe",
    title="Structural probe",
    n="edges",
    scores=(ScoreRow("uuas", "UUAS, top layer", layer="top"),),
    floor="Adjacency chain",
    chance="the adjacency chain",
    error="over sentences",
    how_to_read=(
        "The share of edges of a treebank's trees (UUAS) that a linear map of the top layer finds (Hewitt and "
        "Manning 2019). The adjacency chain joins each word to the next; a figure below has the other layers.",
    ),
)

PARSING = TableText(
    measure="parsing",
    title="Trees without supervision",
    n="edges",
    scores=(
        ScoreRow("uuas", "UUAS", judged=False),
        ScoreRow("uuas_minus_adjacent", "above the adjacency chain"),
    ),
    beside=(
        SharedColumn("Adjacency chain", ("uuas_adjacent",)),
        SharedColumn("Random trees", ("uuas_random",)),
    ),
    floor="",
    chance="the adjacency chain",
    error="over sentences",
    series=Series(
        "sweeps",
        "By number of sweeps: has sampling converged?",
        (
            ScoreRow("uuas", "UUAS", judged=False),
            ScoreRow("conditional_information", "information, nats / 1,000", judged=False, scale=1000, digits=2),
        ),
    ),
    how_to_read=(
        "Words with much conditional mutual information are joined to a tree, without any training on trees "
        "(Zhang and Hashimoto 2021). UUAS is the share of the treebank's edges that are found. A model that "
        "ignores context gets the adjacency chain, which joins each word to the next: the main score is the "
        "difference, in which the sentences are the same on both sides.",
    ),
)

RETRIEVAL = TableText(
    measure="retrieval",
    title="Retrieval and similarity",
    n="pairs or queries",
    scores=(
        ScoreRow("spearman_centred", "Spearman correlation, mean removed", layer="top"),
        ScoreRow("spearman", "Spearman correlation", layer="top"),
        ScoreRow("recall_at_1_centred", "recall at 1, mean removed", layer="top"),
        ScoreRow("recall_at_1", "recall at 1", layer="top"),
        ScoreRow("recall_at_1_reranked", "recall at 1, ranked again by a cross-encoder"),
        ScoreRow("reciprocal_rank_centred", "mean reciprocal rank, mean removed", layer="top"),
        ScoreRow("reciprocal_rank", "mean reciprocal rank", layer="top"),
    ),
    beside=(SharedColumn("TF-IDF", ("{}_tfidf",)),),
    error="over pairs or queries",
    how_to_read=(
        "Which texts belong together, by the cosine of their mean states in the top layer, for which nothing "
        "is trained. States share a direction that hides what they differ in, so each number also stands with "
        "the mean of all texts removed. A cross-encoder is trained to read both texts at once and puts the "
        "nearest twenty into its own order. The correlation is with how related people find two sentences. TF-IDF "
        "is the cosine of the vectors of both texts, without any training either.",
    ),
)

GENERATION = TableText(
    measure="generation",
    title="Generation",
    n="sentences, of nats their tokens",
    scores=(
        ScoreRow("fluency", "nats per token of a judge", judged=False, scale=1, digits=2),
        ScoreRow("distinct_1", "different tokens", judged=False),
        ScoreRow("distinct_2", "different pairs of tokens", judged=False),
        ScoreRow("copied", "sentences of the training text", judged=False),
        ScoreRow("length", "tokens a sentence", judged=False, scale=1, digits=1),
    ),
    beside=(SharedColumn("Real text", ("{}_of_text",), of_all=True),),
    floor="Random tokens",
    of_all="sentences made up",
    error="over sentences",
    series=Series(
        "iterations",
        "By number of iterations of mask-predict",
        (
            ScoreRow("fluency", "nats per token of a judge", judged=False, scale=1, digits=2),
            ScoreRow("distinct_2", "different pairs of tokens", judged=False),
        ),
    ),
    how_to_read=(
        "What a language model makes up: nats per token of a trigram model of the training text, and how many "
        "different tokens, and different pairs of neighbours, there are for each token that was made up (fewer, "
        "the more text there is). Neither is good by itself: one good sentence again and again is fluent, "
        "random tokens are diverse. The best that can be wished for is the number of real text. "
        "Causal LM decides itself where a sentence ends; mask-predict is given the lengths of real sentences.",
    ),
)

TABLES = (
    FINE_TUNING,
    FROZEN_FEATURES,
    MINIMAL_PAIRS,
    PROBING,
    STRUCTURAL_PROBE,
    PARSING,
    RETRIEVAL,
    GENERATION,
)
"""Tables in the order of the page."""
