"""Saving and loading of the private forms: to a folder, to bytes, and to other processes.

The settings are in the pipeline's config; what a config cannot hold is the index. A seed and the keys of a run are never
among what is written here.
"""

from __future__ import annotations

import itertools
import multiprocessing.context
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import spacy.util
import srsly

from textpriv.errors import IndexFolderError
from textpriv.pipeline.form import PrivateForm
from textpriv.tokenization.encoder import words_of_rules

__all__ = ["SavableForm"]

_Form = TypeVar("_Form", bound="SavableForm")


def _remove_folder(folder: str, owner: int) -> None:
    # A forked worker inherits this finalizer, but the folder belongs to the process that made it.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


class SavableForm(PrivateForm):
    """A form that writes its index beside the pipeline, and refuses to be saved with raw words."""

    def _look_before_saving(self) -> None:
        """Refuse to save raw words. Which public words came raw must not show, so all of them are saved."""
        self._refuse_raw_words("Not saved")
        if self._raw_words.met_others and self._privatizer is not None:
            vocab = self._own_vocab()
            orths = self._orths_of(vocab)
            for word in itertools.chain(
                self._open().vocabulary.words, words_of_rules(self._language)
            ):
                vocab[orths[word]]
            self._raw_words.known = len(vocab)

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
        """Use the index that `to_disk` wrote; returns the object itself.

        Parameters
        ----------
        path
            The folder that was written. Where it holds no index, the path in the config stays in
            use.
        exclude
            ``"index"`` keeps the path in the config in use. Other names are ignored.

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
        """Use the index that `to_bytes` packed; returns the object itself.

        The index is unpacked into a private temporary folder, since it is memory-mapped; the folder
        goes when the object does.

        Parameters
        ----------
        data
            What `to_bytes` returned.
        exclude
            ``"index"`` keeps the path in the config in use. Other names are ignored.

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
        state.update(_index=None, _privatizer=None, _statements={}, _orths=None)
        state["_raw_words"] = replace(self._raw_words, known=0)
        # Registered functions usually return closures, which only this pickler takes.
        state["_mechanism"] = srsly.pickle_dumps(self._mechanism)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._mechanism = srsly.pickle_loads(state["_mechanism"])
