"""What an earlier version (commit 54bc45b) wrote is used, or refused with a sentence that says what to do.

``earlier_version`` holds an index of 12 words with its records of a calibration and of two certificates, a ledger in which
12 documents of 6 words spent epsilon 2 each, a run key, and what an interrupted run under it left.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.errors import CorpusError, LimitError
from textpriv.index import Index
from textpriv.ledger import Ledger
from textpriv.run_key import RunKey

DOCUMENTS, TOKENS = 12, 72


@pytest.fixture
def earlier(tmp_path) -> Path:
    """A copy, with the modes that were lost where it is kept."""
    folder = tmp_path / "earlier"
    shutil.copytree(Path(__file__).with_name("earlier_version"), folder)
    for path in (folder / "ledger.db", folder / "out.jsonl.key"):
        path.chmod(0o600)
    (folder / "out.jsonl.partial").chmod(0o700)
    return folder


def settings(folder, **options) -> PrivatizerSettings:
    return PrivatizerSettings(str(folder / "words"), options={"epsilon": 2.0}, **options)


def release(folder, target, made, **options):
    return privatize_corpus(
        str(folder / "in.jsonl"),
        str(target),
        made.build(),
        settings=made,
        part_records=4,
        **options,
    )


def test_its_index_loads_and_holds_what_a_new_one_would(earlier):
    old = Index.load(earlier / "words")
    new = Index.build(old.vocabulary, k=4, hnsw=False)
    assert old.vocabulary.words[:3] == ["the", "of", "and"]
    np.testing.assert_array_equal(old.neighbours.ids, new.neighbours.ids)
    np.testing.assert_array_equal(old.neighbours.distances, new.neighbours.distances)


def test_what_its_ledger_counted_still_counts(earlier, tmp_path):
    with Ledger(earlier / "ledger.db") as ledger:
        before = ledger.totals()
    assert (before.documents, before.releases, before.tokens) == (DOCUMENTS, DOCUMENTS, TOKENS)
    assert list(before.epsilon.values()) == [2.0 * DOCUMENTS]
    # Equal documents: of each the nats of its words, which were counted without a rho.
    assert before.rho == pytest.approx(before.nats**2 / (2 * TOKENS), rel=1e-6)
    made = settings(earlier, ledger=str(earlier / "ledger.db"), document_limit=3.0)
    with pytest.raises(LimitError, match="limit"):
        release(earlier, tmp_path / "more.jsonl", made, document_column="id", author_column="who")
    with Ledger(earlier / "ledger.db") as ledger:
        assert ledger.totals() == before


def test_its_run_key_is_read_and_used(earlier):
    key = RunKey.beside(earlier / "out.jsonl")
    assert key.secret == (earlier / "out.jsonl.key").read_bytes()
    made = replace(settings(earlier), run_key=key.secret)
    outputs = []
    for name in ("one.jsonl", "two.jsonl"):
        release(earlier, earlier / name, made, key=key)
        outputs.append((earlier / name).read_bytes())
    assert outputs[0] == outputs[1]


def test_its_interrupted_run_is_not_continued_but_named_with_what_to_do(earlier):
    key = RunKey.beside(earlier / "out.jsonl")
    made = replace(settings(earlier), run_key=key.secret)
    with pytest.raises(
        CorpusError, match=r"out\.jsonl\.partial was begun otherwise.*remove that folder"
    ):
        release(earlier, earlier / "out.jsonl", made, key=key, resume=True)
    assert sorted(path.name for path in (earlier / "out.jsonl.partial").iterdir()) == [
        "000000-000000.json",
        "000000-000000.part",
        "job.json",
    ]
    shutil.rmtree(earlier / "out.jsonl.partial")
    assert (
        release(earlier, earlier / "out.jsonl", made, key=key, resume=True).documents == DOCUMENTS
    )
