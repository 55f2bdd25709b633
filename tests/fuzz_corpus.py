"""Fuzz corpus files: no traceback, no lost good record, no private text in a message.

Not part of the test run. What it finds becomes a test in ``test_formats.py``:

    python tests/fuzz_corpus.py --minutes 30

Every example makes a file of good records, bad records and damage, and runs it through ``privatize_corpus`` with a
stand-in for the privatizer. It then reads the output back by another way than the program does.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import json
import os
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from echo import Echo
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from textpriv.corpus import ColumnRule, privatize_corpus
from textpriv.corpus.records import MAX_TEXT_BYTES
from textpriv.errors import TextprivError

SECRET = "zanzibar"


# Files

TEXT = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(
        [
            "",
            SECRET,
            "a,b",
            'say "x"',
            "a\nb",
            "a\r\nb",
            "a\rb",
            "\x85\u2028",
            "\0",
            "\ud800",
            "\ufeff",
            "x" * 300,
        ]
    ),
)
VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    TEXT,
    st.lists(st.integers(), max_size=2),
    st.dictionaries(TEXT, st.integers(), max_size=2),
)
ODD_LINES = [
    *[
        b"",
        b" ",
        b"{}",
        b"[]",
        b"null",
        b"NaN",
        b"1e999",
        b'"',
        b"a,b,c,d",
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
    ],
    *[b'{"text":1e999}', b'{"text":"a","text":"b"}', b'{"text":"\\ud800"}', b'{"text":"a"} x'],
    *[b'{"text":"a","x":1e999}', b'{"text":"a","x":-0.0}', b'{"text":"a","x":NaN}'],
    *[b'{"text":"a","n":' + b"9" * 5000 + b"}", b'{"text":"' + b"z" * 9000 + b'"}', b"[" * 5000],
    *[f'{{"text":"{SECRET}'.encode(), f'"{SECRET}'.encode(), f'"{SECRET}" x'.encode()],
]
LINES = st.one_of(st.binary(max_size=60), st.sampled_from(ODD_LINES))
ENDS = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"", b"\n\n", b"\r"])


@st.composite
def lines_file(draw) -> bytes:
    kind = draw(st.sampled_from(["json", "csv", "raw"]))
    parts = []
    if kind == "csv" or draw(st.booleans()):
        header = draw(
            st.sampled_from(
                ["text\n", "id,text\n", "text,id\r\n", "\ufefftext,x\n", '"text"\n', "body\n"]
            )
        )
        parts.append(header.encode())
    for _ in range(draw(st.integers(0, 8))):
        choice = draw(st.integers(0, 3))
        if choice == 0:
            parts.append(draw(LINES) + draw(ENDS))
        elif kind == "json":
            record = draw(st.dictionaries(TEXT, VALUE, max_size=3))
            record["text"] = draw(st.one_of(TEXT, TEXT, TEXT, VALUE))
            dumped = json.dumps(record, ensure_ascii=draw(st.booleans()))
            parts.append(dumped.encode("utf-8", "surrogatepass") + draw(ENDS))
        elif kind == "csv":
            row = io.StringIO(newline="")
            quoting = draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
            csv.writer(row, quoting=quoting).writerow(draw(st.lists(TEXT, min_size=1, max_size=3)))
            parts.append(row.getvalue().encode("utf-8", "surrogatepass"))
        else:
            parts.append(draw(TEXT).encode("utf-8", "surrogatepass") + draw(ENDS))
    return b"".join(parts)


@st.composite
def parquet_file(draw) -> bytes:
    size = draw(st.integers(0, 8))
    texts = [
        draw(st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=12)))
        for _ in range(size)
    ]
    kind = draw(
        st.sampled_from(
            [
                "string",
                "large",
                "dictionary",
                "binary",
                "int",
                "list",
                "broken",
                "missing",
                "view",
                "null",
            ]
        )
    )
    if kind == "broken":
        raw = [None if text is None else text.encode()[:-1] + b"\xff" for text in texts]
        column = (
            pa.array(raw, pa.binary()).cast(pa.string(), safe=False)
            if raw
            else pa.array([], pa.string())
        )
    elif kind in ("int", "list"):
        column = pa.array([None if t is None else len(t) for t in texts], pa.int32())
    elif kind == "null":
        column = pa.nulls(size)
    elif kind == "view":
        column = pa.array(texts, pa.string_view())
    else:
        column = pa.array(texts, pa.large_string() if kind == "large" else pa.string())
        column = column.dictionary_encode() if kind == "dictionary" else column
        column = column.cast(pa.binary()) if kind == "binary" else column
    columns = {
        "body" if kind == "missing" else "text": column,
        "id": pa.array(range(size), pa.int64()),
    }
    if draw(st.booleans()):
        columns["more"] = pa.array([[n] for n in range(size)], pa.list_(pa.int8()))
        columns["tag"] = pa.array(["a" if n % 2 else None for n in range(size)]).dictionary_encode()
    out = io.BytesIO()
    try:
        pq.write_table(pa.table(columns), out, row_group_size=draw(st.integers(1, 4)))
    except pa.ArrowException:
        return b""
    return out.getvalue()


@st.composite
def case(draw):
    format = draw(st.sampled_from(["jsonl", "csv", "txt", "parquet"]))
    content = draw(parquet_file() if format == "parquet" else lines_file())
    packing = "" if format == "parquet" else draw(st.sampled_from(["", "", ".gz"]))
    packed = content
    if packing == ".gz":
        packed = gzip.compress(content, mtime=0)
    damaged = draw(st.integers(0, 3)) == 0 and bool(packed)
    if damaged:
        place = draw(st.integers(0, len(packed) - 1))
        how = draw(st.sampled_from(["flip", "cut", "insert", "zero"]))
        if how == "flip":
            packed = (
                packed[:place]
                + bytes([packed[place] ^ (1 << draw(st.integers(0, 7)))])
                + packed[place + 1 :]
            )
        elif how == "cut":
            packed = packed[:place]
        elif how == "insert":
            packed = packed[:place] + draw(st.binary(min_size=1, max_size=4)) + packed[place:]
        else:
            packed = packed[:place] + bytes(min(8, len(packed) - place)) + packed[place + 8 :]
    if not packing and format != "parquet":
        content, damaged = packed, False
    return {
        "name": f"a.{format}{packing}",
        "packed": packed,
        "content": None if damaged else content,
        "options": {
            "on_error": draw(st.sampled_from(["fail", "skip", "skip", "quarantine"])),
            "batch_size": draw(st.integers(1, 4)),
            "part_records": draw(st.integers(1, 5)),
            "columns": ColumnRule(drop=draw(st.sampled_from([(), ("id",), ("*",)]))),
        },
    }


# What must come out


def _usable(text, limit) -> bool:
    if text is None:
        return True
    if not isinstance(text, str) or "\0" in text:
        return False
    try:
        return len(text.encode("utf-8")) <= limit
    except UnicodeEncodeError:
        return False


def good_texts(name: str, content: bytes, limit: int) -> list[str | None] | None:
    """The texts of the good records of a file by another way; None where this reader cannot tell either."""
    kind = name.split(".")[1]
    if kind == "parquet":
        try:
            table = pq.read_table(io.BytesIO(content))
            if table.schema.names.count("text") != 1:
                return []
            column = table["text"].combine_chunks()
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            if not any(
                test(column.type)
                for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
            ):
                return [None] * column.null_count
            found = []
            for value in column.cast(pa.large_binary()).to_pylist():
                try:
                    text = None if value is None else value.decode()
                except UnicodeDecodeError:
                    continue
                if _usable(text, limit):
                    found.append(text)
            return found
        except (pa.ArrowException, OSError):
            return None
    content = content.removeprefix(b"\xef\xbb\xbf")
    if kind == "csv":
        try:
            rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True))
        except (UnicodeDecodeError, csv.Error):
            return None
        if b"\0" in content or not rows or rows[0].count("text") != 1:
            return None
        place = rows[0].index("text")
        return [
            row[place]
            for row in rows[1:]
            if len(row) == len(rows[0]) and _usable(row[place], limit)
        ]
    found = []
    for line in content.split(b"\n")[: None if not content.endswith(b"\n") else -1]:
        if kind == "txt":
            if not content:
                continue
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                continue
            text = text.removesuffix("\r")
            if len(line) <= limit and _usable(text, limit):
                found.append(text)
            continue
        if not line.strip() or b"\0" in line or len(line) > 8 * limit:
            continue
        try:
            record = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and "text" in record and _usable(record["text"], limit):
            found.append(record["text"])
    return found


def written_texts(path: Path) -> list[str | None]:
    kind = path.name.split(".")[1]
    if kind == "parquet":
        column = pq.read_table(path)["text"]
        return column.to_pylist()
    content = path.read_bytes()
    if kind == "csv":
        rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True))
        return [row[rows[0].index("text")] for row in rows[1:]]
    lines = content.split(b"\n")[:-1]
    if kind == "txt":
        return [line.decode() for line in lines]
    return [json.loads(line)["text"] for line in lines]


def as_written(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    text = f"[{text}]"
    return text.replace("\r", " ").replace("\n", " ") if ".txt" in name else text


def check(example: dict) -> str:
    """Run one example; returns what came of it, and raises where something is wrong."""
    name, options = example["name"], example["options"]
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.path.isdir("/dev/shm") else None
    ) as folder:
        source = Path(folder) / name
        source.write_bytes(example["packed"])
        target = Path(folder) / f"out.{name.split('.')[1]}"
        try:
            report = privatize_corpus(source, target, Echo(), **options)
        except TextprivError as refusal:
            told = str(refusal)
        else:
            told = None
        if told is not None:
            assert SECRET not in told, "a message quotes a text"
            assert not target.exists(), "a failed run left an output"
            left = [each.name for each in Path(folder).iterdir() if each.suffix != ".partial"]
            assert left == [name], f"a failed run left {left}"
            return "refused"
        wanted = None
        if example["content"] is not None:
            wanted = good_texts(name, example["content"], MAX_TEXT_BYTES)
        if report.documents:
            texts = written_texts(target)
            assert len(texts) == report.documents, "the report counts otherwise"
        else:
            texts = []
        if wanted is not None:
            assert texts == [as_written(name, text) for text in wanted], "records differ"
        if options["on_error"] == "quarantine" and report.skipped:
            aside = [json.loads(line) for line in Path(report.quarantine).read_bytes().splitlines()]
            assert Counter(row["reason"] for row in aside) == Counter(report.skipped)
        # The bytes are a function of the records: other batches and parts give the same.
        if example["content"] is None and ".parquet" in name:
            return "released"  # damage that one way of reading passes over may stop another
        again = Path(folder) / f"again.{target.name}"
        # A part of Parquet is a group of rows.
        more = {"batch_size": 3} if ".parquet" in name else {"batch_size": 3, "part_records": 100}
        privatize_corpus(source, again, Echo(), **{**options, **more})
        assert again.read_bytes() == target.read_bytes(), "the bytes depend on the batches"
        return "released"


def main() -> None:
    """Fuzz for some minutes; print what was found, and exit 1 if anything was."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--examples", type=int, default=2000, help="in one round")
    parser.add_argument("--seed", type=int, default=1)
    given_options = parser.parse_args()
    end = time.monotonic() + 60 * given_options.minutes
    came: Counter[str] = Counter()
    found: dict[str, str] = {}
    for number in itertools.count(given_options.seed):
        if time.monotonic() >= end:
            break

        @seed(number)
        @settings(
            max_examples=given_options.examples,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(case())
        def round_of_examples(example):
            if time.monotonic() < end:
                came[check(example)] += 1

        try:
            round_of_examples()
        except BaseException as error:  # also what hypothesis groups
            if isinstance(error, KeyboardInterrupt):
                raise
            shown = "".join(traceback.format_exception(error, chain=False))
            # By the message without numbers: shrinking gives each find many faces.
            place = re.sub(r"[0-9]+|/[^ ]*", "", f"{type(error).__name__}: {str(error)[:120]}")
            if place not in found:
                found[place] = shown
                print(f"round {number}: {shown}", flush=True)
        print(f"round {number}: {dict(came)}, {len(found)} kind(s) of findings", flush=True)
    print(f"{sum(came.values()):,} examples: {dict(came)}; findings: {len(found)}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
