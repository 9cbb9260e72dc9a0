"""Texts of the figures with a line for each arm, about layers and tasks, and the order of all figures.

A text says what a figure shows and how to read it. Texts of other kinds of figures are in the modules of
their kinds.
"""

import re
from collections.abc import Sequence

from ablations.catalogue import METRICS
from reports.figures.by_arm import ARM_LINES
from reports.figures.groups import CHANGE_BY_RANK, CHANGE_BY_TAG, INFLUENCE_BY_RANK, INFLUENCE_BY_TAG
from reports.figures.maps import OVER_TRAINING
from reports.figures.pairs import RUN_DISTANCE
from reports.figures.panel import CHANGE, CHANGE_CKA, OTHER_TOKENS, FigureText, Shown
from reports.figures.pictures import PICTURES
from reports.words import MINUS

PROBES = FigureText(
    name="probes",
    title="What a linear probe reads from each layer",
    kind=ARM_LINES,
    shown=(
        Shown("probing", "accuracy", each=True, axis="layer"),
        Shown("probing", "selectivity", part="Selectivity", folded=True, each=True, axis="layer"),
        Shown("probing", "compression", part="Compression", folded=True, each=True, axis="layer"),
        Shown("probing", "mix_weight", part="Weights of the learned mix", folded=True, each=True, axis="layer"),
    ),
    n="examples",
    section="tasks",
    how_to_read=(
        "Each point is the score of a linear classifier on examples it has not seen. It is trained on the "
        "frozen states of one layer. The chance level is the accuracy of always giving the most frequent "
        "answer. Selectivity is the accuracy minus that of the same classifier on a control task with random "
        "answers, one for each word type (Hewitt and Liang 2019), or for the rarest word of a sentence that is in "
        "ten or more training texts (ours). This subtracts what the probe memorises. "
        "Compression is how many times shorter the code of the answers becomes if the states are known (Voita "
        "and Titov 2020). At 1 the states say nothing about the answers.",
        "A probe shows what can be read from the states, not what the model uses. Compare with the untrained "
        "encoder: random weights also keep what the words themselves tell. The table of these tasks uses a "
        "learned mix of all layers, so no layer is chosen on the examples that score it.",
    ),
)

STRUCTURE = FigureText(
    name="structure",
    title="Syntactic trees in each layer",
    kind=ARM_LINES,
    shown=(Shown("structural_probe", "uuas", each=True, axis="layer"),),
    n="examples",
    section="tasks",
    how_to_read=(
        "Each point is the share of edges of the treebank's trees that a structural probe finds (Hewitt and "
        "Manning 2019). The probe is a linear map of the states. It is trained so that squared distances "
        "between states equal distances between words in the tree. The minimum spanning tree of these "
        "distances is compared with the treebank's tree. Directions of edges and punctuation do not count.",
        "Joining each word to the next already finds many edges; this chain is the chance level. Only a score "
        "above the chain and above the untrained encoder shows learned syntax.",
    ),
)

AS_THEY_ARE = "Mean not removed"

RETRIEVAL = FigureText(
    name="retrieval",
    title="Similarity of texts in each layer",
    kind=ARM_LINES,
    shown=(
        Shown("retrieval", "spearman_centred", each=True, axis="layer"),
        Shown("retrieval", "recall_at_1_centred", each=True, axis="layer"),
        Shown("retrieval", "spearman", part=AS_THEY_ARE, folded=True, each=True, axis="layer"),
        Shown("retrieval", "recall_at_1", part=AS_THEY_ARE, folded=True, each=True, axis="layer"),
    ),
    n="pairs or queries",
    section="tasks",
    how_to_read=(
        "The similarity of two texts is the cosine of their mean states in one layer, after the mean of all "
        "texts is subtracted. Each point says how well the similarity agrees with people's ratings (Spearman "
        "correlation), or how often the right text is the nearest of all (recall at 1).",
        "Nothing is trained for these scores. Top layers serve the objective. If a lower layer is better, the "
        "table of this task understates the encoder, since it uses the top layer. Retrieval of the next sentence "
        "needs data with documents. Translations are not retrieved: every encoder reads only the source "
        "language.",
    ),
)

EXAMPLES = FigureText(
    name="examples",
    title="Scores by number of training examples",
    kind=ARM_LINES,
    shown=(
        Shown("fine_tuning", "score", "Fine-tuning", part="Fine-tuning", each=True, axis="examples"),
        Shown("frozen_features", "score", "Frozen features", part="Frozen features", each=True, axis="examples"),
    ),
    n="test examples",
    section="tasks",
    how_to_read=(
        "Each point is the score on the whole test part after training on this number of examples of the task. "
        "The axis of examples is logarithmic. The chance level is the best score of one answer to every "
        "example; for spans, of one place in every context. The epoch is always chosen on the whole validation "
        "part. This favours small numbers of examples: in practice, a task with few examples also has a small "
        "validation part.",
        "With few examples you see what pre-training is worth: how far an arm lies above the untrained "
        "encoder, and how many more examples the untrained encoder needs for the same score.",
    ),
)

