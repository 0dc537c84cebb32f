"""Compiles ahead: calls every operation on tiny data."""

from __future__ import annotations

import numpy as np

from ..adaptive.student import warm_up as student
from ..backends import gpu_problem, to_device
from ..model.gmm import GMMBatch
from ..ops.distances import warm_up as distances
from ..ops.gp import warm_up as gp
from ..ops.gram import warm_up as gram
from ..ops.hyperkernel import warm_up as hyperkernel
from ..ops.joint_prediction import warm_up as joint_prediction
from ..ops.likelihood import warm_up as likelihood
from ..ops.mixture_prediction import warm_up as prediction

_OPERATIONS = (distances, hyperkernel, gram, likelihood, gp, prediction, joint_prediction, student)
# Loops over distances are compiled for each of the first five numbers of inputs, and once for more
_N_DIMS = {"cpu": (1, 2, 3, 4, 5, 6), "gpu": (1,)}


def warm_up() -> None:
    """Compile everything ahead, or load it from the disk cache; the first call is then as fast as the others.

    For the CPU, and for a GPU if one can be used, there for one input dimension.
    """
    for device in ("cpu",) if gpu_problem() else ("cpu", "gpu"):
        warm_up_on(device)


def warm_up_on(device: str) -> None:
    """`warm_up` for one device, "cpu" or "gpu"."""
    rows = 12
    for n_dims in _N_DIMS[device]:
        ones = np.ones((2, n_dims))
        g = GMMBatch(np.array([0, 1, 2]), np.ones(2), ones, ones, np.full(2, 0.1)).to(device)
        X = np.linspace(0.0, 1.0, rows)[:, None] ** np.arange(1, n_dims + 1)
        for operation in _OPERATIONS:
            operation(g, to_device(X, device), to_device(np.sin(np.arange(float(rows))), device))
