"""What the page, its Markdown and its plots say of claims."""

import base64
import html
import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from matplotlib.figure import Figure
from scipy import stats

from reports.claims import words as claim_words
from reports.claims.judge import judge_claims
from reports.folder import Plan, ReportedExperiment
from reports.page import page
from reports.page.entries import claim_entries, draw_claim, effects
from tests.support.claim_page import SEEDS, TEXT, VERDICTS, made
from tests.support.claim_tables import CLAIMS, frame, literature, shipped, shipped_file, shipped_spec, whole_number
from tests.support.html_page import HOSTILE, Page, strict_json
from tests.support.judged import claim_entry, part_entry

SPECS_WITH_CLAIMS = [path for path in sorted(CLAIMS.parent.glob("*.yaml")) if "\nclaims: " in path.read_text()]
KEYS = ["run_id", "measure", "metric", "group", "layer", "layer_to", "step"]
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("claims"))
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps(plan | {"warnings": ["The text is short."]}))
    page.write(folder)
    return folder


@pytest.fixture(scope="module")
def said(folder):
    return {claim["name"]: claim for claim in strict_json(folder / "report.json")["claims"]}


def article(folder, name):
    """The text of a claim's article, tags dropped."""
    source = (folder / "report.html").read_text(encoding="utf-8")
    opened = rf'<article class="claim" aria-labelledby="claim-{name}">'
    (found,) = re.findall(rf"{opened}(.*?)</article>", source, re.S)
    return " ".join(re.sub("<[^>]*>", " ", found).split())


# The page --------------------------------------------------------------------------------------------


def test_claims_come_first_and_each_has_its_heading(shown):
    headings = [data.strip() for tag, data in shown.texts if tag in ("h2", "h3") and data.strip()]
    assert headings[0] == "What came out"
    assert headings[1].startswith("Figure 1. ")
    details = headings.index("Claims in detail")
    assert (
        headings.index("What was run") < headings.index("Missing or wrong") < headings.index("Contents") < details
    )
    assert headings[details + 1 : details + 9] == [
        *("How to read this", "It changes more.", "It changes less.", "It is the same.", "It starts with more."),
        *("It is rarely known.", "It falls and rises.", "Not run"),
    ]


def test_one_sentence_counts_the_verdicts(shown):
    assert (
        "What came out Of 7 claims, 2 supported, 1 contradicted, 1 equivalent, 1 undecided, 1 insufficient "
        "evidence and 1 not run. A verdict was predicted for 5 of the judged claims: 3 came out as expected, 1 "
        "came out otherwise and 1 stayed undecided."
    ) in shown.text


def test_the_table_has_the_verdict_and_the_interval_over_seeds(shown, folder):
    header, body = shown.table("The effect is the mean over seeds, with its interval, of the part that decides.")
    assert header == ["Claim", "Verdict", "Effect here [interval]", "Published"]
    assert [(row[0], row[1]) for row in body] == [
        ("1. It changes more.", "supported"),
        ("2. It changes less.", "contradicted"),
        ("3. It is the same.", "equivalent"),
        ("6. It falls and rises.", "supported"),
        ("4. It starts with more.", "undecided"),  # what is decided stands first
        ("5. It is rarely known.", "insufficient evidence"),
    ]
    table = pd.read_parquet(folder / "results.parquet")
    steps = table[(table.measure == "layer_change") & (table.metric == "pwcca") & (table.layer >= 1)]
    sums = steps[steps.layer_to == steps.layer + 1].groupby(["arm", "seed"])["value"].sum()
    found = (sums["mlm"] - sums["clm"]).to_numpy()
    low, high = stats.t.interval(0.95, 6, found.mean(), stats.sem(found))
    effect, published_number = body[0][2:]
    assert effect.startswith(f"{found.mean():.4f} [{low:.4f}, {high:.4f}] distance")
    assert effect.endswith("n = 7, smallest that matters 0.01")
    assert published_number.endswith("expected: supported (met)")
    assert body[1][2].startswith(f"{MINUS}{found.mean():.4f} [{MINUS}{high:.4f}, ")
    assert [row[3].partition("expected: ")[2] for row in body[1:]] == [
        *("supported (not met)", "equivalent (met)", "supported (met)", "supported (not decided)", "open")
    ]


