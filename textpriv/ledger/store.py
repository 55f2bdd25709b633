"""The ledger's file: opening, making and checking the SQLite database, and what is said when it is damaged.

What is counted, and what a release costs, is decided in ``ledger.ledger``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from textpriv.errors import LedgerError
from textpriv.files import sync_folder

__all__ = [
    "FORMAT",
    "add_shared",
    "check_file",
    "connect",
    "create",
    "damaged",
    "is_shared",
    "plain_errors",
    "shared_sums",
]

# Of the file; raised when an older reader would misread a newer ledger. One that has no losses that documents share is of
# the first format still, which earlier versions read.
_FIRST_FORMAT, FORMAT = 1, 2

_APPLICATION = 0x74706C67  # marks an SQLite file as a ledger
_PATIENCE = 60.0  # seconds to wait for another process's transaction; one takes milliseconds

# What documents lose together by one draw: of each document that has a part in it a row.
_SHARED = """
CREATE TABLE IF NOT EXISTS shared (
    document BLOB NOT NULL,
    mark BLOB NOT NULL,
    author BLOB,
    nats INTEGER NOT NULL CHECK (nats >= 0),
    rho INTEGER NOT NULL CHECK (rho >= 0),
    PRIMARY KEY (document, mark)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS shared_by_author ON shared (author, mark, nats, rho);
"""
# A process of an earlier version that has the ledger open reads its format once and would charge past what is shared. This
# function is one that its connections lack, so it can enter nothing more.
_GUARD = """
CREATE TRIGGER IF NOT EXISTS counts_shared BEFORE INSERT ON releases BEGIN SELECT counts_shared(); END
"""
_SCHEMA = f"""
CREATE TABLE secret (value BLOB NOT NULL CHECK (length(value) = 32));
CREATE TABLE releases (
    document BLOB NOT NULL,
    settings BLOB NOT NULL,
    content BLOB NOT NULL,
    author BLOB,
    distance TEXT NOT NULL,
    epsilon INTEGER NOT NULL CHECK (epsilon > 0),
    nats INTEGER NOT NULL CHECK (nats >= 0),
    tokens INTEGER NOT NULL CHECK (tokens >= 0),
    key BLOB NOT NULL CHECK (length(key) = 32),
    rho INTEGER CHECK (rho >= 0),
    PRIMARY KEY (document, settings, content)
) WITHOUT ROWID;
CREATE INDEX by_author ON releases (author, nats);
{_SHARED}
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FIRST_FORMAT};
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing ledger, and refuse what is none before anything is written to it."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw",
        uri=True,
        timeout=_PATIENCE,
        isolation_level=None,
        check_same_thread=False,  # the lock keeps threads apart
    )
    try:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise LedgerError(
                f"{path} is no ledger. Name another file; a new one is made where there is none."
            )
        if version > FORMAT:
            raise LedgerError(
                f"{path} has format {version}, and this version reads up to {FORMAT}. Upgrade textpriv."
            )
        connection.create_function("rho_of", 2, _rho_of, deterministic=True)
        connection.create_function("counts_shared", 0, lambda: None)
        connection.execute("PRAGMA trusted_schema = ON")  # the trigger calls it
        connection.execute("PRAGMA synchronous = FULL")
        _add_rho(connection)
        _add_shared_table(connection)
        connection.execute("PRAGMA fullfsync = ON")  # elsewhere than on macOS it changes nothing
    except BaseException:
        connection.close()
        raise
    return connection


