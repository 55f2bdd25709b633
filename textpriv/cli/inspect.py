"""``textpriv explain`` and ``textpriv certify``: look at a mechanism, and release nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textpriv.cli.choose import id_of
from textpriv.cli.messages import console, print_json, print_table, warn
from textpriv.cli.options import Json, MechanismOptions, read_text

if TYPE_CHECKING:
    from textpriv.guarantees.certificate import Certificate
    from textpriv.mechanisms.base import Mechanism

_SPAN = "span:"  # before the name of a mechanism of typed spans


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD [WORD]", help="One word, or two words to compare."),
    ] = None,
    *,
    documents: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="In place of words: two text files of equal length."),
    ] = None,
    law: MechanismOptions,
    n: Annotated[int, typer.Option("-n", help="How many outputs to show.", min=1)] = 10,
    as_json: Json = False,
) -> None:
    """Show what a word becomes, or how well two words or two documents can be distinguished.

    [bold]Example:[/bold] textpriv explain movie --epsilon 3
    """
    if documents is not None and (words or str(documents[1]).startswith("-")):
        raise typer.BadParameter("--documents takes two files, and no words with them")
    if documents is None and not 1 <= len(words or ()) <= 2:
        raise typer.BadParameter("give one word, two words, or --documents A B", param_hint="WORD")
    mechanism = law.build()
    if documents is not None:
        _explain_documents(mechanism, documents, as_json)
    elif len(words or ()) == 2:
        _explain_pair(mechanism, words or (), as_json)
    else:
        _explain_word(mechanism, (words or [""])[0], n, as_json)


def _explain_word(mechanism: Mechanism, word: str, n: int, as_json: bool) -> None:
    """Print the likeliest outputs of a word, and its groups in a hierarchy."""
    import numpy as np

    number = id_of(mechanism.index, word)
    stays = float(np.exp(mechanism.log_prob(word)[number]))
    outputs, groups = mechanism.explain(word, n=n), mechanism.groups(word, most=8)
    if as_json:
        names = ("word", "probability", "distance")
        told: dict[str, Any] = {
            "word": word,
            "epsilon": mechanism.epsilon,
            "keep_probability": stays,
            "outputs": [dict(zip(names, each, strict=True)) for each in outputs],
            "statement": mechanism.statement.to_dict(),
        }
        if groups is not None:
            told["groups"] = [each._asdict() for each in groups]
        print_json(told)
        return
    where = ", at the start of a document" if mechanism.reads_context else ""
    print(
        f"{word} stays as it is with probability {stays:.4f} (epsilon {mechanism.epsilon:g}{where})\n"
    )
    rest = max(0.0, 1.0 - sum(probability for _, probability, _ in outputs))
    print_table(
        [
            ("output", "probability", "distance"),
            *((other, f"{chance:.4f}", f"{apart:.3f}") for other, chance, apart in outputs),
            ("all other words", f"{rest:.4f}", ""),
        ]
    )
    if groups:
        from textpriv.web.report import group_in_words

        for depth, group in enumerate(reversed(groups)):
            print(f"{'  ' * depth}{group_in_words(group)}")
    print(f"\n{mechanism.statement.typical_odds}")


def _explain_pair(mechanism: Mechanism, words: Sequence[str], as_json: bool) -> None:
    """Print how far apart two words are, and the odds that one output allows between them."""
    import numpy as np

    from textpriv.statement import odds_in_words

    index = mechanism.index
    ids = [id_of(index, word) for word in words]
    apart = index.distance(*ids)
    rows = index.distances_of(np.array(ids))
    nearer = [int((row < row[other]).sum()) for row, other in zip(rows, ids[::-1], strict=True)]
    loss = mechanism.statement.loss_at(apart)
    if as_json:
        ranks = {"rank_of_second": nearer[0], "rank_of_first": nearer[1]}
        found = {"words": list(words), "distance": apart, "epsilon": mechanism.epsilon}
        print_json({**found, "loss": loss, **ranks})
        return
    first, second = words
    print(f"{first} and {second}: distance {apart:.4g}")
    if apart == 0:
        print(
            "They have the same output distribution: no output distinguishes them, at any epsilon."
        )
        return
    print(
        f"{second} is number {nearer[0]:,} by distance from {first}, and {first} number {nearer[1]:,} from {second}."
    )
    print(
        f"At epsilon {mechanism.epsilon:g} one output distinguishes them by odds of at most {odds_in_words(loss)}."
    )


def _explain_documents(mechanism: Mechanism, files: tuple[Path, Path], as_json: bool) -> None:
    """Print how well the outputs of two texts can be distinguished."""
    from textpriv.guarantees.documents import compare_texts
    from textpriv.privatizer import Privatizer

    found = compare_texts(Privatizer(mechanism), *map(read_text, files))
    if as_json:
        print_json({**found.to_dict(), "statement": mechanism.statement.to_dict()})
    else:
        print("\n".join(found.sentences()))
    warn("computed from these texts: as private as they are")


def certify(
    *,
    law: MechanismOptions,
    audit: Annotated[
        bool,
        typer.Option(
            "--audit",
            help="Attack the mechanism, or --mechanism span:NAME, by draws on small public vocabularies.",
        ),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="With --audit: ten times the draws; minutes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compute what a mechanism really guarantees on these vectors, and whether its claim holds.

    Ends with 0 if the claim holds, 1 if not, and 2 if that was not found out. With --audit, passing is no proof; failing is
    a refutation.

    [bold]Example:[/bold] textpriv certify --epsilon 3
    """
    if audit:
        _audit(law, full, as_json)
        return
    from textpriv.guarantees.certificate import certify as compute

    certificate = compute(law.build(), progress=console().is_terminal)
    if as_json:
        print_json(certificate.to_dict())
    else:
        _print_certificate(certificate)
    if not certificate.holds:
        raise typer.Exit(1)


