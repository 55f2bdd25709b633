"""Commands that look at a mechanism on an index and release nothing: explain, certify, audit, leaks, report, playground.

What they show is computed elsewhere; here it is printed.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from textpriv.cli.choosing import Context, id_of, public_texts
from textpriv.cli.messages import console, print_json, warn
from textpriv.cli.options import (
    SHORT_NAMES,
    Epsilon,
    FileFormat,
    Folder,
    Json,
    MechanismOptions,
    ReleaseOptions,
    index_name,
    read_number,
    read_text,
    refuse_foreign,
    refuse_lost,
)
from textpriv.cli.privatize import SpanOptions
from textpriv.errors import LedgerError, MechanismError

if TYPE_CHECKING:
    from textpriv.guarantees.certificate import Certificate
    from textpriv.mechanisms.base import Group, Mechanism

__all__ = ["audit", "certify", "explain", "leaks", "playground", "report"]

_REPORT_MARK = "Made by textpriv"  # stands in every report
_SPAN = "span:"  # before the name of a law of typed spans


@dataclass(frozen=True, kw_only=True)
class OverFolder(ReleaseOptions):
    """The same settings, with the index as an argument."""

    index: Folder = None


@dataclass(frozen=True, kw_only=True)
class PrivateParts:
    """What a report shows only where it is asked to, and is as private as the texts then."""

    panel: ClassVar[str] = "Private parts"

    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Texts, as for 'textpriv privatize': the page then counts their tokens by class, and is "
            "as private as they are."
        ),
    ] = None
    text_column: Annotated[
        str, typer.Option(help="Field or column of the corpus that holds the text.")
    ] = "text"
    format: Annotated[
        FileFormat | None, typer.Option(help="Format of the corpus, where its name does not say.")
    ] = None
    show_private_sample: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Show the first N raw texts of the corpus beside what is drawn for them.",
            min=0,
        ),
    ] = 0
    ledger: Annotated[Path | None, typer.Option(help="Ledger whose totals are shown.")] = None

    def check(self, output: Path, *read: str | Path | None) -> None:
        """Refuse a page over what is read or is no page, a sample of nothing, and a ledger that is not there."""
        refuse_lost(output, "--output", self.corpus, self.ledger, *read)
        refuse_foreign(output, _REPORT_MARK)
        if self.show_private_sample and self.corpus is None:
            raise typer.BadParameter("--show-private-sample shows texts of --corpus FILE: name it")
        if self.ledger is not None and not self.ledger.is_file():
            raise LedgerError(
                f"there is no ledger at {self.ledger}. Name the file given to --ledger before."
            )


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] WORD",
            help="A word of the vocabulary, perhaps after a folder made by 'textpriv index'; without that, of the built-in "
            "index of English words.",
        ),
    ] = None,
    *,
    documents: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="A B",
            help="In place of a word, two text files of equal length: how well their outputs can be told apart, exactly.",
        ),
    ] = None,
    epsilon: Epsilon = None,
    law: MechanismOptions,
    n: Annotated[int, typer.Option("-n", help="How many outputs to show.", min=1)] = 10,
    as_json: Json = False,
) -> None:
    """Show what a word is likely to become, most likely first. Not for madlib, whose law has no closed form.

    [bold]Example:[/bold] textpriv explain movie --epsilon 3
    """
    import numpy as np

    if documents is not None:
        if words is not None and len(words) > 1:
            raise typer.BadParameter("--documents takes the place of a word: leave it out")
        if str(documents[1]).startswith("-"):  # an option, which is taken for the second file
            raise typer.BadParameter("--documents takes two files", param_hint="--documents")
        name = index_name(words[0] if words else None)
        _explain_documents(law.build(epsilon, name), documents, as_json)
        return
    if not words:
        raise typer.BadParameter("name a word, or two files by --documents", param_hint="WORD")
    if len(words) > 2:
        raise typer.BadParameter("name one word, or a folder and one word", param_hint="WORD")
    folder, word = words if len(words) == 2 else (None, words[0])
    made = law.build(epsilon, index_name(folder))
    number = id_of(made.index.vocabulary, word)
    stays = float(np.exp(made.log_prob(word)[number]))
    outputs, groups = made.explain(word, n=n), made.groups(word, most=8)
    if as_json:
        print_json(
            {
                "word": word,
                "epsilon": made.epsilon,
                "keep_probability": stays,
                **({} if groups is None else {"groups": [each._asdict() for each in groups]}),
                "outputs": [
                    {"word": other, "probability": float(probability), "distance": float(distance)}
                    for other, probability, distance in outputs
                ],
                "statement": made.statement.to_dict(),
            }
        )
        return
    _print_outputs(word, made.epsilon, stays, outputs)
    if groups is not None:
        _print_groups(word, stays, groups)
    print(made.statement.typical_odds)


def _explain_documents(mechanism: Mechanism, files: tuple[Path, Path], as_json: bool) -> None:
    """Print how well the outputs of two texts can be told apart."""
    from textpriv.guarantees.documents import compare_texts
    from textpriv.privatizer import Privatizer

    found = compare_texts(Privatizer(mechanism), *map(read_text, files))
    if as_json:
        print_json({**found.to_dict(), "statement": mechanism.statement.to_dict()})
    else:
        print("\n".join(found.sentences()))
    warn("computed from these texts: as private as they are")


def certify(
    folder: Folder = None,
    *,
    epsilon: Epsilon = None,
    law: MechanismOptions,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse", help="Take the certificate kept with the index, if it is for these settings."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Compute what a mechanism really guarantees on these vectors, and whether its claim holds.

    Ends with 0 if it holds, with 1 if not, and with 2 if that could not be found out. The certificate is kept with the
    index.

    [bold]Example:[/bold] textpriv certify --epsilon 3
    """
    from textpriv.guarantees.certificate import certify as compute

    made = law.build(epsilon, index_name(folder))
    certificate = compute(made, progress=console().is_terminal, reuse=reuse)
    if as_json:
        print_json(certificate.to_dict())
    else:
        _print_certificate(certificate)
    if not certificate.holds:
        raise typer.Exit(1)


