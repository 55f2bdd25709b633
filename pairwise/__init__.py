"""Private pairwise learning: metric learning and AUC maximisation under differential privacy.

The public names are in ``__init__.pyi``, where type checkers read them. Each is loaded when it is first used, so that
importing the package does not import scikit-learn. Of ``textpriv``, in the same distribution, only statements, the random
stream, transactions of the ledger and the hints of errors are used.
"""

from __future__ import annotations

from textpriv.errors import lazy_names

__getattr__, __all__ = lazy_names(__name__, __file__, "pairwise")


def __dir__() -> list[str]:
    return list(__all__)
