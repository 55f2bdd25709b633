"""The reader of raw documents in spaCy's files, for training on private text."""

# No `from __future__ import annotations` here: spaCy's config system reads the annotations of
# registered functions, and in its older releases it cannot resolve them from strings.

import itertools
import os
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
from textpriv.pipeline.annotations import Carried, CarriedAnnotations
from textpriv.pipeline.form import DEFAULT_BATCH
from textpriv.pipeline.options import READER_NAME, TOKENIZER_NAME
from textpriv.pipeline.tokenizer import PrivateTokenizer

__all__ = ["PrivateCorpus", "make_corpus"]


class PrivateCorpus:
    """Read raw documents of spaCy's files (`DocBin`) as private examples to train on.

    Raw documents are read in a vocabulary of their own, which goes with them. What comes out has
    private words and what `carry` names of the raw document, which is not protected, as the
    statement of each says. Other annotations are about raw words and are left out, with a warning.
    Each text is drawn once (`PrivateTokenizer.pipe_once`): all epochs, and every evaluation, see the
    same private text.

    Parameters
    ----------
    path
        A file ``*.spacy``, or a folder with such files.
    limit
        How many documents to read at most; 0 for all.
    carry
        ``"cats"``, the default, ``"ents"`` and extensions of documents, as for `TextprivComponent`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, limit: int = 0, carry: Sequence[str] = ("cats",)
    ) -> None:
        self.path = Path(path)
        self.limit = limit
        self.carry = tuple(carry)

    def __repr__(self) -> str:
        return f"PrivateCorpus({str(self.path)!r}, carry={list(self.carry)})"

    def __call__(self, nlp: Language) -> Iterator[Example]:
        """Yield the examples; documents without a word are left out.

        Parameters
        ----------
        nlp
            A pipeline with the tokenizer `PrivateTokenizer`.

        Raises
        ------
        MechanismError
            If the pipeline has another tokenizer, or cannot carry over what was named.
        CorpusError
            If there is no such file, or it is none of spaCy's.
        """
        tokenizer = nlp.tokenizer
        if not isinstance(tokenizer, PrivateTokenizer):
            raise MechanismError(
                f"The reader {READER_NAME} needs a pipeline with the tokenizer {TOKENIZER_NAME}: it has the texts made "
                "private by it."
            )
        annotations = tokenizer.annotations(self.carry)
        for batch in spacy.util.minibatch(self._raw(annotations), DEFAULT_BATCH):
            docs = tokenizer.pipe_once(text for text, _ in batch)
            for doc, (text, carried) in zip(docs, batch, strict=True):
                if len(doc):
                    annotations.name_in(doc)
                    reference = doc.copy()
                    annotations.write(carried, text, reference)
                    yield Example(doc, reference)

    def _raw(self, annotations: CarriedAnnotations) -> Iterator[tuple[str, Carried | None]]:
        """Yield texts of the raw documents, and what is carried over."""
        if not self.path.exists():
            raise CorpusError(
                f"There is no file or folder {self.path}; correct the path of the corpus."
            )
        documents = (doc for file in walk_corpus(self.path, ".spacy") for doc in _raw_docs(file))
        for doc in itertools.islice(documents, self.limit or None):
            yield doc.text, annotations.read(doc)


def _raw_docs(file: Path) -> Iterator[Doc]:
    vocab = Vocab()
    try:
        documents = DocBin().from_disk(file)
    except (OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise CorpusError(
            f"{file} cannot be read as a DocBin of spaCy ({type(error).__name__}). Write it with DocBin.to_disk."
        ) from None
    yield from documents.get_docs(vocab)


@spacy.registry.readers(READER_NAME)
def make_corpus(
    path: str | Path | None, limit: int = 0, carry: Sequence[str] = ("cats",)
) -> PrivateCorpus:
    """Make the reader from a block such as ``[corpora.train]`` of a config.

    Parameters
    ----------
    path, limit, carry
        As for `PrivateCorpus`.

    Raises
    ------
    CorpusError
        If there is no path.
    """
    if path is None:
        raise CorpusError(
            f"The reader {READER_NAME} has no path: set it in the config, or for instance with --paths.train FILE."
        )
    return PrivateCorpus(path, limit=limit, carry=carry)
