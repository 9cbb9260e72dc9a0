"""Parts of one's own in a spec: they are checked as those of the project, and their source enters identities."""

from pathlib import Path

import pytest

from ablations.errors import SpecError
from ablations.runs.identity import run_identity
from ablations.runs.rows import key
from ablations.spec import grid, load
from ablations.spec.load import schema
from lightning_modules.config.settings import plugins_of
from lightning_modules.errors import AblationsError
from tests.support.spec_files import write_spec

TEMPLATES = Path(__file__).parents[3] / "docs" / "plugins"


@pytest.fixture
def folder(tmp_path):
    """Folder with a copy of every template."""
    for template in TEMPLATES.iterdir():
        if template.is_file():
            (tmp_path / template.name).write_bytes(template.read_bytes())
    return tmp_path


def problems(folder, **changes):
    """What is wrong with a spec, without the names of its folder."""
    with pytest.raises(SpecError) as error:
        load.load(write_spec(folder, **changes))
    return [problem.sentence.replace(f"{folder}/", "") for problem in error.value.problems]


# Measures --------------------------------------------------------------------------------------------


def measure(folder, written="my_measures.py:Rank"):
    (settings,) = load.load(write_spec(folder, measures=[written])).measures
    return settings


def test_a_measure_has_its_own_settings_with_their_defaults_and_bounds(folder):
    assert (measure(folder).share, measure(folder).tokens, measure(folder).checkpoints) == (0.9, 50_000, "last")
    assert measure(folder, {"kind": "my_measures.py:Rank", "share": 0.5}).share == 0.5
    assert problems(folder, measures=[{"kind": "my_measures.py:Rank", "share": 0}]) == [
        "measures.my_measures.py:Rank.share must be greater than 0, but is 0; raise it"
    ]
    assert problems(folder, measures=[{"kind": "my_measures.py:Rank", "shere": 0.5}]) == [
        "measures.my_measures.py:Rank.shere is unknown; did you mean share?"
    ]


def test_a_changed_source_or_setting_is_another_key(folder):
    before = key(measure(folder))
    assert key(measure(folder)) == before
    assert key(measure(folder, {"kind": "my_measures.py:Rank", "share": 0.5})) != before
    with (folder / "my_measures.py").open("a") as source:
        source.write("# changed\n")
    assert key(measure(folder)) != before


def test_a_measure_is_written_for_workers_with_its_place_and_hash(folder):
    settings = measure(folder)
    assert settings.model_dump(mode="json")["kind"] == "my_measures.py:Rank"
    records = plugins_of([settings])
    assert {name: Path(record["path"]).name for name, record in records.items()} == {
        "my_measures.py:Rank": "my_measures.py"
    }


