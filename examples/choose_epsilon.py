"""Choose epsilon by what it means, from public tables alone, and see what it does to a word.

python examples/choose_epsilon.py [INDEX]
"""

import sys

import numpy as np

import textpriv


def main(folder: str = "") -> None:
    """Print epsilon for three wishes, and what a word becomes at each."""
    index = textpriv.Index.load(folder) if folder else textpriv.Index.builtin("en")
    wishes = {
        "half of all words stay": textpriv.epsilon_for(index, keep=0.5),
        "odds of 20 to 1 for the 10th neighbour": textpriv.epsilon_for(index, odds=20),
        "odds of 100 to 1 at distance 0.8": textpriv.epsilon_for(index, odds=100, distance=0.8),
    }
    words = index.vocabulary.words
    for wish, epsilon in wishes.items():
        law = np.exp(textpriv.TEM(index, epsilon).log_prob("police"))
        first = ", ".join(f"{words[i]} {law[i]:.1%}" for i in np.argsort(-law)[:4])
        print(f"{wish}: epsilon {epsilon:.3g}; 'police' becomes {first}")


if __name__ == "__main__":
    main(*sys.argv[1:])