def test_a_verdict_is_a_word_with_a_shape_of_its_own(shown):
    drawn = re.findall(r'<span class="verdict ([a-z-]+)"><svg[^>]*>(.*?)</svg>', shown.source)
    shapes = {name: {shape for other, shape in drawn if other == name} for name, _ in drawn}
    assert set(shapes) == {
        *("supported", "contradicted", "equivalent", "undecided", "insufficient-evidence", "not-run")
    }
    assert all(len(own) == 1 for own in shapes.values())
    assert len({shape for own in shapes.values() for shape in own}) == len(shapes) - 1
    assert shapes["not-run"] == shapes["insufficient-evidence"]  # neither says anything


def test_every_reference_has_its_target_and_nothing_has_a_style_of_its_own(shown):
    assert {f"claim-{name}" for name in VERDICTS if name != "half"} <= set(shown.names)


def test_a_claim_stands_beside_what_was_published(folder):
    text = article(folder, "more")
    for fact in (
        "Claim 1 It changes more. supported : the 95% interval lies above 0",
        "Published 0.406 against 0.356 Here, n = 7 0.05",
        "Expected supported (met) : so it is there",
        "Source a paper, table 2",
        "Judged at level 0.05, in the family family-1",
        "Shown in Figure 1. Change between consecutive layers",
    ):
        assert fact in text
    both = "Shown in Figure 2. Information about the input token ; Figure 1. Change between consecutive layers"
    assert both in article(folder, "parts")
    assert "Shown in Arms" in article(folder, "few")


def test_the_parts_stand_in_a_table_with_their_tests(shown, said):
    header, body = shown.table("The parts, all of which must hold")
    assert header[:3] == ["Part", "Verdict", "Effect [interval]"]
    names = [row[0].removesuffix(" decides") for row in body]
    assert names == ["differs condition", "falls", "rises", "changes"]
    assert "Interval" not in header  # which are all of one level, so that the caption says it
    caption = (
        "The parts, all of which must hold; the claim is judged only if its conditions hold. Intervals of 95%."
    )
    assert caption in [table["caption"] for table in shown.tables]
    assert [row[header.index("Layer judged at")] for row in body] == ["\N{EN DASH}", "4", "4", "\N{EN DASH}"]
    assert {row[header.index("p (sign flips)")] for row in body} == {"0.016"}  # 2 of 2^7 patterns
    for name in ("supported_above", "contradicted_below"):
        written = [row[header.index(name.replace("_", " ").capitalize())] for row in body]
        assert written == [claim_words.significant(part[name], 2) for part in said["parts"]["parts"]]
    tables = [
        table["rows"] for table in shown.tables if table["caption"].startswith(("The effect.", "The effect;"))
    ]
    assert [" ".join(cell.split()) for cell in tables[0][2]][:2] == ["than-mt beside", "supported"]


def test_each_cell_of_a_part_says_its_head_where_rows_are_blocks(shown):
    """As on a phone, where the heads are out of sight; the roles keep the table a table to screen readers."""
    (source,) = re.findall(
        r'<table class="parts"(?:(?!</table>).)*The parts, all of which.*?</table>', shown.source, re.S
    )
    heads = re.findall(r'<th scope="col" role="columnheader"[^>]*>(.*?)</th>', source)
    heads = [re.sub(r" <span[^>]*>(.*?)</span>", r" \1", head) for head in heads]
    said = re.findall(r'<td[^>]*role="cell" data-head="([^"]+)"', source)
    rows = source.count('<th scope="row" role="rowheader">')
    assert rows == source.count('<tr role="row"') - 1 == 4
    assert len(said) == source.count("<td") == rows * (len(heads) - 1)
    for own in (said[i : i + len(heads) - 1] for i in range(0, len(said), len(heads) - 1)):
        told = [re.sub(r"^p, (.*)$", r"p (\1)", name) for name in own]
        assert told == [head.removesuffix(" [interval]") for head in heads[1:]]
    assert source.startswith('<table class="parts" role="table">')
    assert source.count('role="rowgroup"') == 2


def test_what_is_not_run_has_its_reason_and_what_there_is_of_it(shown, said):
    there = said["half"]["parts"][0]
    assert there["name"] == "there"
    assert (
        "Not run 7. It is measured in part. not run: there are no results of parsing. Published: 0.406 against "
        "0.356. Expected: supported. Source: a paper, table 2. Measured so far: there "
        f"{there['effect']:.4f} ["
    ) in shown.text
    assert "gone: not run: the file of claims is not in the experiment's folder;" in shown.text


