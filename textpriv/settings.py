"""The one way to a Privatizer: settings that every command, pipeline and engine builds it from, and one call.

The default mechanism is in ``mechanisms/default.py``, the default index in ``index/builtin.py``.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from textpriv.guarantees.epsilon import with_epsilon
from textpriv.index import Index, Tree
from textpriv.index.builtin import open_index
from textpriv.ledger import Ledger
from textpriv.mechanisms import make_mechanism, protection
from textpriv.mechanisms.base import Mechanism
from textpriv.privatizer import Privatizer
from textpriv.run_key import read_run_key
from textpriv.spans.detectors import make_detector
from textpriv.tokenization.encoder import DEFAULT_LANGUAGE
from textpriv.tokenization.policy import TokenPolicy


@dataclass(frozen=True)
class PrivatizerSettings:
    """Plain values from which each process builds the same Privatizer.

    Attributes
    ----------
    index
        Path of a saved index folder, or "builtin:en" for the built-in index.
    mechanism
        A name, such as ``"textpriv.TEM.v1"`` or ``"tem"``, or a function of the index. Default: that of the index.
    options
        The mechanism's arguments, such as ``{"epsilon": 6.0}`` (epsilon in units of 1/distance). ``{"recovery": 0.1}``
        stands for the epsilon of this recovery (:func:`textpriv.guarantees.epsilon.choose_epsilon`).
    policy
        Fields of TokenPolicy; those left out keep their defaults.
    seed
        For experiments only.
    run_key
        32 random bytes that every process shares; None to draw each text independently. Not used with a ledger or a seed.
    key_file
        Path of a run key that each process reads for itself, in place of ``run_key``: the settings then hold no secret.
    ledger, limits
        Path of the ledger that counts every document, and its limits, as in :class:`textpriv.ledger.Ledger`.
    language
        spaCy's code of the language whose rules tokenize the texts; None for that of the index.
    spans
        The policy of typed spans, as :meth:`textpriv.spans.policy.SpanPolicy.of` reads it; None for words alone.
    detect
        Names of the detectors, as :func:`textpriv.spans.detectors.make_detector` knows them.
    """

    index: str = "builtin:en"
    mechanism: str | Callable[[Any], Mechanism] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    run_key: bytes | None = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    key_file: str | None = None
    ledger: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    language: str | None = None
    spans: str | Mapping[str, Any] | None = None
    detect: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.key_file is not None:
            object.__setattr__(self, "run_key", b"")

    def build(self, index: Index | Tree | None = None) -> Privatizer:
        """Build the Privatizer, over the opened index if there is one already."""
        opened = open_index(self.index) if index is None else index
        language = self.language or opened.language or DEFAULT_LANGUAGE
        has_key = self.ledger is None and self.seed is None
        # Options that have an epsilon already, as those of a command do, come back as they are.
        options, _ = with_epsilon(opened, self.mechanism, self.options)
        return Privatizer(
            make_mechanism(opened, self.mechanism, **options),
            TokenPolicy.of(self.policy),
            self.seed,
            run_key=self.secret() if has_key else None,
            language=self.language,
            spans=self.spans,
            detector=[make_detector(name, language) for name in self.detect] or None,
            # A ledger is made by being opened, so all else is read before.
            ledger=None if self.ledger is None else Ledger(self.ledger, **self.limits),
        )

    def secret(self) -> bytes | None:
        """Return the run key itself."""
        return self.run_key if self.key_file is None else read_run_key(self.key_file)


@overload
def privatize(  # type: ignore[overload-overlap]
    texts: str,
    epsilon: float | None = ...,
    *,
    recovery: float | None = ...,
    index: Index | str | os.PathLike[str] | None = ...,
) -> str: ...


@overload
def privatize(
    texts: Iterable[str],
    epsilon: float | None = ...,
    *,
    recovery: float | None = ...,
    index: Index | str | os.PathLike[str] | None = ...,
) -> list[str]: ...


def privatize(
    texts: str | Iterable[str],
    epsilon: float | None = None,
    *,
    recovery: float | None = None,
    index: Index | str | os.PathLike[str] | None = None,
) -> str | list[str]:
    """Make one text or several private, with fresh randomness; a list comes out in its order.

    The mechanism is TEM with a flat prior; over a tree it is TreeTEM. ``Privatizer(...).statement`` says what is guaranteed.

    Parameters
    ----------
    texts : str or iterable of str
    epsilon : float
        Per unit of the index's distance. Give this or a recovery.
    recovery : float
        In place of epsilon: the largest share of content words that an attacker who guesses word by word may recover; see
        :func:`textpriv.guarantees.epsilon.choose_epsilon`.
    index : Index or path, optional
        Default: the built-in index of English words (:meth:`Index.builtin`).

    Examples
    --------
    >>> private = privatize("The patient was admitted with chest pain.", epsilon=3.0)
    >>> private.endswith(".")
    True
    """
    amount = protection("privatize", epsilon=epsilon, recovery=recovery)
    if isinstance(index, str | os.PathLike):
        index = open_index(index)
    private = PrivatizerSettings(options=amount, run_key=None).build(index)
    return private.privatize(texts) if isinstance(texts, str) else list(private.pipe(texts))
