"""Commands for models of other tools: `export` and `analyse`."""

from pathlib import Path
from typing import Any

import click

from ablations.commands.options import FILE, FOLDER, GivenPath, out_option, plugin_option, publish_option
from ablations.commands.results import show_page


@click.command
@click.argument("run_dir", type=FOLDER)
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.option(
    "--all-steps", is_flag=True, help="Write every kept checkpoint to a folder of its own, with an index."
)
@click.option(
    "--encoder", "encoder_alone", is_flag=True, help="Write only the encoder, without heads and decoder."
)
@plugin_option
def export(run_dir: Path, folder: Path, all_steps: bool, encoder_alone: bool) -> None:
    """Write a trained run as a Hugging Face folder.

    Stock classes of transformers load the folder. RUN_DIR is the folder of a run, such as
    out/runs/mlm-s0-4adb6d4d99. DIR is new or empty.
    """
    from lightning_modules import plugins
    from lightning_modules.export import folder as exports
    from lightning_modules.training.run_directory import RunDirectory

    plugins.look_beside(None)
    for name, record in RunDirectory(run_dir).description().get("plugins", {}).items():
        plugins.load(name, sha256=record.get("sha256"))  # refused without --plugin: the run may be from others
    options: dict[str, Any] = {"encoder_alone": encoder_alone, "origin": origin_of(run_dir)}
    written = (
        exports.export_series(run_dir, folder, **options)
        if all_steps
        else [exports.export(run_dir, folder, **options)]
    )
    for each in written:
        click.echo(f"{each.class_name}: {each.folder}")


@click.command
@click.argument("folders", type=FOLDER, nargs=-1, required=True, metavar="FOLDER...")
@click.option(
    "--text",
    type=FILE,
    required=True,
    help="File of sentences: a table, or a .txt with one sentence in each line.",
)
@click.option(
    "--labels",
    type=FILE,
    help="Treebank of the same sentences, in the same order: CoNLL-U or parquet.",
)
@click.option(
    "--column",
    help="Column of the sentences in a table; needed if several columns have text and none is called text.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=100),
    help="Largest number of tokens to measure, in whole sentences from the start. [default: 150 for each unit "
    "of the width, at least 50,000, limited by 6 GiB of hidden states]",
)
@click.option(
    "--measures",
    "measures_file",
    type=FILE,
    help="YAML file with `measures` as in a spec. [default: four measures of states, without read_out]",
)
@click.option(
    "--name", help="Name of the folder of results in the output root. [default: the names of the models]"
)
@click.option(
    "--data-root",
    type=GivenPath(exists=True, file_okay=False),
    default=".",
    show_default=True,
    help="Folder with the files of minimal pairs, such as blimp/test.parquet.",
)
@publish_option
@out_option
def analyse(
    folders: tuple[Path, ...],
    text: Path,
    labels: Path | None,
    column: str | None,
    tokens: int | None,
    measures_file: Path | None,
    name: str | None,
    data_root: Path,
    published: Path | None,
    out: Path,
) -> None:
    """Measure the layers of Hugging Face models on a text.

    The untrained twin of each model, the same architecture with random weights, is measured too. Each FOLDER is an
    arm: a model, or a series of checkpoints, which is measured at every step.

    Types of models (`model_type` in config.json): albert, bart, bert, bloom, camembert, data2vec-text, deberta,
    deberta-v2, distilbert, electra, encoder-decoder, ernie, esm, eurobert, gemma, gemma2, gemma3_text, gpt2,
    gpt_neo, gpt_neox, gptj, llama, longformer, m2m_100, marian, mbart, megatron-bert, mistral, modernbert, mpnet,
    mt5, olmo, olmo2, phi3, qwen2, qwen3, rembert, roberta, roberta-prelayernorm, roformer, smollm3, starcoder2,
    t5, umt5, xlm, xlm-roberta, xlm-roberta-xl.
    """
    import time

    from ablations.analyse import measures
    from ablations.analyse.analyse import analyse as measure_models
    from ablations.runs.terminal import duration
    from lightning_modules.files import require_writable

    if published is not None:
        require_writable(published)  # before anything is measured
    started = time.monotonic()
    results = measure_models(
        *folders,
        text=text,
        labels=labels,
        column=column,
        out=out.absolute(),
        name=name,
        tokens=tokens,
        measures=None if measures_file is None else measures.load(measures_file),
        data_root=data_root,
        say=lambda line: click.echo(f"{duration(time.monotonic() - started)}  {line}"),
    )
    from reports.page import page

    show_page(page.write(results), published)


def origin_of(run_dir: Path) -> Any:
    """Return the experiments that have a run, with their questions, and its validation losses by step.

    Plans that cannot be read are left out.
    """
    from pydantic import ValidationError

    from ablations.runs.records import Plan
    from ablations.runs.rows import rows
    from lightning_modules.errors import FilesError
    from lightning_modules.export.card import Origin
    from lightning_modules.files import read_json
    from lightning_modules.training.run_directory import RunDirectory

    directory = RunDirectory(run_dir)
    run_id = directory.description()["run_id"]
    questions = {}
    for path in sorted(run_dir.absolute().parent.parent.glob("*/plan.json")):
        try:
            plan = Plan.model_validate(read_json(path))
        except (FilesError, ValidationError):
            continue
        if plan.question and run_id in (run.run_id for run in plan.runs):
            questions[plan.experiment] = plan.question
    table = rows(directory.path)
    chosen = table[(table["measure"] == "validation") & (table["metric"] == "loss") & table["group"].isna()]
    losses = zip(chosen["step"], chosen["value"], strict=True)
    return Origin(questions=questions, losses={int(step): float(loss) for step, loss in losses})