def test_a_claim_that_was_changed_after_it_was_planned_says_so(tmp_path):
    folder = made(tmp_path, planned=TEXT.replace("smallest_effect: 5", "smallest_effect: 4"))
    shown = Page(page.write(folder))
    sentence = "This claim was changed after the experiment was first planned, so it is no prediction."
    assert shown.text.count(sentence) == 1
    assert sentence in article(folder, "same")
    assert "planned 2026-11-20 09:00 UTC changed since" in shown.text
    assert "Changed after the experiment was first planned" in (folder / "report.md").read_text(encoding="utf-8")


# Plots and their data --------------------------------------------------------------------------------


def test_every_plot_has_a_text_that_says_its_numbers(shown, said):
    described = [alternative for alternative, _ in shown.images]
    own = ["{label}. {description}".format_map(claim["plot"]) for claim in said.values() if claim["plot"]]
    assert [one for one in described if one in own] == own
    opening = "Mean effect over seeds with its interval, compared with 0 and the smallest effect that matters."
    assert own[0].startswith(f"Effect of claim 1. {opening} more: supported, 0.05")
    assert " than-mt (beside): supported, 0.1" in own[0]


def test_the_data_of_a_plot_are_the_values_of_the_seeds(shown, folder, said):
    frame = pd.read_csv(folder / said["parts"]["plot"]["csv"])
    assert frame["part"].unique().tolist() == ["differs", "falls", "rises", "changes"]
    assert frame[frame["part"] == "falls"]["layer"].tolist() == [4] * 7
    for part in said["parts"]["parts"]:
        own = frame[frame["part"] == part["name"]]
        assert own["seed"].tolist() == list(SEEDS)
        assert own["value"].tolist() == pytest.approx(part["values"])
        assert own["effect"].tolist() == pytest.approx([own["value"].mean()] * 7)
    beside = pd.read_csv(folder / said["more"]["plot"]["csv"]).groupby("part")["decides"].first()
    assert beside.to_dict() == {"more": "yes", "than-mt": "no"}
    links = {a["download"]: a["href"] for tag, a in shown.tags if tag == "a" and "download" in a}
    inside = base64.b64decode(links["claim-more.csv"].partition("base64,")[2])
    assert inside == (folder / "figures/claim-more.csv").read_bytes()


def part(values, *, smallest=0.1, low=None, high=None, verdict="supported", name="it"):
    values = np.array(values, float)
    return part_entry(
        name=name, unit="nats", verdict=verdict, effect=values.mean(), smallest_effect=smallest,
        low=values.min() if low is None else low, high=values.max() if high is None else high,
        values=tuple(values), seeds=tuple(range(len(values))),
    )  # fmt: skip


def artists(ax, gid):
    return [artist for artist in ax.get_children() if artist.get_gid() == gid]


def drawn(parts):
    return effects(parts, ax=Figure().subplots(), unit="nats")


def test_a_row_shows_mean_interval_seeds_and_what_matters():
    ax = drawn([part([1, 2, 3], low=0.5, high=3.5), part([-1, 0, 4], verdict="undecided", smallest=0.2)])
    assert [line.get_xdata()[0] for line in artists(ax, "mean")] == [2, 1]
    assert [tuple(line.get_xdata()) for line in artists(ax, "interval")] == [(0.5, 3.5), (-1, 4)]
    assert [sorted(line.get_xdata()) for line in artists(ax, "seed")] == [[1, 2, 3], [-1, 0, 4]]
    spans = [patch.get_datalim(ax.transData).intervalx for patch in artists(ax, "margin")]
    assert [tuple(span) for span in spans] == [pytest.approx((-0.1, 0.1)), pytest.approx((-0.2, 0.2))]
    assert [line.get_markerfacecolor() for line in artists(ax, "mean")] == ["#0072B2", "white"]
    assert not artists(ax, "cut")


def test_an_interval_that_dwarfs_the_seeds_is_cut_with_an_arrow():
    ax = drawn([part([1, 2], low=-300, high=0.5)])
    low, high = ax.get_xlim()
    assert low > -10
    assert [line.get_xdata()[0] for line in artists(ax, "cut")] == [low]
    assert low < 0 < 2 < high


def test_a_number_that_is_not_finite_is_left_out_of_the_plot():
    nan = float("nan")
    ax = drawn([replace(part([1, 2, nan], low=nan, high=nan), effect=nan)])
    assert [sorted(line.get_xdata()) for line in artists(ax, "seed")] == [[1, 2]]
    assert not artists(ax, "mean")
    assert not artists(ax, "interval")


