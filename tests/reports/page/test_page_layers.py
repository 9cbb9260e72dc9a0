"""The page of an experiment with every layer-wise measure: what it shows, in which order, and where it stops."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest

from ablations import results
from reports.figures.panel import MOST_PANELS, OTHER_TOKENS
from reports.figures.panel import letters as letters_of
from reports.folder import is_fresh
from reports.page import page
from reports.page.figures import figures, without_figure
from tests.support.fake_experiment import figure_entries, rows, write
from tests.support.fake_layers import layer_rows
from tests.support.html_page import Page, strict_json

DRAWN = {
    ("learning", "gain"), ("layer_change", "pwcca"), ("token_information", "cross_fitted"), ("read_out", "linear"),
    ("neighbours", "same_token"), ("geometry", "effective_rank"), ("influence", "pwcca"), ("validation", "loss"),
    ("run_distance", "pwcca"), ("pictures", "x"), ("pictures", "y"),
}  # fmt: skip
"""Few enough to draw them all in a test."""

TITLES = [
    "Learning curves",
    "Change between consecutive layers",
    "Information about the input token",
    "What probes read of the input token",
    "Information about other tokens",
    "What probes read of other tokens",
    "Distance between runs in the same layer",
    "What neighbouring states have in common",
    "The shape of the cloud of states",
    "Change by frequency of the token",
    "Change by part of speech",
    "Influence on other tokens by frequency",
    "Influence on other tokens by part of speech",
    "Over training",
    "Pictures of single tokens",
]


@pytest.fixture(scope="module")
def whole():
    """The rows of four arms and three seeds, at five steps."""
    return results.table(layer_rows(steps=(0, 4, 32, 128, 500)))


@pytest.fixture(scope="module")
def every(whole):
    return {figure["name"]: figure for figure in figure_entries(whole, arms=["mlm", "clm", "mt", "untrained"])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = layer_rows(("mlm", "clm"), (0, 1), steps=(0, 8, 500))
    kept = [row for row in made if (row["measure"], row["metric"]) in DRAWN]
    kept = [
        row for row in kept if not (row.get("group") or "").startswith(("tag ", "previous token", "shown token"))
    ]
    kept = [row | {"group": _by_word_alone(row["group"])} if row["measure"] == "pictures" else row for row in kept]
    folder = write(tmp_path_factory.mktemp("layers"), arms=("mlm", "clm"), seeds=(0, 1), table_rows=kept)
    page.write(folder)
    return folder


def _by_word_alone(token):
    word, *_, number = token.split("|")
    return f"{word}|-|-|-|{number}"


# What there is ---------------------------------------------------------------------------------------


def test_figures_come_from_the_whole_to_its_parts(every):
    assert [figure["title"] for figure in every.values()] == TITLES


def test_every_metric_has_a_panel_and_is_said_in_words(every):
    metrics = {name: [panel["metric"] for panel in figure["panels"]] for name, figure in every.items()}
    assert metrics["neighbours"] == [
        *("same_token", "position_distance", "same_left", "same_right"),
        *("same_relation", "same_sense", "same_left_part", "same_right_part"),
    ]
    assert metrics["geometry"] == [
        *("anisotropy", "self_similarity", "effective_rank", "participation_ratio", "update_norm"),
    ]
    about = [(panel["group"], panel["metric"]) for panel in every["other_information"]["panels"]]
    labels = ["next token", "previous token", "output label", "shown token"]
    assert about == [(label, metric) for metric in ("cross_fitted", "plug_in") for label in labels]
    assert metrics["read_out"] == ["linear", "mlp"]
    about = [(panel["group"], panel["metric"]) for panel in every["other_read_out"]["panels"]]
    assert about == [(label, metric) for metric in ("linear", "mlp") for label in labels]
    for figure in every.values():
        assert len(figure["how_to_read"]) == 2
        for panel in figure["panels"]:
            assert len(panel["description"]) > 60
            assert "nan" not in panel["description"]


def test_names_are_unique_and_plain(every):
    panels = [panel for figure in every.values() for panel in figure["panels"]]
    for key in ("name", "id", "svg"):
        names = [panel[key] for panel in panels]
        assert len(set(names)) == len(names)
        assert all(re.fullmatch(r"[\w./-]+", name) for name in names)


def test_arms_without_a_label_are_named(every):
    missing = {panel["group"]: panel["without_rows"] for panel in every["other_information"]["panels"][:4]}
    assert missing["output label"] == ["mt", "untrained"]
    assert missing["shown token"] == ["clm", "mt", "untrained"]


def test_groups_are_equally_large_and_it_is_said(every, whole):
    assert every["change_by_rank"]["notes"] == ["All groups have n = 1,280."]
    change = whole[whole["measure"] == "layer_change"]
    uneven = change.assign(n=change["n"].where(change["group"] != "rank 1-10", 900))
    found = {figure["name"]: figure for figure in figure_entries(uneven, arms=["mlm"])}
    assert found["change_by_rank"]["notes"] == [
        ("Groups differ in n, 900 to 1,280. Similarity is inflated in small groups, so do not compare the groups.")
    ]
    for name in ("change_by_rank", "influence_by_tag"):
        remarks = [curve["remarks"] for panel in every[name]["panels"] for curve in panel["curves"]]
        assert all("n/d below 150" in remark for remark in remarks)


def test_points_of_groups_are_their_means_with_intervals(every, whole):
    (panel,) = [panel for panel in every["influence_by_rank"]["panels"] if panel["arm"] == "clm"]
    for point in panel["points"]:
        own = whole[
            (whole["measure"] == "influence")
            & (whole["arm"] == "clm")
            & (whole["group"] == point["group"])
            & (whole["layer"] == point["layer"])
            & (whole["step"] == whole["step"].max())
        ]
        assert point["mean"] == pytest.approx(own["value"].mean())
        assert point["floor"] == pytest.approx(own["floor"].mean())
        assert (point["band"], point["seeds"]) == ("seeds", 3)
    said = panel["description"]
    assert said.startswith("clm. Mean over seeds by layer. rank 1-10: 0.00")
    assert re.search(r"rank 11-25: 0\.\d{5} at 1 ", said)  # small numbers keep digits that tell


def test_maps_say_the_cells_they_show(every, whole):
    maps = [p for p in every["over_training"]["panels"] if p["measure"] == "layer_change" and p["group"] is None]
    (panel,) = [p for p in maps if (p["arm"], p["metric"]) == ("mlm", "pwcca")]
    own = whole[(whole["arm"] == "mlm") & (whole["measure"] == "layer_change") & (whole["metric"] == "pwcca")]
    own = own[own["group"].isna()]
    for point in panel["points"]:
        here = own[
            (own["step"] == point["step"])
            & (own["layer"] == point["layer"])
            & (own["layer_to"] == point["layer_to"])
        ]
        assert point["mean"] == pytest.approx(here["value"].mean())
    assert len(panel["points"]) == 6 * 5
    first, last = (next(p["mean"] for p in panel["points"] if (p["step"], p["layer"]) == (s, 5)) for s in (0, 500))
    assert panel["description"].startswith("mlm: mean over seeds by layer at 5 steps, 0 to 500. Layer 0→1: from ")
    assert f"Layer 5→6: from {first:.3f} to {last:.3f}." in panel["description"]
    of_change = [p for p in maps if p["metric"] == "pwcca"]
    assert [p["without_rows"] for p in of_change] == [["untrained"], [], []]  # said once
    folded = {panel["part"]: panel["folded"] for panel in every["over_training"]["panels"]}
    in_sight = [part for part, is_folded in folded.items() if not is_folded]
    assert in_sight == ["Change, 1 − PWCCA similarity", "Information about the input token"]
    assert {"Information about the output label", "Neighbours with the same token", "Effective rank"} <= set(
        folded
    )


def test_maps_of_distances_are_of_pairs_of_arms(every, whole):
    maps = [panel for panel in every["over_training"]["panels"] if panel["measure"] == "run_distance"]
    rows = whole[(whole["measure"] == "run_distance") & (whole["metric"] == "pwcca")]
    two = [("mlm", "clm"), ("mlm", "mt"), ("clm", "mt")]
    names = [f"{first} \N{EN DASH} {second}" for first, second in two]
    names += [f"{arm}, between its seeds" for arm in ("mlm", "clm", "mt")]
    assert [panel["arm"] for panel in maps] == names
    for panel, (first, second) in zip(maps, [*two, ("mlm", "mlm"), ("clm", "clm"), ("mt", "mt")], strict=True):
        own = rows[(rows["arm"] == first) & (rows["group"] == second)]
        assert len(panel["points"]) == own[["layer", "step"]].drop_duplicates().shape[0]
        for point in panel["points"]:
            here = own[(own["step"] == point["step"]) & (own["layer"] == point["layer"])]
            assert len(here) == 3
            assert point["mean"] == pytest.approx(here["value"].mean())


def test_of_a_token_that_is_lost_both_measures_are_said_or_neither(every):
    """k-means information alone may fall while every state determines its token."""
    for name, figure in every.items():
        said = " ".join(figure["how_to_read"])
        assert not re.search("forget|forgotten|recover", said)
        if re.search("token, or rebuilds|token or rebuilds", said):
            assert name in ("token_information", "read_out")
            assert "must agree" in said or "both figures" in said


def test_a_figure_with_ceilings_says_so_and_has_their_numbers(every):
    for name, figure in every.items():
        points = [point for panel in figure["panels"] for point in panel["points"]]
        is_information = name in ("token_information", "read_out", "other_read_out")
        assert any("ceiling" in point for point in points) == is_information
        assert ("the ceiling, which no number can exceed" in figure["caption"]) == is_information
        assert all(point["mean"] <= point["ceiling"] + 1e-9 for point in points if "ceiling" in point)


def test_every_measure_that_is_taken_at_all_checkpoints_has_a_map(every):
    curves = {
        (panel["measure"], panel["metric"], panel["group"])
        for name in ("layer_change", "token_information", "read_out", "neighbours", "geometry")
        for panel in every[name]["panels"]
        if panel["metric"] not in ("plug_in", "mlp")
    }
    maps = {(panel["measure"], panel["metric"], panel["group"]) for panel in every["over_training"]["panels"]}
    mapped = ["rank 1-10", "rank 101-250", "rank 1001-2500", "tag NOUN", "tag VERB", "tag DET"]
    groups = {(measure, "pwcca", of) for measure in ("layer_change", "influence") for of in mapped}
    groups.add(("run_distance", "pwcca", None))
    about = {("token_information", "cross_fitted", token) for token in OTHER_TOKENS}
    assert maps == curves | about | groups


def test_curves_are_those_of_the_last_step(every, whole):
    for panel in every["geometry"]["panels"]:
        last = whole[(whole["metric"] == panel["metric"]) & (whole["step"].isin([0, 500]))]
        for point in panel["points"]:
            own = last[(last["arm"] == point["arm"]) & (last["layer"] == point["layer"])]
            own = own[own["step"] == own["step"].max()]
            assert point["mean"] == pytest.approx(own["value"].mean())


def test_no_text_of_the_page_tests_a_layer_that_it_chose(every):
    texts = [
        text for figure in every.values() for text in [figure["caption"], *figure["notes"], *figure["how_to_read"]]
    ]
    assert not [text for text in texts if re.search(r"minimum|lowest|highest|significant", text)]


# With one seed, with many arms -----------------------------------------------------------------------


def test_with_one_seed_the_caption_says_that_the_band_is_over_text(whole):
    one = whole[(whole["seed"] == 0) & whole["measure"].isin(["layer_change", "neighbours", "geometry"])]
    found = {figure["name"]: figure for figure in figure_entries(one, arms=["mlm", "clm", "mt", "untrained"])}
    over_text = (
        "Lines are single runs. Each band is ± 1.96 standard errors of that run's number over text of the same "
        "kind (jackknife over blocks of sentences). It says nothing about other seeds. "
    )
    for name in ("layer_change", "geometry", "change_by_rank"):
        assert found[name]["caption"].startswith(over_text), name
    point = found["neighbours"]["panels"][0]["points"][0]
    own = one[
        (one["metric"] == "same_token") & (one["step"] == 500) & (one["arm"] == "mlm") & (one["layer"] == 0)
    ].iloc[0]
    assert point["band"] == "text"
    assert point["high"] == pytest.approx(own["value"] + 1.96 * own["standard_error"])


def test_with_several_seeds_of_some_arms_the_caption_tells_them_apart(whole):
    some = whole[((whole["seed"] == 0) | (whole["arm"] == "mlm")) & (whole["measure"] == "geometry")]
    found = {figure["name"]: figure for figure in figure_entries(some, arms=["mlm", "clm", "mt", "untrained"])}
    assert ". If an arm has one seed, its band is ± 1.96 standard errors" in found["geometry"]["caption"]
    assert [curve["band"] for curve in found["geometry"]["panels"][0]["curves"]] == [
        "seeds",
        "text",
        "text",
        "text",
    ]


def test_of_many_arms_the_first_have_panels_of_their_own_and_the_others_are_named(whole):
    kept = whole[
        (whole["arm"] == "mlm") & whole["measure"].isin(["layer_change", "pictures"]) & (whole["seed"] == 0)
    ]
    names = [f"ratio={i / 10}" for i in range(MOST_PANELS + 2)]
    many = pd.concat([kept.assign(arm=name, run_id=name) for name in names], ignore_index=True)
    found = {figure["name"]: figure for figure in figure_entries(many, arms=names)}
    rest = "Only the first 6 arms with such rows have panels; results.parquet also has ratio=0.6 and ratio=0.7."
    for name, panels in (("change_by_rank", 12), ("over_training", 48), ("pictures", 24)):
        assert len(found[name]["panels"]) == panels
        assert rest in found[name]["notes"]
        assert {panel["arm"] for panel in found[name]["panels"]} == set(names[:MOST_PANELS])
    assert len(found["layer_change"]["panels"][0]["curves"]) == len(names)
    assert found["pictures"]["panels"][0]["csv"] == "figures/pictures-1_ratio_0_0.csv"
    assert "ratio_0_1" in found["change_by_rank"]["panels"][1]["name"]


def test_captions_and_text_alternatives_of_one_seed_speak_of_no_mean(whole):
    names = ("layer_change", "change_by_rank", "over_training")
    alone = whole[(whole["arm"] == "mlm") & (whole["measure"] == "layer_change")]
    for seeds, said in (((0,), "single runs|one run"), ((0, 1), "mean over seeds")):
        drawn = {
            figure["name"]: figure for figure in figure_entries(alone[alone["seed"].isin(seeds)], arms=["mlm"])
        }
        cells = "means over seeds" if len(seeds) > 1 else "single runs"
        assert drawn["over_training"]["caption"].startswith(f"Cells are {cells}; ")
        panels = [panel for name in names for panel in drawn[name]["panels"]]
        assert len(panels) >= 6
        assert all(re.search(f"(?i)({said}) by layer", panel["description"]) for panel in panels)


def test_arms_that_differ_in_signs_alone_have_files_of_their_own(whole):
    kept = whole[(whole["arm"] == "mlm") & (whole["measure"] == "layer_change") & (whole["seed"] == 0)]
    names = ["mlm <b>$x^</b>", "mlm/../b x b", "\N{CJK UNIFIED IDEOGRAPH-65E5}"]
    many = pd.concat([kept.assign(arm=name, run_id=name) for name in names], ignore_index=True)
    panels = [panel for figure in figure_entries(many, arms=names) for panel in figure["panels"]]
    files = {panel["svg"] for panel in panels}
    assert len(files) == len(panels)
    assert all(re.fullmatch(r"figures/[\w-]+\.svg", file, re.ASCII) for file in files)


def test_letters_go_on_after_z(whole):
    kept = whole[(whole["measure"] == "pictures") & (whole["seed"] == 0) & (whole["arm"] == "mlm")]
    many = pd.concat([kept.assign(arm=f"{i}", run_id=f"{i}") for i in range(MOST_PANELS)], ignore_index=True)
    (figure,) = figure_entries(many, arms=[f"{i}" for i in range(MOST_PANELS)])
    letters = [panel["letter"] for panel in figure["panels"]]
    assert letters == list("abcdefghijklmnopqrstuvwx")
    assert [letters_of(place) for place in (25, 26, 51, 52)] == ["z", "aa", "az", "ba"]


# The page --------------------------------------------------------------------------------------------


def test_the_contents_lead_to_every_section(shown):
    headings = [data for tag, data in shown.texts if tag == "h2"]
    figures_of = [heading for heading in headings if heading.startswith("Figure ")]
    assert [heading.partition(". ")[2] for heading in figures_of] == [
        title for title in TITLES if "part of speech" not in title
    ]
    assert headings[1:3] == ["What was run", "Contents"]  # behind the first figure
    linked = [a["href"] for tag, a in shown.tags if tag == "a" and a["href"].startswith("#")]
    named = [a["aria-labelledby"] for tag, a in shown.tags if tag == "section"]
    assert linked == [f"#{name}" for name in named]
    assert set(named) <= set(shown.attributes("id"))


def test_a_page_of_few_figures_has_no_contents(tmp_path):
    few = Page(page.write(write(tmp_path, arms=("mlm",), seeds=(0,), table_rows=list(rows(("mlm",), (0,))))))
    assert "Contents" not in few.text
    assert not [tag for tag, _ in few.tags if tag == "nav"]


def test_what_is_folded_needs_no_script_and_what_is_not_is_in_sight(shown, twin):
    panels = [panel for figure in twin["figures"] for panel in figure["panels"]]
    assert not shown.foreign
    assert len(shown.images) == len(panels)
    parts = {(panel["measure"], panel["part"]): panel["folded"] for panel in panels if panel["part"]}
    summaries = [data for tag, data in shown.texts if tag == "summary"]
    for (_, part), folded in parts.items():
        assert any(summary.startswith(f"{part} (") for summary in summaries) is folded
    assert "Neighbours with the same token (2 panels)" in summaries


def test_names_and_references_hold(shown):
    assert {"extent", "contents"} <= set(shown.names)


def test_every_panel_has_its_files_and_the_rows_it_shows(twin, folder):
    table = results.read(folder / "results.parquet")
    for figure in twin["figures"]:
        for panel in figure["panels"]:
            assert "<svg " in (folder / panel["svg"]).read_text()
            frame = pd.read_csv(io.BytesIO((folder / panel["csv"]).read_bytes()))
            assert list(frame) == results.SHOWN
            assert set(frame["measure"]) == {panel["measure"]}
            if panel["arm"]:
                assert set(frame["arm"]) == {panel["arm"]}
            if panel["kind"] == "maps":
                assert set(frame["step"]) == {0, 8, 500}
            if panel["kind"] == "groups":
                assert frame["group"].str.startswith("rank ").all()
            if panel["kind"] == "pairs":
                pairs = table[(table["measure"] == "run_distance") & (table["metric"] == panel["metric"])]
                pairs = pairs[pairs["step"] == 500]
                assert len(frame) == len(pairs)


def test_numbers_of_groups_and_maps_are_tables_by_layer(shown, twin):
    header, body = shown.table(
        "Change by frequency of the token, 1 − PWCCA similarity, mlm, by layer: mean over seeds ±"
    )
    assert header == ["Group", "0→1", "1→2", "2→3", "3→4", "4→5", "5→6"]
    points = {
        (p["group"], p["layer"]): p
        for figure in twin["figures"]
        if figure["name"] == "change_by_rank"
        for p in figure["panels"][0]["points"]
    }
    first = points["rank 1-10", 0]
    assert body[0][:2] == ["rank 1-10", f"{first['mean']:.3f} ± {first['high'] - first['mean']:.3f}"]
    floors = [points[group, 0]["floor"] for group, layer in points if layer == 0]
    assert body[-1][:2] == ["chance level, mean", f"{np.mean(floors):.3f}"]
    header, body = shown.table("Over training, Effective rank, clm (dimensions), by layer: mean over seeds.")
    assert header == ["Step", *"0123456"]
    assert [row[0] for row in body] == ["0", "8", "500"]


def test_pairs_have_their_own_tables(shown):
    (rows_of_pairs,) = [
        table["rows"] for table in shown.tables if table["rows"][0][:2] == ["Arms", "Seeds or pairs"]
    ]
    header, *body = [[" ".join(cell.split()) for cell in row] for row in rows_of_pairs]
    assert header == ["Arms", "Seeds or pairs", "n", "d", "n/d", "Remarks"]
    assert [row[0] for row in body] == ["mlm – clm", "mlm, between its seeds", "clm, between its seeds"]
    assert body[1][-1] == "one pair, so no interval"


def test_panels_that_share_their_curves_share_their_rows(shown):
    header, body = shown.table("The maps: n tokens, d dimensions or clusters")
    assert header[:3] == ["Arm", "Panels", "Seeds"]
    assert [row[:2] for row in body][:2] == [["mlm", "a"], ["clm", "b"]]


def test_a_page_with_everything_is_fresh_and_small(folder):
    assert is_fresh(folder)
    assert (folder / "report.html").stat().st_size < 1_600_000
    told = json.loads((folder / "report.json").read_text())
    assert all(
        panel["points"] for figure in told["figures"] for panel in figure["panels"] if panel["kind"] != "pictures"
    )


def test_csv_that_no_longer_fits_is_linked_and_the_first_panels_keep_theirs(folder, monkeypatch):
    said = strict_json(folder / "report.json")
    drawings = {
        panel["name"]: page.Drawing(svg="<svg></svg>", csv="x" * 400)
        for figure in said["figures"]
        for panel in figure["panels"]
    }
    monkeypatch.setattr(page, "EMBEDDED_CSV_BYTES", 1000)
    source = page.html(said, drawings)
    assert source.count("data:text/csv") == 2
    assert source.count('href="figures/') == len(drawings)


def test_measures_that_no_panel_shows_are_listed(whole):
    change = whole[
        (whole["measure"] == "layer_change") & whole["group"].isna() & (whole["step"] == whole["step"].max())
    ]
    for table, missing in ((change[change["layer"] == 0], ["layer_change"]), (change, [])):
        assert without_figure(table, figures(table, arms=["mlm", "clm", "mt", "untrained"])) == [
            f"No figure of {name}: a curve needs two numbers. See results.parquet." for name in missing
        ]
