"""What releases cost: events, the Gaussian and zCDP formulas, the accountant and the budget."""
