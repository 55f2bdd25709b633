"""spaCy's special cases and token matches that can reach over the border of a chunk.

Only found here, so that such chunks are tokenized together; the tokenizer itself is in ``tokenization.spacy_tokenizer``.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SpecialCases"]

_Fits = dict[int, dict[int, int]]
_Replaced = dict[int, dict[str, tuple[int, int]]]


class SpecialCases:
    """Special cases of several tokens, and which pairs of chunks may hold one over the blank between them.

    A split is a position between two tokens of a special case, at which a text may have a blank. The class of the end of a
    chunk stands for the splits that its last two tokens fit before the blank, that of its start for those that its first two
    fit after it; class 0 for none.

    Parameters
    ----------
    rules : mapping
        From a special case to its tokens.
    plain : callable
        From a special case to the tokens that spaCy finds in it before it applies the rule.

    Attributes
    ----------
    pairs : ndarray of bool, shape (classes of ends, classes of starts)
        Whether a chunk that ends so, before one that starts so, may hold part of a special case.
    """

    def __init__(
        self, rules: Mapping[str, Sequence[str]], plain: Callable[[str], list[str]]
    ) -> None:
        from spacy.strings import get_string_id

        plain_tokens = {case: [get_string_id(each) for each in plain(case)] for case in rules}
        rule_tokens = {case: [get_string_id(each) for each in rules[case]] for case in rules}
        # For each side: from the token next to the blank to the splits it may stand at, as bits of a number, by the token
        # that has to stand beside it; 0 if it is the outermost.
        self._fits: tuple[_Fits, _Fits] = ({}, {})
        split = 1
        for tokens in plain_tokens.values():
            for at in range(1, len(tokens)):
                sides = ([0, *tokens][at - 1 : at + 1][::-1], [*tokens, 0][at : at + 2])
                for fits, (token, beside) in zip(self._fits, sides, strict=True):
                    of_token = fits.setdefault(token, {})
                    of_token[beside] = of_token.get(beside, 0) | split
                split <<= 1
        # Where spaCy has replaced tokens by those of a rule, the replaced ones decide. For each side: from the outermost
        # token of the rule to the special cases, and to the outermost two tokens that were replaced.
        self._replaced: tuple[_Replaced, _Replaced] = ({}, {})
        for case, tokens in plain_tokens.items():
            if len(tokens) > 1 or tokens != rule_tokens[case]:
                last, before_last = [0, *tokens][:-3:-1]
                first, second = [*tokens, 0][:2]
                ending, starting = self._replaced
                ending.setdefault(rule_tokens[case][-1], {})[case] = last, before_last
                starting.setdefault(rule_tokens[case][0], {})[case] = first, second
        self._classes: tuple[dict[int, int], dict[int, int]] = ({0: 0}, {0: 0})
        self.pairs = np.zeros((1, 1), dtype=np.bool_)

    @classmethod
    def of(cls, tokenizer: Any) -> SpecialCases:
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
            case: [str(token[ORTH]) for token in tokens] for case, tokens in tokenizer.rules.items()
        }
        return cls(rules, lambda case: [token.text for token in without(case)])

    def classes(self, chunks: list[str], ends: NDArray[np.uint64], side: int) -> NDArray[np.int32]:
        """The classes of the ends (side 0) or starts (side 1) of chunks.

        Parameters
        ----------
        chunks : list of str
        ends : ndarray of uint64, shape (n, 2)
            spaCy's hashes of the outermost token and of the one beside it, 0 if there is none.
        """
        touches = str.endswith if side == 0 else str.startswith
        known, replaced = self._classes[side], self._replaced[side]
        tokens = np.fromiter({*self._fits[side], *replaced}, np.uint64)
        classes = np.zeros(len(chunks), dtype=np.int32)
        for chunk in np.flatnonzero(np.isin(ends[:, 0], tokens)).tolist():
            token, beside = ends[chunk].tolist()
            splits = self._splits(side, token, beside)
            cases = replaced.get(token, {})
            if cases and touches(chunks[chunk], tuple(cases)):
                for case, (outer, inner) in cases.items():
                    if touches(chunks[chunk], case):
                        splits |= self._splits(side, outer, inner)
            classes[chunk] = known.setdefault(splits, len(known))
        if self.pairs.shape != tuple(map(len, self._classes)):
            left, right = self._classes
            self.pairs = np.array([[bool(a & b) for b in right] for a in left])
        return classes

    def _splits(self, side: int, token: int, beside: int) -> int:
        """The splits that a token next to a blank fits, given the one beside it; 0 fits all, for it is not known."""
        fits = self._fits[side].get(token, {})
        # The one beside it may itself stand in place of others.
        if beside == 0 or beside in self._replaced[side]:
            return functools.reduce(operator.or_, fits.values(), 0)
        return fits.get(beside, 0) | fits.get(0, 0)
