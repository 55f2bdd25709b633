"""Raw words in a pipeline's vocabulary: noticed before they are saved, pickled or drawn beside.

What is saved holds the pipeline's string store. Every raw `Doc` that was made in its vocabulary has
left its words there, so the forms look at the words of the vocabulary before they are saved or
pickled, and refuse where one cannot have been released. They look at words of documents only: a
string that was put into the store by itself, as the labels of components are, is not one of them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spacy.vocab import Vocab

from textpriv.errors import RawTextError
from textpriv.pipeline.names import READER_NAME, TOKENIZER_NAME
from textpriv.tokenization.policy import CLASSES, MASK, TokenPolicy

if TYPE_CHECKING:
    from textpriv.vocabulary.vocabulary import Vocabulary

__all__ = ["RawTextWarning", "RawWordGuard"]


class RawTextWarning(UserWarning):
    """A pipeline is being saved that has seen raw words, and saves them too, since its config says so."""


@dataclass
class RawWordGuard:
    """Lexemes of one vocabulary that were made by a private form, counted, so that those of others are noticed.

    Attributes
    ----------
    policy
        What is released as it is.
    language
        Code of the language, whose rules bring words of their own.
    saves_raw_words
        Warn, instead of refusing.
    known
        Of the lexemes in the vocabulary, how many were made here or looked at.
    met_others
        Whether others made lexemes.
    """

    policy: TokenPolicy
    language: str
    saves_raw_words: bool
    known: int = 0
    met_others: bool = False

    def check(self, vocab: Vocab, public: Vocabulary | None, doing: str) -> None:
        """Refuse to go on where somebody else has made lexemes of what was never released.

        Raises
        ------
        RawTextError
            Or a `RawTextWarning` where raw words may be saved.
        """
        self.met_others = True
        if self._has_unreleased(vocab, public):
            message = (
                f"{doing}: the vocabulary of the pipeline holds words that were never released. They came with documents "
                "that were read or made in it raw, and would be saved with it."
            )
            if not self.saves_raw_words:
                raise RawTextError(
                    f"{message} Make the pipeline anew, with the tokenizer {TOKENIZER_NAME}; read raw files with the reader "
                    f"{READER_NAME}, and make raw documents in a vocabulary of their own. If those words are public, set "
                    "save_raw_words = true in its config."
                )
            warnings.warn(f"{message} Do not pass it on.", RawTextWarning, stacklevel=5)
        self.known = len(vocab)

    def _has_unreleased(self, vocab: Vocab, public: Vocabulary | None) -> bool:
        """Whether a lexeme of the vocabulary cannot have been released; without an index, none can."""
        words = {lexeme.orth_ for lexeme in vocab} - {MASK}
        if public is not None:
            words = {word for word in words if word not in public}
        from textpriv.tokenization.encoder import TextEncoder, words_of_rules

        if words:
            words -= words_of_rules(self.language)
        if not words or public is None:
            return bool(words)
        from textpriv.mechanisms.base import UNKNOWN

        # What the policy keeps is released too, and a retokenizer joins several private words to one.
        never = {name: "mask" for name in CLASSES if getattr(self.policy, name) == "drop"}
        if self.policy.unknown != "keep":
            never["unknown"] = "mask"
        encoder = TextEncoder(public.words, replace(self.policy, **never), self.language)
        lowers = self.policy.case == "lower"
        for word in words:
            raw = encoder.encode([word])
            if UNKNOWN in raw.codes or "masked" in raw.counts or (lowers and word != word.lower()):
                return True
        return False
