"""Writing an index folder: staged beside its place, and moved there whole. How it is read and checked is in ``storage``."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import IndexFolderError
from textpriv.files import flush, umask
from textpriv.index.records import RECORDS
from textpriv.index.storage import (
    BANDS_FILE,
    FORMAT,
    GRAPH_FILE,
    META,
    QUANTIZED_FILE,
    checksum,
    meta_checksum,
    read_meta,
    verify_files,
)

if TYPE_CHECKING:
    from textpriv.index.index import Index

__all__ = ["save", "write", "write_arrays", "write_listing"]


def save(index: Index, target: Path, *, overwrite: bool) -> None:
    """Write an index as a folder, whole or not at all; see :meth:`textpriv.index.Index.save`."""
    if target.exists() and not (overwrite and (target / META).is_file()):
        remedy = (
            "pass overwrite=True (--force) to replace it, or choose another name"
            if (target / META).is_file()
            else "it is not an index folder; choose another name"
        )
        raise IndexFolderError(f"{target} exists already: {remedy}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        index._write(staging)
        os.chmod(staging, 0o777 & ~umask())
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            os.replace(target, old / "index")
            try:
                os.replace(staging, target)
            except BaseException:
                os.replace(old / "index", target)
                old.rmdir()
                raise
            shutil.rmtree(old)
        else:
            os.replace(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def write(index: Index, folder: Path) -> None:
    """Write arrays, words, graph, records and last the listing."""
    arrays = {
        "vectors.npy": index.vocabulary.vectors,
        "neighbours.npy": index.neighbours.ids,
        "distances.npy": index.neighbours.distances,
        "representatives.npy": index.representatives,
    }
    if not np.shares_memory(index.coordinates, index.vocabulary.vectors):
        arrays["coordinates.npy"] = index.coordinates
    if len(index.quantized.rows):
        arrays[QUANTIZED_FILE] = index.quantized.rows
    if index.neighbours.bands is not None:
        arrays[BANDS_FILE] = index.neighbours.bands.nearest
    names = write_arrays(index, folder, arrays)
    if _write_graph(index, folder / GRAPH_FILE):
        names.append(GRAPH_FILE)
    write_listing(index, folder, _listing(index), names)


def write_arrays(index: Index, folder: Path, arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """Write arrays by their file names, the prior and the words; returns the names of all files."""
    prior = index.vocabulary.prior
    arrays = {**arrays} if prior is None else {**arrays, "prior.npy": prior}
    for name, array in arrays.items():
        with open(folder / name, "wb") as file:
            np.save(file, array, allow_pickle=False)
            flush(file)
    with open(folder / "words.json", "w", encoding="utf-8") as text:
        json.dump(index.vocabulary.words, text, ensure_ascii=False)
        flush(text)
    return [*arrays, "words.json"]


def write_listing(index: Index, folder: Path, meta: Mapping[str, Any], names: list[str]) -> None:
    """Write the records, and last ``index.json``; records are not listed, for they may be added later."""
    index._records.copy_to(folder / RECORDS)
    files = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": checksum(folder / name)}
        for name in names
    }
    known = {} if index.language is None else {"language": index.language}
    listing: dict[str, Any] = {**meta, **known, "files": files}
    listing["checksum"] = meta_checksum(listing)
    with open(folder / META, "w", encoding="utf-8") as text:
        json.dump(listing, text, indent=1)
        flush(text)


def _write_graph(index: Index, file: Path) -> bool:
    """Write the approximate index, where there is one."""
    graph = index._graph if index._graph is not None else index.__dict__.get("graph")
    if graph is not None:
        graph.save_index(str(file))
    elif index.path is not None and (index.path / GRAPH_FILE).is_file():
        # Not opened yet, so copied as it is; its checksum is compared with the recorded one first.
        verify_files(index.path, read_meta(index.path), [GRAPH_FILE])
        shutil.copyfile(index.path / GRAPH_FILE, file)
    else:
        return False
    return True


def _listing(index: Index) -> dict[str, Any]:
    """What ``index.json`` holds of an index besides its files."""
    bands = index.neighbours.bands
    return {
        "format": FORMAT,
        "words": len(index),
        "dimension": int(index.vocabulary.vectors.shape[1]),
        "metric": index.metric.settings(),
        "k": index.k,
        "backend": index.backend,
        "recall": index.recall,
        "tau": index.tau,
        "rounding": list(index.rounding),
        "typical": {str(rank): list(ends) for rank, ends in index.typical.items()},
        "diameter_bound": index.diameter_bound,
        "sketch": {"leading": index.quantized.leading, "grain": index.quantized.scales.tolist()},
        "bands": None if bands is None else {"starts": bands.starts.tolist(), "step": bands.step},
        "fingerprint": index.fingerprint,
    }
