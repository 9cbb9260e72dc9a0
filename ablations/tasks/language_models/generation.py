"""Fluency and diversity of sentences that a language model generates.

Neither says much alone: the same good sentence again and again is fluent, random tokens are diverse. The scores of
real text stand beside them, and are the target; fewer nats or more variety than that is not better.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablations.errors import MeasureError
from ablations.measures.reading.texts import Readings, Say
from ablations.tasks.language_models.judge import Judge
from ablations.tasks.language_models.sampling import (
    Sentence,
    at_once,
    drawing,
    from_left_to_right,
    mask_predict,
    next_log_probabilities,
)
from ablations.tasks.language_models.sentence_scores import masked_log_probabilities
from ablations.tasks.metrics import share_error, standard_error
from ablations.tasks.settings import GenerationSettings
from lightning_modules.data.token_store import Split, Tokens
from lightning_modules.objectives.causal_lm import CausalLM
from lightning_modules.objectives.masked_lm import MaskedLM
from lightning_modules.objectives.mixture import Mixture
from lightning_modules.objectives.objective import Objective
from lightning_modules.randomness import derive, uniforms
from lightning_modules.vocabulary import END, FIRST_WORD_ID, START, UNKNOWN


def rows(readings: Readings, settings: GenerationSettings, say: Say) -> Iterator[dict[str, Any]]:
    """Compute the rows of `generation` of a run."""
    return generation_rows(readings.objective, readings.tokens, settings)


def generation_rows(
    objective: Objective, tokens: Tokens, settings: GenerationSettings
) -> Iterator[dict[str, Any]]:
    """Yield rows of `fluency`, `distinct_1`, `distinct_2`, `copied` and `length`; and of as many sentences of the
    validation text, as `fluency_of_text` and so on. Masked LM makes up sentences of their lengths. No more
    sentences are made up than the validation text has.

    `fluency` is in nats per token (END counts, START does not) of a trigram model of the training text; fewer are
    more fluent. Its floor is that of sentences as long of tokens drawn by their frequency. `copied` is the share
    of sentences that stand in the training text as they are, `length` the mean number of tokens, START and END
    apart.

    No group: what the objective is named after, of mask-predict with the last of the settings' iterations. Groups:
    `iterations=4` for other numbers of them, and `causal_lm` for what a mixture makes up from left to right.

    Raises:
        MeasureError: the objective is no language model.
    """
    real = _text(tokens.validation, settings.sentences_wanted)
    generated = _made_up(objective, real, settings)
    judge, training_texts = Judge(tokens.train, vocab_size=tokens.vocab_size), _texts_of(tokens.train)
    for group, sentences in generated.items():
        for row in _rows(sentences, judge, training_texts):
            if row["metric"] == "fluency":
                row["floor"] = _mean_nats(judge, _random_text(sentences, tokens.source_counts_V))
            yield row | {"group": group}
    for row in _rows(real, judge, training_texts):
        yield row | {"metric": f"{row['metric']}_of_text"}


def _made_up(
    objective: Objective, real: Sequence[Sentence], settings: GenerationSettings
) -> dict[str | None, list[Sentence]]:
    """Return generated sentences by group."""
    drawn = drawing(temperature=settings.temperature, top_p=settings.top_p)
    generated: dict[str | None, list[Sentence]] = {}
    if isinstance(objective, MaskedLM | Mixture):
        for steps in settings.iterations:
            group = None if steps == settings.iterations[-1] else f"iterations={steps}"
            generated[group] = mask_predict(
                masked_log_probabilities(objective, asks="generation"),
                [len(sentence) - 2 for sentence in real],
                iterations=steps,
                key=derive(0, "mask-predict", steps),
                drawn=drawn,
                vocab_size=objective.vocab_size,
                device=objective.device,
            )
    if isinstance(objective, CausalLM | Mixture):
        generated[None if isinstance(objective, CausalLM) else "causal_lm"] = from_left_to_right(
            next_log_probabilities(objective),
            len(real),
            max_length=objective.run.data.max_length,
            key=derive(0, "sampling"),
            drawn=drawn,
            rows=at_once(objective.vocab_size, 1, objective.device),
            device=objective.device,
        )
    if not generated:
        raise MeasureError(
            f"generation asks for a language model, but {objective.run.objective.kind} is none; leave the measure "
            f"out, or give the arm a spec of its own."
        )
    return generated


def _text(split: Split, count: int) -> list[Sentence]:
    """Return so many sentences at random, all if there are fewer."""
    order_S = np.argsort(uniforms(derive(0, "generation"), np.arange(len(split))), kind="stable")
    return [split.sentence(i).astype(np.int64) for i in order_S[:count]]


# Scores ----------------------------------------------------------------------------------------------


def _rows(
    sentences: Sequence[Sentence], judge: Judge, training_texts: frozenset[bytes]
) -> Iterator[dict[str, Any]]:
    nats = judge.nats(sentences)
    tokens_S = np.array([len(nats_T) for nats_T in nats])
    S, n = len(sentences), int(tokens_S.sum())
    fluency = float(np.concatenate(nats).mean())
    # Tokens are independent between sentences only.
    error = standard_error(np.concatenate(nats), np.repeat(np.arange(S), tokens_S))
    yield {"metric": "fluency", "value": fluency, "standard_error": error, "unit": "nats", "n": n}
    for k in (1, 2):
        yield {"metric": f"distinct_{k}", "value": distinct(sentences, k), "unit": "", "n": S}
    copied_S = np.array([_inside(sentence).tobytes() in training_texts for sentence in sentences])
    length_S = np.array([len(_inside(sentence)) for sentence in sentences])
    share = {"value": float(copied_S.mean()), "standard_error": share_error(copied_S), "unit": ""}
    yield {"metric": "copied", "n": S} | share
    mean = {"value": float(length_S.mean()), "standard_error": standard_error(length_S, np.arange(S))}
    yield {"metric": "length", "n": S, "unit": "tokens"} | mean


def distinct(sentences: Sequence[NDArray[np.integer]], n: int) -> float:
    """Return the number of different n-grams over the number of tokens, START and END apart (Li et al. 2016,
    section 5.1: tokens, not n-grams). It falls with the amount of text; compare equally much. 0 for no tokens."""
    texts = [_inside(sentence).tolist() for sentence in sentences]
    tokens = sum(map(len, texts))
    grams = {tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)}
    return len(grams) / max(tokens, 1)


def _inside(sentence: NDArray[np.integer]) -> Sentence:
    """Return a sentence without START and END."""
    return sentence[(sentence != START) & (sentence != END)].astype(np.int64)


def _texts_of(split: Split) -> frozenset[bytes]:
    """Return all sentences of a split, in a form that can be looked up."""
    return frozenset(_inside(split.sentence(i)).tobytes() for i in range(len(split)))


def _mean_nats(judge: Judge, sentences: Sequence[Sentence]) -> float:
    return float(np.concatenate(judge.nats(sentences)).mean())


def _random_text(sentences: Sequence[Sentence], counts_V: NDArray[np.int64]) -> list[Sentence]:
    """Replace each token by one that is drawn by its frequency in the training text; START and END stay."""
    ids_V = np.arange(len(counts_V))
    text_V = np.where((ids_V >= FIRST_WORD_ID) | (ids_V == UNKNOWN), counts_V, 0)
    end_V = np.cumsum(text_V) / text_V.sum()
    replaced = []
    for number, sentence in enumerate(sentences):
        uniform_T = uniforms(derive(0, "random text"), np.array([number]), np.arange(len(sentence)))
        drawn_T = np.searchsorted(end_V, uniform_T, side="right")
        replaced.append(np.where((sentence == START) | (sentence == END), sentence, drawn_T))
    return replaced
