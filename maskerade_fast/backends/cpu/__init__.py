"""The CPU backend: Numba kernels on NumPy arrays, in float64, spread over threads by `_parallel`."""

from .prediction import joint_pair_moments, pair_cdf, pair_log_density, pair_moments, pair_quantiles

__all__ = [
    "joint_pair_moments",
    "pair_cdf",
    "pair_log_density",
    "pair_moments",
    "pair_quantiles",
]
