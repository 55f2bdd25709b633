"""Keyed, cryptographic random streams, one a document.

Every private draw reads 64-bit words of a ChaCha20 key stream. The stream of a document with a key follows from a run key
and the document's identity (:func:`document_identity`), so its draws depend neither on batches nor on earlier draws.
Documents without a key read on from a fresh stream. NumPy generators are predictable: for experiments only.
"""

from __future__ import annotations

import hashlib
import operator
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

from textpriv.errors import TextprivError

DocumentKey = str | int | bytes

_ZEROS = memoryview(bytes(1 << 16))


class RandomWords(ABC):
    """Uniform 64-bit words in sequence."""

    @abstractmethod
    def fill(self, out: NDArray[np.uint64]) -> None:
        """Overwrite a contiguous array with the next words of the stream."""

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next ``count`` words, shape (count,)."""
        out = np.empty(count, dtype=np.uint64)
        self.fill(out)
        return out


class Stream(RandomWords):
    """The ChaCha20 key stream of one 32-byte key, as uniform 64-bit words (RFC 8439, nonce and counter zero).

    Parameters
    ----------
    key : bytes, optional
        32 secret bytes, used for one document only. Default: a fresh key, and another one in a forked process.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._encryptor = None if key is None else _encryptor(key)
        self._process: int | None = None  # the one that made the key, if it is a fresh one

    def fill(self, out: NDArray[np.uint64]) -> None:
        """Overwrite a contiguous array with the next words of the stream."""
        if self._encryptor is None or self._process not in (None, os.getpid()):
            self._encryptor, self._process = _encryptor(os.urandom(32)), os.getpid()
        view = out.data.cast("B")
        for start in range(0, len(view), len(_ZEROS)):
            part = view[start : start + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(part)], part)


def _encryptor(secret: bytes) -> CipherContext:
    return Cipher(algorithms.ChaCha20(secret, bytes(16)), mode=None).encryptor()


class _GeneratorStream(RandomWords):
    """A NumPy generator as a stream: for experiments."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def fill(self, out: NDArray[np.uint64]) -> None:
        out[:] = self._generator.integers(0, 2**64, size=out.shape, dtype=np.uint64)


def fill_each(
    streams: Sequence[RandomWords], bounds: NDArray[np.intp], out: NDArray[np.uint64]
) -> None:
    """Overwrite the rows of ``out`` from ``bounds[j]`` to ``bounds[j + 1]`` with the next words of stream j."""
    for number in np.flatnonzero(np.diff(bounds)).tolist():
        streams[number].fill(out[bounds[number] : bounds[number + 1]].reshape(-1))


def as_stream(rng: RandomWords | np.random.Generator) -> RandomWords:
    """Return a stream as it is, and a NumPy generator as one."""
    return _GeneratorStream(rng) if isinstance(rng, np.random.Generator) else rng


def identity_bytes(identity: DocumentKey | np.integer[Any]) -> bytes:
    """Return the bytes that stand for text, bytes or a whole number; those of different types are never the same."""
    if isinstance(identity, bytes):
        return b"b" + identity
    if isinstance(identity, str):
        return b"s" + identity.encode("utf-8", "surrogatepass")
    if isinstance(identity, int | np.integer) and not isinstance(identity, bool):
        return b"i" + str(int(identity)).encode()
    raise TextprivError(
        f"a document key must be text, bytes or a whole number; got {type(identity).__name__}."
    )


def framed(content: bytes) -> bytes:
    """Return bytes with their length before them, so that what follows is never taken for a part of them."""
    return len(content).to_bytes(8, "big") + content


def document_identity(settings: bytes, key: DocumentKey, content: bytes) -> bytes:
    """Return the identity of a document, from which its stream follows.

    All three parts are needed: two contents under one stream show where they differ.

    Parameters
    ----------
    settings : bytes
        Fingerprint of mechanism, vocabulary, metric, policy, tokenizer, and the version of the algorithms.
    key : str, int or bytes
        The name of the document. Documents of equal text have different ones.
    content : bytes
        The ids of the words that are drawn, in order, and the spans.
    """
    return framed(settings) + framed(identity_bytes(key)) + content


class Occurrences:
    """Count how often a key or a text came before. Of each, 16 bytes of a keyed hash are kept: about 150 bytes in all."""

    def __init__(self) -> None:
        self._seen: dict[bytes, int] = {}
        self._secret = os.urandom(16)

    def count(self, key: object) -> int:
        """Return 1 for a key that is new, 2 for the second one, and so on; 1 for what can be no key."""
        if not isinstance(key, str | bytes | int | np.integer):
            return 1
        mark = hashlib.blake2b(identity_bytes(key), digest_size=16, key=self._secret).digest()
        self._seen[mark] = number = self._seen.get(mark, 0) + 1
        return number


class KeyedStreams:
    """Streams of documents under one run key.

    A stream's key is BLAKE2b, keyed with the run key, of the identity with its type. So no two identities share a stream.

    Parameters
    ----------
    run_key : bytes, optional
        32 secret bytes, which undo the protection: keep them as secret as the text. Default: fresh ones.
    seed : int, optional
        For experiments: derives the run key from a number that can be guessed.
    """

    def __init__(self, run_key: bytes | None = None, *, seed: int | None = None) -> None:
        if seed is not None and run_key is not None:
            raise TextprivError("give a run key or a seed, not both.")
        if seed is not None:
            number = str(operator.index(seed)).encode()
            run_key = hashlib.blake2b(number, digest_size=32, person=b"textpriv-seed").digest()
        self._run_key = os.urandom(32) if run_key is None else run_key
        if not isinstance(self._run_key, bytes) or len(self._run_key) != 32:
            raise TextprivError("a run key must have 32 bytes. Use os.urandom(32).")

    def stream(self, identity: DocumentKey) -> Stream:
        """Return the stream of a document; the same identity always gives the same one."""
        tagged = identity_bytes(identity)
        return Stream(hashlib.blake2b(tagged, digest_size=32, key=self._run_key).digest())
