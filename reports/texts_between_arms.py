"""The figures that compare arms in one panel: what they show and how to read them."""

from reports.figure_text import FigureText, Shown
from reports.numbers import MINUS

OTHER_TOKENS = ("next token", "previous token", "output label", "shown token")

CHANGE, CHANGE_CKA = Shown("layer_change", "pwcca"), Shown("layer_change", "debiased_cka")

LEARNING = FigureText(
    name="learning",
    title="Learning curves",
    kind="arms",
    shown=(Shown("learning", "gain"),),
    n="predictions",
    d="",
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
    kind="arms",
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
    kind="arms",
    shown=(Shown("token_information", "cross_fitted"), Shown("token_information", "plug_in")),
    n="tokens",
    d="clusters",
    how_to_read=(
        "Each point is the mutual information, in nats, between a token and the k-means cluster of its "
        "state. The cross-fitted estimate learns clusters and counts on one half of the tokens and is "
        "scored on the other: it errs low, and may fall below 0 where nothing is left to know. The plug-"
        "in estimate counts on the tokens it is scored on and errs high, by more the fewer tokens a "
        "cluster has (n/d). The chance floor is the same estimate with the token labels shuffled: a "
        "curve that reaches it no longer tells its tokens apart.",
        "Levels depend on the number of clusters, of tokens and of token types, so they are not "
        "comparable to published ones. Shapes, and the order of arms measured on the same tokens, are: "
        "where a curve falls, the model forgets which token it read; where it rises again, it recovers "
        "it. The standard error of a single run keeps its clusters as they are. Where tokens overlap, clusters of "
        "another text would be others, and move the number by more than this error says: on made states of many "
        "dimensions up to three times as much.",
    ),
)

OTHER_INFORMATION = FigureText(
    name="other_information",
    title="Information about other tokens",
    kind="arms",
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
        "chance floor is the estimate with the labels shuffled.",
        "Labels differ in entropy, and masked and causal LM are asked for different ones: heights compare between "
        "arms in one panel that read the same labels, not between panels. Shapes do: where the shown token is "
        "forgotten while the output label comes to be known, a layer turns from what it read to what it predicts.",
    ),
)

RUN_DISTANCE = FigureText(
    name="run_distance",
    title="Distance between runs in the same layer",
    kind="pairs",
    shown=(Shown("run_distance", "pwcca"), Shown("run_distance", "debiased_cka")),
    n="tokens",
    d="dimensions",
    how_to_read=(
        f"Each point compares what two runs make of the same tokens in the same layer: 1 {MINUS} similarity. "
        "At 0 the states of one are a linear map (PWCCA; a direction that only one of them has is not counted), "
        "or a rotation and one scale (CKA), of the other's. Lines with filled markers are two arms with the same "
        "seed, the colour being that of the second arm and the markers those of the first; dotted lines with "
        "hollow markers are two seeds of one arm. The chance floor is the same number with the rows of one run "
        "shuffled: two runs with nothing in common.",
        "Where the line of two arms lies above the dotted lines of both, they differ by more than the luck of "
        "training. Beware: arms with the same seed start from the same weights, two seeds do not, so that layers "
        "which training moves little may lie closer between arms than between seeds.",
    ),
)

NEIGHBOURS = FigureText(
    name="neighbours",
    title="What neighbouring states have in common",
    kind="arms",
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
    kind="arms",
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
