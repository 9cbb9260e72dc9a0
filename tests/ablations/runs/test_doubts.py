"""What a spec may say and probably does not mean is said, and nothing is said of what is meant."""

import json

import pytest

from ablations.errors import ResultsError
from ablations.runs import identity
from ablations.runs.doubts import (
    copied_arms,
    copies,
    differ_in_unread,
    equal_arms,
    equal_at_seed,
    judged_with,
    seeds_changed,
    unfit_text,
    validated_on_training,
)
from lightning_modules.config.data import FilesData, HubData
from lightning_modules.data.token_store import prepare
from lightning_modules.data.tokenizer import SPECIAL_TOKENS
from lightning_modules.files import write_json
from tests.support import claim_files
from tests.support.command_line import ablate
from tests.support.errors import error_text
from tests.support.planned_spec import SPEC, workspace_of
from tests.support.spec_files import write_spec
from tests.support.tiny_text import sentences, settings
from tests.support.unprivileged import permissions_hold

ON_TRAINING = "losses and measures would use text that the models were trained on; name another"


CLAIMS = claim_files.GOOD.replace("clm", "b").replace("mlm", "a")


def files(train, validation, **more):
    return FilesData(kind="files", train=train, validation=validation, **more)


def test_arms_that_decide_the_same_are_named_together():
    assert equal_arms({"a": 1, "b": 2, "c": 1, "d": 3}) == [
        "a and c have equal settings, so they share their runs and every difference between them is 0."
    ]
    assert equal_arms({"a": 1, "b": 2}) == []


def test_arms_whose_runs_are_copies_are_named_if_there_are_several_seeds():
    fixed = settings(training={"seeds": dict.fromkeys(("init", "order", "corruption", "dropout"), 0)})
    arms = {"a": fixed, "b": settings(), "c": fixed}
    assert copied_arms(arms, seeds=2) == ["a", "c"]
    assert copied_arms(arms, seeds=1) == []
    assert copies([]) == []
    assert copies(["a", "c"]) == [
        "a and c: the runs of all seeds are copies of one run, because no source of chance follows the seed "
        "(training.seeds, init and dropout). Claims about such arms alone count them as one seed, and their ± "
        "says nothing. Free a source, or give the experiment a single seed."
    ]


def test_arms_that_are_the_same_run_at_one_seed_are_named_with_it():
    def fixed(**seeds):
        return settings(training={"seeds": seeds})

    arms = {"a": settings(), "b": fixed(init=1), "c": fixed(init=1, order=1), "d": fixed(init=1, order=2)}
    arms |= {"e": settings(training={"seeds": {"init": 1}, "learning_rate": 0.1}), "f": fixed(init=1)}
    assert equal_at_seed(arms, seeds=[0, 1, 2]) == [
        "a, b, c and f are the same run at seed 1, because training.seeds fixes a source of chance at 1. Their "
        "differences are 0 at this seed and make effects look smaller. Fix the source at a number that is not in "
        "`seeds`.",
        "b, d and f are the same run at seed 2, because training.seeds fixes a source of chance at 2. Their "
        "differences are 0 at this seed and make effects look smaller. Fix the source at a number that is not in "
        "`seeds`.",
    ]
    assert equal_at_seed(arms, seeds=[0, 3]) == []
    assert equal_at_seed({"b": arms["b"], "f": arms["f"]}, seeds=[0, 1]) == []  # they share their runs


def test_arms_that_differ_without_an_effect_are_named_with_these_settings():
    def by_sgd(**own):
        return settings(training={"optimizer": "sgd", **own})

    plain, other = settings("skip_gram"), settings("skip_gram", encoder={"positions": "none", "dropout": 0.0})
    arms = {"a": by_sgd(), "b": by_sgd(adam_beta1=0.5), "c": settings()}
    assert differ_in_unread(arms | {"d": by_sgd(learning_rate=0.1)}) == [
        "a and b differ only in training.adam_beta1, which sgd does not read, so they are the same runs, trained "
        "several times; remove all but one of these arms."
    ]
    assert differ_in_unread({"x": plain, "y": other, "z": plain}) == [
        "x, y and z differ only in encoder.dropout and encoder.positions, which skip_gram does not read, so they "
        "are the same runs, trained several times; remove all but one of these arms."
    ]
    assert differ_in_unread({"x": plain, "z": plain}) == []  # they share their runs
    assert differ_in_unread({"a": settings(), "b": settings(training={"adam_beta1": 0.5})}) == []


