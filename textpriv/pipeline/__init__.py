"""The spaCy forms: the component ``textpriv``, a strict tokenizer, and a reader of raw documents."""

from textpriv.pipeline.annotations import LostAnnotationWarning
from textpriv.pipeline.components import PrivateTokenizer, TextprivComponent
from textpriv.pipeline.reader import PrivateCorpus

__all__ = ["LostAnnotationWarning", "PrivateCorpus", "PrivateTokenizer", "TextprivComponent"]
