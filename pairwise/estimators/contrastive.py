"""What learners of contrastive metrics share: their options checked, and the task that is planned for.

The options stand in ``pairwise.algorithms.options``, what a task releases in ``pairwise.algorithms.contrastive_plans``.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from pairwise.algorithms.contrastive_plans import ContrastiveTask
from pairwise.algorithms.options import ContrastiveOptions, Edges, Matching, NodeDP
from pairwise.algorithms.published.dpp import VARIANTS
from pairwise.errors import InvalidParameterError
from pairwise.noise.continuous import check_number, check_positive, check_whole

__all__ = ["check_contrastive", "contrastive_task", "unread_with_init"]

# What each option may be; ``None`` also where its default is None.
_CHOICES: dict[str, tuple[Any, ...]] = {
    "variant": VARIANTS,
    "topology": ("private", "public"),
    "relationship": ("transitive", "intransitive"),
    "adjacency": ("zero-out", "replace-one"),
    "noise": ("gaussian", "laplace", "staircase", "duchi"),
}
_POSITIVE = ("margin", "clip", "learning_rate", "sampling_rate")
_WHOLE = ("n_steps", "n_batches", "batch_size", "kappa", "n_components")


def check_contrastive(options: ContrastiveOptions, **parameters: Any) -> None:
    """Refuse options, and parameters of a learner whose default is None, out of their range.

    Raises
    ------
    InvalidParameterError
    """
    given = {f.name: (getattr(options, f.name), f.default) for f in fields(options)}
    given |= {name: (value, None) for name, value in parameters.items()}
    for name, (value, default) in given.items():
        if value is None and default is None:
            continue
        if name in _CHOICES and value not in _CHOICES[name]:
            raise InvalidParameterError(
                f"{name} must be one of {', '.join(map(repr, _CHOICES[name]))}; found {value!r}."
            )
        if name in _POSITIVE:
            check_positive(**{name: value})
        if name in _WHOLE:
            check_whole(name, value)
    if isinstance(options, Matching):
        check_number("start_share", options.start_share)
        if not 0 <= options.start_share < 1:
            raise InvalidParameterError(
                f"start_share must be in [0, 1); found {options.start_share!r}. It is the share of the budget for the "
                "initial W."
            )
    if isinstance(options, Edges | NodeDP) and options.sampling_rate > 1:
        raise InvalidParameterError(
            f"sampling_rate must be in (0, 1]; found {options.sampling_rate!r}."
        )


def unread_with_init(options: ContrastiveOptions) -> dict[str, str]:
    """Return what is not read where a public initial W is given, each with the reason."""
    if options.init is None:
        return {}
    return dict.fromkeys(("start_share", "n_components"), "init, which is the start")


def contrastive_task(
    options: ContrastiveOptions,
    *,
    epsilon: float,
    delta: float,
    data_norm: float,
    n_components: int | None,
    n_features: int,
    exact: bool,
    kappa: int = 1,
) -> ContrastiveTask:
    """Return the task of a fit, its W of ``n_components`` rows (None: ``n_features``) or of those of ``options.init``.

    Raises
    ------
    InvalidParameterError
        An initial W of another width, or with numbers that are none.
    """
    rows = n_features if n_components is None else min(int(n_components), n_features)
    if options.init is not None:
        try:
            init = np.array(options.init, dtype=np.float64)
        except (TypeError, ValueError):
            init = np.empty(0)
        if init.ndim != 2 or init.shape[1] != n_features or not np.all(np.isfinite(init)):
            raise InvalidParameterError(
                f"init must be a finite matrix with {n_features} columns; found shape {init.shape}. "
                "It must be public: nothing computed from the private records."
            )
        rows = len(init)
    return ContrastiveTask(
        options=options,
        epsilon=epsilon,
        delta=delta,
        data_norm=data_norm,
        shape=(rows, n_features),
        exact=exact,
        kappa=kappa,
    )
