"""From a table and a file of claims to verdicts, for the page and for the command line."""

import json

import numpy as np
import pandas as pd
import pytest

from ablations import results
from ablations.runs.records import Look, Looks
from ablations.spec import claims as claims_file
from reports import folder as experiment_folder
from reports.claims import judge
from reports.claims.entries import ClaimEntry
from reports.claims.judge import Judged, as_expected, claim_file_changes, claim_notices, finite, judge_claims
from reports.claims.outcomes import measured
from reports.claims.select import SeedTable
from reports.claims.words import counted, other_readings, other_verdicts, seeds_shown, wrong_at_most
from reports.page import content
from reports.page.entries import claim_entries
from reports.page.terminal import claims_table
from tests.support.claim_files import GOOD
from tests.support.claim_tables import frame, shipped
from tests.support.command_line import ablate, refusal_of
from tests.support.fake_experiment import ARMS, rows, write
from tests.support.judged import SEEDS, TEXT, by_name, claim_entry, judged, made


def test_each_claim_gets_its_verdict_from_the_table(tmp_path):
    entries = by_name(judge_claims(made(tmp_path)).entries)
    assert {name: entry.verdict for name, entry in entries.items()} == {
        "more": "supported",
        "less": "contradicted",
        "faster": "contradicted",
        "same": "equivalent",
        "other": "not run",
    }
    assert {name: entry.as_expected for name, entry in entries.items()} == {
        "more": True,
        "less": False,
        "faster": True,
        "same": True,
        "other": None,
    }
    assert entries["other"].rule == "the experiment has no arm n1; there are no results of parsing"


def test_the_effect_is_that_of_the_table(tmp_path):
    experiment = made(tmp_path)
    table = experiment.table
    steps = table[(table.measure == "layer_change") & (table.metric == "pwcca") & (table.layer >= 1)]
    steps = steps[steps.layer_to == steps.layer + 1]
    sums = steps.groupby(["arm", "seed"])["value"].sum()
    entry = by_name(judge_claims(experiment).entries)["more"]
    assert entry.effect == pytest.approx((sums["mlm"] - sums["clm"]).mean())
    assert entry.parts[0].values == pytest.approx((sums["mlm"] - sums["clm"]).tolist())
    assert entry.low < entry.effect < entry.high
    assert (entry.n, entry.smallest_effect) == (8, 0.01)
    assert entry.smallest_seen > 0
    assert entry.parts[0].p_sign_flips == 2 / 2**8


def test_claims_are_judged_again_after_the_final_norm_and_by_the_other_index(tmp_path):
    """Each entry has the numbers of a table with only these rows; claims that they do not change have none."""
    table = [row | {"group": None} for row in rows(seeds=SEEDS)]
    steps = [row for row in table if row["measure"] == "layer_change"]
    top = {arm: max(row["layer"] for row in steps if row["arm"] == arm) for arm in ARMS}
    at_top = [row for row in steps if row["layer"] == top[row["arm"]]]
    moved = [row | {"value": row["value"] * (0.1 if row["arm"] == "mlm" else 3)} for row in at_top]
    after = [row | {"group": "after final norm"} for row in moved]
    before = [row for row in table if row not in at_top]
    by_index = [
        row | {"metric": {"pwcca": "debiased_cka", "debiased_cka": "pwcca"}.get(row["metric"], row["metric"])}
        for row in table
    ]
    entries = by_name(judge_claims(made(tmp_path / "both", table_rows=[*table, *after])).entries)
    for name, only in (
        ("after the final norm", [*before, *moved]),
        ("by CKA", by_index),
    ):
        expected = by_name(judge_claims(made(tmp_path / name, table_rows=only)).entries)
        for claim in ("more", "less", "same"):
            reading = entries[claim].readings[name]
            assert finite(reading.parts) == finite(expected[claim].parts), (name, claim)  # no NaN
            assert (reading.verdict, reading.rule) == (expected[claim].verdict, expected[claim].rule)
            assert reading.effect != entries[claim].effect
    assert entries["faster"].readings == entries["other"].readings == {}  # nothing of them was measured otherwise
    assert other_verdicts(entries["more"]) == "contradicted after the final norm"
    assert [words.partition(",")[0] for words in other_readings(entries["more"])] == [
        "after the final norm contradicted",
        "by CKA supported",
    ]


