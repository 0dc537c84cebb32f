"""Every door and kernel of the GPU backend, on small problems: the smoke test, and what compute-sanitizer watches.

python bench/gpu/driver.py [--dry-run]
"""

from __future__ import annotations

import functools
import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]


def main() -> None:
    if "--dry-run" in sys.argv:
        from gpu import dry

        dry.install()
    import cupy

    from maskerade_fast.backends import gpu
    from maskerade_fast.backends.gpu import _loader

    doors, entered = noting(gpu)
    loaded = noting_kernels(_loader)
    walk(doors)
    cupy.cuda.Device().synchronize()
    assert not (left_out := set(gpu.__all__) - entered), f"left out: {sorted(left_out)}"
    assert not (without := all_kernels(_loader.source_folder()) - loaded), f"kernels left out: {sorted(without)}"
    print("every door ran")


def noting(backend: ModuleType) -> tuple[SimpleNamespace, set[str]]:
    """The doors of `backend`, and the set that gets the names of those that have been called."""
    entered: set[str] = set()

    def noted(name: str) -> Any:
        door = getattr(backend, name)

        @functools.wraps(door)
        def call(*args: Any, **kwargs: Any) -> Any:
            entered.add(name)
            return door(*args, **kwargs)

        return call

    return SimpleNamespace(**{name: noted(name) for name in backend.__all__}), entered


def noting_kernels(loader: Any) -> set[tuple[str, str]]:
    """The set that gets source and entry of every kernel that the backend asks `loader` for."""
    loaded: set[tuple[str, str]] = set()
    given = loader._kernel

    def noted(device: int, source: str, entry: str, defines: Any) -> Any:
        loaded.add((source, entry))
        return given(device, source, entry, defines)

    loader._kernel = noted
    return loaded


def all_kernels(folder: Path) -> set[tuple[str, str]]:
    """Source and entry of every kernel that the package ships."""
    entry = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)')
    return {(path.stem, name) for path in folder.glob("*.cu") for name in entry.findall(path.read_text("utf-8"))}


def walk(gpu: Any) -> None:
    """Call all doors, in each form that launches other kernels, and see to it that the results are finite."""
    import cupy

    from gpu import problems
    from maskerade_fast.backends.gpu._loader import device_limits
    from maskerade_fast.backends.gpu.likelihood import regimes_of

    def finite(*arrays: Any) -> None:
        assert all(bool(cupy.isfinite(array).all()) for array in arrays)

    pairs = problems.pairs(40, 20, 5, 1)
    a, b = (gpu.prepare_atoms(*pairs.flat(side)) for side in (0, 1))
    E = gpu.pairwise_distance(a, b)
    finite(E, gpu.pairwise_distance(a), *gpu.pairwise_distance_vjp(a, b, E))
    settings = {"outputscale": 1.0, "lengthscale": 1.0}
    finite(gpu.hyperkernel(a, b, **settings), gpu.covariance_from_distance(E, **settings))
    finite(gpu.hyperkernel_matvec(a, b, cupy.ones((20, 2)), **settings))

    way = {"per_axis": False, "jitter": 0.0, "max_bytes": None}
    regimes = regimes_of(device_limits().shared_bytes, 1, True)
    for n_points in (33, regimes.small + 1, regimes.panels + 1):  # one for each way of the likelihood
        problem = problems.regression(n_points, 2, 2)
        *batch, X, y, noise = problem.door_arguments()
        values, _, _, gradients = gpu.log_likelihood(*batch, X, y, noise, grad=True, **way)
        finite(values, *gradients)
    problem = problems.regression(33, 2, 2)
    *batch, X, y, noise = problem.door_arguments()
    K = gpu.gram(*batch, X, None, noise, per_axis=False)
    finite(K, gpu.gram(*batch, X, X[:7], noise, per_axis=False), gpu.cholesky(K, 0.0)[0])
    mean, variance, _, _ = gpu.predict_gp(*batch, X, y, noise, X[:7], full=True, **way)
    finite(mean)
    assert bool((variance > 0).all())
    grid = cupy.linspace(0.0, 1.0, 33)[:, None]  # Toeplitz: no phase, for there is one axis
    *batch, _, y, noise = problem.door_arguments()
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


if __name__ == "__main__":
    main()
