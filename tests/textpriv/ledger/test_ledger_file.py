"""The ledger's file: what a crash leaves, what it refuses, and what it gives away."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import sqlite3
import stat
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from textpriv.errors import LedgerError, LimitError
from textpriv.ledger import Charge, DocumentName, Ledger, Shared, Terms
from textpriv.ledger import ledger as ledger_module

TERMS = Terms(settings=b"s" * 32, distance="euclidean", epsilon=2.0, word_loss=15.0)
SECRET = "zanzibar"


def charge(name, author=None, content=b"words", tokens=10):
    return Charge(DocumentName(name, author), content, tokens)


def fork(work, *arguments) -> int:
    """Start a process that ends as soon as the work does, with exit code 0 if it ended well."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        finally:
            os._exit(code)
    return child


def ended_well(child: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextlib.contextmanager
def opened(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        yield connection
        connection.commit()


# Crashes, processes and threads

AUTHORS, ACCEPTED, ASKED, PROCESSES = 10, 60, 80, 4


def numbered(number: int) -> Charge:
    return charge(number, number % AUTHORS, b"%d" % number)


def write_releases(path: Path, journal: Path, worker: int) -> None:
    """Charge this worker's share and note every key; a restarted worker goes on from its notes.

    Every author has more documents than the limit admits. One document in twenty is charged by a second worker, too.
    """
    done = {line.split()[0] for line in journal.read_text().splitlines()}
    share = [
        number
        for number in range(AUTHORS * ASKED)
        if number % PROCESSES == worker or (number % 20 == 0 and number % 3 == worker)
    ]
    notes = os.open(journal, os.O_WRONLY | os.O_APPEND)
    ledger = Ledger(path, author_limit=ACCEPTED * TERMS.word_loss * 10)
    for number in (number for number in share if str(number) not in done):
        try:
            key = ledger.charge(TERMS, numbered(number)).key.hex()
        except LimitError:
            key = "refused"
        os.write(notes, f"{number} {key}\n".encode())


def test_processes_with_random_kills_lose_and_double_no_charge(path, tmp_path):
    journals = [tmp_path / f"journal-{worker}" for worker in range(PROCESSES)]
    for journal in journals:
        journal.touch()

    def start(worker: int) -> int:
        return fork(write_releases, path, journals[worker], worker)

    running = {start(worker): worker for worker in range(PROCESSES)}
    chance, kills = random.Random(5), 0
    next_kill = 0.0  # by progress, not by the clock
    while running:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended:
            worker = running.pop(ended)
            if os.WIFSIGNALED(status):
                running[start(worker)] = worker
            else:
                assert os.waitstatus_to_exitcode(status) == 0
            continue
        time.sleep(chance.uniform(0.0, 0.01))
        noted = sum(journal.stat().st_size for journal in journals)
        if noted > next_kill:
            os.kill(chance.choice(list(running)), signal.SIGKILL)
            kills += 1
            next_kill = noted + chance.uniform(0, 4_000)  # of some 50,000 bytes
    assert kills >= 8

    notes: dict[int, set[str]] = {}
    for line in "".join(journal.read_text() for journal in journals).splitlines():
        number, key = line.split()
        notes.setdefault(int(number), set()).add(key)
    assert len(notes) == AUTHORS * ASKED  # everything was answered
    assert all(len(keys) == 1 for keys in notes.values())  # and the same way each time
    accepted = {number: keys.pop() for number, keys in notes.items() if keys != {"refused"}}
    assert set(Counter(number % AUTHORS for number in accepted).values()) == {ACCEPTED}
    ledger = Ledger(path)
    for author in range(AUTHORS):
        spent = ledger.spent(author=author)
        # Full to the limit: no charge was lost and none counted twice.
        assert (spent.documents, spent.nats) == (ACCEPTED, ACCEPTED * TERMS.word_loss * 10)
    for number in list(accepted)[:20]:
        assert ledger.charge(TERMS, numbered(number)).key.hex() == accepted[number]


def test_a_process_killed_inside_a_transaction_has_counted_nothing(path, monkeypatch):
    ledger = Ledger(path)

    def die() -> None:
        with ledger._transaction("BEGIN IMMEDIATE") as connection:
            ledger._charge(connection, ledger._entry(TERMS, charge("a")))
            os.kill(os.getpid(), signal.SIGKILL)

    _, status = os.waitpid(fork(die), 0)
    assert os.WIFSIGNALED(status)
    assert ledger.spent().releases == 0

    def interrupt(length: int) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger_module.os, "urandom", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.charge(TERMS, charge("a"))
    monkeypatch.undo()
    assert ledger.spent().releases == 0
    assert ledger.charge(TERMS, charge("a")).charged


def test_a_charge_is_flushed_to_the_disk(path):
    with Ledger(path)._transaction("BEGIN") as connection:
        full = 2
        assert connection.execute("PRAGMA synchronous").fetchone() == (full,)


def test_many_processes_may_make_and_use_the_same_ledger_at_once(path):
    children = [fork(lambda n: Ledger(path).charge(TERMS, charge(n)), n) for n in range(8)]
    ended = [ended_well(child) for child in children]
    assert all(ended)
    assert Ledger(path).spent().documents == 8
    assert os.listdir(path.parent) == ["ledger"]


def test_threads_and_forks_share_a_ledger(path):
    ledger = Ledger(path)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: ledger.charge(TERMS, charge(n % 20)), range(60)))
        child = fork(lambda: [ledger.charge(TERMS, charge(n)) for n in range(30)])
    assert ended_well(child)
    assert ledger.spent().releases == 30