def test_validation_text_that_is_training_text_is_found_by_name_and_by_content(tmp_path):
    for name, text in (("one.txt", "a b"), ("two.txt", "c d"), ("copy.txt", "a b")):
        (tmp_path / name).write_text(text)
    alike = files(("two.txt", "one.txt"), ("one.txt",))
    copied = files(("one.txt",), ("copy.txt", "two.txt"))
    good = files(("one.txt",), ("two.txt",))
    assert validated_on_training({"all": good}, tmp_path) == []
    assert validated_on_training({"all": files(("gone.txt",), ("gone.txt",))}, tmp_path) == []
    assert validated_on_training({"a": alike, "b": alike}, tmp_path) == [
        f"data.validation reads one.txt, as data.train does: {ON_TRAINING} file."
    ]
    assert validated_on_training({"a": alike, "b": copied, "c": good}, tmp_path) == [
        f"a: data.validation reads one.txt, as data.train does: {ON_TRAINING} file.",
        f"b: data.validation reads copy.txt, which has the same content as one.txt of data.train: {ON_TRAINING} "
        "file.",
    ]
    hub = HubData(kind="hub", path="x", revision="1" * 40, train="all", validation="all")
    assert validated_on_training({"a": hub}, tmp_path) == [
        f"data.validation reads the split all, as data.train does: {ON_TRAINING} split."
    ]


@pytest.fixture
def report(tmp_path):
    """What the token store of a text says, for its training and its validation text."""

    def make(train, validation):
        (tmp_path / "train.txt").write_text(train)
        (tmp_path / "validation.txt").write_text(validation)
        text = files(("train.txt",), ("validation.txt",), vocab_size=50, max_length=32)
        return prepare(text, data_root=tmp_path, store=tmp_path / "store").report

    return make


def test_a_split_that_is_mostly_unknown_or_cut_off_is_named(report):
    lines = sentences(200, seed=0)
    plain = report("\n".join(lines), "\n".join(sentences(9, seed=1)))
    greek = report("\n".join(lines), "ὁ ἄνθρωπος\n" * 9)
    book = report("\n".join(lines), " ".join(lines))
    assert unfit_text({"a": plain, "b": {}}) == []
    (unknown,) = unfit_text({"a": greek}, ["validation"])
    share = round(100 * greek["splits"]["validation"]["source"]["unknown_share"])
    assert share > 50
    assert unknown == (
        f"{share}% of the tokens in sentences of data.validation are [UNK], because their letters do not occur in "
        "data.train; losses and measures on this text say little."
    )
    facts = book["splits"]["validation"]["source"]
    assert (facts["tokens"], facts["cut"]) == (32, 1)
    dropped = 100 * (1 - 32 / facts["whole_length_percentiles"]["100"])
    assert unfit_text({"a": plain, "b": book}) == [
        f"b: {dropped:.1f}% of the tokens in sentences of data.validation come after the first 32 "
        "(data.max_length) and were dropped; write one sentence a line, or raise data.max_length."
    ]


def test_a_text_has_one_sentence_for_each_fact_whatever_its_splits_and_sides():
    facts = {"tokens": 80, "dropped": 20, "unknown_share": 0.5}
    split = {"sentences": 100, "source": facts, "target": facts | {"tokens": 180}}
    splits = {"train": split, "validation": split | {"in_training": 5}, "test": split | {"in_training": 1}}
    assert unfit_text({"a": {"splits": splits, "settings": {"max_length": 64}}}) == [
        "50% of the tokens in sentences of data.train, 50% in translations of data.train, 50% in sentences of "
        "data.validation, 50% in translations of data.validation, 50% in sentences of data.test and 50% in "
        "translations of data.test are [UNK], because their letters do not occur in data.train; losses and "
        "measures on this text say little.",
        "20% of the tokens in sentences of data.train, 10% in translations of data.train, 20% in sentences of "
        "data.validation, 10% in translations of data.validation, 20% in sentences of data.test and 10% in "
        "translations of data.test come after the first 64 (data.max_length) and were dropped; write one sentence "
        "a line, or raise data.max_length.",
        "data.train also has 5 sentences (5%) of data.validation and 1 sentence (1%) of data.test, so losses and "
        "measures look better than they are; remove these sentences from data.train or from the other text.",
    ]


