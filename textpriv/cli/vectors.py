"""``textpriv vectors``: lists public sets of word vectors and gets one. What they are stands in the library."""

from __future__ import annotations

from typing import Annotated

import typer

from textpriv.cli.messages import console, print_json, say
from textpriv.cli.options import Json

__all__ = ["vectors"]


def vectors(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A set to get, such as spacy:de_core_news_md. Without one, the sets are listed.",
        ),
    ] = None,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="List those of a language only, such as de.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List public word vectors by language, with size and licence, or get a set of them.

    A set that was got, or that lies where this says, is named as SOURCE to 'textpriv index'.

    [bold]Example:[/bold] textpriv vectors --language de
    """
    from textpriv.vocabulary.public_sets import get, set_named, where

    if name is None:
        _list(language, as_json)
        return
    chosen = set_named(name)
    terminal = console()
    if terminal.is_terminal:
        from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

        with Progress(
            *Progress.get_default_columns(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=terminal,
            transient=True,
        ) as bars:
            bar = bars.add_task(name, total=None)
            path = get(
                chosen, lambda found, total: bars.update(bar, completed=found, total=total or None)
            )
    else:
        path = get(chosen)
    if as_json:
        print_json({"name": name, "path": str(path), "checked": bool(chosen.checksum)})
        return
    print(f"{name}: {path}")
    if not chosen.checksum and where(chosen).is_file():
        say("Its publisher gives no checksum, so that none was compared.")
    say(f"Next: textpriv index {name} OUT --limit 100000")


def _list(language: str | None, as_json: bool) -> None:
    from textpriv.vocabulary.public_sets import SETS, where

    chosen = [each for each in SETS if language in (None, each.language)]
    if not chosen:
        known = ", ".join(sorted({str(each.language) for each in SETS}))
        raise typer.BadParameter(
            f"no set is listed for {language!r}, only for {known}; those of fastText are for 157 languages: "
            f"fasttext:cc.{language}.300",
            param_hint="--language",
        )
    chosen.sort(key=lambda each: (each.language or "", each.megabytes))
    if as_json:
        sets = [{**vars(each), "url": each.url, "here": where(each).exists()} for each in chosen]
        print_json({"sets": sets})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for title in ("for", "name", "words", "values", "about", "licence", "here"):
        table.add_column(title, no_wrap=title != "licence")
    for each in chosen:
        words = f"{each.words:,}" if each.words else ""
        size, here = f"{each.megabytes:,} MB", "yes" if where(each).exists() else ""
        table.add_row(
            each.language, each.name, words, str(each.dimensions), size, each.licence, here
        )
    Console(highlight=False).print(table)
    say("English words come with the package (builtin). Get a set: textpriv vectors NAME")
