"""Algorithms: one private learner a file, without an estimator's interface."""
