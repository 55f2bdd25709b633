"""Settings from which any process builds the same Privatizer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textpriv.privatizer import Privatizer

__all__ = ["PrivatizerSettings"]


@dataclass(frozen=True)
class PrivatizerSettings:
    """An index path and plain values from which a process builds a Privatizer.

    Attributes
    ----------
    index
        Path of a saved index folder, which each process maps into memory; "builtin:en" is the built-in index.
    mechanism
        Registered name, such as ``"textpriv.TEM.v1"``, or the short one of the commands, such as ``"tem"``.
    options
        The mechanism's arguments, such as ``{"epsilon": 6.0}`` (epsilon in units of 1/distance).
    policy
        Fields of TokenPolicy; those left out keep their defaults.
    seed
        For experiments only; None for secret randomness.
    run_key
        32 random bytes that every process shares. Not used with a ledger.
    key_file
        Path of a run key that each process reads for itself, in place of ``run_key``.
    ledger
        Path of the ledger that counts every document.
    document_limit, document_nats_limit, author_limit, document_rho_limit, author_rho_limit
        The ledger's limits, as in :class:`textpriv.ledger.Ledger`.
    language
        spaCy's code of the language whose rules tokenize the texts; None for that of the index.
    spans
        The policy of typed spans, as :meth:`textpriv.spans.policy.SpanPolicy.from_dict` reads it; None for words alone.
    detect
        Names of the detectors, as :func:`textpriv.spans.detectors.make_detector` knows them.
    """

    index: str = "builtin:en"
    mechanism: str = "textpriv.TEM.v1"
    options: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    run_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    key_file: str | None = None
    ledger: str | None = None
    document_limit: float | None = None
    document_nats_limit: float | None = None
    author_limit: float | None = None
    language: str | None = None
    document_rho_limit: float | None = None
    author_rho_limit: float | None = None
    spans: Mapping[str, Any] | None = None
    detect: tuple[str, ...] = ()

    def build(self) -> Privatizer:
        """Load the index and build the Privatizer.

        Raises
        ------
        TextprivError
            If the index, the mechanism, the policy or the key file cannot be used.
        """
        from textpriv.index.builtin import open_index
        from textpriv.mechanisms import find_mechanism
        from textpriv.privatizer import Privatizer
        from textpriv.tokenization.policy import TokenPolicy

        mechanism = find_mechanism(self.mechanism)(**self.options)(open_index(self.index))
        policy = TokenPolicy.from_dict(dict(self.policy))
        more: dict[str, Any] = {"language": self.language, "seed": self.seed}
        if self.spans is not None:
            from textpriv.spans.detectors import make_detector
            from textpriv.spans.policy import SpanPolicy

            language = self.language or mechanism.index.language or "en"
            more["spans"] = SpanPolicy.from_dict(self.spans)
            more["detector"] = [make_detector(name, language) for name in self.detect]
        if self.ledger is not None:
            from textpriv.ledger.ledger import LIMITS, Ledger

            more["ledger"] = Ledger(self.ledger, **{name: getattr(self, name) for name in LIMITS})
        elif self.seed is None:
            more["run_key"] = self.secret()
        return Privatizer(mechanism, policy, **more)

    def __repr__(self) -> str:
        usual = PrivatizerSettings(run_key=b"")
        shown = (field.name for field in fields(self) if field.repr)
        changed = [name for name in shown if getattr(self, name) != getattr(usual, name)]
        return f"PrivatizerSettings({', '.join(f'{n}={getattr(self, n)!r}' for n in changed)})"

    def secret(self) -> bytes:
        """Return the run key itself."""
        if self.key_file is None:
            return self.run_key
        from textpriv.run_key import read_run_key

        return read_run_key(self.key_file)

    def without_secret(self) -> PrivatizerSettings:
        """Return the same settings with the key only by its file, ready to travel between machines."""
        return self if self.key_file is None else replace(self, run_key=b"")
