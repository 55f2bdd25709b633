"""``textpriv report`` and ``textpriv playground``: a page about a mechanism, and a page to try it on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from textpriv.cli.messages import console, warn
from textpriv.cli.options import (
    Context,
    Force,
    IndexFolder,
    MechanismOptions,
    Recovery,
    ReleaseOptions,
    TextColumn,
    public_texts,
    refuse_lost,
)
from textpriv.errors import TextprivError


def report(
    *,
    release: ReleaseOptions,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="HTML file to write."),
    ],
    context: Context = None,
    text_column: TextColumn = "text",
    ledger: Annotated[Path | None, typer.Option(help="Ledger whose totals are shown.")] = None,
    word: Annotated[
        list[str] | None, typer.Option(help="A further public word to look up. Repeat for several.")
    ] = None,
    certificate: Annotated[
        bool, typer.Option(help="Compute the certificate, or read the one in the index folder.")
    ] = True,
    force: Force = False,
) -> None:
    """Write a page for any browser: what a mechanism guarantees, and what it does to words and names.

    Nothing on it is computed from private texts.

    [bold]Example:[/bold] textpriv report --epsilon 3 --output report.html
    """
    from textpriv.corpus import files_of
    from textpriv.evaluation.best_attacker import PublicText
    from textpriv.guarantees.certificate import certify
    from textpriv.ledger.ledger import Ledger
    from textpriv.web.report import report_page, write_page

    settings = release.release()
    read = [context, ledger, release.policy, *files_of(settings.index, settings)]
    refuse_lost(output, "--output", read)
    if output.exists() and not force:
        raise TextprivError(f"{output} exists. Name another file, or replace it with --force.")
    if ledger is not None and not ledger.is_file():
        raise TextprivError(f"There is no ledger at {ledger}. Name the file that --ledger made.")
    privatizer = settings.build()
    mechanism, texts = privatizer.mechanism, public_texts(context, text_column)
    spent = None
    if ledger is not None:
        spent = Ledger(ledger).totals()
    found = None
    if certificate:
        found = certify(mechanism, progress=console().is_terminal)
    with console().status("looking at words"):
        page = report_page(
            privatizer,
            more=word or [],
            certificate=found,
            ledger=spent,
            public_text=None if texts is None else PublicText.read(texts, mechanism.index),
        )
    write_page(page, output)
    print(f"{output}: {len(page.encode()) / 1e6:.2f} MB")


def playground(
    *,
    index: IndexFolder = None,
    recovery: Recovery = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8765,
    allow_remote: Annotated[
        bool,
        typer.Option("--allow-remote", help="Let other computers in: no password, no encryption."),
    ] = False,
) -> None:
    """Open a local page: type a text and see its private form at once. Ctrl-C ends it.

    Nothing typed is stored or logged.

    [bold]Example:[/bold] textpriv playground
    """
    from textpriv.web.server import serve

    if allow_remote:
        warn("other computers can reach this page, and nothing is encrypted")
    # The page begins with TEM.
    chosen = MechanismOptions(
        index=index, recovery=recovery, epsilon=None, mechanism="tem", prior=None, option=None
    )
    serve(
        chosen.open_index(),
        epsilon=None if recovery is None else chosen.settings()["epsilon"],
        host=host,
        port=port,
        allow_remote=allow_remote,
        on_ready=lambda address: print(f"Playground: {address} (Ctrl-C ends it)", flush=True),
    )
