"""What people forecast a series with: scikit-learn's Gaussian process, statsmodels' ETS and SARIMAX, the season before.

Each takes a split and the number of rows in a season, and returns Gaussian predictions of the held-out rows. ETS,
SARIMAX and the season before see rows, not times: where spacing is uneven they take it as even.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .data import Split
from .recipes import Gaussian

_LONGEST_SEASON = 24  # that SARIMAX gets as one: its states are as many
_FULL_SEARCH = 600  # rows up to which the Gaussian process starts anew twice
_ORDERS = ((1, 1, 1), (2, 1, 2), (1, 0, 1), (2, 0, 0), (0, 1, 1))


def season_before(split: Split, season: int | None) -> Gaussian:
    """The row a season ago (without a season the last row), repeated; variance from the same over the training rows,
    growing with each repetition as a random walk's.
    """
    y, ahead, step = split.y, len(split.y_new), season or 1
    step = min(step, len(y) - 1)
    mean = np.resize(y[-step:], ahead)
    repeats = np.arange(ahead) // step + 1
    return Gaussian(mean, np.mean((y[step:] - y[:-step]) ** 2) * repeats)


def gaussian_process(split: Split, season: int | None) -> Gaussian:
    """scikit-learn's: a squared exponential, a periodic times a squared exponential, and white noise."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, WhiteKernel

    window = float(np.ptp(split.X[:, 0]))
    period = window / len(split.y) * (season or strongest_period(split.y))
    seasonal = ExpSineSquared(1.0, period, (0.1, 10.0), (0.5 * period, 2.0 * period))
    kernel = (
        ConstantKernel(1.0, (1e-3, 1e3)) * RBF(0.2 * window, (1e-3 * window, 1e1 * window))
        + ConstantKernel(1.0, (1e-3, 1e3)) * seasonal * RBF(window, (0.05 * window, 1e2 * window))
        + WhiteKernel(0.1, (1e-6, 1e1))
    )
    restarts = 2 if len(split.y) <= _FULL_SEARCH else 0
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=restarts, random_state=0)
    with quiet():
        model.fit(split.X - split.X[0], split.y)
        mean, sd = model.predict(split.X_new - split.X[0], return_std=True)
    return Gaussian(mean, sd**2)


def exponential_smoothing(split: Split, season: int | None) -> Gaussian:
    """statsmodels' ETS with additive errors: trend none or damped, with a season if there is one, by AICc.

    The states of a season of more than 24 rows start where the data say, not where a search ends.
    """
    from pandas import Series
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    seasonal = season is not None and len(split.y) >= 2 * season
    best: Any = None
    for trend in (None, "add"):
        kind: dict[str, Any] = {"trend": trend, "damped_trend": trend is not None}
        kind |= {"seasonal": "add", "seasonal_periods": season} if seasonal else {}
        if seasonal and season is not None and season > _LONGEST_SEASON:  # else its first states are searched for too
            kind["initialization_method"] = "heuristic"
        with quiet():
            fitted = ETSModel(Series(split.y), error="add", **kind).fit(disp=False, maxiter=300)
        if best is None or fitted.aicc < best.aicc:
            best = fitted
    with quiet():
        ahead = best.get_prediction(start=len(split.y), end=len(split.y) + len(split.y_new) - 1)
    return Gaussian(ahead.predicted_mean.to_numpy(), np.asarray(ahead.forecast_variance))


def sarimax(split: Split, season: int | None) -> Gaussian:
    """statsmodels' SARIMAX: five orders, with a differenced season and its moving average up to 24 rows and as three
    pairs of sines beyond, by AIC.
    """
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    n, ahead = len(split.y), len(split.y_new)
    own: dict[str, Any] = {}
    waves = np.empty((n + ahead, 0))
    if season is not None and season <= _LONGEST_SEASON:
        own["seasonal_order"] = (0, 1, 1, season)
    elif season is not None:
        turns = 2.0 * np.pi * np.arange(n + ahead)[:, None] * np.arange(1, 4) / season
        waves = np.hstack([np.sin(turns), np.cos(turns)])
    regressors = {"exog": waves[:n]} if waves.size else {}
    best: Any = None
    for order in _ORDERS:
        trend = "c" if order[1] == 0 and "seasonal_order" not in own else None
        with quiet():
            try:
                fitted = SARIMAX(split.y, order=order, trend=trend, **own, **regressors).fit(disp=False, maxiter=100)
            except (np.linalg.LinAlgError, ValueError):
                continue
        if np.isfinite(fitted.aic) and (best is None or fitted.aic < best.aic):
            best = fitted
    if best is None:
        raise ValueError("y: no order of SARIMAX could be fitted")
    with quiet():
        forecast = best.get_forecast(ahead, **({"exog": waves[n:]} if waves.size else {}))
    return Gaussian(forecast.predicted_mean, forecast.se_mean**2)


def strongest_period(y: Any) -> float:
    """Rows of one period where the detrended series has most power."""
    rows = np.arange(len(y))
    detrended = y - np.polyval(np.polyfit(rows, y, 1), rows)
    power = np.abs(np.fft.rfft(detrended)) ** 2
    power[:2] = 0.0
    return len(y) / max(int(np.argmax(power)), 2)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings of searches that end at a bound or at their last step."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


PEERS: dict[str, Callable[[Split, int | None], Gaussian]] = {
    "season before": season_before,
    "scikit-learn GP": gaussian_process,
    "ETS": exponential_smoothing,
    "SARIMAX": sarimax,
}
