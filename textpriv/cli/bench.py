"""The command that draws utility against the success of the best attacker, from what comes with the package."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textpriv.cli.messages import print_json, say
from textpriv.cli.options import Json, refuse_foreign

if TYPE_CHECKING:
    from textpriv.evaluation.bench import Row

__all__ = ["bench"]

_COLOURS = ("#888", "#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677")
_TITLE = "Accuracy at equal success of the best attacker of lone words"
_STYLE = "text{font:13px sans-serif;fill:#333}.grid{stroke:#ddd}.line{fill:none;stroke-width:2}"


def bench(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Fewer words, documents and draws: half a minute of processor time."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Also draw the curves in this SVG file; one that this command has made is replaced."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare laws by what is still learned where the best attacker of lone words gets back as many of each.

    On built-in words and documents made of them, so it needs no data. Every law is set to the epsilon at which the exact
    Bayes attacker, who knows the law and is told which words are no common ones, gets back 5, 10 and 20 % of these. A model
    then learns from private documents and is tested on clear ones. What laws keep of real texts: recipes/tradeoff.py.

    [bold]Example:[/bold] textpriv bench --quick --output tradeoff.svg
    """
    from textpriv.evaluation.bench import clear_accuracy, curve, made_task
    from textpriv.files import atomic_write, umask
    from textpriv.vocabulary.builtin import read_builtin
    from textpriv.vocabulary.vocabulary import Vocabulary

    if output is not None:
        refuse_foreign(output, _TITLE)
    started = time.process_time()
    words, documents, seeds = (2000, 1500, 2) if quick else (6000, 6000, 5)
    whole = read_builtin("en")
    vocabulary = Vocabulary(whole.words[:words], whole.vectors[:words])
    task = made_task(vocabulary, documents)
    clear = clear_accuracy(task)
    rows = []
    if not as_json:
        print(
            f"{words:,} built-in words; {documents:,} documents made of them, in {task.train.labels.max() + 1} subjects; "
            f"clear {clear:.3f}, guessing {task.guessing:.3f}\n"
        )
        print(
            "| law | content words got back | of all words | epsilon | accuracy |\n|---|---|---|---|---|"
        )
    for row in curve(vocabulary, task, (0.05, 0.1, 0.2), seeds):
        rows.append(row)
        if not as_json:
            print(
                f"| {row.law} | {row.share:.0%} | {row.everything:.0%} | {row.epsilon:.3g} | "
                f"{row.accuracy:.3f} ({row.low:.3f} to {row.high:.3f}) |",
                flush=True,
            )
    if output is not None:
        with atomic_write(output, mode=0o666 & ~umask()) as file:
            file.write(drawn(rows, clear).encode())
    spent = time.process_time() - started
    if as_json:
        print_json(
            {
                "words": words,
                "documents": documents,
                "clear": clear,
                "guessing": task.guessing,
                "rows": [row._asdict() for row in rows],
                "processor_seconds": round(spent, 1),
            }
        )
    else:
        say(f"{spent:.0f} s of processor time")


def drawn(rows: list[Row], clear: float) -> str:
    """The curves as SVG: one line a law."""
    from textpriv.web.charts import Chart, Line

    names = list(dict.fromkeys(row.law for row in rows))
    chart = Chart(
        _TITLE,
        "One line a law: accuracy on clear documents after learning from private ones.",
        "share of content words that the best attacker of lone words gets back",
        f"accuracy (clear: {clear:.3f})",
        sorted({row.share for row in rows}),
        [Line(name, [row.accuracy for row in rows if row.law == name]) for name in names],
        1.0,
    ).svg()
    named = [
        f'<text x="80" y="{268 - 15 * (len(names) - 1 - at)}" style="fill:{colour}">{name}</text>'
        for at, (name, colour) in enumerate(zip(names, _COLOURS, strict=False))
    ]
    style = _STYLE + "".join(f".l{at}{{stroke:{colour}}}" for at, colour in enumerate(_COLOURS))
    whole = chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return whole.replace("</svg>", f"{''.join(named)}<style>{style}</style></svg>")
