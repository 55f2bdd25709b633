"""Public sets of word vectors by name: those of a language, where each is on this computer, and fetching it.

A name has a hub before its colon: ``gensim:`` and ``fasttext:`` name files that are kept in the cache folder, ``spacy:`` an
installed package. ``data/public_sets.csv`` lists sets with the checksums that publishers give; fastText gives none.
"""

from __future__ import annotations

import csv
import re
import shutil
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from textpriv.errors import VocabularyError
from textpriv.files import atomic_write, cache_folder, sha256_file

HUBS = {
    "gensim": "https://github.com/RaRe-Technologies/gensim-data/releases/download/{0}/{0}.gz",
    "fasttext": "https://dl.fbaipublicfiles.com/fasttext/vectors-crawl/{0}.vec.gz",
}
_NAME = re.compile(r"(gensim|spacy|fasttext):([A-Za-z0-9][A-Za-z0-9._-]*)")


@dataclass(frozen=True)
class PublicSet:
    """A public set of word vectors; numbers that are not known are 0."""

    name: str  # as Vocabulary.load takes it, with its hub
    language: str | None = None  # spaCy's code
    words: int = 0  # not counted where many of them share a vector
    dimensions: int = 0
    megabytes: int = 0  # about, of what is fetched
    licence: str = "see its publisher"  # as its publisher states it
    checksum: str = ""  # "md5:..." or "sha256:..." of what is fetched; empty where nobody gives one

    def fetched(self) -> Path | str:
        """Return its path in the cache folder, or its installed spaCy package; fetch it if it is not there."""
        hub, _, title = self.name.partition(":")
        if hub == "spacy":
            import spacy

            if not spacy.util.is_package(title):
                raise VocabularyError(
                    f"The spaCy package {title} is not installed. Run: python -m spacy download {title}"
                )
            return title
        url = HUBS[hub].format(title)
        place = cache_folder() / "vectors" / url.rpartition("/")[2]
        if not place.exists():
            try:
                _fetch(url, place)
            except OSError as error:
                raise VocabularyError(
                    f"{self.name} could not be fetched ({error}). Fetch {url} elsewhere and put it here as {place}."
                ) from None
        kind, _, expected = self.checksum.partition(":")
        if expected and sha256_file(place, kind) != expected:
            raise VocabularyError(
                f"{place} is not what was published as {self.name} ({kind} differs). Remove it and fetch it again."
            )
        return place


def _listed(row: dict[str, str]) -> PublicSet:
    numbers = {name: int(row[name]) for name in ("words", "dimensions", "megabytes")}
    return PublicSet(**{**row, **numbers})  # type: ignore[arg-type]


with open(Path(__file__).with_name("data") / "public_sets.csv", encoding="utf-8") as _file:
    SETS = tuple(map(_listed, csv.DictReader(_file)))


def set_named(name: str) -> PublicSet | None:
    """Return the set of a name: one that is listed, or another one of its hub; None for what names no set."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    listed = next((each for each in SETS if each.name == name), None)
    if listed is not None:
        return listed
    language = re.match(r"(?:cc\.)?([a-z]{2,3})[._]", match[2]) if match[1] != "gensim" else None
    return PublicSet(name, None if language is None else language[1])


def _fetch(url: str, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with urllib.request.urlopen(url, timeout=30) as source:  # noqa: S310 - of HUBS
        promised = int(source.headers.get("Content-Length") or 0)
        with atomic_write(place, mode=0o644) as out:
            shutil.copyfileobj(source, out)
            if promised and out.tell() < promised:
                raise OSError(f"only {out.tell():,} of {promised:,} bytes came")
