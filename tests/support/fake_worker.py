"""A worker that trains nothing: it answers as fake.json in the folder of each run says.

Its keys: `answers`, the codes of the first, the second, ... order (the last holds on); `message`; `signal`, which
ends the process instead of an answer, for the first `deaths` orders if that is given; `saves`, the step that each
order saves before; `exit`, its exit code instead of one; `until`, a file without which it does
not answer; `waits`, true where it answers with the code of an interrupted run once its orders close, as a worker
that is training does; `exit_at_end`, true where it ends then without an answer.
Each order is kept in orders.jsonl with the process that got it.
"""

import json
import os
import sys
import time
from pathlib import Path

INTERRUPTED = 75
FAKE = (sys.executable, "-S", __file__)
"""A command in the place of `launch.WORKER`: it starts in milliseconds, as it imports nothing large."""


def fake_run(folder, **plan):
    """Make the folder of a run with what its worker is to answer."""
    folder.mkdir()
    (folder / "fake.json").write_text(json.dumps({"answers": [0], "message": None} | plan))
    return folder


def orders_of(folder):
    """Return the orders that workers got for a run, each with the process and its environment."""
    path = folder / "orders.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main():
    for line in sys.stdin:
        order = json.loads(line)
        folder = Path(order["run_dir"])
        plan = json.loads((folder / "fake.json").read_text())
        got = {"order": order, "pid": os.getpid(), "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")}
        with (folder / "orders.jsonl").open("a") as orders:
            orders.write(json.dumps(got) + "\n")
        count = len(orders_of(folder))
        if "saves" in plan:
            step = plan["saves"][min(count, len(plan["saves"])) - 1]
            (folder / "state.json").write_text(json.dumps({"state": "running", "saved_step": step}))
        if "signal" in plan and count <= plan.get("deaths", count):
            os.kill(os.getpid(), plan["signal"])
        if "exit" in plan:
            os._exit(plan["exit"])
        while "until" in plan and not Path(plan["until"]).exists():
            time.sleep(0.01)
        code = plan["answers"][min(len(orders_of(folder)), len(plan["answers"])) - 1]
        if plan.get("waits"):
            sys.stdin.read()
            code = INTERRUPTED
            if plan.get("exit_at_end"):
                os._exit(1)
        answer = {"code": code, "message": plan["message"], "seconds": 1.5, "in_one_go": False}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