def test_the_level_is_shared_within_the_family_alone(tmp_path):
    """Four claims of one family were tested, each at a fourth of 5%."""
    entries = by_name(judge_claims(made(tmp_path)).entries)
    levels = sorted(entry.level for entry in entries.values() if entry.family == "layers")
    assert levels == pytest.approx([0.05 / 4] * 4)
    assert entries["more"].confidence == 1 - entries["more"].level


def test_a_verdict_before_all_planned_seeds_have_ended_is_called_an_early_look(tmp_path):
    experiment = made(tmp_path)
    complete = by_name(judge_claims(experiment).entries)
    assert {name: entry.planned_seeds for name, entry in complete.items()} == {
        **dict.fromkeys(("more", "less", "faster", "same"), 8),
        "other": 0,  # the plan has no arm n1
    }
    ended = experiment._replace(table=experiment.table[experiment.table.seed < 5])
    entries = by_name(judge_claims(ended).entries)
    assert (entries["more"].n, seeds_shown(entries["more"])) == (5, "5 of 8")
    assert counted(entries.values()).endswith(
        "4 claims have fewer seeds than planned (n = 5 of 8): these verdicts are early looks, and the one with "
        "all seeds counts."
    )
    assert seeds_shown(complete["more"]) == "8"
    assert "early" not in counted(complete.values())
    measure, seed = experiment.table.measure, experiment.table.seed
    uneven = experiment.table[(seed < 7) & ((measure != "layer_change") | (seed < 5))]
    assert "4 claims have fewer seeds than planned (n = 5 of 8 or 7 of 8): these" in counted(
        judge_claims(experiment._replace(table=uneven)).entries
    )


def test_a_single_claim_is_counted_in_words_of_its_own(tmp_path):
    entries = by_name(judge_claims(made(tmp_path)).entries)
    sentences = {name: counted([entry]) for name, entry in entries.items()}
    assert sentences["more"] == "1 claim: supported. It came out as expected."
    assert sentences["less"] == "1 claim: contradicted. It came out otherwise."
    assert sentences["other"] == "1 claim: not run."


def test_a_seed_that_ended_and_is_left_out_makes_no_early_look(tmp_path):
    experiment = made(tmp_path)
    table = experiment.table
    lacking = experiment._replace(table=table[(table.seed < 7) | (table.arm != "mlm") | (table.layer != 3)])
    entries = by_name(judge_claims(lacking).entries)
    entry = entries["more"]
    assert (entry.n, entry.planned_seeds, entry.ended_seeds) == (7, 8, 8)
    assert entry.parts[0].left_out == ("seed 7: numbers of arm mlm are missing",)
    assert seeds_shown(entry) == "7"
    assert "early" not in counted(entries.values())
    for part, change in (("state", {"state": "failed"}), ("plan", {"not_measured": ["layer_change"]})):
        runs = [
            run._replace(**{part: getattr(run, part).model_copy(update=change)}) if run.plan.seed == 7 else run
            for run in lacking.runs
        ]
        assert seeds_shown(by_name(judge_claims(lacking._replace(runs=runs)).entries)["more"]) == "7 of 8"


def test_an_arm_of_which_nothing_is_measured_at_its_last_step_is_not_compared(tmp_path):
    experiment = made(tmp_path)
    table = experiment.table
    assert {run.plan.max_steps for run in experiment.runs if run.plan.arm == "clm"} == {500}
    earlier = table.assign(step=table.step.mask(table.arm == "clm", 250))
    entry = by_name(judge_claims(experiment._replace(table=earlier)).entries)["more"]
    assert (entry.verdict, entry.rule) == ("not run", "layer_change pwcca has no rows of arm clm")


