"""Public sets of word vectors by name: what there is for a language, where each lies on this computer, and getting it.

A name has a hub before its colon: ``gensim:`` (gensim.downloader and its folder), ``spacy:`` (an installed package, or its
archive unpacked in the cache folder) or ``fasttext:`` (a file in the cache folder). What is listed stands in
``data/public_sets.csv``; checksums are those that the publishers, or for spaCy the packagers of conda-forge, give; fastText
gives none. Nothing here reads vectors: that is the matter of ``vocabulary.readers``.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import os
import re
import shutil
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textpriv.errors import VocabularyError
from textpriv.files import atomic_write, cache_folder, umask

__all__ = ["HUBS", "SETS", "PublicSet", "get", "is_named", "set_named", "where"]

# Of the bytes that are there, and all of them; 0 where that is not known.
Progress = Callable[[int, int], None]

HUBS = {
    "gensim": "https://github.com/RaRe-Technologies/gensim-data/releases/download/{0}/{0}.gz",
    "spacy": "https://github.com/explosion/spacy-models/releases/download/{0}-{1}/{0}-{1}.tar.gz",
    "fasttext": "https://dl.fbaipublicfiles.com/fasttext/vectors-crawl/{0}.vec.gz",
}
_SPACY_VERSION = "3.8.0"
_PIECE = 1 << 20
_NAME = re.compile(r"(gensim|spacy|fasttext):([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True)
class PublicSet:
    """A public set of word vectors.

    Attributes
    ----------
    name : str
        As :meth:`Vocabulary.load` takes it, with its hub.
    language : str or None
        spaCy's code; None where it is not known.
    words, dimensions : int
        0 where that is not known, and words where many of them share a vector.
    megabytes : int
        About, of what is fetched; 0 where that is not known.
    licence : str
        As its publisher states it.
    checksum : str
        "md5:..." or "sha256:..." of what is fetched; empty where nobody gives one.
    """

    name: str
    language: str | None = None
    words: int = 0
    dimensions: int = 0
    megabytes: int = 0
    licence: str = "see its publisher"
    checksum: str = ""

    @property
    def hub(self) -> str:
        """What stands before the colon."""
        return self.name.split(":")[0]

    @property
    def title(self) -> str:
        """What stands after it."""
        return self.name.split(":")[1]

    @property
    def url(self) -> str:
        """Where it is fetched from."""
        return HUBS[self.hub].format(self.title, _SPACY_VERSION)


def _listed(row: dict[str, str]) -> PublicSet:
    numbers = {name: int(row[name]) for name in ("words", "dimensions", "megabytes")}
    return PublicSet(**{**row, **numbers})  # type: ignore[arg-type]


with open(Path(__file__).with_name("data") / "public_sets.csv", encoding="utf-8") as _file:
    SETS = tuple(map(_listed, csv.DictReader(_file)))


def is_named(source: Any) -> bool:
    """Whether a source is the name of a public set, and no path."""
    return isinstance(source, str) and _NAME.fullmatch(source) is not None


def set_named(name: str) -> PublicSet:
    """The set of a name: one that is listed, or another one of its hub, of which less is known.

    Raises
    ------
    VocabularyError
        Where the name has no hub.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise VocabularyError(
            f"{name!r} is not the name of a public set, such as gensim:glove-wiki-gigaword-300, spacy:de_core_news_md or "
            "fasttext:cc.de.300. For a list: textpriv vectors"
        )
    listed = next((each for each in SETS if each.name == name), None)
    if listed is not None:
        return listed
    language = re.match(r"(?:cc\.)?([a-z]{2,3})[._]", match[2]) if match[1] != "gensim" else None
    return PublicSet(name, None if language is None else language[1])


def where(chosen: PublicSet) -> Path:
    """Where a set lies once it is on this computer: a file of vectors, or for spaCy the folder of a pipeline."""
    if chosen.hub == "gensim":
        return _gensim_folder() / chosen.title / f"{chosen.title}.gz"
    folder = cache_folder() / "vectors"
    if chosen.hub == "fasttext":
        return folder / f"{chosen.title}.vec.gz"
    return folder / f"{chosen.title}-{_SPACY_VERSION}"


def get(chosen: PublicSet, progress: Progress | None = None) -> Path | str:
    """Return where a set lies, fetched and compared with its checksum if it was not there before.

    Parameters
    ----------
    chosen : PublicSet
    progress : callable, optional
        Receives the bytes fetched and all of them.

    Returns
    -------
    Path or str
        A file or a folder, or the name of an installed spaCy package.

    Raises
    ------
    VocabularyError
        Where it cannot be fetched (the message says what to fetch where), or is not what its checksum says.
    """
    if chosen.hub == "spacy" and _is_installed(chosen.title):
        return chosen.title
    place = where(chosen)
    archive = place.parent / chosen.url.rpartition("/")[2]
    if place.exists():
        if place.is_file():
            _compare(chosen, place)
        return place
    if chosen.hub == "spacy" and archive.is_file():  # put there by hand
        return _unpacked(chosen, archive, place)
    try:
        if chosen.hub == "gensim":
            return _from_gensim(chosen)
        archive.parent.mkdir(parents=True, exist_ok=True)
        _fetch(chosen, archive, progress)
    except (OSError, urllib.error.URLError) as error:
        raise _out_of_reach(chosen, archive, str(error)) from None
    return _unpacked(chosen, archive, place) if chosen.hub == "spacy" else place


