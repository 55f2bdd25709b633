"""Stores: objects of an S3 server are read and written like files, and runs over them are continued."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from echo import Echo
from small_corpora import rows, run, write

from textpriv.corpus import privatize_corpus

pytest.importorskip("s3fs")
moto_server = pytest.importorskip("moto.server")
TESTS = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server():
    started = moto_server.ThreadedMotoServer(port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"http://{host}:{port}"
    started.stop()


@pytest.fixture
def store(server, tmp_path, monkeypatch):
    """Return the file system of an empty bucket ``texts``, as the command finds it."""
    import s3fs

    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    found = s3fs.S3FileSystem()
    found.mkdir("texts")
    yield found
    found.rm("texts", recursive=True)
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", '{"text":"one"}\n{"text":"two"}\n', '{"text":"[one]"}\n{"text":"[two]"}\n'),
        ("a.csv", "text,n\none,1\n", "text,n\n[one],1\n"),
        ("a.txt", "one\ntwo\n", "[one]\n[two]\n"),
    ],
)
def test_every_format_is_read_from_a_store_and_written_to_it(
    store, name, content, expected, packing, tmp_path
):
    (tmp_path / name).write_text(content)
    privatize_corpus(tmp_path / name, f"s3://texts/{name}{packing}", Echo())
    source, target = f"s3://texts/{name}{packing}", f"s3://texts/out/{name}"
    privatize_corpus(source, target, Echo())
    assert store.cat_file(f"texts/out/{name}").decode() == expected.replace("[", "[[").replace(
        "]", "]]"
    )


def test_a_long_line_of_a_store_is_read_in_pieces(store, tmp_path):
    store.pipe_file("texts/a.txt", b"x" * 30_000_000 + b"\none\n")
    options = {"on_error": "skip"}
    report = privatize_corpus("s3://texts/a.txt", tmp_path / "b.txt", Echo(), **options)
    assert (report.documents, report.skipped) == (1, {"too_large": 1})


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
from small_corpora import run
run(sys.argv[2], "s3://texts/raw.jsonl", "s3://texts/out.jsonl", key=sys.argv[3], resume=True,
    part_records=100, on_progress=lambda progress: print(progress.documents, flush=True))
"""


@pytest.mark.slow
def test_a_run_over_a_store_that_is_killed_twice_goes_on(store, index, tmp_path):
    source = write(tmp_path / "raw.jsonl", rows(4_000))
    store.put_file(str(source), "texts/raw.jsonl")
    command = [sys.executable, "-c", KILLED, str(TESTS), str(index), str(tmp_path / "key")]
    for most in (1_000, 2_500):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert any(int(line) >= most for line in process.stdout)
            os.kill(process.pid, signal.SIGKILL)
        assert not store.exists("texts/out.jsonl")
    options = {"part_records": 100, "key": tmp_path / "key", "resume": True}
    report = run(index, "s3://texts/raw.jsonl", "s3://texts/out.jsonl", **options)
    assert 2_000 < report.resumed < report.documents == 4_000
    run(index, source, tmp_path / "out.jsonl", **options)
    assert store.cat_file("texts/out.jsonl") == (tmp_path / "out.jsonl").read_bytes()
    assert json.loads(store.cat_file("texts/out.jsonl.manifest.json"))["documents"] == 4_000
