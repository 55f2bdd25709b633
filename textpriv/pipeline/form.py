"""The shared part of the spaCy forms: draw documents, make new ones of private words, and save the index beside a pipeline.

A seed and run keys are never saved, nor any word of a text (`textpriv.pipeline.guard`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import spacy.util
import srsly
from spacy.language import Language
from spacy.pipeline import EntityRuler, SpanRuler
from spacy.tokens import Doc, Span

from textpriv.errors import IndexFolderError, MechanismError, VocabularyError
from textpriv.pipeline.annotations import (
    RECORD,
    Carried,
    CarriedAnnotations,
    forms,
    keep_statement,
    receive,
)
from textpriv.pipeline.guard import guard
from textpriv.pipeline.options import PipelineOptions
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import CLASSES, TokenPolicy

# spaCy imports this module in every program that makes a pipeline, once textpriv is installed. So heavy modules are
# imported where a private pipeline is made.
if TYPE_CHECKING:
    from textpriv.index.index import Index
    from textpriv.privatizer import PrivateTokens, Privatizer

DEFAULT_BATCH = 1000

_ONE_DRAW = (
    "which texts are equal (a text that is read again under the same key or seed comes out as before, whoever wrote it), "
    "and so whether a text has changed"
)
_DRAWN_ANEW = (
    "A text that is read again is drawn again, and then counts as a further document of its author"
)

_READS_PHRASES = (EntityRuler.add_patterns.__code__, SpanRuler.add_patterns.__code__)


class Reading(NamedTuple):
    """One raw document, as far as it is needed for the private one; typed spans as (start, end, kind)."""

    text: str
    context: Any = None
    carried: Carried | None = None
    spans: Sequence[tuple[int, int, str]] = ()


class PrivateForm:
    """The shared part of the component and the tokenizer, which read raw documents each in their own way.

    An index folder is opened at once if it is there, and with typed spans the built-in index too: to report wrong parameters
    early, and for forked workers to share the memory. A saved pipeline brings its own copy of a missing folder.
    """

    takes_entities = False  # whether the entities of raw documents are typed spans

    def __init__(self, nlp: Language, options: PipelineOptions, carry: Sequence[str] = ()) -> None:
        from textpriv.index.builtin import BUILTIN
        from textpriv.vocabulary.builtin import read_manifest

        guard(nlp)
        nlp._multiprocessing_pipe = functools.partial(receive, nlp)  # type: ignore[method-assign]
        self.vocab = nlp.vocab
        self.options = options
        self._language = nlp.lang or "en"
        self._policy = TokenPolicy.of(options.policy or {})
        self._annotations = self.annotations(carry)
        name = str(options.index or f"{BUILTIN}{self._language}")
        is_builtin = name.startswith(BUILTIN)
        self._folder = None if is_builtin else Path(name)
        self._index: Index | None = None
        self._privatizer: Privatizer | None = None
        forms.add(self)
        if is_builtin:
            self._check_language(name, name.removeprefix(BUILTIN))
            read_manifest(self._language)
        if not is_builtin or options.spans or options.detect:
            with contextlib.suppress(IndexFolderError):
                self.prepare()

    def __call__(self, raw: Any, **settings: Any) -> Doc:
        """Return the private document of a raw text, or for the component of a raw `Doc`, which is not changed.

        ``doc._.textpriv`` has ``"statement"``, one object for all documents, and ``"counts"``, tokens by class.
        """
        _refuse_settings(settings)
        return next(self._release([self._read(raw)]))

    def pipe(
        self,
        stream: Iterable[Any],
        *,
        batch_size: int = DEFAULT_BATCH,
        once: bool = False,
        **settings: Any,
    ) -> Iterator[Doc]:
        """Yield the private document of each raw text of a stream, or for the component of each raw document, in order.

        With ``once`` the same text is drawn the same way each time: without a seed or a run key, as long as this object
        lives and keeps its index. The output does not depend on ``batch_size``.
        """
        _refuse_settings(settings)
        for batch in spacy.util.minibatch(map(self._read, stream), batch_size):
            yield from self._release(batch, once)

    def _read(self, raw: Any) -> Reading:
        raise NotImplementedError

    def annotations(self, names: Sequence[str]) -> CarriedAnnotations:
        """Return the carrier of annotations from raw documents to those that this form makes of their texts."""
        return CarriedAnnotations(names, self._policy, self._language)

    def _open(self) -> Index:
        if self._index is None:
            from textpriv.index.builtin import BUILTIN, open_index

            name = self._folder or f"{BUILTIN}{self._language}"
            index = open_index(name)
            self._check_language(name, index.language)
            self._index = index
        return self._index

    def _check_language(self, name: str | Path, language: str | None) -> None:
        if language not in (None, self._language):
            raise VocabularyError(
                f"The index {name} is of the language {language!r}, and the pipeline of {self._language!r}, by whose rules "
                f'texts are tokenized: make the pipeline with spacy.blank("{language}"), or lang = "{language}" in its '
                "config."
            )

    def prepare(self) -> Privatizer:
        """Return the privatizer behind this form, opened if it is not open."""
        if self._privatizer is None:
            forms.add(self)
            privatizer = self.options.privatizer(self._open(), self._language)
            stated = privatizer.statement.extended(not_protected=self._annotations.not_protected)
            anew = stated.extended(notes=(_DRAWN_ANEW,))
            once = stated.extended(not_protected=(_ONE_DRAW,))
            self._name_drawn_anew = keep_statement(anew.to_dict())
            self._name_drawn_once = keep_statement(once.to_dict())
            self._privatizer = privatizer
        return self._privatizer

    def _release(self, batch: Sequence[Reading], once: bool = False) -> Iterator[Doc]:
        """Draw documents: each independently, or with ``once`` the same way for the same text.

        A seed or a run key implies ``once``: the output of a run must not depend on batches, on the number of processes
        or on how often a text is read.
        """
        if _is_asked_by_ruler():
            yield from (self.make_pattern(reading.text) for reading in batch)
            return
        once = once or self.options.seed is not None or self.options.run_key is not None
        privatizer = self.prepare()
        labels = None
        if self.takes_entities and privatizer.spans is not None:
            labels = [privatizer.spans.with_known_labels(reading.spans) for reading in batch]
        raw = privatizer.read_batch([reading.text for reading in batch], labels)
        keys = [self._key(reading.text) for reading in batch] if once else None
        name = self._name_drawn_once if once else self._name_drawn_anew
        for reading, tokens in zip(batch, privatizer.release(raw, keys), strict=True):
            doc = self._document(tokens)
            doc.user_data[RECORD] = {"statement": name, "counts": tokens.counts}
            doc._context = reading.context
            if reading.carried is not None:
                self._annotations.write(reading.carried, reading.text, doc)
            yield doc

    def _key(self, text: str) -> bytes:
        """The name of a text among those that are drawn once: a hash of the text as it is read."""
        text = text.lower() if self._policy.case == "lower" else text
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def _document(self, tokens: PrivateTokens) -> Doc:
        """A document whose entities are the typed spans; a surface of several words is several tokens."""
        words, spaces = tokens.words, tokens.spaces
        ranges = []
        if tokens.spans:
            words, spaces = [], []
            for number, (word, space) in enumerate(zip(tokens.words, tokens.spaces, strict=True)):
                parts = [word]
                if number in tokens.spans:
                    if all(word.split(" ")):  # no blanks at an end or side by side
                        parts = word.split(" ")
                    ranges.append((len(words), len(words) + len(parts), tokens.spans[number]))
                words += parts
                spaces += [True] * (len(parts) - 1) + [space]
        doc = Doc(self.vocab, words=words, spaces=spaces)
        if ranges:
            doc.set_ents([Span(doc, first, last, label=kind) for first, last, kind in ranges])
        return doc

    def make_pattern(self, phrase: str) -> Doc:
        """Return a public phrase, such as a pattern of a `PhraseMatcher`, with the tokens that private documents have."""
        policy = TokenPolicy(**dict.fromkeys(CLASSES, "keep"), case=self._policy.case)
        encoder = TextEncoder([], policy, self._language)
        words, bounds = encoder.encode([phrase]).strings, encoder.offsets(phrase)
        spaces = [*(bounds[1:, 0] > bounds[:-1, 1]), False][: len(words)]
        return Doc(self.vocab, words=words, spaces=spaces)

    # Saving: the settings are in the pipeline's config

    def to_disk(self, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()) -> None:
        """Write the index into ``path/index``, so that the pipeline loads anywhere."""
        path = Path(path)
        if path.is_file():
            path.unlink()  # another tokenizer, saved here before, is one file
        path.mkdir(parents=True, exist_ok=True)
        if self._folder is None or self._folder.resolve() != (path / "index").resolve():
            self._open().save(path / "index", overwrite=True)

    def from_disk(
        self, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()
    ) -> PrivateForm:
        """Use the index that `to_disk` wrote, if there is one; return the object itself."""
        return self._use(Path(path) / "index")

    def _use(self, folder: Path) -> PrivateForm:
        if folder.is_dir():
            self._index, self._privatizer, self._folder = None, None, folder
            self.prepare()
        return self

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the path of the index folder, as its files are too large."""
        return b"" if self._folder is None else os.fsencode(self._folder.absolute())

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> PrivateForm:
        """Use the index folder that `to_bytes` names, if it is there; return the object itself."""
        return self._use(Path(os.fsdecode(data))) if data else self

    def __getstate__(self) -> dict[str, Any]:
        # A worker process opens the index folder itself. The privatizer stays behind, and with it run keys and raw words;
        # the seed goes along, since a seeded run must not depend on the number of workers.
        state = self.__dict__.copy()
        state.update(_index=None, _privatizer=None)
        # Registered functions usually return closures, which only this pickler takes.
        state["options"] = srsly.pickle_dumps(self.options)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.options = srsly.pickle_loads(state["options"])

    def __repr__(self) -> str:
        opened = "not opened" if self._privatizer is None else repr(self._privatizer)
        return f"{type(self).__name__}({opened}, {self._language})"


def _refuse_settings(given: dict[str, Any]) -> None:
    if given:
        raise MechanismError(
            f"textpriv takes no {min(given)!r} for single calls (component_cfg): put settings in its config."
        )


def _is_asked_by_ruler() -> bool:
    """Whether a ruler reads its phrases, which are public; spaCy sends them through the pipeline as if they were texts."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code not in _READS_PHRASES:
        frame = frame.f_back
    return frame is not None
