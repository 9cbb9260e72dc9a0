"""Minimal pairs for a masked LM from elsewhere, with its own tokenizer and head, scored as those of runs.

One thing differs from `minimal_pairs` of a run: the text that the model was trained on is not known. So there
is no `covered`, and `accuracy_by_unigram` takes the frequencies of pieces in the text that is analysed.

Letters: B rows at once, T positions, V ids, N pairs, M rows of a query.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ablations.analyse.model import LOCAL, OPTIONS, HuggingFaceModel, checked_config, library, reason, require_ids
from ablations.errors import MeasureError
from ablations.tasks.datasets import files_now
from ablations.tasks.examples import Source, examples_of
from ablations.tasks.language_models.minimal_pairs import (
    guesses,
    log_frequencies,
    outcomes,
    pairs_of,
    rows_of_pairs,
)
from ablations.tasks.language_models.sentence_scores import (
    Answer,
    Query,
    Scores,
    SpecialTokens,
    answered,
    pseudo_log_likelihoods_by,
)
from ablations.tasks.settings import MinimalPairsSettings
from ablations.wording import listed

HEADS = {
    "bert": "cls",
    "roberta": "lm_head",
    "distilbert": "vocab_transform",
    "electra": "generator_predictions",
    "albert": "predictions",
    "xlm-roberta": "lm_head",
    "camembert": "lm_head",
    "mpnet": "lm_head",
    "deberta-v2": "cls",
    "modernbert": "head",
    "longformer": "lm_head",
    "roformer": "cls",
    "xlm-roberta-xl": "lm_head",
    "roberta-prelayernorm": "lm_head",
}
"""First module of the masked-LM head, which reads the top layer, for the model types with such a head."""

HEAD_OF_NEW_DEBERTA = "lm_predictions"
"""The same for DeBERTa-v2 and -v3 with `"legacy": false` in their config."""


class MaskedModel(NamedTuple):
    """Masked LM from elsewhere, with its head."""

    model: Any
    head: Any
    """First module of the head."""
    tokenizer: Tokenizer
    """Tokenizer that cuts a sentence into all its pieces, without special tokens."""
    special: SpecialTokens


def require_tasks(settings: MinimalPairsSettings, *, data_root: Path) -> None:
    """Raise a MeasureError if a task is of the built-in language, or its file is missing."""
    tasks = [part.task for part in settings.parts(built_in=False)]
    for task in tasks:
        if task.built_in:
            raise MeasureError(
                f"minimal_pairs: {task.name} has sentences of the built-in language, which a model from "
                "elsewhere has not learned; leave it out."
            )
        if (problem := task.problem(data_root)) is not None:
            raise MeasureError(f"minimal_pairs: {problem}; give --data-root, or leave {task.name} out.")


def with_head(model: HuggingFaceModel) -> MaskedModel:
    """Return the model with its masked-LM head. An untrained model gets a head with random weights.

    Raises:
        MeasureError: the model type has no such head, the folder lacks its weights, or the tokenizer is not
            fast, lacks [CLS], [SEP] or [MASK], or gives ids that the model does not have.
    """
    kind = checked_config(model.folder)["model_type"]  # type of the whole model, not of the encoder in it
    if kind not in HEADS:
        raise MeasureError(
            f"minimal_pairs needs a model that predicts hidden tokens, but models of model_type {kind!r} do "
            f"not, expected {listed(list(HEADS), 'or')}; leave the measure out."
        )
    tokenizer = model.tokenizer
    special = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id]
    if not tokenizer.is_fast or None in special:
        raise MeasureError(
            f"minimal_pairs needs a fast tokenizer with the tokens [CLS], [SEP] and [MASK], but {model.folder} "
            "has none; give a model with its tokenizer.json, or leave the measure out."
        )
    require_ids(model, max(special))
    whole = _of_folder(model) if model.drawn is None else _drawn(model, seed=model.drawn)
    pieces = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    pieces.no_padding()
    pieces.no_truncation()
    return MaskedModel(
        model=whole.to(model.device).eval(),
        head=whole.get_submodule(HEADS[kind] if getattr(whole.config, "legacy", True) else HEAD_OF_NEW_DEBERTA),
        tokenizer=pieces,
        special=SpecialTokens(*special),
    )


def _of_folder(model: HuggingFaceModel) -> Any:
    with library() as transformers:
        try:
            whole, loading = transformers.AutoModelForMaskedLM.from_pretrained(
                model.folder, output_loading_info=True, ignore_mismatched_sizes=True, **OPTIONS, **LOCAL
            )
        except Exception as error:  # a damaged folder can make transformers raise any error
            raise MeasureError(
                f"{model.folder}: the head for hidden tokens cannot be loaded ({reason(error)}); copy the folder "
                f"again, or leave minimal_pairs out."
            ) from error
    lacking = sorted([*loading["missing_keys"], *(name for name, *_ in loading["mismatched_keys"])])
    if lacking:
        raise MeasureError(
            f"minimal_pairs needs a model that predicts hidden tokens, but {model.folder} lacks weights of the "
            f"head that predicts them, such as {lacking[0]}; give a masked LM with its head, or leave the "
            "measure out."
        )
    return whole


def _drawn(model: HuggingFaceModel, *, seed: int) -> Any:
    """Return an untrained encoder with a head that is drawn in the same way."""
    with library() as transformers, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        settings = transformers.AutoConfig.from_pretrained(model.folder, **LOCAL)
        whole = transformers.AutoModelForMaskedLM.from_config(settings, trust_remote_code=False, **OPTIONS)
    setattr(whole, whole.base_model_prefix, model.model)
    whole.tie_weights()
    return whole


def rows(
    model: HuggingFaceModel,
    settings: MinimalPairsSettings,
    *,
    data_root: Path,
    counts_V: NDArray[np.int64],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of each task of minimal pairs, as for a run.

    Args:
        counts_V: number of occurrences of each id in the text that is analysed, without special tokens.

    Raises:
        MeasureError: as `with_head`, or if all pairs of a task are too long.
    """
    masked = with_head(model)
    log_V = log_frequencies(counts_V, first_word=0)
    for part in settings.parts(built_in=False):
        source = Source(data_root, language_seed=None, content=files_now(part, data_root))
        examples = examples_of(part.task_name, "test", source)
        pairs = pairs_of(examples, masked.tokenizer, part, max_length=model.max_length)
        if not pairs.good:
            raise MeasureError(
                f"minimal_pairs: {part.task_name} has no pair of sentences with at most {model.max_length} "
                "tokens, special tokens included; leave the task out."
            )
        sentences = [*pairs.good, *pairs.bad]
        require_ids(model, max(int(sentence.ids_P.max()) for sentence in sentences))
        scores = pseudo_log_likelihoods_by(partial(_answers, masked), sentences, special=masked.special)
        right = outcomes(Scores(*scores))
        yield from rows_of_pairs(pairs, part, right=right, guessed=guesses(pairs, log_V), shares={})


def _answers(masked: MaskedModel, rows_RT: NDArray[np.integer], query: Query) -> Answer:
    """Return the log probabilities of labels; only the states that the query asks for go through the head."""
    device, (V, _) = next(masked.model.parameters()).device, masked.model.get_input_embeddings().weight.shape
    return answered(rows_RT, query, partial(_logits, masked), device=device, logits_of_row=V)


def _logits(masked: MaskedModel, tokens_BT: torch.Tensor, place_B1: torch.Tensor) -> torch.Tensor:
    """Return the logits BV at one place of each row."""
    row_B = torch.arange(len(tokens_BT), device=tokens_BT.device)

    def only_asked(_: Any, entered: tuple[Any, ...]) -> tuple[Any, ...]:
        states_BTD, *others = entered  # a head of DeBERTa also gets the embeddings
        return (states_BTD[row_B, place_B1[:, 0]], *others)

    hook = masked.head.register_forward_pre_hook(only_asked)
    try:
        with library():
            output = masked.model(input_ids=tokens_BT, attention_mask=torch.ones_like(tokens_BT), return_dict=True)
    finally:
        hook.remove()
    logits_BV: torch.Tensor = output.logits
    return logits_BV
