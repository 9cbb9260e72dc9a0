"""The figures about tasks: what they show and how to read them."""

from reports.figure_text import FigureText, Shown

PROBES = FigureText(
    name="probes",
    title="What a linear probe reads from each layer",
    kind="arms",
    shown=(
        Shown("probing", "accuracy", each=True, axis="layer"),
        Shown("probing", "selectivity", part="Selectivity", folded=True, each=True, axis="layer"),
        Shown("probing", "compression", part="Compression", folded=True, each=True, axis="layer"),
        Shown("probing", "mix_weight", part="Weights of the learned mix", folded=True, each=True, axis="layer"),
    ),
    n="examples",
    d="",
    section="tasks",
    how_to_read=(
        "Each point is a linear classifier trained on the frozen states of one layer and scored on examples it "
        "has not seen. The chance floor is the accuracy of always giving the most frequent answer. Selectivity "
        "is what is left of the accuracy after that of the same classifier on a control task, whose answers "
        "are drawn at random for each word type (Hewitt and Liang 2019): what the probe memorises is taken "
        "off. Compression is how many times shorter the answers become when the states are known (Voita and "
        "Titov 2020): at 1 they say nothing.",
        "What a probe can read is there; that the model uses it is not shown. The untrained encoder is the "
        "floor that counts: random weights keep what the words themselves tell. The table above takes the "
        "learned mix of all layers, so that no layer is chosen on the examples it is scored on.",
    ),
)

STRUCTURE = FigureText(
    name="structure",
    title="Syntactic trees in each layer",
    kind="arms",
    shown=(Shown("structural_probe", "uuas", each=True, axis="layer"),),
    n="examples",
    d="",
    section="tasks",
    how_to_read=(
        "Each point is the share of edges of the treebank's trees that a structural probe finds (Hewitt and "
        "Manning 2019): a linear map is trained so that squared distances of states are distances of words in "
        "the tree, and a minimum spanning tree is read off. Directions and punctuation do not count.",
        "Joining each word to the next finds many edges; only what lies above that chain, the floor, and above "
        "the untrained encoder is learned syntax.",
    ),
)

AS_THEY_ARE = "As they are, the mean not removed"

RETRIEVAL = FigureText(
    name="retrieval",
    title="Similarity of texts in each layer",
    kind="arms",
    shown=(
        Shown("retrieval", "spearman_centred", each=True, axis="layer"),
        Shown("retrieval", "recall_at_1_centred", each=True, axis="layer"),
        Shown("retrieval", "spearman", part=AS_THEY_ARE, folded=True, each=True, axis="layer"),
        Shown("retrieval", "recall_at_1", part=AS_THEY_ARE, folded=True, each=True, axis="layer"),
    ),
    n="pairs or queries",
    d="",
    section="tasks",
    how_to_read=(
        "Each point takes two texts to be as close as the cosine of their mean states in one layer, the mean "
        "of all texts removed, and is how well that follows what people say of them (Spearman correlation), or "
        "how often the text that belongs to another is the nearest of all (recall at 1).",
        "Nothing is trained for it. Top layers serve the objective: where a lower one is better, the table above, "
        "which takes the top layer, understates the encoder. The sentence that follows is asked for where the "
        "data say what belongs to a document. The right translation among others is not asked for, also where "
        "they have one: every encoder reads the source language alone, and was never trained to give states to "
        "another.",
    ),
)

EXAMPLES = FigureText(
    name="examples",
    title="Scores by number of training examples",
    kind="arms",
    shown=(
        Shown("fine_tuning", "score", "Fine-tuning", part="Fine-tuning", each=True, axis="examples"),
        Shown("frozen_features", "score", "Frozen features", part="Frozen features", each=True, axis="examples"),
    ),
    n="test examples",
    d="",
    section="tasks",
    how_to_read=(
        "Each point is the score on the whole test part after training on so many examples of the task. The "
        "axis of examples is logarithmic. The chance floor is the best score of one answer to everything, "
        "or for spans of one place in every context. At every number the epoch is chosen on the whole validation "
        "part, which favours few examples: who has no more of them could not choose so well.",
        "What pre-training is worth shows at few examples: the distance between an arm and the untrained encoder, "
        "and how many more examples the latter needs for the same score.",
    ),
)

SCORES_OVER_TRAINING = FigureText(
    name="scores_over_training",
    title="Scores over training",
    kind="arms",
    shown=(
        Shown("minimal_pairs", "accuracy", "Minimal pairs", part="Minimal pairs", each=True, axis="step"),
        Shown("fine_tuning", "score", "Fine-tuning", part="Fine-tuning", each=True, axis="step"),
        Shown("frozen_features", "score", "Frozen features", part="Frozen features", each=True, axis="step"),
        Shown("probing", "accuracy", "Probes", part="Probes of all layers", folded=True, each=True, axis="step"),
    ),
    n="examples",
    d="",
    section="tasks",
    how_to_read=(
        "Each point is the score of the checkpoint of that step, 0 being the initial weights; the axis of "
        "steps is logarithmic. Only steps are shown at which every seed of an arm was measured. Where one "
        "curve crosses another, one objective overtakes the other.",
        "Arms compare at equal steps, that is, at equally many tokens seen. They do not predict equally many: "
        "masked LM is asked for a small part of its tokens, causal LM for each of them.",
    ),
)

INDEPENDENCE = FigureText(
    name="independence",
    title="Masked tokens and their independence of each other",
    kind="arms",
    shown=(
        Shown("conditional_independence", "joint_minus_chain", axis="ratio"),
        Shown("conditional_independence", "joint", part="Its two terms", folded=True, axis="ratio"),
        Shown("conditional_independence", "chain", part="Its two terms", folded=True, axis="ratio"),
    ),
    n="pairs",
    d="",
    section="tasks",
    how_to_read=(
        "Masked LM predicts all hidden tokens at once, as if they told nothing about each other. Each point "
        "is the mean log probability of two hidden neighbours when both are predicted at once, less that by "
        "the chain rule: one of them, and then the other with the first one shown, averaged over both orders. "
        "At 0 nothing is lost by predicting them at once. Below 0 the neighbours tell about each other what "
        "is left out; above 0 being shown a true neighbour makes the model's prediction worse.",
        "The pairs are the same at every ratio. What else is shown may tell what the neighbour tells, or be what "
        "makes it telling: the curve need not fall with the ratio.",
    ),
)
