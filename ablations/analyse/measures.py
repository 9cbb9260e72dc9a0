"""Choice of the measures of `ablate analyse`: those of a file, or four of hidden states, fitted to a
text."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from ablations import yamlfile
from ablations.errors import MeasureError, SpecProblems
from ablations.measures.geometry import doubt
from ablations.measures.layer_change import small_groups
from ablations.measures.neighbours import types_within
from ablations.measures.reading.sample import Sample
from ablations.measures.settings import (
    GeometrySettings,
    LayerChangeSettings,
    NeighboursSettings,
    QuestionSettings,
    ReadOutSettings,
    TokenInformationSettings,
)
from ablations.measures.token_information import clusters_within
from ablations.messages import validated
from ablations.spec.experiment import each_kind_once
from ablations.tasks.settings import MinimalPairsSettings
from ablations.wording import listed
from lightning_modules import plugins
from lightning_modules.config import Settings
from lightning_modules.config.settings import from_name

StateMeasure = (
    LayerChangeSettings | TokenInformationSettings | ReadOutSettings | NeighboursSettings | GeometrySettings
)
"""Settings of the measures that need nothing but hidden states."""

AnyMeasure = StateMeasure | MinimalPairsSettings
"""Settings of the measures of a model from elsewhere. Minimal pairs also need a masked-LM head and files."""

ENOUGH_TOKENS = 150
"""Tokens for each unit of the width. With fewer, chance changes a distance visibly."""

FEWEST_TOKENS = 50_000
"""Number of tokens that are read at any width if the text has them, because `token_information` needs them."""

STATES_BYTES = 6 * 2**30
"""Limit of the bytes of the hidden states of all layers. For more, a user must give the number of tokens."""

SAID_ELSEWHERE = {
    "checkpoints": "every checkpoint of a series is measured",
    "tokens": "--tokens sets how many tokens all measures read",
    "predictions": "predictions are kept in the folder of a run, and a model from elsewhere has no such folder",
    "treebank": "--labels names the treebank of the text",
}
"""Settings of a spec's measures that have no meaning here, with the reason."""


class MeasuresFile(Settings):
    """Content of the file of `--measures`: `measures`, as in a spec. The command names the text."""

    measures: Annotated[
        tuple[Annotated[Annotated[AnyMeasure, Field(discriminator="kind")], BeforeValidator(from_name)], ...],
        Field(min_length=1, strict=False),
        AfterValidator(each_kind_once),
    ]
    """Names, or mappings with a kind and its settings."""


def load(path: Path) -> tuple[AnyMeasure, ...]:
    """Return the measures of a file. Files of tasks that they name lie beside it, as beside a spec.

    Raises:
        SpecProblems: all problems of the file, with line and column.
    """
    plugins.look_beside(path)
    document = yamlfile.read(path, example="measures: [geometry]")
    file, problems = validated(document, MeasuresFile)
    for number, settings in enumerate(file.measures if file else ()):
        for name in SAID_ELSEWHERE.keys() & settings.model_fields_set:
            sentence = f"measures.{settings.kind}.{name} cannot be set here: {SAID_ELSEWHERE[name]}; leave it out"
            problems.add(document.problem(("measures", number, name), sentence, at="key"))
    if problems or file is None:
        raise SpecProblems(tuple(sorted(problems)))
    return file.measures


def require_known(measures: Iterable[AnyMeasure], *, labelled: bool) -> None:
    """Raise an error, before a model is loaded, if a measure needs labels or outputs that are not known.

    Raises:
        MeasureError: a measure asks for groups by part of speech without labels, or for the output that a
            model from elsewhere was trained to predict.
    """
    for settings in measures:
        match settings:
            case LayerChangeSettings() if "part_of_speech" in settings.groups and not labelled:
                raise MeasureError(
                    "layer_change: groups has part_of_speech, but the text has no parts of speech; give "
                    "--labels, or leave part_of_speech out."
                )
            case QuestionSettings() if "output" in settings.about:
                raise MeasureError(
                    f"{settings.kind}: about has output, but it is not known what a model from elsewhere "
                    "predicts; leave output out, or write next if the model predicts the next token."
                )


def usual_tokens(sizes: Sequence[tuple[int, int]]) -> int:
    """Return the number of tokens that a distance needs at the largest width.

    It is limited so that the hidden states of each model fit into `STATES_BYTES`.

    Args:
        sizes: width and number of hidden states of a token, for each model.
    """
    enough = max(FEWEST_TOKENS, *(ENOUGH_TOKENS * width for width, _ in sizes))
    return min(enough, *(STATES_BYTES // (4 * width * layers) for width, layers in sizes))


def usual_measures(tokens: int, *, labelled: bool) -> list[AnyMeasure]:
    """Return the default measures, with groups by part of speech if there are labels.

    `read_out`, which takes longer, and `minimal_pairs`, which needs files, must be named in a file of
    measures.
    """
    groups = ["frequency", *["part_of_speech"] * labelled]
    about = ["input", "previous", "next"]
    return [
        LayerChangeSettings.model_validate({"kind": "layer_change", "tokens": tokens, "groups": groups}),
        TokenInformationSettings.model_validate({"kind": "token_information", "tokens": tokens, "about": about}),
        NeighboursSettings(kind="neighbours", tokens=tokens),
        GeometrySettings(kind="geometry", tokens=tokens),
    ]


def fitted(settings: AnyMeasure, sample: Sample) -> AnyMeasure:
    """Return the settings with fewer clusters if the text is short.

    If the text is too short for any clusters, the settings stay as they are, and the measure is refused
    later.
    """
    if not isinstance(settings, TokenInformationSettings):
        return settings
    try:
        return settings.model_copy(update={"clusters": clusters_within(sample, settings)})
    except MeasureError:
        return settings


def caveats(measures: Iterable[AnyMeasure], sample: Sample, *, width: int, remedy: str) -> Iterator[str]:
    """Yield a sentence for each caveat of these measures on these tokens.

    Args:
        remedy: words that say how to get more tokens.
    """
    n, usual = len(sample), TokenInformationSettings(kind="token_information").clusters
    for settings in measures:
        match settings:
            case LayerChangeSettings():
                if n < ENOUGH_TOKENS * width:
                    yield (
                        f"layer_change: {n:,} tokens are {n / width:.0f} for each of the {width:,} units of the "
                        f"width, so chance changes its distances; to have {ENOUGH_TOKENS} for each, {remedy}."
                    )
                if "part_of_speech" in settings.groups and "tag" not in sample.labels:
                    yield (
                        "layer_change: the labels have no part of speech, so there is no curve by part of speech."
                    )
                fewest, small = small_groups(sample, settings, width=width)
                if small:
                    counted = listed([f"{name} ({count:,})" for name, count in small.items()], "and")
                    yield (
                        f"layer_change: groups with fewer than {fewest:,} tokens have no curve. These are "
                        f"{counted}; {remedy}."
                    )
            case TokenInformationSettings() if settings.clusters < usual:
                yield (
                    f"token_information: {settings.clusters:,} clusters instead of the usual {usual:,}; compare "
                    "its numbers only with those of equally many clusters and tokens."
                )
            case NeighboursSettings() if 2 <= (types := types_within(sample, settings)) < settings.types:
                yield (
                    f"neighbours: {types:,} types instead of {settings.types:,}, because the others occur fewer "
                    f"than {settings.occurrences:,} times; {remedy}."
                )
            case GeometrySettings() if sentence := doubt(n, width=width, remedy=remedy):
                yield sentence