def test_the_name_of_a_part_takes_one_line_however_long_it_is():
    for letters in range(40, 60):
        ax = drawn([part([1, 2, 3], name="ab-" * (letters // 3))])
        (label,) = (text.get_text() for text in ax.texts)
        assert "\n" not in label


def test_a_claim_leads_to_the_figure_of_the_setting_that_its_arms_differ_in(tmp_path):
    drawn = panel("token_information", kind="settings") | {"metric": "cross_fitted"}
    split = {"title": "Scores by corruption split", "kind": "settings", "panels": [drawn]}
    split |= {"name": "by_split", "arms": ["mlm", "100-0-0", "80-20-0"]}
    other = split | {"name": "other", "arms": ["mlm", "mlm-itself"]}
    plug_in = split | {"name": "another metric", "panels": [drawn | {"metric": "plug_in"}]}
    experiment = alone(shipped()["14"], tmp_path, seeds=3)
    figures = [other, split, plug_in]
    judged = judge_claims(experiment)
    said = {"claims": judged.entries, "figures": figures, "tasks": [], "corruptions": []}
    (entry,) = claim_entries(judged.claims, said)
    assert {"id": "by_split", "title": "Figure 2. Scores by corruption split"} in entry.shown_in
    assert not {"other", "another metric"} & {place["id"] for place in entry.shown_in}


def test_claims_stand_in_the_order_of_their_numbers(folder):
    numbers = [claim["number"] for claim in strict_json(folder / "report.json")["claims"]]
    assert numbers == [*range(1, 8), None]  # the last is a file that is gone


# What it links to, and every claim we ship -----------------------------------------------------------


def panel(measure, *, axis=None, kind="arms"):
    return {"measure": measure, "axis": axis, "kind": kind}


def test_a_claim_leads_to_the_figures_and_tables_of_what_it_reads(tmp_path):
    """Along the course of training where it compares that; else not to a figure over steps or examples."""
    figures = [
        {"name": "learning", "title": "Learning", "panels": [panel("learning")]},
        {"name": "maps", "title": "Maps", "panels": [panel("fine_tuning", kind="maps")]},
        {"name": "examples", "title": "Examples", "panels": [panel("fine_tuning", axis="examples")]},
        {"name": "over_training", "title": "Over training", "panels": [panel("fine_tuning", axis="step")]},
    ]
    tasks = [{"name": "table-fine_tuning", "title": "Fine-tuning", "measure": "fine_tuning"}]

    def places(number):
        experiment = alone(shipped()[number], tmp_path / number, seeds=3)
        judged = judge_claims(experiment)
        (entry,) = claim_entries(
            judged.claims, {"claims": judged.entries, "figures": figures, "tasks": tasks, "corruptions": []}
        )
        return [(place["id"], place["title"]) for place in entry.shown_in]

    table = ("table-fine_tuning", "Table 1. Fine-tuning")
    assert places("7") == [("over_training", "Figure 4. Over training"), table, ("learning", "Figure 1. Learning")]
    assert places("6") == [table]
    assert places("24") == [("arm-table", "Arms")]


def alone(claim, folder, *, seeds):
    """An experiment about nothing but this claim, with the numbers that the literature predicts."""
    (folder / "claims").mkdir(parents=True)
    (folder / "plan.json").touch()
    told = {"version": 1, "claims": [claim.model_dump(mode="json", exclude_none=True, exclude_defaults=True)]}
    (folder / "claims" / "it.yaml").write_text(json.dumps(told), encoding="utf-8")
    return ReportedExperiment(
        plan=Plan(experiment="it", arms=list(claim.needs.arms), runs=[], claims=["it"]),
        spec="",
        runs=[],
        table=literature(frame(claim, seeds), rng=np.random.default_rng(5)),
        foreign_rows=0,
        folder=folder,
    )


@pytest.mark.parametrize("number", shipped())
def test_a_claim_we_ship_of_which_a_measure_is_missing_is_shown_as_not_run(number, tmp_path):
    """As in an experiment that measures less; a condition on BLEU may be all that there is."""
    whole = alone(shipped()[number], tmp_path, seeds=3)
    for measure in whole.table["measure"].unique():
        lacking = whole._replace(table=whole.table[whole.table["measure"] != measure])
        for experiment in (lacking, lacking._replace(measures=tuple(lacking.table["measure"].unique()))):
            judged = judge_claims(experiment)
            entries = judged.entries
            claim_entries(judged.claims, {"claims": entries, "figures": [], "tasks": [], "corruptions": []})
            if measure in shipped()[number].needs.measures:
                assert [entry.verdict for entry in entries] == ["not run"]


@pytest.mark.parametrize("path", SPECS_WITH_CLAIMS, ids=lambda path: path.stem)
def test_every_spec_we_ship_has_all_its_claims_on_its_page(path, tmp_path):
    """Judged or not run: with the arms and kinds of measures that it has, and no others."""
    spec, arms = shipped_spec(path.name)
    kinds = ("validation", "learning", *(settings.kind for settings in spec.measures))
    shutil.copytree(CLAIMS, tmp_path / "claims")
    (tmp_path / "plan.json").touch()
    claims = [claim for name in spec.claims for claim in shipped_file(name)]
    told = [literature(frame(claim, 3), rng=np.random.default_rng(5)) for claim in claims]
    table = pd.concat(told).drop_duplicates([*KEYS, "other_run_id"], ignore_index=True)
    table = table[table["arm"].isin(arms) & table["measure"].isin(kinds)]
    plan = Plan(experiment="it", arms=arms, runs=[], claims=list(spec.claims))
    experiment = ReportedExperiment(
        plan=plan, spec="", runs=[], table=table, foreign_rows=0, folder=tmp_path, measures=kinds
    )
    judged = judge_claims(experiment)
    entries = judged.entries
    claim_entries(judged.claims, {"claims": entries, "figures": [], "tasks": [], "corruptions": []})
    assert [entry.number for entry in entries] == [
        claim.number for claim in sorted(claims, key=lambda one: (whole_number(one.number), str(one.number)))
    ]
    assert any(entry.verdict != "not run" for entry in entries)


@pytest.mark.parametrize("number", shipped())
def test_every_claim_we_ship_can_be_shown(number, tmp_path):
    experiment = alone(shipped()[number], tmp_path, seeds=6)
    judged = judge_claims(experiment)
    said = {"claims": judged.entries, "figures": [], "tasks": [], "corruptions": []}
    (entry,) = claim_entries(judged.claims, said)
    assert entry.verdict != "not run"
    assert "nan" not in entry.plot.description
    made = draw_claim(entry)
    assert made.svg.count("<text") >= len(entry.parts) + len(entry.beside)
    frame_of = pd.read_csv(io.StringIO(made.csv))
    assert len(frame_of) == sum(part.n for part in (*entry.parts, *entry.beside))


# Markdown --------------------------------------------------------------------------------------------


def rendered(text):
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def cells(row):
    return [" ".join(html.unescape(re.sub("<[^>]*>", "", cell)).split()) for cell in row]


def markdown_tables(folder):
    source = rendered((folder / "report.md").read_text(encoding="utf-8"))
    return [
        [cells(re.findall("<t[hd].*?</t[hd]>", row, re.S)) for row in re.findall("<tr>.*?</tr>", table, re.S)]
        for table in re.findall("<table>.*?</table>", source, re.S)
    ]


def test_markdown_says_the_same_of_claims_arms_and_runs(folder, shown, said):
    claims, *rest = markdown_tables(folder)
    _, body = shown.table("The effect is the mean over seeds, with its interval, of the part that decides.")
    assert [[f"{row[0]}. {row[1]}", row[2]] for row in claims[1:]] == [row[:2] for row in body]
    for row, (*_, effect, published_number) in zip(claims[1:], body, strict=True):
        assert effect.startswith(row[3].rpartition(" ")[0])
        assert published_number.startswith(row[5])
    parts = rest[5]
    header, body = shown.table("The parts, all of which must hold")
    assert [row[1:3] for row in parts[1:]] == [row[1:3] for row in body]
    for name in ("Supported above", "Contradicted below", "Seeds to decide"):
        assert [row[parts[0].index(name)] for row in parts[1:]] == [row[header.index(name)] for row in body]
    _, arms = shown.table("Arms")
    (of_arms,) = [table for table in rest if table[0][:2] == ["Arm", "Runs done"]]
    assert [row[:4] for row in of_arms[1:]] == [row[:4] for row in arms]
    source = (folder / "report.md").read_text(encoding="utf-8")
    for claim in said.values():
        assert page.escaped(claim["rule"]) in source
        seeds = claim["plot"] and page.escaped(claim_words.seeds_for_all(claim_entry(**claim)))
        assert not seeds or f"- Seeds to decide all open parts: {seeds}\n" in source


def test_tables_have_no_column_of_numbers_if_no_claim_has_one(tmp_path):
    folder = made(tmp_path, text=re.sub(r"    number: \d+\n", "", TEXT), names=("layers",))
    page.write(folder)
    head, *body = markdown_tables(folder)[0]
    assert head == ["Claim", "Verdict", "Effect [interval]", "n", "Published", "Expected"]
    assert {len(row) for row in body} == {6}
    latex = (folder / "tables/claims.tex").read_text(encoding="utf-8")
    assert "\n\\begin{tabular}{@{}p{0.4\\linewidth}p{0.2\\linewidth}lrr@{}}\n" in latex
    assert "\nClaim & Verdict & Effect {[}interval{]} & Matters from & $n$ \\\\\n" in latex
    assert "\nIt changes more. & " in latex


def test_hostile_text_is_text_in_page_and_markdown(tmp_path):
    hostile = f"{HOSTILE} | `x` [a](http://example.org) $y$ __b__"
    quoted = json.dumps(hostile, ensure_ascii=False)  # a file with control characters is refused
    text = TEXT.replace("says: It changes more.", f"says: {quoted}").replace("a paper, table 2", quoted)
    text = text.replace("published: 0.406 against 0.356", f"published: {quoted}")
    text = text.replace("because: so it is there", f"because: {quoted}")
    text = text.replace("unit: distance", f"unit: {json.dumps(f'distance {hostile}', ensure_ascii=False)}")
    folder = made(tmp_path, text=text, names=("layers", hostile), question=f"# {hostile}")
    shown = Page(page.write(folder))
    assert not shown.foreign
    once = " ".join(hostile.split())
    assert shown.text.count(once) >= 20  # what is said, published and expected, why, the source, units, the file
    source = rendered((folder / "report.md").read_text(encoding="utf-8"))
    assert not re.search(r"<(script|/?style|/title)|<a href=\"http|<code>x|<strong>b", source)
    images = re.findall(r"<img[^>]*>", source)
    assert images
    assert all(re.fullmatch(r"<img src=\"figures/[^\"]+\.svg\" alt=\"[^\"]*\" />", image) for image in images)
    plain = " ".join(html.unescape(re.sub(r"<[^>]*>", "", source)).split())
    assert plain.count(once) >= 20
    assert "<h1># </style>" not in source


def test_text_of_the_user_is_drawn_in_its_own_direction(tmp_path):
    """Arabic begins on the right, also where a sentence of the page begins with English."""
    arabic = "هل يتعلم النموذج؟"
    text = TEXT.replace("says: It changes more.", f"says: {arabic}").replace("a paper, table 2", arabic)
    text = text.replace("published: 0.406 against 0.356", f"published: {arabic}")
    text = text.replace("because: so it is there", f"because: {arabic}")
    source = Page(page.write(made(tmp_path, text=text, names=("layers",), question=arabic))).source
    body = source[source.index("<body>") :].partition("<figure>")[0]
    directed = re.sub(rf'<bdi>{arabic}</bdi>|<(p|dd)( class="question")? dir="auto">{arabic}</\1>', "", body)
    assert body.count(arabic) > 5
    assert arabic not in directed


@pytest.mark.parametrize(
    "text",
    ["# x", "- x", "1. x", "+ x", "> x", "a\n\n# b", "*x*", "snake_case", "_x_", "a & b", "`x`", "a|b", "\\",
     "<b>x</b>", "[x]: y", "===", "    x", "~~~", "---", "1)"],
)  # fmt: skip
def test_text_that_is_escaped_is_one_paragraph_of_just_this_text(text):
    source = rendered(page.escaped(text))
    assert re.fullmatch(r"<p>[^<]*</p>\n", source)
    assert html.unescape(source[3:-5]).strip() == " ".join(text.split())


def test_what_is_markdown_already_is_not_escaped_again():
    assert page.escaped(page.escaped("*x*")) == r"\*x\*"
    assert page.escaped("snake_case 0.5, 1.2") == "snake_case 0.5, 1.2"
    assert page.escaped(3) == 3


def test_a_command_of_ours_is_code_and_code_of_others_is_text():
    assert page.escaped("*x*; `ablate run` computes them.") == r"\*x\*; `ablate run` computes them."
    assert rendered(page.escaped("`ablate run` `x`")) == "<p><code>ablate run</code> `x`</p>\n"
    assert rendered(page.escaped("``ablate run`` `ablate <b>`")) == (
        "<p>`<code>ablate run</code>` `ablate &lt;b&gt;`</p>\n"
    )
