"""Two experiments side by side: claims, results and settings, as data and as `ablate diff` prints them."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from ablations import results
from ablations.cli import main
from ablations.spec import load as spec_load
from ablations.spec.changes import changed_settings
from reports.page.diff import compare, difference
from reports.page.terminal import _mean_and_interval, diff_tables
from tests.support import judged
from tests.support.fake_experiment import SPEC, write
from tests.support.judged import CHANGE, NEEDS, TEXT, made


def by_name(claims):
    return {claim["name"]: claim for claim in claims}


def ablate(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env={"COLUMNS": "80"})


@pytest.fixture
def before(tmp_path):
    """A folder with claims, eight seeds."""
    return made(tmp_path / "old").folder


@pytest.fixture
def after(before, tmp_path):
    """A copy of it, to be changed."""
    shutil.copytree(before.parent, tmp_path / "new")
    return tmp_path / "new" / before.name


def change_table(folder, change):
    path = folder / "results.parquet"
    results.write(change(results.read(path)).reset_index(drop=True), path)


def more_change_of_clm(table):
    """What clm changes becomes more than what mlm does, by another amount in every seed."""
    rows = (table["measure"] == "layer_change") & (table["arm"] == "clm")
    more = table["value"] + 0.5 + 0.001 * table["seed"].astype(float)
    return table.assign(value=table["value"].mask(rows, more))


def change_file(path, *replacements):
    text = path.read_text(encoding="utf-8")
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


# Differences over seeds ------------------------------------------------------------------------------

OLD = {0: 1.0, 1: 2.0, 2: 4.0, 3: 3.5}
NEW = {0: 1.4, 1: 2.6, 2: 4.3, 3: 4.1}


def test_the_same_seeds_are_paired_as_scipy_does_it():
    found = difference(OLD, dict(reversed(NEW.items())))
    expected = stats.ttest_rel(list(NEW.values()), list(OLD.values())).confidence_interval(0.95)
    assert found["paired"]
    assert (found["low"], found["high"]) == pytest.approx(tuple(expected))  # float64
    assert found["mean"] == pytest.approx(np.mean(list(NEW.values())) - np.mean(list(OLD.values())))


def test_other_seeds_are_compared_by_welch_as_scipy_does_it():
    new = {seed + 2: value for seed, value in NEW.items()} | {9: 7.0}
    found = difference(OLD, new)
    expected = stats.ttest_ind(list(new.values()), list(OLD.values()), equal_var=False).confidence_interval(0.95)
    assert not found["paired"]
    assert (found["low"], found["high"]) == pytest.approx(tuple(expected))  # float64


def test_pairing_finds_what_lies_within_seeds():
    """The counter-example: the same numbers under other seeds leave nothing to be seen."""
    renamed = {seed + 10: value for seed, value in NEW.items()}
    paired, apart = difference(OLD, NEW), difference(OLD, renamed)
    assert paired["low"] > 0 > apart["low"]
    assert paired["mean"] == pytest.approx(apart["mean"])


def test_turned_round_it_changes_its_sign():
    for new in (NEW, {**NEW, 7: 2.0}):
        there, back = difference(OLD, new), difference(new, OLD)
        assert (back["mean"], back["low"], back["high"]) == pytest.approx(
            (-there["mean"], -there["high"], -there["low"])
        )


@pytest.mark.parametrize(
    ("old", "new", "mean"),
    [
        ({0: 1.0}, {0: 3.0}, 2.0),
        ({0: 1.0}, {0: 3.0, 1: 5.0}, 3.0),
        (OLD, OLD, 0.0),
        (OLD, {seed: value + 0.5 for seed, value in OLD.items()}, 0.5),
        ({0: 1.0, 1: 1.0}, {2: 3.0, 3: 3.0}, 2.0),
    ],
    ids=["one seed", "one on a side", "the same", "a constant", "no spread"],
)
def test_without_a_spread_between_seeds_there_is_no_interval(old, new, mean):
    found = difference(old, new)
    assert found["mean"] == pytest.approx(mean)
    assert (found["low"], found["high"]) == (None, None)


def test_what_is_less_than_rounding_is_nothing():
    again = {seed: value * (1 + 1e-15 * (seed - 1)) for seed, value in OLD.items()}
    found = difference(OLD, again)
    assert (found["mean"], found["low"], found["high"]) == (0.0, None, None)
    more = {seed: value + 1e-6 * (1 + 0.01 * seed) for seed, value in OLD.items()}
    assert difference(OLD, more)["low"] > 0  # a small difference that is one


def test_small_numbers_are_written_with_exponents_and_not_as_zeros():
    part = {"effect": 2.1e-9, "low": 1.1e-9, "high": 3.14e-9, "unit": "nats"}
    assert _mean_and_interval(part) == ["2.10e−09", "[1.10e−09, 3.14e−09]"]
    assert _mean_and_interval(part | {"low": None, "high": None}) == ["2.10e−09"]
    assert _mean_and_interval({"effect": 0.5, "low": 0.5 - 1e-8, "high": 0.5 + 1e-8}) == ["0.5", "[0.5, 0.5]"]
    assert _mean_and_interval({"effect": 0.5, "low": 0.45, "high": 0.55}) == ["0.500", "[0.450, 0.550]"]


@pytest.mark.parametrize("new", [{}, {0: np.nan, 1: 2.0, 2: 4.0, 3: 3.5}, {0: np.inf, 8: 1.0}])
def test_without_numbers_there_is_no_difference(new):
    assert difference(OLD, new) is None
    assert difference(new, OLD) is None


# Claims and results ----------------------------------------------------------------------------------


def test_settings_are_compared_without_the_published_curves_which_a_folder_of_results_lacks(before, after):
    spec = (after / "spec.yaml").read_text(encoding="utf-8")
    (after / "spec.yaml").write_text(spec + "published: [voita-2019]\n", encoding="utf-8")
    (change,) = compare(before, after)["settings"]["changes"]
    assert change == {"path": "published", "arms": None, "before": [], "after": ["voita-2019"]}


def test_the_same_folder_twice_differs_in_nothing(before):
    found = compare(before, before)
    assert found["before"] == found["after"]
    assert found["same_runs"] == found["before"]["runs"] == 32
    assert found["settings"] == {"not_compared": None, "changes": []}
    for claim in found["claims"]:
        assert claim["before"] == claim["after"]
        assert claim["changed"] == []
    differences = [part["difference"] for claim in found["claims"] for part in claim["parts"]]
    differences += [row["difference"] for row in found["results"]]
    assert len(differences) == 4 + 2 * 4
    assert {(one["mean"], one["low"], one["high"]) for one in differences} == {(0.0, None, None)}


def test_a_changed_table_changes_verdicts_and_effects_by_what_the_tables_say(before, after):
    change_table(after, more_change_of_clm)
    found = by_name(compare(before, after)["claims"])
    verdicts = {name: (claim["before"]["verdict"], claim["after"]["verdict"]) for name, claim in found.items()}
    assert verdicts["more"] == ("supported", "contradicted")
    assert verdicts["less"] == ("contradicted", "supported")
    assert {name for name, claim in found.items() if claim["changed"] == ["verdict"]} == {"more", "less"}
    assert found["faster"]["parts"][0]["difference"]["mean"] == 0

    def by_seed(folder):
        table = results.read(folder / "results.parquet")
        steps = table[(table.measure == "layer_change") & (table.metric == "pwcca") & (table.layer >= 1)]
        sums = steps[steps.layer_to == steps.layer + 1].groupby(["arm", "seed"])["value"].sum()
        return sums["mlm"] - sums["clm"]

    (part,) = found["more"]["parts"]
    moved = by_seed(after) - by_seed(before)
    assert (part["before"]["effect"], part["after"]["effect"]) == pytest.approx(
        (by_seed(before).mean(), by_seed(after).mean())
    )
    assert part["difference"]["mean"] == pytest.approx(moved.mean())
    assert part["difference"]["low"] < moved.mean() < part["difference"]["high"] < 0
    assert (part["before"]["n"], part["after"]["n"]) == (8, 8)


def test_an_effect_is_told_from_one_whose_name_it_begins(tmp_path):
    effect = f"{{kind: difference, of: {CHANGE}, arm: mlm, minus: clm}}"
    effects = ", ".join(f"{name}: {effect}" for name in ("near", "near-top", "nearer"))
    text = TEXT + judged.claim("all", "{}", needs=NEEDS).replace("effect: {}", f"effects: {{{effects}}}")
    before = made(tmp_path / "old", text=text).folder
    shutil.copytree(before.parent, tmp_path / "new")
    after = tmp_path / "new" / before.name
    change_file(after / "claims" / "layers.yaml", ("{near: {kind:", "{near: {direction: either, kind:"))
    all_parts = by_name(compare(before, after)["claims"])["all"]["parts"]
    compared = {part["name"]: part["difference"] is not None for part in all_parts}
    assert compared == {"near": False, "near-top": True, "nearer": True}


def test_another_unit_or_smallest_effect_of_a_part_keeps_its_difference(before, after):
    change_file(
        after / "claims" / "layers.yaml",
        ("arm: mt, minus: clm", "arm: mt, minus: clm, smallest_effect: 3, unit: nats"),
    )
    (part,) = by_name(compare(before, after)["claims"])["faster"]["parts"]
    assert (part["difference"]["mean"], part["unit"]) == (0, "nats")


def test_shares_are_compared_with_the_spread_of_a_ratio(tmp_path):
    """The numbers that a claim's test reads suit its bound alone: their spread gave too narrow an interval."""
    share = (
        f"{{kind: share, of: {CHANGE}, kept_by: clm, whole: mlm, none: mt, smallest_gain: 0.01, at_least: 0.2}}"
    )
    needs = "{arms: [clm, mlm, mt], measures: [layer_change]}"
    text = "version: 1\nclaims:\n" + judged.claim("kept", share, needs=needs)
    sides = [made(tmp_path / side, text=text).folder for side in ("old", "new")]
    change_table(sides[1], more_change_of_clm)
    shares, pseudo_values = [], []
    for side in sides:
        table = results.read(side / "results.parquet")
        steps = (table["measure"] == "layer_change") & (table["metric"] == "pwcca") & table["group"].isna()
        last = table[steps & (table["step"] == table["step"].max()) & (table["layer"] > 0)]
        last = last[last["layer_to"] == last["layer"] + 1]
        sums = last.groupby(["arm", "seed"])["value"].sum().unstack(0)
        kept, gain = sums["clm"] - sums["mt"], sums["mlm"] - sums["mt"]
        shares.append(kept.mean() / gain.mean())
        without = [(kept.mean() * 8 - kept[seed]) / (gain.mean() * 8 - gain[seed]) for seed in range(8)]
        pseudo_values.append(8 * shares[-1] - 7 * np.array(without))
    (part, _) = by_name(compare(*sides)["claims"])["kept"]["parts"]
    found = part["difference"]
    assert found["mean"] == pytest.approx(shares[1] - shares[0])
    by_jackknife = stats.ttest_rel(*pseudo_values[::-1]).confidence_interval(0.95)
    half = (by_jackknife.high - by_jackknife.low) / 2
    assert (found["high"] - found["low"]) / 2 == pytest.approx(half, rel=0.1)  # both are right to order 1/n