CARD = """
from ablations.catalogue import Card
from ablations.measures.settings import MeasureSettings

class Settings(MeasureSettings):
    pass

def rows(readings, settings, say):
    yield {}

"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        "Rank = 7": "mine.py:Rank must be a Card of ablations.catalogue, but is of the type int; correct the file",
        "Rank = Settings": (
            "mine.py:Rank must be a Card of ablations.catalogue, but is the class Settings; correct the file"
        ),
        'Rank = Card(rows=rows, metrics=("rank",))': (
            "mine.py:Rank must have settings, a subclass of MeasureSettings of ablations.measures.settings; write "
            "it into the card"
        ),
        'Rank = Card(settings=Settings, rows="", metrics=("rank",))': (
            "mine.py:Rank must have rows, a function of readings, settings and say; write it into the card"
        ),
        'Rank = Card(settings=Settings, rows=rows, metrics=("Rank!",))': (
            'mine.py:Rank must have metrics, names in lower-case letters, as in ("rank",); write it into the card'
        ),
        'Rank = Card(settings=Settings, rows=rows, metrics=("rank"))': (
            'mine.py:Rank must have metrics, names in lower-case letters, as in ("rank",); write it into the card'
        ),
        'Rank = Card(settings=Settings, rows=rows, metrics=("rank",), layers="every")': (
            "mine.py:Rank must have layers all, some or none, and not 'every'; write it into the card"
        ),
        "Other = 7": "mine.py:Rank: mine.py has no Rank; it defines Settings, rows, Other",
    }.items(),
)
def test_what_a_card_lacks_is_one_sentence(folder, text, sentence):
    (folder / "mine.py").write_text(CARD + text)
    assert problems(folder, measures=["mine.py:Rank"]) == [sentence]


@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        "    @field_validator('checkpoints')\n    def _mine(cls, value):\n        return {}[value]\n"
        "Rank = Card(settings=Settings, rows=rows, metrics=('rank',))\n": "KeyError: 'last'",
        "Rank = Card(settings=Settings, rows=rows, metrics=('rank',), need=Need(lambda of: of.nothing, 'none'))":
            "AttributeError: 'MaskedLMSettings' object has no attribute 'nothing'",
    }.items(),
)  # fmt: skip
def test_code_of_a_measure_that_fails_while_the_spec_is_read_is_one_sentence_with_its_line(folder, text, sentence):
    source = (
        "from ablations.catalogue import Card, Need\nfrom ablations.measures.settings import MeasureSettings\n"
        "from pydantic import field_validator\ndef rows(readings, settings, say):\n    yield {}\n"
        "class Settings(MeasureSettings):\n    mine: int = 0\n"
    )
    (folder / "mine.py").write_text(source + text)
    line = (source + text).splitlines().index("        return {}[value]") + 1 if "KeyError" in sentence else 8
    with pytest.raises(AblationsError) as error:
        load.load(write_spec(folder, measures=["mine.py:Rank"]))
    assert str(error.value).rpartition("mine.py:Rank: ")[2].rstrip(".") == (
        f"{folder}/mine.py, line {line}: {sentence}; correct the file"
    )


def test_a_missing_file_is_one_sentence_at_the_measure(folder):
    assert problems(folder, measures=["validation", "nowhere.py:Rank"]) == [
        "nowhere.py:Rank: nowhere.py cannot be read (No such file or directory); put the file beside the spec, or "
        "name it with --plugin"
    ]


@pytest.mark.parametrize(
    ("name", "sentence"),
    {
        "my_figure": (
            "an entry of figures must be a file and a name in this file, as in my_figure.py:LossByChange, but "
            'is "my_figure"'
        ),
        "my_measures.py:Rank": (
            "my_measures.py:Rank must be an OwnFigure of ablations.spec.figures, but is of the type "
            "Card; correct the file"
        ),
        "nowhere.py:Rank": (
            "nowhere.py:Rank: nowhere.py cannot be read (No such file or directory); put the file beside the "
            "spec, or name it with --plugin"
        ),
    }.items(),
)
def test_what_is_no_figure_is_one_sentence(folder, name, sentence):
    assert problems(folder, figures=[name]) == [sentence]


def test_a_figure_is_no_part_of_an_identity(folder):
    plain, drawn = (
        [run_identity(run.settings, "text") for run in grid.runs(load.load(write_spec(folder, **more)))]
        for more in ({}, {"figures": ["my_figure.py:LossByChange"]})
    )
    assert plain == drawn


CLAIM = """
version: 1
claims:
  - name: less
    says: Translation has the lower rank.
    source: ours
    family: ranks
    because: it is a test
    needs: {arms: [mlm, mt], measures: ["my_measures.py:Rank"]}
    effect:
      kind: difference
      of: {measure: "my_measures.py:Rank", metric: METRIC, LAYER}
      arm: mlm
      minus: mt
    smallest_effect: 1
    expect: supported
