"""Every door of the GPU backend once, on small problems: what compute-sanitizer watches.

python bench/gpu/driver.py [--dry-run]
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]


def main() -> None:
    if "--dry-run" in sys.argv:
        from gpu import dry

        dry.install()
    import cupy

    from gpu import problems
    from maskerade_fast.backends.gpu import _loader, cholesky, distances, gp, gram, hyperkernel, likelihood, prediction

    pairs = problems.pairs(40, 20, 5, 1)
    a, b = (distances.prepare_atoms(*pairs.flat(side)) for side in (0, 1))
    E = distances.pairwise_distance(a, b)
    distances.pairwise_distance(a)
    distances.pairwise_distance_vjp(a, b, E)
    settings = {"outputscale": 1.0, "lengthscale": 1.0}
    hyperkernel.hyperkernel(a, b, **settings)
    hyperkernel.hyperkernel_matvec(a, b, cupy.ones((20, 2)), **settings)

    way = {"per_axis": False, "jitter": 0.0, "max_bytes": None}
    regimes = likelihood.regimes_of(_loader.device_limits().shared_bytes, 1, True)
    for n_points in (33, regimes.small + 1, regimes.panels + 1):  # one for each way of the likelihood
        problem = problems.regression(n_points, 2, 2)
        *batch, X, y, noise = problem.door_arguments()
        values, _, _, gradients = likelihood.log_likelihood(*batch, X, y, noise, grad=True, **way)
        assert gradients is not None
        assert all(bool(cupy.isfinite(array).all()) for array in (values, *gradients)), n_points
    problem = problems.regression(33, 2, 2)
    *batch, X, y, noise = problem.door_arguments()
    K = gram.gram(*batch, X, None, noise, per_axis=False)
    gram.gram(*batch, X, X[:7], noise, per_axis=False)
    cholesky.cholesky(K, 0.0)
    mean, variance, _, _ = gp.predict_gp(*batch, X, y, noise, X[:7], full=True, **way)

    mixture = problems.mixture(12, 5)
    prediction.pair_moments(*mixture)
    levels = cupy.asarray([[0.1] * 5, [0.5] * 5])
    quantiles = prediction.pair_quantiles(*mixture, levels)
    tails = prediction.pair_cdf(*mixture, quantiles)
    assert bool(cupy.isfinite(tails).all())
    assert bool(cupy.isfinite(mean).all())
    assert bool((variance > 0).all())
    prediction.pair_draws(*mixture, levels)
    cupy.cuda.Device().synchronize()
    print("every door ran")


if __name__ == "__main__":
    main()
