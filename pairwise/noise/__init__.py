"""Noise: a cryptographic source, and what is drawn from it."""

from __future__ import annotations

from pairwise.noise.continuous import (
    duchi,
    duchi_scale,
    gaussian,
    laplace,
    staircase,
    staircase_l1,
    staircase_start,
)
from pairwise.noise.discrete import discrete_gaussian, discrete_laplace, exponential_choice
from pairwise.noise.lattice import (
    LatticePlan,
    lattice_gaussian,
    lattice_gaussian_plan,
    lattice_laplace,
    lattice_laplace_plan,
)
from pairwise.noise.randomness import (
    CHEAP_PATH_NOTE,
    HARDENED_LARGE_NOTE,
    HARDENED_NOTE,
    Randomness,
)
from pairwise.noise.release import (
    ChoicePlan,
    GaussianPlan,
    LaplacePlan,
    PlannedRelease,
    plan_choice,
    plan_gaussian,
    plan_laplace,
)

__all__ = [
    "CHEAP_PATH_NOTE",
    "HARDENED_LARGE_NOTE",
    "HARDENED_NOTE",
    "ChoicePlan",
    "GaussianPlan",
    "LaplacePlan",
    "LatticePlan",
    "PlannedRelease",
    "Randomness",
    "discrete_gaussian",
    "discrete_laplace",
    "duchi",
    "duchi_scale",
    "exponential_choice",
    "gaussian",
    "laplace",
    "lattice_gaussian",
    "lattice_gaussian_plan",
    "lattice_laplace",
    "lattice_laplace_plan",
    "plan_choice",
    "plan_gaussian",
    "plan_laplace",
    "staircase",
    "staircase_l1",
    "staircase_start",
]