def audit(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[MECHANISM]",
            help="Registered name, such as textpriv.TEM.v1, or that of --mechanism elsewhere; span:LAW for a law of typed "
            "spans, such as span:number. All that are installed, if left out.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            "-e",
            parser=read_number,
            metavar="NUMBER",
            help="Asked of the mechanism; 2 if left out.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A setting of the mechanism, such as prior=uniform; may be given several times.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Larger vocabularies and ten times the draws: minutes.")
    ] = False,
    index: Annotated[
        Path | None, typer.Option(help="Also search this index for pairs of words.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack an installed mechanism on small public vocabularies, or a law of spans; say what it could not have seen.

    Ends with 0 if every check passes, with 1 if not, and with 2 if that could not be found out. Passing is no proof; failing
    is a refutation.

    [bold]Example:[/bold] textpriv audit tem --epsilon 4 --option prior=uniform
    """
    from textpriv.guarantees.audit import audit as attack
    from textpriv.guarantees.span_audit import audit_span_law
    from textpriv.index.index import Index

    settings = dict(_setting(given) for given in option or ())
    named = {"--option": settings or None, "--epsilon": epsilon, "--index": index}
    chosen = _audited(name, settings, [flag for flag, given in named.items() if given is not None])
    amount = 2.0 if epsilon is None else epsilon
    searched = None if index is None else Index.load(index)
    reports = {}
    for each in chosen:
        with console().status(f"attacking {each}"):
            if each.startswith(_SPAN):
                reports[each] = audit_span_law(each.removeprefix(_SPAN), quick=not full)
                continue
            try:
                reports[each] = attack(
                    each, epsilon=amount, quick=not full, index=searched, **settings
                )
            except MechanismError as error:  # of what was given: 1 says that something is refuted
                raise typer.BadParameter(str(error)) from None
            checks = reports[each].checks
            unmade = all(check.name == "made" for check in checks)  # over any vocabulary
            if unmade and (settings or epsilon is not None):
                flag = "--option" if settings else "--epsilon"
                raise typer.BadParameter(f"{flag}: {checks[0].detail}")
    if as_json:
        print_json({name: done.to_dict() for name, done in reports.items()})
    else:
        for done in reports.values():
            print(done)
        print("What this could not have seen:")
        for sentence in dict.fromkeys(s for done in reports.values() for s in done.unseen):
            print(f"- {sentence}")
    if not all(done.passed for done in reports.values()):
        raise typer.Exit(1)


def _audited(name: str | None, settings: Mapping[str, Any], given: Sequence[str]) -> list[str]:
    """What is to be attacked, under these names; refuse settings, and options that were given, that mean nothing to it."""
    from textpriv.mechanisms import registry
    from textpriv.spans.laws import registry as span_laws

    laws = [_SPAN + each for each in sorted(span_laws.get_all())]
    installed = sorted(registry.get_all()) + laws
    if name is None:
        if settings:
            raise typer.BadParameter("--option: name the mechanism whose setting it is")
        return installed
    chosen = SHORT_NAMES.get(name, name)
    if chosen not in installed:
        raise typer.BadParameter(
            f"no mechanism is installed under the name {name}; there are {', '.join(installed)}",
            param_hint="MECHANISM",
        )
    if chosen in laws:
        if given:
            raise typer.BadParameter(
                f"{given[0]} is for mechanisms; laws of spans are attacked with settings of their own"
            )
        return [chosen]
    taken = inspect.signature(registry.get(chosen)).parameters
    for setting in settings:
        if setting not in taken:
            raise typer.BadParameter(
                f"--option: {chosen} has no setting {setting}; there are {', '.join(taken)}"
            )
    return [chosen]


def leaks(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN", help="Texts, as for 'textpriv privatize'; - is standard input."
        ),
    ],
    *,
    release: ReleaseOptions,
    spans: SpanOptions,
    text_column: Annotated[str, typer.Option(help="Field or column that holds the text.")] = "text",
    format: Annotated[
        FileFormat | None, typer.Option(help="Format of IN, where its name does not say.")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Also draw every word once and tell how many stay as they are. As private as IN.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Count what a release of these texts would leave visible. The counts are as private as IN.

    [bold]Example:[/bold] textpriv leaks reviews.csv --epsilon 3 --text-column review
    """
    from textpriv.corpus import read_records
    from textpriv.evaluation.leaks import leak_report

    privatizer = release.settings(**spans.settings()).build()
    batches = read_records(source, format, text_column)
    counted = leak_report(
        (text for batch in batches for text in batch.texts), privatizer, compare=compare
    )
    if as_json:
        print_json(counted.to_dict())
    else:
        print(counted.table())
    warn("counted on the raw text: as private as the text itself")


def report(
    *,
    release: OverFolder,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="HTML file to write; one that this command has made is replaced."
        ),
    ],
    spans: SpanOptions,
    private: PrivateParts,
    context: Context = None,
    words: Annotated[
        int, typer.Option(help="Words of the vocabulary that the page can look up.", min=2)
    ] = 600,
    word: Annotated[
        list[str] | None, typer.Option(help="A further public word to look up; may be repeated.")
    ] = None,
    certificate: Annotated[
        bool,
        typer.Option(
            help="Compute the certificate, or take the one kept with the index (about a minute for "
            "40,000 words)."
        ),
    ] = True,
) -> None:
    """Write a page that shows what a mechanism guarantees and what it does to words, for any browser, offline.

    [bold]Example:[/bold] textpriv report --epsilon 3 --output report.html
    """
    from textpriv.corpus import read_records
    from textpriv.corpus.job import files_of
    from textpriv.evaluation.best_attacker import PublicText
    from textpriv.evaluation.leaks import leak_report
    from textpriv.guarantees.certificate import certify as compute
    from textpriv.ledger.ledger import Ledger
    from textpriv.web.report import report_page, write_page

    settings = release.settings(**spans.settings())
    private.check(output, context, spans.policy, *files_of(settings.index, settings))
    privatizer = settings.build()
    samples: list[str] = []

    def texts() -> Iterator[str]:
        for batch in read_records(str(private.corpus), private.format, private.text_column):
            samples.extend(batch.texts[: private.show_private_sample - len(samples)])
            yield from batch.texts

    attacked = None
    public = public_texts(context, private.text_column)
    if public is not None:
        attacked = PublicText.read(public, privatizer.mechanism.index)
    counted = None if private.corpus is None else leak_report(texts(), privatizer)
    computed = None
    if certificate:
        computed = compute(privatizer.mechanism, progress=console().is_terminal, reuse=True)
    spent = None
    if private.ledger is not None:
        with Ledger(private.ledger) as account:
            spent = account.totals()
    with console().status("looking at words"):
        page = report_page(
            privatizer.mechanism,
            words=words,
            more=word or [],
            certificate=computed,
            privatizer=privatizer,
            leaks=counted,
            texts=samples,
            ledger=spent,
            public_text=attacked,
        )
    write_page(page, output, private=counted is not None)
    print(f"{output}: {len(page.encode()) / 1e6:.2f} MB")
    if counted is not None:
        warn(f"made from raw text: {output} is as private as the text itself")