def test_a_claim_that_is_written_otherwise_says_in_what(before, after):
    change_file(
        after / "claims" / "layers.yaml",
        ("smallest_effect: 5", "smallest_effect: 6"),
        ("arm: mt, minus: clm", "arm: clm, minus: mt"),
    )
    found = compare(before, after)
    claims = by_name(found["claims"])
    assert claims["same"]["changed"] == ["smallest_effect"]
    assert (claims["same"]["before"]["smallest_effect"], claims["same"]["after"]["smallest_effect"]) == (5, 6)
    assert claims["faster"]["changed"] == ["verdict", "effect"]
    assert claims["more"]["changed"] == []
    assert claims["same"]["parts"][0]["difference"]["mean"] == 0
    assert claims["faster"]["parts"][0]["difference"] is None, "two effects that are not the same have none"
    (file,) = found["files"]
    assert file["before"] != file["after"]


def test_a_claim_of_one_side_stands_alone(before, after):
    change_file(after / "claims" / "layers.yaml", ("name: less", "name: fewer"))
    found = by_name(compare(before, after)["claims"])
    assert list(found) == ["more", "less", "faster", "same", "other", "fewer"]
    assert found["less"]["after"] is None
    assert found["fewer"]["before"] is None
    (part,) = found["less"]["parts"]
    assert part["before"]["effect"] < 0
    assert (part["after"], part["difference"]) == (None, None)


