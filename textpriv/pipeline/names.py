"""Names under which spaCy knows the forms."""

TOKENIZER_NAME = "textpriv.PrivateTokenizer.v1"
READER_NAME = "textpriv.PrivateCorpus.v1"
EXTENSION = "textpriv"
MECHANISMS = "textpriv_mechanisms"
DEFAULT_BATCH = 1000
