import errno
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import seaborn as sns
from matplotlib.figure import Figure

from ablations import results
from ablations.errors import ResultsError
from lightning_modules.errors import FilesError
from tests.support.errors import error_text
from tests.support.unprivileged import permissions_hold

ROW = {
    "run_id": "0a1b2c3d4e",
    "arm": "mlm",
    "seed": 0,
    "step": 500,
    "measure": "layer_change",
    "metric": "pwcca",
    "value": 0.25,
}


def row(**changes):
    return ROW | changes


def test_a_table_has_every_column_in_order_and_type_and_null_for_what_is_absent():
    table = results.table([row(layer=0, layer_to=1, n=100)])
    assert list(table) == list(results.COLUMNS)
    assert {name: str(kind) for name, kind in table.dtypes.items()} == results.COLUMNS
    absent = {name for name in table if pd.isna(table.loc[0, name])}
    assert absent == {*("experiment", "group", "other_run_id", "floor", "ceiling", "unit", "d"), *results.LATER}
    assert table.loc[0, "layer"] == 0  # the embeddings, not an absence


def test_a_table_of_many_equal_rows_is_read_though_a_row_takes_less_than_a_byte(tmp_path):
    path = tmp_path / "predictions.parquet"
    table = pd.DataFrame({"example": np.arange(20_000) % 100, "points": 1.0, "arm": "mlm"})
    path.write_bytes(results.sealed(table))
    assert path.stat().st_size < len(table) / 2
    pd.testing.assert_frame_equal(results.read_sealed(path, remedy="").to_pandas(), table)


def test_no_rows_are_the_empty_table_of_the_same_types():
    empty = results.table([])
    assert len(empty) == 0
    assert (empty.dtypes == results.table([row()]).dtypes).all()
    pd.testing.assert_frame_equal(results.concat([]), empty)


def test_numpy_numbers_and_whole_floats_are_numbers():
    table = results.table([row(seed=np.int32(3), layer=np.float64(2.0), value=np.float32(0.5))])
    assert table.loc[0, ["seed", "layer", "value"]].tolist() == [3, 2, 0.5]


def test_a_value_may_be_no_number_but_not_be_left_out():
    assert np.isnan(results.table([row(value=float("nan"))]).loc[0, "value"])
    assert np.isnan(results.table([row(value=None)]).loc[0, "value"])
    without = {name: cell for name, cell in ROW.items() if name != "value"}
    assert (
        error_text(ResultsError, lambda: results.table([row(), without]))
        == "results, row 1: 'value' is missing; write NaN where there is no number."
    )


@pytest.mark.parametrize("name", results.REQUIRED)
def test_every_observation_says_where_it_comes_from(name):
    assert (
        error_text(ResultsError, lambda: results.table([row(**{name: None})]))
        == f"results, row 0: {name!r} is missing; every row needs one."
    )


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ({"layer": 1.5}, "layer is 1.5, expected a whole number from 0, or nothing."),
        ({"layer": -1}, "layer is -1, expected a whole number from 0, or nothing."),
        ({"seed": "0"}, "seed is '0', expected a whole number from 0."),
        ({"seed": True}, "seed is True, expected a whole number from 0."),
        ({"n": float("inf")}, "n is inf, expected a whole number from 0, or nothing."),
        ({"value": "0.3"}, "value is '0.3', expected a number."),
        ({"standard_error": -0.5}, "standard_error is -0.5, expected a number from 0."),
        ({"arm": 4}, "arm is 4, expected text."),
    ],
)
def test_types_are_not_guessed(cell, sentence):
    assert error_text(ResultsError, lambda: results.table([row(**cell)])) == f"results, row 0: {sentence}"


def test_an_unknown_column_is_refused():
    with pytest.raises(ResultsError) as error:
        results.table([row(layers=3)])
    columns = ", ".join(results.COLUMNS)
    assert str(error.value) == f"results, row 0: unknown column 'layers'; the columns are {columns}."


def test_one_observation_is_one_row_whatever_its_value():
    assert error_text(
        ResultsError, lambda: results.table([row(layer=1), row(layer=2), row(layer=1, value=0.3)])
    ) == (
        "results, row 2: run_id=0a1b2c3d4e, arm=mlm, seed=0, step=500, measure=layer_change, metric=pwcca, "
        "layer=1 has an observation already; remove one of the two rows."
    )


@pytest.mark.parametrize(
    "name", [name for name in results.KEY if name not in ("seed", "step", "layer", "layer_to")]
)
def test_any_key_column_tells_observations_apart(name):
    assert len(results.table([row(), row(**{name: "other"})])) == 2


def test_what_is_written_is_read_back(tmp_path):
    table = results.table([row(layer=1, value=1 / 3), row(layer=2, value=float("nan"), group="verb"), row()])
    path = tmp_path / "new" / "lr=0.1" / "results.parquet"  # a folder that looks like a partition adds no column
    results.write(table, path)
    pd.testing.assert_frame_equal(results.read(path), table)
    assert os.listdir(path.parent) == ["results.parquet"]


