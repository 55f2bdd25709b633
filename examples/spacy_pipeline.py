"""A spaCy pipeline that never sees a raw word: the strict tokenizer, from a config.

python examples/spacy_pipeline.py [INDEX]        (an index folder of your own; default: the built-in English words)
"""

import sys

import spacy
from thinc.api import Config

CONFIG = """
[nlp]
lang = "en"
pipeline = ["sentencizer"]

[components]

[components.sentencizer]
factory = "sentencizer"

[nlp.tokenizer]
@tokenizers = "textpriv.PrivateTokenizer.v1"
recovery = 0.1
"""


def main(index: str | None = None) -> None:
    """Read two texts through the private pipeline and show what came out."""
    config = Config().from_str(CONFIG)
    config["nlp"]["tokenizer"]["index"] = index
    nlp = spacy.util.load_model_from_config(config, auto_fill=True)
    texts = [
        "The minister spoke to the union. The staff want more money.",
        "Fire crews worked through the night.",
    ]
    for doc in nlp.pipe(texts):
        print(doc.text)
        print(f"  {len(list(doc.sents))} sentences, {len(doc)} tokens")
    print(doc._.textpriv["statement"]["unit"])


if __name__ == "__main__":
    main(*sys.argv[1:])
