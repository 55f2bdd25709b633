"""The reader of raw documents in spaCy's files, for training on private text."""

# No `from __future__ import annotations`: spaCy's config system reads the types of the arguments.

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import spacy
import spacy.util
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.training.corpus import walk_corpus
from spacy.vocab import Vocab

from textpriv.errors import CorpusError, MechanismError
from textpriv.pipeline.components import PrivateTokenizer
from textpriv.pipeline.form import DEFAULT_BATCH
from textpriv.pipeline.options import READER_NAME, TOKENIZER_NAME


@spacy.registry.readers(READER_NAME)
class PrivateCorpus:
    """Read raw documents of spaCy's files (`DocBin`) as private examples to train on.

    Each text is drawn once: all epochs, and every evaluation, see the same private text.

    Parameters
    ----------
    path
        A file ``*.spacy``, or a folder with such files.
    carry
        Annotations to keep, as for `TextprivComponent`. Others are left out, with a warning.
    """

    def __init__(self, path: str | Path | None, carry: Sequence[str] = ("cats",)) -> None:
        if path is None:
            raise CorpusError(
                f"The reader {READER_NAME} has no path: set it in the config, or for instance with --paths.train FILE."
            )
        self.path = Path(path)
        self.carry = tuple(carry)

    def __call__(self, nlp: Language) -> Iterator[Example]:
        """Yield the examples, for a pipeline with a `PrivateTokenizer`; documents without a word are left out."""
        tokenizer = nlp.tokenizer
        if not isinstance(tokenizer, PrivateTokenizer):
            raise MechanismError(
                f"The reader {READER_NAME} needs a pipeline with the tokenizer {TOKENIZER_NAME}: it has the texts made "
                "private by it."
            )
        annotations = tokenizer.annotations(self.carry)
        raw_docs = (raw for file in walk_corpus(self.path, ".spacy") for raw in _raw_docs(file))
        for batch in spacy.util.minibatch(raw_docs, DEFAULT_BATCH):
            docs = tokenizer.pipe((raw.text for raw in batch), once=True)
            for doc, raw in zip(docs, batch, strict=True):
                carried = annotations.read(raw)
                if len(doc):
                    annotations.name_in(doc)
                    reference = doc.copy()
                    annotations.write(carried, raw.text, reference)
                    yield Example(doc, reference)


def _raw_docs(file: Path) -> Iterator[Doc]:
    try:
        documents = DocBin().from_disk(file)
    except (OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise CorpusError(
            f"{file} cannot be read as a DocBin of spaCy ({type(error).__name__}). Write it with DocBin.to_disk."
        ) from None
    yield from documents.get_docs(Vocab())
