"""Compiling ahead: every operation once, on small data."""

from __future__ import annotations

import numpy as np

from .backends import gpu_problem, to_device
from .distances import gaussian_mmd2, gaussian_mmd2_vjp
from .gp import predict_gp
from .gram import gram
from .likelihood import log_likelihood
from .run.marginalise import marginalise
from .student import StudentMixture

_WARM_UP_POINTS = (512, 2048)  # so many that CPU threads share one matrix, and then its factorisation


def warm_up() -> None:
    """Compile everything ahead, or load it from the disk cache: the first real call is then as fast as the others.

    For the CPU, and for a GPU where there is one that can be used; there for one input dimension.
    """
    for device in ("cpu",) if gpu_problem() else ("cpu", "gpu"):
        _warm_up(device)


def _warm_up(device: str) -> None:
    X, y = (to_device(a, device) for a in (np.linspace(0.0, 1.0, 12), np.sin(np.arange(12.0))))
    post = marginalise(X, y, budget=12, initial=8, batch_size=4, nodes=32, device=device, seed=0)
    prediction = post.predict(X[:2])
    prediction.quantile(0.5)
    prediction.cdf(0.0)
    prediction.log_density(y[:2])
    prediction.sample(100, 0)
    post.joint_log_density(X[:2], y[:2])
    StudentMixture(np.array([0.5]), np.zeros((1, 1)), np.ones((1, 1, 1)), 0.5).log_ratio(np.zeros((1, 1)))
    g = post.mixtures_standardised[:2]
    for n_points in _WARM_UP_POINTS:
        points, targets = (to_device(a, device) for a in (np.linspace(0.0, 1.0, n_points), np.zeros(n_points)))
        log_likelihood(g[0], points, targets, structure="dense")
    log_likelihood(g, X, y, grad=True, structure="toeplitz")
    for kind in ("diagonal", "full"):
        predict_gp(g, X, y, None, X[:2], structure="toeplitz", covariance=kind)
    gaussian_mmd2_vjp(g, g, gaussian_mmd2(g, bandwidth=1.0), bandwidth=1.0)
    for phase in ("joint", "per_axis"):
        log_likelihood(g, X, y, grad=True, phase=phase)
        gram(g, X, X[:2], phase=phase)
        gram(g, X, phase=phase)
        predict_gp(g, X, y, None, X[:2], phase=phase)