def _print_certificate(certificate: Certificate) -> None:
    print("THE CLAIM HOLDS" if certificate.holds else "THE CLAIM DOES NOT HOLD")
    rows = [*certificate.rows(), *(("also", each) for each in certificate.observed)]
    print_table([(name, str(value)) for name, value in rows])
    for note in certificate.notes:
        print(f"{note}.")


def _audit(law: MechanismOptions, full: bool, as_json: bool) -> None:
    """Attack a mechanism, and say what the attack could not have seen."""
    from textpriv.errors import MechanismError

    with console().status("attacking"):
        if law.mechanism_name.startswith(_SPAN):
            from textpriv.guarantees.span_audit import audit_span_law
            from textpriv.spans.laws.base import registry

            name = law.mechanism_name.removeprefix(_SPAN)
            if name not in registry:
                known = ", ".join(sorted(registry.get_all()))
                raise typer.BadParameter(f"no span mechanism is named {name!r}. There are {known}")
            done = audit_span_law(name, quick=not full)
        else:
            from textpriv.guarantees.audit import audit as attack

            if not isinstance(law.epsilon, float):
                raise typer.BadParameter("--audit needs a number: add --epsilon 2")
            searched = None if law.index is None else law.open_index()
            sizes: dict[str, Any] = {"quick": not full, "index": searched}
            name = law.registered
            try:
                done = attack(name, epsilon=law.epsilon, **sizes, **law.given)
            except MechanismError as error:  # a wrong setting is no refutation
                raise typer.BadParameter(str(error)) from None
            if all(check.name == "made" for check in done.checks):
                raise typer.BadParameter(done.checks[0].detail)
    if as_json:
        print_json(done.to_dict())
    else:
        print(done)
        print("What this could not have seen:")
        for sentence in done.unseen:
            print(f"- {sentence}")
    if not done.passed:
        raise typer.Exit(1)
