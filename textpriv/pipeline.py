"""The spaCy forms: the component ``textpriv`` and the tokenizer ``textpriv.PrivateTokenizer.v1``.

Here lives what spaCy asks of them: configuration, batching, new documents, saving and loading,
worker processes. How a text is read, drawn and rebuilt is the privatizer's; no mathematics lives
here.

The two forms differ in what the pipeline gets to see. The component works on a `Doc` that another
tokenizer has made, so every raw word is already in ``nlp.vocab.strings``, and is saved with the
pipeline. The tokenizer reads the raw text in a vocabulary of its own and hands out private words
only.
"""

# No `from __future__ import annotations` here: spaCy's config system reads the annotations of
# registered functions, and in its older releases it cannot resolve them from strings.

import hashlib
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import numpy as np
import spacy
import spacy.util
import srsly
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from textpriv.errors import IndexFolderError, MechanismError
from textpriv.mechanisms import registry as mechanism_registry
from textpriv.policy import TokenPolicy

# spaCy imports this module in every program that makes a pipeline, once textpriv is installed. What
# is heavy is imported where a private pipeline is made.
if TYPE_CHECKING:
    from numpy.typing import NDArray

    from textpriv.index import Index
    from textpriv.privatizer import PrivateTokens, Privatizer

__all__ = [
    "PrivateTokenizer",
    "RawTextWarning",
    "TextprivComponent",
    "make_component",
    "make_tokenizer",
]

TOKENIZER_NAME = "textpriv.PrivateTokenizer.v1"
EXTENSION = "textpriv"
MECHANISMS = "textpriv_mechanisms"
DEFAULT_BATCH = 1000
_WORDS_MET = 50_000

_Form = TypeVar("_Form", bound="_Private")

# A config names a mechanism as {"@textpriv_mechanisms": ...}; spaCy looks the registry up as an
# attribute of its own.
setattr(spacy.registry, MECHANISMS, mechanism_registry)

if not Doc.has_extension(EXTENSION):
    Doc.set_extension(EXTENSION, default=None)


