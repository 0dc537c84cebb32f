"""The same operations by others in float64: NumPy and SciPy, and where installed GPyTorch, scikit-learn and JAX.

    pip install -e '.[bench]'       # with the CPU's torch: --index-url https://download.pytorch.org/whl/cpu torch first

A peer is a function of a problem that returns a call without arguments; the call returns the result on the host, and
holds nothing back that the first call would not have to do. Compile time is in the first call, hence not in a timing.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from bench.micro import problems
from maskerade_fast import GMMBatch

Call = Callable[[], Any]


def needs(*modules: str) -> Any:
    """Mark of a benchmark that skips where a module is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} not installed: pip install -e '.[bench]'")


# ---- NumPy and SciPy ----


def numpy_gram(w: Any, m: Any, s: Any, X: Any) -> Any:
    """One Gram matrix the plain way; a component at a time, as (n, N, N) arrays are slower."""
    lags = X[:, None] - X[None]
    K = np.zeros(lags.shape[:2])
    for q in range(len(w)):
        K += w[q] * np.exp(-2 * np.pi**2 * lags**2 @ s[q] ** 2) * np.cos(2 * np.pi * lags @ m[q])
    return K


def scipy_loop(g: GMMBatch, X: Any, y: Any, gram: Any = numpy_gram) -> Call:
    """Log-likelihoods one by one."""

    def call() -> Any:
        values = []
        for mixture in g:
            C = gram(mixture.weights, mixture.means, mixture.scales, X)
            C[np.diag_indices(len(X))] += problems.NOISE
            L = scipy.linalg.cholesky(C, lower=True, overwrite_a=True, check_finite=False)
            z = scipy.linalg.solve_triangular(L, y, lower=True, check_finite=False)
            values.append(-0.5 * z @ z - np.log(np.diag(L)).sum() - 0.5 * len(y) * np.log(2 * np.pi))
        return np.array(values)

    return call


def numpy_products(w: Any, m: Any, s: Any, X: Any) -> Any:
    """Gram matrix of GPyTorch's kernel, a product over the axes of one-dimensional mixtures."""
    return np.prod(
        [numpy_gram(w, m[:, d : d + 1], s[:, d : d + 1], X[:, d : d + 1]) for d in range(X.shape[1])], axis=0
    )


# ---- GPyTorch ----


def gpytorch_likelihood(
    g: GMMBatch, X: Any, y: Any, *, grad: bool = False, device: str = "cpu", result: Any = np.asarray
) -> Call:
    """Batched `SpectralMixtureKernel` and exact Cholesky; with `grad` the gradients of the sum by backpropagation.

    For D > 1 its kernel is another, a product over the axes of sums over the components: `numpy_products` has it.
    `result` turns the tensor of values into an array.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gpytorch
        import torch
    B, D = len(g), g.n_dims
    n = len(g.weights) // B
    tensor = functools.partial(torch.as_tensor, dtype=torch.float64, device=device)
    kernel = gpytorch.kernels.SpectralMixtureKernel(num_mixtures=n, batch_shape=torch.Size([B]), ard_num_dims=D)
    kernel = kernel.to(device=device, dtype=torch.float64)
    # Its means and scales pass through a softplus, so they must be positive: a cosine does not see a mean's sign
    kernel.mixture_weights = tensor(g.weights.reshape(B, n))
    kernel.mixture_means = tensor(np.abs(g.means).reshape(B, n, 1, D))
    kernel.mixture_scales = tensor(g.scales.reshape(B, n, 1, D))
    x, targets = tensor(X).expand(B, *X.shape), tensor(y).expand(B, -1)
    noise = problems.NOISE * torch.eye(len(X), dtype=torch.float64, device=device)
    constant = 0.5 * len(y) * np.log(2 * np.pi)

    def value() -> Any:
        L = torch.linalg.cholesky(kernel(x, x).to_dense() + noise)
        z = torch.linalg.solve_triangular(L, targets[:, :, None], upper=False)
        return -0.5 * (z * z).sum((1, 2)) - torch.diagonal(L, dim1=1, dim2=2).log().sum(1) - constant

    def call() -> Any:
        kernel.zero_grad()
        with torch.set_grad_enabled(grad):
            out = value()
            if grad:
                out.sum().backward()
        return result(out.detach())

    return call


# ---- scikit-learn ----


def sklearn_likelihood(g: GMMBatch, X: Any, y: Any) -> Call:
    """`GaussianProcessRegressor` without optimiser, one mixture after another, on a kernel written for it in NumPy."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Kernel, StationaryKernelMixin

    class SpectralMixture(StationaryKernelMixin, Kernel):
        def __init__(self, weights: Any, means: Any, scales: Any) -> None:
            self.weights, self.means, self.scales = weights, means, scales

        def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
            return numpy_gram(self.weights, self.means, self.scales, X)

        def diag(self, X: Any) -> Any:
            return np.full(len(X), self.weights.sum())

    def call() -> Any:
        values = []
        for mixture in g:
            kernel = SpectralMixture(mixture.weights, mixture.means, mixture.scales)
            model = GaussianProcessRegressor(kernel, alpha=problems.NOISE, optimizer=None, copy_X_train=False)
            values.append(model.fit(X, y).log_marginal_likelihood_value_)
        return np.array(values)

    return call