def test_results_are_means_over_the_seeds_of_each_side(before, after):
    def change(table):
        lost = (table["arm"] == "mlm") & (table["seed"] == 7) & (table["measure"] == "validation")
        return table[(table["arm"] != "mt") & ~lost]

    change_table(after, change)
    rows = {(row["arm"], row["result"]): row for row in compare(before, after)["results"]}
    assert list(rows) == [(arm, name) for arm in ("mlm", "clm", "mt", "untrained") for name in ("loss", "gain")]
    table = results.read(before / "results.parquet")
    loss = table[(table.arm == "mlm") & (table.metric == "loss")].sort_values("seed")["value"].to_numpy()
    mlm = rows["mlm", "loss"]
    assert (mlm["before"]["n"], mlm["after"]["n"]) == (8, 7)
    assert mlm["after"]["mean"] == pytest.approx(loss[:7].mean())
    ends = stats.t.interval(0.95, 6, loc=loss[:7].mean(), scale=stats.sem(loss[:7]))
    assert (mlm["after"]["low"], mlm["after"]["high"]) == pytest.approx(ends)
    assert not mlm["difference"]["paired"]
    assert rows["mlm", "gain"]["difference"]["mean"] == pytest.approx(-mlm["difference"]["mean"])
    assert (rows["mt", "loss"]["after"], rows["mt", "loss"]["difference"]) == (None, None)


