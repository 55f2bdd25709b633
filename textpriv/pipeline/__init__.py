"""The spaCy forms: the component ``textpriv``, a strict tokenizer, and a reader of raw documents.

The component works on a `Doc` of another tokenizer, so every raw word is already in ``nlp.vocab.strings``. The tokenizer
reads the raw text in a vocabulary of its own and hands out private words only. The reader does the same for spaCy's files.
"""

from textpriv.pipeline.annotations import LostAnnotationWarning
from textpriv.pipeline.components import PrivateTokenizer, TextprivComponent
from textpriv.pipeline.reader import PrivateCorpus

__all__ = [
    "LostAnnotationWarning",
    "PrivateCorpus",
    "PrivateTokenizer",
    "TextprivComponent",
]
