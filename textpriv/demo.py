"""``textpriv demo``: from nothing to private text within a minute, without a download.

What lives here: small word vectors trained on public news that comes with gensim, three texts made
for this page, and their display at three levels of privacy. What does not: anything that a real run
uses. The display marks which words have changed; that is harmless for public samples only, since a
reader who knows which words are still the author's own knows more than the guarantee allows.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from textpriv.bounds import at_most, odds_in_words
from textpriv.errors import TextprivError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from textpriv.index.index import Index
    from textpriv.mechanisms.tem import TEM
    from textpriv.privatizer import Privatizer
    from textpriv.statement import PrivacyStatement
    from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["SAMPLES", "build_index", "choose_epsilon", "run_demo", "train_vocabulary"]

SAMPLES = (
    "Fire crews worked through the night to protect homes near the coast. Strong winds carried the "
    "blaze towards the town, and police told residents to leave the area.",
    "The minister told parliament that the government will put more money into health. A "
    "spokesman for the union says the staff want a better deal.",
    "Australia won the cricket match in Sydney on the final day of the test. The captain said "
    "the batsmen played well and the spinner took early wickets.",
)

# The share of common words that stay as they are: nearly all changed, half, nearly all kept.
_SHARES = (0.15, 0.5, 0.9)
_CHANGED = "bold yellow"
_RARE = 4  # a word seen less often than this has no usable vector


@contextlib.contextmanager
def _stage(what: str) -> Iterator[None]:
    """Say on standard error what is going on, and how long it took."""
    started = time.perf_counter()
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    try:
        yield
    except BaseException:
        print(file=sys.stderr, flush=True)
        raise
    print(f" {time.perf_counter() - started:.1f} s", file=sys.stderr, flush=True)


def train_vocabulary(epochs: int = 40) -> Vocabulary:
    """Train small word vectors on the 300 public news articles that come with gensim.

    Parameters
    ----------
    epochs
        Passes over the articles.

    Returns
    -------
    Vocabulary
        About 2,100 words, the commonest first, with vectors of 50 dimensions. The same on every
        call on the same machine.
    """
    import spacy
    from gensim.models import Word2Vec
    from gensim.test.utils import datapath

    from textpriv.vocabulary.vocabulary import Vocabulary

    # The tokenizer that the privatizer reads with, so that words are cut alike.
    tokenizer = spacy.blank("en").tokenizer
    with open(datapath("lee_background.cor"), encoding="utf-8") as articles:
        sentences = [
            [
                token.lower_
                for token in tokenizer(article)
                if not (token.is_punct or token.is_space or token.like_num)
            ]
            for article in articles
        ]
    # Skip-gram with a wide window: on a corpus this small it learns topics, and little grammar. One
    # thread and a seed make it repeatable.
    model = Word2Vec(
        sentences,
        vector_size=50,
        sg=1,
        window=10,
        negative=5,
        sample=1e-3,
        alpha=0.05,
        epochs=epochs,
        min_count=_RARE,
        seed=1,
        workers=1,
    )
    return Vocabulary(list(model.wv.index_to_key), model.wv.vectors)


def choose_epsilon(index: Index, share: float, words: int = 200) -> float:
    """Find the epsilon at which a share of the common words stay as they are.

    Parameters
    ----------
    index
        Index of public words, the commonest first.
    share
        Wanted mean probability, in (0, 1), that a word is replaced by itself.
    words
        The mean is over every tenth word after the 50 commonest, this many ranks on.

    Returns
    -------
    float
        Epsilon per unit of the index's distance, rounded to two digits. It depends on public
        vectors only, so choosing it costs no privacy.
    """
    ids = range(min(50, len(index) - 1), min(50 + words, len(index)), 10)

    def kept(epsilon: float) -> float:
        mechanism = _mechanism(index, epsilon)
        return float(np.mean([np.exp(mechanism.log_prob(i)[i]) for i in ids]))

    # The distances of two sets of vectors may differ by any factor: first find the right power of
    # 2.
    low, high = 0.5, 1.0
    while kept(high) < share and high < 2.0**40:
        low, high = high, 2 * high
    while kept(low) > share and low > 2.0**-40:
        low, high = low / 2, low
    for _ in range(6):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if kept(middle) < share else (low, middle)
    return _round((low * high) ** 0.5)


def _round(value: float) -> float:
    """Round to two significant digits."""
    return float(f"{value:.2g}")


def _mechanism(index: Index, epsilon: float) -> TEM:
    from textpriv.mechanisms.tem import TEM

    return TEM(index, epsilon=epsilon, prior="zipf")


def build_index() -> Index:
    """Index the demo's own small vocabulary by angles.

    Returns
    -------
    Index
        Over :func:`train_vocabulary`; distances in radians.
    """
    from textpriv.index.index import Index

    return Index.build(train_vocabulary(), metric="angular", k=256, hnsw=False)


def run_demo(console: Console, save: Path | None = None) -> None:
    """Train, privatize and show, with each stage told on standard error.

    Parameters
    ----------
    console
        Where the texts are shown.
    save
        A new folder to keep the index in; None keeps nothing.

    Raises
    ------
    TextprivError
        If the folder is there already, before anything is trained.
    """
    if save is not None and save.exists():
        raise TextprivError(f"{save} is there already. Give the name of a new folder.")
    with _stage("loading the library"):
        from rich.rule import Rule
        from rich.text import Text

        from textpriv.privatizer import Privatizer
    with _stage("training small word vectors on 300 public news articles, and indexing them"):
        index = build_index()
        if save is not None:
            index.save(save)
    with _stage("choosing three epsilons for these vectors"):
        epsilons = [choose_epsilon(index, share) for share in _SHARES]
    with _stage("making the texts private"):
        privatizers = [Privatizer(_mechanism(index, epsilon)) for epsilon in epsilons]
        shown = [[_privatize(private, sample) for sample in SAMPLES] for private in privatizers]
    print(file=sys.stderr)

    console.print(Rule("Original", style="bold"))
    for sample in SAMPLES:
        console.print(Text(sample), highlight=False)
        console.print()
    for epsilon, texts in zip(epsilons, shown, strict=True):
        kept = sum(same for _, same, _ in texts) / sum(total for _, _, total in texts)
        title = Text(f"epsilon {epsilon:g}: {kept:.0%} of the words kept", style="bold")
        console.print(Rule(title, style="bold"))
        for text, _, _ in texts:
            console.print(text, highlight=False)
            console.print()
    _print_end(console, len(index), [private.statement for private in privatizers], save)


def _privatize(privatizer: Privatizer, sample: str) -> tuple[Text, int, int]:
    """Return a private text with its changed words marked, its kept words and all its words.

    Only for public samples: a mark tells what the guarantee hides.
    """
    import spacy
    from rich.text import Text

    (released,) = privatizer.release([privatizer.read(sample)], None)
    originals = [
        token for token in spacy.blank("en").tokenizer(sample.lower()) if not token.is_space
    ]
    return _mark(Text(), originals, released)


def _mark(text: Text, originals: Sequence[Any], released: Any) -> tuple[Text, int, int]:
    same = total = 0
    for original, word, space in zip(originals, released.words, released.spaces, strict=True):
        changed = word != original.text
        if not original.is_punct:
            total += 1
            same += not changed
        text.append(word, style=_CHANGED if changed else "")
        text.append(" " if space else "")
    return text, same, total


def _print_end(
    console: Console, words: int, statements: Sequence[PrivacyStatement], save: Path | None
) -> None:
    """Say what has been seen, what it is worth, and what to do next."""
    from rich.rule import Rule
    from rich.text import Text

    console.print(Rule("What this means", style="bold"))
    figures = [statement.figures for statement in statements]
    odds = [
        " / ".join(odds_in_words(each[loss]) for each in figures)
        for loss in ("reference_loss", "reference_loss_90")
    ]
    for paragraph in (
        Text(
            "Whatever one of these words was, another word at distance d would have given the same "
            "output with a probability that differs by a factor of at most exp(epsilon x d). The "
            "number and order of the words, and the punctuation, are not hidden."
        ),
        Text(
            "Half of all running words have their 10th nearest word within "
            f"d = {at_most(figures[0]['reference_distance'], 3)}, nine tenths within "
            f"{at_most(figures[0]['reference_distance_90'], 3)}. The odds between the two are then at most {odds[0]} at "
            f"the three levels, or {odds[1]}. The more words are kept, the weaker the bound is."
        ),
        Text.assemble(
            ("Marked", _CHANGED),
            " words have changed; each run draws new ones. Epsilon is per unit of this "
            "vocabulary's distance (here an angle, in radians), so other vectors need other "
            f"values. These vectors are tiny: {words:,} words from 300 articles. Vectors trained "
            "on more text put words of like meaning closer together. A word that changes mostly becomes an "
            "unrelated common one; what is promised is that near words cannot be told apart.",
        ),
    ):
        console.print(paragraph, highlight=False)
        console.print()
    console.print(Rule("Next steps", style="bold"))
    commands = [
        "textpriv index glove.6B.300d.txt.gz glove.idx --limit 100000",
        "textpriv privatize reviews.csv private.csv --index glove.idx --epsilon 6",
    ]
    if save is not None:
        epsilon = statements[1].epsilon
        commands.insert(0, f"textpriv explain {shlex.quote(str(save))} fire --epsilon {epsilon:g}")
    for command in commands:
        console.print(Text(f"  {command}", style="bold"), soft_wrap=True)
