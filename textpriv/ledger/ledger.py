"""The ledger: what each document and author has spent, and the keys that repeat a release, in one SQLite file.

A ledger is charged before anything is drawn. It refuses, or it writes the charge to the disk and returns the random key of
the release. The same document with the same settings gets its first key again and pays nothing. Three sums are kept, and
all bounds hold at once; ``mechanisms.md`` proves them in section 10.5:

epsilon
    Over releases under one distance, which is that of one index. Words alone.
nats
    The worst case between any two documents, or collections of an author, of the same shape: words and typed spans, under
    all distances.
rho
    The same in zero-concentrated differential privacy.

A draw that releases share, such as one shift for all dates of an author, counts once in the account of each whose it is.
A measurement of whole records counts for their authors alone, in rho. No number of nats bounds it.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial
from pathlib import Path
from typing import Any

from textpriv.errors import LedgerError, LimitError, at_position
from textpriv.ledger import store
from textpriv.ledger.charges import DELTA, Charge, DocumentName, Permit, Shared, Spent, Terms
from textpriv.randomness import DocumentKey, framed, identity_bytes
from textpriv.statement import at_most, epsilon_of_zcdp, factor_in_words

_IN_RHO = (
    "each WHOSE at most {} rho of zero-concentrated differential privacy under all indexes together: any set of outcomes is "
    f"at most {{}} times as likely for one as for another, plus {DELTA:g}"
)
_SENTENCES = {
    "document_limit": "a document may spend at most epsilon {} per unit of distance under each index (each set of words, "
    "vectors and metric has a unit and a sum of its own)",
    "document_nats_limit": "a document at most {} nats under all indexes together",
    "document_rho_limit": _IN_RHO.replace("WHOSE", "document"),
    "author_limit": "an author's documents at most {} nats in all",
    "author_rho_limit": _IN_RHO.replace("WHOSE", "author"),
}
LIMITS = tuple(_SENTENCES)
_UNIT = 10**6
_LARGEST = 2**62  # millionths of one amount; SQLite refuses sums above 2^63


class Ledger:
    """A durable account of releases, shared by any number of processes.

    The file holds no text and no name, only hashes under a secret of its own. But it holds the keys of the releases: whoever
    has it and the released texts can undo them. Only its owner may read it.

    A charge is one transaction that is on the disk (``synchronous=FULL``) before its key is returned. A process that dies
    before has counted nothing. One that dies after has counted once, and gets the same key when it charges again. Nothing
    stays open between two calls, so threads and forks need no care.

    A file that is damaged, no ledger, open to other users, or replaced while it is used, is a LedgerError.

    Limits hold for what is charged through this object: give every process the same ones. Amounts are whole millionths,
    rounded up. An older copy that was put back before the ledger was opened forgets what was released since.

    Parameters
    ----------
    path : path
        The file, made if there is none. Keep it on a local disk.
    document_limit : float, optional
        Most epsilon that one document may spend under each index, over all its versions, per unit of that index's distance.
        Set ``document_nats_limit`` if you use several indexes.
    document_nats_limit : float, optional
        Most nats that one document may spend in the worst case, over all its versions and under all indexes together.
    author_limit : float, optional
        Most nats that one author's documents may spend in the worst case. Every document must then name its author.
    document_rho_limit, author_rho_limit : float, optional
        The same two in zCDP, which many words spend more slowly.

    Examples
    --------
    >>> import os, tempfile
    >>> from textpriv.ledger import Charge, DocumentName, Ledger, Terms
    >>> terms = Terms(settings=b"TEM, epsilon 2", distance="euclidean", epsilon=2.0, word_loss=15.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(os.path.join(folder, "ledger"), document_limit=6)
    ...     first = ledger.charge(terms, Charge(DocumentName("letter-1", "ann"), b"the words", tokens=2))
    ...     again = ledger.charge(terms, Charge(DocumentName("letter-1", "ann"), b"the words", tokens=2))
    ...     spent = ledger.spent(author="ann")
    >>> (again.charged, again.key == first.key, spent.nats, spent.epsilon)
    (False, True, 30.0, {'euclidean': 2.0})
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        document_limit: float | None = None,
        document_nats_limit: float | None = None,
        author_limit: float | None = None,
        document_rho_limit: float | None = None,
        author_rho_limit: float | None = None,
    ) -> None:
        self.path = Path(path).absolute()
        of_document = document_limit, document_nats_limit, document_rho_limit
        named = zip(LIMITS, (*of_document, author_limit, author_rho_limit), strict=True)
        self.limits = {name: limit for name, limit in named if limit is not None}
        self._limits = {
            name: _millionths(name, limit, rounding=ROUND_FLOOR)
            for name, limit in self.limits.items()
        }
        self._secret = b""
        store.create(self.path)
        self._file = store.checked_file(self.path)
        with self._transaction("BEGIN") as connection:
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise store.damaged(self.path)

    def charge(self, terms: Terms, charge: Charge) -> Permit:
        """Count the release of one document, or find it counted; see :meth:`charge_all`."""
        return self.charge_all(terms, [charge])[0]

    def charge_all(self, terms: Terms, charges: Sequence[Charge]) -> list[Permit]:
        """Count the releases of some documents in one transaction: all of them or none.

        Draw nothing before this returns. A document whose release with these terms and this content is in the ledger costs
        nothing and gets its stored key. A LimitError says which charges would pass a limit (``refused``), a LedgerError
        what cannot be counted, or that a document is known under another author.
        """
        entries, releases = [], []
        for position, charge in enumerate(charges):
            with at_position(position):
                entries.append(self._entry(terms, charge))
        with self._transaction("BEGIN IMMEDIATE") as connection:
            refused: list[LimitError] = []
            for position, entry in enumerate(entries):
                try:
                    with at_position(position):
                        releases.append(self._charge(connection, entry))
                except LimitError as error:
                    refused.append(error)
            if refused:
                refused[0].refused = [
                    each.position for each in refused if each.position is not None
                ]
                raise refused[0]
        return releases

    def charge_authors(self, authors: Collection[bytes], rho: float) -> None:
        """Count one measurement of whole records, for all of their authors or for none; every call is another.

        Draw nothing before this returns. Authors are named by their ``identity_bytes``. If other records replace all of one
        author's, the measurement loses ``rho`` in zCDP. A LimitError says how many authors would pass their limit.
        """
        if "author_limit" in self._limits:
            raise LedgerError("no number of nats bounds a measurement. Use author_rho_limit.")
        amount, measurement = _millionths("rho", rho), os.urandom(16)
        names = {self._hash(b"author", each) for each in authors}
        with self._transaction("BEGIN IMMEDIATE") as connection:
            if (limit := self._limits.get("author_rho_limit")) is not None:
                _check_authors(connection, names, amount, limit)
            rows = ((name, measurement, amount) for name in names)
            connection.executemany("INSERT INTO measurements VALUES (?, ?, ?)", rows)

    def _entry(self, terms: Terms, charge: Charge) -> _Entry:
        document, words = charge.document, int(charge.tokens)
        if words < 0:
            raise LedgerError(f"tokens must be 0 or more; got {words}.")
        epsilon = _millionths("epsilon", terms.epsilon)
        if not epsilon:
            raise LedgerError(f"epsilon must be above 0; got {terms.epsilon}.")
        rho = terms.word_loss**2 / 2 if terms.word_rho is None else terms.word_rho
        part = framed(b"" if document.part is None else identity_bytes(document.part))
        author = document.author
        return _Entry(
            document=self._hash(b"document", identity_bytes(document.name)),
            settings=terms.settings,
            content=self._hash(b"content", part + charge.content),
            author=None if author is None else self._hash(b"author", identity_bytes(author)),
            distance=terms.distance,
            epsilon=epsilon,
            nats=_millionths("word_loss", terms.word_loss, words)
            + _millionths("nats", charge.nats),
            tokens=words,
            rho=_millionths("word_rho", rho, words) + _millionths("rho", charge.rho),
            shared=tuple(self._marked(document, each) for each in charge.shared),
        )

    def _marked(self, document: DocumentName, shared: Shared) -> tuple[bytes, int, int]:
        name = document.author if shared.scope == "person" else document.name
        if name is None:
            raise LedgerError(
                "what is drawn once for a person is counted by author, and this document names none. Give its author."
            )
        drawn = framed(shared.scope.encode()) + framed(identity_bytes(name)) + shared.drawn
        nats, rho = _millionths("nats", shared.nats), _millionths("rho", shared.rho)
        return self._hash(b"shared", drawn), nats, rho

    def _charge(self, connection: sqlite3.Connection, entry: _Entry) -> Permit:
        known = connection.execute(
            "SELECT settings = ? AND content = ?, author IS ?, distance = ?, epsilon, key FROM releases WHERE document = ?",
            (entry.settings, entry.content, entry.author, entry.distance, entry.document),
        ).fetchall()
        if not all(same_author for _, same_author, *_ in known):
            raise LedgerError(
                "a document of this name was released for another author, or for none. Name a document the same "
                "way each time, and give each author's documents names of their own."
            )
        for is_this, *_, key in known:
            if is_this:
                return Permit(key, charged=False)
        spent = sum(epsilon for _, _, same_distance, epsilon, _ in known if same_distance)
        unit = "per unit of distance under this index"
        self._check("document_limit", spent, entry.epsilon, unit)
        self._check_account(connection, "document", entry.document, entry)
        if entry.author is not None:
            self._check_account(connection, "author", entry.author, entry)
        elif {"author_limit", "author_rho_limit"} & self._limits.keys():
            raise LedgerError(
                "there is a limit for each author, and this document names none. Give its author."
            )
        key = os.urandom(32)
        row = {name: value for name, value in vars(entry).items() if name != "shared"}
        row["key"] = key
        connection.execute(
            f"INSERT INTO releases ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",  # noqa: S608
            tuple(row.values()),
        )
        connection.executemany(
            "INSERT OR IGNORE INTO shared (document, author, mark, nats, rho) VALUES (?, ?, ?, ?, ?)",
            [(entry.document, entry.author, *each) for each in entry.shared],
        )
        return Permit(key, charged=True)

    def _check_account(
        self, connection: sqlite3.Connection, whose: str, name: bytes, entry: _Entry
    ) -> None:
        """Refuse what would pass a limit of a document or an author; shared draws that it has are paid."""
        nats_limit = {"document": "document_nats_limit", "author": "author_limit"}[whose]
        rho_limit = f"{whose}_rho_limit"
        if not {nats_limit, rho_limit} & self._limits.keys():
            return
        which = f"{whose} = ?"
        nats, rho = _sums(connection, which, name)
        marks = connection.execute(f"SELECT mark FROM shared WHERE {which}", (name,))  # noqa: S608
        paid = {mark for (mark,) in marks}
        new = [each for each in entry.shared if each[0] not in paid]
        of = "under all indexes"
        self._check(nats_limit, nats, entry.nats + sum(each[1] for each in new), f"nats {of}")
        self._check(rho_limit, rho, entry.rho + sum(each[2] for each in new), f"rho {of}")

    def _check(self, name: str, spent: float, more: int, unit: str) -> None:
        limit, whose = self._limits.get(name), name.partition("_")[0]
        if limit is not None and spent + more > limit:
            raise LimitError(
                f"the limit of this {whose} is {limit / _UNIT:,.6g} {unit}; it has spent {spent / _UNIT:,.6g}, and this "
                f"release would add {more / _UNIT:,.6g}. It was neither drawn nor counted. Leave the {whose} out or raise "
                "the limit; repeating an earlier release exactly costs nothing."
            )

    def spent(
        self, *, document: DocumentKey | None = None, author: DocumentKey | None = None
    ) -> Spent:
        """Return what a document, or an author, has spent; zero for an unknown name."""
        if (document is None) == (author is None):
            raise LedgerError("give a document or an author; totals() is for all.")
        if author is not None:
            return self._spent("author = ?", self._hash(b"author", identity_bytes(author)))
        assert document is not None
        return self._spent("document = ?", self._hash(b"document", identity_bytes(document)))

    def totals(self) -> Spent:
        """Return what all documents have spent together."""
        return self._spent("TRUE")

    def _spent(self, which: str, *name: bytes) -> Spent:
        counts = "SELECT COUNT(DISTINCT document), COUNT(*), COALESCE(SUM(tokens), 0) FROM releases"
        by_distance = "SELECT distance, SUM(epsilon) FROM releases"
        with self._transaction("BEGIN") as connection:
            documents, releases, tokens = connection.execute(
                f"{counts} WHERE {which}", name
            ).fetchone()
            epsilon = connection.execute(f"{by_distance} WHERE {which} GROUP BY distance", name)
            units = {distance: amount / _UNIT for distance, amount in epsilon}
            nats, rho = _sums(connection, which, *name)
        return Spent(documents, releases, tokens, nats / _UNIT, units, rho / _UNIT)

    @property
    def mark(self) -> bytes:
        """16 bytes that distinguish this ledger from any other and reveal nothing of its content."""
        return self._hash(b"mark", b"")

    @property
    def scope_key(self) -> bytes:
        """32 secret bytes, from which mechanisms of spans draw the same again for a document or an author."""
        return self._hash(b"scope 0", b"") + self._hash(b"scope 1", b"")

    @property
    def statement(self) -> str:
        """What the ledger counts and refuses, in plain words."""
        limits = []
        for name, limit in self.limits.items():
            factor = factor_in_words(epsilon_of_zcdp(limit, DELTA)) if "rho" in name else ""
            limits.append(_SENTENCES[name].format(at_most(limit), factor))
        refused = "No limit is set."
        if limits:
            refused = (
                f"Refused before anything is drawn is what would pass a limit: {'; '.join(limits)}."
            )
        return (
            "Every release is counted before it is drawn. The epsilons of a document's releases under one index add up, "
            "and the worst-case losses, in nats, of all releases of a document, and of an author's documents, add up "
            "under all indexes; what is drawn once for a person or a document, such as a shift of dates, counts once in "
            "the account of each. A measurement of whole records counts for their authors alone, in rho, and without a "
            "finite number of nats. The same document with the same settings is released as before and counted once. "
            f"{refused}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(
            Ledger, self.path, **self.limits
        ), ()  # another process opens the file itself

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def _hash(self, purpose: bytes, value: bytes) -> bytes:
        return hashlib.blake2b(value, digest_size=16, key=self._secret, person=purpose).digest()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Run one transaction: on the disk when the block ends well, undone otherwise."""
        with store.plain_errors(self.path), store.transaction(self.path, begin) as connection:
            store.check_format(self.path, connection)
            secret = connection.execute("SELECT value FROM secret").fetchone()
            if secret is None or not isinstance(secret[0], bytes) or len(secret[0]) != 32:
                raise store.damaged(self.path)
            self._secret = self._secret or secret[0]
            if secret[0] != self._secret or store.checked_file(self.path) != self._file:
                raise LedgerError(
                    f"the ledger {self.path} was replaced by another file while it was in use, so its sums are not those "
                    "that were counted. Nothing was counted now. Put the file back, or open the new one."
                )
            yield connection


@dataclass(frozen=True)
class _Entry:
    """A row of the table: hashes and whole millionths; of each shared draw its mark, nats and rho."""

    document: bytes
    settings: bytes
    content: bytes
    author: bytes | None
    distance: str
    epsilon: int
    nats: int
    tokens: int
    rho: int
    shared: tuple[tuple[bytes, int, int], ...] = ()


def _millionths(name: str, value: float, times: int = 1, rounding: str = ROUND_CEILING) -> int:
    """Turn an amount into whole millionths; a float means the decimal that it is written as."""
    if not 0 <= value < math.inf:
        raise LedgerError(f"{name} must be a finite number, 0 or more, to be counted; got {value}.")
    amount = Decimal(repr(float(value))) * times * _UNIT
    if amount > _LARGEST:
        raise LedgerError(f"{name} is too large to be counted: {value:g}, {times:,} times.")
    return int(amount.to_integral_value(rounding=rounding))


def _sums(connection: sqlite3.Connection, which: str, *name: bytes) -> tuple[float, int]:
    """Nats and rho of all that a condition selects, with each draw that releases share once."""
    draws = f"SELECT MAX(nats) AS nats, MAX(rho) AS rho FROM shared WHERE {which} GROUP BY mark"  # noqa: S608
    total = "SELECT COALESCE(SUM(nats), 0), COALESCE(SUM(rho), 0) FROM"
    own = connection.execute(f"{total} releases WHERE {which}", name).fetchone()
    shared = connection.execute(f"{total} ({draws})", name).fetchone()
    people = f"SELECT COUNT(*), rho FROM measurements WHERE {which} GROUP BY document, rho"  # noqa: S608
    # If k authors change at once, a measurement moves k times as far, and rho is of the square.
    measured = [count**2 * rho for count, rho in connection.execute(people, name)]
    nats = math.inf if measured else own[0] + shared[0]
    return nats, own[1] + shared[1] + sum(measured)


def _check_authors(
    connection: sqlite3.Connection, names: Collection[bytes], amount: int, limit: int
) -> None:
    """Refuse a measurement that would take some authors past a limit in rho."""
    spent = (_sums(connection, "author = ?", name)[1] for name in names)
    if over := sum(each + amount > limit for each in spent):
        raise LimitError(
            f"{over:,} of {len(names):,} authors would pass the limit of {limit / _UNIT:,.6g} rho: this measurement adds "
            f"{amount / _UNIT:,.6g} to each. It was neither made nor counted. Raise the limit, or lower epsilon."
        )
