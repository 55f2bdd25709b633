"""Where the tests of the ledger keep one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path) -> Path:
    """A place for a ledger."""
    return tmp_path / "ledger"
