"""The project stays as small as its budget says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_no_budget_is_exceeded():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/budget.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
