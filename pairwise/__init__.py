"""Private pairwise learning: metric learning and AUC maximisation under differential privacy.

This package knows nothing of text. It shares a distribution with ``textpriv`` and imports none of it.
"""

from __future__ import annotations

__all__: list[str] = []
