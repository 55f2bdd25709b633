"""Presidio's interface: an operator by which ``AnonymizerEngine`` draws what an analyzer found.

Presidio's engine releases everything that its analyzer misses as it was written, so the privatizer must say so. To have
those words drawn as well, give texts to a :class:`textpriv.Privatizer` with a
:class:`textpriv.spans.detectors.PresidioDetector`.
"""

from __future__ import annotations

from typing import Any

from textpriv.errors import SpanError
from textpriv.ledger.ledger import Document
from textpriv.spans.detectors import missing
from textpriv.spans.policy import UNDETECTED_PASS

try:
    from presidio_anonymizer.operators import Operator, OperatorType
except ImportError:
    raise missing("Presidio's anonymizer", "presidio") from None

__all__ = ["TextprivOperator"]


class TextprivOperator(Operator):
    """The operator "textpriv": a span becomes a private surface by the law of its kind.

    Its parameters are ``privatizer``, a Privatizer whose policy of spans has ``undetected="pass what the detector misses"``,
    and optionally ``document`` and ``author``, names within which consistent laws draw the same again. What is guaranteed is
    ``privatizer.statement``.
    """

    def operate(self, text: str = "", params: dict[str, Any] | None = None) -> str:
        """Return the private surface of a span."""
        given = params or {}
        key = Document(given.get("document", 0), given.get("author"))
        return given["privatizer"].privatize_span(text, given["entity_type"], key)

    def validate(self, params: dict[str, Any] | None = None) -> None:
        """Refuse a privatizer that promises what Presidio does not do.

        Raises
        ------
        SpanError
            If there is none, or its policy does not say that words pass.
        """
        spans = getattr((params or {}).get("privatizer"), "spans", None)
        if spans is None or spans.policy.undetected != UNDETECTED_PASS:
            raise SpanError(
                "Presidio releases what its analyzer misses as it was written. Give a privatizer whose policy of spans "
                f'names that, undetected="{UNDETECTED_PASS}"; or have a Privatizer read the texts, with PresidioDetector.'
            )

    def operator_name(self) -> str:
        """Its name among Presidio's operators."""
        return "textpriv"

    def operator_type(self) -> OperatorType:
        """One that makes anonymous."""
        return OperatorType.Anonymize