def test_a_claim_that_is_not_run_names_arms_of_which_every_run_failed(tmp_path):
    experiment = made(tmp_path)

    def rule(failed_seeds):
        runs = [
            run._replace(state=run.state.model_copy(update={"state": "failed"}))
            if run.plan.arm == "clm" and run.plan.seed in failed_seeds
            else run
            for run in experiment.runs
        ]
        table = experiment.table[experiment.table.arm != "clm"]
        return by_name(judge_claims(experiment._replace(runs=runs, table=table)).entries)["more"].rule

    assert rule(range(8)) == "layer_change pwcca has no rows of arm clm; every run of clm failed"
    assert rule(range(7)) == "layer_change pwcca has no rows of arm clm"


def test_two_seeds_are_insufficient_and_one_is_shown_all_the_same(tmp_path):
    entries = by_name(judge_claims(made(tmp_path, seeds=(0, 1))).entries)
    assert entries["more"].verdict == "insufficient evidence"
    assert entries["more"].rule == "2 seeds, but at least 3 are needed"
    assert np.isfinite(entries["more"].effect)
    assert entries["more"].as_expected is None


def test_before_anything_is_measured_nothing_is_run(tmp_path):
    experiment = made(tmp_path, table_rows=[])
    assert {entry.verdict for entry in judge_claims(experiment).entries} == {"not run"}
    rule = by_name(judge_claims(experiment).entries)["more"].rule
    assert rule == "there are no results of layer_change yet"


def test_a_claim_that_changes_after_the_runs_is_marked(tmp_path):
    changed = TEXT.replace("smallest_effect: 5", "smallest_effect: 6").replace("name: other", "name: another")
    experiment = made(tmp_path, text=changed, planned=TEXT)
    assert {entry.name: entry.changed for entry in judge_claims(experiment).entries} == {
        "more": None,
        "less": None,
        "faster": None,
        "same": "changed",
        "another": "added",
    }
    (file,) = judge_claims(experiment).files
    assert file["changed"]
    assert claim_file_changes(file) == [
        f"The claims in {file['name']} changed after they were planned: changed same; added another; removed "
        "other."
    ]
    page = content.content(judge_claims(experiment), [])
    assert page["provenance"]["claim_files"] == [file]
    (notice,) = [notice for notice in page["notices"] if notice["kind"] == "claims"]
    assert notice == {
        "kind": "claims",
        "group": "wrong",
        "text": claim_file_changes(file)[0],
    }


def test_a_file_of_claims_that_the_spec_no_longer_names_is_marked(tmp_path):
    """The claims of its families that are left are judged less strictly."""
    experiment = made(tmp_path)
    plan = experiment.plan.model_copy(update={"claims": []})
    judged = judge_claims(experiment._replace(plan=plan))
    assert judged.entries == []
    assert [claim_file_changes(file) for file in judged.files] == [
        ["The claims in layers changed after they were planned: removed more, less, faster, same, other."]
    ]


def test_arms_and_measures_that_the_spec_loses_after_a_look_are_on_the_page(tmp_path):
    """What it means is known of claims that are there and need them, and of files that have not changed."""
    experiment = made(tmp_path)
    complete = judge_claims(experiment)
    looks = Looks(all_seeds=[0, 1], sizes=[1, 2], seeds_of={"mlm": 1, "gone": 1, "new": 1})

    def notices(*, arms, measures=(), files=complete.files):
        taken = [Look(seeds=1, arms=["mlm", *arms], measures=[*experiment.measures, *measures])] * bool(
            arms or measures
        )
        plan = experiment.plan.model_copy(update={"looks": looks.model_copy(update={"taken": taken})})
        return claim_notices(complete._replace(experiment=experiment._replace(plan=plan), files=files))

    removed, less = (
        "removed from the spec after a look at the claims",
        "of their families are judged less strictly",
    )
    assert notices(arms=[]) == notices(arms=["mlm"]) == []
    assert notices(arms=["gone"]) == [{"kind": "claims", "text": f"arms {removed}: gone; no claim needs them"}]
    assert [notice["text"] for notice in notices(arms=["gone", "n1"], measures=["parsing", "geometry"])] == [
        f"arms {removed}: gone, n1; claims that need n1 are no longer judged, so other claims {less}",
        f"measures {removed}: parsing, geometry; claims that need parsing are no longer judged, so other claims "
        f"{less}",
    ]
    for change in ({"removed_claims": ["it"]}, {"changed_claims": ["it"]}, {"sha256": None}):
        files = [file | change for file in complete.files]
        assert notices(arms=["gone"], files=files)[-1]["text"] == (
            f"arms {removed}: gone; claims that have changed or gone since may have needed them; if so, other "
            f"claims {less}"
        )


