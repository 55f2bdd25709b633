"""``textpriv decode``: private files in, files for people out, and how often decoding gives the original back.

The guessing is the matter of ``evaluation.decoding``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textpriv.cli.messages import print_json, say, warn
from textpriv.cli.options import FileFormat, ForceFile, Json, ReleaseOptions
from textpriv.errors import CorpusError, TextprivError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from textpriv.corpus.job import Plan
    from textpriv.evaluation.decoding import Decoder, Recovery
    from textpriv.language.ngrams import NGrams
    from textpriv.privatizer import Privatizer

__all__ = ["decode"]

_ENGLISH = "english"
_MOST_WORDS = 20_000  # of public text that are privatized to see what comes back
_DRAWN_WORDS = 2_000  # of text drawn from the model, where no public text is given
_HELD_OUT = 10  # one document in so many of public text is not counted
_MANY = 0.5


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """By which public model the words are guessed, and how."""

    model: Annotated[
        str | None,
        typer.Option(
            metavar="english|FILE",
            help="Public language model: general English, or an ARPA file. Default: counted in --public, else english.",
        ),
    ] = None
    public: Annotated[
        Path | None,
        typer.Option(
            help="Public texts like the private ones, of the same formats: counted where no model is named, and privatized "
            "to say how often decoding is right."
        ),
    ] = None
    candidates: Annotated[
        int, typer.Option(help="Words that are looked at for each private one.", min=1)
    ] = 32

    def load(
        self, privatizer: Privatizer, text_column: str
    ) -> tuple[NGrams, NDArray[np.int32], NDArray[np.int64]]:
        """Return the model, and public text that it was not counted in."""
        import numpy as np

        from textpriv.language.arpa import read_arpa
        from textpriv.language.general_english import general_english
        from textpriv.language.ngrams import NGrams

        words = privatizer.mechanism.index.vocabulary.words
        ids, offsets = None, None
        if self.public is not None:
            ids, offsets = _read_public(privatizer, self.public, text_column)
        if self.model is None and ids is not None and offsets is not None:
            border = offsets[(len(offsets) - 1) * (_HELD_OUT - 1) // _HELD_OUT]
            counted = offsets[offsets <= border]
            model = NGrams.from_ids(ids[:border], counted, len(words))
            ids, offsets = ids[border:], offsets[offsets >= border] - border
        elif self.model in (None, _ENGLISH):
            model = general_english(words)
        else:
            model = read_arpa(Path(str(self.model)), words)
        if ids is None or offsets is None:
            ids = model.sample(_DRAWN_WORDS, np.random.default_rng(0))[0]
            offsets = np.array([0, len(ids)])
        offsets = offsets[offsets <= max(_MOST_WORDS, offsets[1])]
        return model, ids[: offsets[-1]], offsets


def decode(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="Private texts, as 'textpriv privatize' wrote them; - is standard input.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="File to write, of the same format; - is standard output."
        ),
    ],
    *,
    release: ReleaseOptions,
    reading: ReadingOptions,
    text_column: Annotated[
        str, typer.Option(help="Field or column that holds the text; others stay as they are.")
    ] = "text",
    format: Annotated[
        FileFormat | None, typer.Option(help="Format of IN and OUT, where their names do not say.")
    ] = None,
    force: ForceFile = False,
    as_json: Json = False,
) -> None:
    r"""Guess what private texts said, for people who read them. Post-processing: every guarantee stands.

    Takes the settings by which the texts were made private. Every text that is written begins with \[decoded]. The last
    lines say how often decoding gives the original back, computed on public text, and repeat what is guaranteed.

    [bold]Example:[/bold] textpriv decode private.csv readable.csv --epsilon 3 --text-column review
    """
    from textpriv.corpus import STANDARD_STREAM
    from textpriv.corpus.job import check_files, files_of
    from textpriv.evaluation.decoding import Decoder, expected_recovery
    from textpriv.privatizer import Privatizer
    from textpriv.tokenization.policy import TokenPolicy

    if as_json and target == STANDARD_STREAM:
        raise typer.BadParameter(
            "with --json the texts cannot go to standard output, too: name a file"
        )
    plan = _plan(source, target, format, text_column)
    settings = release.settings()
    read = [reading.model, reading.public, *files_of(settings.index, settings)]
    check_files(plan, target, read=filter(None, read), overwrite=force)
    mechanism = release.law.build(release.epsilon, release.index_name)
    policy = TokenPolicy(**vars(release.policy))
    privatizer = Privatizer(mechanism, policy, language=release.language)
    model, ids, offsets = reading.load(privatizer, text_column)
    decoder = Decoder(privatizer, model, count=reading.candidates)
    recovery = expected_recovery(decoder, ids, offsets)
    documents = _write(plan, target, decoder)
    _report(target, documents, recovery, decoder, as_json)


def _report(
    target: str, documents: int, recovery: Recovery, decoder: Decoder, as_json: bool
) -> None:
    statement = decoder.statement
    if as_json:
        print_json(
            {
                "output": target,
                "documents": documents,
                "recovery": recovery.to_dict(),
                "statement": statement.to_dict(),
            }
        )
        return
    where = "standard output" if target == "-" else target
    say(f"{where}: {documents:,} decoded documents. {recovery}")
    if recovery.restored > _MANY:
        warn("with these settings decoding gives most of the original back")
    say("\n" + statement.paragraph())


def _plan(source: str, target: str, format: str | None, text_column: str) -> Plan:
    """How the files are read and written, with both ends checked."""
    from textpriv.corpus.job import Plan
    from textpriv.stores import is_url

    if is_url(target):
        raise CorpusError(
            "decoded texts are written to files of this machine: name one, and put it in the store from there."
        )
    plan = Plan.of(source, target, format, text_columns=(text_column,))
    if plan.is_folder:
        raise CorpusError(f"{source} is a folder: name one of its files.")
    return plan


def _write(plan: Plan, target: str, decoder: Decoder) -> int:
    """Decode all records; a file appears when all is written."""
    from textpriv.corpus.formats import write_file
    from textpriv.corpus.records import Batch, compressed, is_stream, written_stream
    from textpriv.files import atomic_write

    documents, reader = 0, plan.reader(0)

    def decoded() -> Iterator[tuple[Batch, list[list[str]]]]:
        nonlocal documents
        for batch in reader:
            yield batch, [decoder.texts(batch.texts)]
            documents += len(batch.texts)

    opened = written_stream(target) if is_stream(target) else atomic_write(Path(target))
    with opened as file, compressed(file, plan.compression) as out:
        write_file(reader, out, plan.rule, decoded())
    return documents


def _read_public(
    privatizer: Privatizer, path: Path, text_column: str
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Word ids and offsets of public texts."""
    import numpy as np

    from textpriv.corpus.formats import read_records
    from textpriv.mechanisms.base import UNKNOWN

    parts: list[Any] = []
    lengths: list[Any] = []
    for batch in read_records(path, None, text_column):
        read = privatizer.read_batch(batch.texts)
        words = np.flatnonzero(read.codes >= UNKNOWN)
        parts.append(read.codes[words])
        lengths.append(np.diff(np.searchsorted(words, read.offsets)))
    if sum(map(len, lengths)) < 2:
        raise TextprivError(f"{path} holds fewer than two texts; give more public text.")
    return np.concatenate(parts), np.append(0, np.cumsum(np.concatenate(lengths)))
