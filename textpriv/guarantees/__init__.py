"""Guarantees: certificates, audits and the choice of epsilon, computed from a mechanism's output distribution and draws."""
