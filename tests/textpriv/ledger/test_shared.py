"""What is drawn once for a person counts once in its account, and is one draw wherever it is counted as one."""

from __future__ import annotations

import contextlib
import datetime
import re
import sqlite3
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import LedgerError, LimitError
from textpriv.ledger import Charge, Document, Ledger, Shared, Terms
from textpriv.ledger.store import FORMAT
from textpriv.mechanisms import TEM
from textpriv.privatizer import Privatizer
from textpriv.randomness import KeyedStreams
from textpriv.spans.detectors import RegexDetector
from textpriv.spans.laws import Scopes
from textpriv.spans.laws.date_shift import DateShift
from textpriv.spans.policy import SpanPolicy

TERMS = Terms(b"settings", "euclidean", epsilon=1.0, word_loss=2.0, word_rho=1.0)
SHIFT = Shared(b"shift", "person", 10.0, 50.0)
OTHER = Shared(b"other", "person", 3.0, 4.5)
OWN = Shared(b"shift", "document", 7.0, 24.5)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger") as made:
        yield made


def charge(name, author="ann", shared=(SHIFT,), content=b"text"):
    return Charge(Document(name, author), content, 1, shared=tuple(shared))


def test_two_documents_of_a_person_are_charged_a_shared_draw_once(ledger):
    ledger.charge_all(TERMS, [charge("a"), charge("b")])
    ledger.charge(TERMS, charge("c"))
    assert ledger.spent(author="ann").nats == 3 * 2 + 10
    assert ledger.spent(author="ann").rho == 3 * 1 + 50
    for name in "abc":
        assert ledger.spent(document=name).nats == 2 + 10


def test_two_persons_have_an_account_each_and_all_together_the_sum(ledger):
    ledger.charge_all(TERMS, [charge("a", "ann"), charge("b", "bob"), charge("c", "bob")])
    ann, bob = ledger.spent(author="ann").nats, ledger.spent(author="bob").nats
    assert (ann, bob) == (12, 14)
    assert ledger.totals().nats == ann + bob
    ledger.charge(TERMS, charge("d", "bob"))
    assert ledger.spent(author="ann").nats == ann


def test_another_draw_adds_and_one_of_a_document_counts_once_for_its_versions(ledger):
    ledger.charge(TERMS, charge("a", shared=[SHIFT, OTHER, OWN]))
    ledger.charge(TERMS, charge("a", shared=[SHIFT, OWN], content=b"changed"))
    assert ledger.spent(document="a").nats == 2 * 2 + 10 + 3 + 7
    ledger.charge(TERMS, charge("b", shared=[OWN]))
    assert ledger.spent(author="ann").nats == 3 * 2 + 10 + 3 + 2 * 7


def test_draws_of_a_person_and_of_a_document_of_one_name_are_two(ledger):
    ledger.charge(TERMS, charge("ann", "ann", shared=[SHIFT, OWN]))
    assert ledger.spent(document="ann").nats == 2 + 10 + 7


def test_a_documents_limit_in_rho_counts_its_versions_and_the_draw_that_they_share(tmp_path):
    with Ledger(tmp_path / "ledger", document_rho_limit=3 * 1 + 50) as ledger:
        ledger.charge_all(TERMS, [charge("a", content=bytes([version])) for version in range(3)])
        with pytest.raises(LimitError, match="document"):
            ledger.charge(TERMS, charge("a", content=b"fourth"))


def test_limits_count_a_shared_draw_once_and_a_refusal_leaves_nothing(tmp_path):
    with Ledger(
        tmp_path / "ledger", author_limit=17, author_rho_limit=100, document_nats_limit=14
    ) as ledger:
        ledger.charge_all(TERMS, [charge("a"), charge("b")])
        with pytest.raises(LimitError, match="author"):
            ledger.charge(TERMS, charge("c", shared=[OTHER]))
        with pytest.raises(LimitError, match="document"):
            ledger.charge(TERMS, charge("a", shared=[SHIFT, OTHER], content=b"changed"))
        assert ledger.spent(author="ann").nats == 14
        ledger.charge(TERMS, charge("c"))
        with pytest.raises(LimitError, match="author"):
            ledger.charge(TERMS, charge("d"))


def test_a_process_of_an_earlier_version_that_has_the_ledger_open_enters_nothing_past_a_shared_draw(
    ledger,
):
    ledger.charge(TERMS, charge("a", shared=[]))
    columns = "document, settings, content, author, distance, epsilon, nats, tokens, key"
    enter = f"INSERT INTO releases ({columns}) SELECT ?, {columns.partition(', ')[2]} FROM releases LIMIT 1"
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as earlier:
        earlier.execute(enter, (b"before",))
        ledger.charge(TERMS, charge("b"))
        with pytest.raises(sqlite3.OperationalError, match="counts_shared"):
            earlier.execute(enter, (b"after",))
        assert earlier.execute("SELECT COUNT(*) FROM releases").fetchone() == (3,)
    ledger.charge(TERMS, charge("c"))
    with Ledger(ledger.path) as again:
        again.charge(TERMS, charge("d"))
        assert again.spent(author="ann").nats == 5 * 2 + 10


def test_a_shared_draw_of_nobody_is_refused(ledger):
    with pytest.raises(LedgerError, match="author"):
        ledger.charge(TERMS, charge("a", None))
    ledger.charge(TERMS, charge("a", None, [OWN]))
    assert ledger.spent(document="a").nats == 9


releases = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["p", "q"]), st.sampled_from([b"1", b"2"]),
              st.sets(st.sampled_from([SHIFT, OTHER, OWN]))),
    max_size=8,
)  # fmt: skip


