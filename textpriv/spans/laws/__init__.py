"""Laws of typed spans, one a file, and the registry by which policies and the audit kit find them.

A registered law is a class of :mod:`textpriv.spans.laws.base`, called with its settings. Other distributions add
theirs by the entry point group ``textpriv_span_laws``, under a name of their own.
"""

from __future__ import annotations

import catalogue

from textpriv.spans.laws.base import Scopes, SpanClaim, SpanLaw

__all__ = ["Scopes", "SpanClaim", "SpanLaw", "registry"]

registry = catalogue.create("textpriv", "span_laws", entry_points=True)
