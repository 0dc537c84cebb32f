"""The CPU backend: Numba kernels on NumPy arrays, in float64, spread over threads by `_parallel`."""

from pathlib import Path
from typing import TYPE_CHECKING

from ._cache import discard_stale
from ._jit import cache_folder
from .cholesky import cholesky
from .distances import pairwise_distance, pairwise_distance_vjp, prepare_atoms
from .gp import predict_gp
from .gram import gram
from .hyperkernel import covariance_from_distance, hyperkernel, hyperkernel_matvec
from .likelihood import log_likelihood
from .mixture_prediction import joint_pair_moments, pair_cdf, pair_draws, pair_log_density, pair_moments, pair_quantiles
from .toeplitz import toeplitz_log_likelihood, toeplitz_predict_gp

__all__ = [
    "cholesky",
    "covariance_from_distance",
    "gram",
    "hyperkernel",
    "hyperkernel_matvec",
    "joint_pair_moments",
    "log_likelihood",
    "pair_cdf",
    "pair_draws",
    "pair_log_density",
    "pair_moments",
    "pair_quantiles",
    "pairwise_distance",
    "pairwise_distance_vjp",
    "predict_gp",
    "prepare_atoms",
    "toeplitz_log_likelihood",
    "toeplitz_predict_gp",
]

# Loops are compiled, or read from the disk cache, at their first call: until now nothing was.
if (folder := cache_folder()) is not None:
    discard_stale(folder, Path(__file__).parent)

if TYPE_CHECKING:  # mypy compares this module with the contract
    from .. import cpu
    from ..contract import Backend

    _backend: Backend = cpu
