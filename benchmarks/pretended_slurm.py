"""Commands of a simulated SLURM that trains nothing, for `scale.py`: for example `python pretended_slurm.py
sbatch ARGUMENTS`.

They share a folder ($PRETENDED_SLURM) with the process that simulates the nodes:

    arrays/12.json   an array as it was submitted: its name, its folder and its number of jobs
    queue.txt        first line: the numbers of all arrays that the nodes have seen; then lines of squeue
"""

import json
import os
import sys
from pathlib import Path

LARGEST_ARRAY = 1001
NODES = 64


def sbatch(folder: Path, arguments: list[str]) -> str:
    """Write down an array of jobs, and return its number."""
    options = dict(option.removeprefix("--").partition("=")[::2] for option in arguments if option[:2] == "--")
    count = int(options["array"].partition("%")[0].rpartition("-")[2]) + 1
    array = {"name": options["job-name"], "folder": options["chdir"], "jobs": count}
    number = 1 + max((int(path.stem) for path in (folder / "arrays").iterdir()), default=0)
    temporary = folder / f"{number}.json"
    temporary.write_text(json.dumps(array))
    temporary.rename(folder / "arrays" / temporary.name)
    return str(number)


def squeue(folder: Path, arguments: list[str]) -> str:
    """Return the queue. Arrays that no node has seen yet are waiting."""
    seen, _, lines = (folder / "queue.txt").read_text().partition("\n")
    for path in sorted((folder / "arrays").iterdir()):
        if path.stem not in seen.split():
            array = json.loads(path.read_text())
            lines += "".join(line(path.stem, i, "PENDING", "None", array["name"]) for i in range(array["jobs"]))
    return lines


def line(number: str, element: int, state: str, reason: str, name: str) -> str:
    """Return the line of a job in the format that the launcher asks `squeue` for."""
    return f"{number}_{element}|{element}|{state}|{reason}|{name}\n"


def scontrol(folder: Path, arguments: list[str]) -> str:
    """Return the configuration of SLURM."""
    return f"MaxArraySize            = {LARGEST_ARRAY}\n"


def sinfo(folder: Path, arguments: list[str]) -> str:
    """Return the default partition: its number of nodes, its limit, cores and memory of a node, and no GPUs."""
    return f"work* {NODES} infinite 8 16000 (null)\n"


def scancel(folder: Path, arguments: list[str]) -> str:
    """Remove the arrays of a name that no node has seen yet."""
    seen = (folder / "queue.txt").read_text().partition("\n")[0].split()
    for path in (folder / "arrays").iterdir():
        if path.stem not in seen and f"--name={json.loads(path.read_text())['name']}" in arguments:
            path.unlink()
    return ""


COMMANDS = {"sbatch": sbatch, "squeue": squeue, "scontrol": scontrol, "sinfo": sinfo, "scancel": scancel}

if __name__ == "__main__":
    sys.stdout.write(COMMANDS[sys.argv[1]](Path(os.environ["PRETENDED_SLURM"]), sys.argv[2:]))
