"""``textpriv demo``: three texts at three recovery rates, on the built-in index.

The table marks which words have changed. That is harmless for public samples only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from textpriv.privatizer import Privatizer

SAMPLES = {
    "review": "The battery of this laptop lasts only two hours, and the screen arrived with a crack. I would not buy it.",
    "ticket": "Hello, I changed my password yesterday and now I cannot open my account. Please help me before the weekend.",
    "note": "The patient was admitted with chest pain and asthma. She was given insulin and went home on Friday.",
}
RECOVERIES = (0.05, 0.1, 0.2)
_CHANGED = "bold yellow"
_GUARANTEE = (
    "One output distinguishes two words at distance d by odds of at most exp(epsilon x d). The number and order of words "
    "and the punctuation are not hidden."
)
_MEANING = (
    " words have changed; each run draws new ones. The odds are between a word and its 10th nearest word. The attacker "
    "knows the mechanism, the output before a word, and how common each word is. The recovery is an estimate on words "
    "drawn from general English, which the choice of epsilon did not use. An attacker who knows more may recover more."
)


def demo() -> None:
    """Show private text in seconds: a review, a ticket and a note at three recovery rates.

    [bold]Example:[/bold] textpriv demo
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from textpriv.cli.messages import console
    from textpriv.guarantees.epsilon import choose_epsilon
    from textpriv.index.index import Index
    from textpriv.mechanisms.contextual import ContextualTEM
    from textpriv.privatizer import Privatizer

    with console().status("opening the built-in index (the first time: some seconds)"):
        index = Index.builtin("en")
        found = [
            choose_epsilon(index, recovery=each, mechanism="contextual") for each in RECOVERIES
        ]
        mechanisms = [ContextualTEM(index, each.epsilon) for each in found]
        privatizers = [Privatizer(each) for each in mechanisms]
        shown = {
            name: [marked(each, text) for each in privatizers] for name, text in SAMPLES.items()
        }
    figures = [each.statement.figures for each in mechanisms]
    table = Table(show_lines=True)
    for title in ("", "original", *(f"--recovery {each:g}" for each in RECOVERIES)):
        table.add_column(title)
    for name, texts in shown.items():
        table.add_row(name, SAMPLES[name], *texts)
    for name, values in (
        ("attacker recovers", [f"{each.value:.1%} of content words" for each in found]),
        ("epsilon", [f"{each.epsilon:.3g}" for each in found]),
        ("odds at most, half of all words", _odds(figures, "reference_loss")),
        ("nine tenths", _odds(figures, "reference_loss_90")),
    ):
        table.add_row(name, "", *values)
    screen = Console(highlight=False)
    screen.print(table)
    screen.print(_GUARANTEE, "\n")
    screen.print(Text.assemble(("Marked", _CHANGED), _MEANING), "\n")
    epsilon = f"--epsilon {found[1].epsilon:.3g}"
    screen.print("Next:", style="bold")
    screen.print(
        '  echo "The patient was admitted with chest pain." | textpriv privatize - - --recovery 0.1',
        soft_wrap=True,
    )
    screen.print(f"  textpriv explain pain {epsilon}")


def _odds(figures: Sequence[Mapping[str, float]], name: str) -> list[str]:
    from textpriv.statement import odds_in_words

    return [odds_in_words(float(each[name])) for each in figures]


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
