"""Settings that a run does not read change nothing, and the others do."""

import pytest

from lightning_modules.config.encoder import EncoderSettings
from lightning_modules.training.fit import train
from tests.support.stop_after import StopAfter
from tests.support.tiny_text import settings

OTHER_VALUES = {
    "encoder.num_hidden_layers": 3,
    "encoder.num_attention_heads": 4,
    "encoder.activation": "relu",
    "encoder.intermediate_size": 8,
    "encoder.dropout": 0.3,
    "encoder.norm": "pre",
    "encoder.norm_kind": "rms",
    "encoder.positions": "none",
    "encoder.attention_window": 1,
    "encoder.embedding": {"scale": True},
    "encoder.layer_norm_epsilon": 0.1,
    "encoder.attention_dropout": 0.3,
    "encoder.feed_forward_dropout": 0.3,
    "training.adam_beta1": 0.5,
    "training.adam_beta2": 0.5,
    "training.adam_epsilon": 0.1,
}
OF_ALL_OBJECTIVES = {"encoder.hidden_size": 32, "encoder.initialisation": "glorot"}


@pytest.fixture
def weights(make_run, tokens):
    """Trains two steps and returns the weights as bytes."""
    made = []

    def trained(kind, path=None, value=None, *, optimizer="adamw"):
        section, _, name = (path or "training.max_steps").partition(".")
        sections = {"training": {"optimizer": optimizer, "max_steps": 2}}
        sections[section] = sections.get(section, {}) | ({name: value} if path else {})
        directory = make_run(settings(kind, **sections), f"run-s0-{len(made):0>10}")
        made.append(directory)
        directory.checkpoints.mkdir()
        stop = StopAfter(10**9)
        train(directory, tokens, threads=1, accelerator="cpu", stop=stop, on_line=stop.on_line)
        return directory.last_weights.read_bytes()

    return trained


@pytest.mark.parametrize(
    ("kind", "optimizer"), [("skip_gram", "adamw"), ("masked_lm", "sgd"), ("skip_gram", "sgd")]
)
def test_settings_that_are_not_read_change_no_weight(kind, optimizer, weights):
    plain = weights(kind, optimizer=optimizer)
    unread = settings(kind, training={"optimizer": optimizer}).unread
    assert unread
    assert unread.keys() <= OTHER_VALUES.keys(), "give each setting another value than its default in OTHER_VALUES"
    for path in unread:
        assert weights(kind, path, OTHER_VALUES[path], optimizer=optimizer) == plain, path


def test_settings_that_are_read_change_weights(weights):
    """A counter-example for each setting that only some runs read, and for those of the encoder that all read."""
    assert settings("masked_lm").unread == {}
    plain = weights("masked_lm")
    for path, value in OTHER_VALUES.items():
        assert weights("masked_lm", path, value) != plain, path
    plain = weights("skip_gram")
    read = {f"encoder.{name}" for name in EncoderSettings.model_fields} - settings("skip_gram").unread.keys()
    assert read == OF_ALL_OBJECTIVES.keys(), (
        "name the new setting in `read` of RunSettings.unread only if it is read"
    )
    for path in read:
        value = OF_ALL_OBJECTIVES[path]
        assert weights("skip_gram", path, value) != plain, path
