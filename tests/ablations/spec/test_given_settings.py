"""Settings of a command line: they mean what they would mean in the file, and each slip has one sentence."""

from pathlib import Path

import pytest

from ablations import yamlfile
from ablations.errors import SpecProblems
from ablations.spec import given_settings, load
from tests.support.errors import error_text

SHIPPED = sorted(Path("experiments").glob("*.yaml"))
SPEC = """\
# A comment.
name: it
version: 1
data: {kind: language}  # and one behind a value
objective:
  kind: masked_lm
  masking:
    ratio: 0.15

# Above the arms.
training: {max_steps: 4, tokens_per_step: 128}
arms:
  a: {}
  b.2: {training: {max_steps: 2}}
  c=3:
    encoder:
      dropout: 0
grid:
  base: a
  axes: {objective.masking.ratio: [0.2, 0.4]}
seeds:
  - 0
  - 1
# The last line.
"""


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "it.yaml"
    path.write_text(SPEC, encoding="utf-8")
    return path


def content(spec, *options):
    return given_settings.laid_over(spec, options).document.content


def problems(spec, *options):
    return error_text(SpecProblems, load.load, spec, overrides=options).splitlines()


def test_a_setting_stands_where_the_file_would_have_it(spec):
    found = content(
        spec, "training.max_steps=200", "arms.b.2.training.max_steps=1e-3", "arms.c=3.encoder.dropout=0.1",
        "arms.a.objective.masking.mask=0.5", "objective={kind: causal_lm}", "seeds=[5]", "encoder.norm=pre",
        "grid.axes.objective.masking.ratio=[0.3]", "grid.axes.encoder.dropout=[0, 0.1]", "question=Is it so?",
    )  # fmt: skip
    name = found.pop("name")
    assert name.startswith("it-set-")
    assert found == {
        "version": 1,
        "question": "Is it so?",
        "data": {"kind": "language"},
        "objective": {"kind": "causal_lm"},
        "encoder": {"norm": "pre"},
        "training": {"max_steps": 200, "tokens_per_step": 128},
        "arms": {
            "a": {"objective": {"masking": {"mask": 0.5}}},
            "b.2": {"training": {"max_steps": 1e-3}},
            "c=3": {"encoder": {"dropout": 0.1}},
        },
        "grid": {"base": "a", "axes": {"objective.masking.ratio": [0.3], "encoder.dropout": [0, 0.1]}},
        "seeds": [5],
    }


def test_the_text_of_the_changed_spec_names_each_setting_and_says_what_the_content_says(spec):
    changed = given_settings.laid_over(spec, ["training.max_steps=200", "arms.a.encoder.norm=pre", "seeds=[0]"])
    head = (
        "# Changed by --set: arms.a.encoder.norm=pre (the spec does not set it)\n# Changed by --set: seeds=[0] "
        "(the spec says [0, 1])\n# Changed by --set: training.max_steps=200 (the spec says 4)\n"
    )
    body = """\
name: it-arms.a.encoder.norm-pre-seeds-0-training.max_steps-200
version: 1
data: {kind: language}
objective:
  kind: masked_lm
  masking: {ratio: 0.15}
training: {max_steps: 200, tokens_per_step: 128}
arms:
  a:
    encoder: {norm: pre}
  b.2:
    training: {max_steps: 2}
  c=3:
    encoder: {dropout: 0}
grid:
  base: a
  axes:
    objective.masking.ratio: [0.2, 0.4]
seeds: [0]
"""
    assert (changed.text, changed.name) == (head + body, "it")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_text_of_a_changed_spec_reads_as_its_content(path):
    odd = '{"a: b": ["no", "1", "1e-3", "~", "é: [", "# x", "", "a\\nb", null, true, 1e-12, 1e16, 0o7, [], {}]}'
    changed = given_settings.laid_over(path, ["question=Is it so?", f"data={odd}", "name=other"])
    assert changed.document.content["data"]["a: b"][4] == "é: ["
    assert yamlfile.parsed("changed", changed.text).content == changed.document.content


def test_a_new_key_is_the_first_of_its_mapping_and_empty_values_are_filled(tmp_path):
    path = tmp_path / "it.yaml"
    path.write_text("name: it\na:\n  b:\n  c: 1\nd:\n", encoding="utf-8")
    found = content(path, "a.b=2", "a.x.y=3", "d.e=4")
    assert list(found) == ["name", "a", "d"]
    assert found["a"] == {"x": {"y": 3}, "b": 2, "c": 1}
    assert list(found["a"]) == ["x", "b", "c"]
    assert found["d"] == {"e": 4}


def test_arms_and_what_is_beside_them_keep_their_own_settings(spec):
    arms = load.load(spec, overrides=["training.max_steps=200"]).arms
    assert arms["b.2"].training == {"max_steps": 2}


def test_a_setting_that_every_arm_sets_itself_is_refused_since_it_would_change_nothing(tmp_path):
    path = tmp_path / "it.yaml"
    arms = "arms:\n  a: {objective: {masking: {ratio: 0.1}}}\n  b: {objective: {masking: {ratio: 0.4}}}\n"
    path.write_text(f"name: it\n{arms}", encoding="utf-8")
    assert problems(path, "objective.masking.ratio=0.3") == [
        f"--set objective.masking.ratio=0.3: every arm of {path} sets its own objective.masking.ratio, so `--set "
        "objective.masking.ratio` would change no arm; write `--set arms.a.objective.masking.ratio=...`"
    ]
    changed = content(path, "objective.masking={mask: 1}", "arms.a.objective.masking.ratio=0.3")
    assert changed["arms"]["a"]["objective"]["masking"]["ratio"] == 0.3


