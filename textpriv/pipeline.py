"""The spaCy forms: the component ``textpriv``, a strict tokenizer, and a reader of raw documents.

Here lives what spaCy asks of them: configuration, batching, new documents, saving and loading,
worker processes. How a text is read, drawn and rebuilt is the privatizer's; no mathematics lives
here.

The two forms differ in what the pipeline gets to see. The component works on a `Doc` that another
tokenizer has made, so every raw word is already in ``nlp.vocab.strings``, and is saved with the
pipeline. The tokenizer reads the raw text in a vocabulary of its own and hands out private words
only. The reader does the same for texts that lie in files of spaCy, and draws each of them once.

What is saved holds the pipeline's string store. Every raw `Doc` that was made in its vocabulary has
left its words there, so both forms look at the words of the vocabulary before they are saved or
pickled, and refuse where one cannot have been released. They look at words of documents only: a
string that was put into the store by itself, as the labels of components are, is not one of them.
"""

# No `from __future__ import annotations` here: spaCy's config system reads the annotations of
# registered functions, and in its older releases it cannot resolve them from strings.

import functools
import hashlib
import itertools
import multiprocessing.context
import os
import shutil
import tempfile
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import numpy as np
import spacy
import spacy.util
import srsly
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Example
from spacy.training.corpus import walk_corpus
from spacy.vocab import Vocab

from textpriv.errors import CorpusError, IndexFolderError, MechanismError, RawTextError
from textpriv.mechanisms import registry as mechanism_registry
from textpriv.tokenization.policy import CLASSES, MASK, TokenPolicy

# spaCy imports this module in every program that makes a pipeline, once textpriv is installed. What
# is heavy is imported where a private pipeline is made.
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from textpriv.index.index import Index
    from textpriv.privatizer import PrivateTokens, Privatizer

__all__ = [
    "PrivateCorpus",
    "PrivateTokenizer",
    "RawTextWarning",
    "TextprivComponent",
    "make_component",
    "make_corpus",
    "make_tokenizer",
]

TOKENIZER_NAME = "textpriv.PrivateTokenizer.v1"
READER_NAME = "textpriv.PrivateCorpus.v1"
EXTENSION = "textpriv"
MECHANISMS = "textpriv_mechanisms"
DEFAULT_BATCH = 1000
_WORDS_MET = 50_000

_ONE_DRAW = (
    "which texts are equal (a text that is read again under the same key or seed comes out as before, whoever wrote it), "
    "and so whether a text has changed"
)
_DRAWN_ANEW = (
    "A text that is read again is drawn again, and then counts as a further document of its author"
)

_Form = TypeVar("_Form", bound="_Private")

# A config names a mechanism as {"@textpriv_mechanisms": ...}; spaCy looks the registry up as an
# attribute of its own.
setattr(spacy.registry, MECHANISMS, mechanism_registry)

if not Doc.has_extension(EXTENSION):
    Doc.set_extension(EXTENSION, default=None)


class RawTextWarning(UserWarning):
    """A pipeline is being saved that has seen raw words, and saves them too, since its config says so."""


class _Orths(dict[str, int]):
    """Words of one string store and their hashes: documents made of these take half the time."""

    def __init__(self, vocab: Vocab) -> None:
        super().__init__()
        self.vocab = vocab
        self.strings = vocab.strings
        self._table: NDArray[np.uint64] | None = None

    def __missing__(self, word: str) -> int:
        orth: int = self.strings.add(word)
        # Inside a memory zone the string is forgotten when the zone ends, so its hash must not be
        # remembered longer.
        if not getattr(self.vocab, "in_memory_zone", False):
            self[word] = orth
        return orth

    def table(self, words: Sequence[str]) -> "NDArray[np.uint64] | None":
        """Return the hash of each word of the public vocabulary, or None inside a memory zone."""
        if self._table is None and not getattr(self.vocab, "in_memory_zone", False):
            self._table = np.fromiter(map(self.strings.add, words), np.uint64, len(words))
        return self._table


