"""The ledger: what each document and each author has spent, in one file, with the keys that repeat a release.

A ledger is charged before anything is drawn. It either refuses, or writes the charge to the disk and hands out the random
key of the release; the same document under the same settings gets its first key again and pays nothing. Here stand the
sums, the limits and the file. How a text is read and drawn is in ``textpriv.privatizer``; what one drawn word costs is in
its mechanism's statement.

What is counted, and why it adds up
-----------------------------------
A release draws every word of a document independently, so its log-odds between two documents of the same shape are at
most ``sum_j epsilon * d(w_j, w'_j)`` over their words, and at most ``tokens * word_loss`` whatever the words are
(mechanisms.md, TEM-12). Releases with different keys are independent given the texts, also when the settings of a later
one were chosen by looking at an earlier one: their likelihoods multiply and their log-odds add (sequential composition).
Two sums follow, and both bounds hold at once:

epsilon
    Summed over releases under one distance, which is that of one index: its words, vectors and metric. If the words of no
    single document (or version of it) move by more than D in all, the log-odds of everything counted are at most
    ``epsilon * D``. For one document this is the composed epsilon of its releases; for an author, a fact that stands once in
    each document and changes by d costs ``epsilon * d``. Under two distances there are two sums, for one unit is worth
    nothing in the other: ``epsilon_1 * D_1 + epsilon_2 * D_2``.
nats
    ``tokens * word_loss``, and the largest loss of each typed span by its law, summed over all releases, whatever the
    distance: the worst case between any two documents, or any two collections of an author, with the same number of words
    and spans in the same places. A change of index does not begin it anew. The sum of epsilon speaks of words alone.
rho
    ``tokens * word_rho`` over the same releases, in zero-concentrated differential privacy: the loss of one word moves
    within a range of eta nats, so it is eta^2 / 8-zCDP (Cesar and Rogers, "Bounding, Concentrating, and Truncating", 2021;
    mechanisms.md 10.2), a span that loses N nats is N^2 / 2-zCDP, and rhos add up. What it converts to at a small delta
    (``composition.epsilon_of_zcdp``) grows more slowly than nats with the number of words. A limit holds also where releases
    were chosen by looking at earlier ones (Feldman and Zrnic, "Individual Privacy Accounting via a Renyi Filter", 2021); a
    sum without a limit where they were not.
    Releases that an earlier version counted without it have the rho of their nats: N nats of n words are N^2 / 2n-zCDP.

What is drawn once for a person (:class:`Shared`)
-------------------------------------------------
A law such as the shift of dates draws one number N for an author, under the ledger's key, and releases ``x + N`` of every
date x in whatever document. It is in the author's account once, and in that of each document that has such a date once,
however many dates, releases and versions there are. *Proof.* Adjacent are histories of which one is the other moved by D:
the intervals between dates are the same. Take the first release of a date, of x_1: it loses at most ``epsilon |D|``, however
it was chosen. Any later one is ``x + N = (x_1 + N) + (x - x_1)``, a function of what the first drew and of an interval that
both histories share: post-processing, whose loss is 0, also where its document was written or chosen by looking at all
releases before. What is cut at the end of the range is cut after that. For a document alone nothing is claimed of dates that
move against those of others: intervals are not protected.
Another epsilon, range or kind is another N, independent of the first, and adds. So do authors: their N are independent, so
whoever changes the documents of one author changes the account of this author alone (parallel composition: any one author
loses at most the largest account), and all authors together lose at most the sum, which is what :meth:`Ledger.totals` gives.
What an earlier version has counted with each release stays counted, which is never too little.

No sum covers what a statement calls not protected, such as the number of tokens, nor whether a text has changed
since its last release: an unchanged one is released as before.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import partial
from pathlib import Path
from typing import Any

from textpriv.arguments import real, shown, whole
from textpriv.bounds import at_most, factor_in_words
from textpriv.composition import epsilon_of_zcdp
from textpriv.errors import LedgerError, LimitError
from textpriv.ledger.charges import DELTA, Charge, Document, Release, Shared, Spent
from textpriv.ledger.store import (
    add_shared,
    check_file,
    connect,
    create,
    damaged,
    is_shared,
    plain_errors,
    shared_sums,
)
from textpriv.ledger.terms import Terms
from textpriv.randomness import DocumentKey, framed, identity_bytes

__all__ = ["LIMITS", "Charge", "Document", "Ledger", "Release", "Shared", "Spent"]

LIMITS = (
    "document_limit",
    "document_nats_limit",
    "author_limit",
    "document_rho_limit",
    "author_rho_limit",
)
_UNIT = 10**6
_LARGEST = 2**62  # millionths; sums are checked by SQLite, single amounts here
_RHO = "COALESCE(rho, rho_of(nats, tokens))"


# SQLite keeps any type in any column; what is read is added up and compared without another look.
_STRANGE = (
    "SELECT 1 FROM releases WHERE typeof(epsilon) <> 'integer' OR typeof(nats) <> 'integer' "
    "OR typeof(tokens) <> 'integer' OR typeof(key) <> 'blob' OR typeof(distance) <> 'text' "
    "OR typeof(rho) NOT IN ('integer', 'null') UNION ALL SELECT 1 FROM shared WHERE typeof(nats) <> 'integer' "
    "OR typeof(rho) <> 'integer' OR typeof(mark) <> 'blob' OR typeof(document) <> 'blob' LIMIT 1"
)


class Ledger:
    """A durable account of releases, shared by any number of processes.

    Parameters
    ----------
    path : path
        The file; made if there is none. Keep it on a local disk, beside ``path-wal`` and ``path-shm`` while in use.
    document_limit : float, optional
        Most epsilon that one document may spend under each index, over all its versions, per unit of that index's distance.
        Another index (other words, vectors or metric) has another unit, and a sum of its own: set ``document_nats_limit``
        where documents may be released under several.
    document_nats_limit : float, optional
        Most nats that one document may spend in the worst case, over all its versions and under all indexes together.
    author_limit : float, optional
        Most nats that one author's documents may spend in the worst case. Every document must then name its author.
    document_rho_limit, author_rho_limit : float, optional
        The same two in zCDP, which many words spend more slowly: at rho they are told apart by odds of at most
        ``exp(epsilon_of_zcdp(rho, delta))``, plus delta.

    Raises
    ------
    LedgerError
        For a file that cannot be used: damaged, of a newer format, no ledger, or open to other users; and, at any use, for
        one that was replaced by another since.

    Notes
    -----
    *Secrecy.* The file holds no text and no name, only hashes under a secret of its own, but it holds the keys of the
    releases: whoever has it and the released texts can undo them. It is as secret as the texts, so only its owner may
    read it, and the secret of the hashes lies in it too: a second file in the same place would be one more thing to lose
    and would keep nobody out.

    *Crashes.* A charge is one transaction that is on the disk (``synchronous=FULL``, write-ahead log) before its key is
    handed out. A process that dies before has drawn nothing and counted nothing; one that dies after has counted once,
    and gets the same key when it is charged again. ``synchronous=NORMAL`` would be enough for that, but a power cut could
    then take back charges whose releases are already out. :meth:`charge_all` shares one such write among many documents.

    *Limits* hold for what is charged through this object; give the same ones to every process. Amounts are kept in whole
    millionths, rounded up, so sums are exact in any order and never too low. A file that is replaced, moved or removed while
    it is in use is noticed (by device, inode and the secret in it) and refused. An older copy that was put back before the
    ledger was opened cannot be told from the file that it was: it forgets what was released since.

    *Versions.* A changed text is a new release under the same name and adds to the document's account. Since an unchanged
    one is released as before, whoever sees both releases learns whether it has changed.

    Examples
    --------
    >>> import os, tempfile
    >>> from textpriv.ledger import Charge, Document, Ledger, Terms
    >>> terms = Terms(settings=b"TEM, epsilon 2", distance="euclidean", epsilon=2.0, word_loss=15.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Ledger(os.path.join(folder, "ledger"), document_limit=6) as ledger:
    ...         first = ledger.charge(terms, Charge(Document("letter-1", "ann"), b"the words", tokens=2))
    ...         again = ledger.charge(terms, Charge(Document("letter-1", "ann"), b"the words", tokens=2))
    ...         first.key == again.key, first.charged, again.charged, ledger.spent(author="ann").nats
    (True, True, False, 30.0)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        document_limit: float | None = None,
        document_nats_limit: float | None = None,
        author_limit: float | None = None,
        document_rho_limit: float | None = None,
        author_rho_limit: float | None = None,
    ) -> None:
        self._connection: sqlite3.Connection | None = None
        _ledgers.add(self)
        self.path = Path(path).absolute()
        self.document_limit, self.document_nats_limit = document_limit, document_nats_limit
        self.document_rho_limit = document_rho_limit
        self.author_limit, self.author_rho_limit = author_limit, author_rho_limit
        self._limits = {name: _limit(name, getattr(self, name)) for name in LIMITS}
        if not self.path.exists():
            create(self.path)
        self._file = check_file(self.path)
        self._secret = b""
        with self._transaction("BEGIN") as connection:
            (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if sound != "ok" or connection.execute(_STRANGE).fetchone() is not None:
                raise damaged(self.path)
            self._secret = _secret_in(connection, self.path)

    # Charging

    def charge(self, terms: Terms, charge: Charge) -> Release:
        """Count the release of one document, or find it counted; see :meth:`charge_all`."""
        return self.charge_all(terms, [charge])[0]

    def charge_all(self, terms: Terms, charges: Sequence[Charge]) -> list[Release]:
        """Count the releases of some documents in one transaction: all of them or none.

        Draw nothing before this returns. A document whose release with these terms and this content is in the ledger
        costs nothing and gets its stored key.

        Parameters
        ----------
        terms : Terms
        charges : sequence of Charge

        Returns
        -------
        list of Release
            One for each charge, in order.

        Raises
        ------
        LimitError
            If a release would pass a limit. Its ``position`` is the charge's in ``charges``.
        LedgerError
            If an amount cannot be counted, a document is known under another author, or the file fails.
        """
        epsilon = _millionths("epsilon", terms.epsilon, ROUND_CEILING)
        if not epsilon:
            raise LedgerError(f"epsilon must be above 0; got {terms.epsilon}.")
        entries = []
        for number, charge in enumerate(charges):
            try:
                entries.append(self._entry(terms, epsilon, charge))
            except LedgerError as error:
                error.position = number
                raise
        releases = []
        spent_of: dict[bytes, tuple[int, int]] = {}  # of authors
        with self._transaction("BEGIN IMMEDIATE") as connection:
            for number, entry in enumerate(entries):
                try:
                    releases.append(self._charge(connection, entry, spent_of))
                except LedgerError as error:
                    error.position = number
                    raise
        return releases

    def _entry(self, terms: Terms, epsilon: int, charge: Charge) -> _Entry:
        author, words = charge.document.author, whole("tokens", charge.tokens, 0, LedgerError)
        rho = terms.word_loss**2 / 2 if terms.word_rho is None else terms.word_rho
        return _Entry(
            document=self._hash(b"document", identity_bytes(charge.document.name)),
            settings=terms.settings,
            content=self._hash(b"content", _part(charge.document) + charge.content),
            author=None if author is None else self._hash(b"author", identity_bytes(author)),
            distance=terms.distance,
            epsilon=epsilon,
            nats=_millionths("word_loss", terms.word_loss, ROUND_CEILING, words)
            + _millionths("the loss of the spans", charge.nats, ROUND_CEILING),
            tokens=words,
            rho=_millionths("word_rho", rho, ROUND_CEILING, words)
            + _millionths("the rho of the spans", charge.rho, ROUND_CEILING),
            shared=tuple(self._mark(charge.document, each) for each in charge.shared),
        )

    def _mark(self, document: Document, shared: Shared) -> tuple[bytes, int, int]:
        name = document.author if shared.scope == "person" else document.name
        if name is None:
            raise LedgerError(
                "what is drawn once for a person is counted by author, and this document names none. Give its author."
            )
        drawn = framed(shared.scope.encode()) + framed(identity_bytes(name)) + shared.drawn
        return (
            self._hash(b"shared", drawn),
            _millionths("the loss of a shared draw", shared.nats, ROUND_CEILING),
            _millionths("the rho of a shared draw", shared.rho, ROUND_CEILING),
        )

    def _charge(
        self, connection: sqlite3.Connection, entry: _Entry, spent_of: dict[bytes, tuple[int, int]]
    ) -> Release:
        spent = spent_nats = spent_rho = 0
        for settings, content, author, distance, epsilon, nats, rho, key in connection.execute(
            f"SELECT settings, content, author, distance, epsilon, nats, {_RHO}, key FROM releases WHERE document = ?",  # noqa: S608
            (entry.document,),
        ).fetchall():
            if author != entry.author:
                raise LedgerError(
                    "a document of this name was released for another author, or for none. Name a document the same "
                    "way each time, and give each author's documents names of their own."
                )
            if settings == entry.settings and content == entry.content:
                return Release(key, charged=False)
            if distance == entry.distance:
                spent += epsilon
            spent_nats += nats
            spent_rho += rho
        before = shared_sums(connection, "document = ?", entry.document)
        more = entry.more_than(lambda mark: is_shared(connection, "document", entry.document, mark))
        unit = "per unit of distance under this index"
        for limit, total, added, of in (
            ("document_limit", spent, entry.epsilon, unit),
            ("document_nats_limit", spent_nats + before[0], more[0], "nats under all indexes"),
            ("document_rho_limit", spent_rho + before[1], more[1], "rho under all indexes"),
        ):
            _check_limit(self._limits[limit], total, added, "document", of)
        if any(self._limits[name] is not None for name in ("author_limit", "author_rho_limit")):
            if entry.author is None:
                raise LedgerError(
                    "there is a limit for each author, and this document names none. Give its author."
                )
            if entry.author not in spent_of:
                spent_nats, spent_rho = connection.execute(
                    f"SELECT COALESCE(SUM(nats), 0), COALESCE(SUM({_RHO}), 0) FROM releases WHERE author = ?",  # noqa: S608
                    (entry.author,),
                ).fetchone()
                before = shared_sums(connection, "author = ?", entry.author)
                spent_of[entry.author] = spent_nats + before[0], spent_rho + before[1]
            spent_nats, spent_rho = spent_of[entry.author]
            more = entry.more_than(lambda mark: is_shared(connection, "author", entry.author, mark))
            _check_limit(self._limits["author_limit"], spent_nats, more[0], "author", "nats")
            _check_limit(self._limits["author_rho_limit"], spent_rho, more[1], "author", "rho")
            spent_of[entry.author] = spent_nats + more[0], spent_rho + more[1]
        if entry.shared:
            add_shared(connection, entry.document, entry.author, entry.shared)
        key = os.urandom(32)
        row = {name: value for name, value in vars(entry).items() if name != "shared"}
        row["key"] = key
        connection.execute(
            f"INSERT INTO releases ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",  # noqa: S608
            tuple(row.values()),
        )
        return Release(key, charged=True)

    # Reading

    def spent(
        self, *, document: DocumentKey | None = None, author: DocumentKey | None = None
    ) -> Spent:
        """What a document, or all documents of an author, have spent; zero for an unknown name.

        Raises
        ------
        LedgerError
            Unless exactly one of the two is given.
        """
        if (document is None) == (author is None):
            raise LedgerError(
                "give a document or an author, not both and not neither; totals() is for all."
            )
        if document is not None:
            return self._sum("document = ?", self._hash(b"document", identity_bytes(document)))
        assert author is not None
        return self._sum("author = ?", self._hash(b"author", identity_bytes(author)))

    def totals(self) -> Spent:
        """What all documents have spent together."""
        return self._sum("TRUE")

    def _sum(self, which: str, *values: bytes) -> Spent:
        # ``which`` is one of the three conditions above, never a value.
        sums = f"SELECT COUNT(DISTINCT document), COUNT(*), SUM(tokens), SUM(nats), SUM({_RHO}) FROM releases WHERE {which}"  # noqa: S608
        by_distance = f"SELECT distance, SUM(epsilon) FROM releases WHERE {which} GROUP BY distance"  # noqa: S608
        with self._transaction("BEGIN") as connection:
            documents, releases, tokens, nats, rho = connection.execute(sums, values).fetchone()
            epsilon = connection.execute(by_distance, values).fetchall()
            shared = shared_sums(connection, which, *values)
        return Spent(
            documents,
            releases,
            tokens or 0,
            ((nats or 0) + shared[0]) / _UNIT,
            {distance: amount / _UNIT for distance, amount in epsilon},
            ((rho or 0) + shared[1]) / _UNIT,
        )

    @property
    def mark(self) -> bytes:
        """16 bytes that tell this ledger from any other; who has them learns nothing of what is in it."""
        return self._hash(b"mark", b"")

    @property
    def scope_key(self) -> bytes:
        """32 secret bytes, from which laws of spans draw the same again for a document or an author."""
        return self._hash(b"scope 0", b"") + self._hash(b"scope 1", b"")

    @property
    def statement(self) -> str:
        """What the ledger counts and refuses, in plain words."""
        limits = []
        if self.document_limit is not None:
            limits.append(
                f"a document may spend at most epsilon {at_most(self.document_limit)} per unit of distance under each index "
                "(each set of words, vectors and metric has a unit and a sum of its own)"
            )
        if self.document_nats_limit is not None:
            limits.append(
                f"a document at most {at_most(self.document_nats_limit)} nats under all indexes together"
            )
        if self.author_limit is not None:
            limits.append(f"an author's documents at most {at_most(self.author_limit)} nats in all")
        for whose, rho in (
            ("document", self.document_rho_limit),
            ("author", self.author_rho_limit),
        ):
            if rho is not None:
                factor = factor_in_words(epsilon_of_zcdp(rho, DELTA))
                limits.append(
                    f"each {whose} at most {at_most(rho)} rho of zero-concentrated differential privacy under all indexes "
                    f"together: any set of outcomes is at most {factor} times as likely for one as for "
                    f"another, plus {DELTA:g}"
                )
        refused = (
            f"Refused before anything is drawn is what would pass a limit: {'; '.join(limits)}."
            if limits
            else "No limit is set."
        )
        return (
            "Every release is counted before it is drawn. The epsilons of a document's releases under one index add up, "
            "and the worst-case losses, in nats, of all releases of a document, and of an author's documents, add up "
            "under all indexes; what is drawn once for a person or a document, such as a shift of dates, counts once in "
            "the account of each. The same document with the same settings is released as before and counted once. "
            f"{refused}"
        )

    # The file

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with _lock:
            self._disconnect()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._disconnect()

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process opens the file itself.
        return partial(Ledger, self.path, **{name: getattr(self, name) for name in LIMITS}), ()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def _hash(self, purpose: bytes, value: bytes) -> bytes:
        return hashlib.blake2b(value, digest_size=16, key=self._secret, person=purpose).digest()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """One transaction of this thread; it is on the disk when the block has ended well, and undone otherwise."""
        with _lock, plain_errors(self.path):
            if self._connection is None:
                opened = connect(self.path)
                if self._secret and _secret_in(opened, self.path) != self._secret:
                    opened.close()
                    raise self._replaced()
                self._connection = opened
            connection = self._connection
            try:
                connection.execute(begin)
                # A connection survives the removal of its file, and would count where nobody reads.
                if check_file(self.path) != self._file:
                    raise self._replaced()
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                raise

    def _replaced(self) -> LedgerError:
        return LedgerError(
            f"the ledger {self.path} was replaced by another file while it was in use, so its sums are not those that were "
            "counted. Nothing was counted now. Put the file back, or open the new one if it is the right one."
        )


@dataclass(frozen=True)
class _Entry:
    """A row of the table: hashes and whole millionths."""

    document: bytes
    settings: bytes
    content: bytes
    author: bytes | None
    distance: str
    epsilon: int
    nats: int
    tokens: int
    rho: int
    shared: tuple[tuple[bytes, int, int], ...] = ()  # mark, nats and rho

    def more_than(self, has: Callable[[bytes], bool]) -> tuple[int, int]:
        """The nats and rho that an account is charged which has some of the shared draws already."""
        new = [each for each in self.shared if not has(each[0])]
        return self.nats + sum(each[1] for each in new), self.rho + sum(each[2] for each in new)


def _millionths(name: str, value: float, rounding: str, times: int = 1) -> int:
    """Turn an amount into whole millionths; the decimal that is written for a float is what was meant by it."""
    number = real(value)
    if not math.isfinite(number) or number < 0:
        raise LedgerError(
            f"{name} must be a finite number, not below 0, to be counted; got {shown(value)}."
        )
    amount = int((Decimal(repr(number)) * times * _UNIT).to_integral_value(rounding=rounding))
    if amount > _LARGEST:
        raise LedgerError(f"{name} is too large to be counted: {number:g}, {times:,} times.")
    return amount


def _limit(name: str, value: float | None) -> int | None:
    return None if value is None else _millionths(name, value, ROUND_FLOOR)


def _check_limit(limit: int | None, spent: int, more: int, whose: str, unit: str) -> None:
    if limit is None or spent + more <= limit:
        return
    raise LimitError(
        f"the limit of this {whose} is {limit / _UNIT:,.6g} {unit}; it has spent {spent / _UNIT:,.6g}, and this release "
        f"would add {more / _UNIT:,.6g}. It was neither drawn nor counted. Leave the {whose} out, raise the limit, or "
        "use a smaller epsilon; repeating an earlier release exactly costs nothing."
    )


def _part(document: Document) -> bytes:
    return framed(b"" if document.part is None else identity_bytes(document.part))


# SQLite connections must not cross a fork. So every fork waits for the transaction under way and closes the connections
# first; parent and child open their own when they next need one.
_lock = threading.Lock()
_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _before_fork() -> None:
    _lock.acquire()
    for ledger in list(_ledgers):
        ledger._disconnect()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_lock.release, after_in_child=_lock.release
    )


def _secret_in(connection: sqlite3.Connection, path: Path) -> bytes:
    row = connection.execute("SELECT value FROM secret").fetchone()
    if row is None or not isinstance(row[0], bytes):
        raise damaged(path)
    return row[0]
