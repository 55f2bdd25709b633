"""What the private forms of spaCy share: settings, index, privatizer, and new documents from private words.

Saving is the matter of ``saving``, and what must never be saved that of ``raw_words``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import spacy
from spacy.tokens import Doc, Span
from spacy.vocab import Vocab

from textpriv.errors import IndexFolderError, MechanismError, VocabularyError
from textpriv.mechanisms import registry as mechanism_registry
from textpriv.pipeline.annotations import Carried, CarriedAnnotations
from textpriv.pipeline.names import EXTENSION, EXTENSION_KEY, MECHANISMS
from textpriv.pipeline.raw_words import RawWordGuard
from textpriv.tokenization.policy import TokenPolicy

# spaCy imports this module in every program that makes a pipeline, once textpriv is installed. What
# is heavy is imported where a private pipeline is made.
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from textpriv.index.index import Index
    from textpriv.privatizer import PrivateTokens, Privatizer
    from textpriv.tokenization.batches import RawBatch

__all__ = ["PrivateForm", "Reading"]

_COMMON_WORDS = 50_000  # entered into the pipeline's vocabulary when the index is opened

_ONE_DRAW = (
    "which texts are equal (a text that is read again under the same key or seed comes out as before, whoever wrote it), "
    "and so whether a text has changed"
)
_DRAWN_ANEW = (
    "A text that is read again is drawn again, and then counts as a further document of its author"
)

# A config names a mechanism as {"@textpriv_mechanisms": ...}; spaCy looks the registry up as an
# attribute of its own.
setattr(spacy.registry, MECHANISMS, mechanism_registry)

if not Doc.has_extension(EXTENSION):
    Doc.set_extension(EXTENSION, default=None)


class _Orths(dict[str, int]):
    """Words of one string store and their hashes: documents made of these take half the time."""

    def __init__(self, vocab: Vocab) -> None:
        super().__init__()
        self.vocab = vocab
        self.strings = vocab.strings
        self._table: NDArray[np.object_] | None = None

    def __missing__(self, word: str) -> int:
        orth: int = self.strings.add(word)
        # Inside a memory zone the string is forgotten when the zone ends, so its hash must not be
        # remembered longer.
        if not getattr(self.vocab, "in_memory_zone", False):
            self[word] = orth
        return orth

    def table(self, words: Sequence[str]) -> NDArray[np.object_] | None:
        """Return the hash of each word of the public vocabulary, or None inside a memory zone."""
        if self._table is None and not getattr(self.vocab, "in_memory_zone", False):
            self._table = np.array(list(map(self.strings.add, words)), dtype=object)
        return self._table


class Reading(NamedTuple):
    """One raw document, as far as it is needed to write the private one."""

    text: str
    vocab: Vocab
    context: Any = None
    carried: Carried | None = None
    spans: Sequence[tuple[int, int, str]] = ()


class PrivateForm:
    """What the two forms share: settings, index, privatizer and new documents.

    The index is opened when the object is made if its folder is there, so that a wrong parameter is
    told at once and forked workers share the memory. A folder that is missing or unusable is told
    at the first use instead: a pipeline brings its own copy of the index, and the path that it was
    first built from need not exist where it is loaded.
    """

    def __init__(
        self,
        index: str | os.PathLike[str] | None,
        mechanism: Callable[[Any], Any] | None,
        policy: dict[str, str] | None,
        seed: int | None,
        run_key: str | os.PathLike[str] | None,
        save_raw_words: bool,
        language: str,
        epsilon: float | None = None,
        carry: Iterable[str] = (),
        spans: str | Mapping[str, Any] | None = None,
        detect: Sequence[str] = (),
    ) -> None:
        if mechanism is not None and epsilon is not None:
            raise MechanismError(
                "Give an epsilon (for TEM) or a mechanism, which has an epsilon of its own, not both."
            )
        if epsilon is not None:
            mechanism = mechanism_registry.get("textpriv.TEM.v1")(epsilon=epsilon)
        if mechanism is None:
            from textpriv.amounts import explain_missing

            missing = explain_missing(f"builtin:{language}" if index is None else index)
            raise MechanismError(
                f'textpriv needs "epsilon" in its config: {missing}\nFor another law than TEM give a "mechanism", such as '
                '{"@textpriv_mechanisms": "textpriv.Madlib.v1", "epsilon": 60.0}.'
            )
        if seed is not None and run_key is not None:
            raise MechanismError("Give a seed (for experiments) or a run key, not both.")
        self._mechanism = mechanism
        self._policy = TokenPolicy.from_dict(dict(policy or {}))
        self._seed = seed
        self._run_key = None if run_key is None else Path(run_key)
        self._language = language
        self._annotations = self.annotations(carry)
        self._spans, self._detect = spans, tuple(detect)
        if spans is not None and "ents" in self._annotations.names:
            raise MechanismError(
                'With spans the entities of a private document are its typed spans: leave "ents" out of carry.'
            )
        if detect and spans is None:
            raise MechanismError(
                'Detectors need a policy that says what becomes of what they find: give "spans", such as "chat".'
            )
        self._raw_words = RawWordGuard(self._policy, language, save_raw_words)
        self._folder = None if index is None else Path(index)
        self._forget()
        if self._folder is not None and self._folder.is_dir():
            try:
                self._prepare()
            except IndexFolderError:
                self._forget()

    @property
    def _is_named(self) -> bool:
        """Whether a text is drawn under a key that follows from it."""
        return self._seed is not None or self._run_key is not None

    @property
    def _takes_entities(self) -> bool:
        """Whether the entities of raw documents are typed spans."""
        return False

    def __repr__(self) -> str:
        opened = "not opened" if self._privatizer is None else repr(self._privatizer)
        return f"{type(self).__name__}({opened}, {self._language})"

    def _forget(self) -> None:
        self._index: Index | None = None
        self._privatizer: Privatizer | None = None
        self._statements: dict[bool, dict[str, Any]] = {}
        self._orths: _Orths | None = None

    def _open(self) -> Index:
        if self._index is None:
            if self._folder is None:
                from textpriv.index.builtin import builtin_index

                self._index = builtin_index(self._language)
                return self._index
            if not self._folder.is_dir():
                raise IndexFolderError(
                    f"textpriv found no index folder at {self._folder}: correct the path of "
                    '"index" in its config, or load a saved pipeline, which brings its own.'
                )
            from textpriv.index.index import Index

            index = Index.load(self._folder)
            if index.language not in (None, self._language):
                raise VocabularyError(
                    f"The index {self._folder} is of the language {index.language!r}, and the pipeline of "
                    f"{self._language!r}, by whose rules texts are tokenized: make the pipeline with "
                    f'spacy.blank("{index.language}"), or lang = "{index.language}" in its config.'
                )
            self._index = index
        return self._index

    def _prepare(self) -> Privatizer:
        if self._privatizer is None:
            from textpriv.privatizer import Privatizer

            privatizer = Privatizer(
                self._mechanism(self._open()),
                policy=self._policy,
                seed=self._seed,
                run_key=self._secret(),
                language=self._language,
                **self._typed(),
            )
            self._statements = {}
            self._privatizer = privatizer
            self._enter_common_words()
        return self._privatizer

    def _typed(self) -> dict[str, Any]:
        """What a privatizer is told of typed spans."""
        if self._spans is None:
            return {}
        from textpriv.spans.detectors import make_detector
        from textpriv.spans.policy import SpanPolicy

        return {
            "spans": SpanPolicy.of(self._spans),
            "detector": [make_detector(name, self._language) for name in self._detect],
        }

    def _secret(self) -> bytes | None:
        if self._run_key is None:
            return None
        if not self._run_key.is_file():
            raise MechanismError(
                f"textpriv found no run key at {self._run_key}. Make one, which only you can read: "
                'python -c "from textpriv.run_key import RunKey; '
                f"RunKey.open('{self._run_key}').keep()\". Or leave run_key out (null in the config, also "
                "where a saved pipeline is loaded): then every text is drawn anew."
            )
        from textpriv.run_key import read_run_key

        return read_run_key(self._run_key)

    def _statement(self, once: bool) -> dict[str, Any]:
        """Return what is guaranteed, one object for all documents; ``once`` where equal texts share their draws."""
        given = self._statements.get(once)
        if given is None:
            statement = self._prepare().statement
            statement = (
                statement.extended(not_protected=(_ONE_DRAW,))
                if once
                else statement.extended(notes=(_DRAWN_ANEW,))
            )
            statement = statement.extended(not_protected=self._annotations.not_protected)
            given = self._statements[once] = statement.to_dict()
        return given

    def _own_vocab(self) -> Vocab:
        raise NotImplementedError

    def _enter_common_words(self) -> None:
        """Enter the commonest public words into the pipeline's vocabulary when the index is opened.

        A lexeme takes several calls into Python, and nearly every word of the vocabulary comes out
        sooner or later: made here, they cost a part of a second once and nothing while documents
        are waiting. All of them are public, so nothing can be told from their presence.
        """
        vocab = self._own_vocab()
        if getattr(vocab, "in_memory_zone", False):
            return
        before = len(vocab)
        orths = self._orths = _Orths(vocab)
        for word in self._open().vocabulary.words[:_COMMON_WORDS]:
            vocab[orths[word]]
        self._count_words(vocab, before)

    def annotations(self, names: Iterable[str]) -> CarriedAnnotations:
        """Return what carries annotations of raw documents over to those that this form makes of their texts."""
        return CarriedAnnotations(names, self._policy, self._language)

    @property
    def privatizer(self) -> Privatizer:
        """The privatizer behind this form, opened at the first use.

        Raises
        ------
        IndexFolderError
            If there is no index, or its folder is missing or damaged.
        """
        return self._prepare()

    def _key(self, text: str) -> bytes:
        """Return the name of a text among those that are drawn once: what is read of it, hashed."""
        text = text.lower() if self._policy.case == "lower" else text
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def _release(self, batch: Sequence[Reading], once: bool = False) -> Iterator[Doc]:
        """Draw documents: each anew, or with ``once`` the same way for the same text.

        A seed or a run key implies ``once``: the output of a run must not depend on batches, on the number of processes
        or on how often a text is read. Without them it holds within this object, under a key that nobody has.
        """
        once = once or self._is_named
        keys = [self._key(reading.text) for reading in batch] if once else None
        released = self._prepare().release(self._raw_batch(batch), keys)
        statement = self._statement(once)
        for reading, tokens in zip(batch, released, strict=True):
            doc = self._document(reading.vocab, tokens)
            doc.user_data[EXTENSION_KEY] = {"statement": statement, "counts": tokens.counts}
            doc._context = reading.context
            self._annotations.write(reading.carried, reading.text, doc)
            yield doc

    def _raw_batch(self, batch: Sequence[Reading]) -> RawBatch:
        """Tokenize and classify."""
        labels = [reading.spans for reading in batch] if self._takes_entities else None
        return self._prepare().read_batch([reading.text for reading in batch], labels)

    def _document(self, vocab: Vocab, tokens: PrivateTokens) -> Doc:
        kinds = tokens.spans
        if kinds:
            before = len(vocab)
            doc = _with_entities(vocab, tokens, kinds)
            self._count_words(vocab, before)
            return doc
        before = len(vocab)
        doc = Doc(vocab, words=tokens.words, spaces=tokens.spaces)
        self._count_words(vocab, before)
        return doc

    def _count_words(self, vocab: Vocab, before: int) -> None:
        """Count the lexemes that were made here."""
        if vocab is self._own_vocab():
            self._raw_words.known += len(vocab) - before

    def _refuse_raw_words(self, doing: str) -> None:
        """Refuse to go on where the pipeline's vocabulary holds what was never released."""
        if len(self._own_vocab()) == self._raw_words.known:
            return
        try:
            public = self._open().vocabulary
        except IndexFolderError:
            public = None
        self._raw_words.check(self._own_vocab(), public, doing)

    def _orths_of(self, vocab: Vocab) -> _Orths:
        if self._orths is None or self._orths.strings is not vocab.strings:
            self._orths = _Orths(vocab)
        return self._orths


def _with_entities(vocab: Vocab, tokens: PrivateTokens, kinds: Mapping[int, str]) -> Doc:
    """A document whose entities are the typed spans; a surface of several words is several tokens."""
    words: list[str] = []
    spaces: list[bool] = []
    ranges = []
    for number, (word, space) in enumerate(zip(tokens.words, tokens.spaces, strict=True)):
        parts = word.split(" ") if number in kinds else [word]
        if not all(parts):
            parts = [word]  # blanks at an end or side by side
        if number in kinds:
            ranges.append((len(words), len(words) + len(parts), kinds[number]))
        words += parts
        spaces += [True] * (len(parts) - 1) + [space]
    doc = Doc(vocab, words=words, spaces=spaces)
    doc.set_ents([Span(doc, first, last, label=kind) for first, last, kind in ranges])
    return doc