SCORES_OVER_TRAINING = FigureText(
    name="scores_over_training",
    title="Scores over training",
    kind=ARM_LINES,
    shown=(
        Shown("minimal_pairs", "accuracy", "Minimal pairs", part="Minimal pairs", each=True, axis="step"),
        Shown("fine_tuning", "score", "Fine-tuning", part="Fine-tuning", each=True, axis="step"),
        Shown("frozen_features", "score", "Frozen features", part="Frozen features", each=True, axis="step"),
        Shown("probing", "accuracy", "Probes", part="Probes of all layers", folded=True, each=True, axis="step"),
    ),
    n="examples",
    section="tasks",
    how_to_read=(
        "Each point is the score of the checkpoint at that step; step 0 has the initial weights. The axis of "
        "steps is logarithmic. A step of an arm is shown only if every seed was measured there. Where one "
        "curve crosses another, one arm overtakes the other.",
        "Compare arms at equal steps, that is, after equally many tokens seen. They predict different numbers "
        "of tokens: masked LM a small part of its tokens, causal LM all of them.",
    ),
)

INDEPENDENCE = FigureText(
    name="independence",
    title="Masked tokens and their independence of each other",
    kind=ARM_LINES,
    shown=(
        Shown("conditional_independence", "joint_minus_chain", axis="ratio"),
        Shown("conditional_independence", "joint", part="Its two terms", folded=True, axis="ratio"),
        Shown("conditional_independence", "chain", part="Its two terms", folded=True, axis="ratio"),
    ),
    n="pairs",
    section="tasks",
    how_to_read=(
        "Masked LM predicts all hidden tokens at once, as if they were independent. Each point is the mean log "
        "probability of two hidden neighbours predicted at once, minus that by the chain rule. The chain rule "
        "predicts one of them, and then the other with the first one shown; both orders are averaged. At 0 "
        "nothing is lost by predicting both at once. Below 0 information that the neighbours have about each "
        "other is lost. Above 0 showing a true neighbour makes the model's prediction worse.",
        "The chance level is the same number with the second token of each pair taken from another sentence. "
        "It shows the effect of one more visible token, whatever this token is. A false neighbour may also "
        "mislead the model, which lifts the chance level above 0. Neighbours depend on each other where the "
        "curve lies below both 0 and the chance level.",
        "The pairs are the same at every ratio. The other visible tokens may give the same information as the "
        "neighbour, or they may be what makes the neighbour informative. So the curve need not fall with the "
        "ratio.",
    ),
)


LEARNING = FigureText(
    name="learning",
    title="Learning curves",
    kind=ARM_LINES,
    shown=(Shown("learning", "gain"),),
    n="predictions",
    how_to_read=(
        "Each point is the gain at that step, in nats per prediction: the loss of the best guess without "
        "context minus the loss of the model. The guess knows only the frequencies of tokens and, in masked "
        "LM, the token that is shown at that place. The validation text is always in natural order, and its "
        "corruption is always the same. At 0 a model makes no use of context.",
        "Compare heights only between arms that predict the same thing (masked, next or translated words): "
        "some words are easier to predict than others. If one curve overtakes another of the same objective, "
        "this is a finding. Across objectives it is only a hint.",
    ),
)

LAYER_CHANGE = FigureText(
    name="layer_change",
    title="Change between consecutive layers",
    kind=ARM_LINES,
    shown=(CHANGE, CHANGE_CKA),
    n="tokens",
    d="dimensions",
    how_to_read=(
        f"Each point compares the states of the same tokens in a layer and in the next one: 1 {MINUS} "
        "similarity, without unit. PWCCA is 0 if one layer is a linear map of the other; the map may drop "
        "directions. CKA is 0 if the layers differ only by a rotation and one scale. The chance level is the "
        "same number after the rows of one layer are shuffled. Where a curve reaches it, the two layers have "
        "no more in common than unrelated layers of this size.",
        "PWCCA counts only as many directions as the layer of lower rank has. If the next layer drops a "
        "direction altogether, CKA changes and PWCCA does not. A LayerNorm after the last block drops one "
        "direction in this way: the mean over the units. So draw conclusions only from what both measures "
        "show. Do not compare levels with published PWCCA curves: public implementations weight the directions "
        "differently, and similarity is inflated if there are few tokens per dimension (n/d). You may compare "
        "shapes, and the order of arms measured on the same tokens. Sums over layers start at 1→2, as in Voita "
        "et al. 2019. The change 0→1, from the embeddings, is shown for completeness.",
    ),
)

