"""One private document as tokens, for the forms that need more than its text.

What is drawn is decided by the privatizer; how tokens become a text in ``tokenization.detokenizer``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from textpriv.tokenization.batches import SPAN, counts_of

__all__ = ["PrivateTokens"]


class PrivateTokens:
    """One private document as tokens.

    Attributes
    ----------
    outputs : ndarray of int32, shape (T,)
        Word ids of the drawn tokens, -1 for the others.
    others : list of str
        The tokens that are not drawn, in order: masks, what the policy keeps, and surfaces of typed spans.
    """

    __slots__ = ("_codes", "_kinds", "_spaces", "_vocabulary", "others", "outputs")

    def __init__(
        self,
        outputs: NDArray[np.int32],
        others: list[str],
        spaces: NDArray[np.bool_],
        codes: NDArray[np.int32],
        vocabulary: NDArray[np.object_],
        kinds: tuple[str, ...] = (),
    ) -> None:
        self.outputs = outputs
        self.others = others
        self._spaces = spaces
        self._codes = codes
        self._vocabulary = vocabulary
        self._kinds = kinds

    @property
    def spans(self) -> dict[int, str]:
        """The kind of each token that is a typed span."""
        if not self._kinds:
            return {}
        at = np.flatnonzero(self._codes <= SPAN)
        kinds = (self._kinds[SPAN - code] for code in self._codes[at].tolist())
        return dict(zip(at.tolist(), kinds, strict=True))

    @property
    def words(self) -> list[str]:
        """The private tokens."""
        found = self._vocabulary[np.maximum(self.outputs, 0)]
        found[self.outputs < 0] = self.others
        return found.tolist()

    @property
    def spaces(self) -> list[bool]:
        """For each token whether a blank follows it; set by the private tokens alone."""
        return self._spaces.tolist()

    @property
    def counts(self) -> dict[str, int]:
        """Tokens by how they were released: sampled, masked, kept ones by class, and typed spans by kind.

        Classes that were sampled or masked are counted together: telling them apart would show what the draw hides.
        """
        return counts_of(self._codes, self._kinds)

    @property
    def text(self) -> str:
        """The private text."""
        return "".join(
            word + " " if space else word
            for word, space in zip(self.words, self.spaces, strict=True)
        )

    def __repr__(self) -> str:
        return f"PrivateTokens({len(self)} tokens)"

    def __len__(self) -> int:
        return len(self.outputs)
