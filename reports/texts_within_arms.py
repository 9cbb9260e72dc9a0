"""The figures with a panel for each arm: what they show and how to read them."""

from reports.figure_text import FigureText, Shown
from reports.numbers import MINUS
from reports.texts_between_arms import CHANGE, CHANGE_CKA, OTHER_TOKENS

MAPPED_RANKS = ((1, 10), (101, 250), (1001, 2500))
"""Of the groups of tokens that are mapped over training: frequent, middling and rare ones."""

MAPPED_TAGS = ("NOUN", "VERB", "DET")
"""And of parts of speech, as Universal Dependencies call them."""

MAPPED_GROUPS = (
    *((f"frequency ranks {first}\N{EN DASH}{last}", f"rank {first}-{last}") for first, last in MAPPED_RANKS),
    *((f"part of speech {tag}", f"tag {tag}") for tag in MAPPED_TAGS),
)
"""What each group is called, and in the results."""

CHANGE_BY_RANK = FigureText(
    name="change_by_rank",
    title="Change by frequency of the token",
    kind="groups",
    shown=(CHANGE, CHANGE_CKA._replace(part=f"1 {MINUS} debiased CKA", folded=True)),
    family="rank",
    n="tokens in each group",
    d="dimensions",
    how_to_read=(
        "Each line is the tokens of some frequency ranks, 1 being the most frequent token; each point, as "
        f"above, 1 {MINUS} similarity of their states in a layer and in the next. The chance floor is the mean "
        "over the groups. Where lines cross, layers treat frequent and rare tokens differently.",
        "Similarity is inflated where there are few tokens per dimension, so all groups have equally many: "
        "groups compare with each other and between arms, not with the change of all tokens above. A group of "
        "few types varies less than one of many, whatever a layer does: compare its line with that of the "
        "untrained encoder.",
    ),
)

CHANGE_BY_TAG = CHANGE_BY_RANK._replace(
    name="change_by_tag",
    title="Change by part of speech",
    family="tag",
    how_to_read=(
        "Each line is the tokens of one part of speech, of each word its first sub-word; each point, as above, "
        f"1 {MINUS} similarity of their states in a layer and in the next. The chance floor is the mean over the "
        "groups.",
        "All groups have equally many tokens: they compare with each other and between arms, not with the "
        "change of all tokens. Parts of speech differ in frequency; see whether ranks alone explain what you "
        "find.",
    ),
)

INFLUENCE_BY_RANK = FigureText(
    name="influence_by_rank",
    title="Influence on other tokens by frequency",
    kind="groups",
    shown=(Shown("influence", "pwcca"),),
    family="rank",
    n="other tokens for each group",
    d="dimensions",
    how_to_read=(
        "In each of some sentences one token of a group is hidden from the attention of the others, in one "
        f"layer alone. Each point is 1 {MINUS} PWCCA between the states of those others with and without it: 0 "
        "where none of them attends to it. The chance floor, dashed in the colour of its group, is the "
        "influence of a random token of the same sentences: a group above its own matters more than the tokens "
        "around it.",
        "The numbers are small, since one token is a small part of what the others attend to; their order "
        "counts. All groups have equally many others. Only attention within the layer is cut: what a token has "
        "passed on in lower layers stays, so influence is not how much a model needs a token. Voita et al. 2019 "
        "check where the influence of rare tokens comes from by training again with a tenth of the input tokens "
        "replaced at random (`token_dropout: 0.1`), after which rare tokens should stand out no more. Only an "
        "arm with that setting shows it; the article's experiments have none, objectives-all has clm-dropout and "
        "mt-dropout. Without such an arm a peak at rare tokens is described, not explained.",
    ),
)

INFLUENCE_BY_TAG = INFLUENCE_BY_RANK._replace(
    name="influence_by_tag", title="Influence on other tokens by part of speech", family="tag"
)

OVER_TRAINING = FigureText(
    name="over_training",
    title="Over training",
    kind="maps",
    shown=(
        CHANGE._replace(title=f"Change, 1 {MINUS} PWCCA similarity"),
        Shown("token_information", "cross_fitted", "Information about the input token"),
        CHANGE_CKA._replace(title=f"Change, 1 {MINUS} debiased CKA", folded=True),
        *(
            Shown("token_information", "cross_fitted", f"Information about the {about}", about, folded=True)
            for about in OTHER_TOKENS
        ),
        *(
            Shown("neighbours", metric, f"Neighbours {said}", folded=True)
            for metric, said in (
                ("same_token", "with the same token"),
                ("position_distance", "and their distance of positions"),
                ("same_left", "with the same token to the left"),
                ("same_right", "with the same token to the right"),
                ("same_relation", "with the same syntactic relation"),
                ("same_sense", "with the same sense"),
                ("same_left_part", "with the same syntax to the left"),
                ("same_right_part", "with the same syntax to the right"),
            )
        ),
        *(
            Shown("geometry", metric, folded=True)
            for metric in ("anisotropy", "self_similarity", "effective_rank", "participation_ratio", "update_norm")
        ),
        Shown("run_distance", "pwcca", "Distance between runs", folded=True),
        *(
            shown._replace(title=f"{shown.title} of {group}", about=about)
            for shown in (
                CHANGE._replace(title="Change", folded=True),
                Shown("influence", "pwcca", "Influence", folded=True),
            )
            for group, about in MAPPED_GROUPS
        ),
    ),
    n="tokens",
    d="dimensions or clusters",
    how_to_read=(
        "Each cell is a layer at a step; 0 is the initial weights. A column is the curve of the figure above "
        "at that step, a row is one layer becoming what it is. Of a metric all arms have the same colours.",
        "Steps stand side by side evenly, however far apart they are, so that a slope is no speed. Colours "
        "show no uncertainty: compare the last column with the interval of its curve before reading a small "
        "difference.",
    ),
)

PICTURES = FigureText(
    name="pictures",
    title="Pictures of single tokens",
    kind="pictures",
    shown=(
        Shown("pictures", "word"),
        Shown("pictures", "position", folded=True),
        Shown("pictures", "relation", folded=True),
        Shown("pictures", "sense", folded=True),
    ),
    n="tokens",
    d="dimensions",
    how_to_read=(
        "Each point is an occurrence of a word in a sentence, each frame a layer: t-SNE has put the states "
        "into two dimensions so that the nearest stay near. Colours and markers tell what was not used to "
        "place the points.",
        "For the eye alone: who is near whom is what a picture shows. Neither the axes, nor the size of "
        "clusters, nor the distances between them mean anything, and another seed looks otherwise. What "
        "neighbours share is measured above.",
    ),
)
