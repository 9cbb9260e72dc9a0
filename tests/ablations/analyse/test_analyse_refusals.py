"""Analysis of a model: what is refused or left out, what is said of it, and whose results are kept."""

import json
import shutil
from collections import Counter

import pandas as pd
import pytest
from safetensors.torch import load_file, save_file

from ablations import results
from ablations.analyse import folder as analyse_folder
from ablations.analyse import measures
from ablations.analyse.analyse import analyse
from ablations.analyse.measures import STATES_BYTES, usual_tokens
from ablations.analyse.model import load
from ablations.errors import MeasureError
from reports.page import page
from tests.support import tiny_models
from tests.support.analysis import CHANGE, INFORMATION, NEAR, SHAPE, TEXT, notices, quietly
from tests.support.command_line import ablate, refusal_of
from tests.support.errors import error_text

# What is refused --------------------------------------------------------------------------------------


def break_weights(folder, name, value):
    """Put a value into a model's weights."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights[name].view(-1)[0] = value
    save_file(weights, path, metadata={"format": "pt"})
    return folder


def test_a_model_that_has_diverged_is_refused_with_its_first_broken_layer(place):
    name = "encoder.layer.1.output.dense.bias"
    folder = break_weights(tiny_models.save(place / "bert"), name, float("nan"))
    done = ablate("analyse", folder, "--text", place / "text.txt", "--out", place / "out")
    n = sum(len(line.split()) for line in TEXT)
    assert (done.exit_code, done.stderr) == (
        2,
        f"{folder}: {n:,} of {n:,} states of layer 2 hold NaN or infinity, because training diverged or the "
        "weights are damaged; give another checkpoint of the model.\n",
    )
    assert not (place / "out").exists()


def test_one_sentence_says_that_a_text_is_too_short_for_all(place):
    folder = tiny_models.save(place / "bert")
    (place / "text.txt").write_text("a\n")
    assert refusal_of("analyse", folder, "--text", place / "text.txt", "--out", place / "out") == (
        f"{place / 'text.txt'} has 1 token in 1 sentence, which is too few for any measure of a model of width "
        "16; give at least 80 tokens.\n"
    )


def test_sentences_of_one_token_have_no_neighbours_to_know_of(place):
    (place / "text.txt").write_text("\n".join("abcdefgh" * 20) + "\n")
    quietly(tiny_models.save(place / "bert"), place, measures=[SHAPE, INFORMATION])
    assert notices(place) == [
        "bert and untrained: token_information about the previous token needs a sentence of two tokens or "
        "more, but the text has none; use other text, or write `about: [input]`."
    ]


def test_a_pool_of_fewer_types_than_are_asked_for_says_so(place):
    quietly(tiny_models.save(place / "bert"), place, measures=[SHAPE, NEAR.model_copy(update={"types": 1000})])
    counts = Counter(" ".join(TEXT).split())
    types = sum(count >= 21 for count in counts.values())
    assert 2 <= types < 1000
    said = (
        f"neighbours: {types} types instead of 1,000, because the others occur fewer than 21 times; give "
        "more text."
    )
    assert said in notices(place)


def test_a_page_of_next_to_no_tokens_says_what_it_is_worth(place):
    (place / "text.txt").write_text("a b\nb c\nc a\n")
    assert set(quietly(tiny_models.save(place / "bert"), place)["measure"]) == {"geometry"}
    assert notices(place)[0] == (
        "geometry: 6 tokens are fewer than 10 for each of the 16 units of the width, which bounds or lowers "
        "both counts of dimensions; compare them with their floors and the untrained twin, and give more text."
    )


def test_short_texts_have_fewer_clusters_and_say_so(analysed):
    place, _ = analysed
    table = results.read(place / "out/bert/results.parquet")
    own = table[table["measure"] == "token_information"]
    (clusters,) = own["d"].unique()
    # Of the tokens that have one before and one behind them, ten for each cluster in either half.
    assert own["n"].min() / 20 * 0.8 < clusters <= own["n"].min() / 20
    assert (
        f"token_information: {clusters} clusters instead of the usual 1,000; compare its numbers only with "
        "those of equally many clusters and tokens."
    ) in notices(place)


def test_repeated_sentences_are_counted_if_a_measure_learns_from_them(place):
    """Copies fall on both sides of the split into training and test."""
    copied = TEXT[:-2] + TEXT[:8]
    (place / "text.txt").write_text("\n".join(copied) + "\n")
    folder = tiny_models.save(place / "bert")
    quietly(folder, place, measures=[SHAPE, INFORMATION])
    count = len(copied) - len(set(copied))
    assert count / len(copied) >= 0.05
    sentence = (
        f"the text repeats {count} sentences ({100 * count / len(copied):.0f}%), which makes cross_fitted of "
        "token_information too high; remove the copies."
    )
    assert sentence in notices(place)
    quietly(folder, place, measures=[SHAPE], out=place / "shape")
    (plan,) = (place / "shape").glob("*/plan.json")
    assert "repeats" not in plan.read_text()


def test_groups_that_are_too_small_are_named(place):
    quietly(tiny_models.save(place / "bert"), place, measures=[CHANGE])
    words = Counter(" ".join(TEXT).split())
    rare = sum(count for _, count in words.most_common()[25:])
    assert notices(place)[-1] == (
        f"layer_change: groups with fewer than 160 tokens have no curve. These are rank 26-50 ({rare}); give "
        "more text."
    )


def test_the_fewest_tokens_of_a_group_are_those_that_decide(place):
    """Not the smaller number that the user asks for."""
    folder = tiny_models.save(place / "bert", hidden_size=32)
    quietly(folder, place, measures=[CHANGE.model_copy(update={"group_tokens": 100})])
    sentence = "layer_change: groups with fewer than 160 tokens have no curve. "
    assert any(notice.startswith(sentence) for notice in notices(place))


def test_the_measures_may_come_from_a_file(place, undrawn):
    folder, asked = tiny_models.save(place / "bert", num_hidden_layers=1), place / "asked.yaml"
    told = ("analyse", folder, "--text", place / "text.txt", "--out", place / "out", "--measures", asked)
    asked.write_text(
        "measures:\n  - geometry\n  - {kind: token_information, types: 10, clusters: 7}\n  - read_out\n"
    )
    assert ablate(*told).exit_code == 0
    table = results.read(place / "out/bert/results.parquet")
    assert set(table["measure"]) == {"geometry", "token_information", "read_out"}
    assert set(table["d"][table["measure"] == "token_information"]) == {7}
    asked.write_text("measures:\n  - validation\n  - {kind: geometry, cluster: 7}\n")
    assert refusal_of(*told) == (
        f"{asked}:2:5: an entry of measures must be of kind layer_change, token_information, read_out, "
        f'neighbours, geometry or minimal_pairs, but is "validation"\n{asked}:3:22: measures.geometry.cluster '
        "is unknown; measures.geometry of kind geometry has the settings checkpoints, tokens and kind\n"
    )


def test_a_file_of_measures_may_name_a_task_that_lies_beside_it(tmp_path):
    task = "kind: minimal_pairs\nmetric: accuracy\nchance: half\ntext: [good, bad]\ngroups: [phenomenon]\n"
    (tmp_path / "pairs.yaml").write_text(f"{task}files: {{test: pairs.csv}}\n")
    asked = tmp_path / "asked.yaml"
    asked.write_text("measures: [{kind: minimal_pairs, tasks: [pairs.yaml]}]\n")
    (settings,) = measures.load(asked)
    assert settings.tasks == ("pairs.yaml",)


def test_a_file_of_measures_may_not_say_what_the_command_says(place):
    folder, asked = tiny_models.save(place / "bert"), place / "asked.yaml"
    told = ("analyse", folder, "--text", place / "text.txt", "--out", place / "out", "--measures", asked)
    asked.write_text(
        "measures:\n  - {kind: geometry, checkpoints: all}\n  - kind: layer_change\n    tokens: 500\n"
        "    treebank: gold.conllu\n"
    )
    assert refusal_of(*told) == (
        f"{asked}:2:22: measures.geometry.checkpoints cannot be set here: every checkpoint of a series is "
        f"measured; leave it out\n{asked}:4:5: measures.layer_change.tokens cannot be set here: --tokens sets "
        f"how many tokens all measures read; leave it out\n{asked}:5:5: measures.layer_change.treebank cannot "
        "be set here: --labels names the treebank of the text; leave it out\n"
    )
    asked.write_text("measures:\n  - {kind: layer_change, groups: [frequency, part_of_speech]}\n")
    assert refusal_of(*told) == (
        "layer_change: groups has part_of_speech, but the text has no parts of speech; give --labels, or leave "
        "part_of_speech out.\n"
    )
    asked.write_text("measures:\n  - {kind: token_information, about: [output], clusters: 8}\n")
    assert refusal_of(*told) == (
        "token_information: about has output, but it is not known what a model from elsewhere predicts; leave "
        "output out, or write next if the model predicts the next token.\n"
    )
    assert not (place / "out").exists()


def test_usual_tokens_follow_the_width_as_far_as_memory_goes():
    assert usual_tokens([(128, 5)]) == 50_000
    assert usual_tokens([(768, 13)]) == 150 * 768
    large = usual_tokens([(1600, 49)])
    assert large * 1600 * 49 * 4 <= STATES_BYTES < (large + 1) * 1600 * 49 * 4


def test_too_few_tokens_for_a_measure_leave_the_others(place):
    (place / "text.txt").write_text("\n".join(TEXT[:8]) + "\n")
    table = quietly(tiny_models.save(place / "bert"), place)
    assert set(table["measure"]) == {"geometry"}
    with pytest.raises(MeasureError) as error:
        quietly(place / "bert", place, measures=[CHANGE], name="nothing")
    there = sum(len(line.split()) for line in TEXT[:8])
    assert str(error.value) == (
        "layer_change needs at least 5 tokens per feature, which is 80 at a width of 16, but got "
        f"{there}; give more tokens or fewer features."
    )
    assert not (place / "out/nothing").exists()


def test_doubts_of_a_measure_are_told(place):
    (place / "text.txt").write_text("\n".join(TEXT[:20]) + "\n")
    quietly(tiny_models.save(place / "bert"), place, measures=[CHANGE])
    told = [notice for notice in notices(place) if "PWCCA" in notice]
    n = sum(len(line.split()) for line in TEXT[:20])
    assert told == [
        f"bert and untrained: layer_change: PWCCA of {n} tokens at a width of 16: with fewer than 10 tokens per "
        "feature, most of a weak similarity is chance; show its floor beside it."
    ]


def test_what_is_asked_for_wrongly_ends_with_2_and_a_sentence(place):
    folder = tiny_models.save(place / "bert")
    text = place / "text.txt"
    text.write_text("[SEP]\n")
    assert refusal_of("analyse", folder, "--text", text, "--out", place / "out") == (
        f"the tokenizer of {folder} makes no tokens from the text except special and unknown ones; give text in "
        "the language of the model.\n"
    )
    loose = tiny_models.save(place / "t5", "t5")
    text.write_text("a " * 300)
    assert (
        refusal_of("analyse", loose, "--text", text, "--tokens", 200, "--out", place / "out")
        == f"{text}: the first sentence has 300 tokens, but --tokens allows only 200; raise --tokens.\n"
    )
    assert refusal_of("analyse", place, "--text", text, "--out", place / "out") == (
        f"{place} has no config.json, so it is not the folder of a Hugging Face model; for a run, write such a "
        "folder with `ablate export`.\n"
    )
    assert ablate("analyse", folder).exit_code == 2
    assert not (place / "out").exists()


def test_an_experiment_is_not_overwritten_but_an_earlier_analysis_is(place):
    folder = tiny_models.save(place / "bert")
    (place / "out/bert").mkdir(parents=True)
    (place / "out/bert/plan.json").write_text('{"experiment": "bert", "arms": ["mlm"], "runs": [{"arm": "mlm"}]}')
    assert error_text(MeasureError, quietly, folder, place, measures=[SHAPE]) == (
        f"{place / 'out/bert'} has the results of an experiment; choose another --name for the results."
    )
    first = quietly(folder, place, measures=[SHAPE], name="other")
    pd.testing.assert_frame_equal(first, quietly(folder, place, measures=[SHAPE], name="other"))


class Stopped(Exception):
    """A kill, as far as a test goes."""


def test_a_killed_analysis_leaves_whole_results_and_goes_on(place, undrawn):
    folder = tiny_models.save(place / "bert")
    told = {"text": place / "text.txt", "out": place / "out", "measures": [SHAPE, CHANGE]}
    lines = []

    def killed_at(line):
        def say(said):
            lines.append(said)
            if said == line:
                raise Stopped

        with pytest.raises(Stopped):
            analyse(folder, **told, say=say)

    killed_at("bert: measuring layer_change")
    assert [path.name for path in (place / "out/bert").iterdir()] == ["kept"]
    killed_at("untrained: measuring geometry")
    first = results.read(place / "out/bert/results.parquet")
    assert set(first["arm"]) == {"bert"}
    assert (
        notices(place)[0] == "The analysis has not ended: it still lacks untrained; give the same command again."
    )
    said = json.loads((page.write(place / "out/bert").parent / "report.json").read_text())
    assert notices(place)[0] in [notice["text"] for notice in said["notices"]]
    lines.clear()
    analyse(folder, **told, say=lines.append)
    assert lines == [
        f"loading {folder}",  # for the facts about it
        *(f"bert: {kind} was measured before" for kind in ("geometry", "layer_change")),
        f"untrained: reading {sum(len(line.split()) for line in TEXT)} tokens",
        *(f"untrained: measuring {kind}" for kind in ("geometry", "layer_change")),
        *notices(place),
    ]
    assert not any("has not ended" in notice for notice in notices(place))
    whole = results.read(place / "out/bert/results.parquet")
    pd.testing.assert_frame_equal(first, whole.iloc[: len(first)], check_dtype=False)
    assert not (place / "out/bert/kept").exists()
    killed_at("untrained: measuring geometry")
    pd.testing.assert_frame_equal(results.read(place / "out/bert/results.parquet"), whole)
    lines.clear()
    killed_at("untrained: measuring geometry")
    assert "bert: geometry was measured before" in lines
    lines.clear()
    (place / "text.txt").write_text("\n".join(TEXT[1:]) + "\n")
    killed_at("bert: measuring geometry")
    assert not any("before" in line for line in lines), "of another text"


def test_a_killed_analysis_of_a_series_ends_as_one_that_was_not(place):
    first = tiny_models.save(place / "steps/step1", num_hidden_layers=1)
    tensors = load_file(first / "model.safetensors")
    for step in (2, 3):
        shutil.copytree(first, place / f"steps/step{step}")
        more = {name: tensor * step for name, tensor in tensors.items()}
        save_file(more, place / f"steps/step{step}/model.safetensors", metadata={"format": "pt"})
    told = {"text": place / "text.txt", "measures": [SHAPE, CHANGE]}
    lines = []

    def say(line):
        lines.append(line)
        if line == "steps, step 3: measuring geometry" and len(lines) < 20:
            raise Stopped

    undisturbed = analyse(place / "steps", **told, out=place / "other", say=lambda _: None)
    with pytest.raises(Stopped):
        analyse(place / "steps", **told, out=place / "out", say=say)
    lines.extend([""] * 20)
    target = analyse(place / "steps", **told, out=place / "out", say=say)
    loaded = [line for line in lines[lines.index("") :] if line.startswith("loading")]
    assert loaded == [f"loading {place / 'steps'}", f"loading {place / 'steps/step3'}"]
    for name in ("results.parquet", "spec.yaml"):
        assert (target / name).read_bytes() == (undisturbed / name).read_bytes()
    plans = [json.loads((folder / "plan.json").read_text()) for folder in (target, undisturbed)]
    for plan in plans:
        plan["created"] = None
        for run in plan["runs"]:
            run["analysed"]["provenance"] |= {"started": None, "finished": None}
    assert plans[0] == plans[1]


def test_the_analysis_of_another_model_of_the_same_name_is_kept(place):
    first, second = tiny_models.save(place / "a/bert"), tiny_models.save(place / "b/bert", num_hidden_layers=2)
    before = quietly(first, place, measures=[SHAPE])
    assert refusal_of("analyse", second, "--text", place / "text.txt", "--out", place / "out") == (
        f"{place / 'out/bert'} has the analysis of another model ({load(first).run_id}; {second} is "
        f"{load(second).run_id}); choose another --name for the results, or remove {place / 'out/bert'}.\n"
    )
    pd.testing.assert_frame_equal(results.read(place / "out/bert/results.parquet"), before)


def test_names_of_folders_and_arms(tmp_path):
    for name, arm, small in [
        ("bert-base", "bert-base", "bert-base"),
        ("Größe 1,5B", "Gr-e-1,5B", "gr-e-1-5b"),
        ("untrained", "model", "model"),
        ("runs", "runs", "runs-model"),
        ("__", "model", "model"),
    ]:
        assert analyse_folder.arm_of(tmp_path / name) == arm
        assert analyse_folder.name_from_folder(tmp_path / name) == small
        assert analyse_folder.results_folder(tmp_path, small) == tmp_path / small
    assert error_text(MeasureError, analyse_folder.results_folder, tmp_path, "../runs") == (
        "--name '../runs' cannot be the name of the folder of results: use at most 200 letters a-z, digits "
        "and ._- with a letter or a digit first, but not the names runs and tokens."
    )