def test_arms_that_change_after_a_look_are_on_the_page(tmp_path):
    """Other code of a plugin changes the identity of runs, as other settings do."""
    experiment = made(tmp_path)
    first_runs = {run.arm: run.run_id for run in experiment.plan.runs if run.seed == SEEDS[0]}
    looks = Looks(all_seeds=list(SEEDS), sizes=[len(SEEDS)], seeds_of=dict.fromkeys(first_runs, len(SEEDS)))

    def notices(**changed):
        look = Look(seeds=len(SEEDS), arms=list(first_runs), first_runs=first_runs | changed)
        plan = experiment.plan.model_copy(update={"looks": looks.model_copy(update={"taken": [look]})})
        return claim_notices(Judged(experiment._replace(plan=plan), [], {}, {}, []))

    assert notices() == []
    assert notices(mlm="0123456789") == [
        {
            "kind": "claims",
            "text": "arms changed after a look at the claims: mlm; their claims were judged with other runs "
            "before, so wrong verdicts are more frequent than the page says",
        }
    ]


def test_a_claim_that_waits_for_its_first_look_names_the_run_that_failed(tmp_path):
    experiment = made(tmp_path)
    looks = Looks(all_seeds=list(SEEDS), sizes=[3, len(SEEDS)], seeds_of=dict.fromkeys(ARMS, 3))
    first, *others = experiment.runs
    failed = first._replace(state=first.state.model_copy(update={"state": "failed"}))
    plan = experiment.plan.model_copy(update={"looks": looks})
    entries = by_name(judge_claims(experiment._replace(plan=plan, runs=[failed, *others])).entries)
    assert entries["more"].rule == (
        "the first look at the claim is taken with 3 seeds of its arms; it waits for runs that failed: "
        f"{first.plan.arm}, seed {first.plan.seed}"
    )


def test_an_unchanged_file_is_not_marked_and_one_that_came_late_is(tmp_path):
    experiment = made(tmp_path)
    (file,) = judge_claims(experiment).files
    assert claim_file_changes(file) == []
    assert claim_file_changes(file | {"runs_before": 3}) == [
        f"The claims in {file['name']} were first planned after 3 runs had started, so they predict nothing "
        "about these."
    ]
    only_words = made(tmp_path / "words", text="# why\n" + TEXT, planned=TEXT)
    assert claim_file_changes(judge_claims(only_words).files[0]) == [
        f"The claims in {file['name']} changed after they were planned: in words only."
    ]


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        (
            "absent",
            "the file of claims is not in the experiment's folder; `ablate claims` on the spec puts it there, or, "
            "if these results are published ones, take it again from where they were published",
        ),
        ("../plan", "this is not the name of a file of claims"),
    ],
)
def test_a_file_that_is_not_there_is_an_entry_that_says_so(tmp_path, name, rule):
    folder = write(tmp_path, plan_changes={"claims": [name]})
    assert judge_claims(experiment_folder.read(folder)).entries == [
        ClaimEntry(file=name, name=name, verdict="not run", rule=rule)
    ]


