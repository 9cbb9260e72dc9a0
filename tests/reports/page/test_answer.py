"""The page answers first: verdicts, then the figure that shows what decided them, whatever the number of arms."""

import re
from types import SimpleNamespace

import pytest

from reports import folder as experiment_folder
from reports.claims.judge import judge_claims
from reports.figures.files import Drawing
from reports.page.content import content, page_figures
from reports.page.entries import claim_entries
from reports.page.figures import ClaimedMetric, claimed_metrics, times_read
from reports.page.page import html
from tests.support import judged as support
from tests.support import many_arms
from tests.support.fake_experiment import ARMS
from tests.support.judged import CHANGE, INFORMATION, NEEDS, claim

SEEDS = (0, 1, 2, 3)
MORE = claim("more", f"{{kind: difference, of: {CHANGE}, arm: mlm, minus: clm}}", needs=NEEDS)
FASTER = claim(
    "faster",
    f"{{kind: difference, of: {INFORMATION}, arm: clm, minus: mt}}",
    needs="{arms: [mt, clm], measures: [token_information]}",
)
LESS = FASTER.replace("faster", "slower").replace("arm: clm, minus: mt", "arm: mt, minus: clm")
BLOCKED = MORE.replace("more", "blocked").replace(
    "effect:",
    f"provided: {{never: {{kind: difference, of: {CHANGE}, arm: mlm, at_least: 99}}}},\n     effect:",
    1,
)
ABSENT = MORE.replace("more", "absent").replace("clm", "n1")


def judged(tmp_path, *claims):
    return judge_claims(support.made(tmp_path, seeds=SEEDS, text="version: 1\nclaims:\n" + "".join(claims)))


def source(of):
    """The page as HTML, without its drawings."""
    shown, _ = page_figures(of)
    page = content(of, shown) | {"made_from": ""}
    page["claims"] = claim_entries(of.claims, page)
    names = [panel.name for figure in shown for panel in figure.panels]
    names += [entry.id for entry in page["claims"] if entry.plot]
    return html(page, dict.fromkeys(names, Drawing("<svg/>", "")))


@pytest.mark.parametrize(
    ("claims", "first"),
    [
        ((MORE, FASTER, LESS), "token_information"),
        ((MORE, FASTER), "layer_change"),
        ((MORE, ABSENT, ABSENT.replace("absent", "gone")), "layer_change"),
    ],
    ids=["most claims", "the first of as many", "what is not run does not count"],
)
def test_the_figure_that_the_decided_claims_read_comes_first(claims, first, tmp_path):
    figures, _ = page_figures(judged(tmp_path, *claims))
    assert figures[0].text.name == first
    assert [figure.number for figure in figures] == [1, 2]
    assert figures[0].panels[0].metric in ("pwcca", "cross_fitted")
    assert [panel.letter for panel in figures[0].panels] == ["a", "b"]


def test_a_claim_about_the_course_of_training_is_shown_along_steps_and_not_by_a_setting_at_the_end():
    of = {"measure": "fine_tuning", "metric": "score", "group": None}
    by_setting = SimpleNamespace(kind="settings", axis=None, **of)
    over_training = SimpleNamespace(kind="arms", axis="step", **of)
    course, end = (ClaimedMetric("fine_tuning", "score", along_steps) for along_steps in (True, False))
    shown = [(times_read(panel, [course]), times_read(panel, [end])) for panel in (by_setting, over_training)]
    assert shown == [(0, 1), (1, 0)]


def test_without_claims_figures_keep_their_order(tmp_path):
    of = judge_claims(experiment_folder.read(many_arms.write(tmp_path, ARMS)))
    assert claimed_metrics(of) == []
    assert [figure.text.name for figure in page_figures(of)[0]] == ["layer_change", "token_information"]


def test_verdicts_come_first_and_what_is_not_testable_or_not_run_is_short_and_last(tmp_path):
    shown = source(judged(tmp_path, BLOCKED, MORE, ABSENT))
    strip, rest = shown.split('<section class="answer"', 1)
    table, short = strip.split("</table>")
    assert table.count('<tr role="row">') == 2  # the head, and one claim
    assert "blocked" not in table
    assert "Its condition never fails." in short
    assert re.search(r"not run</span> <a href=[^>]*>1 claim</a>", short)
    assert "99" not in short  # neither the effect of the condition nor its bound
    assert rest.index("What was run") < rest.index("Claims in detail")


def test_facts_of_a_claim_leave_out_its_conditions(tmp_path):
    shown = source(judged(tmp_path, BLOCKED))
    (here,) = re.findall(r"<dt>Here, n = 4</dt><dd>(.*?)</dd>", shown)
    assert "never" not in here


@pytest.mark.parametrize(("arms", "panels"), [(ARMS, 1), (many_arms.ARMS, 7)], ids=["4 arms", "39 arms"])
def test_one_list_of_arms_serves_all_figures_and_many_arms_have_small_multiples(arms, panels, tmp_path):
    of = judge_claims(experiment_folder.read(many_arms.write(tmp_path, arms)))
    shown = source(of)
    assert shown.count('class="legend"') == 1
    first = shown.split('<section class="answer"', 1)[1].split("<details>", 1)[0]
    assert first.count("<figure>") == panels
    assert first.count("<li>") == len(arms)
    assert ("side-by-side" in first) == (panels == 1)


def test_a_list_of_many_arms_is_opened_on_demand(tmp_path):
    """The 39 arms above are listed in sight; a list of hundreds would be longer than all that stands beside it."""
    arms = (*many_arms.ARMS, "more", "and-more")
    shown = source(judge_claims(experiment_folder.read(many_arms.write(tmp_path, arms))))
    (legend,) = re.findall(r'<div class="legend".*?</div>', shown, re.DOTALL)
    assert f"<details><summary>{len(arms)} arms</summary><ul>" in legend
    assert legend.count("<li>") == len(arms) > 40


def test_an_arm_with_a_hostile_name_is_text(tmp_path):
    hostile = "<b>x</b>&"
    of = judge_claims(experiment_folder.read(many_arms.write(tmp_path, (*many_arms.ARMS[:9], hostile))))
    shown = source(of)
    assert "<b>x" not in shown
    assert "&lt;b&gt;x&lt;/b&gt;&amp;" in shown
