"""The public data sets of the recipes as ``datasets.Dataset``, checked, with public bounds for scaling.

Here live where each set comes from (a local copy, scikit-learn, or the network), what its columns may hold, the fixed
bounds by which its numbers are scaled, and the check sums of known files. Nothing here is private or learns anything.

    from data import imdb, pima, features
    reviews = imdb("../shared/data")["train"]        # columns text, label
    X, y, names = features(pima("../shared/data"))   # numbers in [-1, 1] by public bounds, labels 0 and 1

``data_dir`` holds ``imdb/train.jsonl.gz`` and ``imdb/test.jsonl.gz``, and ``uci/NAME.csv.gz`` (also without the folder or
the packing). Without it IMDB comes from the Hugging Face hub, the tables from UCI or OpenML, and the diagnostic breast
cancer set from scikit-learn, which needs no network.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset, DatasetDict

__all__ = [
    "SETS",
    "Category",
    "DataUnavailable",
    "MalformedData",
    "Number",
    "Table",
    "adult",
    "bank",
    "breast_cancer",
    "debrecen",
    "features",
    "hepatitis",
    "imdb",
    "pima",
]


class DataUnavailable(RuntimeError):
    """A data set is neither in the given folder nor to be had from the network."""


class MalformedData(ValueError):
    """A file does not have the columns or values that its set is known for."""


class UnknownFile(UserWarning):
    """A local file has the right columns, yet not the check sum of the known file."""


@dataclass(frozen=True)
class Number:
    """A numeric column: what lies outside [low, high] is cut, ``missing`` becomes NaN."""

    low: float
    high: float
    missing: tuple[str, ...] = ("?", "")


@dataclass(frozen=True)
class Category:
    """A column of few values; ``missing`` values are encoded by zeros."""

    values: tuple[str, ...]
    missing: tuple[str, ...] = ("?", "")


@dataclass(frozen=True)
class Table:
    """What is public about one set.

    Attributes
    ----------
    name : str
    files : dict of file stem to sha256 of the known packed copy
    columns : dict of column to Number or Category, the target left out
    target : str
    classes : dict of raw label to class name
        In raw labels a final full stop is dropped.
    labels : tuple of 2 str
        Class names, the positive one last.
    origin : str
        Where the network copy lies: ``uci:ID``, ``openml:ID`` or ``sklearn``.
    bounds_from : str
        What the bounds rest on.
    ignored : tuple of str
        Columns that are dropped, such as record numbers.
    """

    name: str
    files: Mapping[str, str]
    columns: Mapping[str, Number | Category]
    target: str
    classes: Mapping[str, str]
    labels: tuple[str, str]
    origin: str
    bounds_from: str
    ignored: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)


_YES_NO = Category(("no", "yes"))
_ONE_TWO = Category(("1", "2"))
_CELLS = (
    ("radius", 40.0, 4.0),
    ("texture", 50.0, 5.0),
    ("perimeter", 250.0, 25.0),
    ("area", 5000.0, 500.0),
    ("smoothness", 0.25, 0.05),
    ("compactness", 1.0, 0.2),
    ("concavity", 1.0, 0.5),
    ("concave_points", 0.5, 0.1),
    ("symmetry", 0.5, 0.1),
    ("fractal_dimension", 0.2, 0.05),
)

SETS: dict[str, Table] = {
    "pima": Table(
        name="pima",
        files={
            "pima_indians_diabetes": "c065448bb2dab500b1d9ced0afed23bada66edf79180aba7050e3c109a19bbcf"
        },
        # A zero stands for a missing value where a living patient cannot have it.
        columns={
            "pregnancies": Number(0, 20),
            "glucose": Number(0, 200, ("?", "", "0")),
            "blood_pressure": Number(0, 200, ("?", "", "0")),
            "skin_thickness": Number(0, 100, ("?", "", "0")),
            "insulin": Number(0, 1000, ("?", "", "0")),
            "bmi": Number(0, 70, ("?", "", "0", "0.0")),
            "diabetes_pedigree": Number(0, 2.5),
            "age": Number(21, 100),
        },
        target="outcome",
        classes={"0": "no", "1": "yes", "tested_negative": "no", "tested_positive": "yes"},
        labels=("no", "yes"),
        origin="openml:37",
        bounds_from="round ranges of the scales of measurement; age from 21 by the set's description",
        aliases={
            "preg": "pregnancies",
            "plas": "glucose",
            "pres": "blood_pressure",
            "skin": "skin_thickness",
            "insu": "insulin",
            "mass": "bmi",
            "pedi": "diabetes_pedigree",
            "class": "outcome",
        },
    ),
    "debrecen": Table(
        name="debrecen",
        files={
            "diabetic_retinopathy_debrecen": (
                "9f01b65145ce7982d953530e59c926a8681219929b73b89c0cc0bc6087f1dc1c"
            )
        },
        columns={
            "quality": Number(0, 1),
            "pre_screening": Number(0, 1),
            **{f"ma_{i}": Number(0, 100) for i in range(1, 7)},
            **{
                f"exudate_{i}": Number(0, high)
                for i, high in enumerate((100, 100, 100, 10, 10, 1, 1, 1), start=1)
            },
            "macula_opticdisc_distance": Number(0, 1),
            "opticdisc_diameter": Number(0, 0.25),
            "am_fm_classification": Number(0, 1),
        },
        target="class",
        classes={"0": "no signs", "1": "signs"},
        labels=("no signs", "signs"),
        origin="uci:329",
        bounds_from=(
            "binary columns and ratios by the set's description; counts up to 100; exudate areas up to a power of ten "
            "that falls with the confidence level"
        ),
    ),
    "breast_cancer": Table(
        name="breast_cancer",
        files={
            "breast_cancer_wdbc": "cbb06fd2ca14e20987544551b102fdbb336e7e00fcab9d3cea2f394085c8d8e9"
        },
        columns={
            f"{cell}_{kind}": Number(0, deviation if kind == "se" else high)
            for kind in ("mean", "se", "worst")
            for cell, high, deviation in _CELLS
        },
        target="diagnosis",
        classes={"B": "benign", "M": "malignant"},
        labels=("benign", "malignant"),
        origin="sklearn",
        bounds_from="from zero to the published maxima in scikit-learn's description of the set, made round",
        ignored=("id",),
    ),
    "hepatitis": Table(
        name="hepatitis",
        files={"hepatitis": "ebcb62fab84deaf43aa6bad466ea3074fb925b5e9dffe881fadde5363a97601c"},
        columns={
            "age": Number(0, 80),
            "sex": _ONE_TWO,
            **dict.fromkeys(
                (
                    "steroid antivirals fatigue malaise anorexia liver_big liver_firm spleen_palpable spiders ascites "
                    "varices"
                ).split(),
                _ONE_TWO,
            ),
            "bilirubin": Number(0.39, 4.0),
            "alk_phosphate": Number(33, 250),
            "sgot": Number(13, 500),
            "albumin": Number(2.1, 6.0),
            "protime": Number(0, 100),
            "histology": _ONE_TWO,
        },
        target="class",
        classes={"1": "die", "2": "live"},
        labels=("live", "die"),
        origin="uci:46",
        bounds_from="first and last of the values listed in the set's description; protime a percentage",
    ),
    "adult": Table(
        name="adult",
        files={
            "adult_train": "a833df349bf96e939cb2de65a084d3a21cd64c4781a95551430453ac6892bb3b",
            "adult_test": "95fbe3f0f81f755da5f346eccf1feb05769f37e048afc4c3f4ed5ce6c24d8e9c",
        },
        columns={
            "age": Number(17, 90),
            "workclass": Category(
                tuple(
                    "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked".split()
                )
            ),
            "fnlwgt": Number(0, 1_000_000),
            "education": Category(
                tuple(
                    "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th "
                    "10th Doctorate 5th-6th Preschool".split()
                )
            ),
            "education_num": Number(1, 16),
            "marital_status": Category(
                tuple(
                    "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
                    "Married-AF-spouse".split()
                )
            ),
            "occupation": Category(
                tuple(
                    "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
                    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
                    "Armed-Forces".split()
                )
            ),
            "relationship": Category(
                tuple("Wife Own-child Husband Not-in-family Other-relative Unmarried".split())
            ),
            "race": Category(
                tuple("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black".split())
            ),
            "sex": Category(("Female", "Male")),
            "capital_gain": Number(0, 99_999),
            "capital_loss": Number(0, 5_000),
            "hours_per_week": Number(1, 99),
            "native_country": Category(
                tuple(
                    "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan "
                    "Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal "
                    "Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua "
                    "Scotland Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands".split()
                )
            ),
        },
        target="income",
        classes={"<=50K": "<=50K", ">50K": ">50K"},
        labels=("<=50K", ">50K"),
        origin="uci:2",
        bounds_from="top codes and scales of the census questionnaire; categories by the set's description",
    ),
    "bank": Table(
        name="bank",
        files={"bank_full": "ddeab86c614f430c22e5903d9d62356dc78bb4ff54bd6c20f2392b97041d5647"},
        columns={
            "age": Number(18, 100),
            "job": Category(
                tuple(
                    "admin. blue-collar entrepreneur housemaid management retired self-employed services student technician "
                    "unemployed".split()
                ),
                ("unknown", ""),
            ),
            "marital": Category(("divorced", "married", "single")),
            "education": Category(("primary", "secondary", "tertiary"), ("unknown", "")),
            "default": _YES_NO,
            "balance": Number(-10_000, 10_000),
            "housing": _YES_NO,
            "loan": _YES_NO,
            "contact": Category(("cellular", "telephone"), ("unknown", "")),
            "day": Number(1, 31),
            "month": Category(tuple("jan feb mar apr may jun jul aug sep oct nov dec".split())),
            # Seconds of the last call, cut at half an hour; days since the last campaign, -1 for never.
            "duration": Number(0, 1_800),
            "campaign": Number(1, 10),
            "pdays": Number(-1, 365),
            "previous": Number(0, 10),
            "poutcome": Category(("failure", "other", "success"), ("unknown", "")),
        },
        target="y",
        classes={"no": "no", "yes": "yes"},
        labels=("no", "yes"),
        origin="uci:222",
        bounds_from="round numbers for the units in the set's description; categories by the same",
        aliases={"dayofweek": "day"},
    ),
}


# --------------------------------------------------------------------------------------------------------------------
# One function per set


def imdb(data_dir: str | Path | None = None, cache_dir: str | Path | None = None) -> DatasetDict:
    """Return the Large Movie Review Dataset in the layout of ``stanfordnlp/imdb``.

    Parameters
    ----------
    data_dir : path, optional
        Folder that holds ``imdb/train.jsonl.gz`` and ``imdb/test.jsonl.gz``, or these files without the folder. Without it
        the set comes from the Hugging Face hub.
    cache_dir : path, optional
        Where ``datasets`` keeps its Arrow copy; default its own cache.

    Returns
    -------
    datasets.DatasetDict
        Splits ``train`` and ``test`` of 25,000 rows, columns ``text`` (string) and ``label`` (0 neg, 1 pos).

    Raises
    ------
    DataUnavailable, MalformedData
    """
    import datasets

    schema = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    )
    if data_dir is None:
        try:
            found = datasets.load_dataset("stanfordnlp/imdb", cache_dir=_text(cache_dir))
        except Exception as error:  # the hub client raises many kinds
            raise DataUnavailable(
                _offline("IMDB", "the Hugging Face hub", "imdb/*.jsonl")
            ) from error
        return datasets.DatasetDict({split: found[split] for split in ("train", "test")})
    files = {split: _local(Path(data_dir), "imdb", split, "jsonl") for split in ("train", "test")}
    for split, path in files.items():
        _check_sum(path, _IMDB_FILES[split])
        _check_reviews(path)
    try:
        found = datasets.load_dataset(
            "json",
            data_files={split: str(path) for split, path in files.items()},
            features=schema,
            cache_dir=_text(cache_dir),
        )
    except Exception as error:
        raise MalformedData(_REVIEW_LINES.format(data_dir)) from error
    for split in files:
        labels = np.array(found[split].data["label"].to_pylist(), dtype=object)
        texts = found[split].data["text"].null_count
        if texts or not np.isin(labels, (0, 1)).all():
            raise MalformedData(_REVIEW_LINES.format(f"{data_dir}, {split}"))
    return found


def adult(data_dir: str | Path | None = None, cache_dir: str | Path | None = None) -> Dataset:
    """Return Adult (census income): 48,842 rows, both original parts; target ``income``."""
    return _table("adult", data_dir, cache_dir)


def bank(data_dir: str | Path | None = None, cache_dir: str | Path | None = None) -> Dataset:
    """Return Bank Marketing (``bank-full``): 45,211 rows; target ``y``."""
    return _table("bank", data_dir, cache_dir)


def pima(data_dir: str | Path | None = None, cache_dir: str | Path | None = None) -> Dataset:
    """Return Pima Indians Diabetes: 768 rows; target ``outcome``."""
    return _table("pima", data_dir, cache_dir)


def debrecen(data_dir: str | Path | None = None, cache_dir: str | Path | None = None) -> Dataset:
    """Return Diabetic Retinopathy Debrecen: 1,151 rows; target ``class``."""
    return _table("debrecen", data_dir, cache_dir)


def hepatitis(data_dir: str | Path | None = None, cache_dir: str | Path | None = None) -> Dataset:
    """Return Hepatitis: 155 rows; target ``class``."""
    return _table("hepatitis", data_dir, cache_dir)


def breast_cancer(
    data_dir: str | Path | None = None, cache_dir: str | Path | None = None
) -> Dataset:
    """Return Breast Cancer Wisconsin (Diagnostic): 569 rows; target ``diagnosis``. Ships with scikit-learn."""
    return _table("breast_cancer", data_dir, cache_dir)


def features(
    dataset: Dataset, table: Table | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
    """Return records scaled by public bounds alone.

    Parameters
    ----------
    dataset : datasets.Dataset
        Of one of the functions of this module.
    table : Table, optional
        Columns and bounds; default what the set is known by.

    Returns
    -------
    X : (n, d) array
        A number v becomes 2 (v − low)/(high − low) − 1, cut to [−1, 1]; a missing one 0. A category of k values becomes
        k columns of 0 and 1; one of two values a single column of −1 and 1; a missing one zeros.
    y : (n,) array
        0 and 1, the positive class last in ``Table.labels``.
    names : list of d str
    """
    table = SETS[dataset.info.config_name or ""] if table is None else table
    parts: list[NDArray[np.float64]] = []
    names: list[str] = []
    frame = dataset.to_pandas()
    for name, kind in table.columns.items():
        if isinstance(kind, Number):
            values = frame[name].to_numpy(dtype=np.float64)
            scaled = np.clip(2.0 * (values - kind.low) / (kind.high - kind.low) - 1.0, -1.0, 1.0)
            parts.append(np.nan_to_num(scaled, nan=0.0)[:, None])
            names.append(name)
            continue
        present = np.column_stack([(frame[name] == value).to_numpy() for value in kind.values])
        if len(kind.values) == 2:
            parts.append((present[:, 1].astype(float) - present[:, 0].astype(float))[:, None])
            names.append(f"{name}={kind.values[1]}")
        else:
            parts.append(present.astype(float))
            names.extend(f"{name}={value}" for value in kind.values)
    return np.hstack(parts), frame[table.target].to_numpy(dtype=np.int64), names


# --------------------------------------------------------------------------------------------------------------------
# Finding, checking, keeping

_REVIEW_LINES = "{}: every line of the review files must be {{text, label}} with label 0 or 1."
_IMDB_FILES = {
    "train": "b946f309afcea57ce2603bc38808127a04abf4eef682753e2bce767aa9104294",
    "test": "068427d1fd95d404caa84e4b4c286768472523a59ec9feae11e07aed67e39c38",
}


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def _offline(what: str, where: str, files: str) -> str:
    return (
        f"{what} could not be fetched from {where}. Without a network, put {files} into a folder and name it: "
        "--data-dir DIR."
    )


def _local(data_dir: Path, folder: str, stem: str, suffix: str) -> Path:
    for place in (data_dir / folder, data_dir):
        for ending in (f"{suffix}.gz", suffix):
            path = place / f"{stem}.{ending}"
            if path.is_file():
                return path
    raise DataUnavailable(
        f"{data_dir} holds neither {folder}/{stem}.{suffix}.gz nor {folder}/{stem}.{suffix}. Name the folder that does: "
        "--data-dir DIR."
    )


def _check_sum(path: Path, expected: str) -> None:
    # The sums are those of packed copies: an unpacked one is checked by its columns alone.
    if path.suffix != ".gz":
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        warnings.warn(
            f"{path.name} has the sha256 {found[:12]}…, the known copy has {expected[:12]}…: figures may differ.",
            UnknownFile,
            stacklevel=4,
        )


def _check_reviews(path: Path) -> None:
    """Check the first line only; ``datasets`` casts the rest by the schema."""
    import gzip

    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8") as file:
            first = json.loads(next(iter(file)))
    except (StopIteration, ValueError, OSError) as error:
        raise MalformedData(f"{path.name}: line 1 is no JSON object.") from error
    if not isinstance(first, dict) or not {"text", "label"} <= set(first):
        raise MalformedData(f"{path.name}: line 1 must hold the keys text and label.")


def _table(name: str, data_dir: str | Path | None, cache_dir: str | Path | None) -> Dataset:
    table = SETS[name]
    if data_dir is not None:
        import pandas as pd

        parts = []
        for stem, expected in table.files.items():
            path = _local(Path(data_dir), "uci", stem, "csv")
            _check_sum(path, expected)
            try:
                raw = pd.read_csv(path, dtype=str, keep_default_na=False, skipinitialspace=True)
            except (ValueError, OSError, EOFError) as error:
                raise MalformedData(f"{path.name} cannot be read as CSV: {error}") from error
            parts.append(_checked(raw, table, path.name))
        return _dataset(pd.concat(parts, ignore_index=True), table)
    if table.origin == "sklearn":
        return _dataset(_checked(_from_sklearn(), table, "scikit-learn"), table)
    return _fetched(table, cache_dir)


def _canonical(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _checked(raw: pd.DataFrame, table: Table, source: str) -> pd.DataFrame:
    """Return typed columns in the set's order; raise where a column or value is none of this set's."""
    import pandas as pd

    wanted = {_canonical(name): name for name in (*table.columns, table.target)}
    wanted |= {_canonical(alias): name for alias, name in table.aliases.items()}
    named = {column: wanted.get(_canonical(str(column)), str(column)) for column in raw.columns}
    raw = raw.rename(columns=named)
    missing = [name for name in (*table.columns, table.target) if name not in raw.columns]
    extra = [c for c in raw.columns if c not in {*table.columns, table.target, *table.ignored}]
    if missing or extra:
        raise MalformedData(
            f"{source} does not have the columns of {table.name}: "
            + "; ".join(
                f"{word} {', '.join(map(str, some))}"
                for word, some in (("missing", missing), ("unknown", extra))
                if some
            )
        )
    typed: dict[str, pd.Series] = {}
    for name, kind in table.columns.items():
        values = raw[name].astype(object).fillna("").astype(str).str.strip()
        absent = values.isin(kind.missing)
        if isinstance(kind, Number):
            numbers = pd.to_numeric(values.mask(absent), errors="coerce")
            _refuse(~absent & ~np.isfinite(numbers), name, "a number", source)
            typed[name] = numbers.astype("float64")
        else:
            # A number read as 1.0 by a client is the category 1.
            values = values.str.replace(r"^(\d+)\.0$", r"\1", regex=True)
            _refuse(~absent & ~values.isin(kind.values), name, f"one of {kind.values}", source)
            typed[name] = values.mask(absent)
    labels = raw[table.target].fillna("").astype(str).str.strip().str.removesuffix(".")
    labels = labels.str.replace(r"^(\d+)\.0$", r"\1", regex=True)
    _refuse(
        ~labels.isin(list(table.classes)), table.target, f"one of {tuple(table.classes)}", source
    )
    typed[table.target] = labels.map(
        {label: table.labels.index(name) for label, name in table.classes.items()}
    ).astype("int64")
    return pd.DataFrame(typed)


def _refuse(wrong: pd.Series, column: str, expected: str, source: str) -> None:
    rows = np.flatnonzero(wrong.to_numpy())
    if len(rows):
        raise MalformedData(
            f"{source}: row {rows[0] + 1} of column {column} must be {expected}; {len(rows)} rows are not."
        )


def _dataset(frame: pd.DataFrame, table: Table) -> Dataset:
    import datasets

    kinds: dict[str, object] = {
        name: datasets.Value("float64" if isinstance(kind, Number) else "string")
        for name, kind in table.columns.items()
    }
    kinds[table.target] = datasets.ClassLabel(names=list(table.labels))
    info = datasets.DatasetInfo(
        description=f"{table.name}; bounds: {table.bounds_from}",
        dataset_name="uci",
        config_name=table.name,
        features=datasets.Features(kinds),
    )
    return datasets.Dataset.from_pandas(
        frame, features=datasets.Features(kinds), info=info, preserve_index=False
    )


def _from_sklearn() -> pd.DataFrame:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer(as_frame=True)
    frame = bunch.data.copy()
    frame.columns = [
        (f"{name[5:]}_mean" if name.startswith("mean") else name.replace("error", "se")).replace(
            " ", "_"
        )
        if not name.startswith("worst")
        else f"{name[6:]}_worst".replace(" ", "_")
        for name in frame.columns
    ]
    frame["diagnosis"] = np.where(bunch.target == 1, "B", "M")
    return frame


def _fetched(table: Table, cache_dir: str | Path | None) -> Dataset:
    """Return the network copy, kept as Parquet under a name that holds the set's schema."""
    import datasets
    import pandas as pd

    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / "uci"
    schema = json.dumps([table.name, list(table.columns), sorted(table.classes)])
    key = hashlib.sha256(schema.encode()).hexdigest()[:16]
    kept = folder / f"{table.name}-{key}.parquet"
    if kept.is_file():
        return _dataset(pd.read_parquet(kept), table)
    source, _, number = table.origin.partition(":")
    try:
        raw = _FETCH[source](int(number))
    except Exception as error:  # the clients raise many kinds
        files = ", ".join(f"uci/{stem}.csv" for stem in table.files)
        raise DataUnavailable(_offline(table.name, _PLACES[source], files)) from error
    frame = _checked(raw, table, f"the copy at {_PLACES[source]}")
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".parquet")
    os.close(handle)
    try:
        frame.to_parquet(temporary)
        os.replace(temporary, kept)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return _dataset(frame, table)


def _from_uci(number: int) -> pd.DataFrame:
    import ucimlrepo

    data = ucimlrepo.fetch_ucirepo(id=number).data
    return data.features.join(data.targets)


def _from_openml(number: int) -> pd.DataFrame:
    from sklearn.datasets import fetch_openml

    return fetch_openml(data_id=number, as_frame=True, parser="auto").frame


_FETCH: dict[str, Callable[[int], pd.DataFrame]] = {"uci": _from_uci, "openml": _from_openml}
_PLACES = {"uci": "the UCI repository", "openml": "OpenML"}