def _remove_folder(folder: str, owner: int) -> None:
    # A forked worker inherits this finalizer, but the folder belongs to the process that made it.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _words_of_rules(language: str) -> frozenset[str]:
    """Words of the language's rules: every pipeline with a tokenizer of spaCy has them."""
    from textpriv.tokenization.spacy_tokenizer import Cutter

    return frozenset(Cutter(language, ()).words_of_rules())


class _Reading(NamedTuple):
    """One raw document, as far as it is needed to write the private one."""

    text: str
    vocab: Vocab
    context: Any = None


class _Private:
    """What the two forms share: settings, index, privatizer, new documents, saving and loading.

    The index is opened when the object is made if its folder is there, so that a wrong parameter is
    told at once and forked workers share the memory. A folder that is missing or unusable is told
    at the first use instead: a pipeline brings its own copy of the index, and the path that it was
    first built from need not exist where it is loaded.
    """

    def __init__(
        self,
        index: str | os.PathLike[str] | None,
        mechanism: Callable[[Any], Any] | None,
        policy: dict[str, str] | None,
        seed: int | None,
        run_key: str | os.PathLike[str] | None,
        save_raw_words: bool,
        language: str,
    ) -> None:
        if mechanism is None:
            raise MechanismError(
                "textpriv needs a mechanism and has no default: how much privacy is enough is your "
                'decision. Add to its config "mechanism": {"@textpriv_mechanisms": '
                '"textpriv.TEM.v1", "epsilon": 6.0} with the epsilon that you choose.'
            )
        if seed is not None and run_key is not None:
            raise MechanismError("Give a seed (for experiments) or a run key, not both.")
        self._mechanism = mechanism
        self._policy = TokenPolicy.from_dict(dict(policy or {}))
        self._seed = seed
        self._run_key = None if run_key is None else Path(run_key)
        self._save_raw_words = save_raw_words
        self._language = language
        self._folder = None if index is None else Path(index)
        self._own_lexemes = 0  # of those in the vocabulary, how many were made here or looked at
        self._has_strangers = False
        self._forget()
        if self._folder is not None and self._folder.is_dir():
            try:
                self._prepare()
            except IndexFolderError:
                self._forget()

    def _forget(self) -> None:
        self._index: Index | None = None
        self._privatizer: Privatizer | None = None
        self._statements: dict[bool, dict[str, Any]] = {}
        self._orths: _Orths | None = None

    def _open(self) -> "Index":
        if self._index is None:
            if self._folder is None:
                raise IndexFolderError(
                    'textpriv has no index: set "index" in its config to an index folder '
                    "(Index.build, Index.save), or load a saved pipeline, which brings its own."
                )
            if not self._folder.is_dir():
                raise IndexFolderError(
                    f"textpriv found no index folder at {self._folder}: correct the path of "
                    '"index" in its config, or load a saved pipeline, which brings its own.'
                )
            from textpriv.index.index import Index

            self._index = Index.load(self._folder)
        return self._index

    def _prepare(self) -> "Privatizer":
        if self._privatizer is None:
            from textpriv.privatizer import Privatizer

            privatizer = Privatizer(
                self._mechanism(self._open()),
                policy=self._policy,
                seed=self._seed,
                run_key=self._secret(),
                language=self._language,
            )
            self._statements = {}
            self._privatizer = privatizer
            self._meet_words()
        return self._privatizer

    def _secret(self) -> bytes | None:
        if self._run_key is None:
            return None
        if not self._run_key.is_file():
            raise MechanismError(
                f"textpriv found no run key at {self._run_key}. Make one, which only you can read: "
                'python -c "from textpriv.run_key import RunKey; '
                f"RunKey.open('{self._run_key}').keep()\". Or leave run_key out (null in the config, also "
                "where a saved pipeline is loaded): then every text is drawn anew."
            )
        from textpriv.run_key import read_run_key

        return read_run_key(self._run_key)

    def _statement(self, once: bool) -> dict[str, Any]:
        """Return what is guaranteed, one object for all documents; ``once`` where equal texts share their draws."""
        found = self._statements.get(once)
        if found is None:
            statement = self._prepare().statement
            statement = (
                statement.extended(not_protected=(_ONE_DRAW,))
                if once
                else statement.extended(notes=(_DRAWN_ANEW,))
            )
            found = self._statements[once] = statement.to_dict()
        return found

    def _own_vocab(self) -> Vocab:
        raise NotImplementedError

    def _meet_words(self) -> None:
        """Enter the commonest public words into the pipeline's vocabulary when the index is opened.

        A lexeme takes several calls into Python, and nearly every word of the vocabulary comes out
        sooner or later: made here, they cost a part of a second once and nothing while documents
        are waiting. All of them are public, so nothing can be told from their presence.
        """
        vocab = self._own_vocab()
        if getattr(vocab, "in_memory_zone", False):
            return
        before = len(vocab)
        orths = self._orths = _Orths(vocab)
        for word in self._open().vocabulary.words[:_WORDS_MET]:
            vocab[orths[word]]
        self._count_words(vocab, before)

    @property
    def privatizer(self) -> "Privatizer":
        """The privatizer behind this form, opened at the first use.

        Raises
        ------
        IndexFolderError
            If there is no index, or its folder is missing or damaged.
        """
        return self._prepare()

    def _key(self, text: str) -> bytes:
        """Return the name of a text among those that are drawn once: what is read of it, hashed."""
        text = text.lower() if self._policy.case == "lower" else text
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def _release(self, batch: Sequence[_Reading], once: bool = False) -> Iterator[Doc]:
        """Draw documents: each anew, or with ``once`` the same way for the same text.

        A seed or a run key implies ``once``: the output of a run must not depend on batches, on the number of processes
        or on how often a text is read. Without them it holds within this object, under a key that nobody has.
        """
        from textpriv.tokenization.batches import EncodedTexts

        once = once or self._seed is not None or self._run_key is not None
        texts = [reading.text for reading in batch]
        privatizer = self._prepare()
        raw = privatizer.read_batch(EncodedTexts.of(texts))
        released = privatizer.release(raw, list(map(self._key, texts)) if once else None)
        statement = self._statement(once)
        for reading, tokens in zip(batch, released, strict=True):
            doc = self._document(reading.vocab, tokens)
            setattr(doc._, EXTENSION, {"statement": statement, "counts": tokens.counts})
            doc._context = reading.context
            yield doc

    def _document(self, vocab: Vocab, tokens: "PrivateTokens") -> Doc:
        orths = self._orths_of(vocab)
        table = orths.table(self._open().vocabulary.words)
        if table is None:
            words: list[Any] = list(map(orths.__getitem__, tokens.words))
        else:
            hashes = table[tokens.outputs]
            if tokens.others:
                hashes[tokens.outputs < 0] = list(map(orths.__getitem__, tokens.others))
            words = hashes.tolist()
        before = len(vocab)
        doc = Doc(vocab, words=words, spaces=tokens.spaces)
        self._count_words(vocab, before)
        return doc

    # Raw words. Whatever makes a Doc in a vocabulary, reading a file of documents for instance, leaves a lexeme of each of
    # its words there, whose strings are saved with the pipeline.

    def _count_words(self, vocab: Vocab, before: int) -> None:
        """Count the lexemes that were made here, so that those of others are noticed."""
        if vocab is self._own_vocab():
            self._own_lexemes += len(vocab) - before

    def _has_unreleased(self) -> bool:
        """Whether a lexeme of the pipeline's vocabulary cannot have been released."""
        words = {lexeme.orth_ for lexeme in self._own_vocab()} - {MASK}
        try:
            public = self._open().vocabulary
        except IndexFolderError:
            return bool(words - _words_of_rules(self._language))  # nothing can have been released
        words = {word for word in words if word not in public}
        if words:
            words -= _words_of_rules(self._language)
        if not words:
            return False
        from textpriv.mechanisms.base import UNKNOWN
        from textpriv.tokenization.encoder import TokenReader

        # What the policy keeps is released too, and a retokenizer joins several private words to one.
        never = {name: "mask" for name in CLASSES if getattr(self._policy, name) == "drop"}
        if self._policy.unknown != "keep":
            never["unknown"] = "mask"
        reader = TokenReader(public.words, replace(self._policy, **never), self._language)
        lowers = self._policy.case == "lower"
        for word in words:
            raw = reader.read(word)
            if UNKNOWN in raw.codes or "masked" in raw.counts or (lowers and word != word.lower()):
                return True
        return False

    def _refuse_raw_words(self, doing: str) -> None:
        """Refuse to go on where somebody else has made lexemes of what was never released.

        Raises
        ------
        RawTextError
            Or a `RawTextWarning` where raw words may be saved.
        """
        vocab = self._own_vocab()
        if len(vocab) == self._own_lexemes:
            return
        self._has_strangers = True
        if self._has_unreleased():
            found = (
                f"{doing}: the vocabulary of the pipeline holds words that were never released. They came with documents "
                "that were read or made in it raw, and would be saved with it."
            )
            if not self._save_raw_words:
                raise RawTextError(
                    f"{found} Make the pipeline anew, with the tokenizer {TOKENIZER_NAME}; read raw files with the reader "
                    f"{READER_NAME}, and make raw documents in a vocabulary of their own. If those words are public, set "
                    "save_raw_words = true in its config."
                )
            warnings.warn(f"{found} Do not pass it on.", RawTextWarning, stacklevel=4)
        self._own_lexemes = len(vocab)

    def _look_before_saving(self) -> None:
        """Refuse to save raw words. Which public words came raw must not show, so all of them are saved."""
        self._refuse_raw_words("Not saved")
        if self._has_strangers and self._privatizer is not None:
            vocab = self._own_vocab()
            orths = self._orths_of(vocab)
            for word in itertools.chain(
                self._open().vocabulary.words, _words_of_rules(self._language)
            ):
                vocab[orths[word]]
            self._own_lexemes = len(vocab)

    def _orths_of(self, vocab: Vocab) -> _Orths:
        if self._orths is None or self._orths.strings is not vocab.strings:
            self._orths = _Orths(vocab)
        return self._orths

    # Saving. The settings are in the pipeline's config; what a config cannot hold is the index. A
    # seed and the keys of a run are never among what is written here.

    def to_disk(self, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()) -> None:
        """Write the index into a folder of the pipeline, so that the pipeline loads anywhere.

        Parameters
        ----------
        path
            The folder to write, made if it is not there. The index goes into ``path/index``.
        exclude
            ``"index"`` leaves the index out; the loaded pipeline then uses the path in its config.
            Other names are ignored.

        Raises
        ------
        IndexFolderError
            If there is no index to write.
        RawTextError
            If the pipeline's vocabulary holds words that were never released; with
            ``save_raw_words`` it is a `RawTextWarning`.
        """
        self._look_before_saving()
        path = Path(path)
        if path.is_file():
            # Another tokenizer, saved here before, is one file.
            path.unlink()
        spacy.util.to_disk(path, {"index": self._write_index}, list(exclude))

    def _write_index(self, folder: Path) -> None:
        index = self._open()
        own = self._folder
        if own is None or not (own.is_dir() and folder.is_dir() and folder.samefile(own)):
            index.save(folder, overwrite=True)

    def from_disk(
        self: _Form, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()
    ) -> _Form:
        """Use the index that `to_disk` wrote.

        Parameters
        ----------
        path
            The folder that was written. Where it holds no index, the path in the config stays in
            use.
        exclude
            ``"index"`` keeps the path in the config in use. Other names are ignored.

        Returns
        -------
        The object itself.

        Raises
        ------
        IndexFolderError
            If the index there is damaged.
        """
        folder = Path(path) / "index"
        if "index" not in exclude and folder.is_dir():
            self._use(folder)
        return self

    def _use(self, folder: Path) -> None:
        self._forget()
        self._folder = folder
        self._prepare()

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Pack the files of the index, as `to_disk` would write them.

        Parameters
        ----------
        exclude
            ``"index"`` leaves the index out. Other names are ignored.

        Returns
        -------
        bytes
            A msgpack mapping. It is about as long as the index is large.

        Raises
        ------
        IndexFolderError
            If there is no index to pack.
        RawTextError
            As for `to_disk`.
        """
        self._look_before_saving()
        writers: dict[str, Callable[[], Any]] = {"index": self._pack_index}
        return spacy.util.to_bytes(writers, list(exclude))

    def _pack_index(self) -> dict[str, bytes]:
        with tempfile.TemporaryDirectory(prefix="textpriv-") as parent:
            folder = Path(parent) / "index"
            self._open().save(folder)
            return {
                file.relative_to(folder).as_posix(): file.read_bytes()
                for file in sorted(folder.rglob("*"))
                if file.is_file()
            }

    def from_bytes(self: _Form, data: bytes, *, exclude: Iterable[str] = ()) -> _Form:
        """Use the index that `to_bytes` packed.

        The index is unpacked into a private temporary folder, since it is memory-mapped; the folder
        goes when the object does.

        Parameters
        ----------
        data
            What `to_bytes` returned.
        exclude
            ``"index"`` keeps the path in the config in use. Other names are ignored.

        Returns
        -------
        The object itself.

        Raises
        ------
        IndexFolderError
            If the packed index is damaged.
        """
        readers: dict[str, Callable[[Any], None]] = {"index": self._unpack_index}
        spacy.util.from_bytes(data, readers, list(exclude))
        return self

    def _unpack_index(self, files: dict[str, bytes]) -> None:
        parent = tempfile.mkdtemp(prefix="textpriv-")
        weakref.finalize(self, _remove_folder, parent, os.getpid())
        folder = Path(parent) / "index"
        folder.mkdir()
        for name, content in files.items():
            relative = PurePosixPath(name)
            if relative.is_absolute() or ".." in relative.parts:
                raise IndexFolderError(
                    "The packed index names a file outside its own folder. It was not written by "
                    "textpriv; do not use it."
                )
            file = folder / relative
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        self._use(folder)

    def __getstate__(self) -> dict[str, Any]:
        # A worker process opens the index folder itself: the memory map is shared, where copied
        # arrays would not be. The privatizer stays behind, and with it the keys of this run and the
        # raw words that it has read. The seed goes along, since a seeded run must not depend on the
        # number of workers.
        #
        # A pickle is a file like another, but for that which starts a worker of this program.
        if multiprocessing.context.get_spawning_popen() is None:
            self._look_before_saving()
        state = self.__dict__.copy()
        state.update(_index=None, _privatizer=None, _statements={}, _orths=None, _own_lexemes=0)
        # Registered functions usually return closures, which only this pickler takes.
        state["_mechanism"] = srsly.pickle_dumps(self._mechanism)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._mechanism = srsly.pickle_loads(state["_mechanism"])


class TextprivComponent(_Private):
    """Replace each document by a new one that holds private words only.

    It reads the text of the raw document, not its tokens, and cuts it by the rules of the language:
    another tokenizer may cut by casing, which the number of tokens would show. Nothing of the raw
    document is carried over but its ``_context`` (what ``as_tuples`` pairs it with). Its words stay
    in ``nlp.vocab.strings`` and with whoever holds the raw document; `PrivateTokenizer` leaves none
    behind. Put it first in the pipeline: what comes before it sees raw words, and its annotations
    are lost.

    A document that is already private is refused: privatizing twice costs words and gives nothing.

    Parameters
    ----------
    nlp
        The pipeline.
    name
        The component's name in it.
    index
        An index folder; None if the index will come from `from_disk` or `from_bytes`.
    mechanism
        Index -> mechanism, such as
        ``textpriv.mechanisms.registry.get("textpriv.TEM.v1")(epsilon=6.0)``.
    policy
        Fields of `TokenPolicy` that differ from its defaults.
    seed
        None: fresh randomness from the operating system for every document. A number makes the
        output a function of seed and text, for experiments only.
    run_key
        Path of a file of 32 secret bytes (`textpriv.run_key`), or None. With it a text is drawn once,
        however often and in however many runs it is read: its randomness follows from the key, the
        settings and the text. Equal texts then come out equal, which the statement names. Only the
        path is saved, never the key.
    save_raw_words
        Whether the pipeline may be saved with words in its vocabulary that were never released.

    Raises
    ------
    MechanismError
        If there is no mechanism, if its parameters are unusable, or if the pipeline's tokenizer is
        private already.
    PolicyError
        If the policy has an unknown field or action.
    """

    def __init__(
        self,
        nlp: Language,
        name: str = "textpriv",
        *,
        index: str | os.PathLike[str] | None = None,
        mechanism: Callable[[Any], Any] | None = None,
        policy: dict[str, str] | None = None,
        seed: int | None = None,
        run_key: str | os.PathLike[str] | None = None,
        save_raw_words: bool = False,
    ) -> None:
        if isinstance(nlp.tokenizer, PrivateTokenizer):
            _refuse_twice()
        self.nlp = nlp
        self.name = name
        super().__init__(index, mechanism, policy, seed, run_key, save_raw_words, nlp.lang or "en")

    def __call__(self, doc: Doc) -> Doc:
        """Return a new private document.

        Parameters
        ----------
        doc
            The raw document; it is not changed.

        Returns
        -------
        Doc
            In the vocabulary of `doc`. ``doc._.textpriv`` holds ``"statement"``, the privacy
            statement (one object for all documents: do not change it), and ``"counts"``, tokens by
            class as released.
        """
        return next(self._release([self._read(doc)]))

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = DEFAULT_BATCH) -> Iterator[Doc]:
        """Yield a new private document for each of a stream, in order.

        Parameters
        ----------
        stream
            Raw documents. Each is let go of as soon as it is read.
        batch_size
            How many are drawn in one call. The output does not depend on it.
        """
        for batch in spacy.util.minibatch(map(self._read, stream), batch_size):
            yield from self._release(batch)

    def _read(self, doc: Doc) -> _Reading:
        if getattr(doc._, EXTENSION) is not None:
            _refuse_twice()
        # Not its tokens: those of another tokenizer may depend on casing.
        return _Reading(doc.text, doc.vocab, doc._context)

    def _own_vocab(self) -> Vocab:
        return self.nlp.vocab

    def get_error_handler(self) -> Callable[..., NoReturn]:
        """Raise, whatever the pipeline's own error handler does.

        A handler that swallows errors makes spaCy pass on the document as it was before the
        component failed, which here is the raw text.
        """
        return spacy.util.raise_error


class PrivateTokenizer(_Private):
    """Make private documents out of raw texts; no raw word enters the pipeline.

    The raw text is read in a vocabulary that belongs to the privatizer and is never saved. The
    pipeline's string store receives the words that are released, and what spaCy derives from them.
    Words that the policy keeps are released.

    Where raw words have come into the pipeline's vocabulary by another way, such as a `DocBin` that
    was read in it, it refuses to go on. A `Doc` given to ``nlp`` in place of a text passes by every
    tokenizer; a pipeline that was made from a config refuses one that is not private.

    Parameters
    ----------
    vocab
        The pipeline's vocabulary.
    index, mechanism, policy, seed, run_key, save_raw_words
        As for `TextprivComponent`.
    language
        Code of the language whose rules split the raw text, by default that of `vocab`.

    Raises
    ------
    MechanismError
        If there is no mechanism or its parameters are unusable.
    PolicyError
        If the policy has an unknown field or action.
    """

    def __init__(
        self,
        vocab: Vocab,
        *,
        index: str | os.PathLike[str] | None = None,
        mechanism: Callable[[Any], Any] | None = None,
        policy: dict[str, str] | None = None,
        seed: int | None = None,
        run_key: str | os.PathLike[str] | None = None,
        save_raw_words: bool = False,
        language: str | None = None,
    ) -> None:
        self.vocab = vocab
        language = language or vocab.lang or "en"
        super().__init__(index, mechanism, policy, seed, run_key, save_raw_words, language)

    def __call__(self, text: str) -> Doc:
        """Return the private document of a raw text.

        Parameters
        ----------
        text
            Any string; an empty one gives an empty document.

        Returns
        -------
        Doc
            With ``doc._.textpriv`` as `TextprivComponent` sets it.
        """
        return next(self._release([self._read(text)]))

    def pipe(self, texts: Iterable[str], batch_size: int = DEFAULT_BATCH) -> Iterator[Doc]:
        """Yield the private document of each text, in order.

        Parameters
        ----------
        texts
            Raw texts.
        batch_size
            How many are drawn in one call. The output does not depend on it.
        """
        for batch in spacy.util.minibatch(map(self._read, texts), batch_size):
            yield from self._release(batch)

    def pipe_once(self, texts: Iterable[str]) -> Iterator[Doc]:
        """Yield the private document of each text, in order, the same for the same text each time.

        Without a seed or a run key, the draws are repeated as long as this object lives and keeps
        its index.

        Parameters
        ----------
        texts
            Raw texts.
        """
        for batch in spacy.util.minibatch(map(self._read, texts), DEFAULT_BATCH):
            yield from self._release(batch, once=True)

    def _release(self, batch: Sequence[_Reading], once: bool = False) -> Iterator[Doc]:
        self._prepare()
        self._refuse_raw_words("Not tokenized")
        return super()._release(batch, once)

    def _read(self, text: str) -> _Reading:
        if not isinstance(text, str):
            raise TypeError(f"The tokenizer takes text; got {type(text).__name__}.")
        return _Reading(text, self.vocab)

    def _own_vocab(self) -> Vocab:
        return self.vocab


class PrivateCorpus:
    """Read raw documents of spaCy's files (`DocBin`) as private examples to train on.

    Raw documents are read in a vocabulary of their own, which goes with them. What comes out has
    private words and the categories (``doc.cats``) of the raw document; other annotations are about
    raw words and are left out. Each text is drawn once (`PrivateTokenizer.pipe_once`): all epochs,
    and every evaluation, see the same private text. Categories are not protected.

    Parameters
    ----------
    path
        A file ``*.spacy``, or a folder with such files.
    limit
        How many documents to read at most; 0 for all.
    """

    def __init__(self, path: str | os.PathLike[str], *, limit: int = 0) -> None:
        self.path = Path(path)
        self.limit = limit

    def __call__(self, nlp: Language) -> Iterator[Example]:
        """Yield the examples; documents without a word are left out.

        Parameters
        ----------
        nlp
            A pipeline with the tokenizer `PrivateTokenizer`.

        Raises
        ------
        MechanismError
            If the pipeline has another tokenizer.
        CorpusError
            If there is no such file, or it is none of spaCy's.
        """
        tokenizer = nlp.tokenizer
        if not isinstance(tokenizer, PrivateTokenizer):
            raise MechanismError(
                f"The reader {READER_NAME} needs a pipeline with the tokenizer {TOKENIZER_NAME}: it has the texts made "
                "private by it."
            )
        for batch in spacy.util.minibatch(self._raw(), DEFAULT_BATCH):
            docs = tokenizer.pipe_once(text for text, _ in batch)
            for doc, (_, categories) in zip(docs, batch, strict=True):
                if len(doc):
                    reference = doc.copy()
                    reference.cats = categories
                    yield Example(doc, reference)

    def _raw(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield texts and categories of the raw documents."""
        if not self.path.exists():
            raise CorpusError(
                f"There is no file or folder {self.path}; correct the path of the corpus."
            )
        documents = (doc for file in walk_corpus(self.path, ".spacy") for doc in _raw_docs(file))
        for doc in itertools.islice(documents, self.limit or None):
            yield doc.text, doc.cats


