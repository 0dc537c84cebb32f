"""The runs of every table: data, splits, settings, caps; `TABLES` has them by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import peers, recipes
from .data import Split, fold, last_tenth, load, random_tenth, withheld_runs
from .harness import Row, Run

UCI_SETS = ("yacht", "autompg", "concrete", "airfoil")
SERIES_SETS = ("airline", "co2_noaa_global")
BANK_SETS = ("concrete", "airfoil")
TIMED_SETS = ("sterling_eri", "road3d_5000")
NODES, OBSERVATIONS = (100, 1000, 10_000), (100, 500, 1000)
_CAP, _LONG_CAP = 120.0, 300.0  # seconds of a row
_CURVE_POINTS = 160  # of a forecast that are kept for pictures


@dataclass(frozen=True)
class Forecast:
    """A series to forecast: rows of a season, and the unit of its inputs."""

    season: int | None
    unit: str


FORECASTS = {
    "airline": Forecast(12, "month"),
    "co2_noaa_global": Forecast(12, "year"),
    "sunspots_monthly": Forecast(132, "year"),
    "tide_portland_hourly": Forecast(25, "hour"),
    "births_us_daily": Forecast(7, "day"),
    "lake_huron": Forecast(None, "year"),
    "solar_lean2000": Forecast(11, "year"),
    "sterling_eri": Forecast(None, "working day"),
    "macho_lightcurve": Forecast(None, "day"),
}
FORECAST_ROWS = 2000  # at most, of the first nine tenths


@dataclass(frozen=True)
class Options:
    """What the command line says to a table: the sets and methods to run (all by default), and settings.

    `quick` is the airline series at settings that mean nothing, to see that everything runs.
    """

    mode: str
    folder: Path | None
    numbers: range
    sets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    cap: float | None = None
    budget: int | None = None
    trend: str | None = None
    components: int | None = None
    quick: bool = False

    def chosen(self, sets: Any) -> list[str]:
        return ["airline"] if self.quick else [name for name in sets if not self.sets or name in self.sets]

    def settings(self, usual: dict[str, Any]) -> dict[str, Any]:
        """Return the usual settings of a table, with the trend and the components of the command line."""
        own = {"trend": self.trend, "components": self.components}
        return usual | {name: value for name, value in own.items() if value is not None}

    def has(self, method: str) -> bool:
        return not self.methods or method in self.methods


@dataclass(frozen=True)
class Table:
    """A table: its title, the number of runs of each set by mode, its sets, and what makes the runs."""

    title: str
    numbers: dict[str, int]
    sets: tuple[str, ...]
    runs: Callable[[Options], Iterator[Run]]


def rows_of_several_inputs(o: Options) -> dict[str, Any]:
    """Return the settings for rows of several inputs, by mode."""
    if o.mode == "default":
        return {"components": 2, "budget": o.budget or 2500}
    return {"components": 5, "budget": o.budget or 500, "batch_size": 10}


def series_of_one_input(o: Options) -> dict[str, Any]:
    """Return the settings for one input axis, by mode."""
    return {"components": 5, "budget": o.budget or (2500 if o.mode == "default" else 500)}


def seconds_of_a_row(o: Options) -> dict[str, Any]:
    """Return the settings of large sets, whose cap is their budget of seconds."""
    settings = {"components": 5, "budget": o.budget, "time_budget": o.cap or _CAP}
    return settings if o.mode == "default" else settings | {"initial": 100}


def held_out(
    sets: tuple[str, ...],
    split: Callable[[Any, int], Split],
    settings: Callable[[Options], dict[str, Any]],
    *,
    beside: bool = False,
) -> Callable[[Options], Iterator[Run]]:
    """Return the runs over splits of each set, with the MAP kernel `beside` the default."""

    def runs(o: Options) -> Iterator[Run]:
        for name in o.chosen(sets):
            for number in o.numbers:
                chosen = o.settings(settings(o))
                yield ours(o, name, number, split, chosen)
                if beside and o.mode == "default":
                    yield kernel(o, name, number, split, chosen["components"], likelihood_only=False)

    return runs


def ablation(o: Options) -> Iterator[Run]:
    """Yield acquisitions, and the spectral mixture kernel of largest likelihood; the same splits for all."""
    for name in o.chosen(SERIES_SETS):
        for number in o.numbers:
            for acquisition in ("information", "uncertainty", "random"):
                settings = {"components": 5, "budget": o.budget or 500, "acquisition": acquisition}
                yield ours(o, name, number, random_tenth, settings, method=acquisition)
            yield kernel(o, name, number, random_tenth, 5, likelihood_only=True)


def nodes(o: Options) -> Iterator[Run]:
    """Yield the evidence of airfoil by the number of quadrature nodes, for three numbers of observations."""

    def work(name: str, count: int, settings: dict[str, Any], seed: int) -> Callable[[float], Row]:
        def run(cap: float) -> Row:
            table = load(name, o.folder)
            rows = np.random.default_rng(seed).permutation(len(table))[:count]
            split = Split(table[rows, :-1], table[rows, -1], table[:0, :-1], table[:0, -1])
            start = time.perf_counter()
            post = recipes.fit(split, o.mode, seed=seed, time_budget=cap, **settings)
            return {**recipes.spent(post, split), "seconds": time.perf_counter() - start}

        return run

    for name in o.chosen(("airfoil",)):
        for number in o.numbers:
            for count in (100,) if o.quick else OBSERVATIONS:
                for size in (100,) if o.quick else NODES:
                    settings = {"components": 5, "budget": o.budget or 300, "nodes": size}
                    key = {**settings, "observations": count}
                    yield Run(name, "ours", number, key, work(name, count, settings, number), o.cap or _LONG_CAP)


def forecasts(o: Options) -> Iterator[Run]:
    """Yield the last tenth of nine series, from at most the latest 2000 rows before it."""
    for name in o.chosen(FORECASTS):
        season = FORECASTS[name].season
        for number in o.numbers:
            settings: dict[str, Any] = {"components": 5, "rows": FORECAST_ROWS}
            settings |= {"budget": o.budget or (2500 if o.mode == "default" else 500)}
            kind = {"components": 5, "rows": FORECAST_ROWS, "trend": "linear", "starts": 6}
            methods = {"ours": (settings, by_us(o, settings, number))}
            if o.mode == "default":  # the others are the same in both modes
                methods["ML kernel"] = (kind, by_kernel(kind, number))
                for peer, function in peers.PEERS.items():
                    methods[peer] = ({"rows": FORECAST_ROWS, "season": season}, by_peer(function, season))
            for method, (key, forecast) in methods.items():
                if o.has(method):
                    yield Run(name, method, number, key, forecast_run(o, name, forecast), o.cap or _LONG_CAP)


Method = Callable[[Split, float], tuple[Any, Callable[[], Row]]]
"""Gives the prediction of a split within a cap of seconds, and further figures on demand."""


def forecast_run(o: Options, name: str, forecast: Method) -> Callable[[float], Row]:
    def run(cap: float) -> Row:
        split = last_tenth(load(name, o.folder), FORECAST_ROWS)
        start = time.perf_counter()
        prediction, further = forecast(split, cap)
        figures = {**recipes.score(split, prediction), "seconds": time.perf_counter() - start}
        return {**figures, **further(), "curve": curve(split, prediction)}

    return run


def by_us(o: Options, settings: dict[str, Any], seed: int) -> Method:
    own = {key: value for key, value in settings.items() if key != "rows"}

    def forecast(split: Split, cap: float) -> tuple[Any, Callable[[], Row]]:
        post = recipes.fit(split, o.mode, seed=seed, time_budget=cap, **own)
        return post.predict(split.X_new), lambda: recipes.spent(post, split)

    return forecast


def by_kernel(kind: dict[str, Any], seed: int) -> Method:
    own = {key: kind[key] for key in ("components", "trend", "starts")}

    def forecast(split: Split, cap: float) -> tuple[Any, Callable[[], Row]]:
        prediction, _, took = recipes.best_kernel(split, seed=seed, likelihood_only=True, **own)
        return prediction, lambda: took

    return forecast


def by_peer(peer: Callable[[Split, int | None], Any], season: int | None) -> Method:
    return lambda split, cap: (peer(split, season), dict)


def curve(split: Split, prediction: Any) -> dict[str, list[float]]:
    """Mean and quantiles at some of the held-out rows, to four digits beside the series' spread."""
    rows = np.unique(np.linspace(0, len(split.y_new) - 1, _CURVE_POINTS).astype(int))
    digits = max(0, 3 - int(np.floor(np.log10(split.y_scale))))
    low, lower, upper, high = (q[rows] for q in prediction.quantile([0.05, 0.25, 0.75, 0.95]))
    parts = {"mean": prediction.mean[rows], "q05": low, "q25": lower, "q75": upper, "q95": high}
    return {"rows": rows.tolist(), **{name: np.round(part, digits).tolist() for name, part in parts.items()}}


