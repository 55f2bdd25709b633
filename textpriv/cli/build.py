"""``textpriv index``: make a folder from public vectors or a public hierarchy, or list public sets of vectors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from textpriv.cli.messages import console, print_json, print_table, say
from textpriv.cli.options import (
    Force,
    Json,
    Options,
    flag,
    option,
    read_pairs,
    read_text,
    refuse_lost,
)
from textpriv.errors import IndexFolderError

if TYPE_CHECKING:
    from textpriv.index.index import Index


def _read_groups(given: str | dict[str, int]) -> dict[str, int]:
    if not isinstance(given, str):
        return given
    numbers = read_pairs(given)
    if any(number != int(number) or number < 1 for number in numbers.values()):
        raise typer.BadParameter(f"{given!r} does not give each level a number of groups")
    return {name: int(number) for name, number in numbers.items()}


class BuildOptions(Options):
    """Which words are taken, and how they are arranged."""

    limit: int | None = option(help="Take only the first words of SOURCE.", min=1)
    space: Literal["recommended", "euclidean", "unit", "manhattan"] = option(
        default="recommended", help="How distances are measured; unit: of vectors of length 1."
    )
    projection: int | None = option(
        help="Project the vectors on this many principal directions first.", min=1
    )
    prior: Path | None = option(help="File of public 'word count' lines, kept for --prior counts.")
    language: str | None = option(
        metavar="CODE", help="Language of the words, such as de; with --list, of the sets."
    )
    lower: bool = flag("--lower", "Lower-case the words, as texts are when they are read.")
    without: Path | None = option(help="Public file of words to leave out, one a line.")
    hierarchy: Literal["ward", "average", "complete", "single", "file", "wordnet"] | None = option(
        help="Make a tree for --mechanism tree: by clustering, from a file of 'word TAB group/group' lines, or by WordNet."
    )
    groups: Any = option(
        parser=_read_groups,
        metavar="NAME=NUMBER,...",
        help="Levels of a hierarchy and how many groups each has, such as synonyms=5000,kind=500.",
    )

    def build(self, source: str) -> Index:
        """Build the index, or the tree."""
        from textpriv.index.index import Index
        from textpriv.index.tree import Tree
        from textpriv.vocabulary.vocabulary import Vocabulary

        if self.hierarchy == "file":
            return Tree.from_file(source, self.language)
        terminal = console()
        with terminal.status("reading vectors"):
            words = Vocabulary.load(
                source, limit=self.limit, prior=self.prior, language=self.language
            )
        if self.lower:
            words = words.lowered()
        if self.without is not None:
            words = words.without(read_text(self.without).split("\n"))
        if self.hierarchy == "wordnet":
            return Tree.from_wordnet(words)
        shown: dict[str, Any] = {"progress": terminal.is_terminal}
        if self.hierarchy or self.groups:
            return Tree.build(words, self.hierarchy or "ward", groups=self.groups, **shown)
        return Index.build(words, self.space, projection=self.projection, **shown)


def index(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="GloVe, word2vec or fastText file, installed spaCy package, public set (see --list), or hierarchy.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Argument(metavar="OUT", help="Folder to make.")] = None,
    *,
    options: BuildOptions,
    listed: Annotated[
        bool,
        typer.Option("--list", help="List public sets of word vectors, with size and licence."),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make an index folder from public word vectors or a public hierarchy; once for each set.

    [bold]Example:[/bold] textpriv index glove.6B.300d.txt.gz glove.idx --limit 100000
    """
    if listed:
        _list_sets(options.language, as_json)
        return
    if source is None or out is None:
        raise typer.BadParameter("name SOURCE and OUT, or list public sets by --list")
    _refuse_existing(out, force, source, options.prior, options.without)
    started = time.perf_counter()
    built = options.build(source)
    built.save(out, overwrite=force)
    done = {
        "index": str(out),
        "words": len(built),
        "dimensions": built.vocabulary.vectors.shape[1],
        "language": built.language,
        "levels": list(getattr(built, "names", ())),
        "space": built.space,
        "seconds": round(time.perf_counter() - started, 3),
    }
    if as_json:
        print_json(done)
        return
    print(f"{out}: {len(built):,} words, {done['seconds']:.1f} s")
    _print_advice(built, out)


def _print_advice(built: Index, out: Path) -> None:
    """Say what to know of the words, and what to do next."""
    if sum(word != word.lower() for word in built.vocabulary.words) > len(built) // 20:
        say("Many words have capitals, and texts are lower-cased. Add --lower to match them.")
    levels = getattr(built, "names", None)
    amount = "--epsilon 6"
    if levels is not None:
        odds = ",".join(f"{name}={3 * 10**at}" for at, name in enumerate(levels))
        amount = f"--mechanism tree {f'--levels {odds}' if odds else '--epsilon 3'}"
    say(f"Next: textpriv explain WORD --index {out} {amount}")


def _refuse_existing(out: Path, force: bool, *read: str | Path | None) -> None:
    """Refuse a folder that exists or contains what is read, before the long work."""
    from textpriv.index.folder import META

    refuse_lost(out, "OUT", read)
    if out.exists() and not force:
        raise IndexFolderError(f"{out} exists. Choose another folder, or replace it with --force.")
    if out.exists() and not (out / META).is_file():
        raise IndexFolderError(
            f"{out} is not an index folder and is not replaced. Choose another name."
        )


def _list_sets(language: str | None, as_json: bool) -> None:
    """Print public sets of word vectors."""
    from textpriv.vocabulary.public_sets import SETS, where

    chosen = [each for each in SETS if language in (None, each.language)]
    if not chosen:
        raise typer.BadParameter(
            f"no set is listed for {language!r}. fastText has 157 languages: fasttext:cc.{language}.300"
        )
    if as_json:
        sets = [{**vars(each), "url": each.url, "here": where(each).exists()} for each in chosen]
        print_json({"sets": sets})
        return
    rows = [("language", "name", "words", "dimensions", "size", "licence")]
    for each in sorted(chosen, key=lambda each: (each.language or "", each.megabytes)):
        words, size = f"{each.words:,}" if each.words else "", f"{each.megabytes:,} MB"
        told = each.name, words, str(each.dimensions), size, each.licence
        rows.append((each.language or "", *told))
    print_table(rows)
    say("Next: textpriv index NAME OUT --limit 100000")
