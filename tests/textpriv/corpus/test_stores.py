"""Corpora in object stores: what appears is whole, the manifest comes last, and requests that fail lose nothing."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import engine_runs
import numpy as np
import pytest
from echo import Echo
from engine_runs import run_apart

from textpriv import stores
from textpriv.corpus import privatize_corpus
from textpriv.errors import CorpusError
from textpriv.index import Index
from textpriv.run_key import RunKey, key_path
from textpriv.vocabulary import Vocabulary

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
from fsspec.implementations.memory import MemoryFileSystem  # noqa: E402

pytestmark = pytest.mark.usefixtures("without_torch")
WORDS = [a + b + c for a in "bdfgklm" for b in "aeiou" for c in "nrst"]


class Flaky(MemoryFileSystem):
    """A store that fails every so many requests; of those that write, half have done their work by then."""

    protocol = "flaky"
    cachable = False
    period = 5
    requests = failures = 0
    is_busy = False

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.replace("flaky://", "memory://"))

    def _failing(self, call, *given, **options):
        if Flaky.is_busy:  # a part of another request
            return call(*given, **options)
        Flaky.is_busy = True
        try:
            return self._requested(call, *given, **options)
        finally:
            Flaky.is_busy = False

    def _requested(self, call, *given, **options):
        Flaky.requests += 1
        if Flaky.requests % Flaky.period:
            return call(*given, **options)
        Flaky.failures += 1
        if Flaky.failures % 2:
            call(*given, **options)
        raise ConnectionError("zanzibar")


def _make_flaky(name: str) -> None:
    whole = getattr(MemoryFileSystem, name)
    setattr(Flaky, name, lambda self, *a, **b: self._failing(whole.__get__(self), *a, **b))


for _name in ("cat_file", "put_file", "info", "find", "isdir", "rm_file", "mv", "makedirs"):
    _make_flaky(_name)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch) -> Path:
    """Where this machine keeps what is not published; no store is waited for."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(stores, "_WAITS", (0.0,) * 5)
    return tmp_path / "state" / "textpriv" / "stores"


@pytest.fixture
def flaky(monkeypatch) -> type[Flaky]:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    monkeypatch.setattr(Flaky, "requests", 0)
    monkeypatch.setattr(Flaky, "failures", 0)
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return Flaky


