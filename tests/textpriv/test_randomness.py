"""Streams are ChaCha20 key streams, one a document, and say nothing of their secrets."""

from __future__ import annotations

import multiprocessing
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from textpriv.errors import TextprivError
from textpriv.randomness import KeyedStreams, Occurrences, Stream, as_stream, document_identity

KEY = bytes(range(32))
RUN_KEY = bytes(range(100, 132))

identities = st.one_of(
    st.binary(max_size=6), st.integers(-1000, 1000), st.text(st.characters(), max_size=4)
)


def reference_blocks(key: bytes, count: int) -> bytes:
    """The ChaCha20 block function of RFC 8439, section 2.3, nonce zero, counter from zero, in plain arithmetic."""

    def quarter(x, a, b, c, d):
        for first, second, third, turn in (
            (a, b, d, 16),
            (c, d, b, 12),
            (a, b, d, 8),
            (c, d, b, 7),
        ):
            x[first] = (x[first] + x[second]) & 0xFFFFFFFF
            mixed = x[third] ^ x[first]
            x[third] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF

    out = b""
    for counter in range(count):
        start = [*struct.unpack("<4L", b"expand 32-byte k"), *struct.unpack("<8L", key), counter]
        start += [0, 0, 0]
        x = list(start)
        for _ in range(10):
            for column in range(4):
                quarter(x, column, column + 4, column + 8, column + 12)
            for shift in range(4):
                places = [4 * row + (shift + row) % 4 for row in range(4)]
                quarter(x, *places)
        out += struct.pack("<16L", *[(a + b) & 0xFFFFFFFF for a, b in zip(x, start, strict=True)])
    return out


def test_stream_is_the_chacha20_key_stream_of_rfc_8439():
    assert Stream(KEY).words(24).astype("<u8").tobytes() == reference_blocks(KEY, 3)


@given(st.lists(st.integers(0, 20_000), max_size=6))
def test_filling_in_pieces_equals_filling_at_once(sizes):
    whole = Stream(KEY).words(sum(sizes))
    stream = Stream(KEY)
    pieces = [stream.words(size) for size in sizes]
    assert np.array_equal(np.concatenate([np.empty(0, np.uint64), *pieces]), whole)


@pytest.mark.parametrize("sizes", [(4, 4), (1000, 1000), (4, 1000, 4)])
def test_a_stream_without_a_key_is_new_every_time(sizes):
    # By chance two of so few words of 64 bits are equal once in 10^12.
    streams = Stream(), Stream()
    words = [stream.words(size) for stream in streams for size in sizes]
    assert len(np.unique(np.concatenate(words))) == 2 * sum(sizes)


@pytest.mark.parametrize(("key", "shared"), [(None, 0), (KEY, 1000)])
def test_a_forked_process_shares_a_given_key_and_no_other(key, shared):
    stream = Stream(key)
    stream.words(1000)
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(stream.words(1000)))
    child.start()
    drawn = ours.recv()
    child.join()
    assert len(np.intersect1d(drawn, stream.words(1000))) == shared


@given(identities, identities)
def test_different_identities_have_different_streams(first, second):
    keys = KeyedStreams(RUN_KEY)
    same = type(first) is type(second) and first == second
    assert np.array_equal(keys.stream(first).words(4), keys.stream(second).words(4)) == same


def test_parts_of_an_identity_are_framed():
    # Of 12 equal bytes, so that only the lengths tell settings, key and content apart.
    parted = [(i, j, 12 - i - j) for i in range(13) for j in range(13 - i)]
    identities = {document_identity(b"b" * i, b"b" * j, b"b" * k) for i, j, k in parted}
    assert len(identities) == len(parted)


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), "0" * 32, 32, bytearray(32)])
def test_a_wrong_key_is_refused_and_not_quoted(key):
    with pytest.raises(TextprivError, match="must have 32 bytes") as refusal:
        KeyedStreams(key)
    assert "0" * 32 not in str(refusal.value)
    if not isinstance(key, bytearray):
        with pytest.raises((TypeError, ValueError)) as refusal:
            Stream(key)
        assert "0" * 32 not in str(refusal.value)


@pytest.mark.parametrize("secretive", [Stream(KEY), KeyedStreams(KEY), KeyedStreams(seed=4242)])
def test_repr_shows_no_secret(secretive):
    assert repr(secretive) == object.__repr__(secretive)


def test_a_numpy_generator_serves_as_a_stream_and_repeats_its_draws():
    first, second = (np.empty(5, np.uint64) for _ in range(2))
    as_stream(np.random.default_rng(3)).fill(first)
    as_stream(np.random.default_rng(3)).fill(second)
    assert (as_stream(np.random.default_rng(3)).words(len(first)) == first).all()
    assert np.array_equal(first, second)
    assert len(set(first.tolist())) == 5


def test_run_keys_seeds_and_identities_decide_the_stream():
    keys = KeyedStreams(RUN_KEY)
    keys.stream("other").words(100)
    given_ = [keys, KeyedStreams(KEY), KeyedStreams(), KeyedStreams(), *map(seeded, (1, 2))]
    streams = {each.stream("x").words(2).tobytes() for each in given_}
    streams |= {keys.stream(each).words(2).tobytes() for each in (1, "1", b"1", "i1", b"s1")}
    assert len(streams) == len(given_) + 5
    assert np.array_equal(keys.stream("x").words(4), KeyedStreams(RUN_KEY).stream("x").words(4))
    assert np.array_equal(seeded(1).stream("x").words(4), seeded(1).stream("x").words(4))


def seeded(seed: int) -> KeyedStreams:
    return KeyedStreams(seed=seed)


def test_wrong_seeds_and_identities_are_refused():
    with pytest.raises(TextprivError, match="not both"):
        KeyedStreams(RUN_KEY, seed=1)
    with pytest.raises(TypeError):
        KeyedStreams(seed="1")
    for identity in (None, 1.5, True):
        with pytest.raises(TextprivError, match="text, bytes or a whole number"):
            KeyedStreams(RUN_KEY).stream(identity)


def test_a_repeated_key_is_counted():
    known = Occurrences()
    given_ = "1", 1, b"1", "1", "2", np.int64(1), None, None
    assert [known.count(key) for key in given_] == [1, 1, 1, 2, 1, 2, 1, 1]
