"""Saving and loading of the private forms: to a folder, to bytes, and to other processes.

The settings are in the pipeline's config; the index is written beside it. A seed and run keys are never written here.

A saved pipeline holds its string store. Every raw `Doc` that was made in its vocabulary has left its words there, so a form
looks at the words of the vocabulary first, and refuses where one cannot have been released.
"""

from __future__ import annotations

import multiprocessing.context
import os
import shutil
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import spacy.util
import srsly

from textpriv.errors import IndexFolderError, RawTextError
from textpriv.pipeline.form import PrivateForm
from textpriv.pipeline.options import READER_NAME, TOKENIZER_NAME
from textpriv.tokenization.policy import CLASSES, MASK

__all__ = ["RawTextWarning", "SavableForm"]

_Form = TypeVar("_Form", bound="SavableForm")


class RawTextWarning(UserWarning):
    """A pipeline is saved with the raw words it has seen, as its config asks."""


class SavableForm(PrivateForm):
    """A form that writes its index beside the pipeline, and refuses to be saved with raw words."""

    def _refuse_raw_words(self, doing: str) -> None:
        """Refuse to go on if others have made lexemes of words that were never released."""
        vocab = self._own_vocab()
        if len(vocab) == self._known_words:
            return
        if self._has_unreleased({lexeme.orth_ for lexeme in vocab} - {MASK}):
            message = (
                f"{doing}: the vocabulary of the pipeline holds words that were never released. They came with documents "
                "that were read or made in it raw, and would be saved with it."
            )
            if not self.options.save_raw_words:
                raise RawTextError(
                    f"{message} Make another pipeline, with the tokenizer {TOKENIZER_NAME}; read raw files with the reader "
                    f"{READER_NAME}, and make raw documents in a vocabulary of their own. If those words are public, set "
                    "save_raw_words = true in its config."
                )
            warnings.warn(f"{message} Do not pass it on.", RawTextWarning, stacklevel=4)
        self._known_words = len(vocab)

    def _has_unreleased(self, words: set[str]) -> bool:
        """Whether one of some words cannot have been released."""
        from textpriv.mechanisms.base import UNKNOWN
        from textpriv.tokenization.encoder import TextEncoder, words_of_rules

        try:
            public = self._open().vocabulary
        except IndexFolderError:
            public = None
        words = {word for word in words if public is None or word not in public}
        words -= words_of_rules(self._language)
        if not words or public is None:
            return bool(words)
        # What the policy keeps is released too, and a retokenizer joins several private words to one.
        never = {name: "mask" for name in CLASSES if getattr(self._policy, name) == "drop"}
        if self._policy.unknown != "keep":
            never["unknown"] = "mask"
        read = TextEncoder(public.words, replace(self._policy, **never), self._language).encode(
            list(words)
        )
        is_cased = self._policy.case == "lower" and any(word != word.lower() for word in words)
        return is_cased or UNKNOWN in read.codes or "masked" in read.counts

    def _look_before_saving(self) -> None:
        """Refuse to save raw words, and save all public words: which of them came raw must not show."""
        self._refuse_raw_words("Not saved")
        if self._privatizer is not None:
            vocab = self._own_vocab()
            for word in self._open().vocabulary.words:
                vocab[word]
            self._known_words = len(vocab)

    def _written_before(self) -> list[str]:
        """The files that spaCy writes before those of this form."""
        return []

    def to_disk(self, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()) -> None:
        """Write the index into a folder of the pipeline, so that the pipeline loads anywhere.

        Parameters
        ----------
        path
            The folder to write, made if it is not there. The index goes into ``path/index``.
        exclude
            ``"index"`` leaves the index out; the loaded pipeline then uses the path in its config.

        Raises
        ------
        IndexFolderError
            If there is no index to write.
        RawTextError
            If the pipeline's vocabulary holds words that were never released; with ``save_raw_words`` it is a
            `RawTextWarning`. The half-written folder of the pipeline is removed.
        """
        path = Path(path)
        try:
            self._look_before_saving()
        except RawTextError:
            self._remove_half(path.parent)
            raise
        if path.is_file():
            path.unlink()  # another tokenizer, saved here before, is one file
        spacy.util.to_disk(path, {"index": self._write_index}, list(exclude))

    def _remove_half(self, folder: Path) -> None:
        """Remove the files of a pipeline that was not saved; spaCy writes the vocabulary last."""
        if (folder / "vocab").exists():
            return
        written = [folder / name for name in self._written_before() if (folder / name).exists()]
        for place in written:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        if written and not any(folder.iterdir()):
            folder.rmdir()

    def _write_index(self, folder: Path) -> None:
        own = self._folder
        index = self._open()
        if own is None or not (own.is_dir() and folder.is_dir() and folder.samefile(own)):
            index.save(folder, overwrite=True)

    def from_disk(
        self: _Form, path: str | os.PathLike[str], *, exclude: Iterable[str] = ()
    ) -> _Form:
        """Use the index that `to_disk` wrote, if there is one; return the object itself.

        Parameters
        ----------
        path
            The folder that was written.
        exclude
            ``"index"`` keeps the path in the config in use.

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
        self.prepare()

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the path of the index folder; its files are too large for bytes.

        Raises
        ------
        RawTextError
            As for `to_disk`.
        """
        self._look_before_saving()
        return b"" if self._folder is None else os.fsencode(self._folder.absolute())

    def from_bytes(self: _Form, data: bytes, *, exclude: Iterable[str] = ()) -> _Form:
        """Use the index folder that `to_bytes` names, if it is there; return the object itself."""
        folder = Path(os.fsdecode(data))
        if data and folder.is_dir():
            self._use(folder)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A worker process opens the index folder itself. The privatizer stays behind, and with it run keys and raw words;
        # the seed goes along, since a seeded run must not depend on the number of workers. A pickle is a file like
        # another, but for the one that starts a worker of this program.
        if multiprocessing.context.get_spawning_popen() is None:
            self._look_before_saving()
        state = self.__dict__.copy()
        state.update(_index=None, _privatizer=None, _known_words=0)
        # Registered functions usually return closures, which only this pickler takes.
        state["options"] = srsly.pickle_dumps(self.options)
        state["_make_mechanism"] = srsly.pickle_dumps(self._make_mechanism)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.options = srsly.pickle_loads(state["options"])
        self._make_mechanism = srsly.pickle_loads(state["_make_mechanism"])
