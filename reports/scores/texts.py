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
    """Column with numbers that arms share, unless their tokenizers or texts differ."""

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
    shared_columns: tuple[SharedColumn, ...] = ()
    floor: str = "Chance"
    """Head of the column of chance levels. If it is empty, the table has no such column."""
    chance: str = "chance"
    """Words for the chance level in sentences about scores."""
    of_all: str = "all"
    """Label of rows without a group."""
    baselines: str = ""
    """Paragraph on the columns of baselines; left out if there are none."""
    series: Series | None = None

    @property
    def name(self) -> str:
        return f"table-{self.measure}"


WITHOUT_ENCODER = (
    SharedColumn("Tag of the word", ("word",), "baselines"),
    SharedColumn("TF-IDF or words", ("tfidf", "word_window", "beside_question"), "baselines"),
)
"""Columns of baselines without an encoder, on the examples of frozen features and fine-tuning."""

WITHOUT_ENCODER_PROBED = (
    SharedColumn("Tag of the word", ("probed_word",), "baselines"),
    SharedColumn("TF-IDF or words", ("probed_word_window", "tfidf"), "baselines"),
)
"""Columns of baselines on the examples of probes, which have fewer words with tags."""

CHANCE = (
    "Chance is the best score of answers that ignore the input: the same answer to every test example, or for "
    "spans the same place in every context. It is 0 if the metric is defined so."
)

OF_WORDS = (
    "TF-IDF is a linear model of words and pairs of neighbouring words. For tags of words, there are two "
    "baselines: a linear model of the word and its two neighbours, and the most frequent tag of the word. For "
    "spans, the baseline takes some words beside those that the question shares with the context. All learn "
    "from the same examples as the encoders."
)

ORDER = (
    "Words shuffled is the score of the same trained head on the same test texts with their words in random "
    "order. The difference shows how much the head uses word order."
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
    shared_columns=WITHOUT_ENCODER,
    error="over test examples and over repetitions with other heads and other orders of training examples",
    how_to_read=(f"The encoder is trained on the task with a head on top. {CHANCE}", ORDER),
    baselines=OF_WORDS,
)

FROZEN_FEATURES = FINE_TUNING._replace(
    measure="frozen_features",
    title="Frozen features",
    baselines="",
    how_to_read=(
        "The same head is trained on the states as pre-training left them. So the score shows what the states "
        "hold, not what they can become. If fine-tuning of the untrained encoder reaches the same score, the "
        "task does not need pre-training.",
    ),
)

MINIMAL_PAIRS = TableText(
    measure="minimal_pairs",
    title="Minimal pairs",
    n="pairs",
    scores=(
        ScoreRow("accuracy", "accuracy"),
        ScoreRow("accuracy_within_word", "accuracy, rest of a split word hidden"),
        ScoreRow("accuracy_left_to_right", "accuracy, left to right"),
        ScoreRow("accuracy_whole_words", "accuracy, only pairs of whole words"),
        ScoreRow("covered", "pairs of known words", judged=False, constant=True),
        ScoreRow("whole_words", "pairs of whole words", judged=False, constant=True),
    ),
    shared_columns=(
        SharedColumn("Fewer pieces", ("{}_by_length",)),
        SharedColumn("Frequent pieces", ("{}_by_unigram",)),
    ),
    error="over pairs, as if they were independent",
    how_to_read=(
        "Accuracy is the share of pairs in which the grammatical sentence has the higher probability. The log "
        "probability of a sentence is the sum over its tokens. Each token is predicted from its left context "
        "(causal LM) or from all others (masked LM: pseudo-log-likelihood, Salazar et al. 2020). In one row "
        "the rest of a split word is hidden too (Kauf and Ivanova 2023). An objective without a probability of "
        "a sentence has no score.",
        "Sums favour the sentence that is cut into fewer pieces. In pairs of whole words, each word that "
        "differs is one piece. In pairs of known words, every piece occurs in the training text. A score below "
        "chance is possible: a model may prefer a frequent sentence to a grammatical one. Two columns are "
        "guesses without a model: one takes the sentence with fewer pieces, the other the sentence whose "
        "pieces are more frequent in the training text (the sum of their log frequencies). A score that is no "
        "better than these guesses shows no grammar.",
    ),
)

PROBING = TableText(
    measure="probing",
    title="Probes",
    n="test examples; for compression, training examples",
    scores=(
        ScoreRow("accuracy", "accuracy, mix of layers"),
        ScoreRow("selectivity", "selectivity, mix of layers"),
        ScoreRow("compression", "compression, mix of layers", scale=1, digits=2),
        ScoreRow("accuracy", "accuracy, top layer", layer="top"),
    ),
    shared_columns=WITHOUT_ENCODER_PROBED,
    how_to_read=(
        "A probe is a linear classifier on frozen states. It learns its mix of layers on the training part. No "
        "best layer is chosen: its score would be the highest of several on the same examples. Selectivity is "
        "the accuracy minus that on a control task with random answers. In tasks of words, each word has one "
        "(Hewitt and Liang 2019). In tasks of sentences and pairs, it belongs to the rarest word of the text that "
        "is in ten or more training texts (ours); without such words there is no selectivity. "
        "Compression is how many times shorter the code of the answers is if the states are known (Voita and "
        "Titov 2020). In these two rows, chance is a probe that knows only how frequent the answers are. For "
        "selectivity it is the score of the most frequent answer minus the score of the most frequent answer on "
        "the control task, so it may be negative.",
        CHANCE,
    ),
    baselines=OF_WORDS,
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
        "UUAS is the share of edges of a treebank's trees that a linear map of the top layer finds (Hewitt and "
        "Manning 2019). The adjacency chain joins each word to the next. A figure below shows the other layers.",
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
    shared_columns=(
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
        "ignores context gives the adjacency chain, which joins each word to the next. The main score is the "
        "UUAS minus that of the chain on the same sentences.",
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
    shared_columns=(SharedColumn("TF-IDF", ("{}_tfidf",)),),
    error="over pairs or queries",
    how_to_read=(
        "The similarity of two texts is the cosine of their mean states in the top layer; nothing is trained "
        "for it. All states share a direction that hides their differences, so each score is also computed "
        "with the mean of all texts subtracted. A cross-encoder is trained to read both texts at once; it "
        "ranks the nearest twenty texts again. The correlation is with the numbers of the task, such as "
        "people's ratings of how related two sentences are. TF-IDF is the cosine of the TF-IDF "
        "vectors of both texts, also without training.",
    ),
)

GENERATION = TableText(
    measure="generation",
    title="Generation",
    n="sentences; for nats, their tokens",
    scores=(
        ScoreRow("fluency", "nats per token of a judge", judged=False, scale=1, digits=2),
        ScoreRow("distinct_1", "different tokens", judged=False),
        ScoreRow("distinct_2", "different pairs of tokens", judged=False),
        ScoreRow("copied", "copies of training sentences", judged=False),
        ScoreRow("length", "tokens a sentence", judged=False, scale=1, digits=1),
    ),
    shared_columns=(SharedColumn("Real text", ("{}_of_text",), of_all=True),),
    floor="Random tokens",
    of_all="generated sentences",
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
        "The judge of generated text is a trigram model of the training text; it gives the nats per token. "
        "Different tokens, and different pairs of neighbours, are counted per generated token; longer text has "
        "fewer. No single number is enough: one good sentence repeated is fluent, random tokens are diverse. "
        "The best value is that of real text. Causal LM decides itself where a sentence ends; mask-predict "
        "gets the lengths of real sentences.",
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