# ---- JAX ----


def _jax() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import jax
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    return jax


def jax_likelihood(g: GMMBatch, X: Any, y: Any, *, grad: bool = False) -> Call:
    """`jit` of `vmap` over the mixtures; with `grad` of `value_and_grad`."""
    jax = _jax()
    jnp, linalg = jax.numpy, jax.scipy.linalg
    B, D = len(g), g.n_dims
    n = len(g.weights) // B
    parts = [jnp.asarray(a) for a in (g.weights.reshape(B, n), g.means.reshape(B, n, D), g.scales.reshape(B, n, D))]
    points, targets = jnp.asarray(X), jnp.asarray(y)

    def value(w: Any, m: Any, s: Any) -> Any:
        lags = points[:, None] - points[None]
        K = problems.NOISE * jnp.eye(len(X))
        for q in range(n):
            K += w[q] * jnp.exp(-2 * jnp.pi**2 * (lags**2 @ s[q] ** 2)) * jnp.cos(2 * jnp.pi * (lags @ m[q]))
        L = jnp.linalg.cholesky(K)
        z = linalg.solve_triangular(L, targets, lower=True)
        return -0.5 * z @ z - jnp.log(jnp.diag(L)).sum() - 0.5 * len(y) * jnp.log(2 * jnp.pi)

    if grad:
        both = jax.jit(jax.vmap(jax.value_and_grad(value, argnums=(0, 1, 2))))
        return lambda: [np.asarray(a) for a in jax.tree.leaves(both(*parts))]
    batched = jax.jit(jax.vmap(value))
    return lambda: np.asarray(batched(*parts))


def jax_energy(a: tuple[Any, Any], b: tuple[Any, Any]) -> Call:
    """Energy distance over mixtures padded to one size: `jit` of `vmap` over pairs."""
    jax = _jax()
    jnp = jax.numpy

    def gaps(w: Any, p: Any, u: Any, q: Any) -> Any:
        squares = ((p[:, None] - q[None]) ** 2).sum(-1)
        return (w[:, None] * u[None] * jnp.sqrt(squares)).sum()

    own = jax.vmap(lambda w, p: gaps(w, p, w, p))
    cross = jax.vmap(jax.vmap(gaps, (None, None, 0, 0)), (0, 0, None, None))

    @jax.jit
    def distance(wa: Any, pa: Any, wb: Any, pb: Any) -> Any:
        E = cross(wa, pa, wb, pb) - 0.5 * own(wa, pa)[:, None] - 0.5 * own(wb, pb)
        return jnp.maximum(E, 0.0)

    arrays = [jnp.asarray(x) for x in (*a, *b)]
    return lambda: np.asarray(distance(*arrays))
