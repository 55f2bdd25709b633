"""The recipes' data sets: what is read is checked, scaled by public bounds, kept, and missed with a clear message."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture(scope="module")
def data():
    spec = importlib.util.spec_from_file_location("recipes_data", RECIPES / "data.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def row(table, data, number=0):
    """A legal raw row of a set; numbers alternate between the bounds."""
    cells = {
        name: str(kind.low if number % 2 else kind.high)
        if isinstance(kind, data.Number)
        else kind.values[number % len(kind.values)]
        for name, kind in table.columns.items()
    }
    return {**cells, table.target: list(table.classes)[number % 2]}


def folder(tmp_path, table, data, rows=4, change=None):
    frame = pd.DataFrame([row(table, data, i) for i in range(rows)])
    if change is not None:
        frame = change(frame)
    (tmp_path / "uci").mkdir(exist_ok=True)
    for stem in table.files:
        frame.to_csv(tmp_path / "uci" / f"{stem}.csv", index=False)
    return tmp_path


NAMES = ["adult", "bank", "breast_cancer", "debrecen", "hepatitis", "pima"]


@pytest.mark.parametrize("name", NAMES)
def test_every_set_is_a_typed_dataset_whose_features_lie_within_their_bounds(data, tmp_path, name):
    table = data.SETS[name]
    found = getattr(data, name)(folder(tmp_path, table, data))
    assert found.features[table.target].names == list(table.labels)
    X, y, names = data.features(found)
    assert X.shape == (len(found), len(names))
    assert np.abs(X).max() == 1.0
    assert set(y) == {0, 1}


def test_numbers_outside_the_bounds_are_cut_and_missing_ones_become_the_middle(data, tmp_path):
    table = data.SETS["pima"]

    def change(frame):
        frame.loc[0, "age"], frame.loc[1, "age"] = "500", "0"
        frame.loc[2, "glucose"] = "0"
        return frame

    X, _, names = data.features(data.pima(folder(tmp_path, table, data, change=change)))
    assert X[0, names.index("age")] == 1.0
    assert X[1, names.index("age")] == -1.0
    assert X[2, names.index("glucose")] == 0.0


def test_a_category_becomes_indicator_columns_and_a_missing_one_zeros(data, tmp_path):
    table = data.SETS["adult"]

    def change(frame):
        frame.loc[0, "workclass"] = "?"
        frame.loc[1, "workclass"] = "Local-gov"
        frame.loc[0, "sex"], frame.loc[1, "sex"] = "Male", "Female"
        return frame

    X, _, names = data.features(data.adult(folder(tmp_path, table, data, change=change)))
    work = [place for place, name in enumerate(names) if name.startswith("workclass=")]
    assert not X[0, work].any()
    assert X[1, work].sum() == 1.0 == X[1, names.index("workclass=Local-gov")]
    assert (X[0, names.index("sex=Male")], X[1, names.index("sex=Male")]) == (1.0, -1.0)


def test_a_final_full_stop_of_a_label_is_dropped(data, tmp_path):
    table = data.SETS["adult"]

    def change(frame):
        frame[table.target] += "."
        return frame

    _, y, _ = data.features(data.adult(folder(tmp_path, table, data, change=change)))
    assert y.tolist() == [0, 1, 0, 1] * 2


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("age", "secret", "row 3 of column age must be a number"),
        ("age", "inf", "row 3 of column age must be a number"),
        ("outcome", "secret", "row 3 of column outcome must be one of"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column_without_its_value(
    data, tmp_path, column, value, message
):
    def change(frame):
        frame.loc[2, column] = value
        return frame

    with pytest.raises(data.MalformedData, match=message) as caught:
        data.pima(folder(tmp_path, data.SETS["pima"], data, change=change))
    assert "secret" not in str(caught.value)


def test_missing_and_unknown_columns_are_named(data, tmp_path):
    change = lambda frame: frame.rename(columns={"bmi": "weight"})
    with pytest.raises(data.MalformedData, match="missing bmi; unknown weight"):
        data.pima(folder(tmp_path, data.SETS["pima"], data, change=change))


def test_a_folder_without_the_file_says_which_one_is_needed(data, tmp_path):
    with pytest.raises(data.DataUnavailable, match=r"uci/pima_indians_diabetes\.csv"):
        data.pima(tmp_path)
    with pytest.raises(data.DataUnavailable, match=r"imdb/train\.jsonl"):
        data.imdb(tmp_path)


def test_a_packed_file_with_another_check_sum_is_used_with_a_warning(data, tmp_path):
    table = data.SETS["pima"]
    plain = folder(tmp_path, table, data) / "uci" / "pima_indians_diabetes.csv"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.pima(tmp_path)  # an unpacked file is checked by its columns alone
    plain.with_suffix(".csv.gz").write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.warns(data.UnknownFile, match="sha256"):
        assert len(data.pima(tmp_path)) == 4


def test_the_breast_cancer_set_needs_no_file_and_no_network(data):
    X, y, names = data.features(data.breast_cancer())
    assert X.shape == (569, 30)
    assert y.sum() == 212
    assert names[0] == "radius_mean"
    assert names[-1] == "fractal_dimension_worst"


def fake_uci(monkeypatch, frame, target):
    calls = []

    def fetch(id):
        calls.append(id)
        given = types.SimpleNamespace(features=frame.drop(columns=target), targets=frame[[target]])
        return types.SimpleNamespace(data=given)

    monkeypatch.setitem(sys.modules, "ucimlrepo", types.SimpleNamespace(fetch_ucirepo=fetch))
    return calls


def test_a_fetched_set_is_read_under_the_repository_s_spelling_and_kept(
    data, tmp_path, monkeypatch
):
    table = data.SETS["hepatitis"]
    frame = pd.DataFrame([row(table, data, i) for i in range(4)])
    # The client reads 1 and 2 as numbers, drops missing values and writes names its own way.
    frame = frame.apply(pd.to_numeric)
    frame.loc[0, "fatigue"] = np.nan
    frame.columns = [name.replace("_", " ").title() for name in frame.columns]
    calls = fake_uci(monkeypatch, frame, "Class")
    first = data.hepatitis(cache_dir=tmp_path)
    again = data.hepatitis(cache_dir=tmp_path)
    assert calls == [46]
    np.testing.assert_array_equal(data.features(first)[0], data.features(again)[0])
    assert first["fatigue"][0] is None
    assert [path.suffix for path in (tmp_path / "uci").iterdir()] == [".parquet"]


def test_without_a_network_the_message_names_the_files_to_provide(data, tmp_path, monkeypatch):
    def fail(id):
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "ucimlrepo", types.SimpleNamespace(fetch_ucirepo=fail))
    with pytest.raises(data.DataUnavailable, match=r"UCI.*uci/bank_full\.csv.*--data-dir"):
        data.bank(cache_dir=tmp_path)
    assert not list(tmp_path.rglob("*.parquet"))


def reviews(tmp_path, lines):
    (tmp_path / "imdb").mkdir()
    for part in ("train", "test"):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / "imdb" / f"{part}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_reviews_have_the_layout_of_the_hub(data, tmp_path):
    lines = [{"text": "good", "label": 1}, {"text": "bad", "label": 0}]
    found = data.imdb(reviews(tmp_path, lines), cache_dir=tmp_path / "cache")
    assert found["train"].features["label"].names == ["neg", "pos"]
    assert found["test"]["text"][:] == ["good", "bad"]
    assert found["test"]["label"][:] == [1, 0]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("line", [["a", 1], {"text": "secret"}, {"text": "secret", "label": 7}])
def test_malformed_reviews_are_refused_without_their_text(data, tmp_path, line):
    with pytest.raises(data.MalformedData) as caught:
        data.imdb(reviews(tmp_path, [line]), cache_dir=tmp_path / "cache")
    assert "secret" not in str(caught.value)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "rows", "positive"),
    [
        ("adult", 48_842, 11_687),
        ("bank", 45_211, 5_289),
        ("breast_cancer", 569, 212),
        ("debrecen", 1_151, 611),
        ("hepatitis", 155, 32),
        ("pima", 768, 268),
    ],
)
def test_the_known_files_have_their_known_sizes_and_check_sums(
    data, real_data, name, rows, positive
):
    if not (real_data / "uci").is_dir():
        pytest.skip("no UCI tables beside the real vectors")
    with warnings.catch_warnings():
        warnings.simplefilter("error", data.UnknownFile)
        X, y, _ = data.features(getattr(data, name)(real_data))
    assert (len(X), y.sum()) == (rows, positive)