def test_negative_numbers_have_the_sign_that_other_tables_have(before, after, capsys):
    change_file(after / "claims" / "layers.yaml", ("name: less", "name: fewer"))
    change_table(after, lambda table: table.assign(value=table["value"].where(table["metric"] != "loss", 0.5)))
    diff_tables(compare(before, after))
    shown = capsys.readouterr().out
    assert re.search(r"(?<!\w)−\d", shown)
    assert not re.search(r"(?<![\w,-])-\d", shown)


# Settings --------------------------------------------------------------------------------------------


@pytest.fixture
def specs(tmp_path):
    """Loads the spec of the fake experiment and one with replacements."""

    def load(*replacements):
        path = tmp_path / "spec.yaml"
        path.write_text(SPEC)
        old = spec_load.load(path)
        change_file(path, *replacements)
        return old, spec_load.load(path)

    return load


def told(pair):
    return [tuple(change) for change in changed_settings(*pair)]


def test_a_setting_of_all_arms_is_one_change_and_of_some_names_them(specs):
    pair = specs(
        ("data: {kind: language}", "data: {kind: language}\ntraining: {learning_rate: 1e-4}"),
        ("mt:  {objective: {kind: translation}}", "mt:  {objective: {kind: translation}, encoder: {norm: pre}}"),
        ("seeds: [0, 1, 2]", "seeds: [0, 1]"),
    )
    assert told(pair) == [
        ("training.learning_rate", None, 0.0005, 0.0001),
        ("encoder.norm", ("mt",), "post", "pre"),
        ("encoder.embedding.norm", ("mt",), True, False),  # its default follows encoder.norm
        ("seeds", None, [0, 1, 2], [0, 1]),
    ]
    assert told(pair[::-1]) == [(path, arms, new, old) for path, arms, old, new in told(pair)]


def test_arms_and_measures_of_one_side_are_named(specs):
    pair = specs(
        ("  clm: {objective: {kind: causal_lm}}\n", ""),
        ("[layer_change, token_information, validation]", "[{kind: token_information, clusters: 20}, geometry]"),
    )
    assert told(pair) == [
        ("arms", None, ["mlm", "clm", "mt", "untrained"], ["mlm", "mt", "untrained"]),
        ("measures", None, ["layer_change", "token_information", "validation"], ["token_information", "geometry"]),
        ("measures.token_information.clusters", None, 1000, 20),
    ]


def test_a_default_that_is_written_out_is_no_change_and_another_kind_is_one(specs):
    pair = specs(
        ("data: {kind: language}", "data: {kind: language}\nencoder: {norm: post}"),
        ("clm: {objective: {kind: causal_lm}}", "clm: {objective: {kind: permutation_lm}}"),
    )
    assert told(pair) == [
        ("objective.kind", ("clm",), "causal_lm", "permutation_lm"),
        ("objective.sees", ("clm",), "left_only", "both_sides"),
    ]


# The command -----------------------------------------------------------------------------------------


