"""The operations of a backend, written once: what each takes, gives and raises.

`backends.cpu` and `backends.gpu` are modules with these functions, on NumPy and on CuPy arrays. mypy holds both modules
to the protocol `Backend`, and `tests/backends/test_backend_contract.py` compares names, signatures and annotations.
Public functions have checked the arguments; a backend checks only what its own launches need. Arithmetic is in
float64. Bits depend neither on neighbours in a batch, nor on chunks, nor on threads.

Letters: B mixtures of J components in all, in D dimensions; N data, M test points, q basis functions; h Gaussians of a
predictive mixture. A batch comes as the arrays of a `GMMBatch`: offsets (B + 1,), weights (J,), means, scales (J, D).

Distances (mathematics.md section 2) are those of atoms. An atom is a point of R^P, P = 2 D, the scaled mean
followed by the scaled scale of one component, and with weights w

    d(a, b) = c(a, b) - c(a, a)/2 - c(b, b)/2,    c(a, b) = sum_ij w_i w'_j g(p_i, q_j),

where g = ||p - q|| for the energy distance and g = -2 <N(p), N(q)> for the Gaussian MMD. The terms of a pair are added
in one order wherever the pair lies in a batch, and c(a, a) repeats that order: d of equal mixtures is exactly 0.
"""

from __future__ import annotations

from typing import Any, Protocol

from .._checks import Array

__all__ = ["Backend"]