def shards(folder: Path, extension: str = "jsonl", count: int = 3) -> Path:
    for number in range(count):
        path = folder / f"year={2025 + number}" / f"a.{extension}"
        path.parent.mkdir(parents=True)
        rng = np.random.default_rng(number)
        rows = [{"id": f"{number}-{n}", "text": " ".join(rng.choice(WORDS, 9))} for n in range(40)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def objects(url: str) -> dict[str, bytes]:
    return {name: stores.read(f"{url}/{name}") for name in stores.names_below(url)}


def upload(folder: Path, url: str) -> None:
    for name in bytes_of(folder):
        stores.put(folder / name, f"{url}/{name}")


# A store that fails


def test_a_store_that_fails_every_fifth_request_loses_nothing(tmp_path, flaky):
    upload(shards(tmp_path / "raw"), "flaky://raw")
    privatize_corpus(tmp_path / "raw", tmp_path / "out", Echo())
    report = privatize_corpus("flaky://raw/", "flaky://out", Echo())
    assert flaky.failures >= 5
    assert objects("flaky://out") == bytes_of(tmp_path / "out")
    assert (report.documents, report.files) == (120, 3)
    here, there = (
        json.loads(text)["files"]
        for text in (
            (tmp_path / "out.manifest.json").read_bytes(),
            stores.read("flaky://out.manifest.json"),
        )
    )
    assert here == there


def test_a_store_that_fails_for_good_is_named_and_the_run_goes_on_later(
    tmp_path, flaky, state, monkeypatch
):
    shards(tmp_path / "raw")
    with monkeypatch.context() as patch:
        patch.setattr(Flaky, "put_file", lambda *_, **__: 1 / 0)
        with pytest.raises(CorpusError, match=r"flaky://out/.* failed 6 times") as error:
            privatize_corpus(tmp_path / "raw", "flaky://out", Echo(), resume=False)
    assert "division" not in str(error.value)
    assert objects("flaky://out") == {}
    report = privatize_corpus(tmp_path / "raw", "flaky://out", Echo(), resume=True)
    assert report.resumed == 120
    assert len(objects("flaky://out")) == 3
    assert not list(state.glob("*/*.partial"))


def test_what_is_missing_or_forbidden_is_not_asked_for_again(tmp_path, flaky, monkeypatch):
    with pytest.raises(FileNotFoundError) as error:
        privatize_corpus("flaky://raw.jsonl", tmp_path / "out.jsonl", Echo())
    assert error.value.filename == "flaky://raw.jsonl"
    asked = []

    def forbid(*_, **__):
        asked.append(1)
        raise PermissionError("zanzibar")

    monkeypatch.setattr(Flaky, "put_file", forbid)
    (tmp_path / "in.txt").write_text("one\n")
    with pytest.raises(PermissionError, match=r"flaky://out\.txt") as refused:
        privatize_corpus(tmp_path / "in.txt", "flaky://out.txt", Echo())
    assert len(asked) == 1
    assert "zanzibar" not in str(refused.value)


def test_an_object_that_is_replaced_while_it_is_read_is_not_released(tmp_path, flaky):
    for name in ("old", "new"):
        (tmp_path / f"{name}.txt").write_text((name * 1000 + "\n") * 1000)
    stores.put(tmp_path / "old.txt", "flaky://raw.txt")
    replaced = []

    def replace(_):
        if not replaced:
            replaced.append(stores.put(tmp_path / "new.txt", "flaky://raw.txt"))

    with pytest.raises(CorpusError, match=r"raw\.txt was replaced"):
        privatize_corpus(
            "flaky://raw.txt", "flaky://out.txt", Echo(), batch_size=10, on_progress=replace
        )
    assert replaced
    assert stores.read("flaky://out.txt") is None


def test_a_run_is_not_continued_with_another_object_of_that_name(tmp_path, flaky):
    for content in ("one\n" * 40, "two\n" * 40):
        (tmp_path / "in.txt").write_text(content)
        stores.put(tmp_path / "in.txt", "flaky://in.txt")
        if content.startswith("one"):

            def stop(progress):
                raise KeyboardInterrupt

            options = {"part_records": 10, "batch_size": 10, "resume": False, "on_progress": stop}
            with pytest.raises(KeyboardInterrupt):
                privatize_corpus("flaky://in.txt", "flaky://out.txt", Echo(), **options)
    with pytest.raises(CorpusError, match=r"begun otherwise \(differing: input\)"):
        privatize_corpus("flaky://in.txt", "flaky://out.txt", Echo(), part_records=10, resume=True)


# What is seen, and what is not


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.txt.zst", "a.parquet"])
def test_a_file_in_a_store_comes_out_as_it_does_here(tmp_path, flaky, name):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from textpriv.corpus.records import compressed

    rows = [f"text {number}" for number in range(40)]
    lines = {
        "jsonl": "".join(json.dumps({"text": row}) + "\n" for row in rows),
        "csv": "text\n" + "".join(f"{row}\n" for row in rows),
        "txt": "".join(f"{row}\n" for row in rows),
    }
    source = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.table({"text": rows}), source, row_group_size=7)
    else:
        kind = {".gz": "gzip", ".zst": "zstd"}.get(source.suffix)
        with open(source, "wb") as raw, compressed(raw, kind) as out:
            out.write(lines[name.split(".")[1]].encode())
    stores.put(source, f"flaky://{name}")
    (tmp_path / "out").mkdir()
    privatize_corpus(source, tmp_path / "out" / name, Echo())
    privatize_corpus(f"flaky://{name}", f"flaky://out/{name}", Echo(), part_records=4)
    assert stores.read(f"flaky://out/{name}") == (tmp_path / "out" / name).read_bytes()


def test_where_an_object_appears_while_it_comes_it_is_renamed(tmp_path, monkeypatch):
    from fsspec.implementations.local import LocalFileSystem

    (tmp_path / "in.txt").write_text("one\n")
    url = f"file://{tmp_path}/new/out.txt"

    def half(self, path, written, **options):
        Path(written).write_text("[o")
        assert not (tmp_path / "new" / "out.txt").exists()
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "put_file", half)
        with pytest.raises(CorpusError, match="failed 6 times"):
            privatize_corpus(tmp_path / "in.txt", url, Echo())
    assert list((tmp_path / "new").iterdir()) == []
    privatize_corpus(tmp_path / "in.txt", url, Echo())
    assert bytes_of(tmp_path / "new") == {"out.txt": b"[one]\n"}


def test_an_output_in_a_store_is_written_over_only_if_it_is_a_file_and_this_is_asked_for(
    tmp_path, flaky
):
    shards(tmp_path / "raw")
    source = tmp_path / "raw" / "year=2025" / "a.jsonl"
    privatize_corpus(source, "flaky://a.jsonl", Echo())
    with pytest.raises(CorpusError, match=r"flaky://a.jsonl exists.*overwrite=True"):
        privatize_corpus(source, "flaky://a.jsonl", Echo())
    privatize_corpus(source, "flaky://a.jsonl", Echo(), overwrite=True)
    privatize_corpus(tmp_path / "raw", "flaky://out", Echo(), resume=False)
    with pytest.raises(CorpusError, match="flaky://out exists"):
        privatize_corpus(tmp_path / "raw", "flaky://out", Echo(), resume=False)
    report = privatize_corpus(tmp_path / "raw", "flaky://out", Echo(), resume=True)
    assert (report.resumed, report.files) == (120, 3)  # complete


