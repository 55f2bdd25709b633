"""``TextSynthesizer``: labelled texts to new labelled texts that protect whole records, in the manner of scikit-learn."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from textpriv.errors import TextprivError, needs
from textpriv.index.builtin import ENGLISH, open_index
from textpriv.index.index import Index
from textpriv.language.general_english import general_english
from textpriv.language.ngrams import NGrams
from textpriv.statement import PrivacyStatement
from textpriv.synthesis.features import Label, Space, plain_label, public_vectors, public_weights
from textpriv.synthesis.generator import Generator
from textpriv.synthesis.release import Measurement, NoisySums
from textpriv.synthesis.sums import Sums, WordCounts
from textpriv.tokenization.encoder import DEFAULT_LANGUAGE, TextEncoder, without_halves
from textpriv.tokenization.policy import TokenPolicy

if TYPE_CHECKING:
    from typing_extensions import Self

_AT_ONCE = 1_000  # records
_ONE_CLASS: Label = ""


class PublicSide:
    """Everything public that a measurement needs: the words, their weights and vectors, the model and the tokenizer.

    Parameters
    ----------
    index : Index, path or None
        Default: the built-in one.
    model : NGrams, optional
        Default: that of the index, or of general English.
    new_words : tuple of str
        Released ones, beyond those of the index.
    """

    def __init__(
        self,
        index: Index | str | os.PathLike[str] | None = None,
        model: NGrams | None = None,
        new_words: tuple[str, ...] = (),
    ) -> None:
        self.index = index if isinstance(index, Index) else open_index(index or ENGLISH)
        self._given, self._new_words = (index, model), new_words
        own = self.index.vocabulary.words
        self.words, self.language = [*own, *new_words], self.index.language or DEFAULT_LANGUAGE
        given = model or self.index.model
        if given is None and self.language != DEFAULT_LANGUAGE:
            raise TextprivError(
                f"the index has no language model of the language {self.language}. Build it with one: "
                "NGrams.count(public_texts, vocabulary)."
            )
        found = given or general_english(own)
        if found.size != len(own):
            raise TextprivError(
                "the language model is of another vocabulary. Pass one over the words of the index."
            )
        self.model = found.with_words(len(new_words)) if new_words else found

    def with_words(self, new_words: tuple[str, ...]) -> PublicSide:
        """Return the same with other new words."""
        return PublicSide(*self._given, new_words)

    def __reduce__(self) -> tuple[Any, ...]:
        # An index goes to a worker by its name, and no private word goes along.
        return PublicSide, (*self._given, self._new_words)

    def space(self, classes: Sequence[Label], authors: int | None = None) -> Space:
        """Return the coordinates of the sums of records of some classes."""
        vectors = public_vectors(self.index.vocabulary.vectors)
        # Topics are those of known words.
        vectors = np.pad(vectors, ((0, len(self._new_words)), (0, 0)))
        return Space(public_weights(self.model), vectors, tuple(classes), authors)

    @cached_property
    def encoder(self) -> TextEncoder:
        """The tokenizer of private texts, which keeps unknown words."""
        return TextEncoder(self.words, TokenPolicy(unknown="keep"), self.language)

    def add(
        self,
        total: Sums | WordCounts,
        texts: Sequence[str],
        labels: Sequence[Any] | None,
        authors: Sequence[Any] | None,
    ) -> None:
        """Add records to sums or counts."""
        whole = [each if each.isascii() else without_halves(each) for each in texts]
        total.add(self.encoder.encode(whole), labels, authors)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the words and their vectors."""
        return self.index.vocabulary.fingerprint()