def test_the_file_of_verdicts_is_strict_json_and_what_the_page_has(tmp_path):
    experiment = made(tmp_path)
    written = judge.write(judge_claims(experiment), experiment.folder)
    read = json.loads((experiment.folder / "claims.json").read_text(), parse_constant=lambda text: 1 / 0)
    assert read == written
    assert list(read) == ["format", "experiment", "alpha", "files", "claims"]
    on_the_page = content.content(judge_claims(experiment), [])["claims"]
    assert [entry["verdict"] for entry in read["claims"]] == [entry.verdict for entry in on_the_page]


def test_claims_are_loaded_and_judged_once_for_their_file_and_the_page(tmp_path, monkeypatch):
    experiment, loaded, load = made(tmp_path), [], claims_file.load
    monkeypatch.setattr(claims_file, "load", lambda path: loaded.append(path.name) or load(path))
    judged = judge_claims(experiment)
    assert len(loaded) == len(judged.files) == 1
    monkeypatch.setattr(judge, "judge", None)
    judge.write(judged, tmp_path)
    said = content.content(judged, [])
    assert [entry.name for entry in claim_entries(judged.claims, said)] == [e.name for e in judged.entries]
    assert len(loaded) == 1


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([("supported", True), ("not run", None)], True),
        ([("supported", True), ("undecided", False)], False),
        ([("undecided", None)], True),
        ([("not run", None), ("insufficient evidence", None)], False),
        ([], False),
    ],
)
def test_strict_asks_that_something_was_judged_and_nothing_came_out_otherwise(answers, expected):
    assert as_expected(claim_entry(verdict=verdict, as_expected=met) for verdict, met in answers) is expected


# The command ----------------------------------------------------------------------------------------


SPEC = """\
name: tried
version: 1
data: {kind: language}
objective: {kind: masked_lm}
arms: {mlm: {}, clm: {objective: {kind: causal_lm}}}
seeds: [0, 1, 2]
measures: [validation]
claims: [first]
"""


@pytest.fixture
def spec(tmp_path):
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "first.yaml").write_text(GOOD)
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


def test_claims_are_shown_with_reasons_before_any_run_and_strict_wants_more(spec, tmp_path):
    out = tmp_path / "out"
    result = ablate("claims", spec, "--out", out)
    assert result.exit_code == 0
    assert "6. both-sides-help: not run: there are no results of validation" in result.stdout
    assert ablate("claims", spec, "--out", out, "--strict").exit_code == 1
    as_json = ablate("claims", spec, "--out", out, "--json")
    assert json.loads(as_json.stdout) == json.loads((out / "tried" / "claims.json").read_text())


def test_the_plan_has_the_hash_of_the_claims(spec, tmp_path):
    ablate("claims", spec, "--out", tmp_path / "out")
    plan = json.loads((tmp_path / "out" / "tried" / "plan.json").read_text())
    (entry,) = plan["claim_files"]
    assert plan["claims"] == ["first"]
    assert entry["planned_sha256"] == claims_file.load(spec.parent / "claims" / "first.yaml").sha256
    assert entry["runs_before"] == 0


@pytest.mark.parametrize("command", ["validate", "plan", "run", "claims"])
def test_a_wrong_file_of_claims_stops_every_command_before_the_first_run(spec, tmp_path, command):
    path = spec.parent / "claims" / "first.yaml"
    path.write_text(GOOD.replace("expect: supported", "expect: maybe"))
    more = [] if command == "validate" else ["--out", tmp_path / "out"]
    result = ablate(command, spec, *more)
    assert result.exit_code == 2
    assert result.stderr.strip() == (
        f'{path}:10:13: claims.expect must be supported, contradicted, equivalent or open, but is "maybe"'
    )
    assert not (tmp_path / "out").exists()


def test_a_file_of_claims_is_validated_by_itself(spec):
    path = spec.parent / "claims" / "first.yaml"
    assert ablate("validate", path).stdout == f"{path}: good, 1 claim\n"
    path.write_text("version: 1\n")
    assert refusal_of("validate", path) == f"{path}:1:1: claims is missing (list of the claims of the file)\n"


