import pytest

from ablations.errors import SpecProblems
from ablations.spec import load
from ablations.spec.figures import PUBLISHED_COLUMNS, keep_published, kept_published, load_published
from tests.support.claim_tables import CHANGE, INFORMATION, ROOT
from tests.support.errors import error_text

HEAD = "source,measure,metric,group,objective,layer,layer_to,value,error,read\n"
LINE = "A paper,layer_change,pwcca,,causal_lm,1,2,0.0747,0.001,from the figure\n"
SHIPPED = ROOT / "experiments" / "published" / "voita-2019.csv"


def problems(path):
    return error_text(SpecProblems, load_published, path).replace(f"{path}:", "").splitlines()


def test_an_empty_cell_is_absent(tmp_path):
    path = tmp_path / "paper.csv"
    text = HEAD + LINE + "A paper,token_information,plug_in,output label,masked_lm,6,,2.38,,by eye\n"
    path.write_text(text, encoding="utf-8-sig")  # as a spreadsheet saves it, with a byte-order mark
    change, information = load_published(path)
    assert (change.group, change.layer_to, change.error) == (None, 2, 0.001)
    assert (information.group, information.layer_to, information.error) == ("output label", None, None)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            LINE.replace("causal_lm", "causal"),
            'objective: must be a kind of objective, but is "causal"; did you mean causal_lm?',
        ),
        (LINE.replace(",1,2,", ",1,3,"), "layer_to: must be 2, the layer after 1, but is 3; or leave it empty"),
        (
            LINE.replace("0.0747", "much"),
            "value: input should be a valid number, unable to parse string as a number",
        ),
        (LINE.replace("0.0747", "nan"), "value: input should be a finite number"),
        (LINE.replace("0.001", "-1"), "error: input should be greater than or equal to 0"),
        (LINE.replace(",from the figure", ""), "this line must have 10 cells, as the first line"),
        (LINE.replace("figure", "figure, by eye"), "this line must have 10 cells, as the first line"),
        (LINE.replace("A paper", ""), "source: field required"),
    ],
)
def test_a_wrong_line_is_one_sentence_and_others_are_read(tmp_path, line, sentence):
    path = tmp_path / "paper.csv"
    path.write_text(HEAD + LINE + line + LINE)
    assert problems(path) == [f"3:1: {sentence}"]


def test_a_file_without_the_columns_says_which_they_are(tmp_path):
    path = tmp_path / "paper.csv"
    path.write_text("layer,value\n1,2\n")
    assert problems(path) == [
        f"1:1: the first line must name the columns {', '.join(PUBLISHED_COLUMNS)}, in this order"
    ]


def test_a_spec_that_names_a_missing_file_says_what_there_is(tmp_path):
    spec = tmp_path / "mine.yaml"
    spec.write_text("name: mine\nversion: 1\narms: {mlm: {}}\nseeds: [0]\npublished: [voita-2091]\n")
    with pytest.raises(SpecProblems, match="published names voita-2091, but there is no file"):
        load.load(spec)
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "voita-2019.csv").write_text(HEAD + LINE)
    with pytest.raises(SpecProblems, match=r"mine.yaml:5:13: .*voita-2091.csv; did you mean voita-2019\?$"):
        load.load(spec)


def test_a_folder_of_results_has_the_curves_that_its_spec_names(tmp_path):
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "a-paper.csv").write_text(HEAD + LINE)
    folder = tmp_path / "out" / "mine"
    assert kept_published(folder) == []  # neither a spec nor curves
    keep_published(["a-paper"], folder, spec=tmp_path / "mine.yaml")
    assert (folder / "published" / "a-paper.csv").read_text() == HEAD + LINE
    (folder / "spec.yaml").write_text("published: [a-paper]\n")
    assert kept_published(folder) == ["published/a-paper.csv"]
    (folder / "spec.yaml").write_text("name: mine\n")
    assert kept_published(folder) == []


def test_the_shipped_file_has_the_curves_that_claims_were_tried_on():
    """They were typed twice."""
    points = load_published(SHIPPED)
    kinds = {"mlm": "masked_lm", "clm": "causal_lm", "mt": "translation"}
    for arm, kind in kinds.items():
        of_arm = [point for point in points if point.objective == kind and point.group is None]
        change = {point.layer: point.value for point in of_arm if point.measure == "layer_change"}
        assert [change[layer] for layer in range(1, 6)] == list(CHANGE[arm][1:])
        information = {point.layer: point.value for point in of_arm if point.measure == "token_information"}
        assert [information[layer] for layer in range(7)] == list(INFORMATION[arm])
    hidden = [point for point in points if point.read.startswith("by eye")]
    assert all(point.error is None for point in hidden)
    assert len(hidden) == 5
