"""Scores of runs in lm-eval: those of minimal pairs, and what a given context changes; run with
`make test-ecosystem`."""

import json

import numpy as np
import pytest

from ablations.errors import MeasureError
from ablations.tasks.examples import Examples
from ablations.tasks.language_models.minimal_pairs import minimal_pairs_rows
from ablations.tasks.language_models.sentence_scores import pieces_of, sentence_scores
from ablations.tasks.settings import MinimalPairsSettings
from lightning_modules.training.run_directory import RunDirectory
from tests.support.drawn_run import draw, write
from tests.support.errors import error_text
from tests.support.tiny_text import sentences, settings

pytestmark = pytest.mark.ecosystem
lm_eval = pytest.importorskip("lm_eval", reason="needs lm-eval, the extra [lm-eval]")

PAIRS = [(text, " ".join(reversed(text.split()))) for text in sentences(30, seed=4)]
TASK = """
task: reversed_words
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/pairs.jsonl}}, cache_dir: {folder}/cache}}
test_split: test
output_type: multiple_choice
doc_to_text: ""
doc_to_target: 0
doc_to_choice: "{{{{[good, bad]}}}}"
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture
def trained(make_run, tokens):
    """Makes folders of runs that are done, with weights far from their initial values; returns the module too."""

    def train(kind, *, done=True, **sections):
        directory = make_run(settings(kind, **sections))
        return directory.path, draw(directory, tokens, done=done)

    return train


def model(folder, **arguments):
    """The model of a run, as lm-eval makes it."""
    from lm_eval.api.registry import get_model

    import ablations.lm_eval  # noqa: F401, registers it

    return get_model("pretraining_ablations").create_from_arg_obj({"run": str(folder), **arguments})


def requests(*arguments, kind="loglikelihood"):
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, each, i, ("a_task", i, 1)) for i, each in enumerate(arguments)]


@pytest.mark.parametrize(
    ("kind", "score", "metric"),
    [
        ("masked_lm", "main", "accuracy"),
        ("masked_lm", "within_word", "accuracy_within_word"),
        ("causal_lm", "main", "accuracy"),
        ("mixture", "left_to_right", "accuracy_left_to_right"),
    ],
)
def test_a_task_of_lm_eval_agrees_with_minimal_pairs_to_the_last_digit(
    kind, score, metric, trained, tokens, tmp_path
):
    folder, objective = trained(kind)
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "reversed_words.yaml").write_text(TASK.format(folder=tmp_path))
    lines = [json.dumps({"good": good, "bad": bad}) for good, bad in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    results = lm_eval.simple_evaluate(
        model=model(folder, score=score),
        tasks=["reversed_words"],
        task_manager=lm_eval.tasks.TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
    )
    good, bad = map(list, zip(*PAIRS, strict=True))
    scores = getattr(sentence_scores(objective, pieces_of([*good, *bad], tokens.tokenizer)), score)
    samples = sorted(results["samples"]["reversed_words"], key=lambda sample: sample["doc_id"])
    theirs = np.array([[float(answer[0]) for answer in sample["filtered_resps"]] for sample in samples])
    np.testing.assert_array_equal(theirs.T.ravel(), scores.nats_S)
    assert len(np.unique(theirs)) == 60
    rows = minimal_pairs_rows(
        objective,
        Examples(good, bad, None, [None] * 30, [("syntax", "island")] * 30),
        tokens.tokenizer,
        MinimalPairsSettings(kind="minimal_pairs", tasks=("blimp",)),
        max_length=64,
        counts_V=tokens.source_counts_V,
    )
    (ours,) = (row["value"] for row in rows if (row["group"], row["metric"]) == ("blimp", metric))
    assert results["results"]["reversed_words"]["acc,none"] == ours
    assert 0 < ours < 1
    assert results["config"]["model"] == "TrainedRun"
    about = {name: results["config"][name] for name in ("arm", "seed", "objective", "step", "score")}
    assert about == {"arm": "run", "seed": 0, "objective": kind, "step": 12, "score": score}


def test_a_causal_lm_multiplies_the_probabilities_of_context_and_continuation(trained):
    """p(context) p(continuation and END | context) = p(the whole sentence)."""
    folder, objective = trained("causal_lm")
    scorer = model(folder)
    (given, _), (whole, _) = scorer.loglikelihood(requests(("the dog sees", " a cat"), ("", "the dog sees a cat")))
    pieces = pieces_of(["the dog sees a cat", "the dog sees"], scorer._tokenizer)
    begun = sentence_scores(objective, [pieces[1]._replace(ends=False)]).main.nats_S[0]
    end = sentence_scores(objective, [pieces[0]._replace(given=len(pieces[0].ids_P))]).main.nats_S[0]
    assert begun + given + end == pytest.approx(whole, rel=1e-5)  # float32
    assert min(-begun, -given, -end) > 0.1


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm"])
def test_white_space_around_a_context_does_not_matter_and_words_do(kind, trained):
    scorer = model(trained(kind)[0])
    forms = [
        ("the dog", " sees"),
        ("the dog ", "sees"),
        (" the dog", " sees"),
        ("the\n\n dog", "\tsees"),
        ("the cat", " sees"),
    ]
    (first, *others, other), (sentence, spaced) = (
        [nats for nats, _ in scorer.loglikelihood(requests(*arguments))]
        for arguments in (forms, [("", "the dog sees"), ("\n", " the dog sees")])
    )
    assert others == [first] * 3
    assert sentence == spaced
    rolled = scorer.loglikelihood_rolling(requests(("\tthe  dog\nsees",), kind="loglikelihood_rolling"))
    assert rolled == [sentence]
    assert len({round(nats, 3) for nats in (first, other, sentence)}) == 3


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm"])
def test_a_context_that_is_too_long_loses_its_beginning(kind, trained, caplog):
    """A text is read from its 62 last pieces, which start with a whole word here."""
    scorer = model(trained(kind)[0])
    words = ["the dog sees a cat"] * 20
    long, short = " ".join(words), " ".join(words[-15:])[len("the dog sees a cat the dog ") - 1 :].strip()
    assert [len(pieces.ids_P) for pieces in pieces_of([long, short], scorer._tokenizer)] == [100, 68]
    with caplog.at_level("WARNING"):
        (cut, whole) = scorer.loglikelihood(requests((long, " often"), (" ".join(short.split()[-61:]), " often")))
    assert cut == whole
    assert "1 context of 2 lost the beginning, because the run reads at most 62 pieces at once." in caplog.text


@pytest.mark.parametrize("kind", ["masked_lm", "causal_lm"])
def test_a_rolling_score_is_that_of_the_sentence_and_of_a_long_text_the_sum_over_windows(kind, trained):
    folder, objective = trained(kind)
    scorer = model(folder)
    short, long = "the dog sees a cat", " ".join(["the dog sees a small cat often"] * 10)
    rolled = scorer.loglikelihood_rolling(requests((short,), (long,), ("",), kind="loglikelihood_rolling"))
    (sentence, _), (empty, _) = scorer.loglikelihood(requests(("", short), ("", "")))
    assert rolled[::2] == [sentence, empty]
    (whole,) = pieces_of([long], scorer._tokenizer)
    assert len(whole.ids_P) == 70
    first = whole._replace(ids_P=whole.ids_P[:62], word_P=whole.word_P[:62], ends=False)
    last = whole._replace(ids_P=whole.ids_P[8:], word_P=whole.word_P[8:], given=54)
    expected = sum(sentence_scores(objective, [window]).main.nats_S[0] for window in (first, last))
    assert rolled[1] == pytest.approx(expected, rel=1e-5)  # float32, in other batches


def test_a_continuation_is_greedy_if_each_piece_is_the_most_probable_one(trained, tokens):
    folder, objective = trained("causal_lm")
    objective.head.bias[pieces_of(["dog"], tokens.tokenizer)[0].ids_P[0]] += 1000
    write(RunDirectory(folder), objective)
    answers = model(folder).loglikelihood(requests(("the", " dog dog"), ("the", " dog cat"), ("the", "")))
    assert [is_greedy for _, is_greedy in answers] == [True, False, True]
    assert answers[2] == (0.0, True)


def test_a_checkpoint_of_a_step_is_read_also_of_a_run_that_is_not_done(trained):
    folder, _ = trained("masked_lm", done=False)
    assert model(folder, step=8).get_model_info()["step"] == 8


def refused(sentence, call, *arguments, **more):
    assert error_text(MeasureError, call, *arguments, **more) == sentence


def test_what_is_refused_about_a_run(trained):
    folder, _ = trained("masked_lm", done=False)
    refused(
        f"{folder}: the run is interrupted at step 8 of 12; finish it with `ablate run`, or name a checkpoint "
        "with step=N in --model_args (steps kept: 8).",
        model,
        folder,
    )
    refused(f"{folder} has no checkpoint of step 3 (steps kept: 8); name another step.", model, folder, step=3)
    refused(
        f"{folder}: masked_lm has no score left_to_right, expected main or within_word; correct --model_args.",
        model,
        folder,
        score="left_to_right",
    )
    refused("--device is tpu, expected cpu or cuda; give one of these.", model, folder, step=8, device="tpu")
    expected = (
        "expected run=FOLDER and, if needed, step=N and score=NAME; correct it, or write --model_args "
        """'{"run": "FOLDER"}' if the name of the folder has a comma."""
    )
    refused(f"--model_args has dtype, {expected}", model, folder, dtype="float32")
    refused(f"--model_args lacks run, {expected}", model, "")


@pytest.mark.parametrize("kind", ["translation", "replaced_token"])
def test_an_objective_without_a_likelihood_is_refused(kind, make_run):
    folder = make_run(settings(kind)).path  # not even trained
    refused(
        f"{folder}: objective.kind is {kind}, which gives no probability to a sentence; name a run of "
        "masked_lm, causal_lm or mixture.",
        model,
        folder,
    )


def test_what_is_refused_about_a_task(trained):
    scorer = model(trained("masked_lm")[0])
    refused(
        "a_task: a continuation has 70 pieces, but the run reads at most 62 at once (data.max_length "
        "without START and END); leave the task out.",
        scorer.loglikelihood,
        requests(("the dog", " cat" * 70)),
    )
    refused(
        "a_task: its output_type is generate_until, but pretraining_ablations generates nothing; leave the task "
        "out, or write a causal LM with `ablate export` and take --model hf.",
        scorer.generate_until,
        requests(("the", {}), kind="generate_until"),
    )
