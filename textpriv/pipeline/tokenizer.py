"""The strict tokenizer: private documents from raw texts, without a raw word in the pipeline."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import spacy
import spacy.util
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from textpriv.errors import MechanismError, RawTextError
from textpriv.pipeline.form import DEFAULT_BATCH, Reading
from textpriv.pipeline.options import TOKENIZER_NAME, PipelineOptions, takes_options
from textpriv.pipeline.record import RECORD
from textpriv.pipeline.saving import SavableForm

__all__ = ["PrivateTokenizer", "make_tokenizer", "refuse_twice"]


class PrivateTokenizer(SavableForm):
    """Make private documents from raw texts; no raw word enters the pipeline.

    The pipeline's string store receives the released words, and what spaCy derives from them.

    If raw words come into the pipeline's vocabulary by another way, such as a `DocBin` that is read in it, the tokenizer
    raises an error. A `Doc` given to ``nlp`` in place of a text passes by every tokenizer; a pipeline that was made from a
    config refuses one that is not private.

    Parameters
    ----------
    vocab
        The pipeline's vocabulary.
    language
        Code of the language whose rules split the raw text, by default that of `vocab`.
    options
        As in `PipelineOptions`.
    """

    def __init__(self, vocab: Vocab, language: str | None = None, **options: Any) -> None:
        self.vocab = vocab
        super().__init__(PipelineOptions(**options), language or vocab.lang or "en")

    def __call__(self, text: str) -> Doc:
        """Return the private document of a raw text, with ``doc._.textpriv`` as `TextprivComponent` sets it."""
        return next(self._release([self._read(text)]))

    def pipe(self, texts: Iterable[str], batch_size: int = DEFAULT_BATCH) -> Iterator[Doc]:
        """Yield the private document of each text, in order.

        ``nlp.pipe(nlp.tokenizer.pipe(texts))`` is faster than ``nlp.pipe(texts)``, which asks for one text at a time.

        Parameters
        ----------
        texts
            Raw texts.
        batch_size
            Documents drawn in one call. The output does not depend on it.
        """
        for batch in spacy.util.minibatch(map(self._read, texts), batch_size):
            yield from self._release(batch)

    def pipe_once(self, texts: Iterable[str]) -> Iterator[Doc]:
        """Yield the private document of each text, in order, the same for the same text each time.

        Without a seed or a run key, this holds as long as this object lives and keeps its index.
        """
        for batch in spacy.util.minibatch(map(self._read, texts), DEFAULT_BATCH):
            yield from self._release(batch, once=True)

    def _release(self, batch: Sequence[Reading], once: bool = False) -> Iterator[Doc]:
        self._refuse_raw_words("Not tokenized")
        return super()._release(batch, once)

    def _read(self, text: str) -> Reading:
        if not isinstance(text, str):
            raise TypeError(f"The tokenizer takes text; got {type(text).__name__}.")
        return Reading(text, self.vocab)

    def _own_vocab(self) -> Vocab:
        return self.vocab


@spacy.registry.tokenizers(TOKENIZER_NAME)
@takes_options("carry")
def make_tokenizer(**given: Any) -> Callable[[Language], PrivateTokenizer]:
    """Make the strict tokenizer from the block ``[nlp.tokenizer]``, whose settings are those of `PipelineOptions`."""

    def create(nlp: Language) -> PrivateTokenizer:
        # spaCy asks no tokenizer about a Doc that it is given in place of a text.
        nlp._ensure_doc = functools.partial(_private_doc, nlp)  # type: ignore[method-assign]
        return PrivateTokenizer(nlp.vocab, nlp.lang, **given)

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


def refuse_twice() -> NoReturn:
    """Refuse a second form in one pipeline."""
    raise MechanismError(
        f"The words are private already. Use either the tokenizer {TOKENIZER_NAME} or one "
        "component textpriv, not both: a second pass changes more words and protects nobody better."
    )