"""


def test_a_claim_may_read_a_measure_of_ones_own(folder):
    (folder / "claims").mkdir()
    file = folder / "claims" / "ranks.yaml"
    changes = {"measures": ["my_measures.py:Rank"], "claims": ["ranks"]}
    file.write_text(CLAIM.replace("METRIC", "rank").replace("LAYER", "layer: 1"))
    assert load.load(write_spec(folder, **changes)).claims == ("ranks",)
    file.write_text(CLAIM.replace("METRIC", "rnk").replace("LAYER", "layer: 1"))
    assert problems(folder, **changes) == [
        'claims.effect.of.metric must be rank, but is "rnk"; did you mean rank?'
    ]
    file.write_text(CLAIM.replace("METRIC", "rank").replace(", LAYER", ""))
    assert problems(folder, **changes) == [
        "claims.effect.of must have layers or layer, because my_measures.py:Rank has a number for each layer"
    ]


def test_the_schema_for_editors_takes_names_of_parts():
    named = schema()["properties"]["measures"]["items"]["anyOf"]
    assert any(one.get("pattern") for one in named)


# Objectives and selections ---------------------------------------------------------------------------

OBJECTIVE = """
from typing import ClassVar

from lightning_modules.config.masking import OwnSelection
from lightning_modules.config.objectives import ObjectiveSettings

class Bare(ObjectiveSettings):
    pass

class Nothing(OwnSelection):
    pass

class Unfit(ObjectiveSettings):
    module: ClassVar = 7

    @property
    def predictions(self):
        return {"text": 1.0}

    def weights_per_token(self, encoder, **_):
        return 1.0

class Gone(Unfit):
    module: ClassVar = "lightning_modules.objectives.nowhere:LM"

class Foreign(Unfit):
    module: ClassVar = "lightning_modules.model.encoder:Encoder"

class Abstract(Unfit):
    module: ClassVar = "lightning_modules.objectives.objective:Objective"

class Unscored(Unfit):
    module: ClassVar = "lightning_modules.objectives.causal_lm:CausalLM"
    output: ClassVar = "own"

class Misspelt(Unscored):
    output: ClassVar = "nxt"

class Words(OwnSelection):
    def joined(self, tokens, split):
        return split.ids > 4
