"""The two forms of textpriv in a spaCy pipeline: the strict tokenizer and the component."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import spacy
import spacy.util
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from textpriv.errors import MechanismError, RawTextError
from textpriv.pipeline.annotations import RECORD, is_private
from textpriv.pipeline.form import PrivateForm, Reading
from textpriv.pipeline.options import READER_NAME, TOKENIZER_NAME, PipelineOptions, takes_options

_NO_EXAMPLES = "x y z "  # of spaCy, for an ``initialize`` without examples
_LOOKED_AT = 10  # examples of a corpus


class PrivateTokenizer(PrivateForm):
    """Make private documents from raw texts; no raw word enters the pipeline. Its options are `PipelineOptions`.

    ``nlp.pipe(nlp.tokenizer.pipe(texts))`` is faster than ``nlp.pipe(texts)``, which asks for one text at a time. A `Doc`
    given to ``nlp`` in place of a text passes by every tokenizer, so the pipeline refuses one that is not private. The
    language of the pipeline has the rules that split the raw text. Its vocabulary is saved without the words of texts.
    """

    def __init__(self, nlp: Language, **options: Any) -> None:
        if not isinstance(nlp, Language):
            raise MechanismError("PrivateTokenizer takes the pipeline: PrivateTokenizer(nlp, ...).")
        if hasattr(nlp, "tokenizer"):  # made by hand, so that the config does not have it yet
            if callable(options.get("mechanism")):
                raise MechanismError(
                    "PrivateTokenizer takes a mechanism that a config can hold. Give its name, or a block "
                    '{"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": 3.3}.'
                )
            index = options.get("index")
            block = {"@tokenizers": TOKENIZER_NAME, **options, "index": index and os.fspath(index)}
            options = spacy.registry.resolve({"tokenizer": block})["tokenizer"].keywords
            nlp.config["nlp"]["tokenizer"] = block
        super().__init__(nlp, PipelineOptions(**options))
        # spaCy asks no tokenizer about a Doc. A subclass of Language could, but the config names the class before the
        # tokenizer, so every config would need a callback `before_creation` too.
        nlp._ensure_doc = functools.partial(_private_doc, nlp)  # type: ignore[method-assign]

    def initialize(
        self, get_examples: Callable[[], Iterable[Example]], *, nlp: Language | None = None
    ) -> None:
        """Refuse raw documents before the training: raw words and labels that no statement names."""
        for example in itertools.islice(get_examples(), _LOOKED_AT):
            if example.reference.text != _NO_EXAMPLES and not is_private(example.reference):
                raise RawTextError(
                    f"The documents to train on are not private. Read them with the reader {READER_NAME}."
                )

    def _read(self, raw: str) -> Reading:
        return Reading(raw)


@spacy.registry.tokenizers(TOKENIZER_NAME)
@takes_options
def make_tokenizer(**options: Any) -> Callable[[Language], PrivateTokenizer]:
    """Make the strict tokenizer from the block ``[nlp.tokenizer]``, whose settings are those of `PipelineOptions`."""
    return functools.partial(PrivateTokenizer, **options)


def _private_doc(nlp: Language, given: Doc | str | bytes) -> Doc:
    """Do what ``Language._ensure_doc`` does, and refuse a raw `Doc` if the tokenizer is private."""
    doc: Doc = type(nlp)._ensure_doc(nlp, given)
    is_raw = not isinstance(given, str) and not is_private(doc)
    if is_raw and isinstance(nlp.tokenizer, PrivateTokenizer):
        raise RawTextError(
            "This Doc is not known to be private: the pipeline's private tokenizer did not make it, and its words would "
            "come out as they are. Give the pipeline the text (doc.text) instead."
        )
    return doc


class TextprivComponent(PrivateForm):
    """Replace each document by a new one that holds private words only. Its options are `PipelineOptions`.

    It reads the text of the raw document, not its tokens: another tokenizer may split by casing, which the number of
    tokens would show. Of the raw document only ``_context`` (for ``as_tuples``) and the annotations in ``carry`` are kept;
    it warns once of others that get lost. The process keeps raw words in ``nlp.vocab``, which is saved without the words of
    texts; `PrivateTokenizer` leaves none behind. Put it first in the pipeline: components before it see raw words, and
    their annotations are lost. A document that is already private is refused.

    Parameters
    ----------
    carry
        Annotations of raw documents that private ones keep, and that the statement names as not protected: ``"cats"``,
        ``"ents"``, ``"spans"`` (all span groups) and extensions, such as ``"_.origin"``.
    """

    def __init__(
        self, nlp: Language, name: str = "textpriv", *, carry: Sequence[str] = (), **options: Any
    ) -> None:
        if isinstance(nlp.tokenizer, PrivateTokenizer):
            _refuse_twice()
        self.name = name
        given = PipelineOptions(**options)
        self.takes_entities = given.spans is not None
        if self.takes_entities and {"ents", "spans"} & {*carry}:
            raise MechanismError(
                'With spans the entities of a private document are its typed spans: leave "ents" and "spans" out of carry.'
            )
        super().__init__(nlp, given, carry)

    def _read(self, raw: Doc) -> Reading:
        if raw.user_data.get(RECORD) is not None:
            _refuse_twice()
        if raw.vocab is not self.vocab:
            raise RawTextError(
                "This Doc was made in another vocabulary than the pipeline's. Give the pipeline its text (doc.text), or "
                "make it in nlp.vocab. If the component is from another pipeline (source=...), add it with its config."
            )
        carried = self._annotations.read(raw, self.takes_entities)
        spans = [(ent.start_char, ent.end_char, ent.label_) for ent in raw.ents]
        return Reading(raw.text, raw._context, carried, spans)

    def update(self, examples: Iterable[Example], **settings: Any) -> None:
        """Refuse to train on raw documents, whose words the weights can keep."""
        if not all(is_private(example.predicted) for example in examples):
            raise RawTextError(
                "The documents to train on are not private: training gives them to components behind textpriv as they are. "
                f"Use the tokenizer {TOKENIZER_NAME} and the reader {READER_NAME} in place of the component."
            )

    def get_error_handler(self) -> Callable[..., NoReturn]:
        """Raise, whatever the pipeline's own handler does: spaCy passes on the raw document after an error."""
        return spacy.util.raise_error


@Language.factory("textpriv", assigns=["doc._.textpriv"], retokenizes=True)
@takes_options
def make_component(
    nlp: Language, name: str, carry: Sequence[str] = (), **options: Any
) -> TextprivComponent:
    """Make the component ``textpriv`` from its block of a config."""
    return TextprivComponent(nlp, name, carry=carry, **options)


def _refuse_twice() -> NoReturn:
    raise MechanismError(
        f"The words are private already. Use either the tokenizer {TOKENIZER_NAME} or one "
        "component textpriv, not both: a second pass changes more words and protects nobody better."
    )