class TextSynthesizer:
    """Learn new labelled texts from private ones, under differential privacy for each record or author.

    Parameters
    ----------
    epsilon : float
        Protection of one record, or of all records of one author. It has no default. 1 is strong, 4 is weak.
    delta : float
        The chance of a larger loss.
    classes : sequence of str or int, optional
        All labels that may occur, chosen without a look at the texts. Labels need them: which ones occur is not protected.
    records_per_author : int
        Records of one author that count; used with ``fit(..., authors=...)``.
    index : Index or path, optional
        Default: the built-in English words.
    model : NGrams, optional
        A language model of public texts over the words of the index. Default: that of the index, or general English.
    new_words : float
        Share of the budget that finds words outside the vocabulary which many records use; they are released. 0.1 is usual.
    budget : PrivacyBudget, optional
        Charged before any noise is drawn. Its adjacency is "add/remove".

    Attributes
    ----------
    noisy_ : NoisySums
        All that is kept of the private texts.
    statement_ : PrivacyStatement

    Examples
    --------
    >>> texts, labels = ["a good film"] * 500 + ["a bad film"] * 500, ["pos"] * 500 + ["neg"] * 500
    >>> synthesizer = TextSynthesizer(epsilon=4.0, classes=["neg", "pos"]).fit(texts, labels)
    >>> synthesizer.sample(100, random_state=0).columns.tolist()
    ['text', 'label']
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-6,
        classes: Sequence[Label] | None = None,
        records_per_author: int = 1,
        *,
        index: Index | str | os.PathLike[str] | None = None,
        model: NGrams | None = None,
        new_words: float = 0.0,
        budget: Any = None,
    ) -> None:
        self.epsilon, self.delta, self.classes = epsilon, delta, classes
        self.records_per_author, self.budget = records_per_author, budget
        self.index, self.model, self.new_words = index, model, new_words

    def fit(
        self,
        texts: Iterable[str],
        labels: Iterable[Label] | None = None,
        authors: Iterable[Any] | None = None,
    ) -> Self:
        """Measure private texts once.

        Parameters
        ----------
        texts : iterable of str
        labels : iterable of str or int, optional
            The class of each text. Without labels there is one class.
        authors : iterable of str or int, optional
            The author of each text; then all records of one author are protected together.

        Raises
        ------
        TextprivError
            For a missing text, a label that is not declared, and a missing author, before anything is measured.
        """
        records = _Given.checked(texts, labels, authors)
        classes = self._classes_of(records)
        space = self._side.space(
            classes, None if authors is None else _whole(self.records_per_author)
        )
        measurement = Measurement(
            space, self.epsilon, self.delta, self.budget, new_words=self.new_words
        )
        self._set(measurement.measure(self._side, records.add_to))
        vars(self._side).pop("encoder", None)  # it remembers words of the texts
        return self

    @cached_property
    def _side(self) -> PublicSide:
        return PublicSide(self.index, self.model)

    def _classes_of(self, records: _Given) -> tuple[Label, ...]:
        if records.labels is None:
            return (_ONE_CLASS,)
        if self.classes is None:
            raise TextprivError(
                "labels need classes=[...]: all that may occur, chosen without a look at the texts. One that occurs once "
                "would show its record."
            )
        classes = tuple(map(plain_label, self.classes))
        if not classes or len(set(classes)) < len(classes):
            raise TextprivError(
                "classes must be one or more different labels. Name each class once."
            )
        return classes

    def _set(self, noisy: NoisySums) -> None:
        self.noisy_ = noisy
        self.statement_: PrivacyStatement = noisy.statement
        vars(self).pop("_generator", None)

    @cached_property
    def _generator(self) -> Generator:
        if not hasattr(self, "noisy_"):
            raise TextprivError(
                "this TextSynthesizer has measured no texts. Call fit or load first."
            )
        return Generator(self.noisy_, self._side.with_words(self.noisy_.new_words))

    def sample(self, n: int, random_state: int | np.random.Generator | None = None) -> Any:
        """Draw new records; any number of them costs nothing more.

        Parameters
        ----------
        n : int
        random_state : int or Generator, optional
            Makes the draws repeatable, which takes nothing from the guarantee.

        Returns
        -------
        pandas.DataFrame
            Columns "text" and, for records that had labels, "label".
        """
        pandas = needs("pandas")
        drawn = list(self.records(n, random_state))
        frame = pandas.DataFrame({"text": [text for text, _ in drawn]})
        if self.noisy_.classes != (_ONE_CLASS,):
            frame["label"] = [label for _, label in drawn]
        return frame

    def records(
        self, n: int, random_state: int | np.random.Generator | None = None
    ) -> Iterator[tuple[str, Label]]:
        """Yield new records as texts and labels; as :meth:`sample`, in constant memory."""
        rng = np.random.default_rng(random_state)
        for texts, classes in self._generator.texts(_whole(n), rng):
            yield from zip(texts, (self.noisy_.classes[each] for each in classes), strict=True)

    def words(self, top: int = 20) -> Any:
        """Return the words that set each class apart, by falling tilt less its standard error.

        Returns
        -------
        pandas.DataFrame
            Columns "label", "word", "tilt" (how much likelier the word is in the class than in all records, as a
            logarithm; without labels, than in the public model) and "standard_error".
        """
        names = ["label", "word", "tilt", "standard_error"]
        return needs("pandas").DataFrame(self.words_apart(top), columns=names)

    def words_apart(self, top: int = 20) -> list[tuple[Label, str, float, float]]:
        """Return the rows of :meth:`words`."""
        found, rows = self._generator.apart, []
        sure = found.tilts - found.errors
        for number, label in enumerate(self.noisy_.classes):
            for at in np.argsort(-sure[number], kind="stable")[: _whole(top)]:
                word = self._generator.words[at], float(found.tilts[number, at])
                rows.append((label, *word, float(found.errors[number, at])))
        return rows

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the released sums as one file, from which more texts can be drawn."""
        self._generator.noisy.write(path, vocabulary=self._side.fingerprint)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        index: Index | str | os.PathLike[str] | None = None,
        model: NGrams | None = None,
    ) -> Self:
        """Open a file of :meth:`save`; with another index or model than the default, pass the same again."""
        noisy, header = NoisySums.read_file(path)
        settings = noisy.epsilon, noisy.delta, noisy.classes, noisy.authors or 1
        made = cls(*settings, index=index, model=model, new_words=noisy.share)
        if header["vocabulary"] != made._side.fingerprint:
            raise TextprivError(
                "the sums are of another vocabulary. Pass the index that they were made with."
            )
        made._set(noisy)
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name[:1] != "_"}

    def __repr__(self) -> str:
        classes = "" if self.classes is None else f", classes={self.classes!r}"
        return f"TextSynthesizer(epsilon={self.epsilon!r}, delta={self.delta!r}{classes})"


