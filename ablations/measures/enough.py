"""Whether a text has enough tokens for a measure: asked before anything is trained."""

from ablations.measures.cca import require_tokens
from ablations.measures.influence import choices
from ablations.measures.pictures import occurrences
from ablations.measures.pools import require_occurrences
from ablations.measures.sample import Sample
from ablations.measures.settings import (
    InfluenceSettings,
    LayerChangeSettings,
    MeasureSettings,
    NeighboursSettings,
    PicturesSettings,
    RunDistanceSettings,
    TokenInformationSettings,
)
from ablations.measures.token_information import asked, require_enough
from lightning_modules.config.objectives import Output
from lightning_modules.data.tokens import Tokens


def require_enough_text(
    settings: MeasureSettings, sample: Sample, tokens: Tokens, *, hidden_size: int, output: Output
) -> None:
    """Refuse what measuring would refuse after the training, as far as the text and the width decide it.

    Raises:
        MeasureError: too few tokens for the width or for the clusters, or too few occurrences of a token.
    """
    match settings:
        case LayerChangeSettings() | RunDistanceSettings():
            require_tokens(len(sample), hidden_size, measure=settings.kind)
        case TokenInformationSettings():
            require_enough(asked(sample, settings, output), sample, settings)
        case NeighboursSettings():
            require_occurrences(sample, settings)
        case PicturesSettings():
            occurrences(sample, settings, tokens.tokenizer)
        case InfluenceSettings():
            for by in settings.groups:
                if by == "frequency" or "tag" in sample.labels:
                    choices(sample, by, settings.sentences)