class Backend(Protocol):
    """A module of operations on arrays; `get_backend` chooses it by the type of the arrays."""

    def prepare_atoms(
        self, offsets: Array, weights: Array, points: Array, n_reflect: int = 0, *, bandwidth: float = 0.0,
        mass_correction: bool = False, features: Array | None = None,
    ) -> Any:  # fmt: skip
        """Self terms, masses and moments of every mixture, kept with its atoms.

        Parameters
        ----------
        offsets : (B + 1,) int64, on the host or where the other arrays are
        weights, points : (J,) and (J, P)
        n_reflect : int
            The first so many coordinates are taken with both signs: D for reflected mixtures, else 0.
        bandwidth : float, of the Gaussian MMD; 0 for the energy distance
        mass_correction : bool
            Add (M_a - M_b)(f_a - f_b), M the mass and f the first moment, to the energy distance.
        features : (B, F), optional
            sum_f |features_af - features_bf| is added to the clamped distance.
        Returns
        -------
        atoms
            For the operations of the same backend alone; its `masses` are (B,) float64. It holds float64 copies of
            arrays that are of another type or not contiguous.
        """

    def pairwise_distance(self, a: Any, b: Any = None, *, precision: str = "double") -> Array:
        """Distance of every mixture of `a` to every one of `b`, clamped at 0, plus the features' terms.

        Parameters
        ----------
        a, b
            From `prepare_atoms`, with equal options. Without `b`: `a` with itself, exactly symmetric, diagonal 0.
        precision : {"double", "mixed"}
            "mixed" is for the energy distance alone: float32 for terms and for sums of 8 of them, with absolute errors
            of some 1e-7 of c(a, b), on any scale of coordinates and weights. The CPU computes both alike, in float64.
        Returns
        -------
        (B_a, B_b) float64
        """

    def pairwise_distance_vjp(
        self, a: Any, b: Any, cotangent: Array, distance: Array | None = None
    ) -> tuple[Array, Array]:
        """Gradient of sum(cotangent * pairwise_distance(a, b)) in weights and points of `a`, features left out.

        Where atoms coincide the subgradient 0 is taken. A pair that is clamped at 0, so that features alone make up
        its distance, has gradient 0.

        Parameters
        ----------
        a, b
            From `prepare_atoms`, with equal options.
        cotangent, distance : (B_a, B_b) float64
            `distance` is ``pairwise_distance(a, b)``, where the caller has it.
        Returns
        -------
        weights, points : (J_a,) and (J_a, P) float64
        """

    def hyperkernel(self, a: Any, b: Any = None, *, outputscale: float, lengthscale: float, power: int = 2) -> Array:
        """Covariance outputscale * exp(-d^(power/2) / lengthscale^2) of all pairs of mixtures, in one pass over them.

        Parameters
        ----------
        a, b
            From `prepare_atoms`. Without `b`: `a` with itself, exactly symmetric with `outputscale` on the diagonal.
        outputscale, lengthscale, power : float, float, {1, 2}
            lambda^2, l and q of mathematics.md section 3.
        Returns
        -------
        (B_a, B_b) float64
        """

    def covariance_from_distance(
        self, distance: Array, *, outputscale: float, lengthscale: float, power: int = 2
    ) -> Array:
        """`hyperkernel` of distances that the caller has.

        Parameters
        ----------
        distance : array of any shape, >= 0
        outputscale, lengthscale, power : as for `hyperkernel`
        Returns
        -------
        float64 array of the shape of `distance`
        """

    def hyperkernel_matvec(
        self, a: Any, b: Any, v: Array, *, outputscale: float, lengthscale: float, power: int = 2
    ) -> Array:
        """Product of `hyperkernel(a, b)` with vectors: nothing of size B_a x B_b is formed.

        Parameters
        ----------
        a, b, outputscale, lengthscale, power : as for `hyperkernel`
        v : (B_b, k)
        Returns
        -------
        (B_a, k) float64
        """

    def gram(
        self, offsets: Array, weights: Array, means: Array, scales: Array, X: Array, Y: Array | None, noise: Array, *,
        per_axis: bool,
    ) -> Array:  # fmt: skip
        """Gram matrices of a batch, in float64 and returned in the inputs' type.

        Parameters
        ----------
        offsets, weights, means, scales : arrays of a GMMBatch
        X, Y : (N, D) and (M, D)
            ``Y=None``: X with itself, N >= 1.
        noise : (B or 1, N or 1)
            Added to the diagonal; not read beside Y.
        per_axis : bool
            Product over axes of cosines instead of the cosine of the sum.
        Returns
        -------
        (B, N, M) array
        """

    def cholesky(self, matrices: Array, jitter: float = 0.0) -> tuple[Array, Array, Array]:
        """Lower Cholesky factors of a batch; a matrix that fails is tried again with more jitter on its diagonal.

        A factorisation fails at a pivot of at most N eps max diag, or not finite: all its digits would be rounding.

        Parameters
        ----------
        matrices : (B, N, N)
            Symmetric; the lower triangles are read and nothing is written.
        jitter : float
            The most, as a fraction of the mean diagonal: 1e-4, 1e-2 and 1 times it are tried; 0: none.
        Returns
        -------
        L : (B, N, N)
            NaN in the lower triangle of a matrix whose `info` is not 0.
        info : (B,) int32
            0, or the first k whose pivot fails.
        jitter : (B,)
            What was added to the diagonal for each factor.
        """

    def log_likelihood(
        self, offsets: Array, weights: Array, means: Array, scales: Array, X: Array, y: Array, noise: Array, *,
        basis: Array | None = None, per_axis: bool, jitter: float, grad: bool, max_bytes: int | None,
    ) -> tuple[Array, Array, Array, list[Array] | None]:  # fmt: skip
        """Log-likelihoods of a batch and their gradients, in float64 and returned in the inputs' type.

        Parameters
        ----------
        offsets, weights, means, scales, noise, per_axis : as for `gram`
        X, y : (N, D) and (N,); N >= 1
        basis : (N, q), optional
            Of the trend: each covariance gains ``basis @ basis.T``.
        jitter, grad : float, as for `cholesky`, and bool
        max_bytes : int or None
            Bound on the working memory of all matrices in work together; the results come on top.
        Returns
        -------
        value (B,), info (B,) int32, jitter (B,) : arrays
            `info` and `jitter` as returned by `cholesky`; where `info` is not 0 the value is minus infinity.
        gradients : None, or a list of d weights (J,), d means (J, D), d scales (J, D), d noise (B, 1 or N)
            NaN where `info` is not 0.
        Raises
        ------
        MemoryError
            If one matrix needs more than `max_bytes`.
        """

    def predict_gp(
        self, offsets: Array, weights: Array, means: Array, scales: Array, X: Array, y: Array, noise: Array,
        X_new: Array, *, basis: Array | None = None, basis_new: Array | None = None, per_axis: bool, full: bool,
        jitter: float, max_bytes: int | None,
    ) -> tuple[Array, Array, Array | None, Array]:  # fmt: skip
        """Latent predictions of a batch, in float64 and returned in the inputs' type.

        Parameters
        ----------
        offsets, weights, means, scales, X, y, noise, basis, per_axis, jitter, max_bytes : as for `log_likelihood`
        X_new, basis_new : (M, D) and (M, q)
            Test points and, beside `basis`, its functions there: the trend belongs to the latent function.
        full : bool
            Also the covariance of all test points.
        Returns
        -------
        mean, variance : (B, M)
        covariance : (B, M, M), or None
        info : (B,) int32
            As for `log_likelihood`; -1 where a variance is negative beyond rounding (it is NaN then).
        Raises
        ------
        MemoryError
            If one matrix and its test points, a block of them or all if `full`, need more than `max_bytes`.
        """

    def toeplitz_log_likelihood(
        self, offsets: Array, weights: Array, means: Array, scales: Array, X: Array, y: Array, noise: Array, *,
        basis: Array | None = None, jitter: float, grad: bool, max_bytes: int | None,
    ) -> tuple[Array, Array, Array, list[Array] | None]:  # fmt: skip
        """`log_likelihood` on a regular grid of one dimension, in O(N^2) time and O(N) memory.

        Parameters
        ----------
        offsets, weights, means, scales, y, basis, jitter, grad, max_bytes : as for `log_likelihood`
        X, noise : (N, 1), equally spaced and ascending, and (B or 1, 1)
        Returns
        -------
        value, info, jitter, gradients : as of `log_likelihood`, which raises alike
        """

    def toeplitz_predict_gp(
        self, offsets: Array, weights: Array, means: Array, scales: Array, X: Array, y: Array, noise: Array,
        X_new: Array, *, basis: Array | None = None, basis_new: Array | None = None, full: bool, jitter: float,
        max_bytes: int | None,
    ) -> tuple[Array, Array, Array | None, Array]:  # fmt: skip
        """`predict_gp` from data on a regular grid of one dimension.

        Parameters
        ----------
        offsets, weights, means, scales, y, basis, basis_new, full, jitter, max_bytes : as for `predict_gp`
        X, noise : as for `toeplitz_log_likelihood`
        X_new : (M, 1), any points, also off the grid
        Returns
        -------
        mean, variance, covariance, info : as of `predict_gp`, which raises alike
        """

    def pair_moments(self, pair_weights: Array, means: Array, variances: Array) -> tuple[Array, Array, Array]:
        """Normaliser, mean and variance of sum_ij W_ij sqrt(N_i N_j) at each of M points (mathematics.md section 8).

        Parameters
        ----------
        pair_weights : (h, h)
            W, symmetric and positive semi-definite.
        means, variances : (h, M)
            Of the Gaussians N_i at each point, noise included; variances > 0.
        Returns
        -------
        total, mean, variance : (M,) float64
            ``total = sum_ij W_ij s_ij``; where it is not positive the other two are NaN. The variance is never below
            eps times the sum of its terms' magnitudes, a bound of its rounding: it is positive where terms cancel.
        """

    def pair_cdf(self, pair_weights: Array, means: Array, variances: Array, y: Array) -> Array:
        """sum_ij W_ij s_ij P(N(m_ij, V_ij) <= y), not normalised.

        Parameters
        ----------
        pair_weights, means, variances, y : as for `pair_moments`, and (k, M)
        Returns
        -------
        (k, M) float64
        """

    def pair_quantiles(self, pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
        """Quantiles of the normalised mixture, by Newton's method on the logarithm of the smaller tail in a bracket.

        Parameters
        ----------
        pair_weights, means, variances : as for `pair_moments`; every total positive
        levels : (k, M)
            Probabilities in [0, 1]; 0 and 1 give -inf and inf.
        Returns
        -------
        (k, M) float64
            To about 1e-10 predictive standard deviations, or the rounding of the tail sums if larger.
        Notes
        -----
        The bracket starts from Cantelli's inequality; the tail is log-concave for one Gaussian, else bisection helps.
        O(h^2) a step, 4 to 8 steps as a rule.
        """

    def pair_draws(self, pair_weights: Array, means: Array, variances: Array, levels: Array) -> Array:
        """Like `pair_quantiles` for many levels, within 1e-7 in probability.

        The CDF of a point is tabulated once, by cubics between some 200 values; more levels cost no sum over pairs.

        Parameters
        ----------
        pair_weights, means, variances, levels : as for `pair_quantiles`; levels in (0, 1)
        Returns
        -------
        (k, M) float64
        """

    def pair_log_density(self, factor: Array, means: Array, variances: Array, y: Array) -> Array:
        """log sum_ij W_ij sqrt(N_i(y) N_j(y)) with W = F F^T, not normalised.

        The sum is ``|F^T a|^2`` with ``a_i = sqrt(N_i(y))``, scaled by the largest ``|F_i| a_i``: non-negative, and
        finite however far y lies. O(h r) a point.

        Parameters
        ----------
        factor, y : (h, r), which is F, and (M,)
        means, variances : as for `pair_moments`
        Returns
        -------
        (M,) float64
        """

    def joint_pair_moments(
        self, pair_weights: Array, means: Array, covariances: Array, y: Array
    ) -> tuple[float, Array, Array, int]:
        """Normaliser and mean of the joint mixture over n points, and the density of each of its Gaussians.

        One Cholesky factorisation a pair, O(h^2 n^3) time.

        Parameters
        ----------
        pair_weights, means, covariances : (h, h), (h, n) and (h, n, n), positive definite
        y : (n,)
            Where the densities are taken.
        Returns
        -------
        total, mean_sum : float and (n,)
            ``sum_ij W_ij s_ij`` and ``sum_ij W_ij s_ij m_ij``.
        log_densities : (h,), ``log N_i(y)``
        info : int
            0, or 1 + the first i whose covariance has no Cholesky factor; the others are then NaN.
        """
