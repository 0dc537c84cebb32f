"""The GPU backend: the operations of `backends.contract` on CuPy arrays, by the CUDA sources of `kernels/`.

Importing it needs CuPy, a driver and a card; without them it raises `BackendUnavailableError` with the cause.
"""

from typing import TYPE_CHECKING

from . import _loader as _loader  # first: it says what is missing before another module imports cupy
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

if TYPE_CHECKING:  # mypy compares this module with the contract
    from .. import gpu
    from ..contract import Backend

    _backend: Backend = gpu