def test_a_split_that_shares_a_hundredth_of_its_sentences_with_the_training_text_is_named(report):
    """Other files can share sentences too, which comparing files does not show."""
    train, others = sentences(200, seed=0), sentences(400, seed=1)
    below = report("\n".join(train), "\n".join([*others[:100], train[5]]))
    above = report("\n".join(train), "\n".join([*others[:98], f" {train[5]}"]))
    assert below["splits"]["validation"]["in_training"] == above["splits"]["validation"]["in_training"] == 1
    assert unfit_text({"a": below}) == []
    (sentence,) = unfit_text({"a": above})
    assert sentence == (
        "data.train also has 1 sentence (1%) of data.validation, so losses and measures look better than they "
        "are; remove these sentences from data.train or from the other text."
    )
    del above["splits"]["validation"]["in_training"]
    assert unfit_text({"a": above}) == [], "stores of earlier versions do not count them"
    below["splits"]["validation"]["in_training"] = 60
    assert unfit_text({"a": below | {"settings": {"kind": "language"}}}) == []


def test_a_twentieth_of_repeated_validation_sentences_is_named_if_a_measure_learns_from_them(report):
    train, lines = "\n".join(sentences(200, seed=0)), sentences(400, seed=1)
    below, above = (report(train, "\n".join([*lines[:size], lines[0]])) for size in (20, 19))
    assert below["splits"]["validation"]["repeated"] == above["splits"]["validation"]["repeated"] == 1
    assert unfit_text({"a": below}) == []
    assert unfit_text({"a": above}) == [
        "data.validation repeats 1 sentence (5%), which makes cross_fitted of token_information and the probes of "
        "read_out too high; remove the copies."
    ]
    assert unfit_text({"a": above}, ["validation", "read_out"]) == [
        "data.validation repeats 1 sentence (5%), which makes the probes of read_out too high; remove the copies."
    ]
    assert unfit_text({"a": above}, ["validation", "layer_change"]) == []
    del above["splits"]["validation"]["repeated"]
    assert unfit_text({"a": above}) == [], "stores of earlier versions do not count them"


def test_unknown_tokens_of_a_given_tokenizer_are_its_own(tmp_path):
    """The letters of such a text may all be in data.train."""
    (tmp_path / "bert").mkdir()
    pieces = [*SPECIAL_TOKENS, "the", *(f"[unused{i}]" for i in range(10))]
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(pieces) + "\n")
    (tmp_path / "text.txt").write_text("ὁ ἄνθρωπος the\n" * 9)
    text = files(("text.txt",), ("text.txt",), vocab_size=len(pieces), tokenizer="bert")
    said = []
    stored = prepare(text, data_root=tmp_path, store=tmp_path / "store", progress=said.append).report
    assert "data.train: data.tokenizer made [UNK] of 18 pieces of the sentences." in said
    assert unfit_text({"a": stored})[0] == (
        "40% of the tokens in sentences of data.train and 40% in sentences of data.validation are [UNK], because "
        "data.tokenizer does not know them; losses and measures on this text say little."
    )


@pytest.mark.parametrize(
    ("unknown", "written"), [(0.5, "50%"), (0.994, "99.4%"), (0.9997, "99.9%"), (1.0, "100%")]
)
def test_all_of_a_split_is_only_said_if_nothing_is_missing(unknown, written):
    facts = {"unknown_share": unknown, "tokens": 32, "cut": 0, "sentences": 9}
    facts |= {"whole_length_percentiles": {"50": 5, "99": 9, "100": 9}, "max_length": 32}
    (sentence,) = unfit_text({"": {"splits": {"validation": {"source": facts}}, "max_length": 32}})
    assert sentence.startswith(f"{written} of the tokens in sentences of data.validation are [UNK]")


