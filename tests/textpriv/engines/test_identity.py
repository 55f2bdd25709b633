"""Which random stream a document has: one for each key, content and settings, and none for two of them."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import LEVEL
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from textpriv import TEM
from textpriv.corpus import PrivatizerSettings, privatize_corpus
from textpriv.corpus import run as corpus
from textpriv.errors import CorpusError
from textpriv.index import Index
from textpriv.ledger import DocumentName, Ledger, settings_fingerprint
from textpriv.mechanisms import base as mechanism
from textpriv.privatizer import Privatizer
from textpriv.randomness import document_identity
from textpriv.run_key import RunKey
from textpriv.spans.policy import SpanPolicy
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

WORDS = ["".join(parts) for parts in itertools.product("bdfgklm", "ae", "nrst", "o")]
RUN_KEY = b"K" * 32
TEXT = " ".join(WORDS * 4)
CHANGED = "whether a text has changed since its last release under the same name and key"


@pytest.fixture(scope="module")
def index() -> Index:
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 6))
    return Index.build(Vocabulary(WORDS, vectors), "euclidean")


def _keyed(source: str, tem: TEM, policy: TokenPolicy | None = None) -> Privatizer:
    return Privatizer(tem, policy, **({"seed": 5} if source == "seed" else {"run_key": RUN_KEY}))


def _assert_independent(first: str, second: str, tem: TEM, law: TEM | None = None) -> None:
    """Two outputs agree no more often than independent draws do, at a false-alarm rate of LEVEL."""
    words = first.split()
    same = sum(a == b for a, b in zip(words, second.split(), strict=True))
    # Two independent draws of a word agree at most as often as the likelier of their outputs.
    agree = max(
        float(np.exp(each.log_prob(word)).max()) for each in (tem, law or tem) for word in WORDS
    )
    assert agree < 0.5
    assert same <= binom.isf(LEVEL, len(words), agree)


# Streams


@pytest.mark.parametrize("source", ["run key", "seed"])
def test_two_epsilons_under_one_key_share_no_stream(index, source):
    low, high = TEM(index, 0.5), TEM(index, 0.6)
    first, second = (_keyed(source, each).privatize(TEXT, key="a") for each in (low, high))
    _assert_independent(first, second, low, high)


@pytest.mark.parametrize("source", ["run key", "seed"])
def test_two_versions_of_a_text_under_one_key_share_no_stream(index, source):
    tem = TEM(index, 0.5)
    privatizer = _keyed(source, tem)
    first, second = (
        privatizer.privatize(text, key="a")
        for text in (TEXT, TEXT.removesuffix(WORDS[-1]) + WORDS[0])
    )
    _assert_independent(first, second, tem)


@pytest.mark.parametrize("source", ["run key", "seed"])
def test_two_policies_and_two_languages_under_one_key_share_no_stream(index, source):
    tem = TEM(index, 0.5)
    plain = _keyed(source, tem).privatize(TEXT, key="a")
    masked = _keyed(source, tem, TokenPolicy(number="mask")).privatize(TEXT, key="a")
    options = {"seed": 5} if source == "seed" else {"run_key": RUN_KEY}
    german = Privatizer(tem, language="de", **options).privatize(TEXT, key="a")
    for first, second in itertools.combinations((plain, masked, german), 2):
        _assert_independent(first, second, tem)


def test_ids_of_the_largest_vocabularies_are_different_content():
    contents = {np.array([number], dtype="<i4").tobytes() for number in (0, 1 << 8, 1 << 16, -1)}
    assert len(contents) == 4


def test_no_joint_output_of_two_epsilons_is_frequent_for_one_input_and_absent_for_another(index):
    # Under one stream the pair of outputs moved together; independent laws multiply, and so bound every ratio.
    tems = [TEM(index, 1.0), TEM(index, 1.5)]
    privatizers = [_keyed("run key", tem) for tem in tems]
    draws = 2000
    for word in WORDS[:2]:
        outputs = [private.pipe([word] * draws, range(draws)) for private in privatizers]
        pairs = Counter(zip(*outputs, strict=True))
        first, second = (np.exp(tem.log_prob(word)) for tem in tems)
        for (one, two), count in pairs.items():
            chance = first[WORDS.index(one)] * second[WORDS.index(two)]
            # One test for each of 56^2 pairs and two words.
            assert count <= binom.isf(LEVEL / (2 * len(WORDS) ** 2), draws, chance)


def test_the_same_text_under_the_same_key_repeats(index):
    tem = TEM(index, 0.5)
    first, again = (_keyed("run key", tem).privatize(TEXT, key="a") for _ in range(2))
    assert first == again


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=3),
            st.one_of(st.binary(max_size=3), st.text(max_size=2), st.integers(0, 300)),
            st.binary(max_size=3),
        ),
        min_size=2,
        max_size=2,
        unique=True,
    )
)
@settings(max_examples=100, deadline=None)
def test_two_identities_are_never_the_same_bytes(parts):
    first, second = (document_identity(*part) for part in parts)
    assert first != second


# Equal keys


# Statements


def test_every_statement_of_a_run_key_names_that_a_change_of_a_text_shows(index, tmp_path):
    keyed = Privatizer(TEM(index, 1.0), run_key=RUN_KEY).statement
    assert any(line.startswith(CHANGED) for line in keyed.not_protected)
    assert CHANGED in " ".join(str(keyed).split())
    index.save(tmp_path / "idx")
    made = PrivatizerSettings(str(tmp_path / "idx"), options={"epsilon": 1.0}, run_key=RUN_KEY)
    assert CHANGED in " ".join(str(made.build().statement).split())
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("ba\n")
    key = RunKey(tmp_path / "key", RUN_KEY, fresh=True)
    privatize_corpus(tmp_path / "in", tmp_path / "out", made.build(), key=key, resume=False)
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert any(CHANGED in line for line in manifest["statement"]["not_protected"])


def test_a_statement_names_it_as_soon_as_keys_were_used_and_not_before(index):
    privatizer = Privatizer(TEM(index, 1.0))
    privatizer.privatize("ba")
    assert CHANGED not in " ".join(str(privatizer.statement).split())
    privatizer.privatize(WORDS[0], key="a")
    assert CHANGED in " ".join(str(privatizer.statement).split())


# Corpora


def _corpus(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def folder(index, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("index") / "small.idx"
    index.save(path)
    return path


def _settings(folder: Path, **more) -> PrivatizerSettings:
    return PrivatizerSettings(str(folder), options={"epsilon": 0.5}, run_key=RUN_KEY, **more)


def _key(tmp_path: Path) -> RunKey:
    key = RunKey(tmp_path / "run.key", RUN_KEY, fresh=not (tmp_path / "run.key").exists())
    key.keep()
    return key


def _texts(path: Path, column: str = "text") -> list[str]:
    return [json.loads(line)[column] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("document", ["id", None], ids=["names", "numbers"])
def test_the_text_columns_name_is_part_of_a_documents_identity(index, folder, tmp_path, document):
    source = _corpus(tmp_path / "in.jsonl", [{"id": "a", "body": TEXT, "subject": TEXT}])
    made = {}
    for column in ("body", "subject"):
        target = tmp_path / f"{column}.jsonl"
        privatize_corpus(
            source,
            target,
            _settings(folder).build(),
            text_column=column,
            document_column=document,
            key=_key(tmp_path),
            resume=False,
        )
        (made[column],) = _texts(target, column)
    _assert_independent(made["body"], made["subject"], TEM(index, 0.5))


def test_a_named_document_of_a_corpus_is_the_one_that_the_library_releases(folder, tmp_path):
    source = _corpus(tmp_path / "in.jsonl", [{"id": 7, "text": TEXT}])
    made = _settings(folder)
    privatize_corpus(
        source, tmp_path / "out.jsonl", made.build(), document_column="id", key=_key(tmp_path)
    )
    alone = made.build().privatize(TEXT, key=DocumentName("7", part="text"))
    assert _texts(tmp_path / "out.jsonl") == [alone]


def test_the_columns_of_a_named_document_have_one_shift_of_dates(folder, tmp_path):
    rows = [{"id": n, "subject": "on 2021-03-04", "body": "since 2021-03-04"} for n in range(20)]
    made = _settings(folder, spans=SpanPolicy.preset("tickets").to_dict(), detect=["patterns"])
    options = {"text_column": ("subject", "body"), "document_column": "id"}
    source, target = _corpus(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    privatize_corpus(source, target, made.build(), key=_key(tmp_path), settings=made, **options)
    pairs = [re.findall(r"\d{4}-\d\d-\d\d", line) for line in target.read_text().splitlines()]
    assert all(first == second for first, second in pairs)
    assert len({first for first, _ in pairs}) > 1


@pytest.mark.parametrize("engine", ["spark", "ray"])
def test_a_repeated_name_is_refused_before_an_engine_starts(folder, tmp_path, engine, monkeypatch):
    rows = [{"id": name, "text": WORDS[0]} for name in ("a", "b", "a")]
    source = _corpus(tmp_path / "in.jsonl", rows)
    made = _settings(folder)

    def started(*_, **__):
        raise AssertionError

    monkeypatch.setattr(corpus, "import_module", started)
    with pytest.raises(CorpusError, match=r"record 3\)?: a document before it has the same name"):
        privatize_corpus(
            source,
            tmp_path / "out.jsonl",
            made.build(),
            document_column="id",
            key=_key(tmp_path),
            settings=made,
            engine=engine,
            part_records=1,
        )


# Fingerprints


def test_a_new_version_of_the_algorithms_is_new_settings_and_has_no_old_records(index, monkeypatch):
    tem, policy = TEM(index, 1.0), TokenPolicy()
    before, bound = settings_fingerprint(tem, policy), tem.binding()
    monkeypatch.setattr(mechanism, "ALGORITHM", mechanism.ALGORITHM + 1)
    assert settings_fingerprint(tem, policy) != before
    assert tem.binding() != bound


# Records beside an index


def test_two_columns_of_a_corpus_are_counted_for_one_document(folder, tmp_path):
    source = _corpus(tmp_path / "in.jsonl", [{"id": 7, "body": TEXT, "subject": TEXT}])
    made = _settings(folder, ledger=str(tmp_path / "ledger"))
    for column in ("body", "subject"):
        target = tmp_path / f"{column}.jsonl"
        privatize_corpus(source, target, made.build(), text_column=column, document_column="id")
    assert Ledger(tmp_path / "ledger").spent(document="7").releases == 2


# Documents without names


def _unnamed(folder: Path, place: Path, texts: list[str], **more) -> list[str]:
    """Release texts without names under the kept key, in a run of their own."""
    place.mkdir()
    source = _corpus(place / "in.jsonl", [{"text": text} for text in texts])
    privatize_corpus(
        source, place / "out.jsonl", _settings(folder).build(), key=_key(place.parent), **more
    )
    return _texts(place / "out.jsonl")


def test_an_edit_of_an_unnamed_record_redraws_that_record_only(folder, tmp_path):
    texts = [" ".join(WORDS[n:] + WORDS[:n]) for n in range(6)]
    before = _unnamed(folder, tmp_path / "before", texts)
    changed = [texts[0], texts[1] + " " + WORDS[0], *texts[2:]]
    after = _unnamed(folder, tmp_path / "after", changed, part_records=2)
    assert [n for n in range(6) if before[n] != after[n]] == [1]


def test_equal_unnamed_texts_of_one_run_are_drawn_independently(index, folder, tmp_path):
    first, second, third = _unnamed(folder, tmp_path / "a", [TEXT] * 3, part_records=1)
    _assert_independent(first, second, TEM(index, 0.5))
    _assert_independent(second, third, TEM(index, 0.5))


def test_unnamed_texts_of_equal_words_share_no_stream(index, folder, tmp_path):
    # The words that are drawn are the same; only the text itself tells the two apart.
    first, second = _unnamed(folder, tmp_path / "a", [TEXT, TEXT.upper()])
    _assert_independent(first, second, TEM(index, 0.5))


def test_a_resumed_run_counts_the_equal_texts_of_its_finished_parts(folder, tmp_path):
    def stop(progress):
        if progress.documents > 4:
            raise KeyboardInterrupt

    whole = _unnamed(folder, tmp_path / "a", [TEXT] * 6)
    more = {"part_records": 2, "batch_size": 1, "resume": True}
    with pytest.raises(KeyboardInterrupt):
        _unnamed(folder, tmp_path / "b", [TEXT] * 6, on_progress=stop, **more)
    (tmp_path / "b" / "in.jsonl").rename(tmp_path / "in.jsonl")
    target = tmp_path / "b" / "out.jsonl"
    report = privatize_corpus(
        tmp_path / "in.jsonl", target, _settings(folder).build(), key=_key(tmp_path), **more
    )
    assert report.resumed == 4
    assert _texts(target) == whole


def test_a_run_is_not_resumed_on_another_input_of_the_same_size(folder, tmp_path):
    def stop(progress):
        if progress.documents > 1:
            raise KeyboardInterrupt

    def run(text, **more):
        source = _corpus(tmp_path / "in.jsonl", [{"text": text}] * 3)
        made = _settings(folder)
        key, target = _key(tmp_path), tmp_path / "out.jsonl"
        options = {"part_records": 1, "batch_size": 1, "resume": True, **more}
        privatize_corpus(source, target, made.build(), key=key, **options)

    with pytest.raises(KeyboardInterrupt):
        run(WORDS[0], on_progress=stop)
    with pytest.raises(CorpusError, match="input"):
        run(WORDS[1])
