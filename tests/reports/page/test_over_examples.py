"""Intervals over seeds and examples on a page: below scores, and beside claims that they do not decide."""

import io

import numpy as np
import pandas as pd
import pytest

from reports import folder as experiment_folder
from reports.claims.judge import judge_claims
from reports.folder import digest
from reports.page import latex
from reports.page.content import answers_by_arm, content, scores_over_examples
from reports.page.entries import claim_entries
from reports.page.page import markdown, score_csv
from reports.scores.tables import HOW_OVER_EXAMPLES
from reports.statistics.summaries import sign_test
from tests.support.fake_experiment import folder_name, rows
from tests.support.fake_predictions import write_run
from tests.support.judged import claim, made

N, SEEDS = 120, (0, 1, 2)
OF = "{measure: minimal_pairs, metric: accuracy, groups: [language]}"
CLAIMS = "version: 1\nclaims:\n" + claim(
    "better",
    f"{{kind: difference, of: {OF}, arm: mlm, minus: clm}}",
    needs="{arms: [mlm, clm], measures: [minimal_pairs]}",
)
SHARES = {"mlm": 0.8, "clm": 0.6}


def points(arm, seed):
    return (np.random.default_rng([len(arm), ord(arm[0]), seed]).random(N) < SHARES[arm]).astype(float)


def experiment(tmp_path, seeds, *, value=lambda points_N: points_N.mean()):
    """A claim about minimal pairs; the table has the means of the predictions unless `value` says otherwise."""
    scored = [
        {
            "experiment": "article-tiny",
            "run_id": folder_name(arm, seed)[-10:],
            "arm": arm,
            "seed": seed,
            "step": 500,
        }
        | {"measure": "minimal_pairs", "metric": "accuracy", "group": "language", "n": N}
        | {"value": value(points(arm, seed)), "floor": 0.5}
        for arm in SHARES
        for seed in seeds
    ]
    usual = [row for row in rows(seeds=seeds) if row["measure"] == "validation"]
    folder = made(tmp_path, seeds=seeds, text=CLAIMS, table_rows=[*usual, *scored]).folder
    for arm in SHARES:
        for seed in seeds:
            write_run(folder.parent / "runs" / folder_name(arm, seed), points(arm, seed), seed=seed)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return experiment(tmp_path_factory.mktemp("page"), SEEDS)


def judged_page(folder):
    judged = judge_claims(experiment_folder.read(folder))
    page = content(judged, [])
    page["claims"] = claim_entries(judged.claims, page)
    return judged, page


def test_a_score_has_a_row_with_its_interval_over_seeds_and_examples(folder):
    _, page = judged_page(folder)
    (table,) = page["tasks"]
    score, both = table["rows"]
    assert [row["scored"] for row in (score, both)] == ["accuracy", "over seeds and examples"]
    for arm in SHARES:
        here, there = score["arms"][arm], both["arms"][arm]
        assert there["mean"] == pytest.approx(here["mean"])
        assert there["low"] < there["mean"] < there["high"]
        assert there["verdict"] == ""
    assert "other seeds and other examples of the same kind" in table["how_to_read"][-1]
    # 120 answers of 80% are known no better than this, however alike the seeds are.
    half = (both["arms"]["mlm"]["high"] - both["arms"]["mlm"]["low"]) / 2
    assert half > 1.96 * (0.8 * 0.2 / (3 * N)) ** 0.5 * 0.9


def test_files_tell_both_intervals_of_a_score_apart(folder):
    _, page = judged_page(folder)
    (table,) = page["tasks"]
    frame = pd.read_csv(io.StringIO(score_csv(table))).query("arm == 'mlm'")
    assert frame["band"].tolist() == ["seeds", "over seeds and examples"]
    for band, row in zip(frame.to_dict("records"), table["rows"], strict=True):
        assert [band["low"], band["high"]] == pytest.approx([row["arms"]["mlm"][end] for end in ("low", "high")])
    assert f"% {HOW_OVER_EXAMPLES}\n" in latex.tables(page)["table-minimal_pairs"]


def test_predictions_of_other_numbers_than_those_of_the_table_are_left_out(tmp_path):
    read = experiment_folder.read(experiment(tmp_path, SEEDS, value=lambda points_N: points_N.mean() - 0.01))
    predicted = answers_by_arm(read)
    assert set(predicted) == set(SHARES)
    assert scores_over_examples(read, predicted) == {}


def test_a_claim_has_sentences_beside_its_verdict_which_stays(folder):
    judged, page = judged_page(folder)
    (entry,) = page["claims"]
    (sentence,) = entry.over_examples
    change = np.mean([points("mlm", seed).mean() - points("clm", seed).mean() for seed in SEEDS])
    assert sentence.startswith(f"over seeds and examples the difference is {change:.3g}"[:60])
    assert "(multi-bootstrap, 95%); of 120 examples of language, mlm answers" in sentence
    assert entry.verdict == judged.entries[0].verdict
    assert f"Over examples: {sentence}"[:55] in markdown(page)


def test_with_one_seed_a_claim_has_a_test_over_its_examples_and_no_verdict(tmp_path):
    _, page = judged_page(experiment(tmp_path, (0,)))
    (entry,) = page["claims"]
    assert entry.verdict == "insufficient evidence"
    better = int((points("mlm", 0) > points("clm", 0)).sum())
    worse = int((points("mlm", 0) < points("clm", 0)).sum())
    p = sign_test(better, worse)
    words = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    assert entry.over_examples == [
        f"in seed 0 mlm answers {better} of 120 examples of language better than clm, and {worse} worse (exact "
        f"sign test, {words}): this is about these two models, not about other seeds"
    ]
    assert all(row["scored"] != "over seeds and examples" for table in page["tasks"] for row in table["rows"])


def test_a_page_without_predictions_is_as_before_and_new_ones_make_it_stale(tmp_path):
    folder = experiment(tmp_path, SEEDS)
    before = digest(folder)
    for path in (folder.parent / "runs").glob("*/predictions.parquet"):
        path.unlink()
    assert digest(folder) != before
    _, page = judged_page(folder)
    assert page["over_examples"] == {}
    assert page["claims"][0].over_examples == []
    assert len(page["tasks"][0]["rows"]) == 1
