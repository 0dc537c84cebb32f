"""maskerade_fast: Gaussian processes marginalised over spectral mixture kernels, by Bayesian quadrature."""

__version__ = "0.1.0"
