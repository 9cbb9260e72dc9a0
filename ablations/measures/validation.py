"""How well an objective predicts text it has not seen, and how well a translation model translates it."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchmetrics.text import CHRFScore, SacreBLEUScore

from ablations.measures.settings import ValidationSettings
from lightning_modules.cross_entropy import IGNORED
from lightning_modules.data.module import evaluation_batches
from lightning_modules.data.tokenizer import decode
from lightning_modules.data.tokens import Split, Tokens
from lightning_modules.evaluation import TOKENS_AT_ONCE, evaluate
from lightning_modules.objective import Objective
from lightning_modules.translation import Translation
from lightning_modules.vocabulary import FIRST_WORD_ID, PAD

SENTENCES_AT_ONCE = 128


def validation(objective: Objective, tokens: Tokens, settings: ValidationSettings) -> Iterator[dict[str, Any]]:
    """Rows of loss (nats per predicted token) and perplexity; for translation also BLEU and chrF (0 to 100).

    Masked LM is asked at 15%, 80/10/10, with one corruption for all arms and seeds. The floor of the loss is
    that of a model that knows how frequent each token is in the training text and nothing else, on the same
    predictions; the floor of BLEU and chrF is that of the same translations with the references shuffled.
    """
    loss = evaluate(objective, tokens.validation)
    count = int(loss.predictions)
    mean, unigram = (loss.total / loss.predictions).item(), unigram_loss(objective, tokens)
    yield {"metric": "loss", "value": mean, "floor": unigram, "unit": "nats", "n": count}
    yield {"metric": "perplexity", "value": math.exp(mean), "floor": math.exp(unigram), "unit": "", "n": count}
    if isinstance(objective, Translation):
        yield from _translation_scores(objective, tokens, settings)


def unigram_loss(objective: Objective, tokens: Tokens) -> float:
    """Mean loss, in nats, of the training text's token frequencies (each count plus one, among the ids that
    the objective may be asked for) on the tokens that it is asked to predict in the validation text."""
    counts_V = tokens.target_counts_V if objective.needs_targets else tokens.source_counts_V
    assert counts_V is not None
    ids_V = np.arange(len(counts_V))
    can_be_asked_V = (ids_V >= FIRST_WORD_ID) | np.isin(ids_V, objective.special_labels)
    smoothed_V = np.where(can_be_asked_V, counts_V + 1.0, 0.0)
    loss_V = -np.log(smoothed_V / smoothed_V.sum(), where=can_be_asked_V, out=np.full(len(ids_V), np.inf))
    total = count = 0.0
    for batch in evaluation_batches(objective, tokens.validation, tokens_per_step=TOKENS_AT_ONCE):
        label_N = batch["label_N"].numpy()
        label_N = label_N[label_N != IGNORED]
        total += loss_V[label_N].sum()
        count += len(label_N)
    return total / count


def _translation_scores(
    objective: Translation, tokens: Tokens, settings: ValidationSettings
) -> Iterator[dict[str, Any]]:
    hypotheses, references = translations(objective, tokens, tokens.validation, settings.translations)
    shuffled = [references[i] for i in np.random.default_rng(0).permutation(len(references))]
    for metric, score in (("bleu", bleu), ("chrf", chrf)):
        yield {
            "metric": metric,
            "value": score(hypotheses, references),
            "floor": score(hypotheses, shuffled),
            "unit": "0-100",
            "n": len(references),
        }


def translations(
    objective: Translation, tokens: Tokens, split: Split, sentences: int
) -> tuple[list[str], list[str]]:
    """Greedy translations of a split's first sentences, and their references, as text.

    Pairs as long as `max_length` on either side are left out: they may have been cut.
    """
    assert tokens.target_tokenizer is not None
    objective.eval()
    max_length = objective.run.data.max_length
    whole = np.flatnonzero((split.lengths < max_length) & (split.target_lengths < max_length))[:sentences]
    order = whole[np.argsort(split.lengths[whole], kind="stable")]  # alike lengths together: little padding
    hypotheses: dict[int, str] = {}
    for start in range(0, len(order), SENTENCES_AT_ONCE):
        chosen = order[start : start + SENTENCES_AT_ONCE].tolist()
        rows = _padded([split.sentence(i) for i in chosen]).to(objective.device)
        for i, ids in zip(chosen, objective.translate(rows, max_length=max_length), strict=True):
            hypotheses[i] = decode(tokens.target_tokenizer, ids)
    references = [decode(tokens.target_tokenizer, split.target_sentence(i).tolist()) for i in whole.tolist()]
    return [hypotheses[i] for i in whole.tolist()], references


def _padded(sentences: list[NDArray[np.integer]]) -> torch.Tensor:
    rows = torch.full((len(sentences), max(map(len, sentences))), PAD, dtype=torch.int64)
    for row, ids in zip(rows, sentences, strict=True):
        row[: len(ids)] = torch.from_numpy(ids.astype(np.int64))
    return rows


def bleu(hypotheses: list[str], references: list[str]) -> float:
    """Corpus BLEU as sacreBLEU computes it (13a tokenisation, mixed case), 0 to 100."""
    return 100 * SacreBLEUScore(tokenize="13a")(hypotheses, [[r] for r in references]).item()


def chrf(hypotheses: list[str], references: list[str]) -> float:
    """chrF2 (character n-grams up to 6, no words), 0 to 100."""
    return 100 * CHRFScore(n_word_order=0)(hypotheses, [[r] for r in references]).item()
