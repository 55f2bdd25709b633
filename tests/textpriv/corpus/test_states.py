"""What a run does by what earlier runs have left: the table of docs/guide/run-key.md."""

from __future__ import annotations

import contextlib

import pytest
from small_corpora import content, rows, run, stop_at, write

from textpriv.corpus import resume
from textpriv.errors import CorpusError

OPTIONS = {
    "without an option": {},
    "--resume": {"resume": True},
    "--resume, but settings changed": {"resume": True, "epsilon": 5.0},
    "--force": {"overwrite": True},
}
TABLE = {
    ("nothing", "in.jsonl"): ("starts", "starts", "starts", "starts"),
    ("an interrupted run", "in.jsonl"): ("refuses", "continues", "refuses", "begins again"),
    ("a finished run", "in.jsonl"): ("refuses", "leaves it", "refuses", "replaces it"),
    ("a finished run", "shards"): ("refuses", "leaves it", "refuses", "refuses"),
}


@pytest.fixture(params=["in.jsonl", "shards"])
def source(request, tmp_path):
    """A file, or a folder of one shard."""
    write(tmp_path / "in.jsonl", rows(40))
    write(tmp_path / "shards" / "a.jsonl", rows(40))
    return tmp_path / request.param


@pytest.mark.parametrize("found", ["nothing", "an interrupted run", "a finished run"])
@pytest.mark.parametrize("column", range(len(OPTIONS)), ids=list(OPTIONS))
def test_a_run_does_what_the_table_says(index, source, tmp_path, found, column):
    if (row := TABLE.get((found, source.name))) is None:
        pytest.skip("the table has one row for both")
    target = tmp_path / ("private" if source.is_dir() else "private.jsonl")
    more = {"on_progress": stop_at(20)} if found == "an interrupted run" else {}
    if found != "nothing":
        with contextlib.suppress(KeyboardInterrupt):
            run(index, source, target, **more)
    before = content(target) if target.exists() else {}
    options = list(OPTIONS.values())[column]
    if row[column] == "refuses":
        with pytest.raises(CorpusError):
            run(index, source, target, **options)
        assert (content(target) if target.exists() else {}) == before
        return
    report = run(index, source, target, **options)
    resumed = {"continues": range(1, 40), "leaves it": [40]}.get(row[column], [0])
    assert report.documents == 40
    assert report.resumed in resumed


def test_a_run_hashes_each_input_once(index, tmp_path, monkeypatch):
    hashed: list[str] = []
    for name in "abc":
        write(tmp_path / "shards" / f"{name}.jsonl", rows(5))
    sha256 = resume.sha256_file
    monkeypatch.setattr(
        resume, "sha256_file", lambda path: hashed.append(path.name) or sha256(path)
    )
    for _ in range(2):
        run(index, tmp_path / "shards", tmp_path / "private", resume=True)
        assert sorted(hashed) == ["a.jsonl", "b.jsonl", "c.jsonl"]
        hashed.clear()
