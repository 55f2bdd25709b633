"""Presidio's interface: an operator by which ``AnonymizerEngine`` draws what an analyzer found.

Presidio's engine releases what its analyzer misses as it was written, so the privatizer must say so.
"""

from __future__ import annotations

from typing import Any

from textpriv.errors import SpanError, how_to_install
from textpriv.ledger import DocumentName
from textpriv.spans.policy import UNDETECTED_PASS

try:
    from presidio_anonymizer.operators import Operator, OperatorType
except ImportError:
    raise SpanError(
        f"Presidio's anonymizer is not installed: {how_to_install('presidio')}."
    ) from None


class TextprivOperator(Operator):
    """The operator "textpriv": a span becomes a private surface by the mechanism of its kind.

    Its parameters are ``privatizer``, a Privatizer whose policy of spans has ``undetected="pass what the detector misses"``,
    ``document``, a name for each text, within which consistent mechanisms draw the same again, and optionally ``author``.
    """

    def operate(self, text: str = "", params: dict[str, Any] | None = None) -> str:
        """Return the private surface of a span."""
        given = params or {}
        key = DocumentName(given["document"], given.get("author"))
        return given["privatizer"].privatize_span(text, given["entity_type"], key)

    def validate(self, params: dict[str, Any] | None = None) -> None:
        """Refuse a privatizer that promises what Presidio does not do, and a document without a name."""
        given = params or {}
        spans = getattr(given.get("privatizer"), "spans", None)
        if spans is None or spans.policy.undetected != UNDETECTED_PASS:
            raise SpanError(
                "Presidio releases what its analyzer misses as it was written. Give a privatizer whose policy of spans "
                f'names that, undetected="{UNDETECTED_PASS}"; or have a Privatizer read the texts, with PresidioDetector.'
            )
        if given.get("document") is None:
            raise SpanError(
                "the operator needs the name of the document, or all texts would share one date shift and one table of "
                'names. Add "document" to its parameters, another for each text.'
            )

    def operator_name(self) -> str:
        """Its name among Presidio's operators."""
        return "textpriv"

    def operator_type(self) -> OperatorType:
        """One that makes anonymous."""
        return OperatorType.Anonymize
