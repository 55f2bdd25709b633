"""Makes damaged copies of an index folder with every checksum recomputed, and opens them.

Run as a script with a folder for the copies; it prints one line of JSON for each damage, with what became of the copy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from textpriv.errors import TextprivError
from textpriv.files import sha256_file
from textpriv.index import Index
from textpriv.index.axes import Axes
from textpriv.index.folder import meta_checksum
from textpriv.language import NGrams
from textpriv.vocabulary import Vocabulary

Damage = Callable[[Path, dict[str, Any]], None]
SIZE, K = 300, 12
TABLES = ("points", "neighbour_ids", "neighbour_steps")


def build(target: Path) -> Index:
    """Save the sound index."""
    vectors = np.random.default_rng(0).normal(size=(SIZE, 6)).astype(np.float32)
    words = [f"w{i}" for i in range(SIZE)]
    model = NGrams.from_ids(np.arange(SIZE).repeat(3) % 200, np.array([0, 3 * SIZE]), SIZE)
    vocabulary = Vocabulary(words, vectors, np.arange(1.0, SIZE + 1.0))
    index = Index.build(vocabulary, "unit", k=K, model=model)
    index.save(target)
    return index


def build_with_axes(target: Path) -> Index:
    """Save a sound index that has axes."""
    plain = Index.load(target.with_name("sound")).vocabulary
    values = np.random.default_rng(1).normal(size=(SIZE, 2))
    known = ("one record", 1.0, 1e-5, 1.5, plain.fingerprint())
    axes = Axes(("neg", "pos"), values, plain.prior_weights("counts"), *known)
    index = Index.build(plain, k=K, axes=axes)
    index.save(target)
    return index


def in_array(name: str, change: Callable[[np.ndarray], Any]) -> Damage:
    """Change an array in place, or put another one there."""

    def damage(folder: Path, meta: dict[str, Any]) -> None:
        array = np.load(folder / name)
        changed = change(array)
        np.save(folder / name, array if changed is None else changed)

    return damage


def _put(name: str, *place: int, value: Any) -> Damage:
    return in_array(name, lambda array: array.__setitem__(place, value))


def _model(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Damage:
    def damage(folder: Path, meta: dict[str, Any]) -> None:
        with np.load(folder / "model.npz") as stored:
            arrays = dict(stored)
        np.savez(folder / "model.npz", **{**arrays, name: change(arrays[name])})

    return damage


def in_listing(**values: Any) -> Damage:
    """Put other values into the listing."""
    return lambda folder, meta: meta.update(values)


def _meta(change: Callable[[dict[str, Any]], Any]) -> Damage:
    return lambda folder, meta: change(meta) and None


def _bytes(name: str, content: bytes | Callable[[bytes], bytes]) -> Damage:
    def damage(folder: Path, meta: dict[str, Any]) -> None:
        file = folder / name
        file.write_bytes(content(file.read_bytes()) if callable(content) else content)

    return damage


def _words(change: Callable[[list[Any]], Any]) -> Damage:
    def damage(folder: Path, meta: dict[str, Any]) -> None:
        words = json.loads((folder / "words.json").read_text())
        change(words)
        (folder / "words.json").write_text(json.dumps(words))

    return damage


def _in_place_of(name: str, kind: str) -> Damage:
    """Put a folder, a pipe or a link to nowhere where a file should be."""

    def damage(folder: Path, meta: dict[str, Any]) -> None:
        (folder / name).unlink()
        if kind == "folder":
            (folder / name).mkdir()
        elif kind == "pipe":
            os.mkfifo(folder / name)
        else:
            (folder / name).symlink_to(folder / "nowhere")

    return damage


def _axes(**changes: Any) -> Damage:
    """Change what the listing says of axes."""
    return _meta(lambda meta: meta["axes"].update(changes))


def _swapped(array: np.ndarray) -> np.ndarray:
    return array[[1, 0, *range(2, len(array))]]


DEEP = b"[" * 200_000

DAMAGES: dict[str, Damage] = {
    # Lists
    "neighbour beyond the vocabulary": _put("neighbours.npy", 3, 2, value=SIZE),
    "neighbour far beyond": _put("neighbours.npy", 3, 2, value=2**31 - 1),
    "neighbour below 0": _put("neighbours.npy", 7, 5, value=-1),
    "neighbour far below 0": _put("neighbours.npy", 7, 5, value=-(2**31)),
    "a word not first in its list": in_array("neighbours.npy", lambda a: a[:, ::-1].copy()),
    "a neighbour twice": in_array("neighbours.npy", lambda a: a.__setitem__((9, 4), a[9, 7])),
    "a word in its own list again": _put("neighbours.npy", 9, 4, value=9),
    "neighbours of another word": in_array(
        "neighbours.npy", lambda a: a.__setitem__(np.s_[:, 1:], _swapped(a)[:, 1:])
    ),
    "neighbours in columns": in_array("neighbours.npy", np.asfortranarray),
    "neighbours one column short": in_array("neighbours.npy", lambda a: a[:, :-1]),
    # Steps
    "steps below 0": _put("steps.npy", 5, 1, value=-1),
    "steps far below 0": _put("steps.npy", 5, 1, value=-(2**31)),
    "steps that fall": in_array("steps.npy", lambda a: a[:, ::-1].copy()),
    "one step that falls": _put("steps.npy", 5, 3, value=0),
    "a word away from itself": _put("steps.npy", 5, 0, value=1),
    "steps of another scale": in_array("steps.npy", lambda a: a * 2),
    "steps of one": in_array("steps.npy", lambda a: a + (a > 0)),
    "a list that ends too far away": _put("steps.npy", 0, K - 1, value=2**31 - 1),
    # Vectors, points, weights
    "a vector that is no number": _put("vectors.npy", 8, 1, value=np.nan),
    "an infinite vector": _put("vectors.npy", 8, 1, value=-np.inf),
    "vectors moved by a row": in_array("vectors.npy", lambda a: np.roll(a, 1, axis=0)),
    "points moved by a row": in_array("points.npy", lambda a: np.roll(a, 1, axis=0)),
    "one other point": _put("points.npy", 8, 1, value=7),
    "points as uint8": in_array("points.npy", lambda a: a.astype(np.uint8)),
    "points too long for exact products": in_array(
        "points.npy", lambda a: a.astype(np.int16) * 200
    ),
    "points without columns": in_array("points.npy", lambda a: a[:, :0]),
    "a weight of 0": _put("prior.npy", 8, value=0.0),
    "a weight below 0": _put("prior.npy", 8, value=-1.0),
    "a weight that is no number": _put("prior.npy", 8, value=np.nan),
    "weights as float32": in_array("prior.npy", lambda a: a.astype(np.float32)),
    # Files that are no arrays
    "a zip in place of an array": _bytes("steps.npy", b"PK\x03\x04" + b"x" * 99),
    "a header that is no literal": _bytes("steps.npy", lambda c: c.replace(b"descr", b"d(((r")),
    "a shape beyond memory": _bytes(
        "steps.npy", lambda c: c.replace(b"(300, 12), ", b"(9**99, 1),")
    ),
    "an array cut short": _bytes("vectors.npy", lambda c: c[:-40]),
    # Words
    "words nested too deep": _bytes("words.json", DEEP),
    "words that are no list": _bytes("words.json", b'{"a": 1}'),
    "words that are no UTF-8": _bytes("words.json", b"\xff\xfe[]"),
    "a word that is a number": _words(lambda words: words.__setitem__(3, 3)),
    "a word that is empty": _words(lambda words: words.__setitem__(3, "")),
    "a word twice": _words(lambda words: words.__setitem__(3, "w4")),
    "half a surrogate pair": _words(lambda words: words.__setitem__(3, "\ud800")),
    "two words exchanged": _words(lambda words: words.__setitem__(slice(2), ["w1", "w0"])),
    "one word too many": _words(lambda words: words.append("more")),
    # The language model
    "a model of noise": _bytes("model.npz", np.random.default_rng(0).bytes(5000)),
    "a model cut short": _bytes("model.npz", lambda c: c[:-50]),
    "a model not listed": _meta(lambda meta: meta["files"].pop("model.npz")),
    "a model that is missing": lambda folder, meta: (folder / "model.npz").unlink(),
    "a word of the model beyond": _model("seconds", lambda a: a + SIZE),
    "a context of the model beyond": _model("offsets", lambda a: a + 1),
    # The listing
    "a listing nested too deep": _bytes("index.json", DEEP),
    "a unit of 0": in_listing(unit=0.0),
    "a unit below 0": in_listing(unit=-1.0),
    "a unit that is no number": in_listing(unit=float("nan")),
    "a unit that is text": in_listing(unit="1"),
    "another unit": in_listing(unit=0.5),
    "no unit": _meta(lambda meta: meta.pop("unit")),
    "another space": in_listing(space="manhattan"),
    "a space that is none": in_listing(space="cosine"),
    "a space with settings": in_listing(space=["unit"]),
    "a language that is none": in_listing(language="../en"),
    "another kind": in_listing(kind="tree"),
    "a kind that is none": in_listing(kind=["index"]),
    "no list of files": in_listing(files=None),
    "a file without a checksum": _meta(lambda meta: meta["files"]["vectors.npy"].pop("sha256")),
    "a fingerprint that is none": in_listing(fingerprint=5),
    "the fingerprint of another index": in_listing(fingerprint="0" * 64),
    "another format": in_listing(format=-1),
    "no format": _meta(lambda meta: meta.pop("format")),
    # Something else in the place of a file
    **{
        f"a {kind} in the place of {name}": _in_place_of(name, kind)
        for kind in ("folder", "pipe", "link to nowhere")
        for name in ("index.json", "words.json", "vectors.npy")
    },
    # Every array in another form
    **{
        f"{name} {how}": change(f"{name}.npy")
        for name in ("vectors", "points", "neighbours", "steps", "prior", "axes", "frequency")
        for how, change in {
            "as whole numbers": lambda name: in_array(name, lambda a: a.astype(np.int64)),
            "as complex": lambda name: in_array(name, lambda a: a.astype(complex)),
            "as objects": lambda name: in_array(name, lambda a: a.astype(object)),
            "as text": lambda name: in_array(name, lambda a: a.astype("U8")),
            "of other bytes": lambda name: in_array(name, lambda a: a.astype(">f4")),
            "one row short": lambda name: in_array(name, lambda a: a[:-1]),
            "one row longer": lambda name: in_array(name, lambda a: np.concatenate([a, a[:1]])),
            "without rows": lambda name: in_array(name, lambda a: a[:0]),
            "of one more dimension": lambda name: in_array(name, lambda a: a[..., None]),
            "as a pickle": lambda name: _bytes(name, b"\x80\x04N."),
            "of no bytes": lambda name: _bytes(name, b""),
            "not listed": lambda name: _meta(lambda meta: meta["files"].pop(name)),
            "in a folder": lambda name: _in_place_of(name, "folder"),
            **{
                f"of {cut} bytes": lambda name, cut=cut: _bytes(name, lambda c: c[:cut])
                for cut in (1, 9, 64, 127, 128, 129)
            },
        }.items()
    },
    # Axes and the frequencies of their domain
    **{
        f"{name} {how}": change(name)
        for name in ("axes.npy", "frequency.npy")
        for how, change in {
            "with no number": lambda name: _put(name, 5, value=np.nan),
            "with an infinite value": lambda name: _put(name, 5, value=np.inf),
            "as float32": lambda name: in_array(name, lambda a: a.astype(np.float32)),
            "of other words": lambda name: in_array(name, _swapped),
            "as records": lambda name: in_array(name, lambda a: a.view([("x", "<f8")])),
            "of 2527 bytes": lambda name: _bytes(name, lambda c: c[:2527]),
        }.items()
    },
    "axes of one label": in_array("axes.npy", lambda a: np.ascontiguousarray(a[:, :1])),
    "axes in columns": in_array("axes.npy", np.asfortranarray),
    "axes in one dimension": in_array("axes.npy", np.ravel),
    "axes of another weight": in_array("axes.npy", lambda a: a * 2),
    "a frequency of 0": _put("frequency.npy", 5, value=0.0),
    "frequencies of another sum": in_array("frequency.npy", lambda a: a * 2),
    "axes of no listing": _meta(lambda meta: meta.pop("axes")),
    "a listing of axes that is text": in_listing(axes="neg"),
    "a listing of axes that is empty": in_listing(axes={}),
    "axes of no labels": _axes(labels=[]),
    "axes of other labels": _axes(labels=["pos", "neg"]),
    "axes of three labels": _axes(labels=["neg", "pos", "more"]),
    "labels that are numbers": _axes(labels=[1, 2]),
    "labels that are none": _axes(labels=None),
    "axes of another loss": _axes(epsilon=0.5),
    "axes of a loss below 0": _axes(epsilon=-1.0),
    "axes of a loss that is no number": _axes(changed=float("nan")),
    "axes of a loss that is text": _axes(delta="0"),
    "axes of a loss beyond every float": _axes(changed=10**400),
    "axes of another unit": _axes(unit="nobody"),
    "axes of a unit that is a list": _axes(unit=["one record"]),
    "axes of another vocabulary": _axes(vocabulary="0" * 64),
    "axes with their values": _axes(values=[[1.0, 2.0]]),
    # What does no harm
    "a file more": lambda folder, meta: (folder / "notes.txt").write_text("x") and None,
    "an entry more": in_listing(colour="red"),
    "a file outside the folder": _meta(
        lambda meta: meta["files"].update({"../x": {"sha256": "0" * 64}})
    ),
}
HARMLESS = ("a file more", "an entry more", "a file outside the folder")


def break_copy(sound: Path, copy: Path, damage: Damage) -> None:
    """Copy a folder, damage the copy, and make all its checksums right."""
    shutil.copytree(sound, copy)
    meta = json.loads((copy / "index.json").read_text())
    damage(copy, meta)
    for name, entry in (meta["files"] or {}).items():
        file = copy / name
        if isinstance(entry, dict) and file.is_file() and "sha256" in entry:
            entry["sha256"] = sha256_file(file)
    meta["checksum"] = meta_checksum(meta)
    listing = copy / "index.json"
    if listing.is_file() and listing.read_bytes() == (sound / "index.json").read_bytes():
        listing.write_text(json.dumps(meta))


def _use(folder: Path, sound: Index) -> str:
    """Open a folder; say how it was refused, or whether it is equal."""
    try:
        index = Index.load(folder)
    except TextprivError as error:
        return f"refused: {error}"
    pairs = [
        (index.vocabulary.vectors, sound.vocabulary.vectors),
        (index.vocabulary.prior, sound.vocabulary.prior),
        *((getattr(index, name), getattr(sound, name)) for name in TABLES),
    ]
    same = all(np.array_equal(a, b) for a, b in pairs)
    same = same and (index.axes and index.axes.digest) == (sound.axes and sound.axes.digest)
    names = ("space", "unit", "reference_distance", "diameter_bound", "fingerprint")
    same = same and all(getattr(index, name) == getattr(sound, name) for name in names)
    same = same and index.vocabulary.words == sound.vocabulary.words
    return "equal" if same else "LOADED AND DIFFERS"


def main(place: Path) -> None:
    """Make and open every damaged copy."""
    index, own = build(place / "sound"), build_with_axes(place / "own")
    for number, (name, damage) in enumerate(DAMAGES.items()):
        copy, has_axes = place / str(number), re.search("axes|frequenc|labels", name)
        break_copy(place / ("own" if has_axes else "sound"), copy, damage)
        print(json.dumps([name, _use(copy, own if has_axes else index)]), flush=True)
        shutil.rmtree(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
