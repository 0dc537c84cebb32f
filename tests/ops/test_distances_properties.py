"""Properties of distances and hyper-kernel on any ragged batch, zero weights and coinciding atoms included."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest

hypothesis = pytest.importorskip("hypothesis")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from strategies import batches, dimensions  # noqa: E402

from maskerade_fast.model.gmm import GMMBatch  # noqa: E402
from maskerade_fast.ops.distances import energy_distance, energy_distance_vjp, gaussian_mmd2, gaussian_mmd2_vjp  # noqa: E402
from maskerade_fast.ops.hyperkernel import hyperkernel, hyperkernel_matvec  # noqa: E402
from maskerade_fast.ops.metric import Metric  # noqa: E402

metrics = st.builds(Metric, reflect=st.booleans(), frequency_scale=st.sampled_from([None, 0.5, 3.0]))
distances = st.sampled_from(
    [(energy_distance, energy_distance_vjp, {}), (gaussian_mmd2, gaussian_mmd2_vjp, {"bandwidth": 0.75})]
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[GMMBatch, GMMBatch]:
    D = draw(dimensions)
    return draw(batches(D)), draw(batches(D))


def bound(a: GMMBatch, b: GMMBatch) -> float:
    """Rounding of a distance: some eps of the largest possible cross term of masses 1."""
    reach = max(float(np.abs(x).max()) for g in (a, b) for x in (g.means, g.scales))
    return 1e-14 * (1.0 + 4.0 * reach * np.sqrt(2 * a.n_dims))


@given(pairs(), metrics, distances)
def test_symmetric_and_not_negative(pair: Any, metric: Metric, distance: Any) -> None:
    a, b = pair
    f, _, options = distance
    E = f(a, b, metric=metric, **options)
    assert (E >= 0.0).all()
    np.testing.assert_allclose(E, f(b, a, metric=metric, **options).T, rtol=0.0, atol=bound(a, b))
    np.testing.assert_array_equal(np.diag(f(a, a, metric=metric, **options)), 0.0)


@given(pairs(), st.data())
def test_order_and_splits_do_not_matter(pair: Any, data: st.DataObject) -> None:
    a, b = pair
    order = np.concatenate([lo + np.array(data.draw(st.permutations(range(n)))) for lo, n in
                            zip(a.offsets[:-1], a.n_components, strict=True)])  # fmt: skip
    copies = data.draw(st.integers(1, 4))
    rows = np.repeat(order, copies)
    changed = GMMBatch(a.offsets * copies, a.weights[rows] / copies, a.means[rows], a.scales[rows])
    np.testing.assert_allclose(energy_distance(changed, b), energy_distance(a, b), rtol=0.0, atol=bound(a, b))


@given(pairs(), st.integers(-64, 64))
def test_translation_of_the_means(pair: Any, steps: int) -> None:
    a, b = pair
    shifted = [GMMBatch(g.offsets, g.weights, g.means + steps / 8.0, g.scales) for g in (a, b)]
    np.testing.assert_array_equal(energy_distance(*shifted), energy_distance(a, b))


@given(pairs(), metrics, distances)
def test_gradient_meets_oracle(pair: Any, metric: Metric, distance: Any) -> None:
    a, b = pair
    _, vjp, options = distance
    G = np.linspace(-1.0, 1.0, len(a) * len(b)).reshape(len(a), len(b))
    g = vjp(a, b, G, metric=metric, **options)
    keywords = {"reflect": metric.reflect, "frequency_scale": metric.frequency_scale, **options}
    expected = getattr(oracle, vjp.__name__)(oracle.mixtures_of(a), oracle.mixtures_of(b), G, **keywords)
    for part, value in zip(("weights", "means", "scales"), expected, strict=True):
        np.testing.assert_allclose(getattr(g, part), value, rtol=0.0, atol=1e-11)


@given(dimensions.flatmap(lambda D: batches(D, max_mixtures=12, noise=True, unit_mass=False)), st.sampled_from([1, 2]))
def test_hyperkernel_is_positive_semi_definite(g: GMMBatch, power: int) -> None:
    metric = Metric(noise_weight=0.5, mass_weight=0.5)
    options: dict[str, Any] = {"outputscale": 1.0, "lengthscale": 2.0, "power": power, "metric": metric}
    rounding = 1e-7 if power == 1 else 1e-12  # of equal mixtures: the root turns 1e-16 into 1e-8
    K = hyperkernel(g, **options)
    assert np.linalg.eigvalsh(K)[0] > -len(g) * rounding
    v = np.arange(1.0, len(g) + 1.0)
    np.testing.assert_allclose(hyperkernel_matvec(g, None, v, **options), K @ v, rtol=rounding)
