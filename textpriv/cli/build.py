"""``textpriv index``: make a folder from public vectors or a public hierarchy, or list public sets of vectors."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from textpriv.cli.messages import print_json, print_table, say, waiting
from textpriv.cli.options import (
    FORCE,
    JSON,
    TEXT_COLUMN,
    OptionGroup,
    flag,
    option,
    public_texts,
    read_pairs,
    refuse_lost,
)
from textpriv.errors import IndexFolderError

if TYPE_CHECKING:
    from textpriv.index.index import Index


class BuildOptions(OptionGroup):
    """Which words are taken, and how they are arranged."""

    limit: int | None = option(help="Take only the first words of SOURCE.", min=1)
    prior: Path | None = option(help="File of public 'word count' lines, for --prior counts.")
    language: str | None = option(metavar="CODE", help="Language of words or sets, such as de.")
    lower: bool = flag("--lower", "Lower-case the words, because texts are lower-cased too.")
    without: Path | None = option(help="Public file of words to leave out, one word a line.")
    function_words: Path | None = option(
        metavar="FILE",
        help="Public list of function words, which are set apart and no content words. Default: that of the language.",
    )
    text: str | None = option(
        metavar="FILE",
        help="Public texts of the language, never the private ones. Their language model is kept in the index, for "
        "--mechanism contextual.",
    )
    text_column: str = TEXT_COLUMN
    axes_from: Path | None = option(
        metavar="FILE",
        help="File of 'textpriv synthesize --model'. Its labels become axes of the metric, at no further loss: private "
        "words then keep more of what tells labels apart. For up to about 10 labels.",
    )
    hierarchy: Literal["file"] | None = option(
        help="Make a tree for --mechanism tree from SOURCE, a file of 'word TAB group/group' lines."
    )
    groups: Any = option(
        parser=read_pairs,
        metavar="NAME=NUMBER,...",
        help="Cluster the words to a tree: its levels and how many groups each has, such as synonyms=5000,kind=500.",
    )

    def build(self, source: str) -> Index:
        """Build the index, or the tree."""
        from textpriv.index.index import Index
        from textpriv.index.tree import Tree
        from textpriv.language import NGrams
        from textpriv.vocabulary.vocabulary import Vocabulary

        if (self.text or self.axes_from) and (self.hierarchy or self.groups):
            raise typer.BadParameter(
                "--text and --axes-from are for vectors: a hierarchy has neither model nor axes"
            )
        if self.hierarchy == "file":
            return Tree.from_file(source, self.language)
        names = "limit", "prior", "language", "function_words"
        with waiting("reading vectors"):
            words = Vocabulary.load(source, **{name: getattr(self, name) for name in names})
        if self.lower:
            words = words.lowered()
        if self.without is not None:
            words = words.without(self.without.read_text("utf-8").split("\n"))
        shown = sys.stderr.isatty()
        if self.groups:
            return Tree.build(words, groups=self.groups, progress=shown)
        model = axes = None
        if (texts := public_texts(self.text, self.text_column)) is not None:
            with waiting("counting the language model"):
                model = NGrams.count(texts, words)
        if self.axes_from is not None:
            from textpriv.synthesis.label_axes import LabelAxes

            with waiting("matching the sums of the model"):
                plain = Index.build(words, k=1, model=model)
                axes = LabelAxes.load(self.axes_from, index=plain).axes_
        return Index.build(words, model=model, axes=axes, progress=shown)


def index(
    source: str | None = typer.Argument(
        None,
        metavar="SOURCE",
        help="GloVe, word2vec or fastText file, installed spaCy package, public set (see --list), or hierarchy.",
    ),
    out: Path | None = typer.Argument(None, metavar="OUT", help="Folder to make."),
    *,
    options: BuildOptions,
    listed: bool = flag("--list", "List public sets of word vectors, with size and licence."),
    force: bool = FORCE,
    as_json: bool = JSON,
) -> None:
    """Make an index folder from public word vectors or a public hierarchy. Do this once for each set.

    **Example:** textpriv index glove.6B.300d.txt.gz glove.idx --limit 100000
    """
    from textpriv.index.folder import META

    if listed:
        _list_sets(options.language)
        return
    if source is None or out is None:
        raise typer.BadParameter("name SOURCE and OUT, or list public sets by --list")
    public = options.prior, options.without, options.function_words, options.text
    refuse_lost(out, "OUT", [source, *public, options.axes_from])
    if out.exists() and not (force and (out / META).is_file()):
        raise IndexFolderError(
            f"{out} exists. Choose another. --force replaces an index folder only."
        )
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
        "axes": [] if built.axes is None else list(built.axes.labels),
        "function_words": len(built.vocabulary.function_words.words),
        "function_words_from": built.vocabulary.function_words.source,
        "seconds": round(time.perf_counter() - started, 3),
    }
    if as_json:
        print_json(done)
        return
    print(f"{out}: {len(built):,} words, {done['seconds']:.1f} s")
    if sum(word != word.lower() for word in built.vocabulary.words) > len(built) // 20:
        say("Many words have capitals, and texts are lower-cased. Add --lower to match them.")
    about_words = built.vocabulary.function_words.sentence
    say(f"{about_words[0].upper()}{about_words[1:]}.")
    if built.axes is not None:
        say(f"Axes of the labels {', '.join(built.axes.labels)}. {built.axes.note}.")
    if built.language is None:
        say("The language is not known. Name it to use its function words, such as --language en.")
    say(f"Next: textpriv explain WORD --index {out} --recovery 0.1")


def _list_sets(language: str | None) -> None:
    from textpriv.vocabulary.public_sets import SETS

    chosen = [each for each in SETS if language in (None, each.language)]
    if not chosen:
        raise typer.BadParameter(
            f"no set is listed for {language!r}. fastText has 157 languages: fasttext:cc.{language}.300"
        )
    rows = [("language", "name", "words", "dimensions", "size", "licence")]
    for each in sorted(chosen, key=lambda each: (each.language or "", each.megabytes)):
        words, size = f"{each.words:,}" if each.words else "", f"{each.megabytes:,} MB"
        name = each.language or "", each.name
        rows.append((*name, words, str(each.dimensions), size, each.licence))
    print_table(rows)
    say("Next: textpriv index NAME OUT --limit 100000")
