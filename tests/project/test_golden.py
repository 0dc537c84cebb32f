"""The oracle meets the golden numbers, which were computed at 40 digits by independent code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


def load(name: str) -> list[dict[str, Any]]:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def mixture(entry: dict[str, Any]) -> oracle.Mixture:
    return np.array(entry["weights"]), np.array(entry["means"]), np.array(entry["scales"])


def meets(computed: Any, expected: Any) -> None:
    """Within 1e-10 of the largest entry of `expected`."""
    expected = np.asarray(expected, dtype=np.float64)
    computed = np.asarray(computed)
    assert computed.shape == expected.shape
    np.testing.assert_allclose(computed, expected, rtol=0.0, atol=1e-10 * np.max(np.abs(expected)))


def cases(name: str) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(c, id=f"{i}-D{c['D']}") for i, c in enumerate(load(name))])


@cases("distances")
def test_distances(case: dict[str, Any]) -> None:
    a, b = [mixture(case["a"])], [mixture(case["b"])]
    meets(oracle.energy_distance(a, b)[0, 0], case["energy_distance"])
    if case.get("unequal_mass"):
        meets(oracle.energy_distance(a, b, mass_correction=True)[0, 0], case["energy_distance_mass_corrected"])
        return
    meets(oracle.energy_distance(a, b, reflect=True)[0, 0], case["energy_distance_reflected"])
    bandwidth = case["bandwidth"]
    meets(oracle.gaussian_mmd2(a, b, bandwidth=bandwidth)[0, 0], case["gaussian_mmd2"])
    meets(oracle.gaussian_mmd2(a, b, bandwidth=bandwidth, reflect=True)[0, 0], case["gaussian_mmd2_reflected"])
    for computed, name in zip(oracle.energy_distance_vjp(a, b, [[1.0]]), ("weights", "means", "scales"), strict=True):
        meets(computed, case["grad_a"][name])


@cases("likelihood")
def test_likelihood(case: dict[str, Any]) -> None:
    theta, noise = [mixture(case["theta"])], case["noise"]
    X, y = np.array(case["X"]), np.array(case["y"])
    meets(oracle.gram(theta, X)[0], case["K"])
    meets(oracle.log_likelihood(theta, X, y, noise)[0], case["log_likelihood"])
    *arrays, d_noise = oracle.log_likelihood_gradient(theta, X, y, noise)
    for computed, name in zip(arrays, ("weights", "means", "scales"), strict=True):
        meets(computed, case["grad"][name])
    meets(d_noise.sum(), case["grad"]["noise"])


@cases("quadrature")
def test_quadrature(case: dict[str, Any]) -> None:
    thetas, samples, candidates = ([mixture(m) for m in case[k]] for k in ("thetas", "samples", "candidates"))
    s = oracle.fit_surrogate(
        thetas,
        case["log_likelihood"],
        outputscale=case["output_scale"] ** 2,
        lengthscale=case["length_scale"],
        power=case["q"],
        jitter=case["relative_jitter"],
        epsilon_factor=case["epsilon_factor"],
    )
    meets(s.log_offset, case["log_offset"])
    meets(s.epsilon, case["epsilon"])
    meets(s.z, case["z"])
    meets(s.K, case["kernel"])
    e = oracle.integrate(s, samples, case["sample_weights"])
    meets(e.weights, case["quadrature_weights"])
    meets(e.mean, case["integral_mean"])
    meets(sum(e.mean_by_size.values()), case["integral_mean"])
    meets(e.log_evidence, case["log_evidence"])
    meets(e.variance, case["integral_variance"])
    meets(oracle.surrogate_mean(s, candidates), case["posterior_mean_g"])
    meets(oracle.surrogate_covariance(s, candidates), case["posterior_cov_g"])
    meets(oracle.covariance_with_integral(s, e, candidates), case["covariance_with_integral"])
    meets(oracle.mutual_information(s, e, candidates), case["mutual_information_single"])
    meets(oracle.mutual_information(s, e, candidates, batch=True), case["mutual_information_batch"])
    meets(oracle.uncertainty(s, candidates), case["uncertainty"])


@cases("prediction")
def test_prediction(case: dict[str, Any]) -> None:
    thetas = [mixture(m) for m in case["thetas"]]
    means, covariances = oracle.predict_gp(
        thetas, np.array(case["X"]), np.array(case["y"]), case["noise"], np.array(case["X_test"]), observed=True
    )
    meets(means, case["gp_means"])
    meets(covariances, case["gp_covariances"])
    p = oracle.combine_gaussians(case["pair_weights"], means, np.array([np.diag(C) for C in covariances]))
    meets(p.mean, case["mean"])
    meets(p.variance, case["variance"])
    meets(p.log_density(case["y_test"]), case["log_density"])
    log_density, mean = oracle.combine_gaussians_joint(case["pair_weights"], means, covariances, case["y_test"])
    meets(log_density, case["joint_log_density"])
    meets(mean, case["joint_mean"])