def test_a_spec_without_claims_says_how_to_name_them(spec, tmp_path):
    spec.write_text(SPEC.replace("claims: [first]\n", ""))
    assert refusal_of("claims", spec, "--out", tmp_path / "out") == (
        f"{spec}: the spec names no claims; name a file of claims, as in `claims: [article]`, or write a "
        f"first one with `ablate claims {spec} --new`.\n"
    )


def test_what_stands_beside_a_claim_is_shown_where_it_is_measured_and_missed_by_nobody(tmp_path):
    more = "{kind: difference, of: {measure: %s, metric: %s}, arm: mlm, minus: clm}"
    trees = more % ("parsing", 'uuas, groups: ["*"]')
    beside = f"beside: {{loss: {more % ('validation', 'loss')}, trees: {trees}}}, smallest_effect"
    text = TEXT.replace("smallest_effect", beside, 1)
    entry = by_name(judge_claims(made(tmp_path, text=text)).entries)["more"]
    assert entry.verdict == "supported"
    assert [part.name for part in entry.beside] == ["loss"]


def open_part(wanted, **given):
    return {"verdict": "undecided", "in_each_seed": False, "smallest_seen": 0.2, "seeds_to_decide": wanted} | given


@pytest.mark.parametrize(
    ("verdict", "wanted", "parts", "shown"),
    [
        ("undecided", (12, 77), [open_part((9, 12)), open_part((12, 77))], "12 to 77"),
        ("undecided", (12, None), [open_part((12, None))], "12 to > 1,000"),
        ("undecided", (6, 6), [open_part((6, 6))], "6"),
        ("undecided", None, [open_part((9, 12)), open_part(None)], "> 1,000"),
        ("undecided", None, [open_part((9, 12)), open_part(None, smallest_seen=None)], ""),  # not known
        ("not testable here", None, [open_part((3, 9), condition=True, verdict="not testable here")], ""),
        ("contradicted", (9, 12), [open_part((9, 12)), open_part((3, 9), verdict="contradicted")], ""),
    ],
)
def test_the_table_says_which_seeds_would_decide_every_part(capsys, verdict, wanted, parts, shown):
    numbers = {"effect": 0.1, "low": 0.0, "high": 0.2, "n": 6, "smallest_seen": 0.2, "seeds_to_decide": wanted}
    claim = claim_entry(verdict=verdict, deciding="it", expect="open", parts=parts, **numbers)
    claims_table(judged(claim))
    table = capsys.readouterr().out
    (line,) = [line for line in table.splitlines() if line.split()[:1] == ["it"]]
    assert line.partition(" 0.2 ")[2].strip().removesuffix("open").strip() == shown
    assert ("in every part that is open" in " ".join(table.split())) == bool(shown)


def test_the_terminal_says_that_a_file_of_claims_came_late(capsys):
    """The name of a file may be a single letter."""
    file = {"name": "c", "runs_before": 9, "changed": False}
    claims_table(judged()._replace(files=[file]))
    assert capsys.readouterr().out.splitlines()[-1] == (
        "The claims in c were first planned after 9 runs had started, so they predict nothing about these."
    )


def test_a_claim_that_changes_makes_the_page_stale_even_after_the_runs(spec, tmp_path):
    """The page's digest is over plan.json, so the plan has today's hash beside that of the day of planning."""
    path = spec.parent / "claims" / "first.yaml"
    plan = tmp_path / "out" / "tried" / "plan.json"
    ablate("claims", spec, "--out", tmp_path / "out")
    before = json.loads(plan.read_text())
    run = tmp_path / "out" / "runs" / before["runs"][0]["folder"]
    run.mkdir(parents=True)
    (run / "state.json").write_text(json.dumps({"state": "running"}))
    path.write_text(GOOD.replace("smallest_effect: 0.1", "smallest_effect: 0.2"))
    ablate("claims", spec, "--out", tmp_path / "out")
    (entry,) = json.loads(plan.read_text())["claim_files"]
    assert entry["planned_sha256"] == before["claim_files"][0]["sha256"] != entry["sha256"]
    told = json.loads((plan.parent / "claims.json").read_text())
    assert told["claims"][0]["changed"] == "changed"