@dataclass(frozen=True, repr=False)
class _Given:
    """Private records as they were given to ``fit``, checked before anything is measured."""

    texts: list[str]
    labels: list[Any] | None
    authors: list[Any] | None

    @classmethod
    def checked(cls, texts: Any, labels: Any, authors: Any) -> _Given:
        """Return records whose parts are all there."""
        if isinstance(texts, str | bytes):
            raise TextprivError("fit needs a list or another iterable of texts; found one text.")
        texts = list(texts)
        for text in texts:
            if not isinstance(text, str):
                raise TextprivError(
                    "a text is missing or is no text. Leave such records out, or give them as empty texts."
                )
        given = [
            None if each is None else list(map(plain_label, each)) for each in (labels, authors)
        ]
        for name, each in zip(("labels", "authors"), given, strict=True):
            if each is not None and len(each) != len(texts):
                raise TextprivError(f"{name} and texts differ in number. Give one for each text.")
        if given[0] is not None and not all(isinstance(each, str | int) for each in given[0]):
            raise TextprivError(
                "a label is missing, or is neither text nor a whole number. Correct it."
            )
        return cls(texts, *given)

    def add_to(self, total: Sums | WordCounts, side: PublicSide) -> None:
        """Add all records to sums or counts."""
        for start in range(0, len(self.texts), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            labels, authors = (each and each[part] for each in (self.labels, self.authors))
            side.add(total, self.texts[part], labels, authors)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise TextprivError(f"expected a whole number from 1 up; got {value!r}.")
    return int(value)