def test_an_output_in_a_store_must_not_stand_among_its_input(tmp_path, flaky):
    upload(shards(tmp_path / "raw"), "flaky://raw")
    for target in ("flaky://raw", "flaky://raw/out"):
        with pytest.raises(CorpusError, match="lies in the other"):
            privatize_corpus("flaky://raw", target, Echo())
    with pytest.raises(CorpusError, match="the same file"):
        privatize_corpus("flaky://raw/year=2025/a.jsonl", "flaky://raw/year=2025/a.jsonl", Echo())


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path, flaky):
    (tmp_path / "a.txt").write_text("one\n")
    for name in ("..", "", "."):
        flaky.store.clear()
        stores.put(tmp_path / "a.txt", "flaky://raw/a.txt")
        flaky.store[f"/raw/{name}/a.txt"] = flaky.store["/raw/a.txt"]
        with pytest.raises(CorpusError, match="no file can have"):
            privatize_corpus("flaky://raw", tmp_path / "out", Echo())


def test_what_is_not_released_stays_in_a_private_folder_of_this_machine(tmp_path, flaky, state):
    (tmp_path / "in.jsonl").write_text('{"text": "one"}\n{"no": "zanzibar"}\n')
    url = "flaky://deep/out.jsonl"
    report = privatize_corpus(tmp_path / "in.jsonl", url, Echo(), on_error="quarantine")
    (folder,) = state.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert Path(report.quarantine or "").parent == folder == key_path(url).parent
    assert list(flaky.store) == ["/deep/out.jsonl"]
    assert [path.name for path in folder.iterdir()] == ["out.jsonl.quarantine.jsonl"]


@pytest.mark.parametrize(
    ("url", "match"), [("nonsense://a.txt", "nonsense"), ("s3://a/b.txt", "s3fs")]
)
def test_a_store_that_cannot_be_opened_is_told_with_what_to_install(
    tmp_path, url, match, monkeypatch
):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(CorpusError, match=match):
        privatize_corpus(url, tmp_path / "out.txt", Echo())


# A server that speaks the protocol of S3


class Server:
    """An S3 of this process that fails every fifth request, and kills a writer at one of its objects."""

    def __init__(self, app) -> None:
        self.app = app
        self.requests = 0
        self.writer: subprocess.Popen | None = None
        self.last = ""

    def __call__(self, environ, start):
        self.requests += 1
        path = environ["PATH_INFO"]
        if self.last and environ["REQUEST_METHOD"] == "PUT" and path.endswith(self.last):
            assert self.writer is not None
            self.writer.kill()
            self.writer.wait()
        elif self.requests % 5:
            return self.app(environ, start)
        start("503 Slow Down", [("Content-Type", "text/plain")])
        return [b""]


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    pytest.importorskip("moto.server", reason="moto[server] is not installed")
    import s3fs
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    server = Server(DomainDispatcherApplication(create_backend_app))
    web = make_server("127.0.0.1", 0, server, threaded=True)
    thread = threading.Thread(target=web.serve_forever)
    thread.start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{web.server_port}",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",  # who asks again is fsspec, and textpriv
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        s3fs.S3FileSystem().mkdir("bucket")
        yield server
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        web.shutdown()
        thread.join()
        web.server_close()


def test_a_run_into_s3_that_is_killed_twice_goes_on_to_the_same_bytes(
    tmp_path, server, monkeypatch
):
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 8))
    Index.build(Vocabulary(WORDS, vectors), k=16, hnsw=False).save(tmp_path / "index")
    RunKey.open(tmp_path / "run.key").keep()
    upload(shards(tmp_path / "raw"), "s3://bucket/raw")
    given = (str(tmp_path / "index"), str(tmp_path / "run.key"))
    run_apart(*given, "s3://bucket/raw", str(tmp_path / "whole"), False)
    whole = bytes_of(tmp_path / "whole")
    target, seen = "s3://bucket/out", []
    for resume, server.last in [(False, "year=2026/a.jsonl"), (True, "out.manifest.json")]:
        child = (*given, "s3://bucket/raw", target, resume)
        code = f"import engine_runs; engine_runs.run_apart(*{child!r})"
        with open(tmp_path / "log", "wb") as log:
            server.writer = subprocess.Popen(
                [sys.executable, "-c", code], stderr=log, cwd=Path(engine_runs.__file__).parent
            )
            server.writer.wait(120)
        assert server.writer.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()
        server.last = ""
        seen.append(objects(target))
        assert stores.read(target + ".manifest.json") is None
    assert [len(names) for names in seen] == [1, 3]
    assert all(whole[name] == content for names in seen for name, content in names.items())
    run_apart(*given, "s3://bucket/raw", target, True)
    assert objects(target) == whole
    # Another machine has the key, and nothing of what was done.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    run_apart(*given, "s3://bucket/raw", "s3://bucket/again", True)
    assert objects("s3://bucket/again") == whole
    manifest = json.loads(stores.read(target + ".manifest.json") or b"")
    assert [file["name"] for file in manifest["files"]] == sorted(whole)
