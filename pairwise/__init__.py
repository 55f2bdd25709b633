"""Private pairwise learning: metric learning and AUC maximisation under differential privacy.

This package knows nothing of text. It shares a distribution with ``textpriv`` and imports none of it. Names are loaded when
they are first used, so that importing the package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Adjacency": "accounting",
    "BudgetClosed": "errors",
    "BudgetExceeded": "errors",
    "DPPMetricLearner": "estimators.dpp",
    "PairGraph": "pairs.graph",
    "PairwiseError": "errors",
    "PrivacyBudget": "accounting",
    "PrivacyStatement": "statement",
    "PrivateAUCClassifier": "estimators.auc",
    "PrivateLDA": "estimators.lda",
    "PrivateMail": "estimators.mail",
    "PrivateMetricLearner": "estimators.metric",
    "PrivateScorer": "selection",
    "PublicScaler": "scaling",
    "SubsetQuery": "retrieval.subset",
    "TrialCount": "selection",
    "UnsoundWarning": "statement",
    "check_pipeline": "scaling",
    "get_loss": "pairs.losses",
    "private_selection": "selection",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