def test_every_command_says_it_and_the_page_too(tmp_path, data_root):
    spec = write_spec(
        tmp_path,
        data={"kind": "files", "train": "train.tsv", "validation": "train.tsv", "vocab_size": 320},
        arms={name: {"objective": {"kind": "masked_lm"}, "training": {"max_steps": 0}} for name in ("a", "b")},
        seeds=[0],
    )
    on_training = f"data.validation reads train.tsv, as data.train does: {ON_TRAINING} file."
    equal = "a and b have equal settings, so they share their runs and every difference between them is 0."
    for command in ("validate", "plan", "run"):
        where = ["--out", str(tmp_path / "out")] * (command != "validate")
        done = ablate(command, spec, "--data-root", data_root, *where)
        assert done.exit_code == 0
        assert [line.strip() for line in done.stdout.splitlines() if line.strip() in (equal, on_training)] == [
            equal,
            on_training,
        ]
    page = json.loads((tmp_path / "out/tried/report.json").read_text())
    said = {notice["text"]: notice["group"] for notice in page["notices"]}
    assert said[on_training] == "wrong"
    assert said[equal] == "as planned"


def start(workspace):
    workspace.write_plan()
    for item in workspace.planned:
        identity.create(item)
        item.directory.write_state("done", step=2)


def test_runs_of_an_earlier_version_are_counted_with_the_settings_that_differ(tmp_path):
    before = workspace_of(tmp_path)
    assert before.earlier_runs() == []
    start(before)
    assert before.earlier_runs() == []
    longer = workspace_of(tmp_path, training={"max_steps": 8, "tokens_per_step": 128})
    said = (
        f"runs of an earlier version of this spec are in {tmp_path / 'out' / 'runs'} and not used by the current "
        "version: "
    )
    assert longer.earlier_runs() == [f"2 {said}arm a differed in training.max_steps (4, now 8)."]
    fewer = workspace_of(tmp_path, arms={"b": SPEC["arms"]["b"], "c": {}}, seeds=[1, 2])
    # Arm a, seed 1 is now called c: the run is the same.
    assert fewer.earlier_runs() == [f"2 {said}arm a not in the spec now; arm b without seed 0 now."]
    narrow = workspace_of(tmp_path, encoder=SPEC["encoder"] | {"hidden_size": 8, "norm": "pre", "dropout": 0.0})
    assert narrow.earlier_runs() == [
        f"4 {said}arms a and b differed in encoder.hidden_size (16, now 8), encoder.intermediate_size (64, now "
        '32), encoder.dropout (0.1, now 0.0), encoder.norm ("post", now "pre") and 1 other setting.'
    ]
    measured = workspace_of(tmp_path, measures=["geometry"])
    assert measured.earlier_runs() == []
    longer.write_plan()  # as `ablate report` does; the plan is now of runs that have not started
    longest = workspace_of(tmp_path, training={"max_steps": 7, "tokens_per_step": 128})
    longest.write_plan()
    assert longest.earlier_runs() == [f"2 {said}arm a differed in training.max_steps (4, now 7)."]
    before.write_plan()
    assert before.earlier_runs() == []


def test_earlier_runs_in_folders_of_another_person_are_not_forgotten(tmp_path):
    start(workspace_of(tmp_path))
    fewer = workspace_of(tmp_path, seeds=[0])
    earlier = [item.directory.path for item in workspace_of(tmp_path).planned if item.run.seed == 1]
    for path in earlier:
        path.chmod(0)
    try:
        with permissions_hold():
            named = fewer.earlier_runs()
            fewer.write_plan()
    finally:
        for path in earlier:
            path.chmod(0o700)
    assert named == fewer.earlier_runs()
    assert named[0].endswith("arms a and b without seed 1 now.")