@pytest.mark.parametrize("later", [["ceiling"], ["standard_error"], ["ceiling", "standard_error"]])
def test_a_table_from_before_a_column_is_read_without_its_numbers(later, tmp_path):
    table = results.table([row(layer=1, floor=0.5), row(layer=2)])
    path = tmp_path / "results.parquet"
    table.drop(columns=later).to_parquet(path, index=False)
    pd.testing.assert_frame_equal(results.read(path), table)
    pd.testing.assert_frame_equal(results.concat([table.drop(columns=later)]), table)
    table.drop(columns=[*later, "floor"]).to_parquet(path, index=False)
    with pytest.raises(ResultsError, match=r"it lacks floor;"):
        results.read(path)


def test_an_observation_that_is_there_already_is_refused():
    kept = results.concat([results.table([row(layer=1)]), results.table([row(layer=2)])])
    assert kept["layer"].tolist() == [1, 2]
    with pytest.raises(
        ResultsError, match=r"row 2: .* layer=1 has an observation already; remove one of the two rows\.$"
    ):
        results.concat([kept, results.table([row(layer=1)])])


def test_a_missing_file_is_a_sentence(tmp_path):
    assert error_text(ResultsError, results.read, tmp_path / "results.parquet") == (
        f"{tmp_path}/results.parquet does not exist, so there are no results yet; `ablate run` writes them "
        "after a run is measured."
    )


def test_every_truncation_is_a_sentence(tmp_path):
    path = tmp_path / "results.parquet"
    results.write(results.table([row(layer=layer) for layer in range(7)]), path)
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 211), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(ResultsError) as error:
            results.read(path)
        sentence = str(error.value)
        assert sentence.startswith(f"{path} is damaged (")
        assert sentence.endswith("); delete it and start `ablate run` again.")
        assert "\n" not in sentence


def test_a_table_that_does_not_fit_into_memory_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "results.parquet"
    results.write(results.table([row()]), path)

    def no_room(*args, **options):
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pq.ParquetFile, "read", no_room)
    with pytest.raises(MemoryError):
        results.read(path)


def test_a_table_that_may_not_be_read_is_not_called_damaged(tmp_path):
    """To delete it, as a damaged one, would lose the rows."""
    path = tmp_path / "results.parquet"
    results.write(results.table([row()]), path)
    path.chmod(0)
    with permissions_hold():
        assert error_text(ResultsError, results.read, path) == (
            f"{path} cannot be read: permission is denied; change the permissions or choose another folder, then "
            "start again."
        )


def test_no_flipped_bit_is_read_and_a_file_without_a_seal_is(tmp_path):
    path = tmp_path / "results.parquet"
    values = np.random.default_rng(0).standard_normal(50)
    table = results.table([row(layer=i, value=value) for i, value in enumerate(values)])
    results.write(table, path)
    whole = path.read_bytes()
    seal = whole.find(results.SEAL)
    for place in [*range(0, len(whole), 37), *range(seal - 2, seal + len(results.SEAL) + 3)]:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(ResultsError, match="is damaged") as error:
            results.read(path)
        assert "\n" not in str(error.value)
    table.to_parquet(path, index=False)  # as earlier versions wrote it
    pd.testing.assert_frame_equal(results.read(path), table)


def test_a_foreign_table_is_a_sentence(tmp_path):
    path = tmp_path / "results.parquet"
    pd.DataFrame({name: [1] for name in results.COLUMNS if name != "arm"} | {"lr": [0.1]}).to_parquet(path)
    assert error_text(ResultsError, results.read, path) == (
        f"{path} is not a table of results: it lacks arm and also has lr; give a table with the columns "
        f"{', '.join(results.COLUMNS)}."
    )


def test_a_table_with_spoilt_types_is_not_written(tmp_path):
    table = results.table([row()]).assign(layer="third")
    with pytest.raises(
        ResultsError, match=r"row 0: layer is 'third', expected a whole number from 0, or nothing\."
    ):
        results.write(table, tmp_path / "results.parquet")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path, monkeypatch, step):
    path = tmp_path / "results.parquet"
    results.write(results.table([row()]), path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, step, full)
    assert (
        error_text(FilesError, lambda: results.write(results.table([row(step=600)]), path))
        == f"{path} cannot be written: the disk is full; free some space, then start again."
    )
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["results.parquet"]


def test_seaborn_takes_the_table_as_it_is():
    table = results.table(
        [row(seed=seed, layer=layer, value=seed + layer) for seed in (0, 1) for layer in range(3)]
    )
    ax = sns.lineplot(table, x="layer", y="value", hue="arm", ax=Figure().subplots())
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0.5, 1.5, 2.5])
