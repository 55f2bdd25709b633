"""Accounting: what releases cost, one by one and together."""

from __future__ import annotations

from pairwise.accounting.accountant import epsilon_of, zcdp_cost
from pairwise.accounting.budget import Charge, PrivacyBudget
from pairwise.accounting.calibration import (
    calibrate,
    group_poisson_sigma,
    poisson_sigma,
    sampled_sigma,
)
from pairwise.accounting.events import (
    Adjacency,
    ApproximateDpEvent,
    compose,
    gaussian_event,
    group_poisson_event,
    poisson_event,
    pure_event,
    sampled_event,
)
from pairwise.accounting.gaussian import (
    check_privacy_parameters,
    default_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_sigma,
    total_mu,
)
from pairwise.accounting.zcdp import (
    release_mu,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_epsilon_classic,
    zcdp_rho,
    zcdp_rho_classic,
)

__all__ = [
    "Adjacency",
    "ApproximateDpEvent",
    "Charge",
    "PrivacyBudget",
    "calibrate",
    "check_privacy_parameters",
    "compose",
    "default_delta",
    "epsilon_of",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_event",
    "gaussian_mu",
    "gaussian_sigma",
    "group_poisson_event",
    "group_poisson_sigma",
    "poisson_event",
    "poisson_sigma",
    "pure_event",
    "release_mu",
    "sampled_event",
    "sampled_sigma",
    "total_mu",
    "zcdp_cost",
    "zcdp_delta",
    "zcdp_epsilon",
    "zcdp_epsilon_classic",
    "zcdp_rho",
    "zcdp_rho_classic",
]
