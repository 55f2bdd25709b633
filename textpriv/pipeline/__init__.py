"""The spaCy forms: the component ``textpriv``, a strict tokenizer, and a reader of raw documents.

The component works on a `Doc` of another tokenizer, so every raw word is already in ``nlp.vocab.strings``. The tokenizer
reads the raw text in a vocabulary of its own and hands out private words only. The reader does the same for spaCy's files.
"""

from textpriv.pipeline.annotations import LostAnnotationWarning
from textpriv.pipeline.component import TextprivComponent, make_component
from textpriv.pipeline.reader import PrivateCorpus, make_corpus
from textpriv.pipeline.saving import RawTextWarning
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