def test_a_ledger_travels_by_its_path_and_keeps_its_limits(path):
    limits = {"document_limit": 2, "document_nats_limit": 300, "author_limit": 150}
    ledger = Ledger(path, **limits)
    key = ledger.charge(TERMS, charge("a", "ann")).key
    copy = pickle.loads(pickle.dumps(ledger))
    assert copy.charge(TERMS, charge("a", "ann")).key == key
    assert copy.limits == limits


def test_a_held_ledger_is_waited_for_and_then_reported(path, monkeypatch):
    monkeypatch.setattr("textpriv.ledger.store._PATIENCE", 0.1)
    ledger = Ledger(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="another process") as held:
            ledger.charge(TERMS, charge("a"))
    assert held.value.position is None  # no record is to blame


# Secrecy


def test_no_text_and_no_name_is_in_the_file(path):
    names = [f"{SECRET}-name", f"{SECRET}-author"]
    ledger = Ledger(path, document_limit=5)
    shared = (Shared(b"shift", "person", 1.0, 1.0),)
    for content in (b"plain " + SECRET.encode(), SECRET.encode("utf-16")):
        ledger.charge(TERMS, Charge(DocumentName(*names), content, 3, shared=shared))
    with pytest.raises(LimitError) as refusal:
        ledger.charge(TERMS, Charge(DocumentName(*names), SECRET.encode(), 3))
    assert SECRET not in str(refusal.value)
    assert SECRET not in repr(Charge(DocumentName(*names), SECRET.encode(), 3))
    content = path.read_bytes()
    for form in (SECRET.encode(), SECRET.encode("utf-16-le"), SECRET.encode().hex().encode()):
        assert form not in content


def test_two_ledgers_hash_one_name_differently(tmp_path):
    rows = []
    for name in ("one", "two"):
        ledger = Ledger(tmp_path / name)
        shared = (Shared(b"shift", "person", 1.0, 1.0),)
        ledger.charge(TERMS, Charge(DocumentName("a", "ann"), b"words", 1, shared=shared))
        with opened(tmp_path / name) as connection:
            query = "SELECT r.document, r.author, content, key, mark FROM releases r, shared"
            rows += connection.execute(query)
    assert all(left != right for left, right in zip(*rows, strict=True))
    assert Ledger(tmp_path / "one").mark == Ledger(tmp_path / "one").mark != ledger.mark
    assert ledger.scope_key[:16] != ledger.scope_key[16:] != ledger.mark


