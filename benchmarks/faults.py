"""Faults: tiny grids that are killed, frozen, starved and damaged, and must end like an undisturbed grid.

`python -m benchmarks faults` draws faults from a seed, puts them into grids of the real command (`traps.py`),
and starts the command again after each. It compares every result with that of an undisturbed grid, bit for
bit.
"""

import importlib
import itertools
import os
import pkgutil
import random
import re
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from ctypes import CDLL
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table

import ablations
import reports
from ablations.runs import launch
from benchmarks import cluster_faults
from benchmarks.fingerprints import corrupt_checkpoints, fingerprint
from benchmarks.traps import (
    DAMAGES,
    IN_COMMAND,
    IN_PLACE,
    KINDS,
    MOMENTS,
    Fault,
    Trap,
    damage,
    forked,
    start_command,
)
from lightning_modules.files import make_folder, read_json, write_json
from lightning_modules.model.numerics import matrix_rate
from lightning_modules.provenance import checkout, provenance, utc_now
from lightning_modules.randomness import derive
from lightning_modules.training import fit

SECONDS_OF_A_HANG = 600.0
MOST_FAULTS = 12
"""Largest number of faults of one grid, without those of its last start."""
MOST_BY_HAND = 3
"""Largest number of files that may have to be deleted by hand after one fault, as an error sentence asks."""
PROBLEMS = ("lost", "corrupt", "hang", "different", "unexplained")
"""Kinds of problems: runs lost, newest checkpoints corrupt, hangs, grids with different bits, errors without
a sentence."""
WORDS = ("a", "the", "dog", "cat", "bird", "tree", "house", "sees", "likes", "hears", "small", "old", "green")
SPEC: dict[str, Any] = {
    "name": "faults",
    "version": 1,
    "data": {"kind": "files", "train": "train.txt", "validation": "validation.txt", "vocab_size": 120}
    | {"max_length": 32},
    "encoder": {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "dropout": 0.1},
    "training": {"max_steps": 10, "tokens_per_step": 64, "validate_every": 4, "loggers": []},
    "arms": {kind: {"objective": {"kind": kind}} for kind in ("masked_lm", "causal_lm")},
    "seeds": [0],
    "measures": ["validation", "layer_change"],
}


def draw(rng: random.Random) -> Fault:
    """Draw a fault. Early calls are more probable, as late ones may not come before the grid ends."""
    kind = rng.choice(KINDS)
    where = "command" if kind in IN_COMMAND and rng.random() < 0.3 else "worker"
    moment = rng.choice(("sync", "rename") if where == "command" else tuple(MOMENTS))
    most = {"start": 1, "measure": 2, "step": 6, "log": 6}.get(moment, 20)
    return Fault(kind, where, moment, rng.randint(1, most), rng.random())


def draw_for_command(rng: random.Random, most: int) -> list[Fault]:
    """Draw the faults of one start of the command: some that it survives, and one that ends it."""
    faults = [draw(rng)]
    while faults[-1].kind in IN_PLACE and len(faults) < min(most, 3):
        faults.append(draw(rng))
    return faults


class Hang(Exception):
    """Error of processes of a grid that do not end."""


def wait_for_end(command: int, trap: Trap, folder: Path) -> int:
    """Wait until all processes of a grid have ended, carry out the second half of faults, and return the
    command's exit code.

    Such a second half is a second command, or the signal that ends or wakes a frozen process.

    Raises:
        Hang: some processes have not ended in time; they are killed.
    """
    deadline, seen, code = time.monotonic() + SECONDS_OF_A_HANG, 0, 0
    due: list[tuple[float, int, int]] = []  # time, process and signal
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == command:
            code = os.waitstatus_to_exitcode(status)
        if pid:
            continue
        seconds_now = time.monotonic()
        while seen < trap.happened:
            kind, process = trap.faults[seen].kind, trap.shared[2 + seen]
            seen += 1
            if kind.startswith("second command"):
                start_command(folder, Trap([], trap.out))
            elif kind.startswith("freeze"):
                number: int = signal.SIGCONT if kind.endswith("while") else signal.SIGKILL
                stops_command = kind.endswith("command")
                who = (command, signal.SIGTERM) if stops_command else (process, number)
                due.append((seconds_now + 0.2, *who))
        for _, process, number in [signalled for signalled in due if signalled[0] <= seconds_now]:
            with suppress(ProcessLookupError):
                os.kill(process, number)
        due = [signalled for signalled in due if signalled[0] > seconds_now]
        if seconds_now > deadline:
            kill_children()
            raise Hang
        time.sleep(0.005)


