"""Index folders from elsewhere: damaged in any of many ways, with right checksums, they are refused in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import damage


def test_damaged_folders_are_refused_in_a_sentence(tmp_path):
    """A process of its own opens them, so that one that dies is seen."""
    done = subprocess.run(
        [sys.executable, damage.__file__, str(tmp_path)],
        # The folder of tests beside the script is called textpriv too; a package on the path comes before it.
        env={**os.environ, "PYTHONPATH": str(Path(damage.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcomes = dict(json.loads(line) for line in done.stdout.splitlines())
    assert outcomes.keys() == damage.DAMAGES.keys()
    assert len(outcomes) - len(damage.HARMLESS) >= 140
    for name, told in outcomes.items():
        if name in damage.HARMLESS:
            assert told == "equal", name
            continue
        assert told.startswith("refused: "), (name, told)
        assert "\n" not in told, name
        assert len(told) < 400, name
        assert "build the index again" in told or "Make one with" in told, (name, told)