def playground(
    folder: Folder = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8765,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote", help="Let other computers in, without a password and unencrypted."
        ),
    ] = False,
) -> None:
    """Open a local page where a text is typed and its private form is seen at once. Ctrl-C ends it.

    Nothing typed is stored or logged.

    [bold]Example:[/bold] textpriv playground
    """
    from textpriv.index.builtin import open_index
    from textpriv.web.server import serve

    if allow_remote:
        warn("other computers can reach this page, and nothing is encrypted")
    serve(
        open_index(index_name(folder)),
        host=host,
        port=port,
        allow_remote=allow_remote,
        on_ready=lambda address: print(f"Playground: {address} (Ctrl-C ends it)", flush=True),
    )


def _print_outputs(
    word: str, epsilon: float, kept: float, outputs: list[tuple[str, float, float]]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    screen = Console(highlight=False)
    screen.print(
        Text.assemble(
            (word, "bold"), f" stays as it is with probability {kept:.4f} (epsilon {epsilon:g})"
        )
    )
    table = Table()
    table.add_column("output")
    table.add_column("probability", justify="right")
    table.add_column("distance", justify="right")
    for other, probability, distance in outputs:
        name = Text(other, style="bold" if other == word else "")
        table.add_row(name, f"{probability:.4f}", f"{distance:.3f}")
    rest = max(0.0, 1.0 - sum(probability for _, probability, _ in outputs))
    table.add_section()
    table.add_row(Text("all other words", style="dim"), f"{rest:.4f}", "")
    screen.print(table)


def _print_groups(word: str, kept: float, groups: Sequence[Group]) -> None:
    """A word's groups as a tree, from all words to the word."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    if not groups:
        return
    trunk = branch = Tree(Text(groups[-1].in_words(word)))
    for group in reversed(groups[:-1]):
        branch = branch.add(Text(group.in_words(word)))
    branch.add(Text.assemble((word, "bold"), f" itself: {kept:.4f}"))
    Console(highlight=False).print(trunk)


def _print_certificate(certificate: Certificate) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    verdict, style = (
        ("THE CLAIM HOLDS", "bold green")
        if certificate.holds
        else ("THE CLAIM DOES NOT HOLD", "bold red")
    )
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    *rows, seconds = certificate.rows()
    also = (("also", sentence) for sentence in certificate.observed)
    for name, value in (*rows, *also, seconds):
        table.add_row(name, Text(value))
    screen = Console(highlight=False)
    screen.print(Text(verdict, style=style))
    screen.print(table)
    for note in certificate.notes:
        screen.print(Text(f"{note}."), soft_wrap=True)


def _setting(given: str) -> tuple[str, Any]:
    """A setting of a mechanism as it is written on the command line: a number if it reads as one, a word otherwise."""
    name, separator, value = given.partition("=")
    if not (name.isidentifier() and separator):
        raise typer.BadParameter(f"--option takes NAME=VALUE; got {given!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
