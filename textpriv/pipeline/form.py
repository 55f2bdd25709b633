"""The shared part of the spaCy forms: open the index, draw documents, and make new ones of private words."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spacy.tokens import Doc, Span
from spacy.vocab import Vocab

from textpriv.errors import IndexFolderError, VocabularyError
from textpriv.pipeline.annotations import Carried, CarriedAnnotations
from textpriv.pipeline.options import PipelineOptions
from textpriv.pipeline.record import RECORD, forms, keep_statement

# spaCy imports this module in every program that makes a pipeline, once textpriv is installed. So heavy modules are
# imported where a private pipeline is made.
if TYPE_CHECKING:
    from textpriv.index.index import Index
    from textpriv.privatizer import PrivateTokens, Privatizer

__all__ = ["DEFAULT_BATCH", "PrivateForm", "Reading"]

DEFAULT_BATCH = 1000

_ONE_DRAW = (
    "which texts are equal (a text that is read again under the same key or seed comes out as before, whoever wrote it), "
    "and so whether a text has changed"
)
_DRAWN_ANEW = (
    "A text that is read again is drawn again, and then counts as a further document of its author"
)


class Reading(NamedTuple):
    """One raw document, as far as it is needed for the private one."""

    text: str
    vocab: Vocab
    context: Any = None
    carried: Carried | None = None
    spans: Sequence[tuple[int, int, str]] = ()


class PrivateForm:
    """The shared part of the forms.

    The index is opened at once if its folder is there, so that wrong parameters are reported early and forked workers
    share the memory. A missing folder is reported at the first use: a saved pipeline brings its own copy.
    """

    takes_entities = False  # whether the entities of raw documents are typed spans

    def __init__(self, options: PipelineOptions, language: str) -> None:
        self.options = options
        self._make_mechanism = options.make_mechanism(language)
        self._language = language
        self._policy = options.token_policy
        self._annotations = self.annotations(options.carry)
        self._folder = None if options.index is None else Path(options.index)
        self._known_words = 0  # lexemes of the pipeline's vocabulary that a form made or looked at
        self._forget()
        forms.add(self)
        if self._folder is not None and self._folder.is_dir():
            try:
                self.prepare()
            except IndexFolderError:
                self._forget()

    def _forget(self) -> None:
        self._index: Index | None = None
        self._privatizer: Privatizer | None = None
        self._names: tuple[str, str] = ("", "")  # of the statements without and with repeated draws

    def _own_vocab(self) -> Vocab:
        raise NotImplementedError

    def annotations(self, names: Sequence[str]) -> CarriedAnnotations:
        """Return the carrier of annotations from raw documents to those that this form makes of their texts."""
        return CarriedAnnotations(names, self._policy, self._language)

    def _open(self) -> Index:
        if self._index is None and self._folder is None:
            from textpriv.index.builtin import builtin_index

            self._index = builtin_index(self._language)
        elif self._index is None:
            if not self._folder.is_dir():  # type: ignore[union-attr]
                raise IndexFolderError(
                    f"textpriv found no index folder at {self._folder}: correct the path of "
                    '"index" in its config, or load a saved pipeline, which brings its own.'
                )
            from textpriv.index.index import Index

            index = Index.load(self._folder)  # type: ignore[arg-type]
            if index.language not in (None, self._language):
                raise VocabularyError(
                    f"The index {self._folder} is of the language {index.language!r}, and the pipeline of "
                    f"{self._language!r}, by whose rules texts are tokenized: make the pipeline with "
                    f'spacy.blank("{index.language}"), or lang = "{index.language}" in its config.'
                )
            self._index = index
        return self._index

    def prepare(self) -> Privatizer:
        """Open the privatizer behind this form, if it is not open.

        Raises
        ------
        IndexFolderError
            If there is no index, or its folder is missing or damaged.
        """
        if self._privatizer is None:
            from textpriv.privatizer import Privatizer

            forms.add(self)
            privatizer = Privatizer(
                self._make_mechanism(self._open()),
                policy=self._policy,
                seed=self.options.seed,
                run_key=self.options.secret(),
                language=self._language,
                **self.options.typed_spans(self._language),
            )
            stated = privatizer.statement.extended(not_protected=self._annotations.not_protected)
            each = (
                stated.extended(notes=(_DRAWN_ANEW,)),
                stated.extended(not_protected=(_ONE_DRAW,)),
            )
            self._names = keep_statement(each[0].to_dict()), keep_statement(each[1].to_dict())
            self._privatizer = privatizer
        return self._privatizer

    @property
    def privatizer(self) -> Privatizer:
        """The privatizer behind this form."""
        return self.prepare()

    def _release(self, batch: Sequence[Reading], once: bool = False) -> Iterator[Doc]:
        """Draw documents: each independently, or with ``once`` the same way for the same text.

        A seed or a run key implies ``once``: the output of a run must not depend on batches, on the number of processes
        or on how often a text is read. Without them it holds within this object, under a key that nobody has.
        """
        once = once or self.options.is_named
        privatizer = self.prepare()
        labels = [reading.spans for reading in batch] if self.takes_entities else None
        raw = privatizer.read_batch([reading.text for reading in batch], labels)
        keys = [self._key(reading.text) for reading in batch] if once else None
        released = privatizer.release(raw, keys)
        for reading, tokens in zip(batch, released, strict=True):
            doc = self._document(reading.vocab, tokens)
            doc.user_data[RECORD] = {"statement": self._names[once], "counts": tokens.counts}
            doc._context = reading.context
            self._annotations.write(reading.carried, reading.text, doc)
            yield doc

    def _key(self, text: str) -> bytes:
        """The name of a text among those that are drawn once: a hash of the text as it is read."""
        text = text.lower() if self._policy.case == "lower" else text
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def _document(self, vocab: Vocab, tokens: PrivateTokens) -> Doc:
        """A document whose entities are the typed spans; a surface of several words is several tokens."""
        before = len(vocab)
        if not tokens.spans:
            doc = Doc(vocab, words=tokens.words, spaces=tokens.spaces)
        else:
            words: list[str] = []
            spaces: list[bool] = []
            ranges = []
            for number, (word, space) in enumerate(zip(tokens.words, tokens.spaces, strict=True)):
                parts = word.split(" ") if number in tokens.spans else [word]
                if not all(parts):
                    parts = [word]  # blanks at an end or side by side
                if number in tokens.spans:
                    ranges.append((len(words), len(words) + len(parts), tokens.spans[number]))
                words += parts
                spaces += [True] * (len(parts) - 1) + [space]
            doc = Doc(vocab, words=words, spaces=spaces)
            doc.set_ents([Span(doc, first, last, label=kind) for first, last, kind in ranges])
        if vocab is self._own_vocab():
            self._known_words += len(vocab) - before
        return doc

    def __repr__(self) -> str:
        opened = "not opened" if self._privatizer is None else repr(self._privatizer)
        return f"{type(self).__name__}({opened}, {self._language})"