def test_seeds_that_are_added_or_removed_after_a_verdict_was_seen_are_named_for_good(tmp_path):
    """The last look is taken as if it were the only one. A plan forgets seeds, and a page shows only the last
    verdict, so that nobody could know of the looks before it."""

    claim_files.write(tmp_path, CLAIMS)

    def warned(**changes):
        workspace = workspace_of(tmp_path, claims=["first"], measures=["validation"], **changes)
        start(workspace)
        return [sentence for sentence in workspace.warnings() if sentence.startswith("seeds: ")]

    def judge(*numbers_of_seeds):
        entries = [{"verdict": "undecided", "n": number_of} for number_of in numbers_of_seeds]
        (tmp_path / "out/it/claims.json").write_text(json.dumps({"claims": [*entries, {"verdict": "not run"}]}))

    def sentence(numbers, noun="seeds"):
        return [
            f"seeds: claims were judged with {numbers} {noun} before seeds were added or removed, so wrong "
            "verdicts are more frequent than the page says; begin with new seeds, and with `until: decided`, "
            "which fixes in advance when claims are judged."
        ]

    assert warned(seeds=[0, 1]) == warned(seeds=[0, 1, 2]) == []  # nothing was judged
    for damaged in ("{", "[]", "{}", '{"claims": 3}', '{"claims": [3]}', '{"claims": [{"n": "2"}]}'):
        (tmp_path / "out/it/claims.json").write_text(damaged)
        assert warned(seeds=[0, 1]) == warned(seeds=[0, 1, 2]) == []
    judge(1)
    assert seeds_changed(judged_with([0, 1], tmp_path / "out/it")) == sentence("1", "seed")
    judge(3, 2)
    assert warned(seeds=[0, 1, 2]) == []  # nothing has changed
    assert warned(seeds=[0, 2]) == sentence("3")  # without a seed that may have spoiled the verdict
    assert warned(seeds=[10, 11, 12]) == []  # nothing of what was seen counts
    judge(3)
    assert warned(seeds=[10, 11, 12, 13]) == sentence("3")
    assert warned(seeds=[10, 11, 12, 13]) == sentence("3")  # a run continues
    judge(4)
    assert warned(seeds={"first": 5, "up_to": 8, "until": "decided", "start": 10}) == sentence("3 and 4")
    judge(5)
    assert warned(seeds={"first": 5, "up_to": 8, "until": "decided", "start": 10}) == sentence(
        "3 and 4"
    )  # planned


def test_looks_that_were_planned_are_no_doubt(tmp_path):
    claim_files.write(tmp_path, CLAIMS)
    spec = {"claims": ["first"], "measures": ["validation"], "seeds": {"first": 3, "up_to": 5, "until": "decided"}}
    start(workspace_of(tmp_path, **spec))
    (tmp_path / "out/it/claims.json").write_text('{"claims": [{"verdict": "undecided", "n": 3}]}')
    assert not [sentence for sentence in workspace_of(tmp_path, **spec).warnings() if "judged with" in sentence]


def test_runs_that_never_started_are_none_of_an_earlier_version(tmp_path):
    workspace_of(tmp_path).write_plan()
    assert workspace_of(tmp_path, training={"max_steps": 8, "tokens_per_step": 128}).earlier_runs() == []


@pytest.mark.parametrize(
    "damaged", ["null", "[1]", '{"runs": 3}', '{"experiment": "it", "arms": [], "runs": [{}]}']
)
def test_a_plan_that_is_none_is_one_sentence_for_reader_and_writer(tmp_path, damaged):
    workspace = workspace_of(tmp_path)
    start(workspace)
    path = workspace.folder / "plan.json"
    path.write_text(damaged)
    for command in (workspace.earlier_runs, workspace.write_plan):
        assert error_text(ResultsError, command) == (
            f"{path} is not as `ablate run` writes it; restore it, or delete it and start `ablate run` again, "
            "which dates the claims anew."
        )
    assert path.read_text() == damaged


def test_a_difference_that_no_setting_shows_is_the_text_or_the_version(tmp_path):
    before = workspace_of(tmp_path)
    start(before)
    for item in before.planned:
        old = item.directory.path.rename(item.directory.path.with_name(f"old-{item.run_id}"))
        changed = identity.description(item) | ({"tokens": "other"} if item.run.arm == "a" else {})
        write_json(old / "run.json", changed)
    plan = json.loads((before.folder / "plan.json").read_text())
    plan["runs"] = [
        run | {"run_id": f"old-{i}", "folder": f"old-{run['run_id']}"} for i, run in enumerate(plan["runs"])
    ]
    write_json(before.folder / "plan.json", plan)
    (said,) = workspace_of(tmp_path).earlier_runs()
    assert said.endswith(": arm a with another text now; arm b with another version of this project now.")