def test_the_name_says_the_settings_in_whatever_order_they_came(spec):
    one = content(spec, "training.max_steps=200", "encoder.norm=pre")["name"]
    assert one == content(spec, "encoder.norm=pre", "training.max_steps=200")["name"]
    assert one == "it-encoder.norm-pre-training.max_steps-200"
    assert content(spec, "training.max_steps=200", "name=mine")["name"] == "mine"
    assert content(spec, "training.max_steps=200", "name=it")["name"] == "it"


def test_values_that_look_alike_in_a_folder_have_different_names(spec):
    values = [
        "/a/b.txt",
        "/a-b.txt",
        "/A/b.txt",
        "[/a/b.txt]",
        "1",
        "'1'",
        "{a: 1}",
        "[[1, 2]]",
        "[[1], 2]",
        "x" * 101,
    ]
    names = [content(spec, f"data.train={value}")["name"] for value in values]
    assert len(set(names)) == len(values) - 1  # a list of lists reads as one list, and no setting takes either
    assert load.load(spec, overrides=["name=it-" + "x" * 90]).name == "it-" + "x" * 90


def test_a_setting_that_the_spec_has_already_changes_nothing(spec):
    changed = given_settings.laid_over(spec, ["training.max_steps=4", "seeds=[0, 1]"])
    assert (changed.document.content, changed.overrides) == (yamlfile.read(spec).content, ())
    assert load.load(spec, overrides=["training.max_steps=4"]) == load.load(spec)


def test_slips_are_said_with_the_option_that_they_are_in(spec):
    example = "a setting is written KEY=VALUE, as in `--set training.max_steps=200`"
    for option, sentence in {
        "training.max_step=3": "training.max_step is unknown; did you mean max_steps?",
        "training.max_steps=many": 'training.max_steps must be a valid integer, but is the text "many"',
        "trainig.max_steps=3": "trainig is unknown; did you mean training?",
        "training.max_steps": example,
        "training=": "training must be a mapping of keys, but is empty; write {} to change nothing",
        "=3": example,
        ".max_steps=3": example,
        "training..x=3": example,
        "seeds.0=3": "seeds is a list, and a part of a list cannot be set; "
        "give the whole list: `--set seeds=[...]`",
        "training.max_steps.x=3": f"training.max_steps is 4 in {spec} and has no keys; "
        "write `--set training.max_steps=...`",
        "arms.d.encoder.norm=pre": f"d is not an arm of {spec}; it writes a, b.2, c=3",
        "arms.b2.encoder.norm=pre": f"b2 is not an arm of {spec}; did you mean b.2?",
        "seeds=[1": "the value is not valid YAML: a comma or ] is missing "
        "before this; its bracket was opened on line 1",
        "seeds=&x [1]": "the value is not valid YAML: anchors such as &x are not "
        "allowed; write the value at each place",
        "seeds=1": "seeds must be a list, but is 1; write [1]",
    }.items():
        assert problems(spec, option) == [f"--set {option}: {sentence}"], option


def test_a_setting_that_only_one_arm_has_is_to_be_given_to_that_arm(tmp_path):
    path = tmp_path / "it.yaml"
    path.write_text(
        "name: it\nversion: 1\nseeds: [0]\ndata: {kind: language}\narms:\n  mlm: {objective: {kind: masked_lm}}\n"
        "  clm: {objective: {kind: causal_lm}}\n"
    )
    assert problems(path, "objective.masking.ratio=0.4") == [
        "--set objective.masking.ratio=0.4: arm clm (causal_lm) has no objective.masking; to change one arm, "
        "write `--set arms.mlm.objective.masking.ratio=0.4`"
    ]
    assert "--set objective.rat=1: objective.rat is unknown" in problems(path, "objective.rat=1")[0]
    path.write_text(path.read_text() + "objective: {masking: {ratio: 0.4}}\n")
    assert problems(path) == [
        f"{path}:8:13: arm clm (causal_lm) has no objective.masking; to change one arm, write objective.masking "
        "under arms.mlm"
    ]


def test_a_kind_that_is_written_is_no_guess_for_another_key(spec):
    (sentence,) = problems(spec, "arms.a.objective.kinds=x")
    assert sentence == (
        "--set arms.a.objective.kinds=x: objective.kinds is unknown; objective of kind masked_lm has the settings "
        "kind, sees, window, masking, head, label_smoothing and pair_loss"
    )


def test_settings_that_are_given_twice_or_overlap_are_refused_all_at_once(spec):
    assert problems(spec, "seeds=[1]", "training.max_steps=3", "seeds=[2]", "training={max_steps: 5}") == [
        "--set seeds=[2]: seeds is given twice; give it once",
        "--set training={max_steps: 5}: this overlaps with `--set training.max_steps=3`; give one of them",
    ]


def test_what_is_wrong_with_the_file_keeps_its_line(spec):
    spec.write_text(SPEC.replace("tokens_per_step", "tokens_a_step"), encoding="utf-8")
    assert problems(spec, "encoder.norm=pre") == [
        f"{spec}:11:26: training.tokens_a_step is unknown; did you mean tokens_per_step?"
    ]
