"""The part that laws share whose surfaces do not depend on the original: no loss, and consistency within a scope.

Proof. If nothing is consistent, a surface is drawn from a public law that depends on the structure of the value
alone, so two values of one structure have one law and the loss is 0. Within a scope (a document, or all texts of a
person) the surface is a function of the run key, the scope's name, the kind and the value, by a keyed stream. Without
the key, such a function cannot be told from a random one (the assumption on BLAKE2b and ChaCha20 that all randomness
here rests on): distinct values get independent surfaces, equal ones the same. The joint law then depends only on
structures and on *which values are equal*, over all texts of the scope under the key, so two collections with the
same pattern of equal values lose 0. Two with different patterns may be distinguished for sure: equality is visible,
and stated.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import MechanismError
from textpriv.randomness import RandomWords
from textpriv.spans.laws.base import Scopes, SpanClaim, SpanLaw

__all__ = ["RedrawnLaw", "StreamRandom"]


class StreamRandom(random.Random):
    """Python's interface to random numbers over a stream of random words, for libraries that take one."""

    def __init__(self, stream: RandomWords) -> None:
        super().__init__(0)
        self._stream = stream

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Do nothing: the stream has its key."""

    def getrandbits(self, k: int, /) -> int:
        """Return a uniform whole number of k bits."""
        words = np.empty(-(-k // 64), dtype="<u8")
        self._stream.fill(words)
        return int.from_bytes(words.tobytes(), "little") >> (-k % 64)

    def random(self) -> float:
        """Return a uniform multiple of 2^-53 in [0, 1)."""
        return self.getrandbits(53) * 2.0**-53


class RedrawnLaw(SpanLaw):
    """A public law of surfaces; a value is a tuple of a text that distinguishes it from others, and of its structure.

    Parameters
    ----------
    consistent : "document", "person" or None
        Where equal values get equal surfaces. None: nowhere.
    kind : str, optional
    """

    def __init__(self, consistent: Literal["document", "person"] | None, kind: str | None) -> None:
        super().__init__(kind)
        if consistent not in (None, "document", "person"):
            raise MechanismError(
                f"consistent is 'document', 'person' or left out; got {consistent!r}."
            )
        self.scope = self.consistent = consistent

    @abstractmethod
    def _one(self, structure: Any, source: random.Random) -> str:
        """Draw a surface from the public law of a structure."""

    def draw(
        self, values: Sequence[Any], stream: RandomWords, scopes: Scopes | None = None
    ) -> list[str]:
        """Draw a surface for each; the document's stream is read only if nothing is consistent."""
        if self.scope is None:
            source = StreamRandom(stream)
            return [self._one(value[1:], source) for value in values]
        if scopes is None:
            raise MechanismError(
                f"a law that is consistent within a {self.scope} needs to know which: scopes."
            )
        label = f"{self.name} {self.settings()!r} ".encode()
        drawn = {}
        for value in dict.fromkeys(values):
            name = label + value[0].encode("utf-8", "surrogatepass")
            drawn[value] = self._one(value[1:], StreamRandom(scopes.stream(self.scope, name)))
        return [drawn[value] for value in values]

    def structure(self, value: Any) -> Hashable:
        """All of a value but the text that distinguishes it."""
        return tuple(value[1:])

    def loss(self, first: Any, second: Any) -> float:
        """Nothing between values of one structure."""
        return 0.0 if first[1:] == second[1:] else math.inf

    def joint_loss(self, first: Sequence[Any], second: Sequence[Any]) -> float:
        """Nothing between sequences of equal structures and, within a scope, of one pattern of equal values."""
        if self.scope is not None and _pattern(first) != _pattern(second):
            return math.inf
        return super().joint_loss(first, second)

    def log_prob(self, value: Any) -> NDArray[np.float64]:
        """Uniform over the outputs."""
        count = len(self.outputs(self.structure(value)))
        return np.full(count, -math.log(count))

    def _claim(self, law: str, visible: tuple[str, ...]) -> SpanClaim:
        if self.scope is None:
            return SpanClaim(f"{law}, anew for each span", 0.0, "span", 0.0, not_protected=visible)
        equal = f"which of a {self.scope} are equal but for case, blanks, marks and prefixes"
        return SpanClaim(
            f"{law}, consistent within a {self.scope}",
            0.0,
            "span",
            0.0,
            not_protected=(*visible, equal),
            assumptions=("the run key stays secret",),
        )


def _pattern(values: Sequence[Any]) -> list[int]:
    first: dict[str, int] = {}
    return [first.setdefault(value[0], len(first)) for value in values]
