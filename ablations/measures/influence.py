"""Influence of a token on the others (Voita et al. 2019, section 5.3).

In each of some sentences one token of a group is chosen. Layer l is computed twice from the same states below
it: as always, and with the chosen token hidden from the attention of all others in this layer alone. The
influence of the group is the distance of the two versions of the *other* tokens' states.

Letters: B sentences, T positions, D width, L layers, N other tokens.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ablations.errors import MeasureError
from ablations.measures.jackknife import errors, sentence_blocks
from ablations.measures.reading.sample import Sample, groups, is_text_token
from ablations.measures.reading.texts import Readings, Say, Texts, padded
from ablations.measures.settings import REFUSED_BELOW, Grouping, InfluenceSettings
from ablations.measures.similarity import pwcca
from ablations.measures.similarity.indices import require_tokens
from ablations.measures.similarity.moments import Moments
from ablations.measures.similarity.sides import or_nan
from lightning_modules.config import RunSettings
from lightning_modules.data.token_store import Split
from lightning_modules.data.tokenizer import PAD
from lightning_modules.model.attention import sight_of, visible_in
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive

SENTENCES_AT_ONCE = 128


class Chosen(NamedTuple):
    """One chosen token in each of some sentences."""

    sentence_S: NDArray[np.int64]
    position_S: NDArray[np.int64]


def rows(readings: Readings, settings: InfluenceSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `influence` of a run from its validation text. Rows of parts of speech come from
    the treebank if one is named."""
    reading = readings.texts.validation(settings)
    yield from influence(readings.objective, reading.split, reading.sample, settings)
    if settings.treebank is not None and "part_of_speech" in settings.groups:
        split, sample = readings.texts.treebank(settings.treebank, settings)
        count = settings.sentences
        yield from group_influence(readings.objective, split, sample, "part_of_speech", sentences=count)


def require(settings: InfluenceSettings, texts: Texts, run: RunSettings) -> None:
    """Raise a MeasureError if no group of a text is in enough sentences, or if these have too few tokens for
    the width of the run."""
    text = texts.validation(settings)
    readings = [(text, by) for by in settings.groups if by == "frequency" or "tag" in text.sample.labels]
    if settings.treebank is not None and "part_of_speech" in settings.groups:
        readings.append((texts.treebank(settings.treebank, settings), "part_of_speech"))
    for (split, sample), by in readings:
        others = _fewest_others(split, choices(split, sample, by, settings.sentences))
        require_tokens(others, run.encoder.hidden_size, measure="influence")


def influence(
    objective: Objective, split: Split, sample: Sample, settings: InfluenceSettings
) -> Iterator[dict[str, Any]]:
    """Yield rows of 1 - PWCCA for each layer, from 1, and each group, over equally many other tokens.

    The value is 0 if no token attends to the chosen ones. The chance level (`floor`) is the influence of a
    token drawn at random from the same sentences: a group above it matters more than the tokens around it.
    Special tokens are neither chosen nor measured.

    Raises:
        MeasureError: an encoder without attention, no group with enough sentences, or fewer than five other
            tokens per unit of width.
    """
    for by in settings.groups:
        if by == "frequency" or "tag" in sample.labels:
            yield from group_influence(objective, split, sample, by, sentences=settings.sentences)


