"""Every size that is measured, and the random data of it, the same in every run."""

from __future__ import annotations

from typing import Any

import numpy as np

import maskerade_fast as mf
from maskerade_fast import GMMBatch

PAIRS = [(1000, 1000, 1), (1000, 1000, 5)]  # (B_a, B_b, D): matrices of distances
CANDIDATES = [(1, 4600, 1), (20, 4600, 1), (20, 4600, 5)]  # (B_a, B_b, D): acquisition against observations and nodes
STREAMED = [(20_000, 1)]  # (B, D): products of a square hyper-kernel with a vector
MAX_COMPONENTS = 5
LIKELIHOODS = [(144, 100, 5, 1), (500, 20, 5, 1), (1503, 4, 5, 5)]  # (N, B, n, D): Gram matrices and likelihoods
NOISE = 0.01
GRIDS = [(500, 20), (2000, 4), (7779, 1)]  # (N, B): regular grids, the last as long as the daily sterling index
PREDICTIONS = [(144, 100, 150), (500, 100, 150)]  # (N, B, M)
PAIRS_OF_PREDICTIONS = [(100, 150), (300, 150)]  # (h, M): predictive mixtures
JOINT_PREDICTIONS = [(100, 15), (100, 150)]  # (h, M)
ACQUISITION = (200, 5000, 20)  # h, m, batch


def random_mixtures(B: int, D: int, *, seed: int = 0, max_components: int = MAX_COMPONENTS) -> GMMBatch:
    """B mixtures of 1 to `max_components` components and mass 1."""
    rng = np.random.default_rng([seed, B, D])
    counts = rng.integers(1, max_components + 1, B)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    weights = rng.random(offsets[-1])
    weights /= np.repeat(np.add.reduceat(weights, offsets[:-1]), counts)
    return GMMBatch(offsets, weights, np.abs(rng.normal(size=(offsets[-1], D))), rng.random((offsets[-1], D)))


def padded(g: GMMBatch, n: int = MAX_COMPONENTS) -> tuple[Any, Any]:
    """Weights (B, n) and points (B, n, 2 D), short mixtures filled up with weight 0: what NumPy can broadcast over."""
    weights, points = np.zeros((len(g), n)), np.zeros((len(g), n, 2 * g.n_dims))
    column = np.arange(len(g.weights)) - g.offsets[:-1][g.owner]
    weights[g.owner, column] = g.weights
    points[g.owner, column] = np.concatenate([g.means, g.scales], axis=1)
    return weights, points


def component_pairs(a: GMMBatch, b: GMMBatch) -> int:
    """Pairs of components, each of which costs a square root at least."""
    return len(a.weights) * len(b.weights)


def regression(N: int, B: int, n: int, D: int) -> tuple[GMMBatch, Any, Any]:
    """B mixtures of n components, N random inputs and targets."""
    rng = np.random.default_rng(0)
    parts = [(rng.dirichlet(np.ones(n)), 5 * rng.normal(size=(n, D)), rng.lognormal(size=(n, D))) for _ in range(B)]
    return GMMBatch.from_list(parts), rng.uniform(size=(N, D)), rng.normal(size=N)


def series(N: int, B: int, n: int = 3) -> tuple[GMMBatch, Any, Any]:
    """B mixtures of n components on a grid of N integers, and a random walk with noise as targets, of variance 1."""
    rng = np.random.default_rng([1, N, B])
    parts = [
        (rng.dirichlet(np.ones(n)), rng.uniform(0.0, 0.2, (n, 1)), rng.uniform(0.001, 0.05, (n, 1))) for _ in range(B)
    ]
    y = rng.normal(size=N).cumsum() + rng.normal(size=N)
    return GMMBatch.from_list(parts), np.arange(N, dtype=np.float64), (y - y.mean()) / y.std()


def state_of_a_run(h: int, m: int) -> tuple[mf.Surrogate, mf.Evidence, mf.PriorMeasure]:
    """What an acquisition step sees: a surrogate of h mixtures, its integral over m nodes, and their measure."""
    rng = np.random.default_rng(0)
    measure = mf.PriorMeasure(mf.Prior.paper(np.linspace(0, 1, 144)))
    nodes = measure.nodes(m, rng)
    g = measure.random_draws(h, rng).mixtures
    s = mf.Surrogate.fit(g, -0.02 * np.add.reduceat(g.weights * g.means[:, 0], g.offsets[:-1]) ** 2)
    e = mf.integrate(s, nodes.mixtures, nodes.weights)
    return s, e, measure
