"""Whether a text has enough tokens for a measure: asked before anything is trained."""

import numpy as np

from ablations.measures.cca import require_tokens
from ablations.measures.information import fitting_halves, most_frequent
from ablations.measures.sample import first_tokens
from ablations.measures.settings import LayerChangeSettings, Measure, TokenInformationSettings
from lightning_modules.data.tokens import Split


def require_enough_text(settings: Measure, validation: Split, *, hidden_size: int) -> None:
    """Refuse what measuring would refuse after the training, as far as the text and the width decide it.

    Raises:
        MeasureError: no sentence in the sample, too few tokens for the width, or for the clusters.
    """
    match settings:
        case LayerChangeSettings():
            sample = first_tokens(validation, settings.tokens)
            require_tokens(len(sample.token_N), hidden_size, measure="layer_change")
        case TokenInformationSettings():
            sample = first_tokens(validation, settings.tokens)
            frequent_N = most_frequent(sample.token_N, settings.types)
            # The first child of the seed that measuring starts from: the very halves it will use.
            (split,) = np.random.default_rng(0).spawn(1)
            fitting_halves(sample.sentence_N[frequent_N], clusters=settings.clusters, rng=split)
