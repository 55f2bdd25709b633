"""The command that makes ahead what texts need: compiled code and the built-in index, for images and read-only machines."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from textpriv.cli.messages import print_json, say
from textpriv.cli.options import IndexFolder, Json, index_name

__all__ = ["warm"]


def warm(index: IndexFolder = None, as_json: Json = False) -> None:
    """Compile and build ahead what texts need, so that no run waits for it: for images and read-only machines.

    A few texts need nothing of it. What is made is kept in the folders that are printed: set NUMBA_CACHE_DIR and
    TEXTPRIV_CACHE_DIR to others, here and where texts are made private. Compiled code suits the processor it was made on.

    [bold]Example:[/bold] textpriv warm
    """
    from textpriv.index.builtin import open_index
    from textpriv.mechanisms.near import _attempts as sample
    from textpriv.mechanisms.tem import TEM
    from textpriv.privatizer import Privatizer

    started = time.perf_counter()
    name = index_name(index)
    say("compiling, and building the index where it is not kept yet ...")
    opened = open_index(name)
    privatizer = Privatizer(TEM(opened, epsilon=1.0))
    privatizer.warm()
    _ = privatizer.statement  # counts, and keeps, what statements say of the words
    compiled = Path(str(sample.stats.cache_path))
    done = {
        "index": name if opened.path is None else str(opened.path),
        "index_kept": opened.path is not None,
        "compiled": str(compiled.parent),
        "compiled_kept": any(compiled.glob("near.*.nbi")),
        "seconds": round(time.perf_counter() - started, 3),
    }
    if as_json:
        print_json(done)
    else:
        print(f"index: {done['index']}" if done["index_kept"] else f"index: {name}, not kept")
        print(f"compiled code: {compiled.parent}{'' if done['compiled_kept'] else ', not kept'}")
        print(f"{done['seconds']:.1f} s")
    if not (done["index_kept"] and done["compiled_kept"]):
        say(
            "What is not kept could not be written: name folders that can be by TEXTPRIV_CACHE_DIR and NUMBA_CACHE_DIR."
        )
        raise typer.Exit(1)