def group_influence(
    objective: Objective, split: Split, sample: Sample, by: Grouping, *, sentences: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `influence` for the groups of one kind."""
    if not objective.run.objective.has_one_attention:
        raise MeasureError(
            f"influence hides a token from attention, but {objective.run.objective.kind} has no single stack of "
            "attention layers; leave the measure out, or give the arm a spec of its own."
        )
    chosen = choices(split, sample, by, sentences)
    others = _fewest_others(split, chosen)
    width = objective.run.encoder.hidden_size
    require_tokens(others, width, measure="influence")
    for name, tokens in chosen.items():
        at_random = _tokens_at_random(split, tokens, seed=derive(0, name))
        of_group = distances(objective, split, tokens, others)
        random = distances(objective, split, at_random, others, jackknife=False)
        for layer, (value, left_out) in enumerate(of_group, start=1):
            yield {
                "metric": "pwcca",
                "group": name,
                "layer": layer,
                "value": value,
                "floor": random[layer - 1][0],
                **errors(left_out),
                "unit": "distance",
                "n": others,
                "d": width,
            }


def choices(split: Split, sample: Sample, by: Grouping, sentences: int) -> dict[str, Chosen]:
    """Return the chosen tokens of each group that occurs in enough sentences.

    Raises:
        MeasureError: no group occurs in enough sentences.
    """
    by_group = {name: choose(sample, place, sentences, name) for name, place in groups(sample, by)}
    enough = {name: chosen for name, chosen in by_group.items() if chosen is not None}
    if not enough:
        remedy = "raise the measure's `tokens`" if sample.sentences < len(split) else "give more text"
        raise MeasureError(
            f"influence needs a group of tokens that occurs in {sentences} sentences of two words or more, but "
            f"no group by {by} does; {remedy}, or lower the measure's `sentences`."
        )
    return enough


def choose(sample: Sample, place: NDArray[np.int64], sentences: int, name: str) -> Chosen | None:
    """Choose one of the occurrences at `place` in each of `sentences` sentences with at least two text
    tokens.

    The draw is random but depends only on the sample and the name. The sentences are in ascending order.
    Returns None if there are too few sentences.
    """
    rng = np.random.default_rng(derive(0, "influence", name))
    shuffled = rng.permutation(place)
    long = np.bincount(sample.sentence_N)[sample.sentence_N[shuffled]] >= 2
    sentence, first = np.unique(sample.sentence_N[shuffled[long]], return_index=True)
    if len(sentence) < sentences:
        return None
    kept = np.sort(rng.choice(len(sentence), sentences, replace=False))
    return Chosen(sentence[kept], sample.position_N[shuffled[long][first[kept]]])


def distances(
    objective: Objective, split: Split, chosen: Chosen, others: int, *, jackknife: bool = True
) -> list[tuple[float, list[float]]]:
    """Return for each layer, from 1, the distance 1 - PWCCA between the other tokens' states as always and with
    the chosen tokens hidden from attention in that layer alone.

    Only the first `others` of the other tokens count. Each distance comes with its values without block 0,
    without block 1, ... of the sentences that count, for the jackknife. This list is empty if `jackknife` is
    False or too few tokens remain.
    """
    layers = objective.run.encoder.num_hidden_layers
    counting = int(_others(split, chosen).cumsum().searchsorted(others)) + 1
    chosen = Chosen(*(part_S[:counting] for part_S in chosen))
    block_S = sentence_blocks(np.arange(len(chosen.sentence_S)))
    parts: list[Moments] = []
    left = others
    for block in range(int(block_S.max()) + 1):
        origin = parts[0].origin if parts else None
        parts.append(Moments(pairs=[(layer, layers + layer) for layer in range(layers)], origin=origin))
        members = np.flatnonzero(block_S == block)
        for start in range(0, len(members), SENTENCES_AT_ONCE):
            kept = members[start : start + SENTENCES_AT_ONCE]
            sides = _both_versions(objective, split, Chosen(chosen.sentence_S[kept], chosen.position_S[kept]))
            parts[-1].add(*(side_ND[:left] for side_ND in sides))
            left -= len(sides[0])
    whole = sum(parts[1:], parts[0])
    without = [whole - part for part in parts] if jackknife else []
    if without and min(map(len, without)) < REFUSED_BELOW * objective.run.encoder.hidden_size:
        without = []
    return [
        (
            1 - pwcca(whole.side(layer), whole.side(layers + layer)),
            [1 - or_nan(pwcca, others.side, layer, layers + layer) for others in without],
        )
        for layer in range(layers)
    ]


@torch.no_grad()
def _both_versions(objective: Objective, split: Split, chosen: Chosen) -> list[Tensor]:
    """Return the other tokens' states of layers 1 to L, ND each, then the same when the chosen tokens are
    hidden."""
    encoder, settings = objective.encoder.eval(), objective.run.objective
    tokens_BT = padded(map(split.sentence, chosen.sentence_S.tolist())).to(objective.device)
    hidden_BT = torch.zeros_like(tokens_BT, dtype=torch.bool)
    hidden_BT[torch.arange(len(tokens_BT)), torch.from_numpy(chosen.position_S).to(objective.device)] = True
    is_text_BT = torch.from_numpy(is_text_token(tokens_BT.cpu().numpy())).to(objective.device)
    other_BT = is_text_BT & ~hidden_BT
    visible_BHTT = visible_in((tokens_BT != PAD).long(), settings.sees, objective.window)
    itself_TT = torch.eye(tokens_BT.shape[1], dtype=torch.bool, device=objective.device)
    states_BTD = encoder.embed(tokens_BT)
    seen, unseen = (
        sight_of(objective.run.encoder, x, states_BTD)
        for x in (visible_BHTT, visible_BHTT & (~hidden_BT[:, None, None] | itself_TT))
    )
    normal, without = [], []
    for block in encoder.blocks:
        without.append(block(states_BTD, unseen)[other_BT].float())
        states_BTD = block(states_BTD, seen)
        normal.append(states_BTD[other_BT].float())
    return normal + without


def _fewest_others(split: Split, chosen: Mapping[str, Chosen]) -> int:
    """Return the number of text tokens in the sentences of a group, besides the chosen ones; the smallest of all
    groups."""
    return min(int(_others(split, tokens).sum()) for tokens in chosen.values())


def _others(split: Split, chosen: Chosen) -> NDArray[np.int64]:
    """Return the number of text tokens of each sentence, besides the chosen one."""
    return np.array([is_text_token(split.sentence(i)).sum() - 1 for i in chosen.sentence_S.tolist()])


def _tokens_at_random(split: Split, chosen: Chosen, *, seed: int) -> Chosen:
    """Choose another text token of each sentence, at random."""
    rng = np.random.default_rng(seed)
    positions = []
    for sentence, position in zip(*map(np.ndarray.tolist, chosen), strict=True):
        places = np.flatnonzero(is_text_token(split.sentence(sentence)))
        positions.append(rng.choice(places[places != position]))
    return Chosen(chosen.sentence_S, np.array(positions))