def kill_children() -> None:
    """Kill all processes below this one, which adopts orphans, until there are none."""
    with suppress(ChildProcessError):
        while True:
            for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, 0)


def obey(output: str) -> bool:
    """Delete the files that the command's output asks to delete; return whether it asks for any."""
    sentences = re.findall(r"(/\S+?):? [^\n]*?delete (it|the file|/[^\s,;]+)", output)
    for path, what in sentences:
        target = Path(what if what.startswith("/") else path)
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    return bool(sentences)


def carry_out_grid(folder: Path, rng: random.Random, reference: dict[str, str]) -> list[dict[str, Any]]:
    """Train the grid of a folder through faults to its end, and return a record of each fault that happened.

    Losses and differences that are found at the end count as problems of the last fault.
    """
    records: list[dict[str, Any]] = []
    out, damaged = folder / "out", dict[Path, bytes]()
    while True:
        room = MOST_FAULTS - len(records)
        trap = Trap(draw_for_command(rng, room) if room > 0 else [], out)
        code, output, hang = one_start(folder, trap)
        happened = trap.faults[: trap.happened]
        records += [fault._asdict() | dict.fromkeys(PROBLEMS, 0) for fault in happened]
        if not records:  # the grid ended before the moment of its first fault
            if code:
                raise click.ClickException(output)
            return []
        last = records[-1]
        last["hang"] += hang
        last["corrupt"] += corrupt_checkpoints(out, damaged)
        last["unexplained"] += "Traceback" in output
        if happened and happened[-1].kind in DAMAGES:
            if not (fresh := damage(out, happened[-1])):
                last["kind"] = "kill everything"
            damaged |= fresh
        elif code == 0 and not hang:
            break
        elif not happened and not hang:
            last["by hand"] = last.get("by hand", 0) + 1
            if last["by hand"] > MOST_BY_HAND or not obey(output):
                return [*records[:-1], last | {"lost": 1, "output": output[-2000:]}]
    digests = fingerprint(out, damaged)
    unread = {f"{path.parents[1].name} checkpoint" for path in damaged} - digests.keys()
    if differing := [name for name in reference if digests.get(name) != reference[name] and name not in unread]:
        last |= {"different": 1, "differing": differing}
    return records


def one_start(folder: Path, trap: Trap) -> tuple[int, str, bool]:
    """Start the command once, and wait until it and its processes have ended.

    Returns its exit code, its output, and whether a process did not end by itself.
    """
    log, code, hang = folder / "output.txt", 0, False
    before = log.stat().st_size if log.exists() else 0
    try:
        code = wait_for_end(start_command(folder, trap), trap, folder)
    except Hang:
        hang = True
    return code, log.read_bytes()[before:].decode(errors="replace"), hang


def write_grid(folder: Path, spec: dict[str, Any]) -> None:
    """Write the spec of a grid and its text."""
    make_folder(folder)
    rng = random.Random(0)
    for name, count in (("train", 200), ("validation", 40)):
        lines = (" ".join([*rng.choices(WORDS, k=rng.randint(3, 12)), _word(rng)]) for _ in range(count))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    write_json(folder / "faults.yaml", spec)  # JSON is YAML


def _word(rng: random.Random) -> str:
    """Return a made-up word, so that there are sub-words to learn."""
    return "".join(rng.choices("abcdefghijklmnop", k=rng.randint(3, 8)))


def grid(out: Path, number: int, seed: int) -> int:
    """Carry out one grid of a seed and write its records. Its folder is kept only if there is a problem."""
    folder = out / "work" / str(number)
    shutil.rmtree(folder, ignore_errors=True)
    write_grid(folder, SPEC)
    shutil.copytree(out / "reference/out/tokens", folder / "out/tokens")
    reap_grandchildren()
    begin = time.monotonic(), os.times()
    rng = random.Random(derive(seed, "faults", number))
    records = carry_out_grid(folder, rng, read_json(out / "reference.json"))
    spent = [after - before for after, before in zip(os.times()[:4], begin[1][:4], strict=True)]
    told = {"grid": number, "seconds": time.monotonic() - begin[0], "cpu_seconds": sum(spent), "faults": records}
    write_json(out / "grids" / f"{number}.json", told)
    if not any(record[problem] for record in records for problem in PROBLEMS):
        shutil.rmtree(folder)
    return 0


