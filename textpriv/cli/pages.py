"""``textpriv report`` and ``textpriv playground``: a page about a mechanism, and a page to try it on."""

from __future__ import annotations

import sys
from pathlib import Path

from textpriv.cli.messages import waiting
from textpriv.cli.options import (
    CONTEXT,
    FORCE,
    INDEX,
    RECOVERY,
    ReleaseOptions,
    option,
    public_texts,
    refuse_lost,
)
from textpriv.errors import TextprivError, needs


def report(
    *,
    release: ReleaseOptions,
    output: Path = option("--output", "-o", default=..., help="HTML file to write."),
    context: str | None = CONTEXT,
    force: bool = FORCE,
) -> None:
    """Write a web page that shows what your settings protect, and what they do to words and names.

    Nothing on the page is computed from private texts.

    **Example:** textpriv report --recovery 0.1 --output report.html
    """
    from textpriv.corpus import files_of
    from textpriv.evaluation.best_attacker import PublicText
    from textpriv.guarantees.certificate import certify
    from textpriv.web.report import report_page, write_page

    settings = release.release()
    files = files_of(settings)
    refuse_lost(output, "--output", [context, *release.read, *files])
    if output.exists() and not force:
        raise TextprivError(f"{output} exists. Name another file, or replace it with --force.")
    privatizer = settings.build(release.opened)
    mechanism, texts = privatizer.mechanism, public_texts(context)
    certificate = certify(mechanism, progress=sys.stderr.isatty())
    with waiting("looking at words"):
        text = None if texts is None else PublicText.read(texts, mechanism.index)
        page = report_page(
            privatizer, certificate=certificate, public_text=text, chosen=release.chosen
        )
    write_page(page, output)
    print(f"{output}: {len(page.encode()) / 1e6:.2f} MB")


def playground(
    *,
    index: str | None = INDEX,
    recovery: float | None = RECOVERY,
    port: int = option(default=8765, help="Port to listen on; 0 takes any free port.", max=65535),
) -> None:
    """Open a local page: type a text and see its private version at once. Ctrl-C ends it.

    It starts at the epsilon of --recovery; for the built-in words that of 0.1. Only this computer can reach the page.
    Nothing typed is stored or logged.

    **Example:** textpriv playground
    """
    needs("uvicorn", "playground")
    needs("starlette", "playground")
    from textpriv.guarantees.epsilon import choose_epsilon
    from textpriv.index.builtin import ENGLISH, open_index
    from textpriv.web.server import serve

    opened, epsilon = open_index(index or ENGLISH), None
    recovery = 0.1 if recovery is None and index is None else recovery
    if recovery is not None:
        epsilon = choose_epsilon(opened, recovery=recovery).epsilon
    serve(opened, epsilon, port)