def test_json_is_strict_and_what_is_compared(before, after):
    def change(table):
        lost = (table["arm"] == "clm") & (table["measure"] == "validation") & (table["seed"] == 0)
        return table.assign(value=table["value"].mask(lost, np.inf))

    change_table(after, change)
    result = ablate("diff", before, after, "--json")
    assert result.exit_code == 0
    read = json.loads(result.stdout, parse_constant=lambda text: 1 / 0)
    assert read == compare(before, after)
    assert list(read) == ["format", "before", "after", "same_runs", "files", "claims", "results", "settings"]
    row = next(row for row in read["results"] if row["arm"] == "clm")
    assert (row["after"]["mean"], row["after"]["n"], row["difference"]) == (None, 8, None)


def test_it_reads_at_80_columns_without_colours(before, after):
    change_table(after, more_change_of_clm)
    change_file(after / "claims" / "layers.yaml", ("smallest_effect: 5", "smallest_effect: 6"))
    change_file(after / "spec.yaml", ("seeds: [0, 1, 2]", "seeds: [0, 1, 2, 3]"))
    result = ablate("diff", before, after)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines if str(before.parent.parent) not in line) <= 80  # a path stays whole
    assert "\x1b" not in result.stdout
    said = " ".join(result.stdout.split())
    rows = [line.split() for line in lines]
    assert ["verdict", "supported", "contradicted", "another"] in rows
    assert ["smallest", "effect", "5", "6", "another"] in rows
    assert ["confidence", "98.33%", "98.33%", "another"] not in rows  # one family, and as many claims
    assert ["seeds", "[0,", "1,", "2]", "[0,", "1,", "2,", "3]"] in rows
    judged = by_name(compare(before, after)["claims"])["more"]
    for side in ("before", "after"):
        assert f"more, {side}: {judged[side]['verdict']}: {judged[side]['rule']}" in said
    assert "32 of 32 runs are the same on both sides." in said
    assert "Not run on both sides: other." in said
    assert "different text" not in said


def test_two_texts_are_told_apart(before, after):
    change_file(after / "plan.json", ("c0ffee", "decaf0"))
    said = " ".join(ablate("diff", before, after).stdout.split())
    assert "The two sides read different text, so these are losses on other tokens." in said


def test_nothing_is_written(before, after):
    def state(folder):
        return {path: path.lstat().st_mtime_ns for path in folder.parent.parent.parent.rglob("*")}

    earlier = state(before)
    assert ablate("diff", before, after).exit_code == 0
    assert ablate("diff", before, after, "--json").exit_code == 0
    assert state(before) == earlier


