"""Texts to private texts: read, draw, rebuild.

Everything that connects the tokens of a raw text with a mechanism stands here, once, for the library, the command line
and the spaCy forms. Tokens are drawn over whole batches, and private texts put together by compiled code. How tokens
are found and classified is in ``textpriv.tokenization.encoder``, which random stream a document has in
``textpriv.document_streams``, the mathematics in ``textpriv.mechanisms``, files in ``textpriv.corpus``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from textpriv.arguments import whole
from textpriv.document_streams import DocumentStreams, ReleaseKey
from textpriv.errors import DocumentError, MechanismError, TextprivError
from textpriv.files import one_at_a_time
from textpriv.index.index import Index
from textpriv.ledger import Ledger, Terms, settings_fingerprint
from textpriv.mechanisms.base import UNKNOWN, Mechanism
from textpriv.metrics import is_builtin
from textpriv.optional import needs
from textpriv.randomness import DistinctKeys, Stream
from textpriv.spans.detectors import Detector
from textpriv.spans.plan import SpanPlan
from textpriv.spans.policy import SpanPolicy
from textpriv.statement import PrivacyStatement
from textpriv.tokenization.batches import (
    EncodedTexts,
    RawBatch,
    RawTokens,
    code_names,
    named_counts,
    several_texts,
)
from textpriv.tokenization.detokenizer import Spelling, arrange, marks_of, spell, spell_few
from textpriv.tokenization.encoder import DEFAULT_LANGUAGE, TextEncoder, find_split_words
from textpriv.tokenization.nearest import map_name
from textpriv.tokenization.policy import NEAREST, TokenPolicy
from textpriv.tokenization.private_tokens import PrivateTokens
from textpriv.tokenization.token_runs import DocTokens

__all__ = ["CHANGED", "WORDS_CUT", "PrivateTokens", "Privatizer", "ReleaseKey", "privatize"]

Labels = Iterable[Sequence[Any]]  # spans of one text: start, end and kind

CHANGED = (
    "whether a text has changed since its last release under the same name and key (a document without a name goes by its "
    "own text: equal ones of two releases come out equal)"
)

WORDS_CUT = (
    '{} of the {} words of the vocabulary are not read as one token where they stand between blanks (such as "{}"): there '
    "they are protected as the tokens that are read in their place, whose number is not hidden"
)

MAPPED = (
    "Before anything is drawn, a word outside the vocabulary is mapped to a word of it by a public function of the written "
    "word alone: {}. It is protected as the word that it is mapped to: what is said of distances holds between the images "
    "of two words, words of one image cannot be told apart, and words that are mapped to none are unknown ones"
)

READ_AS = "Texts are tokenized by spaCy's rules of the language {}"

_TOKENS = 1 << 16  # drawn in one call of the sampler
_FEW = 10_000  # tokens of private texts that are put together before there is code compiled for it


class Privatizer:
    """Turn texts into private texts.

    Parameters
    ----------
    mechanism : Mechanism
    policy : TokenPolicy
    seed : int, optional
        For experiments: makes the output repeatable, and so the statement unproved.
    run_key : bytes, optional
        32 secret bytes from which a document's randomness is derived, with its key, the settings of this privatizer and
        the words that are drawn (:func:`textpriv.randomness.document_identity`): the same text under the same key, settings
        and run key is released the same way again, and anything else independently. Whoever sees two releases learns
        whether the text has changed between them, which the statement names. Needs ``keys`` for every document, and a
        metric of this library: a function of the user's own is known by its name only.
    ledger : Ledger, optional
        Counts every document before it is drawn, and keeps its randomness, so that it can be released the same way again.
        Needs ``keys`` for every document: its name, or a :class:`textpriv.ledger.Document` that names its author, too.
    language : str, optional
        A spaCy language code, for the tokenizer. Default: that of the index, or English where the index knows none.
    spans : SpanPolicy, optional
        Which kinds of spans are drawn by laws of their own; all else is words.
    detector : Detector or sequence of Detector, optional
        What finds spans, several together. None where each text comes with labels.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> rng = np.random.default_rng(0)
    >>> vocabulary = textpriv.Vocabulary(["good", "bad", "film"], rng.normal(size=(3, 5)))
    >>> mechanism = textpriv.TEM(textpriv.Index.build(vocabulary), epsilon=30.0)
    >>> textpriv.Privatizer(mechanism, seed=1).privatize("A GOOD film!")
    'bad good film!'
    """

    def __init__(
        self,
        mechanism: Mechanism,
        policy: TokenPolicy | None = None,
        seed: int | None = None,
        *,
        run_key: bytes | None = None,
        ledger: Ledger | None = None,
        language: str | None = None,
        spans: SpanPolicy | None = None,
        detector: Detector | Sequence[Detector] | None = None,
    ) -> None:
        if not isinstance(mechanism, Mechanism):
            raise TextprivError(
                f"a Privatizer needs a mechanism such as textpriv.TEM(index, epsilon=...); got {type(mechanism).__name__}."
            )
        if policy is not None and not isinstance(policy, TokenPolicy):
            raise TextprivError(
                f"policy must be a textpriv.TokenPolicy; got {type(policy).__name__}. Use TokenPolicy.from_dict(...)."
            )
        self.mechanism = mechanism
        self.policy = TokenPolicy() if policy is None else policy
        if self.policy.unknown == NEAREST:
            needs("rapidfuzz", "nearest")
        self.seed = seed
        self.language = language or mechanism.index.language or DEFAULT_LANGUAGE
        self.ledger = ledger
        self.spans = None if spans is None else SpanPlan.of(spans, detector)
        if spans is None and detector is not None:
            raise TextprivError(
                "a detector needs a policy that says what becomes of what it finds: pass spans=."
            )
        if ledger is not None and (seed is not None or run_key is not None):
            raise TextprivError(
                "a ledger keeps the randomness of every document it counts: give no seed and no run_key with it."
            )
        if run_key is not None and not is_builtin(self.mechanism.index.metric):
            raise TextprivError(
                f"the metric {self.mechanism.index.metric.name!r} is known by its name only: after a change of its function "
                "the same run key would serve two laws. Use a metric of this library, or leave the run key out."
            )
        self._few = _FEW
        terms = None
        if ledger is not None:
            terms = Terms.of(mechanism, self.policy, self.language)
            terms = replace(terms, settings=self.fingerprint)
        self._source = DocumentStreams(
            lambda: self.fingerprint, run_key, seed, ledger, terms, self.spans is not None
        )

    # The public face

    def privatize(
        self, text: str, key: ReleaseKey | None = None, labels: Labels | None = None
    ) -> str:
        """Return one private text.

        Parameters
        ----------
        text : str
        labels : iterable of (start, end, kind), optional
            Spans that are known already, beside those that the detector finds; offsets count characters.
        key : str, int, bytes or Document, optional
            Names the document; the same text under the same key is released the same way again, another text
            independently. Without one the randomness is new every time.
        """
        keys = None if key is None else [key]
        return next(self.pipe([text], keys, labels=None if labels is None else [labels]))

    def privatize_span(self, text: str, kind: str, key: ReleaseKey | None = None) -> str:
        """Return a private surface for one span by itself, for programs that put texts together on their own.

        Parameters
        ----------
        text : str
            Of the span alone; the mask ``[SPAN]`` comes back where no law can read it.
        kind : str
            What its detector calls it.
        key : str, int, bytes or Document, optional
            The document, and its author, within which consistent laws draw the same again; the statement then says what
            that shows. All else is drawn anew: each call is a release of its own, and their losses add up.

        Raises
        ------
        TextprivError
            Without a policy of spans, and with a ledger, which counts whole documents.
        """
        if self.spans is None or self.ledger is not None:
            raise TextprivError(
                "a span by itself needs spans= and no ledger, which counts documents."
            )
        self._source.repeats |= key is not None
        return self.spans.draw_alone(text, kind, self._source.scopes([key], 1)[0])

    def pipe(
        self,
        texts: Iterable[str],
        keys: Iterable[ReleaseKey] | None = None,
        batch_size: int = 1000,
        *,
        labels: Iterable[Labels] | None = None,
    ) -> Iterator[str]:
        """Yield one private text for every text, in order.

        Parameters
        ----------
        texts : iterable of str
        keys : iterable of str, int, bytes or Document, optional
            One for each document, all different (a ledger takes documents of one name for versions of one document). A
            document's randomness follows from its key, its words and the settings, so the output depends neither on the
            batch size nor on the other documents. Without keys every document gets fresh randomness (with a seed: that of
            its position). To notice a repeated key 16 bytes of its hash are kept, about 100 bytes of memory a document.
        batch_size : int
            Documents drawn in one call; changes speed only.
        labels : iterable, optional
            For each document its spans that are known already, as in :meth:`privatize`.

        Raises
        ------
        TextprivError
            For a text that is not a string, for fewer keys than texts, and for a key that was there before: under it two
            equal texts would come out equal. Names the position of the document.
        LedgerError
            For a document that the ledger refuses; nothing of its batch is drawn.
        SpanError
            For labels that do not fit their text, and a detector that fails. Names the position of the document.
        """
        source = several_texts(texts)
        batch_size = whole("batch_size", batch_size)
        named = None if keys is None else iter(keys)
        known = None if labels is None else iter(labels)
        distinct = DistinctKeys()
        position = 0
        while batch := list(islice(source, batch_size)):
            names: list[ReleaseKey] | None = None
            if named is not None:
                names = list(islice(named, len(batch)))
                if len(names) < len(batch):
                    raise TextprivError(
                        f"there are more texts than keys: document {position + len(names)} has none. Give one key for "
                        "every text."
                    )
                self._source.refuse_repeated(names, distinct, position)
            elif self.seed is not None:
                names = list(range(position, position + len(batch)))
            for number, text in enumerate(batch):
                if not isinstance(text, str):
                    raise TextprivError(
                        f"document {position + number} is of type {type(text).__name__}, not text."
                    )
            try:
                of_batch = None if known is None else list(islice(known, len(batch)))
                raw = self.read_batch(EncodedTexts.of(batch), of_batch)
                yield from self.release_batch(raw, names)
            except DocumentError as error:
                if error.position is None:
                    raise
                raise error.named(f"document {position + error.position}") from None
            position += len(batch)

    @cached_property
    def fingerprint(self) -> bytes:
        """32 bytes that stand for the settings: everything that decides, with a key and a text, what is drawn."""
        spans = None if self.spans is None else self.spans.fingerprint
        return settings_fingerprint(self.mechanism, self.policy, self.language, spans)

    @property
    def statement(self) -> PrivacyStatement:
        """The guarantee of what this privatizer releases.

        Once documents were released under keys, it names what the repetition of a release shows.
        """
        return _statement(self, self._source.repeats)

    # Tokens, for the spaCy forms

    def read(self, text: str) -> RawTokens:
        """Tokenize and classify a raw text, in a store of strings of its own; see :meth:`TextEncoder.encode`."""
        if self.spans is not None:
            raise TextprivError("a text with typed spans is read by read_batch, which finds them.")
        return self.reader.encode(text)

    def read_batch(self, texts: EncodedTexts, labels: Sequence[Labels] | None = None) -> RawBatch:
        """Find spans, tokenize and classify: the same tokens as :meth:`read` for many texts, many times as fast."""
        if self.spans is not None:
            return self.spans.read(texts, self.reader, labels)
        if labels is not None:
            raise TextprivError("labels need a policy that says what becomes of them: pass spans=.")
        return self.reader.encode_batch(texts)

    def read_docs(self, columns: Sequence[NDArray[np.uint64]], strings: Sequence[Any]) -> RawBatch:
        """Tokenize and classify the texts of documents of spaCy, as :meth:`read_batch` does it where there are no spans.

        Both are as of :class:`textpriv.tokenization.token_runs.DocTokens`.
        """
        if self.spans is not None:
            raise TextprivError("typed spans are found in texts, by read_batch.")
        return self.reader.encode_docs(list(map(DocTokens, columns, strings)))

    def release(
        self, batch: RawBatch | Sequence[RawTokens], keys: Sequence[ReleaseKey | None] | None = None
    ) -> list[PrivateTokens]:
        """Draw private tokens for a batch of documents, in one call of the sampler.

        Parameters
        ----------
        batch : RawBatch or sequence of RawTokens
        keys : sequence of str, int, bytes, Document, Stream or None, optional
            One for each document; None gives a document fresh randomness, a Stream is read as it is. That keys are all
            different is looked at in :meth:`pipe`, not here.

        Raises
        ------
        LedgerError
            For a document that the ledger refuses; nothing of the batch is drawn.
        """
        whole = batch if isinstance(batch, RawBatch) else RawBatch.of(batch)
        whole, drawn = self._draw(whole, keys)
        others = [whole.strings[number] for number in whole.string_ids.tolist()]
        outputs, blanks, counts = self._arranged(whole, drawn, marks_of(others))
        offsets, names = whole.offsets.tolist(), code_names(whole.kinds)
        words, spans = self._spelling.words, whole.spans_between
        undrawn, released = 0, []
        for a, b, tally in zip(offsets, offsets[1:], counts.tolist(), strict=False):
            before, undrawn = undrawn, undrawn + b - a - tally[0]
            own = outputs[a:b], others[before:undrawn], blanks[a:b], words
            released.append(PrivateTokens(*own, named_counts(names, tally), spans(a, b)))
        return released

    def release_batch(
        self, batch: RawBatch, keys: Sequence[ReleaseKey | None] | None = None
    ) -> EncodedTexts:
        """Draw a batch of documents, in one call of the sampler, and put the private texts together.

        Parameters
        ----------
        batch : RawBatch
        keys : sequence of str, int, bytes, Document, Stream or None, optional
            As in :meth:`release`.

        Raises
        ------
        LedgerError
            For a document that the ledger refuses; nothing of the batch is drawn.
        """
        return self.put_together(*self._draw(batch, keys))

    def put_together(self, batch: RawBatch, drawn: NDArray[np.int32]) -> EncodedTexts:
        """Put texts together from a batch's tokens, with these word ids for those that are drawn, in order."""
        batch = batch.compact()
        words, strings = self._spelling, Spelling.of(batch.strings)
        outputs, blanks, _ = self._arranged(batch, drawn, strings.marks[batch.string_ids])
        parts = outputs, blanks, batch.offsets, batch.string_ids
        if self._few >= 0:
            return spell_few(*parts, self.mechanism.index.vocabulary.words, batch.strings)
        letters = words.letters, words.offsets, strings.letters, strings.offsets
        return EncodedTexts(*spell(*parts, *letters))

    def _arranged(
        self, batch: RawBatch, drawn: NDArray[np.int32], marks: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int64]]:
        """The word of each token, whether a blank follows, and counts by document and code; see :func:`arrange`."""
        size = len(batch.codes)
        self._few = max(self._few - size, -1)
        outputs, blanks = np.empty(size, dtype=np.int32), np.empty(size, dtype=np.bool_)
        counts = np.zeros((len(batch), len(code_names(batch.kinds))), dtype=np.int64)
        call = arrange.py_func if self._few >= 0 else arrange
        given = np.asarray(drawn, dtype=np.int32), self._spelling.marks, marks
        if not call(batch.codes, batch.offsets, *given, outputs, blanks, counts):
            raise MechanismError(
                "a mechanism must draw one word id for every token that it is given."
            )
        return outputs, blanks, counts

    def _draw(
        self, batch: RawBatch, keys: Sequence[ReleaseKey | None] | None
    ) -> tuple[RawBatch, NDArray[np.int32]]:
        """The ids of the tokens that are drawn, in order; and the batch with what was drawn for its spans."""
        codes = batch.codes
        if not len(codes):
            return batch, np.empty(0, dtype=np.int32)
        drawn_at = (codes >= UNKNOWN).nonzero()[0]
        if len(drawn_at) == len(codes):
            ids, offsets = codes, batch.offsets
        else:
            ids, offsets = codes[drawn_at], drawn_at.searchsorted(batch.offsets)
        # Documents without keys are told apart by nothing that stands in them.
        spans = None if self.spans is None or keys is None else self.spans.documents(batch)
        scopes = self._source.scopes(keys, len(batch)) if self.spans is not None else []
        if self.spans is not None:
            self.spans.require_persons(batch, scopes)  # before a ledger counts what cannot be drawn
        streams = self._source.streams(ids, offsets, keys, spans)
        if len(streams) < len(batch):  # documents without keys, drawn as one
            offsets = offsets[[0, -1]]
        if self.spans is not None:
            each = streams if len(streams) == len(batch) else streams * len(batch)
            batch = self.spans.draw(batch, each, scopes)
        return batch, _drawn(self.mechanism, ids, offsets, streams)

    # Tables

    def warm(self) -> None:
        """Load what many texts need: rules of the language, tables, compiled code.

        What is compiled, and a built-in index that is built, is kept for other processes; those of one machine that do this
        at the same time wait for the first.
        """
        with one_at_a_time("warm"):
            self.mechanism.compile()
            self.reader.compile()
            uncounted = Privatizer(self.mechanism, self.policy, language=self.language)
            self._few = uncounted._few = -1
            uncounted.release_batch(self.reader.encode_batch(EncodedTexts.of(["a 1."])))
        _ = self._spelling

    @cached_property
    def reader(self) -> TextEncoder:
        """The encoder of raw texts."""
        words = TextEncoder(self.mechanism.index.vocabulary.words, self.policy, self.language)
        return words if self.spans is None else self.spans.reader(words)

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling.of(self.mechanism.index.vocabulary.words)

    def __getstate__(self) -> dict[str, Any]:
        # The reader has seen raw words, and the streams hold the run key: neither travels.
        return {
            "mechanism": self.mechanism,
            "policy": self.policy,
            "seed": self.seed,
            "language": self.language,
            "ledger": self.ledger,
            "spans": self.spans,
            "named_run": self._source.named_run,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["named_run"]:
            raise TextprivError(
                "a Privatizer with a run key does not travel between processes: the key is a secret. Make one there."
            )
        plan, is_shared = state["spans"], state["seed"] is not None or state["ledger"] is not None
        if plan is not None and plan.needs_person and not is_shared:
            raise TextprivError(
                "a law that draws once for a person would draw again in each process: make a Privatizer there, with the "
                "same run key or ledger everywhere."
            )
        self.__init__(  # type: ignore[misc]
            state["mechanism"],
            state["policy"],
            state["seed"],
            ledger=state["ledger"],
            language=state["language"],
            spans=None if plan is None else plan.policy,
            detector=None if plan is None else plan.detectors,
        )

    def __repr__(self) -> str:
        return f"Privatizer({self.mechanism!r}, {self.policy!r})"


def _drawn(
    mechanism: Mechanism, ids: NDArray[np.int32], offsets: NDArray[np.int64], streams: list[Stream]
) -> NDArray[np.int32]:
    """Draw for whole documents, so many tokens at a time that their random words stay few; no draw depends on it."""
    if offsets[-1] <= _TOKENS:
        return mechanism.sample_documents(ids, offsets, streams)
    out = np.empty(len(ids), dtype=np.int32)
    first = 0
    while first < len(streams):
        last = int(np.searchsorted(offsets, offsets[first] + _TOKENS, side="right")) - 1
        last = max(first + 1, last)
        begin, end = int(offsets[first]), int(offsets[last])
        out[begin:end] = mechanism.sample_documents(
            ids[begin:end], offsets[first : last + 1] - begin, streams[first:last]
        )
        first = last
    return out


def _statement(privatizer: Privatizer, repeats: bool) -> PrivacyStatement:
    """That of the mechanism, with what tokens, spans, ledger and keys add to it."""
    statement = privatizer.mechanism.statement.extended(
        not_protected=privatizer.policy.not_protected(), notes=privatizer.policy.notes()
    )
    if privatizer.policy.unknown == NEAREST:
        statement = statement.extended(notes=(MAPPED.format(map_name(privatizer.language)),))
    split = find_split_words(
        privatizer.mechanism.index, privatizer.language, privatizer.policy.case
    )
    if split["count"]:
        figures = f"{split['count']:,}", f"{split['words']:,}", split["example"]
        statement = statement.extended(notes=(WORDS_CUT.format(*figures),))
    if privatizer.spans is not None:
        statement = privatizer.spans.extend(statement)
    if privatizer.language != DEFAULT_LANGUAGE:
        statement = statement.extended(notes=(READ_AS.format(privatizer.language),))
    if privatizer.ledger is not None:
        return statement.extended(
            not_protected=(
                "whether a document has changed since its last release under the same name",
            ),
            notes=(privatizer.ledger.statement,),
        )
    if repeats:
        statement = statement.extended(not_protected=(CHANGED,))
    if privatizer.seed is None:
        return statement
    return statement.extended(
        notes=(
            "The draws were seeded: whoever guesses the seed can undo them. For experiments only",
        ),
        proved=False,
    )


@overload
def privatize(  # type: ignore[overload-overlap]
    texts: str,
    epsilon: float | None = ...,
    *,
    index: Index | str | os.PathLike[str] | None = ...,
    language: str | None = ...,
    policy: TokenPolicy | None = ...,
) -> str: ...


@overload
def privatize(
    texts: Iterable[str],
    epsilon: float | None = ...,
    *,
    index: Index | str | os.PathLike[str] | None = ...,
    language: str | None = ...,
    policy: TokenPolicy | None = ...,
) -> list[str]: ...


def privatize(
    texts: str | Iterable[str],
    epsilon: float | None = None,
    *,
    index: Index | str | os.PathLike[str] | None = None,
    language: str | None = None,
    policy: TokenPolicy | None = None,
) -> str | list[str]:
    """Make texts private in one call, by TEM with a Zipf prior; each is drawn anew.

    Parameters
    ----------
    texts : str or iterable of str
    epsilon : float
        Per unit of the index's distance. There is no default; without one the error shows what three of them mean.
    index : Index or path, optional
        Default: the built-in index of the language (:meth:`Index.builtin`).
    language : str, optional
        Whose rules split the texts into tokens. Default: that of the index.
    policy : TokenPolicy, optional

    Returns
    -------
    str or list of str
        As many texts as were given, in their order. What is guaranteed is in ``Privatizer(...).statement``.

    Raises
    ------
    TextprivError
        Without an epsilon, or where it, the index or the language cannot be used.

    Examples
    --------
    >>> private = privatize("The patient was admitted with chest pain.", epsilon=3.0)
    >>> private.endswith(".")
    True
    """
    from textpriv.amounts import explain_missing
    from textpriv.index.builtin import BUILTIN, open_index
    from textpriv.mechanisms.tem import TEM

    name = f"{BUILTIN}{language or DEFAULT_LANGUAGE}" if index is None else index
    if epsilon is None:
        raise MechanismError(f"privatize(texts, epsilon=...): {explain_missing(name)}")
    opened = name if isinstance(name, Index) else open_index(name)
    private = Privatizer(TEM(opened, epsilon=epsilon), policy or TokenPolicy(), language=language)
    return private.privatize(texts) if isinstance(texts, str) else list(private.pipe(texts))
