"""The ledger's file: how the SQLite database is made, opened and checked, and what is said if it is damaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from textpriv.errors import LedgerError

_APPLICATION, _FORMAT = 0x74706C67, 4  # mark an SQLite file as a ledger of this format
_PATIENCE = 60.0  # seconds to wait for another process's transaction; one takes milliseconds
_AMOUNT = "INTEGER NOT NULL CHECK (typeof({0}) = 'integer' AND {0} >= 0)"
_HASH = "BLOB NOT NULL CHECK (typeof({0}) = 'blob')"
_SCHEMA = (
    "CREATE TABLE secret (value BLOB NOT NULL CHECK (typeof(value) = 'blob' AND length(value) = 32))",
    f"""CREATE TABLE releases (
        document {_HASH.format("document")},
        settings {_HASH.format("settings")},
        content {_HASH.format("content")},
        author BLOB,
        distance TEXT NOT NULL CHECK (typeof(distance) = 'text'),
        epsilon {_AMOUNT.format("epsilon")},
        nats {_AMOUNT.format("nats")},
        tokens {_AMOUNT.format("tokens")},
        rho {_AMOUNT.format("rho")},
        key BLOB NOT NULL CHECK (typeof(key) = 'blob' AND length(key) = 32),
        PRIMARY KEY (document, settings, content)
    ) WITHOUT ROWID""",
    "CREATE INDEX by_author ON releases (author, nats, rho)",
    # Of each draw that documents share, a row for each document that has a part in it.
    f"""CREATE TABLE shared (
        document {_HASH.format("document")},
        mark {_HASH.format("mark")},
        author BLOB,
        nats {_AMOUNT.format("nats")},
        rho {_AMOUNT.format("rho")},
        PRIMARY KEY (document, mark)
    ) WITHOUT ROWID""",
    "CREATE INDEX shared_by_author ON shared (author, mark, nats, rho)",
    # Of each measurement of whole records, a row for each author; random bytes stand where a release names its document.
    f"""CREATE TABLE measurements (
        author {_HASH.format("author")},
        document {_HASH.format("document")},
        rho {_AMOUNT.format("rho")},
        PRIMARY KEY (author, document)
    ) WITHOUT ROWID""",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_FORMAT}",
)


def create(path: Path) -> None:
    """Make an empty ledger where there is no file, or one that another process is just making."""
    try:
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        if path.stat().st_size:
            return
    except OSError as error:
        raise LedgerError(
            f"cannot make the ledger {path}: {error.strerror}. Name a file in a folder that you can write to."
        ) from None
    checked_file(path)
    with plain_errors(path), transaction(path) as connection:
        if connection.execute("PRAGMA application_id").fetchone() == (0,):
            for command in _SCHEMA:
                connection.execute(command)
            connection.execute("INSERT INTO secret VALUES (?)", (os.urandom(32),))


@contextlib.contextmanager
def transaction(
    path: Path, begin: str = "BEGIN IMMEDIATE", *, mode: str = "rw"
) -> Iterator[sqlite3.Connection]:
    """Run one transaction on an SQLite file: on the disk when the block ends well, undone otherwise.

    ``mode="rwc"`` makes a file that is not there.
    """
    address = f"{path.as_uri()}?mode={mode}"
    opened = sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)
    with contextlib.closing(opened) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS
        connection.execute(begin)
        yield connection
        connection.execute("COMMIT")


def check_format(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse what is no ledger, and one of another format."""
    if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
        raise none_there(path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != _FORMAT:
        raise LedgerError(
            f"{path} has format {version}, and this version of textpriv reads {_FORMAT}. Use the version that made it."
        )


def checked_file(path: Path) -> tuple[int, int]:
    """Refuse what is no file of the user's own; return its device and inode."""
    try:
        status = path.stat()
    except OSError as error:
        raise LedgerError(
            f"cannot open the ledger {path}: {error.strerror}. Put the file back, or name another."
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise LedgerError(f"{path} is not a file. Name a file for the ledger.")
    if status.st_mode & 0o077:
        raise LedgerError(
            f"{path} can be used by other users (mode {stat.S_IMODE(status.st_mode):o}), and a ledger holds the keys of "
            f"what was released. If nobody has read it, close it with: chmod 600 {path}"
        )
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into errors for the user, which name the file and never its content."""
    try:
        yield
    except (UnicodeDecodeError, sqlite3.DatabaseError) as error:
        message = str(error)
        if "not a database" in message:
            raise none_there(path) from None
        is_damaged = any(sign in message for sign in ("no such", "decode to UTF-8", "malformed"))
        if is_damaged or not isinstance(error, sqlite3.OperationalError):
            raise damaged(path) from None
        remedy = "nothing of this was counted. Repair the cause, and try again"
        if "locked" in message or "busy" in message:
            remedy = (
                f"another process has held it for {_PATIENCE:.0f} seconds. End that, and try again"
            )
        elif "readonly" in message or "unable to open" in message:
            remedy = (
                "it and its folder must be writable. Change that, or use a ledger in another folder"
            )
        raise LedgerError(f"cannot use the ledger {path} ({message}): {remedy}.") from None


def none_there(path: Path) -> LedgerError:
    """Return the error of a file that is no ledger."""
    return LedgerError(
        f"{path} is no ledger. Name another file; a new one is made where there is none."
    )


def damaged(path: Path) -> LedgerError:
    """Return the error of a ledger that SQLite cannot read, or whose content is none."""
    return LedgerError(
        f"the ledger {path} is damaged. Put back a copy; what was released since it was made must be counted by hand."
    )