def test_neither_torch_nor_figures_are_loaded(before):
    code = (
        "import atexit, sys\n"
        "from ablations.cli import main\n"
        "atexit.register(lambda: print(sorted({'torch', 'matplotlib', 'jinja2'} & set(sys.modules))))\n"
        f"main(['diff', {str(before)!r}, {str(before)!r}], standalone_mode=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_spec_stands_for_its_folder(before, after, tmp_path):
    spec = tmp_path / "some.yaml"
    spec.write_text(SPEC)
    by_spec = ablate("diff", spec, after, "--out", before.parent, "--json")
    assert json.loads(by_spec.stdout) == compare(before, after)


MINE = "from ablations.catalogue import Card\nraise SystemError('must not be executed')\n"
TASK = "kind: classification\nmetric: accuracy\ntext: [sentence]\ndivided_by: sentence\nfiles: {test: a.csv}\n"


def test_the_task_of_a_folder_of_results_is_read_and_its_code_is_not_executed(before, after, tmp_path):
    with_task = "layer_change, {kind: frozen_features, tasks: [mine.yaml]}, "
    change_file(after / "spec.yaml", ("layer_change, ", with_task))
    (after / "mine.yaml").write_text(TASK)
    changes = compare(before, after)["settings"]["changes"]
    assert [change["path"] for change in changes] == ["measures"]
    spec = tmp_path / "some.yaml"
    spec.write_text(SPEC)
    for folder in (after, tmp_path):
        (folder / "evil.py").write_text(MINE)
    change_file(after / "spec.yaml", ("layer_change, ", "layer_change, 'evil.py:Norm', "))
    for other in (before, spec):  # the spec of the user does not name this file, though it lies beside it
        settings = compare(after, other, out=before.parent)["settings"]
        assert settings["not_compared"].endswith(
            "evil.py:Norm: a file that only a folder of results names is not read; if you trust it, name it with "
            "--plugin"
        )


def test_without_claims_on_either_side_one_sentence_says_so(tmp_path):
    folder = write(tmp_path)
    result = ablate("diff", folder, folder)
    assert result.exit_code == 0
    assert "Neither side has claims; a spec names them, as in `claims: [article]`.\n" in result.stdout
    assert "verdict" not in result.stdout


def test_without_losses_on_either_side_one_sentence_says_so(tmp_path):
    folder = write(tmp_path, table_rows=[])
    assert "\nNeither side has a validation loss.\n" in ablate("diff", folder, folder).stdout


def test_a_spec_that_cannot_be_read_leaves_the_rest(before, after):
    (after / "spec.yaml").write_text("name: [\n")
    result = ablate("diff", before, after)
    assert result.exit_code == 0
    assert f"Settings are not compared: {after / 'spec.yaml'}:2:1: a value is missing here\n" in result.stdout


def test_folders_of_analysed_models_have_no_settings_to_compare(tmp_path):
    folder = write(tmp_path)
    plan = json.loads((folder / "plan.json").read_text())
    for run in plan["runs"]:
        run["analysed"] = {}
    (folder / "plan.json").write_text(json.dumps(plan))
    assert (
        f"Settings are not compared: {folder} is of `ablate analyse`, which has no spec; to compare models, give "
        "their folders to one `ablate analyse`\n"
    ) in ablate("diff", folder, folder).stdout


def spoiled(folder, what):
    """The folder without a file, or with a damaged one; what is then said."""
    plan, table, claims = folder / "plan.json", folder / "results.parquet", folder / "claims" / "layers.yaml"
    match what:
        case "plan":
            plan.unlink()
            return (
                f"{folder} has no plan.json, so it is not a folder of results; name a folder that `ablate run` "
                "wrote, such as out/NAME, or a spec."
            )
        case "results":
            table.unlink()
            return f"{table} does not exist, so no run is measured yet; start `ablate run` with the spec."
        case "damaged plan":
            plan.write_text('{"experiment"')
            return (
                f"{plan} is not a complete JSON file (Expecting ':' delimiter: line 1 column 14 (char 13)); "
                "restore it, or delete it and start `ablate run` again, which dates the claims anew."
            )
        case "damaged results":
            table.write_bytes(b"PAR1")
            return None  # the reason is Arrow's
        case "claims":
            claims.unlink()
            return (
                f"{folder}: claims of layers: the file of claims is not in the experiment's folder; `ablate "
                "claims` on the spec puts it there, or, if these results are published ones, take it again from "
                "where they were published"
            )
        case "damaged claims":
            claims.write_text("version: 1\n")
            return f"{folder}: claims of layers: {claims}:1:1: claims is missing (list of the claims of the file)"


@pytest.mark.parametrize(
    "what", ["plan", "results", "damaged plan", "damaged results", "claims", "damaged claims"]
)
def test_what_is_missing_or_damaged_is_a_sentence(before, after, what):
    sentence = spoiled(after, what)
    for pair in ((before, after), (after, before)):
        result = ablate("diff", *pair)
        assert (result.exit_code, result.stdout) == (2, "")
        if sentence is None:
            assert result.stderr.startswith(f"{after / 'results.parquet'} is damaged (")
            assert result.stderr.count("\n") == 1
        else:
            assert result.stderr == sentence + "\n"


def test_what_is_not_there_is_a_sentence(before, tmp_path):
    result = ablate("diff", before, tmp_path / "none")
    assert (result.exit_code, result.stderr) == (
        2,
        f"{tmp_path / 'none'} does not exist; name a folder of results, such as out/NAME, or a spec, such as "
        "NAME.yaml.\n",
    )
    result = ablate("diff", before, tmp_path / "none.yaml")
    assert (result.exit_code, result.stderr) == (2, f"{tmp_path / 'none.yaml'}: this file does not exist\n")
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    result = ablate("diff", spec, before, "--out", tmp_path)
    assert (result.exit_code, result.stderr) == (
        2,
        f"{spec} has no results in {tmp_path / 'article-tiny'}; start `ablate run {spec}`, or name another output "
        "root with --out.\n",
    )


def test_texts_of_claims_are_no_markup(before, after):
    """A rule or a name with brackets is printed as it stands."""
    plan = json.loads((after / "plan.json").read_text())
    (after / "plan.json").write_text(json.dumps(plan | {"experiment": "[red]x[/]\x1b[31m"}))
    said = ablate("diff", before, after).stdout
    assert "[red]x[/]" in said
    assert "\x1b" not in said
