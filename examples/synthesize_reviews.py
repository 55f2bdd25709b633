"""Learn new labelled reviews under differential privacy for each record, and train on them.

python examples/synthesize_reviews.py [INDEX]
"""

import sys

import numpy as np

from textpriv import TextSynthesizer

WORDS = {"bad": "bad poor wrong lost hard".split(), "good": "good great best new strong".split()}


def main(folder: str = "builtin:en") -> None:
    """Print the words that set classes apart, and some new texts."""
    chosen = np.random.default_rng(0)
    labels = chosen.choice(["bad", "good"], size=4000).tolist()
    texts = [f"The game was {chosen.choice(WORDS[label])} for the team." for label in labels]
    synthesizer = TextSynthesizer(epsilon=1.0, classes=["bad", "good"], index=folder)
    synthesizer.fit(texts, labels)
    for label, word, tilt, error in synthesizer.words_apart(top=3):
        print(f"{label}: {word}, tilt {tilt:.2f} (standard error {error:.2f})")
    for text, label in synthesizer.records(4, random_state=0):
        print(f"[{label}] {text}")
    print(synthesizer.statement_)


if __name__ == "__main__":
    main(*sys.argv[1:])
