"""Every function and kernel of the GPU backend, on small problems: the smoke test, and what compute-sanitizer watches.

python -m bench.gpu.driver [--no-pool] [--dry-run]
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


def main() -> None:
    if "--dry-run" in sys.argv:
        from bench.gpu import dry

        dry.install()
    import cupy

    if "--no-pool" in sys.argv:
        without_pool()
    from maskerade_fast.backends import gpu
    from maskerade_fast.backends.gpu import _loader

    functions, entered = noting(gpu)
    loaded = noting_kernels(_loader)
    for name, walk in WALKS.items():
        print(name, flush=True)
        walk(functions, finite)
    cupy.cuda.Device().synchronize()
    assert not (left_out := set(gpu.__all__) - entered), f"left out: {sorted(left_out)}"
    assert not (without := all_kernels(_loader.source_folder()) - loaded), f"kernels left out: {sorted(without)}"
    print("every function ran")


def without_pool() -> None:
    """An allocation of its own for each array from now on.

    CuPy's pool hands out parts of large blocks: an overrun into the next array, or into what was freed, is then no
    error to a memory checker. To be called before the first array is made: what the pool has stays its own.
    """
    import cupy

    cupy.cuda.set_allocator(None)


def noting(backend: ModuleType) -> tuple[SimpleNamespace, set[str]]:
    """Return the functions of `backend`, and the set that gets the names of those that were called."""
    entered: set[str] = set()

    def noted(name: str) -> Any:
        function = getattr(backend, name)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            entered.add(name)
            return function(*args, **kwargs)

        return call

    return SimpleNamespace(**{name: noted(name) for name in backend.__all__}), entered


def noting_kernels(loader: Any) -> set[tuple[str, str]]:
    """The set that gets source and entry of every kernel that the backend asks `loader` for."""
    loaded: set[tuple[str, str]] = set()
    load = loader._kernel

    def noted(device: int, source: str, entry: str, defines: Any) -> Any:
        loaded.add((source, entry))
        return load(device, source, entry, defines)

    loader._kernel = noted
    return loaded


def all_kernels(folder: Path) -> set[tuple[str, str]]:
    """Source and entry of every kernel that the package ships."""
    entry = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)')
    return {(path.stem, name) for path in folder.glob("*.cu") for name in entry.findall(path.read_text("utf-8"))}


Finite = Callable[..., None]
WAY: dict[str, Any] = {"per_axis": False, "jitter": 0.0, "max_bytes": None}


def finite(*arrays: Any) -> None:
    """See to it that all numbers are finite."""
    import cupy

    assert all(bool(cupy.isfinite(array).all()) for array in arrays)


def distances(gpu: Any, finite: Finite) -> None:
    """Distances and their gradients, the hyper-kernel and its products."""
    import cupy

    from bench.gpu import problems

    pairs = problems.pairs(40, 20, 5, 1)
    a, b = (gpu.prepare_atoms(*pairs.flat(side)) for side in (0, 1))
    E = gpu.pairwise_distance(a, b)
    finite(gpu.pairwise_distance(a, b, precision="mixed"))
    finite(E, gpu.pairwise_distance(a), *gpu.pairwise_distance_vjp(a, b, E))
    settings = {"outputscale": 1.0, "lengthscale": 1.0}
    finite(gpu.hyperkernel(a, b, **settings), gpu.covariance_from_distance(E, **settings))
    finite(gpu.hyperkernel_matvec(a, b, cupy.ones((20, 2)), **settings))


def likelihoods(gpu: Any, finite: Finite) -> None:
    """One for each way of the likelihood, with its gradient."""
    from bench.gpu import problems
    from maskerade_fast.backends.gpu._loader import device_limits
    from maskerade_fast.backends.gpu.likelihood import regimes_of

    regimes = regimes_of(device_limits().shared_bytes, True)
    for n_points in (33, regimes.small + 1, regimes.panels + 1):
        problem = problems.regression(n_points, 2, 2)
        values, _, _, gradients = gpu.log_likelihood(*problem.backend_arguments(), grad=True, **WAY)
        finite(values, *gradients)


def processes(gpu: Any, finite: Finite) -> None:
    """Gram matrices, factors, predictions of mixtures."""
    import cupy

    from bench.gpu import problems

    *batch, X, y, noise = problems.regression(33, 2, 2).backend_arguments()
    K = gpu.gram(*batch, X, None, noise, per_axis=False)
    finite(K, gpu.gram(*batch, X, X[:7], noise, per_axis=False), gpu.cholesky(K, 0.0)[0])
    mean, variance, _, _ = gpu.predict_gp(*batch, X, y, noise, X[:7], full=True, **WAY)
    finite(mean, cupy.log(variance))  # positive


def grids(gpu: Any, finite: Finite) -> None:
    """Toeplitz matrices, without and with a trend; no phase, for there is one axis."""
    import cupy

    from bench.gpu import problems

    *batch, _, y, noise = problems.regression(33, 2, 2).backend_arguments()
    grid = cupy.linspace(0.0, 1.0, 33)[:, None]
    rest = {"jitter": 0.0, "max_bytes": None}
    line = cupy.concatenate([cupy.ones_like(grid), grid], axis=1)
    for V, V_new in ((None, None), (line, line[:7])):
        values, _, _, gradients = gpu.toeplitz_log_likelihood(*batch, grid, y, noise, basis=V, grad=True, **rest)
        mean, variance, _, _ = gpu.toeplitz_predict_gp(
            *batch, grid, y, noise, grid[:7], basis=V, basis_new=V_new, full=True, **rest
        )
        finite(values, *gradients, mean, variance)
    exact = gpu.toeplitz_predict_gp(*batch, grid, y, 1e-15 * noise, grid, full=False, **rest)[1]
    finite(exact)  # variances of 0 to rounding, whose bound is found by a kernel of its own


def predictions(gpu: Any, finite: Finite) -> None:
    """All of predictive mixtures, and joint densities in shared memory and beyond."""
    import cupy

    from bench.gpu import problems
    from maskerade_fast.backends.gpu._loader import device_limits

    mixture = problems.mixture(12, 5)
    weights, means, variances = mixture
    levels = cupy.asarray([[0.1] * 5, [0.5] * 5])
    finite(*gpu.pair_moments(*mixture))
    finite(gpu.pair_cdf(*mixture, gpu.pair_quantiles(*mixture, levels)), gpu.pair_draws(*mixture, levels))
    finite(gpu.pair_log_density(cupy.linalg.cholesky(weights), means, variances, means[0]))
    covariances = variances[:, :, None] * cupy.eye(5)
    _, mean_sum, log_densities, _ = gpu.joint_pair_moments(weights, means, covariances, means[0])
    finite(mean_sum, log_densities)
    n_points = 1 + math.isqrt(device_limits().shared_bytes // 4)  # a pair's factor does not fit in shared memory
    weights, means, variances = problems.mixture(3, n_points)
    covariances = variances[:, :, None] * cupy.eye(n_points)
    _, mean_sum, log_densities, _ = gpu.joint_pair_moments(weights, means, covariances, means[0])
    finite(mean_sum, log_densities)


WALKS = {each.__name__: each for each in (distances, likelihoods, processes, grids, predictions)}
"""All functions, in each form that launches other kernels. Each walk calls its second argument with the results."""


if __name__ == "__main__":
    main()
