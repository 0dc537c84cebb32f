"""Multi-start L-BFGS-B: NaN and infinite objectives, bounds, and what is reported."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from maskerade_fast._optimize import maximise
from maskerade_fast.errors import OptimisationError

CENTRE = np.array([0.5, -1.0, 2.0])


def hill(x):
    return -((x - CENTRE) ** 2).sum(), -2.0 * (x - CENTRE)


def log_gamma_like(x):
    """log x - x: NaN for x < 0 as NumPy has it, -inf at 0, maximum -1 at 1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return float((np.log(x) - x).sum()), 1.0 / x - 1.0


def counting(calls: list[float]):
    """`hill`, whose values are added to `calls`."""

    def called(x):
        value, gradient = hill(x)
        calls.append(value)
        return value, gradient

    return called


def test_maximum_of_a_hill():
    calls: list[float] = []
    best = maximise(counting(calls), np.zeros((1, 3)))
    assert_allclose(best.x, CENTRE, atol=1e-6)
    assert best.value == hill(best.x)[0]
    assert (best.n_dropped, best.n_abnormal) == (0, 0)
    assert len(calls) >= 2


def test_best_of_many_starts():
    def two_hills(x):
        heights = np.array([1.0, 3.0]) * np.exp(-0.5 * (x[0] - np.array([-4.0, 4.0])) ** 2)
        return heights.sum(), np.array([-(heights * (x[0] - np.array([-4.0, 4.0]))).sum()])

    best = maximise(two_hills, np.array([[-5.0], [3.0], [-3.0]]))
    assert_allclose(best.x, [4.0], atol=1e-5)


def test_bounds_hold():
    seen = []

    def watched(x):
        seen.append(x)
        return hill(x)

    best = maximise(watched, np.array([[9.0, 9.0, 9.0]]), lower=-0.75, upper=[0.25, 3.0, 1.0])
    assert_allclose(best.x, [0.25, -0.75, 1.0], atol=1e-12)
    assert (np.array(seen) >= -0.75).all()
    assert (np.array(seen) <= [0.25, 3.0, 1.0]).all()


def test_equal_bounds_fix_a_coordinate():
    """The gradient along a fixed coordinate is not looked at, even if it is NaN."""

    def half_defined(x):
        value, gradient = hill(x)
        gradient[1] = np.nan
        return value, gradient

    best = maximise(half_defined, np.zeros((2, 3)), lower=[-5.0, 0.3, -5.0], upper=[5.0, 0.3, 5.0])
    assert best.x[1] == 0.3
    assert_allclose(best.x, [0.5, 0.3, 2.0], atol=1e-6)
    assert best.n_dropped == 0


def test_all_coordinates_fixed():
    calls: list[float] = []
    best = maximise(counting(calls), np.zeros((1, 3)), lower=[1.0, 2.0, 3.0], upper=[1.0, 2.0, 3.0])
    assert_array_equal(best.x, [1.0, 2.0, 3.0])
    assert len(calls) == 1


def test_bad_starts_are_dropped_and_counted():
    """NaN coordinates, infinite ones, NaN and -inf objectives; the good start wins."""
    starts = np.array([[np.nan], [np.inf], [-1.0], [0.0], [3.0]])
    best = maximise(log_gamma_like, starts)
    assert_allclose(best.x, [1.0], atol=1e-5)
    assert_allclose(best.value, -1.0, atol=1e-9)
    assert best.n_dropped == 4


def test_start_outside_the_domain_moves_in():
    best = maximise(log_gamma_like, np.array([[-1.0]]), lower=1e-3)
    assert_allclose(best.x, [1.0], atol=1e-5)
    assert best.n_dropped == 0


def test_not_a_number_on_the_way():
    """The first full step from 0.01 lands where the logarithm is NaN, or beyond a cliff."""

    def cliff(x):
        return (np.nan, np.full(1, np.nan)) if x[0] > 2.5 else log_gamma_like(x)

    for start in (0.01, 0.1, 2.4):
        best = maximise(cliff, np.array([[start]]))
        assert_allclose(best.x, [1.0], atol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["value", "gradient"])
def test_maximum_beside_a_hole(bad, where):
    """Rising towards a hole: the answer is finite, near the edge, and a point really seen."""
    finite = []

    def edge(x):
        if x.sum() > 1.0:
            return (bad, np.ones(2)) if where == "value" else (5.0, np.array([bad, 1.0]))
        finite.append(x.copy())
        return x.sum(), np.ones(2)

    best = maximise(edge, np.array([[0.0, 0.0], [-3.0, 1.0]]))
    assert np.isfinite(best.x).all()
    assert 0.9 < best.value <= 1.0
    assert best.value == best.x.sum()
    assert any((x == best.x).all() for x in finite)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nothing_finite_is_an_error(value):
    with pytest.raises(OptimisationError, match="not finite at any of 3 starts"):
        maximise(lambda x: (value, np.ones(2)), np.zeros((3, 2)))


def test_abnormal_ends_are_counted_and_others_go_on():
    """A gradient of the wrong sign on the left fails the line search there, not the whole."""

    def wrong_on_the_left(x):
        sign = -1.0 if x[0] < -1.0 else 1.0
        return -((x[0] - 2.0) ** 2), sign * np.array([-2.0 * (x[0] - 2.0)])

    best = maximise(wrong_on_the_left, np.array([[-5.0], [0.0], [-4.0]]))
    assert best.n_abnormal == 2
    assert_allclose(best.x, [2.0], atol=1e-6)
    alone = maximise(wrong_on_the_left, np.array([[-5.0]]))
    assert alone.n_abnormal == 1
    assert alone.value >= -49.0  # never worse than its start


def test_objective_may_write_to_its_argument():
    def careless(x):
        value, gradient = hill(x)
        x[:] = np.nan
        return value, gradient

    assert_allclose(maximise(careless, np.zeros((1, 3))).x, CENTRE, atol=1e-6)


def test_running_out_of_iterations_is_no_failure():
    from scipy.optimize import rosen, rosen_der

    best = maximise(lambda x: (-rosen(x), -rosen_der(x)), np.full((1, 4), -1.0), max_iterations=2)
    assert best.n_abnormal == 0
    assert -rosen(np.full(4, -1.0)) < best.value < -1e-3


@pytest.mark.parametrize(
    ("starts", "bounds", "words"),
    [
        (np.zeros(3), {}, "starts: shape"),
        (np.zeros((0, 3)), {}, "starts: shape"),
        (np.zeros((1, 3)), {"lower": [0.0, 2.0, 0.0], "upper": 1.0}, r"lower\[1\]: 2.0, expected a number <= upper"),
        (np.zeros((1, 3)), {"lower": [1.0, 2.0, 0.0], "upper": 1.0}, r"lower\[1\]: 2.0, expected a number <= upper"),
        (np.zeros((1, 3)), {"lower": np.nan}, r"lower\[0\]: nan"),
        (np.zeros((1, 3)), {"max_iterations": 0}, "max_iterations: 0"),
    ],
)
def test_bad_arguments_are_named(starts, bounds, words):
    with pytest.raises(ValueError, match=words):
        maximise(hill, starts, **bounds)
