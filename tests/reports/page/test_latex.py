"""Tables in LaTeX: nothing that people wrote is a command, and numbers are those of the page."""

import re

import pytest

from reports.claims import words
from reports.page import latex, page
from reports.page.latex import escaped, tables
from reports.page.page import publish
from reports.words import interval, signed_interval
from tests.support import claim_page, score_page
from tests.support.html_page import strict_json
from tests.support.judged import claim_entry
from tests.support.remembered_drawings import empty_drawings


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = score_page.made(tmp_path_factory.mktemp("scored"))
    with empty_drawings():
        page.write(folder)
    return folder


@pytest.fixture(scope="module")
def claimed(tmp_path_factory):
    folder = claim_page.made(tmp_path_factory.mktemp("claimed"))
    with empty_drawings():
        page.write(folder)
    return folder


def rows_of(text):
    """Return the cells of each row between the rules."""
    body = text.split("\\midrule\n")[1].split("\\bottomrule")[0]
    return [re.split(r"(?<!\\) & ", row.removesuffix(" \\\\")) for row in body.splitlines()]


def test_signs_of_latex_are_text():
    assert escaped("a_b & 5% of #1\n{x} ~ ^ \\ $") == (
        r"a\_b \& 5\% of \#1 \{x\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$"
    )
    assert escaped("−0.1 [−0.2, ∞] ± 3 <mlm|x>") == (
        r"$-$0.1 {[}$-$0.2, $\infty${]} $\pm$ 3 \textless{}mlm\textbar{}x\textgreater{}"
    )


def test_verdicts_have_effect_interval_and_n(claimed):
    twin, text = strict_json(claimed / "report.json"), (claimed / "tables/claims.tex").read_text(encoding="utf-8")
    judged = [claim for claim in twin["claims"] if claim["plot"]]
    assert text.startswith("% article-tiny, by ablate report. Needs \\usepackage{booktabs}.\n")
    assert len(rows_of(text)) == len(judged) > 1
    for claim, (number, says, verdict, effect, smallest, n) in zip(judged, rows_of(text), strict=True):
        assert (number, n) == (str(claim["number"] or ""), words.seeds_shown(claim_entry(**claim)))
        assert says == escaped(claim["says"])
        assert verdict.startswith(escaped(claim["verdict"]))
        assert smallest == escaped(words.significant(claim["smallest_effect"]))
        assert effect == escaped(words.headline_effect(claim_entry(**claim)))
    assert "{[}" in text


@pytest.mark.parametrize(
    ("parts", "verdict", "cell"),
    [
        (["supported"], "supported", "supported"),
        (["supported", "equivalent"], "partly", "partly (1 of 2 parts hold; effect of part1)"),
        (["equivalent", "undecided"], "partly", "partly (1 of 2 parts equivalent; effect of part0)"),
        (["contradicted", "supported"], "contradicted", "contradicted (effect of part0)"),
    ],
)
def test_a_verdict_of_several_parts_names_the_part_whose_effect_is_shown(parts, verdict, cell):
    entries = [
        {"name": f"part{i}", "condition": False, "decides": True, "verdict": of} for i, of in enumerate(parts)
    ]
    deciding = next((entry["name"] for entry in entries if entry["verdict"] != "supported"), "part0")
    entry = claim_entry(verdict=verdict, parts=entries, deciding=deciding, effect=0.1, says="It helps.")
    (row,) = rows_of(latex._claims([entry]))
    assert row[1] == cell


def test_scores_are_those_of_the_page_and_marks_are_explained(scored):
    twin = strict_json(scored / "report.json")
    for table in twin["tasks"]:
        text = (scored / f"tables/{table['name']}.tex").read_text(encoding="utf-8")
        columns = len(table["beside"]) + len(table["arms"]) + 3
        written = [row for row in rows_of(text) if not row[0].startswith("\\multicolumn")]
        assert {len(row) for row in written} == {columns}
        rows = [row for row in written if not row[1].startswith("difference from ")]
        assert len(rows) == len(table["rows"])
        assert ("\\textsuperscript{a}" in text) == ("\\textsuperscript{a} at " in text)
    assert {path.stem for path in scored.glob("tables/*.tex")} == {
        *("arms", "compared"),
        *(one["name"] for one in twin["tasks"]),
    }
    assert {f"tables/{path.name}" for path in scored.glob("tables/*")} <= set(twin["files"])


def test_differences_of_main_scores_are_those_of_the_page(scored):
    for table in strict_json(scored / "report.json")["tasks"]:
        shown = [
            [
                escaped(signed_interval(cell["difference"], row["digits"], row["scale"]))
                if cell["difference"]
                else ""
                for cell in (row["arms"].get(arm, {"difference": None}) for arm in table["arms"])
            ]
            for row in table["rows"]
            if any(cell["difference"] for cell in row["arms"].values())
        ]
        text = (scored / f"tables/{table['name']}.tex").read_text(encoding="utf-8")
        written = [row for row in rows_of(text) if row[1] == f"difference from {table['base']}"]
        assert [row[2 + len(table["beside"]) : -1] for row in written] == shown
        assert shown or table["measure"] in ("generation", "parsing"), table["name"]


def test_arms_have_a_row_each(scored):
    text = (scored / "tables/arms.tex").read_text(encoding="utf-8")
    assert [row[0] for row in rows_of(text)] == ["mlm", "clm", "mt", "untrained"]
    assert r"1.82 $\pm$ " in text
    assert all(row[-1] == "3" for row in rows_of(text))


def test_arms_without_a_run_have_no_row(scored):
    twin = strict_json(scored / "report.json")
    for name in ("loss", "gain", "perplexity"):
        twin["arms"][1][name] = {"mean": None, "low": None, "high": None, "seeds": 0}
    assert [row[0] for row in rows_of(tables(twin)["arms"])] == ["mlm", "mt", "untrained"]


def test_scores_of_whole_runs_have_their_differences_in_brackets(scored):
    compared = strict_json(scored / "report.json")["compared"]
    text = (scored / "tables/compared.tex").read_text(encoding="utf-8")
    assert "% In brackets: difference from mlm within each seed.\n" in text
    rows = rows_of(text)
    assert [row[0] for row in rows] == [row["arm"] for row in compared["rows"]]
    for place, column in enumerate(compared["columns"], start=1):
        cell = compared["rows"][-1]["cells"].get(column["title"])
        if cell is None:
            assert rows[-1][place] == escaped("–")
            continue
        difference = cell["difference"]
        beside = f" ({signed_interval(difference, column['digits'])})" if difference else ""
        assert rows[-1][place] == escaped(interval(cell, column["digits"]) + beside)
    assert any(" (" in cell for cell in rows[-1])
    assert " (" not in rows[0][1]


def test_changed_settings_are_said_above_a_table(scored):
    twin = strict_json(scored / "report.json")
    assert "changed settings" not in tables(twin)["arms"]
    twin["changed"] = {"given": ["seeds=[1] (the spec says [0])"], "from": "it"}
    assert "% The command line changed settings of it: seeds=[1] (the spec says [0]).\n" in tables(twin)["arms"]


def test_an_earlier_table_goes_and_publishing_takes_what_is_there(scored, tmp_path):
    (scored / "tables/old.tex").write_text("mine")
    published = publish(scored, tmp_path)
    assert (published / "tables/arms.tex").read_bytes() == (scored / "tables/arms.tex").read_bytes()
    assert not (published / "tables/old.tex").exists()
