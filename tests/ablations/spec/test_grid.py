"""From a spec to its runs."""

import dataclasses
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablations import yamlfile
from ablations.errors import SpecError
from ablations.spec import grid
from ablations.spec.experiment import Experiment
from lightning_modules.config import EncoderSettings, LanguageData, MaskedLMSettings, RunSettings, TrainingSettings
from lightning_modules.config.run import VOITA_2019
from tests.support.errors import error_text


def experiment(**spec):
    spec = {
        "name": "x",
        "version": 1,
        "data": {"kind": "language"},
        "arms": {"mlm": {"objective": {"kind": "masked_lm"}}},
        "seeds": [0],
        **spec,
    }
    return Experiment.model_validate(spec)


def settings(**spec):
    """The settings of every arm, by name."""
    return {run.arm: run.settings for run in grid.runs(experiment(**spec))}


def varied(base="mlm", **spec):
    return settings(grid={"base": base, **spec})


def test_settings_of_the_encoder_and_the_schedule_are_axes_and_the_width_follows_the_gate():
    axes = {
        "encoder.positions": ["learned", "rotary", "alibi"],
        "encoder.norm_kind": ["layer", "rms"],
        "encoder.activation": ["gelu", "swiglu"],
        "training.schedule": ["linear", "cosine", "constant", "wsd"],
        "training.optimizer": ["adamw", "muon"],
    }
    found = varied(axes=axes)
    assert len(found) == 1 + 3 * 2 * 2 * 4 * 2
    assert (
        found[
            "mlm,positions=rotary,norm_kind=rms,activation=swiglu,schedule=wsd,optimizer=muon"
        ].encoder.intermediate_size
        == 680
    )
    kinds = varied(axes={"training.optimizer.kind": ["adamw", "muon", "sgd"], "encoder.attention_window": [1, 2]})
    assert {(run.training.optimizer.kind, run.encoder.attention_window) for run in kinds.values()} == {
        ("adamw", None), *itertools.product(("adamw", "muon", "sgd"), (1, 2)),
    }  # fmt: skip
    assert {run.encoder.intermediate_size for run in found.values() if run.encoder.activation == "gelu"} == {1024}


def test_runs_are_arms_times_seeds_in_the_order_of_the_file():
    arms = {name: {"objective": {"kind": "masked_lm"}} for name in ("z", "a", "m")}
    runs = grid.runs(experiment(arms=arms, seeds=[3, 0], grid={"base": "a", "axes": {"encoder.norm": ["pre"]}}))
    assert [(run.arm, run.seed) for run in runs] == list(itertools.product(["z", "a", "m", "a,norm=pre"], [3, 0]))
    assert all(run.settings.seed == run.seed for run in runs)