def test_only_the_owner_may_read_the_file(path):
    mask = os.umask(0)
    try:
        Ledger(path).charge(TERMS, charge("a"))
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(LedgerError, match="chmod 600"):
        Ledger(path)


# Files that are refused


@pytest.mark.parametrize("kind", [b"name,text\n1,zanzibar\n" * 99, b"SQLite format 3\0", "SQLite"])
def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path, kind):
    if isinstance(kind, bytes):
        path.write_bytes(kind)
    else:
        with opened(path) as connection:
            connection.execute("CREATE TABLE releases (document)")
    path.chmod(0o600)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="no ledger") as refusal:
        Ledger(path)
    assert SECRET not in str(refusal.value)
    assert path.read_bytes() == before


def test_another_format_is_refused(path):
    Ledger(path)
    with opened(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(LedgerError, match="has format 2"):
        Ledger(path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE secret SET value = 'zanzibar'",
        "UPDATE releases SET nats = 'zanzibar'",
        "UPDATE releases SET nats = -1",
        "UPDATE releases SET epsilon = x'00'",
        "UPDATE releases SET distance = x'ff'",
        "DROP TABLE releases",
        "DROP TABLE secret",
        "DELETE FROM secret",
    ],
)
def test_a_ledger_with_strange_values_is_refused(path, change):
    Ledger(path).charge(TERMS, charge("a"))
    with opened(path) as connection:
        connection.executescript(f"PRAGMA ignore_check_constraints = 1; {change}")
    with pytest.raises(LedgerError, match="damaged") as refusal:
        Ledger(path).spent()
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("damage", range(30))
def test_a_damaged_ledger_is_refused_or_gives_its_sums(path, damage):
    Ledger(path).charge_all(TERMS, [charge(number, "ann") for number in range(60)])
    content = bytearray(path.read_bytes())
    chance = random.Random(damage)
    if damage < 2:
        content = content[: len(content) // (2 + damage)]
    for _ in range(1 + damage % 4):
        content[chance.randrange(100 if damage % 2 else len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)
    with contextlib.suppress(LedgerError):
        ledger = Ledger(path)
        ledger.spent(author="ann")
        ledger.charge(replace(TERMS, settings=b"more"), charge(0, "ann"))


@pytest.mark.parametrize("how", ["new", "copy", "removed", "same inode"])
def test_a_ledger_that_is_replaced_while_in_use_is_refused(path, how):
    other = path.with_name("other")
    ledger = Ledger(path, document_limit=2)
    if how == "copy":
        other.write_bytes(path.read_bytes())
        other.chmod(0o600)
    else:
        Ledger(other)
    ledger.charge(TERMS, charge("a"))
    if how == "removed":
        path.unlink()
    elif how == "same inode":
        path.write_bytes(other.read_bytes())
    else:
        os.replace(other, path)
    match = "writable" if how == "removed" else "was replaced by another file"
    for use in (lambda: ledger.charge(TERMS, charge("b")), ledger.spent):
        with pytest.raises(LedgerError, match=match):
            use()


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_cannot_be_written_is_reported(there):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        path = Path(folder) / "ledger"
        if there:
            Ledger(path)
        os.chmod(folder, 0o555)

        def work() -> None:
            if os.geteuid() == 0:  # no folder is closed to root
                if there:
                    os.chown(path, 65534, -1)
                os.setuid(65534)
            with pytest.raises(LedgerError, match="writable" if there else "can write to"):
                Ledger(path).charge(TERMS, charge("a"))

        assert ended_well(fork(work))
        assert os.listdir(folder) == (["ledger"] if there else [])


def test_places_where_no_ledger_can_be_are_reported(tmp_path):
    for name in ("missing/ledger", ""):
        with pytest.raises(LedgerError):
            Ledger(tmp_path / name)


def test_a_name_with_special_characters_is_only_a_name(tmp_path):
    path = tmp_path / "a ?mode=memory&#%41 é"
    Ledger(path).charge(TERMS, charge("a"))
    assert Ledger(path).spent().releases == 1
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