def _is_installed(package: str) -> bool:
    import spacy

    return bool(spacy.util.is_package(package))


def _out_of_reach(chosen: PublicSet, archive: Path, why: str) -> VocabularyError:
    return VocabularyError(
        f"{chosen.name} is not on this computer and could not be fetched ({why}). Where there is a network, fetch\n"
        f"  {chosen.url}\nand put it here as\n  {archive}"
    )


def _fetch(chosen: PublicSet, target: Path, progress: Progress | None) -> None:
    """Fetch to a file, which appears only if its checksum is right."""
    digest = hashlib.new(chosen.checksum.partition(":")[0] or "sha256", usedforsecurity=False)
    with urllib.request.urlopen(chosen.url, timeout=30) as source:  # noqa: S310 - the addresses stand above
        total, found = int(source.headers.get("Content-Length") or 0), 0
        with atomic_write(target, mode=0o644) as out:
            while piece := source.read(_PIECE):
                out.write(piece)
                digest.update(piece)
                found += len(piece)
                if progress is not None:
                    progress(found, total)
            if total and found < total:
                raise OSError(f"only {found:,} of {total:,} bytes came")
            _refuse_other(chosen, digest.hexdigest(), target)


def _compare(chosen: PublicSet, path: Path) -> None:
    """Refuse a file that is not the published one."""
    if not chosen.checksum:
        return
    digest = hashlib.new(chosen.checksum.partition(":")[0], usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    _refuse_other(chosen, digest.hexdigest(), path)


def _refuse_other(chosen: PublicSet, found: str, path: Path) -> None:
    kind, _, expected = chosen.checksum.partition(":")
    if expected and found != expected:
        raise VocabularyError(
            f"What came for {chosen.name} is not what was published ({kind} differs). Remove {path}, if it is there, and "
            "fetch it again."
        )


def _gensim_folder() -> Path:
    loaded = sys.modules.get("gensim.downloader")
    given = os.environ.get("GENSIM_DATA_DIR") if loaded is None else loaded.BASE_DIR
    return Path(given) if given else Path.home() / "gensim-data"


def _from_gensim(chosen: PublicSet) -> Path:
    """Have gensim fetch a set into its own folder, without what it prints."""
    try:
        import gensim.downloader
    except ImportError:
        raise _out_of_reach(
            chosen, where(chosen), "gensim, which fetches it, is missing: pip install gensim"
        ) from None
    import logging

    place = where(chosen)
    logger = logging.getLogger("gensim.downloader")
    before = logger.disabled
    logger.disabled = True  # it prints tracebacks of what is only a closed network
    try:
        with contextlib.redirect_stdout(sys.stderr):
            gensim.downloader.load(chosen.title, return_path=True)
    except Exception as error:
        # gensim raises bare Exception, too.
        raise _out_of_reach(chosen, place, str(error)) from None
    finally:
        logger.disabled = before
    _compare(chosen, place)
    return place


def _unpacked(chosen: PublicSet, archive: Path, place: Path) -> Path:
    """Unpack the pipeline of a spaCy package beside its archive, whole or not at all, and drop the archive."""
    _compare(chosen, archive)
    inside = f"{chosen.title}-{_SPACY_VERSION}/{chosen.title}/{chosen.title}-{_SPACY_VERSION}/"
    staging = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        with tarfile.open(archive) as files:
            for member in files:
                name = member.name.removeprefix(inside)
                if not member.isfile() or name == member.name:
                    continue
                target = staging / name
                if ".." in Path(name).parts or (
                    target.is_absolute() and staging not in target.parents
                ):
                    raise VocabularyError(f"{archive} names a file outside of it: {name}")
                target.parent.mkdir(parents=True, exist_ok=True)
                content = files.extractfile(member)
                assert content is not None
                with open(target, "wb") as out:
                    shutil.copyfileobj(content, out)
        if not (staging / "meta.json").is_file():
            raise VocabularyError(f"{archive} holds no pipeline of {chosen.title}; fetch it again.")
        os.chmod(staging, 0o777 & ~umask())
        os.replace(staging, place)
    except (tarfile.TarError, EOFError) as error:
        raise VocabularyError(f"{archive} is damaged; remove it and fetch it again.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    archive.unlink()
    return place
