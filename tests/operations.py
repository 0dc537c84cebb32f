"""Every public operation on tiny inputs, with results by name: for tests of layouts, and of runs without JIT."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from kernel_functions import covariance_from_distance

import maskerade_fast as mf
from maskerade_fast.adaptive.student import StudentMixture
from maskerade_fast.backends import cpu
from maskerade_fast.ops.metric_distances import prepare, squared_distance

Array = np.ndarray
N, M, H = 9, 3, 4  # eighths are exact in float32 too


class Results(dict[str, Array]):
    """Arrays by name, from arrays, numbers and dataclasses of these."""

    def keep(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray | float | int):
            assert name not in self
            self[name] = np.array(value, dtype=np.float64)
        elif isinstance(value, tuple):
            for k, part in enumerate(value):
                self.keep(f"{name}[{k}]", part)
        elif hasattr(value, "__dataclass_fields__"):
            for field in value.__dataclass_fields__:
                if not field.startswith("_") and field != "support":
                    self.keep(f"{name}.{field}", getattr(value, field))
        return value


def assert_same(results: Results, expected: Results) -> None:
    """Equal in every bit, whatever the layouts of the arguments."""
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)


# Numbers of other types than the annotations have, which are taken all the same
single: Any = np.float32
real: Any = float


def operations(
    f: Callable[[Array], Any] = lambda a: a, shared: Callable[[Any], Any] = lambda value: value, shares: bool = True
) -> Results:
    """Call every public operation.

    Parameters
    ----------
    f : callable
        Gives the layout of every array.
    shared : callable
        Gives every object back as another process would get it.
    shares : bool
        Also a likelihood of so many points that threads share its matrix.
    """
    out = Results()
    rng = np.random.default_rng(5)
    X1, X2 = np.linspace(0.0, 1.0, N)[:, None], rng.uniform(size=(N, 2))
    y = np.sin(9 * X1[:, 0])
    for X in (X1, X2):
        D = X.shape[1]
        offsets = np.array([0, 1, 3, 6, 7])
        J = int(offsets[-1])
        arrays = (rng.uniform(0.5, 1.0, J), rng.uniform(size=(J, D)), rng.uniform(0.5, 1.0, (J, D)))
        g = shared(mf.GMMBatch(*map(f, (offsets, *arrays, np.full(H, 0.1)))))
        table = f(np.full((H, N), 0.1))
        basis, basis_new = f(np.ones((N, 1))), f(np.ones((M, 1)))
        for phase in ("joint", "per_axis"):
            at = f"{D}d {phase} "
            out.keep(at + "gram", mf.gram(g, f(X), phase=phase))
            fast = mf.GMMBatch(g.offsets, g.weights, 1e9 * g.means, g.scales)
            out.keep(at + "fast", mf.gram(fast, f(X), phase=phase))  # phases of 1e9 turns keep their digits
            out.keep(at + "cross", mf.gram(g, f(X), f(X[:M]), phase=phase))
            out.keep(at + "likelihood", mf.log_likelihood(g, f(X), f(y), grad=True, phase=phase))
            out.keep(at + "prediction", mf.predict_gp(g, f(X), f(y), None, f(X[:M]), phase=phase))
        at = f"{D}d "
        out.keep(at + "gram", mf.gram(g, f(X), noise_variance=table))
        values = mf.log_likelihood(g, f(X), f(y), table, basis=basis, jitter=single(0.5), grad=True)
        out.keep(at + "likelihood", values)
        options: dict[str, Any] = {"basis": basis, "basis_new": basis_new, "covariance": "full"}
        out.keep(at + "prediction", mf.predict_gp(g, f(X), f(y), table, f(X[:M]), **options))
        twice = f(np.concatenate([X, X]))
        for jitter in (0.0, 1.0):  # a singular matrix, and one that is repaired
            values = mf.log_likelihood(g, twice, f(np.tile(y, 2)), 0.0, jitter=jitter, grad=True)
            out.keep(f"{at}singular {jitter}", values)
        distances(at, f, g, shared, out)
    g1 = shared(mf.GMMBatch.from_list([(f(np.ones(2)), f(np.ones(2)), f(np.ones(2)))]))
    for k, (basis, basis_new) in enumerate(((None, None), (f(np.ones((N, 1))), f(np.ones((M, 1)))))):
        options = {"structure": "toeplitz", "basis": basis}
        at = f"grid {k} "
        out.keep(at + "likelihood", mf.log_likelihood(g1, f(X1), f(y), f(np.array([0.1])), grad=True, **options))
        out.keep(at + "singular", mf.log_likelihood(g1, f(2.0**-30 * X1), f(y), 0.0, grad=True, **options))
        for kind in ("diagonal", "full"):
            options |= {"covariance": kind, "basis_new": basis_new}
            out.keep(f"{at}{kind}", mf.predict_gp(g1, f(X1), f(y), 0.1, f(X1[:M]), **options))
    if shares:
        long = np.linspace(0.0, 1.0, 520)
        out.keep("shared", mf.log_likelihood(g1, f(long), f(long), 0.1, grad=True, structure="dense"))
    out.keep("cholesky", cpu.cholesky(np.asarray(f(np.eye(3)[None])), 0.5))
    predictions(f, shared, out)
    latents(f, shared, out)
    return out


def distances(at: str, f: Callable[[Array], Any], g: Any, shared: Callable[[Any], Any], out: Results) -> None:
    cotangent = f(np.ones((H, H)))
    D = g.n_dims
    metric = mf.Metric(frequency_scale=f(np.ones(D)), scale_scale=f(np.array(2.0)), noise_weight=0.1, mass_weight=0.1)
    for k, each in enumerate((mf.Metric(), mf.Metric(reflect=True, mass_correction=True))):
        name = f"{at}metric {k} "
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mf.UnequalMassWarning)  # of the first metric, which is meant
            out.keep(name + "energy", mf.energy_distance(g, metric=each))
            out.keep(name + "energy cross", mf.energy_distance(g, g[[1, 0]], metric=each))
            out.keep(name + "energy vjp", mf.energy_distance_vjp(g, g, cotangent, metric=each))
        out.keep(name + "mmd", mf.gaussian_mmd2(g, g, bandwidth=1, metric=each))
        out.keep(name + "mmd vjp", mf.gaussian_mmd2_vjp(g, None, cotangent, bandwidth=single(1.0), metric=each))
    prepared = shared(prepare(g, metric=metric))
    for power in (1, 2.0, True, np.int32(2)):
        options: dict[str, Any] = {"outputscale": 2, "lengthscale": np.float32(1.0), "power": power}
        name = f"{at}power {power!r} "
        out.keep(name + "kernel", mf.hyperkernel(g, metric=metric, **options))
        out.keep(name + "prepared", mf.hyperkernel(prepared, prepared, **options))
        out.keep(name + "vjp", mf.hyperkernel_vjp(g, None, cotangent, metric=metric, **options))
        out.keep(name + "columns", mf.hyperkernel_matvec(prepared, prepared, f(np.ones((H, 2))), **options))
        out.keep(name + "matvec", mf.hyperkernel_matvec(g, None, f(np.ones(H)), metric=metric, **options))
        out.keep(name + "covariance", covariance_from_distance(f(np.ones((2, 2))), **options))
    out.keep(at + "squared distance", squared_distance(prepared, g))
    prior = mf.Prior(f(np.ones(D)), f(np.zeros(D)), f(np.ones(D)), noise_variance=0.1, mass=1.0)
    values = f(np.array([-1.0, -2.0, -1.5, -3.0]))
    surrogate = shared(mf.Surrogate.fit(g, values, metric=metric, power=real(1.0), lengthscale=1.0))
    other = mf.GMMBatch(g.offsets, g.weights, 2.0 * g.means, 3.0 * g.scales, g.noise_variances)
    evidence = shared(mf.integrate(surrogate, other, f(np.full(H, 0.25))))
    out.keep(at + "evidence", evidence)
    out.keep(at + "surrogate mean", surrogate.mean(g))
    out.keep(at + "surrogate covariance", surrogate.covariance(g[[1]]))
    out.keep(at + "extended", surrogate.extend(other, values).refit().mean(g))
    third = mf.GMMBatch(g.offsets, g.weights, 1.5 * g.means, 2.0 * g.scales, g.noise_variances)
    out.keep(at + "information", mf.mutual_information(surrogate, evidence, third))
    out.keep(at + "batch information", mf.mutual_information(surrogate, evidence, third, batch=True))
    out.keep(at + "uncertainty", mf.uncertainty(surrogate, third))
    draws = shared(prior.sample(2, 0)).mixtures
    out.keep(at + "log prior", prior.log_density(draws))


def predictions(f: Callable[[Array], Any], shared: Callable[[Any], Any], out: Results) -> None:
    rng = np.random.default_rng(1)
    L, means, variances = np.tril(np.ones((H, H))), rng.normal(size=(H, M)), np.ones((H, M))
    W = L @ L.T
    for k, factor in enumerate((None, f(L))):
        p = shared(mf.combine_gaussians(f(W), f(means), f(variances), factor=factor))
        at = f"combined {k} "
        out.keep(at + "moments", (p.mean, p.variance))
        for far in (0.0, 30.0, -1e8):
            out.keep(f"{at}density {far}", p.log_density(f(np.full(M, far))))
            out.keep(f"{at}cdf {far}", p.cdf(f(np.full((2, M), far))))
        out.keep(at + "cdf", p.cdf(0.0))
        out.keep(at + "quantile", p.quantile(f(np.array([0.0, 1e-30, 0.1, 0.5, 1.0]))))
        out.keep(at + "few draws", p.sample(2, 0))
        out.keep(at + "draws", p.sample(70, 0))
        out.keep(at + "scaled", p.scaled(1.0, 2.0).quantile(0.5))
        covariances = f(np.tile(np.eye(M), (H, 1, 1)))
        joint = mf.combine_gaussians_joint(f(W), f(means), covariances, f(np.zeros(M)), factor=factor)
        out.keep(at + "joint", joint)


def latents(f: Callable[[Array], Any], shared: Callable[[Any], Any], out: Results) -> None:
    arrays = (np.full(2, 0.25), np.zeros((2, 2)), np.stack([np.eye(2), 2 * np.eye(2)]))
    shares, centres, factors = map(np.asarray, map(f, arrays))
    mixture = shared(StudentMixture(shares, centres, factors, 0.5))
    out.keep("student", mixture.log_ratio(np.asarray(f(np.ones((3, 2))))))
    left_out = np.asarray(f(np.array([0, -1])))
    out.keep("student left out", mixture.log_ratio(np.asarray(f(np.ones((3, 2)))), left_out=left_out))


def kinds_of_results() -> list[Any]:
    """One of each kind of container that the package gives out."""
    g = mf.GMMBatch.from_list([([1.0], [0.5], [0.1]), ([1.0] * 7, [1.5] * 7, [0.1] * 7)], [0.1, 0.2])
    X, y = np.arange(9.0)[:, None], np.ones(9)
    prior = mf.Prior.from_data(X)
    surrogate = mf.Surrogate.fit(g, [-1.0, -2.0], metric=mf.Metric(mass_weight=1.0))
    likelihoods = mf.log_likelihood(g, X, y, grad=True)
    joint = mf.combine_gaussians_joint(np.eye(2), np.zeros((2, 9)), np.tile(np.eye(9), (2, 1, 1)), y)
    results = [g, prior, prior.latent_map, prior.sample(8, 0), prior.sample(8, 0).latent, surrogate, surrogate.prepared]
    results += [
        mf.integrate(surrogate, g, [0.5, 0.5]),
        mf.combine_gaussians(np.eye(2), np.zeros((2, 9)), np.ones((2, 9))),
    ]
    results += [likelihoods, likelihoods.grad, mf.predict_gp(g, X, y, None, X), joint, mf.PriorMeasure(prior)]
    return [*results, StudentMixture.prior(3)]
