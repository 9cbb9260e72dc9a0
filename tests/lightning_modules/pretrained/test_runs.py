"""Whole runs that start from a folder: they end as its model, or go on from it, and resume from a checkpoint."""

import json
import shutil

import pytest
import torch

from lightning_modules.data.token_store import prepare
from lightning_modules.data.tokenizer import END, MASK, PAD, START, UNKNOWN
from lightning_modules.errors import DataError, ExitCode, StopRequest
from lightning_modules.export.folder import export
from lightning_modules.objectives import build
from lightning_modules.pretrained.folder import read_folder
from lightning_modules.pretrained.weights import load_pretrained
from lightning_modules.training.checkpoint import read_checkpoint
from lightning_modules.training.data_module import evaluation_batches
from lightning_modules.training.train import start
from tests.support import tiny_pretrained
from tests.support.errors import error_text
from tests.support.stop_after import StopAfter
from tests.support.tiny_pretrained import resolved
from tests.support.tiny_text import run_folder

transformers = pytest.importorskip("transformers", reason="the extra [hf] is not installed")


def go(directory, stop=None):
    """Train the run of a folder to its end, or until it is stopped."""
    options = {} if stop is None else {"on_line": stop.on_line}
    request = stop or StopRequest()
    return start(directory, data_root=directory.path, accelerator="cpu", threads=1, stop=request, **options)


@pytest.fixture
def planned(tmp_path, data_root):
    """Makes the folder of a run that starts from a tiny model beside the tiny text, and returns that model too."""

    def make(family, *, steps, name="run-s0-0000000000"):
        place = tmp_path / "models" / family
        stock = None if place.exists() else getattr(tiny_pretrained, family)(place)
        run = resolved(tmp_path / "models", family, training={"max_steps": steps})
        tokens = prepare(run.data, data_root=data_root, store=tmp_path / f"store-{family}")
        return run_folder(run, tokens, out=tmp_path / f"out-{family}", name=name), stock

    return make


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_without_a_step_a_run_is_the_model_of_the_folder_and_exports_as_it(family, planned, tmp_path):
    directory, stock = planned(family, steps=0)
    assert go(directory) == ExitCode.DONE
    exported = export(directory.path, tmp_path / "exported")
    theirs = tmp_path / "models" / family
    cutters = [transformers.AutoTokenizer.from_pretrained(place) for place in (theirs, exported.folder)]
    line = "the man sang 7 times"
    before_T, after_T = (cut(line, add_special_tokens=False, return_tensors="pt").input_ids for cut in cutters)
    order = read_folder(theirs).order()
    assert [order[i] for i in after_T[0].tolist()] == before_T[0].tolist()
    again = getattr(transformers, exported.class_name).from_pretrained(exported.folder).eval()
    own = [i for i, row in enumerate(order) if row is not None]
    with torch.no_grad():
        expected, actual = stock(before_T).logits, again(after_T).logits
    torch.testing.assert_close(actual[..., own], expected[..., [order[i] for i in own]], rtol=0, atol=1e-5)


def test_an_exported_gpt2_writes_no_special_id_that_it_lacks(planned, tmp_path):
    directory, _ = planned("gpt2", steps=0)
    assert go(directory) == ExitCode.DONE
    folder = export(directory.path, tmp_path / "exported").folder
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    torch.manual_seed(0)
    # A fresh model draws each of its 258 ids about equally often: of 4,000 draws 15 would be [MASK].
    drawn_BT = model.generate(torch.full((200, 1), START), do_sample=True, max_length=21)[:, 1:]
    assert not torch.isin(drawn_BT, torch.tensor([UNKNOWN, START, MASK])).any()
    is_padding_BT = drawn_BT == PAD
    assert torch.equal(is_padding_BT, (drawn_BT == END).cumsum(1).bool() & (drawn_BT != END))
    assert "no probability to the ids 0, 1, 2, 4, and" in (folder / "README.md").read_text()


def test_a_branch_begins_with_the_losses_of_the_exported_step(planned, tmp_path, data_root):
    directory, _ = planned("gpt2", steps=2)
    assert go(directory) == ExitCode.DONE
    folder = export(directory.path, tmp_path / "models/step").folder
    run, branch = directory.settings(), resolved(tmp_path / "models", "gpt2", path="step")
    tokens = prepare(branch.data, data_root=data_root, store=tmp_path / "store-step")
    before, after = build(run, tokens).eval(), build(branch, tokens).eval()
    before.load_state_dict(read_checkpoint(directory.last_checkpoint)["state_dict"])
    load_pretrained(after, tmp_path)
    batch = next(evaluation_batches(before, tokens.validation, tokens_per_step=512))
    with torch.no_grad():
        losses = [objective.losses(batch)["loss"].total for objective in (before, after)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=0)  # 0.0014 more if ids that GPT-2 lacks are scored

    config = json.loads((folder / "config.json").read_text())
    config["pretraining_ablations"]["unscored"] = [0, END]
    (folder / "config.json").write_text(json.dumps(config))
    assert error_text(DataError, resolved, tmp_path / "models", "gpt2", path="step") == (
        f"{folder / 'config.json'} has unscored: [0, 3] in pretraining_ablations, expected a list of some of the "
        "special ids 0, 1, 2, 4; export the run again."
    )


def test_a_run_goes_on_from_the_folder_and_resumes_from_its_checkpoint(planned, tmp_path):
    whole, _ = planned("bert", steps=4)
    pieces, _ = planned("bert", steps=4, name="pieces-s0-0000000000")
    first, _ = planned("bert", steps=0, name="first-s0-0000000000")
    assert go(whole) == go(first) == ExitCode.DONE
    assert go(pieces, StopAfter(2)) == ExitCode.INTERRUPTED
    shutil.rmtree(tmp_path / "models/bert")  # whoever resumes reads the checkpoint alone
    assert go(pieces) == ExitCode.DONE
    states = [read_checkpoint(each.last_checkpoint)["state_dict"] for each in (whole, pieces, first)]
    for name, weight in states[0].items():
        assert torch.equal(weight, states[1][name])
    name = "encoder.blocks.0.feed_forward.expand.weight"
    moved = (states[0][name] - states[2][name]).abs()
    assert 0 < moved.max() < 0.02 < states[2][name].abs().max()  # four small steps away from the folder's weights
