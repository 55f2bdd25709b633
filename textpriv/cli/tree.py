"""The command that makes a tree of words; how trees are found stands in the library."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from textpriv.cli.messages import console, print_json, say
from textpriv.cli.options import (
    Force,
    Json,
    Limit,
    Metric,
    NewFolder,
    VectorLanguage,
    read_number,
    read_pairs,
    refuse_existing,
)

__all__ = ["tree"]


def _read_groups(given: str | dict[str, int]) -> dict[str, int]:
    if not isinstance(given, str):
        return given
    groups = {}
    for name, number in read_pairs(given).items():
        count = read_number(number)
        if count != int(count) or count < 1:
            raise typer.BadParameter(f"{number!r} is no number of groups")
        groups[name] = int(count)
    return groups


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """Which words are taken, and how their tree is found."""

    method: Annotated[
        Literal["auto", "ward", "average", "complete", "single", "kmeans", "file", "wordnet"],
        typer.Option(
            help="How: by clustering (auto is ward up to 50,000 words, else kmeans; single also keeps the promise in the "
            "vectors' own distance), from a file of 'word TAB group/group' lines, the widest group first, or by the "
            "hypernyms of WordNet."
        ),
    ] = "auto"
    heights: Annotated[
        Literal["distance", "rank", "levels"] | None,
        typer.Option(
            help="What heights are: distances (the default), logarithms of group sizes, or the levels of "
            "--groups (their default)."
        ),
    ] = None
    groups: Annotated[
        Any,
        typer.Option(
            parser=_read_groups,
            metavar="NAME=NUMBER,...",
            help="Names of levels and how many groups each has at most, such as synonyms=5000,kind=500.",
        ),
    ] = None
    metric: Metric = "unit_euclidean"
    dimensions: Annotated[
        int | None, typer.Option(help="Cluster in so many principal directions only.", min=1)
    ] = None
    limit: Limit = None
    prior: Annotated[
        Path | None,
        typer.Option(
            help="File of 'word count' lines from public text, kept in the tree for --prior counts."
        ),
    ] = None


def tree(
    source: Annotated[
        str,
        typer.Argument(
            help="Word vectors, as for 'textpriv index', or with --method file a hierarchy."
        ),
    ],
    out: NewFolder,
    options: TreeOptions,
    language: VectorLanguage = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a folder with a public tree of words, which --mechanism tree takes where others take an index.

    [bold]Example:[/bold] textpriv tree glove.6B.300d.txt.gz glove.tree --groups synonyms=8000,kind=800
    """
    from textpriv.index.tree import Tree
    from textpriv.vocabulary.vocabulary import Vocabulary

    refuse_existing(out, force, source, options.prior)
    started = time.perf_counter()
    terminal = console()
    if options.method == "file":
        made = Tree.from_file(source, language)
    else:
        with terminal.status("reading vectors"):
            vocabulary = Vocabulary.load(
                source, limit=options.limit, prior=options.prior, language=language
            )
        if options.method == "wordnet":
            made = Tree.from_wordnet(vocabulary)
        else:
            made = Tree.build(
                vocabulary,
                options.method,
                heights=options.heights or ("levels" if options.groups else "distance"),
                groups=options.groups,
                metric=options.metric,
                dimensions=options.dimensions,
                progress=terminal.is_terminal,
            )
    made.save(out, overwrite=force)
    looked, shares = made.separated
    done = {
        "tree": str(out),
        "words": len(made),
        "source": made.source,
        "heights": made.heights.tolist(),
        "levels": list(made.names),
        "looked_at": looked,
        "neighbours_outside": list(shares),
        "seconds": round(time.perf_counter() - started, 3),
    }
    if as_json:
        print_json(done)
        return
    print(
        f"{out}: {len(made):,} words, {len(made.heights)} heights, {made.source}, {done['seconds']:.1f} s"
    )
    for name, share in zip(made.names, shares, strict=False):
        print(
            f"{share:.0%} of the ten nearest words lie outside a word's group of the level {name}"
        )
    if made.names:
        odds = [f"{name}={3 * 10**at}" for at, name in enumerate(made.names)]
        say(f"Next: textpriv explain {out} WORD --mechanism tree --levels {','.join(odds)}")
    else:
        say(f"Next: textpriv explain {out} WORD --mechanism tree --epsilon 3")
