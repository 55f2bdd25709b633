"""The component ``textpriv``: a raw document goes in, a new private one comes out."""

# No `from __future__ import annotations` here: spaCy's config system reads the annotations of
# registered functions, and in its older releases it cannot resolve them from strings.

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import spacy.util
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab

from textpriv.pipeline.form import Reading
from textpriv.pipeline.names import DEFAULT_BATCH, EXTENSION_KEY
from textpriv.pipeline.saving import SavableForm
from textpriv.pipeline.tokenizer import PrivateTokenizer, refuse_twice

__all__ = ["TextprivComponent", "make_component"]


class TextprivComponent(SavableForm):
    """Replace each document by a new one that holds private words only.

    It reads the text of the raw document, not its tokens, and tokenizes it by the rules of the language:
    another tokenizer may split by casing, which the number of tokens would show. Nothing of the raw
    document is carried over but its ``_context`` (what ``as_tuples`` pairs it with) and what
    `carry` names; of other annotations that get lost it warns once. Its words stay
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
        An index folder; None for the built-in index of the pipeline's language, or if the index will come from `from_disk`
        or `from_bytes`.
    epsilon
        That of TEM, per unit of the index's distance; or None, and a mechanism.
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
    carry
        Annotations of raw documents that private ones get as they were, and that the statement then names as not
        protected: ``"cats"``, ``"ents"``, and extensions of documents such as ``"_.source"``.
    spans
        The policy of typed spans: "notes", "tickets", "chat", the path of a TOML file, or a dict. The entities of raw
        documents, of whatever component before this one, are then drawn by the laws of their kinds; those of private
        documents are their private surfaces.
    detect
        Detectors whose spans are added: "patterns", "presidio", "spacy:PIPELINE".

    Raises
    ------
    MechanismError
        If there is neither an epsilon nor a mechanism, or both, if their parameters or `carry` are unusable, or if the
        pipeline's tokenizer is private already.
    PolicyError
        If the policy has an unknown field or action.
    """

    def __init__(
        self,
        nlp: Language,
        name: str = "textpriv",
        *,
        index: str | os.PathLike[str] | None = None,
        epsilon: float | None = None,
        mechanism: Callable[[Any], Any] | None = None,
        policy: dict[str, str] | None = None,
        seed: int | None = None,
        run_key: str | os.PathLike[str] | None = None,
        save_raw_words: bool = False,
        carry: Sequence[str] = (),
        spans: str | dict[str, Any] | None = None,
        detect: Sequence[str] = (),
    ) -> None:
        if isinstance(nlp.tokenizer, PrivateTokenizer):
            refuse_twice()
        self.nlp = nlp
        self.name = name
        super().__init__(
            index,
            mechanism,
            policy,
            seed,
            run_key,
            save_raw_words,
            nlp.lang or "en",
            epsilon,
            carry,
            spans,
            detect,
        )

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

    def _read(self, doc: Doc) -> Reading:
        if doc.user_data.get(EXTENSION_KEY) is not None:
            refuse_twice()
        carried = self._annotations.read(doc, self._takes_entities)
        spans = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
        return Reading(doc.text, doc.vocab, doc._context, carried, spans)

    @property
    def _takes_entities(self) -> bool:
        return self._spans is not None

    def _own_vocab(self) -> Vocab:
        return self.nlp.vocab

    def get_error_handler(self) -> Callable[..., NoReturn]:
        """Raise, whatever the pipeline's own error handler does.

        A handler that swallows errors makes spaCy pass on the document as it was before the
        component failed, which here is the raw text.
        """
        return spacy.util.raise_error


@Language.factory(
    "textpriv",
    assigns=["doc._.textpriv"],
    retokenizes=True,
    default_config={
        "index": None,
        "epsilon": None,
        "mechanism": None,
        "policy": {},
        "seed": None,
        "run_key": None,
        "save_raw_words": False,
        "carry": [],
        "spans": None,
        "detect": [],
    },
)
def make_component(
    nlp: Language,
    name: str,
    index: str | None,
    epsilon: float | None,
    mechanism: Callable[[Any], Any] | None,
    policy: dict[str, str],
    seed: int | None,
    run_key: str | None,
    save_raw_words: bool,
    carry: list[str],
    spans: str | dict[str, Any] | None,
    detect: list[str],
) -> TextprivComponent:
    """Make the component ``textpriv`` from its block of a config.

    Parameters
    ----------
    nlp, name
        Given by spaCy.
    index, epsilon, mechanism, policy, seed, run_key, save_raw_words, carry, spans, detect
        As for `TextprivComponent`. There is no default of epsilon: the user chooses it.
    """
    return TextprivComponent(
        nlp,
        name,
        index=index,
        epsilon=epsilon,
        mechanism=mechanism,
        policy=policy,
        seed=seed,
        run_key=run_key,
        save_raw_words=save_raw_words,
        carry=carry,
        spans=spans,
        detect=detect,
    )
