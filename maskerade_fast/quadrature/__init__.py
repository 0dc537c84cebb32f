"""Bayesian quadrature: the problem, the surrogate of its likelihood, the evidence and where to evaluate next."""
