"""Information that candidates carry about the evidence, with its gradient (mathematics.md section 7).

With ``u`` the node weights times the surrogate's mean there, the covariance of Z with the surrogate at candidates B is
``c = kappa(B, S) u - kappa(B, Theta) K^-1 kappa(Theta, S) u``: one product of ``kappa(B, [S, Theta])`` with the
coefficients that `integrate` keeps. The cotangent of that product is a rank-one matrix, so a gradient costs about as
much as a value.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_solve

from .._checks import Array
from .._containers import cached_property
from ..backends import single_threaded_blas
from ..model.gmm import GMMBatch, GMMGradient
from .evidence import Evidence
from .surrogate import Surrogate

# Squared correlations reach 1 only by rounding; beyond this the information would be infinite.
_MOST_EXPLAINED = 1.0 - 1e-12
# Variances of z below this fraction of the output scale are rounding: they occur only where the jitter is 0.
_ROUNDING = 1e-13


@single_threaded_blas()
def mutual_information(
    surrogate: Surrogate, evidence: Evidence, candidates: GMMBatch, batch: bool = False
) -> Array | float:
    """Information, in nats, that the surrogate's value at `candidates` carries about the evidence.

    Parameters
    ----------
    surrogate, evidence
        The surrogate and ``integrate(surrogate, nodes, node_weights)``.
    candidates : GMMBatch of b mixtures
        Where the surrogate's mixtures live.
    batch : bool
        True: one number for all together; False: shape (b,), each by itself.

    Raises
    ------
    ValueError
        With `batch`, if the candidates' covariance is not positive definite.
    """
    if batch:
        try:
            return Information(surrogate, evidence).value_and_pullback(candidates)[0] if len(candidates) else 0.0
        except np.linalg.LinAlgError:
            raise ValueError(
                "candidates: their covariance is not positive definite; raise the surrogate's `jitter`, or leave out "
                "mixtures that repeat others"
            ) from None
    covariance = surrogate.kernel_matvec(candidates, evidence.support, evidence.coefficients)
    _, variance = surrogate.mean_and_variance(candidates)
    # Without jitter an observation has variance 0, up to rounding: a second evaluation there tells nothing.
    certain = variance <= _ROUNDING * surrogate.outputscale
    return _nats(np.where(certain, 0.0, covariance**2 / np.where(certain, 1.0, variance)), evidence.variance)


class Information:
    """Information of a whole batch about Z, with its gradient.

    With ``a = Sigma^-1 c`` and ``rho^2 = c.a / V``: ``d rho^2 = (2 a.dc - a dSigma a) / V``, and
    ``a dSigma a = a dkappa_BB a - 2 a dkappa_BT (K^-1 kappa_TB a)``. So the cotangent of kappa(B, [S, Theta]) is the
    outer product of a with one row.
    """

    def __init__(self, surrogate: Surrogate, evidence: Evidence) -> None:
        self.surrogate, self.evidence = surrogate, evidence
        self.support = evidence.support

    @cached_property
    def on_host(self) -> Information:
        """This information for batches on the host."""
        other = Information(self.surrogate.on_host, self.evidence)
        if other.surrogate is not self.surrogate:
            other.support = other.surrogate.prepare(self.support.batch.to("cpu"))
        return other

    def value_and_pullback(self, batch: GMMBatch) -> tuple[float, Callable[[], GMMGradient | None]]:
        """The value, and a function that computes its gradient; None for a gradient of 0.

        Raises
        ------
        numpy.linalg.LinAlgError
            If the batch repeats a mixture to the last digit.
        """
        s, e = self.surrogate, self.evidence
        prepared = s.prepare(batch)
        cross, pullback_cross = s.kernel_pullback(prepared, self.support)
        own, pullback_own = s.kernel_pullback(prepared)
        m = len(e.nodes)
        white = s.whiten(cross[:, m:].T)
        c = cross @ e.coefficients
        factor = np.linalg.cholesky(s._conditioned(own, white))
        a = cho_solve((factor, True), c)
        explained = float(c @ a)
        value = float(_nats(np.array(explained), e.variance))

        def pullback() -> GMMGradient | None:
            rest = e.variance - explained
            if not rest > (1.0 - _MOST_EXPLAINED) * e.variance:
                return None
            row = 2.0 * e.coefficients
            row[m:] += 2.0 * s.solve_transposed(white @ a)
            return _sum(pullback_cross(np.outer(0.5 * a / rest, row)), pullback_own(np.outer(-0.5 * a / rest, a)))

        return value, pullback

    def value_and_gradient(self, batch: GMMBatch) -> tuple[float, GMMGradient | None]:
        """The value and its gradient; minus infinity and None for a batch that repeats a mixture to the last digit."""
        try:
            value, pullback = self.value_and_pullback(batch)
        except np.linalg.LinAlgError:
            return -np.inf, None
        return value, pullback()


class GreedyInformation:
    """Batches picked one by one from a pool: each new point conditions variances and covariances of the rest.

    The pool is on the host. Its hyper-kernels with observations and nodes are computed where the surrogate's mixtures
    live, those with each new pick on the host.
    """

    def __init__(self, surrogate: Surrogate, evidence: Evidence, pool: GMMBatch) -> None:
        placed = surrogate.prepare(surrogate.beside(pool))
        self.surrogate, self.pool = surrogate.on_host, pool
        self.prepared = placed if surrogate.on_host is surrogate else self.surrogate.prepare(pool)
        self.white = surrogate.whiten(surrogate.kernel(surrogate.prepared, placed))
        self.variance = surrogate.prior_variance - np.einsum("ij,ij->j", self.white, self.white)
        self.covariance = surrogate.kernel_matvec(placed, evidence.support, evidence.coefficients)

    def pick(self, subset: Array, size: int) -> Array:
        """Indices into the pool of `size` members of `subset`."""
        white, variance, covariance = self.white[:, subset], self.variance[subset], self.covariance[subset]
        floor = max(1e-3 * self.surrogate.jitter, _ROUNDING) * self.surrogate.outputscale
        columns = np.empty((0, len(subset)))
        picked: list[int] = []
        for _ in range(size):
            gain = np.where(variance > floor, covariance**2 / np.maximum(variance, floor), -np.inf)
            gain[picked] = -np.inf
            i = int(np.argmax(gain))
            picked.append(i)
            cross = self.surrogate.kernel(self.pool[subset[[i]]], self.prepared)[0, subset]
            column = cross - white.T @ white[:, i] - columns.T @ columns[:, i]
            column = column / np.sqrt(max(variance[i], floor))
            covariance = covariance - column * (covariance[i] / np.sqrt(max(variance[i], floor)))
            variance = variance - column**2
            columns = np.vstack([columns, column])
        return subset[picked]


def _nats(explained: Array, variance: float) -> Array:
    """-log(1 - rho^2) / 2 for the part of `variance` that is explained."""
    if not variance > 0.0:
        return np.zeros_like(explained)
    return -0.5 * np.log1p(-np.clip(explained / variance, 0.0, _MOST_EXPLAINED))


def _sum(a: GMMGradient, b: GMMGradient) -> GMMGradient:
    noise = None
    if a.noise_variance is not None and b.noise_variance is not None:
        noise = a.noise_variance + b.noise_variance
    return GMMGradient(a.weights + b.weights, a.means + b.means, a.scales + b.scales, noise)
