"""From data to a fitted model by one way: seconds, evidence, likelihoods a second, a JSON line each as they come.

python -m bench.gpu.end_to_end --points 500 --with cpu|gpu|gpytorch --budget 600 [--dry-run]

All get the same data, at irregular points. `marginalise` runs on either device with the same budget. GPyTorch, on the
card, maximises the likelihood of one spectral mixture by Adam: as many values with their gradients as the budget pays
for, each of which counts as 3 likelihoods as it does in `marginalise`. Its likelihoods are by dense Cholesky factors in
float64, too. It gives the best log-likelihood instead of an evidence, and no posterior.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from typing import Any

import numpy as np

COMPONENTS = 4  # of GPyTorch's mixture
WITH_GRADIENT = 3  # likelihoods that a value with its gradient counts as


def main() -> None:
    parser = argparse.ArgumentParser(description="One fit by one way.")
    parser.add_argument("--points", type=int, required=True)
    parser.add_argument("--with", dest="what", choices=["cpu", "gpu", "gpytorch"], required=True)
    parser.add_argument("--budget", type=int, required=True, help="likelihoods, one with its gradient as 3")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    if options.dry_run:
        from bench.gpu import dry

        dry.install()
    x, y = series(options.points)
    say(points=options.points, budget=options.budget)
    if options.what == "gpytorch":
        fit_gpytorch(x, y, options.budget)
    else:
        marginalise(x, y, options)


def series(n_points: int) -> tuple[Any, Any]:
    """Two tones and noise at irregular points over ten units."""
    rng = np.random.default_rng([4, n_points])
    x = np.sort(rng.uniform(0.0, 10.0, n_points))
    y = np.sin(2 * np.pi * 0.7 * x) + 0.5 * np.cos(2 * np.pi * 1.9 * x)
    return x, y + 0.2 * rng.normal(size=n_points)


def marginalise(x: Any, y: Any, options: argparse.Namespace) -> None:
    """Twice: the first run compiles, or reads what an earlier process compiled."""
    import maskerade_fast as mf

    launches: Counter[str] = Counter()
    if options.what == "gpu":
        count_launches(launches)
    settings: dict[str, Any] = {"device": options.what, "seed": 0, "trend": "none"}
    if options.dry_run:
        settings |= {"initial": 8, "nodes": 32, "max_components": 2}
    for name in ("cold", "warm"):
        launches.clear()
        start = time.perf_counter()
        posterior = mf.marginalise(x, y, budget=options.budget, **settings)
        seconds = time.perf_counter() - start
        mean = posterior.predict(x[:10]).mean
        assert np.isfinite(mean).all()
        cost = posterior.history[-1].cost
        evidence = {"log_evidence": posterior.log_evidence, "log_evidence_sd": posterior.log_evidence_sd}
        figures = {"run_seconds": seconds, "likelihoods": cost, "likelihoods_per_second": cost / seconds}
        say(**{name: figures | evidence | {"launches": launches.total()}})
    say(launches_by_kernel=dict(launches.most_common()))


def fit_gpytorch(x: Any, y: Any, budget: int) -> None:
    """Adam on the marginal likelihood; twice, as `marginalise`."""
    try:
        import gpytorch
        import torch
    except ImportError as error:
        return say(left_out=f"{error.name} is not installed")
    if not torch.cuda.is_available():
        return say(left_out="torch sees no card")

    def tensor(array: Any) -> Any:
        return torch.as_tensor(array, dtype=torch.float64, device="cuda")

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(tensor(x), tensor(y), likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.SpectralMixtureKernel(num_mixtures=COMPONENTS)

        def forward(self, inputs: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    steps = max(1, budget // WITH_GRADIENT)
    for name in ("cold", "warm"):
        torch.manual_seed(0)
        torch.cuda.synchronize()
        start = time.perf_counter()
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = Model(likelihood)
        model.covar_module.initialize_from_data(torch.as_tensor(x), torch.as_tensor(y))
        model = model.to(device="cuda", dtype=torch.float64).train()
        likelihood.train()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        adam = torch.optim.Adam(model.parameters(), lr=0.1)
        best = -np.inf
        with (  # exact: by default more than 800 points go to conjugate gradients
            gpytorch.settings.max_cholesky_size(10 * len(x)),
            gpytorch.settings.fast_computations(log_prob=False, covar_root_decomposition=False, solves=False),
        ):
            for _ in range(steps):
                adam.zero_grad()
                loss = -objective(model(tensor(x)), tensor(y))
                loss.backward()
                best = max(best, -len(x) * loss.item())
                adam.step()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        cost = WITH_GRADIENT * steps
        figures = {"run_seconds": seconds, "likelihoods": cost, "likelihoods_per_second": cost / seconds}
        say(**{name: figures | {"log_likelihood": best}})


def count_launches(launches: Counter[str]) -> None:
    """Let every launch of ours count in `launches`, by the kernel's name."""
    from maskerade_fast.backends.gpu._loader import Kernel

    kind: Any = Kernel
    launch = kind.__call__

    def counted(kernel: Any, *args: Any, **kwargs: Any) -> None:
        launches[kernel.name] += 1
        launch(kernel, *args, **kwargs)

    kind.__call__ = counted


def say(**entries: Any) -> None:
    print(json.dumps(entries), flush=True)


if __name__ == "__main__":
    main()
