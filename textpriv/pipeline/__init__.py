"""The spaCy forms: the component ``textpriv``, a strict tokenizer, and a reader of raw documents.

Here lives what spaCy asks of them: configuration, batching, new documents, saving and loading,
worker processes. How a text is read, drawn and rebuilt is the privatizer's; no mathematics lives
here.

The two forms differ in what the pipeline gets to see. The component works on a `Doc` that another
tokenizer has made, so every raw word is already in ``nlp.vocab.strings``, and is saved with the
pipeline. The tokenizer reads the raw text in a vocabulary of its own and hands out private words
only. The reader does the same for texts that lie in files of spaCy, and draws each of them once.
"""

from textpriv.pipeline.annotations import LostAnnotationWarning
from textpriv.pipeline.component import TextprivComponent, make_component
from textpriv.pipeline.raw_words import RawTextWarning
from textpriv.pipeline.reader import PrivateCorpus, make_corpus
from textpriv.pipeline.tokenizer import PrivateTokenizer, make_tokenizer

__all__ = [
    "LostAnnotationWarning",
    "PrivateCorpus",
    "PrivateTokenizer",
    "RawTextWarning",
    "TextprivComponent",
    "make_component",
    "make_corpus",
    "make_tokenizer",
]