def _rho_of(nats: int, tokens: int) -> int:
    """The rho of a release that was counted without one, in millionths, from its nats; rounded up."""
    return -(-(nats**2) // (2 * 10**6 * tokens)) if tokens else 0


def _add_rho(connection: sqlite3.Connection) -> None:
    """Give a ledger of an earlier version the column of rho, which that version then leaves empty."""
    columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(releases)")]
    if columns and "rho" not in columns:
        try:
            connection.execute("ALTER TABLE releases ADD COLUMN rho INTEGER CHECK (rho >= 0)")
        except sqlite3.OperationalError as error:
            if "duplicate" not in str(error):  # which another process has just given it
                raise


def _add_shared_table(connection: sqlite3.Connection) -> None:
    """Give a ledger of an earlier version the table of shared losses; what it has counted stays as it is."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if "releases" in names and "shared" not in names:
        for command in filter(str.strip, _SHARED.split(";")):
            connection.execute(command)


def is_shared(connection: sqlite3.Connection, column: str, name: bytes | None, mark: bytes) -> bool:
    """Whether a draw has been counted for a document or an author."""
    found = f"SELECT 1 FROM shared WHERE {column} = ? AND mark = ? LIMIT 1"  # noqa: S608
    return connection.execute(found, (name, mark)).fetchone() is not None


def add_shared(
    connection: sqlite3.Connection,
    document: bytes,
    author: bytes | None,
    shared: Iterable[tuple[bytes, int, int]],
) -> None:
    """Enter draws in which a document has a part: mark, nats and rho of each."""
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute(_GUARD)
    rows = ((document, mark, author, nats, rho) for mark, nats, rho in shared)
    connection.executemany("INSERT OR IGNORE INTO shared VALUES (?, ?, ?, ?, ?)", rows)


def shared_sums(connection: sqlite3.Connection, which: str, *values: bytes) -> tuple[int, int]:
    """Nats and rho of all draws that documents share, each once, where a condition holds."""
    draws = f"SELECT MAX(nats) AS nats, MAX(rho) AS rho FROM shared WHERE {which} GROUP BY mark"  # noqa: S608
    sums = f"SELECT COALESCE(SUM(nats), 0), COALESCE(SUM(rho), 0) FROM ({draws})"  # noqa: S608
    nats, rho = connection.execute(sums, values).fetchone()
    return nats, rho


def create(path: Path) -> None:
    """Make an empty ledger that appears whole, unless another process is first."""
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise LedgerError(
            f"cannot make the ledger {path}: {error.strerror}. Name a file in a folder that you can write to."
        ) from None
    try:
        with plain_errors(path), contextlib.closing(sqlite3.connect(temporary)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise LedgerError(
                    f"cannot make the ledger {path}: its file system has no shared memory. Name a file on a local disk."
                )
            connection.executescript(_SCHEMA)
            with connection:
                connection.execute("INSERT INTO secret VALUES (?)", (os.urandom(32),))
        # Unlike a rename, a link never replaces a ledger that another process has just made.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        raise LedgerError(
            f"cannot make the ledger {path}: {error.strerror}. Name a file on a local disk."
        ) from None
    finally:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                os.unlink(f"{temporary}{suffix}")


def check_file(path: Path) -> tuple[int, int]:
    """Refuse what is no file of the user's own; return by which device and inode it is known again."""
    try:
        status = path.stat()
    except OSError as error:
        raise LedgerError(
            f"cannot open the ledger {path}: {error.strerror}. Put the file back, or name another."
        ) from None
    mode = status.st_mode
    if not stat.S_ISREG(mode):
        raise LedgerError(f"{path} is not a file. Name a file for the ledger.")
    if mode & 0o077:
        raise LedgerError(
            f"{path} can be used by other users (mode {stat.S_IMODE(mode):o}), and a ledger holds the keys of what was "
            f"released. If nobody has read it, close it with: chmod 600 {path}"
        )
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite says into an error for the user; it names the file and never what is in it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        message = str(error)
        if "locked" in message or "busy" in message:
            remedy = (
                f"another process has held it for {_PATIENCE:.0f} seconds. End that, and try again"
            )
        elif "readonly" in message or "unable to open" in message:
            remedy = "it and its folder must be writable. Change that, or work on a ledger in another folder"
        elif any(
            sign in message for sign in ("no such table", "no such column", "decode to UTF-8")
        ):
            raise damaged(path) from None
        else:
            remedy = "nothing of this was counted. Repair the cause, and try again"
        raise LedgerError(f"cannot use the ledger {path} ({message}): {remedy}.") from None
    except UnicodeDecodeError:  # of a damaged schema, quoted in SQLite's own message
        raise damaged(path) from None
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise LedgerError(
                f"{path} is no ledger. Name another file; a new one is made where there is none."
            ) from None
        raise damaged(path) from None


def damaged(path: Path) -> LedgerError:
    """The error of a ledger that SQLite cannot read, or that holds what no ledger does."""
    return LedgerError(
        f"the ledger {path} is damaged. Put back a copy; what was released since it was made must be counted by hand."
    )
