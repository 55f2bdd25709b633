"""The two forms of textpriv in a spaCy pipeline: the strict tokenizer and the component."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import spacy
import spacy.util
import srsly
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from textpriv.errors import MechanismError, RawTextError
from textpriv.pipeline.annotations import RECORD
from textpriv.pipeline.form import PrivateForm, Reading
from textpriv.pipeline.options import TOKENIZER_NAME, PipelineOptions, takes_options


class PrivateTokenizer(PrivateForm):
    """Make private documents from raw texts; no raw word enters the pipeline.

    The pipeline's string store receives the released words, and what spaCy derives from them.
    ``nlp.pipe(nlp.tokenizer.pipe(texts))`` is faster than ``nlp.pipe(texts)``, which asks for one text at a time.

    If raw words come into the pipeline's vocabulary by another way, such as a `DocBin` that is read in it, the tokenizer
    raises an error. A `Doc` given to ``nlp`` in place of a text passes by every tokenizer; a pipeline that was made from a
    config refuses one that is not private.

    Parameters
    ----------
    language
        Code of the language whose rules split the raw text, by default that of `vocab`.
    options
        As in `PipelineOptions`.
    """

    def __init__(self, vocab: Vocab, language: str | None = None, **options: Any) -> None:
        super().__init__(vocab, language or vocab.lang or "en", PipelineOptions(**options))

    def _release(self, batch: Sequence[Reading], once: bool = False) -> Iterator[Doc]:
        self._refuse_raw_words("Not tokenized")
        return super()._release(batch, once)

    def _read(self, raw: str) -> Reading:
        return Reading(raw, self.vocab)


@spacy.registry.tokenizers(TOKENIZER_NAME)
@takes_options
def make_tokenizer(**options: Any) -> Callable[[Language], PrivateTokenizer]:
    """Make the strict tokenizer from the block ``[nlp.tokenizer]``, whose settings are those of `PipelineOptions`."""

    def create(nlp: Language) -> PrivateTokenizer:
        # spaCy asks no tokenizer about a Doc that it is given in place of a text.
        nlp._ensure_doc = functools.partial(_private_doc, nlp)  # type: ignore[method-assign]
        return PrivateTokenizer(nlp.vocab, nlp.lang, **options)

    return create


def _private_doc(nlp: Language, given: Doc | str | bytes) -> Doc:
    """Do what ``Language._ensure_doc`` does, and refuse a raw `Doc` if the tokenizer is private."""
    doc: Doc = type(nlp)._ensure_doc(nlp, given)
    is_private = len(doc) == 0 or doc.user_data.get(RECORD) is not None
    if not is_private and isinstance(nlp.tokenizer, PrivateTokenizer):
        raise RawTextError(
            "This Doc is not known to be private: the pipeline's private tokenizer did not make it, and its words would "
            "come out as they are. Give the pipeline the text (doc.text) instead."
        )
    return doc


class TextprivComponent(PrivateForm):
    """Replace each document by a new one that holds private words only.

    It reads the text of the raw document, not its tokens: another tokenizer may split by casing, which the number of
    tokens would show. Of the raw document only ``_context`` (for ``as_tuples``) and the annotations in ``carry`` are kept;
    it warns once of others that get lost. Raw words stay in ``nlp.vocab.strings``; `PrivateTokenizer` leaves none behind.
    Put it first in the pipeline: components before it see raw words, and their annotations are lost.

    A document that is already private is refused: a second pass costs words and protects nobody better.

    Parameters
    ----------
    carry
        Annotations of raw documents that private ones keep, and that the statement names as not protected: ``"cats"`` and
        ``"ents"``.
    options
        As in `PipelineOptions`.
    """

    def __init__(
        self, nlp: Language, name: str = "textpriv", *, carry: Sequence[str] = (), **options: Any
    ) -> None:
        if isinstance(nlp.tokenizer, PrivateTokenizer):
            _refuse_twice()
        self.name = name
        given = PipelineOptions(**options)
        self.takes_entities = given.spans is not None
        if self.takes_entities and "ents" in carry:
            raise MechanismError(
                'With spans the entities of a private document are its typed spans: leave "ents" out of carry.'
            )
        super().__init__(nlp.vocab, nlp.lang or "en", given, carry)

    def _read(self, raw: Doc) -> Reading:
        if raw.user_data.get(RECORD) is not None:
            _refuse_twice()
        carried = self._annotations.read(raw, self.takes_entities)
        spans = [(ent.start_char, ent.end_char, ent.label_) for ent in raw.ents]
        return Reading(raw.text, raw.vocab, raw._context, carried, spans)

    def to_disk(self, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()) -> None:
        """Write the index as the tokenizer does; a refused pipeline leaves no half-written folder."""
        try:
            super().to_disk(path, exclude=exclude)
        except RawTextError:
            _remove_half(Path(path).parent)
            raise

    def get_error_handler(self) -> Callable[..., NoReturn]:
        """Raise, whatever the pipeline's own error handler does.

        After an error spaCy passes on the document as it was before the component, which here is the raw text.
        """
        return spacy.util.raise_error


def _remove_half(folder: Path) -> None:
    """Remove what spaCy has written of a pipeline; the vocabulary comes last, so a folder with one was whole before."""
    if (folder / "vocab").exists() or not (folder / "meta.json").exists():
        return
    meta = srsly.read_json(folder / "meta.json")
    parts = [*meta.get("pipeline", []), *meta.get("disabled", [])]
    parts += [f"{part}.json" for part in parts]  # such as the sentencizer's
    for place in (folder / name for name in ("tokenizer", "meta.json", "config.cfg", *parts)):
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


@Language.factory("textpriv", assigns=["doc._.textpriv"], retokenizes=True)
@takes_options
def make_component(
    nlp: Language, name: str, carry: Sequence[str] = (), **options: Any
) -> TextprivComponent:
    """Make the component ``textpriv`` from its block of a config."""
    return TextprivComponent(nlp, name, carry=carry, **options)


def _refuse_twice() -> NoReturn:
    """Refuse a second form in one pipeline."""
    raise MechanismError(
        f"The words are private already. Use either the tokenizer {TOKENIZER_NAME} or one "
        "component textpriv, not both: a second pass changes more words and protects nobody better."
    )
