"""``textpriv.privatize``: texts to private texts in one call."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import overload

from textpriv.errors import MechanismError
from textpriv.index.builtin import BUILTIN, open_index
from textpriv.index.index import Index
from textpriv.mechanisms import NO_DEFAULT, default_mechanism
from textpriv.privatizer import Privatizer
from textpriv.tokenization.encoder import DEFAULT_LANGUAGE
from textpriv.tokenization.policy import TokenPolicy


@overload
def privatize(  # type: ignore[overload-overlap]
    texts: str,
    epsilon: float | None = ...,
    *,
    recovery: float | None = ...,
    index: Index | str | os.PathLike[str] | None = ...,
    language: str | None = ...,
    policy: TokenPolicy | None = ...,
) -> str: ...


@overload
def privatize(
    texts: Iterable[str],
    epsilon: float | None = ...,
    *,
    recovery: float | None = ...,
    index: Index | str | os.PathLike[str] | None = ...,
    language: str | None = ...,
    policy: TokenPolicy | None = ...,
) -> list[str]: ...


def privatize(
    texts: str | Iterable[str],
    epsilon: float | None = None,
    *,
    recovery: float | None = None,
    index: Index | str | os.PathLike[str] | None = None,
    language: str | None = None,
    policy: TokenPolicy | None = None,
) -> str | list[str]:
    """Make texts private in one call, with fresh randomness.

    The mechanism is TEM with a flat prior; over a tree it is TreeTEM.

    Parameters
    ----------
    texts : str or iterable of str
    epsilon : float
        Per unit of the index's distance.
    recovery : float
        In place of epsilon: the largest share of content words that an attacker who guesses word by word may recover; see
        :func:`textpriv.guarantees.epsilon.choose_epsilon`.
    index : Index or path, optional
        Default: the built-in index of the language (:meth:`Index.builtin`).
    language : str, optional
        A spaCy language code, for the tokenizer. Default: that of the index.
    policy : TokenPolicy, optional
        What becomes of punctuation, numbers, unknown words and case. Default: ``TokenPolicy()``.

    Returns
    -------
    str or list of str
        One text for each that was given, in order. ``Privatizer(...).statement`` says what is guaranteed.

    Raises
    ------
    TextprivError
        Without an epsilon or a recovery, with both, or if the index or the language cannot be used.

    Examples
    --------
    >>> private = privatize("The patient was admitted with chest pain.", epsilon=3.0)
    >>> private.endswith(".")
    True
    """
    name = f"{BUILTIN}{language or DEFAULT_LANGUAGE}" if index is None else index
    if epsilon is not None and recovery is not None:
        raise MechanismError("privatize takes an epsilon or a recovery, not both.")
    if epsilon is None and recovery is None:
        raise MechanismError(f"privatize(texts, recovery=...): {NO_DEFAULT}")
    opened = name if isinstance(name, Index) else open_index(name)
    if epsilon is None:
        from textpriv.guarantees.epsilon import epsilon_for

        epsilon = epsilon_for(opened, recovery=recovery)
    private = Privatizer(default_mechanism(opened, epsilon), policy, language=language)
    return private.privatize(texts) if isinstance(texts, str) else list(private.pipe(texts))
