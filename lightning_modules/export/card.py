"""Model card of an exported run: README.md with the front matter that the Hub reads."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning_modules.config import RunSettings
from lightning_modules.config.objectives import StockOutput
from lightning_modules.model.parts import unscored_ids

TASKS: Mapping[StockOutput, str] = {
    "token": "fill-mask",
    "token_and_pair": "fill-mask",
    "target_text": "translation",
    "states": "feature-extraction",
    "replaced": "feature-extraction",
}
"""Names of tasks on the Hub, by output. A causal LM has none: the pipeline of its task leaves the [SEP] that the
tokenizer adds to each text, so it continues nothing."""

CHECKED = "5.20 to 5.24"
"""Versions of transformers whose classes were seen to give the numbers of the runs."""

USES: Mapping[StockOutput, str] = {
    "token": "`outputs.logits` has a score of each token of the vocabulary at each position, also at `[MASK]`.",
    "token_and_pair": "`outputs.prediction_logits` has a score of each token of the vocabulary at each place. "
    "`outputs.seq_relationship_logits` has two scores of a pair. The first says that the text has this pair.",
    "next_token": "`outputs.logits` has a score of each token of the vocabulary as the next one.",
    "target_text": "`model.generate(**inputs)` gives ids of the translation. The tokenizer in "
    "`target_tokenizer/` turns them into text.",
    "states": "`outputs.hidden_states` has the states of all layers. There is no head.",
    "replaced": "`outputs.logits` has a score at each place: above 0 means {above_zero}.",
}
"""Sentences on how the output is read, by output. The objective says what a score above 0 means."""


CONTINUES = (
    *("BertLMHeadModel", "RoFormerForCausalLM", "GPT2LMHeadModel"),
    *("Starcoder2ForCausalLM", "LlamaForCausalLM"),
)
"""Classes for causal LM whose `generate` reads a text as training did. That of the others (transformers 5) counts
its positions from another number, appends a token, or is missing."""


@dataclass(frozen=True)
class Origin:
    """Facts about the origin of a run that its own folder does not have."""

    questions: Mapping[str, str] = field(default_factory=dict)
    """Questions of the experiments that have the run, by name of the experiment."""
    losses: Mapping[int, float] = field(default_factory=dict)
    """Validation losses by step, in nats for each predicted token."""


@dataclass(frozen=True)
class Facts:
    """Facts about one exported checkpoint, for the card and config.json."""

    run: RunSettings
    description: Mapping[str, Any]
    """Content of run.json."""
    provenance: Mapping[str, Any]
    """Content of provenance.json."""
    origin: Origin
    class_name: str
    output: StockOutput
    step: int
    has_generator: bool = False
    is_decoder_made_to_see: bool = False
    """Whether a class for causal LM sees both sides in this folder (`is_causal: false`)."""

    @property
    def generates(self) -> bool:
        """Return whether `model.generate` gives the texts of the run."""
        continues = self.class_name in CONTINUES and not self.is_decoder_made_to_see
        return self.output == "target_text" or (self.output == "next_token" and continues)

    def entry(self) -> dict[str, Any]:
        """Return the entry of config.json about the run."""
        return {
            "run_id": self.description["run_id"],
            "arm": self.description["arm"],
            "seed": self.description["seed"],
            "step": self.step,
            "max_steps": self.run.training.max_steps,
            "validation_loss": self.origin.losses.get(self.step),
            "commit": self.provenance.get("commit"),
            "dirty": self.provenance.get("dirty"),
            "unscored": list(unscored_ids(self.run)),
        }


def card(facts: Facts) -> str:
    """Return the model card, the text of README.md."""
    sections = [_front_matter(facts), _summary(facts), _question(facts), _use(facts), _making(facts), _data(facts)]
    return "\n\n".join([*(section for section in sections if section), _limits(facts)]) + "\n"


def _front_matter(facts: Facts) -> str:
    data = facts.run.data
    lines = ["library_name: transformers", "license: unknown"]
    if not facts.is_decoder_made_to_see and facts.output in TASKS:
        lines.append(f"pipeline_tag: {TASKS[facts.output]}")
    if data.kind == "hub":
        lines.append(f"datasets: [{json.dumps(data.path)}]")
    lines.append(f"tags: [pretraining-ablations, {facts.run.objective.kind}]")
    return "\n".join(["---", *lines, "---"])


def _summary(facts: Facts) -> str:
    name = f"{facts.description['arm']}, seed {facts.description['seed']}, step {facts.step:,}"
    objective = inspect.getdoc(type(facts.run.objective)) or ""
    sentence = " ".join(objective.partition("\n\n")[0].split()).removeprefix("Settings of ")
    return (
        f"# {name}\n\n"
        f"This is one run of an experiment on pre-training, after {facts.step:,} of "
        f"{facts.run.training.max_steps:,} steps. `{facts.class_name}` computes the same states and the same "
        f"output as the model that was trained. Objective: {sentence}"
    )


def _question(facts: Facts) -> str:
    lines = [f"* {name}: {question}" for name, question in facts.origin.questions.items()]
    return "\n".join(["## Question of the experiment", "", *lines]) if lines else ""


def _use(facts: Facts) -> str:
    lines = [
        "## Use",
        "",
        "```python",
        f"from transformers import AutoTokenizer, {facts.class_name}",
        "",
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
        f'model = {facts.class_name}.from_pretrained("FOLDER").eval()',
        'inputs = tokenizer("A sentence.", return_tensors="pt")',
        "outputs = model(**inputs, output_hidden_states=True)"
        if facts.output != "target_text"
        else "ids = model.generate(**inputs)",
        "```",
        "",
        USES[facts.output].replace("{above_zero}", facts.run.objective.above_zero),
        *_continuing(facts),
        f"Pad on the right. The longest input has {facts.run.data.max_length} tokens. Training saw one space in "
        'place of any white space: give the tokenizer `" ".join(text.split())`. '
        f"transformers {CHECKED} gives the numbers of the run; some older versions give other numbers.",
    ]
    if facts.output == "next_token" and (unscored := unscored_ids(facts.run)):
        lines += [
            "",
            f"The run gives no probability to the ids {', '.join(map(str, unscored))}, and `model.generate` "
            "leaves them out. `outputs.logits` has scores for them: set these to -inf before a softmax or a loss.",
        ]
    if facts.is_decoder_made_to_see:
        lines += ["", "`is_causal` is false in config.json, so the attention of this class sees both sides."]
    if facts.run.encoder.norm == "pre":
        lines += [
            "",
            "The last of the hidden states is the one after the final norm. Measures of layers read the state "
            "before this norm: read the output of the last layer with a hook.",
        ]
    if facts.has_generator:
        lines += ["", "`generator/` holds the generator: load it with `ElectraForMaskedLM`."]
    return "\n".join(lines)


def _continuing(facts: Facts) -> list[str]:
    if facts.output != "next_token":
        return []
    if facts.generates:
        return ["Take the last id (`[SEP]`) away from a text that `model.generate` is to continue."]
    return [
        "Do not use `model.generate`: in this class it does not read a text as training did. Append the token "
        "with the highest score to the text, and compute the scores again."
    ]


def _making(facts: Facts) -> str:
    run, description, provenance = facts.run, facts.description, facts.provenance
    versions = provenance.get("versions", {})
    loss = facts.origin.losses.get(facts.step)
    commit = provenance.get("commit") or "unknown"
    rows = {
        "Run": description["run_id"],
        "Arm": description["arm"],
        "Seed": description["seed"],
        "Step": f"{facts.step:,} of {run.training.max_steps:,}",
        "Validation loss": "not known for this step" if loss is None else f"{loss:.4f} nats a predicted token",
        "Tokens a step": f"{run.training.tokens_per_step:,}",
        "Commit": f"{commit}, with changes" if provenance.get("dirty") else commit,
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items() if version) or "unknown",
        "Trained": provenance.get("finished") or provenance.get("started") or "unknown",
    }
    if run.init is not None and run.init.weights == "folder":
        start = f"the weights of {Path(run.init.path).name} (SHA-256 of what was read: {run.init.content})"
        rows["Started from"] = f"{start}; look up its licence too"
    return (
        "## How it was made\n\n"
        "`ablate run` of pretraining-ablations trained it. `settings.json` has every setting.\n\n"
        "| | |\n|---|---|\n"
    ) + "\n".join(f"| {name} | {value} |" for name, value in rows.items())


def _data(facts: Facts) -> str:
    settings = facts.run.data.model_dump(mode="json", exclude_none=True)
    lines = [f"* `{name}`: {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items()]
    return (
        f"## Data\n\n{''.join(lines)}\n"
        f"The token store has the address {facts.description['tokens']}. The licence of the data is not recorded "
        "with the run. Look it up, and write it into `license` above before you publish this folder."
    )


def _limits(facts: Facts) -> str:
    return (
        "## Limits\n\n"
        "The model is made for research: it serves to compare settings of pre-training. It was not fine-tuned. "
        "Nobody has tested its output for truth or for harm. It repeats the errors and the biases of its data. "
        "Compare it with runs of the same experiment, over several seeds: one run alone is no evidence."
    )