@given(releases)
def test_every_account_is_the_sum_of_its_releases_and_of_its_different_draws(
    tmp_path_factory, given
):
    with Ledger(tmp_path_factory.mktemp("sums") / "ledger") as ledger:
        counted, draws = {}, set()
        for name, author, content, shared in given:
            document = author + name
            ledger.charge(TERMS, charge(document, author, shared, content))
            if (document, content) not in counted:
                counted[document, content] = author
                draws |= {
                    (document, author, each, document if each.scope == "document" else author)
                    for each in shared
                }
        for author in "pq":
            once = {(each, whose) for _, owner, each, whose in draws if owner == author}
            releases = sum(owner == author for owner in counted.values())
            assert ledger.spent(author=author).nats == 2 * releases + sum(
                each.nats for each, _ in once
            )
            for document in (author + "a", author + "b"):
                own = sum(each.nats for name, _, each, _ in draws if name == document)
                versions = sum(name == document for name, _ in counted)
                assert ledger.spent(document=document).nats == 2 * versions + own
        everybody = {(each, whose) for _, _, each, whose in draws}
        assert ledger.totals().nats == 2 * len(counted) + sum(each.nats for each, _ in everybody)


def format_of(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0]


def test_a_ledger_of_an_earlier_version_goes_on_and_is_closed_to_it_by_the_first_shared_draw(
    tmp_path,
):
    path = tmp_path / "ledger"
    with Ledger(path) as ledger:
        ledger.charge(TERMS, charge("a", shared=()))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE shared")
    with Ledger(path) as ledger:
        assert ledger.spent(author="ann").nats == 2
        assert format_of(path) == 1
        ledger.charge(TERMS, charge("b"))
        assert ledger.spent(author="ann").nats == 14
    assert format_of(path) == FORMAT == 2
    with Ledger(path) as ledger:
        assert ledger.spent(author="ann").nats == 14


def test_no_name_is_in_the_file_and_another_ledger_hashes_it_otherwise(tmp_path):
    marks = []
    for name in ("one", "two"):
        path = tmp_path / name
        with Ledger(path) as ledger:
            ledger.charge(TERMS, charge("zanzibar", "quagga"))
        content = b"".join(each.read_bytes() for each in tmp_path.glob(f"{name}*"))
        assert b"zanzibar" not in content
        assert b"quagga" not in content
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with contextlib.closing(sqlite3.connect(path)) as connection:
            marks += connection.execute("SELECT mark FROM shared").fetchall()
    assert len(set(marks)) == 2


# The draws behind the marks


def moved_by(law, streams, person="ann"):
    return law.of_kind("DATE").shift(Scopes(streams, "letter", person))


def test_laws_that_are_counted_as_one_draw_are_one_draw_and_others_are_not():
    streams = KeyedStreams(bytes(32))
    law = DateShift(0.001, kind="DATE")
    for same in ({"form": "iso"}, {"times": "keep"}, {"language": "de"}, {"dayfirst": True}):
        other = DateShift(0.001, kind="DATE", **same)
        assert other.drawn_once() == law.drawn_once()
        assert moved_by(other, streams) == moved_by(law, streams)
    changed = [
        DateShift(0.002, kind="DATE"),
        DateShift(0.001, low="1800-01-01", kind="DATE"),
        DateShift(0.001, kind="BIRTH"),
    ]
    assert len({each.drawn_once() for each in (law, *changed)}) == 4
    assert len({moved_by(each, streams) for each in (law, *changed[:2])}) == 3


def test_a_persons_dates_cost_once_in_every_later_run_also_where_a_text_was_chosen_by_what_came_out(
    three_points, tmp_path
):
    """The last date is written after a look at the first release, in a new process's ledger, in another form."""
    mechanism, detector = (
        TEM(three_points, epsilon=0.8),
        RegexDetector({"DATE": r"\d{4}-\d\d-\d\d"}),
    )
    law = DateShift(0.01, kind="DATE")

    def release(name, day, author="ann", **form):
        policy = SpanPolicy({"DATE": DateShift(0.01, kind="DATE", **form)})
        with Ledger(tmp_path / "ledger", author_limit=1.5 * law.claim().largest) as ledger:
            made = Privatizer(mechanism, spans=policy, detector=detector, ledger=ledger)
            text = made.privatize(f"{day} {day}", Document(name, author))
            nats = ledger.spent(author=author).nats
        return datetime.date.fromisoformat(re.findall(r"\d{4}-\d\d-\d\d", text)[0]), nats

    first = datetime.date(2020, 2, 28)
    out, nats = release("one", first)
    assert nats == pytest.approx(law.claim().largest, abs=1e-5)
    second = first + datetime.timedelta(out.day)  # chosen by what came out
    later, again = release("two", second, form="iso")
    assert (later - second, again) == (out - first, nats)
    _, of_bob = release("three", first, "bob")
    assert of_bob == nats


def test_statement_and_ledger_say_what_counts_once(three_points, tmp_path):
    policy = SpanPolicy({"DATE": DateShift(0.01, kind="DATE")})
    with Ledger(tmp_path / "ledger") as ledger:
        made = Privatizer(
            TEM(three_points, epsilon=0.8),
            spans=policy,
            detector=RegexDetector({"DATE": "x"}),
            ledger=ledger,
        )
        notes = " ".join(made.statement.notes)
    assert "once for each person under one key" in notes
    assert "drawn once for a person or a document, such as a shift of dates, counts once" in notes