"""


def objectives(folder, **objective):
    return {"arms": {"mine": {"objective": objective}}}


@pytest.mark.parametrize(
    ("kind", "sentence"),
    {
        "Bare": (
            "mine.py:Bare lacks module, predictions, weights_per_token; define it in the class, as "
            "ObjectiveSettings describes it"
        ),
        "Words": (
            "mine.py:Words must be a subclass of ObjectiveSettings of lightning_modules.config.objectives, but is "
            "the class Words; correct the class"
        ),
        "Unfit": (
            "mine.py:Unfit: module must be a subclass of Objective of lightning_modules.objectives.objective, but "
            "is of the type int; correct the class"
        ),
        "Gone": (
            "mine.py:Gone: mine.py: ModuleNotFoundError: No module named 'lightning_modules.objectives.nowhere'; "
            "correct the file"
        ),
        "Foreign": (
            "mine.py:Foreign: module must be a subclass of Objective of lightning_modules.objectives.objective, "
            "but is the class Encoder; correct the class"
        ),
        "Abstract": (
            "mine.py:Abstract: its module Objective lacks losses, make_batch; define it in the class, as "
            "Objective describes it"
        ),
        "Unscored": (
            "mine.py:Unscored has the output own, but its module CausalLM defines no sentence_logits; define it, "
            "or leave the output out"
        ),
        "Misspelt": "mine.py:Misspelt: output must be next, hidden or own, but is 'nxt'; correct it",
    }.items(),
)
def test_what_an_objective_lacks_is_one_sentence(folder, kind, sentence):
    (folder / "mine.py").write_text(OBJECTIVE)
    assert problems(folder, **objectives(folder, kind=f"mine.py:{kind}")) == [sentence]


@pytest.mark.parametrize(
    ("line", "sentence"),
    {
        "raise ValueError('no cost')": "mine.py, line {line}: ValueError: no cost; correct the file",
        "return float('nan')": (
            "predictions and weights_per_token must give numbers above 0, but give 1.0, nan; correct the file"
        ),
        "return -5": (
            "predictions and weights_per_token must give numbers above 0, but give 1.0, -5; correct the file"
        ),
    }.items(),
)
def test_a_cost_that_is_no_number_above_0_is_refused_before_the_plan_counts_with_it(folder, line, sentence):
    template = (folder / "my_objective.py").read_text()
    comment = "# weights of matrices that a token meets"
    lines = template.replace(comment, f"{line}  {comment}").splitlines()
    (folder / "mine.py").write_text("\n".join(lines))
    number = next(n for n, text in enumerate(lines, 1) if line in text)
    sentence = sentence.format(line=number)
    assert problems(folder, **objectives(folder, kind="mine.py:Ahead")) == [f"arm mine: mine.py:Ahead: {sentence}"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    {
        "Nothing": "mine.py:Nothing lacks allowed or joined; define one of them, as OwnSelection describes it",
        "Bare": (
            "mine.py:Bare must be a subclass of OwnSelection of lightning_modules.config.masking, but is the "
            "class Bare; correct the class"
        ),
    }.items(),
)
def test_what_a_selection_lacks_is_one_sentence(folder, kind, sentence):
    (folder / "mine.py").write_text(OBJECTIVE)
    changes = objectives(folder, kind="masked_lm", masking={"select": f"mine.py:{kind}"})
    assert problems(folder, **changes) == [sentence]


def test_the_source_of_an_objective_and_of_a_selection_enters_the_identity_of_a_run(folder):
    (folder / "mine.py").write_text(OBJECTIVE)
    select = objectives(folder, kind="masked_lm", masking={"select": "mine.py:Words"})

    def identities():
        specs = (objectives(folder, kind="my_objective.py:Ahead"), select, objectives(folder, kind="masked_lm"))
        settings = [grid.runs(load.load(write_spec(folder, **spec)))[0].settings for spec in specs]
        return [run_identity(one, "0123456789") for one in settings]

    before = identities()
    assert identities() == before
    for name in ("my_objective.py", "mine.py"):
        with (folder / name).open("a") as source:
            source.write("# changed\n")
    changed = [old != new for old, new in zip(before, identities(), strict=True)]
    assert changed == [True, True, False]


def test_settings_of_an_objective_are_checked_at_their_place(folder):
    assert problems(folder, **objectives(folder, kind="my_objective.py:Ahead", label_smoothing=2)) == [
        "objective.label_smoothing must be less than 1, but is 2; lower it (2% is written 0.02)"
    ]
    assert problems(folder, **objectives(folder, kind="my_objective.py:Ahead", sees="window")) == [
        'objective.sees must be left_only, but is "window"'
    ]


INHERITED = """
from lightning_modules.config import objectives
from pydantic import Field

class Vectors(objectives.SkipGramSettings):
    kind: str

class Near(objectives.CausalLMSettings):
    kind: str
    window: int = Field(4, ge=1)

class Translated(objectives.TranslationSettings):
    kind: str

class Permuted(objectives.PermutationLMSettings):
    kind: str

class Masked(objectives.MaskedLMSettings):
    kind: str
"""


def test_a_plugin_that_inherits_settings_of_an_objective_obeys_its_rules(folder):
    (folder / "mine.py").write_text(INHERITED)
    runs = (
        {"kind": "mine.py:Vectors"},
        {"kind": "mine.py:Vectors", "window": 7},
        {"kind": "mine.py:Near"},
        {"kind": "mine.py:Masked", "masking": {"predict": 0.1}},
    )
    for objective in runs:
        load.load(write_spec(folder, **objectives(folder, **objective)))
    data = {"kind": "files", "train": "a.tsv", "validation": "a.tsv"}
    refused = (
        ({"kind": "mine.py:Near", "window": 5}, {}, "window must be left out unless objective.sees is window"),
        ({"kind": "mine.py:Translated"}, {"data": data}, "translation needs data.target"),
        (
            {"kind": "mine.py:Permuted"},
            {"encoder": {"positions": "none"}},
            "must not be none for mine.py:Permuted, because its predictions depend only on positions",
        ),
    )
    for objective, more, sentence in refused:
        (problem,) = problems(folder, **objectives(folder, **objective), **more)
        assert sentence in problem
