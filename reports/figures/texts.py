"""Texts of the figures with a line for each arm, about layers and tasks, and the order of all figures.

A text says what a figure shows and how to read it. Texts of other kinds of figures are in the modules of
their kinds.
"""

import re
from collections.abc import Sequence

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
    kind=ARM_LINES,
    shown=(Shown("structural_probe", "uuas", each=True, axis="layer"),),
    n="examples",
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
    kind=ARM_LINES,
    shown=(
        Shown("fine_tuning", "score", "Fine-tuning", part="Fine-tuning", each=True, axis="examples"),
        Shown("frozen_features", "score", "Frozen features", part="Frozen features", each=True, axis="examples"),
    ),
    n="test examples",
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
    kind=ARM_LINES,
    shown=(
        Shown("conditional_independence", "joint_minus_chain", axis="ratio"),
        Shown("conditional_independence", "joint", part="Its two terms", folded=True, axis="ratio"),
        Shown("conditional_independence", "chain", part="Its two terms", folded=True, axis="ratio"),
    ),
    n="pairs",
    section="tasks",
    how_to_read=(
        "Masked LM predicts all hidden tokens at once, as if they told nothing about each other. Each point "
        "is the mean log probability of two hidden neighbours when both are predicted at once, less that by "
        "the chain rule: one of them, and then the other with the first one shown, averaged over both orders. "
        "At 0 nothing is lost by predicting them at once. Below 0 the neighbours tell about each other what "
        "is left out; above 0 being shown a true neighbour makes the model's prediction worse.",
        "The chance floor is the same number with the second token of each pair taken from another sentence. It "
        "shows what one more visible token does to the model whatever it says; a false neighbour may also "
        "mislead, which lifts it above 0. Neighbours depend on each other where the curve is below both.",
        "The pairs are the same at every ratio. What else is shown may tell what the neighbour tells, or be what "
        "makes it telling: the curve need not fall with the ratio.",
    ),
)


LEARNING = FigureText(
    name="learning",
    title="Learning curves",
    kind=ARM_LINES,
    shown=(Shown("learning", "gain"),),
    n="predictions",
    how_to_read=(
        "Each point is what a model has learned by that step beyond the best guess without context: the "
        "loss of a guess that knows how frequent each word is and what is shown in its place, minus the "
        "model's, in nats per prediction, on the validation text, always read as written and under one "
        "frozen corruption. At 0 a model makes no use of context.",
        "Arms that predict other things (masked, next or translated words) are not comparable in height: "
        "some words are easier to tell than others. Where one curve overtakes another of the same "
        "objective is a finding; across objectives it is a hint.",
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
        f"Each point compares the states of the same tokens in a layer and in the next: 1 {MINUS} "
        "similarity, without unit. At 0 one layer holds the other's states up to an invertible linear map, or up "
        "to a linear map that drops directions (PWCCA), or up to a rotation and one scale (CKA). The chance "
        "floor is the same number after the rows of one layer are shuffled: what two unrelated layers of this "
        "size would show. A curve that reaches it has no more in common with its next layer than chance.",
        "PWCCA counts only as many directions as the layer of lower rank has: one that the next layer drops "
        "altogether costs nothing there, but does in CKA. A LayerNorm after the last block drops one in this "
        "way, the mean over the units. Conclude from what both show. Levels are not comparable to published "
        "PWCCA curves: public implementations weight the directions differently, and similarity is inflated "
        "where there are few tokens per dimension (n/d). Shapes, and the order of arms measured on the same "
        "tokens, are. Sums over layers start at 1→2, as in Voita et al. 2019; 0→1 leaves the embeddings and is "
        "shown for completeness.",
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
        "other: it errs low, and may fall below 0 where nothing is left to know. The plug-in estimate counts on "
        "the tokens it is scored on and errs high, by more the fewer tokens a cluster has (n/d). The chance "
        "floor is the same estimate with the token labels shuffled: a curve that reaches it no longer tells its "
        "tokens apart. The ceiling is the entropy of the tokens.",
        "Clusters follow the directions in which states vary most. The number falls with the share of the "
        "variance that the token has, even where every state determines its token: it is about geometry. Whether "
        "a layer loses its token or rebuilds it, this figure alone cannot say; what probes read (measure "
        "`read_out`) must agree. Levels depend on the number of clusters, of tokens and of token types, so they "
        "are not comparable to published ones. Shapes, and the order of arms measured on the same tokens, are. "
        "The standard error of a single run keeps its clusters as they are. Where tokens overlap, clusters of "
        "another text would be others, and move the number by more than this error says: on made states of many "
        "dimensions up to three times as much.",
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
        "Each point is the same estimate for another token than the one that is read: its neighbours in the "
        "sentence, and the output label, which the objective learns to predict. For causal LM that is the next "
        "token. For masked LM it is the original of a token that is shown as a random other one, and the shown "
        "token is that other one; both are measured at those places alone, where input and output differ. The "
        "chance floor is the estimate with the labels shuffled, the ceiling the entropy of the labels.",
        "Labels differ in entropy, and masked and causal LM are asked for different ones: heights compare "
        "between arms in one panel that read the same labels, not between panels. Shapes do. Where the curve of "
        "the shown token falls and that of the output label rises, the output label takes the place of the shown "
        "token in the geometry of the states. Whether the shown token can still be read there, only probes can "
        "say (measure `read_out`).",
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
        "cross-entropy of the tokens without the states, minus that of the probe's predictions. Probes learn "
        "from some sentences and are scored on others. One is linear. The other has a hidden layer besides: what "
        "it reads beyond the first is not linear. The chance floor is the same number with the tokens shuffled. "
        "The ceiling is the entropy of the tokens: where a curve reaches it, the state determines the token.",
        "Probes see whitened states, so the share of the variance that the token has does not matter. This "
        "figure shows what can be read; k-means information shows how much of the geometry the token has. Say "
        "that a layer loses its token, or rebuilds it, only if both figures say so. Probes err low: what they "
        "cannot learn from so many tokens may still be there. The standard error of a single run keeps its "
        "probes as they are.",
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
        "objective predicts, as at the information about other tokens. The chance floor is the number with the "
        "labels shuffled, the ceiling the entropy of the labels.",
        "Labels differ in entropy, and masked and causal LM are asked for different ones: heights compare "
        "between arms in one panel that read the same labels, not between panels.",
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
        "of a state's neighbours that come from the same token. All other panels look among states of the same "
        "token alone: how many tokens apart in their sentences they stand, and the share that agree in the token "
        "to the left or right, in syntactic relation, in what syntax asks for on either side, in the sense of a "
        "homonym. Voita et al. 2019 ask for the supertag of combinatory categorial grammar (CCG) and its two "
        "sides. Treebanks of Universal Dependencies have none: in its place stand the relation of a word to its "
        "head, and what relations it has on its left and on its right, without punctuation. The built-in "
        "language has gold relations, other text those of the treebank that was given.",
        "The chance floor is what neighbours drawn at random have on average. It differs from panel to panel, "
        "so read how far a curve lies from it: on it, nearness says nothing about what is asked. Positions are "
        "kept below their floor, the others above theirs. Levels depend on the pool and on how many neighbours "
        "are read; compare arms and layers, not published numbers.",
    ),
)

