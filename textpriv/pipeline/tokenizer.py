"""The strict tokenizer: private documents out of raw texts, without a raw word in the pipeline."""

# No `from __future__ import annotations` here: spaCy's config system reads the annotations of
# registered functions, and in its older releases it cannot resolve them from strings.

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import spacy
import spacy.util
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from textpriv.errors import MechanismError, RawTextError
from textpriv.pipeline.form import Reading
from textpriv.pipeline.names import DEFAULT_BATCH, EXTENSION, TOKENIZER_NAME
from textpriv.pipeline.saving import SavableForm

__all__ = ["PrivateTokenizer", "make_tokenizer", "refuse_twice"]


class PrivateTokenizer(SavableForm):
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
    index, epsilon, mechanism, policy, seed, run_key, save_raw_words, spans, detect
        As for `TextprivComponent`.
    language
        Code of the language whose rules split the raw text, by default that of `vocab`.

    Raises
    ------
    MechanismError
        If there is neither an epsilon nor a mechanism, or both, or their parameters are unusable.
    PolicyError
        If the policy has an unknown field or action.
    """

    def __init__(
        self,
        vocab: Vocab,
        *,
        index: str | os.PathLike[str] | None = None,
        epsilon: float | None = None,
        mechanism: Callable[[Any], Any] | None = None,
        policy: dict[str, str] | None = None,
        seed: int | None = None,
        run_key: str | os.PathLike[str] | None = None,
        save_raw_words: bool = False,
        language: str | None = None,
        spans: str | dict[str, Any] | None = None,
        detect: Sequence[str] = (),
    ) -> None:
        self.vocab = vocab
        language = language or vocab.lang or "en"
        super().__init__(
            index,
            mechanism,
            policy,
            seed,
            run_key,
            save_raw_words,
            language,
            epsilon,
            spans=spans,
            detect=detect,
        )

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

        ``nlp.pipe(texts)`` asks for one text at a time. ``nlp.pipe(nlp.tokenizer.pipe(texts))`` does the same in a part of
        the time: its texts are drawn in batches.

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

    def _release(self, batch: Sequence[Reading], once: bool = False) -> Iterator[Doc]:
        self._prepare()
        self._refuse_raw_words("Not tokenized")
        return super()._release(batch, once)

    def _read(self, text: str) -> Reading:
        if not isinstance(text, str):
            raise TypeError(f"The tokenizer takes text; got {type(text).__name__}.")
        return Reading(text, self.vocab)

    def _own_vocab(self) -> Vocab:
        return self.vocab


@spacy.registry.tokenizers(TOKENIZER_NAME)
def make_tokenizer(
    index: str | None = None,
    epsilon: float | None = None,
    mechanism: Callable[[Any], Any] | None = None,
    policy: dict[str, str] = {},  # noqa: B006 - only read, and filled configs show it
    seed: int | None = None,
    run_key: str | None = None,
    save_raw_words: bool = False,
    spans: str | dict[str, Any] | None = None,
    detect: list[str] = [],  # noqa: B006 - as above
) -> Callable[[Language], PrivateTokenizer]:
    """Make the strict tokenizer from the block ``[nlp.tokenizer]`` of a config.

    Parameters
    ----------
    index, epsilon, mechanism, policy, seed, run_key, save_raw_words, spans, detect
        As for `TextprivComponent`. There is no default of epsilon: the user chooses it.

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
            epsilon=epsilon,
            mechanism=mechanism,
            policy=policy,
            seed=seed,
            run_key=run_key,
            save_raw_words=save_raw_words,
            language=nlp.lang,
            spans=spans,
            detect=detect,
        )

    return create


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


def refuse_twice() -> NoReturn:
    """Refuse a second form in one pipeline."""
    raise MechanismError(
        f"The words are private already. Use either the tokenizer {TOKENIZER_NAME} or one "
        "component textpriv, not both: a second pass changes more words and protects nobody better."
    )