def reap_grandchildren() -> None:
    """Make this process the parent of orphaned processes below it."""
    CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def spec_of(place: str) -> dict[str, Any]:
    """Return the spec of a grid; on clusters its runs are longer, as their processes need seconds to start."""
    if place == "local":
        return SPEC
    steps = {"max_steps": 2000, "validate_every": 1000}
    return SPEC | {"training": SPEC["training"] | steps, "seeds": [0, 1]}


def reference(out: Path, place: str) -> int:
    """Train the undisturbed grid on this machine, and write the digests of its results."""
    if place != "local":  # runs are longer there, and results do not depend on how often they are saved
        fit.SECONDS_BETWEEN_SAVES = 60.0
    folder = out / "reference"
    shutil.rmtree(folder, ignore_errors=True)
    write_grid(folder, spec_of(place))
    reap_grandchildren()
    code, output, hang = one_start(folder, Trap([], folder / "out"))
    if code or hang:
        raise click.ClickException(output)
    write_json(out / "reference.json", fingerprint(folder / "out"))
    return 0


def import_everything() -> None:
    """Import all modules of the command and its workers, speed up tiny grids, and have them saved at each
    step."""
    for package in (ablations, reports):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            with suppress(SystemExit):  # the module needs an extra that is not installed
                importlib.import_module(module.name)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.set_num_threads(1)
    matrix_rate(torch.device("cpu"), torch.float32)
    launch.threads_per_process = lambda processes: 1
    launch.SECONDS_AFTER_DEATH, launch.SECONDS_BETWEEN_TRIES = 0.01, 0.05
    fit.SECONDS_BETWEEN_SAVES = -1.0


@click.command()
@click.option(
    "--on",
    "place",
    type=click.Choice(["local", *cluster_faults.KINDS]),
    default="local",
    show_default=True,
    help="Where the grids run.",
)
@click.option("--n", "count", type=click.IntRange(min=1), default=2000, show_default=True, help="Faults.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--slots", type=click.IntRange(min=1), default=2, show_default=True, help="Grids at once, local ones."
)
@click.option("--out", type=click.Path(path_type=Path), default="out/faults", show_default=True)
@click.option("--replay", type=click.IntRange(min=0), help="Carry out this local grid again.")
def main(place: str, count: int, seed: int, slots: int, out: Path, replay: int | None) -> None:
    """Inject faults into tiny grids and write what came of them to OUT/PLACE-seed-SEED/faults.json.

    Which faults a grid gets follows from the seed and its number. A command that was stopped goes on with the
    grids that are missing. The folder of a grid with a problem stays in OUT/PLACE-seed-SEED/work. Exit code 1: a
    run was lost, a checkpoint corrupt, something hung, a result differs, or an error had no sentence.
    """
    console = Console(width=None if sys.stdout.isatty() else 120)
    out = (out / f"{place}-seed-{seed}").absolute()
    make_folder(out / "grids")
    commit = checkout()["commit"]
    if (out / "commit.json").exists() and read_json(out / "commit.json") != commit:
        raise click.ClickException(f"{out} has faults of another commit; give another --out, or delete it.")
    write_json(out / "commit.json", commit)
    import_everything()
    reap_grandchildren()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if not (out / "reference.json").exists():
            os.waitpid(forked(lambda: reference(out, place)), 0)
        if replay is not None:
            (out / "grids" / f"{replay}.json").unlink(missing_ok=True)
            os.waitpid(forked(lambda: grid(out, replay, seed)), 0)
            console.print_json(data=read_json(out / "grids" / f"{replay}.json"))
            return
        if place == "local":
            carry_out(out, count, seed, slots, console)
        else:
            carry_out_on_cluster(out, count, seed, place, console)
    except KeyboardInterrupt:
        console.print("interrupted; the same command continues from here", style="yellow")
        sys.exit(130)
    finally:
        kill_children()
    told = summary(out) | {"measured": utc_now(), "place": place, "seed": seed, "slots": slots, **provenance()}
    write_json(out / "faults.json", told)
    console.print(table(told))
    console.print(sentence(told), highlight=False, soft_wrap=True)
    sys.exit(1 if any(told[problem] for problem in PROBLEMS) else 0)


def carry_out(out: Path, count: int, seed: int, slots: int, console: Console) -> None:
    """Carry out the missing grids, `slots` at a time, until so many faults have happened."""
    at_work: dict[int, int] = {}
    number = 0
    while (injected := summary(out)["injected"]) < count or at_work:
        while injected < count and len(at_work) < slots:
            if not (out / "grids" / f"{number}.json").exists():
                at_work[forked(partial(grid, out, number, seed))] = number
            number += 1
        pid, _ = os.waitpid(-1, 0)
        ended = at_work.pop(pid, None)
        if ended is not None and not (out / "grids" / f"{ended}.json").exists():
            raise click.ClickException(f"grid {ended} has no records; {out}/work/{ended}/output.txt may say why.")
        console.print(sentence(summary(out)), highlight=False, soft_wrap=True)