TOKEN_INFORMATION = FigureText(
    name="token_information",
    title="Information about the input token",
    kind=ARM_LINES,
    shown=(Shown("token_information", "cross_fitted"), Shown("token_information", "plug_in")),
    n="tokens",
    d="clusters",
    how_to_read=(
        "Each point is the mutual information, in nats, between a token and the k-means cluster of its state. "
        "The cross-fitted estimate learns clusters and counts on one half of the tokens and is scored on the "
        "other half. It is too low on average, and may fall below 0 if no information is left. The plug-in "
        "estimate is scored on the tokens that it counts. It is too high on average, most of all if a cluster has "
        "few tokens (n/d). The chance level is the same estimate with the token labels shuffled. Where a "
        "curve reaches it, the clusters no longer tell tokens apart. The ceiling is the entropy of the tokens.",
        "Clusters follow the directions in which states vary most. So the number is about geometry: it falls "
        "with the token's share of the variance, even if every state determines its token. This figure alone "
        "cannot say that a layer loses its token or rebuilds it; what probes read (the measure read_out) must "
        "agree. Levels depend on the number of clusters, of tokens and of token types, so do not compare them "
        "with published ones. You may compare shapes, and the order of arms measured on the same tokens. The "
        "standard error of a single run keeps its clusters fixed. Where the states of different tokens "
        "overlap, another text would have other clusters, and the number may move by more than this error: on "
        "simulated states of many dimensions by up to three times as much.",
    ),
)

OTHER_INFORMATION = FigureText(
    name="other_information",
    title="Information about other tokens",
    kind=ARM_LINES,
    shown=(
        *(Shown("token_information", "cross_fitted", about.capitalize(), about) for about in OTHER_TOKENS),
        *(
            Shown(
                "token_information", "plug_in", f"{about.capitalize()}, plug-in", about, "Plug-in estimates", True
            )
            for about in OTHER_TOKENS
        ),
    ),
    n="tokens",
    d="clusters",
    how_to_read=(
        "Each point is the same estimate for another token than the one that is read: a neighbour in the "
        "sentence, or the output label, which the objective learns to predict. For causal LM the output label "
        "is the next token. For masked LM the measure uses only places where a random token is shown, so that "
        "input and output differ: the shown token is the random one, the output label is the original one. The "
        "chance level is the estimate with the labels shuffled. The ceiling is the entropy of the labels.",
        "Labels differ in entropy, and masked and causal LM predict different labels. So compare heights only "
        "within a panel, between arms with the same labels. Shapes may be compared between panels. If the "
        "curve of the shown token falls and that of the output label rises, the output label replaces the "
        "shown token in the geometry of the states. Only probes (the measure read_out) can say whether the shown "
        "token can still be read there.",
    ),
)

READ_OUT = FigureText(
    name="read_out",
    title="What probes read of the input token",
    kind=ARM_LINES,
    shown=(Shown("read_out", "linear"), Shown("read_out", "mlp")),
    n="tokens",
    d="dimensions",
    how_to_read=(
        "Each point is the information about a token, in nats, that a probe reads from its state: the "
        "cross-entropy of the tokens without the states minus that of the probe's predictions. Probes learn "
        "from some sentences and are scored on others. One probe is linear. The other one also has a hidden "
        "layer; what only this probe reads is not linear. The chance level is the same number with the tokens "
        "shuffled. The ceiling is the entropy of the tokens: where a curve reaches it, the state determines "
        "the token.",
        "Probes see whitened states, so the token's share of the variance does not matter. This figure shows "
        "what can be read; k-means information shows how much of the geometry belongs to the token. Conclude "
        "that a layer loses its token, or rebuilds it, only if both figures say so. Probes are too low on "
        "average: the states may hold information that a probe cannot learn from this number of tokens. The "
        "standard error of a single run keeps its probes fixed.",
    ),
)

OTHER_READ_OUT = FigureText(
    name="other_read_out",
    title="What probes read of other tokens",
    kind=ARM_LINES,
    shown=(
        *(Shown("read_out", "linear", about.capitalize(), about) for about in OTHER_TOKENS),
        *(
            Shown(
                "read_out", "mlp", f"{about.capitalize()}, hidden layer", about, "Probes with a hidden layer", True
            )
            for about in OTHER_TOKENS
        ),
    ),
    n="tokens",
    d="dimensions",
    how_to_read=(
        "Each point is the same number for another token than the one that is read: a neighbour, or what the "
        "objective predicts, as in the figure on information about other tokens. The chance level is the "
        "number with the labels shuffled. The ceiling is the entropy of the labels.",
        "Labels differ in entropy, and masked and causal LM predict different labels. So compare heights only "
        "within a panel, between arms with the same labels.",
    ),
)