GEOMETRY = FigureText(
    name="geometry",
    title="The shape of the cloud of states",
    kind=ARM_LINES,
    shown=tuple(
        Shown("geometry", metric)
        for metric in ("anisotropy", "self_similarity", "effective_rank", "participation_ratio", "update_norm")
    ),
    n="tokens",
    d="dimensions",
    how_to_read=(
        "Anisotropy is the mean cosine of two tokens from different sentences: 0 where states point in all "
        "directions, 1 where they point in one; its floor is that of the states less their mean. "
        "Self-similarity is the mean cosine of two occurrences of a token, less the anisotropy: the more "
        "context makes of a token, the lower. Effective rank (from the entropy of the singular values) and "
        "participation ratio (from the variances) count the directions that states fill, 1 to the width. The "
        "size of the update is how far a layer moves a state, over the length it had.",
        "The floors of both counts have every column shuffled, and are no bound but what independent columns "
        "would have; the floor of the update has the tokens of the upper layer shuffled: below it, tokens keep "
        "their places. Few large directions decide all of these numbers, and none says what they hold: layers "
        "with equal counts may use different directions.",
    ),
)


def of_plugin(measure: str, metrics: Sequence[str], described: str) -> FigureText:
    """Return the figure for the layers of a plugin's measure: a panel for each metric, a line for each arm.

    Args:
        measure: name of the measure, as in ``my_measures.py:Rank``.
        metrics: metrics that have numbers of layers.
        described: description of the measure, from its source.
    """
    file, _, thing = measure.partition(":")
    first = described or f"Each point is the number that {measure} gives to a layer."
    return FigureText(
        name=re.sub(r"\W+", "_", measure),
        title=f"{thing} of each layer ({file})",
        kind=ARM_LINES,
        shown=(
            *(Shown(measure, metric) for metric in metrics),
            *(Shown(measure, metric, part="By group", folded=True, each=True, axis="layer") for metric in metrics),
        ),
        n="observations",
        how_to_read=(
            first,
            "The authors of this experiment wrote this measure: its source says what the number is, and what its "
            "floor is computed from.",
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
