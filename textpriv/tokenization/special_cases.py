"""spaCy's special cases and token matches that can reach over the border of a chunk.

Only found here, so that such texts are tokenized whole; the tokenizer itself is in ``tokenization.spacy_tokenizer``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Crossings"]


class Crossings:
    """Which stretches on both sides of a blank may hold parts of one special case of spaCy.

    A crossing is a place inside the tokens of a special case at which a blank may stand. The class of the end of a stretch
    stands for the crossings that its last two tokens fit before the blank, that of its beginning for those that its first
    two fit after it; class 0 for none.

    Parameters
    ----------
    rules : mapping
        From a special case to its tokens.
    plain : callable
        From a special case to the tokens that spaCy finds in it before it puts those of the rule in their place.
    """

    def __init__(
        self, rules: Mapping[str, Sequence[str]], plain: Callable[[str], list[str]]
    ) -> None:
        from spacy.strings import get_string_id

        at_first = {special: [get_string_id(each) for each in plain(special)] for special in rules}
        put = {special: [get_string_id(each) for each in rules[special]] for special in rules}
        # For each side: from the token next to the blank to the crossings it may stand at, as bits of a number, by the
        # token that has to stand beside it; 0 if it is the outermost.
        self._fits: tuple[_Fits, _Fits] = ({}, {})
        crossing = 1
        for found in at_first.values():
            for place in range(1, len(found)):
                sides = ([0, *found][place - 1 : place + 1][::-1], [*found, 0][place : place + 2])
                for fits, (token, beside) in zip(self._fits, sides, strict=True):
                    of_token = fits.setdefault(token, {})
                    of_token[beside] = of_token.get(beside, 0) | crossing
                crossing <<= 1
        # Where spaCy put a special case in place of the tokens it found at first, it is those that decide. For each side:
        # from the outermost token of what was put to the special cases, and to the outermost two tokens found at first.
        self._replaced: tuple[_Replaced, _Replaced] = ({}, {})
        for special, found in at_first.items():
            if len(found) > 1 or found != put[special]:
                for replaced, tokens, own in (
                    (self._replaced[0], [0, *found][:-3:-1], put[special][-1]),
                    (self._replaced[1], [*found, 0][:2], put[special][0]),
                ):
                    replaced.setdefault(own, {})[special] = (tokens[0], tokens[1])
        self._classes: tuple[dict[int, int], dict[int, int]] = ({0: 0}, {0: 0})
        self.pairs = np.zeros((1, 1), dtype=np.bool_)

    @classmethod
    def of(cls, tokenizer: Any) -> Crossings:
        """Those of a tokenizer of spaCy."""
        from spacy.symbols import ORTH
        from spacy.tokenizer import Tokenizer

        without = Tokenizer(
            tokenizer.vocab,
            prefix_search=tokenizer.prefix_search,
            suffix_search=tokenizer.suffix_search,
            infix_finditer=tokenizer.infix_finditer,
            token_match=tokenizer.token_match,
            url_match=tokenizer.url_match,
        )
        rules = {
            special: [str(token[ORTH]) for token in tokens]
            for special, tokens in tokenizer.rules.items()
        }
        return cls(rules, lambda special: [token.text for token in without(special)])

    def classes(
        self, stretches: list[str], ends: NDArray[np.uint64], side: int
    ) -> NDArray[np.int32]:
        """The classes of the ends (side 0) or beginnings (side 1) of stretches.

        Parameters
        ----------
        stretches : list of str
        ends : ndarray of uint64, shape (n, 2)
            spaCy's hashes of the outermost token and of the one beside it, 0 if there is none.
        """
        touches = str.endswith if side == 0 else str.startswith
        known, replaced = self._classes[side], self._replaced[side]
        tokens = np.fromiter({*self._fits[side], *replaced}, np.uint64)
        found = np.zeros(len(stretches), dtype=np.int32)
        for place in np.flatnonzero(np.isin(ends[:, 0], tokens)).tolist():
            token, beside = ends[place].tolist()
            bits = self._bits(side, token, beside)
            specials = replaced.get(token, {})
            if specials and touches(stretches[place], tuple(specials)):
                for special, (outer, inner) in specials.items():
                    if touches(stretches[place], special):
                        bits |= self._bits(side, outer, inner)
            found[place] = known.setdefault(bits, len(known))
        if self.pairs.shape != tuple(map(len, self._classes)):
            left, right = self._classes
            self.pairs = np.array([[bool(a & b) for b in right] for a in left])
        return found

    def _bits(self, side: int, token: int, beside: int) -> int:
        """The crossings that a token next to a blank fits, given the one beside it; 0 fits all, for it is not known."""
        fits = self._fits[side].get(token, {})
        # The one beside it may itself stand for others that were found at first.
        if beside == 0 or beside in self._replaced[side]:
            return functools.reduce(operator.or_, fits.values(), 0)
        return fits.get(beside, 0) | fits.get(0, 0)


_Fits = dict[int, dict[int, int]]
_Replaced = dict[int, dict[str, tuple[int, int]]]
