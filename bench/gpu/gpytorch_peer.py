"""GPyTorch's spectral mixture kernel on the same problem, by dense Cholesky in float64; needs torch with CUDA."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

from .problems import NOISE, Regression


def available() -> bool:
    """Both packages are installed; torch, which takes seconds to import, is not asked whether it sees the card."""
    return all(importlib.util.find_spec(name) is not None for name in ("torch", "gpytorch"))


def likelihood(problem: Regression, *, grad: bool) -> Callable[[], Any]:
    """A call that has `call_of` made at its first use: torch takes seconds to import."""
    made = functools.cache(lambda: call_of(problem, grad=grad))
    return lambda: made()()


def call_of(problem: Regression, *, grad: bool) -> Callable[[], Any]:
    """A call that gives the log-likelihoods (B,), and with `grad` has the gradients of their sum by backpropagation."""
    import cupy
    import gpytorch
    import torch

    def tensor(array: Any) -> Any:
        return torch.as_tensor(cupy.asnumpy(array), dtype=torch.float64, device="cuda")

    count, q = problem.w.shape
    kernel = gpytorch.kernels.SpectralMixtureKernel(num_mixtures=q, batch_shape=torch.Size([count]), ard_num_dims=1)
    kernel = kernel.to(device="cuda", dtype=torch.float64)
    kernel.mixture_weights = tensor(problem.w)
    kernel.mixture_means = tensor(problem.m)[:, :, None, None]
    kernel.mixture_scales = tensor(problem.s)[:, :, None, None]
    x, y = tensor(problem.x)[:, None].expand(count, -1, 1), tensor(problem.y).expand(count, -1)
    noise = NOISE * torch.eye(x.shape[1], dtype=torch.float64, device="cuda")
    constant = 0.5 * x.shape[1] * float(torch.log(torch.tensor(2.0 * torch.pi, dtype=torch.float64)))

    def value() -> Any:
        L = torch.linalg.cholesky(kernel(x, x).to_dense() + noise)
        z = torch.linalg.solve_triangular(L, y[:, :, None], upper=False)
        logs = torch.diagonal(L, dim1=1, dim2=2).log().sum(1)
        return -0.5 * (z * z).sum((1, 2)) - logs - constant

    def plain() -> Any:
        with torch.no_grad():
            return cupy.asarray(value())

    def with_gradient() -> Any:
        kernel.zero_grad()
        out = value()
        out.sum().backward()
        return cupy.asarray(out.detach())

    return with_gradient if grad else plain