def carry_out_on_cluster(out: Path, count: int, seed: int, place: str, console: Console) -> None:
    """Start a cluster and carry out the missing grids, one after the other, until so many faults have
    happened."""
    shutil.rmtree(out / "nodes", ignore_errors=True)
    with cluster_faults.cluster(place, out / "nodes") as cluster:
        for number in itertools.count():
            if summary(out)["injected"] >= count:
                return
            if not (out / "grids" / f"{number}.json").exists():
                grid_on_cluster(out, number, seed, place, cluster)
                console.print(sentence(summary(out)), highlight=False, soft_wrap=True)


def grid_on_cluster(out: Path, number: int, seed: int, place: str, cluster: cluster_faults.Cluster) -> None:
    """Carry out one grid of a seed on a cluster and write its records. Its folder is kept only if there is a
    problem."""
    folder, expected = out / "work" / str(number), read_json(out / "reference.json")
    shutil.rmtree(folder, ignore_errors=True)
    write_grid(folder, spec_of(place))

    def check(last: dict[str, Any], done: bool) -> None:
        last |= dict.fromkeys(PROBLEMS, 0) | last
        last["corrupt"] += corrupt_checkpoints(folder / "out", {})
        last["unexplained"] += "Traceback" in (folder / "output.txt").read_text(errors="replace")
        if done and (differing := _differing(fingerprint(folder / "out"), expected)):
            last |= {"different": 1, "differing": differing}

    rng, begin = random.Random(derive(seed, place, number)), time.monotonic()
    records = cluster_faults.carry_out_grid(folder, rng, place, cluster, check)
    records = [dict.fromkeys(PROBLEMS, 0) | record for record in records]
    told = {"grid": number, "seconds": time.monotonic() - begin, "cpu_seconds": 0.0, "faults": records}
    write_json(out / "grids" / f"{number}.json", told)
    if not any(record[problem] for record in records for problem in PROBLEMS):
        shutil.rmtree(folder)


def _differing(digests: dict[str, str], expected: dict[str, str]) -> list[str]:
    return [name for name in expected if digests.get(name) != expected[name]]


def summary(out: Path) -> dict[str, Any]:
    """Return the numbers of faults and problems of all finished grids, in all and by kind."""
    grids = [read_json(path) for path in sorted((out / "grids").glob("*.json"), key=lambda path: int(path.stem))]
    faults = [fault | {"grid": told["grid"]} for told in grids for fault in told["faults"]]
    place = out.name.partition("-")[0]
    kinds: dict[str, Counter[str]] = {kind: Counter() for kind in cluster_faults.KINDS.get(place, KINDS)}
    for fault in faults:
        kinds[fault["kind"]].update({"injected": 1, **{problem: fault[problem] for problem in PROBLEMS}})
        kinds[fault["kind"]].update({"by hand": fault.get("by hand", 0)})
    totals = {name: sum(counts[name] for counts in kinds.values()) for name in ("injected", "by hand", *PROBLEMS)}
    moments = Counter(f"{fault['where']}: {fault['moment']}" for fault in faults)
    wrong = [fault for fault in faults if any(fault[problem] for problem in PROBLEMS)]
    spent = {name: sum(told[name] for told in grids) for name in ("seconds", "cpu_seconds")}
    return totals | spent | {"grids": len(grids), "kinds": kinds, "moments": moments, "wrong": wrong}


def sentence(told: dict[str, Any]) -> str:
    """Return the counts as one line."""
    problems = ", ".join(f"{told[problem]} {problem}" for problem in PROBLEMS)
    wall, cpu = (told[name] / max(told["injected"], 1) for name in ("seconds", "cpu_seconds"))
    counts = f"{told['injected']:,} faults in {told['grids']:,} grids: {problems}"
    return f"{counts}; {wall:.1f} s and {cpu:.1f} s of CPU a fault"


def table(told: dict[str, Any]) -> Table:
    """Return a table of the counts by kind."""
    columns = ("injected", *PROBLEMS, "by hand")
    made = Table("kind", *columns, box=None, header_style="bold", pad_edge=False)
    for kind, counts in told["kinds"].items():
        made.add_row(kind, *(f"{counts[name]:,}" for name in columns))
    made.add_row("all", *(f"{told[name]:,}" for name in columns), style="bold")
    return made
