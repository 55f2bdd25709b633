"""The component ``textpriv``: it takes a raw document and returns a new private one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import spacy.util
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from textpriv.pipeline.form import DEFAULT_BATCH, Reading
from textpriv.pipeline.options import DEFAULTS, PipelineOptions, takes_options
from textpriv.pipeline.record import RECORD
from textpriv.pipeline.saving import SavableForm
from textpriv.pipeline.tokenizer import PrivateTokenizer, refuse_twice

__all__ = ["TextprivComponent", "make_component"]


class TextprivComponent(SavableForm):
    """Replace each document by a new one that holds private words only.

    It reads the text of the raw document, not its tokens: another tokenizer may split by casing, which the number of
    tokens would show. Of the raw document only ``_context`` (for ``as_tuples``) and the annotations in ``carry`` are kept;
    it warns once of others that get lost. Raw words stay in ``nlp.vocab.strings``; `PrivateTokenizer` leaves none behind.
    Put it first in the pipeline: components before it see raw words, and their annotations are lost.

    A document that is already private is refused: a second pass costs words and protects nobody better.

    Parameters
    ----------
    nlp
        The pipeline.
    name
        The component's name in it.
    options
        As in `PipelineOptions`.
    """

    def __init__(self, nlp: Language, name: str = "textpriv", **options: Any) -> None:
        if isinstance(nlp.tokenizer, PrivateTokenizer):
            refuse_twice()
        self.nlp = nlp
        self.name = name
        super().__init__(PipelineOptions(**options), nlp.lang or "en")

    @property
    def takes_entities(self) -> bool:  # type: ignore[override]
        """Whether the entities of raw documents are typed spans."""
        return self.options.spans is not None

    def __call__(self, doc: Doc) -> Doc:
        """Return a new private document, in the vocabulary of `doc`, which is not changed.

        ``doc._.textpriv`` has ``"statement"``, one object for all documents, and ``"counts"``, tokens by class.
        """
        return next(self._release([self._read(doc)]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = DEFAULT_BATCH) -> Iterator[Doc]:
        """Yield a new private document for each raw one of a stream, in order.

        Parameters
        ----------
        stream
            Raw documents.
        batch_size
            Documents drawn in one call. The output does not depend on it.
        """
        for batch in spacy.util.minibatch(map(self._read, stream), batch_size):
            yield from self._release(batch)

    def _read(self, doc: Doc) -> Reading:
        if doc.user_data.get(RECORD) is not None:
            refuse_twice()
        carried = self._annotations.read(doc, self.takes_entities)
        spans = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
        return Reading(doc.text, doc.vocab, doc._context, carried, spans)

    def _own_vocab(self) -> Vocab:
        return self.nlp.vocab

    def _written_before(self) -> list[str]:
        return ["tokenizer", "meta.json", "config.cfg", *self.nlp.pipe_names]

    def get_error_handler(self) -> Callable[..., NoReturn]:
        """Raise, whatever the pipeline's own error handler does.

        After an error spaCy passes on the document as it was before the component, which here is the raw text.
        """
        return spacy.util.raise_error


@takes_options()
def make_component(nlp: Language, name: str, **given: Any) -> TextprivComponent:
    """Make the component ``textpriv`` from its block of a config, whose settings are those of `PipelineOptions`."""
    return TextprivComponent(nlp, name, **given)


Language.factory(
    "textpriv",
    func=make_component,
    assigns=["doc._.textpriv"],
    retokenizes=True,
    default_config=DEFAULTS,
)
