"""Apply each mutant of ``tests/mutants`` to a copy of the project, and check that a test fails.

Run it with ``python tools/mutants.py [FOLDER ...]``.

A mutant is one change that would make a claim of privacy false. Its file names the change and the tests that must notice it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 300


def read(names: list[str]) -> list[dict[str, Any]]:
    """Read the mutants of some folders, or of all."""
    files = sorted((ROOT / "tests" / "mutants").glob("*.toml"))
    chosen = [file for file in files if not names or file.stem in names]
    return [
        {"folder": file.stem, **mutant}
        for file in chosen
        for mutant in tomllib.loads(file.read_text(encoding="utf-8"))["mutant"]
    ]


def copy_project(target: Path) -> None:
    """Copy what the tests need."""
    kept = [path for path in ROOT.iterdir() if not path.name.startswith(".")]
    ignored = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
    for path in kept:
        if path.is_dir():
            shutil.copytree(path, target / path.name, ignore=ignored)
        else:
            shutil.copy2(path, target / path.name)


def survives(mutant: dict[str, Any], project: Path) -> str | None:
    """Run the tests of a mutant; return why it is alive, or None where a test failed."""
    path = project / mutant["file"]
    source = path.read_text(encoding="utf-8")
    if source.count(mutant["old"]) != 1:
        return f"the text to replace is there {source.count(mutant['old'])} times"
    path.write_text(source.replace(mutant["old"], mutant["new"]), encoding="utf-8")
    tests = mutant["tests"] if isinstance(mutant["tests"], list) else [mutant["tests"]]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(project)}
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=project, env=environment, capture_output=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return None  # a test that never ends notices it, too
    finally:
        path.write_text(source, encoding="utf-8")
    if done.returncode == 1:
        return None
    return "all tests passed" if done.returncode == 0 else f"pytest ended with {done.returncode}"


def main() -> int:
    """Try every mutant; return 1 where one survives."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", help="files of tests/mutants, without .toml")
    mutants = read(parser.parse_args().folders)
    alive = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        copy_project(project)
        for number, mutant in enumerate(mutants, 1):
            reason = survives(mutant, project)
            alive += reason is not None
            result = "killed" if reason is None else f"ALIVE: {reason}"
            print(f"{number:3} {mutant['folder']:<12} {mutant['breaks']}: {result}", flush=True)
    seconds = time.monotonic() - begin
    print(f"{len(mutants) - alive} of {len(mutants)} killed in {seconds:.0f} s")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
