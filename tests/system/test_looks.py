"""Seeds until claims are decided, with real trainings."""

import json

from tests.support.command_line import called
from tests.support.spec_files import write_spec

LOSS = {"measure": "validation", "metric": "loss"}


def claim(name, arm, minus, *, smallest, direction):
    return {
        "name": name,
        "says": "It is so.",
        "source": "here",
        "needs": {"arms": [arm, minus], "measures": ["validation"]},
        "effect": {"kind": "difference", "of": LOSS, "arm": arm, "minus": minus, "direction": direction},
        "smallest_effect": smallest,
        "expect": "open",
        "because": "so",
        "family": name,
    }


def runs(folder):
    return [path.name.split("-") for path in (folder / "out/runs").iterdir()]


def seeds_by_arm(folder):
    seeds = {}
    for arm, seed, _ in runs(folder):
        seeds.setdefault(arm, []).append(int(seed[1:]))
    return {arm: sorted(numbers) for arm, numbers in seeds.items()}


def test_the_arms_of_an_open_claim_get_seeds_and_the_others_none(tmp_path, data_root, undrawn):
    """Losses differ by less than 100 nats, which three seeds tell, and by more than 1e-9, which four do not."""
    (tmp_path / "claims").mkdir()
    claims = [
        claim("plain", "mlm", "mt", smallest=100, direction="either"),
        claim("never", "mlm", "other", smallest=1e-9, direction="higher"),
    ]
    (tmp_path / "claims/some.yaml").write_text(json.dumps({"version": 1, "claims": claims}))
    masked = {"kind": "masked_lm"}
    arms = {
        "mlm": {"objective": masked},
        "other": {"objective": masked, "training": {"learning_rate": 1.01e-4}},
        "mt": {"objective": {"kind": "translation"}},
    }
    training = {"max_steps": 1, "tokens_per_step": 64, "learning_rate": 1e-4}
    seeds = {"first": 3, "up_to": 4, "until": "decided"}
    write_spec(tmp_path, arms=arms, training=training, seeds=seeds, claims=["some"])

    refused = called("run", tmp_path, data_root, "--seed", "3", "--dry-run")
    assert "--seed 3" in refused.stderr
    done = called("run", tmp_path, data_root, "--slots", "2")
    assert done.exit_code == 0, done.output
    assert "look with 3 seeds at 2 claims: 1 equivalent and 1 undecided; next with 4 seeds: never." in done.stdout
    assert "look with 4 seeds at 1 claim: 1 undecided." in done.stdout
    assert seeds_by_arm(tmp_path) == {"mlm": [0, 1, 2, 3], "other": [0, 1, 2, 3], "mt": [0, 1, 2]}

    results = json.loads((tmp_path / "out/tried/claims.json").read_text())["claims"]
    looks = {entry["name"]: entry["look"] for entry in results}
    facts = {"of": 2, "up_to": 4, "given_up": None}
    assert looks["plain"] == facts | {"number": 1, "seeds": 3, "end": "decided", "level": looks["plain"]["level"]}
    assert looks["never"] == facts | {
        "number": 2,
        "seeds": 4,
        "end": "out of seeds",
        "level": looks["never"]["level"],
    }
    page = (tmp_path / "out/tried/report.html").read_text()
    assert "look 1 of 2, with 3 of up to 4 seeds: decided" in page
    assert "look 2 of 2, with 4 of up to 4 seeds: no seeds are left" in page

    looks = json.loads((tmp_path / "out/tried/looks.json").read_text())["taken"]
    first_runs = {arm: run for arm, seed, run in runs(tmp_path) if seed == "s0"}
    assert looks[0]["first_runs"] == first_runs
    assert looks[1]["first_runs"] == {arm: first_runs[arm] for arm in ("mlm", "other")}
    (tmp_path / "out/tried/looks.json").unlink()
    anew = called("run", tmp_path, data_root)
    assert "next with 4 seeds: never." in anew.stdout
    after = json.loads((tmp_path / "out/tried/claims.json").read_text())["claims"]
    assert [entry["look"] for entry in after] == [entry["look"] for entry in results]
