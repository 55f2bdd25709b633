"""``textpriv decode``: guess what private texts said, and how often such guesses are right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textpriv.cli.messages import print_json, say, warn
from textpriv.cli.options import (
    FileFormat,
    Force,
    Json,
    Options,
    ReleaseOptions,
    TextColumn,
    option,
    public_texts,
)
from textpriv.errors import CorpusError

if TYPE_CHECKING:
    from textpriv.evaluation.best_attacker import PublicText
    from textpriv.index.index import Index

_MANY = 0.5


class ReadingOptions(Options):
    """With which public model the words are guessed, and how."""

    model: str | None = option(
        metavar="english|FILE", help="Public language model: general English, or an ARPA file."
    )
    public: Path | None = option(
        help="In place of a model: public texts like the private ones, to count a model in and to try it on."
    )

    def load(self, index: Index, text_column: str) -> tuple[PublicText, str]:
        """Return a model with text to try it on, and where that text is from."""
        from textpriv.evaluation.best_attacker import PublicText, sampled_text
        from textpriv.language.arpa import read_arpa
        from textpriv.language.general_english import general_english

        words = index.vocabulary.words
        if self.public is not None:
            if self.model is not None:
                raise typer.BadParameter("give --model or --public, not both")
            texts = public_texts(str(self.public), text_column)
            return PublicText.read(texts or [], index), "of public text"
        if self.model in (None, "english"):
            model = general_english(words)
        else:
            model = read_arpa(Path(str(self.model)), words)
        return sampled_text(model), "sampled from the language model (no real text)"


def decode(
    source: Annotated[
        str,
        typer.Argument(metavar="IN", help="Output of 'textpriv privatize'; - is standard input."),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="OUT", help="File of the same format; - is standard output."),
    ],
    *,
    release: ReleaseOptions,
    reading: ReadingOptions,
    text_column: TextColumn = "text",
    format: FileFormat = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    r"""Guess what private texts said, for people who read them. The guarantee stays the same.

    Give the settings with which the texts were made private. Every written text begins with \[decoded]. The last lines
    say how often decoding recovers the original.

    [bold]Example:[/bold] textpriv decode private.csv readable.csv --epsilon 3 --text-column review
    """
    from textpriv.corpus import STANDARD_STREAM, Release, check_corpus, files_of, rewrite_file
    from textpriv.evaluation.decoding import Decoder, expected_recovery
    from textpriv.files import is_url

    if as_json and target == STANDARD_STREAM:
        raise typer.BadParameter("--json and the texts cannot share standard output: name a file")
    settings = release.release()
    options = Release(text_column=text_column, format=format, overwrite=force)
    read = [reading.model, reading.public, *files_of(settings.index, settings)]
    plan = check_corpus(source, target, options, read=filter(None, read))
    if plan.is_folder or is_url(target):
        raise CorpusError("decode reads one file, and writes one of this machine. Name a file.")
    privatizer = settings.build()
    tried, origin = reading.load(privatizer.mechanism.index, text_column)
    decoder = Decoder(privatizer, tried.model)
    recovery = expected_recovery(decoder, tried.ids.clip(-1), tried.offsets)  # marks are no words
    documents, columns = rewrite_file(plan, target, decoder.texts)
    statement = decoder.statement.with_columns(columns)
    if as_json:
        shown = {"output": target, "documents": documents}
        measured = {**recovery.to_dict(), "measured_on": f"words {origin}"}
        print_json({**shown, "recovery": measured, "statement": statement.to_dict()})
        return
    where = "standard output" if target == STANDARD_STREAM else target
    say(
        f"{where}: {documents:,} decoded documents. Of {recovery.words:,} words {origin}, {recovery.kept:.1%} stay as "
        f"they are, and decoding recovers {recovery.restored:.1%} (content words: {recovery.content_restored:.1%})."
    )
    if recovery.restored > _MANY:
        warn("with these settings decoding recovers most of the original")
    say(f"\n{statement}")
