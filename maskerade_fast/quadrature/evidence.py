"""Evidence as the integral of the surrogate over low-discrepancy nodes (mathematics.md section 6).

The nodes and their weights represent the reference measure q: ``Z = integral of f dq`` with ``f = likelihood * prior /
q``. The formulas are the same for every q.

Where the mixtures live on a GPU, hyper-kernels are computed there. The h x m matrix between observations and nodes is
copied to the host once: it is used in one triangular solve and in products with vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import qr

from .._checks import Array, check_size, float_array, is_cupy
from .._containers import built, cached_property, own_arrays, short_repr
from .._memory import require_bytes
from ..backends import single_threaded_blas, to_host
from ..model.gmm import GMMBatch, concat
from ..ops.hyperkernel import PreparedBatch
from .surrogate import Surrogate

MOST_SECONDS = 600.0  # of one integral on one core
_SECONDS_PER_PAIR = 3e-10  # of two components, in one to five dimensions


@dataclass(frozen=True, eq=False)
class Evidence:
    """Posterior of ``Z = integral of f dq`` under a surrogate with h observations, on m nodes.

    Attributes
    ----------
    mean, variance : float
        Of Z, in units of ``exp(log_offset)`` and its square.
    log_evidence, log_evidence_sd : float
        log of the mean, offset added, and the sd of log Z if Z is log-normal: sqrt(log(1 + variance / mean^2)). Minus
        infinity and infinity where the mean is 0.
    weights : array, shape (h, h)
        Q, so that ``mean = epsilon * sum(node_weights) + z Q z / 2``; positive semi-definite.
    sizes : array, shape (k,)
        Numbers of components that occur among the nodes.
    mean_by_size : array, shape (k,)
        Share of `mean` that each size contributes, under the prior p(n) Z_n; they add up to `mean`.
    nodes, node_weights, node_values : GMMBatch of m, arrays of shape (m,)
        `node_values` is the surrogate's mean of f at each node, in units of ``exp(log_offset)``.
    support, coefficients : PreparedBatch of m + h, array of shape (m + h,)
        Nodes and observations, and the vector for which ``kappa(B, support) @ coefficients`` is the covariance of Z
        with the surrogate at mixtures B.
    """

    mean: float
    variance: float
    log_evidence: float
    log_evidence_sd: float
    weights: Array
    sizes: Array
    mean_by_size: Array
    log_offset: float
    nodes: GMMBatch
    node_weights: Array
    node_values: Array
    support: PreparedBatch
    coefficients: Array
    _rotated: Array
    _surrogate: Surrogate

    def __post_init__(self) -> None:
        own_arrays(self)

    __repr__ = short_repr

    @cached_property
    @single_threaded_blas()
    def factor(self) -> Array:
        """F of shape (h, min(h, m)) with ``weights = F F^T``, by QR, so that no digits are squared away."""
        r = qr(self._rotated.T, mode="r", check_finite=False)[0][: min(self._rotated.shape)]
        return self._surrogate.solve_transposed(r.T)


@single_threaded_blas()
def integrate(surrogate: Surrogate, nodes: GMMBatch, node_weights: Any) -> Evidence:
    """Integrate the surrogate's f over weighted nodes.

    Parameters
    ----------
    surrogate : Surrogate of h observations
    nodes : GMMBatch of m >= 1 mixtures
        Where the surrogate's mixtures live.
    node_weights : array, shape (m,)
        Non-negative, up to 1e150; a measure's draws have weights that sum to 1.

    Raises
    ------
    ValueError
        For weights that are negative, all 0, too large or too few; for nodes on the CPU whose integral takes more than
        `MOST_SECONDS` (600) on one core.
    MemoryError
        If h x m matrices have no room in half of the free memory.

    Notes
    -----
    About ``3e-10 J^2`` seconds on one core for nodes of J components in all, and O(m h^2); the m x m covariance of the
    nodes is streamed, never stored. With ``u = v * mu``, the integral is ``u^T mu / 2 + epsilon`` and its variance
    ``u^T kappa u - |K^(-1/2) kappa(Theta, S) u|^2``.
    """
    node_weights = to_host(float_array(node_weights, "node_weights", ndim=1, dtype=np.float64, own=True))
    if len(node_weights) != len(nodes) or len(nodes) == 0:
        raise ValueError(f"node_weights: {len(node_weights)} for {len(nodes)} nodes, expected as many, at least 1")
    if not node_weights.any():
        raise ValueError("node_weights: all 0, expected at least one > 0")
    check_size(node_weights, "node_weights")
    if (node_weights < 0.0).any():
        raise ValueError(f"node_weights[{int(np.argmax(node_weights < 0.0))}]: negative, expected >= 0")
    _require_room(surrogate, nodes)
    prepared = surrogate.prepare(nodes)
    white = surrogate.whiten(surrogate.kernel(surrogate.prepared, prepared))
    mu = white.T @ surrogate.whitened
    u = node_weights * mu
    values = surrogate.epsilon + 0.5 * mu**2
    mean = float(node_weights @ values)

    white_u = white @ u
    alpha = surrogate.solve_transposed(white_u)
    prior_part = float(u @ surrogate.kernel_matvec(prepared, prepared, u))
    # With alpha = K^-1 kappa(Theta, S) u this difference, of near-equal numbers once the observations explain Z, is
    # (u, -alpha) kappa (u, -alpha) + jitter |alpha|^2: the last term alone is a bound that rounding cannot go below.
    least = surrogate.jitter * surrogate.outputscale * float(alpha @ alpha)
    variance = max(prior_part - float(white_u @ white_u), least)

    rotated = white * np.sqrt(node_weights)
    left = surrogate.solve_transposed(rotated @ rotated.T)
    weights = surrogate.solve_transposed(left.T)
    sizes, member = np.unique(nodes.n_components, return_inverse=True)
    # All nodes may be so far from the observations that the surrogate underflows there: log Z is then unknown.
    log_mean, sd = -math.inf, math.inf
    if mean > 0.0:
        log_mean, sd = math.log(mean), log_sd(math.sqrt(variance) / mean)
    return built(
        Evidence,
        mean=mean,
        variance=variance,
        log_evidence=log_mean + surrogate.log_offset,
        log_evidence_sd=sd,
        weights=0.5 * (weights + weights.T),
        sizes=sizes,
        mean_by_size=np.bincount(member, weights=node_weights * values),
        log_offset=surrogate.log_offset,
        nodes=nodes,
        node_weights=node_weights,
        node_values=values,
        support=surrogate.prepare(concat([nodes, surrogate.mixtures])),
        coefficients=np.concatenate([u, -alpha]),
        _rotated=rotated,
        _surrogate=surrogate,
    )


def log_sd(relative_sd: float) -> float:
    """Standard deviation of the log of a log-normal number, from its relative standard deviation."""
    return math.sqrt(math.log1p(min(relative_sd, 1e150) ** 2))  # the square is finite


def integral_seconds(components: float) -> float:
    """Seconds that one integral over nodes of so many components in all takes on one core, about."""
    return _SECONDS_PER_PAIR * components**2


def _require_room(surrogate: Surrogate, nodes: GMMBatch) -> None:
    """Raise ValueError for nodes whose integral takes too long, MemoryError where it needs more memory than is free."""
    components = len(nodes.weights)
    seconds = integral_seconds(components)
    needed = 3 * 8 * len(surrogate.z) * len(nodes)
    if seconds > MOST_SECONDS and not is_cupy(nodes.weights):
        raise ValueError(
            f"nodes: {len(nodes)} of {components} components need about {needed} bytes and {seconds:.0f} s on one "
            f"core, expected at most {MOST_SECONDS:.0f} s; give fewer nodes"
        )
    require_bytes(needed, f"nodes: {len(nodes)} beside {len(surrogate.z)} observations")