def test_a_run_has_everything_that_its_arm_and_the_defaults_say():
    (run,) = grid.runs(experiment(seeds=[7], encoder={"hidden_size": 64}, training={"max_steps": 50}))
    assert run.settings == RunSettings(
        data=LanguageData(kind="language"),
        encoder=EncoderSettings(hidden_size=64),
        objective=MaskedLMSettings(kind="masked_lm"),
        training=TrainingSettings(max_steps=50),
        seed=7,
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.seed = 8


def test_derived_defaults_follow_what_an_arm_overrides():
    arms = {
        "base": {},
        "wide": {"encoder": {"hidden_size": 128}},
        "long": {"training": {"max_steps": 1000}},
        "untrained": {"training": {"max_steps": 0}},
    }
    found = settings(
        arms=arms, objective={"kind": "masked_lm"}, encoder={"hidden_size": 64}, training={"max_steps": 100}
    )
    assert {arm: run.encoder.intermediate_size for arm, run in found.items()} == {
        "base": 256, "wide": 512, "long": 256, "untrained": 256
    }  # fmt: skip
    assert {arm: (run.training.warmup_steps, run.training.validate_every) for arm, run in found.items()} == {
        "base": (10, 20), "wide": (10, 20), "long": (100, 200), "untrained": (0, 1)
    }  # fmt: skip


def test_a_derived_default_that_is_written_stays():
    arms = {"wide": {"objective": {"kind": "masked_lm"}, "encoder": {"hidden_size": 128}}}
    found = settings(arms=arms, encoder={"hidden_size": 64, "intermediate_size": 100})
    assert found["wide"].encoder.intermediate_size == 100


def test_another_kind_starts_from_its_own_defaults():
    arms = {"files": {"data": {"kind": "files", "train": "a.txt", "validation": ["b.txt"]}}}
    found = settings(arms=arms, objective={"kind": "masked_lm"}, data={"kind": "language", "max_length": 32})
    assert found["files"].data.max_length == 128
    assert found["files"].data.train == ("a.txt",)


def test_a_grid_adds_every_combination_named_after_what_it_varies():
    found = varied(axes={"objective.masking.ratio": [0.05, 0.15, 0.4], "encoder.norm": ["post", "pre"]})
    assert list(found) == ["mlm"] + [
        f"mlm,ratio={ratio},norm={norm}" for ratio in ("0.05", "0.15", "0.4") for norm in ("post", "pre")
    ]
    for ratio, norm in itertools.product([0.05, 0.15, 0.4], ["post", "pre"]):
        arm = found[f"mlm,ratio={ratio},norm={norm}"]
        assert (arm.objective.masking.ratio, arm.encoder.norm) == (ratio, norm)
    assert found["mlm,ratio=0.15,norm=post"] == found["mlm"]  # the base's own values: one run, two names


def test_derived_defaults_follow_a_grid():
    found = varied(axes={"encoder.hidden_size": [32, 64]})
    assert found["mlm,hidden_size=32"].encoder.intermediate_size == 128
    assert found["mlm,hidden_size=64"].encoder.intermediate_size == 256


def test_a_grid_can_vary_the_kind_and_replaces_what_belongs_to_the_other():
    arms = {"mlm": {"objective": {"kind": "masked_lm", "masking": {"ratio": 0.4}}}}
    found = settings(arms=arms, grid={"base": "mlm", "axes": {"objective.kind": ["masked_lm", "causal_lm"]}})
    assert found["mlm,kind=masked_lm"].objective.masking.ratio == 0.4
    assert found["mlm,kind=causal_lm"].objective.model_dump() == {
        "kind": "causal_lm",
        "sees": "left_only",
        "window": 2,
        "token_dropout": 0.0,
        "head": "bert",
        "label_smoothing": 0.0,
    }


def test_zip_pairs_and_multiplies_with_the_axes():
    found = varied(
        axes={"encoder.norm": ["post", "pre"]},
        zip={"encoder.hidden_size": [32, 64], "encoder.num_attention_heads": [2, 4]},
    )
    assert list(found)[1:] == [
        f"mlm,norm={norm},hidden_size={width},num_attention_heads={heads}"
        for norm in ("post", "pre")
        for width, heads in ((32, 2), (64, 4))
    ]


def test_exclude_leaves_out_all_that_an_entry_matches():
    axes = {"objective.masking.ratio": [0.05, 0.15], "encoder.norm": ["post", "pre"], "training.max_steps": [1, 2]}
    found = varied(
        axes=axes,
        exclude=[
            {"objective.masking.ratio": 0.05, "encoder.norm": "pre"},
            {"training.max_steps": 2.0, "encoder.norm": "post"},  # 2.0 is 2
        ],
    )
    assert list(found)[1:] == [
        "mlm,ratio=0.05,norm=post,max_steps=1",
        "mlm,ratio=0.15,norm=post,max_steps=1",
        "mlm,ratio=0.15,norm=pre,max_steps=1",
        "mlm,ratio=0.15,norm=pre,max_steps=2",
    ]


def test_settings_of_the_same_last_name_are_told_apart():
    found = settings(
        arms={"mt": {"objective": {"kind": "translation"}}},
        grid={
            "base": "mt",
            "axes": {
                "encoder.num_hidden_layers": [2],
                "objective.decoder.num_hidden_layers": [1],
                "encoder.norm": ["pre"],
            },
        },
    )
    assert list(found) == ["mt", "mt,encoder.num_hidden_layers=2,decoder.num_hidden_layers=1,norm=pre"]


@pytest.mark.parametrize(
    ("path", "value", "part"),
    [
        ("training.learning_rate", 1e-5, "learning_rate=1e-5"),
        ("training.learning_rate", 0.0001, "learning_rate=0.0001"),
        ("objective.masking.ratio", 1.0, "ratio=1"),
        ("training.precision", "bf16-mixed", "precision=bf16-mixed"),
        ("objective.masking", {"ratio": 0.4, "mask": 0.8}, "masking=ratio-0.4-mask-0.8"),
    ],
)
def test_a_value_in_a_name_is_short_and_fits_a_folder(path, value, part):
    assert list(varied(axes={path: [value]})) == ["mlm", f"mlm,{part}"]


def test_paths_and_nothing_become_names_too():
    data = {"kind": "files", "train": "a.txt", "validation": "b.txt"}
    found = settings(
        data=data,
        grid={"base": "mlm", "axes": {"data.train": ["../x/a b.txt", ["c.txt", "d.txt"]], "data.target": [None]}},
    )
    assert list(found)[1:] == ["mlm,train=..-x-a-b.txt,target=null", "mlm,train=c.txt-d.txt,target=null"]


def test_resolved_writes_out_every_default():
    found = grid.resolved(
        experiment(question="Which?", measures=["layer_change"], claims=["article"], seeds=[0, 2])
    )
    assert list(found) == [
        "name",
        "version",
        "question",
        "seeds",
        "match",
        "measures",
        "claims",
        "published",
        "figures",
        "arms",
    ]
    assert found == {
        "name": "x",
        "version": 1,
        "question": "Which?",
        "arms": {
            "mlm": {
                "data": {
                    "kind": "language", "seed": 0, "train": 100_000, "validation": 4000, "test": 4000,
                    "vocab_size": 1024, "max_length": 64,
                },
                "encoder": {
                    "num_hidden_layers": 6, "hidden_size": 256, "num_attention_heads": 4,
                    "intermediate_size": 1024, "dropout": 0.1, "norm": "post", "norm_kind": "layer",
                    "positions": "learned", "attention_window": None,
                    "embedding": {"scale": False, "bias": False, "norm": True}, "initialisation": "normal",
                    "activation": "gelu", "layer_norm_epsilon": 1e-12, "attention_dropout": 0.0,
                    "feed_forward_dropout": 0.0,
                },
                "objective": {
                    "kind": "masked_lm", "sees": "both_sides",
                    "window": 2, "pair_loss": "none", "head": "bert", "label_smoothing": 0.0,
                    "masking": {
                        "ratio": 0.15, "schedule": None, "mask": 0.8, "random": 0.1, "keep": 0.1,
                        "random_differs": False, "select": {"kind": "uniform"}, "count": "unbiased",
                        "copies": None, "predict": None,
                    },
                },
                "training": {
                    "max_steps": 1000, "tokens_per_step": 8192, "accumulate": 1, "sentences": None,
                    "input_format": "sentences", "word_order": {"kind": "natural"},
                    "optimizer": {"kind": "adamw"}, "learning_rate": 5e-4, "schedule": "linear",
                    "warmup_steps": 100, "adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-6,
                    "weight_decay": 0.01, "gradient_clip_val": 1.0, "precision": "32-true", "compile": False,
                    "validate_every": 200, "keep_checkpoints": "all", "loggers": ["tensorboard"],
                    "seeds": {"init": None, "order": None, "corruption": None, "dropout": None},
                },
            }
        },
        "seeds": [0, 2],
        "match": "steps",
        "measures": [
            {"checkpoints": "last", "tokens": 50_000, "treebank": None, "kind": "layer_change", "groups": [],
             "group_tokens": None},
        ],
        "claims": ["article"],
        "published": [],
        "figures": [],
    }  # fmt: skip
    assert json.loads(json.dumps(found)) == found


def test_what_is_resolved_resolves_to_itself():
    first = grid.resolved(experiment(grid={"base": "mlm", "axes": {"encoder.norm": ["pre"]}}))
    assert "question" not in first  # of which there is none
    assert grid.resolved(Experiment.model_validate(first)) == first


def test_an_experiment_put_together_by_hand_is_refused_where_load_would_refuse_it():
    assert (
        error_text(SpecError, lambda: grid.runs(experiment(training={"max_steps": -1})))
        == "x: training.max_steps must be greater than or equal to 0, but is -1; raise it"
    )
    assert (
        error_text(SpecError, lambda: grid.resolved(experiment(grid={"base": "nlm"})))
        == 'x: grid.base must be the name of an arm, but is "nlm"; did you mean mlm?'
    )


def test_looking_at_a_spec_loads_nothing_heavy(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: x\nversion: 1\ndata: {kind: language}\narms: {a: {objective: {kind: causal_lm}}}\nseeds: [0]\n"
    )
    code = (
        "import sys\nfrom pathlib import Path\nfrom ablations.spec import grid, load\n"
        f"grid.runs(load.load(Path({str(path)!r}))); load.schema()\n"
        "print({'torch', 'pandas', 'numpy', 'lightning', 'datasets', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"


def test_the_grid_of_the_guide_adds_the_arms_that_it_names(tmp_path):
    guide = (Path(__file__).parents[3] / "docs" / "guide.md").read_text(encoding="utf-8")
    section = guide.split("### Arms that a grid generates\n")[1].split("\n### ")[0]
    path = tmp_path / "grid.yaml"
    path.write_text(section.split("```yaml\n")[1].split("```")[0])
    spec = experiment(**yamlfile.read(path).content)
    named = re.findall(r"`(mlm,[^`]+)`", section)
    assert [name for name in dict.fromkeys(run.arm for run in grid.runs(spec)) if "," in name] == named
    assert len(named) == 3


# Presets ---------------------------------------------------------------------------------------------


def test_a_preset_is_laid_below_everything_that_is_written():
    arms = {
        "theirs": {"objective": {"kind": "causal_lm"}},
        "ours": {"preset": "bert", "objective": {"kind": "causal_lm"}},
        "mixed": {"objective": {"kind": "causal_lm", "head": "bert"}, "encoder": {"embedding": {"bias": False}}},
    }
    found = settings(preset="voita-2019", arms=arms, training={"adam_beta2": 0.98})
    theirs, ours, mixed = (found[name] for name in arms)
    for section, values in VOITA_2019.items():
        for name, value in values.items():
            written = getattr(getattr(theirs, section), name)
            is_overridden = name == "adam_beta2"
            assert (written == 0.98) if is_overridden else (written == value or written.model_dump() == value)
    assert (ours.encoder, ours.objective.head) == (EncoderSettings(), "bert")
    assert (mixed.objective.head, mixed.objective.label_smoothing) == ("bert", 0.1)
    assert mixed.encoder.embedding.model_dump() == {"scale": True, "bias": False, "norm": False}


def test_a_preset_is_written_out_and_may_be_varied():
    theirs = experiment(preset="voita-2019")
    resolved = grid.resolved(theirs)
    assert "preset" not in json.dumps(resolved)
    assert grid.resolved(Experiment.model_validate(resolved)) == resolved
    both = varied(axes={"preset": ["bert", "voita-2019"]})
    assert both["mlm,preset=bert"] == both["mlm"]
    assert both["mlm,preset=voita-2019"] == settings(preset="voita-2019")["mlm"]


def test_a_preset_that_does_not_suit_an_objective_is_refused():
    assert error_text(
        SpecError, settings, preset="voita-2019", arms={"electra": {"objective": {"kind": "replaced_token"}}}
    ) == (
        "x: preset voita-2019 is for masked_lm, causal_lm, translation, but objective.kind is replaced_token; "
        "write the settings of the encoder one by one"
    )
