"""``textpriv demo``: three texts at three amounts of privacy, on the built-in index.

The table marks which words have changed. That is harmless for public samples only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from textpriv.privatizer import Privatizer

SAMPLES = {
    "review": "The battery of this laptop lasts only two hours, and the screen arrived with a crack. I would not buy it.",
    "ticket": "Hello, I changed my password yesterday and now I cannot open my account. Please help me before the weekend.",
    "note": "The patient was admitted with chest pain and asthma. She was given insulin and went home on Friday.",
}
_CHANGED = "bold yellow"
_GUARANTEE = (
    "One output distinguishes two words at distance d by odds of at most exp(epsilon x d). The number and order of words "
    "and the punctuation are not hidden."
)
_MEANING = (
    " words have changed; each run draws new ones. The odds are between a word and its 10th nearest word. The attacker sees "
    "single outputs and knows the mechanism and how common each word is. A context attacker may recover more."
)


def demo() -> None:
    """Show private text in seconds: a review, a ticket and a note at three amounts of privacy.

    [bold]Example:[/bold] textpriv demo
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from textpriv.amounts import amounts
    from textpriv.cli.messages import console
    from textpriv.index.index import Index
    from textpriv.mechanisms.tem import TEM
    from textpriv.privatizer import Privatizer
    from textpriv.statement import odds_in_words

    with console().status("opening the built-in index (the first time: some seconds)"):
        index = Index.builtin("en")
        three = amounts(index)
        privatizers = [Privatizer(TEM(index, epsilon=each.epsilon)) for each in three]
        shown = {
            name: [marked(each, text) for each in privatizers] for name, text in SAMPLES.items()
        }
    table = Table(show_lines=True)
    for title in ("", "original", *(f"epsilon {each.epsilon:g}" for each in three)):
        table.add_column(title)
    for name, texts in shown.items():
        table.add_row(name, SAMPLES[name], *texts)
    for name, values in (
        ("words that stay", [f"{each.keep:.0%}" for each in three]),
        ("odds at most, half of all words", [odds_in_words(each.loss) for each in three]),
        ("nine tenths", [odds_in_words(each.loss_90) for each in three]),
        ("attacker recovers", [f"{each.recovered or 0:.0%}" for each in three]),
    ):
        table.add_row(name, "", *values)
    screen = Console(highlight=False)
    screen.print(table)
    screen.print(_GUARANTEE, "\n")
    screen.print(Text.assemble(("Marked", _CHANGED), _MEANING), "\n")
    epsilon = f"--epsilon {three[1].epsilon:g}"
    screen.print("Next:", style="bold")
    screen.print(
        f'  echo "The patient was admitted with chest pain." | textpriv privatize - - {epsilon}',
        soft_wrap=True,
    )
    screen.print(f"  textpriv explain pain {epsilon}")


def marked(privatizer: Privatizer, text: str) -> Text:
    """Return a private form of a public sample, with changed words marked."""
    from rich.text import Text

    raw = privatizer.read(text)
    (released,) = privatizer.release(raw)
    same = (raw.codes == released.outputs) | (released.outputs < 0)
    shown = Text()
    for word, space, stays in zip(released.words, released.spaces, same, strict=True):
        shown.append(word, style="" if stays else _CHANGED)
        shown.append(" " if space else "")
    return shown
