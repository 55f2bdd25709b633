"""Estimators: scikit-learn's interface over plans and algorithms."""
