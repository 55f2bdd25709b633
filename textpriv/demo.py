"""``textpriv demo``: from nothing to private text in seconds, on the index that is built in.

What lives here: three texts made for this page, and their display at three amounts of privacy, with what each amount means.
What does not: anything that a real run uses. The display marks which words have changed; that is harmless for public samples
only, since a reader who knows which words are still the author's own knows more than the guarantee allows.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textpriv.bounds import odds_in_words
from textpriv.errors import TextprivError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from textpriv.amounts import Amount
    from textpriv.privatizer import Privatizer

__all__ = ["SAMPLES", "run_demo"]

SAMPLES = {
    "review": "The battery of this laptop lasts only two hours, and the screen arrived with a crack. I would not buy it.",
    "ticket": "Hello, I changed my password yesterday and now I cannot open my account. Please help me before the weekend.",
    "note": "The patient was admitted with chest pain and asthma. She was given insulin and went home on Friday.",
}

_CHANGED = "bold yellow"


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


def run_demo(console: Console, save: Path | None = None) -> None:
    """Open the built-in index, privatize and show, with each stage told on standard error.

    Parameters
    ----------
    console
        Where the texts are shown.
    save
        A new folder to keep a copy of the index in; None keeps none.

    Raises
    ------
    TextprivError
        If the folder is there already, before anything is done.
    """
    if save is not None and save.exists():
        raise TextprivError(f"{save} is there already. Give the name of a new folder.")
    with _stage("loading the library"):
        from textpriv.amounts import amounts
        from textpriv.index.index import Index
        from textpriv.mechanisms.tem import TEM
        from textpriv.privatizer import Privatizer
    with _stage("opening the built-in index of English words"):
        index = Index.builtin("en")
        if save is not None:
            index.save(save)
    with _stage("making the texts private"):
        three = amounts(index)
        privatizers = [Privatizer(TEM(index, epsilon=each.epsilon)) for each in three]
        shown = _shown(privatizers)
    print(file=sys.stderr)
    console.print(_table(three, shown), highlight=False)
    _print_end(console, three[1].epsilon)


def _table(three: Sequence[Amount], shown: dict[str, list[Text]]) -> Table:
    """The texts beside their private forms, and below them what each amount means."""
    from rich.table import Table

    table = Table(show_lines=True)
    for name in ("", "original", *(f"epsilon {each.epsilon:g}" for each in three)):
        table.add_column(name)
    for name, texts in shown.items():
        table.add_row(name, SAMPLES[name], *texts)
    table.add_section()
    for name, values in (
        ("words that stay", (f"{each.keep:.0%}" for each in three)),
        ("odds at most, for half of all words", (odds_in_words(each.loss) for each in three)),
        ("for nine tenths", (odds_in_words(each.loss_90) for each in three)),
        ("the best guess is right", (f"{each.recovered or 0:.0%}" for each in three)),
    ):
        table.add_row(name, "", *values)
    return table


def _shown(privatizers: Sequence[Privatizer]) -> dict[str, list[Text]]:
    """Private forms of the samples, changed words marked. Only for public samples: a mark tells what the guarantee hides."""
    import spacy

    tokenizer, reader = spacy.blank("en").tokenizer, privatizers[0]
    shown = {}
    for name, sample in SAMPLES.items():
        originals = [token for token in tokenizer(sample.lower()) if not token.is_space]
        raw = reader.read(sample)
        shown[name] = [_mark(originals, private.release(raw)[0]) for private in privatizers]
    return shown


def _mark(originals: Sequence[Any], released: Any) -> Text:
    from rich.text import Text

    text = Text()
    for original, word, space in zip(originals, released.words, released.spaces, strict=True):
        text.append(word, style=_CHANGED if word != original.text else "")
        text.append(" " if space else "")
    return text


def _print_end(console: Console, epsilon: float) -> None:
    """Say what has been seen, what it is worth, and what to do next."""
    from rich.text import Text

    for paragraph in (
        Text(
            "What is guaranteed: from one output nobody can tell two words at distance d apart by odds above "
            "exp(epsilon x d); the number and order of the words and the punctuation are not hidden."
        ),
        Text.assemble(
            ("Marked", _CHANGED),
            " words have changed, and each run draws new ones. The odds are those between a word and its 10th nearest. The "
            "best guess of a word by its own output knows the law and how common each word is; who also reads the words "
            "around it may guess better.",
        ),
    ):
        console.print(paragraph, highlight=False)
        console.print()
    console.print(Text("Next:", style="bold"))
    for command in (
        f'echo "The patient was admitted with chest pain." | textpriv privatize - - --epsilon {epsilon:g}',
        f"textpriv explain pain --epsilon {epsilon:g}",
    ):
        console.print(Text(f"  {command}", style="bold"), soft_wrap=True)
