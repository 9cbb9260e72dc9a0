"""Mutual information of labels and states in one step, for tests that ask about one label."""

from ablations.measures.information.estimate import TokenInformation, clusters_of, information_of
from ablations.measures.information.plug_in import Labels
from ablations.measures.similarity.sides import Matrix


def token_information(
    states_ND: Matrix, labels_N: Labels, sentences_N: Labels, *, clusters: int, seed: int
) -> TokenInformation:
    """Return the mutual information of a label of tokens and their states, by k-means, with chance levels.

    See `clusters_of` and `information_of`, which also say what is raised.
    """
    clustered = clusters_of(states_ND, sentences_N, clusters=clusters, seed=seed)
    return information_of(clustered, labels_N, sentences_N, clusters=clusters, seed=seed)