def _raw_docs(file: Path) -> Iterator[Doc]:
    vocab = Vocab()
    try:
        documents = DocBin().from_disk(file)
    except (OSError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise CorpusError(
            f"{file} cannot be read as a DocBin of spaCy ({type(error).__name__}). Write it with DocBin.to_disk."
        ) from None
    yield from documents.get_docs(vocab)


def _private_doc(nlp: Language, given: Doc | str | bytes) -> Doc:
    """Do what ``Language._ensure_doc`` does, and refuse a raw `Doc` where the tokenizer is private."""
    doc: Doc = type(nlp)._ensure_doc(nlp, given)
    if (
        len(doc)
        and getattr(doc._, EXTENSION) is None
        and isinstance(nlp.tokenizer, PrivateTokenizer)
    ):
        raise RawTextError(
            "This Doc is not known to be private: the pipeline's private tokenizer did not make it, and its words would "
            "come out as they are. Give the pipeline the text (doc.text) instead."
        )
    return doc


def _refuse_twice() -> NoReturn:
    raise MechanismError(
        f"The words are private already. Use either the tokenizer {TOKENIZER_NAME} or one "
        "component textpriv, not both: a second pass changes more words and protects nobody better."
    )


@Language.factory(
    "textpriv",
    assigns=["doc._.textpriv"],
    retokenizes=True,
    default_config={
        "index": None,
        "mechanism": None,
        "policy": {},
        "seed": None,
        "run_key": None,
        "save_raw_words": False,
    },
)
def make_component(
    nlp: Language,
    name: str,
    index: str | None,
    mechanism: Callable[[Any], Any] | None,
    policy: dict[str, str],
    seed: int | None,
    run_key: str | None,
    save_raw_words: bool,
) -> TextprivComponent:
    """Make the component ``textpriv`` from its block of a config.

    Parameters
    ----------
    nlp, name
        Given by spaCy.
    index, mechanism, policy, seed, run_key, save_raw_words
        As for `TextprivComponent`. There is no default mechanism: the user chooses epsilon.
    """
    return TextprivComponent(
        nlp,
        name,
        index=index,
        mechanism=mechanism,
        policy=policy,
        seed=seed,
        run_key=run_key,
        save_raw_words=save_raw_words,
    )


@spacy.registry.tokenizers(TOKENIZER_NAME)
def make_tokenizer(
    index: str | None = None,
    mechanism: Callable[[Any], Any] | None = None,
    policy: dict[str, str] = {},  # noqa: B006 - only read, and filled configs show it
    seed: int | None = None,
    run_key: str | None = None,
    save_raw_words: bool = False,
) -> Callable[[Language], PrivateTokenizer]:
    """Make the strict tokenizer from the block ``[nlp.tokenizer]`` of a config.

    Parameters
    ----------
    index, mechanism, policy, seed, run_key, save_raw_words
        As for `TextprivComponent`. There is no default mechanism: the user chooses epsilon.

    Returns
    -------
    Callable
        nlp -> `PrivateTokenizer`, as spaCy expects of a tokenizer's factory.
    """

    def create(nlp: Language) -> PrivateTokenizer:
        # spaCy asks no tokenizer about a Doc that it is given in place of a text.
        nlp._ensure_doc = functools.partial(_private_doc, nlp)  # type: ignore[method-assign]
        return PrivateTokenizer(
            nlp.vocab,
            index=index,
            mechanism=mechanism,
            policy=policy,
            seed=seed,
            run_key=run_key,
            save_raw_words=save_raw_words,
            language=nlp.lang,
        )

    return create


@spacy.registry.readers(READER_NAME)
def make_corpus(path: str | Path | None, limit: int = 0) -> PrivateCorpus:
    """Make the reader from a block such as ``[corpora.train]`` of a config.

    Parameters
    ----------
    path, limit
        As for `PrivateCorpus`.

    Raises
    ------
    CorpusError
        If there is no path.
    """
    if path is None:
        raise CorpusError(
            f"The reader {READER_NAME} has no path: set it in the config, or for instance with --paths.train FILE."
        )
    return PrivateCorpus(path, limit=limit)