NEIGHBOURS = FigureText(
    name="neighbours",
    title="What neighbouring states have in common",
    kind=ARM_LINES,
    shown=tuple(
        Shown("neighbours", metric)
        for metric in (
            *("same_token", "position_distance", "same_left", "same_right"),
            *("same_relation", "same_sense", "same_left_part", "same_right_part"),
        )
    ),
    n="tokens",
    d="dimensions",
    how_to_read=(
        "Each point is a mean over a pool of tokens and their nearest states, by cosine. Same token: the share "
        "of a state's neighbours that come from the same token. All other panels search only among states of "
        "the same token. They show the difference of the positions in the sentences, and the share of "
        "neighbours with the same token to the left or right, the same syntactic relation, the same syntax on "
        "either side, or the same sense of a homonym. Voita et al. 2019 use the supertag of combinatory "
        "categorial grammar (CCG) and its two sides. Treebanks of Universal Dependencies have no supertags. We "
        "use the relation of a word to its head instead, and for the two sides the relations to its left and "
        "to its right, without punctuation. The built-in language has gold relations; other text has those of "
        "its treebank.",
        "The chance level is the mean over neighbours drawn at random. It differs between panels, so read how "
        "far a curve lies from it. At the chance level, near states share the property no more than any others. "
        "States keep positions if the curve lies below it, and any other property if the curve lies above it. "
        "Levels depend on the pool and on the number of neighbours: compare arms and layers, not published "
        "numbers.",
    ),
)

GEOMETRY = FigureText(
    name="geometry",
    title="The shape of the cloud of states",
    kind=ARM_LINES,
    shown=tuple(Shown("geometry", metric) for metric in METRICS["geometry"]),
    n="tokens",
    d="dimensions",
    how_to_read=(
        "Anisotropy is the mean cosine of two tokens from different sentences: 0 if states point in all "
        "directions, 1 if all point in the same direction. Its chance level is the anisotropy after the mean "
        "of the states is subtracted. Self-similarity is the mean cosine of two occurrences of a token minus the "
        "anisotropy. It falls if context changes the state of a token. Effective rank (from the "
        "entropy of the singular values) and participation ratio (from the variances) count the directions "
        "that states fill, from 1 to the width. The size of the update is how far a layer moves a state, "
        "divided by the length of the state before.",
        "The chance levels of effective rank and participation ratio have every column shuffled. They are not "
        "bounds, but the values of independent columns. The chance level of the update has the tokens of the "
        "upper layer shuffled. Below it, tokens keep their places. A few large directions decide all of these "
        "numbers. No number says what the directions hold: layers with equal counts may use different directions.",
    ),
)


def of_plugin(measure: str, metrics: Sequence[str], described: str) -> FigureText:
    """Return the figure for the layers of a plugin's measure: a panel for each metric, a line for each arm.

    Args:
        measure: name of the measure, as in ``my_measures.py:Rank``.
        metrics: metrics that have numbers of layers.
        described: description of the measure, from its source.
    """
    file, _, class_name = measure.partition(":")
    first = described or f"Each point is the number that {measure} gives to a layer."
    return FigureText(
        name=re.sub(r"\W+", "_", measure),
        title=f"{class_name} of each layer ({file})",
        kind=ARM_LINES,
        shown=(
            *(Shown(measure, metric) for metric in metrics),
            *(Shown(measure, metric, part="By group", folded=True, each=True, axis="layer") for metric in metrics),
        ),
        n="observations",
        how_to_read=(
            first,
            "The authors of this experiment wrote this measure. Its source says what the number is and how its "
            "chance level is computed.",
        ),
    )


FIGURES = (
    LEARNING,
    LAYER_CHANGE,
    TOKEN_INFORMATION,
    READ_OUT,
    OTHER_INFORMATION,
    OTHER_READ_OUT,
    RUN_DISTANCE,
    NEIGHBOURS,
    GEOMETRY,
    CHANGE_BY_RANK,
    CHANGE_BY_TAG,
    INFLUENCE_BY_RANK,
    INFLUENCE_BY_TAG,
    OVER_TRAINING,
    PICTURES,
    PROBES,
    STRUCTURE,
    RETRIEVAL,
    EXAMPLES,
    SCORES_OVER_TRAINING,
    INDEPENDENCE,
)
"""Figures in the order of the page."""