# ---- single runs ----


def ours(
    o: Options,
    name: str,
    number: int,
    split: Callable[[Any, int], Split],
    settings: dict[str, Any],
    *,
    method: str = "ours",
) -> Run:
    def work(cap: float) -> Row:
        chosen = {"time_budget": cap, **settings}
        return recipes.measured(split(load(name, o.folder), number), o.mode, seed=number, **chosen)

    return Run(name, method, number, settings, work, o.cap or _CAP)


def kernel(
    o: Options,
    name: str,
    number: int,
    split: Callable[[Any, int], Split],
    components: int,
    *,
    likelihood_only: bool,
) -> Run:
    """Return the run of the best single kernel, with the trend of the default."""
    settings = {"components": components, "trend": "linear", "starts": 6, "steps": 10 if o.quick else 60}

    def work(_: float) -> Row:
        chosen = {**settings, "likelihood_only": likelihood_only, "seed": number}
        return recipes.measured_kernel(split(load(name, o.folder), number), **chosen)

    return Run(name, "ML kernel" if likelihood_only else "MAP kernel", number, settings, work, o.cap or _CAP)


def by_mode(default: int, paper: int) -> dict[str, int]:
    return {"default": default, "paper": paper}


SOLAR_SETS = ("solar_lean2000",)
TABLES = {
    "uci": Table(
        "UCI sets, a tenth held out at random",
        by_mode(10, 3),
        UCI_SETS,
        held_out(UCI_SETS, random_tenth, rows_of_several_inputs, beside=True),
    ),
    "series": Table(
        "Airline and CO2, a tenth held out at random",
        by_mode(10, 10),
        SERIES_SETS,
        held_out(SERIES_SETS, random_tenth, series_of_one_input, beside=True),
    ),
    "solar": Table(
        "Solar irradiance, five runs of 20 years withheld",
        by_mode(10, 10),
        SOLAR_SETS,
        held_out(SOLAR_SETS, lambda table, _: withheld_runs(table), series_of_one_input, beside=True),
    ),
    "last": Table(
        "Airline, CO2 and UCI sets, the last tenth held out",
        by_mode(3, 3),
        SERIES_SETS + UCI_SETS,
        held_out(SERIES_SETS + UCI_SETS, lambda table, _: last_tenth(table), series_of_one_input),
    ),
    "bank": Table(
        "Three times five folds, as BaNK",
        by_mode(15, 15),
        BANK_SETS,
        held_out(BANK_SETS, fold, rows_of_several_inputs),
    ),
    "nodes": Table("Evidence of airfoil by quadrature nodes", by_mode(5, 5), ("airfoil",), nodes),
    "ablation": Table("What each part adds", by_mode(10, 10), SERIES_SETS, ablation),
    "timed": Table(
        "Sterling and roads under a budget of seconds",
        by_mode(3, 3),
        TIMED_SETS,
        held_out(TIMED_SETS, random_tenth, seconds_of_a_row),
    ),
    "forecasts": Table("Forecasts of the last tenth", by_mode(1, 1), tuple(FORECASTS), forecasts),
}