class RawTextWarning(UserWarning):
    """A pipeline is being saved that has seen raw words, and saves them too."""


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
        language: str,
    ) -> None:
        if mechanism is None:
            raise MechanismError(
                "textpriv needs a mechanism and has no default: how much privacy is enough is your "
                'decision. Add to its config "mechanism": {"@textpriv_mechanisms": '
                '"textpriv.TEM.v1", "epsilon": 6.0} with the epsilon that you choose.'
            )
        self._mechanism = mechanism
        self._policy = TokenPolicy.from_dict(dict(policy or {}))
        self._seed = seed
        self._language = language
        self._folder = None if index is None else Path(index)
        self._forget()
        if self._folder is not None and self._folder.is_dir():
            try:
                self._prepare()
            except IndexFolderError:
                self._forget()

    def _forget(self) -> None:
        self._index: Index | None = None
        self._privatizer: Privatizer | None = None
        self._statement: dict[str, Any] = {}
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
            from textpriv.index import Index

            self._index = Index.load(self._folder)
        return self._index

    def _prepare(self) -> "Privatizer":
        if self._privatizer is None:
            from textpriv.privatizer import Privatizer

            privatizer = Privatizer(
                self._mechanism(self._open()),
                policy=self._policy,
                seed=self._seed,
                language=self._language,
            )
            self._statement = privatizer.statement.to_dict()
            self._privatizer = privatizer
            self._meet_words()
        return self._privatizer

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
        orths = self._orths = _Orths(vocab)
        for word in self._open().vocabulary.words[:_WORDS_MET]:
            vocab[orths[word]]

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
        # An experiment must give the same output for every batch size and number of processes, so
        # the seeded stream of a document hangs on its content. Production must not do this: equal
        # texts would come out equal, and a reader could tell that two authors wrote the same.
        # Without a seed every document has fresh randomness.
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def _release(self, batch: Sequence[_Reading]) -> Iterator[Doc]:
        from textpriv.tokens import EncodedTexts

        texts = [reading.text for reading in batch]
        keys = None if self._seed is None else list(map(self._key, texts))
        privatizer = self._prepare()
        raw = privatizer.read_batch(EncodedTexts.of(texts))
        released = privatizer.release(raw, keys)
        for reading, tokens in zip(batch, released, strict=True):
            doc = self._document(reading.vocab, tokens)
            doc._context = reading.context
            yield doc

    def _document(self, vocab: Vocab, tokens: "PrivateTokens") -> Doc:
        orths = self._orths
        if orths is None or orths.strings is not vocab.strings:
            orths = self._orths = _Orths(vocab)
        table = orths.table(self._open().vocabulary.words)
        if table is None:
            words: list[Any] = list(map(orths.__getitem__, tokens.words))
        else:
            hashes = table[tokens.outputs]
            if tokens.others:
                hashes[tokens.outputs < 0] = list(map(orths.__getitem__, tokens.others))
            words = hashes.tolist()
        doc = Doc(vocab, words=words, spaces=tokens.spaces)
        setattr(doc._, EXTENSION, {"statement": self._statement, "counts": tokens.counts})
        return doc

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
        """
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
        """
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
        state = self.__dict__.copy()
        state.update(_index=None, _privatizer=None, _statement={}, _orths=None)
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
    ) -> None:
        if isinstance(nlp.tokenizer, PrivateTokenizer):
            _refuse_twice()
        self.nlp = nlp
        self.name = name
        super().__init__(index, mechanism, policy, seed, nlp.lang or "en")

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

    def to_disk(self, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()) -> None:
        """Write the index into a folder of the pipeline; warn that the pipeline saves raw words.

        See `PrivateTokenizer.to_disk` for the parameters and errors.

        Warns
        -----
        RawTextWarning
            If the pipeline's tokenizer is not a `PrivateTokenizer`.
        """
        self._warn_of_raw_words()
        super().to_disk(path, exclude=exclude)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Pack the files of the index; warn that the pipeline saves raw words.

        See `PrivateTokenizer.to_bytes` for the parameters and errors.

        Warns
        -----
        RawTextWarning
            If the pipeline's tokenizer is not a `PrivateTokenizer`.
        """
        self._warn_of_raw_words()
        return super().to_bytes(exclude=exclude)

    def _warn_of_raw_words(self) -> None:
        if not isinstance(self.nlp.tokenizer, PrivateTokenizer):
            warnings.warn(
                "The raw words of every text that this pipeline has read are in its string store "
                "and are saved with it. Do not pass the saved pipeline on; to keep raw words out, "
                f"use the tokenizer {TOKENIZER_NAME} instead of this component.",
                RawTextWarning,
                stacklevel=3,
            )


class PrivateTokenizer(_Private):
    """Make private documents out of raw texts; no raw word enters the pipeline.

    The raw text is read in a vocabulary that belongs to the privatizer and is never saved. The
    pipeline's string store receives the words that are released, and what spaCy derives from them.
    Words that the policy keeps are released.

    It guards ``nlp(text)`` and ``nlp.pipe(texts)``. A `Doc` given to ``nlp`` in place of a text
    passes by every tokenizer, this one too.

    Parameters
    ----------
    vocab
        The pipeline's vocabulary.
    index, mechanism, policy, seed
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
        language: str | None = None,
    ) -> None:
        self.vocab = vocab
        super().__init__(index, mechanism, policy, seed, language or vocab.lang or "en")

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

    def _read(self, text: str) -> _Reading:
        if not isinstance(text, str):
            raise TypeError(f"The tokenizer takes text; got {type(text).__name__}.")
        return _Reading(text, self.vocab)

    def _own_vocab(self) -> Vocab:
        return self.vocab


def _refuse_twice() -> NoReturn:
    raise MechanismError(
        f"The words are private already. Use either the tokenizer {TOKENIZER_NAME} or one "
        "component textpriv, not both: a second pass changes more words and protects nobody better."
    )


@Language.factory(
    "textpriv",
    assigns=["doc._.textpriv"],
    retokenizes=True,
    default_config={"index": None, "mechanism": None, "policy": {}, "seed": None},
)
def make_component(
    nlp: Language,
    name: str,
    index: str | None,
    mechanism: Callable[[Any], Any] | None,
    policy: dict[str, str],
    seed: int | None,
) -> TextprivComponent:
    """Make the component ``textpriv`` from its block of a config.

    Parameters
    ----------
    nlp, name
        Given by spaCy.
    index, mechanism, policy, seed
        As for `TextprivComponent`. There is no default mechanism: the user chooses epsilon.
    """
    return TextprivComponent(nlp, name, index=index, mechanism=mechanism, policy=policy, seed=seed)


@spacy.registry.tokenizers(TOKENIZER_NAME)
def make_tokenizer(
    index: str | None = None,
    mechanism: Callable[[Any], Any] | None = None,
    policy: dict[str, str] = {},  # noqa: B006 - only read, and filled configs show it
    seed: int | None = None,
) -> Callable[[Language], PrivateTokenizer]:
    """Make the strict tokenizer from the block ``[nlp.tokenizer]`` of a config.

    Parameters
    ----------
    index, mechanism, policy, seed
        As for `TextprivComponent`. There is no default mechanism: the user chooses epsilon.

    Returns
    -------
    Callable
        nlp -> `PrivateTokenizer`, as spaCy expects of a tokenizer's factory.
    """

    def create(nlp: Language) -> PrivateTokenizer:
        return PrivateTokenizer(
            nlp.vocab,
            index=index,
            mechanism=mechanism,
            policy=policy,
            seed=seed,
            language=nlp.lang,
        )

    return create
