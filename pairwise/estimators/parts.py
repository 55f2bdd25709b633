"""A warning of parts that read labels: cross-validation and bootstraps whose fits no budget covers.

A charge is for a data set and its neighbours. If a splitter reads the labels, one changed label moves other records from one
part to another, and a fit on a part then moves further than its noise is made for. A bootstrap repeats records.
"""

from __future__ import annotations

import traceback

from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import (
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)

from pairwise.errors import warn_user
from pairwise.statement import UnsoundWarning

_READ_LABELS = (
    StratifiedKFold,
    StratifiedShuffleSplit,
    StratifiedGroupKFold,
    RepeatedStratifiedKFold,
)
_STRATIFIED = (
    "{} chooses the parts by private labels, so one changed label moves several records and no budget covers the fits. Pass "
    "cv=KFold(...), which reads neither records nor labels. A number means StratifiedKFold for a classifier."
)
_REPEATED = (
    "a bootstrap repeats records, so one changed record moves the fit further than its noise is made for. Pass "
    "bootstrap=False and a budget, or fit the learner itself."
)


def warn_of_parts() -> None:
    """Warn if scikit-learn, further up the stack of a fit, chose the records by labels or repeats them.

    Only what runs in this thread is seen. A table that was split before is not: ``train_test_split(stratify=y)``.
    """
    for frame, _ in traceback.walk_stack(None):
        if not str(frame.f_globals.get("__name__")).startswith("sklearn."):
            continue
        for value in frame.f_locals.values():
            if isinstance(value, _READ_LABELS):
                message = _STRATIFIED.format(type(value).__name__)
            elif isinstance(value, BaggingClassifier) and value.bootstrap:
                message = _REPEATED
            else:
                continue
            warn_user(message, UnsoundWarning)
            return
