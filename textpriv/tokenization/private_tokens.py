"""One private document as tokens, for the forms that need more than its text.

What is drawn is decided by the privatizer; how tokens become a text in ``tokenization.detokenizer``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["PrivateTokens"]


class PrivateTokens:
    """One private document as tokens.

    Attributes
    ----------
    outputs : ndarray of int32, shape (T,)
        Word ids of the drawn tokens, -1 for the others.
    others : list of str
        The tokens that are not drawn, in order: masks, what the policy keeps, and surfaces of typed spans.
    counts : dict
        Tokens by how they were released: sampled, masked, kept ones by class, and typed spans by kind. Classes that were
        sampled or masked are counted together: telling them apart would show what the draw hides.
    spans : dict of int to str
        The kind of each token that is a typed span.
    """

    __slots__ = ("_spaces", "_vocabulary", "counts", "others", "outputs", "spans")

    def __init__(
        self,
        outputs: NDArray[np.int32],
        others: list[str],
        spaces: NDArray[np.bool_],
        vocabulary: NDArray[np.object_],
        counts: dict[str, int],
        spans: dict[int, str],
    ) -> None:
        self.outputs = outputs
        self.others = others
        self._spaces = spaces
        self._vocabulary = vocabulary
        self.counts = counts
        self.spans = spans

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
