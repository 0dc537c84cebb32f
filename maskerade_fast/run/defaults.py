"""Defaults that both `marginalise` and the command line have."""

BUDGET = 500
"""Likelihoods to evaluate."""
MAX_COMPONENTS = 5
"""Size of the largest mixture."""
TREND = "linear"
"""Added to the Gaussian process; docs/measured/evidence.md has its effect on evidence and forecasts."""
