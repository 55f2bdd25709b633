"""Commands that help to choose an amount of privacy: a law or an epsilon by what it means, and how far apart two words are.

All look at public tables and public text only. What is computed stands in ``guarantees.epsilon``, ``guarantees.protection``
and ``amounts``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from textpriv.bounds import at_least, at_most, odds_in_words
from textpriv.cli.messages import console, print_json, say
from textpriv.cli.options import Epsilon, IndexFolder, Json, index_name, read_number
from textpriv.errors import VocabularyError

if TYPE_CHECKING:
    from textpriv.guarantees.epsilon import Choice
    from textpriv.index.index import Index
    from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["Context", "choose", "distance", "epsilon", "id_of", "public_texts"]

_Of = Annotated[
    Literal["content", "all"],
    typer.Option(
        help="With --recovery: all words, or all but the 250 commonest, of an attacker who is told."
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Public texts of the kind of yours, as for 'textpriv privatize', in which an attacker is "
        "tried, too, who reads words in context. Never the private texts themselves.",
    ),
]
_TextColumn = Annotated[str, typer.Option(help="Field or column that holds the text of --context.")]

_DISTANCES = ("half", "nine-tenths")


def _read_distance(given: str | float) -> str | float:
    return given if given in _DISTANCES else read_number(given)


@dataclass(frozen=True, kw_only=True)
class WantedOptions:
    """What the epsilon should mean: one of four figures."""

    keep: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Share of running words that stay as they are, such as 0.5."
        ),
    ] = None
    odds: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Largest odds, to 1, between two words at a distance, such as 20.",
        ),
    ] = None
    distinct: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="How many different words are drawn for one word in --draws draws.",
        ),
    ] = None
    recovery: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Largest share of running words that the best attacker of lone words may guess, such as 0.1; with "
            "--context also a reader of words in context.",
        ),
    ] = None
    of: _Of = "content"
    context: Context = None
    text_column: _TextColumn = "text"
    distance: Annotated[
        Any,
        typer.Option(
            parser=_read_distance,
            metavar="NUMBER|half|nine-tenths",
            help="With --odds: the distance of the two words. Half (the default) and nine-tenths stand for that "
            "within which so many running words have their 10th nearest.",
        ),
    ] = None
    between: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="WORD WORD", help="With --odds, in place of --distance: two public words."
        ),
    ] = None
    draws: Annotated[int, typer.Option(help="With --distinct.", min=2)] = 1000

    @property
    def named(self) -> dict[str, Any]:
        """The figures that were asked for."""
        names = ("keep", "odds", "distinct", "recovery")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def check(self) -> None:
        """Refuse options that mean nothing together."""
        if len(self.named) > 1:
            raise typer.BadParameter(
                "say what is wanted by one of --keep, --odds, --distinct and --recovery"
            )
        if self.context is not None and self.recovery is None:
            raise typer.BadParameter("--context belongs to --recovery: add --recovery 0.1")
        if self.odds is None and (self.distance is not None or self.between is not None):
            raise typer.BadParameter("--distance and --between belong to --odds: add --odds 20")
        if self.distance is not None and self.between is not None:
            raise typer.BadParameter("give the distance by --distance or by --between, not by both")

    def apart(self, index: Index) -> float | None:
        """The distance that the odds are about; None where none is."""
        if self.odds is None:
            return None
        if self.between is not None:
            ids = [
                id_of(index.vocabulary, word, f"The {which} word of --between")
                for word, which in zip(self.between, ("first", "second"), strict=True)
            ]
            return index.distance(*ids)
        if self.distance in (None, "half"):
            return index.reference_distance
        return index.reference_distance_90 if self.distance == "nine-tenths" else self.distance


@dataclass(frozen=True, kw_only=True)
class TemOptions:
    """The settings of TEM on which --keep, --distinct and --recovery depend."""

    prior: Annotated[
        str,
        typer.Option(
            help="How often each word is drawn: zipf, uniform, counts, or a file of 'word count' lines."
        ),
    ] = "zipf"
    gamma: Annotated[
        float | None, typer.Option(help="Distance beyond which all words count alike.")
    ] = None


def epsilon(
    *, index: IndexFolder = None, wanted: WantedOptions, law: TemOptions, as_json: Json = False
) -> None:
    """Choose an epsilon by what it means. With no figure given: what three of them mean.

    --keep and --distinct are about TEM, --recovery also about trees; what is found by --odds holds for every mechanism but a
    tree's levels.

    [bold]Example:[/bold] textpriv epsilon --keep 0.5
    """
    from textpriv.amounts import amounts, amounts_table, record_of
    from textpriv.guarantees.epsilon import choose_epsilon
    from textpriv.index.builtin import open_index

    wanted.check()
    name = index_name(index)
    opened = open_index(name)
    if not wanted.named:
        with console().status("looking at words"):
            three = amounts(opened)
        if as_json:
            print_json({"index": name, **record_of(three)})
        else:
            print(f"Three amounts on {name}, for TEM with a Zipf prior:\n\n{amounts_table(three)}")
            say("Next: textpriv choose --recovery SHARE, or textpriv epsilon --keep SHARE")
        return
    apart = wanted.apart(opened)
    with console().status("looking at words"):
        found = choose_epsilon(
            opened,
            **wanted.named,
            of=wanted.of,
            context=public_texts(wanted.context, wanted.text_column),
            distance=apart,
            draws=wanted.draws,
            prior=law.prior,
            gamma=law.gamma,
        )
    if as_json:
        print_json({"index": name, "distance": apart, **vars(found)})
        return
    _print_choice(found, apart, wanted, opened)


def _print_choice(found: Choice, apart: float | None, wanted: WantedOptions, index: Index) -> None:
    # Rounded down, so that what was asked for as a bound stays one.
    short = at_least(found.epsilon, 4)
    print(f"epsilon {short}")
    if found.target == "odds":
        assert apart is not None
        print(
            f"Two words at distance {apart:.4g} are told apart by odds of at most {found.wanted:g} to 1, by one output."
        )
    elif found.target == "recovery":
        print(_guessed(found.value, wanted, found.standard_error))
    else:
        meaning = {
            "keep": f"Words stay as they are with probability {found.value:.4g}",
            "distinct": f"One word becomes {found.value:.4g} different ones in {wanted.draws:,} draws",
        }[found.target]
        error = f", give or take {found.standard_error:.1g}" if found.standard_error else ""
        print(f"{meaning}, averaged over running words ({found.words:,} looked at{error}).")
    for share, distance in (
        ("half", index.reference_distance),
        ("nine tenths", index.reference_distance_90),
    ):
        odds = odds_in_words(float(short) * distance)
        print(f"Between a word and its 10th nearest, for {share} of running words: {odds}.")


def _guessed(share: float, wanted: WantedOptions, error: float) -> str:
    """What attackers get back, in words."""
    words = f"{at_most(100 * share, 3)} % of running {'content ' * (wanted.of == 'content')}words"
    if error:
        return f"A reader of words in context guesses {words} of public text, give or take {error:.1g}; a better one, more."
    alone = f"The best attacker of lone words guesses {words}, exactly"
    if wanted.context is None:
        return f"{alone}; in context more may be guessed (--context)."
    return f"{alone}; the reader of words in context that was tried, no more."


def public_texts(source: str | None, text_column: str) -> Iterator[str] | None:
    """The public texts of --context."""
    if source is None:
        return None
    from textpriv.corpus import read_records

    batches = read_records(source, None, text_column)
    return (text for batch in batches for text in batch.texts)


def choose(
    indexes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR]...",
            help="Folders made by 'textpriv index' or 'textpriv tree', of the same words; builtin:en is the built-in index "
            "of English words, which is taken without any.",
        ),
    ] = None,
    *,
    recovery: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="What must not be possible: that more than this share of running words is guessed, such as 0.1.",
        ),
    ],
    of: _Of = "content",
    context: Context = None,
    text_column: _TextColumn = "text",
    as_json: Json = False,
) -> None:
    """Choose a law by what must not be possible: all that there are, at equal protection, by how near the words stay.

    [bold]Example:[/bold] textpriv choose --recovery 0.1
    """
    from textpriv.guarantees.protection import choose as compare
    from textpriv.index.builtin import open_index

    names = indexes or [index_name(None)]
    with console().status("looking at words"):
        found = compare(
            {name: open_index(name) for name in names},
            recovery=recovery,
            of=of,
            context=public_texts(context, text_column),
        )
    if as_json:
        print_json(found.to_dict())
        return
    heads = "mechanism", "index", "prior", "epsilon", "guessed", "stay", "stay near", "distance"
    rows: list[tuple[str, ...]] = [heads]
    for each in found.candidates:
        shares = (f"{share:.1%}" for share in (each.recovered, each.kept, each.near))
        law = each.mechanism, each.index, each.prior, f"{each.epsilon:g}"
        rows.append((*law, *shares, f"{each.distance:.2f}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    guesser = (
        "by the best attacker of lone words, exactly; in context more may be guessed (--context)"
        if context is None
        else "by the better of two: the best attacker of lone words, exactly, and a reader of words in context, from below"
    )
    print(
        f"Guessed: of running words that count, {guesser}. Stay near: come out as themselves or one of their 10 nearest. "
        "Distance: of what comes out, where 1 is that of unrelated words."
    )
    for reason in found.left_out:
        say(reason)
    print(f"\n{found.best.command}")


def distance(
    first: Annotated[str, typer.Argument(metavar="A", help="A public word.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    *,
    index: IndexFolder = None,
    epsilon: Epsilon = None,
    as_json: Json = False,
) -> None:
    """Show how far apart two words are, and with an epsilon by which odds one output tells them apart.

    [bold]Example:[/bold] textpriv distance asthma diabetes --epsilon 3
    """
    import numpy as np

    from textpriv.index.builtin import open_index
    from textpriv.mechanisms.tem import TEM

    if isinstance(epsilon, dict):
        raise typer.BadParameter("a distance is for a number; for levels: textpriv explain")
    opened = open_index(index_name(index))
    ids = [id_of(opened.vocabulary, word, name) for word, name in ((first, "A"), (second, "B"))]
    apart = opened.distance(*ids)
    rows = opened.distances_of(np.array(ids))
    # The word itself is the one that is nearer than the nearest.
    ranks = [int((row < row[other]).sum()) for row, other in zip(rows, ids[::-1], strict=True)]
    loss = None if epsilon is None else TEM(opened, epsilon=epsilon).statement.loss_at(apart)
    if as_json:
        print_json(
            {
                "words": [first, second],
                "distance": apart,
                "metric": opened.space,
                "rank_of_second": ranks[0],
                "rank_of_first": ranks[1],
                "reference_distance": opened.reference_distance,
                "reference_distance_90": opened.reference_distance_90,
                **({} if loss is None else {"epsilon": epsilon, "loss": loss}),
            }
        )
        return
    print(f"{first} and {second}: distance {apart:.4g} ({opened.space})")
    if all(ranks):
        print(
            f"Of all words {second} is number {ranks[0]:,} by nearness to {first}, and {first} number {ranks[1]:,} by "
            f"nearness to {second}."
        )
    else:
        print("They share one law: nothing tells them apart, at any epsilon.")
    print(
        f"Half of all running words have their 10th nearest within {at_most(opened.reference_distance, 3)}, nine tenths "
        f"within {at_most(opened.reference_distance_90, 3)}."
    )
    if loss is not None:
        print(
            f"At epsilon {epsilon:g} one output tells them apart by odds of at most {odds_in_words(loss)}."
        )
    elif apart > 0:
        short = at_least(math.log(20) / apart, 4)
        print(f"Odds of at most 20 to 1 between them: epsilon {short}")


def id_of(vocabulary: Vocabulary, word: str, name: str = "WORD") -> int:
    """Return the id of a word that a user typed as the argument of a name.

    Raises
    ------
    VocabularyError
        Where the vocabulary lacks it. The word is not repeated: it may be of a text, and messages are kept in logs.
    """
    if word in vocabulary:
        return vocabulary.id(word)
    remedy = (
        "It is there in lower case."
        if word.lower() in vocabulary
        else "Check its spelling, or take a commoner word: all words outside the vocabulary share one law."
    )
    raise VocabularyError(
        f"{name} is not among the {len(vocabulary):,} words of this index. {remedy}"
    )
