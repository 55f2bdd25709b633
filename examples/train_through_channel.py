"""Train a text classifier on private text, and use it on clear text.

The output distributions of the mechanism are public, so a learner may use them; that costs no privacy.

python examples/train_through_channel.py [INDEX]
"""

import sys

import numpy as np

import textpriv
from textpriv.evaluation.learning import ChannelClassifier

TOPICS = {
    "sport": "test match cricket players team captain win final day wicket".split(),
    "politics": "government minister party election union talks economy tax law parliament".split(),
}


def texts(count: int, rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return made-up texts on two topics, with their topics."""
    topics = rng.choice(list(TOPICS), count).tolist()
    filler = "the of to and in is on for with that".split()
    words = [[*rng.choice(TOPICS[t], 6), *rng.choice(filler, 6)] for t in topics]
    return [" ".join(each) for each in words], topics


def small() -> textpriv.Index:
    """The commonest built-in words: all pairs are compared."""
    return textpriv.Index.build(textpriv.Vocabulary.load("builtin:en", limit=2000))


def main(folder: str | None = None) -> None:
    """Print the accuracy on clear texts of a classifier trained on private ones."""
    rng = np.random.default_rng(0)
    train, topics = texts(600, rng)
    test, truth = texts(300, rng)
    index = textpriv.Index.load(folder) if folder else small()
    for epsilon in (2.0, 4.0, 8.0):
        mechanism = textpriv.TEM(index, epsilon)
        private = list(textpriv.Privatizer(mechanism).pipe(train))
        model = ChannelClassifier(mechanism).fit(private, topics)
        print(f"epsilon {epsilon:g}: accuracy {model.score(test, truth):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