SCORES = "{measure: fine_tuning, metric: score, groups: [sst2, trec]}"
PROVIDED = """\
version: 1
claims:
  - name: better
    says: It is better.
    source: here
    needs: {arms: [mlm, clm], measures: [fine_tuning, layer_change]}
    provided:
      has-learned: {kind: difference, of: %s, arm: mlm, at_least: %s}
    effect: {kind: difference, of: {measure: layer_change, metric: pwcca, layers: sum}, arm: clm, minus: mlm}
    smallest_effect: 0.01
    expect: supported
    because: so
    family: one
"""


@pytest.mark.parametrize(("least", "verdict"), [(0.5, "contradicted"), (0.99, "not testable here")])
def test_a_claim_is_not_testable_where_what_it_is_provided_with_is_not_there(tmp_path, least, verdict):
    """And the groups that were read are said."""
    tasks = [
        {"run_id": f"{arm}-s{seed}", "arm": arm, "seed": seed, "step": 500, "measure": "fine_tuning"}
        | {"metric": "score", "group": task, "value": 0.9 + seed / 1000}
        for arm in ("mlm", "clm")
        for seed in SEEDS
        for task in ("sst2", "trec")
    ]
    experiment = made(tmp_path, text=PROVIDED % (SCORES, least))
    table = pd.concat([experiment.table, results.table(row | {"experiment": "x"} for row in tasks)])
    (entry,) = judge_claims(experiment._replace(table=table)).entries
    assert entry.verdict == verdict
    condition, part = entry.parts
    assert (condition.name, condition.condition, part.condition) == ("has-learned", True, False)
    assert condition.groups == ("sst2", "trec")
    assert condition.numbers == {
        "measured": pytest.approx(0.9 + np.mean(SEEDS) / 1000),
        "at_least": least,
        "groups_read": 2,
    }
    assert (part.groups, part.verdict) == ((), "contradicted")
    if verdict == "undecided":
        assert entry.deciding == "has-learned"
        assert entry.rule.startswith(
            "the claim cannot be judged, because the condition has-learned is not shown yet: the 95% interval "
        )
        assert entry.as_expected is False


def test_a_task_that_the_claim_names_and_nobody_measured_is_the_reason_for_not_run(tmp_path):
    sst2 = {"run_id": "mlm-s0", "arm": "mlm", "seed": 0, "step": 500, "measure": "fine_tuning", "metric": "score"}
    experiment = made(tmp_path, text=PROVIDED % (SCORES, 0.5))
    table = pd.concat(
        [experiment.table, results.table([sst2 | {"group": "sst2", "value": 1.0, "experiment": "x"}])]
    )
    (entry,) = judge_claims(experiment._replace(table=table)).entries
    assert (entry.verdict, entry.rule) == (
        "not run",
        "fine_tuning score has no rows of trec, which the claim names",
    )


def test_a_claim_that_cannot_be_judged_here_says_which_experiment_has_what_it_needs():
    claim = shipped()["8"]
    found = measured(claim, SeedTable(frame(claim, 3)), arms=("mlm",))
    assert found.missing[0] == "needs unmasking.yaml, because the experiment has no arm n1 or corpus"


def test_what_is_asked_for_and_not_there_yet_is_no_reason_to_go_elsewhere():
    claim = shipped()["8"]
    rows = SeedTable(frame(shipped()["26"], 3))
    found = measured(claim, rows, arms=claim.needs.arms, measures=("fine_tuning", "layer_change"))
    assert found.missing[0] == "there are no results of fine_tuning yet"


def test_the_page_says_about_how_often_any_of_its_verdicts_is_wrong(tmp_path):
    """A claim with several parts may err somewhat more often than its level says."""
    entries = judge_claims(made(tmp_path)).entries
    assert wrong_at_most(entries) == (
        "The chance that any verdict here is wrong is about 5% at most: 5% in each family of claims, if the "
        "number of seeds was fixed before the runs, and all of them have ended."
    )
    assert wrong_at_most([]) == ""
