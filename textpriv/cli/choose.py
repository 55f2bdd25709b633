"""``textpriv choose``: which mechanism and epsilon give a wanted protection. Only public tables and texts are read."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from textpriv.cli.messages import console, print_json, print_table, say
from textpriv.cli.options import Context, Json, Options, Recovery, TextColumn, option, public_texts

if TYPE_CHECKING:
    from textpriv.guarantees.epsilon import Comparison
    from textpriv.index.index import Index


class Wanted(Options):
    """The wanted protection: one of three figures."""

    recovery: Recovery = None
    odds: float | None = option(
        metavar="NUMBER",
        help="Largest odds, to 1, that one output allows between two words, such as 20.",
    )
    keep: float | None = option(metavar="SHARE", help="Share of words that stay, such as 0.5.")
    of: Literal["content", "all"] = option(
        default="content", help="With --recovery: all words, or all but the 250 commonest."
    )
    context: Context = None
    text_column: TextColumn = "text"
    between: tuple[str, str] | None = option(
        metavar="WORD WORD",
        help="With --odds: these two words. Default: as far apart as half of all tokens and their 10th nearest word.",
    )

    def figure(self) -> dict[str, float]:
        """Return the figure that was asked for, if any; refuse options that do not fit it."""
        named = {"recovery": self.recovery, "odds": self.odds, "keep": self.keep}
        given = {name: value for name, value in named.items() if value is not None}
        if len(given) > 1:
            raise typer.BadParameter("give one of --recovery, --odds and --keep")
        if self.context is not None and (self.odds is not None or self.keep is not None):
            raise typer.BadParameter("--context belongs to --recovery")
        if self.between is not None and self.odds is None:
            raise typer.BadParameter("--between belongs to --odds: add --odds 20")
        return given


def choose(
    *,
    indexes: Annotated[
        list[str] | None,
        typer.Option(
            "--index",
            metavar="DIR",
            help="Folder made by 'textpriv index'; repeat to compare several of the same words. Default: built-in English.",
        ),
    ] = None,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="With --recovery: compare this one, too; repeat for several."
        ),
    ] = None,
    wanted: Wanted,
    as_json: Json = False,
) -> None:
    """Choose how to protect texts: by recovery, odds, or the share of words that stay.

    With --recovery (default: 0.1) it compares all mechanisms at the same recovery rate. The last line is the command to run.

    [bold]Example:[/bold] textpriv choose --recovery 0.1
    """
    from textpriv.index.builtin import ENGLISH, open_index

    figure, names = wanted.figure(), indexes or [ENGLISH]
    if wanted.odds is None and wanted.keep is None:
        from textpriv.guarantees.epsilon import choose as compare

        with console().status("comparing mechanisms"):
            found = compare(
                {name: open_index(name) for name in names},
                recovery=wanted.recovery or 0.1,
                of=wanted.of,
                context=public_texts(wanted.context, wanted.text_column),
                mechanisms=mechanism or (),
            )
        _print_comparison(found, as_json, wanted.context is not None)
        return
    if len(names) > 1 or mechanism:
        raise typer.BadParameter("several --index or --mechanism are compared by --recovery")
    _print_epsilon(names[0], open_index(names[0]), wanted, figure, as_json)


def _print_epsilon(
    name: str, index: Index, wanted: Wanted, figure: dict[str, float], as_json: bool
) -> None:
    """Print the epsilon of wanted odds or of a wanted share of words that stay."""
    from textpriv.guarantees.epsilon import epsilon_for
    from textpriv.index.builtin import ENGLISH
    from textpriv.index.tree import Tree
    from textpriv.statement import at_least

    apart = None
    if wanted.between is not None:
        apart = index.distance(*(id_of(index, word) for word in wanted.between))
    with console().status("looking at words"):
        # A bound is rounded down.
        epsilon = float(at_least(epsilon_for(index, **figure, distance=apart), 4))
    where = "" if name == ENGLISH else f" --index {shlex.quote(name)}"
    by = " --mechanism tem" if wanted.keep is not None and not isinstance(index, Tree) else ""
    command = f"textpriv privatize IN OUT{where}{by} --epsilon {epsilon:g}"
    if as_json:
        print_json({"index": name, "command": command, "epsilon": epsilon, **figure})
        return
    print(f"epsilon {epsilon:g}\n\n{command}")


def _print_comparison(found: Comparison, as_json: bool, in_context: bool) -> None:
    """Print mechanisms at the same recovery rate, the one that keeps words closest first."""
    if as_json:
        print_json(found.to_dict())
        return
    rows: list[tuple[str, ...]] = [
        ("mechanism", "index", "prior", "epsilon", "recovered", "stay", "distance")
    ]
    for each in found.candidates:
        shares = (f"{share:.1%}" for share in (each.recovered, each.kept))
        law = each.mechanism, each.index, each.prior, f"{each.epsilon:g}"
        rows.append((*law, *shares, f"{each.distance:.2f}"))
    print_table(rows)
    print(
        "\nrecovered: share of tokens that "
        + (
            "the better of two attackers recovers: the Bayes-optimal one of single words, exactly, and one who reads words "
            "in context, in one draw of your public text."
            if in_context
            else "the Bayes-optimal attacker of single words recovers. A context attacker may recover more (--context)."
        )
    )
    print("distance: mean distance to the output; 1 is that of two unrelated words.")
    for reason in found.left_out:
        say(reason)
    print(f"\n{found.best.command}")


def id_of(index: Index, word: str) -> int:
    """Return the id of a word that a user typed.

    Raises
    ------
    VocabularyError
        If the vocabulary lacks it. The word is not quoted: it may be of a text, and messages are kept in logs.
    """
    from textpriv.errors import VocabularyError

    vocabulary = index.vocabulary
    if word in vocabulary:
        return vocabulary.id(word)
    lower = "It has it in lower case." if word.lower() in vocabulary else "Check the spelling."
    raise VocabularyError(
        f"The vocabulary of {len(vocabulary):,} words lacks this word. {lower} All words outside the vocabulary share one "
        "output distribution."
    )
