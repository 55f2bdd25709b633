"""Names under which spaCy knows the forms."""

from typing import Any

TOKENIZER_NAME = "textpriv.PrivateTokenizer.v1"
READER_NAME = "textpriv.PrivateCorpus.v1"
EXTENSION = "textpriv"
EXTENSION_KEY: Any = (
    "._.",
    EXTENSION,
    None,
    None,
)  # where ``Doc.user_data`` has it; ``doc._`` takes many times as long
MECHANISMS = "textpriv_mechanisms"
DEFAULT_BATCH = 1000
