"""Posteriors: predictions, bands, kernels and spectral densities, and that they survive saving."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import maskerade_fast as mf

SIZES = {"budget": 30, "initial": 20, "batch_size": 5, "nodes": 64, "max_components": 2}
QUICK: dict[str, Any] = {**SIZES, "proposals": "prior", "device": "cpu"}


def waves(n: int = 25) -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(0.0, 1.0, n)
    return x, np.sin(2 * np.pi * 3 * x) + 0.3 * np.cos(2 * np.pi * 7 * x)


@pytest.fixture(scope="module")
def post():
    return mf.marginalise(*waves(), **QUICK, seed=3)


def test_save_and_load(post, tmp_path):
    path = tmp_path / "model.npz"
    post.save(path)
    loaded = mf.load(path)
    x = np.linspace(-0.1, 1.1, 7)
    np.testing.assert_array_equal(loaded.predict(x).mean, post.predict(x).mean)
    np.testing.assert_array_equal(loaded.predict(x).quantile(0.1), post.predict(x).quantile(0.1))
    assert loaded.joint_log_density(x, x) == post.joint_log_density(x, x)
    np.testing.assert_array_equal(loaded.kernel(x).lower, post.kernel(x).lower)
    assert loaded.history == post.history
    assert loaded.warnings == post.warnings
    for name in ("log_evidence", "log_evidence_sd", "effective_sample_size"):
        assert getattr(loaded, name) == getattr(post, name)


def test_pruning_drops_little(post):
    """The mixtures left out change the predictive density by less than their stated share."""
    x, y = np.linspace(0, 1, 9), waves(9)[1]
    kept = post.predict(x).log_density(y)
    assert len(post._kept) < len(post.mixtures)
    everything = dataclasses.replace(post)
    object.__setattr__(everything, "_kept", np.arange(len(post.mixtures)))
    np.testing.assert_allclose(kept, everything.predict(x).log_density(y), atol=1e-3)


def test_bands_use_the_fewest_nodes_that_carry_all_but_a_millionth(post):
    shares = np.array([1e-9, 0.3, 0.7 - 4e-7 - 1e-9, 3e-7, 1e-7])
    heavy = dataclasses.replace(post, nodes_standardised=post.mixtures_standardised[:5], node_probabilities=shares)
    kept = heavy._carrying_nodes
    np.testing.assert_array_equal(kept.mixtures.means, heavy.mixtures[1:3].means)
    np.testing.assert_allclose(kept.probabilities, shares[1:3] / shares[1:3].sum(), rtol=1e-12)


def test_kernel_and_spectral_density_are_a_transform_pair(post):
    f = np.linspace(-60, 60, 24001)
    density = post.spectral_density(f)
    step = f[1] - f[0]
    np.testing.assert_allclose(density.mean.sum() * step, post.kernel([0.0]).mean, rtol=1e-4)
    lag = 0.13
    transform = (density.mean * np.cos(2 * np.pi * f * lag)).sum() * step
    np.testing.assert_allclose(transform, post.kernel([lag]).mean, rtol=1e-3, atol=1e-4)
    assert (density.lower <= density.upper).all()
    np.testing.assert_array_equal(post.spectral_density(f, axis=-1).mean, density.mean)
    for axis, error in ((1, ValueError), (-2, ValueError), (0.0, TypeError)):
        with pytest.raises(error, match="axis"):
            post.spectral_density(f, axis=axis)


def test_latent_predictions_without_noise():
    """At a data point the latent variance is that of the noise, here nothing but rounding: it stays positive."""
    x, y = waves(9)
    post = mf.marginalise(x, y, **QUICK, seed=0, noise_variance=1e-14)
    latent = post.predict(x, observed=False)
    assert (latent.variance > 0).all()
    np.testing.assert_allclose(latent.mean, y, atol=1e-3)
